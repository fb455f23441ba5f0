//! Clients on the laboratory's model of the stock engine, in a session.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_lab::{Faults, Link};
use bcnet_session::client::{Client, ClientOptions, Event};
use bcnet_session::{Config, Session};
use bcnet_transport::wire::{Datagram, Delivery, Message, PeerId, Role, Writer};
use bcnet_transport::{DeliveryMode, ProofPolicy, Time, cipher};

use crate::admission::connect_request;
use crate::world::{HOST, file_check_reply};

const SECOND: Duration = Duration::from_secs(1);
/// A stock client runs at 60 frames per second.
const FRAME: Duration = Duration::from_micros(16_667);

struct StockPlayer {
    client: Client<StockEngine>,
    address: SocketAddrV4,
    received: Vec<Vec<u8>>,
    identities: usize,
    gone: Vec<PeerId>,
    /// True if all datagrams to this player are lost.
    drops_incoming: bool,
    /// True if all datagrams from this player are lost.
    drops_outgoing: bool,
    links: [Link; 2],
}

/// A session, and players connected by links with faults.
struct StockArena {
    now: Time,
    session: Session,
    players: Vec<StockPlayer>,
    in_flight: Vec<(Time, SocketAddrV4, SocketAddrV4, Vec<u8>)>,
}

impl StockArena {
    fn new(players: u8, faults: &Faults, seed: u64) -> Self {
        let now = Time::ZERO;
        let player = |n: u8| {
            let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n + 1), 22101);
            let seed = seed + 2 * u64::from(n);
            let nonce = 0x0A5F + u32::from(n);
            let engine = StockEngine::connect(Params::default(), HOST, *address.ip(), nonce, &[], now);
            StockPlayer {
                client: Client::new(engine, ClientOptions::with_name("Cady2"), now),
                address,
                received: Vec::new(),
                identities: 0,
                gone: Vec::new(),
                drops_incoming: false,
                drops_outgoing: false,
                links: [Link::new(faults.clone(), seed), Link::new(faults.clone(), seed + 1)],
            }
        };
        let players = (0..players).map(player).collect();
        Self { now, session: Session::new(Config::default(), seed), players, in_flight: Vec::new() }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.frame();
        }
    }

    fn frame(&mut self) {
        self.now = self.now + FRAME;
        let now = self.now;
        let (mut due, flying): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|(at, ..)| *at <= now);
        self.in_flight = flying;
        due.sort_by_key(|(at, ..)| *at);
        for (_, from, to, mut bytes) in due {
            if to == HOST {
                self.session.handle_datagram(from, &mut bytes, now);
            } else if let Some(player) = self.players.iter_mut().find(|player| player.address == to) {
                player.client.handle_datagram(from, &mut bytes, now);
            }
        }
        self.session.handle_timeout(now);
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.session.poll_transmit(&mut buffer, now) {
            let bytes = &buffer[..transmit.len];
            let Some(player) = self.players.iter_mut().find(|player| player.address == transmit.to) else {
                continue;
            };
            if !player.drops_incoming {
                send_over_link(&mut self.in_flight, &mut player.links[0], (HOST, transmit.to), bytes, now);
            }
        }
        for player in &mut self.players {
            player.client.handle_timeout(now);
            assert_eq!(player.client.engine().crash(), None, "a stock client crashed");
            player.handle_events(now);
            while let Some(transmit) = player.client.poll_transmit(&mut buffer, now) {
                let way = (player.address, transmit.to);
                if !player.drops_outgoing {
                    send_over_link(
                        &mut self.in_flight,
                        &mut player.links[1],
                        way,
                        &buffer[..transmit.len],
                        now,
                    );
                }
            }
        }
    }

    /// Queues a long payload of player 0. Returns its fragments, each in a separate datagram that was not delivered.
    fn fragments(&mut self, payload: &[u8]) -> Vec<Vec<u8>> {
        let (now, client) = (self.now, &mut self.players[0].client);
        client.send(payload, DeliveryMode::Reliable, now).expect("the message is queued");
        let (mut fragments, mut buffer) = (Vec::new(), [0; 2048]);
        // Runs as many frames as the engine needs to send all fragments once.
        while client.engine().queue_lengths(PeerId::HOST).expect("the host").first > 0 {
            assert!(fragments.len() < 1000, "the client sends fragments without end");
            client.handle_timeout(now);
            while let Some(transmit) = client.poll_transmit(&mut buffer, now) {
                fragments.extend(split_fragments(&mut buffer[..transmit.len]));
            }
        }
        fragments
    }

    /// Delivers datagrams of player 0, in this order.
    fn deliver(&mut self, datagrams: &[&Vec<u8>]) {
        for datagram in datagrams {
            self.session.handle_datagram(self.players[0].address, &mut datagram.to_vec(), self.now);
        }
    }

    /// Returns how often player 1 has received a payload.
    fn received_count(&self, payload: &[u8]) -> usize {
        self.players[1].received.iter().filter(|received| *received == payload).count()
    }

    fn in_game(&self) -> usize {
        self.session.status(self.now).in_game
    }

    /// Returns whether all messages are acknowledged, on both sides.
    fn is_fully_acknowledged(&self) -> bool {
        let is_acknowledged = |player: &StockPlayer| {
            let client = player.client.engine().queue_lengths(PeerId::HOST).expect("the host");
            let host = self.session.snapshot(player.client.id(), self.now).expect("a player");
            client.retx + client.first == 0 && host.unacknowledged.is_empty() && host.unsent == 0
        };
        self.players.iter().all(is_acknowledged)
    }
}

fn send_over_link(
    in_flight: &mut Vec<(Time, SocketAddrV4, SocketAddrV4, Vec<u8>)>,
    link: &mut Link,
    (from, to): (SocketAddrV4, SocketAddrV4),
    bytes: &[u8],
    now: Time,
) {
    for passage in link.transmit(bytes.len(), now).into_iter().flatten() {
        in_flight.push((passage.at, from, to, bytes.to_vec()));
    }
}

/// Splits the fragments in a datagram into separate datagrams.
fn split_fragments(datagram: &mut [u8]) -> Vec<Vec<u8>> {
    cipher::decrypt(datagram);
    let parsed = Datagram::parse(datagram, Some(Role::Client)).expect("a datagram of a stock client");
    let is_fragment = |message: &Message<'_>| matches!(message, Message::Data(data) if matches!(data.delivery, Delivery::Fragment(..)));
    let separate = |message: Message<'_>| {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer, parsed.sender());
        assert!(writer.push(&message));
        let datagram = writer.finish().expect("a fragment");
        cipher::encrypt(datagram);
        datagram.to_vec()
    };
    parsed.messages().filter(is_fragment).map(separate).collect()
}

impl StockPlayer {
    fn handle_events(&mut self, now: Time) {
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            match event {
                Event::Named { .. } => self.identities += 1,
                Event::Disconnected { peer, .. } => self.gone.push(peer),
                Event::FileCheck(check) => {
                    let round = if check.index == 0xFF { 4 } else { check.index.into() };
                    self.client
                        .answer_file_check(&file_check_reply(round), now)
                        .expect("the message is queued");
                }
                Event::Load => self.client.enter(now).expect("the message is queued"),
                Event::Anomaly { kind, .. } => panic!("anomaly: {kind}"),
                Event::Gone { .. } => {}
                _ => self.received.push(payload.clone()),
            }
        }
    }
}

fn numbered_payload(player: usize, number: u16) -> Vec<u8> {
    let [low, high] = number.to_le_bytes();
    let player = u8::try_from(player).expect("a small number");
    [&[0xCD, player, low, high][..], &[0x77; 21]].concat()
}

/// Sends 600 messages of each player, and checks that the others receive all of them once and in order.
fn exchange_messages(arena: &mut StockArena) {
    for number in 0..600 {
        for (at, player) in arena.players.iter_mut().enumerate() {
            let payload = numbered_payload(at, number);
            player.client.send(&payload, DeliveryMode::Reliable, arena.now).expect("the message is queued");
        }
        arena.run(3 * FRAME);
    }
    arena.run(60 * SECOND);
    for (at, player) in arena.players.iter().enumerate() {
        for other in (0..arena.players.len()).filter(|other| *other != at) {
            let received = player
                .received
                .iter()
                .filter(|payload| payload.starts_with(&numbered_payload(other, 0)[..2]));
            let expected: Vec<Vec<u8>> = (0..600).map(|number| numbered_payload(other, number)).collect();
            assert!(
                received.eq(expected.iter()),
                "player {at} did not receive all messages of player {other} in order"
            );
        }
    }
    assert!(arena.is_fully_acknowledged());
    assert_eq!(arena.session.counters().anomalies.total(), 0);
}

/// S-20, S-31, S-33: the file check answer about ships has three fragments.
#[test]
fn stock_clients_join_and_exchange_messages() {
    let faults = Faults { delay: Duration::from_millis(30), ..Faults::default() };
    let mut arena = StockArena::new(3, &faults, 1);
    arena.run(3 * SECOND);
    assert_eq!(arena.in_game(), 3);
    assert!(arena.players.iter().all(|player| player.identities >= 3));
    exchange_messages(&mut arena);
}

/// S-21, S-33: fragments and messages are reordered, duplicated or lost.
#[test]
fn stock_clients_exchange_messages_on_a_bad_network() {
    for seed in [100, 200, 300] {
        let faults = Faults {
            loss: 0.1,
            duplicate: 0.2,
            reorder: 0.3,
            reorder_by: Duration::from_millis(60),
            delay: Duration::from_millis(30),
            ..Faults::default()
        };
        let mut arena = StockArena::new(2, &faults, seed);
        arena.run(30 * SECOND);
        assert_eq!(arena.in_game(), 2, "seed {seed}");
        exchange_messages(&mut arena);
    }
}

/// T-51, T-75: despite losses, a stock client that was acknowledged soon becomes a player.
///
/// The test runs with and without spoofed requests. The cookie leaves no message in the client's queues.
#[test]
fn stock_clients_join_at_twenty_percent_loss() {
    let faults = Faults { loss: 0.2, delay: Duration::from_millis(30), ..Faults::default() };
    let mut slowest = Duration::ZERO;
    for seed in 0..1000 {
        let mut arena = StockArena::new(1, &faults, 3 * seed);
        let mut config = Config::default();
        config.transport.proof_policy = ProofPolicy::Ack;
        arena.session = Session::new(config, seed);
        let attacked = seed % 10 == 0;
        let is_named = |arena: &StockArena| arena.session.players().any(|player| !player.name.is_empty());
        while !is_named(&arena) {
            assert!(arena.now < Time::ZERO + 40 * SECOND, "seed {seed}: {:?}", arena.session.counters());
            if attacked {
                send_forged_requests(&mut arena);
            }
            arena.frame();
        }
        slowest = slowest.max(arena.now.since(Time::ZERO));
        if seed < 20 {
            arena.run(60 * SECOND);
            assert_eq!(arena.in_game(), 1, "seed {seed}");
            assert!(arena.is_fully_acknowledged(), "seed {seed}");
            let client = arena.players[0].client.engine().queue_lengths(PeerId::HOST).expect("the host");
            assert_eq!((client.acks, client.retx, client.first), (0, 0, 0), "seed {seed}");
        }
    }
    println!("the slowest client joined after {slowest:?}");
}

/// Sends requests from ten spoofed addresses.
fn send_forged_requests(arena: &mut StockArena) {
    for n in 0..10 {
        let count = u32::try_from(arena.now.as_micros() / 1000).expect("a small number") * 10 + n;
        let mut connect = connect_request(count);
        let from = SocketAddrV4::new(Ipv4Addr::from(0x0B00_0000 + count), 22101);
        arena.session.handle_datagram(from, &mut connect, arena.now);
    }
}

/// Returns a payload of three fragments, as long as a file check answer about ships.
fn fragmented_payload(number: u8) -> Vec<u8> {
    [&[0xCD, 0xFF, number][..], &[number; 850]].concat()
}

fn two_players_in_game() -> StockArena {
    let mut arena = StockArena::new(2, &Faults { delay: Duration::from_millis(30), ..Faults::default() }, 11);
    arena.run(3 * SECOND);
    assert_eq!(arena.in_game(), 2);
    arena
}

/// T-67, S-33
#[test]
fn stock_fragments_are_reassembled_in_any_order() {
    let mut arena = two_players_in_game();
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (order, number) in orders.into_iter().zip(0..) {
        let fragments = arena.fragments(&fragmented_payload(number));
        assert_eq!(fragments.len(), 3);
        for at in order {
            assert_eq!(arena.received_count(&fragmented_payload(number)), 0);
            arena.deliver(&[&fragments[at]]);
            arena.run(SECOND / 10);
        }
        arena.run(SECOND);
        assert_eq!(arena.received_count(&fragmented_payload(number)), 1, "{order:?}");
        assert!(arena.is_fully_acknowledged(), "{order:?}");
    }
}

/// T-60, T-69: each duplicate is acknowledged, before and after reassembly, but the message is relayed once.
#[test]
fn duplicate_fragments_are_acknowledged_and_relayed_once() {
    let mut arena = two_players_in_game();
    let fragments = arena.fragments(&fragmented_payload(1));
    let id = arena.players[0].client.id();
    let acks = |arena: &StockArena| arena.session.peer_counters(id).expect("a player").acks_out;
    let before = acks(&arena);
    (arena.players[0].drops_incoming, arena.players[0].drops_outgoing) = (true, true);
    for _ in 0..200 {
        arena.deliver(&[&fragments[0], &fragments[2]]);
        arena.run(3 * FRAME);
    }
    assert_eq!((arena.received_count(&fragmented_payload(1)), acks(&arena) - before), (0, 400));
    for _ in 0..200 {
        arena.deliver(&[&fragments[2], &fragments[1], &fragments[0]]);
        arena.run(3 * FRAME);
    }
    assert_eq!((arena.received_count(&fragmented_payload(1)), acks(&arena) - before), (1, 1000));
    (arena.players[0].drops_incoming, arena.players[0].drops_outgoing) = (false, false);
    arena.run(6 * SECOND);
    assert_eq!(arena.received_count(&fragmented_payload(1)), 1);
    assert_eq!(arena.session.counters().anomalies.total(), 0);
    assert!(arena.is_fully_acknowledged());
}

/// T-60: a stock client that gets no ACK retransmits its fragments, and stops when it gets one.
#[test]
fn stock_client_stops_retransmitting_once_acknowledged() {
    let mut arena = two_players_in_game();
    arena.players[0].drops_incoming = true;
    let now = arena.now;
    arena.players[0]
        .client
        .send(&fragmented_payload(1), DeliveryMode::Reliable, now)
        .expect("the message is queued");
    arena.run(30 * SECOND);
    assert_eq!(arena.received_count(&fragmented_payload(1)), 1);
    assert!(arena.players[0].client.engine().queue_lengths(PeerId::HOST).expect("the host").retx >= 3);
    let id = arena.players[0].client.id();
    assert!(arena.session.peer_counters(id).expect("a player").duplicates >= 3 * 5);
    arena.players[0].drops_incoming = false;
    arena.run(6 * SECOND);
    assert_eq!((arena.received_count(&fragmented_payload(1)), arena.in_game()), (1, 2));
    assert!(arena.is_fully_acknowledged());
}

/// S-50, S-53
#[test]
fn stock_clients_receive_departures_and_shutdown() {
    let faults = Faults { delay: Duration::from_millis(30), ..Faults::default() };
    let mut arena = StockArena::new(3, &faults, 7);
    arena.run(3 * SECOND);
    let leaver = arena.players[0].client.id();
    arena.players[0].client.leave(arena.now);
    arena.run(3 * SECOND);
    assert_eq!(arena.in_game(), 2);
    assert!(arena.players[1].gone.contains(&leaver));
    let gone = [&[0x18, 5, 0][..], b"Cady2"].concat();
    assert_eq!(arena.players[2].received.last(), Some(&gone));
    arena.session.shutdown(arena.now);
    arena.run(30 * SECOND);
    assert!(arena.session.is_closed());
    assert!(arena.players.iter().all(|player| player.client.is_closed()));
}
