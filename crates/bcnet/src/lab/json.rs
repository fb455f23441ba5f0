//! Formats runs and dumps as JSON.

use std::io::{self, Write};

use bcnet_lab::stock::SendFlags;
use bcnet_lab::{CheckedExpectation, DumpRecord, RunCounters, RunSummary};
use bcnet_transport::wire::{Channel, MessageId};
use serde_json::{Value as Json, json};

use super::library::NamedScenario;

pub(super) fn write_run(
    out: &mut impl Write,
    entry: &NamedScenario,
    outcome: &RunSummary,
    missed: &[CheckedExpectation],
    all: bool,
) -> io::Result<()> {
    for (node, handled) in &outcome.ack_trace {
        let line = json!({
            "t": seconds(handled.at.as_micros()),
            "node": outcome.nodes[*node].name,
            "peer": handled.peer.0,
            "handled": message_id_json(&handled.id),
            "retx": handled.waiting.len(),
            "waiting": handled.waiting.iter().map(message_id_json).collect::<Vec<_>>(),
            "useful": handled.useful,
        });
        writeln!(out, "{line}")?;
    }
    for taken in &outcome.dumps {
        write_dump(out, outcome, taken)?;
    }
    let mut object = run_json(entry, outcome, missed);
    if all {
        let checked = outcome.check_expectations(&entry.scenario);
        object["checked"] = checked.iter().map(expectation_json).collect();
    }
    writeln!(out, "{object}")
}

pub(super) fn write_dump(out: &mut impl Write, outcome: &RunSummary, taken: &DumpRecord) -> io::Result<()> {
    let retx = taken.dump.retx.iter().map(|entry| {
        json!({
            "seq": entry.seq,
            "channel": channel_name(entry.channel),
            "part": entry.part,
            "retx": entry.retx,
            "interval": round_to_4_digits(f64::from(entry.interval)),
            "age": round_to_4_digits(f64::from(entry.age)),
            "handling": entry.handling.map(send_flags_json),
        })
    });
    let acks = taken.dump.acks.iter().map(|entry| {
        json!({"seq": entry.seq, "channel": channel_name(entry.channel), "part": entry.part, "retx": entry.retx})
    });
    let first = taken.dump.first.iter().map(|entry| {
        json!({
            "seq": entry.seq,
            "channel": channel_name(entry.channel),
            "part": entry.part,
            "age": round_to_4_digits(f64::from(entry.age)),
            "handling": send_flags_json(entry.handling),
        })
    });
    let line = json!({
        "t": seconds(taken.at.as_micros()),
        "node": outcome.nodes[taken.node].name,
        "peer": taken.dump.peer.0,
        "retx": retx.collect::<Vec<_>>(),
        "acks": acks.collect::<Vec<_>>(),
        "first": first.collect::<Vec<_>>(),
        "first_count": taken.dump.first_count,
    });
    writeln!(out, "{line}")
}

pub(super) fn run_json(entry: &NamedScenario, outcome: &RunSummary, missed: &[CheckedExpectation]) -> Json {
    let nodes = outcome.nodes.iter().enumerate().map(|(number, node)| {
        let mut object = counters_json(&node.counters, outcome, Some(number));
        object["node"] = json!(node.name);
        object["engine"] = json!(node.engine.map(|engine| engine.name()));
        object["crash"] = json!(node.crash);
        object
    });
    let nodes: Vec<Json> = nodes.collect();
    let mut object = json!({
        "scenario": entry.name,
        "engine": outcome.engine.name(),
        "seed": outcome.seed,
        "duration": outcome.duration.as_secs_f64(),
        "fingerprint": format!("{:016x}", outcome.fingerprint),
    });
    if let (Some(object), Json::Object(all)) =
        (object.as_object_mut(), counters_json(&outcome.total_counters(), outcome, None))
    {
        object.extend(all);
    }
    object["nodes"] = json!(nodes);
    if let Some(proxy) = &outcome.proxy {
        let RunCounters { datagrams, bytes, acks, ack_bytes, ack_bytes_taken, .. } = proxy.counters;
        object["proxy"] = json!({
            "name": proxy.name,
            "datagrams": datagrams,
            "bytes": bytes,
            "acks": acks,
            "ack_bytes": ack_bytes,
            "ack_bytes_taken": ack_bytes_taken,
        });
    }
    object["expectations"] = json!(outcome.expectation_count(&entry.scenario));
    object["missed"] = missed.iter().map(expectation_json).collect();
    object
}

fn expectation_json(checked: &CheckedExpectation) -> Json {
    let CheckedExpectation { line, meaning: says, met, measurement, expected, seen } = checked;
    json!({"line": line, "says": says, "figure": measurement, "expected": expected, "seen": seen, "met": met})
}

fn counters_json(totals: &RunCounters, outcome: &RunSummary, node: Option<usize>) -> Json {
    let queues = &totals.queues;
    json!({
        "datagrams": totals.datagrams,
        "bytes": totals.bytes,
        "acks": totals.acks,
        "ack_bytes": totals.ack_bytes,
        "ack_bytes_taken": totals.ack_bytes_taken,
        "useful_acks": totals.useful_acks,
        "useless_acks": totals.useless_acks,
        "empty_acks": totals.empty_acks,
        "retransmits": totals.retransmits,
        "keepalives": totals.keepalives,
        "comparisons": totals.comparisons,
        "ack_queue": {"peak": queues.peak_acks, "mean": round_to_4_digits(queues.mean_acks())},
        "retx_queue": {"peak": queues.peak_retx, "mean": round_to_4_digits(queues.mean_retx())},
        "first_queue": {"peak": queues.peak_first, "mean": round_to_4_digits(queues.mean_first())},
        "longest_ack": round_to_4_digits(totals.longest_ack.as_secs_f64()),
        "payloads": totals.payloads,
        "refused": totals.refused,
        "delivered": totals.delivered,
        "missing": totals.missing,
        "garbled": totals.garbled,
        "silent": totals.silent,
        "delay_ms": {"p50": outcome.delay_quantile(node, 0.5), "p99": outcome.delay_quantile(node, 0.99), "max": outcome.delay_quantile(node, 1.0)},
    })
}

fn message_id_json(id: &MessageId) -> Json {
    json!({"seq": id.seq.0, "channel": channel_name(id.channel), "part": id.fragment})
}

fn send_flags_json(handling: SendFlags) -> Json {
    let SendFlags { reliable, urgent, aggregate, mode } = handling;
    json!({"reliable": reliable, "urgent": urgent, "aggregate": aggregate, "mode": mode.code()})
}

fn channel_name(channel: Channel) -> &'static str {
    match channel {
        Channel::Control => "control",
        Channel::Game => "game",
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Rounds a number to four decimals.
fn round_to_4_digits(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
