//! A ban before it happens: who would have to go.

use bcnet_session::Network;
use maud::{Markup, html};

use super::layout::{Layout, action_form};
use super::player::{display_name, player_fields};
use crate::config::ConfigValue as _;
use crate::serve::web::actions::{encode_player_list, others_at_address, players_in_network};
use crate::serve::web::logins::Operator;
use crate::serve::web::site::RequestContext;
use crate::serve::web::snapshot::WebSnapshot;
use crate::server_info::PlayerInfo;

/// Asks whether the address of a player is to be banned.
pub(super) fn player_page(
    snapshot: &WebSnapshot,
    context: &RequestContext,
    port: &str,
    peer: &str,
) -> Option<Layout> {
    let operator = context.operator.as_ref()?;
    let player = snapshot.player(port.parse().ok()?, peer.parse().ok()?)?;
    let (port, peer) = (player.port.to_string(), player.peer.to_string());
    let also: Vec<_> = others_at_address(&snapshot.players, player).collect();
    let main = html! {
        p { "This keeps out the address " strong { (player.ip()) } " of " strong { (display_name(player)) } ", and throws out who has it." }
        (affected_players("These play from the same address and would go, too:", &also))
        (ban_form(operator, &player_fields("ban", &port, &peer, &player.name.0), &also, also.len() + 1))
        p { a href=(format!("/player/{port}/{peer}")) { "Back, without a ban" } }
    };
    Some(Layout { title: format!("Ban {}?", display_name(player)), menu_entry: "/bans", main })
}

/// Asks whether a network is to be banned, whoever plays from there.
pub(super) fn network_page(snapshot: &WebSnapshot, context: &RequestContext) -> Option<Layout> {
    let operator = context.operator.as_ref()?;
    let target = context.query.get("target").trim();
    let main = match Network::from_text(target) {
        Err(problem) => html! { p.bad { "✘ " (problem) } },
        Ok(network) => {
            let there: Vec<_> = players_in_network(&snapshot.players, network).collect();
            let target = network.to_string();
            html! {
                p { "This keeps out " strong { (target) } ", and throws out who plays from there." }
                (affected_players("These play from there and would go:", &there))
                (ban_form(operator, &[("action", "ban_address"), ("target", &target)], &there, there.len()))
            }
        }
    };
    let main = html! { (main) p { a href="/bans" { "Back, without a ban" } } };
    Some(Layout { title: format!("Ban {target}?"), menu_entry: "/bans", main })
}

fn affected_players(text: &str, players: &[&PlayerInfo]) -> Markup {
    html! {
        @if players.is_empty() {
            p id="others" { "Nobody else plays from there now." }
        } @else {
            p.bad { (text) }
            ul id="others" {
                @for one in players { li { (display_name(one)) " in " (one.session) } }
            }
        }
    }
}

/// Asks how long and why. The form has with it who was seen.
fn ban_form(operator: &Operator, about: &[(&str, &str)], seen: &[&PlayerInfo], all: usize) -> Markup {
    let others = encode_player_list(seen.iter().copied());
    let hidden: Vec<_> = about.iter().copied().chain([("others", others.as_str())]).collect();
    action_form(
        operator,
        "ban",
        &hidden,
        html! {
            label { "How long: 90m, 12h, 7d, never; empty as configured" input name="expiry" maxlength="20" autocomplete="off"; }
            label { "Why, for yourself" input name="reason" maxlength="200" autocomplete="off"; }
            button.danger type="submit" {
                @if all > 1 { "Ban all " (all) } @else { "Ban" }
            }
        },
    )
}
