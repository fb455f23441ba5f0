//! Tests of the screen and the keys, without a server.

use std::collections::VecDeque;

use bcnet_control::{Envelope, Request};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::widgets::Widget;

use super::connection::ServerRequest;
use super::keys::{Dialog, LoopAction};
use super::plot::{PlotWidget, PlotWindow};
use super::snapshot::TopSnapshot;
use super::state::{Panel, ScreenState};
use super::view::{self, Theme};
use crate::plots::PLOTS;
use crate::server_info::{
    PlayerInfo, PlayerQueues, SampleList, SanitizedText, ServerInfo, ServerSample, SessionInfo,
};

fn test_player(peer: u8, name: &str, loss: f64) -> PlayerInfo {
    PlayerInfo {
        peer,
        name: SanitizedText::from(name.to_owned()),
        address: SanitizedText(format!("192.0.2.{peer}:22101")),
        state: SanitizedText("in game".into()),
        ship_name: Some(SanitizedText("Galaxy".into())),
        round_trip_ms: Some(40.0),
        round_trip_p50_ms: Some(40.0 + f64::from(peer)),
        round_trip_p99_ms: Some(80.0),
        loss: Some(loss),
        relay_p50_ms: Some(0.005),
        relay_p99_ms: Some(0.02),
        connected_s: 3700,
        deaths: 1,
        ..PlayerInfo::default()
    }
}

fn test_session(number: u16) -> SessionInfo {
    SessionInfo {
        name: SanitizedText(format!("Friday {number}")),
        port: 22101 + number,
        players: 2,
        limit: 8,
        round: 1,
        system: SanitizedText("Multi1".into()),
        state: SanitizedText("open".into()),
        time_left_s: Some(600),
        ..SessionInfo::default()
    }
}

fn test_snapshot(names: &[&str], sessions: u16) -> TopSnapshot {
    let sessions = (0..sessions).map(test_session).collect();
    let status = ServerInfo { version: SanitizedText("0.1.0".into()), uptime_s: 7260, sessions };
    let players = names
        .iter()
        .zip(2..)
        .map(|(name, peer)| test_player(peer, name, if peer == 3 { 0.123 } else { 0.0 }));
    let dump = SanitizedText("peer=2 retxQ=3".into());
    let queues = vec![PlayerQueues { peer: 2, unacknowledged: 3, fresh: 1, dump, ..PlayerQueues::default() }];
    let sample = |n: u64| ServerSample {
        time: 1000 + 5 * n,
        players: (n % 9) as f64,
        core_share: Some(0.031),
        memory_bytes: Some(24e6),
        ..ServerSample::default()
    };
    let samples = SampleList { interval_s: 5, samples: (0..60).map(sample).collect() };
    TopSnapshot::new(status, 22101, players.collect(), queues).with_samples(samples, true)
}

fn test_state(names: &[&str], sessions: u16) -> ScreenState {
    let mut state = ScreenState::new(Some("Picard".into()));
    state.apply_snapshot(test_snapshot(names, sessions));
    state
}

/// Draws the screen and returns its lines.
fn draw_lines(state: &mut ScreenState, columns: u16, rows: u16) -> Vec<String> {
    let buffer = draw(state, columns, rows, &Theme { is_coloured: false });
    let line = |row: u16| (0..columns).map(|column| buffer[(column, row)].symbol().to_owned()).collect();
    (0..rows).map(line).collect()
}

fn draw(state: &mut ScreenState, columns: u16, rows: u16, theme: &Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    terminal.draw(|frame| view::draw(frame, state, theme)).expect("drawn");
    terminal.backend().buffer().clone()
}

fn press_keys(state: &mut ScreenState, keys: &str) -> Option<ServerRequest> {
    let mut request = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            'V' => KeyCode::Down,
            key => KeyCode::Char(key),
        };
        if let LoopAction::Send(sent) = state.handle_key(KeyEvent::new(code, KeyModifiers::NONE)) {
            request = Some(sent);
        }
    }
    request
}

fn find_line<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines
        .iter()
        .find(|line| line.contains(part))
        .unwrap_or_else(|| panic!("no {part} in\n{}", lines.join("\n")))
}

#[test]
fn screen_fits_80_by_24() {
    let mut state = test_state(&["Alice", "Bob", "Zo\u{202e}\u{1b}[31më"], 3);
    let lines = draw_lines(&mut state, 80, 24);
    assert!(
        lines[0].starts_with(" up 2h1m  3 sessions  6 players  in 0/s out 0/s  core 3.1 %  memory 24 MB")
    );
    assert!(find_line(&lines, "Friday 2").contains("22103     2/8 open     Multi1"), "{lines:#?}");
    assert!(
        find_line(&lines, " » 3 players in Friday 0, port 22101, round 1 in Multi1, 10m left").len() > 80
    );
    assert!(find_line(&lines, "ID▼ NAME").ends_with("TIME"), "{lines:#?}");
    assert!(
        find_line(&lines, "Alice").contains("Galaxy           42    80   0.0%   0.01   0.02      4   1h1m"),
        "{lines:#?}"
    );
    assert!(find_line(&lines, "Bob").contains("12.3%!"), "a bad value has a mark, not only a colour");
    assert!(find_line(&lines, "Zo").contains("Zo\u{fffd}\u{fffd}[31më"), "escape sequences are replaced");
    assert!(find_line(&lines, "players 5").contains("RTT/ms"), "{lines:#?}");
    assert!(lines[23].starts_with(" ↑↓ move  Tab panel") && lines[23].contains("q quit"));
}

#[test]
fn large_terminal_shows_more_and_tiny_one_an_error() {
    let mut state = test_state(&["Alice"], 1);
    let lines = draw_lines(&mut state, 140, 40);
    let table = find_line(&lines, "ADDRESS");
    assert!(table.contains("STATE") && table.contains("K/D/SCORE"), "{table}");
    assert!(find_line(&lines, "Alice").contains("192.0.2.2:22101"));
    assert!(find_line(&lines, "memory/MB 24.0").contains("ACK bytes/s"));
    assert!(draw_lines(&mut state, 40, 10)[0].contains("60 columns and 16 lines are needed"));
    assert!(
        draw_lines(&mut state, 20, 5).concat().replace(' ', "").contains("linesareneeded;qquits"),
        "the text is shown in full"
    );
    assert!(
        press_keys(&mut state, "thi\n").is_none() && state.dialog.is_none(),
        "no actions while the terminal is too small"
    );
    for (columns, rows) in [(1, 1), (60, 16), (61, 17), (300, 100)] {
        press_keys(&mut state, "?");
        draw_lines(&mut state, columns, rows);
        press_keys(&mut state, "xt");
        draw_lines(&mut state, columns, rows);
        press_keys(&mut state, "\u{1b}\n");
        draw_lines(&mut state, columns, rows);
        press_keys(&mut state, "\n");
    }
}

#[test]
fn colours_are_used_only_if_enabled() {
    let mut state = test_state(&["Alice", "Bob"], 1);
    let is_coloured = |buffer: Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert!(is_coloured(draw(&mut state, 80, 24, &Theme { is_coloured: true })));
    assert!(!is_coloured(draw(&mut state, 80, 24, &Theme { is_coloured: false })));
}

#[test]
fn sorting_players_keeps_the_selection() {
    let mut state = test_state(&["Bob", "alice", "Carol"], 1);
    let names = |state: &ScreenState| state.players.iter().map(|one| one.name.0.clone()).collect::<Vec<_>>();
    assert_eq!(state.selected_peer, Some(2));
    press_keys(&mut state, "s");
    assert_eq!(names(&state), ["alice", "Bob", "Carol"]);
    press_keys(&mut state, "s");
    assert_eq!(names(&state), ["Carol", "alice", "Bob"], "the highest RTT first");
    press_keys(&mut state, "s");
    assert_eq!(names(&state), ["alice", "Bob", "Carol"], "the highest loss first");
    press_keys(&mut state, "r");
    assert_eq!((names(&state)[2].as_str(), state.selected_peer), ("alice", Some(2)));
    press_keys(&mut state, "V");
    assert_eq!(state.selected_player().map(|one| one.name.0.as_str()), Some("alice"));
    // A player who has left is no longer selected.
    state.apply_snapshot(test_snapshot(&["Bob"], 1));
    assert_eq!(state.selected_peer, Some(2));
}

#[test]
fn kick_needs_confirmation_and_the_same_player() {
    let mut state = test_state(&["Bob", "Alice"], 1);
    assert!(press_keys(&mut state, "kno ramming\n").is_none());
    let lines = draw_lines(&mut state, 80, 24);
    assert!(
        find_line(&lines, " Bob: no ramming").contains('│') && find_line(&lines, "y kicks").contains('└')
    );
    assert!(press_keys(&mut state, "xz\n").is_none() && state.dialog.is_some(), "only y and n are accepted");
    assert!(press_keys(&mut state, "n").is_none() && state.dialog.is_none());
    let Some(ServerRequest::Execute(kick)) = press_keys(&mut state, "k\ny") else {
        panic!("no request was sent")
    };
    let request = Request::Kick { player: "#2".into(), reason: None };
    assert_eq!(kick, Envelope { session: Some("22101".into()), by: Some("Picard".into()), request });
    // Another player has the id by now.
    press_keys(&mut state, "k\n");
    let mut other = test_snapshot(&["Mallory"], 1);
    other.players[0].address.0 = "198.51.100.1:1".into();
    state.apply_snapshot(other);
    assert!(press_keys(&mut state, "y").is_none());
    assert_eq!(state.notice, Some(Err("Bob has left".into())));
}

#[test]
fn typed_text_is_sent_as_chat() {
    let mut state = test_state(&["Bob"], 1);
    let Some(ServerRequest::Execute(say)) = press_keys(&mut state, "tq?\u{202e} \n") else {
        panic!("no request was sent")
    };
    assert_eq!(
        say.request,
        Request::Say { to: None, text: vec!["q? ".into()] },
        "command keys are text here"
    );
    assert!(press_keys(&mut state, "t  \n").is_none() && press_keys(&mut state, "twell\u{1b}").is_none());
    let Some(ServerRequest::Execute(word)) = press_keys(&mut state, "whi\n") else {
        panic!("no request was sent")
    };
    assert_eq!(word.request, Request::Say { to: Some("#2".into()), text: vec!["hi".into()] });
    // Windows reports AltGr as Ctrl and Alt: the key is still text.
    press_keys(&mut state, "t");
    state.handle_key(KeyEvent::new(KeyCode::Char('@'), KeyModifiers::CONTROL | KeyModifiers::ALT));
    let Some(ServerRequest::Execute(say)) = press_keys(&mut state, "\n") else {
        panic!("no request was sent")
    };
    assert_eq!(say.request, Request::Say { to: None, text: vec!["@".into()] });
    press_keys(&mut state, &format!("t{}", "x".repeat(500)));
    let Some(Dialog::Text { text, .. }) = &state.dialog else { panic!("no dialog is open") };
    assert_eq!(text.len(), 200);
    assert!(find_line(&draw_lines(&mut state, 80, 24), "Enter continues").contains('└'));
}

#[test]
fn pasted_text_is_never_a_command() {
    let mut state = test_state(&["Bob"], 1);
    assert!(matches!(state.handle_paste("k\ny\n"), LoopAction::Continue) && state.dialog.is_none());
    press_keys(&mut state, "t");
    state.handle_paste("hello\r\nk\ny\u{1b}[2J\n");
    let Some(ServerRequest::Execute(say)) = press_keys(&mut state, "\n") else {
        panic!("no request was sent")
    };
    assert_eq!(say.request, Request::Say { to: None, text: vec!["hello  k y[2J".into()] });
    press_keys(&mut state, "t");
    state.handle_paste(&"x".repeat(500));
    let Some(Dialog::Text { text, .. }) = &state.dialog else { panic!("no dialog is open") };
    assert_eq!(text.len(), 200);
}

#[test]
fn stopping_session_shows_its_state() {
    let mut state = test_state(&[], 1);
    state.status.sessions[0].state.0 = "stopping".into();
    let lines = draw_lines(&mut state, 80, 24);
    find_line(&lines, "no players in Friday 0, port 22101, stopping, round 1 in Multi1, 10m left");
}

#[test]
fn stale_snapshot_of_another_session_is_ignored() {
    let mut state = test_state(&["Bob"], 2);
    assert_eq!(state.panel, Panel::Players);
    let Some(ServerRequest::Select { port: 22102, is_all_sessions: true }) = press_keys(&mut state, "\t\tV")
    else {
        panic!("no request was sent")
    };
    assert!(state.players.is_empty());
    state.apply_snapshot(test_snapshot(&["Bob"], 2));
    assert!(state.players.is_empty(), "the snapshot belongs to the other session");
    state.apply_snapshot(TopSnapshot { port: 22102, ..test_snapshot(&["Zoë"], 2) });
    assert_eq!(state.players[0].name.0, "Zoë");
    press_keys(&mut state, "\n\n");
    assert!(
        find_line(&draw_lines(&mut state, 80, 24), "queues of Zoë (#2), 192.0.2.2:22101").contains("queues")
    );
    assert!(find_line(&draw_lines(&mut state, 80, 24), "3 unacknowledged, 1 not sent yet").starts_with('3'));
}

#[test]
fn plot_scales_to_its_maximum_and_has_gaps() {
    let sample = |time: u64, trip: Option<f64>| ServerSample {
        time,
        round_trip_p50_ms: trip,
        ..ServerSample::default()
    };
    let samples: VecDeque<ServerSample> = (0..60)
        .map(|n| sample(1000 + 5 * n, (!(20..40).contains(&n)).then_some(if n < 20 { 50.0 } else { 100.0 })))
        .collect();
    let span = PlotWindow::covering(&samples, 5);
    assert_eq!(span, PlotWindow { seconds: 300, interval: 5 });
    let area = Rect::new(0, 0, 30, 2);
    let mut buffer = Buffer::empty(area);
    PlotWidget { plot: &PLOTS[2], samples: &samples, window: span, styles: [Style::new(); 2] }
        .render(area, &mut buffer);
    let row = |row: u16| (0..30).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    // Half the height, a gap, and the full height, in dots of a braille character.
    assert_eq!(row(0), format!("{}{}", "⣀".repeat(10), " ".repeat(10)) + &"⠉".repeat(10));
    assert_eq!(row(1), " ".repeat(30));
}

#[test]
fn plot_lines_differ_without_colours_and_title_shows_maximum() {
    let sample = |n: u64| ServerSample {
        time: 1000 + 5 * n,
        round_trip_p50_ms: Some(50.0),
        round_trip_p99_ms: Some(if n == 3 { 400.0 } else { 100.0 }),
        ..ServerSample::default()
    };
    let samples: VecDeque<ServerSample> = (0..60).map(sample).collect();
    assert_eq!(PLOTS[2].title(&samples, 26), "RTT/ms 50 100, max 400");
    assert_eq!(PLOTS[2].title(&samples, 21), "RTT/ms 50 100");
    let samples: VecDeque<ServerSample> = samples.into_iter().skip(4).collect();
    let (area, span) = (Rect::new(0, 0, 4, 1), PlotWindow { seconds: 200, interval: 5 });
    let mut buffer = Buffer::empty(area);
    PlotWidget { plot: &PLOTS[2], samples: &samples, window: span, styles: [Style::new(); 2] }
        .render(area, &mut buffer);
    let row: String = (0..4).map(|column| buffer[(column, 0)].symbol()).collect();
    assert_eq!(row, "⠓".repeat(4), "all dots of the first series, half of the second");
}
