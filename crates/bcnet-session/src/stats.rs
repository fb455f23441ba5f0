//! What happened so far, in numbers.

use std::fmt;

/// Something that a player should not do. It has no effect but to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Anomaly {
    /// A payload without an opcode.
    Empty,
    /// Something said before the player was in the game.
    TooEarly,
    /// A checksum reply that makes no sense or that nobody asked for.
    BadReply,
    /// No checksum reply within the time of a round.
    NoReply,
    /// An opcode that only the host uses, or nobody.
    HostOnly,
    /// An opcode that nobody knows, if those are not passed on.
    UnknownOpcode,
    /// A payload that is too short for its fields.
    TooShort,
    /// A payload that is larger than any of its kind.
    TooLarge,
    /// A message about another player's object.
    NotOwner,
    /// An object that would crash stock clients.
    BadObject,
    /// An event that the stock game does not have.
    BadEvent,
    /// Chat whose length is wrong.
    BadChat,
    /// Characters in chat or in another text that are not shown; they are replaced.
    ControlCharacters,
    /// A name that cannot be passed on as it is: it is cleaned, cut or replaced.
    BadName,
    /// More than a player may have passed on.
    Flood,
    /// More than another player's line takes: what found no room there was left out.
    Backlog,
    /// The player does not take what is sent to it and is dropped.
    Stuck,
}

impl Anomaly {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Empty,
        Self::TooEarly,
        Self::BadReply,
        Self::NoReply,
        Self::HostOnly,
        Self::UnknownOpcode,
        Self::TooShort,
        Self::TooLarge,
        Self::NotOwner,
        Self::BadObject,
        Self::BadEvent,
        Self::BadChat,
        Self::ControlCharacters,
        Self::BadName,
        Self::Flood,
        Self::Backlog,
        Self::Stuck,
    ];

    /// Returns a name for logs and metrics, which never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooEarly => "too_early",
            Self::BadReply => "bad_reply",
            Self::NoReply => "no_reply",
            Self::HostOnly => "host_only",
            Self::UnknownOpcode => "unknown_opcode",
            Self::TooShort => "too_short",
            Self::TooLarge => "too_large",
            Self::NotOwner => "not_owner",
            Self::BadObject => "bad_object",
            Self::BadEvent => "bad_event",
            Self::BadChat => "bad_chat",
            Self::ControlCharacters => "control_characters",
            Self::BadName => "odd_name",
            Self::Flood => "flood",
            Self::Backlog => "backlog",
            Self::Stuck => "stuck",
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each [`Anomaly`] occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies([u64; Anomaly::ALL.len()]);

impl Anomalies {
    /// Returns how often `kind` occurred.
    #[must_use]
    pub fn count(&self, kind: Anomaly) -> u64 {
        self.0.get(kind as usize).copied().unwrap_or(0)
    }

    /// Returns how often any occurred.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, kind: Anomaly) -> u64 {
        let Some(count) = self.0.get_mut(kind as usize) else { return 0 };
        *count += 1;
        *count
    }
}

/// Cumulative counters of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// GameSpy texts that came.
    pub queries: u64,
    /// Those that were answered.
    pub queries_answered: u64,
    /// Those that were not, because their network or all together ask too much (S-07), or too much waits to be sent.
    pub queries_limited: u64,
    /// Heartbeats to list servers.
    pub heartbeats: u64,
    /// Clients let in.
    pub admitted: u64,
    /// Clients turned away.
    pub refused: u64,
    /// Requests to be let in that were left unanswered, because their address or network joins too often (S-13).
    pub ignored: u64,
    /// Game messages that came from players in the game.
    pub messages_in: u64,
    /// Copies passed on to others.
    pub relayed: u64,
    /// Messages that waited, because their recipient's line was full or it had to learn a name first.
    pub queued: u64,
    /// Copies that were not queued, because too much waits for their recipient.
    pub not_queued: u64,
    /// State updates that were dropped before they left, because newer ones of the same ship replace them.
    pub superseded: u64,
    /// Events that nobody polled in time.
    pub events_dropped: u64,
    /// What players did wrong.
    pub anomalies: Anomalies,
}
