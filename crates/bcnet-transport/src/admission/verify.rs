//! Verification of datagrams with an id that is not in use ([T-76]).
//!
//! [T-76]: bcnet_wire::protocol#t-76

use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;

use super::cookie::acked_cookies;
use super::{AddressVerifier, IdOffer, REPLY_INTERVAL, ReplyContent};
use crate::config::{Config, ProofPolicy};
use crate::time::Time;
use crate::wire::{Datagram, PeerId, Seq};

/// The result of [`AddressVerifier::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    /// The sender has the offer of this id and has verified its address; with its nonce, if it is known.
    Verified(Option<u32>),
    /// The sender has an offer of this id and has not verified its address yet.
    Pending,
    /// The sender has an offer of this id, but acknowledges this many numbers that it was not sent.
    WrongCookies(u8),
    /// The sender has no offer of this id.
    NoOffer,
}

/// The peer at the address of a new client (T-77).
#[derive(Debug, Clone)]
pub(crate) struct AddressOwner {
    /// The numbers that the peer, or a client restarted at its address, may still acknowledge.
    pub(crate) unacked_range: Range<Seq>,
    /// The peer was silent for so long that a datagram with the offered id may replace it (T-53).
    pub(crate) is_idle: bool,
}

impl AddressVerifier {
    /// Judges a datagram with an unused id. `owner` is the peer at the same address, if there is one.
    ///
    /// `probes` are the numbers that a former client at the address was probed with (T-57).
    pub(crate) fn verify(
        &mut self,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
        owner: Option<&AddressOwner>,
        probes: &[Seq],
        config: &Config<u64>,
        now: Time,
    ) -> Verification {
        let rules = (config.proof_policy, config.selective_admission);
        self.verify_by_rules(from, datagram, (owner, probes), rules, now)
    }

    /// Judges a datagram with an unused id, under a proof policy. `selective` is
    /// [`Config::selective_admission`].
    pub(super) fn verify_by_rules(
        &mut self,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
        (owner, probes): (Option<&AddressOwner>, &[Seq]),
        (policy, selective): (ProofPolicy, bool),
        now: Time,
    ) -> Verification {
        let id = datagram.sender();
        let offer = self.id_slot(id).offer.filter(|offer| offer.to == from && offer.is_open(now));
        let Some(offer) = offer else {
            if self.open_offers(from, now).next().is_some() {
                self.forgery_seen_until = now.plus(FORGERY_MEMORY);
            }
            let may_be_evicted = owner.is_none() && !selective && self.is_under_attack(now);
            return if may_be_evicted {
                self.verify_evicted(from, datagram, now)
            } else {
                Verification::NoOffer
            };
        };
        let attacked = self.is_under_attack(now);
        let cookies = self.valid_cookies(from, id, now);
        let is_cookie = |number: &Seq| offer.first_cookie.is_none() && cookies.contains(number);
        let is_known = |number: &Seq| {
            is_cookie(number) || [offer.first_cookie, offer.second_cookie].contains(&Some(*number))
        };
        let is_former = |number: &Seq| {
            let is_probe = probes.contains(number) && !is_known(number);
            is_probe || owner.is_some_and(|owner| is_within(&owner.unacked_range, *number))
        };
        let numbers = acked_cookies(datagram).filter(|number| !is_former(number)).take(MAX_COOKIES_CHECKED);
        // A new client was sent no other game messages.
        let guesses = numbers.clone().filter(|number| !is_known(number)).count();
        if guesses > 0 {
            self.on_wrong_cookie(id, owner.is_some(), now);
            return Verification::WrongCookies(u8::try_from(guesses).unwrap_or(u8::MAX));
        }
        let is_right =
            |number: Seq| offer.stored_cookie().map_or_else(|| is_cookie(&number), |kept| number == kept);
        let other = offer.other_cookie();
        let has_other = other.is_none_or(|other| numbers.clone().any(|number| number == other));
        if has_other && numbers.clone().any(is_right) {
            let is_once =
                offer.second_cookie.is_none() && (owner.is_some() || attacked && policy != ProofPolicy::Id);
            return if is_once {
                self.send_second_cookie(id, from, owner, now)
            } else {
                Verification::Verified(offer.nonce)
            };
        }
        let by_id =
            (offer.second_cookie.is_none() || offer.needs_both) && owner.is_none_or(|owner| owner.is_idle);
        let patient = policy == ProofPolicy::Auto && !attacked && now >= offer.since.plus(ID_PROOF_DELAY);
        if by_id && (policy == ProofPolicy::Id || patient) {
            return Verification::Verified(offer.nonce);
        }
        self.resend_cookie(id, datagram.as_bytes().len(), now);
        Verification::Pending
    }

    /// Judges a datagram without a known offer during an attack: the offer was overwritten, or never made.
    fn verify_evicted(&mut self, from: SocketAddrV4, datagram: &Datagram<'_>, now: Time) -> Verification {
        let id = datagram.sender();
        let cookies = self.valid_cookies(from, id, now);
        let mut numbers = acked_cookies(datagram).take(MAX_COOKIES_CHECKED);
        match numbers.next() {
            None if datagram.as_bytes().len() >= COOKIE_DATAGRAM_LEN => {
                self.queue_reply(from, ReplyContent::Cookie(self.cookie(from, id, now), None));
                Verification::Pending
            }
            Some(first)
                if cookies.contains(&first)
                    && numbers.all(|number| cookies.contains(&number))
                    && !self.id_slot(id).is_reserved(now) =>
            {
                self.send_second_cookie(id, from, None, now)
            }
            None | Some(_) => Verification::NoOffer,
        }
    }

    /// Sends a second cookie to a client that has acknowledged the first.
    ///
    /// This is needed during an attack, or at the address of a peer. The second cookie is stored, and the
    /// client has one attempt.
    fn send_second_cookie(
        &mut self,
        id: PeerId,
        to: SocketAddrV4,
        owner: Option<&AddressOwner>,
        now: Time,
    ) -> Verification {
        let window = owner.map_or(Seq(0)..Seq(0), |owner| owner.unacked_range.clone());
        if owner.is_none() && !self.may_reserve(id, *to.ip(), now) {
            return Verification::Pending;
        }
        let Some(number) = self.draw_cookie_outside(window) else { return Verification::NoOffer };
        let known = self.id_slot(id).offer.filter(|offer| offer.to == to);
        let nonce = known.and_then(|offer| offer.nonce);
        let first = known.and_then(|offer| offer.first_cookie);
        self.set_offer(
            id,
            IdOffer {
                to,
                nonce,
                since: now,
                last_reply: now,
                first_cookie: first,
                second_cookie: Some(number),
                needs_both: false,
            },
            now,
        );
        self.queue_reply(to, ReplyContent::Cookie(number, None));
        Verification::Pending
    }

    /// Returns whether an id may be held for an address, given the ids already held for it and its network.
    ///
    /// So an attacker with many addresses holds only a few ids.
    fn may_reserve(&self, id: PeerId, address: Ipv4Addr, now: Time) -> bool {
        let others = (0..).map(PeerId).zip(&self.id_slots).filter(|(other, _)| *other != id);
        let held =
            others.filter_map(|(_, place)| place.offer.filter(|offer| offer.awaits_second_cookie(now)));
        let of = |bits: u32| {
            let distance = move |offer: &IdOffer| offer.to.ip().to_bits() ^ address.to_bits();
            held.clone().filter(move |offer| distance(offer) >> (32 - bits) == 0).count()
        };
        of(32) < MAX_RESERVED_PER_ADDRESS && of(NETWORK_PREFIX_BITS) < MAX_RESERVED_PER_NETWORK
    }

    /// Handles an ACK of a number that was never sent. At the address of a peer, the caller counts them.
    fn on_wrong_cookie(&mut self, id: PeerId, contested: bool, now: Time) {
        if contested {
            return;
        }
        self.forgery_seen_until = now.plus(FORGERY_MEMORY);
        if let Some(place) = self.id_slots.get_mut(usize::from(id.0)) {
            place.offer.take_if(|offer| offer.second_cookie.is_some());
        }
    }

    /// Sends the cookie again to a client that sends without having acknowledged it.
    ///
    /// The reply has no more bytes than the received datagram.
    fn resend_cookie(&mut self, id: PeerId, len: usize, now: Time) {
        let Some(offer) = self.id_slots.get_mut(usize::from(id.0)).and_then(|place| place.offer.as_mut())
        else {
            return;
        };
        if len < COOKIE_DATAGRAM_LEN || now < offer.last_reply.plus(REPLY_INTERVAL) {
            return;
        }
        offer.last_reply = now;
        let (to, number, other) = (offer.to, offer.stored_cookie(), offer.other_cookie());
        let number = number.unwrap_or_else(|| self.cookie(to, id, now));
        self.queue_reply(to, ReplyContent::Cookie(number, other));
    }
}

/// Returns whether a number is in a window, which may wrap.
fn is_within(window: &Range<Seq>, number: Seq) -> bool {
    number.0.wrapping_sub(window.start.0) < window.end.0.wrapping_sub(window.start.0)
}

/// The time after which a client without an ACK of its cookie may verify itself by its id.
const ID_PROOF_DELAY: u64 = 1_000_000;
/// The time for which a detected forgery counts.
const FORGERY_MEMORY: u64 = 600_000_000;
/// The maximum number of ACKs of one datagram to check: a new client has at most two.
const MAX_COOKIES_CHECKED: usize = 4;
/// The maximum number of held ids for one address and for one network. Clients that come together take
/// turns.
const MAX_RESERVED_PER_ADDRESS: usize = 4;
const MAX_RESERVED_PER_NETWORK: usize = 16;
const NETWORK_PREFIX_BITS: u32 = 16;
/// The length of a datagram that contains only a cookie.
const COOKIE_DATAGRAM_LEN: usize = 7;
