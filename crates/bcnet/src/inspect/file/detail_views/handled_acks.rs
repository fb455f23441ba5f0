//! Prints a line for every received ACK, with its effect on the receiver's retransmit queue.
//!
//! The lines are like the output of a hook in the ACK handler of the original engine.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{HandledAck, Observer};
use bcnet_transport::Time;
use serde_json::json;

use super::super::summary::short_name;
use super::super::{CaptureEnd, Sink};
use super::{CaptureSpan, DetailContext, check_peer};
use crate::queue_dump::{handled_ack_line, message_id_json};

pub(super) struct HandledAckList<W> {
    context: DetailContext<W>,
    span: CaptureSpan,
    /// Lines that are not printed yet, in the order of time: the effect of an ACK may become known late.
    pending_lines: BTreeMap<(Time, u64), String>,
    count: u64,
}

impl<W: Write> HandledAckList<W> {
    pub(super) fn new(context: DetailContext<W>) -> Self {
        Self { context, span: CaptureSpan::default(), pending_lines: BTreeMap::new(), count: 0 }
    }

    /// Prints the lines from before `until`, and the oldest lines beyond [`MAX_PENDING_LINES`].
    fn print_until(&mut self, until: Time) -> io::Result<()> {
        let is_due = |waiting: &BTreeMap<(Time, u64), String>| {
            waiting.first_key_value().is_some_and(|((at, _), _)| *at < until)
                || waiting.len() > MAX_PENDING_LINES
        };
        while is_due(&self.pending_lines)
            && let Some((_, line)) = self.pending_lines.pop_first()
        {
            writeln!(self.context.out, "{line}")?;
        }
        Ok(())
    }

    fn ack_line(&self, handled: &HandledAck, observer: &Observer) -> Option<String> {
        let conversation = observer.conversation(handled.conversation)?;
        let (side, micros) = (handled.side, handled.at.as_micros());
        if self.context.json {
            let line = json!({
                "time": micros as f64 / 1e6,
                "packet": handled.mark,
                "by": conversation.address(side).to_string(),
                "from": conversation.address(side.other()).to_string(),
                "peer": conversation.peer(side.other()).map(|id| id.0),
                "handled": message_id_json(&handled.id),
                "cleared": handled.cleared_position().is_some(),
                "retx": handled.retransmit_queue.len(),
                "waiting": handled.retransmit_queue.iter().map(message_id_json).collect::<Vec<_>>(),
            });
            return Some(line.to_string());
        }
        let (by, from) = (short_name(&conversation, side), short_name(&conversation, side.other()));
        let source = format!("{by}, from {from}, packet {}", handled.mark);
        Some(handled_ack_line(handled, Duration::from_micros(micros), &source))
    }
}

impl<W: Write> Sink for HandledAckList<W> {
    fn wants_handled_acks(&self) -> bool {
        true
    }

    fn before_datagram(&mut self, next: Time, _: &Observer) -> io::Result<()> {
        self.span.extend(next.as_micros());
        self.print_until(Time::from_micros(next.as_micros().saturating_sub(MAX_REPORT_DELAY)))
    }

    fn on_handled_ack(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        let Some(conversation) = observer.conversation(handled.conversation) else { return Ok(()) };
        let filter = &self.context.filter;
        let start = self.span.start.unwrap_or(0);
        let wanted = filter.wants_conversation(&conversation)
            && filter.wants_time(handled.at.as_micros(), start)
            && filter.wants_seq(Some(handled.id.seq));
        if wanted && let Some(text) = self.ack_line(handled, observer) {
            self.count += 1;
            self.pending_lines.insert((handled.at, self.count), text);
        }
        Ok(())
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        check_peer(&self.context.filter, end.observer)?;
        self.print_until(Time::from_micros(u64::MAX))?;
        self.context.out.flush()
    }
}

/// A line is printed when it is this old, in microseconds: no earlier line can follow by then.
///
/// A connected side sends at least a keepalive within this time. Its datagrams show which ACKs it has handled.
const MAX_REPORT_DELAY: u64 = 10_000_000;
const MAX_PENDING_LINES: usize = 1 << 16;
