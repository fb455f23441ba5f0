//! Admission of clients, their sources and their timeouts.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_proxy::{
    DatagramTarget, MAX_PER_ADDRESS, OutboundBytes, Proxy, ProxyConfig, ProxyEvent, RefusalReason,
};
use bcnet_session::Network;
use bcnet_transport::wire::{BootReason, Data, Datagram, Delivery, Message, PeerId, Role, Writer};

use crate::{
    WireAndPlaintext, ack, at, boot, connect, connect_reply, data, disconnect, message_texts, state_update,
};

pub(crate) fn client(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, number), 22101)
}

pub(crate) fn pool(size: u8) -> Vec<Ipv4Addr> {
    (1..=size).map(|n| Ipv4Addr::new(127, 1, 0, n)).collect()
}

pub(crate) fn send(
    proxy: &mut Proxy,
    from: u8,
    both: &WireAndPlaintext,
    millis: u64,
) -> Option<(DatagramTarget, Vec<u8>)> {
    let output = proxy.handle_client(client(from), both.inbound(Role::Client), at(millis));
    assert!(output.refusal.is_none() || output.forward.is_none());
    let sent = output.forward.or(output.answer);
    sent.map(|(leg, bytes)| (leg, bytes.to_wire()))
}

pub(crate) fn events(proxy: &mut Proxy) -> Vec<ProxyEvent> {
    std::iter::from_fn(|| proxy.poll_event()).collect()
}

/// Joins a client. Returns its source.
pub(crate) fn join(proxy: &mut Proxy, from: u8, millis: u64) -> Option<Ipv4Addr> {
    let sent = send(proxy, from, &connect(from.into()), millis);
    assert!(matches!(sent, Some((DatagramTarget::Server(_), _))), "{sent:?}");
    match events(proxy).as_slice() {
        [ProxyEvent::Opened { client: who, source, player: true }] if *who == client(from) => source.address,
        other => panic!("{other:?}"),
    }
}

/// Returns the cookie in an encrypted datagram of the proxy.
pub(crate) fn cookie_in(wire: &[u8]) -> Option<u16> {
    let plain = WireAndPlaintext::from_wire(wire).plaintext;
    let datagram = Datagram::parse(&plain, Some(Role::Host)).expect("well formed");
    bcnet_transport::cookie_in(&datagram).map(|number| number.0)
}

/// Assigns an id to a client, with the server's first datagram. Returns the cookie that the client got with it.
pub(crate) fn assign_id(proxy: &mut Proxy, source: u32, id: PeerId, millis: u64) -> Option<u16> {
    let reply = connect_reply(id);
    let output = proxy.handle_server(source, reply.inbound(Role::Host), at(millis));
    output.forward.and_then(|(_, bytes)| cookie_in(&bytes.to_wire()))
}

/// Joins a client that acknowledges its cookie. The id is `from + 1`.
pub(crate) fn join_verified(proxy: &mut Proxy, from: u8, source: u32, millis: u64) -> PeerId {
    join(proxy, from, millis);
    let id = PeerId(from + 1);
    let cookie = assign_id(proxy, source, id, millis).expect("a cookie");
    send(proxy, from, &WireAndPlaintext::new(id, &[ack(cookie)]), millis);
    assert!(
        matches!(events(proxy).as_slice(), [ProxyEvent::Verified { client: who, .. }] if *who == client(from))
    );
    id
}

fn expect_refused(
    proxy: &mut Proxy,
    from: u8,
    both: &WireAndPlaintext,
    millis: u64,
) -> (RefusalReason, Option<Vec<String>>) {
    let output = proxy.handle_client(client(from), both.inbound(Role::Client), at(millis));
    assert_eq!(output.forward, None);
    let (why, answer) = (output.refusal, output.answer.map(|(leg, bytes)| (leg, bytes.to_wire())));
    if let Some((leg, _)) = &answer {
        assert_eq!(*leg, DatagramTarget::Client(client(from)));
    }
    match events(proxy).as_slice() {
        [ProxyEvent::Refused { client: who, refusal }] if *who == client(from) => {
            assert_eq!(why, Some(*refusal));
            (*refusal, answer.map(|(_, bytes)| message_texts(&bytes)))
        }
        other => panic!("{other:?}"),
    }
}

fn has_boot_reason(told: Option<Vec<String>>, reason: BootReason) -> bool {
    told.is_some_and(|told| told.len() == 1 && told[0].contains(reason.name().expect("a name")))
}

#[test]
fn banned_client_gets_an_answer_only_to_connect_requests() {
    let bans = vec![Network::containing(Ipv4Addr::new(192, 0, 2, 8), 30)];
    let mut proxy = Proxy::new(ProxyConfig { bans, sources: pool(8), ..ProxyConfig::default() });
    for from in 8..12 {
        let (refusal, told) = expect_refused(&mut proxy, from, &connect(1), 0);
        assert!(refusal == RefusalReason::Banned && has_boot_reason(told, BootReason::BANNED));
    }
    assert_eq!(
        expect_refused(&mut proxy, 9, &WireAndPlaintext::new(PeerId(2), &[data(0)]), 0),
        (RefusalReason::Banned, None)
    );
    assert_eq!(
        expect_refused(&mut proxy, 9, &WireAndPlaintext::from_wire(b"\\status\\"), 0),
        (RefusalReason::Banned, None)
    );
    assert_eq!(proxy.refused(RefusalReason::Banned), 6);
    join(&mut proxy, 7, 0);
    join(&mut proxy, 12, 0);
}

#[test]
fn ban_disconnects_current_players() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(2), ..ProxyConfig::default() });
    join(&mut proxy, 1, 0);
    join(&mut proxy, 2, 0);
    let bans = vec![Network::containing(*client(1).ip(), 32)];
    assert!(proxy.set_bans(bans.clone()));
    assert!(!proxy.set_bans(bans), "the bans are unchanged");
    let closed = events(&mut proxy);
    assert!(
        matches!(closed.as_slice(), [ProxyEvent::Closed { client: who, player: true, .. }] if *who == client(1))
    );
    assert_eq!(proxy.players().map(|player| player.address).collect::<Vec<_>>(), [client(2)]);
    let late = WireAndPlaintext::new(PeerId::HOST, &[data(0)]);
    assert_eq!(proxy.handle_server(0, late.inbound(Role::Host), at(1)).forward, None, "the client is gone");
    assert_eq!(
        expect_refused(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[data(0)]), 1).0,
        RefusalReason::Banned
    );
}

#[test]
fn rate_limit_applies_each_second() {
    let mut proxy = Proxy::new(ProxyConfig { rate: 10, ..ProxyConfig::default() });
    join_verified(&mut proxy, 1, 0, 0);
    let talk = WireAndPlaintext::new(PeerId(2), &[state_update()]);
    let passed = |proxy: &mut Proxy, millis| {
        (0..20)
            .filter(|_| {
                send(proxy, 1, &talk, millis).is_some_and(|(leg, _)| leg == DatagramTarget::Server(0))
            })
            .count()
    };
    assert_eq!(passed(&mut proxy, 0), 8, "the connect request and the proof count, too");
    assert_eq!(proxy.refused(RefusalReason::Flood), 12);
    assert_eq!(
        (passed(&mut proxy, 99), passed(&mut proxy, 100)),
        (0, 1),
        "one more is allowed every tenth of a second"
    );
    assert_eq!(passed(&mut proxy, 1100), 10);
    let mut proxy = Proxy::new(ProxyConfig::default());
    join_verified(&mut proxy, 1, 0, 0);
    assert_eq!(passed(&mut proxy, 1), 20, "no limit by default");
}

fn same_ip(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(*client(1).ip(), port)
}

/// Joins a client that acknowledges its cookie. Returns `None` if its request is refused.
fn join_from(proxy: &mut Proxy, from: SocketAddrV4, id: PeerId, millis: u64) -> Option<u32> {
    let request = connect(1);
    let output = proxy.handle_client(from, request.inbound(Role::Client), at(millis));
    let Some((DatagramTarget::Server(source), _)) = output.forward else { return None };
    let cookie = assign_id(proxy, source, id, millis).expect("a cookie");
    proxy.handle_client(from, WireAndPlaintext::new(id, &[ack(cookie)]).inbound(Role::Client), at(millis));
    Some(source)
}

#[test]
fn one_address_cannot_exhaust_the_source_pool() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(250), ..ProxyConfig::default() });
    for port in 1..=100 {
        join_from(&mut proxy, same_ip(port), PeerId(10 + u8::try_from(port).expect("small")), 0);
    }
    assert_eq!(proxy.sources().count(), MAX_PER_ADDRESS);
    let request = connect(1);
    let output = proxy.handle_client(same_ip(999), request.inbound(Role::Client), at(0));
    assert_eq!(output.refusal, Some(RefusalReason::AddressFull));
    assert!(has_boot_reason(
        output.answer.map(|(_, bytes)| message_texts(&bytes.to_wire())),
        BootReason::DEFAULT
    ));
    // The share of one address is eight queries at once (S-07).
    for port in 1..=300 {
        let ask = WireAndPlaintext::from_wire(b"\\status\\");
        proxy.handle_client(same_ip(port), ask.inbound(Role::Client), at(0));
    }
    assert_eq!(proxy.sources().count(), MAX_PER_ADDRESS + 8);
    events(&mut proxy);
    join(&mut proxy, 2, 0);
}

#[test]
fn rate_limits_joins_from_one_address() {
    let mut proxy = Proxy::new(ProxyConfig { rate: 5, sources: pool(250), ..ProxyConfig::default() });
    let came = |proxy: &mut Proxy, ports: std::ops::Range<u16>, millis| {
        let id = |port: u16| PeerId(2 + u8::try_from(port % 80).expect("small"));
        let came = |port: &u16| join_from(proxy, same_ip(*port), id(*port), millis).is_some();
        ports.filter(came).count()
    };
    assert_eq!(came(&mut proxy, 0..100, 0), 5);
    assert_eq!(came(&mut proxy, 100..200, 199), 0);
    assert_eq!(proxy.refused(RefusalReason::Flood), 195);
    assert_eq!(came(&mut proxy, 200..300, 1_000), 5);
    events(&mut proxy);
    join(&mut proxy, 2, 1_000);
}

#[test]
fn unknown_client_must_send_a_connect_request_first() {
    let mut proxy = Proxy::new(ProxyConfig::default());
    for both in [
        WireAndPlaintext::new(PeerId(2), &[data(0)]),
        WireAndPlaintext::from_wire(&[0xFF; 40]),
        WireAndPlaintext::from_wire(b""),
    ] {
        assert_eq!(expect_refused(&mut proxy, 1, &both, 0), (RefusalReason::NotConnected, None));
    }
    assert_eq!(proxy.next_timeout(), None, "no state is kept of them");
}

#[test]
fn player_without_free_source_is_told_server_is_full() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(2), ..ProxyConfig::default() });
    join_verified(&mut proxy, 1, 0, 0);
    join(&mut proxy, 2, 0);
    let request = expect_refused(&mut proxy, 3, &connect(3), 0);
    assert!(request.0 == RefusalReason::Busy, "client 2 may be forged");
    proxy.handle_timeout(at(3_000));
    proxy.handle_timeout(at(11_000));
    events(&mut proxy);
    join_verified(&mut proxy, 2, 1, 11_000);
    let (refusal, told) = expect_refused(&mut proxy, 3, &connect(3), 11_000);
    assert!(refusal == RefusalReason::NoSource && has_boot_reason(told, BootReason::FULL));
}

#[test]
fn browsers_get_a_limited_number_of_sources() {
    let mut proxy = Proxy::new(ProxyConfig { max_browsers: 2, ..ProxyConfig::default() });
    join_verified(&mut proxy, 1, 0, 0);
    let query = WireAndPlaintext::from_wire(b"\\status\\");
    // A player's machine may also send queries.
    for from in [1, 2] {
        let sent = send(&mut proxy, from, &query, 0);
        assert_eq!(sent, Some((DatagramTarget::Server(from.into()), query.wire.clone())));
        assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Opened { player: false, .. }]));
    }
    assert_eq!(expect_refused(&mut proxy, 3, &query, 0), (RefusalReason::TooManyBrowsers, None));
    let reply = WireAndPlaintext::from_wire(b"\\gamename\\bcommander\\final\\");
    let output = proxy.handle_server(2, reply.inbound(Role::Host), at(5));
    assert_eq!(output.forward, Some((DatagramTarget::Client(client(2)), OutboundBytes::Wire(&reply.wire))));
    assert_eq!(proxy.players().count(), 1);
    // A browser that was answered is replaced.
    assert!(send(&mut proxy, 4, &query, 6).is_some());
    assert!(matches!(
        events(&mut proxy).as_slice(),
        [ProxyEvent::Closed { client: who, player: false, .. }, ProxyEvent::Opened { .. }] if *who == client(2)
    ));
    // Browsers are forgotten soon, and others fit again.
    proxy.handle_timeout(at(10_006));
    assert_eq!(events(&mut proxy).len(), 2);
    assert!(send(&mut proxy, 3, &query, 10_006).is_some());
}

#[test]
fn malformed_player_datagrams_pass_unless_configured() {
    let garbage = WireAndPlaintext::from_wire(&[[2].as_slice(), &[0x55; 59]].concat());
    for (drop_malformed, expected) in [(false, 0), (true, 1)] {
        let mut proxy = Proxy::new(ProxyConfig { drop_malformed, heal: true, ..ProxyConfig::default() });
        join_verified(&mut proxy, 1, 0, 0);
        let sent = send(&mut proxy, 1, &garbage, 1);
        assert_eq!(sent.map(|(_, bytes)| bytes), (!drop_malformed).then(|| garbage.wire.clone()));
        assert_eq!(proxy.refused(RefusalReason::Malformed), expected);
    }
}

#[test]
fn idle_client_is_forgotten() {
    let mut proxy =
        Proxy::new(ProxyConfig { idle_timeout: Duration::from_secs(60), ..ProxyConfig::default() });
    join_verified(&mut proxy, 1, 0, 0);
    let reply = WireAndPlaintext::new(PeerId::HOST, &[state_update()]);
    assert!(proxy.handle_server(0, reply.inbound(Role::Host), at(1)).forward.is_some());
    send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[state_update()]), 30_000);
    proxy.handle_timeout(at(60_000));
    assert_eq!((events(&mut proxy).len(), proxy.next_timeout()), (0, Some(at(90_000))));
    proxy.handle_timeout(at(89_999));
    assert_eq!(proxy.players().count(), 1);
    proxy.handle_timeout(at(90_000));
    assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Closed { player: true, .. }]));
    assert_eq!((proxy.players().count(), proxy.next_timeout()), (0, None));
    join(&mut proxy, 2, 90_001);
}

/// Returns a proxy with a player that joined at 0 and has id 2.
fn proxy_with_player(heal: bool) -> Proxy {
    let mut proxy = Proxy::new(ProxyConfig { heal, ..ProxyConfig::default() });
    join_verified(&mut proxy, 1, 0, 0);
    send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[data(0)]), 100);
    proxy.handle_server(0, WireAndPlaintext::new(PeerId::HOST, &[ack(0)]).inbound(Role::Host), at(100));
    proxy
}

/// Sends a request that is refused, and acknowledges the cookie in the answer.
pub(crate) fn ack_newcomer_cookie(proxy: &mut Proxy, from: u8, request: &WireAndPlaintext, millis: u64) {
    let output = proxy.handle_client(client(from), request.inbound(Role::Client), at(millis));
    assert_eq!(output.forward, None);
    let (to, bytes) = output.answer.expect("a cookie");
    assert_eq!(to, DatagramTarget::Client(client(from)));
    let cookie = cookie_in(&bytes.to_wire()).expect("a cookie");
    let proof = WireAndPlaintext::new(PeerId::UNASSIGNED, &[ack(cookie)]);
    assert_eq!(send(proxy, from, &proof, millis), None);
}

#[test]
fn source_is_freed_soon_after_disconnect() {
    let from_client = |message| (true, WireAndPlaintext::new(PeerId(2), &[ack(3), data(1), message]));
    let from_server = |message| (false, WireAndPlaintext::new(PeerId::HOST, &[ack(3), data(1), message]));
    for (up, goodbye) in [
        from_client(disconnect(PeerId(2))),
        from_server(boot(PeerId(2))),
        from_server(boot(PeerId::UNASSIGNED)),
        from_server(disconnect(PeerId::HOST)),
    ] {
        for heal in [false, true] {
            let mut proxy = proxy_with_player(heal);
            if up {
                send(&mut proxy, 1, &goodbye, 1_000);
            } else {
                proxy.handle_server(0, goodbye.inbound(Role::Host), at(1_000));
            }
            // The client repeats its disconnect or acknowledges the server's. The server sends for longer, which has no
            // effect.
            send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[ack(1), disconnect(PeerId(2))]), 2_000);
            proxy.handle_server(
                0,
                WireAndPlaintext::new(PeerId::HOST, &[data(4)]).inbound(Role::Host),
                at(6_900),
            );
            proxy.handle_timeout(at(14_499));
            assert_eq!((events(&mut proxy).len(), proxy.next_timeout()), (0, Some(at(14_500))));
            proxy.handle_timeout(at(14_500));
            assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Closed { player: true, .. }]));
            join(&mut proxy, 2, 14_500);
        }
    }
}

#[test]
fn client_that_left_can_rejoin_with_the_ack_of_a_cookie() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(2), ..ProxyConfig::default() });
    join_verified(&mut proxy, 1, 0, 0);
    send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[disconnect(PeerId(2))]), 1_000);
    ack_newcomer_cookie(&mut proxy, 1, &connect(77), 2_000);
    let sent = send(&mut proxy, 1, &connect(77), 3_000);
    assert!(matches!(sent, Some((DatagramTarget::Server(1), _))), "{sent:?}");
    assert!(matches!(
        events(&mut proxy).as_slice(),
        [ProxyEvent::Refused { refusal: RefusalReason::Busy, .. }, .., ProxyEvent::Opened { .. }]
    ));
    assert_eq!(proxy.goodbyes(), 1, "the disconnect may have been lost");
    let cookie = assign_id(&mut proxy, 1, PeerId(3), 3_001).expect("a cookie");
    assert!(send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(3), &[ack(cookie), data(0)]), 3_002).is_some());
    proxy.handle_timeout(at(63_001));
    assert_eq!(proxy.players().count(), 1);
    proxy.handle_timeout(at(63_002));
    assert_eq!(proxy.players().count(), 0);
}

/// The server announces every departure, and a payload may look like a boot message.
#[test]
fn disconnect_of_another_peer_is_ignored() {
    let mut proxy = proxy_with_player(false);
    let payload = boot(PeerId(2));
    let mut bytes = [0; 64];
    let mut writer = Writer::new(&mut bytes, PeerId::HOST);
    assert!(writer.push(&payload));
    let payload = writer.finish().expect("a message").to_vec();
    let lookalike = Message::Data(Data { delivery: Delivery::Unreliable, urgent: false, payload: &payload });
    for message in [boot(PeerId(3)), disconnect(PeerId(3)), lookalike] {
        proxy.handle_server(0, WireAndPlaintext::new(PeerId::HOST, &[message]).inbound(Role::Host), at(200));
    }
    send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[state_update()]), 200);
    proxy.handle_timeout(at(60_199));
    assert_eq!((events(&mut proxy).len(), proxy.players().count()), (0, 1));
}

/// A server remembers the last player of an address for a while, so the address that was free longest is next.
#[test]
fn sources_are_reused_in_release_order() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(3), ..ProxyConfig::default() });
    for from in 1..4 {
        join_verified(&mut proxy, from, u32::from(from) - 1, u64::from(from));
    }
    let first: Vec<_> = proxy.players().map(|player| player.source.address).collect();
    assert_eq!(first, pool(3).into_iter().map(Some).collect::<Vec<_>>());
    // The second client is the last to send.
    send(&mut proxy, 2, &WireAndPlaintext::new(PeerId(3), &[state_update()]), 50);
    for millis in [60_010, 60_050] {
        proxy.handle_timeout(at(millis));
    }
    assert_eq!(events(&mut proxy).len(), 3);
    for (from, source) in [(11, 1), (12, 2), (13, 0)] {
        join_verified(&mut proxy, from, source, 70_001);
    }
    let again: Vec<_> = (11..14)
        .map(|from| {
            proxy.players().find(|player| player.address == client(from)).expect("joined").source.address
        })
        .collect();
    assert_eq!(again, [first[0], first[2], first[1]]);
}

#[test]
fn unread_refusal_events_are_bounded() {
    let mut proxy = Proxy::new(ProxyConfig::default());
    let talk = WireAndPlaintext::new(PeerId(2), &[state_update()]);
    for _ in 0..10_000 {
        assert_eq!(send(&mut proxy, 1, &talk, 0), None);
    }
    assert_eq!((proxy.refused(RefusalReason::NotConnected), events(&mut proxy).len()), (10_000, 256));
}

/// Without healing every byte passes; with healing nothing panics.
#[test]
fn hostile_bytes_are_only_passed_or_dropped() {
    for (seed, heal) in (0..400).zip([false, true].into_iter().cycle()) {
        let mut rng = Rng::new(seed);
        let mut proxy = Proxy::new(ProxyConfig { heal, sources: pool(4), ..ProxyConfig::default() });
        for from in 1..4 {
            join_verified(&mut proxy, from, u32::from(from) - 1, 0);
        }
        let mut bytes = WireAndPlaintext::new(PeerId(2), &[data(1), state_update()]).plaintext;
        for step in 0..200 {
            // The bytes are sometimes well formed, mostly nearly so, and sometimes noise.
            let len = usize::try_from(rng.between(0, 60)).expect("small");
            if rng.chance(0.2) {
                bytes = (0..len).map(|_| u8::try_from(rng.between(0, 255)).expect("a byte")).collect();
            } else if rng.chance(0.5) {
                bytes = WireAndPlaintext::new(
                    PeerId(2),
                    &[data(step), ack(step / 2), crate::fragment(step, 1, 9)],
                )
                .plaintext;
            }
            let place = usize::try_from(rng.between(0, 59)).expect("small");
            if let Some(byte) = bytes.get_mut(place).filter(|_| rng.chance(0.7)) {
                *byte = u8::try_from(rng.between(0, 255)).expect("a byte");
            }
            let both = WireAndPlaintext::from_plaintext(&bytes);
            let source = u32::try_from(rng.between(0, 5)).expect("small");
            let down = rng
                .chance(0.5)
                .then(|| proxy.handle_server(source, both.inbound(Role::Host), at(step.into())).forward);
            let forward = match down {
                Some(forward) => forward.filter(|_| source < 3),
                None => proxy.handle_client(client(1), both.inbound(Role::Client), at(step.into())).forward,
            };
            if let Some((_, out)) = forward.filter(|_| !heal) {
                assert_eq!(out, OutboundBytes::Wire(&both.wire), "seed {seed} step {step}");
            }
        }
    }
}

#[test]
fn client_whose_source_failed_can_retry() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(1), ..ProxyConfig::default() });
    let own = join(&mut proxy, 1, 0);
    assert_eq!(
        proxy.sources().map(|(who, source)| (who, source.address)).collect::<Vec<_>>(),
        [(client(1), own)]
    );
    proxy.close_source(0);
    assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Closed { player: true, .. }]));
    assert_eq!(proxy.sources().count(), 0);
    assert_eq!(join(&mut proxy, 1, 10), own);
    // This source has no client.
    proxy.close_source(7);
    assert_eq!((events(&mut proxy).len(), proxy.players().count()), (0, 1));
}
