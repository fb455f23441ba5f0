//! The page of one player: values, actions and queues.

use bcnet_control::{Request, RequestError};
use maud::{Markup, html};

use super::format::{bytes, duration, millis, percent, ship};
use super::layout::{Layout, action_form, tile};
use crate::serve::web::logins::Operator;
use crate::serve::web::site::{RequestContext, Site};
use crate::serve::web::snapshot::{WebSnapshot, query};
use crate::server_info::{PlayerInfo, PlayerQueues, parse_list};

pub(super) fn page(
    site: &Site,
    snapshot: &WebSnapshot,
    context: &RequestContext,
    port: &str,
    peer: &str,
) -> Option<Layout> {
    let player = snapshot.player(port.parse().ok()?, peer.parse().ok()?)?;
    let main = html! {
        p { "In " a href=(format!("/session/{}", player.port)) { (player.session) } }
        section id="figures" data-live="" aria-label="Figures" { (status_tiles(player, context.operator.is_some())) }
        @if let Some(operator) = &context.operator {
            (action_forms(operator, player))
            h2 { "Queues" }
            section id="queues" data-live="" { (queues_section(site, player)) }
        }
    };
    Some(Layout { title: display_name(player).into(), menu_entry: "", main })
}

/// Returns the name of a player, or a placeholder.
pub(super) fn display_name(player: &PlayerInfo) -> &str {
    if player.name.0.is_empty() { "(no name yet)" } else { &player.name.0 }
}

fn status_tiles(one: &PlayerInfo, is_operator: bool) -> Markup {
    let pair = |p50, p99| format!("{} / {} ms", millis(p50), millis(p99));
    html! {
        dl.tiles {
            (tile("State", &one.state.0))
            (tile("Peer id", one.peer))
            @if let Some(slot) = one.slot { (tile("Slot", slot)) }
            @if is_operator { (tile("Address", html! { (one.ip()) ":" wbr; (one.address.0.rsplit(':').next().unwrap_or_default()) })) }
            (tile("Ship", ship(one)))
            (tile("Connected for", duration(one.connected_s)))
            (tile("Round-trip time now", format!("{} ms", millis(one.round_trip_ms))))
            (tile("Round-trip time p50 / p99", pair(one.round_trip_p50_ms, one.round_trip_p99_ms)))
            (tile("Relay delay p50 / p99", pair(one.relay_p50_ms, one.relay_p99_ms)))
            (tile("Loss", format!("{} %", percent(one.loss))))
            (tile("Unacknowledged messages", one.unacknowledged))
            (tile("Queued to send", bytes(one.queued_bytes)))
            (tile("Updates superseded", one.outdated))
            (tile("Kills / deaths / score", format!("{} / {} / {}", one.kills, one.deaths, one.score)))
            (tile("Anomalies", one.anomalies))
        }
    }
}

/// Returns the form fields that identify the player and the action.
pub(super) fn player_fields<'a>(
    action: &'a str,
    port: &'a str,
    peer: &'a str,
    name: &'a str,
) -> [(&'a str, &'a str); 4] {
    [("action", action), ("session", port), ("player", peer), ("name", name)]
}

fn action_forms(operator: &Operator, player: &PlayerInfo) -> Markup {
    let (port, peer, name) = (player.port.to_string(), player.peer.to_string(), player.name.0.as_str());
    let mute = if player.muted {
        ("unmute", "Unmute this player")
    } else {
        ("mute", "Mute: hide this player's chat")
    };
    html! {
        h2 { "Actions" }
        (action_form(operator, "tell", &player_fields("tell", &port, &peer, name), html! {
            label { "Message to this player only" input name="text" required maxlength="200" autocomplete="off"; }
            button type="submit" { "Send" }
        }))
        (action_form(operator, "kick", &player_fields("kick", &port, &peer, name), html! {
            label { "Reason, shown to the player (optional)" input name="reason" maxlength="200" autocomplete="off"; }
            button.danger type="submit" { "Kick" }
        }))
        (action_form(operator, mute.0, &player_fields(mute.0, &port, &peer, name), html! { button type="submit" { (mute.1) } }))
        p { a id="ban-link" href=(format!("/ban/{port}/{peer}")) { "Ban the address of this player …" } }
    }
}

fn queues_section(site: &Site, player: &PlayerInfo) -> Markup {
    let request = Request::Queues { player: Some(format!("#{}", player.peer)) };
    let answer = query(&site.plane, Some(player.port), request);
    let queues = answer.and_then(|answer| parse_list::<PlayerQueues>(answer, "queues").map_err(RequestError));
    match queues.as_deref() {
        Ok([queues, ..]) => html! {
            @for line in queues.summary_lines() { p.dim { (line) } }
            pre tabindex="0" aria-label="Queue dump" id="dump" { (queues.dump) }
        },
        Ok([]) => html! { p { "The session has no queues of this player." } },
        Err(RequestError(reason)) => html! { p { (reason) } },
    }
}
