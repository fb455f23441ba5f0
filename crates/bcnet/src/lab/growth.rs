//! `bcnet lab growth`: does a session get dearer the longer it lasts? The table of seed 001, measured.

use std::io::{self, Write};

use anyhow::{Context, ensure};
use bcnet_lab::scenario::{Change, DumpAt, PeerRef, Variant};
use bcnet_lab::stock::ACK_ENTRY_BYTES;
use bcnet_lab::{DumpRecord, Options, Outcome, Scenario};
use bcnet_transport::Time;
use serde_json::{Value as Json, json};

use super::number::number;
use super::output::Output;
use super::patience::{self, Workload};
use super::plot::{self, Axes, Series};
use super::{library, page, work};
use crate::Verdict;

#[derive(clap::Args)]
pub(super) struct Args {
    /// How long the session lasts, in hours: up to 720
    #[arg(long, value_name = "N", default_value_t = 24.0)]
    hours: f64,

    /// The seed of all chance
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: Output,

    /// Run it even if it takes minutes
    #[arg(long)]
    yes: bool,
}

/// A variant with what came out of it.
struct Row {
    name: String,
    moments: Vec<Moment>,
    outcome: Outcome,
}

/// The client's outbox at one moment.
#[derive(Clone, Copy)]
struct Moment {
    seconds: u64,
    entries: usize,
    /// The most entries so far.
    peak: usize,
    ack_bytes: u64,
    comparisons: u64,
    /// Reliable messages that came.
    messages: u64,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Verdict> {
    let hours = args.hours;
    ensure!((0.05..=720.0).contains(&hours), "--hours {hours}: 0.05 to 720 are possible");
    let rows = rows(args)?;
    args.output.write(out, || html(&rows, hours), || summary(&rows, hours), |out| tables(out, &rows))?;
    Ok(Verdict::Clean)
}

fn rows(args: &Args) -> anyhow::Result<Vec<Row>> {
    let source = library::source("battle-day")?;
    let variants = library::comparison("cures")?.context("the cures are built in")?.variants;
    let seconds = (args.hours * 3600.0).round() as u64;
    let duration = Change::new("duration", &seconds.to_string());
    let moments: Vec<u64> = SEEDS.iter().map(|(at, _)| *at).chain([86_400, seconds]).collect();
    let mut moments: Vec<u64> = moments.into_iter().filter(|at| *at <= seconds).collect();
    moments.sort_unstable();
    moments.dedup();
    let job = |Variant { name, changes }: Variant| -> anyhow::Result<(String, Scenario)> {
        let mut scenario = source.scenario(&[changes, vec![duration.clone()]].concat())?;
        let find = |wanted: &str| scenario.node_names().position(|name| name == wanted);
        let [client, host] = [CLIENT, HOST].map(|name| find(name).with_context(|| format!("no {name}")));
        let (client, host) = (client?, host?);
        // Of the host for what it knows to have arrived.
        let of = |at: &u64| {
            let at = Time::from_micros(at * 1_000_000);
            [(client, host), (host, client)].map(|(node, peer)| DumpAt {
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
        let workload = Workload::of(jobs.iter().map(|(_, scenario)| (scenario, 1)));
        patience::check(&workload.into_iter().collect::<Vec<_>>())?;
    }
    let options = Options { seed: args.seed, ..Options::default() };
    let outcomes = work::all(&jobs, |(_, scenario)| bcnet_lab::run(scenario, &options));
    let row =
        |((name, _), outcome): ((String, Scenario), Outcome)| Row { name, moments: read(&outcome), outcome };
    Ok(jobs.into_iter().zip(outcomes).map(row).collect())
}

fn read(outcome: &Outcome) -> Vec<Moment> {
    let of = |name: &str| {
        let node = outcome.nodes.iter().position(|node| node.name == name);
        outcome.dumps.iter().filter(move |taken| Some(taken.node) == node)
    };
    let moment = |(client, host): (&DumpRecord, &DumpRecord)| Moment {
        seconds: client.at.as_micros() / 1_000_000,
        entries: client.dump.acks.len(),
        peak: client.totals.queues.peak_acks,
        ack_bytes: client.totals.ack_bytes,
        comparisons: client.totals.comparisons.unwrap_or(0),
        messages: host.totals.useful_acks,
    };
    of(CLIENT).zip(of(HOST)).map(moment).collect()
}

fn tables(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(EXPECTS.len());
    let times: Vec<u64> =
        rows.first().into_iter().flat_map(|row| &row.moments).map(|moment| moment.seconds).collect();
    let head = |out: &mut dyn Write, title: &str| {
        writeln!(out, "{title}")?;
        write!(out, "  {:width$}", "")?;
        times.iter().try_for_each(|seconds| write!(out, " {:>14}", clock(*seconds)))?;
        writeln!(out)
    };
    head(out, "ACKs in the client's outbox, and the most so far; a session as in battle, one client")?;
    write!(out, "  {EXPECTS:width$}")?;
    for seconds in &times {
        let expected = SEEDS.iter().find(|(at, _)| at == seconds);
        write!(out, " {:>14}", expected.map_or_else(|| "-".into(), |(_, entries)| number(*entries)))?;
    }
    writeln!(out)?;
    let cells: [(&str, Cell); 4] = [
        ("", |moment| format!("{} / {}", moment.entries, moment.peak)),
        ("Bytes of ACKs that the client has sent", |moment| number(moment.ack_bytes as f64)),
        ("Entries that it has compared, per second", |moment| {
            number(moment.comparisons as f64 / moment.seconds.max(1) as f64)
        }),
        ("Entries that it has compared, for each reliable message that came", |moment| {
            number(moment.comparisons as f64 / moment.messages.max(1) as f64)
        }),
    ];
    for (title, cell) in cells {
        if !title.is_empty() {
            writeln!(out)?;
            head(out, title)?;
        }
        for row in rows {
            write!(out, "  {:width$}", row.name)?;
            row.moments.iter().try_for_each(|moment| write!(out, " {:>14}", cell(moment)))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn summary(rows: &[Row], hours: f64) -> Json {
    let row = |row: &Row| {
        let moments = row.moments.iter().map(|moment| {
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
    let seeds = SEEDS.iter().map(|(at, entries)| json!({"seconds": at, "entries": entries}));
    json!({"hours": hours, "seed_001": seeds.collect::<Vec<_>>(), "rows": rows.iter().map(row).collect::<Vec<_>>()})
}

fn html(rows: &[Row], hours: f64) -> String {
    let mut page = page::head("Does a session get dearer the longer it lasts?");
    let classes: Vec<String> = (0..=rows.len()).map(|i| format!("c{}", i % COLORS)).collect();
    let of_client = |row: &Row, figure: fn(&bcnet_lab::NodeSample) -> f64| {
        let node = row.outcome.nodes.iter().position(|node| node.name == CLIENT).unwrap_or(0);
        let points = row.outcome.samples.iter();
        points
            .map(|sample| (sample.at.as_micros() as f64 / 3.6e9, figure(&sample.nodes[node])))
            .collect::<Vec<_>>()
    };
    let series = |figure: fn(&bcnet_lab::NodeSample) -> f64| -> Vec<Series<'_>> {
        let lines = rows.iter().zip(&classes);
        lines.map(|(row, class)| Series { name: &row.name, class, points: of_client(row, figure) }).collect()
    };
    let peaks = series(|node| node.totals.queues.peak_acks as f64);
    page += &page::section(
        "The longest outbox so far",
        "The most ACKs that were in the client's outbox at once, up to each moment. In the original an ACK lives 5.3 seconds \
         while there is traffic, so the longest burst decides, not the length of the session. Lines of what does the same lie on each other.",
        &plot::lines(&Axes { x: "hours", y: "ACKs" }, &peaks),
        "bcnet lab growth",
    );
    let mut feared = peaks;
    feared.truncate(1);
    let expected = SEEDS.iter().filter(|(at, _)| *at as f64 <= hours * 3600.0);
    let points = expected.map(|(at, entries)| (*at as f64 / 3600.0, *entries)).collect();
    feared.push(Series { name: EXPECTS, class: "c11", points });
    page += &page::section(
        "And as it was feared",
        "The same line of the original beside the numbers that seed 001 expected after 2 and 30 minutes, 2 and 4 hours.",
        &plot::lines(&Axes { x: "hours", y: "ACKs" }, &feared),
        "bcnet lab run growth",
    );
    page += &page::section(
        "Bytes of ACKs",
        "What the client has spent on ACKs so far. The lines are straight: every hour costs the same.",
        &plot::lines(
            &Axes { x: "hours", y: "kilobytes" },
            &series(|node| node.totals.ack_bytes as f64 / 1e3),
        ),
        "",
    );
    page + page::TAIL
}

fn clock(seconds: u64) -> String {
    match seconds {
        ..3600 => format!("{} min", number(seconds as f64 / 60.0)),
        _ => format!("{} h", number(seconds as f64 / 3600.0)),
    }
}

/// What a table shows of a moment.
type Cell = fn(&Moment) -> String;

/// Whose outbox it is, and who it talks to.
const CLIENT: &str = "kirk";
const HOST: &str = "host";
const EXPECTS: &str = "seed 001 expects";
/// After how many seconds seed 001 expects how many entries.
const SEEDS: [(u64, f64); 4] = [(120, 13.0), (1800, 600.0), (7200, 2400.0), (14_400, 6000.0)];
/// How many colours the style sheet has for lines, but for the last.
const COLORS: usize = 11;
