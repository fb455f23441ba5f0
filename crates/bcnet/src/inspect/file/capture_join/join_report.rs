//! What two captures tell together, for people and as JSON.

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

/// The result, with the clocks set right.
pub(super) struct JoinReport<'a> {
    names: [String; 2],
    /// What the second clock shows more than the first.
    clock_offset: i64,
    directions: [DirectionReport; 2],
    /// The conversations of both captures.
    in_both: Vec<[&'a PlayerInterval; 2]>,
    /// The conversations of one capture.
    only_in_one: [Vec<&'a PlayerInterval>; 2],
}

struct DirectionReport {
    from: Role,
    sent: u64,
    arrived: u64,
    lost: u64,
    /// Arrived, and not seen where it was sent.
    unseen_at_sender: u64,
    /// Seen where the other capture had not begun or was over.
    outside: u64,
    late: u64,
    /// One-way delay in microseconds: least, median, 99 of 100, most.
    delay: Option<[i64; 4]>,
    lost_messages: LostMessages,
}

impl<'a> JoinReport<'a> {
    pub(super) fn new(ways: [DirectionStats; 2], names: [String; 2], pairs: &'a IntervalPairs) -> Self {
        let [from_client, from_host] = &ways;
        // Sent at the first place: the shortest time counts; sent at the second: the longest, which is the least negative.
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
        let direction = |way: &DirectionStats, from: Role| {
            let at_first = (from == Role::Client) == client_first;
            DirectionReport::new(way, from, at_first, offset)
        };
        let ways = [direction(from_client, Role::Client), direction(from_host, Role::Host)];
        let [a, b] = &pairs.intervals;
        let both = pairs
            .matched
            .iter()
            .filter_map(|[one, other]| Some([a.get(*one as usize)?, b.get(*other as usize)?]));
        Self {
            names,
            clock_offset: offset,
            directions: ways,
            in_both: both.collect(),
            only_in_one: [0, 1].map(|place| unmatched_intervals(pairs, place)),
        }
    }

    pub(super) fn write(&self, mut out: impl Write, json: bool) -> io::Result<()> {
        if json {
            return self.write_json(out);
        }
        let [a, b] = &self.names;
        writeln!(out, "{a} and {b}: the clock of the second shows {:+.3} s", self.clock_offset as f64 / 1e6)?;
        self.write_conversations(&mut out)?;
        let delays = self.directions.each_ref().map(DirectionReport::delay_text);
        let title = "one-way delay, ms";
        let width = delays.iter().map(|delay| delay.chars().count()).fold(title.len(), usize::max);
        writeln!(
            out,
            "\n  {:<16}{:>10}{:>10}{:>18}{:>10}  {title:>width$}",
            "from", "sent", "arrived", "lost", "late"
        )?;
        for (way, delay) in self.directions.iter().zip(delays) {
            let percent = way.lost as f64 * 100.0 / way.sent.max(1) as f64;
            let lost = format!("{}, {percent:.2} %", group_digits(way.lost));
            let (sent, arrived, late) =
                (group_digits(way.sent), group_digits(way.arrived), group_digits(way.late));
            writeln!(
                out,
                "  {:<16}{sent:>10}{arrived:>10}{lost:>18}{late:>10}  {delay:>width$}",
                way.from.to_string()
            )?;
        }
        for way in self.directions.iter().filter(|way| way.unseen_at_sender > 0) {
            let (unseen, from) = (group_digits(way.unseen_at_sender), way.from);
            writeln!(
                out,
                "  not in the capture: {unseen} messages of the {from} that arrived were not seen where it sent them"
            )?;
        }
        let outside: u64 = self.directions.iter().map(|way| way.outside).sum();
        if outside > 0 {
            let outside = group_digits(outside);
            writeln!(
                out,
                "  not counted: {outside} messages before the other capture began or after it ended"
            )?;
        }
        writeln!(
            out,
            "\n  delay is least / median / 99 of 100 / most, if the fastest way there and back take the same time"
        )?;
        self.directions.iter().try_for_each(|way| way.lost_messages.write(&mut out))?;
        out.flush()
    }

    fn write_conversations(&self, out: &mut impl Write) -> io::Result<()> {
        let both = self.in_both.iter().map(|[one, other]| {
            let elsewhere = (one.client != other.client).then(|| format!("{} = ", one.client));
            format!("{}{}", elsewhere.unwrap_or_default(), PlayerLabel(other))
        });
        write_list(out, "in both", both)?;
        for (name, only) in self.names.iter().zip(&self.only_in_one) {
            let messages = |stay: &&PlayerInterval| {
                format!("{} with {}", PlayerLabel(stay), pluralize(stay.messages, "message"))
            };
            write_list(out, &format!("only in {name}"), only.iter().map(messages))?;
        }
        Ok(())
    }

    fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        let mut json = Json::default();
        for way in &self.directions {
            json.line(|json| {
                json.display_member("from", way.from);
                json.member("sent", way.sent);
                json.member("arrived", way.arrived);
                json.member("lost", way.lost);
                json.member("late", way.late);
                json.member("unseen", way.unseen_at_sender);
                json.member("outside", way.outside);
                json.member("conversations", self.in_both.len());
                json.member("clock_offset", self.clock_offset as f64 / 1e6);
                for (place, name) in ["least", "median", "p99", "most"].into_iter().enumerate() {
                    json.member(name, way.delay.map(|delay| delay[place] as f64 / 1e6));
                }
            });
        }
        for (name, only) in self.names.iter().zip(&self.only_in_one) {
            for stay in only {
                json.line(|json| {
                    json.display_member("only_in", name);
                    json.display_member("client", stay.client);
                    json.member("peer", stay.peer.map(|peer| peer.0));
                    json.member("messages", stay.messages);
                });
            }
        }
        self.directions.iter().for_each(|way| way.lost_messages.write_json(&mut json));
        json.write(&mut out)?;
        out.flush()
    }
}

/// Returns the stays that only this capture has, without those that hold nothing to be joined.
fn unmatched_intervals(pairs: &IntervalPairs, place: usize) -> Vec<&PlayerInterval> {
    let same: HashSet<IntervalId> = pairs.matched.iter().map(|pair| pair[place]).collect();
    let others =
        pairs.intervals[place].iter().zip(0..).filter(|(stay, id)| stay.messages > 0 && !same.contains(id));
    others.map(|(stay, _)| stay).collect()
}

/// A player of a stay.
struct PlayerLabel<'a>(&'a PlayerInterval);

impl fmt::Display for PlayerLabel<'_> {
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
        more => writeln!(out, "  {title}: {} more", group_digits(more as u64)),
    }
}

impl DirectionReport {
    fn delay_text(&self) -> String {
        let Some(delay) = self.delay else { return "–".into() };
        let [least, median, slow, most] = delay.map(|micros| micros as f64 / 1e3);
        format!("{least:.1} / {median:.1} / {slow:.1} / {most:.1}")
    }

    fn new(way: &DirectionStats, from: Role, at_first: bool, offset: i64) -> Self {
        let (lost, unseen) = if at_first {
            (way.unmatched[0], way.unmatched[1])
        } else {
            (way.unmatched[1], way.unmatched[0])
        };
        // From the second place to the first the times count backwards.
        let delay_of = |time: i64| if at_first { time - offset } else { offset - time };
        let at = |share: f64| way.quantile(if at_first { share } else { 1.0 - share }).map(delay_of);
        let ends =
            if at_first { [way.min_delay(), way.max_delay()] } else { [way.max_delay(), way.min_delay()] };
        let delay = match (ends[0], at(0.5), at(0.99), ends[1]) {
            (Some(least), Some(median), Some(slow), Some(most)) => {
                Some([delay_of(least), median, slow, delay_of(most)])
            }
            _ => None,
        };
        let late_from = delay.map_or(i64::MAX, |[_, median, ..]| (2 * median).max(median + LATE_MARGIN));
        let late = way.delay_counts.iter().filter(|(time, _)| delay_of(**time * DELAY_STEP) > late_from);
        let late = late.map(|(_, count)| count).sum();
        let listed = way.unmatched_messages[usize::from(!at_first)].clone();
        Self {
            lost_messages: LostMessages { from, count: lost, listed },
            from,
            sent: way.matched + lost,
            arrived: way.matched + unseen,
            lost,
            unseen_at_sender: unseen,
            outside: way.outside,
            late,
            delay,
        }
    }
}

/// So much more than usual is late, in microseconds.
const LATE_MARGIN: i64 = 100_000;
/// As many conversations of a kind are named.
const MAX_LINES: usize = 16;
