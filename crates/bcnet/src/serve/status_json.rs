//! Sessions, players and queues as JSON, for `bcnet ctl` and the operator page.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_observe::PeerQueues;
use bcnet_session::game::Species;
use bcnet_session::{ListServers, Participant, PlayerState, PlayerStatus, Refusals, Score};
use bcnet_transport::{Snapshot, Time};
use serde_json::{Map, Value, json};

use super::coalescing::Coalescing;
use super::event_log::MismatchedClient;
use super::requests::SessionQueues;
use super::session_host::{SessionHost, millis as precise_millis};

pub(super) fn queues_json(SessionQueues { session, port, .. }: &SessionQueues, snapshot: &Snapshot) -> Value {
    json!({
        "session": session,
        "port": port,
        "peer": snapshot.peer.0,
        "unacknowledged": snapshot.unacknowledged.len(),
        "acks": snapshot.pending_acks.len(),
        "fresh": snapshot.unsent,
        "queued_bytes": snapshot.queued_bytes,
        "in_flight": snapshot.in_flight,
        "budget": snapshot.congestion_window,
        "round_trip_ms": snapshot.rtt.map(rounded_millis),
        "timeout_ms": rounded_millis(snapshot.rto),
        "silent_s": snapshot.idle_for.as_secs(),
        "dump": PeerQueues::from(snapshot).to_string(),
    })
}

/// Returns one player of a round summary.
pub(super) fn participant_json(Participant { name, score, played }: &Participant) -> Value {
    let Score { points, kills, deaths } = score;
    json!({
        "name": name,
        "points": points,
        "kills": kills,
        "deaths": deaths,
        "seconds": played.as_secs(),
    })
}

pub(super) fn players_json(
    host: &SessionHost,
    now: Time,
    wanted: impl Fn(&PlayerStatus) -> bool,
) -> Vec<Value> {
    host.session.players().filter(wanted).map(|one| player_json(host, &one, now)).collect()
}

fn player_json(host: &SessionHost, player: &PlayerStatus, now: Time) -> Value {
    let state = match player.state {
        PlayerState::Connecting => "connecting".into(),
        PlayerState::Checking(round) => format!("checking {}/5", round + 1),
        PlayerState::Loading => "loading".into(),
        PlayerState::InGame if player.muted => "in game, muted".into(),
        PlayerState::InGame => "in game".into(),
        PlayerState::Refused => "refused".into(),
        PlayerState::KickPending => "kick pending".into(),
    };
    let (delay, round_trip) = (host.metrics.relay_delay(), host.metrics.rtt_of(player.id));
    let queues = host.session.snapshot(player.id, now);
    json!({
        "session": host.session.config().name,
        "port": host.address.port(),
        "peer": player.id.0,
        "slot": player.slot,
        "name": player.name,
        "address": player.address.to_string(),
        "state": state,
        "muted": player.muted,
        "ship": player.ship,
        "ship_name": player.ship.and_then(|ship| Species(ship).name()),
        "round_trip_ms": player.rtt.map(rounded_millis),
        "round_trip_p50_ms": round_trip.p50.map(rounded_millis),
        "round_trip_p99_ms": round_trip.p99.map(rounded_millis),
        "loss": host.metrics.loss_of(player.id).map(|loss| (loss * 1000.0).round() / 1000.0),
        "relay_p50_ms": delay.p50.map(precise_millis),
        "relay_p99_ms": delay.p99.map(precise_millis),
        "connected_s": now.since(player.joined_at).as_secs(),
        "kills": player.score.kills,
        "deaths": player.score.deaths,
        "score": player.score.points,
        "anomalies": player.anomalies.total(),
        "outdated": player.superseded,
        "unacknowledged": queues.as_ref().map_or(0, |queues| queues.unacknowledged.len()),
        "queued_bytes": queues.map_or(0, |queues| queues.queued_bytes),
    })
}

pub(super) fn session_json(host: &SessionHost, coalescing: &Coalescing, now: Time) -> Value {
    let status = host.session.status(now);
    let (delay, round_trip) = (host.metrics.relay_delay(), host.metrics.rtt());
    let per_second = host.metrics.bytes_per_second(host.socket_counters.wire_bytes(), now);
    let status = json!({
        "name": host.session.config().name,
        "port": host.address.port(),
        "address": host.address.ip().to_string(),
        "players": status.players,
        "in_game": status.in_game,
        "limit": status.player_limit,
        "round": status.round,
        "ended": status.ended,
        "system": status.system.name(),
        "state": host.state_name(),
        "game_time_s": status.game_time.as_secs(),
        "time_left_s": status.time_left.map(|left| left.as_secs()),
        "relay_p50_ms": delay.p50.map(precise_millis),
        "relay_p99_ms": delay.p99.map(precise_millis),
        "round_trip_p50_ms": round_trip.p50.map(rounded_millis),
        "round_trip_p99_ms": round_trip.p99.map(rounded_millis),
        "bytes_in_per_second": per_second.bytes_in,
        "bytes_out_per_second": per_second.bytes_out,
        "relaying_share": (coalescing.cpu_share() * 1000.0).round() / 1000.0,
        "cpu_budget": coalescing.limits.cpu_budget,
        "coalescing_ms": rounded_millis(coalescing.window()),
        "coalesce_min_ms": rounded_millis(coalescing.limits.min),
        "masters": status.masters.iter().map(|one| list_server_json(host, one)).collect::<Vec<_>>(),
        "mismatches": mismatches_json(host, now),
    });
    let parts = [status, counters_json(host)].into_iter().filter_map(|part| part.as_object().cloned());
    parts.flatten().collect()
}

/// Returns the cumulative counters of a session.
fn counters_json(host: &SessionHost) -> Value {
    let (traffic, counters) = (host.socket_counters, host.session.counters());
    json!({
        "datagrams_in": traffic.datagrams_in,
        "datagrams_out": traffic.datagrams_out,
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
        "oversized": traffic.oversized,
        "unsent": traffic.unsent,
        "overflowed": traffic.overflowed,
        "rejected": host.session.rejected().total(),
        "queries": counters.queries,
        "queries_answered": counters.queries_answered,
        "queries_limited": counters.queries_limited,
        "heartbeats": counters.heartbeats,
        "admitted": counters.admitted,
        "refused": counters.refused.total(),
        "refused_by_reason": refused_json(&counters.refused),
        "ignored": counters.ignored,
        "messages_in": counters.messages_in,
        "relayed": counters.relayed,
        "outdated": counters.superseded,
        "waited": counters.queued,
        "left_out": counters.not_queued,
        "uplink_dropped": counters.uplink_dropped,
        "anomalies": counters.anomalies.total(),
    })
}

/// Returns the number of refusals for each reason that occurred.
fn refused_json(refused: &Refusals) -> Value {
    let occurred = refused.by_reason().filter(|(_, count)| *count > 0);
    occurred.map(|(reason, count)| (reason.to_string(), count.into())).collect::<Map<_, _>>().into()
}

fn list_server_json(host: &SessionHost, (master, seen): &(SocketAddrV4, Option<Duration>)) -> Value {
    let state = match seen {
        None => "never answered",
        Some(ago) if *ago >= ListServers::LOST_AFTER => "lost",
        Some(_) => "listed",
    };
    json!({
        "session": host.session.config().name,
        "address": master.to_string(),
        "state": state,
        "seen_s": seen.map(|ago| ago.as_secs()),
    })
}

/// Returns the clients with mismatched files, the latest first.
fn mismatches_json(host: &SessionHost, now: Time) -> Vec<Value> {
    let show = |client: &MismatchedClient| {
        json!({
            "session": host.session.config().name,
            "name": client.name,
            "address": client.address.to_string(),
            "round": client.mismatch.round,
            "entry": client.mismatch.entry,
            "difference": client.mismatch.kind.to_string(),
            "ago_s": now.since(client.at).as_secs(),
        })
    };
    host.event_log.mismatched.iter().rev().map(show).collect()
}

fn rounded_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}
