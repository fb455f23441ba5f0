//! The log page: chat, events and the history of operator commands.

use bcnet_control::Request;
use maud::{Markup, html};
use serde_json::Value;

use super::format::text_field;
use super::layout::Layout;
use crate::serve::web::site::{RequestContext, Site};
use crate::serve::web::snapshot::{WebSnapshot, query};

pub(super) fn page(site: &Site, snapshot: &WebSnapshot, context: &RequestContext) -> Layout {
    let (only_chat, port) = (context.query.get("show") == "chat", context.query.number::<u16>("session"));
    let is_selected = |event: &Value| {
        (!only_chat || is_chat(event)) && port.is_none_or(|port| event["port"].as_u64() == Some(port.into()))
    };
    let main = html! {
        form.act method="get" action="/log" id="filter" {
            label { "Show" select name="show" {
                option value="" { "Everything" }
                option value="chat" selected[only_chat] { "Chat" }
            } }
            label { "Session" select name="session" {
                option value="" { "All" }
                @for one in snapshot.sessions().iter().take(MAX_CHOICES) {
                    option value=(one.port) selected[port == Some(one.port)] { (one.name) }
                }
            } }
            button type="submit" { "Show" }
        }
        section id="events" data-live="" { (events_table(site, is_selected)) }
        h2 { "Operator history" }
        section id="history" data-live="" { (history_table(site)) }
    };
    Layout { title: "Log".into(), menu_entry: "/log", main }
}

/// Returns the latest chat of a session.
pub(super) fn chat(site: &Site, port: u16) -> Markup {
    events_table(site, |event| is_chat(event) && event["port"].as_u64() == Some(port.into()))
}

fn is_chat(event: &Value) -> bool {
    matches!(text_field(event, "event"), "chat" | "say")
}

/// Returns a table of events, the latest first.
fn events_table(site: &Site, is_selected: impl Fn(&Value) -> bool) -> Markup {
    let batch = site.plane.log.feed.last(usize::MAX);
    let events = batch.lines.iter().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let events: Vec<Value> = events.filter(is_selected).take(MAX_EVENTS).collect();
    if events.is_empty() {
        return html! { p { "No events yet." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Events" id="events-scroll" {
            table {
                caption { "Latest first; times in UTC" }
                thead { tr { th scope="col" { "Time" } th.wide scope="col" { "Port" } th scope="col" { "Event" } th scope="col" { "Details" } } }
                tbody { @for event in &events { (row(event)) } }
            }
        }
    }
}

fn row(event: &Value) -> Markup {
    let time = text_field(event, "timestamp");
    // 2026-11-17T16:37:15.123456Z
    let time = time.get(11..19).unwrap_or(time);
    let is_bad = matches!(text_field(event, "level"), "WARN" | "ERROR");
    html! {
        tr {
            td.n { (time) }
            td.wide { @if let Some(port) = event["port"].as_u64() { (port) } }
            td { @if is_bad { span.bad { "⚠ " (text_field(event, "event")) } } @else { (text_field(event, "event")) } }
            td.t { (details(event)) }
        }
    }
}

/// Returns the fields of a log line that have no column in the table.
fn details(event: &Value) -> Markup {
    if is_chat(event) {
        let name = event["player"].as_str().or_else(|| event["to"].as_str());
        return html! { @if let Some(name) = name { strong { (name) } ": " } (text_field(event, "text")) };
    }
    let known = ["timestamp", "level", "event", "port"];
    let rest = event.as_object().into_iter().flatten().filter(|(key, _)| !known.contains(&key.as_str()));
    html! {
        @for (key, value) in rest {
            @if !value.is_null() {
                span.dim { (key) " " }
                (render_value(value))
                "  "
            }
        }
    }
}

/// Returns a value for people. Lists, such as the players of a round, show all fields.
fn render_value(value: &Value) -> Markup {
    match value {
        Value::String(text) => html! { (text) },
        Value::Array(items) => html! { @for item in items { (render_value(item)) "; " } },
        Value::Object(fields) => html! {
            @for (key, value) in fields { span.dim { (key) " " } (render_value(value)) " " }
        },
        other => html! { (other.to_string()) },
    }
}

fn history_table(site: &Site) -> Markup {
    let answer = query(&site.plane, None, Request::History { text: None, count: MAX_HISTORY });
    let rows =
        answer.ok().and_then(|mut answer| answer["history"].take().as_array().cloned()).unwrap_or_default();
    if rows.is_empty() {
        return html! { p { "No commands yet." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="History" id="history-scroll" {
            table {
                thead { tr {
                    th scope="col" { "Time" } th scope="col" { "By" } th scope="col" { "Command" } th.wide scope="col" { "Result" }
                } }
                tbody {
                    @for row in rows.iter().rev() {
                        tr {
                            td { (text_field(row, "time")) }
                            td.t { (text_field(row, "by")) }
                            td.t { (text_field(row, "what")) }
                            td.(("t wide")) { (text_field(row, "outcome")) }
                        }
                    }
                }
            }
        }
    }
}

const MAX_EVENTS: usize = 200;
const MAX_HISTORY: usize = 50;
/// Largest number of sessions in the list. The URL accepts any port.
const MAX_CHOICES: usize = 100;
