//! The tables of sessions and players.

use bcnet_control::format_duration;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Text;
use ratatui::widgets::{Block, Cell, Row, Table, TableState};

use super::{BOLD, SELECTED, Theme, titled_block};
use crate::number_format::pluralize;
use crate::server_info::{PlayerInfo, SessionInfo};
use crate::top::plot::{compact_number, millis};
use crate::top::state::{Panel, PlayerOrder, ScreenState};

/// A column: its title, its width, its content, and the terminal width from which it is shown.
struct ScreenColumn<T> {
    title: &'static str,
    width: Constraint,
    cell_text: fn(&T) -> CellText,
    min_width: u16,
    is_number: bool,
    /// The order of players that this column shows, if players can be sorted by it.
    order: Option<PlayerOrder>,
}

/// The text of a cell.
struct CellText {
    text: String,
    is_bad: bool,
}

impl CellText {
    const fn normal(text: String) -> Self {
        Self { text, is_bad: false }
    }

    /// Marks a value that may be a problem.
    fn marked_if_bad(text: String, is_bad: bool) -> Self {
        let text = if is_bad { format!("{text}!") } else { text };
        Self { text, is_bad }
    }
}

const fn text_column<T>(title: &'static str, width: u16, show: fn(&T) -> CellText) -> ScreenColumn<T> {
    ScreenColumn {
        title,
        width: Constraint::Length(width),
        cell_text: show,
        min_width: 0,
        is_number: false,
        order: None,
    }
}

const fn number_column<T>(title: &'static str, width: u16, show: fn(&T) -> CellText) -> ScreenColumn<T> {
    ScreenColumn { is_number: true, ..text_column(title, width, show) }
}

impl<T> ScreenColumn<T> {
    const fn shown_from_width(self, from: u16) -> Self {
        Self { min_width: from, ..self }
    }

    const fn fill_width(self) -> Self {
        Self { width: Constraint::Fill(1), ..self }
    }

    const fn sorted_by(self, order: PlayerOrder) -> Self {
        Self { order: Some(order), ..self }
    }

    fn align<'a>(&self, shown: String) -> Text<'a> {
        let text = Text::raw(shown);
        if self.is_number { text.right_aligned() } else { text }
    }

    fn cell(&self, row: &T, theme: &Theme) -> Cell<'static> {
        let CellText { text, is_bad } = (self.cell_text)(row);
        Cell::new(self.align(text)).style(if is_bad { theme.error_style() } else { Style::new() })
    }
}

const SESSION_COLUMNS: [ScreenColumn<SessionInfo>; 11] = [
    text_column("SESSION", 0, |one: &SessionInfo| CellText::normal(one.name.0.clone())).fill_width(),
    number_column("PORT", 5, |one: &SessionInfo| CellText::normal(one.port.to_string())),
    number_column("PLAYERS", 7, |one: &SessionInfo| {
        CellText::normal(format!("{}/{}", one.players, one.limit))
    }),
    text_column("STATE", 8, |one: &SessionInfo| CellText::normal(one.state.0.clone())),
    text_column("SYSTEM", 8, |one: &SessionInfo| CellText::normal(one.system.0.clone())),
    number_column("ROUND", 5, |one: &SessionInfo| CellText::normal(one.round.to_string())),
    number_column("LEFT", 6, |one: &SessionInfo| {
        CellText::normal(one.time_left_s.map_or_else(|| "-".into(), format_duration))
    })
    .shown_from_width(100),
    number_column("OUT B/s", 7, |one: &SessionInfo| {
        CellText::normal(compact_number(one.bytes_out_per_second as f64))
    })
    .shown_from_width(90),
    number_column("RTT/ms", 6, |one: &SessionInfo| CellText::normal(millis(one.round_trip_p50_ms))),
    number_column("p99", 5, |one: &SessionInfo| rtt_cell(one.round_trip_p99_ms)),
    number_column("RELAY99", 7, |one: &SessionInfo| relay_cell(one.relay_p99_ms)),
];

const PLAYER_COLUMNS: [ScreenColumn<PlayerInfo>; 14] = [
    number_column("ID", 3, |one: &PlayerInfo| CellText::normal(one.peer.to_string()))
        .sorted_by(PlayerOrder::Id),
    text_column("NAME", 0, |one: &PlayerInfo| CellText::normal(one.name.0.clone()))
        .fill_width()
        .sorted_by(PlayerOrder::Name),
    text_column("ADDRESS", 21, |one: &PlayerInfo| CellText::normal(one.address.0.clone()))
        .shown_from_width(110),
    text_column("STATE", 14, |one: &PlayerInfo| CellText::normal(one.state.0.clone())).shown_from_width(130),
    text_column("SHIP", 12, |one: &PlayerInfo| {
        CellText::normal(one.ship_name.as_ref().unwrap_or(&one.state).0.clone())
    }),
    number_column("NOW", 5, |one: &PlayerInfo| CellText::normal(millis(one.round_trip_ms)))
        .shown_from_width(120),
    number_column("RTT/ms", 6, |one: &PlayerInfo| CellText::normal(millis(one.round_trip_p50_ms)))
        .sorted_by(PlayerOrder::RoundTrip),
    number_column("p99", 5, |one: &PlayerInfo| rtt_cell(one.round_trip_p99_ms)),
    number_column("LOSS", 6, |one: &PlayerInfo| loss_cell(one.loss)).sorted_by(PlayerOrder::Loss),
    number_column("RELAY", 6, |one: &PlayerInfo| CellText::normal(millis(one.relay_p50_ms))),
    number_column("p99", 6, |one: &PlayerInfo| relay_cell(one.relay_p99_ms)),
    number_column("QUEUE", 6, |one: &PlayerInfo| queue_cell(one.queues.pending_messages()))
        .sorted_by(PlayerOrder::Queue),
    number_column("TIME", 6, |one: &PlayerInfo| CellText::normal(format_duration(one.connected_s)))
        .sorted_by(PlayerOrder::Time),
    number_column("K/D/SCORE", 10, |one: &PlayerInfo| {
        CellText::normal(format!("{}/{}/{}", one.kills, one.deaths, one.score))
    })
    .shown_from_width(100)
    .sorted_by(PlayerOrder::Score),
];

fn rtt_cell(round_trip: Option<f64>) -> CellText {
    CellText::marked_if_bad(millis(round_trip), round_trip > Some(300.0))
}

fn relay_cell(relay: Option<f64>) -> CellText {
    CellText::marked_if_bad(millis(relay), relay > Some(50.0))
}

fn loss_cell(loss: Option<f64>) -> CellText {
    let text = loss.map_or_else(|| "-".into(), |loss| format!("{:.1}%", 100.0 * loss));
    CellText::marked_if_bad(text, loss > Some(0.05))
}

fn queue_cell(waiting: u64) -> CellText {
    CellText::marked_if_bad(waiting.to_string(), waiting > 100)
}

pub(super) fn draw_sessions(frame: &mut Frame<'_>, area: Rect, state: &ScreenState, theme: &Theme) {
    let sessions = &state.status.sessions;
    let order = if state.are_sessions_by_players { ", most players first" } else { "" };
    let title = format!("sessions: {}{order}", sessions.len());
    let selected = sessions.iter().position(|session| Some(session.port) == state.selected_port);
    let sheet = ScreenTable { columns: &SESSION_COLUMNS, rows: sessions, selected, sorted: None };
    sheet.draw(frame, area, titled_block(title, state.panel == Panel::Sessions), theme);
}

pub(super) fn draw_players(frame: &mut Frame<'_>, area: Rect, state: &ScreenState, theme: &Theme) {
    let scope = state.selected_session().map_or_else(String::new, |session| {
        let left =
            session.time_left_s.map_or_else(String::new, |left| format!(", {} left", format_duration(left)));
        let SessionInfo { name, port, state, round, system, .. } = session;
        let state = if session.is_open() { String::new() } else { format!(", {state}") };
        format!(" in {name}, port {port}{state}, round {round} in {system}{left}")
    });
    let title = match state.players.len() {
        0 => format!("no players{scope}"),
        count => format!("{}{scope}", pluralize(count, "player")),
    };
    let selected = state.players.iter().position(|player| Some(player.peer) == state.selected_peer);
    let sorted = Some((state.order, state.is_reversed));
    let sheet = ScreenTable { columns: &PLAYER_COLUMNS, rows: &state.players, selected, sorted };
    sheet.draw(frame, area, titled_block(title, state.panel == Panel::Players), theme);
}

/// A table to draw.
struct ScreenTable<'a, T> {
    columns: &'a [ScreenColumn<T>],
    rows: &'a [T],
    selected: Option<usize>,
    /// The order, and whether it is reversed.
    sorted: Option<(PlayerOrder, bool)>,
}

impl<T> ScreenTable<'_, T> {
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, block: Block<'_>, theme: &Theme) {
        let columns: Vec<&ScreenColumn<T>> =
            self.columns.iter().filter(|column| area.width >= column.min_width).collect();
        let rows = self.rows.iter().map(|row| Row::new(columns.iter().map(|column| column.cell(row, theme))));
        let titles = columns.iter().map(|column| {
            let mark = match self.sorted {
                Some((order, false)) if column.order == Some(order) => "▼",
                Some((order, true)) if column.order == Some(order) => "▲",
                _ => "",
            };
            Cell::new(column.align(format!("{}{mark}", column.title)))
        });
        let table = Table::new(rows, columns.iter().map(|column| column.width))
            .header(Row::new(titles).style(BOLD))
            .row_highlight_style(SELECTED)
            .block(block);
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(self.selected));
    }
}
