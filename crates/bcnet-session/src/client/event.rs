//! What a client tells its caller, and where it stands.

use std::fmt;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Cause, Leave, SendError};

use crate::game::{EndCode, GameError, MissionInit, ObjectId, Opcode, Species};
use crate::message::Score;

/// Where a client stands. It goes from one to the next; between [`Lobby`](Self::Lobby) and [`InGame`](Self::InGame) it
/// goes back and forth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It asks to be let in.
    Connecting,
    /// It was let in, and the server asks about its files.
    Checking,
    /// The server has told what is played. The caller loads that, or not, and calls [`enter`](super::Client::enter).
    Loading,
    /// It has said that it is ready, and waits for the server to list it.
    Entering,
    /// It takes part: it hears and is heard. It has no ship.
    Lobby,
    /// It has a ship.
    InGame,
    /// It is over.
    Gone,
}

impl State {
    /// Returns a name for logs, which never changes.
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

impl fmt::Display for State {
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

/// Why it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// This side has left.
    Left,
    /// The server has refused it or thrown it out.
    Booted(BootReason),
    /// The server has said goodbye.
    HostLeft,
    /// Nothing was heard of the server for too long.
    HostSilent,
    /// The server answers, but does not acknowledge what it was sent.
    Undeliverable,
    /// The server has not let it get further within the [handshake timeout](super::Options::handshake_timeout).
    Stalled,
}

impl From<Leave> for End {
    fn from(leave: Leave) -> Self {
        match leave {
            Leave::Local => Self::Left,
            Leave::Booted(reason) => Self::Booted(reason),
            Leave::Silent => Self::HostSilent,
            Leave::Undeliverable => Self::Undeliverable,
            Leave::Disconnected | Leave::Replaced => Self::HostLeft,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left"),
            Self::Booted(reason) => write!(f, "booted: {reason}"),
            Self::HostLeft => f.write_str("the server has said goodbye"),
            Self::HostSilent => f.write_str("the server is silent"),
            Self::Undeliverable => f.write_str("the server does not acknowledge what it is sent"),
            Self::Stalled => f.write_str("the server does not go on"),
        }
    }
}

/// A question about files (S-20).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCheck {
    /// The number of the round on the wire: 0, 1, 2, 3, 0xFF.
    pub index: u8,
    /// The directory that is asked about.
    pub directory: String,
    /// Which of its files.
    pub filter: String,
    /// Whether directories below it are meant too.
    pub recursive: bool,
}

/// What the server says is played, before the client loads (S-25).
#[derive(Debug, Clone, PartialEq)]
pub struct GameSettings {
    /// The script of the mission.
    pub mission: String,
    /// The client's own slot.
    pub slot: u8,
    /// The game clock, in seconds.
    pub game_time: f32,
    /// Whether ships may collide.
    pub collisions: bool,
    /// Whether own team mates can be hit.
    pub friendly_fire: bool,
}

/// A ship, as it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayerShip {
    /// Whose slot it belongs to.
    pub slot: u8,
    /// Whose it is, if the server has told.
    pub peer: Option<PeerId>,
    /// Its object id.
    pub object: ObjectId,
    /// What kind of ship.
    pub species: Species,
}

/// Something that the server sent and that makes no sense. It had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nonsense {
    /// A datagram that the transport could not use.
    Datagram(Cause),
    /// A game message that is not whole.
    Malformed(GameError),
    /// A whole game message that speaks of what cannot be: a slot or a player that nobody can have, another's object, a
    /// mission to load that it has not told.
    Impossible(Opcode),
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagram(cause) => write!(f, "a datagram ({cause})"),
            Self::Malformed(error) => error.fmt(f),
            Self::Impossible(opcode) => write!(f, "{opcode} of what cannot be"),
        }
    }
}

/// Something that happened. Texts have no control characters.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The server has let it in.
    Connected {
        /// Its own id.
        id: PeerId,
    },
    /// The server asks about files: [`answer`](super::Client::answer).
    FileCheck(FileCheck),
    /// The files are not those that the server wants. It will throw the client out.
    FilesDiffer {
        /// The first that differs.
        file: String,
    },
    /// The server is content with the files.
    FilesPassed,
    /// The server tells what is played.
    Settings(GameSettings),
    /// The mission is to be loaded; then [`enter`](super::Client::enter).
    Load,
    /// The server tells where and how long is played.
    Mission(MissionInit),
    /// The server lists this client: it takes part.
    Entered,
    /// A peer tells its name; this client's own comes back, too.
    Named {
        /// Who.
        peer: PeerId,
        /// What it calls itself.
        name: String,
    },
    /// A peer's connection is gone, and it takes part no more.
    Disconnected {
        /// Who.
        peer: PeerId,
        /// What it called itself.
        name: String,
        /// Why.
        reason: Leave,
        /// Whether it took part until now; if not, [`Left`](Self::Left) has been told, or it never did.
        listed: bool,
    },
    /// A player takes part.
    Joined {
        /// Who.
        peer: PeerId,
        /// What it calls itself; empty if that is not known.
        name: String,
    },
    /// A player takes part no more, as the server says.
    Left {
        /// Who.
        peer: PeerId,
        /// What it called itself.
        name: String,
    },
    /// A player says something, or the server in its name.
    Chat {
        /// Who.
        peer: PeerId,
        /// What it calls itself.
        name: String,
        /// What.
        text: String,
        /// To its team only.
        team: bool,
    },
    /// The score of a player.
    Score {
        /// Whose.
        peer: PeerId,
        /// What it has.
        score: Score,
    },
    /// The score of a team.
    TeamScore {
        /// Which.
        team: u8,
        /// What it has; deaths are not told.
        score: Score,
    },
    /// A player has lost its ship; [`players`](super::Client::players) has the scores.
    Died {
        /// Who.
        victim: PeerId,
        /// Who destroyed it, if a player did.
        killer: Option<PeerId>,
    },
    /// The round is over.
    RoundEnded {
        /// Why.
        reason: EndCode,
    },
    /// The next round begins.
    RoundStarted,
    /// A ship is there.
    ShipCreated(PlayerShip),
    /// A ship explodes.
    ShipExploding {
        /// Its object id.
        object: ObjectId,
        /// Its owner, if that is known.
        peer: Option<PeerId>,
    },
    /// An object is gone.
    ObjectDestroyed {
        /// Its object id.
        object: ObjectId,
        /// Its owner, if it was a ship and that is known.
        peer: Option<PeerId>,
    },
    /// Any other game message; the buffer has it.
    Received {
        /// Whether it came reliably.
        reliable: bool,
    },
    /// The server says what makes no sense. Told at the 1st, 2nd, 4th, 8th … time.
    Nonsense {
        /// What.
        what: Nonsense,
        /// How often so far.
        count: u64,
    },
    /// It is over. Nothing more is told.
    Gone {
        /// Where the client stood.
        step: State,
        /// Why.
        end: End,
    },
}

impl Event {
    /// Returns a name for logs, which never changes.
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
            Self::Nonsense { .. } => "nonsense",
            Self::Gone { .. } => "gone",
        }
    }

    /// Returns the point on the client's way that it tells of. `None`: it tells of others, or of what is played.
    #[must_use]
    pub const fn milestone(&self) -> Option<Milestone<'_>> {
        match self {
            Self::Connected { id } => Some(Milestone::Connected(*id)),
            Self::FileCheck(check) => Some(Milestone::FileCheck(check)),
            Self::Settings(settings) => Some(Milestone::Settings(settings)),
            Self::Load => Some(Milestone::Load),
            Self::Entered => Some(Milestone::Entered),
            Self::Gone { step, end } => Some(Milestone::Gone { step: *step, end: *end }),
            Self::FilesDiffer { .. } | Self::FilesPassed | Self::Mission(_) => None,
            Self::Named { .. } | Self::Joined { .. } | Self::Left { .. } | Self::Disconnected { .. } => None,
            Self::Score { .. } | Self::TeamScore { .. } | Self::Died { .. } => None,
            Self::RoundEnded { .. } | Self::RoundStarted => None,
            Self::ShipCreated(_) | Self::ShipExploding { .. } | Self::ObjectDestroyed { .. } => None,
            Self::Chat { .. } | Self::Received { .. } | Self::Nonsense { .. } => None,
        }
    }
}

/// A point on a client's way into the game and out of it. All that a caller must do on that way hangs on these.
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
        /// Where the client stood.
        step: State,
        /// Why.
        end: End,
    },
}

/// Why a command was not carried out. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// It makes no sense where the client stands.
    State(State),
    /// There is no answer: nobody has asked, or the manifest does not have that round.
    NoAnswer,
    /// The transport does not take it.
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
            Self::State(state) => write!(f, "not while {state}"),
            Self::NoAnswer => f.write_str("no answer to that file check"),
            Self::Send(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CommandError {}
