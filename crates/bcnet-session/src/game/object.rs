//! Objects: their ids, and the messages that create them ([S-02], [S-77]).
//!
//! [S-02]: bcnet_transport::wire::protocol#s-02
//! [S-77]: bcnet_transport::wire::protocol#s-77

use super::code::{ObjectClass, Species};
use super::describe::Value;
use super::field::{Cut, Names, Reader, Text8, Wire, names, record};
use super::subsystems::note_subsystems;

/// The id of a ship, of a subsystem or of another object. Each slot has a range of ids ([S-02]).
///
/// [S-02]: bcnet_transport::wire::protocol#s-02
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId(pub u32);

impl ObjectId {
    /// The value that means no object.
    pub const NONE: Self = Self(0);
    /// The number of object ids of a slot.
    pub const PER_SLOT: u32 = 0x40000;
    const FIRST_ID: u32 = 0x3FFF_FFFF;

    /// Returns the id of the object with this number in a slot. Numbers above the range wrap around.
    #[must_use]
    pub const fn new(slot: u8, index: u32) -> Self {
        Self(Self::FIRST_ID + slot as u32 * Self::PER_SLOT + index % Self::PER_SLOT)
    }

    /// Returns the slot that owns the object, or `None` if no slot does.
    #[must_use]
    pub fn owner(self) -> Option<u8> {
        let slot = self.0.checked_sub(Self::FIRST_ID)? / Self::PER_SLOT;
        u8::try_from(slot).ok().filter(|slot| usize::from(*slot) < crate::config::MAX_SLOTS)
    }

    /// Returns the number of the object in its slot, or `None` if no slot owns it.
    #[must_use]
    pub fn index(self) -> Option<u32> {
        self.owner().map(|slot| self.0 - Self::new(slot, 0).0)
    }
}

impl<'a> Wire<'a> for ObjectId {
    const KIND: &'static str = "object id";

    #[inline]
    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let id = Self(u32::from_le_bytes(reader.array(names)?));
        reader.note(names.name, 4, Value::Id(id.0));
        Ok(id)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }
}

/// A created object: a ship, or an object whose layout is known only up to its id.
#[derive(Debug, Clone, PartialEq)]
pub enum Created<'a> {
    /// A ship.
    Ship {
        /// The id of the ship.
        object: ObjectId,
        /// The ship.
        ship: Ship<'a>,
    },
    /// Anything else.
    Other {
        /// The class of the object, which is not a ship.
        class: ObjectClass,
        /// The id of the object.
        object: ObjectId,
        /// The bytes behind the id. Their layout is not known, not even for torpedoes.
        body: &'a [u8],
    },
}

record! {
    /// A ship, as a message creates it.
    pub [Ship<'a>] {
        /// The class of the ship.
        species: Species,
        /// The position of the ship.
        position: [f32; 3],
        /// The rotation: a quaternion, w first, from the ship's axes (y forward, z up) to those of the set.
        rotation: [f32; 4],
        /// Seven bytes, zero in all captures; perhaps a speed or a velocity.
        unknown: [u8; 7],
        /// The player's name.
        name: Text8<'a>,
        /// The set that the ship is in.
        set: Text8<'a>,
        /// The condition of the subsystems.
        ///
        /// [`Species::subsystem_bytes`] returns their meaning. Ships of mods have other bytes.
        subsystems: &'a [u8],
    }
}

impl<'a> Ship<'a> {
    /// Returns a ship at the origin of a set, without rotation.
    ///
    /// [`Species::healthy_subsystems`] returns its subsystems. `name` is the player's name and `set` the name of the star system, for example `Multi1`.
    ///
    /// ```
    /// use bcnet_session::game::{Ship, Species};
    ///
    /// let subsystems = Species::AKIRA.healthy_subsystems().expect("a class of the stock game");
    /// let ship = Ship { position: [100.0, 0.0, 0.0], ..Ship::healthy(Species::AKIRA, b"Kirk", b"Multi1", &subsystems) };
    /// assert_eq!(ship.subsystems.len(), 51);
    /// ```
    #[must_use]
    pub const fn healthy(species: Species, name: &'a [u8], set: &'a [u8], subsystems: &'a [u8]) -> Self {
        Self {
            species,
            position: [0.0; 3],
            rotation: [1.0, 0.0, 0.0, 0.0],
            unknown: [0; 7],
            name: Text8(name),
            set: Text8(set),
            subsystems,
        }
    }
}

impl Created<'_> {
    /// Returns the id of the object.
    #[must_use]
    pub const fn object(&self) -> ObjectId {
        match self {
            Self::Ship { object, .. } | Self::Other { object, .. } => *object,
        }
    }
}

impl<'a> Wire<'a> for Created<'a> {
    const KIND: &'static str = "object";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let class = ObjectClass::read(reader, names!(class))?;
        let object = ObjectId::read(reader, names!(object))?;
        Ok(if class == ObjectClass::SHIP {
            let ship = Ship::read(reader, names)?;
            note_subsystems(reader, ship.species, ship.subsystems);
            Self::Ship { object, ship }
        } else {
            Self::Other { class, object, body: Wire::read(reader, names!(body))? }
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ship { object, ship } => {
                ObjectClass::SHIP.write(out);
                object.write(out);
                ship.write(out);
            }
            Self::Other { class, object, body } => {
                class.write(out);
                object.write(out);
                body.write(out);
            }
        }
    }
}
