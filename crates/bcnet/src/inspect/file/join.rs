//! Two captures of the same traffic, taken at its two ends: what was lost on the way, and how long the way is.
//!
//! Messages are known again by what they are, not by the datagram they came in, so that a proxy between the two places
//! does not matter. First both files are read to see which conversations are in both ([`pairs`]): a server's capture has
//! those of all players, a player's only its own. Only these are joined. The two clocks need not agree: their difference is that which makes the fastest way there as long
//! as the fastest way back. Both files are read side by side, so memory holds only what is under way. They need not begin
//! or end together: what the other capture could not have seen is not counted as lost.

mod lost;
mod pairs;
mod result;
mod stays;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use bcnet_observe::MessageBuffer;
use bcnet_transport::wire::{Kind, Message, MessageId, PeerId, Role};

use self::pairs::{EARLY, Pairs, Standing};
use self::stays::{MAX_STAYS, StayId, Stays};
use super::reading::{misses_much, open};
use super::role;
use super::source::{Batch, Counts, Source, Step};
use crate::Verdict;
use crate::inspect::{is_stdin, name};

/// What tells a message from every other: who sends it, and its bytes.
type Identity = u64;
/// A message of some conversations, which are those of one group.
type Key = (Identity, u32);

/// One capture, message by message.
struct Stream {
    name: String,
    source: Source,
    counts: Counts,
    datagrams: u64,
    batch: Batch,
    stays: Stays,
    /// Read and not taken.
    ahead: VecDeque<Sighting>,
    end: Option<Step>,
    /// Whether messages were taken that the join has not seen.
    has_lost: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    identity: Identity,
    micros: i64,
    stay: StayId,
    from: Role,
    /// Whether it is one of the first of its stay.
    is_early: bool,
    what: Named,
}

/// What a message is, for people.
#[derive(Debug, Clone, Copy)]
struct Named {
    id: Option<MessageId>,
    kind: Kind,
    opcode: Option<u8>,
}

impl Stream {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let name = name(path);
        let source = open(path, false).with_context(|| name.clone())?;
        Ok(Self {
            name,
            source,
            counts: Counts::default(),
            datagrams: 0,
            batch: Batch::default(),
            stays: Stays::default(),
            ahead: VecDeque::new(),
            end: None,
            has_lost: false,
        })
    }

    /// Makes sure that `count` messages are there to be looked at, if the file has them.
    fn fill(&mut self, count: usize) -> anyhow::Result<()> {
        while self.ahead.len() < count && self.end.is_none() {
            self.batch.clear();
            while self.batch.len() < BATCH && self.end.is_none() {
                let step =
                    self.source.read(&mut self.batch, &mut self.counts).with_context(|| self.name.clone())?;
                self.end = (step != Step::More).then_some(step);
            }
            self.batch.decipher();
            let mut messages = MessageBuffer::default();
            for (packet, bytes) in self.batch.iter().filter(|(packet, _)| !packet.cut) {
                let Ok(datagram) = messages.parse(bytes, None) else { continue };
                self.datagrams += 1;
                let Some(stay) = self.stays.of(packet.from, packet.to, &datagram) else { continue };
                let micros = i64::try_from(packet.time.as_micros()).unwrap_or(i64::MAX);
                let sender = datagram.sender();
                let stays = &mut self.stays;
                let sightings = datagram.messages().iter().filter_map(|message| {
                    let identity = identity(sender, message)?;
                    let is_early = stays.count(stay) < EARLY;
                    let what = Named {
                        id: message.id(),
                        kind: message.kind(),
                        opcode: bcnet_observe::opcode(message),
                    };
                    Some(Sighting { identity, micros, stay, from: role(sender), is_early, what })
                });
                self.ahead.extend(sightings);
            }
        }
        Ok(())
    }

    /// Returns whether nothing more can be read.
    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Says what is wrong with it, and what was not looked at. Whether something is wrong.
    fn tell_troubles(&self) -> bool {
        let (name, skipped) = (&self.name, &self.counts.skipped);
        let is_damaged = if let Some(Step::Damaged(damage)) = &self.end {
            eprintln!("bcnet: {name}: {damage}");
            true
        } else {
            false
        };
        if !skipped.is_empty() {
            eprintln!("bcnet: {name}: not looked at: {skipped}");
        }
        misses_much(name, self.datagrams, skipped) || is_damaged
    }
}

/// Only what carries something can be told from its repeats: ACKs and keepalives are all alike.
fn identity(sender: PeerId, message: &Message<'_>) -> Option<Identity> {
    let mut hasher = DefaultHasher::new();
    (sender.0, message.kind().0).hash(&mut hasher);
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
struct OneWay {
    both: u64,
    /// Seen in the first capture only, and in the second only.
    only: [u64; 2],
    /// The first of those, with their times.
    listed: [Vec<(i64, Named)>; 2],
    /// Seen in one capture before the other began or after it ended.
    outside: u64,
    /// Of how many the time is known.
    timed: u64,
    /// How often each time from the first capture to the second was seen, in steps of 100 µs.
    times: BTreeMap<i64, u64>,
    /// The median of all but the latest times, once there are enough.
    usual: Option<i64>,
}

/// A message that is in both captures.
struct Met {
    /// Its time from the first capture to the second. Of several that are alike it is not certain which one it is.
    time: Option<i64>,
}

impl OneWay {
    fn meet(&mut self, met: Met) {
        self.both += 1;
        if let Some(time) = met.time {
            self.note(time);
        }
    }

    fn note(&mut self, micros: i64) {
        self.timed += 1;
        if self.times.len() < MAX_TIMES || self.times.contains_key(&(micros / STEP)) {
            *self.times.entry(micros / STEP).or_default() += 1;
        }
        // To look it up each time would cost more than it is worth.
        if self.timed >= ENOUGH && self.timed.is_power_of_two() {
            self.usual = self.median();
        }
    }

    /// Returns the time below which this share of all times lies.
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
    waiting: [HashMap<Key, VecDeque<Sighting>>; 2],
    /// In the order of time, to be given up.
    order: [VecDeque<(i64, Key)>; 2],
    /// How each stay of each capture stands to the other.
    standings: [Vec<Option<Standing>>; 2],
    ways: [OneWay; 2],
    /// How long each way takes from the first clock to the second, roughly.
    rough: [i64; 2],
    /// The first and the last message of each capture, the last once it is known.
    spans: [(i64, Option<i64>); 2],
}

pub(super) fn run(paths: [&Path; 2], json: bool, out: impl Write) -> anyhow::Result<Verdict> {
    let [mut a, mut b] = [Stream::open(paths[0])?, Stream::open(paths[1])?];
    let Some(pairs) = pairs::compare(&mut a, &mut b)? else {
        eprintln!(
            "bcnet: {} and {} have no conversation in common; are they of the same traffic?",
            a.name, b.name
        );
        for stream in [&a, &b] {
            stream.tell_troubles();
        }
        return Ok(Verdict::Findings);
    };
    for (stream, path) in [(&mut a, paths[0]), (&mut b, paths[1])] {
        // Only long captures are read twice.
        if stream.has_lost {
            let can_be_read_again = !is_stdin(path) && path.is_file();
            ensure!(can_be_read_again, "{}: is too long to be joined from a pipe; name a file", stream.name);
            *stream = Stream::open(path)?;
        }
    }
    let join = side_by_side(&mut a, &mut b, &pairs)?;
    result::Joined::new(join.ways, [a.name.clone(), b.name.clone()], &pairs).write(out, json)?;
    let mut verdict = Verdict::Clean;
    for (stream, left_out) in [&a, &b].into_iter().zip(pairs.left_out) {
        if left_out > 0 {
            eprintln!(
                "bcnet: {}: has more than {MAX_STAYS} conversations; {left_out} datagrams of later ones were not looked at",
                stream.name
            );
        }
        if stream.tell_troubles() || left_out > 0 {
            verdict = Verdict::Findings;
        }
    }
    Ok(verdict)
}

/// Takes all messages of both captures in the order of time.
fn side_by_side(a: &mut Stream, b: &mut Stream, pairs: &Pairs) -> anyhow::Result<Join> {
    let mut join = Join {
        waiting: [HashMap::new(), HashMap::new()],
        order: [VecDeque::new(), VecDeque::new()],
        standings: pairs.standings(),
        ways: [OneWay::default(), OneWay::default()],
        rough: pairs.rough,
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
        let Sighting { identity, from, micros, .. } = sighting;
        if let Some(standing) = self.standing(place, sighting.stay) {
            let key = (identity, standing.group);
            match self.other(place, key, &sighting) {
                Some(other) => self.ways[way_of(from)].meet(other),
                None => self.wait(place, key, sighting),
            }
        }
        let now = if place == 0 { micros.saturating_add(self.middle()) } else { micros };
        self.give_up(now);
    }

    fn standing(&self, place: usize, stay: StayId) -> Option<Standing> {
        self.standings[place].get(stay as usize).copied().flatten()
    }

    /// Takes the message of the other capture that this one is, if it waits: one of the same conversation if there is.
    fn other(&mut self, place: usize, key: Key, sighting: &Sighting) -> Option<Met> {
        let usual = self.usual(way_of(sighting.from));
        let time = |other: &Sighting| {
            let time = other.micros.saturating_sub(sighting.micros);
            if place == 0 { time } else { -time }
        };
        let pair = self.standing(place, sighting.stay)?.pair;
        let pairs = &self.standings[1 - place];
        let is_strange = |other: &Sighting| {
            let standing = pairs.get(other.stay as usize).copied().flatten();
            pair.is_none() || standing.is_none_or(|standing| standing.pair != pair)
        };
        let others = self.waiting[1 - place].get_mut(&key)?;
        let near = |other: &Sighting| time(other).saturating_sub(usual).saturating_abs();
        let possible = others.iter().enumerate().filter(|(_, other)| near(other) <= WINDOW);
        let (nearest, _) = possible.min_by_key(|(_, other)| (is_strange(other), near(other)))?;
        let other = others.remove(nearest)?;
        let is_alone = others.iter().all(|left| is_strange(left) && !is_strange(&other));
        if others.is_empty() {
            self.waiting[1 - place].remove(&key);
        }
        Some(Met { time: is_alone.then(|| time(&other)) })
    }

    /// Returns the time from the first clock to the second that most messages of a way take.
    fn usual(&self, way: usize) -> i64 {
        self.ways[way].usual.unwrap_or(self.rough[way])
    }

    /// Returns what the second clock shows more than the first, roughly.
    fn middle(&self) -> i64 {
        i64::midpoint(self.rough[0], self.rough[1])
    }

    fn wait(&mut self, place: usize, key: Key, sighting: Sighting) {
        let alike = self.waiting[place].entry(key).or_default();
        let oldest = if alike.len() < MAX_ALIKE { None } else { alike.pop_front() };
        alike.push_back(sighting);
        self.order[place].push_back((sighting.micros, key));
        if let Some(oldest) = oldest {
            self.miss(place, &oldest);
        }
    }

    /// A message is in one capture only.
    fn miss(&mut self, place: usize, sighting: &Sighting) {
        let way = way_of(sighting.from);
        let (micros, usual) = (sighting.micros, self.usual(way));
        let expected = if place == 0 { micros.saturating_add(usual) } else { micros.saturating_sub(usual) };
        let (first, last) = self.spans[1 - place];
        if self.standing(place, sighting.stay).is_none_or(|standing| standing.pair.is_none()) {
            return;
        }
        if expected >= first && last.is_none_or(|last| expected <= last) {
            self.ways[way].only[place] += 1;
            let listed = &mut self.ways[way].listed[place];
            if listed.len() < MAX_LISTED {
                listed.push((micros, sighting.what));
            }
        } else {
            self.ways[way].outside += 1;
        }
    }

    /// What has waited too long at `now`, on the second clock, is not in the other capture.
    fn give_up(&mut self, now: i64) {
        for place in [0, 1] {
            while let Some((micros, key)) = self.order[place].front().copied() {
                let seen = if place == 0 { micros.saturating_add(self.middle()) } else { micros };
                let young = now != i64::MAX && seen.saturating_add(2 * WINDOW) > now;
                if young && self.order[place].len() <= MAX_WAITING {
                    break;
                }
                self.order[place].pop_front();
                let Some(sightings) = self.waiting[place].get_mut(&key) else { continue };
                let at = sightings.iter().position(|sighting| sighting.micros == micros);
                let given_up = at.and_then(|at| sightings.remove(at));
                if sightings.is_empty() {
                    self.waiting[place].remove(&key);
                }
                if let Some(given_up) = given_up {
                    self.miss(place, &given_up);
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
const MAX_TIMES: usize = 1 << 16;
/// As many messages are remembered that the other capture has not shown, and as many that are all the same.
const MAX_WAITING: usize = 1 << 17;
const MAX_ALIKE: usize = 64;
/// As many lost messages of each way are listed.
const MAX_LISTED: usize = 10_000;
const ENOUGH: u64 = 16;
