//! One player, what waits for it, and what can be done about it.

use bcnet_control::{Refusal, Request};
use maud::{Markup, html};

use super::format::{bytes, duration, millis, percent, ship};
use super::layout::{Layout, act, tile};
use crate::answers::{Player, Queues, list};
use crate::serve::web::logins::Operator;
use crate::serve::web::picture::{Picture, ask};
use crate::serve::web::site::{Site, Visitor};

pub(super) fn page(
    site: &Site,
    picture: &Picture,
    visitor: &Visitor,
    port: &str,
    peer: &str,
) -> Option<Layout> {
    let player = picture.player(port.parse().ok()?, peer.parse().ok()?)?;
    let main = html! {
        p { "In " a href=(format!("/session/{}", player.port)) { (player.session) } }
        section id="figures" data-live="" aria-label="Figures" { (figures(player, visitor.operator.is_some())) }
        @if let Some(operator) = &visitor.operator {
            (actions(operator, player))
            h2 { "Queues" }
            section id="queues" data-live="" { (queues(site, player)) }
        }
    };
    Some(Layout { title: name(player).into(), current: "", main })
}

/// Returns what to call a player.
pub(super) fn name(player: &Player) -> &str {
    if player.name.0.is_empty() { "(no name yet)" } else { &player.name.0 }
}

fn figures(one: &Player, is_operator: bool) -> Markup {
    let pair = |p50, p99| format!("{} / {} ms", millis(p50), millis(p99));
    html! {
        dl.tiles {
            (tile("State", &one.state.0))
            (tile("Peer id", one.peer))
            @if let Some(slot) = one.slot { (tile("Slot", slot)) }
            @if is_operator { (tile("Address", html! { (one.ip()) ":" wbr; (one.address.0.rsplit(':').next().unwrap_or_default()) })) }
            (tile("Ship", ship(one)))
            (tile("Here for", duration(one.connected_s)))
            (tile("Round trip now", format!("{} ms", millis(one.round_trip_ms))))
            (tile("Round trip p50 / p99", pair(one.round_trip_p50_ms, one.round_trip_p99_ms)))
            (tile("Relay delay p50 / p99", pair(one.relay_p50_ms, one.relay_p99_ms)))
            (tile("Loss", format!("{} %", percent(one.loss))))
            (tile("Not confirmed", one.unacknowledged))
            (tile("Waits to be sent", bytes(one.queued_bytes)))
            (tile("Outdated before sent", one.outdated))
            (tile("Kills / deaths / score", format!("{} / {} / {}", one.kills, one.deaths, one.score)))
            (tile("Odd things", one.anomalies))
        }
    }
}

/// The fields that say which player a form is about.
pub(super) fn about<'a>(
    action: &'a str,
    port: &'a str,
    peer: &'a str,
    name: &'a str,
) -> [(&'a str, &'a str); 4] {
    [("action", action), ("session", port), ("player", peer), ("name", name)]
}

fn actions(operator: &Operator, player: &Player) -> Markup {
    let (port, peer, name) = (player.port.to_string(), player.peer.to_string(), player.name.0.as_str());
    let mute =
        if player.muted { ("unmute", "Let it chat again") } else { ("mute", "Mute: nobody hears its chat") };
    html! {
        h2 { "Actions" }
        (act(operator, "tell", &about("tell", &port, &peer, name), html! {
            label { "A word to this player alone" input name="text" required maxlength="200" autocomplete="off"; }
            button type="submit" { "Tell" }
        }))
        (act(operator, "kick", &about("kick", &port, &peer, name), html! {
            label { "Why, for the player to read (may be empty)" input name="reason" maxlength="200" autocomplete="off"; }
            button.danger type="submit" { "Kick" }
        }))
        (act(operator, mute.0, &about(mute.0, &port, &peer, name), html! { button type="submit" { (mute.1) } }))
        p { a id="ban-link" href=(format!("/ban/{port}/{peer}")) { "Ban the address of this player …" } }
    }
}

fn queues(site: &Site, player: &Player) -> Markup {
    let request = Request::Queues { player: Some(format!("#{}", player.peer)) };
    let answer = ask(&site.plane, Some(player.port), request);
    let queues = answer.and_then(|answer| list::<Queues>(answer, "queues").map_err(Refusal));
    match queues.as_deref() {
        Ok([queues, ..]) => html! {
            @for line in queues.words() { p.dim { (line) } }
            pre tabindex="0" aria-label="Queue dump" id="dump" { (queues.dump) }
        },
        Ok([]) => html! { p { "Nothing is known of them." } },
        Err(Refusal(reason)) => html! { p { (reason) } },
    }
}
