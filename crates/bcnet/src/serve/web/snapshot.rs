//! Caches the state of all sessions for the pages.
//!
//! The sessions are queried at most once a second, for all viewers together, and less often the longer a
//! query takes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bcnet_control::{Envelope, Request, RequestError};
use bcnet_transport::Time;
use bcnet_udp::Clock;
use serde_json::Value;

use crate::serve::control_plane::ControlPlane;
use crate::server_info::{PlayerInfo, ServerInfo, SessionInfo, parse, parse_list};

/// All sessions and players at one moment.
#[derive(Debug, Default)]
pub(super) struct WebSnapshot {
    pub(super) status: ServerInfo,
    pub(super) players: Vec<PlayerInfo>,
}

impl WebSnapshot {
    pub(super) fn sessions(&self) -> &[SessionInfo] {
        &self.status.sessions
    }

    pub(super) fn session(&self, port: u16) -> Option<&SessionInfo> {
        self.sessions().iter().find(|session| session.port == port)
    }

    pub(super) fn player(&self, port: u16, peer: u8) -> Option<&PlayerInfo> {
        self.players.iter().find(|player| player.port == port && player.peer == peer)
    }

    /// Queries the sessions.
    fn fetch(plane: &ControlPlane) -> Result<Self, RequestError> {
        let status = parse(query(plane, None, Request::Status)?).map_err(RequestError)?;
        Ok(Self { status, players: all_players(plane)? })
    }
}

/// The latest snapshot.
#[derive(Debug, Default)]
pub(super) struct SnapshotCache(Mutex<Option<CachedSnapshot>>);

#[derive(Debug)]
struct CachedSnapshot {
    snapshot: Arc<WebSnapshot>,
    /// Time until which the snapshot is used.
    valid_until: Time,
}

impl SnapshotCache {
    /// Returns a snapshot that is about a second old at most, or older if queries take long.
    pub(super) fn get(&self, plane: &ControlPlane, clock: Clock) -> Result<Arc<WebSnapshot>, RequestError> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let started = clock.now();
        if let Some(taken) = latest.as_ref().filter(|taken| started < taken.valid_until) {
            return Ok(Arc::clone(&taken.snapshot));
        }
        let snapshot = Arc::new(WebSnapshot::fetch(plane)?);
        let finished = clock.now();
        *latest = Some(CachedSnapshot {
            snapshot: Arc::clone(&snapshot),
            valid_until: finished + cache_lifetime(finished.since(started)),
        });
        Ok(snapshot)
    }

    /// Drops the snapshot after a change, so that the next page shows the result.
    pub(super) fn invalidate(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Sends a request that changes nothing to the control plane.
pub(super) fn query(
    plane: &ControlPlane,
    port: Option<u16>,
    request: Request,
) -> Result<Value, RequestError> {
    plane.dispatch(Envelope { session: port.map(|port| port.to_string()), by: None, request })
}

/// Returns all players of all sessions.
pub(super) fn all_players(plane: &ControlPlane) -> Result<Vec<PlayerInfo>, RequestError> {
    parse_list(query(plane, None, Request::Players)?, "players").map_err(RequestError)
}

/// Returns how long a snapshot is used. Queries take at most a twentieth of the time.
fn cache_lifetime(took: Duration) -> Duration {
    (took * 20).clamp(MIN_CACHE_TIME, MAX_CACHE_TIME)
}

/// Shortest time for which a snapshot is used.
const MIN_CACHE_TIME: Duration = Duration::from_secs(1);
/// Longest time for which a snapshot is used.
const MAX_CACHE_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_queries_take_at_most_a_twentieth_of_the_time() {
        let millis = Duration::from_millis;
        for (took, lifetime) in [(0, 1_000), (50, 1_000), (100, 2_000), (400, 8_000), (60_000, 10_000)] {
            assert_eq!(cache_lifetime(millis(took)), millis(lifetime));
        }
    }
}
