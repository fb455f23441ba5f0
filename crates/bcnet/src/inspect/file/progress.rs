//! Shows the progress of reading a long file.

use std::io::{self, IsTerminal};

/// The progress of reading a long file, shown on a terminal.
pub(super) struct ReadProgress {
    size: Option<u64>,
    shown_offset: u64,
}

impl ReadProgress {
    pub(super) fn new(size: Option<u64>) -> Self {
        Self { size: size.filter(|_| io::stderr().is_terminal()), shown_offset: 0 }
    }

    /// Shows the progress.
    ///
    /// `offset` counts bytes after decompression, `file_offset` bytes of the file on disk.
    pub(super) fn show(&mut self, offset: u64, file_offset: u64) {
        let Some(size) = self.size else { return };
        if offset < self.shown_offset + PROGRESS_STEP || self.shown_offset == 0 && offset == size {
            return;
        }
        self.shown_offset = offset;
        let unpacked = if offset == file_offset {
            String::new()
        } else {
            format!(", {} MB decompressed", offset / 1_000_000)
        };
        let percent = file_offset.min(size) * 100 / size.max(1);
        eprint!("\r{percent:3} % of {:.1} MB{unpacked}", size as f64 / 1e6);
    }

    pub(super) fn clear(&self) {
        if self.shown_offset > 0 {
            eprint!("\r{:60}\r", "");
        }
    }
}

const PROGRESS_STEP: u64 = 16_000_000;
