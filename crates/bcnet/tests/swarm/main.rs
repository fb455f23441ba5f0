//! Simulated players on a real server, over loopback.

mod broken_rules;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A server with two sessions on consecutive ports.
struct TwoSessionServer {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl TwoSessionServer {
    fn start(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("bcnet-swarm-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        for _ in 0..20 {
            let port = free_port_pair();
            let config = format!(
                "[server]\nbind = \"127.0.0.1\"\ncontrol = \"none\"\n[[session]]\nport = {port}\n[[session]]\nport = {}\n",
                port + 1
            );
            fs::write(directory.join("bcnet.toml"), config).expect("written");
            let mut child = Command::new(env!("CARGO_BIN_EXE_bcnet"))
                .arg("serve")
                .current_dir(&directory)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("bcnet serve runs");
            let ready = BufReader::new(child.stdout.take().expect("piped")).lines().take(2).flatten().count();
            if ready == 2 {
                return Self { child, directory, port };
            }
            // Another program took one of the ports.
            drop(child.kill());
            drop(child.wait());
        }
        panic!("no two free ports");
    }

    fn swarm(&self, args: &[&str]) -> Output {
        let server = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new(env!("CARGO_BIN_EXE_bcnet"));
        command.args(["swarm", &server]).args(args).output().expect("bcnet swarm runs")
    }
}

impl Drop for TwoSessionServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Returns the first of two free consecutive ports.
fn free_port_pair() -> u16 {
    loop {
        let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let port = first.local_addr().expect("bound").port();
        if port < u16::MAX && UdpSocket::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return port;
        }
    }
}

fn parse_report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn players_receive_every_message_once_and_in_order() {
    let server = TwoSessionServer::start("play");
    for network in [&["--seed", "5"][..], &["--seed", "6", "--loss", "0.1", "--delay", "20"]] {
        let args = [&["--sessions", "2", "--players", "4", "--seconds", "6", "--json"], network].concat();
        let output = server.swarm(&args);
        let report = parse_report(&output);
        for finding in ["lost", "doubled", "reordered", "changed", "echoed", "dropped", "absent"] {
            assert_eq!(report[finding], 0, "{finding} in {report}");
        }
        assert_eq!(output.status.code(), Some(0), "{report}");
        let count = |value: &Value| value.as_u64().expect("a number");
        // At least, each of the four sees the ships of the other three.
        assert!(count(&report["delivered"]) >= 2 * 4 * 3, "{report}");
        assert!(count(&report["joined"]) >= 8, "{report}");
        assert!(count(&report["states"]["heard"]) > 0, "{report}");
        assert!(count(&report["datagrams"]["received"]) > 0, "{report}");
    }
}

/// The times depend on the machine; that they are measured does not.
#[test]
fn delays_and_joins_are_measured() {
    let server = TwoSessionServer::start("delay");
    for mode in [&["--steady"][..], &["--steady", "--quick"]] {
        let args = [&["--players", "3", "--seconds", "3", "--json"], mode].concat();
        let output = server.swarm(&args);
        let report = parse_report(&output);
        assert_eq!(output.status.code(), Some(0), "{report}");
        let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {report}"));
        let delay = &report["delay_us"];
        let [states, chat, orders, all] =
            ["states", "chat", "orders", "all"].map(|kind| count(&delay[kind]["count"]));
        // The last messages may not count, but every counted message was sent.
        assert!(states > 0 && states <= count(&report["states"]["heard"]), "{report}");
        assert!(chat > 0 && chat <= count(&report["delivered"]), "{report}");
        // Ships were announced before the measurement.
        assert_eq!((orders, all), (0, states + chat), "{report}");
        let joins = &report["joins_us"];
        for times in [&delay["states"], &delay["chat"], &joins["load"], &joins["lobby"], &joins["waiting"]] {
            let order = ["p50", "p95", "p99", "max"].map(|share| count(&times[share]));
            assert!(order[0] > 0 && order.is_sorted(), "{report}");
        }
        assert_eq!(count(&joins["lobby"]["count"]), 3, "{report}");
        let [load, lobby, waiting] = ["load", "lobby", "waiting"].map(|step| count(&joins[step]["max"]));
        assert!(load <= lobby && waiting <= lobby, "{report}");
    }
    let output = server.swarm(&["--players", "2", "--seconds", "1", "--steady", "--quick", "--report"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for line in ["delay, ms", "states ", "chat ", "orders ", "joins, ms", "player listed ", "server wait "] {
        assert!(text.lines().any(|it| it.starts_with(line)), "{line}: {text}");
    }
}

#[test]
fn missing_server_is_an_error() {
    let nobody = free_port_pair();
    let server = format!("127.0.0.1:{nobody}");
    let output = Command::new(env!("CARGO_BIN_EXE_bcnet"))
        .args(["swarm", &server, "--check"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(&server) && error.contains("nobody answers"), "{error}");
}

/// The server keeps all rules that `--check` tests.
#[test]
fn own_server_keeps_every_checked_rule() {
    let server = TwoSessionServer::start("check");
    let output = server.swarm(&["--check", "--lethal", "--json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for line in &lines {
        // Without a password no password is wrong.
        let expected = if line["rule"] == "T-54" { "unclear" } else { "right" };
        assert_eq!(line["verdict"], expected, "{line}");
    }
    assert!(lines.len() >= 30 && lines.last().is_some_and(|line| line["rule"] == "T-03"), "{text}");
    assert_eq!(output.status.code(), Some(0));
}
