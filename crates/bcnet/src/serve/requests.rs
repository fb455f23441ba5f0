//! Requests of `bcnet ctl` that concern sessions, answered as JSON.

use bcnet_control::RequestError;
use bcnet_session::PlayerStatus;
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Snapshot, Time};
use serde_json::{Value, json};

use super::coalescing::Coalescing;
use super::session_host::{SessionHost, StartTime};
use super::status_json::{players_json, queues_json, session_json};
use super::workers::Workers;
use crate::number_format::pluralize;

/// The sessions that a request applies to.
pub(super) struct SelectedSessions<'a> {
    workers: &'a Workers,
    /// The name or port of one session; `None` selects all sessions.
    session: Option<String>,
}

/// A player, with the number and port of its session.
pub(super) struct FoundPlayer {
    session: usize,
    port: u16,
    pub(super) player: PlayerStatus,
}

impl FoundPlayer {
    /// Returns whether both are the same player.
    pub(super) fn is_same_player(&self, other: &Self) -> bool {
        (self.session, self.player.id) == (other.session, other.player.id)
    }
}

impl<'a> SelectedSessions<'a> {
    pub(super) const fn new(workers: &'a Workers, session: Option<String>) -> Self {
        Self { workers, session }
    }

    /// Returns whether all sessions are selected.
    pub(super) const fn is_all(&self) -> bool {
        self.session.is_none()
    }

    /// Returns the numbers of the sessions.
    pub(super) fn session_numbers(&self) -> Result<Vec<usize>, RequestError> {
        self.map_sessions(|host, _| host.number)
    }

    /// Calls `question` for each selected session and returns the answers in the order of the sessions.
    ///
    /// # Errors
    ///
    /// Fails if no session matches.
    pub(super) fn map_sessions<T: Send + 'static>(
        &self,
        question: impl Fn(&mut SessionHost, Time) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, RequestError> {
        self.map_sessions_with(move |host, _, now| question(host, now))
    }

    /// Calls `question` for each selected session, with the coalescing state of its thread.
    ///
    /// Otherwise like [`map_sessions`](Self::map_sessions).
    pub(super) fn map_sessions_with<T: Send + 'static>(
        &self,
        question: impl Fn(&mut SessionHost, &Coalescing, Time) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, RequestError> {
        let session = self.session.clone();
        let answers = self.workers.call_sessions(move |host, coalescing, now| {
            is_selected(host, session.as_deref()).then(|| question(host, coalescing, now))
        });
        if answers.is_empty() {
            return Err(RequestError("the server is stopping".into()));
        }
        let answers: Vec<T> = answers.into_iter().flatten().collect();
        match &self.session {
            Some(wanted) if answers.is_empty() && wanted.trim().is_empty() => Err(RequestError(
                "the name of the session is empty; `bcnet ctl status` lists names and ports".into(),
            )),
            Some(wanted) if answers.is_empty() => {
                Err(RequestError(format!("no session {wanted}; `bcnet ctl status` lists names and ports")))
            }
            _ => Ok(answers),
        }
    }

    /// Calls `act` in the session of the player, unless the player has left since.
    fn with_player<T: Send + 'static>(
        &self,
        found: &FoundPlayer,
        act: impl FnOnce(&mut SessionHost, Time) -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        let (id, address, name) = (found.player.id, found.player.address, &found.player.name);
        let done = self.workers.call_session(found.session, move |host, now| {
            let is_there = host.session.players().any(|one| one.id == id && one.address == address);
            is_there.then(|| act(host, now))
        });
        done.flatten().ok_or_else(|| RequestError(format!("{name} has left")))
    }

    /// Returns the player with this name or peer id. `#` before a number selects the peer id only.
    pub(super) fn find(&self, player: &str) -> Result<FoundPlayer, RequestError> {
        // Peers that are still joining have an empty name, and must not match an empty request.
        if player.trim().is_empty() {
            return Err(RequestError(
                "the name of the player is empty; `bcnet ctl players` lists all players".into(),
            ));
        }
        let marked: Option<u8> = player.strip_prefix('#').and_then(|id| id.parse().ok());
        let id = marked.or_else(|| player.parse().ok()).map(PeerId);
        let wanted = player.to_owned();
        let mut found = self.find_all(move |one| {
            Some(one.id) == id || (marked.is_none() && one.name.eq_ignore_ascii_case(&wanted))
        })?;
        match found.len() {
            0 => Err(RequestError(format!("no player {player}; `bcnet ctl players` lists all players"))),
            1 => Ok(found.remove(0)),
            _ => Err(ambiguous_player(player, &found)),
        }
    }

    /// Returns all players that match.
    pub(super) fn find_all(
        &self,
        is_wanted: impl Fn(&PlayerStatus) -> bool + Clone + Send + 'static,
    ) -> Result<Vec<FoundPlayer>, RequestError> {
        let found = self.map_sessions(move |host, _| {
            let (session, port) = (host.number, host.address.port());
            let found = host.session.players().filter(&is_wanted);
            found.map(|player| FoundPlayer { session, port, player }).collect::<Vec<_>>()
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns names and ports of some sessions, so that the operator sees which server answered.
    pub(super) fn server_name(&self) -> Result<String, RequestError> {
        let names = self.map_sessions(|host, _| {
            format!("{}, port {}", host.session.config().name, host.address.port())
        })?;
        let more = if names.len() > MAX_LISTED { "; …" } else { "" };
        Ok(names.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join("; ") + more)
    }

    pub(super) fn players(&self) -> Result<Value, RequestError> {
        let players = self.map_sessions(|host, now| players_json(host, now, |_| true))?;
        Ok(json!({ "players": players.concat() }))
    }

    pub(super) fn say(&self, to: Option<&str>, text: String) -> Result<Value, RequestError> {
        if text.trim().is_empty() {
            return Err(RequestError("the text is empty".into()));
        }
        let Some(player) = to else {
            let sessions = self.map_sessions(move |host, now| {
                tracing::info!(event = "say", port = host.address.port(), text);
                host.session.say(&text, now);
            })?;
            return Ok(json!({ "done": format!("sent to {}", pluralize(sessions.len(), "session")) }));
        };
        let found = self.find(player)?;
        let (id, name) = (found.player.id, found.player.name.clone());
        let is_sent = self.with_player(&found, move |host, now| {
            let is_sent = host.session.say_to(id, &text, now);
            if is_sent {
                tracing::info!(event = "say", port = host.address.port(), to = name, text);
            }
            is_sent
        })?;
        let name = found.player.name;
        if is_sent {
            Ok(json!({ "done": format!("sent to {name}") }))
        } else {
            Err(RequestError(format!("{name} is not in the game yet")))
        }
    }

    /// Kicks a player. A player who is in the game first gets the reason, if there is one.
    pub(super) fn kick(&self, player: &str, reason: Option<&str>) -> Result<Value, RequestError> {
        let found = self.find(player)?;
        let player = found.player.clone();
        let reason = reason.filter(|reason| !reason.trim().is_empty()).map(ToOwned::to_owned);
        let is_out = self.with_player(&found, move |host, now| {
            let kick = |reason: &String| host.session.kick_with_reason(player.id, reason, now);
            let has_reason = reason.as_ref().is_some_and(kick);
            let is_out = has_reason || host.session.kick(player.id, BootReason::KICKED, now);
            if is_out {
                let (port, peer, address) = (host.address.port(), player.id.0, player.address);
                tracing::info!(event = "kicked", port, peer, player = player.name, %address, reason);
            }
            is_out
        })?;
        let PlayerStatus { name, address, .. } = found.player;
        if is_out {
            Ok(json!({ "done": format!("kicked {name}"), "address": address.to_string() }))
        } else {
            Err(RequestError(format!("{name} is already leaving")))
        }
    }

    /// Mutes or unmutes a player.
    pub(super) fn mute(&self, player: &str, is_muted: bool) -> Result<Value, RequestError> {
        let found = self.find(player)?;
        let player = found.player.clone();
        let is_done = self.with_player(&found, move |host, _| {
            let is_done =
                if is_muted { host.session.mute(player.id) } else { host.session.unmute(player.id) };
            if is_done {
                let event = if is_muted { "muted" } else { "unmuted" };
                let (port, peer, address) = (host.address.port(), player.id.0, player.address);
                tracing::info!(event, port, peer, player = player.name, %address);
            }
            is_done
        })?;
        let name = found.player.name;
        match (is_done, is_muted) {
            (true, true) => Ok(json!({ "done": format!("muted {name}") })),
            (true, false) => Ok(json!({ "done": format!("unmuted {name}") })),
            (false, true) => Err(RequestError(format!("{name} has left"))),
            (false, false) => Err(RequestError(format!("{name} is not muted"))),
        }
    }

    /// Disconnects the players of the sessions. The sessions ignore all datagrams until they are started
    /// again.
    pub(super) fn stop(&self) -> Result<Value, RequestError> {
        let stopped = self.map_sessions(|host, now| host.stop(now))?;
        match stopped.iter().filter(|is_stopped| **is_stopped).count() {
            0 => Err(RequestError("the session is already stopped".into())),
            count => {
                let done = format!(
                    "stopped {}; `bcnet ctl start` opens the game again",
                    pluralize(count, "session")
                );
                Ok(json!({ "done": done, "server": self.server_name()? }))
            }
        }
    }

    /// Starts stopped sessions again, each as soon as its last player is disconnected.
    pub(super) fn start(&self) -> Result<Value, RequestError> {
        let begins = self.map_sessions(|host, now| host.start(now))?;
        let count = |when: StartTime| begins.iter().filter(|one| **one == Some(when)).count();
        let phrase = |count: usize, [one, more]: [&str; 2], what: &str| {
            let verb = if count == 1 { one } else { more };
            (count > 0).then(|| format!("{} {verb} {what}", pluralize(count, "session")))
        };
        let open = phrase(count(StartTime::Now), ["is", "are"], "open");
        let later = phrase(
            count(StartTime::AfterPlayersLeft),
            ["opens", "open"],
            "as soon as all players are disconnected",
        );
        let done: Vec<String> = open.into_iter().chain(later).collect();
        if done.is_empty() {
            return Err(RequestError("no session is stopped".into()));
        }
        Ok(json!({ "done": done.join(", "), "server": self.server_name()? }))
    }

    pub(super) fn search(&self, text: &str) -> Result<Value, RequestError> {
        let text = text.to_lowercase();
        let found = self.map_sessions(move |host, now| {
            let has =
                |name: &str, address: &str| name.to_lowercase().contains(&text) || address.contains(&text);
            let players = players_json(host, now, |one| has(&one.name, &one.address.to_string()));
            let leavers = host.event_log.departed.iter();
            let left = leavers.filter(|leaver| has(&leaver.name, &leaver.address.to_string()));
            let left = left.rev().map(|leaver| {
                json!({
                    "session": host.session.config().name,
                    "port": host.address.port(),
                    "name": leaver.name,
                    "address": leaver.address.to_string(),
                    "reason": leaver.reason,
                    "ago_s": now.since(leaver.at).as_secs(),
                })
            });
            (players, left.collect::<Vec<_>>())
        })?;
        let (players, left): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Ok(json!({ "players": players.concat(), "left": left.concat() }))
    }

    pub(super) fn restart(&self) -> Result<Value, RequestError> {
        let restarted = self.map_sessions(|host, now| host.session.restart(now))?.len();
        let begin = if restarted == 1 { "begins" } else { "begin" };
        let done = format!("{} {begin} the next round", pluralize(restarted, "session"));
        Ok(json!({ "done": done, "server": self.server_name()? }))
    }

    /// Makes the sessions panic, for tests.
    #[cfg(debug_assertions)]
    pub(super) fn panic(&self) -> Result<Value, RequestError> {
        for session in self.map_sessions(|host, _| host.number)? {
            self.workers.call_session::<()>(session, |_, _| panic!("panic requested by `bcnet ctl panic`"));
        }
        Ok(json!({ "done": "panicked" }))
    }

    /// Returns the status of the server and its sessions.
    ///
    /// `capture_left_out` is the number of datagrams missing from the capture, if there is one.
    pub(super) fn status(&self, capture_left_out: Option<u64>) -> Result<Value, RequestError> {
        let sessions = self.map_sessions_with(|host, coalescing, now| {
            // An idle session may not have taken a sample for a long time.
            host.sample_and_log(now);
            (session_json(host, coalescing, now), now)
        })?;
        let uptime = sessions.iter().map(|(_, now)| now.since(Time::ZERO)).max().unwrap_or_default();
        Ok(json!({
            "version": crate::VERSION,
            "uptime_s": uptime.as_secs(),
            "capture_left_out": capture_left_out,
            "sessions": sessions.into_iter().map(|(status, _)| status).collect::<Vec<_>>(),
        }))
    }

    pub(super) fn queues(&self, player: Option<&str>) -> Result<Value, RequestError> {
        let queues = match player {
            Some(player) => {
                let found = self.find(player)?;
                let id = found.player.id;
                vec![self.with_player(&found, move |host, now| session_queues(host, |peer| peer == id, now))?]
            }
            None => self.map_sessions(|host, now| session_queues(host, |_| true, now))?,
        };
        // Convert to JSON here, not in the worker thread, so that the game does not wait.
        let queues =
            queues.iter().flat_map(|waiting| waiting.peers.iter().map(|peer| queues_json(waiting, peer)));
        Ok(json!({ "queues": queues.collect::<Vec<_>>() }))
    }
}

/// Snapshots of the queues of the players of one session.
pub(super) struct SessionQueues {
    pub(super) session: String,
    pub(super) port: u16,
    peers: Vec<Snapshot>,
}

fn session_queues(host: &SessionHost, is_wanted: impl Fn(PeerId) -> bool, now: Time) -> SessionQueues {
    let ids = host.session.players().map(|player| player.id).filter(|id| is_wanted(*id));
    let peers = ids.filter_map(|id| host.session.snapshot(id, now)).collect();
    SessionQueues { session: host.session.config().name.clone(), port: host.address.port(), peers }
}

/// Returns whether a session has this name or port. `None` selects every session.
fn is_selected(host: &SessionHost, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| {
        host.address.port().to_string() == wanted || host.session.config().name.eq_ignore_ascii_case(wanted)
    })
}

/// Returns the error for a name that matches several players. The error lists some of them.
fn ambiguous_player(player: &str, found: &[FoundPlayer]) -> RequestError {
    let show = |FoundPlayer { port, player, .. }: &FoundPlayer| {
        format!("'#{}' ({}, port {port})", player.id.0, player.name)
    };
    let shown: Vec<_> = found.iter().take(MAX_LISTED).map(show).collect();
    let (shown, more) = (shown.join(", "), if found.len() > MAX_LISTED { ", …" } else { "" });
    let matches = format!("{player} matches several players: {shown}{more}");
    RequestError(format!("{matches}; pass # and the peer id, and --session"))
}

/// Players or sessions named in one message.
const MAX_LISTED: usize = 4;
