//! The frame of all pages: head, menu, footer, and the building blocks of forms.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::standings;
use crate::serve::web::logins::Operator;
use crate::serve::web::site::{PageResponse, RequestContext};

/// A page with its title and content.
pub(super) struct Layout {
    pub(super) title: String,
    /// The path of the menu entry that is marked as the current page.
    pub(super) menu_entry: &'static str,
    pub(super) main: Markup,
}

impl Layout {
    pub(super) fn reply(self, status: u16, context: RequestContext) -> PageResponse {
        let page = if context.is_live_update { self.live_fragment() } else { self.full_page(&context) };
        PageResponse::html(status, page.into_string(), context.nonce)
    }

    /// Returns only the content and the title, for an update of an open page.
    ///
    /// The script compares the title: if it differs, the URL now belongs to another player or session.
    fn live_fragment(self) -> Markup {
        html! { h1 { (self.title) } (self.main) }
    }

    fn full_page(self, context: &RequestContext) -> Markup {
        let flash = context.operator.as_ref().and_then(|operator| operator.flash.as_ref());
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) " – bcnet" }
                    link rel="icon" href="data:,";
                    style nonce=(context.nonce) { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header { (menu(self.menu_entry, context)) }
                    main id="main" {
                        h1 { (self.title) }
                        @if let Some(message) = flash {
                            @if message.is_refusal {
                                p.note.refusal role="alert" id="note" { "✘ Not done: " (message.text) }
                            } @else {
                                p.note role="status" id="note" { "✔ " (message.text) }
                            }
                        }
                        (self.main)
                    }
                    footer {
                        span id="live-state" role="status" { "Reload the page to see new values." }
                        button type="button" id="live-pause" aria-pressed="false" hidden { "Pause" }
                        span { "bcnet " (crate::VERSION) }
                    }
                    script nonce=(context.nonce) { (PreEscaped(SCRIPT)) }
                }
            }
        }
    }
}

fn menu(current: &str, context: &RequestContext) -> Markup {
    let operator = context.operator.as_ref();
    let is_current = |path: &str| (path == current).then_some("page");
    html! {
        strong { "bcnet" }
        nav aria-label="Pages" {
            @if operator.is_some() || current != "/login" {
                a href="/" aria-current=[is_current("/")] { "Overview" }
            }
            @if operator.is_some() {
                @for (path, name) in [("/log", "Log"), ("/bans", "Bans"), ("/settings", "Settings")] {
                    a href=(path) aria-current=[is_current(path)] { (name) }
                }
            }
            @if context.has_standings {
                a href=(standings::PATH) aria-current=[is_current(standings::PATH)] { "Standings" }
            }
            @if operator.is_none() {
                a href="/login" aria-current=[is_current("/login")] { "Log in" }
            }
        }
        @if let Some(operator) = operator {
            form.inline method="post" action="/logout" id="logout" {
                (csrf_field(operator))
                span.dim { (operator.by) " " }
                button type="submit" { "Log out" }
            }
        }
    }
}

/// Returns the hidden field with the token against cross-site request forgery. Every form needs it.
pub(super) fn csrf_field(operator: &Operator) -> Markup {
    html! { input type="hidden" name="csrf" value=(operator.csrf.reveal()); }
}

/// Returns a form for an action. The hidden fields select the action.
pub(super) fn action_form(operator: &Operator, id: &str, hidden: &[(&str, &str)], fields: Markup) -> Markup {
    html! {
        form.act method="post" action="/act" id=(id) {
            (csrf_field(operator))
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            (fields)
        }
    }
}

/// Returns a form for an action with effects for all players. Its button appears only after another click.
pub(super) fn confirmed_action_form(
    operator: &Operator,
    id: &str,
    hidden: &[(&str, &str)],
    text: &str,
    fields: Markup,
) -> Markup {
    html! { details { summary { (text) } (action_form(operator, id, hidden, fields)) } }
}

/// Returns the checkbox that makes a change permanent.
pub(super) fn save_checkbox() -> Markup {
    html! { label.check { input type="checkbox" name="save"; " Save to the file" } }
}

/// Returns one value with its label.
pub(super) fn tile(name: &str, value: impl maud::Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

const STYLE: &str = include_str!("../style.css");
const SCRIPT: &str = include_str!("../script.js");
