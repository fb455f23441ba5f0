//! The pages as HTML. Names, chat and whatever else comes from players is text wherever it stands: maud escapes it.

mod ban;
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

use super::picture::Picture;
use super::site::{Reply, Site, Visitor};
use layout::Layout;

/// Returns whether only operators see a page.
pub(super) fn is_operators(path: &str) -> bool {
    ["/log", "/ban", "/settings"].iter().any(|start| path.starts_with(start))
}

/// Shows a page.
pub(super) fn show(site: &Site, path: &str, picture: &Picture, visitor: Visitor) -> Reply {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let page = match parts[..] {
        [""] => Some(overview::page(site, picture, &visitor)),
        ["session", port] => session::page(site, picture, &visitor, port),
        ["player", port, peer] => player::page(site, picture, &visitor, port, peer),
        ["ban"] => ban::of_network(picture, &visitor),
        ["ban", port, peer] => ban::of_player(picture, &visitor, port, peer),
        ["log"] => Some(events::page(site, picture, &visitor)),
        ["bans"] => Some(bans::page(site, picture, &visitor)),
        ["settings"] => Some(settings::page(site, picture, &visitor)),
        _ => None,
    };
    match page {
        Some(page) => page.reply(200, visitor),
        None => missing(visitor),
    }
}

/// There is nothing.
pub(super) fn missing(visitor: Visitor) -> Reply {
    let main = html! {
        p { "There is no such page, or no such player or session any more." }
        p { a href="/" { "Overview" } }
    };
    Layout { title: "Not found".into(), current: "", main }.reply(404, visitor)
}

/// Asks for the token, to go on to a page then.
pub(super) fn login(status: u16, visitor: Visitor, to: &str, problem: Option<&str>) -> Reply {
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
    let reply = Layout { title: "Log in".into(), current: "/login", main }.reply(status, visitor);
    Reply { reason: problem.unwrap_or_default().into(), ..reply }
}
