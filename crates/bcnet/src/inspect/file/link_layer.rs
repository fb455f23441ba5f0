//! Extracts the UDP datagram from a captured packet.

use std::net::{Ipv4Addr, SocketAddrV4};

/// A UDP datagram over IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UdpDatagram<'a> {
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    pub(super) payload: &'a [u8],
}

/// The reason why a packet contains no datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// Not UDP over IPv4 or IPv6.
    NotUdp,
    /// A fragment of an IPv4 packet. The game sends none, and a fragment cannot be deciphered.
    IpFragment,
    /// Only the beginning of the packet was captured. Contains the addresses, if they were captured.
    Truncated(Option<(SocketAddrV4, SocketAddrV4)>),
    /// UDP over IPv6.
    Ipv6,
    /// An unknown link type.
    UnknownLink(u16),
}

/// Returns the datagram in a packet.
pub(super) fn extract_udp(link: u16, bytes: &[u8]) -> Result<UdpDatagram<'_>, SkipReason> {
    let ip = match link {
        ETHERNET => strip_ethernet(bytes)?,
        RAW | RAW_BSD | RAW_OPENBSD | IPV4 => bytes,
        NULL | LOOP => strip_bsd_loopback(bytes)?,
        LINUX_COOKED => strip_linux_cooked(bytes, 14, 16)?,
        LINUX_COOKED_2 => strip_linux_cooked(bytes, 0, 20)?,
        _ => return Err(SkipReason::UnknownLink(link)),
    };
    match ip.first() {
        Some(first) if first >> 4 == 6 => Err(ipv6_skip_reason(ip)),
        _ => parse_ipv4(ip),
    }
}

/// Returns the reason for an IPv6 packet. UDP may be traffic of the game that a network has translated to IPv6.
fn ipv6_skip_reason(bytes: &[u8]) -> SkipReason {
    if bytes.get(6).is_some_and(|next| *next == IP_PROTOCOL_UDP) {
        SkipReason::Ipv6
    } else {
        SkipReason::NotUdp
    }
}

fn strip_ethernet(bytes: &[u8]) -> Result<&[u8], SkipReason> {
    let mut at = 12;
    for _ in 0..MAX_VLAN_TAGS {
        match read_u16(bytes, at)? {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return Ok(&bytes[at + 2..]),
            0x8100 | 0x88A8 | 0x9100 => at += 4,
            _ => return Err(SkipReason::NotUdp),
        }
    }
    Err(SkipReason::NotUdp)
}

/// Strips the four bytes of the address family, in the byte order of the capturing machine.
fn strip_bsd_loopback(bytes: &[u8]) -> Result<&[u8], SkipReason> {
    match bytes {
        [2, 0, 0, 0, rest @ ..] | [0, 0, 0, 2, rest @ ..] => Ok(rest),
        // Systems use different numbers for IPv6.
        [10 | 24 | 28 | 30, 0, 0, 0, rest @ ..] | [0, 0, 0, 10 | 24 | 28 | 30, rest @ ..] => Ok(rest),
        [_, _, _, _, ..] => Err(SkipReason::NotUdp),
        _ => Err(SkipReason::Truncated(None)),
    }
}

fn strip_linux_cooked(bytes: &[u8], protocol: usize, head: usize) -> Result<&[u8], SkipReason> {
    if !matches!(read_u16(bytes, protocol)?, ETHERTYPE_IPV4 | ETHERTYPE_IPV6) {
        return Err(SkipReason::NotUdp);
    }
    bytes.get(head..).ok_or(SkipReason::Truncated(None))
}

fn parse_ipv4(bytes: &[u8]) -> Result<UdpDatagram<'_>, SkipReason> {
    let Some(head) = bytes.first_chunk::<20>() else { return Err(SkipReason::Truncated(None)) };
    let [version, _, l0, l1, _, _, f0, f1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *head;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let header = usize::from(version & 0x0F) * 4;
    if version >> 4 != 4 || header < 20 || protocol != IP_PROTOCOL_UDP {
        return Err(SkipReason::NotUdp);
    }
    // Bit 13 is "more fragments", the lower bits are the offset.
    if u16::from_be_bytes([f0, f1]) & 0x3FFF != 0 {
        return Err(SkipReason::IpFragment);
    }
    // Some senders leave the length to the network card and write zero.
    let end = if length == 0 { bytes.len() } else { length };
    let from_port = read_u16(bytes, header)?;
    let to_port = read_u16(bytes, header + 2)?;
    let from = SocketAddrV4::new(Ipv4Addr::new(s0, s1, s2, s3), from_port);
    let to = SocketAddrV4::new(Ipv4Addr::new(d0, d1, d2, d3), to_port);
    let cut = SkipReason::Truncated(Some((from, to)));
    let udp = bytes.get(header..end).ok_or(cut)?;
    let length = usize::from(read_u16(udp, 4)?);
    let payload = udp.get(8..length).ok_or(cut)?;
    Ok(UdpDatagram { from, to, payload })
}

fn read_u16(bytes: &[u8], at: usize) -> Result<u16, SkipReason> {
    match bytes.get(at..at + 2) {
        Some([high, low]) => Ok(u16::from_be_bytes([*high, *low])),
        _ => Err(SkipReason::Truncated(None)),
    }
}

/// Link types whose packets can be told from other bytes.
pub(super) const RECOGNIZABLE_LINKS: [u16; 5] = [RAW, ETHERNET, LINUX_COOKED, LINUX_COOKED_2, NULL];
const NULL: u16 = 0;
const ETHERNET: u16 = 1;
const RAW_BSD: u16 = 12;
const RAW_OPENBSD: u16 = 14;
const RAW: u16 = 101;
const LOOP: u16 = 108;
const LINUX_COOKED: u16 = 113;
const IPV4: u16 = 228;
const LINUX_COOKED_2: u16 = 276;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const IP_PROTOCOL_UDP: u8 = 17;
/// More VLAN tags than anyone nests.
const MAX_VLAN_TAGS: usize = 4;
