//! The state of one side: the messages that it has sent, and the arrivals that it must have read.
//!
//! A stock node first sends and then reads, once in each tick. So a datagram does not reflect arrivals since
//! the node's last tick. Such arrivals stay `unread` until the node's next datagram.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::ack_outbox::{AckOutbox, AckPolicy};
use crate::counters::SideCounters;
use crate::sent_messages::{MessageKey, SentMessages};
use crate::sequence::SequenceTracker;
use crate::stock::SECOND;
use crate::{NonStock, ObserverLimits, ParsedDatagram};
use bcnet_wire::{Channel, Message, MessageId, PeerId, Seq, Time};

/// A message or ACK that has reached a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivalKind {
    /// A reliable message.
    Message(MessageId),
    /// An ACK that may remove a message from the retransmit queue.
    Ack(MessageId),
    /// An ACK that removes nothing from the retransmit queue; noted only if handled ACKs are tracked.
    RedundantAck(MessageId),
}

/// An arrival that the node has perhaps not read yet.
#[derive(Debug, Clone, Copy)]
struct UnreadArrival {
    at: Time,
    mark: u64,
    arrival: ArrivalKind,
}

#[derive(Debug, Clone)]
pub(crate) struct SideState {
    pub(crate) id: Option<PeerId>,
    pub(crate) counters: SideCounters,
    pub(crate) sent: SentMessages,
    pub(crate) ack_outbox: AckOutbox,
    pub(crate) sequences: [SequenceTracker; 2],
    pub(crate) rtt: DurationEstimator,
    /// The time from the arrival of a message to its first ACK.
    pub(crate) ack_delay: DurationEstimator,
    pub(crate) last_sent: Option<Time>,
    /// The last time at which the capture truncated a datagram of this side.
    pub(crate) last_not_captured: Option<Time>,
    /// The silence that was last reported.
    pub(crate) idle_level: IdleLevel,
    /// The peculiarities that were reported.
    pub(crate) non_stock: NonStock,
    /// The sequence numbers of messages that were reported as stuck.
    pub(crate) stuck_messages: VecDeque<Seq>,
    pub(crate) last_datagram: DatagramFill,
    unread: VecDeque<UnreadArrival>,
    /// The ACKs that the node has read, if handled ACKs are tracked.
    pub(crate) handled_acks: Option<VecDeque<ReadAck>>,
    /// The shortest time between two datagrams of the node, which is an upper bound of its tick.
    tick: u64,
    /// The latest datagrams with reliable messages, to recognise copies that the network made.
    recent_datagrams: [(u64, Time); 8],
}

/// An ACK that a node has read, with the messages that waited for one then.
#[derive(Debug, Clone)]
pub(crate) struct ReadAck {
    pub(crate) at: Time,
    pub(crate) mark: u64,
    pub(crate) id: MessageId,
    pub(crate) retransmit_queue: Vec<MessageId>,
}

/// The levels of a side's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IdleLevel {
    Active,
    Idle,
    TimedOut,
}

/// The fill of the last datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DatagramFill {
    pub(crate) at: Time,
    pub(crate) bytes: usize,
    /// Bytes of the ACKs in front of all other messages.
    pub(crate) leading_acks: usize,
}

impl SideState {
    pub(crate) fn new() -> Self {
        Self {
            id: None,
            counters: SideCounters::new(),
            sent: SentMessages::new(),
            ack_outbox: AckOutbox::new(),
            sequences: [SequenceTracker::new(), SequenceTracker::new()],
            rtt: DurationEstimator::default(),
            ack_delay: DurationEstimator::default(),
            last_sent: None,
            last_not_captured: None,
            idle_level: IdleLevel::Active,
            non_stock: NonStock::NONE,
            stuck_messages: VecDeque::new(),
            last_datagram: DatagramFill::default(),
            unread: VecDeque::new(),
            handled_acks: None,
            tick: MAX_TICK,
            recent_datagrams: [(0, Time::ZERO); 8],
        }
    }

    /// Forgets the state of a connection that has ended.
    pub(crate) fn restart(&mut self) {
        self.sent.clear();
        self.ack_outbox.clear();
        self.sequences = [SequenceTracker::new(), SequenceTracker::new()];
        self.unread.clear();
        self.stuck_messages.clear();
    }

    /// Returns whether no finding about this side is pending.
    pub(crate) fn is_all_reported(&self) -> bool {
        self.sent.unexplained.is_empty() && self.sequences.iter().all(SequenceTracker::is_complete)
    }

    /// Returns whether no finding about the datagram with this mark is pending.
    pub(crate) fn are_findings_final(&self, mark: u64) -> bool {
        self.is_all_reported()
            || self.sent.unexplained.iter().all(|open| open.mark != mark)
                && self.sequences.iter().all(|numbers| numbers.is_final(mark))
    }

    pub(crate) const fn sequence_mut(&mut self, channel: Channel) -> &mut SequenceTracker {
        let [control, game] = &mut self.sequences;
        match channel {
            Channel::Control => control,
            Channel::Game => game,
        }
    }

    pub(crate) const fn tick(&self) -> u64 {
        self.tick
    }

    /// Returns the longest time for which an observed ACK may still be on its way to the node.
    pub(crate) fn max_ack_transit(&self) -> u64 {
        // The average does not help: it includes late answers whose first copy was lost.
        self.ack_delay.min().map_or(MAX_TICK, |least| 2 * least) + self.tick
    }

    /// Forgets an arrival that was seen on its way to the node but did not reach it.
    pub(crate) fn forget_unread(&mut self, arrival: ArrivalKind) {
        let redundant =
            if let ArrivalKind::Ack(id) = arrival { Some(ArrivalKind::RedundantAck(id)) } else { None };
        self.unread.retain(|other| other.arrival != arrival && Some(other.arrival) != redundant);
    }

    /// Notes an arrival at the node at `at`, in the datagram `mark`.
    ///
    /// Calls `restarted` with the number of sends of an ACK that is queued again.
    pub(crate) fn on_arrival(
        &mut self,
        (at, mark): (Time, u64),
        arrival: ArrivalKind,
        limits: &ObserverLimits,
        restarted: impl FnMut(MessageId, u32),
    ) {
        self.unread.push_back(UnreadArrival { at, mark, arrival });
        if self.unread.len() > limits.messages {
            self.mark_read(1, limits, restarted);
        }
    }

    /// Marks as read the arrivals that the node must have read before it sent `datagram`.
    pub(crate) fn read_before_send(
        &mut self,
        at: Time,
        datagram: &ParsedDatagram<'_>,
        limits: &ObserverLimits,
        restarted: impl FnMut(MessageId, u32),
    ) {
        if let Some(last) = self.last_sent.filter(|last| *last < at) {
            self.tick = self.tick.min(at.micros_since(last));
        }
        self.last_sent = Some(at);
        if self.unread.is_empty() {
            return;
        }
        let count = match self.ack_outbox.policy() {
            AckPolicy::Once => self.unread.len(),
            AckPolicy::Stock | AckPolicy::Unknown => self.count_read(at, datagram),
        };
        self.mark_read(count, limits, restarted);
    }

    /// Returns how many of the unread arrivals the node must have read before it made `datagram`.
    fn count_read(&self, at: Time, datagram: &ParsedDatagram<'_>) -> usize {
        let ticked = |unread: &&UnreadArrival| unread.at.plus(self.tick) <= at;
        let mut read = self.unread.iter().take_while(ticked).count();
        let mut unread_from = self.unread.len();
        let late = self.max_ack_transit();
        for message in datagram.messages() {
            if let Message::Ack(ack) = message {
                let Some(place) = self.position(ArrivalKind::Message(ack.id)) else { continue };
                // An ACK that was not due, or was not pending at all, answers the latest arrival.
                if self.ack_outbox.is_due(ack.id, at) != Some(true) {
                    read = read.max(place + 1);
                }
            } else if let Some(id) = message.id()
                && let Some(place) = self.position(ArrivalKind::Ack(id))
                && self.unread.get(place).is_some_and(|unread| at.micros_since(unread.at) <= late)
            {
                // The node would not retransmit a message if it had read its ACK.
                unread_from = unread_from.min(place);
            }
        }
        read.min(unread_from)
    }

    /// Returns whether a message has reached the node that it has perhaps not read yet.
    pub(crate) fn has_unread(&self, id: MessageId) -> bool {
        self.position(ArrivalKind::Message(id)).is_some()
    }

    fn position(&self, arrival: ArrivalKind) -> Option<usize> {
        self.unread.iter().position(|unread| unread.arrival == arrival)
    }

    /// Ends the tick in which the node has sent something: all arrivals are read.
    pub(crate) fn read_after_send(&mut self, limits: &ObserverLimits, restarted: impl FnMut(MessageId, u32)) {
        self.mark_read(self.unread.len(), limits, restarted);
    }

    fn mark_read(
        &mut self,
        count: usize,
        limits: &ObserverLimits,
        mut restarted: impl FnMut(MessageId, u32),
    ) {
        for UnreadArrival { at, mark, arrival } in self.unread.drain(..count) {
            if let (Some(handled), ArrivalKind::Ack(id) | ArrivalKind::RedundantAck(id)) =
                (&mut self.handled_acks, arrival)
            {
                if handled.len() > 2 * limits.messages {
                    handled.pop_front();
                }
                handled.push_back(ReadAck {
                    at,
                    mark,
                    id,
                    retransmit_queue: self.sent.queued_ids().collect(),
                });
            }
            match arrival {
                ArrivalKind::Ack(id) => self.sent.dequeue(MessageKey::new(id)),
                ArrivalKind::RedundantAck(_) => {}
                ArrivalKind::Message(id) => {
                    let sends = self.ack_outbox.queue_ack(id, at, limits.messages);
                    if sends > 1 {
                        restarted(id, sends);
                    }
                }
            }
        }
    }

    /// Returns whether the same bytes were sent a moment ago: the network has duplicated the datagram.
    pub(crate) fn is_network_duplicate(&mut self, fingerprint: u64, at: Time) -> bool {
        let within = self.rtt.min().map_or(NETWORK_DUPLICATE_WINDOW, |least| least / 2);
        let same = |(other, when): &(u64, Time)| *other == fingerprint && at.micros_since(*when) < within;
        if self.recent_datagrams.iter().any(same) {
            return true;
        }
        self.recent_datagrams.rotate_right(1);
        if let Some(first) = self.recent_datagrams.first_mut() {
            *first = (fingerprint, at);
        }
        false
    }
}

/// An estimate of a duration: smoothed mean, variation and minimum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DurationEstimator {
    samples: u32,
    smoothed: u64,
    variation: u64,
    min: u64,
}

impl DurationEstimator {
    pub(crate) fn record(&mut self, sample: u64) {
        if self.samples == 0 {
            (self.smoothed, self.variation, self.min) = (sample, sample / 2, sample);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
            self.min = self.min.min(sample);
        }
        self.samples = self.samples.saturating_add(1);
    }

    pub(crate) fn min(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.min)
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        (self.samples > 0).then(|| Duration::from_micros(self.smoothed))
    }

    /// Returns whether `time` is clearly less than the minimum, if there are enough samples.
    pub(crate) const fn is_below_min(&self, time: u64) -> bool {
        self.samples >= MIN_SAMPLES && time < self.min / 4 * 3
    }

    /// Returns whether `time` is within the usual variation.
    pub(crate) const fn is_plausible(&self, time: u64) -> bool {
        time < self.smoothed + 8 * self.variation
    }
}

/// No node is assumed to have a longer tick than this.
const MAX_TICK: u64 = SECOND / 10;
/// No sender repeats a datagram sooner than this, so the network has duplicated it.
const NETWORK_DUPLICATE_WINDOW: u64 = SECOND / 20;
/// After this many samples the minimum is reliable.
const MIN_SAMPLES: u32 = 8;
