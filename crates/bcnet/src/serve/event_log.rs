//! What a session tells becomes lines of the log, and is remembered for `bcnet ctl search` and `status`.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::{Event, Mismatch, Summary};
use bcnet_transport::{Leave, Time};
use serde_json::Value;

use super::describe::describe_participant;
use crate::log::LineLimit;

/// The log of one session.
#[derive(Debug)]
pub(super) struct EventLog {
    port: u16,
    /// The last ones to leave, the latest at the back.
    pub(super) leavers: VecDeque<Leaver>,
    /// The last ones whose files were not those of a manifest, the latest at the back.
    pub(super) misfits: VecDeque<Misfit>,
    lines: LineLimit,
    /// How many lines were left out since that was told.
    held_back: u64,
    /// How often it is told.
    floods: LineLimit,
}

/// A player who has left.
#[derive(Debug)]
pub(super) struct Leaver {
    pub(super) name: String,
    pub(super) address: SocketAddrV4,
    pub(super) reason: String,
    pub(super) at: Time,
}

/// A client whose files were not those of a manifest.
#[derive(Debug)]
pub(super) struct Misfit {
    pub(super) name: String,
    pub(super) address: SocketAddrV4,
    pub(super) mismatch: Mismatch,
    pub(super) at: Time,
}

/// Why a session tells its players goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goodbye {
    ServerEnds,
    /// The server may have others, which go on.
    GameClosed,
    GameFailed,
}

impl Goodbye {
    const fn words(self) -> &'static str {
        match self {
            Self::ServerEnds => "the server ends",
            Self::GameClosed => "this game was closed",
            Self::GameFailed => "this game has failed",
        }
    }
}

impl EventLog {
    pub(super) const fn new(port: u16) -> Self {
        let (lines, floods) = (LineLimit::new(LINES_AT_ONCE, LINE_EVERY), LineLimit::new(1, FLOOD_EVERY));
        Self { port, leavers: VecDeque::new(), misfits: VecDeque::new(), lines, held_back: 0, floods }
    }

    /// Writes an event down, if not too many are.
    pub(super) fn write(&mut self, event: Event, goodbye: Goodbye, now: Time) {
        if self.has_line(&event, now) {
            self.log(&event, goodbye);
        }
        match event {
            Event::Left { name, address, reason, .. } => {
                let leaver = Leaver { name, address, reason: why(reason, goodbye), at: now };
                if !leaver.name.is_empty() {
                    keep(&mut self.leavers, LEAVERS, leaver);
                }
            }
            Event::ChecksumMismatch { name, address, mismatch, .. } => {
                keep(&mut self.misfits, MISFITS, Misfit { name, address, mismatch, at: now });
            }
            // The line says all that there is to remember.
            Event::Joining { .. }
            | Event::Joined { .. }
            | Event::InGame { .. }
            | Event::Chat { .. }
            | Event::Refused { .. }
            | Event::ManifestLearned { .. }
            | Event::Anomaly { .. }
            | Event::RoundStarted { .. }
            | Event::RoundEnded { .. }
            | Event::MasterSeen { .. }
            | Event::MasterLost { .. } => {}
        }
    }

    /// Returns whether there is a line for an event. There always is for a player who goes, whatever else happens.
    fn has_line(&mut self, event: &Event, now: Time) -> bool {
        if matches!(event, Event::Left { name, .. } if !name.is_empty()) {
            return true;
        }
        let passed = self.lines.pass(now);
        self.held_back += passed.unwrap_or_default();
        if let Some(held_back) = self.flood(now) {
            tracing::warn!(event = "log_flood", port = self.port, held_back);
        }
        passed.is_some()
    }

    /// Returns how many lines were left out, if that is to be told now. Told each time, it would be half of the log.
    fn flood(&mut self, now: Time) -> Option<u64> {
        let is_due = self.held_back > 0 && self.floods.pass(now).is_some();
        is_due.then(|| mem::take(&mut self.held_back))
    }

    fn log(&self, event: &Event, goodbye: Goodbye) {
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
                let reason = why(*reason, goodbye);
                tracing::info!(event = name, port, peer = peer.0, player, %address, reason);
            }
            Event::Chat { peer, name: player, text, team } => {
                tracing::info!(event = name, port, peer = peer.0, player, team, text);
            }
            Event::Refused { from, reason } => {
                let reason = reason.to_string();
                tracing::info!(event = name, port, address = %from, reason);
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
                let Summary { round, system, duration, reason, players } = summary;
                let (seconds, reason) = (duration.as_secs(), reason.to_string());
                let players = Value::from_iter(players.iter().map(describe_participant));
                // Lines of JSON have it as a list.
                tracing::info!(event = name, port, round, %system, seconds, reason, %players);
            }
            Event::MasterSeen { master } => tracing::info!(event = name, port, %master),
            Event::MasterLost { master } => {
                tracing::warn!(event = name, port, %master, "players may not find this server in its list");
            }
            Event::ManifestLearned { peer, .. } => tracing::info!(event = name, port, peer = peer.0),
        }
    }
}

/// The oldest gives way.
fn keep<T>(list: &mut VecDeque<T>, most: usize, latest: T) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(latest);
}

/// Returns why a player has left. All are gone when the session itself leaves.
pub(super) fn why(reason: Leave, goodbye: Goodbye) -> String {
    if reason == Leave::Local { goodbye.words().into() } else { reason.to_string() }
}

/// Who left is remembered as long as this many have not left since.
const LEAVERS: usize = 200;
/// The same of those whose files did not fit.
const MISFITS: usize = 16;
/// As many lines at once, and after that one in this time.
const LINES_AT_ONCE: u32 = 200;
const LINE_EVERY: Duration = Duration::from_millis(20);
const FLOOD_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bcnet_transport::wire::PeerId;

    use super::*;

    #[test]
    fn a_flood_of_lines_leaves_no_departure_out() {
        let mut log = EventLog::new(22101);
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 22101);
        let left =
            |name: &str| Event::Left { peer: PeerId(2), name: name.into(), address, reason: Leave::Silent };
        let joining = Event::Joining { peer: PeerId(2), address };
        let lines = (0..10_000).filter(|_| log.has_line(&joining, Time::ZERO)).count();
        assert_eq!(lines, usize::try_from(LINES_AT_ONCE).expect("few"));
        assert!(!log.has_line(&left(""), Time::ZERO), "who has no name was never a player");
        assert!((0..1_000).all(|_| log.has_line(&left("Cady"), Time::ZERO)));
        assert!(!log.has_line(&joining, Time::ZERO));
    }

    #[test]
    fn that_lines_were_left_out_is_told_once_a_second_with_all_of_them() {
        let mut log = EventLog::new(22101);
        let mut told = Vec::new();
        for _ in 0..40 {
            log.held_back += 10;
            told.extend(log.flood(Time::ZERO + LINE_EVERY));
        }
        let second = Time::ZERO + LINE_EVERY + FLOOD_EVERY;
        told.extend(log.flood(second));
        assert_eq!(told, [10, 390]);
        assert_eq!(log.flood(second + FLOOD_EVERY), None);
    }
}
