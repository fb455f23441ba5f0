//! Upper limits for delay and cost of message delivery, in virtual time. The figures must not get worse.
//!
//! One-way traffic is 2,000 payloads of 100 bytes, 60 per second, over a link with a round-trip time of 50
//! ms, pooled over seeds 1 to 100. Wire bytes count both directions, without IP and UDP headers. They exclude
//! the keepalives that a side without messages sends every five seconds (T-55).

use std::collections::HashMap;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_lab::{DatagramMeta, Faults, World, WorldObserver};
use bcnet_transport::wire::{Channel, Datagram, Message, MessageId, PeerId, Role};
use bcnet_transport::{Config, DeliveryMode, Endpoint, Engine, Event, Time};

const HOST: PeerId = PeerId(1);
const CLIENT: PeerId = PeerId(2);
const TICK_1_MS: Duration = Duration::from_millis(1);
const TICK_60_HZ: Duration = Duration::from_micros(16_667);
const MESSAGES: u64 = 2000;
const PAYLOAD: usize = 100;
/// Count and message type of a datagram with one keepalive, after the sender byte.
const KEEPALIVE_ALONE: [u8; 2] = [1, 2];

/// T-60 to T-63: delay quantiles and bytes on the wire, from no loss to heavy loss.
#[test]
fn delay_and_bytes_stay_within_limits_on_lossy_links() {
    println!("loss  serviced  p50 ms  p99 ms (limit)  max ms   wire (limit)");
    let bars = [
        (0.00, TICK_1_MS, 30, Some(1.13)),
        (0.05, TICK_1_MS, 85, Some(1.26)),
        (0.20, TICK_1_MS, 205, Some(1.77)),
        (0.00, TICK_60_HZ, 70, None),
        (0.05, TICK_60_HZ, 133, None),
        (0.20, TICK_60_HZ, 283, None),
    ];
    let mut missed = Vec::new();
    for (loss, tick, p99, wire) in bars {
        let flow = FlowMeter::run_seeds(&Faults { loss, ..link() }, tick, TrafficDirections::HostOnly, 100);
        let text = format!(
            "{loss:.2}  {:>8}  {:6.1}  {:6.1} ({p99:3})  {:6.1}  {:.4} ({wire:?})",
            format!("{tick:?}"),
            flow.percentile(0.5),
            flow.percentile(0.99),
            flow.percentile(1.0),
            flow.wire_overhead(),
        );
        println!("{text}");
        if flow.percentile(0.99) > f64::from(p99) || wire.is_some_and(|bar| flow.wire_overhead() > bar) {
            missed.push(text);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// T-60: ACKs share datagrams with data, so two-way traffic needs hardly more datagrams than messages.
#[test]
fn two_way_traffic_sends_acks_with_data() {
    for tick in [TICK_1_MS, TICK_60_HZ] {
        let flow = FlowMeter::run_seeds(&link(), tick, TrafficDirections::Both, 10);
        println!("{tick:?}: {:.3} datagrams per message", flow.datagrams_per_message());
        assert!(flow.datagrams_per_message() <= 1.1);
    }
}

/// T-61, T-62: jitter, reordering and burst loss cause few spurious retransmissions.
///
/// A retransmission is spurious if the first copy of the message arrived, and the ACK of that copy arrived
/// too. An endpoint sends one ACK for each receipt (T-60), so the nth ACK of a message answers the nth copy
/// that arrived.
#[test]
fn jitter_and_bursts_cause_few_spurious_retransmissions() {
    let faults = Faults {
        loss: 0.05,
        burst: 5.0,
        jitter: Duration::from_millis(10),
        reorder: 0.02,
        reorder_by: Duration::from_millis(20),
        ..link()
    };
    for tick in [TICK_1_MS, TICK_60_HZ] {
        let flow = FlowMeter::run_seeds(&faults, tick, TrafficDirections::HostOnly, 100);
        let spurious = flow.spurious as f64 / flow.messages as f64;
        let resends = flow.retransmissions as f64 / flow.messages as f64;
        println!(
            "{tick:?}: wire {:.3}, retransmissions {:.2} %, spurious {:.2} %, p99 {:.1} ms",
            flow.wire_overhead(),
            100.0 * resends,
            100.0 * spurious,
            flow.percentile(0.99)
        );
        assert!(flow.wire_overhead() <= 1.40, "{tick:?}");
        assert!(spurious <= 0.05, "{tick:?}");
    }
}

/// T-63, T-67: sends one large message right after the join, when the congestion window is still small.
#[test]
fn large_message_arrives_quickly_after_the_join() {
    for (loss, median, worst) in [(0.0, 235, 235), (0.05, 235, 590), (0.20, 535, 1340)] {
        for tick in [TICK_1_MS, TICK_60_HZ] {
            let mut times = Mutex::new(Vec::new());
            each_seed(100, |seed| {
                let bulk = BulkTransfer::run(&Faults { loss, ..link() }, seed, tick, 1);
                times.lock().expect("no panic").push(bulk.took.as_secs_f64() * 1000.0);
            });
            let times = times.get_mut().expect("no panic");
            times.sort_by(f64::total_cmp);
            println!(
                "loss {loss:.2} {tick:?}: median {:.1} ms ({median}), worst {:.1} ms ({worst})",
                times[50], times[99]
            );
            if tick == TICK_1_MS {
                assert!(times[50] <= f64::from(median) && times[99] <= f64::from(worst), "loss {loss}");
            }
        }
    }
}

/// T-63: on a narrow link the congestion window finds the right rate before many datagrams are dropped.
#[test]
fn a_narrow_link_is_filled_but_not_flooded() {
    let narrow = Faults { bandwidth: 1_000_000, queue: 32, ..link() };
    for (messages, tick) in [(1, TICK_1_MS), (1, TICK_60_HZ), (20, TICK_1_MS), (20, TICK_60_HZ)] {
        let bulk = BulkTransfer::run(&narrow, 1, tick, messages);
        println!("{messages} x 100 KB, {tick:?}: lost {:.3}, goodput {:.3}", bulk.lost, bulk.goodput);
        assert!(bulk.lost <= 0.10, "{messages} at {tick:?}: {} lost", bulk.lost);
        assert!(bulk.goodput >= 0.80, "{messages} at {tick:?}: goodput {}", bulk.goodput);
    }
}

/// T-56, T-64: heavy loss alone ends no connection. `BCNET_LONG=1` runs 1,000 seeds.
#[test]
fn no_connection_is_lost_at_twenty_percent_loss() {
    let seeds = if env::var_os("BCNET_LONG").is_some() { 1000 } else { 50 };
    // The run panics if a peer leaves.
    let flow =
        FlowMeter::run_seeds(&Faults { loss: 0.2, ..link() }, TICK_60_HZ, TrafficDirections::Both, seeds);
    assert_eq!(flow.messages, 2 * MESSAGES * seeds);
}

/// T-61: the measured round-trip time is that of the link, plus at most one tick.
#[test]
fn measured_rtt_converges_to_the_link_rtt() {
    let config = Config { cipher: false, tick: TICK_60_HZ, ..Config::default() };
    for ways in [TrafficDirections::HostOnly, TrafficDirections::Both] {
        let mut world = World::pair(link(), 1, &config, TICK_60_HZ);
        let start = world.now();
        for number in 0..20 * 60 {
            world.run(start + TICK_60_HZ * number, |_, _, _, _, _| {});
            let now = world.now();
            world.node_mut(0).send(CLIENT, &[0; PAYLOAD], DeliveryMode::Reliable, now).expect("joined");
            if ways == TrafficDirections::Both {
                world.node_mut(1).send(HOST, &[0; PAYLOAD], DeliveryMode::Reliable, now).expect("joined");
            }
            let ends =
                if ways == TrafficDirections::Both { &[(0, CLIENT), (1, HOST)][..] } else { &[(0, CLIENT)] };
            for (node, peer) in ends.iter().filter(|_| number > 3 * 60) {
                let snapshot = world.node(*node).snapshot(*peer, now).expect("joined");
                let trip = snapshot.rtt.expect("measured").as_millis();
                assert!((50..=70).contains(&trip), "node {node} measures {trip} ms, {ways:?}");
                if number == 1000 {
                    println!("node {node}, {ways:?}: {:?} ± {:?}", snapshot.rtt, snapshot.rtt_variation);
                }
            }
        }
    }
}

fn link() -> Faults {
    Faults { delay: Duration::from_millis(25), ..Faults::default() }
}

/// Calls `work` for seeds 1 to `seeds`, on all cores.
fn each_seed(seeds: u64, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        seed if seed <= seeds => work(seed),
                        _ => break,
                    }
                }
            });
        }
    });
}

/// Senders of the traffic: the host, or both nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrafficDirections {
    HostOnly,
    Both,
}

/// Measurements of a steady stream of messages.
#[derive(Debug, Default)]
struct FlowMeter {
    /// Delay of each message in microseconds.
    delays: Vec<u64>,
    bytes: u64,
    datagrams: u64,
    messages: u64,
    retransmissions: u64,
    spurious: u64,
    received: [u64; 2],
    segments: HashMap<(usize, MessageId), SegmentHistory>,
}

/// Copies and ACKs of one message or fragment on the wire.
#[derive(Debug, Default)]
struct SegmentHistory {
    /// Number of each datagram with a copy, and whether the datagram arrived.
    copies: Vec<(u64, bool)>,
    /// Numbers of the copies in order of arrival.
    arrivals: Vec<u64>,
    /// Number of each datagram with an ACK, and whether the datagram arrived.
    acks: Vec<(u64, bool)>,
}

impl SegmentHistory {
    /// Returns whether the first copy and its ACK both arrived.
    fn succeeded_at_first_send(&self) -> bool {
        let first = self.copies.first().map(|(number, _)| *number);
        let place = self.arrivals.iter().position(|number| Some(*number) == first);
        place.is_some_and(|place| self.acks.get(place).is_some_and(|(_, arrived)| *arrived))
    }
}

impl FlowMeter {
    fn run_seeds(faults: &Faults, tick: Duration, ways: TrafficDirections, seeds: u64) -> Self {
        let total = Mutex::new(Self::default());
        each_seed(seeds, |seed| {
            let flow = Self::run(faults, tick, ways, seed);
            let mut total = total.lock().expect("no panic");
            total.delays.extend(flow.delays);
            total.bytes += flow.bytes;
            total.datagrams += flow.datagrams;
            total.messages += flow.messages;
            total.retransmissions += flow.retransmissions;
            total.spurious += flow.spurious;
        });
        let mut total = total.into_inner().expect("no panic");
        total.delays.sort_unstable();
        total
    }

    fn run(faults: &Faults, tick: Duration, ways: TrafficDirections, seed: u64) -> Self {
        let config = Config { cipher: false, tick, ..Config::default() };
        let mut world = World::pair(faults.clone(), seed, &config, tick);
        let tick = u64::try_from(tick.as_micros()).expect("short");
        world.run(world.now() + Duration::from_secs(1), |_, _, _, _, _| {});
        let start = Time::from_micros(world.now().as_micros().next_multiple_of(tick));
        let mut flow = Self::default();
        let both = &[(0, CLIENT), (1, HOST)];
        let ends = if ways == TrafficDirections::HostOnly { &both[..1] } else { both };
        for number in 0..MESSAGES {
            world.run_observed(start + TICK_60_HZ * u32::try_from(number).expect("few"), &mut flow);
            let now = world.now();
            let mut payload = [0; PAYLOAD];
            payload[..8].copy_from_slice(&now.as_micros().to_le_bytes());
            payload[8..16].copy_from_slice(&number.to_le_bytes());
            for (node, peer) in ends {
                world.node_mut(*node).send(*peer, &payload, DeliveryMode::Reliable, now).expect("joined");
            }
        }
        flow.messages = MESSAGES * ends.len() as u64;
        let deadline = world.now() + Duration::from_secs(300);
        let rests = |world: &World, (node, peer): (usize, PeerId)| {
            world.node(node).snapshot(peer, world.now()).is_some_and(|snapshot| snapshot.queued_bytes == 0)
        };
        while flow.delays.len() as u64 != flow.messages || !both.iter().all(|end| rests(&world, *end)) {
            assert!(world.now() < deadline, "seed {seed} has undelivered messages at the deadline");
            world.run_observed(world.now() + Duration::from_millis(100), &mut flow);
        }
        for segment in flow.segments.values() {
            let again = segment.copies.len().saturating_sub(1) as u64;
            flow.retransmissions += again;
            flow.spurious += if segment.succeeded_at_first_send() { again } else { 0 };
        }
        flow
    }

    /// Returns a percentile of the delays in milliseconds.
    fn percentile(&self, share: f64) -> f64 {
        self.delays[((self.delays.len() - 1) as f64 * share) as usize] as f64 / 1000.0
    }

    fn wire_overhead(&self) -> f64 {
        self.bytes as f64 / (self.messages * PAYLOAD as u64) as f64
    }

    fn datagrams_per_message(&self) -> f64 {
        self.datagrams as f64 / self.messages as f64
    }
}

impl WorldObserver for FlowMeter {
    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], _: &mut Endpoint, now: Time) {
        match event {
            Event::Received { .. } => {
                let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
                assert_eq!(word(8), self.received[node], "node {node} received payloads out of order");
                self.received[node] += 1;
                self.delays.push(now.as_micros() - word(0));
            }
            Event::Left { peer, reason } => panic!("at {now} {peer} left node {node}: {reason}"),
            _ => {}
        }
    }

    fn on_sent(&mut self, meta: DatagramMeta, bytes: &[u8], _: &Endpoint) {
        let DatagramMeta { from, to, number, .. } = meta;
        if bytes[1..] != KEEPALIVE_ALONE {
            (self.bytes, self.datagrams) = (self.bytes + bytes.len() as u64, self.datagrams + 1);
        }
        for (is_ack, id) in game_ids(from, bytes) {
            if is_ack {
                self.segments.entry((to, id)).or_default().acks.push((number, false));
            } else {
                self.segments.entry((from, id)).or_default().copies.push((number, false));
            }
        }
    }

    fn on_arrival(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        let DatagramMeta { from, to, number, .. } = meta;
        for (is_ack, id) in game_ids(from, bytes) {
            let segment = self.segments.entry((if is_ack { to } else { from }, id)).or_default();
            let list = if is_ack { &mut segment.acks } else { &mut segment.copies };
            list.iter_mut().filter(|(sent, _)| *sent == number).for_each(|(_, arrived)| *arrived = true);
            if !is_ack {
                segment.arrivals.push(number);
            }
        }
    }
}

/// Returns the ids of the game messages in a datagram, and of the game messages that it acknowledges.
fn game_ids(from: usize, bytes: &[u8]) -> impl Iterator<Item = (bool, MessageId)> {
    let role = if from == 0 { Role::Host } else { Role::Client };
    let datagram = Datagram::parse(bytes, Some(role)).expect("an endpoint sends valid datagrams");
    let ids = datagram.messages().filter_map(|message| match message {
        Message::Ack(ack) => Some((true, ack.id)),
        other => other.id().map(|id| (false, id)),
    });
    ids.filter(|(_, id)| id.channel == Channel::Game)
}

/// Result of sending messages of 100 KB, one after the other.
struct BulkTransfer {
    took: Duration,
    /// Fraction of the host's datagrams that did not arrive.
    lost: f64,
    /// Payload bits delivered per bit that the link could carry.
    goodput: f64,
}

impl BulkTransfer {
    fn run(faults: &Faults, seed: u64, tick: Duration, messages: usize) -> Self {
        let config = Config { cipher: false, tick, ..Config::default() };
        let mut world = World::pair(faults.clone(), seed, &config, tick);
        let start = world.now();
        let (mut sent, mut received, mut end) = (0, 0, start);
        let payload = vec![7; 100 << 10];
        while received < messages {
            let now = world.now();
            assert!(
                now.since(start) < Duration::from_secs(60),
                "seed {seed} is not delivered within 60 seconds"
            );
            while sent < messages
                && world.node_mut(0).send(CLIENT, &payload, DeliveryMode::Reliable, now).is_ok()
            {
                sent += 1;
            }
            world.run(now + Duration::from_millis(10), |node, event, bytes, _, now| {
                if matches!((node, event), (1, Event::Received { peer: HOST, .. })) {
                    assert!(bytes == payload);
                    (received, end) = (received + 1, now);
                }
            });
        }
        let stats = world.link_stats(0, 1);
        let took = end.since(start);
        let bits = (8 * messages * payload.len()) as f64;
        Self {
            took,
            lost: (stats.lost + stats.dropped) as f64 / stats.sent as f64,
            goodput: bits / took.as_secs_f64() / faults.bandwidth as f64,
        }
    }
}
