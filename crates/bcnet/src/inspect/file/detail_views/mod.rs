//! Detail views of a capture.
//!
//! - [`queue_dumps`]: the queues of both sides at chosen times.
//! - [`handled_acks`]: the effect of each ACK.
//! - [`message_timeline`]: one message from its first send to its ACK.
//! - [`sequence_diagram`]: a conversation as a sequence diagram.
//! - [`dump_comparison`]: a comparison with a dump log of the original engine.
//!
//! Each view is a [`Sink`]; [`DetailOptions`] selects one.

mod dump_comparison;
mod dump_log;
mod handled_acks;
mod message_timeline;
mod queue_dumps;
mod sequence_diagram;

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use bcnet_observe::{Conversation, Observer, Side};
use bcnet_transport::wire::{Channel, Role};

use super::Sink;
use super::filter::{CaptureTime, Filter};
use super::packet_log::parse_seconds;
use super::summary::side_name;
use crate::queue_dump::format_time_of_day;

/// Selects a detail view, if any.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Detail views")]
pub(super) struct DetailOptions {
    /// Print the queues of both sides in the format of the original engine's dumps
    ///
    /// The queues are those at the end of the capture, or at the times of --at or --every. Retransmit queue and ACK
    /// outbox are reconstructed. Messages that were never sent are not on the wire, so the first-send queue shows only
    /// fragments of messages that were sent in part.
    #[arg(long, group = "detail_view")]
    queues: bool,

    /// Print the queues at these times: seconds from the start, or times of day (UTC)
    #[arg(long, value_name = "TIME", value_delimiter = ',', requires = "queues", conflicts_with = "every")]
    at: Vec<CaptureTime>,

    /// Print the queues at this interval
    #[arg(long, value_name = "SECONDS", requires = "queues")]
    every: Option<DumpInterval>,

    /// Print a line for every ACK that a side receives: what it clears, and what was waiting then
    ///
    /// The format is that of a hook on the original engine's HandleACK.
    #[arg(long, group = "detail_view")]
    handle_acks: bool,

    /// Show all events of the message with this sequence number: sends, ACKs, clearing, causes
    #[arg(long, value_name = "SEQ", group = "detail_view", value_parser = parse_sequence_number)]
    follow_message: Option<u16>,

    /// Follow only a message of this channel: control or game
    #[arg(long, value_name = "CHANNEL", requires = "follow_message")]
    channel: Option<ChannelArg>,

    /// Follow only messages sent by this side: host or client
    #[arg(long, value_name = "SIDE", requires = "follow_message")]
    sent_by: Option<SideArg>,

    /// Follow only this fragment of a split message
    #[arg(long, value_name = "INDEX", requires = "follow_message")]
    part: Option<u8>,

    /// Draw each conversation as a sequence diagram
    #[arg(long, group = "detail_view")]
    ladder: bool,

    /// Compare a dump log of an engine (retxQ=, HandleACK:) with the capture
    #[arg(long, value_name = "LOG", group = "detail_view")]
    dump_log: Option<PathBuf>,

    /// Add this to the times of the dump log, if its clock differs
    #[arg(long, value_name = "SECONDS", requires = "dump_log", allow_negative_numbers = true)]
    dump_offset: Option<f64>,
}

impl DetailOptions {
    /// Returns the name of the first option that was given, if any.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let options = [
            (self.queues, "--queues"),
            (self.handle_acks, "--handle-acks"),
            (self.follow_message.is_some(), "--follow-message"),
            (self.ladder, "--ladder"),
            (self.dump_log.is_some(), "--dump-log"),
        ];
        options.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// Returns the sink of the selected view, if one is selected.
    pub(super) fn sink<'a>(
        &self,
        out: impl Write + 'a,
        filter: &Filter,
        json: bool,
    ) -> anyhow::Result<Option<Box<dyn Sink + 'a>>> {
        let context = DetailContext { out, filter: filter.clone(), json };
        Ok(if self.queues {
            let times = match self.every {
                Some(DumpInterval(every)) => queue_dumps::DumpTimes::Every(every),
                None if self.at.is_empty() => queue_dumps::DumpTimes::End,
                None => queue_dumps::DumpTimes::At(self.at.clone()),
            };
            Some(Box::new(queue_dumps::QueueDumps::new(context, times)))
        } else if self.handle_acks {
            Some(Box::new(handled_acks::HandledAckList::new(context)))
        } else if let Some(seq) = self.follow_message {
            let wanted = message_timeline::MessageSelector {
                seq,
                channel: self.channel.map(|ChannelArg(channel)| channel),
                sent_by: self.sent_by.map(|SideArg(role)| role),
                part: self.part,
            };
            Some(Box::new(message_timeline::MessageTimelines::new(context, wanted)))
        } else if self.ladder {
            Some(Box::new(sequence_diagram::SequenceDiagrams::new(context)))
        } else if let Some(path) = &self.dump_log {
            let name = path.display().to_string();
            let text = std::fs::read(path).with_context(|| name.clone())?;
            let log = dump_log::DumpLog::read(&String::from_utf8_lossy(&text));
            anyhow::ensure!(!log.is_empty(), "{name}: not a dump log: no line with retxQ= or HandleACK:");
            let shift = (self.dump_offset.unwrap_or(0.0) * 1e6).round() as i64;
            Some(Box::new(dump_comparison::DumpComparison::new(context, name, log, shift)))
        } else {
            None
        })
    }
}

/// The output, the filter and the format of a detail view.
struct DetailContext<W> {
    out: W,
    filter: Filter,
    json: bool,
}

/// The start and the end of a capture, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct CaptureSpan {
    start: Option<u64>,
    end: u64,
}

impl CaptureSpan {
    fn extend(&mut self, micros: u64) {
        self.start.get_or_insert(micros);
        self.end = self.end.max(micros);
    }

    fn since_start(&self, micros: u64) -> f64 {
        micros.saturating_sub(self.start.unwrap_or(micros)) as f64 / 1e6
    }

    /// Returns the error for a time outside the capture.
    fn outside_error(&self, what: &str) -> std::io::Error {
        let start = self.start.unwrap_or(0);
        let [from, to] = [start, self.end].map(|micros| format_time_of_day(Duration::from_micros(micros)));
        let lasts = self.since_start(self.end);
        let text = format!("{what} is outside the capture, which lasts from {from} to {to}, {lasts:.3} s");
        std::io::Error::other(text)
    }
}

/// Returns an error if `--peer` names a peer that is not in the capture.
fn check_peer(filter: &Filter, observer: &Observer) -> std::io::Result<()> {
    let Some(peer) = filter.peer_text() else { return Ok(()) };
    if observer.conversations().any(|conversation| filter.wants_conversation(&conversation)) {
        return Ok(());
    }
    let named = |conversation: Conversation<'_>| {
        [Side::First, Side::Second].map(|side| side_name(&conversation, side))
    };
    let mut names: Vec<String> = observer.conversations().flat_map(named).collect();
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(MAX_LISTED_NAMES);
    names.truncate(MAX_LISTED_NAMES);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let known = if names.is_empty() { "no player".into() } else { names.join(", ") };
    Err(std::io::Error::other(format!("--peer {peer}: not in the capture; the capture has {known}{rest}")))
}

#[derive(Debug, Clone, Copy)]
struct ChannelArg(Channel);

impl FromStr for ChannelArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "control" => Ok(Self(Channel::Control)),
            "game" => Ok(Self(Channel::Game)),
            _ => Err("expected control or game"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct SideArg(Role);

impl FromStr for SideArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "host" => Ok(Self(Role::Host)),
            "client" => Ok(Self(Role::Client)),
            _ => Err("expected host or client"),
        }
    }
}

/// The interval between two dumps, in microseconds.
#[derive(Debug, Clone, Copy)]
struct DumpInterval(u64);

impl FromStr for DumpInterval {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let micros = parse_seconds(text).filter(|micros| *micros >= MIN_DUMP_INTERVAL);
        micros.map(Self).ok_or("expected seconds, at least 0.001")
    }
}

/// Parses a sequence number: decimal, or hex with `0x` as in dumps.
pub(super) fn parse_sequence_number(text: &str) -> Result<u16, &'static str> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u16::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| "expected a number from 0 to 65535, or 0x0000 to 0xFFFF")
}

const MIN_DUMP_INTERVAL: u64 = 1_000;
/// The most names that an error lists.
const MAX_LISTED_NAMES: usize = 20;
