//! The page of one session: values, plots, players, actions and chat.

use maud::{Markup, html};

use super::events;
use super::format::{bytes, duration, millis};
use super::layout::{Layout, action_form, confirmed_action_form, tile};
use super::plots;
use super::tables::{self, TableView};
use crate::serve::web::logins::Operator;
use crate::serve::web::site::{RequestContext, Site};
use crate::serve::web::snapshot::WebSnapshot;
use crate::server_info::SessionInfo;

pub(super) fn page(
    site: &Site,
    snapshot: &WebSnapshot,
    context: &RequestContext,
    port: &str,
) -> Option<Layout> {
    let session = snapshot.session(port.parse().ok()?)?;
    let view = TableView::from_query("p", &context.query);
    let players = snapshot.players.iter().filter(|player| player.port == session.port);
    let main = html! {
        section id="figures" data-live="" aria-label="Figures" { (status_tiles(session)) }
        (plots::section(site, Some(session.port), context))
        h2 { "Players" }
        section id="players" data-live="" { (tables::players_table(&view, players)) }
        @if let Some(operator) = &context.operator {
            (action_forms(operator, session))
            h2 { "Chat" }
            section id="chat" data-live="" { (events::chat(site, session.port)) }
        }
    };
    Some(Layout { title: session.name.0.clone(), menu_entry: "", main })
}

fn status_tiles(one: &SessionInfo) -> Markup {
    let pair = |p50, p99| format!("{} / {} ms", millis(p50), millis(p99));
    html! {
        dl.tiles {
            (tile("Port", one.port))
            (tile("State", if one.ended { format!("{}, round has ended", one.state) } else { one.state.to_string() }))
            (tile("Players", format!("{} of {}", one.players, one.limit)))
            (tile("In the game", one.in_game))
            (tile("System", &one.system.0))
            (tile("Round", one.round))
            (tile("Game time", duration(one.game_time_s)))
            @if let Some(left) = one.time_left_s { (tile("Time left", duration(left))) }
            (tile("Relay delay p50 / p99", pair(one.relay_p50_ms, one.relay_p99_ms)))
            (tile("Round-trip time p50 / p99", pair(one.round_trip_p50_ms, one.round_trip_p99_ms)))
            (tile("Received", format!("{}/s", bytes(one.bytes_in_per_second))))
            (tile("Sent", format!("{}/s", bytes(one.bytes_out_per_second))))
            (tile("CPU share of relaying", format!("{:.1} %", one.relaying_share * 100.0)))
            (tile("State updates held back", format!("{} ms", one.coalescing_ms)))
            (tile("Datagrams dropped / not sent", format!("{} / {}", one.overflowed, one.unsent)))
            (tile("Datagrams rejected", one.rejected))
            (tile("Anomalies of players", one.anomalies))
            @for master in &one.masters { (tile(&format!("List server {}", master.address), &master.state.0)) }
        }
    }
}

fn action_forms(operator: &Operator, session: &SessionInfo) -> Markup {
    let port = session.port.to_string();
    let about = |action: &'static str| [("action", action), ("session", port.as_str())];
    let is_open = matches!(session.state.0.as_str(), "open" | "starting");
    html! {
        h2 { "Actions" }
        (action_form(operator, "say", &about("say"), html! {
            label { "Message to all players in this session" input name="text" required maxlength="200" autocomplete="off"; }
            button type="submit" { "Send" }
        }))
        (confirmed_action_form(operator, "restart", &about("restart"), "Start the next round …", html! {
            button type="submit" { "Start it: the current round ends for all players" }
        }))
        @if is_open {
            (confirmed_action_form(operator, "stop", &about("stop"), "Stop this session …", html! {
                button.danger type="submit" { "Stop it: all players are disconnected" }
            }))
        } @else {
            (action_form(operator, "start", &about("start"), html! { button type="submit" { "Start this session" } }))
        }
        p { a href=(format!("/settings?session={port}#set-welcome")) { "Welcome text" } " " a href=(format!("/settings?session={port}")) { "Settings" } }
    }
}
