//! Game policies (S-90 to S-92), in virtual time.

use std::time::Duration;

use bcnet_session::game::{
    Chat, DestroyObject, EndCode, EndGame, Message, ObjectId, Species, StateUpdate, Text16,
};
use bcnet_session::policy::{
    CopyBuffer, CopyVerdict, GamePolicy, PlayerMessage, PlayerView, PolicyHost, SendPriority, SendSettings,
    Sending, Verdict,
};
use bcnet_session::{Anomaly, Config, EndReason, Event};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{LeaveReason, Time};

use crate::play::{ship, world_with_players};
use crate::vectors::{bytes, hex};
use crate::world::TestWorld;

#[path = "../../examples/answer_time.rs"]
#[expect(dead_code, reason = "an example is a program")]
mod answer_time;
#[path = "../../examples/refuse_class.rs"]
#[expect(dead_code, reason = "an example is a program")]
mod refuse_class;

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const NO_MESSAGES: [Vec<u8>; 0] = [];
/// The ships of slots 0 and 1, whose players are peers 2 and 3.
pub(crate) const SHIPS: [u32; 2] = [0x3FFF_FFFF, 0x4003_FFFF];
pub(crate) const PLAYERS: [PeerId; 2] = [PeerId(2), PeerId(3)];

pub(crate) type OnMessage = fn(&PlayerMessage<'_>, &mut PolicyHost<'_>) -> Verdict;
pub(crate) type OnCopy = fn(&PlayerMessage<'_>, PlayerView<'_>, &mut CopyBuffer<'_>) -> CopyVerdict;
pub(crate) type OnCall = fn(&mut PolicyHost<'_>);

/// A policy that records its calls and does what its functions do.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) log: Vec<String>,
    pub(crate) payloads: Vec<(PeerId, Vec<u8>)>,
    pub(crate) wakes: Vec<(Time, Time)>,
    pub(crate) message: OnMessage,
    pub(crate) copy: OnCopy,
    /// Called at the start and at each wake-up.
    pub(crate) wake: OnCall,
    pub(crate) join: OnCall,
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
pub(crate) fn world_with_policy(players: usize, policy: Scripted) -> TestWorld {
    let mut world = world_with_players(Config::default(), players);
    world.session.set_policy(Box::new(policy), world.now);
    world
}

pub(crate) fn scripted(world: &TestWorld) -> &Scripted {
    world.session.policy().expect("the policy")
}

/// Runs for a while, and returns what each player has received.
pub(crate) fn settle(world: &mut TestWorld) -> Vec<Vec<Vec<u8>>> {
    world.run(SECOND / 2);
    (0..world.clients.len()).map(|at| world.take_received(at)).collect()
}

pub(crate) fn message_bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes
}

pub(crate) fn chat(sender: u8, text: &[u8]) -> Vec<u8> {
    message_bytes(&Message::Chat(Chat { sender: sender.into(), text: Text16(text) }))
}

pub(crate) fn state_update(slot: usize, time: f32) -> Vec<u8> {
    let update = StateUpdate {
        object: ObjectId(SHIPS[slot]),
        time,
        speed: Some(Default::default()),
        ..Default::default()
    };
    message_bytes(&Message::StateUpdate(update))
}

pub(crate) const END: Message<'static> = Message::EndGame(EndGame { reason: EndCode(4) });
pub(crate) const HIGH: SendSettings =
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
    // The transport probes the player before it believes the disconnect (T-57).
    world.run(3 * SECOND);
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
