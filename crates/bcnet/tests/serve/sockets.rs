//! Datagrams from senders that are not players.

use std::net::{Ipv4Addr, UdpSocket};

use crate::player::LoopbackPlayer;
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory};

fn client() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    socket
}

#[test]
fn browser_query_is_answered() {
    let server = ServerProcess::start(&["--name", "Deep Space"]);
    let browser = client();
    browser.send_to(b"\\status\\xserverquery", server.address()).expect("sent");
    let mut buffer = [0; 2048];
    let (len, from) = browser.recv_from(&mut buffer).expect("an answer");
    let text = String::from_utf8_lossy(&buffer[..len]);
    assert!(text.starts_with('\\') && text.contains("\\hostname\\Deep Space\\"), "{text}");
    assert_eq!(from, server.address().into());
}

/// S-07: machines at home are answered each time, from all addresses of a network.
///
/// On Linux and Windows all of 127.0.0.0/8 is local.
#[cfg(any(target_os = "linux", windows))]
#[test]
fn machines_at_home_are_always_answered() {
    let server = ServerProcess::start(&["--set", "session.home_networks=127.0.0.0/8"]);
    let machines = (1..9).map(|last| UdpSocket::bind((Ipv4Addr::new(127, 0, 1, last), 0)).expect("a socket"));
    let machines: Vec<UdpSocket> = machines.collect();
    for machine in &machines {
        machine.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    }
    for _ in 0..2 {
        for machine in &machines {
            machine.send_to(b"\\status\\", server.address()).expect("sent");
        }
        for machine in &machines {
            machine.recv_from(&mut [0; 2048]).expect("an answer");
        }
    }
    let session = &server.ctl_json(&["status"])["sessions"][0];
    assert_eq!((&session["queries"], &session["queries_answered"]), (&16.into(), &16.into()), "{session}");
}

/// On Linux and Windows all of 127.0.0.0/8 is local, so the server has many addresses here.
#[cfg(any(target_os = "linux", windows))]
#[test]
fn answers_leave_from_the_queried_address() {
    let server = ServerProcess::start(&["--bind", "0.0.0.0"]);
    for last in [2, 3] {
        let ip = Ipv4Addr::new(127, 0, 0, last);
        let browser = client();
        browser.send_to(b"\\status\\", (ip, server.ports[0])).expect("sent");
        let (_, from) = browser.recv_from(&mut [0; 2048]).expect("an answer");
        assert_eq!(from, (ip, server.ports[0]).into());
    }
    // A client drops datagrams from another address than it connected to, so a join proves the source
    // address.
    let to = std::net::SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 5), server.ports[0]);
    LoopbackPlayer::join(to, "Alice");
}

#[test]
fn malformed_floods_cause_few_log_lines_and_no_disruption() {
    let server = ServerProcess::start(&[]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let flood = client();
    for n in 0..5000_u32 {
        let junk: Vec<u8> = (0..n % 700).map(|at| (at ^ n) as u8).collect();
        flood.send_to(&junk, server.address()).expect("sent");
        if n % 100 == 0 {
            flood.send_to(&[7; 3000], server.address()).expect("sent");
        }
    }
    let line = alice.chat_payload("quiet here");
    alice.chat("quiet here");
    alice.run_until(|alice| alice.has_received(&line));
    let status = server.ctl_json(&["status"]);
    let session = &status["sessions"][0];
    assert!(session["rejected"].as_u64() > Some(0), "{session}");
    assert!(session["oversized"].as_u64() > Some(0), "{session}");
    server.wait_for_log(&["event=\"rejected\"", "cause=\"malformed\""]);
    server.stop();
    alice.run_until_end();
}

#[test]
fn query_and_connect_floods_cause_few_log_lines() {
    let server = ServerProcess::start(&[]);
    let browser = client();
    let mut request = vec![
        0xFF, 0x01, 0x03, 0x0F, 0xC0, 0x00, 0x00, 0x0A, 0x0A, 0x0A, 0xEF, 0x5F, 0x0A, 0x00, 0x00, 0x00, 0x00,
    ];
    bcnet_transport::cipher::encrypt(&mut request);
    let forgers: Vec<UdpSocket> = (0..40).map(|_| client()).collect();
    for forger in &forgers {
        forger.send_to(&request, server.address()).expect("sent");
        browser.send_to(b"\\status\\", server.address()).expect("sent");
    }
    server.wait_for_log(&["event=\"rejected\"", "cause=\"too_many_queries\""]);
    let session = &server.ctl_json(&["status"])["sessions"][0];
    assert_eq!(session["queries"], 40);
    assert!(session["queries_answered"].as_u64() >= Some(5), "{session}");
    // T-75: the answer to a connect request has as many bytes as the request. A sender that does not continue
    // is not admitted.
    let mut buffer = [0; 2048];
    for forger in &forgers {
        assert_eq!(forger.recv(&mut buffer).expect("an answer"), request.len());
    }
    assert_eq!((&session["admitted"], &session["refused"]), (&0.into(), &0.into()), "{session}");
}

#[test]
fn list_servers_get_the_actual_port_and_nobody_else_does() {
    let master = client();
    let to = format!("server.masters={}", master.local_addr().expect("bound"));
    let server = ServerProcess::start(&["--set", &to]);
    let mut buffer = [0; 2048];
    let (len, from) = master.recv_from(&mut buffer).expect("a heartbeat");
    let text = String::from_utf8_lossy(&buffer[..len]);
    assert!(text.starts_with(&format!("\\heartbeat\\{}\\gamename\\bcommander", server.ports[0])), "{text}");
    assert_eq!(from, server.address().into());
}

#[test]
fn status_shows_silent_and_unknown_list_servers() {
    let server = ServerProcess::start(&["--set", "server.masters=192.0.2.1,no-such-host.invalid"]);
    server.wait_for_log(&[
        "event=\"master_unknown\"",
        "host=\"no-such-host.invalid\"",
        "error=\"unknown host: ",
    ]);
    let status = String::from_utf8(server.directory.ctl(&["status"]).stdout).expect("UTF-8");
    assert!(status.contains("\ncannot resolve the list server no-such-host.invalid\n"), "{status}");
    let silent = |line: &str| line.contains("192.0.2.1:27900") && line.contains("never answered");
    assert!(status.lines().any(silent), "{status}");
}

#[test]
fn reload_applies_list_servers_at_once() {
    let directory = TestDirectory::new();
    let file = directory.path("bcnet.toml");
    std::fs::write(&file, "").expect("written");
    let server = ServerProcess::start_in(directory, &[], 1);
    let master = client();
    let text = format!("[server]\nmasters = [\"{}\"]\n", master.local_addr().expect("bound"));
    std::fs::write(&file, text).expect("written");
    server.ctl_json(&["reload"]);
    master.recv_from(&mut [0; 2048]).expect("a heartbeat");
    let masters = || server.ctl_json(&["status"])["sessions"][0]["masters"].as_array().map(Vec::len);
    assert_eq!(masters(), Some(1));
    std::fs::write(&file, "").expect("written");
    server.ctl_json(&["reload"]);
    assert!((0..100).any(|_| masters() == Some(0)), "removed list servers are dropped at once");
}

/// The names of unchanged list servers are not resolved again, so a reload must keep their addresses.
#[test]
fn reload_keeps_unchanged_list_servers() {
    let master = client();
    let to = format!("server.masters={}", master.local_addr().expect("bound"));
    let server = ServerProcess::start(&["--set", &to]);
    master.recv_from(&mut [0; 2048]).expect("a heartbeat");
    server.ctl_json(&["reload"]);
    let masters = &server.ctl_json(&["status"])["sessions"][0]["masters"];
    assert_eq!(masters.as_array().map(Vec::len), Some(1), "{masters}");
}
