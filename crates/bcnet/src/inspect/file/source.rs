//! What can be read as datagrams: captures, packet logs and dumps, packed or not.

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

/// One datagram, without its bytes.
#[derive(Debug, Clone)]
pub(in crate::inspect) struct PacketInfo {
    /// Counted from 1 over all packets of the file, as Wireshark does; a log has its own numbers.
    pub(in crate::inspect) number: u64,
    /// Where it begins in the file.
    pub(in crate::inspect) offset: u64,
    pub(in crate::inspect) time: Time,
    pub(in crate::inspect) from: SocketAddrV4,
    pub(in crate::inspect) to: SocketAddrV4,
    /// What the capture's maker has noted about it.
    pub(in crate::inspect) comment: Option<Box<str>>,
    /// The file, if there are several.
    pub(in crate::inspect) file: Option<SourceFile>,
    /// Whether its bytes are deciphered.
    pub(super) is_decrypted: bool,
    /// Whether the capture has not kept its bytes.
    pub(super) is_truncated: bool,
    bytes: Range<usize>,
}

/// One of several files that are read as one.
#[derive(Debug, Clone)]
pub(in crate::inspect) struct SourceFile {
    /// Counted from 0, in the order in which they are begun.
    pub(in crate::inspect) number: u32,
    pub(in crate::inspect) name: Arc<str>,
}

/// Datagrams that are deciphered together, which is faster.
#[derive(Default)]
pub(super) struct PacketBatch {
    packets: Vec<PacketInfo>,
    bytes: Vec<u8>,
    /// Which file they are of, if there are several.
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

    /// Adds a datagram; its file and the place of its bytes are set here.
    pub(super) fn push(&mut self, packet: PacketInfo, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.packets.push(PacketInfo { file: self.file.clone(), bytes: start..self.bytes.len(), ..packet });
    }

    /// Deciphers everything that is not, except for GameSpy text.
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

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct ReadCounters {
    /// Packets of whatever kind.
    pub(super) packets: u64,
    pub(super) skipped: SkippedPackets,
}

/// What was read and not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SkippedPackets {
    pub(super) not_udp: u64,
    pub(super) ip_fragments: u64,
    pub(super) truncated: u64,
    pub(super) ipv6: u64,
    pub(super) unknown_links: BTreeMap<u16, u64>,
    /// UDP datagrams that are not the game's.
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

    /// Returns how many packets may have been the game's and could not be read.
    pub(super) fn unreadable(&self) -> u64 {
        self.ip_fragments + self.truncated + self.ipv6 + self.unknown_links.values().sum::<u64>()
    }
}

impl SkippedPackets {
    /// Returns how many there are of each kind, with a name for programs and words for people.
    pub(super) fn counts(&self) -> [(&'static str, u64, &'static str); 6] {
        let links: u64 = self.unknown_links.values().sum();
        [
            ("fragments", self.ip_fragments, "IPv4 fragments, which the game does not make"),
            ("cut", self.truncated, "packets cut short by the capture"),
            ("ipv6", self.ipv6, "packets of UDP over IPv6, which the game does not speak"),
            ("unknown_links", links, "packets of unknown links"),
            ("foreign", self.foreign, "UDP datagrams of something else"),
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

/// A file that is read.
pub(super) struct PacketSource {
    kind: SourceKind,
    /// If it is packed.
    decompression: Option<DecompressionState>,
    /// Set if it ends because the user wants it to.
    pub(super) stop: Arc<AtomicBool>,
}

enum SourceKind {
    Capture(pcap::PcapReader),
    Log(packet_log::PacketLogReader),
    Dump(dump_reader::DumpReader),
    /// Packed, and damaged before it could be seen what it is.
    Damaged,
}

/// How reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadStep {
    /// There may be more.
    More,
    End,
    Damaged(Damage),
}

impl PacketSource {
    /// Sees what an input is.
    pub(super) fn open(input: Box<dyn Read>) -> anyhow::Result<Self> {
        let (window, packed) = decompress::decompress(InputBuffer::new(input)).context("cannot be read")?;
        let kind = match SourceKind::detect(window).context("cannot be read")? {
            Ok(kind) => kind,
            Err(_) if packed.as_ref().is_some_and(|unpacking| unpacking.damage().is_some()) => {
                SourceKind::Damaged
            }
            Err(window) => return Err(anyhow!(NotACapture::of(window.buffered()))),
        };
        Ok(Self { kind, decompression: packed, stop: Arc::default() })
    }

    /// Returns what is known of the time, of a log: it does not tell on which day it begins.
    pub(super) const fn clock(&self) -> Option<packet_log::TimeOfDayClock> {
        if let SourceKind::Log(reader) = &self.kind { Some(reader.clock) } else { None }
    }

    /// Goes on where another log ended.
    pub(super) fn continue_clock(&mut self, clock: packet_log::TimeOfDayClock) {
        if let SourceKind::Log(reader) = &mut self.kind {
            reader.clock = clock;
        }
    }

    /// Returns how far reading has come; of a packed file, in what it is unpacked to.
    pub(super) fn offset(&self) -> u64 {
        match &self.kind {
            SourceKind::Capture(reader) => reader.offset(),
            SourceKind::Log(reader) => reader.offset(),
            SourceKind::Dump(reader) => reader.offset(),
            SourceKind::Damaged => 0,
        }
    }

    /// Returns how far reading has come in the file itself.
    pub(super) fn file_offset(&self) -> u64 {
        self.decompression.as_ref().map_or_else(|| self.offset(), DecompressionState::offset)
    }

    /// Returns whether packets, if there are any, have dates, so that files can be put in order.
    pub(super) const fn is_dated(&self) -> bool {
        matches!(self.kind, SourceKind::Capture(_) | SourceKind::Damaged)
    }

    /// Returns when the next packet was, in microseconds, if there is one that has a date and can be read.
    pub(super) fn next_time(&mut self) -> Option<u64> {
        match &mut self.kind {
            // What keeps it from being read is told when it is read.
            SourceKind::Capture(reader) => reader.next_time().ok().flatten(),
            SourceKind::Log(_) | SourceKind::Dump(_) | SourceKind::Damaged => None,
        }
    }

    /// Reads the next packet, and adds it to `batch` if it holds a datagram.
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
            // Where unpacking had to end, what is unpacked seems to be cut.
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
                // Who has sent it was not silent.
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
    /// Sees what an input is. Gives it back if it is nothing that is known.
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

/// An input that is something else, and what it is instead.
#[derive(Debug)]
pub(super) struct NotACapture(String);

impl NotACapture {
    fn of(beginning: &[u8]) -> Self {
        Self(match decompress::unsupported_decompressor(beginning) {
            _ if beginning.is_empty() => "is empty".into(),
            Some(packer) => format!("is packed; only gzip and zstd are read: `{packer} FILE | bcnet inspect -`"),
            None => "is neither pcap nor pcapng nor a packet log nor a dump with offsets; `bcnet inspect --hex` reads hex lines"
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

/// Returns whether bytes that begin with a backslash are text of GameSpy: a key follows, and nothing moves the cursor. One of
/// 256 datagrams of anything begins so.
pub(super) fn is_gamespy(text: &[u8]) -> bool {
    let Some((b'\\', rest)) = text.split_first() else { return false };
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let key = rest.iter().take_while(|byte| is_key(byte)).count();
    let is_closed = rest.get(key) == Some(&b'\\') && key > 0 || key == rest.len() && key > 3;
    is_closed && !text.iter().any(u8::is_ascii_control)
}

/// Returns a datagram that a log tells of.
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
