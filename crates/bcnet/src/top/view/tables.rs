//! Sessions and players.

use bcnet_control::span;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Text;
use ratatui::widgets::{Block, Cell, Row, Table, TableState};

use super::{BOLD, PICKED, Theme, titled};
use crate::answers::{Player, Session};
use crate::number::counted;
use crate::top::plot::{millis, short};
use crate::top::state::{Order, Panel, State};

/// A column: its title, its width, what it shows, and from which width of the terminal on.
struct Column<T> {
    title: &'static str,
    width: Constraint,
    show: fn(&T) -> Shown,
    from: u16,
    is_number: bool,
    /// The players are sorted by it.
    order: Option<Order>,
}

/// What stands in a cell.
struct Shown {
    text: String,
    is_bad: bool,
}

impl Shown {
    const fn plain(text: String) -> Self {
        Self { text, is_bad: false }
    }

    /// Something that may be wrong, which a mark tells.
    fn judged(text: String, is_bad: bool) -> Self {
        let text = if is_bad { format!("{text}!") } else { text };
        Self { text, is_bad }
    }
}

const fn text<T>(title: &'static str, width: u16, show: fn(&T) -> Shown) -> Column<T> {
    Column { title, width: Constraint::Length(width), show, from: 0, is_number: false, order: None }
}

const fn number<T>(title: &'static str, width: u16, show: fn(&T) -> Shown) -> Column<T> {
    Column { is_number: true, ..text(title, width, show) }
}

impl<T> Column<T> {
    const fn wide(self, from: u16) -> Self {
        Self { from, ..self }
    }

    const fn filling(self) -> Self {
        Self { width: Constraint::Fill(1), ..self }
    }

    const fn sorted(self, order: Order) -> Self {
        Self { order: Some(order), ..self }
    }

    fn align<'a>(&self, shown: String) -> Text<'a> {
        let text = Text::raw(shown);
        if self.is_number { text.right_aligned() } else { text }
    }

    fn cell(&self, row: &T, theme: &Theme) -> Cell<'static> {
        let Shown { text, is_bad } = (self.show)(row);
        Cell::new(self.align(text)).style(if is_bad { theme.bad() } else { Style::new() })
    }
}

const SESSIONS: [Column<Session>; 11] = [
    text("SESSION", 0, |one: &Session| Shown::plain(one.name.0.clone())).filling(),
    number("PORT", 5, |one: &Session| Shown::plain(one.port.to_string())),
    number("PLAYERS", 7, |one: &Session| Shown::plain(format!("{}/{}", one.players, one.limit))),
    text("STATE", 8, |one: &Session| Shown::plain(one.state.0.clone())),
    text("SYSTEM", 8, |one: &Session| Shown::plain(one.system.0.clone())),
    number("ROUND", 5, |one: &Session| Shown::plain(one.round.to_string())),
    number("LEFT", 6, |one: &Session| Shown::plain(one.time_left_s.map_or_else(|| "-".into(), span)))
        .wide(100),
    number("OUT B/s", 7, |one: &Session| Shown::plain(short(one.bytes_out_per_second as f64))).wide(90),
    number("RTT/ms", 6, |one: &Session| Shown::plain(millis(one.round_trip_p50_ms))),
    number("p99", 5, |one: &Session| late(one.round_trip_p99_ms)),
    number("RELAY99", 7, |one: &Session| slow(one.relay_p99_ms)),
];

const PLAYERS: [Column<Player>; 14] = [
    number("ID", 3, |one: &Player| Shown::plain(one.peer.to_string())).sorted(Order::Id),
    text("NAME", 0, |one: &Player| Shown::plain(one.name.0.clone())).filling().sorted(Order::Name),
    text("ADDRESS", 21, |one: &Player| Shown::plain(one.address.0.clone())).wide(110),
    text("STATE", 14, |one: &Player| Shown::plain(one.state.0.clone())).wide(130),
    text("SHIP", 12, |one: &Player| Shown::plain(one.ship_name.as_ref().unwrap_or(&one.state).0.clone())),
    number("NOW", 5, |one: &Player| Shown::plain(millis(one.round_trip_ms))).wide(120),
    number("RTT/ms", 6, |one: &Player| Shown::plain(millis(one.round_trip_p50_ms))).sorted(Order::RoundTrip),
    number("p99", 5, |one: &Player| late(one.round_trip_p99_ms)),
    number("LOSS", 6, |one: &Player| lossy(one.loss)).sorted(Order::Loss),
    number("RELAY", 6, |one: &Player| Shown::plain(millis(one.relay_p50_ms))),
    number("p99", 6, |one: &Player| slow(one.relay_p99_ms)),
    number("QUEUE", 6, |one: &Player| stuck(one.queues.waiting())).sorted(Order::Queue),
    number("TIME", 6, |one: &Player| Shown::plain(span(one.connected_s))).sorted(Order::Time),
    number("K/D/SCORE", 10, |one: &Player| {
        Shown::plain(format!("{}/{}/{}", one.kills, one.deaths, one.score))
    })
    .wide(100)
    .sorted(Order::Score),
];

fn late(round_trip: Option<f64>) -> Shown {
    Shown::judged(millis(round_trip), round_trip > Some(300.0))
}

fn slow(relay: Option<f64>) -> Shown {
    Shown::judged(millis(relay), relay > Some(50.0))
}

fn lossy(loss: Option<f64>) -> Shown {
    let text = loss.map_or_else(|| "-".into(), |loss| format!("{:.1}%", 100.0 * loss));
    Shown::judged(text, loss > Some(0.05))
}

fn stuck(waiting: u64) -> Shown {
    Shown::judged(waiting.to_string(), waiting > 100)
}

pub(super) fn sessions(frame: &mut Frame<'_>, area: Rect, state: &State, theme: &Theme) {
    let sessions = &state.status.sessions;
    let order = if state.is_by_players { ", most players first" } else { "" };
    let title = format!("sessions: {}{order}", sessions.len());
    let picked = sessions.iter().position(|session| Some(session.port) == state.port);
    let sheet = Sheet { columns: &SESSIONS, rows: sessions, picked, sorted: None };
    sheet.draw(frame, area, titled(title, state.panel == Panel::Sessions), theme);
}

pub(super) fn players(frame: &mut Frame<'_>, area: Rect, state: &State, theme: &Theme) {
    let whose = state.session().map_or_else(String::new, |session| {
        let left = session.time_left_s.map_or_else(String::new, |left| format!(", {} left", span(left)));
        let Session { name, port, state, round, system, .. } = session;
        let state = if session.is_open() { String::new() } else { format!(", {state}") };
        format!(" in {name}, port {port}{state}, round {round} in {system}{left}")
    });
    let title = match state.players.len() {
        0 => format!("nobody{whose}"),
        count => format!("{}{whose}", counted(count, "player")),
    };
    let picked = state.players.iter().position(|player| Some(player.peer) == state.peer);
    let sorted = Some((state.order, state.is_reversed));
    let sheet = Sheet { columns: &PLAYERS, rows: &state.players, picked, sorted };
    sheet.draw(frame, area, titled(title, state.panel == Panel::Players), theme);
}

/// A table with something in it.
struct Sheet<'a, T> {
    columns: &'a [Column<T>],
    rows: &'a [T],
    picked: Option<usize>,
    /// By what, and whether the other way round.
    sorted: Option<(Order, bool)>,
}

impl<T> Sheet<'_, T> {
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, block: Block<'_>, theme: &Theme) {
        let columns: Vec<&Column<T>> =
            self.columns.iter().filter(|column| area.width >= column.from).collect();
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
            .row_highlight_style(PICKED)
            .block(block);
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(self.picked));
    }
}
