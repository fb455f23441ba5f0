//! Typed answers of a running server, for the operator page and `bcnet top`.
//!
//! All text is [`SanitizedText`]. An answer with a missing field is an error: both ends have the same version.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Text without characters that control a terminal or change the direction of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub(crate) struct SanitizedText(pub(crate) String);

impl From<String> for SanitizedText {
    fn from(text: String) -> Self {
        Self(bcnet_control::sanitize_for_terminal(&text))
    }
}

impl std::fmt::Display for SanitizedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// State of the server.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ServerInfo {
    pub(crate) version: SanitizedText,
    pub(crate) uptime_s: u64,
    pub(crate) sessions: Vec<SessionInfo>,
}

/// One session.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct SessionInfo {
    pub(crate) name: SanitizedText,
    pub(crate) port: u16,
    pub(crate) players: u64,
    pub(crate) in_game: u64,
    pub(crate) limit: u64,
    pub(crate) round: u64,
    pub(crate) ended: bool,
    pub(crate) system: SanitizedText,
    pub(crate) state: SanitizedText,
    pub(crate) game_time_s: u64,
    pub(crate) time_left_s: Option<u64>,
    pub(crate) relay_p50_ms: Option<f64>,
    pub(crate) relay_p99_ms: Option<f64>,
    pub(crate) round_trip_p50_ms: Option<f64>,
    pub(crate) round_trip_p99_ms: Option<f64>,
    pub(crate) bytes_in_per_second: u64,
    pub(crate) bytes_out_per_second: u64,
    pub(crate) relaying_share: f64,
    pub(crate) coalescing_ms: f64,
    pub(crate) overflowed: u64,
    pub(crate) unsent: u64,
    pub(crate) rejected: u64,
    pub(crate) anomalies: u64,
    pub(crate) masters: Vec<ListServerInfo>,
}

impl SessionInfo {
    /// Returns whether the session accepts players.
    pub(crate) fn is_open(&self) -> bool {
        self.state.0 == "open"
    }
}

/// A list server of a session.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ListServerInfo {
    pub(crate) address: SanitizedText,
    pub(crate) state: SanitizedText,
}

/// One player.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct PlayerInfo {
    pub(crate) session: SanitizedText,
    pub(crate) port: u16,
    pub(crate) peer: u8,
    pub(crate) slot: Option<u8>,
    pub(crate) name: SanitizedText,
    pub(crate) address: SanitizedText,
    pub(crate) state: SanitizedText,
    pub(crate) muted: bool,
    pub(crate) ship: Option<u8>,
    pub(crate) ship_name: Option<SanitizedText>,
    pub(crate) round_trip_ms: Option<f64>,
    pub(crate) round_trip_p50_ms: Option<f64>,
    pub(crate) round_trip_p99_ms: Option<f64>,
    /// The fraction of recent messages that were lost.
    pub(crate) loss: Option<f64>,
    pub(crate) relay_p50_ms: Option<f64>,
    pub(crate) relay_p99_ms: Option<f64>,
    pub(crate) connected_s: u64,
    pub(crate) kills: i64,
    pub(crate) deaths: i64,
    pub(crate) score: i64,
    pub(crate) anomalies: u64,
    pub(crate) outdated: u64,
    pub(crate) unacknowledged: u64,
    pub(crate) queued_bytes: u64,
    /// Queues of the player, if they were requested.
    #[serde(skip)]
    pub(crate) queues: PlayerQueues,
}

impl PlayerInfo {
    /// Returns the address without its port.
    pub(crate) fn ip(&self) -> &str {
        self.address.0.rsplit_once(':').map_or(self.address.0.as_str(), |(ip, _)| ip)
    }
}

/// Queues to and from a player.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct PlayerQueues {
    pub(crate) peer: u8,
    pub(crate) unacknowledged: u64,
    pub(crate) acks: u64,
    pub(crate) fresh: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) in_flight: u64,
    pub(crate) budget: u64,
    pub(crate) timeout_ms: f64,
    pub(crate) silent_s: u64,
    pub(crate) dump: SanitizedText,
}

impl PlayerQueues {
    /// Returns the number of messages that wait for the player, sent or not.
    pub(crate) const fn pending_messages(&self) -> u64 {
        self.unacknowledged + self.fresh
    }

    /// Returns two lines of text: the outgoing and the incoming queues.
    pub(crate) fn summary_lines(&self) -> [String; 2] {
        let Self {
            unacknowledged, acks, fresh, queued_bytes, in_flight, budget, timeout_ms, silent_s, ..
        } = self;
        [
            format!(
                "{unacknowledged} unacknowledged, {fresh} not sent yet, {queued_bytes} bytes; {in_flight} of {budget} bytes \
                 in flight"
            ),
            format!("{acks} ACKs pending; retransmission after {timeout_ms:.0} ms; silent for {silent_s} s"),
        ]
    }
}

/// Samples of the last hour.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SampleList {
    pub(crate) interval_s: u64,
    pub(crate) samples: Vec<ServerSample>,
}

/// One sample of a few seconds.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ServerSample {
    pub(crate) time: u64,
    pub(crate) players: f64,
    pub(crate) datagrams_in_per_second: f64,
    pub(crate) datagrams_out_per_second: f64,
    pub(crate) ack_bytes_per_second: f64,
    pub(crate) retransmissions_per_second: f64,
    pub(crate) round_trip_p50_ms: Option<f64>,
    pub(crate) round_trip_p99_ms: Option<f64>,
    pub(crate) relay_p50_ms: Option<f64>,
    pub(crate) relay_p99_ms: Option<f64>,
    pub(crate) core_share: Option<f64>,
    pub(crate) memory_bytes: Option<f64>,
}

/// Parses an answer, or a part of one.
pub(crate) fn parse<T: DeserializeOwned>(answer: Value) -> Result<T, String> {
    serde_json::from_value(answer)
        .map_err(|error| format!("an answer that is not understood, of another version perhaps: {error}"))
}

/// Parses a list in an answer by its name.
pub(crate) fn parse_list<T: DeserializeOwned>(mut answer: Value, name: &str) -> Result<Vec<T>, String> {
    parse(answer.get_mut(name).map(Value::take).unwrap_or_default())
}
