//! Reads lines of hex, such as `C> 02 01 32 07 …  # a comment`, and dumps with offsets.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{PeerId, Role};

use super::hex_dump::{BadDump, DumpAssembler, FedLine, HexDump};

/// One line with content, or a dump of several lines.
pub(super) struct HexLine {
    /// Counted from 1 over all lines of the input.
    pub(super) number: u64,
    pub(super) sent_by: Option<Role>,
    pub(super) bytes: Result<Vec<u8>, BadHex>,
    pub(super) comment: Option<String>,
    /// True if this is a dump, which may contain a whole packet with its headers.
    pub(super) is_dump: bool,
}

impl From<HexDump> for HexLine {
    fn from(dump: HexDump) -> Self {
        let comment = (!dump.preceding_line.is_empty()).then_some(dump.preceding_line);
        let bytes = dump.bytes.map_err(|bad| BadHex { at: 0, cause: BadHexCause::Dump(bad) });
        Self { number: dump.line, sent_by: None, bytes, comment, is_dump: true }
    }
}

/// The reason why a line is not hex, and the position in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadHex {
    pub(super) at: usize,
    pub(super) cause: BadHexCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHexCause {
    NotHexDigit(u8),
    HalfByte,
    TooLong,
    Dump(BadDump),
}

impl fmt::Display for BadHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            BadHexCause::NotHexDigit(byte) => write!(f, "'{}' is not a hex digit", byte.escape_ascii())?,
            BadHexCause::HalfByte => f.write_str("a byte has only one hex digit")?,
            BadHexCause::TooLong => write!(f, "the line is longer than {MAX_LINE} characters")?,
            BadHexCause::Dump(bad) => return bad.fmt(f),
        }
        write!(f, " at column {}", self.at + 1)
    }
}

/// Reads lines and dumps. Skips empty lines and lines with only a comment.
pub(super) struct HexLineReader<R> {
    input: R,
    number: u64,
    /// The number of bytes read so far.
    at: u64,
    buffer: Vec<u8>,
    dumps: DumpAssembler,
    /// Lines that are not hex. They are dropped if a dump follows: then they are its title.
    possible_titles: VecDeque<HexLine>,
    ready: VecDeque<HexLine>,
}

impl<R: BufRead> HexLineReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            number: 0,
            at: 0,
            buffer: Vec::new(),
            dumps: DumpAssembler::default(),
            possible_titles: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    pub(super) fn next_line(&mut self) -> io::Result<Option<HexLine>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            self.buffer.clear();
            let at = self.at;
            let mut limited = self.input.by_ref().take(MAX_LINE);
            let read = limited.read_until(b'\n', &mut self.buffer)?;
            self.at += read as u64;
            if read == 0 {
                let last = self.dumps.finish().map(HexLine::from);
                self.ready.extend(self.possible_titles.drain(..).chain(last));
                return Ok(self.ready.pop_front());
            }
            self.number += 1;
            if self.number == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.drain(..BYTE_ORDER_MARK.len());
            }
            if limited.limit() == 0 && !self.buffer.ends_with(b"\n") && !self.input.fill_buf()?.is_empty() {
                self.at += self.input.skip_until(b'\n')? as u64;
                let bytes = Err(BadHex { at: self.buffer.len(), cause: BadHexCause::TooLong });
                let line =
                    HexLine { number: self.number, sent_by: None, bytes, comment: None, is_dump: false };
                self.ready.extend(self.possible_titles.drain(..).chain([line]));
                continue;
            }
            self.classify_line(at);
        }
    }

    /// Decides whether the line in the buffer belongs to a dump, is hex, or may be a title.
    fn classify_line(&mut self, at: u64) {
        match self.dumps.feed(&self.buffer, self.number, at) {
            FedLine::DumpLine(done) => {
                self.possible_titles.clear();
                self.ready.extend(done.map(HexLine::from));
            }
            FedLine::OtherLine(done) => {
                self.ready.extend(done.map(HexLine::from));
                let Some(line) = parse_line(&self.buffer, self.number) else { return };
                if line.bytes.is_err()
                    && may_be_title(&self.buffer)
                    && self.possible_titles.len() < MAX_TITLES
                {
                    self.possible_titles.push_back(line);
                } else {
                    self.ready.extend(self.possible_titles.drain(..).chain([line]));
                }
            }
        }
    }
}

/// Returns whether a line that is not valid hex looks like text rather than like bytes.
fn may_be_title(line: &[u8]) -> bool {
    let is_byte = |word: &[u8]| word.len() == 2 && word.iter().all(u8::is_ascii_hexdigit);
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.take(2).filter(|word| is_byte(word)).count() < 2
}

fn parse_line(line: &[u8], number: u64) -> Option<HexLine> {
    let (content, comment) = match line.iter().position(|byte| *byte == b'#') {
        Some(at) => (&line[..at], Some(String::from_utf8_lossy(&line[at + 1..]).trim().to_owned())),
        None => (line, None),
    };
    let start = content.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let (sent_by, start) = match &content[start..] {
        [b'S' | b's', b'>', ..] => (Some(Role::Host), start + 2),
        [b'C' | b'c', b'>', ..] => (Some(Role::Client), start + 2),
        _ => (None, start),
    };
    Some(HexLine { number, sent_by, bytes: parse_hex_digits(content, start), comment, is_dump: false })
}

/// Parses the hex digits of `line` from `start` on.
fn parse_hex_digits(line: &[u8], start: usize) -> Result<Vec<u8>, BadHex> {
    let mut bytes = Vec::with_capacity(line.len() / 2);
    let mut high = None;
    for (at, byte) in line.iter().enumerate().skip(start) {
        if byte.is_ascii_whitespace() {
            continue;
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return Err(BadHex { at, cause: BadHexCause::NotHexDigit(*byte) }),
        };
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err(BadHex { at: line.trim_ascii_end().len(), cause: BadHexCause::HalfByte }),
    }
}

/// Makes up addresses of sender and receiver for a line of hex, since the line contains no addresses.
pub(super) fn synthetic_addresses(sent_by: Option<Role>, datagram: &[u8]) -> [SocketAddrV4; 2] {
    let sender = datagram.first().map_or(PeerId::UNASSIGNED, |byte| PeerId(*byte));
    let role = sent_by.unwrap_or(if sender == PeerId::HOST { Role::Host } else { Role::Client });
    let (from, to) = match role {
        Role::Host => (HOST, FIRST_CLIENT),
        Role::Client if sender.is_assignable() => (Ipv4Addr::new(10, 0, 0, sender.0), HOST),
        Role::Client => (FIRST_CLIENT, HOST),
    };
    [from, to].map(|address| SocketAddrV4::new(address, PORT))
}

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 22101;
/// The UTF-8 byte order mark, which some editors write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// The most lines before a dump that are taken for its title.
const MAX_TITLES: usize = 8;
/// More characters than the hex of the largest UDP datagram with spaces and a comment.
const MAX_LINE: u64 = 1 << 20;
