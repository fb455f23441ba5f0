//! The place where a shot meets the ship, and the parts that it damages.

use crate::classes::{Part, ShipClass};
use crate::vector::Vector;

/// Returns the aim point of a shot that names none: the place of the hull.
#[must_use]
pub fn default_aim(class: &ShipClass) -> Vector {
    class.parts[0].place()
}

/// Returns where a line from a place through the aim point meets the ship, in ship axes.
///
/// The crate has no models of the ships. So the spheres of the exposed parts stand for the surface. The
/// shot stops inside the first sphere on its line, at the middle of its way through it. A line that meets
/// no sphere stops where it is nearest to the hull's place.
#[must_use]
pub fn impact(class: &ShipClass, from: Vector, aim: Vector) -> Vector {
    let Some(direction) = (aim - from).unit() else { return aim };
    first_sphere(class, from, direction).map_or_else(
        || from + direction * (default_aim(class) - from).dot(direction),
        |(at, _)| from + direction * at,
    )
}

/// Returns where a projectile on this line stops, as a distance, if it meets the ship.
///
/// A line that meets no exposed part meets the ship if it passes through the sphere of the hull.
#[must_use]
pub fn meets(class: &ShipClass, from: Vector, direction: Vector) -> Option<f64> {
    let hull = &class.parts[0];
    let sphere = first_sphere(class, from, direction).or_else(|| chord(hull, from, direction));
    sphere.map(|(middle, _)| middle)
}

/// Returns the exposed parts within a hit of this radius, in the order of the ship, without the hull.
pub fn touched(class: &ShipClass, place: Vector, radius: f64) -> impl Iterator<Item = usize> {
    let parts = class.parts.iter().enumerate().skip(1);
    let within = move |part: &Part| (part.place() - place).length() < part.radius + radius;
    parts.filter(move |(_, part)| part.is_exposed && within(part)).map(|(index, _)| index)
}

/// Returns the first exposed part on a line: the distances to the middle of the chord and to its start.
fn first_sphere(class: &ShipClass, from: Vector, direction: Vector) -> Option<(f64, f64)> {
    let parts = class.parts[1..].iter().filter(|part| part.is_exposed);
    let chords = parts.filter_map(|part| chord(part, from, direction));
    chords.min_by(|one, other| one.1.total_cmp(&other.1))
}

/// Returns the middle and the start of a line's way through the sphere of a part, if they are ahead.
fn chord(part: &Part, from: Vector, direction: Vector) -> Option<(f64, f64)> {
    let way = part.place() - from;
    let middle = way.dot(direction);
    let half_squared = part.radius * part.radius - (way.dot(way) - middle * middle);
    (half_squared >= 0.0 && middle >= 0.0).then(|| (middle, middle - libm::sqrt(half_squared)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// the spheres of the parts give the parts that were damaged on a Galaxy from five directions.
    #[test]
    fn parts_are_those_that_were_damaged() {
        let class = ShipClass::of(3).expect("the Galaxy");
        let damaged = |direction: [f64; 3]| {
            let from = Vector::new(direction) * 57.0;
            let place = impact(class, from, default_aim(class));
            touched(class, place, 0.15).map(|index| class.parts[index].name).collect::<Vec<_>>()
        };
        let tubes = ["Forward Torpedo 1", "Forward Torpedo 2", "Forward Torpedo 3", "Forward Torpedo 4"];
        assert_eq!(damaged([0.0, 1.0, 0.0]), [&["Sensor Array"][..], &tubes].concat());
        assert_eq!(damaged([0.0, 1.0, 1.0]), ["Shield Generator"]);
        assert_eq!(
            damaged([0.0, 0.5, 0.866]),
            ["Warp Core", "Aft Torpedo 1", "Aft Torpedo 2", "Center Impulse"]
        );
        assert_eq!(damaged([0.0, 0.0175, -0.9998]), ["Warp Core"]);
        assert_eq!(damaged([1.0, 0.0, 0.0]), ["Star Warp"]);
    }

    /// a projectile that passes the ship does not meet it.
    #[test]
    fn line_beside_the_ship_meets_nothing() {
        let class = ShipClass::of(3).expect("the Galaxy");
        let ahead = Vector::new([0.0, -1.0, 0.0]);
        assert!(meets(class, Vector::new([0.0, 57.0, -0.5]), ahead).is_some());
        assert_eq!(meets(class, Vector::new([9.0, 57.0, 0.0]), ahead), None);
        assert_eq!(meets(class, Vector::new([0.0, -57.0, 0.0]), ahead), None, "behind");
    }
}
