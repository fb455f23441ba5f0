//! The files for hosting panels and containers match the program.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Stdio;

use serde_json::Value;

use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory, drain_lines, signal, spawn_line_reader};

fn project_file(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned() + name;
    fs::read_to_string(&path).expect(&path)
}

fn egg() -> Value {
    serde_json::from_str(&project_file("deploy/egg-bcnet.json")).expect("JSON")
}

/// Returns the variables of the egg with their defaults, without the one that only its installer reads.
fn variables(egg: &Value) -> Vec<(&str, &str)> {
    let variables = egg["variables"].as_array().expect("a list").iter();
    variables
        .map(|variable| {
            let text = |key: &str| variable[key].as_str().expect("text");
            (text("env_variable"), text("default_value"))
        })
        .filter(|(name, _)| *name != "RELEASE_URL")
        .collect()
}

/// The panel inserts the port, waits for a line, sends console input, and stops the server with Ctrl-C.
#[test]
fn egg_starts_controls_and_stops_the_server() {
    let egg = egg();
    let directory = TestDirectory::new();
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let startup = egg["startup"].as_str().expect("a command").replace("{{SERVER_PORT}}", &port);
    let mut words = startup.split(' ');
    assert_eq!(words.next(), Some("./bcnet"));
    let args: Vec<&str> = words.chain(["--bind", "127.0.0.1"]).collect();
    let mut child = directory
        .bcnet(&args)
        .envs(variables(&egg))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bcnet serve runs");
    let log = spawn_line_reader(child.stderr.take().expect("piped"));
    let output = spawn_line_reader(child.stdout.take().expect("piped"));
    let line = output.recv_timeout(TEST_TIMEOUT);
    let ready: Value = serde_json::from_str(egg["config"]["startup"].as_str().expect("text")).expect("JSON");
    let done = ready["done"].as_str().expect("a line");
    assert!(line.as_ref().is_ok_and(|line| line.starts_with(&format!("{done}{port} "))), "{line:?}");
    writeln!(child.stdin.as_mut().expect("piped"), "players").expect("written");
    assert_eq!(output.recv_timeout(TEST_TIMEOUT).as_deref(), Ok("no players"));
    assert_eq!(egg["config"]["stop"], "^C");
    signal(child.id(), "INT");
    drain_lines(&log);
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

/// A misspelt variable would have no effect.
#[test]
fn egg_and_compose_variables_are_valid_settings() {
    let egg = egg();
    let directory = TestDirectory::new();
    let compose = project_file("compose.yaml");
    let compose_variables: Vec<(&str, &str)> = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("BCNET_"))
        .map(|line| line.split_once(": ").expect("a value"))
        .collect();
    assert!(!compose_variables.is_empty());
    let compose_variables =
        compose_variables.into_iter().map(|(name, value)| (format!("BCNET_{name}"), value.trim_matches('"')));
    let checked =
        directory.bcnet(&["config", "check"]).envs(variables(&egg)).envs(compose_variables).output();
    let checked = checked.expect("bcnet config runs");
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "fine: 1 session\n");
}

#[test]
fn foreign_variables_do_not_prevent_startup() {
    let server = ServerProcess::start_with(TestDirectory::new(), &[], 1, &[("BCNET_IMAGE", "1.2")]);
    let line = server.wait_for_log(&["event=\"unknown_variables\""]);
    assert!(line.contains("variables=\"BCNET_IMAGE\""), "{line}");
}
