//! One direction of a network path, with simulated faults.
//!
//! The faults are loss, duplicates, reordering, corruption, delay, bandwidth limits and partitions.
//!
//! A [`Link`] decides when each datagram arrives, if at all. Each link has its own seed. It stores no bytes.
//! [`SimulatedLink`] stores them: it can be put around a real socket, and the driver in `bcnet-udp` does that.

mod rng;
mod simulated;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::AddAssign;
use core::time::Duration;

pub use rng::Rng;
pub use simulated::SimulatedLink;

use crate::time::Time;

/// Faults of a link. The default delivers every datagram at once and unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// Probability that a datagram is lost. The default is 0.
    pub loss: f64,
    /// Mean number of datagrams lost in a row. The default is 1.
    pub burst: f64,
    /// Probability that a datagram arrives twice. The default is 0.
    pub duplicate: f64,
    /// Probability that a datagram is delayed so that later ones overtake it. The default is 0.
    ///
    /// The delay is [`reorder_by`](Self::reorder_by).
    pub reorder: f64,
    /// Extra delay of reordered datagrams. The default is zero.
    pub reorder_by: Duration,
    /// Probability that one bit of a datagram is flipped. The default is 0.
    pub corrupt: f64,
    /// Delay of a datagram. The default is zero.
    pub delay: Duration,
    /// Maximum deviation from the delay, up or down. The default is zero.
    pub jitter: Duration,
    /// Bandwidth in bits per second. The default is 0: no limit.
    pub bandwidth: u64,
    /// Maximum number of datagrams that wait for bandwidth. The default is no limit.
    pub queue: usize,
    /// Time ranges in which the link drops every datagram. The default is none.
    pub partitions: Vec<(Time, Time)>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0.0,
            burst: 1.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::ZERO,
            corrupt: 0.0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            bandwidth: 0,
            queue: usize::MAX,
            partitions: Vec::new(),
        }
    }
}

impl Faults {
    /// Returns whether any fault is random.
    #[must_use]
    pub fn is_random(&self) -> bool {
        [self.loss, self.duplicate, self.reorder, self.corrupt].iter().any(|probability| *probability > 0.0)
            || !self.jitter.is_zero()
    }
}

/// Faults of chosen datagrams. Their numbers count the datagrams on the link, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultScript {
    /// Datagrams that are lost.
    pub lose: Vec<u64>,
    /// Datagrams that arrive twice.
    pub double: Vec<u64>,
}

/// Counters of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Datagrams lost, at random or by script.
    pub lost: u64,
    /// Datagrams dropped because the queue was full.
    pub dropped: u64,
    /// Datagrams dropped by a partition.
    pub partitioned: u64,
    /// Datagrams duplicated.
    pub duplicated: u64,
    /// Datagrams delayed to arrive out of order.
    pub reordered: u64,
    /// Datagrams corrupted.
    pub corrupted: u64,
}

impl AddAssign for LinkStats {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.dropped += other.dropped;
        self.partitioned += other.partitioned;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
    }
}

/// One arrival of a datagram at the end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkArrival {
    /// Arrival time.
    pub at: Time,
    /// Position and XOR mask of the changed byte, if corrupted. Take the position modulo the length.
    pub corrupt: Option<(u64, u8)>,
}

/// One direction of a path between two nodes.
#[derive(Debug, Clone)]
pub struct Link {
    faults: Faults,
    rng: Rng,
    /// `true` if the last datagram was lost.
    in_loss_burst: bool,
    /// Time when the last byte of each queued datagram is sent.
    departures: VecDeque<Time>,
    script: FaultScript,
    /// Datagrams sent before the script began.
    sent_before_script: u64,
    stats: LinkStats,
}

impl Link {
    /// Creates a link with its own random numbers.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            rng: Rng::new(seed),
            in_loss_burst: false,
            departures: VecDeque::new(),
            script: FaultScript::default(),
            sent_before_script: 0,
            stats: LinkStats::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Replaces the faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Replaces the script; the next datagram counts as its first.
    pub fn set_script(&mut self, script: FaultScript) {
        self.script = script;
        self.sent_before_script = self.stats.sent;
    }

    /// Sends a datagram of `len` bytes. Returns no arrival if it is lost, two if it is duplicated.
    pub fn transmit(&mut self, len: usize, now: Time) -> [Option<LinkArrival>; 2] {
        self.stats.sent += 1;
        self.stats.bytes += len as u64;
        if self.faults.partitions.iter().any(|(from, to)| (*from..*to).contains(&now)) {
            self.stats.partitioned += 1;
            return [None, None];
        }
        let ordinal = self.stats.sent - self.sent_before_script;
        if self.draw_loss() | self.script.lose.contains(&ordinal) {
            self.stats.lost += 1;
            return [None, None];
        }
        let Some(departs) = self.departure_time(len, now) else {
            self.stats.dropped += 1;
            return [None, None];
        };
        let first = self.draw_arrival(departs);
        let twice = self.rng.chance(self.faults.duplicate) | self.script.double.contains(&ordinal);
        let second = twice.then(|| {
            self.stats.duplicated += 1;
            self.draw_arrival(departs)
        });
        [Some(first), second]
    }

    /// Draws whether the next datagram is lost. Bursts use a two-state Markov chain with the mean loss `loss`.
    fn draw_loss(&mut self) -> bool {
        let Faults { loss, burst, .. } = self.faults;
        let begin = if burst > 1.0 { loss / (burst * (1.0 - loss)) } else { loss };
        let continues = if burst > 1.0 { 1.0 - 1.0 / burst } else { loss };
        self.in_loss_burst = self.rng.chance(if self.in_loss_burst { continues } else { begin });
        self.in_loss_burst
    }

    /// Returns the time when the last byte of a datagram is sent, or `None` if the queue is full.
    fn departure_time(&mut self, len: usize, now: Time) -> Option<Time> {
        if self.faults.bandwidth == 0 {
            return Some(now);
        }
        while self.departures.front().is_some_and(|at| *at <= now) {
            self.departures.pop_front();
        }
        // The datagram that is being sent does not count as waiting.
        if self.departures.len() > self.faults.queue {
            return None;
        }
        let each =
            Duration::from_micros((len as u64 + IP_UDP_HEADER_BYTES) * 8_000_000 / self.faults.bandwidth);
        let departs = self.departures.back().map_or(now, |last| (*last).max(now)) + each;
        self.departures.push_back(departs);
        Some(departs)
    }

    fn draw_arrival(&mut self, departs: Time) -> LinkArrival {
        let Faults { delay, jitter, .. } = self.faults;
        let swing = jitter.mul_f64(2.0 * self.rng.fraction());
        let mut at = departs + delay.saturating_sub(jitter) + swing;
        if self.rng.chance(self.faults.reorder) {
            self.stats.reordered += 1;
            at = at + self.faults.reorder_by;
        }
        let corrupt = self.rng.chance(self.faults.corrupt).then(|| {
            self.stats.corrupted += 1;
            (self.rng.next_u64(), 1 << self.rng.below(8))
        });
        LinkArrival { at, corrupt }
    }
}

/// Bytes of the IP and UDP headers, which also use bandwidth.
const IP_UDP_HEADER_BYTES: u64 = 28;
