//! What the session knows of one client.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, Seq};

use crate::config::{Config, MAX_SLOTS};
use crate::congestion_window::CongestionWindow;
use crate::event::Participant;
use crate::game::{FILE_CHECK_ROUNDS, ObjectId, Species};
use crate::message::Score;
use crate::rate_limit::{Rate, TokenBucket};
use crate::send_queue::SendQueue;
use crate::session::{EXPLANATION_RATE, chat_rate, relay_rate};
use crate::stats::Anomalies;

/// Where a client stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It was asked about its files.
    Checking { round: usize, until: Time },
    /// It loads the mission. S-28: `ready` when it has done so and waits until it knows the names of the others.
    Loading { ready: bool },
    /// It takes part.
    InGame,
    /// It was told that its files differ, and is thrown out when it has read that.
    Refused { until: Time },
    /// S-55: it was told why it is thrown out, and is when it has read that.
    KickPending { until: Time },
}

/// A client that was let in.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: PeerId,
    pub(crate) address: SocketAddrV4,
    pub(crate) joined_at: Time,
    pub(crate) state: MemberState,
    /// S-04: given when it has answered, so that nobody takes one with a spoofed address.
    pub(crate) slot: Option<u8>,
    pub(crate) name: Option<String>,
    pub(crate) ship: ShipState,
    pub(crate) score: Score,
    /// How long it was in the game in this round before it left and came back, and since when it is.
    pub(crate) played: Duration,
    pub(crate) entered: Option<Time>,
    pub(crate) team: Option<u8>,
    pub(crate) relay_bucket: TokenBucket,
    /// Of that, what may be lost.
    pub(crate) unreliable_bucket: TokenBucket,
    pub(crate) chat_bucket: TokenBucket,
    pub(crate) ship_bucket: TokenBucket,
    /// S-44: nobody hears its chat.
    pub(crate) is_muted: bool,
    /// How often it is told why others do not hear it.
    pub(crate) explanation_bucket: TokenBucket,
    pub(crate) anomalies: Anomalies,
    /// State updates for it that were dropped, because newer ones replace them (S-33).
    pub(crate) superseded: u64,
    /// S-28: whose names it was told and has not acknowledged, and the number that its control channel must reach first.
    pub(crate) pending_names: Vec<(PeerId, Seq)>,
    /// S-28, S-43: what waits until it has acknowledged names, or until its line has room.
    pub(crate) send_queue: Option<Box<SendQueue>>,
    pub(crate) window: CongestionWindow,
    /// What it has answered about its files, until the check is over.
    pub(crate) file_check_answers: FileCheckAnswers,
}

/// The answers to each round of the file check, as they came: they take no more memory than what was sent.
pub(crate) type FileCheckAnswers = [Option<Box<[u8]>>; FILE_CHECK_ROUNDS.len()];

/// A player's ship.
#[derive(Debug, Default)]
pub(crate) struct ShipState {
    pub(crate) object: ObjectId,
    pub(crate) species: Species,
    pub(crate) alive: bool,
    /// S-45: the last that was fired at it, while it lives.
    pub(crate) last_shot: Option<Shot>,
    /// The message that created it.
    pub(crate) create_payload: Vec<u8>,
}

/// Something that was fired at a ship.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shot {
    pub(crate) by: PeerId,
    pub(crate) fired_at: Time,
}

impl ShipState {
    /// It is gone, and whoever fired at it with it.
    pub(crate) const fn mark_destroyed(&mut self) {
        (self.alive, self.last_shot) = (false, None);
    }
}

impl Member {
    pub(crate) fn new(
        id: PeerId,
        address: SocketAddrV4,
        state: MemberState,
        config: &Config,
        now: Time,
    ) -> Self {
        let relay_rate = relay_rate(config);
        Self {
            id,
            address,
            joined_at: now,
            state,
            slot: None,
            name: None,
            ship: ShipState::default(),
            score: Score::default(),
            played: Duration::ZERO,
            entered: None,
            team: None,
            relay_bucket: TokenBucket::new(relay_rate, now),
            unreliable_bucket: TokenBucket::new(relay_rate, now),
            chat_bucket: TokenBucket::new(chat_rate(config), now),
            ship_bucket: TokenBucket::new(SHIP_RATE, now),
            is_muted: false,
            explanation_bucket: TokenBucket::new(EXPLANATION_RATE, now),
            anomalies: Anomalies::default(),
            superseded: 0,
            pending_names: Vec::new(),
            send_queue: None,
            window: CongestionWindow::default(),
            file_check_answers: FileCheckAnswers::default(),
        }
    }

    /// Returns when something is to be done about it.
    pub(crate) fn next_deadline(&self, handshake: Duration) -> Option<Time> {
        let handshake = self.joined_at + handshake;
        let due = match self.state {
            MemberState::Checking { until, .. } => until.min(handshake),
            MemberState::Refused { until } => until.min(handshake),
            MemberState::KickPending { until } => return Some(until),
            MemberState::Loading { .. } => handshake,
            MemberState::InGame => return None,
        };
        Some(if self.slot.is_none() { due.min(self.joined_at + UNVERIFIED_TIMEOUT) } else { due })
    }

    /// Returns whether something happens once it has acknowledged something.
    pub(crate) fn awaits_ack(&self) -> bool {
        let state = matches!(
            self.state,
            MemberState::Loading { ready: true }
                | MemberState::Refused { .. }
                | MemberState::KickPending { .. }
        );
        state || self.send_queue.is_some() || !self.pending_names.is_empty()
    }

    /// Returns how it has done in this round. `None` if it took no part and has no score.
    pub(crate) fn participant(&self, now: Time) -> Option<Participant> {
        let played = self.played + self.entered.map_or(Duration::ZERO, |entered| now.since(entered));
        let has_played = self.entered.is_some() || !self.played.is_zero() || self.score != Score::default();
        has_played.then(|| Participant { name: self.display_name(), score: self.score, played })
    }

    pub(crate) fn display_name(&self) -> String {
        self.name.clone().unwrap_or_default()
    }
}

/// S-33: the peers that take part, in the order of arrival. Each has a slot, so there are not many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Roster {
    peers: [PeerId; MAX_SLOTS],
    len: usize,
}

impl Default for Roster {
    fn default() -> Self {
        Self { peers: [PeerId::NULL; MAX_SLOTS], len: 0 }
    }
}

impl Roster {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the peers as they are now, so that the session can be changed meanwhile.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PeerId> + use<> {
        self.peers.into_iter().take(self.len)
    }

    pub(crate) fn contains(&self, peer: PeerId) -> bool {
        self.iter().any(|other| other == peer)
    }

    pub(crate) fn push(&mut self, peer: PeerId) {
        if let Some(free) = self.peers.get_mut(self.len) {
            *free = peer;
            self.len += 1;
        }
    }

    /// Returns `false` if the peer takes no part.
    pub(crate) fn remove(&mut self, peer: PeerId) -> bool {
        let Some(index) = self.iter().position(|other| other == peer) else { return false };
        // It becomes the last, and the last is forgotten.
        self.peers.get_mut(index..self.len).unwrap_or_default().rotate_left(1);
        self.len -= 1;
        true
    }
}

/// Ships at once, and per second after that: each makes the server say something that goes first.
pub(crate) const SHIP_RATE: Rate = Rate::per_second(1, 8);
/// How long an address may stay that has never answered.
pub(crate) const UNVERIFIED_TIMEOUT: Duration = Duration::from_secs(10);
