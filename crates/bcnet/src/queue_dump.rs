//! The queues of one side of a conversation, as far as the wire shows them.
//!
//! The text form is that of the stock engine's dumps.

use std::fmt::Write as _;
use std::time::Duration;

use bcnet_observe::{Conversation, HandledAck, PeerQueues, Side};
use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, MessageId};
use serde_json::{Value, json};

/// The queues of one side at one time.
pub(crate) struct QueueDump<'a> {
    pub(crate) conversation: Conversation<'a>,
    pub(crate) side: Side,
    pub(crate) queues: PeerQueues,
    /// The fragments that certainly wait for their first transmission.
    ///
    /// Other unsent messages are not visible on the wire.
    pub(crate) unsent: Vec<MessageId>,
}

impl<'a> QueueDump<'a> {
    /// Takes the queues of a side at `now`.
    pub(crate) fn take(
        observer: &bcnet_observe::Observer,
        conversation: Conversation<'a>,
        side: Side,
        now: Time,
    ) -> Option<Self> {
        let queues = observer.queues(conversation.id(), side, now)?;
        Some(Self { conversation, side, queues, unsent: conversation.unsent_fragments(side, now) })
    }

    /// Appends the dump as text. `wall` is the time since 1970.
    pub(crate) fn write(&self, out: &mut String, wall: Duration) {
        let Self { conversation, side, queues, unsent } = self;
        let _ = writeln!(out, "# {} to {}", conversation.address(*side), conversation.address(side.other()));
        if self.has_uncertain_acks() {
            out.push_str(
                "# not known yet whether this side repeats its ACKs: ACKs that were sent may no longer be in the queue\n",
            );
        }
        let text = queues.to_string();
        let (head, entries) = text.split_once('\n').unwrap_or((&text, ""));
        let first = if unsent.is_empty() { String::new() } else { format!(" firstQ>={}", unsent.len()) };
        let _ = writeln!(out, "[{}] {head}{first}", format_time_of_day(wall));
        if !entries.is_empty() {
            let _ = writeln!(out, "{entries}");
        }
        for (index, MessageId { seq, fragment, .. }) in unsent.iter().enumerate() {
            let fragment = fragment.unwrap_or(0);
            let _ =
                writeln!(out, "  first[{index}] seq=0x{:04X} frag=1 idx={fragment} below32=0 rel=1", seq.0);
        }
    }

    /// Returns whether the dump shows ACKs that may be gone: only a stock engine keeps sent ACKs.
    fn has_uncertain_acks(&self) -> bool {
        self.conversation.repeats_acks(self.side).is_none()
            && self.queues.acks.iter().any(|ack| ack.sends > 0)
    }

    /// Returns the dump as JSON, with its time in microseconds.
    pub(crate) fn json(&self, micros: u64) -> Value {
        let Self { conversation, side, queues, unsent } = self;
        let retransmit = queues.retransmit.iter().map(|message| {
            let mut entry = message_id_json(&message.id);
            entry["retx"] = message.retransmissions.into();
            entry["interval"] = message.interval.as_secs_f64().into();
            entry
        });
        let acks = queues.acks.iter().map(|ack| {
            let mut entry = message_id_json(&ack.id);
            entry["retx"] = ack.sends.into();
            entry
        });
        json!({
            "time": micros as f64 / 1e6,
            "of": conversation.address(*side).to_string(),
            "to": conversation.address(side.other()).to_string(),
            "peer": queues.peer.0,
            "retransmit": retransmit.collect::<Vec<_>>(),
            "acks": acks.collect::<Vec<_>>(),
            "first_at_least": unsent.iter().map(message_id_json).collect::<Vec<_>>(),
            "repeats_acks": conversation.repeats_acks(*side),
        })
    }
}

/// Formats a handled ACK, and the messages in the retransmit queue at that time.
///
/// `remark` is at the end of the first line.
pub(crate) fn handled_ack_line(handled: &HandledAck, wall: Duration, remark: &str) -> String {
    let text = handled.to_string();
    let (head, entries) = text.split_once('\n').unwrap_or((&text, ""));
    let gap = if entries.is_empty() { "" } else { "\n" };
    format!("[{}] {head}   # {remark}{gap}{entries}", format_time_of_day(wall))
}

/// Returns the identification of a message as JSON.
pub(crate) fn message_id_json(id: &MessageId) -> Value {
    let channel = match id.channel {
        Channel::Control => "control",
        Channel::Game => "game",
    };
    json!({"channel": channel, "seq": id.seq.0, "part": id.fragment})
}

/// Formats a time of day in UTC, as dumps of the stock engine do.
pub(crate) fn format_time_of_day(wall: Duration) -> String {
    let (seconds, millis) = (wall.as_secs(), wall.subsec_millis());
    format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_day_is_formatted_in_utc() {
        assert_eq!(
            format_time_of_day(Duration::from_millis(86_400_000 * 20_000 + 41_849_975)),
            "11:37:29.975"
        );
    }
}
