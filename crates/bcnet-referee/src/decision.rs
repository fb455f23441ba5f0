//! The decisions of the world.

use alloc::vec::Vec;

use crate::laws::condition::Status;
use crate::{ObjectId, Slot};

/// A decision that others must hear.
///
/// The state of parts, faces and batteries is not a decision: [`crate::World::ship`] shows it.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each variant names its fields")]
pub enum Decision {
    /// A part works, is out of order or is destroyed.
    Status { part: ObjectId, status: Status },
    /// A part is on the repair queue, or leaves it.
    Repair { part: ObjectId, what: Repair },
    /// A ship dies. `cause` is the critical part; the duration of the explosion is in tenths of a second.
    ///
    /// `points` has what each attacker gets.
    Death {
        ship: ObjectId,
        slot: Slot,
        killer: Option<Attacker>,
        cause: ObjectId,
        tenths: u8,
        points: Vec<(Slot, i32)>,
    },
    /// The explosion of a ship is over, and the ship is gone.
    Gone { ship: ObjectId },
    /// The device can no longer hide the ship.
    CloakFails { ship: ObjectId },
    /// A tractor beam begins or ceases to hold its target.
    Tractor { system: ObjectId, target: ObjectId, holds: bool },
}

/// The player who damages or destroys a ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attacker {
    /// The slot of the player.
    pub slot: Slot,
    /// The ship, which may be gone.
    pub ship: ObjectId,
}

/// A change of the repair queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// The part waits for repair.
    Queued,
    /// The part is whole again.
    Done,
    /// The part is destroyed, so nothing repairs it.
    Impossible,
}
