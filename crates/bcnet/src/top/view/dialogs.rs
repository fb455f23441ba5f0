//! Dialogs and help, in front of the screen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use crate::top::keys::{Dialog, Purpose};
use crate::top::state::ScreenState;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &ScreenState) {
    match &state.dialog {
        None => {}
        Some(Dialog::Help) => {
            let lines = HELP.iter().map(|(keys, what)| format!(" {keys:<15}{what}")).collect();
            draw_box(frame, area, " keys ", lines, " any key closes this ");
        }
        Some(Dialog::Text { purpose, text }) => draw_text_input(frame, area, state, purpose, text),
        Some(Dialog::Confirm { target, reason }) => {
            let why = if reason.trim().is_empty() { "no reason" } else { reason };
            let lines = vec![String::new(), format!(" {}: {why}", target.name), String::new()];
            draw_box(frame, area, " kick this player? ", lines, " y kicks, n cancels ");
        }
    }
}

/// Draws a text input.
fn draw_text_input(frame: &mut Frame<'_>, area: Rect, state: &ScreenState, purpose: &Purpose, text: &str) {
    let title = match purpose {
        Purpose::Say { port } => {
            let session = state.selected_session().map_or_else(String::new, |session| session.name.0.clone());
            format!(" say to all in {session} (port {port}) ")
        }
        Purpose::PrivateMessage(target) => format!(" say to {} only ", target.name),
        Purpose::KickReason(target) => format!(" reason for the kick of {} ", target.name),
    };
    let line = Line::raw(format!(" {text}"));
    let width = usize::from(box_width(area)).saturating_sub(3);
    // A long text is cut at its start: the user types at its end.
    let left_out = (line.width()).saturating_sub(width);
    let typed: String = text.chars().skip(left_out).collect();
    let typed = format!(" {typed}");
    let column = u16::try_from(Line::raw(typed.as_str()).width()).unwrap_or(u16::MAX);
    let inside = draw_box(frame, area, &title, vec![typed], " Enter continues, Esc cancels ");
    frame.set_cursor_position((inside.x.saturating_add(column).min(inside.right()), inside.y));
}

/// Draws lines in a box. Returns the area of the lines.
fn draw_box(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<String>, hint: &str) -> Rect {
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let box_area = Rect {
        x: area.x + (area.width - box_width(area)) / 2,
        y: area.y + (area.height - height) / 2,
        width: box_width(area),
        height,
    };
    let block = Block::bordered().title(title.to_owned()).title_bottom(hint.to_owned());
    let inside = block.inner(box_area);
    frame.render_widget(Clear, box_area);
    frame.render_widget(block, box_area);
    frame.render_widget(Paragraph::new(lines.into_iter().map(Line::raw).collect::<Vec<_>>()), inside);
    inside
}

fn box_width(area: Rect) -> u16 {
    area.width.saturating_sub(4).min(MAX_WIDTH)
}

const MAX_WIDTH: u16 = 76;

const HELP: [(&str, &str); 15] = [
    ("↑ ↓ PgUp PgDn", "select a session or a player, or scroll"),
    ("Tab", "next panel: sessions, players, log or queues"),
    ("Enter", "show or hide the queues of the selected player"),
    ("s, r", "sort by the next column; reverse the order"),
    ("g", "show the other plots, if not all fit"),
    ("a", "plots of all sessions, or of the selected one"),
    ("t", "chat to all players of the selected session"),
    ("w", "send a private message to the selected player"),
    ("k", "kick the selected player; asks for a reason first"),
    ("?", "this"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("RTT, RELAY", "round-trip time; relay delay: median and 99th percentile"),
    ("plots", "second series dotted: in, out; median, 99th percentile"),
    ("LOSS, QUEUE", "share retransmitted; messages waiting; ! marks bad values"),
];
