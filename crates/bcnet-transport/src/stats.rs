//! Counters of an endpoint and of its peers, and the causes of ignored datagrams.

use core::fmt;

use crate::wire::Kind;

/// The cause why a datagram or a message was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectCause {
    /// The datagram is malformed, or a control message is longer than any valid one.
    Malformed,
    /// No peer has the sender id.
    UnknownSender,
    /// The sender id belongs to another address.
    WrongAddress,
    /// Only the other role, or only an admitted peer, may send this message.
    NotAllowed,
    /// The message names another peer as its subject, or a connect request has the address of a live peer.
    Impostor,
    /// The tables of requests or of peers are full.
    Crowded,
    /// The sequence number is outside the receive window. The message is acknowledged anyway (T-69).
    Window,
    /// The out-of-order buffer of this peer is full, or too many events wait to be polled.
    Full,
    /// A fragment contradicts other fragments, or is unreliable.
    Contradiction,
    /// The peer changes its name too often.
    Flood,
    /// A disconnect of a peer that is alive, or an unreliable one (T-57).
    ForgedDisconnect,
    /// An ACK of a message that was never sent (T-60).
    ForgedAck,
}

impl RejectCause {
    /// All causes, in the order of [`RejectCounters`].
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::UnknownSender,
        Self::WrongAddress,
        Self::NotAllowed,
        Self::Impostor,
        Self::Crowded,
        Self::Window,
        Self::Full,
        Self::Contradiction,
        Self::Flood,
        Self::ForgedDisconnect,
        Self::ForgedAck,
    ];

    /// Returns the name of the cause in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownSender => "unknown_sender",
            Self::WrongAddress => "wrong_address",
            Self::NotAllowed => "not_allowed",
            Self::Impostor => "impostor",
            Self::Crowded => "crowded",
            Self::Window => "window",
            Self::Full => "full",
            Self::Contradiction => "contradiction",
            Self::Flood => "flood",
            Self::ForgedDisconnect => "forged_disconnect",
            Self::ForgedAck => "forged_ack",
        }
    }
}

impl fmt::Display for RejectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A counter for each [`RejectCause`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectCounters([u64; RejectCause::ALL.len()]);

impl RejectCounters {
    /// Returns the counter of `cause`.
    #[must_use]
    pub fn count(&self, cause: RejectCause) -> u64 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// Returns the sum of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, cause: RejectCause) {
        self.add_many(cause, 1);
    }

    pub(crate) fn add_many(&mut self, cause: RejectCause, more: u64) {
        if let Some(count) = self.0.get_mut(cause as usize) {
            *count += more;
        }
    }
}

/// A counter for each kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindCounters([u64; 7]);

impl KindCounters {
    /// Returns the counter of `kind`.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        Self::index(kind).and_then(|index| self.0.get(index)).copied().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn add(&mut self, kind: Kind, more: u64) {
        if let Some(count) = Self::index(kind).and_then(|index| self.0.get_mut(index)) {
            *count += more;
        }
    }

    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the index of the counter of a kind. An unknown kind has no counter.
    #[inline]
    const fn index(kind: Kind) -> Option<usize> {
        match kind {
            Kind::DATA => Some(6),
            Kind(low @ 0..=5) => Some(low as usize),
            _ => None,
        }
    }
}

/// Counters of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerCounters {
    /// Datagrams sent to the peer.
    pub datagrams_out: u64,
    /// Datagrams received from the peer.
    pub datagrams_in: u64,
    /// Bytes of the datagrams sent.
    pub bytes_out: u64,
    /// Bytes of the datagrams received.
    pub bytes_in: u64,
    /// Messages received, by kind.
    pub messages_in: KindCounters,
    /// Messages sent for the first time, by kind. [`acks_out`](Self::acks_out) counts ACKs.
    pub messages_out: KindCounters,
    /// ACKs sent.
    pub acks_out: u64,
    /// ACKs received for messages that were not in flight.
    pub acks_useless: u64,
    /// Retransmissions sent.
    pub retransmits: u64,
    /// Duplicates of reliable messages received.
    pub duplicates: u64,
    /// Datagrams and messages ignored, by cause.
    pub rejected: RejectCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No kind is counted as another kind (T-10).
    #[test]
    fn every_known_kind_has_its_own_counter() {
        for kind in (0..=u8::MAX).map(Kind) {
            let mut kinds = KindCounters::default();
            kinds.add(kind, 1);
            let known = kind.name().is_some();
            assert_eq!((kinds.count(kind), kinds.total()), (known.into(), known.into()), "{kind}");
            for other in (0..=u8::MAX).map(Kind).filter(|other| *other != kind) {
                assert_eq!(kinds.count(other), 0, "{kind} is counted as {other}");
            }
        }
    }
}
