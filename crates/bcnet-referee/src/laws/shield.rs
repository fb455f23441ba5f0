//! Shield faces: which one a shot meets, what passes it, and the recharge.

use crate::classes::ShipClass;
use crate::clock::SHIELD_SECONDS;
use crate::vector::Vector;

/// The six faces, in the order of messages and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// The bow, +y.
    Front,
    /// The stern, −y.
    Rear,
    /// The upper side, +z.
    Top,
    /// The lower side, −z.
    Bottom,
    /// Port, −x.
    Port,
    /// Starboard, +x.
    Starboard,
}

/// All faces, in order.
pub const FACES: [Face; 6] = [Face::Front, Face::Rear, Face::Top, Face::Bottom, Face::Port, Face::Starboard];

/// The share of the nominal recharge that a face gets.
const RECHARGE: f64 = 0.85;
/// The fraction of a face from which on nothing passes.
const TIGHT: f64 = 0.6;
/// The fraction of a face up to which everything passes.
const OPEN: f64 = 0.1;

/// The shields of one ship.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shields {
    /// The points of each face.
    pub points: [f64; 6],
    /// The fractions at the last step of the subsystems: they decide what passes.
    fractions: [f64; 6],
}

impl Shields {
    /// Creates full shields.
    #[must_use]
    pub const fn new(class: &ShipClass) -> Self {
        Self { points: class.faces, fractions: [1.0; 6] }
    }

    /// Sets the points of a face and what it lets pass.
    pub fn set(&mut self, class: &ShipClass, face: Face, points: f64) {
        let at = face as usize;
        self.points[at] = points.clamp(0.0, class.faces[at]);
        self.fractions[at] = self.points[at] / class.faces[at];
    }

    /// Returns whether a face can stop a part of a shot.
    #[must_use]
    pub const fn holds(&self, face: Face) -> bool {
        self.fractions[face as usize] > OPEN && self.points[face as usize] > 0.0
    }

    /// Takes damage on a face. Returns the points that the face absorbed; the rest passes.
    pub fn absorb(&mut self, face: Face, damage: f64) -> f64 {
        let at = face as usize;
        let absorbed = (damage * (1.0 - share(self.fractions[at]))).min(self.points[at]);
        self.points[at] -= absorbed;
        absorbed
    }

    /// Empties all faces.
    pub const fn fail(&mut self) {
        (self.points, self.fractions) = ([0.0; 6], [0.0; 6]);
    }

    /// Leaves at least one point on each face, as a ship has after it was cloaked.
    pub fn wake(&mut self) {
        self.points = self.points.map(|points| points.max(1.0));
    }

    /// Recharges all faces for one step of the shields.
    ///
    /// `efficiency` is the share of the wanted power that the generator gets.
    pub fn recharge(&mut self, class: &ShipClass, efficiency: f64) {
        for ((points, full), rate) in self.points.iter_mut().zip(class.faces).zip(class.face_rates) {
            *points = (*points + rate * RECHARGE * efficiency * SHIELD_SECONDS).min(full);
        }
    }

    /// Refreshes the fractions: once in each step of the subsystems.
    pub fn refresh(&mut self, class: &ShipClass) {
        for ((fraction, points), full) in self.fractions.iter_mut().zip(self.points).zip(class.faces) {
            *fraction = points / full;
        }
    }
}

/// Returns the share of a shot that passes a face with this fraction of its points.
#[must_use]
pub fn share(fraction: f64) -> f64 {
    if fraction >= TIGHT {
        0.0
    } else if fraction > OPEN {
        0.6 * (1.0 - 2.0 * (fraction - OPEN))
    } else {
        1.0
    }
}

/// The ellipsoid around a ship on which the faces lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ellipsoid {
    half: Vector,
    centre: Vector,
}

impl Ellipsoid {
    /// Returns the ellipsoid of a class: its half axes are the half extents of the model times √3.
    #[must_use]
    pub fn of(class: &ShipClass) -> Self {
        let (half, centre) = class.extents();
        Self { half: half * libm::sqrt(3.0), centre }
    }

    /// Returns the first place where a segment enters the ellipsoid, and the face there.
    ///
    /// Returns none if the segment begins inside or does not meet the ellipsoid.
    #[must_use]
    pub fn entry(&self, from: Vector, to: Vector) -> Option<(Vector, Face)> {
        let (start, end) = (self.scaled(from), self.scaled(to));
        let way = end - start;
        let (a, half_b, c) = (way.dot(way), start.dot(way), start.dot(start) - 1.0);
        let root = half_b * half_b - a * c;
        if c <= 0.0 || a <= 0.0 || root < 0.0 {
            return None;
        }
        let at = (-half_b - libm::sqrt(root)) / a;
        (0.0..=1.0).contains(&at).then(|| (from + (to - from) * at, face_of(start + way * at)))
    }

    fn scaled(&self, place: Vector) -> Vector {
        let place = place - self.centre;
        Vector { x: place.x / self.half.x, y: place.y / self.half.y, z: place.z / self.half.z }
    }
}

/// Returns the face of a place on the unit sphere: the largest component. The first of equals wins.
fn face_of(place: Vector) -> Face {
    let order = [
        (place.y, Face::Front),
        (place.z, Face::Top),
        (place.x, Face::Starboard),
        (-place.y, Face::Rear),
        (-place.z, Face::Bottom),
        (-place.x, Face::Port),
    ];
    let first = order[0];
    order.into_iter().fold(first, |best, next| if next.0 > best.0 { next } else { best }).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn galaxy() -> &'static ShipClass {
        ShipClass::of(3).expect("the Galaxy")
    }

    /// the entry point decides the face; a shot from inside meets none.
    #[test]
    fn entry_point_decides_the_face() {
        let ellipsoid = Ellipsoid::of(galaxy());
        let from = |x, y, z| ellipsoid.entry(Vector { x, y, z }, Vector::default());
        let (place, face) = from(0.0, 57.0, 0.0).expect("an entry");
        assert!(face == Face::Front && (place.y - 5.58).abs() < 0.01, "{place:?}");
        assert_eq!(from(0.0, 40.0, 40.0).expect("an entry").1, Face::Top, "the ellipsoid is flat");
        assert_eq!(from(-9.0, 0.0, 0.0).expect("an entry").1, Face::Port);
        assert_eq!(from(0.0, 1.0, 0.0), None);
        assert_eq!(ellipsoid.entry(Vector::new([0.0, 57.0, 0.0]), Vector::new([0.0, 9.0, 0.0])), None);
    }

    /// all hits between two steps see the same fraction.
    #[test]
    fn fraction_is_refreshed_by_the_step() {
        let mut shields = Shields::new(galaxy());
        assert_eq!(shields.absorb(Face::Front, 6000.0), 6000.0);
        assert_eq!(shields.absorb(Face::Front, 100.0), 100.0, "still the old fraction");
        shields.refresh(galaxy());
        assert!(shields.absorb(Face::Front, 100.0) < 60.0);
        shields.set(galaxy(), Face::Front, 800.0);
        assert!(!shields.holds(Face::Front), "a tenth stops nothing");
        assert_eq!(shields.absorb(Face::Front, 100.0), 0.0);
    }
}
