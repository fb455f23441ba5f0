//! Collisions: the force, its bound, and the damage.

use crate::classes::ShipClass;
use crate::vector::Vector;

/// The largest gap between two bounding spheres at which a collision is believed.
pub const MAX_GAP: f64 = 26.0;
/// The most contacts that count.
pub const MAX_CONTACTS: usize = 16;
/// A contact damages all parts within this multiple of their radius.
const REACH: f64 = 1.5;
/// A ship with full engine power is this much faster than its normal top speed.
const OVERDRIVE: f64 = 1.25;
/// The tolerance of the bound.
const TOLERANCE: f64 = 1.05;
/// Impulses per mass below which nothing is damaged.
const LEAST: f64 = 0.01;
const PER_IMPULSE: f64 = 900.0;
const BASE: f64 = 500.0;

/// Returns the impulse of an elastic collision at a closing speed.
#[must_use]
pub fn impulse(mass: f64, other: f64, speed: f64) -> f64 {
    2.0 * mass * other / (mass + other) * speed
}

/// Returns the largest impulse that two ships can cause, or a ship and scenery.
#[must_use]
pub fn bound(class: &ShipClass, other: Option<&ShipClass>) -> f64 {
    let most = OVERDRIVE * TOLERANCE;
    match other {
        Some(other) => impulse(class.mass, other.mass, most * (class.max_speed + other.max_speed)),
        None => 2.0 * class.mass * most * class.max_speed,
    }
}

/// Returns the damage that a collision does to the hull and to each part within reach.
#[must_use]
pub fn damage(impulse: f64, mass: f64, contacts: usize) -> f64 {
    let share = impulse / mass / contacts.max(1) as f64;
    if share > LEAST { share * PER_IMPULSE + BASE } else { 0.0 }
}

/// Returns the parts within reach of a contact in ship axes, without the hull.
pub fn touched(class: &ShipClass, contact: Vector) -> impl Iterator<Item = usize> {
    let parts = class.parts.iter().enumerate().skip(1);
    let near = parts.filter(move |(_, part)| (part.place() - contact).length() < REACH * part.radius);
    near.map(|(index, _)| index)
}

/// Returns the speeds after a ship rams another that rests: that of the rammer and that of the target.
#[must_use]
pub fn rebound(mass: f64, target: f64, speed: f64) -> (f64, f64) {
    let total = mass + target;
    ((mass - target) / total * speed, 2.0 * mass / total * speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a reported force counts up to what the masses and speeds allow.
    #[test]
    fn force_is_bounded() {
        let (galaxy, shuttle) = (ShipClass::of(3).expect("a class"), ShipClass::of(15).expect("a class"));
        assert!(bound(galaxy, Some(shuttle)) < 2.0 * 15.0 * 1.3125 * 10.4);
        assert!(impulse(120.0, 120.0, 2.0 * 6.3) < bound(galaxy, Some(galaxy)));
        assert_eq!(bound(galaxy, None), 2.0 * 120.0 * 1.3125 * 6.3);
    }

    /// no collision does less than 500 points, except those that do nothing.
    #[test]
    fn damage_has_a_base() {
        assert_eq!(damage(1.0, 120.0, 1), 0.0);
        assert!(damage(2.0, 120.0, 1) > 500.0);
        assert_eq!(damage(1200.0, 120.0, 2), 5000.0);
    }
}
