//! One side of a conversation: what it has sent, and what it must have read of what was sent to it.
//!
//! A stock node sends first and reads then, once in each of its ticks. So what reached it since its last tick does not
//! show in what it sends now: such arrivals stay `unread` until its next datagram tells.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::acks::{AckOutbox, AckStyle};
use crate::numbers::Numbers;
use crate::sent::{Key, SentMessages};
use crate::stock::SECOND;
use crate::traffic::Traffic;
use crate::{Limits, NonStock, Parsed};
use bcnet_wire::{Channel, Message, MessageId, PeerId, Seq, Time};

/// Something that has reached a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A reliable message.
    Message(MessageId),
    /// An ACK that may clear something.
    Ack(MessageId),
    /// An ACK that clears nothing; noted only for who follows ACKs.
    SpareAck(MessageId),
}

/// Something that has reached a node and is perhaps not read.
#[derive(Debug, Clone, Copy)]
struct Unread {
    at: Time,
    mark: u64,
    arrival: Arrival,
}

#[derive(Debug, Clone)]
pub(crate) struct SideState {
    pub(crate) id: Option<PeerId>,
    pub(crate) traffic: Traffic,
    pub(crate) sent: SentMessages,
    pub(crate) owed: AckOutbox,
    pub(crate) numbers: [Numbers; 2],
    pub(crate) round_trip: Timing,
    /// From the arrival of a message to its first ACK.
    pub(crate) turnaround: Timing,
    pub(crate) last_sent: Option<Time>,
    /// When the capture last had something of it that it did not keep.
    pub(crate) missed: Option<Time>,
    /// What was told of its silence.
    pub(crate) quiet: Quiet,
    /// What was told of its oddities.
    pub(crate) odd: NonStock,
    /// The split messages that were told to be stuck.
    pub(crate) stuck: VecDeque<Seq>,
    pub(crate) last_datagram: DatagramFill,
    unread: VecDeque<Unread>,
    /// The ACKs that it has read, if they are followed.
    pub(crate) handled: Option<VecDeque<ReadAck>>,
    /// The shortest time between two of its datagrams, which is no shorter than its tick.
    tick: u64,
    /// The latest datagrams with reliable messages, to know copies that the network made.
    recent: [(u64, Time); 8],
}

/// An ACK that a node has read, with what waited for one then.
#[derive(Debug, Clone)]
pub(crate) struct ReadAck {
    pub(crate) at: Time,
    pub(crate) mark: u64,
    pub(crate) id: MessageId,
    pub(crate) waiting: Vec<MessageId>,
}

/// How a side's silence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quiet {
    No,
    Silent,
    TimedOut,
}

/// What the last datagram was filled with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DatagramFill {
    pub(crate) at: Time,
    pub(crate) bytes: usize,
    /// The ACKs in front of everything else.
    pub(crate) leading_acks: usize,
}

impl SideState {
    pub(crate) fn new() -> Self {
        Self {
            id: None,
            traffic: Traffic::new(),
            sent: SentMessages::new(),
            owed: AckOutbox::new(),
            numbers: [Numbers::new(), Numbers::new()],
            round_trip: Timing::default(),
            turnaround: Timing::default(),
            last_sent: None,
            missed: None,
            quiet: Quiet::No,
            odd: NonStock::NONE,
            stuck: VecDeque::new(),
            last_datagram: DatagramFill::default(),
            unread: VecDeque::new(),
            handled: None,
            tick: SLOWEST_TICK,
            recent: [(0, Time::ZERO); 8],
        }
    }

    /// Forgets what belonged to a connection that is over.
    pub(crate) fn restart(&mut self) {
        self.sent.clear();
        self.owed.clear();
        self.numbers = [Numbers::new(), Numbers::new()];
        self.unread.clear();
        self.stuck.clear();
    }

    /// Returns whether nothing waits to be told of it.
    pub(crate) fn is_told(&self) -> bool {
        self.sent.unexplained.is_empty() && self.numbers.iter().all(Numbers::is_told)
    }

    /// Returns whether nothing waits to be told of the datagram with this mark.
    pub(crate) fn is_decided(&self, mark: u64) -> bool {
        self.is_told()
            || self.sent.unexplained.iter().all(|open| open.mark != mark)
                && self.numbers.iter().all(|numbers| numbers.is_decided(mark))
    }

    pub(crate) const fn numbers_mut(&mut self, channel: Channel) -> &mut Numbers {
        let [control, game] = &mut self.numbers;
        match channel {
            Channel::Control => control,
            Channel::Game => game,
        }
    }

    pub(crate) const fn tick(&self) -> u64 {
        self.tick
    }

    /// An ACK that was seen less than this ago may still be on its way to the node.
    pub(crate) fn late_within(&self) -> u64 {
        // The average is no help: it has in it what was answered late because a first answer was lost.
        self.turnaround.least().map_or(SLOWEST_TICK, |least| 2 * least) + self.tick
    }

    /// What was seen on its way to the node has not arrived.
    pub(crate) fn forget_unread(&mut self, arrival: Arrival) {
        let spare = if let Arrival::Ack(id) = arrival { Some(Arrival::SpareAck(id)) } else { None };
        self.unread.retain(|other| other.arrival != arrival && Some(other.arrival) != spare);
    }

    /// Something reaches the node at `at`, in the datagram `mark`. `restarted` hears how often an ACK was sent that is
    /// owed anew.
    pub(crate) fn arrive(
        &mut self,
        (at, mark): (Time, u64),
        arrival: Arrival,
        limits: &Limits,
        restarted: impl FnMut(MessageId, u32),
    ) {
        self.unread.push_back(Unread { at, mark, arrival });
        if self.unread.len() > limits.messages {
            self.read(1, limits, restarted);
        }
    }

    /// The node sends `datagram`: it has read what that shows.
    pub(crate) fn read_before(
        &mut self,
        at: Time,
        datagram: &Parsed<'_>,
        limits: &Limits,
        restarted: impl FnMut(MessageId, u32),
    ) {
        if let Some(last) = self.last_sent.filter(|last| *last < at) {
            self.tick = self.tick.min(at.micros_since(last));
        }
        self.last_sent = Some(at);
        if self.unread.is_empty() {
            return;
        }
        let count = match self.owed.style() {
            AckStyle::Once => self.unread.len(),
            AckStyle::Stock | AckStyle::Unknown => self.shown_read(at, datagram),
        };
        self.read(count, limits, restarted);
    }

    /// Returns how many of the unread arrivals the node must have read before it made `datagram`.
    fn shown_read(&self, at: Time, datagram: &Parsed<'_>) -> usize {
        let ticked = |unread: &&Unread| unread.at.plus(self.tick) <= at;
        let mut read = self.unread.iter().take_while(ticked).count();
        let mut unread_from = self.unread.len();
        let late = self.late_within();
        for message in datagram.messages() {
            if let Message::Ack(ack) = message {
                let Some(place) = self.place(Arrival::Message(ack.id)) else { continue };
                // An ACK that was not due, or not owed at all, answers the latest arrival.
                if self.owed.is_due(ack.id, at) != Some(true) {
                    read = read.max(place + 1);
                }
            } else if let Some(id) = message.id()
                && let Some(place) = self.place(Arrival::Ack(id))
                && self.unread.get(place).is_some_and(|unread| at.micros_since(unread.at) <= late)
            {
                // It would not send again what it knows to have arrived.
                unread_from = unread_from.min(place);
            }
        }
        read.min(unread_from)
    }

    /// Returns whether a message has reached the node that it has perhaps not read.
    pub(crate) fn has_unread(&self, id: MessageId) -> bool {
        self.place(Arrival::Message(id)).is_some()
    }

    fn place(&self, arrival: Arrival) -> Option<usize> {
        self.unread.iter().position(|unread| unread.arrival == arrival)
    }

    /// The tick in which the node has sent something ends: everything is read.
    pub(crate) fn read_after(&mut self, limits: &Limits, restarted: impl FnMut(MessageId, u32)) {
        self.read(self.unread.len(), limits, restarted);
    }

    fn read(&mut self, count: usize, limits: &Limits, mut restarted: impl FnMut(MessageId, u32)) {
        for Unread { at, mark, arrival } in self.unread.drain(..count) {
            if let (Some(handled), Arrival::Ack(id) | Arrival::SpareAck(id)) = (&mut self.handled, arrival) {
                if handled.len() > 2 * limits.messages {
                    handled.pop_front();
                }
                handled.push_back(ReadAck { at, mark, id, waiting: self.sent.waiting().collect() });
            }
            match arrival {
                Arrival::Ack(id) => self.sent.settle(Key::new(id)),
                Arrival::SpareAck(_) => {}
                Arrival::Message(id) => {
                    let sends = self.owed.owe(id, at, limits.messages);
                    if sends > 1 {
                        restarted(id, sends);
                    }
                }
            }
        }
    }

    /// Returns whether the same bytes were sent a moment ago: the network has made a copy.
    pub(crate) fn is_copy(&mut self, fingerprint: u64, at: Time) -> bool {
        let within = self.round_trip.least().map_or(COPY_WITHIN, |least| least / 2);
        let same = |(other, when): &(u64, Time)| *other == fingerprint && at.micros_since(*when) < within;
        if self.recent.iter().any(same) {
            return true;
        }
        self.recent.rotate_right(1);
        if let Some(first) = self.recent.first_mut() {
            *first = (fingerprint, at);
        }
        false
    }
}

/// How long something takes: smoothed, with its variation, and at best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    samples: u32,
    smoothed: u64,
    variation: u64,
    least: u64,
}

impl Timing {
    pub(crate) fn note(&mut self, sample: u64) {
        if self.samples == 0 {
            (self.smoothed, self.variation, self.least) = (sample, sample / 2, sample);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
            self.least = self.least.min(sample);
        }
        self.samples = self.samples.saturating_add(1);
    }

    pub(crate) fn least(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.least)
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        (self.samples > 0).then(|| Duration::from_micros(self.smoothed))
    }

    /// Returns whether `time` is less than it ever took, as far as that is known.
    pub(crate) const fn is_impossible(&self, time: u64) -> bool {
        self.samples >= ENOUGH_SAMPLES && time < self.least / 4 * 3
    }

    /// Returns whether it may well take so long.
    pub(crate) const fn is_likely(&self, time: u64) -> bool {
        time < self.smoothed + 8 * self.variation
    }
}

/// No node is assumed to be slower than this.
const SLOWEST_TICK: u64 = SECOND / 10;
/// Nobody repeats itself sooner, so the network has.
const COPY_WITHIN: u64 = SECOND / 20;
/// After so many the shortest is known well enough.
const ENOUGH_SAMPLES: u32 = 8;
