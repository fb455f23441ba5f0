//! Simulates a battle with the rates of recorded battles.
//!
//! Three clients send their state ten times a second, shots, hits and chat. The host relays to the others.

use std::time::Duration;

use bcnet_lab::{Faults, Rng, World};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, DeliveryMode, Engine, Event};

pub(crate) struct SimulatedBattle {
    world: World,
    ids: Vec<PeerId>,
    rng: Rng,
    /// Orders that clients sent, and orders that the host received. Orders are reliable.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Payloads of any kind that an endpoint accepted.
    pub(crate) messages: u64,
}

impl SimulatedBattle {
    pub(crate) fn new() -> Self {
        let delay = Duration::from_millis(25);
        let faults = Faults { loss: 0.01, delay, jitter: Duration::from_millis(5), ..Faults::default() };
        let config = Config { tick: TICK, cipher: false, ..Config::default() };
        let world = World::session(faults, 3, &config, TICK, CLIENTS);
        let ids = (0..=CLIENTS).map(|node| world.node(node).id()).collect();
        Self { world, ids, rng: Rng::new(4), sent: 0, received: 0, messages: 0 }
    }

    /// Simulates the next `seconds` seconds.
    pub(crate) fn run(&mut self, seconds: u64) {
        let end = self.world.now() + Duration::from_secs(seconds);
        while self.world.now() < end {
            (1..=CLIENTS).for_each(|client| self.send_client_messages(client));
            self.run_tick_and_relay();
        }
    }

    /// Returns the number of datagrams sent so far.
    pub(crate) fn datagrams(&self) -> u64 {
        self.world.total_link_stats().sent
    }

    /// Sends the messages of a client in a tick: nearly always its state, and sometimes an order.
    fn send_client_messages(&mut self, client: usize) {
        // 0.39 reliable messages per second and client, 10.5 ticks per second. Shots come in pairs, hits and chat are rare.
        let order = self.rng.chance(0.037).then(|| [21, 21, 17, 10, 19, 14, 18][self.rng.index(7)]);
        let state = self.rng.chance(0.91).then(|| [29, 26, 23, 39, 27][self.rng.index(5)]);
        let now = self.world.now();
        let says = [(state, DeliveryMode::Unreliable), (order, DeliveryMode::Reliable)];
        for (len, mode) in says.into_iter().filter_map(|(len, mode)| Some((len?, mode))) {
            let endpoint = self.world.node_mut(client);
            endpoint.send(PeerId::HOST, &[7; 64][..len], mode, now).expect("joined");
            self.sent += u64::from(mode == DeliveryMode::Reliable);
            self.messages += 1;
        }
    }

    /// Runs one tick of all endpoints and relays the messages of clients.
    fn run_tick_and_relay(&mut self) {
        let Self { world, ids, received, messages, .. } = self;
        world.run(world.now() + TICK, |node, event, bytes, endpoint, now| match event {
            Event::Received { peer, .. } if node == 0 => {
                // The shortest state is longer than the longest order.
                let mode = if bytes.len() >= 23 { DeliveryMode::Unreliable } else { DeliveryMode::Reliable };
                for id in ids[1..].iter().filter(|id| **id != peer) {
                    endpoint.send(*id, bytes, mode, now).expect("joined");
                    *messages += 1;
                }
                *received += u64::from(mode == DeliveryMode::Reliable);
            }
            Event::Left { peer, reason } => panic!("at {now} {peer} left node {node}: {reason}"),
            _ => {}
        });
    }
}

const CLIENTS: usize = 3;
/// Frame interval of the original host.
const TICK: Duration = Duration::from_millis(95);
