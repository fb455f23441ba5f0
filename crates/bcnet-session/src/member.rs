//! The state of one client in a session, and the roster of the players that take part.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{BootReason, PeerId, Seq};

use crate::byte_budget::{ByteBucket, ByteRate};
use crate::config::{Config, MAX_SLOTS};
use crate::congestion_window::CongestionWindow;
use crate::event::Participant;
use crate::game::{FILE_CHECK_ROUNDS, ObjectId, Species};
use crate::message::Score;
use crate::rate_limit::{Rate, TokenBucket};
use crate::send_queue::SendQueue;
use crate::session::{EXPLANATION_RATE, chat_rate, relay_rate, unreliable_rate};
use crate::stats::Anomalies;

/// The state of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// The server has sent a file check request and waits for the answer.
    Checking { round: usize, until: Time },
    /// The client loads the mission. `ready` is set when it has loaded, but does not have all names yet (S-28).
    Loading { ready: bool },
    /// The client takes part.
    InGame,
    /// The client got the text of its refusal, and is booted when it has acknowledged it (S-13, S-24).
    Refused { until: Time, reason: BootReason },
    /// The client got the reason of its kick, and is booted when it has acknowledged it (S-55).
    KickPending { until: Time },
}

/// A client that was admitted.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: PeerId,
    pub(crate) address: SocketAddrV4,
    pub(crate) joined_at: Time,
    pub(crate) state: MemberState,
    /// The slot: the player's place in the game, 0 to 15 (S-02).
    ///
    /// It is assigned when the client has sent a message, so spoofed addresses take no slots (S-04).
    pub(crate) slot: Option<u8>,
    pub(crate) name: Option<String>,
    pub(crate) ship: ShipState,
    pub(crate) score: Score,
    /// The time that the player had spent in this round before it last left the game.
    pub(crate) played: Duration,
    /// The time at which the player entered the game, if it is in the game.
    pub(crate) entered: Option<Time>,
    pub(crate) team: Option<u8>,
    pub(crate) relay_bucket: TokenBucket,
    /// Limits the unreliable messages of the player, besides `relay_bucket` (S-33).
    pub(crate) unreliable_bucket: TokenBucket,
    pub(crate) chat_bucket: TokenBucket,
    /// Limits the unreliable messages of the game policy to the player (S-92).
    pub(crate) policy_bucket: TokenBucket,
    pub(crate) ship_bucket: TokenBucket,
    /// True if the player's chat is not relayed (S-44).
    pub(crate) is_muted: bool,
    /// Limits the notices that the player's messages were not relayed.
    pub(crate) explanation_bucket: TokenBucket,
    pub(crate) anomalies: Anomalies,
    /// The number of state updates for this client that were superseded (S-33).
    pub(crate) superseded: u64,
    /// The names that the client has not acknowledged yet (S-28).
    ///
    /// Each has the sequence number that the ACKs of the control channel must reach.
    pub(crate) pending_names: Vec<(PeerId, Seq)>,
    /// Messages that wait for ACKs of names, or for capacity of the link (S-28, S-43).
    pub(crate) send_queue: Option<Box<SendQueue>>,
    pub(crate) window: CongestionWindow,
    /// The player's share of the uplink, and its use (S-46).
    pub(crate) uplink_share: ByteRate,
    pub(crate) uplink_bucket: ByteBucket,
    /// The client's answers to the file check, until the check is over.
    pub(crate) file_check_answers: FileCheckAnswers,
}

/// The answers to each round of the file check, as received. Unparsed, they take no more memory than was sent.
pub(crate) type FileCheckAnswers = [Option<Box<[u8]>>; FILE_CHECK_ROUNDS.len()];

/// A player's ship.
#[derive(Debug, Default)]
pub(crate) struct ShipState {
    pub(crate) object: ObjectId,
    pub(crate) species: Species,
    pub(crate) alive: bool,
    /// The last shot at the ship while it is alive (S-45).
    pub(crate) last_shot: Option<Shot>,
    /// The message that created the ship.
    pub(crate) create_payload: Vec<u8>,
}

/// A shot at a ship.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shot {
    pub(crate) by: PeerId,
    pub(crate) fired_at: Time,
}

impl ShipState {
    /// Marks the ship as destroyed, and forgets the last shot at it.
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
            policy_bucket: TokenBucket::new(unreliable_rate(config), now),
            chat_bucket: TokenBucket::new(chat_rate(config), now),
            ship_bucket: TokenBucket::new(SHIP_RATE, now),
            is_muted: false,
            explanation_bucket: TokenBucket::new(EXPLANATION_RATE, now),
            anomalies: Anomalies::default(),
            superseded: 0,
            pending_names: Vec::new(),
            send_queue: None,
            window: CongestionWindow::default(),
            uplink_share: ByteRate::default(),
            uplink_bucket: ByteBucket::default(),
            file_check_answers: FileCheckAnswers::default(),
        }
    }

    /// Returns the next deadline of the client: a timeout of its handshake or kick.
    pub(crate) fn next_deadline(&self, handshake: Duration) -> Option<Time> {
        let handshake = self.joined_at + handshake;
        let due = match self.state {
            MemberState::Checking { until, .. } => until.min(handshake),
            MemberState::Refused { until, .. } => until.min(handshake),
            MemberState::KickPending { until } => return Some(until),
            MemberState::Loading { .. } => handshake,
            MemberState::InGame => return None,
        };
        Some(if self.slot.is_none() { due.min(self.joined_at + UNVERIFIED_TIMEOUT) } else { due })
    }

    /// Returns whether an ACK of this client can trigger an action.
    pub(crate) fn awaits_ack(&self) -> bool {
        let state = matches!(
            self.state,
            MemberState::Loading { ready: true }
                | MemberState::Refused { .. }
                | MemberState::KickPending { .. }
        );
        state || self.send_queue.is_some() || !self.pending_names.is_empty()
    }

    /// Returns the player's result in this round. Returns `None` if the player took no part and has no score.
    pub(crate) fn participant(&self, now: Time) -> Option<Participant> {
        let played = self.played + self.entered.map_or(Duration::ZERO, |entered| now.since(entered));
        let has_played = self.entered.is_some() || !self.played.is_zero() || self.score != Score::default();
        has_played.then(|| Participant { name: self.display_name(), score: self.score, played })
    }

    pub(crate) fn display_name(&self) -> String {
        self.name.clone().unwrap_or_default()
    }
}

/// The peers that take part, in the order of arrival (S-33). Each has a slot, so there are at most 16.
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

    /// Returns a copy of the peers, so that the session can be changed during the iteration.
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

    /// Removes a peer. Returns `false` if the peer takes no part.
    pub(crate) fn remove(&mut self, peer: PeerId) -> bool {
        let Some(index) = self.iter().position(|other| other == peer) else { return false };
        // Moves the peer to the end, where the shorter length excludes it.
        self.peers.get_mut(index..self.len).unwrap_or_default().rotate_left(1);
        self.len -= 1;
        true
    }
}

/// The rate of new ships. A new ship can make the server send an urgent message that removes the old one (S-36).
pub(crate) const SHIP_RATE: Rate = Rate::per_second(1, 8);
/// The longest time that an admitted address can stay without sending a message (S-13).
pub(crate) const UNVERIFIED_TIMEOUT: Duration = Duration::from_secs(10);
