//! Fights in a world: deaths, killers, points, cloak, and the same fight twice.

use bcnet_referee::classes::{Part, Weapon};
use bcnet_referee::clock::TICK;
use bcnet_referee::laws::cloak::Cloak;
use bcnet_referee::laws::condition::Status;
use bcnet_referee::laws::shield::{FACES, Face};
use bcnet_referee::ledger::Cause;
use bcnet_referee::{Attacker, Decision, Input, Motion, ObjectId, Refusal, Repair, Slot, World};

const KIRK: ObjectId = ObjectId(0x3FFF_FFFF);
const CHANG: ObjectId = ObjectId(0x4003_FFFF);
const SPOCK: ObjectId = ObjectId(0x4007_FFFF);

fn part(ship: ObjectId, part: u32) -> ObjectId {
    ObjectId(ship.0 + 1 + part)
}

fn arrive(world: &mut World, ship: ObjectId, slot: u8, species: u8, y: f32) {
    let (position, rotation) = ([0.0, y, 0.0], [1.0, 0.0, 0.0, 0.0]);
    world.apply(&Input::Arrive { ship, slot: Slot(slot), species, position, rotation }).expect("arrives");
}

fn advance(world: &mut World, ticks: u64) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let end = world.tick() + ticks;
    while world.tick() < end {
        let next = (world.tick() + 100).min(end);
        world.advance(TICK * u32::try_from(next).expect("ticks"), &mut decisions);
    }
    decisions
}

fn fire(world: &mut World, ship: ObjectId, system: u32, target: ObjectId) {
    world.apply(&Input::StartFire { weapon: part(ship, system), target, aim: None }).expect("fires");
}

fn death(decisions: &[Decision]) -> &Decision {
    let mut deaths = decisions.iter().filter(|decision| matches!(decision, Decision::Death { .. }));
    let death = deaths.next().expect("a death");
    assert!(deaths.next().is_none(), "a ship dies once");
    death
}

/// the last shot makes the killer, and every attacker gets a tenth of the damage.
#[test]
fn death_names_the_killer_and_pays_all_attackers() {
    let mut world = World::new(3);
    arrive(&mut world, KIRK, 0, 3, 0.0);
    arrive(&mut world, CHANG, 1, 6, 50.0);
    arrive(&mut world, SPOCK, 2, 5, 10.0);
    FACES.iter().for_each(|face| world.set_face(CHANG, *face, 0.0).expect("a face"));
    fire(&mut world, SPOCK, 25, CHANG);
    advance(&mut world, 300);
    world.apply(&Input::StopFire { weapon: part(SPOCK, 25) }).expect("stops");
    advance(&mut world, 10);
    fire(&mut world, KIRK, 11, CHANG);
    world.set_points(part(CHANG, 0), 200.0).expect("the hull");
    let decisions = advance(&mut world, 600);
    let Decision::Death { ship, slot, killer, cause, tenths, points } = death(&decisions) else {
        panic!("a death");
    };
    assert_eq!((*ship, *slot, *cause), (CHANG, Slot(1), part(CHANG, 0)));
    assert_eq!(*killer, Some(Attacker { slot: Slot(0), ship: KIRK }));
    assert!((50..150).contains(tenths));
    let dealt = |slot| {
        let entries = world.ledger().entries().filter(|entry| entry.attacker == Some(Slot(slot)));
        entries.map(|entry| entry.shields + entry.passed).sum::<f64>()
    };
    let expected = [(Slot(0), (dealt(0) / 10.0) as i32), (Slot(2), (dealt(2) / 10.0) as i32)];
    assert!(points[..] == expected && expected.iter().all(|(_, points)| *points > 20), "{points:?}");
    let score = |slot| world.score(Slot(slot));
    assert_eq!((score(0).kills, score(2).kills, score(1).deaths), (1, 0, 1));
    assert_eq!(score(2).points, expected[1].1);
}

/// a beam that stops pays the rest of its last quantum.
#[test]
fn stopped_beam_pays_its_rest() {
    let mut world = World::new(3);
    arrive(&mut world, KIRK, 0, 3, 0.0);
    arrive(&mut world, CHANG, 1, 6, 50.0);
    fire(&mut world, KIRK, 11, CHANG);
    advance(&mut world, 70 + 16);
    world.apply(&Input::StopFire { weapon: part(KIRK, 11) }).expect("stops");
    advance(&mut world, 300);
    let dealt: Vec<f64> = world.ledger().entries().map(|entry| entry.shields + entry.passed).collect();
    assert_eq!(dealt, [66.40625, 33.203125], "a quantum and its half");
}

/// a torpedo flies through an open face. The original's positron torpedo lands 1.3 to 1.6 s later.
#[test]
fn torpedo_flies_through_an_open_face() {
    let flight = |points: f64| {
        let mut world = World::new(3);
        arrive(&mut world, KIRK, 0, 3, 57.0);
        arrive(&mut world, SPOCK, 2, 13, 0.0);
        let motion = Motion { axes: Some(([0.0, -1.0, 0.0], [0.0, 0.0, 1.0])), ..Motion::default() };
        world.apply(&Input::Move { ship: KIRK, motion }).expect("turns");
        world.set_face(KIRK, Face::Front, points).expect("a face");
        let (tube, target) = (part(SPOCK, 10), Some(KIRK));
        let torpedo = Input::Torpedo { tube, kind: 7, direction: [0.0, 1.0, 0.0], target, aim: None };
        world.apply(&torpedo).expect("a torpedo");
        advance(&mut world, 1200);
        world.ledger().entries().next().map(|entry| entry.tick).expect("a hit")
    };
    let later = (flight(0.0) - flight(8000.0)) as f64 * TICK.as_secs_f64();
    assert!((1.3..=1.6).contains(&later), "{later}");
}

/// the beams of every class damage every class that they can see, in at most its points.
#[test]
fn every_class_can_fight_every_class() {
    for (attacker, target) in (1..=16).flat_map(|attacker| (1..=16).map(move |target| (attacker, target))) {
        let mut world = World::new(3);
        arrive(&mut world, KIRK, 0, attacker, 0.0);
        arrive(&mut world, CHANG, 1, target, 30.0);
        let class = world.ship(KIRK).expect("alive").class();
        let is_beam = |part: &Part| matches!(part.weapon, Weapon::Beam(..)) && part.parent.is_some();
        let Some(system) = class.parts.iter().find(|part| is_beam(part)).and_then(|part| part.parent) else {
            continue;
        };
        fire(&mut world, KIRK, system.into(), CHANG);
        FACES.iter().for_each(|face| world.set_face(CHANG, *face, 0.0).expect("a face"));
        advance(&mut world, 300);
        let lost: f64 = world.ledger().entries().map(|entry| entry.passed).sum();
        let names = (class.name, target);
        assert!(lost > 20.0, "{names:?}: {lost}");
        assert!(world.ledger().entries().all(|entry| entry.parts & 1 == 1), "{names:?}: the hull is hit");
    }
}

/// killing a team mate is no kill and costs points; a collision kills without points.
#[test]
fn friends_and_collisions_earn_nothing() {
    let mut world = World::new(3);
    arrive(&mut world, KIRK, 0, 3, 0.0);
    arrive(&mut world, CHANG, 1, 6, 6.0);
    for slot in [0, 1] {
        world.apply(&Input::Team { slot: Slot(slot), team: Some(1) }).expect("a team");
    }
    fire(&mut world, KIRK, 11, CHANG);
    advance(&mut world, 200);
    let ram = |ship, reporter, source| Input::Collision {
        reporter: Slot(reporter),
        source,
        target: ship,
        contacts: &[[0.0, -0.9, 0.0]],
        force: 800.0,
    };
    world.apply(&ram(CHANG, 1, KIRK)).expect("a collision");
    assert_eq!(world.apply(&ram(CHANG, 1, KIRK)), Err(Refusal::Dead));
    let decisions = advance(&mut world, 1);
    let Decision::Death { killer, points, .. } = death(&decisions) else { panic!("a death") };
    assert_eq!(*killer, Some(Attacker { slot: Slot(0), ship: KIRK }));
    assert!(points[0].0 == Slot(0) && points[0].1 < 0, "{points:?}");
    assert_eq!((world.score(Slot(0)).kills, world.score(Slot(1)).deaths), (0, 1));
    assert_eq!(world.ledger().entries().last().map(|entry| entry.cause), Some(Cause::Collision));
}

/// parts fail, are queued for repair, and work again; a destroyed part leaves the queue.
#[test]
fn parts_fail_and_are_repaired() {
    let mut world = World::new(3);
    arrive(&mut world, KIRK, 0, 3, 0.0);
    arrive(&mut world, CHANG, 1, 6, 500.0);
    let (sensors, tube) = (part(KIRK, 3), part(KIRK, 5));
    world.set_points(sensors, 3999.0).expect("points");
    world.set_points(tube, 100.0).expect("points");
    world.set_points(tube, 0.0).expect("points");
    let decisions = advance(&mut world, 25);
    assert!(decisions.contains(&Decision::Status { part: sensors, status: Status::Disabled }));
    assert!(decisions.contains(&Decision::Repair { part: tube, what: Repair::Impossible }));
    assert!(decisions.contains(&Decision::Status { part: sensors, status: Status::Working }));
    assert_eq!(world.ship(KIRK).expect("alive").repair_queue(), [3]);
    let decisions = advance(&mut world, 5000);
    assert!(decisions.contains(&Decision::Repair { part: sensors, what: Repair::Done }));
    let torpedo =
        Input::Torpedo { tube, kind: 2, direction: [0.0, 1.0, 0.0], target: Some(CHANG), aim: None };
    assert_eq!(world.apply(&torpedo), Err(Refusal::OutOfOrder));
}

/// a cloaked ship neither fires nor has shields, and has them again afterwards.
#[test]
fn cloaked_ship_does_not_fire() {
    let mut world = World::new(3);
    arrive(&mut world, CHANG, 1, 8, 0.0);
    arrive(&mut world, KIRK, 0, 3, -40.0);
    world.set_face(CHANG, Face::Rear, 0.0).expect("a face");
    let cloak =
        |cloaked| Input::Move { ship: CHANG, motion: Motion { cloaked: Some(cloaked), ..Motion::default() } };
    world.apply(&cloak(true)).expect("cloaks");
    advance(&mut world, 310);
    assert_eq!(world.ship(CHANG).expect("alive").cloak(), Cloak::Cloaked);
    let shoot = Input::StartFire { weapon: part(CHANG, 3), target: KIRK, aim: None };
    assert_eq!(world.apply(&shoot), Err(Refusal::Cloaked));
    let backup = world.ship(CHANG).expect("alive").plant().backup;
    assert!(backup < 200_000.0, "the device takes from the backup battery: {backup}");
    fire(&mut world, KIRK, 11, CHANG);
    advance(&mut world, 80);
    let entry = *world.ledger().entries().last().expect("a hit");
    assert_eq!((entry.face, entry.shields), (None, 0.0), "no shields");
    world.apply(&cloak(false)).expect("decloaks");
    advance(&mut world, 310);
    assert_eq!(world.ship(CHANG).expect("alive").cloak(), Cloak::Visible);
    assert!(world.ship(CHANG).expect("alive").face(Face::Rear) >= 1.0);
    world.set_batteries(CHANG, 1000.0, 0.0).expect("batteries");
    world.apply(&cloak(true)).expect("cloaks");
    assert!(advance(&mut world, 40).contains(&Decision::CloakFails { ship: CHANG }));
}

/// A fight of three ships with all weapons.
fn fight(seed: u64) -> World {
    let mut world = World::new(seed);
    for (ship, slot, species, y) in [(KIRK, 0, 3, 0.0), (CHANG, 1, 6, 40.0), (SPOCK, 2, 13, -30.0)] {
        arrive(&mut world, ship, slot, species, y);
    }
    let turned =
        Motion { axes: Some(([0.1, -1.0, 0.0], [0.0, 0.0, 1.0])), speed: Some(3.1), ..Motion::default() };
    world.apply(&Input::Move { ship: CHANG, motion: turned }).expect("moves");
    fire(&mut world, KIRK, 11, CHANG);
    fire(&mut world, SPOCK, 8, KIRK);
    for round in 0..40 {
        let direction = [0.0, -1.0, 0.02];
        for cannon in [4, 5] {
            let _ = world.apply(&Input::Bolt { weapon: part(CHANG, cannon), direction, target: Some(KIRK) });
        }
        let torpedo = |tube| Input::Torpedo {
            tube,
            kind: 2,
            direction: [0.3, 1.0, 0.0],
            target: Some(CHANG),
            aim: None,
        };
        let _ = world.apply(&torpedo(part(KIRK, 5 + round % 4)));
        advance(&mut world, 40);
    }
    world
}

/// the same inputs and seed give the same bytes, on every platform.
#[test]
fn same_fight_gives_the_same_bytes() {
    let bytes = fight(5).ledger().to_bytes();
    assert_eq!(bytes, fight(5).ledger().to_bytes());
    assert!(fight(5).ledger().entries().len() > 100, "{}", fight(5).ledger().entries().len());
    // FNV-1a. A change of a law changes it; a change of the platform must not.
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    assert_eq!(hash, 0xAB85_D2AC_85FF_7BE1, "{hash:#X}");
}
