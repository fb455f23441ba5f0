//! How long state updates wait for company.
//!
//! With time to spare they do not: each is passed on in the turn in which it came. As relaying nears the share of a core that
//! it may take, they wait for those that come next, so that one datagram carries several. Nothing else ever waits.

use std::time::Duration;

use bcnet_transport::Time;

/// What the host of the server allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    /// The share of a core that relaying may take.
    pub(super) budget: f64,
    /// How long state updates wait at the least, and at the most.
    pub(super) min: Duration,
    pub(super) max: Duration,
}

/// The law of one thread: from what relaying costs to how long state updates wait.
#[derive(Debug)]
pub(super) struct Coalescing {
    pub(super) limits: Limits,
    /// What relaying took of a core lately.
    share: f64,
    /// What it took since then.
    busy: Duration,
    since: Time,
}

impl Coalescing {
    pub(super) const fn new(limits: Limits) -> Self {
        Self { limits, share: 0.0, busy: Duration::ZERO, since: Time::ZERO }
    }

    /// Relaying took so long.
    pub(super) fn add(&mut self, busy: Duration) {
        self.busy += busy;
    }

    /// Time has passed.
    pub(super) fn advance(&mut self, now: Time) {
        let elapsed = now.since(self.since);
        if elapsed < PERIOD {
            return;
        }
        let latest = (self.busy.as_secs_f64() / elapsed.as_secs_f64()).min(1.0);
        let kept = KEEP.powf(elapsed.as_secs_f64() / PERIOD.as_secs_f64());
        self.share = latest + (self.share - latest) * kept;
        (self.busy, self.since) = (Duration::ZERO, now);
    }

    /// Returns the share of a core that relaying took lately.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// Returns how long state updates wait for company.
    pub(super) fn window(&self) -> Duration {
        let Limits { budget, min, max } = self.limits;
        let opens_at = budget * OPENS_AT;
        let opened = ((self.share - opens_at) / (budget - opens_at)).clamp(0.0, 1.0);
        min + max.saturating_sub(min).mul_f64(opened)
    }
}

/// What relaying costs is reckoned up this often, and then so much of what was known before counts.
const PERIOD: Duration = Duration::from_millis(50);
const KEEP: f64 = 0.75;
/// The window begins to open at this part of the budget, and is wide open when all of it is used.
const OPENS_AT: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { budget: 0.5, min: Duration::ZERO, max: Duration::from_millis(20) };

    /// Lets time pass from `from` on, in turns of a millisecond of which relaying takes a share. Returns when it is.
    fn pass(law: &mut Coalescing, from: Time, length: Duration, share: f64) -> Time {
        let turn = Duration::from_millis(1);
        let mut now = from;
        while now < from + length {
            now = now + turn;
            law.advance(now);
            law.add(turn.mul_f64(share));
        }
        now
    }

    #[test]
    fn nothing_waits_while_there_is_time_to_spare() {
        let mut law = Coalescing::new(LIMITS);
        assert_eq!(law.window(), Duration::ZERO);
        pass(&mut law, Time::ZERO, Duration::from_secs(10), 0.37);
        assert!((law.share() - 0.37).abs() < 0.01, "{}", law.share());
        assert_eq!(law.window(), Duration::ZERO, "three quarters of the budget are not used");
    }

    #[test]
    fn the_window_opens_smoothly_as_the_budget_is_used_up() {
        let windows = [0.40, 0.44, 0.48, 0.49].map(|share| {
            let mut law = Coalescing::new(LIMITS);
            pass(&mut law, Time::ZERO, Duration::from_secs(10), share);
            law.window()
        });
        assert!(windows.is_sorted(), "{windows:?}");
        let [least, middle, .., most] = windows;
        assert!(least > Duration::from_millis(2) && least < Duration::from_millis(6), "{least:?}");
        assert!(middle > Duration::from_millis(8) && middle < Duration::from_millis(12), "{middle:?}");
        assert!(most > Duration::from_millis(16) && most < LIMITS.max, "{most:?}");
        let mut law = Coalescing::new(LIMITS);
        let mut now = Time::ZERO;
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            now = pass(&mut law, now, PERIOD, 0.9);
            assert!(law.window() >= last && law.window() <= LIMITS.max);
            last = law.window();
        }
        assert_eq!(last, LIMITS.max, "and no wider");
    }

    #[test]
    fn a_single_long_turn_does_not_open_it() {
        let mut law = Coalescing::new(LIMITS);
        let now = pass(&mut law, Time::ZERO, Duration::from_secs(1), 0.1);
        law.add(Duration::from_millis(60));
        law.advance(now + Duration::from_millis(60));
        assert_eq!(law.window(), Duration::ZERO);
    }

    #[test]
    fn it_closes_within_a_second_whether_turns_come_or_not() {
        let mut busy = Coalescing::new(LIMITS);
        let now = pass(&mut busy, Time::ZERO, Duration::from_secs(10), 1.0);
        assert_eq!(busy.window(), LIMITS.max);
        pass(&mut busy, now, Duration::from_secs(1), 0.1);
        assert_eq!(busy.window(), Duration::ZERO, "with little to do");
        let mut idle = Coalescing::new(LIMITS);
        let now = pass(&mut idle, Time::ZERO, Duration::from_secs(10), 1.0);
        idle.advance(now + Duration::from_secs(1));
        assert_eq!(idle.window(), Duration::ZERO, "with nothing to do");
    }

    #[test]
    fn thin_lines_have_a_least_window_and_a_clock_that_stands_still_or_jumps_does_no_harm() {
        let limits = Limits { min: Duration::from_millis(30), ..LIMITS };
        let mut law = Coalescing::new(limits);
        assert_eq!(law.window(), limits.min, "which counts even if it is above the most");
        let now = pass(&mut law, Time::ZERO, Duration::from_secs(1), 1.0);
        assert_eq!(law.window(), limits.min);
        let share = law.share();
        law.advance(now);
        assert!((law.share() - share).abs() < f64::EPSILON);
        law.advance(now + Duration::from_secs(1 << 40));
        assert!(law.share() < 0.001 && law.window() == limits.min);
    }
}
