//! Pulse weapons: bolts, charge and cooldown.

use super::beam::Level;
use crate::classes::PulseFacts;
use crate::clock::{SUBSYSTEM_SECONDS, TICK_SECONDS};

impl Level {
    /// Returns the share of the projectile's damage that a bolt does.
    #[must_use]
    pub const fn bolt_scale(self) -> f64 {
        match self {
            Self::Low => 0.2,
            Self::Medium => 0.5,
            Self::High => 1.0,
        }
    }

    /// Returns the charge that a bolt costs.
    #[must_use]
    pub const fn bolt_cost(self) -> f64 {
        match self {
            Self::Low => 0.5,
            Self::Medium => 1.0,
            Self::High => 2.0,
        }
    }
}

/// The state of one pulse weapon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cannon {
    /// The charge.
    pub charge: f64,
    /// Ticks since the last bolt.
    idle: u32,
    /// True if a bolt was fired since the trigger was pulled.
    bursting: bool,
}

impl Cannon {
    /// Creates a fully charged weapon.
    #[must_use]
    pub const fn new(facts: &PulseFacts) -> Self {
        Self { charge: facts.max_charge, idle: u32::MAX, bursting: false }
    }

    /// Returns whether a stock ship would fire now.
    ///
    /// The first bolt needs the weapon's least charge, the next ones only their cost.
    #[must_use]
    pub fn is_ready(&self, facts: &PulseFacts, level: Level) -> bool {
        let least = if self.bursting { 0.0 } else { facts.min_charge };
        f64::from(self.idle) * TICK_SECONDS >= facts.cooldown && self.charge >= least.max(level.bolt_cost())
    }

    /// Fires a bolt that a player reports. Returns false if the weapon cannot have the charge.
    ///
    /// Reports arrive late or in bunches. So the cooldown does not count, and one step of recharge is free.
    pub fn fire(&mut self, facts: &PulseFacts, level: Level) -> bool {
        let slack = facts.recharge * SUBSYSTEM_SECONDS;
        let fires = self.charge + slack >= level.bolt_cost();
        if fires {
            self.charge = (self.charge - level.bolt_cost()).max(-slack);
            (self.idle, self.bursting) = (0, true);
        }
        fires
    }

    /// Releases the trigger.
    pub const fn release(&mut self) {
        self.bursting = false;
    }

    /// Passes one tick.
    pub const fn tick(&mut self) {
        self.idle = self.idle.saturating_add(1);
    }

    /// Recharges for some seconds.
    pub fn recharge(&mut self, facts: &PulseFacts, seconds: f64) {
        self.charge = (self.charge + facts.recharge * seconds).min(facts.max_charge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: PulseFacts = PulseFacts { max_charge: 2.0, min_charge: 1.2, recharge: 0.09, cooldown: 1.6 };

    /// after the first bolt, a weapon fires below its least charge.
    #[test]
    fn burst_continues_below_the_least_charge() {
        let mut cannon = Cannon::new(&FACTS);
        assert!(cannon.is_ready(&FACTS, Level::Medium) && cannon.fire(&FACTS, Level::Medium));
        assert!(!cannon.is_ready(&FACTS, Level::Medium), "cooldown");
        (0..97).for_each(|_| cannon.tick());
        assert!(cannon.is_ready(&FACTS, Level::Medium));
        cannon.release();
        assert!(!cannon.is_ready(&FACTS, Level::Medium), "a new burst needs the least charge");
    }

    /// a liar gets no more bolts than the charge pays for.
    #[test]
    fn charge_bounds_the_bolts() {
        let mut cannon = Cannon::new(&FACTS);
        assert_eq!((0..1000).filter(|_| cannon.fire(&FACTS, Level::Low)).count(), 4);
    }
}
