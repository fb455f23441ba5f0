//! `bcnet query` against correct and faulty servers, over loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::{Command, Output};
use std::thread;

use serde_json::Value;

/// Starts a server that answers the first query with `datagrams`.
fn start_server(datagrams: Vec<Vec<u8>>) -> (u16, thread::JoinHandle<Vec<u8>>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    let answer = move || {
        let mut buffer = [0; 2048];
        let (len, from) = socket.recv_from(&mut buffer).expect("a question");
        for datagram in datagrams {
            socket.send_to(&datagram, from).expect("sent");
        }
        buffer[..len].to_vec()
    };
    (port, thread::spawn(answer))
}

fn query(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bcnet")).arg("query").args(args).output().expect("bcnet runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Returns a reply in three datagrams, in the wrong order.
fn split_reply() -> Vec<Vec<u8>> {
    vec![
        b"\\player_1\\M\xFCller\\final\\\\queryid\\4.3".to_vec(),
        b"\\player_0\\Kirk\\queryid\\4.2".to_vec(),
        b"\\gamename\\bcommander\\hostname\\Test\\numplayers\\2\\maxplayers\\8\\mapname\\DM\\system\\Multi1\\queryid\\4.1".to_vec(),
    ]
}

#[test]
fn reply_in_several_datagrams_is_reassembled() {
    let (port, asked) = start_server(split_reply());
    let output = query(&[&format!("127.0.0.1:{port}"), "--json", "--timeout", "20s"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["address"], format!("127.0.0.1:{port}"));
    assert_eq!(found["players"], serde_json::json!(["Kirk", "Müller"]));
    assert_eq!(found["rules"]["hostname"], "Test");
    assert_eq!(asked.join().expect("answered"), b"\\status\\");
}

#[test]
fn text_output_shows_players_and_settings() {
    let (port, _) = start_server(split_reply());
    let output = query(&[&format!("localhost:{port}"), "--timeout", "20s"]);
    let shown = text(&output.stdout);
    assert!(shown.starts_with(&format!("127.0.0.1:{port}  Test  ")), "{shown}");
    assert!(
        shown.contains("\n  system         Multi1\n") && shown.ends_with("  players\n    Kirk\n    Müller\n"),
        "{shown}"
    );
}

#[test]
fn raw_output_shows_datagrams_as_received() {
    let (port, _) = start_server(split_reply());
    let output = query(&[&format!("127.0.0.1:{port}"), "--raw", "--timeout", "20s"]);
    let shown = text(&output.stdout);
    assert_eq!(shown.lines().count(), 3);
    let first = format!("127.0.0.1:{port} \\player_1\\M\\xFCller\\final\\\\queryid\\4.3\n");
    assert!(shown.starts_with(&first), "{shown}");
}

#[test]
fn hostile_replies_count_as_no_answer() {
    let endless: Vec<Vec<u8>> = (0..500).map(|n| format!("\\a\\b\\queryid\\{n}.1").into_bytes()).collect();
    let junk = vec![vec![], vec![0x5C; 1400], vec![0xFF; 2000], b"\\final\\\\queryid\\1.999999999".to_vec()];
    for datagrams in [endless, junk] {
        let (port, _) = start_server(datagrams);
        let output = query(&[&format!("127.0.0.1:{port}"), "--timeout", "300ms"]);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
        assert_eq!(text(&output.stderr), format!("bcnet: 127.0.0.1:{port}: no answer within 300ms\n"));
    }
}

#[test]
fn lan_scan_lists_servers_that_answer() {
    // One of the ports that a game searches, whichever is free.
    let free = (22102..=22201).rev().find_map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let socket = free.expect("a free port");
    let port = socket.local_addr().expect("bound").port();
    let server = thread::spawn(move || {
        let mut buffer = [0; 64];
        let (_, from) = socket.recv_from(&mut buffer).expect("a question");
        for datagram in split_reply() {
            socket.send_to(&datagram, from).expect("sent");
        }
    });
    let output = query(&["--lan", "--broadcast", "127.0.0.1", "--timeout", "1s"]);
    server.join().expect("asked");
    let shown = text(&output.stdout);
    let line = shown.lines().find(|line| line.starts_with(&format!("127.0.0.1:{port} "))).expect("listed");
    assert!(line.contains("    2/8  DM          Multi1 ") && line.ends_with("  Test"), "{line}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn impossible_query_prints_one_error_line() {
    for (args, part) in [
        (&["no-such-host.invalid"][..], "no-such-host.invalid: unknown host"),
        (&["127.0.0.1", "--timeout", "0s"], "--timeout: expected a time above zero, such as 3s"),
    ] {
        let output = query(args);
        assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 1));
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
    assert_eq!(query(&["127.0.0.1:0"]).status.code(), Some(2));
}

/// Starts a list server that sends a greeting and a list.
fn start_list_server(greeting: &'static [u8], list: Vec<u8>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        // The client may have closed the connection.
        drop(stream.write_all(greeting));
        let mut request = Vec::new();
        let mut buffer = [0; 512];
        while !request.ends_with(b"\\list\\cmp\\gamename\\bcommander\\final\\") {
            match stream.read(&mut buffer) {
                Ok(len) if len > 0 => request.extend(&buffer[..len]),
                _ => return,
            }
        }
        drop(stream.write_all(&list));
    });
    port
}

const GREETING: &[u8] = b"\\basic\\\\secure\\ABCDEF";

fn list_entry(port: u16) -> Vec<u8> {
    [&[127, 0, 0, 1], &port.to_be_bytes()[..]].concat()
}

#[test]
fn listed_servers_are_queried_and_silent_ones_named() {
    let (port, asked) = start_server(split_reply());
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let silent_port = silent.local_addr().expect("bound").port();
    let list = || [list_entry(port), list_entry(silent_port), b"\\final\\".to_vec()].concat();
    let master = format!("127.0.0.1:{}", start_list_server(GREETING, list()));
    let output = query(&["--master", &master, "--timeout", "1s"]);
    let shown = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{shown}");
    let line = shown.lines().find(|line| line.starts_with(&format!("127.0.0.1:{port} "))).expect(&shown);
    assert!(line.ends_with("  Test"), "{line}");
    let quiet = format!("127.0.0.1:{silent_port}");
    assert!(shown.lines().any(|line| line == format!("{quiet:<21}  no answer")), "{shown}");
    assert_eq!(asked.join().expect("answered"), b"\\status\\");
    // No server answers any more.
    let master = format!(
        "127.0.0.1:{}",
        start_list_server(GREETING, [list_entry(silent_port), b"\\final\\".to_vec()].concat())
    );
    let output = query(&["--master", &master, "--timeout", "300ms", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found, serde_json::json!({"address": quiet, "error": "no answer"}));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn hostile_list_server_prints_one_error_line() {
    let endless = vec![7; 1 << 20];
    let cut = [list_entry(22101), vec![1, 2, 3]].concat();
    for (greeting, list, part) in [
        (GREETING, endless, "is longer than 6151 bytes"),
        (GREETING, cut, "is truncated or not a list"),
        (GREETING, Vec::new(), "closed the connection without an answer"),
        (GREETING, b"\x01\\final\\".to_vec(), "is truncated or not a list"),
        (b"HTTP/1.1 400 Bad Request\r\n", Vec::new(), "is not a list server of the game"),
        (b"\\basic\\\\secure\\ABC\x00\xFFF", Vec::new(), "is malformed"),
        (b"\\basic\\\\sec", Vec::new(), "did not answer in time"),
    ] {
        let port = start_list_server(greeting, list);
        let output = query(&["--master", &format!("127.0.0.1:{port}"), "--timeout", "2s"]);
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{error}");
        assert!(error.starts_with(&format!("bcnet: 127.0.0.1:{port}: ")) && error.contains(part), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
