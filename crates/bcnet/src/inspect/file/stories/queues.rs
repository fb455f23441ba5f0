//! The queues of both sides at chosen moments.

use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{Observer, Side};
use bcnet_transport::Time;

use super::super::filter::Moment;
use super::super::{End, Sink};
use super::{Span, Stage, check_peer};
use crate::number::thousands;
use crate::queue_dump::QueueDump;

/// When the queues are printed.
#[derive(Debug, Clone)]
pub(super) enum Times {
    /// When everything was read.
    End,
    At(Vec<Moment>),
    /// So many microseconds apart, from the start on.
    Every(u64),
}

pub(super) struct QueueDumps<W> {
    stage: Stage<W>,
    times: Times,
    span: Span,
    /// The moments that are still to come, the next one last, with what the user has called them.
    due: Vec<(u64, String)>,
    dumps: u64,
}

impl<W: Write> QueueDumps<W> {
    pub(super) fn new(stage: Stage<W>, times: Times) -> Self {
        Self { stage, times, span: Span::default(), due: Vec::new(), dumps: 0 }
    }

    /// The capture begins: now it is known when each moment is.
    fn begin(&mut self, start: u64) {
        self.span.note(start);
        self.due = match &self.times {
            Times::End => Vec::new(),
            Times::At(times) => times.iter().map(|time| (time.on(start), time.to_string())).collect(),
            Times::Every(_) => vec![(start, String::new())],
        };
        self.due.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    }

    /// Prints what is due before `next`.
    fn catch_up(&mut self, next: u64, observer: &Observer) -> io::Result<()> {
        let start = self.span.start.unwrap_or(next);
        while let Some((time, name)) = self.due.pop_if(|(time, _)| *time < next) {
            if time < start {
                return Err(self.span.outside(&format!("--at {name}")));
            }
            self.dump(time, observer)?;
            if let Times::Every(every) = self.times {
                self.due.push((time.saturating_add(every), name));
            }
        }
        Ok(())
    }

    fn dump(&mut self, micros: u64, observer: &Observer) -> io::Result<()> {
        if self.dumps == 0 && !self.stage.json {
            self.stage.out.write_all(HEAD.as_bytes())?;
        }
        // A capture may have a year between two packets.
        self.dumps += 1;
        if self.dumps > MAX_DUMPS {
            self.stage.out.flush()?;
            let text = format!(
                "--every: these are the first {} dumps; choose a longer time between them, or --at",
                thousands(MAX_DUMPS)
            );
            return Err(io::Error::other(text));
        }
        let mut text = String::new();
        let wanted = observer.conversations().filter(|talk| self.stage.filter.wants_talk(talk));
        for talk in wanted {
            for side in [Side::First, Side::Second] {
                let dump = QueueDump::take(observer, talk, side, Time::from_micros(micros));
                match dump {
                    Some(dump) if self.stage.json => {
                        text.push_str(&dump.json(micros).to_string());
                        text.push('\n');
                    }
                    Some(dump) => dump.write(&mut text, Duration::from_micros(micros)),
                    None => {}
                }
            }
        }
        self.stage.out.write_all(text.as_bytes())
    }
}

impl<W: Write> Sink for QueueDumps<W> {
    fn before(&mut self, next: Time, observer: &Observer) -> io::Result<()> {
        let next = next.as_micros();
        if self.span.start.is_none() {
            self.begin(next);
        }
        self.catch_up(next, observer)?;
        self.span.note(next);
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        check_peer(&self.stage.filter, end.observer)?;
        let last = self.span.end;
        self.catch_up(last + 1, end.observer)?;
        if matches!(self.times, Times::End) && self.span.start.is_some() {
            self.dump(last, end.observer)?;
        }
        self.stage.out.flush()?;
        match (&self.times, self.due.pop()) {
            (Times::At(_), Some((_, name))) => Err(self.span.outside(&format!("--at {name}"))),
            _ => Ok(()),
        }
    }
}

const MAX_DUMPS: u64 = 100_000;
const HEAD: &str = "\
# Queues as far as the wire shows them: what waits for its first sending (firstQ)
# is not on it, but for parts whose message has begun.
";
