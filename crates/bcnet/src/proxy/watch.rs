//! What the proxy sees of the conversations that pass: findings and queues.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_observe::{Content, Finding, HandledAck, Limits, Observed, Observer, Side};
use bcnet_transport::Time;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};

use crate::log::LineLimit;
use crate::queue_dump::QueueDump;

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
    /// Prints the queues this often, if at all, and logs what is done with each ACK if that is wanted.
    pub(super) fn new(every: Option<Duration>, remarks: bool, acks: bool) -> Self {
        let (output, writer) = tracing_appender::non_blocking(io::stdout());
        let mut observer = Observer::new(LIMITS);
        if acks {
            observer.follow_acks();
        }
        Self {
            observer,
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
        if let Observed::Datagram(_, conversation, _) =
            self.observer.observe(self.passed, now, from, to, content)
        {
            while let Some(handled) = self.observer.poll_handled_ack(conversation) {
                self.log_ack(&handled);
            }
        }
        self.take_findings(now)
    }

    /// Logs what a node does with an ACK, as a hook in the original engine would.
    fn log_ack(&self, handled: &HandledAck) {
        let Some(talk) = self.observer.conversation(handled.conversation) else { return };
        let (by, from) = (talk.address(handled.side), talk.address(handled.side.other()));
        let text = handled.to_string();
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let waiting = lines.map(str::trim).collect::<Vec<_>>().join(", ");
        let cleared = handled.cleared().is_some();
        tracing::info!(event = "handle_ack", %by, %from, cleared, waiting, "{head}");
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
                if let Some(dump) = QueueDump::take(&self.observer, talk, side, now) {
                    dump.write(&mut out, wall);
                }
            }
        }
        drop(self.output.write_all(out.as_bytes()));
    }
}

const LIMITS: Limits = Limits { conversations: 256, messages: 512, findings: 256 };
