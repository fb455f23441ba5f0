//! Reads hex dumps of several lines, each line with its offset.
//!
//! ```text
//! 0000  01 d7 33 68 c3 bf 76 db 10 11 12 13 14 15 16 17   ..3h..v.........
//! 0010  18 19                                             ..
//! ```
//!
//! The formats are those of `xxd`, `hexdump -C`, `od -tx1`, `tcpdump -x`, Wireshark and text2pcap. An offset of zero
//! starts the next dump. The text column beside the bytes is recognised by the gap before it and by the offset of the
//! next line.

use std::{fmt, mem};

/// A complete dump.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HexDump {
    /// The number of the first line; `offset` is where that line starts in the input.
    pub(super) line: u64,
    pub(super) offset: u64,
    /// The line before the dump, which may contain the time of the packet.
    pub(super) preceding_line: String,
    pub(super) bytes: Result<Vec<u8>, BadDump>,
}

/// The reason why a dump cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadDump {
    /// The offset of a line is not the expected one.
    Offset {
        line: u64,
        found: usize,
        expected: usize,
    },
    /// Two-byte words in the byte order of the machine that wrote them, which is unknown.
    Words,
    TooLong,
}

impl fmt::Display for BadDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offset { line, found, expected } => {
                write!(f, "line {line} of the dump has offset 0x{found:X}, expected 0x{expected:X}")
            }
            Self::Words => f.write_str("two-byte words in unknown byte order; use hexdump -C"),
            Self::TooLong => write!(f, "the dump has more than {MAX_BYTES} bytes"),
        }
    }
}

/// Assembles dumps line by line.
#[derive(Debug, Default)]
pub(super) struct DumpAssembler {
    current: Option<OpenDump>,
    preceding_line: String,
    title: Option<String>,
    /// True if the dumps have titles. Wireshark writes them if it shows a packet in several forms.
    has_titles: bool,
}

/// A dump whose end is not reached yet.
#[derive(Debug)]
struct OpenDump {
    dump: HexDump,
    bytes: Vec<u8>,
    /// The offset of the last line.
    last_row_offset: usize,
    /// The number of bytes on each line.
    stride: Option<usize>,
    radix: Option<u32>,
    /// True if lines were left out (`*`) because they equal the previous line.
    has_repeated_lines: bool,
    /// True if the dump shows something other than the packet.
    is_not_packet: bool,
}

/// The kind of a line, with a dump that it completes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FedLine {
    /// A line of a dump, with the previous dump if this line starts a new one.
    DumpLine(Option<HexDump>),
    /// Another line, which ends a dump.
    OtherLine(Option<HexDump>),
}

impl DumpAssembler {
    /// Processes a line with its number and its position in the input.
    pub(super) fn feed(&mut self, line: &[u8], number: u64, at: u64) -> FedLine {
        if line.trim_ascii() == b"*" && self.current.is_some() {
            self.current.iter_mut().for_each(|current| current.has_repeated_lines = true);
            return FedLine::DumpLine(None);
        }
        let Some(row) = DumpRow::read(line) else {
            let done = self.finish();
            self.note_preceding_line(line);
            return FedLine::OtherLine(done);
        };
        if let Some(current) = &mut self.current
            && current.append_row(&row, number)
        {
            return FedLine::DumpLine(None);
        }
        if !row.is_start() {
            let done = self.finish();
            self.note_preceding_line(line);
            return FedLine::OtherLine(done);
        }
        let done = self.finish();
        let (head, title) = (mem::take(&mut self.preceding_line), self.title.take());
        self.has_titles |= title.as_deref() == Some(PACKET_TITLE);
        let is_other = self.has_titles && title.is_some_and(|title| title != PACKET_TITLE);
        let bytes = if row.is_words() { Err(BadDump::Words) } else { Ok(Vec::new()) };
        self.current = Some(OpenDump {
            dump: HexDump { line: number, offset: at, preceding_line: head, bytes },
            bytes: row.bytes,
            last_row_offset: 0,
            stride: None,
            radix: None,
            has_repeated_lines: false,
            is_not_packet: is_other,
        });
        FedLine::DumpLine(done)
    }

    /// Ends the current dump. Returns it if it shows a packet.
    pub(super) fn finish(&mut self) -> Option<HexDump> {
        let mut current = self.current.take().filter(|current| !current.is_not_packet)?;
        // The text column of the last line may look like bytes.
        if let Some(stride) = current.stride {
            current.bytes.truncate(current.last_row_offset + stride);
        }
        let bytes = current.dump.bytes.map(|_| current.bytes);
        Some(HexDump { bytes, ..current.dump })
    }

    fn note_preceding_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        let line = String::from_utf8_lossy(&line[..line.len().min(MAX_PRECEDING_LINE)]);
        match parse_title(&line) {
            Some(title) => self.title = Some(title.to_owned()),
            None if line.is_empty() => {}
            None => self.preceding_line = line.into_owned(),
        }
    }
}

impl OpenDump {
    /// Adds a line that continues this dump or contradicts it. Returns `false` if the line starts another dump.
    fn append_row(&mut self, row: &DumpRow<'_>, number: u64) -> bool {
        if row.is_zero() {
            return false;
        }
        if self.dump.bytes.is_err() {
            return true;
        }
        let full = self.bytes.len();
        let Some(offset) = self.row_offset(row, full) else {
            let found = row.offset(self.radix.unwrap_or(16)).unwrap_or(usize::MAX);
            self.dump.bytes = Err(BadDump::Offset { line: number, found, expected: full });
            return true;
        };
        if offset > MAX_BYTES {
            self.dump.bytes = Err(BadDump::TooLong);
            return true;
        }
        if offset > full {
            let period = full - self.last_row_offset;
            (full..offset).for_each(|at| self.bytes.push(self.bytes[at - period]));
        }
        self.bytes.truncate(offset);
        self.stride = self.stride.or(Some(offset - self.last_row_offset));
        self.last_row_offset = offset;
        self.has_repeated_lines = false;
        self.bytes.extend_from_slice(&row.bytes);
        true
    }

    /// Returns the offset of a line if it follows the last one.
    fn row_offset(&mut self, row: &DumpRow<'_>, full: usize) -> Option<usize> {
        let is_possible = |radix: &u32| self.radix.is_none_or(|known| known == *radix);
        let mut radixes = [16, 8, 10].into_iter().filter(is_possible);
        if let Some(radix) = radixes.find(|radix| row.offset(*radix) == Some(full)) {
            self.radix = Some(radix);
            return Some(full);
        }
        let offset = row.offset(self.radix.unwrap_or(16))?;
        let repeated = self.has_repeated_lines && offset > full && full > self.last_row_offset;
        (offset > self.last_row_offset && offset < full || repeated).then_some(offset)
    }
}

/// A line of a dump.
#[derive(Debug)]
struct DumpRow<'a> {
    digits: &'a str,
    /// True if a colon follows the offset.
    has_colon: bool,
    /// The number of digits in the first group.
    group: usize,
    bytes: Vec<u8>,
}

impl<'a> DumpRow<'a> {
    /// Parses a line that starts with a possible offset.
    fn read(line: &'a [u8]) -> Option<Self> {
        let line = line.trim_ascii();
        let (line, is_marked) = line.strip_prefix(b"0x").map_or((line, false), |rest| (rest, true));
        let count = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, rest) = line.split_at(count);
        let (rest, has_colon) = rest.strip_prefix(b":").map_or((rest, is_marked), |rest| (rest, true));
        let least = if has_colon { MIN_DIGITS } else { MIN_BARE_DIGITS };
        if !(least..=MAX_DIGITS).contains(&count)
            || rest.first().is_some_and(|byte| !byte.is_ascii_whitespace())
        {
            return None;
        }
        let digits = std::str::from_utf8(digits).ok()?;
        let (bytes, group) = parse_bytes(rest);
        // Without a colon, a line of four-digit groups may be plain hex instead of an offset with its bytes.
        let is_clear = has_colon || group == 2 || rest.is_empty() || count >= MIN_WORD_DIGITS;
        (is_clear && (rest.trim_ascii().is_empty() || !bytes.is_empty())).then_some(Self {
            digits,
            has_colon,
            group,
            bytes,
        })
    }

    fn offset(&self, radix: u32) -> Option<usize> {
        usize::from_str_radix(self.digits, radix).ok()
    }

    fn is_zero(&self) -> bool {
        self.digits.bytes().all(|digit| digit == b'0')
    }

    fn is_start(&self) -> bool {
        self.is_zero() && !self.bytes.is_empty()
    }

    /// Returns whether the line is in the format of `hexdump` without `-C`.
    fn is_words(&self) -> bool {
        !self.has_colon && self.group == 4
    }
}

/// Returns the bytes of a line after its offset, and the number of digits in the first group.
fn parse_bytes(text: &[u8]) -> (Vec<u8>, usize) {
    let text = text.split(|byte| *byte == b'|').next().unwrap_or_default().trim_ascii_start();
    let (mut bytes, mut first, mut rest) = (Vec::with_capacity(16), 0, text);
    while let Some(group) = next_hex_group(rest) {
        if first == 0 {
            first = group.len();
        }
        let pairs = group.chunks_exact(2).filter_map(|pair| std::str::from_utf8(pair).ok());
        bytes.extend(pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()));
        rest = &rest[group.len()..];
        let gap = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        // Some tools leave a wider gap in the middle of sixteen bytes.
        let is_middle = gap == 2 && bytes.len() == 8 && first == 2;
        if gap != 1 && !is_middle || bytes.len() > MAX_ROW_BYTES {
            break;
        }
        rest = &rest[gap..];
    }
    (bytes, first)
}

/// Returns the hex digits up to the next space, if they are whole bytes and nothing else.
fn next_hex_group(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let group = &text[..end];
    (end > 0 && end.is_multiple_of(2) && group.iter().all(u8::is_ascii_hexdigit)).then_some(group)
}

/// Returns `Frame` for `Frame (60 bytes):`.
fn parse_title(head: &str) -> Option<&str> {
    let (title, size) = head.strip_suffix(" bytes):")?.rsplit_once(" (")?;
    size.bytes().all(|byte| byte.is_ascii_digit()).then_some(title)
}

const PACKET_TITLE: &str = "Frame";
/// The fewest digits of an offset: with a colon, without a colon, and before two-byte words.
const MIN_DIGITS: usize = 3;
const MIN_BARE_DIGITS: usize = 4;
const MIN_WORD_DIGITS: usize = 7;
const MAX_DIGITS: usize = 16;
/// More bytes than any tool puts on a line.
const MAX_ROW_BYTES: usize = 256;
const MAX_PRECEDING_LINE: usize = 512;
/// More bytes than any packet has.
const MAX_BYTES: usize = 262_144;
