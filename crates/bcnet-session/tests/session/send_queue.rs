//! The send queue of a player whose link is full: the order of its messages.

use std::time::Duration;

use bcnet_session::{Anomaly, Config};

use crate::play::{ship, world_with_players};

const SECOND: Duration = Duration::from_secs(1);

/// S-43: a player gets the creation of a ship before messages of others that name the ship.
///
/// That holds even if many messages of the owner wait. Chat of the others stays behind their earlier messages.
#[test]
fn messages_do_not_overtake_the_ship_they_name() {
    let mut world = world_with_players(Config::default(), 3);
    let (own, other) = (0x3FFF_FFFF_u32, 0x4003_FFFF_u32);
    world.clients[2].drops_incoming = true;
    for n in 0..80 {
        world.send(0, &[0xCD, n]);
    }
    let new = ship(0, 2, own);
    world.send(0, &new);
    world.run(SECOND / 2);
    let target =
        [&[0x0C, 0x0C, 1, 0, 0, 1, 0, 0x80, 0, 0, 0, 0, 0][..], &other.to_le_bytes(), &own.to_le_bytes()]
            .concat();
    let chat = [&[0x2C, 3, 0, 0, 0, 2, 0][..], b"hi"].concat();
    world.send(1, &target);
    world.send(1, &chat);
    world.run(SECOND / 2);
    world.send(0, &[0x13]);
    world.run(SECOND);
    assert!(world.session.counters().queued > 0, "the link was full");
    world.clients[2].drops_incoming = false;
    world.run(10 * SECOND);
    let received = world.take_received(2);
    let place = |expected: &[u8]| received.iter().position(|payload| payload == expected).expect("a message");
    let numbers: Vec<u8> =
        received.iter().filter(|payload| payload[0] == 0xCD).map(|payload| payload[1]).collect();
    assert_eq!(numbers, (0..80).collect::<Vec<u8>>());
    let exploding = received.iter().position(|payload| payload[0] == 0x06).expect("an explosion");
    assert!(place(&[0xCD, 79]) < place(&new) && place(&new) < place(&target), "{received:02X?}");
    assert!(place(&target) < place(&chat) && place(&new) < exploding, "{received:02X?}");
}

/// S-43, S-28: messages of a new player in a slot come after its name and after those of the previous owner.
#[test]
fn new_player_does_not_overtake_the_previous_slot_owner() {
    let mut world = world_with_players(Config::default(), 3);
    let (leaver, receiver) = (world.id(0), 2);
    world.send(0, &ship(0, leaver.0, 0x3FFF_FFFF));
    world.run(SECOND);
    world.take_received(receiver);
    world.clients[receiver].drops_incoming = true;
    for n in 0..80 {
        world.send(0, &[0xCD, n]);
    }
    world.run(SECOND / 2);
    world.leave_and_wait(&[0]);
    world.run(SECOND);
    let late = world.join("Late");
    let new_player = world.id(late);
    world.send(late, &[0xCE]);
    world.run(SECOND);
    world.clients[receiver].drops_incoming = false;
    world.run(10 * SECOND);
    let received = world.take_received(receiver);
    let numbers: Vec<u8> =
        received.iter().filter(|payload| payload[0] == 0xCD).map(|payload| payload[1]).collect();
    assert_eq!(numbers, (0..80).collect::<Vec<u8>>());
    let place = |matches: &dyn Fn(&[u8]) -> bool| {
        received.iter().position(|payload| matches(payload)).expect("a message")
    };
    let order = [
        place(&|payload| payload == [0xCD, 79]),
        place(&|payload| payload[0] == 0x14),
        place(&|payload| payload[0] == 0x17 && payload.ends_with(&[leaver.0])),
        place(&|payload| payload[0] == 0x18),
        place(&|payload| payload[0] == 0x17 && payload.ends_with(&[new_player.0])),
        place(&|payload| payload == [0xCE]),
    ];
    assert!(order.is_sorted(), "{order:?}");
    let named = world.clients[receiver]
        .identities
        .iter()
        .any(|(peer, name, _)| (*peer, &**name) == (new_player, "Late"));
    assert!(named);
}

/// S-61: queued game messages of a round that is over are dropped, but chat is not.
#[test]
fn restart_drops_queued_messages_of_the_old_round() {
    let mut world = world_with_players(Config::default(), 2);
    world.clients[1].drops_incoming = true;
    for n in 0..120 {
        world.send(0, &[0xCD, n]);
    }
    let chat = [&[0x2C, 2, 0, 0, 0, 2, 0][..], b"gg"].concat();
    world.send(0, &chat);
    world.run(SECOND / 2);
    world.session.restart(world.now);
    world.clients[1].drops_incoming = false;
    world.run(10 * SECOND);
    let received = world.take_received(1);
    let old = received.iter().filter(|payload| payload[0] == 0xCD).count();
    let dropped = world.session.counters().not_queued;
    assert!((1..120).contains(&old) && dropped == 120 - old as u64, "{old} received, {dropped} dropped");
    let restart = received.iter().position(|payload| payload == &[0x39]).expect("the next round");
    assert!(
        received[restart..].contains(&chat) && !received[restart..].iter().any(|payload| payload[0] == 0xCD)
    );
}

/// S-36: for each new ship the server sends a message to everyone, so the rate of new ships is limited.
#[test]
fn ship_creation_is_rate_limited() {
    let mut world = world_with_players(Config::default(), 2);
    for n in 0..50 {
        world.send(0, &ship(0, 2, 0x3FFF_FFFF + n % 2));
    }
    world.run(SECOND / 2);
    let ships = world.take_received(1).iter().filter(|payload| payload[0] == 0x03).count();
    assert_eq!(ships, 8);
    assert_eq!(world.session.counters().anomalies.count(Anomaly::Flood), 42);
}
