//! Names before join events: a client gets no event about a player before that player's name ([S-28]).
//!
//! Tracks which names each member has acknowledged. A member that lacks a name gets its messages later; other members
//! are not delayed.
//!
//! [S-28]: bcnet_transport::wire::protocol#s-28

use bcnet_transport::wire::{BootReason, Channel, PeerId, Seq};
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::member::{Member, MemberState};

impl<E: Engine> Session<E> {
    /// Starts waiting for the names that the transport has just sent to a new client.
    pub(super) fn await_name_acks(&mut self, new_client: PeerId) {
        let Some(next) = self.endpoint.unacked_range(new_client, Channel::Control).map(|range| range.end)
        else {
            return;
        };
        let named = self.members.iter().flatten().filter(|member| member.name.is_some());
        let names: Vec<(PeerId, Seq)> = named.map(|member| (member.id, next)).collect();
        if let Some(member) = self.member_mut(new_client) {
            member.pending_names = names;
        }
        self.has_ack_waiters = true;
    }

    /// Starts waiting for the first name of a player, which the transport has just sent to everyone.
    pub(super) fn await_name_ack(&mut self, named: PeerId) {
        for member in self.members.iter_mut().flatten() {
            if let Some(range) = self.endpoint.unacked_range(member.id, Channel::Control) {
                member.pending_names.push((named, range.end));
            }
        }
        self.has_ack_waiters = true;
    }

    /// Stops waiting for the name of a player that has left. Held messages about it keep their position.
    pub(super) fn forget_pending_name(&mut self, gone: PeerId) {
        for member in self.members.iter_mut().flatten() {
            member.pending_names.retain(|(named, _)| *named != gone);
        }
    }

    /// Holds the queues of all players that do not know the new player's name yet.
    pub(super) fn hold_for_name(&mut self, new_player: PeerId) {
        for peer in self.in_game.iter() {
            let names = self.member(peer).map(|member| &member.pending_names);
            let name = names.and_then(|names| names.iter().find(|(named, _)| *named == new_player));
            if let Some(&(_, until)) = name {
                self.hold_queue(peer, until);
            }
        }
    }

    /// Checks the ACKs of all members and continues those that waited.
    ///
    /// A new player waits until it has acknowledged the names. Messages in a send queue wait for capacity of the link.
    /// A refused or kicked client is booted when it has acknowledged the reason.
    pub(super) fn check_acknowledged(&mut self, now: Time) {
        self.uplink.flush_at = None;
        let (count, first) = (self.members.len(), usize::from(self.uplink.next_receiver.0));
        for index in (0..count).map(|index| (index + first) % count) {
            let Some(member) = self.members.get_mut(index).and_then(Option::as_deref_mut) else { continue };
            let peer = member.id;
            let reached = self.endpoint.unacked_range(peer, Channel::Control).map(|range| range.start);
            let is_acked = |before: Seq| reached.is_none_or(|reached| before.distance_from(reached) <= 0);
            member.pending_names.retain(|(_, before)| !is_acked(*before));
            if member.send_queue.is_some() {
                self.flush_queue(peer, now);
            }
        }
        // A second pass, because entering needs the names of all members to be up to date.
        for index in 0..self.members.len() {
            let Some(member) = self.members.get(index).and_then(Option::as_deref) else { continue };
            let peer = member.id;
            match member.state {
                MemberState::Loading { ready: true } if self.may_enter(member) => self.enter_game(peer, now),
                MemberState::Refused { reason, .. } if self.has_acked_everything(peer) => {
                    self.boot(peer, reason, now);
                }
                MemberState::KickPending { .. } if self.has_acked_everything(peer) => {
                    self.boot(peer, BootReason::KICKED, now);
                }
                MemberState::Checking { .. }
                | MemberState::Loading { .. }
                | MemberState::InGame
                | MemberState::Refused { .. }
                | MemberState::KickPending { .. } => {}
            }
        }
        self.has_ack_waiters = self.members.iter().flatten().any(|member| member.awaits_ack());
    }

    /// Returns whether a client may enter (S-28).
    ///
    /// It must have sent its name, and must have acknowledged its own name and those of all players in the game.
    fn may_enter(&self, client: &Member) -> bool {
        let is_relevant = |peer: PeerId| peer == client.id || self.in_game.contains(peer);
        client.name.is_some() && !client.pending_names.iter().any(|(named, _)| is_relevant(*named))
    }

    /// S-24: returns whether a client has acknowledged all game messages.
    fn has_acked_everything(&self, peer: PeerId) -> bool {
        self.endpoint.unacked_range(peer, Channel::Game).is_none_or(|range| range.start == range.end)
    }
}
