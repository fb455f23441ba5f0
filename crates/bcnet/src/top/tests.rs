//! What the screen shows and what keys do, without a server.

use std::collections::VecDeque;

use bcnet_control::{Envelope, Request};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::widgets::Widget;

use super::keys::{Dialog, Step};
use super::link::Wish;
use super::picture::Picture;
use super::plot::{Drawn, Span};
use super::state::{Panel, State};
use super::view::{self, Theme};
use crate::answers::{Player, Queues, Sample, Samples, Session, Shown, Status};
use crate::plots::PLOTS;

fn player(peer: u8, name: &str, loss: f64) -> Player {
    Player {
        peer,
        name: Shown::from(name.to_owned()),
        address: Shown(format!("192.0.2.{peer}:22101")),
        state: Shown("in game".into()),
        ship_name: Some(Shown("Galaxy".into())),
        round_trip_ms: Some(40.0),
        round_trip_p50_ms: Some(40.0 + f64::from(peer)),
        round_trip_p99_ms: Some(80.0),
        loss: Some(loss),
        relay_p50_ms: Some(0.005),
        relay_p99_ms: Some(0.02),
        connected_s: 3700,
        deaths: 1,
        ..Player::default()
    }
}

fn session(number: u16) -> Session {
    Session {
        name: Shown(format!("Friday {number}")),
        port: 22101 + number,
        players: 2,
        limit: 8,
        round: 1,
        system: Shown("Multi1".into()),
        state: Shown("open".into()),
        time_left_s: Some(600),
        ..Session::default()
    }
}

fn picture(names: &[&str], sessions: u16) -> Picture {
    let sessions = (0..sessions).map(session).collect();
    let status = Status { version: Shown("0.1.0".into()), uptime_s: 7260, sessions };
    let players =
        names.iter().zip(2..).map(|(name, peer)| player(peer, name, if peer == 3 { 0.123 } else { 0.0 }));
    let dump = Shown("peer=2 retxQ=3".into());
    let queues = vec![Queues { peer: 2, unacknowledged: 3, fresh: 1, dump, ..Queues::default() }];
    let sample = |n: u64| Sample {
        time: 1000 + 5 * n,
        players: (n % 9) as f64,
        core_share: Some(0.031),
        memory_bytes: Some(24e6),
        ..Sample::default()
    };
    let samples = Samples { interval_s: 5, samples: (0..60).map(sample).collect() };
    Picture::new(status, 22101, players.collect(), queues).with(samples, true)
}

fn state(names: &[&str], sessions: u16) -> State {
    let mut state = State::new(Some("Picard".into()));
    state.take(picture(names, sessions));
    state
}

/// Draws it, and returns the lines of the screen.
fn drawn(state: &mut State, columns: u16, rows: u16) -> Vec<String> {
    let buffer = draw(state, columns, rows, &Theme { is_coloured: false });
    let line = |row: u16| (0..columns).map(|column| buffer[(column, row)].symbol().to_owned()).collect();
    (0..rows).map(line).collect()
}

fn draw(state: &mut State, columns: u16, rows: u16, theme: &Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    terminal.draw(|frame| view::draw(frame, state, theme)).expect("drawn");
    terminal.backend().buffer().clone()
}

fn press(state: &mut State, keys: &str) -> Option<Wish> {
    let mut wish = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            'V' => KeyCode::Down,
            key => KeyCode::Char(key),
        };
        if let Step::Ask(asked) = state.press(KeyEvent::new(code, KeyModifiers::NONE)) {
            wish = Some(asked);
        }
    }
    wish
}

fn find<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines
        .iter()
        .find(|line| line.contains(part))
        .unwrap_or_else(|| panic!("no {part} in\n{}", lines.join("\n")))
}

#[test]
fn everything_fits_the_smallest_usual_terminal() {
    let mut state = state(&["Alice", "Bob", "Zo\u{202e}\u{1b}[31më"], 3);
    let lines = drawn(&mut state, 80, 24);
    assert!(
        lines[0].starts_with(" up 2h1m  3 sessions  6 players  in 0/s out 0/s  core 3.1 %  memory 24 MB")
    );
    assert!(find(&lines, "Friday 2").contains("22103     2/8 open     Multi1"), "{lines:#?}");
    assert!(find(&lines, " » 3 players in Friday 0, port 22101, round 1 in Multi1, 10m left").len() > 80);
    assert!(find(&lines, "ID▼ NAME").ends_with("TIME"), "{lines:#?}");
    assert!(
        find(&lines, "Alice").contains("Galaxy           42    80   0.0%   0.01   0.02      4   1h1m"),
        "{lines:#?}"
    );
    assert!(find(&lines, "Bob").contains("12.3%!"), "a mark, not only a colour");
    assert!(find(&lines, "Zo").contains("Zo\u{fffd}\u{fffd}[31më"), "nobody takes over a terminal");
    assert!(find(&lines, "players 5").contains("RTT/ms"), "{lines:#?}");
    assert!(lines[23].starts_with(" ↑↓ move  Tab panel") && lines[23].contains("q quit"));
}

#[test]
fn a_larger_terminal_shows_more_and_a_tiny_one_says_so() {
    let mut state = state(&["Alice"], 1);
    let lines = drawn(&mut state, 140, 40);
    let table = find(&lines, "ADDRESS");
    assert!(table.contains("STATE") && table.contains("K/D/SCORE"), "{table}");
    assert!(find(&lines, "Alice").contains("192.0.2.2:22101"));
    assert!(find(&lines, "memory/MB 24.0").contains("ACK bytes/s"));
    assert!(drawn(&mut state, 40, 10)[0].contains("60 columns and 16 lines are needed"));
    assert!(
        drawn(&mut state, 20, 5).concat().replace(' ', "").contains("linesareneeded;qquits"),
        "all of it is seen"
    );
    assert!(press(&mut state, "thi\n").is_none() && state.dialog.is_none(), "nobody can see what is done");
    for (columns, rows) in [(1, 1), (60, 16), (61, 17), (300, 100)] {
        press(&mut state, "?");
        drawn(&mut state, columns, rows);
        press(&mut state, "xt");
        drawn(&mut state, columns, rows);
        press(&mut state, "\u{1b}\n");
        drawn(&mut state, columns, rows);
        press(&mut state, "\n");
    }
}

#[test]
fn colours_are_there_only_if_they_are_wanted() {
    let mut state = state(&["Alice", "Bob"], 1);
    let is_coloured = |buffer: Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert!(is_coloured(draw(&mut state, 80, 24, &Theme { is_coloured: true })));
    assert!(!is_coloured(draw(&mut state, 80, 24, &Theme { is_coloured: false })));
}

#[test]
fn players_are_sorted_and_the_picked_one_stays_picked() {
    let mut state = state(&["Bob", "alice", "Carol"], 1);
    let names = |state: &State| state.players.iter().map(|one| one.name.0.clone()).collect::<Vec<_>>();
    assert_eq!(state.peer, Some(2));
    press(&mut state, "s");
    assert_eq!(names(&state), ["alice", "Bob", "Carol"]);
    press(&mut state, "s");
    assert_eq!(names(&state), ["Carol", "alice", "Bob"], "the longest round trip first");
    press(&mut state, "s");
    assert_eq!(names(&state), ["alice", "Bob", "Carol"], "the most loss first");
    press(&mut state, "r");
    assert_eq!((names(&state)[2].as_str(), state.peer), ("alice", Some(2)));
    press(&mut state, "V");
    assert_eq!(state.player().map(|one| one.name.0.as_str()), Some("alice"));
    // Who has left is not picked any more.
    state.take(picture(&["Bob"], 1));
    assert_eq!(state.peer, Some(2));
}

#[test]
fn nobody_is_thrown_out_by_mistake() {
    let mut state = state(&["Bob", "Alice"], 1);
    assert!(press(&mut state, "kno ramming\n").is_none());
    let lines = drawn(&mut state, 80, 24);
    assert!(find(&lines, " Bob: no ramming").contains('│') && find(&lines, "y throws out").contains('└'));
    assert!(press(&mut state, "xz\n").is_none() && state.dialog.is_some(), "only yes and no count");
    assert!(press(&mut state, "n").is_none() && state.dialog.is_none());
    let Some(Wish::Do(kick)) = press(&mut state, "k\ny") else { panic!("a wish") };
    let request = Request::Kick { player: "#2".into(), reason: None };
    assert_eq!(kick, Envelope { session: Some("22101".into()), by: Some("Picard".into()), request });
    // Meanwhile another one has the id.
    press(&mut state, "k\n");
    let mut other = picture(&["Mallory"], 1);
    other.players[0].address.0 = "198.51.100.1:1".into();
    state.take(other);
    assert!(press(&mut state, "y").is_none());
    assert_eq!(state.notice, Some(Err("Bob has left".into())));
}

#[test]
fn what_is_typed_is_said_and_nothing_else() {
    let mut state = state(&["Bob"], 1);
    let Some(Wish::Do(say)) = press(&mut state, "tq?\u{202e} \n") else { panic!("a wish") };
    assert_eq!(say.request, Request::Say { to: None, text: vec!["q? ".into()] }, "keys are letters here");
    assert!(press(&mut state, "t  \n").is_none() && press(&mut state, "twell\u{1b}").is_none());
    let Some(Wish::Do(word)) = press(&mut state, "whi\n") else { panic!("a wish") };
    assert_eq!(word.request, Request::Say { to: Some("#2".into()), text: vec!["hi".into()] });
    // With AltGr on Windows.
    press(&mut state, "t");
    state.press(KeyEvent::new(KeyCode::Char('@'), KeyModifiers::CONTROL | KeyModifiers::ALT));
    let Some(Wish::Do(say)) = press(&mut state, "\n") else { panic!("a wish") };
    assert_eq!(say.request, Request::Say { to: None, text: vec!["@".into()] });
    press(&mut state, &format!("t{}", "x".repeat(500)));
    let Some(Dialog::Text { text, .. }) = &state.dialog else { panic!("a dialog") };
    assert_eq!(text.len(), 200);
    assert!(find(&drawn(&mut state, 80, 24), "Enter goes on").contains('└'));
}

#[test]
fn what_is_pasted_is_text_and_no_command() {
    let mut state = state(&["Bob"], 1);
    assert!(matches!(state.paste("k\ny\n"), Step::Stay) && state.dialog.is_none());
    press(&mut state, "t");
    state.paste("hello\r\nk\ny\u{1b}[2J\n");
    let Some(Wish::Do(say)) = press(&mut state, "\n") else { panic!("a wish") };
    assert_eq!(say.request, Request::Say { to: None, text: vec!["hello  k y[2J".into()] });
    press(&mut state, "t");
    state.paste(&"x".repeat(500));
    let Some(Dialog::Text { text, .. }) = &state.dialog else { panic!("a dialog") };
    assert_eq!(text.len(), 200);
}

#[test]
fn a_session_that_takes_nobody_says_so_also_if_it_is_the_only_one() {
    let mut state = state(&[], 1);
    state.status.sessions[0].state.0 = "stopping".into();
    let lines = drawn(&mut state, 80, 24);
    find(&lines, "nobody in Friday 0, port 22101, stopping, round 1 in Multi1, 10m left");
}

#[test]
fn another_session_is_asked_for_and_old_pictures_are_not_taken_for_it() {
    let mut state = state(&["Bob"], 2);
    assert_eq!(state.panel, Panel::Players);
    let Some(Wish::Look { port: 22102, is_whole: true }) = press(&mut state, "\t\tV") else {
        panic!("a wish")
    };
    assert!(state.players.is_empty());
    state.take(picture(&["Bob"], 2));
    assert!(state.players.is_empty(), "that was of the other one");
    state.take(Picture { port: 22102, ..picture(&["Zoë"], 2) });
    assert_eq!(state.players[0].name.0, "Zoë");
    press(&mut state, "\n\n");
    assert!(find(&drawn(&mut state, 80, 24), "queues of Zoë (#2), 192.0.2.2:22101").contains("queues"));
    assert!(find(&drawn(&mut state, 80, 24), "3 unacknowledged, 1 not sent yet").starts_with('3'));
}

#[test]
fn a_plot_has_its_highest_value_at_the_top_and_gaps_where_nothing_is_known() {
    let sample = |time: u64, trip: Option<f64>| Sample { time, round_trip_p50_ms: trip, ..Sample::default() };
    let samples: VecDeque<Sample> = (0..60)
        .map(|n| sample(1000 + 5 * n, (!(20..40).contains(&n)).then_some(if n < 20 { 50.0 } else { 100.0 })))
        .collect();
    let span = Span::of(&samples, 5);
    assert_eq!(span, Span { seconds: 300, interval: 5 });
    let area = Rect::new(0, 0, 30, 2);
    let mut buffer = Buffer::empty(area);
    Drawn { plot: &PLOTS[2], samples: &samples, span, styles: [Style::new(); 2] }.render(area, &mut buffer);
    let row = |row: u16| (0..30).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    // Half the height, nothing, and the whole: the dots of a braille letter.
    assert_eq!(row(0), format!("{}{}", "⣀".repeat(10), " ".repeat(10)) + &"⠉".repeat(10));
    assert_eq!(row(1), " ".repeat(30));
}

#[test]
fn two_lines_are_told_apart_without_colours_and_the_largest_value_is_told_where_it_fits() {
    let sample = |n: u64| Sample {
        time: 1000 + 5 * n,
        round_trip_p50_ms: Some(50.0),
        round_trip_p99_ms: Some(if n == 3 { 400.0 } else { 100.0 }),
        ..Sample::default()
    };
    let samples: VecDeque<Sample> = (0..60).map(sample).collect();
    assert_eq!(PLOTS[2].head(&samples, 26), "RTT/ms 50 100, most 400");
    assert_eq!(PLOTS[2].head(&samples, 22), "RTT/ms 50 100");
    let samples: VecDeque<Sample> = samples.into_iter().skip(4).collect();
    let (area, span) = (Rect::new(0, 0, 4, 1), Span { seconds: 200, interval: 5 });
    let mut buffer = Buffer::empty(area);
    Drawn { plot: &PLOTS[2], samples: &samples, span, styles: [Style::new(); 2] }.render(area, &mut buffer);
    let row: String = (0..4).map(|column| buffer[(column, 0)].symbol()).collect();
    assert_eq!(row, "⠓".repeat(4), "all dots of the first, half of the second");
}
