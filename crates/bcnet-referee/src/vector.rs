//! Vectors and the axes of a ship.
//!
//! All numbers are `f64`, and the roots come from `libm`, so every platform computes the same bits.

use core::ops::{Add, Mul, Sub};

/// A vector of three numbers, in units of the game (175 m).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Vector {
    /// To starboard, in ship axes.
    pub x: f64,
    /// To the bow, in ship axes.
    pub y: f64,
    /// To the upper side, in ship axes.
    pub z: f64,
}

impl Vector {
    /// Creates a vector from its components.
    #[must_use]
    pub const fn new([x, y, z]: [f64; 3]) -> Self {
        Self { x, y, z }
    }

    /// Returns the components.
    #[must_use]
    pub const fn parts(self) -> [f64; 3] {
        [self.x, self.y, self.z]
    }

    /// Returns whether no component is infinite, not a number, or farther than any place of the game.
    #[must_use]
    pub fn is_sane(self) -> bool {
        self.parts().iter().all(|part| part.abs() <= MAX_COORDINATE)
    }

    /// Returns the scalar product.
    #[must_use]
    pub fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    /// Returns the vector product.
    #[must_use]
    pub fn cross(self, other: Self) -> Self {
        Self {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    /// Returns the length.
    #[must_use]
    pub fn length(self) -> f64 {
        libm::sqrt(self.dot(self))
    }

    /// Returns the vector with length 1, or none if it is too short to have a direction.
    #[must_use]
    pub fn unit(self) -> Option<Self> {
        let length = self.length();
        (length > 1e-9).then(|| self * (1.0 / length))
    }
}

impl Add for Vector {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }
}

impl Sub for Vector {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + other * -1.0
    }
}

impl Mul<f64> for Vector {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self { x: self.x * factor, y: self.y * factor, z: self.z * factor }
    }
}

/// The place and the axes of a ship.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pose {
    /// The position of the ship's origin.
    pub position: Vector,
    forward: Vector,
    up: Vector,
}

impl Pose {
    /// Creates a pose. Returns none if the two directions do not span a plane.
    #[must_use]
    pub fn new(position: Vector, forward: Vector, up: Vector) -> Option<Self> {
        let forward = forward.unit()?;
        let up = (up - forward * up.dot(forward)).unit()?;
        Some(Self { position, forward, up })
    }

    /// Returns the direction of the bow.
    #[must_use]
    pub const fn forward(&self) -> Vector {
        self.forward
    }

    /// Returns the direction of the upper side.
    #[must_use]
    pub const fn up(&self) -> Vector {
        self.up
    }

    /// Returns the direction of the starboard side.
    #[must_use]
    pub fn right(&self) -> Vector {
        self.forward.cross(self.up)
    }

    /// Returns a place in ship axes as a place in the set.
    #[must_use]
    pub fn to_set(&self, place: Vector) -> Vector {
        self.position + self.right() * place.x + self.forward * place.y + self.up * place.z
    }

    /// Returns a place in the set as a place in ship axes.
    #[must_use]
    pub fn to_ship(&self, place: Vector) -> Vector {
        self.turn_to_ship(place - self.position)
    }

    /// Returns a direction in the set as a direction in ship axes.
    #[must_use]
    pub fn turn_to_ship(&self, direction: Vector) -> Vector {
        Vector { x: direction.dot(self.right()), y: direction.dot(self.forward), z: direction.dot(self.up) }
    }
}

/// The largest coordinate that the crate accepts.
pub const MAX_COORDINATE: f64 = 1e6;
