//! A run for programs.

use std::io::{self, Write};

use bcnet_lab::stock::Handling;
use bcnet_lab::{CheckedExpectation, DumpRecord, Outcome, Totals};
use bcnet_transport::wire::{Channel, MessageId};
use serde_json::{Value as Json, json};

use super::library::Entry;

pub(super) fn write(
    out: &mut impl Write,
    entry: &Entry,
    outcome: &Outcome,
    missed: &[CheckedExpectation],
    all: bool,
) -> io::Result<()> {
    for (node, handled) in &outcome.trace {
        let line = json!({
            "t": seconds(handled.at.as_micros()),
            "node": outcome.nodes[*node].name,
            "peer": handled.peer.0,
            "handled": message_id(&handled.id),
            "retx": handled.waiting.len(),
            "waiting": handled.waiting.iter().map(message_id).collect::<Vec<_>>(),
            "useful": handled.useful,
        });
        writeln!(out, "{line}")?;
    }
    for taken in &outcome.dumps {
        write_dump(out, outcome, taken)?;
    }
    let mut object = run(entry, outcome, missed);
    if all {
        let checked = outcome.expectations(&entry.scenario);
        object["checked"] = checked.iter().map(expectation).collect();
    }
    writeln!(out, "{object}")
}

pub(super) fn write_dump(out: &mut impl Write, outcome: &Outcome, taken: &DumpRecord) -> io::Result<()> {
    let retx = taken.dump.retx.iter().map(|entry| {
        json!({
            "seq": entry.seq,
            "channel": channel(entry.channel),
            "part": entry.part,
            "retx": entry.retx,
            "interval": short(f64::from(entry.interval)),
            "age": short(f64::from(entry.age)),
            "handling": entry.handling.map(handling),
        })
    });
    let acks = taken.dump.acks.iter().map(|entry| {
        json!({"seq": entry.seq, "channel": channel(entry.channel), "part": entry.part, "retx": entry.retx})
    });
    let first = taken.dump.first.iter().map(|entry| {
        json!({
            "seq": entry.seq,
            "channel": channel(entry.channel),
            "part": entry.part,
            "age": short(f64::from(entry.age)),
            "handling": handling(entry.handling),
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

pub(super) fn run(entry: &Entry, outcome: &Outcome, missed: &[CheckedExpectation]) -> Json {
    let nodes = outcome.nodes.iter().enumerate().map(|(number, node)| {
        let mut object = totals(&node.totals, outcome, Some(number));
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
        (object.as_object_mut(), totals(&outcome.total(), outcome, None))
    {
        object.extend(all);
    }
    object["nodes"] = json!(nodes);
    if let Some(proxy) = &outcome.proxy {
        let Totals { datagrams, bytes, acks, ack_bytes, ack_bytes_taken, .. } = proxy.totals;
        object["proxy"] = json!({
            "name": proxy.name,
            "datagrams": datagrams,
            "bytes": bytes,
            "acks": acks,
            "ack_bytes": ack_bytes,
            "ack_bytes_taken": ack_bytes_taken,
        });
    }
    object["expectations"] = json!(outcome.checked(&entry.scenario));
    object["missed"] = missed.iter().map(expectation).collect();
    object
}

fn expectation(checked: &CheckedExpectation) -> Json {
    let CheckedExpectation { line, says, met, measurement, expected, seen } = checked;
    json!({"line": line, "says": says, "figure": measurement, "expected": expected, "seen": seen, "met": met})
}

fn totals(totals: &Totals, outcome: &Outcome, node: Option<usize>) -> Json {
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
        "ack_queue": {"peak": queues.peak_acks, "mean": short(queues.mean_acks())},
        "retx_queue": {"peak": queues.peak_retx, "mean": short(queues.mean_retx())},
        "first_queue": {"peak": queues.peak_first, "mean": short(queues.mean_first())},
        "longest_ack": short(totals.longest_ack.as_secs_f64()),
        "payloads": totals.payloads,
        "refused": totals.refused,
        "delivered": totals.delivered,
        "missing": totals.missing,
        "garbled": totals.garbled,
        "silent": totals.silent,
        "delay_ms": {"p50": outcome.delay(node, 0.5), "p99": outcome.delay(node, 0.99), "max": outcome.delay(node, 1.0)},
    })
}

fn message_id(id: &MessageId) -> Json {
    json!({"seq": id.seq.0, "channel": channel(id.channel), "part": id.part})
}

fn handling(handling: Handling) -> Json {
    let Handling { reliable, urgent, aggregate, mode } = handling;
    json!({"reliable": reliable, "urgent": urgent, "aggregate": aggregate, "mode": mode.number()})
}

fn channel(channel: Channel) -> &'static str {
    match channel {
        Channel::Control => "control",
        Channel::Game => "game",
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Without digits that nobody needs.
fn short(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
