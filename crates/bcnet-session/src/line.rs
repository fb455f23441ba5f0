//! What waits for one player: because its line is full (S-43), or because it must learn a name first (S-28).
//!
//! Everything stands in the lane of whoever it is of or about, and leaves each lane in the order in which it came. Between
//! lanes chat and what the server says itself goes first; of the rest each lane gets the same share of the line.

use std::collections::VecDeque;

use bcnet_transport::SendError;
use bcnet_transport::wire::Seq;

use crate::config::MAX_SLOTS;
use crate::game::{self, Detail, GameEvent, Message};

/// Whom a message is of or about: a player's slot, or the server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source(u8);

impl Source {
    /// The server, about nobody in particular.
    pub(crate) const HOST: Self = Self(16);

    /// The player in a slot.
    pub(crate) fn of(slot: Option<u8>) -> Self {
        slot.map(Self).filter(|source| source.0 < Self::HOST.0).unwrap_or(Self::HOST)
    }

    fn index(self) -> usize {
        self.0.into()
    }

    const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// How a message stands to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// What the server says itself: it leaves as soon as all that is of the same source has left.
    First,
    /// The same, and it creates or removes an object.
    FirstObject,
    /// Chat: it goes first too.
    Word,
    /// What players pass on.
    Bulk,
    /// The same, and it creates or removes an object.
    BulkObject,
}

impl Rank {
    /// Returns that of a message that the server makes itself.
    pub(crate) const fn of(message: &Message<'_>) -> Self {
        let is_object = matches!(
            message,
            Message::DestroyObject(_) | Message::PythonEvent(GameEvent { detail: Detail::Exploding(_), .. })
        );
        if is_object { Self::FirstObject } else { Self::First }
    }

    pub(crate) const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::FirstObject | Self::Word)
    }

    /// Returns whether what names an object must not overtake it.
    const fn is_object(self) -> bool {
        matches!(self, Self::FirstObject | Self::BulkObject)
    }
}

/// A message for one player or for many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) source: Source,
    pub(crate) rank: Rank,
    pub(crate) payload: &'a [u8],
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// In all.
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// Of one source, by [`cost`].
    pub(crate) of_one: u64,
    /// Of one source in front of what creates or removes an object, by [`cost`], half of it more of those: what names an
    /// object waits for all of it.
    pub(crate) before_object: u64,
}

/// What waits for one player.
#[derive(Debug, Default)]
pub(crate) struct Line {
    lanes: [Lane; SOURCES],
    /// S-28: nothing leaves before the control channel has reached this number.
    pub(crate) until: Option<Seq>,
    messages: usize,
    bytes: usize,
    /// The number of the next message, in the order of arrival.
    next: u64,
    /// How far the sharing of the line has come: what the lane that was served last had got before.
    served: u64,
}

/// What waits of one source.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    /// The numbers of those that create or remove an object.
    objects: VecDeque<u64>,
    cost: u64,
    /// What it had of the line so far.
    served: u64,
}

#[derive(Debug)]
struct Waiting {
    payload: Box<[u8]>,
    number: u64,
    rank: Rank,
    /// The sources with an object that it may name and that was not created or removed yet when it came.
    names: u32,
}

impl Lane {
    /// Returns the cost of what would stay if it were [made way](Line::make_way).
    fn kept(&self) -> u64 {
        let kept = self.waiting.iter().filter(|waiting| waiting.rank != Rank::Bulk);
        kept.map(|waiting| u64::from(cost(&waiting.payload))).sum()
    }
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0 && self.until.is_none()
    }

    /// Returns whether so much of a source waits that it gets nothing more past those who wait.
    pub(crate) fn is_behind(&self, source: Source) -> bool {
        self.lanes.get(source.index()).is_some_and(|lane| lane.cost > MAX_BEHIND)
    }

    /// Returns the error for what finds no room.
    pub(crate) const fn full(&self) -> SendError {
        SendError::QueueFull { messages: self.messages, bytes: self.bytes }
    }

    /// Returns whether a message that goes first may leave at once.
    pub(crate) fn lets_pass(&self, said: Said<'_>) -> bool {
        let is_behind = self.lanes.get(said.source.index()).is_some_and(|lane| !lane.waiting.is_empty());
        said.rank.is_first() && self.until.is_none() && !is_behind && self.named(said) == 0
    }

    /// Takes a message. Returns how many of the same source were left out for it.
    pub(crate) fn push(&mut self, said: Said<'_>, limits: Limits) -> Result<u64, SendError> {
        self.check_room(said, limits)?;
        let left_out = if said.rank.is_object() { self.make_way(said, limits) } else { 0 };
        let (number, names) = (self.next, self.named(said));
        let Some(lane) = self.lanes.get_mut(said.source.index()) else { return Ok(left_out) };
        if lane.waiting.is_empty() {
            // Who had nothing to say has saved up nothing.
            lane.served = lane.served.max(self.served);
        }
        if said.rank.is_object() {
            lane.objects.push_back(number);
        }
        lane.cost += u64::from(cost(said.payload));
        lane.waiting.push_back(Waiting { payload: said.payload.into(), number, rank: said.rank, names });
        self.messages += 1;
        self.bytes += said.payload.len();
        self.next += 1;
        Ok(left_out)
    }

    /// Checks that a message may wait. What the server says itself is limited by what may wait in all, and players cannot
    /// fill that: half of it is for what they pass on, a quarter more for chat. Of both each source has a limit of its own,
    /// and when that half is full a small share.
    fn check_room(&self, said: Said<'_>, limits: Limits) -> Result<(), SendError> {
        let has = |quarters: usize| {
            let bytes = self.bytes.saturating_add(said.payload.len());
            self.messages < limits.messages / 4 * quarters && bytes <= limits.bytes / 4 * quarters
        };
        let Some(lane) = self.lanes.get(said.source.index()) else { return Ok(()) };
        let cost = u64::from(cost(said.payload));
        let is_over = |limit: u64| !lane.waiting.is_empty() && lane.cost + cost > limit;
        let share = (limits.bytes / 8 / SOURCES) as u64;
        let is_refused = match said.rank {
            Rank::First | Rank::FirstObject => !has(4),
            Rank::Word => !has(3) || is_over(2 * limits.of_one),
            Rank::BulkObject if lane.kept() > 0 && lane.kept() + cost > limits.before_object / 2 => true,
            Rank::Bulk | Rank::BulkObject => is_over(limits.of_one) || !has(2) && is_over(share),
        };
        if is_refused { Err(self.full()) } else { Ok(()) }
    }

    /// Something is created or removed: others must not wait long for that, so much of what its source has said before is
    /// left out. Returns how many messages.
    fn make_way(&mut self, said: Said<'_>, limits: Limits) -> u64 {
        let with_it = |lane: &Lane| lane.cost + u64::from(cost(said.payload));
        let is_long =
            self.lanes.get(said.source.index()).is_some_and(|lane| with_it(lane) > limits.before_object);
        if is_long { self.forget(said.source, |rank| rank == Rank::Bulk) } else { 0 }
    }

    /// Leaves out what is passed on of a round that is over. Returns how many messages.
    pub(crate) fn forget_bulk(&mut self) -> u64 {
        let sources = (0..=Source::HOST.0).map(Source);
        sources.map(|source| self.forget(source, |rank| !rank.is_first())).sum()
    }

    fn forget(&mut self, source: Source, is_forgotten: impl Fn(Rank) -> bool) -> u64 {
        let Some(lane) = self.lanes.get_mut(source.index()) else { return 0 };
        let before = lane.waiting.len();
        lane.waiting.retain(|waiting| !is_forgotten(waiting.rank));
        let objects = lane.waiting.iter().filter(|waiting| waiting.rank.is_object());
        lane.objects = objects.map(|waiting| waiting.number).collect();
        lane.cost = lane.waiting.iter().map(|waiting| u64::from(cost(&waiting.payload))).sum();
        let left_out = before - lane.waiting.len();
        self.messages -= left_out;
        self.bytes =
            self.lanes.iter().flat_map(|lane| &lane.waiting).map(|waiting| waiting.payload.len()).sum();
        left_out as u64
    }

    /// Returns what leaves next.
    pub(crate) fn front(&self) -> Option<(Source, Rank, &[u8])> {
        if self.until.is_some() {
            return None;
        }
        let lanes = (0_u8..).map(Source).zip(&self.lanes);
        let heads = lanes.filter_map(|(source, lane)| Some((source, lane, lane.waiting.front()?)));
        let next = heads.filter(|(_, _, head)| !self.must_wait(head)).min_by_key(|(_, lane, head)| {
            if head.rank.is_first() { (false, head.number) } else { (true, lane.served) }
        });
        next.map(|(source, _, head)| (source, head.rank, &*head.payload))
    }

    /// What [`front`](Self::front) returned has left.
    pub(crate) fn pop(&mut self, source: Source) {
        let Some(lane) = self.lanes.get_mut(source.index()) else { return };
        let Some(left) = lane.waiting.pop_front() else { return };
        let cost = u64::from(cost(&left.payload));
        lane.cost -= cost;
        if left.rank.is_object() {
            lane.objects.pop_front();
        }
        if !left.rank.is_first() {
            self.served = self.served.max(lane.served);
            lane.served += cost;
        }
        self.messages -= 1;
        self.bytes -= left.payload.len();
    }

    /// Returns the sources of which an object is to be created or removed that a message may name.
    fn named(&self, said: Said<'_>) -> u32 {
        let waits = (0_u8..).map(Source).zip(&self.lanes).filter(|(_, lane)| !lane.objects.is_empty());
        let waits = waits.fold(0, |bits, (source, _)| bits | source.bit()) & !said.source.bit();
        if waits == 0 { 0 } else { waits & named(said.payload) }
    }

    /// Returns whether a message may name an object that was to be created or removed before it came, and was not yet.
    fn must_wait(&self, head: &Waiting) -> bool {
        let lanes = (0_u8..).map(Source).zip(&self.lanes);
        let mut named = lanes.filter(|(source, _)| head.names & source.bit() != 0);
        named.any(|(_, lane)| lane.objects.front().is_some_and(|number| *number < head.number))
    }
}

/// Returns the slots of which a message names objects, as bits; all of them if that cannot be told.
fn named(payload: &[u8]) -> u32 {
    game::named_slots(payload).unwrap_or(u32::MAX)
}

/// Returns what a message takes of its sender's limit and of a receiver's line.
pub(crate) fn cost(payload: &[u8]) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX).saturating_add(MESSAGE_COST)
}

/// The players and the server.
const SOURCES: usize = MAX_SLOTS + 1;
/// What a message counts besides its bytes.
const MESSAGE_COST: u32 = 32;
/// How much may wait of a source of which others get what may be lost all the same.
const MAX_BEHIND: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_stands_behind_all_players() {
        assert_eq!((Source::HOST.index(), Source::of(None)), (MAX_SLOTS, Source::HOST));
        assert_eq!([Some(15), Some(16), Some(255)].map(Source::of), [Source(15), Source::HOST, Source::HOST]);
    }

    const LIMITS: Limits = Limits { messages: 1000, bytes: 100_000, of_one: 10_000, before_object: 3_000 };

    fn said(slot: u8, rank: Rank, payload: &[u8]) -> Said<'_> {
        Said { source: Source::of(Some(slot)), rank, payload }
    }

    fn take(line: &mut Line) -> Option<(u8, Vec<u8>)> {
        let (source, payload) = line.front().map(|(source, _, payload)| (source, payload.to_vec()))?;
        line.pop(source);
        Some((source.0, payload))
    }

    /// An event of one player that names an object of another.
    fn event(of: u8, about: u8) -> Vec<u8> {
        let own = game::ObjectId::new(of, 0).0.to_le_bytes();
        let other = game::ObjectId::new(about, 0).0.to_le_bytes();
        [&[0x0C, 0x0C, 1, 0, 0, 1, 0, 0x80, 0, 0, 0, 0, 0][..], &own, &other].concat()
    }

    /// S-43: who says little does not wait for who says much, and those who say much have the same share.
    #[test]
    fn a_line_is_shared_equally_by_those_who_want_it() {
        let mut line = Line::default();
        for n in 0..200 {
            line.push(said(0, Rank::Bulk, &[1, n]), LIMITS).expect("room");
            if n % 4 == 0 {
                line.push(said(1, Rank::Bulk, &[2; 100]), LIMITS).expect("room");
            }
        }
        let mut cost = [0_u32; 2];
        for _ in 0..100 {
            let (source, payload) = take(&mut line).expect("much waits");
            cost[usize::from(source)] += super::cost(&payload);
        }
        assert!(cost[0].abs_diff(cost[1]) <= 2 * 132, "{cost:?}");
        line.push(said(2, Rank::Bulk, &[3]), LIMITS).expect("room");
        assert!((0..3).any(|_| take(&mut line) == Some((2, vec![3]))), "a newcomer is next, or nearly so");
        line.push(said(3, Rank::First, b"hi"), LIMITS).expect("room");
        assert_eq!(take(&mut line), Some((3, b"hi".to_vec())));
    }

    /// S-43: what goes first does so only before others.
    #[test]
    fn what_goes_first_does_not_overtake_its_own_source() {
        let mut line = Line::default();
        line.push(said(0, Rank::Bulk, b"shot"), LIMITS).expect("room");
        let chat = said(0, Rank::First, b"hi");
        assert!(!line.lets_pass(chat) && line.lets_pass(said(1, Rank::First, b"hi")));
        line.push(chat, LIMITS).expect("room");
        assert_eq!(
            [take(&mut line), take(&mut line)],
            [Some((0, b"shot".to_vec())), Some((0, b"hi".to_vec()))]
        );
        assert!(line.is_empty());
    }

    /// S-43: what names an object waits until that is created or removed, and what it comes before does not.
    #[test]
    fn what_names_an_object_does_not_overtake_it() {
        let mut line = Line::default();
        let (early, late, other) = (event(1, 0), event(2, 0), event(3, 4));
        line.push(said(0, Rank::Bulk, &[9; 400]), LIMITS).expect("room");
        line.push(said(1, Rank::Bulk, &early), LIMITS).expect("room");
        line.push(said(0, Rank::BulkObject, b"new"), LIMITS).expect("room");
        line.push(said(2, Rank::Bulk, &late), LIMITS).expect("room");
        line.push(said(3, Rank::Bulk, &other), LIMITS).expect("room");
        // A mod's: it may name anything.
        line.push(said(5, Rank::Bulk, &[0xCD]), LIMITS).expect("room");
        assert!(!line.lets_pass(said(6, Rank::First, &event(6, 0))));
        let order: Vec<u8> = std::iter::from_fn(|| take(&mut line)).map(|(source, _)| source).collect();
        let place = |source| order.iter().rposition(|other| *other == source).expect("it left");
        assert!(place(0) < place(2) && place(0) < place(5), "{order:?}");
        assert!(place(1) < place(0) && place(3) < place(0), "{order:?}");
    }

    /// S-43: whoever says too much is left out, nobody else, and what it creates does not wait behind that.
    #[test]
    fn a_source_that_says_too_much_is_limited_alone() {
        let mut line = Line::default();
        let mut taken = 0;
        while line.push(said(0, Rank::Bulk, &[0; 18]), LIMITS).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 10_000 / 50);
        assert_eq!(line.push(said(1, Rank::Bulk, b"x"), LIMITS), Ok(0));
        assert_eq!(
            line.push(said(0, Rank::BulkObject, &[0; 968]), Limits { of_one: 20_000, ..LIMITS }),
            Ok(200)
        );
        // By what it takes, not by how many there are.
        assert!(line.push(said(0, Rank::BulkObject, &[0; 968]), LIMITS).is_err());
        assert_eq!(line.push(said(0, Rank::BulkObject, &[0; 468]), LIMITS), Ok(0));
        assert!(line.push(said(0, Rank::BulkObject, b"new"), LIMITS).is_err());
        assert_eq!(line.push(said(0, Rank::FirstObject, b"gone"), LIMITS), Ok(0));
        assert_eq!(line.push(said(3, Rank::BulkObject, &[0; 4_000]), LIMITS), Ok(0), "one may always wait");
    }

    /// S-54: whatever players say, there is room for chat behind it, and for what the server says behind both.
    #[test]
    fn players_cannot_fill_what_is_kept_for_the_server() {
        let mut line = Line::default();
        let mut fill = |rank, range: std::ops::Range<u8>| {
            for slot in range {
                while line.push(said(slot, rank, &[0; 200]), LIMITS).is_ok() {}
            }
            line.bytes
        };
        let bulk = fill(Rank::Bulk, 0..16);
        assert!((50_000..65_000).contains(&bulk), "{bulk}");
        let words = fill(Rank::Word, 0..16);
        assert!((74_000..=75_000).contains(&words), "{words}");
        let all = fill(Rank::First, 16..17);
        assert!((99_000..=100_000).contains(&all), "{all}");
    }

    /// S-43: what may be lost is left out of a source of which much waits, and of nobody else.
    #[test]
    fn who_has_much_in_line_gets_nothing_past_it() {
        let mut line = Line::default();
        line.push(said(0, Rank::Bulk, &[0; 990]), LIMITS).expect("room");
        assert!(!line.is_behind(Source(0)));
        line.push(said(0, Rank::Bulk, b"x"), LIMITS).expect("room");
        assert!(line.is_behind(Source(0)) && !line.is_behind(Source(1)));
    }

    /// S-43: whatever is said, all of it leaves, each source's in its order, and the sums are right.
    #[test]
    fn all_that_waits_leaves_in_the_order_of_its_source() {
        let mut state = 5_u32;
        let mut random = |limit: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % limit
        };
        let mut line = Line::default();
        let (mut pushed, mut left) = ([0_u16; SOURCES], [0_u16; SOURCES]);
        for step in 0..20_000 {
            if random(100) < if step < 15_000 { 52 } else { 0 } {
                let slot = u8::try_from(random(17)).expect("small");
                let rank = [Rank::First, Rank::FirstObject, Rank::Bulk, Rank::Bulk, Rank::BulkObject]
                    [usize::try_from(random(5)).expect("small")];
                let number = pushed[usize::from(slot)].to_le_bytes();
                let about = u8::try_from(random(16)).expect("small");
                let payload = [&event(slot, about)[..], &number].concat();
                let said = Said { source: Source(slot), rank, payload: &payload };
                let room = Limits {
                    messages: 100_000,
                    bytes: 10_000_000,
                    of_one: 10_000_000,
                    before_object: 10_000_000,
                };
                if line.lanes[usize::from(slot)].waiting.len() < 64 {
                    assert_eq!(line.push(said, room), Ok(0));
                    pushed[usize::from(slot)] += 1;
                }
            } else if let Some((source, payload)) = take(&mut line) {
                let number = &mut left[usize::from(source)];
                assert!(payload.ends_with(&number.to_le_bytes()), "{source}");
                *number += 1;
            } else {
                assert!(line.is_empty(), "something always may leave");
                assert_eq!((line.bytes, line.lanes.iter().map(|lane| lane.cost).sum::<u64>()), (0, 0));
            }
        }
        assert_eq!((pushed, line.is_empty()), (left, true));
    }
}
