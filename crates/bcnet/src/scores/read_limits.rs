//! Limits for reading a scores file, which may come from somebody else.
//!
//! A file of a few kilobytes can describe endless tables. Time, memory of SQLite and the size of the result are
//! limited, so reading always ends.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use bcnet_transport::Time;
use bcnet_udp::Clock;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode};

/// Limits the time and the memory of all following statements of a connection.
pub(super) fn apply(connection: &mut Connection, time: Duration) -> rusqlite::Result<()> {
    let (clock, end) = (Clock::start(), Time::ZERO + time);
    connection.progress_handler(STEPS_BETWEEN_CHECKS, Some(move || clock.now() >= end))?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)?;
    // The heap limit covers all connections of this process. It also covers sorting, which must not fill the disk.
    connection.execute_batch(&format!(
        "PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
    ))
}

/// Returns the error for a reader who has met a limit, or the same error.
pub(super) fn explain(error: anyhow::Error) -> anyhow::Error {
    let code = error.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    let problem = match code {
        Some(ErrorCode::OperationInterrupted) => {
            format!("reading takes longer than {} s", TIME_LIMIT.as_secs())
        }
        Some(ErrorCode::OutOfMemory) => {
            format!("reading takes more than {} MiB of memory", MAX_HEAP_BYTES >> 20)
        }
        Some(ErrorCode::TooBig) => format!("a text is longer than {} KiB", MAX_TEXT_BYTES >> 10),
        _ => return error,
    };
    anyhow!("{problem}; the file is damaged or was not written by bcnet: restore it from a backup")
}

/// The memory that a result may still take.
pub(super) struct ResultBudget {
    bytes_left: usize,
}

impl ResultBudget {
    pub(super) const fn new() -> Self {
        Self { bytes_left: MAX_RESULT_BYTES }
    }

    /// Takes the memory of a row with texts of this total length.
    pub(super) fn take_row(&mut self, text_len: usize) -> anyhow::Result<()> {
        let left = self.bytes_left.checked_sub(ROW_BYTES + text_len);
        ensure!(
            left.is_some(),
            "the result is larger than {} MiB; ask for less with --since or --limit",
            MAX_RESULT_BYTES >> 20
        );
        self.bytes_left = left.unwrap_or(0);
        Ok(())
    }
}

/// The time limit for reading. Large files of real servers take less than a second.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);
/// The number of steps of SQLite between two checks of the time, well below a millisecond.
const STEPS_BETWEEN_CHECKS: i32 = 10_000;
/// The length limit of a text or a row. Names of players and sessions are much shorter.
const MAX_TEXT_BYTES: i32 = 64 << 10;
/// The memory limit of SQLite.
const MAX_HEAP_BYTES: usize = 64 << 20;
/// The size limit of a result: about 250,000 rounds of eight players.
const MAX_RESULT_BYTES: usize = 512 << 20;
/// The memory of a row without its texts, including its copy for the output.
const ROW_BYTES: usize = 256;
