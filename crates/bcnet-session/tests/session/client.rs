//! The client against servers that work, that stall, and that send malformed messages.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::client::{Client, ClientOptions, ClientState, CommandError, DisconnectReason, Event};
use bcnet_session::game::{
    CompressedFloat, Created, Message, ObjectCreateTeam, ObjectId, PackedVector, Position, Ship, Species,
    StateUpdate, Text8, UnitVector,
};
use bcnet_session::{Checksums, Config, Manifest, Score};
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{self as transport, Connect, DeliveryMode, Endpoint, Engine, Time};

use crate::vectors::{bytes, hex};
use crate::world::{HOST, TestWorld};

const SECOND: Duration = Duration::from_secs(1);
const CLIENT_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// A client, and a server that sends the messages of the test.
struct ClientWithHost {
    now: Time,
    host: Endpoint,
    client: Client,
    /// The events of the client.
    events: Vec<Event>,
    /// The payloads that the server has received.
    received: Vec<Vec<u8>>,
    /// True if the server admits clients.
    admits: bool,
}

impl ClientWithHost {
    fn new(handshake_timeout: Option<Duration>) -> Self {
        let connect = Connect { host: HOST, nonce: 1, password: "" };
        let options = ClientOptions { name: "Kirk".into(), handshake_timeout };
        Self {
            now: Time::ZERO,
            host: Endpoint::host(transport::Config::default()),
            client: Client::connect(transport::Config::default(), connect, options, Time::ZERO),
            events: Vec::new(),
            received: Vec::new(),
            admits: true,
        }
    }

    /// Returns a client that the server has admitted.
    fn connected() -> Self {
        let mut duo = Self::new(None);
        duo.run(SECOND);
        assert_eq!(duo.client.state(), ClientState::Checking);
        duo
    }

    /// Returns a client that has entered the game.
    fn entered() -> Self {
        let mut duo = Self::connected();
        duo.send_all(&[&settings(0), &[0x01]]);
        duo.client.enter(duo.now).expect("the client is loading");
        duo.send_all(&[&listed_event(2)]);
        assert_eq!(duo.client.state(), ClientState::Lobby);
        duo.events.clear();
        duo
    }

    /// Sends payloads from the server, and runs until the client has received them.
    fn send_all(&mut self, payloads: &[&[u8]]) {
        for payload in payloads {
            self.host
                .send(PeerId(2), payload, DeliveryMode::Reliable, self.now)
                .expect("the message is queued");
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
                transport::Event::Received { .. } => self.received.push(payload.clone()),
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
            self.host.handle_datagram(CLIENT_ADDRESS, &mut buffer[..transmit.len], now);
        }
    }

    /// Returns the names of the client's events since the last call.
    fn event_names(&mut self) -> Vec<&'static str> {
        self.events.drain(..).map(|event| event.name()).collect()
    }
}

/// Settings with a clock of 3.5 s, collisions, a slot and the mission `M`.
fn settings(slot: u8) -> Vec<u8> {
    [&hex("00 00006040 61")[..], &[slot], &hex("0100 4D")].concat()
}

/// The event that a player takes part.
fn listed_event(peer: u8) -> Vec<u8> {
    [&hex("17 66080000 F1008000 00000000 00000000")[..], &[peer]].concat()
}

fn sovereign() -> Ship<'static> {
    Ship {
        species: Species::SOVEREIGN,
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
fn client_reports_each_join_step() {
    let mut duo = ClientWithHost::connected();
    let request = bytes("pl-settings-a");
    duo.send_all(&[
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
    assert_eq!((duo.event_names().as_slice(), duo.client.state()), (&expected[..], ClientState::Loading));
    duo.client.answer_from_manifest(&Manifest::placeholder(), duo.now).expect("a request is pending");
    duo.client.enter(duo.now).expect("the client is loading");
    duo.send_all(&[
        &hex("35 08 03 14 B0040000 FF"),
        &hex("37 02000000 01000000 02000000 03000000"),
        &listed_event(2),
    ]);
    assert_eq!(duo.event_names(), ["mission", "score", "entered"]);
    assert_eq!((duo.client.state(), duo.client.slot()), (ClientState::Lobby, Some(settings_slot())));
    assert_eq!((duo.received[0].len(), duo.received[1].clone()), (832, vec![0x2A, 0x20]));
    let (id, player) = duo.client.players().next().expect("the client itself");
    assert_eq!((id, player.name.as_str(), player.listed), (PeerId(2), "Kirk", true));
    assert_eq!(player.score, Score { kills: 1, deaths: 2, points: 3 });
}

/// S-25: the game clock continues from the time in the settings, which is 3.5 s.
#[test]
fn client_tracks_the_game_clock() {
    let mut duo = ClientWithHost::connected();
    assert_eq!(duo.client.game_time(duo.now), None);
    let before = duo.now;
    duo.send_all(&[&settings(0)]);
    let shown = duo.client.game_time(before).expect("the settings have arrived");
    assert_eq!(shown, 3.5);
    let at = |later| duo.client.game_time(duo.now + later).expect("the settings have arrived");
    assert!((at(2 * SECOND) - at(Duration::ZERO) - 2.0).abs() < 1e-3);
    assert!((3.5..3.6).contains(&at(Duration::ZERO)), "{}", at(Duration::ZERO));
}

/// The slot in the captured settings.
fn settings_slot() -> u8 {
    bytes("pl-settings-a")[6]
}

/// S-82
#[test]
fn client_is_in_game_only_with_a_ship() {
    let mut duo = ClientWithHost::entered();
    let update = StateUpdate { object: ObjectId::new(0, 34), time: 1.5, ..StateUpdate::default() };
    assert_eq!(
        duo.client.send_state_update(update.clone(), duo.now),
        Err(CommandError::WrongState(ClientState::Lobby))
    );
    let own = ObjectId::new(0, 34);
    let exploding =
        [&hex("06 29810000 4E008000 00000000")[..], &own.0.to_le_bytes(), &hex("00000000 00001841")].concat();
    let destroyed = [&[0x14][..], &own.0.to_le_bytes()].concat();
    for (message, event) in [
        (exploding, "ship_exploding"),
        (destroyed, "object_destroyed"),
        (hex("38 01000000"), "round_ended"),
        (hex("39"), "round_started"),
    ] {
        assert_eq!(duo.client.create_ship(34, sovereign(), duo.now), Ok(own));
        duo.client.send_state_update(update.clone(), duo.now).expect("the client has a ship");
        assert_eq!(duo.client.state(), ClientState::InGame);
        duo.send_all(&[&message]);
        assert_eq!((duo.event_names(), duo.client.state()), (vec![event], ClientState::Lobby));
    }
    let created = duo.received.iter().find(|payload| payload[0] == 0x03).expect("a ship");
    assert_eq!(created[..11], [&hex("03 00 02 08800000")[..], &own.0.to_le_bytes()].concat());
}

/// S-76: distances count from the last complete position; late, broken and unknown reports have no effect.
#[test]
fn client_tracks_the_positions_of_ships() {
    let write = |message: &Message<'_>| {
        let mut payload = Vec::new();
        message.write(&mut payload);
        payload
    };
    let mut duo = ClientWithHost::entered();
    let ship = ObjectId::new(3, 0);
    let created = Created::Ship { object: ship, ship: sovereign() };
    duo.send_all(&[&write(&Message::ObjectCreateTeam(ObjectCreateTeam {
        slot: 3,
        peer: 5,
        object: created,
    }))]);
    let place = |duo: &ClientWithHost| duo.client.position(ship).map(|position| position.place);
    assert_eq!(place(&duo), Some([1.0, 2.0, 3.0]));
    let at = |time, place: Option<[f32; 3]>, delta: Option<[f32; 3]>| StateUpdate {
        object: ship,
        time,
        position: place.map(|place| Position { place, hash: None }),
        delta: delta.map(PackedVector::new),
        ..StateUpdate::default()
    };
    let full = StateUpdate {
        forward: Some(UnitVector([0, 127, 0])),
        speed: Some(CompressedFloat::new(-1.0)),
        ..at(2.0, Some([10.0, 20.0, 30.0]), None)
    };
    for (update, expected) in [
        (full, [10.0, 20.0, 30.0]),
        (at(3.0, None, Some([0.0, 0.0, 5.0])), [10.0, 20.0, 35.0]),
        (at(4.0, None, Some([0.0, 0.0, 7.0])), [10.0, 20.0, 37.0]),
        (at(5.0, None, None), [10.0, 20.0, 37.0]),
        (at(1.0, Some([0.0; 3]), None), [10.0, 20.0, 37.0]),
        (at(f32::NAN, Some([0.0; 3]), None), [10.0, 20.0, 37.0]),
        (at(6.0, Some([f32::INFINITY; 3]), None), [10.0, 20.0, 37.0]),
        (at(6.0, None, Some([0.0, 0.0, 1.0])), [10.0, 20.0, 31.0]),
        (StateUpdate { object: ObjectId::new(3, 9), ..at(7.0, Some([0.0; 3]), None) }, [10.0, 20.0, 31.0]),
        (StateUpdate { object: ObjectId(7), ..at(7.0, Some([0.0; 3]), None) }, [10.0, 20.0, 31.0]),
    ] {
        duo.send_all(&[&write(&Message::StateUpdate(update.clone()))]);
        let shown = place(&duo).expect("a ship");
        let error = shown.iter().zip(expected).map(|(shown, expected)| (shown - expected).abs());
        assert!(error.into_iter().all(|error| error < 0.05), "{shown:?} after {update:?}");
    }
    duo.send_all(&[&[0x1C, 1, 2, 3]]);
    let position = duo.client.position(ship).expect("a ship");
    assert_eq!((position.time, position.forward), (Some(6.0), Some([0.0, 1.0, 0.0])));
    assert!(position.speed.is_some_and(|speed| (speed + 1.0).abs() < 0.001), "{position:?}");
    assert!(duo.event_names().iter().skip(1).all(|name| *name == "received"));
    assert_eq!((duo.client.anomalies(), duo.client.position(ObjectId::new(3, 9))), (0, None));
    duo.send_all(&[&[&[0x14][..], &ship.0.to_le_bytes()].concat()]);
    assert_eq!(place(&duo), None);
}

/// S-81: the client tracks the players, their chat, scores, teams and ships.
#[test]
fn client_tracks_the_players() {
    let mut duo = ClientWithHost::entered();
    let ship = bytes("pl-03-sovereign");
    duo.send_all(&[
        &listed_event(3),
        &listed_event(3),
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
    assert_eq!(duo.event_names(), [&expected[..], &["received", "received"]].concat());
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

/// S-26, S-80: the client reports a stalled handshake when its timeout expires, and not before.
#[test]
fn stalled_handshake_reports_its_last_state() {
    let steps: [(ClientState, &[&[u8]]); 4] = [
        (ClientState::Connecting, &[]),
        (ClientState::Checking, &[&[0x28]]),
        (ClientState::Loading, &[&settings(0), &[0x01]]),
        (ClientState::Entering, &[&settings(0), &[0x01]]),
    ];
    for (state, payloads) in steps {
        let mut duo = ClientWithHost::new(Some(30 * SECOND));
        duo.admits = state != ClientState::Connecting;
        duo.run(SECOND);
        duo.send_all_if_connected(payloads);
        if state == ClientState::Entering {
            duo.client.enter(duo.now).expect("the client is loading");
        }
        duo.run(Duration::from_millis(29_990) - duo.now.since(Time::ZERO));
        assert_eq!(duo.client.state(), state);
        assert!(duo.client.next_timeout() <= Some(Time::ZERO + 30 * SECOND));
        duo.run(Duration::from_millis(10));
        assert_eq!(
            duo.events.last(),
            Some(&Event::Gone { state, reason: DisconnectReason::HandshakeTimedOut })
        );
        // The client disconnects by itself, and reports no more events.
        duo.events.clear();
        duo.run(20 * SECOND);
        assert!(duo.client.is_closed() && duo.events.is_empty());
    }
}

impl ClientWithHost {
    fn send_all_if_connected(&mut self, payloads: &[&[u8]]) {
        if self.client.id() != PeerId::UNASSIGNED {
            self.send_all(payloads);
        }
    }
}

/// S-83
#[test]
fn disconnect_is_reported_once_with_its_reason() {
    let booted = |reason| Event::Gone { state: ClientState::Lobby, reason: DisconnectReason::Booted(reason) };
    let mut kicked = ClientWithHost::entered();
    kicked.host.boot(PeerId(2), BootReason::KICKED, kicked.now).expect("the client is connected");
    kicked.run(SECOND);
    assert_eq!(kicked.events, [booted(BootReason::KICKED)]);
    let mut ended = ClientWithHost::entered();
    ended.host.leave(ended.now);
    ended.run(SECOND);
    assert_eq!(ended.events, [Event::Gone { state: ClientState::Lobby, reason: DisconnectReason::HostLeft }]);
    let mut left = ClientWithHost::entered();
    left.client.leave(left.now);
    left.run(SECOND);
    assert!(left.events.is_empty() && left.client.is_closed() && left.client.state() == ClientState::Gone);
    let mut silent = ClientWithHost::entered();
    for _ in 0..100 {
        silent.now = silent.now + SECOND;
        let (mut payload, mut buffer) = (Vec::new(), [0; 2048]);
        silent.client.handle_timeout(silent.now);
        while silent.client.poll_transmit(&mut buffer, silent.now).is_some() {}
        silent.events.extend(std::iter::from_fn(|| silent.client.poll_event(&mut payload, silent.now)));
    }
    assert_eq!(
        silent.events,
        [Event::Gone { state: ClientState::Lobby, reason: DisconnectReason::HostTimedOut }]
    );
}

/// S-80: commands in the wrong state are refused and send nothing.
#[test]
fn commands_in_the_wrong_state_send_nothing() {
    let mut duo = ClientWithHost::connected();
    let now = duo.now;
    assert_eq!(duo.client.chat("hi", now), Err(CommandError::WrongState(ClientState::Checking)));
    assert_eq!(duo.client.team_chat("hi", now), Err(CommandError::WrongState(ClientState::Checking)));
    assert_eq!(duo.client.enter(now), Err(CommandError::WrongState(ClientState::Checking)));
    assert_eq!(
        duo.client.create_ship(0, sovereign(), now),
        Err(CommandError::WrongState(ClientState::Checking))
    );
    assert_eq!(duo.client.answer_from_manifest(&Manifest::placeholder(), now), Err(CommandError::NoAnswer));
    duo.send_all(&[&hex("20 07 0000 0000 20")]);
    assert_eq!(
        duo.client.answer_from_manifest(&Manifest::placeholder(), duo.now),
        Err(CommandError::NoAnswer)
    );
    duo.run(SECOND);
    assert_eq!(duo.received, [] as [Vec<u8>; 0]);
    // The server starts the mission before it sends the settings, and announces the client although it has not entered.
    // Neither changes the state.
    duo.event_names();
    duo.send_all(&[&[0x01], &listed_event(2)]);
    assert_eq!(
        (duo.event_names(), duo.client.state()),
        (vec!["nonsense", "received"], ClientState::Checking)
    );
}

/// S-84: every message that a client reads, truncated anywhere or with impossible numbers.
#[test]
fn server_anomalies_are_counted_and_ignored() {
    let mut duo = ClientWithHost::entered();
    let complete: [&[u8]; 10] = [
        &hex("20 02 0D00 736372697074732F7368697073 0500 2A2E707963 21"),
        &hex("22 0700 4170702E707963"),
        &settings(0),
        &hex("35 08 03 14 B0040000 FF"),
        &listed_event(3),
        &hex("2C 03000000 0200 6869"),
        &hex("36 03000000 05000000 06000000 02000000 07000000 01 09000000 08000000"),
        &hex("37 02000000 01000000 02000000 03000000"),
        &hex("14 FFFFFF3F"),
        &hex("41 02000000 01"),
    ];
    let before: Vec<_> = duo.client.players().map(|(id, player)| (id, player.clone())).collect();
    let mut sent = 0;
    for message in complete {
        for len in 1..message.len() {
            duo.send_all(&[&message[..len]]);
            sent += 1;
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
        duo.send_all(&[message]);
        sent += 1;
    }
    assert_eq!(duo.client.anomalies(), sent);
    assert!(duo.events.iter().all(|event| matches!(event, Event::Anomaly { .. })), "{:?}", duo.events);
    assert_eq!(duo.events.len() as u32, sent.ilog2() + 1);
    let after: Vec<_> = duo.client.players().map(|(id, player)| (id, player.clone())).collect();
    assert_eq!((before, ClientState::Lobby), (after, duo.client.state()));
}

/// S-84
#[test]
fn arbitrary_server_data_is_harmless_to_a_client() {
    let mut rng = Rng::new(7);
    for entered in [false, true] {
        let mut duo = if entered { ClientWithHost::entered() } else { ClientWithHost::connected() };
        for round in 0..3000_u32 {
            let mut payload = vec![0; rng.index(60)];
            rng.fill(&mut payload);
            if let Some(first) = payload.first_mut() {
                *first = round.to_le_bytes()[0];
            }
            duo.host
                .send(PeerId(2), &payload, DeliveryMode::Unreliable, duo.now)
                .expect("the message is queued");
            duo.run(Duration::from_millis(10));
        }
        duo.run(SECOND);
        assert!(duo.client.players().count() <= 256 && duo.client.ships().count() <= 16);
        let reported = duo.events.iter().filter(|event| matches!(event, Event::Anomaly { .. })).count();
        assert!(duo.client.anomalies() > 100 && reported <= 12, "{reported} of {}", duo.client.anomalies());
        // The client still works.
        if entered {
            duo.events.clear();
            duo.send_all(&[&hex("2C 02000000 0200 6869")]);
            assert_eq!(duo.event_names(), ["chat"]);
        } else {
            assert_eq!(duo.client.state(), ClientState::Checking);
        }
    }
}

/// S-84: malformed datagrams before any others.
#[test]
fn malformed_server_is_distinguished_from_a_silent_one() {
    let mut duo = ClientWithHost::new(Some(SECOND));
    duo.admits = false;
    for n in 0..5 {
        duo.client.handle_datagram(HOST, &mut [n; 40], duo.now);
    }
    duo.run(2 * SECOND);
    assert_eq!(duo.event_names(), ["nonsense", "nonsense", "nonsense", "gone"]);
}

/// S-21, S-23, S-24: a learned manifest matches the client from which it was learned, and no other.
#[test]
fn learned_manifest_answers_like_its_installation() {
    let checksums = Checksums::Strict(vec![Manifest::placeholder()]);
    let mut world = TestWorld::new(Config { checksums, ..Config::default() });
    let [good, other] = ["Good", "Other"].map(|name| world.connect(name, ""));
    world.clients[good].files = Some(Manifest::placeholder());
    world.run(3 * SECOND);
    assert!(world.is_in_game(good) && !world.is_in_game(other));
    assert_eq!(world.session.counters().anomalies.total(), 0);
    let informed =
        world.clients[other].client_events.iter().any(|event| matches!(event, Event::FilesDiffer { .. }));
    assert!(informed, "{:?}", world.clients[other].client_events);
}
