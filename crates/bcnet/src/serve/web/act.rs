//! What operators do: their forms become requests to the control plane, as those of `bcnet ctl`.

use bcnet_control::{Envelope, Refusal, Request};
use bcnet_session::Network;
use serde_json::Value;

use super::form::{Form, encode};
use super::picture::everyone;
use crate::answers::Player;
use crate::config::Value as _;
use crate::serve::control_plane::ControlPlane;

/// What came of a form, and which page shows it.
pub(super) struct Done {
    pub(super) outcome: Result<String, Refusal>,
    pub(super) place: String,
    pub(super) place_if_refused: String,
}

/// A request, and where it leads.
struct Wish {
    session: Option<String>,
    request: Request,
    place: String,
}

/// Does what a form says, in the name of `by`.
pub(super) fn act(plane: &ControlPlane, by: &str, form: &Form) -> Done {
    let place_if_refused = back(form);
    let outcome = wish(plane, form).and_then(|Wish { session, request, place }| {
        let answer = plane.dispatch(Envelope { session, by: Some(by.to_owned()), request })?;
        Ok((told(&answer), place))
    });
    match outcome {
        Ok((text, place)) => Done { outcome: Ok(text), place, place_if_refused },
        Err(Refusal(why)) => {
            // There are many settings on one page.
            let why = if form.get("key").is_empty() { why } else { format!("{}: {why}", form.get("key")) };
            Done { outcome: Err(Refusal(why)), place: "/".into(), place_if_refused }
        }
    }
}

/// Returns what an answer says was done.
fn told(answer: &Value) -> String {
    answer.get("done").and_then(Value::as_str).unwrap_or("done").to_owned()
}

/// Returns the page that a form is on. Only pages that there are can be named.
fn back(form: &Form) -> String {
    let (port, peer) = (form.number::<u16>("session"), form.number::<u8>("player"));
    match (form.get("action"), port, peer) {
        ("ban", Some(port), Some(peer)) => format!("/ban/{port}/{peer}"),
        ("ban_address", ..) => format!("/ban?target={}", encode(form.get("target").trim())),
        ("unban" | "allow" | "disallow", ..) => "/bans".into(),
        ("set" | "reload", Some(port), _) => format!("/settings?session={port}"),
        ("set" | "reload", ..) => "/settings".into(),
        (_, Some(port), Some(peer)) => format!("/player/{port}/{peer}"),
        (_, Some(port), None) => format!("/session/{port}"),
        _ => "/".into(),
    }
}

fn wish(plane: &ControlPlane, form: &Form) -> Result<Wish, Refusal> {
    let session = form.number::<u16>("session");
    let here = back(form);
    let of = |request| Wish { session: session.map(|port| port.to_string()), request, place: here.clone() };
    let of_server = |request| Wish { session: None, request, place: here.clone() };
    let needs_session = || session.ok_or_else(|| Refusal("which session?".into()));
    match form.get("action") {
        "say" => Ok(of(Request::Say { to: None, text: vec![form.get("text").into()] })),
        "restart" => needs_session().map(|_| of(Request::Restart)),
        "start" => needs_session().map(|_| of(Request::Start)),
        // Without a session it would be the end of the server.
        "stop" => needs_session().map(|_| of(Request::Stop)),
        "ban_address" => {
            let target = form.get("target").trim();
            let network = Network::from_text(target).map_err(Refusal)?;
            check_seen(form, within(&everyone(plane)?, network))?;
            let (expiry, reason) = (form.text("expiry"), form.text("reason"));
            let request = Request::Ban { target: target.into(), expiry, reason, yes: true };
            Ok(Wish { session: None, request, place: "/bans".into() })
        }
        "unban" => Ok(of_server(Request::Unban { target: form.get("target").trim().into() })),
        "allow" => Ok(of(Request::Whitelist { add: form.text("target"), remove: None, save: save(form) })),
        "disallow" => Ok(of(Request::Whitelist { add: None, remove: form.text("target"), save: save(form) })),
        "set" => {
            let key = form.get("key");
            // Nothing else has settings that take effect without a restart, and where hooks lead is for the file alone.
            if !["server.", "log.", "session."].iter().any(|table| key.starts_with(table)) {
                return Err(Refusal("that is set in the configuration only".into()));
            }
            // A browser has no files of the machine read.
            if key.ends_with(".manifests") {
                return Err(Refusal("files are named in the configuration, or by `bcnet ctl set`".into()));
            }
            Ok(of_server(Request::Set { key: key.into(), value: value(form), save: save(form) }))
        }
        "reload" => Ok(of_server(Request::Reload)),
        _ => about_player(plane, form),
    }
}

/// Returns whether a change is to be written into the configuration file, too.
fn save(form: &Form) -> bool {
    form.get("save") == "on"
}

/// Returns a value as the configuration has it; browsers end lines in their own way.
fn value(form: &Form) -> String {
    form.get("value").replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

/// What is done to one player, who must still be the one that the form is about: ids are given again.
fn about_player(plane: &ControlPlane, form: &Form) -> Result<Wish, Refusal> {
    let (Some(port), Some(peer)) = (form.number::<u16>("session"), form.number::<u8>("player")) else {
        return Err(Refusal("which player?".into()));
    };
    let here = back(form);
    let everyone = everyone(plane)?;
    let is_meant = |one: &&Player| one.port == port && one.peer == peer && one.name.0 == form.get("name");
    let Some(meant) = everyone.iter().find(is_meant) else {
        return Err(Refusal(format!("{} has left", form.get("name"))));
    };
    let player = format!("#{peer}");
    let (request, place) = match form.get("action") {
        "tell" => (Request::Say { to: Some(player), text: vec![form.get("text").into()] }, here),
        "kick" => (Request::Kick { player, reason: form.text("reason") }, format!("/session/{port}")),
        "mute" => (Request::Mute { player }, here),
        "unmute" => (Request::Unmute { player }, here),
        "ban" => {
            check_seen(form, behind(&everyone, meant))?;
            let (expiry, reason) = (form.text("expiry"), form.text("reason"));
            (Request::Ban { target: player, expiry, reason, yes: true }, "/bans".into())
        }
        _ => return Err(Refusal("nothing is called so".into())),
    };
    Ok(Wish { session: Some(port.to_string()), request, place })
}

/// Whoever bans an address has seen who plays from there.
fn check_seen<'a>(form: &Form, there: impl Iterator<Item = &'a Player>) -> Result<(), Refusal> {
    if form.get("others") == others(there) {
        return Ok(());
    }
    Err(Refusal("others play from that address now than when you looked; look again".into()))
}

/// Returns who else plays from the address of a player.
pub(super) fn behind<'a>(everyone: &'a [Player], meant: &'a Player) -> impl Iterator<Item = &'a Player> {
    let is_other = move |one: &&Player| (one.port, one.peer) != (meant.port, meant.peer);
    everyone.iter().filter(is_other).filter(move |one| one.ip() == meant.ip())
}

/// Returns who plays from a network.
pub(super) fn within(everyone: &[Player], network: Network) -> impl Iterator<Item = &Player> {
    everyone.iter().filter(move |one| one.ip().parse().is_ok_and(|address| network.contains(address)))
}

/// Returns who they were, for the form that is about them.
pub(super) fn others<'a>(there: impl Iterator<Item = &'a Player>) -> String {
    let mut others: Vec<_> = there.map(|one| format!("{}#{}", one.port, one.peer)).collect();
    others.sort_unstable();
    others.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_leads_back_to_a_page_that_there_is() {
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
            assert_eq!(back(&Form::parse(form)), place, "{form}");
        }
    }
}
