//! Reads dump logs that hooks in the original engine wrote.
//!
//! They contain queues (`retxQ=… ackOutQ=…`, with an entry on each line below) and handled ACKs (`HandleACK: …`). Other
//! lines are ignored; contradictions are reported.

mod fields;

use std::net::SocketAddrV4;

use bcnet_transport::wire::{Channel, Role};

use super::super::packet_log::{parse_seconds, parse_time_of_day};
use fields::{DumpFields, DumpQueue};

/// A dump log in memory.
#[derive(Debug, Default)]
pub(super) struct DumpLog {
    pub(super) records: Vec<DumpLogRecord>,
    pub(super) errors: Vec<DumpLogError>,
}

/// An error in a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DumpLogError {
    pub(super) line: usize,
    pub(super) text: String,
}

/// A queue dump or a handled ACK.
#[derive(Debug)]
pub(super) struct DumpLogRecord {
    pub(super) line: usize,
    /// Microseconds since midnight.
    pub(super) micros: u64,
    pub(super) author: DumpAuthor,
    pub(super) content: DumpContent,
}

/// The node that wrote a record, as far as the log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DumpAuthor {
    Unknown,
    Role(Role),
    Addresses { own: SocketAddrV4, other: SocketAddrV4 },
}

#[derive(Debug)]
pub(super) enum DumpContent {
    Dump { peer: u8, retx: DumpedQueue, acks: DumpedQueue },
    HandledAck { ack: DumpedEntry, retx: DumpedQueue },
}

/// A queue as it was written.
#[derive(Debug, Default)]
pub(super) struct DumpedQueue {
    /// The number of entries.
    pub(super) count: usize,
    /// The entries that are listed.
    pub(super) entries: Vec<DumpedEntry>,
    /// True if some entries are left out.
    pub(super) is_truncated: bool,
}

/// A queue entry. Missing fields are `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DumpedEntry {
    pub(super) seq: u16,
    pub(super) part: Option<u8>,
    pub(super) channel: Option<Channel>,
    pub(super) retx: Option<u32>,
    pub(super) interval: Option<f64>,
}

/// Reads a log line by line.
#[derive(Default)]
struct DumpLogReader {
    log: DumpLog,
    /// The author of the following records.
    author: Option<DumpAuthor>,
    /// The record that is being read; `last_entry` is the position of its last entry.
    current: Option<DumpLogRecord>,
    last_entry: Option<(DumpQueue, usize)>,
    /// True if entries were left out after the last one.
    has_gap: bool,
    /// The times of the last dump and of the last handled ACK. A hook may have buffered the two kinds separately.
    last_times: [Option<u64>; 2],
}

impl DumpLog {
    /// Reads a log.
    pub(super) fn read(text: &str) -> Self {
        let mut reader = DumpLogReader::default();
        for (place, line) in text.lines().enumerate() {
            reader.read_line(place + 1, line);
        }
        reader.finish_record();
        reader.log.errors.sort_by_key(|damage| damage.line);
        reader.log
    }

    /// Returns whether the text contains nothing of a dump log.
    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty() && self.errors.is_empty()
    }
}

impl DumpLogReader {
    fn read_line(&mut self, line: usize, text: &str) {
        let trimmed = text.trim();
        if let Some(heading) = trimmed.strip_prefix("# ") {
            self.finish_record();
            if let Some(node) = parse_author(heading) {
                (self.author, self.last_times) = (Some(node), [None; 2]);
            }
        } else if let Some((stamp, rest)) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            && (rest.contains("retxQ=") || rest.contains("HandleACK:"))
        {
            self.finish_record();
            self.start_record(line, stamp, rest);
        } else if trimmed.starts_with("...") {
            self.on_omission(line, trimmed);
        } else if let Some((queue, place, rest)) = fields::parse_entry_head(trimmed) {
            self.add_entry(line, queue, place, rest);
        } else {
            self.finish_record();
        }
    }

    fn add_error(&mut self, line: usize, text: impl Into<String>) {
        self.log.errors.push(DumpLogError { line, text: text.into() });
    }

    /// Starts a record: the head of a dump, or a handled ACK.
    fn start_record(&mut self, line: usize, stamp: &str, rest: &str) {
        let Some(micros) = parse_time_of_day(stamp).or_else(|| parse_seconds(stamp)) else {
            return self.add_error(line, format!("[{stamp}] is not a time"));
        };
        let last = &mut self.last_times[usize::from(rest.contains("HandleACK:"))];
        let before = last.replace(micros);
        if before.is_some_and(|before| micros < before && before - micros < MICROS_PER_DAY / 2) {
            self.add_error(line, format!("[{stamp}] is earlier than the previous record"));
        }
        let (rest, comment) = fields::split_comment(rest);
        let author = comment.and_then(parse_author).or(self.author).unwrap_or(DumpAuthor::Unknown);
        match fields::parse_head(rest) {
            Ok(what) => self.current = Some(DumpLogRecord { line, micros, author, content: what }),
            Err(error) => self.add_error(line, error),
        }
    }

    /// Adds an entry to the queue of the current record.
    fn add_entry(&mut self, line: usize, queue: DumpQueue, place: Option<usize>, rest: &str) {
        let Some(place) = place else {
            return self.add_error(line, "the index of the entry is not a number");
        };
        if self.current.is_none() {
            // A recent error is probably about the head line of this dump: one error is enough.
            let is_reported = self.log.errors.last().is_some_and(|last| line - last.line <= MAX_ENTRIES);
            if !is_reported {
                self.add_error(line, "an entry without the head line of its dump");
            }
            return;
        }
        let expected = match self.last_entry {
            Some((listed, last)) if listed == queue => last + 1,
            _ => 0,
        };
        if place < expected || place > expected && !self.has_gap {
            let text = format!("{}[{place}] where {}[{expected}] is expected", queue.name(), queue.name());
            self.add_error(line, text);
        }
        let (is_gap, entry) = (std::mem::take(&mut self.has_gap), DumpFields::of(rest).parse_entry());
        self.last_entry = Some((queue, place));
        let list = self.current.as_mut().and_then(|record| queue.queue_in(&mut record.content));
        let Some(list) = list else { return };
        list.is_truncated |= is_gap;
        match entry {
            Ok(entry) if list.entries.iter().any(|other| other.is_same_message(&entry)) => {
                let text = format!("{}[{place}] is already in the queue", queue.name());
                self.add_error(line, text);
            }
            Ok(entry) => list.entries.push(entry),
            Err(error) => {
                list.is_truncated = true;
                self.add_error(line, error);
            }
        }
    }

    /// Handles a line `...`, or `... 2 more entries`.
    fn on_omission(&mut self, line: usize, text: &str) {
        let (Some(record), Some((queue, last))) = (&mut self.current, self.last_entry) else { return };
        let Some(list) = queue.queue_in(&mut record.content) else { return };
        list.is_truncated = true;
        let more: Option<usize> =
            text.trim_start_matches(['.', ' ']).split(' ').next().and_then(|n| n.parse().ok());
        let count = list.count;
        match more {
            Some(more) if last + 1 + more != count => {
                let name = queue.name();
                self.add_error(line, format!("{more} more after {name}[{last}] do not make {count}"));
            }
            Some(_) => self.has_gap = false,
            None => self.has_gap = true,
        }
    }

    /// Ends the current record.
    fn finish_record(&mut self) {
        (self.last_entry, self.has_gap) = (None, false);
        let Some(mut record) = self.current.take() else { return };
        for queue in [DumpQueue::Retransmit, DumpQueue::Acks] {
            // A hook may write the number of messages without listing them.
            let may_be_bare = matches!(record.content, DumpContent::HandledAck { .. });
            let Some(list) = queue.queue_in(&mut record.content) else { continue };
            let (count, listed) = (list.count, list.entries.len());
            if may_be_bare && listed == 0 && count > 0 {
                list.is_truncated = true;
            }
            if listed > count || listed < count && !list.is_truncated {
                list.is_truncated = true;
                let name = queue.name();
                let text = format!("{}={count}, but {listed} {name} entries follow", queue.count_name());
                self.add_error(record.line, text);
            }
        }
        self.log.records.push(record);
    }
}

impl DumpedEntry {
    /// Returns whether both are about the same message, as far as their fields say.
    pub(super) fn is_same_message(&self, other: &Self) -> bool {
        let channels = self.channel.zip(other.channel);
        (self.seq, self.part) == (other.seq, other.part) && channels.is_none_or(|(one, other)| one == other)
    }
}

/// Parses the author in a heading: `host`, the name of a client, or `ADDRESS to ADDRESS`.
fn parse_author(heading: &str) -> Option<DumpAuthor> {
    if let Some((own, other)) = heading.split_once(" to ")
        && let (Ok(own), Ok(other)) = (own.parse(), other.parse())
    {
        return Some(DumpAuthor::Addresses { own, other });
    }
    let name = heading.split(',').next().unwrap_or_default().trim();
    match name {
        "host" => Some(DumpAuthor::Role(Role::Host)),
        _ if !name.is_empty() && (!name.contains(' ') || name.starts_with("peer ")) => {
            Some(DumpAuthor::Role(Role::Client))
        }
        _ => None,
    }
}

const MICROS_PER_DAY: u64 = 86_400 * 1_000_000;
/// Largest number of entry lines that can follow one head line.
const MAX_ENTRIES: usize = 4096;
