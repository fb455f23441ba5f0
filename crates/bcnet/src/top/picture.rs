//! What a server has answered, as it is shown.

use std::collections::BTreeMap;

use crate::answers::{Player, Queues, Sample, Samples, Session, Status};

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
    pub(super) fn new(status: Status, port: u16, mut players: Vec<Player>, queues: Vec<Queues>) -> Self {
        let mut waiting: BTreeMap<u8, Queues> = queues.into_iter().map(|one| (one.peer, one)).collect();
        for player in &mut players {
            player.queues = waiting.remove(&player.peer).unwrap_or_default();
        }
        Self { status, port, players, ..Self::default() }
    }

    /// Adds the last hour, all of it or what is new.
    pub(super) fn with(self, Samples { interval_s, samples }: Samples, are_all: bool) -> Self {
        Self { interval: interval_s, samples, are_all, ..self }
    }
}

/// Returns the port of the session with this name or port; without one, of the first.
pub(super) fn port_of(sessions: &[Session], wanted: Option<&str>) -> Result<u16, String> {
    let Some(wanted) = wanted else {
        return sessions.first().map(|one| one.port).ok_or_else(|| "the server has no sessions".into());
    };
    let is_meant = |one: &&Session| one.port.to_string() == wanted || one.name.0.eq_ignore_ascii_case(wanted);
    let meant = sessions.iter().find(is_meant);
    meant
        .map(|one| one.port)
        .ok_or_else(|| format!("no session {wanted}; `bcnet ctl status` lists names and ports"))
}
