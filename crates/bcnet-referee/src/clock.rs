//! The clock of the laws: ticks of 16.5 ms and the steps that count them.

use core::time::Duration;

/// The length of a tick: one frame of the original, as measured.
pub const TICK: Duration = Duration::from_micros(16_500);
/// The length of a tick in seconds.
pub const TICK_SECONDS: f64 = 0.0165;
/// Ticks between two steps of subsystems: 0.33 s.
pub const SUBSYSTEM_STEP: u64 = 20;
/// The length of a subsystem step in seconds.
pub const SUBSYSTEM_SECONDS: f64 = 0.33;
/// Ticks between two steps of the shields: every second subsystem step.
pub const SHIELD_STEP: u64 = 2 * SUBSYSTEM_STEP;
/// The length of a shield step in seconds.
pub const SHIELD_SECONDS: f64 = 2.0 * SUBSYSTEM_SECONDS;
/// Microseconds between two steps of the power plant.
const POWER_MICROS: u64 = 1_000_000;
const TICK_MICROS: u64 = 16_500;

/// Returns whether a power step of one second ends with this tick.
#[must_use]
pub const fn is_power_step(tick: u64) -> bool {
    let before = tick.saturating_sub(1).saturating_mul(TICK_MICROS) / POWER_MICROS;
    tick.saturating_mul(TICK_MICROS) / POWER_MICROS > before
}

/// Returns the number of ticks that a time contains, rounded to the nearest.
#[must_use]
pub const fn ticks(micros: u64) -> u64 {
    (micros + TICK_MICROS / 2) / TICK_MICROS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// power steps are one second apart, although a second is not a whole number of ticks.
    #[test]
    fn power_steps_are_one_second_apart() {
        let steps: alloc::vec::Vec<u64> = (1..=610).filter(|tick| is_power_step(*tick)).collect();
        assert_eq!(steps, [61, 122, 182, 243, 304, 364, 425, 485, 546, 607]);
        assert_eq!(ticks(330_000), SUBSYSTEM_STEP);
    }
}
