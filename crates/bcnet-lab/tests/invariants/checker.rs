//! Sees every datagram and every event of a run, and objects to what must not be.

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

/// How often everything of interest was seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ObservedCounters {
    pub(crate) reliable: u64,
    pub(crate) urgent: u64,
    pub(crate) unreliable: u64,
    pub(crate) split: u64,
    pub(crate) large: u64,
    /// Messages and parts that were sent again, and those of them before their timeout.
    pub(crate) retransmissions: u64,
    pub(crate) early_retransmissions: u64,
    /// Messages beyond the window.
    pub(crate) beyond_window: u64,
    /// Changed datagrams that reached an endpoint without making sense, and those that UDP kept back.
    pub(crate) unparsable: u64,
    pub(crate) dropped_by_checksum: u64,
    pub(crate) rejected: u64,
    /// Unreliable payloads that arrived.
    pub(crate) arrived: u64,
    /// Conversations that the network ended: of 45 s, nothing that was sent arrived.
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

/// One direction of one conversation.
#[derive(Default)]
struct DirectionRecord {
    /// The lengths of the reliable payloads, in the order in which they were sent.
    reliable: Vec<usize>,
    delivered: usize,
    /// How often each unreliable payload was put on the wire, came from it, and was delivered.
    unreliable: Vec<[u32; 3]>,
    /// How often each reliable message or part was sent, and when last.
    sent: HashMap<MessageId, (u32, Time)>,
    /// How often each arrived, and how often it was acknowledged.
    arrived: HashMap<MessageId, u32>,
    acknowledged: HashMap<MessageId, u32>,
    /// What is acknowledged though it is not kept.
    beyond_window: HashSet<MessageId>,
    /// When something arrived last, and how many datagrams have been sent since then, none of which arrived.
    last_arrival: Time,
    sent_since_arrival: u32,
    /// The network let nothing through for so long that the conversation is over.
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
    pub(crate) fn new(seed: u64, world: &World, tick: Duration, merciless: bool) -> Self {
        let clients = world.node(0).peers().count();
        let ids = (0..=clients).map(|node| world.node(node).id()).collect();
        let lanes = (1..=clients).flat_map(|client| [(0, client), (client, 0)]);
        let lanes = lanes
            .map(|lane| (lane, DirectionRecord { last_arrival: world.now(), ..DirectionRecord::default() }))
            .collect();
        Self {
            seed,
            tick,
            delivers_corrupted: merciless,
            ids,
            directions: lanes,
            observed: ObservedCounters::default(),
        }
    }

    pub(crate) fn perform(&mut self, world: &mut World, action: &PlannedAction) {
        let PlannedAction { from, to, operation: ref deed, .. } = *action;
        let lane = self.directions.get_mut(&(from, to)).expect("a client and the host");
        match *deed {
            PlannedOperation::FarAhead(ahead) => {
                let seq = Seq(u16::try_from(lane.reliable.len()).expect("few").wrapping_add(ahead));
                lane.beyond_window.insert(MessageId { channel: Channel::Game, seq, fragment: None });
                let mut buffer = [0; 64];
                let mut writer = Writer::new(&mut buffer, self.ids[from]);
                let data = Data { delivery: Delivery::Reliable(seq), urgent: false, payload: b"far" };
                assert!(writer.push(&Message::Data(data)));
                world.inject(from, to, writer.finish().expect("one message"));
                self.observed.beyond_window += 1;
            }
            PlannedOperation::Send { len, mode } => {
                if lane.ended {
                    return;
                }
                let loose = mode == DeliveryMode::Unreliable && (9..=409).contains(&len);
                // One that is too short to bear its number is sent reliably; one that is too long becomes so (T-67).
                let mode = if !loose && len < 9 { make_reliable(mode) } else { mode };
                let number = if loose { lane.unreliable.len() } else { lane.reliable.len() };
                let bytes = payload(self.seed, (from, to), number, len, loose);
                let now = world.now();
                if let Err(error) = world.node_mut(from).send(self.ids[to], &bytes, mode, now) {
                    return assert!(self.delivers_corrupted, "{from} to {to}: {error}");
                }
                if loose {
                    lane.unreliable.push([0; 3]);
                    self.observed.unreliable += 1;
                } else {
                    lane.reliable.push(len);
                    self.observed.reliable += 1;
                    self.observed.urgent += u64::from(mode == DeliveryMode::Urgent);
                    self.observed.split += u64::from(len > 407);
                    self.observed.large += u64::from(len > 90_000);
                }
            }
        }
    }

    /// Whether everything was delivered, and nothing waits anywhere.
    pub(crate) fn is_done(&self, world: &World) -> bool {
        self.directions.values().all(|lane| lane.ended || lane.delivered == lane.reliable.len())
            && self.snapshots(world).all(|snapshot| is_idle(&snapshot))
    }

    pub(crate) fn describe(&self, world: &World) -> String {
        let lanes = self.directions.iter().map(|((from, to), lane)| {
            format!("{from} to {to}: {} of {} delivered\n", lane.delivered, lane.reliable.len())
        });
        let queues = self.snapshots(world).filter(|snapshot| !is_idle(snapshot));
        let queues = queues.map(|snapshot| format!("{snapshot:?}\n"));
        format!("seed {} does not come to rest:\n{}", self.seed, lanes.chain(queues).collect::<String>())
    }

    /// What one peer may have waiting is limited, whatever it says.
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

    /// How often everything was seen in a run that has come to rest.
    pub(crate) fn into_observed(self) -> ObservedCounters {
        for ((from, to), lane) in
            self.directions.iter().filter(|(_, lane)| !lane.ended && !self.delivers_corrupted)
        {
            for id in &lane.beyond_window {
                let (arrived, acknowledged) = (lane.arrived.get(id), lane.acknowledged.get(id));
                assert_eq!(
                    arrived, acknowledged,
                    "{from} to {to}: {id} is beyond the window; it came, and was acknowledged"
                );
            }
        }
        self.observed
    }

    fn snapshots(&self, world: &World) -> impl Iterator<Item = Snapshot> {
        let on = self.directions.iter().filter(|(_, lane)| !lane.ended).map(|(ends, _)| ends);
        on.filter_map(|(from, to)| world.node(*from).snapshot(self.ids[*to], world.now()))
    }

    fn node(&self, id: PeerId) -> usize {
        self.ids.iter().position(|known| *known == id).expect("a peer that joined")
    }

    fn on_payload(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let seed = self.seed;
        let lane = self.directions.get_mut(&(from, to)).expect("a client and the host");
        if let [first, number @ ..] = bytes
            && first & 1 == 0
        {
            let number: [u8; 8] = number[..8].try_into().expect("a number");
            let number = usize::try_from(u64::from_le_bytes(number)).expect("small");
            assert!(
                bytes == payload(seed, (from, to), number, bytes.len(), true),
                "an unreliable payload differs"
            );
            let [_, arrived, delivered] = &mut lane.unreliable[number];
            *delivered += 1;
            assert!(
                delivered <= arrived,
                "unreliable payload {number} was delivered more often than it arrived"
            );
            self.observed.arrived += 1;
            return;
        }
        let number = lane.delivered;
        let len = lane.reliable.get(number).copied();
        let len = len.unwrap_or_else(|| panic!("{from} to {to}: a payload after the last, {number}"));
        let same = len == bytes.len() && bytes == payload(seed, (from, to), number, len, false);
        assert!(same, "{from} to {to}: payload {number} of {len} bytes is lost, or out of order");
        lane.delivered += 1;
    }

    /// T-56: the only reason to leave is that nothing was heard for 45 s, though the other end did not keep silent.
    fn on_left(&mut self, who: usize, from: usize, reason: LeaveReason, now: Time) {
        let Some(lane) = self.directions.get(&(who, from)) else {
            let known = self.directions.get(&(0, who)).is_some_and(|lane| lane.ended);
            return assert!(known, "at {now} node {from} hears that {who} left: {reason}");
        };
        if !lane.ended {
            let silent = now.since(lane.last_arrival);
            assert_eq!(reason, LeaveReason::Silent, "at {now} {who} left node {from}");
            assert!(
                silent >= Duration::from_secs(45),
                "at {now} {who} left node {from}: silent for {silent:?} only"
            );
            assert!(
                lane.sent_since_arrival >= 8,
                "{who} has sent only {} datagrams to {from} in {silent:?}",
                lane.sent_since_arrival
            );
            self.observed.timed_out += 1;
        }
        for ends in [(who, from), (from, who)] {
            self.directions.entry(ends).or_default().ended = true;
        }
    }

    fn on_ack_sent(&mut self, from: usize, to: usize, id: MessageId) {
        let lane = self.directions.get_mut(&(to, from)).expect("a client and the host");
        let acknowledged = lane.acknowledged.entry(id).or_default();
        *acknowledged += 1;
        let arrived = lane.arrived.get(&id).copied().unwrap_or(0);
        assert!(
            *acknowledged <= arrived,
            "node {from} acknowledges {id} {acknowledged} times, it came {arrived} times"
        );
    }

    fn on_message_sent(&mut self, from: usize, to: usize, id: MessageId, sender: &Endpoint, now: Time) {
        let lane = self.directions.get_mut(&(from, to)).expect("a client and the host");
        let (sends, last) = lane.sent.entry(id).or_insert((0, now));
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
                    assert_eq!(*sends, 1, "an unreliable message is sent again");
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
        let lane = self.directions.entry((from, to)).or_default();
        (lane.last_arrival, lane.sent_since_arrival) = (now, 0);
        for message in parse(from, bytes).messages() {
            match (message, message.id()) {
                (Message::Ack(_), _) => {}
                (_, Some(id)) => {
                    let lane = self.directions.get_mut(&(from, to)).expect("a client and the host");
                    *lane.arrived.entry(id).or_default() += 1;
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
        let number: [u8; 8] = payload[1..9].try_into().expect("a number");
        let lane = self.directions.get_mut(&(from, to)).expect("a client and the host");
        &mut lane.unreliable[usize::try_from(u64::from_le_bytes(number)).expect("small")]
    }
}

fn parse(from: usize, bytes: &[u8]) -> Datagram<'_> {
    let role = if from == 0 { Role::Host } else { Role::Client };
    Datagram::parse(bytes, Some(role)).expect("an endpoint sends what can be read")
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

/// The bytes of a payload, which follow from its number. The first bit tells the unreliable ones, which also bear
/// their number.
fn payload(seed: u64, (from, to): (usize, usize), number: usize, len: usize, loose: bool) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let lane = (from as u64) << 8 | (to as u64) << 16 | u64::from(loose);
    Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ lane ^ (number as u64) << 32).fill(&mut bytes);
    if let Some(first) = bytes.first_mut() {
        *first = *first & !1 | u8::from(!loose);
    }
    if loose {
        bytes[1..9].copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}
