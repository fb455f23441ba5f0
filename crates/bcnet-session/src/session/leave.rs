//! Departure of a client: notices to the others, stored scores, kick cooldown ([S-50] to [S-52]).
//!
//! [S-50]: bcnet_transport::wire::protocol#s-50
//! [S-52]: bcnet_transport::wire::protocol#s-52

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Engine, LeaveReason, Time};

use super::Session;
use crate::event::Event;
use crate::member::{Member, MemberState};
use crate::message::{self, Score};
use crate::send_queue::MessageSource;

/// S-52: an address that was kicked a short time ago.
#[derive(Debug)]
pub(super) struct RecentKick {
    address: SocketAddrV4,
    /// True if the cooldown applies to all ports of the address.
    any_port: bool,
    pub(super) until: Time,
}

impl RecentKick {
    /// Returns whether the cooldown applies to an address.
    pub(super) fn matches(&self, from: SocketAddrV4) -> bool {
        self.address == from || (self.any_port && self.address.ip() == from.ip())
    }
}

impl<E: Engine> Session<E> {
    /// S-50: removes a client: informs the others, stores its score, frees its id and slot.
    pub(super) fn on_peer_left(&mut self, peer: PeerId, reason: LeaveReason, now: Time) {
        let Some(member) = self.members.get_mut(usize::from(peer.0)).and_then(Option::take) else { return };
        if self.in_game.remove(peer) {
            self.update_uplink_shares();
            self.announce_departure(&member, now);
            self.tell_policy_of_leave(&member, reason, now);
        }
        self.forget_pending_name(peer);
        self.clear_shots_of(peer);
        self.store_score(&member, now);
        if reason == LeaveReason::Booted(BootReason::KICKED) {
            self.record_kick(&member, now);
        }
        while matches!(self.members.last(), Some(None)) {
            self.members.pop();
        }
        let Member { address, .. } = *member;
        self.emit(Event::Left { peer, name: member.name.unwrap_or_default(), address, reason });
        if self.members.is_empty() {
            self.on_session_empty(now);
        }
        self.apply_pending_settings();
        self.reschedule();
    }

    fn announce_departure(&mut self, member: &Member, now: Time) {
        let source = MessageSource::from_slot(member.slot);
        if member.ship.alive {
            self.send_all(source, None, &message::destroy_object(member.ship.object), now);
        }
        self.send_all(source, None, &message::player_left(member.id.0), now);
        if let Some(name) = member.name.as_deref().filter(|name| !name.is_empty()) {
            self.send_all(source, None, &message::delete_player_animation(&message::wire_text(name)), now);
        }
    }

    /// S-52: refuses a kicked client for a short time, because some clients reconnect by themselves.
    pub(super) fn record_kick(&mut self, member: &Member, now: Time) {
        if self.kicked.len() >= MAX_KICKED {
            self.kicked.pop_front();
        }
        // A client with different files did no harm, so other players behind its address may still join.
        let any_port = !matches!(member.state, MemberState::Refused { .. });
        self.kicked.push_back(RecentKick { address: member.address, any_port, until: now + KICK_COOLDOWN });
    }

    /// S-51: stores the score of a player, for its return under the same name.
    fn store_score(&mut self, member: &Member, now: Time) {
        let named = member.participant(now).filter(|participant| !participant.name.is_empty());
        let Some(participant) = named else { return };
        if self.departed.len() >= MAX_DEPARTED {
            // A player without a score must not push out stored scores.
            let no_score = self.departed.iter().position(|known| known.score == Score::default());
            if no_score.is_none() && participant.score == Score::default() {
                return;
            }
            self.departed.remove(no_score.unwrap_or(0));
        }
        self.departed.push_back(participant);
    }
}

/// The most departed players whose scores are stored.
const MAX_DEPARTED: usize = 64;
/// The most kicked addresses that are remembered, and the cooldown.
const MAX_KICKED: usize = 64;
const KICK_COOLDOWN: Duration = Duration::from_secs(5);
