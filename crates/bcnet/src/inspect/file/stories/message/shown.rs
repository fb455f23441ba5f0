//! The story of a message, for people and as JSON.

use std::io::{self, Write};
use std::net::SocketAddrV4;

use bcnet_transport::wire::Channel;
use serde_json::{Value, json};

use super::super::Span;
use super::{Event, Happened, Story};
use crate::number::counted;

/// Whose message it is: by whom, and for whom.
pub(super) struct Title {
    pub(super) seq: u16,
    pub(super) channel: Channel,
    pub(super) names: [String; 2],
    pub(super) addresses: [SocketAddrV4; 2],
}

pub(super) fn write(
    out: &mut impl Write,
    title: &Title,
    story: &Story,
    span: &Span,
    json: bool,
) -> io::Result<()> {
    if json {
        for event in &story.events {
            writeln!(out, "{}", event_json(title, event))?;
        }
        return writeln!(out, "{}", end_json(title, story));
    }
    let Title { seq, channel, names: [by, to], addresses: [from_address, to_address] } = title;
    writeln!(out, "{} seq={seq}, {by} ({from_address}) to {to} ({to_address})", channel.name())?;
    for event in story.events.iter().filter(|event| !matches!(event.what, Happened::Handled { .. })) {
        let packet = event.packet.map_or_else(String::new, |packet| packet.to_string());
        let time = span.since_start(event.at.as_micros());
        writeln!(out, "{packet:>7} {time:>11.6}  {}", line(title, story, event))?;
    }
    if story.left_out > 0 {
        writeln!(out, "  {} more events are not shown", story.left_out)?;
    }
    for (part, (times, _)) in &story.sends {
        let what = part.map_or_else(|| "the message".into(), |part| format!("part {part}"));
        let acks = story.acks.get(part).copied().unwrap_or(0);
        let cleared = match story.spans.get(part) {
            Some((first, Some(cleared))) => {
                format!("cleared {:.3} s after its first sending", cleared.since(*first).as_secs_f64())
            }
            Some((_, None)) | None => "not cleared by any of them".into(),
        };
        let of_this_form = if acks == 0 { "never acknowledged".into() } else { counted(acks, "ACK") };
        writeln!(out, "  {what}: sent {}, {of_this_form}, {cleared}", counted(*times, "time"))?;
    }
    writeln!(out)
}

fn line(title: &Title, story: &Story, event: &Event) -> String {
    let [by, to] = &title.names;
    match &event.what {
        Happened::Sent { times, is_new, text, .. } => {
            let again = match times {
                1 if *is_new => "sends another message under this number: ".into(),
                1 => "sends ".into(),
                _ => format!("sends again, {times} times now: "),
            };
            format!("{by} {again}{text}")
        }
        Happened::Acked { part, times } => {
            let part = part.map_or_else(String::new, |part| format!(" part={part}"));
            let times = if *times > 1 { format!(", {times} times now") } else { String::new() };
            format!("{to} sends the ACK{part}{times}: {}", effect(by, story, event))
        }
        Happened::Handled { .. } => effect(by, story, event),
        Happened::Found(what) => format!("! {what}"),
    }
}

/// Returns what an ACK does to the message.
fn effect(by: &str, story: &Story, ack: &Event) -> String {
    let same = |event: &&Event| {
        let parts = match (&event.what, &ack.what) {
            (Happened::Handled { part, .. }, Happened::Acked { part: acked, .. }) => part == acked,
            _ => false,
        };
        parts && event.packet == ack.packet
    };
    match story.events.iter().find(same).map(|event| &event.what) {
        Some(Happened::Handled { cleared: true, waiting, .. }) => {
            format!("clears it, retxQ {waiting} -> {}", waiting.saturating_sub(1))
        }
        Some(Happened::Handled { waiting, .. }) => format!("nothing to clear, retxQ={waiting}"),
        _ => format!("{by} did not look at it, or it was lost"),
    }
}

fn event_json(title: &Title, event: &Event) -> Value {
    let mut value = head(title);
    value["time"] = (event.at.as_micros() as f64 / 1e6).into();
    value["packet"] = event.packet.into();
    let (name, more) = match &event.what {
        Happened::Sent { part, times, is_new, text } => {
            ("sent", json!({"part": part, "times": times, "other_message": is_new, "text": text}))
        }
        Happened::Acked { part, times } => ("ack", json!({"part": part, "times": times})),
        Happened::Handled { part, cleared, waiting } => {
            ("handled", json!({"part": part, "cleared": cleared, "retx": waiting}))
        }
        Happened::Found(what) => ("finding", json!({"finding": what.name(), "text": what.to_string()})),
    };
    value["event"] = name.into();
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    value
}

fn end_json(title: &Title, story: &Story) -> Value {
    let parts = story.sends.iter().map(|(part, (sends, _))| {
        let span = story.spans.get(part);
        let cleared = span.and_then(|(first, cleared)| Some(cleared.as_ref()?.since(*first).as_secs_f64()));
        let acks = story.acks.get(part).copied().unwrap_or(0);
        json!({"part": part, "sends": sends, "acks": acks, "cleared_after": cleared})
    });
    let mut value = head(title);
    value["event"] = "end".into();
    value["parts"] = parts.collect();
    value["left_out"] = story.left_out.into();
    value
}

fn head(title: &Title) -> Value {
    let [by, to] = title.addresses.map(|address| address.to_string());
    json!({"by": by, "to": to, "channel": title.channel.name(), "seq": title.seq})
}
