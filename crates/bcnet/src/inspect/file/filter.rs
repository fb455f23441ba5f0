//! What of a capture is shown.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use bcnet_observe::{Conversation, Finding, Observer, Side};
use bcnet_session::game::{self, Opcode};
use bcnet_transport::wire::{Kind, Message, PeerId, Seq};

use super::delayed_output::{DatagramContent, DetachedFinding};
use super::packet_log::{parse_seconds, parse_time_of_day};
use super::{PacketInfo, detail_views};
use crate::queue_dump::format_time_of_day as clock_time;

/// Which datagrams and messages are wanted; what is not set wants all.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Filter {
    /// Only what a peer sends or gets: its id, its address, or both with a port
    #[arg(long, value_name = "ID|ADDR[:PORT]")]
    peer: Option<PeerArg>,

    /// Only messages of this kind: identity, ack, keepalive, connect, boot, disconnect, data
    #[arg(long, conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    kind: Option<KindArg>,

    /// Only game data with these opcodes, by name or number (`Chat`, `0x2C`); `!` in front leaves one out
    #[arg(long, value_delimiter = ',', conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    opcode: Vec<OpcodeArg>,

    /// Only messages with these sequence numbers and their ACKs
    #[arg(long, value_name = "SEQ", value_delimiter = ',', value_parser = detail_views::parse_sequence_number, conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    seq: Vec<u16>,

    /// Only these packets: their numbers, or ranges (`7`, `100-120`)
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    packet: Vec<PacketRange>,

    /// Only from this time on: seconds from the start of the capture, or a time of day (UTC)
    #[arg(long, value_name = "TIME", conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    from: Option<CaptureTime>,

    /// Only up to this time
    #[arg(long, value_name = "TIME", conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    to: Option<CaptureTime>,

    /// Only datagrams that something is wrong with
    #[arg(long, conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    pub(super) anomalies: bool,
}

impl Filter {
    /// Returns the first option that was given, if there is one.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let options = [
            (self.peer.is_some(), "--peer"),
            (self.kind.is_some(), "--kind"),
            (!self.opcode.is_empty(), "--opcode"),
            (!self.seq.is_empty(), "--seq"),
            (!self.packet.is_empty(), "--packet"),
            (self.from.is_some(), "--from"),
            (self.to.is_some(), "--to"),
            (self.anomalies, "--anomalies"),
        ];
        options.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// Returns whether any message may be left out of a datagram that is shown.
    pub(super) const fn selects_messages(&self) -> bool {
        self.kind.is_some() || !self.opcode.is_empty() || !self.seq.is_empty()
    }

    /// Returns the peer that is wanted, as it was given.
    pub(super) fn peer_text(&self) -> Option<String> {
        self.peer.map(|peer| peer.to_string())
    }

    /// Returns whether a packet with this number is wanted.
    pub(super) fn wants_packet_number(&self, number: u64) -> bool {
        self.packet.is_empty() || self.packet.iter().any(|PacketRange(range)| range.contains(&number))
    }

    /// Returns whether a message is wanted that has this number, or acknowledges it.
    pub(super) fn wants_seq(&self, seq: Option<Seq>) -> bool {
        self.seq.is_empty() || seq.is_some_and(|Seq(seq)| self.seq.contains(&seq))
    }

    /// Returns whether something is wanted that was found in a datagram which is: not if it is about another message.
    pub(super) fn wants_finding(&self, finding: &Finding) -> bool {
        let opcode = finding.kind.message_info().and_then(|about| about.opcode);
        finding.kind.message_id().is_none_or(|id| self.wants_seq(Some(id.seq)))
            && (opcode.is_none() || self.wants_opcode(opcode))
    }

    fn wants_opcode(&self, opcode: Option<u8>) -> bool {
        let is_named = |leave_out: bool| {
            let of = self.opcode.iter().filter(move |named| named.is_excluded == leave_out);
            of.into_iter().any(|named| Some(named.opcode.0) == opcode)
        };
        let some_wanted = self.opcode.iter().any(|named| !named.is_excluded);
        !is_named(true) && (!some_wanted || is_named(false))
    }

    /// Returns whether a datagram is wanted, whatever is in it. `ids` are those of the two ends, `start` is when the
    /// capture begins.
    pub(super) fn wants_metadata(&self, packet: &PacketInfo, ids: [Option<PeerId>; 2], start: u64) -> bool {
        self.peer.is_none_or(|peer| peer.matches([packet.from, packet.to], ids))
            && self.wants_time(packet.time.as_micros(), start)
            && self.wants_packet_number(packet.number)
    }

    /// Returns whether a datagram is wanted, with what is in it and what was found in it.
    pub(super) fn wants_datagram(
        &self,
        packet: &PacketInfo,
        what: &DatagramContent<'_>,
        findings: &[Finding],
        start: u64,
    ) -> bool {
        let is_wrong = |finding: &Finding| finding.kind.is_fault() && self.wants_finding(finding);
        if self.anomalies && !findings.iter().any(is_wrong) {
            return false;
        }
        match what {
            DatagramContent::Datagram(datagram, talk) => {
                let any = || datagram.messages().iter().any(|message| self.wants_message(message));
                self.wants_metadata(packet, [Some(datagram.sender()), talk.receiver], start)
                    && (!self.selects_messages() || any())
            }
            DatagramContent::GameSpy(_) | DatagramContent::Malformed(..) => {
                !self.selects_messages() && self.wants_metadata(packet, [None, None], start)
            }
        }
    }

    /// Returns whether a conversation is wanted, as far as it is known who talks there.
    pub(super) fn wants_conversation(&self, conversation: &Conversation<'_>) -> bool {
        let sides = [Side::First, Side::Second];
        let (ends, ids) =
            (sides.map(|side| conversation.address(side)), sides.map(|side| conversation.peer(side)));
        self.peer.is_none_or(|peer| peer.matches(ends, ids))
    }

    /// Returns whether something is wanted that stands at no datagram.
    pub(super) fn wants_detached(
        &self,
        DetachedFinding { finding, peer_ids: peers, .. }: &DetachedFinding,
        start: u64,
    ) -> bool {
        !self.selects_messages()
            && (!self.anomalies || finding.kind.is_fault())
            && self.peer.is_none_or(|peer| peer.matches([finding.by, finding.to], *peers))
            && self.wants_time(finding.at.as_micros(), start)
    }

    /// Returns whether something is wanted that is told when the datagram that shows it has long been shown.
    pub(super) fn wants_late_finding(&self, finding: &Finding, observer: &Observer, start: u64) -> bool {
        let between = || {
            observer
                .conversation(finding.conversation)
                .is_some_and(|conversation| self.wants_conversation(&conversation))
        };
        !self.selects_messages()
            && (!self.anomalies || finding.kind.is_fault())
            && (self.peer.is_none() || between())
            && self.wants_time(finding.at.as_micros(), start)
            && self.wants_packet_number(finding.mark)
    }

    /// Returns whether this time is wanted, of a capture that begins at `start`.
    pub(super) fn wants_time(&self, time: u64, start: u64) -> bool {
        self.from.is_none_or(|from| time >= from.to_micros(start))
            && self.to.is_none_or(|to| time <= to.to_micros(start))
    }

    pub(super) fn wants_message(&self, message: &Message<'_>) -> bool {
        self.kind.is_none_or(|KindArg(kind)| message.kind() == kind)
            && self.wants_opcode(bcnet_observe::opcode(message))
            && (self.seq.is_empty() || self.wants_seq(message_seq(message)))
    }
}

#[derive(Debug, Clone, Copy)]
enum PeerArg {
    Id(PeerId),
    Address(Ipv4Addr),
    Socket(SocketAddrV4),
}

impl PeerArg {
    fn matches(self, ends: [SocketAddrV4; 2], ids: [Option<PeerId>; 2]) -> bool {
        match self {
            Self::Id(id) => ids.contains(&Some(id)),
            Self::Address(address) => ends.iter().any(|end| *end.ip() == address),
            Self::Socket(socket) => ends.contains(&socket),
        }
    }
}

impl fmt::Display for PeerArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{}", id.0),
            Self::Address(address) => address.fmt(f),
            Self::Socket(socket) => socket.fmt(f),
        }
    }
}

impl FromStr for PeerArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = parse_u8(text).map(|id| Self::Id(PeerId(id)));
        id.or_else(|| text.parse().ok().map(Self::Address))
            .or_else(|| text.parse().ok().map(Self::Socket))
            .ok_or_else(|| "neither an id from 0 to 255 nor an IPv4 address with or without a port".into())
    }
}

#[derive(Debug, Clone, Copy)]
struct KindArg(Kind);

impl FromStr for KindArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = (0..=u8::MAX).map(Kind).find(|kind| kind.name() == Some(text));
        named
            .or_else(|| parse_u8(text).map(Kind))
            .map(Self)
            .ok_or_else(|| "no such kind: identity, ack, keepalive, connect, boot, disconnect, data".into())
    }
}

/// Packets by their numbers.
#[derive(Debug, Clone)]
struct PacketRange(RangeInclusive<u64>);

impl FromStr for PacketRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = first.trim().parse().ok().zip(last.trim().parse().ok());
        let range = range.filter(|(first, last)| first <= last);
        range.map(|(first, last)| Self(first..=last)).ok_or("a number is wanted, or a range such as 100-120")
    }
}

#[derive(Debug, Clone, Copy)]
struct OpcodeArg {
    opcode: Opcode,
    is_excluded: bool,
}

impl FromStr for OpcodeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, leave_out) = text.strip_prefix('!').map_or((text, false), |text| (text, true));
        let named = game::TABLE
            .iter()
            .map(|row| row.opcode)
            .find(|opcode| opcode.name().is_some_and(|name| name.eq_ignore_ascii_case(text)));
        named
            .or_else(|| parse_u8(text).map(Opcode))
            .map(|opcode| Self { opcode, is_excluded: leave_out })
            .ok_or_else(|| "neither the name of an opcode nor a number from 0 to 255".into())
    }
}

/// Returns the number of a message, or that which it acknowledges.
fn message_seq(message: &Message<'_>) -> Option<Seq> {
    if let Message::Ack(ack) = message { Some(ack.id.seq) } else { message.id().map(|id| id.seq) }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum CaptureTime {
    /// Microseconds from the start.
    SinceStart(u64),
    /// Microseconds since midnight.
    TimeOfDay(u64),
}

impl CaptureTime {
    /// Returns as a time of a capture that begins at `start`.
    pub(super) const fn to_micros(self, start: u64) -> u64 {
        match self {
            Self::SinceStart(micros) => start.saturating_add(micros),
            Self::TimeOfDay(micros) => {
                let today = start - start % MICROS_PER_DAY + micros;
                // A time long before the start is meant to be of the next day.
                if today + MICROS_PER_DAY / 2 < start { today.saturating_add(MICROS_PER_DAY) } else { today }
            }
        }
    }
}

impl fmt::Display for CaptureTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SinceStart(micros) => write!(f, "{}", *micros as f64 / 1e6),
            Self::TimeOfDay(micros) => f.write_str(&clock_time(Duration::from_micros(*micros))),
        }
    }
}

impl FromStr for CaptureTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let day = || parse_time_of_day(text).map(Self::TimeOfDay);
        parse_seconds(text)
            .map(Self::SinceStart)
            .or_else(day)
            .ok_or_else(|| "neither seconds (12.5) nor a time of day (11:39:21)".into())
    }
}

/// Decimal, or hex behind `0x`.
fn parse_u8(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// These tell of whole conversations.
const WHOLE_CAPTURE_OPTIONS: [&str; 2] = ["summary", "report"];
const MICROS_PER_DAY: u64 = 86_400 * 1_000_000;
