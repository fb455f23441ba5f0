//! Messages of players in the game: relaying, checks, chat, ships.

use std::time::Duration;

use bcnet_session::{Anomaly, Config, Event, Mission, SayAs};

use crate::vectors::{bytes, hex};
use crate::world::TestWorld;

const SECOND: Duration = Duration::from_secs(1);
const NO_MESSAGES: [Vec<u8>; 0] = [];

/// Returns a world with players in the game that have no unread messages.
pub(crate) fn world_with_players(config: Config, players: usize) -> TestWorld {
    let mut world = TestWorld::new(config);
    for n in 0..players {
        world.join(&format!("Player {n}"));
    }
    world.run(SECOND);
    for n in 0..players {
        world.take_received(n);
    }
    world
}

/// Sends a payload of player 0. Returns the payloads that each player gets.
fn send_and_collect(world: &mut TestWorld, payload: &[u8]) -> Vec<Vec<Vec<u8>>> {
    world.send(0, payload);
    world.run(SECOND / 5);
    (0..world.clients.len()).map(|at| world.take_received(at)).collect()
}

fn anomaly_count(world: &TestWorld, kind: Anomaly) -> u64 {
    world.session.counters().anomalies.count(kind)
}

/// Returns the captured ship of slot 0 with another slot, owner and object.
pub(crate) fn ship(slot: u8, peer: u8, object: u32) -> Vec<u8> {
    let mut ship = bytes("pl-03-sovereign");
    (ship[1], ship[2]) = (slot, peer);
    ship[7..11].copy_from_slice(&object.to_le_bytes());
    ship
}

/// S-33
#[test]
fn message_is_relayed_unchanged_to_all_others() {
    let mut world = world_with_players(Config::default(), 3);
    let fire = bytes("pl-07");
    world.send(0, &fire);
    world.send(0, &fire);
    world.run(SECOND / 5);
    assert_eq!(world.take_received(0), NO_MESSAGES);
    for other in [1, 2] {
        assert_eq!(world.take_received(other), [fire.clone(), fire.clone()]);
    }
}

/// S-34: each opcode, with a valid payload.
#[test]
fn each_opcode_follows_its_relay_rule() {
    let relayed = [0x02, 0x03, 0x41]
        .into_iter()
        .chain(0x06..=0x0C)
        .chain(0x0E..=0x12)
        .chain(0x19..=0x1C)
        .chain([0x1F])
        .chain(0x2E..=0x34)
        .chain(0x3A..=0x3E)
        .chain(0x42..=0xFF);
    let to_all = [0x2C, 0x2D];
    let relayed: Vec<u8> = relayed.collect();
    let mut world = world_with_players(Config::default(), 2);
    for opcode in 0..=0xFF_u8 {
        if opcode == 0x13 {
            continue;
        }
        let payload = valid_payload(opcode);
        let received = send_and_collect(&mut world, &payload);
        let expected = |relayed: bool| if relayed { vec![payload.clone()] } else { vec![] };
        let own = if matches!(opcode, 0x1D | 0x1E) {
            vec![valid_payload(3)]
        } else {
            expected(to_all.contains(&opcode))
        };
        // No ship is removed: every creation in this test has the same object id.
        assert_eq!(received[0], own, "{opcode:02X} to its sender");
        let other = relayed.contains(&opcode) || to_all.contains(&opcode);
        assert_eq!(received[1], expected(other), "{opcode:02X} to the other");
    }
    assert_eq!(anomaly_count(&world, Anomaly::HostOnly), 24);
    assert_eq!(world.session.counters().anomalies.total(), 24);
}

/// Returns a payload with this opcode that player 0 (peer 2, slot 0) may send.
fn valid_payload(opcode: u8) -> Vec<u8> {
    let mut payload = match opcode {
        0x03 => return ship(0, 2, 0x3FFF_FFFF),
        0x02 => {
            let mut payload = ship(0, 2, 0x3FFF_FFFF);
            payload.remove(2);
            payload
        }
        0x06..=0x12 | 0x1B => bytes("ex-12-high"),
        0x19 | 0x1A | 0x1D..=0x1F => hex("00 FFFFFF3F 01 02 03 04 05"),
        0x1C => bytes("pl-1C-20"),
        0x2C | 0x2D => bytes("ex-chat"),
        0x41 => hex("41 02000000 01"),
        _ => hex("00 0102030405060708090A0B0C0D0E0F1011"),
    };
    payload[0] = opcode;
    payload
}

/// S-33
#[test]
fn mod_messages_keep_their_reliability() {
    let mut world = world_with_players(Config::default(), 2);
    let mut expected = 0;
    // A mod's message, a known one and a state update: each sent reliably, then unreliably.
    for (payload, reliable, unreliable) in
        [(hex("CD 0102"), 0, 1), (bytes("pl-07"), 0, 0), (bytes("pl-1C-20"), 1, 1)]
    {
        world.send(0, &payload);
        world.run(SECOND / 5);
        world.send_unreliable(0, &payload);
        world.run(SECOND / 5);
        expected += reliable + unreliable;
        assert_eq!(
            (world.take_received(1).len(), world.clients[1].unreliable_count),
            (2, expected),
            "{payload:02X?}"
        );
    }
}

/// S-34
#[test]
fn unknown_opcodes_can_be_dropped() {
    let mut world = world_with_players(Config { forward_unknown: false, ..Config::default() }, 2);
    for opcode in [0x2E, 0x3A, 0x42, 0xCD, 0xFF] {
        assert_eq!(send_and_collect(&mut world, &[opcode, 1, 2]), [NO_MESSAGES, NO_MESSAGES]);
    }
    assert_eq!(anomaly_count(&world, Anomaly::UnknownOpcode), 5);
}

/// S-32
#[test]
fn foreign_or_harmful_messages_are_dropped_and_counted() {
    let theirs = 0x4003_FFFF_u32.to_le_bytes();
    let patched = |id: &str, at: usize, bytes: &[u8]| {
        let mut payload = crate::vectors::bytes(id);
        payload[at..at + bytes.len()].copy_from_slice(bytes);
        payload
    };
    let mut no_name = bytes("pl-03-sovereign");
    no_name.truncate(50);
    let cases = [
        (ship(1, 3, 0x4003_FFFF), Anomaly::NotOwner),
        (ship(0, 2, 0x4003_FFFF), Anomaly::NotOwner),
        (patched("pl-07", 13, &theirs), Anomaly::NotOwner),
        (patched("ex-12-high", 9, &theirs), Anomaly::NotOwner),
        (patched("pl-1C-9D", 1, &theirs), Anomaly::NotOwner),
        ([&[0x19][..], &theirs, &[0; 5]].concat(), Anomaly::NotOwner),
        ([&[0x1F][..], &theirs, &[0; 5]].concat(), Anomaly::NotOwner),
        (hex("41 03000000 01"), Anomaly::NotOwner),
        (patched("pl-03-sovereign", 3, &[0x0A, 0x80]), Anomaly::BadObject),
        (patched("pl-03-sovereign", 11, &[46]), Anomaly::BadObject),
        (patched("pl-03-sovereign", 11, &[0]), Anomaly::BadObject),
        (patched("pl-03-sovereign", 47, &[0xFF]), Anomaly::TooShort),
        (no_name, Anomaly::TooShort),
        ([bytes("pl-03-sovereign"), vec![0; 2000]].concat(), Anomaly::TooLarge),
        (patched("pl-06-8129-selfdestruct", 0, &[6]), Anomaly::BadEvent),
        (patched("pl-07", 1, &[0x29]), Anomaly::BadEvent),
        (bytes("pl-07")[..16].to_vec(), Anomaly::TooShort),
        (bytes("pl-1C-20")[..9].to_vec(), Anomaly::TooShort),
        (vec![0x1E, 1], Anomaly::TooShort),
        (vec![], Anomaly::Empty),
    ];
    let mut world = world_with_players(Config::default(), 2);
    for (payload, kind) in cases {
        let before = anomaly_count(&world, kind);
        assert_eq!(send_and_collect(&mut world, &payload), [NO_MESSAGES, NO_MESSAGES], "{payload:02X?}");
        assert_eq!(anomaly_count(&world, kind), before + 1, "{payload:02X?} {kind}");
    }
    let reported = world.events.iter().filter(|event| matches!(event, Event::Anomaly { .. })).count();
    assert!(reported < 20, "{reported} events for 20 anomalies");
    let own = world.session.players().next().expect("a player").anomalies.total();
    assert_eq!(own, 20);
}

/// S-32
#[test]
fn mods_can_be_allowed() {
    let mut world = world_with_players(Config { allow_mods: true, ..Config::default() }, 2);
    let mut modded = bytes("pl-03-sovereign");
    modded[11] = 200;
    assert_eq!(send_and_collect(&mut world, &modded)[1], [modded]);
    let mut event = bytes("pl-07");
    event[1] = 0x33;
    assert_eq!(send_and_collect(&mut world, &event)[1], [event]);
    let mut crash = bytes("pl-03-sovereign");
    crash[3] = 0;
    assert_eq!(send_and_collect(&mut world, &crash)[1], NO_MESSAGES);
}

/// S-30, S-35: from the captured request to the captured explosion.
#[test]
fn self_destruct_explodes_the_ship() {
    let mut world = world_with_players(Config::default(), 2);
    assert_eq!(send_and_collect(&mut world, &bytes("pl-13")), [NO_MESSAGES, NO_MESSAGES]);
    send_and_collect(&mut world, &bytes("pl-03-sovereign"));
    let expected = [bytes("pl-06-8129-selfdestruct"), hex("36 00000000 02000000 01000000 00")];
    assert_eq!(send_and_collect(&mut world, &bytes("pl-13")), [expected.clone(), expected]);
    assert_eq!(send_and_collect(&mut world, &bytes("pl-13")), [NO_MESSAGES, NO_MESSAGES]);
    let late = world.join("Late");
    world.run(SECOND);
    let received = world.take_received(late);
    assert!(received.iter().all(|payload| payload[0] != 3), "a destroyed ship was sent");
    assert!(received.contains(&hex("37 02000000 00000000 01000000 00000000")));
}

/// S-30: a player that joins late gets scores, ships and join events, in this order.
#[test]
fn late_joiner_receives_existing_ships() {
    let mut world = world_with_players(Config::default(), 2);
    let ships = [ship(0, 2, 0x3FFF_FFFF), ship(1, 3, 0x4003_FFFF)];
    world.send(0, &ships[0]);
    world.send(1, &ships[1]);
    world.run(SECOND);
    world.take_received(0);
    let late = world.join("Late");
    world.run(SECOND);
    let received = world.take_received(late);
    let score = |peer: u8| [&[0x37, peer][..], &[0; 15]].concat();
    let joined = |peer: u8| [&hex("17 66080000 F1008000 00000000 00000000")[..], &[peer]].concat();
    let expected = [
        bytes("pl-35"),
        score(2),
        score(3),
        score(4),
        ships[0].clone(),
        ships[1].clone(),
        joined(4),
        joined(2),
        joined(3),
    ];
    assert_eq!(received[8..], expected);
    assert_eq!(world.take_received(0), [score(4), joined(4)]);
}

/// S-36
#[test]
fn replaced_ship_is_destroyed_for_others() {
    let mut world = world_with_players(Config::default(), 3);
    let (first, second) = (ship(0, 2, 0x3FFF_FFFF), ship(0, 2, 0x4000_0021));
    send_and_collect(&mut world, &first);
    let gone = hex("14 FFFFFF3F");
    assert_eq!(
        send_and_collect(&mut world, &second),
        [vec![], vec![gone.clone(), second.clone()], vec![gone, second]]
    );
    send_and_collect(&mut world, &[0x13]);
    let third = ship(0, 2, 0x4000_0050);
    assert_eq!(send_and_collect(&mut world, &third)[1], [third]);
    // A torpedo is not a ship.
    let mut torpedo = ship(0, 2, 0x4000_0090);
    torpedo[3] = 9;
    assert_eq!(send_and_collect(&mut world, &torpedo)[1], [torpedo]);
    let player = world.session.players().next().expect("a player");
    assert_eq!(player.ship, Some(5));
}

/// S-33, S-37: the captured update with a hash, and one without.
#[test]
fn state_updates_are_relayed_without_their_hash() {
    let mut world = world_with_players(Config::default(), 2);
    world.send_unreliable(0, &bytes("pl-1C-9D"));
    world.send_unreliable(0, &bytes("pl-1C-20"));
    world.run(SECOND / 5);
    let mut stripped = bytes("pl-1C-9D");
    stripped[22] = 0x20;
    stripped.drain(23..25);
    assert_eq!(world.take_received(1), [stripped, bytes("pl-1C-20")]);
    assert_eq!(world.take_received(0), NO_MESSAGES);
    // They were sent as messages without a sequence number.
    let is_unreliable = world.sent.iter().any(|(_, _, plain)| {
        let datagram = bcnet_transport::wire::Datagram::parse(plain, None).expect("well formed");
        datagram.messages().any(|message| match message {
            bcnet_transport::wire::Message::Data(data) => {
                data.payload.first() == Some(&0x1C) && data.delivery.seq().is_none()
            }
            _ => false,
        })
    });
    assert!(is_unreliable);
}

/// S-37: only bit 0 is cleared, only with a position, only if the hash is present.
#[test]
fn state_updates_without_a_hash_stay_unchanged() {
    let mut world = world_with_players(Config::default(), 2);
    let captured = bytes("pl-1C-9D");
    let mut no_position = captured.clone();
    no_position[9] &= !1;
    let mut no_hash = captured.clone();
    no_hash[22] &= !1;
    let short = captured[..24].to_vec();
    for update in [no_position, no_hash, short] {
        assert_eq!(send_and_collect(&mut world, &update)[1], [update]);
    }
    let mut cloaked = captured;
    cloaked[22] = 0x23;
    assert_eq!(send_and_collect(&mut world, &cloaked)[1][0][22], 0x22);
}

/// S-38
#[test]
fn requested_ship_is_sent_to_the_requester() {
    let mut world = world_with_players(Config::default(), 2);
    let theirs = ship(1, 3, 0x4003_FFFF);
    world.send(1, &theirs);
    world.run(SECOND / 5);
    world.take_received(0);
    for opcode in [0x1D, 0x1E] {
        let request = [&[opcode][..], &0x4003_FFFF_u32.to_le_bytes()].concat();
        assert_eq!(send_and_collect(&mut world, &request), [vec![theirs.clone()], vec![]]);
        assert_eq!(send_and_collect(&mut world, &hex("1E 01020304")), [NO_MESSAGES, NO_MESSAGES]);
    }
}

/// S-30, S-39, S-40: new players get the teams, and team chat stays in the team.
#[test]
fn team_chat_stays_in_the_team() {
    let mission = Mission { teams: true, ..Mission::default() };
    let mut world = world_with_players(Config { mission, ..Config::default() }, 3);
    for (player, team) in [(0, 1), (1, 0), (2, 1)] {
        let id = world.id(player).0;
        world.send(player, &[0x41, id, 0, 0, 0, team]);
    }
    world.run(SECOND);
    assert_eq!(world.take_received(0), [hex("41 03000000 00"), hex("41 04000000 01")]);
    world.take_received(1);
    world.take_received(2);
    let mut chat = bytes("ex-chat");
    chat[0] = 0x2D;
    assert_eq!(send_and_collect(&mut world, &chat), [vec![chat.clone()], vec![], vec![chat]]);
    let late = world.join("Late");
    world.run(SECOND);
    let received = world.take_received(late);
    for expected in [
        "3F 02000000 00000000 00000000 00000000 01",
        "3F 03000000 00000000 00000000 00000000 00",
        "40 00 00000000 00000000",
        "40 01 00000000 00000000",
    ] {
        assert!(received.contains(&hex(expected)), "{expected} in {received:02X?}");
    }
}

/// S-40, S-42: a captured line with a false sender.
#[test]
fn chat_is_relayed_under_the_true_sender_id() {
    let mut world = world_with_players(Config::default(), 3);
    let line = bytes("chat-real");
    let mut forged = line.clone();
    forged[1..5].fill(0x99);
    world.send(1, &forged);
    world.run(SECOND);
    for player in 0..3 {
        assert_eq!(world.take_received(player), std::slice::from_ref(&line));
    }
    let chat = world.events.last().expect("an event");
    let expected = Event::Chat {
        peer: world.id(1),
        name: "Player 1".into(),
        text: "everything good for you?".into(),
        team: false,
    };
    assert_eq!(*chat, expected);
}

/// S-42
#[test]
fn chat_is_cleaned_and_its_length_checked() {
    let mut world = world_with_players(Config::default(), 2);
    let line = hex("2C 02000000 0800 41 07 0A 1B 7F FC 9B AD");
    let clean = hex("2C 02000000 0800 41 20 20 20 20 FC 20 20");
    assert_eq!(send_and_collect(&mut world, &line)[1], [clean]);
    assert_eq!(anomaly_count(&world, Anomaly::ControlCharacters), 1);
    let Some(Event::Chat { text, .. }) =
        world.events.iter().rev().find(|event| matches!(event, Event::Chat { .. }))
    else {
        panic!("no chat event");
    };
    assert_eq!(text, "A    ü  ");
    let long = [&[0x2C, 2, 0, 0, 0, 0x01, 0x02][..], &[b'x'; 513]].concat();
    for bad in [hex("2C 02000000 0500 41"), hex("2C 02000000 0000 41"), hex("2C 0200"), long] {
        assert_eq!(send_and_collect(&mut world, &bad), [NO_MESSAGES, NO_MESSAGES]);
    }
    assert_eq!((anomaly_count(&world, Anomaly::BadChat), anomaly_count(&world, Anomaly::TooShort)), (3, 1));
    let lines = (0..50).flat_map(|_| send_and_collect(&mut world, &bytes("ex-chat")).pop()).flatten().count();
    // 10 seconds with 5 lines each.
    assert!((30..=45).contains(&lines), "{lines}");
}

/// S-42: games also show the texts of other messages. For example, a ship has the name of its player.
#[test]
fn relayed_texts_are_cleaned() {
    let mut world = world_with_players(Config::default(), 2);
    let mut unprintable = ship(0, 2, 0x3FFF_FFFF);
    let mut clean = unprintable.clone();
    let name = unprintable.windows(5).position(|window| window == b"Cady2").expect("the player's name");
    unprintable[name..name + 3].copy_from_slice(b"\x1B\n\x9B");
    clean[name..name + 3].copy_from_slice(b"   ");
    assert_eq!(send_and_collect(&mut world, &unprintable)[1], [clean.clone()]);
    let set = hex("1F FFFFFF3F 04000000 4D0B6C74 00");
    assert_eq!(send_and_collect(&mut world, &set)[1], [hex("1F FFFFFF3F 04000000 4D206C74 00")]);
    let place = [0; 16];
    let warp = [&hex("10 2A810000 EC008000 00000000 FFFFFF3F 02 1B41")[..], &place].concat();
    let cleaned = [&hex("10 2A810000 EC008000 00000000 FFFFFF3F 02 2041")[..], &place].concat();
    assert_eq!(send_and_collect(&mut world, &warp)[1], [cleaned]);
    assert_eq!(anomaly_count(&world, Anomaly::ControlCharacters), 3);
    assert_eq!(send_and_collect(&mut world, &clean)[1], [clean], "clean text stays unchanged");
    assert_eq!(anomaly_count(&world, Anomaly::ControlCharacters), 3);
}

/// S-41
#[test]
fn server_chat_uses_the_recipient_id() {
    let config = Config { welcome: "Welcome!\n\nBe nice.".into(), ..Config::default() };
    let mut world = TestWorld::new(config.clone());
    world.join("Kirk");
    world.join("Spock");
    world.run(SECOND);
    let line = |id: u8, text: &str| {
        let text: Vec<u8> = format!("[server] {text}").into_bytes();
        [&[0x2C, id, 0, 0, 0, u8::try_from(text.len()).expect("a small number"), 0][..], &text].concat()
    };
    assert_eq!(world.take_received(1).split_off(13), [line(3, "Welcome!"), line(3, "Be nice.")]);
    world.session.say("hull\tbreach €", world.now);
    assert!(!world.session.say_to(bcnet_transport::wire::PeerId(9), "nobody", world.now));
    world.run(SECOND);
    for (player, id) in [(0, 2), (1, 3)] {
        assert_eq!(world.take_received(player).pop(), Some(line(id, "hull breach ?")));
    }
    // Text that is too long for one message is split.
    world.session.say(&format!("{}end", "x".repeat(371)), world.now);
    world.run(SECOND);
    let parts: Vec<Vec<u8>> = world.take_received(0).into_iter().map(|mut chat| chat.split_off(7)).collect();
    assert_eq!(parts, [format!("[server] {}", "x".repeat(371)).into_bytes(), b"[server] end".to_vec()]);
    world.take_received(1);
    let say_as = SayAs::Peer(1);
    world.session.reconfigure(Config { say_as, say_prefix: "> ".into(), ..config }, world.now);
    world.session.say("hi", world.now);
    world.run(SECOND);
    assert_eq!(world.take_received(0), [hex("2C 01000000 0400 3E 20 68 69")]);
}
