//! Nobody hears of a player before it has that player's name (S-28), and nobody waits for another's line.

use bcnet_transport::wire::{BootReason, Channel, PeerId, Seq};
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::member::{Member, State};

impl<E: Engine> Session<E> {
    /// The transport has just told a newcomer the names of all who have one.
    pub(super) fn await_names(&mut self, newcomer: PeerId) {
        let Some(next) = self.endpoint.awaited(newcomer, Channel::Control).map(|awaited| awaited.end) else {
            return;
        };
        let named = self.members.iter().flatten().filter(|member| member.name.is_some());
        let names: Vec<(PeerId, Seq)> = named.map(|member| (member.id, next)).collect();
        if let Some(member) = self.member_mut(newcomer) {
            member.names = names;
        }
        self.waiting = true;
    }

    /// The transport has just told everyone the first name of a player.
    pub(super) fn await_name(&mut self, named: PeerId) {
        for member in self.members.iter_mut().flatten() {
            if let Some(awaited) = self.endpoint.awaited(member.id, Channel::Control) {
                member.names.push((named, awaited.end));
            }
        }
        self.waiting = true;
    }

    /// A player is gone. What is held back about it stays in its place.
    pub(super) fn forget_name(&mut self, gone: PeerId) {
        for member in self.members.iter_mut().flatten() {
            member.names.retain(|(named, _)| *named != gone);
        }
    }

    /// A newcomer enters: whoever does not know its name gets nothing more, until it does.
    pub(super) fn introduce(&mut self, newcomer: PeerId) {
        for peer in self.in_game.iter() {
            let names = self.member(peer).map(|member| &member.names);
            let name = names.and_then(|names| names.iter().find(|(named, _)| *named == newcomer));
            if let Some(&(_, until)) = name {
                self.hold_line(peer, until);
            }
        }
    }

    /// Looks what was acknowledged: newcomers wait for names, players for what waits in their line, the refused until they know
    /// why.
    pub(super) fn serve_waiting(&mut self, now: Time) {
        for at in 0..self.members.len() {
            let Some(member) = self.members.get_mut(at).and_then(Option::as_deref_mut) else { continue };
            let peer = member.id;
            let reached = self.endpoint.awaited(peer, Channel::Control).map(|awaited| awaited.start);
            let has = |before: Seq| reached.is_none_or(|reached| before.distance_from(reached) <= 0);
            member.names.retain(|(_, before)| !has(*before));
            if member.line.is_some() {
                self.serve_line(peer, now);
            }
        }
        // Only now is known who knows whom.
        for at in 0..self.members.len() {
            let Some(member) = self.members.get(at).and_then(Option::as_deref) else { continue };
            let peer = member.id;
            match member.state {
                State::Loading { ready: true } if self.may_enter(member) => self.enter(peer, now),
                State::Refused { .. } | State::Dismissed { .. } if self.has_everything(peer) => {
                    self.boot(peer, BootReason::KICKED, now);
                }
                State::Checking { .. }
                | State::Loading { .. }
                | State::InGame
                | State::Refused { .. }
                | State::Dismissed { .. } => {}
            }
        }
        self.waiting = self.members.iter().flatten().any(|member| member.waits());
    }

    /// S-28: returns whether a newcomer has told its name and knows it, and those of the players in the game.
    fn may_enter(&self, newcomer: &Member) -> bool {
        let is_told = |peer: PeerId| peer == newcomer.id || self.in_game.contains(peer);
        newcomer.name.is_some() && !newcomer.names.iter().any(|(named, _)| is_told(*named))
    }

    /// S-24: returns whether a client has acknowledged all game messages.
    fn has_everything(&self, peer: PeerId) -> bool {
        self.endpoint.awaited(peer, Channel::Game).is_none_or(|awaited| awaited.start == awaited.end)
    }
}
