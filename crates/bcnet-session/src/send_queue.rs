//! The send queue of one player: messages that wait for its link ([S-43]) or for a name ([S-28]).
//!
//! Each message is in the lane of the player that sent it or that it is about. Each lane is a FIFO. Chat and the
//! server's own messages go first; the lanes share the rest of the link equally. The queue sends nothing itself.
//!
//! [S-28]: bcnet_transport::wire::protocol#s-28
//! [S-43]: bcnet_transport::wire::protocol#s-43

use std::collections::VecDeque;

use bcnet_transport::SendError;
use bcnet_transport::wire::Seq;

use crate::config::MAX_SLOTS;
use crate::game::{self, EventDetail, GameEvent, Message};

/// The source of a message: the slot of the player that sent it or that it is about, or the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageSource(u8);

impl MessageSource {
    /// The server, for messages that are about no player.
    pub(crate) const HOST: Self = Self(16);
    /// The game policy, for messages that are about no player (S-92).
    pub(crate) const POLICY: Self = Self(17);

    /// Returns the source for the player in a slot.
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

/// The priority of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A message of the server itself. It leaves as soon as all earlier messages of the same source have left.
    Urgent,
    /// An urgent message that creates or removes an object.
    UrgentObject,
    /// Chat, which is urgent too.
    Chat,
    /// A relayed message of a player.
    Bulk,
    /// A relayed message that creates or removes an object.
    BulkObject,
}

impl Priority {
    /// Returns the priority of a message of the server itself.
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

    /// Returns whether messages that name the object must not overtake this one.
    const fn changes_objects(self) -> bool {
        matches!(self, Self::UrgentObject | Self::BulkObject)
    }
}

/// A message for one or more players.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) source: MessageSource,
    pub(crate) priority: Priority,
    pub(crate) payload: &'a [u8],
    /// True if the sender is over its share of the uplink, so that the message may have to wait (S-46).
    pub(crate) is_over_share: bool,
}

/// The limits of a send queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    /// The limit of all messages together.
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// The limit of the [`cost`] of one source.
    pub(crate) per_source: u64,
    /// The limit of the [`cost`] of one lane when a message that creates or removes an object is added.
    ///
    /// Above it, the queue drops the bulk messages of the lane. The other messages of the lane may take half of it:
    /// above that, a relayed creation or removal is refused. Messages of other sources that name the object wait for
    /// the lane, so the lane must stay short.
    pub(crate) before_object: u64,
}

/// The messages that wait for one player.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    lanes: [SourceLane; SOURCE_COUNT],
    /// No message leaves before the ACKs of the control channel have reached this number (S-28).
    pub(crate) hold_until: Option<Seq>,
    messages: usize,
    bytes: usize,
    /// The number of the next message, in the order of arrival.
    next_number: u64,
    /// The virtual time of fair queueing: the highest `served_cost` of a lane before a bulk message left.
    virtual_clock: u64,
}

/// The messages of one source.
#[derive(Debug, Default)]
struct SourceLane {
    queue: VecDeque<QueuedPayload>,
    /// The numbers of the messages that create or remove an object.
    object_numbers: VecDeque<u64>,
    cost: u64,
    /// The cost of the messages that have left this lane.
    served_cost: u64,
}

#[derive(Debug)]
struct QueuedPayload {
    payload: Box<[u8]>,
    number: u64,
    priority: Priority,
    is_over_share: bool,
    /// The sources whose waiting creations or removals this message must not overtake, as bits.
    blocked_by: u32,
}

impl SourceLane {
    /// Returns the cost of the messages that `SendQueue::drop_bulk_before_object` would keep.
    fn retained_cost(&self) -> u64 {
        let retained = self.queue.iter().filter(|waiting| waiting.priority != Priority::Bulk);
        retained.map(|waiting| u64::from(cost(&waiting.payload))).sum()
    }
}

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0 && self.hold_until.is_none()
    }

    /// Returns whether so many messages of a source wait that unreliable messages of its mods are dropped.
    pub(crate) fn has_backlog(&self, source: MessageSource) -> bool {
        self.lanes.get(source.index()).is_some_and(|lane| lane.cost > MAX_BACKLOG)
    }

    /// Returns the error for a message for which there is no capacity.
    pub(crate) const fn full_error(&self) -> SendError {
        SendError::QueueFull { messages: self.messages, bytes: self.bytes }
    }

    /// Returns whether a message can be sent at once, past the waiting messages of other sources.
    pub(crate) fn can_bypass(&self, outgoing: Outgoing<'_>) -> bool {
        let has_backlog = self.lanes.get(outgoing.source.index()).is_some_and(|lane| !lane.queue.is_empty());
        self.hold_until.is_none() && !has_backlog && self.blocking_sources(outgoing) == 0
    }

    /// Queues a message. Returns the number of messages of the same source that were dropped for it.
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
            // A lane that was empty gets no credit for that time.
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
            is_over_share: outgoing.is_over_share,
            blocked_by,
        });
        self.messages += 1;
        self.bytes += outgoing.payload.len();
        self.next_number += 1;
        Ok(dropped)
    }

    /// Checks that there is capacity for a message.
    ///
    /// The server's own messages may fill the queue to its total limits. Relayed messages are refused when half of the
    /// total is used, and chat when three quarters are used, so players cannot fill the queue. Each source also has its
    /// own limit for both. When half of the total is used, a source may still queue a small quota of relayed messages.
    fn check_capacity(&self, outgoing: Outgoing<'_>, limits: QueueLimits) -> Result<(), SendError> {
        let has_capacity = |quarters: usize| {
            let bytes = self.bytes.saturating_add(outgoing.payload.len());
            self.messages < limits.messages / 4 * quarters && bytes <= limits.bytes / 4 * quarters
        };
        let Some(lane) = self.lanes.get(outgoing.source.index()) else { return Ok(()) };
        let cost = u64::from(cost(outgoing.payload));
        let is_over = |limit: u64| !lane.queue.is_empty() && lane.cost + cost > limit;
        let quota = (limits.bytes / 8 / SOURCE_COUNT) as u64;
        let is_refused = match outgoing.priority {
            Priority::Urgent | Priority::UrgentObject => !has_capacity(4),
            Priority::Chat => !has_capacity(3) || is_over(2 * limits.per_source),
            Priority::BulkObject
                if lane.retained_cost() > 0 && lane.retained_cost() + cost > limits.before_object / 2 =>
            {
                true
            }
            Priority::Bulk | Priority::BulkObject => {
                is_over(limits.per_source) || !has_capacity(2) && is_over(quota)
            }
        };
        if is_refused { Err(self.full_error()) } else { Ok(()) }
    }

    /// Drops the source's relayed messages if too many wait before a creation or removal of an object.
    ///
    /// Messages of others that name the object must not wait long. Returns the number of dropped messages.
    fn drop_bulk_before_object(&mut self, outgoing: Outgoing<'_>, limits: QueueLimits) -> u64 {
        let new_cost = |lane: &SourceLane| lane.cost + u64::from(cost(outgoing.payload));
        let is_long =
            self.lanes.get(outgoing.source.index()).is_some_and(|lane| new_cost(lane) > limits.before_object);
        if is_long { self.drop_matching(outgoing.source, |priority| priority == Priority::Bulk) } else { 0 }
    }

    /// Drops the relayed messages of a round that is over. Returns their number.
    pub(crate) fn drop_bulk(&mut self) -> u64 {
        let sources = (0..=MessageSource::POLICY.0).map(MessageSource);
        sources.map(|source| self.drop_matching(source, |priority| !priority.is_urgent())).sum()
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

    /// Returns whether the next message of a source is over the source's share of the uplink.
    pub(crate) fn has_over_share(&self) -> bool {
        self.lanes.iter().any(|lane| lane.queue.front().is_some_and(|head| head.is_over_share))
    }

    /// Returns the message that leaves next. With `has_uplink`, messages over their sender's share may leave (S-46).
    pub(crate) fn front(&self, has_uplink: bool) -> Option<(MessageSource, Priority, &[u8])> {
        if self.hold_until.is_some() {
            return None;
        }
        let lanes = (0_u8..).map(MessageSource).zip(&self.lanes);
        let heads = lanes.filter_map(|(source, lane)| Some((source, lane, lane.queue.front()?)));
        let may_leave = |head: &QueuedPayload| (has_uplink || !head.is_over_share) && !self.is_blocked(head);
        let next = heads.filter(|(_, _, head)| may_leave(head)).min_by_key(|(_, lane, head)| {
            if head.priority.is_urgent() { (false, head.number) } else { (true, lane.served_cost) }
        });
        next.map(|(source, _, head)| (source, head.priority, &*head.payload))
    }

    /// Removes the message that [`front`](Self::front) returned, because it was sent.
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

    /// Returns the sources with a waiting creation or removal of an object that a message names.
    ///
    /// The sources are bits. A message with unknown fields may name any object.
    fn blocking_sources(&self, outgoing: Outgoing<'_>) -> u32 {
        let waiting =
            (0_u8..).map(MessageSource).zip(&self.lanes).filter(|(_, lane)| !lane.object_numbers.is_empty());
        let waiting = waiting.fold(0, |bits, (source, _)| bits | source.bit()) & !outgoing.source.bit();
        if waiting == 0 { 0 } else { waiting & named_slots(outgoing.payload) }
    }

    /// Returns whether a message must wait for the creation or removal of an object that it may name.
    ///
    /// That applies to creations and removals that were queued before it.
    fn is_blocked(&self, head: &QueuedPayload) -> bool {
        let lanes = (0_u8..).map(MessageSource).zip(&self.lanes);
        let mut named = lanes.filter(|(source, _)| head.blocked_by & source.bit() != 0);
        named.any(|(_, lane)| lane.object_numbers.front().is_some_and(|number| *number < head.number))
    }
}

/// Returns the slots whose objects a message names, as bits. Returns all slots if they are not known.
fn named_slots(payload: &[u8]) -> u32 {
    game::named_slots(payload).unwrap_or(u32::MAX)
}

/// Returns the cost of a message: its share of the sender's limit and of the receiver's link.
pub(crate) fn cost(payload: &[u8]) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX).saturating_add(MESSAGE_OVERHEAD)
}

/// The number of lanes: all players, the server and the game policy.
const SOURCE_COUNT: usize = MAX_SLOTS + 2;
/// The cost of a message besides its bytes.
const MESSAGE_OVERHEAD: u32 = 32;
/// Above this cost in the lane of a source, unreliable messages of its mods are dropped.
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
        Outgoing { source: MessageSource::from_slot(Some(slot)), priority, payload, is_over_share: false }
    }

    fn pop_front(queue: &mut SendQueue) -> Option<(u8, Vec<u8>)> {
        let (source, payload) = queue.front(true).map(|(source, _, payload)| (source, payload.to_vec()))?;
        queue.pop(source);
        Some((source.0, payload))
    }

    /// Returns an event of one player that names an object of another.
    fn event(source_slot: u8, named_slot: u8) -> Vec<u8> {
        let own = game::ObjectId::new(source_slot, 0).0.to_le_bytes();
        let other = game::ObjectId::new(named_slot, 0).0.to_le_bytes();
        [&[0x0C, 0x0C, 1, 0, 0, 1, 0, 0x80, 0, 0, 0, 0, 0][..], &own, &other].concat()
    }

    /// S-43: a source with few messages does not wait for one with many; those with many share equally.
    #[test]
    fn queue_shares_capacity_equally_between_sources() {
        let mut queue = SendQueue::default();
        for n in 0..200 {
            queue.push(outgoing(0, Priority::Bulk, &[1, n]), LIMITS).expect("capacity");
            if n % 4 == 0 {
                queue.push(outgoing(1, Priority::Bulk, &[2; 100]), LIMITS).expect("capacity");
            }
        }
        let mut cost = [0_u32; 2];
        for _ in 0..100 {
            let (source, payload) = pop_front(&mut queue).expect("many messages wait");
            cost[usize::from(source)] += super::cost(&payload);
        }
        assert!(cost[0].abs_diff(cost[1]) <= 2 * 132, "{cost:?}");
        queue.push(outgoing(2, Priority::Bulk, &[3]), LIMITS).expect("capacity");
        assert!((0..3).any(|_| pop_front(&mut queue) == Some((2, vec![3]))), "a new source is served soon");
        queue.push(outgoing(3, Priority::Urgent, b"hi"), LIMITS).expect("capacity");
        assert_eq!(pop_front(&mut queue), Some((3, b"hi".to_vec())));
    }

    /// S-43: an urgent message overtakes messages of other sources only.
    #[test]
    fn urgent_message_stays_behind_its_own_source() {
        let mut queue = SendQueue::default();
        queue.push(outgoing(0, Priority::Bulk, b"shot"), LIMITS).expect("capacity");
        let chat = outgoing(0, Priority::Urgent, b"hi");
        assert!(!queue.can_bypass(chat) && queue.can_bypass(outgoing(1, Priority::Urgent, b"hi")));
        queue.push(chat, LIMITS).expect("capacity");
        assert_eq!(
            [pop_front(&mut queue), pop_front(&mut queue)],
            [Some((0, b"shot".to_vec())), Some((0, b"hi".to_vec()))]
        );
        assert!(queue.is_empty());
    }

    /// S-43: a message that names an object waits for its creation, but earlier messages do not.
    #[test]
    fn message_naming_an_object_waits_for_its_creation() {
        let mut queue = SendQueue::default();
        let (early, late, other) = (event(1, 0), event(2, 0), event(3, 4));
        queue.push(outgoing(0, Priority::Bulk, &[9; 400]), LIMITS).expect("capacity");
        queue.push(outgoing(1, Priority::Bulk, &early), LIMITS).expect("capacity");
        queue.push(outgoing(0, Priority::BulkObject, b"new"), LIMITS).expect("capacity");
        queue.push(outgoing(2, Priority::Bulk, &late), LIMITS).expect("capacity");
        queue.push(outgoing(3, Priority::Bulk, &other), LIMITS).expect("capacity");
        // A mod's message may name any object.
        queue.push(outgoing(5, Priority::Bulk, &[0xCD]), LIMITS).expect("capacity");
        assert!(!queue.can_bypass(outgoing(6, Priority::Urgent, &event(6, 0))));
        let order: Vec<u8> = std::iter::from_fn(|| pop_front(&mut queue)).map(|(source, _)| source).collect();
        let place = |source| order.iter().rposition(|other| *other == source).expect("the message has left");
        assert!(place(0) < place(2) && place(0) < place(5), "{order:?}");
        assert!(place(1) < place(0) && place(3) < place(0), "{order:?}");
    }

    /// S-43: only the flooding source loses messages, and its creations do not wait behind its flood.
    #[test]
    fn flooding_source_is_limited_alone() {
        let mut queue = SendQueue::default();
        let mut queued = 0;
        while queue.push(outgoing(0, Priority::Bulk, &[0; 18]), LIMITS).is_ok() {
            queued += 1;
            assert!(queued <= 10_000, "the source has no limit");
        }
        assert_eq!(queued, 10_000 / 50);
        assert_eq!(queue.push(outgoing(1, Priority::Bulk, b"x"), LIMITS), Ok(0));
        assert_eq!(
            queue.push(
                outgoing(0, Priority::BulkObject, &[0; 968]),
                QueueLimits { per_source: 20_000, ..LIMITS }
            ),
            Ok(200)
        );
        // The limit is in bytes, not in messages.
        assert!(queue.push(outgoing(0, Priority::BulkObject, &[0; 968]), LIMITS).is_err());
        assert_eq!(queue.push(outgoing(0, Priority::BulkObject, &[0; 468]), LIMITS), Ok(0));
        assert!(queue.push(outgoing(0, Priority::BulkObject, b"new"), LIMITS).is_err());
        assert_eq!(queue.push(outgoing(0, Priority::UrgentObject, b"gone"), LIMITS), Ok(0));
        assert_eq!(
            queue.push(outgoing(3, Priority::BulkObject, &[0; 4_000]), LIMITS),
            Ok(0),
            "an empty lane always accepts one message"
        );
    }

    /// S-54: relayed messages leave capacity for chat, and both leave capacity for the server's messages.
    #[test]
    fn players_cannot_fill_the_capacity_reserved_for_the_host() {
        let mut queue = SendQueue::default();
        let mut fill = |priority, range: std::ops::Range<u8>| {
            for slot in range {
                while queue.push(outgoing(slot, priority, &[0; 200]), LIMITS).is_ok() {
                    assert!(queue.bytes < 1_000_000, "the queue has no limit");
                }
            }
            queue.bytes
        };
        let bulk = fill(Priority::Bulk, 0..16);
        assert!((50_000..65_000).contains(&bulk), "{bulk}");
        let chat = fill(Priority::Chat, 0..16);
        assert!((74_000..=75_000).contains(&chat), "{chat}");
        let all = fill(Priority::Urgent, 16..17);
        assert!((99_000..=100_000).contains(&all), "{all}");
    }

    /// S-43: only a source with many waiting messages has its unreliable messages dropped.
    #[test]
    fn source_with_many_queued_messages_has_backlog() {
        let mut queue = SendQueue::default();
        queue.push(outgoing(0, Priority::Bulk, &[0; 990]), LIMITS).expect("capacity");
        assert!(!queue.has_backlog(MessageSource(0)));
        queue.push(outgoing(0, Priority::Bulk, b"x"), LIMITS).expect("capacity");
        assert!(queue.has_backlog(MessageSource(0)) && !queue.has_backlog(MessageSource(1)));
    }

    /// S-43: a source that was idle gets no credit for that time, so it cannot starve the others.
    #[test]
    fn idle_source_saves_up_no_credit() {
        let mut queue = SendQueue::default();
        for _ in 0..100 {
            queue.push(outgoing(0, Priority::Bulk, b"busy"), LIMITS).expect("capacity");
            assert_eq!(pop_front(&mut queue), Some((0, b"busy".to_vec())));
        }
        for source in [0, 1] {
            for _ in 0..50 {
                queue.push(outgoing(source, Priority::Bulk, b"both"), LIMITS).expect("capacity");
            }
        }
        let mut sent = [0_u32; 2];
        for _ in 0..20 {
            let (source, _) = pop_front(&mut queue).expect("many messages wait");
            sent[usize::from(source)] += 1;
        }
        assert!(sent[0].abs_diff(sent[1]) <= 2, "{sent:?} messages of both sources");
    }

    /// S-43: with random messages, all of them leave, in order within each source, and the sums are right.
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
                let slot = u8::try_from(random(17)).expect("a small number");
                let priority = [
                    Priority::Urgent,
                    Priority::UrgentObject,
                    Priority::Bulk,
                    Priority::Bulk,
                    Priority::BulkObject,
                ][usize::try_from(random(5)).expect("a small number")];
                let number = pushed[usize::from(slot)].to_le_bytes();
                let named = u8::try_from(random(16)).expect("a small number");
                let payload = [&event(slot, named)[..], &number].concat();
                let outgoing = Outgoing {
                    source: MessageSource(slot),
                    priority,
                    payload: &payload,
                    is_over_share: false,
                };
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
                assert!(queue.is_empty(), "some message can always leave");
                assert_eq!((queue.bytes, queue.lanes.iter().map(|lane| lane.cost).sum::<u64>()), (0, 0));
            }
        }
        assert_eq!((pushed, queue.is_empty()), (left, true));
    }
}
