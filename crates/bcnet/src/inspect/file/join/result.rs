//! What two captures tell together, for people and as JSON.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};

use bcnet_transport::wire::Role;

use super::lost::Lost;
use super::pairs::Pairs;
use super::stays::{Stay, StayId};
use super::{OneWay, STEP};
use crate::inspect::json::Json;
use crate::number::{counted, thousands};

/// The result, with the clocks set right.
pub(super) struct Joined<'a> {
    names: [String; 2],
    /// What the second clock shows more than the first.
    offset: i64,
    ways: [Direction; 2],
    /// The conversations of both captures.
    both: Vec<[&'a Stay; 2]>,
    /// The conversations of one capture.
    only: [Vec<&'a Stay>; 2],
}

struct Direction {
    from: Role,
    sent: u64,
    arrived: u64,
    lost: u64,
    /// Arrived, and not seen where it was sent.
    unseen: u64,
    /// Seen where the other capture had not begun or was over.
    outside: u64,
    late: u64,
    /// One-way delay in microseconds: least, median, 99 of 100, most.
    delay: Option<[i64; 4]>,
    list: Lost,
}

impl<'a> Joined<'a> {
    pub(super) fn new(ways: [OneWay; 2], names: [String; 2], pairs: &'a Pairs) -> Self {
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
        let direction = |way: &OneWay, from: Role| {
            let at_first = (from == Role::Client) == client_first;
            Direction::new(way, from, at_first, offset)
        };
        let ways = [direction(from_client, Role::Client), direction(from_host, Role::Host)];
        let [a, b] = &pairs.stays;
        let both = pairs
            .same
            .iter()
            .filter_map(|[one, other]| Some([a.get(*one as usize)?, b.get(*other as usize)?]));
        Self { names, offset, ways, both: both.collect(), only: [0, 1].map(|place| only(pairs, place)) }
    }

    pub(super) fn write(&self, mut out: impl Write, json: bool) -> io::Result<()> {
        if json {
            return self.write_json(out);
        }
        let [a, b] = &self.names;
        writeln!(out, "{a} and {b}: the clock of the second shows {:+.3} s", self.offset as f64 / 1e6)?;
        self.write_conversations(&mut out)?;
        let delays = self.ways.each_ref().map(Direction::delay_text);
        let title = "one-way delay, ms";
        let width = delays.iter().map(|delay| delay.chars().count()).fold(title.len(), usize::max);
        writeln!(
            out,
            "\n  {:<16}{:>10}{:>10}{:>18}{:>10}  {title:>width$}",
            "from", "sent", "arrived", "lost", "late"
        )?;
        for (way, delay) in self.ways.iter().zip(delays) {
            let percent = way.lost as f64 * 100.0 / way.sent.max(1) as f64;
            let lost = format!("{}, {percent:.2} %", thousands(way.lost));
            let (sent, arrived, late) = (thousands(way.sent), thousands(way.arrived), thousands(way.late));
            writeln!(
                out,
                "  {:<16}{sent:>10}{arrived:>10}{lost:>18}{late:>10}  {delay:>width$}",
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
        let outside: u64 = self.ways.iter().map(|way| way.outside).sum();
        if outside > 0 {
            let outside = thousands(outside);
            writeln!(
                out,
                "  not counted: {outside} messages before the other capture began or after it ended"
            )?;
        }
        writeln!(
            out,
            "\n  delay is least / median / 99 of 100 / most, if the fastest way there and back take the same time"
        )?;
        self.ways.iter().try_for_each(|way| way.list.write(&mut out))?;
        out.flush()
    }

    fn write_conversations(&self, out: &mut impl Write) -> io::Result<()> {
        let both = self.both.iter().map(|[one, other]| {
            let elsewhere = (one.client != other.client).then(|| format!("{} = ", one.client));
            format!("{}{}", elsewhere.unwrap_or_default(), Named(other))
        });
        write_list(out, "in both", both)?;
        for (name, only) in self.names.iter().zip(&self.only) {
            let messages =
                |stay: &&Stay| format!("{} with {}", Named(stay), counted(stay.messages, "message"));
            write_list(out, &format!("only in {name}"), only.iter().map(messages))?;
        }
        Ok(())
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
                json.member("outside", way.outside);
                json.member("conversations", self.both.len());
                json.member("clock_offset", self.offset as f64 / 1e6);
                for (place, name) in ["least", "median", "p99", "most"].into_iter().enumerate() {
                    json.member(name, way.delay.map(|delay| delay[place] as f64 / 1e6));
                }
            });
        }
        for (name, only) in self.names.iter().zip(&self.only) {
            for stay in only {
                json.line(|json| {
                    json.shown("only_in", name);
                    json.shown("client", stay.client);
                    json.member("peer", stay.peer.map(|peer| peer.0));
                    json.member("messages", stay.messages);
                });
            }
        }
        self.ways.iter().for_each(|way| way.list.write_json(&mut json));
        json.write(&mut out)?;
        out.flush()
    }
}

/// Returns the stays that only this capture has, without those that hold nothing to be joined.
fn only(pairs: &Pairs, place: usize) -> Vec<&Stay> {
    let same: HashSet<StayId> = pairs.same.iter().map(|pair| pair[place]).collect();
    let others =
        pairs.stays[place].iter().zip(0..).filter(|(stay, id)| stay.messages > 0 && !same.contains(id));
    others.map(|(stay, _)| stay).collect()
}

/// A player of a stay.
struct Named<'a>(&'a Stay);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.client)?;
        self.0.peer.map_or(Ok(()), |peer| write!(f, " ({peer})"))
    }
}

/// Writes a line for each, but not for too many.
fn write_list(
    out: &mut impl Write,
    title: &str,
    mut texts: impl ExactSizeIterator<Item = String>,
) -> io::Result<()> {
    for text in texts.by_ref().take(MAX_LINES) {
        writeln!(out, "  {title}: {text}")?;
    }
    match texts.len() {
        0 => Ok(()),
        more => writeln!(out, "  {title}: {} more", thousands(more as u64)),
    }
}

impl Direction {
    fn delay_text(&self) -> String {
        let Some(delay) = self.delay else { return "–".into() };
        let [least, median, slow, most] = delay.map(|micros| micros as f64 / 1e3);
        format!("{least:.1} / {median:.1} / {slow:.1} / {most:.1}")
    }

    fn new(way: &OneWay, from: Role, at_first: bool, offset: i64) -> Self {
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
        let listed = way.listed[usize::from(!at_first)].clone();
        Self {
            list: Lost { from, count: lost, listed },
            from,
            sent: way.both + lost,
            arrived: way.both + unseen,
            lost,
            unseen,
            outside: way.outside,
            late,
            delay,
        }
    }
}

/// So much more than usual is late, in microseconds.
const LATE: i64 = 100_000;
/// As many conversations of a kind are named.
const MAX_LINES: usize = 16;
