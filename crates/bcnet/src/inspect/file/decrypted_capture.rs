//! Captures from an interface and writes the datagrams of the game deciphered, for `bcnet extcap`.
//!
//! Datagrams are never held back. A finding about an earlier datagram becomes a comment on the next one, with the
//! packet number of the earlier datagram in the output.

use std::io;
use std::time::Duration;

use bcnet_observe::{MessageBuffer, NO_MARK, Observed, Observer, ObserverLimits};

use super::is_gamespy;
use super::live_capture::LiveCapture;
use super::source::{PacketBatch, ReadCounters, ReadStep};
use crate::capture::{CaptureWriter, CapturedDatagram, add_comment};

/// Captures from an interface and writes the datagrams of the game, deciphered, with their findings.
///
/// Skips truncated datagrams. Returns when the user stops the capture, the capture ends or is damaged, or a write fails
/// because the reader closed the pipe.
pub(crate) fn write_decrypted(
    interface: &str,
    filter: Option<&str>,
    out: &mut CaptureWriter,
) -> anyhow::Result<()> {
    let (live, source) = LiveCapture::start(interface, filter, None)?;
    let copied = source.and_then(|mut source| {
        let (mut observer, mut batch) = (Observer::new(ObserverLimits::default()), PacketBatch::default());
        let (mut counts, mut written) = (ReadCounters::default(), 0);
        loop {
            batch.clear();
            let is_over = match source.read(&mut batch, &mut counts) {
                Ok(ReadStep::More) => false,
                Ok(ReadStep::End | ReadStep::Damaged(_)) => true,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                Err(error) => return Err(error.into()),
            };
            batch.decrypt();
            written = write_batch(&batch, &mut observer, out, written)?;
            if is_over {
                return Ok(());
            }
        }
    });
    let is_stopped = live.is_stopped();
    let complaint = if copied.is_err() { None } else { live.stop() };
    match complaint {
        Some(complaint) => Err(anyhow::anyhow!("{interface}: {complaint}")),
        None if is_stopped => Ok(()),
        None => copied,
    }
}

/// Writes the datagrams of the game. `written` is the number of packets so far; returns the new number.
fn write_batch(
    batch: &PacketBatch,
    observer: &mut Observer,
    out: &mut CaptureWriter,
    mut written: u64,
) -> anyhow::Result<u64> {
    let mut messages = MessageBuffer::default();
    for (packet, bytes) in batch.iter().filter(|(packet, _)| !packet.is_truncated) {
        let content = messages.read(bytes, None);
        match observer.observe(written + 1, packet.time, packet.from, packet.to, &content) {
            Observed::Foreign(_) => continue,
            Observed::GameSpy(text) if !is_gamespy(text) => continue,
            Observed::GameSpy(_) | Observed::Datagram(..) | Observed::Malformed(..) => {}
        }
        written += 1;
        let mut comment = String::new();
        while let Some(finding) = observer.poll_finding() {
            let text = match finding.mark {
                mark if mark == written => finding.kind.to_string(),
                NO_MARK => format!("{}: {}", finding.by, finding.kind),
                mark => format!("packet {mark}, {}: {}", finding.by, finding.kind),
            };
            add_comment(&mut comment, &text);
        }
        let (from, to, time) = (packet.from, packet.to, Duration::from_micros(packet.time.as_micros()));
        out.write(&CapturedDatagram { from, to, time, bytes, comment: Some(&comment) })?;
    }
    out.flush()?;
    Ok(written)
}
