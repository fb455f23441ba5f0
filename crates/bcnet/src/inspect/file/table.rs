//! Writes one row for each message, for spreadsheets and data frames.

use std::io::{self, Write};

use bcnet_observe::{Finding, ParsedDatagram, Side, opcode};
use bcnet_session::game::Opcode;
use bcnet_transport::wire::{Channel, Message, MessageId};

use super::delayed_output::{DatagramContent, DatagramOutput, DatagramWithFindings, DetachedFinding};
use super::filter::Filter;
use super::{CaptureEnd, PacketInfo};

/// A row: a message, an undecodable datagram, a finding without a datagram, or a note on omitted data.
#[derive(Default)]
pub(super) struct MessageRow {
    /// `None` for a row without a datagram.
    pub(super) packet: Option<u64>,
    /// Microseconds, as in the capture.
    pub(super) time: u64,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) sender: Option<u8>,
    pub(super) kind: &'static str,
    pub(super) len: u32,
    pub(super) channel: Option<Channel>,
    pub(super) seq: Option<u16>,
    pub(super) part: Option<u8>,
    pub(super) total: Option<u8>,
    pub(super) opcode: Option<u8>,
    pub(super) name: Option<&'static str>,
    pub(super) payload_len: u32,
    /// The names of the findings about the message or the datagram, or the text of a note.
    pub(super) findings: String,
}

/// An output of rows.
pub(super) trait RowWriter {
    fn write_row(&mut self, row: &MessageRow) -> io::Result<()>;
    /// Writes all rows so far, if the format allows it.
    fn flush(&mut self) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;
}

pub(super) struct MessageTable<R> {
    rows: R,
    filter: Filter,
    /// True if each row is flushed immediately.
    flush_each: bool,
    start: Option<u64>,
}

impl<R: RowWriter> MessageTable<R> {
    pub(super) const fn new(rows: R, filter: Filter, at_once: bool) -> Self {
        Self { rows, filter, flush_each: at_once, start: None }
    }
}

impl<R: RowWriter> DatagramOutput for MessageTable<R> {
    fn show(
        &mut self,
        DatagramWithFindings { packet, content: what, findings }: &DatagramWithFindings<'_>,
    ) -> io::Result<()> {
        let start = *self.start.get_or_insert(packet.time.as_micros());
        if !self.filter.wants_datagram(packet, what, findings, start) {
            return Ok(());
        }
        match what {
            DatagramContent::Datagram(datagram, talk) => {
                self.write_datagram(packet, datagram, talk.side, findings)?
            }
            DatagramContent::Malformed(_, bytes) => {
                let (len, findings) = (bytes.len(), finding_names(findings.iter()));
                self.rows.write_row(&MessageRow {
                    kind: MALFORMED,
                    len: to_u32(len),
                    findings,
                    ..packet_row(packet)
                })?;
            }
            DatagramContent::GameSpy(_) => {}
        }
        if self.flush_each { self.rows.flush() } else { Ok(()) }
    }

    fn show_finding(&mut self, detached: &DetachedFinding) -> io::Result<()> {
        if !self.filter.wants_detached(detached, self.start.unwrap_or(0)) {
            return Ok(());
        }
        let finding = &detached.finding;
        self.rows.write_row(&MessageRow {
            time: finding.at.as_micros(),
            from: finding.by.to_string(),
            to: finding.to.to_string(),
            kind: NO_DATAGRAM,
            findings: finding.kind.name().into(),
            ..MessageRow::default()
        })
    }

    fn finish(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        let skipped = (!end.skipped.is_empty()).then(|| format!("skipped: {}", end.skipped));
        for text in skipped.into_iter().chain(end.omissions()) {
            let findings = text.replace(',', "");
            self.rows.write_row(&MessageRow {
                time: end.start_micros,
                kind: OMITTED,
                findings,
                ..MessageRow::default()
            })?;
        }
        self.rows.finish()
    }
}

impl<R: RowWriter> MessageTable<R> {
    fn write_datagram(
        &mut self,
        packet: &PacketInfo,
        datagram: &ParsedDatagram<'_>,
        side: Side,
        findings: &[Finding],
    ) -> io::Result<()> {
        let messages = datagram.messages();
        let places: Vec<usize> =
            findings.iter().map(|finding| message_index(finding, side, messages)).collect();
        for (place, message) in messages.iter().enumerate() {
            if self.filter.wants_message(message) {
                let here = findings.iter().zip(&places).filter(|(_, other)| **other == place);
                let row = message_row(packet, message);
                let findings = finding_names(here.map(|(finding, _)| finding));
                self.rows.write_row(&MessageRow { sender: Some(datagram.sender().0), findings, ..row })?;
            }
        }
        Ok(())
    }
}

/// Returns the index of the message that a finding is about, or 0 if the datagram does not contain it.
fn message_index(finding: &Finding, sent_by: Side, messages: &[Message<'_>]) -> usize {
    let Some(about) = finding.kind.message_id() else { return 0 };
    let is_ack = finding.side == sent_by && finding.kind.is_about_ack();
    let with = |acks: bool| {
        messages.iter().position(|message| {
            own_or_acked_id(message) == Some(about) && acks == matches!(message, Message::Ack(_))
        })
    };
    with(is_ack).or_else(|| with(!is_ack)).unwrap_or(0)
}

/// Returns the id of a message, or the id that it acknowledges.
fn own_or_acked_id(message: &Message<'_>) -> Option<MessageId> {
    match message {
        Message::Ack(ack) => Some(ack.id),
        Message::Keepalive | Message::Control(_) | Message::Data(_) => message.id(),
    }
}

fn finding_names<'a>(findings: impl Iterator<Item = &'a Finding>) -> String {
    let names: Vec<&str> = findings.map(|finding| finding.kind.name()).collect();
    names.join(" ")
}

fn packet_row(packet: &PacketInfo) -> MessageRow {
    MessageRow {
        packet: Some(packet.number),
        time: packet.time.as_micros(),
        from: packet.from.to_string(),
        to: packet.to.to_string(),
        ..MessageRow::default()
    }
}

fn message_row(packet: &PacketInfo, message: &Message<'_>) -> MessageRow {
    let (payload_len, total) = match message {
        Message::Data(data) => {
            let total = data.delivery.fragment().and_then(|part| part.total()).map(|total| total.get());
            (data.payload.len(), total)
        }
        Message::Ack(_) | Message::Control(_) | Message::Keepalive => (0, None),
    };
    let (id, opcode) = (own_or_acked_id(message), opcode(message));
    MessageRow {
        kind: message.kind().name().unwrap_or("unknown"),
        len: to_u32(message.wire_len()),
        channel: id.map(|id| id.channel),
        seq: id.map(|id| id.seq.0),
        part: id.and_then(|id| id.fragment),
        total,
        opcode,
        name: opcode.and_then(|opcode| Opcode(opcode).name()),
        payload_len: to_u32(payload_len),
        ..packet_row(packet)
    }
}

fn to_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The kinds of rows that are not messages.
const MALFORMED: &str = "malformed";
const NO_DATAGRAM: &str = "none";
const OMITTED: &str = "left_out";

/// Writes comma-separated values. No value contains a comma or a quote, so none is quoted.
pub(super) struct CsvWriter<W> {
    out: W,
    has_header: bool,
}

impl<W: Write> CsvWriter<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out, has_header: false }
    }

    fn write_header(&mut self) -> io::Result<()> {
        if !self.has_header {
            self.has_header = true;
            writeln!(
                self.out,
                "packet,time,from,to,sender,kind,len,channel,seq,part,total,opcode,name,payload_len,findings"
            )?;
        }
        Ok(())
    }
}

impl<W: Write> RowWriter for CsvWriter<W> {
    fn write_row(&mut self, row: &MessageRow) -> io::Result<()> {
        self.write_header()?;
        let MessageRow { packet, time, from, to, sender, kind, len, name, payload_len, findings, .. } = row;
        let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
        let text = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
        let (packet, sender) = (text(*packet), text(sender.map(u64::from)));
        write!(self.out, "{packet},{seconds}.{micros:06},{from},{to},{sender},{kind},{len},")?;
        let channel = row.channel.map(|channel| channel.to_string()).unwrap_or_default();
        let (seq, part) = (text(row.seq.map(u64::from)), text(row.part.map(u64::from)));
        let (total, opcode) = (text(row.total.map(u64::from)), text(row.opcode.map(u64::from)));
        let name = name.unwrap_or_default();
        writeln!(self.out, "{channel},{seq},{part},{total},{opcode},{name},{payload_len},{findings}")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_header()?;
        self.out.flush()
    }
}
