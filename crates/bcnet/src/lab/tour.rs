//! `bcnet lab tour`: every scenario on both engines, one table, one report.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context;
use bcnet_lab::scenario::{Claim, Kind};
use bcnet_lab::{Options, Outcome, Value};
use serde_json::{Value as Json, json};

use super::library::{self, Entry};
use super::{json, report};
use crate::Verdict;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The seed of all chance
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// Also write a report with plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// A scenario with what came out of it on both engines.
pub(super) struct Stop {
    pub(super) entry: Entry,
    pub(super) stock: Outcome,
    pub(super) bcnet: Outcome,
}

/// One line of the table: the figure of a claim on both engines.
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) claim: &'a Claim,
    pub(super) stock: Option<f64>,
    pub(super) bcnet: Option<f64>,
}

impl Row<'_> {
    /// How many times as much it is on stock. Nothing can be told of nothing.
    pub(super) fn factor(&self) -> Option<f64> {
        let (stock, bcnet) = (self.stock?, self.bcnet?);
        (bcnet > 0.0).then(|| stock / bcnet)
    }

    /// The factor for people.
    pub(super) fn factor_text(&self) -> String {
        match (self.stock, self.bcnet) {
            (Some(stock), Some(bcnet)) if stock == bcnet => "=".into(),
            (Some(_), Some(0.0)) => "gone".into(),
            _ => self.factor().map_or_else(|| "-".into(), |factor| format!("{}x", number(factor))),
        }
    }
}

impl Stop {
    pub(super) fn row(&self) -> Option<Row<'_>> {
        let claim = self.entry.scenario.claim.as_ref()?;
        let value = |outcome| match claim.figure.of(outcome) {
            Some(Value::One(value)) => Some(value),
            // Nothing waits for a peer that is not there.
            None if claim.figure.measure.is_of_queues() => Some(0.0),
            _ => None,
        };
        Some(Row { name: &self.entry.name, claim, stock: value(&self.stock), bcnet: value(&self.bcnet) })
    }

    /// The expectations that concern its runs, and how many were missed.
    fn checked(&self) -> (usize, usize) {
        let scenario = &self.entry.scenario;
        let runs = [&self.stock, &self.bcnet];
        let checked = runs.iter().map(|run| run.checked(scenario)).sum();
        (checked, runs.iter().map(|run| run.missed(scenario).len()).sum())
    }
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Verdict> {
    let stops = travel(library::built_in()?, args.seed);
    let (checked, missed) =
        stops.iter().map(Stop::checked).fold((0, 0), |(all, bad), (a, b)| (all + a, bad + b));
    if let Some(path) = &args.report {
        let name = || path.display().to_string();
        fs::write(path, report::html(&stops, checked, missed)).with_context(name)?;
        eprintln!("bcnet: report written to {}", name());
    }
    if args.json {
        writeln!(out, "{}", summary(&stops, checked, missed))?;
    } else {
        table(out, &stops)?;
        complaints(out, &stops)?;
        writeln!(out, "{} of {checked} expectations met in {} runs", checked - missed, 2 * stops.len())?;
    }
    Ok(if missed == 0 { Verdict::Clean } else { Verdict::Findings })
}

/// Runs everything twice, on all cores.
fn travel(entries: Vec<Entry>, seed: Option<u64>) -> Vec<Stop> {
    let jobs: Vec<(usize, Kind)> =
        (0..entries.len()).flat_map(|entry| [(entry, Kind::Stock), (entry, Kind::Bcnet)]).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Vec<Mutex<Option<Outcome>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((entry, engine)) = jobs.get(number) else { break };
            let options = Options { engine: Some(*engine), seed, ..Options::default() };
            let outcome = bcnet_lab::run(&entries[*entry].scenario, &options);
            if let Ok(mut place) = outcomes[number].lock() {
                *place = Some(outcome);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len(), &entries[*entry].name);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut outcomes = outcomes.into_iter().filter_map(|place| place.into_inner().ok().flatten());
    let pair = |entry| Some(Stop { entry, stock: outcomes.next()?, bcnet: outcomes.next()? });
    entries.into_iter().filter_map(pair).collect()
}

fn progress(done: usize, all: usize, name: &str) {
    if io::stderr().is_terminal() {
        eprint!(
            "\r{done}/{all} {name:30}{}",
            if done == all { "\r                                      \r" } else { "" }
        );
    }
}

fn table(out: &mut impl Write, stops: &[Stop]) -> io::Result<()> {
    let rows: Vec<Row<'_>> = stops.iter().filter_map(Stop::row).collect();
    let width = rows.iter().map(|row| row.claim.label.chars().count()).max().unwrap_or(0);
    let names = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    writeln!(
        out,
        "{:width$}  {:>10}  {:>10}  {:10}  {:>8}  {:7}  scenario",
        "fault", "stock", "bcnet", "", "factor", "claim"
    )?;
    for row in &rows {
        let value = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
        writeln!(
            out,
            "{:width$}  {:>10}  {:>10}  {:10}  {:>8}  {:7}  {:names$}",
            row.claim.label,
            value(row.stock),
            value(row.bcnet),
            row.claim.unit,
            row.factor_text(),
            row.claim.verdict.to_string(),
            row.name,
        )?;
    }
    Ok(())
}

fn complaints(out: &mut impl Write, stops: &[Stop]) -> io::Result<()> {
    for Stop { entry, stock, bcnet } in stops {
        for outcome in [stock, bcnet] {
            for missed in outcome.missed(&entry.scenario) {
                let (path, engine) = (&entry.path, outcome.engine);
                let bcnet_lab::Missed { line, figure, expected, seen } = missed;
                writeln!(out, "{path}:{line}: {engine}: {figure}: expected {expected}, seen {seen}")?;
            }
        }
    }
    Ok(())
}

fn summary(stops: &[Stop], checked: usize, missed: usize) -> Json {
    let rows = stops.iter().filter_map(Stop::row).map(|row| {
        json!({
            "scenario": row.name,
            "fault": row.claim.label,
            "unit": row.claim.unit,
            "stock": row.stock,
            "bcnet": row.bcnet,
            "factor": row.factor(),
            "source": row.claim.source,
            "claim": row.claim.says,
            "verdict": row.claim.verdict.to_string(),
            "finding": row.claim.finding,
        })
    });
    let runs = stops.iter().flat_map(|stop| {
        [&stop.stock, &stop.bcnet].map(|run| json::run(&stop.entry, run, &run.missed(&stop.entry.scenario)))
    });
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "runs": runs.collect::<Vec<_>>(),
        "expectations": checked,
        "missed": missed,
    })
}

/// A number for people: three digits, thousands apart.
pub(super) fn number(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 100.0 {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        return format!("{value:.digits$}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}
