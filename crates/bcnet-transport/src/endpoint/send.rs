//! Encodes payloads as messages and queues them.

use core::fmt;

use crate::config::Config;
use crate::fragment;
use crate::peer::{Peer, PeerState};
use crate::time::Time;
use crate::wire::encoded::data_header;
use crate::wire::{Channel, Delivery, PeerId};

/// The delivery of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeliveryMode {
    /// Delivered once and in order, despite loss.
    #[default]
    Reliable,
    /// Like [`Reliable`](Self::Reliable), but ahead of all other unsent data.
    Urgent,
    /// Sent once: lost if its datagram is lost, delivered twice if the network duplicates it.
    ///
    /// A payload that is too large for one message is sent reliably (T-67).
    Unreliable,
}

/// The maximum of unacknowledged game messages in flight to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightLimit {
    /// The number of messages.
    pub messages: usize,
    /// Their bytes including all headers, as if each were alone in its datagram. One message is always
    /// allowed.
    pub bytes: usize,
}

/// Tells whether one more message may be in flight to a peer without delaying urgent messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// The message may be sent.
    Available,
    /// The limit of messages in flight is reached.
    Full,
    /// The limit is reached, and the round-trip time shows a queue on the path.
    Congested,
}

/// The reason why a payload was not queued. No part of it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// No peer has this id, or the peer is not connected yet. Send after its `Joined` event.
    UnknownPeer(PeerId),
    /// The peer is leaving or was booted; no further messages reach it.
    Leaving(PeerId),
    /// The payload needs more than 255 fragments. Send less, or send several payloads.
    TooLarge {
        /// The size of the payload.
        len: usize,
        /// The largest possible payload.
        max: usize,
    },
    /// Too many messages wait for this peer. Send later, or boot the peer.
    QueueFull {
        /// The number of queued messages.
        messages: usize,
        /// The number of queued bytes.
        bytes: usize,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPeer(peer) => {
                write!(f, "cannot send to {peer}: not connected; send after its Joined event")
            }
            Self::Leaving(peer) => write!(f, "cannot send to {peer}: the peer is leaving"),
            Self::TooLarge { len, max } => {
                write!(f, "payload of {len} bytes is too large: the maximum is {max}; send several payloads")
            }
            Self::QueueFull { messages, bytes } => {
                write!(
                    f,
                    "send queue is full: {messages} messages, {bytes} bytes; send later or boot the peer"
                )
            }
        }
    }
}

impl core::error::Error for SendError {}

/// Queues a payload for a peer.
#[inline]
pub(super) fn queue(
    peer: &mut Peer,
    payload: &[u8],
    mode: DeliveryMode,
    config: &Config<u64>,
    now: Time,
) -> Result<(), SendError> {
    check_connected(peer)?;
    // T-67: a payload that does not fit one message is sent reliably; that is decided before it gets its
    // number.
    let header_len = if mode == DeliveryMode::Unreliable { 3 } else { 5 };
    if header_len + payload.len() > config.message_limit {
        return queue_fragments(peer, payload, mode, config, now);
    }
    check_queue_capacity(peer, 1, payload.len(), config)?;
    if mode == DeliveryMode::Unreliable {
        queue_unreliable(peer, payload, now);
        return Ok(());
    }
    let seq = peer.take_seq(Channel::Game);
    let outbox = peer.outbox_for_queueing(now);
    let (head, len) = data_header(Delivery::Reliable(seq), size_field(5 + payload.len()));
    outbox.queue(Channel::Game, seq, None, head.get(..len).unwrap_or_default(), payload);
    if mode == DeliveryMode::Urgent {
        outbox.mark_urgent(seq);
    }
    Ok(())
}

/// Checks that messages can be sent to a peer.
#[inline(always)]
pub(super) const fn check_connected(peer: &Peer) -> Result<(), SendError> {
    match peer.state {
        PeerState::Established
        | PeerState::Guarded
        | PeerState::Departing { .. }
        | PeerState::Contested { .. } => Ok(()),
        PeerState::Draining { .. } | PeerState::Lingering { .. } => Err(SendError::Leaving(peer.id)),
        PeerState::Connecting => Err(SendError::UnknownPeer(peer.id)),
    }
}

/// Checks that `more` messages with `len` bytes fit the send queue of a peer.
#[inline(always)]
fn check_queue_capacity(peer: &Peer, more: usize, len: usize, config: &Config<u64>) -> Result<(), SendError> {
    let (messages, bytes) = peer.queued();
    let bytes_full = bytes.saturating_add(len + 7 * more) > config.max_queued_bytes;
    if messages + more > config.max_queued_messages || bytes_full || peer.is_head_of_line_blocked(config) {
        return Err(SendError::QueueFull { messages, bytes });
    }
    Ok(())
}

/// Queues an unreliable payload that fits one message.
#[inline(never)]
fn queue_unreliable(peer: &mut Peer, payload: &[u8], now: Time) {
    let next = peer.next_game_seq();
    let (head, len) = data_header(Delivery::Unreliable, size_field(3 + payload.len()));
    peer.outbox_for_queueing(now).queue_unreliable(head.get(..len).unwrap_or_default(), payload, next);
}

/// Queues a payload as fragments, which share one sequence number (T-67).
#[inline(never)]
fn queue_fragments(
    peer: &mut Peer,
    payload: &[u8],
    mode: DeliveryMode,
    config: &Config<u64>,
    now: Time,
) -> Result<(), SendError> {
    let limit = config.message_limit;
    let too_large = || SendError::TooLarge { len: payload.len(), max: fragment::max_payload(limit) };
    let total = fragment::fragment_count(payload.len(), limit).ok_or_else(too_large)?;
    check_queue_capacity(peer, total.get().into(), payload.len(), config)?;
    let seq = peer.take_seq(Channel::Game);
    let outbox = peer.outbox_for_queueing(now);
    for (part, body) in fragment::split(payload, total, limit) {
        let delivery = Delivery::Fragment(seq, part);
        let (head, len) = data_header(delivery, size_field(delivery.header_len() + body.len()));
        outbox.queue(Channel::Game, seq, Some(total.get()), head.get(..len).unwrap_or_default(), body);
    }
    if mode == DeliveryMode::Urgent {
        outbox.mark_urgent(seq);
    }
    Ok(())
}

/// Returns the size as the 16-bit value of the header; the caller has checked the limit.
#[inline(always)]
fn size_field(size: usize) -> u16 {
    u16::try_from(size).unwrap_or(u16::MAX)
}
