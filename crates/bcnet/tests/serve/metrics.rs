//! What monitoring is told.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::player::join_two;
use crate::server::{Directory, PATIENCE, Server};

/// Asks for something, and returns the first line of the answer and its body.
pub(crate) fn get(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect(&text);
    (head.lines().next().unwrap_or_default().into(), body.into())
}

/// Has Prometheus' own tool look at something. Skipped where it is not installed.
pub(crate) fn promtool(args: &[&str], input: &str) {
    let mut check = Command::new("promtool");
    let check = check.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut check) = check.spawn() else { return };
    check.stdin.take().expect("piped").write_all(input.as_bytes()).expect("read");
    let output = check.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A server that gives out figures, and where.
fn monitored() -> (Server, String) {
    let directory = Directory::new();
    let file = "[[hook]]\nname = \"crew\"\nurl = \"https://127.0.0.1:9/\"\n[scores]\nfile = \"scores.db\"\n";
    std::fs::write(directory.path("bcnet.toml"), file).expect("written");
    let server = Server::start_in(
        directory,
        &["--set", "server.metrics=127.0.0.1:0", "--set", "server.masters=192.0.2.1"],
        1,
    );
    let line = server.logged(&["event=\"started\""]);
    let place = line.split("metrics=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a place");
    let place = place.to_owned();
    (server, place)
}

fn value(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {page}"))
}

#[test]
fn a_server_gives_out_figures_that_prometheus_takes() {
    let (server, place) = monitored();
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "<script>"]);
    let line = alice.chat_of("hello");
    alice.chat("hello");
    alice.until(|alice| alice.has(&line));
    bob.until(|bob| bob.has(&line));
    let (status, page) = get(&place, "GET /metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let port = format!("{{port=\"{}\"}}", server.ports[0]);
    let of = |name: &str| value(&page, &format!("bcnet_{name}{port}"));
    assert!((of("players_in_game"), of("player_limit"), of("session_open")) == (2.0, 8.0, 1.0), "{page}");
    assert!(of("received_datagrams_total") > 10.0 && of("sent_bytes_total") > 100.0);
    assert!(of("relay_delay_seconds_count") > 0.0 && of("admitted_players_total") == 2.0);
    assert!(!page.contains("script") && !page.contains("Alice"), "players are no labels");
    promtool(&["check", "metrics"], &page);
}

#[test]
fn health_is_what_the_game_loop_says() {
    let (server, place) = monitored();
    for path in ["GET /livez", "GET /readyz"] {
        assert_eq!(get(&place, path), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    }
    let port = server.ports[0].to_string();
    server.ask(&["--session", &port, "stop"]);
    assert_eq!(get(&place, "GET /readyz").0, "HTTP/1.1 503 Service Unavailable", "nobody can join");
    assert_eq!(get(&place, "GET /livez").0, "HTTP/1.1 200 OK");
    server.ask(&["start"]);
    assert_eq!(get(&place, "GET /readyz").0, "HTTP/1.1 200 OK");
    assert_eq!(get(&place, "POST /metrics").0, "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(get(&place, "GET /etc/passwd").0, "HTTP/1.1 404 Not Found");
}

/// The board and the alerts ask for nothing that is not there.
#[test]
fn every_query_names_figures_that_exist() {
    let (_server, place) = monitored();
    let mut page = get(&place, "GET /metrics").1;
    // Names of list servers are looked up beside all else.
    while !page.contains("bcnet_master_heard{") {
        page = get(&place, "GET /metrics").1;
    }
    let names: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let read = |name: &str| std::fs::read_to_string(format!("{deploy}/{name}")).expect(name);
    let (board, alerts) = (read("grafana.json"), read("alerts.yml"));
    serde_json::from_str::<serde_json::Value>(&board).expect("JSON");
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let asked = board.split(|letter| !is_name(letter)).chain(alerts.split(|letter| !is_name(letter)));
    let asked: BTreeSet<&str> = asked.filter(|word| word.starts_with("bcnet_")).collect();
    assert!(asked.len() > 20, "{asked:?}");
    assert_eq!(asked.difference(&names).collect::<Vec<_>>(), [] as [&&str; 0]);
    promtool(&["check", "rules", &format!("{deploy}/alerts.yml")], "");
}

#[test]
fn an_address_that_is_taken_is_told() {
    let (server, place) = monitored();
    let taken = format!("server.metrics={place}");
    let output = server.directory.bcnet(&["serve", "--set", &taken]).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("server.metrics: cannot listen at TCP 127.0.0.1:"), "{error}");
}
