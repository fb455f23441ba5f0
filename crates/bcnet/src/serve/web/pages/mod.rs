//! Renders the pages as HTML. The `maud` macros escape all text, including names and chat of players.

mod ban_confirmation;
mod bans;
mod events;
mod format;
mod layout;
mod overview;
mod player;
mod plots;
mod session;
mod settings;
pub(super) mod standings;
mod tables;

use maud::html;

use super::site::{PageResponse, RequestContext, Site};
use super::snapshot::WebSnapshot;
use layout::Layout;

/// Returns whether only operators may see a page.
pub(super) fn requires_operator(path: &str) -> bool {
    ["/log", "/ban", "/settings"].iter().any(|start| path.starts_with(start))
}

/// Renders the page at a path.
pub(super) fn render(
    site: &Site,
    path: &str,
    snapshot: &WebSnapshot,
    context: RequestContext,
) -> PageResponse {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let page = match parts[..] {
        [""] => Some(overview::page(site, snapshot, &context)),
        ["session", port] => session::page(site, snapshot, &context, port),
        ["player", port, peer] => player::page(site, snapshot, &context, port, peer),
        ["ban"] => ban_confirmation::network_page(snapshot, &context),
        ["ban", port, peer] => ban_confirmation::player_page(snapshot, &context, port, peer),
        ["log"] => Some(events::page(site, snapshot, &context)),
        ["bans"] => Some(bans::page(site, snapshot, &context)),
        ["settings"] => Some(settings::page(site, snapshot, &context)),
        _ => None,
    };
    match page {
        Some(page) => page.reply(200, context),
        None => not_found(context),
    }
}

/// Returns the response for an unknown page.
pub(super) fn not_found(context: RequestContext) -> PageResponse {
    let main = html! {
        p { "This page does not exist, the player has left, or the session no longer exists." }
        p { a href="/" { "Overview" } }
    };
    Layout { title: "Not found".into(), menu_entry: "", main }.reply(404, context)
}

/// Returns the login page. `to` is the page to open after the login.
pub(super) fn login(status: u16, context: RequestContext, to: &str, problem: Option<&str>) -> PageResponse {
    let main = html! {
        @if let Some(problem) = problem {
            p.note.refusal role="alert" id="login-problem" { "✘ " (problem) }
        }
        form.act method="post" action="/login" id="login" {
            input type="hidden" name="to" value=(to);
            label { "Your name, for the history" input name="name" maxlength="40" autocomplete="username" id="name"; }
            label { "Token" input name="token" type="password" required autofocus autocomplete="current-password" id="token"; }
            button type="submit" { "Log in" }
        }
        p.dim { "The server showed the token when it created it. The token is in the file " code { "web-token" } " next to the bans file." }
    };
    let reply = Layout { title: "Log in".into(), menu_entry: "/login", main }.reply(status, context);
    PageResponse { reason: problem.unwrap_or_default().into(), ..reply }
}
