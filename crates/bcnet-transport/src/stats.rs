//! What happened so far: every counter with a one-line meaning.

use core::fmt;

use crate::wire::Kind;

/// Why something that arrived changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The datagram is not well formed, or a control message is longer than any there is.
    Malformed,
    /// Nobody has this sender id.
    UnknownSender,
    /// The sender id belongs to another address.
    WrongAddress,
    /// Something that only the other role, or only an admitted peer, may say.
    NotAllowed,
    /// A message that speaks for another peer.
    Impostor,
    /// No room for another connection attempt.
    Crowded,
    /// A sequence number too far ahead. It is acknowledged all the same (T-69).
    Window,
    /// Too much is held for this peer already, or too many events wait to be polled.
    Full,
    /// A part that contradicts its fellows, or has no sequence number.
    Contradiction,
    /// The peer changes its name too often.
    Flood,
}

impl Cause {
    /// All causes, in the order of [`Rejected`].
    pub const ALL: [Self; 10] = [
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
    ];

    /// Returns a short name for logs and metrics.
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
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each [`Cause`] occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rejected([u64; Cause::ALL.len()]);

impl Rejected {
    /// Returns how often `cause` occurred.
    #[must_use]
    pub fn count(&self, cause: Cause) -> u64 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// Returns how often any cause occurred.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, cause: Cause) {
        if let Some(count) = self.0.get_mut(cause as usize) {
            *count += 1;
        }
    }
}

/// Messages by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kinds([u64; 7]);

impl Kinds {
    /// Returns how many messages of `kind`.
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

    /// Returns how many messages of any kind.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns where the counter of a kind is. One that nobody knows has none.
    #[inline]
    const fn index(kind: Kind) -> Option<usize> {
        match kind {
            Kind::DATA => Some(6),
            Kind(low @ 0..=5) => Some(low as usize),
            _ => None,
        }
    }
}

/// Cumulative counters of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Datagrams sent to it.
    pub datagrams_out: u64,
    /// Datagrams that came from it.
    pub datagrams_in: u64,
    /// Bytes of those sent.
    pub bytes_out: u64,
    /// Bytes of those that came.
    pub bytes_in: u64,
    /// Messages that came, by kind.
    pub messages_in: Kinds,
    /// Messages sent for the first time, by kind; ACKs are counted in [`acks_out`](Self::acks_out).
    pub messages_out: Kinds,
    /// ACKs sent.
    pub acks_out: u64,
    /// ACKs that came for nothing that waited.
    pub acks_useless: u64,
    /// Messages sent again.
    pub retransmits: u64,
    /// Reliable messages that came again.
    pub duplicates: u64,
    /// What came and had no effect.
    pub rejected: Rejected,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-10: no kind is counted as another.
    #[test]
    fn every_kind_has_a_counter_of_its_own_or_none() {
        for kind in (0..=u8::MAX).map(Kind) {
            let mut kinds = Kinds::default();
            kinds.add(kind, 1);
            let known = kind.name().is_some();
            assert_eq!((kinds.count(kind), kinds.total()), (known.into(), known.into()), "{kind}");
            for other in (0..=u8::MAX).map(Kind).filter(|other| *other != kind) {
                assert_eq!(kinds.count(other), 0, "{kind} is counted as {other}");
            }
        }
    }
}
