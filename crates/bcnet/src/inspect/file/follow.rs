//! Reads inputs that are still being written, until they end or the user stops the program.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::signals::{self, Signal};

/// Returns a flag that SIGINT and SIGTERM set. A second signal ends the program.
pub(super) fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::default());
    let stop_setter = Arc::clone(&stop);
    signals::listen(vec![(Signal::Stop, Box::new(move || stop_setter.store(true, Ordering::Relaxed)))])?;
    Ok(stop)
}

/// A file that may grow: at its end the reader waits for more.
pub(super) struct GrowingFile {
    pub(super) file: File,
    pub(super) stop: Arc<AtomicBool>,
}

impl Read for GrowingFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.stop.load(Ordering::Relaxed) {
            match self.file.read(into)? {
                0 => thread::sleep(POLL_INTERVAL),
                read => return Ok(read),
            }
        }
        Ok(0)
    }
}

/// A pipe that a separate thread reads, because a signal does not interrupt a blocking read.
pub(super) struct FollowedPipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// The unread rest of the last chunk.
    current_chunk: io::Cursor<Vec<u8>>,
    stop: Arc<AtomicBool>,
    /// True if reads fail with [`TimedOut`](io::ErrorKind::TimedOut) when nothing has come for a while.
    pub(super) reports_idle: Arc<AtomicBool>,
}

impl FollowedPipe {
    pub(super) fn start(mut input: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(1);
        let pass_on = move || {
            let mut buffer = vec![0; CHUNK_SIZE];
            loop {
                let chunk = match input.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) => Ok(buffer[..read].to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = chunk.is_err();
                if sender.send(chunk).is_err() || failed {
                    return;
                }
            }
        };
        thread::Builder::new().name("pipe".into()).spawn(pass_on)?;
        Ok(Self { chunks, current_chunk: io::Cursor::default(), stop, reports_idle: Arc::default() })
    }
}

impl Read for FollowedPipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.stop.load(Ordering::Relaxed) {
            let read = self.current_chunk.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            match self.chunks.recv_timeout(POLL_INTERVAL) {
                Ok(chunk) => self.current_chunk = io::Cursor::new(chunk?),
                Err(RecvTimeoutError::Timeout) if self.reports_idle.load(Ordering::Relaxed) => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        Ok(0)
    }
}

/// The interval of checks for more data and for the user's signal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const CHUNK_SIZE: usize = 1 << 16;
