//! Attacks by players and others: the effects are limited and counted, and players hardly notice.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::{Anomaly, Config, Event};
use bcnet_transport::{RejectCause, Time, cipher};

use crate::play::{ship, world_with_players};
use crate::vectors::bytes;
use crate::world::TestWorld;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the longest delay of messages from player 0 to player 1 during an attack of ten seconds.
///
/// `attack` is called 200 times per second. Without an attack the delay is 45 ms: two times 20 ms, and a tick.
pub(crate) fn max_delay_during(
    world: &mut TestWorld,
    mut attack: impl FnMut(&mut TestWorld, u32),
) -> Duration {
    world.take_received(1);
    let mut sent: Vec<Time> = Vec::new();
    for step in 0..2000_u32 {
        attack(world, step);
        if step % 20 == 0 {
            let number = u32::try_from(sent.len()).expect("a small number").to_le_bytes();
            world.send(0, &[&TEST_PAYLOAD[..], &number].concat());
            sent.push(world.now);
        }
        world.tick();
        world.sent_elsewhere.clear();
        world.sent.clear();
    }
    world.run(SECOND);
    let received = world.clients[1].received.iter().filter(|(_, payload)| payload.starts_with(&TEST_PAYLOAD));
    let arrived: Vec<Time> = received.map(|(at, _)| *at).collect();
    assert_eq!(arrived.len(), sent.len(), "every message arrives once");
    let longest = arrived.iter().zip(&sent).map(|(arrived, sent)| arrived.since(*sent)).max();
    longest.expect("messages were sent")
}

/// The beginning of each message of the test.
const TEST_PAYLOAD: [u8; 8] = *b"\xCDa line ";
pub(crate) const BASELINE_DELAY: Duration = Duration::from_millis(50);

#[test]
fn delay_without_an_attack_is_the_baseline() {
    let longest = max_delay_during(&mut world_with_players(Config::default(), 2), |_, _| {});
    assert!(longest <= BASELINE_DELAY, "{longest:?}");
}

/// S-07
#[test]
fn query_flood_is_rate_limited() {
    let mut world = world_with_players(Config::default(), 2);
    let one = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), 999);
    let longest = max_delay_during(&mut world, |world, step| {
        for n in 0..50 {
            world.inject(one, b"\\status\\");
            // No addresses of the local machine, because others cannot spoof those.
            let spoofed = Ipv4Addr::from((step * 50 + n).wrapping_mul(2_654_435_761) | 1 << 31);
            world.inject(SocketAddrV4::new(spoofed, 1), b"\\status\\xserverquery");
        }
    });
    assert!(longest <= BASELINE_DELAY, "{longest:?}");
    let counters = world.session.counters();
    assert_eq!(counters.queries, 200_000);
    // 15,000 bytes per second in replies of 300 bytes, and 10,000 at once.
    assert!((400..=700).contains(&counters.queries_answered), "{}", counters.queries_answered);
    assert_eq!(counters.queries_answered + counters.queries_limited, counters.queries);
}

/// S-07: in five seconds, a network gets 2,000 bytes per second, and 4,000 at once.
#[test]
fn query_quota_covers_a_whole_network() {
    let mut world = world_with_players(Config::default(), 2);
    let mut bytes = 0;
    for step in 0..1000_u32 {
        let from = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, step.to_le_bytes()[0]), 7);
        world.inject(from, b"\\status\\");
        world.tick();
        bytes += world.sent_elsewhere.drain(..).map(|(_, reply)| reply.len()).sum::<usize>();
    }
    assert!((10_000..=15_000).contains(&bytes), "{bytes} in five seconds");
}

fn outside_address(n: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, n), 5)
}

/// T-06
#[test]
fn malformed_datagrams_do_not_delay_players() {
    let mut world = world_with_players(Config::default(), 2);
    let mut rng = Rng::new(3);
    let longest = max_delay_during(&mut world, |world, _| {
        for n in 0..50_u8 {
            let mut bytes = vec![0; rng.index(1400)];
            rng.fill(&mut bytes);
            world.inject(outside_address(n), &bytes);
        }
    });
    assert!(longest <= BASELINE_DELAY, "{longest:?}");
    let counters = world.session.counters();
    let counted = world.session.rejected().total() + counters.queries + counters.ignored;
    assert!(counted >= 99_000, "{counted}");
}

/// T-58: datagrams with the ids of players, from other addresses.
#[test]
fn spoofed_ids_do_not_delay_players() {
    let mut world = world_with_players(Config::default(), 2);
    let chat = bytes("ex-chat");
    let longest = max_delay_during(&mut world, |world, _| {
        for n in 0..50_u8 {
            let mut spoofed = [&[2 + n % 2, 1, 0x32, 0x11, 0x80, n, 0][..], &chat].concat();
            cipher::encrypt(&mut spoofed);
            world.inject(outside_address(n), &spoofed);
        }
    });
    assert!(longest <= BASELINE_DELAY, "{longest:?}");
    assert_eq!(world.session.rejected().count(RejectCause::WrongAddress), 100_000);
    assert!(world.events.iter().all(|event| event.name() != "chat"));
}

/// T-06: datagrams of no bytes, one byte and two bytes.
#[test]
fn empty_datagrams_do_not_delay_players() {
    let mut world = world_with_players(Config::default(), 2);
    let (player, events) = (world.clients[0].address, world.events.len());
    let longest = max_delay_during(&mut world, |world, step| {
        for n in 0..50_u8 {
            let bytes = [&[][..], &[2], &[2, 0], b"\\"][usize::from(n % 4)];
            world.inject(if step % 2 == 0 { outside_address(n) } else { player }, bytes);
        }
    });
    assert!(longest <= BASELINE_DELAY, "{longest:?}");
    assert_eq!(world.session.status(world.now).in_game, 2);
    assert_eq!(world.events.len(), events, "no event is reported");
}

/// T-06, T-67, T-69: random sizes, fragments and sequence numbers in a player's datagrams.
#[test]
fn hostile_sizes_and_fragments_do_not_delay_players() {
    let mut world = world_with_players(Config::default(), 3);
    let (hostile, id) = (world.clients[2].address, world.id(2).0);
    let mut rng = Rng::new(17);
    let longest = max_delay_during(&mut world, |world, _| {
        for _ in 0..20 {
            let mut datagram = vec![0; 7 + rng.index(500)];
            rng.fill(&mut datagram);
            datagram[..3].copy_from_slice(&[id, 1, 0x32]);
            if rng.chance(0.8) {
                // A true size, so that the session reads fragments and sequence numbers.
                let [low, high] = u16::try_from(datagram.len() - 2).expect("a small number").to_le_bytes();
                datagram[3] = low;
                datagram[4] = datagram[4] & 0xE0 | high;
            }
            cipher::encrypt(&mut datagram);
            world.inject(hostile, &datagram);
        }
    });
    assert!(longest <= 2 * BASELINE_DELAY, "{longest:?}");
    assert_eq!(world.session.status(world.now).in_game, 3, "{:?}", world.events.last());
}

/// S-40: control characters, terminal escape sequences, wrong lengths.
#[test]
fn hostile_chat_does_not_delay_players() {
    let mut world = world_with_players(Config::default(), 3);
    let mut rng = Rng::new(5);
    let longest = max_delay_during(&mut world, |world, _| {
        let mut text = vec![0; rng.index(600)];
        rng.fill(&mut text);
        text.extend_from_slice(b"\x1b[2J\r\n\x00\x07\x9b31m");
        let claimed = if rng.chance(0.2) { rng.index(60_000) } else { text.len() };
        let [low, high] = u16::try_from(claimed).expect("a small number").to_le_bytes();
        world.send(2, &[&[0x2C, 1, 0, 0, 0, low, high][..], &text].concat());
    });
    assert!(longest <= 2 * BASELINE_DELAY, "{longest:?}");
    let anomalies = world.session.counters().anomalies;
    assert!(
        anomalies.count(Anomaly::BadChat) > 100 && anomalies.count(Anomaly::Flood) > 100,
        "{anomalies:?}"
    );
    let chats = world.events.iter().filter_map(|event| match event {
        Event::Chat { text, .. } => Some(text.clone()),
        _ => None,
    });
    let chats: Vec<String> = chats.collect();
    // Ten lines at once and three per second.
    assert!((10..=45).contains(&chats.len()), "{}", chats.len());
    assert!(chats.iter().all(|text| !text.contains(char::is_control)));
    let copies: Vec<Vec<u8>> =
        world.take_received(1).into_iter().filter(|payload| payload.first() == Some(&0x2C)).collect();
    assert_eq!(copies.len(), chats.len());
    assert!(copies.iter().flat_map(|copy| &copy[7..]).all(|byte| *byte >= b' '));
}

/// S-33, S-42: a player that sends far too many messages.
#[test]
fn flooding_player_is_rate_limited() {
    let mut world = world_with_players(Config::default(), 3);
    let mut big = vec![0xEE; 1500];
    big[0] = 0x99;
    let longest = max_delay_during(&mut world, |world, step| {
        for _ in 0..4 {
            let _ = world.clients[2].client.send(
                if step % 2 == 0 { &big } else { b"\x2C\x02\x00\x00\x00\x01\x00!" },
                bcnet_transport::DeliveryMode::Reliable,
                world.now,
            );
        }
    });
    assert!(longest <= 2 * BASELINE_DELAY, "{longest:?}");
    let counters = world.session.counters();
    assert!(counters.anomalies.count(Anomaly::Flood) > 1000, "{counters:?}");
    let to_player = world.session.peer_counters(world.id(1)).expect("a player").bytes_out;
    // 64 KiB per second, and four times that at once.
    assert!(to_player < 1_100_000, "{to_player}");
    let reported = world.events.iter().filter(|event| matches!(event, Event::Anomaly { .. })).count();
    assert!(reported < 30, "{reported}");
}

/// S-32: a player's payloads of all sizes with random content.
#[test]
fn arbitrary_player_payloads_are_harmless() {
    let mut world = world_with_players(Config { relay_rate: 100 << 20, ..Config::default() }, 2);
    let hostile = world.join("Hostile");
    world.send(hostile, &ship(2, 4, 0x4007_FFFF));
    world.run(SECOND);
    let mut rng = Rng::new(99);
    let longest = max_delay_during(&mut world, |world, step| {
        let opcode = step.to_le_bytes()[0];
        let len = if step % 50 == 0 { rng.index(8000) } else { rng.index(60) };
        let mut payload = vec![0; len];
        rng.fill(&mut payload);
        if let Some(first) = payload.first_mut() {
            *first = opcode;
        }
        if rng.chance(0.5)
            && let Some(id) = payload.get_mut(1..5)
        {
            id.copy_from_slice(&0x4007_FFFF_u32.to_le_bytes());
        }
        world.send(hostile, &payload);
    });
    assert!(longest <= 2 * BASELINE_DELAY, "{longest:?}");
    assert!(world.session.counters().anomalies.total() > 300);
    assert_eq!(world.session.status(world.now).in_game, 3);
}

/// S-03: a player that changes its name all the time, to names of all lengths.
#[test]
fn hostile_names_do_not_delay_players() {
    let mut world = world_with_players(Config::default(), 3);
    let before = world.session.peer_counters(world.id(1)).expect("a player").bytes_out;
    let longest = max_delay_during(&mut world, |world, step| {
        let (now, client) = (world.now, &mut world.clients[2]);
        let name = "\u{1b}x".repeat(1 + step as usize % 300);
        client.client.rename(&name, now).expect("the player has joined");
    });
    assert!(longest <= 2 * BASELINE_DELAY, "{longest:?}");
    let bytes = world.session.peer_counters(world.id(1)).expect("a player").bytes_out - before;
    assert!(bytes < 30_000, "{bytes} bytes to a player in eleven seconds");
}

/// S-03, T-71: players with names of any length and content enter the game, and all clients have the same names.
#[test]
fn oversized_and_unprintable_names_are_cleaned() {
    let mut world = world_with_players(Config::default(), 1);
    world.join(&"x".repeat(2000));
    world.join("a\u{1b}[31m\r\n\\b\u{202E}");
    world.join("\u{200B} \u{3164}");
    world.run(SECOND);
    let names: Vec<String> = world.session.players().map(|player| player.name).collect();
    let expected = ["Player 0", &"x".repeat(100), "a[31m  \\b", "Player 5"];
    assert_eq!(names, expected);
    for client in &world.clients {
        let received: Vec<&str> = client.client.players().map(|(_, player)| player.name.as_str()).collect();
        assert_eq!(received, expected);
    }
    let reported =
        world.events.iter().filter(|event| matches!(event, Event::Anomaly { kind: Anomaly::BadName, .. }));
    assert_eq!(reported.count(), 2, "the client itself has truncated the long name");
}

/// The number of events is limited if they are not polled.
#[test]
fn unpolled_events_are_counted_and_dropped() {
    let mut world = world_with_players(Config::default(), 1);
    let locked = Config { password: Some("engage".into()), ..world.session.config().clone() };
    world.session.reconfigure(locked, world.now);
    let mut connect = bytes("dg-connect");
    cipher::encrypt(&mut connect);
    for n in 0..20_000_u32 {
        let from = SocketAddrV4::new(Ipv4Addr::from(0x0C00_0000 + n), 1);
        world.now = world.now + Duration::from_millis(200);
        world.inject(from, &connect);
        world.session.handle_timeout(world.now);
        let mut buffer = [0; 2048];
        while world.session.poll_transmit(&mut buffer, world.now).is_some() {}
    }
    let waiting = std::iter::from_fn(|| world.session.poll_event()).count();
    assert_eq!(waiting, 4096);
    assert!(world.session.counters().events_dropped > 1_000);
}
