//! The worker threads, which run the sessions.
//!
//! Each thread owns its sessions with their sockets, an event loop and datagram batches. Threads share
//! nothing on the path of a datagram. Other threads reach a session only with commands.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use std::{fmt, iter, thread};

use anyhow::{Context, ensure};
use bcnet_transport::Time;
use bcnet_udp::Clock;

use super::coalescing::{Coalescing, CoalescingLimits};
use super::session_group::{SessionCommands, SessionGroup};
use super::session_host::SessionHost;
use crate::event_loop::{EventLoop, REPLY_TIMEOUT, Service};
use crate::recorder::Recorder;

/// A handle to all worker threads, for use from any thread.
#[derive(Clone)]
pub(super) struct Workers {
    /// Session `n` is number `n / len` of thread `n % len`.
    commands: Vec<SessionCommands>,
    sessions: usize,
}

impl Workers {
    /// Returns the number of sessions, including those of ended threads.
    pub(super) const fn sessions(&self) -> usize {
        self.sessions
    }

    /// Runs a command in every thread that has not ended.
    pub(super) fn send_to_threads(&self, command: impl Fn(&mut SessionGroup, Time) + Clone + Send + 'static) {
        for commands in &self.commands {
            commands.send(command.clone());
        }
    }

    /// Runs a command in one thread.
    #[cfg(test)]
    pub(super) fn send_to_thread(
        &self,
        thread: usize,
        command: impl FnOnce(&mut SessionGroup, Time) + Send + 'static,
    ) {
        self.commands[thread].send(command);
    }

    /// Runs the command that `make` returns for each session.
    ///
    /// Each session gets a separate command, so that a thread can handle datagrams between two commands.
    pub(super) fn send_to_sessions<C: FnOnce(&mut SessionHost, Time) + Send + 'static>(
        &self,
        make: impl Fn(usize) -> C,
    ) {
        for session in 0..self.sessions {
            let command = make(session);
            self.send_to_session(session, move |host, _, now| command(host, now));
        }
    }

    /// Runs a query in every session, each with a separate command.
    ///
    /// Returns the answers in the order of the sessions. Those of ended threads are missing.
    pub(super) fn call_sessions<T: Send + 'static>(
        &self,
        query: impl Fn(&mut SessionHost, &Coalescing, Time) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let (reply, answers) = mpsc::channel();
        for session in 0..self.sessions {
            let (reply, question) = (reply.clone(), query.clone());
            self.send_to_session(session, move |host, coalescing, now| {
                // The caller may have given up waiting.
                drop(reply.send((session, question(host, coalescing, now))));
            });
        }
        drop(reply);
        let mut answers: Vec<_> = iter::from_fn(|| answers.recv_timeout(REPLY_TIMEOUT).ok()).collect();
        answers.sort_unstable_by_key(|(session, _)| *session);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Asks every thread to answer. A thread without an answer after `timeout` is stuck.
    pub(super) fn check_threads(&self, timeout: Duration) -> ThreadHealth {
        let (reply, answers) = mpsc::channel();
        for commands in &self.commands {
            let reply = reply.clone();
            commands.send(move |_, _| {
                // The caller may have given up waiting.
                let _ = reply.send(());
            });
        }
        drop(reply);
        let mut answered = 0;
        loop {
            match answers.recv_timeout(timeout) {
                Ok(()) => answered += 1,
                Err(RecvTimeoutError::Timeout) => return ThreadHealth { answered, is_any_stuck: true },
                // Every thread has answered or ended.
                Err(RecvTimeoutError::Disconnected) => return ThreadHealth { answered, is_any_stuck: false },
            }
        }
    }

    /// Runs a query in one session. Returns `None` if its thread has ended.
    pub(super) fn call_session<T: Send + 'static>(
        &self,
        session: usize,
        query: impl FnOnce(&mut SessionHost, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.send_to_session(session, move |host, _, now| drop(reply.try_send(query(host, now))));
        answer.recv_timeout(REPLY_TIMEOUT).ok()
    }

    fn send_to_session(
        &self,
        session: usize,
        command: impl FnOnce(&mut SessionHost, &Coalescing, Time) + Send + 'static,
    ) {
        let threads = self.commands.len().max(1);
        if let Some(commands) = self.commands.get(session % threads) {
            commands.send(move |group, now| group.with_session(session / threads, now, command));
        }
    }
}

/// The answers to [`Workers::check_threads`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadHealth {
    answered: usize,
    is_any_stuck: bool,
}

impl ThreadHealth {
    /// Returns whether at least one thread runs, and all running threads answered.
    pub(super) const fn are_all_responsive(self) -> bool {
        self.answered > 0 && !self.is_any_stuck
    }

    /// Returns whether all threads have ended.
    pub(super) const fn have_all_ended(self) -> bool {
        self.answered == 0 && !self.is_any_stuck
    }
}

/// A worker thread before its start.
pub(super) struct Worker {
    event_loop: EventLoop<SessionGroup>,
    group: SessionGroup,
    clock: Clock,
}

/// Distributes the sessions over threads.
pub(super) fn distribute(
    hosts: Vec<SessionHost>,
    threads: usize,
    limits: CoalescingLimits,
    clock: Clock,
    recorder: Option<&Recorder>,
) -> anyhow::Result<(Workers, Vec<Worker>)> {
    let (sessions, threads) = (hosts.len(), threads.min(hosts.len()).max(1));
    let mut hosts_by_thread: Vec<Vec<SessionHost>> = (0..threads).map(|_| Vec::new()).collect();
    for host in hosts {
        hosts_by_thread[host.number % threads].push(host);
    }
    let mut workers = Vec::new();
    for hosts in hosts_by_thread {
        let event_loop = EventLoop::new(clock)?;
        let group = SessionGroup::new(hosts, limits, event_loop.registrar()?, clock, recorder.cloned())?;
        workers.push(Worker { event_loop, group, clock });
    }
    let commands = workers.iter().map(|worker| worker.event_loop.command_sender()).collect();
    Ok((Workers { commands, sessions }, workers))
}

/// Runs all threads until each has ended.
///
/// If a thread fails, that is logged and the other threads continue.
///
/// # Errors
///
/// Fails if no thread ended by request.
pub(super) fn run(workers: Vec<Worker>) -> anyhow::Result<()> {
    let (ended, ends) = mpsc::channel();
    for (worker, number) in workers.into_iter().zip(1..) {
        let exit_guard =
            WorkerExitGuard { ports: worker.ports(), outcome: WorkerOutcome::Died, ended: ended.clone() };
        let play = move || exit_guard.finish(worker.run());
        thread::Builder::new().name(format!("worker {number}")).spawn(play)?;
    }
    drop(ended);
    let mut has_any_stopped = false;
    for (ports, outcome) in ends {
        match outcome {
            WorkerOutcome::Stopped => has_any_stopped = true,
            WorkerOutcome::Failed(_) | WorkerOutcome::Died => {
                let error = outcome.to_string();
                tracing::error!(
                    event = "worker_failed",
                    ports,
                    error,
                    "a worker thread failed; the sessions on these ports have ended; restart the server"
                );
            }
        }
    }
    ensure!(
        has_any_stopped,
        "all worker threads failed; the `worker_failed` lines of the log give the reasons"
    );
    Ok(())
}

impl Worker {
    fn ports(&self) -> String {
        let ports: Vec<_> = self.group.hosts.iter().map(|host| host.address.port().to_string()).collect();
        ports.join(", ")
    }

    fn run(mut self) -> WorkerOutcome {
        match self.event_loop.run(&mut self.group).context("waiting for datagrams") {
            Ok(()) => WorkerOutcome::Stopped,
            Err(error) => {
                // The loop cannot receive any more, but the disconnect notices can still be sent.
                let now = self.clock.now();
                self.group.stop(now);
                self.group.turn(now);
                WorkerOutcome::Failed(error)
            }
        }
    }
}

/// The way in which a thread ended.
#[derive(Debug)]
enum WorkerOutcome {
    /// By request.
    Stopped,
    Failed(anyhow::Error),
    /// By a panic.
    Died,
}

impl fmt::Display for WorkerOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped by request"),
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Died => f.write_str("the thread panicked"),
        }
    }
}

/// Reports the end of a thread when dropped, also after a panic.
struct WorkerExitGuard {
    ports: String,
    outcome: WorkerOutcome,
    ended: Sender<(String, WorkerOutcome)>,
}

impl WorkerExitGuard {
    fn finish(mut self, outcome: WorkerOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for WorkerExitGuard {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, WorkerOutcome::Died);
        // The thread that started the workers may have ended.
        drop(self.ended.send((std::mem::take(&mut self.ports), outcome)));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::serve::session_group::tests::{LIMITS, hosts};
    use bcnet_udp::Io;

    /// Returns threads for this number of sessions, before their start.
    pub(in super::super) fn test_workers(sessions: usize, threads: usize) -> (Workers, Vec<Worker>) {
        distribute(hosts(sessions, Io::BEST), threads, LIMITS, Clock::start(), None).expect("event loops")
    }

    /// Returns the numbers of all sessions that answer, in the order of the answers.
    fn numbers(workers: &Workers) -> Vec<usize> {
        workers.call_sessions(|host, _, _| host.number)
    }

    #[test]
    fn sessions_are_distributed_evenly_over_threads() {
        for (sessions, threads, expected) in
            [(1, 8, vec![1]), (5, 1, vec![5]), (5, 2, vec![3, 2]), (3, 8, vec![1, 1, 1])]
        {
            let (_, workers) = test_workers(sessions, threads);
            let counts: Vec<_> = workers.iter().map(|worker| worker.group.hosts.len()).collect();
            assert_eq!(counts, expected, "{sessions} sessions, {threads} threads");
        }
    }

    #[test]
    fn answers_come_in_the_order_of_the_sessions() {
        let (worker_handle, workers) = test_workers(7, 3);
        let running = thread::spawn(move || run(workers));
        assert_eq!(numbers(&worker_handle), [0, 1, 2, 3, 4, 5, 6]);
        for session in 0..7 {
            assert_eq!(worker_handle.call_session(session, |host, _| host.number), Some(session));
        }
        assert_eq!(worker_handle.call_session(7, |host, _| host.number), None);
        worker_handle.send_to_threads(SessionGroup::stop);
        running.join().expect("no panic").expect("stopped by request");
        assert_eq!(
            (numbers(&worker_handle), worker_handle.call_session(0, |_, _| ())),
            (vec![], None),
            "no thread is left"
        );
    }

    #[test]
    fn dead_thread_is_noticed_and_others_continue() {
        let (worker_handle, workers) = test_workers(5, 2);
        let running = thread::spawn(move || run(workers));
        assert_eq!(worker_handle.call_session::<()>(3, |_, _| panic!("on purpose")), None);
        assert_eq!(
            numbers(&worker_handle),
            [0, 1, 2, 3, 4],
            "a panic in a session does not end other sessions"
        );
        worker_handle.send_to_thread(1, |_, _| panic!("on purpose"));
        assert_eq!(numbers(&worker_handle), [0, 2, 4]);
        assert!(!running.is_finished());
        worker_handle.send_to_threads(SessionGroup::stop);
        running.join().expect("no panic").expect("one thread stopped by request");
    }

    #[test]
    fn server_fails_without_any_thread_left() {
        let (worker_handle, workers) = test_workers(1, 2);
        let running = thread::spawn(move || run(workers));
        worker_handle.send_to_threads(|_, _| panic!("on purpose"));
        assert!(running.join().expect("no panic").is_err());
    }
}
