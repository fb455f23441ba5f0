//! Packets as they pass an interface, until the user has seen enough.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use super::follow::{Pipe, stop_on_signals};
use super::source::Source;
use crate::dumpcap::Capture;

/// A capture that is under way.
pub(super) struct Live {
    capture: Capture,
    stop: Arc<AtomicBool>,
}

impl Live {
    /// Begins to capture; what comes is written to the file `keep` as well, if there is one.
    pub(super) fn start(
        interface: &str,
        filter: Option<&str>,
        keep: Option<&Path>,
    ) -> anyhow::Result<(Self, anyhow::Result<Source>)> {
        let keep = match keep {
            Some(path) => Some(File::create(path).with_context(|| path.display().to_string())?),
            None => None,
        };
        let stop = stop_on_signals()?;
        let (capture, packets) = Capture::start(interface, filter)?;
        let input = Pipe::start(Tee { input: packets, keep }, Arc::clone(&stop))?;
        let tells_idle = Arc::clone(&input.tells_idle);
        let source = Source::of(Box::new(input)).map(|mut source| {
            tells_idle.store(true, Ordering::Relaxed);
            source.stop = Arc::clone(&stop);
            source
        });
        Ok((Self { capture, stop }, source))
    }

    /// Returns whether the user wants it to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends it. Returns what was wrong.
    pub(super) fn end(self) -> Option<String> {
        let is_stopped = self.is_stopped();
        self.capture.end(is_stopped)
    }
}

/// Leaves what was looked at in a file that was kept: the last packet may have come by half.
pub(super) fn cut(path: &Path, length: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    if file.metadata()?.len() > length { file.set_len(length) } else { Ok(()) }
}

/// An input whose bytes are kept as they are read.
struct Tee<R> {
    input: R,
    keep: Option<File>,
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        if let Some(keep) = &mut self.keep {
            keep.write_all(&into[..read])?;
        }
        Ok(read)
    }
}
