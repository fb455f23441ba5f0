//! The original engine, as the laboratory models it, as client of a session.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, Stock};
use bcnet_lab::{Faults, Link};
use bcnet_session::client::{Client, Event, Options};
use bcnet_session::{Config, Session};
use bcnet_transport::wire::{Datagram, Delivery, Message, PeerId, Role, Writer};
use bcnet_transport::{Prove, Quality, Time, cipher};

use crate::admission::connect;
use crate::world::{HOST, reply};

const SECOND: Duration = Duration::from_secs(1);
/// A stock client has 60 frames a second.
const FRAME: Duration = Duration::from_micros(16_667);

struct Player {
    client: Client<Stock>,
    address: SocketAddrV4,
    received: Vec<Vec<u8>>,
    identities: usize,
    gone: Vec<PeerId>,
    /// Nothing that the session sends arrives; nothing that it sends arrives.
    deaf: bool,
    mute: bool,
    links: [Link; 2],
}

/// A session and players on the way to it.
struct Arena {
    now: Time,
    session: Session,
    players: Vec<Player>,
    flying: Vec<(Time, SocketAddrV4, SocketAddrV4, Vec<u8>)>,
}

impl Arena {
    fn new(players: u8, faults: &Faults, seed: u64) -> Self {
        let now = Time::ZERO;
        let player = |n: u8| {
            let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n + 1), 22101);
            let seed = seed + 2 * u64::from(n);
            let nonce = 0x0A5F + u32::from(n);
            let engine = Stock::connect(Params::default(), HOST, *address.ip(), nonce, &[], now);
            Player {
                client: Client::new(engine, Options::named("Cady2"), now),
                address,
                received: Vec::new(),
                identities: 0,
                gone: Vec::new(),
                deaf: false,
                mute: false,
                links: [Link::new(faults.clone(), seed), Link::new(faults.clone(), seed + 1)],
            }
        };
        let players = (0..players).map(player).collect();
        Self { now, session: Session::new(Config::default(), seed), players, flying: Vec::new() }
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
        let (mut due, flying): (Vec<_>, Vec<_>) = self.flying.drain(..).partition(|(at, ..)| *at <= now);
        self.flying = flying;
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
            if !player.deaf {
                fly(&mut self.flying, &mut player.links[0], (HOST, transmit.to), bytes, now);
            }
        }
        for player in &mut self.players {
            player.client.handle_timeout(now);
            assert_eq!(player.client.engine().crash(), None, "a stock client crashed");
            player.hear(now);
            while let Some(transmit) = player.client.poll_transmit(&mut buffer, now) {
                let way = (player.address, transmit.to);
                if !player.mute {
                    fly(&mut self.flying, &mut player.links[1], way, &buffer[..transmit.len], now);
                }
            }
        }
    }

    /// Player 0 says something long. Its engine's messages, each as a datagram of its own, that nobody has got yet.
    fn parts(&mut self, payload: &[u8]) -> Vec<Vec<u8>> {
        let (now, client) = (self.now, &mut self.players[0].client);
        client.send(payload, Quality::Reliable, now).expect("room");
        let (mut parts, mut buffer) = (Vec::new(), [0; 2048]);
        // As many frames as the engine needs to send all of it once.
        while client.engine().lengths(PeerId::HOST).expect("the host").first > 0 {
            client.handle_timeout(now);
            while let Some(transmit) = client.poll_transmit(&mut buffer, now) {
                parts.extend(split(&mut buffer[..transmit.len]));
            }
        }
        parts
    }

    /// Datagrams of player 0 arrive, in this order.
    fn deliver(&mut self, datagrams: &[&Vec<u8>]) {
        for datagram in datagrams {
            self.session.handle_datagram(self.players[0].address, &mut datagram.to_vec(), self.now);
        }
    }

    /// How often player 1 has heard something.
    fn heard(&self, payload: &[u8]) -> usize {
        self.players[1].received.iter().filter(|heard| *heard == payload).count()
    }

    fn in_game(&self) -> usize {
        self.session.status(self.now).in_game
    }

    /// Whether nothing waits for an ACK, at either side.
    fn is_settled(&self) -> bool {
        let settled = |player: &Player| {
            let client = player.client.engine().lengths(PeerId::HOST).expect("the host");
            let host = self.session.snapshot(player.client.id(), self.now).expect("a player");
            client.retx + client.first == 0 && host.unacknowledged.is_empty() && host.fresh == 0
        };
        self.players.iter().all(settled)
    }
}

fn fly(
    flying: &mut Vec<(Time, SocketAddrV4, SocketAddrV4, Vec<u8>)>,
    link: &mut Link,
    (from, to): (SocketAddrV4, SocketAddrV4),
    bytes: &[u8],
    now: Time,
) {
    for passage in link.pass(bytes.len(), now).into_iter().flatten() {
        flying.push((passage.at, from, to, bytes.to_vec()));
    }
}

/// The parts of messages in a datagram, each in one of its own.
fn split(datagram: &mut [u8]) -> Vec<Vec<u8>> {
    cipher::decrypt(datagram);
    let parsed = Datagram::parse(datagram, Some(Role::Client)).expect("of a stock client");
    let is_part = |message: &Message<'_>| matches!(message, Message::Data(data) if matches!(data.delivery, Delivery::Fragment(..)));
    let alone = |message: Message<'_>| {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer, parsed.sender());
        assert!(writer.push(&message));
        let alone = writer.finish().expect("a part");
        cipher::encrypt(alone);
        alone.to_vec()
    };
    parsed.messages().filter(is_part).map(alone).collect()
}

impl Player {
    fn hear(&mut self, now: Time) {
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            match event {
                Event::Named { .. } => self.identities += 1,
                Event::Disconnected { peer, .. } => self.gone.push(peer),
                Event::FileCheck(check) => {
                    let round = if check.index == 0xFF { 4 } else { check.index.into() };
                    self.client.answer(&reply(round), now).expect("room");
                }
                Event::Load => self.client.enter(now).expect("room"),
                Event::Nonsense { what, .. } => panic!("{what}"),
                Event::Gone { .. } => {}
                _ => self.received.push(payload.clone()),
            }
        }
    }
}

fn numbered(player: usize, number: u16) -> Vec<u8> {
    let [low, high] = number.to_le_bytes();
    let player = u8::try_from(player).expect("few");
    [&[0xCD, player, low, high][..], &[0x77; 21]].concat()
}

/// Everyone says 600 things; everyone hears all of the others, once and in order.
fn talk(arena: &mut Arena) {
    for number in 0..600 {
        for (at, player) in arena.players.iter_mut().enumerate() {
            let payload = numbered(at, number);
            player.client.send(&payload, Quality::Reliable, arena.now).expect("room");
        }
        arena.run(3 * FRAME);
    }
    arena.run(60 * SECOND);
    for (at, player) in arena.players.iter().enumerate() {
        for other in (0..arena.players.len()).filter(|other| *other != at) {
            let heard =
                player.received.iter().filter(|payload| payload.starts_with(&numbered(other, 0)[..2]));
            let expected: Vec<Vec<u8>> = (0..600).map(|number| numbered(other, number)).collect();
            assert!(heard.eq(expected.iter()), "{at} did not hear all of {other} in order");
        }
    }
    assert!(arena.is_settled());
    assert_eq!(arena.session.counters().anomalies.total(), 0);
}

/// S-20, S-31, S-33: the answer about ships has three parts.
#[test]
fn stock_clients_join_and_talk() {
    let faults = Faults { delay: Duration::from_millis(30), ..Faults::default() };
    let mut arena = Arena::new(3, &faults, 1);
    arena.run(3 * SECOND);
    assert_eq!(arena.in_game(), 3);
    assert!(arena.players.iter().all(|player| player.identities >= 3));
    talk(&mut arena);
}

/// S-21, S-33: parts and messages that overtake each other, come twice or not at all.
#[test]
fn stock_clients_join_and_talk_on_a_bad_network() {
    for seed in [100, 200, 300] {
        let faults = Faults {
            loss: 0.1,
            duplicate: 0.2,
            reorder: 0.3,
            reorder_by: Duration::from_millis(60),
            delay: Duration::from_millis(30),
            ..Faults::default()
        };
        let mut arena = Arena::new(2, &faults, seed);
        arena.run(30 * SECOND);
        assert_eq!(arena.in_game(), 2, "seed {seed}");
        talk(&mut arena);
    }
}

/// T-51, T-75: whatever is lost, a stock client that was acknowledged is a player soon after, with a forger at work and
/// without. The cookie leaves nothing in its queues.
#[test]
fn no_stock_client_is_left_waiting_at_twenty_percent_loss() {
    let faults = Faults { loss: 0.2, delay: Duration::from_millis(30), ..Faults::default() };
    let mut slowest = Duration::ZERO;
    for seed in 0..1000 {
        let mut arena = Arena::new(1, &faults, 3 * seed);
        let mut config = Config::default();
        config.transport.prove = Prove::Ack;
        arena.session = Session::new(config, seed);
        let attacked = seed % 10 == 0;
        let is_named = |arena: &Arena| arena.session.players().any(|player| !player.name.is_empty());
        while !is_named(&arena) {
            assert!(arena.now < Time::ZERO + 40 * SECOND, "seed {seed}: {:?}", arena.session.counters());
            if attacked {
                forge(&mut arena);
            }
            arena.frame();
        }
        slowest = slowest.max(arena.now.since(Time::ZERO));
        if seed < 20 {
            arena.run(60 * SECOND);
            assert_eq!(arena.in_game(), 1, "seed {seed}");
            assert!(arena.is_settled(), "seed {seed}");
            let client = arena.players[0].client.engine().lengths(PeerId::HOST).expect("the host");
            assert_eq!((client.acks, client.retx, client.first), (0, 0, 0), "seed {seed}");
        }
    }
    println!("the slowest was there after {slowest:?}");
}

/// Requests from ten forged addresses.
fn forge(arena: &mut Arena) {
    for n in 0..10 {
        let count = u32::try_from(arena.now.as_micros() / 1000).expect("short") * 10 + n;
        let mut connect = connect(count);
        let from = SocketAddrV4::new(Ipv4Addr::from(0x0B00_0000 + count), 22101);
        arena.session.handle_datagram(from, &mut connect, arena.now);
    }
}

/// A payload of three parts, as long as an answer about ships.
fn long(number: u8) -> Vec<u8> {
    [&[0xCD, 0xFF, number][..], &[number; 850]].concat()
}

fn talking() -> Arena {
    let mut arena = Arena::new(2, &Faults { delay: Duration::from_millis(30), ..Faults::default() }, 11);
    arena.run(3 * SECOND);
    assert_eq!(arena.in_game(), 2);
    arena
}

/// T-67, S-33
#[test]
fn parts_of_a_stock_client_come_in_any_order() {
    let mut arena = talking();
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (order, number) in orders.into_iter().zip(0..) {
        let parts = arena.parts(&long(number));
        assert_eq!(parts.len(), 3);
        for at in order {
            assert_eq!(arena.heard(&long(number)), 0);
            arena.deliver(&[&parts[at]]);
            arena.run(SECOND / 10);
        }
        arena.run(SECOND);
        assert_eq!(arena.heard(&long(number)), 1, "{order:?}");
        assert!(arena.is_settled(), "{order:?}");
    }
}

/// T-60, T-69: each repeat is acknowledged, before the message is whole and after; it is passed on once.
#[test]
fn parts_that_are_repeated_without_end_are_acknowledged_and_processed_once() {
    let mut arena = talking();
    let parts = arena.parts(&long(1));
    let id = arena.players[0].client.id();
    let acks = |arena: &Arena| arena.session.peer_counters(id).expect("a player").acks_out;
    let before = acks(&arena);
    (arena.players[0].deaf, arena.players[0].mute) = (true, true);
    for _ in 0..200 {
        arena.deliver(&[&parts[0], &parts[2]]);
        arena.run(3 * FRAME);
    }
    assert_eq!((arena.heard(&long(1)), acks(&arena) - before), (0, 400));
    for _ in 0..200 {
        arena.deliver(&[&parts[2], &parts[1], &parts[0]]);
        arena.run(3 * FRAME);
    }
    assert_eq!((arena.heard(&long(1)), acks(&arena) - before), (1, 1000));
    (arena.players[0].deaf, arena.players[0].mute) = (false, false);
    arena.run(6 * SECOND);
    assert_eq!(arena.heard(&long(1)), 1);
    assert_eq!(arena.session.counters().anomalies.total(), 0);
    assert!(arena.is_settled());
}

/// T-60: a stock client that hears no ACK sends its parts again and again. When it hears again, it stops.
#[test]
fn a_stock_client_that_was_deaf_stops_repeating() {
    let mut arena = talking();
    arena.players[0].deaf = true;
    let now = arena.now;
    arena.players[0].client.send(&long(1), Quality::Reliable, now).expect("room");
    arena.run(30 * SECOND);
    assert_eq!(arena.heard(&long(1)), 1);
    assert!(arena.players[0].client.engine().lengths(PeerId::HOST).expect("the host").retx >= 3);
    let id = arena.players[0].client.id();
    assert!(arena.session.peer_counters(id).expect("a player").duplicates >= 3 * 5);
    arena.players[0].deaf = false;
    arena.run(6 * SECOND);
    assert_eq!((arena.heard(&long(1)), arena.in_game()), (1, 2));
    assert!(arena.is_settled());
}

/// S-50, S-53
#[test]
fn stock_clients_hear_who_leaves_and_that_the_server_ends() {
    let faults = Faults { delay: Duration::from_millis(30), ..Faults::default() };
    let mut arena = Arena::new(3, &faults, 7);
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
