//! How often each side sent its ACKs, and how long it kept them: are they ever dropped?

use bcnet_observe::{AckLives, Conversation};
use serde_json::{Value, json};

use crate::number::thousands;

/// The ACKs of two sides: those that they have dropped, and those that they had not at the end.
#[derive(Clone, Copy)]
pub(super) struct Lives {
    pub(super) dropped: [AckLives; 2],
    pub(super) kept: [AckLives; 2],
}

impl Lives {
    pub(super) fn of(talk: &Conversation<'_>) -> Self {
        let sides = talk.sides();
        Self {
            dropped: sides.map(|side| *talk.ack_lives(side)),
            kept: sides.map(|side| talk.kept_acks(side)),
        }
    }
}

/// Returns rows for two sides: a title and a cell for each.
pub(super) fn rows(Lives { dropped: gone, kept }: Lives) -> Vec<(String, [String; 2])> {
    if gone.iter().chain(&kept).all(|lives| lives.count() == 0) {
        return Vec::new();
    }
    let mut rows = vec![("ACKs dropped from the outbox".into(), gone.map(|lives| number(lives.count())))];
    for place in 0..gone[0].sends.len() {
        let counts = gone.map(|lives| lives.sends[place]);
        if counts != [0, 0] {
            rows.push((title(place), counts.map(number)));
        }
    }
    rows.push(("  most sends of one".into(), gone.map(|lives| number(lives.most.into()))));
    rows.push(("  longest in the outbox".into(), gone.map(|lives| longest(&lives))));
    rows.push(("  on average".into(), gone.map(|lives| average(&lives))));
    rows.push(("ACKs in it at the end".into(), kept.map(|lives| number(lives.count()))));
    if kept.iter().any(|lives| lives.count() > 0) {
        rows.push(("  most sends of one".into(), kept.map(|lives| number(lives.most.into()))));
        rows.push(("  for the longest time".into(), kept.map(|lives| longest(&lives))));
    }
    rows
}

/// Returns the same for programs: how many were sent so many times (the last place has all that were sent more often), the
/// most sends of one, and how long they were kept in seconds.
pub(super) fn to_json(lives: &AckLives) -> Value {
    let count = lives.count();
    let average = (count > 0).then(|| lives.together.as_secs_f64() / count as f64);
    json!({
        "count": count, "sends": lives.sends, "most_sends": lives.most,
        "longest": lives.longest.as_secs_f64(), "average": average,
    })
}

fn title(sends: usize) -> String {
    match sends {
        0 => "  never seen to be sent".into(),
        1 => "  sent once".into(),
        MOST => format!("  sent {MOST} times or more"),
        _ => format!("  sent {sends} times"),
    }
}

fn number(number: u64) -> String {
    if number == 0 { "\u{2013}".into() } else { thousands(number) }
}

fn longest(lives: &AckLives) -> String {
    if lives.count() == 0 { "\u{2013}".into() } else { format!("{:.1} s", lives.longest.as_secs_f64()) }
}

fn average(lives: &AckLives) -> String {
    let count = lives.count();
    if count == 0 {
        return "\u{2013}".into();
    }
    format!("{:.1} s", lives.together.as_secs_f64() / count as f64)
}

/// The last place of the histogram.
const MOST: usize = 19;
