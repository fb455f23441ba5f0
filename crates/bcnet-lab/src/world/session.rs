//! Worlds of bcnet's endpoints.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, Endpoint, Engine as _, Event, Time};

use super::{World, address};
use crate::behavior::NodeBehavior;
use crate::link::Faults;

impl World {
    /// Makes two nodes, a host and one client that was let in; node 0 is the host.
    #[must_use]
    pub fn pair(faults: Faults, seed: u64, config: &Config, tick: Duration) -> Self {
        Self::session(faults, seed, config, tick, 1)
    }

    /// Makes a host, which is node 0, and clients, all let in while nothing was lost yet.
    ///
    /// # Panics
    /// If they are not let in within 40 seconds.
    #[must_use]
    pub fn session(faults: Faults, seed: u64, config: &Config, tick: Duration, clients: usize) -> Self {
        let calm = Faults { delay: faults.delay, ..Faults::default() };
        let mut world = Self::new(calm, seed);
        world.add(Endpoint::host(config.clone()), tick);
        for _ in 0..clients {
            world.add_client(config.clone(), 1, tick);
        }
        let deadline = Time::ZERO + Duration::from_secs(40);
        while (1..=clients).any(|client| world.node(client).id() == PeerId::UNASSIGNED) {
            assert!(world.now < deadline, "the clients were not let in");
            world.run(world.now + Duration::from_millis(10), |_, event, _, host, now| {
                if let Event::Request { from, .. } = event {
                    host.admit(from, now).expect("room for every client");
                }
            });
        }
        world.set_faults(faults);
        world
    }

    /// Returns the address that the node with this number has.
    #[must_use]
    pub fn address(number: usize) -> SocketAddrV4 {
        address(number)
    }

    /// Adds a node and tells its number.
    pub fn add(&mut self, endpoint: Endpoint, tick: Duration) -> usize {
        self.add_node(Box::new(endpoint), NodeBehavior { tick, ..NodeBehavior::default() })
    }

    /// Adds a client that asks node 0 to be let in, and tells its number.
    pub fn add_client(&mut self, config: Config, nonce: u32, tick: Duration) -> usize {
        let number = self.nodes.len();
        self.add(self.client(number, config, nonce), tick)
    }

    /// Returns a client for the address of a node, which asks node 0 to be let in.
    #[must_use]
    pub fn client(&self, number: usize, config: Config, nonce: u32) -> Endpoint {
        let own = *address(number).ip();
        Endpoint::connect(
            Config { address: own, ..config },
            Connect { host: address(0), nonce, password: "" },
            self.now,
        )
    }

    /// Puts another endpoint in the place of a node.
    pub fn replace(&mut self, number: usize, endpoint: Endpoint) {
        *self.node_mut(number) = endpoint;
    }
}
