//! Messages are numbered, split and queued.

use std::fmt;
use std::net::Ipv4Addr;

use bcnet_transport::wire::{Kind, PeerId};
use bcnet_transport::{DeliveryMode, Time};

use super::message::{RetransmitTimer, StockMessage};
use super::params::Backoff;
use super::peer::{PeerEntry, channel_index};
use super::{StockEngine, StockState};

/// Everything about a message that its sender can choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SendOptions {
    /// Its type, and with it the channel.
    pub kind: Kind,
    /// Whether it is repeated until it is acknowledged.
    pub reliable: bool,
    /// Whether it goes to the head of the queue.
    pub urgent: bool,
    /// If not, at most one such message is put into a datagram.
    pub aggregate: bool,
    /// When it is repeated.
    pub backoff: Backoff,
}

impl From<DeliveryMode> for SendOptions {
    fn from(mode: DeliveryMode) -> Self {
        Self {
            kind: Kind::DATA,
            reliable: mode != DeliveryMode::Unreliable,
            urgent: mode == DeliveryMode::Urgent,
            aggregate: true,
            backoff: Backoff::default(),
        }
    }
}

/// Why a message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StockSendError {
    /// Neither connected nor connecting.
    NotConnected,
    /// No peer has this id.
    UnknownPeer(PeerId),
    /// 32768 messages wait already, or would.
    TooManyPending,
}

impl StockSendError {
    /// Returns the original's return code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::NotConnected => 4,
            Self::TooManyPending => 10,
            Self::UnknownPeer(_) => 11,
        }
    }
}

impl fmt::Display for StockSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("not connected: connect first"),
            Self::UnknownPeer(peer) => write!(f, "{peer} is not known: send after its Joined event"),
            Self::TooManyPending => f.write_str("too many messages wait to be sent: send later"),
        }
    }
}

impl std::error::Error for StockSendError {}

impl StockEngine {
    /// Queues a game payload for a peer, or for all ([`PeerId::NULL`]).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send(
        &mut self,
        to: PeerId,
        payload: &[u8],
        mode: DeliveryMode,
        now: Time,
    ) -> Result<(), StockSendError> {
        self.send_with_options(to, payload, self.send_options(mode), now)
    }

    /// Returns what this engine chooses for a game message.
    pub(crate) fn send_options(&self, mode: DeliveryMode) -> SendOptions {
        let backoff = Backoff { first: self.params.first_wait, ..Backoff::default() };
        SendOptions { backoff, ..mode.into() }
    }

    /// Queues a message for the first peer with an address (the original's target −1).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send_to_address(
        &mut self,
        to: Ipv4Addr,
        payload: &[u8],
        options: SendOptions,
        now: Time,
    ) -> Result<(), StockSendError> {
        self.now = self.clock.reading_at(now);
        if self.state == StockState::Closed {
            return Err(StockSendError::NotConnected);
        }
        let place = self.peers.find_address(to).ok_or(StockSendError::UnknownPeer(PeerId::UNASSIGNED))?;
        self.queue_for_entry(place, build_message(payload, options))
    }

    /// Queues any message for a peer, or for all ([`PeerId::NULL`]).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send_with_options(
        &mut self,
        to: PeerId,
        payload: &[u8],
        options: SendOptions,
        now: Time,
    ) -> Result<(), StockSendError> {
        self.now = self.clock.reading_at(now);
        self.queue_for_peer(to, build_message(payload, options))
    }

    /// Queues a message for whoever has an id, or for all.
    pub(super) fn queue_for_peer(&mut self, to: PeerId, message: StockMessage) -> Result<(), StockSendError> {
        if self.state == StockState::Closed {
            return Err(StockSendError::NotConnected);
        }
        if to == PeerId::NULL || to == PeerId::HOST {
            self.host_last_queued = self.now;
        }
        if to == PeerId::NULL {
            for place in self.peers.positions(PeerEntry::is_live) {
                self.queue_for_entry(place, message.clone())?;
            }
            return Ok(());
        }
        let place = match self.peers.find(to) {
            Some(place) => place,
            // The host's entry comes into being when it is needed: a host's own one too.
            None if to == PeerId::HOST => self.peers.insert(PeerEntry::new(to, self.host_address, self.now)),
            None => return Err(StockSendError::UnknownPeer(to)),
        };
        self.queue_for_entry(place, message)
    }

    /// Numbers a message, splits it if it is too large, and queues it.
    ///
    /// The number is read before splitting makes an unreliable message reliable, so such parts all have number 0.
    pub(super) fn queue_for_entry(
        &mut self,
        place: usize,
        mut message: StockMessage,
    ) -> Result<(), StockSendError> {
        let Some(peer) = self.peers.get_mut(place) else { return Ok(()) };
        let lane = channel_index(message.kind.channel());
        let numbered = message.reliable;
        message.seq = if numbered { peer.next_seq[lane] } else { 0 };
        message.queued_at = self.now;
        let urgent = message.urgent;
        let parts = split(message, self.params.message_limit());
        if peer.unsent.len() + parts.len() >= MAX_PENDING {
            return Err(StockSendError::TooManyPending);
        }
        for part in parts {
            if urgent {
                peer.unsent.push_front(part);
            } else {
                peer.unsent.push_back(part);
            }
        }
        if numbered {
            peer.next_seq[lane] = peer.next_seq[lane].wrapping_add(1);
        }
        peer.last_queued = self.now;
        self.counters.peak_first = self.counters.peak_first.max(peer.unsent.len());
        Ok(())
    }
}

/// Makes the message that its sender asks for.
fn build_message(payload: &[u8], options: SendOptions) -> StockMessage {
    let mut message = StockMessage::new(options.kind, payload.to_vec());
    message.reliable = options.reliable;
    message.urgent = options.urgent;
    message.aggregate = options.aggregate;
    message.timer = RetransmitTimer::new(options.backoff);
    message
}

/// Cuts a message into parts if its size is above `limit`. Index and total are cut to eight bits.
fn split(mut message: StockMessage, limit: usize) -> Vec<StockMessage> {
    if message.len() <= limit {
        return vec![message];
    }
    message.reliable = true;
    let payload = std::mem::take(&mut message.payload);
    let (mut parts, mut rest) = (Vec::new(), payload.as_slice());
    while !rest.is_empty() {
        let mut part = message.clone();
        part.fragment = Some(parts.len() as u8);
        // Room is reckoned with the true index: the 257th part is not taken for a first one.
        let header =
            StockMessage { fragment: Some(u8::from(!parts.is_empty())), ..message.clone() }.header_len();
        let (head, tail) = rest.split_at(rest.len().min(limit - header));
        part.payload.extend_from_slice(head);
        rest = tail;
        parts.push(part);
    }
    let total = parts.len() as u8;
    if let Some(first) = parts.first_mut() {
        first.fragment_count = total;
    }
    parts
}

/// As many messages as may wait for one peer, and one more.
const MAX_PENDING: usize = 0x8000;
