//! Reports how often each side sent each ACK, and how long the ACK stayed in its outbox.

use bcnet_observe::{AckLifetimes, Conversation};
use serde_json::{Value, json};

use crate::number_format::group_digits;

/// The ACK lifetimes of both sides: of ACKs dropped, and of ACKs pending at the end of the capture.
#[derive(Clone, Copy)]
pub(super) struct AckLifetimePair {
    pub(super) dropped: [AckLifetimes; 2],
    pub(super) pending: [AckLifetimes; 2],
}

impl AckLifetimePair {
    pub(super) fn of(conversation: &Conversation<'_>) -> Self {
        let sides = conversation.client_and_host();
        Self {
            dropped: sides.map(|side| *conversation.dropped_ack_lifetimes(side)),
            pending: sides.map(|side| conversation.pending_ack_lifetimes(side)),
        }
    }
}

/// Returns table rows: a title, and a cell for each side.
pub(super) fn rows(
    AckLifetimePair { dropped: gone, pending: kept }: AckLifetimePair,
) -> Vec<(String, [String; 2])> {
    if gone.iter().chain(&kept).all(|lives| lives.count() == 0) {
        return Vec::new();
    }
    let mut rows = vec![("ACKs dropped from the outbox".into(), gone.map(|lives| count_text(lives.count())))];
    for place in 0..gone[0].by_send_count.len() {
        let counts = gone.map(|lives| lives.by_send_count[place]);
        if counts != [0, 0] {
            rows.push((row_title(place), counts.map(count_text)));
        }
    }
    rows.push(("  most sends of one ACK".into(), gone.map(|lives| count_text(lives.max_sends.into()))));
    rows.push(("  longest in the outbox".into(), gone.map(|lives| longest_text(&lives))));
    rows.push(("  on average".into(), gone.map(|lives| average_text(&lives))));
    rows.push(("ACKs in the outbox at end".into(), kept.map(|lives| count_text(lives.count()))));
    if kept.iter().any(|lives| lives.count() > 0) {
        rows.push(("  most sends of one ACK".into(), kept.map(|lives| count_text(lives.max_sends.into()))));
        rows.push(("  longest in the outbox".into(), kept.map(|lives| longest_text(&lives))));
    }
    rows
}

/// Returns the lifetimes of one side's ACKs as JSON, in seconds.
///
/// Entry `n` of `sends` counts the ACKs that were sent `n` times. The last entry includes ACKs that were sent more
/// often.
pub(super) fn to_json(lives: &AckLifetimes) -> Value {
    let count = lives.count();
    let average = (count > 0).then(|| lives.total_lifetime.as_secs_f64() / count as f64);
    json!({
        "count": count, "sends": lives.by_send_count, "most_sends": lives.max_sends,
        "longest": lives.max_lifetime.as_secs_f64(), "average": average,
    })
}

fn row_title(sends: usize) -> String {
    match sends {
        0 => "  never sent in the capture".into(),
        1 => "  sent once".into(),
        MAX_SENDS => format!("  sent {MAX_SENDS} times or more"),
        _ => format!("  sent {sends} times"),
    }
}

fn count_text(number: u64) -> String {
    if number == 0 { "\u{2013}".into() } else { group_digits(number) }
}

fn longest_text(lives: &AckLifetimes) -> String {
    if lives.count() == 0 { "\u{2013}".into() } else { format!("{:.1} s", lives.max_lifetime.as_secs_f64()) }
}

fn average_text(lives: &AckLifetimes) -> String {
    let count = lives.count();
    if count == 0 {
        return "\u{2013}".into();
    }
    format!("{:.1} s", lives.total_lifetime.as_secs_f64() / count as f64)
}

/// The last index of [`AckLifetimes::by_send_count`].
const MAX_SENDS: usize = 19;
