//! A host and a client on virtual links, each with the stock model or the bcnet engine, and an observer.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_lab::{Faults, Link, NodeBehavior, Rng};
use bcnet_observe::PeerQueues;
use bcnet_transport::wire::{MessageId, PeerId};
use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Engine as _, Event, Time, cipher};

/// One of the two engines.
pub(crate) enum EitherEngine {
    Stock(Box<StockEngine>),
    Bcnet(Box<Endpoint>),
}

/// Choice of the engine of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    Stock,
    /// The stock model, but its ACKs of fragments name the whole message.
    PlainAcks,
    Bcnet,
}

impl EitherEngine {
    fn host(engine: EngineChoice) -> Self {
        let params = Params { address: *HOST.ip(), trace_acks: true, ..Params::default() };
        match engine {
            EngineChoice::Stock | EngineChoice::PlainAcks => Self::Stock(Box::new(StockEngine::host(params))),
            EngineChoice::Bcnet => Self::Bcnet(Box::new(Endpoint::host(Config::default()))),
        }
    }

    fn client(engine: EngineChoice, nonce: u32) -> Self {
        let own = *CLIENT.ip();
        let params = Params { trace_acks: true, ..Params::default() };
        match engine {
            EngineChoice::Stock | EngineChoice::PlainAcks => {
                Self::Stock(Box::new(StockEngine::connect(params, HOST, own, nonce, &[], Time::ZERO)))
            }
            EngineChoice::Bcnet => {
                let config = Config::default();
                Self::Bcnet(Box::new(Endpoint::connect(
                    Config { address: own, ..config },
                    Connect { host: HOST, nonce, password: "" },
                    Time::ZERO,
                )))
            }
        }
    }

    fn is_connected(&self) -> bool {
        match self {
            Self::Stock(stock) => stock.id() != PeerId::UNASSIGNED && !stock.peers().is_empty(),
            Self::Bcnet(endpoint) => endpoint.id() != PeerId::UNASSIGNED && endpoint.peers().next().is_some(),
        }
    }

    fn send(&mut self, to: PeerId, payload: &[u8], mode: DeliveryMode, now: Time) {
        match self {
            Self::Stock(stock) => drop(stock.send(to, payload, mode, now)),
            Self::Bcnet(endpoint) => drop(endpoint.send(to, payload, mode, now)),
        }
    }

    /// Returns the engine's own queues.
    pub(crate) fn queues(&self, peer: PeerId, now: Time) -> Option<PeerQueues> {
        match self {
            Self::Stock(stock) => stock.dump(peer).map(|dump| crate::queues_from_dump(&dump)),
            Self::Bcnet(endpoint) => endpoint.snapshot(peer, now).map(|snapshot| PeerQueues::from(&snapshot)),
        }
    }

    /// Returns the ACKs that the engine has handled since the last call, each with the unacknowledged
    /// messages.
    ///
    /// Returns nothing for an engine that does not trace ACKs.
    pub(crate) fn handled_acks(&mut self) -> Vec<(MessageId, Vec<MessageId>)> {
        match self {
            Self::Stock(stock) => std::iter::from_fn(|| stock.poll_ack_trace())
                .map(|handled| (handled.id, handled.waiting))
                .collect(),
            Self::Bcnet(_) => Vec::new(),
        }
    }

    /// Services the engine: passes the received datagrams to it and returns the datagrams to send.
    fn service(&mut self, inbox: Vec<(SocketAddrV4, Vec<u8>)>, now: Time) -> Vec<Vec<u8>> {
        let (mut buffer, mut payload, mut out) = ([0; 2048], Vec::new(), Vec::new());
        match self {
            Self::Stock(stock) => {
                for (from, bytes) in inbox {
                    stock.handle_datagram(from, &bytes, now);
                }
                stock.run_frame(now);
                assert_eq!(stock.crash(), None);
                while stock.poll_event(&mut payload).is_some() {}
                while let Some(transmit) = stock.poll_transmit(&mut buffer) {
                    out.push(buffer[..transmit.len].to_vec());
                }
            }
            Self::Bcnet(endpoint) => {
                for (from, mut bytes) in inbox {
                    endpoint.handle_datagram(from, &mut bytes, now);
                }
                endpoint.handle_timeout(now);
                while let Some(event) = endpoint.poll_event(&mut payload) {
                    if let Event::Request { from, .. } = event {
                        endpoint.admit(from, now).expect("a free id");
                    }
                }
                while let Some(transmit) = endpoint.poll_transmit(&mut buffer, now) {
                    out.push(buffer[..transmit.len].to_vec());
                }
            }
        }
        out
    }
}

/// Observer of everything that happens between the two nodes.
pub(crate) trait PairObserver {
    /// Called when a node sends a datagram. `arrives` is `None` if the datagram is lost.
    fn on_sent(&mut self, node: usize, number: u64, now: Time, bytes: &[u8], arrives: Option<Time>);
    /// Called when a datagram reaches the socket of a node.
    fn on_arrived(&mut self, node: usize, number: u64, now: Time, bytes: &[u8]);
    /// Called after a node was serviced. `sent` is `true` if it sent a datagram.
    fn on_serviced(&mut self, node: usize, engine: &mut EitherEngine, sent: bool, now: Time);
}

/// A host and a client on two links, with traffic drawn from a seed.
pub(crate) struct HostClientPair {
    nodes: [EitherEngine; 2],
    behavior: [NodeBehavior; 2],
    /// Next service of each node, and its tick in microseconds.
    tick_schedule: [(u64, u64); 2],
    links: [Link; 2],
    inboxes: [Vec<(SocketAddrV4, Vec<u8>)>; 2],
    in_flight: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    sent: u64,
    rng: Rng,
    /// Reliable and unreliable messages per second of each node.
    message_rates: [(f64, f64); 2],
}

impl HostClientPair {
    pub(crate) fn new(engines: [EngineChoice; 2], faults: &Faults, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let nonce = 1 + u32::try_from(rng.below(1 << 20)).expect("small");
        let tick = |rng: &mut Rng| [3_000, 10_000, 16_667, 33_333][rng.index(4)];
        let pace = |rng: &mut Rng| (rng.fraction() * 6.0, [0.0, 10.0][rng.index(2)]);
        Self {
            nodes: [EitherEngine::host(engines[0]), EitherEngine::client(engines[1], nonce)],
            behavior: engines.map(|engine| NodeBehavior {
                plain_acks: engine == EngineChoice::PlainAcks,
                ..NodeBehavior::default()
            }),
            tick_schedule: [(0, tick(&mut rng)), (rng.below(3000), tick(&mut rng))],
            links: [0, 1].map(|i| Link::new(faults.clone(), seed * 2 + i)),
            inboxes: [Vec::new(), Vec::new()],
            in_flight: BTreeMap::new(),
            sent: 0,
            message_rates: [pace(&mut rng), pace(&mut rng)],
            rng,
        }
    }

    pub(crate) fn run(&mut self, until: Time, observer: &mut impl PairObserver) {
        loop {
            let turn = if self.tick_schedule[0].0 <= self.tick_schedule[1].0 { 0 } else { 1 };
            let now = Time::from_micros(self.tick_schedule[turn].0);
            if now > until {
                return;
            }
            self.deliver(now, observer);
            self.queue_traffic(turn, now);
            let inbox = std::mem::take(&mut self.inboxes[turn]);
            let mut out = self.nodes[turn].service(inbox, now);
            for bytes in &mut out {
                self.apply_behavior(turn, bytes);
                self.send_datagram(turn, now, bytes, observer);
            }
            observer.on_serviced(turn, &mut self.nodes[turn], !out.is_empty(), now);
            self.tick_schedule[turn].0 += self.tick_schedule[turn].1;
        }
    }

    /// Rewrites a datagram according to the behaviour of the node.
    fn apply_behavior(&self, node: usize, bytes: &mut Vec<u8>) {
        cipher::decrypt(bytes);
        let len = self.behavior[node].rewrite_outgoing(bytes);
        bytes.truncate(len);
        cipher::encrypt(bytes);
    }

    fn deliver(&mut self, now: Time, observer: &mut impl PairObserver) {
        while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, number), (to, bytes)) = entry.remove_entry();
            observer.on_arrived(to, number, at, &bytes);
            self.inboxes[to].push((ADDRESSES[1 - to], bytes));
        }
    }

    fn send_datagram(&mut self, from: usize, now: Time, bytes: &[u8], observer: &mut impl PairObserver) {
        // These links duplicate nothing.
        let [arrival, _] = self.links[from].transmit(bytes.len(), now);
        observer.on_sent(from, self.sent, now, bytes, arrival.map(|arrival| arrival.at));
        if let Some(arrival) = arrival {
            self.in_flight.insert((arrival.at, self.sent), (1 - from, bytes.to_vec()));
        }
        self.sent += 1;
    }

    /// Queues random traffic of a player or a server for one tick.
    fn queue_traffic(&mut self, node: usize, now: Time) {
        if !self.nodes[node].is_connected() {
            return;
        }
        let seconds = self.tick_schedule[node].1 as f64 / 1e6;
        let (reliable, unreliable) = self.message_rates[node];
        let to = PEERS[node];
        if self.rng.chance(reliable * seconds) {
            let large = self.rng.chance(0.04);
            let len = if large { self.rng.between(410, 2500) } else { self.rng.between(1, 90) };
            let mut payload = vec![0; usize::try_from(len).expect("small")];
            self.rng.fill(&mut payload);
            self.nodes[node].send(to, &payload, DeliveryMode::Reliable, now);
        }
        if self.rng.chance(unreliable * seconds) {
            self.nodes[node].send(to, &[0x1C; 24], DeliveryMode::Unreliable, now);
        }
    }
}

/// The peer of each node.
pub(crate) const PEERS: [PeerId; 2] = [PeerId(2), PeerId::HOST];
pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
pub(crate) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);
/// The address of each node.
pub(crate) const ADDRESSES: [SocketAddrV4; 2] = [HOST, CLIENT];
