//! Writes the datagrams of a capture into a new capture, with the findings as packet comments.
//!
//! The datagrams are written enciphered, as on the wire and in the captures of the proxy, so that every tool for
//! captures can read them. A finding without a datagram becomes a comment on the datagram before it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use bcnet_observe::NO_MARK;
use bcnet_transport::cipher;
use bcnet_transport::wire::PeerId;

use super::delayed_output::{DatagramContent, DatagramOutput, DatagramWithFindings, DetachedFinding};
use super::filter::Filter;
use super::{CaptureEnd, PacketInfo};
use crate::capture::{self, CaptureWriter, add_comment};
use crate::file::ensure_not_input;

pub(super) struct AnnotatedCapture {
    out: CaptureWriter,
    filter: Filter,
    /// True if each datagram is written and flushed immediately, not held back.
    flush_each: bool,
    start: Option<u64>,
    /// The latest datagram, held back for findings that belong to no datagram.
    pending: Option<PacketInfo>,
    pending_bytes: Vec<u8>,
    pending_comment: String,
}

impl AnnotatedCapture {
    pub(super) fn create(
        path: &Path,
        inputs: &[PathBuf],
        filter: Filter,
        at_once: bool,
    ) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            bail!("--write needs the name of a file, because text goes to standard output");
        }
        ensure_not_input(path, inputs, "--write")?;
        let out = CaptureWriter::create(path)?;
        Ok(Self {
            out,
            filter,
            flush_each: at_once,
            start: None,
            pending: None,
            pending_bytes: Vec::new(),
            pending_comment: String::new(),
        })
    }

    /// Writes the datagram that is held back.
    fn write_pending(&mut self) -> io::Result<()> {
        let Some(packet) = self.pending.take() else { return Ok(()) };
        let written = self.out.write(&capture::CapturedDatagram {
            from: packet.from,
            to: packet.to,
            time: Duration::from_micros(packet.time.as_micros()),
            bytes: &self.pending_bytes,
            comment: Some(&self.pending_comment),
        });
        self.pending_comment.clear();
        written.map(drop).map_err(to_io_error)
    }
}

impl DatagramOutput for AnnotatedCapture {
    fn show(
        &mut self,
        DatagramWithFindings { packet, content: what, findings }: &DatagramWithFindings<'_>,
    ) -> io::Result<()> {
        let start = *self.start.get_or_insert(packet.time.as_micros());
        if !self.filter.wants_datagram(packet, what, findings, start) {
            return Ok(());
        }
        self.write_pending()?;
        let bytes = match what {
            DatagramContent::Datagram(datagram, _) => datagram.as_bytes(),
            DatagramContent::GameSpy(bytes) | DatagramContent::Malformed(_, bytes) => bytes,
        };
        self.pending_bytes.clear();
        self.pending_bytes.extend_from_slice(bytes);
        if bytes.first() != Some(&PeerId::GAMESPY.0) {
            cipher::encrypt(&mut self.pending_bytes);
        }
        // A comment that the input already has is not repeated.
        let before = packet.comment.as_deref().unwrap_or_default();
        add_comment(&mut self.pending_comment, before);
        let wanted = findings.iter().filter(|finding| self.filter.wants_finding(finding));
        for text in wanted.map(|finding| finding.kind.to_string()) {
            if !before.split("; ").any(|comment| comment == text) {
                add_comment(&mut self.pending_comment, &text);
            }
        }
        self.pending = Some((*packet).clone());
        if self.flush_each {
            self.write_pending()?;
            self.out.flush().map_err(to_io_error)?;
        }
        Ok(())
    }

    fn show_finding(&mut self, detached: &DetachedFinding) -> io::Result<()> {
        let finding = &detached.finding;
        if self.filter.wants_detached(detached, self.start.unwrap_or(0)) {
            let about =
                if finding.mark == NO_MARK { String::new() } else { format!("packet {}, ", finding.mark) };
            add_comment(&mut self.pending_comment, &format!("{about}{}: {}", finding.by, finding.kind));
        }
        Ok(())
    }

    fn finish(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        let skipped = (!end.skipped.is_empty()).then(|| format!("skipped: {}", end.skipped));
        for text in skipped.into_iter().chain(end.omissions()) {
            add_comment(&mut self.pending_comment, &text);
        }
        self.write_pending()?;
        self.out.flush().map_err(to_io_error)
    }
}

fn to_io_error(error: anyhow::Error) -> io::Error {
    io::Error::other(format!("{error:#}"))
}
