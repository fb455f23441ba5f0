//! A session and its clients on a virtual network, in virtual time.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::{Faults, Link};
use bcnet_session::client::{self, ClientOptions, DisconnectReason, ServerAnomaly};
use bcnet_session::{Config, Event, Manifest, Network, Session};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{self as transport, Connect, DeliveryMode, IdPolicy, LeaveReason, Time, cipher};

pub(crate) const TICK: Duration = Duration::from_millis(5);
pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 22101);

/// A session, its clients, and the datagrams in flight.
pub(crate) struct TestWorld {
    pub(crate) now: Time,
    pub(crate) session: Session,
    pub(crate) clients: Vec<TestClient>,
    pub(crate) events: Vec<Event>,
    /// The datagrams that the session sent to addresses of no client.
    pub(crate) sent_elsewhere: Vec<(SocketAddrV4, Vec<u8>)>,
    /// All datagrams that the session sent, decrypted, if [`record`](Self::record) is set.
    pub(crate) sent: Vec<(Time, SocketAddrV4, Vec<u8>)>,
    /// True to record the payloads of the clients and the datagrams of the session.
    pub(crate) record: bool,
    faults: Faults,
    seed: u64,
    in_flight: Vec<FlyingDatagram>,
    order: u64,
}

struct FlyingDatagram {
    at: Time,
    order: u64,
    from: SocketAddrV4,
    to: SocketAddrV4,
    bytes: Vec<u8>,
}

/// A client that answers the file check and enters by itself.
pub(crate) struct TestClient {
    pub(crate) client: client::Client,
    pub(crate) address: SocketAddrV4,
    pub(crate) name: String,
    /// The received payloads, with their times.
    pub(crate) received: Vec<(Time, Vec<u8>)>,
    /// The received names, with the number of payloads received before.
    pub(crate) identities: Vec<(PeerId, String, usize)>,
    /// The number of payloads that came unreliably.
    pub(crate) unreliable_count: usize,
    pub(crate) disconnects: Vec<(PeerId, LeaveReason)>,
    pub(crate) answers_file_check: bool,
    pub(crate) ships_reply: Vec<u8>,
    /// The manifest to answer from, instead of the captured answers.
    pub(crate) files: Option<Manifest>,
    /// The events of the client, except unparsed game messages, if they are recorded.
    pub(crate) client_events: Vec<client::Event>,
    /// True if all datagrams from the client are lost.
    pub(crate) drops_outgoing: bool,
    /// True if all datagrams to the client are lost.
    pub(crate) drops_incoming: bool,
    up: Link,
    down: Link,
}

impl TestWorld {
    pub(crate) fn new(config: Config) -> Self {
        Self::with_faults(config, Faults { delay: Duration::from_millis(20), ..Faults::default() }, 1)
    }

    /// Returns an empty world. Ids are sequential, so that tests know them beforehand.
    pub(crate) fn with_faults(mut config: Config, faults: Faults, seed: u64) -> Self {
        config.transport.id_policy = IdPolicy::Sequential;
        Self {
            now: Time::ZERO,
            session: Session::new(config, seed),
            clients: Vec::new(),
            events: Vec::new(),
            sent_elsewhere: Vec::new(),
            sent: Vec::new(),
            record: true,
            faults,
            seed,
            in_flight: Vec::new(),
            order: 0,
        }
    }

    /// Adds a client that begins to connect.
    pub(crate) fn connect(&mut self, name: &str, password: &str) -> usize {
        let n = u16::try_from(self.clients.len()).expect("few clients");
        let [high, low] = n.to_be_bytes();
        // Each client is in a different /16 network, and none is at home: all limits apply.
        let address = SocketAddrV4::new(Ipv4Addr::new(60, low, high, 7), 22101);
        let at = self.clients.len();
        let client = self.new_client(name, password, address);
        self.clients.push(client);
        at
    }

    fn new_client(&mut self, name: &str, password: &str, address: SocketAddrV4) -> TestClient {
        self.seed += 2;
        let nonce = u32::try_from(self.seed).expect("a small number");
        let transport = transport::Config { address: *address.ip(), ..transport::Config::default() };
        let connect = Connect { host: HOST, nonce, password };
        // The client has no timeout, because the tests check the server's timeouts.
        let options = ClientOptions { name: name.into(), handshake_timeout: None };
        TestClient {
            client: client::Client::connect(transport, connect, options, self.now),
            address,
            name: name.into(),
            received: Vec::new(),
            identities: Vec::new(),
            unreliable_count: 0,
            disconnects: Vec::new(),
            answers_file_check: true,
            ships_reply: file_check_reply(2),
            files: None,
            client_events: Vec::new(),
            drops_outgoing: false,
            drops_incoming: false,
            up: Link::new(self.faults.clone(), self.seed),
            down: Link::new(self.faults.clone(), self.seed + 1),
        }
    }

    /// Replaces a client by a new one with the same name and address.
    pub(crate) fn reconnect(&mut self, at: usize) {
        let (name, address) = (self.clients[at].name.clone(), self.clients[at].address);
        self.clients[at] = self.new_client(&name, "", address);
    }

    /// Adds a client, and runs until it is in the game.
    pub(crate) fn join(&mut self, name: &str) -> usize {
        let at = self.connect(name, "");
        self.run_until(Duration::from_secs(30), |world| world.is_in_game(at));
        at
    }

    pub(crate) fn is_in_game(&self, at: usize) -> bool {
        let id = self.clients[at].client.id();
        self.events.iter().any(|event| matches!(event, Event::InGame { peer, .. } if *peer == id))
    }

    pub(crate) fn id(&self, at: usize) -> PeerId {
        self.clients[at].client.id()
    }

    pub(crate) fn send(&mut self, at: usize, payload: &[u8]) {
        let now = self.now;
        self.clients[at].client.send(payload, DeliveryMode::Reliable, now).expect("the message is queued");
    }

    pub(crate) fn send_unreliable(&mut self, at: usize, payload: &[u8]) {
        let now = self.now;
        self.clients[at].client.send(payload, DeliveryMode::Unreliable, now).expect("the message is queued");
    }

    /// Changes the name of a client.
    pub(crate) fn rename(&mut self, at: usize, name: &str) {
        self.clients[at].name = name.into();
        self.clients[at].client.rename(name, self.now).expect("the client has joined");
    }

    pub(crate) fn leave(&mut self, at: usize) {
        self.clients[at].client.leave(self.now);
    }

    /// Lets clients leave, and waits until the server has verified that (T-57).
    pub(crate) fn leave_and_wait(&mut self, clients: &[usize]) {
        clients.iter().for_each(|at| self.leave(*at));
        self.run(Duration::from_millis(2200));
    }

    /// Returns the names of all events so far.
    pub(crate) fn event_names(&self) -> Vec<&'static str> {
        self.events.iter().map(Event::name).collect()
    }

    /// Delivers bytes from any address to the session at once.
    pub(crate) fn inject(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        self.session.handle_datagram(from, &mut bytes.to_vec(), self.now);
    }

    /// Returns the payloads that a client has received since the last call.
    pub(crate) fn take_received(&mut self, at: usize) -> Vec<Vec<u8>> {
        self.clients[at].received.drain(..).map(|(_, payload)| payload).collect()
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.tick();
        }
    }

    pub(crate) fn run_until(&mut self, most: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.now + most;
        while !done(self) {
            assert!(self.now < end, "not done after {most:?}: {:?}", self.events);
            self.tick();
        }
    }

    pub(crate) fn tick(&mut self) {
        self.now = self.now + TICK;
        self.deliver();
        self.session.handle_timeout(self.now);
        let now = self.now;
        for client in &mut self.clients {
            client.poll(self.record, now);
        }
        self.collect();
        while let Some(event) = self.session.poll_event() {
            self.events.push(event);
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (mut due, flying): (Vec<_>, Vec<_>) =
            self.in_flight.drain(..).partition(|flight| flight.at <= now);
        self.in_flight = flying;
        due.sort_by_key(|flight| (flight.at, flight.order));
        for mut flight in due {
            if flight.to == HOST {
                self.session.handle_datagram(flight.from, &mut flight.bytes, now);
            } else if let Some(client) = self.clients.iter_mut().find(|client| client.address == flight.to)
                && !client.drops_incoming
            {
                client.client.handle_datagram(flight.from, &mut flight.bytes, now);
            }
        }
    }

    fn collect(&mut self) {
        let mut buffer = [0; 2048];
        let mut sent = 0;
        while let Some(transmit) = self.session.poll_transmit(&mut buffer, self.now) {
            sent += 1;
            assert!(sent < 100_000, "at {} the session sends without end", self.now);
            let bytes = &buffer[..transmit.len];
            if self.record {
                let mut plain = bytes.to_vec();
                if plain[0] != b'\\' {
                    cipher::decrypt(&mut plain);
                }
                self.sent.push((self.now, transmit.to, plain));
            }
            match self.clients.iter().position(|client| client.address == transmit.to) {
                Some(at) => self.send_over_link(HOST, transmit.to, at, bytes),
                None => self.sent_elsewhere.push((transmit.to, bytes.to_vec())),
            }
        }
        for at in 0..self.clients.len() {
            let from = self.clients[at].address;
            let mut sent = 0;
            while let Some(transmit) = self.clients[at].client.poll_transmit(&mut buffer, self.now) {
                sent += 1;
                assert!(sent < 100_000, "at {} client {at} sends without end", self.now);
                if !self.clients[at].drops_outgoing {
                    self.send_over_link(from, HOST, at, &buffer[..transmit.len]);
                }
            }
        }
    }

    fn send_over_link(&mut self, from: SocketAddrV4, to: SocketAddrV4, client: usize, bytes: &[u8]) {
        let client = &mut self.clients[client];
        let link = if to == HOST { &mut client.up } else { &mut client.down };
        for passage in link.transmit(bytes.len(), self.now).into_iter().flatten() {
            let mut bytes = bytes.to_vec();
            if let Some((place, change)) = passage.corrupt {
                let len = bytes.len() as u64;
                bytes[usize::try_from(place % len).expect("a small number")] ^= change;
            }
            self.order += 1;
            self.in_flight.push(FlyingDatagram { at: passage.at, order: self.order, from, to, bytes });
        }
    }
}

impl TestClient {
    fn poll(&mut self, record: bool, now: Time) {
        self.client.handle_timeout(now);
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            if record && !payload.is_empty() {
                self.received.push((now, payload.clone()));
            }
            if record && !matches!(event, client::Event::Received { .. }) {
                self.client_events.push(event.clone());
            }
            self.handle_event(event, now);
        }
    }

    fn handle_event(&mut self, event: client::Event, now: Time) {
        match event {
            client::Event::FileCheck(check) if self.answers_file_check => {
                if let Some(files) = &self.files {
                    return self
                        .client
                        .answer_from_manifest(files, now)
                        .expect("the manifest has all rounds");
                }
                let answer = match check.index {
                    0xFF => file_check_reply(4),
                    2 => self.ships_reply.clone(),
                    round => file_check_reply(round.into()),
                };
                self.client.answer_file_check(&answer, now).expect("the message is queued");
            }
            client::Event::Load if self.answers_file_check => {
                self.client.enter(now).expect("the message is queued")
            }
            client::Event::Named { peer, name } => self.identities.push((peer, name, self.received.len())),
            client::Event::Received { reliable } => self.unreliable_count += usize::from(!reliable),
            client::Event::Disconnected { peer, reason, .. } => self.disconnects.push((peer, reason)),
            client::Event::Gone { reason, .. } => self.disconnects.push(match reason {
                DisconnectReason::Booted(reason) => (self.client.id(), LeaveReason::Booted(reason)),
                DisconnectReason::HostLeft => (PeerId::HOST, LeaveReason::Disconnected),
                DisconnectReason::HostTimedOut => (PeerId::HOST, LeaveReason::Silent),
                DisconnectReason::Left
                | DisconnectReason::Undeliverable
                | DisconnectReason::HandshakeTimedOut => panic!("{reason}"),
            }),
            client::Event::Anomaly { kind: ServerAnomaly::Datagram(_), .. } => {}
            client::Event::Anomaly { kind, .. } => panic!("anomaly: {kind}"),
            _ => {}
        }
    }
}

/// Returns a list of trusted networks that contains all addresses.
pub(crate) fn all_networks() -> Vec<Network> {
    vec![Network::containing(Ipv4Addr::UNSPECIFIED, 0)]
}

/// Returns a client's answer to a round: the captured one, or one of the same size.
pub(crate) fn file_check_reply(round: usize) -> Vec<u8> {
    match round {
        0 => crate::vectors::payload("dg-resp0"),
        1 => [&[0x21, 1][..], &hashes(&[0x4DAF_CB2F]), &[1, 0], &hashes(&[0x8501_E6A1, 0x1793_0049]), &[0]]
            .concat(),
        2 => ships_reply(51, 0x3EB2_3EBA),
        3 => [
            &[0x21, 3][..],
            &hashes(&[0x3409_475D]),
            &[4, 0],
            &hashes(&[0x5846_668B, 1, 0x4370_D29D, 2, 0xE9DD_9FA2, 3, 0xB54D_1D23, 4]),
            &[0],
        ]
        .concat(),
        _ => crate::vectors::bytes("pl-respFF-full"),
    }
}

/// Returns an answer about ships: `count` files, and as many in one subdirectory.
pub(crate) fn ships_reply(count: u16, first: u32) -> Vec<u8> {
    let files = |salt: u32| -> Vec<u8> {
        let pairs = (0..u32::from(count)).flat_map(|n| [first.wrapping_add(n), n ^ salt]);
        pairs.flat_map(u32::to_le_bytes).collect()
    };
    let [low, high] = count.to_le_bytes();
    let head = [&[0x21, 2][..], &hashes(&[0xC017_D1C4]), &[low, high], &files(7)].concat();
    [&head[..], &[1], &hashes(&[0xAABB_CCDD]), &[low, high], &files(9), &[0]].concat()
}

fn hashes(hashes: &[u32]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect()
}
