//! The part of address verification that a proxy uses.
//!
//! The host behind a proxy assigns the ids. The proxy sends the cookie behind the host's reply, and decides
//! whether the client has verified its address ([T-80]).
//!
//! [T-80]: bcnet_wire::protocol#t-80

use core::net::SocketAddrV4;

use super::cookie::acked_cookies;
use super::{AddressVerifier, ID_SLOTS, IdSlot, ReplyContent, Verification};
use crate::config::ProofPolicy;
use crate::time::Time;
use crate::wire::{Data, Datagram, Delivery, Message, PeerId, Seq};

impl AddressVerifier {
    /// Records that a host has assigned `id` to the client at `to`. Returns the cookie to send behind it.
    ///
    /// Returns `None` if the client got the cookie just now.
    pub fn offer(&mut self, id: PeerId, to: SocketAddrV4, now: Time) -> Option<Seq> {
        self.id_slots.resize(ID_SLOTS, IdSlot::default());
        self.record_offer(id, (to, None), None, false, now).map(|(cookie, _)| cookie)
    }

    /// Returns whether a datagram verifies the address of the client that was offered the sender's id.
    ///
    /// With [`ProofPolicy::Ack`], the client must acknowledge its cookie. During an attack it gets a second
    /// cookie, which [`poll_cookie`](Self::poll_cookie) returns.
    pub fn is_verified_by(
        &mut self,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
        policy: ProofPolicy,
        now: Time,
    ) -> bool {
        let verification = self.verify_by_rules(from, datagram, (None, &[]), (policy, true), now);
        let is_verified = matches!(verification, Verification::Verified(_));
        if is_verified {
            self.withdraw(from);
            self.note_joined(datagram.sender(), now);
        }
        is_verified
    }

    /// Withdraws all offers to an address.
    pub fn withdraw(&mut self, to: SocketAddrV4) {
        self.withdraw_offers_to(to);
    }

    /// Returns the next cookie to send alone.
    pub fn poll_cookie(&mut self) -> Option<(SocketAddrV4, Seq)> {
        while let Some(reply) = self.next_reply() {
            if let ReplyContent::Cookie(number, _) = reply.content {
                return Some((reply.to, number));
            }
        }
        None
    }

    /// Returns the cookie of a client without an id. It is not stored.
    #[must_use]
    pub fn newcomer_cookie(&self, to: SocketAddrV4, now: Time) -> Seq {
        self.cookie(to, PeerId::UNASSIGNED, now)
    }

    /// Returns whether a client without an id acknowledges its [`newcomer_cookie`](Self::newcomer_cookie).
    #[must_use]
    pub fn acks_newcomer_cookie(&self, from: SocketAddrV4, datagram: &Datagram<'_>, now: Time) -> bool {
        // Most datagrams have an id, so no cookie is computed for them.
        datagram.sender() == PeerId::UNASSIGNED
            && acked_cookies(datagram)
                .next()
                .is_some_and(|number| self.valid_cookies(from, PeerId::UNASSIGNED, now).contains(&number))
    }
}

/// Returns the message that carries a cookie ([T-76]).
///
/// [T-76]: bcnet_wire::protocol#t-76
#[must_use]
pub const fn cookie_message(number: Seq) -> Message<'static> {
    Message::Data(Data { delivery: Delivery::Reliable(number), urgent: false, payload: &[] })
}

/// Returns whether a datagram acknowledges a number that can be a cookie.
#[must_use]
pub fn acks_a_cookie(datagram: &Datagram<'_>) -> bool {
    acked_cookies(datagram).next().is_some()
}

/// Returns the number of the cookie in a host's datagram to a new client, if it has one.
#[must_use]
pub fn cookie_in(datagram: &Datagram<'_>) -> Option<Seq> {
    datagram.messages().find_map(|message| match message {
        Message::Data(Data { delivery: Delivery::Reliable(number), payload: [], .. }) => {
            super::cookie::can_be_cookie(number).then_some(number)
        }
        Message::Data(_) | Message::Ack(_) | Message::Control(_) | Message::Keepalive => None,
    })
}
