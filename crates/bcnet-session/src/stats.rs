//! The counters of a session, and the anomalies of players.

use std::fmt;

use crate::refusal::Refusals;

/// Something that a correct client does not send. It is counted and has no other effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Anomaly {
    /// A payload without an opcode.
    Empty,
    /// A message that is not allowed before the player is in the game.
    TooEarly,
    /// A file check answer that is malformed, too long, or for another round.
    BadReply,
    /// No file check answer within the timeout of a round.
    NoReply,
    /// A message that clients never send: only a host sends it, or nobody.
    HostOnly,
    /// A message with an unknown opcode, if the settings forbid relaying those.
    UnknownOpcode,
    /// A message that is too short for its fields.
    TooShort,
    /// A message that is larger than the limit of its kind.
    TooLarge,
    /// A message about another player's object.
    NotOwner,
    /// An object that would crash stock clients.
    BadObject,
    /// An event that the stock game does not have.
    BadEvent,
    /// Chat that is too long, or whose length field is wrong.
    BadChat,
    /// Unprintable characters in chat or in another text. They were replaced.
    ControlCharacters,
    /// A name that was cleaned, truncated or replaced before it was relayed.
    BadName,
    /// More messages or bytes than a player may send.
    Flood,
    /// More than another player's link can take. Messages were dropped for that player.
    Backlog,
    /// The player does not acknowledge messages and was booted.
    Stuck,
}

impl Anomaly {
    /// All anomalies.
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

    /// Returns the stable name for logs and metrics.
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

/// The number of occurrences of each [`Anomaly`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies([u64; Anomaly::ALL.len()]);

impl Anomalies {
    /// Returns the number of occurrences of `kind`.
    #[must_use]
    pub fn count(&self, kind: Anomaly) -> u64 {
        self.0.get(kind as usize).copied().unwrap_or(0)
    }

    /// Returns the number of all anomalies.
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
    /// Received queries (GameSpy texts).
    pub queries: u64,
    /// Queries that were answered.
    pub queries_answered: u64,
    /// Queries that were not answered, because of the limits ([S-07]) or a full outbox.
    ///
    /// [S-07]: bcnet_transport::wire::protocol#s-07
    pub queries_limited: u64,
    /// Heartbeats sent to list servers.
    pub heartbeats: u64,
    /// Admitted clients.
    pub admitted: u64,
    /// Refused clients, by reason.
    pub refused: Refusals,
    /// Connect requests that were left unanswered, because their address or network joins too often ([S-13]).
    ///
    /// [S-13]: bcnet_transport::wire::protocol#s-13
    pub ignored: u64,
    /// Game messages received from players in the game.
    pub messages_in: u64,
    /// Relayed copies of messages.
    pub relayed: u64,
    /// Messages that waited in a send queue, for capacity of a link or for a name.
    pub queued: u64,
    /// Copies that were dropped, because too many messages wait for their receiver.
    pub not_queued: u64,
    /// Unreliable copies that were dropped, because their sender was over its share of the uplink ([S-46]).
    ///
    /// [S-46]: bcnet_transport::wire::protocol#s-46
    pub uplink_dropped: u64,
    /// State updates that were superseded before they were sent.
    pub superseded: u64,
    /// Copies of messages that the game policy has sent ([S-92]).
    ///
    /// [S-92]: bcnet_transport::wire::protocol#s-92
    pub policy_sent: u64,
    /// Copies and actions of the game policy that were dropped, because they exceeded a limit.
    pub policy_dropped: u64,
    /// Messages of players, or copies of them, that the game policy has dropped.
    pub policy_vetoed: u64,
    /// Replacements of the game policy that failed a check and were dropped.
    pub policy_rejected: u64,
    /// Events that were dropped, because the caller did not poll them in time.
    pub events_dropped: u64,
    /// The anomalies of players.
    pub anomalies: Anomalies,
}
