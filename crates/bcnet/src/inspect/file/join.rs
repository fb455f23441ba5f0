//! Two captures of the same traffic, taken at its two ends: what was lost on the way, and how long the way is.
//!
//! Messages are known again by what they are, not by the datagram they came in, so that a proxy between the two places
//! does not matter. The two clocks need not agree: their difference is that which makes the fastest way there as long
//! as the fastest way back. Both files are read side by side, so memory holds only what is under way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use bcnet_transport::wire::{Datagram, Message, PeerId, Role};

use super::pcap::Damage;
use super::source::{Batch, Source, Step};
use super::{open, role, summary::thousands};
use crate::Verdict;
use crate::inspect::json::Json;
use crate::inspect::name;

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
        Ok(Self { name, source, batch: Batch::default(), ahead: VecDeque::new(), end: None })
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
    /// How often each time from the first capture to the second was seen, in steps of 100 µs.
    times: BTreeMap<i64, u64>,
    /// The median of all but the latest times, once there are enough.
    usual: Option<i64>,
}

impl Way {
    fn note(&mut self, micros: i64) {
        self.both += 1;
        if self.times.len() < MOST_TIMES || self.times.contains_key(&(micros / STEP)) {
            *self.times.entry(micros / STEP).or_default() += 1;
        }
        // To look it up each time would cost more than it is worth.
        if self.both >= ENOUGH && self.both.is_power_of_two() {
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
    /// What the second clock shows more than the first, roughly: it joins the files side by side.
    rough: i64,
}

pub(super) fn run(paths: [&Path; 2], json: bool, out: impl Write) -> anyhow::Result<Verdict> {
    let [mut a, mut b] = [Stream::open(paths[0])?, Stream::open(paths[1])?];
    a.fill(LOOK_AHEAD)?;
    b.fill(LOOK_AHEAD)?;
    let Some(rough) = rough_offset(&a.ahead, &b.ahead) else {
        eprintln!(
            "bcnet: {} and {} have no message in common in their first {LOOK_AHEAD}; are they of the same traffic?",
            a.name, b.name
        );
        return Ok(Verdict::Findings);
    };
    let mut join = Join {
        waiting: [HashMap::new(), HashMap::new()],
        order: [VecDeque::new(), VecDeque::new()],
        ways: [Way::default(), Way::default()],
        rough,
    };
    loop {
        a.fill(1)?;
        b.fill(1)?;
        let times = [a.ahead.front(), b.ahead.front()].map(|front| front.map(|sighting| sighting.micros));
        let first = match times {
            [None, None] => break,
            [Some(_), None] => true,
            [None, Some(_)] => false,
            [Some(one), Some(other)] => one.saturating_add(rough) <= other,
        };
        let taken = if first { a.ahead.pop_front() } else { b.ahead.pop_front() };
        if let Some(sighting) = taken {
            join.take(usize::from(!first), sighting);
        }
    }
    join.give_up(i64::MAX);
    let result = Joined::new(join.ways, [a.name.clone(), b.name.clone()]);
    result.write(out, json)?;
    let mut verdict = Verdict::Clean;
    for stream in [&a, &b] {
        if let Some(damage) = stream.damage() {
            eprintln!("bcnet: {}: {damage}", stream.name);
            verdict = Verdict::Findings;
        }
    }
    Ok(verdict)
}

/// The difference of the clocks, from messages that are seen once in the beginning of each capture.
fn rough_offset(a: &VecDeque<Sighting>, b: &VecDeque<Sighting>) -> Option<i64> {
    let once = |stream: &VecDeque<Sighting>| {
        let mut seen: HashMap<Identity, Option<i64>> = HashMap::new();
        for sighting in stream {
            seen.entry(sighting.identity).and_modify(|time| *time = None).or_insert(Some(sighting.micros));
        }
        seen
    };
    let (a, b) = (once(a), once(b));
    let mut differences: Vec<i64> =
        a.iter().filter_map(|(identity, one)| Some(b.get(identity).copied().flatten()? - (*one)?)).collect();
    differences.sort_unstable();
    differences.get(differences.len() / 2).copied()
}

impl Join {
    fn take(&mut self, place: usize, sighting: Sighting) {
        let Sighting { identity, from, micros } = sighting;
        let way = usize::from(from == Role::Host);
        let usual = self.ways[way].usual.unwrap_or(self.rough);
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
            if others.is_empty() {
                self.waiting[1 - place].remove(&identity);
            }
            self.ways[way].note(time(other));
        } else {
            self.wait(place, sighting);
        }
        let now = if place == 0 { micros.saturating_add(self.rough) } else { micros };
        self.give_up(now);
    }

    fn wait(&mut self, place: usize, Sighting { identity, from, micros }: Sighting) {
        let alike = self.waiting[place].entry(identity).or_default();
        if alike.len() < MOST_ALIKE {
            alike.push_back((micros, from));
            self.order[place].push_back((micros, identity));
        } else {
            self.ways[usize::from(from == Role::Host)].only[place] += 1;
        }
    }

    /// What has waited too long at `now`, on the second clock, is not in the other capture.
    fn give_up(&mut self, now: i64) {
        for place in [0, 1] {
            while let Some((micros, identity)) = self.order[place].front().copied() {
                let seen = if place == 0 { micros.saturating_add(self.rough) } else { micros };
                let young = now != i64::MAX && seen.saturating_add(2 * WINDOW) > now;
                if young && self.order[place].len() <= MOST_WAITING {
                    break;
                }
                self.order[place].pop_front();
                let Some(sightings) = self.waiting[place].get_mut(&identity) else { continue };
                if let Some(at) = sightings.iter().position(|(other, _)| *other == micros)
                    && let Some((_, from)) = sightings.remove(at)
                {
                    self.ways[usize::from(from == Role::Host)].only[place] += 1;
                }
                if sightings.is_empty() {
                    self.waiting[place].remove(&identity);
                }
            }
        }
    }
}

/// The result, with the clocks set right.
struct Joined {
    names: [String; 2],
    /// What the second clock shows more than the first.
    offset: i64,
    ways: [Direction; 2],
}

struct Direction {
    from: Role,
    sent: u64,
    arrived: u64,
    lost: u64,
    /// Arrived, and not seen where it was sent.
    unseen: u64,
    late: u64,
    /// One-way delay in microseconds: least, median, 99 of 100, most.
    delay: Option<[i64; 4]>,
}

impl Joined {
    fn new(ways: [Way; 2], names: [String; 2]) -> Self {
        let [from_client, from_host] = &ways;
        // Sent at the first place: the shortest time counts; sent at the second: the longest, which is the least negative.
        let client_first = match (from_client.median(), from_host.median()) {
            (Some(client), Some(host)) => client >= host,
            _ => true,
        };
        let (outward, back) = if client_first { (from_client, from_host) } else { (from_host, from_client) };
        let offset = match (outward.least(), back.most()) {
            (Some(least), Some(most)) => i64::midpoint(least, most),
            (Some(time), None) | (None, Some(time)) => time,
            (None, None) => 0,
        };
        let direction = |way: &Way, from: Role| {
            let at_first = (from == Role::Client) == client_first;
            Direction::new(way, from, at_first, offset)
        };
        let ways = [direction(from_client, Role::Client), direction(from_host, Role::Host)];
        Self { names, offset, ways }
    }

    fn write(&self, mut out: impl Write, json: bool) -> io::Result<()> {
        if json {
            return self.write_json(out);
        }
        let [a, b] = &self.names;
        writeln!(out, "{a} and {b}: the clock of the second shows {:+.3} s", self.offset as f64 / 1e6)?;
        writeln!(
            out,
            "\n  {:<16}{:>10}{:>10}{:>18}{:>10}{:>28}",
            "from", "sent", "arrived", "lost", "late", "one-way delay, ms"
        )?;
        for way in &self.ways {
            let percent = way.lost as f64 * 100.0 / way.sent.max(1) as f64;
            let lost = format!("{}, {percent:.2} %", thousands(way.lost));
            let delay = way.delay.map_or_else(
                || "–".into(),
                |delay| {
                    let [least, median, slow, most] = delay.map(|micros| micros as f64 / 1e3);
                    format!("{least:.1} / {median:.1} / {slow:.1} / {most:.1}")
                },
            );
            let (sent, arrived, late) = (thousands(way.sent), thousands(way.arrived), thousands(way.late));
            writeln!(
                out,
                "  {:<16}{sent:>10}{arrived:>10}{lost:>18}{late:>10}{delay:>28}",
                way.from.to_string()
            )?;
        }
        for way in self.ways.iter().filter(|way| way.unseen > 0) {
            let (unseen, from) = (thousands(way.unseen), way.from);
            writeln!(
                out,
                "  not in the capture: {unseen} messages of the {from} that arrived were not seen where it sent them"
            )?;
        }
        writeln!(
            out,
            "\n  delay is least / median / 99 of 100 / most, if the fastest way there and back take the same time"
        )?;
        out.flush()
    }

    fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        let mut json = Json::default();
        for way in &self.ways {
            json.line(|json| {
                json.shown("from", way.from);
                json.member("sent", way.sent);
                json.member("arrived", way.arrived);
                json.member("lost", way.lost);
                json.member("late", way.late);
                json.member("unseen", way.unseen);
                json.member("clock_offset", self.offset as f64 / 1e6);
                for (place, name) in ["least", "median", "p99", "most"].into_iter().enumerate() {
                    json.member(name, way.delay.map(|delay| delay[place] as f64 / 1e6));
                }
            });
        }
        json.write(&mut out)?;
        out.flush()
    }
}

impl Direction {
    fn new(way: &Way, from: Role, at_first: bool, offset: i64) -> Self {
        let (lost, unseen) = if at_first { (way.only[0], way.only[1]) } else { (way.only[1], way.only[0]) };
        // From the second place to the first the times count backwards.
        let delay_of = |time: i64| if at_first { time - offset } else { offset - time };
        let at = |share: f64| way.quantile(if at_first { share } else { 1.0 - share }).map(delay_of);
        let ends = if at_first { [way.least(), way.most()] } else { [way.most(), way.least()] };
        let delay = match (ends[0], at(0.5), at(0.99), ends[1]) {
            (Some(least), Some(median), Some(slow), Some(most)) => {
                Some([delay_of(least), median, slow, delay_of(most)])
            }
            _ => None,
        };
        let late_from = delay.map_or(i64::MAX, |[_, median, ..]| (2 * median).max(median + LATE));
        let late = way.times.iter().filter(|(time, _)| delay_of(**time * STEP) > late_from);
        let late = late.map(|(_, count)| count).sum();
        Self { from, sent: way.both + lost, arrived: way.both + unseen, lost, unseen, late, delay }
    }
}

/// The precision of delays, in microseconds.
const STEP: i64 = 100;
/// A message takes no longer than this from one place to the other.
const WINDOW: i64 = 20_000_000;
/// So much more than usual is late, in microseconds.
const LATE: i64 = 100_000;
const LOOK_AHEAD: usize = 20_000;
const BATCH: usize = 64;
const MOST_TIMES: usize = 1 << 16;
/// As many messages are remembered that the other capture has not shown, and as many that are all the same.
const MOST_WAITING: usize = 1 << 17;
const MOST_ALIKE: usize = 64;
const ENOUGH: u64 = 16;
