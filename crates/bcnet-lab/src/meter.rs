//! Measures a run from what goes over the wire, so that all engines are measured alike.
//!
//! Only the queues and the comparisons are asked of the engines themselves.

use std::collections::{BTreeMap, HashMap, HashSet};

use bcnet_transport::wire::{Ack, Channel, Datagram, Message, MessageId, PeerId};
use bcnet_transport::{Event, Leave, Time};

use crate::engine::LabEngine;
use crate::observer::{DatagramMeta, Observer};
use crate::stock::{HandledAck, Lengths};
use crate::totals::{QueueLength, Totals};

/// Something that was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Log {
    pub(crate) at: Time,
    pub(crate) from: usize,
    pub(crate) len: u32,
    pub(crate) what: Sent,
}

impl Log {
    /// Returns when it was sent, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.at.as_micros() as f64 / 1e6
    }
}

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sent {
    /// A whole datagram; its messages follow.
    Datagram,
    Ack(MessageId),
    Again(MessageId),
    Keepalive,
    Other,
}

impl Sent {
    pub(crate) const fn part(&self) -> Option<u8> {
        match self {
            Self::Ack(id) | Self::Again(id) => id.part,
            Self::Datagram | Self::Keepalive | Self::Other => None,
        }
    }
}

/// A payload that was given to an engine.
#[derive(Debug)]
struct Payload {
    at: Time,
    from: usize,
    len: usize,
    reliable: bool,
    delivered: bool,
}

/// A datagram of a run, in the clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenDatagram {
    /// Which it is, and when it was seen. A proxy has the number behind the last node's, and one for each address toward the
    /// host behind that.
    pub meta: DatagramMeta,
    /// Whether it is sent now, or arrives.
    pub sent: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// How long a reliable payload took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The number of the node that sent it.
    pub from: usize,
    /// When it was given to the engine.
    pub at: Time,
    /// How many microseconds later it was delivered.
    pub micros: u32,
}

/// What went one way between two nodes.
#[derive(Debug, Default)]
struct Lane {
    /// How many reliable messages and parts were sent.
    sent: u64,
    /// When each number was sent, counted in such messages. Numbers come round again.
    known: HashMap<MessageId, u64>,
    /// What was sent and is not acknowledged.
    waiting: HashSet<MessageId>,
}

impl Lane {
    /// Notes a transmission; tells whether it is one of the same message again.
    fn note(&mut self, id: MessageId) -> bool {
        self.sent += 1;
        let again = self.known.insert(id, self.sent).is_some_and(|last| self.sent - last < ROUND);
        if !again {
            self.waiting.insert(id);
        }
        again
    }
}

/// Watches a run.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Nothing counts before.
    start: Time,
    /// Which nodes are there at all.
    present: Vec<bool>,
    pub(crate) totals: Vec<Totals>,
    /// What the proxy did, if there is one.
    pub(crate) proxy: Option<Totals>,
    lanes: HashMap<(usize, usize), Lane>,
    payloads: Vec<Payload>,
    pub(crate) delays: Vec<Delay>,
    lengths: BTreeMap<(usize, PeerId), QueueLength>,
    /// ACKs that were taken out of a socket in this service: from where, for what.
    taken: Vec<(usize, PeerId, MessageId)>,
    pub(crate) log: Option<Vec<Log>>,
    pub(crate) trace: Option<Vec<(usize, HandledAck)>>,
    /// What was sent and has arrived since it was last taken away, if anybody asks.
    pub(crate) seen: Option<Vec<SeenDatagram>>,
}

impl Meter {
    pub(crate) fn new(present: Vec<bool>, start: Time) -> Self {
        Self {
            start,
            totals: vec![Totals::default(); present.len()],
            present,
            proxy: None,
            lanes: HashMap::new(),
            payloads: Vec::new(),
            delays: Vec::new(),
            lengths: BTreeMap::new(),
            taken: Vec::new(),
            log: None,
            trace: None,
            seen: None,
        }
    }

    /// A payload of `len` bytes that will be known again, with its number.
    pub(crate) fn stamp(&mut self, payload: &mut Vec<u8>, from: usize, len: usize, reliable: bool, at: Time) {
        let number = u32::try_from(self.payloads.len()).unwrap_or(u32::MAX);
        fill(payload, number, len);
        self.payloads.push(Payload { at, from, len, reliable, delivered: len < STAMP });
    }

    /// The engine took or refused a payload.
    pub(crate) fn gave(&mut self, from: usize, taken: bool, stamped: bool) {
        let Some(totals) = self.totals.get_mut(from) else { return };
        if taken {
            totals.payloads += 1;
        } else {
            totals.refused += 1;
            if let Some(payload) = self.payloads.last_mut().filter(|_| stamped) {
                payload.delivered = true;
            }
        }
    }

    /// Keeps a datagram for whoever asks.
    pub(crate) fn see(&mut self, meta: DatagramMeta, sent: bool, bytes: &[u8]) {
        if let Some(seen) = &mut self.seen {
            seen.push(SeenDatagram { meta, sent, bytes: bytes.to_vec() });
        }
    }

    /// Closes the books.
    pub(crate) fn finish(&mut self, now: Time) {
        for ((node, _), length) in std::mem::take(&mut self.lengths) {
            self.totals[node].queues.add(&length, now);
            self.note_owing(node, length.owing, now);
        }
        for payload in self.payloads.iter().filter(|payload| payload.reliable && !payload.delivered) {
            self.totals[payload.from].missing += 1;
        }
    }

    /// An ACK has reached the engine of a node.
    fn handled(&mut self, node: usize, from: usize, peer: PeerId, id: MessageId, now: Time) {
        let lane = self.lanes.entry((node, from)).or_default();
        let empty = lane.waiting.is_empty();
        let mut waiting: Vec<MessageId> =
            self.trace.iter().flat_map(|_| lane.waiting.iter().copied()).collect();
        waiting.sort_by_key(|id| (id.channel == Channel::Game, id.seq.0, id.part));
        let useful = lane.waiting.remove(&id);
        if now < self.start {
            return;
        }
        let totals = &mut self.totals[node];
        totals.ack_bytes_taken += Message::Ack(Ack::new(id)).wire_len() as u64;
        totals.useful_acks += u64::from(useful);
        totals.useless_acks += u64::from(!useful);
        totals.empty_acks += u64::from(empty);
        if let Some(trace) = &mut self.trace {
            let at = Time::ZERO + now.since(self.start);
            trace.push((node, HandledAck { at, peer, id, waiting, useful }));
        }
    }

    /// There were ACKs in an outbox since then.
    fn note_owing(&mut self, node: usize, since: Option<Time>, now: Time) {
        if let Some(since) = since {
            let longest = &mut self.totals[node].longest_ack;
            *longest = (*longest).max(now.since(since));
        }
    }

    fn handle_taken(&mut self, node: usize, now: Time) {
        let mut taken = std::mem::take(&mut self.taken);
        for (from, peer, id) in taken.drain(..) {
            self.handled(node, from, peer, id, now);
        }
        self.taken = taken;
    }

    fn note_log(&mut self, meta: DatagramMeta, len: usize, what: Sent) {
        if let Some(log) = self.log.as_mut().filter(|_| meta.now >= self.start) {
            let (at, len) = (Time::ZERO + meta.now.since(self.start), u32::try_from(len).unwrap_or(0));
            log.push(Log { at, from: meta.from, len, what });
        }
    }

    fn deliver(&mut self, node: usize, bytes: &[u8], now: Time) {
        if now < self.start {
            return;
        }
        self.totals[node].delivered += 1;
        let Some(number) = bytes.get(1..STAMP).filter(|_| bytes.first() == Some(&MARK)) else { return };
        let number = u32::from_le_bytes(number.try_into().unwrap_or_default());
        let Some(payload) = self.payloads.get_mut(number as usize) else { return };
        let mut sent = Vec::new();
        fill(&mut sent, number, payload.len);
        if sent != bytes {
            self.totals[node].garbled += 1;
        } else if !payload.delivered {
            payload.delivered = true;
            if payload.reliable {
                let delay = u32::try_from(now.since(payload.at).as_micros()).unwrap_or(u32::MAX);
                let at = Time::ZERO + payload.at.since(self.start);
                self.delays.push(Delay { from: payload.from, at, micros: delay });
            }
        }
    }
}

impl Observer<dyn LabEngine> for Meter {
    fn on_event(
        &mut self,
        node: usize,
        event: Event,
        bytes: &[u8],
        engine: &mut (dyn LabEngine + 'static),
        now: Time,
    ) {
        match event {
            // It may have given up. A node that is nobody says what a scenario tells it, so nothing more is asked of it.
            Event::Request { from, .. } if self.present.iter().all(|is_there| *is_there) => {
                let _ = engine.challenge(from, now);
            }
            Event::Request { from, .. } => drop(engine.admit(from, now)),
            Event::Received { .. } => self.deliver(node, bytes, now),
            Event::Left { reason: Leave::Silent, .. } if now >= self.start => self.totals[node].silent += 1,
            Event::Joined { .. }
            | Event::Identity { .. }
            | Event::Left { .. }
            | Event::Query { .. }
            | Event::Rejected { .. } => {}
        }
    }

    fn on_sent(&mut self, meta: DatagramMeta, bytes: &[u8], sender: &dyn LabEngine) {
        let DatagramMeta { from, to, now, .. } = meta;
        if !sender.has_frames() {
            self.handle_taken(from, now);
        }
        self.note_log(meta, bytes.len(), Sent::Datagram);
        self.see(meta, true, bytes);
        let mut sum = Totals { datagrams: 1, bytes: bytes.len() as u64, ..Totals::default() };
        let Ok(datagram) = Datagram::parse(bytes, None) else { return };
        for message in datagram.messages() {
            let len = message.wire_len();
            let what = match message {
                Message::Ack(ack) => {
                    (sum.acks, sum.ack_bytes) = (sum.acks + 1, sum.ack_bytes + len as u64);
                    Sent::Ack(ack.id)
                }
                Message::Keepalive => {
                    sum.keepalives += 1;
                    Sent::Keepalive
                }
                Message::Control(_) | Message::Data(_) => match message.id() {
                    Some(id) if self.lanes.entry((from, to)).or_default().note(id) => {
                        (sum.retransmits, sum.again_bytes) =
                            (sum.retransmits + 1, sum.again_bytes + len as u64);
                        Sent::Again(id)
                    }
                    _ => Sent::Other,
                },
            };
            self.note_log(meta, len, what);
        }
        if now >= self.start {
            sum.max_ack_bytes = sum.ack_bytes;
            sum.crowded = u64::from(sum.ack_bytes > CROWD);
            sum.max_acks = sum.acks;
            sum.max_messages = u64::from(datagram.count());
            self.totals[from] += sum;
        }
    }

    fn on_passed(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        self.see(meta, true, bytes);
        if let Some(proxy) = self.proxy.as_mut().filter(|_| meta.now >= self.start) {
            let (acks, ack_bytes) = acks_of(bytes);
            let bytes = bytes.len() as u64;
            *proxy += Totals { datagrams: 1, bytes, acks, ack_bytes, ..Totals::default() };
        }
    }

    fn on_arrival(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        self.see(meta, false, bytes);
        let at_proxy = meta.to >= self.present.len() && meta.now >= self.start;
        if let Some(proxy) = self.proxy.as_mut().filter(|_| at_proxy) {
            proxy.ack_bytes_taken += acks_of(bytes).1;
        }
    }

    fn on_taken(&mut self, node: usize, from: usize, bytes: &[u8], engine: &dyn LabEngine, now: Time) {
        let Ok(datagram) = Datagram::parse(bytes, None) else { return };
        if self.present.get(node) != Some(&true) {
            return;
        }
        let peer = datagram.sender();
        let acks = datagram.messages().filter_map(|message| match message {
            Message::Ack(ack) => Some((from, peer, ack.id)),
            Message::Keepalive | Message::Control(_) | Message::Data(_) => None,
        });
        self.taken.extend(acks);
        if !engine.has_frames() {
            self.handle_taken(node, now);
        }
    }

    fn on_serviced(&mut self, node: usize, engine: &dyn LabEngine, now: Time) {
        // A frame sends before it receives.
        self.handle_taken(node, now);
        if now < self.start {
            return;
        }
        for peer in engine.entries() {
            let lengths @ Lengths { acks, retx, first } = engine.lengths(peer, now);
            let old = self.lengths.get(&(node, peer)).copied();
            // A peer that never gets anything would only thin out the mean.
            if acks + retx + first == 0 && old.is_none() {
                continue;
            }
            let queues = &mut self.totals[node].queues;
            queues.peak_acks = queues.peak_acks.max(acks);
            queues.peak_retx = queues.peak_retx.max(retx);
            queues.peak_first = queues.peak_first.max(first);
            let mut owing = old.and_then(|old| old.owing);
            if let Some(old) = old {
                queues.add(&old, now);
            }
            if acks == 0 {
                self.note_owing(node, owing.take(), now);
            } else {
                owing = owing.or(Some(now));
            }
            self.lengths.insert((node, peer), QueueLength { since: now, lengths, owing });
        }
    }
}

/// Returns how many ACKs a datagram has, and their bytes.
fn acks_of(bytes: &[u8]) -> (u64, u64) {
    let Ok(datagram) = Datagram::parse(bytes, None) else { return (0, 0) };
    let acks = datagram.messages().filter(|message| matches!(message, Message::Ack(_)));
    acks.fold((0, 0), |(count, bytes), ack| (count + 1, bytes + ack.wire_len() as u64))
}

/// Makes a payload that tells its number, if it is long enough, and in which every byte is told by the number.
fn fill(payload: &mut Vec<u8>, number: u32, len: usize) {
    let head = [MARK].into_iter().chain(number.to_le_bytes());
    let mut word = number.wrapping_mul(0x9E37_79B9) | 1;
    let body = std::iter::repeat_with(|| {
        word = word.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        (word >> 24) as u8
    });
    payload.clear();
    payload.extend(head.chain(body).take(len));
}

/// Of the 510 bytes of a datagram, the largest message takes 412.
const CROWD: u64 = 510 - 412;
/// The first byte of a payload with a number.
const MARK: u8 = 0x4C;
/// How long a payload is at least that has a number.
const STAMP: usize = 5;
/// A number is used again after 65,536 messages; no message is repeated that long.
const ROUND: u64 = 30_000;
