//! Settings that a running server takes.

use bcnet_control::Request;
use maud::{Markup, html};
use serde_json::Value;

use super::format::text;
use super::layout::{Layout, act, save};
use crate::config::table::Table;
use crate::serve::web::logins::Operator;
use crate::serve::web::picture::{Picture, ask};
use crate::serve::web::site::{Site, Visitor};

pub(super) fn page(site: &Site, picture: &Picture, visitor: &Visitor) -> Layout {
    let chosen = visitor.query.number::<u16>("session").and_then(|port| picture.session(port));
    let port = chosen.map(|one| one.port);
    let answer = ask(&site.plane, port, Request::Get { key: None });
    let rows =
        answer.ok().and_then(|mut answer| answer["settings"].take().as_array().cloned()).unwrap_or_default();
    let is_shown = |row: &&Value| {
        let key = text(row, "key");
        let is_file = key.ends_with(".manifests");
        text(row, "effect") != "restart" && !is_file && (port.is_some() || !key.starts_with("session."))
    };
    let main = html! {
        nav aria-label="Settings of" {
            a href="/settings" aria-current=[port.is_none().then_some("page")] { "The server" }
            @for one in picture.sessions().iter().take(100) {
                a href=(format!("/settings?session={}", one.port)) aria-current=[(port == Some(one.port)).then_some("page")] { (one.name) }
            }
        }
        @if let Some(operator) = &visitor.operator {
            p { "A change holds until the configuration is read again or the server is restarted, unless it is kept in the file. What is not here is fixed while the server runs." }
            @let tables = site.plane.started().tables();
            @for row in rows.iter().filter(is_shown) { (setting(operator, port, row, about(&tables, text(row, "key")))) }
            h2 { "The file" }
            (act(operator, "reload", &[("action", "reload")], html! {
                button type="submit" { "Read the configuration and the bans again" }
            }))
        }
    };
    let title = chosen.map_or_else(|| "Settings".into(), |one| format!("Settings of {}", one.name));
    Layout { title, current: "/settings", main }
}

/// Returns what a key does and what may stand behind it, as the documentation has it.
fn about(tables: &[(String, &dyn Table)], path: &str) -> Markup {
    let (table, name) = path.rsplit_once('.').unwrap_or_default();
    let keys = tables.iter().find(|(other, _)| other == table).map_or(&[][..], |(_, table)| table.keys());
    let Some(key) = keys.iter().find(|key| key.name == name) else { return html! {} };
    let values = format!("Values: {}.", (key.form)());
    let lines = key.about.iter().map(|line| line.trim()).chain([values.as_str()]);
    let prose = lines.collect::<Vec<_>>().join(" ");
    html! {
        // What is quoted stands between every second pair of marks.
        @for (part, is_quoted) in prose.split('`').zip([false, true].into_iter().cycle()) {
            // Here values are typed without quotes.
            @if is_quoted { code { (part.trim_matches('"')) } } @else { (part) }
        }
    }
}

fn setting(operator: &Operator, port: Option<u16>, row: &Value, about: Markup) -> Markup {
    let key = text(row, "key");
    let effect = match text(row, "effect") {
        "now" => "at once",
        "next_round" => "with the next round",
        "empty" => "when the last player has left",
        other => other,
    };
    let name = key.rsplit('.').next().unwrap_or(key);
    let value = plain(text(row, "value"));
    let port = port.map(|port| port.to_string()).unwrap_or_default();
    let about_id = format!("about-{name}");
    act(
        operator,
        &format!("set-{name}"),
        &[("action", "set"), ("key", key), ("session", &port)],
        html! {
            label {
                span { strong { (name) } ", takes effect: " (effect) }
                @if name == "welcome" { textarea name="value" maxlength="1000" aria-describedby=(about_id) { (value) } }
                @else if name == "password" {
                    input name="value" type="password" autocomplete="new-password" placeholder="a new one; empty for none" aria-describedby=(about_id);
                }
                @else { input name="value" value=(value) autocomplete="off" aria-describedby=(about_id); }
            }
            (save())
            button type="submit" aria-label=(format!("Set {name}")) { "Set" }
            p.about id=(about_id) { (about) }
        },
    )
}

/// Returns a value of the configuration as `set` takes it: without quotes, lists with commas.
fn plain(shown: &str) -> String {
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
    fn values_are_shown_as_they_are_typed() {
        for (shown, typed) in [
            ("\"30d\"", "30d"),
            ("8", "8"),
            ("true", "true"),
            ("\"a \\\"b\\\"\\nc\"", "a \"b\"\nc"),
            ("[\"Multi1\", \"Albirea\"]", "Multi1, Albirea"),
            ("[]", ""),
            ("…", "…"),
        ] {
            assert_eq!(plain(shown), typed);
        }
    }
}
