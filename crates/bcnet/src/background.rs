//! Threads for what may wait for disks and name servers, which no event loop may.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;
use std::{io, thread};

/// A task for a thread of its own.
#[derive(Debug)]
pub(crate) struct BackgroundTask {
    triggers: Receiver<()>,
}

/// Has a background task done once more.
#[derive(Debug, Clone)]
pub(crate) struct Trigger(SyncSender<()>);

impl Trigger {
    /// Has the task done soon. If it is under way, it is done again, for what it has read may have changed since.
    pub(crate) fn fire(&self) {
        // One wish that is not heard yet stands for all.
        let _ = self.0.try_send(());
    }
}

impl BackgroundTask {
    pub(crate) fn new() -> (Trigger, Self) {
        let (sender, triggers) = mpsc::sync_channel(1);
        (Trigger(sender), Self { triggers })
    }

    /// Starts the thread, which does `task` whenever its trigger is fired and, if the task says so, again after the time
    /// that it returns.
    pub(crate) fn start(
        self,
        name: &str,
        mut task: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> io::Result<()> {
        let run = move || {
            let mut next_run = None;
            while self.wait_until_due(next_run) {
                next_run = task();
            }
        };
        thread::Builder::new().name(name.into()).spawn(run).map(drop)
    }

    /// Waits for the next time. Returns `false` if there is none.
    fn wait_until_due(&self, next_run: Option<Duration>) -> bool {
        match next_run.map(|again| (again, self.triggers.recv_timeout(again))) {
            None => self.triggers.recv().is_ok(),
            Some((_, Ok(()) | Err(RecvTimeoutError::Timeout))) => true,
            Some((again, Err(RecvTimeoutError::Disconnected))) => {
                thread::sleep(again);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_runs_on_trigger_and_again_after_its_delay() {
        let (done, times) = mpsc::channel();
        let (trigger, background) = BackgroundTask::new();
        let task = move || {
            done.send(()).unwrap_or_default();
            Some(Duration::from_millis(20))
        };
        background.start("test", task).expect("a thread");
        trigger.fire();
        for _ in 0..3 {
            times.recv_timeout(Duration::from_secs(5)).expect("asked once");
        }
        drop(trigger);
        times.recv_timeout(Duration::from_secs(5)).expect("although nobody can ask");
    }

    #[test]
    fn triggers_during_a_run_cause_one_more_run() {
        let ((done, times), (go, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        let (trigger, background) = BackgroundTask::new();
        let task = move || {
            done.send(()).unwrap_or_default();
            gate.recv().unwrap_or_default();
            None
        };
        background.start("test", task).expect("a thread");
        trigger.fire();
        times.recv_timeout(Duration::from_secs(5)).expect("when asked");
        (0..10).for_each(|_| trigger.fire());
        (0..3).for_each(|_| go.send(()).expect("waiting"));
        times.recv_timeout(Duration::from_secs(5)).expect("once more");
        assert!(times.recv_timeout(Duration::from_millis(50)).is_err(), "and no more than once");
    }
}
