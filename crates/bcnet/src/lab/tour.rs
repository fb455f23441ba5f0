//! `bcnet lab tour`: runs every scenario on both engines and writes one table and one report.

use std::io::{self, Write};
use std::time::Duration;

use bcnet_lab::scenario::{EngineKind, ScenarioClaim};
use bcnet_lab::{RunCounters, RunOptions, RunSummary};
use serde_json::{Value as Json, json};

use super::library::{self, NamedScenario};
use super::number_format::format_number;
use super::output::OutputArgs;
use super::{SEEDS, json, parallel, tour_report};
use crate::CommandStatus;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Seed of all random numbers
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,
}

/// A scenario with its runs on both engines.
pub(super) struct ScenarioRuns {
    pub(super) entry: NamedScenario,
    pub(super) stock: EngineRuns,
    pub(super) bcnet: EngineRuns,
}

/// Runs of one scenario on one engine. A scenario with random traffic or faults has one run for each seed.
pub(super) struct EngineRuns(Vec<RunSummary>);

impl EngineRuns {
    /// Returns the run with the first seed.
    pub(super) fn first(&self) -> &RunSummary {
        &self.0[0]
    }

    /// Returns the sum of the counters of all nodes in all runs.
    pub(super) fn total_counters(&self) -> RunCounters {
        let mut total = RunCounters::default();
        self.0.iter().for_each(|run| total += run.total_counters());
        total
    }

    /// Returns a quantile of the delays of reliable payloads over all runs.
    pub(super) fn delay_quantile(&self, from: Option<usize>, share: f64) -> Option<f64> {
        RunSummary::pooled_delay_quantile(&self.0, from, share)
    }
}

/// A row of the table of claims: the measurement that tests a claim, on both engines.
pub(super) struct ClaimRow<'a> {
    pub(super) name: &'a str,
    pub(super) claim: &'a ScenarioClaim,
    pub(super) stock: Option<f64>,
    pub(super) bcnet: Option<f64>,
    /// Number of seeds.
    seeds: usize,
}

impl ClaimRow<'_> {
    /// Returns the ratio of the stock value to the bcnet value; `None` if one is missing or bcnet's is 0.
    pub(super) fn factor(&self) -> Option<f64> {
        let (stock, bcnet) = (self.stock?, self.bcnet?);
        (bcnet > 0.0).then(|| stock / bcnet)
    }

    /// Returns the label of the measurement, with a star if it is pooled from several seeds.
    fn marked_label(&self) -> String {
        let star = if self.seeds > 1 { " *" } else { "" };
        format!("{}{star}", self.claim.label)
    }

    /// Returns the factor as text.
    pub(super) fn factor_text(&self) -> String {
        match (self.stock, self.bcnet) {
            _ if !self.claim.shows_factor => String::new(),
            (Some(stock), Some(bcnet)) if stock == bcnet => "=".into(),
            (Some(_), Some(0.0)) => "gone".into(),
            _ => self.factor().map_or_else(|| "-".into(), |factor| format!("{}x", format_number(factor))),
        }
    }
}

impl ScenarioRuns {
    pub(super) fn claim_row(&self) -> Option<ClaimRow<'_>> {
        let claim = self.entry.scenario.claim.as_ref()?;
        let value = |runs: &EngineRuns| claim.measurement.evaluate_runs(&runs.0);
        let (stock, bcnet) = (value(&self.stock), value(&self.bcnet));
        Some(ClaimRow { name: &self.entry.name, claim, stock, bcnet, seeds: self.stock.0.len() })
    }

    /// Returns all runs.
    fn runs(&self) -> impl Iterator<Item = &RunSummary> {
        self.stock.0.iter().chain(&self.bcnet.0)
    }

    /// Returns the number of expectations that apply to the runs, and the number of missed ones.
    fn expectation_counts(&self) -> (usize, usize) {
        let scenario = &self.entry.scenario;
        let checked = self.runs().map(|run| run.expectation_count(scenario)).sum();
        (checked, self.runs().map(|run| run.missed_expectations(scenario).len()).sum())
    }
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    let mut entries = library::load_all()?;
    let own = entries.iter().any(|entry| !library::is_built_in(&entry.name));
    // Built-in scenarios without claims and expectations only serve other measurements.
    entries.retain(|entry| own || entry.scenario.claim.is_some() || !entry.scenario.expectations.is_empty());
    let stops = run_scenarios(entries, args.seed);
    let (checked, missed) = stops
        .iter()
        .map(ScenarioRuns::expectation_counts)
        .fold((0, 0), |(all, bad), (a, b)| (all + a, bad + b));
    let page = || {
        let html = if own { tour_report::custom_html } else { tour_report::html };
        html(&stops, checked, missed)
    };
    let tables = |out: &mut _| write_tables(out, &stops, own, (checked, missed));
    args.output.write_results(out, page, || summary_json(&stops, checked, missed), tables)?;
    Ok(if missed == 0 { CommandStatus::Clean } else { CommandStatus::Findings })
}

fn write_tables(
    out: &mut impl Write,
    stops: &[ScenarioRuns],
    own: bool,
    (checked, missed): (usize, usize),
) -> io::Result<()> {
    if stops.iter().any(|stop| stop.claim_row().is_some()) {
        write_claims(out, stops)?;
    }
    if own {
        write_scenarios(out, stops)?;
    }
    write_missed(out, stops)?;
    let runs = stops.iter().flat_map(ScenarioRuns::runs).count();
    writeln!(out, "* pooled from {SEEDS} seeds")?;
    writeln!(out, "{} of {checked} expectations met in {runs} runs", checked - missed)
}

/// Runs all scenarios on both engines, on all cores.
fn run_scenarios(entries: Vec<NamedScenario>, seed: Option<u64>) -> Vec<ScenarioRuns> {
    let jobs: Vec<RunJob> =
        entries.iter().enumerate().flat_map(|(at, entry)| RunJob::for_scenario(at, entry, seed)).collect();
    let run = |job: &RunJob| {
        let options = RunOptions { engine: Some(job.engine), seed: Some(job.seed), ..RunOptions::default() };
        bcnet_lab::run(&entries[job.entry].scenario, &options)
    };
    let mut outcomes = parallel::run_all(&jobs, run).into_iter();
    let pair = |entry: NamedScenario| {
        let seeds = seed_count(&entry);
        let mut runs = || EngineRuns(outcomes.by_ref().take(seeds).collect());
        ScenarioRuns { entry, stock: runs(), bcnet: runs() }
    };
    entries.into_iter().map(pair).collect()
}

/// One run of a scenario.
struct RunJob {
    entry: usize,
    engine: EngineKind,
    seed: u64,
}

impl RunJob {
    /// Returns all runs of one scenario, grouped by engine.
    fn for_scenario(number: usize, entry: &NamedScenario, seed: Option<u64>) -> Vec<Self> {
        let (first, seeds) = (seed.unwrap_or(entry.scenario.seed), seed_count(entry) as u64);
        let each = |engine| {
            (0..seeds).map(move |next| Self { entry: number, engine, seed: first.wrapping_add(next) })
        };
        each(EngineKind::Stock).chain(each(EngineKind::Bcnet)).collect()
    }
}

/// Returns the number of seeds for a scenario.
///
/// A scenario without randomness needs one. So does random traffic on a perfect link for more than an hour.
fn seed_count(entry: &NamedScenario) -> usize {
    let scenario = &entry.scenario;
    let is_short = scenario.duration <= MAX_POOLED_DURATION;
    let pooled = scenario.has_random_links() || scenario.has_traffic_patterns() && is_short;
    if pooled { SEEDS as usize } else { 1 }
}

fn write_claims(out: &mut impl Write, stops: &[ScenarioRuns]) -> io::Result<()> {
    let rows: Vec<ClaimRow<'_>> = stops.iter().filter_map(ScenarioRuns::claim_row).collect();
    let width = rows.iter().map(|row| row.marked_label().chars().count()).max().unwrap_or(0);
    let names = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    writeln!(
        out,
        "{:width$}  {:>10}  {:>10}  {:10}  {:>8}  {:7}  scenario",
        "fault", "stock", "bcnet", "", "factor", "claim"
    )?;
    for row in &rows {
        let value = |value: Option<f64>| value.map_or_else(|| "-".into(), format_number);
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

/// Writes a table of all scenarios, with or without a claim.
fn write_scenarios(out: &mut impl Write, stops: &[ScenarioRuns]) -> io::Result<()> {
    let width = stops.iter().map(|stop| stop.entry.name.len()).max().unwrap_or(0).max(8);
    writeln!(
        out,
        "{:width$}  {:>14}  {:>14}  {:>12}  {:>12}  {:>9}",
        "scenario", "ACK B, stock", "bcnet", "p99 ms, stock", "bcnet", "missed"
    )?;
    for stop in stops {
        let bytes = |runs: &EngineRuns| format_number(runs.total_counters().ack_bytes as f64);
        let delay =
            |runs: &EngineRuns| runs.delay_quantile(None, 0.99).map_or_else(|| "-".into(), format_number);
        let (stock, bcnet) = (&stop.stock, &stop.bcnet);
        writeln!(
            out,
            "{:width$}  {:>14}  {:>14}  {:>13}  {:>12}  {:>9}",
            stop.entry.name,
            bytes(stock),
            bytes(bcnet),
            delay(stock),
            delay(bcnet),
            stop.expectation_counts().1
        )?;
    }
    Ok(())
}

fn write_missed(out: &mut impl Write, stops: &[ScenarioRuns]) -> io::Result<()> {
    for stop in stops {
        for outcome in stop.runs() {
            for missed in outcome.missed_expectations(&stop.entry.scenario) {
                let (path, engine, seed) = (&stop.entry.path, outcome.engine, outcome.seed);
                let bcnet_lab::CheckedExpectation { line, measurement, expected, seen, .. } = missed;
                writeln!(
                    out,
                    "{path}:{line}: {engine}, seed {seed}: {measurement}: expected {expected}, measured {seen}"
                )?;
            }
        }
    }
    Ok(())
}

fn summary_json(stops: &[ScenarioRuns], checked: usize, missed: usize) -> Json {
    let rows = stops.iter().filter_map(ScenarioRuns::claim_row).map(|row| {
        json!({
            "scenario": row.name,
            "fault": row.claim.label,
            "unit": row.claim.unit,
            "stock": row.stock,
            "bcnet": row.bcnet,
            "factor": row.factor(),
            "seeds": row.seeds,
            "source": row.claim.source,
            "claim": row.claim.statement,
            "verdict": row.claim.verdict.to_string(),
            "finding": row.claim.finding,
        })
    });
    let runs = stops.iter().flat_map(|stop| {
        stop.runs()
            .map(|run| json::run_json(&stop.entry, run, &run.missed_expectations(&stop.entry.scenario)))
    });
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "runs": runs.collect::<Vec<_>>(),
        "expectations": checked,
        "missed": missed,
    })
}

/// Longest scenario that is run with several seeds because of its random traffic.
const MAX_POOLED_DURATION: Duration = Duration::from_secs(3600);
