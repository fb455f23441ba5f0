//! Who may talk through the proxy, from which source, and for how long.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_proxy::{Bytes, Config, Event, Leg, MAX_PER_ADDRESS, Proxy, Refusal};
use bcnet_session::Network;
use bcnet_transport::wire::{BootReason, Data, Delivery, Message, PeerId, Role, Writer};

use crate::{Both, ack, at, boot, connect, data, disconnect, news, reply, told};

pub(crate) fn client(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, number), 22101)
}

pub(crate) fn pool(size: u8) -> Vec<Ipv4Addr> {
    (1..=size).map(|n| Ipv4Addr::new(127, 1, 0, n)).collect()
}

fn send(proxy: &mut Proxy, from: u8, both: &Both, millis: u64) -> Option<(Leg, Vec<u8>)> {
    let output = proxy.handle_client(client(from), both.from(Role::Client), at(millis));
    assert!(output.refusal.is_none() || output.forward.is_none());
    let sent = output.forward.or(output.answer);
    sent.map(|(leg, bytes)| (leg, bytes.to_wire()))
}

pub(crate) fn events(proxy: &mut Proxy) -> Vec<Event> {
    std::iter::from_fn(|| proxy.poll_event()).collect()
}

/// The source that a client got.
fn joined(proxy: &mut Proxy, from: u8, millis: u64) -> Option<Ipv4Addr> {
    let sent = send(proxy, from, &connect(from.into()), millis);
    assert!(matches!(sent, Some((Leg::Server(_), _))), "{sent:?}");
    match events(proxy).as_slice() {
        [Event::Opened { client: who, source, player: true }] if *who == client(from) => source.address,
        other => panic!("{other:?}"),
    }
}

/// A client that joins and then uses the id that the server gives it; its number is that of its source.
fn proved(proxy: &mut Proxy, from: u8, source: u32, millis: u64) {
    joined(proxy, from, millis);
    let id = PeerId(from + 1);
    assert!(proxy.handle_server(source, reply(id).from(Role::Host), at(millis)).forward.is_some());
    assert!(send(proxy, from, &Both::new(id, &[ack(0)]), millis).is_some());
    assert!(matches!(events(proxy).as_slice(), [Event::Proved { client: who, .. }] if *who == client(from)));
}

fn refused(proxy: &mut Proxy, from: u8, both: &Both, millis: u64) -> (Refusal, Option<Vec<String>>) {
    let output = proxy.handle_client(client(from), both.from(Role::Client), at(millis));
    assert_eq!(output.forward, None);
    let (why, answer) = (output.refusal, output.answer.map(|(leg, bytes)| (leg, bytes.to_wire())));
    if let Some((leg, _)) = &answer {
        assert_eq!(*leg, Leg::Client(client(from)));
    }
    match events(proxy).as_slice() {
        [Event::Refused { client: who, refusal }] if *who == client(from) => {
            assert_eq!(why, Some(*refusal));
            (*refusal, answer.map(|(_, bytes)| told(&bytes)))
        }
        other => panic!("{other:?}"),
    }
}

fn says(told: Option<Vec<String>>, reason: BootReason) -> bool {
    told.is_some_and(|told| told.len() == 1 && told[0].contains(reason.name().expect("a name")))
}

#[test]
fn who_is_banned_is_told_so_once_it_asks_and_else_not_answered() {
    let bans = vec![Network::around(Ipv4Addr::new(192, 0, 2, 8), 30)];
    let mut proxy = Proxy::new(Config { bans, sources: pool(8), ..Config::default() });
    for from in 8..12 {
        let (refusal, told) = refused(&mut proxy, from, &connect(1), 0);
        assert!(refusal == Refusal::Banned && says(told, BootReason::BANNED));
    }
    assert_eq!(refused(&mut proxy, 9, &Both::new(PeerId(2), &[data(0)]), 0), (Refusal::Banned, None));
    assert_eq!(refused(&mut proxy, 9, &Both::from_wire(b"\\status\\"), 0), (Refusal::Banned, None));
    assert_eq!(proxy.refused(Refusal::Banned), 6);
    joined(&mut proxy, 7, 0);
    joined(&mut proxy, 12, 0);
}

#[test]
fn a_ban_ends_the_game_of_who_is_playing() {
    let mut proxy = Proxy::new(Config { sources: pool(2), ..Config::default() });
    joined(&mut proxy, 1, 0);
    joined(&mut proxy, 2, 0);
    let bans = vec![Network::around(*client(1).ip(), 32)];
    assert!(proxy.set_bans(bans.clone()));
    assert!(!proxy.set_bans(bans), "they are no others");
    let closed = events(&mut proxy);
    assert!(
        matches!(closed.as_slice(), [Event::Closed { client: who, player: true, .. }] if *who == client(1))
    );
    assert_eq!(proxy.players().map(|player| player.address).collect::<Vec<_>>(), [client(2)]);
    let late = Both::new(PeerId::HOST, &[data(0)]);
    assert_eq!(proxy.handle_server(0, late.from(Role::Host), at(1)).forward, None, "nobody is there");
    assert_eq!(refused(&mut proxy, 1, &Both::new(PeerId(2), &[data(0)]), 1).0, Refusal::Banned);
}

#[test]
fn a_rate_is_kept_each_second() {
    let mut proxy = Proxy::new(Config { rate: 10, ..Config::default() });
    joined(&mut proxy, 1, 0);
    let talk = Both::new(PeerId(2), &[news()]);
    let passed = |proxy: &mut Proxy, millis| {
        (0..20)
            .filter(|_| send(proxy, 1, &talk, millis).is_some_and(|(leg, _)| leg == Leg::Server(0)))
            .count()
    };
    assert_eq!(passed(&mut proxy, 0), 9, "one was the request");
    assert_eq!(proxy.refused(Refusal::Flood), 11);
    assert_eq!(
        (passed(&mut proxy, 99), passed(&mut proxy, 100)),
        (0, 1),
        "one comes back every tenth of a second"
    );
    assert_eq!(passed(&mut proxy, 1100), 10);
    let mut proxy = Proxy::new(Config::default());
    joined(&mut proxy, 1, 0);
    assert_eq!(passed(&mut proxy, 1), 20, "off unless it is set");
}

fn neighbour(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(*client(1).ip(), port)
}

#[test]
fn one_address_cannot_empty_the_pool() {
    let mut proxy = Proxy::new(Config { sources: pool(250), ..Config::default() });
    for (text, most) in [(false, MAX_PER_ADDRESS), (true, 2 * MAX_PER_ADDRESS)] {
        let ask = if text { Both::from_wire(b"\\status\\") } else { connect(1) };
        for port in 1..=300 {
            proxy.handle_client(neighbour(port), ask.from(Role::Client), at(0));
        }
        assert_eq!(proxy.sources().count(), most);
        events(&mut proxy);
    }
    let request = connect(1);
    let output = proxy.handle_client(neighbour(999), request.from(Role::Client), at(0));
    assert_eq!(output.refusal, Some(Refusal::AddressFull));
    assert!(says(output.answer.map(|(_, bytes)| told(&bytes.to_wire())), BootReason::FULL));
    events(&mut proxy);
    joined(&mut proxy, 2, 0);
    // The server has answered nobody, so there is room again soon.
    proxy.handle_timeout(at(9_999));
    assert_eq!(proxy.players().count(), MAX_PER_ADDRESS + 1);
    proxy.handle_timeout(at(10_000));
    assert_eq!((proxy.players().count(), proxy.next_timeout()), (0, None));
    let again = proxy.handle_client(neighbour(999), request.from(Role::Client), at(10_000));
    assert_eq!(again.refusal, None);
}

#[test]
fn a_rate_limits_how_fast_players_come_from_one_address() {
    let mut proxy = Proxy::new(Config { rate: 5, sources: pool(250), ..Config::default() });
    let came = |proxy: &mut Proxy, ports: std::ops::Range<u16>, millis| {
        let came = |port: &u16| {
            proxy.handle_client(neighbour(*port), connect(1).from(Role::Client), at(millis)).refusal.is_none()
        };
        ports.filter(came).count()
    };
    assert_eq!(came(&mut proxy, 0..100, 0), 5);
    assert_eq!(came(&mut proxy, 100..200, 199), 0);
    assert_eq!(proxy.refused(Refusal::Flood), 195);
    assert_eq!(came(&mut proxy, 200..300, 1_000), 5);
    events(&mut proxy);
    joined(&mut proxy, 2, 1_000);
}

#[test]
fn a_stranger_must_ask_first() {
    let mut proxy = Proxy::new(Config::default());
    for both in [Both::new(PeerId(2), &[data(0)]), Both::from_wire(&[0xFF; 40]), Both::from_wire(b"")] {
        assert_eq!(refused(&mut proxy, 1, &both, 0), (Refusal::Stranger, None));
    }
    assert_eq!(proxy.next_timeout(), None, "nothing is kept of them");
}

#[test]
fn without_a_free_source_a_player_is_told_that_the_game_is_full() {
    let mut proxy = Proxy::new(Config { sources: pool(2), ..Config::default() });
    proved(&mut proxy, 1, 0, 0);
    joined(&mut proxy, 2, 0);
    let request = refused(&mut proxy, 3, &connect(3), 0);
    assert_eq!(request, (Refusal::Busy, None), "one of them may be nobody");
    proxy.handle_timeout(at(10_000));
    events(&mut proxy);
    proved(&mut proxy, 2, 1, 10_000);
    let (refusal, told) = refused(&mut proxy, 3, &connect(3), 10_000);
    assert!(refusal == Refusal::NoSource && says(told, BootReason::FULL));
}

#[test]
fn browsers_have_sources_of_their_own_but_not_too_many() {
    let mut proxy = Proxy::new(Config { browsers: 2, ..Config::default() });
    proved(&mut proxy, 1, 0, 0);
    let query = Both::from_wire(b"\\status\\");
    // A player's machine may ask too.
    for from in [1, 2] {
        let sent = send(&mut proxy, from, &query, 0);
        assert_eq!(sent, Some((Leg::Server(from.into()), query.wire.clone())));
        assert!(matches!(events(&mut proxy).as_slice(), [Event::Opened { player: false, .. }]));
    }
    assert_eq!(refused(&mut proxy, 3, &query, 0), (Refusal::Crowded, None));
    let reply = Both::from_wire(b"\\gamename\\bcommander\\final\\");
    let output = proxy.handle_server(2, reply.from(Role::Host), at(5));
    assert_eq!(output.forward, Some((Leg::Client(client(2)), Bytes::Wire(&reply.wire))));
    assert_eq!(proxy.players().count(), 1);
    // Who was answered gives way.
    assert!(send(&mut proxy, 4, &query, 6).is_some());
    assert!(matches!(
        events(&mut proxy).as_slice(),
        [Event::Closed { client: who, player: false, .. }, Event::Opened { .. }] if *who == client(2)
    ));
    // They are forgotten soon, and there is room again.
    proxy.handle_timeout(at(10_006));
    assert_eq!(events(&mut proxy).len(), 2);
    assert!(send(&mut proxy, 3, &query, 10_006).is_some());
}

#[test]
fn malformed_datagrams_of_players_pass_unless_told_otherwise() {
    let garbage = Both::from_wire(&[0x55; 60]);
    for (drop_malformed, expected) in [(false, 0), (true, 1)] {
        let mut proxy = Proxy::new(Config { drop_malformed, heal: true, ..Config::default() });
        joined(&mut proxy, 1, 0);
        let sent = send(&mut proxy, 1, &garbage, 1);
        assert_eq!(sent.map(|(_, bytes)| bytes), (!drop_malformed).then(|| garbage.wire.clone()));
        assert_eq!(proxy.refused(Refusal::Malformed), expected);
    }
}

#[test]
fn who_is_silent_both_ways_is_forgotten() {
    let mut proxy = Proxy::new(Config { idle: Duration::from_secs(60), ..Config::default() });
    proved(&mut proxy, 1, 0, 0);
    let reply = Both::new(PeerId::HOST, &[news()]);
    assert!(proxy.handle_server(0, reply.from(Role::Host), at(1)).forward.is_some());
    send(&mut proxy, 1, &Both::new(PeerId(2), &[news()]), 30_000);
    proxy.handle_timeout(at(60_000));
    assert_eq!((events(&mut proxy).len(), proxy.next_timeout()), (0, Some(at(90_000))));
    proxy.handle_timeout(at(89_999));
    assert_eq!(proxy.players().count(), 1);
    proxy.handle_timeout(at(90_000));
    assert!(matches!(events(&mut proxy).as_slice(), [Event::Closed { player: true, .. }]));
    assert_eq!((proxy.players().count(), proxy.next_timeout()), (0, None));
    joined(&mut proxy, 2, 90_001);
}

/// A player that joined at 0 and whose id is 2.
fn playing(heal: bool) -> Proxy {
    let mut proxy = Proxy::new(Config { heal, ..Config::default() });
    proved(&mut proxy, 1, 0, 0);
    send(&mut proxy, 1, &Both::new(PeerId(2), &[data(0)]), 100);
    proxy.handle_server(0, Both::new(PeerId::HOST, &[ack(0)]).from(Role::Host), at(100));
    proxy
}

#[test]
fn after_a_goodbye_the_source_is_soon_free() {
    let from_client = |message| (true, Both::new(PeerId(2), &[ack(3), data(1), message]));
    let from_server = |message| (false, Both::new(PeerId::HOST, &[ack(3), data(1), message]));
    for (up, goodbye) in [
        from_client(disconnect(PeerId(2))),
        from_server(boot(PeerId(2))),
        from_server(boot(PeerId::UNASSIGNED)),
        from_server(disconnect(PeerId::HOST)),
    ] {
        for heal in [false, true] {
            let mut proxy = playing(heal);
            if up {
                send(&mut proxy, 1, &goodbye, 1_000);
            } else {
                proxy.handle_server(0, goodbye.from(Role::Host), at(1_000));
            }
            // The client repeats its goodbye or answers the server's, which may go on for much longer.
            send(&mut proxy, 1, &Both::new(PeerId(2), &[ack(1), disconnect(PeerId(2))]), 2_000);
            proxy.handle_server(0, Both::new(PeerId::HOST, &[data(4)]).from(Role::Host), at(6_900));
            proxy.handle_timeout(at(6_999));
            assert_eq!((events(&mut proxy).len(), proxy.next_timeout()), (0, Some(at(7_000))));
            proxy.handle_timeout(at(7_000));
            assert!(matches!(events(&mut proxy).as_slice(), [Event::Closed { player: true, .. }]));
            joined(&mut proxy, 2, 7_000);
        }
    }
}

#[test]
fn who_joins_again_after_a_goodbye_stays() {
    let mut proxy = playing(false);
    send(&mut proxy, 1, &Both::new(PeerId(2), &[disconnect(PeerId(2))]), 1_000);
    send(&mut proxy, 1, &connect(77), 3_000);
    proxy.handle_timeout(at(62_999));
    assert_eq!((events(&mut proxy).len(), proxy.players().count()), (0, 1));
    proxy.handle_timeout(at(63_000));
    assert_eq!(proxy.players().count(), 0);
}

/// The server tells everyone who is gone, and payloads may look like a goodbye.
#[test]
fn the_goodbye_of_others_ends_nothing() {
    let mut proxy = playing(false);
    let payload = boot(PeerId(2));
    let mut bytes = [0; 64];
    let mut writer = Writer::new(&mut bytes, PeerId::HOST);
    assert!(writer.push(&payload));
    let payload = writer.finish().expect("a message").to_vec();
    let lookalike = Message::Data(Data { delivery: Delivery::Unreliable, urgent: false, payload: &payload });
    for message in [boot(PeerId(3)), disconnect(PeerId(3)), lookalike] {
        proxy.handle_server(0, Both::new(PeerId::HOST, &[message]).from(Role::Host), at(200));
    }
    send(&mut proxy, 1, &Both::new(PeerId(2), &[boot(PeerId(2))]), 200);
    proxy.handle_timeout(at(60_199));
    assert_eq!((events(&mut proxy).len(), proxy.players().count()), (0, 1));
}

/// A server remembers the last player of an address for a while, so the one that was free longest is next.
#[test]
fn sources_are_used_again_in_the_order_in_which_they_became_free() {
    let mut proxy = Proxy::new(Config { sources: pool(3), ..Config::default() });
    let first: Vec<_> = (1..4).map(|from| joined(&mut proxy, from, u64::from(from))).collect();
    assert_eq!(first, pool(3).into_iter().map(Some).collect::<Vec<_>>());
    // The second is heard of longest.
    send(&mut proxy, 2, &Both::new(PeerId(2), &[news()]), 50);
    for millis in [10_010, 10_050] {
        proxy.handle_timeout(at(millis));
    }
    assert_eq!(events(&mut proxy).len(), 3);
    let again: Vec<_> = (11..14).map(|from| joined(&mut proxy, from, 70_001)).collect();
    assert_eq!(again, [first[0], first[2], first[1]]);
}

#[test]
fn refusals_that_nobody_reads_do_not_pile_up() {
    let mut proxy = Proxy::new(Config::default());
    let talk = Both::new(PeerId(2), &[news()]);
    for _ in 0..10_000 {
        assert_eq!(send(&mut proxy, 1, &talk, 0), None);
    }
    assert_eq!((proxy.refused(Refusal::Stranger), events(&mut proxy).len()), (10_000, 256));
}

/// Without healing every byte passes, whatever it is; with it, nothing panics.
#[test]
fn hostile_bytes_pass_or_are_dropped_and_nothing_else() {
    for (seed, heal) in (0..400).zip([false, true].into_iter().cycle()) {
        let mut rng = Rng::new(seed);
        let mut proxy = Proxy::new(Config { heal, sources: pool(4), ..Config::default() });
        for from in 1..4 {
            joined(&mut proxy, from, 0);
        }
        let mut bytes = Both::new(PeerId(2), &[data(1), news()]).plain;
        for step in 0..200 {
            // Now and then it is well formed, mostly nearly so, and sometimes noise.
            let len = usize::try_from(rng.between(0, 60)).expect("small");
            if rng.chance(0.2) {
                bytes = (0..len).map(|_| u8::try_from(rng.between(0, 255)).expect("a byte")).collect();
            } else if rng.chance(0.5) {
                bytes = Both::new(PeerId(2), &[data(step), ack(step / 2), crate::part(step, 1, 9)]).plain;
            }
            let place = usize::try_from(rng.between(0, 59)).expect("small");
            if let Some(byte) = bytes.get_mut(place).filter(|_| rng.chance(0.7)) {
                *byte = u8::try_from(rng.between(0, 255)).expect("a byte");
            }
            let both = Both::from_plain(&bytes);
            let source = u32::try_from(rng.between(0, 5)).expect("small");
            let down = rng
                .chance(0.5)
                .then(|| proxy.handle_server(source, both.from(Role::Host), at(step.into())).forward);
            let forward = match down {
                Some(forward) => forward.filter(|_| source < 3),
                None => proxy.handle_client(client(1), both.from(Role::Client), at(step.into())).forward,
            };
            if let Some((_, out)) = forward.filter(|_| !heal) {
                assert_eq!(out, Bytes::Wire(&both.wire), "seed {seed} step {step}");
            }
        }
    }
}

#[test]
fn whose_source_cannot_be_had_may_ask_again() {
    let mut proxy = Proxy::new(Config { sources: pool(1), ..Config::default() });
    let own = joined(&mut proxy, 1, 0);
    assert_eq!(
        proxy.sources().map(|(who, source)| (who, source.address)).collect::<Vec<_>>(),
        [(client(1), own)]
    );
    proxy.forget(0);
    assert!(matches!(events(&mut proxy).as_slice(), [Event::Closed { player: true, .. }]));
    assert_eq!(proxy.sources().count(), 0);
    assert_eq!(joined(&mut proxy, 1, 10), own);
    // Nobody has this one.
    proxy.forget(7);
    assert_eq!((events(&mut proxy).len(), proxy.players().count()), (0, 1));
}
