//! Tractor beams. They do no damage, so the referee only knows whether one holds.

use crate::classes::BeamFacts;

/// Returns whether a beam can hold a target at this distance. Shields make no difference.
#[must_use]
pub fn holds(facts: &BeamFacts, distance: f64) -> bool {
    distance <= facts.full_range
}

/// Returns the speed that a held ship under power loses.
#[must_use]
pub fn drag(facts: &BeamFacts, mass: f64) -> f64 {
    facts.max_damage / mass
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{PartKind, ShipClass, Weapon};

    /// the Galaxy's forward tractor holds at 115 units and not at 125; a held Galaxy is 0.417 slower.
    #[test]
    fn tractor_holds_within_its_range() {
        let class = ShipClass::of(3).expect("the Galaxy");
        let forward = class.parts.iter().find(|part| part.name == "Forward Tractor 1").expect("the part");
        let Weapon::Tractor(facts, _) = forward.weapon else { panic!("{forward:?}") };
        assert_eq!(forward.kind, PartKind::Tractor);
        let held = [20.0, 60.0, 100.0, 115.0, 125.0, 150.0].map(|distance| holds(facts, distance));
        assert_eq!(held, [true, true, true, true, false, false]);
        let free = class.max_speed;
        assert!((free - drag(facts, class.mass) - 5.883).abs() < 0.001);
    }
}
