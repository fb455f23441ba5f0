//! Writes the datagrams of hex lines into a capture file.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bcnet_transport::cipher;
use bcnet_transport::wire::PeerId;

use super::hex::{self, HexLine};
use crate::capture::{CaptureWriter, CapturedDatagram};

pub(super) struct HexCapture {
    out: CaptureWriter,
    written: u32,
}

impl HexCapture {
    pub(super) fn create(path: &Path, input: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            bail!("--write needs the name of a file, because the decoded datagrams go to standard output");
        }
        if let (Ok(input), Ok(output)) = (input.canonicalize(), path.canonicalize())
            && input == output
        {
            bail!("{}: is the input; name another file for --write", path.display());
        }
        Ok(Self { out: CaptureWriter::create(path)?, written: 0 })
    }

    /// Writes one datagram, which is ciphered unless `plain` is set. Returns `false` if it is too large for UDP.
    pub(super) fn write(&mut self, line: &HexLine, datagram: &[u8], plain: bool) -> anyhow::Result<bool> {
        let mut wire = Cow::Borrowed(datagram);
        if plain && datagram.first() != Some(&PeerId::GAMESPY.0) {
            cipher::encrypt(wire.to_mut());
        }
        let [from, to] = hex::synthetic_addresses(line.sent_by, datagram);
        let packet = CapturedDatagram {
            from,
            to,
            time: Duration::from_millis(self.written.into()),
            bytes: &wire,
            comment: line.comment.as_deref(),
        };
        let held = self.out.write(&packet).with_context(|| format!("line {}", line.number))?;
        self.written += u32::from(held);
        Ok(held)
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.out.flush()
    }
}
