//! What happened: chat, events, and who did what.

use bcnet_control::Request;
use maud::{Markup, html};
use serde_json::Value;

use super::format::text;
use super::layout::Layout;
use crate::serve::web::picture::{Picture, ask};
use crate::serve::web::site::{Site, Visitor};

pub(super) fn page(site: &Site, picture: &Picture, visitor: &Visitor) -> Layout {
    let (only_chat, port) = (visitor.query.get("show") == "chat", visitor.query.number::<u16>("session"));
    let is_meant = |event: &Value| {
        (!only_chat || is_chat(event)) && port.is_none_or(|port| event["port"].as_u64() == Some(port.into()))
    };
    let main = html! {
        form.act method="get" action="/log" id="filter" {
            label { "What" select name="show" {
                option value="" { "Everything" }
                option value="chat" selected[only_chat] { "Chat" }
            } }
            label { "Session" select name="session" {
                option value="" { "All" }
                @for one in picture.sessions().iter().take(MAX_CHOICES) {
                    option value=(one.port) selected[port == Some(one.port)] { (one.name) }
                }
            } }
            button type="submit" { "Show" }
        }
        section id="events" data-live="" { (events(site, is_meant)) }
        h2 { "Who did what" }
        section id="history" data-live="" { (history(site)) }
    };
    Layout { title: "Log".into(), current: "/log", main }
}

/// The latest chat of a session.
pub(super) fn chat(site: &Site, port: u16) -> Markup {
    events(site, |event| is_chat(event) && event["port"].as_u64() == Some(port.into()))
}

fn is_chat(event: &Value) -> bool {
    matches!(text(event, "event"), "chat" | "say")
}

/// The latest come first.
fn events(site: &Site, is_meant: impl Fn(&Value) -> bool) -> Markup {
    let news = site.plane.log.feed.last(usize::MAX);
    let events = news.lines.iter().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let events: Vec<Value> = events.filter(is_meant).take(MAX_EVENTS).collect();
    if events.is_empty() {
        return html! { p { "Nothing yet." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Events" id="events-scroll" {
            table {
                caption { "The latest first; times are UTC" }
                thead { tr { th scope="col" { "Time" } th.wide scope="col" { "Port" } th scope="col" { "What" } th scope="col" { "Details" } } }
                tbody { @for event in &events { (row(event)) } }
            }
        }
    }
}

fn row(event: &Value) -> Markup {
    let time = text(event, "timestamp");
    // 2026-11-17T16:37:15.123456Z
    let time = time.get(11..19).unwrap_or(time);
    let is_bad = matches!(text(event, "level"), "WARN" | "ERROR");
    html! {
        tr {
            td.n { (time) }
            td.wide { @if let Some(port) = event["port"].as_u64() { (port) } }
            td { @if is_bad { span.bad { "⚠ " (text(event, "event")) } } @else { (text(event, "event")) } }
            td.t { (details(event)) }
        }
    }
}

/// Returns all that a line of the log says besides when, where and what.
fn details(event: &Value) -> Markup {
    if is_chat(event) {
        let who = event["player"].as_str().or_else(|| event["to"].as_str());
        return html! { @if let Some(who) = who { strong { (who) } ": " } (text(event, "text")) };
    }
    let known = ["timestamp", "level", "event", "port"];
    let rest = event.as_object().into_iter().flatten().filter(|(key, _)| !known.contains(&key.as_str()));
    html! {
        @for (key, value) in rest {
            @if !value.is_null() {
                span.dim { (key) " " }
                (shown(value))
                "  "
            }
        }
    }
}

/// Returns a value for people: of those who took part in a round each with its figures.
fn shown(value: &Value) -> Markup {
    match value {
        Value::String(text) => html! { (text) },
        Value::Array(items) => html! { @for item in items { (shown(item)) "; " } },
        Value::Object(fields) => html! {
            @for (key, value) in fields { span.dim { (key) " " } (shown(value)) " " }
        },
        other => html! { (other.to_string()) },
    }
}

fn history(site: &Site) -> Markup {
    let answer = ask(&site.plane, None, Request::History { text: None, count: MAX_HISTORY });
    let rows =
        answer.ok().and_then(|mut answer| answer["history"].take().as_array().cloned()).unwrap_or_default();
    if rows.is_empty() {
        return html! { p { "Nobody did anything yet." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="History" id="history-scroll" {
            table {
                thead { tr {
                    th scope="col" { "Time" } th scope="col" { "Who" } th scope="col" { "What" } th.wide scope="col" { "Outcome" }
                } }
                tbody {
                    @for row in rows.iter().rev() {
                        tr {
                            td { (text(row, "time")) }
                            td.t { (text(row, "by")) }
                            td.t { (text(row, "what")) }
                            td.(("t wide")) { (text(row, "outcome")) }
                        }
                    }
                }
            }
        }
    }
}

const MAX_EVENTS: usize = 200;
const MAX_HISTORY: usize = 50;
/// A list of more is no use; the address takes any port.
const MAX_CHOICES: usize = 100;
