//! Kill credits (S-45).

use std::time::Duration;

use bcnet_session::{Anomaly, Config, Event, Mission, Score};

use crate::play::{ship, world_with_players};
use crate::vectors::{bytes, hex};
use crate::world::{TICK, TestWorld, all_networks};

const SECOND: Duration = Duration::from_secs(1);
const NO_MESSAGES: [Vec<u8>; 0] = [];
/// The ships of slots 0, 1 and 2, whose players are peers 2, 3 and 4.
const SHIPS: [u32; 3] = [0x3FFF_FFFF, 0x4003_FFFF, 0x4007_FFFF];
/// The object id of a ship's first weapon, minus the id of the ship.
const WEAPON_OFFSET: u32 = 14;
/// The object id of a player's next ship, minus the id of its first ship.
const NEXT_SHIP_OFFSET: u32 = 34;

/// Returns a world with three players in ships, in which the last shot counts.
fn world_with_ships(config: Config) -> TestWorld {
    let mut world = world_with_players(Config { credit_last_shot: true, ..config }, 3);
    for (at, object) in SHIPS.into_iter().enumerate() {
        take_ship(&mut world, at, object);
    }
    score_messages(&mut world);
    world
}

fn take_ship(world: &mut TestWorld, at: usize, object: u32) {
    let payload = new_ship(at, object);
    world.send(at, &payload);
}

fn new_ship(at: usize, object: u32) -> Vec<u8> {
    let at = u8::try_from(at).expect("a small number");
    ship(at, at + 2, object)
}

/// Returns the captured torpedo with another tube and target.
fn torpedo(weapon: u32, target: u32) -> Vec<u8> {
    let mut torpedo = bytes("pl-19-quantum");
    torpedo[1..5].copy_from_slice(&weapon.to_le_bytes());
    torpedo[10..14].copy_from_slice(&target.to_le_bytes());
    torpedo
}

fn pulse(weapon: u32, target: u32) -> Vec<u8> {
    [&[0x1A][..], &weapon.to_le_bytes(), &hex("02 750ED2 03"), &target.to_le_bytes()].concat()
}

/// Fires a torpedo of a player at a ship.
fn fire(world: &mut TestWorld, at: usize, target: u32) {
    let payload = torpedo(SHIPS[at] + WEAPON_OFFSET, target);
    world.send(at, &payload);
    score_messages(world);
}

/// Returns the score messages that each player has received.
fn score_messages(world: &mut TestWorld) -> Vec<Vec<Vec<u8>>> {
    world.run(SECOND / 5);
    let is_score = |payload: &Vec<u8>| matches!(payload[0], 0x36 | 0x40);
    (0..world.clients.len())
        .map(|at| world.take_received(at).into_iter().filter(is_score).collect())
        .collect()
}

/// Returns the kills and deaths of each player.
fn scores(world: &TestWorld) -> Vec<(i32, i32)> {
    world.session.players().map(|player| (player.score.kills, player.score.deaths)).collect()
}

/// S-30, S-36, S-45: the last of two shooters gets the kill.
///
/// All players get the score, also those that join later, and the summary of the round has it.
#[test]
fn replaced_ship_is_credited_to_the_last_shooter() {
    let mut world = world_with_ships(Config::default());
    fire(&mut world, 0, SHIPS[1]);
    world.send(2, &pulse(SHIPS[2] + WEAPON_OFFSET, SHIPS[1]));
    assert_eq!(score_messages(&mut world), [NO_MESSAGES, NO_MESSAGES, NO_MESSAGES], "no score yet");
    world.run(14 * SECOND);
    let next = new_ship(1, SHIPS[1] + NEXT_SHIP_OFFSET);
    world.send(1, &next);
    world.run(SECOND / 5);
    let killed = hex("36 04000000 01000000 00000000 03000000 01000000 00");
    for other in [0, 2] {
        assert_eq!(world.take_received(other), [hex("14 FFFF0340"), killed.clone(), next.clone()]);
    }
    assert_eq!(world.take_received(1), [killed]);
    let late = world.join("Late");
    world.run(SECOND);
    let received = world.take_received(late);
    assert!(received.contains(&hex("37 04000000 01000000 00000000 00000000")));
    assert!(received.contains(&hex("37 03000000 00000000 01000000 00000000")));
    fire(&mut world, 2, SHIPS[0]);
    take_ship(&mut world, 0, SHIPS[0] + NEXT_SHIP_OFFSET);
    assert_eq!(score_messages(&mut world)[3], [hex("36 04000000 02000000 00000000 02000000 01000000 00")]);
    world.session.restart(world.now);
    world.run(SECOND);
    let summary = world.events.iter().find_map(|event| match event {
        Event::RoundEnded { summary } => Some(summary),
        _ => None,
    });
    let results: Vec<Score> = summary.expect("a round").players.iter().map(|player| player.score).collect();
    let score = |kills, deaths| Score { kills, deaths, points: 0 };
    assert_eq!(results, [score(0, 1), score(0, 1), score(2, 0), score(0, 0)]);
    assert_eq!(scores(&world), [(0, 0); 4]);
}

/// S-45: if the setting is off at any time from the shot to the new ship, the messages are the same as without shots.
#[test]
fn kills_are_credited_only_when_configured() {
    assert!(!Config::default().credit_last_shot);
    for settings in [[false; 3], [false, true, true], [true, false, false], [true, false, true]] {
        let mut world = world_with_ships(Config::default());
        let set = |world: &mut TestWorld, credit_last_shot| {
            let config = Config { credit_last_shot, ..world.session.config().clone() };
            world.session.reconfigure(config, world.now);
        };
        let [at_shot, later, at_end] = settings;
        set(&mut world, at_shot);
        fire(&mut world, 0, SHIPS[1]);
        set(&mut world, later);
        set(&mut world, at_end);
        let next = new_ship(1, SHIPS[1] + NEXT_SHIP_OFFSET);
        world.send(1, &next);
        world.run(SECOND / 5);
        assert_eq!(
            (world.take_received(0), world.take_received(1)),
            (vec![hex("14 FFFF0340"), next], vec![])
        );
        assert_eq!(scores(&world), [(0, 0); 3]);
    }
}

/// S-45: a shot counts 30 seconds before the new ship, and no longer counts one tick later.
#[test]
fn shot_counts_for_thirty_seconds() {
    for (late, deaths) in [(Duration::ZERO, 1), (TICK, 0)] {
        let mut world = world_with_ships(Config::default());
        world.send(0, &torpedo(SHIPS[0] + WEAPON_OFFSET, SHIPS[1]));
        world.run(30 * SECOND + late);
        take_ship(&mut world, 1, SHIPS[1] + NEXT_SHIP_OFFSET);
        score_messages(&mut world);
        assert_eq!(scores(&world)[1], (0, deaths), "{late:?}");
    }
}

/// S-35, S-45: the captured message has no killer.
#[test]
fn self_destruction_credits_no_killer() {
    let mut world = world_with_ships(Config::default());
    fire(&mut world, 0, SHIPS[1]);
    world.send(1, &[0x13]);
    let died = [hex("36 00000000 03000000 01000000 00")];
    assert_eq!(score_messages(&mut world), [died.clone(), died.clone(), died]);
    // A shot during the explosion gets no credit either, even if the next ship has the same id.
    fire(&mut world, 0, SHIPS[1]);
    for object in [SHIPS[1], SHIPS[1] + NEXT_SHIP_OFFSET] {
        take_ship(&mut world, 1, object);
        assert_eq!(score_messages(&mut world), [NO_MESSAGES, NO_MESSAGES, NO_MESSAGES]);
    }
    assert_eq!(scores(&world), [(0, 0), (0, 1), (0, 0)]);
}

/// S-32, S-45: the target is no ship or the shooter's own ship, the message is truncated, or the weapon is not its own.
#[test]
fn forged_shots_credit_no_kill() {
    let (own, theirs) = (SHIPS[0] + WEAPON_OFFSET, SHIPS[1]);
    let shots = [
        torpedo(own, theirs + 1),
        torpedo(own, theirs + NEXT_SHIP_OFFSET),
        torpedo(own, 0),
        torpedo(own, u32::MAX),
        torpedo(own, SHIPS[2] + 0x4_0000),
        torpedo(own, SHIPS[0]),
        torpedo(own, theirs)[..13].to_vec(),
        torpedo(own, theirs)[..10].to_vec(),
        pulse(own, theirs)[..13].to_vec(),
        torpedo(SHIPS[2] + WEAPON_OFFSET, theirs),
        torpedo(SHIPS[2], theirs),
        pulse(theirs, theirs),
        torpedo(0, theirs),
    ];
    let mut world = world_with_ships(Config::default());
    for (ships, shot) in (1..).zip(shots) {
        world.send(0, &shot);
        score_messages(&mut world);
        for at in [0, 1] {
            take_ship(&mut world, at, SHIPS[at] + NEXT_SHIP_OFFSET * ships);
            assert_eq!(score_messages(&mut world), [NO_MESSAGES, NO_MESSAGES, NO_MESSAGES], "{shot:02X?}");
            take_ship(&mut world, at, SHIPS[at]);
            world.run(2 * SECOND);
        }
        score_messages(&mut world);
    }
    assert_eq!(scores(&world), [(0, 0); 3]);
    assert_eq!(world.session.counters().anomalies.count(Anomaly::NotOwner), 4);
}

/// S-45: a player without a ship cannot fire.
#[test]
fn shots_without_a_ship_do_not_count() {
    let mut world = world_with_ships(Config::default());
    world.send(0, &[0x13]);
    fire(&mut world, 0, SHIPS[1]);
    let late = world.join("Late");
    world.send(late, &torpedo(0x400B_FFFF, SHIPS[1]));
    score_messages(&mut world);
    take_ship(&mut world, 1, SHIPS[1] + NEXT_SHIP_OFFSET);
    assert_eq!(score_messages(&mut world), [NO_MESSAGES; 4]);
}

/// S-45: the same ship again is not a new one, and an earlier shot at it still counts.
#[test]
fn recreating_the_same_ship_credits_no_kill() {
    let mut world = world_with_ships(Config::default());
    fire(&mut world, 0, SHIPS[1]);
    take_ship(&mut world, 1, SHIPS[1]);
    assert_eq!(score_messages(&mut world)[0], NO_MESSAGES);
    take_ship(&mut world, 1, SHIPS[1] + NEXT_SHIP_OFFSET);
    assert_eq!(score_messages(&mut world)[0].len(), 1);
    // The shot was at the last ship, not at this one.
    take_ship(&mut world, 1, SHIPS[1] + 2 * NEXT_SHIP_OFFSET);
    assert_eq!(score_messages(&mut world)[0], NO_MESSAGES);
}

/// S-45: the next player with the same id gets no credit either, because ids are reused.
#[test]
fn departed_shooter_gets_no_credit() {
    let mut world =
        world_with_ships(Config { player_limit: 16, trusted: all_networks(), ..Config::default() });
    fire(&mut world, 2, SHIPS[1]);
    let fired = world.now;
    let left = world.id(2);
    world.leave_and_wait(&[2]);
    // Ids are assigned upward. A crowd takes many of them, although most of its guests are refused.
    for _ in 0..2 {
        let crowd: Vec<usize> = (0..58).map(|_| world.connect("Guest", "")).collect();
        world.run(2 * SECOND);
        let joined: Vec<usize> = crowd.into_iter().filter(|guest| world.is_in_game(*guest)).collect();
        world.leave_and_wait(&joined);
    }
    // The id of a player that has left is reserved for fifteen seconds.
    let passed = world.now.since(fired);
    world.run((18 * SECOND).saturating_sub(passed));
    let guests: Vec<usize> = (0..13).map(|_| world.connect("Guest", "")).collect();
    world.run_until(5 * SECOND, |world| guests.iter().all(|guest| world.is_in_game(*guest)));
    assert!(world.now.since(fired) < 29 * SECOND, "the shot still counts");
    world.run(SECOND);
    assert!(world.session.players().any(|player| player.id == left && player.name == "Guest"));
    take_ship(&mut world, 1, SHIPS[1] + NEXT_SHIP_OFFSET);
    assert_eq!(score_messages(&mut world)[0], NO_MESSAGES);
    assert!(world.now.since(fired) < 60 * SECOND, "{:?}", world.now.since(fired));
}

fn set_team(world: &mut TestWorld, at: usize, team: u8) {
    let id = world.id(at).0;
    world.send(at, &[0x41, id, 0, 0, 0, team]);
    score_messages(world);
}

/// S-45: a shot of a team mate does not replace that of an enemy. A player without a team is no enemy.
#[test]
fn team_mission_credits_only_the_enemy_team() {
    let mission = Mission { teams: true, ..Mission::default() };
    let mut world = world_with_ships(Config { mission, ..Config::default() });
    fire(&mut world, 0, SHIPS[1]);
    set_team(&mut world, 0, 0);
    fire(&mut world, 0, SHIPS[1]);
    set_team(&mut world, 1, 0);
    set_team(&mut world, 2, 1);
    fire(&mut world, 0, SHIPS[1]);
    take_ship(&mut world, 1, SHIPS[1] + NEXT_SHIP_OFFSET);
    assert_eq!(score_messages(&mut world), [NO_MESSAGES, NO_MESSAGES, NO_MESSAGES]);
    fire(&mut world, 2, SHIPS[1] + NEXT_SHIP_OFFSET);
    fire(&mut world, 0, SHIPS[1] + NEXT_SHIP_OFFSET);
    take_ship(&mut world, 1, SHIPS[1] + 2 * NEXT_SHIP_OFFSET);
    let expected =
        [hex("36 04000000 01000000 00000000 03000000 01000000 00"), hex("40 01 01000000 00000000")];
    assert_eq!(score_messages(&mut world), [expected.clone(), expected.clone(), expected]);
    assert_eq!(scores(&world), [(0, 0), (0, 1), (1, 0)]);
}
