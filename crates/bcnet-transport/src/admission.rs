//! Newcomers before they are peers: who has asked, which id each was offered, and who has proved that it hears us.
//!
//! Owns T-75 and T-76. What is kept is bounded: requests that the caller has not decided about, one offer per id, answers
//! that wait to be sent. The cookie of an offer is a keyed hash, so a flood that overwrites offers keeps nobody out.

mod claim;
mod cookie;

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::ops::Range;

use crate::config::Ids;
use crate::queue::Queue;
use crate::time::Time;
use crate::wire::{BootReason, PeerId, Seq};
pub(crate) use claim::{Claim, Rival};
use cookie::{hash, outside};

/// All newcomers.
#[derive(Debug)]
pub(crate) struct Admission {
    key: [u64; 2],
    /// How many random numbers were drawn.
    draws: u64,
    /// The id that was offered or given last.
    last_id: PeerId,
    asked: Vec<Asked>,
    /// By id; empty until the first is made.
    places: Vec<Place>,
    answers: Queue<Answer>,
    /// One second later for each address that was answered and has not proved itself.
    doubt: Time,
    /// A forger has shown itself, and is remembered until then.
    forgers: Time,
    /// An attack was seen when an offer was made last.
    washed: bool,
}

/// A request that the caller has not decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) from: SocketAddrV4,
    pub(crate) nonce: u32,
    since: Time,
}

/// What is known of an id.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// When it was last offered, or in use.
    used: Option<Time>,
    offer: Option<Offer>,
}

/// An id that somebody was told and has not taken yet.
#[derive(Debug, Clone, Copy)]
struct Offer {
    to: SocketAddrV4,
    /// Of its request, if that is known.
    nonce: Option<u32>,
    since: Time,
    answered: Time,
    /// The first cookie, if it is not [`Admission::cookie`].
    first: Option<Seq>,
    /// The second, if one was asked for.
    second: Option<Seq>,
}

/// A datagram to an address that has proved nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) to: SocketAddrV4,
    pub(crate) word: Word,
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The ACK of the request, the id, and the cookie.
    Welcome(PeerId, Seq),
    /// The ACK of the request, and why it is refused.
    Refusal(BootReason),
    /// The cookie alone.
    Cookie(Seq),
    /// The ACK of a control message.
    Ack(Seq),
}

impl Admission {
    /// Nobody has asked. `secret` is a number that nobody can guess.
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            key: [secret, secret.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15],
            draws: 0,
            last_id: PeerId::HOST,
            asked: Vec::new(),
            places: Vec::new(),
            answers: Queue::default(),
            doubt: Time::ZERO,
            forgers: Time::ZERO,
            washed: false,
        }
    }

    /// Notes a request; a later one of the same address takes its place. `max` are kept, each for `timeout`. Returns
    /// whether the caller is to be asked, or `None` if there is no room.
    pub(crate) fn ask(
        &mut self,
        from: SocketAddrV4,
        nonce: u32,
        (max, timeout): (usize, u64),
        now: Time,
    ) -> Option<bool> {
        self.asked.retain(|asked| now < asked.since.plus(timeout));
        let fresh = Asked { from, nonce, since: now };
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.from == from) {
            let is_new = asked.nonce != nonce;
            if is_new {
                *asked = fresh;
            }
            return Some(is_new);
        }
        if self.asked.len() >= max {
            return None;
        }
        self.asked.push(fresh);
        Some(true)
    }

    /// Returns the request of an address.
    pub(crate) fn asked(&self, from: SocketAddrV4, timeout: u64, now: Time) -> Option<Asked> {
        self.asked.iter().find(|asked| asked.from == from && now < asked.since.plus(timeout)).copied()
    }

    /// Forgets the request of an address.
    pub(crate) fn forget_request(&mut self, from: SocketAddrV4) {
        self.asked.retain(|asked| asked.from != from);
    }

    /// Forgets all requests and answers.
    pub(crate) fn close(&mut self) {
        self.asked.clear();
        self.answers = Queue::default();
    }

    /// T-50: returns an id for an address: the one that it was offered already, or one of those that `is_free`.
    pub(crate) fn choose(
        &mut self,
        to: SocketAddrV4,
        ids: Ids,
        is_free: impl Fn(PeerId) -> bool,
        now: Time,
    ) -> Option<PeerId> {
        if let Some((id, _)) = self.offers(to, now).find(|(id, _)| is_free(*id)) {
            return Some(id);
        }
        self.places.resize(PLACES, Place::default());
        let draw = self.draw();
        let pick = |may: &dyn Fn(PeerId) -> bool| {
            let after = if ids == Ids::Sequential { self.last_id.0 } else { LAST_ID };
            let upward = (after + 1..=LAST_ID).chain(FIRST_ID..=after).map(PeerId);
            let mut free = upward.filter(|id| id.is_assignable() && is_free(*id) && may(*id));
            match ids {
                Ids::Sequential => free.next(),
                Ids::Random => {
                    let count = free.clone().count() as u64;
                    free.nth(usize::try_from(draw.checked_rem(count)?).ok()?)
                }
            }
        };
        let rests = |id| self.place(id).used.is_none_or(|used| now >= used.plus(REST));
        let is_loose = |id| !self.place(id).is_held(now);
        let id = pick(&rests).or_else(|| pick(&is_loose)).or_else(|| pick(&|_| true))?;
        self.last_id = id;
        Some(id)
    }

    /// Notes that an id is in use, or was until now.
    pub(crate) fn note_used(&mut self, id: PeerId, now: Time) {
        if let Some(place) = self.places.get_mut(usize::from(id.0)) {
            *place = Place { used: Some(now), offer: None };
        }
    }

    /// Offers an id. `window` is what the address would keep of a former connection, if it has one (T-77). Returns
    /// `false`, and nothing is said, if no cookie can be found, or the address was answered just now.
    pub(crate) fn offer(
        &mut self,
        id: PeerId,
        Asked { from, nonce, .. }: Asked,
        window: Option<Range<Seq>>,
        now: Time,
    ) -> bool {
        let known = self.place(id).offer.filter(|offer| offer.to == from && offer.is_open(now));
        if known.is_some_and(|offer| now < offer.answered.plus(PAUSE)) {
            return false;
        }
        let first = match (window, known.and_then(|offer| offer.first)) {
            (_, Some(number)) => Some(number),
            (None, None) => None,
            (Some(window), None) => match self.draw_outside(window) {
                Some(number) => Some(number),
                None => return false,
            },
        };
        if known.is_none() {
            self.doubt = self.doubt.max(now).plus(DOUBT).min(now.plus(MAX_DOUBT));
            self.washed = self.is_attacked(now);
        }
        let since = known.map_or(now, |offer| offer.since);
        let second = known.and_then(|offer| offer.second);
        let offer = Offer { to: from, nonce: Some(nonce), since, answered: now, first, second };
        self.put(id, offer, now);
        let number = offer.kept().unwrap_or_else(|| self.cookie(from, id, now));
        self.answer(from, Word::Welcome(id, number));
        true
    }

    fn put(&mut self, id: PeerId, offer: Offer, now: Time) {
        if let Some(place) = self.places.get_mut(usize::from(id.0)) {
            *place = Place { used: Some(now), offer: Some(offer) };
        }
    }

    /// Withdraws what an address was offered.
    pub(crate) fn withdraw(&mut self, to: SocketAddrV4) {
        for place in &mut self.places {
            place.offer.take_if(|offer| offer.to == to);
        }
    }

    /// Withdraws all that was offered.
    pub(crate) fn withdraw_all(&mut self) {
        self.places.iter_mut().for_each(|place| place.offer = None);
    }

    /// Returns whether a datagram under an id that nobody has is worth a [`claim`](Self::claim), which is asked often: from
    /// an address that was offered something, or from any while offers may have been washed away.
    pub(crate) fn may_claim(&self, from: SocketAddrV4, id: PeerId) -> bool {
        let offered = |place: &Place| place.offer.is_some_and(|offer| offer.to == from);
        id.is_assignable() && (self.washed || self.places.iter().any(offered))
    }

    /// Notes that somebody has joined under an id.
    pub(crate) fn note_joined(&mut self, id: PeerId, now: Time) {
        self.note_used(id, now);
        self.doubt = Time::from_micros(self.doubt.as_micros().saturating_sub(DOUBT));
    }

    /// Returns whether newcomers may be forged.
    fn is_attacked(&self, now: Time) -> bool {
        self.doubt > now.plus(DOUBTFUL) || now < self.forgers
    }

    /// Queues an answer, if not too many wait: who gets none asks again.
    pub(crate) fn answer(&mut self, to: SocketAddrV4, word: Word) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push(Answer { to, word });
        }
    }

    /// Takes the next answer to send.
    pub(crate) fn next_answer(&mut self) -> Option<Answer> {
        let answer = self.answers.front().copied()?;
        self.answers.skip(1);
        Some(answer)
    }

    /// Returns whether an answer waits to be sent.
    pub(crate) const fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    fn place(&self, id: PeerId) -> Place {
        self.places.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    /// Returns what an address was offered.
    fn offers(&self, to: SocketAddrV4, now: Time) -> impl Iterator<Item = (PeerId, Offer)> {
        let open = move |offer: &Offer| offer.to == to && offer.is_open(now);
        (0..)
            .map(PeerId)
            .zip(&self.places)
            .filter_map(move |(id, place)| Some((id, place.offer.filter(open)?)))
    }

    /// T-76: the number that proves that an address was told an id within this minute.
    fn cookie(&self, to: SocketAddrV4, id: PeerId, now: Time) -> Seq {
        self.cookie_of(to, id, now.as_micros() / PERIOD)
    }

    fn cookie_of(&self, to: SocketAddrV4, id: PeerId, period: u64) -> Seq {
        let place = u64::from(u32::from(*to.ip())) | u64::from(to.port()) << 32 | u64::from(id.0) << 48;
        outside(&(0..0), hash(self.key, [place, period])).unwrap_or_default()
    }

    /// Returns the numbers that an address may have been told with an id within this minute and the last.
    fn cookies(&self, to: SocketAddrV4, id: PeerId, now: Time) -> [Seq; 2] {
        let period = now.as_micros() / PERIOD;
        [period, period.saturating_sub(1)].map(|period| self.cookie_of(to, id, period))
    }

    fn draw_outside(&mut self, window: Range<Seq>) -> Option<Seq> {
        let draw = self.draw();
        outside(&(window.start.0..window.end.0), draw)
    }

    /// Returns a number that nobody can foresee.
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        hash(self.key, [u64::MAX, self.draws])
    }
}

impl Place {
    /// Returns whether its offer is not overwritten as long as another id is left.
    fn is_held(&self, now: Time) -> bool {
        self.offer.is_some_and(|offer| offer.is_held(now))
    }
}

impl Offer {
    fn is_open(&self, now: Time) -> bool {
        now < self.since.plus(OPEN)
    }

    /// Returns the cookie that is asked for, if it is one that is kept.
    fn kept(&self) -> Option<Seq> {
        self.second.or(self.first)
    }

    /// Returns whether it is known by what is kept of it alone. At the address of a peer (T-77) it is withdrawn in time;
    /// there are no more of those than peers.
    fn is_held(&self, now: Time) -> bool {
        self.first.is_some() && self.is_open(now) || self.is_asked_twice(now)
    }

    /// Returns whether a second cookie is awaited.
    fn is_asked_twice(&self, now: Time) -> bool {
        self.second.is_some() && now < self.since.plus(HELD)
    }
}

const FIRST_ID: u8 = 2;
const LAST_ID: u8 = 0x7E;
const PLACES: usize = 128;
/// An id rests so long after it was offered or in use, if there are others. In microseconds, as all times here.
const REST: u64 = 15_000_000;
/// How long an offer can be taken.
const OPEN: u64 = 60_000_000;
/// How long a cookie that is kept is safe from other offers of its id.
const HELD: u64 = 3_000_000;
/// An address is not answered again within this time.
const PAUSE: u64 = 200_000;
/// What one address that was answered adds to the doubt, from how much on newcomers are doubted, and the most.
const DOUBT: u64 = 1_000_000;
const DOUBTFUL: u64 = 32 * DOUBT;
const MAX_DOUBT: u64 = 64 * DOUBT;
/// How long a cookie stays the same.
const PERIOD: u64 = 60_000_000;
/// Answers that wait to be sent: a socket's worth of requests.
const MAX_ANSWERS: usize = 1024;
#[cfg(test)]
#[path = "admission_model.rs"]
mod model;
