//! What all pages have around them.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::standings;
use crate::serve::web::logins::Operator;
use crate::serve::web::site::{PageResponse, RequestContext};

/// A page.
pub(super) struct Layout {
    pub(super) title: String,
    /// The place in the menu that it belongs to.
    pub(super) menu_entry: &'static str,
    pub(super) main: Markup,
}

impl Layout {
    pub(super) fn reply(self, status: u16, context: RequestContext) -> PageResponse {
        let page = if context.is_live_update { self.live_fragment() } else { self.full_page(&context) };
        PageResponse::html(status, page.into_string(), context.nonce)
    }

    /// What changes, and what tells that it is still about the same.
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
                    a.skip href="#main" { "To the content" }
                    header { (menu(self.menu_entry, context)) }
                    main id="main" {
                        h1 { (self.title) }
                        @if let Some(note) = flash {
                            @if note.is_refusal {
                                p.note.refusal role="alert" id="note" { "✘ Not done: " (note.text) }
                            } @else {
                                p.note role="status" id="note" { "✔ " (note.text) }
                            }
                        }
                        (self.main)
                    }
                    footer {
                        span id="live-state" role="status" { "Load the page again for news." }
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

/// What a form needs to be taken.
pub(super) fn csrf_field(operator: &Operator) -> Markup {
    html! { input type="hidden" name="csrf" value=(operator.csrf.reveal()); }
}

/// A form that does something, with the fields that say what.
pub(super) fn action_form(operator: &Operator, id: &str, hidden: &[(&str, &str)], fields: Markup) -> Markup {
    html! {
        form.act method="post" action="/act" id=(id) {
            (csrf_field(operator))
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            (fields)
        }
    }
}

/// A form that does what everyone would notice, so its button is there only after another click.
pub(super) fn confirmed_action_form(
    operator: &Operator,
    id: &str,
    hidden: &[(&str, &str)],
    text: &str,
    fields: Markup,
) -> Markup {
    html! { details { summary { (text) } (action_form(operator, id, hidden, fields)) } }
}

/// Asks whether a change is for good.
pub(super) fn save_checkbox() -> Markup {
    html! { label.check { input type="checkbox" name="save"; " Keep it in the file" } }
}

/// One figure with its name.
pub(super) fn tile(name: &str, value: impl maud::Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

const STYLE: &str = include_str!("../style.css");
const SCRIPT: &str = include_str!("../script.js");
