//! The life of a server: players join, chat and leave, and the server reloads and stops.

use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::BootReason;

use crate::player::{LoopbackPlayer, join_two, run_both_until};
use crate::server::{ServerProcess, TestDirectory};

/// Plays a game with the given arguments.
fn play_full_game(args: &[&str]) {
    let server = ServerProcess::start(args);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    server.wait_for_log(&["event=\"joined\"", "player=\"Alice\"", "slot=0", "peer=2"]);
    server.wait_for_log(&["event=\"in_game\"", "player=\"Bob\"", "peer=3"]);

    // Chat goes to everyone, the sender included, with the sender's id.
    let line = alice.chat_payload("hello, world");
    alice.chat("hello, world");
    alice.run_until(|alice| alice.has_received(&line));
    bob.run_until(|bob| bob.has_received(&line));
    server.wait_for_log(&["event=\"chat\"", "player=\"Alice\"", "text=\"hello, world\""]);

    let players = server.ctl_json(&["players"]);
    let names: Vec<_> =
        players["players"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["Alice", "Bob"]);

    server.stop();
    for player in [&mut alice, &mut bob] {
        assert_eq!(player.run_until_end(), DisconnectReason::HostLeft);
    }
    server.wait_for_log(&["event=\"left\"", "player=\"Alice\"", "reason=\"the server was stopped\""]);
    let (status, directory) = server.wait_for_exit();
    assert_eq!(status.code(), Some(0));
    assert!(!directory.path("bcnet.sock").exists());
}

#[test]
fn players_join_chat_and_get_the_disconnect_notice() {
    play_full_game(&[]);
}

#[test]
fn players_join_and_chat_with_portable_sockets() {
    play_full_game(&["--portable-io"]);
}

/// Without an ACK of the disconnect notice the server stops after a timeout. A second signal stops it at
/// once.
#[test]
fn second_signal_ends_the_server_at_once() {
    let server = ServerProcess::start(&[]);
    let _silent = LoopbackPlayer::join(server.address(), "Silent");
    server.signal("INT");
    server.wait_for_log(&["event=\"stopping\""]);
    server.signal("INT");
    let (status, _) = server.wait_for_exit();
    assert_eq!(status.code(), Some(130));

    let server = ServerProcess::start(&[]);
    let _silent = LoopbackPlayer::join(server.address(), "Silent");
    server.signal("INT");
    let (status, _) = server.wait_for_exit();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn explicit_port_is_never_changed() {
    let server = ServerProcess::start(&[]);
    let port = server.ports[0].to_string();
    let directory = TestDirectory::new();
    let second = directory.bcnet(&["serve", "--bind", "127.0.0.1", "--port", &port]).output().expect("runs");
    assert_eq!(second.status.code(), Some(2));
    let error = String::from_utf8_lossy(&second.stderr);
    assert_eq!(
        error,
        format!("bcnet: UDP port {port} is in use; stop the other program, or pass another --port\n")
    );
    assert!(second.stdout.is_empty());
}

#[test]
fn default_port_falls_back_to_the_next_free_one() {
    let first = ServerProcess::start(&[]);
    let second = ServerProcess::start(&[]);
    assert_ne!(first.ports, second.ports);
    assert!((22101..=22201).contains(&second.ports[0]));
    second.wait_for_log(&["event=\"port_moved\"", &format!("port={}", second.ports[0])]);
}

#[test]
fn ipv6_bind_address_is_refused_with_a_reason() {
    let directory = TestDirectory::new();
    for address in ["::", "::1", "[::1]"] {
        let output = directory.bcnet(&["serve", "--bind", address]).output().expect("runs");
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("IPv6") && error.contains("carries IPv4 addresses only"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn one_process_hosts_many_sessions() {
    let directory = TestDirectory::new();
    let text = "[[session]]\nname = \"one\"\n[[session]]\nname = \"two\"\nplayer_limit = 1\n";
    std::fs::write(directory.path("bcnet.toml"), text).expect("written");
    let server = ServerProcess::start_in(directory, &[], 2);
    let [one, two] = [0, 1].map(|n| std::net::SocketAddrV4::new(*server.address().ip(), server.ports[n]));
    let mut alice = LoopbackPlayer::join(one, "Alice");
    let mut bob = LoopbackPlayer::join(two, "Bob");
    let mut late = LoopbackPlayer::connect(two, "Late");
    assert_eq!(late.run_until_end(), DisconnectReason::Booted(BootReason::FULL));

    // Each player gets only the messages of its session.
    let done = server.ctl_json(&["--session", "two", "say", "for", "two"]);
    assert_eq!(done["done"], "sent to 1 session");
    bob.run_until(|bob| bob.received.iter().any(|payload| payload.ends_with(b"for two")));
    let done = server.ctl_json(&["say", "for all"]);
    assert_eq!(done["done"], "sent to 2 sessions");
    alice.run_until(|alice| alice.received.iter().any(|payload| payload.ends_with(b"for all")));
    assert!(alice.received.iter().all(|payload| !payload.ends_with(b"for two")));
    let status = server.ctl_json(&["status"]);
    let sessions = status["sessions"].as_array().expect("a list");
    assert_eq!(sessions.iter().map(|one| &one["players"]).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(server.ctl_json(&["restart"])["done"], "2 sessions begin the next round");
}

#[test]
fn console_shows_one_server_for_many_threads() {
    for threads in ["1", "2", "3"] {
        let directory = TestDirectory::new();
        let text: String =
            ["one", "two", "three"].map(|name| format!("[[session]]\nname = \"{name}\"\n")).concat();
        std::fs::write(directory.path("bcnet.toml"), text).expect("written");
        let threads_set = format!("server.threads={threads}");
        let server =
            ServerProcess::start_in(directory, &["--set", &threads_set, "--write", "game.pcapng"], 3);
        server.wait_for_log(&["event=\"started\"", "sessions=3", &format!("threads={threads}")]);
        let at = |n: usize| std::net::SocketAddrV4::new(*server.address().ip(), server.ports[n]);
        let _alice = LoopbackPlayer::join(at(0), "Alice");
        let mut bob = LoopbackPlayer::join(at(1), "Bob");
        let _carol = LoopbackPlayer::join(at(2), "Carol");
        let players = server.ctl_json(&["players"]);
        let names = |key: &str| -> Vec<String> {
            let players = players["players"].as_array().expect("a list");
            players.iter().map(|one| one[key].as_str().expect("text").to_owned()).collect()
        };
        assert_eq!(
            (names("session"), names("name")),
            (
                ["one", "two", "three"].map(Into::into).to_vec(),
                ["Alice", "Bob", "Carol"].map(Into::into).to_vec(),
            )
        );
        // All players have the peer id 2, in different threads; a name is unique.
        let output = server.directory.ctl(&["kick", "2"]);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(["Alice", "Bob", "Carol"].iter().all(|name| error.contains(name)), "{error}");
        assert_eq!(server.ctl_json(&["kick", "bob"])["done"], "kicked Bob");
        assert_eq!(bob.run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
        // A ban applies in every thread.
        assert_eq!(server.directory.ctl(&["ban", "127.0.0.0/8"]).status.code(), Some(0));
        for n in 0..3 {
            assert_eq!(
                LoopbackPlayer::connect(at(n), "Late").run_until_end(),
                DisconnectReason::Booted(BootReason::BANNED),
                "{n}"
            );
        }
        assert_eq!(server.ctl_json(&["players"])["players"].as_array().map(Vec::len), Some(0));
        server.stop();
        let ports = server.ports.clone();
        let (status, directory) = server.wait_for_exit();
        assert_eq!(status.code(), Some(0));
        // One capture has the datagrams of all threads.
        let capture = directory.bcnet(&["inspect", "game.pcapng", "--json"]).output().expect("it runs");
        let capture = String::from_utf8_lossy(&capture.stdout).into_owned();
        assert!(ports.iter().all(|port| capture.contains(&format!(":{port}\""))), "{ports:?}");
    }
}

#[test]
fn reload_applies_settings_and_drops_no_player() {
    let directory = TestDirectory::new();
    let file = directory.path("bcnet.toml");
    std::fs::write(&file, "[[session]]\nname = \"before\"\n").expect("written");
    let server = ServerProcess::start_in(directory, &[], 1);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");

    std::fs::write(&file, "[[session]]\nname = \"after\"\nwelcome = \"be nice\"\n").expect("written");
    server.reload();
    server.wait_for_log(&["event=\"reloaded\""]);
    assert_eq!(server.ctl_json(&["status"])["sessions"][0]["name"], "after");
    let mut bob = LoopbackPlayer::connect(server.address(), "Bob");
    run_both_until(&mut alice, &mut bob, |bob| {
        bob.received.iter().any(|payload| payload.ends_with(b"be nice"))
    });
    alice.chat("still here");
    let line = alice.chat_payload("still here");
    alice.run_until(|alice| alice.has_received(&line));
    bob.run_until(|bob| bob.has_received(&line));

    // An invalid file changes nothing, and the error has the line.
    std::fs::write(&file, "[[session]]\nname = \"worse\"\nplayer_limits = 3\n").expect("written");
    let output = server.directory.ctl(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("line 3") && error.contains("player_limit") && error.contains("nothing was changed"),
        "{error}"
    );
    server.wait_for_log(&["event=\"reload_failed\"", "line 3"]);
    server.reload();
    server.wait_for_log(&["event=\"reload_failed\"", "line 3"]);
    assert_eq!(server.ctl_json(&["status"])["sessions"][0]["name"], "after");
    // The answer names the settings that need a restart.
    std::fs::write(
        &file,
        "[log]\nlevel = \"debug\"\n[[session]]\nsilence_timeout = \"30s\"\nkeepalive = \"4s\"\n",
    )
    .expect("written");
    let done = server.ctl_json(&["reload"]);
    let restart = ["session.1.keepalive", "session.1.silence_timeout"];
    assert_eq!(done["needs_restart"], serde_json::json!(restart));
    // A second reload names them again; they are not named after the change is reverted.
    assert_eq!(server.ctl_json(&["reload"])["needs_restart"], serde_json::json!(restart));
    std::fs::write(&file, "[[session]]\n").expect("written");
    assert_eq!(server.ctl_json(&["reload"])["needs_restart"], serde_json::json!([]));
    std::fs::write(&file, "[[session]]\n[[session]]\n").expect("written");
    let output = server.directory.ctl(&["reload"]);
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("the configuration has 2 sessions, the server runs 1")
    );
    assert_eq!(alice.end, None);
}

/// Reading a pipe without a writer would never end.
#[cfg(unix)]
#[test]
fn pipes_in_place_of_files_are_refused() {
    let directory = TestDirectory::new();
    let [config, bans] = ["bcnet.toml", "bans.toml"].map(|name| directory.path(name));
    std::fs::write(&config, "").expect("written");
    let server = ServerProcess::start_in(directory, &[], 1);
    let problem = "not a regular file but a pipe, a device or a directory; put a regular file there";
    for file in [&bans, &config] {
        drop(std::fs::remove_file(file));
        let made = std::process::Command::new("mkfifo").arg(file).status().expect("mkfifo");
        assert!(made.success());
        let output = server.directory.ctl(&["--socket", "bcnet.sock", "reload"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(error.contains(problem) && error.contains(&name), "{error}");
        assert_eq!(output.status.code(), Some(1));
        std::fs::remove_file(file).expect("removed");
        std::fs::write(file, "").expect("written");
    }
    server.stop();
    assert_eq!(server.wait_for_exit().0.code(), Some(0));
}

#[test]
fn manual_bans_apply_after_a_reload() {
    let server = ServerProcess::start(&[]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    std::fs::write(server.directory.path("bans.toml"), "[[ban]]\naddress = \"127.0.0.0/8\"\n")
        .expect("written");
    server.reload();
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    server.wait_for_log(&["event=\"left\"", "player=\"Alice\"", "banned"]);
}

/// The server reads the file before it writes a ban, so edits of the operator apply without a reload.
#[test]
fn manual_bans_apply_with_the_next_ban() {
    let server = ServerProcess::start(&[]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    std::fs::write(server.directory.path("bans.toml"), "[[ban]]\naddress = \"127.0.0.0/8\"\n")
        .expect("written");
    server.ctl_json(&["ban", "192.0.2.1"]);
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    server.wait_for_log(&["event=\"left\"", "player=\"Alice\"", "banned"]);
}

#[test]
fn restart_begins_the_next_round_for_all_players() {
    let server =
        ServerProcess::start(&["--set", "session.rotation=Albirea, Multi3", "--set", "session.time_limit=5"]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    assert_eq!(server.ctl_json(&["status"])["sessions"][0]["round"], 1);
    server.ctl_json(&["restart"]);
    alice.run_until(|alice| alice.has_received(&[0x39]));
    let status = &server.ctl_json(&["status"])["sessions"][0];
    assert_eq!((&status["round"], &status["system"]), (&2.into(), &"Albirea".into()));
    assert!(status["time_left_s"].as_u64().is_some_and(|left| (200..=300).contains(&left)), "{status}");
    let summary =
        server.wait_for_log(&["event=\"round_ended\"", "round=1", "system=Multi1", "reason=\"restart"]);
    let alice = r#"players=[{"name":"Alice","points":0,"kills":0,"deaths":0,"seconds":"#;
    assert!(summary.contains(alice), "{summary}");
    let events = server.ctl_json(&["events"]);
    let ended =
        events["events"].as_array().and_then(|events| events.iter().find(|it| it["event"] == "round_ended"));
    assert_eq!(ended.expect("logged")["players"][0]["name"], "Alice", "{events}");
    server.wait_for_log(&["event=\"round_started\"", "round=2", "system=Albirea"]);
    assert_eq!(server.ctl_json(&["restart"])["done"], "1 session begins the next round");
}
