//! Two captures of the same traffic, taken at its two ends: what was lost on the way, and how long the way is.
//!
//! Messages are known again by what they are, not by the datagram they came in, so that a proxy between the two places
//! does not matter. The two clocks need not agree: their difference is that which makes the fastest way there as long
//! as the fastest way back. Both files are read side by side, so memory holds only what is under way. They need not begin
//! or end together: what the other capture could not have seen is not counted as lost.

mod clocks;
mod result;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use bcnet_transport::wire::{Datagram, Message, PeerId, Role};

use super::pcap::Damage;
use super::source::{Batch, Source, Step};
use super::{open, role};
use crate::Verdict;
use crate::inspect::{is_stdin, name};

/// What tells a message from every other: who sends it, and its bytes.
type Identity = u64;

/// One capture, message by message.
struct Stream {
    name: String,
    source: Source,
    batch: Batch,
    /// Read and not taken.
    ahead: VecDeque<Sighting>,
    end: Option<Step>,
    /// Whether messages were taken that the join has not seen.
    has_lost: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    identity: Identity,
    from: Role,
    micros: i64,
}

impl Stream {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let name = name(path);
        let source = open(path, false).with_context(|| name.clone())?;
        Ok(Self { name, source, batch: Batch::default(), ahead: VecDeque::new(), end: None, has_lost: false })
    }

    /// Makes sure that `count` messages are there to be looked at, if the file has them.
    fn fill(&mut self, count: usize) -> anyhow::Result<()> {
        while self.ahead.len() < count && self.end.is_none() {
            self.batch.clear();
            while self.batch.len() < BATCH && self.end.is_none() {
                let step = self.source.read(&mut self.batch).with_context(|| self.name.clone())?;
                self.end = (step != Step::More).then_some(step);
            }
            self.batch.decipher();
            for (packet, bytes) in self.batch.iter() {
                let Ok(datagram) = Datagram::parse(bytes, None) else { continue };
                let micros = i64::try_from(packet.time.as_micros()).unwrap_or(i64::MAX);
                let sender = datagram.sender();
                let sightings = datagram.messages().filter_map(|message| {
                    let identity = identity(sender, &message)?;
                    Some(Sighting { identity, from: role(sender), micros })
                });
                self.ahead.extend(sightings);
            }
        }
        Ok(())
    }

    /// Whether nothing more can be read.
    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    fn damage(&self) -> Option<&Damage> {
        match &self.end {
            Some(Step::Damaged(damage)) => Some(damage),
            _ => None,
        }
    }
}

/// Only what carries something can be told from its repeats: ACKs and keepalives are all alike.
fn identity(sender: PeerId, message: &Message<'_>) -> Option<Identity> {
    let mut hasher = DefaultHasher::new();
    (sender.0 == PeerId::HOST.0, message.kind().0).hash(&mut hasher);
    match message {
        Message::Ack(_) | Message::Keepalive => return None,
        Message::Control(control) => {
            (control.seq.0, message.wire_len(), message.to_string()).hash(&mut hasher)
        }
        Message::Data(data) => {
            let id = message.id().map(|id| (id.seq.0, id.part));
            (id, data.payload).hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

/// What is known of one direction.
#[derive(Debug, Default)]
struct Way {
    both: u64,
    /// Seen in the first capture only, and in the second only.
    only: [u64; 2],
    /// Seen in one capture before the other began or after it ended.
    outside: u64,
    /// Of how many the time is known.
    timed: u64,
    /// How often each time from the first capture to the second was seen, in steps of 100 µs.
    times: BTreeMap<i64, u64>,
    /// The median of all but the latest times, once there are enough.
    usual: Option<i64>,
}

impl Way {
    fn note(&mut self, micros: i64) {
        self.timed += 1;
        if self.times.len() < MOST_TIMES || self.times.contains_key(&(micros / STEP)) {
            *self.times.entry(micros / STEP).or_default() += 1;
        }
        // To look it up each time would cost more than it is worth.
        if self.timed >= ENOUGH && self.timed.is_power_of_two() {
            self.usual = self.median();
        }
    }

    /// The time below which this share of all times lies.
    fn quantile(&self, share: f64) -> Option<i64> {
        let total: u64 = self.times.values().sum();
        let rank = (total as f64 * share) as u64;
        let mut seen = 0;
        self.times.iter().find_map(|(time, count)| {
            seen += count;
            (seen > rank || seen == total).then_some(time * STEP)
        })
    }

    fn median(&self) -> Option<i64> {
        self.quantile(0.5)
    }

    fn least(&self) -> Option<i64> {
        self.times.keys().next().map(|time| time * STEP)
    }

    fn most(&self) -> Option<i64> {
        self.times.keys().next_back().map(|time| time * STEP)
    }
}

struct Join {
    /// Seen in one capture and not yet in the other.
    waiting: [HashMap<Identity, VecDeque<(i64, Role)>>; 2],
    /// In the order of time, to be given up.
    order: [VecDeque<(i64, Identity)>; 2],
    ways: [Way; 2],
    /// How long each way takes from the first clock to the second, roughly.
    rough: [i64; 2],
    /// The first and the last message of each capture, the last once it is known.
    spans: [(i64, Option<i64>); 2],
}

pub(super) fn run(paths: [&Path; 2], json: bool, out: impl Write) -> anyhow::Result<Verdict> {
    let [mut a, mut b] = [Stream::open(paths[0])?, Stream::open(paths[1])?];
    let Some(rough) = clocks::compare(&mut a, &mut b)? else {
        eprintln!(
            "bcnet: {} and {} have no message in common; are they of the same traffic?",
            a.name, b.name
        );
        return Ok(Verdict::Findings);
    };
    for (stream, path) in [(&mut a, paths[0]), (&mut b, paths[1])] {
        // Only of long captures that begin at very different times.
        if stream.has_lost {
            ensure!(
                !is_stdin(path),
                "{}: begins too long before or after the other; name a file",
                stream.name
            );
            *stream = Stream::open(path)?;
        }
    }
    let join = side_by_side(&mut a, &mut b, rough)?;
    result::Joined::new(join.ways, [a.name.clone(), b.name.clone()]).write(out, json)?;
    let mut verdict = Verdict::Clean;
    for stream in [&a, &b] {
        if let Some(damage) = stream.damage() {
            eprintln!("bcnet: {}: {damage}", stream.name);
            verdict = Verdict::Findings;
        }
    }
    Ok(verdict)
}

/// Takes all messages of both captures in the order of time.
fn side_by_side(a: &mut Stream, b: &mut Stream, rough: [i64; 2]) -> anyhow::Result<Join> {
    let mut join = Join {
        waiting: [HashMap::new(), HashMap::new()],
        order: [VecDeque::new(), VecDeque::new()],
        ways: [Way::default(), Way::default()],
        rough,
        spans: [(i64::MIN, None); 2],
    };
    let mut last = [None; 2];
    loop {
        a.fill(1)?;
        b.fill(1)?;
        let times = [a.ahead.front(), b.ahead.front()].map(|front| front.map(|sighting| sighting.micros));
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
            [Some(one), Some(other)] => one.saturating_add(join.middle()) <= other,
        };
        let taken = if first { a.ahead.pop_front() } else { b.ahead.pop_front() };
        if let Some(sighting) = taken {
            join.take(usize::from(!first), sighting);
        }
    }
    join.give_up(i64::MAX);
    Ok(join)
}

impl Join {
    fn take(&mut self, place: usize, sighting: Sighting) {
        let Sighting { identity, from, micros } = sighting;
        let way = way_of(from);
        let usual = self.usual(way);
        // The time that a match with the other capture's sighting would take.
        let time = |other: i64| if place == 0 { other - micros } else { micros - other };
        let others = self.waiting[1 - place].get_mut(&identity);
        let nearest = others.as_ref().and_then(|others| {
            let near = |(other, _): &(i64, Role)| (time(*other) - usual).abs();
            let best = others.iter().enumerate().min_by_key(|(_, other)| near(other))?;
            (near(best.1) <= WINDOW).then_some(best.0)
        });
        if let (Some(others), Some(nearest)) = (others, nearest)
            && let Some((other, _)) = others.remove(nearest)
        {
            self.ways[way].both += 1;
            // Of several that are alike it is not certain which one this is.
            if others.is_empty() {
                self.waiting[1 - place].remove(&identity);
                self.ways[way].note(time(other));
            }
        } else {
            self.wait(place, sighting);
        }
        let now = if place == 0 { micros.saturating_add(self.middle()) } else { micros };
        self.give_up(now);
    }

    /// The time from the first clock to the second that most messages of a way take.
    fn usual(&self, way: usize) -> i64 {
        self.ways[way].usual.unwrap_or(self.rough[way])
    }

    /// What the second clock shows more than the first, roughly.
    fn middle(&self) -> i64 {
        i64::midpoint(self.rough[0], self.rough[1])
    }

    fn wait(&mut self, place: usize, Sighting { identity, from, micros }: Sighting) {
        let alike = self.waiting[place].entry(identity).or_default();
        let oldest = if alike.len() < MOST_ALIKE { None } else { alike.pop_front() };
        alike.push_back((micros, from));
        self.order[place].push_back((micros, identity));
        if let Some((micros, from)) = oldest {
            self.miss(place, micros, from);
        }
    }

    /// A message is in one capture only.
    fn miss(&mut self, place: usize, micros: i64, from: Role) {
        let way = way_of(from);
        let usual = self.usual(way);
        let expected = if place == 0 { micros.saturating_add(usual) } else { micros.saturating_sub(usual) };
        let (first, last) = self.spans[1 - place];
        if expected >= first && last.is_none_or(|last| expected <= last) {
            self.ways[way].only[place] += 1;
        } else {
            self.ways[way].outside += 1;
        }
    }

    /// What has waited too long at `now`, on the second clock, is not in the other capture.
    fn give_up(&mut self, now: i64) {
        for place in [0, 1] {
            while let Some((micros, identity)) = self.order[place].front().copied() {
                let seen = if place == 0 { micros.saturating_add(self.middle()) } else { micros };
                let young = now != i64::MAX && seen.saturating_add(2 * WINDOW) > now;
                if young && self.order[place].len() <= MOST_WAITING {
                    break;
                }
                self.order[place].pop_front();
                let Some(sightings) = self.waiting[place].get_mut(&identity) else { continue };
                let at = sightings.iter().position(|(other, _)| *other == micros);
                let given_up = at.and_then(|at| sightings.remove(at));
                if sightings.is_empty() {
                    self.waiting[place].remove(&identity);
                }
                if let Some((_, from)) = given_up {
                    self.miss(place, micros, from);
                }
            }
        }
    }
}

fn way_of(from: Role) -> usize {
    usize::from(from == Role::Host)
}

/// The precision of delays, in microseconds.
const STEP: i64 = 100;
/// A message takes no longer than this from one place to the other.
const WINDOW: i64 = 20_000_000;
const BATCH: usize = 64;
const MOST_TIMES: usize = 1 << 16;
/// As many messages are remembered that the other capture has not shown, and as many that are all the same.
const MOST_WAITING: usize = 1 << 17;
const MOST_ALIKE: usize = 64;
const ENOUGH: u64 = 16;
