//! Lines of hex: `C> 02 01 32 07 …  # a comment`.

use std::fmt;
use std::io::{self, BufRead, Read as _};

use bcnet_transport::wire::Role;

/// One line that holds something.
pub(super) struct Line {
    /// Counted from 1, over all lines of the input.
    pub(super) number: u64,
    pub(super) sent_by: Option<Role>,
    pub(super) bytes: Result<Vec<u8>, BadHex>,
    pub(super) comment: Option<String>,
}

/// Why a line is no hex, and at which byte of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadHex {
    pub(super) at: usize,
    pub(super) cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    NoDigit(u8),
    HalfByte,
    TooLong,
}

impl fmt::Display for BadHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::NoDigit(byte) => write!(f, "'{}' is not a hex digit", byte.escape_ascii())?,
            Cause::HalfByte => f.write_str("half a byte")?,
            Cause::TooLong => write!(f, "longer than {MAX_LINE} characters")?,
        }
        write!(f, " at column {}", self.at + 1)
    }
}

/// Reads lines, skipping those that are empty or only a comment.
pub(super) struct Lines<R> {
    input: R,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, number: 0, buffer: Vec::new() }
    }

    pub(super) fn next_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            self.buffer.clear();
            let mut limited = self.input.by_ref().take(MAX_LINE);
            if limited.read_until(b'\n', &mut self.buffer)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.number == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.drain(..BYTE_ORDER_MARK.len());
            }
            if limited.limit() == 0 && !self.buffer.ends_with(b"\n") && !self.input.fill_buf()?.is_empty() {
                self.input.skip_until(b'\n')?;
                let bytes = Err(BadHex { at: self.buffer.len(), cause: Cause::TooLong });
                return Ok(Some(Line { number: self.number, sent_by: None, bytes, comment: None }));
            }
            if let Some(line) = parse(&self.buffer, self.number) {
                return Ok(Some(line));
            }
        }
    }
}

fn parse(line: &[u8], number: u64) -> Option<Line> {
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
    Some(Line { number, sent_by, bytes: digits(content, start), comment })
}

/// Returns the bytes that the hex digits of `line` from `start` on stand for.
fn digits(line: &[u8], start: usize) -> Result<Vec<u8>, BadHex> {
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
            _ => return Err(BadHex { at, cause: Cause::NoDigit(*byte) }),
        };
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err(BadHex { at: line.trim_ascii_end().len(), cause: Cause::HalfByte }),
    }
}

/// What some editors put in front of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// More than the hex of the largest UDP datagram, with spaces and a comment.
const MAX_LINE: u64 = 1 << 20;
