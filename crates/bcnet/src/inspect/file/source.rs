//! What can be read as datagrams: captures and packet logs.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Time, cipher};

use super::frame::{self, Skip};
use super::log;
use super::pcap::{self, Damage, Next, Window};

/// One datagram, without its bytes.
#[derive(Debug, Clone)]
pub(in crate::inspect) struct Packet {
    /// Counted from 1 over all packets of the file, as Wireshark does; a log has its own numbers.
    pub(in crate::inspect) number: u64,
    /// Where it begins in the file.
    pub(in crate::inspect) offset: u64,
    pub(in crate::inspect) time: Time,
    pub(in crate::inspect) from: SocketAddrV4,
    pub(in crate::inspect) to: SocketAddrV4,
    /// What the capture's maker has noted about it.
    pub(in crate::inspect) comment: Option<Box<str>>,
    /// Whether its bytes are deciphered.
    pub(super) plain: bool,
    /// Whether the capture has not kept its bytes.
    pub(super) cut: bool,
    bytes: Range<usize>,
}

/// Datagrams that are deciphered together, which is faster.
#[derive(Default)]
pub(super) struct Batch {
    packets: Vec<Packet>,
    bytes: Vec<u8>,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Adds a datagram; the place of its bytes is set here.
    pub(super) fn push(&mut self, packet: Packet, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.packets.push(Packet { bytes: start..self.bytes.len(), ..packet });
    }

    /// Deciphers everything that is not, except for GameSpy text.
    pub(super) fn decipher(&mut self) {
        let mut rest = self.bytes.as_mut_slice();
        let mut ciphered = Vec::with_capacity(self.packets.len());
        for packet in &mut self.packets {
            let (bytes, after) = rest.split_at_mut(packet.bytes.len());
            rest = after;
            if !packet.plain && bytes.first() != Some(&PeerId::GAMESPY.0) {
                ciphered.push(bytes);
            }
            packet.plain = true;
        }
        cipher::decrypt_batch(&mut ciphered);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Packet, &[u8])> {
        self.packets.iter().map(|packet| (packet, &self.bytes[packet.bytes.clone()]))
    }
}

/// What was read and not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Skipped {
    pub(super) other: u64,
    pub(super) fragments: u64,
    pub(super) cut: u64,
    pub(super) ipv6: u64,
    pub(super) links: BTreeMap<u16, u64>,
    /// UDP datagrams that are not the game's.
    pub(super) foreign: u64,
}

impl Skipped {
    fn note(&mut self, skip: Skip) {
        match skip {
            Skip::Other => self.other += 1,
            Skip::IpFragment => self.fragments += 1,
            Skip::Cut(_) => self.cut += 1,
            Skip::Ipv6 => self.ipv6 += 1,
            Skip::Link(link) => *self.links.entry(link).or_default() += 1,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how many packets may have been the game's and could not be read.
    pub(super) fn unread(&self) -> u64 {
        self.fragments + self.cut + self.ipv6 + self.links.values().sum::<u64>()
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: u64 = self.links.values().sum();
        let counts = [
            (self.fragments, "IPv4 fragments, which the game does not make"),
            (self.cut, "packets cut short by the capture"),
            (self.ipv6, "packets of UDP over IPv6, which the game does not speak"),
            (links, "packets of unknown links"),
            (self.foreign, "UDP datagrams of something else"),
            (self.other, "packets that are not UDP over IPv4"),
        ];
        let mut first = true;
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{}{count} {what}", if first { "" } else { ", " })?;
            first = false;
        }
        for (i, link) in self.links.keys().enumerate() {
            write!(f, "{}{link}", if i == 0 { " (link types " } else { ", " })?;
        }
        f.write_str(if self.links.is_empty() { "" } else { ")" })
    }
}

/// A file that is read.
pub(super) struct Source {
    kind: Kind,
    /// How many bytes it has, if that is known and does not grow.
    pub(super) size: Option<u64>,
    pub(super) skipped: Skipped,
    /// Packets so far, of whatever kind.
    pub(super) packets: u64,
    /// Set if it ends because the user wants it to.
    pub(super) stop: Arc<AtomicBool>,
}

enum Kind {
    Capture(pcap::Reader),
    Log(log::Reader),
}

/// How reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// There may be more.
    More,
    End,
    Damaged(Damage),
}

impl Source {
    /// Sees what an input is.
    pub(super) fn of(input: Box<dyn Read>, size: Option<u64>) -> anyhow::Result<Self> {
        let window = Window::new(input);
        let kind = match pcap::Reader::open(window).context("cannot be read")? {
            Ok(reader) => Kind::Capture(reader),
            Err(window) => Kind::Log(log::Reader::open(window)?),
        };
        Ok(Self { kind, size, skipped: Skipped::default(), packets: 0, stop: Arc::default() })
    }

    /// Returns how far reading has come.
    pub(super) fn offset(&self) -> u64 {
        match &self.kind {
            Kind::Capture(reader) => reader.offset(),
            Kind::Log(reader) => reader.offset(),
        }
    }

    /// Reads the next packet, and adds it to `batch` if it holds a datagram.
    pub(super) fn read(&mut self, batch: &mut Batch) -> io::Result<Step> {
        let captured = match &mut self.kind {
            Kind::Log(reader) => return reader.read(batch, &mut self.skipped, &mut self.packets),
            Kind::Capture(reader) => match reader.next_packet()? {
                Next::End => return Ok(Step::End),
                Next::Damaged(damage) => return Ok(Step::Damaged(damage)),
                Next::Packet(captured) => captured,
            },
        };
        self.packets += 1;
        let (from, to, payload) = match frame::udp(captured.link, captured.bytes) {
            Ok(udp) => (udp.from, udp.to, Some(udp.payload)),
            Err(skip) => {
                self.skipped.note(skip);
                // Who has sent it was not silent.
                let Skip::Cut(Some((from, to))) = skip else { return Ok(Step::More) };
                (from, to, None)
            }
        };
        let packet = Packet {
            number: self.packets,
            offset: captured.offset,
            time: Time::from_micros(captured.micros),
            from,
            to,
            comment: captured.comment,
            plain: false,
            cut: payload.is_none(),
            bytes: 0..0,
        };
        batch.push(packet, payload.unwrap_or_default());
        Ok(Step::More)
    }
}

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
pub(super) fn logged(
    number: u64,
    offset: u64,
    time: Time,
    from: SocketAddrV4,
    to: SocketAddrV4,
    plain: bool,
) -> Packet {
    Packet { number, offset, time, from, to, comment: None, plain, cut: false, bytes: 0..0 }
}
