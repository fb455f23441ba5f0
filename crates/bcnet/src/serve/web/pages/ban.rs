//! A ban before it happens: who would have to go.

use bcnet_session::Network;
use maud::{Markup, html};

use super::layout::{Layout, act};
use super::player::{about, name};
use crate::answers::Player;
use crate::config::Value as _;
use crate::serve::web::act::{behind, others, within};
use crate::serve::web::logins::Operator;
use crate::serve::web::picture::Picture;
use crate::serve::web::site::Visitor;

/// Asks whether the address of a player is to be banned.
pub(super) fn of_player(picture: &Picture, visitor: &Visitor, port: &str, peer: &str) -> Option<Layout> {
    let operator = visitor.operator.as_ref()?;
    let player = picture.player(port.parse().ok()?, peer.parse().ok()?)?;
    let (port, peer) = (player.port.to_string(), player.peer.to_string());
    let also: Vec<_> = behind(&picture.players, player).collect();
    let main = html! {
        p { "This keeps out the address " strong { (player.ip()) } " of " strong { (name(player)) } ", and throws out who has it." }
        (those("These play from the same address and would go, too:", &also))
        (form(operator, &about("ban", &port, &peer, &player.name.0), &also, also.len() + 1))
        p { a href=(format!("/player/{port}/{peer}")) { "Back, without a ban" } }
    };
    Some(Layout { title: format!("Ban {}?", name(player)), current: "/bans", main })
}

/// Asks whether a network is to be banned, whoever plays from there.
pub(super) fn of_network(picture: &Picture, visitor: &Visitor) -> Option<Layout> {
    let operator = visitor.operator.as_ref()?;
    let target = visitor.query.get("target").trim();
    let main = match Network::from_text(target) {
        Err(problem) => html! { p.bad { "✘ " (problem) } },
        Ok(network) => {
            let there: Vec<_> = within(&picture.players, network).collect();
            let target = network.to_string();
            html! {
                p { "This keeps out " strong { (target) } ", and throws out who plays from there." }
                (those("These play from there and would go:", &there))
                (form(operator, &[("action", "ban_address"), ("target", &target)], &there, there.len()))
            }
        }
    };
    let main = html! { (main) p { a href="/bans" { "Back, without a ban" } } };
    Some(Layout { title: format!("Ban {target}?"), current: "/bans", main })
}

fn those(text: &str, players: &[&Player]) -> Markup {
    html! {
        @if players.is_empty() {
            p id="others" { "Nobody else plays from there now." }
        } @else {
            p.bad { (text) }
            ul id="others" {
                @for one in players { li { (name(one)) " in " (one.session) } }
            }
        }
    }
}

/// Asks how long and why. The form has with it who was seen.
fn form(operator: &Operator, about: &[(&str, &str)], seen: &[&Player], all: usize) -> Markup {
    let others = others(seen.iter().copied());
    let hidden: Vec<_> = about.iter().copied().chain([("others", others.as_str())]).collect();
    act(
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
