//! Measures a run from the datagrams on the wire, so that all engines are measured alike.
//!
//! Only queue lengths, ACK lifetimes, comparisons and crashes come from the engines. [`Meter`] observes a
//! [`World`](crate::World). It changes no traffic, except that it lets the host admit clients.

use std::collections::{BTreeMap, HashMap, HashSet};

use bcnet_transport::wire::{Ack, Channel, Datagram, Message, MessageId, PeerId};
use bcnet_transport::{Event, LeaveReason, Time};

use crate::counters::{QueueLengthInterval, RunCounters};
use crate::engine::LabEngine;
use crate::observer::{DatagramMeta, WorldObserver};
use crate::stock::{AckTraceEntry, QueueLengths};

/// A log entry: something that was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SendLogEntry {
    pub(crate) at: Time,
    pub(crate) from: usize,
    pub(crate) len: u32,
    pub(crate) item: SentItem,
}

impl SendLogEntry {
    /// Returns the send time in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.at.as_micros() as f64 / 1e6
    }
}

/// Kind of a log entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SentItem {
    /// A whole datagram; entries for its messages follow.
    Datagram,
    Ack(MessageId),
    Retransmission(MessageId),
    Keepalive,
    Other,
}

impl SentItem {
    pub(crate) const fn fragment(&self) -> Option<u8> {
        match self {
            Self::Ack(id) | Self::Retransmission(id) => id.fragment,
            Self::Datagram | Self::Keepalive | Self::Other => None,
        }
    }
}

/// A payload that was passed to an engine.
#[derive(Debug)]
struct StampedPayload {
    at: Time,
    from: usize,
    len: usize,
    reliable: bool,
    delivered: bool,
}

/// A datagram of a run, in plaintext.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedDatagram {
    /// Source, destination and time.
    ///
    /// A proxy has the number after the last node. Each of its addresses toward the host has a number after that.
    pub meta: DatagramMeta,
    /// `true` when the datagram is sent, `false` when it arrives.
    pub sent: bool,
    /// The bytes of the datagram.
    pub bytes: Vec<u8>,
}

/// Delay of a reliable payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryDelay {
    /// Number of the sending node.
    pub from: usize,
    /// Time when the payload was passed to the engine.
    pub at: Time,
    /// Microseconds until the payload was delivered.
    pub micros: u32,
}

/// Reliable traffic from one node to another.
#[derive(Debug, Default)]
struct OneWayTraffic {
    /// Number of reliable messages and fragments sent.
    sent: u64,
    /// Value of `sent` when each message id was last sent. Ids are reused when sequence numbers wrap around.
    last_sent: HashMap<MessageId, u64>,
    /// Messages that were sent and are not acknowledged.
    unacknowledged: HashSet<MessageId>,
}

impl OneWayTraffic {
    /// Records a send. Returns whether it is a retransmission.
    fn record_send(&mut self, id: MessageId) -> bool {
        self.sent += 1;
        let retransmission = self
            .last_sent
            .insert(id, self.sent)
            .is_some_and(|last| self.sent - last < MAX_RETRANSMIT_DISTANCE);
        if !retransmission {
            self.unacknowledged.insert(id);
        }
        retransmission
    }
}

/// Observer that measures a run.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Start of the measurement; earlier traffic does not count.
    start: Time,
    /// `true` for each node with an engine.
    has_engine: Vec<bool>,
    pub(crate) counters: Vec<RunCounters>,
    /// Counters of the proxy, if there is one.
    pub(crate) proxy_counters: Option<RunCounters>,
    directions: HashMap<(usize, usize), OneWayTraffic>,
    payloads: Vec<StampedPayload>,
    pub(crate) delays: Vec<DeliveryDelay>,
    queue_lengths: BTreeMap<(usize, PeerId), QueueLengthInterval>,
    /// ACKs that the serviced node has read and not handled yet: source node, sender id, message.
    received_acks: Vec<(usize, PeerId, MessageId)>,
    pub(crate) send_log: Option<Vec<SendLogEntry>>,
    pub(crate) ack_trace: Option<Vec<(usize, AckTraceEntry)>>,
    /// Datagrams sent and arrived since the caller last took them, if they are recorded.
    pub(crate) observed: Option<Vec<ObservedDatagram>>,
}

impl Meter {
    pub(crate) fn new(has_engine: Vec<bool>, start: Time) -> Self {
        Self {
            start,
            counters: vec![RunCounters::default(); has_engine.len()],
            has_engine,
            proxy_counters: None,
            directions: HashMap::new(),
            payloads: Vec::new(),
            delays: Vec::new(),
            queue_lengths: BTreeMap::new(),
            received_acks: Vec::new(),
            send_log: None,
            ack_trace: None,
            observed: None,
        }
    }

    /// Fills `payload` with `len` bytes that identify it at the receiver, and registers it.
    pub(crate) fn stamp_payload(
        &mut self,
        payload: &mut Vec<u8>,
        from: usize,
        len: usize,
        reliable: bool,
        at: Time,
    ) {
        let number = u32::try_from(self.payloads.len()).unwrap_or(u32::MAX);
        fill_payload(payload, number, len);
        self.payloads.push(StampedPayload { at, from, len, reliable, delivered: len < STAMP_BYTES });
    }

    /// Counts a payload that the engine accepted or refused. A refused payload is not counted as missing.
    pub(crate) fn record_send_result(&mut self, from: usize, taken: bool, stamped: bool) {
        let Some(counters) = self.counters.get_mut(from) else { return };
        if taken {
            counters.payloads += 1;
        } else {
            counters.refused += 1;
            if let Some(payload) = self.payloads.last_mut().filter(|_| stamped) {
                payload.delivered = true;
            }
        }
    }

    /// Stores a datagram if datagrams are recorded.
    pub(crate) fn record_datagram(&mut self, meta: DatagramMeta, sent: bool, bytes: &[u8]) {
        if let Some(observed) = &mut self.observed {
            observed.push(ObservedDatagram { meta, sent, bytes: bytes.to_vec() });
        }
    }

    /// Ends the measurement: closes open intervals and counts missing payloads.
    pub(crate) fn finish(&mut self, now: Time) {
        for ((node, _), length) in std::mem::take(&mut self.queue_lengths) {
            self.counters[node].queues.add_interval(&length, now);
            self.record_ack_lifetime(node, length.acks_pending_since, now);
        }
        for payload in self.payloads.iter().filter(|payload| payload.reliable && !payload.delivered) {
            self.counters[payload.from].missing += 1;
        }
    }

    /// Counts an ACK that the engine of a node has handled.
    fn on_ack_handled(&mut self, node: usize, from: usize, peer: PeerId, id: MessageId, now: Time) {
        let direction = self.directions.entry((node, from)).or_default();
        let empty = direction.unacknowledged.is_empty();
        let mut waiting: Vec<MessageId> =
            self.ack_trace.iter().flat_map(|_| direction.unacknowledged.iter().copied()).collect();
        waiting.sort_by_key(|id| (id.channel == Channel::Game, id.seq.0, id.fragment));
        let useful = direction.unacknowledged.remove(&id);
        if now < self.start {
            return;
        }
        let counters = &mut self.counters[node];
        counters.ack_bytes_taken += Message::Ack(Ack::new(id)).wire_len() as u64;
        counters.useful_acks += u64::from(useful);
        counters.useless_acks += u64::from(!useful);
        counters.empty_acks += u64::from(empty);
        if let Some(trace) = &mut self.ack_trace {
            let at = Time::ZERO + now.since(self.start);
            trace.push((node, AckTraceEntry { at, peer, id, waiting, useful }));
        }
    }

    /// Updates the longest ACK lifetime: an outbox was not empty from `since` to `now`.
    fn record_ack_lifetime(&mut self, node: usize, since: Option<Time>, now: Time) {
        if let Some(since) = since {
            let longest = &mut self.counters[node].longest_ack;
            *longest = (*longest).max(now.since(since));
        }
    }

    fn handle_received_acks(&mut self, node: usize, now: Time) {
        let mut received = std::mem::take(&mut self.received_acks);
        for (from, peer, id) in received.drain(..) {
            self.on_ack_handled(node, from, peer, id, now);
        }
        self.received_acks = received;
    }

    fn log_sent(&mut self, meta: DatagramMeta, len: usize, item: SentItem) {
        if let Some(log) = self.send_log.as_mut().filter(|_| meta.now >= self.start) {
            let (at, len) = (Time::ZERO + meta.now.since(self.start), u32::try_from(len).unwrap_or(0));
            log.push(SendLogEntry { at, from: meta.from, len, item });
        }
    }

    fn on_delivered(&mut self, node: usize, bytes: &[u8], now: Time) {
        if now < self.start {
            return;
        }
        self.counters[node].delivered += 1;
        let Some(number) = bytes.get(1..STAMP_BYTES).filter(|_| bytes.first() == Some(&STAMP_MARKER)) else {
            return;
        };
        let number = u32::from_le_bytes(number.try_into().unwrap_or_default());
        let Some(payload) = self.payloads.get_mut(number as usize) else { return };
        let mut sent = Vec::new();
        fill_payload(&mut sent, number, payload.len);
        if sent != bytes {
            self.counters[node].garbled += 1;
        } else if !payload.delivered {
            payload.delivered = true;
            if payload.reliable {
                let delay = u32::try_from(now.since(payload.at).as_micros()).unwrap_or(u32::MAX);
                let at = Time::ZERO + payload.at.since(self.start);
                self.delays.push(DeliveryDelay { from: payload.from, at, micros: delay });
            }
        }
    }
}

impl WorldObserver<dyn LabEngine> for Meter {
    fn on_event(
        &mut self,
        node: usize,
        event: Event,
        bytes: &[u8],
        engine: &mut (dyn LabEngine + 'static),
        now: Time,
    ) {
        match event {
            // A node without an engine cannot answer a challenge, so a scenario with such nodes verifies no address. Errors
            // are ignored: the client may have given up.
            Event::Request { from, .. } if self.has_engine.iter().all(|has_engine| *has_engine) => {
                let _ = engine.challenge(from, now);
            }
            Event::Request { from, .. } => drop(engine.admit(from, now)),
            Event::Received { .. } => self.on_delivered(node, bytes, now),
            Event::Left { reason: LeaveReason::Silent, .. } if now >= self.start => {
                self.counters[node].silent += 1
            }
            Event::Joined { .. }
            | Event::Identity { .. }
            | Event::Left { .. }
            | Event::Query { .. }
            | Event::Rejected { .. } => {}
        }
    }

    fn on_sent(&mut self, meta: DatagramMeta, bytes: &[u8], sender: &dyn LabEngine) {
        let DatagramMeta { from, to, now, .. } = meta;
        if !sender.runs_in_frames() {
            self.handle_received_acks(from, now);
        }
        self.log_sent(meta, bytes.len(), SentItem::Datagram);
        self.record_datagram(meta, true, bytes);
        let mut sum = RunCounters { datagrams: 1, bytes: bytes.len() as u64, ..RunCounters::default() };
        let Ok(datagram) = Datagram::parse(bytes, None) else { return };
        for message in datagram.messages() {
            let len = message.wire_len();
            let item = match message {
                Message::Ack(ack) => {
                    (sum.acks, sum.ack_bytes) = (sum.acks + 1, sum.ack_bytes + len as u64);
                    SentItem::Ack(ack.id)
                }
                Message::Keepalive => {
                    sum.keepalives += 1;
                    SentItem::Keepalive
                }
                Message::Control(_) | Message::Data(_) => match message.id() {
                    Some(id) if self.directions.entry((from, to)).or_default().record_send(id) => {
                        (sum.retransmits, sum.retransmitted_bytes) =
                            (sum.retransmits + 1, sum.retransmitted_bytes + len as u64);
                        SentItem::Retransmission(id)
                    }
                    _ => SentItem::Other,
                },
            };
            self.log_sent(meta, len, item);
        }
        if now >= self.start {
            sum.max_ack_bytes = sum.ack_bytes;
            sum.crowded = u64::from(sum.ack_bytes > ACK_BYTES_BESIDE_LARGEST_MESSAGE);
            sum.max_acks = sum.acks;
            sum.max_messages = u64::from(datagram.count());
            self.counters[from] += sum;
        }
    }

    fn on_proxy_sent(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        self.record_datagram(meta, true, bytes);
        if let Some(proxy) = self.proxy_counters.as_mut().filter(|_| meta.now >= self.start) {
            let (acks, ack_bytes) = count_acks(bytes);
            let bytes = bytes.len() as u64;
            *proxy += RunCounters { datagrams: 1, bytes, acks, ack_bytes, ..RunCounters::default() };
        }
    }

    fn on_arrival(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        self.record_datagram(meta, false, bytes);
        let at_proxy = meta.to >= self.has_engine.len() && meta.now >= self.start;
        if let Some(proxy) = self.proxy_counters.as_mut().filter(|_| at_proxy) {
            proxy.ack_bytes_taken += count_acks(bytes).1;
        }
    }

    fn on_socket_read(&mut self, node: usize, from: usize, bytes: &[u8], engine: &dyn LabEngine, now: Time) {
        let Ok(datagram) = Datagram::parse(bytes, None) else { return };
        if self.has_engine.get(node) != Some(&true) {
            return;
        }
        let peer = datagram.sender();
        let acks = datagram.messages().filter_map(|message| match message {
            Message::Ack(ack) => Some((from, peer, ack.id)),
            Message::Keepalive | Message::Control(_) | Message::Data(_) => None,
        });
        self.received_acks.extend(acks);
        if !engine.runs_in_frames() {
            self.handle_received_acks(node, now);
        }
    }

    fn on_serviced(&mut self, node: usize, engine: &dyn LabEngine, now: Time) {
        // An engine with frames sends before it receives, so its ACKs are handled after its sends.
        self.handle_received_acks(node, now);
        if now < self.start {
            return;
        }
        for peer in engine.peers_with_queues() {
            let lengths @ QueueLengths { acks, retx, first } = engine.queue_lengths(peer, now);
            let old = self.queue_lengths.get(&(node, peer)).copied();
            // A peer that never has queue entries would only lower the mean.
            if acks + retx + first == 0 && old.is_none() {
                continue;
            }
            let queues = &mut self.counters[node].queues;
            queues.peak_acks = queues.peak_acks.max(acks);
            queues.peak_retx = queues.peak_retx.max(retx);
            queues.peak_first = queues.peak_first.max(first);
            let mut pending_since = old.and_then(|old| old.acks_pending_since);
            if let Some(old) = old {
                queues.add_interval(&old, now);
            }
            if acks == 0 {
                self.record_ack_lifetime(node, pending_since.take(), now);
            } else {
                pending_since = pending_since.or(Some(now));
            }
            let interval = QueueLengthInterval { since: now, lengths, acks_pending_since: pending_since };
            self.queue_lengths.insert((node, peer), interval);
        }
    }
}

/// Returns the number of ACKs in a datagram, and their bytes.
fn count_acks(bytes: &[u8]) -> (u64, u64) {
    let Ok(datagram) = Datagram::parse(bytes, None) else { return (0, 0) };
    let acks = datagram.messages().filter(|message| matches!(message, Message::Ack(_)));
    acks.fold((0, 0), |(count, bytes), ack| (count + 1, bytes + ack.wire_len() as u64))
}

/// Fills a payload with a marker, its number and bytes derived from that number, and cuts it at `len`.
fn fill_payload(payload: &mut Vec<u8>, number: u32, len: usize) {
    let head = [STAMP_MARKER].into_iter().chain(number.to_le_bytes());
    let mut word = number.wrapping_mul(0x9E37_79B9) | 1;
    let body = std::iter::repeat_with(|| {
        word = word.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        (word >> 24) as u8
    });
    payload.clear();
    payload.extend(head.chain(body).take(len));
}

/// Bytes for ACKs beside the largest message: a datagram has 510, the message takes 412.
const ACK_BYTES_BESIDE_LARGEST_MESSAGE: u64 = 510 - 412;
/// First byte of a payload with a number.
const STAMP_MARKER: u8 = 0x4C;
/// Minimum length of a payload with a number.
const STAMP_BYTES: usize = 5;
/// Largest distance in messages between two sends of one message.
///
/// If its id was last sent longer ago, the message is new: sequence numbers wrap around after 65,536 messages.
const MAX_RETRANSMIT_DISTANCE: u64 = 30_000;
