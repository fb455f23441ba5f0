//! `bcnet lab replay`: replays a captured session on either engine.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use bcnet_lab::scenario::EngineKind;
use bcnet_lab::{Faults, NodeSample, RunOptions, RunSummary, Scenario};
use serde_json::{Value as Json, json};

use super::number_format::format_number;
use super::output::OutputArgs;
use super::page::{self, escape_html, section};
use super::parallel;
use super::plot::{self, AxisLabels, PlotSeries};
use super::recording::Recording;
use crate::CommandStatus;
use crate::number_format::pluralize;

#[derive(clap::Args)]
#[command(after_help = "\
The command takes every payload that a player or the host handed to its engine from the capture, with its time and size, and hands it to engines \
on a virtual network. All players are connected from the beginning. By default the delay of that network is half of the median time from messages \
to their ACKs, and its loss is the fraction of messages that were retransmitted.")]
pub(super) struct Args {
    /// A capture, or a packet log
    #[arg(value_name = "CAPTURE")]
    capture: PathBuf,

    /// Run only this engine: stock or bcnet
    #[arg(long)]
    engine: Option<EngineKind>,

    /// One-way delay in seconds
    #[arg(long, value_name = "SECONDS")]
    delay: Option<f64>,

    /// Fraction of datagrams that are lost, at least 0 and less than 1
    #[arg(long, value_name = "SHARE")]
    loss: Option<f64>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The recording and the runs on each engine.
struct ReplayResult {
    name: String,
    recording: Recording,
    delay: f64,
    loss: f64,
    summaries: Vec<RunSummary>,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    let replay = ReplayResult::run(args)?;
    args.output.write_results(
        out,
        || replay.to_html(),
        || replay.to_json(),
        |out| replay.write_table(out),
    )?;
    Ok(CommandStatus::Clean)
}

impl ReplayResult {
    fn run(args: &Args) -> anyhow::Result<Self> {
        let recording = Recording::read(&args.capture)?;
        let name = args.capture.display().to_string();
        let delay = args.delay.unwrap_or_else(|| recording.delay().map_or(0.05, |delay| delay.as_secs_f64()));
        let loss = args.loss.unwrap_or_else(|| recording.loss());
        ensure!((0.0..10.0).contains(&delay), "--delay {delay}: must be at least 0 and less than 10 seconds");
        ensure!((0.0..1.0).contains(&loss), "--loss {loss}: must be at least 0 and less than 1");
        let faults = Faults { delay: Duration::from_secs_f64(delay), loss, ..Faults::default() };
        let clients: Vec<String> = recording.clients.iter().map(ToString::to_string).collect();
        let scenario = Scenario::from_recording(&name, &clients, faults, recording.messages.clone());
        let engines: Vec<EngineKind> = match args.engine {
            Some(engine) => vec![engine],
            None => vec![EngineKind::Stock, EngineKind::Bcnet],
        };
        let options = |engine| RunOptions { engine: Some(engine), seed: args.seed, ..RunOptions::default() };
        let outcomes = parallel::run_all(&engines, |engine| bcnet_lab::run(&scenario, &options(*engine)));
        Ok(Self { name, recording, delay, loss, summaries: outcomes })
    }

    fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let Recording { clients, messages, .. } = &self.recording;
        writeln!(
            out,
            "{}: {}, {}",
            self.name,
            pluralize(clients.len(), "player"),
            pluralize(messages.len(), "payload")
        )?;
        writeln!(
            out,
            "{:.0} ms one-way delay, {:.2} % of datagrams lost",
            self.delay * 1e3,
            self.loss * 100.0
        )?;
        let titles: Vec<&str> = COLUMN_TITLES.to_vec();
        write!(out, "  {:9}", "")?;
        titles.iter().try_for_each(|title| write!(out, " {title:>10}"))?;
        writeln!(out)?;
        for (name, figures) in self.rows() {
            write!(out, "  {name:9}")?;
            for figure in figures {
                write!(out, " {:>10}", figure.map_or_else(|| "-".into(), format_number))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// Returns a row for the capture, and one for each engine.
    fn rows(&self) -> Vec<(&'static str, [Option<f64>; COLUMN_TITLES.len()])> {
        let Recording { datagrams, bytes, ack_bytes, retransmissions: repeats, .. } = self.recording;
        let counts = [datagrams, bytes, ack_bytes, repeats].map(|count| Some(count as f64));
        let mut captured = [None; COLUMN_TITLES.len()];
        captured[..4].copy_from_slice(&counts);
        let mut rows = vec![("captured", captured)];
        for outcome in &self.summaries {
            let total = outcome.total_counters();
            let queues = &total.queues;
            rows.push((
                outcome.engine.name(),
                [
                    Some(total.datagrams as f64),
                    Some(total.bytes as f64),
                    Some(total.ack_bytes as f64),
                    Some(total.retransmits as f64),
                    outcome.delay_quantile(None, 0.5),
                    outcome.delay_quantile(None, 0.99),
                    outcome.delay_quantile(None, 1.0),
                    Some(queues.peak_acks as f64),
                    Some(queues.peak_retx as f64),
                    Some(queues.peak_first as f64),
                    Some(total.missing as f64),
                ],
            ));
        }
        rows
    }

    fn to_json(&self) -> Json {
        let row = |(name, figures): (&str, [Option<f64>; COLUMN_TITLES.len()])| {
            let figures = COLUMN_TITLES
                .iter()
                .zip(figures)
                .map(|(title, figure)| (title.replace(' ', "_"), json!(figure)));
            json!({"engine": name, "figures": figures.collect::<serde_json::Map<_, _>>()})
        };
        json!({
            "capture": self.name,
            "players": self.recording.clients.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "payloads": self.recording.messages.len(),
            "delay": self.delay,
            "loss": self.loss,
            "rows": self.rows().into_iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn to_html(&self) -> String {
        let mut page = page::page_head("The session on both engines");
        let text = format!(
            "<p class=\"lead\"><code>{}</code>: {}, {}, replayed on the original engine and on bcnet's on a virtual network with {:.0} ms in each \
            direction and {:.2} % loss.</p>",
            escape_html(&self.name),
            pluralize(self.recording.clients.len(), "player"),
            pluralize(self.recording.messages.len(), "payload"),
            self.delay * 1e3,
            self.loss * 100.0
        );
        page += &text;
        page += &self.table_html();
        let queue = |length: fn(&NodeSample) -> usize| {
            let line = |outcome: &RunSummary| {
                let points = outcome.samples.iter().map(|sample| {
                    let all: usize = sample.nodes.iter().map(length).sum();
                    (sample.at.as_micros() as f64 / 1e6, all as f64)
                });
                points.collect()
            };
            let series = self.summaries.iter().map(|outcome| PlotSeries {
                name: outcome.engine.name(),
                class: outcome.engine.name(),
                points: line(outcome),
            });
            plot::lines(&AxisLabels { x: "seconds", y: "entries, all nodes" }, &series.collect::<Vec<_>>())
        };
        page += &section("ACKs in the outboxes", "", &queue(|node| node.queues.acks), "");
        page += &section("Unacknowledged messages", "", &queue(|node| node.queues.retx), "");
        page += &section("Delay of each reliable message", "", &self.delay_plot(), "");
        page + page::PAGE_END
    }

    fn table_html(&self) -> String {
        let mut html = String::from("<div class=\"scroll wide\"><table><thead><tr><th></th>");
        html.extend(COLUMN_TITLES.iter().map(|title| format!("<th class=\"n\">{title}</th>")));
        html += "</tr></thead><tbody>";
        for (name, figures) in self.rows() {
            let cells = figures.map(|figure| figure.map_or_else(|| "–".into(), format_number));
            let cells: String = cells.iter().map(|cell| format!("<td class=\"n\">{cell}</td>")).collect();
            html += &format!("<tr><td>{name}</td>{cells}</tr>");
        }
        html + "</tbody></table></div>"
    }

    fn delay_plot(&self) -> String {
        let series = self.summaries.iter().map(|outcome| {
            let step = outcome.delays.len().div_ceil(MAX_DOTS).max(1);
            let slowest = outcome.delays.len().saturating_sub(MAX_DOTS / 4);
            let shown = outcome.delays.iter().enumerate().filter(|(i, _)| *i >= slowest || i % step == 0);
            let points =
                shown.map(|(_, delay)| (delay.at.as_micros() as f64 / 1e6, f64::from(delay.micros) / 1e3));
            PlotSeries { name: outcome.engine.name(), class: outcome.engine.name(), points: points.collect() }
        });
        plot::dots(&AxisLabels { x: "seconds", y: "milliseconds to delivery" }, &series.collect::<Vec<_>>())
    }
}

const COLUMN_TITLES: [&str; 11] = [
    "datagrams",
    "bytes",
    "ACK bytes",
    "repeats",
    "p50 ms",
    "p99 ms",
    "max ms",
    "ackQ max",
    "retxQ max",
    "firstQ max",
    "missing",
];
/// Maximum number of dots of each engine in a plot.
const MAX_DOTS: usize = 1500;
