//! Decides how long state updates are held back so that one datagram carries several.
//!
//! This time is the window. Without load the window is zero: the server relays each update in the same turn of
//! the event loop in which it arrives. The window grows as relaying nears its CPU budget. Only state updates are
//! ever held back.

use std::time::Duration;

use bcnet_transport::Time;

/// Limits from the settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CoalescingLimits {
    /// Share of a core that relaying may use.
    pub(super) cpu_budget: f64,
    /// Shortest and longest window.
    pub(super) min: Duration,
    pub(super) max: Duration,
}

/// Derives the window of one thread from the CPU time of relaying.
#[derive(Debug)]
pub(super) struct Coalescing {
    pub(super) limits: CoalescingLimits,
    /// Smoothed share of a core that relaying used.
    cpu_share: f64,
    /// CPU time of relaying since `period_start`.
    busy: Duration,
    period_start: Time,
}

impl Coalescing {
    pub(super) const fn new(limits: CoalescingLimits) -> Self {
        Self { limits, cpu_share: 0.0, busy: Duration::ZERO, period_start: Time::ZERO }
    }

    /// Adds CPU time of relaying.
    pub(super) fn add(&mut self, busy: Duration) {
        self.busy += busy;
    }

    /// Updates the share if a period has passed.
    pub(super) fn advance(&mut self, now: Time) {
        let elapsed = now.since(self.period_start);
        if elapsed < PERIOD {
            return;
        }
        let latest = (self.busy.as_secs_f64() / elapsed.as_secs_f64()).min(1.0);
        let kept = DECAY.powf(elapsed.as_secs_f64() / PERIOD.as_secs_f64());
        self.cpu_share = latest + (self.cpu_share - latest) * kept;
        (self.busy, self.period_start) = (Duration::ZERO, now);
    }

    /// Returns the smoothed share of a core that relaying uses.
    pub(super) const fn cpu_share(&self) -> f64 {
        self.cpu_share
    }

    /// Returns how long state updates may be held back.
    pub(super) fn window(&self) -> Duration {
        let CoalescingLimits { cpu_budget, min, max } = self.limits;
        let opens_at = cpu_budget * WINDOW_OPENS_AT;
        let opened = ((self.cpu_share - opens_at) / (cpu_budget - opens_at)).clamp(0.0, 1.0);
        min + max.saturating_sub(min).mul_f64(opened)
    }
}

/// Shortest interval between two updates of the smoothed share.
const PERIOD: Duration = Duration::from_millis(50);
/// Weight of the previous share after one `PERIOD`.
const DECAY: f64 = 0.75;
/// Fraction of the budget at which the window starts to grow. With the whole budget used, it has its maximum.
const WINDOW_OPENS_AT: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CoalescingLimits =
        CoalescingLimits { cpu_budget: 0.5, min: Duration::ZERO, max: Duration::from_millis(20) };

    /// Simulates turns of a millisecond in which relaying takes a share. Returns the time at the end.
    fn run_load(coalescing: &mut Coalescing, from: Time, length: Duration, share: f64) -> Time {
        let turn = Duration::from_millis(1);
        let mut now = from;
        while now < from + length {
            now = now + turn;
            coalescing.advance(now);
            coalescing.add(turn.mul_f64(share));
        }
        now
    }

    #[test]
    fn window_is_zero_below_three_quarters_of_the_budget() {
        let mut coalescing = Coalescing::new(LIMITS);
        assert_eq!(coalescing.window(), Duration::ZERO);
        run_load(&mut coalescing, Time::ZERO, Duration::from_secs(10), 0.37);
        assert!((coalescing.cpu_share() - 0.37).abs() < 0.01, "{}", coalescing.cpu_share());
        assert_eq!(coalescing.window(), Duration::ZERO, "less than three quarters of the budget is used");
    }

    #[test]
    fn window_grows_smoothly_as_the_budget_is_used() {
        let windows = [0.40, 0.44, 0.48, 0.49].map(|share| {
            let mut coalescing = Coalescing::new(LIMITS);
            run_load(&mut coalescing, Time::ZERO, Duration::from_secs(10), share);
            coalescing.window()
        });
        assert!(windows.is_sorted(), "{windows:?}");
        let [least, middle, .., most] = windows;
        assert!(least > Duration::from_millis(2) && least < Duration::from_millis(6), "{least:?}");
        assert!(middle > Duration::from_millis(8) && middle < Duration::from_millis(12), "{middle:?}");
        assert!(most > Duration::from_millis(16) && most < LIMITS.max, "{most:?}");
        let mut coalescing = Coalescing::new(LIMITS);
        let mut now = Time::ZERO;
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            now = run_load(&mut coalescing, now, PERIOD, 0.9);
            assert!(coalescing.window() >= last && coalescing.window() <= LIMITS.max);
            last = coalescing.window();
        }
        assert_eq!(last, LIMITS.max, "the window stops at its maximum");
    }

    #[test]
    fn single_long_turn_does_not_open_the_window() {
        let mut coalescing = Coalescing::new(LIMITS);
        let now = run_load(&mut coalescing, Time::ZERO, Duration::from_secs(1), 0.1);
        coalescing.add(Duration::from_millis(60));
        coalescing.advance(now + Duration::from_millis(60));
        assert_eq!(coalescing.window(), Duration::ZERO);
    }

    #[test]
    fn window_closes_within_a_second_with_or_without_turns() {
        let mut busy = Coalescing::new(LIMITS);
        let now = run_load(&mut busy, Time::ZERO, Duration::from_secs(10), 1.0);
        assert_eq!(busy.window(), LIMITS.max);
        run_load(&mut busy, now, Duration::from_secs(1), 0.1);
        assert_eq!(busy.window(), Duration::ZERO, "with little load");
        let mut idle = Coalescing::new(LIMITS);
        let now = run_load(&mut idle, Time::ZERO, Duration::from_secs(10), 1.0);
        idle.advance(now + Duration::from_secs(1));
        assert_eq!(idle.window(), Duration::ZERO, "without turns");
    }

    #[test]
    fn minimum_window_holds_when_the_clock_stops_or_jumps() {
        let limits = CoalescingLimits { min: Duration::from_millis(30), ..LIMITS };
        let mut coalescing = Coalescing::new(limits);
        assert_eq!(coalescing.window(), limits.min, "the minimum wins over a lower maximum");
        let now = run_load(&mut coalescing, Time::ZERO, Duration::from_secs(1), 1.0);
        assert_eq!(coalescing.window(), limits.min);
        let share = coalescing.cpu_share();
        coalescing.advance(now);
        assert!((coalescing.cpu_share() - share).abs() < f64::EPSILON);
        coalescing.advance(now + Duration::from_secs(1 << 40));
        assert!(coalescing.cpu_share() < 0.001 && coalescing.window() == limits.min);
    }
}
