//! `bcnet top` in a pseudo-terminal, against a real server.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use bcnet_session::client::End;
use bcnet_transport::wire::BootReason;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::player::{Player, join_two};
use crate::run::signal;
use crate::server::{Directory, PATIENCE, Server};

/// The program in a terminal.
struct Top {
    terminal: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    program: Box<dyn Child + Send + Sync>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// How the terminal was before: raw modes must not stay.
    modes: String,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn lines(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("some")
}

impl Top {
    fn start(server: &Server, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let pair = native_pty_system().openpty(size(80, 24)).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_bcnet"));
        command.arg("top");
        command.args(["--socket".as_ref(), server.directory.path("bcnet.sock").as_os_str()]);
        command.args(args);
        command.cwd(&server.directory.0);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        // What a panic says must not be pushed off the screen.
        command.env_remove("RUST_BACKTRACE");
        for (name, value) in variables {
            command.env(name, value);
        }
        let modes = format!("{:?}", pair.master.get_termios());
        let program = pair.slave.spawn_command(command).expect("bcnet top runs");
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let keyboard = pair.master.take_writer().expect("a writer");
        let (tell, output) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It ends with an error when the program does.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if tell.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let screen = vt100::Parser::new(lines(24), lines(80), 0);
        Self { terminal: pair.master, keyboard, program, output, screen, modes }
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen has all of these.
    fn shows(&mut self, parts: &[&str]) {
        while !parts.iter().all(|part| self.text().contains(part)) {
            let Ok(bytes) = self.output.recv_timeout(PATIENCE) else {
                panic!("no {parts:?} in\n{}", self.text())
            };
            self.screen.process(&bytes);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).and_then(|()| self.keyboard.flush()).expect("pressed");
    }

    /// Waits for its end. Returns its exit code and what it leaves on the terminal, which must be as before.
    fn end(mut self) -> (u32, String) {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
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
fn a_host_sees_who_plays_and_how_and_acts() {
    let server = Server::start(&["--name", "Friday"]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let mut top = Top::start(&server, &["--by", "Picard"], &[("NO_COLOR", "1")]);
    top.shows(&["2 players in Friday, port ", "Alice", "Bob", "in_game", "last 5 min", "k kick"]);
    top.press("\r");
    top.shows(&["queues of Alice (#2), 127.0.0.1:", "peer=2 retxQ=", "unacknowledged"]);
    top.press("\u{1b}");
    top.shows(&["last 5 min"]);
    top.press("?");
    top.shows(&["any key goes back", "throw the picked player out"]);
    top.press("x");

    // As a terminal tells what is pasted: its line ends are no keys.
    top.press("t\u{1b}[200~hello\rall\u{1b}[201~");
    top.shows(&["hello all"]);
    top.press("\r");
    top.shows(&["said in 1 session"]);
    let heard = |text: &'static [u8]| move |one: &Player| one.heard.iter().any(|said| said.ends_with(text));
    bob.until(heard(b"hello all"));
    top.press("w");
    top.shows(&["say to Alice alone"]);
    top.press("psst\r");
    top.shows(&["said to Alice"]);
    alice.until(heard(b"psst"));
    assert!(!heard(b"psst")(&bob));

    // Down to Bob, whom a mistaken key does not throw out.
    top.press("\u{1b}[Bk");
    top.shows(&["throw Bob out: why?"]);
    top.press("no ramming\rn");
    top.press("k");
    top.shows(&["throw Bob out: why?"]);
    top.press("no ramming\r");
    top.shows(&["throw out?", "Bob: no ramming"]);
    assert_eq!(server.ask(&["players"])["players"].as_array().map(Vec::len), Some(2));
    top.press("y");
    assert_eq!(bob.until_over(), End::Booted(BootReason::KICKED));
    assert!(heard(b"no ramming")(&bob), "it was told why");
    top.shows(&["1 player in Friday"]);
    let history = server.ask(&["history"]);
    let last = history["history"].as_array().and_then(|list| list.last()).expect("an entry");
    assert_eq!([&last["by"], &last["what"]], ["Picard", "kick #3 no ramming"], "{history}");

    // The plots begin with the first sample.
    top.shows(&["players 1", "core ", "memory "]);
    assert!(top.text().contains(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter)), "{}", top.text());
    let screen = top.screen.screen();
    let cells = (0..24).flat_map(|row| (0..80).filter_map(move |column| screen.cell(row, column)));
    assert!(cells.map(vt100::Cell::fgcolor).all(|color| color == vt100::Color::Default), "no colours");

    top.terminal.resize(size(140, 40)).expect("resized");
    top.screen.set_size(lines(40), lines(140));
    top.shows(&["ADDRESS", "K/D/SCORE", "sent again/s", "memory/MB"]);
    top.press("q");
    assert_eq!(top.end().0, 0);
}

#[test]
fn sessions_can_be_picked_and_the_rest_follows() {
    let directory = Directory::new();
    let file = "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\n";
    std::fs::write(directory.path("bcnet.toml"), file).expect("written");
    let server = Server::start_in(directory, &[], 2);
    let _eve = Player::join(server.address(), "\u{1b}[2JEve");
    let mut top = Top::start(&server, &["--session", "two"], &[]);
    top.shows(&["sessions: 2", "nobody in Two, port "]);
    top.press("k");
    top.shows(&["nobody is picked"]);
    // Two panels further are the sessions.
    top.press("\t\t");
    top.shows(&["» sessions: 2"]);
    top.press("\u{1b}[A");
    // Her name does not clear the screen.
    top.shows(&["1 player in One", "[2JEve", "sessions: 2"]);
    top.press("a");
    top.shows(&["min of One"]);
    top.press("\u{3}");
    assert_eq!(top.end().0, 0);
}

#[test]
fn the_terminal_is_put_back_whatever_ends_it() {
    let server = Server::start(&[]);
    let start = || {
        let mut top = Top::start(&server, &[], &[]);
        top.shows(&["nobody in bcnet, port "]);
        top
    };
    let top = start();
    signal(top.program.process_id().expect("a process"), "TERM");
    assert_eq!(top.end().0, 0);

    if cfg!(debug_assertions) {
        let mut top = start();
        top.press("\u{1b}[24~");
        let (code, left) = top.end();
        assert!(code == 101 && left.contains("asked for"), "{code}: {left}");
    }

    let top = start();
    server.stop();
    assert_eq!(server.end().0.code(), Some(0));
    let (code, left) = top.end();
    assert_eq!(code, 1, "{left}");
    assert!(left.contains("bcnet: ") && left.contains("bcnet.sock: the server "), "{left}");
}
