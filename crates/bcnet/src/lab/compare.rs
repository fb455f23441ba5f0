//! `bcnet lab compare`: runs variants of a scenario and compares them.

use std::io::{self, Write};

use anyhow::{Context, anyhow, ensure};
use bcnet_lab::scenario::{Change, Comparison, Variant};
use bcnet_lab::{RunOptions, RunSummary, Scenario};
use serde_json::{Value as Json, json};

use super::library::{self, ScenarioSource};
use super::number_format::format_number;
use super::output::OutputArgs;
use super::run_time_limit::{self, RunBatch};
use super::{SEEDS, compare_page, parallel};
use crate::CommandStatus;
use crate::number_format::pluralize;

#[derive(clap::Args)]
#[command(after_help = "\
KEY is a key of every node (gate), of one node (host.gate), of every link (link.loss), of the head (engine, duration), or \
proxy (none, pass, heal). Every value of each key is combined with every value of all others; the first combination is \
the baseline.

Examples:
  bcnet lab compare cures
  bcnet lab compare battle-loss5 --vary gate=traffic,always,never \\
    --vary last_ack=3,9
  bcnet lab compare battle --vary engine=stock,bcnet \\
    --vary link.loss=0,0.05,0.2 --report compare.html")]
pub(super) struct Args {
    /// A scenario, by file or name, or the built-in comparison: cures
    #[arg(value_name = "SCENARIO")]
    name: String,

    /// A key and its values, for example gate=traffic,always
    #[arg(long, value_name = "KEY=A,B,…")]
    vary: Vec<String>,

    /// Number of seeds for each variant, if the scenario has random traffic or faults
    #[arg(long, value_name = "N", default_value_t = SEEDS)]
    seeds: u32,

    /// First seed; the default is the seed of the scenario
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,

    /// Start even if the runs take minutes
    #[arg(long)]
    yes: bool,
}

/// Scenarios and variants to compare.
pub(super) struct ComparisonPlan {
    pub(super) title: String,
    pub(super) about: String,
    scenarios: Vec<ScenarioSource>,
    pub(super) variants: Vec<Variant>,
}

/// Results of all variants of one scenario.
pub(super) struct ComparisonTable {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) seeds: usize,
    /// One row for each variant.
    pub(super) rows: Vec<VariantMetrics>,
}

/// Measurements of one variant of a scenario.
#[derive(Clone, Copy)]
pub(super) struct VariantMetrics {
    pub(super) ack_bytes: f64,
    pub(super) ack_bytes_taken: f64,
    pub(super) bytes: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    pub(super) crowded: f64,
    pub(super) longest_ack: f64,
    pub(super) peak_acks: f64,
    pub(super) retransmits: f64,
    pub(super) missing: f64,
}

impl VariantMetrics {
    fn from_runs(runs: &[RunSummary]) -> Self {
        let count = runs.len().max(1) as f64;
        let totals: Vec<_> = runs.iter().map(RunSummary::total_counters).collect();
        let mean =
            |figure: &dyn Fn(&bcnet_lab::RunCounters) -> f64| totals.iter().map(figure).sum::<f64>() / count;
        let delay = |share| RunSummary::pooled_delay_quantile(runs, None, share).unwrap_or(0.0);
        Self {
            ack_bytes: mean(&|total| total.ack_bytes as f64),
            ack_bytes_taken: mean(&|total| total.ack_bytes_taken as f64),
            bytes: mean(&|total| total.bytes as f64),
            p50: delay(0.5),
            p99: delay(0.99),
            max: delay(1.0),
            crowded: mean(&|total| total.crowded as f64),
            longest_ack: totals.iter().map(|total| total.longest_ack.as_secs_f64()).fold(0.0, f64::max),
            peak_acks: totals.iter().map(|total| total.queues.peak_acks as f64).fold(0.0, f64::max),
            retransmits: mean(&|total| total.retransmits as f64),
            missing: mean(&|total| total.missing as f64),
        }
    }

    pub(super) fn columns(&self) -> [(&'static str, f64); 11] {
        [
            ("ACK bytes", self.ack_bytes),
            ("arrive", self.ack_bytes_taken),
            ("all bytes", self.bytes),
            ("p50 ms", self.p50),
            ("p99 ms", self.p99),
            ("max ms", self.max),
            ("crowded", self.crowded),
            ("oldest s", self.longest_ack),
            ("ackQ max", self.peak_acks),
            ("resent", self.retransmits),
            ("missing", self.missing),
        ]
    }

    /// Returns the four measurements of the faults.
    ///
    /// They are the bytes of received ACKs, the 99th percentile of the delay, crowded datagrams, and the
    /// longest ACK lifetime.
    fn fault_metrics(&self) -> [f64; 4] {
        [self.ack_bytes_taken, self.p99, self.crowded, self.longest_ack]
    }

    /// Returns which of the [`fault_metrics`](Self::fault_metrics) show a fault.
    ///
    /// The 99th percentile of the delay is a fault only if it is more than twice the median.
    fn has_faults(&self) -> [bool; 4] {
        [self.ack_bytes_taken > 0.0, self.p99 > 2.0 * self.p50, self.crowded > 0.0, self.longest_ack > 0.0]
    }
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    let plan = build_plan(args)?;
    let sheets = plan.run_variants(args)?;
    let left = remaining_faults(&sheets);
    args.output.write_results(
        out,
        || compare_page::html(&plan, &sheets, &left),
        || summary_json(&plan, &sheets, &left),
        |out| write_tables(out, &plan, &sheets, &left),
    )?;
    Ok(CommandStatus::Clean)
}

fn build_plan(args: &Args) -> anyhow::Result<ComparisonPlan> {
    ensure!((1..=1000).contains(&args.seeds), "--seeds {}: must be 1 to 1000", args.seeds);
    if let Some(comparison) = library::load_comparison(&args.name)? {
        ensure!(
            args.vary.is_empty(),
            "{}: a comparison has its own variants; --vary works only with a scenario",
            args.name
        );
        let Comparison { title, about, scenarios, variants } = comparison;
        let scenarios =
            scenarios.iter().map(|name| library::load_source(name)).collect::<anyhow::Result<_>>()?;
        return Ok(ComparisonPlan { title, about, scenarios, variants });
    }
    let source = library::load_source(&args.name)?;
    ensure!(
        !args.vary.is_empty(),
        "{}: nothing to compare; add a key, for example --vary gate=traffic,always",
        args.name
    );
    let mut variants = vec![Variant { name: String::new(), changes: Vec::new() }];
    for text in &args.vary {
        let values = parse_values(text)?;
        ensure!(
            variants.len() * values.len() <= MAX_VARIANTS,
            "--vary: more than {MAX_VARIANTS} variants; pass fewer values"
        );
        let grid = variants.iter().flat_map(|variant| values.iter().map(|value| with_change(variant, value)));
        variants = grid.collect();
    }
    let title = source.scenario(&[])?.title;
    Ok(ComparisonPlan { title, about: String::new(), scenarios: vec![source], variants })
}

/// Returns a variant with one more changed key.
fn with_change(variant: &Variant, (key, value): &(String, String)) -> Variant {
    let comma = if variant.name.is_empty() { "" } else { ", " };
    let mut changes = variant.changes.clone();
    changes.push(Change::new(key, value));
    Variant { name: format!("{}{comma}{key}={value}", variant.name), changes }
}

/// Returns the key with each of its values.
fn parse_values(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let (key, values) = text.split_once('=').with_context(|| format!("--vary {text}: expected KEY=A,B"))?;
    let values: Vec<_> =
        values.split(',').map(|value| (key.trim().to_owned(), value.trim().to_owned())).collect();
    ensure!(
        values.iter().all(|(key, value)| !key.is_empty() && !value.is_empty()),
        "--vary {text}: a value is empty; expected KEY=A,B"
    );
    Ok(values)
}

/// A variant of a scenario that is ready to run.
struct PreparedVariant {
    scenario: Scenario,
    first_seed: u64,
    seeds: u32,
}

impl ComparisonPlan {
    fn run_variants(&self, args: &Args) -> anyhow::Result<Vec<ComparisonTable>> {
        // Prepares all variants before the first run, so that errors show at once.
        let prepared = self.prepare(args)?;
        let of_source = || prepared.chunks(self.variants.len().max(1));
        if !args.yes {
            let workload = |variants: &[PreparedVariant]| {
                RunBatch::from_variants(variants.iter().map(|variant| (&variant.scenario, variant.seeds)))
            };
            run_time_limit::check_run_time(&of_source().filter_map(workload).collect::<Vec<_>>())?;
        }
        let runs = |variant: usize| (0..u64::from(prepared[variant].seeds)).map(move |next| (variant, next));
        let jobs: Vec<(usize, u64)> = (0..prepared.len()).flat_map(runs).collect();
        let run = |(variant, next): &(usize, u64)| {
            let PreparedVariant { scenario, first_seed, .. } = &prepared[*variant];
            let options = RunOptions { seed: Some(first_seed.wrapping_add(*next)), ..RunOptions::default() };
            without_samples(bcnet_lab::run(scenario, &options))
        };
        let mut outcomes = parallel::run_all(&jobs, run).into_iter();
        let sheet = |(source, variants): (&ScenarioSource, &[PreparedVariant])| {
            let row = |variant: &PreparedVariant| {
                let seeds = variant.seeds as usize;
                VariantMetrics::from_runs(&outcomes.by_ref().take(seeds).collect::<Vec<_>>())
            };
            let (first, rows) = (&variants[0], variants.iter().map(row).collect());
            let (title, seeds) = (first.scenario.title.clone(), first.seeds as usize);
            ComparisonTable { name: source.name.clone(), title, seeds, rows }
        };
        Ok(self.scenarios.iter().zip(of_source()).map(sheet).collect())
    }

    /// Returns every variant of every scenario, grouped by scenario.
    fn prepare(&self, args: &Args) -> anyhow::Result<Vec<PreparedVariant>> {
        let mut prepared = Vec::new();
        for source in &self.scenarios {
            for Variant { name, changes } in &self.variants {
                let scenario = source.scenario(changes).map_err(|error| anyhow!("--vary {name}: {error}"))?;
                let seeds = if scenario.has_random_links() || scenario.has_traffic_patterns() {
                    args.seeds
                } else {
                    1
                };
                prepared.push(PreparedVariant {
                    first_seed: args.seed.unwrap_or(scenario.seed),
                    scenario,
                    seeds,
                });
            }
        }
        Ok(prepared)
    }
}

/// Removes the data of a run that no measurement needs.
pub(super) fn without_samples(mut outcome: RunSummary) -> RunSummary {
    (outcome.samples, outcome.dumps) = (Vec::new(), Vec::new());
    outcome
}

/// Returns for each variant the remaining fraction of the faults of the first variant, the baseline.
///
/// It is the mean over all scenarios and faults that the baseline shows.
fn remaining_faults(sheets: &[ComparisonTable]) -> Vec<Option<f64>> {
    let variants = sheets.first().map_or(0, |sheet| sheet.rows.len());
    let of = |variant: usize| {
        let shares = sheets.iter().flat_map(|sheet| {
            let (first, this) = (&sheet.rows[0], &sheet.rows[variant]);
            let pairs = first.fault_metrics().into_iter().zip(this.fault_metrics()).zip(first.has_faults());
            pairs.filter(|(_, fault)| *fault).map(|((before, after), _)| after / before)
        });
        let shares: Vec<f64> = shares.collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    (0..variants).map(of).collect()
}

fn write_tables(
    out: &mut impl Write,
    plan: &ComparisonPlan,
    sheets: &[ComparisonTable],
    left: &[Option<f64>],
) -> io::Result<()> {
    let width = plan.variants.iter().map(|variant| variant.name.chars().count()).max().unwrap_or(0);
    for ComparisonTable { name, title, seeds, rows } in sheets {
        writeln!(out, "{name}: {title} ({})", pluralize(*seeds, "seed"))?;
        write!(out, "  {:width$}", "")?;
        let titles = rows.first().map(VariantMetrics::columns).into_iter().flatten();
        titles.map(|(title, _)| title).try_for_each(|title| write!(out, " {title:>9}"))?;
        writeln!(out)?;
        for (variant, row) in plan.variants.iter().zip(rows) {
            write!(out, "  {:width$}", variant.name)?;
            row.columns()
                .into_iter()
                .try_for_each(|(_, value)| write!(out, " {:>9}", format_number(value)))?;
            writeln!(out)?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "Remaining faults compared with the first variant (received ACK bytes, p99, crowded datagrams, oldest ACK), on average:"
    )?;
    for (variant, left) in plan.variants.iter().zip(left) {
        let left = left.map_or_else(|| "-".into(), |left| format!("{:.0} %", 100.0 * left));
        writeln!(out, "  {:width$} {left:>9}", variant.name)?;
    }
    Ok(())
}

fn summary_json(plan: &ComparisonPlan, sheets: &[ComparisonTable], left: &[Option<f64>]) -> Json {
    let sheet = |sheet: &ComparisonTable| {
        let rows = plan.variants.iter().zip(&sheet.rows).map(|(variant, row)| {
            let figures =
                row.columns().into_iter().map(|(title, value)| (title.replace(' ', "_"), json!(value)));
            json!({"variant": variant.name, "figures": figures.collect::<serde_json::Map<_, _>>()})
        });
        json!({"scenario": sheet.name, "seeds": sheet.seeds, "rows": rows.collect::<Vec<_>>()})
    };
    let left =
        plan.variants.iter().zip(left).map(|(variant, left)| json!({"variant": variant.name, "left": left}));
    json!({
        "title": plan.title,
        "scenarios": sheets.iter().map(sheet).collect::<Vec<_>>(),
        "left": left.collect::<Vec<_>>(),
    })
}

const MAX_VARIANTS: usize = 10_000;
