//! Copies for those in the game, and what waits for whose line is full (S-43).

use bcnet_transport::wire::{Channel, PeerId, Seq};
use bcnet_transport::{Allowance, Engine, Quality, Room, SendError, Time};

use super::Session;
use crate::game;
use crate::line::{Limits, Rank, Said};
use crate::stats::Anomaly;

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

    /// A copy for one player, of what another has said, or of what it has asked for itself. S-54: whatever others say,
    /// nobody is dropped for it; what finds no room is left out.
    pub(super) fn deliver_from(&mut self, from: PeerId, to: PeerId, said: Said<'_>, now: Time) {
        match self.deliver(to, said, now) {
            Ok(()) => self.counters.relayed += 1,
            Err(SendError::QueueFull { .. }) => {
                self.counters.not_queued += 1;
                self.odd(from, Anomaly::Backlog);
            }
            Err(SendError::UnknownPeer(_) | SendError::Leaving(_) | SendError::TooLarge { .. }) => {}
        }
    }

    /// S-33: a copy of what may be lost for everyone else in the game. It may also come early (S-28).
    pub(super) fn relay_loose(&mut self, from: PeerId, payload: &[u8], now: Time) {
        for to in self.in_game.iter().filter(|to| *to != from) {
            let sent = match self.is_behind(from, to) {
                Some(full) => Err(full),
                None => self.endpoint.send(to, payload, Quality::Unreliable, now),
            };
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

    /// Returns the error for what may be lost of a player of whom much waits for the other's line already: nothing would
    /// tell what else that takes.
    fn is_behind(&self, from: PeerId, to: PeerId) -> Option<SendError> {
        if !self.waiting {
            return None;
        }
        let line = self.member(to)?.line.as_ref()?;
        line.is_behind(self.source(from)).then(|| line.full())
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
        let Some(member) = self.member(to) else { return Err(SendError::UnknownPeer(to)) };
        if member.line.is_none() {
            let max = member.window.allowance();
            if self.send_ranked(to, said.rank, said.payload, max, now)? == Room::Some {
                return Ok(());
            }
        }
        self.wait_in_line(to, said, now)
    }

    /// Hands a message to the transport, if its rank lets it or there is room for it.
    #[inline]
    fn send_ranked(
        &mut self,
        to: PeerId,
        rank: Rank,
        payload: &[u8],
        max: Allowance,
        now: Time,
    ) -> Result<Room, SendError> {
        match rank {
            Rank::Bulk | Rank::BulkObject => self.endpoint.send_if_room(to, payload, max, now),
            Rank::Word if self.has_many(to) => Ok(Room::None),
            Rank::Word | Rank::First | Rank::FirstObject => {
                self.endpoint.send(to, payload, Quality::Reliable, now).map(|()| Room::Some)
            }
        }
    }

    /// Returns whether so much is under way to a player that words would only fill what is kept for the server's own.
    fn has_many(&self, peer: PeerId) -> bool {
        let awaited = self.endpoint.awaited(peer, Channel::Game);
        awaited.is_some_and(|awaited| {
            awaited.end.distance_from(awaited.start).cast_unsigned() >= MAX_BEFORE_WORD
        })
    }

    #[cold]
    #[inline(never)]
    fn wait_in_line(&mut self, to: PeerId, said: Said<'_>, now: Time) -> Result<(), SendError> {
        let passes =
            self.member(to).and_then(|member| member.line.as_ref()).is_some_and(|line| line.lets_pass(said));
        let (queue_messages, queue_bytes) =
            (self.config.transport.queue_messages, self.config.transport.queue_bytes);
        let of_one = self.config.relay_rate.into();
        if passes && !(said.rank == Rank::Word && self.has_many(to)) {
            return self.endpoint.send(to, said.payload, Quality::Reliable, now);
        }
        let heard = self.endpoint.counters(to).unwrap_or_default().into();
        let Some(member) = self.member_mut(to) else { return Err(SendError::UnknownPeer(to)) };
        if member.line.is_none() {
            member.window.start(heard);
        }
        let before_object = member.window.allowance().bytes as u64;
        let limits = Limits { messages: queue_messages, bytes: queue_bytes, of_one, before_object };
        let left_out = member.line.get_or_insert_default().push(said, limits)?;
        self.waiting = true;
        self.counters.waited += 1;
        self.counters.not_queued += left_out;
        Ok(())
    }

    /// S-28: a player gets nothing more until its control channel has reached this number.
    pub(super) fn hold_line(&mut self, peer: PeerId, until: Seq) {
        let counters = self.endpoint.counters(peer).unwrap_or_default();
        let Some(member) = self.member_mut(peer) else { return };
        if member.line.is_none() {
            member.window.start(counters.into());
        }
        let line = member.line.get_or_insert_default();
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
        let max = member.window.allowance();
        let mut room = Room::Some;
        while let Some((source, rank, payload)) = line.front() {
            room = match self.send_ranked(peer, rank, payload, max, now) {
                Ok(room) => room,
                Err(error) => return self.note_sent(peer, Err(error), now),
            };
            if room != Room::Some {
                break;
            }
            line.pop(source);
        }
        let Some(member) = self.member_mut(peer) else { return };
        if room == Room::Queueing {
            member.window.note_queue();
        }
        if !line.is_empty() {
            member.line = Some(line);
        }
    }

    /// S-61: what waits of a round that is over would only confuse the next.
    pub(super) fn forget_lines(&mut self) {
        for line in self.members.iter_mut().flatten().filter_map(|member| member.line.as_deref_mut()) {
            self.counters.not_queued += line.forget_bulk();
        }
    }
}

/// How many messages may be under way in front of a word.
const MAX_BEFORE_WORD: u16 = 256;
