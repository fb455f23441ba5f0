//! `bcnet join` with servers that admit it, refuse it, or do not answer.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use bcnet_session::game;
use serde_json::Value;

use crate::player::LoopbackPlayer;
use crate::run::wait_with_output;
use crate::scripted_host::{admission_messages, run_scripted_host};
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory, signal, spawn_line_reader, wait_until};

/// Joins `port` of this machine without any input, and waits for the exit.
fn join(port: u16, args: &[&str]) -> Output {
    let address = format!("127.0.0.1:{port}");
    let mut command = TestDirectory::new().bcnet(&[&["join", &address], args].concat());
    command.current_dir(".").stdin(Stdio::null()).output().expect("bcnet join runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Asserts that the command failed and printed the reason in one line.
fn assert_fails(output: &Output, port: u16, reason: &str) {
    let expected = format!("bcnet: 127.0.0.1:{port}: {reason}\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), expected));
}

/// A running `bcnet join`.
struct JoinProcess {
    child: Child,
    output: Receiver<String>,
}

impl JoinProcess {
    fn start(port: u16, args: &[&str]) -> Self {
        let address = format!("127.0.0.1:{port}");
        let mut command = TestDirectory::new().bcnet(&[&["join", &address], args].concat());
        command.current_dir(".").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("bcnet join runs");
        let output = spawn_line_reader(child.stdout.take().expect("piped"));
        Self { child, output }
    }

    /// Waits for a line of standard output.
    fn wait_for_line(&self, wanted: &str) {
        loop {
            let line = self.output.recv_timeout(TEST_TIMEOUT).unwrap_or_else(|_| panic!("no line {wanted}"));
            if line.contains(wanted) {
                return;
            }
        }
    }

    fn type_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{line}").and_then(|()| input.flush()).expect("it reads");
    }

    /// Waits for the exit. Standard input stays open until then.
    fn wait_for_exit(mut self) -> Output {
        let _input = self.child.stdin.take();
        wait_with_output(self.child)
    }
}

#[test]
fn check_prints_each_step_and_leaves() {
    let server = ServerProcess::start(&[]);
    let output = join(server.ports[0], &["--check"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let shown = text(&output.stdout);
    let steps: Vec<&str> = shown.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let address = format!("127.0.0.1:{}:", server.ports[0]);
    assert_eq!(steps, ["connect", "files", "load", "enter", "leave", &address]);
    assert!(shown.contains(" ms  5 checks\n") && shown.contains("Mission1, slot 0\n"), "{shown}");
    server.wait_for_log(&["event=\"left\"", "player=\"bcnet\"", "reason=\"disconnected"]);
    let output = join(server.ports[0], &["--check", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&value["ok"], &value["failed"], output.status.code()), (&true.into(), &Value::Null, Some(0)));
    let steps: Vec<&str> =
        value["steps"].as_array().expect("steps").iter().filter_map(|step| step["step"].as_str()).collect();
    assert_eq!(steps, ["connect", "files", "load", "enter", "leave"]);
    assert!(value["steps"][1]["ms"].is_f64() && value["ms"].is_f64());
}

#[test]
fn say_option_is_delivered_before_leaving() {
    let server = ServerProcess::start(&[]);
    let mut bob = LoopbackPlayer::join(server.address(), "Bob");
    let port = server.ports[0];
    let saying = thread::spawn(move || join(port, &["--say", "five minutes!", "--name", "Herald"]));
    bob.run_until(|bob| bob.received.iter().any(|payload| payload.ends_with(b"five minutes!")));
    // Bob sees that Herald left: its name is removed from the player list.
    bob.run_until(|bob| bob.has_received(&[&[0x18, 6, 0][..], b"Herald"].concat()));
    let output = saying.join().expect("it ran");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn interactive_join_lists_players_and_chats_until_ctrl_c() {
    let server = ServerProcess::start(&[]);
    let mut bob = LoopbackPlayer::join(server.address(), "Bob");
    let mut joined = JoinProcess::start(server.ports[0], &["--name", "Scotty"]);
    bob.run_until(|bob| bob.client.players().any(|(_, player)| player.name == "Scotty" && player.listed));
    joined.wait_for_line("plays Multiplayer.Episode.Mission1.Mission1; this is slot 1");
    joined.wait_for_line("in Multi1, 8 players at most");
    joined.wait_for_line("* in the game as Scotty (peer 3)");
    joined.wait_for_line("* Bob joined");
    joined.type_line("aye");
    bob.run_until(|bob| bob.received.iter().any(|payload| payload.ends_with(b"aye")));
    joined.wait_for_line("<Scotty> aye");
    bob.chat("beam us up");
    joined.wait_for_line_with(&mut bob, "<Bob> beam us up");
    bob.leave();
    joined.wait_for_line("* Bob left");
    signal(joined.child.id(), "INT");
    let output = joined.wait_for_exit();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    server.wait_for_log(&["event=\"left\"", "player=\"Scotty\"", "reason=\"disconnected"]);
}

impl JoinProcess {
    /// Waits for a line while a player keeps running.
    fn wait_for_line_with(&self, player: &mut LoopbackPlayer, wanted: &str) {
        let found = std::cell::Cell::new(false);
        player.run_until(|_| {
            found.set(found.get() || self.output.try_iter().any(|line| line.contains(wanted)));
            found.get()
        });
    }
}

#[test]
fn end_of_input_leaves_after_all_chat_is_sent() {
    let server = ServerProcess::start(&[]);
    let mut joined = JoinProcess::start(server.ports[0], &["--json"]);
    joined.type_line("one");
    joined.type_line("");
    joined.type_line("two");
    drop(joined.child.stdin.take());
    server.wait_for_log(&["event=\"chat\"", "text=\"one\""]);
    server.wait_for_log(&["event=\"chat\"", "text=\"two\""]);
    let events: Vec<Value> =
        joined.output.iter().map(|line| serde_json::from_str(&line).expect("JSON")).collect();
    assert_eq!(joined.wait_for_exit().status.code(), Some(0));
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let expected = ["connected", "file_check", "settings", "load", "mission", "entered"];
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
    let gone = events.last().expect("an end");
    assert_eq!(
        (&gone["event"], &gone["reason"], &gone["error"]),
        (&"gone".into(), &"left".into(), &Value::Null)
    );
}

/// The JSON output has the same error as the text output.
#[test]
fn last_json_object_contains_the_error() {
    let server = ServerProcess::start(&["--set", "session.password=engage"]);
    let port = server.ports[0];
    let output = join(port, &["--json"]);
    assert_fails(&output, port, "the server needs a password; pass --password");
    let shown = text(&output.stdout);
    let last: Value = serde_json::from_str(shown.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["event"], &last["step"]), (&"gone".into(), &"connecting".into()));
    assert_eq!(
        (&last["reason"], &last["error"]),
        (&"booted: wrong_password".into(), &"the server needs a password; pass --password".into())
    );
}

#[test]
fn kick_during_leave_is_reported_as_a_kick() {
    for args in [&["--say", "spam"][..], &["--json", "--say", "spam"]] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let port = socket.local_addr().expect("bound").port();
        let hosting = thread::spawn(move || run_scripted_host(&socket, admission_messages));
        assert_fails(&join(port, args), port, "kicked");
        hosting.join().expect("it threw a client out");
    }
}

#[test]
fn long_chat_text_is_split_into_several_messages() {
    let server = ServerProcess::start(&[]);
    let mut bob = LoopbackPlayer::join(server.address(), "Bob");
    let (port, say) = (server.ports[0], format!("{} {}", "x".repeat(380), "y".repeat(20)));
    let saying = thread::spawn(move || join(port, &["--say", &say]));
    bob.run_until(|bob| bob.received.iter().any(|payload| payload.ends_with(&[b'x'; 380])));
    bob.run_until(|bob| bob.received.iter().any(|payload| payload.ends_with(&[b'y'; 20])));
    assert_eq!(saying.join().expect("it ran").status.code(), Some(0));
}

#[cfg(unix)]
#[test]
fn unacknowledged_chat_is_reported_as_not_sent() {
    let server = ServerProcess::start(&[]);
    let mut joined = JoinProcess::start(server.ports[0], &[]);
    joined.wait_for_line("* in the game");
    server.signal("STOP");
    joined.type_line("anybody?");
    drop(joined.child.stdin.take());
    let output = joined.wait_for_exit();
    server.signal("CONT");
    assert_fails(&output, server.ports[0], "the server did not acknowledge the disconnect");
}

#[test]
fn interrupt_during_join_is_reported_as_not_joined() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    let joined = JoinProcess::start(port, &[]);
    socket.recv_from(&mut [0; 2048]).expect("a request");
    signal(joined.child.id(), "INT");
    assert_fails(&joined.wait_for_exit(), port, "interrupted while connecting");
}

#[test]
fn refused_client_prints_the_reason() {
    let server =
        ServerProcess::start(&["--set", "session.password=engage", "--set", "session.player_limit=1"]);
    let port = server.ports[0];
    assert_fails(&join(port, &[]), port, "the server needs a password; pass --password");
    assert_fails(&join(port, &["--password", "Engage"]), port, "wrong password");
    let mut alice = LoopbackPlayer::connect_with(server.address(), "Alice", "engage");
    alice.run_until(LoopbackPlayer::is_in_game);
    let playing = thread::spawn(move || {
        alice.run_until_end();
        alice
    });
    assert_fails(&join(port, &["--password", "engage"]), port, "the server is full");
    server.ctl_json(&["ban", "127.0.0.1"]);
    playing.join().expect("banned");
    let output = join(port, &["--check", "--password", "engage"]);
    assert_fails(&output, port, "connect: banned from this server");
    let output = join(port, &["--check", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        (&value["ok"], &value["failed"], &value["error"]),
        (&false.into(), &"connect".into(), &"banned from this server".into())
    );
}

/// S-13: the limit of an address applies to untrusted addresses, and its reason is not that the server is full.
#[test]
fn client_over_the_address_limit_prints_the_setting() {
    let server = ServerProcess::start(&["--set", "session.players_per_address=1"]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let port = server.ports[0];
    let joining = thread::spawn(move || join(port, &[]));
    alice.run_until(|_| joining.is_finished());
    let output = joining.join().expect("it ran");
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    assert!(error.contains("players_per_address") && !error.contains("full"), "{error}");
    server.wait_for_log(&["event=\"refused\"", "address_limit"]);
}

#[test]
fn kicked_client_prints_the_reason() {
    let server = ServerProcess::start(&[]);
    let joined = JoinProcess::start(server.ports[0], &["--name", "Q"]);
    joined.wait_for_line("* in the game");
    server.ctl_json(&["kick", "Q"]);
    assert_fails(&joined.wait_for_exit(), server.ports[0], "kicked");
    // The server refuses the address for a moment after a kick.
    assert_fails(
        &join(server.ports[0], &["--check"]),
        server.ports[0],
        "connect: kicked a moment ago: try again in a few seconds",
    );

    let server = ServerProcess::start(&[]);
    let joined = JoinProcess::start(server.ports[0], &[]);
    joined.wait_for_line("* in the game");
    server.stop();
    assert_fails(&joined.wait_for_exit(), server.ports[0], "the server has closed the connection");
}

#[test]
fn differing_files_are_named_and_a_manifest_fixes_it() {
    let directory = TestDirectory::new();
    let mut learn = directory
        .bcnet(&["manifest", "learn", "--bind", "127.0.0.1", "--port", "0", "--out", "stock.manifest"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("bcnet manifest runs");
    let ready =
        spawn_line_reader(learn.stdout.take().expect("piped")).recv_timeout(TEST_TIMEOUT).expect("ready");
    let port = ready.strip_prefix("manifest ready port=").and_then(|port| port.parse().ok()).expect("a port");
    // The server disconnects the client after it has all checksums.
    assert_eq!(join(port, &["--check"]).status.code(), Some(1));
    assert!(wait_with_output(learn).status.success());
    let learned = fs::read_to_string(directory.path("stock.manifest")).expect("written");
    let other = learned.replacen("version 7E0CE243", "version 11223344", 1);
    assert_ne!(learned, other);
    fs::write(directory.path("stock.manifest"), other).expect("written");
    let manifest = directory.path("stock.manifest").display().to_string();
    let strict = ["--set", "session.checksums=strict", "--set", "session.manifests=stock.manifest"];
    let server = ServerProcess::start_in(directory, &strict, 1);
    let port = server.ports[0];
    let advice = "the server accepts only certain installations; pass --manifest FILE from one of them (bcnet manifest learn)";
    let message = "files differ: game version 60 - use the same files as this server";
    assert_fails(&join(port, &[]), port, &format!("{message}: {advice}"));
    assert_fails(&join(port, &["--check"]), port, &format!("files: {message}: {advice}"));
    assert_eq!(join(port, &["--check", "--manifest", &manifest]).status.code(), Some(0));
}

#[test]
fn silent_server_is_reported_as_no_answer() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    assert_fails(&join(port, &["--timeout", "400ms"]), port, "no answer within 400ms");
}

#[test]
fn closed_port_is_reported() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    drop(socket);
    let output = join(port, &["--timeout", "400ms"]);
    assert_fails(&output, port, "no answer within 400ms: no program listens on that port");
}

#[test]
fn malformed_server_answers_are_reported() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    let answering = thread::spawn(move || {
        let mut buffer = [0; 2048];
        let (_, from) = socket.recv_from(&mut buffer).expect("a request");
        socket.send_to(&[0xAB; 100], from).expect("sent");
    });
    let output = join(port, &["--timeout", "400ms"]);
    answering.join().expect("asked");
    let reason =
        "the server sends invalid data, for example a datagram (malformed); the join failed while connecting";
    assert_fails(&output, port, reason);
}

#[test]
fn server_that_stops_during_join_is_reported_with_the_step() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    let hosting = thread::spawn(move || run_scripted_host(&socket, |_, _| Vec::new()));
    let output = join(port, &["--check", "--timeout", "1s"]);
    let reason = "files: the server stopped answering while file checks: join not finished within 1s";
    assert_fails(&output, port, reason);
    assert!(text(&output.stdout).starts_with("connect "), "{}", text(&output.stdout));
    hosting.join().expect("it let a client in");
}

#[test]
fn stop_after_settings_is_reported_after_the_file_check() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    let hosting = thread::spawn(move || {
        run_scripted_host(&socket, |peer, received| {
            admission_messages(peer, received)
                .into_iter()
                .filter(|m| !matches!(m, game::Message::GameInit(_)))
                .collect()
        });
    });
    let output = join(port, &["--check", "--timeout", "1s"]);
    assert_fails(
        &output,
        port,
        "load: the server stopped answering while loading: join not finished within 1s",
    );
    assert!(text(&output.stdout).contains(" ms  1 check\n"), "{}", text(&output.stdout));
    hosting.join().expect("it let a client in");
}

#[test]
fn chat_beyond_queue_capacity_is_sent_later() {
    let server = ServerProcess::start(&[]);
    let mut joined = JoinProcess::start(server.ports[0], &[]);
    let many = "make it so\n".repeat(20_000);
    let mut input = joined.child.stdin.take().expect("piped");
    input.write_all(many.as_bytes()).expect("it reads");
    drop(input);
    let output = joined.wait_for_exit();
    // A busy machine may not get all chat acknowledged in time; that is not tested here.
    assert_ne!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn lost_server_is_reported_to_the_user() {
    let server = ServerProcess::start(&[]);
    let mut joined = JoinProcess::start(server.ports[0], &[]);
    joined.wait_for_line("* in the game");
    server.signal("KILL");
    // The system answers each datagram with "port unreachable".
    let is_reported = |line: String| line == "* no program listens on the server's port any more";
    wait_until("the loss of the server is reported", || {
        joined.type_line("hello?");
        joined.output.recv_timeout(Duration::from_millis(50)).is_ok_and(is_reported)
    });
    signal(joined.child.id(), "INT");
    signal(joined.child.id(), "INT");
    assert_eq!(joined.wait_for_exit().status.code(), Some(0));
}

#[test]
fn invalid_arguments_give_one_line_and_exit_code_2() {
    let run = |args: &[&str]| {
        TestDirectory::new().bcnet(&[&["join"], args].concat()).current_dir(".").output().expect("it runs")
    };
    for (args, part) in [
        (&["no-such-host.invalid"][..], "no-such-host.invalid: unknown host"),
        (&["127.0.0.1", "--timeout", "0s"], "--timeout: expected a time above zero, such as 3s"),
        (&["127.0.0.1", "--manifest", "no-such-file"], "no-such-file"),
    ] {
        let output = run(args);
        let shown = text(&output.stderr);
        assert_eq!((output.status.code(), shown.lines().count()), (Some(2), 1), "{shown}");
        assert!(shown.contains(part), "{shown}");
    }
    let only_ipv4 = "is IPv6, but the game's protocol carries IPv4 addresses only";
    for (address, reason) in [
        ("::1", only_ipv4),
        ("[::1]:22101", only_ipv4),
        ("127.0.0.1:0", "port: expected a number from 1 to 65535, not 0"),
        ("127.0.0.1:70000", "port: expected a number from 1 to 65535, not 70000"),
        ("a b", "expected `\"HOST\"` or `\"HOST:PORT\"`"),
    ] {
        let output = run(&[address]);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(reason), "{output:?}");
    }
    for args in [
        &["127.0.0.1", "--name", " "][..],
        &["127.0.0.1", "--say", " "],
        &["127.0.0.1", "--say", "x", "--check"],
        &[],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}
