//! Game policies (S-90 to S-92), in virtual time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bcnet_lab::{Faults, Rng};
use bcnet_session::game::{
    Chat, DestroyObject, EndCode, EndGame, Message, ObjectId, Species, StateUpdate, Text16,
};
use bcnet_session::policy::{
    CopyBuffer, CopyVerdict, GamePolicy, PlayerMessage, PlayerView, PolicyHost, Recipients, SendPriority,
    SendSettings, Sending, Verdict,
};
use bcnet_session::{Anomaly, Config, EndReason, Event, Score};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{LeaveReason, Time};

use crate::play::{ship, world_with_players};
use crate::vectors::{bytes, hex};
use crate::world::{TICK, TestWorld};

#[path = "../../examples/answer_time.rs"]
#[expect(dead_code, unreachable_pub, reason = "an example is a program")]
mod answer_time;
#[path = "../../examples/refuse_class.rs"]
#[expect(dead_code, unreachable_pub, reason = "an example is a program")]
mod refuse_class;

const SECOND: Duration = Duration::from_secs(1);
const NO_MESSAGES: [Vec<u8>; 0] = [];
/// The ships of slots 0 and 1, whose players are peers 2 and 3.
const SHIPS: [u32; 2] = [0x3FFF_FFFF, 0x4003_FFFF];
const PLAYERS: [PeerId; 2] = [PeerId(2), PeerId(3)];

type OnMessage = fn(&PlayerMessage<'_>, &mut PolicyHost<'_>) -> Verdict;
type OnCopy = fn(&PlayerMessage<'_>, PlayerView<'_>, &mut CopyBuffer<'_>) -> CopyVerdict;
type OnCall = fn(&mut PolicyHost<'_>);

/// A policy that records its calls and does what its functions do.
#[derive(Debug)]
struct Scripted {
    log: Vec<String>,
    payloads: Vec<(PeerId, Vec<u8>)>,
    wakes: Vec<(Time, Time)>,
    message: OnMessage,
    copy: OnCopy,
    /// Called at the start and at each wake-up.
    wake: OnCall,
    join: OnCall,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            log: Vec::new(),
            payloads: Vec::new(),
            wakes: Vec::new(),
            message: |_, _| Verdict::Pass,
            copy: |_, _, _| CopyVerdict::Pass,
            wake: |_| {},
            join: |_| {},
        }
    }
}

impl GamePolicy for Scripted {
    fn on_start(&mut self, host: &mut PolicyHost<'_>) {
        (self.wake)(host);
    }

    fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
        let sender = message.sender.id();
        let kind = if message.reliable { "reliable" } else { "unreliable" };
        self.log.push(format!("{sender} {kind} {}", message.message.opcode()));
        self.payloads.push((sender, message.payload.to_vec()));
        (self.message)(message, host)
    }

    fn on_copy(
        &mut self,
        message: &PlayerMessage<'_>,
        to: PlayerView<'_>,
        copy: &mut CopyBuffer<'_>,
    ) -> CopyVerdict {
        (self.copy)(message, to, copy)
    }

    fn on_join(&mut self, player: PlayerView<'_>, host: &mut PolicyHost<'_>) {
        self.log.push(format!("join {} of {}", player.name(), host.players().count()));
        (self.join)(host);
    }

    fn on_leave(&mut self, player: PlayerView<'_>, reason: LeaveReason, host: &mut PolicyHost<'_>) {
        self.log.push(format!("leave {} of {}: {reason}", player.name(), host.players().count()));
    }

    fn on_round_start(&mut self, round: u32, _: &mut PolicyHost<'_>) {
        self.log.push(format!("round {round}"));
    }

    fn on_round_end(&mut self, reason: EndReason, _: &mut PolicyHost<'_>) {
        self.log.push(format!("end {reason}"));
    }

    fn on_wake(&mut self, due: Time, host: &mut PolicyHost<'_>) {
        self.wakes.push((due, host.now()));
        (self.wake)(host);
    }
}

/// Returns a world with players and a policy that is set after they have joined.
fn world_with_policy(players: usize, policy: Scripted) -> TestWorld {
    let mut world = world_with_players(Config::default(), players);
    world.session.set_policy(Box::new(policy), world.now);
    world
}

fn scripted(world: &TestWorld) -> &Scripted {
    world.session.policy().expect("the policy")
}

/// Runs for a while, and returns what each player has received.
fn settle(world: &mut TestWorld) -> Vec<Vec<Vec<u8>>> {
    world.run(SECOND / 2);
    (0..world.clients.len()).map(|at| world.take_received(at)).collect()
}

fn message_bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes
}

fn chat(sender: u8, text: &[u8]) -> Vec<u8> {
    message_bytes(&Message::Chat(Chat { sender: sender.into(), text: Text16(text) }))
}

fn state_update(slot: usize, time: f32) -> Vec<u8> {
    let update = StateUpdate {
        object: ObjectId(SHIPS[slot]),
        time,
        speed: Some(Default::default()),
        ..Default::default()
    };
    message_bytes(&Message::StateUpdate(update))
}

const END: Message<'static> = Message::EndGame(EndGame { reason: EndCode(4) });
const HIGH: SendSettings =
    SendSettings { sending: Sending::Reliable, priority: SendPriority::High, about: None };

/// S-90: joins, leaves, rounds and all messages of a player arrive in order, also those of one datagram.
#[test]
fn policy_sees_everything_in_order() {
    let mut world = TestWorld::new(Config::default());
    world.session.set_policy(Box::new(Scripted::default()), Time::ZERO);
    world.join("Kirk");
    world.join("Spock");
    world.run(SECOND);
    let datagrams = world.session.peer_counters(PLAYERS[0]).expect("a player").datagrams_in;
    world.send(0, &ship(0, 2, SHIPS[0]));
    world.send_unreliable(0, &state_update(0, 1.0));
    world.send(0, &bytes("pl-15-0"));
    world.send(0, &[0xCD, 1]);
    world.send(0, &chat(2, b"hi"));
    world.send(0, &[0x13]);
    world.tick();
    world.run(Duration::from_millis(25));
    let sent = world.session.peer_counters(PLAYERS[0]).expect("a player").datagrams_in - datagrams;
    assert_eq!(sent, 1, "all messages leave in one datagram");
    world.run(SECOND);
    world.leave(1);
    world.run(SECOND);
    let expected = [
        "round 1",
        "join Kirk of 1",
        "join Spock of 2",
        "peer 2 reliable ObjectCreateTeam",
        "peer 2 unreliable StateUpdate",
        "peer 2 reliable CollisionEffect",
        "peer 2 reliable opcode 0xCD",
        "peer 2 reliable Chat",
        "peer 2 reliable HostMessage",
        "leave Spock of 1: disconnected",
    ];
    let mut log: Vec<&str> = scripted(&world).log.iter().map(String::as_str).collect();
    // The transport may send reliable messages before unreliable ones.
    log[3..9].sort_by_key(|line| expected.iter().position(|other| other == line));
    assert_eq!(log, expected);
    let reliable: Vec<u8> = scripted(&world)
        .payloads
        .iter()
        .map(|(_, payload)| payload[0])
        .filter(|first| *first != 0x1C)
        .collect();
    assert_eq!(reliable, [0x03, 0x15, 0xCD, 0x2C, 0x13]);
}

/// S-90: with a policy that passes everything, each byte is the same as without one.
#[test]
fn passing_policy_changes_no_byte() {
    let play = |policy: Option<Scripted>| {
        let mut world = TestWorld::new(Config::default());
        if let Some(policy) = policy {
            world.session.set_policy(Box::new(policy), Time::ZERO);
        }
        run_random_game(&mut world, 5);
        world.sent
    };
    let without = play(None);
    let per_receiver = Scripted { message: |_, _| Verdict::PerReceiver, ..Scripted::default() };
    assert!(without.len() > 1000);
    assert!(play(Some(Scripted::default())) == without);
    assert!(play(Some(per_receiver)) == without, "copies that pass are those of the relay");
}

/// Plays a game of four players with random messages.
fn run_random_game(world: &mut TestWorld, seed: u64) {
    let mut rng = Rng::new(seed);
    let players: Vec<usize> = (0..4).map(|n| world.connect(&format!("Player {n}"), "")).collect();
    world.run_until(60 * SECOND, |world| world.session.players_in_game() == 4);
    for step in 0..300_u16 {
        let at = players[usize::try_from(rng.below(4)).expect("a small number")];
        let slot =
            world.session.players().find(|player| player.id == world.id(at)).and_then(|player| player.slot);
        let slot = slot.expect("a slot");
        let object = ObjectId::new(slot, 0);
        match rng.below(5) {
            0 => world.send(at, &ship(slot, world.id(at).0, object.0)),
            1 => {
                let line = chat(world.id(at).0, format!("line {step}").as_bytes());
                world.send(at, &line);
            }
            2 => {
                let fire = [
                    &[7, 0x28, 0x81, 0, 0, 0xD8, 0, 0x80, 0, 0, 0, 0, 0][..],
                    &object.0.to_le_bytes(),
                    &[0; 8],
                ];
                world.send(at, &fire.concat());
            }
            3 => world.send(at, &[0xCD, slot]),
            _ => {
                let update = StateUpdate {
                    object,
                    time: f32::from(step),
                    speed: Some(Default::default()),
                    ..Default::default()
                };
                world.send_unreliable(at, &message_bytes(&Message::StateUpdate(update)));
            }
        }
        world.run(Duration::from_millis(5 * rng.below(10)));
    }
    world.leave(0);
    world.run(2 * SECOND);
}

/// S-90: messages that fail a check, or that cannot be parsed, never arrive at the policy.
#[test]
fn malformed_messages_never_reach_the_policy() {
    let mut world = world_with_policy(2, Scripted::default());
    let torpedo = bytes("pl-19-quantum");
    let cases = [
        (vec![], Anomaly::Empty),
        (hex("36 00000000 02000000 09000000 00"), Anomaly::HostOnly),
        (hex("14 FFFFFF3F"), Anomaly::HostOnly),
        (ship(1, 3, SHIPS[1]), Anomaly::NotOwner),
        (ship(0, 2, SHIPS[0])[..30].to_vec(), Anomaly::TooShort),
        (state_update(1, 1.0), Anomaly::NotOwner),
        (state_update(0, 1.0)[..11].to_vec(), Anomaly::TooShort),
        // The session relays this message when it has no policy: its first field is valid.
        ([&[0x19][..], &SHIPS[0].to_le_bytes(), &torpedo[5..7]].concat(), Anomaly::TooShort),
        (torpedo, Anomaly::NotOwner),
        (bytes("pl-06-8129-selfdestruct"), Anomaly::BadEvent),
        (bytes("pl-15-2"), Anomaly::NotOwner),
        (bytes("pl-15-0")[..18].to_vec(), Anomaly::TooShort),
        (hex("2C 02000000 0900 41"), Anomaly::BadChat),
        (hex("41 03000000 01"), Anomaly::NotOwner),
        (vec![0xCD; 4097], Anomaly::TooLarge),
    ];
    for (payload, kind) in cases {
        let before = world.session.counters().anomalies.count(kind);
        world.send(0, &payload);
        let received = settle(&mut world);
        assert_eq!(world.session.counters().anomalies.count(kind), before + 1, "{payload:02X?}");
        assert_eq!(received[1], NO_MESSAGES, "{payload:02X?}");
        assert_eq!(scripted(&world).log, [""; 0], "{payload:02X?}");
    }
}

/// S-91: a dropped message has no effect and no copy.
#[test]
fn dropped_message_has_no_effect() {
    let mut world = world_with_policy(2, Scripted { message: |_, _| Verdict::Drop, ..Scripted::default() });
    for payload in [ship(0, 2, SHIPS[0]), chat(2, b"hi"), bytes("pl-15-0"), vec![0xCD, 1]] {
        world.send(0, &payload);
    }
    let events = world.events.len();
    assert_eq!(settle(&mut world), [NO_MESSAGES, NO_MESSAGES]);
    assert_eq!(world.events[events..], []);
    assert!(world.session.players().all(|player| player.ship.is_none()));
    assert_eq!((world.session.counters().policy_vetoed, world.session.counters().relayed), (4, 0));
}

/// S-91: a replacement is handled and stored as if the player had sent it. One that fails a check is dropped.
#[test]
fn replacement_takes_the_place_of_the_message() {
    let message: OnMessage = |message, host| match message.message {
        Message::Chat(_) => host.replace(&Message::Chat(Chat { sender: 99, text: Text16(b"a\x07b") })),
        Message::ObjectCreateTeam(create) => {
            let mut other = create.clone();
            if let bcnet_session::game::Created::Ship { ship, .. } = &mut other.object {
                ship.species = Species(3);
            }
            host.replace(&Message::ObjectCreateTeam(other))
        }
        Message::StateUpdate(update) => {
            host.replace(&Message::StateUpdate(StateUpdate { time: 7.0, ..update.clone() }))
        }
        // Each of these fails a check: a message of the host, another player's object, one that is too large.
        Message::HostMessage(_) => host.replace(&END),
        Message::StartFiring(_) => {
            let object = ObjectId(SHIPS[1]);
            host.replace(&Message::StateUpdate(StateUpdate { object, ..StateUpdate::default() }))
        }
        Message::Unknown { opcode, .. } => {
            host.replace(&Message::Unknown { opcode: *opcode, bytes: &[0; 5000] })
        }
        _ => Verdict::Pass,
    };
    let mut world = world_with_policy(2, Scripted { message, ..Scripted::default() });
    world.send(0, &chat(2, b"hello"));
    assert_eq!(settle(&mut world), [[chat(2, b"a b")], [chat(2, b"a b")]]);
    world.send(0, &ship(0, 2, SHIPS[0]));
    let mut expected = ship(0, 2, SHIPS[0]);
    expected[11] = 3;
    assert_eq!(settle(&mut world)[1], [expected.clone()]);
    assert_eq!(world.session.players().next().and_then(|player| player.ship), Some(3));
    world.send_unreliable(0, &state_update(0, 1.0));
    assert_eq!(settle(&mut world)[1], [state_update(0, 7.0)]);
    let late = world.join("Late");
    world.run(SECOND);
    assert!(world.take_received(late).contains(&expected), "new players get the replacement");
    settle(&mut world);
    let fire =
        [&[7, 0x28, 0x81, 0, 0, 0xD8, 0, 0x80, 0, 0, 0, 0, 0][..], &SHIPS[0].to_le_bytes(), &[0; 8]].concat();
    for payload in [vec![0x13], fire, vec![0xCD]] {
        world.send(0, &payload);
    }
    assert_eq!(settle(&mut world), [NO_MESSAGES, NO_MESSAGES, NO_MESSAGES]);
    assert_eq!(world.session.counters().policy_rejected, 3);
    assert!(world.session.players().next().is_some_and(|player| player.ship == Some(3)));
}

/// S-91: each receiver gets its own copy of a state update, with another time, or none.
#[test]
fn copies_are_rewritten_per_receiver() {
    let copy: OnCopy = |message, to, copy| match (message.message, to.id().0) {
        (Message::StateUpdate(_), 4) => CopyVerdict::Drop,
        (Message::StateUpdate(update), 5) => {
            copy.replace(&Message::StateUpdate(StateUpdate { time: update.time - 0.5, ..update.clone() }))
        }
        (Message::Chat(_), to) => {
            let text = format!("for {to}");
            copy.replace(&Message::Chat(Chat { sender: 2, text: Text16(text.as_bytes()) }))
        }
        // Another opcode, another player's object.
        (Message::HostMessage(_) | Message::Unknown { .. }, _) => copy.replace(&END),
        (Message::StartFiring(_), _) => {
            copy.replace(&Message::DestroyObject(DestroyObject { object: ObjectId(1) }))
        }
        _ => CopyVerdict::Pass,
    };
    let policy = Scripted { message: |_, _| Verdict::PerReceiver, copy, ..Scripted::default() };
    let mut world = world_with_policy(4, policy);
    world.send_unreliable(0, &state_update(0, 10.0));
    let received = settle(&mut world);
    assert_eq!(received[0], NO_MESSAGES);
    assert_eq!(received[1], [state_update(0, 10.0)]);
    assert_eq!(received[2], NO_MESSAGES);
    assert_eq!(received[3], [state_update(0, 9.5)]);
    world.send(0, &chat(2, b"x"));
    let received = settle(&mut world);
    for (at, id) in [2, 3, 4, 5].into_iter().enumerate() {
        assert_eq!(received[at], [chat(2, format!("for {id}").as_bytes())]);
    }
    world.send(0, &[0xCD, 7]);
    assert!(settle(&mut world).iter().all(Vec::is_empty));
    assert_eq!((world.session.counters().policy_rejected, world.session.counters().policy_vetoed), (3, 1));
}

/// S-33, S-91: on a link that loses everything, rewritten state updates supersede each other.
#[test]
fn rewritten_state_updates_are_superseded() {
    let copy: OnCopy = |message, _, copy| match message.message {
        Message::StateUpdate(update) => {
            copy.replace(&Message::StateUpdate(StateUpdate { time: update.time + 100.0, ..update.clone() }))
        }
        _ => CopyVerdict::Pass,
    };
    let policy = Scripted { message: |_, _| Verdict::PerReceiver, copy, ..Scripted::default() };
    let mut world = world_with_policy(2, policy);
    world.clients[1].drops_incoming = true;
    for _ in 0..60 {
        world.session.say_to(PLAYERS[1], &"x".repeat(200), world.now);
    }
    world.run(SECOND);
    for step in 0..20_u16 {
        world.send_unreliable(0, &state_update(0, f32::from(step)));
        world.run(SECOND / 10);
    }
    world.clients[1].drops_incoming = false;
    world.run(10 * SECOND);
    let states = world.take_received(1).into_iter().filter(|payload| payload[0] == 0x1C);
    assert_eq!(states.collect::<Vec<_>>(), [state_update(0, 119.0)]);
    assert_eq!(world.session.counters().superseded, 19);
}

/// S-92: messages go to all, to all but one and to one, reliably, unreliably and as state updates.
#[test]
fn policy_sends_to_all_and_to_one() {
    let message: OnMessage = |message, host| {
        let (own, object) = (message.sender.id(), ObjectId(SHIPS[0]));
        host.send(
            Recipients::All,
            &Message::EndGame(EndGame { reason: EndCode(1) }),
            SendSettings::default(),
        );
        host.send(Recipients::AllExcept(own), &Message::EndGame(EndGame { reason: EndCode(2) }), HIGH);
        let about = SendSettings { about: Some(own), ..SendSettings::default() };
        host.send(Recipients::One(own), &Message::DestroyObject(DestroyObject { object }), about);
        let settings = SendSettings { sending: Sending::Unreliable, ..SendSettings::default() };
        host.send(Recipients::One(own), &Message::EndGame(EndGame { reason: EndCode(3) }), settings);
        let update = Message::StateUpdate(StateUpdate { object, time: 3.0, ..StateUpdate::default() });
        host.send(Recipients::One(own), &update, SendSettings { sending: Sending::Latest, ..settings });
        host.send(Recipients::One(PeerId(77)), &END, SendSettings::default());
        host.say(Recipients::One(own), "only you\nsee this");
        Verdict::Pass
    };
    let mut world = world_with_policy(3, Scripted { message, ..Scripted::default() });
    world.send(0, &[0xCD]);
    let mut received = settle(&mut world);
    let end = |code: i32| message_bytes(&Message::EndGame(EndGame { reason: EndCode(code) }));
    // The actions follow the message that caused them.
    assert_eq!(received[1..], [[vec![0xCD], end(1), end(2)], [vec![0xCD], end(1), end(2)]]);
    assert!(world.clients[0].unreliable_count > 0);
    received[0].sort();
    let update = message_bytes(&Message::StateUpdate(StateUpdate {
        object: ObjectId(SHIPS[0]),
        time: 3.0,
        ..StateUpdate::default()
    }));
    let mut expected = vec![
        end(1),
        end(3),
        hex("14 FFFFFF3F"),
        update,
        chat(2, b"[server] only you"),
        chat(2, b"[server] see this"),
    ];
    expected.sort();
    assert_eq!(received[0], expected);
    let counters = world.session.counters();
    assert_eq!((counters.policy_sent, counters.policy_dropped), (10, 0));
}

/// S-30, S-92: new players get the scores that the policy has set, and destroyed ships are not shown to them.
#[test]
fn policy_sets_scores_and_declares_ships_destroyed() {
    let message: OnMessage = |message, host| {
        match message.message {
            Message::Unknown { bytes: [1], .. } => {
                host.set_score(PLAYERS[1], Score { kills: 3, deaths: 1, points: 500 });
            }
            Message::Unknown { bytes: [2], .. } => {
                host.store_score(PLAYERS[0], Score { kills: 0, deaths: 9, points: -7 });
                host.mark_ship_destroyed(PLAYERS[0]);
            }
            _ => {}
        }
        Verdict::Pass
    };
    let mut world = world_with_policy(2, Scripted { message, ..Scripted::default() });
    let first = message_bytes(&Message::Score(bcnet_session::game::Score {
        peer: 3,
        kills: 3,
        deaths: 1,
        score: 500,
    }));
    let second = message_bytes(&Message::Score(bcnet_session::game::Score {
        peer: 2,
        kills: 0,
        deaths: 9,
        score: -7,
    }));
    world.send(0, &ship(0, 2, SHIPS[0]));
    settle(&mut world);
    world.send(0, &[0xCD, 1]);
    assert_eq!(settle(&mut world), [vec![first.clone()], vec![vec![0xCD, 1], first.clone()]]);
    world.send(0, &[0xCD, 2]);
    assert_eq!(settle(&mut world), [vec![], vec![vec![0xCD, 2]]]);
    let late = world.join("Late");
    world.run(SECOND);
    let received = world.take_received(late);
    assert!(received.contains(&first) && received.contains(&second), "{received:02X?}");
    assert!(received.iter().all(|payload| payload[0] != 0x03), "{received:02X?}");
}

/// S-60, S-61, S-92: the policy ends a round and starts the next one, at a limited rate.
#[test]
fn policy_ends_and_starts_rounds() {
    let message: OnMessage = |message, host| {
        match message.message {
            Message::Unknown { bytes: [1], .. } => host.end_round(EndCode(2)),
            Message::Unknown { bytes: [2], .. } => host.start_round(),
            Message::Unknown { bytes: [3], .. } => (0..100).for_each(|_| host.start_round()),
            _ => {}
        }
        Verdict::Drop
    };
    let mut world = world_with_policy(2, Scripted { message, ..Scripted::default() });
    world.send(0, &[0xCD, 1]);
    let end = hex("38 02000000");
    assert_eq!(settle(&mut world), [[end.clone()], [end]]);
    assert!(world.session.status(world.now).ended);
    let is_decided = |event: &Event| matches!(event, Event::RoundEnded { summary } if summary.reason == EndReason::Decided);
    assert_eq!(world.events.iter().filter(|event| is_decided(event)).count(), 1);
    world.send(0, &[0xCD, 1]);
    assert_eq!(settle(&mut world), [NO_MESSAGES, NO_MESSAGES], "the round is over already");
    world.send(0, &[0xCD, 2]);
    assert_eq!(settle(&mut world), [[vec![0x39]], [vec![0x39]]]);
    assert_eq!(world.session.status(world.now).round, 2);
    world.run(5 * SECOND);
    world.send(0, &[0xCD, 3]);
    assert_eq!(settle(&mut world)[0].len(), 4);
    assert_eq!(world.session.counters().policy_dropped, 96);
    let calls: Vec<_> = scripted(&world).log.iter().filter(|line| !line.contains("opcode")).collect();
    assert_eq!(calls[..4], ["end decided", "round 2", "end restart", "round 3"]);
}

/// S-55, S-92
#[test]
fn policy_kicks_with_a_reason() {
    let message: OnMessage = |message, host| {
        host.kick(message.sender.id(), "no mods here");
        Verdict::Drop
    };
    let mut world = world_with_policy(2, Scripted { message, ..Scripted::default() });
    world.send(0, &[0xCD]);
    assert!(settle(&mut world)[0].contains(&chat(2, b"[server] no mods here")));
    world.run(4 * SECOND);
    assert_eq!(world.session.players_in_game(), 1);
    assert!(scripted(&world).log.last().is_some_and(|line| line.starts_with("leave Player 0 of 1: booted")));
}

const PERIOD: Duration = Duration::from_millis(33);

/// S-90: a fixed tick keeps its times, although the caller is late, and a tick that is due precedes later messages.
#[test]
fn wake_ups_keep_a_fixed_tick() {
    let mut world = world_with_players(Config::default(), 1);
    let start = world.now;
    #[derive(Debug)]
    struct Ticking(Vec<(Time, Time)>, Vec<(usize, Time)>);
    impl GamePolicy for Ticking {
        fn on_start(&mut self, host: &mut PolicyHost<'_>) {
            host.wake_at(host.now() + PERIOD);
        }
        fn on_message(&mut self, _: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
            self.1.push((self.0.len(), host.now()));
            Verdict::Pass
        }
        fn on_wake(&mut self, due: Time, host: &mut PolicyHost<'_>) {
            self.0.push((due, host.now()));
            host.wake_at(due + PERIOD);
        }
    }
    world.session.set_policy(Box::new(Ticking(Vec::new(), Vec::new())), start);
    assert!(world.session.next_timeout().is_some_and(|due| due <= start + PERIOD));
    for _ in 0..20 {
        world.send(0, &[0xCD]);
        world.run(SECOND / 10);
    }
    let ticking: &Ticking = world.session.policy().expect("the policy");
    for (index, (due, now)) in ticking.0.iter().enumerate() {
        let index = u32::try_from(index).expect("a small number");
        assert_eq!(*due, start + PERIOD * (index + 1));
        assert!(*now >= *due && *now < *due + TICK, "{due:?} ran at {now:?}");
    }
    assert_eq!(ticking.0.len(), 60);
    for (ticks, at) in &ticking.1 {
        let due = at.since(start).as_millis() / PERIOD.as_millis();
        assert_eq!(*ticks, usize::try_from(due).expect("a small number"), "a message at {at:?}");
    }
    // The caller was away for a second: the ticks are made up for.
    let later = world.now + SECOND;
    world.session.handle_timeout(later);
    let ticking: &Ticking = world.session.policy().expect("the policy");
    assert!((90..=91).contains(&ticking.0.len()), "{}", ticking.0.len());
    // After an hour, 64 ticks run at once, and the session asks to be called a millisecond later.
    let count = ticking.0.len();
    let later = later + 3600 * SECOND;
    world.session.handle_timeout(later);
    let ticking: &Ticking = world.session.policy().expect("the policy");
    assert_eq!(ticking.0.len(), count + 64);
}

/// S-90: a policy that always asks for a time in the past is called at most once per millisecond.
#[test]
fn wake_up_in_the_past_does_not_loop() {
    let mut world =
        world_with_policy(1, Scripted { wake: |host| host.wake_at(Time::ZERO), ..Scripted::default() });
    let start = world.now;
    let mut calls = 0;
    while world.now < start + Duration::from_millis(20) {
        world.session.handle_timeout(world.now);
        world.now = world.now + Duration::from_micros(100);
        calls += 1;
    }
    assert!(
        calls >= 200 && (19..=21).contains(&scripted(&world).wakes.len()),
        "{}",
        scripted(&world).wakes.len()
    );
}

/// S-92: a policy that floods delays nobody for long, boots nobody, and its messages have a limit.
#[test]
fn flooding_policy_is_bounded() {
    for priority in [SendPriority::Normal, SendPriority::High] {
        let wake: OnCall = match priority {
            SendPriority::Normal => |host| {
                let settings = SendSettings::default();
                (0..5000).for_each(|_| {
                    host.send(
                        Recipients::All,
                        &Message::Unknown { opcode: bcnet_session::game::Opcode(0xCE), bytes: &[9; 60] },
                        settings,
                    )
                });
                host.wake_at(host.now() + TICK);
            },
            SendPriority::High => |host| {
                (0..5000).for_each(|_| host.send(Recipients::All, &END, HIGH));
                (0..50).for_each(|_| host.say(Recipients::All, "flood"));
                (0..50).for_each(|_| host.set_score(PLAYERS[0], Score::default()));
                let settings = SendSettings { sending: Sending::Unreliable, ..HIGH };
                (0..500).for_each(|_| host.send(Recipients::All, &END, settings));
                host.wake_at(host.now() + TICK);
            },
        };
        let mut world = world_with_policy(4, Scripted { wake, ..Scripted::default() });
        world.sent.clear();
        let start = world.now;
        world.run(5 * SECOND);
        world.send(0, &chat(2, b"can you hear me"));
        let sent_at = world.now;
        world.run(5 * SECOND);
        assert_eq!(world.session.players_in_game(), 4, "{priority:?}: {:?}", world.event_names());
        let heard =
            world.clients[1].received.iter().find(|(_, payload)| *payload == chat(2, b"can you hear me"));
        let delay = heard.expect("chat arrives").0.since(sent_at);
        assert!(delay < SECOND / 2, "{priority:?}: {delay:?}");
        let bytes: usize = world.sent.iter().map(|(_, _, bytes)| bytes.len() + 28).sum();
        let seconds = world.now.since(start).as_secs() as usize;
        println!(
            "{priority:?}: {} bytes per second, {delay:?}, {:?}",
            bytes / seconds,
            world.session.counters()
        );
        assert!(bytes / seconds < 8 * 7 * 4400, "{priority:?}: {} bytes per second", bytes / seconds);
        assert!(world.session.counters().policy_dropped > 100_000);
    }
}

/// S-92: actions that cause callbacks with further actions end.
#[test]
fn endless_actions_are_cut() {
    #[derive(Debug)]
    struct Endless;
    impl GamePolicy for Endless {
        fn on_message(&mut self, _: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
            host.end_round(EndCode::TIME);
            Verdict::Pass
        }
        fn on_round_start(&mut self, _: u32, host: &mut PolicyHost<'_>) {
            host.end_round(EndCode::TIME);
        }
        fn on_round_end(&mut self, _: EndReason, host: &mut PolicyHost<'_>) {
            host.start_round();
            host.say(Recipients::All, "again");
        }
    }
    let mut world = world_with_players(Config::default(), 2);
    world.session.set_policy(Box::new(Endless), world.now);
    world.send(0, &[0xCD]);
    world.run(SECOND);
    assert!(world.session.counters().policy_dropped > 0);
    assert_eq!(world.session.players_in_game(), 2);
}

/// S-90: a policy that panics is gone; the session keeps its players and can be shut down.
#[test]
fn session_survives_a_panic_of_the_policy() {
    let message: OnMessage = |message, _| match message.message {
        Message::Unknown { .. } => panic!("a bug of the policy"),
        _ => Verdict::Pass,
    };
    let mut world = world_with_policy(2, Scripted { message, ..Scripted::default() });
    world.send(0, &[0xCD]);
    assert!(catch_unwind(AssertUnwindSafe(|| world.run(SECOND))).is_err());
    assert!(world.session.policy::<Scripted>().is_none());
    world.run(SECOND);
    assert_eq!(world.session.players_in_game(), 2);
    world.session.shutdown(world.now);
    world.run(5 * SECOND);
    assert!(world.session.is_closed());
}

/// S-90: the same input gives the same output, byte for byte, also on a network with faults.
#[test]
fn replay_with_a_policy_is_identical() {
    /// A policy that acts on everything, with random numbers from its seed.
    #[derive(Debug)]
    struct Random(Rng);
    impl GamePolicy for Random {
        fn on_start(&mut self, host: &mut PolicyHost<'_>) {
            host.wake_at(host.now() + PERIOD);
        }
        fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
            match self.0.below(5) {
                0 => Verdict::Drop,
                1 => Verdict::PerReceiver,
                2 => host.replace(message.message),
                _ => Verdict::Pass,
            }
        }
        fn on_copy(
            &mut self,
            message: &PlayerMessage<'_>,
            _: PlayerView<'_>,
            copy: &mut CopyBuffer<'_>,
        ) -> CopyVerdict {
            match (message.message, self.0.below(3)) {
                (_, 0) => CopyVerdict::Drop,
                (Message::StateUpdate(update), 1) => copy.replace(&Message::StateUpdate(StateUpdate {
                    time: update.time + 1.0,
                    ..update.clone()
                })),
                _ => CopyVerdict::Pass,
            }
        }
        fn on_wake(&mut self, due: Time, host: &mut PolicyHost<'_>) {
            if let Some(player) = host.players().next().filter(|_| self.0.below(10) == 0) {
                host.say(Recipients::One(player.id()), &format!("{:?}", host.game_time()));
                let kills = i32::try_from(self.0.below(9)).expect("a small number");
                host.set_score(player.id(), Score { kills, ..Score::default() });
            }
            host.wake_at(due + PERIOD);
        }
    }
    let play = |seed: u64| {
        let faults = Faults {
            loss: 0.1,
            delay: Duration::from_millis(30),
            jitter: Duration::from_millis(20),
            ..Faults::default()
        };
        let mut world = TestWorld::with_faults(Config::default(), faults, 9);
        world.session.set_policy(Box::new(Random(Rng::new(seed))), Time::ZERO);
        run_random_game(&mut world, 3);
        world.sent
    };
    let first = play(1);
    assert!(first.len() > 800, "{}", first.len());
    assert!(first == play(1));
    assert!(first != play(2), "the seed has an effect");
}

/// S-90: the caller gets the messages as typed events, without a policy too.
#[test]
fn game_messages_are_reported_as_events() {
    let mut world = world_with_players(Config { game_events: true, ..Config::default() }, 2);
    world.send(0, &bytes("pl-15-0"));
    world.send(0, &chat(9, b"hi"));
    world.send(0, &hex("19 FFFFFF3F"));
    let received = settle(&mut world);
    // A message that cannot be parsed is relayed, but not reported.
    assert_eq!(received[1], [chat(2, b"hi"), hex("19 FFFFFF3F")]);
    let reported = world.events.iter().filter_map(|event| match event {
        Event::Game { peer, payload, reliable } => {
            Some((*peer, *reliable, Message::parse(payload).expect("a message").opcode().to_string()))
        }
        _ => None,
    });
    let reported = reported.collect::<Vec<_>>();
    let expected = |name: &str| (PLAYERS[0], true, name.to_owned());
    assert_eq!(reported, [expected("CollisionEffect"), expected("Chat")]);
}

/// The example `answer_time` of the documentation.
#[test]
fn example_answers_the_time() {
    let mut world = world_with_players(Config::default(), 2);
    world.session.set_policy(Box::new(answer_time::AnswerTime), world.now);
    world.send(0, &chat(2, b"!time"));
    let received = settle(&mut world);
    assert_eq!(received[1], [chat(2, b"!time")]);
    assert_eq!(received[0][0], chat(2, b"!time"));
    let answer = String::from_utf8_lossy(&received[0][1][7..]).into_owned();
    assert!(answer.starts_with("[server] The game clock is at 0:0"), "{answer}");
}

/// The example `refuse_class` of the documentation.
#[test]
fn example_refuses_a_ship_class() {
    let mut world = world_with_players(Config::default(), 2);
    let policy = refuse_class::RefuseClass { species: Species(5), refused: 0 };
    world.session.set_policy(Box::new(policy), world.now);
    world.send(0, &ship(0, 2, SHIPS[0]));
    let received = settle(&mut world);
    assert_eq!(received[1], NO_MESSAGES);
    let text = b"[server] This server does not allow that ship. Please choose another.";
    assert_eq!(received[0], [hex("14 FFFFFF3F"), chat(2, text)]);
    let mut other = ship(0, 2, SHIPS[0] + 40);
    other[11] = 1;
    world.send(0, &other);
    assert_eq!(settle(&mut world)[1], [other]);
    assert_eq!(world.session.policy::<refuse_class::RefuseClass>().map(|policy| policy.refused), Some(1));
}

/// The examples of the documentation are the tested ones, and short.
#[test]
fn documented_examples_are_the_tested_ones() {
    let document = include_str!("../../../../docs/how-to/extend-bcnet.md");
    for example in
        [include_str!("../../examples/answer_time.rs"), include_str!("../../examples/refuse_class.rs")]
    {
        assert!(document.contains(example), "copy the example to docs/how-to/extend-bcnet.md: {example}");
        assert!(example.lines().count() < 60);
    }
}
