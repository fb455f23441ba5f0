//! Test that every captured datagram and message decodes to its listed fields and round-trips.

use bcnet_observe::NonStock;
use bcnet_wire::cipher;
use bcnet_wire::{
    Ack, Body, Control, Data, Datagram, Fragment, Message, Role, WireError, WireErrorReason, Writer,
};
use serde_json::{Map, Value, json};

const TRANSPORT: &str = include_str!("../../../captures/transport.json");

#[test]
fn complete_datagrams_decode_to_their_fields() {
    let vectors = vectors("datagram", true);
    assert!(vectors.len() >= 11);
    for vector in vectors {
        let plain = bytes(&vector, "plain");
        let datagram = expect_ok(&vector, Datagram::parse(&plain, sender_role(&vector)));
        let messages: Vec<Value> = datagram.messages().map(|message| fields(&message)).collect();
        let decoded = json!({"sender": datagram.sender().0, "messages": messages});
        assert_eq!(decoded, vector["decoded"], "{}", id(&vector));
        assert!(NonStock::of_datagram(&datagram).is_empty(), "{}", id(&vector));
        assert!(datagram.messages().all(|message| NonStock::of(&message).is_empty()), "{}", id(&vector));
        assert_eq!(usize::from(datagram.count()), messages.len());
    }
}

#[test]
fn golden_datagrams_round_trip_plaintext_and_encrypted() {
    for vector in vectors("datagram", true) {
        let (plain, wire) = (bytes(&vector, "plain"), bytes(&vector, "wire"));
        let datagram = expect_ok(&vector, Datagram::parse(&plain, sender_role(&vector)));
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer, datagram.sender());
        assert!(datagram.messages().all(|message| writer.push(&message)));
        let written = writer.finish().expect("the datagram has a message");
        assert_eq!(written, plain, "{}", id(&vector));
        cipher::encrypt(written);
        assert_eq!(written, wire, "{}", id(&vector));
        cipher::decrypt(written);
        assert_eq!(written, plain, "{}", id(&vector));
    }
}

/// T-35: sender ids and sizes are enough to parse all captured datagrams without the sender's role.
#[test]
fn captured_datagrams_parse_the_same_without_sender_role() {
    for vector in vectors("datagram", true) {
        let plain = bytes(&vector, "plain");
        let (with_role, without) =
            (Datagram::parse(&plain, sender_role(&vector)), Datagram::parse(&plain, None));
        let (with_role, without) = (expect_ok(&vector, with_role), expect_ok(&vector, without));
        assert!(with_role.messages().eq(without.messages()), "{}", id(&vector));
    }
}

#[test]
fn golden_messages_round_trip() {
    let vectors = vectors("message", true);
    assert!(vectors.len() >= 13);
    for vector in vectors {
        if vector.contains_key("masked") {
            continue;
        }
        let plain = bytes(&vector, "plain");
        let message = expect_ok(&vector, Message::parse(&plain, sender_role(&vector)));
        assert_eq!(fields(&message), vector["decoded"], "{}", id(&vector));
        assert!(NonStock::of(&message).is_empty());
        assert_eq!(encode(&message), plain, "{}", id(&vector));
    }
}

/// T-15: the captured state update has no sequence number, regardless of its masked bytes.
#[test]
fn a_captured_unreliable_message_has_no_sequence_number() {
    let masked = vectors("message", true).into_iter().find(|vector| vector.contains_key("masked"));
    let pattern = masked.expect("the state update")["masked"].as_str().expect("text").to_owned();
    for filling in ["00", "5a", "ff"] {
        let plain = unhex(&pattern.replace("??", filling));
        let Message::Data(data) = Message::parse(&plain, None).expect("well formed") else {
            panic!("expected a data message")
        };
        assert_eq!((data.delivery.seq(), data.payload), (None, &plain[3..]));
    }
}

#[test]
fn partial_vectors_are_truncated_at_their_end() {
    let mut seen = 0;
    for layer in ["datagram", "message"] {
        for vector in vectors(layer, false) {
            let plain = bytes(&vector, "plain");
            let result = match layer {
                "datagram" => Datagram::parse(&plain, sender_role(&vector)).map(drop),
                _ => Message::parse(&plain, sender_role(&vector)).map(drop),
            };
            let WireError { at, reason, .. } = result.expect_err(id(&vector));
            assert_eq!((at, reason), (plain.len(), WireErrorReason::Truncated), "{}", id(&vector));
            seen += 1;
        }
    }
    assert!(seen >= 6);
}

/// T-06: no prefix of a datagram parses as a datagram.
#[test]
fn every_strict_prefix_of_a_golden_datagram_is_an_error() {
    for vector in vectors("datagram", true) {
        let plain = bytes(&vector, "plain");
        for len in 0..plain.len() {
            let error = Datagram::parse(&plain[..len], sender_role(&vector)).expect_err(id(&vector));
            assert_eq!(
                (error.at, error.reason),
                (len, WireErrorReason::Truncated),
                "{} cut to {len}",
                id(&vector)
            );
        }
    }
}

/// T-06: flipped bits give an error or another datagram that round-trips, never a panic.
#[test]
fn bit_flips_never_panic_and_parsed_results_round_trip() {
    for vector in vectors("datagram", true) {
        let mut plain = bytes(&vector, "plain");
        for bit in 0..plain.len() * 8 {
            plain[bit / 8] ^= 1 << (bit % 8);
            if let Ok(datagram) = Datagram::parse(&plain, sender_role(&vector)) {
                let mut buffer = vec![0; plain.len()];
                let mut writer = Writer::new(&mut buffer, datagram.sender());
                assert!(datagram.messages().all(|message| writer.push(&message)), "bit {bit}");
                assert_eq!(writer.finish().as_deref(), Some(&*plain), "{} bit {bit}", id(&vector));
            }
            plain[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// T-05: GameSpy text begins with a backslash, which is never an assigned id.
#[test]
fn captured_gamespy_texts_begin_with_the_reserved_id() {
    let vectors = vectors("gamespy", true);
    assert!(vectors.len() >= 3);
    for vector in vectors {
        assert_eq!(bytes(&vector, "plain")[0], bcnet_wire::PeerId::GAMESPY.0);
    }
    assert!(!bcnet_wire::PeerId::GAMESPY.is_assignable());
}

fn vectors(layer: &str, complete: bool) -> Vec<Map<String, Value>> {
    let document: Value = serde_json::from_str(TRANSPORT).expect("captures/transport.json is JSON");
    let all = document["vectors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|each| each.as_object().expect("an object"));
    all.filter(|each| each["layer"] == layer && each["complete"] == complete).cloned().collect()
}

fn id(vector: &Map<String, Value>) -> &str {
    vector["id"].as_str().expect("an id")
}

fn expect_ok<T>(vector: &Map<String, Value>, result: Result<T, WireError>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {error}", id(vector)))
}

fn sender_role(vector: &Map<String, Value>) -> Option<Role> {
    match vector["direction"].as_str() {
        Some("S") => Some(Role::Host),
        Some("C") => Some(Role::Client),
        _ => None,
    }
}

fn bytes(vector: &Map<String, Value>, key: &str) -> Vec<u8> {
    unhex(vector[key].as_str().expect("hex text"))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut buffer = [0; 512];
    let mut writer = Writer::new(&mut buffer, bcnet_wire::PeerId::HOST);
    assert!(writer.push(message));
    writer.finish().expect("the datagram has a message")[2..].to_vec()
}

/// The fields in the layout of the capture file, built here and not by the code under test.
fn fields(message: &Message<'_>) -> Value {
    let head = json!({"type": message.kind().0, "kind": message.kind().name(), "len": message.wire_len()});
    let rest = match message {
        Message::Ack(Ack { id, .. }) => {
            json!({"seq": id.seq.0, "channel": id.channel.to_string(), "part": id.fragment})
        }
        Message::Keepalive => json!({}),
        Message::Control(Control { seq, reliable, urgent, body, .. }) => {
            let head = json!({"reliable": reliable, "urgent": urgent, "seq": seq.0});
            let body = match body {
                Body::Identity { peer, address, name } => {
                    json!({"peer": peer.0, "address": address.to_string(), "name": name.to_string()})
                }
                Body::ConnectRequest { address, nonce, password } => {
                    json!({"address": address.to_string(), "nonce": nonce, "password": password.to_string()})
                }
                Body::ConnectReply { assigned } => json!({"assigned": assigned.0}),
                Body::Boot { reason, target } => {
                    json!({"reason": reason.name(), "reason_code": reason.0, "target": target.0})
                }
                Body::Disconnect { peer, address } => json!({"peer": peer.0, "address": address.to_string()}),
            };
            merge(head, body)
        }
        Message::Data(Data { delivery, urgent, payload }) => {
            let part = delivery.fragment();
            json!({
                "reliable": delivery.seq().is_some(), "urgent": urgent, "seq": delivery.seq().map(|seq| seq.0),
                "part": part.map(Fragment::index), "total": part.and_then(Fragment::total).map(|total| total.get()),
                "payload": hex(payload),
            })
        }
    };
    merge(head, rest)
}

fn merge(mut left: Value, right: Value) -> Value {
    let (Value::Object(fields), Value::Object(more)) = (&mut left, right) else { panic!("two objects") };
    fields.extend(more);
    left
}
