//! Reads pcap and pcapng files packet by packet, and reports where a file is damaged.
//!
//! Memory is bounded: one packet at a time, and unused blocks are skipped unread.

use std::fmt;
use std::io::{self, BufRead, Read};

/// A packet of a capture file.
pub(super) struct CapturedPacket<'a> {
    /// The offset of its record in the file.
    pub(super) offset: u64,
    /// Microseconds since 1970, or since the epoch of the file.
    pub(super) micros: u64,
    pub(super) link: u16,
    /// True if its datagram is deciphered.
    pub(super) is_decrypted: bool,
    pub(super) bytes: &'a [u8],
    /// The packet comment.
    pub(super) comment: Option<Box<str>>,
}

/// The position at which a file cannot be read any further, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: u64,
    /// True if the offset counts decompressed bytes.
    pub(super) is_in_decompressed: bool,
    pub(super) reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.is_in_decompressed { " of the decompressed data" } else { "" };
        write!(f, "damaged at byte {}{of}: {}", self.offset, self.reason)
    }
}

/// The result of reading a packet.
pub(super) enum NextPacket<'a> {
    Packet(CapturedPacket<'a>),
    End,
    Damaged(Damage),
}

/// The next record of a file.
enum NextRecord {
    Packet(PacketHeader),
    End,
    Damaged(Damage),
}

/// A packet that fills `record_len` bytes of the buffer.
struct PacketHeader {
    record_len: usize,
    /// The position of its bytes in the buffer, and the number of captured bytes.
    start: usize,
    captured_len: usize,
    micros: u64,
    link: u16,
    is_decrypted: bool,
    /// True if options follow the packet.
    has_options: bool,
}

/// An input whose next bytes can be examined before they are consumed.
pub(super) struct InputBuffer {
    input: Box<dyn Read>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl InputBuffer {
    pub(super) fn new(input: Box<dyn Read>) -> Self {
        Self { input, buffer: vec![0; BUFFER_SIZE], start: 0, end: 0, offset: 0 }
    }

    /// Reads until `count` bytes are buffered. Returns `false` if the file ends before.
    pub(super) fn fill_to(&mut self, count: usize) -> io::Result<bool> {
        if self.end - self.start >= count {
            return Ok(true);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < count {
            self.buffer.resize(count, 0);
        }
        while self.end < count {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the buffered bytes.
    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    fn advance(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
    }

    /// Skips `count` bytes. Returns `false` if the file ends before.
    pub(super) fn skip(&mut self, mut count: usize) -> io::Result<bool> {
        while count > 0 {
            let step = count.min(BUFFER_SIZE);
            if !self.fill_to(step)? {
                return Ok(false);
            }
            self.advance(step);
            count -= step;
        }
        Ok(true)
    }
}

/// For inputs that are read line by line.
impl Read for InputBuffer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.fill_to(1)?;
        let count = self.buffered().len().min(into.len());
        into[..count].copy_from_slice(&self.buffered()[..count]);
        self.advance(count);
        Ok(count)
    }
}

impl BufRead for InputBuffer {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill_to(1)?;
        Ok(self.buffered())
    }

    fn consume(&mut self, count: usize) {
        self.advance(count);
    }
}

/// The format of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaptureFormat {
    Pcap { nanos: bool, link: u16 },
    Pcapng,
}

#[derive(Debug, Clone, Copy)]
struct PcapngInterface {
    link: u16,
    /// True if its datagrams are deciphered, according to the interface name.
    is_decrypted: bool,
    /// The option `if_tsresol`: units per second as a power of ten, or of two if the top bit is set.
    resolution: u8,
    offset_seconds: i64,
}

pub(super) struct PcapReader {
    input: InputBuffer,
    format: CaptureFormat,
    big_endian: bool,
    interfaces: Vec<PcapngInterface>,
    /// The last known time, for packets without one.
    last_micros: u64,
}

impl PcapReader {
    /// Starts to read if the input is a capture. Otherwise returns the input.
    pub(super) fn open(mut window: InputBuffer) -> io::Result<Result<Self, InputBuffer>> {
        window.fill_to(4)?;
        let magic: [u8; 4] =
            window.buffered().get(..4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        let (format, big_endian) = match magic {
            [0x0A, 0x0D, 0x0D, 0x0A] => (CaptureFormat::Pcapng, false),
            [0xA1, 0xB2, 0xC3, 0xD4] => (CaptureFormat::Pcap { nanos: false, link: 0 }, true),
            [0xD4, 0xC3, 0xB2, 0xA1] => (CaptureFormat::Pcap { nanos: false, link: 0 }, false),
            [0xA1, 0xB2, 0x3C, 0x4D] => (CaptureFormat::Pcap { nanos: true, link: 0 }, true),
            [0x4D, 0x3C, 0xB2, 0xA1] => (CaptureFormat::Pcap { nanos: true, link: 0 }, false),
            _ => return Ok(Err(window)),
        };
        Ok(Ok(Self { input: window, format, big_endian, interfaces: Vec::new(), last_micros: 0 }))
    }

    pub(super) const fn offset(&self) -> u64 {
        self.input.offset()
    }

    pub(super) fn next_packet(&mut self) -> io::Result<NextPacket<'_>> {
        Ok(match self.find_packet()? {
            NextRecord::Packet(head) => NextPacket::Packet(self.take_packet(&head)),
            NextRecord::End => NextPacket::End,
            NextRecord::Damaged(damage) => NextPacket::Damaged(damage),
        })
    }

    /// Returns the time of the next packet in microseconds. Returns `None` if no packet can be read.
    pub(super) fn next_time(&mut self) -> io::Result<Option<u64>> {
        Ok(match self.find_packet()? {
            NextRecord::Packet(head) => Some(head.micros),
            NextRecord::End | NextRecord::Damaged(_) => None,
        })
    }

    /// Finds the next packet and buffers all of it.
    fn find_packet(&mut self) -> io::Result<NextRecord> {
        match self.format {
            CaptureFormat::Pcap { nanos, link } => self.find_record(nanos, link),
            CaptureFormat::Pcapng => self.find_block(),
        }
    }

    /// Consumes a packet that was found.
    fn take_packet(&mut self, head: &PacketHeader) -> CapturedPacket<'_> {
        let PacketHeader {
            record_len: length,
            start,
            captured_len: kept,
            micros,
            link,
            is_decrypted: is_deciphered,
            has_options,
        } = *head;
        self.last_micros = micros;
        let options = start + kept.next_multiple_of(4);
        let comment = if has_options { self.packet_comment(options, length - 4) } else { None };
        let (offset, start) = (self.input.offset(), self.input.start + start);
        self.input.advance(length);
        let bytes = &self.input.buffer[start..start + kept];
        CapturedPacket { offset, micros, link, is_decrypted: is_deciphered, bytes, comment }
    }

    fn find_record(&mut self, nanos: bool, mut link: u16) -> io::Result<NextRecord> {
        if self.input.offset() == 0 {
            if !self.input.fill_to(PCAP_HEADER_LEN)? {
                return Ok(self.damaged("the file ends in its header"));
            }
            link = (self.read_u32(20) & 0xFFFF) as u16;
            self.format = CaptureFormat::Pcap { nanos, link };
            self.input.advance(PCAP_HEADER_LEN);
        }
        if !self.input.fill_to(1)? {
            return Ok(NextRecord::End);
        }
        if !self.input.fill_to(PCAP_RECORD_HEADER_LEN)? {
            return Ok(self.damaged("the file ends in the header of a packet"));
        }
        let (seconds, fraction, kept) = (self.read_u32(0), self.read_u32(4), self.read_u32(8) as usize);
        if kept > MAX_PACKET {
            return Ok(self.damaged(&format!("a packet claims a length of {kept} bytes")));
        }
        let length = PCAP_RECORD_HEADER_LEN + kept;
        if !self.input.fill_to(length)? {
            let there = self.input.buffered().len() - PCAP_RECORD_HEADER_LEN;
            return Ok(self.damaged(&format!("the file ends after {there} of {kept} bytes of a packet")));
        }
        let micros = if nanos { fraction / 1000 } else { fraction };
        let micros = u64::from(seconds) * 1_000_000 + u64::from(micros);
        let (is_deciphered, has_options) = (false, false);
        Ok(NextRecord::Packet(PacketHeader {
            record_len: length,
            start: PCAP_RECORD_HEADER_LEN,
            captured_len: kept,
            micros,
            link,
            is_decrypted: is_deciphered,
            has_options,
        }))
    }

    fn find_block(&mut self) -> io::Result<NextRecord> {
        loop {
            if !self.input.fill_to(1)? {
                return Ok(NextRecord::End);
            }
            if !self.input.fill_to(12)? {
                return Ok(self.damaged("the file ends in the header of a block"));
            }
            if self.input.buffered().starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]) {
                match self.input.buffered()[8..12] {
                    [0x1A, 0x2B, 0x3C, 0x4D] => self.big_endian = true,
                    [0x4D, 0x3C, 0x2B, 0x1A] => self.big_endian = false,
                    _ => return Ok(self.damaged("a section has no valid byte order mark")),
                }
                self.interfaces.clear();
            }
            let (kind, length) = (self.read_u32(0), self.read_u32(4) as usize);
            if length < 12 || !length.is_multiple_of(4) {
                return Ok(self.damaged(&format!("a block claims a length of {length} bytes")));
            }
            if !matches!(
                kind,
                INTERFACE_BLOCK | OBSOLETE_PACKET_BLOCK | SIMPLE_PACKET_BLOCK | ENHANCED_PACKET_BLOCK
            ) {
                if !self.input.skip(length)? {
                    return Ok(self.damaged("the file ends in a block"));
                }
                continue;
            }
            if length > MAX_PACKET + 4096 {
                return Ok(self.damaged(&format!("a packet claims a length of {length} bytes")));
            }
            if !self.input.fill_to(length)? {
                let there = self.input.buffered().len();
                return Ok(self.damaged(&format!("the file ends after {there} of {length} bytes of a block")));
            }
            if self.read_u32(length - 4) as usize != length {
                return Ok(self.damaged("the two lengths of a block differ"));
            }
            if kind == INTERFACE_BLOCK {
                if self.interfaces.len() >= MAX_INTERFACES || length < 20 {
                    return Ok(self.damaged("an interface description is too short, or there are too many"));
                }
                let interface = self.parse_interface(length);
                self.interfaces.push(interface);
                self.input.advance(length);
                continue;
            }
            return Ok(self.parse_packet_block(kind, length));
        }
    }

    fn parse_interface(&self, length: usize) -> PcapngInterface {
        let mut interface =
            PcapngInterface { link: self.read_u16(8), is_decrypted: false, resolution: 6, offset_seconds: 0 };
        self.for_each_option(16, length - 4, |code, value| match (code, value) {
            (IF_NAME_OPTION, name) => interface.is_decrypted = name == DECRYPTED_INTERFACE.as_bytes(),
            (9, [resolution, ..]) => interface.resolution = *resolution,
            (14, value) if value.len() >= 8 => {
                let bytes: [u8; 8] = value[..8].try_into().unwrap_or_default();
                interface.offset_seconds =
                    if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
            }
            _ => {}
        });
        interface
    }

    /// Parses a packet block that fills `length` bytes of the buffer.
    fn parse_packet_block(&self, kind: u32, length: usize) -> NextRecord {
        let (number, start) = match kind {
            ENHANCED_PACKET_BLOCK => (self.read_u32(8) as usize, 28),
            OBSOLETE_PACKET_BLOCK => (usize::from(self.read_u16(8)), 28),
            _ => (0, 12),
        };
        let Some(interface) = self.interfaces.get(number).copied() else {
            return self.damaged(&format!("a packet names interface {number}, which does not exist"));
        };
        let kept = match kind {
            _ if length < start + 4 => return self.damaged("a block is too short for its packet"),
            SIMPLE_PACKET_BLOCK => (self.read_u32(8) as usize).min(length - start - 4),
            _ => self.read_u32(20) as usize,
        };
        if kept > length - start - 4 {
            return self
                .damaged(&format!("a packet of {kept} bytes does not fit into its block of {length} bytes"));
        }
        let micros = match kind {
            SIMPLE_PACKET_BLOCK => self.last_micros,
            _ => to_micros(u64::from(self.read_u32(12)) << 32 | u64::from(self.read_u32(16)), interface),
        };
        let PcapngInterface { link, is_decrypted: is_deciphered, .. } = interface;
        NextRecord::Packet(PacketHeader {
            record_len: length,
            start,
            captured_len: kept,
            micros,
            link,
            is_decrypted: is_deciphered,
            has_options: kind == ENHANCED_PACKET_BLOCK,
        })
    }

    /// Returns all comments among the options between two positions of the buffer.
    fn packet_comment(&self, from: usize, to: usize) -> Option<Box<str>> {
        let mut comments = Vec::new();
        self.for_each_option(from, to, |code, value| {
            if code == COMMENT_OPTION {
                comments.push(String::from_utf8_lossy(value));
            }
        });
        (!comments.is_empty()).then(|| comments.join("; ").into())
    }

    /// Calls `each` for the options between two positions of the buffer.
    fn for_each_option<'a>(&'a self, from: usize, to: usize, mut each: impl FnMut(u16, &'a [u8])) {
        let mut at = from;
        while at + 4 <= to {
            let (code, length) = (self.read_u16(at), usize::from(self.read_u16(at + 2)));
            if code == 0 || at + 4 + length > to {
                return;
            }
            each(code, &self.input.buffered()[at + 4..at + 4 + length]);
            at += 4 + length.next_multiple_of(4);
        }
    }

    /// Returns the number at a position of the buffer that is known to be filled.
    fn read_u32(&self, at: usize) -> u32 {
        let bytes: [u8; 4] = self.input.buffered()[at..at + 4].try_into().unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn read_u16(&self, at: usize) -> u16 {
        let bytes: [u8; 2] = self.input.buffered()[at..at + 2].try_into().unwrap_or_default();
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn damaged(&self, what: &str) -> NextRecord {
        NextRecord::Damaged(Damage {
            offset: self.input.offset(),
            is_in_decompressed: false,
            reason: what.to_owned(),
        })
    }
}

/// Returns microseconds since 1970.
fn to_micros(units: u64, interface: PcapngInterface) -> u64 {
    let power = u32::from(interface.resolution & 0x7F);
    let per_second =
        if interface.resolution & 0x80 == 0 { 10_u128.checked_pow(power) } else { 1_u128.checked_shl(power) };
    let micros = u128::from(units) * 1_000_000 / per_second.unwrap_or(u128::MAX);
    let micros = i128::try_from(micros).unwrap_or(0) + i128::from(interface.offset_seconds) * 1_000_000;
    u64::try_from(micros.max(0)).unwrap_or(u64::MAX).min(MAX_MICROS)
}

const INTERFACE_BLOCK: u32 = 1;
const OBSOLETE_PACKET_BLOCK: u32 = 2;
const SIMPLE_PACKET_BLOCK: u32 = 3;
const ENHANCED_PACKET_BLOCK: u32 = 6;
const COMMENT_OPTION: u16 = 1;
const IF_NAME_OPTION: u16 = 2;
/// The name of the interface that `bcnet extcap` writes.
pub(crate) const DECRYPTED_INTERFACE: &str = "bcnet-deciphered";
/// The latest time, about 285 years after 1970, so that sums do not overflow.
const MAX_MICROS: u64 = 1 << 53;
const PCAP_HEADER_LEN: usize = 24;
const PCAP_RECORD_HEADER_LEN: usize = 16;
/// The largest packet that libpcap writes.
const MAX_PACKET: usize = 262_144;
const MAX_INTERFACES: usize = 4096;
const BUFFER_SIZE: usize = 256 * 1024;
