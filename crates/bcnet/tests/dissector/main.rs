//! The dissector in the real tshark, against `bcnet inspect --json`: two readers that check each other.

mod compare;
mod traffic;
mod tshark;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use bcnet_session::game::{EventClass, ObjectClass, Species, SubsystemByte};
use bcnet_transport::cipher;
use bcnet_transport::wire::{Datagram, Message};
use serde_json::{Value, json};

use compare::Comparison;
use traffic::{CLIENT, HOST, Mix, captured, ciphered, data};
use tshark::{Captured, all, both, dissect, frames, info, is_here, text};

#[test]
fn every_vector_has_the_same_fields_in_both() {
    if is_here() {
        let compared = same_fields("vectors", &traffic::vectors());
        assert!(compared.values > 800, "{} values", compared.values);
    }
}

#[test]
fn every_scenario_of_the_laboratory_has_the_same_fields_in_both() {
    if is_here() {
        let captured = traffic::scenarios();
        let compared = same_fields("scenarios", &captured);
        println!("{} datagrams, {} values are the same", captured.len(), compared.values);
        assert!(
            captured.len() > 3000 && compared.context["bcnet.ack.stale"] > 1000,
            "{:?}",
            compared.context
        );
    }
}

#[test]
fn a_session_with_every_fault_has_the_same_fields_in_both() {
    if !is_here() {
        return;
    }
    let swarm = traffic::swarm(SEED, 10_000, Mix::Everything);
    println!("seed {SEED}");
    let compared = same_fields("swarm", &swarm.captured);
    println!("{} values are the same; in context {:?}", compared.values, compared.context);
    for field in ["bcnet.ack.stale", "bcnet.retransmission", "bcnet.reassembled", "bcnet.ack.of"] {
        assert!(compared.context[field] > 100, "{field}: {}", compared.context[field]);
    }
    for field in
        ["bcnet.error.at", "bcnet.gamespy", "bcnet.part", "bcnet.ack.part", "bcnet.name", "bcnet.non_stock"]
    {
        assert!(compared.has(field), "no {field} was compared");
    }
    let never = compared.never_filled();
    assert!(never.is_empty(), "always null, so not compared: {never:?}");
}

/// Every way in which a datagram can end too early, and any bytes at all.
#[test]
fn cut_datagrams_and_garbage_have_the_same_fields_in_both() {
    if !is_here() {
        return;
    }
    let mut cut = Vec::new();
    for vector in traffic::vectors().into_iter().filter(|vector| vector.bytes.len() < 60) {
        let mut plain = vector.bytes.clone();
        cipher::decrypt(&mut plain);
        let ends = (1..plain.len()).map(|end| ciphered(plain[..end].to_vec()));
        cut.extend(
            ends.chain([ciphered([&plain[..], &[0]].concat())]).map(|bytes| captured(vector.at, bytes)),
        );
    }
    let mut rng = bcnet_lab::Rng::new(SEED);
    for _ in 0..500 {
        let mut bytes = vec![0; 3 + rng.size(300)];
        rng.fill(&mut bytes);
        // Else most garbage ends at its count or its first type.
        (bytes[1], bytes[2]) = (1 + bytes[1] % 3, [0, 1, 3, 4, 5, 0x32][rng.size(6)]);
        cut.push(captured(Duration::ZERO, ciphered(bytes)));
    }
    let compared = same_fields("cut", &cut);
    println!("{} datagrams, {} values", cut.len(), compared.values);
}

/// Every opcode, and those that nobody knows, with bytes of which many make sense as lengths and flags.
#[test]
fn any_payload_has_the_same_fields_in_both() {
    if !is_here() {
        return;
    }
    let mut rng = bcnet_lab::Rng::new(SEED);
    let mut payloads = Vec::new();
    for opcode in (0..=0x42).chain([0xCD]) {
        for round in 0..30 {
            let mut payload = vec![0; 1 + rng.size(60)];
            rng.fill(&mut payload);
            for byte in &mut payload {
                if rng.chance(0.6) {
                    *byte = [0, 0, 0, 1, 2, 3, 0xFF][rng.size(7)];
                }
            }
            payload[0] = opcode;
            let classes = EventClass::KNOWN.iter().map(|(class, _)| class.0).chain([ObjectClass::SHIP.0]);
            let class = classes.clone().nth(round % classes.count()).expect("a class");
            let at = if opcode == 0x03 { 3 } else { 1 };
            if let Some(place) = payload.get_mut(at..at + 4).filter(|_| opcode != 0x1C) {
                place.copy_from_slice(&class.to_le_bytes());
            }
            payloads.push(captured(Duration::ZERO, data(2, &payload)));
        }
    }
    let compared = same_fields("payloads", &payloads);
    println!("{} payloads, {} values", payloads.len(), compared.values);
    for field in
        ["cloaked", "hash", "speed_raw", "delta", "powered", "contact_raw", "end_time", "player", "offset"]
    {
        assert!(compared.has(&format!("bcnet.game.{field}")), "no {field} was compared");
    }
}

/// Ships of every species with as many bytes about their subsystems as it has, and with one more or less.
#[test]
fn subsystems_of_every_species_have_the_same_fields_in_both() {
    if !is_here() {
        return;
    }
    let mut rng = bcnet_lab::Rng::new(SEED);
    let mut payloads = Vec::new();
    for species in 0..=45 {
        let known = Species(species).subsystem_bytes().unwrap_or_default();
        let mut subsystems = vec![0; known.len() + 1];
        rng.fill(&mut subsystems);
        for (byte, known) in subsystems.iter_mut().zip(&known) {
            if let SubsystemByte::WeaponBits(count) = known {
                *byte = *byte & 0x1F | count << 5;
            }
        }
        let head =
            [&[3, 0, 2, 8, 0x80, 0, 0, 0xFF, 0xFF, 0xFF, 0x3F, species][..], &[0; 35], &[1, b'a', 1, b'b']];
        for len in [known.len().saturating_sub(1), known.len(), known.len() + 1] {
            payloads.push(captured(Duration::ZERO, data(2, &[&head.concat(), &subsystems[..len]].concat())));
        }
    }
    let compared = same_fields("subsystems", &payloads);
    for field in ["hull", "bridge", "shield_facing", "pulse_weapon", "weapon_bits", "tractor_setting"] {
        assert!(compared.has(&format!("bcnet.game.{field}")), "no {field} was compared");
    }
}

/// The comparison can fail: on either side something may be too much, and a value may differ.
#[test]
fn a_key_without_a_field_and_a_field_without_a_key_are_noticed() {
    let entry = json!({"line": 1, "sender": 1, "direction": null, "messages": [{"type": 2, "kind": "keepalive", "len": 1}]});
    let message = json!({"bcnet.type": "0x02", "bcnet.kind": "keepalive", "bcnet.len": "1"});
    let layer =
        json!({"bcnet.sender": "1", "bcnet.count": "1", "bcnet.direction": "S", "bcnet.message": message});
    let compare = |entry: &Value, layer: &Value| Comparison::default().datagram(entry, layer);
    assert_eq!(compare(&entry, &layer), Ok(()));
    for pointer in ["", "/messages/0"] {
        let mut more = entry.clone();
        more.pointer_mut(pointer).expect("there")["new"] = json!(1);
        assert!(
            compare(&more, &layer).expect_err("a key too much").contains("bcnet.new is [], not [Number(1)]")
        );
    }
    for pointer in ["", "/bcnet.message"] {
        let mut more = layer.clone();
        more.pointer_mut(pointer).expect("there")["bcnet.new"] = json!("1");
        assert_eq!(
            compare(&entry, &more),
            Err("bcnet.new has no key in JSON".to_owned()).map_err(|why| {
                if pointer.is_empty() {
                    why
                } else {
                    format!("{why}\n  {}\n  {}", entry["messages"][0], more["bcnet.message"])
                }
            })
        );
    }
    let mut other = layer.clone();
    other["bcnet.sender"] = json!("2");
    assert!(compare(&entry, &other).is_err());
}

/// The same of where a packet is: nothing may be too much, missing or different.
#[test]
fn a_place_that_differs_is_noticed() {
    let line = json!({"packet": 3, "offset": 60, "time": 1.5, "from": "10.0.0.1:1", "to": "10.0.0.2:2", "comment": "x",
        "gamespy": "\\a"});
    let layers = json!({
        "frame": {"frame.number": "3", "frame.file_off": "60", "frame.time_epoch": "1.500000000"},
        "ip": {"ip.src": "10.0.0.1", "ip.dst": "10.0.0.2"},
        "udp": {"udp.srcport": "1", "udp.dstport": "2"},
        "pkt_comment": {"frame.comment": "x"},
        "bcnet": {"bcnet.gamespy": "\\a"},
    });
    assert_eq!(Comparison::default().packet(&line, &layers), Ok(()));
    for key in ["packet", "offset", "time", "from", "to", "comment", "new"] {
        let mut other = line.clone();
        other[key] = json!(7);
        assert!(Comparison::default().packet(&other, &layers).is_err(), "{key}");
        other.as_object_mut().expect("an object").shift_remove(key);
        assert_eq!(Comparison::default().packet(&other, &layers).is_ok(), key == "new", "{key}");
    }
}

/// T-20, T-68: whatever came in parts is put together, and read like any payload.
#[test]
fn parts_are_put_together_and_repeats_are_marked() {
    if !is_here() {
        return;
    }
    let swarm = traffic::swarm(SEED, 4_000, Mix::Ours);
    let layers = dissect("parts", &swarm.captured, &[]);
    let messages: Vec<&Value> =
        layers.iter().flat_map(|layer| all(layer.as_ref().expect("recognised"), "bcnet.message")).collect();
    let mut whole = HashMap::new();
    for node in messages.iter().flat_map(|message| all(message, "bcnet.reassembled")) {
        let payload = text(node, "bcnet.payload").expect("a payload").replace(':', "");
        assert_eq!(text(node, "bcnet.reassembled.len"), Some((payload.len() / 2).to_string().as_str()));
        whole.insert(payload, node);
    }
    println!("seed {SEED}: {} payloads came in parts, {} were put together", swarm.large.len(), whole.len());
    assert!(swarm.large.len() > 50);
    let hex: Vec<String> = swarm.large.iter().map(|payload| hex(payload)).collect();
    let mut comparison = Comparison::default();
    for (payload, mut game) in hex.iter().zip(run_inspect(&hex, &["--payload"])) {
        let node = whole.get(&payload.to_lowercase()).expect("it was put together");
        for key in ["line", "direction", "len", "payload"] {
            game.as_object_mut().expect("an object").remove(key);
        }
        comparison.game(&game, &node["bcnet.game"]).expect("the same");
    }
    let mut marks = HashMap::new();
    for (message, expected) in messages.iter().zip(repeats(&swarm.captured)) {
        let count = text(message, "bcnet.retransmission.count").or_else(|| text(message, "bcnet.ack.repeat"));
        assert_eq!(count.map(str::to_owned), expected.map(|before| before.to_string()), "{message}");
        *marks.entry((message["bcnet.kind"].clone(), count.is_some())).or_insert(0) += 1;
    }
    println!("{marks:?}");
    assert!(marks[&(json!("data"), true)] > 100 && marks[&(json!("ack"), true)] > 100);
}

/// Of each captured message, how often it was sent before, or what it acknowledges acknowledged; none if it was not.
fn repeats(captured: &[Captured]) -> Vec<Option<u32>> {
    let mut sent: HashMap<_, (Vec<u8>, u32, u32)> = HashMap::new();
    let mut found = Vec::new();
    for Captured { from, to, bytes, .. } in captured {
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

#[test]
fn faults_of_a_conversation_are_named() {
    if !is_here() {
        return;
    }
    let chat: &[u8] = &[2, 1, 0x32, 0x0A, 0x80, 5, 0, 0x2C, 2, 0, 0, 0];
    let plain = [
        chat,
        &[1, 1, 1, 5, 0, 0],
        chat,
        &[1, 2, 1, 5, 0, 0, 1, 6, 0, 0],
        &[2, 1, 0x32, 8, 0xA0, 7, 0, 0, 2, 0x13],
        &[2, 1, 0x32, 8, 0xA0, 7, 0, 5, 1, 1],
        &[1, 2, 1, 7, 0, 0, 1, 7, 0, 1, 0],
        &[2, 1, 0x32, 7, 0xA0, 7, 0, 1, 9],
        chat,
        chat,
        chat,
        chat,
    ];
    let second = |i: usize| Duration::from_secs(i as u64);
    let conversation: Vec<Captured> =
        plain.iter().enumerate().map(|(i, plain)| captured(second(i), ciphered(plain.to_vec()))).collect();
    // Frames are looked at twice, as Wireshark does.
    let layers = dissect("faults", &conversation, &["-2"]);
    let message =
        |frame: usize, index: usize| all(layers[frame - 1].as_ref().expect("ours"), "bcnet.message")[index];
    let expert =
        |frame, index| text(&message(frame, index)["_ws.expert"], "_ws.expert.message").unwrap_or("");
    assert_eq!(text(message(1, 0), "bcnet.acked_in"), Some("2"));
    assert_eq!(text(message(2, 0), "bcnet.ack.of"), Some("1"));
    assert_eq!(text(message(2, 0), "bcnet.ack.time"), Some("1"));
    assert_eq!(text(message(2, 0), "bcnet.ack.opcode"), Some("0x2c"));
    assert_eq!(text(message(3, 0), "bcnet.retransmission"), Some("1"));
    assert_eq!(expert(3, 0), "Sent again");
    assert_eq!(text(message(4, 0), "bcnet.ack.stale"), Some("1"));
    assert_eq!(text(message(4, 0), "bcnet.ack.age"), Some("2"));
    assert_eq!(expert(4, 0), "Stale ACK: Chat was acknowledged 2.000 s ago, 1 times before");
    assert_eq!(expert(4, 1), "ACK of something that was not captured");
    assert_eq!(expert(6, 0), "Part contradicts the others of its message");
    assert_eq!(expert(7, 0), "Plain ACK of a message that was sent in parts");
    assert_eq!(text(message(7, 1), "bcnet.ack.of"), Some("5"));
    let whole = all(message(8, 0), "bcnet.reassembled")[0];
    assert_eq!(all(whole, "bcnet.reassembled.frame"), ["5", "8"]);
    assert_eq!(text(&whole["bcnet.game"], "bcnet.opcode.name"), Some("HostMessage"));
    assert_eq!((expert(11, 0), expert(12, 0)), ("Sent again", "Sent again and again"));
    let filters = [
        ("bcnet.seq == 5", &[1, 3, 9, 10, 11, 12][..]),
        ("bcnet.ack.seq == 5", &[2, 4]),
        ("bcnet.ack.part == 0", &[7]),
        ("bcnet.ack.stale", &[4]),
        ("bcnet.retransmission", &[3, 9, 10, 11, 12]),
        ("bcnet.reassembled", &[8]),
        ("bcnet.opcode == 0x2c && bcnet.game.sender == 2", &[1, 3, 9, 10, 11, 12]),
        ("bcnet.game.truncated == \"text\"", &[1, 3, 9, 10, 11, 12]),
        ("_ws.expert.severity >= \"Warning\"", &[1, 3, 4, 6, 7, 9, 10, 11, 12]),
    ];
    for (filter, expected) in filters {
        assert_eq!(frames("filters", &conversation, filter), expected, "{filter}");
    }
}

#[test]
fn the_info_column_tells_who_says_what() {
    if !is_here() {
        return;
    }
    let chat = [&[2, 2, 1, 5, 0, 0, 0x32, 0x11, 0x80, 6, 0][..], b"\x2C\x02\0\0\0\x05\0hello"].concat();
    let conversation = [
        ciphered(vec![2, 1, 2]),
        ciphered(vec![1, 1, 0x32, 6, 0x80, 5, 0, 0x28]),
        ciphered(chat.clone()),
        ciphered(chat),
        b"\\status\\".to_vec(),
        ciphered(vec![1, 1, 9]),
    ];
    let conversation: Vec<Captured> =
        conversation.into_iter().map(|bytes| captured(Duration::ZERO, bytes)).collect();
    let lines = [
        "2→1 keepalive",
        "1→2 data 5 ChecksumComplete",
        "2→1 ack game 5 · data 6 Chat \"hello\"",
        "2→1 ack game 5 [stale] · data 6 [again] Chat \"hello\"",
        "GameSpy \\status\\",
        "malformed: unknown_type: type at byte 2",
    ];
    assert_eq!(info("info", &conversation), lines);
}

/// Ports do not matter, unless the user says so.
#[test]
fn any_port_is_recognised_by_content_and_some_by_preference() {
    if !is_here() {
        return;
    }
    let elsewhere = |mut datagram: Captured| {
        datagram.from.set_port(40_000);
        datagram.to.set_port(40_001);
        datagram
    };
    let good: Vec<Captured> = [data(2, b"\x2C\x02\0\0\0\x05\0hello"), b"\\status\\".to_vec()]
        .map(|bytes| elsewhere(captured(Duration::ZERO, bytes)))
        .to_vec();
    assert!(dissect("heuristic", &good, &[]).iter().all(Option::is_some));
    assert!(dissect("no-heuristic", &good, &["-o", "bcnet.heuristic:FALSE"]).iter().all(Option::is_none));
    let mut rng = bcnet_lab::Rng::new(SEED);
    let foreign = |i: u16| {
        let mut bytes = vec![0; 3 + rng.size(500)];
        rng.fill(&mut bytes);
        let mut datagram = captured(Duration::ZERO, bytes);
        // Each its own conversation: what is recognised once stays so.
        datagram.from.set_port(30_000 + i);
        datagram.to.set_port(45_000 + i);
        datagram
    };
    let foreign: Vec<Captured> = (0..2000).map(foreign).collect();
    assert_eq!(dissect("foreign", &foreign, &[]).iter().filter(|layer| layer.is_some()).count(), 0);
    let bad = [Captured { at: Duration::ZERO, from: CLIENT, to: HOST, bytes: ciphered(vec![2, 1, 9]) }]
        .map(elsewhere);
    assert_eq!(dissect("bad", &bad, &[]), [None]);
    assert!(dissect("preference", &bad, &["-o", "bcnet.ports:40001"])[0].is_some());
}

/// Returns whether these bytes begin as GameSpy text does, and are none: cut within the first key, or without one.
fn is_cut_text(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'\\') && (bytes.len() < 5 || !bytes[1].is_ascii_alphanumeric())
}

/// Fails at the first datagrams that differ, be they read as hex or from the capture itself.
fn same_fields(name: &str, captured: &[Captured]) -> Comparison {
    let (packets, lines) = both(name, captured);
    let entries = inspect(captured);
    assert_eq!(entries.len(), captured.len());
    let (mut comparison, mut of_file) = (Comparison::default(), Comparison::default());
    // What an observer finds in the conversation stands behind the datagram; the dissector has expert infos for it.
    let mut lines = lines.iter().filter(|line| line.get("finding").is_none()).peekable();
    let mut talking = HashSet::new();
    let mut wrong = Vec::new();
    for (((layers, entry), datagram), number) in packets.iter().zip(&entries).zip(captured).zip(1..) {
        let layer = layers.get("bcnet").unwrap_or(&Value::Null);
        let mut compared = comparison.datagram(entry, layer);
        let ends = (datagram.from.min(datagram.to), datagram.from.max(datagram.to));
        if let Some(line) = lines.next_if(|line| line["packet"] == number) {
            compared = compared.and_then(|()| of_file.packet(line, layers));
        } else if !is_cut_text(&datagram.bytes) && (entry.get("error").is_none() || talking.contains(&ends)) {
            // Only garbage between addresses that have said nothing else is not the game's, and a backslash with next to
            // nothing behind it, which any protocol may say.
            compared = compared
                .and_then(|()| Err(format!("packet {number} is missing in what is said of the file")));
        }
        if entry.get("messages").is_some() {
            talking.insert(ends);
        }
        if let Err(why) = compared {
            wrong.push(format!("{:02X?}: {why}", datagram.bytes));
        }
    }
    let shown = wrong.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{name}: {} of {} datagrams differ:\n{shown}", wrong.len(), captured.len());
    assert_eq!(lines.next(), None, "{name}: no packet has this line");
    println!("{name}: {} values of the file are the same", of_file.values);
    assert!(of_file.values > 0);
    comparison
}

/// What `bcnet inspect --json` says of each datagram.
fn inspect(captured: &[Captured]) -> Vec<Value> {
    let lines: Vec<String> = captured.iter().map(|datagram| hex(&datagram.bytes)).collect();
    run_inspect(&lines, &[])
}

fn run_inspect(lines: &[String], arguments: &[&str]) -> Vec<Value> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bcnet"))
        .args(["inspect", "--hex", "-", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bcnet runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let lines = lines.join("\n");
    let feeder = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("bcnet ends");
    feeder.join().expect("fed").expect("bcnet reads all");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

const SEED: u64 = 2002;
