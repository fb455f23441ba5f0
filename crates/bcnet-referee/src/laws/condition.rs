//! The condition of a part: damage, thresholds and overflow.

use crate::classes::Part;

/// The state of a part that others can notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// The part has no points left, and cannot be repaired.
    Destroyed,
    /// The part is out of order.
    Disabled,
    /// The part works.
    Working,
}

/// Returns the status of a part with these points.
#[must_use]
pub fn status(part: &Part, points: f64) -> Status {
    if points <= 0.0 {
        Status::Destroyed
    } else if points < part.disabled_below * part.points {
        Status::Disabled
    } else {
        Status::Working
    }
}

/// Takes damage from the points of a part. Returns the damage that the part took.
///
/// The overflow is lost: no other part takes it.
pub fn damage(points: &mut f64, damage: f64) -> f64 {
    let taken = damage.min(*points).max(0.0);
    *points -= taken;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::ShipClass;

    /// a part fails below its threshold and is destroyed at zero; overflow is lost.
    #[test]
    fn part_fails_and_dies() {
        let sensors = &ShipClass::of(3).expect("the Galaxy").parts[3];
        let mut points = sensors.points;
        assert_eq!(damage(&mut points, 4000.0), 4000.0);
        assert_eq!(status(sensors, points), Status::Working, "exactly half still works");
        damage(&mut points, 1.0);
        assert_eq!(status(sensors, points), Status::Disabled);
        assert_eq!((damage(&mut points, 9000.0), points), (3999.0, 0.0));
        assert_eq!(status(sensors, points), Status::Destroyed);
    }
}
