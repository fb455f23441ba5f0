//! What operators do: their forms become requests to the control plane, as those of `bcnet ctl`.

use bcnet_control::{Envelope, Request, RequestError};
use bcnet_session::Network;
use serde_json::Value;

use super::form::{FormData, percent_encode};
use super::snapshot::all_players;
use crate::config::ConfigValue as _;
use crate::serve::control_plane::ControlPlane;
use crate::server_info::PlayerInfo;

/// What came of a form, and which page shows it.
pub(super) struct ActionResult {
    pub(super) result: Result<String, RequestError>,
    pub(super) redirect: String,
    pub(super) redirect_if_refused: String,
}

/// A request, and where it leads.
struct ActionRequest {
    session: Option<String>,
    request: Request,
    redirect: String,
}

/// Does what a form says, in the name of `by`.
pub(super) fn perform(plane: &ControlPlane, by: &str, form: &FormData) -> ActionResult {
    let place_if_refused = page_of_form(form);
    let outcome =
        parse_action(plane, form).and_then(|ActionRequest { session, request, redirect: place }| {
            let answer = plane.dispatch(Envelope { session, by: Some(by.to_owned()), request })?;
            Ok((done_text(&answer), place))
        });
    match outcome {
        Ok((text, place)) => {
            ActionResult { result: Ok(text), redirect: place, redirect_if_refused: place_if_refused }
        }
        Err(RequestError(why)) => {
            // There are many settings on one page.
            let why = if form.get("key").is_empty() { why } else { format!("{}: {why}", form.get("key")) };
            ActionResult {
                result: Err(RequestError(why)),
                redirect: "/".into(),
                redirect_if_refused: place_if_refused,
            }
        }
    }
}

/// Returns what an answer says was done.
fn done_text(answer: &Value) -> String {
    answer.get("done").and_then(Value::as_str).unwrap_or("done").to_owned()
}

/// Returns the page that a form is on. Only pages that there are can be named.
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
    let needs_session = || session.ok_or_else(|| RequestError("which session?".into()));
    match form.get("action") {
        "say" => Ok(for_session(Request::Say { to: None, text: vec![form.get("text").into()] })),
        "restart" => needs_session().map(|_| for_session(Request::Restart)),
        "start" => needs_session().map(|_| for_session(Request::Start)),
        // Without a session it would be the end of the server.
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
            // Nothing else has settings that take effect without a restart, and where hooks lead is for the file alone.
            if !["server.", "log.", "session."].iter().any(|table| key.starts_with(table)) {
                return Err(RequestError("that is set in the configuration only".into()));
            }
            // A browser has no files of the machine read.
            if key.ends_with(".manifests") {
                return Err(RequestError(
                    "files are named in the configuration, or by `bcnet ctl set`".into(),
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

/// Returns whether a change is to be written into the configuration file, too.
fn wants_save(form: &FormData) -> bool {
    form.get("save") == "on"
}

/// Returns a value as the configuration has it; browsers end lines in their own way.
fn setting_value(form: &FormData) -> String {
    form.get("value").replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

/// What is done to one player, who must still be the one that the form is about: ids are given again.
fn parse_player_action(plane: &ControlPlane, form: &FormData) -> Result<ActionRequest, RequestError> {
    let (Some(port), Some(peer)) = (form.number::<u16>("session"), form.number::<u8>("player")) else {
        return Err(RequestError("which player?".into()));
    };
    let here = page_of_form(form);
    let everyone = all_players(plane)?;
    let is_meant = |one: &&PlayerInfo| one.port == port && one.peer == peer && one.name.0 == form.get("name");
    let Some(meant) = everyone.iter().find(is_meant) else {
        return Err(RequestError(format!("{} has left", form.get("name"))));
    };
    let player = format!("#{peer}");
    let (request, place) = match form.get("action") {
        "tell" => (Request::Say { to: Some(player), text: vec![form.get("text").into()] }, here),
        "kick" => (Request::Kick { player, reason: form.non_empty("reason") }, format!("/session/{port}")),
        "mute" => (Request::Mute { player }, here),
        "unmute" => (Request::Unmute { player }, here),
        "ban" => {
            check_listed_players(form, others_at_address(&everyone, meant))?;
            let (expiry, reason) = (form.non_empty("expiry"), form.non_empty("reason"));
            (Request::Ban { target: player, expiry, reason, yes: true }, "/bans".into())
        }
        _ => return Err(RequestError("nothing is called so".into())),
    };
    Ok(ActionRequest { session: Some(port.to_string()), request, redirect: place })
}

/// Whoever bans an address has seen who plays from there.
fn check_listed_players<'a>(
    form: &FormData,
    there: impl Iterator<Item = &'a PlayerInfo>,
) -> Result<(), RequestError> {
    if form.get("others") == encode_player_list(there) {
        return Ok(());
    }
    Err(RequestError("others play from that address now than when you looked; look again".into()))
}

/// Returns who else plays from the address of a player.
pub(super) fn others_at_address<'a>(
    everyone: &'a [PlayerInfo],
    meant: &'a PlayerInfo,
) -> impl Iterator<Item = &'a PlayerInfo> {
    let is_other = move |one: &&PlayerInfo| (one.port, one.peer) != (meant.port, meant.peer);
    everyone.iter().filter(is_other).filter(move |one| one.ip() == meant.ip())
}

/// Returns who plays from a network.
pub(super) fn players_in_network(
    everyone: &[PlayerInfo],
    network: Network,
) -> impl Iterator<Item = &PlayerInfo> {
    everyone.iter().filter(move |one| one.ip().parse().is_ok_and(|address| network.contains(address)))
}

/// Returns who they were, for the form that is about them.
pub(super) fn encode_player_list<'a>(there: impl Iterator<Item = &'a PlayerInfo>) -> String {
    let mut others: Vec<_> = there.map(|one| format!("{}#{}", one.port, one.peer)).collect();
    others.sort_unstable();
    others.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_redirects_to_an_existing_page() {
        for (form, place) in [
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
            assert_eq!(page_of_form(&FormData::parse(form)), place, "{form}");
        }
    }
}
