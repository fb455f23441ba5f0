//! State that outlives the moment: mutes, stale connections, the uplink and its timer.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::Config;
use bcnet_transport::cipher;

use crate::play::{ship, world_with_players};
use crate::world::TestWorld;

const SECOND: Duration = Duration::from_secs(1);

/// S-44: after an unmute, a player that rejoins under its name is not muted again.
#[test]
fn unmuted_player_stays_unmuted_after_a_rejoin() {
    let mut world = world_with_players(Config::default(), 2);
    let id = world.id(0);
    assert!(world.session.mute(id) && world.session.unmute(id));
    world.reconnect(0);
    world.run(20 * SECOND);
    let back = world.session.players().find(|player| player.name == "Player 0").expect("the player is back");
    assert!(!back.muted && back.id != id, "{back:?}");
}

/// S-13: of two stale connections of an address, the new client replaces the one that was idle longest.
#[test]
fn longest_idle_connection_is_replaced_first() {
    let mut world = TestWorld::new(Config { player_limit: 2, ..Config::default() });
    let house = |port| SocketAddrV4::new(Ipv4Addr::new(10, 9, 9, 9), port);
    for (at, port) in [(0, 1000), (1, 1001)] {
        assert_eq!(world.connect(&format!("Player {at}"), ""), at);
        world.clients[at].address = house(port);
        world.run_until(5 * SECOND, |world| world.is_in_game(at));
    }
    // The player that came last is silent first.
    world.clients[1].drops_outgoing = true;
    world.run(5 * SECOND);
    world.clients[0].drops_outgoing = true;
    world.run(14 * SECOND);
    let newcomer = world.connect("Newcomer", "");
    world.clients[newcomer].address = house(1002);
    world.run_until(5 * SECOND, |world| world.is_in_game(newcomer));
    let left: Vec<String> = world.session.players().map(|player| player.name).collect();
    assert_eq!(left, ["Player 0", "Newcomer"]);
}

/// S-46: a new uplink limit applies to the players that are in the game.
#[test]
fn changed_uplink_limits_the_running_game() {
    let mut world = world_with_players(Config { uplink: Some(10 << 20), ..Config::default() }, 4);
    let per_second = |world: &mut TestWorld| {
        for _ in 0..4 {
            for _ in 0..50 {
                for at in 0..4 {
                    world.send_unreliable(at, &[&[0xCE][..], &[7; 300]].concat());
                }
                world.tick();
            }
            world.sent.retain(|(at, ..)| *at + SECOND > world.now);
        }
        world.sent.iter().map(|(_, _, datagram)| datagram.len()).sum::<usize>()
    };
    let before = per_second(&mut world);
    assert!(before > 200_000, "{before}");
    let config = Config { uplink: Some(40_000), ..world.session.config().clone() };
    world.session.reconfigure(config, world.now);
    per_second(&mut world);
    let after = per_second(&mut world);
    assert!(after < 44_000, "{after} bytes with a limit of 40,000");
}

/// S-46: messages that wait for the uplink leave on a timer of the session, without any datagram from a player.
#[test]
fn waiting_messages_leave_without_received_datagrams() {
    let mut world = world_with_players(Config { uplink: Some(4_000), ..Config::default() }, 2);
    for number in 0..12 {
        world.send(0, &[&[0xCE, 0xEE, number][..], &[7; 100]].concat());
    }
    world.run(Duration::from_millis(60));
    let (start, mut now, mut buffer) = (world.now, world.now, [0; 2048]);
    let mut numbers = BTreeSet::new();
    let mut record = |datagram: &[u8]| {
        numbers.extend(
            datagram.windows(4).filter(|part| part[..2] == [0xCE, 0xEE] && part[3] == 7).map(|part| part[2]),
        );
        numbers.len()
    };
    let mut sent = world.sent.iter().map(|(_, _, datagram)| record(datagram)).last().unwrap_or(0);
    assert!(sent < 6, "{sent} messages left at once");
    while sent < 12 {
        now = world.session.next_timeout().expect("messages wait").max(now);
        assert!(now < start + Duration::from_millis(500), "only {sent} messages have left");
        world.session.handle_timeout(now);
        while let Some(transmit) = world.session.poll_transmit(&mut buffer, now) {
            cipher::decrypt(&mut buffer[..transmit.len]);
            sent = record(&buffer[..transmit.len]);
        }
    }
}

/// S-51, S-61: the score of a departed player ends with its round.
#[test]
fn stored_score_ends_with_its_round() {
    let mut world = world_with_players(Config::default(), 2);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.send(0, &[0x13]);
    world.send(0, &ship(0, 2, 0x3FFF_FFFF));
    world.run(SECOND);
    let score = |world: &TestWorld| {
        let player = world.session.players().find(|player| player.name == "Player 0");
        player.expect("the player is there").score.deaths
    };
    assert_eq!(score(&world), 1);
    world.leave(0);
    world.run(16 * SECOND);
    world.session.restart(world.now);
    world.reconnect(0);
    world.run(2 * SECOND);
    assert_eq!(score(&world), 0, "a new round begins without scores");
}
