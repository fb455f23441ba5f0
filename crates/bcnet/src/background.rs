//! Background threads for work that may block on disks and name servers. An event loop must not block.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;
use std::{io, thread};

/// A task that runs in a separate thread each time its trigger fires.
#[derive(Debug)]
pub(crate) struct BackgroundTask {
    triggers: Receiver<()>,
}

/// Starts another run of a background task.
#[derive(Debug, Clone)]
pub(crate) struct Trigger(SyncSender<()>);

impl Trigger {
    /// Requests a run of the task.
    ///
    /// If the task is running, it runs once more: its input may have changed since the run began.
    pub(crate) fn fire(&self) {
        // A full channel is fine: one pending request covers all later ones.
        let _ = self.0.try_send(());
    }
}

impl BackgroundTask {
    pub(crate) fn new() -> (Trigger, Self) {
        let (sender, triggers) = mpsc::sync_channel(1);
        (Trigger(sender), Self { triggers })
    }

    /// Starts the thread, which runs `task` each time the trigger fires.
    ///
    /// If `task` returns a duration, it runs again after that time, even without a trigger.
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

    /// Waits for the next run. Returns `false` if there will be none.
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
            times.recv_timeout(Duration::from_secs(5)).expect("one run for the trigger, then repeated runs");
        }
        drop(trigger);
        times
            .recv_timeout(Duration::from_secs(5))
            .expect("the task still repeats after the trigger is dropped");
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
        times.recv_timeout(Duration::from_secs(5)).expect("the first run");
        (0..10).for_each(|_| trigger.fire());
        (0..3).for_each(|_| go.send(()).expect("the task waits at the gate"));
        times.recv_timeout(Duration::from_secs(5)).expect("one more run for all triggers");
        assert!(
            times.recv_timeout(Duration::from_millis(50)).is_err(),
            "ten triggers cause only one more run"
        );
    }
}
