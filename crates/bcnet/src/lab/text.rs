//! Formats a run as text.

use std::io::{self, Write};

use bcnet_lab::{CheckedExpectation, RunCounters, RunSummary};

use super::counter_columns::{COUNTER_COLUMNS, CounterColumn};
use super::library::NamedScenario;

pub(super) fn write_run(
    out: &mut impl Write,
    entry: &NamedScenario,
    outcome: &RunSummary,
    missed: &[CheckedExpectation],
    all: bool,
) -> io::Result<()> {
    let NamedScenario { name, scenario, path } = entry;
    let seconds = outcome.duration.as_secs_f64();
    writeln!(out, "{name}: {} ({}, seed {}, {seconds} s)", scenario.title, outcome.engine, outcome.seed)?;
    for (node, handled) in &outcome.ack_trace {
        let text = handled.to_string();
        let mut lines = text.lines();
        writeln!(out, "{}   # {}", lines.next().unwrap_or_default(), outcome.nodes[*node].name)?;
        lines.try_for_each(|line| writeln!(out, "{line}"))?;
    }
    let mut last = None;
    for taken in &outcome.dumps {
        if last.replace(taken.node) != Some(taken.node) {
            writeln!(out, "# {}", outcome.nodes[taken.node].name)?;
        }
        writeln!(out, "{}", taken.dump)?;
    }
    write_table(out, outcome)?;
    for node in &outcome.nodes {
        if let Some(crash) = &node.crash {
            writeln!(out, "  {} would have crashed: {crash}", node.name)?;
        }
    }
    if all {
        for CheckedExpectation { meaning: says, met, measurement, expected, seen, .. } in
            outcome.check_expectations(scenario)
        {
            let says = says.map(|says| format!("{says}: ")).unwrap_or_default();
            let word = if met { "met" } else { "MISSED" };
            writeln!(out, "  {word:6}  {says}{measurement}: expected {expected}, measured {seen}")?;
        }
    }
    for CheckedExpectation { line, measurement, expected, seen, .. } in missed {
        writeln!(out, "  {path}:{line}: {measurement}: expected {expected}, measured {seen}")?;
    }
    let checked = outcome.expectation_count(scenario);
    writeln!(out, "  {} of {checked} expectations met", checked - missed.len())?;
    writeln!(out)
}

fn write_table(out: &mut impl Write, outcome: &RunSummary) -> io::Result<()> {
    write!(out, "  {:10} {:6}", "node", "engine")?;
    for CounterColumn { title, width, .. } in COUNTER_COLUMNS {
        write!(out, " {title:>width$}")?;
    }
    let (acks, retx, first) = ("ackQ max/⌀", "retxQ max/⌀", "firstQ max/⌀");
    writeln!(out, " {:>11} {acks:>11} {retx:>11} {first:>12} {:>8} {:>8}", "compared", "p50 ms", "p99 ms")?;
    for (number, node) in outcome.nodes.iter().enumerate() {
        let engine = node.engine.map_or("-", |engine| engine.name());
        write_row(out, &node.name, engine, &node.counters, outcome, Some(number))?;
    }
    if outcome.nodes.len() > 1 {
        write_row(out, "all", "", &outcome.total_counters(), outcome, None)?;
    }
    if let Some(proxy) = &outcome.proxy {
        let RunCounters { datagrams, bytes, acks, ack_bytes, ack_bytes_taken, .. } = proxy.counters;
        let name = &proxy.name;
        writeln!(
            out,
            "  {name:10} {:6} {datagrams:>9} {bytes:>9} {acks:>7} {ack_bytes:>9} of {ack_bytes_taken} received bytes of ACKs",
            "proxy"
        )?;
    }
    let total = outcome.total_counters();
    let handled = total.useful_acks + total.useless_acks;
    if handled > 0 {
        let share = 100.0 * total.empty_acks as f64 / handled as f64;
        writeln!(out, "  {share:.0} % of {handled} ACKs arrived while no message was unacknowledged")?;
    }
    Ok(())
}

fn write_row(
    out: &mut impl Write,
    name: &str,
    engine: &str,
    totals: &RunCounters,
    outcome: &RunSummary,
    node: Option<usize>,
) -> io::Result<()> {
    let delay = |share| {
        outcome.delay_quantile(node, share).map_or_else(|| "-".into(), |millis| format!("{millis:.1}"))
    };
    let queue = |peak: usize, mean: f64| format!("{peak}/{mean:.2}");
    write!(out, "  {name:10} {engine:6}")?;
    for CounterColumn { width, value: count, .. } in COUNTER_COLUMNS {
        write!(out, " {:>width$}", count(totals))?;
    }
    writeln!(
        out,
        " {:>11} {:>11} {:>11} {:>12} {:>8} {:>8}",
        totals.comparisons.map_or_else(|| "-".into(), |count| count.to_string()),
        queue(totals.queues.peak_acks, totals.queues.mean_acks()),
        queue(totals.queues.peak_retx, totals.queues.mean_retx()),
        queue(totals.queues.peak_first, totals.queues.mean_first()),
        delay(0.5),
        delay(0.99),
    )
}
