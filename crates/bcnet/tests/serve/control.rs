//! `bcnet ctl` and the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::thread;

use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::BootReason;
use serde_json::json;

use crate::connection::{RawControlConnection, connect, directory_with_control};
use crate::player::{LoopbackPlayer, join_two};
use crate::server::{ServerProcess, TestDirectory, wait_until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn kick_removes_only_the_named_player() {
    let server = ServerProcess::start(&[]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let output = server.directory.ctl(&["kick", "alice"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("kicked Alice\n", Some(0)));
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
    server.wait_for_log(&["event=\"kicked\"", "player=\"Alice\""]);
    server.wait_for_log(&["event=\"left\"", "player=\"Alice\"", "reason=\"booted"]);
    bob.chat("who was that?");
    let line = bob.chat_payload("who was that?");
    bob.run_until(|bob| bob.has_received(&line));

    // By peer id; a second kick of the same player fails.
    let output = server.directory.ctl(&["kick", "3"]);
    assert_eq!(text(&output.stdout), "kicked Bob\n");
    let output = server.directory.ctl(&["kick", "Bob"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "bcnet: no player Bob; `bcnet ctl players` lists all players\n");
    // Departed players can still be found.
    let found = server.ctl_json(&["search", "ALI"]);
    assert_eq!(found["left"][0]["name"], "Alice");
    assert_eq!(found["players"], json!([]));
}

/// A peer that is still joining has no name; an empty name must not match it.
#[test]
fn empty_player_name_matches_nobody() {
    let server = ServerProcess::start(&[]);
    let mut nameless = LoopbackPlayer::connect(server.address(), "");
    nameless.run_until(|_| !server.ctl_json(&["players"])["players"].as_array().expect("a list").is_empty());
    for name in ["", " "] {
        for command in [&["kick"][..], &["mute"], &["unmute"], &["ban"], &["queues"], &["whitelist", "--add"]]
        {
            let output = server.directory.ctl(&[command, &[name]].concat());
            let error = "bcnet: the name of the player is empty; `bcnet ctl players` lists all players\n";
            assert_eq!(
                (text(&output.stderr).as_str(), output.status.code()),
                (error, Some(1)),
                "{command:?}"
            );
        }
        let output = server.directory.ctl(&["--session", name, "players"]);
        assert!(text(&output.stderr).starts_with("bcnet: the name of the session is empty"), "{output:?}");
    }
    assert_eq!(server.ctl_json(&["players"])["players"].as_array().map(Vec::len), Some(1));
}

/// A numeric name must not protect a player from commands.
#[test]
fn numeric_player_name_does_not_hide_a_peer_id() {
    let server = ServerProcess::start(&[]);
    let [mut alice, mut two] = join_two(server.address(), ["Alice", "2"]);
    let port = server.ports[0];
    for args in [&["kick", "2"][..], &["queues", "2"], &["ban", "2"], &["say", "--to", "2", "hello"]] {
        let output = server.directory.ctl(args);
        let error = format!(
            "bcnet: 2 matches several players: '#2' (Alice, port {port}), '#3' (2, port {port}); \
             pass # and the peer id, and --session\n"
        );
        assert_eq!((text(&output.stderr), output.status.code()), (error, Some(1)), "{args:?}");
    }
    assert_eq!(text(&server.directory.ctl(&["kick", "#2"]).stdout), "kicked Alice\n");
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
    // Only one player matches now.
    assert_eq!(text(&server.directory.ctl(&["kick", "2"]).stdout), "kicked 2\n");
    assert_eq!(two.run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
    assert!(text(&server.directory.ctl(&["kick", "#2"]).stderr).contains("no player #2;"));
}

#[test]
fn peer_id_mark_alone_is_not_a_name() {
    let server = ServerProcess::start(&[]);
    let _players = join_two(server.address(), ["Alice", "#2"]);
    assert_eq!(text(&server.directory.ctl(&["kick", "#2"]).stdout), "kicked Alice\n");
}

#[test]
fn ban_removes_the_player_and_survives_a_restart() {
    let server = ServerProcess::start(&[]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let done = server.ctl_json(&["ban", "Alice", "--expiry", "2h", "--reason", "ramming", "--by", "Picard"]);
    assert_eq!(done["network"], "127.0.0.1");
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    let mut again = LoopbackPlayer::connect(server.address(), "Alice");
    assert_eq!(again.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    server.wait_for_log(&["event=\"refused\"", "banned"]);
    server.stop();
    let (status, directory) = server.wait_for_exit();
    assert_eq!(status.code(), Some(0));

    let server = ServerProcess::start_in(directory, &[], 1);
    let bans = server.ctl_json(&["bans"]);
    let ban = &bans["bans"][0];
    assert_eq!([&ban["network"], &ban["by"], &ban["reason"]], ["127.0.0.1", "Picard", "ramming"]);
    let mut again = LoopbackPlayer::connect(server.address(), "Alice");
    assert_eq!(again.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    let found = server.ctl_json(&["search", "RAMM"]);
    assert_eq!(found["bans"][0]["network"], "127.0.0.1");
    assert_eq!(server.ctl_json(&["unban", "127.0.0.1"])["done"], "unbanned 127.0.0.1");
    LoopbackPlayer::join(server.address(), "Alice");
    // A whole network.
    let mut ban = server.directory.bcnet(&["ctl", "ban", "127.0.0.0/8", "--expiry", "never"]);
    let status = ban.env_remove("SUDO_USER").env("USER", "riker").status().expect("runs");
    assert!(status.success());
    let table = text(&server.directory.ctl(&["bans"]).stdout);
    assert_eq!(table, "NETWORK      PLAYER  EXPIRES  BY     REASON\n127.0.0.0/8          never    riker\n");
}

#[test]
fn invalid_bans_are_refused_in_one_line() {
    let server = ServerProcess::start(&[]);
    for (args, part) in [
        (&["ban", "10.0.0.1/24"][..], "did you mean 10.0.0.0/24?"),
        (&["ban", "10.0.0.0/0"], "1 to 32 bits"),
        (&["ban", "10.0.0.1", "--expiry", "forever"], "not \"forever\", or `never`"),
        (&["ban", "10.0.0.1", "--expiry", "0s"], "has no effect"),
        (&["ban", "10.0.0.1", "--by", "x\ny"], "by: "),
        (&["ban", "fe80::1"], "IPv4 addresses only"),
        (&["ban", "fe80::/10"], "IPv4 addresses only"),
        (&["ban", "Nobody"], "no player Nobody"),
        (&["unban", "10.0.0.1"], "no ban is exactly 10.0.0.1"),
        (&["--session", "bcnet", "ban", "10.0.0.1"], "applies to all sessions"),
        (&["--session", "mars", "players"], "no session mars"),
    ] {
        let output = server.directory.ctl(args);
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: {error}");
    }
    assert_eq!(server.ctl_json(&["bans"]), json!({ "bans": [] }));
}

#[test]
fn queues_are_dumped_per_player() {
    let server = ServerProcess::start(&[]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    // Alice does not acknowledge this message yet.
    server.ctl_json(&["say", "anybody there?"]);
    let queues = server.ctl_json(&["queues"]);
    let dump = queues["queues"][0]["dump"].as_str().expect("text");
    assert!(dump.starts_with("peer=2 retxQ=") && dump.contains(" ackOutQ="), "{dump}");
    assert!(dump.contains("\n  retx[0] seq=0x") && dump.contains(" frag=0 rel=1 retx="), "{dump}");
    assert!(queues["queues"][0]["unacknowledged"].as_u64() >= Some(1), "{queues}");
    let shown = text(&server.directory.ctl(&["queues", "Alice"]).stdout);
    let head = format!("bcnet, port {}:\npeer=2 retxQ=", server.ports[0]);
    assert!(shown.starts_with(&head), "{shown}");
    alice.run_until(|alice| alice.received.iter().any(|payload| payload.ends_with(b"anybody there?")));
}

#[test]
fn stop_command_ends_the_server() {
    let server = ServerProcess::start(&[]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    server.ctl_json(&["stop"]);
    alice.run_until_end();
    assert_eq!(server.wait_for_exit().0.code(), Some(0));
}

#[test]
fn ctl_without_a_server_reports_one_line() {
    let directory = TestDirectory::new();
    // A server of this machine may listen at the default path.
    let mut ctl = directory.bcnet(&["ctl", "players"]);
    let output = ctl.env("BCNET_CONTROL", "absent.sock").output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.starts_with("bcnet: no server listens at ") && error.lines().count() == 1, "{error}");
}

/// If the configuration does not give the path of the socket, `bcnet ctl` must not contact another server.
#[test]
fn ctl_with_wrong_configuration_contacts_no_other_server() {
    let server = ServerProcess::start(&[]);
    let ctl = |configuration: &str, args: &[&str], control: Option<&str>| {
        std::fs::write(server.directory.path("bcnet.toml"), configuration).expect("written");
        let mut command = server.directory.bcnet(&[&["ctl"], args].concat());
        command.envs(control.map(|path| ("BCNET_CONTROL", path)));
        let output = command.output().expect("runs");
        (output.status.code(), text(&output.stderr))
    };
    // The path counts although another key is wrong.
    let (code, error) = ctl("[server]\ncontrol = \"./mine.sock\"\n[log]\nlevl = 1\n", &["stop"], None);
    assert!(code == Some(2) && error.starts_with("bcnet: no server listens at ./mine.sock;"), "{error}");
    for configuration in [
        "[server]\ncontol = \"./mine.sock\"\n",
        "[server]\ncontrol = 3\n",
        "[sever]\ncontrol = \"./mine.sock\"\n",
        "control = \"./mine.sock\"\n",
        "[server]\ncontrol = \"./mine.sock\n",
    ] {
        let (code, error) = ctl(configuration, &["stop"], None);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{configuration}: {error}");
        assert!(error.contains("name one with --socket: bcnet.toml: line "), "{configuration}: {error}");
        // The environment variable wins over the file, even over an invalid file.
        let (code, error) = ctl(configuration, &["stop"], Some("./other.sock"));
        assert!(code == Some(2) && error.contains("no server listens at ./other.sock;"), "{error}");
    }
    let (code, error) = ctl("", &["stop", "--config", "absent.toml"], None);
    assert!(code == Some(2) && error.contains("absent.toml: ") && error.contains("(os error 2)"), "{error}");
    assert!(error.contains("--config") && error.contains("bcnet config default > absent.toml"), "{error}");
    // An error in a session does not affect the path of the socket.
    assert_eq!(ctl("[[session]]\nnme = 1\n", &["status"], None), (Some(0), String::new()));
}

#[cfg(unix)]
#[test]
fn control_socket_is_accessible_to_its_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let server = ServerProcess::start(&[]);
    let socket = std::fs::metadata(server.directory.path("bcnet.sock")).expect("a socket");
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
}

#[test]
fn running_servers_socket_is_kept_and_stale_one_replaced() {
    let server = ServerProcess::start(&[]);
    let mut second =
        server.directory.bcnet(&["serve", "--bind", "127.0.0.1", "--set", "server.control=./bcnet.sock"]);
    let output = second.output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("another server listens there"), "{}", text(&output.stderr));
    server.ctl_json(&["status"]);

    let directory = server.kill();
    // A pipe on Windows ends with its process.
    assert_eq!(directory.path("bcnet.sock").exists(), cfg!(unix));
    let server = ServerProcess::start_in(directory, &[], 1);
    server.ctl_json(&["status"]);
}

/// Starts a server for connections of programs other than `bcnet ctl`.
fn server_with_control() -> ServerProcess {
    ServerProcess::start_in(directory_with_control(), &[], 1)
}

#[test]
fn requests_are_json_lines_and_invalid_ones_are_answered() {
    let server = server_with_control();
    let mut stream = connect(&server);
    stream
        .write_all(b"{\"command\":\"players\"}\nnonsense\n{\"command\":\"kick\"}\n{\"command\":\"bans\"}\n")
        .expect("written");
    stream.write_all(b"{\"command\":\"stop\",\"sesion\":\"x\"}\n").expect("written");
    let answers: Vec<serde_json::Value> = BufReader::new(&stream)
        .lines()
        .take(5)
        .map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"))
        .collect();
    assert_eq!(answers[0], json!({ "ok": { "players": [] } }));
    assert!(answers[1]["error"].as_str().expect("text").starts_with("invalid request: "));
    assert!(answers[2]["error"].as_str().expect("text").contains("player"));
    assert_eq!(answers[3], json!({ "ok": { "bans": [] } }));
    let problem = "invalid request: unknown key `sesion`; did you mean `session`?";
    assert_eq!(answers[4], json!({ "error": problem }));
}

/// A control connection must not block the game or other connections.
#[test]
fn misbehaving_control_clients_block_nobody() {
    let server = server_with_control();
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    // One client sends nothing, one half a line, one an endless line, and one never reads its answers.
    let _silent = connect(&server);
    connect(&server).write_all(b"{\"command\":").expect("written");
    let mut endless = connect(&server);
    drop(endless.write_all(&[b'x'; 100_000]));
    let mut answer = String::new();
    drop(endless.read_to_string(&mut answer));
    assert!(answer.is_empty() || answer.contains("a request must be shorter than 16384 bytes"), "{answer}");
    let mut greedy = connect(&server);
    fill_request_buffer(&mut greedy);

    assert_eq!(server.ctl_json(&["players"])["players"][0]["name"], "Alice");
    let line = alice.chat_payload("undisturbed");
    alice.chat("undisturbed");
    alice.run_until(|alice| alice.has_received(&line));

    // Further connections get an error.
    let crowd: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    let mut refusal = String::new();
    BufReader::new(crowd.last().expect("20")).read_line(&mut refusal).expect("an answer");
    assert!(refusal.contains("control connections are already open"), "{refusal}");
}

/// A request that the server did not carry out must not look like a success.
#[test]
fn request_without_a_free_connection_fails() {
    let server = server_with_control();
    let crowd: Vec<_> = (0..16).map(|_| connect(&server)).collect();
    for _ in 0..8 {
        let output = server.directory.ctl(&["ban", "10.0.0.1"]);
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        // Windows discards the answer when the server closes the pipe.
        let reason = "bcnet: 16 control connections are already open; close one and try again\n";
        assert!(cfg!(windows) || error == reason, "{error}");
    }
    drop(crowd);
    let mut bans = String::new();
    wait_until("a connection is free", || {
        let mut stream = connect(&server);
        drop(stream.write_all(b"{\"command\":\"bans\"}\n"));
        bans.clear();
        drop(BufReader::new(stream).read_line(&mut bans));
        bans.starts_with("{\"ok\"")
    });
    assert_eq!(bans, "{\"ok\":{\"bans\":[]}}\n");
}

#[cfg(unix)]
#[test]
fn server_that_closes_without_an_answer_is_an_error() {
    let directory = TestDirectory::new();
    let listener = std::os::unix::net::UnixListener::bind(directory.path("mute.sock")).expect("bound");
    // The first client is closed before its request is read, the second one after it.
    let server = thread::spawn(move || {
        drop(listener.accept().expect("a client"));
        let (client, _) = listener.accept().expect("a client");
        BufReader::new(client).read_line(&mut String::new()).expect("a request");
    });
    for _ in 0..2 {
        let output = directory.ctl(&["--socket", "mute.sock", "ban", "10.0.0.1"]);
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.starts_with("bcnet: mute.sock: the server "), "{error}");
        assert!(
            error.ends_with("; the request may have had no effect, see the log of the server\n"),
            "{error}"
        );
    }
    server.join().expect("both clients came");
}

/// Sends requests until the buffers are full, because the answers are not read.
#[cfg(unix)]
fn fill_request_buffer(connection: &mut RawControlConnection) {
    connection.set_nonblocking(true).expect("nonblocking");
    while connection.write(b"{\"command\":\"status\"}\n").is_ok() {}
}

/// Sends as much as a pipe takes at once. The answers are longer than that.
#[cfg(windows)]
fn fill_request_buffer(connection: &mut RawControlConnection) {
    connection.write_all(&b"{\"command\":\"status\"}\n".repeat(2000)).expect("written");
}

/// A follower that is open for days must not block other clients.
#[test]
fn event_followers_do_not_block_other_clients() {
    let server = server_with_control();
    let follow = || {
        let mut stream = connect(&server);
        stream.write_all(b"{\"command\":\"events\",\"count\":0,\"follow\":true}\n").expect("written");
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).expect("an answer");
        (stream, answer)
    };
    let followers: Vec<_> = (0..16).map(|_| follow()).collect();
    assert!(followers.iter().all(|(_, answer)| answer.starts_with("{\"ok\":")), "{followers:?}");
    let (refused, answer) = follow();
    assert_eq!(answer, "{\"error\":\"16 clients already follow events; stop one and try again\"}\n");
    // All other clients can still send requests, including the one that was refused.
    let mut asking: Vec<_> = std::iter::once(refused).chain((1..16).map(|_| connect(&server))).collect();
    for stream in &mut asking {
        stream.write_all(b"{\"command\":\"bans\"}\n").expect("written");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("an answer");
        assert_eq!(answer, "{\"ok\":{\"bans\":[]}}\n");
    }
}

/// Simultaneous changes of several operators are all kept.
#[test]
fn concurrent_whitelist_changes_are_all_applied() {
    let server = server_with_control();
    let streams: Vec<_> = (0..8).map(|_| connect(&server)).collect();
    thread::scope(|scope| {
        for (operator, stream) in streams.iter().enumerate() {
            scope.spawn(move || {
                let (mut writer, mut answers) = (stream, BufReader::new(stream));
                for number in 0..25 {
                    let network = format!("10.{operator}.{number}.0/24");
                    let request = json!({ "command": "whitelist", "add": network });
                    writeln!(writer, "{request}").expect("written");
                    let mut answer = String::new();
                    answers.read_line(&mut answer).expect("an answer");
                    assert!(answer.contains(&network), "{answer}");
                }
            });
        }
    });
    let listed = server.ctl_json(&["whitelist"])["whitelist"].clone();
    assert_eq!(listed.as_array().expect("a list").len(), 8 * 25);
}
