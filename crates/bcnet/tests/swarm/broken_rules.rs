//! Verdicts of `--check` on servers that break rules.

use std::collections::HashSet;
use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_session::{Config, Session};
use bcnet_transport::wire::{Datagram, Role};
use bcnet_transport::{Event, Time, cipher};
use serde_json::Value;

/// Changes a message or a text of the server. The flag is true if the same was sent before.
type InjectedFault = fn(&[u8], bool) -> Vec<Vec<u8>>;

/// Faults that break one rule each.
const FAULTS: [(&str, InjectedFault); 19] = [
    ("T-01", |message, _| vec![[message, &[0]].concat()]),
    ("T-24", |message, _| drop_if(message, message[0] == 0x01 && message[2] > 0)),
    ("T-30", |message, _| drop_if(message, message[0] == 0x01 && message[3] == 2)),
    ("T-31", |message, _| match message {
        [0x01, low, high, 1, _] => vec![vec![0x01, *low, *high, 0]],
        _ => vec![message.into()],
    }),
    ("T-34", |message, _| flip_bit_if(message, message[0] == 0x03, 3)),
    ("T-52", |message, _| flip_bit_if(message, message[0] == 0x00, 10)),
    ("T-53", |message, again| drop_if(message, message[0] == 0x01 && again)),
    ("T-57", |message, _| drop_if(message, message[0] == 0x05)),
    ("T-60", |message, again| drop_if(message, message[0] == 0x01 && again)),
    ("T-61", |message, again| drop_if(message, message[0] == 0x32 && again)),
    ("T-69", |message, _| {
        let copies = if message.ends_with(b"swarm once") { 2 } else { 1 };
        // Each copy has a different number.
        (0..copies).flat_map(|copy| flip_bit_if(message, copy == 1, 4)).collect()
    }),
    ("S-06", |message, _| flip_bit_if(message, message.starts_with(b"\\gamename"), 2)),
    ("S-20", |message, _| drop_if(message, payload(message).starts_with(&[0x20, 1]))),
    ("S-25", |message, _| drop_if(message, payload(message) == [0x28])),
    ("S-31", |message, _| drop_if(message, payload(message).starts_with(&[0x35]))),
    ("S-33", |message, _| flip_bit_if(message, payload(message).starts_with(&[0x07]), 25)),
    ("S-35", |message, _| drop_if(message, payload(message).starts_with(&[0x36]))),
    ("S-40", |message, _| drop_if(message, message.ends_with(b"swarm probe"))),
    ("S-42", |message, _| flip_bit_if(message, message.ends_with(b"swarm probe"), CHAT_SENDER_OFFSET)),
];

fn no_fault(message: &[u8], _: bool) -> Vec<Vec<u8>> {
    vec![message.into()]
}

fn drop_if(message: &[u8], lost: bool) -> Vec<Vec<u8>> {
    if lost { Vec::new() } else { vec![message.into()] }
}

fn flip_bit_if(message: &[u8], applies: bool, at: usize) -> Vec<Vec<u8>> {
    let mut message = message.to_vec();
    if applies {
        message[at] ^= 1;
    }
    vec![message]
}

/// Position of the sender's id in a chat message.
const CHAT_SENDER_OFFSET: usize = 6;

/// Returns the payload of a reliable game message.
fn payload(message: &[u8]) -> &[u8] {
    if message[0] == 0x32 { message.get(5..).unwrap_or_default() } else { &[] }
}

/// Starts a server in a thread that lasts as long as the tests.
fn start_server(
    mut turn: impl FnMut(&UdpSocket, Option<(SocketAddrV4, &mut [u8])>, Time) + Send + 'static,
) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a timeout");
    let address = socket.local_addr().expect("bound").to_string();
    #[expect(clippy::disallowed_methods, reason = "real sockets have real time")]
    let started = Instant::now();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        loop {
            let arrived = match socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => Some((from, &mut buffer[..len])),
                Ok(_) => None,
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => None,
                Err(error) => panic!("{error}"),
            };
            turn(&socket, arrived, Time::ZERO + started.elapsed());
        }
    });
    address
}

/// Starts a session whose messages the fault changes.
fn start_session(config: Config, fault: InjectedFault) -> String {
    start_watched_session(config, fault, |_| {})
}

/// The same; `watch` is called after every turn.
fn start_watched_session(
    config: Config,
    fault: InjectedFault,
    mut watch: impl FnMut(&Session) + Send + 'static,
) -> String {
    let mut session = Session::new(config, 1);
    let mut sent = HashSet::new();
    start_server(move |socket, arrived, now| {
        if let Some((from, bytes)) = arrived {
            session.handle_datagram(from, bytes, now);
        }
        session.handle_timeout(now);
        while session.poll_event().is_some() {}
        let mut buffer = [0; 2048];
        while let Some(transmit) = session.poll_transmit(&mut buffer, now) {
            let datagram = inject_fault(&mut buffer[..transmit.len], |message| {
                fault(message, !sent.insert((transmit.to, message.to_vec())))
            });
            if let Some(datagram) = datagram {
                socket.send_to(&datagram, transmit.to).expect("sent");
            }
        }
        watch(&session);
    })
}

fn inject_fault(bytes: &mut [u8], mut fault: impl FnMut(&[u8]) -> Vec<Vec<u8>>) -> Option<Vec<u8>> {
    if bytes[0] == b'\\' {
        return fault(bytes).pop();
    }
    cipher::decrypt(bytes);
    let mut rest = &bytes[2..];
    let mut messages = Vec::new();
    for message in Datagram::parse(bytes, Some(Role::Host)).expect("our own").messages() {
        let (message, later) = rest.split_at(message.wire_len());
        messages.extend(fault(message));
        rest = later;
    }
    let mut datagram = [&[bytes[0], messages.len() as u8], messages.concat().as_slice()].concat();
    cipher::encrypt(&mut datagram);
    (!messages.is_empty()).then_some(datagram)
}

/// Starts the stock transport, which only answers queries.
fn start_stock() -> String {
    let mut host = StockEngine::host(Params::default());
    start_server(move |socket, arrived, now| {
        if let Some((from, bytes)) = arrived {
            host.handle_datagram(from, bytes, now);
        }
        host.run_frame(now);
        let mut text = Vec::new();
        while let Some(event) = host.poll_event(&mut text) {
            if let Event::Query { from } = event {
                socket.send_to(b"\\final\\", from).expect("sent");
            }
        }
        let mut buffer = [0; 1024];
        while let Some(transmit) = host.poll_transmit(&mut buffer) {
            socket.send_to(&buffer[..transmit.len], transmit.to).expect("sent");
        }
    })
}

fn run_check(server: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bcnet"));
    command.args(["swarm", server, "--check", "--json"]).args(args).output().expect("bcnet swarm runs")
}

/// Returns the verdicts with their evidence, and the exit code.
fn verdicts(output: &Output) -> (Vec<(String, String)>, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let verdicts = lines.map(|line| {
        let verdict =
            format!("{} {}", line["rule"].as_str().expect("text"), line["verdict"].as_str().expect("text"));
        (verdict, line.to_string())
    });
    (verdicts.collect(), output.status.code())
}

fn has_verdict(verdicts: &[(String, String)], wanted: &str) -> bool {
    verdicts.iter().any(|(verdict, _)| verdict == wanted)
}

#[test]
fn check_names_the_broken_rule() {
    thread::scope(|scope| {
        for (rule, fault) in FAULTS {
            scope.spawn(move || {
                let output = run_check(&start_session(Config::default(), fault), &["--rules", rule]);
                let (verdicts, code) = verdicts(&output);
                assert!(has_verdict(&verdicts, &format!("{rule} wrong")), "{rule}: {verdicts:?}");
                assert_eq!(code, Some(1), "{rule}: {verdicts:?}");
            });
        }
    });
}

/// The same server without a fault keeps all rules.
#[test]
fn check_passes_a_correct_server() {
    let rules = FAULTS.map(|(rule, _)| rule).join(",");
    let output = run_check(&start_session(Config::default(), no_fault), &["--rules", &rules]);
    let (verdicts, code) = verdicts(&output);
    assert!(verdicts.iter().all(|(verdict, _)| verdict.ends_with(" right")), "{verdicts:?}");
    assert!(verdicts.len() >= FAULTS.len());
    assert_eq!(code, Some(0));
}

#[test]
fn stock_host_repeats_its_acks() {
    let (verdicts, code) = verdicts(&run_check(&start_stock(), &["--rules", "T-60,T-34"]));
    assert!(has_verdict(&verdicts, "T-60 wrong") && has_verdict(&verdicts, "T-34 right"), "{verdicts:?}");
    assert_eq!(code, Some(1));
}

#[test]
fn password_rule_is_checked_when_a_password_is_given() {
    let secret = || Config { password: Some("secret".into()), ..Config::default() };
    let args = ["--password", "secret", "--rules", "T-54"];
    for (config, verdict, code) in [(secret(), "T-54 right", 0), (Config::default(), "T-54 wrong", 1)] {
        let output = run_check(&start_session(config, no_fault), &args);
        let (verdicts, exit) = verdicts(&output);
        assert!(has_verdict(&verdicts, verdict), "{verdicts:?}");
        assert_eq!(exit, Some(code));
    }
    let server = start_session(secret(), no_fault);
    let output = run_check(&server, &["--rules", "T-34"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    let expected =
        format!("bcnet: {server}: the server admits no client: wrong_password; give the right --password\n");
    assert_eq!(error, expected);
}

#[test]
fn unknown_rule_is_an_error() {
    let output = run_check("127.0.0.1:9", &["--rules", "T-60,T-x"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("bcnet: --rules T-x: ") && error.lines().count() == 1, "{error}");
}

/// Lost chat and chat under a wrong id are different verdicts.
#[test]
fn lost_chat_differs_from_chat_with_a_wrong_sender() {
    let lost: InjectedFault = |message, _| drop_if(message, message.ends_with(b"swarm probe"));
    let renamed: InjectedFault =
        |message, _| flip_bit_if(message, message.ends_with(b"swarm probe"), CHAT_SENDER_OFFSET);
    for (fault, expected) in [(lost, ["S-40 wrong", "S-42 unclear"]), (renamed, ["S-40 right", "S-42 wrong"])]
    {
        let output = run_check(&start_session(Config::default(), fault), &["--rules", "S-40,S-42"]);
        let (verdicts, _) = verdicts(&output);
        assert!(expected.iter().all(|verdict| has_verdict(&verdicts, verdict)), "{verdicts:?}");
    }
}

#[test]
fn unacknowledged_number_is_named_and_probe_players_leave() {
    let (changed, changes) = mpsc::channel();
    let mut before = 0;
    let no_acks: InjectedFault = |message, _| drop_if(message, message[0] == 0x01 && message[2] > 0);
    let server = start_watched_session(Config::default(), no_acks, move |session| {
        let players = session.players().count();
        if players != before {
            before = players;
            let _ = changed.send(players);
        }
    });
    let (verdicts, _) = verdicts(&run_check(&server, &["--rules", "T-24"]));
    assert!(verdicts[0].1.contains("number 256 is not acknowledged"), "{verdicts:?}");
    let counts: Vec<usize> = changes.try_iter().collect();
    // The server waits for about two seconds before it believes a disconnect (T-57).
    assert!(counts.iter().max() <= Some(&4), "{counts:?}");
    // The last disconnect may be in flight. Without one, the player would stay 45 seconds.
    let mut players = *counts.last().expect("two came");
    while players > 0 {
        players = changes.recv_timeout(Duration::from_secs(20)).expect("players were left behind");
    }
}

/// Starts a session that gets only the datagrams that `accepts` allows, by their plain bytes.
fn start_filtered_session(mut accepts: impl FnMut(SocketAddrV4, &[u8]) -> bool + Send + 'static) -> String {
    let mut session = Session::new(Config::default(), 1);
    start_server(move |socket, arrived, now| {
        if let Some((from, bytes)) = arrived {
            let mut plain = bytes.to_vec();
            if plain.first() != Some(&b'\\') {
                cipher::decrypt(&mut plain);
            }
            if accepts(from, &plain) {
                session.handle_datagram(from, bytes, now);
            }
        }
        session.handle_timeout(now);
        while session.poll_event().is_some() {}
        let mut buffer = [0; 2048];
        while let Some(transmit) = session.poll_transmit(&mut buffer, now) {
            socket.send_to(&buffer[..transmit.len], transmit.to).expect("sent");
        }
    })
}

#[test]
fn failing_message_type_is_named() {
    let mut confused = HashSet::new();
    let server = start_filtered_session(move |from, plain| {
        if plain.get(2) == Some(&0x33) {
            confused.insert(from);
        }
        !confused.contains(&from)
    });
    let (verdicts, code) = verdicts(&run_check(&server, &["--rules", "T-10"]));
    assert!(verdicts[0].1.contains("after type 33 the join stopped"), "{verdicts:?}");
    assert_eq!(code, Some(1));
}

/// A dead server hears nothing. It died at the probe after which it is silent, and nothing else is tried.
#[test]
fn check_ends_at_the_probe_that_kills_the_server() {
    let dies_at = |is_deadly: fn(&[u8]) -> bool| {
        let mut is_dead = false;
        start_filtered_session(move |_, plain| {
            is_dead |= is_deadly(plain);
            !is_dead
        })
    };
    let is_unknown_type = |plain: &[u8]| plain.get(2) == Some(&0x33);
    let is_malformed = |plain: &[u8]| plain.get(2..5) == Some(&[0x32, 0x01, 0x80]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (verdicts, code) = verdicts(&run_check(&dies_at(is_unknown_type), &["--rules", "T-10,S-06"]));
            assert!(has_verdict(&verdicts, "T-10 died") && verdicts.len() == 1, "{verdicts:?}");
            assert!(verdicts[0].1.contains("died at T-10"), "{verdicts:?}");
            assert_eq!(code, Some(1));
        });
        scope.spawn(|| {
            // Lethal probes are the last ones, in whatever order they are named.
            let args = ["--lethal", "--rules", "T-03,S-06"];
            let (verdicts, code) = verdicts(&run_check(&dies_at(is_malformed), &args));
            let names: Vec<&str> = verdicts.iter().map(|(verdict, _)| verdict.as_str()).collect();
            assert_eq!(names, ["S-06 right", "T-03 died"]);
            assert_eq!(code, Some(1));
        });
    });
}

#[test]
fn lethal_rule_needs_the_option() {
    let output = run_check("127.0.0.1:9", &["--rules", "S-06,T-03"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("bcnet: --rules T-03: ") && error.contains("--lethal"), "{error}");
}
