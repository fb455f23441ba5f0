//! Tests more conversations than are remembered, and captures that are mostly unreadable.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_lab::Rng;
use serde_json::{Value, json};

use crate::captures::{
    CLIENT, HOST, RAW, TestPacket, add_pcap_record, chat, inspect, ip_packet, packet, pcap, session,
    test_directory,
};
use crate::finding_locations::battle;

/// Copies a capture to other addresses, at the same time.
fn copies(packets: &[TestPacket], count: u16) -> Vec<TestPacket> {
    let mut all = Vec::new();
    for packet in packets {
        for copy in 0..count {
            let other = |address: SocketAddrV4| {
                let ([_, _, _, host], [high, low]) = (address.ip().octets(), copy.to_be_bytes());
                SocketAddrV4::new(Ipv4Addr::new(10, 1 + high, low, host), address.port())
            };
            all.push(TestPacket { from: other(packet.from), to: other(packet.to), ..packet.clone() });
        }
    }
    all
}

/// Returns all counts of a summary: the totals, and the number of each fault.
fn counts_in_summary(summary: &str) -> Vec<(String, u64)> {
    let number = |text: &str| text.trim().trim_end_matches(',').replace(',', "").parse::<u64>().ok();
    let mut counts = Vec::new();
    let totals = summary.split("\n\n").find(|block| block.starts_with("all ")).expect("totals");
    // The maximum over all copies is the maximum of one, so it is skipped.
    for line in totals.lines().skip(2).filter(|line| !line.contains("most sends of one")) {
        let (title, cells) = line.split_at(30);
        let cells = cells.split_whitespace().filter_map(number);
        counts.extend(cells.map(|count| (title.trim().to_owned(), count)));
    }
    let faults = summary.lines().filter_map(|line| line.trim_start().split_once("  "));
    counts.extend(faults.filter_map(|(count, title)| Some((title.to_owned(), number(count)?))));
    counts
}

#[test]
fn repeated_events_are_counted_exactly() {
    let once: Vec<TestPacket> = battle(60.0, 0.05);
    let (copied, single) = (copies(&once, 100), inspect(&pcap(&once, RAW), &["--summary"]));
    let many = inspect(&pcap(&copied, RAW), &["--summary"]);
    assert!(many.stdout.contains(", 300 conversations, "), "{}", &many.stdout[..200]);
    let expected: Vec<(String, u64)> =
        counts_in_summary(&single.stdout).into_iter().map(|(title, count)| (title, count * 100)).collect();
    assert!(expected.len() > 15, "{expected:?}");
    assert_eq!(counts_in_summary(&many.stdout), expected);
    // In JSON too, where the sends of each ACK are a histogram.
    let [single, many] = [&once, &copied].map(|packets| {
        let run = inspect(&pcap(packets, RAW), &["--summary", "--json"]);
        run.json().remove(0)
    });
    assert_eq!((&many["conversations"], many["list"].as_array().map(Vec::len)), (&json!(300), Some(300)));
    for side in ["clients", "hosts"] {
        let [one, all] = [&single, &many].map(|run| &run["totals"][side]);
        let sends = |side: &Value| -> Vec<u64> {
            let list = side["dropped_acks"]["sends"].as_array().expect("a histogram");
            list.iter().map(|count| count.as_u64().expect("a number")).collect()
        };
        assert_eq!(sends(all), sends(one).iter().map(|count| count * 100).collect::<Vec<_>>());
        assert!(sends(one)[9] > 50, "{one}");
        assert_eq!(sends(one).iter().sum::<u64>(), one["dropped_acks"]["count"].as_u64().expect("a number"));
        for same in ["most_sends", "longest"] {
            assert_eq!(all["dropped_acks"][same], one["dropped_acks"][same]);
        }
        assert!(one["dropped_acks"]["most_sends"].as_u64() >= Some(9), "{one}");
        let retransmissions = |side: &Value| side["retransmissions"]["messages"].as_u64().expect("a number");
        assert_eq!(retransmissions(all), retransmissions(one) * 100);
    }
    let found = |run: &Value| -> Vec<(String, u64)> {
        let list = run["findings"].as_array().expect("a list").iter();
        let count = |found: &Value| found["count"].as_u64().expect("a number");
        list.map(|found| (found["title"].as_str().expect("a text").to_owned(), count(found))).collect()
    };
    let expected: Vec<_> = found(&single).into_iter().map(|(title, count)| (title, count * 100)).collect();
    assert_eq!(found(&many), expected);
}

#[test]
fn evicted_conversations_are_reported_in_every_format() {
    let page = test_directory("many").join("out.html");
    let page = page.to_str().expect("UTF-8");
    // The copies follow one after the other, so that an evicted conversation does not return.
    let mut copied = copies(&session(), 4100);
    let place = |packet: &TestPacket| {
        u16::from_be_bytes([packet.from.ip().octets()[1] - 1, packet.from.ip().octets()[2]])
    };
    copied.iter_mut().for_each(|packet| packet.at += f64::from(place(packet)) * 2.0);
    copied.sort_by(|a, b| a.at.total_cmp(&b.at));
    let capture = pcap(&copied, RAW);
    let message = "4 conversations are only in the totals";
    let summary = inspect(&capture, &["--summary"]);
    assert!(summary.stdout.contains(" 4,100 conversations, ") && summary.stdout.contains(message));
    assert!(summary.stdout.contains("\nall 4,100 conversations\n"));
    let first = summary.stdout.lines().filter(|line| line.contains("first: packet")).count();
    assert!(first > 0 && !summary.stdout.contains("first: 0.000 s"), "{}", summary.stdout);
    for form in [&["--json"][..], &["--csv"], &[], &["--report", page]] {
        let run = inspect(&capture, form);
        assert!(run.stderr.contains(message), "{form:?}: {}", run.stderr);
        assert!(
            form.contains(&page)
                || run.stdout.trim_end().rsplit('\n').next().expect("a line").contains(message),
            "{form:?}"
        );
    }
    let page = fs::read_to_string(page).expect("a report");
    assert!(page.contains(message) && page.contains(" 4,100 conversations, "));
    assert!(page.contains("more are only in the plots of all conversations") && page.len() < 5_000_000);
}

/// The capture has 60 bytes of each packet. Senders of large datagrams are not silent, but most packets are unreadable.
#[test]
fn short_snap_length_is_reported_without_false_timeouts() {
    let mut capture = pcap(&[], RAW);
    for second in 0..120 {
        let at = f64::from(second);
        add_pcap_record(&mut capture, at, &ip_packet(&packet(at, "01 01 02")), &u32::to_le_bytes);
        let (late, known) = (at + 0.5, ip_packet(&packet(at, "02 01 02")));
        let large = ip_packet(&TestPacket { from: CLIENT, to: HOST, bytes: vec![7; 200], at: late });
        let frame = if second == 0 { &known } else { &large[..60] };
        add_pcap_record(&mut capture, late, frame, &u32::to_le_bytes);
    }
    let run = inspect(&capture, &["--summary"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("119 packets could not be read, only 121 datagrams"), "{}", run.stderr);
    assert!(run.stdout.contains("119 packets cut short by the capture"), "{}", run.stdout);
    assert!(!run.stdout.contains("silence") && !run.stdout.contains("timeouts"), "{}", run.stdout);
}

/// If the replies are not in the capture, it is unknown whether a retransmitted message was acknowledged.
#[test]
fn acks_are_not_missing_where_the_capture_lacks_replies() {
    let run = |kept: usize| {
        let mut capture = pcap(&[], RAW);
        for (at, number) in [(0.0, 0), (1.1, 0), (3.2, 0), (3.3, 1)] {
            add_pcap_record(&mut capture, at, &ip_packet(&chat(1, number, at)), &u32::to_le_bytes);
            let answer = ip_packet(&TestPacket { from: CLIENT, to: HOST, bytes: vec![7; 200], at: at + 0.5 });
            add_pcap_record(&mut capture, at + 0.5, &answer[..kept], &u32::to_le_bytes);
        }
        inspect(&capture, &["--json"]).json().into_iter().filter(|line| line["finding"] == "retransmission")
    };
    let cut: Vec<Value> = run(60).collect();
    assert_eq!(cut.len(), 2);
    for found in cut {
        assert_eq!((&found["cause"], &found["fault"]), (&json!("not_captured"), &json!(false)), "{found}");
    }
    // Whole datagrams without an ACK show that it is missing.
    assert!(run(228).all(|found| found["cause"] == "ack_never_sent" && found["fault"] == true));
    assert_eq!(run(228).count(), 2);
}

#[test]
fn ipv6_capture_is_reported_as_unreadable() {
    let mut capture = pcap(&[], RAW);
    let mut frame = vec![0x60, 0, 0, 0, 0, 16, 17, 64];
    frame.extend([0; 32]);
    frame.extend([0x56, 0x55, 0x56, 0x55, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    (0..5).for_each(|at| add_pcap_record(&mut capture, f64::from(at), &frame, &u32::to_le_bytes));
    let run = inspect(&capture, &["--json"]);
    assert_eq!((run.code, run.json().len()), (1, 1));
    assert_eq!(run.json()[0]["ipv6"], 5);
    assert!(run.stderr.contains("5 UDP packets over IPv6"), "{}", run.stderr);
}

#[test]
fn random_bytes_are_not_taken_for_gamespy() {
    let mut rng = Rng::new(3);
    let mut packets = session();
    for number in 0..2000 {
        let mut bytes: Vec<u8> = (0..rng.index(200)).map(|_| rng.below(256) as u8).collect();
        bytes.insert(0, b'\\');
        packets.push(TestPacket { bytes, ..packet(2.0 + f64::from(number) / 1e3, "02 01 02") });
    }
    let run = inspect(&pcap(&packets, RAW), &["--summary"]);
    assert!(run.stdout.contains(", 1 GameSpy datagram\n"), "{}", &run.stdout[..200]);
    for text in
        ["\\status\\", "\\info", "\\heartbeat\\22101\\gamename\\bcommander", "\\hostname\\K\u{f6}ln\\final\\"]
    {
        let bytes = text.chars().map(|c| c as u8).collect();
        let run = inspect(&pcap(&[TestPacket { bytes, ..packet(1.0, "02 01 02") }], RAW), &["--json"]);
        assert!(run.json()[0]["gamespy"].is_string(), "{text}");
    }
}
