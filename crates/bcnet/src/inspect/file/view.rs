//! Every message on its own line, for a person or as JSON, with what was found in it.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{Finding, NO_MARK, NonStock, Parsed, What};
use bcnet_transport::wire::{PeerId, Role, WireError};

use super::filter::Filter;
use super::hold::{self, Loose, Shown, Shows};
use super::{End, Evidence, Packet, role};
use crate::inspect::json::{self, Json, Word};
use crate::inspect::{Decoded, Entry, Position, explain, human, latin1};

/// How messages are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Lines,
    Json,
}

pub(super) struct View<W> {
    out: W,
    form: Form,
    filter: Filter,
    /// Whether each datagram is to be seen at once.
    at_once: bool,
    start: Option<u64>,
    json: Json,
    /// Whether each field is named.
    explain: bool,
}

impl<W: Write> View<W> {
    pub(super) fn new(out: W, form: Form, filter: Filter, at_once: bool) -> Self {
        Self { out, form, filter, at_once, start: None, json: Json::default(), explain: false }
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

    fn datagram(&mut self, packet: &Packet, datagram: &Parsed<'_>) -> io::Result<()> {
        if self.form == Form::Json {
            let decoded = Decoded::Datagram(*datagram);
            return self.json(packet, Some(role(datagram.sender())), decoded);
        }
        let head = self.head(packet, datagram.sender());
        let odd = human::odd(NonStock::of_datagram(datagram.datagram()));
        let mut comment = comment(packet);
        let mut next = explain::DATAGRAM_HEADER;
        for message in datagram.messages() {
            let at = next;
            next += message.wire_len();
            if self.filter.wants_message(message) {
                writeln!(self.out, "{head}{}{odd}{comment}", human::message(message))?;
                human::fields(&mut self.out, message, at, self.explain)?;
                comment.clear();
            }
        }
        Ok(())
    }

    /// Returns what stands in front of each message.
    fn head(&self, packet: &Packet, sender: PeerId) -> String {
        let mark = if sender == PeerId::HOST { "S>" } else { "C>" };
        let Packet { number, from, to, time, .. } = packet;
        let time = self.since(time.as_micros());
        format!("{number:>6} {time:>11.6} {mark} {from} > {to}  ")
    }

    fn json(&mut self, packet: &Packet, sent_by: Option<Role>, decoded: Decoded<'_>) -> io::Result<()> {
        let entry = Entry { position: Position::Packet(packet), sent_by, comment: None, decoded };
        let filter = &self.filter;
        json::add(&mut self.json, &entry, self.explain, |message| filter.wants_message(message));
        self.json.write_many(&mut self.out)
    }

    fn gamespy(&mut self, packet: &Packet, text: &[u8]) -> io::Result<()> {
        if self.form == Form::Json {
            return self.json(packet, None, Decoded::GameSpy(text));
        }
        let (size, shown) = (human::count(text), human::printable(&latin1(text)));
        self.line(packet, format_args!("gamespy {size}: {shown}"))
    }

    fn malformed(&mut self, packet: &Packet, error: WireError) -> io::Result<()> {
        if self.form == Form::Json {
            return self.json(packet, None, Decoded::Malformed(error));
        }
        self.line(packet, format_args!("error: {error}"))
    }

    /// A packet of which nothing tells who sent it.
    fn line(&mut self, packet: &Packet, shown: fmt::Arguments<'_>) -> io::Result<()> {
        let Packet { number, from, to, time, .. } = packet;
        let time = self.since(time.as_micros());
        writeln!(self.out, "{number:>6} {time:>11.6}    {from} > {to}  {shown}{}", comment(packet))
    }

    fn finding(&mut self, finding: &Finding, place: Option<Evidence>) -> io::Result<()> {
        if self.form == Form::Json {
            self.json.line(|json| add_finding(json, finding, place));
            return self.json.write_many(&mut self.out);
        }
        let time = self.since(finding.at.as_micros());
        let number = if finding.mark == NO_MARK { String::new() } else { finding.mark.to_string() };
        writeln!(self.out, "{number:>6} {time:>11.6} ! {}: {}", finding.by, finding.what)
    }
}

impl<W: Write> Shows for View<W> {
    fn show(&mut self, Shown { packet, what, findings }: &Shown<'_>) -> io::Result<()> {
        let start = *self.start.get_or_insert(packet.time.as_micros());
        if !self.filter.wants_shown(packet, what, findings, start) {
            return Ok(());
        }
        match what {
            hold::What::Datagram(datagram, _) => self.datagram(packet, datagram)?,
            hold::What::GameSpy(text) => self.gamespy(packet, text)?,
            hold::What::Malformed(error, _) => self.malformed(packet, *error)?,
        }
        let place = Evidence { number: packet.number, offset: packet.offset };
        for finding in *findings {
            self.finding(finding, Some(place))?;
        }
        if self.at_once { self.flush() } else { Ok(()) }
    }

    fn show_loose(&mut self, loose: &Loose) -> io::Result<()> {
        if !self.filter.wants_loose(loose, self.start.unwrap_or(0)) {
            return Ok(());
        }
        self.finding(&loose.finding, loose.place)?;
        if self.at_once { self.flush() } else { Ok(()) }
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        for text in end.left_out() {
            match self.form {
                Form::Json => self.json.line(|json| json.member("left_out", text.as_str())),
                Form::Lines => writeln!(self.out, "left out: {text}")?,
            }
        }
        self.flush()
    }
}

/// Returns what stands behind the first message of a packet that has a comment.
fn comment(packet: &Packet) -> String {
    packet.comment.as_deref().map(|text| format!("  # {}", human::printable(text))).unwrap_or_default()
}

/// The members of a finding.
fn add_finding(json: &mut Json, finding: &Finding, place: Option<Evidence>) {
    json.member("finding", Word(finding.what.name()));
    json.member("fault", finding.what.is_fault());
    json.member("packet", (finding.mark != NO_MARK).then_some(finding.mark));
    json.member("offset", place.map(|place| place.offset));
    json.seconds("time", finding.at.as_micros());
    json.address("by", finding.by);
    if let Some(id) = finding.what.message() {
        json.member("channel", Word(id.channel.name()));
        json.member("seq", id.seq.0);
        json.member("part", id.part);
        json.member("opcode", finding.what.about().and_then(|about| about.opcode));
    }
    match finding.what {
        What::StaleAck { age, times, .. } => {
            json.seconds("age", micros(age));
            json.member("times", times);
        }
        What::Retransmission { times, after, cause, .. } => {
            json.member("cause", Word(cause.name()));
            json.seconds("after", micros(after));
            json.member("times", times);
        }
        What::RepeatedAck { times, .. } => json.member("times", times),
        What::ClosedGate { acks, waited } => {
            json.member("acks", acks);
            json.seconds("waited", micros(waited));
        }
        What::DuplicateDelivery { .. }
        | What::StuckFragments { .. }
        | What::Starvation { .. }
        | What::SequenceGap { .. }
        | What::UnknownType(_)
        | What::Malformed(_)
        | What::NonStock(_)
        | What::AcksOnce
        | What::Silence { .. }
        | What::Timeout { .. }
        | What::CaptureLoss(_) => {}
    }
    json.shown("text", finding.what);
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
