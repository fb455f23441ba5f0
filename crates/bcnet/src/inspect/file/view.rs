//! Shows every datagram with its findings, as text or as JSON.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{Finding, FindingKind, NO_MARK, ReassembledPayload, Reassembler};
use bcnet_transport::wire::Role;

use super::delayed_output::{self, DatagramOutput, DatagramWithFindings, DetachedFinding};
use super::filter::Filter;
use super::source::SkippedPackets;
use super::text_writer::{TextStyle, TextWriter};
use super::{CaptureEnd, PacketInfo, PacketLocation, sender_role};
use crate::inspect::json::{self, Json, UnescapedStr};
use crate::inspect::{Decoded, DecodedEntry, InputPosition};

/// The format of the output.
#[derive(Debug, Clone, Copy)]
pub(super) enum OutputForm {
    Text(TextStyle),
    Json,
}

pub(super) struct DatagramView<W> {
    out: W,
    /// `None` for JSON.
    text: Option<TextWriter>,
    reassembler: Reassembler,
    filter: Filter,
    /// True if each datagram is flushed immediately.
    flush_each: bool,
    start_micros: Option<u64>,
    json: Json,
    /// True if each field is shown.
    explain: bool,
    /// The files whose names were printed, if there are several.
    named_files: BTreeSet<u32>,
}

impl<W: Write> DatagramView<W> {
    pub(super) fn new(out: W, form: OutputForm, filter: Filter, at_once: bool) -> Self {
        let lines = match form {
            OutputForm::Text(style) => Some(TextWriter::new(style)),
            OutputForm::Json => None,
        };
        Self {
            out,
            text: lines,
            reassembler: Reassembler::default(),
            filter,
            flush_each: at_once,
            start_micros: None,
            json: Json::default(),
            explain: false,
            named_files: BTreeSet::new(),
        }
    }

    /// Sets whether each field is shown.
    pub(super) fn explain(self, explain: bool) -> Self {
        Self { explain, ..self }
    }

    /// Writes all buffered output.
    fn flush(&mut self) -> io::Result<()> {
        self.json.write(&mut self.out)?;
        self.out.flush()
    }

    /// Returns seconds since the first datagram.
    fn seconds_since_start(&self, micros: u64) -> f64 {
        micros.saturating_sub(self.start_micros.unwrap_or(micros)) as f64 / 1e6
    }

    fn write_json(
        &mut self,
        packet: &PacketInfo,
        sent_by: Option<Role>,
        decoded: Decoded<'_>,
        joined: &[ReassembledPayload],
    ) -> io::Result<()> {
        let entry = DecodedEntry {
            position: InputPosition::Packet(packet),
            sent_by,
            comment: None,
            decoded,
            reassembled: joined,
        };
        let (filter, all) = (&self.filter, !self.filter.selects_messages());
        json::add_entry(&mut self.json, &entry, self.explain, |message| all || filter.wants_message(message));
        self.json.write_if_full(&mut self.out)
    }

    fn write_json_finding(&mut self, finding: &Finding, place: Option<PacketLocation>) -> io::Result<()> {
        self.json.line(|json| add_finding(json, finding, place));
        self.json.write_if_full(&mut self.out)
    }
}

impl<W: Write> DatagramOutput for DatagramView<W> {
    fn show(&mut self, shown: &DatagramWithFindings<'_>) -> io::Result<()> {
        let DatagramWithFindings { packet, content: what, findings } = shown;
        let start = *self.start_micros.get_or_insert(packet.time.as_micros());
        let mut joined = Vec::new();
        if let delayed_output::DatagramContent::Datagram(datagram, conversation) = what {
            let add = |message| self.reassembler.add(conversation.id, conversation.side, message);
            joined.extend(datagram.messages().iter().filter_map(add));
        }
        if !self.filter.wants_datagram(packet, what, findings, start) {
            if let Some(lines) = &mut self.text {
                lines.note_names(shown);
            }
            return Ok(());
        }
        let since = self.seconds_since_start(packet.time.as_micros());
        if self.text.is_some()
            && let Some(file) = &packet.file
            && self.named_files.insert(file.number)
        {
            writeln!(self.out, "{}:", file.name)?;
        }
        if let Some(lines) = &mut self.text {
            lines.write_datagram(&mut self.out, shown, &joined, since, (&self.filter, self.explain))?;
        } else {
            match what {
                delayed_output::DatagramContent::Datagram(datagram, _) => {
                    let decoded = Decoded::Datagram(**datagram);
                    self.write_json(packet, Some(sender_role(datagram.sender())), decoded, &joined)?;
                }
                delayed_output::DatagramContent::GameSpy(text) => {
                    self.write_json(packet, None, Decoded::GameSpy(text), &[])?
                }
                delayed_output::DatagramContent::Malformed(error, _) => {
                    self.write_json(packet, None, Decoded::Malformed(*error), &[])?;
                }
            }
            let place = PacketLocation::of(packet);
            for finding in *findings {
                if self.filter.wants_finding(finding) {
                    self.write_json_finding(finding, Some(place))?;
                }
            }
        }
        if self.flush_each { self.flush() } else { Ok(()) }
    }

    fn show_finding(&mut self, detached: &DetachedFinding) -> io::Result<()> {
        if !self.filter.wants_detached(detached, self.start_micros.unwrap_or(0)) {
            return Ok(());
        }
        let since = self.seconds_since_start(detached.finding.at.as_micros());
        match &self.text {
            Some(lines) => lines.write_detached_finding(&mut self.out, detached, since)?,
            None => self.write_json_finding(&detached.finding, detached.location)?,
        }
        if self.flush_each { self.flush() } else { Ok(()) }
    }

    fn finish(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        if !end.skipped.is_empty() {
            match &self.text {
                None => self.json.line(|json| add_skipped(json, end.skipped)),
                Some(_) => writeln!(self.out, "skipped: {}", end.skipped)?,
            }
        }
        for text in end.omissions() {
            match &self.text {
                None => self.json.line(|json| json.member("left_out", text.as_str())),
                Some(_) => writeln!(self.out, "left out: {text}")?,
            }
        }
        self.flush()
    }
}

/// Adds the skipped packets, as a text and by kind.
fn add_skipped(json: &mut Json, skipped: &SkippedPackets) {
    json.member("not_looked_at", skipped.to_string().as_str());
    let counts = skipped.counts().into_iter().filter(|(_, count, _)| *count > 0);
    counts.for_each(|(name, count, _)| json.member(name, count));
}

/// Adds the members of a finding.
fn add_finding(json: &mut Json, finding: &Finding, place: Option<PacketLocation>) {
    json.member("finding", UnescapedStr(finding.kind.name()));
    json.member("fault", finding.kind.is_fault());
    json.member("packet", (finding.mark != NO_MARK).then_some(finding.mark));
    json.member("offset", place.map(|place| place.offset));
    json.seconds("time", finding.at.as_micros());
    json.member("by", finding.by);
    if let Some(id) = finding.kind.message_id() {
        json.member("channel", UnescapedStr(id.channel.name()));
        json.member("seq", id.seq.0);
        json.member("part", id.fragment);
        json.member("opcode", finding.kind.message_info().and_then(|about| about.opcode));
    }
    if let FindingKind::Retransmission { cause, .. } = finding.kind {
        json.member("cause", UnescapedStr(cause.name()));
    }
    if let FindingKind::ClosedGate { acks, .. } = finding.kind {
        json.member("acks", acks);
    }
    if let Some((name, time)) = finding.kind.named_duration() {
        json.seconds(name, micros(time));
    }
    if let Some(times) = finding.kind.send_count() {
        json.member("times", times);
    }
    json.display_member("text", finding.kind);
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
