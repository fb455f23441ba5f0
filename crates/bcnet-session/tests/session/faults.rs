//! Sessions on bad networks, and long sessions.

use std::time::Duration;

use bcnet_lab::{Faults, Rng};
use bcnet_session::{Config, Event};
use bcnet_transport::Time;

use crate::play::{ship, world_with_players};
use crate::vectors::bytes;
use crate::world::TestWorld;

const SECOND: Duration = Duration::from_secs(1);

fn bad_network() -> Faults {
    Faults {
        loss: 0.2,
        burst: 1.5,
        duplicate: 0.1,
        reorder: 0.1,
        reorder_by: Duration::from_millis(120),
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(15),
        ..Faults::default()
    }
}

/// Returns a mod's message with the sender and a number.
fn numbered_payload(player: usize, number: u32) -> Vec<u8> {
    let player = u8::try_from(player).expect("few players");
    [&[0xCD, player][..], &number.to_le_bytes(), &[0x5A; 14]].concat()
}

/// Returns the numbers that `at` has received from `from`.
fn received_numbers(world: &TestWorld, at: usize, from: usize) -> Vec<u32> {
    let payloads = world.clients[at].received.iter().map(|(_, payload)| payload);
    let from_player = payloads.filter(|payload| payload[0] == 0xCD && usize::from(payload[1]) == from);
    from_player.map(|payload| u32::from_le_bytes(payload[2..6].try_into().expect("four bytes"))).collect()
}

/// S-33: eight players, with 20 % loss, duplicates and reordering: each message arrives once and in order.
#[test]
fn eight_players_receive_all_in_order_on_a_bad_network() {
    for seed in [11, 2_000, 900_000] {
        let mut world = TestWorld::with_faults(Config::default(), bad_network(), seed);
        let players: Vec<usize> = (0..8).map(|n| world.connect(&format!("Player {n}"), "")).collect();
        world.run_until(60 * SECOND, |world| world.session.status(world.now).in_game == 8);
        let mut slots: Vec<u8> = world.session.players().map(|player| player.slot.expect("a slot")).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..8).collect::<Vec<u8>>(), "seed {seed}");
        let mut rng = Rng::new(seed);
        for number in 0..150 {
            for &player in &players {
                let payload = numbered_payload(player, number);
                world.send(player, &payload);
                world.run(Duration::from_millis(rng.below(3) * 5));
            }
        }
        world.run(30 * SECOND);
        for &at in &players {
            for &from in players.iter().filter(|from| **from != at) {
                assert_eq!(
                    received_numbers(&world, at, from),
                    (0..150).collect::<Vec<u32>>(),
                    "seed {seed}: {at} of {from}"
                );
            }
        }
        let anomalies = world.session.counters().anomalies;
        assert_eq!(anomalies.total(), 0, "seed {seed}: {anomalies:?}");
    }
}

/// S-30, S-50: players join and leave on a bad network. A new player sees exactly the living ships.
#[test]
fn late_joiners_see_exactly_the_living_ships_on_a_bad_network() {
    for seed in [5, 77_000, 123_456] {
        let mut world =
            TestWorld::with_faults(Config { player_limit: 16, ..Config::default() }, bad_network(), seed);
        let mut rng = Rng::new(seed);
        for n in 0..12 {
            let at = world.join(&format!("Player {n}"));
            let slot = slot(&world, at);
            let object = 0x3FFF_FFFF + u32::from(slot) * 0x4_0000;
            let id = world.id(at).0;
            world.send(at, &ship(slot, id, object));
            world.run(SECOND + Duration::from_millis(rng.below(2000)));
            if rng.chance(0.4) {
                world.leave(at);
                world.run(4 * SECOND);
            }
        }
        let last = world.join("Last");
        world.run(10 * SECOND);
        let mut living: Vec<u8> = world
            .session
            .players()
            .filter(|player| player.ship.is_some())
            .map(|player| player.id.0)
            .collect();
        living.sort_unstable();
        let mut seen: Vec<u8> = world
            .take_received(last)
            .iter()
            .filter(|payload| payload[0] == 3)
            .map(|payload| payload[2])
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, living, "seed {seed}");
    }
}

fn slot(world: &TestWorld, at: usize) -> u8 {
    let id = world.id(at);
    let player = world.session.players().find(|player| player.id == id);
    player.and_then(|player| player.slot).expect("a slot")
}

/// The same seed gives the same datagrams at the same times.
#[test]
fn session_is_deterministic() {
    let run = |seed| {
        let mut world = TestWorld::with_faults(Config::default(), bad_network(), seed);
        for n in 0..4 {
            world.connect(&format!("Player {n}"), "");
            world.run(5 * SECOND);
        }
        for number in 0..50 {
            let payload = numbered_payload(1, number);
            world.send(1, &payload);
            world.run(SECOND / 20);
        }
        world.sent
    };
    assert_eq!(run(42), run(42));
    assert_ne!(run(42), run(43));
}

/// S-33: more messages to one client than there are sequence numbers.
#[test]
fn sixty_six_thousand_messages_reach_one_client() {
    let mut world =
        world_with_players(Config { relay_rate: 10 << 20, uplink: Some(10 << 20), ..Config::default() }, 2);
    world.record = false;
    let mut expected = 0_u32;
    let mut number = 0_u32;
    while number < 66_000 {
        for _ in 0..100 {
            let payload = numbered_payload(0, number);
            world.send(0, &payload);
            number += 1;
        }
        world.record = true;
        world.tick();
        world.sent.clear();
        expected = check_next(&mut world, expected);
    }
    let end = world.now + 10 * SECOND;
    while world.now < end {
        world.tick();
        world.sent.clear();
        expected = check_next(&mut world, expected);
    }
    assert_eq!(expected, 66_000);
}

fn check_next(world: &mut TestWorld, mut expected: u32) -> u32 {
    for payload in world.take_received(1) {
        assert_eq!(payload, numbered_payload(0, expected));
        expected += 1;
    }
    expected
}

/// S-33: the delay of a copy without faults is two times 20 ms, and the ticks.
#[test]
fn relayed_messages_are_sent_immediately() {
    let mut world = world_with_players(Config::default(), 8);
    let sent = world.now;
    world.send(0, &numbered_payload(0, 1));
    world.run(SECOND);
    let arrived: Vec<Time> = world.clients[1..].iter().map(|client| client.received[0].0).collect();
    assert!(arrived.iter().all(|at| at.since(sent) <= Duration::from_millis(60)), "{arrived:?}");
}

/// S-04, S-50: a server that players join and leave for a long time keeps no state of them.
#[test]
fn thousand_joins_and_leaves_free_all_state() {
    let mut world = TestWorld::new(Config::default());
    world.record = false;
    for round in 0..125 {
        let players: Vec<usize> = (0..8).map(|n| world.connect(&format!("P{round}.{n}"), "")).collect();
        world.run_until(10 * SECOND, |world| world.session.status(world.now).in_game == 8);
        for (n, player) in players.into_iter().enumerate() {
            if n % 4 == 0 { world.clients[player].drops_outgoing = true } else { world.leave(player) }
        }
        world.run_until(60 * SECOND, |world| world.session.status(world.now).players == 0);
        world.clients.clear();
        world.sent_elsewhere.clear();
        let left = world.events.drain(..).filter(|event| matches!(event, Event::Left { .. })).count();
        assert_eq!(left, 8, "round {round}");
    }
    assert_eq!(world.session.counters().admitted, 1000);
}

/// S-33, T-62: a lost copy is retransmitted after the measured round-trip time, regardless of other messages.
#[test]
fn lost_relay_is_retransmitted_after_the_measured_rtt() {
    let mut world = world_with_players(Config::default(), 2);
    for number in 0..20 {
        world.send(0, &numbered_payload(0, number));
        world.run(SECOND / 10);
    }
    let measured = world.session.players().find_map(|player| player.rtt.filter(|_| player.id.0 == 3));
    let measured = measured.expect("a measured round-trip time");
    assert!(
        (40..=65).contains(&measured.as_millis()),
        "two times 20 ms, and the delay of the ACK: {measured:?}"
    );
    world.clients[1].drops_incoming = true;
    let sent = world.now;
    world.send(0, &numbered_payload(0, 20));
    world.run(Duration::from_millis(50));
    world.clients[1].drops_incoming = false;
    world.run(SECOND);
    let arrived = world.clients[1].received.last().expect("the retransmitted message");
    assert_eq!(arrived.1, numbered_payload(0, 20));
    // The delay to the server, the retransmission timeout, and the delay to the client.
    let most = Duration::from_millis(40) + 2 * measured;
    assert!(arrived.0.since(sent) <= most, "{:?} of {most:?}", arrived.0.since(sent));
}

/// S-33: behind a full link, a ship's newest state update replaces older ones.
///
/// Updates of subsystems and of other ships stay.
#[test]
fn superseded_state_updates_do_not_queue_up() {
    let mut world = world_with_players(Config::default(), 3);
    let state = |slot: u32, time: f32| {
        let object = 0x3FFF_FFFF + slot * 0x4_0000;
        [&[0x1C][..], &object.to_le_bytes(), &time.to_le_bytes(), &bytes("pl-1C-9D")[9..]].concat()
    };
    world.clients[2].drops_incoming = true;
    let unreachable = world.id(2);
    for _ in 0..60 {
        world.session.say_to(unreachable, &"x".repeat(200), world.now);
    }
    world.run(SECOND);
    let subsystems = bytes("pl-1C-20");
    world.send_unreliable(0, &subsystems);
    for n in 0..20_u8 {
        world.send_unreliable(0, &state(0, f32::from(n)));
        world.send_unreliable(1, &state(1, f32::from(n)));
        world.run(SECOND / 10);
    }
    world.clients[2].drops_incoming = false;
    world.run(10 * SECOND);
    let without_hash = |mut state: Vec<u8>| {
        state[22] &= !1;
        state.drain(23..25);
        state
    };
    let states: Vec<_> = world.take_received(2).into_iter().filter(|payload| payload[0] == 0x1C).collect();
    assert_eq!(states, [subsystems, without_hash(state(0, 19.0)), without_hash(state(1, 19.0))]);
    let others = world.take_received(1).into_iter().filter(|payload| payload[0] == 0x1C).count();
    assert_eq!(others, 21, "a player with a free link gets all updates");
    // The superseded updates are counted, in total and for their receiver.
    let superseded: Vec<_> = world.session.players().map(|player| player.superseded).collect();
    assert_eq!((world.session.counters().superseded, superseded), (38, vec![0, 0, 38]));
}
