//! Selects the datagrams and messages of a capture that are shown.

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

/// Selects datagrams and messages. An option that is not given selects all.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Filter {
    /// Show only traffic of one peer: its id, its address, or its address with a port
    #[arg(long, value_name = "ID|ADDR[:PORT]")]
    peer: Option<PeerArg>,

    /// Show only messages of this kind: identity, ack, keepalive, connect, boot, disconnect, data
    #[arg(long, conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    kind: Option<KindArg>,

    /// Show only game data with these opcodes, by name or number (`Chat`, `0x2C`); `!` excludes one
    #[arg(long, value_delimiter = ',', conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    opcode: Vec<OpcodeArg>,

    /// Show only messages with these sequence numbers, and their ACKs
    #[arg(long, value_name = "SEQ", value_delimiter = ',', value_parser = detail_views::parse_sequence_number, conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    seq: Vec<u16>,

    /// Show only these packets: numbers or ranges (`7`, `100-120`)
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    packet: Vec<PacketRange>,

    /// Show only packets from this time on: seconds from the start of the capture, or a time of day (UTC)
    #[arg(long, value_name = "TIME", conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    from: Option<CaptureTime>,

    /// Show only packets up to this time
    #[arg(long, value_name = "TIME", conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    to: Option<CaptureTime>,

    /// Show only datagrams with findings
    #[arg(long, conflicts_with_all = WHOLE_CAPTURE_OPTIONS)]
    pub(super) anomalies: bool,
}

impl Filter {
    /// Returns the name of the first option that was given, if any.
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

    /// Returns whether the filter may leave messages out of a datagram that is shown.
    pub(super) const fn selects_messages(&self) -> bool {
        self.kind.is_some() || !self.opcode.is_empty() || !self.seq.is_empty()
    }

    /// Returns the selected peer, as the user wrote it.
    pub(super) fn peer_text(&self) -> Option<String> {
        self.peer.map(|peer| peer.to_string())
    }

    /// Returns whether the packet with this number is selected.
    pub(super) fn wants_packet_number(&self, number: u64) -> bool {
        self.packet.is_empty() || self.packet.iter().any(|PacketRange(range)| range.contains(&number))
    }

    /// Returns whether a message with this sequence number, or an ACK of it, is selected.
    pub(super) fn wants_seq(&self, seq: Option<Seq>) -> bool {
        self.seq.is_empty() || seq.is_some_and(|Seq(seq)| self.seq.contains(&seq))
    }

    /// Returns whether a finding about a selected datagram is selected: its message must be selected too.
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

    /// Returns whether a datagram is selected by its addresses, time and number.
    ///
    /// `ids` are the peer ids of both ends; `start` is the time at which the capture begins.
    pub(super) fn wants_metadata(&self, packet: &PacketInfo, ids: [Option<PeerId>; 2], start: u64) -> bool {
        self.peer.is_none_or(|peer| peer.matches([packet.from, packet.to], ids))
            && self.wants_time(packet.time.as_micros(), start)
            && self.wants_packet_number(packet.number)
    }

    /// Returns whether a datagram is selected by its addresses, time, number, content and findings.
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
            DatagramContent::Datagram(datagram, conversation) => {
                let any = || datagram.messages().iter().any(|message| self.wants_message(message));
                self.wants_metadata(packet, [Some(datagram.sender()), conversation.receiver], start)
                    && (!self.selects_messages() || any())
            }
            DatagramContent::GameSpy(_) | DatagramContent::Malformed(..) => {
                !self.selects_messages() && self.wants_metadata(packet, [None, None], start)
            }
        }
    }

    /// Returns whether a conversation is selected, as far as its peers are known.
    pub(super) fn wants_conversation(&self, conversation: &Conversation<'_>) -> bool {
        let sides = [Side::First, Side::Second];
        let (ends, ids) =
            (sides.map(|side| conversation.address(side)), sides.map(|side| conversation.peer(side)));
        self.peer.is_none_or(|peer| peer.matches(ends, ids))
    }

    /// Returns whether a finding without a datagram is selected.
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

    /// Returns whether a finding is selected by its conversation, time and packet number alone.
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

    /// Returns whether a time is selected, in a capture that begins at `start`.
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
            .ok_or_else(|| "expected an id from 0 to 255, or an IPv4 address with or without a port".into())
    }
}

#[derive(Debug, Clone, Copy)]
struct KindArg(Kind);

impl FromStr for KindArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = (0..=u8::MAX).map(Kind).find(|kind| kind.name() == Some(text));
        named.or_else(|| parse_u8(text).map(Kind)).map(Self).ok_or_else(|| {
            "unknown kind; expected identity, ack, keepalive, connect, boot, disconnect or data".into()
        })
    }
}

/// A range of packet numbers.
#[derive(Debug, Clone)]
struct PacketRange(RangeInclusive<u64>);

impl FromStr for PacketRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = first.trim().parse().ok().zip(last.trim().parse().ok());
        let range = range.filter(|(first, last)| first <= last);
        range.map(|(first, last)| Self(first..=last)).ok_or("expected a number, or a range such as 100-120")
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
            .ok_or_else(|| "expected the name of an opcode, or a number from 0 to 255".into())
    }
}

/// Returns the sequence number of a message, or the number that it acknowledges.
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
    /// Returns the time in a capture that begins at `start`, in microseconds.
    pub(super) const fn to_micros(self, start: u64) -> u64 {
        match self {
            Self::SinceStart(micros) => start.saturating_add(micros),
            Self::TimeOfDay(micros) => {
                let today = start - start % MICROS_PER_DAY + micros;
                // A time long before the start belongs to the next day.
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
            .ok_or_else(|| "expected seconds (12.5), or a time of day (11:39:21)".into())
    }
}

/// Parses a number: decimal, or hex with `0x`.
fn parse_u8(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Options that show the whole capture. Most filters conflict with them.
const WHOLE_CAPTURE_OPTIONS: [&str; 2] = ["summary", "report"];
const MICROS_PER_DAY: u64 = 86_400 * 1_000_000;
