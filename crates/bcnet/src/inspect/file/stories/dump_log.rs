//! Dump logs of the original engine, as hooks in it wrote them: queues (`retxQ=… ackOutQ=…`, with an entry in each line
//! below) and handled ACKs (`HandleACK: …`). What is not of it is passed over, what contradicts itself is told.

mod fields;

use std::net::SocketAddrV4;

use bcnet_transport::wire::{Channel, Role};

use super::super::log::{seconds, time_of_day};
use fields::{Fields, Queue};

/// A log that was read.
#[derive(Debug, Default)]
pub(super) struct DumpLog {
    pub(super) records: Vec<Record>,
    pub(super) damage: Vec<Damage>,
}

/// What is wrong in a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Something that an engine has written.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) line: usize,
    /// Microseconds since midnight.
    pub(super) micros: u64,
    pub(super) node: Node,
    pub(super) what: Written,
}

/// Who has written it, as far as the log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Unknown,
    Is(Role),
    At { own: SocketAddrV4, other: SocketAddrV4 },
}

#[derive(Debug)]
pub(super) enum Written {
    Dump { peer: u8, retx: List, acks: List },
    Handled { ack: Entry, retx: List },
}

/// A queue as it was written.
#[derive(Debug, Default)]
pub(super) struct List {
    /// How many entries it has.
    pub(super) count: usize,
    /// Those that are listed.
    pub(super) entries: Vec<Entry>,
    /// Whether some are left out.
    pub(super) is_cut: bool,
}

/// An entry; what it does not say is nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    pub(super) seq: u16,
    pub(super) part: Option<u8>,
    pub(super) channel: Option<Channel>,
    pub(super) retx: Option<u32>,
    pub(super) interval: Option<f64>,
}

/// Reads a log line by line.
#[derive(Default)]
struct Reader {
    log: DumpLog,
    /// Who writes from here on.
    node: Option<Node>,
    /// What is being read, and the place of its last entry in the queue that is listed.
    open: Option<Record>,
    listed: Option<(Queue, usize)>,
    /// Whether entries were left out since then.
    gap: bool,
    /// The times of the last dump and of the last handled ACK: who writes both may have kept them apart.
    last: [Option<u64>; 2],
}

impl DumpLog {
    /// Reads a log.
    pub(super) fn read(text: &str) -> Self {
        let mut reader = Reader::default();
        for (place, line) in text.lines().enumerate() {
            reader.read(place + 1, line);
        }
        reader.close();
        reader.log.damage.sort_by_key(|damage| damage.line);
        reader.log
    }

    /// Returns whether there is nothing of a dump log in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty() && self.damage.is_empty()
    }
}

impl Reader {
    fn read(&mut self, line: usize, text: &str) {
        let trimmed = text.trim();
        if let Some(heading) = trimmed.strip_prefix("# ") {
            self.close();
            if let Some(node) = heading_node(heading) {
                (self.node, self.last) = (Some(node), [None; 2]);
            }
        } else if let Some((stamp, rest)) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            && (rest.contains("retxQ=") || rest.contains("HandleACK:"))
        {
            self.close();
            self.begin(line, stamp, rest);
        } else if trimmed.starts_with("...") {
            self.leave_out(line, trimmed);
        } else if let Some((queue, place, rest)) = fields::entry_head(trimmed) {
            self.add(line, queue, place, rest);
        } else {
            self.close();
        }
    }

    fn damage(&mut self, line: usize, text: impl Into<String>) {
        self.log.damage.push(Damage { line, text: text.into() });
    }

    /// The head of a dump, or a handled ACK.
    fn begin(&mut self, line: usize, stamp: &str, rest: &str) {
        let Some(micros) = time_of_day(stamp).or_else(|| seconds(stamp)) else {
            return self.damage(line, format!("[{stamp}] is no time"));
        };
        let last = &mut self.last[usize::from(rest.contains("HandleACK:"))];
        let before = last.replace(micros);
        if before.is_some_and(|before| micros < before && before - micros < DAY / 2) {
            self.damage(line, format!("[{stamp}] is before the time of the one before"));
        }
        let (rest, remark) = fields::split_remark(rest);
        let told = remark.and_then(heading_node).or(self.node).unwrap_or(Node::Unknown);
        match fields::head(rest) {
            Ok(what) => self.open = Some(Record { line, micros, node: told, what }),
            Err(error) => self.damage(line, error),
        }
    }

    /// An entry of the queue that is open.
    fn add(&mut self, line: usize, queue: Queue, place: Option<usize>, rest: &str) {
        let Some(place) = place else { return self.damage(line, "the place of the entry is no number") };
        if self.open.is_none() {
            // What belongs to a head that could not be read was told with it.
            let told = self.log.damage.last().is_some_and(|last| line - last.line <= MAX_ENTRIES);
            if !told {
                self.damage(line, "an entry without the head of its dump");
            }
            return;
        }
        let expected = match self.listed {
            Some((listed, last)) if listed == queue => last + 1,
            _ => 0,
        };
        if place < expected || place > expected && !self.gap {
            let text = format!("{}[{place}] where {}[{expected}] is expected", queue.name(), queue.name());
            self.damage(line, text);
        }
        let (is_gap, entry) = (std::mem::take(&mut self.gap), Fields::of(rest).entry());
        self.listed = Some((queue, place));
        let list = self.open.as_mut().and_then(|record| queue.list(&mut record.what));
        let Some(list) = list else { return };
        list.is_cut |= is_gap;
        match entry {
            Ok(entry) if list.entries.iter().any(|other| other.is_same(&entry)) => {
                let text = format!("{}[{place}] is in the queue already", queue.name());
                self.damage(line, text);
            }
            Ok(entry) => list.entries.push(entry),
            Err(error) => {
                list.is_cut = true;
                self.damage(line, error);
            }
        }
    }

    /// `...`, or `... 2 more entries`.
    fn leave_out(&mut self, line: usize, text: &str) {
        let (Some(record), Some((queue, last))) = (&mut self.open, self.listed) else { return };
        let Some(list) = queue.list(&mut record.what) else { return };
        list.is_cut = true;
        let more: Option<usize> =
            text.trim_start_matches(['.', ' ']).split(' ').next().and_then(|n| n.parse().ok());
        let count = list.count;
        match more {
            Some(more) if last + 1 + more != count => {
                let name = queue.name();
                self.damage(line, format!("{more} more than {name}[{last}] are not {count}"));
            }
            Some(_) => self.gap = false,
            None => self.gap = true,
        }
    }

    /// Nothing more comes for what is open.
    fn close(&mut self) {
        (self.listed, self.gap) = (None, false);
        let Some(mut record) = self.open.take() else { return };
        for queue in [Queue::Retx, Queue::Acks] {
            // A hook may tell how many wait without telling which.
            let may_be_bare = matches!(record.what, Written::Handled { .. });
            let Some(list) = queue.list(&mut record.what) else { continue };
            let (count, listed) = (list.count, list.entries.len());
            if may_be_bare && listed == 0 && count > 0 {
                list.is_cut = true;
            }
            if listed > count || listed < count && !list.is_cut {
                list.is_cut = true;
                let name = queue.name();
                let text = format!("{}={count}, but {listed} {name} entries follow", queue.count_name());
                self.damage(record.line, text);
            }
        }
        self.log.records.push(record);
    }
}

impl Entry {
    /// Returns whether both are about the same message, as far as they say.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let channels = self.channel.zip(other.channel);
        (self.seq, self.part) == (other.seq, other.part) && channels.is_none_or(|(one, other)| one == other)
    }
}

/// Returns who writes below a heading: `# host` of the laboratory, or the addresses that queues are printed with.
fn heading_node(heading: &str) -> Option<Node> {
    if let Some((own, other)) = heading.split_once(" to ")
        && let (Ok(own), Ok(other)) = (own.parse(), other.parse())
    {
        return Some(Node::At { own, other });
    }
    let name = heading.split(',').next().unwrap_or_default().trim();
    match name {
        "host" => Some(Node::Is(Role::Host)),
        _ if !name.is_empty() && (!name.contains(' ') || name.starts_with("peer ")) => {
            Some(Node::Is(Role::Client))
        }
        _ => None,
    }
}

const DAY: u64 = 86_400 * 1_000_000;
/// More lines of entries do not belong to one head.
const MAX_ENTRIES: usize = 4096;
