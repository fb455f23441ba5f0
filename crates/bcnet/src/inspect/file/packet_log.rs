//! Reads packet logs of other tools for the game: a line for each datagram, and a hex dump below it.
//!
//! ```text
//! [11:39:21.419] #1758 C->S Peer#2(10.10.10.239:22101) len=10 rc=10 [ACK]
//!   Decrypted:
//!     0000: 02 02 01 27 00 00 01 28 00 00                    |...'...(..|
//! ```
//!
//! Text after a dump and lines of other forms are ignored, because tools differ.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::Time;

use super::line_reader::LineReader;
use super::pcap::InputBuffer;
use super::source::{PacketBatch, ReadCounters, ReadStep, logged_packet};

pub(super) struct PacketLogReader {
    lines: LineReader,
    entry: Option<LogEntry>,
    pub(super) clock: TimeOfDayClock,
}

/// Converts times of day to a time that grows over midnight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeOfDayClock {
    /// The number of midnights that have passed.
    days: u64,
    last: u64,
}

impl TimeOfDayClock {
    /// Returns the microseconds since the midnight before the first time.
    pub(super) fn absolute(&mut self, time_of_day: u64) -> u64 {
        // A small step back is disorder, a large one is midnight.
        if time_of_day + MICROS_PER_DAY / 2 < self.last {
            self.days += 1;
        }
        self.last = time_of_day;
        self.days * MICROS_PER_DAY + time_of_day
    }
}

/// A datagram that is being read.
struct LogEntry {
    offset: u64,
    number: Option<u64>,
    micros: u64,
    from: SocketAddrV4,
    to: SocketAddrV4,
    len: Option<usize>,
    bytes: Vec<u8>,
    section: LogSection,
    /// True if the log contains deciphered bytes.
    is_decrypted: bool,
}

/// The kind of the lines below the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogSection {
    /// An unknown section.
    Other,
    Decrypted,
    /// The bytes as they were on the wire.
    Encrypted,
}

impl PacketLogReader {
    /// Starts to read if the input looks like a log. Otherwise returns the input.
    pub(super) fn open(window: InputBuffer) -> io::Result<Result<Self, InputBuffer>> {
        let lines = LineReader::open(window, contains_log)?;
        Ok(lines.map(|lines| Self { lines, entry: None, clock: TimeOfDayClock::default() }))
    }

    pub(super) const fn offset(&self) -> u64 {
        self.lines.offset()
    }

    /// Reads up to the head of the next datagram, and adds the previous datagram to `batch`.
    pub(super) fn read(
        &mut self,
        batch: &mut PacketBatch,
        counts: &mut ReadCounters,
    ) -> io::Result<ReadStep> {
        loop {
            let (at, bytes) = self.lines.next_line()?;
            let (is_end, line) = (bytes.is_empty(), String::from_utf8_lossy(bytes));
            let head = parse_head(line.trim());
            if !is_end && head.is_none() {
                if let Some(entry) = &mut self.entry {
                    match bytes.trim_ascii().strip_prefix(b"Text:") {
                        Some(text) => entry.add_gamespy_text(text.trim_ascii_start()),
                        None => entry.add_line(line.trim()),
                    }
                }
                continue;
            }
            let done = self.entry.take();
            if let Some(head) = head {
                self.entry = Some(self.start_entry(head, at));
            }
            if let Some(entry) = done {
                counts.packets += 1;
                entry.finish(batch, counts);
                return Ok(if is_end { ReadStep::End } else { ReadStep::More });
            }
            if is_end {
                return Ok(ReadStep::End);
            }
        }
    }

    fn start_entry(&mut self, head: EntryHead, offset: u64) -> LogEntry {
        let host = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let (from, to) = if head.to_client { (host, head.peer) } else { (head.peer, host) };
        LogEntry {
            offset,
            number: head.number,
            micros: self.clock.absolute(head.micros),
            from,
            to,
            len: head.len,
            bytes: Vec::new(),
            section: LogSection::Other,
            is_decrypted: true,
        }
    }
}

impl LogEntry {
    /// Adds GameSpy text below the head. It consists of bytes, not of UTF-8.
    fn add_gamespy_text(&mut self, text: &[u8]) {
        if self.bytes.is_empty() && text.starts_with(b"\\") {
            self.bytes.extend_from_slice(text);
            self.len = None;
        }
    }

    /// Adds any other line below the head.
    fn add_line(&mut self, line: &str) {
        if let Some(title) = line.strip_suffix(':') {
            let title = title.to_ascii_lowercase();
            self.section = match title.as_str() {
                "decrypted" | "deciphered" | "plain" | "plaintext" => LogSection::Decrypted,
                "encrypted" | "raw" | "wire" | "ciphered" => LogSection::Encrypted,
                _ => LogSection::Other,
            };
            // Deciphered bytes are preferred, in whichever order the sections come.
            let (wire, better) = (!self.is_decrypted, self.section == LogSection::Decrypted);
            if wire && better {
                self.bytes.clear();
            }
            if self.bytes.is_empty() {
                self.is_decrypted = self.section != LogSection::Encrypted;
            }
            return;
        }
        let fits = self.bytes.is_empty() || self.is_decrypted == (self.section == LogSection::Decrypted);
        if self.section != LogSection::Other && fits && self.bytes.len() < MAX_DATAGRAM {
            self.bytes.extend(parse_dump_line(line, self.bytes.len()).unwrap_or_default());
        }
    }

    fn finish(self, batch: &mut PacketBatch, counts: &mut ReadCounters) {
        if self.bytes.is_empty() || self.len.is_some_and(|len| len != self.bytes.len()) {
            counts.skipped.truncated += 1;
            return;
        }
        let (number, time) = (self.number.unwrap_or(counts.packets), Time::from_micros(self.micros));
        batch.push(
            logged_packet(number, self.offset, time, self.from, self.to, self.is_decrypted),
            &self.bytes,
        );
    }
}

/// Returns the bytes of `0010: 02 02 01 …  |...|`, if the line continues a dump of `have` bytes.
fn parse_dump_line(line: &str, have: usize) -> Option<Vec<u8>> {
    let (offset, rest) = line.split_once(':')?;
    if usize::from_str_radix(offset.trim(), 16).ok()? != have {
        return None;
    }
    let hex = rest.split('|').next().unwrap_or_default();
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2)).collect()
}

/// The parsed head of a datagram.
struct EntryHead {
    micros: u64,
    number: Option<u64>,
    to_client: bool,
    peer: SocketAddrV4,
    len: Option<usize>,
}

/// Returns whether one of the complete lines in `bytes` is the head of a datagram.
fn contains_log(bytes: &[u8]) -> bool {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.filter_map(|line| std::str::from_utf8(line).ok()).any(|line| parse_head(line.trim()).is_some())
}

/// Parses `[11:39:21.419] #1758 C->S Peer#2(10.10.10.239:22101) len=10 …`.
fn parse_head(line: &str) -> Option<EntryHead> {
    let (time, rest) = line.strip_prefix('[')?.split_once(']')?;
    let micros = parse_time_of_day(time)?;
    let mut head = EntryHead { micros, number: None, to_client: false, peer: UNKNOWN_PEER, len: None };
    let mut direction = None;
    for word in rest.split_whitespace() {
        match word {
            "S->C" => direction = Some(true),
            "C->S" => direction = Some(false),
            _ => {}
        }
        if let Some(number) = word.strip_prefix('#') {
            head.number = head.number.or_else(|| number.parse().ok());
        }
        if let Some(len) = word.strip_prefix("len=") {
            head.len = len.parse().ok();
        }
        let address = word.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        if let Some(address) = address.and_then(|(address, _)| address.parse().ok()) {
            head.peer = address;
        }
    }
    head.to_client = direction?;
    Some(head)
}

/// Returns the microseconds since midnight for `11:39:21.419`.
pub(super) fn parse_time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seconds = parse_seconds(parts.next()?)?;
    (hours < 24 && minutes < 60 && seconds < 60_000_000)
        .then(|| (hours * 60 + minutes) * 60_000_000 + seconds)
}

/// Returns the microseconds for `21.419`.
pub(super) fn parse_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(digits.parse().ok()?)
}

const UNKNOWN_PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 1);
const MICROS_PER_DAY: u64 = 86_400 * 1_000_000;
/// The largest UDP payload.
const MAX_DATAGRAM: usize = 65_507;
