//! Writes the events of a session to the log.
//!
//! Also keeps a list of departed players and one of clients with mismatched files, for `bcnet ctl search` and
//! `bcnet ctl status`.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::{Event, Mismatch, RoundSummary};
use bcnet_transport::{LeaveReason, Time};
use serde_json::Value;

use super::status_json::participant_json;
use crate::log::LogRateLimiter;

/// The log of one session.
#[derive(Debug)]
pub(super) struct EventLog {
    port: u16,
    /// The players who left most recently, the latest at the back.
    pub(super) departed: VecDeque<DepartedPlayer>,
    /// The clients with mismatched files (no manifest matches), the latest at the back.
    pub(super) mismatched: VecDeque<MismatchedClient>,
    log_limiter: LogRateLimiter,
    /// Lines left out since the last `log_flood` line.
    held_back: u64,
    /// Limits the `log_flood` lines themselves.
    flood_limiter: LogRateLimiter,
}

/// A player who has left.
#[derive(Debug)]
pub(super) struct DepartedPlayer {
    pub(super) name: String,
    pub(super) address: SocketAddrV4,
    pub(super) reason: String,
    pub(super) at: Time,
}

/// A client whose files match no manifest.
#[derive(Debug)]
pub(super) struct MismatchedClient {
    pub(super) name: String,
    pub(super) address: SocketAddrV4,
    pub(super) mismatch: Mismatch,
    pub(super) at: Time,
}

/// The reason why a session disconnects all its players.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownReason {
    ServerStopped,
    /// Only this session stops; other sessions of the server continue.
    SessionStopped,
    SessionFailed,
}

impl ShutdownReason {
    const fn text(self) -> &'static str {
        match self {
            Self::ServerStopped => "the server was stopped",
            Self::SessionStopped => "this game was closed",
            Self::SessionFailed => "this game has failed",
        }
    }
}

impl EventLog {
    pub(super) const fn new(port: u16) -> Self {
        let (log_limiter, flood_limiter) =
            (LogRateLimiter::new(LOG_BURST, LOG_INTERVAL), LogRateLimiter::new(1, FLOOD_LOG_INTERVAL));
        Self {
            port,
            departed: VecDeque::new(),
            mismatched: VecDeque::new(),
            log_limiter,
            held_back: 0,
            flood_limiter,
        }
    }

    /// Logs an event unless the rate limit is exceeded. Remembers departures and mismatched files.
    pub(super) fn record(&mut self, event: Event, shutdown_reason: ShutdownReason, now: Time) {
        if self.allows_line(&event, now) {
            self.log(&event, shutdown_reason);
        }
        match event {
            Event::Left { name, address, reason, .. } => {
                let departed =
                    DepartedPlayer { name, address, reason: leave_reason(reason, shutdown_reason), at: now };
                if !departed.name.is_empty() {
                    push_bounded(&mut self.departed, MAX_DEPARTED, departed);
                }
            }
            Event::ChecksumMismatch { name, address, mismatch, .. } => {
                push_bounded(
                    &mut self.mismatched,
                    MAX_MISMATCHED,
                    MismatchedClient { name, address, mismatch, at: now },
                );
            }
            // These events are only logged.
            Event::Joining { .. }
            | Event::Joined { .. }
            | Event::InGame { .. }
            | Event::Chat { .. }
            | Event::Game { .. }
            | Event::Refused { .. }
            | Event::ManifestLearned { .. }
            | Event::Anomaly { .. }
            | Event::RoundStarted { .. }
            | Event::RoundEnded { .. }
            | Event::MasterSeen { .. }
            | Event::MasterLost { .. } => {}
        }
    }

    /// Returns whether the rate limit allows a line for this event.
    ///
    /// The departure of a named player is always logged.
    fn allows_line(&mut self, event: &Event, now: Time) -> bool {
        if matches!(event, Event::Left { name, .. } if !name.is_empty()) {
            return true;
        }
        let passed = self.log_limiter.allow(now);
        self.held_back += passed.unwrap_or_default();
        if let Some(held_back) = self.take_flood_count(now) {
            tracing::warn!(event = "log_flood", port = self.port, held_back);
        }
        passed.is_some()
    }

    /// Returns the number of left-out lines if a `log_flood` line is due.
    ///
    /// At most one `log_flood` line is due per second. Without this limit, each logged line of a flood would follow
    /// a `log_flood` line, and these would fill half of the log.
    fn take_flood_count(&mut self, now: Time) -> Option<u64> {
        let is_due = self.held_back > 0 && self.flood_limiter.allow(now).is_some();
        is_due.then(|| mem::take(&mut self.held_back))
    }

    fn log(&self, event: &Event, shutdown_reason: ShutdownReason) {
        let (port, name) = (self.port, event.name());
        match event {
            Event::Joining { peer, address } => {
                tracing::info!(event = name, port, peer = peer.0, %address);
            }
            Event::Joined { peer, name: player, address, slot } => {
                tracing::info!(event = name, port, peer = peer.0, slot, player, %address);
            }
            Event::InGame { peer, name: player } => {
                tracing::info!(event = name, port, peer = peer.0, player);
            }
            Event::Left { peer, name: player, address, reason } => {
                let reason = leave_reason(*reason, shutdown_reason);
                tracing::info!(event = name, port, peer = peer.0, player, %address, reason);
            }
            Event::Chat { peer, name: player, text, team } => {
                tracing::info!(event = name, port, peer = peer.0, player, team, text);
            }
            Event::Refused { from, refusal } => {
                let (reason, setting) = (refusal.name(), refusal.setting());
                tracing::info!(event = name, port, address = %from, reason, setting);
            }
            Event::ChecksumMismatch { peer, name: player, address, mismatch } => {
                let mismatch = mismatch.to_string();
                tracing::warn!(event = name, port, peer = peer.0, player, %address, mismatch);
            }
            Event::Anomaly { peer, kind, count } => {
                let kind = kind.to_string();
                tracing::warn!(event = name, port, peer = peer.0, kind, count);
            }
            Event::RoundStarted { round, system } => {
                tracing::info!(event = name, port, round, %system);
            }
            Event::RoundEnded { summary } => {
                let RoundSummary { round, system, duration, reason, players } = summary;
                let (seconds, reason) = (duration.as_secs(), reason.to_string());
                let players = Value::from_iter(players.iter().map(participant_json));
                // `players` is logged as JSON text. The JSON format of the log converts the text to a list.
                tracing::info!(event = name, port, round, %system, seconds, reason, %players);
            }
            Event::MasterSeen { master } => tracing::info!(event = name, port, %master),
            Event::MasterLost { master } => {
                tracing::warn!(event = name, port, %master, "the list server does not answer; players may not find this server in its list");
            }
            // The server does not ask for these events.
            Event::Game { .. } => {}
            Event::ManifestLearned { peer, .. } => tracing::info!(event = name, port, peer = peer.0),
        }
    }
}

/// Appends an item. Drops the oldest item if the list is full.
fn push_bounded<T>(list: &mut VecDeque<T>, max: usize, latest: T) {
    if list.len() == max {
        list.pop_front();
    }
    list.push_back(latest);
}

/// Returns the reason for a departure as text.
///
/// If the session itself disconnected the player, the text is that of `shutdown_reason`.
pub(super) fn leave_reason(reason: LeaveReason, shutdown_reason: ShutdownReason) -> String {
    if reason == LeaveReason::Local { shutdown_reason.text().into() } else { reason.to_string() }
}

/// Departed players remembered for `bcnet ctl search`.
const MAX_DEPARTED: usize = 200;
/// Clients with mismatched files remembered for `bcnet ctl status`.
const MAX_MISMATCHED: usize = 16;
/// Lines in a burst. After a burst, one line is allowed in each `LOG_INTERVAL`.
const LOG_BURST: u32 = 200;
const LOG_INTERVAL: Duration = Duration::from_millis(20);
const FLOOD_LOG_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bcnet_transport::wire::PeerId;

    use super::*;

    #[test]
    fn departures_are_logged_even_in_a_flood() {
        let mut log = EventLog::new(22101);
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 22101);
        let left = |name: &str| Event::Left {
            peer: PeerId(2),
            name: name.into(),
            address,
            reason: LeaveReason::Silent,
        };
        let joining = Event::Joining { peer: PeerId(2), address };
        let lines = (0..10_000).filter(|_| log.allows_line(&joining, Time::ZERO)).count();
        assert_eq!(lines, usize::try_from(LOG_BURST).expect("fits in usize"));
        assert!(!log.allows_line(&left(""), Time::ZERO), "a peer without a name never became a player");
        assert!((0..1_000).all(|_| log.allows_line(&left("Cady"), Time::ZERO)));
        assert!(!log.allows_line(&joining, Time::ZERO));
    }

    #[test]
    fn left_out_lines_are_reported_once_a_second() {
        let mut log = EventLog::new(22101);
        let mut reported = Vec::new();
        for _ in 0..40 {
            log.held_back += 10;
            reported.extend(log.take_flood_count(Time::ZERO + LOG_INTERVAL));
        }
        let second = Time::ZERO + LOG_INTERVAL + FLOOD_LOG_INTERVAL;
        reported.extend(log.take_flood_count(second));
        assert_eq!(reported, [10, 390]);
        assert_eq!(log.take_flood_count(second + FLOOD_LOG_INTERVAL), None);
    }
}
