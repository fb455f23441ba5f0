//! Moderation by the operator of a host: whitelist, mute, kick with a reason ([S-15], [S-44], [S-55]).
//!
//! [S-15]: bcnet_transport::wire::protocol#s-15
//! [S-44]: bcnet_transport::wire::protocol#s-44
//! [S-55]: bcnet_transport::wire::protocol#s-55

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::config::Config;
use crate::member::{Member, MemberState};
use crate::network::any_contains;
use crate::rate_limit::Rate;

/// The address and name of a muted player, to mute it again after a rejoin (S-44).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MutedPlayer {
    address: Ipv4Addr,
    name: String,
}

impl MutedPlayer {
    fn of(member: &Member) -> Self {
        Self { address: *member.address.ip(), name: member.display_name() }
    }
}

impl<E: Engine> Session<E> {
    /// Mutes the chat of a player until [`unmute`](Self::unmute), also after a rejoin ([S-44]).
    ///
    /// A rejoin is recognised by address and name. Returns `false` if there is no such player.
    ///
    /// [S-44]: bcnet_transport::wire::protocol#s-44
    pub fn mute(&mut self, peer: PeerId) -> bool {
        let Some(member) = self.member_mut(peer) else { return false };
        member.is_muted = true;
        let muted = MutedPlayer::of(member);
        self.muted.retain(|known| *known != muted);
        if self.muted.len() >= MAX_MUTED {
            self.muted.pop_front();
        }
        self.muted.push_back(muted);
        true
    }

    /// Unmutes a player. Returns `false` if the player is not muted.
    pub fn unmute(&mut self, peer: PeerId) -> bool {
        let Some(member) = self.member_mut(peer).filter(|member| member.is_muted) else { return false };
        member.is_muted = false;
        let muted = MutedPlayer::of(member);
        self.muted.retain(|known| *known != muted);
        true
    }

    /// Mutes a player again that has rejoined from the address and under the name of a muted player.
    pub(super) fn restore_mute(&mut self, peer: PeerId) {
        let Some(member) = self.member(peer) else { return };
        let muted = MutedPlayer::of(member);
        if let (true, Some(member)) = (self.muted.contains(&muted), self.member_mut(peer)) {
            member.is_muted = true;
        }
    }

    /// Returns whether the whitelist admits an address (S-15).
    pub(super) fn is_whitelisted(&self, from: SocketAddrV4) -> bool {
        let Config { whitelist, trusted, .. } = &self.config;
        whitelist.is_empty() || [whitelist, trusted].iter().any(|list| any_contains(list, *from.ip()))
    }

    /// Sends a player the reason as chat, then kicks it ([S-55]).
    ///
    /// The boot follows when the client has acknowledged everything, or after three seconds. Returns `false` if the
    /// player is not in the game.
    ///
    /// [S-55]: bcnet_transport::wire::protocol#s-55
    pub fn kick_with_reason(&mut self, peer: PeerId, reason: &str, now: Time) -> bool {
        let is_kicked = self.start_kick(peer, reason, now);
        self.process_events(now);
        is_kicked
    }

    pub(super) fn start_kick(&mut self, peer: PeerId, reason: &str, now: Time) -> bool {
        if !self.say_to(peer, reason, now) {
            return false;
        }
        let Some(member) = self.member_mut(peer) else { return false };
        member.state = MemberState::KickPending { until: now + READ_TIMEOUT };
        self.has_ack_waiters = true;
        self.reschedule();
        true
    }

    /// Sends a player the reason why its chat is dropped, at a limited rate.
    pub(super) fn explain_chat_drop(&mut self, peer: PeerId, reason: &str, now: Time) {
        let Some(member) = self.member_mut(peer) else { return };
        if member.explanation_bucket.take(1, EXPLANATION_RATE, now) {
            self.say_to(peer, reason, now);
        }
    }
}

/// The highest rate of notices about dropped chat to one player.
pub(crate) const EXPLANATION_RATE: Rate = Rate::every(Duration::from_secs(30), 1);
/// The longest time that a kicked or refused client gets to acknowledge the reason.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// The most muted players that are remembered.
const MAX_MUTED: usize = 256;
