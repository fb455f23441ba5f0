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
pub(super) struct Growing {
    pub(super) file: File,
    pub(super) stop: Arc<AtomicBool>,
}

impl Read for Growing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.stop.load(Ordering::Relaxed) {
            match self.file.read(into)? {
                0 => thread::sleep(POLL),
                read => return Ok(read),
            }
        }
        Ok(0)
    }
}

/// A pipe, which a thread reads: no signal ends the wait for it.
pub(super) struct Pipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// What is left of the last.
    rest: io::Cursor<Vec<u8>>,
    stop: Arc<AtomicBool>,
    /// Whether it fails with [`TimedOut`](io::ErrorKind::TimedOut) when nothing has come for a while.
    pub(super) tells_idle: Arc<AtomicBool>,
}

impl Pipe {
    pub(super) fn start(mut input: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(1);
        let pass_on = move || {
            let mut buffer = vec![0; CHUNK];
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
        Ok(Self { chunks, rest: io::Cursor::default(), stop, tells_idle: Arc::default() })
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.stop.load(Ordering::Relaxed) {
            let read = self.rest.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            match self.chunks.recv_timeout(POLL) {
                Ok(chunk) => self.rest = io::Cursor::new(chunk?),
                Err(RecvTimeoutError::Timeout) if self.tells_idle.load(Ordering::Relaxed) => {
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
const POLL: Duration = Duration::from_millis(100);
const CHUNK: usize = 1 << 16;
