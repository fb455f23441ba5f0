//! Draws the screen. It fits 80 columns and 24 lines, and shows more on a larger terminal.

mod dialogs;
mod tables;

use std::env;

use bcnet_control::format_duration;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span as Part};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use super::plot::{PlotWidget, PlotWindow, compact_number};
use super::state::{Panel, ScreenState};
use crate::number_format::pluralize;
use crate::plots::{PLOTS, Plot};

/// The colours of the screen. Everything that a colour shows is visible without colours too.
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

    /// The style of errors.
    fn error_style(&self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The style of less important text.
    fn faint_style(&self) -> Style {
        self.color(Color::DarkGray)
    }

    fn plot_styles(&self) -> [Style; 2] {
        [self.color(Color::Green), self.color(Color::Yellow)]
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut ScreenState, theme: &Theme) {
    let area = frame.area();
    state.is_too_small = area.width < MIN_WIDTH || area.height < MIN_HEIGHT;
    if state.is_too_small {
        let text = format!("{MIN_WIDTH} columns and {MIN_HEIGHT} lines are needed; q quits");
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let layout = ScreenLayout::compute(area, state);
    frame.render_widget(Paragraph::new(header_text(state)).style(SELECTED), layout.head);
    if layout.sessions.height > 0 {
        tables::draw_sessions(frame, layout.sessions, state, theme);
    }
    tables::draw_players(frame, layout.players, state, theme);
    if state.shows_queues {
        draw_queues(frame, layout.plots_and_log(), state);
    } else {
        draw_plots(frame, layout.plots, state, theme);
        draw_log(frame, layout.log, state, theme);
    }
    frame.render_widget(Paragraph::new(footer_line(state, theme)), layout.foot);
    dialogs::draw(frame, area, state);
}

/// The areas of the screen.
struct ScreenLayout {
    head: Rect,
    sessions: Rect,
    players: Rect,
    plots: Rect,
    log: Rect,
    foot: Rect,
}

impl ScreenLayout {
    fn compute(area: Rect, state: &ScreenState) -> Self {
        let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let all = area.height.saturating_sub(2);
        let sessions = match state.status.sessions.len() {
            0 | 1 => 0,
            count => TABLE_HEADER_LINES + lines(count).min((all / 6).max(2)),
        };
        let plots = if all >= TWO_PLOT_ROWS_HEIGHT { 2 * PLOT_LINES + 1 } else { PLOT_LINES + 1 };
        let left = all.saturating_sub(sessions + plots + MIN_LOG_LINES);
        let players = (TABLE_HEADER_LINES + lines(state.players.len()).max(2)).min(left);
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

    /// Returns the combined area of plots and log.
    fn plots_and_log(&self) -> Rect {
        Rect { height: self.plots.height + self.log.height, ..self.plots }
    }
}

/// Returns the frame of a panel: a title line with a mark if the keys control the panel.
fn titled_block(title: String, is_focused: bool) -> Block<'static> {
    let mark = if is_focused { "» " } else { "" };
    let style = if is_focused { BOLD } else { Style::new() };
    Block::new().borders(Borders::TOP).title(Line::styled(format!(" {mark}{title} "), style))
}

fn header_text(state: &ScreenState) -> String {
    if !state.has_snapshot {
        return " bcnet top: waiting for the server's answer".into();
    }
    let status = &state.status;
    let players: u64 = status.sessions.iter().map(|session| session.players).sum();
    let mut text = format!(" up {}", format_duration(status.uptime_s));
    if status.sessions.len() > 1 {
        text.push_str(&format!("  {}", pluralize(status.sessions.len(), "session")));
    }
    text.push_str(&format!("  {}", pluralize(players, "player")));
    if let Some(last) = state.samples.back() {
        let (came, left) =
            (compact_number(last.datagrams_in_per_second), compact_number(last.datagrams_out_per_second));
        text.push_str(&format!("  in {came}/s out {left}/s"));
        if let Some(share) = last.core_share {
            text.push_str(&format!("  core {:.1} %", 100.0 * share));
        }
        if let Some(bytes) = last.memory_bytes {
            text.push_str(&format!("  memory {:.0} MB", bytes / 1e6));
        }
    }
    // The version is the longest part and the least important, so it comes last.
    text.push_str(&format!("  bcnet {}", status.version));
    text
}

/// Returns the result of the last request or, without one, the list of keys.
fn footer_line(state: &ScreenState, theme: &Theme) -> Line<'static> {
    match &state.notice {
        Some(Ok(done)) => Line::styled(format!(" {}", bcnet_control::sanitize_for_terminal(done)), BOLD),
        Some(Err(reason)) => Line::styled(
            format!(" refused: {}", bcnet_control::sanitize_for_terminal(reason)),
            theme.error_style(),
        ),
        None => {
            let keys = "↑↓ move  Tab panel  Enter queues  s sort  t say  w tell  k kick  ? help  q quit";
            Line::styled(format!(" {keys}"), theme.faint_style())
        }
    }
}

fn draw_plots(frame: &mut Frame<'_>, area: Rect, state: &ScreenState, theme: &Theme) {
    let time = PlotWindow::covering(&state.samples, state.interval);
    let scope = match state.selected_session() {
        _ if state.status.sessions.len() < 2 => String::new(),
        Some(session) if !state.is_all_sessions => format!(" of {}", session.name),
        _ => " of all sessions".into(),
    };
    let block = titled_block(format!("last {} min{scope}", time.seconds / 60), false);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let rows = usize::from(inside.height / PLOT_LINES).max(1);
    for (row, area) in Layout::vertical(vec![Constraint::Fill(1); rows]).split(inside).iter().enumerate() {
        let columns = Layout::horizontal([Constraint::Fill(1); PLOTS_PER_ROW]).spacing(1).split(*area);
        for (column, area) in columns.iter().enumerate() {
            let number = (state.first_plot + row * PLOTS_PER_ROW + column) % PLOTS.len();
            draw_plot(frame, *area, &PLOTS[number], state, time, theme);
        }
    }
}

fn draw_plot(
    frame: &mut Frame<'_>,
    area: Rect,
    plot: &Plot,
    state: &ScreenState,
    span: PlotWindow,
    theme: &Theme,
) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(plot.title(&state.samples, head.width.into())), head);
    frame.render_widget(
        PlotWidget { plot, samples: &state.samples, window: span, styles: theme.plot_styles() },
        body,
    );
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, state: &ScreenState, theme: &Theme) {
    let is_focused = state.panel == Panel::Bottom;
    let block = titled_block(
        if state.scroll_offset > 0 { "log, older lines".into() } else { "log".into() },
        is_focused,
    );
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let rows = usize::from(inside.height);
    let end = state.log.len().saturating_sub(state.scroll_offset).max(rows.min(state.log.len()));
    let lines = state.log.range(end.saturating_sub(rows)..end).map(|line| {
        let mark = if line.is_bad { Part::styled("! ", theme.error_style()) } else { Part::raw("  ") };
        Line::from(vec![
            Part::styled(line.time.clone(), theme.faint_style()),
            mark,
            Part::raw(line.text.clone()),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// Draws the queues of the selected player.
fn draw_queues(frame: &mut Frame<'_>, area: Rect, state: &mut ScreenState) {
    let is_focused = state.panel == Panel::Bottom;
    let Some(player) = state.selected_player() else {
        state.shows_queues = false;
        return;
    };
    let block =
        titled_block(format!("queues of {} (#{}), {}", player.name, player.peer, player.address), is_focused);
    let dump = player.queues.dump.0.lines().map(ToOwned::to_owned);
    let lines: Vec<String> = player.queues.summary_lines().into_iter().chain(dump).collect();
    let inside = block.inner(area);
    let most = lines.len().saturating_sub(usize::from(inside.height));
    state.scroll_offset = state.scroll_offset.min(most);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(state.scroll_offset).map(Line::from).collect();
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(shown), inside);
}

const MIN_WIDTH: u16 = 60;
const MIN_HEIGHT: u16 = 16;
/// The height of a table's title and column headings.
const TABLE_HEADER_LINES: u16 = 2;
/// The height of a row of plots with its titles. Screens of `TWO_PLOT_ROWS_HEIGHT` lines have two rows.
const PLOT_LINES: u16 = 5;
const TWO_PLOT_ROWS_HEIGHT: u16 = 30;
const PLOTS_PER_ROW: usize = 4;
const MIN_LOG_LINES: u16 = 4;
