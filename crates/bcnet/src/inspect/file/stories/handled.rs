//! What each side does with every ACK that it gets, as a hook in the original engine told it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{HandledAck, Observer};
use bcnet_transport::Time;
use serde_json::json;

use super::super::summary::short_name;
use super::super::{End, Sink};
use super::{Span, Stage, check_peer};
use crate::queue_dump::{handled_line, message_id};

pub(super) struct HandledAcks<W> {
    stage: Stage<W>,
    span: Span,
    /// What is known and not printed, in the order of time: who answers late is known late.
    waiting: BTreeMap<(Time, u64), String>,
    count: u64,
}

impl<W: Write> HandledAcks<W> {
    pub(super) fn new(stage: Stage<W>) -> Self {
        Self { stage, span: Span::default(), waiting: BTreeMap::new(), count: 0 }
    }

    /// Prints what came before `until`; if too much waits, the oldest of it.
    fn print(&mut self, until: Time) -> io::Result<()> {
        let is_due = |waiting: &BTreeMap<(Time, u64), String>| {
            waiting.first_key_value().is_some_and(|((at, _), _)| *at < until) || waiting.len() > MAX_WAITING
        };
        while is_due(&self.waiting)
            && let Some((_, line)) = self.waiting.pop_first()
        {
            writeln!(self.stage.out, "{line}")?;
        }
        Ok(())
    }

    fn text(&self, handled: &HandledAck, observer: &Observer) -> Option<String> {
        let talk = observer.conversation(handled.conversation)?;
        let (side, micros) = (handled.side, handled.at.as_micros());
        if self.stage.json {
            let line = json!({
                "time": micros as f64 / 1e6,
                "packet": handled.mark,
                "by": talk.address(side).to_string(),
                "from": talk.address(side.other()).to_string(),
                "peer": talk.peer(side.other()).map(|id| id.0),
                "handled": message_id(&handled.id),
                "cleared": handled.cleared().is_some(),
                "retx": handled.waiting.len(),
                "waiting": handled.waiting.iter().map(message_id).collect::<Vec<_>>(),
            });
            return Some(line.to_string());
        }
        let (by, from) = (short_name(&talk, side), short_name(&talk, side.other()));
        let remark = format!("{by}, from {from}, packet {}", handled.mark);
        Some(handled_line(handled, Duration::from_micros(micros), &remark))
    }
}

impl<W: Write> Sink for HandledAcks<W> {
    fn follows_acks(&self) -> bool {
        true
    }

    fn before(&mut self, next: Time, _: &Observer) -> io::Result<()> {
        self.span.note(next.as_micros());
        self.print(Time::from_micros(next.as_micros().saturating_sub(LATE)))
    }

    fn handled(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        let Some(talk) = observer.conversation(handled.conversation) else { return Ok(()) };
        let filter = &self.stage.filter;
        let start = self.span.start.unwrap_or(0);
        let wanted = filter.wants_talk(&talk)
            && filter.wants_time(handled.at.as_micros(), start)
            && filter.wants_seq(Some(handled.id.seq));
        if wanted && let Some(text) = self.text(handled, observer) {
            self.count += 1;
            self.waiting.insert((handled.at, self.count), text);
        }
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        check_peer(&self.stage.filter, end.observer)?;
        self.print(Time::from_micros(u64::MAX))?;
        self.stage.out.flush()
    }
}

/// A side that lives sends a keepalive sooner, which shows what it has read.
const LATE: u64 = 10_000_000;
const MAX_WAITING: usize = 1 << 16;
