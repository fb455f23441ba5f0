//! Observes every datagram and event of a run and panics if an invariant is violated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::AddAssign;
use std::time::Duration;

use bcnet_lab::{DatagramMeta, Rng, World, WorldObserver};
use bcnet_transport::wire::Writer;
use bcnet_transport::wire::{
    Channel, Data, Datagram, Delivery, MAX_DATAGRAM, Message, MessageId, PeerId, Role, Seq,
};
use bcnet_transport::{Config, DeliveryMode, Endpoint, Engine, Event, LeaveReason, Snapshot, Time};

use crate::plan::{PlannedAction, PlannedOperation};

/// Counters of the observed events.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ObservedCounters {
    pub(crate) reliable: u64,
    pub(crate) urgent: u64,
    pub(crate) unreliable: u64,
    pub(crate) split: u64,
    pub(crate) large: u64,
    /// Messages and fragments retransmitted, and those of them that were retransmitted before their timeout.
    pub(crate) retransmissions: u64,
    pub(crate) early_retransmissions: u64,
    /// Messages beyond the receive window.
    pub(crate) beyond_window: u64,
    /// Corrupted datagrams that reached an endpoint and did not parse, and those that the UDP checksum
    /// dropped.
    pub(crate) unparsable: u64,
    pub(crate) dropped_by_checksum: u64,
    pub(crate) rejected: u64,
    /// Unreliable payloads that arrived.
    pub(crate) arrived: u64,
    /// Connections that the network ended: nothing arrived for 45 s.
    pub(crate) timed_out: u64,
}

impl AddAssign for ObservedCounters {
    fn add_assign(&mut self, other: Self) {
        self.reliable += other.reliable;
        self.urgent += other.urgent;
        self.unreliable += other.unreliable;
        self.split += other.split;
        self.large += other.large;
        self.retransmissions += other.retransmissions;
        self.early_retransmissions += other.early_retransmissions;
        self.beyond_window += other.beyond_window;
        self.unparsable += other.unparsable;
        self.dropped_by_checksum += other.dropped_by_checksum;
        self.rejected += other.rejected;
        self.arrived += other.arrived;
        self.timed_out += other.timed_out;
    }
}

/// One direction between two nodes.
#[derive(Default)]
struct DirectionRecord {
    /// Lengths of the reliable payloads, in the order of sending.
    reliable: Vec<usize>,
    delivered: usize,
    /// Counts of each unreliable payload: sends, arrivals, deliveries.
    unreliable: Vec<[u32; 3]>,
    /// Number of sends of each reliable message or fragment, and the time of the last send.
    sent: HashMap<MessageId, (u32, Time)>,
    /// Number of arrivals of each message, and number of its ACKs.
    arrived: HashMap<MessageId, u32>,
    acknowledged: HashMap<MessageId, u32>,
    /// Messages that are acknowledged although they are dropped.
    beyond_window: HashSet<MessageId>,
    /// Time of the last arrival, and the number of datagrams sent since then. None of them has arrived.
    last_arrival: Time,
    sent_since_arrival: u32,
    /// `true` if the network dropped everything for so long that the connection is over.
    ended: bool,
}

pub(crate) struct InvariantChecker {
    seed: u64,
    tick: Duration,
    delivers_corrupted: bool,
    ids: Vec<PeerId>,
    directions: BTreeMap<(usize, usize), DirectionRecord>,
    observed: ObservedCounters,
}

impl InvariantChecker {
    pub(crate) fn new(seed: u64, world: &World, tick: Duration, delivers_corrupted: bool) -> Self {
        let clients = world.node(0).peers().count();
        let ids = (0..=clients).map(|node| world.node(node).id()).collect();
        let directions = (1..=clients).flat_map(|client| [(0, client), (client, 0)]);
        let directions = directions
            .map(|direction| {
                (direction, DirectionRecord { last_arrival: world.now(), ..DirectionRecord::default() })
            })
            .collect();
        Self { seed, tick, delivers_corrupted, ids, directions, observed: ObservedCounters::default() }
    }

    pub(crate) fn perform(&mut self, world: &mut World, action: &PlannedAction) {
        let PlannedAction { from, to, ref operation, .. } = *action;
        let direction = self.directions.get_mut(&(from, to)).expect("one of the nodes is the host");
        match *operation {
            PlannedOperation::FarAhead(ahead) => {
                let seq = Seq(u16::try_from(direction.reliable.len()).expect("few").wrapping_add(ahead));
                direction.beyond_window.insert(MessageId { channel: Channel::Game, seq, fragment: None });
                let mut buffer = [0; 64];
                let mut writer = Writer::new(&mut buffer, self.ids[from]);
                let data = Data { delivery: Delivery::Reliable(seq), urgent: false, payload: b"far" };
                assert!(writer.push(&Message::Data(data)));
                world.inject(from, to, writer.finish().expect("one message"));
                self.observed.beyond_window += 1;
            }
            PlannedOperation::Send { len, mode } => {
                if direction.ended {
                    return;
                }
                let unreliable = mode == DeliveryMode::Unreliable && (9..=409).contains(&len);
                // A payload too short for its number is sent reliably. A payload too long for one message
                // becomes reliable (T-67).
                let mode = if !unreliable && len < 9 { make_reliable(mode) } else { mode };
                let number = if unreliable { direction.unreliable.len() } else { direction.reliable.len() };
                let bytes = payload(self.seed, (from, to), number, len, unreliable);
                let now = world.now();
                if let Err(error) = world.node_mut(from).send(self.ids[to], &bytes, mode, now) {
                    return assert!(self.delivers_corrupted, "{from} to {to}: {error}");
                }
                if unreliable {
                    direction.unreliable.push([0; 3]);
                    self.observed.unreliable += 1;
                } else {
                    direction.reliable.push(len);
                    self.observed.reliable += 1;
                    self.observed.urgent += u64::from(mode == DeliveryMode::Urgent);
                    self.observed.split += u64::from(len > 407);
                    self.observed.large += u64::from(len > 90_000);
                }
            }
        }
    }

    /// Returns whether every payload was delivered and all queues are empty.
    pub(crate) fn is_done(&self, world: &World) -> bool {
        self.directions
            .values()
            .all(|direction| direction.ended || direction.delivered == direction.reliable.len())
            && self.snapshots(world).all(|snapshot| is_idle(&snapshot))
    }

    pub(crate) fn describe(&self, world: &World) -> String {
        let directions = self.directions.iter().map(|((from, to), direction)| {
            format!("{from} to {to}: {} of {} delivered\n", direction.delivered, direction.reliable.len())
        });
        let queues = self.snapshots(world).filter(|snapshot| !is_idle(snapshot));
        let queues = queues.map(|snapshot| format!("{snapshot:?}\n"));
        format!(
            "seed {} has undelivered messages:\n{}",
            self.seed,
            directions.chain(queues).collect::<String>()
        )
    }

    /// Asserts that the queues for each peer stay within their limits.
    pub(crate) fn check_limits(&self, world: &World, config: &Config) {
        for snapshot in self.snapshots(world) {
            assert!(snapshot.queued_bytes <= config.max_queued_bytes, "{snapshot:?}");
            for receiving in &snapshot.inboxes {
                assert!(
                    receiving.out_of_order_bytes <= config.max_out_of_order_bytes + (160 << 10),
                    "{receiving:?}"
                );
            }
        }
    }

    /// Returns the counters of a run that is done.
    pub(crate) fn into_observed(self) -> ObservedCounters {
        for ((from, to), direction) in
            self.directions.iter().filter(|(_, direction)| !direction.ended && !self.delivers_corrupted)
        {
            for id in &direction.beyond_window {
                let (arrived, acknowledged) = (direction.arrived.get(id), direction.acknowledged.get(id));
                assert_eq!(
                    arrived, acknowledged,
                    "{from} to {to}: {id} is beyond the window: its counts of arrivals and ACKs differ"
                );
            }
        }
        self.observed
    }

    fn snapshots(&self, world: &World) -> impl Iterator<Item = Snapshot> {
        let on = self.directions.iter().filter(|(_, direction)| !direction.ended).map(|(ends, _)| ends);
        on.filter_map(|(from, to)| world.node(*from).snapshot(self.ids[*to], world.now()))
    }

    fn node(&self, id: PeerId) -> usize {
        self.ids.iter().position(|known| *known == id).expect("the peer has joined")
    }

    fn on_payload(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let seed = self.seed;
        let direction = self.directions.get_mut(&(from, to)).expect("one of the nodes is the host");
        if let [first, number @ ..] = bytes
            && first & 1 == 0
        {
            let number: [u8; 8] = number[..8].try_into().expect("the payload has a number");
            let number = usize::try_from(u64::from_le_bytes(number)).expect("small");
            assert!(
                bytes == payload(seed, (from, to), number, bytes.len(), true),
                "an unreliable payload has changed bytes"
            );
            let [_, arrived, delivered] = &mut direction.unreliable[number];
            *delivered += 1;
            assert!(
                delivered <= arrived,
                "unreliable payload {number} was delivered more often than it arrived"
            );
            self.observed.arrived += 1;
            return;
        }
        let number = direction.delivered;
        let len = direction.reliable.get(number).copied();
        let len = len.unwrap_or_else(|| panic!("{from} to {to}: payload {number} was never sent"));
        let same = len == bytes.len() && bytes == payload(seed, (from, to), number, len, false);
        assert!(same, "{from} to {to}: payload {number} of {len} bytes is lost, or out of order");
        direction.delivered += 1;
    }

    /// T-56: the only reason for a node to leave is 45 s of silence, although the other node was sending.
    fn on_left(&mut self, who: usize, from: usize, reason: LeaveReason, now: Time) {
        let Some(direction) = self.directions.get(&(who, from)) else {
            let known = self.directions.get(&(0, who)).is_some_and(|direction| direction.ended);
            return assert!(known, "at {now} node {from} reports that unknown node {who} left: {reason}");
        };
        if !direction.ended {
            let silent = now.since(direction.last_arrival);
            assert_eq!(reason, LeaveReason::Silent, "at {now} {who} left node {from}");
            assert!(
                silent >= Duration::from_secs(45),
                "at {now} {who} left node {from}: silent for {silent:?} only"
            );
            assert!(
                direction.sent_since_arrival >= 8,
                "{who} has sent only {} datagrams to {from} in {silent:?}",
                direction.sent_since_arrival
            );
            self.observed.timed_out += 1;
        }
        for ends in [(who, from), (from, who)] {
            self.directions.entry(ends).or_default().ended = true;
        }
    }

    fn on_ack_sent(&mut self, from: usize, to: usize, id: MessageId) {
        let direction = self.directions.get_mut(&(to, from)).expect("one of the nodes is the host");
        let acknowledged = direction.acknowledged.entry(id).or_default();
        *acknowledged += 1;
        let arrived = direction.arrived.get(&id).copied().unwrap_or(0);
        assert!(
            *acknowledged <= arrived,
            "node {from} acknowledges {id} {acknowledged} times, but it arrived {arrived} times"
        );
    }

    fn on_message_sent(&mut self, from: usize, to: usize, id: MessageId, sender: &Endpoint, now: Time) {
        let direction = self.directions.get_mut(&(from, to)).expect("one of the nodes is the host");
        let (sends, last) = direction.sent.entry(id).or_insert((0, now));
        *sends += 1;
        if *sends > 1 {
            self.observed.retransmissions += 1;
            let timeout = sender.snapshot(self.ids[to], now).map(|snapshot| snapshot.rto);
            self.observed.early_retransmissions +=
                u64::from(timeout.is_some_and(|timeout| now.since(*last) + self.tick < timeout));
        }
        *last = now;
    }
}

impl WorldObserver for InvariantChecker {
    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], _: &mut Endpoint, now: Time) {
        match event {
            Event::Rejected { .. } => self.observed.rejected += 1,
            _ if self.delivers_corrupted => {}
            Event::Received { peer, .. } => self.on_payload(self.node(peer), node, bytes),
            Event::Left { peer, reason } => self.on_left(self.node(peer), node, reason, now),
            _ => {}
        }
    }

    fn on_sent(&mut self, meta: DatagramMeta, bytes: &[u8], sender: &Endpoint) {
        let DatagramMeta { from, to, now, .. } = meta;
        assert!(bytes.len() <= MAX_DATAGRAM, "a datagram of {} bytes", bytes.len());
        if self.delivers_corrupted {
            return;
        }
        self.directions.entry((from, to)).or_default().sent_since_arrival += 1;
        for message in parse(from, bytes).messages() {
            match (message, message.id()) {
                (Message::Ack(ack), _) => self.on_ack_sent(from, to, ack.id),
                (_, Some(id)) => self.on_message_sent(from, to, id, sender, now),
                (Message::Data(data), None) => {
                    let sends = &mut self.unreliable_counters(from, to, data.payload)[0];
                    *sends += 1;
                    assert_eq!(*sends, 1, "an unreliable message was retransmitted");
                }
                _ => {}
            }
        }
    }

    fn on_arrival(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        let DatagramMeta { from, to, now, .. } = meta;
        if self.delivers_corrupted {
            return;
        }
        let direction = self.directions.entry((from, to)).or_default();
        (direction.last_arrival, direction.sent_since_arrival) = (now, 0);
        for message in parse(from, bytes).messages() {
            match (message, message.id()) {
                (Message::Ack(_), _) => {}
                (_, Some(id)) => {
                    let direction =
                        self.directions.get_mut(&(from, to)).expect("one of the nodes is the host");
                    *direction.arrived.entry(id).or_default() += 1;
                }
                (Message::Data(data), None) => self.unreliable_counters(from, to, data.payload)[1] += 1,
                _ => {}
            }
        }
    }

    fn on_corrupted(&mut self, _: DatagramMeta, bytes: &[u8]) -> bool {
        let parses =
            [Role::Host, Role::Client].iter().any(|role| Datagram::parse(bytes, Some(*role)).is_ok());
        self.observed.dropped_by_checksum += u64::from(parses && !self.delivers_corrupted);
        self.observed.unparsable += u64::from(!parses);
        self.delivers_corrupted || !parses
    }
}

impl InvariantChecker {
    fn unreliable_counters(&mut self, from: usize, to: usize, payload: &[u8]) -> &mut [u32; 3] {
        let number: [u8; 8] = payload[1..9].try_into().expect("the payload has a number");
        let direction = self.directions.get_mut(&(from, to)).expect("one of the nodes is the host");
        &mut direction.unreliable[usize::try_from(u64::from_le_bytes(number)).expect("small")]
    }
}

fn parse(from: usize, bytes: &[u8]) -> Datagram<'_> {
    let role = if from == 0 { Role::Host } else { Role::Client };
    Datagram::parse(bytes, Some(role)).expect("an endpoint sends valid datagrams")
}

fn is_idle(snapshot: &Snapshot) -> bool {
    let Snapshot {
        pending_acks: acks,
        unacknowledged,
        unsent: fresh,
        queued_bytes,
        inboxes: receiving,
        in_flight,
        ..
    } = snapshot;
    let receiving =
        receiving.iter().all(|channel| (channel.out_of_order, channel.out_of_order_bytes) == (0, 0));
    acks.is_empty()
        && unacknowledged.is_empty()
        && (*fresh, *queued_bytes, *in_flight) == (0, 0, 0)
        && receiving
}

fn make_reliable(mode: DeliveryMode) -> DeliveryMode {
    if mode == DeliveryMode::Unreliable { DeliveryMode::Reliable } else { mode }
}

/// Returns the bytes of a payload, derived from its number.
///
/// The first bit marks unreliable payloads, which also have their number.
fn payload(seed: u64, (from, to): (usize, usize), number: usize, len: usize, unreliable: bool) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let direction = (from as u64) << 8 | (to as u64) << 16 | u64::from(unreliable);
    Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ direction ^ (number as u64) << 32).fill(&mut bytes);
    if let Some(first) = bytes.first_mut() {
        *first = *first & !1 | u8::from(!unreliable);
    }
    if unreliable {
        bytes[1..9].copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}
