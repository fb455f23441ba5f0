//! Queues messages for sending: assigns sequence numbers and splits large messages into fragments.

use std::fmt;
use std::net::Ipv4Addr;

use bcnet_transport::wire::{Kind, PeerId};
use bcnet_transport::{DeliveryMode, Time};

use super::message::{RetransmitTimer, StockMessage};
use super::params::Backoff;
use super::peer::{PeerEntry, channel_index};
use super::{StockEngine, StockState};

/// Send options of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SendOptions {
    /// Message type, which also determines the channel.
    pub kind: Kind,
    /// `true` if the message is retransmitted until it is acknowledged.
    pub reliable: bool,
    /// `true` if the message is queued at the head.
    pub urgent: bool,
    /// `true` if several such messages may share a datagram. Otherwise a datagram has at most one.
    pub aggregate: bool,
    /// Waits between retransmissions.
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

/// Reason why a message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StockSendError {
    /// The engine is neither connected nor connecting.
    NotConnected,
    /// No peer has this id.
    UnknownPeer(PeerId),
    /// 32768 messages are pending, or would be.
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
            Self::UnknownPeer(peer) => {
                write!(f, "{peer} is unknown: send after the Joined event of that peer")
            }
            Self::TooManyPending => f.write_str("too many messages are pending: send later"),
        }
    }
}

impl std::error::Error for StockSendError {}

impl StockEngine {
    /// Queues a game payload for a peer, or for all ([`PeerId::NULL`]).
    ///
    /// # Errors
    /// Returns a [`StockSendError`] if nothing was queued.
    pub fn send(
        &mut self,
        to: PeerId,
        payload: &[u8],
        mode: DeliveryMode,
        now: Time,
    ) -> Result<(), StockSendError> {
        self.send_with_options(to, payload, self.send_options(mode), now)
    }

    /// Returns the send options of a game message.
    pub(crate) fn send_options(&self, mode: DeliveryMode) -> SendOptions {
        let backoff = Backoff { first: self.params.first_wait, ..Backoff::default() };
        SendOptions { backoff, ..mode.into() }
    }

    /// Queues a message for the first peer with an address (the original's target −1).
    ///
    /// # Errors
    /// Returns a [`StockSendError`] if nothing was queued.
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
    /// Returns a [`StockSendError`] if nothing was queued.
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

    /// Queues a message for the peer with this id, or for all peers.
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
            // The entry for the host is created on first use, also at the host itself.
            None if to == PeerId::HOST => self.peers.insert(PeerEntry::new(to, self.host_address, self.now)),
            None => return Err(StockSendError::UnknownPeer(to)),
        };
        self.queue_for_entry(place, message)
    }

    /// Assigns a sequence number, splits a message that is too large, and queues it.
    ///
    /// The number is read before splitting makes an unreliable message reliable, so all such fragments have
    /// number 0.
    pub(super) fn queue_for_entry(
        &mut self,
        place: usize,
        mut message: StockMessage,
    ) -> Result<(), StockSendError> {
        let Some(peer) = self.peers.get_mut(place) else { return Ok(()) };
        let index = channel_index(message.kind.channel());
        let numbered = message.reliable;
        message.seq = if numbered { peer.next_seq[index] } else { 0 };
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
            peer.next_seq[index] = peer.next_seq[index].wrapping_add(1);
        }
        peer.last_queued = self.now;
        self.counters.peak_first = self.counters.peak_first.max(peer.unsent.len());
        Ok(())
    }
}

/// Creates a message from a payload and its send options.
fn build_message(payload: &[u8], options: SendOptions) -> StockMessage {
    let mut message = StockMessage::new(options.kind, payload.to_vec());
    message.reliable = options.reliable;
    message.urgent = options.urgent;
    message.aggregate = options.aggregate;
    message.timer = RetransmitTimer::new(options.backoff);
    message
}

/// Splits a message larger than `limit` into fragments. Fragment number and total are truncated to eight
/// bits.
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
        // The header size depends on the true index: the 257th fragment has no total, although its number is
        // 0 again.
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

/// Number of pending messages for one peer at which a send is refused.
const MAX_PENDING: usize = 0x8000;
