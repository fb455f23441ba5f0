//! Captures packets from an interface until the user stops the program.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use super::follow::{FollowedPipe, stop_on_signals};
use super::source::PacketSource;
use crate::dumpcap::DumpcapProcess;
use crate::file::create_capture;

/// A running capture.
pub(super) struct LiveCapture {
    dumpcap: DumpcapProcess,
    stop: Arc<AtomicBool>,
}

impl LiveCapture {
    /// Starts to capture. If there is a path `keep`, all bytes are written to that file too.
    pub(super) fn start(
        interface: &str,
        filter: Option<&str>,
        keep: Option<&Path>,
    ) -> anyhow::Result<(Self, anyhow::Result<PacketSource>)> {
        let keep = match keep {
            Some(path) => Some(create_capture(path).with_context(|| path.display().to_string())?),
            None => None,
        };
        let stop = stop_on_signals()?;
        let (capture, packets) = DumpcapProcess::start(interface, filter)?;
        let input = FollowedPipe::start(Tee { input: packets, copy: keep }, Arc::clone(&stop))?;
        let tells_idle = Arc::clone(&input.reports_idle);
        let source = PacketSource::open(Box::new(input)).map(|mut source| {
            tells_idle.store(true, Ordering::Relaxed);
            source.stop = Arc::clone(&stop);
            source
        });
        Ok((Self { dumpcap: capture, stop }, source))
    }

    /// Returns whether the user wants to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stops the capture. Returns an error message of dumpcap, if there is one.
    pub(super) fn stop(self) -> Option<String> {
        let is_stopped = self.is_stopped();
        self.dumpcap.stop(is_stopped)
    }
}

/// Truncates a file to `length` bytes, those that were analysed: a packet after them may be incomplete.
pub(super) fn truncate_file(path: &Path, length: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    if file.metadata()?.len() > length { file.set_len(length) } else { Ok(()) }
}

/// An input whose bytes are copied to a file as they are read.
struct Tee<R> {
    input: R,
    copy: Option<File>,
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        if let Some(keep) = &mut self.copy {
            keep.write_all(&into[..read])?;
        }
        Ok(read)
    }
}
