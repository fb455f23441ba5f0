//! Benchmark of the whole engine: hosts and clients in memory, without cipher, driven like a game loop.
//!
//! In every tick of 60 Hz, each endpoint receives its datagrams, runs its timers, returns its events, sends,
//! and is flushed once. The results include the cost of both endpoints and of this loop. See [`runner`] for
//! usage.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;
use std::time::Duration;

use bcnet_transport::wire::{MAX_DATAGRAM, PeerId};
use bcnet_transport::{Config, Connect, Deadlines, DeliveryMode, Endpoint, Engine, Event, Time};
use runner::BenchWorkload;

#[path = "../../bcnet-wire/benches/runner/mod.rs"]
mod runner;

fn main() -> ExitCode {
    runner::main(vec![
        pair("engine/32x64", 32, 64),
        pair("engine/100x64", 100, 64),
        pair("engine/32x1", 32, 1),
        bulk("engine/64KB"),
        many_clients("engine/peers-64", 64),
        many_clients("engine/peers-4096", 4096),
        idle("engine/idle-4096", 4096),
    ])
}

/// A host that sends `count` reliable messages of `len` bytes to one client in every tick.
fn pair(name: &'static str, len: usize, count: usize) -> BenchWorkload {
    const MESSAGES: usize = 4096;
    let load = TickLoad { payload: vec![7; len], count, to: FIRST_CLIENT };
    let mut lazy = None;
    let iteration = move || {
        let world = lazy.get_or_insert_with(|| BenchWorld::connected(1));
        (0..MESSAGES / count).for_each(|_| world.tick(&load, &NO_LOAD));
        world.assert_arrived(0);
    };
    BenchWorkload { name, unit: "message", units: MESSAGES, baseline: name, iteration: Box::new(iteration) }
}

/// A host that sends 64 KB to one client in every tick.
fn bulk(name: &'static str) -> BenchWorkload {
    const TICKS: usize = 16;
    let load = TickLoad { payload: vec![7; 64 << 10], count: 1, to: FIRST_CLIENT };
    let mut lazy = None;
    let iteration = move || {
        let world = lazy.get_or_insert_with(|| BenchWorld::connected(1));
        (0..TICKS).for_each(|_| world.tick(&load, &NO_LOAD));
        // Some messages are still waiting: the congestion window starts small.
        world.assert_arrived(10);
    };
    BenchWorkload { name, unit: "KB", units: 64 * TICKS, baseline: name, iteration: Box::new(iteration) }
}

/// Clients that each send one reliable message of 50 bytes in every tick.
fn many_clients(name: &'static str, clients: usize) -> BenchWorkload {
    const MESSAGES: usize = 4096;
    let load = TickLoad { payload: vec![7; 50], count: 1, to: PeerId::HOST };
    let mut lazy = None;
    let iteration = move || {
        let world = lazy.get_or_insert_with(|| BenchWorld::connected(clients));
        (0..MESSAGES / clients).for_each(|_| world.tick(&NO_LOAD, &load));
        // The last messages of the clients arrive in the next tick.
        world.assert_arrived(clients);
    };
    BenchWorkload { name, unit: "message", units: MESSAGES, baseline: name, iteration: Box::new(iteration) }
}

/// Clients that send only keepalives, in a loop that services only endpoints with something due.
fn idle(name: &'static str, clients: usize) -> BenchWorkload {
    // The interval between two keepalives.
    const TICKS: usize = 300;
    let mut lazy = None;
    let iteration = move || {
        let world = lazy.get_or_insert_with(|| BenchWorld::connected(clients));
        (0..TICKS).for_each(|_| world.tick_due());
    };
    BenchWorkload { name, unit: "tick", units: TICKS, baseline: name, iteration: Box::new(iteration) }
}

/// Messages that each endpoint of a group sends in a tick.
struct TickLoad {
    payload: Vec<u8>,
    count: usize,
    to: PeerId,
}

struct BenchWorld {
    hosts: EndpointGroup,
    clients: EndpointGroup,
    now: Time,
}

/// All hosts or all clients, and the datagrams in flight to them.
struct EndpointGroup {
    endpoints: Vec<Endpoint>,
    inbound: DatagramQueue,
    deadlines: Deadlines,
    sent: usize,
    received: usize,
    payload: Vec<u8>,
}

/// Datagrams in flight, in reusable slots.
struct DatagramQueue {
    slots: Vec<DatagramSlot>,
    used: usize,
}

/// The alignment is fixed: the cost of copying depends on it, and must not depend on the heap address.
#[derive(Clone)]
#[repr(align(64))]
struct DatagramSlot {
    bytes: [u8; MAX_DATAGRAM],
    len: usize,
    from: SocketAddrV4,
    to: usize,
}

impl BenchWorld {
    /// Creates connected clients, spread over as few hosts as possible.
    fn connected(clients: usize) -> Self {
        let config = Config { cipher: false, max_pending_requests: 100, ..Config::default() };
        let hosts = clients.div_ceil(MAX_CLIENTS_PER_HOST);
        let connect = |client| {
            let (host, own) = (address(HOST_NETWORK, client % hosts), *address(CLIENT_NETWORK, client).ip());
            Endpoint::connect(
                Config { address: own, ..config.clone() },
                Connect { host, nonce: 1, password: "" },
                Time::ZERO,
            )
        };
        let mut world = Self {
            hosts: EndpointGroup::new((0..hosts).map(|_| Endpoint::host(config.clone())).collect()),
            clients: EndpointGroup::new((0..clients).map(connect).collect()),
            now: Time::ZERO,
        };
        // Enough ticks for the clients that found too many pending requests to ask again.
        (0..150).for_each(|_| world.tick(&NO_LOAD, &NO_LOAD));
        assert!(world.clients.endpoints.iter().all(|client| client.id() != PeerId::UNASSIGNED));
        world
    }

    /// Services every endpoint.
    fn tick(&mut self, hosts: &TickLoad, clients: &TickLoad) {
        self.now = self.now + TICK;
        self.hosts.deliver_arrived(self.now);
        for end in 0..self.hosts.endpoints.len() {
            self.hosts.serve(end, HOST_NETWORK, hosts, &mut self.clients.inbound, self.now);
        }
        self.clients.deliver_arrived(self.now);
        for end in 0..self.clients.endpoints.len() {
            self.clients.serve(end, CLIENT_NETWORK, clients, &mut self.hosts.inbound, self.now);
        }
    }

    /// Services the endpoints that have a received datagram or a timer that is due.
    fn tick_due(&mut self) {
        self.now = self.now + TICK;
        self.hosts.serve_due(HOST_NETWORK, &mut self.clients.inbound, self.now);
        self.clients.serve_due(CLIENT_NETWORK, &mut self.hosts.inbound, self.now);
    }

    /// Asserts that all messages have arrived, except at most the last `late` ones.
    fn assert_arrived(&self, late: usize) {
        let sent = self.hosts.sent + self.clients.sent;
        let received = self.hosts.received + self.clients.received;
        assert!(
            received <= sent && received + late >= sent,
            "{received} of {sent} messages arrived; at most {late} may be missing"
        );
    }
}

impl EndpointGroup {
    fn new(ends: Vec<Endpoint>) -> Self {
        let mut deadlines = Deadlines::new();
        (0..ends.len()).for_each(|end| deadlines.set(end as u32, Some(Time::ZERO)));
        Self {
            endpoints: ends,
            inbound: DatagramQueue::new(),
            deadlines,
            sent: 0,
            received: 0,
            payload: Vec::new(),
        }
    }

    fn deliver_arrived(&mut self, now: Time) {
        for slot in &mut self.inbound.slots[..self.inbound.used] {
            self.endpoints[slot.to].handle_datagram(slot.from, &mut slot.bytes[..slot.len], now);
        }
        self.inbound.used = 0;
    }

    fn serve(&mut self, end: usize, network: u8, load: &TickLoad, out: &mut DatagramQueue, now: Time) {
        let endpoint = &mut self.endpoints[end];
        endpoint.handle_timeout(now);
        while let Some(event) = endpoint.poll_event(&mut self.payload) {
            match event {
                Event::Received { .. } => self.received += 1,
                Event::Request { from, .. } => assert!(endpoint.admit(from, now).is_ok()),
                _ => {}
            }
        }
        for _ in 0..load.count {
            assert!(endpoint.send(load.to, &load.payload, DeliveryMode::Reliable, now).is_ok());
        }
        self.sent += load.count;
        loop {
            let slot = out.next_free();
            let Some(transmit) = endpoint.poll_transmit(&mut slot.bytes, now) else { break };
            (slot.from, slot.to, slot.len) = (address(network, end), index(transmit.to), transmit.len);
            out.used += 1;
        }
    }

    fn serve_due(&mut self, network: u8, out: &mut DatagramQueue, now: Time) {
        for slot in &self.inbound.slots[..self.inbound.used] {
            self.deadlines.set(slot.to as u32, Some(now));
        }
        self.deliver_arrived(now);
        while let Some((_, end)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.serve(end as usize, network, &NO_LOAD, out, now);
            self.deadlines.set(end, self.endpoints[end as usize].next_timeout());
        }
    }
}

impl DatagramQueue {
    fn new() -> Self {
        let empty = DatagramSlot { bytes: [0; MAX_DATAGRAM], len: 0, from: address(HOST_NETWORK, 0), to: 0 };
        Self { slots: vec![empty; 256], used: 0 }
    }

    fn next_free(&mut self) -> &mut DatagramSlot {
        if self.used == self.slots.len() {
            self.slots.extend_from_within(..);
        }
        &mut self.slots[self.used]
    }
}

fn address(network: u8, index: usize) -> SocketAddrV4 {
    let [_, _, high, low] = (index as u32).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, network, high, low), 22101)
}

fn index(address: SocketAddrV4) -> usize {
    let [_, _, high, low] = address.ip().octets();
    usize::from(u16::from_be_bytes([high, low]))
}

const TICK: Duration = Duration::from_micros(16_667);
const NO_LOAD: TickLoad = TickLoad { payload: Vec::new(), count: 0, to: PeerId::NULL };
const FIRST_CLIENT: PeerId = PeerId(2);
/// Maximum number of clients of one host.
const MAX_CLIENTS_PER_HOST: usize = 120;
const HOST_NETWORK: u8 = 0;
const CLIENT_NETWORK: u8 = 1;
