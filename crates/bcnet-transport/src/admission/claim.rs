//! T-76: what is said under an id that nobody has.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;

use super::cookie::numbers;
use super::{Admission, Offer, PAUSE, Word};
use crate::config::{Config, Prove};
use crate::time::Time;
use crate::wire::{Datagram, PeerId, Seq};

/// What a datagram under an id that nobody has is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Its sender is who the id was offered to; and its nonce, if that is still known.
    Proved(Option<u32>),
    /// It was offered the id and has to prove itself yet.
    Waiting,
    /// It was offered the id and acknowledges so many numbers that it was not sent.
    Guessed(u8),
    /// Nobody was offered that.
    Unknown,
}

/// T-77: the peer that is at the address of a newcomer.
#[derive(Debug, Clone)]
pub(crate) struct Rival {
    /// The numbers that it may still acknowledge, and so may who was started anew at its address.
    pub(crate) window: Range<Seq>,
    /// T-53: nothing was heard of it for so long that it may be replaced by who speaks under its id.
    pub(crate) is_silent: bool,
}

impl Admission {
    /// Judges a datagram under an id that nobody has. `rival` is who is at the same address.
    pub(crate) fn claim(
        &mut self,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
        rival: Option<&Rival>,
        config: &Config<u64>,
        now: Time,
    ) -> Claim {
        let id = datagram.sender();
        let offer = self.place(id).offer.filter(|offer| offer.to == from && offer.is_open(now));
        let Some(offer) = offer else {
            if self.offers(from, now).next().is_some() {
                self.forgers = now.plus(REMEMBERED);
            }
            let may_be_washed = rival.is_none() && !config.selective && self.is_attacked(now);
            return if may_be_washed { self.claim_again(from, datagram, now) } else { Claim::Unknown };
        };
        let attacked = self.is_attacked(now);
        let cookies = self.cookies(from, id, now);
        let is_former = |number: &Seq| rival.is_some_and(|rival| is_within(&rival.window, *number));
        let numbers = numbers(datagram).filter(|number| !is_former(number)).take(MAX_NUMBERS);
        let is_cookie = |number: &Seq| offer.first.is_none() && cookies.contains(number);
        let is_known =
            |number: &Seq| is_cookie(number) || [offer.first, offer.second].contains(&Some(*number));
        // A newcomer was sent nothing else.
        let guesses = numbers.clone().filter(|number| !is_known(number)).count();
        if guesses > 0 {
            self.note_guess(id, rival.is_some(), now);
            return Claim::Guessed(u8::try_from(guesses).unwrap_or(u8::MAX));
        }
        let is_right = |number: Seq| offer.kept().map_or_else(|| is_cookie(&number), |kept| number == kept);
        if numbers.clone().any(is_right) {
            let is_once =
                offer.second.is_none() && (rival.is_some() || attacked && config.prove != Prove::Id);
            return if is_once { self.ask_twice(id, from, rival, now) } else { Claim::Proved(offer.nonce) };
        }
        let by_id = offer.second.is_none() && rival.is_none_or(|rival| rival.is_silent);
        let patient = config.prove == Prove::Auto && !attacked && now >= offer.since.plus(PATIENCE);
        if by_id && (config.prove == Prove::Id || patient) {
            return Claim::Proved(offer.nonce);
        }
        self.repeat(id, datagram.as_bytes().len(), now);
        Claim::Waiting
    }

    /// Judges a datagram of which nothing is known while an attack is seen: the offer was washed away, or never made.
    fn claim_again(&mut self, from: SocketAddrV4, datagram: &Datagram<'_>, now: Time) -> Claim {
        let id = datagram.sender();
        let cookies = self.cookies(from, id, now);
        let mut numbers = numbers(datagram).take(MAX_NUMBERS);
        match numbers.next() {
            None if datagram.as_bytes().len() >= COOKIE_DATAGRAM => {
                self.answer(from, Word::Cookie(self.cookie(from, id, now)));
                Claim::Waiting
            }
            Some(first)
                if cookies.contains(&first)
                    && numbers.all(|number| cookies.contains(&number))
                    && !self.place(id).is_held(now) =>
            {
                self.ask_twice(id, from, None, now)
            }
            None | Some(_) => Claim::Unknown,
        }
    }

    /// A second cookie, for one who has proved itself while others are forged, or where a peer is: it is kept, and guessed
    /// at once.
    fn ask_twice(&mut self, id: PeerId, to: SocketAddrV4, rival: Option<&Rival>, now: Time) -> Claim {
        let window = rival.map_or(Seq(0)..Seq(0), |rival| rival.window.clone());
        if rival.is_none() && !self.may_hold(id, *to.ip(), now) {
            return Claim::Waiting;
        }
        let Some(number) = self.draw_outside(window) else { return Claim::Unknown };
        let known = self.place(id).offer.filter(|offer| offer.to == to);
        let nonce = known.and_then(|offer| offer.nonce);
        let first = known.and_then(|offer| offer.first);
        self.put(id, Offer { to, nonce, since: now, answered: now, first, second: Some(number) }, now);
        self.answer(to, Word::Cookie(number));
        Claim::Waiting
    }

    /// Returns whether an id may be held for an address, beside those that are held for it and its network already: who
    /// has many holds few.
    fn may_hold(&self, id: PeerId, address: Ipv4Addr, now: Time) -> bool {
        let others = (0..).map(PeerId).zip(&self.places).filter(|(other, _)| *other != id);
        let held = others.filter_map(|(_, place)| place.offer.filter(|offer| offer.is_asked_twice(now)));
        let of = |bits: u32| {
            let distance = move |offer: &Offer| offer.to.ip().to_bits() ^ address.to_bits();
            held.clone().filter(move |offer| distance(offer) >> (32 - bits) == 0).count()
        };
        of(32) < MAX_HELD && of(HELD_NETWORK) < MAX_HELD_NETWORK
    }

    /// A number that was never sent. At the address of a peer the caller counts them.
    fn note_guess(&mut self, id: PeerId, contested: bool, now: Time) {
        if contested {
            return;
        }
        self.forgers = now.plus(REMEMBERED);
        if let Some(place) = self.places.get_mut(usize::from(id.0)) {
            place.offer.take_if(|offer| offer.second.is_some());
        }
    }

    /// Sends a cookie again to one who speaks without having acknowledged it, for no more bytes than came.
    fn repeat(&mut self, id: PeerId, len: usize, now: Time) {
        let Some(offer) = self.places.get_mut(usize::from(id.0)).and_then(|place| place.offer.as_mut())
        else {
            return;
        };
        if len < COOKIE_DATAGRAM || now < offer.answered.plus(PAUSE) {
            return;
        }
        offer.answered = now;
        let (to, number) = (offer.to, offer.kept());
        let number = number.unwrap_or_else(|| self.cookie(to, id, now));
        self.answer(to, Word::Cookie(number));
    }
}

/// Returns whether a number is one of a window, which may wrap.
fn is_within(window: &Range<Seq>, number: Seq) -> bool {
    number.0.wrapping_sub(window.start.0) < window.end.0.wrapping_sub(window.start.0)
}

/// A client that acknowledges no cookie may show by now that it goes on without.
const PATIENCE: u64 = 1_000_000;
/// How long a forger is remembered.
const REMEMBERED: u64 = 600_000_000;
/// How many numbers of one datagram are looked at: a newcomer has two at most.
const MAX_NUMBERS: usize = 4;
/// How many ids are held at once for one address and for one network: those who come together take turns.
const MAX_HELD: usize = 4;
const MAX_HELD_NETWORK: usize = 16;
const HELD_NETWORK: u32 = 16;
/// The size of a datagram with a cookie alone.
const COOKIE_DATAGRAM: usize = 7;
