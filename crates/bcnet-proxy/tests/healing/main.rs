//! The healer between engines of the laboratory.

mod admission;
mod network;
mod receivers;

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_lab::stock::Params;
use bcnet_lab::{Faults, NodeBehavior, Rng, RunOptions, Scenario};
use bcnet_proxy::{ProxyConfig, ProxyEvent, RefusalReason};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{DeliveryMode, Endpoint, Time};

use network::{HopCounters, NodeEngine, ProxyNetwork};

/// Milliseconds between ticks of the server and the clients.
pub(crate) const SERVER_TICK: u64 = 3;
pub(crate) const CLIENT_TICK: u64 = 16;

/// Results of one conversation.
struct ConversationResult {
    /// Numbers of the reliable payloads in the order of arrival, at the server and at the client.
    streams: [Vec<u32>; 2],
    delays: Vec<Duration>,
    ack_bytes_after: u64,
    ack_bytes_before: u64,
}

/// Runs a conversation: unreliable updates all the time, a reliable payload twice a second, sometimes a large one.
/// Payloads carry a number and the time of sending.
fn run_conversation(heal: bool, seed: u64) -> ConversationResult {
    let calm = Faults { delay: Duration::from_millis(15), ..Faults::default() };
    let config = ProxyConfig { heal, ..ProxyConfig::default() };
    let mut net = ProxyNetwork::new(
        config,
        ProxyNetwork::stock_host(Params::default()),
        SERVER_TICK,
        calm.clone(),
        seed,
    );
    let client = net.add_stock(Params::default(), CLIENT_TICK);
    net.run(Duration::from_secs(2));
    assert_eq!(net.node(client).id(), PeerId(2), "seed {seed}: the client has joined");
    net.set_faults(Faults { loss: 0.05, ..calm });
    let (mut rng, mut sent) = (Rng::new(seed), [0_u32; 2]);
    for turn in 0..150_u32 {
        for (node, to) in [(0, PeerId(2)), (client, PeerId::HOST)] {
            let now = net.now;
            net.node(node).send(to, &[0x1C; 30], DeliveryMode::Unreliable, now);
            if rng.chance(0.2) {
                let size = if rng.chance(0.1) { 832 } else { rng.between(17, 60) };
                let payload = payload(sent[node.min(1)], now, usize::try_from(size).unwrap());
                sent[node.min(1)] += 1;
                assert!(
                    net.node(node).send(to, &payload, DeliveryMode::Reliable, now),
                    "seed {seed} turn {turn}"
                );
            }
        }
        net.run(Duration::from_millis(100));
    }
    net.run(Duration::from_secs(40));
    let mut streams = [Vec::new(), Vec::new()];
    let mut delays = Vec::new();
    for delivery in net.delivered.iter().filter(|delivery| delivery.payload[0] != 0x1C) {
        let (number, at) = read_payload(&delivery.payload);
        streams[delivery.node].push(number);
        delays.push(delivery.at.since(at));
    }
    for (stream, sent) in streams.iter().zip([sent[1], sent[0]]) {
        assert!(stream.iter().copied().eq(0..sent), "seed {seed} heal {heal}: {stream:?} of {sent}");
    }
    let sum = |hops: [HopCounters; 2]| hops.iter().map(|hop| hop.ack_bytes).sum();
    ConversationResult {
        streams,
        delays,
        ack_bytes_after: sum(net.after_proxy),
        ack_bytes_before: sum(net.before_proxy),
    }
}

fn payload(number: u32, now: Time, size: usize) -> Vec<u8> {
    let mut payload = vec![0x19];
    payload.extend(number.to_le_bytes());
    payload.extend(now.as_micros().to_le_bytes());
    payload.resize(size, 0);
    payload
}

fn read_payload(payload: &[u8]) -> (u32, Time) {
    let number = u32::from_le_bytes(payload[1..5].try_into().unwrap());
    (number, Time::from_micros(u64::from_le_bytes(payload[5..13].try_into().unwrap())))
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("BCNET_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..std::env::var("BCNET_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1000),
    }
}

/// Sums of all seeds, with or without healing.
#[derive(Default)]
struct PooledResults {
    delays: Vec<Duration>,
    ack_bytes_before: u64,
    ack_bytes_after: u64,
}

impl PooledResults {
    fn add(&mut self, outcome: &ConversationResult) {
        self.delays.extend(&outcome.delays);
        self.ack_bytes_before += outcome.ack_bytes_before;
        self.ack_bytes_after += outcome.ack_bytes_after;
    }

    fn quantile(&mut self, share: f64) -> Duration {
        self.delays.sort_unstable();
        self.delays[((self.delays.len() - 1) as f64 * share) as usize]
    }

    /// Returns whether at most a quarter of the ACK bytes is forwarded.
    fn are_acks_reduced(&self) -> bool {
        self.ack_bytes_after * 4 <= self.ack_bytes_before
    }
}

#[test]
fn healing_changes_only_acks() {
    let mut pools = [PooledResults::default(), PooledResults::default()];
    for seed in seeds() {
        let outcomes = [false, true].map(|heal| run_conversation(heal, seed));
        assert_eq!(outcomes[0].streams, outcomes[1].streams, "seed {seed}");
        pools.iter_mut().zip(&outcomes).for_each(|(pool, outcome)| pool.add(outcome));
    }
    for (pool, name) in pools.iter_mut().zip(["not healed", "healed"]) {
        let [p50, p99] = [0.5, 0.99].map(|share| pool.quantile(share));
        let share = pool.ack_bytes_after as f64 / pool.ack_bytes_before as f64;
        println!(
            "{name}: {} payloads, p50 {p50:?}, p99 {p99:?}, {share:.3} of the ACK bytes are forwarded",
            pool.delays.len()
        );
    }
    let [plain, healed] = &mut pools;
    assert!(healed.are_acks_reduced());
    assert!(!plain.are_acks_reduced(), "without healing, the ACKs must not be reduced");
    assert!(healed.quantile(0.99) <= plain.quantile(0.99));
}

#[test]
fn healer_leaves_bcnet_pair_unchanged() {
    let config = ProxyConfig { heal: true, ..ProxyConfig::default() };
    let calm = Faults { delay: Duration::from_millis(15), ..Faults::default() };
    let server = NodeEngine::Bcnet(Box::new(Endpoint::host(bcnet_transport::Config::default())));
    let mut net = ProxyNetwork::new(config, server, SERVER_TICK, calm, 1);
    net.record = Some(Vec::new());
    let client = net.add_bcnet(bcnet_transport::Config::default(), CLIENT_TICK);
    net.run(Duration::from_secs(2));
    for number in 0..200 {
        for (node, to) in [(0, PeerId(2)), (client, PeerId::HOST)] {
            let payload = payload(number, net.now, if number % 20 == 0 { 2000 } else { 40 });
            let now = net.now;
            assert!(net.node(node).send(to, &payload, DeliveryMode::Reliable, now));
        }
        net.run(Duration::from_millis(100));
    }
    assert_eq!(net.delivered.len(), 400);
    let record = net.record.take().unwrap();
    for pair in record.chunks(2) {
        let [(false, given), (true, gave)] = pair else { panic!("one out for each in") };
        assert_eq!(given, gave);
    }
}

/// The proxy of a scenario and the proxy of these tests forward the same bytes of ACKs in the same conversation.
#[test]
fn scenario_proxy_gives_the_same_counters() {
    const SCENARIO: &str = r#"
        title = "t"
        duration = 30
        node = [{ name = "host", role = "host", tick = 0.003 }, { name = "client", role = "client", tick = 0.016 }]
        proxy = [{ name = "proxy", before = "host", heal = HEAL }]
        link = [{ delay = 0.015 }, { from = "proxy", to = "host", delay = 0.015 }, { from = "host", to = "proxy", delay = 0.015 }]
        send = [
            { at = 2.0005, rate = 10, until = 7, from = "host", to = "client", reliable = false, size = 30 },
            { at = 2.0005, rate = 10, until = 7, from = "client", to = "host", reliable = false, size = 30 },
            { at = 2.0005, rate = 2, until = 7, from = "host", to = "client", size = 40 },
            { at = 2.0005, rate = 2, until = 7, from = "client", to = "host", size = 40 },
            { at = 7.0005, from = "host", to = "client", size = 832 },
        ]
    "#;
    for heal in [false, true] {
        let scenario = Scenario::parse(&SCENARIO.replace("HEAL", &heal.to_string())).expect("a scenario");
        let proxy = bcnet_lab::run(&scenario, &RunOptions::default()).proxy.expect("a proxy").counters;
        let calm = Faults { delay: Duration::from_millis(15), ..Faults::default() };
        let config = ProxyConfig { heal, ..ProxyConfig::default() };
        let mut net =
            ProxyNetwork::new(config, ProxyNetwork::stock_host(Params::default()), SERVER_TICK, calm, 1);
        let client = net.add_stock(Params::default(), CLIENT_TICK);
        net.run(Duration::from_secs(2));
        let send = |net: &mut ProxyNetwork, size, quality| {
            for (node, to) in [(0, PeerId(2)), (client, PeerId::HOST)] {
                let now = net.now;
                assert!(net.node(node).send(to, &vec![0x1C; size], quality, now));
            }
        };
        for turn in 0..50 {
            send(&mut net, 30, DeliveryMode::Unreliable);
            if turn % 5 == 0 {
                send(&mut net, 40, DeliveryMode::Reliable);
            }
            net.run(Duration::from_millis(100));
        }
        let now = net.now;
        assert!(net.node(0).send(PeerId(2), &[0x1C; 832], DeliveryMode::Reliable, now));
        net.run(Duration::from_secs(23));
        let sum = |hops: [HopCounters; 2]| {
            hops.iter().fold([0; 3], |[a, b, c], hop| [a + hop.datagrams, b + hop.bytes, c + hop.ack_bytes])
        };
        let seen = [proxy.datagrams, proxy.bytes, proxy.ack_bytes];
        assert_eq!(
            (seen, proxy.ack_bytes_taken),
            (sum(net.after_proxy), sum(net.before_proxy)[2]),
            "heal {heal}"
        );
    }
}

pub(crate) fn join_clients(sources: Vec<Ipv4Addr>, clients: usize) -> (ProxyNetwork, Vec<usize>) {
    let calm = Faults { delay: Duration::from_millis(5), ..Faults::default() };
    let config = ProxyConfig { heal: true, sources, ..ProxyConfig::default() };
    let mut net =
        ProxyNetwork::new(config, ProxyNetwork::stock_host(Params::default()), SERVER_TICK, calm, 3);
    let mut nodes = Vec::new();
    for _ in 0..clients {
        nodes.push(net.add_stock(Params::default(), CLIENT_TICK));
        net.run(Duration::from_secs(1));
    }
    (net, nodes)
}

#[test]
fn eight_clients_with_own_sources_join_a_stock_server() {
    let sources = (1..=8).map(|n| Ipv4Addr::new(127, 1, 0, n)).collect();
    let (mut net, nodes) = join_clients(sources, 8);
    let ids: Vec<PeerId> = nodes.iter().map(|node| net.node(*node).id()).collect();
    assert_eq!(ids, (2..10).map(PeerId).collect::<Vec<_>>());
    for (number, id) in ids.iter().enumerate() {
        let (now, payload) = (net.now, payload(u32::try_from(number).unwrap(), net.now, 20));
        assert!(net.node(0).send(*id, &payload, DeliveryMode::Reliable, now));
        assert!(net.node(nodes[number]).send(PeerId::HOST, &payload, DeliveryMode::Reliable, now));
    }
    net.run(Duration::from_secs(10));
    for (number, node) in nodes.iter().enumerate() {
        let mine = net
            .delivered
            .iter()
            .filter(|delivery| delivery.node == *node)
            .map(|d| read_payload(&d.payload).0);
        assert_eq!(mine.collect::<Vec<_>>(), [u32::try_from(number).unwrap()]);
    }
    let mut at_server: Vec<_> =
        net.delivered.iter().filter(|d| d.node == 0).map(|d| (d.peer, read_payload(&d.payload).0)).collect();
    at_server.sort();
    assert_eq!(at_server.len(), 8);
    assert!(at_server.iter().all(|(peer, number)| u32::from(peer.0) == number + 2));
}

#[test]
fn second_client_without_own_source_is_refused() {
    let (mut net, nodes) = join_clients(Vec::new(), 2);
    assert_eq!(net.node(nodes[0]).id(), PeerId(2));
    assert_eq!(net.node(nodes[1]).id(), PeerId::UNASSIGNED);
    let client = ProxyNetwork::address(nodes[1]);
    assert!(net.events.contains(&ProxyEvent::Refused { client, refusal: RefusalReason::NoSource }));
    net.run(Duration::from_secs(60));
    assert_eq!(net.node(0).peers(), [PeerId(2)], "the first one stays");
}

/// From one address, a stock server takes the second client for the first. So each client needs a separate source.
#[test]
fn clients_sharing_a_source_collide_on_a_stock_server() {
    let one = Ipv4Addr::new(127, 1, 0, 1);
    let (mut net, nodes) = join_clients(vec![one, one], 2);
    let (now, payload) = (net.now, payload(7, net.now, 20));
    assert!(net.node(0).send(PeerId(2), &payload, DeliveryMode::Reliable, now));
    net.run(Duration::from_secs(5));
    let first = net.delivered.iter().filter(|delivery| delivery.node == nodes[0]).count();
    assert_eq!(first, 0, "the payload does not reach the first player");
}

/// Sends a large payload in fragments from a server to a client. Returns the bytes that the server sends in the
/// next six minutes, and those that reach the client.
fn send_large_payload(heal: bool, server: NodeBehavior, client: NodeBehavior) -> [u64; 2] {
    let calm = Faults { delay: Duration::from_millis(5), ..Faults::default() };
    let config = ProxyConfig { heal, ..ProxyConfig::default() };
    let mut net =
        ProxyNetwork::new(config, ProxyNetwork::stock_host(Params::default()), SERVER_TICK, calm, 3);
    let node = net.add_stock(Params::default(), CLIENT_TICK);
    net.set_behavior(0, server);
    net.set_behavior(node, client);
    net.run(Duration::from_secs(1));
    let (now, payload) = (net.now, payload(0, net.now, 832));
    assert!(net.node(0).send(PeerId(2), &payload, DeliveryMode::Reliable, now));
    net.run(Duration::from_millis(500));
    assert_eq!(net.delivered.iter().filter(|delivery| delivery.node == node).count(), 1);
    let (before, behind) = (net.before_proxy[1].bytes, net.after_proxy[1].bytes);
    net.run(Duration::from_secs(360));
    assert_eq!(net.delivered.iter().filter(|delivery| delivery.node == node).count(), 1, "once");
    [net.before_proxy[1].bytes - before, net.after_proxy[1].bytes - behind]
}

#[test]
fn wrong_form_acks_do_not_cause_endless_retransmission() {
    let client = || NodeBehavior { plain_acks: true, ..NodeBehavior::default() };
    let [sent, _] = send_large_payload(false, NodeBehavior::default(), client());
    assert!(sent > 90_000, "a stock server repeats them for six minutes: {sent} bytes");
    let [sent, _] = send_large_payload(true, NodeBehavior::default(), client());
    assert!(sent < 3_000, "it stops after ACKs in the right form: {sent} bytes");
}

#[test]
fn endless_server_retransmissions_do_not_reach_the_client() {
    let server = || NodeBehavior { deaf_to_part_acks: true, ..NodeBehavior::default() };
    let [_, passed] = send_large_payload(false, server(), NodeBehavior::default());
    assert!(passed > 90_000, "a stock server repeats them for six minutes: {passed} bytes");
    let [sent, passed] = send_large_payload(true, server(), NodeBehavior::default());
    assert!(sent > 90_000, "the proxy cannot stop the server: {sent} bytes");
    assert!(passed < 3_000, "the proxy does not forward the repeats: {passed} bytes");
}

/// A receiver that acknowledges fragments in the wrong form gets every payload, no matter which hop loses datagrams.
#[test]
fn fragments_with_wrong_form_acks_arrive_despite_loss() {
    for seed in 0..seeds().end.min(200) {
        let calm = Faults { delay: Duration::from_millis(15), ..Faults::default() };
        let config = ProxyConfig { heal: true, ..ProxyConfig::default() };
        let mut net = ProxyNetwork::new(
            config,
            ProxyNetwork::stock_host(Params::default()),
            SERVER_TICK,
            calm.clone(),
            seed,
        );
        let node = net.add_stock(Params::default(), CLIENT_TICK);
        net.set_behavior(node, NodeBehavior { plain_acks: true, ..NodeBehavior::default() });
        net.run(Duration::from_secs(2));
        net.set_faults(Faults { loss: 0.2, ..calm });
        for number in 0..10 {
            let (now, payload) = (net.now, payload(number, net.now, 832));
            assert!(net.node(0).send(PeerId(2), &payload, DeliveryMode::Reliable, now), "seed {seed}");
            net.run(Duration::from_millis(500));
        }
        net.run(Duration::from_secs(40));
        let stream =
            net.delivered.iter().filter(|delivery| delivery.node == node).map(|d| read_payload(&d.payload).0);
        assert!(stream.eq(0..10), "seed {seed}");
    }
}
