//! Two captures of the same traffic, taken at its two ends: what was lost on the way, and how long the way is.
//!
//! Messages are known again by what they are, not by the datagram they came in, so that a proxy between the two places
//! does not matter. First both files are read to see which conversations are in both ([`pairs`]): a server's capture has
//! those of all players, a player's only its own. Only these are joined. The two clocks need not agree: their difference is that which makes the fastest way there as long
//! as the fastest way back. Both files are read side by side, so memory holds only what is under way. They need not begin
//! or end together: what the other capture could not have seen is not counted as lost.

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

/// What tells a message from every other: who sends it, and its bytes.
type MessageHash = u64;
/// A message of some conversations, which are those of one group.
type MatchKey = (MessageHash, u32);

/// One capture, message by message.
struct CaptureStream {
    name: String,
    source: PacketSource,
    counts: ReadCounters,
    datagrams: u64,
    batch: PacketBatch,
    intervals: PlayerIntervals,
    /// Read and not taken.
    lookahead: VecDeque<SeenMessage>,
    end: Option<ReadStep>,
    /// Whether messages were taken that the join has not seen.
    has_discarded: bool,
}

#[derive(Debug, Clone, Copy)]
struct SeenMessage {
    hash: MessageHash,
    micros: i64,
    interval: IntervalId,
    from: Role,
    /// Whether it is one of the first of its stay.
    is_early: bool,
    label: MessageLabel,
}

/// What a message is, for people.
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

    /// Makes sure that `count` messages are there to be looked at, if the file has them.
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
                let Some(stay) = self.intervals.interval_of(packet.from, packet.to, &datagram) else {
                    continue;
                };
                let micros = i64::try_from(packet.time.as_micros()).unwrap_or(i64::MAX);
                let sender = datagram.sender();
                let stays = &mut self.intervals;
                let sightings = datagram.messages().iter().filter_map(|message| {
                    let identity = message_hash(sender, message)?;
                    let is_early = stays.count_message(stay) < EARLY_MESSAGES;
                    let what = MessageLabel {
                        id: message.id(),
                        kind: message.kind(),
                        opcode: bcnet_observe::opcode(message),
                    };
                    Some(SeenMessage {
                        hash: identity,
                        micros,
                        interval: stay,
                        from: sender_role(sender),
                        is_early,
                        label: what,
                    })
                });
                self.lookahead.extend(sightings);
            }
        }
        Ok(())
    }

    /// Returns whether nothing more can be read.
    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Says what is wrong with it, and what was not looked at. Whether something is wrong.
    fn report_problems(&self) -> bool {
        let (name, skipped) = (&self.name, &self.counts.skipped);
        let is_damaged = if let Some(ReadStep::Damaged(damage)) = &self.end {
            eprintln!("bcnet: {name}: {damage}");
            true
        } else {
            false
        };
        if !skipped.is_empty() {
            eprintln!("bcnet: {name}: not looked at: {skipped}");
        }
        report_unreadable(name, self.datagrams, skipped) || is_damaged
    }
}

/// Only what carries something can be told from its repeats: ACKs and keepalives are all alike.
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

/// What is known of one direction.
#[derive(Debug, Default)]
struct DirectionStats {
    matched: u64,
    /// Seen in the first capture only, and in the second only.
    unmatched: [u64; 2],
    /// The first of those, with their times.
    unmatched_messages: [Vec<(i64, MessageLabel)>; 2],
    /// Seen in one capture before the other began or after it ended.
    outside: u64,
    /// Of how many the time is known.
    timed_count: u64,
    /// How often each time from the first capture to the second was seen, in steps of 100 µs.
    delay_counts: BTreeMap<i64, u64>,
    /// The median of all but the latest times, once there are enough.
    typical_delay: Option<i64>,
}

/// A message that is in both captures.
struct MatchedMessage {
    /// Its time from the first capture to the second. Of several that are alike it is not certain which one it is.
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
        // To look it up each time would cost more than it is worth.
        if self.timed_count >= MIN_TIMED_MESSAGES && self.timed_count.is_power_of_two() {
            self.typical_delay = self.median();
        }
    }

    /// Returns the time below which this share of all times lies.
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
    /// Seen in one capture and not yet in the other.
    unmatched: [HashMap<MatchKey, VecDeque<SeenMessage>>; 2],
    /// In the order of time, to be given up.
    expiry_order: [VecDeque<(i64, MatchKey)>; 2],
    /// How each stay of each capture stands to the other.
    match_statuses: [Vec<Option<MatchStatus>>; 2],
    directions: [DirectionStats; 2],
    /// How long each way takes from the first clock to the second, roughly.
    rough_delays: [i64; 2],
    /// The first and the last message of each capture, the last once it is known.
    spans: [(i64, Option<i64>); 2],
}

pub(super) fn run(paths: [&Path; 2], json: bool, out: impl Write) -> anyhow::Result<CommandStatus> {
    let [mut a, mut b] = [CaptureStream::open(paths[0])?, CaptureStream::open(paths[1])?];
    let Some(pairs) = interval_pairs::pair_intervals(&mut a, &mut b)? else {
        eprintln!(
            "bcnet: {} and {} have no conversation in common; are they of the same traffic?",
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
            ensure!(can_be_read_again, "{}: is too long to be joined from a pipe; name a file", stream.name);
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
                "bcnet: {}: has more than {MAX_INTERVALS} conversations; {left_out} datagrams of later ones were not looked at",
                stream.name
            );
        }
        if stream.report_problems() || left_out > 0 {
            verdict = CommandStatus::Findings;
        }
    }
    Ok(verdict)
}

/// Takes all messages of both captures in the order of time.
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
            [a.lookahead.front(), b.lookahead.front()].map(|front| front.map(|sighting| sighting.micros));
        for place in [0, 1] {
            match (times[place], last[place]) {
                (Some(time), None) => join.spans[place].0 = time,
                (None, ended) => join.spans[place].1 = ended,
                _ => {}
            }
            last[place] = times[place].or(last[place]);
        }
        let first = match times {
            [None, None] => break,
            [Some(_), None] => true,
            [None, Some(_)] => false,
            [Some(one), Some(other)] => one.saturating_add(join.clock_offset()) <= other,
        };
        let taken = if first { a.lookahead.pop_front() } else { b.lookahead.pop_front() };
        if let Some(sighting) = taken {
            join.process_message(usize::from(!first), sighting);
        }
    }
    join.expire(i64::MAX);
    Ok(join)
}

impl CaptureJoin {
    fn process_message(&mut self, place: usize, sighting: SeenMessage) {
        let SeenMessage { hash: identity, from, micros, .. } = sighting;
        if let Some(standing) = self.match_status(place, sighting.interval) {
            let key = (identity, standing.group);
            match self.take_match(place, key, &sighting) {
                Some(other) => self.directions[direction_index(from)].add_match(other),
                None => self.enqueue(place, key, sighting),
            }
        }
        let now = if place == 0 { micros.saturating_add(self.clock_offset()) } else { micros };
        self.expire(now);
    }

    fn match_status(&self, place: usize, stay: IntervalId) -> Option<MatchStatus> {
        self.match_statuses[place].get(stay as usize).copied().flatten()
    }

    /// Takes the message of the other capture that this one is, if it waits: one of the same conversation if there is.
    fn take_match(&mut self, place: usize, key: MatchKey, sighting: &SeenMessage) -> Option<MatchedMessage> {
        let usual = self.typical_delay(direction_index(sighting.from));
        let time = |other: &SeenMessage| {
            let time = other.micros.saturating_sub(sighting.micros);
            if place == 0 { time } else { -time }
        };
        let pair = self.match_status(place, sighting.interval)?.pair;
        let pairs = &self.match_statuses[1 - place];
        let is_strange = |other: &SeenMessage| {
            let standing = pairs.get(other.interval as usize).copied().flatten();
            pair.is_none() || standing.is_none_or(|standing| standing.pair != pair)
        };
        let others = self.unmatched[1 - place].get_mut(&key)?;
        let near = |other: &SeenMessage| time(other).saturating_sub(usual).saturating_abs();
        let possible = others.iter().enumerate().filter(|(_, other)| near(other) <= MAX_DELAY);
        let (nearest, _) = possible.min_by_key(|(_, other)| (is_strange(other), near(other)))?;
        let other = others.remove(nearest)?;
        let is_alone = others.iter().all(|left| is_strange(left) && !is_strange(&other));
        if others.is_empty() {
            self.unmatched[1 - place].remove(&key);
        }
        Some(MatchedMessage { delay: is_alone.then(|| time(&other)) })
    }

    /// Returns the time from the first clock to the second that most messages of a way take.
    fn typical_delay(&self, way: usize) -> i64 {
        self.directions[way].typical_delay.unwrap_or(self.rough_delays[way])
    }

    /// Returns what the second clock shows more than the first, roughly.
    fn clock_offset(&self) -> i64 {
        i64::midpoint(self.rough_delays[0], self.rough_delays[1])
    }

    fn enqueue(&mut self, place: usize, key: MatchKey, sighting: SeenMessage) {
        let alike = self.unmatched[place].entry(key).or_default();
        let oldest = if alike.len() < MAX_IDENTICAL { None } else { alike.pop_front() };
        alike.push_back(sighting);
        self.expiry_order[place].push_back((sighting.micros, key));
        if let Some(oldest) = oldest {
            self.on_unmatched(place, &oldest);
        }
    }

    /// A message is in one capture only.
    fn on_unmatched(&mut self, place: usize, sighting: &SeenMessage) {
        let way = direction_index(sighting.from);
        let (micros, usual) = (sighting.micros, self.typical_delay(way));
        let expected = if place == 0 { micros.saturating_add(usual) } else { micros.saturating_sub(usual) };
        let (first, last) = self.spans[1 - place];
        if self.match_status(place, sighting.interval).is_none_or(|standing| standing.pair.is_none()) {
            return;
        }
        if expected >= first && last.is_none_or(|last| expected <= last) {
            self.directions[way].unmatched[place] += 1;
            let listed = &mut self.directions[way].unmatched_messages[place];
            if listed.len() < MAX_LISTED_MESSAGES {
                listed.push((micros, sighting.label));
            }
        } else {
            self.directions[way].outside += 1;
        }
    }

    /// What has waited too long at `now`, on the second clock, is not in the other capture.
    fn expire(&mut self, now: i64) {
        for place in [0, 1] {
            while let Some((micros, key)) = self.expiry_order[place].front().copied() {
                let seen = if place == 0 { micros.saturating_add(self.clock_offset()) } else { micros };
                let young = now != i64::MAX && seen.saturating_add(2 * MAX_DELAY) > now;
                if young && self.expiry_order[place].len() <= MAX_UNMATCHED {
                    break;
                }
                self.expiry_order[place].pop_front();
                let Some(sightings) = self.unmatched[place].get_mut(&key) else { continue };
                let at = sightings.iter().position(|sighting| sighting.micros == micros);
                let given_up = at.and_then(|at| sightings.remove(at));
                if sightings.is_empty() {
                    self.unmatched[place].remove(&key);
                }
                if let Some(given_up) = given_up {
                    self.on_unmatched(place, &given_up);
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
/// A message takes no longer than this from one place to the other.
const MAX_DELAY: i64 = 20_000_000;
const BATCH_SIZE: usize = 64;
const MAX_DELAY_BUCKETS: usize = 1 << 16;
/// As many messages are remembered that the other capture has not shown, and as many that are all the same.
const MAX_UNMATCHED: usize = 1 << 17;
const MAX_IDENTICAL: usize = 64;
/// As many lost messages of each way are listed.
const MAX_LISTED_MESSAGES: usize = 10_000;
const MIN_TIMED_MESSAGES: u64 = 16;
