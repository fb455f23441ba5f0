//! What goes wrong beside the game.

use std::fs;
use std::net::SocketAddrV4;
#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

use bcnet_session::client::End;

use crate::player::{Player, join_two};
use crate::server::{Directory, Server};

/// The command is there in debug builds only, such as those that tests are made with.
#[test]
fn a_session_that_panics_ends_alone_and_the_log_says_where() {
    let directory = Directory::new();
    fs::write(directory.path("bcnet.toml"), "[[session]]\nname = \"one\"\n[[session]]\nname = \"two\"\n")
        .expect("written");
    let server = Server::start_in(directory, &["--set", "server.threads=1"], 2);
    let [one, two] = [0, 1].map(|n| SocketAddrV4::new(*server.address().ip(), server.ports[n]));
    let mut alice = Player::join(one, "Alice");
    let [mut bob, mut carol] = join_two(two, ["Bob", "Carol"]);
    server.ask(&["ban", "192.0.2.1"]);

    server.ask(&["--session", "one", "panic"]);
    let panic = server.logged(&["event=\"panic\"", "asked for"]);
    assert!(panic.contains("location=\"") && panic.contains(".rs:"), "{panic}");
    server.logged(&["event=\"session_failed\"", &format!("port={}", server.ports[0]), "asked for"]);
    assert_eq!(alice.until_over(), End::HostLeft);
    server.logged(&["event=\"left\"", "player=\"Alice\"", "reason=\"this game has failed\""]);

    let line = bob.chat_of("what was that?");
    bob.chat("what was that?");
    bob.until(|bob| bob.has(&line));
    carol.until(|carol| carol.has(&line));
    // It begins anew when nobody waits for the goodbye any more.
    let _again = Player::join(one, "Alice");
    assert_eq!(server.ask(&["players"])["players"].as_array().map(Vec::len), Some(3));

    server.stop();
    assert_eq!(bob.until_over(), End::HostLeft);
    assert_eq!(server.end().0.code(), Some(0));
}

/// No file can be opened any more, then it can again.
#[cfg(target_os = "linux")]
#[test]
fn without_file_handles_the_game_goes_on_and_the_console_waits() {
    let server = Server::start(&[]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let limit = |files: &str| {
        let id = server.id().to_string();
        let set = Command::new("prlimit").args(["--pid", &id, &format!("--nofile={files}:")]).status();
        assert!(set.expect("prlimit runs").success());
    };
    // New ones get the lowest number that is free.
    limit("3");
    // The system has set one aside for whoever comes next.
    server.ask(&["status"]);
    let mut asked = server.directory.bcnet(&["ctl", "status", "--json"]);
    let mut asked = asked.stdout(Stdio::piped()).spawn().expect("bcnet ctl runs");
    for text in ["is", "anybody", "there?"] {
        let line = alice.chat_of(text);
        alice.chat(text);
        alice.until(|alice| alice.has(&line));
        bob.until(|bob| bob.has(&line));
    }
    assert!(asked.try_wait().expect("a child").is_none(), "nobody can answer");
    limit("1024");
    let answer = asked.wait_with_output().expect("an answer");
    let status: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    assert_eq!(status["sessions"][0]["players"], 2);
}
