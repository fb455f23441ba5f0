//! Relaying of messages, and the send queues of players with full links ([S-28], [S-33], [S-43], [S-54]).
//!
//! [S-28]: bcnet_transport::wire::protocol#s-28
//! [S-33]: bcnet_transport::wire::protocol#s-33
//! [S-43]: bcnet_transport::wire::protocol#s-43
//! [S-54]: bcnet_transport::wire::protocol#s-54

use std::net::Ipv4Addr;

use bcnet_transport::wire::{Channel, PeerId, Seq};
use bcnet_transport::{Capacity, DeliveryMode, Engine, InFlightLimit, SendError, Time};

use super::Session;
use crate::game;
use crate::send_queue::{MessageSource, Outgoing, Priority, QueueLimits};
use crate::stats::Anomaly;
use crate::uplink::uplink_cost;

/// The copies of a relayed message: their kind, and the players that get them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    /// Reliable copies for all others.
    Reliable(Priority),
    /// Unreliable copies for all others, which newer state updates supersede.
    StateUpdate,
    /// Unreliable copies for all others.
    Unreliable,
    /// A line of chat for everyone, including its sender, or for the sender's team.
    Chat {
        /// True for the sender's team only.
        team: bool,
    },
}

impl<E: Engine> Session<E> {
    /// S-46: gives each player in the game an equal part of its address's share of the uplink.
    pub(super) fn update_uplink_shares(&mut self) {
        let players = || self.in_game.iter().filter_map(|peer| self.member(peer));
        let mut addresses: Vec<Ipv4Addr> = players().map(|member| *member.address.ip()).collect();
        addresses.sort_unstable();
        let distinct = addresses.chunk_by(|one, other| one == other).count();
        for peer in self.in_game.iter() {
            let Some(member) = self.members.get_mut(usize::from(peer.0)).and_then(Option::as_deref_mut)
            else {
                continue;
            };
            let here = addresses.iter().filter(|address| *address == member.address.ip()).count();
            member.uplink_share = self.uplink.share(distinct, here);
        }
    }

    /// S-46: takes copies of a message from the sender's share. Returns whether the share allows it.
    fn take_share(&mut self, from: PeerId, payload: &[u8], copies: u32, now: Time) -> bool {
        let bytes = uplink_cost(payload).saturating_mul(copies);
        self.member_mut(from).is_some_and(|member| member.uplink_bucket.take(bytes, member.uplink_share, now))
    }

    /// Returns the number of players that get a copy of a message to all others.
    fn count_others(&self) -> u32 {
        u32::try_from(self.in_game.len()).unwrap_or(u32::MAX).saturating_sub(1)
    }

    /// S-46: returns whether unreliable copies may leave, and counts them.
    fn take_unreliable_uplink(&mut self, from: PeerId, payload: &[u8], copies: u32, now: Time) -> bool {
        let may_send = self.take_share(from, payload, copies, now) || self.uplink.has_spare(now);
        if may_send {
            self.uplink.charge(uplink_cost(payload).saturating_mul(copies), now);
        } else {
            self.counters.uplink_dropped += u64::from(copies);
        }
        may_send
    }

    /// S-33: relays a message as copies of one kind.
    #[inline]
    pub(super) fn relay_copies(
        &mut self,
        (from, slot): (PeerId, u8),
        payload: &[u8],
        copies: Copies,
        now: Time,
    ) {
        let source = MessageSource::from_slot(Some(slot));
        let outgoing = |priority| Outgoing { source, priority, payload, is_over_share: false };
        match copies {
            Copies::Reliable(priority) => self.relay(from, outgoing(priority), |_, to| to != from, now),
            Copies::StateUpdate => self.relay_state_update(from, payload, now),
            Copies::Unreliable => self.relay_unreliable(from, payload, now),
            Copies::Chat { team } => {
                let hears = |session: &Self, to| !team || session.are_in_one_team(from, to);
                self.relay(from, outgoing(Priority::Chat), hears, now);
            }
        }
    }

    /// Relays one copy for one player.
    pub(super) fn relay_copy(
        &mut self,
        (from, slot): (PeerId, u8),
        to: PeerId,
        payload: &[u8],
        copies: Copies,
        now: Time,
    ) {
        let priority = match copies {
            Copies::Reliable(priority) => priority,
            Copies::Chat { .. } => Priority::Chat,
            Copies::StateUpdate | Copies::Unreliable => {
                if self.take_unreliable_uplink(from, payload, 1, now) {
                    let sent = match copies {
                        Copies::StateUpdate => self.send_latest(to, payload, now),
                        _ => self.send_unreliable(from, to, payload, now),
                    };
                    self.count_unreliable(sent);
                }
                return;
            }
        };
        let is_over_share = !priority.is_urgent() && !self.take_share(from, payload, 1, now);
        let source = MessageSource::from_slot(Some(slot));
        self.relay_to(from, to, Outgoing { source, priority, payload, is_over_share }, now);
    }

    /// Returns whether a player gets a copy.
    pub(super) fn gets_copy(&self, copies: Copies, from: PeerId, to: PeerId) -> bool {
        match copies {
            Copies::Reliable(_) | Copies::StateUpdate | Copies::Unreliable => to != from,
            Copies::Chat { team } => !team || self.are_in_one_team(from, to),
        }
    }

    /// S-40: returns whether a player gets the team chat of another, or its own.
    fn are_in_one_team(&self, from: PeerId, to: PeerId) -> bool {
        let team = |peer| self.member(peer).map(|member| member.team);
        to == from || team(to).is_some_and(|other| Some(other) == team(from))
    }

    /// S-33: relays a message to all recipients in the game.
    fn relay(
        &mut self,
        from: PeerId,
        outgoing: Outgoing<'_>,
        is_recipient: impl Fn(&Self, PeerId) -> bool,
        now: Time,
    ) {
        let copies = self.count_others();
        let is_over_share =
            !outgoing.priority.is_urgent() && !self.take_share(from, outgoing.payload, copies, now);
        let outgoing = Outgoing { is_over_share, ..outgoing };
        let cost = uplink_cost(outgoing.payload);
        let mut uncharged = 0;
        for to in self.in_game.iter() {
            if !is_recipient(self, to) {
                continue;
            }
            let sent = self.deliver_uncharged(to, outgoing, now);
            if let Ok(copies) = sent {
                uncharged += copies * cost;
            }
            // A message over its sender's share needs the exact use of the uplink for each copy.
            if is_over_share && uncharged > 0 {
                self.uplink.charge(std::mem::take(&mut uncharged), now);
            }
            self.count_copy(from, sent.map(drop));
        }
        if uncharged > 0 {
            self.uplink.charge(uncharged, now);
        }
    }

    /// Relays one copy of a message of `from` to `to`. Both are the same for a requested object.
    ///
    /// S-54: the receiver is never booted for it; a message without capacity is dropped.
    fn relay_to(&mut self, from: PeerId, to: PeerId, outgoing: Outgoing<'_>, now: Time) {
        let sent = self.deliver(to, outgoing, now);
        self.count_copy(from, sent);
    }

    /// Counts a copy as relayed or dropped.
    fn count_copy(&mut self, from: PeerId, sent: Result<(), SendError>) {
        match sent {
            Ok(()) => self.counters.relayed += 1,
            Err(SendError::QueueFull { .. }) => {
                self.counters.not_queued += 1;
                self.count_anomaly(from, Anomaly::Backlog);
            }
            Err(SendError::UnknownPeer(_) | SendError::Leaving(_) | SendError::TooLarge { .. }) => {}
        }
    }

    /// S-38: relays the creation of an object to the player that requests it.
    pub(super) fn relay_object(&mut self, peer: PeerId, outgoing: Outgoing<'_>, now: Time) {
        let is_over_share = !self.take_share(peer, outgoing.payload, 1, now);
        self.relay_to(peer, peer, Outgoing { is_over_share, ..outgoing }, now);
    }

    /// S-33: relays a message unreliably to everyone else in the game. It may arrive before a name (S-28).
    fn relay_unreliable(&mut self, from: PeerId, payload: &[u8], now: Time) {
        if !self.take_unreliable_uplink(from, payload, self.count_others(), now) {
            return;
        }
        for to in self.in_game.iter().filter(|to| *to != from) {
            let sent = self.send_unreliable(from, to, payload, now);
            self.count_unreliable(sent);
        }
    }

    /// Sends one unreliable copy.
    fn send_unreliable(
        &mut self,
        from: PeerId,
        to: PeerId,
        payload: &[u8],
        now: Time,
    ) -> Result<(), SendError> {
        match self.backlog_error(from, to) {
            Some(full) => Err(full),
            None => self.endpoint.send(to, payload, DeliveryMode::Unreliable, now),
        }
    }

    /// S-33: relays a state update to everyone else in the game. It replaces superseded ones that are queued.
    fn relay_state_update(&mut self, from: PeerId, payload: &[u8], now: Time) {
        if !self.take_unreliable_uplink(from, payload, self.count_others(), now) {
            return;
        }
        for to in self.in_game.iter().filter(|to| *to != from) {
            let sent = self.send_latest(to, payload, now);
            self.count_unreliable(sent);
        }
    }

    /// S-33: sends one copy of a state update. It replaces superseded ones that are queued.
    #[inline(always)]
    pub(super) fn send_latest(&mut self, to: PeerId, payload: &[u8], now: Time) -> Result<(), SendError> {
        let (mut superseded_by, mut dropped) = (game::superseded_by(payload), 0);
        let mut is_superseded = |older: &[u8]| {
            let is_superseded = superseded_by(older);
            dropped += u64::from(is_superseded);
            is_superseded
        };
        let sent = self.endpoint.send_latest(to, payload, &mut is_superseded, now);
        if dropped > 0 {
            self.count_superseded(to, dropped);
        }
        sent
    }

    /// Returns an error if the receiver's queue has a backlog of the sender.
    ///
    /// Unreliable messages would add to it, and they give no feedback about the link.
    fn backlog_error(&self, from: PeerId, to: PeerId) -> Option<SendError> {
        if !self.has_ack_waiters {
            return None;
        }
        let queue = self.member(to)?.send_queue.as_ref()?;
        queue.has_backlog(self.source_of(from)).then(|| queue.full_error())
    }

    #[cold]
    fn count_superseded(&mut self, to: PeerId, dropped: u64) {
        self.counters.superseded += dropped;
        if let Some(member) = self.member_mut(to) {
            member.superseded += dropped;
        }
    }

    /// Counts an unreliable copy as relayed or dropped.
    fn count_unreliable(&mut self, sent: Result<(), SendError>) {
        match sent {
            Ok(()) => self.counters.relayed += 1,
            Err(SendError::QueueFull { .. }) => self.counters.not_queued += 1,
            Err(SendError::UnknownPeer(_) | SendError::Leaving(_) | SendError::TooLarge { .. }) => {}
        }
    }

    /// Queues a message for a client, in the transport or in the client's send queue.
    ///
    /// The send queue takes it while the client lacks a name (S-28), while its link is full and the message is not
    /// urgent, or while the uplink is used and the sender is over its share (S-46).
    #[inline]
    pub(super) fn deliver(&mut self, to: PeerId, outgoing: Outgoing<'_>, now: Time) -> Result<(), SendError> {
        if self.deliver_uncharged(to, outgoing, now)? > 0 {
            self.uplink.charge(uplink_cost(outgoing.payload), now);
        }
        Ok(())
    }

    /// Queues a message like [`deliver`](Self::deliver). The caller charges the uplink for the returned copies, 0 or 1.
    #[inline]
    fn deliver_uncharged(&mut self, to: PeerId, outgoing: Outgoing<'_>, now: Time) -> Result<u32, SendError> {
        let Some(member) = self.member(to) else { return Err(SendError::UnknownPeer(to)) };
        if member.send_queue.is_none() && (!outgoing.is_over_share || self.uplink.has_spare(now)) {
            let limit = member.window.allowance();
            if self.send_uncharged(to, outgoing.priority, outgoing.payload, limit, now)?
                == Capacity::Available
            {
                return Ok(1);
            }
        }
        self.enqueue(to, outgoing, now).map(|()| 0)
    }

    /// Sends a message like [`send_uncharged`](Self::send_uncharged), and charges the uplink.
    fn send_prioritized(
        &mut self,
        to: PeerId,
        priority: Priority,
        payload: &[u8],
        limit: InFlightLimit,
        now: Time,
    ) -> Result<Capacity, SendError> {
        let capacity = self.send_uncharged(to, priority, payload, limit, now)?;
        if capacity == Capacity::Available {
            self.uplink.charge(uplink_cost(payload), now);
        }
        Ok(capacity)
    }

    /// Passes a message to the transport, if its priority allows that or there is capacity.
    #[inline]
    fn send_uncharged(
        &mut self,
        to: PeerId,
        priority: Priority,
        payload: &[u8],
        limit: InFlightLimit,
        now: Time,
    ) -> Result<Capacity, SendError> {
        Ok(match priority {
            Priority::Bulk | Priority::BulkObject => {
                self.endpoint.send_if_capacity(to, payload, limit, now)?
            }
            Priority::Chat if self.has_many_in_flight(to) => Capacity::Full,
            Priority::Chat | Priority::Urgent | Priority::UrgentObject => {
                self.endpoint.send(to, payload, DeliveryMode::Reliable, now)?;
                Capacity::Available
            }
        })
    }

    /// Returns whether too many messages are in flight to a player for chat to bypass the send queue.
    ///
    /// The remaining capacity is reserved for messages of the server.
    fn has_many_in_flight(&self, peer: PeerId) -> bool {
        let range = self.endpoint.unacked_range(peer, Channel::Game);
        range.is_some_and(|range| {
            range.end.distance_from(range.start).cast_unsigned() >= MAX_IN_FLIGHT_BEFORE_CHAT
        })
    }

    #[cold]
    #[inline(never)]
    fn enqueue(&mut self, to: PeerId, outgoing: Outgoing<'_>, now: Time) -> Result<(), SendError> {
        // S-46: a message within its sender's share does not wait for others that wait for the uplink.
        let may_bypass =
            outgoing.priority.is_urgent() || !outgoing.is_over_share && self.uplink.flush_at.is_some();
        let limit = self.member(to).filter(|_| may_bypass).and_then(|member| {
            member.send_queue.as_ref()?.can_bypass(outgoing).then(|| member.window.allowance())
        });
        if let Some(limit) = limit
            && self.send_prioritized(to, outgoing.priority, outgoing.payload, limit, now)?
                == Capacity::Available
        {
            return Ok(());
        }
        let (queue_messages, queue_bytes) =
            (self.config.transport.max_queued_messages, self.config.transport.max_queued_bytes);
        let per_source = self.config.relay_rate.into();
        let ack_counters = self.endpoint.counters(to).unwrap_or_default().into();
        let Some(member) = self.member_mut(to) else { return Err(SendError::UnknownPeer(to)) };
        if member.send_queue.is_none() {
            member.window.set_baseline(ack_counters);
        }
        let before_object = member.window.allowance().bytes as u64;
        let limits = QueueLimits { messages: queue_messages, bytes: queue_bytes, per_source, before_object };
        let dropped = member.send_queue.get_or_insert_default().push(outgoing, limits)?;
        self.has_ack_waiters = true;
        self.counters.queued += 1;
        self.counters.not_queued += dropped;
        if outgoing.is_over_share && !self.uplink.has_room(now) {
            self.wait_for_uplink(to, now);
        }
        Ok(())
    }

    /// S-46: schedules the next flush of the messages that wait for the uplink.
    fn wait_for_uplink(&mut self, receiver: PeerId, now: Time) {
        let flush_at = self.uplink.wait(receiver, now);
        self.schedule_at(flush_at);
    }

    /// S-28: holds a player's queue until its control channel has reached this sequence number.
    pub(super) fn hold_queue(&mut self, peer: PeerId, until: Seq) {
        let counters = self.endpoint.counters(peer).unwrap_or_default();
        let Some(member) = self.member_mut(peer) else { return };
        if member.send_queue.is_none() {
            member.window.set_baseline(counters.into());
        }
        let queue = member.send_queue.get_or_insert_default();
        // Sequence numbers only grow, so the newest name is acknowledged last.
        if queue.hold_until.is_none_or(|before| until.distance_from(before) > 0) {
            queue.hold_until = Some(until);
        }
        self.has_ack_waiters = true;
    }

    /// Sends the queued messages of a player as far as its link has capacity.
    pub(super) fn flush_queue(&mut self, peer: PeerId, now: Time) {
        let Some(reached) = self.endpoint.unacked_range(peer, Channel::Control).map(|range| range.start)
        else {
            return;
        };
        let counters = self.endpoint.counters(peer).unwrap_or_default();
        let has_uplink = self.uplink.has_room(now);
        let Some(member) = self.member_mut(peer) else { return };
        let Some(mut queue) = member.send_queue.take() else { return };
        queue.hold_until.take_if(|until| until.distance_from(reached) <= 0);
        if has_uplink {
            member.window.update(counters.into());
        } else {
            // The uplink limits the player's ACKs, so they do not show the capacity of the link.
            member.window.set_baseline(counters.into());
        }
        let limit = member.window.allowance();
        let mut capacity = Capacity::Available;
        while let Some((source, priority, payload)) = queue.front(self.uplink.has_room(now)) {
            capacity = match self.send_prioritized(peer, priority, payload, limit, now) {
                Ok(capacity) => capacity,
                Err(error) => return self.boot_if_queue_full(peer, Err(error), now),
            };
            if capacity != Capacity::Available {
                break;
            }
            queue.pop(source);
        }
        if queue.has_over_share() && !self.uplink.has_room(now) {
            self.wait_for_uplink(peer, now);
        }
        let Some(member) = self.member_mut(peer) else { return };
        if capacity == Capacity::Congested {
            member.window.note_queueing_delay();
        }
        if !queue.is_empty() {
            member.send_queue = Some(queue);
        }
    }

    /// S-61: drops queued messages of the last round, which would confuse the players of the next.
    pub(super) fn drop_queued_bulk(&mut self) {
        for queue in self.members.iter_mut().flatten().filter_map(|member| member.send_queue.as_deref_mut()) {
            self.counters.not_queued += queue.drop_bulk();
        }
    }
}

/// The number of messages in flight to a player from which on chat waits in the send queue.
const MAX_IN_FLIGHT_BEFORE_CHAT: u16 = 256;
