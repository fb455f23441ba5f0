//! Payloads become messages that wait to be sent.

use core::fmt;

use crate::config::Config;
use crate::fragment;
use crate::peer::{Peer, PeerState};
use crate::time::Time;
use crate::wire::encoded::data_header;
use crate::wire::{Channel, Delivery, PeerId};

/// How a payload is to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeliveryMode {
    /// Once and in order, whatever the network does.
    #[default]
    Reliable,
    /// As [`Reliable`](Self::Reliable), ahead of everything else that waits to be sent for the first time.
    Urgent,
    /// Without waiting for anything: lost if its datagram is lost, twice if the network doubles it. What is too large for
    /// one message is sent reliably (T-67).
    Unreliable,
}

/// The most that may be under way to a peer: game messages that it has not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightLimit {
    /// How many.
    pub messages: usize,
    /// How much they take on the way, headers included, if each is alone in its datagram. One message is always allowed.
    pub bytes: usize,
}

/// Whether the line to a peer takes one more message, so that what cannot wait is not late for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// It does.
    Available,
    /// As much is under way as may be.
    Full,
    /// The same, and round trips tell that a queue has built up on the way.
    Congested,
}

/// Why a payload was not taken. Nothing of it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// No peer has this id, or it is not connected yet: send after its `Joined` event.
    UnknownPeer(PeerId),
    /// The peer is leaving or was booted; nothing more reaches it.
    Leaving(PeerId),
    /// More than 255 parts: send less, or in several messages.
    TooLarge {
        /// The size of the payload.
        len: usize,
        /// The largest that can be sent.
        max: usize,
    },
    /// Too much waits for this peer already: send later, or boot it.
    QueueFull {
        /// How many messages wait.
        messages: usize,
        /// How many bytes wait.
        bytes: usize,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPeer(peer) => write!(f, "{peer} is not connected: send after its Joined event"),
            Self::Leaving(peer) => write!(f, "{peer} is leaving: nothing more reaches it"),
            Self::TooLarge { len, max } => {
                write!(f, "{len} bytes are more than the {max} a payload can have: send less, or in several")
            }
            Self::QueueFull { messages, bytes } => {
                write!(f, "{messages} messages with {bytes} bytes wait already: send later, or boot the peer")
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
    // T-67: what does not fit one message is reliable, and that is decided before it gets its number.
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
        PeerState::Established | PeerState::Contested { .. } => Ok(()),
        PeerState::Draining { .. } | PeerState::Lingering { .. } => Err(SendError::Leaving(peer.id)),
        PeerState::Connecting => Err(SendError::UnknownPeer(peer.id)),
    }
}

/// Checks that so many more messages with so many bytes may wait for a peer.
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

/// T-67: queues a payload in parts, which all have one sequence number.
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

/// Returns the size of a message that is not longer than it may be, as its header has it.
#[inline(always)]
fn size_field(size: usize) -> u16 {
    u16::try_from(size).unwrap_or(u16::MAX)
}
