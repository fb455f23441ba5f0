//! `bcnet lab growth`: measures whether the cost of a session grows with its length.
//!
//! The output shows beside each measurement the number of entries that the document `seed 001` expects.

use std::io::{self, Write};

use anyhow::{Context, ensure};
use bcnet_lab::scenario::{Change, DumpRequest, PeerRef, Variant};
use bcnet_lab::stock::ACK_ENTRY_BYTES;
use bcnet_lab::{DumpRecord, RunOptions, RunSummary, Scenario};
use bcnet_transport::Time;
use serde_json::{Value as Json, json};

use super::number_format::format_number;
use super::output::OutputArgs;
use super::plot::{self, AxisLabels, PlotSeries};
use super::run_time_limit::{self, RunBatch};
use super::{library, page, parallel};
use crate::CommandStatus;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Length of the session in hours, up to 720
    #[arg(long, value_name = "N", default_value_t = 24.0)]
    hours: f64,

    /// Seed of all random numbers
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,

    /// Start even if the runs take minutes
    #[arg(long)]
    yes: bool,
}

/// Result of one variant.
struct GrowthRow {
    name: String,
    samples: Vec<OutboxSample>,
    summary: RunSummary,
}

/// State of the client's outbox at one time.
#[derive(Clone, Copy)]
struct OutboxSample {
    seconds: u64,
    entries: usize,
    /// Maximum number of entries so far.
    peak: usize,
    ack_bytes: u64,
    comparisons: u64,
    /// Reliable messages received.
    messages: u64,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    let hours = args.hours;
    ensure!((0.05..=720.0).contains(&hours), "--hours {hours}: must be 0.05 to 720");
    let rows = run_variants(args)?;
    args.output.write_results(
        out,
        || html(&rows, hours),
        || summary_json(&rows, hours),
        |out| write_tables(out, &rows),
    )?;
    Ok(CommandStatus::Clean)
}

fn run_variants(args: &Args) -> anyhow::Result<Vec<GrowthRow>> {
    let source = library::load_source("battle-day")?;
    let variants =
        library::load_comparison("cures")?.context("the built-in comparison `cures` is missing")?.variants;
    let seconds = (args.hours * 3600.0).round() as u64;
    let duration = Change::new("duration", &seconds.to_string());
    let moments: Vec<u64> = EXPECTED_ENTRIES.iter().map(|(at, _)| *at).chain([86_400, seconds]).collect();
    let mut moments: Vec<u64> = moments.into_iter().filter(|at| *at <= seconds).collect();
    moments.sort_unstable();
    moments.dedup();
    let job = |Variant { name, changes }: Variant| -> anyhow::Result<(String, Scenario)> {
        let mut scenario = source.scenario(&[changes, vec![duration.clone()]].concat())?;
        let find = |wanted: &str| scenario.node_names().position(|name| name == wanted);
        let [client, host] = [CLIENT_NAME, HOST_NAME]
            .map(|name| find(name).with_context(|| format!("the scenario has no node {name}")));
        let (client, host) = (client?, host?);
        // The dump of the host gives the number of messages that it knows to be delivered.
        let of = |at: &u64| {
            let at = Time::from_micros(at * 1_000_000);
            [(client, host), (host, client)].map(|(node, peer)| DumpRequest {
                at,
                node,
                peer: Some(PeerRef::Node(peer)),
            })
        };
        scenario.dumps = moments.iter().flat_map(of).collect();
        Ok((name, scenario))
    };
    let jobs = variants.into_iter().map(job).collect::<anyhow::Result<Vec<_>>>()?;
    if !args.yes {
        let workload = RunBatch::from_variants(jobs.iter().map(|(_, scenario)| (scenario, 1)));
        run_time_limit::check_run_time(&workload.into_iter().collect::<Vec<_>>())?;
    }
    let options = RunOptions { seed: args.seed, ..RunOptions::default() };
    let outcomes = parallel::run_all(&jobs, |(_, scenario)| bcnet_lab::run(scenario, &options));
    let row = |((name, _), outcome): ((String, Scenario), RunSummary)| GrowthRow {
        name,
        samples: read_samples(&outcome),
        summary: outcome,
    };
    Ok(jobs.into_iter().zip(outcomes).map(row).collect())
}

fn read_samples(outcome: &RunSummary) -> Vec<OutboxSample> {
    let of = |name: &str| {
        let node = outcome.nodes.iter().position(|node| node.name == name);
        outcome.dumps.iter().filter(move |taken| Some(taken.node) == node)
    };
    let moment = |(client, host): (&DumpRecord, &DumpRecord)| OutboxSample {
        seconds: client.at.as_micros() / 1_000_000,
        entries: client.dump.acks.len(),
        peak: client.counters.queues.peak_acks,
        ack_bytes: client.counters.ack_bytes,
        comparisons: client.counters.comparisons.unwrap_or(0),
        messages: host.counters.useful_acks,
    };
    of(CLIENT_NAME).zip(of(HOST_NAME)).map(moment).collect()
}

fn write_tables(out: &mut impl Write, rows: &[GrowthRow]) -> io::Result<()> {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(EXPECTS.len());
    let times: Vec<u64> =
        rows.first().into_iter().flat_map(|row| &row.samples).map(|moment| moment.seconds).collect();
    let head = |out: &mut dyn Write, title: &str| {
        writeln!(out, "{title}")?;
        write!(out, "  {:width$}", "")?;
        times.iter().try_for_each(|seconds| write!(out, " {:>14}", format_elapsed(*seconds)))?;
        writeln!(out)
    };
    head(out, "ACKs in the client's outbox now / maximum so far; battle traffic, one client")?;
    write!(out, "  {EXPECTS:width$}")?;
    for seconds in &times {
        let expected = EXPECTED_ENTRIES.iter().find(|(at, _)| at == seconds);
        write!(out, " {:>14}", expected.map_or_else(|| "-".into(), |(_, entries)| format_number(*entries)))?;
    }
    writeln!(out)?;
    let cells: [(&str, GrowthCell); 4] = [
        ("", |moment| format!("{} / {}", moment.entries, moment.peak)),
        ("Bytes of ACKs sent by the client", |moment| format_number(moment.ack_bytes as f64)),
        ("List entries compared by the client, per second", |moment| {
            format_number(moment.comparisons as f64 / moment.seconds.max(1) as f64)
        }),
        ("List entries compared by the client, per reliable message received", |moment| {
            format_number(moment.comparisons as f64 / moment.messages.max(1) as f64)
        }),
    ];
    for (title, cell) in cells {
        if !title.is_empty() {
            writeln!(out)?;
            head(out, title)?;
        }
        for row in rows {
            write!(out, "  {:width$}", row.name)?;
            row.samples.iter().try_for_each(|moment| write!(out, " {:>14}", cell(moment)))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn summary_json(rows: &[GrowthRow], hours: f64) -> Json {
    let row = |row: &GrowthRow| {
        let moments = row.samples.iter().map(|moment| {
            json!({
                "seconds": moment.seconds,
                "entries": moment.entries,
                "peak": moment.peak,
                "memory": moment.entries * ACK_ENTRY_BYTES,
                "ack_bytes": moment.ack_bytes,
                "comparisons": moment.comparisons,
                "messages": moment.messages,
            })
        });
        json!({"variant": row.name, "moments": moments.collect::<Vec<_>>()})
    };
    let seeds = EXPECTED_ENTRIES.iter().map(|(at, entries)| json!({"seconds": at, "entries": entries}));
    json!({"hours": hours, "seed_001": seeds.collect::<Vec<_>>(), "rows": rows.iter().map(row).collect::<Vec<_>>()})
}

fn html(rows: &[GrowthRow], hours: f64) -> String {
    let mut page = page::page_head("Does the cost of a session grow with its length?");
    let classes: Vec<String> = (0..=rows.len()).map(|i| format!("c{}", i % LINE_COLORS)).collect();
    let of_client = |row: &GrowthRow, figure: fn(&bcnet_lab::NodeSample) -> f64| {
        let node = row.summary.nodes.iter().position(|node| node.name == CLIENT_NAME).unwrap_or(0);
        let points = row.summary.samples.iter();
        points
            .map(|sample| (sample.at.as_micros() as f64 / 3.6e9, figure(&sample.nodes[node])))
            .collect::<Vec<_>>()
    };
    let series = |figure: fn(&bcnet_lab::NodeSample) -> f64| -> Vec<PlotSeries<'_>> {
        let lines = rows.iter().zip(&classes);
        lines
            .map(|(row, class)| PlotSeries { name: &row.name, class, points: of_client(row, figure) })
            .collect()
    };
    let peaks = series(|node| node.counters.queues.peak_acks as f64);
    page += &page::section(
        "Longest outbox so far",
        "The maximum number of ACKs in the client's outbox up to each time. In the original an ACK lives for 5.3 seconds \
        while there is traffic, so the longest burst decides, not the length of the session. Lines of equal variants cover each other.",
        &plot::lines(&AxisLabels { x: "hours", y: "ACKs" }, &peaks),
        "bcnet lab growth",
    );
    let mut predicted = peaks;
    predicted.truncate(1);
    let expected = EXPECTED_ENTRIES.iter().filter(|(at, _)| *at as f64 <= hours * 3600.0);
    let points = expected.map(|(at, entries)| (*at as f64 / 3600.0, *entries)).collect();
    predicted.push(PlotSeries { name: EXPECTS, class: "c11", points });
    page += &page::section(
        "Comparison with the prediction",
        "The same line of the original, and the numbers that seed 001 expected after 2 and 30 minutes, 2 and 4 hours.",
        &plot::lines(&AxisLabels { x: "hours", y: "ACKs" }, &predicted),
        "bcnet lab run growth",
    );
    page += &page::section(
        "Bytes of ACKs",
        "Bytes of ACKs that the client has sent so far. The lines are straight: every hour costs the same.",
        &plot::lines(
            &AxisLabels { x: "hours", y: "kilobytes" },
            &series(|node| node.counters.ack_bytes as f64 / 1e3),
        ),
        "",
    );
    page + page::PAGE_END
}

fn format_elapsed(seconds: u64) -> String {
    match seconds {
        ..3600 => format!("{} min", format_number(seconds as f64 / 60.0)),
        _ => format!("{} h", format_number(seconds as f64 / 3600.0)),
    }
}

/// Function that formats one cell of a table.
type GrowthCell = fn(&OutboxSample) -> String;

/// The client whose outbox is measured, and its host.
const CLIENT_NAME: &str = "kirk";
const HOST_NAME: &str = "host";
const EXPECTS: &str = "seed 001 expects";
/// Number of entries that seed 001 expects after a number of seconds.
const EXPECTED_ENTRIES: [(u64, f64); 4] = [(120, 13.0), (1800, 600.0), (7200, 2400.0), (14_400, 6000.0)];
/// Number of line colours in the style sheet that are used.
const LINE_COLORS: usize = 11;
