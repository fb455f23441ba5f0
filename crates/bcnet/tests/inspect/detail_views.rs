//! Tests queues, handled ACKs, single messages and diagrams on captures of the laboratory, where the truth is known.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::captures::{RAW, chat, inspect, packet, path_str, pcap, session, test_directory};
use crate::run::{ProcessOutput, bcnet};

/// Runs a scenario. Returns its capture at one node, and its output.
fn run_lab(name: &str, scenario: &str, node: &str) -> (PathBuf, String) {
    let capture = test_directory(name).join("lab.pcapng");
    let run = bcnet(&["lab", "run", scenario, "--trace", "--write", path_str(&capture), "--at", node], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    (capture, run.stdout)
}

fn inspect_file(capture: &Path, flags: &[&str]) -> ProcessOutput {
    bcnet(&[&["inspect", path_str(capture)], flags].concat(), "")
}

/// Returns the dumps of a node without their times, which the laboratory writes in another format.
fn untimed_dumps(log: &str) -> Vec<String> {
    let mut dumps: Vec<String> = Vec::new();
    for line in log.lines() {
        if let Some((_, head)) = line.split_once("] peer=") {
            dumps.push(format!("peer={}", head.split(" firstQ").next().expect("a head")));
        } else if line.starts_with("  retx[") || line.starts_with("  ack[") {
            let dump = dumps.last_mut().expect("an entry below a head");
            dump.push_str(&format!("\n{line}"));
        }
    }
    dumps
}

#[test]
fn queues_from_a_capture_match_the_engine() {
    let (capture, log) = run_lab("queues", "p01", "host");
    let log: String = log.split("# host\n").last().expect("dumps").into();
    let own = untimed_dumps(&log);
    let run = inspect_file(&capture, &["--queues", "--at", "0.05,2.77,5.49,6.65", "--peer", "2"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let host: String = run.stdout.split("# 10.0.0.1:22101 to 10.0.0.2:22101\n").skip(1).collect();
    let seen: Vec<String> =
        untimed_dumps(&host).into_iter().filter(|dump| dump.starts_with("peer=2 ")).collect();
    assert_eq!((own.len(), seen.len()), (5, 4));
    assert_eq!(own[..4], seen);
    let json = inspect_file(&capture, &["--queues", "--at", "2.77", "--json"]).json();
    assert_eq!(json.len(), 2);
    let host = json.iter().find(|dump| dump["of"] == "10.0.0.1:22101").expect("the host's");
    assert_eq!((host["acks"].as_array().map(Vec::len), &host["peer"]), (Some(10), &Value::from(2)));
    assert_eq!(host["acks"][4], serde_json::json!({"channel": "game", "seq": 2, "part": 0, "retx": 3}));
}

/// A twentieth of all datagrams is lost, with three players. The capture at the host's socket shows the host's queues.
#[test]
fn dumps_of_a_lossy_battle_match_its_capture() {
    let (capture, log) = run_lab("battle", "battle-loss5", "host");
    let mut compared = 0;
    for at in ["31.4", "100", "150", "299.5", "400", "500"] {
        let dump = bcnet(&["lab", "dump", "battle-loss5", "--at", at], "").stdout;
        let host: String = dump.split("# kirk").next().expect("the host comes first").into();
        let path = capture.with_file_name("dump.log");
        fs::write(&path, &host).expect("a file");
        let run = inspect_file(&capture, &["--dump-log", path_str(&path), "--dump-offset", "60"]);
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        assert!(run.stdout.ends_with("dumps: 3, 3 equal, 0 different\n"), "{}", run.stdout);
        compared += host.matches("] seq=").count();
    }
    assert!(compared > 20, "{compared} entries are too few to tell");
    let path = capture.with_file_name("hook.log");
    fs::write(&path, handled_acks_of_node(&log, "host")).expect("a file");
    let run =
        inspect_file(&capture, &["--dump-log", path_str(&path), "--dump-offset", "60", "--json"]).json();
    let equal = run.iter().filter(|line| line["verdict"] == "equal").count();
    // An ACK that comes less than a tick before a new message may have been read before or after it.
    assert!(run.len() > 20_000 && equal * 1000 >= run.len() * 999, "{equal} of {}", run.len());
}

/// Returns the handled ACKs of one node in the output of the laboratory.
fn handled_acks_of_node(log: &str, node: &str) -> String {
    let mut is_its = false;
    let lines = log.lines().filter(|line| {
        if !line.starts_with("  ") {
            is_its = line.contains("HandleACK:") && line.ends_with(&format!("# {node}"));
        }
        is_its
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn handled_acks_show_what_they_cleared_and_what_waited() {
    let (capture, log) = run_lab("hook", "p01", "host");
    let own: Vec<String> = handled_acks_of_node(&log, "host").lines().map(strip_hook_line).collect();
    let run = inspect_file(&capture, &["--handle-acks"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let mut is_host = false;
    let seen = run.stdout.lines().filter(|line| {
        if line.contains("HandleACK:") {
            is_host = line.contains("# host,");
        }
        is_host
    });
    assert_eq!(own, seen.map(strip_hook_line).collect::<Vec<_>>());
    let cleared = "  retx[1] seq=0x0001 frag=0 below32=0";
    assert!(run.stdout.contains(cleared) && run.stdout.contains(" <- cleared"), "{}", run.stdout);
    let json = inspect_file(&capture, &["--handle-acks", "--json", "--seq", "2", "--from", "1"]).json();
    assert!(!json.is_empty() && json.iter().all(|line| line["handled"]["seq"] == 2 && line["retx"] == 0));
    assert!(json.iter().all(|line| line["cleared"] == false && line["peer"] == 1));
}

/// Returns a line of a hook without its time and comments.
fn strip_hook_line(line: &str) -> String {
    let line = line.split_once("] HandleACK").map_or(line, |(_, rest)| rest);
    line.split("   #").next().expect("a line").split(" <-").next().expect("a line").into()
}

#[test]
fn message_timeline_has_every_sending_ack_and_cause() {
    let run = inspect(&pcap(&session(), RAW), &["--follow-message", "2", "--channel", "game"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let expected = "\
game seq=2, peer 2 (10.0.0.2:4711) to host (10.0.0.1:26000)
      8    0.500000  peer 2 sends data seq=2 9 bytes  0x2C Chat sender=2 text=\"hi\"
     18    1.500000  peer 2 sends again (2 times so far): data seq=2 9 bytes  0x2C Chat sender=2 text=\"hi\"
     18    1.500000  ! game seq=2 opcode=0x2C sent for the 2nd time after 1.000 s: no ACK was sent
     21    1.530000  host sends the ACK: clears it, retxQ 1 -> 0
  the message: sent 2 times, 1 ACK, cleared 1.030 s after its first send
";
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(run.stdout.trim_end(), expected.trim_end(), "{lines:#?}");
    let json = inspect(&pcap(&session(), RAW), &["--follow-message", "0x2", "--json"]).json();
    let events: Vec<&str> = json.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events, ["sent", "sent", "finding", "ack", "handled", "end"]);
    assert_eq!(
        json[5]["parts"],
        serde_json::json!([{"part": null, "sends": 2, "acks": 1, "cleared_after": 1.03}])
    );
}

#[test]
fn message_timeline_can_be_limited_to_side_and_fragment() {
    let (capture, _) = run_lab("parts", "p01", "host");
    let by = |flags: &[&str]| {
        let run = inspect_file(&capture, &[&["--follow-message", "2"], flags].concat());
        run.stdout.lines().filter(|line| line.starts_with("game seq=")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(by(&[]).len(), 2);
    assert!(by(&["--sent-by", "client"])[0].starts_with("game seq=2, peer 2 "));
    assert!(by(&["--sent-by", "host"])[0].starts_with("game seq=2, host "));
    let run = inspect_file(&capture, &["--follow-message", "2", "--part", "1"]);
    let ended = "  part 1: sent 1 time, 9 ACKs, cleared 0.005 s after its first send\n\n";
    assert!(run.stdout.ends_with(ended) && !run.stdout.contains("part=0"), "{}", run.stdout);
}

#[test]
fn sequence_diagram_has_one_arrow_per_datagram_in_80_columns() {
    let (capture, _) = run_lab("ladder", "starvation", "client");
    let run = inspect_file(&capture, &["--ladder"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
    let arrows = run.stdout.lines().filter(|line| line.ends_with(">|") || line.contains(" |<-- ")).count();
    let json = inspect_file(&capture, &["--ladder", "--json"]).json();
    let datagrams = inspect_file(&capture, &["--json"]).json();
    let datagrams = datagrams.iter().filter(|line| line.get("messages").is_some()).count();
    assert_eq!((arrows, json.len()), (datagrams, datagrams));
    let first = run.stdout.lines().nth(1).expect("an arrow");
    assert!(first.contains("|--- connect request seq=0 ---"), "{first}");
    // The client is on the left, whichever side was seen first.
    let begun_later = pcap(&[chat(1, 7, 0.0), chat(2, 3, 0.1)], RAW);
    let head = inspect(&begun_later, &["--ladder"]).stdout;
    assert!(head.trim_start().starts_with("peer 2 "), "{head}");
}

#[test]
fn missing_message_or_peer_error_lists_what_exists() {
    let capture = pcap(&session(), RAW);
    for (flags, expected) in [
        (
            &["--queues", "--at", "99"][..],
            "--at 99 is outside the capture, which lasts from 00:00:00.000 to 00:00:01.900, 1.900 s",
        ),
        (
            &["--queues", "--peer", "7"],
            "--peer 7: not in the capture; the capture has host (10.0.0.1:26000), peer 2 (10.0.0.2:4711)",
        ),
        (
            &["--follow-message", "900"],
            "--follow-message 900: no such message; the capture has control 0 to 0, game 0 to 7",
        ),
    ] {
        let run = inspect(&capture, flags);
        assert_eq!((run.code, run.stderr), (2, format!("bcnet: {expected}\n")), "{flags:?}");
    }
    for flags in
        [&["--at", "1"][..], &["--channel", "game"], &["--queues", "--ladder"], &["--queues", "--summary"]]
    {
        assert_eq!(inspect(&capture, flags).code, 2, "{flags:?}");
    }
}

/// Fragments that were announced and not sent are in the first-send queue; the traffic shows nothing else of it.
#[test]
fn announced_fragments_appear_in_the_first_send_queue() {
    let packets = [
        packet(0.0, "02 01 02"),
        packet(1.0, "01 01 32 08 A0 05 00 00 03 2C"),
        packet(2.0, "01 01 32 07 A0 05 00 01 2C"),
        packet(3.0, "01 01 32 07 A0 05 00 02 2C"),
    ];
    let run = inspect(&pcap(&packets, RAW), &["--queues", "--at", "1.5,2.5,3"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let heads: Vec<&str> = run.stdout.lines().filter(|line| line.contains(" peer=2 ")).collect();
    assert_eq!(
        heads,
        [
            "[00:00:01.500] peer=2 retxQ=1 ackOutQ=0 firstQ>=2",
            "[00:00:02.500] peer=2 retxQ=2 ackOutQ=0 firstQ>=1",
            "[00:00:03.000] peer=2 retxQ=3 ackOutQ=0",
        ]
    );
    assert!(run.stdout.contains("\n  first[1] seq=0x0005 frag=1 idx=2 below32=0 rel=1\n"), "{}", run.stdout);
}

/// The outbox of the host in the first prediction. Its engine drops an ACK after the ninth send.
#[test]
fn summary_shows_ack_send_counts_and_drops() {
    let (capture, _) = run_lab("lives", "p01", "host");
    let summary = inspect_file(&capture, &["--summary"]).stdout;
    let row = |title: &str| {
        let line = summary.lines().find(|line| line.trim_start().starts_with(title)).unwrap_or_default();
        line.split_whitespace().last().unwrap_or_default().to_owned()
    };
    assert_eq!(
        [row("ACKs dropped"), row("sent 9 times"), row("ACKs in the outbox at end")],
        ["10", "10", "1"]
    );
    assert!(summary.contains("most sends of one") && summary.contains("longest in the outbox"), "{summary}");
}

#[test]
fn explain_names_the_fields_of_a_capture() {
    let capture = pcap(&session(), RAW);
    let run = inspect(&capture, &["--explain", "--packet", "1"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.contains("nonce") && run.stdout.contains("T-33"), "{}", run.stdout);
    let json = inspect(&capture, &["--explain", "--packet", "1", "--json"]).json();
    assert!(json[0]["messages"][0]["fields"].as_array().is_some_and(|fields| fields.len() > 3), "{json:?}");
    assert_eq!(inspect(&capture, &["--explain", "--summary"]).code, 2);
}

#[test]
fn queue_dumps_are_bounded_over_a_gap_of_months() {
    let capture = pcap(&[chat(2, 0, 1.0), chat(2, 1, 1e7)], RAW);
    let run = inspect(&capture, &["--queues", "--every", "1"]);
    let message = "--every: stopped after 100,000 dumps; choose a longer interval, or use --at\n";
    assert!(run.code == 2 && run.stderr.ends_with(message), "{}", run.stderr);
    assert_eq!(run.stdout.matches(" retxQ=").count(), 2 * 100_000, "both sides");
    assert_eq!(inspect(&capture, &["--queues", "--every", "1000000"]).code, 0);
}
