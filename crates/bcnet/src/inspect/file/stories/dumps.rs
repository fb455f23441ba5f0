//! A dump log beside a capture: are the queues those that the capture shows?
//!
//! A stamp has milliseconds, so a dump may have been taken at any moment of its own: it is equal if one of them is. If
//! none is, those around are looked at, for the two clocks may differ.

mod difference;
mod shown;

use std::collections::VecDeque;
use std::io::{self, Write};

use bcnet_observe::{ConversationId, HandledAck, Observer, Side};
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, Role};

use self::difference::Difference;
use super::super::{End, Sight, Sink};
use super::dump_log::{DumpLog, Node, Record, Written};
use super::{Span, Stage, check_peer};

pub(super) struct DumpComparison<W> {
    stage: Stage<W>,
    name: String,
    log: DumpLog,
    /// What the capture's clock shows more than the log's.
    shift: i64,
    span: Span,
    /// The number of the last packet.
    packet: u64,
    /// The records that are still to be compared, in the order of time.
    next: VecDeque<(u64, usize)>,
    /// Those that are being compared.
    open: Vec<Open>,
    results: Vec<(usize, Verdict)>,
    /// When the handled ACKs of the log were, in the order of time.
    hooked: Vec<u64>,
    /// The handled ACKs of the capture near those of the log.
    handled: Vec<HandledAck>,
    differs: bool,
}

/// A dump whose time has come.
struct Open {
    record: usize,
    /// The beginning of its millisecond, on the capture's clock.
    at: u64,
    /// The smallest difference in its millisecond, and the packet after which it was.
    here: Option<(Difference, u64)>,
    /// By how much earlier or later there was none.
    shifted: Option<i64>,
}

/// How a record stands to the capture.
#[derive(Debug)]
enum Verdict {
    Equal,
    /// Equal by so many microseconds later.
    Shifted(i64),
    /// Different after this packet.
    Different(Difference, u64),
    /// Not comparable, for this reason.
    Unknown(&'static str),
}

impl<W: Write> DumpComparison<W> {
    pub(super) fn new(stage: Stage<W>, name: String, log: DumpLog, shift: i64) -> Self {
        Self {
            stage,
            name,
            log,
            shift,
            span: Span::default(),
            packet: 0,
            next: VecDeque::new(),
            open: Vec::new(),
            results: Vec::new(),
            hooked: Vec::new(),
            handled: Vec::new(),
            differs: false,
        }
    }

    /// The capture begins: now it is known when each record was written.
    fn begin(&mut self, start: u64) {
        let times = self.log.records.iter().enumerate();
        let mut times: Vec<_> = times.map(|(place, record)| (self.time(start, record), place)).collect();
        times.sort_unstable();
        let is_hook = |place: usize| matches!(self.log.records[place].what, Written::Handled { .. });
        self.hooked = times.iter().filter(|(_, place)| is_hook(*place)).map(|(at, _)| *at).collect();
        self.next = times.into();
    }

    /// Returns when a record was written, on the clock of a capture that begins at `start`.
    fn time(&self, start: u64, record: &Record) -> u64 {
        let today = (start - start % DAY + record.micros).saturating_add_signed(self.shift);
        // A time long before the start is meant to be of the next day.
        if today + DAY / 2 < start { today + DAY } else { today }
    }

    /// The state of the observer stands from the last packet until `until`: compares what was written meanwhile.
    fn compare(&mut self, until: u64, observer: &Observer) {
        let since = self.span.end;
        while let Some((at, record)) = self.next.pop_front_if(|(at, _)| at.saturating_sub(WINDOW) < until) {
            if matches!(self.log.records[record].what, Written::Dump { .. }) {
                self.open.push(Open { record, at, here: None, shifted: None });
            }
        }
        for open in &mut self.open {
            let millisecond = (open.at, open.at + MILLISECOND);
            let is_here = since < millisecond.1 && until > open.at;
            let near = until > open.at.saturating_sub(WINDOW) && since < millisecond.1 + WINDOW;
            if !near || open.here.as_ref().is_some_and(|(difference, _)| difference.is_none()) {
                continue;
            }
            let record = &self.log.records[open.record];
            let Ok((conversation, side)) = find(&self.log, record, &self.stage.filter, observer) else {
                continue;
            };
            let at = open.at.clamp(since, until.saturating_sub(1).max(since));
            let Some(queues) = observer.queues(conversation, side, Time::from_micros(at)) else { continue };
            let difference = Difference::of(&record.what, &queues);
            if is_here && open.here.as_ref().is_none_or(|(known, _)| difference.len() < known.len()) {
                open.here = Some((difference, self.packet));
            } else if !is_here && difference.is_none() {
                let by = at.cast_signed() - open.at.cast_signed();
                if open.shifted.is_none_or(|known| by.abs() < known.abs()) {
                    open.shifted = Some(by);
                }
            }
        }
        self.decide(until, observer);
    }

    /// Decides on what no later state can change.
    fn decide(&mut self, until: u64, observer: &Observer) {
        let Self { open, results, log, span, stage, .. } = self;
        open.retain_mut(|open| {
            if until < open.at + MILLISECOND + WINDOW {
                return true;
            }
            let record = &log.records[open.record];
            let is_outside =
                span.start.is_none_or(|start| open.at + MILLISECOND <= start) || open.at > span.end;
            let verdict = match (open.here.take(), open.shifted) {
                (Some((difference, _)), _) if difference.is_none() => Verdict::Equal,
                (_, Some(by)) => Verdict::Shifted(by),
                _ if is_outside => Verdict::Unknown(OUTSIDE),
                (Some((difference, packet)), None) => Verdict::Different(difference, packet),
                (None, None) => {
                    let found = find(log, record, &stage.filter, observer);
                    Verdict::Unknown(found.err().unwrap_or("nothing was seen of it by then"))
                }
            };
            results.push((open.record, verdict));
            false
        });
    }

    /// Compares the handled ACKs: each with the nearest one of the capture that is about the same message.
    fn compare_handled(&mut self, observer: &Observer) {
        let mut taken = vec![false; self.handled.len()];
        self.handled.sort_by_key(|handled| handled.at);
        let start = self.span.start.unwrap_or(0);
        for (place, record) in self.log.records.iter().enumerate() {
            let Written::Handled { ack, retx } = &record.what else { continue };
            let at = self.time(start, record);
            if at + MILLISECOND + WINDOW < start || at > self.span.end + WINDOW {
                self.results.push((place, Verdict::Unknown(OUTSIDE)));
                continue;
            }
            let is_by = |handled: &HandledAck| is_by(record.node, handled, observer);
            let time = |handled: &HandledAck| handled.at.as_micros();
            let from = self.handled.partition_point(|handled| time(handled) + WINDOW < at);
            let near = self.handled.iter().enumerate().skip(from);
            let near = near.take_while(|(_, handled)| time(handled) <= at + WINDOW);
            let candidates = near.filter(|(place, handled)| {
                !taken[*place] && difference::is_about(ack, handled.id) && is_by(handled)
            });
            let nearest = candidates.min_by_key(|(place, handled)| {
                let difference = Difference::of_waiting(retx, &handled.waiting);
                (difference.len(), handled.at.as_micros().abs_diff(at), *place)
            });
            let verdict = match nearest {
                None => Verdict::Different(Difference::missing(), self.packet),
                Some((found, handled)) => {
                    taken[found] = true;
                    let difference = Difference::of_waiting(retx, &handled.waiting);
                    if difference.is_none() {
                        Verdict::Equal
                    } else {
                        Verdict::Different(difference, handled.mark)
                    }
                }
            };
            self.results.push((place, verdict));
        }
    }

    /// Returns whether an ACK was handled near one that the log tells of.
    fn is_near(&self, at: u64) -> bool {
        let next = self.hooked.partition_point(|hooked| hooked + WINDOW < at);
        self.hooked.get(next).is_some_and(|hooked| *hooked <= at + WINDOW)
    }
}

impl<W: Write> Sink for DumpComparison<W> {
    fn follows_acks(&self) -> bool {
        self.log.records.iter().any(|record| matches!(record.what, Written::Handled { .. }))
    }

    fn before(&mut self, next: Time, observer: &Observer) -> io::Result<()> {
        let next = next.as_micros();
        if self.span.start.is_none() {
            self.begin(next);
        } else {
            self.compare(next, observer);
        }
        self.span.note(next);
        Ok(())
    }

    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        self.packet = sight.packet.number;
        Ok(())
    }

    fn handled(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        let talk = observer.conversation(handled.conversation);
        let wanted = talk.is_some_and(|talk| self.stage.filter.wants_talk(&talk));
        if wanted && self.handled.len() < MAX_HANDLED && self.is_near(handled.at.as_micros()) {
            self.handled.push(handled.clone());
        }
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        check_peer(&self.stage.filter, end.observer)?;
        let last = self.span.end;
        self.compare(last + MILLISECOND, end.observer);
        self.compare(u64::MAX / 2, end.observer);
        self.compare_handled(end.observer);
        if self.results.iter().all(|(_, verdict)| matches!(verdict, Verdict::Unknown(OUTSIDE))) {
            let stamps = [self.log.records.first(), self.log.records.last()];
            let [first, last] = stamps.map(|record| shown::stamp(record.map_or(0, |record| record.micros)));
            let what = format!("--dump-log {}, from {first} to {last},", self.name);
            let error = self.span.outside(&what);
            return Err(io::Error::other(format!("{error}; --dump-offset SECONDS brings them together")));
        }
        self.results.sort_by_key(|(record, _)| *record);
        let bad = |verdict: &Verdict| matches!(verdict, Verdict::Different(..));
        self.differs = !self.log.damage.is_empty() || self.results.iter().any(|(_, verdict)| bad(verdict));
        let compared = shown::Compared { name: &self.name, log: &self.log, results: &self.results };
        compared.write(&mut self.stage.out, end.name, self.stage.json)?;
        self.stage.out.flush()
    }

    fn differs(&self) -> bool {
        self.differs
    }
}

/// Returns the side that has written a record, or why that is not known.
fn find(
    log: &DumpLog,
    record: &Record,
    filter: &super::Filter,
    observer: &Observer,
) -> Result<(ConversationId, Side), &'static str> {
    let Written::Dump { peer, .. } = record.what else { return Err("not a dump") };
    let is_hosts = |record: &Record| match record.what {
        Written::Dump { peer, .. } => peer != PeerId::HOST.0 && record.node == Node::Unknown,
        Written::Handled { .. } => false,
    };
    let by_host = match record.node {
        Node::Is(role) => role == Role::Host,
        Node::Unknown => peer != PeerId::HOST.0 || log.records.iter().any(is_hosts),
        Node::At { .. } => false,
    };
    if by_host && peer == PeerId::HOST.0 {
        return Err("the host's entry for itself is not on the wire");
    }
    let mut found = None;
    for talk in observer.conversations().filter(|talk| filter.wants_talk(talk)) {
        for side in [Side::First, Side::Second] {
            let is_it = match record.node {
                Node::At { own, other } => (talk.address(side), talk.address(side.other())) == (own, other),
                Node::Is(_) | Node::Unknown => {
                    let role = if by_host { Role::Host } else { Role::Client };
                    talk.peer(side.other()) == Some(PeerId(peer)) && talk.role(side) == Some(role)
                }
            };
            if is_it && found.replace((talk.id(), side)).is_some() {
                return Err("several players can have written it; choose one with --peer");
            }
        }
    }
    found.ok_or("no such peer in the capture")
}

/// Returns whether an ACK may have been handled by the one who wrote the log.
fn is_by(node: Node, handled: &HandledAck, observer: &Observer) -> bool {
    let Some(talk) = observer.conversation(handled.conversation) else { return false };
    match node {
        Node::Unknown => true,
        Node::Is(role) => talk.role(handled.side) == Some(role),
        Node::At { own, other } => {
            (talk.address(handled.side), talk.address(handled.side.other())) == (own, other)
        }
    }
}

const OUTSIDE: &str = "outside of the capture";
const MILLISECOND: u64 = 1_000;
/// So far from its own time a dump is looked for.
const WINDOW: u64 = 250_000;
const DAY: u64 = 86_400 * 1_000_000;
const MAX_HANDLED: usize = 1 << 20;
