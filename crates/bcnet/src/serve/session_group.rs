//! All sessions of one thread, driven by one event loop.
//!
//! A turn takes all that has arrived everywhere, deciphers it together, hands it out, and sends in the same turn what came
//! of it, ciphered together. Only state updates may wait for a later turn, as far as [`Coalescing`] says.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bcnet_transport::{Deadlines, Time, cipher};

use super::coalescing::{Coalescing, Limits};
use super::session_host::{Reading, SessionHost};
use crate::clock::Clock;
use crate::event_loop::{CommandSender, Registrar, Service};
use crate::recorder::Recorder;
use crate::udp::{Batch, Received};

/// The sessions of one thread.
pub(super) struct SessionGroup {
    pub(super) hosts: Vec<SessionHost>,
    pub(super) recorder: Option<Recorder>,
    pub(super) coalescing: Coalescing,
    clock: Clock,
    deadlines: Deadlines,
    /// Sessions whose sockets are to be emptied.
    unread: VecDeque<u32>,
    /// Sessions to look at in this turn.
    touched: Vec<u32>,
    /// Sessions whose copies leave with the batch.
    departing: Vec<u32>,
    inbound: Batch,
    outbound: Batch,
    /// When this turn began, by the clock.
    began: Time,
    /// What this turn did so far.
    work: Work,
    /// When to go, even if a player has not heard the goodbye.
    leaving: Option<Time>,
}

/// Hands commands to the sessions, from any thread.
pub(super) type Commands = CommandSender<SessionGroup>;

/// What a turn did: datagrams, those of them that relaying is made of, and how long the capture took.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    all: u32,
    relayed: u32,
    recording: Duration,
}

impl Work {
    /// Returns how much of a time relaying took.
    fn relaying(&self, time: Duration) -> Duration {
        let time = time.saturating_sub(self.recording);
        if self.relayed == 0 { Duration::ZERO } else { time * self.relayed / self.all.max(1) }
    }
}

impl Service for SessionGroup {
    fn next_timeout(&self) -> Option<Time> {
        if !self.unread.is_empty() {
            return Some(Time::ZERO);
        }
        let due = self.deadlines.first().map(|(due, _)| due);
        [due, self.leaving].into_iter().flatten().min()
    }

    fn note_readable(&mut self, socket: u32) {
        let is_news = |host: &&mut SessionHost| !host.is_unread && host.reading != Reading::GivenUp;
        let Some(host) = self.hosts.get_mut(socket as usize).filter(is_news) else { return };
        host.is_unread = true;
        self.unread.push_back(socket);
    }

    fn note_commands(&mut self) {
        self.wake_all();
    }

    fn turn(&mut self, now: Time) {
        self.began = self.clock.now();
        self.coalescing.advance(now);
        self.call_due(now);
        for _ in 0..self.unread.len() {
            self.receive(now);
        }
        self.handle_inbound(now);
        let handed_out = self.clock.now();
        self.note_work(handed_out.since(self.began));
        for place in 0..self.touched.len() {
            self.serve(self.touched[place], now);
        }
        self.touched.clear();
        self.send(now);
        self.note_work(self.clock.now().since(handed_out));
    }

    fn is_over(&self, now: Time) -> bool {
        let said = || self.hosts.iter().all(|host| host.session.is_closed());
        self.leaving.is_some_and(|end| now >= end || said())
    }
}

impl SessionGroup {
    pub(super) fn new(
        mut hosts: Vec<SessionHost>,
        limits: Limits,
        registrar: &Registrar,
        clock: Clock,
        recorder: Option<Recorder>,
    ) -> io::Result<Self> {
        for (host, number) in hosts.iter_mut().zip(0..) {
            registrar.add(&mut host.socket, number)?;
        }
        let mut group = Self {
            hosts,
            recorder,
            coalescing: Coalescing::new(limits),
            clock,
            deadlines: Deadlines::new(),
            unread: VecDeque::new(),
            touched: Vec::new(),
            departing: Vec::new(),
            began: Time::ZERO,
            inbound: Batch::new(),
            outbound: Batch::new(),
            work: Work::default(),
            leaving: None,
        };
        // A session may have something to do from the start: masters, say.
        group.wake_all();
        Ok(group)
    }

    /// Lists the sessions whose time has come.
    fn call_due(&mut self, now: Time) {
        while let Some((_, index)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(index, None);
            let Some(host) = self.hosts.get_mut(index as usize) else { continue };
            host.is_due = true;
            if matches!(host.reading, Reading::Failing { .. }) && !host.is_unread {
                host.is_unread = true;
                self.unread.push_back(index);
            }
            touch(host, index, &mut self.touched);
        }
    }

    /// Takes what has arrived at the next socket: a bounded amount, so that a flood at one does not starve the others.
    fn receive(&mut self, now: Time) {
        let Some(index) = self.unread.pop_front() else { return };
        let (mut left, mut is_failing) = (SHARE, true);
        while let Some(host) = self.hosts.get_mut(index as usize) {
            let before = self.inbound.len();
            let received = host.socket.receive(&mut self.inbound, index, left);
            left -= self.inbound.len() - before;
            is_failing &= received.is_err();
            let is_all = match received {
                Ok(received) => received == Received::All,
                // The network complains of something sent earlier; behind that, there may be datagrams.
                Err(error) => {
                    host.note_failure("receive_failed", Some(&error), now);
                    left = left.saturating_sub(ERROR_COST);
                    false
                }
            };
            if is_all || left == 0 {
                host.note_reading(is_failing, now);
                host.is_unread = !is_all && !is_failing;
                self.unread.extend(host.is_unread.then_some(index));
                if is_failing {
                    touch(host, index, &mut self.touched);
                }
                return;
            }
            if self.inbound.is_full() {
                self.handle_inbound(now);
            }
        }
    }

    /// Hands a batch of arrivals to their sessions.
    fn handle_inbound(&mut self, now: Time) {
        let Self { hosts, inbound, recorder, clock, work, touched, .. } = self;
        if let Some(recorder) = recorder {
            let began = clock.now();
            for (head, bytes) in inbound.iter_mut() {
                if let Some(host) = hosts.get(head.owner as usize) {
                    recorder.record(head.remote, host.local(head.local), clock.wall(now), bytes);
                }
            }
            work.recording += clock.now().since(began);
        }
        inbound.apply(cipher::decrypt_batch, |_| true);
        work.all += inbound.len() as u32;
        for (head, bytes) in inbound.iter_mut() {
            if let Some(host) = hosts.get_mut(head.owner as usize) {
                touch(host, head.owner, touched);
                work.relayed += u32::from(host.handle(head, bytes, now));
            }
        }
        inbound.clear();
    }

    /// Has a session do what is due, and puts all that it has to send into the batch, unless that may wait.
    fn serve(&mut self, index: u32, now: Time) {
        let Some(host) = self.hosts.get_mut(index as usize) else { return };
        host.is_touched = false;
        if let Some(until) = host.hold(self.coalescing.window(), now) {
            host.report(now);
            return self.deadlines.set(index, Some(until));
        }
        (host.is_due, host.held_since) = (false, None);
        host.session.handle_timeout(now);
        host.report(now);
        let is_relaying = std::mem::take(&mut host.has_relayed);
        while let Some(host) = self.hosts.get_mut(index as usize) {
            if self.outbound.is_full() {
                self.send(now);
            } else if host.transmit(index, &mut self.outbound, now) {
                self.work.all += 1;
                self.work.relayed += u32::from(is_relaying);
            } else {
                if host.has_arrivals() {
                    self.departing.push(index);
                }
                return self.deadlines.set(index, host.next_timeout().map(|due| due.max(now + PAUSE)));
            }
        }
    }

    /// Sends the batch of what is to leave.
    fn send(&mut self, now: Time) {
        let Self { hosts, outbound, recorder, clock, work, departing, began, .. } = self;
        outbound.apply(cipher::encrypt_batch, |_| true);
        if let Some(recorder) = recorder {
            let began = clock.now();
            for (head, bytes) in outbound.iter_mut() {
                if let Some(host) = hosts.get(head.owner as usize) {
                    recorder.record(host.local(head.local), head.remote, clock.wall(now), bytes);
                }
            }
            work.recording += clock.now().since(began);
        }
        for (index, range) in outbound.runs() {
            let Some(host) = hosts.get_mut(index as usize) else { continue };
            if let Err(unsent) = host.socket.send(outbound, range) {
                host.note_unsent(&unsent, now);
            }
        }
        outbound.clear();
        if !departing.is_empty() {
            let left = now + clock.now().since(*began);
            for index in departing.drain(..) {
                if let Some(host) = hosts.get_mut(index as usize) {
                    host.note_departure(left);
                }
            }
        }
    }

    /// A part of the turn took so long.
    fn note_work(&mut self, time: Duration) {
        let work = std::mem::take(&mut self.work);
        self.coalescing.add(work.relaying(time));
    }

    /// Says goodbye to everyone.
    pub(super) fn stop(&mut self, now: Time) {
        if self.leaving.is_none() {
            self.leaving = Some(now + GOODBYE);
            for host in &mut self.hosts {
                host.session.shutdown(now);
            }
        }
    }

    /// Every session is to be looked at.
    fn wake_all(&mut self) {
        for index in 0..self.hosts.len() as u32 {
            self.deadlines.set(index, Some(Time::ZERO));
        }
    }
}

/// Has a session looked at in this turn.
fn touch(host: &mut SessionHost, index: u32, touched: &mut Vec<u32>) {
    if !host.is_touched {
        host.is_touched = true;
        touched.push(index);
    }
}

/// A session that nothing arrives at is not looked at again before this has passed, whatever it says.
const PAUSE: Duration = Duration::from_millis(1);
/// How many datagrams one socket may bring before others have their turn.
const SHARE: usize = 256;
/// How many datagrams an error at a socket counts for.
const ERROR_COST: usize = 16;
/// How long players may take to hear the goodbye.
const GOODBYE: Duration = Duration::from_millis(2000);

#[cfg(test)]
pub(super) mod tests;
