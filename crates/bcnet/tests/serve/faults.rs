//! Faults outside the game: panics and missing file handles.

use std::fs;
use std::net::SocketAddrV4;
#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

use bcnet_session::client::DisconnectReason;

use crate::player::{LoopbackPlayer, join_two};
use crate::server::{ServerProcess, TestDirectory};

/// The `panic` command exists only in debug builds, which tests use.
#[test]
fn panicking_session_ends_alone_and_is_logged() {
    let directory = TestDirectory::new();
    fs::write(directory.path("bcnet.toml"), "[[session]]\nname = \"one\"\n[[session]]\nname = \"two\"\n")
        .expect("written");
    let server = ServerProcess::start_in(directory, &["--set", "server.threads=1"], 2);
    let [one, two] = [0, 1].map(|n| SocketAddrV4::new(*server.address().ip(), server.ports[n]));
    let mut alice = LoopbackPlayer::join(one, "Alice");
    let [mut bob, mut carol] = join_two(two, ["Bob", "Carol"]);
    server.ctl_json(&["ban", "192.0.2.1"]);

    server.ctl_json(&["--session", "one", "panic"]);
    let panic = server.wait_for_log(&["event=\"panic\"", "panic requested"]);
    assert!(panic.contains("location=\"") && panic.contains(".rs:"), "{panic}");
    server.wait_for_log(&[
        "event=\"session_failed\"",
        &format!("port={}", server.ports[0]),
        "panic requested",
    ]);
    assert_eq!(alice.run_until_end(), DisconnectReason::HostLeft);
    server.wait_for_log(&["event=\"left\"", "player=\"Alice\"", "reason=\"this game has failed\""]);

    let line = bob.chat_payload("what was that?");
    bob.chat("what was that?");
    bob.run_until(|bob| bob.has_received(&line));
    carol.run_until(|carol| carol.has_received(&line));
    // The session restarts when it no longer waits for ACKs of the disconnect notice.
    let _again = LoopbackPlayer::join(one, "Alice");
    assert_eq!(server.ctl_json(&["players"])["players"].as_array().map(Vec::len), Some(3));

    server.stop();
    assert_eq!(bob.run_until_end(), DisconnectReason::HostLeft);
    assert_eq!(server.wait_for_exit().0.code(), Some(0));
}

/// No more files can be opened for a while.
#[cfg(target_os = "linux")]
#[test]
fn game_continues_without_free_file_handles() {
    let server = ServerProcess::start(&[]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let limit = |files: &str| {
        let id = server.id().to_string();
        let set = Command::new("prlimit").args(["--pid", &id, &format!("--nofile={files}:")]).status();
        assert!(set.expect("prlimit runs").success());
    };
    // New files get the lowest free number.
    limit("3");
    // The system has already reserved a file for the next connection.
    server.ctl_json(&["status"]);
    let mut command = server.directory.bcnet(&["ctl", "status", "--json"]);
    let mut client = command.stdout(Stdio::piped()).spawn().expect("bcnet ctl runs");
    for text in ["is", "anybody", "there?"] {
        let line = alice.chat_payload(text);
        alice.chat(text);
        alice.run_until(|alice| alice.has_received(&line));
        bob.run_until(|bob| bob.has_received(&line));
    }
    assert!(client.try_wait().expect("a child").is_none(), "the server cannot accept the connection");
    limit("1024");
    let answer = crate::run::wait_with_output(client);
    let status: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    assert_eq!(status["sessions"][0]["players"], 2);
}
