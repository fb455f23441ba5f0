//! The confirmation page of a ban. It lists the players whom the ban would remove.

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

/// Asks the operator to confirm a ban of a player's address.
pub(super) fn player_page(
    snapshot: &WebSnapshot,
    context: &RequestContext,
    port: &str,
    peer: &str,
) -> Option<Layout> {
    let operator = context.operator.as_ref()?;
    let player = snapshot.player(port.parse().ok()?, peer.parse().ok()?)?;
    let (port, peer) = (player.port.to_string(), player.peer.to_string());
    let others: Vec<_> = others_at_address(&snapshot.players, player).collect();
    let main = html! {
        p { "This bans the address " strong { (player.ip()) } " of " strong { (display_name(player)) } " and removes all players with this address." }
        (affected_players("These players have the same address and would be removed too:", &others))
        (ban_form(operator, &player_fields("ban", &port, &peer, &player.name.0), &others, others.len() + 1))
        p { a href=(format!("/player/{port}/{peer}")) { "Back without a ban" } }
    };
    Some(Layout { title: format!("Ban {}?", display_name(player)), menu_entry: "/bans", main })
}

/// Asks the operator to confirm a ban of a network.
pub(super) fn network_page(snapshot: &WebSnapshot, context: &RequestContext) -> Option<Layout> {
    let operator = context.operator.as_ref()?;
    let target = context.query.get("target").trim();
    let main = match Network::from_text(target) {
        Err(problem) => html! { p.bad { "✘ " (problem) } },
        Ok(network) => {
            let players: Vec<_> = players_in_network(&snapshot.players, network).collect();
            let target = network.to_string();
            html! {
                p { "This bans " strong { (target) } " and removes all players in this network." }
                (affected_players("These players would be removed:", &players))
                (ban_form(operator, &[("action", "ban_address"), ("target", &target)], &players, players.len()))
            }
        }
    };
    let main = html! { (main) p { a href="/bans" { "Back without a ban" } } };
    Some(Layout { title: format!("Ban {target}?"), menu_entry: "/bans", main })
}

fn affected_players(text: &str, players: &[&PlayerInfo]) -> Markup {
    html! {
        @if players.is_empty() {
            p id="others" { "No other player would be removed." }
        } @else {
            p.bad { (text) }
            ul id="others" {
                @for one in players { li { (display_name(one)) " in " (one.session) } }
            }
        }
    }
}

/// Returns the form with duration and reason.
///
/// A hidden field lists the affected players that the page shows. If other players are affected when the
/// form arrives, the server refuses the ban.
fn ban_form(operator: &Operator, about: &[(&str, &str)], shown: &[&PlayerInfo], count: usize) -> Markup {
    let others = encode_player_list(shown.iter().copied());
    let hidden: Vec<_> = about.iter().copied().chain([("others", others.as_str())]).collect();
    action_form(
        operator,
        "ban",
        &hidden,
        html! {
            label { "Duration: 90m, 12h, 7d or never (empty: the configured duration)" input name="expiry" maxlength="20" autocomplete="off"; }
            label { "Reason (only operators see it)" input name="reason" maxlength="200" autocomplete="off"; }
            button.danger type="submit" {
                @if count > 1 { "Ban all " (count) } @else { "Ban" }
            }
        },
    )
}
