//! Tests text output, and payloads in fragments.

use serde_json::json;

use crate::captures::{RAW, inspect, packet, pcap};

#[test]
fn acks_and_findings_of_one_kind_share_a_line() {
    let mut packets: Vec<_> =
        (0..4_u8).map(|seq| packet(0.1, &format!("02 01 32 06 80 {seq:02X} 00 19"))).collect();
    let acks = "01 05 01 00 00 00 01 01 00 00 01 02 00 00 01 03 00 00 02";
    packets.extend([packet(0.2, acks), packet(0.9, acks)]);
    let run = inspect(&pcap(&packets, RAW), &[]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.ends_with("  4 acks: game 0-3")).count(), 2, "{}", run.stdout);
    assert!(
        run.stdout.contains("     6    0.800000 ! 10.0.0.1:26000: 4 stale ACKs: game 0-3\n"),
        "{}",
        run.stdout
    );
    assert_eq!(lines.len(), 4 + 2 * 2 + 1, "{}", run.stdout);
    // A filter for one message shows only the finding about it.
    let text = inspect(&pcap(&packets, RAW), &["--seq", "2"]).stdout;
    let found: Vec<&str> = text.lines().filter(|line| line.contains(" ! ")).collect();
    assert!(found.len() == 1 && found[0].contains("stale ACK of game seq=2 "), "{text}");
    for flags in [["--seq", "2"], ["--seq", "2,3"], ["--opcode", "!0x19"]] {
        let json = inspect(&pcap(&packets, RAW), &[&["--json"], &flags[..]].concat()).json();
        let found = json.iter().filter_map(|line| line.get("finding").and_then(|_| line["seq"].as_u64()));
        let wanted: &[u64] = match flags[1] {
            "2" => &[2],
            "2,3" => &[2, 3],
            _ => &[],
        };
        assert_eq!(found.collect::<Vec<_>>(), wanted, "{flags:?}");
    }
}

#[test]
fn colors_are_for_terminals_or_on_request() {
    let capture = pcap(&[packet(0.0, "02 01 02")], RAW);
    for (flags, colours) in [(&[][..], false), (&["--color", "never"], false), (&["--color", "always"], true)]
    {
        assert_eq!(inspect(&capture, flags).stdout.contains('\x1b'), colours, "{flags:?}");
    }
    assert_eq!(inspect(&capture, &["--color", "pink"]).code, 2);
}

/// T-36
#[test]
fn player_names_are_shown_once_the_host_sent_them() {
    let name = "6B 00 69 00 72 00 6B 00 00 00";
    let identity = format!("01 01 00 14 C0 01 00 02 0A 00 00 02 {name}");
    let packets = [packet(0.0, "02 01 02"), packet(0.1, &identity), packet(0.2, "02 01 02")];
    let run = inspect(&pcap(&packets, RAW), &[]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].contains("C> 10.0.0.2:4711 >"), "{}", run.stdout);
    assert!(lines[2].contains("C> kirk 10.0.0.2:4711 >"), "{}", run.stdout);
    // A datagram that is not shown still provides the name.
    let run = inspect(&pcap(&packets, RAW), &["--packet", "3"]);
    assert!(run.stdout.contains("C> kirk 10.0.0.2:4711 >"), "{}", run.stdout);
}

/// T-20, T-68: a chat message in two fragments, of which the second comes first.
#[test]
fn last_fragment_shows_the_reassembled_payload() {
    let second = "02 01 32 08 A0 05 00 01 68 69";
    let first = "02 01 32 0E A0 05 00 00 02 2C 02 00 00 00 02 00";
    let packets = [packet(0.0, second), packet(0.1, first), packet(1.1, second)];
    let run = inspect(&pcap(&packets, RAW), &["--json"]);
    let lines: Vec<_> = run.json().into_iter().filter(|line| line.get("messages").is_some()).collect();
    assert!(lines[0].get("joined").is_none() && lines[2].get("joined").is_none());
    let joined = &lines[1]["joined"][0];
    assert_eq!((&joined["seq"], &joined["parts"], &joined["len"]), (&json!(5), &json!(2), &json!(9)));
    assert_eq!(
        (&joined["game"]["name"], joined["game"].get("truncated")),
        (&json!("Chat"), None),
        "{joined}"
    );
    let text = inspect(&pcap(&packets, RAW), &[]).stdout;
    assert!(text.contains("reassembled game seq=5, 9 bytes in 2 fragments  0x2C Chat"), "{text}");
}
