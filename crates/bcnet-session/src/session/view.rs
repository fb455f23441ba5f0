//! A session as consoles and logs see it.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{self as transport, Engine, Snapshot, Time};

use super::Session;
use crate::config::System;
use crate::member::{Member, State};
use crate::message::Score;
use crate::stats::{Anomalies, Counters};

/// Where a player stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayerState {
    /// Let in, has not answered yet.
    Connecting,
    /// Its files are checked: the round, 0 to 4.
    Checking(usize),
    /// It loads the mission.
    Loading,
    /// It takes part.
    InGame,
    /// Its files differ and it is about to be thrown out.
    Refused,
    /// It is about to be thrown out, when it has read why.
    Dismissed,
}

/// One client, as consoles show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Player {
    /// Its peer id.
    pub id: PeerId,
    /// Its slot, once it has answered.
    pub slot: Option<u8>,
    /// Its name; empty until it has told it.
    pub name: String,
    /// From where.
    pub address: SocketAddrV4,
    /// Where it stands.
    pub state: PlayerState,
    /// Points, kills and deaths, as far as the server knows them.
    pub score: Score,
    /// The number of its ship's class, while it has one.
    pub ship: Option<u8>,
    /// Its team, in missions that have them.
    pub team: Option<u8>,
    /// When it was let in.
    pub joined: Time,
    /// The round trip to it, once measured.
    pub round_trip: Option<Duration>,
    /// Nobody hears its chat (S-44).
    pub muted: bool,
    /// What it did wrong.
    pub anomalies: Anomalies,
    /// State updates for it that were dropped before they left, because newer ones of the same ship replace them: its line
    /// is too thin.
    pub outdated: u64,
}

/// A session at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Players that have answered.
    pub players: usize,
    /// Those that take part.
    pub in_game: usize,
    /// How many there can be.
    pub player_limit: usize,
    /// Where the round is.
    pub system: System,
    /// Its number, from 1.
    pub round: u32,
    /// Whether it is over.
    pub ended: bool,
    /// The game clock.
    pub game_time: Duration,
    /// What is left of the round, if its time is limited and has begun.
    pub time_left: Option<Duration>,
    /// Each list server, and how long ago it was heard of.
    pub masters: Vec<(SocketAddrV4, Option<Duration>)>,
    /// What happened so far.
    pub counters: Counters,
}

impl<E: Engine> Session<E> {
    /// Everyone who was let in, by peer id.
    pub fn players(&self) -> impl Iterator<Item = Player> {
        self.members.iter().flatten().map(|member| self.player(member))
    }

    fn player(&self, member: &Member) -> Player {
        let state = match member.state {
            State::Refused { .. } => PlayerState::Refused,
            State::Dismissed { .. } => PlayerState::Dismissed,
            _ if member.slot.is_none() => PlayerState::Connecting,
            State::Checking { round, .. } => PlayerState::Checking(round),
            State::Loading { .. } => PlayerState::Loading,
            State::InGame => PlayerState::InGame,
        };
        Player {
            id: member.id,
            slot: member.slot,
            name: member.shown_name(),
            address: member.address,
            state,
            score: member.score,
            ship: member.ship.alive.then_some(member.ship.species.0),
            team: member.team,
            joined: member.joined,
            round_trip: self.endpoint.round_trip(member.id),
            muted: member.is_muted,
            anomalies: member.anomalies,
            outdated: member.outdated,
        }
    }

    /// Returns how many take part.
    #[must_use]
    pub fn players_in_game(&self) -> usize {
        self.in_game.len()
    }

    /// Returns the round trips to those in the game, as far as they were measured.
    pub fn round_trips(&self) -> impl Iterator<Item = (PeerId, Duration)> {
        self.in_game.iter().filter_map(|peer| Some((peer, self.endpoint.round_trip(peer)?)))
    }

    /// Returns whether a datagram is from a player in the game, as its address and the id in it tell.
    #[must_use]
    pub fn is_in_game(&self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        let sender = bytes.first().and_then(|id| self.member(PeerId(*id)));
        sender.is_some_and(|member| member.address == from && member.state == State::InGame)
    }

    /// Returns the session at this moment.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        Status {
            players: self.taken_slots().count(),
            in_game: self.in_game.len(),
            player_limit: self.config.places(),
            system: self.round.system,
            round: self.round.number,
            ended: self.round.is_over(),
            game_time: now.since(self.epoch),
            time_left: self.round.ends().map(|ends| ends.since(now)),
            masters: self.masters.last_seen(now).collect(),
            counters: self.counters,
        }
    }

    /// Returns what happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns what the transport could not use, from nobody in particular.
    #[must_use]
    pub fn rejected(&self) -> transport::Rejected {
        self.endpoint.rejected()
    }

    /// Returns the transport's counters of one client.
    #[must_use]
    pub fn peer_counters(&self, peer: PeerId) -> Option<transport::Counters> {
        self.endpoint.counters(peer)
    }

    /// Returns the engine below, for what it knows.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.endpoint
    }

    /// Every queue of one client.
    #[must_use]
    pub fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        self.endpoint.snapshot(peer, now)
    }
}
