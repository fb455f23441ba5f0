//! The lines of inputs that are text.

use std::io::{self, BufRead, BufReader, Read};

use super::pcap::InputBuffer;

/// Reads an input line by line.
pub(super) struct LineReader {
    input: BufReader<InputBuffer>,
    line: Vec<u8>,
    offset: u64,
}

impl LineReader {
    /// Begins to read if the beginning is `as_wanted`. Otherwise gives the input back.
    pub(super) fn open(
        mut window: InputBuffer,
        as_wanted: fn(&[u8]) -> bool,
    ) -> io::Result<Result<Self, InputBuffer>> {
        // No more than is needed: what is followed may stay short for long.
        while !as_wanted(window.buffered())
            && window.buffered().len() < SNIFF_LEN
            && window.fill_to(window.buffered().len() + 1)?
        {}
        if !as_wanted(window.buffered()) {
            return Ok(Err(window));
        }
        Ok(Ok(Self { input: BufReader::new(window), line: Vec::new(), offset: 0 }))
    }

    /// Returns the place behind the line that was read last.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next line. Returns its place and the line, which is empty at the end only.
    pub(super) fn next_line(&mut self) -> io::Result<(u64, &[u8])> {
        self.line.clear();
        let at = self.offset;
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut self.line)?;
        self.offset += read as u64;
        Ok((at, &self.line))
    }
}

/// How much of a file is looked at to know what it is.
const SNIFF_LEN: usize = 64 * 1024;
const MAX_LINE: u64 = 64 * 1024;
