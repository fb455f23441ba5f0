//! The columns of the message table: opcode, direction, evidence, and the host's action ([S-34], [S-70]).
//!
//! [S-34]: bcnet_transport::wire::protocol#s-34
//! [S-70]: bcnet_transport::wire::protocol#s-70

use std::fmt;

use super::field::{Cut, Part};

/// The opcode: the first byte of a payload. Every value is allowed.
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

/// A row of the message table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The opcode, which determines the name and the action of a host.
    pub opcode: Opcode,
    /// The direction in the stock game.
    pub direction: Direction,
    /// The evidence of the layout.
    pub evidence: Evidence,
    /// The fields behind the opcode.
    pub fields: &'static [Part],
}

/// The direction of a message in the stock game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The host sends it to clients.
    ToClient,
    /// Clients send it to the host only.
    ToHost,
    /// Clients send it, and the host relays it.
    Both,
    /// No one sends it.
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

/// The evidence of a message's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// All bytes of captured messages were read.
    Captured,
    /// Several texts about the game agree on it.
    Documented,
    /// One text contains it, or it follows from others.
    Inferred,
    /// Texts about the game contradict each other.
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

/// The action of a host for a message of a client in the game ([S-34]).
///
/// [S-34]: bcnet_transport::wire::protocol#s-34
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Relays it to all other players.
    Relay(Check),
    /// Keeps it.
    Absorb,
    /// Drops it: only a host sends it, or no one.
    HostOnly,
    /// Stores the new ship or object for players that join later, and relays the message.
    Create,
    /// Destroys the player's ship.
    SelfDestruct,
    /// Sends the requested object to the player.
    RequestObject,
    /// Relays it to all players, including its sender.
    Chat,
    /// Relays it to the sender's team.
    TeamChat,
    /// Stores the team and relays the message.
    Team,
    /// Relays it to all other players as an unreliable message.
    StateUpdate,
    /// Relays the message of a mod with the reliability with which it came, unless the settings forbid it.
    Unknown,
}

/// The check that a message is about the sender's own objects ([S-32]).
///
/// [S-32]: bcnet_transport::wire::protocol#s-32
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The message contains an event.
    Event,
    /// The message begins with an object id.
    Object,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay(Check::Event | Check::Object) => "relayed",
            Self::Absorb => "kept by the host",
            Self::HostOnly => "dropped",
            Self::Create => "relayed, stored for new players",
            Self::SelfDestruct | Self::RequestObject => "answered",
            Self::Chat => "relayed to all",
            Self::TeamChat => "relayed to the team",
            Self::Team => "stored, relayed",
            Self::StateUpdate => "relayed without hash",
            Self::Unknown => "relayed unchanged",
        })
    }
}

/// The reason why a payload could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GameError {
    /// The first byte of the payload, if there is one.
    pub opcode: Option<Opcode>,
    /// The field with the error.
    pub field: &'static str,
    /// The offset of the field.
    pub offset: usize,
    /// The error in the field.
    pub reason: GameErrorReason,
}

/// The error in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GameErrorReason {
    /// The payload ends inside the field.
    Truncated,
    /// The bytes follow the last field.
    Trailing,
}

impl GameError {
    /// The error of an empty payload.
    pub(crate) const EMPTY: Self =
        Self { opcode: None, field: "opcode", offset: 0, reason: GameErrorReason::Truncated };

    /// Returns the error of a payload that ends inside a field.
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
                write!(f, "truncated in {}, which begins at byte {}", self.field, self.offset)
            }
            GameErrorReason::Trailing => {
                write!(f, "extra bytes after the last field, at byte {}", self.offset)
            }
        }
    }
}

impl std::error::Error for GameError {}
