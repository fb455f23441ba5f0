//! Sessions and players as tables that can be sorted, some at a time.

use std::cmp::Ordering;

use maud::{Markup, html};

use super::format::{NONE, bytes, duration, millis, percent, ship};
use crate::serve::web::form::Form;
use crate::serve::web::picture::{Player, Session};

/// How a table is sorted, and which part of it is shown.
pub(super) struct View {
    /// What its keys in the address begin with, for there may be two tables.
    prefix: &'static str,
    key: String,
    is_descending: bool,
    page: usize,
}

impl View {
    pub(super) fn read(prefix: &'static str, query: &Form) -> Self {
        Self {
            prefix,
            key: query.get(&format!("{prefix}sort")).into(),
            is_descending: query.get(&format!("{prefix}order")) == "desc",
            page: query.number(&format!("{prefix}page")).unwrap_or(1),
        }
    }

    /// Returns the address of the same table, sorted otherwise or another part of it.
    fn link(&self, key: &str, is_descending: bool, page: usize) -> String {
        let Self { prefix, .. } = self;
        let order = if is_descending { "desc" } else { "asc" };
        format!("?{prefix}sort={key}&{prefix}order={order}&{prefix}page={page}#{prefix}table")
    }

    /// Sorts rows and returns those that are shown.
    fn choose<'a, T>(&self, columns: &[Column<T>], mut rows: Vec<&'a T>) -> Vec<&'a T> {
        if let Some(compare) =
            columns.iter().find(|column| column.key == self.key).and_then(|one| one.compare)
        {
            rows.sort_by(|a, b| if self.is_descending { compare(b, a) } else { compare(a, b) });
        }
        rows.into_iter().skip(self.page.saturating_sub(1).saturating_mul(PER_PAGE)).take(PER_PAGE).collect()
    }
}

/// A column of a table.
struct Column<T: 'static> {
    key: &'static str,
    title: &'static str,
    /// Its classes: `n` for numbers, `wide` for what a phone has no room for.
    class: &'static str,
    compare: Option<fn(&T, &T) -> Ordering>,
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
        div.scroll tabindex="0" role="region" aria-label=(caption) {
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
                @if view.page > 1 { a href=(view.link(&view.key, view.is_descending, view.page - 1)) { "Previous" } " " }
                @if view.page < pages { a href=(view.link(&view.key, view.is_descending, view.page + 1)) { "Next" } }
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
            @if column.compare.is_some() {
                a id=(format!("{}sort-{}", view.prefix, column.key)) href=(view.link(column.key, is_sorted && !view.is_descending, 1)) {
                    (column.title) (mark)
                }
            } @else { (column.title) }
        }
    }
}

/// Returns the sessions.
pub(super) fn sessions(view: &View, sessions: &[Session]) -> Markup {
    let caption = format!("Sessions: {}", sessions.len());
    table(view, &caption, SESSIONS, sessions.iter().collect(), |one| format!("session-{}", one.port))
}

/// Returns players, of several sessions or of one.
pub(super) fn players(view: &View, players: Vec<&Player>) -> Markup {
    if players.is_empty() {
        return html! { p id="nobody" { "Nobody is here." } };
    }
    let caption = format!("Players: {}", players.len());
    table(view, &caption, PLAYERS, players, |one| format!("player-{}-{}", one.port, one.peer))
}

fn number(a: Option<f64>, b: Option<f64>) -> Ordering {
    a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0))
}

const SESSIONS: &[Column<Session>] = &[
    Column {
        key: "name",
        title: "Name",
        class: "t",
        compare: Some(|a, b| a.name.to_lowercase().cmp(&b.name.to_lowercase())),
        cell: |one| html! { a id=(format!("go-{}", one.port)) href=(format!("/session/{}", one.port)) { (one.name) } },
    },
    Column {
        key: "port",
        title: "Port",
        class: "n",
        compare: Some(|a, b| a.port.cmp(&b.port)),
        cell: |one| html! { (one.port) },
    },
    Column {
        key: "players",
        title: "Players",
        class: "n",
        compare: Some(|a, b| a.players.cmp(&b.players)),
        cell: |one| html! { (one.players) "/" (one.limit) },
    },
    Column {
        key: "state",
        title: "State",
        class: "wide",
        compare: Some(|a, b| a.state.cmp(&b.state)),
        cell: state,
    },
    Column {
        key: "system",
        title: "System",
        class: "wide",
        compare: Some(|a, b| a.system.cmp(&b.system)),
        cell: |one| html! { (one.system) },
    },
    Column {
        key: "rtt",
        title: "RTT ms",
        class: "n",
        compare: Some(|a, b| number(a.round_trip_p50_ms, b.round_trip_p50_ms)),
        cell: |one| html! { (millis(one.round_trip_p50_ms)) },
    },
    Column {
        key: "relay",
        title: "Relay p99 ms",
        class: "n wide",
        compare: Some(|a, b| number(a.relay_p99_ms, b.relay_p99_ms)),
        cell: |one| html! { (millis(one.relay_p99_ms)) },
    },
    Column {
        key: "out",
        title: "Out /s",
        class: "n wide",
        compare: Some(|a, b| a.bytes_out_per_second.cmp(&b.bytes_out_per_second)),
        cell: |one| html! { (bytes(one.bytes_out_per_second)) },
    },
];

fn state(one: &Session) -> Markup {
    html! {
        @if one.state == "open" { (one.state) } @else { span.bad { (one.state) } }
        ", round " (one.round)
        @if one.ended { " (over)" }
    }
}

const PLAYERS: &[Column<Player>] = &[
    Column {
        key: "name",
        title: "Name",
        class: "t",
        compare: Some(|a, b| a.name.to_lowercase().cmp(&b.name.to_lowercase())),
        cell: |one| {
            html! {
                a id=(format!("go-{}-{}", one.port, one.peer)) href=(format!("/player/{}/{}", one.port, one.peer)) {
                    @if one.name.is_empty() { "(no name yet)" } @else { (one.name) }
                }
            }
        },
    },
    Column {
        key: "session",
        title: "Session",
        class: "t wide",
        compare: Some(|a, b| a.port.cmp(&b.port)),
        cell: |one| html! { (one.session) },
    },
    Column {
        key: "state",
        title: "State",
        class: "wide",
        compare: Some(|a, b| a.state.cmp(&b.state)),
        cell: |one| html! { (one.state) },
    },
    Column {
        key: "ship",
        title: "Ship",
        class: "wide",
        compare: Some(|a, b| a.ship.cmp(&b.ship)),
        cell: |one| html! { (ship(one)) },
    },
    Column {
        key: "rtt",
        title: "RTT ms",
        class: "n",
        compare: Some(|a, b| number(a.round_trip_ms, b.round_trip_ms)),
        cell: |one| html! { (millis(one.round_trip_ms)) },
    },
    Column {
        key: "loss",
        title: "Loss %",
        class: "n",
        compare: Some(|a, b| number(a.loss, b.loss)),
        cell: |one| html! { (percent(one.loss)) },
    },
    Column {
        key: "relay",
        title: "Relay p99 ms",
        class: "n wide",
        compare: Some(|a, b| number(a.relay_p99_ms, b.relay_p99_ms)),
        cell: |one| html! { (millis(one.relay_p99_ms)) },
    },
    Column {
        key: "queue",
        title: "Queue",
        class: "n wide",
        compare: Some(|a, b| a.queued_bytes.cmp(&b.queued_bytes)),
        cell: |one| html! { @if one.queued_bytes == 0 { (NONE) } @else { (bytes(one.queued_bytes as u64)) } },
    },
    Column {
        key: "time",
        title: "Time",
        class: "n",
        compare: Some(|a, b| a.connected_s.cmp(&b.connected_s)),
        cell: |one| html! { (duration(one.connected_s)) },
    },
    Column {
        key: "score",
        title: "Score",
        class: "n wide",
        compare: Some(|a, b| a.score.cmp(&b.score)),
        cell: |one| html! { (one.score) },
    },
];

/// How many rows a page has.
const PER_PAGE: usize = 50;
