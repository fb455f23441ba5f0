//! Capture files: datagrams inside IPv4 and UDP, as pcapng.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

/// A datagram as it was on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    /// Since 1970.
    pub(crate) time: Duration,
    pub(crate) bytes: &'a [u8],
    pub(crate) comment: Option<&'a str>,
}

/// A capture file that is being written.
pub(crate) struct Writer {
    path: PathBuf,
    out: PcapNgWriter<BufWriter<File>>,
    packet: Vec<u8>,
    size: u64,
}

impl Writer {
    /// Begins a new file; an old one of that name is gone.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let start = || -> anyhow::Result<_> {
            let mut out = PcapNgWriter::new(BufWriter::new(File::create(path)?))?;
            let size = out.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: 0,
                // Times are written in nanoseconds; without this readers take them for microseconds.
                options: vec![InterfaceDescriptionOption::IfTsResol(9)],
            })?;
            Ok((out, SECTION_SIZE + size as u64))
        };
        let (out, size) = start().with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), out, packet: Vec::new(), size })
    }

    /// Writes one datagram. `false` if no UDP datagram can hold it.
    pub(crate) fn write(&mut self, packet: &Packet<'_>) -> anyhow::Result<bool> {
        if packet.bytes.len() > LARGEST_UDP_PAYLOAD {
            return Ok(false);
        }
        let (from, to) = (packet.from, packet.to);
        self.packet.clear();
        PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), TTL)
            .udp(from.port(), to.port())
            .write(&mut self.packet, packet.bytes)
            .with_context(|| self.path.display().to_string())?;
        let comment = packet.comment.filter(|comment| !comment.is_empty());
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: packet.time,
            original_len: u32::try_from(self.packet.len())?,
            options: comment.map(|text| EnhancedPacketOption::Comment(text.into())).into_iter().collect(),
            data: self.packet.as_slice().into(),
        };
        let size = self.out.write_pcapng_block(block).with_context(|| self.path.display().to_string())?;
        self.size += size as u64;
        Ok(true)
    }

    /// How many bytes the file has.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Lets readers see everything that was written.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        self.out.get_mut().flush().with_context(|| self.path.display().to_string())
    }
}

/// The block that a file begins with.
const SECTION_SIZE: u64 = 28;
const TTL: u8 = 64;
const LARGEST_UDP_PAYLOAD: usize = 65_507;
