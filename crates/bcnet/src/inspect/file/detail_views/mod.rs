//! Stories from a capture: queues at any moment, what is done with each ACK, one message from its first sending to its
//! clearing, a conversation as a sequence diagram, and dump logs of the original engine beside what the capture shows.
//!
//! Each is a [`Sink`] of its own; [`StoryOptions`] says which one is wanted.

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

/// Which story is told, if any.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Stories")]
pub(super) struct DetailOptions {
    /// Print the queues of both sides in the form of the original engine's dumps
    ///
    /// They are those at the end of the capture, or at the times of --at or --every. Retransmit queue and ACK outbox
    /// are reconstructed. What was never sent is not on the wire: only parts whose message has begun are shown in the
    /// first-send queue.
    #[arg(long, group = "story")]
    queues: bool,

    /// Print the queues at these times: seconds from the start, or times of day (UTC)
    #[arg(long, value_name = "TIME", value_delimiter = ',', requires = "queues", conflicts_with = "every")]
    at: Vec<CaptureTime>,

    /// Print the queues this often
    #[arg(long, value_name = "SECONDS", requires = "queues")]
    every: Option<DumpInterval>,

    /// Print a line for every ACK that a side gets: what it clears, what waited then
    ///
    /// The lines are those that a hook on the original engine's HandleACK wrote.
    #[arg(long, group = "story")]
    handle_acks: bool,

    /// Tell all about the message with this number: sendings, ACKs, clearing, causes
    #[arg(long, value_name = "SEQ", group = "story", value_parser = parse_sequence_number)]
    follow_message: Option<u16>,

    /// Follow only a message of this channel: control or game
    #[arg(long, value_name = "CHANNEL", requires = "follow_message")]
    channel: Option<ChannelArg>,

    /// Follow only what this side has sent: host or client
    #[arg(long, value_name = "SIDE", requires = "follow_message")]
    sent_by: Option<SideArg>,

    /// Follow only this part of a split message
    #[arg(long, value_name = "INDEX", requires = "follow_message")]
    part: Option<u8>,

    /// Draw each conversation as a sequence diagram
    #[arg(long, group = "story")]
    ladder: bool,

    /// Compare a dump log of an engine (retxQ=, HandleACK:) with what the capture shows
    #[arg(long, value_name = "LOG", group = "story")]
    dump_log: Option<PathBuf>,

    /// Add this to the times of the dump log, whose clock may be another
    #[arg(long, value_name = "SECONDS", requires = "dump_log", allow_negative_numbers = true)]
    dump_offset: Option<f64>,
}

impl DetailOptions {
    /// Returns the first option that was given, if there is one.
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

    /// Returns who tells the story that is wanted, if one is.
    pub(super) fn sink<'a>(
        &self,
        out: impl Write + 'a,
        filter: &Filter,
        json: bool,
    ) -> anyhow::Result<Option<Box<dyn Sink + 'a>>> {
        let stage = DetailContext { out, filter: filter.clone(), json };
        Ok(if self.queues {
            let times = match self.every {
                Some(DumpInterval(every)) => queue_dumps::DumpTimes::Every(every),
                None if self.at.is_empty() => queue_dumps::DumpTimes::End,
                None => queue_dumps::DumpTimes::At(self.at.clone()),
            };
            Some(Box::new(queue_dumps::QueueDumps::new(stage, times)))
        } else if self.handle_acks {
            Some(Box::new(handled_acks::HandledAckList::new(stage)))
        } else if let Some(seq) = self.follow_message {
            let wanted = message_timeline::MessageSelector {
                seq,
                channel: self.channel.map(|ChannelArg(channel)| channel),
                sent_by: self.sent_by.map(|SideArg(role)| role),
                part: self.part,
            };
            Some(Box::new(message_timeline::MessageTimelines::new(stage, wanted)))
        } else if self.ladder {
            Some(Box::new(sequence_diagram::SequenceDiagrams::new(stage)))
        } else if let Some(path) = &self.dump_log {
            let name = path.display().to_string();
            let text = std::fs::read(path).with_context(|| name.clone())?;
            let log = dump_log::DumpLog::read(&String::from_utf8_lossy(&text));
            anyhow::ensure!(!log.is_empty(), "{name}: no line of a dump log in it (retxQ=, HandleACK:)");
            let shift = (self.dump_offset.unwrap_or(0.0) * 1e6).round() as i64;
            Some(Box::new(dump_comparison::DumpComparison::new(stage, name, log, shift)))
        } else {
            None
        })
    }
}

/// What every story needs: where it is told, what of the capture it is about, and in which form.
struct DetailContext<W> {
    out: W,
    filter: Filter,
    json: bool,
}

/// When a capture begins and ends, in microseconds.
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

    /// Returns the error for a time that is not in the capture.
    fn outside_error(&self, what: &str) -> std::io::Error {
        let start = self.start.unwrap_or(0);
        let [from, to] = [start, self.end].map(|micros| format_time_of_day(Duration::from_micros(micros)));
        let lasts = self.since_start(self.end);
        let text = format!("{what} is outside of the capture, which lasts from {from} to {to}, {lasts:.3} s");
        std::io::Error::other(text)
    }
}

/// Returns the error if `--peer` names nobody.
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
    let known = if names.is_empty() { "nobody".into() } else { names.join(", ") };
    Err(std::io::Error::other(format!("--peer {peer}: not in the capture; there is {known}{rest}")))
}

#[derive(Debug, Clone, Copy)]
struct ChannelArg(Channel);

impl FromStr for ChannelArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "control" => Ok(Self(Channel::Control)),
            "game" => Ok(Self(Channel::Game)),
            _ => Err("control or game is wanted"),
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
            _ => Err("host or client is wanted"),
        }
    }
}

/// A time between two dumps, in microseconds.
#[derive(Debug, Clone, Copy)]
struct DumpInterval(u64);

impl FromStr for DumpInterval {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let micros = parse_seconds(text).filter(|micros| *micros >= MIN_DUMP_INTERVAL);
        micros.map(Self).ok_or("seconds are wanted, at least 0.001")
    }
}

/// Decimal, or hex behind `0x` as dumps have it.
pub(super) fn parse_sequence_number(text: &str) -> Result<u16, &'static str> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u16::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| "a number from 0 to 65535 is wanted, or 0x0000 to 0xFFFF")
}

const MIN_DUMP_INTERVAL: u64 = 1_000;
/// As many are named where one was not found.
const MAX_LISTED_NAMES: usize = 20;
