//! Joins two captures of the same traffic, taken at its two ends: finds losses and one-way delays.
//!
//! Messages are matched by their content, not by their datagram, so a proxy between the two ends does not matter. A
//! first pass over both files finds the conversations that are in both ([`interval_pairs`]): a server's capture has the
//! conversations of all players, a player's capture only one. Only these conversations are joined.
//!
//! The two clocks may differ. Their offset is chosen so that the fastest message takes equally long in both directions.
//! Both files are read side by side, so memory holds only messages without a match. The captures may start and end at
//! different times: messages that the other capture could not have seen do not count as lost.

mod interval_pairs;
mod join_report;
mod lost_messages;
mod player_intervals;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use bcnet_observe::MessageBuffer;
use bcnet_transport::wire::{Kind, Message, MessageId, PeerId, Role};

use self::interval_pairs::{EARLY_MESSAGES, IntervalPairs, MatchStatus};
use self::player_intervals::{IntervalId, MAX_INTERVALS, PlayerIntervals};
use super::inspection_pass::{open_source, report_unreadable};
use super::sender_role;
use super::source::{PacketBatch, PacketSource, ReadCounters, ReadStep};
use crate::CommandStatus;
use crate::inspect::{input_name, is_stdin};

/// A hash that identifies a message: its sender and its bytes.
type MessageHash = u64;
/// A message hash, and the [group of intervals](MatchStatus::group) in which it is matched.
type MatchKey = (MessageHash, u32);

/// One capture, read message by message.
struct CaptureStream {
    name: String,
    source: PacketSource,
    counts: ReadCounters,
    datagrams: u64,
    batch: PacketBatch,
    intervals: PlayerIntervals,
    /// Messages that were read and not yet processed.
    lookahead: VecDeque<SeenMessage>,
    end: Option<ReadStep>,
    /// True if the first pass discarded messages, so that the file must be read again.
    has_discarded: bool,
}

#[derive(Debug, Clone, Copy)]
struct SeenMessage {
    hash: MessageHash,
    micros: i64,
    interval: IntervalId,
    from: Role,
    /// True if the message is one of the first [`interval_pairs::EARLY_MESSAGES`] of its interval.
    is_early: bool,
    label: MessageLabel,
}

/// A description of a message for the report.
#[derive(Debug, Clone, Copy)]
struct MessageLabel {
    id: Option<MessageId>,
    kind: Kind,
    opcode: Option<u8>,
}

impl CaptureStream {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let name = input_name(path);
        let source = open_source(path, false).with_context(|| name.clone())?;
        Ok(Self {
            name,
            source,
            counts: ReadCounters::default(),
            datagrams: 0,
            batch: PacketBatch::default(),
            intervals: PlayerIntervals::default(),
            lookahead: VecDeque::new(),
            end: None,
            has_discarded: false,
        })
    }

    /// Reads until `count` messages are in the lookahead, or the file ends.
    fn fill(&mut self, count: usize) -> anyhow::Result<()> {
        while self.lookahead.len() < count && self.end.is_none() {
            self.batch.clear();
            while self.batch.len() < BATCH_SIZE && self.end.is_none() {
                let step =
                    self.source.read(&mut self.batch, &mut self.counts).with_context(|| self.name.clone())?;
                self.end = (step != ReadStep::More).then_some(step);
            }
            self.batch.decrypt();
            let mut messages = MessageBuffer::default();
            for (packet, bytes) in self.batch.iter().filter(|(packet, _)| !packet.is_truncated) {
                let Ok(datagram) = messages.parse(bytes, None) else { continue };
                self.datagrams += 1;
                let Some(interval) = self.intervals.interval_of(packet.from, packet.to, &datagram) else {
                    continue;
                };
                let micros = i64::try_from(packet.time.as_micros()).unwrap_or(i64::MAX);
                let sender = datagram.sender();
                let intervals = &mut self.intervals;
                let seen_messages = datagram.messages().iter().filter_map(|message| {
                    let hash = message_hash(sender, message)?;
                    let is_early = intervals.count_message(interval) < EARLY_MESSAGES;
                    let label = MessageLabel {
                        id: message.id(),
                        kind: message.kind(),
                        opcode: bcnet_observe::opcode(message),
                    };
                    Some(SeenMessage { hash, micros, interval, from: sender_role(sender), is_early, label })
                });
                self.lookahead.extend(seen_messages);
            }
        }
        Ok(())
    }

    /// Returns whether the whole file was read.
    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Prints the damage of the file and the skipped packets.
    ///
    /// Returns whether the file is damaged or too many of its packets could not be read.
    fn report_problems(&self) -> bool {
        let (name, skipped) = (&self.name, &self.counts.skipped);
        let is_damaged = if let Some(ReadStep::Damaged(damage)) = &self.end {
            eprintln!("bcnet: {name}: {damage}");
            true
        } else {
            false
        };
        if !skipped.is_empty() {
            eprintln!("bcnet: {name}: skipped: {skipped}");
        }
        report_unreadable(name, self.datagrams, skipped) || is_damaged
    }
}

/// Returns the hash of a message. ACKs and keepalives have none: they are all alike.
fn message_hash(sender: PeerId, message: &Message<'_>) -> Option<MessageHash> {
    let mut hasher = DefaultHasher::new();
    (sender.0, message.kind().0).hash(&mut hasher);
    match message {
        Message::Ack(_) | Message::Keepalive => return None,
        Message::Control(control) => {
            (control.seq.0, message.wire_len(), message.to_string()).hash(&mut hasher)
        }
        Message::Data(data) => {
            let id = message.id().map(|id| (id.seq.0, id.fragment));
            (id, data.payload).hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

/// The statistics of one direction.
#[derive(Debug, Default)]
struct DirectionStats {
    matched: u64,
    /// The number of messages seen only in the first capture, and only in the second.
    unmatched: [u64; 2],
    /// The first of the unmatched messages, with their times.
    unmatched_messages: [Vec<(i64, MessageLabel)>; 2],
    /// Messages seen in one capture before the other began or after it ended.
    outside: u64,
    /// The number of messages with a known delay.
    timed_count: u64,
    /// A histogram of delays from the first capture to the second, in steps of 100 µs.
    delay_counts: BTreeMap<i64, u64>,
    /// The median delay, updated at powers of two of `timed_count`, from [`MIN_TIMED_MESSAGES`] on.
    typical_delay: Option<i64>,
}

/// A message that is in both captures.
struct MatchedMessage {
    /// The time in the second capture minus that in the first. `None` if several messages are identical.
    delay: Option<i64>,
}

impl DirectionStats {
    fn add_match(&mut self, met: MatchedMessage) {
        self.matched += 1;
        if let Some(time) = met.delay {
            self.add_delay(time);
        }
    }

    fn add_delay(&mut self, micros: i64) {
        self.timed_count += 1;
        if self.delay_counts.len() < MAX_DELAY_BUCKETS
            || self.delay_counts.contains_key(&(micros / DELAY_STEP))
        {
            *self.delay_counts.entry(micros / DELAY_STEP).or_default() += 1;
        }
        // Computing the median for each message would be too slow, so it is done at powers of two.
        if self.timed_count >= MIN_TIMED_MESSAGES && self.timed_count.is_power_of_two() {
            self.typical_delay = self.median();
        }
    }

    /// Returns the delay below which the fraction `share` of all delays lies.
    fn quantile(&self, share: f64) -> Option<i64> {
        let total: u64 = self.delay_counts.values().sum();
        let rank = (total as f64 * share) as u64;
        let mut seen = 0;
        self.delay_counts.iter().find_map(|(time, count)| {
            seen += count;
            (seen > rank || seen == total).then_some(time * DELAY_STEP)
        })
    }

    fn median(&self) -> Option<i64> {
        self.quantile(0.5)
    }

    fn min_delay(&self) -> Option<i64> {
        self.delay_counts.keys().next().map(|time| time * DELAY_STEP)
    }

    fn max_delay(&self) -> Option<i64> {
        self.delay_counts.keys().next_back().map(|time| time * DELAY_STEP)
    }
}

struct CaptureJoin {
    /// Messages seen in one capture and not yet in the other.
    unmatched: [HashMap<MatchKey, VecDeque<SeenMessage>>; 2],
    /// The same messages in the order of time, for expiry.
    expiry_order: [VecDeque<(i64, MatchKey)>; 2],
    /// For each interval of each capture: its relation to the other capture.
    match_statuses: [Vec<Option<MatchStatus>>; 2],
    directions: [DirectionStats; 2],
    /// For each direction: about the time of a message in the second capture minus that in the first.
    rough_delays: [i64; 2],
    /// The times of the first and the last message of each capture. The last is `None` until it is known.
    spans: [(i64, Option<i64>); 2],
}

pub(super) fn run(paths: [&Path; 2], json: bool, out: impl Write) -> anyhow::Result<CommandStatus> {
    let [mut a, mut b] = [CaptureStream::open(paths[0])?, CaptureStream::open(paths[1])?];
    let Some(pairs) = interval_pairs::pair_intervals(&mut a, &mut b)? else {
        eprintln!(
            "bcnet: {} and {} have no conversation in common; check that both captured the same traffic",
            a.name, b.name
        );
        for stream in [&a, &b] {
            stream.report_problems();
        }
        return Ok(CommandStatus::Findings);
    };
    for (stream, path) in [(&mut a, paths[0]), (&mut b, paths[1])] {
        // Only long captures are read twice.
        if stream.has_discarded {
            let can_be_read_again = !is_stdin(path) && path.is_file();
            ensure!(
                can_be_read_again,
                "{}: too long to join from a pipe; save it as a file and name the file",
                stream.name
            );
            *stream = CaptureStream::open(path)?;
        }
    }
    let join = join_by_time(&mut a, &mut b, &pairs)?;
    join_report::JoinReport::new(join.directions, [a.name.clone(), b.name.clone()], &pairs)
        .write(out, json)?;
    let mut verdict = CommandStatus::Clean;
    for (stream, left_out) in [&a, &b].into_iter().zip(pairs.omitted_datagrams) {
        if left_out > 0 {
            eprintln!(
                "bcnet: {}: more than {MAX_INTERVALS} conversations; skipped {left_out} datagrams of the later ones",
                stream.name
            );
        }
        if stream.report_problems() || left_out > 0 {
            verdict = CommandStatus::Findings;
        }
    }
    Ok(verdict)
}

/// Processes the messages of both captures in the order of time.
fn join_by_time(
    a: &mut CaptureStream,
    b: &mut CaptureStream,
    pairs: &IntervalPairs,
) -> anyhow::Result<CaptureJoin> {
    let mut join = CaptureJoin {
        unmatched: [HashMap::new(), HashMap::new()],
        expiry_order: [VecDeque::new(), VecDeque::new()],
        match_statuses: pairs.match_statuses(),
        directions: [DirectionStats::default(), DirectionStats::default()],
        rough_delays: pairs.rough_delays,
        spans: [(i64::MIN, None); 2],
    };
    let mut last = [None; 2];
    loop {
        a.fill(1)?;
        b.fill(1)?;
        let times =
            [a.lookahead.front(), b.lookahead.front()].map(|front| front.map(|message| message.micros));
        for capture in [0, 1] {
            match (times[capture], last[capture]) {
                (Some(time), None) => join.spans[capture].0 = time,
                (None, ended) => join.spans[capture].1 = ended,
                _ => {}
            }
            last[capture] = times[capture].or(last[capture]);
        }
        let first = match times {
            [None, None] => break,
            [Some(_), None] => true,
            [None, Some(_)] => false,
            [Some(one), Some(other)] => one.saturating_add(join.clock_offset()) <= other,
        };
        let taken = if first { a.lookahead.pop_front() } else { b.lookahead.pop_front() };
        if let Some(message) = taken {
            join.process_message(usize::from(!first), message);
        }
    }
    join.expire(i64::MAX);
    Ok(join)
}

impl CaptureJoin {
    fn process_message(&mut self, capture: usize, message: SeenMessage) {
        let SeenMessage { hash, from, micros, .. } = message;
        if let Some(status) = self.match_status(capture, message.interval) {
            let key = (hash, status.group);
            match self.take_match(capture, key, &message) {
                Some(other) => self.directions[direction_index(from)].add_match(other),
                None => self.enqueue(capture, key, message),
            }
        }
        let now = if capture == 0 { micros.saturating_add(self.clock_offset()) } else { micros };
        self.expire(now);
    }

    fn match_status(&self, capture: usize, interval: IntervalId) -> Option<MatchStatus> {
        self.match_statuses[capture].get(interval as usize).copied().flatten()
    }

    /// Removes the same message from the unmatched messages of the other capture, and returns the match.
    ///
    /// A message of the same conversation is preferred.
    fn take_match(&mut self, capture: usize, key: MatchKey, message: &SeenMessage) -> Option<MatchedMessage> {
        let typical = self.typical_delay(direction_index(message.from));
        let time = |other: &SeenMessage| {
            let time = other.micros.saturating_sub(message.micros);
            if capture == 0 { time } else { -time }
        };
        let pair = self.match_status(capture, message.interval)?.pair;
        let pairs = &self.match_statuses[1 - capture];
        let is_other_pair = |other: &SeenMessage| {
            let status = pairs.get(other.interval as usize).copied().flatten();
            pair.is_none() || status.is_none_or(|status| status.pair != pair)
        };
        let others = self.unmatched[1 - capture].get_mut(&key)?;
        let near = |other: &SeenMessage| time(other).saturating_sub(typical).saturating_abs();
        let possible = others.iter().enumerate().filter(|(_, other)| near(other) <= MAX_DELAY);
        let (nearest, _) = possible.min_by_key(|(_, other)| (is_other_pair(other), near(other)))?;
        let other = others.remove(nearest)?;
        let is_alone = others.iter().all(|left| is_other_pair(left) && !is_other_pair(&other));
        if others.is_empty() {
            self.unmatched[1 - capture].remove(&key);
        }
        Some(MatchedMessage { delay: is_alone.then(|| time(&other)) })
    }

    /// Returns the typical time of a message in the second capture minus its time in the first.
    fn typical_delay(&self, direction: usize) -> i64 {
        self.directions[direction].typical_delay.unwrap_or(self.rough_delays[direction])
    }

    /// Returns the approximate lead of the second clock over the first.
    fn clock_offset(&self) -> i64 {
        i64::midpoint(self.rough_delays[0], self.rough_delays[1])
    }

    fn enqueue(&mut self, capture: usize, key: MatchKey, message: SeenMessage) {
        let alike = self.unmatched[capture].entry(key).or_default();
        let oldest = if alike.len() < MAX_IDENTICAL { None } else { alike.pop_front() };
        alike.push_back(message);
        self.expiry_order[capture].push_back((message.micros, key));
        if let Some(oldest) = oldest {
            self.on_unmatched(capture, &oldest);
        }
    }

    /// Counts a message that is in one capture only, if its interval is in both.
    fn on_unmatched(&mut self, capture: usize, message: &SeenMessage) {
        let direction = direction_index(message.from);
        let (micros, typical) = (message.micros, self.typical_delay(direction));
        let expected =
            if capture == 0 { micros.saturating_add(typical) } else { micros.saturating_sub(typical) };
        let (first, last) = self.spans[1 - capture];
        if self.match_status(capture, message.interval).is_none_or(|status| status.pair.is_none()) {
            return;
        }
        if expected >= first && last.is_none_or(|last| expected <= last) {
            self.directions[direction].unmatched[capture] += 1;
            let listed = &mut self.directions[direction].unmatched_messages[capture];
            if listed.len() < MAX_LISTED_MESSAGES {
                listed.push((micros, message.label));
            }
        } else {
            self.directions[direction].outside += 1;
        }
    }

    /// Removes messages that found no match in time, and the oldest beyond [`MAX_UNMATCHED`].
    ///
    /// `now` is on the second clock; `i64::MAX` removes all messages.
    fn expire(&mut self, now: i64) {
        for capture in [0, 1] {
            while let Some((micros, key)) = self.expiry_order[capture].front().copied() {
                let seen = if capture == 0 { micros.saturating_add(self.clock_offset()) } else { micros };
                let young = now != i64::MAX && seen.saturating_add(2 * MAX_DELAY) > now;
                if young && self.expiry_order[capture].len() <= MAX_UNMATCHED {
                    break;
                }
                self.expiry_order[capture].pop_front();
                let Some(seen_messages) = self.unmatched[capture].get_mut(&key) else { continue };
                let at = seen_messages.iter().position(|message| message.micros == micros);
                let given_up = at.and_then(|at| seen_messages.remove(at));
                if seen_messages.is_empty() {
                    self.unmatched[capture].remove(&key);
                }
                if let Some(given_up) = given_up {
                    self.on_unmatched(capture, &given_up);
                }
            }
        }
    }
}

fn direction_index(from: Role) -> usize {
    usize::from(from == Role::Host)
}

/// The precision of delays, in microseconds.
const DELAY_STEP: i64 = 100;
/// The longest one-way delay that is considered possible, in microseconds.
const MAX_DELAY: i64 = 20_000_000;
const BATCH_SIZE: usize = 64;
const MAX_DELAY_BUCKETS: usize = 1 << 16;
/// The most messages of one capture that wait for a match.
const MAX_UNMATCHED: usize = 1 << 17;
/// The most identical messages of one capture that wait for a match.
const MAX_IDENTICAL: usize = 64;
/// The most lost messages of each direction that are listed.
const MAX_LISTED_MESSAGES: usize = 10_000;
const MIN_TIMED_MESSAGES: u64 = 16;
