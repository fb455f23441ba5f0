//! The screen. It fits 80 columns and 24 lines, and has more to show where there is more room.

mod dialogs;
mod tables;

use std::env;

use bcnet_control::span;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span as Part};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use super::plot::{Drawn, Span, short};
use super::state::{Panel, State};
use crate::number::counted;
use crate::plots::{PLOTS, Plot};

/// How things look. Nothing is told by colour alone.
pub(super) struct Theme {
    pub(super) is_coloured: bool,
}

impl Theme {
    pub(super) fn from_env() -> Self {
        Self { is_coloured: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    fn color(&self, color: Color) -> Style {
        if self.is_coloured { Style::new().fg(color) } else { Style::new() }
    }

    /// Something that is wrong.
    fn bad(&self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What is less important.
    fn faint(&self) -> Style {
        self.color(Color::DarkGray)
    }

    fn plots(&self) -> [Style; 2] {
        [self.color(Color::Green), self.color(Color::Yellow)]
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const PICKED: Style = Style::new().add_modifier(Modifier::REVERSED);

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, theme: &Theme) {
    let area = frame.area();
    state.is_hidden = area.width < MIN_WIDTH || area.height < MIN_HEIGHT;
    if state.is_hidden {
        let text = format!("{MIN_WIDTH} columns and {MIN_HEIGHT} lines are needed; q quits");
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let rooms = Rooms::of(area, state);
    frame.render_widget(Paragraph::new(head(state)).style(PICKED), rooms.head);
    if rooms.sessions.height > 0 {
        tables::sessions(frame, rooms.sessions, state, theme);
    }
    tables::players(frame, rooms.players, state, theme);
    if state.is_detailed {
        queues(frame, rooms.below(), state);
    } else {
        plots(frame, rooms.plots, state, theme);
        log(frame, rooms.log, state, theme);
    }
    frame.render_widget(Paragraph::new(foot(state, theme)), rooms.foot);
    dialogs::draw(frame, area, state);
}

/// Who has how much of the screen.
struct Rooms {
    head: Rect,
    sessions: Rect,
    players: Rect,
    plots: Rect,
    log: Rect,
    foot: Rect,
}

impl Rooms {
    fn of(area: Rect, state: &State) -> Self {
        let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let all = area.height.saturating_sub(2);
        let sessions = match state.status.sessions.len() {
            0 | 1 => 0,
            count => TABLE_HEAD + lines(count).min((all / 6).max(2)),
        };
        let plots = if all >= ROOMY { 2 * PLOT_LINES + 1 } else { PLOT_LINES + 1 };
        let left = all.saturating_sub(sessions + plots + MIN_LOG);
        let players = (TABLE_HEAD + lines(state.players.len()).max(2)).min(left);
        let [head, sessions, players, plots, log, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(sessions),
            Constraint::Length(players),
            Constraint::Length(plots),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(area);
        Self { head, sessions, players, plots, log, foot }
    }

    /// Returns the room of plots and log together.
    fn below(&self) -> Rect {
        Rect { height: self.plots.height + self.log.height, ..self.plots }
    }
}

/// Returns the frame of a part of the screen: a line above it, which tells where the keys move.
fn titled(title: String, is_focused: bool) -> Block<'static> {
    let mark = if is_focused { "» " } else { "" };
    let style = if is_focused { BOLD } else { Style::new() };
    Block::new().borders(Borders::TOP).title(Line::styled(format!(" {mark}{title} "), style))
}

fn head(state: &State) -> String {
    if !state.is_known {
        return " bcnet top: waiting for the server's answer".into();
    }
    let status = &state.status;
    let players: u64 = status.sessions.iter().map(|session| session.players).sum();
    let mut text = format!(" up {}", span(status.uptime_s));
    if status.sessions.len() > 1 {
        text.push_str(&format!("  {}", counted(status.sessions.len(), "session")));
    }
    text.push_str(&format!("  {}", counted(players, "player")));
    if let Some(last) = state.samples.back() {
        let (came, left) = (short(last.datagrams_in_per_second), short(last.datagrams_out_per_second));
        text.push_str(&format!("  in {came}/s out {left}/s"));
        if let Some(share) = last.core_share {
            text.push_str(&format!("  core {:.1} %", 100.0 * share));
        }
        if let Some(bytes) = last.memory_bytes {
            text.push_str(&format!("  memory {:.0} MB", bytes / 1e6));
        }
    }
    // It is the longest, and the least important.
    text.push_str(&format!("  bcnet {}", status.version));
    text
}

/// Returns what became of the last request or, if there was none, what the keys do.
fn foot(state: &State, theme: &Theme) -> Line<'static> {
    match &state.notice {
        Some(Ok(done)) => Line::styled(format!(" {}", bcnet_control::shown(done)), BOLD),
        Some(Err(reason)) => Line::styled(format!(" refused: {}", bcnet_control::shown(reason)), theme.bad()),
        None => {
            let keys = "↑↓ move  Tab panel  Enter queues  s sort  t say  w word  k kick  ? help  q quit";
            Line::styled(format!(" {keys}"), theme.faint())
        }
    }
}

fn plots(frame: &mut Frame<'_>, area: Rect, state: &State, theme: &Theme) {
    let time = Span::of(&state.samples, state.interval);
    let whose = match state.session() {
        _ if state.status.sessions.len() < 2 => String::new(),
        Some(session) if !state.is_whole => format!(" of {}", session.name),
        _ => " of all sessions".into(),
    };
    let block = titled(format!("last {} min{whose}", time.seconds / 60), false);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let rows = usize::from(inside.height / PLOT_LINES).max(1);
    for (row, area) in Layout::vertical(vec![Constraint::Fill(1); rows]).split(inside).iter().enumerate() {
        let columns = Layout::horizontal([Constraint::Fill(1); PLOTS_SIDE_BY_SIDE]).spacing(1).split(*area);
        for (column, area) in columns.iter().enumerate() {
            let number = (state.first_plot + row * PLOTS_SIDE_BY_SIDE + column) % PLOTS.len();
            plot(frame, *area, &PLOTS[number], state, time, theme);
        }
    }
}

fn plot(frame: &mut Frame<'_>, area: Rect, plot: &Plot, state: &State, span: Span, theme: &Theme) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(plot.head(&state.samples, head.width.into())), head);
    frame.render_widget(Drawn { plot, samples: &state.samples, span, styles: theme.plots() }, body);
}

fn log(frame: &mut Frame<'_>, area: Rect, state: &State, theme: &Theme) {
    let is_focused = state.panel == Panel::Below;
    let block = titled(if state.scrolled > 0 { "log, older lines".into() } else { "log".into() }, is_focused);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let rows = usize::from(inside.height);
    let end = state.log.len().saturating_sub(state.scrolled).max(rows.min(state.log.len()));
    let lines = state.log.range(end.saturating_sub(rows)..end).map(|line| {
        let mark = if line.is_bad { Part::styled("! ", theme.bad()) } else { Part::raw("  ") };
        Line::from(vec![Part::styled(line.time.clone(), theme.faint()), mark, Part::raw(line.text.clone())])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// Draws what waits for and from the picked player.
fn queues(frame: &mut Frame<'_>, area: Rect, state: &mut State) {
    let is_focused = state.panel == Panel::Below;
    let Some(player) = state.player() else {
        state.is_detailed = false;
        return;
    };
    let block =
        titled(format!("queues of {} (#{}), {}", player.name, player.peer, player.address), is_focused);
    let dump = player.queues.dump.0.lines().map(ToOwned::to_owned);
    let lines: Vec<String> = player.queues.words().into_iter().chain(dump).collect();
    let inside = block.inner(area);
    let most = lines.len().saturating_sub(usize::from(inside.height));
    state.scrolled = state.scrolled.min(most);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(state.scrolled).map(Line::from).collect();
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(shown), inside);
}

const MIN_WIDTH: u16 = 60;
const MIN_HEIGHT: u16 = 16;
/// The title and the names of the columns.
const TABLE_HEAD: u16 = 2;
/// A row of plots with its titles; where there is this much room there are two.
const PLOT_LINES: u16 = 5;
const ROOMY: u16 = 30;
const PLOTS_SIDE_BY_SIDE: usize = 4;
const MIN_LOG: u16 = 4;
