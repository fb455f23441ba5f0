//! Visits the datagrams of a capture, without any analysis.

use std::net::SocketAddrV4;
use std::path::Path;

use anyhow::{Context, bail};
use bcnet_transport::Time;

use super::source::{PacketBatch, ReadCounters, ReadStep};

/// Calls `see` for every datagram of a capture or packet log, deciphered, in the order of the file.
pub(crate) fn for_each_datagram(
    path: &Path,
    mut see: impl FnMut(Time, SocketAddrV4, SocketAddrV4, &[u8]),
) -> anyhow::Result<()> {
    let name = || path.display().to_string();
    let mut source = super::inspection_pass::open_source(path, false).with_context(name)?;
    let (mut batch, mut counts) = (PacketBatch::default(), ReadCounters::default());
    loop {
        batch.clear();
        let step = loop {
            match source.read(&mut batch, &mut counts).with_context(name)? {
                ReadStep::More if batch.len() < super::inspection_pass::BATCH_SIZE => {}
                step => break step,
            }
        };
        batch.decrypt();
        let whole = batch.iter().filter(|(packet, _)| !packet.is_truncated);
        whole.for_each(|(packet, bytes)| see(packet.time, packet.from, packet.to, bytes));
        match step {
            ReadStep::More => {}
            ReadStep::End => return Ok(()),
            ReadStep::Damaged(damage) => bail!("{}: {damage}", name()),
        }
    }
}
