//! Packets as dumps in a text: what `tcpdump -x`, `tshark -x` and others print.
//!
//! A dump is of a whole packet if there is a UDP datagram in it, whatever the link; otherwise of the datagram alone. Its time
//! is in the line in front of it, if there is one.

use std::io;

use bcnet_transport::Time;

use super::frame::{self, Skip, Udp};
use super::log::{Clock, seconds, time_of_day};
use super::pcap::Window;
use super::source::{Batch, Counts, Step, logged};
use super::text::Lines;
use crate::inspect::dump::{Assembler, Dump, Fed};
use crate::inspect::hex::addresses;

pub(super) struct Reader {
    lines: Lines,
    count: u64,
    dumps: Assembler,
    clock: Clock,
    last: u64,
    /// Whether the dumps are of whole packets, since one of them was.
    are_packets: bool,
}

impl Reader {
    /// Begins to read if the beginning looks like dumps. Otherwise gives the input back.
    pub(super) fn open(window: Window) -> io::Result<Result<Self, Window>> {
        let lines = Lines::open(window, is_dump)?;
        Ok(lines.map(|lines| Self {
            lines,
            count: 0,
            dumps: Assembler::default(),
            clock: Clock::default(),
            last: 0,
            are_packets: false,
        }))
    }

    pub(super) const fn offset(&self) -> u64 {
        self.lines.offset()
    }

    /// Reads up to the end of the next dump, and adds it to `batch`.
    pub(super) fn read(&mut self, batch: &mut Batch, counts: &mut Counts) -> io::Result<Step> {
        loop {
            let (at, line) = self.lines.next_line()?;
            let is_end = line.is_empty();
            self.count += 1;
            // At the end the line is empty, which ends a dump.
            let (Fed::Line(done) | Fed::Other(done)) = self.dumps.feed(line, self.count, at);
            if let Some(dump) = done {
                counts.packets += 1;
                self.push(&dump, batch, counts);
                return Ok(Step::More);
            }
            if is_end {
                return Ok(Step::End);
            }
        }
    }

    fn push(&mut self, dump: &Dump, batch: &mut Batch, counts: &mut Counts) {
        self.last = self.time(&dump.head).unwrap_or(self.last + UNTIMED_STEP);
        let Ok(bytes) = &dump.bytes else { return counts.skipped.note(Skip::Cut(None)) };
        let time = Time::from_micros(self.last);
        let (from, to, payload) = match udp(bytes) {
            Ok(Udp { from, to, payload }) => {
                self.are_packets = true;
                (from, to, payload)
            }
            Err(Skip::Other) if !self.are_packets => {
                let [from, to] = addresses(None, bytes);
                (from, to, bytes.as_slice())
            }
            Err(skip) => return counts.skipped.note(skip),
        };
        batch.push(logged(counts.packets, dump.at, time, from, to, false), payload);
    }

    /// Returns the time that the line in front of a dump tells, in microseconds.
    fn time(&mut self, head: &str) -> Option<u64> {
        head.split_whitespace().take(3).find_map(|word| match time_of_day(word) {
            Some(time) => Some(self.clock.absolute(time)),
            None => seconds(word).filter(|_| word.contains('.')),
        })
    }
}

/// Returns the datagram in a packet of whatever link; [`Skip::Other`] if it does not look like a packet.
pub(in crate::inspect) fn udp(bytes: &[u8]) -> Result<Udp<'_>, Skip> {
    let mut why = Skip::Other;
    for link in frame::TELLING_LINKS {
        match frame::udp(link, bytes) {
            Ok(udp) => return Ok(udp),
            // Lengths in the packet, or the place of its protocol, show that it is one.
            Err(skip @ (Skip::Ipv6 | Skip::IpFragment | Skip::Cut(Some(_)))) if why == Skip::Other => {
                why = skip
            }
            Err(_) => {}
        }
    }
    Err(why)
}

/// Returns whether a dump begins in whole lines.
fn is_dump(bytes: &[u8]) -> bool {
    let mut dumps = Assembler::default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.into_iter().any(|line| matches!(dumps.feed(line, 0, 0), Fed::Line(_)))
}

/// Packets of which no time is told are so many microseconds apart.
const UNTIMED_STEP: u64 = 1000;
