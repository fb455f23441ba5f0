//! Attacks on admission: no player is disconnected, kept out or flooded.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::{Config, Event, JoinRefusal, Network, PlayerState, client};
use bcnet_transport::wire::BootReason;
use bcnet_transport::{IdPolicy, LeaveReason, ProofPolicy, cipher};

use crate::hostile::{BASELINE_DELAY, max_delay_during};
use crate::play::world_with_players;
use crate::world::TestWorld;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Makes the `n`th datagram of an attack.
type DatagramMaker = fn(u32) -> Vec<u8>;
/// Returns the address of the `n`th player.
type PlayerAddress = fn(u16) -> SocketAddrV4;

/// The delay that an attack may add to a message.
const MARGIN: Duration = Duration::from_millis(20);

/// Returns the captured connect request, with this nonce.
pub(crate) fn connect_request(nonce: u32) -> Vec<u8> {
    let mut bytes = [0xFF, 1, 0x03, 0x0F, 0xC0, 0, 0, 10, 10, 10, 239, 0, 0, 0, 0, 0, 0].to_vec();
    bytes[11..15].copy_from_slice(&nonce.to_le_bytes());
    cipher::encrypt(&mut bytes);
    bytes
}

/// Returns the datagram of a client that has got an id and a cookie: the ACKs, then `more`.
fn ack_datagram(id: u8, cookie: u16, more: &[u8]) -> Vec<u8> {
    let [low, high] = cookie.to_le_bytes();
    let count = if more.is_empty() { 2 } else { 3 };
    let mut bytes = [&[id, count, 0x01, 0, 0, 0x02, 0x01, low, high, 0][..], more].concat();
    cipher::encrypt(&mut bytes);
    bytes
}

/// Returns an identity as control message 1.
fn identity_message(id: u8) -> Vec<u8> {
    [&[0x00, 0x0E, 0xC0, 1, 0, id, 10, 0, 0, 1][..], &[0x51, 0, 0, 0]].concat()
}

pub(crate) fn forged_address(n: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(n), 22101)
}

/// Returns spoofed addresses of 65,536 networks, in turns.
pub(crate) fn network_address(n: u32) -> SocketAddrV4 {
    forged_address(0x0B00_0001 + ((n % 0x1_0000) << 8))
}

pub(crate) fn strict_config() -> Config {
    let mut config = Config::default();
    config.transport.proof_policy = ProofPolicy::Ack;
    config
}

fn check_unharmed(world: &TestWorld, players: usize) {
    assert_eq!(world.session.status(world.now).in_game, players);
    assert!(!world.event_names().contains(&"left"), "{:?}", world.events.last());
}

/// T-53, T-75, S-13: 20,000 requests per second from one address, each with a new nonce.
#[test]
fn changing_nonces_do_not_delay_players() {
    for config in [Config::default(), strict_config()] {
        let mut world = world_with_players(config, 2);
        let before = world.session.peer_counters(world.id(1)).expect("a player").bytes_out;
        let longest = max_delay_during(&mut world, |world, step| {
            for n in 0..100 {
                world.inject(forged_address(0x0B00_0001), &connect_request(step * 100 + n));
            }
        });
        assert!(longest <= BASELINE_DELAY + MARGIN, "{longest:?}");
        check_unharmed(&world, 2);
        // A hundred messages of twelve bytes, and their ACKs.
        let bytes = world.session.peer_counters(world.id(1)).expect("a player").bytes_out - before;
        assert!(bytes < 4_000, "{bytes} bytes to a player in eleven seconds");
        assert_eq!(world.session.players().count(), 2);
    }
}

/// T-53: spoofed requests from each player's address and all its ports, with and without the right password.
#[test]
fn forged_requests_do_not_disconnect_players() {
    let locked = Config { password: Some("engage".into()), ..Config::default() };
    for (is_locked, config) in [(false, Config::default()), (true, locked)] {
        let mut world = world_with_players(Config { password: None, ..config.clone() }, 3);
        if is_locked {
            let config = Config { password: config.password.clone(), ..world.session.config().clone() };
            world.session.reconfigure(config, world.now);
        }
        let victims: Vec<SocketAddrV4> = world.clients.iter().map(|client| client.address).collect();
        let longest = max_delay_during(&mut world, |world, step| {
            for victim in &victims {
                world.inject(*victim, &connect_request(1000 + step));
                for n in 0..33 {
                    let port = u16::try_from((step * 33 + n) % 0x1_0000).expect("a port");
                    world.inject(SocketAddrV4::new(*victim.ip(), port), &connect_request(step));
                }
            }
        });
        assert!(longest <= BASELINE_DELAY + MARGIN, "{longest:?}");
        check_unharmed(&world, 3);
        world.run(60 * SECOND);
        check_unharmed(&world, 3);
    }
}

/// T-77: an idle player is probed at most once in two seconds, and a message for it waits for the probe.
#[test]
fn forged_requests_delay_an_idle_player_by_one_rtt() {
    let mut world = world_with_players(strict_config(), 2);
    let victim = world.clients[1].address;
    let message = b"\xCDa line";
    for round in 0..20_u32 {
        world.run(3 * SECOND);
        world.take_received(1);
        for n in 0..100 {
            world.inject(victim, &connect_request(1000 * round + n));
        }
        world.send(0, message);
        let sent = world.now;
        world.run_until(SECOND, |world| {
            world.clients[1].received.iter().any(|(_, payload)| payload == message)
        });
        let delay = world.now.since(sent);
        assert!(delay <= BASELINE_DELAY + 2 * BASELINE_DELAY, "{delay:?}");
    }
    check_unharmed(&world, 2);
}

/// T-53: a player that restarts can rejoin while an attacker spoofs requests from its address.
#[test]
fn restarted_player_rejoins_during_an_attack() {
    let mut world = world_with_players(strict_config(), 2);
    let victim = world.clients[1].address;
    world.reconnect(1);
    let (start, mut in_game) = (world.now, false);
    for step in 0..2000 {
        world.inject(victim, &connect_request(step));
        world.tick();
        in_game |= step > 100 && world.is_in_game(1) && world.session.status(world.now).in_game == 2;
        if in_game {
            break;
        }
    }
    let rejoin_time = world.now.since(start);
    assert!(in_game && rejoin_time <= 10 * SECOND, "{rejoin_time:?}");
    assert_eq!(world.session.players().filter(|player| player.state == PlayerState::InGame).count(), 2);
}

/// T-75: unverified addresses never get more bytes than they sent, for each kind of datagram.
///
/// The players have long names, so that replies could be long.
#[test]
fn replies_never_amplify_unverified_datagrams() {
    let mut world = TestWorld::new(strict_config());
    for n in 0..7 {
        let name = format!("{n}{}", "x".repeat(99));
        world.join(&name);
    }
    let encrypted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        cipher::encrypt(&mut bytes);
        bytes
    };
    let kinds: [(&str, DatagramMaker); 5] = [
        ("requests", connect_request),
        ("one request, repeated", |_| connect_request(7)),
        ("guesses", |n| ack_datagram(2 + (n % 120).to_le_bytes()[0], 0x4000 + (n % 0x8000) as u16, &[])),
        ("names", |n| {
            ack_datagram(2 + (n % 120).to_le_bytes()[0], 0, &identity_message(2 + (n % 120).to_le_bytes()[0]))
        }),
        ("requests and names", |n| {
            if n % 4 == 0 { connect_request(n) } else { ack_datagram(9, 0, &identity_message(9)) }
        }),
    ];
    for (kind, make) in kinds {
        for addresses in [1, 16, 100_000] {
            world.sent_elsewhere.clear();
            let mut sent = 0;
            // In no tick do replies have more bytes than the datagrams, so they do not in any longer time either.
            let assert_not_amplified = |world: &mut TestWorld, sent: usize| {
                let replied: usize = world.sent_elsewhere.drain(..).map(|(_, bytes)| bytes.len()).sum();
                assert!(replied <= sent, "{kind} from {addresses} addresses: {replied} bytes for {sent}");
            };
            for n in 0..10_000_u32 {
                let bytes = make(n);
                sent += bytes.len();
                world.inject(forged_address(0x0B00_0001 + n % addresses), &bytes);
                if n % 5 == 0 {
                    world.tick();
                    assert_not_amplified(&mut world, std::mem::take(&mut sent));
                }
            }
            world.run(5 * SECOND);
            assert_not_amplified(&mut world, sent);
            world.sent.clear();
        }
    }
    for bytes in [
        &[0xFF, 1, 0x05, 0x0A, 0xC0, 1, 0, 0xFF, 10, 0, 0, 1][..],
        &[0xFF, 1, 0x02],
        &[0xFF, 1, 0x01, 0, 0, 2],
    ] {
        world.sent_elsewhere.clear();
        world.inject(forged_address(0x0C00_0001), &encrypted(bytes));
        world.run(20 * SECOND);
        let replied: usize = world.sent_elsewhere.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(replied <= bytes.len(), "{replied} bytes for {}", bytes.len());
    }
    assert_eq!(world.session.players().count(), 7);
}

/// T-76: spoofed addresses that send all messages of a client. Ids are assigned in order here, so they are known.
#[test]
fn forged_addresses_take_no_slot() {
    let mut world = TestWorld::new(strict_config());
    let mut number = 0x4000_u16;
    for n in 0..60_000_u32 {
        let from = forged_address(0x0B00_0001 + n);
        world.inject(from, &connect_request(n));
        for id in [2 + (n % 124).to_le_bytes()[0], 3, 4] {
            number = if number >= 0xBFFF { 0x4000 } else { number + 1 };
            world.inject(from, &ack_datagram(id, number, &identity_message(id)));
        }
        if n % 10 == 0 {
            world.tick();
            world.sent_elsewhere.clear();
            world.sent.clear();
            let slots = world.session.players().filter(|player| player.slot.is_some()).count();
            assert_eq!(slots, 0, "after {n} addresses");
        }
    }
    assert_eq!(world.session.players().count(), 0);
    let client = world.join("Honest");
    assert!(world.is_in_game(client));
}

/// T-76: the operator can require more proof without a restart.
#[test]
fn required_proof_can_be_reconfigured() {
    for (prove, players) in [(ProofPolicy::Id, 1), (ProofPolicy::Ack, 0)] {
        let mut config = Config::default();
        (config.transport.proof_policy, config.transport.id_policy) = (ProofPolicy::Id, IdPolicy::Sequential);
        let mut world = TestWorld::new(config.clone());
        config.transport.proof_policy = prove;
        world.session.reconfigure(config, world.now);
        let from = forged_address(0x0B00_0001);
        world.inject(from, &connect_request(7));
        world.inject(from, &ack_datagram(2, 0, &identity_message(2)));
        assert_eq!(world.session.players().count(), players, "{prove:?}");
    }
}

/// S-10: a client that is banned between the reply and its proof is not admitted.
#[test]
fn ban_applies_to_pending_admissions() {
    for (banned, players) in [(Ipv4Addr::new(9, 9, 9, 9), 1), (Ipv4Addr::new(11, 0, 0, 1), 0)] {
        let mut config = Config::default();
        (config.transport.proof_policy, config.transport.id_policy) = (ProofPolicy::Id, IdPolicy::Sequential);
        let mut world = TestWorld::new(config);
        let from = forged_address(0x0B00_0001);
        world.inject(from, &connect_request(7));
        world.session.set_bans(vec![Network::containing(banned, 24)], world.now);
        world.inject(from, &ack_datagram(2, 0, &identity_message(2)));
        assert_eq!(world.session.players().count(), players, "{banned}");
    }
}

/// S-11: a new or changed password also applies to clients that were answered before.
///
/// A password that stays the same changes nothing.
#[test]
fn new_password_applies_to_pending_admissions() {
    for (before, after, players) in [(None, None, 1), (None, Some("new"), 0), (Some(""), Some("new"), 0)] {
        let mut config = Config { password: before.map(Into::into), ..Config::default() };
        config.transport.id_policy = IdPolicy::Sequential;
        config.transport.proof_policy = ProofPolicy::Id;
        let mut world = TestWorld::new(config.clone());
        let from = forged_address(0x0B00_0001);
        world.inject(from, &connect_request(7));
        world.session.reconfigure(Config { password: after.map(Into::into), ..config }, world.now);
        world.inject(from, &ack_datagram(2, 0, &identity_message(2)));
        assert_eq!(world.session.players().count(), players, "{before:?} {after:?}");
    }
}

/// S-11, T-76: during an attack, an address that tries all cookies gets a reply only if the server has no password.
#[test]
fn guessed_cookies_do_not_bypass_the_password() {
    for (password, answered) in [(None, true), (Some("engage"), false)] {
        let mut world = TestWorld::new(Config { password: password.map(Into::into), ..strict_config() });
        // While there is no password, a client gets a reply and guesses a cookie. So the server detects an attack.
        let config = world.session.config().clone();
        world.session.reconfigure(Config { password: None, ..config.clone() }, world.now);
        world.inject(network_address(1), &connect_request(1));
        world.inject(network_address(1), &ack_datagram(0x7E, 0x4000, &[]));
        world.session.reconfigure(config, world.now);
        world.run(SECOND);
        world.sent_elsewhere.clear();
        let from = forged_address(0x0C00_0001);
        for number in 0x4000..0xC000 {
            world.inject(from, &ack_datagram(9, number, &identity_message(9)));
        }
        world.tick();
        assert_eq!(!world.sent_elsewhere.is_empty(), answered, "{password:?}");
    }
}

/// S-13: a player with a new port replaces its stale connection, even on a full server.
///
/// The old connection must have been silent for two and a half keepalive intervals. Clients from other addresses
/// replace no connection, and no other player is disconnected.
#[test]
fn player_on_a_new_port_replaces_its_stale_connection() {
    let house = |port| SocketAddrV4::new(Ipv4Addr::new(81, 2, 3, 4), port);
    let elsewhere = SocketAddrV4::new(Ipv4Addr::new(82, 2, 3, 4), 2000);
    let crowded = Config { players_per_address: Some(1), ..Config::default() };
    let full = Config { player_limit: 2, ..Config::default() };
    for (config, silence, from, players) in [
        (&full, 13, house(2000), 1),
        (&full, 12, house(2000), 0),
        (&full, 13, elsewhere, 0),
        (&crowded, 13, house(2000), 1),
        (&crowded, 12, house(2000), 0),
    ] {
        let mut world = TestWorld::new(config.clone());
        let [stale, other] = ["Stale", "Other"].map(|name| world.connect(name, ""));
        world.clients[stale].address = house(1000);
        world.run_until(5 * SECOND, |world| world.is_in_game(stale) && world.is_in_game(other));
        world.clients[stale].drops_outgoing = true;
        world.run(silence * SECOND - SECOND / 4);
        let returned = world.connect("Stale", "");
        world.clients[returned].address = from;
        world.run(SECOND / 2);
        assert_eq!(usize::from(world.is_in_game(returned)), players, "{silence} s, {from}");
        assert!(world.session.players().any(|player| player.name == "Other"));
        let is_player = |event: &&Event| matches!(event, Event::Left { name, .. } if !name.is_empty());
        assert_eq!(world.events.iter().filter(is_player).count(), players, "{silence} s, {from}");
    }
}

/// S-13: the limits do not affect a household or a LAN party, and trusted addresses have no limits.
#[test]
fn address_limits_spare_households_lans_and_trusted() {
    let house = |n: u16| SocketAddrV4::new(Ipv4Addr::new(81, 2, 3, 4), 1000 + n);
    let lan = |n: u16| SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 10 + n.to_le_bytes()[0]), 22101);
    let loopback = |n: u16| SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1000 + n);
    let cases: [(PlayerAddress, u16); 3] = [(house, 6), (lan, 8), (loopback, 8)];
    for (address, players) in cases {
        let mut world = TestWorld::new(Config::default());
        for n in 0..players {
            let at = world.connect(&format!("Player {n}"), "");
            world.clients[at].address = address(n);
        }
        world.run(3 * SECOND);
        assert_eq!(world.session.status(world.now).in_game, usize::from(players));
    }
    let limits = Config { players_per_address: Some(2), players_per_network: Some(3), ..Config::default() };
    let mut world = TestWorld::new(limits);
    for n in 0..8_u8 {
        let at = world.connect(&format!("Player {n}"), "");
        world.clients[at].address = SocketAddrV4::new(Ipv4Addr::new(81, 2, n / 4, 4), 1000 + u16::from(n));
    }
    world.run(3 * SECOND);
    assert_eq!(world.session.status(world.now).in_game, 3);
}

/// S-13: a proxy on this machine may forward forged requests from its addresses, so they are verified, too. The
/// limits do not apply to them.
#[test]
fn addresses_of_local_proxies_are_verified_without_limits() {
    let mut world = TestWorld::new(Config::default());
    let address = |n: u8| SocketAddrV4::new(Ipv4Addr::new(127, 1, 0, n), 22101);
    for n in 1..=100 {
        world.inject(address(n), &connect_request(u32::from(n)));
    }
    world.inject(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4000), &connect_request(7));
    world.run(SECOND);
    let joining: Vec<_> = world.session.players().map(|player| *player.address.ip()).collect();
    assert_eq!(joining, [Ipv4Addr::LOCALHOST], "only this address cannot be that of a proxy");
    let mut world = TestWorld::new(Config::default());
    for n in 1..=8 {
        let at = world.connect(&format!("Player {n}"), "");
        world.clients[at].address = address(n);
    }
    world.run(3 * SECOND);
    assert_eq!(world.session.status(world.now).in_game, 8);
}

/// S-13: a client over a limit gets a text that names the setting, and the session reports the same reason.
#[test]
fn address_limit_is_not_reported_as_a_full_server() {
    let limits = Config { players_per_address: Some(2), players_per_network: Some(3), ..Config::default() };
    let mut world = TestWorld::new(limits);
    let mut connect = |name: &str, last: u8, port: u16| {
        let at = world.connect(name, "");
        world.clients[at].address = SocketAddrV4::new(Ipv4Addr::new(81, 2, 3, last), port);
        world.run(2 * SECOND);
        at
    };
    let [first, second, third, fourth, fifth] =
        [("A", 4, 1), ("B", 4, 2), ("C", 4, 3), ("D", 5, 4), ("E", 6, 5)]
            .map(|(name, last, port)| connect(name, last, port));
    assert!([first, second, fourth].into_iter().all(|at| world.is_in_game(at)));
    let texts = [third, fifth].map(|at| {
        assert!(!world.is_in_game(at));
        let left = &world.clients[at].disconnects;
        assert!(matches!(left[..], [(_, LeaveReason::Booted(BootReason::DEFAULT))]), "{left:?}");
        let text = world.clients[at].client_events.iter().find_map(|event| match event {
            client::Event::FilesDiffer { file } => Some(file.clone()),
            _ => None,
        });
        text.expect("a text")
    });
    assert_eq!(
        texts,
        [
            "Refused: 2 players from your address are here already; the host can raise players_per_address",
            "Refused: 3 players from your network are here already; the host can raise players_per_network",
        ]
    );
    let refusals: Vec<JoinRefusal> = world
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        })
        .collect();
    assert_eq!(refusals, [JoinRefusal::AddressLimit(2), JoinRefusal::NetworkLimit(3)]);
    assert_eq!(
        refusals.iter().map(|refusal| refusal.name()).collect::<Vec<_>>(),
        ["address_limit", "network_limit"]
    );
    let counted: Vec<_> =
        world.session.counters().refused.by_reason().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("address_limit", 1), ("network_limit", 1)]);
    assert!(!world.events.iter().any(|event| matches!(event, Event::Joined { name, .. } if name == "C")));
}

/// S-13: players of the home networks have no limits per address, but their addresses are verified.
#[test]
fn home_networks_are_a_setting() {
    for (home_networks, players) in [(Config::default().home_networks, 8), (Vec::new(), 6)] {
        let mut world = TestWorld::new(Config { home_networks, ..Config::default() });
        for n in 0..8_u16 {
            let at = world.connect(&format!("Player {n}"), "");
            world.clients[at].address = SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 4), 1000 + n);
        }
        world.run(3 * SECOND);
        assert_eq!(world.session.status(world.now).in_game, players);
    }
}
