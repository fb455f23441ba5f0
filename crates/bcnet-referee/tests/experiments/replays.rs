//! One function for each kind of replay.

use bcnet_referee::classes::{PartKind, ShipClass, Weapon};
use bcnet_referee::clock::{SUBSYSTEM_STEP, TICK_SECONDS};
use bcnet_referee::laws::footprint::{default_aim, impact, touched};
use bcnet_referee::laws::shield::{FACES, Face};
use bcnet_referee::laws::{collision, death};
use bcnet_referee::ledger::Entry;
use bcnet_referee::projectiles::Projectile;
use bcnet_referee::vector::Vector;
use bcnet_referee::{Decision, Input, Life};

use crate::duel::{ATTACKER, Duel, FIRE, TARGET, index, seconds};
use crate::{Computed, Experiment, Setup};

pub(crate) fn run(experiment: &Experiment) -> Computed {
    let setup = &experiment.setup;
    let mut computed = Computed::new();
    match experiment.replay.as_str() {
        "beams" => beams(setup, &experiment.parts, &mut computed),
        "ranges" => ranges(setup, &mut computed),
        "sides" => sides(setup, &mut computed),
        "shares" => shares(setup, &mut computed),
        "bolts" => bolts(setup, &mut computed),
        "bolt ranges" => bolt_ranges(setup, &mut computed),
        "bolts on the hull" => bolts_on_the_hull(setup, &mut computed),
        "torpedoes" => torpedoes(setup, &mut computed),
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

fn set(computed: &mut Computed, what: &str, value: f64) {
    computed.insert(what.into(), value);
}

fn amount(hit: &Entry) -> f64 {
    hit.shields + hit.passed
}

/// Returns the damage per second between the first and the last hit.
fn rate(hits: &[Entry]) -> f64 {
    let (Some(first), Some(last)) = (hits.first(), hits.last()) else { return 0.0 };
    let later: f64 = hits.iter().filter(|hit| hit.tick > first.tick).map(amount).sum();
    later / seconds(last.tick - first.tick).max(TICK_SECONDS)
}

/// Returns the mean of the first hit of each weapon.
fn first_quantum(hits: &[Entry]) -> f64 {
    let tick = hits.first().map_or(0, |hit| hit.tick);
    let first: Vec<f64> = hits.iter().filter(|hit| hit.tick == tick).map(amount).collect();
    first.iter().sum::<f64>() / first.len().max(1) as f64
}

fn beams(setup: &Setup, expected: &[String], out: &mut Computed) {
    let mut duel = Duel::new(setup);
    duel.fire_beams(setup);
    let hits = duel.hits();
    let mut ticks: Vec<u64> = hits.iter().map(|hit| hit.tick).collect();
    ticks.dedup();
    set(out, "rate", rate(&hits));
    set(out, "quantum", first_quantum(&hits));
    set(out, "first hit", seconds(ticks[0] - FIRE));
    set(out, "period", ticks.get(1).map_or(0.0, |next| seconds(next - ticks[0])));
    set(out, "total", hits.iter().map(amount).sum());
    let front = hits.iter().filter(|hit| hit.face == Some(Face::Front));
    set(out, "front face absorbed", front.map(|hit| hit.shields).sum());
    set(out, "hull loss", duel.loss("Hull"));
    for part in duel.target.parts {
        set(out, &format!("loss of {}", part.name), duel.loss(part.name));
    }
    let face = hits.first().and_then(|hit| hit.face).map_or(-1.0, |face| face as u8 as f64);
    assert!(setup.front.is_some() || hits.iter().all(|hit| hit.face == hits[0].face), "one face only");
    set(out, "face", face);
    set(out, "loss of Sensor Array by loss of hull", duel.loss("Sensor Array") / duel.loss("Hull"));
    let tubes = duel.target.parts.iter().filter(|part| part.kind == PartKind::Tube);
    let (lost, all) = tubes.fold((0.0, 0.0), |(lost, all), tube| (lost + duel.loss(tube.name), all + tube.points));
    set(out, "loss of all tubes", lost / all);
    if !expected.is_empty() {
        let hit = hits.iter().fold(0, |parts, hit| parts | hit.parts) & !1;
        let names: Vec<&str> = (0..duel.target.parts.len())
            .filter(|part| hit >> part & 1 == 1)
            .map(|part| duel.target.parts[part].name)
            .collect();
        assert_eq!(names, expected, "the parts that were hit");
    }
    banks(&duel, &hits, out);
    charge(&duel, out);
}

/// The banks that fired, in order.
fn banks(duel: &Duel, hits: &[Entry], out: &mut Computed) {
    let mut order: Vec<u32> = hits.iter().map(|hit| hit.object.0).collect();
    order.dedup();
    let first = order[0];
    let at_once = hits.iter().filter(|hit| hit.tick == hits[0].tick).count();
    set(out, "banks at once", at_once as f64);
    order.sort_unstable();
    order.dedup();
    set(out, "banks used", order.len() as f64);
    let last_of_first = hits.iter().rfind(|hit| hit.object.0 == first).map_or(0, |hit| hit.tick);
    set(out, "seconds of the first bank", seconds(last_of_first - FIRE));
    assert!(!duel.launches.iter().any(|_| true), "beams only");
}

/// The charge of the first weapon that lost some.
fn charge(duel: &Duel, out: &mut Computed) {
    let full = &duel.charges[0].1;
    let Some(used) = (0..full.len()).find(|at| duel.charges.iter().any(|(_, now)| now[*at] < full[*at])) else {
        return;
    };
    let series: Vec<(u64, f64)> = duel.charges.iter().map(|(tick, now)| (*tick, now[used])).collect();
    let start = series.iter().position(|(_, now)| *now < full[used]).expect("it falls") - 1;
    let low = series[start..].windows(2).position(|pair| pair[1].1 >= pair[0].1).map_or(series.len() - 1, |at| start + at);
    let fallen = seconds(series[low].0 - series[start].0);
    set(out, "charge loss per second", (full[used] - series[low].1) / fallen);
    set(out, "seconds to empty", fallen);
    let last = series.last().expect("a charge");
    set(out, "charge left", last.1);
    if low + 1 < series.len() {
        set(out, "recharge per second", last.1 / seconds(last.0 - series[low].0));
    }
}

/// Holds the trigger for four seconds at each range, and divides the loss by them.
fn ranges(setup: &Setup, out: &mut Computed) {
    for range in [28.55, 57.21, 85.72, 113.47, 142.4, 172.39] {
        let mut duel = Duel::new(&Setup { range, ..setup.clone() });
        duel.fire_beams(setup);
        let total: f64 = duel.hits().iter().map(amount).sum();
        set(out, &format!("{range}"), total / (setup.seconds - seconds(FIRE)));
    }
}

const SIDES: [(&str, f64, f64); 3] =
    [("bearing 90", 90.0, 0.0), ("bearing 180", 180.0, 0.0), ("elevation -89", 0.0, -89.0)];

fn sides(setup: &Setup, out: &mut Computed) {
    for (name, bearing, elevation) in SIDES {
        let mut duel = Duel::new(&Setup { bearing, elevation, ..setup.clone() });
        duel.fire_beams(setup);
        let hits = duel.hits();
        set(out, &format!("rate, {name}"), rate(&hits));
        set(out, &format!("total, {name}"), hits.iter().map(amount).sum());
        set(out, &format!("hull loss, {name}"), duel.loss("Hull"));
    }
}

/// Pools the hits of eight runs by the fraction of the face before the hit. Yields medians.
fn shares(setup: &Setup, out: &mut Computed) {
    let runs = [(0.0, 0.0), (90.0, 0.0), (180.0, 0.0), (0.0, -89.0), (0.0, 45.0), (0.0, 60.0), (0.0, 75.0)];
    let mut setups: Vec<Setup> = runs
        .iter()
        .map(|(bearing, elevation)| Setup { bearing: *bearing, elevation: *elevation, ..setup.clone() })
        .collect();
    setups.push(Setup { front: Some(0.5), ..setup.clone() });
    let mut bins: Vec<Vec<f64>> = vec![Vec::new(); 13];
    for setup in &setups {
        let mut duel = Duel::new(setup);
        duel.fire_beams(&Setup { seconds: seconds(FIRE), ..setup.clone() });
        let mut known = 0;
        while (duel.world.tick() as f64) * TICK_SECONDS < setup.seconds {
            let before = FACES.map(|face| duel.world.ship(TARGET).expect("alive").face(face));
            duel.step();
            let hits = duel.hits();
            let mut faces = before;
            for hit in &hits[known..] {
                let at = hit.face.expect("a face") as usize;
                let fraction = faces[at] / duel.target.faces[at];
                let bin = if fraction >= 0.6 { 12 } else if fraction < 0.1 { 0 } else { (fraction * 20.0) as usize };
                bins[bin].push(hit.passed / amount(hit));
                faces[at] -= hit.shields;
            }
            known = hits.len();
        }
    }
    for (at, bin) in bins.iter_mut().enumerate().filter(|(at, _)| *at != 1) {
        bin.sort_by(f64::total_cmp);
        set(out, &format!("{:.2}", at as f64 / 20.0), bin[bin.len() / 2]);
    }
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
    let armed = |part: &usize| matches!(duel.attacker.parts[*part].weapon, Weapon::Beam(..) | Weapon::Pulse(..));
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
    set(out, "flight", seconds(hits[0].tick - FIRE));
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
    let Weapon::Beam(facts, ..) = kessok.parts[index(kessok, "Forward Beam 1")].weapon else { panic!("a beam") };
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
    let faces = |duel: &Duel| -> f64 { FACES.iter().map(|face| duel.world.ship(TARGET).expect("it").face(*face)).sum() };
    set(out, "loss of faces", target.faces.iter().sum::<f64>() - faces(&duel));
    let (own, other) = collision::rebound(rammer.mass, target.mass, setup.speed);
    set(out, "speed of the rammer", own);
    set(out, "speed of the target", other);
    let mut dies = None;
    for (at, damage) in setup.repeats.iter().enumerate() {
        duel.run_to(3.0 * (at + 1) as f64);
        report(&mut duel, 1, ATTACKER, TARGET, (damage - 500.0) / 900.0 * target.mass);
        if dies.is_none() && duel.world.ship(TARGET).expect("it").life() != Life::Alive {
            dies = Some(at + 2);
        }
    }
    set(out, "the target dies at hit", dies.unwrap_or_default() as f64);
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
    duel.launch_torpedoes(&Setup { seconds: 17.0, ..setup.clone() }, 2);
    assert_eq!(duel.hits().len(), 2);
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
    let dies = duel.decisions.iter().any(|(_, decision)| matches!(decision, Decision::Death { cause, .. } if *cause == core));
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
