//! Every datagram, for a person or as JSON, with what was found in it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{Finding, Joined, NO_MARK, PartJoiner, What};
use bcnet_transport::wire::Role;

use super::filter::Filter;
use super::hold::{self, Loose, Shown, Shows};
use super::lines::{Lines, Style};
use super::source::Skipped;
use super::{End, Evidence, Packet, role};
use crate::inspect::json::{self, Json, Word};
use crate::inspect::{Decoded, Entry, Position};

/// How messages are shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Lines(Style),
    Json,
}

pub(super) struct View<W> {
    out: W,
    /// None for JSON.
    lines: Option<Lines>,
    parts: PartJoiner,
    filter: Filter,
    /// Whether each datagram is to be seen at once.
    at_once: bool,
    start: Option<u64>,
    json: Json,
    /// Whether each field is named.
    explain: bool,
    /// Files that were named, if there are several.
    named: BTreeSet<u32>,
}

impl<W: Write> View<W> {
    pub(super) fn new(out: W, form: Form, filter: Filter, at_once: bool) -> Self {
        let lines = match form {
            Form::Lines(style) => Some(Lines::new(style)),
            Form::Json => None,
        };
        Self {
            out,
            lines,
            parts: PartJoiner::default(),
            filter,
            at_once,
            start: None,
            json: Json::default(),
            explain: false,
            named: BTreeSet::new(),
        }
    }

    /// Names each field, if that is wanted.
    pub(super) fn explain(self, explain: bool) -> Self {
        Self { explain, ..self }
    }

    /// Lets the reader of the output see everything.
    fn flush(&mut self) -> io::Result<()> {
        self.json.write(&mut self.out)?;
        self.out.flush()
    }

    /// Seconds since the first datagram.
    fn since(&self, micros: u64) -> f64 {
        micros.saturating_sub(self.start.unwrap_or(micros)) as f64 / 1e6
    }

    fn json(
        &mut self,
        packet: &Packet,
        sent_by: Option<Role>,
        decoded: Decoded<'_>,
        joined: &[Joined],
    ) -> io::Result<()> {
        let entry = Entry { position: Position::Packet(packet), sent_by, comment: None, decoded, joined };
        let (filter, all) = (&self.filter, !self.filter.selects_messages());
        json::add(&mut self.json, &entry, self.explain, |message| all || filter.wants_message(message));
        self.json.write_many(&mut self.out)
    }

    fn json_finding(&mut self, finding: &Finding, place: Option<Evidence>) -> io::Result<()> {
        self.json.line(|json| add_finding(json, finding, place));
        self.json.write_many(&mut self.out)
    }
}

impl<W: Write> Shows for View<W> {
    fn show(&mut self, shown: &Shown<'_>) -> io::Result<()> {
        let Shown { packet, what, findings } = shown;
        let start = *self.start.get_or_insert(packet.time.as_micros());
        let mut joined = Vec::new();
        if let hold::What::Datagram(datagram, talk) = what {
            let add = |message| self.parts.add(talk.id, talk.side, message);
            joined.extend(datagram.messages().iter().filter_map(add));
        }
        if !self.filter.wants_shown(packet, what, findings, start) {
            if let Some(lines) = &mut self.lines {
                lines.pass_over(shown);
            }
            return Ok(());
        }
        let since = self.since(packet.time.as_micros());
        if self.lines.is_some()
            && let Some(file) = &packet.file
            && self.named.insert(file.number)
        {
            writeln!(self.out, "{}:", file.name)?;
        }
        if let Some(lines) = &mut self.lines {
            lines.datagram(&mut self.out, shown, &joined, since, (&self.filter, self.explain))?;
        } else {
            match what {
                hold::What::Datagram(datagram, _) => {
                    let decoded = Decoded::Datagram(**datagram);
                    self.json(packet, Some(role(datagram.sender())), decoded, &joined)?;
                }
                hold::What::GameSpy(text) => self.json(packet, None, Decoded::GameSpy(text), &[])?,
                hold::What::Malformed(error, _) => {
                    self.json(packet, None, Decoded::Malformed(*error), &[])?;
                }
            }
            let place = Evidence::of(packet);
            for finding in *findings {
                if self.filter.wants_finding(finding) {
                    self.json_finding(finding, Some(place))?;
                }
            }
        }
        if self.at_once { self.flush() } else { Ok(()) }
    }

    fn show_loose(&mut self, loose: &Loose) -> io::Result<()> {
        if !self.filter.wants_loose(loose, self.start.unwrap_or(0)) {
            return Ok(());
        }
        let since = self.since(loose.finding.at.as_micros());
        match &self.lines {
            Some(lines) => lines.loose(&mut self.out, loose, since)?,
            None => self.json_finding(&loose.finding, loose.place)?,
        }
        if self.at_once { self.flush() } else { Ok(()) }
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        if !end.skipped.is_empty() {
            match &self.lines {
                None => self.json.line(|json| add_skipped(json, end.skipped)),
                Some(_) => writeln!(self.out, "not looked at: {}", end.skipped)?,
            }
        }
        for text in end.left_out() {
            match &self.lines {
                None => self.json.line(|json| json.member("left_out", text.as_str())),
                Some(_) => writeln!(self.out, "left out: {text}")?,
            }
        }
        self.flush()
    }
}

/// What was not looked at, in words and by kind.
fn add_skipped(json: &mut Json, skipped: &Skipped) {
    json.member("not_looked_at", skipped.to_string().as_str());
    let counts = skipped.counts().into_iter().filter(|(_, count, _)| *count > 0);
    counts.for_each(|(name, count, _)| json.member(name, count));
}

/// The members of a finding.
fn add_finding(json: &mut Json, finding: &Finding, place: Option<Evidence>) {
    json.member("finding", Word(finding.what.name()));
    json.member("fault", finding.what.is_fault());
    json.member("packet", (finding.mark != NO_MARK).then_some(finding.mark));
    json.member("offset", place.map(|place| place.offset));
    json.seconds("time", finding.at.as_micros());
    json.member("by", finding.by);
    if let Some(id) = finding.what.message() {
        json.member("channel", Word(id.channel.name()));
        json.member("seq", id.seq.0);
        json.member("part", id.part);
        json.member("opcode", finding.what.about().and_then(|about| about.opcode));
    }
    if let What::Retransmission { cause, .. } = finding.what {
        json.member("cause", Word(cause.name()));
    }
    if let What::ClosedGate { acks, .. } = finding.what {
        json.member("acks", acks);
    }
    if let Some((name, time)) = finding.what.time() {
        json.seconds(name, micros(time));
    }
    if let Some(times) = finding.what.times() {
        json.member("times", times);
    }
    json.shown("text", finding.what);
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
