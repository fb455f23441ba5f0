//! Runs with many messages, fragments, hours or peers, in little real time.

use std::collections::BTreeMap;
use std::time::Duration;

use bcnet_lab::{Faults, Rng, World};
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Config, DeliveryMode, Endpoint, Engine, Event, Time};
use day::SimulatedBattle;

#[path = "../benches/day/mod.rs"]
mod day;

#[path = "../../bcnet-transport/tests/endpoint/heap.rs"]
mod heap;

const HOST: PeerId = PeerId(1);
const CLIENT: PeerId = PeerId(2);

fn config() -> Config {
    Config { cipher: false, ..Config::default() }
}

fn link(loss: f64) -> Faults {
    Faults { loss, delay: Duration::from_millis(25), ..Faults::default() }
}

/// T-24, T-69: sequence numbers wrap three times in both directions, under loss, and every message arrives.
#[test]
fn sequence_number_wrap_loses_no_message() {
    let messages = 200_000_u32;
    let mut world = World::pair(link(0.05), 1, &config(), Duration::ZERO);
    let ends = [(0, CLIENT), (1, HOST)];
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    while received != [messages; 2] {
        let now = world.now();
        for (node, peer) in ends {
            let burst = messages.min(sent[node] + 50);
            while sent[node] < burst
                && world
                    .node_mut(node)
                    .send(peer, &sent[node].to_le_bytes(), DeliveryMode::Reliable, now)
                    .is_ok()
            {
                sent[node] += 1;
            }
        }
        assert!(now < Time::ZERO + Duration::from_secs(600), "{sent:?} sent, {received:?} received");
        world.run(now + Duration::from_millis(5), |node, event, bytes, _, now| match event {
            Event::Received { .. } => {
                assert_eq!(bytes, received[1 - node].to_le_bytes());
                received[1 - node] += 1;
            }
            Event::Left { peer, reason } => panic!("at {now} {peer} left node {node}: {reason}"),
            _ => {}
        });
    }
    println!("{messages} messages each way in {} virtual seconds", world.now());
}

/// T-66 to T-68: the largest payloads, 255 fragments each, arrive at 20 % loss.
///
/// A peer with a full inbox gets first the messages that it waits for, so delivery never stops.
#[test]
fn largest_messages_arrive_intact_under_heavy_loss() {
    let messages = 1000;
    let mut world = World::pair(link(0.2), 2, &config(), Duration::ZERO);
    let mut payload = vec![0; 103_529];
    let (mut sent, mut received) = (0_u64, 0);
    while received < messages {
        let now = world.now();
        if sent < messages {
            Rng::new(sent).fill(&mut payload);
            sent += u64::from(world.node_mut(0).send(CLIENT, &payload, DeliveryMode::Reliable, now).is_ok());
        }
        assert!(now < Time::ZERO + Duration::from_millis(400 * messages), "{received} of {sent} received");
        world.run(now + Duration::from_millis(20), |node, event, bytes, _, _| {
            if matches!((node, event), (1, Event::Received { peer: HOST, .. })) {
                let mut expected = vec![0; 103_529];
                Rng::new(received).fill(&mut expected);
                assert!(bytes == expected, "payload {received} has changed bytes");
                received += 1;
            }
        });
    }
    println!("{messages} x 103529 bytes in {} virtual seconds", world.now());
}

/// Memory does not grow from hour to hour in a day of battle traffic.
#[test]
fn memory_is_flat_for_a_day_of_recorded_traffic() {
    let (hours, hour) = (24, 3600);
    let mut day = SimulatedBattle::new();
    let mut sizes = Vec::with_capacity(24);
    for _ in 0..hours {
        day.run(hour);
        sizes.push(heap::in_use());
    }
    let SimulatedBattle { sent, received, .. } = day;
    println!("{hours} x {hour} s: heap {sizes:?}, {sent} orders, {} datagrams", day.datagrams());
    assert!(sent > 0 && received + 10 >= sent, "{received} of {sent} orders arrived");
    let (first, most) = (sizes[0], sizes.iter().copied().max().expect("the run has at least one hour"));
    assert!(most <= first + first / 4, "the heap grows: {sizes:?}");
}

/// T-50 to T-57: more players than there are ids join, send, leave or vanish for an hour.
///
/// All messages between live peers arrive in order, and in the end the host is empty.
#[test]
fn host_handles_124_peers_joining_and_leaving_for_an_hour() {
    let seconds = 3600;
    let clients = 150;
    let mut world = World::new(Faults { loss: 0.02, ..link(0.0) }, 5);
    world.add_endpoint(Endpoint::host(config()), Duration::ZERO);
    let mut crowd = ChurningClients { nonces: vec![0; clients + 1], ..ChurningClients::default() };
    for number in 1..=clients {
        crowd.nonces[number] = 1;
        world.add_client(config(), 1, Duration::ZERO);
    }
    let mut rng = Rng::new(6);
    let idle = config().idle_timeout + Duration::from_secs(30);
    for second in 0..seconds {
        // Two clients join or leave in each second.
        for _ in 0..2 {
            let number = 1 + rng.index(clients);
            crowd.toggle_client(&mut world, number, &mut rng);
        }
        crowd.send_to_all(&mut world);
        world.run(Time::ZERO + Duration::from_secs(second + 1), |node, event, bytes, endpoint, now| {
            crowd.on_event(node, event, bytes, endpoint, now);
        });
        let peers = world.node(0).peers().count();
        crowd.peak_peers = crowd.peak_peers.max(peers);
    }
    println!("{crowd}");
    assert!(crowd.peak_peers >= 120 && crowd.peak_peers <= 124, "at most {} at once", crowd.peak_peers);
    assert!(crowd.refused > 0 && crowd.left > 0 && crowd.silent > 0 && crowd.received > 0);
    for number in 1..=clients {
        let now = world.now();
        world.node_mut(number).leave(now);
    }
    world.run(world.now() + idle, |_, _, _, _, _| {});
    assert!(world.node(0).is_closed(), "the host still has {} peers", world.node(0).peers().count());
    let before = heap::in_use();
    world.replace_endpoint(0, Endpoint::host(config()));
    let heap = before - heap::in_use();
    // The peer table keeps its slots, at most 256, each with its counters.
    assert!(heap < 256 * 576, "an empty host keeps {heap} bytes");
}

/// Clients that join and leave.
#[derive(Default)]
struct ChurningClients {
    /// Number of connection attempts of each node.
    nonces: Vec<u32>,
    /// Each peer of the host: its node, and the messages sent to it and received from it.
    hosted: BTreeMap<PeerId, HostedPeer>,
    /// Messages sent and received by each node.
    client_counters: BTreeMap<usize, (u64, u64)>,
    received: u64,
    refused: u64,
    left: u64,
    silent: u64,
    peak_peers: usize,
}

#[derive(Clone, Copy)]
struct HostedPeer {
    node: usize,
    sent: u64,
    received: u64,
}

impl std::fmt::Display for ChurningClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { received, refused, left, silent, peak_peers: most, .. } = self;
        write!(
            f,
            "{received} received, {refused} refused, {left} left, {silent} silent, at most {most} at once"
        )
    }
}

impl ChurningClients {
    /// Makes a connected client leave, sometimes without a disconnect, or makes a client join.
    fn toggle_client(&mut self, world: &mut World, number: usize, rng: &mut Rng) {
        let now = world.now();
        self.client_counters.remove(&number);
        if world.node(number).id() != PeerId::UNASSIGNED && !world.node(number).is_closed() && rng.chance(0.9)
        {
            return world.node_mut(number).leave(now);
        }
        self.nonces[number] += 1;
        let endpoint = if rng.chance(0.4) {
            // An endpoint that sends nothing replaces the client.
            Endpoint::host(config())
        } else {
            world.new_client(number, config(), self.nonces[number])
        };
        world.replace_endpoint(number, endpoint);
    }

    /// Sends a message from every client to the host, and from the host to every client.
    fn send_to_all(&mut self, world: &mut World) {
        let now = world.now();
        for (peer, known) in &mut self.hosted {
            let text = numbered_payload(self.nonces[known.node], known.sent);
            if world.node_mut(0).send(*peer, &text, DeliveryMode::Reliable, now).is_ok() {
                known.sent += 1;
            }
        }
        for (number, (sent, _)) in &mut self.client_counters {
            let text = numbered_payload(self.nonces[*number], *sent);
            if world.node_mut(*number).send(HOST, &text, DeliveryMode::Reliable, now).is_ok() {
                *sent += 1;
            }
        }
    }

    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], endpoint: &mut Endpoint, now: Time) {
        match (node, event) {
            // A client that has asked again or left since then can be neither admitted nor refused.
            (0, Event::Request { from, .. }) => match endpoint.admit(from, now) {
                Ok(_) => {}
                Err(_) => self.refused += u64::from(endpoint.refuse(from, BootReason(3), now).is_ok()),
            },
            // Not at admission: the event that the previous owner of the id left may still be pending.
            (0, Event::Joined { peer }) => {
                if let Some(from) = endpoint.address(peer) {
                    let node = (from.ip().to_bits() - World::address(0).ip().to_bits()) as usize;
                    let old = self.hosted.insert(peer, HostedPeer { node, sent: 0, received: 0 });
                    assert!(old.is_none(), "the id {peer} is assigned twice");
                }
            }
            (0, Event::Left { peer, reason }) => {
                self.hosted.remove(&peer);
                match reason {
                    bcnet_transport::LeaveReason::Silent => self.silent += 1,
                    _ => self.left += 1,
                }
            }
            (0, Event::Received { peer, .. }) => {
                let known = self.hosted.get_mut(&peer).expect("a peer that joined");
                // Messages of the node's previous connection may still be in flight.
                assert_eq!(bytes[4..], known.received.to_le_bytes(), "payload from {peer} out of order");
                known.received += 1;
                self.received += 1;
            }
            (_, Event::Joined { .. }) => drop(self.client_counters.insert(node, (0, 0))),
            (_, Event::Received { .. }) => {
                if let Some((_, heard)) = self.client_counters.get_mut(&node) {
                    assert_eq!(bytes[4..], heard.to_le_bytes(), "payload to node {node} out of order");
                    *heard += 1;
                    self.received += 1;
                }
            }
            _ => {}
        }
    }
}

fn numbered_payload(nonce: u32, number: u64) -> Vec<u8> {
    [&nonce.to_le_bytes()[..], &number.to_le_bytes()].concat()
}
