//! Joining: from the connect request into the game.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::{Anomaly, Config, Network, PlayerState};
use bcnet_transport::LeaveReason;
use bcnet_transport::wire::{Body, BootReason, Control, Datagram, Message, PeerId, Role};

use crate::play::world_with_players;
use crate::vectors::{bytes, hex, payload};
use crate::world::{TestWorld, all_networks, file_check_reply};

const SECOND: Duration = Duration::from_secs(1);

/// S-01, S-20, S-25, S-30, S-31
#[test]
fn joining_player_receives_the_stock_messages() {
    let mut world = TestWorld::new(Config::default());
    let cady = world.join("Cady2");
    assert_eq!(world.id(cady), PeerId(2));
    world.run(SECOND);
    let received = world.take_received(cady);
    let requests = ["dg-connect-reply-plus-req0", "dg-req1", "dg-req2", "dg-req3", "dg-reqFF"].map(payload);
    assert_eq!(received[..5], requests);
    assert_eq!(received[5], [0x28]);
    let mut settings = received[6].clone();
    let time = f32::from_le_bytes(settings[1..5].try_into().expect("four bytes"));
    assert!((0.0..2.0).contains(&time), "{time}");
    settings[1..5].copy_from_slice(&bytes("pl-settings-a")[1..5]);
    assert_eq!(settings, bytes("pl-settings-a"));
    assert_eq!(received[7], [0x01]);
    assert_eq!(received[8], bytes("pl-35"));
    assert_eq!(received[9], hex("37 02000000 00000000 00000000 00000000"));
    assert_eq!(received[10..], [join_event(2)]);
    assert_eq!(world.event_names(), ["joining", "joined", "round_started", "in_game"]);
}

/// Returns the join event of a peer: the captured one, without the private number of its sender.
pub(crate) fn join_event(peer: u8) -> Vec<u8> {
    let mut event = bytes("pl-17-join-a");
    event[13..17].fill(0);
    event[17] = peer;
    event
}

/// S-20, S-25: the messages of one step leave in one datagram.
#[test]
fn join_messages_are_batched_like_the_stock_server() {
    // A client that is not trusted would get these messages only after its proof.
    let mut world = TestWorld::new(Config { trusted: all_networks(), ..Config::default() });
    world.join("Cady2");
    let opcodes = |plain: &[u8]| -> Vec<u8> {
        let datagram = Datagram::parse(plain, None).expect("well formed");
        let data = datagram.messages().filter_map(|message| match message {
            Message::Data(data) => data.payload.first().copied(),
            Message::Control(control) => Some(0x80 | control.body.kind().0),
            _ => None,
        });
        data.collect()
    };
    let sent: Vec<Vec<u8>> = world.sent.iter().map(|(_, _, plain)| opcodes(plain)).collect();
    let with_messages: Vec<_> = sent.iter().filter(|opcodes| !opcodes.is_empty()).collect();
    let expected: [&[u8]; 8] = [
        &[0x83, 0x20],
        &[0x80],
        &[0x20],
        &[0x20],
        &[0x20],
        &[0x20],
        &[0x28, 0x00, 0x01],
        &[0x35, 0x37, 0x17],
    ];
    // The identity (0x80) and the second request may leave in one datagram or in two: they answer the client's name and
    // its first answer, which may arrive in one datagram or in two.
    let flat: Vec<u8> = with_messages.iter().flat_map(|opcodes| opcodes.iter().copied()).collect();
    assert_eq!(flat, expected.concat());
    for batch in [&[0x83, 0x20][..], &[0x28, 0x00, 0x01], &[0x35, 0x37, 0x17]] {
        assert!(
            with_messages.iter().any(|opcodes| opcodes.as_slice() == batch),
            "{batch:02X?} in {with_messages:02X?}"
        );
    }
}

/// S-04
#[test]
fn lowest_free_slot_is_assigned_and_ids_advance() {
    let mut world = TestWorld::new(Config::default());
    let players = ["Kirk", "Spock", "Uhura"].map(|name| world.join(name));
    let slots = |world: &TestWorld| -> Vec<(u8, u8)> {
        world.session.players().map(|player| (player.id.0, player.slot.expect("a slot"))).collect()
    };
    assert_eq!(slots(&world), [(2, 0), (3, 1), (4, 2)]);
    world.leave_and_wait(&[players[1]]);
    world.run(SECOND);
    world.join("Sulu");
    assert_eq!(slots(&world), [(2, 0), (4, 2), (5, 1)]);
    let settings = world.clients[3].received.iter().find(|(_, payload)| payload[0] == 0).expect("settings");
    assert_eq!(settings.1[6], 1);
}

/// S-10
#[test]
fn banned_address_is_refused_and_kicked() {
    let mut world = TestWorld::new(Config::default());
    let (kirk, spock) = (world.join("Kirk"), world.join("Spock"));
    let network = *world.clients[kirk].address.ip();
    world.session.set_bans(
        vec![Network::containing(network, 32), Network::containing(Ipv4Addr::new(10, 9, 0, 0), 16)],
        world.now,
    );
    world.run(SECOND);
    let booted = (world.id(kirk), LeaveReason::Booted(BootReason::BANNED));
    assert!(world.clients[kirk].disconnects.contains(&booted), "{:?}", world.clients[kirk].disconnects);
    assert!(world.clients[spock].disconnects.contains(&booted));
    world.run(20 * SECOND);
    world.reconnect(kirk);
    world.run(SECOND);
    assert_eq!(
        world.clients[kirk].disconnects,
        [(PeerId::UNASSIGNED, LeaveReason::Booted(BootReason::BANNED))]
    );
    assert_eq!(world.session.status(world.now).players, 1);
    assert_eq!(world.session.counters().refused.total(), 1);
}

/// S-11
#[test]
fn password_is_required_to_join() {
    let mut world = TestWorld::new(Config { password: Some("Geheim7".into()), ..Config::default() });
    let clients = ["", "geheim7", "Geheim77", "Geheim7"].map(|password| world.connect("Kirk", password));
    world.run(2 * SECOND);
    for wrong in &clients[..3] {
        let refused = [(PeerId::UNASSIGNED, LeaveReason::Booted(BootReason::WRONG_PASSWORD))];
        assert_eq!(world.clients[*wrong].disconnects, refused);
    }
    assert!(world.is_in_game(clients[3]));
    let refused = world.event_names().iter().filter(|name| **name == "refused").count();
    assert_eq!(refused, 3);
}

/// S-04, S-12
#[test]
fn full_server_refuses_clients() {
    for (limit, places) in [(2, 2), (200, 16)] {
        let mut world = TestWorld::new(Config { player_limit: limit, ..Config::default() });
        for n in 0..places {
            world.join(&format!("Player {n}"));
        }
        let late = world.connect("Late", "");
        world.run(SECOND);
        assert_eq!(
            world.clients[late].disconnects,
            [(PeerId::UNASSIGNED, LeaveReason::Booted(BootReason::FULL))]
        );
        assert_eq!(world.session.status(world.now).players, places);
        world.leave_and_wait(&[0]);
        world.run(12 * SECOND);
        world.reconnect(late);
        world.run(2 * SECOND);
        assert_eq!(world.session.status(world.now).in_game, places);
    }
}

/// S-12: two clients ask for the last slot at the same time.
#[test]
fn last_slot_is_assigned_once() {
    let mut world = TestWorld::new(Config { player_limit: 1, ..Config::default() });
    let both = [world.connect("Kirk", ""), world.connect("Spock", "")];
    world.run(3 * SECOND);
    assert_eq!(world.session.status(world.now).in_game, 1);
    let refused = both.iter().filter(|at| {
        let own = world.id(**at);
        world.clients[**at].disconnects.contains(&(own, LeaveReason::Booted(BootReason::FULL)))
    });
    assert_eq!(refused.count(), 1);
}

/// S-12
#[test]
fn clients_are_refused_after_the_round_ends() {
    let mut world =
        world_with_players(Config { time_limit: Some(1), intermission: None, ..Config::default() }, 1);
    world.run(60 * SECOND);
    let late = world.connect("Late", "");
    world.run(SECOND);
    assert_eq!(
        world.clients[late].disconnects,
        [(PeerId::UNASSIGNED, LeaveReason::Booted(BootReason::DEFAULT))]
    );
    world.session.restart(world.now);
    world.run(15 * SECOND);
    world.reconnect(late);
    world.run(2 * SECOND);
    assert_eq!(world.session.status(world.now).in_game, 2);
}

/// S-13
#[test]
fn spoofed_requests_take_no_slot_and_expire() {
    let mut world = TestWorld::new(Config { player_limit: 2, ..Config::default() });
    world.record = false;
    world.join("Kirk");
    let mut connect = bytes("dg-connect");
    bcnet_transport::cipher::encrypt(&mut connect);
    for n in 0..60_000_u32 {
        let from = SocketAddrV4::new(Ipv4Addr::from(0x0B00_0000 + n), 22101);
        world.inject(from, &connect);
        if n % 10 == 0 {
            world.tick();
            world.sent_elsewhere.clear();
            assert!(world.session.players().count() <= 17 + 1);
        }
    }
    assert_eq!(world.session.status(world.now).players, 1);
    // The flood is over: ten seconds later no state of it is left, and a real player can join.
    world.run(11 * SECOND);
    assert_eq!(world.session.players().count(), 1);
    world.join("Spock");
}

/// S-14
#[test]
fn joining_client_neither_sends_nor_receives_relays() {
    let mut world = TestWorld::new(Config::default());
    let kirk = world.join("Kirk");
    let late = world.connect("Late", "");
    world.clients[late].answers_file_check = false;
    world.run(SECOND);
    world.take_received(kirk);
    world.take_received(late);
    world.send(late, &bytes("chat-real"));
    world.send(late, &bytes("pl-07"));
    world.send(late, &[0x27]);
    world.send(kirk, &bytes("chat-real"));
    world.send(kirk, &bytes("pl-07"));
    world.run(SECOND);
    assert_eq!(world.take_received(late), [] as [Vec<u8>; 0]);
    assert_eq!(world.take_received(kirk).len(), 1, "only its own chat");
    assert_eq!(world.session.counters().anomalies.count(Anomaly::TooEarly), 2);
    let states: Vec<PlayerState> = world.session.players().map(|player| player.state).collect();
    assert_eq!(states, [PlayerState::InGame, PlayerState::Checking(0)]);
}

/// S-21
#[test]
fn malformed_answers_are_counted_and_ignored() {
    let mut world = TestWorld::new(Config::default());
    let kirk = world.connect("Kirk", "");
    world.clients[kirk].answers_file_check = false;
    world.run(SECOND);
    let good = file_check_reply(0);
    let longer = [&good[..], &[0]].concat();
    let mut deep = hex("21 00 43E20C7E 2FCBAF4D");
    for _ in 0..40 {
        deep.extend(hex("0000 01 11223344"));
    }
    let huge = hex("21 00 43E20C7E 2FCBAF4D FFFF 00");
    let bad: [&[u8]; 6] = [&good[..good.len() - 1], &longer, &file_check_reply(1), &deep, &huge, &[0x21]];
    for payload in bad {
        world.send(kirk, payload);
    }
    world.run(SECOND);
    assert_eq!(world.session.counters().anomalies.count(Anomaly::BadReply), 6);
    assert_eq!(world.take_received(kirk).len(), 1, "no second request");
    world.send(kirk, &good);
    world.run(SECOND);
    assert_eq!(world.take_received(kirk), [payload("dg-req1")]);
}

/// S-03: the addresses that clients report are relayed in names and disconnect notices, unless they are masked.
#[test]
fn addresses_are_relayed_unless_masked() {
    let relayed = |mask_addresses| {
        let mut world = world_with_players(Config { mask_addresses, ..Config::default() }, 3);
        world.leave_and_wait(&[0]);
        world.run(SECOND);
        assert_eq!(world.clients[1].disconnects, [(PeerId(2), LeaveReason::Disconnected)]);
        let mut addresses = BTreeSet::new();
        for (_, _, datagram) in &world.sent {
            for message in
                Datagram::parse(datagram, Some(Role::Host)).expect("a datagram of the session").messages()
            {
                if let Message::Control(Control {
                    body: Body::Identity { peer, address, .. } | Body::Disconnect { peer, address },
                    ..
                }) = message
                {
                    addresses.insert((message.kind().0, peer.0, address.octets()));
                }
            }
        }
        addresses.into_iter().collect::<Vec<_>>()
    };
    let own = |n| [60, n, 0, 7];
    assert_eq!(relayed(false), [(0, 2, own(0)), (0, 3, own(1)), (0, 4, own(2)), (5, 2, own(0))]);
    assert_eq!(relayed(true), [(0, 2, [0; 4]), (0, 3, [0; 4]), (0, 4, [0; 4]), (5, 2, [0; 4])]);
}

/// S-27
#[test]
fn game_clock_starts_with_the_first_player() {
    let mut world = TestWorld::new(Config::default());
    let time = |world: &mut TestWorld, at: usize| {
        let settings =
            world.take_received(at).into_iter().find(|payload| payload[0] == 0x00).expect("settings");
        f32::from_le_bytes(settings[1..5].try_into().expect("four bytes"))
    };
    world.run(100 * SECOND);
    let kirk = world.join("Kirk");
    let first = time(&mut world, kirk);
    assert!((0.1..1.0).contains(&first), "{first}");
    world.run(50 * SECOND);
    let spock = world.join("Spock");
    let second = time(&mut world, spock);
    assert!((50.0..53.0).contains(&second), "{second}");
    world.leave_and_wait(&[kirk]);
    world.leave_and_wait(&[spock]);
    world.run(SECOND);
    let sulu = world.join("Sulu");
    assert!(time(&mut world, sulu) < 1.0);
}
