//! What the proxy sees of the conversations that pass: findings and queues.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_observe::{Content, Finding, Limits, Observer, Side};
use bcnet_transport::Time;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};

use crate::log::LineLimit;

/// Looks at everything that passes and says what it sees.
pub(super) struct Watch {
    observer: Observer,
    every: Option<Duration>,
    next: Option<Time>,
    /// Whether remarks are wanted.
    remarks: bool,
    /// The number of the last datagram.
    passed: u64,
    lines: LineLimit,
    /// How often each fault was found. There are few kinds, and the commonest comes early.
    found: Vec<(&'static str, u64)>,
    /// Nobody may be reading the queues, which must not hold up the game.
    output: NonBlocking,
    _writer: WorkerGuard,
}

impl Watch {
    /// Prints the queues this often, if at all.
    pub(super) fn new(every: Option<Duration>, remarks: bool) -> Self {
        let (output, writer) = tracing_appender::non_blocking(io::stdout());
        Self {
            observer: Observer::new(LIMITS),
            every,
            next: every.map(|every| Time::ZERO + every),
            remarks,
            passed: 0,
            lines: LineLimit::new(10, Duration::from_secs(1)),
            found: Vec::new(),
            output,
            _writer: writer,
        }
    }

    /// Returns how often each fault was found.
    pub(super) fn found(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.found.iter().copied()
    }

    /// A deciphered datagram goes from one address to another. Returns what is wrong with it, if it is wanted.
    pub(super) fn see(
        &mut self,
        (from, to): (SocketAddrV4, SocketAddrV4),
        content: &Content<'_>,
        now: Time,
    ) -> Option<String> {
        self.passed += 1;
        self.observer.observe(self.passed, now, from, to, content);
        self.take_findings(now)
    }

    /// Counts and logs what was found. What there is to remark on the last datagram.
    fn take_findings(&mut self, now: Time) -> Option<String> {
        let mut remark: Option<String> = None;
        while let Some(finding) = self.observer.poll_finding() {
            if !finding.what.is_fault() {
                continue;
            }
            self.count(finding.what.name());
            if let Some(held_back) = self.lines.pass(now) {
                self.log(&finding, held_back);
            }
            if self.remarks && finding.mark == self.passed {
                let text = remark.get_or_insert_default();
                let gap = if text.is_empty() { "" } else { "; " };
                let _ = write!(text, "{gap}{}", finding.what);
            }
        }
        remark
    }

    fn count(&mut self, kind: &'static str) {
        match self.found.iter_mut().find(|(name, _)| *name == kind) {
            Some((_, count)) => *count += 1,
            None => self.found.push((kind, 1)),
        }
    }

    fn log(&self, Finding { conversation, side, what, .. }: &Finding, held_back: u64) {
        let Some(talk) = self.observer.conversation(*conversation) else { return };
        let (from, to) = (talk.address(*side), talk.address(side.other()));
        tracing::info!(event = "finding", kind = what.name(), %from, %to, held_back, "{what}");
    }

    pub(super) const fn next_timeout(&self) -> Option<Time> {
        self.next
    }

    /// Time passes.
    pub(super) fn advance(&mut self, now: Time, wall: Duration) {
        self.observer.advance(now);
        self.take_findings(now);
        if let (Some(every), Some(next)) = (self.every, self.next)
            && next <= now
        {
            self.next = Some(now + every);
            self.dump(now, wall);
        }
    }

    /// Prints the queues of both sides of every conversation; `wall` is the time since 1970.
    pub(super) fn dump(&mut self, now: Time, wall: Duration) {
        let mut out = String::new();
        for talk in self.observer.conversations() {
            for side in [Side::First, Side::Second] {
                let Some(queues) = self.observer.queues(talk.id(), side, now) else { continue };
                let (from, to) = (talk.address(side), talk.address(side.other()));
                let _ = writeln!(out, "# {from} to {to}\n[{}] {queues}", time_of_day(wall));
            }
        }
        drop(self.output.write_all(out.as_bytes()));
    }
}

/// Returns in UTC, as dumps of the original engine write it.
fn time_of_day(wall: Duration) -> String {
    let (seconds, millis) = (wall.as_secs(), wall.subsec_millis());
    format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

const LIMITS: Limits = Limits { conversations: 256, messages: 512, findings: 256 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_day() {
        assert_eq!(time_of_day(Duration::from_millis(86_400_000 * 20_000 + 41_849_975)), "11:37:29.975");
    }
}
