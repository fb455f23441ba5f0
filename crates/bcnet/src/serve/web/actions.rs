//! Converts the forms of operators to requests to the control plane, like those of `bcnet ctl`.

use bcnet_control::{Envelope, Request, RequestError};
use bcnet_session::Network;
use serde_json::Value;

use super::form::{FormData, percent_encode};
use super::snapshot::all_players;
use crate::config::ConfigValue as _;
use crate::serve::control_plane::ControlPlane;
use crate::server_info::PlayerInfo;

/// The result of a form, and the page that shows it.
pub(super) struct ActionResult {
    pub(super) result: Result<String, RequestError>,
    pub(super) redirect: String,
    pub(super) redirect_if_refused: String,
}

/// A request, and the page to show afterwards.
struct ActionRequest {
    session: Option<String>,
    request: Request,
    redirect: String,
}

/// Executes a form. `by` is the author in the history.
pub(super) fn perform(plane: &ControlPlane, by: &str, form: &FormData) -> ActionResult {
    let redirect_if_refused = page_of_form(form);
    let outcome = parse_action(plane, form).and_then(|ActionRequest { session, request, redirect }| {
        let answer = plane.dispatch(Envelope { session, by: Some(by.to_owned()), request })?;
        Ok((done_text(&answer), redirect))
    });
    match outcome {
        Ok((text, redirect)) => ActionResult { result: Ok(text), redirect, redirect_if_refused },
        Err(RequestError(reason)) => {
            // The page has many settings, so the error names the key.
            let reason =
                if form.get("key").is_empty() { reason } else { format!("{}: {reason}", form.get("key")) };
            ActionResult { result: Err(RequestError(reason)), redirect: "/".into(), redirect_if_refused }
        }
    }
}

/// Returns the `done` text of an answer.
fn done_text(answer: &Value) -> String {
    answer.get("done").and_then(Value::as_str).unwrap_or("done").to_owned()
}

/// Returns the page with this form. The result is always a page of this site.
fn page_of_form(form: &FormData) -> String {
    let (port, peer) = (form.number::<u16>("session"), form.number::<u8>("player"));
    match (form.get("action"), port, peer) {
        ("ban", Some(port), Some(peer)) => format!("/ban/{port}/{peer}"),
        ("ban_address", ..) => format!("/ban?target={}", percent_encode(form.get("target").trim())),
        ("unban" | "allow" | "disallow", ..) => "/bans".into(),
        ("set" | "reload", Some(port), _) => format!("/settings?session={port}"),
        ("set" | "reload", ..) => "/settings".into(),
        (_, Some(port), Some(peer)) => format!("/player/{port}/{peer}"),
        (_, Some(port), None) => format!("/session/{port}"),
        _ => "/".into(),
    }
}

fn parse_action(plane: &ControlPlane, form: &FormData) -> Result<ActionRequest, RequestError> {
    let session = form.number::<u16>("session");
    let here = page_of_form(form);
    let for_session = |request| ActionRequest {
        session: session.map(|port| port.to_string()),
        request,
        redirect: here.clone(),
    };
    let for_server = |request| ActionRequest { session: None, request, redirect: here.clone() };
    let needs_session =
        || session.ok_or_else(|| RequestError("no session is selected; choose a session".into()));
    match form.get("action") {
        "say" => Ok(for_session(Request::Say { to: None, text: vec![form.get("text").into()] })),
        "restart" => needs_session().map(|_| for_session(Request::Restart)),
        "start" => needs_session().map(|_| for_session(Request::Start)),
        // `stop` without a session would stop the server.
        "stop" => needs_session().map(|_| for_session(Request::Stop)),
        "ban_address" => {
            let target = form.get("target").trim();
            let network = Network::from_text(target).map_err(RequestError)?;
            check_listed_players(form, players_in_network(&all_players(plane)?, network))?;
            let (expiry, reason) = (form.non_empty("expiry"), form.non_empty("reason"));
            let request = Request::Ban { target: target.into(), expiry, reason, yes: true };
            Ok(ActionRequest { session: None, request, redirect: "/bans".into() })
        }
        "unban" => Ok(for_server(Request::Unban { target: form.get("target").trim().into() })),
        "allow" => Ok(for_session(Request::Whitelist {
            add: form.non_empty("target"),
            remove: None,
            save: wants_save(form),
        })),
        "disallow" => Ok(for_session(Request::Whitelist {
            add: None,
            remove: form.non_empty("target"),
            save: wants_save(form),
        })),
        "set" => {
            let key = form.get("key");
            // Other tables have no settings that take effect without a restart. Hooks are set only in the
            // file.
            if !["server.", "log.", "session."].iter().any(|table| key.starts_with(table)) {
                return Err(RequestError("this key can only be set in the configuration file".into()));
            }
            // A browser must not make the server read files of the machine.
            if key.ends_with(".manifests") {
                return Err(RequestError(
                    "manifest files can only be set in the configuration file or with `bcnet ctl set`".into(),
                ));
            }
            Ok(for_server(Request::Set {
                key: key.into(),
                value: setting_value(form),
                save: wants_save(form),
            }))
        }
        "reload" => Ok(for_server(Request::Reload)),
        _ => parse_player_action(plane, form),
    }
}

/// Returns whether the change is also written to the configuration file.
fn wants_save(form: &FormData) -> bool {
    form.get("save") == "on"
}

/// Returns the value with the line ends of the configuration, because browsers send CR LF.
fn setting_value(form: &FormData) -> String {
    form.get("value").replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

/// Parses an action on one player.
///
/// The name must match too: the id may belong to another player by now.
fn parse_player_action(plane: &ControlPlane, form: &FormData) -> Result<ActionRequest, RequestError> {
    let (Some(port), Some(peer)) = (form.number::<u16>("session"), form.number::<u8>("player")) else {
        return Err(RequestError("no player is selected; choose a player".into()));
    };
    let here = page_of_form(form);
    let everyone = all_players(plane)?;
    let is_target =
        |one: &&PlayerInfo| one.port == port && one.peer == peer && one.name.0 == form.get("name");
    let Some(target) = everyone.iter().find(is_target) else {
        return Err(RequestError(format!("{} has left", form.get("name"))));
    };
    let player = format!("#{peer}");
    let (request, redirect) = match form.get("action") {
        "tell" => (Request::Say { to: Some(player), text: vec![form.get("text").into()] }, here),
        "kick" => (Request::Kick { player, reason: form.non_empty("reason") }, format!("/session/{port}")),
        "mute" => (Request::Mute { player }, here),
        "unmute" => (Request::Unmute { player }, here),
        "ban" => {
            check_listed_players(form, others_at_address(&everyone, target))?;
            let (expiry, reason) = (form.non_empty("expiry"), form.non_empty("reason"));
            (Request::Ban { target: player, expiry, reason, yes: true }, "/bans".into())
        }
        _ => return Err(RequestError("the form has an unknown action; reload the page".into())),
    };
    Ok(ActionRequest { session: Some(port.to_string()), request, redirect })
}

/// Fails unless the form lists the players who now have the address: the operator must have seen them.
fn check_listed_players<'a>(
    form: &FormData,
    affected: impl Iterator<Item = &'a PlayerInfo>,
) -> Result<(), RequestError> {
    if form.get("others") == encode_player_list(affected) {
        return Ok(());
    }
    Err(RequestError("the players at that address have changed; check the list and confirm again".into()))
}

/// Returns the other players with the address of a player.
pub(super) fn others_at_address<'a>(
    everyone: &'a [PlayerInfo],
    player: &'a PlayerInfo,
) -> impl Iterator<Item = &'a PlayerInfo> {
    let is_other = move |one: &&PlayerInfo| (one.port, one.peer) != (player.port, player.peer);
    everyone.iter().filter(is_other).filter(move |one| one.ip() == player.ip())
}

/// Returns the players in a network.
pub(super) fn players_in_network(
    everyone: &[PlayerInfo],
    network: Network,
) -> impl Iterator<Item = &PlayerInfo> {
    everyone.iter().filter(move |one| one.ip().parse().is_ok_and(|address| network.contains(address)))
}

/// Returns a list of players for a hidden form field.
pub(super) fn encode_player_list<'a>(players: impl Iterator<Item = &'a PlayerInfo>) -> String {
    let mut others: Vec<_> = players.map(|one| format!("{}#{}", one.port, one.peer)).collect();
    others.sort_unstable();
    others.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_redirects_to_an_existing_page() {
        for (form, page) in [
            ("action=say", "/"),
            ("action=say&session=22101", "/session/22101"),
            ("action=kick&session=22101&player=3", "/player/22101/3"),
            ("action=ban&session=22101&player=3", "/ban/22101/3"),
            ("action=unban&target=192.0.2.1", "/bans"),
            ("action=ban_address&target=192.0.2.0/24%0d%0aX", "/ban?target=192%2e0%2e2%2e0%2f24%0d%0aX"),
            ("action=set&session=22101&key=session.1.welcome", "/settings?session=22101"),
            ("action=say&session=//evil.example", "/"),
            ("action=kick&session=22101&player=../..", "/session/22101"),
        ] {
            assert_eq!(page_of_form(&FormData::parse(form)), page, "{form}");
        }
    }
}
