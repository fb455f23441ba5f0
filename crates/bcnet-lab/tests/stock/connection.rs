//! Joining, names, leaving and timeouts, for host and client.

use std::net::Ipv4Addr;

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{DeliveryMode, Event, LeaveReason, Time};

use super::harness::{
    PEER, StockHarness, StockPair, ack, address, at, control, datagram, game, identity, millis, request,
    without_cipher, without_timers,
};

/// Returns the events of a node, without those about names.
fn events_without_names(bench: &StockHarness) -> Vec<Event> {
    let events = bench.events.iter().map(|(event, _)| *event);
    events.filter(|event| !matches!(event, Event::Identity { .. })).collect()
}

fn left_event(peer: PeerId, reason: LeaveReason) -> Event {
    Event::Left { peer, reason }
}

/// Both sides of a join match the capture byte for byte. While the clock does not move, the reply is sent
/// alone.
#[test]
fn join_bytes_match_the_capture() {
    let own = Ipv4Addr::new(10, 10, 10, 239);
    let mut client =
        StockEngine::connect(without_cipher(Params::default()), address(1), own, 0xA5F, &[], Time::ZERO);
    let mut buffer = [0; 512];
    client.run_frame(Time::ZERO);
    let transmit = client.poll_transmit(&mut buffer).expect("a request");
    let request = [0xFF, 1, 3, 15, 0xC0, 0, 0, 10, 10, 10, 0xEF, 0x5F, 0x0A, 0, 0, 0, 0];
    assert_eq!((transmit.to, &buffer[..transmit.len]), (address(1), &request[..]));

    let mut host = StockEngine::host(Params { granularity: millis(15), ..Params::default() });
    let mut ciphered = request;
    bcnet_transport::cipher::encrypt(&mut ciphered);
    host.handle_datagram(address(2), &ciphered, Time::ZERO);
    let mut datagrams = Vec::new();
    for frame in 0..6 {
        host.run_frame(Time::from_micros(frame * 3000));
        while let Some(transmit) = host.poll_transmit(&mut buffer) {
            datagrams.push((frame, buffer[..transmit.len].to_vec()));
        }
    }
    let reply = vec![0x01, 0xD7, 0x33, 0x68, 0xC3, 0xBF, 0x76, 0xDB];
    assert_eq!(datagrams[0], (1, reply));
    assert_eq!((datagrams.len(), datagrams[1].0), (2, 5));
}

#[test]
fn names_are_sent_to_new_clients_and_back_to_the_sender() {
    let mut bench = StockHarness::host(without_timers());
    let ask = |last: u8| datagram(0xFF, &[request(last, 7)]);
    bench.run_before(0.0, |stock, now| stock.handle_datagram(address(2), &ask(2), now));
    bench.inject_at(0.1, &identity(1, 2)).run(0.2);
    // The sender of the name receives it, too.
    let body = [2, 10, 0, 0, 2, 0x41, 0, 0, 0];
    assert_eq!(bench.sent.iter().filter(|(_, bytes)| bytes.ends_with(&control(0, 1, &body))).count(), 1);
    bench.sent.clear();
    bench.run_before(0.3, |stock, now| stock.handle_datagram(address(3), &ask(3), now)).run(0.31);
    let expected = datagram(1, &[ack(0, 2), control(0, 1, &body), control(3, 0, &[3])]);
    assert_eq!(bench.sent[0].1, expected);
}

#[test]
fn wrong_password_and_ban_are_answered_with_a_boot() {
    let secret = vec![0x53, 0, 0x54, 0];
    let asking = |password: &[u8], params: Params| {
        let mut pair = StockPair::new(without_timers(), 250);
        pair.host = StockHarness::new(StockEngine::host(without_cipher(params)), 250);
        let own = *address(2).ip();
        let client =
            StockEngine::connect(without_cipher(without_timers()), address(1), own, 7, password, Time::ZERO);
        pair.client = StockHarness::new(client, 250);
        pair.run(1.0);
        (events_without_names(&pair.client), pair.host.stock.peers())
    };
    let locked = Params { password: Some(secret.clone()), ..without_timers() };
    let booted = |reason| vec![left_event(PeerId::HOST, LeaveReason::Booted(reason))];
    assert_eq!(asking(&secret, locked.clone()), (vec![Event::Joined { peer: PEER }], vec![PEER]));
    assert_eq!(asking(&secret[..2], locked.clone()), (booted(BootReason::WRONG_PASSWORD), vec![]));
    assert_eq!(asking(&[], locked), (booted(BootReason::WRONG_PASSWORD), vec![]));
    let banned = Params { banned: vec![*address(2).ip()], ..without_timers() };
    assert_eq!(asking(&[], banned), (booted(BootReason::BANNED), vec![]));
}

/// Clients without an id are distinguished by their address.
#[test]
fn refused_client_does_not_block_another_client() {
    let mut bench = StockHarness::host(Params { password: Some(vec![0x53, 0]), ..without_timers() });
    let ask = |last: u8, password: &[u8]| {
        datagram(0xFF, &[control(0x03, 0, &[&[10, 0, 0, last, 7, 0, 0, 0], password, &[0, 0]].concat())])
    };
    bench.stock.handle_datagram(address(2), &ask(2, &[]), Time::ZERO);
    bench.stock.handle_datagram(address(3), &ask(3, &[0x53, 0]), Time::ZERO);
    bench.run_frame();
    assert_eq!(events_without_names(&bench), [Event::Joined { peer: PEER }]);
}

#[test]
fn ids_count_up_and_skip_the_reserved_one() {
    let mut bench = StockHarness::host(without_timers());
    for last in 0..125 {
        let bytes = datagram(0xFF, &[request(100 + last, 7)]);
        bench.stock.handle_datagram(address(100 + last), &bytes, Time::ZERO);
    }
    bench.run_frame();
    let ids: Vec<u8> = bench
        .events
        .iter()
        .filter_map(|(event, _)| if let Event::Joined { peer } = event { Some(peer.0) } else { None })
        .collect();
    let expected: Vec<u8> = (2..=126).filter(|id| *id != 0x5C).chain([0xFF]).collect();
    assert_eq!(ids, expected);
}

#[test]
fn leaving_client_is_closed_and_forgotten() {
    let mut pair = StockPair::joined(Params::default(), 250);
    pair.client.stock.leave(at(1.0));
    pair.run(1.1);
    assert!(pair.client.stock.is_closed() && pair.client.stock.is_idle());
    assert_eq!(events_without_names(&pair.client)[1..], [left_event(PeerId::HOST, LeaveReason::Local)]);
    assert_eq!(events_without_names(&pair.host)[1..], [left_event(PEER, LeaveReason::Disconnected)]);
    assert!(pair.host.stock.dump(PEER).is_some());
    pair.host.run(17.0);
    assert!(pair.host.stock.dump(PEER).is_none());
    let refused = pair.client.stock.send(PeerId::HOST, b"x", DeliveryMode::Reliable, at(17.0));
    assert_eq!(refused.map_err(|error| error.code()), Err(4));
}

#[test]
fn a_host_leaves_through_its_own_entry() {
    let mut pair = StockPair::joined(Params::default(), 250);
    pair.host.stock.leave(at(1.0));
    pair.run(1.2);
    assert_eq!(
        events_without_names(&pair.client)[1..],
        [left_event(PeerId::HOST, LeaveReason::Disconnected)]
    );
    assert!(pair.host.stock.is_closed() && pair.client.stock.is_closed());
}

#[test]
fn boot_closes_the_client() {
    let mut pair = StockPair::joined(Params::default(), 250);
    assert!(pair.host.stock.boot(PEER, BootReason::KICKED, at(1.0)));
    assert!(!pair.host.stock.boot(PEER, BootReason::KICKED, at(1.0)));
    pair.run(1.2);
    let booted = LeaveReason::Booted(BootReason::KICKED);
    assert_eq!(events_without_names(&pair.client)[1..], [left_event(PeerId::HOST, booted)]);
    // As captured: sequence number 2 of the control channel, reason kicked, peer 2.
    let boot = [0x04, 0x07, 0xC0, 2, 0, 4, 2];
    assert!(pair.host.sent.iter().any(|(_, bytes)| bytes.windows(7).any(|seven| seven == boot)));
}

#[test]
fn idle_timeout_closes_both_sides() {
    let mut pair = StockPair::joined(Params::default(), 250);
    let heard = pair.client.sent.last().expect("something").0;
    pair.host.run(heard.as_micros() as f64 / 1e6 + 44.99);
    assert_eq!(events_without_names(&pair.host).len(), 1);
    pair.host.run(heard.as_micros() as f64 / 1e6 + 45.02);
    assert_eq!(events_without_names(&pair.host)[1..], [left_event(PEER, LeaveReason::Silent)]);
    pair.client.run(47.0);
    assert_eq!(events_without_names(&pair.client)[1..], [left_event(PeerId::HOST, LeaveReason::Silent)]);
}

/// Pending ACKs postpone the keepalives of a host, but not those of a client.
#[test]
fn acks_postpone_only_a_hosts_keepalives() {
    let mut pair = StockPair::joined(Params::default(), 250);
    for second in 2..30_u16 {
        pair.run(second.into());
        pair.host.stock.inject(PEER, &game(second - 2, b"x"), at(second.into()));
        pair.client.stock.inject(PeerId::HOST, &game(second - 2, b"x"), at(second.into()));
    }
    assert_eq!(pair.host.stock.stock_counters().keepalives, 0);
    assert_eq!(pair.client.stock.stock_counters().keepalives, 5);
}

#[test]
fn dispatched_acks_are_traced_as_recorded() {
    let mut bench = StockHarness::host(Params { trace_acks: true, ..without_timers() });
    bench.inject_at(0.5, &ack(0, 2)).inject_at(0.5, &[1, 2, 0, 1, 1]).run(0.6);
    let lines: Vec<String> =
        std::iter::from_fn(|| bench.stock.poll_ack_trace()).map(|ack| ack.to_string()).collect();
    let expected = [
        "[0.501] HandleACK: ack seq=0x0000 below32=1 | retxQ=0",
        "[0.501] HandleACK: ack seq=0x0002 frag=1 idx=1 below32=0 | retxQ=0",
    ];
    assert_eq!(lines, expected);
    assert_eq!(bench.stock.stock_counters().acks_on_empty, 2);
}

#[test]
fn gamespy_query_is_reported_unchanged() {
    let mut bench = StockHarness::host(Params::default());
    bench.stock.handle_datagram(address(9), b"\\status\\", Time::ZERO);
    bench.run_frame();
    assert_eq!(bench.events, [(Event::Query { from: address(9) }, b"\\status\\".to_vec())]);
}
