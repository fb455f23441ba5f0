//! What the table of messages says of each.

use std::fmt;

use super::field::{Cut, Part};

/// The first byte of a payload; any value can be expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Returns the opcode of a payload, if it is not empty.
    #[must_use]
    pub fn of(payload: &[u8]) -> Option<Self> {
        payload.first().copied().map(Self)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "opcode 0x{:02X}", self.0),
        }
    }
}

/// A row of the table: what is known of a message besides its meaning.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its opcode, which has its name and what a host does with it.
    pub opcode: Opcode,
    /// Who says it.
    pub direction: Direction,
    /// How well it is known.
    pub evidence: Evidence,
    /// Its fields.
    pub fields: &'static [Part],
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The host.
    ToClient,
    /// Clients, for the host alone.
    ToHost,
    /// Clients, and the host passes it on.
    Both,
    /// Nobody.
    Never,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToClient => "to client",
            Self::ToHost => "to host",
            Self::Both => "both",
            Self::Never => "never",
        })
    }
}

/// How well the layout of a message is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Captured bytes were read to the last one.
    Captured,
    /// Several texts agree on it.
    Documented,
    /// One text says so, or it follows from others.
    Inferred,
    /// Texts contradict each other.
    Disputed,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Captured => "captured",
            Self::Documented => "documented",
            Self::Inferred => "inferred",
            Self::Disputed => "disputed",
        })
    }
}

/// What a host does with a message of a client in the game (S-34).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Everyone else gets a copy.
    Relay(Check),
    /// It ends here.
    Absorb,
    /// Only the host says that, or nobody: it is dropped.
    HostOnly,
    /// Ships and other objects: kept for those who come later, and passed on.
    Create,
    /// A player's ship explodes.
    SelfDestruct,
    /// A peer asks for an object.
    RequestObject,
    /// Everyone gets it, its sender too.
    Chat,
    /// Its sender's team gets it.
    TeamChat,
    /// It is kept, and passed on.
    Team,
    /// Everyone else gets a copy, unreliably.
    StateUpdate,
    /// A mod's: passed on as it came, unless that is turned off.
    Unknown,
}

/// How it is made sure that a message is about the sender's own things (S-32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// It is an event.
    Event,
    /// It begins with an object.
    Object,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay(Check::Event | Check::Object) => "passed on",
            Self::Absorb => "not passed on",
            Self::HostOnly => "dropped",
            Self::Create => "passed on, told to newcomers",
            Self::SelfDestruct | Self::RequestObject => "answered",
            Self::Chat => "passed on to all",
            Self::TeamChat => "passed on to the team",
            Self::Team => "kept, passed on",
            Self::StateUpdate => "passed on without hash",
            Self::Unknown => "passed on as it came",
        })
    }
}

/// Why a payload is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GameError {
    /// Its first byte, if it has one.
    pub opcode: Option<Opcode>,
    /// The field that is wrong.
    pub field: &'static str,
    /// Where that field begins.
    pub offset: usize,
    /// What is wrong with it.
    pub reason: GameErrorReason,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GameErrorReason {
    /// The payload ends inside it.
    Truncated,
    /// It is behind the last field.
    Trailing,
}

impl GameError {
    /// There is not even an opcode.
    pub(crate) const EMPTY: Self =
        Self { opcode: None, field: "opcode", offset: 0, reason: GameErrorReason::Truncated };

    /// The payload ends inside a field.
    pub(super) const fn truncated(opcode: Opcode, Cut { field, at }: Cut) -> Self {
        Self { opcode: Some(opcode), field, offset: at, reason: GameErrorReason::Truncated }
    }
}

impl fmt::Display for GameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(opcode) = self.opcode else { return f.write_str("empty payload") };
        write!(f, "{opcode}: ")?;
        match self.reason {
            GameErrorReason::Truncated => {
                write!(f, "ends in {}, which begins at byte {}", self.field, self.offset)
            }
            GameErrorReason::Trailing => write!(f, "goes on behind its last field, at byte {}", self.offset),
        }
    }
}

impl std::error::Error for GameError {}
