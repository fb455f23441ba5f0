//! Impossible and hostile inputs have no effect but a counter, and everything is deterministic.

use std::time::Duration;

use bcnet_referee::clock::TICK;
use bcnet_referee::{Input, MAX_SHIPS, MAX_SHOTS, Motion, ObjectId, REFUSALS, Refusal, Slot, World};
use proptest::prelude::*;

const KIRK: ObjectId = ObjectId(0x3FFF_FFFF);
const CHANG: ObjectId = ObjectId(0x4003_FFFF);
const NAN: f32 = f32::NAN;

fn part(ship: ObjectId, part: u32) -> ObjectId {
    ObjectId(ship.0 + 1 + part)
}

fn arrive(ship: ObjectId, slot: u8, species: u8, y: f32) -> Input<'static> {
    Input::Arrive { ship, slot: Slot(slot), species, position: [0.0, y, 0.0], rotation: [1.0, 0.0, 0.0, 0.0] }
}

/// A Galaxy, and a Bird of Prey 40 units before it.
fn duel() -> World {
    let mut world = World::new(7);
    world.apply(&arrive(KIRK, 0, 3, 0.0)).expect("arrives");
    world.apply(&arrive(CHANG, 1, 6, 40.0)).expect("arrives");
    world
}

fn advance(world: &mut World, ticks: u64) {
    let now = TICK * u32::try_from(world.tick() + ticks).expect("ticks");
    world.advance(now, &mut Vec::new());
}

/// each impossible input is refused for its reason, is counted, and changes nothing.
#[test]
fn impossible_inputs_change_nothing() {
    let (ship, phasers, tube) = (KIRK, part(KIRK, 11), part(KIRK, 5));
    let torpedo = |kind, direction| Input::Torpedo { tube, kind, direction, target: None, aim: None };
    let ahead = [0.0, 1.0, 0.0];
    let contacts: &[[f32; 3]] = &[[0.0, 0.9, 0.0]];
    let collision = |reporter, source, force| Input::Collision {
        reporter: Slot(reporter),
        source,
        target: KIRK,
        contacts,
        force,
    };
    let moved = |position, speed| Input::Move {
        ship,
        motion: Motion { position: Some(position), speed: Some(speed), ..Motion::default() },
    };
    let fire = |weapon, target| Input::StartFire { weapon, target, aim: None };
    let cases: &[(Input<'_>, Refusal)] = &[
        (arrive(ObjectId(9), 2, 0, 0.0), Refusal::UnknownClass),
        (arrive(ObjectId(9), 2, 45, 0.0), Refusal::UnknownClass),
        (arrive(part(KIRK, 3), 2, 3, 0.0), Refusal::Full),
        (arrive(ObjectId(9), 16, 3, 0.0), Refusal::Full),
        (arrive(ObjectId(0), 2, 3, 0.0), Refusal::Full),
        (arrive(ObjectId(u32::MAX), 2, 3, 0.0), Refusal::BadNumber),
        (Input::Leave { ship: ObjectId(9) }, Refusal::UnknownShip),
        (moved([NAN, 0.0, 0.0], 1.0), Refusal::BadNumber),
        (moved([0.0; 3], f32::INFINITY), Refusal::BadNumber),
        (moved([0.0, 2e6, 0.0], 1.0), Refusal::BadNumber),
        (fire(part(KIRK, 99), CHANG), Refusal::UnknownPart),
        (fire(part(KIRK, 0), CHANG), Refusal::UnknownPart),
        (fire(KIRK, CHANG), Refusal::UnknownPart),
        (fire(ObjectId(0), CHANG), Refusal::UnknownPart),
        (fire(phasers, ObjectId(0)), Refusal::NoTarget),
        (fire(phasers, KIRK), Refusal::NoTarget),
        (Input::StartFire { weapon: phasers, target: CHANG, aim: Some([NAN; 3]) }, Refusal::BadNumber),
        (torpedo(99, ahead), Refusal::UnknownProjectile),
        (torpedo(2, [0.0; 3]), Refusal::BadNumber),
        (torpedo(2, [NAN, 0.0, 0.0]), Refusal::BadNumber),
        (Input::Bolt { weapon: phasers, direction: ahead, target: None }, Refusal::UnknownPart),
        (Input::Level { system: phasers, level: 3 }, Refusal::BadNumber),
        (Input::Power { ship, place: 99, share: 1.0 }, Refusal::UnknownPart),
        (Input::Power { ship, place: 2, share: 1.3 }, Refusal::BadNumber),
        (Input::Power { ship, place: 2, share: NAN }, Refusal::BadNumber),
        (Input::Cloak { ship, on: true }, Refusal::UnknownPart),
        (Input::Prefer { part: part(KIRK, 3) }, Refusal::UnknownPart),
        (collision(1, CHANG, 700.0), Refusal::ForeignReport),
        (collision(0, CHANG, 700.0), Refusal::TooFar),
        (collision(0, ObjectId(0), NAN), Refusal::BadNumber),
        (collision(0, ObjectId(0), -1.0), Refusal::BadNumber),
        (Input::SelfDestruct { ship: ObjectId(9) }, Refusal::UnknownShip),
        (Input::Team { slot: Slot(200), team: None }, Refusal::Full),
    ];
    for (input, reason) in cases {
        let mut world = duel();
        assert_eq!(world.apply(input), Err(*reason), "{input:?}");
        let counted: u64 = REFUSALS.iter().map(|reason| world.refused(*reason)).sum();
        assert_eq!((world.refused(*reason), counted), (1, 1));
        advance(&mut world, 500);
        assert_eq!((world.ships().count(), world.ledger().entries().len(), world.shots()), (2, 0, 0));
    }
}

/// nothing fires before its first position, and a dead ship does nothing.
#[test]
fn unplaced_and_dead_ships_cannot_fire() {
    let mut world = duel();
    let spock = ObjectId(0x4007_FFFF);
    let rotation = [1.0, 0.0, 0.0, 0.0];
    let unplaced = Input::Arrive { ship: spock, slot: Slot(2), species: 3, position: [NAN; 3], rotation };
    world.apply(&unplaced).expect("the ship arrives without a position");
    let fire = |ship, target| Input::StartFire { weapon: part(ship, 11), target, aim: None };
    assert_eq!(world.apply(&fire(spock, CHANG)), Err(Refusal::NoPosition));
    assert_eq!(world.apply(&fire(KIRK, spock)), Err(Refusal::NoTarget));
    let place = Motion { position: Some([0.0, -40.0, 0.0]), ..Motion::default() };
    assert_eq!(world.apply(&Input::Move { ship: spock, motion: place }), Err(Refusal::NoPosition), "no axes");
    let axes = Some(([0.0, 1.0, 0.0], [0.0, 0.0, 1.0]));
    world.apply(&Input::Move { ship: spock, motion: Motion { axes, ..place } }).expect("moves");
    world.apply(&fire(spock, CHANG)).expect("fires");
    world.apply(&Input::SelfDestruct { ship: spock }).expect("dies");
    assert_eq!(world.apply(&fire(spock, CHANG)), Err(Refusal::Dead));
    assert_eq!(world.apply(&fire(KIRK, spock)), Err(Refusal::NoTarget));
    assert_eq!(world.apply(&Input::SelfDestruct { ship: spock }), Err(Refusal::Dead));
    advance(&mut world, 200);
    assert_eq!(world.ledger().entries().len(), 0);
    advance(&mut world, 600);
    advance(&mut world, 600);
    assert_eq!(world.ship(spock).map(|ship| ship.id()), None, "the wreck is gone");
    assert_eq!(world.score(Slot(2)).deaths, 1);
}

/// a million launches, bolts, ships and collisions leave the world small.
#[test]
fn floods_are_bounded() {
    let mut world = duel();
    let launch = |tube| Input::Torpedo {
        tube: part(KIRK, tube),
        kind: 2,
        direction: [0.0, 0.0, 1.0],
        target: None,
        aim: None,
    };
    let launched = (0..1_000_000_u32).filter(|at| world.apply(&launch(5 + at % 6)).is_ok()).count();
    assert_eq!(launched, 6, "what was loaded");
    let bolt = Input::Bolt { weapon: part(CHANG, 4), direction: [0.0, 0.0, 1.0], target: None };
    assert_eq!((0..100_000).filter(|_| world.apply(&bolt).is_ok()).count(), 3);
    assert!(world.shots() <= MAX_SHOTS);
    let hit = Input::Collision {
        reporter: Slot(0),
        source: ObjectId(0),
        target: KIRK,
        contacts: &[[0.0, 0.9, 0.0]],
        force: f32::MAX,
    };
    assert_eq!((0..100_000).filter(|_| world.apply(&hit).is_ok()).count(), 1);
    let lost = 15_000.0 - world.ship(KIRK).and_then(|ship| ship.points(0)).expect("the hull");
    assert!(lost < 15_500.0, "the force is bounded: {lost}");
    let ships = (0..100_000_u32).filter(|at| world.apply(&arrive(ObjectId(1 + at * 64), 3, 5, 0.0)).is_ok());
    assert_eq!(ships.count(), MAX_SHIPS - 2);
}

/// the ledger keeps its newest entries, and a session of eight ships stays below a megabyte.
#[test]
fn memory_of_a_session_is_bounded() {
    let mut world = World::new(1);
    let ids: Vec<ObjectId> = (0..8).map(|slot| ObjectId(0x3FFF_FFFF + slot * 0x4_0000)).collect();
    for (at, id) in ids.iter().enumerate() {
        world.apply(&arrive(*id, at as u8, 13, 0.5 * at as f32)).expect("arrives");
    }
    for _ in 0..5000 {
        for id in &ids {
            world.damage_area(*id, 0.1).expect("damage");
        }
    }
    let (kept, dropped) = (world.ledger().entries().len(), world.ledger().dropped());
    assert_eq!((kept, dropped), (bcnet_referee::ledger::CAPACITY, 40_000 - 8192));
    let entry = size_of::<bcnet_referee::ledger::Entry>();
    assert!(kept * entry + 100_000 <= 1_000_000, "{kept} entries of {entry} bytes");
}

/// a jump of the clock costs at most ten seconds of ticks.
#[test]
fn jumps_of_the_clock_are_cut_short() {
    let mut world = duel();
    world.advance(Duration::MAX, &mut Vec::new());
    assert_eq!(world.tick(), 606);
    world.advance(Duration::ZERO, &mut Vec::new());
    assert_eq!(world.tick(), 606);
}

/// An input of two ships from some random numbers, most of them possible.
fn input(numbers: [u32; 4]) -> Input<'static> {
    let [kind, what, more, real] = numbers;
    let ships = [KIRK, CHANG, ObjectId(0x4007_FFFF), ObjectId(what)];
    let (ship, target) = (ships[what as usize % 4], ships[more as usize % 4]);
    let object = part(ship, more % 40);
    let number = if real % 8 == 0 { f32::from_bits(real) } else { (real % 100) as f32 - 50.0 };
    let direction = [number, 50.0, 0.0];
    match kind % 14 {
        0 => arrive(ship, (what % 18) as u8, (more % 20) as u8, number),
        1 if real % 16 == 0 => Input::Leave { ship },
        2..=3 => Input::Move {
            ship,
            motion: Motion {
                position: Some([number, 20.0, 0.0]),
                axes: (more % 2 == 0).then_some(([number, 1.0, 0.0], [0.0, 0.0, 1.0])),
                speed: Some(number),
                cloaked: (more % 3 == 0).then_some(more % 2 == 0),
            },
        },
        4..=5 => Input::StartFire { weapon: object, target, aim: None },
        6 => Input::StopFire { weapon: object },
        7 => Input::Torpedo {
            tube: object,
            kind: (more % 17) as u8,
            direction,
            target: Some(target),
            aim: None,
        },
        8 => Input::Bolt { weapon: object, direction, target: Some(target) },
        9 => Input::Level { system: object, level: (real % 4) as u8 },
        10 => Input::Power { ship, place: (more % 20) as u8, share: number / 40.0 },
        11 => Input::Switch { part: object, on: real % 4 != 0 },
        12 => Input::Collision {
            reporter: Slot((what % 3) as u8),
            source: target,
            target: ship,
            contacts: &[[0.0, 0.5, 0.0]],
            force: number * 10.0,
        },
        _ => Input::Prefer { part: object },
    }
}

fn play(seed: u64, script: &[[u32; 4]]) -> (World, String) {
    let mut world = World::new(seed);
    for (ship, slot, species, y) in [(KIRK, 0, 3, 0.0), (CHANG, 1, 6, 40.0)] {
        world.apply(&arrive(ship, slot, species, y)).expect("arrives");
    }
    let mut decisions = Vec::new();
    for (at, numbers) in script.iter().enumerate() {
        let _ = world.apply(&input(*numbers));
        world.advance(TICK * (10 * at as u32), &mut decisions);
    }
    (world, format!("{decisions:?}"))
}

proptest! {
    /// no input makes the world panic, and the same inputs and seed give the same bytes.
    #[test]
    fn same_inputs_give_the_same_ledger(script in prop::collection::vec(any::<[u32; 4]>(), 0..300), seed: u64) {
        let (first, told) = play(seed, &script);
        let (second, told_again) = play(seed, &script);
        prop_assert_eq!(first.ledger().to_bytes(), second.ledger().to_bytes());
        prop_assert_eq!(told, told_again);
        for ship in first.ships() {
            for part in 0..ship.class().parts.len() {
                let points = ship.points(part).expect("a part");
                prop_assert!((0.0..=ship.class().parts[part].points).contains(&points));
            }
        }
    }
}
