//! A ladder in text, 80 columns wide, and as JSON.

use std::io::{self, Write};

use bcnet_observe::{Conversation, Side};
use serde_json::json;

use super::super::super::summary::side_name;
use super::super::Span;
use super::{Ladder, Rung};

pub(super) fn write(
    out: &mut impl Write,
    talk: &Conversation<'_>,
    left: Side,
    ladder: &Ladder,
    span: &Span,
) -> io::Result<()> {
    let [one, other] = [left, left.other()].map(|side| side_name(talk, side));
    let width = WIDTH.saturating_sub(one.chars().count());
    writeln!(out, "{:MARGIN$}{one}{other:>width$}", "")?;
    let mut last = None;
    for rung in &ladder.rungs {
        let micros = rung.at.as_micros();
        if let Some(gap) = last.map(|last| micros.saturating_sub(last)).filter(|gap| *gap >= GAP) {
            let text = format!("... {:.1} s", gap as f64 / 1e6);
            writeln!(out, "{:MARGIN$}|{text:^ROOM$}|", "")?;
        }
        last = Some(micros);
        write_rung(out, rung, rung.side == left, span)?;
    }
    if ladder.left_out > 0 {
        let text = format!("{} more; --from, --to and --peer choose", ladder.left_out);
        writeln!(out, "{:MARGIN$}|{text:^ROOM$}|", "")?;
    }
    writeln!(out)
}

fn write_rung(out: &mut impl Write, rung: &Rung, to_right: bool, span: &Span) -> io::Result<()> {
    let time = span.since_start(rung.at.as_micros());
    let lines = wrap(&rung.items);
    let head = lines.first().map_or("", String::as_str);
    let line = "-".repeat((ROOM - 6).saturating_sub(head.chars().count()));
    let arrow = if to_right { format!("--- {head} {line}>") } else { format!("<-- {head} {line}-") };
    writeln!(out, "{:>7} {time:>10.3} |{arrow}|", rung.packet)?;
    for line in lines.iter().skip(1) {
        writeln!(out, "{:MARGIN$}|    {line:<BELOW$}|", "")?;
    }
    for (_, count, text) in &rung.findings {
        let more = if *count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
        let words: Vec<String> = format!("! {text}{more}").split(' ').map(Into::into).collect();
        for line in fold(&words, " ") {
            writeln!(out, "{:MARGIN$}|    {line:<BELOW$}|", "")?;
        }
    }
    Ok(())
}

/// Returns what is in a datagram in lines that fit.
fn wrap(items: &[String]) -> Vec<String> {
    // A long list of ACKs is broken between two of them.
    let words = items.iter().enumerate().flat_map(|(place, item)| {
        let comma = if place + 1 < items.len() { "," } else { "" };
        let text = format!("{item}{comma}");
        if text.len() > ROOM / 2 { text.split(' ').map(Into::into).collect() } else { vec![text] }
    });
    fold(&words.collect::<Vec<String>>(), " ")
}

fn fold(words: &[String], gap: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        let fits = |line: &String| line.chars().count() + gap.len() + word.chars().count() <= ROOM - 8;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) => {
                line.push_str(gap);
                line.push_str(word);
            }
            None => lines.push(word.chars().take(ROOM - 8).collect()),
        }
    }
    lines
}

pub(super) fn write_json(out: &mut impl Write, talk: &Conversation<'_>, ladder: &Ladder) -> io::Result<()> {
    for Rung { packet, at, side, items, findings } in &ladder.rungs {
        let findings = findings
            .iter()
            .map(|(name, count, text)| json!({"finding": name, "count": count, "text": text}))
            .collect::<Vec<_>>();
        let line = json!({
            "conversation": talk.id().0,
            "packet": packet,
            "time": at.as_micros() as f64 / 1e6,
            "from": talk.address(*side).to_string(),
            "to": talk.address(side.other()).to_string(),
            "items": items,
            "findings": findings,
        });
        writeln!(out, "{line}")?;
    }
    if ladder.left_out > 0 {
        writeln!(out, "{}", json!({"conversation": talk.id().0, "left_out": ladder.left_out}))?;
    }
    Ok(())
}

/// What stands left of the drawing: packet and time.
const MARGIN: usize = 19;
/// What fits between the two lines.
const ROOM: usize = 59;
/// What fits there below an arrow.
const BELOW: usize = ROOM - 4;
/// From one line to the other.
const WIDTH: usize = ROOM + 2;
/// A pause that is told, in microseconds.
const GAP: u64 = 1_000_000;
