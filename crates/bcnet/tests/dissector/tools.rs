//! Tests the additions to the dissector: statistics, and a profile with colours, columns and filters.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bcnet_transport::cipher;
use bcnet_transport::wire::{Datagram, Message, PeerId};

use super::SEED;
use super::traffic::{self, TrafficMix, captured_datagram, data_datagram, encrypted};
use super::tshark::{
    PROFILE, WireDatagram, error_output, is_available, matching_frames, statistics, with_profile,
};

/// Returns the rows of a statistics table without its head: a name and its numbers.
fn statistics_rows(text: &str, columns: usize) -> BTreeMap<String, Vec<f64>> {
    let inner = text.split("==\n").nth(1).expect("a frame").lines();
    let rows = inner.skip(3).filter(|line| !line.starts_with('=')).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, numbers) = words.split_at(words.len() - columns);
        let number = |word: &&str| word.trim_end_matches('%').parse().expect("a number");
        (name.join(" "), numbers.iter().map(number).collect())
    });
    rows.collect()
}

/// Counts of messages by kind (number, bytes, sent by the host), of ACKs and their bytes, and of all bytes.
#[derive(Default)]
struct MessageCounts {
    messages: HashMap<String, [usize; 3]>,
    acks: [usize; 2],
    datagrams: usize,
    bytes: usize,
}

fn count_messages<'a>(captured: impl Iterator<Item = &'a WireDatagram>) -> MessageCounts {
    let mut counted = MessageCounts::default();
    for datagram in captured {
        let mut plain = datagram.bytes.clone();
        cipher::decrypt(&mut plain);
        let read = Datagram::parse(&plain, None).expect("well formed");
        counted.datagrams += 1;
        counted.bytes += plain.len();
        for message in read.messages() {
            let kind = match message {
                Message::Data(data) if data.delivery.fragment().is_some_and(|part| part.index() > 0) => {
                    "later fragments".to_owned()
                }
                Message::Data(data) => match data.payload.first() {
                    None => "empty payload".to_owned(),
                    Some(code) => bcnet_session::game::Opcode(*code)
                        .name()
                        .map_or_else(|| format!("opcode 0x{code:02X}"), str::to_owned),
                },
                _ => message.kind().name().expect("known").to_owned(),
            };
            let row = counted.messages.entry(kind).or_default();
            let of_host = usize::from(read.sender() == PeerId::HOST);
            *row = [row[0] + 1, row[1] + message.wire_len(), row[2] + of_host];
            if let Message::Ack(_) = message {
                counted.acks = [counted.acks[0] + 1, counted.acks[1] + message.wire_len()];
            }
        }
    }
    counted
}

#[test]
fn statistics_match_the_capture() {
    if !is_available() {
        return;
    }
    let swarm = traffic::swarm(SEED, 2_000, TrafficMix::Ours).captured;
    let all = count_messages(swarm.iter());
    let table = statistics_rows(&statistics("opcodes", &swarm, &["-o", "bcnet.statistics:opcodes"]), 5);
    assert!(table.len() > 8, "{table:?}");
    assert_eq!(table.len(), all.messages.len(), "{table:?}");
    for (kind, [count, bytes, host]) in &all.messages {
        let row = &table[kind];
        assert_eq!([row[0], row[1], row[3]], [count, bytes, host].map(|number| *number as f64), "{kind}");
    }
    assert!(table.values().map(|row| row[4]).sum::<f64>() > 50.0, "sent again: {table:?}");
    let table = statistics_rows(&statistics("acks", &swarm, &["-2", "-o", "bcnet.statistics:acks"]), 7);
    let row = &table["all"];
    let [acks, ack_bytes] = all.acks;
    assert_eq!(row[..4], [all.datagrams, all.bytes, acks, ack_bytes].map(|number| number as f64));
    assert_eq!(table.len(), 13, "six players, both ways, and all: {table:?}");
    let stale = swarm.len() - matching_frames("stale", &swarm, "!bcnet.ack.stale").len();
    assert!(row[5] >= stale as f64 && stale > 20, "{row:?}, {stale} datagrams");
    // With a filter, only the matching datagrams are counted.
    let first = swarm[0].from;
    let some = count_messages(swarm.iter().filter(|datagram| datagram.from == first || datagram.to == first));
    let option = format!("bcnet.statistics:acks,ip.addr == {}", first.ip());
    let row = &statistics_rows(&statistics("some", &swarm, &["-o", &option]), 7)["all"];
    assert_eq!(row[..2], [some.datagrams as f64, some.bytes as f64]);
}

#[test]
fn unknown_statistics_are_reported() {
    if !is_available() {
        return;
    }
    let some = [captured_datagram(Duration::ZERO, data_datagram(2, b"\x28"))];
    let text = error_output("unknown-statistics", &some, &["-q", "-o", "bcnet.statistics:ack"]);
    assert!(text.contains("unknown statistics \"ack\"; use opcodes or acks"), "{text}");
    let text = error_output("bad-filter", &some, &["-q", "-o", "bcnet.statistics:acks,ip.sr="]);
    assert!(text.contains("Filter \"ip.sr=\" is invalid"), "{text}");
}

/// Each colour rule matches its datagrams, and the first match wins.
#[test]
fn profile_has_colors_columns_and_filters() {
    if !is_available() {
        return;
    }
    let part: &[u8] = &[2, 1, 0x32, 8, 0xA0, 7, 0, 0, 2, 0x13];
    let chat: &[u8] = &[2, 1, 0x32, 0x0B, 0x80, 5, 0, 0x2C, 2, 0, 0, 0, 0, 0];
    let chat = &[&chat[..3], &[0x0C], &chat[4..]].concat()[..];
    let frame_and_rule: [(&[u8], &str); 16] = [
        (&[0xFF, 1, 3, 15, 0xC0, 0, 0, 10, 0, 0, 2, 7, 0, 0, 0, 0, 0], "BC joins"),
        (&[2, 1, 2], "BC player"),
        (&[1, 1, 0x32, 6, 0x80, 9, 0, 0x28], "BC host"),
        (&[2, 1, 1, 9, 0, 0], "BC ACKs only"),
        (&[2, 1, 1, 9, 0, 0], "BC stale ACK"),
        (chat, "BC chat"),
        (chat, "BC retransmission"),
        (part, "BC player"),
        (&[1, 1, 1, 7, 0, 0], "BC plain ACK of a fragment"),
        (&[2, 1, 9], "BC malformed"),
        (&[1, 1, 0x32, 6, 0x40, 0x1D, 1, 2], "BC not stock"),
        (chat, "BC retransmission"),
        (chat, "BC retransmission"),
        (chat, "BC retransmission"),
        (chat, "BC retransmitted many times"),
        (&[1, 1, 4, 7, 0xC0, 1, 0, 4, 2], "BC removed or leaves"),
    ];
    let mut conversation: Vec<WireDatagram> = frame_and_rule
        .iter()
        .map(|(plain, _)| captured_datagram(Duration::ZERO, encrypted(plain.to_vec())))
        .collect();
    conversation.push(captured_datagram(Duration::ZERO, b"\\status\\".to_vec()));
    let mut rules: Vec<&str> = frame_and_rule.iter().map(|(_, rule)| *rule).collect();
    rules.push("BC GameSpy");
    let colours = ["--color", "-T", "fields", "-e", "frame.coloring_rule.name"];
    let found = with_profile("colours", &conversation, &colours);
    assert_eq!(found.lines().collect::<Vec<_>>(), rules);
    let names = PROFILE[0].1.lines().filter_map(|line| line.strip_prefix('@')?.split('@').next());
    for name in names {
        assert!(rules.contains(&name), "no test datagram has the colour {name}");
    }
    // The number of the conversation is a column.
    let lines = with_profile("columns", &conversation, &[]);
    let second: Vec<&str> = lines.lines().nth(1).expect("a line").split_whitespace().collect();
    assert_eq!(second[2..], ["10.0.0.2", "→", "10.0.0.1", "1", "31", "2→1", "keepalive"]);
    let buttons = PROFILE[2].1.lines().filter(|line| !line.starts_with('#'));
    let mut shown = 0;
    for button in buttons {
        let filter = button.split("\",\"").nth(2).expect("a filter");
        assert!(!matching_frames("buttons", &conversation, filter).is_empty(), "{filter} shows nothing");
        shown += 1;
    }
    assert!(shown > 4);
}
