//! Heap use of endpoints, counted on the thread that drives them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::{Rng, World};
use bcnet_transport::wire::{Ack, Body, Control, Datagram, Message, PeerId, Role, Seq, Text, Writer};
use bcnet_transport::{
    Config, Connect, Deadlines, DeliveryMode, Endpoint, Engine, Event, PeerCounters, Time,
};

#[path = "../../bcnet-transport/tests/endpoint/heap.rs"]
mod heap;

const TICK: Duration = Duration::from_micros(16_667);

/// A host and its clients on a network that does not allocate once it is set up.
///
/// Datagrams arrive one tick later, or are lost.
struct HeapTestNetwork {
    now: Time,
    rng: Rng,
    loss: f64,
    nodes: Vec<Endpoint>,
    in_flight: Vec<FixedDatagram>,
    arriving: Vec<FixedDatagram>,
    payload: Vec<u8>,
    received: u64,
}

#[derive(Clone, Copy)]
struct FixedDatagram {
    from: usize,
    to: usize,
    len: usize,
    bytes: [u8; 512],
}

impl HeapTestNetwork {
    fn new(clients: usize) -> Self {
        let config = Config { cipher: false, tick: TICK, ..Config::default() };
        let mut network = Self {
            now: Time::ZERO,
            rng: Rng::new(1),
            loss: 0.0,
            nodes: Vec::with_capacity(clients + 1),
            in_flight: Vec::with_capacity(20_000),
            arriving: Vec::with_capacity(20_000),
            payload: Vec::with_capacity(200_000),
            received: 0,
        };
        network.nodes.push(Endpoint::host(config.clone()));
        for client in 1..=clients {
            let (host, own) = (World::address(0), *World::address(client).ip());
            network.nodes.push(Endpoint::connect(
                Config { address: own, ..config.clone() },
                Connect { host, nonce: 1, password: "" },
                network.now,
            ));
            // Clients join one after the other: the host limits the number of pending requests.
            network.tick();
            network.tick();
        }
        network.run_for(Duration::from_secs(1));
        assert_eq!(network.nodes[0].peers().count(), clients);
        network
    }

    /// Returns the heap use of all endpoints together.
    fn heap(&self, before: isize) -> isize {
        let own = self.nodes.capacity() * size_of::<Endpoint>()
            + (self.in_flight.capacity() + self.arriving.capacity()) * size_of::<FixedDatagram>()
            + self.payload.capacity();
        heap::in_use() - before - own.cast_signed()
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        std::mem::swap(&mut self.in_flight, &mut self.arriving);
        for flight in &mut self.arriving {
            let bytes = &mut flight.bytes[..flight.len];
            self.nodes[flight.to].handle_datagram(World::address(flight.from), bytes, self.now);
        }
        self.arriving.clear();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.handle_timeout(self.now);
            while let Some(event) = node.poll_event(&mut self.payload) {
                match event {
                    Event::Request { from, .. } => assert!(node.admit(from, self.now).is_ok()),
                    Event::Received { .. } => self.received += 1,
                    Event::Left { peer, reason } => panic!("{peer} left node {number}: {reason}"),
                    _ => {}
                }
            }
            let mut flight = FixedDatagram { from: number, to: 0, len: 0, bytes: [0; 512] };
            while let Some(transmit) = node.poll_transmit(&mut flight.bytes, self.now) {
                if !self.rng.chance(self.loss) {
                    flight.to = (transmit.to.ip().to_bits() - World::address(0).ip().to_bits()) as usize;
                    flight.len = transmit.len;
                    assert!(self.in_flight.len() < self.in_flight.capacity());
                    self.in_flight.push(flight);
                }
            }
        }
    }

    /// Sends one message to each client and one from each. One message in `split` is sent in fragments.
    fn exchange(&mut self, round: usize, split: usize) {
        let bytes = [7; 1500];
        for client in 1..self.nodes.len() {
            let len = if (round + client).is_multiple_of(split) { 1500 } else { 10 + 7 * client };
            let mode = [DeliveryMode::Reliable, DeliveryMode::Urgent, DeliveryMode::Unreliable]
                [(round + client) % 3];
            let id = self.nodes[client].id();
            self.nodes[0].send(id, &bytes[..len], mode, self.now).expect("joined");
            self.nodes[client].send(PeerId::HOST, &bytes[..len], mode, self.now).expect("joined");
        }
        self.tick();
    }
}

/// T-60 to T-70: sending, receiving and acknowledging allocate nothing once all buffers have their size.
#[test]
fn ten_thousand_round_trips_allocate_nothing() {
    let mut network = HeapTestNetwork::new(16);
    // Heavier loss than in the measurement, so that every buffer reaches its largest size first.
    network.loss = 0.2;
    (0..1000).for_each(|round| network.exchange(round, 1 + round % 2));
    network.loss = 0.05;
    (0..100).for_each(|round| network.exchange(round, 16));
    let (before, received) = (heap::allocations(), network.received);
    (0..700).for_each(|round| network.exchange(round, 16));
    let allocations = heap::allocations() - before;
    assert!(network.received - received >= 2 * 10_000, "{} received", network.received - received);
    assert_eq!(allocations, 0);
    // Checks that the counter works.
    drop(Box::new(network));
    assert_eq!(heap::allocations() - before, 1);
}

/// A burst leaves no memory allocated.
#[test]
fn memory_returns_below_twice_the_idle_size_after_a_burst() {
    let before = heap::in_use();
    let mut network = HeapTestNetwork::new(16);
    network.run_for(Duration::from_secs(30));
    let idle = network.heap(before);
    network.loss = 0.1;
    let bytes = vec![7; 100_000];
    let mut peak = 0;
    for _ in 0..5 {
        for client in 1..network.nodes.len() {
            let id = network.nodes[client].id();
            network.nodes[0].send(id, &bytes, DeliveryMode::Reliable, network.now).expect("joined");
            network.nodes[client]
                .send(PeerId::HOST, &bytes, DeliveryMode::Reliable, network.now)
                .expect("joined");
        }
        network.run_for(Duration::from_millis(200));
        peak = peak.max(network.heap(before) - 100_000);
    }
    drop(bytes);
    network.run_for(Duration::from_secs(30));
    assert_eq!(network.received, 5 * 32, "some messages of the burst did not arrive");
    network.loss = 0.0;
    network.run_for(Duration::from_secs(10));
    let after = network.heap(before);
    println!("idle {idle} B, in the burst {peak} B, after it {after} B");
    assert!(peak > 10 * idle, "the burst used too little memory for this test: {peak} bytes");
    assert!(after < 2 * idle, "{idle} bytes before, {after} after");
}

/// An idle peer takes at most 400 bytes, without names and counters.
#[test]
fn an_idle_peer_takes_four_hundred_bytes() {
    const PEERS: usize = 120;
    let mut network = HeapTestNetwork::new(PEERS);
    (0..300).for_each(|round| network.exchange(round, 16));
    network.run_for(Duration::from_secs(60));
    // Measures the heap of the host alone: dropping the host frees its memory.
    let before = heap::in_use();
    let host = std::mem::replace(&mut network.nodes[0], Endpoint::host(Config::default()));
    assert_eq!(host.peers().count(), PEERS);
    drop(host);
    let heap = usize::try_from(before - heap::in_use()).expect("the host frees memory");
    let each = (heap - PEERS * size_of::<PeerCounters>()) / PEERS;
    println!("{heap} B for {PEERS} peers, {each} B each without counters");
    assert!(each <= 400, "{each} bytes for each peer");
}

/// T-55: 4,096 idle peers cost only their keepalives: no tick services any other peer.
#[test]
fn idle_peers_cost_nothing_but_their_keepalives() {
    let mut idle = IdleHosts::new(4096, 34);
    idle.run_for(Duration::from_secs(20));
    (idle.serviced, idle.needless_services, idle.keepalives) = (0, 0, 0);
    idle.run_for(Duration::from_secs(20));
    println!(
        "serviced {}, needlessly {}, keepalives {}",
        idle.serviced, idle.needless_services, idle.keepalives
    );
    assert_eq!(idle.keepalives, 4 * 4096, "one every five seconds");
    assert_eq!(idle.needless_services, 0, "an endpoint was serviced although no keepalive was due");
}

/// Many hosts in one loop. Their clients exist only as injected datagrams.
struct IdleHosts {
    now: Time,
    hosts: Vec<Endpoint>,
    deadlines: Deadlines,
    /// Each client in the order of its keepalives: host, address, id.
    clients: Vec<(usize, SocketAddrV4, PeerId)>,
    serviced: u64,
    needless_services: u64,
    keepalives: u64,
    step: usize,
}

impl IdleHosts {
    fn new(peers: usize, hosts: usize) -> Self {
        let config = Config { cipher: false, ..Config::default() };
        let now = Time::from_micros(1_000_000);
        let mut idle = Self {
            now,
            hosts: (0..hosts).map(|_| Endpoint::host(config.clone())).collect(),
            deadlines: Deadlines::new(),
            clients: Vec::new(),
            serviced: 0,
            needless_services: 0,
            keepalives: 0,
            step: 0,
        };
        for number in 0..peers {
            // Joins are spread over five seconds.
            if number.is_multiple_of(15) {
                idle.run_for(TICK);
            }
            idle.join(number, number % hosts);
        }
        idle
    }

    fn join(&mut self, number: usize, host: usize) {
        let address =
            SocketAddrV4::new(Ipv4Addr::from_bits(0x0B00_0000 + u32::try_from(number).expect("few")), 22101);
        let body = Body::ConnectRequest { address: *address.ip(), nonce: 1, password: Text::default() };
        self.deliver_message(
            host,
            address,
            PeerId::UNASSIGNED,
            &Message::Control(Control::new(Seq(0), body)),
        );
        let id = self.hosts[host].admit(address, self.now).expect("room");
        let mut buffer = [0; 512];
        let transmit = self.hosts[host].poll_transmit(&mut buffer, self.now).expect("the reply");
        let datagram =
            Datagram::parse(&buffer[..transmit.len], Some(Role::Host)).expect("the reply is valid");
        let reply = datagram.messages().filter(|message| !matches!(message, Message::Ack(_)));
        for id_of_reply in reply.filter_map(|message| message.id()).collect::<Vec<_>>() {
            self.deliver_message(host, address, id, &Message::Ack(Ack::new(id_of_reply)));
        }
        self.clients.push((host, address, id));
        self.flush_host(host);
    }

    fn deliver_message(&mut self, host: usize, address: SocketAddrV4, id: PeerId, message: &Message<'_>) {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer, id);
        assert!(writer.push(message));
        self.hosts[host].handle_datagram(address, writer.finish().expect("one message"), self.now);
    }

    /// Sends the pending datagrams of a host. Returns the number of keepalives among them.
    fn flush_host(&mut self, host: usize) -> u64 {
        let (mut buffer, mut payload, mut keepalives) = ([0; 512], Vec::new(), 0);
        while let Some(event) = self.hosts[host].poll_event(&mut payload) {
            assert!(!matches!(event, Event::Left { .. }), "{event:?}");
        }
        while let Some(transmit) = self.hosts[host].poll_transmit(&mut buffer, self.now) {
            let datagram =
                Datagram::parse(&buffer[..transmit.len], Some(Role::Host)).expect("the datagram is valid");
            keepalives += datagram.messages().filter(|message| *message == Message::Keepalive).count() as u64;
        }
        let key = u32::try_from(host).expect("few");
        self.deadlines.set(key, self.hosts[host].next_timeout());
        keepalives
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_millis(1);
            self.step += 1;
            // Each client sends one keepalive in five seconds.
            let heard = self.step % 5000;
            for index in (heard..self.clients.len()).step_by(5000) {
                let (host, address, id) = self.clients[index];
                self.deliver_message(host, address, id, &Message::Keepalive);
                self.flush_host(host);
            }
            while let Some((_, key)) = self.deadlines.first().filter(|(due, _)| *due <= self.now) {
                let host = key as usize;
                self.hosts[host].handle_timeout(self.now);
                let keepalives = self.flush_host(host);
                self.serviced += 1;
                self.needless_services += u64::from(keepalives == 0);
                self.keepalives += keepalives;
            }
        }
    }
}
