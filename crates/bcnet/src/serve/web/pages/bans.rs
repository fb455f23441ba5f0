//! The page of bans and whitelists.

use bcnet_control::Request;
use maud::{Markup, html};
use serde_json::Value;

use super::format::text_field;
use super::layout::{Layout, action_form, save_checkbox};
use crate::serve::web::logins::Operator;
use crate::serve::web::site::{RequestContext, Site};
use crate::serve::web::snapshot::{WebSnapshot, query};

pub(super) fn page(site: &Site, snapshot: &WebSnapshot, context: &RequestContext) -> Layout {
    let main = html! {
        @if let Some(operator) = &context.operator {
            (bans_table(operator, &query_rows(site, Request::Bans, "bans")))
            h2 { "Ban an address" }
            p { "To ban a player, open the player's page. Before a ban you see which players it removes." }
            form.act method="get" action="/ban" id="ban-address" {
                label { "Address or network, for example 192.0.2.7 or 192.0.2.0/24" input name="target" required maxlength="40" autocomplete="off"; }
                button type="submit" { "Show affected players …" }
            }
            h2 { "Whitelist" }
            (whitelist_section(operator, snapshot, &query_rows(site, Request::Whitelist { add: None, remove: None, save: false }, "whitelist")))
        }
    };
    Layout { title: "Bans".into(), menu_entry: "/bans", main }
}

fn query_rows(site: &Site, request: Request, key: &str) -> Vec<Value> {
    let answer = query(&site.plane, None, request);
    answer.ok().and_then(|mut answer| answer[key].take().as_array().cloned()).unwrap_or_default()
}

fn bans_table(operator: &Operator, bans: &[Value]) -> Markup {
    if bans.is_empty() {
        return html! { p id="no-bans" { "The ban list is empty." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Bans" {
            table id="bans" {
                caption { "Bans: " (bans.len()) @if bans.len() > MAX_ROWS { ", showing " (MAX_ROWS) } }
                thead { tr {
                    th scope="col" { "Network" } th scope="col" { "Player" } th.wide scope="col" { "Since" } th scope="col" { "Until" }
                    th.wide scope="col" { "By" } th.wide scope="col" { "Reason" } th scope="col" { "Action" }
                } }
                tbody {
                    @for (ban, number) in bans.iter().rev().take(MAX_ROWS).zip(1..) {
                        tr {
                            td { (text_field(ban, "network")) }
                            td.t { (text_field(ban, "player")) }
                            td.wide { (text_field(ban, "since")) }
                            td { (text_field(ban, "expires")) }
                            td.(("t wide")) { (text_field(ban, "by")) }
                            td.(("t wide")) { (text_field(ban, "reason")) }
                            td {
                                (action_form(operator, &format!("unban-{number}"), &[("action", "unban"), ("target", text_field(ban, "network"))], html! {
                                    button type="submit" aria-label=(format!("Unban {}", text_field(ban, "network"))) { "Unban" }
                                }))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn whitelist_section(operator: &Operator, snapshot: &WebSnapshot, rows: &[Value]) -> Markup {
    let port = |name: &str| {
        let named = snapshot.sessions().iter().find(|one| one.name.0 == name);
        named.map(|one| one.port.to_string()).unwrap_or_default()
    };
    html! {
        @if rows.is_empty() { p id="no-whitelist" { "The whitelist is empty: everyone who is not banned may join." } }
        @else {
            ul id="whitelist" {
                @for (row, number) in rows.iter().take(MAX_ROWS).zip(1..) {
                    li {
                        (text_field(row, "session")) ": " (text_field(row, "network"))
                        (action_form(operator, &format!("disallow-{number}"), &[
                            ("action", "disallow"), ("session", &port(text_field(row, "session"))), ("target", text_field(row, "network")),
                        ], html! {
                            button type="submit" aria-label=(format!("Remove {} from {}", text_field(row, "network"), text_field(row, "session"))) { "Remove" }
                        }))
                    }
                }
            }
        }
        p { "If the whitelist has entries, only these addresses and trusted networks may join." }
        (action_form(operator, "allow", &[("action", "allow")], html! {
            label { "Address, network or player to add" input name="target" required maxlength="64" autocomplete="off"; }
            label { "Session" select name="session" {
                option value="" { "All" }
                @for one in snapshot.sessions().iter().take(100) { option value=(one.port) { (one.name) } }
            } }
            (save_checkbox())
            button type="submit" { "Allow" }
        }))
    }
}

/// Largest number of rows on the page. `bcnet ctl` shows all.
const MAX_ROWS: usize = 200;
