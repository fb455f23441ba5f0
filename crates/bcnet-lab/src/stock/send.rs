//! Messages are numbered, split and queued.

use std::fmt;
use std::net::Ipv4Addr;

use bcnet_transport::wire::{Kind, PeerId};
use bcnet_transport::{Quality, Time};

use super::message::{Message, Timer};
use super::params::Backoff;
use super::peer::{Peer, lane};
use super::{State, Stock};

/// Everything about a message that its sender can choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
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

impl From<Quality> for Options {
    fn from(quality: Quality) -> Self {
        Self {
            kind: Kind::DATA,
            reliable: quality != Quality::Unreliable,
            urgent: quality == Quality::Urgent,
            aggregate: true,
            backoff: Backoff::default(),
        }
    }
}

/// Why a message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// Neither connected nor connecting.
    NotConnected,
    /// No peer has this id.
    UnknownPeer(PeerId),
    /// 32768 messages wait already, or would.
    TooManyPending,
}

impl SendError {
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

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("not connected: connect first"),
            Self::UnknownPeer(peer) => write!(f, "{peer} is not known: send after its Joined event"),
            Self::TooManyPending => f.write_str("too many messages wait to be sent: send later"),
        }
    }
}

impl std::error::Error for SendError {}

impl Stock {
    /// Queues a game payload for a peer, or for all ([`PeerId::NULL`]).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send(&mut self, to: PeerId, payload: &[u8], quality: Quality, now: Time) -> Result<(), SendError> {
        self.send_with(to, payload, self.options(quality), now)
    }

    /// Returns what this engine chooses for a game message.
    pub(crate) fn options(&self, quality: Quality) -> Options {
        let backoff = Backoff { first: self.params.first_wait, ..Backoff::default() };
        Options { backoff, ..quality.into() }
    }

    /// Queues a message for the first peer with an address (the original's target −1).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send_to_address(
        &mut self,
        to: Ipv4Addr,
        payload: &[u8],
        options: Options,
        now: Time,
    ) -> Result<(), SendError> {
        self.now = self.clock.at(now);
        if self.state == State::Closed {
            return Err(SendError::NotConnected);
        }
        let place = self.peers.find_address(to).ok_or(SendError::UnknownPeer(PeerId::UNASSIGNED))?;
        self.queue(place, message(payload, options))
    }

    /// Queues any message for a peer, or for all ([`PeerId::NULL`]).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send_with(
        &mut self,
        to: PeerId,
        payload: &[u8],
        options: Options,
        now: Time,
    ) -> Result<(), SendError> {
        self.now = self.clock.at(now);
        self.queue_for(to, message(payload, options))
    }

    /// Queues a message for whoever has an id, or for all.
    pub(super) fn queue_for(&mut self, to: PeerId, message: Message) -> Result<(), SendError> {
        if self.state == State::Closed {
            return Err(SendError::NotConnected);
        }
        if to == PeerId::NULL || to == PeerId::HOST {
            self.host_queued = self.now;
        }
        if to == PeerId::NULL {
            for place in self.peers.places(Peer::is_live) {
                self.queue(place, message.clone())?;
            }
            return Ok(());
        }
        let place = match self.peers.find(to) {
            Some(place) => place,
            // The host's entry comes into being when it is needed: a host's own one too.
            None if to == PeerId::HOST => self.peers.insert(Peer::new(to, self.host, self.now)),
            None => return Err(SendError::UnknownPeer(to)),
        };
        self.queue(place, message)
    }

    /// Numbers a message, splits it if it is too large, and queues it.
    ///
    /// The number is read before splitting makes an unreliable message reliable, so such parts all have number 0.
    pub(super) fn queue(&mut self, place: usize, mut message: Message) -> Result<(), SendError> {
        let Some(peer) = self.peers.get_mut(place) else { return Ok(()) };
        let lane = lane(message.kind.channel());
        let numbered = message.reliable;
        message.seq = if numbered { peer.sending[lane] } else { 0 };
        message.queued = self.now;
        let urgent = message.urgent;
        let parts = split(message, self.params.message_limit());
        if peer.first.len() + parts.len() >= MAX_PENDING {
            return Err(SendError::TooManyPending);
        }
        for part in parts {
            if urgent {
                peer.first.push_front(part);
            } else {
                peer.first.push_back(part);
            }
        }
        if numbered {
            peer.sending[lane] = peer.sending[lane].wrapping_add(1);
        }
        peer.queued = self.now;
        self.tally.peak_first = self.tally.peak_first.max(peer.first.len());
        Ok(())
    }
}

/// Makes the message that its sender asks for.
fn message(payload: &[u8], options: Options) -> Message {
    let mut message = Message::new(options.kind, payload.to_vec());
    message.reliable = options.reliable;
    message.urgent = options.urgent;
    message.aggregate = options.aggregate;
    message.timer = Timer::new(options.backoff);
    message
}

/// Cuts a message into parts if its size is above `limit`. Index and total are cut to eight bits.
fn split(mut message: Message, limit: usize) -> Vec<Message> {
    if message.len() <= limit {
        return vec![message];
    }
    message.reliable = true;
    let payload = std::mem::take(&mut message.payload);
    let (mut parts, mut rest) = (Vec::new(), payload.as_slice());
    while !rest.is_empty() {
        let mut part = message.clone();
        part.part = Some(parts.len() as u8);
        // Room is reckoned with the true index: the 257th part is not taken for a first one.
        let header = Message { part: Some(u8::from(!parts.is_empty())), ..message.clone() }.header();
        let (head, tail) = rest.split_at(rest.len().min(limit - header));
        part.payload.extend_from_slice(head);
        rest = tail;
        parts.push(part);
    }
    let total = parts.len() as u8;
    if let Some(first) = parts.first_mut() {
        first.total = total;
    }
    parts
}

/// As many messages as may wait for one peer, and one more.
const MAX_PENDING: usize = 0x8000;
