//! The server's answers in the form that the screen needs.

use std::collections::BTreeMap;

use crate::server_info::{PlayerInfo, PlayerQueues, SampleList, ServerInfo, ServerSample, SessionInfo};

/// The state of the server, and the details of one session.
#[derive(Debug, Default)]
pub(super) struct TopSnapshot {
    pub(super) status: ServerInfo,
    /// The port of the session to which `players` belong.
    pub(super) port: u16,
    pub(super) players: Vec<PlayerInfo>,
    pub(super) interval: u64,
    /// New samples since the last snapshot, or all samples.
    pub(super) samples: Vec<ServerSample>,
    /// `true` if these are all samples.
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

    /// Adds the samples of the last hour, all or only the new ones.
    pub(super) fn with_samples(
        self,
        SampleList { interval_s, samples }: SampleList,
        has_all_samples: bool,
    ) -> Self {
        Self { interval: interval_s, samples, has_all_samples, ..self }
    }
}

/// Returns the port of the session with this name or port, or of the first session.
pub(super) fn find_port(sessions: &[SessionInfo], wanted: Option<&str>) -> Result<u16, String> {
    let Some(wanted) = wanted else {
        return sessions.first().map(|one| one.port).ok_or_else(|| "the server has no sessions".into());
    };
    let matches_wanted =
        |one: &&SessionInfo| one.port.to_string() == wanted || one.name.0.eq_ignore_ascii_case(wanted);
    let matching = sessions.iter().find(matches_wanted);
    matching.map(|one| one.port).ok_or_else(|| {
        format!("no session has the name or port {wanted}; `bcnet ctl status` lists names and ports")
    })
}
