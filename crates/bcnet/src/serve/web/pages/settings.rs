//! The page of settings that can change while the server runs.

use bcnet_control::Request;
use maud::{Markup, html};
use serde_json::Value;

use super::format::text_field;
use super::layout::{Layout, action_form, save_checkbox};
use crate::config::table::Table;
use crate::serve::web::logins::Operator;
use crate::serve::web::site::{RequestContext, Site};
use crate::serve::web::snapshot::{WebSnapshot, query};

pub(super) fn page(site: &Site, snapshot: &WebSnapshot, context: &RequestContext) -> Layout {
    let chosen = context.query.number::<u16>("session").and_then(|port| snapshot.session(port));
    let port = chosen.map(|one| one.port);
    let answer = query(&site.plane, port, Request::Get { key: None });
    let rows =
        answer.ok().and_then(|mut answer| answer["settings"].take().as_array().cloned()).unwrap_or_default();
    let is_shown = |row: &&Value| {
        let key = text_field(row, "key");
        let is_file = key.ends_with(".manifests");
        text_field(row, "effect") != "restart" && !is_file && (port.is_some() || !key.starts_with("session."))
    };
    let main = html! {
        nav aria-label="Settings of" {
            a href="/settings" aria-current=[port.is_none().then_some("page")] { "The server" }
            @for one in snapshot.sessions().iter().take(100) {
                a href=(format!("/settings?session={}", one.port)) aria-current=[(port == Some(one.port)).then_some("page")] { (one.name) }
            }
        }
        @if let Some(operator) = &context.operator {
            p { "A change is lost when the configuration is reloaded or the server restarts, unless you save it to the file. Settings that need a restart are not listed." }
            @let tables = site.plane.initial_settings().tables();
            @for row in rows.iter().filter(is_shown) { (setting_form(operator, port, row, key_description(&tables, text_field(row, "key")))) }
            h2 { "Configuration file" }
            (action_form(operator, "reload", &[("action", "reload")], html! {
                button type="submit" { "Reload the configuration and the bans" }
            }))
        }
    };
    let title = chosen.map_or_else(|| "Settings".into(), |one| format!("Settings of {}", one.name));
    Layout { title, menu_entry: "/settings", main }
}

/// Returns the description of a key and its values, from the documentation of the configuration.
fn key_description(tables: &[(String, &dyn Table)], path: &str) -> Markup {
    let (table, name) = path.rsplit_once('.').unwrap_or_default();
    let keys = tables.iter().find(|(other, _)| other == table).map_or(&[][..], |(_, table)| table.keys());
    let Some(key) = keys.iter().find(|key| key.name == name) else { return html! {} };
    let values = format!("Values: {}.", (key.form)());
    let lines = key.about.iter().map(|line| line.trim()).chain([values.as_str()]);
    let prose = lines.collect::<Vec<_>>().join(" ");
    html! {
        // Backquotes enclose code: every second part is code.
        @for (part, is_quoted) in prose.split('`').zip([false, true].into_iter().cycle()) {
            // On this page values are typed without quotes.
            @if is_quoted { code { (part.trim_matches('"')) } } @else { (part) }
        }
    }
}

fn setting_form(operator: &Operator, port: Option<u16>, row: &Value, about: Markup) -> Markup {
    let key = text_field(row, "key");
    let effect = match text_field(row, "effect") {
        "now" => "now",
        "next_round" => "from the next round",
        "empty" => "when the last player has left",
        other => other,
    };
    let name = key.rsplit('.').next().unwrap_or(key);
    let shown = text_field(row, "value");
    let value = unquote_value(shown);
    // A line break separates the items of a list, too.
    let has_lines = name == "welcome" || shown.starts_with('[');
    let port = port.map(|port| port.to_string()).unwrap_or_default();
    let about_id = format!("about-{name}");
    action_form(
        operator,
        &format!("set-{name}"),
        &[("action", "set"), ("key", key), ("session", &port)],
        html! {
            label {
                span { strong { (name) } ", takes effect " (effect) }
                @if has_lines { textarea name="value" maxlength=[(name == "welcome").then_some("1000")] aria-describedby=(about_id) { (value) } }
                @else if name == "password" {
                    input name="value" type="password" autocomplete="new-password" placeholder="new password; empty for none" aria-describedby=(about_id);
                }
                @else { input name="value" value=(value) autocomplete="off" aria-describedby=(about_id); }
            }
            (save_checkbox())
            button type="submit" aria-label=(format!("Set {name}")) { "Set" }
            p.about id=(about_id) { (about) }
        },
    )
}

/// Returns a configuration value as `set` takes it: without quotes, lists with commas.
fn unquote_value(shown: &str) -> String {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {shown}"));
    match parsed.ok().and_then(|mut table| table.remove("value")) {
        Some(toml::Value::Array(items)) => {
            items.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(toml::Value::String(text)) => text,
        _ => shown.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_values_are_shown_without_quotes() {
        for (shown, typed) in [
            ("\"30d\"", "30d"),
            ("8", "8"),
            ("true", "true"),
            ("\"a \\\"b\\\"\\nc\"", "a \"b\"\nc"),
            ("[\"Multi1\", \"Albirea\"]", "Multi1, Albirea"),
            ("[]", ""),
            ("…", "…"),
        ] {
            assert_eq!(unquote_value(shown), typed);
        }
    }
}
