//! Datagrams of the game as they pass an interface, deciphered, for other programs.

use std::io;
use std::time::Duration;

use bcnet_observe::{Limits, MessageBuffer, Observed, Observer};

use super::is_gamespy;
use super::live::Live;
use super::source::{Batch, Counts, Step};
use crate::capture::{Packet, Writer};

/// Captures from an interface and writes every datagram of the game deciphered, with what is found in it, until the user stops it
/// or nobody reads any more.
pub(crate) fn write_deciphered(
    interface: &str,
    filter: Option<&str>,
    out: &mut Writer,
) -> anyhow::Result<()> {
    let (live, source) = Live::start(interface, filter, None)?;
    let copied = source.and_then(|mut source| {
        let (mut observer, mut batch) = (Observer::new(Limits::default()), Batch::default());
        let mut counts = Counts::default();
        loop {
            batch.clear();
            let is_over = match source.read(&mut batch, &mut counts) {
                Ok(Step::More) => false,
                Ok(Step::End | Step::Damaged(_)) => true,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                Err(error) => return Err(error.into()),
            };
            batch.decipher();
            write(&batch, &mut observer, out)?;
            if is_over {
                return Ok(());
            }
        }
    });
    let is_stopped = live.is_stopped();
    let complaint = if copied.is_err() { None } else { live.end() };
    match complaint {
        Some(complaint) => Err(anyhow::anyhow!("{interface}: {complaint}")),
        None if is_stopped => Ok(()),
        None => copied,
    }
}

fn write(batch: &Batch, observer: &mut Observer, out: &mut Writer) -> anyhow::Result<()> {
    let mut messages = MessageBuffer::default();
    for (packet, bytes) in batch.iter().filter(|(packet, _)| !packet.cut) {
        let content = messages.read(bytes, None);
        match observer.observe(packet.number, packet.time, packet.from, packet.to, &content) {
            Observed::Foreign(_) => continue,
            Observed::GameSpy(text) if !is_gamespy(text) => continue,
            Observed::GameSpy(_) | Observed::Datagram(..) | Observed::Malformed(..) => {}
        }
        let mut found = Vec::new();
        while let Some(finding) = observer.poll_finding() {
            if finding.mark == packet.number {
                found.push(finding.what.to_string());
            }
        }
        let comment = found.join("; ");
        let (from, to, time) = (packet.from, packet.to, Duration::from_micros(packet.time.as_micros()));
        out.write(&Packet { from, to, time, bytes, comment: Some(&comment) })?;
    }
    out.flush()
}
