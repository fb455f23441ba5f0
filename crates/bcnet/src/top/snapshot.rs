//! What a server has answered, as it is shown.

use std::collections::BTreeMap;

use crate::server_info::{PlayerInfo, PlayerQueues, SampleList, ServerInfo, ServerSample, SessionInfo};

/// The server, and one of its sessions in detail.
#[derive(Debug, Default)]
pub(super) struct TopSnapshot {
    pub(super) status: ServerInfo,
    /// The session that the players are of.
    pub(super) port: u16,
    pub(super) players: Vec<PlayerInfo>,
    pub(super) interval: u64,
    /// Those that came since the last picture, or all.
    pub(super) samples: Vec<ServerSample>,
    /// They are all that there are.
    pub(super) has_all_samples: bool,
}

impl TopSnapshot {
    pub(super) fn new(
        status: ServerInfo,
        port: u16,
        mut players: Vec<PlayerInfo>,
        queues: Vec<PlayerQueues>,
    ) -> Self {
        let mut waiting: BTreeMap<u8, PlayerQueues> = queues.into_iter().map(|one| (one.peer, one)).collect();
        for player in &mut players {
            player.queues = waiting.remove(&player.peer).unwrap_or_default();
        }
        Self { status, port, players, ..Self::default() }
    }

    /// Adds the last hour, all of it or what is new.
    pub(super) fn with_samples(
        self,
        SampleList { interval_s, samples }: SampleList,
        has_all_samples: bool,
    ) -> Self {
        Self { interval: interval_s, samples, has_all_samples, ..self }
    }
}

/// Returns the port of the session with this name or port; without one, of the first.
pub(super) fn find_port(sessions: &[SessionInfo], wanted: Option<&str>) -> Result<u16, String> {
    let Some(wanted) = wanted else {
        return sessions.first().map(|one| one.port).ok_or_else(|| "the server has no sessions".into());
    };
    let is_meant =
        |one: &&SessionInfo| one.port.to_string() == wanted || one.name.0.eq_ignore_ascii_case(wanted);
    let meant = sessions.iter().find(is_meant);
    meant
        .map(|one| one.port)
        .ok_or_else(|| format!("no session {wanted}; `bcnet ctl status` lists names and ports"))
}
