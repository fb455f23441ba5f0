//! How far apart two clocks are, roughly, so that two captures can be read side by side.
//!
//! Messages that are in both vote for the difference of their times. Some are alike in every session, the first ones above
//! all, so one in common proves little; but what is really the same votes for the same difference.

use std::collections::HashMap;

use super::{ENOUGH, Identity, MOST_TIMES, Sighting, Stream, way_of};

/// A difference of times, and the way of the message that votes for it.
type Vote = (i64, usize);

/// The time of each way from the first clock to the second. None if the captures have nothing in common.
///
/// The beginning of each is kept. If they do not meet there, the rest is read as well, and each stream that is has lost it.
pub(super) fn compare(a: &mut Stream, b: &mut Stream) -> anyhow::Result<Option<[i64; 2]>> {
    a.fill(BEGINNING)?;
    b.fill(BEGINNING)?;
    let starts = [once(a), once(b)];
    let enough = (starts[0].len().min(starts[1].len()) / 100).max(ENOUGH as usize);
    let mut votes = Vec::new();
    for sighting in &a.ahead {
        votes.extend(vote(&starts[1], sighting, 1));
    }
    while best(&mut votes).len() < enough
        && votes.len() < MOST_TIMES
        && [&*a, &*b].iter().any(|s| !s.is_over())
    {
        for (stream, other, sign) in [(&mut *a, &starts[1], 1), (&mut *b, &starts[0], -1)] {
            if stream.is_over() {
                continue;
            }
            stream.has_lost = true;
            stream.ahead.clear();
            stream.fill(BEGINNING)?;
            for sighting in &stream.ahead {
                votes.extend(vote(other, sighting, sign));
            }
        }
    }
    Ok(medians(best(&mut votes)))
}

/// The messages at the beginning of a capture that it has once, with their times.
fn once(stream: &Stream) -> HashMap<Identity, i64> {
    let mut seen: HashMap<Identity, Option<i64>> = HashMap::new();
    for sighting in &stream.ahead {
        seen.entry(sighting.identity).and_modify(|time| *time = None).or_insert(Some(sighting.micros));
    }
    seen.into_iter().filter_map(|(identity, time)| Some((identity, time?))).collect()
}

/// A message votes if the other capture begins with it. The sign is that of the other's time in the difference.
fn vote(other: &HashMap<Identity, i64>, sighting: &Sighting, sign: i64) -> Option<Vote> {
    let time = other.get(&sighting.identity)?;
    Some((sign * time.saturating_sub(sighting.micros), way_of(sighting.from)))
}

/// The most votes for what may be one difference, in order.
fn best(votes: &mut [Vote]) -> &[Vote] {
    votes.sort_unstable();
    let mut best = 0..0;
    let mut end = 0;
    for (start, (least, _)) in votes.iter().enumerate() {
        while votes.get(end).is_some_and(|(most, _)| most - least <= APART) {
            end += 1;
        }
        if end - start > best.len() {
            best = start..end;
        }
    }
    &votes[best]
}

/// The median of each way, or that of the other where there is none.
fn medians(votes: &[Vote]) -> Option<[i64; 2]> {
    let median = |way| {
        let times: Vec<i64> = votes.iter().filter(|vote| vote.1 == way).map(|vote| vote.0).collect();
        times.get(times.len() / 2).copied()
    };
    let [client, host] = [median(0), median(1)];
    Some([client.or(host)?, host.or(client)?])
}

/// So many messages of each capture are kept.
const BEGINNING: usize = 20_000;
/// Both ways differ by no more than that on the same clocks, in microseconds.
const APART: i64 = 1_000_000;
