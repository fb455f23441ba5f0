//! What is read while it is still written, until it ends or the user stops it.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::signals::{self, Signal};

/// From now on SIGINT and SIGTERM set what is returned, and a second one ends the program.
pub(super) fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::default());
    let told = Arc::clone(&stop);
    signals::listen(vec![(Signal::Stop, Box::new(move || told.store(true, Ordering::Relaxed)))])?;
    Ok(stop)
}

/// A file whose end is only the end so far.
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

/// A pipe, which a thread reads: no signal ends the wait for it.
pub(super) struct FollowedPipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// What is left of the last.
    current_chunk: io::Cursor<Vec<u8>>,
    stop: Arc<AtomicBool>,
    /// Whether it fails with [`TimedOut`](io::ErrorKind::TimedOut) when nothing has come for a while.
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

/// So often it is looked whether there is more, or the user wants it to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const CHUNK_SIZE: usize = 1 << 16;
