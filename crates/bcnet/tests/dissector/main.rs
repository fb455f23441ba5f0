//! Tests the dissector in the real tshark against `bcnet inspect --json`: two readers that check each other.

mod compare;
mod conversation;
mod tools;
mod traffic;
mod tshark;

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use bcnet_session::game::{EventClass, ObjectClass, Species, SubsystemByte};
use bcnet_transport::cipher;
use serde_json::{Value, json};

use compare::Comparison;
use traffic::{CLIENT, HOST, TrafficMix, captured_datagram, data_datagram, encrypted};
use tshark::{WireDatagram, all_fields, dissect, dissect_and_inspect, field_text, is_available};

#[test]
fn test_vectors_have_same_fields_in_both_readers() {
    if is_available() {
        let compared = assert_same_fields("vectors", &traffic::test_vectors());
        assert!(compared.values > 800, "{} values", compared.values);
    }
}

#[test]
fn lab_scenarios_have_same_fields_in_both_readers() {
    if is_available() {
        let captured = traffic::scenario_datagrams();
        let compared = assert_same_fields("scenarios", &captured);
        println!("{} datagrams, {} values are the same", captured.len(), compared.values);
        assert!(
            captured.len() > 3000 && compared.context["bcnet.ack.stale"] > 1000,
            "{:?}",
            compared.context
        );
    }
}

#[test]
fn faulty_session_has_same_fields_in_both_readers() {
    if !is_available() {
        return;
    }
    let swarm = traffic::swarm(SEED, 20_000, TrafficMix::Everything);
    println!("seed {SEED}");
    let compared = assert_same_fields("swarm", &swarm.captured);
    println!("{} values are the same; in context {:?}", compared.values, compared.context);
    assert!(compared.joined > 200, "{} payloads were reassembled", compared.joined);
    for field in ["bcnet.ack.stale", "bcnet.retransmission", "bcnet.reassembled", "bcnet.ack.of"] {
        assert!(compared.context[field] > 100, "{field}: {}", compared.context[field]);
    }
    for field in
        ["bcnet.error.at", "bcnet.gamespy", "bcnet.part", "bcnet.ack.part", "bcnet.name", "bcnet.non_stock"]
    {
        assert!(compared.has_value(field), "no {field} was compared");
    }
    let never = compared.never_filled();
    assert!(never.is_empty(), "always null, so not compared: {never:?}");
}

/// Datagrams cut at every length, and random bytes.
#[test]
fn truncated_and_random_bytes_have_same_fields_in_both_readers() {
    if !is_available() {
        return;
    }
    let mut cut = Vec::new();
    for vector in traffic::test_vectors().into_iter().filter(|vector| vector.bytes.len() < 60) {
        let mut plain = vector.bytes.clone();
        cipher::decrypt(&mut plain);
        let ends = (1..plain.len()).map(|end| encrypted(plain[..end].to_vec()));
        cut.extend(
            ends.chain([encrypted([&plain[..], &[0]].concat())])
                .map(|bytes| captured_datagram(vector.at, bytes)),
        );
    }
    let mut rng = bcnet_lab::Rng::new(SEED);
    for _ in 0..500 {
        let mut bytes = vec![0; 3 + rng.index(300)];
        rng.fill(&mut bytes);
        // Otherwise most random datagrams end at their count or first type.
        (bytes[1], bytes[2]) = (1 + bytes[1] % 3, [0, 1, 3, 4, 5, 0x32][rng.index(6)]);
        cut.push(captured_datagram(Duration::ZERO, encrypted(bytes)));
    }
    let compared = assert_same_fields("cut", &cut);
    println!("{} datagrams, {} values", cut.len(), compared.values);
}

/// Every opcode, and unknown ones, with bytes that are often valid lengths and flags.
#[test]
fn random_payloads_have_same_fields_in_both_readers() {
    if !is_available() {
        return;
    }
    let mut rng = bcnet_lab::Rng::new(SEED);
    let mut payloads = Vec::new();
    for opcode in (0..=0x42).chain([0xCD]) {
        for round in 0..30 {
            let mut payload = vec![0; 1 + rng.index(60)];
            rng.fill(&mut payload);
            for byte in &mut payload {
                if rng.chance(0.6) {
                    *byte = [0, 0, 0, 1, 2, 3, 0xFF][rng.index(7)];
                }
            }
            payload[0] = opcode;
            let classes = EventClass::KNOWN.iter().map(|(class, _)| class.0).chain([ObjectClass::SHIP.0]);
            let class = classes.clone().nth(round % classes.count()).expect("a class");
            let at = if opcode == 0x03 { 3 } else { 1 };
            if let Some(place) = payload.get_mut(at..at + 4).filter(|_| opcode != 0x1C) {
                place.copy_from_slice(&class.to_le_bytes());
            }
            payloads.push(captured_datagram(Duration::ZERO, data_datagram(2, &payload)));
        }
    }
    let compared = assert_same_fields("payloads", &payloads);
    println!("{} payloads, {} values", payloads.len(), compared.values);
    for field in
        ["cloaked", "hash", "speed_raw", "delta", "powered", "contact_raw", "end_time", "player", "offset"]
    {
        assert!(compared.has_value(&format!("bcnet.game.{field}")), "no {field} was compared");
    }
}

/// Ships of every species, with the right number of subsystem bytes, and with one more or less.
#[test]
fn ship_subsystems_have_same_fields_in_both_readers() {
    if !is_available() {
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
            payloads.push(captured_datagram(
                Duration::ZERO,
                data_datagram(2, &[&head.concat(), &subsystems[..len]].concat()),
            ));
        }
    }
    let compared = assert_same_fields("subsystems", &payloads);
    for field in ["hull", "bridge", "shield_facing", "pulse_weapon", "weapon_bits", "tractor_setting"] {
        assert!(compared.has_value(&format!("bcnet.game.{field}")), "no {field} was compared");
    }
}

/// The comparison detects extra data on either side, and different values.
#[test]
fn comparison_detects_missing_keys_and_fields() {
    let entry = json!({"line": 1, "sender": 1, "direction": null, "messages": [{"type": 2, "kind": "keepalive", "len": 1}]});
    let message = json!({"bcnet.type": "0x02", "bcnet.kind": "keepalive", "bcnet.len": "1"});
    let layer =
        json!({"bcnet.sender": "1", "bcnet.count": "1", "bcnet.direction": "S", "bcnet.message": message});
    let compare = |entry: &Value, layer: &Value| Comparison::default().compare_datagram(entry, layer);
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

/// The same for the position of a packet: extra, missing and different values.
#[test]
fn comparison_detects_a_different_packet_location() {
    let line = json!({"packet": 3, "offset": 60, "time": 1.5, "from": "10.0.0.1:1", "to": "10.0.0.2:2", "comment": "x",
        "gamespy": "\\a"});
    let layers = json!({
        "frame": {"frame.number": "3", "frame.file_off": "60", "frame.time_epoch": "1.500000000"},
        "ip": {"ip.src": "10.0.0.1", "ip.dst": "10.0.0.2"},
        "udp": {"udp.srcport": "1", "udp.dstport": "2"},
        "pkt_comment": {"frame.comment": "x"},
        "bcnet": {"bcnet.gamespy": "\\a"},
    });
    assert_eq!(Comparison::default().compare_packet(&line, &layers), Ok(()));
    for key in ["packet", "offset", "time", "from", "to", "comment", "new"] {
        let mut other = line.clone();
        other[key] = json!(7);
        assert!(Comparison::default().compare_packet(&other, &layers).is_err(), "{key}");
        other.as_object_mut().expect("an object").shift_remove(key);
        assert_eq!(Comparison::default().compare_packet(&other, &layers).is_ok(), key == "new", "{key}");
    }
}

/// Ports do not matter, unless the user sets them.
#[test]
fn ports_are_recognized_by_content_or_preference() {
    if !is_available() {
        return;
    }
    let elsewhere = |mut datagram: WireDatagram| {
        datagram.from.set_port(40_000);
        datagram.to.set_port(40_001);
        datagram
    };
    let good: Vec<WireDatagram> = [data_datagram(2, b"\x2C\x02\0\0\0\x05\0hello"), b"\\status\\".to_vec()]
        .map(|bytes| elsewhere(captured_datagram(Duration::ZERO, bytes)))
        .to_vec();
    assert!(dissect("heuristic", &good, &[]).iter().all(Option::is_some));
    assert!(dissect("no-heuristic", &good, &["-o", "bcnet.heuristic:FALSE"]).iter().all(Option::is_none));
    let mut rng = bcnet_lab::Rng::new(SEED);
    let foreign = |i: u16| {
        let mut bytes = vec![0; 3 + rng.index(500)];
        rng.fill(&mut bytes);
        let mut datagram = captured_datagram(Duration::ZERO, bytes);
        // Each datagram has its own conversation, because recognition is remembered for a conversation.
        datagram.from.set_port(30_000 + i);
        datagram.to.set_port(45_000 + i);
        datagram
    };
    let foreign: Vec<WireDatagram> = (0..2000).map(foreign).collect();
    assert_eq!(dissect("foreign", &foreign, &[]).iter().filter(|layer| layer.is_some()).count(), 0);
    let bad = [WireDatagram { at: Duration::ZERO, from: CLIENT, to: HOST, bytes: encrypted(vec![2, 1, 9]) }]
        .map(elsewhere);
    assert_eq!(dissect("bad", &bad, &[]), [None]);
    assert!(dissect("preference", &bad, &["-o", "bcnet.ports:40001"])[0].is_some());
}

/// Fails if any datagram differs, read as hex or from the capture.
fn assert_same_fields(name: &str, captured: &[WireDatagram]) -> Comparison {
    let (packets, lines) = dissect_and_inspect(name, captured);
    let entries = inspect_datagrams(captured);
    assert_eq!(entries.len(), captured.len());
    let (mut comparison, mut of_file) = (Comparison::default(), Comparison::default());
    // Findings follow their datagram; the dissector has expert infos for them. Lines without a packet are about the
    // whole capture.
    let is_datagram = |line: &&Value| line.get("packet").is_some() && line.get("finding").is_none();
    let mut lines = lines.iter().filter(is_datagram).peekable();
    let mut known_pairs = HashSet::new();
    let mut wrong = Vec::new();
    for (((layers, entry), datagram), number) in packets.iter().zip(&entries).zip(captured).zip(1..) {
        let layer = layers.get("bcnet").unwrap_or(&Value::Null);
        let mut compared = comparison.compare_datagram(entry, layer);
        let ends = (datagram.from.min(datagram.to), datagram.from.max(datagram.to));
        // Garbage between addresses without other game traffic is not the game's. Nor is a datagram that only begins
        // like GameSpy text, which any protocol may send.
        let is_text = field_text(&layer["bcnet.gamespy_tree"], "bcnet.gamespy.not_text").is_none();
        let is_ours = is_text && (entry.get("error").is_none() || known_pairs.contains(&ends));
        match lines.next_if(|line| line["packet"] == number) {
            Some(line) if is_ours => compared = compared.and_then(|()| of_file.compare_packet(line, layers)),
            None if !is_ours => {}
            line => {
                compared = compared.and_then(|()| Err(format!("packet {number}: the file says {line:?}")));
            }
        }
        if entry.get("messages").is_some() {
            known_pairs.insert(ends);
        }
        if let Err(why) = compared {
            wrong.push(format!("{:02X?}: {why}", datagram.bytes));
        }
    }
    let shown = wrong.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{name}: {} of {} datagrams differ:\n{shown}", wrong.len(), captured.len());
    assert_eq!(lines.next(), None, "{name}: no packet has this line");
    comparison.joined = of_file.joined;
    println!(
        "{name}: {} values of the file are the same, {} of them reassembled payloads",
        of_file.values, of_file.joined
    );
    assert!(of_file.values > 0);
    assert_same_before_errors(name, captured, &packets, &entries, &mut comparison);
    comparison
}

/// Checks the messages before an error of a datagram that cannot be decoded.
///
/// As many as possible are shown, as if the datagram ended after them.
fn assert_same_before_errors(
    name: &str,
    captured: &[WireDatagram],
    packets: &[Value],
    entries: &[Value],
    comparison: &mut Comparison,
) {
    let (mut shown, mut lines) = (Vec::new(), Vec::new());
    for ((layers, entry), datagram) in packets.iter().zip(entries).zip(captured) {
        let Some(error) = entry.get("error") else { continue };
        let mut plain = datagram.bytes.clone();
        cipher::decrypt(&mut plain);
        // An incomplete message has no length.
        let mut nodes = all_fields(&layers["bcnet"], "bcnet.message");
        nodes.retain(|node| node.get("bcnet.len").is_some());
        let whole = u8::try_from(nodes.len()).expect("few");
        let sizes = nodes.iter().map(|node| field_text(node, "bcnet.len").expect("a size"));
        let end = 2 + sizes.map(|size| size.parse::<usize>().expect("a number")).sum::<usize>();
        let as_many = |count: u8, bytes: &[u8]| {
            hex(&[&plain[..1], &[count], bytes.get(2..).unwrap_or_default()].concat())
        };
        if whole > 0 {
            lines.push(as_many(whole, &plain[..end]));
            shown.push((nodes, None));
        }
        if plain.len() > 2 && whole < plain[1] {
            lines.push(as_many(whole + 1, &plain));
            shown.push((vec![], Some(error)));
        }
    }
    if lines.is_empty() {
        return;
    }
    let mut partial = 0;
    for ((nodes, error), (line, entry)) in
        shown.iter().zip(lines.iter().zip(run_inspect(&lines, &["--plain"])))
    {
        match error {
            Some(error) => {
                assert_eq!(entry.get("error"), Some(*error), "{name}: one more can be read: {line}")
            }
            None => {
                partial += 1;
                comparison
                    .compare_nodes(&entry["messages"], nodes)
                    .unwrap_or_else(|why| panic!("{name}: {why}"));
            }
        }
    }
    println!("{name}: {} errors, {partial} with messages in front", lines.len() - partial);
}

/// Returns the output of `bcnet inspect --json` for each datagram.
fn inspect_datagrams(captured: &[WireDatagram]) -> Vec<Value> {
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
