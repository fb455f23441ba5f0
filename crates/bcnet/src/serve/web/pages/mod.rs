//! The pages as HTML. Names, chat and whatever else comes from players is text wherever it stands: maud escapes it.

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

/// Returns whether only operators see a page.
pub(super) fn requires_operator(path: &str) -> bool {
    ["/log", "/ban", "/settings"].iter().any(|start| path.starts_with(start))
}

/// Shows a page.
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

/// There is nothing.
pub(super) fn not_found(context: RequestContext) -> PageResponse {
    let main = html! {
        p { "There is no such page, or no such player or session any more." }
        p { a href="/" { "Overview" } }
    };
    Layout { title: "Not found".into(), menu_entry: "", main }.reply(404, context)
}

/// Asks for the token, to go on to a page then.
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
        p.dim { "The server has shown the token when it made it, and keeps it in the file " code { "web-token" } " beside its bans." }
    };
    let reply = Layout { title: "Log in".into(), menu_entry: "/login", main }.reply(status, context);
    PageResponse { reason: problem.unwrap_or_default().into(), ..reply }
}
