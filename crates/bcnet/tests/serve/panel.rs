//! What hosting panels and container daemons are told about the program is what it does.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Stdio;

use serde_json::Value;

use crate::server::{Directory, PATIENCE, Server, lines, signal};

fn project(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned() + name;
    fs::read_to_string(&path).expect(&path)
}

fn egg() -> Value {
    serde_json::from_str(&project("deploy/egg-bcnet.json")).expect("JSON")
}

/// The variables of the egg, with their defaults, but for the one that only its installation reads.
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

/// The panel replaces the port, waits for a line, sends what is typed in its console, and stops by what it takes for Ctrl-C.
#[test]
fn the_egg_starts_it_knows_when_it_is_ready_talks_to_it_and_stops_it() {
    let egg = egg();
    let directory = Directory::new();
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
    let log = lines(child.stderr.take().expect("piped"));
    let output = lines(child.stdout.take().expect("piped"));
    let told = output.recv_timeout(PATIENCE);
    let ready: Value = serde_json::from_str(egg["config"]["startup"].as_str().expect("text")).expect("JSON");
    let done = ready["done"].as_str().expect("a line");
    assert!(told.as_ref().is_ok_and(|line| line.starts_with(&format!("{done}{port} "))), "{told:?}");
    writeln!(child.stdin.as_mut().expect("piped"), "players").expect("written");
    assert_eq!(output.recv_timeout(PATIENCE).as_deref(), Ok("nobody is here"));
    assert_eq!(egg["config"]["stop"], "^C");
    signal(child.id(), "INT");
    while log.recv_timeout(PATIENCE).is_ok() {}
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

/// An unknown variable would have no effect.
#[test]
fn the_variables_of_egg_and_compose_file_are_settings() {
    let egg = egg();
    let directory = Directory::new();
    let compose = project("compose.yaml");
    let of_compose: Vec<(&str, &str)> = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("BCNET_"))
        .map(|line| line.split_once(": ").expect("a value"))
        .collect();
    assert!(!of_compose.is_empty());
    let of_compose =
        of_compose.into_iter().map(|(name, value)| (format!("BCNET_{name}"), value.trim_matches('"')));
    let checked = directory.bcnet(&["config", "check"]).envs(variables(&egg)).envs(of_compose).output();
    let checked = checked.expect("bcnet config runs");
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "fine: 1 session\n");
}

#[test]
fn variables_of_others_keep_no_server_from_starting() {
    let server = Server::start_with(Directory::new(), &[], 1, &[("BCNET_IMAGE", "1.2")]);
    let line = server.logged(&["event=\"unknown_variables\""]);
    assert!(line.contains("variables=\"BCNET_IMAGE\""), "{line}");
}
