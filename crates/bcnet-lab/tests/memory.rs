//! What endpoints take from the heap, counted on the thread that drives them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::{Rng, World};
use bcnet_transport::wire::{Ack, Body, Control, Datagram, Message, PeerId, Role, Seq, Text, Writer};
use bcnet_transport::{Config, Connect, Counters, Deadlines, Endpoint, Engine, Event, Quality, Time};

#[path = "../../bcnet-transport/tests/endpoint/heap.rs"]
mod heap;

const TICK: Duration = Duration::from_micros(16_667);

/// A host and its clients on a network that takes nothing from the heap once it stands: datagrams arrive a tick later,
/// or not at all.
struct Hall {
    now: Time,
    rng: Rng,
    loss: f64,
    nodes: Vec<Endpoint>,
    flying: Vec<Flight>,
    landing: Vec<Flight>,
    payload: Vec<u8>,
    received: u64,
}

#[derive(Clone, Copy)]
struct Flight {
    from: usize,
    to: usize,
    len: usize,
    bytes: [u8; 512],
}

impl Hall {
    fn new(clients: usize) -> Self {
        let config = Config { cipher: false, tick: TICK, ..Config::default() };
        let mut hall = Self {
            now: Time::ZERO,
            rng: Rng::new(1),
            loss: 0.0,
            nodes: Vec::with_capacity(clients + 1),
            flying: Vec::with_capacity(20_000),
            landing: Vec::with_capacity(20_000),
            payload: Vec::with_capacity(200_000),
            received: 0,
        };
        hall.nodes.push(Endpoint::host(config.clone()));
        for client in 1..=clients {
            let (host, own) = (World::address(0), *World::address(client).ip());
            hall.nodes.push(Endpoint::connect(
                Config { address: own, ..config.clone() },
                Connect { host, nonce: 1, password: "" },
                hall.now,
            ));
            // Not all at once: the host lets only so many wait.
            hall.tick();
            hall.tick();
        }
        hall.pass(Duration::from_secs(1));
        assert_eq!(hall.nodes[0].peers().count(), clients);
        hall
    }

    /// What all endpoints together have on the heap.
    fn heap(&self, before: isize) -> isize {
        let own = self.nodes.capacity() * size_of::<Endpoint>()
            + (self.flying.capacity() + self.landing.capacity()) * size_of::<Flight>()
            + self.payload.capacity();
        heap::in_use() - before - own.cast_signed()
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        std::mem::swap(&mut self.flying, &mut self.landing);
        for flight in &mut self.landing {
            let bytes = &mut flight.bytes[..flight.len];
            self.nodes[flight.to].handle_datagram(World::address(flight.from), bytes, self.now);
        }
        self.landing.clear();
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
            let mut flight = Flight { from: number, to: 0, len: 0, bytes: [0; 512] };
            while let Some(transmit) = node.poll_transmit(&mut flight.bytes, self.now) {
                if !self.rng.chance(self.loss) {
                    flight.to = (transmit.to.ip().to_bits() - World::address(0).ip().to_bits()) as usize;
                    flight.len = transmit.len;
                    assert!(self.flying.len() < self.flying.capacity());
                    self.flying.push(flight);
                }
            }
        }
    }

    /// One message to each client and one from each; one in `split` is in parts.
    fn exchange(&mut self, round: usize, split: usize) {
        let bytes = [7; 1500];
        for client in 1..self.nodes.len() {
            let len = if (round + client).is_multiple_of(split) { 1500 } else { 10 + 7 * client };
            let quality = [Quality::Reliable, Quality::Urgent, Quality::Unreliable][(round + client) % 3];
            let id = self.nodes[client].id();
            self.nodes[0].send(id, &bytes[..len], quality, self.now).expect("joined");
            self.nodes[client].send(PeerId::HOST, &bytes[..len], quality, self.now).expect("joined");
        }
        self.tick();
    }
}

/// T-60 to T-70: sending, receiving and acknowledging take nothing from the heap once everything has its size.
#[test]
fn ten_thousand_round_trips_take_nothing_from_the_heap() {
    let mut hall = Hall::new(16);
    // Worse than what comes, so that every buffer has seen its worst.
    hall.loss = 0.2;
    (0..1000).for_each(|round| hall.exchange(round, 1 + round % 2));
    hall.loss = 0.05;
    (0..100).for_each(|round| hall.exchange(round, 16));
    let (before, received) = (heap::allocations(), hall.received);
    (0..700).for_each(|round| hall.exchange(round, 16));
    let allocations = heap::allocations() - before;
    assert!(hall.received - received >= 2 * 10_000, "{} received", hall.received - received);
    assert_eq!(allocations, 0);
    // The counter does count.
    drop(Box::new(hall));
    assert_eq!(heap::allocations() - before, 1);
}

/// A burst leaves nothing behind.
#[test]
fn memory_returns_below_twice_the_idle_size_after_a_burst() {
    let before = heap::in_use();
    let mut hall = Hall::new(16);
    hall.pass(Duration::from_secs(30));
    let idle = hall.heap(before);
    hall.loss = 0.1;
    let bytes = vec![7; 100_000];
    let mut peak = 0;
    for _ in 0..5 {
        for client in 1..hall.nodes.len() {
            let id = hall.nodes[client].id();
            hall.nodes[0].send(id, &bytes, Quality::Reliable, hall.now).expect("joined");
            hall.nodes[client].send(PeerId::HOST, &bytes, Quality::Reliable, hall.now).expect("joined");
        }
        hall.pass(Duration::from_millis(200));
        peak = peak.max(hall.heap(before) - 100_000);
    }
    drop(bytes);
    hall.pass(Duration::from_secs(30));
    assert_eq!(hall.received, 5 * 32, "all arrived");
    hall.loss = 0.0;
    hall.pass(Duration::from_secs(10));
    let after = hall.heap(before);
    println!("idle {idle} B, in the burst {peak} B, after it {after} B");
    assert!(peak > 10 * idle, "the burst was one");
    assert!(after < 2 * idle, "{idle} bytes before, {after} after");
}

/// A peer of which nothing is heard or wanted takes 400 bytes at most, names and counters aside.
#[test]
fn an_idle_peer_takes_four_hundred_bytes() {
    const PEERS: usize = 120;
    let mut hall = Hall::new(PEERS);
    (0..300).for_each(|round| hall.exchange(round, 16));
    hall.pass(Duration::from_secs(60));
    // The host is the only one whose heap is looked at: it goes, and what it frees was its.
    let before = heap::in_use();
    let host = std::mem::replace(&mut hall.nodes[0], Endpoint::host(Config::default()));
    assert_eq!(host.peers().count(), PEERS);
    drop(host);
    let heap = usize::try_from(before - heap::in_use()).expect("it had something");
    let each = (heap - PEERS * size_of::<Counters>()) / PEERS;
    println!("{heap} B for {PEERS} peers, {each} B each without counters");
    assert!(each <= 400, "{each} bytes for each peer");
}

/// T-55: 4,096 peers that have nothing to say cost their keepalives, and no tick looks at anyone else.
#[test]
fn idle_peers_cost_nothing_but_their_keepalives() {
    let mut farm = Farm::new(4096, 34);
    farm.pass(Duration::from_secs(20));
    (farm.touched, farm.needless, farm.keepalives) = (0, 0, 0);
    farm.pass(Duration::from_secs(20));
    println!("touched {}, needlessly {}, keepalives {}", farm.touched, farm.needless, farm.keepalives);
    assert_eq!(farm.keepalives, 4 * 4096, "one every five seconds");
    assert_eq!(farm.needless, 0, "an endpoint was looked at though no keepalive was due");
}

/// Many hosts behind one loop. Their clients are only what comes from them.
struct Farm {
    now: Time,
    hosts: Vec<Endpoint>,
    deadlines: Deadlines,
    /// When each client says that it is alive: host, address, id.
    clients: Vec<(usize, SocketAddrV4, PeerId)>,
    touched: u64,
    needless: u64,
    keepalives: u64,
    step: usize,
}

impl Farm {
    fn new(peers: usize, hosts: usize) -> Self {
        let config = Config { cipher: false, ..Config::default() };
        let now = Time::from_micros(1_000_000);
        let mut farm = Self {
            now,
            hosts: (0..hosts).map(|_| Endpoint::host(config.clone())).collect(),
            deadlines: Deadlines::new(),
            clients: Vec::new(),
            touched: 0,
            needless: 0,
            keepalives: 0,
            step: 0,
        };
        for number in 0..peers {
            // Joins are spread over five seconds.
            if number.is_multiple_of(15) {
                farm.pass(TICK);
            }
            farm.join(number, number % hosts);
        }
        farm
    }

    fn join(&mut self, number: usize, host: usize) {
        let address =
            SocketAddrV4::new(Ipv4Addr::from_bits(0x0B00_0000 + u32::try_from(number).expect("few")), 22101);
        let body = Body::ConnectRequest { address: *address.ip(), nonce: 1, password: Text::default() };
        self.say(host, address, PeerId::UNASSIGNED, &Message::Control(Control::new(Seq(0), body)));
        let id = self.hosts[host].admit(address, self.now).expect("room");
        let mut buffer = [0; 512];
        let transmit = self.hosts[host].poll_transmit(&mut buffer, self.now).expect("the reply");
        let datagram = Datagram::parse(&buffer[..transmit.len], Some(Role::Host)).expect("well formed");
        let reply = datagram.messages().filter(|message| !matches!(message, Message::Ack(_)));
        for id_of_reply in reply.filter_map(|message| message.id()).collect::<Vec<_>>() {
            self.say(host, address, id, &Message::Ack(Ack::new(id_of_reply)));
        }
        self.clients.push((host, address, id));
        self.rest(host);
    }

    fn say(&mut self, host: usize, address: SocketAddrV4, id: PeerId, message: &Message<'_>) {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer, id);
        assert!(writer.push(message));
        self.hosts[host].handle_datagram(address, writer.finish().expect("one message"), self.now);
    }

    /// Sends what a host has to send; how many keepalives that is.
    fn rest(&mut self, host: usize) -> u64 {
        let (mut buffer, mut payload, mut keepalives) = ([0; 512], Vec::new(), 0);
        while let Some(event) = self.hosts[host].poll_event(&mut payload) {
            assert!(!matches!(event, Event::Left { .. }), "{event:?}");
        }
        while let Some(transmit) = self.hosts[host].poll_transmit(&mut buffer, self.now) {
            let datagram = Datagram::parse(&buffer[..transmit.len], Some(Role::Host)).expect("well formed");
            keepalives += datagram.messages().filter(|message| *message == Message::Keepalive).count() as u64;
        }
        let key = u32::try_from(host).expect("few");
        self.deadlines.set(key, self.hosts[host].next_timeout());
        keepalives
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_millis(1);
            self.step += 1;
            // Every client is heard once in five seconds.
            let heard = self.step % 5000;
            for index in (heard..self.clients.len()).step_by(5000) {
                let (host, address, id) = self.clients[index];
                self.say(host, address, id, &Message::Keepalive);
                self.rest(host);
            }
            while let Some((_, key)) = self.deadlines.first().filter(|(due, _)| *due <= self.now) {
                let host = key as usize;
                self.hosts[host].handle_timeout(self.now);
                let keepalives = self.rest(host);
                self.touched += 1;
                self.needless += u64::from(keepalives == 0);
                self.keepalives += keepalives;
            }
        }
    }
}
