//! Read-only views of a session for consoles, logs and metrics.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{self as transport, Engine, Snapshot, Time};

use super::Session;
use crate::config::System;
use crate::member::{Member, MemberState};
use crate::message::Score;
use crate::stats::{Anomalies, Counters};

/// The state of a player in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayerState {
    /// The client is admitted and has sent no message yet.
    Connecting,
    /// The client's files are checked; the value is the round, 0 to 4.
    Checking(usize),
    /// The client loads the mission.
    Loading,
    /// The player takes part in the game.
    InGame,
    /// The client's files differ. It is booted when it has acknowledged the notice.
    Refused,
    /// The player is kicked with a reason. It is booted when it has acknowledged the reason.
    KickPending,
}

/// The status of one client, as consoles show it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayerStatus {
    /// The peer id.
    pub id: PeerId,
    /// The slot, once the client has sent a message.
    pub slot: Option<u8>,
    /// The player's name; empty until the client has sent it.
    pub name: String,
    /// The client's address.
    pub address: SocketAddrV4,
    /// The state of the player.
    pub state: PlayerState,
    /// Points, kills and deaths, as far as the server knows them.
    pub score: Score,
    /// The species number of the player's ship, if it has one.
    pub ship: Option<u8>,
    /// The team, in missions with teams.
    pub team: Option<u8>,
    /// The time of admission.
    pub joined_at: Time,
    /// The smoothed round-trip time, once measured.
    pub rtt: Option<Duration>,
    /// True if the player is muted ([S-44]).
    ///
    /// [S-44]: bcnet_transport::wire::protocol#s-44
    pub muted: bool,
    /// The anomalies of the client.
    pub anomalies: Anomalies,
    /// The number of superseded state updates for this player. If it grows, the link is too slow.
    pub superseded: u64,
}

/// The status of a session at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionStatus {
    /// The number of players with a slot.
    pub players: usize,
    /// The number of players in the game.
    pub in_game: usize,
    /// The highest number of players.
    pub player_limit: usize,
    /// The system of the round.
    pub system: System,
    /// The number of the round, from 1.
    pub round: u32,
    /// True if the round is over.
    pub ended: bool,
    /// The game clock.
    pub game_time: Duration,
    /// The remaining time of the round, if it has a time limit and has begun.
    pub time_left: Option<Duration>,
    /// Each list server, and how long ago its last datagram arrived.
    pub masters: Vec<(SocketAddrV4, Option<Duration>)>,
    /// The counters of the session.
    pub counters: Counters,
}

impl<E: Engine> Session<E> {
    /// Returns the status of all members, by peer id.
    pub fn players(&self) -> impl Iterator<Item = PlayerStatus> {
        self.members.iter().flatten().map(|member| self.player_status(member))
    }

    fn player_status(&self, member: &Member) -> PlayerStatus {
        let state = match member.state {
            MemberState::Refused { .. } => PlayerState::Refused,
            MemberState::KickPending { .. } => PlayerState::KickPending,
            _ if member.slot.is_none() => PlayerState::Connecting,
            MemberState::Checking { round, .. } => PlayerState::Checking(round),
            MemberState::Loading { .. } => PlayerState::Loading,
            MemberState::InGame => PlayerState::InGame,
        };
        PlayerStatus {
            id: member.id,
            slot: member.slot,
            name: member.display_name(),
            address: member.address,
            state,
            score: member.score,
            ship: member.ship.alive.then_some(member.ship.species.0),
            team: member.team,
            joined_at: member.joined_at,
            rtt: self.endpoint.rtt(member.id),
            muted: member.is_muted,
            anomalies: member.anomalies,
            superseded: member.superseded,
        }
    }

    /// Returns the number of players in the game.
    #[must_use]
    pub fn players_in_game(&self) -> usize {
        self.in_game.len()
    }

    /// Returns the round-trip times of the players in the game, as far as measured.
    pub fn rtts(&self) -> impl Iterator<Item = (PeerId, Duration)> {
        self.in_game.iter().filter_map(|peer| Some((peer, self.endpoint.rtt(peer)?)))
    }

    /// Returns whether a datagram is from a player in the game, judged by its address and its peer id.
    #[must_use]
    pub fn is_from_player_in_game(&self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        let sender = bytes.first().and_then(|id| self.member(PeerId(*id)));
        sender.is_some_and(|member| member.address == from && member.state == MemberState::InGame)
    }

    /// Returns the status of the session at `now`.
    #[must_use]
    pub fn status(&self, now: Time) -> SessionStatus {
        SessionStatus {
            players: self.taken_slots().count(),
            in_game: self.in_game.len(),
            player_limit: self.config.max_players(),
            system: self.round.system,
            round: self.round.number,
            ended: self.round.is_over(),
            game_time: now.since(self.epoch),
            time_left: self.round.ends_at().map(|ends| ends.since(now)),
            masters: self.masters.last_seen(now).collect(),
            counters: self.counters,
        }
    }

    /// Returns the counters of the session.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the counters of rejected datagrams that belong to no peer.
    #[must_use]
    pub fn rejected(&self) -> transport::RejectCounters {
        self.endpoint.rejected()
    }

    /// Returns the transport's counters of one client.
    #[must_use]
    pub fn peer_counters(&self, peer: PeerId) -> Option<transport::PeerCounters> {
        self.endpoint.counters(peer)
    }

    /// Returns the engine below, for its statistics.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.endpoint
    }

    /// Returns a snapshot of all queues of one client.
    #[must_use]
    pub fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        self.endpoint.snapshot(peer, now)
    }
}
