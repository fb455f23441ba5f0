//! Rounds: start, end, rotation, settings and summaries (S-60 to S-63).

use std::time::Duration;

use bcnet_session::{Config, EndReason, Event, Mission, Participant, RoundSummary, System};

use crate::play::{ship, world_with_players};
use crate::vectors::hex;
use crate::world::TestWorld;

const SECOND: Duration = Duration::from_secs(1);

fn system(name: &str) -> System {
    System::from_name(name).expect("a system")
}

/// S-60
#[test]
fn round_ends_at_its_time_limit() {
    let config =
        Config { time_limit: Some(2), frag_limit: Some(10), intermission: None, ..Config::default() };
    let mut world = world_with_players(config, 1);
    let late = world.join("Late");
    world.run(SECOND);
    let mission =
        world.take_received(late).into_iter().find(|payload| payload[0] == 0x35).expect("a mission");
    assert_eq!(mission[..4], hex("35 08 01 02"));
    let ends = i32::from_le_bytes(mission[4..8].try_into().expect("four bytes"));
    assert_eq!((ends, mission[8], mission.len()), (120, 10, 9));
    world.run(116 * SECOND);
    assert_eq!(world.take_received(0).len(), 2, "only the messages about the new player");
    world.run(3 * SECOND);
    assert_eq!(world.take_received(0), [hex("38 01000000")]);
    assert!(world.session.status(world.now).ended);
    let Some(Event::RoundEnded { summary }) = world.events.last() else { panic!("{:?}", world.events) };
    assert_eq!((summary.round, summary.reason, summary.duration.as_secs()), (1, EndReason::Time, 120));
    let names: Vec<&str> = summary.players.iter().map(|player| player.name.as_str()).collect();
    assert_eq!(names, ["Player 0", "Late"]);
    world.run(300 * SECOND);
    assert_eq!(world.take_received(0), [] as [Vec<u8>; 0]);
}

/// S-61: no player has taken part, so no round has ended.
#[test]
fn restart_before_the_first_round_ends_nothing() {
    let mut world = world_with_players(Config::default(), 0);
    world.session.restart(world.now);
    world.run(SECOND);
    assert_eq!(world.events, []);
    world.join("Kirk");
    world.leave_and_wait(&[0]);
    world.run(SECOND);
    let before = world.event_names().len();
    world.session.restart(world.now);
    world.run(SECOND);
    assert_eq!(world.event_names().len(), before, "{:?}", world.events);
}

/// S-51, S-61: ships and scores are cleared, and players stay.
#[test]
fn restart_clears_ships_and_scores() {
    let mut world = world_with_players(Config::default(), 2);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.send(0, &[0x13]);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.run(SECOND);
    world.leave_and_wait(&[1]);
    world.run(SECOND);
    world.take_received(0);
    world.session.restart(world.now);
    world.run(SECOND);
    assert_eq!(world.take_received(0), [hex("39")]);
    let player = world.session.players().next().expect("a player");
    assert_eq!((player.score.deaths, player.ship), (0, None));
    let late = world.join("Late");
    world.run(SECOND);
    assert!(world.take_received(late).iter().all(|payload| payload[0] != 3));
    assert_eq!(world.session.status(world.now).round, 2);
    let ended = world.events.iter().any(|event| {
        matches!(event, Event::RoundEnded { summary } if summary.reason == EndReason::Restart && summary.players[0].score.deaths == 1)
    });
    assert!(ended);
}

/// S-61, S-62: the next round starts by itself, in the next system, with a new end.
#[test]
fn rounds_rotate_through_the_systems() {
    let rotation = vec![system("Multi4"), system("Albirea")];
    let config =
        Config { rotation, time_limit: Some(1), intermission: Some(10 * SECOND), ..Config::default() };
    let mut world = world_with_players(config, 1);
    world.run(250 * SECOND);
    let received = world.take_received(0);
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

/// Returns what a client got: the system, time limit and end (0x35), and the flags and script (0x00).
fn announced_settings(world: &mut TestWorld, at: usize) -> (Vec<u8>, u8, String) {
    world.run(SECOND);
    let payload = |opcode| {
        let (_, payload) = world.clients[at]
            .received
            .iter()
            .rfind(|(_, it)| it[0] == opcode)
            .expect("a message with this opcode");
        payload.clone()
    };
    let settings = payload(0);
    let script = String::from_utf8(settings[9..].to_vec()).expect("ASCII");
    (payload(0x35)[2..].to_vec(), settings[5], script)
}

fn settings(system: &str, minutes: u8, number: u8) -> Config {
    let script = format!("Multiplayer.Episode.Mission{number}.Mission{number}");
    let mission = Mission { script, short_name: format!("M{number}"), teams: number > 1 };
    let (system, collisions) = (self::system(system), number == 1);
    let intermission = Some(10 * SECOND);
    Config { system, time_limit: Some(minutes), intermission, mission, collisions, ..Config::default() }
}

/// S-63
#[test]
fn new_settings_apply_to_all_players_at_once() {
    let mut world = TestWorld::new(settings("Multi1", 2, 1));
    let first = world.join("Kirk");
    let old = announced_settings(&mut world, first);
    assert_eq!((old.0[..2].to_vec(), old.1), (vec![1, 2], 0x61));
    world.session.reconfigure(settings("Multi7", 3, 2), world.now);
    let second = world.join("Spock");
    assert_eq!(announced_settings(&mut world, second), old);
    assert_eq!(world.session.status(world.now).system, system("Multi1"));
    // The next round is in another system, and longer. A new player loads the same mission as the others.
    world.run(140 * SECOND);
    let third = world.join("Uhura");
    let new = announced_settings(&mut world, third);
    assert_eq!((new.0[..2].to_vec(), new.1, &new.2), (vec![7, 3], old.1, &old.2));
    assert_eq!(announced_settings(&mut world, first).0, new.0);
    // All players have left: the next player loads the new mission.
    for at in [first, second, third] {
        world.leave_and_wait(&[at]);
    }
    world.run(SECOND);
    let fourth = world.join("Sulu");
    let (_, flags, script) = announced_settings(&mut world, fourth);
    assert_eq!((flags, script.as_str()), (0x60, "Multiplayer.Episode.Mission2.Mission2"));
}

/// S-63: a client that does not answer the file check has not got any settings.
#[test]
fn empty_server_applies_new_settings_immediately() {
    let mut world = TestWorld::new(settings("Multi1", 2, 1));
    let outside = world.connect("Outside", "");
    world.clients[outside].answers_file_check = false;
    world.run(SECOND);
    world.session.reconfigure(settings("Albirea", 3, 3), world.now);
    assert_eq!(world.session.status(world.now).system, system("Albirea"));
    let first = world.join("Kirk");
    let (mission, flags, script) = announced_settings(&mut world, first);
    assert_eq!((&mission[..2], flags), (&[8, 3][..], 0x60));
    assert_eq!(script, "Multiplayer.Episode.Mission3.Mission3");
    // A system that is set and reset during a round has no effect.
    world.session.reconfigure(settings("Multi2", 3, 3), world.now);
    world.session.reconfigure(settings("Albirea", 3, 3), world.now);
    world.session.restart(world.now);
    assert_eq!(world.session.status(world.now).system, system("Albirea"));
}

/// S-60: the time of an empty server does not count.
#[test]
fn round_time_counts_from_the_first_player() {
    let mut world = world_with_players(Config { time_limit: Some(1), ..Config::default() }, 0);
    world.run(300 * SECOND);
    assert_eq!(world.events, []);
    world.join("Kirk");
    world.run(SECOND);
    world.leave_and_wait(&[0]);
    world.run(300 * SECOND);
    let ended =
        |event: &Event| matches!(event, Event::RoundEnded { summary } if summary.reason == EndReason::Time);
    assert!(!world.events.iter().any(ended), "{:?}", world.events);
    world.join("Spock");
    let left = world.session.status(world.now).time_left.expect("a limit");
    assert!(left > 58 * SECOND, "{left:?}");
}

fn last_summary(world: &TestWorld) -> &RoundSummary {
    let mut summaries = world.events.iter().filter_map(|event| match event {
        Event::RoundEnded { summary } => Some(summary),
        _ => None,
    });
    summaries.next_back().expect("a round has ended")
}

/// Returns the name, the deaths and the whole seconds in the game of each player.
fn participant_rows(summary: &RoundSummary) -> Vec<(&str, i32, u64)> {
    let result = |player: &Participant| (player.score.deaths, player.played.as_secs());
    let rows = summary.players.iter().map(|player| (player.name.as_str(), result(player)));
    rows.map(|(name, (deaths, seconds))| (name, deaths, seconds)).collect()
}

/// S-51, S-60: a round ends when all players have left, and its summary has all that took part.
#[test]
fn round_ends_when_all_players_have_left() {
    let mut world = world_with_players(Config::default(), 0);
    let (kirk, spock) = (world.join("Kirk"), world.join("Spock"));
    world.run(10 * SECOND);
    world.send(kirk, &ship(0, 2, 0x3FFF_FFFF));
    world.send(kirk, &[0x13]);
    world.run(SECOND);
    world.leave_and_wait(&[kirk]);
    world.run(20 * SECOND);
    let kirk = world.join("Kirk");
    world.run(5 * SECOND);
    world.leave_and_wait(&[spock]);
    world.run(5 * SECOND);
    assert!(!world.event_names().contains(&"round_ended"));
    world.leave_and_wait(&[kirk]);
    world.run(SECOND);
    let summary = last_summary(&world);
    assert_eq!((summary.round, summary.reason), (1, EndReason::Empty));
    assert_eq!(participant_rows(summary), [("Spock", 0, 40), ("Kirk", 1, 27)], "{summary:?}");
    // The next summary has none of these results.
    let sulu = world.join("Sulu");
    world.run(SECOND);
    let kirk = world.join("Kirk");
    world.run(SECOND);
    world.session.restart(world.now);
    world.run(SECOND);
    let summary = last_summary(&world);
    assert_eq!((summary.round, summary.reason), (2, EndReason::Restart));
    assert_eq!(
        participant_rows(summary).iter().map(|(name, deaths, _)| (*name, *deaths)).collect::<Vec<_>>(),
        [("Sulu", 0), ("Kirk", 0)]
    );
    for client in [sulu, kirk] {
        world.leave_and_wait(&[client]);
    }
}

/// S-60: a round also ends when the server ends.
#[test]
fn round_ends_on_server_shutdown() {
    let mut world = world_with_players(Config::default(), 2);
    world.run(5 * SECOND);
    world.session.shutdown(world.now);
    world.run(SECOND);
    let summary = last_summary(&world);
    assert_eq!((summary.reason, summary.players.len()), (EndReason::Empty, 2), "{summary:?}");
}

/// S-51: a player that comes and goes under ever new names evicts no stored score.
#[test]
fn stored_score_is_not_evicted_by_players_without_score() {
    let mut world = world_with_players(Config::default(), 1);
    let kirk = world.join("Kirk");
    world.send(kirk, &ship(1, 3, 0x4003_FFFF));
    world.send(kirk, &[0x13]);
    world.run(SECOND);
    world.leave_and_wait(&[kirk]);
    for number in 0..70 {
        let guest = world.join(&format!("Guest {number}"));
        world.run(SECOND);
        world.leave_and_wait(&[guest]);
        world.run(SECOND);
    }
    world.session.restart(world.now);
    world.run(SECOND);
    let summary = last_summary(&world);
    assert_eq!(summary.players.len(), 1 + 64);
    assert!(summary.players.iter().any(|player| player.name == "Kirk" && player.score.deaths == 1));
}

/// S-51: the same holds if all players that have left have a score.
#[test]
fn player_without_score_evicts_no_stored_score() {
    let mut world = world_with_players(Config::default(), 1);
    for number in 0..64 {
        let player = world.join(&format!("Player {}", 1 + number));
        let id = world.id(player).0;
        world.send(player, &ship(1, id, 0x4003_FFFF));
        world.send(player, &[0x13]);
        world.run(SECOND);
        world.leave_and_wait(&[player]);
        world.run(SECOND);
    }
    let guest = world.join("Guest");
    world.run(SECOND);
    world.leave_and_wait(&[guest]);
    world.run(SECOND);
    world.session.restart(world.now);
    world.run(SECOND);
    let summary = last_summary(&world);
    assert_eq!(summary.players.iter().filter(|player| player.score.deaths == 1).count(), 64, "{summary:?}");
}

/// S-51: a player that takes the names of players that have left gets nothing else from them.
#[test]
fn stored_play_time_is_not_given_to_a_renamed_player() {
    let mut world = world_with_players(Config::default(), 3);
    world.run(10 * SECOND);
    world.leave_and_wait(&[1, 2]);
    world.run(20 * SECOND);
    for name in ["Player 1", "Player 2", "Player 0"] {
        world.rename(0, name);
        world.run(SECOND);
    }
    world.session.restart(world.now);
    world.run(SECOND);
    let rows = participant_rows(last_summary(&world));
    let names: Vec<_> = rows.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, ["Player 0", "Player 1", "Player 2"], "{rows:?}");
    assert!(rows[0].2 >= 33 && rows[1].2 < 16 && rows[2].2 < 16, "{rows:?}");
}

/// S-60: if all players leave after the end of a round, the next player starts a new one.
#[test]
fn ended_round_does_not_block_an_empty_server() {
    let mut world =
        world_with_players(Config { time_limit: Some(1), intermission: None, ..Config::default() }, 1);
    world.run(60 * SECOND);
    assert!(world.session.status(world.now).ended);
    world.leave_and_wait(&[0]);
    world.run(SECOND);
    world.join("Spock");
    assert_eq!(world.session.status(world.now).round, 2);
}
