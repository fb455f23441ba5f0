//! A small virtual network: a bcnet host, clients of both kinds, and a forger.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_lab::stock::{Params, StockEngine};
use bcnet_transport::wire::{
    Ack, Body, Channel, Control, Datagram, Message, MessageId, PeerId, Role, Seq, Text, Writer,
};
use bcnet_transport::{
    Config, Connect, DeliveryMode, Endpoint, Engine, Event, LeaveReason, ProofPolicy, RejectCause, Time,
};

/// The program of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Stock,
    Bcnet,
}

pub(crate) struct Client {
    engine: Box<dyn Engine>,
    program: Program,
    pub(crate) address: SocketAddrV4,
    /// The id, once the client has joined.
    pub(crate) id: Option<PeerId>,
    pub(crate) received: Vec<u32>,
    left: bool,
}

pub(crate) struct Network {
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) host: Endpoint,
    pub(crate) clients: Vec<Client>,
    /// The one-way delay and the probability of loss.
    delay: Duration,
    loss: f64,
    in_transit: BTreeMap<(Time, u64), (SocketAddrV4, SocketAddrV4, Vec<u8>)>,
    datagrams: u64,
    pub(crate) left: Vec<(PeerId, LeaveReason, Time)>,
    /// The arrival of the first disconnect from each address.
    pub(crate) disconnects: BTreeMap<SocketAddrV4, Time>,
    /// The numbers that the host received from each peer.
    pub(crate) received: BTreeMap<PeerId, Vec<u32>>,
}

impl Network {
    pub(crate) fn new(seed: u64, delay: Duration, loss: f64) -> Self {
        let mut rng = Rng::new(seed);
        let host = Endpoint::host(config()).with_secret(rng.next_u64());
        Self {
            now: Time::ZERO + Duration::from_secs(1),
            rng,
            host,
            clients: Vec::new(),
            delay,
            loss,
            in_transit: BTreeMap::new(),
            datagrams: 0,
            left: Vec::new(),
            disconnects: BTreeMap::new(),
            received: BTreeMap::new(),
        }
    }

    /// Adds a client and runs until all clients have joined.
    pub(crate) fn join_all(&mut self, programs: impl IntoIterator<Item = Program>) {
        for (program, index) in programs.into_iter().zip(1_u32..) {
            let address = SocketAddrV4::new(Ipv4Addr::from(0x0A14_0000 + index), 22101);
            let client = self.client(program, address);
            self.clients.push(client);
            // So many requests at once would look like an attack (T-76).
            self.run(Duration::from_millis(100));
        }
        for _ in 0..20_000 {
            if self.host.peers().count() == self.clients.len() {
                break;
            }
            self.step();
        }
        self.run(Duration::from_secs(3));
        assert_eq!(self.host.peers().count(), self.clients.len(), "all clients have joined");
    }

    fn client(&mut self, program: Program, address: SocketAddrV4) -> Client {
        let nonce = u32::try_from(self.rng.between(1, 0x7FF_FFFF)).unwrap_or(1);
        let engine: Box<dyn Engine> = match program {
            Program::Stock => {
                let params = Params { cipher: false, ..Params::default() };
                Box::new(StockEngine::connect(params, HOST, *address.ip(), nonce, &[], self.now))
            }
            Program::Bcnet => {
                Box::new(Endpoint::connect(config(), Connect { host: HOST, nonce, password: "" }, self.now))
            }
        };
        Client { engine, program, address, id: None, received: Vec::new(), left: false }
    }

    /// Starts the program of a client again, at the same address.
    pub(crate) fn restart(&mut self, index: usize) {
        let (program, address) = (self.clients[index].program, self.clients[index].address);
        self.clients[index] = self.client(program, address);
    }

    pub(crate) fn leave(&mut self, index: usize) {
        let now = self.now;
        self.clients[index].left = true;
        self.clients[index].engine.leave(now);
    }

    pub(crate) fn is_closed(&self, index: usize) -> bool {
        self.clients[index].engine.is_closed()
    }

    /// Sends a number to a client.
    pub(crate) fn send(&mut self, to: PeerId, number: u32) {
        let now = self.now;
        self.host.send(to, &number.to_le_bytes(), DeliveryMode::Reliable, now).expect("a connected peer");
    }

    /// Sends a number from a client to the host.
    pub(crate) fn send_from(&mut self, index: usize, number: u32) {
        let now = self.now;
        let engine = &mut self.clients[index].engine;
        engine.send(PeerId::HOST, &number.to_le_bytes(), DeliveryMode::Reliable, now).expect("connected");
    }

    /// Delivers a datagram to the host at once, with a forged source.
    pub(crate) fn forge(&mut self, from: SocketAddrV4, sender: u8, messages: &[Message<'_>]) {
        let mut bytes = datagram(sender, messages);
        self.host.handle_datagram(from, &mut bytes, self.now);
    }

    pub(crate) fn forged(&self, cause: RejectCause) -> u64 {
        self.host.rejected().count(cause)
    }

    pub(crate) fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.step();
        }
    }

    /// Runs one millisecond.
    pub(crate) fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        while let Some(entry) = self.in_transit.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (from, to, bytes) = entry.remove();
            self.deliver(from, to, bytes);
        }
        let mut sent = Vec::new();
        let now = self.now;
        self.host.handle_timeout(now);
        self.poll_host_events();
        drain(&mut self.host, HOST, now, &mut sent);
        for (client, phase) in self.clients.iter_mut().zip(0_u64..) {
            // The frames of stock clients are spread over time.
            if client.program == Program::Bcnet || (now.as_micros() / 1000 + phase).is_multiple_of(FRAME) {
                client.engine.handle_timeout(now);
            }
            poll_client_events(client, now);
            drain(&mut *client.engine, client.address, now, &mut sent);
        }
        for (from, to, bytes) in sent {
            if !self.rng.chance(self.loss) {
                self.datagrams += 1;
                self.in_transit.insert((now + self.delay, self.datagrams), (from, to, bytes));
            }
        }
    }

    fn deliver(&mut self, from: SocketAddrV4, to: SocketAddrV4, mut bytes: Vec<u8>) {
        if to == HOST {
            if has_disconnect(&bytes) {
                self.disconnects.entry(from).or_insert(self.now);
            }
            self.host.handle_datagram(from, &mut bytes, self.now);
            self.poll_host_events();
        } else if let Some(client) = self.clients.iter_mut().find(|client| client.address == to) {
            client.engine.handle_datagram(from, &mut bytes, self.now);
        }
    }

    fn poll_host_events(&mut self) {
        let mut payload = Vec::new();
        while let Some(event) = self.host.poll_event(&mut payload) {
            match event {
                Event::Request { from, .. } => drop(self.host.challenge(from, self.now)),
                Event::Left { peer, reason } => self.left.push((peer, reason, self.now)),
                Event::Received { peer, .. } => self.received.entry(peer).or_default().push(number(&payload)),
                Event::Joined { .. }
                | Event::Identity { .. }
                | Event::Query { .. }
                | Event::Rejected { .. } => {}
            }
        }
    }
}

fn poll_client_events(client: &mut Client, now: Time) {
    let mut payload = Vec::new();
    while let Some(event) = client.engine.poll_event(&mut payload) {
        match event {
            Event::Joined { peer } => {
                client.id = Some(peer);
                client.engine.announce_name(Text::new(b"A\0").unwrap_or_default(), now).expect("connected");
            }
            Event::Received { .. } => client.received.push(number(&payload)),
            Event::Left { peer, reason } => {
                let is_end = peer == PeerId::HOST || peer == PeerId::UNASSIGNED || Some(peer) == client.id;
                assert!(client.left || !is_end, "{} lost its host: {reason}", client.address);
            }
            Event::Request { .. } | Event::Identity { .. } | Event::Query { .. } | Event::Rejected { .. } => {
            }
        }
    }
}

fn drain(
    engine: &mut dyn Engine,
    from: SocketAddrV4,
    now: Time,
    sent: &mut Vec<(SocketAddrV4, SocketAddrV4, Vec<u8>)>,
) {
    let mut buffer = [0; 2048];
    while let Some(transmit) = engine.poll_transmit(&mut buffer, now) {
        sent.push((from, transmit.to, buffer[..transmit.len].to_vec()));
    }
}

fn has_disconnect(bytes: &[u8]) -> bool {
    Datagram::parse(bytes, Some(Role::Client)).is_ok_and(|datagram| {
        let is_disconnect =
            |message| matches!(message, Message::Control(Control { body: Body::Disconnect { .. }, .. }));
        datagram.messages().any(is_disconnect)
    })
}

fn config() -> Config {
    Config { cipher: false, proof_policy: ProofPolicy::Ack, ..Config::default() }
}

fn number(payload: &[u8]) -> u32 {
    payload.try_into().map_or(u32::MAX, u32::from_le_bytes)
}

fn datagram(sender: u8, messages: &[Message<'_>]) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let mut writer = Writer::with_limit(&mut buffer, PeerId(sender), 2048);
    for message in messages {
        assert!(writer.push(message), "the message fits");
    }
    writer.finish().expect("a message").to_vec()
}

pub(crate) fn disconnect(peer: u8, seq: u16, reliable: bool) -> Message<'static> {
    let body = Body::Disconnect { peer: PeerId(peer), address: Ipv4Addr::new(192, 0, 2, 1) };
    Message::Control(Control { reliable, ..Control::new(Seq(seq), body) })
}

pub(crate) fn ack(channel: Channel, seq: u16) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { channel, seq: Seq(seq), fragment: None }))
}

pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 10, 10, 1), 22101);
/// The duration of a frame of a stock client, in milliseconds.
const FRAME: u64 = 16;
