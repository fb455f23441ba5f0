//! What the game says about itself, as the pages need it. It is asked at most once a second, however many look, and less often the
//! longer that takes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bcnet_control::{Envelope, Refusal, Request};
use bcnet_transport::Time;
use bcnet_udp::Clock;
use serde_json::Value;

use crate::answers::{Player, Session, Status, list, read};
use crate::serve::control_plane::ControlPlane;

/// All sessions and players at one moment.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) status: Status,
    pub(super) players: Vec<Player>,
}

impl Picture {
    pub(super) fn sessions(&self) -> &[Session] {
        &self.status.sessions
    }

    pub(super) fn session(&self, port: u16) -> Option<&Session> {
        self.sessions().iter().find(|session| session.port == port)
    }

    pub(super) fn player(&self, port: u16, peer: u8) -> Option<&Player> {
        self.players.iter().find(|player| player.port == port && player.peer == peer)
    }

    /// Asks the game.
    fn take(plane: &ControlPlane) -> Result<Self, Refusal> {
        let status = read(ask(plane, None, Request::Status)?).map_err(Refusal)?;
        Ok(Self { status, players: everyone(plane)? })
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

/// Asks for all players of all sessions.
pub(super) fn everyone(plane: &ControlPlane) -> Result<Vec<Player>, Refusal> {
    list(ask(plane, None, Request::Players)?, "players").map_err(Refusal)
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
