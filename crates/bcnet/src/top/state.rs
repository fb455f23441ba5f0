//! The state of the screen: data and selections.

use std::cmp::Ordering;
use std::collections::VecDeque;

use serde_json::Value;

use super::keys::{Dialog, LoopAction};
use super::log_line::LogLine;
use super::snapshot::TopSnapshot;
use crate::server_info::{PlayerInfo, ServerInfo, ServerSample, SessionInfo};

/// The part of the screen that the keys control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Panel {
    Sessions,
    Players,
    /// The log, or the queues of a player.
    Bottom,
}

/// The order of players.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlayerOrder {
    Id,
    Name,
    RoundTrip,
    Loss,
    Queue,
    Time,
    Score,
}

impl PlayerOrder {
    pub(super) const ALL: [Self; 7] =
        [Self::Id, Self::Name, Self::RoundTrip, Self::Loss, Self::Queue, Self::Time, Self::Score];

    fn compare(self, a: &PlayerInfo, b: &PlayerInfo) -> Ordering {
        let number = |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        match self {
            Self::Id => Ordering::Equal,
            Self::Name => a.name.0.to_lowercase().cmp(&b.name.0.to_lowercase()),
            Self::RoundTrip => number(a.round_trip_p50_ms, b.round_trip_p50_ms),
            Self::Loss => number(a.loss, b.loss),
            Self::Queue => b.queues.pending_messages().cmp(&a.queues.pending_messages()),
            Self::Time => b.connected_s.cmp(&a.connected_s),
            Self::Score => b.score.cmp(&a.score),
        }
    }
}

/// Everything that the screen shows.
pub(super) struct ScreenState {
    /// The name of the operator, for the server's history.
    pub(super) by: Option<String>,
    pub(super) status: ServerInfo,
    pub(super) players: Vec<PlayerInfo>,
    pub(super) samples: VecDeque<ServerSample>,
    /// The interval between samples, in seconds.
    pub(super) interval: u64,
    pub(super) log: VecDeque<LogLine>,
    pub(super) panel: Panel,
    /// The port of the selected session.
    pub(super) selected_port: Option<u16>,
    /// The peer id of the selected player.
    pub(super) selected_peer: Option<u8>,
    pub(super) order: PlayerOrder,
    pub(super) is_reversed: bool,
    /// `true` if the sessions with the most players come first.
    pub(super) are_sessions_by_players: bool,
    /// `true` if the queues of the selected player are shown instead of plots and log.
    pub(super) shows_queues: bool,
    /// `true` if the plots show all sessions.
    pub(super) is_all_sessions: bool,
    /// The first shown plot, if not all fit.
    pub(super) first_plot: usize,
    /// The number of lines of the log, or of the queues, that are scrolled past.
    pub(super) scroll_offset: usize,
    pub(super) dialog: Option<Dialog>,
    /// `true` if the terminal is too small to show anything.
    pub(super) is_too_small: bool,
    /// The result of the last request.
    pub(super) notice: Option<Result<String, String>>,
    /// `true` if the server has answered.
    pub(super) has_snapshot: bool,
}

impl ScreenState {
    pub(super) fn new(by: Option<String>) -> Self {
        Self {
            by,
            status: ServerInfo::default(),
            players: Vec::new(),
            samples: VecDeque::new(),
            interval: 5,
            log: VecDeque::new(),
            panel: Panel::Players,
            selected_port: None,
            selected_peer: None,
            order: PlayerOrder::Id,
            is_reversed: false,
            are_sessions_by_players: false,
            shows_queues: false,
            is_all_sessions: true,
            first_plot: 0,
            scroll_offset: 0,
            dialog: None,
            is_too_small: false,
            notice: None,
            has_snapshot: false,
        }
    }

    /// Applies a new snapshot. If its session is no longer selected, only the server's status is applied.
    pub(super) fn apply_snapshot(&mut self, snapshot: TopSnapshot) -> LoopAction {
        self.has_snapshot = true;
        self.status = snapshot.status;
        self.sort_sessions();
        if self.selected_port.is_some_and(|port| port != snapshot.port) {
            return LoopAction::Continue;
        }
        self.selected_port = Some(snapshot.port);
        self.players = snapshot.players;
        self.sort_players();
        if snapshot.has_all_samples {
            self.samples.clear();
        }
        self.interval = snapshot.interval;
        self.samples.extend(snapshot.samples);
        let surplus = self.samples.len().saturating_sub(MAX_SAMPLES);
        self.samples.drain(..surplus);
        LoopAction::Continue
    }

    /// Appends lines of the log.
    pub(super) fn append_log(&mut self, events: &[Value]) -> LoopAction {
        self.log.extend(events.iter().map(LogLine::read));
        let surplus = self.log.len().saturating_sub(MAX_LOG_LINES);
        self.log.drain(..surplus);
        // Keeps older lines in view while the user reads them.
        if self.panel == Panel::Bottom && !self.shows_queues && self.scroll_offset > 0 {
            self.scroll_offset = (self.scroll_offset + events.len()).min(self.log.len());
        }
        LoopAction::Continue
    }

    /// Shows the result of a request.
    pub(super) fn set_notice(&mut self, outcome: Result<String, String>) -> LoopAction {
        self.notice = Some(outcome);
        LoopAction::Continue
    }

    pub(super) fn sort_players(&mut self) {
        let (order, is_reversed) = (self.order, self.is_reversed);
        self.players.sort_by(|a, b| {
            let compared = order.compare(a, b).then(a.peer.cmp(&b.peer));
            if is_reversed { compared.reverse() } else { compared }
        });
        if self.selected_player().is_none() {
            self.selected_peer = self.players.first().map(|player| player.peer);
        }
    }

    pub(super) fn sort_sessions(&mut self) {
        let is_by_players = self.are_sessions_by_players;
        self.status.sessions.sort_by(|a, b| {
            let more = if is_by_players { b.players.cmp(&a.players) } else { Ordering::Equal };
            more.then(a.port.cmp(&b.port))
        });
    }

    /// Returns the selected player, if it is still there.
    pub(super) fn selected_player(&self) -> Option<&PlayerInfo> {
        self.players.iter().find(|player| Some(player.peer) == self.selected_peer)
    }

    /// Returns the selected session.
    pub(super) fn selected_session(&self) -> Option<&SessionInfo> {
        self.status.sessions.iter().find(|session| Some(session.port) == self.selected_port)
    }
}

/// The number of samples of one hour.
const MAX_SAMPLES: usize = 720;
const MAX_LOG_LINES: usize = 1_000;
