//! The actions of game policies and their limits (S-92), in virtual time.

use std::time::Duration;

use bcnet_session::game::{DestroyObject, EndCode, EndGame, Message, ObjectId, Opcode, StateUpdate};
use bcnet_session::policy::{
    GamePolicy, PlayerMessage, PolicyHost, Recipients, SendPriority, SendSettings, Sending, Verdict,
};
use bcnet_session::{Config, EndReason, Event, Score};
use bcnet_transport::wire::PeerId;

use crate::play::{ship, world_with_players};
use crate::policy::{
    END, HIGH, NO_MESSAGES, OnCall, OnMessage, PLAYERS, SHIPS, Scripted, chat, message_bytes, scripted,
    settle, world_with_policy,
};
use crate::vectors::hex;
use crate::world::TICK;

const SECOND: Duration = Duration::from_secs(1);

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
                        &Message::Unknown { opcode: Opcode(0xCE), bytes: &[9; 60] },
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
