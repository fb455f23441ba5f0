//! The events that a session reports to its caller.
//!
//! Events are for logs and consoles. They have no effect on the session. [`Event::name`] returns stable names.

use std::fmt;
use std::net::SocketAddrV4;

use bcnet_transport::LeaveReason;
use bcnet_transport::wire::PeerId;

use crate::manifest::{Manifest, Mismatch};
use crate::refusal::JoinRefusal;
use crate::stats::Anomaly;

/// Something that happened in a session. Texts have no control characters.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A client was admitted, and the server checks its files.
    Joining {
        /// The client.
        peer: PeerId,
        /// The address of the client.
        address: SocketAddrV4,
    },
    /// A client has a name and a slot.
    Joined {
        /// The client.
        peer: PeerId,
        /// The name of the player.
        name: String,
        /// The address of the client.
        address: SocketAddrV4,
        /// The slot of the player.
        slot: u8,
    },
    /// A player has loaded the mission and takes part.
    InGame {
        /// The player.
        peer: PeerId,
        /// The name of the player.
        name: String,
    },
    /// A player is gone.
    Left {
        /// The player.
        peer: PeerId,
        /// The last name of the player; empty if the client never sent one.
        name: String,
        /// The address of the player.
        address: SocketAddrV4,
        /// The reason.
        reason: LeaveReason,
    },
    /// A player has sent chat.
    Chat {
        /// The player.
        peer: PeerId,
        /// The name of the player.
        name: String,
        /// The text.
        text: String,
        /// True if the chat is for the team only.
        team: bool,
    },
    /// A player in the game has sent a message that passed the checks.
    ///
    /// Reported only with [`Config::game_events`](crate::Config::game_events).
    Game {
        /// The player.
        peer: PeerId,
        /// The bytes of the message. [`Message::parse_prefix`](crate::game::Message::parse_prefix) never fails on them.
        payload: Box<[u8]>,
        /// True if the player has sent it reliably.
        reliable: bool,
    },
    /// A client was refused.
    ///
    /// Reported at most ten times per second; [`Counters`](crate::Counters) counts all refusals.
    Refused {
        /// The address of the client.
        from: SocketAddrV4,
        /// The reason.
        refusal: JoinRefusal,
    },
    /// A client's files match no manifest, so the client is refused.
    ChecksumMismatch {
        /// The client.
        peer: PeerId,
        /// The name of the player.
        name: String,
        /// The address of the client.
        address: SocketAddrV4,
        /// The first difference.
        mismatch: Mismatch,
    },
    /// A client has answered all file checks.
    ///
    /// Reported only with [`Config::learn_manifests`](crate::Config::learn_manifests).
    ManifestLearned {
        /// The client.
        peer: PeerId,
        /// The hashes of the client's files.
        manifest: Box<Manifest>,
    },
    /// A player has sent something that a correct client does not send. It had no effect.
    ///
    /// Reported at the 1st, 2nd, 4th, 8th … anomaly of each kind.
    Anomaly {
        /// The player.
        peer: PeerId,
        /// The kind of anomaly.
        kind: Anomaly,
        /// The number of anomalies of this kind so far.
        count: u64,
    },
    /// A round has begun.
    RoundStarted {
        /// The number of the round, from 1.
        round: u32,
        /// The star system of the round.
        system: crate::System,
    },
    /// A round is over.
    RoundEnded {
        /// The result of the round.
        summary: RoundSummary,
    },
    /// A list server has sent a datagram, for the first time or after it was lost.
    MasterSeen {
        /// The address of the list server.
        master: SocketAddrV4,
    },
    /// A list server has sent no datagram for too long, or never sent one.
    MasterLost {
        /// The address of the list server.
        master: SocketAddrV4,
    },
}

impl Event {
    /// Returns the stable name of the event for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Joining { .. } => "joining",
            Self::Joined { .. } => "joined",
            Self::InGame { .. } => "in_game",
            Self::Left { .. } => "left",
            Self::Chat { .. } => "chat",
            Self::Game { .. } => "game",
            Self::Refused { .. } => "refused",
            Self::ChecksumMismatch { .. } => "checksum_mismatch",
            Self::ManifestLearned { .. } => "manifest_learned",
            Self::Anomaly { .. } => "anomaly",
            Self::RoundStarted { .. } => "round_started",
            Self::RoundEnded { .. } => "round_ended",
            Self::MasterSeen { .. } => "master_seen",
            Self::MasterLost { .. } => "master_lost",
        }
    }
}

/// The result of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSummary {
    /// The number of the round, from 1.
    pub round: u32,
    /// The star system of the round.
    pub system: crate::System,
    /// The duration of the round.
    pub duration: std::time::Duration,
    /// The reason of the end.
    pub reason: EndReason,
    /// The players that took part: those that are present, by slot, then at most 64 that have left.
    pub players: Vec<Participant>,
}

/// A player that took part in a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Participant {
    /// The name of the player.
    pub name: String,
    /// The score of the player.
    pub score: crate::Score,
    /// The time that the player was in the game.
    pub played: std::time::Duration,
}

/// The reason why a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The time is up.
    Time,
    /// The host starts the next round.
    Restart,
    /// Everyone has left.
    Empty,
    /// The game policy has ended it.
    Decided,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Restart => "restart",
            Self::Empty => "empty",
            Self::Decided => "decided",
        })
    }
}
