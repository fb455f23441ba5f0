//! Tests the fields that depend on the other datagrams of a conversation.

use std::collections::HashMap;
use std::time::Duration;

use bcnet_transport::cipher;
use bcnet_transport::wire::{Datagram, Message};
use serde_json::{Value, json};

use super::compare::Comparison;
use super::traffic::{self, TrafficMix, captured_datagram, encrypted};
use super::tshark::{
    WireDatagram, all_fields, dissect, field_text, info_column, is_available, matching_frames, statistics,
};
use super::{SEED, hex, run_inspect};

/// T-20, T-68: fragments are reassembled, and the payload is decoded like any other.
#[test]
fn fragments_are_reassembled_and_duplicates_marked() {
    if !is_available() {
        return;
    }
    let swarm = traffic::swarm(SEED, 4_000, TrafficMix::Ours);
    let layers = dissect("parts", &swarm.captured, &[]);
    let messages: Vec<&Value> = layers
        .iter()
        .flat_map(|layer| all_fields(layer.as_ref().expect("recognised"), "bcnet.message"))
        .collect();
    let mut whole = HashMap::new();
    for node in messages.iter().flat_map(|message| all_fields(message, "bcnet.reassembled")) {
        let payload = field_text(node, "bcnet.payload").expect("a payload").replace(':', "");
        assert_eq!(field_text(node, "bcnet.reassembled.len"), Some((payload.len() / 2).to_string().as_str()));
        whole.insert(payload, node);
    }
    println!(
        "seed {SEED}: {} payloads came in fragments, {} were reassembled",
        swarm.large.len(),
        whole.len()
    );
    assert!(swarm.large.len() > 50);
    let hex: Vec<String> = swarm.large.iter().map(|payload| hex(payload)).collect();
    let mut comparison = Comparison::default();
    for (payload, mut game) in hex.iter().zip(run_inspect(&hex, &["--payload"])) {
        let node = whole.get(&payload.to_lowercase()).expect("the payload was reassembled");
        for key in ["line", "direction", "len", "payload"] {
            game.as_object_mut().expect("an object").remove(key);
        }
        comparison.compare_game(&game, &node["bcnet.game"]).expect("the same");
    }
    let mut marks = HashMap::new();
    for (message, expected) in messages.iter().zip(expected_duplicates(&swarm.captured)) {
        let count = field_text(message, "bcnet.retransmission.count")
            .or_else(|| field_text(message, "bcnet.ack.repeat"));
        assert_eq!(count.map(str::to_owned), expected.map(|before| before.to_string()), "{message}");
        *marks.entry((message["bcnet.kind"].clone(), count.is_some())).or_insert(0) += 1;
    }
    println!("{marks:?}");
    assert!(marks[&(json!("data"), true)] > 100 && marks[&(json!("ack"), true)] > 100);
}

/// Returns for each captured message how often it was sent or acknowledged before; `None` if it was not.
fn expected_duplicates(captured: &[WireDatagram]) -> Vec<Option<u32>> {
    let mut sent: HashMap<_, (Vec<u8>, u32, u32)> = HashMap::new();
    let mut found = Vec::new();
    for WireDatagram { from, to, bytes, .. } in captured {
        let mut plain = bytes.clone();
        cipher::decrypt(&mut plain);
        for message in Datagram::parse(&plain, None).expect("well formed").messages() {
            let before = match (message, message.id()) {
                (Message::Ack(ack), _) => sent.get_mut(&(*to, *from, ack.id)).map(|(_, _, acks)| {
                    *acks += 1;
                    *acks - 1
                }),
                (_, Some(id)) => {
                    let content = format!("{message:?}").into_bytes();
                    let record = sent.entry((*from, *to, id)).or_default();
                    if record.0 != content {
                        *record = (content, 0, 0);
                    }
                    record.1 += 1;
                    Some(record.1 - 1)
                }
                _ => None,
            };
            found.push(before.filter(|before| *before > 0));
        }
    }
    found
}

/// Returns a conversation with many faults: a datagram each second.
fn faulty_conversation() -> Vec<WireDatagram> {
    let chat: &[u8] = &[2, 1, 0x32, 0x0A, 0x80, 5, 0, 0x2C, 2, 0, 0, 0];
    let plain = [
        chat,
        &[1, 1, 1, 5, 0, 0],
        chat,
        &[1, 2, 1, 5, 0, 0, 1, 6, 0, 0],
        &[1, 1, 1, 5, 0, 0],
        &[2, 1, 0x32, 8, 0xA0, 7, 0, 0, 2, 0x13],
        &[2, 1, 0x32, 8, 0xA0, 7, 0, 5, 1, 1],
        &[1, 2, 1, 7, 0, 0, 1, 7, 0, 1, 0],
        &[2, 1, 0x32, 7, 0xA0, 7, 0, 1, 9],
        chat,
        chat,
        chat,
        chat,
    ];
    let seconds = (0..).map(Duration::from_secs);
    seconds.zip(plain).map(|(at, plain)| captured_datagram(at, encrypted(plain.to_vec()))).collect()
}

#[test]
fn conversation_faults_are_named() {
    if !is_available() {
        return;
    }
    // Frames are dissected twice, as Wireshark does.
    let layers = dissect("faults", &faulty_conversation(), &["-2"]);
    let message = |frame: usize, index: usize| {
        all_fields(layers[frame - 1].as_ref().expect("ours"), "bcnet.message")[index]
    };
    let fields = [
        (1, 0, "acked_in", Some("2")),
        (2, 0, "ack.of", Some("1")),
        (2, 0, "ack.time", Some("1")),
        (2, 0, "ack.opcode", Some("0x2c")),
        (3, 0, "retransmission", Some("1")),
        // The ACK answers the retransmission, so it is not stale, and its time counts from there.
        (4, 0, "ack.of", Some("3")),
        (4, 0, "ack.time", Some("1")),
        (4, 0, "ack.age", Some("2")),
        (4, 0, "ack.repeat", Some("1")),
        (4, 0, "ack.stale", None),
        (5, 0, "ack.of", Some("3")),
        (5, 0, "ack.time", Some("2")),
        (5, 0, "ack.age", Some("3")),
        (5, 0, "ack.repeat", Some("2")),
        (5, 0, "ack.stale", Some("1")),
        (6, 0, "reassembled.in", Some("9")),
        (8, 1, "ack.of", Some("6")),
    ];
    for (frame, index, field, value) in fields {
        let shown = field_text(message(frame, index), &format!("bcnet.{field}"));
        assert_eq!(shown, value, "{field} of message {index} in frame {frame}");
    }
    let experts = [
        (3, 0, "Retransmission"),
        (4, 0, ""),
        (4, 1, "ACK of a message that was not captured"),
        (5, 0, "Stale ACK: the message is already acknowledged"),
        (7, 0, "Fragment contradicts the others of its message"),
        (8, 0, "Plain ACK of a fragmented message"),
        (12, 0, "Retransmission"),
        (13, 0, "Retransmitted many times"),
    ];
    for (frame, index, text) in experts {
        let shown = field_text(&message(frame, index)["_ws.expert"], "_ws.expert.message");
        assert_eq!(shown.unwrap_or(""), text, "message {index} in frame {frame}");
    }
    let whole = all_fields(message(9, 0), "bcnet.reassembled")[0];
    assert_eq!(all_fields(whole, "bcnet.reassembled.frame"), ["6", "9"]);
    assert_eq!(field_text(&whole["bcnet.game"], "bcnet.opcode.name"), Some("HostMessage"));
}

#[test]
fn conversation_faults_match_display_filters() {
    if !is_available() {
        return;
    }
    let filters = [
        ("bcnet.seq == 5", &[1, 3, 10, 11, 12, 13][..]),
        ("bcnet.ack.seq == 5", &[2, 4, 5]),
        ("bcnet.ack.part == 0", &[8]),
        ("bcnet.ack.stale", &[5]),
        ("bcnet.retransmission", &[3, 10, 11, 12, 13]),
        ("bcnet.reassembled", &[9]),
        ("bcnet.opcode == 0x2c && bcnet.game.sender == 2", &[1, 3, 10, 11, 12, 13]),
        ("bcnet.game.truncated == \"text\"", &[1, 3, 10, 11, 12, 13]),
        ("_ws.expert.severity >= \"Warning\"", &[1, 3, 5, 7, 8, 10, 11, 12, 13]),
        ("_ws.expert.message contains \"Stale ACK\"", &[5]),
        ("bcnet.message && bcnet.payload contains 02:00:00:00", &[1, 3, 10, 11, 12, 13]),
        ("bcnet.conversation == 1", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
    ];
    for (filter, expected) in filters {
        assert_eq!(matching_frames("filters", &faulty_conversation(), filter), expected, "{filter}");
    }
}

#[test]
fn info_column_shows_sender_and_messages() {
    if !is_available() {
        return;
    }
    let chat = [&[2, 2, 1, 5, 0, 0, 0x32, 0x11, 0x80, 6, 0][..], b"\x2C\x02\0\0\0\x05\0hello"].concat();
    let conversation = [
        encrypted(vec![2, 1, 2]),
        encrypted(vec![1, 1, 0x32, 6, 0x80, 5, 0, 0x28]),
        encrypted(chat.clone()),
        encrypted(chat),
        b"\\status\\".to_vec(),
        encrypted(vec![1, 1, 9]),
    ];
    let conversation: Vec<WireDatagram> =
        conversation.into_iter().map(|bytes| captured_datagram(Duration::ZERO, bytes)).collect();
    let lines = [
        "2→1 keepalive",
        "1→2 data 5 ChecksumComplete",
        "2→1 ack game 5 · data 6 Chat \"hello\"",
        "2→1 ack game 5 [stale] · data 6 [resent] Chat \"hello\"",
        "GameSpy \\status\\",
        "malformed: unknown_type: type at byte 2",
    ];
    assert_eq!(info_column("info", &conversation), lines);
}

/// Returns a reliable, urgent control message: its kind, its number and its body.
fn control_message(kind: u8, seq: u8, body: &[u8]) -> Vec<u8> {
    let len = u8::try_from(5 + body.len()).expect("short");
    [&[kind, len, 0xC0, seq, 0], body].concat()
}

fn identity_message(seq: u8, peer: u8, name: &str) -> Vec<u8> {
    let name = name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes);
    control_message(0x00, seq, &[&[peer, 10, 0, 0, peer][..], &name.collect::<Vec<u8>>()].concat())
}

fn connect_request(nonce: u8) -> Vec<u8> {
    control_message(0x03, 0, &[10, 0, 0, 2, nonce, 0, 0, 0, 0, 0])
}

/// A player who rejoins starts another conversation, with another name.
#[test]
fn conversation_has_a_number_and_a_player_name() {
    if !is_available() {
        return;
    }
    let plain = [
        [&[0xFF, 1][..], &connect_request(7)].concat(),
        vec![2, 1, 2],
        [&[1, 1][..], &identity_message(1, 2, "Žofie")].concat(),
        vec![2, 1, 2],
        [&[1, 1][..], &identity_message(2, 1, "Alice's game")].concat(),
        vec![1, 1, 2],
        [&[0xFF, 1][..], &connect_request(7)].concat(),
        [&[0xFF, 1][..], &connect_request(8)].concat(),
        vec![3, 1, 2],
        vec![1, 1, 9],
    ];
    let conversation: Vec<WireDatagram> =
        plain.iter().map(|plain| captured_datagram(Duration::ZERO, encrypted(plain.clone()))).collect();
    assert_eq!(
        info_column("names", &conversation)[1..9],
        [
            "2→1 keepalive",
            "1→2 \"Žofie\" identity 2 \"Žofie\"",
            "2 \"Žofie\"→1 keepalive",
            "1 \"Alice's game\"→2 \"Žofie\" identity 1 \"Alice's game\"",
            "1 \"Alice's game\"→2 \"Žofie\" keepalive",
            "new \"Žofie\"→1 \"Alice's game\" connect request [resent] \"\"",
            "new→1 \"Alice's game\" connect request \"\"",
            "3→1 \"Alice's game\" keepalive",
        ]
    );
    // With a second pass the names are known from the beginning.
    let layers = dissect("names", &conversation, &["-2"]);
    let column = |field: &str| -> Vec<&str> {
        layers.iter().map(|layer| field_text(layer.as_ref().expect("ours"), field).unwrap_or("")).collect()
    };
    assert_eq!(column("bcnet.conversation"), ["1", "1", "1", "1", "1", "1", "1", "2", "2", ""]);
    let zofie = "Žofie";
    assert_eq!(column("bcnet.player"), [zofie, zofie, zofie, zofie, zofie, zofie, zofie, "", "", ""]);
    let host = "Alice's game";
    assert_eq!(column("bcnet.sender.name"), [zofie, zofie, host, zofie, host, host, zofie, "", "", ""]);
    assert_eq!(
        matching_frames("names", &conversation, "bcnet.player == \"Žofie\" && bcnet.sender == 1"),
        [3, 5, 6]
    );
    assert_eq!(matching_frames("names", &conversation, "bcnet.conversation == 2"), [8, 9]);
}

/// Expert infos have few fixed texts, so that they can be counted; the numbers are in fields.
#[test]
fn expert_infos_of_one_kind_share_one_text() {
    if !is_available() {
        return;
    }
    let swarm = traffic::swarm(SEED, 3_000, TrafficMix::Everything);
    let text = statistics("expert", &swarm.captured, &["-z", "expert"]);
    let mut counts = HashMap::new();
    for line in text.lines().filter(|line| line.contains(" BCNET ")) {
        let mut words = line.split_whitespace();
        let count: usize = words.next().and_then(|count| count.parse().ok()).expect(line);
        let text = line.split_once(" BCNET ").expect("there").1.trim().to_owned();
        assert_eq!(counts.insert(text, count), None, "{line} occurs twice");
    }
    println!("{counts:?}");
    let known = [
        "Malformed datagram",
        "Not sent by the stock game",
        "Retransmission",
        "Retransmitted many times",
        "Stale ACK: the message is already acknowledged",
        "ACK of a message that was not captured",
        "Plain ACK of a fragmented message",
        "Fragment contradicts the others of its message",
        "Payload is truncated",
        "The host removes a peer",
    ];
    assert!(counts.keys().all(|text| known.contains(&text.as_str())), "{text}");
    for text in ["Malformed datagram", "Retransmission", "Stale ACK: the message is already acknowledged"] {
        assert!(counts[text] > 30, "{text}: {}", counts[text]);
    }
}

/// All fields before an error are shown, including those of the faulty message.
#[test]
fn fields_before_an_error_are_shown() {
    if !is_available() {
        return;
    }
    let whole = identity_message(3, 2, "Zo");
    let plain: [&[u8]; 7] = [
        &[2, 3, 2, 1, 5, 0, 0, 9],
        &[2, 1, 0x32, 0x40, 0x80, 6, 0, 0x2C, 2, 0, 0, 0, 5, 0, b'h'],
        &[2, 1, 0x32, 0x40, 0xA0, 6, 0, 0, 3, 0x14, 1, 2],
        &[1, 1, 1, 5, 0, 1],
        &[&[1, 1][..], &whole[..whole.len() - 1]].concat(),
        &[2, 1, 2, 2],
        &[2, 0],
    ];
    let conversation: Vec<WireDatagram> =
        plain.iter().map(|plain| captured_datagram(Duration::ZERO, encrypted(plain.to_vec()))).collect();
    let layers = dissect("front", &conversation, &[]);
    let layer = |frame: usize| layers[frame - 1].as_ref().expect("ours");
    let last = |frame: usize| *all_fields(layer(frame), "bcnet.message").last().expect("a message");
    assert_eq!(all_fields(layer(1), "bcnet.message").len(), 3);
    assert_eq!(field_text(all_fields(layer(1), "bcnet.message")[1], "bcnet.ack.seq"), Some("5"));
    assert_eq!(last(1), &json!({"bcnet.type": "0x09"}));
    let game = &last(2)["bcnet.game"];
    assert_eq!(field_text(last(2), "bcnet.seq"), Some("6"));
    assert_eq!(
        (field_text(game, "bcnet.game.sender"), field_text(game, "bcnet.game.truncated")),
        (Some("2"), Some("text"))
    );
    assert_eq!(
        (field_text(last(3), "bcnet.total"), field_text(last(3), "bcnet.payload")),
        (Some("3"), Some("14:01:02"))
    );
    assert_eq!(
        (field_text(last(4), "bcnet.ack.seq"), field_text(last(4), "bcnet.ack.flags")),
        (Some("5"), Some("0x01"))
    );
    assert_eq!(
        (field_text(last(5), "bcnet.peer"), field_text(last(5), "bcnet.address")),
        (Some("2"), Some("10.0.0.2"))
    );
    assert_eq!(field_text(last(5), "bcnet.name"), None);
    assert_eq!(field_text(last(6), "bcnet.kind"), Some("keepalive"));
    assert_eq!(
        (field_text(layer(7), "bcnet.sender"), field_text(layer(7), "bcnet.count")),
        (Some("2"), Some("0"))
    );
    let lines = info_column("front", &conversation);
    assert_eq!(lines[0], "keepalive · ack game 5 · malformed: unknown_type: type at byte 7");
    assert_eq!(lines[5], "keepalive · malformed: trailing: message at byte 3");
}
