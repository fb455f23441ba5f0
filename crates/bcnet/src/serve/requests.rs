//! What `bcnet ctl` asks of the sessions, answered as JSON.

use std::time::Duration;

use bcnet_session::{Player, PlayerState};
use bcnet_transport::Time;
use bcnet_transport::wire::{BootReason, PeerId};
use serde_json::{Value, json};

use super::game_loop::GameLoop;
use super::session_host::SessionHost;
use crate::control::{Envelope, Refusal, Request};

impl GameLoop {
    /// Does what is asked. What needs files is not asked of the game.
    pub(super) fn answer(&mut self, envelope: &Envelope, now: Time) -> Result<Value, Refusal> {
        let hosts = self.select(envelope.session.as_deref())?;
        match &envelope.request {
            Request::Players => Ok(json!({ "players": self.players(&hosts, now, |_| true) })),
            Request::Say { to, text } => self.say(&hosts, to.as_deref(), &text.join(" "), now),
            Request::Kick { player } => self.kick(&hosts, player, now),
            Request::Search { text } => Ok(self.search(&hosts, text, now)),
            Request::Restart => {
                for &index in &hosts {
                    self.hosts[index].session.restart(now);
                }
                let begin = if hosts.len() == 1 { "begins" } else { "begin" };
                Ok(json!({ "done": format!("{} {begin} the next round", sessions(hosts.len())) }))
            }
            Request::Status => Ok(self.status(&hosts, now)),
            Request::Queues { player } => self.queues(&hosts, player.as_deref(), now),
            Request::Stop => {
                self.stop(now);
                Ok(json!({ "done": "the server says goodbye and ends" }))
            }
            Request::Ban { .. } | Request::Unban { .. } | Request::Bans | Request::Reload => {
                Err(Refusal("not for the game".into()))
            }
        }
    }

    /// A player of a session, or of any.
    pub(super) fn find_in(&self, session: Option<&str>, player: &str, now: Time) -> Result<Player, Refusal> {
        self.find(&self.select(session)?, player, now).map(|(_, player)| player)
    }

    /// The player with a name or a peer id; `#` before a number says that it is the id, whatever players call themselves.
    fn find(&self, hosts: &[usize], player: &str, now: Time) -> Result<(usize, Player), Refusal> {
        let marked: Option<u8> = player.strip_prefix('#').and_then(|id| id.parse().ok());
        let id = marked.or_else(|| player.parse().ok()).map(PeerId);
        let is_meant =
            |one: &Player| Some(one.id) == id || (marked.is_none() && one.name.eq_ignore_ascii_case(player));
        let all = hosts
            .iter()
            .flat_map(|&index| self.hosts[index].session.players(now).map(move |one| (index, one)));
        let mut found: Vec<_> = all.filter(|(_, one)| is_meant(one)).collect();
        match found.len() {
            0 => Err(Refusal(format!("no player {player}; `bcnet ctl players` lists them"))),
            1 => Ok(found.remove(0)),
            _ => Err(self.ambiguous(player, &found)),
        }
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

    fn select(&self, session: Option<&str>) -> Result<Vec<usize>, Refusal> {
        let Some(wanted) = session else { return Ok((0..self.hosts.len()).collect()) };
        let fits = |host: &SessionHost| {
            host.address.port().to_string() == wanted
                || host.session.config().name.eq_ignore_ascii_case(wanted)
        };
        let found: Vec<usize> =
            self.hosts.iter().enumerate().filter(|(_, host)| fits(host)).map(|(index, _)| index).collect();
        if found.is_empty() {
            return Err(Refusal(format!("no session {wanted}; `bcnet ctl status` lists names and ports")));
        }
        Ok(found)
    }

    fn players(&self, hosts: &[usize], now: Time, wanted: impl Fn(&Player) -> bool) -> Vec<Value> {
        let mut list = Vec::new();
        for host in hosts.iter().map(|&index| &self.hosts[index]) {
            list.extend(host.session.players(now).filter(&wanted).map(|one| describe(host, &one, now)));
        }
        list
    }

    fn say(&mut self, hosts: &[usize], to: Option<&str>, text: &str, now: Time) -> Result<Value, Refusal> {
        if text.trim().is_empty() {
            return Err(Refusal("there is nothing to say".into()));
        }
        let Some(player) = to else {
            for &index in hosts {
                let host = &mut self.hosts[index];
                tracing::info!(event = "say", port = host.address.port(), text);
                host.session.say(text, now);
            }
            return Ok(json!({ "done": format!("said in {}", sessions(hosts.len())) }));
        };
        let (index, player) = self.find(hosts, player, now)?;
        let host = &mut self.hosts[index];
        if host.session.say_to(player.id, text, now) {
            tracing::info!(event = "say", port = host.address.port(), to = player.name, text);
            Ok(json!({ "done": format!("said to {}", player.name) }))
        } else {
            Err(Refusal(format!("{} is not in the game yet", player.name)))
        }
    }

    fn kick(&mut self, hosts: &[usize], player: &str, now: Time) -> Result<Value, Refusal> {
        let (index, player) = self.find(hosts, player, now)?;
        let host = &mut self.hosts[index];
        if !host.session.kick(player.id, BootReason::KICKED, now) {
            return Err(Refusal(format!("{} is leaving already", player.name)));
        }
        let port = host.address.port();
        tracing::info!(event = "kicked", port, peer = player.id.0, player = player.name, address = %player.address);
        Ok(json!({ "done": format!("{} is out", player.name), "address": player.address.to_string() }))
    }

    fn search(&self, hosts: &[usize], text: &str, now: Time) -> Value {
        let text = text.to_lowercase();
        let has = |name: &str, address: &str| name.to_lowercase().contains(&text) || address.contains(&text);
        let players = self.players(hosts, now, |one| has(&one.name, &one.address.to_string()));
        let mut left = Vec::new();
        for host in hosts.iter().map(|&index| &self.hosts[index]) {
            let found =
                host.event_log.leavers.iter().filter(|leaver| has(&leaver.name, &leaver.address.to_string()));
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

    fn status(&self, hosts: &[usize], now: Time) -> Value {
        let sessions: Vec<_> = hosts.iter().map(|&index| status(&self.hosts[index], now)).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": now.since(Time::ZERO).as_secs(),
            "capture_left_out": self.recorder.as_ref().map(|recorder| recorder.left_out()),
            "sessions": sessions,
        })
    }

    fn queues(&self, hosts: &[usize], player: Option<&str>, now: Time) -> Result<Value, Refusal> {
        let players: Vec<(usize, PeerId)> = match player {
            Some(player) => self.find(hosts, player, now).map(|(index, player)| vec![(index, player.id)])?,
            None => hosts
                .iter()
                .flat_map(|&index| self.hosts[index].session.players(now).map(move |one| (index, one.id)))
                .collect(),
        };
        let queues: Vec<_> = players
            .into_iter()
            .filter_map(|(index, peer)| {
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
        _ => "unknown".into(),
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
