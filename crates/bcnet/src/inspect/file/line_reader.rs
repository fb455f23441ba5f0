//! Reads text inputs line by line.

use std::io::{self, BufRead, BufReader, Read};

use super::pcap::InputBuffer;

/// Reads an input line by line.
pub(super) struct LineReader {
    input: BufReader<InputBuffer>,
    line: Vec<u8>,
    offset: u64,
}

impl LineReader {
    /// Starts to read if `as_wanted` accepts the beginning of the input. Otherwise returns the input.
    pub(super) fn open(
        mut window: InputBuffer,
        as_wanted: fn(&[u8]) -> bool,
    ) -> io::Result<Result<Self, InputBuffer>> {
        // Reads no more than needed: a followed file may stay short for a long time.
        while !as_wanted(window.buffered())
            && window.buffered().len() < SNIFF_LEN
            && window.fill_to(window.buffered().len() + 1)?
        {}
        if !as_wanted(window.buffered()) {
            return Ok(Err(window));
        }
        Ok(Ok(Self { input: BufReader::new(window), line: Vec::new(), offset: 0 }))
    }

    /// Returns the offset after the last line that was read.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next line. Returns its offset and the line, which is empty only at the end.
    pub(super) fn next_line(&mut self) -> io::Result<(u64, &[u8])> {
        self.line.clear();
        let at = self.offset;
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut self.line)?;
        self.offset += read as u64;
        Ok((at, &self.line))
    }
}

/// The number of bytes that are read to detect the format of a file.
const SNIFF_LEN: usize = 64 * 1024;
const MAX_LINE: u64 = 64 * 1024;
