//! One row per message, for spreadsheets and data frames.

use std::io::{self, Write};

use bcnet_observe::{Finding, Parsed, Side, opcode};
use bcnet_session::game::Opcode;
use bcnet_transport::wire::{Channel, Message, MessageId};

use super::filter::Filter;
use super::hold::{Loose, Shown, Shows, What};
use super::{End, Packet};

/// A message as columns, a datagram that cannot be read, or what no datagram shows.
#[derive(Default)]
pub(super) struct Row {
    /// None for what no datagram shows.
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
    /// What was found about it, by name.
    pub(super) findings: String,
}

/// Where rows go.
pub(super) trait Rows {
    fn row(&mut self, row: &Row) -> io::Result<()>;
    /// Lets the reader see all rows so far, where the format allows it.
    fn flush(&mut self) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;
}

pub(super) struct Table<R> {
    rows: R,
    filter: Filter,
    /// Whether each row is to be seen at once.
    at_once: bool,
    start: Option<u64>,
}

impl<R: Rows> Table<R> {
    pub(super) const fn new(rows: R, filter: Filter, at_once: bool) -> Self {
        Self { rows, filter, at_once, start: None }
    }
}

impl<R: Rows> Shows for Table<R> {
    fn show(&mut self, Shown { packet, what, findings }: &Shown<'_>) -> io::Result<()> {
        let start = *self.start.get_or_insert(packet.time.as_micros());
        if !self.filter.wants_shown(packet, what, findings, start) {
            return Ok(());
        }
        match what {
            What::Datagram(datagram, talk) => self.datagram(packet, datagram, talk.side, findings)?,
            What::Malformed(_, bytes) => {
                let (len, findings) = (bytes.len(), names(findings.iter()));
                self.rows.row(&Row { kind: MALFORMED, len: clamp(len), findings, ..of_packet(packet) })?;
            }
            What::GameSpy(_) => {}
        }
        if self.at_once { self.rows.flush() } else { Ok(()) }
    }

    fn show_loose(&mut self, loose: &Loose) -> io::Result<()> {
        if !self.filter.wants_loose(loose, self.start.unwrap_or(0)) {
            return Ok(());
        }
        let finding = &loose.finding;
        self.rows.row(&Row {
            time: finding.at.as_micros(),
            from: finding.by.to_string(),
            to: finding.to.to_string(),
            kind: NO_DATAGRAM,
            findings: finding.what.name().into(),
            ..Row::default()
        })
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        let skipped = (!end.skipped.is_empty()).then(|| format!("not looked at: {}", end.skipped));
        for text in skipped.into_iter().chain(end.left_out()) {
            let findings = text.replace(',', "");
            self.rows.row(&Row { time: end.start, kind: LEFT_OUT, findings, ..Row::default() })?;
        }
        self.rows.finish()
    }
}

impl<R: Rows> Table<R> {
    fn datagram(
        &mut self,
        packet: &Packet,
        datagram: &Parsed<'_>,
        side: Side,
        findings: &[Finding],
    ) -> io::Result<()> {
        let messages = datagram.messages();
        let places: Vec<usize> = findings.iter().map(|finding| place_of(finding, side, messages)).collect();
        for (place, message) in messages.iter().enumerate() {
            if self.filter.wants_message(message) {
                let here = findings.iter().zip(&places).filter(|(_, other)| **other == place);
                let row = row(packet, message);
                let findings = names(here.map(|(finding, _)| finding));
                self.rows.row(&Row { sender: Some(datagram.sender().0), findings, ..row })?;
            }
        }
        Ok(())
    }
}

/// Returns which message of a datagram a finding stands at: the one that it is about, or the first if none is.
fn place_of(finding: &Finding, sent_by: Side, messages: &[Message<'_>]) -> usize {
    let Some(about) = finding.what.message() else { return 0 };
    let is_ack = finding.side == sent_by && finding.what.is_about_ack();
    let with = |acks: bool| {
        messages
            .iter()
            .position(|message| id(message) == Some(about) && acks == matches!(message, Message::Ack(_)))
    };
    with(is_ack).or_else(|| with(!is_ack)).unwrap_or(0)
}

/// Returns the number that a message has, or that it acknowledges.
fn id(message: &Message<'_>) -> Option<MessageId> {
    match message {
        Message::Ack(ack) => Some(ack.id),
        Message::Keepalive | Message::Control(_) | Message::Data(_) => message.id(),
    }
}

fn names<'a>(findings: impl Iterator<Item = &'a Finding>) -> String {
    let names: Vec<&str> = findings.map(|finding| finding.what.name()).collect();
    names.join(" ")
}

fn of_packet(packet: &Packet) -> Row {
    Row {
        packet: Some(packet.number),
        time: packet.time.as_micros(),
        from: packet.from.to_string(),
        to: packet.to.to_string(),
        ..Row::default()
    }
}

fn row(packet: &Packet, message: &Message<'_>) -> Row {
    let (payload_len, total) = match message {
        Message::Data(data) => {
            let total = data.delivery.part().and_then(|part| part.total()).map(|total| total.get());
            (data.payload.len(), total)
        }
        Message::Ack(_) | Message::Control(_) | Message::Keepalive => (0, None),
    };
    let (id, opcode) = (id(message), opcode(message));
    Row {
        kind: message.kind().name().unwrap_or("unknown"),
        len: clamp(message.wire_len()),
        channel: id.map(|id| id.channel),
        seq: id.map(|id| id.seq.0),
        part: id.and_then(|id| id.part),
        total,
        opcode,
        name: opcode.and_then(|opcode| Opcode(opcode).name()),
        payload_len: clamp(payload_len),
        ..of_packet(packet)
    }
}

fn clamp(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The kinds of rows that are no messages.
const MALFORMED: &str = "malformed";
const NO_DATAGRAM: &str = "none";
const LEFT_OUT: &str = "left_out";

/// Rows with commas. No value holds a comma or a quote, so none is quoted.
pub(super) struct Csv<W> {
    out: W,
    begun: bool,
}

impl<W: Write> Csv<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out, begun: false }
    }

    fn begin(&mut self) -> io::Result<()> {
        if !self.begun {
            self.begun = true;
            writeln!(
                self.out,
                "packet,time,from,to,sender,kind,len,channel,seq,part,total,opcode,name,payload_len,findings"
            )?;
        }
        Ok(())
    }
}

impl<W: Write> Rows for Csv<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        self.begin()?;
        let Row { packet, time, from, to, sender, kind, len, name, payload_len, findings, .. } = row;
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
        self.begin()?;
        self.out.flush()
    }
}
