//! Compares the queues in a [dump log](super::dump_log) with the queues reconstructed from a capture.
//!
//! The timestamp of a dump has a precision of one millisecond. A dump counts as equal if the capture shows the same
//! queues at any moment of this millisecond. Otherwise the moments within [`SEARCH_WINDOW`] are compared, because the
//! two clocks may differ.

mod difference;
mod output;

use std::collections::VecDeque;
use std::io::{self, Write};

use bcnet_observe::{ConversationId, HandledAck, Observer, Side};
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, Role};

use self::difference::QueueDifference;
use super::super::{AnalyzedDatagram, CaptureEnd, Sink};
use super::dump_log::{DumpAuthor, DumpContent, DumpLog, DumpLogRecord};
use super::{CaptureSpan, DetailContext, check_peer};

pub(super) struct DumpComparison<W> {
    context: DetailContext<W>,
    name: String,
    log: DumpLog,
    /// The lead of the capture's clock over the log's clock, in microseconds.
    clock_offset: i64,
    span: CaptureSpan,
    /// The number of the last packet.
    last_packet: u64,
    /// Time and index of each record that is still to be compared, in the order of time.
    due: VecDeque<(u64, usize)>,
    /// The dumps that are being compared: their search window has begun and not ended.
    pending: Vec<PendingComparison>,
    results: Vec<(usize, DumpVerdict)>,
    /// The times of the handled ACKs in the log, sorted.
    logged_ack_times: Vec<u64>,
    /// The handled ACKs of the capture that are close to those of the log.
    handled_acks: Vec<HandledAck>,
    has_differences: bool,
}

/// A dump that is being compared.
struct PendingComparison {
    record: usize,
    /// The beginning of the dump's millisecond, on the clock of the capture.
    at: u64,
    /// The smallest difference within the dump's millisecond, and the packet before that moment.
    best: Option<(QueueDifference, u64)>,
    /// The offset in microseconds of the nearest moment with equal queues outside that millisecond.
    equal_at_offset: Option<i64>,
}

/// The result of comparing a record with the capture.
#[derive(Debug)]
enum DumpVerdict {
    Equal,
    /// Equal at a moment that is this many microseconds later; negative is earlier.
    Shifted(i64),
    /// Different after this packet.
    Different(QueueDifference, u64),
    /// Not comparable, for this reason.
    NotComparable(&'static str),
}

impl<W: Write> DumpComparison<W> {
    pub(super) fn new(context: DetailContext<W>, name: String, log: DumpLog, shift: i64) -> Self {
        Self {
            context,
            name,
            log,
            clock_offset: shift,
            span: CaptureSpan::default(),
            last_packet: 0,
            due: VecDeque::new(),
            pending: Vec::new(),
            results: Vec::new(),
            logged_ack_times: Vec::new(),
            handled_acks: Vec::new(),
            has_differences: false,
        }
    }

    /// Computes the time of each record, once the start of the capture is known.
    fn schedule(&mut self, start: u64) {
        let times = self.log.records.iter().enumerate();
        let mut times: Vec<_> =
            times.map(|(place, record)| (self.capture_time(start, record), place)).collect();
        times.sort_unstable();
        let is_hook =
            |place: usize| matches!(self.log.records[place].content, DumpContent::HandledAck { .. });
        self.logged_ack_times =
            times.iter().filter(|(_, place)| is_hook(*place)).map(|(at, _)| *at).collect();
        self.due = times.into();
    }

    /// Returns the time of a record, on the clock of a capture that begins at `start`.
    fn capture_time(&self, start: u64, record: &DumpLogRecord) -> u64 {
        let today = (start - start % MICROS_PER_DAY + record.micros).saturating_add_signed(self.clock_offset);
        // A time long before the start belongs to the next day.
        if today + MICROS_PER_DAY / 2 < start { today + MICROS_PER_DAY } else { today }
    }

    /// Compares the records between the last packet and `until`. The observer's state is constant in that time.
    fn compare(&mut self, until: u64, observer: &Observer) {
        let since = self.span.end;
        while let Some((at, record)) =
            self.due.pop_front_if(|(at, _)| at.saturating_sub(SEARCH_WINDOW) < until)
        {
            if matches!(self.log.records[record].content, DumpContent::Dump { .. }) {
                self.pending.push(PendingComparison { record, at, best: None, equal_at_offset: None });
            }
        }
        for open in &mut self.pending {
            let millisecond = (open.at, open.at + MILLISECOND);
            let is_here = since < millisecond.1 && until > open.at;
            let near = until > open.at.saturating_sub(SEARCH_WINDOW) && since < millisecond.1 + SEARCH_WINDOW;
            if !near || open.best.as_ref().is_some_and(|(difference, _)| difference.is_empty()) {
                continue;
            }
            let record = &self.log.records[open.record];
            let Ok((conversation, side)) = find_author(&self.log, record, &self.context.filter, observer)
            else {
                continue;
            };
            let at = open.at.clamp(since, until.saturating_sub(1).max(since));
            let Some(queues) = observer.queues(conversation, side, Time::from_micros(at)) else { continue };
            let difference = QueueDifference::of(&record.content, &queues);
            if is_here && open.best.as_ref().is_none_or(|(known, _)| difference.len() < known.len()) {
                open.best = Some((difference, self.last_packet));
            } else if !is_here && difference.is_empty() {
                let by = at.cast_signed() - open.at.cast_signed();
                if open.equal_at_offset.is_none_or(|known| by.abs() < known.abs()) {
                    open.equal_at_offset = Some(by);
                }
            }
        }
        self.decide_finished(until, observer);
    }

    /// Gives a verdict on the dumps whose search window has ended.
    fn decide_finished(&mut self, until: u64, observer: &Observer) {
        let Self { pending: open, results, log, span, context, .. } = self;
        open.retain_mut(|open| {
            if until < open.at + MILLISECOND + SEARCH_WINDOW {
                return true;
            }
            let record = &log.records[open.record];
            let is_outside =
                span.start.is_none_or(|start| open.at + MILLISECOND <= start) || open.at > span.end;
            let verdict = match (open.best.take(), open.equal_at_offset) {
                (Some((difference, _)), _) if difference.is_empty() => DumpVerdict::Equal,
                (_, Some(by)) => DumpVerdict::Shifted(by),
                _ if is_outside => DumpVerdict::NotComparable(OUTSIDE_CAPTURE),
                (Some((difference, packet)), None) => DumpVerdict::Different(difference, packet),
                (None, None) => {
                    let found = find_author(log, record, &context.filter, observer);
                    DumpVerdict::NotComparable(
                        found.err().unwrap_or("the capture shows nothing of this peer before that time"),
                    )
                }
            };
            results.push((open.record, verdict));
            false
        });
    }

    /// Compares each handled ACK of the log with the most similar one of the capture around the same time.
    fn compare_handled(&mut self, observer: &Observer) {
        let mut taken = vec![false; self.handled_acks.len()];
        self.handled_acks.sort_by_key(|handled| handled.at);
        let start = self.span.start.unwrap_or(0);
        for (place, record) in self.log.records.iter().enumerate() {
            let DumpContent::HandledAck { ack, retx } = &record.content else { continue };
            let at = self.capture_time(start, record);
            if at + MILLISECOND + SEARCH_WINDOW < start || at > self.span.end + SEARCH_WINDOW {
                self.results.push((place, DumpVerdict::NotComparable(OUTSIDE_CAPTURE)));
                continue;
            }
            let is_by = |handled: &HandledAck| may_be_author(record.author, handled, observer);
            let time = |handled: &HandledAck| handled.at.as_micros();
            let from = self.handled_acks.partition_point(|handled| time(handled) + SEARCH_WINDOW < at);
            let near = self.handled_acks.iter().enumerate().skip(from);
            let near = near.take_while(|(_, handled)| time(handled) <= at + SEARCH_WINDOW);
            let candidates = near.filter(|(place, handled)| {
                !taken[*place] && difference::acknowledges(ack, handled.id) && is_by(handled)
            });
            let nearest = candidates.min_by_key(|(place, handled)| {
                let difference = QueueDifference::of_retransmit_queue(retx, &handled.retransmit_queue);
                (difference.len(), handled.at.as_micros().abs_diff(at), *place)
            });
            let verdict = match nearest {
                None => DumpVerdict::Different(QueueDifference::missing_ack(), self.last_packet),
                Some((found, handled)) => {
                    taken[found] = true;
                    let difference = QueueDifference::of_retransmit_queue(retx, &handled.retransmit_queue);
                    if difference.is_empty() {
                        DumpVerdict::Equal
                    } else {
                        DumpVerdict::Different(difference, handled.mark)
                    }
                }
            };
            self.results.push((place, verdict));
        }
    }

    /// Returns whether the log has a handled ACK close to this time.
    fn is_near_logged_ack(&self, at: u64) -> bool {
        let next = self.logged_ack_times.partition_point(|hooked| hooked + SEARCH_WINDOW < at);
        self.logged_ack_times.get(next).is_some_and(|hooked| *hooked <= at + SEARCH_WINDOW)
    }
}

impl<W: Write> Sink for DumpComparison<W> {
    fn wants_handled_acks(&self) -> bool {
        self.log.records.iter().any(|record| matches!(record.content, DumpContent::HandledAck { .. }))
    }

    fn before_datagram(&mut self, next: Time, observer: &Observer) -> io::Result<()> {
        let next = next.as_micros();
        if self.span.start.is_none() {
            self.schedule(next);
        } else {
            self.compare(next, observer);
        }
        self.span.extend(next);
        Ok(())
    }

    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        self.last_packet = analyzed.packet.number;
        Ok(())
    }

    fn on_handled_ack(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        let conversation = observer.conversation(handled.conversation);
        let wanted =
            conversation.is_some_and(|conversation| self.context.filter.wants_conversation(&conversation));
        if wanted && self.handled_acks.len() < MAX_HANDLED && self.is_near_logged_ack(handled.at.as_micros())
        {
            self.handled_acks.push(handled.clone());
        }
        Ok(())
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        check_peer(&self.context.filter, end.observer)?;
        let last = self.span.end;
        self.compare(last + MILLISECOND, end.observer);
        self.compare(u64::MAX / 2, end.observer);
        self.compare_handled(end.observer);
        if self
            .results
            .iter()
            .all(|(_, verdict)| matches!(verdict, DumpVerdict::NotComparable(OUTSIDE_CAPTURE)))
        {
            let stamps = [self.log.records.first(), self.log.records.last()];
            let [first, last] =
                stamps.map(|record| output::format_time(record.map_or(0, |record| record.micros)));
            let what = format!("--dump-log {}, from {first} to {last},", self.name);
            let error = self.span.outside_error(&what);
            return Err(io::Error::other(format!("{error}; align the clocks with --dump-offset SECONDS")));
        }
        self.results.sort_by_key(|(record, _)| *record);
        let bad = |verdict: &DumpVerdict| matches!(verdict, DumpVerdict::Different(..));
        self.has_differences =
            !self.log.errors.is_empty() || self.results.iter().any(|(_, verdict)| bad(verdict));
        let compared = output::ComparisonReport { name: &self.name, log: &self.log, results: &self.results };
        compared.write(&mut self.context.out, end.name, self.context.json)?;
        self.context.out.flush()
    }

    fn has_differences(&self) -> bool {
        self.has_differences
    }
}

/// Returns the side that has written a record, or the reason why it is unknown.
fn find_author(
    log: &DumpLog,
    record: &DumpLogRecord,
    filter: &super::Filter,
    observer: &Observer,
) -> Result<(ConversationId, Side), &'static str> {
    let DumpContent::Dump { peer, .. } = record.content else { return Err("not a dump") };
    let is_hosts = |record: &DumpLogRecord| match record.content {
        DumpContent::Dump { peer, .. } => peer != PeerId::HOST.0 && record.author == DumpAuthor::Unknown,
        DumpContent::HandledAck { .. } => false,
    };
    let by_host = match record.author {
        DumpAuthor::Role(role) => role == Role::Host,
        DumpAuthor::Unknown => peer != PeerId::HOST.0 || log.records.iter().any(is_hosts),
        DumpAuthor::Addresses { .. } => false,
    };
    if by_host && peer == PeerId::HOST.0 {
        return Err("the host's entry for itself is not on the wire");
    }
    let mut found = None;
    for conversation in
        observer.conversations().filter(|conversation| filter.wants_conversation(conversation))
    {
        for side in [Side::First, Side::Second] {
            let is_it = match record.author {
                DumpAuthor::Addresses { own, other } => {
                    (conversation.address(side), conversation.address(side.other())) == (own, other)
                }
                DumpAuthor::Role(_) | DumpAuthor::Unknown => {
                    let role = if by_host { Role::Host } else { Role::Client };
                    conversation.peer(side.other()) == Some(PeerId(peer))
                        && conversation.role(side) == Some(role)
                }
            };
            if is_it && found.replace((conversation.id(), side)).is_some() {
                return Err("several players may have written this dump; choose one with --peer");
            }
        }
    }
    found.ok_or("no such peer in the capture")
}

/// Returns whether the author of the log may have handled this ACK.
fn may_be_author(node: DumpAuthor, handled: &HandledAck, observer: &Observer) -> bool {
    let Some(conversation) = observer.conversation(handled.conversation) else { return false };
    match node {
        DumpAuthor::Unknown => true,
        DumpAuthor::Role(role) => conversation.role(handled.side) == Some(role),
        DumpAuthor::Addresses { own, other } => {
            (conversation.address(handled.side), conversation.address(handled.side.other())) == (own, other)
        }
    }
}

const OUTSIDE_CAPTURE: &str = "outside the capture";
const MILLISECOND: u64 = 1_000;
/// The largest offset from the time of a dump at which equal queues are searched, in microseconds.
const SEARCH_WINDOW: u64 = 250_000;
const MICROS_PER_DAY: u64 = 86_400 * 1_000_000;
const MAX_HANDLED: usize = 1 << 20;
