//! One function for each kind of replay.

use bcnet_referee::classes::{PartKind, ShipClass, Weapon};
use bcnet_referee::clock::{SHIELD_STEP, SUBSYSTEM_STEP};
use bcnet_referee::laws::footprint::{default_aim, impact, touched};
use bcnet_referee::laws::shield::{FACES, Face};
use bcnet_referee::laws::{collision, death};
use bcnet_referee::ledger::Entry;
use bcnet_referee::projectiles::Projectile;
use bcnet_referee::vector::Vector;
use bcnet_referee::{Decision, Input};

use crate::beams::{beams, ranges, shares, sides};
use crate::duel::{ATTACKER, Duel, FIRE, TARGET, index, seconds};
use crate::{Computed, Experiment, Setup};

pub(crate) fn run(experiment: &Experiment) -> Computed {
    let setup = &experiment.setup;
    let mut computed = Computed::new();
    match experiment.replay.as_str() {
        "beams" => average(setup, &mut computed, |setup, out| beams(setup, &experiment.parts, out)),
        "ranges" => average(setup, &mut computed, ranges),
        "sides" => average(setup, &mut computed, sides),
        "shares" => shares(setup, &mut computed),
        "bolts" => bolts(setup, &mut computed),
        "bolt ranges" => bolt_ranges(setup, &mut computed),
        "bolts on the hull" => bolts_on_the_hull(setup, &mut computed),
        "torpedoes" => average(setup, &mut computed, torpedoes),
        "recharge" => recharge(setup, &mut computed),
        "radius" => radius(&mut computed),
        "ram" => ram(setup, &mut computed),
        "repair" => repair(setup, &mut computed),
        "repair after a torpedo" => repair_after_a_torpedo(setup, &mut computed),
        "power" => power(setup, &mut computed),
        "dry" => dry(setup, &mut computed),
        "kill" => kill(setup, &mut computed),
        "warp core" => warp_core(setup, &mut computed),
        "area" => area(setup, &mut computed),
        "cloak" => cloak(setup, &mut computed),
        other => panic!("no replay {other}"),
    }
    computed
}

/// The phases that a replay averages: nobody recorded when the steps of the original began.
pub(crate) fn phases() -> impl Iterator<Item = u64> {
    (2..SHIELD_STEP).step_by(4)
}

/// Replays a set-up in all phases and computes the means.
fn average(setup: &Setup, out: &mut Computed, replay: impl Fn(&Setup, &mut Computed)) {
    let mut count = 0.0;
    for phase in phases() {
        let mut computed = Computed::new();
        replay(&Setup { phase, ..setup.clone() }, &mut computed);
        for (what, value) in computed {
            *out.entry(what).or_insert(0.0) += value;
        }
        count += 1.0;
    }
    out.values_mut().for_each(|value| *value /= count);
}

pub(crate) fn set(computed: &mut Computed, what: &str, value: f64) {
    computed.insert(what.into(), value);
}

pub(crate) fn amount(hit: &Entry) -> f64 {
    hit.shields + hit.passed
}

fn bolts(setup: &Setup, out: &mut Computed) {
    let mut duel = Duel::new(setup);
    duel.fire_bolts(setup);
    let hits = duel.hits();
    set(out, "bolt", amount(&hits[0]));
    assert!(hits.iter().all(|hit| amount(hit) == amount(&hits[0])), "all bolts are equal");
    set(out, "bolts", duel.launches.len() as f64);
    set(out, "total", hits.iter().map(amount).sum());
    set(out, "first hit", seconds(hits[0].tick - duel.launches[0]));
    let volley = hits.iter().filter(|hit| hit.tick <= hits[0].tick + 1).map(amount).sum();
    set(out, "first volley", volley);
    let mut ticks = duel.launches.clone();
    ticks.dedup();
    let mut pauses: Vec<u64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    pauses.sort_unstable();
    set(out, "longest pause but one", pauses.iter().rev().nth(1).map_or(0.0, |pause| seconds(*pause)));
    let first = duel.launches[0];
    let cannon = duel.attacker.parts.iter().position(|part| part.kind == PartKind::Pulse).expect("a cannon");
    let armed =
        |part: &usize| matches!(duel.attacker.parts[*part].weapon, Weapon::Beam(..) | Weapon::Pulse(..));
    let at = (0..cannon).filter(armed).count();
    let (_, after) = duel.charges.iter().find(|(tick, _)| *tick == first).expect("a charge");
    set(out, "charge after the first bolt", after[at]);
}

fn bolt_ranges(setup: &Setup, out: &mut Computed) {
    for range in [40.0, 100.0, 150.0] {
        let setup = Setup { range, ..setup.clone() };
        let mut duel = Duel::new(&setup);
        duel.fire_bolts(&setup);
        let left = duel.world.ship(TARGET).expect("the target").face(Face::Front);
        set(out, &format!("face loss at {range}"), duel.target.faces[0] - left);
    }
}

fn bolts_on_the_hull(setup: &Setup, out: &mut Computed) {
    for (name, share) in [("total on a face", None), ("total on the hull", Some(0.0))] {
        let setup = Setup { front: share, others: share, ..setup.clone() };
        let mut duel = Duel::new(&setup);
        duel.fire_bolts(&setup);
        let on_hull = share.is_some();
        let amount = |hit: &Entry| if on_hull { hit.passed } else { hit.shields };
        set(out, name, duel.hits().iter().map(amount).sum());
    }
}

fn torpedoes(setup: &Setup, out: &mut Computed) {
    let mut duel = Duel::new(setup);
    duel.launch_torpedoes(setup, usize::MAX);
    let hits = duel.hits();
    set(out, "hit", amount(&hits[0]));
    let largest = hits.iter().map(amount).fold(0.0, f64::max);
    set(out, "largest hit", largest);
    set(out, "flight", seconds(hits[0].tick - FIRE - setup.phase));
    let spacing = duel.launches.get(1).map_or(0.0, |next| seconds(next - duel.launches[0]));
    set(out, "spacing", spacing);
    let facts = Projectile::of(setup.kind, setup.attacker).expect("a projectile");
    set(out, "speed", facts.speed);
    set(out, "hull loss", duel.loss("Hull"));
    for part in duel.target.parts {
        set(out, &format!("loss of {}", part.name), duel.loss(part.name));
        let first = &hits[0];
        let touched = first.parts >> index(duel.target, part.name) & 1 == 1;
        let name = if part.name == "Hull" { "hull" } else { part.name };
        set(out, &format!("first hit, {name}"), if touched { first.passed } else { 0.0 });
    }
}

fn recharge(setup: &Setup, out: &mut Computed) {
    let setup = Setup { attacker: 3, range: 500.0, front: Some(0.5), others: Some(0.5), ..setup.clone() };
    for name in ["red", "green", "half power"] {
        let mut duel = Duel::new(&setup);
        match name {
            "green" => switch_off(&mut duel),
            "half power" => {
                duel.world.apply(&Input::Power { ship: TARGET, place: 2, share: 0.5 }).expect("power");
            }
            _ => {}
        }
        let mut gains = Vec::new();
        let mut points = duel.target.faces[1] * 0.5;
        for tick in 1..=800 {
            duel.step();
            let now = duel.world.ship(TARGET).expect("alive").face(Face::Rear);
            if now > points {
                gains.push((tick, now - points));
                points = now;
            }
        }
        let (first, last) = (gains[0].0, gains[gains.len() - 1].0);
        let gained: f64 = gains[1..].iter().map(|(_, gain)| gain).sum();
        set(out, name, gained / seconds(last - first));
        set(out, "step", gains[1].1);
        set(out, "period", seconds(gains[1].0 - gains[0].0));
    }
    for share in [0.5, 0.2] {
        let mut duel = Duel::new(&setup);
        duel.world.set_points(Duel::part(TARGET, 2), 12_000.0 * share).expect("the generator");
        duel.run_to(1.0);
        let faces: f64 = FACES.iter().map(|face| duel.world.ship(TARGET).expect("alive").face(*face)).sum();
        set(out, &format!("faces at {share}"), faces);
    }
}

/// Switches shields and weapons off, as green alert does.
fn switch_off(duel: &mut Duel) {
    for (at, part) in duel.target.parts.iter().enumerate() {
        if part.kind == PartKind::Shields || matches!(part.name, "Phasers" | "Torpedoes") {
            duel.world.apply(&Input::Switch { part: Duel::part(TARGET, at), on: false }).expect("a switch");
        }
    }
}

fn radius(out: &mut Computed) {
    let kessok = ShipClass::of(13).expect("the Kessok Heavy");
    let Weapon::Beam(facts, ..) = kessok.parts[index(kessok, "Forward Beam 1")].weapon else {
        panic!("a beam")
    };
    set(out, "beam", facts.radius);
    set(out, "positron torpedo", Projectile::of(7, 13).expect("a torpedo").radius);
}

fn ram(setup: &Setup, out: &mut Computed) {
    let near = Setup { range: 8.0, ..setup.clone() };
    let mut duel = Duel::new(&near);
    let (rammer, target) = (duel.attacker, duel.target);
    let force = collision::impulse(rammer.mass, target.mass, setup.speed);
    let report = |duel: &mut Duel, slot, source, hit, force: f64| {
        let contacts = [[0.0, 0.9, 0.0]];
        let reporter = bcnet_referee::Slot(slot);
        let force = force as f32;
        let input = Input::Collision { reporter, source, target: hit, contacts: &contacts, force };
        duel.world.apply(&input).expect("a collision");
    };
    report(&mut duel, 1, ATTACKER, TARGET, force);
    report(&mut duel, 0, TARGET, ATTACKER, force);
    let hull = |duel: &Duel, ship| duel.world.ship(ship).and_then(|ship| ship.points(0)).expect("the hull");
    set(out, "damage to the target", target.parts[0].points - hull(&duel, TARGET));
    set(out, "damage to the rammer", rammer.parts[0].points - hull(&duel, ATTACKER));
    let faces = |duel: &Duel| -> f64 {
        FACES.iter().map(|face| duel.world.ship(TARGET).expect("it").face(*face)).sum()
    };
    set(out, "loss of faces", target.faces.iter().sum::<f64>() - faces(&duel));
    let (own, other) = collision::rebound(rammer.mass, target.mass, setup.speed);
    set(out, "speed of the rammer", own);
    set(out, "speed of the target", other);
}

fn repair(setup: &Setup, out: &mut Computed) {
    let mut duel = Duel::new(&Setup { attacker: 3, range: 500.0, ..setup.clone() });
    for (name, points) in &setup.damaged {
        let part = Duel::part(TARGET, index(duel.target, name));
        duel.world.set_points(part, *points).expect("a part");
    }
    let mut steps = Vec::new();
    let before: Vec<f64> = points(&duel);
    while (steps.len() as u64) < setup.steps.max(2) {
        let was = points(&duel);
        duel.step();
        if points(&duel) != was {
            steps.push(duel.world.tick());
        }
        if steps.len() as u64 == setup.steps {
            gains(&duel, &before, out);
        }
    }
    set(out, "period", seconds(steps[1] - steps[0]));
}

fn points(duel: &Duel) -> Vec<f64> {
    let ship = duel.world.ship(TARGET).expect("the target");
    (0..duel.target.parts.len()).filter_map(|part| ship.points(part)).collect()
}

fn gains(duel: &Duel, before: &[f64], out: &mut Computed) {
    for ((part, before), now) in duel.target.parts.iter().zip(before).zip(points(duel)) {
        out.entry(format!("gain of {}", part.name)).or_insert(now - before);
    }
}

fn repair_after_a_torpedo(setup: &Setup, out: &mut Computed) {
    let setup = Setup { front: Some(0.0), others: Some(0.0), seconds: 20.0, ..setup.clone() };
    let mut duel = Duel::new(&setup);
    duel.launch_torpedoes(&Setup { seconds: 1.5, ..setup.clone() }, 1);
    while duel.hits().is_empty() {
        duel.step();
    }
    // The tick of the hit may be that of a step.
    let before: Vec<f64> = {
        let hit = duel.hits()[0];
        let full = duel.target.parts.iter().enumerate();
        full.map(|(at, part)| part.points - if hit.parts >> at & 1 == 1 { hit.passed } else { 0.0 }).collect()
    };
    let first = duel.world.tick().next_multiple_of(SUBSYSTEM_STEP);
    while duel.world.tick() < first + 2 * SUBSYSTEM_STEP {
        duel.step();
    }
    gains(&duel, &before, out);
}

fn power(setup: &Setup, out: &mut Computed) {
    let mut duel = powered(setup);
    duel.run_to(3.0);
    let plant = |duel: &Duel| *duel.world.ship(TARGET).expect("alive").plant();
    let (from, before) = (duel.world.tick(), plant(&duel));
    duel.run_to(63.0);
    let after = plant(&duel);
    let passed = seconds(duel.world.tick() - from);
    set(out, "main per second", (after.main - before.main) / passed);
    set(out, "backup per second", (after.backup - before.backup) / passed);
}

/// A Galaxy with the power settings of a set-up, and perhaps a tractor beam on another one.
fn powered(setup: &Setup) -> Duel {
    let mut duel = Duel::new(&Setup { attacker: 3, range: 20.0, ..setup.clone() });
    set_sliders(&mut duel, setup);
    let facts = duel.target.plant;
    if let Some(share) = setup.start {
        duel.world.set_batteries(TARGET, facts.main * share, facts.backup).expect("batteries");
    }
    if setup.tractor {
        let weapon = Duel::part(TARGET, index(duel.target, "Tractors"));
        duel.world.apply(&Input::StartFire { weapon, target: ATTACKER, aim: None }).expect("a tractor beam");
    }
    duel
}

fn set_sliders(duel: &mut Duel, setup: &Setup) {
    if setup.green {
        switch_off(duel);
    }
    for place in 0..=u8::MAX {
        let Some(part) = duel.target.listed(place) else { break };
        let part = &duel.target.parts[part];
        let share = match part.kind {
            PartKind::Sensors => setup.sensors.unwrap_or(setup.share),
            PartKind::Repair if setup.green => 1.0,
            _ => setup.share,
        };
        duel.world.apply(&Input::Power { ship: TARGET, place, share }).expect("power");
    }
}

fn dry(setup: &Setup, out: &mut Computed) {
    let setup = Setup { share: 1.25, tractor: true, start: Some(7530.0 / 250_000.0), ..setup.clone() };
    let mut duel = powered(&setup);
    let is_held = |duel: &Duel| {
        let told = duel.decisions.iter().rev().find_map(|(_, decision)| match decision {
            Decision::Tractor { holds, .. } => Some(*holds),
            _ => None,
        });
        told.unwrap_or(false)
    };
    let main = |duel: &Duel| duel.world.ship(TARGET).expect("alive").plant().main;
    duel.run_to(2.0);
    assert!(is_held(&duel));
    while is_held(&duel) {
        duel.step();
    }
    set(out, "main at the cut", main(&duel));
    set_sliders(&mut duel, &Setup { share: 0.4, green: true, ..setup });
    while !is_held(&duel) {
        duel.step();
    }
    set(out, "main at the return", main(&duel));
}

fn kill(setup: &Setup, out: &mut Computed) {
    let setup = Setup { target: 13, front: Some(0.0), others: Some(0.0), seconds: 6.0, ..setup.clone() };
    let mut duel = Duel::new(&setup);
    duel.world.set_points(Duel::part(TARGET, 0), 60.0).expect("the hull");
    duel.launch_torpedoes(&setup, 1);
    let dead = duel.decisions.iter().find(|(_, decision)| matches!(decision, Decision::Death { .. }));
    let (tick, _) = dead.expect("a death");
    set(out, "ticks from hit to death", (tick - duel.hits()[0].tick) as f64);
    let mut random = death::Random::new(1);
    let drawn: Vec<f64> = (0..1000).map(|_| f64::from(death::duration(&mut random)) / 10.0).collect();
    set(out, "shortest explosion", drawn.iter().copied().fold(f64::MAX, f64::min));
    set(out, "longest explosion", drawn.iter().copied().fold(0.0, f64::max));
}

/// Two positron torpedoes, and the extra damage that followed for an unknown reason, as a given.
fn warp_core(setup: &Setup, out: &mut Computed) {
    let setup = Setup { front: Some(0.0), others: Some(0.0), seconds: 18.0, ..setup.clone() };
    torpedoes(&setup, out);
    let mut duel = Duel::new(&setup);
    duel.launch_torpedoes(&Setup { seconds: 3.0, ..setup.clone() }, 2);
    while duel.hits().len() < 2 {
        duel.step();
    }
    let class = duel.target;
    let place = impact(class, Vector::new([0.0, setup.range, 0.0]), default_aim(class));
    let parts = [0].into_iter().chain(touched(class, place, setup.extra_radius));
    for part in parts.collect::<Vec<_>>() {
        let left = class.parts[part].points - duel.loss(class.parts[part].name) - setup.extra;
        duel.world.set_points(Duel::part(TARGET, part), left.max(0.0)).expect("a part");
    }
    duel.step();
    for name in ["Warp Core", "Shield Generator", "Sensor Array"] {
        let part = index(class, name);
        let left = duel.world.ship(TARGET).and_then(|ship| ship.points(part)).expect("the part");
        set(out, &format!("{name} left"), left);
    }
    set(out, "hull left", class.parts[0].points - duel.loss("Hull"));
    let core = Duel::part(TARGET, index(class, "Warp Core"));
    let dies = duel
        .decisions
        .iter()
        .any(|(_, decision)| matches!(decision, Decision::Death { cause, .. } if *cause == core));
    set(out, "dies", f64::from(u8::from(dies)));
}

fn area(setup: &Setup, out: &mut Computed) {
    let mut duel = Duel::new(&Setup { attacker: 3, range: 500.0, ..setup.clone() });
    let before: f64 = duel.target.faces.iter().sum();
    duel.world.damage_area(TARGET, 1000.0).expect("damage");
    set(out, "hull loss", duel.loss("Hull"));
    (0..5).for_each(|_| duel.world.damage_area(TARGET, 1000.0).expect("damage"));
    let faces: f64 = FACES.iter().map(|face| duel.world.ship(TARGET).expect("it").face(*face)).sum();
    set(out, "loss of faces", before - faces);
    set(out, "hull after six", duel.target.parts[0].points - duel.loss("Hull"));
}

fn cloak(setup: &Setup, out: &mut Computed) {
    let mut duel = Duel::new(setup);
    duel.fire_beams(&Setup { seconds: 6.0, ..setup.clone() });
    duel.world.apply(&Input::Cloak { ship: ATTACKER, on: true }).expect("cloaks");
    let from = duel.world.tick();
    duel.run_to(15.0);
    let hits = duel.hits();
    let cloaked: f64 = hits.iter().filter(|hit| hit.tick > from).map(amount).sum();
    set(out, "rate while cloaked", cloaked / seconds(duel.world.tick() - from));
}
