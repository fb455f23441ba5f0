//! Descriptions of game payloads: captured ones, truncated ones, and random bytes.

use std::collections::HashMap;

use bcnet_session::game::{
    Created, Description, GameErrorReason, Message, ObjectCreateTeam, Opcode, PayloadField, Ship, Species,
    Value, describe,
};
use bcnet_transport::wire::{self, Datagram};
use serde_json::Value as Json;

#[test]
fn captured_payloads_are_fully_described() {
    let vectors = captured_payloads();
    assert!(vectors.len() >= 15);
    for (id, bytes) in &vectors {
        let payload = describe(bytes);
        assert_eq!((payload.truncated, payload.get("rest")), (None, None), "{id}: {payload}");
        assert_eq!(described_end(&payload.fields), bytes.len(), "{id}: {payload}");
    }
}

/// S-75, S-76, S-77
#[test]
fn captured_payloads_have_the_known_values() {
    let vectors: HashMap<String, Vec<u8>> = captured_payloads().into_iter().collect();
    let cases = [
        (
            "pl-settings-a",
            r#"Settings time=76.09766 flags=97 collisions=true friendly_fire=false correction=false slot=0 mission="Multiplayer.Episode.Mission1.Mission1""#,
        ),
        ("pl-35", "MissionInit player_limit=8 system=1 (Multi1) time_limit=255 frag_limit=255"),
        (
            "pl-17-join-a",
            "PlayerListEvent class=0x00000866 (PlayerEvent) event=0x008000F1 (NewPlayerInGame) source=0x00000000 related=0x00000791 peer=2",
        ),
        (
            "pl-1C-20",
            "StateUpdate object=0x3FFFFFFF time=38.90625 flags=32 (subsystems) first_subsystem=8 subsystems=FF60FFFFFFFFFFFFFFFFFFFFFFFF",
        ),
        (
            "pl-1C-9D",
            "StateUpdate object=0x3FFFFFFF time=28.1875 flags=157 (position, forward, up, speed, power) position=88 position=-66 position=-73 bits=33 has_hash=true hash=64311 forward=0.087 forward=0.819 forward=0.551 up=0.378 up=-0.543 up=0.740 speed=0.0 powered=1 power=1.00 powered=2 power=1.00 powered=4 power=1.00",
        ),
        (
            "pl-15-0",
            "CollisionEffect class=0x00008124 (CollisionEvent) event=0x00800050 (ObjectCollision) source=0x00000000 related=0x3FFFFFFF contacts=1 contact=0.087 contact=0.844 contact=0.000 force=1281.0228",
        ),
        (
            "pl-06-8129-selfdestruct",
            "PythonEvent class=0x00008129 (ObjectExplodingEvent) event=0x0080004E (ObjectExploding) source=0x00000000 related=0x3FFFFFFF killer=0 lifetime=9.5",
        ),
        (
            "pl-07",
            "StartFiring class=0x00008128 (StartFiringEvent) event=0x008000D8 (StartFiringNotify) source=0x00000000 related=0x40000005 unknown=0000000000000000",
        ),
        (
            "pl-torpedo",
            "TorpedoFire weapon=0x4000000D torpedo=2 (Photon) flags=1 direction=-0.260 direction=-0.953 direction=0.134 target=0x4003FFFF offset=0.000 offset=-0.341 offset=-0.114",
        ),
        ("pl-29", "Explosion object=0x3FFFFFFF place=43.2 place=181.6 place=17.9 radius=50.0 damage=5997.8"),
        ("chat-real", r#"Chat sender=3 text="everything good for you?""#),
        (
            "ex-12-high",
            "SetPhaserLevel class=0x00000105 (CharEvent) event=0x008000E0 (SetPhaserLevel) source=0x3FFFFFFF related=0x00000000 value=2 (high)",
        ),
        ("ex-38", "EndGame reason=3 (score)"),
        ("pl-13", "HostMessage"),
    ];
    for (id, text) in cases {
        assert_eq!(describe(&vectors[id]).to_string(), text, "{id}");
    }
    let ship = describe(&vectors["pl-03-sovereign"]).to_string();
    assert!(ship.starts_with("ObjectCreateTeam slot=0 peer=2 class=0x00008008 (Ship) object=0x3FFFFFFF species=5 (Sovereign) position=38 position=-49 position=-35 "), "{ship}");
    assert!(
        ship.contains(r#" unknown=00000000000000 name="Cady2" set="Multi1" subsystems=FFFF64FF"#),
        "{ship}"
    );
}

/// S-77
#[test]
fn captured_ship_subsystems_are_named() {
    let vectors: HashMap<String, Vec<u8>> = captured_payloads().into_iter().collect();
    let mut ship = vectors["pl-03-sovereign"].clone();
    let start = ship.len() - 53;
    // The third shield facing has 51 of 255, the phasers are off, and the second of eight banks is destroyed.
    (ship[start + 5], ship[start + 39], ship[start + 32]) = (51, 0x9C, 0);
    let shown = describe(&ship);
    assert_eq!(described_end(&shown.fields), ship.len());
    let text = shown.to_string();
    let (_, subsystems) = text.split_once(" hull=").expect("a hull");
    let full = |name: &str, count| format!(" {name}=1.000").repeat(count);
    let powered = |parts| {
        full("powered_system", 1) + &full("powered_system_part", parts) + " powered_system_power=1.00"
    };
    let expected = [
        "1.000 shields=1.000 shields_power=1.00".to_owned(),
        full("shield_facing", 2) + " shield_facing=0.200" + &full("shield_facing", 3),
        powered(0),
        " reactor=1.000 main_battery=1.000 backup_battery=1.000".to_owned(),
        powered(2),
        " torpedoes=1.000".to_owned() + &full("torpedo_tube", 6),
        " torpedoes_power=1.00 weapon_bits=96 torpedo_setting=0".to_owned(),
        powered(0),
        " phasers=1.000 phaser_bank=1.000 phaser_bank=0.000".to_owned() + &full("phaser_bank", 6),
        " phasers_power=-1.00 phaser_setting=1 tractors=1.000".to_owned() + &full("tractor_beam", 4),
        " tractors_power=1.00 tractor_setting=1".to_owned(),
        powered(2),
        " bridge=1.000".to_owned(),
    ];
    assert_eq!(subsystems, expected.concat());
}

/// S-77: the captured ship was new.
#[test]
fn healthy_ship_equals_the_captured_one() {
    let vectors: HashMap<String, Vec<u8>> = captured_payloads().into_iter().collect();
    let captured = &vectors["pl-03-sovereign"];
    let Ok(Message::ObjectCreateTeam(create)) = Message::parse(captured) else { panic!("a creation") };
    let Created::Ship { object, ship } = create.object else { panic!("a ship") };
    let subsystems = Species::SOVEREIGN.healthy_subsystems().expect("a known class");
    let healthy = Ship::healthy(Species::SOVEREIGN, ship.name.0, b"Multi1", &subsystems);
    let (position, rotation) = (ship.position, ship.rotation);
    let object = Created::Ship { object, ship: Ship { position, rotation, ..healthy } };
    let mut payload = Vec::new();
    Message::ObjectCreateTeam(ObjectCreateTeam { object, ..create }).write(&mut payload);
    assert_eq!(&payload, captured);
    let known = (0..=u8::MAX).filter(|number| Species(*number).healthy_subsystems().is_some());
    assert_eq!(known.collect::<Vec<_>>(), (1..=15).chain([37]).collect::<Vec<_>>());
}

/// S-77
#[test]
fn subsystems_that_do_not_fit_the_species_stay_bytes() {
    let vectors: HashMap<String, Vec<u8>> = captured_payloads().into_iter().collect();
    let ship = &vectors["pl-03-sovereign"];
    let end = ship.len();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut ship = ship.clone();
        change(&mut ship);
        let shown = describe(&ship);
        (shown.get("hull").is_some(), shown.get("subsystems").is_some())
    };
    assert_eq!(changed(&|_| {}), (true, true));
    assert_eq!(changed(&|ship| ship.truncate(end - 1)), (false, true), "one byte too few");
    assert_eq!(changed(&|ship| ship.push(0)), (false, true), "one byte too many");
    assert_eq!(changed(&|ship| ship.truncate(end - 53)), (false, false), "no bytes");
    assert_eq!(changed(&|ship| ship[11] = 1), (false, true), "another species");
    assert_eq!(changed(&|ship| ship[11] = 200), (false, true), "a species of a mod");
    assert_eq!(changed(&|ship| ship[end - 53 + 26] = 0x80), (false, true), "four weapon systems");
    let lens = [1, 3, 4, 5, 6, 16].map(|species| Species(species).subsystem_bytes().map(|bytes| bytes.len()));
    assert_eq!(lens, [Some(51), Some(54), Some(51), Some(53), Some(34), None]);
}

/// S-71
#[test]
fn field_kinds_have_the_documented_layout() {
    check_descriptions(&[
        ("18 0300 6162E9", r#"DeletePlayerAnimation name="abé""#),
        ("1F 00000040 02000000 6162 00", r#"EnterSet object=0x40000000 set="ab" zero=00"#),
        (
            "35 08 01 0A 58020000 14",
            "MissionInit player_limit=8 system=1 (Multi1) time_limit=10 end_time=600 frag_limit=20",
        ),
        ("35 08 01 FF FF", "MissionInit player_limit=8 system=1 (Multi1) time_limit=255 frag_limit=255"),
        (
            "36 02000000 03000000 E8030000 03000000 01000000 01 02000000 E8030000",
            "ScoreChange killer=2 kills=3 score=1000 victim=3 deaths=1 players=1 player=2 player_score=1000",
        ),
        ("36 00000000 03000000 01000000 00", "ScoreChange killer=0 victim=3 deaths=1 players=0"),
        (
            "19 0D000040 02 00 81007F FFFF0340 00007F FF",
            "TorpedoFire weapon=0x4000000D torpedo=2 (Photon) flags=0 direction=-1.000 direction=0.000 direction=1.000 target=0x4003FFFF offset=0.000 offset=0.000 offset=1.000",
        ),
        ("14 00000000", "DestroyObject object=0x00000000"),
        ("25 0100 61 0102", r#"FileTransfer file="a" content=0102"#),
    ]);
}

/// S-71
#[test]
fn correction_data_follows_only_with_its_flag() {
    let head =
        "Settings time=0 flags=100 collisions=false friendly_fire=false correction=true slot=1 mission=\"a\"";
    check_descriptions(&[
        ("00 00000000 64 01 0100 61 0203", &format!("{head} correction_data=0203")),
        ("00 00000000 64 01 0100 61", head),
    ]);
    let without = bytes("00 00000000 60 01 0100 61 0203");
    let error = Message::parse(&without).expect_err("extra bytes");
    assert_eq!((error.field, error.offset, error.reason), ("rest", 10, GameErrorReason::Trailing));
    let (message, rest) = Message::parse_prefix(&without).expect("extra bytes are allowed");
    assert_eq!((encode(&message).as_slice(), rest), without.split_at(10));
    assert_eq!(describe(&without).get("rest"), Some(Value::Bytes(&[2, 3])));
    assert_eq!(describe(&without).get("correction_data"), None);
}

/// S-72
#[test]
fn bit_byte_holds_the_later_flags_of_its_message() {
    check_descriptions(&[
        // One byte announces the hash and the cloak. It comes before the hash.
        (
            "1C FFFFFF3F 00000000 41 000000000000000000000000 43 3412",
            "StateUpdate object=0x3FFFFFFF time=0 flags=65 (position, cloak) position=0 position=0 position=0 bits=67 has_hash=true hash=4660 cloaked=true",
        ),
        (
            "1C FFFFFF3F 00000000 41 000000000000000000000000 42",
            "StateUpdate object=0x3FFFFFFF time=0 flags=65 (position, cloak) position=0 position=0 position=0 bits=66 has_hash=false cloaked=true",
        ),
        // Without a position, the byte is at the place of the only flag.
        (
            "1C FFFFFF3F 00000000 50 0000 21",
            "StateUpdate object=0x3FFFFFFF time=0 flags=80 (speed, cloak) speed=0.0 bits=33 cloaked=true",
        ),
    ]);
}

/// S-75
#[test]
fn event_body_depends_on_its_class() {
    let cases = [
        ("02000000", "", ""),
        ("01010000", "", ""),
        ("04010000", "01", "value=1"),
        ("05010000", "02", "value=2"),
        ("0C010000", "0D000040", "object=0x4000000D"),
        ("66080000", "03", "peer=3"),
        (
            "24810000",
            "02 7F0000 FF 007F00 80 0000803F",
            "contacts=2 contact=1.000 contact=0.000 contact=0.000 contact=0.000 contact=0.502 contact=0.000 force=1",
        ),
        ("28810000", "0102030405060708", "unknown=0102030405060708"),
        ("29810000", "03000000 00001841", "killer=3 lifetime=9.5"),
        (
            "2A810000",
            "02 6162 0000803F 00000040 00004040 00008040",
            r#"name="ab" warp=1 warp=2 warp=3 warp=4"#,
        ),
    ];
    for (class, rest, expected) in cases {
        let bytes = bytes(&format!("06 {class} 4E008000 05000040 FFFFFF3F {rest}"));
        let text = describe(&bytes).to_string();
        let (_, tail) = text.split_once("related=0x3FFFFFFF").expect("a head");
        assert_eq!(tail.trim_start(), expected, "{class}");
        let message = Message::parse(&bytes).unwrap_or_else(|error| panic!("{class}: {error}"));
        assert_eq!(encode(&message), bytes, "{class}");
    }
}

/// Checks the descriptions of payloads, and that writing gives the same bytes.
fn check_descriptions(cases: &[(&str, &str)]) {
    for (hex, text) in cases {
        let bytes = bytes(hex);
        assert_eq!(describe(&bytes).to_string(), *text, "{hex}");
        let message = Message::parse(&bytes).unwrap_or_else(|error| panic!("{hex}: {error}"));
        assert_eq!(encode(&message), bytes, "{hex}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(|pair| byte(pair).expect("hex")).collect()
}

/// The hashes of the names are known, so the test can check the tree.
#[test]
fn checksum_response_tree_is_walked() {
    let vectors: HashMap<String, Vec<u8>> = captured_payloads().into_iter().collect();
    let payload = describe(&vectors["pl-respFF-full"]);
    let count = |name| payload.fields.iter().filter(|field| field.name == name).count();
    assert_eq!((count("file_name"), count("directory_name"), count("files")), (28, 5, 6));
    let names = payload.fields.iter().filter(|field| field.name == "directory_name").map(|field| field.value);
    // Episode, Mission1, Mission2, Mission3, Mission5.
    let hashes = [0x83C8_2BA5, 0x88D6_3ABC, 0x587D_A208, 0x72ED_3851, 0x16F2_E8DA];
    assert_eq!(names.collect::<Vec<_>>(), hashes.map(Value::Id));
}

#[test]
fn truncated_payload_gives_its_complete_fields() {
    for (id, bytes) in captured_payloads() {
        let complete = describe(&bytes);
        for end in 0..bytes.len() {
            let cut = describe(&bytes[..end]);
            let kept = cut.fields.iter().take_while(|field| complete.fields.contains(field)).count();
            let last = kept + 1 >= cut.fields.len() && described_end(&cut.fields) <= end.max(1);
            assert!(last, "{id} cut at {end}: {cut}");
            assert!(cut.truncated.is_none_or(|name| !name.is_empty()));
        }
    }
    assert_eq!(describe(&[0x2C, 2, 0, 0, 0, 5, 0, b'h']).to_string(), "Chat sender=2 truncated in text");
    assert_eq!(describe(&[]), Description { opcode: None, fields: vec![], truncated: None });
}

#[test]
fn captured_payloads_roundtrip() {
    let vectors = captured_payloads();
    assert!(vectors.len() >= 40, "{}", vectors.len());
    for (id, bytes) in &vectors {
        let message = Message::parse(bytes).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(encode(&message), *bytes, "{id}: {message:?}");
    }
}

#[test]
fn truncated_captured_payload_reports_its_field() {
    for (id, bytes) in captured_payloads() {
        for end in 0..bytes.len() {
            let cut = &bytes[..end];
            match Message::parse(cut) {
                Ok(message) => assert_eq!(encode(&message), cut, "{id} cut at {end}"),
                Err(error) => {
                    assert_eq!(error.reason, GameErrorReason::Truncated, "{id} cut at {end}");
                    assert!(error.offset <= end && !error.field.is_empty(), "{id} cut at {end}: {error}");
                    assert_eq!(describe(cut).truncated.unwrap_or("opcode"), error.field, "{id} cut at {end}");
                }
            }
        }
    }
}

#[test]
fn trailing_bytes_are_an_error_or_returned() {
    let chat = [0x2C, 2, 0, 0, 0, 1, 0, b'a', 7, 8];
    let error = Message::parse(&chat).expect_err("two bytes too many");
    assert_eq!(error.to_string(), "Chat: extra bytes after the last field, at byte 8");
    let (message, rest) = Message::parse_prefix(&chat).expect("a message");
    assert_eq!((encode(&message), rest), (chat[..8].to_vec(), &[7, 8][..]));
    let error = Message::parse(&[]).expect_err("empty");
    assert_eq!(error.to_string(), "empty payload");
    let error = Message::parse(&[0x29, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6]).expect_err("short");
    assert_eq!(error.to_string(), "Explosion: truncated in radius, which begins at byte 10");
}

fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes
}

/// Each name has one type, so that tools can have one column and one filter for it.
#[test]
fn arbitrary_bytes_give_one_type_per_field_name() {
    let mut types = HashMap::new();
    let mut state = 0x00C0_FFEE_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let mut seeds: Vec<Vec<u8>> = captured_payloads().into_iter().map(|(_, bytes)| bytes).collect();
    seeds.extend((0..=255).map(|opcode| vec![opcode]));
    for round in 0..20_000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        bytes.extend((0..next() % 40).map(|_| 0).collect::<Vec<u8>>());
        for _ in 0..next() % 8 {
            let at = usize::from(next()) % bytes.len();
            bytes[at] = if at == 0 { bytes[0] } else { next() };
        }
        if let Ok((message, rest)) = Message::parse_prefix(&bytes) {
            assert_eq!([&encode(&message)[..], rest].concat(), bytes, "{message:?}");
        }
        let payload = describe(&bytes);
        assert_eq!(payload.opcode, Some(Opcode(bytes[0])));
        let end = described_end(&payload.fields);
        assert!(end <= bytes.len() && (payload.truncated.is_some() || end == bytes.len()), "{bytes:02X?}");
        for field in &payload.fields {
            let kind = (type_of(field.value), field.repeated);
            assert_eq!(*types.entry(field.name).or_insert(kind), kind, "{}", field.name);
        }
        for (i, field) in payload.fields.iter().enumerate() {
            let again = payload.fields[..i].iter().any(|earlier| earlier.name == field.name);
            assert!(field.repeated || !again, "{} twice in {bytes:02X?}", field.name);
        }
    }
}

fn type_of(value: Value<'_>) -> &'static str {
    match value {
        Value::Number(_) => "number",
        Value::Id(_) => "id",
        Value::Flag(_) => "flag",
        Value::Float(_) | Value::Packed { .. } => "float",
        Value::Raw(_) => "raw",
        Value::Name(_) => "name",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytes",
    }
}

/// Returns the end of fields that follow each other. Several fields can describe the same bytes.
fn described_end(fields: &[PayloadField<'_>]) -> usize {
    fields.iter().fold(1, |end, field| {
        assert!(field.range.start == end || field.range.end <= end, "{}: {:?}", field.name, field.range);
        end.max(field.range.end)
    })
}

/// Returns the payloads among the test vectors, including those in complete messages.
fn captured_payloads() -> Vec<(String, Vec<u8>)> {
    let files =
        [include_str!("../../../captures/session.json"), include_str!("../../../captures/transport.json")];
    let mut found = Vec::new();
    for file in files {
        let file: Json = serde_json::from_str(file).expect("vectors");
        for vector in file["vectors"].as_array().expect("vectors") {
            let Some(plain) = vector["plain"].as_str() else { continue };
            let bytes = bytes(plain);
            let id = vector["id"].as_str().expect("an id").to_owned();
            match vector["layer"].as_str() {
                Some("payload") => found.push((id, bytes)),
                Some("message") => {
                    let message = wire::Message::parse(&bytes, None);
                    found.extend(
                        message
                            .ok()
                            .and_then(|message| unfragmented_payload(&message))
                            .map(|bytes| (id, bytes)),
                    );
                }
                Some("datagram") => {
                    let Ok(datagram) = Datagram::parse(&bytes, None) else { continue };
                    found.extend(
                        datagram
                            .messages()
                            .filter_map(|message| Some((id.clone(), unfragmented_payload(&message)?))),
                    );
                }
                _ => {}
            }
        }
    }
    found
}

fn unfragmented_payload(message: &wire::Message<'_>) -> Option<Vec<u8>> {
    match message {
        wire::Message::Data(data) if data.delivery.fragment().is_none() => Some(data.payload.to_vec()),
        _ => None,
    }
}
