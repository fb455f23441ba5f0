//! What the people of a host do about players: who may come, who may speak, and why somebody is thrown out.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::config::Config;
use crate::limit::Rate;
use crate::member::{Member, State};
use crate::network::any_contains;

/// S-44: who may not chat, should it come back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Muted {
    address: Ipv4Addr,
    name: String,
}

impl Muted {
    fn of(member: &Member) -> Self {
        Self { address: *member.address.ip(), name: member.shown_name() }
    }
}

impl<E: Engine> Session<E> {
    /// Takes chat from a player until [`unmute`](Self::unmute), even if it comes back by that address and name (S-44).
    /// Returns `false` if there is no such player.
    pub fn mute(&mut self, peer: PeerId) -> bool {
        let Some(member) = self.member_mut(peer) else { return false };
        member.is_muted = true;
        let muted = Muted::of(member);
        self.muted.retain(|known| *known != muted);
        if self.muted.len() >= MAX_MUTED {
            self.muted.pop_front();
        }
        self.muted.push_back(muted);
        true
    }

    /// Lets a player chat again. Returns `false` if it may already.
    pub fn unmute(&mut self, peer: PeerId) -> bool {
        let Some(member) = self.member_mut(peer).filter(|member| member.is_muted) else { return false };
        member.is_muted = false;
        let muted = Muted::of(member);
        self.muted.retain(|known| *known != muted);
        true
    }

    /// A player has told a name under which it may have been muted.
    pub(super) fn mute_again(&mut self, peer: PeerId) {
        let Some(member) = self.member(peer) else { return };
        let muted = Muted::of(member);
        if let (true, Some(member)) = (self.muted.contains(&muted), self.member_mut(peer)) {
            member.is_muted = true;
        }
    }

    /// S-15: returns whether an address may come as far as the whitelist goes.
    pub(super) fn is_welcome(&self, from: SocketAddrV4) -> bool {
        let Config { whitelist, trusted, .. } = &self.config;
        whitelist.is_empty() || [whitelist, trusted].iter().any(|list| any_contains(list, *from.ip()))
    }

    /// Throws a player out when it has read why, or after three seconds (S-55). `false` if it is not in the game.
    pub fn dismiss(&mut self, peer: PeerId, why: &str, now: Time) -> bool {
        if !self.say_to(peer, why, now) {
            return false;
        }
        let Some(member) = self.member_mut(peer) else { return false };
        member.state = State::Dismissed { until: now + READING };
        self.waiting = true;
        self.rearm();
        self.pump(now);
        true
    }

    /// Tells a player why others do not hear it, now and then.
    pub(super) fn explain(&mut self, peer: PeerId, why: &str, now: Time) {
        let Some(member) = self.member_mut(peer) else { return };
        if member.explanations.take(1, EXPLANATIONS, now) {
            self.say_to(peer, why, now);
        }
    }
}

/// How often a player is told why others do not hear it.
pub(crate) const EXPLANATIONS: Rate = Rate::every(Duration::from_secs(30), 1);
/// How long whoever is thrown out may take to read why.
pub(super) const READING: Duration = Duration::from_secs(3);
/// Players who may not chat that are remembered.
const MAX_MUTED: usize = 256;
