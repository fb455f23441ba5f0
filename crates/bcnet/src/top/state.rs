//! What is shown, and what of it is picked.

use std::cmp::Ordering;
use std::collections::VecDeque;

use serde_json::Value;

use super::keys::{Dialog, Step};
use super::log_line::LogLine;
use super::picture::Picture;
use crate::answers::{Player, Sample, Session, Status};

/// The part of the screen that the keys move in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Panel {
    Sessions,
    Players,
    /// The log, or the queues of a player in its place.
    Below,
}

/// By what players are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Id,
    Name,
    RoundTrip,
    Loss,
    Queue,
    Time,
    Score,
}

impl Order {
    pub(super) const ALL: [Self; 7] =
        [Self::Id, Self::Name, Self::RoundTrip, Self::Loss, Self::Queue, Self::Time, Self::Score];

    fn compare(self, a: &Player, b: &Player) -> Ordering {
        let number = |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        match self {
            Self::Id => Ordering::Equal,
            Self::Name => a.name.0.to_lowercase().cmp(&b.name.0.to_lowercase()),
            Self::RoundTrip => number(a.round_trip_p50_ms, b.round_trip_p50_ms),
            Self::Loss => number(a.loss, b.loss),
            Self::Queue => b.queues.waiting().cmp(&a.queues.waiting()),
            Self::Time => b.connected_s.cmp(&a.connected_s),
            Self::Score => b.score.cmp(&a.score),
        }
    }
}

/// Everything that the screen depends on.
pub(super) struct State {
    /// Who decides, for the history of the server.
    pub(super) by: Option<String>,
    pub(super) status: Status,
    pub(super) players: Vec<Player>,
    pub(super) samples: VecDeque<Sample>,
    /// The seconds between two of them.
    pub(super) interval: u64,
    pub(super) log: VecDeque<LogLine>,
    pub(super) panel: Panel,
    /// The picked session, by its port.
    pub(super) port: Option<u16>,
    /// The picked player, by its peer id.
    pub(super) peer: Option<u8>,
    pub(super) order: Order,
    pub(super) is_reversed: bool,
    /// The sessions with the most players come first.
    pub(super) is_by_players: bool,
    /// The queues of the picked player are shown instead of plots and log.
    pub(super) is_detailed: bool,
    /// The plots are of all sessions.
    pub(super) is_whole: bool,
    /// The first plot, where not all fit.
    pub(super) first_plot: usize,
    /// How many lines of the log, or of the queues, are scrolled past.
    pub(super) scrolled: usize,
    pub(super) dialog: Option<Dialog>,
    /// The terminal is too small to show anything.
    pub(super) is_hidden: bool,
    /// What became of what was asked for last.
    pub(super) notice: Option<Result<String, String>>,
    /// Something was heard of the server.
    pub(super) is_known: bool,
}

impl State {
    pub(super) fn new(by: Option<String>) -> Self {
        Self {
            by,
            status: Status::default(),
            players: Vec::new(),
            samples: VecDeque::new(),
            interval: 5,
            log: VecDeque::new(),
            panel: Panel::Players,
            port: None,
            peer: None,
            order: Order::Id,
            is_reversed: false,
            is_by_players: false,
            is_detailed: false,
            is_whole: true,
            first_plot: 0,
            scrolled: 0,
            dialog: None,
            is_hidden: false,
            notice: None,
            is_known: false,
        }
    }

    /// Takes a new picture over, unless it is of a session that is no longer looked at.
    pub(super) fn take(&mut self, picture: Picture) -> Step {
        self.is_known = true;
        self.status = picture.status;
        self.sort_sessions();
        if self.port.is_some_and(|port| port != picture.port) {
            return Step::Stay;
        }
        self.port = Some(picture.port);
        self.players = picture.players;
        self.sort();
        if picture.are_all {
            self.samples.clear();
        }
        self.interval = picture.interval;
        self.samples.extend(picture.samples);
        let surplus = self.samples.len().saturating_sub(MAX_SAMPLES);
        self.samples.drain(..surplus);
        Step::Stay
    }

    /// Takes lines of the log over.
    pub(super) fn log(&mut self, events: &[Value]) -> Step {
        self.log.extend(events.iter().map(LogLine::read));
        let surplus = self.log.len().saturating_sub(MAX_LINES);
        self.log.drain(..surplus);
        // Whoever reads older lines goes on reading them.
        if self.panel == Panel::Below && !self.is_detailed && self.scrolled > 0 {
            self.scrolled = (self.scrolled + events.len()).min(self.log.len());
        }
        Step::Stay
    }

    /// Something that was asked for is done, or was refused.
    pub(super) fn tell(&mut self, outcome: Result<String, String>) -> Step {
        self.notice = Some(outcome);
        Step::Stay
    }

    pub(super) fn sort(&mut self) {
        let (order, is_reversed) = (self.order, self.is_reversed);
        self.players.sort_by(|a, b| {
            let compared = order.compare(a, b).then(a.peer.cmp(&b.peer));
            if is_reversed { compared.reverse() } else { compared }
        });
        if self.player().is_none() {
            self.peer = self.players.first().map(|player| player.peer);
        }
    }

    pub(super) fn sort_sessions(&mut self) {
        let is_by_players = self.is_by_players;
        self.status.sessions.sort_by(|a, b| {
            let more = if is_by_players { b.players.cmp(&a.players) } else { Ordering::Equal };
            more.then(a.port.cmp(&b.port))
        });
    }

    /// Returns the picked player, if it is there.
    pub(super) fn player(&self) -> Option<&Player> {
        self.players.iter().find(|player| Some(player.peer) == self.peer)
    }

    /// Returns the picked session.
    pub(super) fn session(&self) -> Option<&Session> {
        self.status.sessions.iter().find(|session| Some(session.port) == self.port)
    }
}

/// Those of an hour.
const MAX_SAMPLES: usize = 720;
const MAX_LINES: usize = 1_000;
