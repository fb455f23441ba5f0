//! Beams: charge, wind-up, quanta and range.

use crate::classes::BeamFacts;
use crate::clock::TICK_SECONDS;

/// The setting of a weapon system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Low: a quarter of the damage; the hull is spared.
    Low,
    /// Medium, the setting of a new ship.
    #[default]
    Medium,
    /// High.
    High,
}

impl Level {
    /// Returns the level with this number in messages.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Low),
            1 => Some(Self::Medium),
            2 => Some(Self::High),
            _ => None,
        }
    }

    /// Returns the share of the nominal damage that a beam does.
    #[must_use]
    pub const fn beam_scale(self) -> f64 {
        match self {
            Self::Low => 0.25,
            Self::Medium | Self::High => 0.5,
        }
    }

    /// Returns the charge that a beam loses per second.
    #[must_use]
    pub const fn beam_discharge(self) -> f64 {
        match self {
            Self::Low => 0.35,
            Self::Medium | Self::High => 1.0,
        }
    }
}

/// Ticks from the order until the charge falls.
pub const START: u32 = 23;
/// Ticks from the order until the beam does damage: 0.25 s more.
pub const DAMAGE_START: u32 = START + 15;
/// Ticks between two quanta.
pub const QUANTUM: u32 = 32;
/// The seconds of damage that one quantum contains, as measured.
pub const QUANTUM_SECONDS: f64 = 17.0 / 32.0;

/// The state of one beam weapon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beam {
    /// The charge.
    pub charge: f64,
    /// Ticks since the weapon began, if it fires.
    firing: Option<u32>,
    unpaid: u32,
}

impl Beam {
    /// Creates a fully charged weapon.
    #[must_use]
    pub const fn new(facts: &BeamFacts) -> Self {
        Self { charge: facts.max_charge, firing: None, unpaid: 0 }
    }

    /// Returns whether the weapon fires.
    #[must_use]
    pub const fn is_firing(&self) -> bool {
        self.firing.is_some()
    }

    /// Begins to fire. Returns false if the charge is too low.
    pub fn start(&mut self, facts: &BeamFacts) -> bool {
        let starts = self.firing.is_none() && self.charge >= facts.min_charge;
        if starts {
            (self.firing, self.unpaid) = (Some(0), 0);
        }
        self.firing.is_some()
    }

    /// Stops firing. Returns the seconds of damage that were not paid yet.
    pub fn stop(&mut self) -> Option<f64> {
        self.firing = None;
        self.pay()
    }

    /// Fires for one tick. Returns the seconds of damage that arrive with this tick, if any.
    ///
    /// An empty weapon stops.
    pub fn tick(&mut self, level: Level) -> Option<f64> {
        let ticks = self.firing.as_mut()?;
        *ticks += 1;
        if *ticks > DAMAGE_START {
            self.unpaid += 1;
        }
        if *ticks > START {
            self.charge -= level.beam_discharge() * TICK_SECONDS;
        }
        if self.charge <= 0.0 {
            self.charge = 0.0;
            return self.stop();
        }
        if self.unpaid == QUANTUM { self.pay() } else { None }
    }

    /// Recharges for some seconds. A weapon that fires does not recharge.
    pub fn recharge(&mut self, facts: &BeamFacts, seconds: f64) {
        if self.firing.is_none() {
            self.charge = (self.charge + facts.recharge * seconds).min(facts.max_charge);
        }
    }

    fn pay(&mut self) -> Option<f64> {
        let unpaid = core::mem::take(&mut self.unpaid);
        (unpaid > 0).then(|| f64::from(unpaid) * QUANTUM_SECONDS / f64::from(QUANTUM))
    }
}

/// Returns the damage per second at a distance from the muzzle to the place of impact.
#[must_use]
pub fn rate(facts: &BeamFacts, level: Level, distance: f64) -> f64 {
    let range = if distance > facts.full_range { facts.full_range / distance } else { 1.0 };
    facts.max_damage * level.beam_scale() * range
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: BeamFacts = BeamFacts {
        max_damage: 400.0,
        full_range: 200.0,
        max_charge: 7.0,
        min_charge: 4.0,
        recharge: 0.17,
        radius: 0.15,
    };

    /// the first quantum arrives 1.155 s after the order, the next ones 0.528 s apart.
    #[test]
    fn first_quantum_arrives_after_the_wind_up() {
        let mut beam = Beam::new(&FACTS);
        assert!(beam.start(&FACTS));
        let paid: alloc::vec::Vec<u32> = (1..=110).filter(|_| beam.tick(Level::High).is_some()).collect();
        assert_eq!(paid, [70, 102]);
    }

    /// a beam fires until it is empty, and pays the rest of the last quantum.
    #[test]
    fn beam_pays_all_seconds_of_damage() {
        let mut beam = Beam::new(&FACTS);
        beam.start(&FACTS);
        let paid: f64 = (0..600).filter_map(|_| beam.tick(Level::High)).sum();
        assert!(!beam.is_firing() && beam.charge == 0.0);
        assert!((paid - 410.0 * 17.0 / 1024.0).abs() < 1e-9, "{paid}");
        assert!(!beam.start(&FACTS), "a weapon below its least charge does not begin");
    }

    /// the damage falls with the distance beyond the full range only.
    #[test]
    fn damage_falls_beyond_the_full_range() {
        assert_eq!(rate(&FACTS, Level::High, 200.0), 200.0);
        assert_eq!(rate(&FACTS, Level::Medium, 400.0), 100.0);
        assert_eq!(rate(&FACTS, Level::Low, 1.0), 100.0);
    }
}
