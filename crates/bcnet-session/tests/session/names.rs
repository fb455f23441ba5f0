//! Names before join events (S-28), and the round trips of a join (S-29).

use std::time::Duration;

use bcnet_lab::{Faults, Rng};
use bcnet_session::{Anomaly, Checksums, Config, Manifest};
use bcnet_transport::wire::BootReason;
use bcnet_transport::{LeaveReason, Time};

use crate::join::join_event;
use crate::play::world_with_players;
use crate::vectors::hex;
use crate::world::{TICK, TestClient, TestWorld, all_networks};

const SECOND: Duration = Duration::from_secs(1);
/// The round-trip time of a [`TestWorld`] without faults.
const ROUND_TRIP: Duration = Duration::from_millis(40);

/// S-03, S-31: each client gets every other player's name before any message that names that player.
#[test]
fn names_arrive_before_join_events() {
    let mut world = TestWorld::new(Config::default());
    for name in ["Kirk", "Spock", "Uhura", "Sulu"] {
        world.connect(name, "");
    }
    world.run(3 * SECOND);
    check_names_before_join_events(&world, 4);
}

/// S-28: the order holds on a bad network, too.
#[test]
fn names_arrive_before_join_events_on_a_bad_network() {
    for seed in 1..=60 {
        let faults = Faults {
            loss: 0.3,
            duplicate: 0.1,
            reorder: 0.2,
            reorder_by: Duration::from_millis(150),
            delay: Duration::from_millis(40),
            jitter: Duration::from_millis(30),
            ..Faults::default()
        };
        let mut world = TestWorld::with_faults(Config::default(), faults, seed * 1000);
        for name in ["Kirk", "Spock", "Uhura"] {
            world.connect(name, "");
            world.run(SECOND / 3);
        }
        world.run_until(60 * SECOND, |world| world.session.status(world.now).in_game == 3);
        world.run(20 * SECOND);
        check_names_before_join_events(&world, 3);
    }
}

fn check_names_before_join_events(world: &TestWorld, players: usize) {
    for client in &world.clients {
        for peer in world.clients.iter().map(|other| other.client.id()) {
            let event = join_event(peer.0);
            let at = client.received.iter().position(|(_, payload)| *payload == event);
            let at = at.unwrap_or_else(|| panic!("{} got no join event of {peer}", client.name));
            let identity = client.identities.iter().find(|(named, ..)| *named == peer);
            let (_, _, before) = identity.unwrap_or_else(|| panic!("{} has no name for {peer}", client.name));
            assert!(*before <= at, "{} got the join event of {peer} before the name", client.name);
            let count = client.received.iter().filter(|(_, payload)| *payload == event).count();
            assert_eq!(count, 1, "{} got {count} join events of {peer}", client.name);
        }
    }
    assert_eq!(world.session.status(world.now).in_game, players);
}

/// S-29: a join takes eight round trips: one for the answer, one for admission, five for the files, one to enter.
///
/// No step waits for a timer or for other players. Trusted clients need no proof.
#[test]
fn join_takes_eight_round_trips() {
    for (together, trusted, trips) in
        [(1, vec![], 8), (8, vec![], 8), (1, all_networks(), 7), (8, all_networks(), 7)]
    {
        let mut world = TestWorld::new(Config { player_limit: 16, trusted, ..Config::default() });
        for group in 0..2 {
            let start = world.now + TICK;
            for n in 0..together {
                world.connect(&format!("Player {group}.{n}"), "");
            }
            world.run(SECOND);
            for client in &world.clients[world.clients.len() - together..] {
                let entered = first_received(client, &join_event(client.client.id().0))
                    .expect("the client is in the game");
                assert_eq!(entered.since(start), trips * ROUND_TRIP, "{} of {together}", client.name);
            }
        }
    }
}

/// S-24: a client is booted as soon as it has acknowledged the reason.
#[test]
fn refusal_takes_one_round_trip() {
    let strict = Checksums::Strict(vec![Manifest::default()]);
    let mut world = TestWorld::new(Config { checksums: strict, ..Config::default() });
    let modder = world.connect("Modder", "");
    let gone = |world: &TestWorld| world.clients[modder].disconnects.first().copied();
    world.run_until(SECOND, |world| gone(world).is_some());
    let (refused_at, refusal) = world.clients[modder].received.last().expect("a reason");
    assert_eq!(refusal[0], 0x22);
    // The client delays its ACK for a while (T-60).
    let ack_delay = bcnet_transport::Config::default().ack_delay;
    assert_eq!(world.now.since(*refused_at), ROUND_TRIP + ack_delay);
    assert_eq!(gone(&world), Some((world.id(modder), LeaveReason::Booted(BootReason::KICKED))));
}

/// S-28: a player that acknowledges nothing delays no other player.
///
/// It gets all messages in order once it is back.
#[test]
fn unreachable_player_delays_no_one_and_gets_all_messages() {
    let mut world = world_with_players(Config::default(), 3);
    world.clients[0].drops_incoming = true;
    let start = world.now + TICK;
    let late = world.join("Late");
    let id = world.id(late);
    world.run(ROUND_TRIP);
    for at in [1, 2, late] {
        let announced = first_received(&world.clients[at], &join_event(id.0)).expect("a join event");
        assert_eq!(announced.since(start), 8 * ROUND_TRIP, "{at}");
    }
    let chat = |from: u8| [&[0x2C, from, 0, 0, 0, 2, 0][..], b"hi"].concat();
    world.send(late, &chat(id.0));
    world.send(1, &chat(3));
    world.run(3 * SECOND);
    assert!(first_received(&world.clients[1], &chat(id.0)).is_some(), "the others are not delayed");
    world.leave_and_wait(&[late]);
    world.run(SECOND);
    assert_eq!(world.take_received(0), [] as [Vec<u8>; 0]);
    world.clients[0].drops_incoming = false;
    world.run(10 * SECOND);
    let (_, name, before) = world.clients[0].identities.last().expect("a name").clone();
    assert_eq!((name.as_str(), before), ("Late", 0), "the name comes first");
    let left = hex("17 66080000 05000600 00000000 00000000");
    let gone = [&[0x18, 4, 0][..], b"Late"].concat();
    let score = [&[0x37, id.0][..], &[0; 15]].concat();
    let mut chats = [chat(id.0), chat(3)];
    let received = world.take_received(0);
    let mut received_chats = [received[2].clone(), received[3].clone()];
    chats.sort();
    received_chats.sort();
    assert_eq!(received_chats, chats);
    assert_eq!(
        [&received[..2], &received[4..]].concat(),
        [score, join_event(id.0), [&left[..], &[id.0]].concat(), gone]
    );
}

/// S-28: on a lossy network with outages, every client gets a player's name before any join event of it.
#[test]
fn names_arrive_before_join_events_after_an_outage() {
    for seed in 1..=40 {
        let mut rng = Rng::new(seed);
        let faults = Faults { loss: 0.15, delay: Duration::from_millis(30), ..Faults::default() };
        let mut world = TestWorld::with_faults(Config::default(), faults, seed * 1000);
        for name in ["Kirk", "Spock", "Uhura", "Sulu", "Scott"] {
            world.connect(name, "");
            for client in &mut world.clients {
                (client.drops_incoming, client.drops_outgoing) = (rng.chance(0.3), rng.chance(0.1));
            }
            world.run(Duration::from_millis(rng.below(1500)));
        }
        for client in &mut world.clients {
            (client.drops_incoming, client.drops_outgoing) = (false, false);
        }
        world.run_until(60 * SECOND, |world| world.session.status(world.now).in_game == 5);
        world.run(20 * SECOND);
        check_names_before_join_events(&world, 5);
    }
}

/// S-28: clients do not wait for changes of a name that they know already.
#[test]
fn constant_renaming_delays_no_one() {
    let mut world = world_with_players(Config::default(), 2);
    let start = world.now + TICK;
    let late = world.connect("Late", "");
    for n in 0..100 {
        world.rename(0, &format!("Kirk {n}"));
        world.tick();
    }
    let entered = first_received(&world.clients[late], &join_event(4)).expect("the client is in the game");
    assert_eq!(entered.since(start), 8 * ROUND_TRIP);
}

/// S-54: the limits of a send queue also apply to messages that wait for a name.
///
/// Messages above the limit are dropped for that player, and no player is booted.
#[test]
fn held_back_messages_are_limited() {
    let transport =
        bcnet_transport::Config { max_queued_bytes: 20_000, ..bcnet_transport::Config::default() };
    let mut world = world_with_players(Config { transport, ..Config::default() }, 2);
    world.clients[0].drops_incoming = true;
    world.join("Late");
    for n in 0..40 {
        world.send(1, &[&[0xCD, n][..], &[0; 500]].concat());
        world.run(SECOND / 3);
    }
    assert_eq!(world.session.status(world.now).in_game, 3);
    let dropped = world.session.counters().anomalies.count(Anomaly::Backlog);
    assert!((1..40).contains(&dropped), "{dropped}");
    world.clients[0].drops_incoming = false;
    world.run(10 * SECOND);
    let received: Vec<u8> = world
        .take_received(0)
        .iter()
        .filter(|payload| payload[0] == 0xCD)
        .map(|payload| payload[1])
        .collect();
    assert!(received.is_sorted() && received.len() as u64 == 40 - dropped, "{received:?}");
}

/// Returns the time at which a client first received this payload.
fn first_received(client: &TestClient, expected: &[u8]) -> Option<Time> {
    client.received.iter().find(|(_, payload)| payload == expected).map(|(at, _)| *at)
}
