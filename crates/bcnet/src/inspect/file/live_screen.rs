//! Shows live traffic of an interface on a terminal: counters, conversations and faults.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use bcnet_observe::{Conversation, Finding, Observer};
use bcnet_transport::Time;
use bcnet_udp::Clock;
use terminal_size::{Height, Width};

use super::finding_counts::FindingCounts;
use super::summary::side_name;
use super::{AnalyzedDatagram, CaptureEnd, PacketLocation, Sink};
use crate::number_format::{group_digits, pluralize};

pub(super) struct LiveScreen<W> {
    out: W,
    interface: String,
    clock: Clock,
    last_drawn: Option<Time>,
    packets: u64,
    datagrams: u64,
    /// The number of datagrams at the last redraw, and the rate per second at that time.
    datagrams_at_last_draw: u64,
    rate: f64,
    finding_counts: FindingCounts,
    latest_faults: VecDeque<String>,
}

impl<W: Write> LiveScreen<W> {
    pub(super) fn new(out: W, interface: &str) -> Self {
        Self {
            out,
            interface: interface.to_owned(),
            clock: Clock::start(),
            last_drawn: None,
            packets: 0,
            datagrams: 0,
            datagrams_at_last_draw: 0,
            rate: 0.0,
            finding_counts: FindingCounts::default(),
            latest_faults: VecDeque::new(),
        }
    }

    /// Redraws the screen, unless the last redraw was a moment ago.
    fn draw(&mut self, observer: &Observer) -> io::Result<()> {
        let now = self.clock.now();
        let since = self.last_drawn.map(|drawn| now.since(drawn));
        if since.is_some_and(|since| since < REDRAW_INTERVAL) {
            return Ok(());
        }
        if let Some(since) = since {
            self.rate = (self.datagrams - self.datagrams_at_last_draw) as f64 / since.as_secs_f64();
        }
        (self.last_drawn, self.datagrams_at_last_draw) = (Some(now), self.datagrams);
        let (Width(columns), Height(rows)) =
            terminal_size::terminal_size().unwrap_or((Width(80), Height(24)));
        let seconds = now.since(Time::ZERO).as_secs();
        let page = self.render(observer, seconds, usize::from(rows).saturating_sub(1));
        let mut text = String::from(CURSOR_HOME);
        for line in page {
            text.extend(line.chars().take(columns.into()));
            text.push_str(END_OF_LINE);
        }
        text.push_str(CLEAR_BELOW);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Returns as many lines as fit: counters, latest conversations, worst faults, latest findings.
    fn render(&self, observer: &Observer, seconds: u64, rows: usize) -> Vec<String> {
        let mut conversations: Vec<_> = observer.conversations().collect();
        conversations.sort_by_key(|conversation| std::cmp::Reverse(conversation.last_seen()));
        let mut lines = vec![
            format!(
                "{}  {}:{:02}:{:02}  {}, {} of the game ({:.0}/s), {}",
                self.interface,
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60,
                pluralize(self.packets, "packet"),
                group_digits(self.datagrams),
                self.rate,
                pluralize(
                    conversations.len() as u64 + observer.evicted_counters().conversations,
                    "conversation"
                ),
            ),
            "Ctrl-C to stop".into(),
            String::new(),
        ];
        lines.push(format!(
            "{:<34}{:>12}{:>10}{:>11}{:>12}",
            "conversation", "datagrams", "resent", "stale", "round trip"
        ));
        let shown = conversations.len().min((rows / 3).max(1));
        conversations
            .iter()
            .take(shown)
            .for_each(|conversation| lines.extend(conversation_lines(conversation)));
        if conversations.len() > shown {
            lines.push(format!("and {} older conversations", conversations.len() - shown));
        }
        let faults: Vec<_> =
            self.finding_counts.by_severity().into_iter().filter(|stats| stats.class.severity > 0).collect();
        if !faults.is_empty() {
            lines.extend([String::new(), "faults so far, worst first".into()]);
            let kinds = faults.iter().take((rows / 4).max(1));
            lines.extend(
                kinds.map(|stats| format!("{:>11}  {}", group_digits(stats.count), stats.class.title)),
            );
        }
        if !self.latest_faults.is_empty() {
            lines.extend([String::new(), "latest faults".into()]);
            let room = rows.saturating_sub(lines.len());
            let from = self.latest_faults.len().saturating_sub(room);
            lines.extend(self.latest_faults.iter().skip(from).cloned());
        }
        lines.truncate(rows);
        lines
    }

    fn add_finding(&mut self, finding: &Finding, place: Option<PacketLocation>, observer: &Observer) {
        self.finding_counts.add(finding, place, observer);
        if !finding.kind.is_fault() {
            return;
        }
        let mut line = String::new();
        let time = finding.at.as_micros() / 1000 % 86_400_000;
        let (seconds, millis) = (time / 1000, time % 1000);
        let _ =
            write!(line, "{:02}:{:02}:{:02}.{millis:03}  ", seconds / 3600, seconds / 60 % 60, seconds % 60);
        let _ = write!(line, "{}: {}", finding.by, finding.kind);
        if self.latest_faults.len() >= MAX_LATEST_FAULTS {
            self.latest_faults.pop_front();
        }
        self.latest_faults.push_back(line);
    }
}

/// Returns two lines, one for each side, of at most 80 columns.
fn conversation_lines(conversation: &Conversation<'_>) -> [String; 2] {
    conversation.client_and_host().map(|side| {
        let traffic = conversation.counters(side);
        let trip = conversation
            .rtt(side)
            .map_or_else(|| "–".into(), |trip| format!("{:.0} ms", trip.as_secs_f64() * 1e3));
        format!(
            "{:<34}{:>12}{:>10}{:>11}{trip:>12}",
            side_name(conversation, side),
            group_digits(traffic.datagrams),
            group_digits(traffic.retransmissions.messages),
            group_digits(traffic.stale_acks.messages),
        )
    })
}

impl<W: Write> Sink for LiveScreen<W> {
    fn on_idle(&mut self, observer: &Observer) -> io::Result<()> {
        self.draw(observer)
    }

    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        self.packets = analyzed.packet.number;
        self.datagrams += 1;
        let place = PacketLocation::of(analyzed.packet);
        analyzed
            .findings
            .iter()
            .for_each(|finding| self.add_finding(finding, Some(place), analyzed.observer));
        self.draw(analyzed.observer)
    }

    fn on_finding(
        &mut self,
        finding: &Finding,
        place: Option<PacketLocation>,
        observer: &Observer,
    ) -> io::Result<()> {
        self.add_finding(finding, place, observer);
        Ok(())
    }

    /// Clears the screen; the summary follows in its place.
    fn on_end(&mut self, _: &CaptureEnd<'_>) -> io::Result<()> {
        self.out.write_all([CURSOR_HOME, CLEAR_BELOW].concat().as_bytes())?;
        self.out.flush()
    }
}

const REDRAW_INTERVAL: Duration = Duration::from_millis(250);
const MAX_LATEST_FAULTS: usize = 100;
const CURSOR_HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\n";
const CLEAR_BELOW: &str = "\x1b[J";
