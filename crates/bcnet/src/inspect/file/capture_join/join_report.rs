//! Writes the result of joining two captures, for people and as JSON.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};

use bcnet_transport::wire::Role;

use super::interval_pairs::IntervalPairs;
use super::lost_messages::LostMessages;
use super::player_intervals::{IntervalId, PlayerInterval};
use super::{DELAY_STEP, DirectionStats};
use crate::inspect::json::Json;
use crate::number_format::{group_digits, pluralize};

/// The result, with the clock offset applied.
pub(super) struct JoinReport<'a> {
    names: [String; 2],
    /// The lead of the second clock over the first, in microseconds.
    clock_offset: i64,
    directions: [DirectionReport; 2],
    /// The conversations that are in both captures.
    in_both: Vec<[&'a PlayerInterval; 2]>,
    /// The conversations that are in one capture only.
    only_in_one: [Vec<&'a PlayerInterval>; 2],
}

struct DirectionReport {
    from: Role,
    sent: u64,
    arrived: u64,
    lost: u64,
    /// Messages that arrived and are missing from the sender's capture.
    unseen_at_sender: u64,
    /// Messages from a time when the other capture had not begun or was over.
    outside: u64,
    late: u64,
    /// One-way delay in microseconds: minimum, median, 99th percentile, maximum.
    delay: Option<[i64; 4]>,
    lost_messages: LostMessages,
}

impl<'a> JoinReport<'a> {
    pub(super) fn new(directions: [DirectionStats; 2], names: [String; 2], pairs: &'a IntervalPairs) -> Self {
        let [from_client, from_host] = &directions;
        // The offset is the middle between the shortest delays of both directions. Towards the first end delays
        // are negative, so the shortest one is the largest number.
        let client_first = match (from_client.median(), from_host.median()) {
            (Some(client), Some(host)) => client >= host,
            _ => true,
        };
        let (outward, back) = if client_first { (from_client, from_host) } else { (from_host, from_client) };
        let offset = match (outward.min_delay(), back.max_delay()) {
            (Some(least), Some(most)) => i64::midpoint(least, most),
            (Some(time), None) | (None, Some(time)) => time,
            (None, None) => 0,
        };
        let report = |direction: &DirectionStats, from: Role| {
            let at_first = (from == Role::Client) == client_first;
            DirectionReport::new(direction, from, at_first, offset)
        };
        let directions = [report(from_client, Role::Client), report(from_host, Role::Host)];
        let [a, b] = &pairs.intervals;
        let both = pairs
            .matched
            .iter()
            .filter_map(|[one, other]| Some([a.get(*one as usize)?, b.get(*other as usize)?]));
        Self {
            names,
            clock_offset: offset,
            directions,
            in_both: both.collect(),
            only_in_one: [0, 1].map(|capture| unmatched_intervals(pairs, capture)),
        }
    }

    pub(super) fn write(&self, mut out: impl Write, json: bool) -> io::Result<()> {
        if json {
            return self.write_json(out);
        }
        let [a, b] = &self.names;
        writeln!(
            out,
            "{a} and {b}: the clock of the second capture is {:+.3} s ahead",
            self.clock_offset as f64 / 1e6
        )?;
        self.write_conversations(&mut out)?;
        let delays = self.directions.each_ref().map(DirectionReport::delay_text);
        let title = "one-way delay, ms";
        let width = delays.iter().map(|delay| delay.chars().count()).fold(title.len(), usize::max);
        writeln!(
            out,
            "\n  {:<16}{:>10}{:>10}{:>18}{:>10}  {title:>width$}",
            "from", "sent", "arrived", "lost", "late"
        )?;
        for (direction, delay) in self.directions.iter().zip(delays) {
            let percent = direction.lost as f64 * 100.0 / direction.sent.max(1) as f64;
            let lost = format!("{}, {percent:.2} %", group_digits(direction.lost));
            let (sent, arrived, late) =
                (group_digits(direction.sent), group_digits(direction.arrived), group_digits(direction.late));
            writeln!(
                out,
                "  {:<16}{sent:>10}{arrived:>10}{lost:>18}{late:>10}  {delay:>width$}",
                direction.from.to_string()
            )?;
        }
        for direction in self.directions.iter().filter(|direction| direction.unseen_at_sender > 0) {
            let (unseen, from) = (group_digits(direction.unseen_at_sender), direction.from);
            writeln!(out, "  not in the sender's capture: {unseen} messages from the {from} that arrived")?;
        }
        let outside: u64 = self.directions.iter().map(|direction| direction.outside).sum();
        if outside > 0 {
            let outside = group_digits(outside);
            writeln!(
                out,
                "  not counted: {outside} messages before the other capture began or after it ended"
            )?;
        }
        writeln!(
            out,
            "\n  delay: minimum / median / 99th percentile / maximum, if the fastest message takes equally long both ways"
        )?;
        self.directions.iter().try_for_each(|direction| direction.lost_messages.write(&mut out))?;
        out.flush()
    }

    fn write_conversations(&self, out: &mut impl Write) -> io::Result<()> {
        let both = self.in_both.iter().map(|[one, other]| {
            let elsewhere = (one.client != other.client).then(|| format!("{} = ", one.client));
            format!("{}{}", elsewhere.unwrap_or_default(), PlayerLabel(other))
        });
        write_list(out, "in both", both)?;
        for (name, only) in self.names.iter().zip(&self.only_in_one) {
            let messages = |interval: &&PlayerInterval| {
                format!("{} with {}", PlayerLabel(interval), pluralize(interval.messages, "message"))
            };
            write_list(out, &format!("only in {name}"), only.iter().map(messages))?;
        }
        Ok(())
    }

    fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        let mut json = Json::default();
        for direction in &self.directions {
            json.line(|json| {
                json.display_member("from", direction.from);
                json.member("sent", direction.sent);
                json.member("arrived", direction.arrived);
                json.member("lost", direction.lost);
                json.member("late", direction.late);
                json.member("unseen", direction.unseen_at_sender);
                json.member("outside", direction.outside);
                json.member("conversations", self.in_both.len());
                json.member("clock_offset", self.clock_offset as f64 / 1e6);
                for (index, name) in ["least", "median", "p99", "most"].into_iter().enumerate() {
                    json.member(name, direction.delay.map(|delay| delay[index] as f64 / 1e6));
                }
            });
        }
        for (name, only) in self.names.iter().zip(&self.only_in_one) {
            for interval in only {
                json.line(|json| {
                    json.display_member("only_in", name);
                    json.display_member("client", interval.client);
                    json.member("peer", interval.peer.map(|peer| peer.0));
                    json.member("messages", interval.messages);
                });
            }
        }
        self.directions.iter().for_each(|direction| direction.lost_messages.write_json(&mut json));
        json.write(&mut out)?;
        out.flush()
    }
}

/// Returns the intervals that only this capture has and that contain messages to match.
fn unmatched_intervals(pairs: &IntervalPairs, capture: usize) -> Vec<&PlayerInterval> {
    let same: HashSet<IntervalId> = pairs.matched.iter().map(|pair| pair[capture]).collect();
    let others = pairs.intervals[capture]
        .iter()
        .zip(0..)
        .filter(|(interval, id)| interval.messages > 0 && !same.contains(id));
    others.map(|(interval, _)| interval).collect()
}

/// Shows the player of an interval.
struct PlayerLabel<'a>(&'a PlayerInterval);

impl fmt::Display for PlayerLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.client)?;
        self.0.peer.map_or(Ok(()), |peer| write!(f, " ({peer})"))
    }
}

/// Writes a line for each text, up to [`MAX_LINES`].
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
        more => writeln!(out, "  {title}: {} more", group_digits(more as u64)),
    }
}

impl DirectionReport {
    fn delay_text(&self) -> String {
        let Some(delay) = self.delay else { return "–".into() };
        let [least, median, slow, most] = delay.map(|micros| micros as f64 / 1e3);
        format!("{least:.1} / {median:.1} / {slow:.1} / {most:.1}")
    }

    fn new(direction: &DirectionStats, from: Role, at_first: bool, offset: i64) -> Self {
        let (lost, unseen) = if at_first {
            (direction.unmatched[0], direction.unmatched[1])
        } else {
            (direction.unmatched[1], direction.unmatched[0])
        };
        // In the direction from the second end to the first, delays are negative.
        let delay_of = |time: i64| if at_first { time - offset } else { offset - time };
        let at = |share: f64| direction.quantile(if at_first { share } else { 1.0 - share }).map(delay_of);
        let ends = if at_first {
            [direction.min_delay(), direction.max_delay()]
        } else {
            [direction.max_delay(), direction.min_delay()]
        };
        let delay = match (ends[0], at(0.5), at(0.99), ends[1]) {
            (Some(least), Some(median), Some(slow), Some(most)) => {
                Some([delay_of(least), median, slow, delay_of(most)])
            }
            _ => None,
        };
        let late_from = delay.map_or(i64::MAX, |[_, median, ..]| (2 * median).max(median + LATE_MARGIN));
        let late =
            direction.delay_counts.iter().filter(|(time, _)| delay_of(**time * DELAY_STEP) > late_from);
        let late = late.map(|(_, count)| count).sum();
        let listed = direction.unmatched_messages[usize::from(!at_first)].clone();
        Self {
            lost_messages: LostMessages { from, count: lost, listed },
            from,
            sent: direction.matched + lost,
            arrived: direction.matched + unseen,
            lost,
            unseen_at_sender: unseen,
            outside: direction.outside,
            late,
            delay,
        }
    }
}

/// A late message takes at least twice the median, and this many microseconds longer than the median.
const LATE_MARGIN: i64 = 100_000;
/// The most conversations that are listed under one title.
const MAX_LINES: usize = 16;
