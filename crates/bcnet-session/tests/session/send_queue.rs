//! What waits for a player whose line is full leaves in an order that it can follow.

use std::time::Duration;

use bcnet_session::{Anomaly, Config};

use crate::play::{ship, world_with_players};

const SECOND: Duration = Duration::from_secs(1);

/// S-43: a player hears of a ship before it hears what others do to it, whatever waits of the ship's owner, and what is said
/// after that comes after it.
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
    let line = [&[0x2C, 3, 0, 0, 0, 2, 0][..], b"hi"].concat();
    world.send(1, &target);
    world.send(1, &line);
    world.run(SECOND / 2);
    world.send(0, &[0x13]);
    world.run(SECOND);
    assert!(world.session.counters().queued > 0, "its line was full");
    world.clients[2].drops_incoming = false;
    world.run(10 * SECOND);
    let received = world.take_received(2);
    let place = |wanted: &[u8]| received.iter().position(|payload| payload == wanted).expect("it was heard");
    let numbers: Vec<u8> =
        received.iter().filter(|payload| payload[0] == 0xCD).map(|payload| payload[1]).collect();
    assert_eq!(numbers, (0..80).collect::<Vec<u8>>());
    let exploding = received.iter().position(|payload| payload[0] == 0x06).expect("it explodes");
    assert!(place(&[0xCD, 79]) < place(&new) && place(&new) < place(&target), "{received:02X?}");
    assert!(place(&target) < place(&line) && place(&new) < exploding, "{received:02X?}");
}

/// S-43, S-28: whoever takes a leaver's place comes after all that waits of the leaver, and after its name.
#[test]
fn newcomer_does_not_overtake_the_previous_slot_owner() {
    let mut world = world_with_players(Config::default(), 3);
    let (leaver, deaf) = (world.id(0), 2);
    world.send(0, &ship(0, leaver.0, 0x3FFF_FFFF));
    world.run(SECOND);
    world.take_received(deaf);
    world.clients[deaf].drops_incoming = true;
    for n in 0..80 {
        world.send(0, &[0xCD, n]);
    }
    world.run(SECOND / 2);
    world.leave(0);
    world.run(SECOND);
    let late = world.join("Late");
    let newcomer = world.id(late);
    world.send(late, &[0xCE]);
    world.run(SECOND);
    world.clients[deaf].drops_incoming = false;
    world.run(10 * SECOND);
    let received = world.take_received(deaf);
    let numbers: Vec<u8> =
        received.iter().filter(|payload| payload[0] == 0xCD).map(|payload| payload[1]).collect();
    assert_eq!(numbers, (0..80).collect::<Vec<u8>>());
    let place = |what: &dyn Fn(&[u8]) -> bool| {
        received.iter().position(|payload| what(payload)).expect("it was heard")
    };
    let order = [
        place(&|payload| payload == [0xCD, 79]),
        place(&|payload| payload[0] == 0x14),
        place(&|payload| payload[0] == 0x17 && payload.ends_with(&[leaver.0])),
        place(&|payload| payload[0] == 0x18),
        place(&|payload| payload[0] == 0x17 && payload.ends_with(&[newcomer.0])),
        place(&|payload| payload == [0xCE]),
    ];
    assert!(order.is_sorted(), "{order:?}");
    let named =
        world.clients[deaf].identities.iter().any(|(peer, name, _)| (*peer, &**name) == (newcomer, "Late"));
    assert!(named);
}

/// S-61: what players said in a round that is over does not reach the next; what they chatted does.
#[test]
fn restart_drops_queued_messages_of_the_old_round() {
    let mut world = world_with_players(Config::default(), 2);
    world.clients[1].drops_incoming = true;
    for n in 0..120 {
        world.send(0, &[0xCD, n]);
    }
    let line = [&[0x2C, 2, 0, 0, 0, 2, 0][..], b"gg"].concat();
    world.send(0, &line);
    world.run(SECOND / 2);
    world.session.restart(world.now);
    world.clients[1].drops_incoming = false;
    world.run(10 * SECOND);
    let received = world.take_received(1);
    let old = received.iter().filter(|payload| payload[0] == 0xCD).count();
    let left_out = world.session.counters().not_queued;
    assert!((1..120).contains(&old) && left_out == 120 - old as u64, "{old} heard, {left_out} left out");
    let restart = received.iter().position(|payload| payload == &[0x39]).expect("the next round");
    assert!(
        received[restart..].contains(&line) && !received[restart..].iter().any(|payload| payload[0] == 0xCD)
    );
}

/// S-36: a player's ships make the server say something to everyone, so there are not many at once.
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
