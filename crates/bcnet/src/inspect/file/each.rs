//! The datagrams of a capture, for who wants nothing else of it.

use std::net::SocketAddrV4;
use std::path::Path;

use anyhow::{Context, bail};
use bcnet_transport::Time;

use super::source::{Batch, Counts, Step};

/// Shows every datagram of a capture or packet log, deciphered, with its time and addresses, in the order of the file.
pub(crate) fn each_datagram(
    path: &Path,
    mut see: impl FnMut(Time, SocketAddrV4, SocketAddrV4, &[u8]),
) -> anyhow::Result<()> {
    let name = || path.display().to_string();
    let mut source = super::reading::open(path, false).with_context(name)?;
    let (mut batch, mut counts) = (Batch::default(), Counts::default());
    loop {
        batch.clear();
        let step = loop {
            match source.read(&mut batch, &mut counts).with_context(name)? {
                Step::More if batch.len() < super::reading::BATCH => {}
                step => break step,
            }
        };
        batch.decipher();
        let whole = batch.iter().filter(|(packet, _)| !packet.cut);
        whole.for_each(|(packet, bytes)| see(packet.time, packet.from, packet.to, bytes));
        match step {
            Step::More => {}
            Step::End => return Ok(()),
            Step::Damaged(damage) => bail!("{}: {damage}", name()),
        }
    }
}
