//! The threads that play. Each has sessions of its own, with their sockets, a loop and batches; nothing is shared on the
//! way of a datagram.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use std::{fmt, iter, thread};

use anyhow::{Context, ensure};
use bcnet_transport::Time;
use bcnet_udp::Clock;

use super::coalescing::{Coalescing, Limits};
use super::session_group::{Commands, SessionGroup};
use super::session_host::SessionHost;
use crate::event_loop::{EventLoop, PATIENCE, Service};
use crate::recorder::Recorder;

/// Reaches all threads that play, from any other.
#[derive(Clone)]
pub(super) struct Workers {
    /// Session `n` is the one with number `n / len` of thread `n % len`.
    commands: Vec<Commands>,
    sessions: usize,
}

impl Workers {
    /// Returns how many sessions there are, those whose thread is gone too.
    pub(super) const fn sessions(&self) -> usize {
        self.sessions
    }

    /// Has something done in every thread, unless the server is over.
    pub(super) fn give_all(&self, command: impl Fn(&mut SessionGroup, Time) + Clone + Send + 'static) {
        for commands in &self.commands {
            commands.give(command.clone());
        }
    }

    /// Has something done in one thread.
    #[cfg(test)]
    pub(super) fn give_thread(
        &self,
        thread: usize,
        command: impl FnOnce(&mut SessionGroup, Time) + Send + 'static,
    ) {
        self.commands[thread].give(command);
    }

    /// Has something done to every session, each by a command of its own that `make` returns for its number: no thread
    /// is kept from its datagrams for longer than one session takes.
    pub(super) fn give_each<C: FnOnce(&mut SessionHost, Time) + Send + 'static>(
        &self,
        make: impl Fn(usize) -> C,
    ) {
        for session in 0..self.sessions {
            let command = make(session);
            self.give_one(session, move |host, _, now| command(host, now));
        }
    }

    /// Asks every session for something, each by a command of its own. Returns the answers in the order of the sessions;
    /// those of a thread that is gone are missing.
    pub(super) fn ask_each<T: Send + 'static>(
        &self,
        question: impl Fn(&mut SessionHost, &Coalescing, Time) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let (reply, answers) = mpsc::channel();
        for session in 0..self.sessions {
            let (reply, question) = (reply.clone(), question.clone());
            self.give_one(session, move |host, coalescing, now| {
                // Whoever asked may be gone.
                drop(reply.send((session, question(host, coalescing, now))));
            });
        }
        drop(reply);
        let mut answers: Vec<_> = iter::from_fn(|| answers.recv_timeout(PATIENCE).ok()).collect();
        answers.sort_unstable_by_key(|(session, _)| *session);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Asks every thread whether it plays. One that does not answer for so long is stuck.
    pub(super) fn ask_threads(&self, patience: Duration) -> Pulse {
        let (reply, answers) = mpsc::channel();
        for commands in &self.commands {
            let reply = reply.clone();
            commands.give(move |_, _| {
                // Whoever asked may be gone.
                let _ = reply.send(());
            });
        }
        drop(reply);
        let mut answered = 0;
        loop {
            match answers.recv_timeout(patience) {
                Ok(()) => answered += 1,
                Err(RecvTimeoutError::Timeout) => return Pulse { answered, is_any_stuck: true },
                // Each has answered, or is over.
                Err(RecvTimeoutError::Disconnected) => return Pulse { answered, is_any_stuck: false },
            }
        }
    }

    /// Asks one session, by its number. Returns `None` if its thread is gone.
    pub(super) fn ask_one<T: Send + 'static>(
        &self,
        session: usize,
        question: impl FnOnce(&mut SessionHost, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.give_one(session, move |host, _, now| drop(reply.try_send(question(host, now))));
        answer.recv_timeout(PATIENCE).ok()
    }

    fn give_one(
        &self,
        session: usize,
        command: impl FnOnce(&mut SessionHost, &Coalescing, Time) + Send + 'static,
    ) {
        let threads = self.commands.len().max(1);
        if let Some(commands) = self.commands.get(session % threads) {
            commands.give(move |group, now| group.act(session / threads, now, command));
        }
    }
}

/// What threads said that were asked whether they play.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pulse {
    answered: usize,
    is_any_stuck: bool,
}

impl Pulse {
    /// Returns whether all that are not over play, and there are any.
    pub(super) const fn are_all_well(self) -> bool {
        self.answered > 0 && !self.is_any_stuck
    }

    /// Returns whether no thread is left.
    pub(super) const fn is_over(self) -> bool {
        self.answered == 0 && !self.is_any_stuck
    }
}

/// One thread that plays, before it is started.
pub(super) struct Worker {
    event_loop: EventLoop<SessionGroup>,
    group: SessionGroup,
    clock: Clock,
}

/// Deals the sessions out to threads.
pub(super) fn deal(
    hosts: Vec<SessionHost>,
    threads: usize,
    limits: Limits,
    clock: Clock,
    recorder: Option<&Recorder>,
) -> anyhow::Result<(Workers, Vec<Worker>)> {
    let (sessions, threads) = (hosts.len(), threads.min(hosts.len()).max(1));
    let mut hands: Vec<Vec<SessionHost>> = (0..threads).map(|_| Vec::new()).collect();
    for host in hosts {
        hands[host.number % threads].push(host);
    }
    let mut workers = Vec::new();
    for hosts in hands {
        let event_loop = EventLoop::new(clock)?;
        let group = SessionGroup::new(hosts, limits, event_loop.registrar()?, clock, recorder.cloned())?;
        workers.push(Worker { event_loop, group, clock });
    }
    let commands = workers.iter().map(|worker| worker.event_loop.commands()).collect();
    Ok((Workers { commands, sessions }, workers))
}

/// Lets all threads play until each is over. The end of one that nobody asked for is logged; the others go on.
pub(super) fn run(workers: Vec<Worker>) -> anyhow::Result<()> {
    let (ended, ends) = mpsc::channel();
    for (worker, number) in workers.into_iter().zip(1..) {
        let notice = Notice { ports: worker.ports(), outcome: Outcome::Died, ended: ended.clone() };
        let play = move || notice.finish(worker.play());
        thread::Builder::new().name(format!("worker {number}")).spawn(play)?;
    }
    drop(ended);
    let mut is_any_well = false;
    for (ports, outcome) in ends {
        match outcome {
            Outcome::Told => is_any_well = true,
            Outcome::Failed(_) | Outcome::Died => {
                let error = outcome.to_string();
                tracing::error!(event = "worker_failed", ports, error, "its sessions are over");
            }
        }
    }
    ensure!(is_any_well, "no thread is left that plays; the log tells why");
    Ok(())
}

impl Worker {
    fn ports(&self) -> String {
        let ports: Vec<_> = self.group.hosts.iter().map(|host| host.address.port().to_string()).collect();
        ports.join(", ")
    }

    fn play(mut self) -> Outcome {
        match self.event_loop.run(&mut self.group).context("waiting for datagrams") {
            Ok(()) => Outcome::Told,
            Err(error) => {
                // Nothing is heard any more, but players may hear the goodbye.
                let now = self.clock.now();
                self.group.stop(now);
                self.group.turn(now);
                Outcome::Failed(error)
            }
        }
    }
}

/// How a thread has ended.
#[derive(Debug)]
enum Outcome {
    /// As it was told.
    Told,
    Failed(anyhow::Error),
    /// It did not get to its end.
    Died,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told => f.write_str("ended as told"),
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Died => f.write_str("the thread has died"),
        }
    }
}

/// Tells that a thread has ended, however that came.
struct Notice {
    ports: String,
    outcome: Outcome,
    ended: Sender<(String, Outcome)>,
}

impl Notice {
    fn finish(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Died);
        // Whoever started the thread may be gone.
        drop(self.ended.send((std::mem::take(&mut self.ports), outcome)));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::serve::session_group::tests::{LIMITS, hosts};
    use bcnet_udp::Io;

    /// Returns threads for so many sessions, before they are started.
    pub(in super::super) fn dealt(sessions: usize, threads: usize) -> (Workers, Vec<Worker>) {
        deal(hosts(sessions, Io::BEST), threads, LIMITS, Clock::start(), None).expect("loops")
    }

    /// Returns the numbers of all sessions that answer, in the order of the answers.
    fn numbers(workers: &Workers) -> Vec<usize> {
        workers.ask_each(|host, _, _| host.number)
    }

    #[test]
    fn sessions_are_dealt_out_evenly_and_never_to_more_threads_than_there_are_sessions() {
        for (sessions, threads, expected) in
            [(1, 8, vec![1]), (5, 1, vec![5]), (5, 2, vec![3, 2]), (3, 8, vec![1, 1, 1])]
        {
            let (_, workers) = dealt(sessions, threads);
            let dealt: Vec<_> = workers.iter().map(|worker| worker.group.hosts.len()).collect();
            assert_eq!(dealt, expected, "{sessions} sessions, {threads} threads");
        }
    }

    #[test]
    fn answers_come_in_the_order_of_the_sessions() {
        let (reach, workers) = dealt(7, 3);
        let running = thread::spawn(move || run(workers));
        assert_eq!(numbers(&reach), [0, 1, 2, 3, 4, 5, 6]);
        for session in 0..7 {
            assert_eq!(reach.ask_one(session, |host, _| host.number), Some(session));
        }
        assert_eq!(reach.ask_one(7, |host, _| host.number), None);
        reach.give_all(SessionGroup::stop);
        running.join().expect("no panic").expect("ended as told");
        assert_eq!((numbers(&reach), reach.ask_one(0, |_, _| ())), (vec![], None), "nobody is left to ask");
    }

    #[test]
    fn a_thread_that_dies_is_noticed_and_the_others_go_on() {
        let (reach, workers) = dealt(5, 2);
        let running = thread::spawn(move || run(workers));
        assert_eq!(reach.ask_one::<()>(3, |_, _| panic!("on purpose")), None);
        assert_eq!(numbers(&reach), [0, 1, 2, 3, 4], "a session that fails takes nobody with it");
        reach.give_thread(1, |_, _| panic!("on purpose"));
        assert_eq!(numbers(&reach), [0, 2, 4]);
        assert!(!running.is_finished());
        reach.give_all(SessionGroup::stop);
        running.join().expect("no panic").expect("one has ended as told");
    }

    #[test]
    fn without_any_thread_left_the_server_has_failed() {
        let (reach, workers) = dealt(1, 2);
        let running = thread::spawn(move || run(workers));
        reach.give_all(|_, _| panic!("on purpose"));
        assert!(running.join().expect("no panic").is_err());
    }
}
