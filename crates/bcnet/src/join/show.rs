//! Formats events of the client as text and as JSON.

use std::fmt::Display;
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::Score;
use bcnet_session::client::{self, Client};
use bcnet_session::game::MissionInit;
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, is_printable};
use serde_json::{Value, json};

/// Returns a line for people, or `None` for an event that they need not see.
pub(super) fn text(event: &client::Event, client: &Client, server: SocketAddrV4) -> Option<String> {
    let name_of = |peer: PeerId| player_name(client, peer);
    let line = match event {
        client::Event::Settings(settings) => {
            format!("* {server} plays {}; this is slot {}", settings.mission, settings.slot)
        }
        client::Event::Mission(mission) => format!("* {}", describe_mission(mission)),
        client::Event::Entered => format!("* in the game as {} ({})", name_of(client.id()), client.id()),
        client::Event::Joined { peer, .. } => format!("* {} joined", name_of(*peer)),
        client::Event::Left { peer, name } => format!("* {} left", name_or_id(name, *peer)),
        client::Event::Disconnected { peer, name, reason, listed: true } => {
            format!("* {} left ({reason})", name_or_id(name, *peer))
        }
        client::Event::Chat { peer, text, team, .. } => {
            format!("{}<{}> {text}", if *team { "(team) " } else { "" }, name_of(*peer))
        }
        client::Event::Score { score, .. } if *score == Score::default() => return None,
        client::Event::Score { peer, score } => format!("* {}: {score}", name_of(*peer)),
        client::Event::TeamScore { team, score } => {
            format!("* team {team}: {} points, {} kills", score.points, score.kills)
        }
        client::Event::Died { victim, killer: None } => format!("* {} lost a ship", name_of(*victim)),
        client::Event::Died { victim, killer: Some(killer) } => {
            format!("* {} destroyed the ship of {}", name_of(*killer), name_of(*victim))
        }
        client::Event::RoundEnded { reason } => {
            format!("* the round is over: {}", name_or_number(reason.name(), "reason", reason.0))
        }
        client::Event::RoundStarted => "* the next round begins".into(),
        client::Event::ShipCreated(ship) => {
            format!(
                "* {} has a ship: {}",
                ship.peer.map_or_else(|| format!("slot {}", ship.slot), name_of),
                name_or_number(ship.species.name(), "species", ship.species.0)
            )
        }
        client::Event::ShipExploding { peer: Some(peer), .. } => {
            format!("* the ship of {} explodes", name_of(*peer))
        }
        client::Event::FilesDiffer { file } => format!("* files differ: {file}"),
        client::Event::Anomaly { kind: what, count } => {
            format!("* the server sent an invalid message: {what} ({count} so far)")
        }
        client::Event::Connected { .. }
        | client::Event::FileCheck(_)
        | client::Event::FilesPassed
        | client::Event::Load
        | client::Event::Named { .. }
        | client::Event::Disconnected { listed: false, .. }
        | client::Event::ShipExploding { peer: None, .. }
        | client::Event::ObjectDestroyed { .. }
        | client::Event::Received { .. }
        | client::Event::Gone { .. } => return None,
    };
    Some(strip_hidden_characters(&line))
}

fn describe_mission(mission: &MissionInit) -> String {
    let system = name_or_number(mission.system.name(), "system", mission.system.0);
    let time = mission.time_limit.0.map_or_else(String::new, |limit| format!(", {} minutes", limit.minutes));
    let frags = mission.frag_limit.0.map_or_else(String::new, |frags| format!(", {frags} kills"));
    format!("in {system}, {} players at most{time}{frags}", mission.player_limit)
}

/// Returns the name for a number if it is known, otherwise the kind and the number.
fn name_or_number(name: Option<&str>, kind: &str, number: impl Display) -> String {
    name.map_or_else(|| format!("{kind} {number}"), Into::into)
}

fn player_name(client: &Client, peer: PeerId) -> String {
    let known = client.players().find(|(id, _)| *id == peer);
    name_or_id(known.map_or("", |(_, player)| &player.name), peer)
}

fn name_or_id(name: &str, peer: PeerId) -> String {
    if name.is_empty() { peer.to_string() } else { name.into() }
}

/// Removes characters that move the cursor of a terminal or change the text direction.
fn strip_hidden_characters(text: &str) -> String {
    text.chars().filter(|c| is_printable(*c)).collect()
}

/// Returns an event as a JSON object, or `None` for a game message that the client does not decode.
pub(super) fn json(event: &client::Event, at: Time) -> Option<Value> {
    let mut value = match event {
        client::Event::Connected { id } => json!({"peer": id.0}),
        client::Event::FileCheck(check) => {
            json!({"round": check.index, "directory": check.directory, "filter": check.filter})
        }
        client::Event::FilesDiffer { file } => json!({"file": file}),
        client::Event::FilesPassed
        | client::Event::Load
        | client::Event::Entered
        | client::Event::RoundStarted => json!({}),
        client::Event::Settings(settings) => json!({
            "mission": settings.mission, "slot": settings.slot, "game_time": settings.game_time,
            "collisions": settings.collisions, "friendly_fire": settings.friendly_fire,
        }),
        client::Event::Mission(mission) => json!({
            "system": mission.system.0, "system_name": mission.system.name(),
            "player_limit": mission.player_limit, "frag_limit": mission.frag_limit.0,
            "time_limit": mission.time_limit.0.map(|limit| limit.minutes),
            "end_time": mission.time_limit.0.map(|limit| limit.end_time),
        }),
        client::Event::Named { peer, name }
        | client::Event::Joined { peer, name }
        | client::Event::Left { peer, name } => {
            json!({"peer": peer.0, "name": name})
        }
        client::Event::Disconnected { peer, name, reason, listed } => {
            json!({"peer": peer.0, "name": name, "reason": reason.to_string(), "listed": listed})
        }
        client::Event::Chat { peer, name, text, team } => {
            json!({"peer": peer.0, "name": name, "text": text, "team": team})
        }
        client::Event::Score { peer, score } => {
            json!({"peer": peer.0, "kills": score.kills, "deaths": score.deaths, "points": score.points})
        }
        client::Event::TeamScore { team, score } => {
            json!({"team_number": team, "kills": score.kills, "points": score.points})
        }
        client::Event::Died { victim, killer } => {
            json!({"victim": victim.0, "killer": killer.map(|peer| peer.0)})
        }
        client::Event::RoundEnded { reason } => json!({"reason": reason.0, "reason_name": reason.name()}),
        client::Event::ShipCreated(ship) => json!({
            "peer": ship.peer.map(|peer| peer.0), "slot": ship.slot, "object": ship.object.0, "species": ship.species.0,
            "species_name": ship.species.name(),
        }),
        client::Event::ShipExploding { object, peer } | client::Event::ObjectDestroyed { object, peer } => {
            json!({"object": object.0, "peer": peer.map(|peer| peer.0)})
        }
        client::Event::Anomaly { kind: what, count } => json!({"what": what.to_string(), "count": count}),
        client::Event::Gone { state: step, reason: end } => {
            json!({"step": step.name(), "reason": end.to_string()})
        }
        client::Event::Received { .. } => return None,
    };
    let fields = value.as_object_mut()?;
    fields.shift_insert(0, "ms".into(), json!(millis(at.since(Time::ZERO))));
    fields.shift_insert(1, "event".into(), json!(event.name()));
    Some(value)
}

/// Returns a time in milliseconds, rounded to microseconds.
pub(super) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
