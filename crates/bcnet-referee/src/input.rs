//! The inputs of the world.

/// The id of an object: a ship, or one of its parts.
///
/// The id of part *n* of a ship is that of the ship plus *n* + 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// The slot of a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

/// A report of a player, or an event of the session.
///
/// The caller has checked that the reporting player owns the ship.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "each variant names its fields")]
pub enum Input<'a> {
    /// A ship comes (message 03). The rotation is a quaternion, w first.
    Arrive { ship: ObjectId, slot: Slot, species: u8, position: [f32; 3], rotation: [f32; 4] },
    /// A ship is removed, without a death.
    Leave { ship: ObjectId },
    /// A ship moves (message 1C).
    Move { ship: ObjectId, motion: Motion },
    /// A weapon, or a weapon system, begins to fire at a target (message 07).
    ///
    /// The aim point is in the axes of the target; without one, it is the place of the hull.
    StartFire { weapon: ObjectId, target: ObjectId, aim: Option<[f32; 3]> },
    /// A weapon, or a weapon system, stops (messages 08 and 09).
    StopFire { weapon: ObjectId },
    /// A tube launches a torpedo (message 19).
    Torpedo { tube: ObjectId, kind: u8, direction: [f32; 3], target: Option<ObjectId>, aim: Option<[f32; 3]> },
    /// A pulse weapon fires a bolt (message 1A).
    Bolt { weapon: ObjectId, direction: [f32; 3], target: Option<ObjectId> },
    /// A system changes the type of its torpedoes (message 1B), so its tubes are empty.
    TorpedoType { system: ObjectId },
    /// A weapon system gets a level: 0, 1 or 2 (message 12).
    Level { system: ObjectId, level: u8 },
    /// The owner sets the power of the part at a place of the ship's list (message 1C): 1.25 at most.
    Power { ship: ObjectId, place: u8, share: f32 },
    /// The owner switches a part on or off (message 0A).
    Switch { part: ObjectId, on: bool },
    /// The owner cloaks or decloaks (messages 0E and 0F).
    Cloak { ship: ObjectId, on: bool },
    /// The owner moves a part to the head or the tail of the repair queue (message 11).
    Prefer { part: ObjectId },
    /// A player reports a collision (message 15).
    ///
    /// A contact is a direction in ship axes, scaled to a fraction of the bounding radius. A source of 0 is
    /// scenery.
    Collision { reporter: Slot, source: ObjectId, target: ObjectId, contacts: &'a [[f32; 3]], force: f32 },
    /// A player destroys the own ship (message 13).
    SelfDestruct { ship: ObjectId },
    /// A player has a team, or none (message 41).
    Team { slot: Slot, team: Option<u8> },
}

/// The fields of a state update. Absent fields have not changed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Motion {
    /// The position.
    pub position: Option<[f32; 3]>,
    /// The directions of the bow and of the upper side.
    pub axes: Option<([f32; 3], [f32; 3])>,
    /// The speed along the bow.
    pub speed: Option<f32>,
    /// The owner's wish to be cloaked or visible.
    pub cloaked: Option<bool>,
}

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal,)+) => {
        /// The reason why an input has no effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Refusal {
            $($(#[doc = $doc])+ $name,)+
        }

        /// All reasons, in order.
        pub const REFUSALS: &[Refusal] = &[$(Refusal::$name,)+];

        impl core::fmt::Display for Refusal {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)+ })
            }
        }
    };
}

refusals! {
    /// The class of a new ship is no stock ship.
    UnknownClass "the class of the ship is not known",
    /// No ship has this id, or it is gone.
    UnknownShip "no ship has this id",
    /// The id belongs to no part that the input can be about.
    UnknownPart "the part does not exist or cannot do this",
    /// The target is no living ship.
    NoTarget "the target is no living ship",
    /// The projectile is no stock projectile.
    UnknownProjectile "the projectile is not known",
    /// A number is infinite, not a number or out of range.
    BadNumber "a number is out of range",
    /// The ship has no valid position yet.
    NoPosition "the ship has no position yet",
    /// The ship is dying.
    Dead "the ship is dying",
    /// The ship is cloaked.
    Cloaked "the ship is cloaked",
    /// The part, or its system, is out of order or off.
    OutOfOrder "the part is out of order or off",
    /// The weapon has no charge, or no torpedo is ready.
    NotReady "the weapon is not ready",
    /// The slot or the id is in use, or the world is full.
    Full "there is no room",
    /// The reporter is not part of the collision, or another player must report it.
    ForeignReport "the collision is not the reporter's to report",
    /// The ships are too far from each other.
    TooFar "the ships are too far apart",
    /// The same collision was reported a moment ago.
    TooSoon "the collision was reported a moment ago",
}

impl core::error::Error for Refusal {}
