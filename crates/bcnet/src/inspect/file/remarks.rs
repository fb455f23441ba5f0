//! The datagrams of a capture in a new one, with remarks at those that something was found in.
//!
//! They are written as they were on the wire, as the proxy writes its captures, so that every reader takes them for what they
//! were. What no datagram shows is remarked at the one before it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use bcnet_observe::NO_MARK;
use bcnet_transport::cipher;
use bcnet_transport::wire::PeerId;

use super::filter::Filter;
use super::hold::{Loose, Shown, Shows, What};
use super::{End, Packet};
use crate::capture::{self, Writer, add_remark};
use crate::file::ensure_no_input;

pub(super) struct Remarks {
    out: Writer,
    filter: Filter,
    /// Whether each datagram is to be seen at once.
    at_once: bool,
    start: Option<u64>,
    /// The latest datagram waits for what no datagram shows.
    last: Option<Packet>,
    wire: Vec<u8>,
    remark: String,
}

impl Remarks {
    pub(super) fn create(
        path: &Path,
        inputs: &[PathBuf],
        filter: Filter,
        at_once: bool,
    ) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            bail!("--write needs the name of a file: standard output is for text");
        }
        ensure_no_input(path, inputs, "--write")?;
        let out = Writer::create(path)?;
        Ok(Self { out, filter, at_once, start: None, last: None, wire: Vec::new(), remark: String::new() })
    }

    /// Writes the datagram that waits.
    fn write_last(&mut self) -> io::Result<()> {
        let Some(packet) = self.last.take() else { return Ok(()) };
        let written = self.out.write(&capture::Packet {
            from: packet.from,
            to: packet.to,
            time: Duration::from_micros(packet.time.as_micros()),
            bytes: &self.wire,
            comment: Some(&self.remark),
        });
        self.remark.clear();
        written.map(drop).map_err(other)
    }
}

impl Shows for Remarks {
    fn show(&mut self, Shown { packet, what, findings }: &Shown<'_>) -> io::Result<()> {
        let start = *self.start.get_or_insert(packet.time.as_micros());
        if !self.filter.wants_shown(packet, what, findings, start) {
            return Ok(());
        }
        self.write_last()?;
        let bytes = match what {
            What::Datagram(datagram, _) => datagram.as_bytes(),
            What::GameSpy(bytes) | What::Malformed(_, bytes) => bytes,
        };
        self.wire.clear();
        self.wire.extend_from_slice(bytes);
        if bytes.first() != Some(&PeerId::GAMESPY.0) {
            cipher::encrypt(&mut self.wire);
        }
        // What was remarked before is not said twice.
        let before = packet.comment.as_deref().unwrap_or_default();
        add_remark(&mut self.remark, before);
        let wanted = findings.iter().filter(|finding| self.filter.wants_finding(finding));
        for text in wanted.map(|finding| finding.what.to_string()) {
            if !before.split("; ").any(|remark| remark == text) {
                add_remark(&mut self.remark, &text);
            }
        }
        self.last = Some((*packet).clone());
        if self.at_once {
            self.write_last()?;
            self.out.flush().map_err(other)?;
        }
        Ok(())
    }

    fn show_loose(&mut self, loose: &Loose) -> io::Result<()> {
        let finding = &loose.finding;
        if self.filter.wants_loose(loose, self.start.unwrap_or(0)) {
            let about =
                if finding.mark == NO_MARK { String::new() } else { format!("packet {}, ", finding.mark) };
            add_remark(&mut self.remark, &format!("{about}{}: {}", finding.by, finding.what));
        }
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        let skipped = (!end.skipped.is_empty()).then(|| format!("not looked at: {}", end.skipped));
        for text in skipped.into_iter().chain(end.left_out()) {
            add_remark(&mut self.remark, &text);
        }
        self.write_last()?;
        self.out.flush().map_err(other)
    }
}

fn other(error: anyhow::Error) -> io::Error {
    io::Error::other(format!("{error:#}"))
}
