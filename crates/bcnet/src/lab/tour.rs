//! `bcnet lab tour`: every scenario on both engines, one table, one report.

use std::io::{self, Write};
use std::time::Duration;

use bcnet_lab::scenario::{Claim, EngineKind};
use bcnet_lab::{Options, Outcome, Totals};
use serde_json::{Value as Json, json};

use super::library::{self, Entry};
use super::number::number;
use super::output::Output;
use super::{SEEDS, json, report, work};
use crate::Verdict;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The seed of all chance
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: Output,
}

/// A scenario with what came out of it on both engines.
pub(super) struct Stop {
    pub(super) entry: Entry,
    pub(super) stock: Runs,
    pub(super) bcnet: Runs,
}

/// The runs of one scenario on one engine: one, or several with different seeds if it leaves something to chance.
pub(super) struct Runs(Vec<Outcome>);

impl Runs {
    /// Returns the one with the first seed.
    pub(super) fn first(&self) -> &Outcome {
        &self.0[0]
    }

    /// Returns what all nodes did in all runs.
    pub(super) fn total(&self) -> Totals {
        let mut total = Totals::default();
        self.0.iter().for_each(|run| total += run.total());
        total
    }

    /// Returns the delay within which this share of all reliable payloads was delivered.
    pub(super) fn delay(&self, from: Option<usize>, share: f64) -> Option<f64> {
        Outcome::pooled_delay(&self.0, from, share)
    }
}

/// One line of the table: the figure of a claim on both engines.
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) claim: &'a Claim,
    pub(super) stock: Option<f64>,
    pub(super) bcnet: Option<f64>,
    /// From how many seeds.
    seeds: usize,
}

impl Row<'_> {
    /// Returns how many times as much it is on stock. Nothing can be told of nothing.
    pub(super) fn factor(&self) -> Option<f64> {
        let (stock, bcnet) = (self.stock?, self.bcnet?);
        (bcnet > 0.0).then(|| stock / bcnet)
    }

    /// Returns what the figure is, with a star if it is from several seeds.
    fn marked_label(&self) -> String {
        let star = if self.seeds > 1 { " *" } else { "" };
        format!("{}{star}", self.claim.label)
    }

    /// Returns the factor for people.
    pub(super) fn factor_text(&self) -> String {
        match (self.stock, self.bcnet) {
            _ if !self.claim.has_factor => String::new(),
            (Some(stock), Some(bcnet)) if stock == bcnet => "=".into(),
            (Some(_), Some(0.0)) => "gone".into(),
            _ => self.factor().map_or_else(|| "-".into(), |factor| format!("{}x", number(factor))),
        }
    }
}

impl Stop {
    pub(super) fn row(&self) -> Option<Row<'_>> {
        let claim = self.entry.scenario.claim.as_ref()?;
        let value = |runs: &Runs| claim.measurement.of_all(&runs.0);
        let (stock, bcnet) = (value(&self.stock), value(&self.bcnet));
        Some(Row { name: &self.entry.name, claim, stock, bcnet, seeds: self.stock.0.len() })
    }

    /// Returns all its runs.
    fn runs(&self) -> impl Iterator<Item = &Outcome> {
        self.stock.0.iter().chain(&self.bcnet.0)
    }

    /// Returns the expectations that concern its runs, and how many were missed.
    fn checked(&self) -> (usize, usize) {
        let scenario = &self.entry.scenario;
        let checked = self.runs().map(|run| run.checked(scenario)).sum();
        (checked, self.runs().map(|run| run.missed(scenario).len()).sum())
    }
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Verdict> {
    let mut entries = library::all()?;
    let own = entries.iter().any(|entry| !library::is_built_in(&entry.name));
    // What of the project's claims and expects nothing is there to be measured by others.
    entries.retain(|entry| own || entry.scenario.claim.is_some() || !entry.scenario.expects.is_empty());
    let stops = travel(entries, args.seed);
    let (checked, missed) =
        stops.iter().map(Stop::checked).fold((0, 0), |(all, bad), (a, b)| (all + a, bad + b));
    let page = || {
        let html = if own { report::own_html } else { report::html };
        html(&stops, checked, missed)
    };
    let tables = |out: &mut _| tables(out, &stops, own, (checked, missed));
    args.output.write(out, page, || summary(&stops, checked, missed), tables)?;
    Ok(if missed == 0 { Verdict::Clean } else { Verdict::Findings })
}

fn tables(
    out: &mut impl Write,
    stops: &[Stop],
    own: bool,
    (checked, missed): (usize, usize),
) -> io::Result<()> {
    if stops.iter().any(|stop| stop.row().is_some()) {
        table(out, stops)?;
    }
    if own {
        plain_table(out, stops)?;
    }
    complaints(out, stops)?;
    let runs = stops.iter().flat_map(Stop::runs).count();
    writeln!(out, "* from {SEEDS} seeds together")?;
    writeln!(out, "{} of {checked} expectations met in {runs} runs", checked - missed)
}

/// Runs everything on both engines, on all cores.
fn travel(entries: Vec<Entry>, seed: Option<u64>) -> Vec<Stop> {
    let jobs: Vec<Job> =
        entries.iter().enumerate().flat_map(|(at, entry)| Job::all(at, entry, seed)).collect();
    let run = |job: &Job| {
        let options = Options { engine: Some(job.engine), seed: Some(job.seed), ..Options::default() };
        bcnet_lab::run(&entries[job.entry].scenario, &options)
    };
    let mut outcomes = work::all(&jobs, run).into_iter();
    let pair = |entry: Entry| {
        let seeds = seeds(&entry);
        let mut runs = || Runs(outcomes.by_ref().take(seeds).collect());
        Stop { entry, stock: runs(), bcnet: runs() }
    };
    entries.into_iter().map(pair).collect()
}

/// One run.
struct Job {
    entry: usize,
    engine: EngineKind,
    seed: u64,
}

impl Job {
    /// Returns all runs of one entry: the engines one after the other.
    fn all(number: usize, entry: &Entry, seed: Option<u64>) -> Vec<Self> {
        let (first, seeds) = (seed.unwrap_or(entry.scenario.seed), seeds(entry) as u64);
        let each = |engine| {
            (0..seeds).map(move |next| Self { entry: number, engine, seed: first.wrapping_add(next) })
        };
        each(EngineKind::Stock).chain(each(EngineKind::Bcnet)).collect()
    }
}

/// Returns how many seeds a scenario is run with. What lasts for hours pools enough by itself.
fn seeds(entry: &Entry) -> usize {
    let scenario = &entry.scenario;
    let is_short = scenario.duration <= MAX_POOLED;
    let pooled = scenario.has_chance() || scenario.has_traffic() && is_short;
    if pooled { SEEDS as usize } else { 1 }
}

fn table(out: &mut impl Write, stops: &[Stop]) -> io::Result<()> {
    let rows: Vec<Row<'_>> = stops.iter().filter_map(Stop::row).collect();
    let width = rows.iter().map(|row| row.marked_label().chars().count()).max().unwrap_or(0);
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
            row.marked_label(),
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

/// What can be told of any scenario, whether it claims something or not.
fn plain_table(out: &mut impl Write, stops: &[Stop]) -> io::Result<()> {
    let width = stops.iter().map(|stop| stop.entry.name.len()).max().unwrap_or(0).max(8);
    writeln!(
        out,
        "{:width$}  {:>14}  {:>14}  {:>12}  {:>12}  {:>9}",
        "scenario", "ACK B, stock", "bcnet", "p99 ms, stock", "bcnet", "missed"
    )?;
    for stop in stops {
        let bytes = |runs: &Runs| number(runs.total().ack_bytes as f64);
        let delay = |runs: &Runs| runs.delay(None, 0.99).map_or_else(|| "-".into(), number);
        let (stock, bcnet) = (&stop.stock, &stop.bcnet);
        writeln!(
            out,
            "{:width$}  {:>14}  {:>14}  {:>13}  {:>12}  {:>9}",
            stop.entry.name,
            bytes(stock),
            bytes(bcnet),
            delay(stock),
            delay(bcnet),
            stop.checked().1
        )?;
    }
    Ok(())
}

fn complaints(out: &mut impl Write, stops: &[Stop]) -> io::Result<()> {
    for stop in stops {
        for outcome in stop.runs() {
            for missed in outcome.missed(&stop.entry.scenario) {
                let (path, engine, seed) = (&stop.entry.path, outcome.engine, outcome.seed);
                let bcnet_lab::CheckedExpectation { line, measurement, expected, seen, .. } = missed;
                writeln!(
                    out,
                    "{path}:{line}: {engine}, seed {seed}: {measurement}: expected {expected}, seen {seen}"
                )?;
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
            "seeds": row.seeds,
            "source": row.claim.source,
            "claim": row.claim.says,
            "verdict": row.claim.verdict.to_string(),
            "finding": row.claim.finding,
        })
    });
    let runs = stops.iter().flat_map(|stop| {
        stop.runs().map(|run| json::run(&stop.entry, run, &run.missed(&stop.entry.scenario)))
    });
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "runs": runs.collect::<Vec<_>>(),
        "expectations": checked,
        "missed": missed,
    })
}

/// Traffic of up to this length is pooled.
const MAX_POOLED: Duration = Duration::from_secs(3600);
