//! What waits for one player: because its line is full (S-43), or because it must learn a name first (S-28).
//!
//! Everything stands in the lane of whoever it is of or about, and leaves each lane in the order in which it came. Between
//! lanes chat and what the server says itself goes first; of the rest each lane gets the same share of the line.

use std::collections::VecDeque;

use bcnet_transport::SendError;
use bcnet_transport::wire::Seq;

use crate::config::MAX_SLOTS;
use crate::game::{self, EventDetail, GameEvent, Message};

/// Whom a message is of or about: a player's slot, or the server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageSource(u8);

impl MessageSource {
    /// The server, about nobody in particular.
    pub(crate) const HOST: Self = Self(16);

    /// The player in a slot.
    pub(crate) fn from_slot(slot: Option<u8>) -> Self {
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
pub(crate) enum Priority {
    /// What the server says itself: it leaves as soon as all that is of the same source has left.
    Urgent,
    /// The same, and it creates or removes an object.
    UrgentObject,
    /// Chat: it goes first too.
    Chat,
    /// What players pass on.
    Bulk,
    /// The same, and it creates or removes an object.
    BulkObject,
}

impl Priority {
    /// Returns that of a message that the server makes itself.
    pub(crate) const fn of_host_message(message: &Message<'_>) -> Self {
        let is_object = matches!(
            message,
            Message::DestroyObject(_)
                | Message::PythonEvent(GameEvent { detail: EventDetail::Exploding(_), .. })
        );
        if is_object { Self::UrgentObject } else { Self::Urgent }
    }

    pub(crate) const fn is_urgent(self) -> bool {
        matches!(self, Self::Urgent | Self::UrgentObject | Self::Chat)
    }

    /// Returns whether what names an object must not overtake it.
    const fn changes_objects(self) -> bool {
        matches!(self, Self::UrgentObject | Self::BulkObject)
    }
}

/// A message for one player or for many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) source: MessageSource,
    pub(crate) priority: Priority,
    pub(crate) payload: &'a [u8],
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    /// In all.
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// Of one source, by [`cost`].
    pub(crate) per_source: u64,
    /// Of one source in front of what creates or removes an object, by [`cost`], half of it more of those: what names an
    /// object waits for all of it.
    pub(crate) before_object: u64,
}

/// What waits for one player.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    lanes: [SourceLane; SOURCE_COUNT],
    /// S-28: nothing leaves before the control channel has reached this number.
    pub(crate) hold_until: Option<Seq>,
    messages: usize,
    bytes: usize,
    /// The number of the next message, in the order of arrival.
    next_number: u64,
    /// How far the sharing of the line has come: what the lane that was served last had got before.
    virtual_clock: u64,
}

/// What waits of one source.
#[derive(Debug, Default)]
struct SourceLane {
    queue: VecDeque<QueuedPayload>,
    /// The numbers of those that create or remove an object.
    object_numbers: VecDeque<u64>,
    cost: u64,
    /// What it had of the line so far.
    served_cost: u64,
}

#[derive(Debug)]
struct QueuedPayload {
    payload: Box<[u8]>,
    number: u64,
    priority: Priority,
    /// The sources with an object that it may name and that was not created or removed yet when it came.
    blocked_by: u32,
}

impl SourceLane {
    /// Returns the cost of what would stay if it were [made way](Line::make_way).
    fn retained_cost(&self) -> u64 {
        let retained = self.queue.iter().filter(|waiting| waiting.priority != Priority::Bulk);
        retained.map(|waiting| u64::from(cost(&waiting.payload))).sum()
    }
}

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0 && self.hold_until.is_none()
    }

    /// Returns whether so much of a source waits that it gets nothing more past those who wait.
    pub(crate) fn has_backlog(&self, source: MessageSource) -> bool {
        self.lanes.get(source.index()).is_some_and(|lane| lane.cost > MAX_BACKLOG)
    }

    /// Returns the error for what finds no room.
    pub(crate) const fn full_error(&self) -> SendError {
        SendError::QueueFull { messages: self.messages, bytes: self.bytes }
    }

    /// Returns whether a message that goes first may leave at once.
    pub(crate) fn can_bypass(&self, outgoing: Outgoing<'_>) -> bool {
        let has_backlog = self.lanes.get(outgoing.source.index()).is_some_and(|lane| !lane.queue.is_empty());
        outgoing.priority.is_urgent()
            && self.hold_until.is_none()
            && !has_backlog
            && self.blocking_sources(outgoing) == 0
    }

    /// Takes a message. Returns how many of the same source were left out for it.
    pub(crate) fn push(&mut self, outgoing: Outgoing<'_>, limits: QueueLimits) -> Result<u64, SendError> {
        self.check_capacity(outgoing, limits)?;
        let dropped = if outgoing.priority.changes_objects() {
            self.drop_bulk_before_object(outgoing, limits)
        } else {
            0
        };
        let (number, blocked_by) = (self.next_number, self.blocking_sources(outgoing));
        let Some(lane) = self.lanes.get_mut(outgoing.source.index()) else { return Ok(dropped) };
        if lane.queue.is_empty() {
            // Who had nothing to say has saved up nothing.
            lane.served_cost = lane.served_cost.max(self.virtual_clock);
        }
        if outgoing.priority.changes_objects() {
            lane.object_numbers.push_back(number);
        }
        lane.cost += u64::from(cost(outgoing.payload));
        lane.queue.push_back(QueuedPayload {
            payload: outgoing.payload.into(),
            number,
            priority: outgoing.priority,
            blocked_by,
        });
        self.messages += 1;
        self.bytes += outgoing.payload.len();
        self.next_number += 1;
        Ok(dropped)
    }

    /// Checks that a message may wait. What the server says itself is limited by what may wait in all, and players cannot
    /// fill that: half of it is for what they pass on, a quarter more for chat. Of both each source has a limit of its own,
    /// and when that half is full a small share.
    fn check_capacity(&self, outgoing: Outgoing<'_>, limits: QueueLimits) -> Result<(), SendError> {
        let has_capacity = |quarters: usize| {
            let bytes = self.bytes.saturating_add(outgoing.payload.len());
            self.messages < limits.messages / 4 * quarters && bytes <= limits.bytes / 4 * quarters
        };
        let Some(lane) = self.lanes.get(outgoing.source.index()) else { return Ok(()) };
        let cost = u64::from(cost(outgoing.payload));
        let is_over = |limit: u64| !lane.queue.is_empty() && lane.cost + cost > limit;
        let share = (limits.bytes / 8 / SOURCE_COUNT) as u64;
        let is_refused = match outgoing.priority {
            Priority::Urgent | Priority::UrgentObject => !has_capacity(4),
            Priority::Chat => !has_capacity(3) || is_over(2 * limits.per_source),
            Priority::BulkObject
                if lane.retained_cost() > 0 && lane.retained_cost() + cost > limits.before_object / 2 =>
            {
                true
            }
            Priority::Bulk | Priority::BulkObject => {
                is_over(limits.per_source) || !has_capacity(2) && is_over(share)
            }
        };
        if is_refused { Err(self.full_error()) } else { Ok(()) }
    }

    /// Something is created or removed: others must not wait long for that, so much of what its source has said before is
    /// left out. Returns how many messages.
    fn drop_bulk_before_object(&mut self, outgoing: Outgoing<'_>, limits: QueueLimits) -> u64 {
        let with_it = |lane: &SourceLane| lane.cost + u64::from(cost(outgoing.payload));
        let is_long =
            self.lanes.get(outgoing.source.index()).is_some_and(|lane| with_it(lane) > limits.before_object);
        if is_long { self.drop_matching(outgoing.source, |rank| rank == Priority::Bulk) } else { 0 }
    }

    /// Leaves out what is passed on of a round that is over. Returns how many messages.
    pub(crate) fn drop_bulk(&mut self) -> u64 {
        let sources = (0..=MessageSource::HOST.0).map(MessageSource);
        sources.map(|source| self.drop_matching(source, |rank| !rank.is_urgent())).sum()
    }

    fn drop_matching(&mut self, source: MessageSource, is_dropped: impl Fn(Priority) -> bool) -> u64 {
        let Some(lane) = self.lanes.get_mut(source.index()) else { return 0 };
        let before = lane.queue.len();
        lane.queue.retain(|waiting| !is_dropped(waiting.priority));
        let objects = lane.queue.iter().filter(|waiting| waiting.priority.changes_objects());
        lane.object_numbers = objects.map(|waiting| waiting.number).collect();
        lane.cost = lane.queue.iter().map(|waiting| u64::from(cost(&waiting.payload))).sum();
        let dropped = before - lane.queue.len();
        self.messages -= dropped;
        self.bytes =
            self.lanes.iter().flat_map(|lane| &lane.queue).map(|waiting| waiting.payload.len()).sum();
        dropped as u64
    }

    /// Returns what leaves next.
    pub(crate) fn front(&self) -> Option<(MessageSource, Priority, &[u8])> {
        if self.hold_until.is_some() {
            return None;
        }
        let lanes = (0_u8..).map(MessageSource).zip(&self.lanes);
        let heads = lanes.filter_map(|(source, lane)| Some((source, lane, lane.queue.front()?)));
        let next = heads.filter(|(_, _, head)| !self.is_blocked(head)).min_by_key(|(_, lane, head)| {
            if head.priority.is_urgent() { (false, head.number) } else { (true, lane.served_cost) }
        });
        next.map(|(source, _, head)| (source, head.priority, &*head.payload))
    }

    /// What [`front`](Self::front) returned has left.
    pub(crate) fn pop(&mut self, source: MessageSource) {
        let Some(lane) = self.lanes.get_mut(source.index()) else { return };
        let Some(left) = lane.queue.pop_front() else { return };
        let cost = u64::from(cost(&left.payload));
        lane.cost -= cost;
        if left.priority.changes_objects() {
            lane.object_numbers.pop_front();
        }
        if !left.priority.is_urgent() {
            self.virtual_clock = self.virtual_clock.max(lane.served_cost);
            lane.served_cost += cost;
        }
        self.messages -= 1;
        self.bytes -= left.payload.len();
    }

    /// Returns the sources of which an object is to be created or removed that a message may name.
    fn blocking_sources(&self, outgoing: Outgoing<'_>) -> u32 {
        let waits =
            (0_u8..).map(MessageSource).zip(&self.lanes).filter(|(_, lane)| !lane.object_numbers.is_empty());
        let waits = waits.fold(0, |bits, (source, _)| bits | source.bit()) & !outgoing.source.bit();
        if waits == 0 { 0 } else { waits & named_slots(outgoing.payload) }
    }

    /// Returns whether a message may name an object that was to be created or removed before it came, and was not yet.
    fn is_blocked(&self, head: &QueuedPayload) -> bool {
        let lanes = (0_u8..).map(MessageSource).zip(&self.lanes);
        let mut named = lanes.filter(|(source, _)| head.blocked_by & source.bit() != 0);
        named.any(|(_, lane)| lane.object_numbers.front().is_some_and(|number| *number < head.number))
    }
}

/// Returns the slots of which a message names objects, as bits; all of them if that cannot be told.
fn named_slots(payload: &[u8]) -> u32 {
    game::named_slots(payload).unwrap_or(u32::MAX)
}

/// Returns what a message takes of its sender's limit and of a receiver's line.
pub(crate) fn cost(payload: &[u8]) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX).saturating_add(MESSAGE_OVERHEAD)
}

/// The players and the server.
const SOURCE_COUNT: usize = MAX_SLOTS + 1;
/// What a message counts besides its bytes.
const MESSAGE_OVERHEAD: u32 = 32;
/// How much may wait of a source of which others get what may be lost all the same.
const MAX_BACKLOG: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_source_follows_all_player_slots() {
        assert_eq!(
            (MessageSource::HOST.index(), MessageSource::from_slot(None)),
            (MAX_SLOTS, MessageSource::HOST)
        );
        assert_eq!(
            [Some(15), Some(16), Some(255)].map(MessageSource::from_slot),
            [MessageSource(15), MessageSource::HOST, MessageSource::HOST]
        );
    }

    const LIMITS: QueueLimits =
        QueueLimits { messages: 1000, bytes: 100_000, per_source: 10_000, before_object: 3_000 };

    fn outgoing(slot: u8, priority: Priority, payload: &[u8]) -> Outgoing<'_> {
        Outgoing { source: MessageSource::from_slot(Some(slot)), priority, payload }
    }

    fn pop_front(queue: &mut SendQueue) -> Option<(u8, Vec<u8>)> {
        let (source, payload) = queue.front().map(|(source, _, payload)| (source, payload.to_vec()))?;
        queue.pop(source);
        Some((source.0, payload))
    }

    /// An event of one player that names an object of another.
    fn event(source_slot: u8, named_slot: u8) -> Vec<u8> {
        let own = game::ObjectId::new(source_slot, 0).0.to_le_bytes();
        let other = game::ObjectId::new(named_slot, 0).0.to_le_bytes();
        [&[0x0C, 0x0C, 1, 0, 0, 1, 0, 0x80, 0, 0, 0, 0, 0][..], &own, &other].concat()
    }

    /// S-43: who says little does not wait for who says much, and those who say much have the same share.
    #[test]
    fn queue_shares_capacity_equally_between_sources() {
        let mut queue = SendQueue::default();
        for n in 0..200 {
            queue.push(outgoing(0, Priority::Bulk, &[1, n]), LIMITS).expect("room");
            if n % 4 == 0 {
                queue.push(outgoing(1, Priority::Bulk, &[2; 100]), LIMITS).expect("room");
            }
        }
        let mut cost = [0_u32; 2];
        for _ in 0..100 {
            let (source, payload) = pop_front(&mut queue).expect("much waits");
            cost[usize::from(source)] += super::cost(&payload);
        }
        assert!(cost[0].abs_diff(cost[1]) <= 2 * 132, "{cost:?}");
        queue.push(outgoing(2, Priority::Bulk, &[3]), LIMITS).expect("room");
        assert!(
            (0..3).any(|_| pop_front(&mut queue) == Some((2, vec![3]))),
            "a newcomer is next, or nearly so"
        );
        queue.push(outgoing(3, Priority::Urgent, b"hi"), LIMITS).expect("room");
        assert_eq!(pop_front(&mut queue), Some((3, b"hi".to_vec())));
    }

    /// S-43: what goes first does so only before others.
    #[test]
    fn urgent_message_stays_behind_its_own_source() {
        let mut queue = SendQueue::default();
        queue.push(outgoing(0, Priority::Bulk, b"shot"), LIMITS).expect("room");
        let chat = outgoing(0, Priority::Urgent, b"hi");
        assert!(!queue.can_bypass(chat) && queue.can_bypass(outgoing(1, Priority::Urgent, b"hi")));
        queue.push(chat, LIMITS).expect("room");
        assert_eq!(
            [pop_front(&mut queue), pop_front(&mut queue)],
            [Some((0, b"shot".to_vec())), Some((0, b"hi".to_vec()))]
        );
        assert!(queue.is_empty());
    }

    /// S-43: what names an object waits until that is created or removed, and what it comes before does not.
    #[test]
    fn message_naming_an_object_waits_for_its_creation() {
        let mut queue = SendQueue::default();
        let (early, late, other) = (event(1, 0), event(2, 0), event(3, 4));
        queue.push(outgoing(0, Priority::Bulk, &[9; 400]), LIMITS).expect("room");
        queue.push(outgoing(1, Priority::Bulk, &early), LIMITS).expect("room");
        queue.push(outgoing(0, Priority::BulkObject, b"new"), LIMITS).expect("room");
        queue.push(outgoing(2, Priority::Bulk, &late), LIMITS).expect("room");
        queue.push(outgoing(3, Priority::Bulk, &other), LIMITS).expect("room");
        // A mod's: it may name anything.
        queue.push(outgoing(5, Priority::Bulk, &[0xCD]), LIMITS).expect("room");
        assert!(!queue.can_bypass(outgoing(6, Priority::Urgent, &event(6, 0))));
        let order: Vec<u8> = std::iter::from_fn(|| pop_front(&mut queue)).map(|(source, _)| source).collect();
        let place = |source| order.iter().rposition(|other| *other == source).expect("it left");
        assert!(place(0) < place(2) && place(0) < place(5), "{order:?}");
        assert!(place(1) < place(0) && place(3) < place(0), "{order:?}");
    }

    /// S-43: whoever says too much is left out, nobody else, and what it creates does not wait behind that.
    #[test]
    fn flooding_source_is_limited_alone() {
        let mut queue = SendQueue::default();
        let mut taken = 0;
        while queue.push(outgoing(0, Priority::Bulk, &[0; 18]), LIMITS).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 10_000 / 50);
        assert_eq!(queue.push(outgoing(1, Priority::Bulk, b"x"), LIMITS), Ok(0));
        assert_eq!(
            queue.push(
                outgoing(0, Priority::BulkObject, &[0; 968]),
                QueueLimits { per_source: 20_000, ..LIMITS }
            ),
            Ok(200)
        );
        // By what it takes, not by how many there are.
        assert!(queue.push(outgoing(0, Priority::BulkObject, &[0; 968]), LIMITS).is_err());
        assert_eq!(queue.push(outgoing(0, Priority::BulkObject, &[0; 468]), LIMITS), Ok(0));
        assert!(queue.push(outgoing(0, Priority::BulkObject, b"new"), LIMITS).is_err());
        assert_eq!(queue.push(outgoing(0, Priority::UrgentObject, b"gone"), LIMITS), Ok(0));
        assert_eq!(
            queue.push(outgoing(3, Priority::BulkObject, &[0; 4_000]), LIMITS),
            Ok(0),
            "one may always wait"
        );
    }

    /// S-54: whatever players say, there is room for chat behind it, and for what the server says behind both.
    #[test]
    fn players_cannot_fill_the_capacity_reserved_for_the_host() {
        let mut queue = SendQueue::default();
        let mut fill = |rank, range: std::ops::Range<u8>| {
            for slot in range {
                while queue.push(outgoing(slot, rank, &[0; 200]), LIMITS).is_ok() {}
            }
            queue.bytes
        };
        let bulk = fill(Priority::Bulk, 0..16);
        assert!((50_000..65_000).contains(&bulk), "{bulk}");
        let words = fill(Priority::Chat, 0..16);
        assert!((74_000..=75_000).contains(&words), "{words}");
        let all = fill(Priority::Urgent, 16..17);
        assert!((99_000..=100_000).contains(&all), "{all}");
    }

    /// S-43: what may be lost is left out of a source of which much waits, and of nobody else.
    #[test]
    fn source_with_many_queued_messages_has_backlog() {
        let mut queue = SendQueue::default();
        queue.push(outgoing(0, Priority::Bulk, &[0; 990]), LIMITS).expect("room");
        assert!(!queue.has_backlog(MessageSource(0)));
        queue.push(outgoing(0, Priority::Bulk, b"x"), LIMITS).expect("room");
        assert!(queue.has_backlog(MessageSource(0)) && !queue.has_backlog(MessageSource(1)));
    }

    /// S-43: whatever is said, all of it leaves, each source's in its order, and the sums are right.
    #[test]
    fn queue_keeps_order_within_each_source() {
        let mut state = 5_u32;
        let mut random = |limit: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % limit
        };
        let mut queue = SendQueue::default();
        let (mut pushed, mut left) = ([0_u16; SOURCE_COUNT], [0_u16; SOURCE_COUNT]);
        for step in 0..20_000 {
            if random(100) < if step < 15_000 { 52 } else { 0 } {
                let slot = u8::try_from(random(17)).expect("small");
                let rank = [
                    Priority::Urgent,
                    Priority::UrgentObject,
                    Priority::Bulk,
                    Priority::Bulk,
                    Priority::BulkObject,
                ][usize::try_from(random(5)).expect("small")];
                let number = pushed[usize::from(slot)].to_le_bytes();
                let about = u8::try_from(random(16)).expect("small");
                let payload = [&event(slot, about)[..], &number].concat();
                let outgoing = Outgoing { source: MessageSource(slot), priority: rank, payload: &payload };
                let limits = QueueLimits {
                    messages: 100_000,
                    bytes: 10_000_000,
                    per_source: 10_000_000,
                    before_object: 10_000_000,
                };
                if queue.lanes[usize::from(slot)].queue.len() < 64 {
                    assert_eq!(queue.push(outgoing, limits), Ok(0));
                    pushed[usize::from(slot)] += 1;
                }
            } else if let Some((source, payload)) = pop_front(&mut queue) {
                let number = &mut left[usize::from(source)];
                assert!(payload.ends_with(&number.to_le_bytes()), "{source}");
                *number += 1;
            } else {
                assert!(queue.is_empty(), "something always may leave");
                assert_eq!((queue.bytes, queue.lanes.iter().map(|lane| lane.cost).sum::<u64>()), (0, 0));
            }
        }
        assert_eq!((pushed, queue.is_empty()), (left, true));
    }
}
