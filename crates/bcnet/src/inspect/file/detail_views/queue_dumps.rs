//! Prints the queues of both sides at chosen times.

use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{Observer, Side};
use bcnet_transport::Time;

use super::super::filter::CaptureTime;
use super::super::{CaptureEnd, Sink};
use super::{CaptureSpan, DetailContext, check_peer};
use crate::number_format::group_digits;
use crate::queue_dump::QueueDump;

/// The times at which the queues are printed.
#[derive(Debug, Clone)]
pub(super) enum DumpTimes {
    /// At the end of the capture.
    End,
    At(Vec<CaptureTime>),
    /// At this interval in microseconds, from the start on.
    Every(u64),
}

pub(super) struct QueueDumps<W> {
    context: DetailContext<W>,
    times: DumpTimes,
    span: CaptureSpan,
    /// The times that are still to come, the next one last, each with the text of the option.
    due: Vec<(u64, String)>,
    dump_count: u64,
}

impl<W: Write> QueueDumps<W> {
    pub(super) fn new(context: DetailContext<W>, times: DumpTimes) -> Self {
        Self { context, times, span: CaptureSpan::default(), due: Vec::new(), dump_count: 0 }
    }

    /// Computes the times of the dumps, once the start of the capture is known.
    fn schedule(&mut self, start: u64) {
        self.span.extend(start);
        self.due = match &self.times {
            DumpTimes::End => Vec::new(),
            DumpTimes::At(times) => {
                times.iter().map(|time| (time.to_micros(start), time.to_string())).collect()
            }
            DumpTimes::Every(_) => vec![(start, String::new())],
        };
        self.due.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    }

    /// Prints the dumps that are due before `next`.
    fn dump_due(&mut self, next: u64, observer: &Observer) -> io::Result<()> {
        let start = self.span.start.unwrap_or(next);
        while let Some((time, name)) = self.due.pop_if(|(time, _)| *time < next) {
            if time < start {
                return Err(self.span.outside_error(&format!("--at {name}")));
            }
            self.dump(time, observer)?;
            if let DumpTimes::Every(every) = self.times {
                self.due.push((time.saturating_add(every), name));
            }
        }
        Ok(())
    }

    fn dump(&mut self, micros: u64, observer: &Observer) -> io::Result<()> {
        if self.dump_count == 0 && !self.context.json {
            self.context.out.write_all(HEADER.as_bytes())?;
        }
        // With --every, a gap of a year between two packets would cause millions of dumps.
        self.dump_count += 1;
        if self.dump_count > MAX_DUMPS {
            self.context.out.flush()?;
            let text = format!(
                "--every: stopped after {} dumps; choose a longer interval, or use --at",
                group_digits(MAX_DUMPS)
            );
            return Err(io::Error::other(text));
        }
        let mut text = String::new();
        let wanted = observer
            .conversations()
            .filter(|conversation| self.context.filter.wants_conversation(conversation));
        for conversation in wanted {
            for side in [Side::First, Side::Second] {
                let dump = QueueDump::take(observer, conversation, side, Time::from_micros(micros));
                match dump {
                    Some(dump) if self.context.json => {
                        text.push_str(&dump.json(micros).to_string());
                        text.push('\n');
                    }
                    Some(dump) => dump.write(&mut text, Duration::from_micros(micros)),
                    None => {}
                }
            }
        }
        self.context.out.write_all(text.as_bytes())
    }
}

impl<W: Write> Sink for QueueDumps<W> {
    fn before_datagram(&mut self, next: Time, observer: &Observer) -> io::Result<()> {
        let next = next.as_micros();
        if self.span.start.is_none() {
            self.schedule(next);
        }
        self.dump_due(next, observer)?;
        self.span.extend(next);
        Ok(())
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        check_peer(&self.context.filter, end.observer)?;
        let last = self.span.end;
        self.dump_due(last + 1, end.observer)?;
        if matches!(self.times, DumpTimes::End) && self.span.start.is_some() {
            self.dump(last, end.observer)?;
        }
        self.context.out.flush()?;
        match (&self.times, self.due.pop()) {
            (DumpTimes::At(_), Some((_, name))) => Err(self.span.outside_error(&format!("--at {name}"))),
            _ => Ok(()),
        }
    }
}

const MAX_DUMPS: u64 = 100_000;
const HEADER: &str = "\
# Queues as the traffic shows them. Messages that wait for their first send (firstQ)
# are not visible, except fragments of messages that were sent in part.
";
