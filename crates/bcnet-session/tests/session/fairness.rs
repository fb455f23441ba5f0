//! Fair queueing: the messages of one player do not delay those of others (S-43).

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_lab::{Faults, Link};
use bcnet_session::client::{Client, ClientOptions, Event};
use bcnet_session::{Anomaly, Config, Session};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Connect, DeliveryMode, Engine, Time, Transmit};

use crate::play::ship;
use crate::world::{HOST, file_check_reply};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);
/// The delay that one player may add to the messages of others.
const MAX_ADDED_DELAY: Duration = Duration::from_millis(250);

/// A client on any engine.
trait GameClient {
    fn receive(&mut self, bytes: &mut [u8], now: Time);
    fn poll(&mut self, received: &mut Vec<(Time, Vec<u8>)>, now: Time);
    fn transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit>;
    fn send_payload(&mut self, payload: &[u8], mode: DeliveryMode, now: Time);
    fn id(&self) -> PeerId;
}

impl<E: Engine> GameClient for Client<E> {
    fn receive(&mut self, bytes: &mut [u8], now: Time) {
        self.handle_datagram(HOST, bytes, now);
    }

    fn poll(&mut self, received: &mut Vec<(Time, Vec<u8>)>, now: Time) {
        self.handle_timeout(now);
        let mut payload = Vec::new();
        while let Some(event) = self.poll_event(&mut payload, now) {
            match event {
                Event::FileCheck(check) => {
                    let round = if check.index == 0xFF { 4 } else { check.index.into() };
                    self.answer_file_check(&file_check_reply(round), now).expect("the message is queued");
                }
                Event::Load => self.enter(now).expect("the message is queued"),
                Event::Gone { reason, .. } => panic!("disconnected: {reason}"),
                Event::Anomaly { kind, .. } => panic!("anomaly: {kind}"),
                Event::Named { .. } => {}
                _ => received.push((now, payload.clone())),
            }
        }
    }

    fn transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        self.poll_transmit(buffer, now)
    }

    fn send_payload(&mut self, payload: &[u8], mode: DeliveryMode, now: Time) {
        let _ = self.send(payload, mode, now);
    }

    fn id(&self) -> PeerId {
        self.engine().id()
    }
}

struct ArenaPlayer {
    game: Box<dyn GameClient>,
    address: SocketAddrV4,
    frame: Duration,
    next: Time,
    received: Vec<(Time, Vec<u8>)>,
    links: [Link; 2],
}

struct FairnessArena {
    now: Time,
    session: Session,
    players: Vec<ArenaPlayer>,
    in_flight: Vec<(Time, SocketAddrV4, SocketAddrV4, Vec<u8>)>,
}

/// The engine of a player.
#[derive(Clone, Copy, Debug)]
enum PlayerEngine {
    Bcnet,
    /// The stock engine, with this number of frames per second.
    Stock(u32),
}

const PLAYER_ENGINES: [PlayerEngine; 3] =
    [PlayerEngine::Bcnet, PlayerEngine::Stock(60), PlayerEngine::Stock(30)];

impl FairnessArena {
    /// Returns an arena with players in the game. The first has a good link, the others have these faults.
    fn new(kinds: &[PlayerEngine], faults: &Faults, seed: u64) -> Self {
        let good = Faults { delay: faults.delay, ..Faults::default() };
        let mut arena = Self {
            now: Time::ZERO,
            session: Session::new(Config::default(), seed),
            players: Vec::new(),
            in_flight: Vec::new(),
        };
        for (n, kind) in (1..).zip(kinds) {
            let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n), 22101);
            let options = ClientOptions::with_name(&format!("Player {n}"));
            let nonce = u32::from(n);
            let now = arena.now;
            let (game, frame): (Box<dyn GameClient>, Duration) = match *kind {
                PlayerEngine::Bcnet => {
                    let connect = Connect { host: HOST, nonce, password: "" };
                    let config = bcnet_transport::Config {
                        address: *address.ip(),
                        ..bcnet_transport::Config::default()
                    };
                    (Box::new(Client::connect(config, connect, options, now)), TICK)
                }
                PlayerEngine::Stock(frames) => {
                    let engine =
                        StockEngine::connect(Params::default(), HOST, *address.ip(), nonce, &[], now);
                    (Box::new(Client::new(engine, options, now)), SECOND / frames)
                }
            };
            let faults = if n == 1 { &good } else { faults };
            let links = [0, 1].map(|way| Link::new(faults.clone(), seed + 2 * u64::from(n) + way));
            arena.players.push(ArenaPlayer { game, address, frame, next: now, received: Vec::new(), links });
        }
        arena.run(4 * SECOND, |_, _| {});
        assert_eq!(arena.session.status(arena.now).in_game, kinds.len());
        arena
    }

    fn run(&mut self, duration: Duration, mut each: impl FnMut(&mut Self, u64)) {
        let end = self.now + duration;
        let mut step = 0;
        while self.now < end {
            each(self, step);
            self.tick();
            step += 1;
        }
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        let now = self.now;
        let (mut due, flying): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|(at, ..)| *at <= now);
        self.in_flight = flying;
        due.sort_by_key(|(at, ..)| *at);
        for (_, from, to, mut bytes) in due {
            if to == HOST {
                self.session.handle_datagram(from, &mut bytes, now);
            } else if let Some(player) = self.players.iter_mut().find(|player| player.address == to) {
                player.game.receive(&mut bytes, now);
            }
        }
        self.session.handle_timeout(now);
        while self.session.poll_event().is_some() {}
        let mut buffer = [0; 2048];
        while let Some(Transmit { to, len }) = self.session.poll_transmit(&mut buffer, now) {
            let Some(player) = self.players.iter_mut().find(|player| player.address == to) else { continue };
            for passage in player.links[0].transmit(len, now).into_iter().flatten() {
                self.in_flight.push((passage.at, HOST, to, buffer[..len].to_vec()));
            }
        }
        for player in self.players.iter_mut().filter(|player| player.next <= now) {
            player.next = player.next + player.frame;
            player.game.poll(&mut player.received, now);
            while let Some(Transmit { to, len }) = player.game.transmit(&mut buffer, now) {
                for passage in player.links[1].transmit(len, now).into_iter().flatten() {
                    self.in_flight.push((passage.at, player.address, to, buffer[..len].to_vec()));
                }
            }
        }
    }

    fn send(&mut self, at: usize, payload: &[u8], mode: DeliveryMode) {
        self.players[at].game.send_payload(payload, mode, self.now);
    }
}

fn chat(arena: &FairnessArena, at: usize, number: usize) -> Vec<u8> {
    let text = format!("line {number:05}");
    let len = u8::try_from(text.len()).expect("a small number");
    [&[0x2C, arena.players[at].game.id().0, 0, 0, 0, len, 0][..], text.as_bytes()].concat()
}

/// Sends payloads in turns at a fixed rate.
struct Flood {
    payloads: Vec<Vec<u8>>,
    mode: DeliveryMode,
    per_second: u64,
}

impl Flood {
    fn new(payload: &[u8], mode: DeliveryMode, per_second: u64) -> Self {
        Self { payloads: vec![payload.to_vec()], mode, per_second }
    }

    fn none() -> Self {
        Self::new(&[], DeliveryMode::Reliable, 0)
    }

    fn step(&self, arena: &mut FairnessArena, step: u64) {
        let sent = |step: u64| step * self.per_second / 1000;
        for n in sent(step)..sent(step + 1) {
            let payload = &self.payloads[usize::try_from(n).expect("a small number") % self.payloads.len()];
            arena.send(0, payload, self.mode);
        }
    }
}

/// Returns the delays of player 1's chat to player 2 in twenty seconds, in ascending order.
///
/// Meanwhile player 0 floods. All lines must arrive, in order.
fn chat_delays(arena: &mut FairnessArena, flood: &Flood) -> Vec<Duration> {
    chat_delays_after(arena, flood, &[])
}

/// Returns the same if player 1 sends another message before each line.
fn chat_delays_after(arena: &mut FairnessArena, flood: &Flood, before: &[u8]) -> Vec<Duration> {
    let mut sent = Vec::new();
    arena.run(20 * SECOND, |arena, step| {
        flood.step(arena, step);
        if step % 400 == 100 {
            if !before.is_empty() {
                arena.send(1, before, DeliveryMode::Reliable);
            }
            let line = chat(arena, 1, sent.len());
            arena.send(1, &line, DeliveryMode::Reliable);
            sent.push((arena.now, line));
        }
    });
    arena.run(5 * SECOND, |_, _| {});
    let received = &arena.players[2].received;
    let lines: Vec<_> = received.iter().filter(|(_, payload)| payload.first() == Some(&0x2C)).collect();
    assert!(
        lines.iter().map(|(_, line)| line).eq(sent.iter().map(|(_, line)| line)),
        "{} lines",
        lines.len()
    );
    let mut delays: Vec<_> = lines.iter().zip(&sent).map(|((at, _), (since, _))| at.since(*since)).collect();
    delays.sort();
    delays
}

fn percentile(delays: &[Duration], share: usize) -> Duration {
    delays[(delays.len() * share).div_ceil(100) - 1]
}

/// Returns all kinds of floods that one player can send, at the rate of its limit or above.
fn floods() -> Vec<(&'static str, Flood)> {
    let state = [&[0x1C, 0xFF, 0xFF, 0xFF, 0x3F, 0, 0, 0, 0, 0x20][..], &[0; 380]].concat();
    let ships = [0x3FFF_FFFF, 0x4000_0020].map(|object| ship(0, 2, object));
    let mut reborn = ships.to_vec();
    reborn.insert(1, vec![0x13]);
    let mut torpedo = ship(0, 2, 0x4000_0040);
    torpedo[3..7].copy_from_slice(&0x8009_u32.to_le_bytes());
    let (reliable, unreliable) = (DeliveryMode::Reliable, DeliveryMode::Unreliable);
    vec![
        ("small", Flood::new(&[0xCD], reliable, 1_985)),
        ("small, too many", Flood::new(&[0xCD], reliable, 3_000)),
        ("small and unreliable", Flood::new(&[0xCD], unreliable, 3_000)),
        ("large", Flood::new(&[0xCD; 400], reliable, 150)),
        ("large and unreliable", Flood::new(&[0xCD; 400], unreliable, 150)),
        ("1,000 bytes", Flood::new(&[0xCD; 1000], reliable, 60)),
        ("fragmented", Flood::new(&[0xCD; 4000], reliable, 16)),
        ("states", Flood::new(&state, unreliable, 150)),
        ("ships", Flood { payloads: reborn, mode: reliable, per_second: 600 }),
        ("torpedoes", Flood::new(&torpedo, reliable, 400)),
        ("requests", Flood::new(&[0x1E, 0xFF, 0xFF, 0xFF, 0x3F], reliable, 1_700)),
    ]
}

/// S-43: other clients acknowledge the flood, and stock clients do so three times, before their own messages.
#[test]
fn flood_does_not_delay_chat_of_others() {
    let faults = Faults { delay: Duration::from_millis(20), ..Faults::default() };
    for kind in PLAYER_ENGINES {
        let undisturbed = chat_delays(
            &mut FairnessArena::new(&[PlayerEngine::Bcnet, kind, kind], &faults, 1),
            &Flood::none(),
        );
        for (name, flood) in floods() {
            let mut arena = FairnessArena::new(&[PlayerEngine::Bcnet, kind, kind], &faults, 1);
            let delays = chat_delays(&mut arena, &flood);
            let (added, counters) =
                (percentile(&delays, 99) - percentile(&undisturbed, 99), arena.session.counters());
            println!("{kind:?}, {name}: {added:?} more at 99 %, {counters:?}");
            assert!(
                added <= MAX_ADDED_DELAY,
                "{kind:?}, {name}: {:?} of {delays:?}",
                percentile(&delays, 99)
            );
            assert_eq!(arena.session.status(arena.now).in_game, 3);
            assert!(counters.messages_in > 300, "there was a flood: {counters:?}");
        }
    }
}

/// S-43: a link of 256 kbit/s can take half of the flood. Messages in flight before that is known may be late.
#[test]
fn flood_does_not_delay_chat_of_others_on_a_slow_link() {
    let slow =
        Faults { delay: Duration::from_millis(20), bandwidth: 256_000, queue: 64, ..Faults::default() };
    for kind in PLAYER_ENGINES {
        let undisturbed = chat_delays(
            &mut FairnessArena::new(&[PlayerEngine::Bcnet, kind, kind], &slow, 1),
            &Flood::none(),
        );
        for (name, flood) in floods() {
            let mut arena = FairnessArena::new(&[PlayerEngine::Bcnet, kind, kind], &slow, 1);
            let delays = chat_delays(&mut arena, &flood);
            let added = |share| percentile(&delays, share) - percentile(&undisturbed, share);
            println!("{kind:?}, {name}: {:?} more at 95 %, {:?} at most", added(95), added(100));
            assert!(
                added(95) <= MAX_ADDED_DELAY && added(100) <= 4 * MAX_ADDED_DELAY,
                "{kind:?}, {name}: {delays:?}"
            );
        }
    }
}

/// S-43: a link of 96 kbit/s can take a fifth of the flood.
///
/// A message of 4,000 bytes is in flight for 360 ms there. The queue of the link has room for twelve datagrams. If tiny
/// messages fill it, a line is lost with them and retransmitted.
#[test]
fn flood_does_not_delay_chat_of_others_on_a_thin_link() {
    for kind in PLAYER_ENGINES {
        let undisturbed = chat_delays(
            &mut FairnessArena::new(&[PlayerEngine::Bcnet, kind, kind], &thin_link(), 1),
            &Flood::none(),
        );
        for (name, flood) in floods() {
            let mut arena = FairnessArena::new(&[PlayerEngine::Bcnet, kind, kind], &thin_link(), 1);
            let delays = chat_delays(&mut arena, &flood);
            let added = |share| percentile(&delays, share) - percentile(&undisturbed, share);
            println!("{kind:?}, {name}: {:?} more at 95 %, {:?} at most", added(95), added(100));
            let longest =
                if name == "fragmented" { MAX_ADDED_DELAY + MAX_ADDED_DELAY / 2 } else { MAX_ADDED_DELAY };
            assert!(
                added(95) <= longest && added(100) <= 2 * MAX_ADDED_DELAY,
                "{kind:?}, {name}: {delays:?}"
            );
            assert_eq!(arena.session.status(arena.now).in_game, 3);
        }
    }
}

/// S-43: a player creates one large torpedo after the other, and others fire at that player.
///
/// Their messages arrive in time: after the creation in flight and the one that waits.
#[test]
fn object_creations_do_not_delay_messages_about_their_owner() {
    let (own, other) = (0x4003_FFFF_u32.to_le_bytes(), 0x3FFF_FFFF_u32.to_le_bytes());
    let fire = [&[0x0C, 0x0C, 1, 0, 0, 1, 0, 0x80, 0, 0, 0, 0, 0][..], &own, &other].concat();
    let mut torpedo = ship(0, 2, 0x4000_0040);
    torpedo[3..7].copy_from_slice(&0x8009_u32.to_le_bytes());
    torpedo.resize(1_000, 0);
    for kind in PLAYER_ENGINES {
        let players = [PlayerEngine::Bcnet, kind, kind];
        let undisturbed =
            chat_delays_after(&mut FairnessArena::new(&players, &thin_link(), 1), &Flood::none(), &fire);
        let mut arena = FairnessArena::new(&players, &thin_link(), 1);
        let delays = chat_delays_after(&mut arena, &Flood::new(&torpedo, DeliveryMode::Reliable, 60), &fire);
        let added = |share| percentile(&delays, share) - percentile(&undisturbed, share);
        println!("{kind:?}, creations: {:?} more at 95 %, {:?} at most", added(95), added(100));
        assert!(added(100) <= MAX_ADDED_DELAY + MAX_ADDED_DELAY / 4, "{kind:?}: {delays:?}");
        let counters = arena.session.counters();
        assert!(counters.anomalies.count(Anomaly::Backlog) > 500, "there was a flood: {counters:?}");
        let torpedoes = arena.players[2].received.iter().filter(|(_, payload)| *payload == torpedo).count();
        assert!(torpedoes > 50, "only {torpedoes} torpedoes arrived");
    }
}

/// Returns a link of 96 kbit/s with a delay of 40 ms and a queue of half a second.
fn thin_link() -> Faults {
    Faults { delay: Duration::from_millis(40), bandwidth: 96_000, queue: 12, ..Faults::default() }
}

/// S-43: messages of a quiet player arrive at once although a flood of another waits, and the flood stays in order.
#[test]
fn flood_delays_only_its_own_source() {
    let faults = Faults { delay: Duration::from_millis(20), ..Faults::default() };
    let mut arena =
        FairnessArena::new(&[PlayerEngine::Bcnet, PlayerEngine::Bcnet, PlayerEngine::Stock(30)], &faults, 1);
    let mut sent = Vec::new();
    let (mut number, mut floods) = (0_u32, Vec::new());
    arena.run(10 * SECOND, |arena, step| {
        for _ in 0..2 {
            floods.push([&[0xCD][..], &number.to_le_bytes()].concat());
            arena.send(0, floods.last().expect("a flood message"), DeliveryMode::Reliable);
            number += 1;
        }
        if step % 50 == 0 {
            let shot = [&[0xCE][..], &step.to_le_bytes()].concat();
            arena.send(1, &shot, DeliveryMode::Reliable);
            sent.push((arena.now, shot));
        }
    });
    arena.run(5 * SECOND, |_, _| {});
    let received = &arena.players[2].received;
    let shots: Vec<_> = received.iter().filter(|(_, payload)| payload.first() == Some(&0xCE)).collect();
    assert!(
        shots.iter().map(|(_, shot)| shot).eq(sent.iter().map(|(_, shot)| shot)),
        "{} shots",
        shots.len()
    );
    let longest = shots.iter().zip(&sent).map(|((at, _), (since, _))| at.since(*since)).max();
    assert!(longest <= Some(MAX_ADDED_DELAY), "{longest:?}");
    let flood: Vec<_> = received
        .iter()
        .map(|(_, payload)| payload)
        .filter(|payload| payload.first() == Some(&0xCD))
        .collect();
    assert!(
        flood.is_sorted_by(|one, next| flood_number(one) < flood_number(next)),
        "out of order or duplicated"
    );
    let counters = arena.session.counters();
    let dropped = counters.anomalies.count(Anomaly::Backlog);
    assert!(
        dropped > 1_000 && flood.len() > 2_500,
        "{dropped} of {} were dropped, {} arrived",
        floods.len(),
        flood.len()
    );
    assert_eq!((counters.anomalies.total(), counters.not_queued), (dropped, dropped));
}

fn flood_number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload[1..5].try_into().expect("a number"))
}
