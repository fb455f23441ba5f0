//! Power: output, batteries, conduits and consumers.

use crate::classes::PlantFacts;

/// The share of the main battery below which tractor beams are cut off.
const TRACTOR_OFF: f64 = 0.01;
/// The share at which they come back. The measured return is between 2.4 and 5.5 %.
const TRACTOR_ON: f64 = 0.04;

/// The batteries of one ship.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plant {
    /// The charge of the main battery.
    pub main: f64,
    /// The charge of the backup battery.
    pub backup: f64,
    /// The share of the wanted power that the consumers got in the last step.
    pub efficiency: f64,
    /// True if tractor beams are cut off.
    tractor_is_off: bool,
}

/// The power that a ship wants for one second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// All consumers but the next two.
    pub systems: f64,
    /// The cloaking device. It takes from the backup battery only.
    pub cloak: f64,
    /// Tractor beams. They take from the main battery, outside the conduit.
    pub tractors: f64,
}

impl Plant {
    /// Creates full batteries.
    #[must_use]
    pub const fn new(facts: &PlantFacts) -> Self {
        Self { main: facts.main, backup: facts.backup, efficiency: 1.0, tractor_is_off: false }
    }

    /// Returns whether tractor beams have power.
    #[must_use]
    pub const fn feeds_tractors(&self) -> bool {
        !self.tractor_is_off
    }

    /// Passes one second. `condition` is the fraction of the plant's points.
    ///
    /// The output fills the main battery, then the backup battery. The consumers take from the main conduit,
    /// and what it cannot deliver from the backup conduit.
    pub fn step(&mut self, facts: &PlantFacts, condition: f64, demand: Demand) {
        let output = facts.output * condition;
        let tractors = if self.tractor_is_off { 0.0 } else { demand.tractors.min(self.main) };
        let main_conduit = (facts.main_conduit * condition).min(self.main - tractors);
        let from_main = demand.systems.min(main_conduit);
        let backup_conduit = facts.backup_conduit.min(self.backup);
        let from_backup = (demand.systems - from_main).min(backup_conduit);
        let cloak = demand.cloak.min(backup_conduit - from_backup);
        self.efficiency = if demand.systems > 0.0 { (from_main + from_backup) / demand.systems } else { 1.0 };
        let main = self.main + output - from_main - tractors;
        self.main = main.min(facts.main);
        self.backup = (self.backup - from_backup - cloak + (main - self.main)).min(facts.backup);
        let limit = if self.tractor_is_off { TRACTOR_ON } else { TRACTOR_OFF };
        self.tractor_is_off = self.main < limit * facts.main;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: PlantFacts = PlantFacts {
        output: 1000.0,
        main: 250_000.0,
        backup: 80_000.0,
        main_conduit: 1200.0,
        backup_conduit: 200.0,
    };

    /// the conduits limit the consumers, and their efficiency falls.
    #[test]
    fn conduits_limit_the_consumers() {
        let mut plant = Plant::new(&FACTS);
        plant.step(&FACTS, 1.0, Demand { systems: 2800.0, ..Demand::default() });
        assert_eq!((plant.main, plant.backup, plant.efficiency), (249_800.0, 79_800.0, 0.5));
        plant.step(&FACTS, 0.0, Demand::default());
        assert_eq!((plant.main, plant.efficiency), (249_800.0, 1.0));
    }

    /// batteries never go below zero or above their capacity.
    #[test]
    fn batteries_stay_within_bounds() {
        let mut plant = Plant { main: 10.0, backup: 5.0, ..Plant::new(&FACTS) };
        plant.step(&FACTS, 0.0, Demand { systems: 900.0, cloak: 700.0, tractors: 600.0 });
        assert_eq!((plant.main, plant.backup), (0.0, 0.0));
        assert!(!plant.feeds_tractors());
        for _ in 0..1000 {
            plant.step(&FACTS, 1.0, Demand::default());
        }
        assert_eq!((plant.main, plant.backup), (FACTS.main, FACTS.backup));
    }
}
