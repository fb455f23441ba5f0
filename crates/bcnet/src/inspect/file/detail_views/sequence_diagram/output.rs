//! Draws a sequence diagram in text, 80 columns wide, and writes it as JSON.

use std::io::{self, Write};

use bcnet_observe::{Conversation, Side};
use serde_json::json;

use super::super::super::summary::side_name;
use super::super::CaptureSpan;
use super::{DatagramArrow, SequenceDiagram};

pub(super) fn write_diagram(
    out: &mut impl Write,
    conversation: &Conversation<'_>,
    left: Side,
    ladder: &SequenceDiagram,
    span: &CaptureSpan,
) -> io::Result<()> {
    let [one, other] = [left, left.other()].map(|side| side_name(conversation, side));
    let width = OUTER_WIDTH.saturating_sub(one.chars().count());
    writeln!(out, "{:MARGIN$}{one}{other:>width$}", "")?;
    let mut last = None;
    for rung in &ladder.arrows {
        let micros = rung.at.as_micros();
        if let Some(gap) = last.map(|last| micros.saturating_sub(last)).filter(|gap| *gap >= MIN_PAUSE) {
            let text = format!("... {:.1} s", gap as f64 / 1e6);
            writeln!(out, "{:MARGIN$}|{text:^INNER_WIDTH$}|", "")?;
        }
        last = Some(micros);
        write_arrow(out, rung, rung.side == left, span)?;
    }
    if ladder.omitted > 0 {
        let text = format!("{} more; choose with --from, --to and --peer", ladder.omitted);
        writeln!(out, "{:MARGIN$}|{text:^INNER_WIDTH$}|", "")?;
    }
    writeln!(out)
}

fn write_arrow(
    out: &mut impl Write,
    rung: &DatagramArrow,
    to_right: bool,
    span: &CaptureSpan,
) -> io::Result<()> {
    let time = span.since_start(rung.at.as_micros());
    let lines = wrap_items(&rung.items);
    let head = lines.first().map_or("", String::as_str);
    let line = "-".repeat((INNER_WIDTH - 6).saturating_sub(head.chars().count()));
    let arrow = if to_right { format!("--- {head} {line}>") } else { format!("<-- {head} {line}-") };
    writeln!(out, "{:>7} {time:>10.3} |{arrow}|", rung.packet)?;
    for line in lines.iter().skip(1) {
        writeln!(out, "{:MARGIN$}|    {line:<TEXT_WIDTH$}|", "")?;
    }
    for (_, count, text) in &rung.findings {
        let more = if *count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
        let words: Vec<String> = format!("! {text}{more}").split(' ').map(Into::into).collect();
        for line in wrap_words(&words, " ") {
            writeln!(out, "{:MARGIN$}|    {line:<TEXT_WIDTH$}|", "")?;
        }
    }
    Ok(())
}

/// Returns the contents of a datagram in lines that fit between the two vertical lines.
fn wrap_items(items: &[String]) -> Vec<String> {
    // A long list of ACKs is broken between two ACKs.
    let words = items.iter().enumerate().flat_map(|(place, item)| {
        let comma = if place + 1 < items.len() { "," } else { "" };
        let text = format!("{item}{comma}");
        if text.len() > INNER_WIDTH / 2 { text.split(' ').map(Into::into).collect() } else { vec![text] }
    });
    wrap_words(&words.collect::<Vec<String>>(), " ")
}

fn wrap_words(words: &[String], gap: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        let fits = |line: &String| line.chars().count() + gap.len() + word.chars().count() <= INNER_WIDTH - 8;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) => {
                line.push_str(gap);
                line.push_str(word);
            }
            None => lines.push(word.chars().take(INNER_WIDTH - 8).collect()),
        }
    }
    lines
}

pub(super) fn write_diagram_json(
    out: &mut impl Write,
    conversation: &Conversation<'_>,
    ladder: &SequenceDiagram,
) -> io::Result<()> {
    for DatagramArrow { packet, at, side, items, findings } in &ladder.arrows {
        let findings = findings
            .iter()
            .map(|(name, count, text)| json!({"finding": name, "count": count, "text": text}))
            .collect::<Vec<_>>();
        let line = json!({
            "conversation": conversation.id().0,
            "packet": packet,
            "time": at.as_micros() as f64 / 1e6,
            "from": conversation.address(*side).to_string(),
            "to": conversation.address(side.other()).to_string(),
            "items": items,
            "findings": findings,
        });
        writeln!(out, "{line}")?;
    }
    if ladder.omitted > 0 {
        writeln!(out, "{}", json!({"conversation": conversation.id().0, "left_out": ladder.omitted}))?;
    }
    Ok(())
}

/// The width of the text left of the drawing: packet number and time.
const MARGIN: usize = 19;
/// The width between the two vertical lines.
const INNER_WIDTH: usize = 59;
/// The width of the text below an arrow.
const TEXT_WIDTH: usize = INNER_WIDTH - 4;
/// The width including the two vertical lines.
const OUTER_WIDTH: usize = INNER_WIDTH + 2;
/// The shortest pause that is shown, in microseconds.
const MIN_PAUSE: u64 = 1_000_000;
