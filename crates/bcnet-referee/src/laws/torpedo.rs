//! Torpedoes and bolts in flight, and the tubes that launch them.

use crate::classes::TubeFacts;
use crate::clock::{SHIELD_STEP, TICK_SECONDS};
use crate::projectiles::Projectile;
use crate::vector::Vector;

/// Ticks between the launches of two tubes of one system.
pub const TUBE_SPACING: u64 = SHIELD_STEP;
/// The seconds by which a launch may be reported too early, because reports arrive late or in bunches.
pub const SLACK: f64 = 1.0;
/// The longest flight in seconds. The game has no limit; this one bounds the memory.
pub const MAX_FLIGHT: f64 = 60.0;

/// The torpedoes of one tube.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tube {
    /// The number of torpedoes that are ready.
    ready: u8,
    /// The seconds until each missing torpedo is loaded; zero for none.
    loading: [f64; MAX_READY],
}

/// The most torpedoes that a stock tube can have ready.
const MAX_READY: usize = 2;

impl Tube {
    /// Creates a tube in which all torpedoes are ready.
    #[must_use]
    pub const fn new(facts: &TubeFacts) -> Self {
        Self { ready: facts.ready, loading: [0.0; MAX_READY] }
    }

    /// Returns whether a stock ship could launch now.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready > 0
    }

    /// Launches a torpedo that a player reports. Returns false if none can be ready.
    pub fn launch(&mut self, facts: &TubeFacts) -> bool {
        let early = if self.ready == 0 { self.finish_early() } else { Some(0.0) };
        let Some(early) = early else { return false };
        self.ready -= 1;
        if let Some(free) = self.loading.iter_mut().find(|left| **left <= 0.0) {
            *free = facts.reload + early;
        }
        true
    }

    /// Empties the tube, because the type of its torpedoes changes.
    pub fn empty(&mut self, facts: &TubeFacts) {
        while self.ready > 0 && self.launch(facts) {}
    }

    /// Loads for some seconds.
    pub fn load(&mut self, seconds: f64) {
        for left in self.loading.iter_mut().filter(|left| **left > 0.0) {
            *left -= seconds;
            if *left <= 0.0 {
                self.ready += 1;
            }
        }
    }

    /// Finishes the torpedo that is nearly loaded. Returns the seconds that were left.
    fn finish_early(&mut self) -> Option<f64> {
        let left = self.loading.iter_mut().find(|left| **left > 0.0 && **left <= SLACK)?;
        self.ready += 1;
        Some(core::mem::take(left))
    }
}

/// The flight of one projectile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flight {
    /// The position.
    pub position: Vector,
    /// The direction, of length 1.
    direction: Vector,
    /// The seconds of flight.
    age: f64,
}

impl Flight {
    /// Creates a flight. Returns none if the direction is none.
    #[must_use]
    pub fn new(position: Vector, direction: Vector) -> Option<Self> {
        Some(Self { position, direction: direction.unit()?, age: 0.0 })
    }

    /// Flies for one tick, towards the target while guidance lasts.
    ///
    /// The turn rate of a projectile grows by a constant. That reading of the game's number is not measured.
    pub fn tick(&mut self, facts: &Projectile, target: Option<Vector>) {
        self.age += TICK_SECONDS;
        if let Some(wanted) = target.and_then(|target| (target - self.position).unit())
            && self.age <= facts.guidance
        {
            self.turn(wanted, facts.turn * self.age * TICK_SECONDS);
        }
        self.position = self.position + self.direction * (facts.speed * TICK_SECONDS);
    }

    /// Returns whether the flight is over.
    #[must_use]
    pub fn is_over(&self, facts: &Projectile) -> bool {
        let life = if facts.life > 0.0 { facts.life } else { MAX_FLIGHT };
        self.age >= life
    }

    /// Turns towards a direction by a small angle at most.
    fn turn(&mut self, wanted: Vector, most: f64) {
        let side = wanted - self.direction * wanted.dot(self.direction);
        let sine = side.length();
        if wanted.dot(self.direction) > 0.0 && sine <= most {
            self.direction = wanted;
        } else if let Some(side) = side.unit() {
            self.direction = (self.direction + side * most).unit().unwrap_or(self.direction);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: TubeFacts = TubeFacts { reload: 10.0, ready: 2 };

    /// a tube launches what is ready, and no more before it has reloaded.
    #[test]
    fn ammunition_bounds_the_launches() {
        let mut tube = Tube::new(&FACTS);
        assert_eq!((0..1_000_000).filter(|_| tube.launch(&FACTS)).count(), 2);
        tube.load(8.5);
        assert!(!tube.launch(&FACTS));
        tube.load(1.0);
        assert!(tube.launch(&FACTS) && tube.launch(&FACTS) && !tube.launch(&FACTS));
    }

    /// a torpedo turns towards its target while guidance lasts.
    #[test]
    fn torpedo_follows_its_target() {
        let facts = Projectile::of(2, 3).expect("the photon torpedo");
        let target = Vector::new([10.0, 60.0, 0.0]);
        let nearest = |guided: Option<Vector>| {
            let mut flight = Flight::new(Vector::default(), Vector::new([0.0, 1.0, 0.0])).expect("a flight");
            let mut nearest = f64::MAX;
            while !flight.is_over(facts) && flight.position.y < 80.0 {
                flight.tick(facts, guided);
                nearest = nearest.min((flight.position - target).length());
            }
            nearest
        };
        assert!(nearest(Some(target)) < 1.0 && nearest(None) > 9.0, "{}", nearest(Some(target)));
    }
}
