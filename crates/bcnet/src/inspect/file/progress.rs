//! How far a long file was read.

use std::io::{self, IsTerminal};

/// How far a long file was read, for a person who waits.
pub(super) struct Progress {
    size: Option<u64>,
    shown: u64,
}

impl Progress {
    pub(super) fn new(size: Option<u64>) -> Self {
        Self { size: size.filter(|size| *size > 2 * PROGRESS_STEP && io::stderr().is_terminal()), shown: 0 }
    }

    pub(super) fn show(&mut self, offset: u64) {
        if let Some(size) = self.size
            && offset >= self.shown + PROGRESS_STEP
        {
            self.shown = offset;
            eprint!("\r{:3} % of {} MB", offset * 100 / size.max(1), size / 1_000_000);
        }
    }

    pub(super) fn clear(&self) {
        if self.shown > 0 {
            eprint!("\r{:30}\r", "");
        }
    }
}

const PROGRESS_STEP: u64 = 16_000_000;
