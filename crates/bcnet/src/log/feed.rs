//! The last lines of the log in memory, for consoles and pages.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// The last lines of the log, each a JSON object.
///
/// The log does not wait for readers: a slow reader misses lines.
#[derive(Clone, Default)]
pub(crate) struct Feed(Arc<FeedShared>);

#[derive(Default)]
struct FeedShared {
    lines: Mutex<LineBuffer>,
    arrived: Condvar,
}

#[derive(Default)]
struct LineBuffer {
    recent: VecDeque<Arc<str>>,
    /// The number of lines that were dropped before those in the buffer.
    evicted: u64,
}

/// Some lines of the log, and the number of the next one.
#[derive(Debug)]
pub(crate) struct FeedBatch {
    pub(crate) lines: Vec<Arc<str>>,
    /// The number of lines that are missing before these.
    pub(crate) missed: u64,
    pub(crate) next: u64,
}

impl Feed {
    /// Returns the last `count` lines.
    pub(crate) fn last(&self, count: usize) -> FeedBatch {
        let lines = self.lines();
        let next = lines.evicted + lines.recent.len() as u64;
        lines.since(next.saturating_sub(count as u64).max(lines.evicted))
    }

    /// Waits up to `timeout` for lines from number `next` on.
    pub(crate) fn wait(&self, next: u64, timeout: Duration) -> FeedBatch {
        let is_none = |lines: &mut LineBuffer| lines.evicted + lines.recent.len() as u64 <= next;
        let waited = self.0.arrived.wait_timeout_while(self.lines(), timeout, is_none);
        let (lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lines.since(next)
    }

    fn lines(&self) -> MutexGuard<'_, LineBuffer> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineBuffer {
    fn since(&self, next: u64) -> FeedBatch {
        let skip = usize::try_from(next.saturating_sub(self.evicted)).unwrap_or(usize::MAX);
        let lines = self.recent.iter().skip(skip).cloned().collect();
        let missed = self.evicted.saturating_sub(next);
        FeedBatch { lines, missed, next: next.max(self.evicted + self.recent.len() as u64) }
    }
}

/// The log writes each line with one call.
impl Write for &Feed {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let mut lines = self.lines();
        lines.recent.push_back(text.trim_end().into());
        if lines.recent.len() > MAX_LINES {
            lines.recent.pop_front();
            lines.evicted += 1;
        }
        drop(lines);
        self.0.arrived.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Feed {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// The number of lines in the buffer.
const MAX_LINES: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_follower_learns_how_many_lines_it_missed() {
        let feed = Feed::default();
        let mut write = |n: usize| (&mut &feed).write_all(format!("{n}\n").as_bytes()).expect("written");
        (0..3).for_each(&mut write);
        let batch = feed.last(2);
        assert_eq!((batch.lines.len(), &*batch.lines[0], batch.missed, batch.next), (2, "1", 0, 3));
        assert!(feed.wait(3, Duration::ZERO).lines.is_empty());
        write(3);
        let batch = feed.wait(3, Duration::ZERO);
        assert_eq!((&*batch.lines[0], batch.next), ("3", 4));
        (0..MAX_LINES + 6).for_each(&mut write);
        let batch = feed.wait(4, Duration::ZERO);
        assert_eq!((batch.lines.len(), batch.missed), (MAX_LINES, 6));
        assert_eq!(feed.last(usize::MAX).lines.len(), MAX_LINES);
    }
}
