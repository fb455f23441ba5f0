//! Clients, a proxy and a server on a virtual network with two hops and separate links.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_lab::{Faults, Link, NodeBehavior};
use bcnet_observe::MessageBuffer;
use bcnet_proxy::{DatagramTarget, Inbound, Proxy, ProxyConfig, ProxyEvent, ProxyOutput};
use bcnet_transport::wire::{Datagram, Message, PeerId, Role};
use bcnet_transport::{Connect, DeliveryMode, Endpoint, Engine as _, Time, cipher};

use crate::receivers::AckRewriter;

pub(crate) const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
const LISTEN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 1), 22101);
const STEP: Duration = Duration::from_millis(1);
const FIRST_PORT: u16 = 40_000;

/// A node with either engine.
pub(crate) enum NodeEngine {
    Stock(Box<StockEngine>),
    Bcnet(Box<Endpoint>),
}

impl NodeEngine {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        match self {
            Self::Stock(stock) => stock.handle_datagram(from, bytes, now),
            Self::Bcnet(endpoint) => endpoint.handle_datagram(from, bytes, now),
        }
    }

    fn service(&mut self, now: Time) {
        match self {
            Self::Stock(stock) => stock.run_frame(now),
            Self::Bcnet(endpoint) => endpoint.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<(SocketAddrV4, usize)> {
        let transmit = match self {
            Self::Stock(stock) => stock.poll_transmit(buffer),
            Self::Bcnet(endpoint) => endpoint.poll_transmit(buffer, now),
        };
        transmit.map(|transmit| (transmit.to, transmit.len))
    }

    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<bcnet_transport::Event> {
        match self {
            Self::Stock(stock) => stock.poll_event(payload),
            Self::Bcnet(endpoint) => endpoint.poll_event(payload),
        }
    }

    pub(crate) fn id(&self) -> PeerId {
        match self {
            Self::Stock(stock) => stock.id(),
            Self::Bcnet(endpoint) => endpoint.id(),
        }
    }

    pub(crate) fn peers(&self) -> Vec<PeerId> {
        match self {
            Self::Stock(stock) => stock.peers(),
            Self::Bcnet(endpoint) => endpoint.peers().collect(),
        }
    }

    pub(crate) fn send(&mut self, to: PeerId, payload: &[u8], quality: DeliveryMode, now: Time) -> bool {
        match self {
            Self::Stock(stock) => stock.send(to, payload, quality, now).is_ok(),
            Self::Bcnet(endpoint) => endpoint.send(to, payload, quality, now).is_ok(),
        }
    }
}

struct NetworkNode {
    engine: NodeEngine,
    tick: u64,
    inbox: Vec<(SocketAddrV4, Vec<u8>)>,
    behavior: NodeBehavior,
}

/// The destination of a datagram on a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HopEnd {
    Node(usize),
    Listen(SocketAddrV4),
    Source(u32),
}

/// Counters of one hop in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HopCounters {
    pub datagrams: u64,
    pub bytes: u64,
    pub ack_bytes: u64,
}

/// A delivered payload: node, peer and time.
pub(crate) struct DeliveredPayload {
    pub node: usize,
    pub peer: PeerId,
    pub payload: Vec<u8>,
    pub at: Time,
}

/// Sends of a fragment, and arrivals at the proxy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FragmentCounts {
    pub sent: u32,
    pub arrived: u32,
}

type NetworkDatagram = (Time, u64, HopEnd, SocketAddrV4, Vec<u8>);

/// Node 0 is the server, the others are clients.
pub(crate) struct ProxyNetwork {
    pub now: Time,
    nodes: Vec<NetworkNode>,
    pub proxy: Proxy,
    faults: Faults,
    /// Faults of new links of the hop to the server, if they differ.
    pub server_faults: Option<Faults>,
    seed: u64,
    links: BTreeMap<(bool, bool, u32), Link>,
    in_flight: BinaryHeap<Reverse<NetworkDatagram>>,
    launch_count: u64,
    sources: BTreeMap<u32, SocketAddrV4>,
    pub events: Vec<ProxyEvent>,
    pub delivered: Vec<DeliveredPayload>,
    /// Datagrams that the proxy sent up and down, and those that it received.
    pub after_proxy: [HopCounters; 2],
    pub before_proxy: [HopCounters; 2],
    /// Fragments of clients and of the server, by sequence number and index.
    pub fragments: [BTreeMap<(u16, u8), FragmentCounts>; 2],
    /// Nodes with another form of ACKs.
    pub ack_rewriters: BTreeMap<usize, AckRewriter>,
    /// Every datagram into and out of the proxy, in order.
    pub record: Option<Vec<(bool, Vec<u8>)>>,
    /// Datagrams of the proxy to addresses without a node.
    pub to_strangers: Vec<(SocketAddrV4, Vec<u8>)>,
    /// The server admits clients at once, as `bcnet serve` does for trusted addresses.
    pub admits_at_once: bool,
}

impl ProxyNetwork {
    pub(crate) fn new(config: ProxyConfig, server: NodeEngine, tick: u64, faults: Faults, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            nodes: vec![NetworkNode {
                engine: server,
                tick,
                inbox: Vec::new(),
                behavior: NodeBehavior::default(),
            }],
            proxy: Proxy::new(config),
            faults,
            server_faults: None,
            seed,
            links: BTreeMap::new(),
            in_flight: BinaryHeap::new(),
            launch_count: 0,
            sources: BTreeMap::new(),
            events: Vec::new(),
            delivered: Vec::new(),
            after_proxy: [HopCounters::default(); 2],
            before_proxy: [HopCounters::default(); 2],
            record: None,
            to_strangers: Vec::new(),
            admits_at_once: false,
            fragments: [BTreeMap::new(), BTreeMap::new()],
            ack_rewriters: BTreeMap::new(),
        }
    }

    pub(crate) fn stock_host(params: Params) -> NodeEngine {
        NodeEngine::Stock(Box::new(StockEngine::host(Params { address: *SERVER.ip(), ..params })))
    }

    pub(crate) fn address(node: usize) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, u8::try_from(node).unwrap()), 22101)
    }

    pub(crate) fn add_stock(&mut self, params: Params, tick: u64) -> usize {
        let node = self.nodes.len();
        let (own, nonce) = (*Self::address(node).ip(), u32::try_from(node).unwrap() * 77);
        let stock = StockEngine::connect(params, LISTEN, own, nonce, &[], self.now);
        self.add(NodeEngine::Stock(Box::new(stock)), tick)
    }

    pub(crate) fn add_bcnet(&mut self, config: bcnet_transport::Config, tick: u64) -> usize {
        let own = *Self::address(self.nodes.len()).ip();
        let endpoint = Endpoint::connect(
            bcnet_transport::Config { address: own, ..config },
            Connect { host: LISTEN, nonce: 5, password: "" },
            self.now,
        );
        self.add(NodeEngine::Bcnet(Box::new(endpoint)), tick)
    }

    /// Replaces the engine of a stock client, as if the game was restarted.
    pub(crate) fn restart_stock(&mut self, node: usize, params: Params) {
        let own = *Self::address(node).ip();
        let stock = StockEngine::connect(params, LISTEN, own, 0x00AB_CDEF, &[], self.now);
        self.nodes[node].engine = NodeEngine::Stock(Box::new(stock));
    }

    /// Delivers a datagram, in plaintext, of an address without a node to the proxy at once.
    pub(crate) fn inject(&mut self, from: SocketAddrV4, plain: &[u8]) {
        let mut wire = plain.to_vec();
        cipher::encrypt(&mut wire);
        self.pass_through_proxy(0, &wire, |proxy, now, seen| {
            proxy_sends(proxy.handle_client(from, seen, now))
        });
    }

    fn add(&mut self, engine: NodeEngine, tick: u64) -> usize {
        self.nodes.push(NetworkNode { engine, tick, inbox: Vec::new(), behavior: NodeBehavior::default() });
        self.nodes.len() - 1
    }

    pub(crate) fn node(&mut self, node: usize) -> &mut NodeEngine {
        &mut self.nodes[node].engine
    }

    pub(crate) fn set_behavior(&mut self, node: usize, behavior: NodeBehavior) {
        self.nodes[node].behavior = behavior;
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.links.values_mut().for_each(|link| link.set_faults(faults.clone()));
        self.faults = faults;
    }

    /// Sets the faults of the hop to the server or to the clients.
    pub(crate) fn set_hop_faults(&mut self, to_server: bool, faults: Faults) {
        let hop = self.links.iter_mut().filter(|((server, ..), _)| *server == to_server);
        hop.for_each(|(_, link)| link.set_faults(faults.clone()));
    }

    /// Advances time in steps of a millisecond.
    pub(crate) fn run(&mut self, duration: Duration) {
        let until = self.now + duration;
        while self.now < until {
            self.now = self.now + STEP;
            self.deliver_arrivals();
            self.proxy.handle_timeout(self.now);
            self.drain_events();
            let mut sent = 0;
            while let Some((leg, bytes)) = self.proxy.poll_transmit(self.now) {
                sent += 1;
                assert!(sent < 10_000, "at {} the proxy sends without end", self.now);
                let bytes = bytes.to_wire();
                self.send_from_proxy(leg, bytes);
            }
            for node in 0..self.nodes.len() {
                if (self.now.as_micros() / 1000).is_multiple_of(self.nodes[node].tick) {
                    self.service(node);
                }
            }
        }
    }

    fn deliver_arrivals(&mut self) {
        while self.in_flight.peek().is_some_and(|Reverse(flight)| flight.0 <= self.now) {
            let Some(Reverse((_, _, stop, from, bytes))) = self.in_flight.pop() else { return };
            match stop {
                HopEnd::Node(node) => self.nodes[node].inbox.push((from, bytes)),
                HopEnd::Listen(client) => self.pass_through_proxy(0, &bytes, |proxy, now, seen| {
                    proxy_sends(proxy.handle_client(client, seen, now))
                }),
                HopEnd::Source(source) => self.pass_through_proxy(1, &bytes, |proxy, now, seen| {
                    proxy_sends(proxy.handle_server(source, seen, now))
                }),
            }
        }
    }

    /// Gives the proxy a datagram that goes up (0) or down (1), and sends its output.
    fn pass_through_proxy(
        &mut self,
        way: usize,
        bytes: &[u8],
        pass: impl FnOnce(&mut Proxy, Time, Inbound<'_>) -> ProxySends,
    ) {
        count_on_hop(&mut self.before_proxy[way], bytes);
        let mut plain = bytes.to_vec();
        cipher::decrypt(&mut plain);
        count_fragments(&mut self.fragments[way], &plain, |part| part.arrived += 1);
        let mut messages = MessageBuffer::default();
        let sender = if way == 0 { Role::Client } else { Role::Host };
        let content = &messages.read(&plain, Some(sender));
        let sent = pass(&mut self.proxy, self.now, Inbound { wire: bytes, content });
        if let Some(record) = &mut self.record {
            record.push((false, bytes.to_vec()));
            record.extend(sent[0].iter().map(|(_, bytes)| (true, bytes.clone())));
        }
        self.drain_events();
        for (leg, bytes) in sent.into_iter().flatten() {
            self.send_from_proxy(leg, bytes);
        }
    }

    /// Sends a datagram of the proxy.
    fn send_from_proxy(&mut self, leg: DatagramTarget, bytes: Vec<u8>) {
        let out = usize::from(matches!(leg, DatagramTarget::Client(_)));
        count_on_hop(&mut self.after_proxy[out], &bytes);
        match leg {
            DatagramTarget::Client(address) if address.ip().octets()[..3] != [10, 0, 2] => {
                self.to_strangers.push((address, bytes));
            }
            DatagramTarget::Client(address) => {
                let node = usize::from(address.ip().octets()[3]);
                self.send_over_link((false, true, node as u32), HopEnd::Node(node), LISTEN, bytes);
            }
            DatagramTarget::Server(source) => {
                let from = self.sources[&source];
                self.send_over_link((true, false, source), HopEnd::Node(0), from, bytes);
            }
        }
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.proxy.poll_event() {
            if let ProxyEvent::Opened { source, .. } = event {
                let port = FIRST_PORT + u16::try_from(source.number).unwrap();
                let address = SocketAddrV4::new(source.address.unwrap_or(*LISTEN.ip()), port);
                self.sources.insert(source.number, address);
            }
            self.events.push(event);
        }
    }

    fn service(&mut self, node: usize) {
        let (now, place) = (self.now, &mut self.nodes[node]);
        for (from, mut bytes) in std::mem::take(&mut place.inbox) {
            cipher::decrypt(&mut bytes);
            place.behavior.rewrite_incoming(&mut bytes);
            if let Some(answers) = self.ack_rewriters.get_mut(&node) {
                answers.on_datagram(&bytes);
            }
            cipher::encrypt(&mut bytes);
            place.engine.handle_datagram(from, &mut bytes, now);
        }
        place.engine.service(now);
        let mut payload = Vec::new();
        while let Some(event) = place.engine.poll_event(&mut payload) {
            match (event, &mut place.engine) {
                (bcnet_transport::Event::Request { from, .. }, NodeEngine::Bcnet(host)) => {
                    let _ = match self.admits_at_once {
                        true => host.admit(from, now),
                        false => host.challenge(from, now),
                    };
                }
                (bcnet_transport::Event::Received { peer, .. }, _) => {
                    self.delivered.push(DeliveredPayload { node, peer, payload: payload.clone(), at: now });
                }
                _ => {}
            }
        }
        let mut buffer = [0; 2048];
        while let Some((to, len)) = self.nodes[node].engine.poll_transmit(&mut buffer, now) {
            let mut bytes = buffer[..len].to_vec();
            cipher::decrypt(&mut bytes);
            let len = self.nodes[node].behavior.rewrite_outgoing(&mut bytes);
            bytes.truncate(len);
            if let Some(answers) = self.ack_rewriters.get_mut(&node) {
                let Some(left) = answers.rewrite(&bytes) else { continue };
                bytes = left;
            }
            count_fragments(&mut self.fragments[usize::from(node == 0)], &bytes, |part| part.sent += 1);
            cipher::encrypt(&mut bytes);
            if node > 0 {
                self.send_over_link(
                    (false, false, node as u32),
                    HopEnd::Listen(Self::address(node)),
                    Self::address(node),
                    bytes,
                );
            } else if let Some(source) =
                self.sources.iter().find(|(_, address)| **address == to).map(|(source, _)| *source)
            {
                self.send_over_link((true, true, source), HopEnd::Source(source), SERVER, bytes);
            }
        }
    }

    fn send_over_link(&mut self, link: (bool, bool, u32), stop: HopEnd, from: SocketAddrV4, bytes: Vec<u8>) {
        let seed = self.seed.wrapping_mul(0x9E37_79B9)
            ^ u64::from(link.0) << 40
            ^ u64::from(link.1) << 41
            ^ u64::from(link.2);
        let faults = self.server_faults.as_ref().filter(|_| link.0).unwrap_or(&self.faults);
        let passages = self
            .links
            .entry(link)
            .or_insert_with(|| Link::new(faults.clone(), seed))
            .transmit(bytes.len(), self.now);
        for arrival in passages.into_iter().flatten() {
            self.launch_count += 1;
            self.in_flight.push(Reverse((arrival.at, self.launch_count, stop, from, bytes.clone())));
        }
    }
}

type ProxySends = [Option<(DatagramTarget, Vec<u8>)>; 2];

fn proxy_sends(output: ProxyOutput<'_>) -> ProxySends {
    [output.forward, output.answer].map(|sent| sent.map(|(leg, bytes)| (leg, bytes.to_wire())))
}

fn count_fragments(
    parts: &mut BTreeMap<(u16, u8), FragmentCounts>,
    plain: &[u8],
    mut count: impl FnMut(&mut FragmentCounts),
) {
    let Ok(datagram) = Datagram::parse(plain, None) else { return };
    for id in datagram.messages().filter_map(|message| message.id()) {
        if let Some(part) = id.fragment {
            count(parts.entry((id.seq.0, part)).or_default());
        }
    }
}

fn count_on_hop(hop: &mut HopCounters, bytes: &[u8]) {
    hop.datagrams += 1;
    hop.bytes += bytes.len() as u64;
    let mut plain = bytes.to_vec();
    cipher::decrypt(&mut plain);
    if let Ok(datagram) = Datagram::parse(&plain, None) {
        let acks = datagram.messages().filter(|message| matches!(message, Message::Ack(_)));
        hop.ack_bytes += acks.map(|ack| ack.wire_len() as u64).sum::<u64>();
    }
}
