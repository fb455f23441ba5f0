//! Who may not play, and who alone may.

use bcnet_control::Request;
use maud::{Markup, html};
use serde_json::Value;

use super::format::text;
use super::layout::{Layout, act, save};
use crate::serve::web::logins::Operator;
use crate::serve::web::picture::{Picture, ask};
use crate::serve::web::site::{Site, Visitor};

pub(super) fn page(site: &Site, picture: &Picture, visitor: &Visitor) -> Layout {
    let main = html! {
        @if let Some(operator) = &visitor.operator {
            (bans(operator, &rows(site, Request::Bans, "bans")))
            h2 { "Ban an address" }
            p { "A player is banned from its own page. Either way it is shown first who has the address." }
            form.act method="get" action="/ban" id="ban-address" {
                label { "Address or network, as 192.0.2.7 or 192.0.2.0/24" input name="target" required maxlength="40" autocomplete="off"; }
                button type="submit" { "See who would go …" }
            }
            h2 { "Whitelist" }
            (whitelist(operator, picture, &rows(site, Request::Whitelist { add: None, remove: None, save: false }, "whitelist")))
        }
    };
    Layout { title: "Bans".into(), current: "/bans", main }
}

fn rows(site: &Site, request: Request, key: &str) -> Vec<Value> {
    let answer = ask(&site.plane, None, request);
    answer.ok().and_then(|mut answer| answer[key].take().as_array().cloned()).unwrap_or_default()
}

fn bans(operator: &Operator, bans: &[Value]) -> Markup {
    if bans.is_empty() {
        return html! { p id="no-bans" { "Nobody is banned." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Bans" {
            table id="bans" {
                caption { "Bans: " (bans.len()) @if bans.len() > MAX_ROWS { ", of which " (MAX_ROWS) " are shown" } }
                thead { tr {
                    th scope="col" { "Network" } th scope="col" { "Player" } th.wide scope="col" { "Since" } th scope="col" { "Until" }
                    th.wide scope="col" { "By" } th.wide scope="col" { "Why" } th scope="col" { "Action" }
                } }
                tbody {
                    @for (ban, number) in bans.iter().rev().take(MAX_ROWS).zip(1..) {
                        tr {
                            td { (text(ban, "network")) }
                            td.t { (text(ban, "player")) }
                            td.wide { (text(ban, "since")) }
                            td { (text(ban, "expires")) }
                            td.(("t wide")) { (text(ban, "by")) }
                            td.(("t wide")) { (text(ban, "reason")) }
                            td {
                                (act(operator, &format!("unban-{number}"), &[("action", "unban"), ("target", text(ban, "network"))], html! {
                                    button type="submit" aria-label=(format!("Unban {}", text(ban, "network"))) { "Unban" }
                                }))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn whitelist(operator: &Operator, picture: &Picture, rows: &[Value]) -> Markup {
    let port = |name: &str| {
        let named = picture.sessions().iter().find(|one| one.name.0 == name);
        named.map(|one| one.port.to_string()).unwrap_or_default()
    };
    html! {
        @if rows.is_empty() { p id="no-whitelist" { "Everyone may join who is not banned." } }
        @else {
            ul id="whitelist" {
                @for (row, number) in rows.iter().take(MAX_ROWS).zip(1..) {
                    li {
                        (text(row, "session")) ": " (text(row, "network"))
                        (act(operator, &format!("disallow-{number}"), &[
                            ("action", "disallow"), ("session", &port(text(row, "session"))), ("target", text(row, "network")),
                        ], html! {
                            button type="submit" aria-label=(format!("Remove {} from {}", text(row, "network"), text(row, "session"))) { "Remove" }
                        }))
                    }
                }
            }
        }
        p { "If there is any address here, only those may join, and networks that are trusted." }
        (act(operator, "allow", &[("action", "allow")], html! {
            label { "Address, network or player who may join" input name="target" required maxlength="64" autocomplete="off"; }
            label { "Session" select name="session" {
                option value="" { "All" }
                @for one in picture.sessions().iter().take(100) { option value=(one.port) { (one.name) } }
            } }
            (save())
            button type="submit" { "Allow" }
        }))
    }
}

/// More than that is for `bcnet ctl`.
const MAX_ROWS: usize = 200;
