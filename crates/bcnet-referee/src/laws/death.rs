//! Death: its cause, and how long a ship explodes.

use crate::classes::ShipClass;

/// Returns the first critical part without points, if there is one.
///
/// `points` yields the points of each part in order.
pub fn cause(class: &ShipClass, points: impl Iterator<Item = f64>) -> Option<usize> {
    class.parts.iter().zip(points).position(|(part, points)| part.is_critical && points <= 0.0)
}

/// Returns the duration of an explosion in tenths of a second: 50 to 149.
#[must_use]
pub fn duration(random: &mut Random) -> u8 {
    50 + (random.next() % 100) as u8
}

/// A generator of numbers from a seed (SplitMix64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator. The same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// explosions last 5.0 to 14.9 s in steps of a tenth, and the seed decides.
    #[test]
    fn explosions_last_five_to_fifteen_seconds() {
        let mut random = Random::new(7);
        let drawn: alloc::vec::Vec<u8> = (0..2000).map(|_| duration(&mut random)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&50), Some(&149)));
        assert_eq!(duration(&mut Random::new(7)), drawn[0]);
        assert_ne!(duration(&mut Random::new(8)), drawn[0]);
    }

    /// any critical part kills, other parts do not.
    #[test]
    fn critical_parts_kill() {
        let class = ShipClass::of(3).expect("the Galaxy");
        let dead =
            |index: usize| cause(class, (0..class.parts.len()).map(|at| f64::from(u8::from(at != index))));
        assert_eq!((dead(0), dead(1), dead(30), dead(2)), (Some(0), Some(1), Some(30), None));
    }
}
