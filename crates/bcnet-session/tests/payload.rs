//! What is said of game payloads: captured ones, cut ones, and any bytes.

use std::collections::HashMap;

use bcnet_session::payload::{Field, Opcode, Payload, Value, describe};
use serde_json::Value as Json;

#[test]
fn captured_payloads_are_understood_to_the_last_byte() {
    let vectors = payloads();
    assert!(vectors.len() >= 15);
    for (id, bytes) in &vectors {
        let payload = describe(bytes);
        assert_eq!((payload.truncated, payload.get("rest")), (None, None), "{id}: {payload}");
        assert_eq!(tiled(&payload.fields), bytes.len(), "{id}: {payload}");
    }
}

#[test]
fn captured_payloads_say_what_is_known_of_them() {
    let vectors: HashMap<String, Vec<u8>> = payloads().into_iter().collect();
    let cases = [
        (
            "pl-settings-a",
            r#"Settings time=76.09766 flags=97 collisions=true friendly_fire=false correction=false slot=0 mission="Multiplayer.Episode.Mission1.Mission1""#,
        ),
        ("pl-35", "MissionInit player_limit=8 system=1 time_limit=255 frag_limit=255"),
        (
            "pl-17-join-a",
            "PlayerListEvent class=0x00000866 event=0x008000F1 source=0x00000000 related=0x00000791 peer=2",
        ),
        (
            "pl-1C-20",
            "StateUpdate object=0x3FFFFFFF time=38.90625 flags=32 first_subsystem=8 subsystems=FF60FFFFFFFFFFFFFFFFFFFFFFFF",
        ),
        (
            "pl-15-0",
            "CollisionEffect class=0x00008124 event=0x00800050 source=0x00000000 related=0x3FFFFFFF contacts=1 contact=0D7E00D9 force=1281.0228",
        ),
        (
            "pl-06-8129-selfdestruct",
            "PythonEvent class=0x00008129 event=0x0080004E source=0x00000000 related=0x3FFFFFFF killer=0 lifetime=9.5",
        ),
        (
            "pl-07",
            "StartFiring class=0x00008128 event=0x008000D8 source=0x00000000 related=0x40000005 extra=0000000000000000",
        ),
        ("chat-real", r#"Chat sender=3 text="everything good for you?""#),
        ("ex-38", "EndGame reason=3"),
        ("pl-13", "HostMessage"),
    ];
    for (id, text) in cases {
        assert_eq!(describe(&vectors[id]).to_string(), text, "{id}");
    }
    let ship = describe(&vectors["pl-03-sovereign"]).to_string();
    assert!(ship.starts_with("ObjectCreateTeam slot=0 peer=2 class=0x00008008 object=0x3FFFFFFF species=5 position=38 position=-49 position=-35 "), "{ship}");
    assert!(ship.contains(r#" zero=000000 name="Cady2" set="Multi1" subsystems=FFFF64FF"#), "{ship}");
    let state = describe(&vectors["pl-1C-9D"]).to_string();
    assert!(state.contains(" position=88 position=-66 position=-73 bits=33 has_hash=true hash=64311 "));
    assert!(state.ends_with(" packed_speed=0 weapon_index=1 weapon_charge=204 weapon_index=2 weapon_charge=204 weapon_index=4 weapon_charge=204"), "{state}");
}

/// The hashes of the names are known, so the tree can be checked against them.
#[test]
fn the_tree_of_a_checksum_response_is_walked() {
    let vectors: HashMap<String, Vec<u8>> = payloads().into_iter().collect();
    let payload = describe(&vectors["pl-respFF-full"]);
    let count = |name| payload.fields.iter().filter(|field| field.name == name).count();
    assert_eq!((count("file_name"), count("directory_name"), count("files")), (28, 5, 6));
    let names = payload.fields.iter().filter(|field| field.name == "directory_name").map(|field| field.value);
    // Episode, Mission1, Mission2, Mission3, Mission5.
    let hashes = [0x83C8_2BA5, 0x88D6_3ABC, 0x587D_A208, 0x72ED_3851, 0x16F2_E8DA];
    assert_eq!(names.collect::<Vec<_>>(), hashes.map(Value::Id));
}

#[test]
fn a_payload_that_is_cut_gives_the_fields_before_the_cut() {
    for (id, bytes) in payloads() {
        let whole = describe(&bytes);
        for end in 0..bytes.len() {
            let cut = describe(&bytes[..end]);
            let kept = cut.fields.iter().take_while(|field| whole.fields.contains(field)).count();
            let last = kept + 1 >= cut.fields.len() && tiled(&cut.fields) <= end.max(1);
            assert!(last, "{id} cut at {end}: {cut}");
            assert!(cut.truncated.is_none_or(|name| !name.is_empty()));
        }
    }
    assert_eq!(describe(&[0x2C, 2, 0, 0, 0, 5, 0, b'h']).to_string(), "Chat sender=2 ends in text");
    assert_eq!(describe(&[]), Payload { opcode: None, fields: vec![], truncated: None });
}

/// Names of one type are what lets tools give them one column and one filter.
#[test]
fn any_bytes_are_described_and_a_name_has_one_type() {
    let mut types = HashMap::new();
    let mut state = 0x00C0_FFEE_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let mut seeds: Vec<Vec<u8>> = payloads().into_iter().map(|(_, bytes)| bytes).collect();
    seeds.extend((0..=255).map(|opcode| vec![opcode]));
    for round in 0..20_000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        bytes.extend((0..next() % 40).map(|_| 0).collect::<Vec<u8>>());
        for _ in 0..next() % 8 {
            let at = usize::from(next()) % bytes.len();
            bytes[at] = if at == 0 { bytes[0] } else { next() };
        }
        let payload = describe(&bytes);
        assert_eq!(payload.opcode, Some(Opcode(bytes[0])));
        let end = tiled(&payload.fields);
        assert!(end <= bytes.len() && (payload.truncated.is_some() || end == bytes.len()), "{bytes:02X?}");
        for field in &payload.fields {
            let kind = (type_of(field.value), field.listed);
            assert_eq!(*types.entry(field.name).or_insert(kind), kind, "{}", field.name);
        }
        for (i, field) in payload.fields.iter().enumerate() {
            let again = payload.fields[..i].iter().any(|earlier| earlier.name == field.name);
            assert!(field.listed || !again, "{} twice in {bytes:02X?}", field.name);
        }
    }
}

fn type_of(value: Value<'_>) -> &'static str {
    match value {
        Value::Number(_) => "number",
        Value::Id(_) => "id",
        Value::Flag(_) => "flag",
        Value::Float(_) => "float",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytes",
    }
}

/// Where fields that lie one behind the other end; bits lie in the byte before.
fn tiled(fields: &[Field<'_>]) -> usize {
    fields.iter().fold(1, |end, field| match field.value {
        Value::Flag(_) => {
            assert_eq!(field.at, end - 1..end);
            end
        }
        _ => {
            assert_eq!(field.at.start, end, "{}", field.name);
            field.at.end
        }
    })
}

/// The payloads among the vectors.
fn payloads() -> Vec<(String, Vec<u8>)> {
    let file: Json =
        serde_json::from_str(include_str!("../../../captures/session.json")).expect("captures/session.json");
    let mut found = Vec::new();
    for vector in file["vectors"].as_array().expect("vectors") {
        if vector["layer"] == "payload" {
            let hex = vector["plain"].as_str().expect("hex").as_bytes().as_chunks::<2>().0;
            let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
            let bytes = hex.iter().map(|pair| byte(pair).expect("hex"));
            found.push((vector["id"].as_str().expect("an id").to_owned(), bytes.collect()));
        }
    }
    found
}
