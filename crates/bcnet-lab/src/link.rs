//! One direction of a network path, with every fault that a real one has.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::time::Duration;

use bcnet_transport::Time;

use crate::rng::Rng;

/// What a link does to datagrams. The default does nothing at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// The share of datagrams that are lost.
    pub loss: f64,
    /// How many datagrams are lost in a row, on average, once one is lost.
    pub burst: f64,
    /// The share that arrives twice.
    pub duplicate: f64,
    /// The share that is held up by [`reorder_by`](Self::reorder_by), so that later ones overtake it.
    pub reorder: f64,
    /// How long those are held up.
    pub reorder_by: Duration,
    /// The share of which a byte is changed.
    pub corrupt: f64,
    /// The time under way.
    pub delay: Duration,
    /// How much the time under way varies, up and down.
    pub jitter: Duration,
    /// Bits per second; 0 is no limit.
    pub bandwidth: u64,
    /// How many datagrams wait at most for their turn, if there is a limit.
    pub queue: usize,
    /// Times during which nothing passes.
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
    /// Returns whether anything is left to chance.
    #[must_use]
    pub(crate) fn has_chance(&self) -> bool {
        [self.loss, self.duplicate, self.reorder, self.corrupt].iter().any(|share| *share > 0.0)
            || !self.jitter.is_zero()
    }
}

/// What happens to chosen datagrams, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// Those that are lost.
    pub lose: Vec<u64>,
    /// Those that arrive twice.
    pub double: Vec<u64>,
}

/// What happened on a link so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Datagrams that were lost by chance.
    pub lost: u64,
    /// Datagrams that found the queue full.
    pub dropped: u64,
    /// Datagrams that met a partition.
    pub cut: u64,
    /// Datagrams that arrived twice.
    pub duplicated: u64,
    /// Datagrams that were held up.
    pub reordered: u64,
    /// Datagrams that were changed.
    pub corrupted: u64,
}

impl AddAssign for LinkStats {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.dropped += other.dropped;
        self.cut += other.cut;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
    }
}

/// How a datagram passes a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub at: Time,
    /// Which byte is XORed with what, if it is corrupted; the place is to be taken modulo the length.
    pub corrupt: Option<(u64, u8)>,
}

/// One direction of a path between two nodes.
#[derive(Debug, Clone)]
pub struct Link {
    faults: Faults,
    rng: Rng,
    /// Whether the last datagram was lost.
    losing: bool,
    /// When each datagram in the queue will have left the line.
    leaving: VecDeque<Time>,
    script: Script,
    /// How many datagrams were sent before the script began.
    scripted: u64,
    stats: LinkStats,
}

impl Link {
    /// Makes a link with its own chance.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            rng: Rng::new(seed),
            losing: false,
            leaving: VecDeque::new(),
            script: Script::default(),
            scripted: 0,
            stats: LinkStats::default(),
        }
    }

    /// Returns what happened so far.
    #[must_use]
    pub(crate) const fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Changes the faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Changes the script; the next datagram is its first.
    pub(crate) fn set_script(&mut self, script: Script) {
        self.script = script;
        self.scripted = self.stats.sent;
    }

    /// A datagram of `len` bytes enters. Up to two come out.
    pub fn pass(&mut self, len: usize, now: Time) -> [Option<Arrival>; 2] {
        self.stats.sent += 1;
        self.stats.bytes += len as u64;
        if self.faults.partitions.iter().any(|(from, to)| (*from..*to).contains(&now)) {
            self.stats.cut += 1;
            return [None, None];
        }
        let place = self.stats.sent - self.scripted;
        if self.is_lost() | self.script.lose.contains(&place) {
            self.stats.lost += 1;
            return [None, None];
        }
        let Some(departs) = self.departs(len, now) else {
            self.stats.dropped += 1;
            return [None, None];
        };
        let first = self.arrival(departs);
        let twice = self.rng.chance(self.faults.duplicate) | self.script.double.contains(&place);
        let second = twice.then(|| {
            self.stats.duplicated += 1;
            self.arrival(departs)
        });
        [Some(first), second]
    }

    /// Loss in bursts is a chain of two states with the same share of losses.
    fn is_lost(&mut self) -> bool {
        let Faults { loss, burst, .. } = self.faults;
        let begin = if burst > 1.0 { loss / (burst * (1.0 - loss)) } else { loss };
        let go_on = if burst > 1.0 { 1.0 - 1.0 / burst } else { loss };
        self.losing = self.rng.chance(if self.losing { go_on } else { begin });
        self.losing
    }

    /// Returns when a datagram has left the line, after those before it.
    fn departs(&mut self, len: usize, now: Time) -> Option<Time> {
        if self.faults.bandwidth == 0 {
            return Some(now);
        }
        while self.leaving.front().is_some_and(|at| *at <= now) {
            self.leaving.pop_front();
        }
        // The one that is being sent does not wait.
        if self.leaving.len() > self.faults.queue {
            return None;
        }
        let each = Duration::from_micros((len as u64 + IP_AND_UDP) * 8_000_000 / self.faults.bandwidth);
        let departs = self.leaving.back().map_or(now, |last| (*last).max(now)) + each;
        self.leaving.push_back(departs);
        Some(departs)
    }

    fn arrival(&mut self, departs: Time) -> Arrival {
        let Faults { delay, jitter, .. } = self.faults;
        let swing = jitter.mul_f64(2.0 * self.rng.share());
        let mut at = departs + delay.saturating_sub(jitter) + swing;
        if self.rng.chance(self.faults.reorder) {
            self.stats.reordered += 1;
            at = at + self.faults.reorder_by;
        }
        let corrupt = self.rng.chance(self.faults.corrupt).then(|| {
            self.stats.corrupted += 1;
            (self.rng.any(), 1 << self.rng.below(8))
        });
        Arrival { at, corrupt }
    }
}

/// What a datagram costs on the line besides its own bytes.
const IP_AND_UDP: u64 = 28;
