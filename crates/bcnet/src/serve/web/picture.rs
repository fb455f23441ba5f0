//! What the game says about itself, as the pages need it. It is asked at most once a second, however many look, and less often the
//! longer that takes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bcnet_control::{Envelope, Refusal, Request};
use bcnet_transport::Time;
use bcnet_udp::Clock;
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
pub(super) struct Latest(Mutex<Option<Taken>>);

#[derive(Debug)]
struct Taken {
    picture: Arc<Picture>,
    /// Until when it is good enough.
    until: Time,
}

impl Latest {
    /// Returns a picture that is about a second old at the most; of a crowd that takes long to ask, more.
    pub(super) fn get(&self, plane: &ControlPlane, clock: Clock) -> Result<Arc<Picture>, Refusal> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = clock.now();
        if let Some(taken) = latest.as_ref().filter(|taken| asked < taken.until) {
            return Ok(Arc::clone(&taken.picture));
        }
        let picture = Arc::new(Picture::take(plane)?);
        let told = clock.now();
        *latest = Some(Taken { picture: Arc::clone(&picture), until: told + good_for(told.since(asked)) });
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

/// Returns how long a picture is good that took so long: the game is not asked all the time, however many there are.
fn good_for(took: Duration) -> Duration {
    (took * 20).clamp(FRESH, OLDEST)
}

/// How old a picture may always be.
const FRESH: Duration = Duration::from_secs(1);
/// And how old at the most.
const OLDEST: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_takes_a_twentieth_of_the_time_at_the_most() {
        let millis = Duration::from_millis;
        for (took, good) in [(0, 1_000), (50, 1_000), (100, 2_000), (400, 8_000), (60_000, 10_000)] {
            assert_eq!(good_for(millis(took)), millis(good));
        }
    }
}
