//! All sessions of one worker thread, driven by one event loop.
//!
//! One turn receives from all sockets, decrypts the datagrams as a batch, and passes them to their sessions.
//! The replies are encrypted as a batch and sent in the same turn.
//! Only state updates may wait for a later turn, for as long as [`Coalescing`] allows.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bcnet_transport::{Deadlines, Time, cipher};
use bcnet_udp::{BATCH_SIZE, Batch, Clock, ReceiveStatus, wall_now};

use super::coalescing::{Coalescing, CoalescingLimits};
use super::panic_isolation::catch_panic;
use super::session_host::{ReceiveState, SessionHost};
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
    /// Sessions with unread data in their sockets.
    unread: VecDeque<u32>,
    /// Sessions with pending work in this turn.
    dirty_sessions: Vec<u32>,
    /// Sessions with relayed copies in the outbound batch.
    relaying_sessions: Vec<u32>,
    inbound: Batch,
    outbound: Batch,
    /// Longest time that a turn may receive.
    receive_time_limit: Duration,
    /// Start of this turn, by the clock.
    turn_start: Time,
    /// Work of this turn so far.
    work: TurnWork,
    /// When to end, even if a player has not acknowledged the disconnect notice.
    shutdown_deadline: Option<Time>,
}

/// Sends commands to the session group, from any thread.
pub(super) type SessionCommands = CommandSender<SessionGroup>;

/// Work of one turn: all datagrams, relayed datagrams, and the time spent on the capture.
#[derive(Debug, Clone, Copy, Default)]
struct TurnWork {
    datagrams: u32,
    relayed: u32,
    recording_time: Duration,
}

impl TurnWork {
    /// Returns the share of `time` that was spent on relaying.
    fn relaying_time(&self, time: Duration) -> Duration {
        let time = time.saturating_sub(self.recording_time);
        if self.relayed == 0 { Duration::ZERO } else { time * self.relayed / self.datagrams.max(1) }
    }
}

impl Service for SessionGroup {
    fn next_timeout(&self) -> Option<Time> {
        if !self.unread.is_empty() {
            return Some(Time::ZERO);
        }
        let due = self.deadlines.first().map(|(due, _)| due);
        [due, self.shutdown_deadline].into_iter().flatten().min()
    }

    fn on_readable(&mut self, socket: u32) {
        let Some(host) = self.hosts.get_mut(socket as usize).filter(|host| !host.is_unread) else { return };
        host.is_unread = true;
        self.unread.push_back(socket);
    }

    fn turn(&mut self, now: Time) {
        self.turn_start = self.clock.now();
        self.coalescing.advance(now);
        self.mark_due_sessions(now);
        // All sockets get the same share of the time: a flood on one must not delay the others.
        let share = self.receive_time_limit / u32::try_from(self.unread.len().max(1)).unwrap_or(u32::MAX);
        for _ in 0..self.unread.len() {
            self.receive(share, now);
        }
        self.handle_inbound(now);
        let receive_end = self.clock.now();
        self.account_turn_time(receive_end.since(self.turn_start));
        for position in 0..self.dirty_sessions.len() {
            self.serve_session(self.dirty_sessions[position], now);
        }
        self.dirty_sessions.clear();
        self.send(now);
        self.account_turn_time(self.clock.now().since(receive_end));
    }

    fn is_finished(&self, now: Time) -> bool {
        let are_closed = || self.hosts.iter().all(|host| host.session.is_closed());
        self.shutdown_deadline.is_some_and(|end| now >= end || are_closed())
    }
}

impl SessionGroup {
    pub(super) fn new(
        mut hosts: Vec<SessionHost>,
        limits: CoalescingLimits,
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
            dirty_sessions: Vec::new(),
            relaying_sessions: Vec::new(),
            receive_time_limit: RECEIVE_TIME_LIMIT,
            turn_start: Time::ZERO,
            inbound: Batch::new(),
            outbound: Batch::new(),
            work: TurnWork::default(),
            shutdown_deadline: None,
        };
        // A session may have work at once, such as a heartbeat to a list server.
        group.wake_all();
        Ok(group)
    }

    /// Marks the sessions with an expired deadline as dirty.
    fn mark_due_sessions(&mut self, now: Time) {
        while let Some((_, index)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(index, None);
            let Some(host) = self.hosts.get_mut(index as usize) else { continue };
            if matches!(host.receive_state, ReceiveState::Failing { .. }) && !host.is_unread {
                host.is_unread = true;
                self.unread.push_back(index);
            }
            mark_dirty(host, index, &mut self.dirty_sessions);
        }
    }

    /// Receives from the next socket, for at most its share of the turn.
    ///
    /// The limit is a time, because the number of datagrams in a flood says nothing about its cost.
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
                Ok(received) => received == ReceiveStatus::Drained,
                // The error belongs to an earlier send; more datagrams may be queued after it.
                Err(error) => {
                    host.log_failure("receive_failed", Some(&error), now);
                    errors += 1;
                    false
                }
            };
            let is_time_over = !is_failing && self.clock.now() >= end;
            if is_all || errors == MAX_ERRORS || is_time_over {
                host.update_load_shedding(is_all || is_failing, now);
                let is_useless = host.update_receive_state(is_failing, now);
                host.is_unread = !is_all && !is_failing;
                self.unread.extend(host.is_unread.then_some(index));
                if is_failing {
                    mark_dirty(host, index, &mut self.dirty_sessions);
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
            // The event loop would never report this socket as readable, so close it and retry.
            host.socket.close();
            host.log_failure("rebind_failed", Some(&error), now);
        }
    }

    /// Passes a batch of received datagrams to their sessions.
    ///
    /// Datagrams that [`SessionHost::prefilter`] rejects are not decrypted.
    fn handle_inbound(&mut self, now: Time) {
        let Self { hosts, inbound, recorder, clock, work, dirty_sessions, .. } = self;
        let mut accepted = [false; BATCH_SIZE];
        for ((head, bytes), is_accepted) in inbound.iter_mut().zip(&mut accepted) {
            let Some(host) = hosts.get_mut(head.owner as usize) else { continue };
            mark_dirty(host, head.owner, dirty_sessions);
            *is_accepted = host.prefilter(head, bytes);
        }
        if let Some(recorder) = recorder {
            let (began, time) = (clock.now(), wall_now());
            for ((head, bytes), is_accepted) in inbound.iter_mut().zip(accepted) {
                let Some(host) = hosts.get_mut(head.owner as usize) else { continue };
                if host.should_record(bytes, is_accepted, now) {
                    recorder.record(head.remote, host.local_address(head.local), time, bytes);
                } else {
                    recorder.count_left_out();
                }
            }
            work.recording_time += clock.now().since(began);
        }
        inbound.apply_cipher(cipher::decrypt_batch, |number| accepted[number]);
        work.datagrams += inbound.len() as u32;
        for ((head, bytes), _) in inbound.iter_mut().zip(accepted).filter(|(_, is_accepted)| *is_accepted) {
            if let Some(host) = hosts.get_mut(head.owner as usize) {
                match catch_panic(|| host.handle_datagram(head, bytes, now)) {
                    Ok(is_relayed) => work.relayed += u32::from(is_relayed),
                    Err(panic) => host.on_panic(&panic, now),
                }
            }
        }
        inbound.clear();
    }

    /// Runs a session's timers and sends its output; isolates a panic of the session.
    fn serve_session(&mut self, index: u32, now: Time) {
        if let Some(host) = self.hosts.get_mut(index as usize) {
            host.is_dirty = false;
        }
        if let Err(panic) = catch_panic(|| self.try_serve_session(index, now)) {
            self.on_panic(index, &panic, now);
        }
    }

    /// Handles a panic of a session, and schedules its next turn.
    fn on_panic(&mut self, index: u32, panic: &str, now: Time) {
        if let Some(host) = self.hosts.get_mut(index as usize) {
            host.on_panic(panic, now);
            self.deadlines.set(index, Some(now + MIN_WAKE_UP_INTERVAL));
        }
    }

    /// Runs a session's timers, and puts its output into the batch unless it may coalesce.
    fn try_serve_session(&mut self, index: u32, now: Time) {
        let Some(host) = self.hosts.get_mut(index as usize) else { return };
        if host.needs_replacement(now) {
            host.replace_session(now);
        }
        host.session.handle_timeout(now);
        if let Some(until) = host.coalescing_deadline(self.coalescing.window(), now) {
            host.process_events(now);
            return self.deadlines.set(index, Some(until));
        }
        host.coalescing_since = None;
        host.process_events(now);
        let is_relaying = std::mem::take(&mut host.has_relayed);
        while let Some(host) = self.hosts.get_mut(index as usize) {
            if self.outbound.is_full() {
                self.send(now);
            } else if host.transmit(index, &mut self.outbound, now) {
                self.work.datagrams += 1;
                self.work.relayed += u32::from(is_relaying);
            } else {
                if host.has_arrivals() {
                    self.relaying_sessions.push(index);
                }
                return self
                    .deadlines
                    .set(index, host.next_timeout().map(|due| due.max(now + MIN_WAKE_UP_INTERVAL)));
            }
        }
    }

    /// Encrypts and sends the outbound batch.
    fn send(&mut self, now: Time) {
        let Self { hosts, outbound, recorder, clock, work, relaying_sessions, turn_start, .. } = self;
        outbound.apply_cipher(cipher::encrypt_batch, |_| true);
        if let Some(recorder) = recorder {
            let (began, time) = (clock.now(), wall_now());
            for (head, bytes) in outbound.iter_mut() {
                if let Some(host) = hosts.get(head.owner as usize) {
                    recorder.record(host.local_address(head.local), head.remote, time, bytes);
                }
            }
            work.recording_time += clock.now().since(began);
        }
        for (index, range) in outbound.runs_by_owner() {
            let Some(host) = hosts.get_mut(index as usize) else { continue };
            if let Err(unsent) = host.socket.send(outbound, range) {
                host.count_unsent(&unsent, now);
            }
        }
        outbound.clear();
        if !relaying_sessions.is_empty() {
            let left = now + clock.now().since(*turn_start);
            for index in relaying_sessions.drain(..) {
                if let Some(host) = hosts.get_mut(index as usize) {
                    host.record_departure(left);
                }
            }
        }
    }

    /// Adds the time of a part of the turn to the CPU time of relaying.
    fn account_turn_time(&mut self, time: Duration) {
        let work = std::mem::take(&mut self.work);
        self.coalescing.add(work.relaying_time(time));
    }

    /// Starts the graceful shutdown of all sessions.
    pub(super) fn stop(&mut self, now: Time) {
        if self.shutdown_deadline.is_none() {
            self.shutdown_deadline = Some(now + SHUTDOWN_TIMEOUT);
            for host in &mut self.hosts {
                if let Err(panic) = catch_panic(|| host.shut_down(now)) {
                    host.on_panic(&panic, now);
                }
            }
            self.wake_all();
        }
    }

    /// Runs `act` on the session with this index, and schedules the session's next turn.
    pub(super) fn with_session(
        &mut self,
        index: usize,
        now: Time,
        act: impl FnOnce(&mut SessionHost, &Coalescing, Time),
    ) {
        let Some(host) = self.hosts.get_mut(index) else { return };
        if let Err(panic) = catch_panic(|| act(host, &self.coalescing, now)) {
            host.on_panic(&panic, now);
        }
        self.deadlines.set(index as u32, Some(Time::ZERO));
    }

    /// Schedules a turn of every session.
    fn wake_all(&mut self) {
        for index in 0..self.hosts.len() as u32 {
            self.deadlines.set(index, Some(Time::ZERO));
        }
    }
}

/// Adds a session to the dirty list, once.
fn mark_dirty(host: &mut SessionHost, index: u32, dirty_sessions: &mut Vec<u32>) {
    if !host.is_dirty {
        host.is_dirty = true;
        dirty_sessions.push(index);
    }
}

/// Shortest time between two turns of a session to which no datagram arrives.
const MIN_WAKE_UP_INTERVAL: Duration = Duration::from_millis(1);
/// Longest time that a turn may receive before the replies are sent.
const RECEIVE_TIME_LIMIT: Duration = Duration::from_micros(250);
/// Largest number of socket errors handled in a turn.
const MAX_ERRORS: u32 = 16;
/// Time for players to acknowledge the disconnect notice when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(2000);

#[cfg(test)]
pub(super) mod tests;
