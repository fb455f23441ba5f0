//! Writes capture files: datagrams with IPv4 and UDP headers, as pcapng.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

use crate::file;

/// A datagram with its addresses and its time, as it was on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CapturedDatagram<'a> {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    /// Time since the Unix epoch (1970).
    pub(crate) time: Duration,
    pub(crate) bytes: &'a [u8],
    pub(crate) comment: Option<&'a str>,
}

/// A capture file that is being written.
pub(crate) struct CaptureWriter {
    path: PathBuf,
    file: File,
    /// Encoded blocks that are not in the file yet.
    out: PcapNgWriter<Vec<u8>>,
    packet: Vec<u8>,
    /// The size of the file in bytes.
    written: u64,
}

impl CaptureWriter {
    /// Creates a file. An existing file of that name is overwritten.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        Self::begin(path, file::create_capture(path), None)
    }

    /// Opens an existing pipe for writing. The interface of all packets gets the name `interface`.
    pub(crate) fn for_pipe(path: &Path, interface: &str) -> anyhow::Result<Self> {
        let mut writer = Self::begin(path, File::options().write(true).open(path), Some(interface))?;
        // The reader of the pipe waits for the file header.
        writer.flush()?;
        Ok(writer)
    }

    fn begin(path: &Path, file: io::Result<File>, interface: Option<&str>) -> anyhow::Result<Self> {
        let start = || -> anyhow::Result<_> {
            let mut out = PcapNgWriter::new(Vec::new())?;
            // Timestamps are in nanoseconds; without this option readers take them for microseconds.
            let mut options = vec![InterfaceDescriptionOption::IfTsResol(9)];
            options.extend(interface.map(|name| InterfaceDescriptionOption::IfName(name.into())));
            out.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: 0,
                options,
            })?;
            Ok((file?, out))
        };
        let (file, out) = start().with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), file, out, packet: Vec::new(), written: 0 })
    }

    /// Writes one datagram. Returns `false` if it is too large for UDP.
    pub(crate) fn write(&mut self, packet: &CapturedDatagram<'_>) -> anyhow::Result<bool> {
        if packet.bytes.len() > MAX_UDP_PAYLOAD {
            return Ok(false);
        }
        self.packet.clear();
        add_headers(&mut self.packet, packet);
        self.packet.extend_from_slice(packet.bytes);
        let comment = packet.comment.filter(|comment| !comment.is_empty());
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: packet.time,
            original_len: u32::try_from(self.packet.len())?,
            options: comment.map(|text| EnhancedPacketOption::Comment(text.into())).into_iter().collect(),
            data: self.packet.as_slice().into(),
        };
        self.out.write_pcapng_block(block).with_context(|| self.path.display().to_string())?;
        if self.out.get_ref().len() >= FLUSH_THRESHOLD {
            self.flush()?;
        }
        Ok(true)
    }

    /// Returns the size of the file in bytes, including blocks that are not written yet.
    pub(crate) fn size(&self) -> u64 {
        self.written + self.out.get_ref().len() as u64
    }

    /// Writes all pending blocks, so that readers see them.
    ///
    /// If writing fails, for example on a full disk, the pending blocks are dropped. The file then ends with a whole
    /// datagram, and later writes may follow.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        let pending = self.out.get_mut();
        let done = self.file.write_all(pending);
        match done {
            Ok(()) => self.written += pending.len() as u64,
            // Pipes and devices cannot be truncated. They need not be: only a file keeps a partial block.
            Err(_) => drop(self.file.set_len(self.written).and_then(|()| self.file.seek(SeekFrom::End(0)))),
        }
        pending.clear();
        done.with_context(|| self.path.display().to_string())
    }
}

/// Appends a text to the comment of a datagram, up to the size limit of the format.
pub(crate) fn add_comment(comment: &mut String, text: &str) {
    let gap = if comment.is_empty() || text.is_empty() { "" } else { "; " };
    let room = MAX_COMMENT.saturating_sub(comment.len() + gap.len());
    if text.len() <= room {
        comment.push_str(gap);
        comment.push_str(text);
    } else if !comment.ends_with(ELLIPSIS) {
        comment.push_str(ELLIPSIS);
    }
}

/// Appends the IPv4 and UDP headers of a datagram of at most [`MAX_UDP_PAYLOAD`] bytes.
fn add_headers(out: &mut Vec<u8>, packet: &CapturedDatagram<'_>) {
    let udp_length = UDP_HEADER_LEN + packet.bytes.len() as u16;
    let [a, b] = (IPV4_HEADER_LEN + udp_length).to_be_bytes();
    let start = out.len();
    // Version and header length, type of service, total length, identification, flags (do not fragment), TTL, protocol,
    // checksum.
    out.extend_from_slice(&[0x45, 0, a, b, 0, 0, 0x40, 0, TTL, IP_PROTOCOL_UDP, 0, 0]);
    out.extend_from_slice(&packet.from.ip().octets());
    out.extend_from_slice(&packet.to.ip().octets());
    let checksum = !fold_checksum(sum_words(&out[start..]));
    out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    let ports = [packet.from.port(), packet.to.port(), udp_length].map(u16::to_be_bytes);
    let addresses = sum_words(&out[start + 12..]);
    let parts =
        addresses + u64::from(IP_PROTOCOL_UDP) + u64::from(udp_length) + sum_words(ports.as_flattened());
    // In UDP a checksum of zero means "no checksum".
    let checksum = match !fold_checksum(parts + sum_words(packet.bytes)) {
        0 => u16::MAX,
        checksum => checksum,
    };
    out.extend_from_slice(ports.as_flattened());
    out.extend_from_slice(&checksum.to_be_bytes());
}

/// Returns the sum of big-endian 16-bit words. An odd last byte is the high byte of its word.
fn sum_words(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks();
    let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>() + last
}

/// Folds a sum into 16 bits in ones' complement.
const fn fold_checksum(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// Pending blocks are written once they have this many bytes.
const FLUSH_THRESHOLD: usize = 1 << 16;
/// The longest comment. The format allows 65,535 bytes for it.
const MAX_COMMENT: usize = 60_000;
/// Marks a comment that was cut off.
const ELLIPSIS: &str = " ...";
const TTL: u8 = 64;
/// The protocol number of UDP.
const IP_PROTOCOL_UDP: u8 = 17;
const IPV4_HEADER_LEN: u16 = 20;
const UDP_HEADER_LEN: u16 = 8;
const MAX_UDP_PAYLOAD: usize = 65_507;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the headers that the `etherparse` crate makes.
    #[test]
    fn headers_have_the_lengths_and_checksums_of_ipv4_and_udp() {
        let address = |text: &str| text.parse::<SocketAddrV4>().expect("a valid address");
        let pairs = [("10.0.0.1:22101", "10.0.0.2:4711"), ("255.255.255.255:65535", "255.255.254.7:0")];
        for (from, to) in pairs.map(|(from, to)| (address(from), address(to))) {
            for len in [0, 1, 2, 511, 512, MAX_UDP_PAYLOAD] {
                for fill in [0, 0xFF, 0x5A] {
                    let bytes = vec![fill; len];
                    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                    add_headers(
                        &mut ours,
                        &CapturedDatagram { from, to, time: Duration::ZERO, bytes: &bytes, comment: None },
                    );
                    ours.extend_from_slice(&bytes);
                    etherparse::PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), TTL)
                        .udp(from.port(), to.port())
                        .write(&mut theirs, &bytes)
                        .expect("the payload fits");
                    assert!(ours == theirs, "{from} to {to}, {len} bytes of {fill}");
                }
            }
        }
    }
}
