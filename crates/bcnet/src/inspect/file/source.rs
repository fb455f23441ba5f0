//! Reads datagrams from captures, packet logs and dumps, compressed or not.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Time, cipher};

use super::decompress::{self, DecompressionState};
use super::link_layer::{self, SkipReason};
use super::pcap::{self, Damage, InputBuffer, NextPacket};
use super::{dump_reader, packet_log};

/// A datagram without its bytes.
#[derive(Debug, Clone)]
pub(in crate::inspect) struct PacketInfo {
    /// Counted from 1 over all packets of all files, as in Wireshark. A packet log has its own numbers.
    pub(in crate::inspect) number: u64,
    /// The offset in the file.
    pub(in crate::inspect) offset: u64,
    pub(in crate::inspect) time: Time,
    pub(in crate::inspect) from: SocketAddrV4,
    pub(in crate::inspect) to: SocketAddrV4,
    /// The packet comment.
    pub(in crate::inspect) comment: Option<Box<str>>,
    /// The file, if there are several.
    pub(in crate::inspect) file: Option<SourceFile>,
    /// True if its bytes are deciphered.
    pub(super) is_decrypted: bool,
    /// True if the capture does not contain all its bytes.
    pub(super) is_truncated: bool,
    bytes: Range<usize>,
}

/// One of several files that are read as one.
#[derive(Debug, Clone)]
pub(in crate::inspect) struct SourceFile {
    /// Counted from 0, in the order in which the files are opened.
    pub(in crate::inspect) number: u32,
    pub(in crate::inspect) name: Arc<str>,
}

/// Datagrams that are deciphered together, which is faster.
#[derive(Default)]
pub(super) struct PacketBatch {
    packets: Vec<PacketInfo>,
    bytes: Vec<u8>,
    /// The file of the following datagrams, if there are several.
    pub(super) file: Option<SourceFile>,
}

impl PacketBatch {
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Adds a datagram, and sets its file and the position of its bytes.
    pub(super) fn push(&mut self, packet: PacketInfo, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.packets.push(PacketInfo { file: self.file.clone(), bytes: start..self.bytes.len(), ..packet });
    }

    /// Deciphers all datagrams that are still ciphered, except GameSpy text.
    pub(super) fn decrypt(&mut self) {
        let mut rest = self.bytes.as_mut_slice();
        let mut ciphered = Vec::with_capacity(self.packets.len());
        for packet in &mut self.packets {
            let (bytes, after) = rest.split_at_mut(packet.bytes.len());
            rest = after;
            if !packet.is_decrypted && bytes.first() != Some(&PeerId::GAMESPY.0) {
                ciphered.push(bytes);
            }
            packet.is_decrypted = true;
        }
        cipher::decrypt_batch(&mut ciphered);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PacketInfo, &[u8])> {
        self.packets.iter().map(|packet| (packet, &self.bytes[packet.bytes.clone()]))
    }
}

/// The counters of reading.
#[derive(Debug, Default)]
pub(super) struct ReadCounters {
    /// Packets of all kinds.
    pub(super) packets: u64,
    pub(super) skipped: SkippedPackets,
}

/// The packets that were read and skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SkippedPackets {
    pub(super) not_udp: u64,
    pub(super) ip_fragments: u64,
    pub(super) truncated: u64,
    pub(super) ipv6: u64,
    pub(super) unknown_links: BTreeMap<u16, u64>,
    /// UDP datagrams of other programs.
    pub(super) foreign: u64,
}

impl SkippedPackets {
    pub(super) fn add(&mut self, skip: SkipReason) {
        match skip {
            SkipReason::NotUdp => self.not_udp += 1,
            SkipReason::IpFragment => self.ip_fragments += 1,
            SkipReason::Truncated(_) => self.truncated += 1,
            SkipReason::Ipv6 => self.ipv6 += 1,
            SkipReason::UnknownLink(link) => *self.unknown_links.entry(link).or_default() += 1,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of packets that may belong to the game and could not be read.
    pub(super) fn unreadable(&self) -> u64 {
        self.ip_fragments + self.truncated + self.ipv6 + self.unknown_links.values().sum::<u64>()
    }
}

impl SkippedPackets {
    /// Returns the number of each kind, with a name for programs and a text for people.
    pub(super) fn counts(&self) -> [(&'static str, u64, &'static str); 6] {
        let links: u64 = self.unknown_links.values().sum();
        [
            ("fragments", self.ip_fragments, "IPv4 fragments (the game sends none)"),
            ("cut", self.truncated, "packets cut short by the capture"),
            ("ipv6", self.ipv6, "UDP packets over IPv6 (not used by the game)"),
            ("unknown_links", links, "packets of unknown link types"),
            ("foreign", self.foreign, "UDP datagrams of other programs"),
            ("not_udp", self.not_udp, "packets that are not UDP over IPv4"),
        ]
    }
}

impl fmt::Display for SkippedPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (_, count, what) in self.counts().into_iter().filter(|(_, count, _)| *count > 0) {
            write!(f, "{}{count} {what}", if first { "" } else { ", " })?;
            first = false;
        }
        for (i, link) in self.unknown_links.keys().enumerate() {
            write!(f, "{}{link}", if i == 0 { " (link types " } else { ", " })?;
        }
        f.write_str(if self.unknown_links.is_empty() { "" } else { ")" })
    }
}

/// A file that is being read.
pub(super) struct PacketSource {
    kind: SourceKind,
    /// The state of decompression, if the file is compressed.
    decompression: Option<DecompressionState>,
    /// Set when the user stops the program.
    pub(super) stop: Arc<AtomicBool>,
}

enum SourceKind {
    Capture(pcap::PcapReader),
    Log(packet_log::PacketLogReader),
    Dump(dump_reader::DumpReader),
    /// Compressed, and damaged before its format could be detected.
    Damaged,
}

/// The result of reading a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadStep {
    /// There may be more.
    More,
    End,
    Damaged(Damage),
}

impl PacketSource {
    /// Detects the format of an input.
    pub(super) fn open(input: Box<dyn Read>) -> anyhow::Result<Self> {
        let (window, packed) =
            decompress::decompress(InputBuffer::new(input)).context("cannot read the input")?;
        let kind = match SourceKind::detect(window).context("cannot read the input")? {
            Ok(kind) => kind,
            Err(_) if packed.as_ref().is_some_and(|unpacking| unpacking.damage().is_some()) => {
                SourceKind::Damaged
            }
            Err(window) => return Err(anyhow!(NotACapture::of(window.buffered()))),
        };
        Ok(Self { kind, decompression: packed, stop: Arc::default() })
    }

    /// Returns the clock of a packet log, which has times of day without a date.
    pub(super) const fn clock(&self) -> Option<packet_log::TimeOfDayClock> {
        if let SourceKind::Log(reader) = &self.kind { Some(reader.clock) } else { None }
    }

    /// Continues the clock of a previous packet log.
    pub(super) fn continue_clock(&mut self, clock: packet_log::TimeOfDayClock) {
        if let SourceKind::Log(reader) = &mut self.kind {
            reader.clock = clock;
        }
    }

    /// Returns the number of bytes that were read, after decompression.
    pub(super) fn offset(&self) -> u64 {
        match &self.kind {
            SourceKind::Capture(reader) => reader.offset(),
            SourceKind::Log(reader) => reader.offset(),
            SourceKind::Dump(reader) => reader.offset(),
            SourceKind::Damaged => 0,
        }
    }

    /// Returns the number of bytes that were read from the file on disk.
    pub(super) fn file_offset(&self) -> u64 {
        self.decompression.as_ref().map_or_else(|| self.offset(), DecompressionState::offset)
    }

    /// Returns whether packets have dates, so that files can be sorted by time.
    pub(super) const fn is_dated(&self) -> bool {
        matches!(self.kind, SourceKind::Capture(_) | SourceKind::Damaged)
    }

    /// Returns the time of the next packet in microseconds, if it has a date and can be read.
    pub(super) fn next_time(&mut self) -> Option<u64> {
        match &mut self.kind {
            // An error is reported when the packet is read.
            SourceKind::Capture(reader) => reader.next_time().ok().flatten(),
            SourceKind::Log(_) | SourceKind::Dump(_) | SourceKind::Damaged => None,
        }
    }

    /// Reads the next packet, and adds it to `batch` if it contains a datagram.
    pub(super) fn read(
        &mut self,
        batch: &mut PacketBatch,
        counts: &mut ReadCounters,
    ) -> io::Result<ReadStep> {
        let step = self.read_packet(batch, counts)?;
        let Some(unpacking) = self.decompression.as_ref().filter(|_| step != ReadStep::More) else {
            return Ok(step);
        };
        Ok(match (unpacking.damage(), step) {
            // The decompressed data only seems to be cut off: the damage is in the compressed file.
            (Some(damage), _) => ReadStep::Damaged(damage),
            (None, ReadStep::Damaged(damage)) => {
                ReadStep::Damaged(Damage { is_in_decompressed: true, ..damage })
            }
            (None, step) => step,
        })
    }

    fn read_packet(&mut self, batch: &mut PacketBatch, counts: &mut ReadCounters) -> io::Result<ReadStep> {
        let captured = match &mut self.kind {
            SourceKind::Log(reader) => return reader.read(batch, counts),
            SourceKind::Dump(reader) => return reader.read(batch, counts),
            SourceKind::Damaged => return Ok(ReadStep::End),
            SourceKind::Capture(reader) => match reader.next_packet()? {
                NextPacket::End => return Ok(ReadStep::End),
                NextPacket::Damaged(damage) => return Ok(ReadStep::Damaged(damage)),
                NextPacket::Packet(captured) => captured,
            },
        };
        counts.packets += 1;
        let (from, to, payload) = match link_layer::extract_udp(captured.link, captured.bytes) {
            Ok(udp) => (udp.from, udp.to, Some(udp.payload)),
            Err(skip) => {
                counts.skipped.add(skip);
                // The packet shows that its sender was not silent, so it is passed on without bytes.
                let SkipReason::Truncated(Some((from, to))) = skip else { return Ok(ReadStep::More) };
                (from, to, None)
            }
        };
        let packet = PacketInfo {
            number: counts.packets,
            offset: captured.offset,
            time: Time::from_micros(captured.micros),
            from,
            to,
            comment: captured.comment,
            file: None,
            is_decrypted: captured.is_decrypted,
            is_truncated: payload.is_none(),
            bytes: 0..0,
        };
        batch.push(packet, payload.unwrap_or_default());
        Ok(ReadStep::More)
    }
}

impl SourceKind {
    /// Detects the format of an input. Returns the input if the format is unknown.
    fn detect(window: InputBuffer) -> io::Result<Result<Self, InputBuffer>> {
        let window = match pcap::PcapReader::open(window)? {
            Ok(reader) => return Ok(Ok(Self::Capture(reader))),
            Err(window) => window,
        };
        let window = match packet_log::PacketLogReader::open(window)? {
            Ok(reader) => return Ok(Ok(Self::Log(reader))),
            Err(window) => window,
        };
        Ok(dump_reader::DumpReader::open(window)?.map(Self::Dump))
    }
}

/// The error for an input of unknown format, as a text for people.
#[derive(Debug)]
pub(super) struct NotACapture(String);

impl NotACapture {
    fn of(beginning: &[u8]) -> Self {
        Self(match decompress::unsupported_decompressor(beginning) {
            _ if beginning.is_empty() => "the input is empty".into(),
            Some(packer) => format!("unsupported compression, only gzip and zstd are read; use `{packer} FILE | bcnet inspect -`"),
            None => "is neither pcap nor pcapng nor a packet log nor a dump with offsets; for hex lines use `bcnet inspect --hex`"
                .into(),
        })
    }
}

impl fmt::Display for NotACapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NotACapture {}

/// Returns whether bytes that begin with a backslash are GameSpy text.
///
/// One in 256 datagrams of other programs begins with a backslash by chance. In GameSpy text a key follows, and there
/// are no control characters.
pub(super) fn is_gamespy(text: &[u8]) -> bool {
    let Some((b'\\', rest)) = text.split_first() else { return false };
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let key = rest.iter().take_while(|byte| is_key(byte)).count();
    let is_closed = rest.get(key) == Some(&b'\\') && key > 0 || key == rest.len() && key > 3;
    is_closed && !text.iter().any(u8::is_ascii_control)
}

/// Returns a datagram of a packet log or a hex dump, without its bytes.
pub(super) fn logged_packet(
    number: u64,
    offset: u64,
    time: Time,
    from: SocketAddrV4,
    to: SocketAddrV4,
    plain: bool,
) -> PacketInfo {
    PacketInfo {
        number,
        offset,
        time,
        from,
        to,
        comment: None,
        file: None,
        is_decrypted: plain,
        is_truncated: false,
        bytes: 0..0,
    }
}
