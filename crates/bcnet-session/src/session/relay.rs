//! Copies for those in the game, and what waits for whose line is full (S-43).

use std::time::Duration;

use bcnet_transport::wire::{Channel, PeerId, Seq};
use bcnet_transport::{Engine, Quality, Room, SendError, Time};

use super::Session;
use crate::game;
use crate::line::{Limits, Line, Said};
use crate::stats::Anomaly;
use crate::window::FIRST_WINDOW;

impl<E: Engine> Session<E> {
    /// S-33: a copy for everyone in the game who is meant.
    pub(super) fn relay(
        &mut self,
        from: PeerId,
        said: Said<'_>,
        is_meant: impl Fn(&Self, PeerId) -> bool,
        now: Time,
    ) {
        for to in self.in_game.iter() {
            if is_meant(self, to) {
                self.deliver_from(from, to, said, now);
            }
        }
    }

    /// A copy for one player, of what another has said, or of what it has asked for itself.
    pub(super) fn deliver_from(&mut self, from: PeerId, to: PeerId, said: Said<'_>, now: Time) {
        match self.deliver(to, said, now) {
            Ok(()) => self.counters.relayed += 1,
            // There is too much of its own, so only that is left out.
            Err(SendError::QueueFull { .. }) if !said.rank.is_first() && !self.is_stuck(to, now) => {
                self.counters.not_queued += 1;
                self.odd(from, Anomaly::Backlog);
            }
            sent => self.note_sent(to, sent, now),
        }
    }

    /// S-33: a copy of what may be lost for everyone else in the game. It may also come early (S-28).
    pub(super) fn relay_loose(&mut self, from: PeerId, payload: &[u8], now: Time) {
        for to in self.in_game.iter().filter(|to| *to != from) {
            let sent = self.endpoint.send(to, payload, Quality::Unreliable, now);
            self.note_loose(sent);
        }
    }

    /// S-33: a copy of a state update for everyone else in the game, instead of older ones that wait behind a full line.
    pub(super) fn relay_update(&mut self, from: PeerId, payload: &[u8], now: Time) {
        for to in self.in_game.iter().filter(|to| *to != from) {
            let (mut outdated_by, mut dropped) = (game::outdated_by(payload), 0);
            let mut is_outdated = |older: &[u8]| {
                let is_outdated = outdated_by(older);
                dropped += u64::from(is_outdated);
                is_outdated
            };
            let sent = self.endpoint.send_latest(to, payload, &mut is_outdated, now);
            if dropped > 0 {
                self.note_outdated(to, dropped);
            }
            self.note_loose(sent);
        }
    }

    #[cold]
    fn note_outdated(&mut self, to: PeerId, dropped: u64) {
        self.counters.outdated += dropped;
        if let Some(member) = self.member_mut(to) {
            member.outdated += dropped;
        }
    }

    /// What may be lost is lost where too much waits already.
    fn note_loose(&mut self, sent: Result<(), SendError>) {
        match sent {
            Ok(()) => self.counters.relayed += 1,
            Err(SendError::QueueFull { .. }) => self.counters.not_queued += 1,
            Err(SendError::UnknownPeer(_) | SendError::Leaving(_) | SendError::TooLarge { .. }) => {}
        }
    }

    /// Queues a message for a client. It waits here while the client must learn a name first (S-28), and unless it goes
    /// first, while the client's line is full.
    #[inline]
    pub(super) fn deliver(&mut self, to: PeerId, said: Said<'_>, now: Time) -> Result<(), SendError> {
        if !self.waiting || self.member(to).is_none_or(|member| member.line.is_none()) {
            if said.rank.is_first() {
                return self.endpoint.send(to, said.payload, Quality::Reliable, now);
            }
            if self.endpoint.send_if_room(to, said.payload, FIRST_WINDOW.into(), now)? == Room::Some {
                return Ok(());
            }
        }
        self.wait_in_line(to, said, now)
    }

    #[cold]
    #[inline(never)]
    fn wait_in_line(&mut self, to: PeerId, said: Said<'_>, now: Time) -> Result<(), SendError> {
        let limits = self.line_limits();
        let member = self.members.get_mut(usize::from(to.0)).and_then(Option::as_deref_mut);
        let Some(member) = member else { return Err(SendError::UnknownPeer(to)) };
        match &member.line {
            Some(line) if line.lets_pass(said) => {
                return self.endpoint.send(to, said.payload, Quality::Reliable, now);
            }
            Some(_) => {}
            None => {
                let max = member.window.messages();
                if self.endpoint.send_if_room(to, said.payload, max, now)? == Room::Some {
                    return Ok(());
                }
                member.window.start(self.endpoint.counters(to).unwrap_or_default().into());
            }
        }
        self.waiting = true;
        let line = member.line.get_or_insert_with(|| Box::new(Line::new(now)));
        let left_out = line.push(said, limits)?;
        self.counters.waited += 1;
        self.counters.not_queued += left_out;
        Ok(())
    }

    fn line_limits(&self) -> Limits {
        let transport = &self.config.transport;
        Limits {
            messages: transport.queue_messages,
            bytes: transport.queue_bytes,
            of_one: self.config.relay_rate.into(),
        }
    }

    /// S-28: a player gets nothing more until its control channel has reached this number.
    pub(super) fn hold_line(&mut self, peer: PeerId, until: Seq, now: Time) {
        let counters = self.endpoint.counters(peer).unwrap_or_default();
        let Some(member) = self.member_mut(peer) else { return };
        if member.line.is_none() {
            member.window.start(counters.into());
        }
        let line = member.line.get_or_insert_with(|| Box::new(Line::new(now)));
        // Numbers only grow, so the newest name is the last to wait for.
        if line.until.is_none_or(|before| until.distance_from(before) > 0) {
            line.until = Some(until);
        }
        self.waiting = true;
    }

    /// Sends what waits for a player, as far as its line has room.
    pub(super) fn serve_line(&mut self, peer: PeerId, now: Time) {
        let Some(reached) = self.endpoint.awaited(peer, Channel::Control).map(|awaited| awaited.start) else {
            return;
        };
        let counters = self.endpoint.counters(peer).unwrap_or_default();
        let Some(member) = self.member_mut(peer) else { return };
        let Some(mut line) = member.line.take() else { return };
        line.until.take_if(|until| until.distance_from(reached) <= 0);
        member.window.learn(counters.into());
        let max = member.window.messages();
        let mut room = Room::Some;
        while let Some((source, rank, payload)) = line.front() {
            let sent = if rank.is_first() {
                self.endpoint.send(peer, payload, Quality::Reliable, now).map(|()| Room::Some)
            } else {
                self.endpoint.send_if_room(peer, payload, max, now)
            };
            room = match sent {
                Ok(room) => room,
                Err(error) => return self.note_sent(peer, Err(error), now),
            };
            if room != Room::Some {
                break;
            }
            line.pop(source, now);
        }
        let Some(member) = self.member_mut(peer) else { return };
        if room == Room::Queueing {
            member.window.note_queue();
        }
        if !line.is_empty() {
            member.line = Some(line);
        }
    }

    /// S-54: returns whether a player has taken nothing for so long that its line must be broken.
    fn is_stuck(&self, peer: PeerId, now: Time) -> bool {
        let line = self.member(peer).and_then(|member| member.line.as_ref());
        line.is_some_and(|line| now.since(line.moved()) >= STUCK)
    }

    /// S-61: what waits of a round that is over would only confuse the next.
    pub(super) fn forget_lines(&mut self) {
        for line in self.members.iter_mut().flatten().filter_map(|member| member.line.as_deref_mut()) {
            self.counters.not_queued += line.forget_bulk();
        }
    }
}

/// How long a line may stand still while too much waits for it.
const STUCK: Duration = Duration::from_secs(10);
