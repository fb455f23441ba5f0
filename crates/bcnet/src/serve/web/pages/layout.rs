//! What all pages have around them.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::standings;
use crate::serve::web::logins::Operator;
use crate::serve::web::site::{Reply, Visitor};

/// A page.
pub(super) struct Layout {
    pub(super) title: String,
    /// The place in the menu that it belongs to.
    pub(super) current: &'static str,
    pub(super) main: Markup,
}

impl Layout {
    pub(super) fn reply(self, status: u16, visitor: Visitor) -> Reply {
        let page = if visitor.is_live { self.changing() } else { self.whole(&visitor) };
        Reply::html(status, page.into_string(), visitor.nonce)
    }

    /// What changes, and what tells that it is still about the same.
    fn changing(self) -> Markup {
        html! { h1 { (self.title) } (self.main) }
    }

    fn whole(self, visitor: &Visitor) -> Markup {
        let note = visitor.operator.as_ref().and_then(|operator| operator.note.as_ref());
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) " – bcnet" }
                    link rel="icon" href="data:,";
                    style nonce=(visitor.nonce) { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#main" { "To the content" }
                    header { (menu(self.current, visitor)) }
                    main id="main" {
                        h1 { (self.title) }
                        @if let Some(note) = note {
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
                    script nonce=(visitor.nonce) { (PreEscaped(SCRIPT)) }
                }
            }
        }
    }
}

fn menu(current: &str, visitor: &Visitor) -> Markup {
    let operator = visitor.operator.as_ref();
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
            @if visitor.has_standings {
                a href=(standings::PATH) aria-current=[is_current(standings::PATH)] { "Standings" }
            }
            @if operator.is_none() {
                a href="/login" aria-current=[is_current("/login")] { "Log in" }
            }
        }
        @if let Some(operator) = operator {
            form.inline method="post" action="/logout" id="logout" {
                (csrf(operator))
                span.dim { (operator.by) " " }
                button type="submit" { "Log out" }
            }
        }
    }
}

/// What a form needs to be taken.
pub(super) fn csrf(operator: &Operator) -> Markup {
    html! { input type="hidden" name="csrf" value=(operator.csrf.reveal()); }
}

/// A form that does something, with the fields that say what.
pub(super) fn act(operator: &Operator, id: &str, hidden: &[(&str, &str)], fields: Markup) -> Markup {
    html! {
        form.act method="post" action="/act" id=(id) {
            (csrf(operator))
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            (fields)
        }
    }
}

/// A form that does what everyone would notice, so its button is there only after another click.
pub(super) fn act_after_all(
    operator: &Operator,
    id: &str,
    hidden: &[(&str, &str)],
    text: &str,
    fields: Markup,
) -> Markup {
    html! { details { summary { (text) } (act(operator, id, hidden, fields)) } }
}

/// Asks whether a change is for good.
pub(super) fn save() -> Markup {
    html! { label.check { input type="checkbox" name="save"; " Keep it in the file" } }
}

/// One figure with its name.
pub(super) fn tile(name: &str, value: impl maud::Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

const STYLE: &str = include_str!("../style.css");
const SCRIPT: &str = include_str!("../script.js");
