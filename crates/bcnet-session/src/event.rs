//! What a session tells its caller.

use std::fmt;
use std::net::SocketAddrV4;

use bcnet_transport::LeaveReason;
use bcnet_transport::wire::{BootReason, PeerId};

use crate::manifest::{Manifest, Mismatch};
use crate::stats::Anomaly;

/// Something that happened, for logs and consoles. Texts have no control characters.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A client was let in and is being checked.
    Joining {
        /// Who.
        peer: PeerId,
        /// From where.
        address: SocketAddrV4,
    },
    /// A client has a name and a slot.
    Joined {
        /// Who.
        peer: PeerId,
        /// What it calls itself.
        name: String,
        /// From where.
        address: SocketAddrV4,
        /// Its slot.
        slot: u8,
    },
    /// A player has loaded the mission and takes part.
    InGame {
        /// Who.
        peer: PeerId,
        /// What it calls itself.
        name: String,
    },
    /// A player is gone.
    Left {
        /// Who.
        peer: PeerId,
        /// What it called itself; empty if it never said.
        name: String,
        /// From where it was.
        address: SocketAddrV4,
        /// Why.
        reason: LeaveReason,
    },
    /// A player says something.
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
    /// A peer was turned away. Told ten times a second at most; [`Counters`](crate::Counters) has them all.
    Refused {
        /// From where.
        from: SocketAddrV4,
        /// Why.
        reason: BootReason,
    },
    /// A client's files are not those of any manifest; it is turned away.
    ChecksumMismatch {
        /// Who.
        peer: PeerId,
        /// What it calls itself.
        name: String,
        /// From where.
        address: SocketAddrV4,
        /// Where they differ.
        mismatch: Mismatch,
    },
    /// All that a client told about its files; only with [`Config::learn`](crate::Config::learn).
    ManifestLearned {
        /// Who.
        peer: PeerId,
        /// Its files.
        manifest: Box<Manifest>,
    },
    /// A player did something odd that had no effect. Told at the 1st, 2nd, 4th, 8th … time of each kind.
    Anomaly {
        /// Who.
        peer: PeerId,
        /// What.
        kind: Anomaly,
        /// How often so far.
        count: u64,
    },
    /// A round has begun.
    RoundStarted {
        /// Its number, from 1.
        round: u32,
        /// Where.
        system: crate::System,
    },
    /// A round is over.
    RoundEnded {
        /// How it went.
        summary: RoundSummary,
    },
    /// A list server was heard of for the first time, or again after it was lost.
    MasterSeen {
        /// Which.
        master: SocketAddrV4,
    },
    /// Nothing is heard of a list server any more, or never was.
    MasterLost {
        /// Which.
        master: SocketAddrV4,
    },
}

impl Event {
    /// Returns a name for logs, which never changes.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Joining { .. } => "joining",
            Self::Joined { .. } => "joined",
            Self::InGame { .. } => "in_game",
            Self::Left { .. } => "left",
            Self::Chat { .. } => "chat",
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

/// How a round went.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSummary {
    /// Its number, from 1.
    pub round: u32,
    /// Where it was.
    pub system: crate::System,
    /// How long it took.
    pub duration: std::time::Duration,
    /// What ended it.
    pub reason: EndReason,
    /// Who took part: those who are there, by slot, then those who have left, 64 at most.
    pub players: Vec<Participant>,
}

/// Who took part in a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Participant {
    /// What it called itself.
    pub name: String,
    /// How it did.
    pub score: crate::Score,
    /// How long it was in the game.
    pub played: std::time::Duration,
}

/// What ends a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The time is up.
    Time,
    /// The host starts the next one.
    Restart,
    /// Everyone has left.
    Empty,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Restart => "restart",
            Self::Empty => "empty",
        })
    }
}
