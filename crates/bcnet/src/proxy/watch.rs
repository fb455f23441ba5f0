//! What the proxy sees of the conversations that pass: findings, queues, figures.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::observe::{Limits, Observer, Side};

/// Looks at everything that passes and says what it sees.
pub(super) struct Watch {
    observer: Observer,
    every: Option<Duration>,
    next: Option<Time>,
    passed: u64,
}

impl Watch {
    /// Prints the queues this often, if at all.
    pub(super) const fn new(every: Option<Duration>) -> Self {
        let next = if every.is_some() { Some(Time::ZERO) } else { None };
        Self { observer: Observer::new(LIMITS), every, next, passed: 0 }
    }

    /// A datagram goes from one address to another. What is wrong with it, if anything is.
    pub(super) fn see(
        &mut self,
        (from, to): (SocketAddrV4, SocketAddrV4),
        bytes: &[u8],
        now: Time,
    ) -> Option<String> {
        self.passed += 1;
        self.observer.observe(self.passed, now, from, to, bytes);
        let mut remark = String::new();
        while let Some(finding) = self.observer.poll_finding() {
            if finding.mark == self.passed && finding.what.is_fault() {
                let gap = if remark.is_empty() { "" } else { "; " };
                let _ = write!(remark, "{gap}{}", finding.what);
            }
        }
        (!remark.is_empty()).then_some(remark)
    }

    pub(super) const fn next_timeout(&self) -> Option<Time> {
        self.next
    }

    /// Time passes.
    pub(super) fn advance(&mut self, now: Time) {
        self.observer.advance(now);
        if let (Some(every), Some(next)) = (self.every, self.next)
            && next <= now
        {
            self.next = Some(now + every);
            if next > Time::ZERO {
                self.dump(now);
            }
        }
    }

    /// Prints the queues of both sides of every conversation.
    pub(super) fn dump(&self, now: Time) {
        let mut out = String::new();
        for talk in self.observer.conversations() {
            for side in [Side::First, Side::Second] {
                let Some(queues) = self.observer.queues(talk.id(), side, now) else { continue };
                let _ = writeln!(
                    out,
                    "{}\n[{:.3}] {queues}",
                    talk.address(side),
                    now.since(Time::ZERO).as_secs_f64()
                );
            }
        }
        // Nobody may be reading.
        drop(io::stdout().write_all(out.as_bytes()).and_then(|()| io::stdout().flush()));
    }
}

const LIMITS: Limits = Limits { conversations: 256, messages: 512, findings: 256 };
