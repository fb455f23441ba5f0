//! Events: what happens to one of a player's things. Many messages are one, each of one or a few kinds.

use super::code::{EventClass, EventNumber, PhaserLevel};
use super::field::{Cut, Names, Reader, Text8, Wire, names, record};
use super::object::ObjectId;
use super::packed::ScaledVector;

/// Something happens.
#[derive(Debug, Clone, PartialEq)]
pub struct GameEvent<'a> {
    /// What it is.
    pub event: EventNumber,
    /// What causes it, if anything.
    pub source: ObjectId,
    /// What it happens to.
    pub related: ObjectId,
    /// What else is told. It says of which class the event is.
    pub detail: EventDetail<'a>,
}

record! {
    /// What every event begins with.
    pub(crate) [EventHead] {
        /// How it is built.
        class: EventClass,
        /// What it is.
        event: EventNumber,
        /// What causes it, if anything.
        source: ObjectId,
        /// What it happens to.
        related: ObjectId,
    }
}

/// What an event tells besides its head.
#[derive(Debug, Clone, PartialEq)]
pub enum EventDetail<'a> {
    /// Nothing.
    Plain,
    /// Nothing; it is about a subsystem.
    Subsystem,
    /// Something is on or off.
    Bool(u8),
    /// A small number, a [`PhaserLevel`] for one.
    Char(u8),
    /// Another object.
    Object(ObjectId),
    /// A player, by its peer id.
    Player(u8),
    /// Something has hit something.
    Collision(Collision),
    /// Eight bytes that were zero in what was captured.
    StartFiring([u8; 8]),
    /// A ship explodes.
    Exploding(Exploding),
    /// A ship leaves for another set.
    Warp(Warp<'a>),
    /// A class that is none of these.
    Other {
        /// How it is built.
        class: EventClass,
        /// What follows its head.
        rest: &'a [u8],
    },
}

/// Where and how hard something was hit.
#[derive(Debug, Clone, PartialEq)]
pub struct Collision {
    /// Where it was hit; 255 places at most.
    pub contacts: Vec<ScaledVector>,
    /// How hard.
    pub force: f32,
}

record! {
    /// How a ship explodes.
    pub [Exploding] {
        /// The peer id of who destroyed it; 0 is nobody.
        killer: i32,
        /// How long it takes, in seconds.
        lifetime: f32,
    }
}

record! {
    /// Where a ship goes.
    pub [Warp<'a>] {
        /// The set that it goes to.
        name: Text8<'a>,
        /// Place and speed.
        warp: [f32; 4],
    }
}

impl<'a> GameEvent<'a> {
    /// Returns how it is built.
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
    /// Returns what it is about: what it happens to, or if that is nothing, what causes it (S-32).
    pub(crate) fn subject(&self) -> ObjectId {
        if self.related == ObjectId::NONE { self.source } else { self.related }
    }
}

impl EventClass {
    /// S-32: returns whether the stock game has events of this class from clients.
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
