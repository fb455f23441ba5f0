//! Which conversations of two captures are the same, and how far apart the clocks are, roughly.
//!
//! A message that is in a conversation of each votes for these two, and for the difference of its times. Some messages are
//! alike in every session, the first ones above all, and a host says much to all players at once, so one in common proves
//! little; but what is really the same votes for the same difference, and has the same id and connect request.
//! Addresses do not count: they differ behind NAT.

use std::collections::{HashMap, HashSet};

use bcnet_transport::wire::Role;

use super::stays::{LinkId, MAX_STAYS, Stay, StayId};
use super::{Identity, Sighting, Stream, WINDOW, way_of};

/// What two captures have in common.
pub(super) struct Pairs {
    /// The time of each way from the first clock to the second.
    pub(super) rough: [i64; 2],
    pub(super) stays: [Vec<Stay>; 2],
    /// Which stays are the same.
    pub(super) same: Vec<[StayId; 2]>,
    /// Datagrams of each that no stay has room for.
    pub(super) left_out: [u64; 2],
}

/// How a stay of one capture stands to the other capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Messages are looked for in stays of the same group: whose addresses have a stay in common. Where one stay ends and
    /// the next begins, the two places do not quite agree.
    pub(super) group: u32,
    /// If the stay is in both captures: which of [`Pairs::same`] it is. What the other does not have of it was lost.
    pub(super) pair: Option<u32>,
}

/// A message that two stays have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Vote {
    stays: [StayId; 2],
    way: usize,
    time: i64,
}

/// Two stays that may be the same.
struct Candidate {
    stays: [StayId; 2],
    votes: usize,
    rough: [i64; 2],
}

/// Reads both captures to their ends. None if they have nothing in common. A stream that is long has lost its messages.
pub(super) fn compare(a: &mut Stream, b: &mut Stream) -> anyhow::Result<Option<Pairs>> {
    let samples = [sample(a)?, sample(b)?];
    let left_out = [a.stays.left_out, b.stays.left_out];
    let stays = [a, b].map(|stream| std::mem::take(&mut stream.stays).into_all());
    let mut candidates = candidates(votes(samples, &stays), &stays);
    candidates.sort_by_key(|candidate| (std::cmp::Reverse(candidate.votes), candidate.stays));
    let Some(rough) = candidates.first().map(|best| best.rough) else { return Ok(None) };
    let mut taken = [HashSet::new(), HashSet::new()];
    let mut same = Vec::new();
    for Candidate { stays: [one, other], rough: times, .. } in candidates {
        let is_near = times.iter().zip(rough).all(|(time, rough)| time.saturating_sub(rough).abs() <= WINDOW);
        if is_near && !taken[0].contains(&one) && !taken[1].contains(&other) {
            taken[0].insert(one);
            taken[1].insert(other);
            same.push([one, other]);
        }
    }
    same.sort_unstable();
    Ok(Some(Pairs { rough, stays, same, left_out }))
}

impl Pairs {
    /// Returns the standing of each stay of each capture; None if it has nothing to do with the other capture.
    pub(super) fn standings(&self) -> [Vec<Option<Standing>>; 2] {
        let mut groups: [HashMap<LinkId, u32>; 2] = Default::default();
        // A group that was found to be another one tells which.
        let mut merged: Vec<u32> = Vec::new();
        let mut in_both: [HashMap<StayId, u32>; 2] = Default::default();
        for pair in &self.same {
            let group = merged.len() as u32;
            merged.push(group);
            for place in [0, 1] {
                in_both[place].insert(pair[place], group);
                let Some(stay) = self.stays[place].get(pair[place] as usize) else { continue };
                let known = groups[place].entry(stay.link).or_insert(group);
                let root = root(&mut merged, *known);
                merged[root as usize] = group;
            }
        }
        [0, 1].map(|place| {
            let standing = |(number, stay): (usize, &Stay)| {
                let group = root(&mut merged, *groups[place].get(&stay.link)?);
                Some(Standing { group, pair: in_both[place].get(&(number as StayId)).copied() })
            };
            self.stays[place].iter().enumerate().map(standing).collect()
        })
    }
}

/// Returns the group that a group was merged into. The way there is made shorter for the next time.
fn root(merged: &mut [u32], mut group: u32) -> u32 {
    while merged[group as usize] != group {
        let next = merged[group as usize];
        merged[group as usize] = merged[next as usize];
        group = next;
    }
    group
}

/// Returns the beginning of every stay, and of the rest as much as there is room for.
fn sample(stream: &mut Stream) -> anyhow::Result<Vec<Sighting>> {
    let mut kept = Vec::new();
    // The same messages are left out of both captures.
    let mut mask: Identity = 0;
    let mut seen = 0;
    loop {
        stream.fill(seen + 1)?;
        for sighting in stream.ahead.range(seen..) {
            let is_wanted = |mask, sighting: &Sighting| sighting.is_early || sighting.identity & mask == 0;
            if is_wanted(mask, sighting) {
                kept.push(*sighting);
            }
            if kept.len() >= MAX_SAMPLES {
                mask = mask << 1 | 1;
                kept.retain(|sighting| is_wanted(mask, sighting));
            }
        }
        seen = stream.ahead.len();
        if seen > MAX_AHEAD || stream.has_lost {
            stream.has_lost = true;
            stream.ahead.clear();
            seen = 0;
        }
        if stream.is_over() {
            return Ok(kept);
        }
    }
}

/// Returns the votes of all messages that stays of both captures have once.
fn votes(samples: [Vec<Sighting>; 2], stays: &[Vec<Stay>; 2]) -> Vec<Vote> {
    let [a, b] = samples.map(|mut sample| {
        sample.sort_unstable_by_key(|sighting| (sighting.identity, sighting.stay));
        sample
    });
    let mut others = b.chunk_by(|one, next| one.identity == next.identity).peekable();
    let mut votes = Vec::new();
    for alike in a.chunk_by(|one, next| one.identity == next.identity) {
        while others.next_if(|other| other[0].identity < alike[0].identity).is_some() {}
        let Some(other) = others.next_if(|other| other[0].identity == alike[0].identity) else { continue };
        if votes.len() >= MAX_VOTES || alike.len().max(other.len()) > MAX_ALIKE_LIVES {
            continue;
        }
        for (one, other) in once(alike).flat_map(|one| once(other).map(move |other| (one, other))) {
            let [Some(here), Some(there)] =
                [stays[0].get(one.stay as usize), stays[1].get(other.stay as usize)]
            else {
                continue;
            };
            if here.may_be(there) {
                let time = other.micros.saturating_sub(one.micros);
                votes.push(Vote { stays: [one.stay, other.stay], way: way_of(one.from), time });
            }
        }
    }
    votes
}

/// Of messages that are alike and in order, those that are alone in their stay.
fn once(alike: &[Sighting]) -> impl Iterator<Item = &Sighting> {
    alike.chunk_by(|one, next| one.stay == next.stay).filter_map(|same| match same {
        [alone] => Some(alone),
        _ => None,
    })
}

/// Returns all pairs of stays with votes enough.
fn candidates(mut votes: Vec<Vote>, stays: &[Vec<Stay>; 2]) -> Vec<Candidate> {
    votes.sort_unstable();
    let of_same = votes.chunk_by(|one, next| one.stays == next.stays);
    of_same.filter_map(|votes| candidate(votes, stays)).collect()
}

/// Each way has its own time: on a slow line there and back are far apart.
fn candidate(votes: &[Vote], stays: &[Vec<Stay>; 2]) -> Option<Candidate> {
    let pair = votes.first()?.stays;
    let [one, other] = [stays[0].get(pair[0] as usize)?, stays[1].get(pair[1] as usize)?];
    let (client, host) = votes.split_at(votes.partition_point(|vote| vote.way == way_of(Role::Client)));
    let ways = [best(client), best(host)];
    let votes = ways.iter().map(|way| way.len()).sum();
    let [client, host] = ways.map(|way| way.get(way.len() / 2).map(|vote| vote.time));
    let rough = [client.or(host)?, host.or(client)?];
    let is_enough = votes >= FEWEST || one.begins_as(other);
    is_enough.then_some(Candidate { stays: pair, votes, rough })
}

/// Returns the most votes for what may be one time, in order.
fn best(votes: &[Vote]) -> &[Vote] {
    let mut best = 0..0;
    let mut end = 0;
    for (start, least) in votes.iter().enumerate() {
        while votes.get(end).is_some_and(|most| most.time.saturating_sub(least.time) <= JITTER) {
            end += 1;
        }
        if end - start > best.len() {
            best = start..end;
        }
    }
    &votes[best]
}

/// So many messages of a capture are kept after the first look, so that it need not be read twice.
const MAX_AHEAD: usize = 1 << 18;
/// So many messages of a capture may vote. There is room for the beginning of every stay.
const MAX_SAMPLES: usize = MAX_STAYS * 8;
/// So many messages are the beginning of a stay.
pub(super) const EARLY: u64 = 6;
const MAX_VOTES: usize = 1 << 20;
/// What more stays than this have does not tell them apart.
const MAX_ALIKE_LIVES: usize = 16;
/// So many messages show that two stays are the same, if their beginning was not seen.
const FEWEST: usize = 2;
/// The times of one way differ by no more than that, in microseconds.
const JITTER: i64 = 1_000_000;
