//! Tests the findings and the filters.

use std::fs;
use std::net::SocketAddrV4;

use serde_json::Value;

use crate::captures::{CLIENT, RAW, TestPacket, chat, inspect, packet, pcap, session, test_directory};
use crate::run::bcnet;

#[test]
fn summary_ranks_faults_with_their_first_evidence() {
    let run = inspect(&pcap(&session(), RAW), &["--summary"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for part in [
        "standard input: 24 packets",
        "conversation 1: peer 2 (10.0.0.2:4711) and host (10.0.0.1:26000)",
        "0x2C Chat",
        "retransmissions, no ACK sent",
        "stale ACKs",
        "first: packet 11 at byte 581",
        "stale ACK of connect control seq=0, sent 2 times",
    ] {
        assert!(run.stdout.contains(part), "{part}\n{}", run.stdout);
    }
    let place = |part: &str| run.stdout.find(part).expect("found above");
    assert!(place("retransmissions, no ACK sent") < place("stale ACKs"));
}

/// The host keeps sending to a player who leaves. This is not a fault, because the player notices no lag.
#[test]
fn normal_leave_is_not_a_fault() {
    let mut packets = vec![packet(0.0, "02 01 02"), chat(1, 0, 0.1)];
    packets.push(packet(0.2, "02 01 05 0A C0 02 00 02 0A 00 00 02"));
    packets.push(packet(0.25, "01 01 01 02 00 02"));
    packets.extend([1.1, 3.1, 6.1].map(|at| chat(1, 0, at)));
    let directory = test_directory("leave");
    let page = directory.join("out.html");
    let run = inspect(&pcap(&packets, RAW), &["--summary", "--report", page.to_str().expect("UTF-8")]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let message = "\nnot a fault\n          3  retransmissions to a player who had left\n";
    assert!(run.stdout.contains(message) && !run.stdout.contains("the worst first"), "{}", run.stdout);
    let page = fs::read_to_string(&page).expect("a report");
    assert!(page.contains("had left") && !page.contains("notices lag"), "{page}");
    let json = inspect(&pcap(&packets, RAW), &["--json"]).json();
    let found: Vec<&Value> = json.iter().filter(|entry| entry.get("finding").is_some()).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|found| found["fault"] == false && found["cause"] == "receiver_left"));
}

/// More than four thousand retransmissions without a cause end at the same time.
#[test]
fn simultaneous_findings_are_reported_in_every_format() {
    let mut packets = Vec::new();
    for port in 1..=9_u16 {
        let from = SocketAddrV4::new(*CLIENT.ip(), 5000 + port);
        for number in 0..515_u16 {
            let [low, high] = number.to_le_bytes();
            let hex = format!("02 02 32 06 80 00 00 19 32 05 00 {low:02X} {high:02X}");
            packets.push(TestPacket { from, ..packet(1.0, &hex) });
        }
    }
    let capture = pcap(&packets, RAW);
    let summary = inspect(&capture, &["--summary"]);
    assert!(summary.stdout.contains("    4,626  retransmissions, no ACK sent"), "{}", summary.stdout);
    let report = test_directory("lost").join("out.html");
    let page = ["--report", report.to_str().expect("UTF-8")];
    for (form, found) in
        [(&["--json"][..], "\"finding\":\"retransmission\""), (&["--csv"], ",retransmission"), (&page, "")]
    {
        let run = inspect(&capture, form);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{form:?}");
        assert!(found.is_empty() || run.stdout.matches(found).count() == 9 * 514, "{form:?}");
    }
    assert!(
        fs::read_to_string(&report).expect("a report").contains("<td class=number>4,626<td>retransmissions")
    );
}

#[test]
fn filters_select_datagrams_messages_and_times() {
    let capture = pcap(&session(), RAW);
    let shown = |flags: &[&str]| {
        let run = inspect(&capture, &[flags, &["--csv"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = shown(&[]);
    assert!(shown(&["--kind", "ack"]).iter().all(|row| row.contains(",ack,")));
    assert_eq!(shown(&["--opcode", "chat"]), shown(&["--opcode", "0x2c"]));
    assert_eq!(shown(&["--opcode", "Chat"]).len(), 9);
    let chats = shown(&["--opcode", "Chat"]);
    assert_eq!(shown(&["--opcode", "Chat,StateUpdate"]), chats);
    assert_eq!(shown(&["--opcode", "0x1c", "--opcode", "chat"]), chats);
    assert!(shown(&["--opcode", "!Chat"]).iter().all(|row| !chats.contains(row)));
    assert_eq!(shown(&["--opcode", "!Chat"]).len() + chats.len(), all.len());
    // Sent twice, acknowledged once.
    assert_eq!(shown(&["--seq", "2"]).len(), 3);
    assert_eq!(shown(&["--seq", "2,0x0003"]).len(), 5);
    assert_eq!(shown(&["--packet", "1", "--packet", "3-4"]), [&all[..1], &all[3..5]].concat());
    // The request was sent without an id.
    assert_eq!(shown(&["--peer", "2"]), all[1..]);
    assert_eq!(shown(&["--peer", "10.0.0.3"]).len(), 0);
    assert_eq!(shown(&["--peer", "10.0.0.2:4711"]), all);
    let early = shown(&["--to", "0.95"]);
    let late = shown(&["--from", "0.951"]);
    assert!(!early.is_empty() && !late.is_empty());
    assert_eq!([early, late].concat(), all);
    let anomalies = shown(&["--anomalies"]);
    assert!(anomalies.iter().any(|row| row.ends_with(",stale_ack")) && anomalies.len() < all.len());
    for bad in [["--peer", "x"], ["--kind", "x"], ["--opcode", "x"], ["--from", "x"]] {
        assert_eq!(inspect(&capture, &bad).code, 2, "{bad:?}");
    }
}

#[test]
fn summary_and_report_can_be_limited_to_one_peer() {
    let mut packets = session();
    // Another player, with a datagram that cannot be decoded.
    let other = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 3), 4711);
    for (at, hex) in [(1.8, "03 01 32 06 80 00 00 19"), (1.81, "03 01 77 00")] {
        packets.push(TestPacket { from: other, ..packet(at, hex) });
    }
    packets.push(TestPacket { from: other, bytes: b"\\info\\".to_vec(), ..packet(1.82, "02 01 02") });
    let capture = pcap(&packets, RAW);
    let directory = test_directory("one-peer");
    let report = directory.join("out.html");
    for (flags, conversations, gamespy, unknown, stale) in [
        (&[][..], "2 conversations", "2 GameSpy", true, true),
        (&["--peer", "2"], "1 conversation", "0 GameSpy", false, true),
        (&["--peer", "10.0.0.2"], "1 conversation", "1 GameSpy", false, true),
        (&["--peer", "3"], "1 conversation", "0 GameSpy", true, false),
        (&["--peer", "9"], "0 conversations", "0 GameSpy", false, false),
    ] {
        let report_flags = ["--summary", "--report", report.to_str().expect("UTF-8")];
        let run = inspect(&capture, &[flags, &report_flags].concat());
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stdout.contains(&format!(" {conversations}, {gamespy}")), "{flags:?}\n{}", run.stdout);
        let page = fs::read_to_string(&report).expect("a report");
        assert!(page.contains(&format!(" {conversations}, ")), "{flags:?}");
        // The script after the form contains these words too, so it is cut off.
        let (verdict, _) = page.split_once("<form").expect("the table of findings");
        for text in [run.stdout.as_str(), verdict] {
            let found = [text.contains("datagrams with unknown types"), text.contains("stale ACKs")];
            assert_eq!(found, [unknown, stale], "{flags:?}\n{text}");
        }
        let plotted = conversations[..1].parse::<usize>().expect("a digit");
        assert_eq!(page.matches("\"detail\":").count(), plotted, "{flags:?}");
    }
}

/// An option that cannot have an effect is an error.
#[test]
fn conflicting_options_are_refused() {
    let file = test_directory("refused").join("a.pcap");
    fs::write(&file, pcap(&session(), RAW)).expect("written");
    let file = file.to_str().expect("UTF-8");
    for whole in [&["--summary"][..], &["--report", "never.html"]] {
        for filter in [
            &["--kind", "ack"][..],
            &["--opcode", "Chat"],
            &["--from", "1"],
            &["--to", "1"],
            &["--anomalies"],
        ] {
            assert_refused(&[&[file], whole, filter].concat(), &[whole[0], filter[0]]);
        }
    }
    for option in [&["--explain", "--csv"][..], &["--plain"], &["--message"], &["--payload"]] {
        assert_refused(&[&[file], option].concat(), &[option[0]]);
    }
    for option in [
        &["--summary"][..],
        &["--csv"],
        &["--report", "never.html"],
        &["--parquet", "never.parquet"],
        &["--follow"],
        &["--peer", "2"],
        &["--kind", "ack"],
        &["--anomalies"],
    ] {
        assert_refused(&[&[file, file], option].concat(), &[option[0], "is for one capture"]);
        assert_refused(&[&["--hex", "-"], option].concat(), &[option[0], "--hex"]);
    }
    assert_refused(&["-", "-"], &["standard input can be read only once"]);
}

/// Checks that a run is refused with an error and no output.
fn assert_refused(args: &[&str], messages: &[&str]) {
    let run = bcnet(&[&["inspect"], args].concat(), b"");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
    assert!(messages.iter().all(|message| run.stderr.contains(message)), "{args:?}: {}", run.stderr);
}

/// The cause of a retransmission is known late. The finding is filtered by the addresses of its conversation.
#[test]
fn late_findings_are_filtered_like_datagrams() {
    let capture = pcap(&session(), RAW);
    let found = |flags: &[&str]| {
        let run = inspect(&capture, &[flags, &["--json"]].concat());
        let names =
            run.json().into_iter().filter_map(|entry| Some(entry.get("finding")?.as_str()?.to_owned()));
        names.collect::<Vec<_>>()
    };
    let all = found(&[]);
    assert!(all.contains(&"retransmission".to_owned()), "{all:?}");
    assert_eq!(found(&["--anomalies"]), all);
    assert_eq!(found(&["--peer", "10.0.0.2"]), all);
    assert_eq!(found(&["--peer", "2"]), all);
    for nobody in [["--peer", "10.0.0.9"], ["--peer", "9"], ["--from", "99"]] {
        assert_eq!(found(&nobody), Vec::<String>::new(), "{nobody:?}");
    }
}
