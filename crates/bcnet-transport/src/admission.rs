//! Newcomers before they are peers: who has asked, which id each was offered, and who has proved that it hears us.
//!
//! Owns T-75 and T-76. What is kept is bounded: requests that the caller has not decided about, one offer per id, answers
//! that wait to be sent. The cookie of an offer is a keyed hash, so a flood that overwrites offers keeps nobody out.

mod cookie;
mod verify;

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::ops::Range;

use crate::config::IdPolicy;
use crate::queue::RingQueue;
use crate::time::Time;
use crate::wire::{BootReason, PeerId, Seq};
use cookie::{cookie_outside, siphash};
pub(crate) use verify::{AddressOwner, Verification};

/// All newcomers.
#[derive(Debug)]
pub(crate) struct AddressVerifier {
    key: [u64; 2],
    /// How many random numbers were drawn.
    random_draws: u64,
    /// The id that was offered or given last.
    last_id: PeerId,
    requests: Vec<PendingRequest>,
    /// By id; empty until the first is made.
    id_slots: Vec<IdSlot>,
    replies: RingQueue<UnverifiedReply>,
    /// One second later for each address that was answered and has not proved itself.
    suspicion: Time,
    /// A forger has shown itself, and is remembered until then.
    forgery_seen_until: Time,
    /// An attack was seen when an offer was made last.
    offers_evicted: bool,
}

/// A request that the caller has not decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    pub(crate) from: SocketAddrV4,
    pub(crate) nonce: u32,
    since: Time,
}

/// What is known of an id.
#[derive(Debug, Clone, Copy, Default)]
struct IdSlot {
    /// When it was last offered, or in use.
    last_used: Option<Time>,
    offer: Option<IdOffer>,
}

/// An id that somebody was told and has not taken yet.
#[derive(Debug, Clone, Copy)]
struct IdOffer {
    to: SocketAddrV4,
    /// Of its request, if that is known.
    nonce: Option<u32>,
    since: Time,
    last_reply: Time,
    /// The first cookie, if it is not [`Admission::cookie`].
    first_cookie: Option<Seq>,
    /// The second, if one was asked for.
    second_cookie: Option<Seq>,
}

/// A datagram to an address that has proved nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnverifiedReply {
    pub(crate) to: SocketAddrV4,
    pub(crate) content: ReplyContent,
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyContent {
    /// The ACK of the request, the id, and the cookie.
    Offer(PeerId, Seq),
    /// The ACK of the request, and why it is refused.
    Refusal(BootReason),
    /// The cookie alone.
    Cookie(Seq),
    /// The ACK of a control message.
    Ack(Seq),
}

impl AddressVerifier {
    /// Nobody has asked. `secret` is a number that nobody can guess.
    pub(crate) fn new(secret: u64) -> Self {
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

    /// Notes a request; a later one of the same address takes its place. `max` are kept, each for `timeout`. Returns
    /// whether the caller is to be asked, or `None` if there is no room.
    pub(crate) fn add_request(
        &mut self,
        from: SocketAddrV4,
        nonce: u32,
        (max, timeout): (usize, u64),
        now: Time,
    ) -> Option<bool> {
        self.requests.retain(|asked| now < asked.since.plus(timeout));
        let fresh = PendingRequest { from, nonce, since: now };
        if let Some(asked) = self.requests.iter_mut().find(|asked| asked.from == from) {
            let is_new = asked.nonce != nonce;
            if is_new {
                *asked = fresh;
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
        self.requests.iter().find(|asked| asked.from == from && now < asked.since.plus(timeout)).copied()
    }

    /// Forgets the request of an address.
    pub(crate) fn forget_request(&mut self, from: SocketAddrV4) {
        self.requests.retain(|asked| asked.from != from);
    }

    /// Forgets all requests and answers.
    pub(crate) fn close(&mut self) {
        self.requests.clear();
        self.replies = RingQueue::default();
    }

    /// T-50: returns an id for an address: the one that it was offered already, or one of those that `is_free`.
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
        let rests = |id| self.id_slot(id).last_used.is_none_or(|used| now >= used.plus(ID_REST));
        let is_loose = |id| !self.id_slot(id).is_reserved(now);
        let id = pick(&rests).or_else(|| pick(&is_loose)).or_else(|| pick(&|_| true))?;
        self.last_id = id;
        Some(id)
    }

    /// Notes that an id is in use, or was until now.
    pub(crate) fn note_used(&mut self, id: PeerId, now: Time) {
        if let Some(place) = self.id_slots.get_mut(usize::from(id.0)) {
            *place = IdSlot { last_used: Some(now), offer: None };
        }
    }

    /// Offers an id. `window` is what the address would keep of a former connection, if it has one (T-77). Returns
    /// `false`, and nothing is said, if no cookie can be found, or the address was answered just now.
    pub(crate) fn offer_id(
        &mut self,
        id: PeerId,
        PendingRequest { from, nonce, .. }: PendingRequest,
        window: Option<Range<Seq>>,
        now: Time,
    ) -> bool {
        let known = self.id_slot(id).offer.filter(|offer| offer.to == from && offer.is_open(now));
        if known.is_some_and(|offer| now < offer.last_reply.plus(REPLY_INTERVAL)) {
            return false;
        }
        let first = match (window, known.and_then(|offer| offer.first_cookie)) {
            (_, Some(number)) => Some(number),
            (None, None) => None,
            (Some(window), None) => match self.draw_cookie_outside(window) {
                Some(number) => Some(number),
                None => return false,
            },
        };
        if known.is_none() {
            self.suspicion = self.suspicion.max(now).plus(SUSPICION_STEP).min(now.plus(MAX_SUSPICION));
            self.offers_evicted = self.is_under_attack(now);
        }
        let since = known.map_or(now, |offer| offer.since);
        let second = known.and_then(|offer| offer.second_cookie);
        let offer = IdOffer {
            to: from,
            nonce: Some(nonce),
            since,
            last_reply: now,
            first_cookie: first,
            second_cookie: second,
        };
        self.set_offer(id, offer, now);
        let number = offer.stored_cookie().unwrap_or_else(|| self.cookie(from, id, now));
        self.queue_reply(from, ReplyContent::Offer(id, number));
        true
    }

    fn set_offer(&mut self, id: PeerId, offer: IdOffer, now: Time) {
        if let Some(place) = self.id_slots.get_mut(usize::from(id.0)) {
            *place = IdSlot { last_used: Some(now), offer: Some(offer) };
        }
    }

    /// Withdraws what an address was offered.
    pub(crate) fn withdraw_offers_to(&mut self, to: SocketAddrV4) {
        for place in &mut self.id_slots {
            place.offer.take_if(|offer| offer.to == to);
        }
    }

    /// Withdraws all that was offered.
    pub(crate) fn withdraw_all(&mut self) {
        self.id_slots.iter_mut().for_each(|place| place.offer = None);
    }

    /// Returns whether a datagram under an id that nobody has is worth a [`claim`](Self::claim), which is asked often: from
    /// an address that was offered something, or from any while offers may have been washed away.
    pub(crate) fn may_verify(&self, from: SocketAddrV4, id: PeerId) -> bool {
        let offered = |place: &IdSlot| place.offer.is_some_and(|offer| offer.to == from);
        id.is_assignable() && (self.offers_evicted || self.id_slots.iter().any(offered))
    }

    /// Notes that somebody has joined under an id.
    pub(crate) fn note_joined(&mut self, id: PeerId, now: Time) {
        self.note_used(id, now);
        self.suspicion = Time::from_micros(self.suspicion.as_micros().saturating_sub(SUSPICION_STEP));
    }

    /// Returns whether newcomers may be forged.
    fn is_under_attack(&self, now: Time) -> bool {
        self.suspicion > now.plus(ATTACK_THRESHOLD) || now < self.forgery_seen_until
    }

    /// Queues an answer, if not too many wait: who gets none asks again.
    pub(crate) fn queue_reply(&mut self, to: SocketAddrV4, content: ReplyContent) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push(UnverifiedReply { to, content });
        }
    }

    /// Takes the next answer to send.
    pub(crate) fn next_reply(&mut self) -> Option<UnverifiedReply> {
        let answer = self.replies.front().copied()?;
        self.replies.drop_front(1);
        Some(answer)
    }

    /// Returns whether an answer waits to be sent.
    pub(crate) const fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    fn id_slot(&self, id: PeerId) -> IdSlot {
        self.id_slots.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    /// Returns what an address was offered.
    fn open_offers(&self, to: SocketAddrV4, now: Time) -> impl Iterator<Item = (PeerId, IdOffer)> {
        let open = move |offer: &IdOffer| offer.to == to && offer.is_open(now);
        (0..)
            .map(PeerId)
            .zip(&self.id_slots)
            .filter_map(move |(id, place)| Some((id, place.offer.filter(open)?)))
    }

    /// T-76: the number that proves that an address was told an id within this minute.
    fn cookie(&self, to: SocketAddrV4, id: PeerId, now: Time) -> Seq {
        self.cookie_in_period(to, id, now.as_micros() / COOKIE_PERIOD)
    }

    fn cookie_in_period(&self, to: SocketAddrV4, id: PeerId, period: u64) -> Seq {
        let place = u64::from(u32::from(*to.ip())) | u64::from(to.port()) << 32 | u64::from(id.0) << 48;
        cookie_outside(&(0..0), siphash(self.key, [place, period])).unwrap_or_default()
    }

    /// Returns the numbers that an address may have been told with an id within this minute and the last.
    fn valid_cookies(&self, to: SocketAddrV4, id: PeerId, now: Time) -> [Seq; 2] {
        let period = now.as_micros() / COOKIE_PERIOD;
        [period, period.saturating_sub(1)].map(|period| self.cookie_in_period(to, id, period))
    }

    fn draw_cookie_outside(&mut self, window: Range<Seq>) -> Option<Seq> {
        let draw = self.next_random();
        cookie_outside(&(window.start.0..window.end.0), draw)
    }

    /// Returns a number that nobody can foresee.
    fn next_random(&mut self) -> u64 {
        self.random_draws += 1;
        siphash(self.key, [u64::MAX, self.random_draws])
    }
}

impl IdSlot {
    /// Returns whether its offer is not overwritten as long as another id is left.
    fn is_reserved(&self, now: Time) -> bool {
        self.offer.is_some_and(|offer| offer.is_reserved(now))
    }
}

impl IdOffer {
    fn is_open(&self, now: Time) -> bool {
        now < self.since.plus(OFFER_LIFETIME)
    }

    /// Returns the cookie that is asked for, if it is one that is kept.
    fn stored_cookie(&self) -> Option<Seq> {
        self.second_cookie.or(self.first_cookie)
    }

    /// Returns whether it is known by what is kept of it alone. At the address of a peer (T-77) it is withdrawn in time;
    /// there are no more of those than peers.
    fn is_reserved(&self, now: Time) -> bool {
        self.first_cookie.is_some() && self.is_open(now) || self.awaits_second_cookie(now)
    }

    /// Returns whether a second cookie is awaited.
    fn awaits_second_cookie(&self, now: Time) -> bool {
        self.second_cookie.is_some() && now < self.since.plus(RESERVED_FOR)
    }
}

const FIRST_ID: u8 = 2;
const LAST_ID: u8 = 0x7E;
const ID_SLOTS: usize = 128;
/// An id rests so long after it was offered or in use, if there are others. In microseconds, as all times here.
const ID_REST: u64 = 15_000_000;
/// How long an offer can be taken.
const OFFER_LIFETIME: u64 = 60_000_000;
/// How long a cookie that is kept is safe from other offers of its id.
const RESERVED_FOR: u64 = 3_000_000;
/// An address is not answered again within this time.
const REPLY_INTERVAL: u64 = 200_000;
/// What one address that was answered adds to the doubt, from how much on newcomers are doubted, and the most.
const SUSPICION_STEP: u64 = 1_000_000;
const ATTACK_THRESHOLD: u64 = 32 * SUSPICION_STEP;
const MAX_SUSPICION: u64 = 64 * SUSPICION_STEP;
/// How long a cookie stays the same.
const COOKIE_PERIOD: u64 = 60_000_000;
/// Answers that wait to be sent: a socket's worth of requests.
const MAX_REPLIES: usize = 1024;
#[cfg(test)]
#[path = "admission_model.rs"]
mod model;
