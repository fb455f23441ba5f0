//! Finds the conversations that are in both captures, and the approximate offset of the clocks.
//!
//! A message that is in one interval of each capture votes for this pair of intervals and for the difference of its
//! times. Some messages are alike in every session, above all the first ones, and a host sends many messages to all
//! players. So one common message proves little. But the messages of a real pair vote for the same difference, and
//! their intervals have the same peer id and connect request. Addresses are not compared, because they differ behind
//! NAT.

use std::collections::{HashMap, HashSet};

use bcnet_transport::wire::Role;

use super::player_intervals::{AddressPairId, IntervalId, MAX_INTERVALS, PlayerInterval};
use super::{CaptureStream, MAX_DELAY, MessageHash, SeenMessage, direction_index};

/// The intervals that two captures have in common.
pub(super) struct IntervalPairs {
    /// For each direction: about the time of a message in the second capture minus that in the first.
    pub(super) rough_delays: [i64; 2],
    pub(super) intervals: [Vec<PlayerInterval>; 2],
    /// Pairs of intervals, one of each capture, that show the same stay of a player.
    pub(super) matched: Vec<[IntervalId; 2]>,
    /// For each capture, the datagrams without an interval, because [`MAX_INTERVALS`] was reached.
    pub(super) omitted_datagrams: [u64; 2],
}

/// The relation of an interval of one capture to the other capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchStatus {
    /// The group of intervals in which messages are matched.
    ///
    /// A group has all intervals of the address pairs that matched intervals connect. A single interval would be too
    /// narrow: the two captures do not quite agree on where one ends and the next begins.
    pub(super) group: u32,
    /// The index into [`IntervalPairs::matched`] if the interval is in both captures. Its messages that the other
    /// capture lacks were lost.
    pub(super) pair: Option<u32>,
}

/// A message that two intervals have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PairVote {
    intervals: [IntervalId; 2],
    direction: usize,
    delay: i64,
}

/// Two intervals that may be the same.
struct PairCandidate {
    intervals: [IntervalId; 2],
    votes: usize,
    rough_delays: [i64; 2],
}

/// Reads both captures to their ends. Returns the intervals that are in both, or `None` without any.
///
/// The messages of a long capture are discarded; [`CaptureStream::has_discarded`] tells.
pub(super) fn pair_intervals(
    a: &mut CaptureStream,
    b: &mut CaptureStream,
) -> anyhow::Result<Option<IntervalPairs>> {
    let samples = [sample_messages(a)?, sample_messages(b)?];
    let left_out = [a.intervals.omitted_datagrams, b.intervals.omitted_datagrams];
    let intervals = [a, b].map(|stream| std::mem::take(&mut stream.intervals).into_all());
    let mut candidates = collect_candidates(collect_votes(samples, &intervals), &intervals);
    candidates.sort_by_key(|candidate| (std::cmp::Reverse(candidate.votes), candidate.intervals));
    let Some(rough) = candidates.first().map(|best| best.rough_delays) else { return Ok(None) };
    let mut taken = [HashSet::new(), HashSet::new()];
    let mut same = Vec::new();
    for PairCandidate { intervals: [one, other], rough_delays: times, .. } in candidates {
        let is_near =
            times.iter().zip(rough).all(|(time, rough)| time.saturating_sub(rough).abs() <= MAX_DELAY);
        if is_near && !taken[0].contains(&one) && !taken[1].contains(&other) {
            taken[0].insert(one);
            taken[1].insert(other);
            same.push([one, other]);
        }
    }
    same.sort_unstable();
    Ok(Some(IntervalPairs { rough_delays: rough, intervals, matched: same, omitted_datagrams: left_out }))
}

impl IntervalPairs {
    /// Returns the status of each interval of each capture; `None` if it is unrelated to the other capture.
    pub(super) fn match_statuses(&self) -> [Vec<Option<MatchStatus>>; 2] {
        let mut groups: [HashMap<AddressPairId, u32>; 2] = Default::default();
        // A union-find forest: each group points to the group that it was merged into.
        let mut merged: Vec<u32> = Vec::new();
        let mut in_both: [HashMap<IntervalId, u32>; 2] = Default::default();
        for pair in &self.matched {
            let group = merged.len() as u32;
            merged.push(group);
            for capture in [0, 1] {
                in_both[capture].insert(pair[capture], group);
                let Some(interval) = self.intervals[capture].get(pair[capture] as usize) else { continue };
                let known = groups[capture].entry(interval.address_pair).or_insert(group);
                let root = find_root(&mut merged, *known);
                merged[root as usize] = group;
            }
        }
        [0, 1].map(|capture| {
            let status = |(number, interval): (usize, &PlayerInterval)| {
                let group = find_root(&mut merged, *groups[capture].get(&interval.address_pair)?);
                Some(MatchStatus { group, pair: in_both[capture].get(&(number as IntervalId)).copied() })
            };
            self.intervals[capture].iter().enumerate().map(status).collect()
        })
    }
}

/// Returns the group that a group was merged into. Shortens the path for the next call.
fn find_root(merged: &mut [u32], mut group: u32) -> u32 {
    while merged[group as usize] != group {
        let next = merged[group as usize];
        merged[group as usize] = merged[next as usize];
        group = next;
    }
    group
}

/// Returns the first messages of every interval, and as many of the others as [`MAX_SAMPLES`] allows.
fn sample_messages(stream: &mut CaptureStream) -> anyhow::Result<Vec<SeenMessage>> {
    let mut kept = Vec::new();
    // The mask selects by hash, so both captures omit the same messages.
    let mut mask: MessageHash = 0;
    let mut seen = 0;
    loop {
        stream.fill(seen + 1)?;
        for message in stream.lookahead.range(seen..) {
            let is_wanted = |mask, message: &SeenMessage| message.is_early || message.hash & mask == 0;
            if is_wanted(mask, message) {
                kept.push(*message);
            }
            if kept.len() >= MAX_SAMPLES {
                mask = mask << 1 | 1;
                kept.retain(|message| is_wanted(mask, message));
            }
        }
        seen = stream.lookahead.len();
        if seen > MAX_LOOKAHEAD || stream.has_discarded {
            stream.has_discarded = true;
            stream.lookahead.clear();
            seen = 0;
        }
        if stream.is_over() {
            return Ok(kept);
        }
    }
}

/// Returns a vote for each message that occurs exactly once in an interval of each capture.
fn collect_votes(samples: [Vec<SeenMessage>; 2], intervals: &[Vec<PlayerInterval>; 2]) -> Vec<PairVote> {
    let [a, b] = samples.map(|mut sample| {
        sample.sort_unstable_by_key(|message| (message.hash, message.interval));
        sample
    });
    let mut others = b.chunk_by(|one, next| one.hash == next.hash).peekable();
    let mut votes = Vec::new();
    for alike in a.chunk_by(|one, next| one.hash == next.hash) {
        while others.next_if(|other| other[0].hash < alike[0].hash).is_some() {}
        let Some(other) = others.next_if(|other| other[0].hash == alike[0].hash) else { continue };
        if votes.len() >= MAX_VOTES || alike.len().max(other.len()) > MAX_IDENTICAL_INTERVALS {
            continue;
        }
        for (one, other) in unique_per_interval(alike)
            .flat_map(|one| unique_per_interval(other).map(move |other| (one, other)))
        {
            let [Some(here), Some(there)] =
                [intervals[0].get(one.interval as usize), intervals[1].get(other.interval as usize)]
            else {
                continue;
            };
            if here.may_equal(there) {
                let time = other.micros.saturating_sub(one.micros);
                votes.push(PairVote {
                    intervals: [one.interval, other.interval],
                    direction: direction_index(one.from),
                    delay: time,
                });
            }
        }
    }
    votes
}

/// Returns the messages that occur once in their interval. `alike` are identical ones, by interval.
fn unique_per_interval(alike: &[SeenMessage]) -> impl Iterator<Item = &SeenMessage> {
    alike.chunk_by(|one, next| one.interval == next.interval).filter_map(|same| match same {
        [alone] => Some(alone),
        _ => None,
    })
}

/// Returns all pairs of intervals with enough votes.
fn collect_candidates(mut votes: Vec<PairVote>, intervals: &[Vec<PlayerInterval>; 2]) -> Vec<PairCandidate> {
    votes.sort_unstable();
    let of_same = votes.chunk_by(|one, next| one.intervals == next.intervals);
    of_same.filter_map(|votes| evaluate_pair(votes, intervals)).collect()
}

/// Evaluates the votes for one pair. Returns `None` if they are too few.
///
/// Each direction has its own delay: on a slow connection the two directions differ by much.
fn evaluate_pair(votes: &[PairVote], intervals: &[Vec<PlayerInterval>; 2]) -> Option<PairCandidate> {
    let pair = votes.first()?.intervals;
    let [one, other] = [intervals[0].get(pair[0] as usize)?, intervals[1].get(pair[1] as usize)?];
    let (client, host) =
        votes.split_at(votes.partition_point(|vote| vote.direction == direction_index(Role::Client)));
    let directions = [largest_cluster(client), largest_cluster(host)];
    let votes = directions.iter().map(|direction| direction.len()).sum();
    let [client, host] =
        directions.map(|direction| direction.get(direction.len() / 2).map(|vote| vote.delay));
    let rough = [client.or(host)?, host.or(client)?];
    let is_enough = votes >= MIN_VOTES || one.has_same_request(other);
    is_enough.then_some(PairCandidate { intervals: pair, votes, rough_delays: rough })
}

/// Returns the largest group of votes whose delays are close together. The votes are sorted.
fn largest_cluster(votes: &[PairVote]) -> &[PairVote] {
    let mut best = 0..0;
    let mut end = 0;
    for (start, least) in votes.iter().enumerate() {
        while votes.get(end).is_some_and(|most| most.delay.saturating_sub(least.delay) <= MAX_JITTER) {
            end += 1;
        }
        if end - start > best.len() {
            best = start..end;
        }
    }
    &votes[best]
}

/// The most messages that are kept after the first pass. A capture with more messages is read twice.
const MAX_LOOKAHEAD: usize = 1 << 18;
/// The most messages of a capture that may vote. The first messages of every interval fit.
const MAX_SAMPLES: usize = MAX_INTERVALS * 8;
/// The number of messages that count as the first ones of an interval.
pub(super) const EARLY_MESSAGES: u64 = 6;
const MAX_VOTES: usize = 1 << 20;
/// A message that occurs more often than this has no vote: it does not tell intervals apart.
const MAX_IDENTICAL_INTERVALS: usize = 16;
/// The number of votes that proves a pair if the connect request was not captured.
const MIN_VOTES: usize = 2;
/// The largest difference of delays in one direction, in microseconds.
const MAX_JITTER: i64 = 1_000_000;
