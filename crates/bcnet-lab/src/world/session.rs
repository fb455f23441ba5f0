//! Worlds of bcnet endpoints: a host with admitted clients.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, Endpoint, Engine as _, Event, Time};

use super::{World, node_address};
use crate::behavior::NodeBehavior;
use bcnet_transport::link::Faults;

impl World {
    /// Creates a world with a host, node 0, and one admitted client.
    #[must_use]
    pub fn pair(faults: Faults, seed: u64, config: &Config, tick: Duration) -> Self {
        Self::session(faults, seed, config, tick, 1)
    }

    /// Creates a world with a host, node 0, and admitted clients. No datagram is lost while they join.
    ///
    /// # Panics
    /// Panics if a client is not admitted within 40 seconds.
    #[must_use]
    pub fn session(faults: Faults, seed: u64, config: &Config, tick: Duration, clients: usize) -> Self {
        let without_loss = Faults { delay: faults.delay, ..Faults::default() };
        let mut world = Self::new(without_loss, seed);
        world.add_endpoint(Endpoint::host(config.clone()), tick);
        for _ in 0..clients {
            world.add_client(config.clone(), 1, tick);
        }
        let deadline = Time::ZERO + Duration::from_secs(40);
        while (1..=clients).any(|client| world.node(client).id() == PeerId::UNASSIGNED) {
            assert!(world.now < deadline, "a client was not admitted within 40 seconds");
            world.run(world.now + Duration::from_millis(10), |_, event, _, host, now| {
                if let Event::Request { from, .. } = event {
                    host.admit(from, now).expect("the host has a free slot for every client");
                }
            });
        }
        world.set_faults(faults);
        world
    }

    /// Returns the address of the node with this number.
    #[must_use]
    pub fn address(number: usize) -> SocketAddrV4 {
        node_address(number)
    }

    /// Adds a node with this endpoint and tick, and returns its number.
    pub fn add_endpoint(&mut self, endpoint: Endpoint, tick: Duration) -> usize {
        self.add_node(Box::new(endpoint), NodeBehavior { tick, ..NodeBehavior::default() })
    }

    /// Adds a client that connects to node 0, and returns its number.
    pub fn add_client(&mut self, config: Config, nonce: u32, tick: Duration) -> usize {
        let number = self.nodes.len();
        self.add_endpoint(self.new_client(number, config, nonce), tick)
    }

    /// Creates a client with the address of a node. The client connects to node 0.
    #[must_use]
    pub fn new_client(&self, number: usize, config: Config, nonce: u32) -> Endpoint {
        let own = *node_address(number).ip();
        Endpoint::connect(
            Config { address: own, ..config },
            Connect { host: node_address(0), nonce, password: "" },
            self.now,
        )
    }

    /// Replaces the endpoint of a node.
    pub fn replace_endpoint(&mut self, number: usize, endpoint: Endpoint) {
        *self.node_mut(number) = endpoint;
    }
}
