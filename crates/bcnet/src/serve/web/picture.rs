//! What the game says about itself, as the pages need it. It is asked at most once a second, however many look.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bcnet_control::{Envelope, Refusal, Request};
use bcnet_transport::Time;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::serve::control_plane::ControlPlane;

/// All sessions and players at one moment.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) uptime_s: u64,
    pub(super) sessions: Vec<Session>,
    pub(super) players: Vec<Player>,
}

/// A session, as `bcnet ctl status` has it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) players: usize,
    pub(super) in_game: usize,
    pub(super) limit: usize,
    pub(super) round: u32,
    pub(super) ended: bool,
    pub(super) system: String,
    pub(super) state: String,
    pub(super) game_time_s: u64,
    pub(super) time_left_s: Option<u64>,
    pub(super) relay_p50_ms: Option<f64>,
    pub(super) relay_p99_ms: Option<f64>,
    pub(super) round_trip_p50_ms: Option<f64>,
    pub(super) round_trip_p99_ms: Option<f64>,
    pub(super) bytes_in_per_second: u64,
    pub(super) bytes_out_per_second: u64,
    pub(super) relaying_share: f64,
    pub(super) coalescing_ms: f64,
    pub(super) overflowed: u64,
    pub(super) unsent: u64,
    pub(super) rejected: u64,
    pub(super) anomalies: u64,
    pub(super) masters: Vec<Master>,
}

/// A list server of a session.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Master {
    pub(super) address: String,
    pub(super) state: String,
}

/// A player, as `bcnet ctl players` has it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Player {
    pub(super) session: String,
    pub(super) port: u16,
    pub(super) peer: u8,
    pub(super) slot: Option<u8>,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) state: String,
    pub(super) muted: bool,
    pub(super) ship: Option<u8>,
    pub(super) ship_name: Option<String>,
    pub(super) round_trip_ms: Option<f64>,
    pub(super) round_trip_p50_ms: Option<f64>,
    pub(super) round_trip_p99_ms: Option<f64>,
    pub(super) relay_p50_ms: Option<f64>,
    pub(super) relay_p99_ms: Option<f64>,
    pub(super) connected_s: u64,
    pub(super) kills: i64,
    pub(super) deaths: i64,
    pub(super) score: i64,
    pub(super) anomalies: u64,
    pub(super) outdated: u64,
    pub(super) queued_bytes: usize,
    pub(super) unacknowledged: usize,
    /// The share that got lost lately.
    pub(super) loss: Option<f64>,
}

impl Player {
    /// Returns the address without its port.
    pub(super) fn ip(&self) -> &str {
        self.address.rsplit_once(':').map_or(self.address.as_str(), |(ip, _)| ip)
    }
}

impl Picture {
    pub(super) fn session(&self, port: u16) -> Option<&Session> {
        self.sessions.iter().find(|session| session.port == port)
    }

    pub(super) fn player(&self, port: u16, peer: u8) -> Option<&Player> {
        self.players.iter().find(|player| player.port == port && player.peer == peer)
    }

    /// Asks the game.
    fn take(plane: &ControlPlane) -> Result<Self, Refusal> {
        let mut status = ask(plane, None, Request::Status)?;
        let mut players = ask(plane, None, Request::Players)?;
        Ok(Self {
            uptime_s: status["uptime_s"].as_u64().unwrap_or(0),
            sessions: read(status["sessions"].take())?,
            players: read(players["players"].take())?,
        })
    }
}

/// The latest picture.
#[derive(Debug, Default)]
pub(super) struct Latest(Mutex<Option<(Time, Arc<Picture>)>>);

impl Latest {
    /// Returns a picture that is less than a second old.
    pub(super) fn get(&self, plane: &ControlPlane, now: Time) -> Result<Arc<Picture>, Refusal> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, picture)) = latest.as_ref().filter(|(at, _)| now.since(*at) < FRESH) {
            return Ok(Arc::clone(picture));
        }
        let picture = Arc::new(Picture::take(plane)?);
        *latest = Some((now, Arc::clone(&picture)));
        Ok(picture)
    }

    /// Has the game asked again, because somebody has changed something.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Asks the control plane for something that changes nothing.
pub(super) fn ask(plane: &ControlPlane, port: Option<u16>, request: Request) -> Result<Value, Refusal> {
    plane.dispatch(Envelope { session: port.map(|port| port.to_string()), by: None, request })
}

/// Reads a part of an answer.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Refusal> {
    serde_json::from_value(value).map_err(|error| Refusal(format!("an answer of the server: {error}")))
}

/// How old a picture may be.
const FRESH: Duration = Duration::from_secs(1);
