//! Rounds begin, end and follow each other.

use std::time::Duration;

use bcnet_session::{Config, EndReason, Event, System};

use crate::play::{playing, ship};
use crate::vectors::hex;

const SECOND: Duration = Duration::from_secs(1);

fn system(name: &str) -> System {
    System::named(name).expect("a system")
}

/// S-60
#[test]
fn a_round_ends_when_its_time_is_up() {
    let config =
        Config { time_limit: Some(2), frag_limit: Some(10), intermission: None, ..Config::default() };
    let mut world = playing(config, 1);
    let late = world.join("Late");
    world.run(SECOND);
    let mission = world.take(late).into_iter().find(|payload| payload[0] == 0x35).expect("a mission");
    assert_eq!(mission[..4], hex("35 08 01 02"));
    let ends = i32::from_le_bytes(mission[4..8].try_into().expect("four bytes"));
    assert_eq!((ends, mission[8], mission.len()), (120, 10, 9));
    world.run(116 * SECOND);
    assert_eq!(world.take(0).len(), 2, "only the newcomer so far");
    world.run(3 * SECOND);
    assert_eq!(world.take(0), [hex("38 01000000")]);
    assert!(world.session.status(world.now).ended);
    let Some(Event::RoundEnded { summary }) = world.events.last() else { panic!("{:?}", world.events) };
    assert_eq!((summary.round, summary.reason, summary.duration.as_secs()), (1, EndReason::Time, 120));
    let names: Vec<&str> = summary.scores.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Player 0", "Late"]);
    world.run(300 * SECOND);
    assert_eq!(world.take(0), [] as [Vec<u8>; 0]);
}

/// S-61: nobody has played, so nothing has ended.
#[test]
fn a_restart_before_a_round_has_begun_ends_none() {
    let mut world = playing(Config::default(), 0);
    world.session.restart(world.now);
    world.run(SECOND);
    assert_eq!(world.events, []);
    world.join("Kirk");
    world.leave(0);
    world.run(SECOND);
    world.session.restart(world.now);
    world.run(SECOND);
    assert!(!world.event_names().contains(&"round_ended"), "{:?}", world.events);
}

/// S-51, S-61: ships and scores are gone, players stay.
#[test]
fn a_restart_begins_anew() {
    let mut world = playing(Config::default(), 2);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.send(0, &[0x13]);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.run(SECOND);
    world.leave(1);
    world.run(SECOND);
    world.take(0);
    world.session.restart(world.now);
    world.run(SECOND);
    assert_eq!(world.take(0), [hex("39")]);
    let player = world.session.players(world.now).next().expect("a player");
    assert_eq!((player.score.deaths, player.ship), (0, None));
    let late = world.join("Late");
    world.run(SECOND);
    assert!(world.take(late).iter().all(|payload| payload[0] != 3));
    assert_eq!(world.session.status(world.now).round, 2);
    let ended = world.events.iter().any(|event| {
        matches!(event, Event::RoundEnded { summary } if summary.reason == EndReason::Restart && summary.scores[0].1.deaths == 1)
    });
    assert!(ended);
}

/// S-61, S-62: by itself, in the next system, with a new end.
#[test]
fn rounds_follow_each_other_through_the_systems() {
    let rotation = vec![system("Multi4"), system("Albirea")];
    let config =
        Config { rotation, time_limit: Some(1), intermission: Some(10 * SECOND), ..Config::default() };
    let mut world = playing(config, 1);
    world.run(250 * SECOND);
    let received = world.take(0);
    let heads: Vec<Vec<u8>> =
        received.iter().map(|payload| payload[..payload.len().min(4)].to_vec()).collect();
    let round = |number: u8| [hex("38 010000"), hex("39"), vec![0x35, 8, number, 1]];
    assert_eq!(heads, [round(4), round(8), round(4)].concat());
    let ends: Vec<i32> = received
        .iter()
        .filter(|payload| payload[0] == 0x35)
        .map(|payload| i32::from_le_bytes(payload[4..8].try_into().expect("four bytes")))
        .collect();
    assert_eq!(ends, [130, 200, 270]);
    assert_eq!(world.session.status(world.now).system, system("Multi4"));
}

/// S-60: an empty server's time stands still.
#[test]
fn time_counts_from_the_first_player() {
    let mut world = playing(Config { time_limit: Some(1), ..Config::default() }, 0);
    world.run(300 * SECOND);
    assert_eq!(world.events, []);
    world.join("Kirk");
    world.run(SECOND);
    world.leave(0);
    world.run(300 * SECOND);
    assert!(!world.event_names().contains(&"round_ended"));
    world.join("Spock");
    let left = world.session.status(world.now).time_left.expect("a limit");
    assert!(left > 58 * SECOND, "{left:?}");
}

/// S-60: when everyone has gone after the end, the next player finds a new round.
#[test]
fn a_round_that_is_over_keeps_nobody_out_of_an_empty_server() {
    let mut world = playing(Config { time_limit: Some(1), intermission: None, ..Config::default() }, 1);
    world.run(60 * SECOND);
    assert!(world.session.status(world.now).ended);
    world.leave(0);
    world.run(SECOND);
    world.join("Spock");
    assert_eq!(world.session.status(world.now).round, 2);
}
