//! What `bcnet ctl` asks of the sessions, answered as JSON.

use std::time::Duration;

use bcnet_session::{Player, PlayerState};
use bcnet_transport::Time;
use bcnet_transport::wire::{BootReason, PeerId};
use serde_json::{Value, json};

use super::coalescing::Coalescing;
use super::session_group::SessionGroup;
use super::session_host::SessionHost;
use crate::control::Refusal;

/// The sessions that a request is about, at least one.
pub(super) struct Chosen<'a> {
    hosts: Vec<&'a mut SessionHost>,
    /// How many datagrams are not in the capture, if there is one.
    capture_left_out: Option<u64>,
    coalescing: &'a Coalescing,
}

impl SessionGroup {
    /// Returns the sessions with a name or port, or all of them.
    pub(super) fn choose(&mut self, session: Option<&str>) -> Result<Chosen<'_>, Refusal> {
        let fits = |host: &SessionHost| {
            session.is_none_or(|wanted| {
                host.address.port().to_string() == wanted
                    || host.session.config().name.eq_ignore_ascii_case(wanted)
            })
        };
        let capture_left_out = self.recorder.as_ref().map(|recorder| recorder.left_out());
        let hosts: Vec<_> = self.hosts.iter_mut().filter(|host| fits(host)).collect();
        match session {
            Some(wanted) if hosts.is_empty() => {
                Err(Refusal(format!("no session {wanted}; `bcnet ctl status` lists names and ports")))
            }
            _ => Ok(Chosen { hosts, capture_left_out, coalescing: &self.coalescing }),
        }
    }
}

impl Chosen<'_> {
    /// Returns the player with a name or a peer id; `#` before a number says that it is the id, whatever players call
    /// themselves.
    pub(super) fn find(&self, player: &str) -> Result<Player, Refusal> {
        self.find_in(player).map(|(_, player)| player)
    }

    /// Returns the same, with the number of its session.
    fn find_in(&self, player: &str) -> Result<(usize, Player), Refusal> {
        let marked: Option<u8> = player.strip_prefix('#').and_then(|id| id.parse().ok());
        let id = marked.or_else(|| player.parse().ok()).map(PeerId);
        let is_meant =
            |one: &Player| Some(one.id) == id || (marked.is_none() && one.name.eq_ignore_ascii_case(player));
        let mut found: Vec<_> = self.everyone().filter(|(_, one)| is_meant(one)).collect();
        match found.len() {
            0 => Err(Refusal(format!("no player {player}; `bcnet ctl players` lists them"))),
            1 => Ok(found.remove(0)),
            _ => Err(self.ambiguous(player, &found)),
        }
    }

    /// Returns all players, each with the number of its session.
    fn everyone(&self) -> impl Iterator<Item = (usize, Player)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.flat_map(move |(index, host)| host.session.players().map(move |one| (index, one)))
    }

    /// Names some of those whom `player` may mean.
    fn ambiguous(&self, player: &str, found: &[(usize, Player)]) -> Refusal {
        let show = |(index, one): &(usize, Player)| {
            format!("'#{}' ({}, port {})", one.id.0, one.name, self.hosts[*index].address.port())
        };
        let shown: Vec<_> = found.iter().take(MAX_SHOWN).map(show).collect();
        let (shown, more) = (shown.join(", "), if found.len() > MAX_SHOWN { ", …" } else { "" });
        let meant = format!("{player} may mean {shown}{more}");
        Refusal(format!("{meant}; say which by the peer id after #, and by --session"))
    }

    pub(super) fn players(&self, now: Time) -> Value {
        json!({ "players": self.describe_all(now, |_| true) })
    }

    fn describe_all(&self, now: Time, wanted: impl Fn(&Player) -> bool) -> Vec<Value> {
        let all = self.everyone().filter(|(_, one)| wanted(one));
        all.map(|(index, one)| describe(self.hosts[index], &one, now)).collect()
    }

    pub(super) fn say(&mut self, to: Option<&str>, text: &str, now: Time) -> Result<Value, Refusal> {
        if text.trim().is_empty() {
            return Err(Refusal("there is nothing to say".into()));
        }
        let Some(player) = to else {
            for host in &mut self.hosts {
                tracing::info!(event = "say", port = host.address.port(), text);
                host.session.say(text, now);
            }
            return Ok(json!({ "done": format!("said in {}", sessions(self.hosts.len())) }));
        };
        let (index, player) = self.find_in(player)?;
        let host = &mut self.hosts[index];
        if host.session.say_to(player.id, text, now) {
            tracing::info!(event = "say", port = host.address.port(), to = player.name, text);
            Ok(json!({ "done": format!("said to {}", player.name) }))
        } else {
            Err(Refusal(format!("{} is not in the game yet", player.name)))
        }
    }

    pub(super) fn kick(&mut self, player: &str, now: Time) -> Result<Value, Refusal> {
        let (index, player) = self.find_in(player)?;
        let host = &mut self.hosts[index];
        if !host.session.kick(player.id, BootReason::KICKED, now) {
            return Err(Refusal(format!("{} is leaving already", player.name)));
        }
        let port = host.address.port();
        tracing::info!(event = "kicked", port, peer = player.id.0, player = player.name, address = %player.address);
        Ok(json!({ "done": format!("{} is out", player.name), "address": player.address.to_string() }))
    }

    pub(super) fn search(&self, text: &str, now: Time) -> Value {
        let text = text.to_lowercase();
        let has = |name: &str, address: &str| name.to_lowercase().contains(&text) || address.contains(&text);
        let players = self.describe_all(now, |one| has(&one.name, &one.address.to_string()));
        let mut left = Vec::new();
        for host in &self.hosts {
            let leavers = host.event_log.leavers.iter();
            let found = leavers.filter(|leaver| has(&leaver.name, &leaver.address.to_string()));
            left.extend(found.rev().map(|leaver| {
                json!({
                    "session": host.session.config().name,
                    "port": host.address.port(),
                    "name": leaver.name,
                    "address": leaver.address.to_string(),
                    "reason": leaver.reason,
                    "ago_s": now.since(leaver.at).as_secs(),
                })
            }));
        }
        json!({ "players": players, "left": left })
    }

    pub(super) fn restart(&mut self, now: Time) -> Value {
        for host in &mut self.hosts {
            host.session.restart(now);
        }
        let begin = if self.hosts.len() == 1 { "begins" } else { "begin" };
        json!({ "done": format!("{} {begin} the next round", sessions(self.hosts.len())) })
    }

    pub(super) fn status(&self, now: Time) -> Value {
        let sessions: Vec<_> = self.hosts.iter().map(|host| status(host, now)).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": now.since(Time::ZERO).as_secs(),
            "capture_left_out": self.capture_left_out,
            "relaying_share": (self.coalescing.share() * 1000.0).round() / 1000.0,
            "cpu_budget": self.coalescing.limits.budget,
            "coalescing_ms": millis(self.coalescing.window()),
            "sessions": sessions,
        })
    }

    pub(super) fn queues(&self, player: Option<&str>, now: Time) -> Result<Value, Refusal> {
        let players: Vec<(usize, Player)> = match player {
            Some(player) => vec![self.find_in(player)?],
            None => self.everyone().collect(),
        };
        let queues: Vec<_> = players
            .into_iter()
            .filter_map(|(index, Player { id: peer, .. })| {
                let host = &self.hosts[index];
                let snapshot = host.session.snapshot(peer, now)?;
                Some(json!({
                    "session": host.session.config().name,
                    "port": host.address.port(),
                    "peer": peer.0,
                    "unacknowledged": snapshot.unacknowledged.len(),
                    "acks": snapshot.acks.len(),
                    "fresh": snapshot.fresh,
                    "queued_bytes": snapshot.queued_bytes,
                    "in_flight": snapshot.in_flight,
                    "budget": snapshot.budget,
                    "round_trip_ms": snapshot.round_trip.map(millis),
                    "timeout_ms": millis(snapshot.timeout),
                    "silent_s": snapshot.silent_for.as_secs(),
                    "dump": snapshot.to_string(),
                }))
            })
            .collect();
        Ok(json!({ "queues": queues }))
    }
}

fn describe(host: &SessionHost, player: &Player, now: Time) -> Value {
    let state = match player.state {
        PlayerState::Connecting => "connecting".into(),
        PlayerState::Checking(round) => format!("checking {}/5", round + 1),
        PlayerState::Loading => "loading".into(),
        PlayerState::InGame => "in game".into(),
        PlayerState::Refused => "refused".into(),
    };
    json!({
        "session": host.session.config().name,
        "port": host.address.port(),
        "peer": player.id.0,
        "slot": player.slot,
        "name": player.name,
        "address": player.address.to_string(),
        "state": state,
        "round_trip_ms": player.round_trip.map(millis),
        "connected_s": now.since(player.joined).as_secs(),
        "kills": player.score.kills,
        "deaths": player.score.deaths,
        "score": player.score.points,
        "anomalies": player.anomalies.total(),
    })
}

fn status(host: &SessionHost, now: Time) -> Value {
    let (status, traffic) = (host.session.status(now), host.traffic);
    let counters = status.counters;
    json!({
        "name": host.session.config().name,
        "port": host.address.port(),
        "address": host.address.ip().to_string(),
        "players": status.players,
        "in_game": status.in_game,
        "limit": status.player_limit,
        "round": status.round,
        "ended": status.ended,
        "system": status.system.name(),
        "game_time_s": status.game_time.as_secs(),
        "time_left_s": status.time_left.map(|left| left.as_secs()),
        "datagrams_in": traffic.datagrams_in,
        "datagrams_out": traffic.datagrams_out,
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
        "oversized": traffic.oversized,
        "unsent": traffic.unsent,
        "rejected": host.session.rejected().total(),
        "queries": counters.queries,
        "queries_answered": counters.queries_answered,
        "queries_limited": counters.queries_limited,
        "heartbeats": counters.heartbeats,
        "admitted": counters.admitted,
        "refused": counters.refused,
        "ignored": counters.ignored,
        "messages_in": counters.messages_in,
        "relayed": counters.relayed,
        "anomalies": counters.anomalies.total(),
        "masters": status.masters.iter().map(|(master, seen)| json!({
            "address": master.to_string(),
            "seen_s": seen.map(|ago| ago.as_secs()),
        })).collect::<Vec<_>>(),
        "mismatches": host.event_log.misfits.iter().rev().map(|misfit| json!({
            "session": host.session.config().name,
            "name": misfit.name,
            "address": misfit.address.to_string(),
            "round": misfit.mismatch.round,
            "entry": misfit.mismatch.entry,
            "difference": misfit.mismatch.kind.to_string(),
            "ago_s": now.since(misfit.at).as_secs(),
        })).collect::<Vec<_>>(),
    })
}

fn sessions(count: usize) -> String {
    if count == 1 { "1 session".into() } else { format!("{count} sessions") }
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// How many players a line names.
const MAX_SHOWN: usize = 4;
