//! Which conversations of two captures are the same, and how far apart the clocks are, roughly.
//!
//! A message that is in a conversation of each votes for these two, and for the difference of its times. Some messages are
//! alike in every session, the first ones above all, and a host says much to all players at once, so one in common proves
//! little; but what is really the same votes for the same difference, and has the same id and connect request.
//! Addresses do not count: they differ behind NAT.

use std::collections::{HashMap, HashSet};

use bcnet_transport::wire::Role;

use super::player_intervals::{AddressPairId, IntervalId, MAX_INTERVALS, PlayerInterval};
use super::{CaptureStream, MAX_DELAY, MessageHash, SeenMessage, direction_index};

/// What two captures have in common.
pub(super) struct IntervalPairs {
    /// The time of each way from the first clock to the second.
    pub(super) rough_delays: [i64; 2],
    pub(super) intervals: [Vec<PlayerInterval>; 2],
    /// Which stays are the same.
    pub(super) matched: Vec<[IntervalId; 2]>,
    /// Datagrams of each that no stay has room for.
    pub(super) omitted_datagrams: [u64; 2],
}

/// How a stay of one capture stands to the other capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchStatus {
    /// Messages are looked for in stays of the same group: whose addresses have a stay in common. Where one stay ends and
    /// the next begins, the two places do not quite agree.
    pub(super) group: u32,
    /// If the stay is in both captures: which of [`Pairs::same`] it is. What the other does not have of it was lost.
    pub(super) pair: Option<u32>,
}

/// A message that two stays have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PairVote {
    intervals: [IntervalId; 2],
    direction: usize,
    delay: i64,
}

/// Two stays that may be the same.
struct PairCandidate {
    intervals: [IntervalId; 2],
    votes: usize,
    rough_delays: [i64; 2],
}

/// Reads both captures to their ends. None if they have nothing in common. A stream that is long has lost its messages.
pub(super) fn pair_intervals(
    a: &mut CaptureStream,
    b: &mut CaptureStream,
) -> anyhow::Result<Option<IntervalPairs>> {
    let samples = [sample_messages(a)?, sample_messages(b)?];
    let left_out = [a.intervals.omitted_datagrams, b.intervals.omitted_datagrams];
    let stays = [a, b].map(|stream| std::mem::take(&mut stream.intervals).into_all());
    let mut candidates = collect_candidates(collect_votes(samples, &stays), &stays);
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
    Ok(Some(IntervalPairs {
        rough_delays: rough,
        intervals: stays,
        matched: same,
        omitted_datagrams: left_out,
    }))
}

impl IntervalPairs {
    /// Returns the standing of each stay of each capture; None if it has nothing to do with the other capture.
    pub(super) fn match_statuses(&self) -> [Vec<Option<MatchStatus>>; 2] {
        let mut groups: [HashMap<AddressPairId, u32>; 2] = Default::default();
        // A group that was found to be another one tells which.
        let mut merged: Vec<u32> = Vec::new();
        let mut in_both: [HashMap<IntervalId, u32>; 2] = Default::default();
        for pair in &self.matched {
            let group = merged.len() as u32;
            merged.push(group);
            for place in [0, 1] {
                in_both[place].insert(pair[place], group);
                let Some(stay) = self.intervals[place].get(pair[place] as usize) else { continue };
                let known = groups[place].entry(stay.address_pair).or_insert(group);
                let root = find_root(&mut merged, *known);
                merged[root as usize] = group;
            }
        }
        [0, 1].map(|place| {
            let standing = |(number, stay): (usize, &PlayerInterval)| {
                let group = find_root(&mut merged, *groups[place].get(&stay.address_pair)?);
                Some(MatchStatus { group, pair: in_both[place].get(&(number as IntervalId)).copied() })
            };
            self.intervals[place].iter().enumerate().map(standing).collect()
        })
    }
}

/// Returns the group that a group was merged into. The way there is made shorter for the next time.
fn find_root(merged: &mut [u32], mut group: u32) -> u32 {
    while merged[group as usize] != group {
        let next = merged[group as usize];
        merged[group as usize] = merged[next as usize];
        group = next;
    }
    group
}

/// Returns the beginning of every stay, and of the rest as much as there is room for.
fn sample_messages(stream: &mut CaptureStream) -> anyhow::Result<Vec<SeenMessage>> {
    let mut kept = Vec::new();
    // The same messages are left out of both captures.
    let mut mask: MessageHash = 0;
    let mut seen = 0;
    loop {
        stream.fill(seen + 1)?;
        for sighting in stream.lookahead.range(seen..) {
            let is_wanted = |mask, sighting: &SeenMessage| sighting.is_early || sighting.hash & mask == 0;
            if is_wanted(mask, sighting) {
                kept.push(*sighting);
            }
            if kept.len() >= MAX_SAMPLES {
                mask = mask << 1 | 1;
                kept.retain(|sighting| is_wanted(mask, sighting));
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

/// Returns the votes of all messages that stays of both captures have once.
fn collect_votes(samples: [Vec<SeenMessage>; 2], stays: &[Vec<PlayerInterval>; 2]) -> Vec<PairVote> {
    let [a, b] = samples.map(|mut sample| {
        sample.sort_unstable_by_key(|sighting| (sighting.hash, sighting.interval));
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
                [stays[0].get(one.interval as usize), stays[1].get(other.interval as usize)]
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

/// Of messages that are alike and in order, those that are alone in their stay.
fn unique_per_interval(alike: &[SeenMessage]) -> impl Iterator<Item = &SeenMessage> {
    alike.chunk_by(|one, next| one.interval == next.interval).filter_map(|same| match same {
        [alone] => Some(alone),
        _ => None,
    })
}

/// Returns all pairs of stays with votes enough.
fn collect_candidates(mut votes: Vec<PairVote>, stays: &[Vec<PlayerInterval>; 2]) -> Vec<PairCandidate> {
    votes.sort_unstable();
    let of_same = votes.chunk_by(|one, next| one.intervals == next.intervals);
    of_same.filter_map(|votes| evaluate_pair(votes, stays)).collect()
}

/// Each way has its own time: on a slow line there and back are far apart.
fn evaluate_pair(votes: &[PairVote], stays: &[Vec<PlayerInterval>; 2]) -> Option<PairCandidate> {
    let pair = votes.first()?.intervals;
    let [one, other] = [stays[0].get(pair[0] as usize)?, stays[1].get(pair[1] as usize)?];
    let (client, host) =
        votes.split_at(votes.partition_point(|vote| vote.direction == direction_index(Role::Client)));
    let ways = [largest_cluster(client), largest_cluster(host)];
    let votes = ways.iter().map(|way| way.len()).sum();
    let [client, host] = ways.map(|way| way.get(way.len() / 2).map(|vote| vote.delay));
    let rough = [client.or(host)?, host.or(client)?];
    let is_enough = votes >= MIN_VOTES || one.has_same_request(other);
    is_enough.then_some(PairCandidate { intervals: pair, votes, rough_delays: rough })
}

/// Returns the most votes for what may be one time, in order.
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

/// So many messages of a capture are kept after the first look, so that it need not be read twice.
const MAX_LOOKAHEAD: usize = 1 << 18;
/// So many messages of a capture may vote. There is room for the beginning of every stay.
const MAX_SAMPLES: usize = MAX_INTERVALS * 8;
/// So many messages are the beginning of a stay.
pub(super) const EARLY_MESSAGES: u64 = 6;
const MAX_VOTES: usize = 1 << 20;
/// What more stays than this have does not tell them apart.
const MAX_IDENTICAL_INTERVALS: usize = 16;
/// So many messages show that two stays are the same, if their beginning was not seen.
const MIN_VOTES: usize = 2;
/// The times of one way differ by no more than that, in microseconds.
const MAX_JITTER: i64 = 1_000_000;
