//! Writes the summary as JSON, with the same numbers.

use bcnet_observe::{AckLifetimes, AggregateCounters, Conversation, MessageCounter, SideCounters};
use bcnet_session::game::Opcode;
use serde_json::{Map, Value, json};

use super::ack_lifetimes::{self, AckLifetimePair};
use super::finding_counts::FindingCounts;
use super::summary::short_name;
use super::{CaptureEnd, MergedFile, PacketLocation};

/// Returns the whole summary. `counts` are the numbers of conversations and of GameSpy datagrams.
pub(super) fn summary_json(
    end: &CaptureEnd<'_>,
    talks: &[Conversation<'_>],
    totals: Option<&AggregateCounters>,
    tally: &FindingCounts,
    (conversations, gamespy): (u64, u64),
) -> Value {
    let mut whole = json!({
        "file": end.name, "packets": end.packets, "bytes": end.bytes, "conversations": conversations,
        "gamespy": gamespy, "not_looked_at": end.skipped.to_string(), "left_out": end.omissions(),
        "totals": totals.map(totals_json),
        "list": talks.iter().map(conversation_json).collect::<Vec<_>>(),
        "findings": findings_json(tally, end),
    });
    if let Some(whole) = whole.as_object_mut().filter(|_| !end.files.is_empty()) {
        whole.insert("files".into(), end.files.iter().map(file_json).collect());
    }
    whole
}

/// Returns the packet numbers and the packet count of one of several files.
fn file_json(MergedFile { name, first, last, packets }: &MergedFile) -> Value {
    json!({ "file": **name, "first": first, "last": last, "packets": packets })
}

fn totals_json(totals: &AggregateCounters) -> Value {
    let AggregateCounters {
        clients,
        hosts,
        dropped_ack_lifetimes: [client, host],
        pending_ack_lifetimes: [client_kept, host_kept],
        ..
    } = totals;
    json!({ "clients": side_json(clients, client, client_kept), "hosts": side_json(hosts, host, host_kept) })
}

fn conversation_json(conversation: &Conversation<'_>) -> Value {
    let lifetimes = AckLifetimePair::of(conversation);
    let sides = conversation.client_and_host().into_iter().zip(lifetimes.dropped).zip(lifetimes.pending).map(
        |((of, dropped), kept)| {
            let mut figures = side_json(conversation.counters(of), &dropped, &kept);
            if let Some(figures) = figures.as_object_mut() {
                figures.insert("name".into(), short_name(conversation, of).into());
                figures.insert("address".into(), conversation.address(of).to_string().into());
                let trip = conversation.rtt(of).map(|trip| trip.as_secs_f64());
                figures.insert("round_trip".into(), trip.into());
            }
            figures
        },
    );
    json!({ "seconds": conversation.last_seen().since(conversation.started()).as_secs_f64(), "sides": sides.collect::<Vec<_>>() })
}

/// Returns the traffic that one side, or several together, have sent.
fn side_json(traffic: &SideCounters, dropped: &AckLifetimes, kept: &AckLifetimes) -> Value {
    let opcodes: Map<String, Value> = traffic
        .opcodes()
        .map(|(opcode, sent)| {
            let name = Opcode(opcode).name().map_or_else(|| format!("0x{opcode:02X}"), str::to_owned);
            (name, count_json(sent))
        })
        .collect();
    json!({
        "datagrams": traffic.datagrams, "bytes": traffic.bytes, "malformed": traffic.malformed,
        "acks": count_json(traffic.acks), "stale_acks": count_json(traffic.stale_acks),
        "part_acks": count_json(traffic.fragment_acks), "dropped_acks": ack_lifetimes::to_json(dropped),
        "kept_acks": ack_lifetimes::to_json(kept), "retransmissions": count_json(traffic.retransmissions),
        "keepalives": count_json(traffic.keepalives), "control": count_json(traffic.control),
        "data": count_json(traffic.data), "parts": count_json(traffic.fragments), "opcodes": opcodes,
    })
}

fn count_json(count: MessageCounter) -> Value {
    json!({ "messages": count.messages, "bytes": count.bytes })
}

fn findings_json(tally: &FindingCounts, end: &CaptureEnd<'_>) -> Vec<Value> {
    let place_of = |place: PacketLocation| {
        let mut json = json!({ "packet": place.number, "offset": place.offset });
        if let Some(file) = end.file_name(place) {
            json["file"] = file.into();
        }
        json
    };
    let of = |stats: &super::finding_counts::FindingStats| {
        let place = stats.first_location.map(place_of);
        json!({
            "finding": stats.first.kind.name(), "title": stats.class.title, "fault": stats.class.severity > 0,
            "count": stats.count,
            "first": {
                "place": place, "by": stats.first_side, "text": stats.first.kind.to_string(),
                "after": stats.first.at.as_micros().saturating_sub(end.start_micros) as f64 / 1e6,
            },
        })
    };
    tally.by_severity().into_iter().map(of).collect()
}
