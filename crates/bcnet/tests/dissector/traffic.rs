//! Builds datagrams for the dissector: the test vectors, and a seeded session with all kinds of faults.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_lab::{
    DatagramMeta, Faults, LabEngine, NodeBehavior, Rng, RunOptions, Scenario, SendMode, World, WorldObserver,
    capture_datagrams,
};
use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Event, Time, cipher};
use serde_json::Value;

use super::tshark::WireDatagram;

pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
pub(crate) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// Returns every test vector as a datagram on the wire. Messages and payloads get a datagram around them.
pub(crate) fn test_vectors() -> Vec<WireDatagram> {
    let mut found = Vec::new();
    for vector in parse_list(TRANSPORT).into_iter().chain(parse_list(SESSION)) {
        let bytes = unhex(vector["plain"].as_str().unwrap_or_default());
        found.push(match vector["layer"].as_str() {
            Some("datagram") => encrypted(bytes),
            Some("message") => encrypted([&[sender(&vector), 1], &bytes[..]].concat()),
            Some("payload") => data_datagram(sender(&vector), &bytes),
            _ => bytes,
        });
    }
    for vector in parse_list(CIPHER) {
        found.push(unhex(vector["wire_hex"].as_str().expect("hex")));
    }
    found.retain(|bytes| !bytes.is_empty());
    assert!(found.len() > 80, "{} vectors", found.len());
    let at = |i| Duration::from_millis(i);
    found.into_iter().zip(1..).map(|(bytes, i)| captured_datagram(at(i), bytes)).collect()
}

/// Returns a datagram at a time, from the sender that its first byte names.
pub(crate) fn captured_datagram(at: Duration, bytes: Vec<u8>) -> WireDatagram {
    let from_host = bytes.first() == Some(&PeerId::HOST.0);
    let (from, to) = if from_host { (HOST, CLIENT) } else { (CLIENT, HOST) };
    WireDatagram { at, from, to, bytes }
}

pub(crate) fn encrypted(mut plain: Vec<u8>) -> Vec<u8> {
    cipher::encrypt(&mut plain);
    plain
}

/// Returns an unreliable payload on the wire.
pub(crate) fn data_datagram(sender: u8, payload: &[u8]) -> Vec<u8> {
    let [low, high] = u16::try_from(payload.len() + 3).expect("short").to_le_bytes();
    encrypted([&[sender, 1, 0x32, low, high], payload].concat())
}

fn parse_list(json: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(json).expect("JSON");
    file["vectors"].as_array().expect("vectors").clone()
}

fn sender(vector: &Value) -> u8 {
    if vector["direction"] == "S" { 1 } else { 2 }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.iter().map_while(byte).collect()
}

/// Returns the first datagrams of every scenario of the laboratory, each scenario in its own network.
pub(crate) fn scenario_datagrams() -> Vec<WireDatagram> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bcnet-lab/scenarios");
    let mut files: Vec<PathBuf> =
        directory.read_dir().expect("scenarios").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(files.len() > 40, "{} scenarios", files.len());
    let mut found = Vec::new();
    for (file, network) in files.iter().zip(1..) {
        let text = fs::read_to_string(file).expect("a scenario");
        let mut scenario = Scenario::parse(&text).unwrap_or_else(|mistake| panic!("{file:?}: {mistake}"));
        scenario.duration = scenario.duration.min(Duration::from_secs(60));
        let address = |node| {
            let [_, _, c, d] = World::address(node).ip().octets();
            SocketAddrV4::new(Ipv4Addr::new(10, network, c, d), 22101)
        };
        for (meta, plain) in capture_datagrams(&scenario, &RunOptions::default(), MAX_SCENARIO_DATAGRAMS) {
            let at = Duration::from_micros(meta.now.as_micros());
            let bytes = if plain.first() == Some(&PeerId::GAMESPY.0) { plain } else { encrypted(plain) };
            found.push(WireDatagram { at, from: address(meta.from), to: address(meta.to), bytes });
        }
    }
    found
}

/// The datagrams at the host's network card, and the payloads that the host and its clients received.
pub(crate) struct SwarmCapture {
    pub(crate) captured: Vec<WireDatagram>,
    /// Payloads that came in fragments.
    pub(crate) large: Vec<Vec<u8>>,
}

/// The senders in a capture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TrafficMix {
    /// Our engines only.
    Ours,
    /// Stock engines and ours, GameSpy, garbage, datagrams with wrong bytes.
    Everything,
}

/// Returns `count` datagrams of a host and clients with loss, fragments and retransmissions.
pub(crate) fn swarm(seed: u64, count: usize, mix: TrafficMix) -> SwarmCapture {
    let faults = Faults {
        corrupt: if mix == TrafficMix::Ours { 0.0 } else { 0.01 },
        loss: 0.05,
        duplicate: 0.02,
        reorder: 0.02,
        reorder_by: Duration::from_millis(60),
        delay: Duration::from_millis(30),
        jitter: Duration::from_millis(5),
        ..Faults::default()
    };
    let mut world: World<dyn LabEngine> = World::new(faults, seed);
    for number in 0..=CLIENTS {
        let behavior = NodeBehavior { tick: Duration::from_millis(10), ..NodeBehavior::default() };
        world.add_node(engine(number, mix), behavior);
    }
    let mut rng = Rng::new(seed);
    let swarm = SwarmCapture { captured: Vec::new(), large: Vec::new() };
    let mut tap = HostTap { swarm, mix, count, rng: rng.clone() };
    let payloads: Vec<Vec<u8>> = parse_list(SESSION)
        .iter()
        .filter(|vector| vector["layer"] == "payload")
        .map(|vector| unhex(vector["plain"].as_str().expect("hex")))
        .collect();
    while tap.swarm.captured.len() < count {
        assert!(world.now() < Time::ZERO + Duration::from_secs(86_400), "the nodes stopped sending");
        let now = world.now() + Duration::from_millis(50);
        world.run_observed(now, &mut tap);
        for node in 0..=CLIENTS {
            send_random_payloads(world.node_mut(node), &payloads, &mut rng, now);
        }
    }
    tap.swarm.captured.truncate(count);
    tap.swarm
}

/// Returns the engine of a node.
///
/// Node 0 is the host; in a mix, every second client is stock. The host is never stock, because fragments from several
/// clients crash it.
fn engine(number: usize, mix: TrafficMix) -> Box<dyn LabEngine> {
    let (host, own) = (World::address(0), *World::address(number).ip());
    let nonce = u32::try_from(number).expect("few");
    if number == 0 {
        return Box::new(Endpoint::host(Config::default()));
    }
    if mix == TrafficMix::Everything && number.is_multiple_of(2) {
        let params = Params { address: own, ..Params::default() };
        return Box::new(StockEngine::connect(params, host, own, nonce, &[], Time::ZERO));
    }
    Box::new(Endpoint::connect(
        Config { address: own, ..Config::default() },
        Connect { host, nonce, password: "" },
        Time::ZERO,
    ))
}

/// Sends random payloads from a node to all its peers.
fn send_random_payloads(node: &mut dyn LabEngine, payloads: &[Vec<u8>], rng: &mut Rng, now: Time) {
    let name = ["Cady2", "Žofie \u{1F680}", "K\u{1}'mpec \"\\", ""][rng.index(4)];
    if rng.chance(0.02) {
        let name = Text::encode(name).expect("a name");
        // A node that has not joined yet has no peers for its name.
        let _ = node.announce_name(Text::new(&name).expect("a name"), now);
    }
    for peer in node.peer_ids() {
        let mut payload = payloads[rng.index(payloads.len())].clone();
        if rng.chance(0.3) {
            payload.resize(1 + rng.index(60), 0);
            let from = rng.index(payload.len());
            rng.fill(&mut payload[from..]);
        }
        if rng.chance(0.03) {
            payload.resize(420 + rng.index(4000), 0x11);
        }
        let quality = if rng.chance(0.5) { DeliveryMode::Reliable } else { DeliveryMode::Unreliable };
        // A peer that has not joined yet accepts nothing.
        let _ = node.send_with_mode(peer, &payload, SendMode::Standard(quality), now);
    }
}

/// A capture at the host: its datagrams before they can be lost, and those that reach it.
struct HostTap {
    swarm: SwarmCapture,
    mix: TrafficMix,
    count: usize,
    rng: Rng,
}

impl HostTap {
    fn capture(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        let at = Duration::from_micros(meta.now.as_micros());
        let (from, to) = (World::address(meta.from), World::address(meta.to));
        self.push(at, from, to, bytes.to_vec());
        if self.rng.chance(0.03) {
            self.push(at, from, to, bytes.to_vec());
        }
        if self.mix == TrafficMix::Everything {
            self.add_noise(at, from, to, bytes);
        }
    }

    fn add_noise(&mut self, at: Duration, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        if self.rng.chance(0.02) {
            let text = [
                &b"\\status\\"[..],
                b"\\gamename\\bcommander\\hostname\\A\\final\\\\queryid\\1.1",
                b"\\\xFC\x00\n",
            ][self.rng.index(3)];
            self.push(at, from, to, text.to_vec());
        }
        if self.rng.chance(0.03) {
            let mut garbage = vec![0; 1 + self.rng.index(60)];
            self.rng.fill(&mut garbage);
            self.push(at, from, to, garbage);
        }
        if self.rng.chance(0.05) {
            let mut plain = bytes.to_vec();
            cipher::decrypt(&mut plain);
            let changed = self.rng.index(plain.len().min(12));
            self.rng.fill(&mut plain[changed..=changed]);
            plain.truncate(1 + self.rng.index(2 * plain.len()));
            self.push(at, from, to, encrypted(plain));
        }
    }

    fn push(&mut self, at: Duration, from: SocketAddrV4, to: SocketAddrV4, bytes: Vec<u8>) {
        self.swarm.captured.push(WireDatagram { at, from, to, bytes });
    }
}

impl WorldObserver<dyn LabEngine> for HostTap {
    fn on_event(
        &mut self,
        _node: usize,
        event: Event,
        bytes: &[u8],
        engine: &mut (dyn LabEngine + 'static),
        now: Time,
    ) {
        match event {
            Event::Request { from, .. } => {
                engine.admit(from, now).expect("room");
            }
            Event::Received { .. } if bytes.len() > 407 && self.swarm.captured.len() < self.count => {
                self.swarm.large.push(bytes.to_vec());
            }
            _ => {}
        }
    }

    fn on_sent(&mut self, meta: DatagramMeta, bytes: &[u8], _sender: &(dyn LabEngine + 'static)) {
        if meta.from == 0 {
            self.capture(meta, bytes);
        }
    }

    fn on_arrival(&mut self, meta: DatagramMeta, bytes: &[u8]) {
        if meta.to == 0 {
            self.capture(meta, bytes);
        }
    }

    fn on_corrupted(&mut self, meta: DatagramMeta, bytes: &[u8]) -> bool {
        if meta.to == 0 {
            self.capture(meta, bytes);
        }
        false
    }
}

const CLIENTS: usize = 6;
const MAX_SCENARIO_DATAGRAMS: usize = 150;
const TRANSPORT: &str = include_str!("../../../../captures/transport.json");
const SESSION: &str = include_str!("../../../../captures/session.json");
const CIPHER: &str = include_str!("../../../../captures/cipher.json");
