//! One row per message, for spreadsheets and data frames.

use std::io::{self, Write};

use bcnet_observe::{Finding, Observed, Observer, opcode};
use bcnet_session::game::Opcode;
use bcnet_transport::wire::{Channel, Message};

use super::filter::Filter;
use super::{End, Evidence, Sight, Sink};

/// A message as columns.
pub(super) struct Row {
    pub(super) packet: u64,
    /// Microseconds, as in the capture.
    pub(super) time: u64,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) sender: u8,
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

impl<R: Rows> Sink for Table<R> {
    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let packet = sight.packet;
        let start = *self.start.get_or_insert(packet.time.as_micros());
        let Observed::Datagram(datagram, id, side) = &sight.what else { return Ok(()) };
        let receiver = sight.observer.conversation(*id).and_then(|talk| talk.peer(side.other()));
        let faults = sight.findings.iter().any(|finding| finding.what.is_fault());
        if !self.filter.wants(packet, [Some(datagram.sender()), receiver], start)
            || self.filter.anomalies && !faults
        {
            return Ok(());
        }
        for message in datagram.messages().iter().filter(|message| self.filter.wants_message(message)) {
            self.rows.row(&row(sight, datagram.sender().0, message))?;
        }
        if self.at_once { self.rows.flush() } else { Ok(()) }
    }

    fn find(&mut self, _: &Finding, _: Option<Evidence>, _: &Observer) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &End<'_>) -> io::Result<()> {
        self.rows.finish()
    }
}

fn row(sight: &Sight<'_>, sender: u8, message: &Message<'_>) -> Row {
    let (id, payload_len, total) = match message {
        Message::Ack(ack) => (Some(ack.id), 0, None),
        Message::Data(data) => {
            let total = data.delivery.part().and_then(|part| part.total()).map(|total| total.get());
            (message.id(), data.payload.len(), total)
        }
        Message::Control(_) | Message::Keepalive => (message.id(), 0, None),
    };
    let named = sight.findings.iter().filter(|finding| id.is_some() && finding.what.message() == id);
    let names: Vec<&str> = named.map(|finding| finding.what.name()).collect();
    let opcode = opcode(message);
    Row {
        packet: sight.packet.number,
        time: sight.packet.time.as_micros(),
        from: sight.packet.from.to_string(),
        to: sight.packet.to.to_string(),
        sender,
        kind: message.kind().name().unwrap_or("unknown"),
        len: u32::try_from(message.wire_len()).unwrap_or(u32::MAX),
        channel: id.map(|id| id.channel),
        seq: id.map(|id| id.seq.0),
        part: id.and_then(|id| id.part),
        total,
        opcode,
        name: opcode.and_then(|opcode| Opcode(opcode).name()),
        payload_len: u32::try_from(payload_len).unwrap_or(u32::MAX),
        findings: names.join(" "),
    }
}

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
        write!(self.out, "{packet},{seconds}.{micros:06},{from},{to},{sender},{kind},{len},")?;
        let text = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
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
