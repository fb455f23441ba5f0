//! Replays of beams.

use bcnet_referee::classes::PartKind;
use bcnet_referee::clock::TICK_SECONDS;
use bcnet_referee::laws::shield::{FACES, Face};
use bcnet_referee::ledger::Entry;

use crate::duel::{Duel, FIRE, TARGET, seconds};
use crate::replays::{amount, phases, set};
use crate::{Computed, Setup};

/// Returns all damage divided by the time from the first to the last hit.
///
/// The measured rates of one beam and of four beams fit this definition: 121 for 120, and 282 for 283.
fn rate(hits: &[Entry]) -> f64 {
    let (Some(first), Some(last)) = (hits.first(), hits.last()) else { return 0.0 };
    hits.iter().map(amount).sum::<f64>() / seconds(last.tick - first.tick).max(TICK_SECONDS)
}

/// Returns the mean of the first hit of each weapon.
fn first_quantum(hits: &[Entry]) -> f64 {
    let tick = hits.first().map_or(0, |hit| hit.tick);
    let first: Vec<f64> = hits.iter().filter(|hit| hit.tick == tick).map(amount).collect();
    first.iter().sum::<f64>() / first.len().max(1) as f64
}

pub(crate) fn beams(setup: &Setup, expected: &[String], out: &mut Computed) {
    let mut duel = Duel::new(setup);
    duel.fire_beams(setup);
    let hits = duel.hits();
    let mut ticks: Vec<u64> = hits.iter().map(|hit| hit.tick).collect();
    ticks.dedup();
    set(out, "rate", rate(&hits));
    set(out, "quantum", first_quantum(&hits));
    set(out, "first hit", seconds(ticks[0] - FIRE - setup.phase));
    let again = hits.iter().find(|hit| hit.object == hits[0].object && hit.tick > hits[0].tick);
    set(out, "period", again.map_or(0.0, |again| seconds(again.tick - ticks[0])));
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
    let (lost, all) =
        tubes.fold((0.0, 0.0), |(lost, all), tube| (lost + duel.loss(tube.name), all + tube.points));
    set(out, "loss of all tubes", lost / all);
    if !expected.is_empty() {
        let hit = hits.iter().fold(0, |parts, hit| parts | hit.parts) & !1;
        let names: Vec<&str> = (0..duel.target.parts.len())
            .filter(|part| hit >> part & 1 == 1)
            .map(|part| duel.target.parts[part].name)
            .collect();
        assert_eq!(names, expected, "the parts that were hit");
    }
    banks(setup, &hits, out);
    charge(&duel, out);
}

/// The banks that fired, in order.
fn banks(setup: &Setup, hits: &[Entry], out: &mut Computed) {
    let mut order: Vec<u32> = hits.iter().map(|hit| hit.object.0).collect();
    order.dedup();
    let first = order[0];
    let at_once = hits.iter().filter(|hit| hit.tick == hits[0].tick).count();
    set(out, "banks at once", at_once as f64);
    order.sort_unstable();
    order.dedup();
    set(out, "banks used", order.len() as f64);
    let last_of_first = hits.iter().rfind(|hit| hit.object.0 == first).map_or(0, |hit| hit.tick);
    set(out, "seconds of the first bank", seconds(last_of_first - FIRE - setup.phase));
}

/// The charge of the first weapon that lost some.
fn charge(duel: &Duel, out: &mut Computed) {
    let full = &duel.charges[0].1;
    let Some(used) = (0..full.len()).find(|at| duel.charges.iter().any(|(_, now)| now[*at] < full[*at]))
    else {
        return;
    };
    let series: Vec<(u64, f64)> = duel.charges.iter().map(|(tick, now)| (*tick, now[used])).collect();
    let start = series.iter().position(|(_, now)| *now < full[used]).expect("it falls") - 1;
    let low = series[start..]
        .windows(2)
        .position(|pair| pair[1].1 >= pair[0].1)
        .map_or(series.len() - 1, |at| start + at);
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
pub(crate) fn ranges(setup: &Setup, out: &mut Computed) {
    for range in [28.55, 57.21, 85.72, 113.47, 142.4, 172.39] {
        let mut duel = Duel::new(&Setup { range, ..setup.clone() });
        duel.fire_beams(setup);
        let total: f64 = duel.hits().iter().map(amount).sum();
        set(out, &format!("{range}"), total / (setup.seconds - seconds(FIRE)));
    }
}

const SIDES: [(&str, f64, f64); 3] =
    [("bearing 90", 90.0, 0.0), ("bearing 180", 180.0, 0.0), ("elevation -89", 0.0, -89.0)];

pub(crate) fn sides(setup: &Setup, out: &mut Computed) {
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
pub(crate) fn shares(setup: &Setup, out: &mut Computed) {
    let runs = [(0.0, 0.0), (90.0, 0.0), (180.0, 0.0), (0.0, -89.0), (0.0, 45.0), (0.0, 60.0), (0.0, 75.0)];
    let mut setups: Vec<Setup> = runs
        .iter()
        .map(|(bearing, elevation)| Setup { bearing: *bearing, elevation: *elevation, ..setup.clone() })
        .collect();
    setups.push(Setup { front: Some(0.5), ..setup.clone() });
    let mut bins: Vec<Vec<f64>> = vec![Vec::new(); 13];
    for (setup, phase) in setups.iter().flat_map(|setup| phases().map(move |phase| (setup, phase))) {
        let mut duel = Duel::new(setup);
        duel.fire_beams(&Setup { seconds: seconds(FIRE), phase, ..setup.clone() });
        let mut known = 0;
        while (duel.world.tick() as f64) * TICK_SECONDS < setup.seconds {
            let before = FACES.map(|face| duel.world.ship(TARGET).expect("alive").face(face));
            duel.step();
            let hits = duel.hits();
            let mut faces = before;
            for hit in &hits[known..] {
                let at = hit.face.expect("a face") as usize;
                let fraction = faces[at] / duel.target.faces[at];
                let bin = if fraction >= 0.6 {
                    12
                } else if fraction < 0.1 {
                    0
                } else {
                    (fraction * 20.0) as usize
                };
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
