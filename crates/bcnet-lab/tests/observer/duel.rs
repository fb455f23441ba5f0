//! A host and a client, each the original's model or bcnet's engine, and whoever watches them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_lab::stock::{Params, Stock};
use bcnet_lab::{Faults, Link, NodeBehavior, Rng};
use bcnet_observe::Queues;
use bcnet_transport::wire::{MessageId, PeerId};
use bcnet_transport::{Config, Connect, Endpoint, Engine as _, Event, Quality, Time, cipher};

/// One end.
pub(crate) enum Node {
    Stock(Box<Stock>),
    Bcnet(Box<Endpoint>),
}

/// Which engine an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Stock,
    /// Stock but for ACKs of parts that name the whole message.
    PlainAcks,
    Bcnet,
}

impl Node {
    fn host(engine: Engine) -> Self {
        let params = Params { address: *HOST.ip(), trace: true, ..Params::default() };
        match engine {
            Engine::Stock | Engine::PlainAcks => Self::Stock(Box::new(Stock::host(params))),
            Engine::Bcnet => Self::Bcnet(Box::new(Endpoint::host(Config::default()))),
        }
    }

    fn client(engine: Engine, nonce: u32) -> Self {
        let own = *CLIENT.ip();
        let params = Params { trace: true, ..Params::default() };
        match engine {
            Engine::Stock | Engine::PlainAcks => {
                Self::Stock(Box::new(Stock::connect(params, HOST, own, nonce, &[], Time::ZERO)))
            }
            Engine::Bcnet => {
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

    fn send(&mut self, to: PeerId, payload: &[u8], quality: Quality, now: Time) {
        match self {
            Self::Stock(stock) => drop(stock.send(to, payload, quality, now)),
            Self::Bcnet(endpoint) => drop(endpoint.send(to, payload, quality, now)),
        }
    }

    /// The queues as the engine itself has them.
    pub(crate) fn queues(&self, peer: PeerId, now: Time) -> Option<Queues> {
        match self {
            Self::Stock(stock) => stock.dump(peer).map(|dump| crate::queues(&dump)),
            Self::Bcnet(endpoint) => endpoint.snapshot(peer, now).map(|snapshot| Queues::from(&snapshot)),
        }
    }

    /// The ACKs that the engine has looked at since it was asked last, with what waited for one then; nothing of an engine
    /// that does not tell.
    pub(crate) fn handled_acks(&mut self) -> Vec<(MessageId, Vec<MessageId>)> {
        match self {
            Self::Stock(stock) => std::iter::from_fn(|| stock.poll_trace())
                .map(|handled| (handled.id, handled.waiting))
                .collect(),
            Self::Bcnet(_) => Vec::new(),
        }
    }

    /// One turn: takes what arrived, and gives what is to be sent.
    fn service(&mut self, inbox: Vec<(SocketAddrV4, Vec<u8>)>, now: Time) -> Vec<Vec<u8>> {
        let (mut buffer, mut payload, mut out) = ([0; 2048], Vec::new(), Vec::new());
        match self {
            Self::Stock(stock) => {
                for (from, bytes) in inbox {
                    stock.handle_datagram(from, &bytes, now);
                }
                stock.service(now);
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

/// Sees everything that happens.
pub(crate) trait Watcher {
    /// A node sends its datagram with this number; `arrives` tells when, if not never.
    fn sent(&mut self, node: usize, number: u64, now: Time, bytes: &[u8], arrives: Option<Time>);
    /// A datagram reaches a node's socket.
    fn arrived(&mut self, node: usize, number: u64, now: Time, bytes: &[u8]);
    /// A node had a turn, with or without something to send.
    fn serviced(&mut self, node: usize, engine: &mut Node, sent: bool, now: Time);
}

/// Host and client on two links, with traffic drawn from a seed.
pub(crate) struct Duel {
    nodes: [Node; 2],
    behavior: [NodeBehavior; 2],
    /// When each node has its next turn, and how long its ticks are.
    turns: [(u64, u64); 2],
    links: [Link; 2],
    inboxes: [Vec<(SocketAddrV4, Vec<u8>)>; 2],
    flights: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    sent: u64,
    rng: Rng,
    /// Messages per second, reliable and not, of each node.
    pace: [(f64, f64); 2],
}

impl Duel {
    pub(crate) fn new(engines: [Engine; 2], faults: &Faults, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let nonce = 1 + u32::try_from(rng.below(1 << 20)).expect("small");
        let tick = |rng: &mut Rng| [3_000, 10_000, 16_667, 33_333][rng.size(4)];
        let pace = |rng: &mut Rng| (rng.share() * 6.0, [0.0, 10.0][rng.size(2)]);
        Self {
            nodes: [Node::host(engines[0]), Node::client(engines[1], nonce)],
            behavior: engines.map(|engine| NodeBehavior {
                plain_acks: engine == Engine::PlainAcks,
                ..NodeBehavior::default()
            }),
            turns: [(0, tick(&mut rng)), (rng.below(3000), tick(&mut rng))],
            links: [0, 1].map(|i| Link::new(faults.clone(), seed * 2 + i)),
            inboxes: [Vec::new(), Vec::new()],
            flights: BTreeMap::new(),
            sent: 0,
            pace: [pace(&mut rng), pace(&mut rng)],
            rng,
        }
    }

    pub(crate) fn run(&mut self, until: Time, watcher: &mut impl Watcher) {
        loop {
            let turn = if self.turns[0].0 <= self.turns[1].0 { 0 } else { 1 };
            let now = Time::from_micros(self.turns[turn].0);
            if now > until {
                return;
            }
            self.deliver(now, watcher);
            self.talk(turn, now);
            let inbox = std::mem::take(&mut self.inboxes[turn]);
            let mut out = self.nodes[turn].service(inbox, now);
            for bytes in &mut out {
                self.say(turn, bytes);
                self.launch(turn, now, bytes, watcher);
            }
            watcher.serviced(turn, &mut self.nodes[turn], !out.is_empty(), now);
            self.turns[turn].0 += self.turns[turn].1;
        }
    }

    /// Changes a datagram as the node's behavior wants it.
    fn say(&self, node: usize, bytes: &mut Vec<u8>) {
        cipher::decrypt(bytes);
        let len = self.behavior[node].rewrite_outgoing(bytes);
        bytes.truncate(len);
        cipher::encrypt(bytes);
    }

    fn deliver(&mut self, now: Time, watcher: &mut impl Watcher) {
        while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, number), (to, bytes)) = entry.remove_entry();
            watcher.arrived(to, number, at, &bytes);
            self.inboxes[to].push((ADDRESSES[1 - to], bytes));
        }
    }

    fn launch(&mut self, from: usize, now: Time, bytes: &[u8], watcher: &mut impl Watcher) {
        // These links make no copies.
        let [arrival, _] = self.links[from].pass(bytes.len(), now);
        watcher.sent(from, self.sent, now, bytes, arrival.map(|arrival| arrival.at));
        if let Some(arrival) = arrival {
            self.flights.insert((arrival.at, self.sent), (1 - from, bytes.to_vec()));
        }
        self.sent += 1;
    }

    /// Queues what a player or a server might say between two ticks.
    fn talk(&mut self, node: usize, now: Time) {
        if !self.nodes[node].is_connected() {
            return;
        }
        let seconds = self.turns[node].1 as f64 / 1e6;
        let (reliable, unreliable) = self.pace[node];
        let to = PEERS[node];
        if self.rng.chance(reliable * seconds) {
            let large = self.rng.chance(0.04);
            let len = if large { self.rng.between(410, 2500) } else { self.rng.between(1, 90) };
            let mut payload = vec![0; usize::try_from(len).expect("small")];
            self.rng.fill(&mut payload);
            self.nodes[node].send(to, &payload, Quality::Reliable, now);
        }
        if self.rng.chance(unreliable * seconds) {
            self.nodes[node].send(to, &[0x1C; 24], Quality::Unreliable, now);
        }
    }
}

/// Whom each node talks to.
pub(crate) const PEERS: [PeerId; 2] = [PeerId(2), PeerId::HOST];
pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
pub(crate) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);
/// The address of each node.
pub(crate) const ADDRESSES: [SocketAddrV4; 2] = [HOST, CLIENT];
