//! A summary for programs: the same numbers as JSON.

use bcnet_observe::{AckLives, Conversation, Count, Totals, Traffic};
use bcnet_session::game::Opcode;
use serde_json::{Map, Value, json};

use super::lives::{self, Lives};
use super::summary::short_name;
use super::tally::Tally;
use super::{End, Evidence, FilePart};

/// Returns the whole of it. `counts` are those of conversations and of GameSpy datagrams.
pub(super) fn summary(
    end: &End<'_>,
    talks: &[Conversation<'_>],
    totals: Option<&Totals>,
    tally: &Tally,
    (conversations, gamespy): (u64, u64),
) -> Value {
    let mut whole = json!({
        "file": end.name, "packets": end.packets, "bytes": end.bytes, "conversations": conversations,
        "gamespy": gamespy, "not_looked_at": end.skipped.to_string(), "left_out": end.left_out(),
        "totals": totals.map(all),
        "list": talks.iter().map(conversation).collect::<Vec<_>>(),
        "findings": findings(tally, end),
    });
    if let Some(whole) = whole.as_object_mut().filter(|_| !end.files.is_empty()) {
        whole.insert("files".into(), end.files.iter().map(file).collect());
    }
    whole
}

/// Returns which packets are in one of several files.
fn file(FilePart { name, first, last, packets }: &FilePart) -> Value {
    json!({ "file": **name, "first": first, "last": last, "packets": packets })
}

fn all(totals: &Totals) -> Value {
    let Totals { clients, hosts, dropped_acks: [client, host], kept_acks: [client_kept, host_kept], .. } =
        totals;
    json!({ "clients": side(clients, client, client_kept), "hosts": side(hosts, host, host_kept) })
}

fn conversation(talk: &Conversation<'_>) -> Value {
    let lives = Lives::of(talk);
    let sides = talk.sides().into_iter().zip(lives.dropped).zip(lives.kept).map(|((of, dropped), kept)| {
        let mut figures = side(talk.traffic(of), &dropped, &kept);
        if let Some(figures) = figures.as_object_mut() {
            figures.insert("name".into(), short_name(talk, of).into());
            figures.insert("address".into(), talk.address(of).to_string().into());
            let trip = talk.round_trip(of).map(|trip| trip.as_secs_f64());
            figures.insert("round_trip".into(), trip.into());
        }
        figures
    });
    json!({ "seconds": talk.last().since(talk.started()).as_secs_f64(), "sides": sides.collect::<Vec<_>>() })
}

/// Returns what one side, or several together, have sent.
fn side(traffic: &Traffic, dropped: &AckLives, kept: &AckLives) -> Value {
    let opcodes: Map<String, Value> = traffic
        .opcodes()
        .map(|(opcode, sent)| {
            let name = Opcode(opcode).name().map_or_else(|| format!("0x{opcode:02X}"), str::to_owned);
            (name, count(sent))
        })
        .collect();
    json!({
        "datagrams": traffic.datagrams, "bytes": traffic.bytes, "malformed": traffic.malformed,
        "acks": count(traffic.acks), "stale_acks": count(traffic.stale_acks),
        "part_acks": count(traffic.fragment_acks), "dropped_acks": lives::to_json(dropped),
        "kept_acks": lives::to_json(kept), "retransmissions": count(traffic.retransmissions),
        "keepalives": count(traffic.keepalives), "control": count(traffic.control),
        "data": count(traffic.data), "parts": count(traffic.fragments), "opcodes": opcodes,
    })
}

fn count(count: Count) -> Value {
    json!({ "messages": count.messages, "bytes": count.bytes })
}

fn findings(tally: &Tally, end: &End<'_>) -> Vec<Value> {
    let place_of = |place: Evidence| {
        let mut json = json!({ "packet": place.number, "offset": place.offset });
        if let Some(file) = end.file_of(place) {
            json["file"] = file.into();
        }
        json
    };
    let of = |tallied: &super::tally::Tallied| {
        let place = tallied.place.map(place_of);
        json!({
            "finding": tallied.first.what.name(), "title": tallied.kind.title, "fault": tallied.kind.weight > 0,
            "count": tallied.count,
            "first": {
                "place": place, "by": tallied.who, "text": tallied.first.what.to_string(),
                "after": tallied.first.at.as_micros().saturating_sub(end.start) as f64 / 1e6,
            },
        })
    };
    tally.ranked().into_iter().map(of).collect()
}
