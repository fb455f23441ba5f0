//! A terminal that shows what passes an interface: counters, conversations, faults as they come.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{Conversation, Finding, Observer};
use bcnet_transport::Time;
use bcnet_udp::Clock;
use terminal_size::{Height, Width};

use super::summary::side_name;
use super::tally::Tally;
use super::{End, Evidence, Sight, Sink};
use crate::number::{counted, thousands};

pub(super) struct Screen<W> {
    out: W,
    interface: String,
    clock: Clock,
    drawn: Option<Time>,
    packets: u64,
    datagrams: u64,
    /// How many datagrams there were when it was drawn last, and how many came in a second then.
    before: u64,
    rate: f64,
    tally: Tally,
    latest: VecDeque<String>,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, interface: &str) -> Self {
        Self {
            out,
            interface: interface.to_owned(),
            clock: Clock::start(),
            drawn: None,
            packets: 0,
            datagrams: 0,
            before: 0,
            rate: 0.0,
            tally: Tally::default(),
            latest: VecDeque::new(),
        }
    }

    /// Draws everything, unless that was done just now.
    fn draw(&mut self, observer: &Observer) -> io::Result<()> {
        let now = self.clock.now();
        let since = self.drawn.map(|drawn| now.since(drawn));
        if since.is_some_and(|since| since < REDRAW) {
            return Ok(());
        }
        if let Some(since) = since {
            self.rate = (self.datagrams - self.before) as f64 / since.as_secs_f64();
        }
        (self.drawn, self.before) = (Some(now), self.datagrams);
        let (Width(columns), Height(rows)) =
            terminal_size::terminal_size().unwrap_or((Width(80), Height(24)));
        let seconds = now.since(Time::ZERO).as_secs();
        let page = self.page(observer, seconds, usize::from(rows).saturating_sub(1));
        let mut text = String::from(HOME);
        for line in page {
            text.extend(line.chars().take(columns.into()));
            text.push_str(END_OF_LINE);
        }
        text.push_str(CLEAR_BELOW);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Returns as many lines as fit: counters, the latest conversations, the worst faults, the latest findings.
    fn page(&self, observer: &Observer, seconds: u64, rows: usize) -> Vec<String> {
        let mut talks: Vec<_> = observer.conversations().collect();
        talks.sort_by_key(|talk| std::cmp::Reverse(talk.last()));
        let mut lines = vec![
            format!(
                "{}  {}:{:02}:{:02}  {}, {} of the game ({:.0}/s), {}",
                self.interface,
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60,
                counted(self.packets, "packet"),
                thousands(self.datagrams),
                self.rate,
                counted(talks.len() as u64 + observer.rest().conversations, "conversation"),
            ),
            "Ctrl-C ends it".into(),
            String::new(),
        ];
        lines.push(format!(
            "{:<34}{:>12}{:>10}{:>11}{:>12}",
            "conversation", "datagrams", "resent", "stale", "round trip"
        ));
        let shown = talks.len().min((rows / 3).max(1));
        talks.iter().take(shown).for_each(|talk| lines.extend(conversation(talk)));
        if talks.len() > shown {
            lines.push(format!("and {} that were heard of longer ago", talks.len() - shown));
        }
        let faults: Vec<_> =
            self.tally.ranked().into_iter().filter(|tallied| tallied.kind.weight > 0).collect();
        if !faults.is_empty() {
            lines.extend([String::new(), "faults so far, the worst first".into()]);
            let kinds = faults.iter().take((rows / 4).max(1));
            lines.extend(
                kinds.map(|tallied| format!("{:>11}  {}", thousands(tallied.count), tallied.kind.title)),
            );
        }
        if !self.latest.is_empty() {
            lines.extend([String::new(), "the latest".into()]);
            let room = rows.saturating_sub(lines.len());
            let from = self.latest.len().saturating_sub(room);
            lines.extend(self.latest.iter().skip(from).cloned());
        }
        lines.truncate(rows);
        lines
    }

    fn note(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) {
        self.tally.add(finding, place, observer);
        if !finding.what.is_fault() {
            return;
        }
        let mut line = String::new();
        let time = finding.at.as_micros() / 1000 % 86_400_000;
        let (seconds, millis) = (time / 1000, time % 1000);
        let _ =
            write!(line, "{:02}:{:02}:{:02}.{millis:03}  ", seconds / 3600, seconds / 60 % 60, seconds % 60);
        let _ = write!(line, "{}: {}", finding.by, finding.what);
        if self.latest.len() >= MAX_LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(line);
    }
}

/// Two lines, one for each side, of 80 columns at most.
fn conversation(talk: &Conversation<'_>) -> [String; 2] {
    talk.sides().map(|side| {
        let traffic = talk.traffic(side);
        let trip = talk
            .round_trip(side)
            .map_or_else(|| "–".into(), |trip| format!("{:.0} ms", trip.as_secs_f64() * 1e3));
        format!(
            "{:<34}{:>12}{:>10}{:>11}{trip:>12}",
            side_name(talk, side),
            thousands(traffic.datagrams),
            thousands(traffic.retransmissions.messages),
            thousands(traffic.stale_acks.messages),
        )
    })
}

impl<W: Write> Sink for Screen<W> {
    fn idle(&mut self, observer: &Observer) -> io::Result<()> {
        self.draw(observer)
    }

    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        self.packets = sight.packet.number;
        self.datagrams += 1;
        let place = Evidence::of(sight.packet);
        sight.findings.iter().for_each(|finding| self.note(finding, Some(place), sight.observer));
        self.draw(sight.observer)
    }

    fn find(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) -> io::Result<()> {
        self.note(finding, place, observer);
        Ok(())
    }

    /// The summary follows where all this was.
    fn finish(&mut self, _: &End<'_>) -> io::Result<()> {
        self.out.write_all([HOME, CLEAR_BELOW].concat().as_bytes())?;
        self.out.flush()
    }
}

const REDRAW: Duration = Duration::from_millis(250);
const MAX_LATEST: usize = 100;
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\n";
const CLEAR_BELOW: &str = "\x1b[J";
