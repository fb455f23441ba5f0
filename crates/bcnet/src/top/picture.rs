//! What a server has answered, as it is shown. All text in it is [`Shown`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Text in which nothing takes over a terminal, whoever has sent it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub(super) struct Shown(pub(super) String);

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self(bcnet_control::shown(&text))
    }
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The server, and one of its sessions in detail.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) status: Status,
    /// The session that the players are of.
    pub(super) port: u16,
    pub(super) players: Vec<Player>,
    pub(super) interval: u64,
    /// Those that came since the last picture, or all.
    pub(super) samples: Vec<Sample>,
    /// They are all that there are.
    pub(super) are_all: bool,
}

impl Picture {
    pub(super) fn read(
        status: Status,
        port: u16,
        players: &Value,
        queues: &Value,
        samples: &Value,
        are_all: bool,
    ) -> Self {
        let mut waiting: BTreeMap<u8, Queues> =
            list(queues, "queues").into_iter().map(|one: Queues| (one.peer, one)).collect();
        let mut players: Vec<Player> = list(players, "players");
        for player in &mut players {
            player.queues = waiting.remove(&player.peer).unwrap_or_default();
        }
        let interval = samples.get("interval_s").and_then(Value::as_u64).unwrap_or(5);
        Self { status, port, players, interval, samples: list(samples, "samples"), are_all }
    }
}

/// How the server is doing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) version: Shown,
    pub(super) uptime_s: u64,
    pub(super) sessions: Vec<Session>,
}

impl Status {
    pub(super) fn read(answer: &Value) -> Self {
        Self::deserialize(answer).unwrap_or_default()
    }

    /// Returns the port of the session with this name or port; without one, of the first.
    pub(super) fn port_of(&self, wanted: Option<&str>) -> Result<u16, String> {
        let Some(wanted) = wanted else {
            return self
                .sessions
                .first()
                .map(|one| one.port)
                .ok_or_else(|| "the server has no sessions".into());
        };
        let is_meant =
            |one: &&Session| one.port.to_string() == wanted || one.name.0.eq_ignore_ascii_case(wanted);
        let meant = self.sessions.iter().find(is_meant);
        meant
            .map(|one| one.port)
            .ok_or_else(|| format!("no session {wanted}; `bcnet ctl status` lists names and ports"))
    }
}

/// One session.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Session {
    pub(super) name: Shown,
    pub(super) port: u16,
    pub(super) players: u64,
    pub(super) limit: u64,
    pub(super) round: u64,
    pub(super) system: Shown,
    pub(super) state: Shown,
    pub(super) time_left_s: Option<u64>,
    pub(super) bytes_out_per_second: f64,
    pub(super) relay_p50_ms: Option<f64>,
    pub(super) relay_p99_ms: Option<f64>,
    pub(super) round_trip_p50_ms: Option<f64>,
    pub(super) round_trip_p99_ms: Option<f64>,
}

/// One player.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Player {
    pub(super) peer: u8,
    pub(super) name: Shown,
    pub(super) address: Shown,
    pub(super) state: Shown,
    pub(super) ship_name: Option<Shown>,
    pub(super) round_trip_ms: Option<f64>,
    pub(super) round_trip_p50_ms: Option<f64>,
    pub(super) round_trip_p99_ms: Option<f64>,
    pub(super) loss: Option<f64>,
    pub(super) relay_p50_ms: Option<f64>,
    pub(super) relay_p99_ms: Option<f64>,
    pub(super) connected_s: u64,
    pub(super) kills: i64,
    pub(super) deaths: i64,
    pub(super) score: i64,
    #[serde(skip)]
    pub(super) queues: Queues,
}

/// What waits for and from a player.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Queues {
    peer: u8,
    pub(super) unacknowledged: u64,
    pub(super) acks: u64,
    pub(super) fresh: u64,
    pub(super) queued_bytes: u64,
    pub(super) in_flight: u64,
    pub(super) budget: u64,
    pub(super) timeout_ms: f64,
    pub(super) silent_s: u64,
    pub(super) dump: Shown,
}

impl Queues {
    /// Returns how many messages wait for the player, sent or not.
    pub(super) const fn waiting(&self) -> u64 {
        self.unacknowledged + self.fresh
    }
}

/// Some seconds of the last hour.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sample {
    pub(super) time: u64,
    pub(super) players: f64,
    pub(super) datagrams_in_per_second: f64,
    pub(super) datagrams_out_per_second: f64,
    pub(super) ack_bytes_per_second: f64,
    pub(super) retransmissions_per_second: f64,
    pub(super) round_trip_p50_ms: Option<f64>,
    pub(super) round_trip_p99_ms: Option<f64>,
    pub(super) relay_p50_ms: Option<f64>,
    pub(super) relay_p99_ms: Option<f64>,
    pub(super) core_share: Option<f64>,
    pub(super) memory_bytes: Option<f64>,
}

/// Returns the rows of an answer; what is no such row is left out.
fn list<T: DeserializeOwned>(answer: &Value, key: &str) -> Vec<T> {
    let rows = answer.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter_map(|row| T::deserialize(row).ok()).collect()
}
