//! One client of a proxy: what is known of it, and when it comes and goes.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Control, Datagram, Kind, Message, PeerId, Role};

use crate::heal::{Healed, Healer, Seen, Way, asks_to_join};
use crate::proxy::Source;

/// How often something happens in a second.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the second began.
    second: Time,
    count: u32,
}

impl Pace {
    /// It has happened once.
    pub(crate) const fn new(now: Time) -> Self {
        Self { second: now, count: 1 }
    }

    /// It happens again. Whether that is too often; a rate of 0 is any.
    pub(crate) fn exceeds(&mut self, rate: u32, now: Time) -> bool {
        if self.second + Duration::from_secs(1) <= now {
            (self.second, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        rate > 0 && self.count > rate
    }
}

/// The clients of one address.
#[derive(Debug)]
pub(crate) struct Neighbours {
    pub(crate) count: usize,
    pub(crate) pace: Pace,
}

/// One client, and what is known of its conversation.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddrV4,
    pub(crate) source: Source,
    pub(crate) player: bool,
    pub(crate) healer: Option<Box<Healer>>,
    pub(crate) heard: Time,
    /// The id in its datagrams, which is never ciphered.
    pub(crate) id: PeerId,
    /// Since when it has been silent after a goodbye passed.
    pub(crate) parted: Option<Time>,
    /// Whether the server has said anything to it.
    pub(crate) answered: bool,
    pub(crate) pace: Pace,
}

impl Client {
    pub(crate) fn healed(&self, way: Way) -> Healed {
        self.healer.as_ref().map(|healer| healer.healed(way)).unwrap_or_default()
    }

    /// A datagram passes. Whether it is the one that ends the conversation.
    pub(crate) fn note(&mut self, way: Way, seen: Seen<'_>, now: Time) -> bool {
        self.heard = now;
        self.answered |= way == Way::Down;
        if let (Way::Up, Some(sender)) = (way, seen.wire.first()) {
            self.id = PeerId(*sender);
            // It is gone only when it falls silent: a goodbye that is lost behind the proxy comes again.
            self.parted = self.parted.filter(|_| !wants_in(seen)).map(|_| now);
        }
        let parts = self.player && self.parted.is_none() && says_goodbye(self.id, way, seen);
        if parts {
            self.parted = Some(now);
        }
        parts
    }
}

/// Whether a client asks to become a player.
pub(crate) fn wants_in(seen: Seen<'_>) -> bool {
    read(seen).is_some_and(|datagram| asks_to_join(&datagram))
}

/// A datagram of a client, if it is well formed.
pub(crate) fn read(seen: Seen<'_>) -> Option<Datagram<'_>> {
    Datagram::parse(seen.plain, Some(Role::Client)).ok()
}

/// Whether the client `own` leaves with this datagram, or is told to (T-59). Others hear of it too when somebody goes.
fn says_goodbye(own: PeerId, way: Way, seen: Seen<'_>) -> bool {
    if !may_say_goodbye(seen.plain) {
        return false;
    }
    let Ok(datagram) = Datagram::parse(seen.plain, Some(way.sender())) else { return false };
    let ends = |who| way == Way::Up || [own, PeerId::HOST, PeerId::UNASSIGNED].contains(&who);
    datagram.messages().any(|message| match message {
        Message::Control(Control { body: Body::Disconnect { peer, .. }, .. }) => ends(peer),
        Message::Control(Control { body: Body::Boot { target, .. }, .. }) => way == Way::Down && ends(target),
        _ => false,
    })
}

/// Whether the type and the size of a boot or a disconnect are in it anywhere. Nearly no other datagram has to be read then,
/// and this has no branches to take for each byte.
fn may_say_goodbye(plain: &[u8]) -> bool {
    let pairs = plain.iter().zip(plain.get(1..).unwrap_or_default());
    pairs.fold(false, |found, (kind, size)| {
        found | (*kind == Kind::BOOT.0) & (*size == 7) | (*kind == Kind::DISCONNECT.0) & (*size == 10)
    })
}
