//! Sessions and players as tables that can be sorted, some at a time.

use std::cmp::Ordering;

use maud::{Markup, html};

use super::format::{NONE, bytes, duration, millis, percent, ship};
use crate::answers::{Player, Session};
use crate::serve::web::form::Form;

/// How a table is sorted, and which part of it is shown.
pub(super) struct View {
    /// What its keys in the address begin with, for there may be two tables.
    prefix: &'static str,
    key: String,
    is_descending: bool,
    page: usize,
    /// Only what has this in its name.
    wanted: String,
    /// What else the address has: what is looked for, and how the other table is sorted.
    rest: String,
}

impl View {
    pub(super) fn read(prefix: &'static str, query: &Form) -> Self {
        Self {
            prefix,
            key: query.get(&format!("{prefix}sort")).into(),
            is_descending: query.get(&format!("{prefix}order")) == "desc",
            page: query.number(&format!("{prefix}page")).unwrap_or(1),
            wanted: query.get("q").trim().to_lowercase(),
            rest: query.kept(|name| name == "q" || (KEYS.contains(&name) && !name.starts_with(prefix))),
        }
    }

    /// Returns the address of the same table, sorted otherwise or another part of it.
    fn link(&self, key: &str, is_descending: bool, page: usize) -> String {
        let Self { prefix, rest, .. } = self;
        let order = if is_descending { "desc" } else { "asc" };
        format!("?{rest}{prefix}sort={key}&{prefix}order={order}&{prefix}page={page}#{prefix}table")
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.is_empty() || name.to_lowercase().contains(&self.wanted)
    }

    /// Sorts rows and returns those that are shown.
    fn choose<'a, T>(&self, columns: &[Column<T>], mut rows: Vec<&'a T>) -> Vec<&'a T> {
        if let Some(column) = columns.iter().find(|column| column.key == self.key) {
            // By what is made of each once, for there may be thousands.
            rows.sort_by_cached_key(|row| (column.sort)(row));
            if self.is_descending {
                rows.reverse();
            }
        }
        rows.into_iter().skip(self.page.saturating_sub(1).saturating_mul(PER_PAGE)).take(PER_PAGE).collect()
    }
}

/// What rows are sorted by.
#[derive(Debug, PartialEq)]
enum Key {
    Number(f64),
    Text(String),
}

impl Key {
    /// Capital letters do not matter.
    fn text(text: &str) -> Self {
        Self::Text(text.to_lowercase())
    }

    /// What was not measured comes first.
    fn measured(value: Option<f64>) -> Self {
        Self::Number(value.unwrap_or(-1.0))
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.total_cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

/// A column of a table.
struct Column<T: 'static> {
    key: &'static str,
    title: &'static str,
    /// Its classes: `n` for numbers, `wide` for what a phone has no room for.
    class: &'static str,
    sort: fn(&T) -> Key,
    cell: fn(&T) -> Markup,
}

fn table<T>(
    view: &View,
    caption: &str,
    columns: &[Column<T>],
    rows: Vec<&T>,
    row: impl Fn(&T) -> String,
) -> Markup {
    let count = rows.len();
    let pages = count.div_ceil(PER_PAGE).max(1);
    let shown = view.choose(columns, rows);
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) id=(format!("{}scroll", view.prefix)) {
            table id=(format!("{}table", view.prefix)) {
                caption { (caption) }
                thead { tr { @for column in columns { (head(view, column)) } } }
                tbody {
                    @for one in shown {
                        tr id=(row(one)) { @for column in columns { td class=(column.class) { ((column.cell)(one)) } } }
                    }
                }
            }
        }
        @if pages > 1 {
            p {
                "Page " (view.page) " of " (pages) " "
                @if view.page > 1 { a id=(format!("{}previous", view.prefix)) href=(view.link(&view.key, view.is_descending, view.page - 1)) { "Previous" } " " }
                @if view.page < pages { a id=(format!("{}next", view.prefix)) href=(view.link(&view.key, view.is_descending, view.page + 1)) { "Next" } }
            }
        }
    }
}

fn head<T>(view: &View, column: &Column<T>) -> Markup {
    let is_sorted = view.key == column.key;
    let order = match (is_sorted, view.is_descending) {
        (false, _) => None,
        (true, false) => Some("ascending"),
        (true, true) => Some("descending"),
    };
    let mark = match order {
        None => "",
        Some("ascending") => " ▲",
        Some(_) => " ▼",
    };
    html! {
        th.(column.class) scope="col" aria-sort=[order] {
            a id=(format!("{}sort-{}", view.prefix, column.key)) href=(view.link(column.key, is_sorted && !view.is_descending, 1)) {
                (column.title) (mark)
            }
        }
    }
}

/// Returns the sessions.
pub(super) fn sessions(view: &View, sessions: &[Session]) -> Markup {
    let rows: Vec<_> = sessions.iter().filter(|one| view.is_wanted(&one.name.0)).collect();
    let caption = format!("Sessions: {}", rows.len());
    table(view, &caption, SESSIONS, rows, |one| format!("session-{}", one.port))
}

/// Returns players, of several sessions or of one.
pub(super) fn players<'a>(view: &View, players: impl Iterator<Item = &'a Player>) -> Markup {
    let players: Vec<_> = players.filter(|one| view.is_wanted(&one.name.0)).collect();
    if players.is_empty() {
        let text = if view.wanted.is_empty() { "Nobody is here." } else { "Nobody has that in the name." };
        return html! { p id="nobody" { (text) } };
    }
    let caption = format!("Players: {}", players.len());
    table(view, &caption, PLAYERS, players, |one| format!("player-{}-{}", one.port, one.peer))
}

const SESSIONS: &[Column<Session>] = &[
    Column {
        key: "name",
        title: "Name",
        class: "t",
        sort: |one| Key::text(&one.name.0),
        cell: |one| {
            html! {
                a id=(format!("go-{}", one.port)) href=(format!("/session/{}", one.port)) { (one.name) }
                // There is no room for the state on a phone.
                @if !one.is_open() { span.narrow.bad { (one.state) } }
            }
        },
    },
    Column {
        key: "port",
        title: "Port",
        class: "n",
        sort: |one| Key::Number(f64::from(one.port)),
        cell: |one| html! { (one.port) },
    },
    Column {
        key: "players",
        title: "Players",
        class: "n",
        sort: |one| Key::Number(one.players as f64),
        cell: |one| html! { (one.players) "/" (one.limit) },
    },
    Column { key: "state", title: "State", class: "wide", sort: |one| Key::text(&one.state.0), cell: state },
    Column {
        key: "system",
        title: "System",
        class: "wide",
        sort: |one| Key::text(&one.system.0),
        cell: |one| html! { (one.system) },
    },
    Column {
        key: "rtt",
        title: "RTT ms",
        class: "n",
        sort: |one| Key::measured(one.round_trip_p50_ms),
        cell: |one| html! { (millis(one.round_trip_p50_ms)) },
    },
    Column {
        key: "relay",
        title: "Relay p99 ms",
        class: "n wide",
        sort: |one| Key::measured(one.relay_p99_ms),
        cell: |one| html! { (millis(one.relay_p99_ms)) },
    },
    Column {
        key: "out",
        title: "Out /s",
        class: "n wide",
        sort: |one| Key::Number(one.bytes_out_per_second as f64),
        cell: |one| html! { (bytes(one.bytes_out_per_second)) },
    },
];

fn state(one: &Session) -> Markup {
    html! {
        @if one.is_open() { (one.state) } @else { span.bad { (one.state) } }
        ", round " (one.round)
        @if one.ended { " (over)" }
    }
}

const PLAYERS: &[Column<Player>] = &[
    Column {
        key: "name",
        title: "Name",
        class: "t",
        sort: |one| Key::text(&one.name.0),
        cell: |one| {
            html! {
                a id=(format!("go-{}-{}", one.port, one.peer)) href=(format!("/player/{}/{}", one.port, one.peer)) {
                    @if one.name.0.is_empty() { "(no name yet)" } @else { (one.name) }
                }
            }
        },
    },
    Column {
        key: "session",
        title: "Session",
        class: "t wide",
        sort: |one| Key::Number(f64::from(one.port)),
        cell: |one| html! { (one.session) },
    },
    Column {
        key: "state",
        title: "State",
        class: "wide",
        sort: |one| Key::text(&one.state.0),
        cell: |one| html! { (one.state) },
    },
    Column {
        key: "ship",
        title: "Ship",
        class: "wide",
        sort: |one| Key::text(&ship(one)),
        cell: |one| html! { (ship(one)) },
    },
    Column {
        key: "rtt",
        title: "RTT ms",
        class: "n",
        sort: |one| Key::measured(one.round_trip_ms),
        cell: |one| html! { (millis(one.round_trip_ms)) },
    },
    Column {
        key: "loss",
        title: "Loss %",
        class: "n",
        sort: |one| Key::measured(one.loss),
        cell: |one| html! { (percent(one.loss)) },
    },
    Column {
        key: "relay",
        title: "Relay p99 ms",
        class: "n wide",
        sort: |one| Key::measured(one.relay_p99_ms),
        cell: |one| html! { (millis(one.relay_p99_ms)) },
    },
    Column {
        key: "queue",
        title: "Queue",
        class: "n wide",
        sort: |one| Key::Number(one.queued_bytes as f64),
        cell: |one| html! { @if one.queued_bytes == 0 { (NONE) } @else { (bytes(one.queued_bytes)) } },
    },
    Column {
        key: "time",
        title: "Time",
        class: "n",
        sort: |one| Key::Number(one.connected_s as f64),
        cell: |one| html! { (duration(one.connected_s)) },
    },
    Column {
        key: "score",
        title: "Score",
        class: "n wide",
        sort: |one| Key::Number(one.score as f64),
        cell: |one| html! { (one.score) },
    },
];

/// What addresses say of tables.
const KEYS: [&str; 6] = ["ssort", "sorder", "spage", "psort", "porder", "ppage"];
/// How many rows a page has.
const PER_PAGE: usize = 50;
