//! All sessions of one thread, driven by one event loop.
//!
//! A turn takes all that has arrived everywhere, deciphers it together, hands it out, and sends in the same turn what came
//! of it, ciphered together. Only state updates may wait for a later turn, as far as [`Coalescing`] says.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bcnet_transport::{Deadlines, Time, cipher};
use bcnet_udp::{Batch, Clock, Received, SLOTS, wall_now};

use super::coalescing::{Coalescing, Limits};
use super::containment::contain;
use super::session_host::{Reading, SessionHost};
use crate::event_loop::{CommandSender, Registrar, Service};
use crate::recorder::Recorder;

/// The sessions of one thread.
pub(super) struct SessionGroup {
    pub(super) hosts: Vec<SessionHost>,
    pub(super) recorder: Option<Recorder>,
    pub(super) coalescing: Coalescing,
    registrar: Registrar,
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
    /// How long a turn may take what has arrived.
    receive_time: Duration,
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
        let Some(host) = self.hosts.get_mut(socket as usize).filter(|host| !host.is_unread) else { return };
        host.is_unread = true;
        self.unread.push_back(socket);
    }

    fn turn(&mut self, now: Time) {
        self.began = self.clock.now();
        self.coalescing.advance(now);
        self.call_due(now);
        // All have the same share of the time, whatever arrives at others.
        let share = self.receive_time / u32::try_from(self.unread.len().max(1)).unwrap_or(u32::MAX);
        for _ in 0..self.unread.len() {
            self.receive(share, now);
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
        registrar: Registrar,
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
            registrar,
            clock,
            deadlines: Deadlines::new(),
            unread: VecDeque::new(),
            touched: Vec::new(),
            departing: Vec::new(),
            receive_time: RECEIVE_TIME,
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
            if matches!(host.reading, Reading::Failing { .. }) && !host.is_unread {
                host.is_unread = true;
                self.unread.push_back(index);
            }
            touch(host, index, &mut self.touched);
        }
    }

    /// Takes what has arrived at the next socket, as long as its share of the time lasts: a flood takes no more of a turn
    /// than that, however many datagrams it has.
    fn receive(&mut self, share: Duration, now: Time) {
        let Some(index) = self.unread.pop_front() else { return };
        let end = self.clock.now() + share;
        let (mut errors, mut is_failing) = (0, true);
        loop {
            if self.inbound.is_full() {
                self.handle_inbound(now);
            }
            let Some(host) = self.hosts.get_mut(index as usize) else { return };
            let received = host.socket.receive(&mut self.inbound, index, usize::MAX);
            is_failing &= received.is_err();
            let is_all = match received {
                Ok(received) => received == Received::All,
                // The network complains of something sent earlier; behind that, there may be datagrams.
                Err(error) => {
                    host.note_failure("receive_failed", Some(&error), now);
                    errors += 1;
                    false
                }
            };
            let is_time_over = !is_failing && self.clock.now() >= end;
            if is_all || errors == MAX_ERRORS || is_time_over {
                host.note_emptied(is_all || is_failing, now);
                let is_useless = host.note_reading(is_failing, now);
                host.is_unread = !is_all && !is_failing;
                self.unread.extend(host.is_unread.then_some(index));
                if is_failing {
                    touch(host, index, &mut self.touched);
                }
                if is_useless {
                    self.rebind(index, now);
                }
                return;
            }
        }
    }

    /// Binds the socket of a session again.
    fn rebind(&mut self, index: u32, now: Time) {
        let Some(host) = self.hosts.get_mut(index as usize) else { return };
        self.registrar.remove(&mut host.socket);
        if !host.rebind(now) {
            return;
        }
        if let Err(error) = self.registrar.add(&mut host.socket, index) {
            // Nobody would ever say that something has arrived, so it is tried again.
            host.socket.close();
            host.note_failure("rebind_failed", Some(&error), now);
        }
    }

    /// Hands a batch of arrivals to their sessions. What cannot have any effect is not even deciphered.
    fn handle_inbound(&mut self, now: Time) {
        let Self { hosts, inbound, recorder, clock, work, touched, .. } = self;
        let mut meant = [false; SLOTS];
        for ((head, bytes), is_meant) in inbound.iter_mut().zip(&mut meant) {
            let Some(host) = hosts.get_mut(head.owner as usize) else { continue };
            touch(host, head.owner, touched);
            *is_meant = host.screen(head, bytes);
        }
        if let Some(recorder) = recorder {
            let (began, time) = (clock.now(), wall_now());
            for ((head, bytes), is_meant) in inbound.iter_mut().zip(meant) {
                let Some(host) = hosts.get_mut(head.owner as usize) else { continue };
                if host.is_recorded(bytes, is_meant, now) {
                    recorder.record(head.remote, host.local(head.local), time, bytes);
                } else {
                    recorder.leave_out();
                }
            }
            work.recording += clock.now().since(began);
        }
        inbound.apply(cipher::decrypt_batch, |number| meant[number]);
        work.all += inbound.len() as u32;
        for ((head, bytes), _) in inbound.iter_mut().zip(meant).filter(|(_, is_meant)| *is_meant) {
            if let Some(host) = hosts.get_mut(head.owner as usize) {
                match contain(|| host.handle(head, bytes, now)) {
                    Ok(is_relayed) => work.relayed += u32::from(is_relayed),
                    Err(panic) => host.fail(&panic, now),
                }
            }
        }
        inbound.clear();
    }

    /// Has a session do and send what is due.
    fn serve(&mut self, index: u32, now: Time) {
        if let Some(host) = self.hosts.get_mut(index as usize) {
            host.is_touched = false;
        }
        if let Err(panic) = contain(|| self.try_serve(index, now)) {
            self.fail(index, &panic, now);
        }
    }

    /// A session has panicked. It is looked at again soon.
    fn fail(&mut self, index: u32, panic: &str, now: Time) {
        if let Some(host) = self.hosts.get_mut(index as usize) {
            host.fail(panic, now);
            self.deadlines.set(index, Some(now + PAUSE));
        }
    }

    /// Has a session do what is due, and puts all that it has to send into the batch, unless that may wait.
    fn try_serve(&mut self, index: u32, now: Time) {
        let Some(host) = self.hosts.get_mut(index as usize) else { return };
        if host.is_to_renew(now) {
            host.renew(now);
        }
        host.session.handle_timeout(now);
        if let Some(until) = host.hold(self.coalescing.window(), now) {
            host.report(now);
            return self.deadlines.set(index, Some(until));
        }
        host.held_since = None;
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
            let (began, time) = (clock.now(), wall_now());
            for (head, bytes) in outbound.iter_mut() {
                if let Some(host) = hosts.get(head.owner as usize) {
                    recorder.record(host.local(head.local), head.remote, time, bytes);
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
                if let Err(panic) = contain(|| host.end(now)) {
                    host.fail(&panic, now);
                }
            }
            self.wake_all();
        }
    }

    /// Has something done to the session with this number, which is then looked at.
    pub(super) fn act(
        &mut self,
        index: usize,
        now: Time,
        act: impl FnOnce(&mut SessionHost, &Coalescing, Time),
    ) {
        let Some(host) = self.hosts.get_mut(index) else { return };
        if let Err(panic) = contain(|| act(host, &self.coalescing, now)) {
            host.fail(&panic, now);
        }
        self.deadlines.set(index as u32, Some(Time::ZERO));
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
/// How long a turn may take what has arrived, before what came of it leaves.
const RECEIVE_TIME: Duration = Duration::from_micros(250);
/// How many errors of a socket are looked at in a turn.
const MAX_ERRORS: u32 = 16;
/// How long players may take to hear the goodbye.
const GOODBYE: Duration = Duration::from_millis(2000);

#[cfg(test)]
pub(super) mod tests;
