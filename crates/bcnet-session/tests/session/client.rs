//! The client, with servers that are good, that stop half-way, and that talk nonsense.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::client::{Client, CommandError, End, Event, Options, State};
use bcnet_session::game::{ObjectId, Ship, Species, StateUpdate, Text8};
use bcnet_session::{Checksums, Config, Manifest, Score};
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{self as transport, Connect, Endpoint, Engine, Quality, Time};

use crate::vectors::{bytes, hex};
use crate::world::{HOST, World};

const SECOND: Duration = Duration::from_secs(1);
const OWN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// A client, and a server that says what the test says.
struct Duo {
    now: Time,
    host: Endpoint,
    client: Client,
    /// What the client has told.
    events: Vec<Event>,
    /// What the server has heard.
    heard: Vec<Vec<u8>>,
    /// Whether the server lets anyone in.
    admits: bool,
}

impl Duo {
    fn new(handshake_timeout: Option<Duration>) -> Self {
        let connect = Connect { host: HOST, nonce: 1, password: "" };
        let options = Options { name: "Kirk".into(), handshake_timeout };
        Self {
            now: Time::ZERO,
            host: Endpoint::host(transport::Config::default()),
            client: Client::connect(transport::Config::default(), connect, options, Time::ZERO),
            events: Vec::new(),
            heard: Vec::new(),
            admits: true,
        }
    }

    /// A client that the server has let in.
    fn connected() -> Self {
        let mut duo = Self::new(None);
        duo.run(SECOND);
        assert_eq!(duo.client.state(), State::Checking);
        duo
    }

    /// A client that has got all the way in.
    fn entered() -> Self {
        let mut duo = Self::connected();
        duo.say_all(&[&settings(0), &[0x01]]);
        duo.client.enter(duo.now).expect("it may load");
        duo.say_all(&[&listed(2)]);
        assert_eq!(duo.client.state(), State::Lobby);
        duo.events.clear();
        duo
    }

    /// The server says something, and the client hears it.
    fn say_all(&mut self, payloads: &[&[u8]]) {
        for payload in payloads {
            self.host.send(PeerId(2), payload, Quality::Reliable, self.now).expect("room");
        }
        self.run(SECOND / 10);
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.now = self.now + Duration::from_millis(10);
            self.tick();
        }
    }

    fn tick(&mut self) {
        let (mut payload, mut buffer, now) = (Vec::new(), [0; 2048], self.now);
        self.host.handle_timeout(now);
        while let Some(event) = self.host.poll_event(&mut payload) {
            match event {
                transport::Event::Request { from, .. } if self.admits => drop(self.host.admit(from, now)),
                transport::Event::Received { .. } => self.heard.push(payload.clone()),
                _ => {}
            }
        }
        self.client.handle_timeout(now);
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            self.events.push(event);
        }
        while let Some(transmit) = self.host.poll_transmit(&mut buffer, now) {
            self.client.handle_datagram(HOST, &mut buffer[..transmit.len], now);
        }
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, now) {
            self.host.handle_datagram(OWN, &mut buffer[..transmit.len], now);
        }
    }

    /// What the client has told since the last time.
    fn told(&mut self) -> Vec<&'static str> {
        self.events.drain(..).map(|event| event.name()).collect()
    }
}

/// 3.5 s, collisions, a slot, `M`.
fn settings(slot: u8) -> Vec<u8> {
    [&hex("00 00006040 61")[..], &[slot], &hex("0100 4D")].concat()
}

/// A player takes part.
fn listed(peer: u8) -> Vec<u8> {
    [&hex("17 66080000 F1008000 00000000 00000000")[..], &[peer]].concat()
}

fn sovereign() -> Ship<'static> {
    Ship {
        species: Species(5),
        position: [1.0, 2.0, 3.0],
        rotation: [1.0, 0.0, 0.0, 0.0],
        unknown: [0; 7],
        name: Text8(b"Kirk"),
        set: Text8(b"Multi1"),
        subsystems: &[100; 53],
    }
}

/// S-80
#[test]
fn a_client_is_told_each_step_into_the_game() {
    let mut duo = Duo::connected();
    let request = bytes("pl-settings-a");
    duo.say_all(&[
        &hex("20 02 0D00 736372697074732F7368697073 0500 2A2E707963 21"),
        &[0x28],
        &request,
        &[0x01],
    ]);
    let Event::FileCheck(check) = &duo.events[2] else { panic!("{:?}", duo.events) };
    assert_eq!((check.index, check.directory.as_str(), check.filter.as_str()), (2, "scripts/ships", "*.pyc"));
    assert!(check.recursive);
    let Event::Settings(settings) = &duo.events[4] else { panic!("{:?}", duo.events) };
    assert_eq!(settings.mission, "Multiplayer.Episode.Mission1.Mission1");
    assert!(settings.collisions && !settings.friendly_fire);
    let expected = ["connected", "named", "file_check", "files_passed", "settings", "load"];
    assert_eq!((duo.told().as_slice(), duo.client.state()), (&expected[..], State::Loading));
    duo.client.answer_from(&Manifest::stand_in(), duo.now).expect("it was asked");
    duo.client.enter(duo.now).expect("it may load");
    duo.say_all(&[
        &hex("35 08 03 14 B0040000 FF"),
        &hex("37 02000000 01000000 02000000 03000000"),
        &listed(2),
    ]);
    assert_eq!(duo.told(), ["mission", "score", "entered"]);
    assert_eq!((duo.client.state(), duo.client.slot()), (State::Lobby, Some(settings_slot())));
    assert_eq!((duo.heard[0].len(), duo.heard[1].clone()), (832, vec![0x2A, 0x20]));
    let (id, player) = duo.client.players().next().expect("itself");
    assert_eq!((id, player.name.as_str(), player.listed), (PeerId(2), "Kirk", true));
    assert_eq!(player.score, Score { kills: 1, deaths: 2, points: 3 });
}

/// S-25: the game clock goes on from what the settings say, which is 3.5 s.
#[test]
fn a_client_knows_what_the_game_clock_shows() {
    let mut duo = Duo::connected();
    assert_eq!(duo.client.game_time(duo.now), None);
    let before = duo.now;
    duo.say_all(&[&settings(0)]);
    let shown = duo.client.game_time(before).expect("it was told");
    assert_eq!(shown, 3.5);
    let at = |later| duo.client.game_time(duo.now + later).expect("it was told");
    assert!((at(2 * SECOND) - at(Duration::ZERO) - 2.0).abs() < 1e-3);
    assert!((3.5..3.6).contains(&at(Duration::ZERO)), "{}", at(Duration::ZERO));
}

/// The slot in the captured settings.
fn settings_slot() -> u8 {
    bytes("pl-settings-a")[6]
}

/// S-82
#[test]
fn a_client_with_a_ship_is_in_the_game_and_without_in_the_lobby() {
    let mut duo = Duo::entered();
    let update = StateUpdate { object: ObjectId::new(0, 34), time: 1.5, ..StateUpdate::default() };
    assert_eq!(duo.client.update(update.clone(), duo.now), Err(CommandError::State(State::Lobby)));
    let own = ObjectId::new(0, 34);
    let exploding =
        [&hex("06 29810000 4E008000 00000000")[..], &own.0.to_le_bytes(), &hex("00000000 00001841")].concat();
    let destroyed = [&[0x14][..], &own.0.to_le_bytes()].concat();
    for (end, told) in [
        (exploding, "ship_exploding"),
        (destroyed, "object_destroyed"),
        (hex("38 01000000"), "round_ended"),
        (hex("39"), "round_started"),
    ] {
        assert_eq!(duo.client.create_ship(34, sovereign(), duo.now), Ok(own));
        duo.client.update(update.clone(), duo.now).expect("it has a ship");
        assert_eq!(duo.client.state(), State::InGame);
        duo.say_all(&[&end]);
        assert_eq!((duo.told(), duo.client.state()), (vec![told], State::Lobby));
    }
    let created = duo.heard.iter().find(|payload| payload[0] == 0x03).expect("a ship");
    assert_eq!(created[..11], [&hex("03 00 02 08800000")[..], &own.0.to_le_bytes()].concat());
}

/// S-81: who is there, what they say, have and lose.
#[test]
fn a_client_knows_who_takes_part() {
    let mut duo = Duo::entered();
    let ship = bytes("pl-03-sovereign");
    duo.say_all(&[
        &listed(3),
        &listed(3),
        &hex("2C 03000000 0300 681B69"),
        &hex("36 03000000 05000000 06000000 02000000 07000000 01 09000000 08000000"),
        &hex("3F 03000000 01000000 02000000 03000000 01"),
        &hex("41 09000000 02"),
        &ship,
        &hex("17 66080000 05000600 00000000 00000000 03"),
        &hex("17 66080000 05000600 00000000 00000000 03"),
        &hex("CD 0102"),
    ]);
    let chat = Event::Chat { peer: PeerId(3), name: String::new(), text: "h i".into(), team: false };
    assert_eq!(duo.events[2], chat);
    assert_eq!(duo.events[3], Event::Died { victim: PeerId(2), killer: Some(PeerId(3)) });
    let expected = ["joined", "received", "chat", "died", "score", "received", "ship_created", "left"];
    assert_eq!(duo.told(), [&expected[..], &["received", "received"]].concat());
    let scores: Vec<(u8, i32, i32, i32)> = duo
        .client
        .players()
        .map(|(id, player)| (id.0, player.score.kills, player.score.deaths, player.score.points))
        .collect();
    assert_eq!(scores, [(2, 0, 7, 0), (3, 1, 2, 3), (9, 0, 0, 8)]);
    let teams: Vec<Option<u8>> = duo.client.players().map(|(_, player)| player.team).collect();
    assert_eq!(teams, [None, Some(1), Some(2)]);
    assert_eq!(duo.client.ships().count(), 1);
}

/// S-26, S-80: wherever the server stops, the client says so when its time is up, and not before.
#[test]
fn a_server_that_stops_is_told_with_the_step_at_which_it_stopped() {
    let steps: [(State, &[&[u8]]); 4] = [
        (State::Connecting, &[]),
        (State::Checking, &[&[0x28]]),
        (State::Loading, &[&settings(0), &[0x01]]),
        (State::Entering, &[&settings(0), &[0x01]]),
    ];
    for (step, said) in steps {
        let mut duo = Duo::new(Some(30 * SECOND));
        duo.admits = step != State::Connecting;
        duo.run(SECOND);
        duo.say_all_if_in(said);
        if step == State::Entering {
            duo.client.enter(duo.now).expect("it may load");
        }
        duo.run(Duration::from_millis(29_990) - duo.now.since(Time::ZERO));
        assert_eq!(duo.client.state(), step);
        assert!(duo.client.next_timeout() <= Some(Time::ZERO + 30 * SECOND));
        duo.run(Duration::from_millis(10));
        assert_eq!(duo.events.last(), Some(&Event::Gone { step, end: End::Stalled }));
        // It leaves by itself, and nothing more is told.
        duo.events.clear();
        duo.run(20 * SECOND);
        assert!(duo.client.is_closed() && duo.events.is_empty());
    }
}

impl Duo {
    fn say_all_if_in(&mut self, payloads: &[&[u8]]) {
        if self.client.id() != PeerId::UNASSIGNED {
            self.say_all(payloads);
        }
    }
}

/// S-83
#[test]
fn the_end_is_told_once_with_its_reason() {
    let booted = |reason| Event::Gone { step: State::Lobby, end: End::Booted(reason) };
    let mut kicked = Duo::entered();
    kicked.host.boot(PeerId(2), BootReason::KICKED, kicked.now).expect("it is there");
    kicked.run(SECOND);
    assert_eq!(kicked.events, [booted(BootReason::KICKED)]);
    let mut ended = Duo::entered();
    ended.host.leave(ended.now);
    ended.run(SECOND);
    assert_eq!(ended.events, [Event::Gone { step: State::Lobby, end: End::HostLeft }]);
    let mut left = Duo::entered();
    left.client.leave(left.now);
    left.run(SECOND);
    assert!(left.events.is_empty() && left.client.is_closed() && left.client.state() == State::Gone);
    let mut silent = Duo::entered();
    for _ in 0..100 {
        silent.now = silent.now + SECOND;
        let (mut payload, mut buffer) = (Vec::new(), [0; 2048]);
        silent.client.handle_timeout(silent.now);
        while silent.client.poll_transmit(&mut buffer, silent.now).is_some() {}
        silent.events.extend(std::iter::from_fn(|| silent.client.poll_event(&mut payload, silent.now)));
    }
    assert_eq!(silent.events, [Event::Gone { step: State::Lobby, end: End::HostSilent }]);
}

/// S-80: commands out of turn are refused and send nothing.
#[test]
fn what_makes_no_sense_yet_is_not_said() {
    let mut duo = Duo::connected();
    let now = duo.now;
    assert_eq!(duo.client.chat("hi", now), Err(CommandError::State(State::Checking)));
    assert_eq!(duo.client.team_chat("hi", now), Err(CommandError::State(State::Checking)));
    assert_eq!(duo.client.enter(now), Err(CommandError::State(State::Checking)));
    assert_eq!(duo.client.create_ship(0, sovereign(), now), Err(CommandError::State(State::Checking)));
    assert_eq!(duo.client.answer_from(&Manifest::stand_in(), now), Err(CommandError::NoAnswer));
    duo.say_all(&[&hex("20 07 0000 0000 20")]);
    assert_eq!(duo.client.answer_from(&Manifest::stand_in(), duo.now), Err(CommandError::NoAnswer));
    duo.run(SECOND);
    assert_eq!(duo.heard, [] as [Vec<u8>; 0]);
    // A mission before its settings, an own entry that nobody asked for: no step.
    duo.told();
    duo.say_all(&[&[0x01], &listed(2)]);
    assert_eq!((duo.told(), duo.client.state()), (vec!["nonsense", "received"], State::Checking));
}

/// S-84: every message that a client reads, cut anywhere or with impossible numbers.
#[test]
fn nonsense_is_counted_and_changes_nothing() {
    let mut duo = Duo::entered();
    let whole: [&[u8]; 10] = [
        &hex("20 02 0D00 736372697074732F7368697073 0500 2A2E707963 21"),
        &hex("22 0700 4170702E707963"),
        &settings(0),
        &hex("35 08 03 14 B0040000 FF"),
        &listed(3),
        &hex("2C 03000000 0200 6869"),
        &hex("36 03000000 05000000 06000000 02000000 07000000 01 09000000 08000000"),
        &hex("37 02000000 01000000 02000000 03000000"),
        &hex("14 FFFFFF3F"),
        &hex("41 02000000 01"),
    ];
    let before: Vec<_> = duo.client.players().map(|(id, player)| (id, player.clone())).collect();
    let mut said = 0;
    for message in whole {
        for len in 1..message.len() {
            duo.say_all(&[&message[..len]]);
            said += 1;
        }
    }
    let impossible = [
        settings(16),
        hex("2C 00010000 0000"),
        hex("37 FFFFFFFF 00000000 00000000 00000000"),
        hex("36 00000000 00010000 00000000 00"),
        hex("41 00010000 01"),
        Vec::new(),
    ];
    for message in &impossible {
        duo.say_all(&[message]);
        said += 1;
    }
    assert_eq!(duo.client.nonsense(), said);
    assert!(duo.events.iter().all(|event| matches!(event, Event::Nonsense { .. })), "{:?}", duo.events);
    assert_eq!(duo.events.len() as u32, said.ilog2() + 1);
    let after: Vec<_> = duo.client.players().map(|(id, player)| (id, player.clone())).collect();
    assert_eq!((before, State::Lobby), (after, duo.client.state()));
}

/// S-84
#[test]
fn no_server_makes_a_client_panic_or_grow() {
    let mut rng = Rng::new(7);
    for entered in [false, true] {
        let mut duo = if entered { Duo::entered() } else { Duo::connected() };
        for round in 0..3000_u32 {
            let mut payload = vec![0; rng.size(60)];
            rng.fill(&mut payload);
            if let Some(first) = payload.first_mut() {
                *first = round.to_le_bytes()[0];
            }
            duo.host.send(PeerId(2), &payload, Quality::Unreliable, duo.now).expect("room");
            duo.run(Duration::from_millis(10));
        }
        duo.run(SECOND);
        assert!(duo.client.players().count() <= 256 && duo.client.ships().count() <= 16);
        let told = duo.events.iter().filter(|event| matches!(event, Event::Nonsense { .. })).count();
        assert!(duo.client.nonsense() > 100 && told <= 12, "{told} of {}", duo.client.nonsense());
        // It still works.
        if entered {
            duo.events.clear();
            duo.say_all(&[&hex("2C 02000000 0200 6869")]);
            assert_eq!(duo.told(), ["chat"]);
        } else {
            assert_eq!(duo.client.state(), State::Checking);
        }
    }
}

/// S-84: datagrams of no sense, before anything else.
#[test]
fn a_server_of_another_language_is_told_apart_from_a_silent_one() {
    let mut duo = Duo::new(Some(SECOND));
    duo.admits = false;
    for n in 0..5 {
        duo.client.handle_datagram(HOST, &mut [n; 40], duo.now);
    }
    duo.run(2 * SECOND);
    assert_eq!(duo.told(), ["nonsense", "nonsense", "nonsense", "gone"]);
}

/// S-21, S-23, S-24: what a strict server has learned from a client fits that client, and no other.
#[test]
fn a_manifest_answers_as_the_installation_that_it_was_learned_from() {
    let checksums = Checksums::Strict(vec![Manifest::stand_in()]);
    let mut world = World::new(Config { checksums, ..Config::default() });
    let [good, other] = ["Good", "Other"].map(|name| world.connect(name, ""));
    world.clients[good].files = Some(Manifest::stand_in());
    world.run(3 * SECOND);
    assert!(world.is_in_game(good) && !world.is_in_game(other));
    assert_eq!(world.session.counters().anomalies.total(), 0);
    let told = world.clients[other].told.iter().any(|event| matches!(event, Event::FilesDiffer { .. }));
    assert!(told, "{:?}", world.clients[other].told);
}
