//! `bcnet top` in a pseudo-terminal, with a real server.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::BootReason;
use bcnet_udp::Clock;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::player::{LoopbackPlayer, join_two};
use crate::run::signal;
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory};

/// `bcnet top` in a pseudo-terminal.
struct TopProcess {
    terminal: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    program: Box<dyn Child + Send + Sync>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// The terminal modes before the start, which must be restored at the end.
    modes: String,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn line_count(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("some")
}

impl TopProcess {
    fn start(server: &ServerProcess, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let pair = native_pty_system().openpty(size(80, 24)).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_bcnet"));
        command.arg("top");
        command.args(["--socket".as_ref(), server.directory.path("bcnet.sock").as_os_str()]);
        command.args(args);
        command.cwd(&server.directory.0);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        // A backtrace would push the panic message off the screen.
        command.env_remove("RUST_BACKTRACE");
        for (name, value) in variables {
            command.env(name, value);
        }
        let modes = format!("{:?}", pair.master.get_termios());
        let program = pair.slave.spawn_command(command).expect("bcnet top runs");
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let keyboard = pair.master.take_writer().expect("a writer");
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails when the program has ended.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let screen = vt100::Parser::new(line_count(24), line_count(80), 0);
        Self { terminal: pair.master, keyboard, program, output, screen, modes }
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen shows all of `parts`.
    fn wait_for_text(&mut self, parts: &[&str]) {
        // `top` redraws all the time, so a timeout of each read would never be reached.
        let clock = Clock::start();
        let started = clock.now();
        while !parts.iter().all(|part| self.text().contains(part)) {
            let left = TEST_TIMEOUT.saturating_sub(clock.now().since(started));
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("no {parts:?} in\n{}", self.text())
            };
            self.screen.process(&bytes);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).and_then(|()| self.keyboard.flush()).expect("pressed");
    }

    /// Waits for the exit and asserts that the terminal is restored. Returns the exit code and the screen.
    fn wait_for_exit(mut self) -> (u32, String) {
        while let Ok(bytes) = self.output.recv_timeout(TEST_TIMEOUT) {
            self.screen.process(&bytes);
        }
        let code = self.program.wait().expect("ended").exit_code();
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{}", self.text());
        assert!(!screen.bracketed_paste(), "{}", self.text());
        assert_eq!(format!("{:?}", self.terminal.get_termios()), self.modes);
        (code, self.text())
    }
}

#[test]
fn top_shows_players_and_runs_commands() {
    let server = ServerProcess::start(&["--name", "Friday"]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let mut top = TopProcess::start(&server, &["--by", "Picard"], &[("NO_COLOR", "1")]);
    top.wait_for_text(&["2 players in Friday, port ", "Alice", "Bob", "in_game", "last 5 min", "k kick"]);
    top.press("\r");
    top.wait_for_text(&["queues of Alice (#2), 127.0.0.1:", "peer=2 retxQ=", "unacknowledged"]);
    top.press("\u{1b}");
    top.wait_for_text(&["last 5 min"]);
    top.press("?");
    top.wait_for_text(&["any key closes this", "kick the selected player"]);
    top.press("x");

    // A bracketed paste: line ends in it are not key presses.
    top.press("t\u{1b}[200~hello\rall\u{1b}[201~");
    top.wait_for_text(&["hello all"]);
    top.press("\r");
    top.wait_for_text(&["sent to 1 session"]);
    let has_received = |text: &'static [u8]| {
        move |one: &LoopbackPlayer| one.received.iter().any(|payload| payload.ends_with(text))
    };
    bob.run_until(has_received(b"hello all"));
    top.press("w");
    top.wait_for_text(&["say to Alice only"]);
    top.press("psst\r");
    top.wait_for_text(&["sent to Alice"]);
    alice.run_until(has_received(b"psst"));
    assert!(!has_received(b"psst")(&bob));

    // Select Bob. A wrong key at the confirmation must not kick him.
    top.press("\u{1b}[Bk");
    top.wait_for_text(&["reason for the kick of Bob"]);
    top.press("no ramming\rn");
    top.press("k");
    top.wait_for_text(&["reason for the kick of Bob"]);
    top.press("no ramming\r");
    top.wait_for_text(&["kick this player?", "Bob: no ramming"]);
    assert_eq!(server.ctl_json(&["players"])["players"].as_array().map(Vec::len), Some(2));
    top.press("y");
    assert_eq!(bob.run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
    assert!(has_received(b"no ramming")(&bob), "Bob gets the reason");
    top.wait_for_text(&["1 player in Friday"]);
    let history = server.ctl_json(&["history"]);
    let last = history["history"].as_array().and_then(|list| list.last()).expect("an entry");
    assert_eq!([&last["by"], &last["what"]], ["Picard", "kick #3 no ramming"], "{history}");

    // The plots start with the first sample.
    top.wait_for_text(&["players 1", "core ", "memory "]);
    assert!(top.text().contains(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter)), "{}", top.text());
    let screen = top.screen.screen();
    let cells = (0..24).flat_map(|row| (0..80).filter_map(move |column| screen.cell(row, column)));
    assert!(cells.map(vt100::Cell::fgcolor).all(|color| color == vt100::Color::Default), "no colours");

    top.terminal.resize(size(140, 40)).expect("resized");
    top.screen.set_size(line_count(40), line_count(140));
    top.wait_for_text(&["ADDRESS", "K/D/SCORE", "retransmits/s", "memory/MB"]);
    top.press("q");
    assert_eq!(top.wait_for_exit().0, 0);
}

#[test]
fn top_selects_sessions() {
    let directory = TestDirectory::new();
    let file = "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\n";
    std::fs::write(directory.path("bcnet.toml"), file).expect("written");
    let server = ServerProcess::start_in(directory, &[], 2);
    let _eve = LoopbackPlayer::join(server.address(), "\u{1b}[2JEve");
    let mut top = TopProcess::start(&server, &["--session", "two"], &[]);
    top.wait_for_text(&["sessions: 2", "no players in Two, port "]);
    top.press("k");
    top.wait_for_text(&["no player is selected"]);
    // The sessions are two panels further.
    top.press("\t\t");
    top.wait_for_text(&["» sessions: 2"]);
    top.press("\u{1b}[A");
    // Control characters in the name do not clear the screen.
    top.wait_for_text(&["1 player in One", "[2JEve", "sessions: 2"]);
    top.press("a");
    top.wait_for_text(&["min of One"]);
    top.press("\u{3}");
    assert_eq!(top.wait_for_exit().0, 0);
}

#[test]
fn top_restores_the_terminal_however_it_ends() {
    let server = ServerProcess::start(&[]);
    let start = || {
        let mut top = TopProcess::start(&server, &[], &[]);
        top.wait_for_text(&["no players in bcnet, port "]);
        top
    };
    let top = start();
    signal(top.program.process_id().expect("a process"), "TERM");
    assert_eq!(top.wait_for_exit().0, 0);

    if cfg!(debug_assertions) {
        let mut top = start();
        top.press("\u{1b}[24~");
        let (code, left) = top.wait_for_exit();
        assert!(code == 101 && left.contains("panic by the key F12"), "{code}: {left}");
    }

    let top = start();
    server.stop();
    assert_eq!(server.wait_for_exit().0.code(), Some(0));
    let (code, left) = top.wait_for_exit();
    assert_eq!(code, 1, "{left}");
    assert!(left.contains("bcnet: ") && left.contains("bcnet.sock: the server "), "{left}");
}
