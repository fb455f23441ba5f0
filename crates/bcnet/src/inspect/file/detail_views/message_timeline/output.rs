//! Writes the timeline of a message, for people and as JSON.

use std::io::{self, Write};
use std::net::SocketAddrV4;

use bcnet_transport::wire::Channel;
use serde_json::{Value, json};

use super::super::CaptureSpan;
use super::{MessageEvent, MessageEventKind, MessageTimeline};
use crate::number_format::pluralize;

/// The message of a timeline, with its sender and its receiver.
pub(super) struct TimelineHeader {
    pub(super) seq: u16,
    pub(super) channel: Channel,
    pub(super) names: [String; 2],
    pub(super) addresses: [SocketAddrV4; 2],
}

pub(super) fn write_timeline(
    out: &mut impl Write,
    title: &TimelineHeader,
    timeline: &MessageTimeline,
    span: &CaptureSpan,
    json: bool,
) -> io::Result<()> {
    if json {
        for event in &timeline.events {
            writeln!(out, "{}", event_json(title, event))?;
        }
        return writeln!(out, "{}", end_json(title, timeline));
    }
    let TimelineHeader { seq, channel, names: [by, to], addresses: [from_address, to_address] } = title;
    writeln!(out, "{} seq={seq}, {by} ({from_address}) to {to} ({to_address})", channel.name())?;
    for event in
        timeline.events.iter().filter(|event| !matches!(event.kind, MessageEventKind::AckHandled { .. }))
    {
        let packet = event.packet.map_or_else(String::new, |packet| packet.to_string());
        let time = span.since_start(event.at.as_micros());
        writeln!(out, "{packet:>7} {time:>11.6}  {}", event_line(title, timeline, event))?;
    }
    if timeline.omitted > 0 {
        writeln!(out, "  {} more events not shown", timeline.omitted)?;
    }
    for (part, (times, _)) in &timeline.sends {
        let what = part.map_or_else(|| "the message".into(), |part| format!("part {part}"));
        let acks = timeline.acks.get(part).copied().unwrap_or(0);
        let cleared = match timeline.sent_and_cleared.get(part) {
            Some((first, Some(cleared))) => {
                format!("cleared {:.3} s after its first send", cleared.since(*first).as_secs_f64())
            }
            Some((_, None)) | None => "not cleared by any ACK".into(),
        };
        let of_this_form = if acks == 0 { "never acknowledged".into() } else { pluralize(acks, "ACK") };
        writeln!(out, "  {what}: sent {}, {of_this_form}, {cleared}", pluralize(*times, "time"))?;
    }
    writeln!(out)
}

fn event_line(title: &TimelineHeader, timeline: &MessageTimeline, event: &MessageEvent) -> String {
    let [by, to] = &title.names;
    match &event.kind {
        MessageEventKind::Sent { times, is_new, text, .. } => {
            let again = match times {
                1 if *is_new => "sends another message with this number: ".into(),
                1 => "sends ".into(),
                _ => format!("sends again ({times} times so far): "),
            };
            format!("{by} {again}{text}")
        }
        MessageEventKind::Acked { part, times } => {
            let part = part.map_or_else(String::new, |part| format!(" part={part}"));
            let times = if *times > 1 { format!(" ({times} times so far)") } else { String::new() };
            format!("{to} sends the ACK{part}{times}: {}", ack_effect(by, timeline, event))
        }
        MessageEventKind::AckHandled { .. } => ack_effect(by, timeline, event),
        MessageEventKind::Finding(what) => format!("! {what}"),
    }
}

/// Returns the effect of an ACK on the message.
fn ack_effect(by: &str, timeline: &MessageTimeline, ack: &MessageEvent) -> String {
    let same = |event: &&MessageEvent| {
        let parts = match (&event.kind, &ack.kind) {
            (MessageEventKind::AckHandled { part, .. }, MessageEventKind::Acked { part: acked, .. }) => {
                part == acked
            }
            _ => false,
        };
        parts && event.packet == ack.packet
    };
    match timeline.events.iter().find(same).map(|event| &event.kind) {
        Some(MessageEventKind::AckHandled { cleared: true, waiting, .. }) => {
            format!("clears it, retxQ {waiting} -> {}", waiting.saturating_sub(1))
        }
        Some(MessageEventKind::AckHandled { waiting, .. }) => format!("clears no message, retxQ={waiting}"),
        _ => format!("{by} did not read the ACK, or the ACK was lost"),
    }
}

fn event_json(title: &TimelineHeader, event: &MessageEvent) -> Value {
    let mut value = header_json(title);
    value["time"] = (event.at.as_micros() as f64 / 1e6).into();
    value["packet"] = event.packet.into();
    let (name, more) = match &event.kind {
        MessageEventKind::Sent { part, times, is_new, text } => {
            ("sent", json!({"part": part, "times": times, "other_message": is_new, "text": text}))
        }
        MessageEventKind::Acked { part, times } => ("ack", json!({"part": part, "times": times})),
        MessageEventKind::AckHandled { part, cleared, waiting } => {
            ("handled", json!({"part": part, "cleared": cleared, "retx": waiting}))
        }
        MessageEventKind::Finding(what) => {
            ("finding", json!({"finding": what.name(), "text": what.to_string()}))
        }
    };
    value["event"] = name.into();
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    value
}

fn end_json(title: &TimelineHeader, timeline: &MessageTimeline) -> Value {
    let parts = timeline.sends.iter().map(|(part, (sends, _))| {
        let span = timeline.sent_and_cleared.get(part);
        let cleared = span.and_then(|(first, cleared)| Some(cleared.as_ref()?.since(*first).as_secs_f64()));
        let acks = timeline.acks.get(part).copied().unwrap_or(0);
        json!({"part": part, "sends": sends, "acks": acks, "cleared_after": cleared})
    });
    let mut value = header_json(title);
    value["event"] = "end".into();
    value["parts"] = parts.collect();
    value["left_out"] = timeline.omitted.into();
    value
}

fn header_json(title: &TimelineHeader) -> Value {
    let [by, to] = title.addresses.map(|address| address.to_string());
    json!({"by": by, "to": to, "channel": title.channel.name(), "seq": title.seq})
}
