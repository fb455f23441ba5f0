//! What two captures tell together, for people and as JSON.

use std::io::{self, Write};

use bcnet_transport::wire::Role;

use super::super::summary::thousands;
use super::{STEP, Way};
use crate::inspect::json::Json;

/// The result, with the clocks set right.
pub(super) struct Joined {
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
    /// Seen where the other capture had not begun or was over.
    outside: u64,
    late: u64,
    /// One-way delay in microseconds: least, median, 99 of 100, most.
    delay: Option<[i64; 4]>,
}

impl Joined {
    pub(super) fn new(ways: [Way; 2], names: [String; 2]) -> Self {
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

    pub(super) fn write(&self, mut out: impl Write, json: bool) -> io::Result<()> {
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
                json.member("outside", way.outside);
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
        Self {
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
