//! The events, states and errors of a [`Client`](super::Client).
//!
//! Events report what the server sent; states follow the way into the game ([S-80], [S-82], [S-83]). The names that
//! [`ClientState::name`] and [`Event::name`] return are stable, because logs contain them.
//!
//! [S-80]: bcnet_transport::wire::protocol#s-80
//! [S-82]: bcnet_transport::wire::protocol#s-82
//! [S-83]: bcnet_transport::wire::protocol#s-83

use std::fmt;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{LeaveReason, RejectCause, SendError};

use crate::game::{
    CompressedFloat, EndCode, GameError, MissionInit, ObjectId, Opcode, PackedVector, Species, StateUpdate,
    UnitVector,
};
use crate::message::Score;

/// The state of a client.
///
/// A client passes the states in order. It moves back and forth only between [`Lobby`](Self::Lobby) and
/// [`InGame`](Self::InGame).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientState {
    /// The client asks for admission.
    Connecting,
    /// The client was admitted, and the server checks its files.
    Checking,
    /// The server has sent the mission to load. The caller loads it and calls [`enter`](super::Client::enter).
    Loading,
    /// The client has reported that it is ready, and waits until the server lists it.
    Entering,
    /// The client takes part in the game, but has no ship.
    Lobby,
    /// The client has a ship.
    InGame,
    /// The connection has ended.
    Gone,
}

impl ClientState {
    /// Returns the stable name of the state for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Checking => "checking",
            Self::Loading => "loading",
            Self::Entering => "entering",
            Self::Lobby => "lobby",
            Self::InGame => "in_game",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Checking => "file checks",
            Self::Loading => "loading",
            Self::Entering => "entering",
            Self::Lobby => "lobby",
            Self::InGame => "in game",
            Self::Gone => "gone",
        })
    }
}

/// The reason why a connection has ended ([S-83]).
///
/// [S-83]: bcnet_transport::wire::protocol#s-83
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DisconnectReason {
    /// The client has left.
    Left,
    /// The server has refused or booted the client.
    Booted(BootReason),
    /// The server has sent a disconnect notice.
    HostLeft,
    /// The server was silent for longer than the idle timeout.
    HostTimedOut,
    /// The server sends datagrams, but does not acknowledge those of the client.
    Undeliverable,
    /// The server did not list the client within the [timeout](super::ClientOptions::handshake_timeout).
    HandshakeTimedOut,
}

impl From<LeaveReason> for DisconnectReason {
    fn from(leave: LeaveReason) -> Self {
        match leave {
            LeaveReason::Local => Self::Left,
            LeaveReason::Booted(reason) => Self::Booted(reason),
            LeaveReason::Silent => Self::HostTimedOut,
            LeaveReason::Undeliverable => Self::Undeliverable,
            LeaveReason::Disconnected | LeaveReason::Replaced => Self::HostLeft,
        }
    }
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left"),
            Self::Booted(reason) => write!(f, "booted: {reason}"),
            Self::HostLeft => f.write_str("the server has closed the connection"),
            Self::HostTimedOut => f.write_str("the server does not answer"),
            Self::Undeliverable => f.write_str("the server does not acknowledge messages"),
            Self::HandshakeTimedOut => {
                f.write_str("the server did not let the client enter the game in time")
            }
        }
    }
}

/// A file check request of the server ([S-20]).
///
/// [S-20]: bcnet_transport::wire::protocol#s-20
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCheck {
    /// The round number on the wire: 0, 1, 2, 3 or 0xFF.
    pub index: u8,
    /// The directory to check.
    pub directory: String,
    /// The pattern of file names to check.
    pub filter: String,
    /// True if the check includes subdirectories.
    pub recursive: bool,
}

/// The settings that the server sends before the client loads the mission ([S-25]).
///
/// [S-25]: bcnet_transport::wire::protocol#s-25
#[derive(Debug, Clone, PartialEq)]
pub struct GameSettings {
    /// The name of the mission script.
    pub mission: String,
    /// The slot of this client.
    pub slot: u8,
    /// The game clock, in seconds.
    pub game_time: f32,
    /// True if ships can collide.
    pub collisions: bool,
    /// True if weapons can hit ships of the shooter's team.
    pub friendly_fire: bool,
}

/// A player's ship, as it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayerShip {
    /// The slot that the ship belongs to.
    pub slot: u8,
    /// The owner, if the server has sent it.
    pub peer: Option<PeerId>,
    /// The object id of the ship.
    pub object: ObjectId,
    /// The class of the ship.
    pub species: Species,
}

/// The last report of where a ship is. Its owner sends about ten per second, and the network loses some.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShipPosition {
    /// The coordinates in the set.
    pub place: [f32; 3],
    /// The direction of the bow, if it was sent.
    pub forward: Option<[f32; 3]>,
    /// The speed, negative backwards, if it was sent.
    pub speed: Option<f32>,
    /// The game time of the report. `None` is the place where the ship was created.
    pub time: Option<f32>,
    /// The last complete position: others are sent as distances from it.
    pub(super) base: [f32; 3],
}

impl ShipPosition {
    /// Returns the position of a new ship, or `None` if its place is not a place.
    pub(super) fn created_at(place: [f32; 3]) -> Option<Self> {
        let is_place = place.iter().all(|part| part.is_finite());
        is_place.then_some(Self { place, forward: None, speed: None, time: None, base: place })
    }

    /// Applies a report. It has no effect if it is older than the last, or has no finite place.
    pub(super) fn update(&mut self, update: &StateUpdate<'_>) {
        if self.time.is_some_and(|time| update.time < time) {
            return;
        }
        let base = update.position.map_or(self.base, |position| position.place);
        let [dx, dy, dz] = update.delta.map_or([0.0; 3], PackedVector::vector);
        let [x, y, z] = base;
        let place = match (update.position, update.delta) {
            (None, None) => self.place,
            _ => [x + dx, y + dy, z + dz],
        };
        if place.iter().all(|part| part.is_finite()) && update.time.is_finite() {
            (self.place, self.base, self.time) = (place, base, Some(update.time));
            self.forward = update.forward.map(UnitVector::vector).or(self.forward);
            self.speed = update.speed.map(CompressedFloat::value).or(self.speed);
        }
    }
}

/// Something that a correct server never sends. It had no effect, except on a counter ([S-84]).
///
/// [S-84]: bcnet_transport::wire::protocol#s-84
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAnomaly {
    /// A datagram that the transport could not use.
    Datagram(RejectCause),
    /// An incomplete game message.
    Malformed(GameError),
    /// A complete game message about something impossible.
    ///
    /// Examples are a slot or peer id out of range, an object of another slot, or a mission to load before the
    /// settings.
    Impossible(Opcode),
}

impl fmt::Display for ServerAnomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagram(cause) => write!(f, "a datagram ({cause})"),
            Self::Malformed(error) => error.fmt(f),
            Self::Impossible(opcode) => write!(f, "{opcode} with impossible contents"),
        }
    }
}

/// Something that happened. Texts in events have no control characters.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The server has admitted the client.
    Connected {
        /// The client's own peer id.
        id: PeerId,
    },
    /// The server checks files. Answer with [`answer_file_check`](super::Client::answer_file_check).
    FileCheck(FileCheck),
    /// The files differ from those that the server requires. The server will boot the client.
    FilesDiffer {
        /// The first file that differs.
        file: String,
    },
    /// The server accepts the files.
    FilesPassed,
    /// The server has sent the settings of the game.
    Settings(GameSettings),
    /// The client has to load the mission, then call [`enter`](super::Client::enter).
    Load,
    /// The server has sent the star system and the limits of the round.
    Mission(MissionInit),
    /// The server lists this client: it takes part now.
    Entered,
    /// A peer has a name now. The client's own name is reported, too.
    Named {
        /// The peer.
        peer: PeerId,
        /// The name of the peer.
        name: String,
    },
    /// A peer's connection has ended, so it takes part no more.
    Disconnected {
        /// The peer.
        peer: PeerId,
        /// The last name of the peer.
        name: String,
        /// The reason of the end.
        reason: LeaveReason,
        /// True if the peer was listed until now. If not, [`Left`](Self::Left) came before, or it never took part.
        listed: bool,
    },
    /// A player takes part now.
    Joined {
        /// The player's peer id.
        peer: PeerId,
        /// The player's name; empty if it is not known.
        name: String,
    },
    /// The server has removed a player from the list, so it takes part no more.
    Left {
        /// The player's peer id.
        peer: PeerId,
        /// The player's last name.
        name: String,
    },
    /// A player has sent chat, or the server under a player's id.
    Chat {
        /// The peer id of the sender.
        peer: PeerId,
        /// The name of the sender.
        name: String,
        /// The text.
        text: String,
        /// True if the chat is for the team only.
        team: bool,
    },
    /// The score of a player was sent.
    Score {
        /// The player's peer id.
        peer: PeerId,
        /// The score.
        score: Score,
    },
    /// The score of a team was sent.
    TeamScore {
        /// The number of the team.
        team: u8,
        /// The score; deaths are always 0, because the server does not send them.
        score: Score,
    },
    /// A player has lost its ship. [`players`](super::Client::players) has the new scores.
    Died {
        /// The owner of the ship.
        victim: PeerId,
        /// The player that destroyed the ship, if any.
        killer: Option<PeerId>,
    },
    /// The round is over.
    RoundEnded {
        /// The reason of the end.
        reason: EndCode,
    },
    /// The next round begins.
    RoundStarted,
    /// A ship was created.
    ShipCreated(PlayerShip),
    /// A ship explodes.
    ShipExploding {
        /// The object id of the ship.
        object: ObjectId,
        /// The owner, if it is known.
        peer: Option<PeerId>,
    },
    /// An object was removed.
    ObjectDestroyed {
        /// The object id.
        object: ObjectId,
        /// The owner, if the object was a ship and the owner is known.
        peer: Option<PeerId>,
    },
    /// Any other game message; the payload buffer contains it.
    Received {
        /// True if the message was reliable.
        reliable: bool,
    },
    /// The server has sent an anomaly. Reported at the 1st, 2nd, 4th, 8th … anomaly.
    Anomaly {
        /// The last anomaly.
        kind: ServerAnomaly,
        /// The number of anomalies so far.
        count: u64,
    },
    /// The connection has ended. No event follows.
    Gone {
        /// The state before the end.
        state: ClientState,
        /// The reason of the end.
        reason: DisconnectReason,
    },
}

impl Event {
    /// Returns the stable name of the event for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Connected { .. } => "connected",
            Self::FileCheck(_) => "file_check",
            Self::FilesDiffer { .. } => "files_differ",
            Self::FilesPassed => "files_passed",
            Self::Settings(_) => "settings",
            Self::Load => "load",
            Self::Mission(_) => "mission",
            Self::Entered => "entered",
            Self::Named { .. } => "named",
            Self::Disconnected { .. } => "disconnected",
            Self::Joined { .. } => "joined",
            Self::Left { .. } => "left",
            Self::Chat { .. } => "chat",
            Self::Score { .. } => "score",
            Self::TeamScore { .. } => "team_score",
            Self::Died { .. } => "died",
            Self::RoundEnded { .. } => "round_ended",
            Self::RoundStarted => "round_started",
            Self::ShipCreated(_) => "ship_created",
            Self::ShipExploding { .. } => "ship_exploding",
            Self::ObjectDestroyed { .. } => "object_destroyed",
            Self::Received { .. } => "received",
            Self::Anomaly { .. } => "nonsense",
            Self::Gone { .. } => "gone",
        }
    }

    /// Returns the milestone that the event is, or `None` if it is about other players or the game.
    #[must_use]
    pub const fn milestone(&self) -> Option<Milestone<'_>> {
        match self {
            Self::Connected { id } => Some(Milestone::Connected(*id)),
            Self::FileCheck(check) => Some(Milestone::FileCheck(check)),
            Self::Settings(settings) => Some(Milestone::Settings(settings)),
            Self::Load => Some(Milestone::Load),
            Self::Entered => Some(Milestone::Entered),
            Self::Gone { state, reason } => Some(Milestone::Gone { state: *state, reason: *reason }),
            Self::FilesDiffer { .. } | Self::FilesPassed | Self::Mission(_) => None,
            Self::Named { .. } | Self::Joined { .. } | Self::Left { .. } | Self::Disconnected { .. } => None,
            Self::Score { .. } | Self::TeamScore { .. } | Self::Died { .. } => None,
            Self::RoundEnded { .. } | Self::RoundStarted => None,
            Self::ShipCreated(_) | Self::ShipExploding { .. } | Self::ObjectDestroyed { .. } => None,
            Self::Chat { .. } | Self::Received { .. } | Self::Anomaly { .. } => None,
        }
    }
}

/// A step of a client into the game or out of it. The caller only has to react to these events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Milestone<'a> {
    /// [`Event::Connected`].
    Connected(PeerId),
    /// [`Event::FileCheck`].
    FileCheck(&'a FileCheck),
    /// [`Event::Settings`].
    Settings(&'a GameSettings),
    /// [`Event::Load`].
    Load,
    /// [`Event::Entered`].
    Entered,
    /// [`Event::Gone`].
    Gone {
        /// The state before the end.
        state: ClientState,
        /// The reason of the end.
        reason: DisconnectReason,
    },
}

/// The reason why a command was not carried out. No message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// The command is not possible in this state.
    WrongState(ClientState),
    /// No answer is possible: no request is pending, or the manifest does not have that round.
    NoAnswer,
    /// The transport has refused the message.
    Send(SendError),
}

impl From<SendError> for CommandError {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongState(state) => write!(f, "not possible in this state: {state}"),
            Self::NoAnswer => f.write_str(
                "no answer to the file check: no request is pending, or the manifest lacks the round",
            ),
            Self::Send(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CommandError {}
