//! Moderation: mute, kick with a reason, whitelist.

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_session::{Config, Event, Network, PlayerState};
use bcnet_transport::LeaveReason;
use bcnet_transport::wire::{BootReason, PeerId};

use crate::play::world_with_players;
use crate::vectors::bytes;
use crate::world::TestWorld;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the lines of chat that a player has received since the last call.
fn take_chat(world: &mut TestWorld, player: usize) -> Vec<String> {
    world.take_received(player).iter().map(|chat| String::from_utf8_lossy(&chat[7..]).into_owned()).collect()
}

fn chat_event_count(world: &TestWorld) -> usize {
    world.events.iter().filter(|event| matches!(event, Event::Chat { .. })).count()
}

/// S-44
#[test]
fn muted_player_is_informed_and_not_relayed() {
    let mut world = world_with_players(Config::default(), 2);
    let muted = world.id(0);
    assert!(world.session.mute(muted));
    assert!(!world.session.mute(PeerId(99)), "no such player");
    let line = bytes("chat-real");
    for _ in 0..3 {
        world.send(0, &line);
        world.run(SECOND);
    }
    assert_eq!(
        take_chat(&mut world, 0),
        ["[server] You are muted: other players do not see your chat."],
        "once"
    );
    assert_eq!((take_chat(&mut world, 1).len(), chat_event_count(&world)), (0, 0));
    world.send(1, &line);
    world.run(SECOND);
    assert_eq!(take_chat(&mut world, 1).len(), 1, "chat of others is relayed");
    assert!(world.session.players().any(|player| player.id == muted && player.muted));
    // The player rejoins and is still muted. After the unmute, its chat is relayed.
    world.reconnect(0);
    world.run(20 * SECOND);
    let back = world.session.players().find(|player| player.name == "Player 0").expect("the player is back");
    assert!(back.muted && back.state == PlayerState::InGame);
    take_chat(&mut world, 1);
    assert!(world.session.unmute(back.id));
    assert!(!world.session.unmute(back.id), "the player is not muted any more");
    world.send(0, &line);
    world.run(SECOND);
    assert_eq!(take_chat(&mut world, 1).len(), 1);
}

/// S-42
#[test]
fn chat_flood_is_explained_once() {
    let mut world = world_with_players(Config { chat_rate: 1, ..Config::default() }, 2);
    for _ in 0..15 {
        world.send(0, &bytes("chat-real"));
    }
    world.run(SECOND / 2);
    assert_eq!(take_chat(&mut world, 1).len(), 10);
    let received = take_chat(&mut world, 0);
    assert_eq!(received.len(), 11, "ten lines and one notice");
    assert_eq!(received.iter().filter(|line| line.contains("too fast")).count(), 1);
}

/// S-55
#[test]
fn kicked_player_receives_the_reason_first() {
    let mut world = world_with_players(Config::default(), 2);
    let id = world.id(0);
    assert!(world.session.kick_with_reason(id, "No ramming", world.now));
    let states: Vec<_> = world.session.players().map(|player| player.state).collect();
    assert_eq!(states, [PlayerState::KickPending, PlayerState::InGame]);
    world.send(0, &bytes("chat-real"));
    world.run(SECOND);
    assert_eq!(take_chat(&mut world, 0), ["[server] No ramming"]);
    assert_eq!(world.clients[0].disconnects, [(id, LeaveReason::Booted(BootReason::KICKED))]);
    assert_eq!(chat_event_count(&world), 0, "chat of a kicked player is not relayed");
    assert!(!world.session.kick_with_reason(id, "again", world.now));
    // The client is refused for a while.
    world.reconnect(0);
    world.run(SECOND);
    assert_eq!(world.clients[0].disconnects, [(PeerId::UNASSIGNED, LeaveReason::Booted(BootReason::KICKED))]);
}

/// S-55: a client that acknowledges nothing is booted too, even long after the handshake timeout.
#[test]
fn kick_happens_after_three_seconds_without_ack() {
    let mut world = world_with_players(Config::default(), 2);
    for _ in 0..20 {
        world.run(5 * SECOND);
    }
    world.clients[0].drops_outgoing = true;
    assert!(world.session.kick_with_reason(world.id(0), "No ramming", world.now));
    world.run(2 * SECOND);
    assert_eq!(world.session.players().count(), 2);
    world.run(2 * SECOND);
    assert_eq!(world.session.players().count(), 1);
    let left = world.events.iter().rev().find_map(|event| match event {
        Event::Left { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(left, Some(LeaveReason::Booted(BootReason::KICKED)));
}

/// S-15
#[test]
fn whitelist_limits_joins_but_kicks_no_player() {
    let listing = |whitelist: Vec<Network>| Config { whitelist, ..Config::default() };
    let mut world = world_with_players(Config::default(), 1);
    world.session.reconfigure(listing(vec![Network::containing(Ipv4Addr::new(192, 0, 2, 0), 24)]), world.now);
    let stranger = world.connect("Stranger", "");
    world.run(3 * SECOND);
    assert_eq!(
        world.clients[stranger].disconnects,
        [(PeerId::UNASSIGNED, LeaveReason::Booted(BootReason::DEFAULT))]
    );
    assert_eq!(world.session.status(world.now).in_game, 1, "players in the game stay");
    let address = *world.clients[stranger].address.ip();
    world.session.reconfigure(listing(vec![Network::containing(address, 32)]), world.now);
    world.reconnect(stranger);
    world.run(3 * SECOND);
    assert_eq!(world.session.status(world.now).in_game, 2);
    world.session.reconfigure(listing(Vec::new()), world.now);
    world.connect("Anyone", "");
    world.run(3 * SECOND);
    assert_eq!(world.session.status(world.now).in_game, 3);
    // Trusted networks are admitted in spite of the whitelist.
    let neighbours = vec![Network::containing(Ipv4Addr::new(60, 0, 0, 0), 8)];
    let strangers = vec![Network::containing(Ipv4Addr::new(192, 0, 2, 0), 24)];
    let mut trusting =
        TestWorld::new(Config { trusted: neighbours, whitelist: strangers, ..Config::default() });
    trusting.connect("Neighbour", "");
    trusting.run(3 * SECOND);
    assert_eq!(trusting.session.status(trusting.now).in_game, 1);
}
