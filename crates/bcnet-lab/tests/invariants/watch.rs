//! Sees every datagram and every event of a run, and objects to what must not be.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::AddAssign;
use std::time::Duration;

use bcnet_lab::{DatagramMeta, Observer, Rng, World};
use bcnet_transport::wire::Writer;
use bcnet_transport::wire::{
    Channel, Data, Datagram, Delivery, MAX_DATAGRAM, Message, MessageId, PeerId, Role, Seq,
};
use bcnet_transport::{Config, Endpoint, Engine, Event, Leave, Quality, Snapshot, Time};

use crate::plan::{Action, Deed};

/// How often everything of interest was seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reliable: u64,
    pub(crate) urgent: u64,
    pub(crate) unreliable: u64,
    pub(crate) split: u64,
    pub(crate) large: u64,
    /// Messages and parts that were sent again, and those of them before their timeout.
    pub(crate) resends: u64,
    pub(crate) fast: u64,
    /// Messages beyond the window.
    pub(crate) far: u64,
    /// Changed datagrams that reached an endpoint without making sense, and those that UDP kept back.
    pub(crate) unparsable: u64,
    pub(crate) caught: u64,
    pub(crate) rejected: u64,
    /// Unreliable payloads that arrived.
    pub(crate) arrived: u64,
    /// Conversations that the network ended: of 45 s, nothing that was sent arrived.
    pub(crate) silenced: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.reliable += other.reliable;
        self.urgent += other.urgent;
        self.unreliable += other.unreliable;
        self.split += other.split;
        self.large += other.large;
        self.resends += other.resends;
        self.fast += other.fast;
        self.far += other.far;
        self.unparsable += other.unparsable;
        self.caught += other.caught;
        self.rejected += other.rejected;
        self.arrived += other.arrived;
        self.silenced += other.silenced;
    }
}

/// One direction of one conversation.
#[derive(Default)]
struct Lane {
    /// The lengths of the reliable payloads, in the order in which they were sent.
    reliable: Vec<usize>,
    delivered: usize,
    /// How often each unreliable payload was put on the wire, came from it, and was delivered.
    loose: Vec<[u32; 3]>,
    /// How often each reliable message or part was sent, and when last.
    sent: HashMap<MessageId, (u32, Time)>,
    /// How often each arrived, and how often it was acknowledged.
    arrived: HashMap<MessageId, u32>,
    acknowledged: HashMap<MessageId, u32>,
    /// What is acknowledged though it is not kept.
    far: HashSet<MessageId>,
    /// When something arrived last, and how many datagrams have been sent since then, none of which arrived.
    heard: Time,
    unheard: u32,
    /// The network let nothing through for so long that the conversation is over.
    over: bool,
}

pub(crate) struct Watch {
    seed: u64,
    tick: Duration,
    merciless: bool,
    ids: Vec<PeerId>,
    lanes: BTreeMap<(usize, usize), Lane>,
    counts: Counts,
}

impl Watch {
    pub(crate) fn new(seed: u64, world: &World, tick: Duration, merciless: bool) -> Self {
        let clients = world.node(0).peers().count();
        let ids = (0..=clients).map(|node| world.node(node).id()).collect();
        let lanes = (1..=clients).flat_map(|client| [(0, client), (client, 0)]);
        let lanes = lanes.map(|lane| (lane, Lane { heard: world.now(), ..Lane::default() })).collect();
        Self { seed, tick, merciless, ids, lanes, counts: Counts::default() }
    }

    pub(crate) fn act(&mut self, world: &mut World, action: &Action) {
        let Action { from, to, ref deed, .. } = *action;
        let lane = self.lanes.get_mut(&(from, to)).expect("a client and the host");
        match *deed {
            Deed::FarAhead(ahead) => {
                let seq = Seq(u16::try_from(lane.reliable.len()).expect("few").wrapping_add(ahead));
                lane.far.insert(MessageId { channel: Channel::Game, seq, part: None });
                let mut buffer = [0; 64];
                let mut writer = Writer::new(&mut buffer, self.ids[from]);
                let data = Data { delivery: Delivery::Reliable(seq), urgent: false, payload: b"far" };
                assert!(writer.push(&Message::Data(data)));
                world.inject(from, to, writer.finish().expect("one message"));
                self.counts.far += 1;
            }
            Deed::Send { len, quality } => {
                if lane.over {
                    return;
                }
                let loose = quality == Quality::Unreliable && (9..=409).contains(&len);
                // One that is too short to bear its number is sent reliably; one that is too long becomes so (T-67).
                let quality = if !loose && len < 9 { firm(quality) } else { quality };
                let number = if loose { lane.loose.len() } else { lane.reliable.len() };
                let bytes = payload(self.seed, (from, to), number, len, loose);
                let now = world.now();
                if let Err(error) = world.node_mut(from).send(self.ids[to], &bytes, quality, now) {
                    return assert!(self.merciless, "{from} to {to}: {error}");
                }
                if loose {
                    lane.loose.push([0; 3]);
                    self.counts.unreliable += 1;
                } else {
                    lane.reliable.push(len);
                    self.counts.reliable += 1;
                    self.counts.urgent += u64::from(quality == Quality::Urgent);
                    self.counts.split += u64::from(len > 407);
                    self.counts.large += u64::from(len > 90_000);
                }
            }
        }
    }

    /// Whether everything was delivered, and nothing waits anywhere.
    pub(crate) fn is_done(&self, world: &World) -> bool {
        self.lanes.values().all(|lane| lane.over || lane.delivered == lane.reliable.len())
            && self.snapshots(world).all(|snapshot| is_at_rest(&snapshot))
    }

    pub(crate) fn describe(&self, world: &World) -> String {
        let lanes = self.lanes.iter().map(|((from, to), lane)| {
            format!("{from} to {to}: {} of {} delivered\n", lane.delivered, lane.reliable.len())
        });
        let queues = self.snapshots(world).filter(|snapshot| !is_at_rest(snapshot));
        let queues = queues.map(|snapshot| format!("{snapshot:?}\n"));
        format!("seed {} does not come to rest:\n{}", self.seed, lanes.chain(queues).collect::<String>())
    }

    /// What one peer may have waiting is limited, whatever it says.
    pub(crate) fn check_limits(&self, world: &World, config: &Config) {
        for snapshot in self.snapshots(world) {
            assert!(snapshot.queued_bytes <= config.queue_bytes, "{snapshot:?}");
            for receiving in &snapshot.receiving {
                assert!(receiving.held_bytes <= config.hold_bytes + (160 << 10), "{receiving:?}");
            }
        }
    }

    /// How often everything was seen in a run that has come to rest.
    pub(crate) fn into_counts(self) -> Counts {
        for ((from, to), lane) in self.lanes.iter().filter(|(_, lane)| !lane.over && !self.merciless) {
            for id in &lane.far {
                let (arrived, acknowledged) = (lane.arrived.get(id), lane.acknowledged.get(id));
                assert_eq!(
                    arrived, acknowledged,
                    "{from} to {to}: {id} is beyond the window; it came, and was acknowledged"
                );
            }
        }
        self.counts
    }

    fn snapshots(&self, world: &World) -> impl Iterator<Item = Snapshot> {
        let on = self.lanes.iter().filter(|(_, lane)| !lane.over).map(|(ends, _)| ends);
        on.filter_map(|(from, to)| world.node(*from).snapshot(self.ids[*to], world.now()))
    }

    fn node(&self, id: PeerId) -> usize {
        self.ids.iter().position(|known| *known == id).expect("a peer that joined")
    }

    fn received(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let seed = self.seed;
        let lane = self.lanes.get_mut(&(from, to)).expect("a client and the host");
        if let [first, number @ ..] = bytes
            && first & 1 == 0
        {
            let number: [u8; 8] = number[..8].try_into().expect("a number");
            let number = usize::try_from(u64::from_le_bytes(number)).expect("small");
            assert!(
                bytes == payload(seed, (from, to), number, bytes.len(), true),
                "an unreliable payload differs"
            );
            let [_, arrived, delivered] = &mut lane.loose[number];
            *delivered += 1;
            assert!(
                delivered <= arrived,
                "unreliable payload {number} was delivered more often than it arrived"
            );
            self.counts.arrived += 1;
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
    fn left(&mut self, who: usize, from: usize, reason: Leave, now: Time) {
        let Some(lane) = self.lanes.get(&(who, from)) else {
            let known = self.lanes.get(&(0, who)).is_some_and(|lane| lane.over);
            return assert!(known, "at {now} node {from} hears that {who} left: {reason}");
        };
        if !lane.over {
            let silent = now.since(lane.heard);
            assert_eq!(reason, Leave::Silent, "at {now} {who} left node {from}");
            assert!(
                silent >= Duration::from_secs(45),
                "at {now} {who} left node {from}: silent for {silent:?} only"
            );
            assert!(
                lane.unheard >= 8,
                "{who} has sent only {} datagrams to {from} in {silent:?}",
                lane.unheard
            );
            self.counts.silenced += 1;
        }
        for ends in [(who, from), (from, who)] {
            self.lanes.entry(ends).or_default().over = true;
        }
    }

    fn acknowledged(&mut self, from: usize, to: usize, id: MessageId) {
        let lane = self.lanes.get_mut(&(to, from)).expect("a client and the host");
        let acknowledged = lane.acknowledged.entry(id).or_default();
        *acknowledged += 1;
        let arrived = lane.arrived.get(&id).copied().unwrap_or(0);
        assert!(
            *acknowledged <= arrived,
            "node {from} acknowledges {id} {acknowledged} times, it came {arrived} times"
        );
    }

    fn sent(&mut self, from: usize, to: usize, id: MessageId, sender: &Endpoint, now: Time) {
        let lane = self.lanes.get_mut(&(from, to)).expect("a client and the host");
        let (sends, last) = lane.sent.entry(id).or_insert((0, now));
        *sends += 1;
        if *sends > 1 {
            self.counts.resends += 1;
            let timeout = sender.snapshot(self.ids[to], now).map(|snapshot| snapshot.timeout);
            self.counts.fast +=
                u64::from(timeout.is_some_and(|timeout| now.since(*last) + self.tick < timeout));
        }
        *last = now;
    }
}

impl Observer for Watch {
    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], _: &mut Endpoint, now: Time) {
        match event {
            Event::Rejected { .. } => self.counts.rejected += 1,
            _ if self.merciless => {}
            Event::Received { peer, .. } => self.received(self.node(peer), node, bytes),
            Event::Left { peer, reason } => self.left(self.node(peer), node, reason, now),
            _ => {}
        }
    }

    fn on_sent(&mut self, meta: DatagramMeta, bytes: &[u8], sender: &Endpoint) {
        let DatagramMeta { from, to, now, .. } = meta;
        assert!(bytes.len() <= MAX_DATAGRAM, "a datagram of {} bytes", bytes.len());
        if self.merciless {
            return;
        }
        self.lanes.entry((from, to)).or_default().unheard += 1;
        for message in parse(from, bytes).messages() {
            match (message, message.id()) {
                (Message::Ack(ack), _) => self.acknowledged(from, to, ack.id),
                (_, Some(id)) => self.sent(from, to, id, sender, now),
                (Message::Data(data), None) => {
                    let sends = &mut self.loose(from, to, data.payload)[0];
                    *sends += 1;
                    assert_eq!(*sends, 1, "an unreliable message is sent again");
                }
                _ => {}
            }
        }
    }

    fn on_arrival(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        let DatagramMeta { from, to, now, .. } = meta;
        if self.merciless {
            return;
        }
        let lane = self.lanes.entry((from, to)).or_default();
        (lane.heard, lane.unheard) = (now, 0);
        for message in parse(from, bytes).messages() {
            match (message, message.id()) {
                (Message::Ack(_), _) => {}
                (_, Some(id)) => {
                    let lane = self.lanes.get_mut(&(from, to)).expect("a client and the host");
                    *lane.arrived.entry(id).or_default() += 1;
                }
                (Message::Data(data), None) => self.loose(from, to, data.payload)[1] += 1,
                _ => {}
            }
        }
    }

    fn on_corrupted(&mut self, _: DatagramMeta, bytes: &[u8]) -> bool {
        let parses =
            [Role::Host, Role::Client].iter().any(|role| Datagram::parse(bytes, Some(*role)).is_ok());
        self.counts.caught += u64::from(parses && !self.merciless);
        self.counts.unparsable += u64::from(!parses);
        self.merciless || !parses
    }
}

impl Watch {
    fn loose(&mut self, from: usize, to: usize, payload: &[u8]) -> &mut [u32; 3] {
        let number: [u8; 8] = payload[1..9].try_into().expect("a number");
        let lane = self.lanes.get_mut(&(from, to)).expect("a client and the host");
        &mut lane.loose[usize::try_from(u64::from_le_bytes(number)).expect("small")]
    }
}

fn parse(from: usize, bytes: &[u8]) -> Datagram<'_> {
    let role = if from == 0 { Role::Host } else { Role::Client };
    Datagram::parse(bytes, Some(role)).expect("an endpoint sends what can be read")
}

fn is_at_rest(snapshot: &Snapshot) -> bool {
    let Snapshot { acks, unacknowledged, fresh, queued_bytes, receiving, in_flight, .. } = snapshot;
    let receiving = receiving.iter().all(|channel| (channel.held, channel.held_bytes) == (0, 0));
    acks.is_empty()
        && unacknowledged.is_empty()
        && (*fresh, *queued_bytes, *in_flight) == (0, 0, 0)
        && receiving
}

fn firm(quality: Quality) -> Quality {
    if quality == Quality::Unreliable { Quality::Reliable } else { quality }
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
