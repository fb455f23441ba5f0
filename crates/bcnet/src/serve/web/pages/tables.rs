//! Tables of sessions and players, with sorting and paging.

use std::cmp::Ordering;

use maud::{Markup, html};

use super::format::{NO_VALUE, bytes, duration, millis, percent, ship};
use crate::serve::web::form::FormData;
use crate::server_info::{PlayerInfo, SessionInfo};

/// The sorting and the page of a table.
pub(super) struct TableView {
    /// The prefix of its query keys, because a page may have two tables.
    prefix: &'static str,
    sort_key: String,
    is_descending: bool,
    page: usize,
    /// Only rows whose name contains this text are shown.
    filter: String,
    /// Other query parameters to keep: the search text, and the sorting of the other table.
    other_params: String,
}

impl TableView {
    pub(super) fn from_query(prefix: &'static str, query: &FormData) -> Self {
        Self {
            prefix,
            sort_key: query.get(&format!("{prefix}sort")).into(),
            is_descending: query.get(&format!("{prefix}order")) == "desc",
            page: query.number(&format!("{prefix}page")).unwrap_or(1),
            filter: query.get("q").trim().to_lowercase(),
            other_params: query.encode_where(|name| {
                name == "q" || (QUERY_KEYS.contains(&name) && !name.starts_with(prefix))
            }),
        }
    }

    /// Returns the URL of this table with another sorting or page.
    fn url(&self, key: &str, is_descending: bool, page: usize) -> String {
        let Self { prefix, other_params: rest, .. } = self;
        let order = if is_descending { "desc" } else { "asc" };
        format!("?{rest}{prefix}sort={key}&{prefix}order={order}&{prefix}page={page}#{prefix}table")
    }

    fn matches_filter(&self, name: &str) -> bool {
        self.filter.is_empty() || name.to_lowercase().contains(&self.filter)
    }

    /// Sorts the rows and returns those of the current page.
    fn sort_and_page<'a, T>(&self, columns: &[TableColumn<T>], mut rows: Vec<&'a T>) -> Vec<&'a T> {
        if let Some(column) = columns.iter().find(|column| column.key == self.sort_key) {
            // The keys are computed once per row, because there may be thousands of rows.
            rows.sort_by_cached_key(|row| (column.sort_key)(row));
            if self.is_descending {
                rows.reverse();
            }
        }
        rows.into_iter()
            .skip(self.page.saturating_sub(1).saturating_mul(ROWS_PER_PAGE))
            .take(ROWS_PER_PAGE)
            .collect()
    }
}

/// A value to sort rows by.
#[derive(Debug, PartialEq)]
enum SortKey {
    Number(f64),
    Text(String),
}

impl SortKey {
    /// Creates a key that ignores case.
    fn text(text: &str) -> Self {
        Self::Text(text.to_lowercase())
    }

    /// Creates a key that puts missing values first.
    fn optional(value: Option<f64>) -> Self {
        Self::Number(value.unwrap_or(-1.0))
    }
}

impl Eq for SortKey {}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortKey {
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
struct TableColumn<T: 'static> {
    key: &'static str,
    title: &'static str,
    /// CSS classes: `n` for numbers, `wide` for columns that are hidden on phones.
    class: &'static str,
    sort_key: fn(&T) -> SortKey,
    cell: fn(&T) -> Markup,
}

fn table<T>(
    view: &TableView,
    caption: &str,
    columns: &[TableColumn<T>],
    rows: Vec<&T>,
    row_id: impl Fn(&T) -> String,
) -> Markup {
    let count = rows.len();
    let pages = count.div_ceil(ROWS_PER_PAGE).max(1);
    let shown = view.sort_and_page(columns, rows);
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) id=(format!("{}scroll", view.prefix)) {
            table id=(format!("{}table", view.prefix)) {
                caption { (caption) }
                thead { tr { @for column in columns { (header_cell(view, column)) } } }
                tbody {
                    @for one in shown {
                        tr id=(row_id(one)) { @for column in columns { td class=(column.class) { ((column.cell)(one)) } } }
                    }
                }
            }
        }
        @if pages > 1 {
            p {
                "Page " (view.page) " of " (pages) " "
                @if view.page > 1 { a id=(format!("{}previous", view.prefix)) href=(view.url(&view.sort_key, view.is_descending, view.page - 1)) { "Previous" } " " }
                @if view.page < pages { a id=(format!("{}next", view.prefix)) href=(view.url(&view.sort_key, view.is_descending, view.page + 1)) { "Next" } }
            }
        }
    }
}

fn header_cell<T>(view: &TableView, column: &TableColumn<T>) -> Markup {
    let is_sorted = view.sort_key == column.key;
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
            a id=(format!("{}sort-{}", view.prefix, column.key)) href=(view.url(column.key, is_sorted && !view.is_descending, 1)) {
                (column.title) (mark)
            }
        }
    }
}

/// Returns the table of sessions.
pub(super) fn sessions_table(view: &TableView, sessions: &[SessionInfo]) -> Markup {
    let rows: Vec<_> = sessions.iter().filter(|one| view.matches_filter(&one.name.0)).collect();
    let caption = format!("Sessions: {}", rows.len());
    table(view, &caption, SESSION_COLUMNS, rows, |one| format!("session-{}", one.port))
}

/// Returns the table of players, of all sessions or of one.
pub(super) fn players_table<'a>(view: &TableView, players: impl Iterator<Item = &'a PlayerInfo>) -> Markup {
    let players: Vec<_> = players.filter(|one| view.matches_filter(&one.name.0)).collect();
    if players.is_empty() {
        let text = if view.filter.is_empty() { "No players." } else { "No player name matches." };
        return html! { p id="nobody" { (text) } };
    }
    let caption = format!("Players: {}", players.len());
    table(view, &caption, PLAYER_COLUMNS, players, |one| format!("player-{}-{}", one.port, one.peer))
}

const SESSION_COLUMNS: &[TableColumn<SessionInfo>] = &[
    TableColumn {
        key: "name",
        title: "Name",
        class: "t",
        sort_key: |one| SortKey::text(&one.name.0),
        cell: |one| {
            html! {
                a id=(format!("go-{}", one.port)) href=(format!("/session/{}", one.port)) { (one.name) }
                // Phones do not show the column of the state.
                @if !one.is_open() { span.narrow.bad { (one.state) } }
            }
        },
    },
    TableColumn {
        key: "port",
        title: "Port",
        class: "n",
        sort_key: |one| SortKey::Number(f64::from(one.port)),
        cell: |one| html! { (one.port) },
    },
    TableColumn {
        key: "players",
        title: "Players",
        class: "n",
        sort_key: |one| SortKey::Number(one.players as f64),
        cell: |one| html! { (one.players) "/" (one.limit) },
    },
    TableColumn {
        key: "state",
        title: "State",
        class: "wide",
        sort_key: |one| SortKey::text(&one.state.0),
        cell: state_cell,
    },
    TableColumn {
        key: "system",
        title: "System",
        class: "wide",
        sort_key: |one| SortKey::text(&one.system.0),
        cell: |one| html! { (one.system) },
    },
    TableColumn {
        key: "rtt",
        title: "RTT ms",
        class: "n",
        sort_key: |one| SortKey::optional(one.round_trip_p50_ms),
        cell: |one| html! { (millis(one.round_trip_p50_ms)) },
    },
    TableColumn {
        key: "relay",
        title: "Relay p99 ms",
        class: "n wide",
        sort_key: |one| SortKey::optional(one.relay_p99_ms),
        cell: |one| html! { (millis(one.relay_p99_ms)) },
    },
    TableColumn {
        key: "out",
        title: "Sent /s",
        class: "n wide",
        sort_key: |one| SortKey::Number(one.bytes_out_per_second as f64),
        cell: |one| html! { (bytes(one.bytes_out_per_second)) },
    },
];

fn state_cell(one: &SessionInfo) -> Markup {
    html! {
        @if one.is_open() { (one.state) } @else { span.bad { (one.state) } }
        ", round " (one.round)
        @if one.ended { " (over)" }
    }
}

const PLAYER_COLUMNS: &[TableColumn<PlayerInfo>] = &[
    TableColumn {
        key: "name",
        title: "Name",
        class: "t",
        sort_key: |one| SortKey::text(&one.name.0),
        cell: |one| {
            html! {
                a id=(format!("go-{}-{}", one.port, one.peer)) href=(format!("/player/{}/{}", one.port, one.peer)) {
                    @if one.name.0.is_empty() { "(no name yet)" } @else { (one.name) }
                }
            }
        },
    },
    TableColumn {
        key: "session",
        title: "Session",
        class: "t wide",
        sort_key: |one| SortKey::Number(f64::from(one.port)),
        cell: |one| html! { (one.session) },
    },
    TableColumn {
        key: "state",
        title: "State",
        class: "wide",
        sort_key: |one| SortKey::text(&one.state.0),
        cell: |one| html! { (one.state) },
    },
    TableColumn {
        key: "ship",
        title: "Ship",
        class: "wide",
        sort_key: |one| SortKey::text(&ship(one)),
        cell: |one| html! { (ship(one)) },
    },
    TableColumn {
        key: "rtt",
        title: "RTT ms",
        class: "n",
        sort_key: |one| SortKey::optional(one.round_trip_ms),
        cell: |one| html! { (millis(one.round_trip_ms)) },
    },
    TableColumn {
        key: "loss",
        title: "Loss %",
        class: "n",
        sort_key: |one| SortKey::optional(one.loss),
        cell: |one| html! { (percent(one.loss)) },
    },
    TableColumn {
        key: "relay",
        title: "Relay p99 ms",
        class: "n wide",
        sort_key: |one| SortKey::optional(one.relay_p99_ms),
        cell: |one| html! { (millis(one.relay_p99_ms)) },
    },
    TableColumn {
        key: "queue",
        title: "Queue",
        class: "n wide",
        sort_key: |one| SortKey::Number(one.queued_bytes as f64),
        cell: |one| html! { @if one.queued_bytes == 0 { (NO_VALUE) } @else { (bytes(one.queued_bytes)) } },
    },
    TableColumn {
        key: "time",
        title: "Time",
        class: "n",
        sort_key: |one| SortKey::Number(one.connected_s as f64),
        cell: |one| html! { (duration(one.connected_s)) },
    },
    TableColumn {
        key: "score",
        title: "Score",
        class: "n wide",
        sort_key: |one| SortKey::Number(one.score as f64),
        cell: |one| html! { (one.score) },
    },
];

/// Query keys of the tables.
const QUERY_KEYS: [&str; 6] = ["ssort", "sorder", "spage", "psort", "porder", "ppage"];
/// Rows on one page.
const ROWS_PER_PAGE: usize = 50;
