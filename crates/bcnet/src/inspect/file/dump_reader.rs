//! Reads packets from hex dumps in a text, as `tcpdump -x`, `tshark -x` and others print them.
//!
//! A dump with IP and UDP headers is read as a whole packet, of any link type. Any other dump is read as the UDP
//! payload alone. The time comes from the line before the dump, if that line contains one.

use std::io;

use bcnet_transport::Time;

use super::line_reader::LineReader;
use super::link_layer::{self, SkipReason, UdpDatagram};
use super::packet_log::{TimeOfDayClock, parse_seconds, parse_time_of_day};
use super::pcap::InputBuffer;
use super::source::{PacketBatch, ReadCounters, ReadStep, logged_packet};
use crate::inspect::hex::synthetic_addresses;
use crate::inspect::hex_dump::{DumpAssembler, FedLine, HexDump};

pub(super) struct DumpReader {
    lines: LineReader,
    line_count: u64,
    assembler: DumpAssembler,
    clock: TimeOfDayClock,
    last_micros: u64,
    /// True once a dump was a whole packet.
    has_packet_headers: bool,
}

impl DumpReader {
    /// Starts to read if the input looks like dumps. Otherwise returns the input.
    pub(super) fn open(window: InputBuffer) -> io::Result<Result<Self, InputBuffer>> {
        let lines = LineReader::open(window, contains_dump)?;
        Ok(lines.map(|lines| Self {
            lines,
            line_count: 0,
            assembler: DumpAssembler::default(),
            clock: TimeOfDayClock::default(),
            last_micros: 0,
            has_packet_headers: false,
        }))
    }

    pub(super) const fn offset(&self) -> u64 {
        self.lines.offset()
    }

    /// Reads up to the end of the next dump, and adds it to `batch`.
    pub(super) fn read(
        &mut self,
        batch: &mut PacketBatch,
        counts: &mut ReadCounters,
    ) -> io::Result<ReadStep> {
        loop {
            let (at, line) = self.lines.next_line()?;
            let is_end = line.is_empty();
            self.line_count += 1;
            // At the end of the input the line is empty, which ends a dump.
            let (FedLine::DumpLine(done) | FedLine::OtherLine(done)) =
                self.assembler.feed(line, self.line_count, at);
            if let Some(dump) = done {
                counts.packets += 1;
                self.push_packet(&dump, batch, counts);
                return Ok(ReadStep::More);
            }
            if is_end {
                return Ok(ReadStep::End);
            }
        }
    }

    fn push_packet(&mut self, dump: &HexDump, batch: &mut PacketBatch, counts: &mut ReadCounters) {
        self.last_micros =
            self.parse_time(&dump.preceding_line).unwrap_or(self.last_micros + UNTIMED_INTERVAL);
        let Ok(bytes) = &dump.bytes else { return counts.skipped.add(SkipReason::Truncated(None)) };
        let time = Time::from_micros(self.last_micros);
        let (from, to, payload) = match extract_udp_from_any_link(bytes) {
            Ok(UdpDatagram { from, to, payload }) => {
                self.has_packet_headers = true;
                (from, to, payload)
            }
            Err(SkipReason::NotUdp) if !self.has_packet_headers => {
                let [from, to] = synthetic_addresses(None, bytes);
                (from, to, bytes.as_slice())
            }
            Err(skip) => return counts.skipped.add(skip),
        };
        batch.push(logged_packet(counts.packets, dump.offset, time, from, to, false), payload);
    }

    /// Returns the time in the line before a dump, in microseconds.
    fn parse_time(&mut self, head: &str) -> Option<u64> {
        head.split_whitespace().take(3).find_map(|word| match parse_time_of_day(word) {
            Some(time) => Some(self.clock.absolute(time)),
            None => parse_seconds(word).filter(|_| word.contains('.')),
        })
    }
}

/// Returns the datagram in a packet of any link type.
///
/// Returns [`SkipReason::NotUdp`] if the bytes do not look like a packet.
pub(in crate::inspect) fn extract_udp_from_any_link(bytes: &[u8]) -> Result<UdpDatagram<'_>, SkipReason> {
    let mut why = SkipReason::NotUdp;
    for link in link_layer::RECOGNIZABLE_LINKS {
        match link_layer::extract_udp(link, bytes) {
            Ok(udp) => return Ok(udp),
            // These reasons require a plausible IP header, so the bytes are a packet.
            Err(skip @ (SkipReason::Ipv6 | SkipReason::IpFragment | SkipReason::Truncated(Some(_))))
                if why == SkipReason::NotUdp =>
            {
                why = skip
            }
            Err(_) => {}
        }
    }
    Err(why)
}

/// Returns whether one of the complete lines in `bytes` belongs to a hex dump.
fn contains_dump(bytes: &[u8]) -> bool {
    let mut dumps = DumpAssembler::default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.into_iter().any(|line| matches!(dumps.feed(line, 0, 0), FedLine::DumpLine(_)))
}

/// The assumed interval between packets without a time, in microseconds.
const UNTIMED_INTERVAL: u64 = 1000;
