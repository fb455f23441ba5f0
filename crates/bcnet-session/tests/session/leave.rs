//! Departures: notices, stored scores, kicks, shutdown, full queues.

use std::time::Duration;

use bcnet_session::{Anomaly, Config, Event};
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{LeaveReason, RejectCause, cipher};

use crate::play::{ship, world_with_players};
use crate::vectors::{bytes, hex};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the messages for the others when peer 2 leaves, which has a ship.
fn departure_messages() -> [Vec<u8>; 3] {
    [
        hex("14 FFFFFF3F"),
        hex("17 66080000 05000600 00000000 00000000 02"),
        [&[0x18, 8, 0][..], b"Player 0"].concat(),
    ]
}

/// S-50, S-51: a player leaves and comes back.
#[test]
fn leaving_player_is_announced_and_regains_its_score() {
    let mut world = world_with_players(Config::default(), 3);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.send(0, &[0x13]);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.run(SECOND);
    world.take_received(1);
    world.leave_and_wait(&[0]);
    world.run(SECOND);
    assert_eq!(world.take_received(1), departure_messages());
    assert!(world.clients[2].disconnects.contains(&(PeerId(2), LeaveReason::Disconnected)));
    let left = world.events.iter().any(|event| {
        matches!(event, Event::Left { peer: PeerId(2), name, reason: LeaveReason::Disconnected, .. } if name == "Player 0")
    });
    assert!(left);
    world.run(16 * SECOND);
    world.take_received(1);
    world.reconnect(0);
    world.run(2 * SECOND);
    assert_eq!(world.id(0), PeerId(5));
    let back: Vec<_> = world.session.players().filter(|player| player.name == "Player 0").collect();
    assert_eq!((back.len(), back[0].slot, back[0].score.deaths), (1, Some(0), 1));
    assert!(world.take_received(1).contains(&hex("37 05000000 00000000 01000000 00000000")));
}

/// T-57, S-50: a forged disconnect removes no player, and the others do not hear of it.
///
/// A real one is announced within 2.5 s.
#[test]
fn forged_disconnect_does_not_remove_a_player() {
    let mut world = world_with_players(Config::default(), 2);
    let victim = world.clients[0].address;
    world.run(5 * SECOND);
    world.take_received(1);
    for step in 0..600_u16 {
        // All likely numbers; 0x0A 0xC0 is the size of a reliable disconnect, and 0x0A 0x00 of an unreliable one.
        for flags in [0xC0, 0x00] {
            let mut forged = vec![2, 1, 0x05, 0x0A, flags];
            forged.extend((step % 8).to_le_bytes());
            forged.extend([2, 10, 0, 0, 1]);
            cipher::encrypt(&mut forged);
            world.inject(victim, &forged);
        }
        world.run(SECOND / 10);
    }
    assert_eq!(world.session.status(world.now).in_game, 2);
    assert_eq!(world.take_received(1), [] as [Vec<u8>; 0]);
    assert!(world.session.rejected().count(RejectCause::ForgedDisconnect) > 600);
    world.leave(0);
    world.run(5 * SECOND / 2);
    assert_eq!(world.session.status(world.now).in_game, 1);
    assert_eq!(world.take_received(1), departure_messages()[1..]);
}

/// T-57, S-12: a full server does not refuse a client while a player may have left.
#[test]
fn full_server_admits_a_client_after_a_departure() {
    let mut world = world_with_players(Config { player_limit: 2, ..Config::default() }, 2);
    world.leave(0);
    world.run(SECOND / 10);
    let late = world.connect("Late", "");
    world.run_until(5 * SECOND, |world| world.is_in_game(late));
    assert_eq!(world.clients[late].disconnects, []);
}

/// S-51: a player with a score takes the name of a player that has left.
#[test]
fn stored_score_is_not_given_to_a_renamed_player() {
    let mut world = world_with_players(Config::default(), 2);
    for at in [0, 1] {
        let id = world.id(at).0;
        for _ in 0..=at {
            world.send(at, &ship(id - 2, id, 0x3FFF_FFFF + 0x4_0000 * u32::from(id - 2)));
            world.send(at, &[0x13]);
        }
    }
    world.run(SECOND);
    world.leave_and_wait(&[0]);
    world.run(16 * SECOND);
    world.rename(1, "Player 0");
    world.run(SECOND);
    world.reconnect(0);
    world.run(2 * SECOND);
    let deaths: Vec<_> = world.session.players().map(|player| (player.name, player.score.deaths)).collect();
    assert_eq!(deaths, [("Player 0".into(), 2), ("Player 0".into(), 1)]);
}

/// S-50: no notice about a destroyed ship, or about a client that was never in the game.
#[test]
fn departure_announces_only_known_ships_and_players() {
    let mut world = world_with_players(Config::default(), 2);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.send(0, &[0x13]);
    world.run(SECOND);
    world.take_received(1);
    world.leave_and_wait(&[0]);
    world.run(SECOND);
    assert_eq!(world.take_received(1), departure_messages()[1..]);
    let loading = world.connect("Loading", "");
    world.clients[loading].answers_file_check = false;
    world.run(SECOND);
    world.leave_and_wait(&[loading]);
    world.run(SECOND);
    assert_eq!(world.take_received(1), [] as [Vec<u8>; 0]);
}

/// S-50: a silent player times out after 45 seconds.
#[test]
fn timed_out_player_is_announced_as_left() {
    let mut world = world_with_players(Config::default(), 2);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.run(SECOND);
    world.take_received(1);
    world.clients[0].drops_outgoing = true;
    world.run(40 * SECOND);
    assert_eq!(world.take_received(1), [] as [Vec<u8>; 0]);
    world.run(10 * SECOND);
    assert_eq!(world.take_received(1), departure_messages());
    assert!(world.clients[1].disconnects.contains(&(PeerId(2), LeaveReason::Booted(BootReason::TIMED_OUT))));
    assert_eq!(world.session.status(world.now).players, 1);
}

/// S-50: a client connects again from the same address.
#[test]
fn reconnecting_address_replaces_its_old_connection() {
    let mut world = world_with_players(Config::default(), 2);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.run(SECOND);
    world.take_received(1);
    world.reconnect(0);
    world.run(2 * SECOND);
    assert_eq!(world.take_received(1)[..3], departure_messages());
    let players: Vec<_> = world.session.players().map(|player| (player.id.0, player.slot)).collect();
    assert_eq!(players, [(3, Some(1)), (4, Some(0))]);
}

/// S-52
#[test]
fn kicked_player_gets_the_reason_and_is_announced() {
    let mut world = world_with_players(Config::default(), 2);
    assert!(world.session.kick(PeerId(2), BootReason::KICKED, world.now));
    assert!(!world.session.kick(PeerId(2), BootReason::KICKED, world.now));
    world.run(SECOND);
    let kicked = (PeerId(2), LeaveReason::Booted(BootReason::KICKED));
    assert_eq!(world.clients[0].disconnects, [kicked]);
    assert_eq!(world.clients[1].disconnects, [kicked]);
    assert_eq!(world.take_received(1), departure_messages()[1..]);
    // The client is refused for a while, from every port.
    let address = world.clients[0].address;
    for port in [address.port(), 5000] {
        world.clients[0].address.set_port(port);
        world.reconnect(0);
        world.run(SECOND);
        assert_eq!(
            world.clients[0].disconnects,
            [(PeerId::UNASSIGNED, LeaveReason::Booted(BootReason::KICKED))],
            "{port}"
        );
    }
    world.clients[0].address = address;
    world.run(5 * SECOND);
    world.reconnect(0);
    world.run(2 * SECOND);
    assert_eq!(world.session.status(world.now).in_game, 2);
    // The boot has the captured form, except for its sequence number.
    let boot = [0x04, 0x07, 0xC0];
    let sent = world.sent.iter().any(|(_, to, plain)| {
        *to == world.clients[0].address
            && plain.windows(7).any(|bytes| bytes[..3] == boot && bytes[5..] == [0x04, 0x02])
    });
    assert!(sent);
}

/// S-53
#[test]
fn shutdown_disconnects_players_and_ignores_new_clients() {
    let mut world = world_with_players(
        Config { masters: vec!["192.0.2.200:27900".parse().expect("an address")], ..Config::default() },
        2,
    );
    world.sent_elsewhere.clear();
    world.session.shutdown(world.now);
    assert!(!world.session.is_closed());
    world.run(SECOND);
    for client in [0, 1] {
        assert_eq!(world.clients[client].disconnects, [(PeerId::HOST, LeaveReason::Disconnected)]);
    }
    assert!(world.session.is_closed());
    let late = world.connect("Late", "");
    world.inject("10.1.1.1:5000".parse().expect("an address"), &bytes("gs-status-query"));
    world.run(120 * SECOND);
    assert_eq!(world.id(late), PeerId::UNASSIGNED);
    assert_eq!(world.sent_elsewhere, []);
}

/// S-53: a player that does not answer delays the shutdown only by the linger time.
#[test]
fn silent_player_does_not_block_shutdown() {
    let mut world = world_with_players(Config::default(), 2);
    world.clients[0].drops_outgoing = true;
    world.session.shutdown(world.now);
    world.run(14 * SECOND);
    assert!(!world.session.is_closed());
    world.run(2 * SECOND);
    assert!(world.session.is_closed());
}

/// S-54: a player that is silent for a while is not booted when messages of others fill its queue.
///
/// The others continue to play.
#[test]
fn player_is_not_dropped_for_messages_of_others() {
    let transport = bcnet_transport::Config { max_queued_bytes: 4000, ..bcnet_transport::Config::default() };
    let mut world = world_with_players(Config { transport, ..Config::default() }, 3);
    world.clients[0].drops_outgoing = true;
    let chat = [&[0x2C, 3, 0, 0, 0, 200, 0][..], &[b'x'; 200]].concat();
    for step in 0..300 {
        world.send(1, &bytes("pl-07").map_related());
        world.send_unreliable(1, &[&hex("1C FFFF0340")[..], &[0; 6]].concat());
        if step % 10 == 0 {
            world.send(1, &chat);
        }
        world.run(SECOND / 10);
    }
    assert_eq!(world.session.status(world.now).in_game, 3);
    let anomalies = &world.session.counters().anomalies;
    assert!(anomalies.count(Anomaly::Stuck) == 0 && anomalies.count(Anomaly::Backlog) > 0, "{anomalies:?}");
    let shots = world.take_received(2).iter().filter(|payload| payload[0] == 7).count();
    assert_eq!(shots, 300);
    world.clients[0].drops_outgoing = false;
    world.run(10 * SECOND);
    world.take_received(0);
    world.send(1, &chat);
    world.run(SECOND);
    assert!(world.take_received(0).contains(&chat), "chat arrives again");
}

/// S-54: a player that does not acknowledge the server's own messages is booted.
#[test]
fn unresponsive_player_is_dropped_and_others_continue() {
    let transport = bcnet_transport::Config { max_queued_bytes: 4000, ..bcnet_transport::Config::default() };
    let mut world = world_with_players(Config { transport, ..Config::default() }, 3);
    world.clients[0].drops_outgoing = true;
    for _ in 0..100 {
        world.session.say("The server goes down for maintenance in a while", world.now);
        world.run(SECOND / 10);
    }
    assert_eq!(world.session.status(world.now).players, 2);
    assert_eq!(world.session.counters().anomalies.count(Anomaly::Stuck), 1);
    let received = world.take_received(2).iter().filter(|payload| payload[0] == 0x2C).count();
    assert_eq!(received, 100);
    let left = world
        .events
        .iter()
        .any(|event| matches!(event, Event::Left { reason: LeaveReason::Booted(BootReason::TIMED_OUT), .. }));
    assert!(left);
}

trait MapRelated {
    fn map_related(self) -> Self;
}

impl MapRelated for Vec<u8> {
    /// Changes the object of an event to one of slot 1.
    fn map_related(mut self) -> Self {
        self[13..17].copy_from_slice(&0x4003_FFFF_u32.to_le_bytes());
        self
    }
}
