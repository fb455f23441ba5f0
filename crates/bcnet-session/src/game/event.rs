//! Events: something happens to an object of a player ([S-75]).
//!
//! Many messages contain an event. Each such message has events of one or a few kinds.
//!
//! [S-75]: bcnet_transport::wire::protocol#s-75

use super::code::{EventClass, EventNumber, PhaserLevel};
use super::field::{Cut, Names, Reader, Text8, Wire, names, record};
use super::object::ObjectId;
use super::packed::ScaledVector;

/// An event of the game.
#[derive(Debug, Clone, PartialEq)]
pub struct GameEvent<'a> {
    /// The kind of the event.
    pub event: EventNumber,
    /// The object that causes the event, if any.
    pub source: ObjectId,
    /// The object that the event happens to.
    pub related: ObjectId,
    /// The rest of the event. It determines the class.
    pub detail: EventDetail<'a>,
}

record! {
    /// The fields at the beginning of every event.
    pub(crate) [EventHead] {
        /// The class of the event.
        class: EventClass,
        /// The kind of the event.
        event: EventNumber,
        /// The object that causes the event, if any.
        source: ObjectId,
        /// The object that the event happens to.
        related: ObjectId,
    }
}

/// The fields of an event behind its head.
#[derive(Debug, Clone, PartialEq)]
pub enum EventDetail<'a> {
    /// No fields.
    Plain,
    /// No fields; the event is about a subsystem.
    Subsystem,
    /// A switch: on or off.
    Bool(u8),
    /// A small number, for example a [`PhaserLevel`].
    Char(u8),
    /// Another object.
    Object(ObjectId),
    /// A player, by its peer id.
    Player(u8),
    /// A collision.
    Collision(Collision),
    /// Eight bytes, zero in all captures.
    StartFiring([u8; 8]),
    /// A ship explodes.
    Exploding(Exploding),
    /// A ship warps to another set.
    Warp(Warp<'a>),
    /// An event of any other class.
    Other {
        /// The class of the event.
        class: EventClass,
        /// The bytes behind the head.
        rest: &'a [u8],
    },
}

/// The places and the force of a collision.
#[derive(Debug, Clone, PartialEq)]
pub struct Collision {
    /// The places on the ship, at most 255.
    pub contacts: Vec<ScaledVector>,
    /// The force.
    pub force: f32,
}

record! {
    /// The explosion of a ship.
    pub [Exploding] {
        /// The peer id of the player that destroyed the ship; 0 for none.
        killer: i32,
        /// The duration of the explosion, in seconds.
        lifetime: f32,
    }
}

record! {
    /// The destination of a warp.
    pub [Warp<'a>] {
        /// The name of the destination set.
        name: Text8<'a>,
        /// The position and the speed.
        warp: [f32; 4],
    }
}

impl<'a> GameEvent<'a> {
    /// Returns the class of the event.
    #[must_use]
    pub const fn class(&self) -> EventClass {
        match self.detail {
            EventDetail::Plain => EventClass::PLAIN,
            EventDetail::Subsystem => EventClass::SUBSYSTEM,
            EventDetail::Bool(_) => EventClass::BOOL,
            EventDetail::Char(_) => EventClass::CHAR,
            EventDetail::Object(_) => EventClass::OBJECT,
            EventDetail::Player(_) => EventClass::PLAYER,
            EventDetail::Collision(_) => EventClass::COLLISION,
            EventDetail::StartFiring(_) => EventClass::START_FIRING,
            EventDetail::Exploding(_) => EventClass::EXPLODING,
            EventDetail::Warp(_) => EventClass::WARP,
            EventDetail::Other { class, .. } => class,
        }
    }

    fn head(&self) -> EventHead {
        EventHead { class: self.class(), event: self.event, source: self.source, related: self.related }
    }
}

impl EventHead {
    /// Returns the object that the event is about (S-32).
    ///
    /// That is the object that it happens to. If there is none, it is the object that causes it.
    pub(crate) fn subject(&self) -> ObjectId {
        if self.related == ObjectId::NONE { self.source } else { self.related }
    }
}

impl EventClass {
    /// Returns whether stock clients send events of this class (S-32).
    pub(crate) const fn is_from_clients(self) -> bool {
        matches!(
            self,
            Self::PLAIN
                | Self::SUBSYSTEM
                | Self::BOOL
                | Self::CHAR
                | Self::OBJECT
                | Self::START_FIRING
                | Self::WARP
        )
    }
}

impl<'a> Wire<'a> for GameEvent<'a> {
    const KIND: &'static str = "event";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let EventHead { class, event, source, related } = Wire::read(reader, names)?;
        let detail = match class {
            EventClass::PLAIN => EventDetail::Plain,
            EventClass::SUBSYSTEM => EventDetail::Subsystem,
            EventClass::BOOL => EventDetail::Bool(Wire::read(reader, names!(value))?),
            EventClass::CHAR if event == EventNumber::SET_PHASER_LEVEL => {
                EventDetail::Char(PhaserLevel::read(reader, names!(value))?.0)
            }
            EventClass::CHAR => EventDetail::Char(Wire::read(reader, names!(value))?),
            EventClass::OBJECT => EventDetail::Object(Wire::read(reader, names!(object))?),
            EventClass::PLAYER => EventDetail::Player(Wire::read(reader, names!(peer))?),
            EventClass::COLLISION => EventDetail::Collision(Wire::read(reader, names)?),
            EventClass::START_FIRING => EventDetail::StartFiring(Wire::read(reader, names!(unknown))?),
            EventClass::EXPLODING => EventDetail::Exploding(Wire::read(reader, names)?),
            EventClass::WARP => EventDetail::Warp(Wire::read(reader, names)?),
            _ => EventDetail::Other { class, rest: Wire::read(reader, names!(rest))? },
        };
        Ok(Self { event, source, related, detail })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.head().write(out);
        match &self.detail {
            EventDetail::Plain | EventDetail::Subsystem => {}
            EventDetail::Bool(value) | EventDetail::Char(value) | EventDetail::Player(value) => {
                value.write(out)
            }
            EventDetail::Object(object) => object.write(out),
            EventDetail::Collision(collision) => collision.write(out),
            EventDetail::StartFiring(unknown) => unknown.write(out),
            EventDetail::Exploding(exploding) => exploding.write(out),
            EventDetail::Warp(warp) => warp.write(out),
            EventDetail::Other { rest, .. } => rest.write(out),
        }
    }
}

impl<'a> Wire<'a> for Collision {
    const KIND: &'static str = "collision";

    fn read(reader: &mut Reader<'a>, _: &'static Names) -> Result<Self, Cut> {
        let count = u8::read(reader, names!(contacts))?;
        let contacts = (0..count).map(|_| Wire::read(reader, names!(contact))).collect::<Result<_, _>>()?;
        Ok(Self { contacts, force: Wire::read(reader, names!(force))? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let count = u8::try_from(self.contacts.len()).unwrap_or(u8::MAX);
        count.write(out);
        self.contacts.iter().take(count.into()).for_each(|contact| contact.write(out));
        self.force.write(out);
    }
}
