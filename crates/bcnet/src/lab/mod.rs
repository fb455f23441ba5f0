//! `bcnet lab`: experiments with the original engine and with bcnet.
//!
//! The crate `bcnet-lab` runs the experiments. This module has the commands, the files and the reports.

mod compare;
mod compare_page;
mod counter_columns;
mod json;
mod library;
mod live;
mod number_format;
mod outbox_growth;
mod output;
mod page;
mod parallel;
mod plot;
mod recording;
mod replay;
mod run_page;
mod run_recorder;
mod run_time_limit;
mod text;
mod tour;
mod tour_report;

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use bcnet_lab::scenario::EngineKind;
use bcnet_lab::{RunOptions, RunSummary};
use bcnet_transport::Time;

use crate::CommandStatus;
use crate::standard_output;
use library::NamedScenario;
use run_recorder::{RunRecorder, TimeWindow};

#[derive(clap::Args)]
#[command(after_help = "\
Scenarios are files; docs/reference/scenarios.md explains every key. The scenarios of the project are built in: name them without a path.

Examples:
  bcnet lab list
  bcnet lab run p01
  bcnet lab run p01 p02 p03 --json
  bcnet lab run battle-loss5 --engine bcnet --seed 7
  bcnet lab dump p01 --at 2.77
  bcnet lab run starvation --write starvation.pcapng --at host
  bcnet lab run starvation --report starvation.html
  bcnet lab growth --report growth.html
  bcnet lab replay evening.pcapng --report evening.html
  bcnet lab compare cures --report cures.html
  bcnet lab tour --report tour.html

Exit codes: 0 all expectations met, 1 some expectation missed, 2 a scenario could not be read.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run scenarios and check their expectations
    Run(RunArgs),
    /// List the scenarios in ./scenarios, or the built-in ones if that directory does not exist
    List,
    /// Run a scenario and print the queues of every node at one time
    Dump(DumpArgs),
    /// Run variants of a scenario and print a comparison table, optionally a page with plots
    Compare(compare::Args),
    /// Run a session for hours with the original, each cure and bcnet, to see whether its cost grows
    Growth(outbox_growth::Args),
    /// Host a game on real UDP with the original engine and its faults, to examine it with other tools
    Host(live::HostArgs),
    /// Join a game on real UDP with the original engine and its faults
    Join(live::JoinArgs),
    /// Replay a captured session on the original engine and on bcnet
    Replay(replay::Args),
    /// Run all scenarios on both engines: one table, and optionally a report with plots
    Tour(tour::Args),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Scenario files, or names of built-in scenarios
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    #[command(flatten)]
    choice: RunChoice,

    /// Print JSON: one object per dump and one per run
    #[arg(long)]
    json: bool,

    /// Print a line for every ACK that an engine handles, with the unacknowledged messages
    #[arg(long)]
    trace: bool,

    /// Print every expectation and its measured value, not only missed ones
    #[arg(long)]
    expectations: bool,

    /// Write all datagrams of the run to a capture, enciphered as in the game
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,

    /// Restrict the capture to the datagrams of this node or of the proxy
    #[arg(long, value_name = "NODE", requires = "write")]
    at: Option<String>,

    /// Write a page about the run: queues over time, delays, single datagrams
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Time range in seconds in which the page shows single datagrams
    #[arg(long, value_name = "FROM..TO", requires = "report")]
    window: Option<TimeWindow>,
}

#[derive(clap::Args)]
struct DumpArgs {
    /// A scenario file, or the name of a built-in scenario
    #[arg(value_name = "FILE")]
    file: String,

    /// Time of the dump, in seconds from the start of the experiment
    #[arg(long, value_name = "T")]
    at: f64,

    #[command(flatten)]
    choice: RunChoice,

    /// Print JSON, one object per peer
    #[arg(long)]
    json: bool,
}

/// Options that choose the engine and the seed of a run.
#[derive(clap::Args, Clone, Copy)]
struct RunChoice {
    /// Engine of nodes whose table names none: stock or bcnet
    #[arg(long)]
    engine: Option<EngineKind>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let mut out = BufWriter::new(standard_output::lock());
    let verdict = match &args.command {
        Command::Run(args) => run_files(args, &mut out)?,
        Command::List => list_scenarios(&mut out)?,
        Command::Dump(args) => dump_queues(args, &mut out)?,
        Command::Compare(args) => compare::run(args, &mut out)?,
        Command::Growth(args) => outbox_growth::run(args, &mut out)?,
        Command::Host(args) => live::host(args, &mut out)?,
        Command::Join(args) => live::join(args, &mut out)?,
        Command::Replay(args) => replay::run(args, &mut out)?,
        Command::Tour(args) => tour::run(args, &mut out)?,
    };
    out.flush()?;
    Ok(verdict)
}

fn run_files(args: &RunArgs, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    // Loads all scenarios before the first run: an error in the last one must not show minutes later.
    let entries = args.files.iter().map(|name| library::load(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let kept = args.write.is_some() || args.report.is_some();
    ensure!(
        !kept || entries.len() == 1,
        "--write and --report work with one scenario at a time; name only one"
    );
    let mut verdict = CommandStatus::Clean;
    for entry in &entries {
        let outcome = run_timed(entry, args)?;
        let missed = outcome.missed_expectations(&entry.scenario);
        if !missed.is_empty() {
            verdict = CommandStatus::Findings;
        }
        if args.json {
            json::write_run(out, entry, &outcome, &missed, args.expectations)?;
        } else {
            text::write_run(out, entry, &outcome, &missed, args.expectations)?;
        }
    }
    Ok(verdict)
}

/// Runs a scenario and prints its speed relative to real time on standard error.
#[allow(clippy::disallowed_methods, reason = "how long a run takes is for people only")]
fn run_timed(entry: &NamedScenario, args: &RunArgs) -> anyhow::Result<RunSummary> {
    let start = Instant::now();
    let outcome = if args.write.is_some() || args.report.is_some() {
        run_recorded(entry, args)?
    } else {
        run_scenario(entry, args.choice, args.trace, None)
    };
    let (took, virtually) = (start.elapsed().as_secs_f64(), outcome.duration + entry.scenario.settle);
    let factor = virtually.as_secs_f64() / took.max(1e-9);
    eprintln!("{}: {:.0} s in {took:.2} s, {factor:.0} times real time", entry.name, virtually.as_secs_f64());
    Ok(outcome)
}

/// Runs a scenario, and writes the capture and the page if requested.
fn run_recorded(entry: &NamedScenario, args: &RunArgs) -> anyhow::Result<RunSummary> {
    let mut record =
        RunRecorder::new(&entry.scenario, args.write.as_deref(), args.at.as_deref(), args.window)?;
    let RunChoice { engine, seed } = args.choice;
    let options = RunOptions { engine, seed, trace: args.trace, dump: None };
    let outcome = bcnet_lab::run_observed(&entry.scenario, &options, |seen| record.on_datagram(seen));
    let hops = record.finish()?;
    if let Some(path) = &args.report {
        output::write_page(path, &run_page::html(entry, &outcome, &hops))?;
    }
    Ok(outcome)
}

fn run_scenario(entry: &NamedScenario, choice: RunChoice, trace: bool, dump: Option<Time>) -> RunSummary {
    let RunChoice { engine, seed } = choice;
    bcnet_lab::run(&entry.scenario, &RunOptions { engine, seed, trace, dump })
}

fn list_scenarios(out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    let entries = library::load_all()?;
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    for NamedScenario { name, scenario, .. } in &entries {
        let verdict = scenario.claim.as_ref().map_or_else(String::new, |claim| claim.verdict.to_string());
        writeln!(out, "{name:width$}  {verdict:7}  {}", scenario.title)?;
    }
    Ok(CommandStatus::Clean)
}

fn dump_queues(args: &DumpArgs, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    let mut entry = library::load(&args.file)?;
    let end = entry.scenario.duration.as_secs_f64();
    ensure!(
        (0.0..=end).contains(&args.at),
        "--at {}: outside the scenario {}, which lasts from 0 to {end} seconds",
        args.at,
        entry.name
    );
    let at = Time::from_micros((args.at * 1e6).round() as u64);
    entry.scenario.dumps.clear();
    let outcome = run_scenario(&entry, args.choice, false, Some(at));
    let dumps = outcome.dumps.iter().filter(|taken| taken.at == at && taken.requested_peer.is_none());
    let mut last = None;
    for taken in dumps {
        if args.json {
            json::write_dump(out, &outcome, taken)?;
            continue;
        }
        if last.replace(taken.node) != Some(taken.node) {
            writeln!(out, "# {}", outcome.nodes[taken.node].name)?;
        }
        writeln!(out, "{}", taken.dump)?;
    }
    Ok(CommandStatus::Clean)
}

/// Number of seeds that are pooled in scenarios with random traffic or faults. Rare delays differ a lot
/// between runs.
const SEEDS: u32 = 20;
