//! A client is gone.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Engine, Leave, Time};

use super::Session;
use crate::event::Event;
use crate::line::Source;
use crate::member::{Member, State};
use crate::message::{self, Score};

/// S-52: who was thrown out lately.
#[derive(Debug)]
pub(super) struct KeptOut {
    address: SocketAddrV4,
    /// From every port.
    whole_address: bool,
    pub(super) until: Time,
}

impl KeptOut {
    /// Returns whether it is who asks now.
    pub(super) fn is(&self, from: SocketAddrV4) -> bool {
        self.address == from || (self.whole_address && self.address.ip() == from.ip())
    }
}

impl<E: Engine> Session<E> {
    /// S-50: the others are told, the score is kept, id and slot are free again.
    pub(super) fn left(&mut self, peer: PeerId, reason: Leave, now: Time) {
        let Some(member) = self.members.get_mut(usize::from(peer.0)).and_then(Option::take) else { return };
        if self.in_game.remove(peer) {
            self.tell_left(&member, now);
        }
        self.forget_name(peer);
        self.forget_shots_of(peer);
        self.remember(&member, now);
        if reason == Leave::Booted(BootReason::KICKED) {
            self.keep_out(&member, now);
        }
        while matches!(self.members.last(), Some(None)) {
            self.members.pop();
        }
        let Member { address, .. } = *member;
        self.tell(Event::Left { peer, name: member.name.unwrap_or_default(), address, reason });
        if self.members.is_empty() {
            self.stand_still(now);
        }
        self.take_over();
        self.rearm();
    }

    fn tell_left(&mut self, member: &Member, now: Time) {
        let source = Source::of(member.slot);
        if member.ship.alive {
            self.send_all(source, None, &message::destroy(member.ship.object), now);
        }
        self.send_all(source, None, &message::player_left(member.id.0), now);
        if let Some(name) = member.name.as_deref().filter(|name| !name.is_empty()) {
            self.send_all(source, None, &message::player_gone(&message::text(name)), now);
        }
    }

    /// S-52: whoever is thrown out stays out for a moment, even if its program tries again by itself.
    fn keep_out(&mut self, member: &Member, now: Time) {
        if self.kicked.len() >= MAX_KICKED {
            self.kicked.pop_front();
        }
        // Who was told about its files did nothing that others at its address have to answer for.
        let whole_address = !matches!(member.state, State::Refused { .. });
        self.kicked.push_back(KeptOut { address: member.address, whole_address, until: now + OUTSIDE });
    }

    /// S-51: whoever comes back under the same name goes on with its score.
    fn remember(&mut self, member: &Member, now: Time) {
        let named = member.participant(now).filter(|participant| !participant.name.is_empty());
        let Some(participant) = named else { return };
        if self.remembered.len() >= MAX_REMEMBERED {
            // Whoever comes and goes pushes no score out.
            let no_score = self.remembered.iter().position(|known| known.score == Score::default());
            if no_score.is_none() && participant.score == Score::default() {
                return;
            }
            self.remembered.remove(no_score.unwrap_or(0));
        }
        self.remembered.push_back(participant);
    }
}

/// Those who left whose scores are kept.
const MAX_REMEMBERED: usize = 64;
/// Players thrown out lately that are remembered, and for how long.
const MAX_KICKED: usize = 64;
const OUTSIDE: Duration = Duration::from_secs(5);
