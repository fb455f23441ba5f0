//! Clients before they are peers: pending requests, offered ids, address verification.
//!
//! This module implements [T-75] and [T-76], for a host and for a proxy in front of one (`proxy`). Its memory
//! is bounded: pending requests, one offer for each id, and queued replies. The cookie of an offer is a keyed hash. So a client can still join after a flood has
//! overwritten its offer.
//!
//! [T-75]: bcnet_wire::protocol#t-75
//! [T-76]: bcnet_wire::protocol#t-76

mod cookie;
mod proxy;
mod verify;

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::ops::Range;

use crate::config::IdPolicy;
use crate::queue::RingQueue;
use crate::time::Time;
use crate::wire::{BootReason, PeerId, Seq};
pub(crate) use cookie::acked_cookies;
use cookie::{cookie_outside, siphash};
pub use proxy::{acks_a_cookie, cookie_in, cookie_message};
pub(crate) use verify::{AddressOwner, Verification};

/// The state of all clients that are not peers yet, in a host or in a proxy ([T-76]).
///
/// A host's [`Endpoint`](crate::Endpoint) contains one. A proxy creates one: its server assigns the ids, and
/// the proxy verifies the addresses.
///
/// [T-76]: bcnet_wire::protocol#t-76
#[derive(Debug)]
pub struct AddressVerifier {
    key: [u64; 2],
    /// The number of random values drawn so far.
    random_draws: u64,
    /// The id that was offered or assigned last.
    last_id: PeerId,
    requests: Vec<PendingRequest>,
    /// One slot for each id; empty until the first offer is made.
    id_slots: Vec<IdSlot>,
    replies: RingQueue<UnverifiedReply>,
    /// Grows by one second for each answered address, and shrinks for each that verifies itself.
    suspicion: Time,
    /// A forged datagram was detected; that counts until this time.
    forgery_seen_until: Time,
    /// An attack was detected when the last offer was made, so offers may have been overwritten.
    offers_evicted: bool,
}

/// A request that waits for the caller's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    pub(crate) from: SocketAddrV4,
    pub(crate) nonce: u32,
    since: Time,
}

/// The state of an id.
#[derive(Debug, Clone, Copy, Default)]
struct IdSlot {
    /// The last time when the id was offered or in use.
    last_used: Option<Time>,
    offer: Option<IdOffer>,
}

/// An id that was sent to an address and is not in use yet.
#[derive(Debug, Clone, Copy)]
struct IdOffer {
    to: SocketAddrV4,
    /// The nonce of the request, if it is known.
    nonce: Option<u32>,
    since: Time,
    last_reply: Time,
    /// The first cookie, if it is not the hash of [`AddressVerifier::cookie`].
    first_cookie: Option<Seq>,
    /// The second cookie, if one was sent.
    second_cookie: Option<Seq>,
    /// Both cookies were sent at once, so one datagram must acknowledge both (T-57).
    needs_both: bool,
}

/// A datagram to an unverified address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnverifiedReply {
    pub(crate) to: SocketAddrV4,
    pub(crate) content: ReplyContent,
}

/// The content of an [`UnverifiedReply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyContent {
    /// The ACK of the request, the id, and one cookie or two.
    Offer(PeerId, Seq, Option<Seq>),
    /// The ACK of the request, and the reason of the refusal.
    Refusal(BootReason),
    /// One cookie or two, alone.
    Cookie(Seq, Option<Seq>),
    /// The ACK of an unverified disconnect and two random numbers (T-57).
    Probe(Seq, [Seq; 2]),
    /// The ACK of a control message.
    Ack(Seq),
}

impl AddressVerifier {
    /// Creates an empty verifier. `secret` must be a number that an attacker cannot guess.
    #[must_use]
    pub fn new(secret: u64) -> Self {
        Self {
            key: [secret, secret.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15],
            random_draws: 0,
            last_id: PeerId::HOST,
            requests: Vec::new(),
            id_slots: Vec::new(),
            replies: RingQueue::default(),
            suspicion: Time::ZERO,
            forgery_seen_until: Time::ZERO,
            offers_evicted: false,
        }
    }

    /// Stores a request; a newer one of the same address replaces it.
    ///
    /// At most `max` requests are stored, each for `timeout`. Returns whether the request is new for the
    /// caller, or `None` if there is no space.
    pub(crate) fn add_request(
        &mut self,
        from: SocketAddrV4,
        nonce: u32,
        (max, timeout): (usize, u64),
        now: Time,
    ) -> Option<bool> {
        self.requests.retain(|request| now < request.since.plus(timeout));
        let fresh = PendingRequest { from, nonce, since: now };
        if let Some(request) = self.requests.iter_mut().find(|request| request.from == from) {
            let is_new = request.nonce != nonce;
            if is_new {
                *request = fresh;
            }
            return Some(is_new);
        }
        if self.requests.len() >= max {
            return None;
        }
        self.requests.push(fresh);
        Some(true)
    }

    /// Returns the request of an address.
    pub(crate) fn request(&self, from: SocketAddrV4, timeout: u64, now: Time) -> Option<PendingRequest> {
        self.requests
            .iter()
            .find(|request| request.from == from && now < request.since.plus(timeout))
            .copied()
    }

    /// Drops the request of an address.
    pub(crate) fn forget_request(&mut self, from: SocketAddrV4) {
        self.requests.retain(|request| request.from != from);
    }

    /// Drops all requests and replies.
    pub(crate) fn close(&mut self) {
        self.requests.clear();
        self.replies = RingQueue::default();
    }

    /// Returns an id for an address (T-50): the one that it was offered before, or another that `is_free`.
    pub(crate) fn choose_id(
        &mut self,
        to: SocketAddrV4,
        ids: IdPolicy,
        is_free: impl Fn(PeerId) -> bool,
        now: Time,
    ) -> Option<PeerId> {
        if let Some((id, _)) = self.open_offers(to, now).find(|(id, _)| is_free(*id)) {
            return Some(id);
        }
        self.id_slots.resize(ID_SLOTS, IdSlot::default());
        let draw = self.next_random();
        let pick = |may: &dyn Fn(PeerId) -> bool| {
            let after = if ids == IdPolicy::Sequential { self.last_id.0 } else { LAST_ID };
            let upward = (after + 1..=LAST_ID).chain(FIRST_ID..=after).map(PeerId);
            let mut free = upward.filter(|id| id.is_assignable() && is_free(*id) && may(*id));
            match ids {
                IdPolicy::Sequential => free.next(),
                IdPolicy::Random => {
                    let count = free.clone().count() as u64;
                    free.nth(usize::try_from(draw.checked_rem(count)?).ok()?)
                }
            }
        };
        let is_unused_lately = |id| self.id_slot(id).last_used.is_none_or(|used| now >= used.plus(ID_REST));
        let is_unreserved = |id| !self.id_slot(id).is_reserved(now);
        let id = pick(&is_unused_lately).or_else(|| pick(&is_unreserved)).or_else(|| pick(&|_| true))?;
        self.last_id = id;
        Some(id)
    }

    /// Records that an id is in use, or was until now.
    pub(crate) fn note_used(&mut self, id: PeerId, now: Time) {
        if let Some(place) = self.id_slots.get_mut(usize::from(id.0)) {
            *place = IdSlot { last_used: Some(now), offer: None };
        }
    }

    /// Offers an id and queues the reply.
    ///
    /// `window` has the unacknowledged sequence numbers of the connected peer at this address, if there is
    /// one (T-77). `both` sends both cookies at once (T-57). Returns `false`, without a reply, if no cookie is possible or the address just got a
    /// reply.
    pub(crate) fn offer_id(
        &mut self,
        id: PeerId,
        PendingRequest { from, nonce, .. }: PendingRequest,
        window: Option<Range<Seq>>,
        both: bool,
        now: Time,
    ) -> bool {
        let cookies = self.record_offer(id, (from, Some(nonce)), window, both, now);
        if let Some((number, other)) = cookies {
            self.queue_reply(from, ReplyContent::Offer(id, number, other));
        }
        cookies.is_some()
    }

    /// Records that an id is offered. Returns the cookies to send, if they may be sent now.
    ///
    /// There are two if `both` are required.
    fn record_offer(
        &mut self,
        id: PeerId,
        (from, nonce): (SocketAddrV4, Option<u32>),
        window: Option<Range<Seq>>,
        both: bool,
        now: Time,
    ) -> Option<(Seq, Option<Seq>)> {
        let known = self.id_slot(id).offer.filter(|offer| offer.to == from && offer.is_open(now));
        if known.is_some_and(|offer| now < offer.last_reply.plus(REPLY_INTERVAL)) {
            return None;
        }
        let other = if both && known.is_none() { window.clone() } else { None };
        let other = other.and_then(|window| self.draw_cookie_outside(window));
        let first = match (window, known.and_then(|offer| offer.first_cookie)) {
            (_, Some(number)) => Some(number),
            (None, None) => None,
            (Some(window), None) => Some(self.draw_cookie_outside(window)?),
        };
        if known.is_none() {
            self.suspicion = self.suspicion.max(now).plus(SUSPICION_STEP).min(now.plus(MAX_SUSPICION));
            self.offers_evicted = self.is_under_attack(now);
        }
        let since = known.map_or(now, |offer| offer.since);
        let (second, needs_both) = match known {
            Some(offer) => (offer.second_cookie, offer.needs_both),
            None => (other.filter(|_| other != first), other.is_some() && other != first),
        };
        let offer = IdOffer {
            to: from,
            nonce,
            since,
            last_reply: now,
            first_cookie: first,
            second_cookie: second,
            needs_both,
        };
        self.set_offer(id, offer, now);
        let number = offer.stored_cookie().unwrap_or_else(|| self.cookie(from, id, now));
        Some((number, offer.other_cookie()))
    }

    fn set_offer(&mut self, id: PeerId, offer: IdOffer, now: Time) {
        if let Some(place) = self.id_slots.get_mut(usize::from(id.0)) {
            *place = IdSlot { last_used: Some(now), offer: Some(offer) };
        }
    }

    /// Withdraws all offers to an address.
    pub(crate) fn withdraw_offers_to(&mut self, to: SocketAddrV4) {
        for place in &mut self.id_slots {
            place.offer.take_if(|offer| offer.to == to);
        }
    }

    /// Withdraws all offers.
    pub(crate) fn withdraw_all(&mut self) {
        self.id_slots.iter_mut().for_each(|place| place.offer = None);
    }

    /// Returns whether [`verify`](Self::verify) can accept a datagram with an unused id. This test is
    /// cheap.
    ///
    /// The address must have an offer. While offers may have been overwritten, any address passes.
    pub(crate) fn may_verify(&self, from: SocketAddrV4, id: PeerId) -> bool {
        let offered = |place: &IdSlot| place.offer.is_some_and(|offer| offer.to == from);
        id.is_assignable() && (self.offers_evicted || self.id_slots.iter().any(offered))
    }

    /// Records that a client has joined with an id.
    pub(crate) fn note_joined(&mut self, id: PeerId, now: Time) {
        self.note_used(id, now);
        self.suspicion = Time::from_micros(self.suspicion.as_micros().saturating_sub(SUSPICION_STEP));
    }

    /// Returns whether an attack is detected, so that new clients may be forged.
    fn is_under_attack(&self, now: Time) -> bool {
        self.suspicion > now.plus(ATTACK_THRESHOLD) || now < self.forgery_seen_until
    }

    /// Queues a reply unless too many wait: a client without a reply retransmits its request.
    pub(crate) fn queue_reply(&mut self, to: SocketAddrV4, content: ReplyContent) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push(UnverifiedReply { to, content });
        }
    }

    /// Removes and returns the next reply to send.
    pub(crate) fn next_reply(&mut self) -> Option<UnverifiedReply> {
        let reply = self.replies.front().copied()?;
        self.replies.drop_front(1);
        Some(reply)
    }

    /// Returns whether a reply waits to be sent.
    pub(crate) const fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    fn id_slot(&self, id: PeerId) -> IdSlot {
        self.id_slots.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    /// Returns the open offers to an address.
    fn open_offers(&self, to: SocketAddrV4, now: Time) -> impl Iterator<Item = (PeerId, IdOffer)> {
        let open = move |offer: &IdOffer| offer.to == to && offer.is_open(now);
        (0..)
            .map(PeerId)
            .zip(&self.id_slots)
            .filter_map(move |(id, place)| Some((id, place.offer.filter(open)?)))
    }

    /// Returns the cookie that verifies that an address was offered an id within this minute (T-76).
    fn cookie(&self, to: SocketAddrV4, id: PeerId, now: Time) -> Seq {
        self.cookie_in_period(to, id, now.as_micros() / COOKIE_PERIOD)
    }

    fn cookie_in_period(&self, to: SocketAddrV4, id: PeerId, period: u64) -> Seq {
        let place = u64::from(u32::from(*to.ip())) | u64::from(to.port()) << 32 | u64::from(id.0) << 48;
        cookie_outside(&(0..0), siphash(self.key, [place, period])).unwrap_or_default()
    }

    /// Returns the cookies of this minute and the last for an address and an id.
    fn valid_cookies(&self, to: SocketAddrV4, id: PeerId, now: Time) -> [Seq; 2] {
        let period = now.as_micros() / COOKIE_PERIOD;
        [period, period.saturating_sub(1)].map(|period| self.cookie_in_period(to, id, period))
    }

    pub(crate) fn draw_cookie_outside(&mut self, window: Range<Seq>) -> Option<Seq> {
        let draw = self.next_random();
        cookie_outside(&(window.start.0..window.end.0), draw)
    }

    /// Returns a number that an attacker cannot predict.
    fn next_random(&mut self) -> u64 {
        self.random_draws += 1;
        siphash(self.key, [u64::MAX, self.random_draws])
    }
}

impl IdSlot {
    /// Returns whether the offer must not be overwritten while another id is available.
    fn is_reserved(&self, now: Time) -> bool {
        self.offer.is_some_and(|offer| offer.is_reserved(now))
    }
}

impl IdOffer {
    fn is_open(&self, now: Time) -> bool {
        now < self.since.plus(OFFER_LIFETIME)
    }

    /// Returns the stored cookie that the client must acknowledge, if one is stored.
    fn stored_cookie(&self) -> Option<Seq> {
        self.second_cookie.or(self.first_cookie)
    }

    /// Returns the cookie that must be acknowledged together with the stored one.
    fn other_cookie(&self) -> Option<Seq> {
        self.first_cookie.filter(|_| self.needs_both)
    }

    /// Returns whether the offer can be recognized only by its stored cookie.
    ///
    /// An offer at the address of a peer (T-77) is withdrawn in time, and there are at most as many as
    /// peers.
    fn is_reserved(&self, now: Time) -> bool {
        self.first_cookie.is_some() && self.is_open(now) || self.awaits_second_cookie(now)
    }

    /// Returns whether the second cookie is still expected.
    fn awaits_second_cookie(&self, now: Time) -> bool {
        self.second_cookie.is_some() && now < self.since.plus(RESERVED_FOR)
    }
}

const FIRST_ID: u8 = 2;
const LAST_ID: u8 = 0x7E;
const ID_SLOTS: usize = 128;
/// The time for which an id is not offered again after use, if others are free. All times are in
/// microseconds.
const ID_REST: u64 = 15_000_000;
/// The time for which an offer is valid.
const OFFER_LIFETIME: u64 = 60_000_000;
/// The time for which an id with a stored cookie is not offered to others.
const RESERVED_FOR: u64 = 3_000_000;
/// The minimum time between two replies to one address.
const REPLY_INTERVAL: u64 = 200_000;
/// The suspicion that one answered address adds; then the threshold of an attack and the maximum.
const SUSPICION_STEP: u64 = 1_000_000;
const ATTACK_THRESHOLD: u64 = 32 * SUSPICION_STEP;
const MAX_SUSPICION: u64 = 64 * SUSPICION_STEP;
/// The time for which a cookie stays the same.
const COOKIE_PERIOD: u64 = 60_000_000;
/// The maximum number of queued replies: as many requests as a socket buffers.
const MAX_REPLIES: usize = 1024;
#[cfg(test)]
#[path = "admission_model.rs"]
mod model;
