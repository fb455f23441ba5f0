//! Replays the measurements of the original game, and prints each beside the computed value.
//!
//! `measured.toml` has the set-up and the measured numbers. `cargo test -p bcnet-referee --test experiments
//! -- --nocapture` prints the table.

mod beams;
mod duel;
mod replays;

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    experiment: Vec<Experiment>,
}

/// One measurement of the original game.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    name: String,
    group: String,
    replay: String,
    setup: Setup,
    #[serde(default)]
    parts: Vec<String>,
    rows: Vec<Row>,
    /// True if the laws reproduce the measurement.
    #[serde(default = "yes")]
    holds: bool,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields, default)]
struct Setup {
    attacker: u8,
    target: u8,
    level: u8,
    kind: u8,
    range: f64,
    bearing: f64,
    elevation: f64,
    seconds: f64,
    charge: Option<f64>,
    /// The fraction of the front face, and of the others.
    front: Option<f64>,
    others: Option<f64>,
    speed: f64,
    damaged: Vec<(String, f64)>,
    steps: u64,
    share: f32,
    sensors: Option<f32>,
    green: bool,
    tractor: bool,
    start: Option<f64>,
    extra: f64,
    extra_radius: f64,
    /// Ticks between a step of the subsystems and the order to fire.
    phase: u64,
}

/// One measured number and its tolerance.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    what: String,
    value: Option<f64>,
    percent: Option<f64>,
    off: Option<f64>,
    from: Option<f64>,
    to: Option<f64>,
}

fn yes() -> bool {
    true
}

/// The computed numbers of a replay, by name.
type Computed = BTreeMap<String, f64>;

impl Row {
    fn range(&self) -> (f64, f64) {
        if let (Some(from), Some(to)) = (self.from, self.to) {
            return (from, to);
        }
        let value = self.value.expect("a value or a range");
        let off = self.off.or_else(|| Some(value.abs() * self.percent? / 100.0)).expect("a tolerance");
        (value - off, value + off)
    }

    fn holds(&self, computed: f64) -> bool {
        let (from, to) = self.range();
        (from - 1e-6..=to + 1e-6).contains(&computed)
    }

    fn measured(&self) -> String {
        match (self.value, self.range()) {
            (Some(value), _) => format!("{value}"),
            (None, (from, to)) => format!("{from}–{to}"),
        }
    }
}

fn fixture() -> Vec<Experiment> {
    let fixture: Fixture = toml::from_str(include_str!("measured.toml")).expect("the fixture");
    fixture.experiment
}

/// Prints one experiment. Returns whether all its rows hold.
fn judge(experiment: &Experiment) -> bool {
    let computed = replays::run(experiment);
    let mut all = true;
    for row in &experiment.rows {
        let value = *computed.get(&row.what).unwrap_or_else(|| panic!("{}: {computed:?}", row.what));
        let holds = row.holds(value);
        all &= holds;
        let verdict = if holds { "yes" } else { "NO" };
        let (group, name, what) = (&experiment.group, &experiment.name, &row.what);
        println!("{group:15} {name:42} {what:36} {:>15} {value:>12.3} {verdict:>4}", row.measured());
    }
    all
}

/// every measurement that the laws reproduce stays reproduced.
#[test]
fn measurements_are_reproduced() {
    println!("{:15} {:42} {:36} {:>15} {:>12}", "group", "experiment", "what", "measured", "computed");
    let experiments = fixture();
    assert_eq!(experiments.len(), 68, "the groups that a host decides");
    let mut lines = Vec::new();
    let mut reproduced = 0;
    for experiment in &experiments {
        let holds = judge(experiment);
        reproduced += usize::from(holds);
        if !holds {
            println!("    {}: {}", experiment.name, experiment.reason);
        }
        if holds != experiment.holds || holds != experiment.reason.is_empty() {
            lines.push(format!("{}: reproduced: {holds}, expected: {}", experiment.name, experiment.holds));
        }
    }
    let share = 100.0 * reproduced as f64 / experiments.len() as f64;
    println!("\nreproduced: {reproduced} of {} ({share:.1} %)", experiments.len());
    assert!(lines.is_empty(), "{lines:#?}");
    assert!(share >= 90.0, "{share}");
}
