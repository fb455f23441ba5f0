//! Joining, names, leaving, silence: both roles.

use std::net::Ipv4Addr;

use bcnet_lab::stock::{Params, Stock};
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Event, Leave, Quality, Time};

use super::bench::{
    Bench, PEER, Pair, ack, address, at, control, datagram, game, millis, name, plain, quiet, request,
};

/// What a node heard but for names.
fn events(bench: &Bench) -> Vec<Event> {
    let told = bench.heard.iter().map(|(event, _)| *event);
    told.filter(|event| !matches!(event, Event::Identity { .. })).collect()
}

fn left(peer: PeerId, reason: Leave) -> Event {
    Event::Left { peer, reason }
}

/// The two sides of a join, byte for byte as captured. With a clock that has not moved the reply leaves alone.
#[test]
fn a_join_is_as_captured() {
    let own = Ipv4Addr::new(10, 10, 10, 239);
    let mut client = Stock::connect(plain(Params::default()), address(1), own, 0xA5F, &[], Time::ZERO);
    let mut buffer = [0; 512];
    client.service(Time::ZERO);
    let asked = client.poll_transmit(&mut buffer).expect("a request");
    let request = [0xFF, 1, 3, 15, 0xC0, 0, 0, 10, 10, 10, 0xEF, 0x5F, 0x0A, 0, 0, 0, 0];
    assert_eq!((asked.to, &buffer[..asked.len]), (address(1), &request[..]));

    let mut host = Stock::host(Params { granularity: millis(15), ..Params::default() });
    let mut ciphered = request;
    bcnet_transport::cipher::encrypt(&mut ciphered);
    host.handle_datagram(address(2), &ciphered, Time::ZERO);
    let mut datagrams = Vec::new();
    for frame in 0..6 {
        host.service(Time::from_micros(frame * 3000));
        while let Some(transmit) = host.poll_transmit(&mut buffer) {
            datagrams.push((frame, buffer[..transmit.len].to_vec()));
        }
    }
    let reply = vec![0x01, 0xD7, 0x33, 0x68, 0xC3, 0xBF, 0x76, 0xDB];
    assert_eq!(datagrams[0], (1, reply));
    assert_eq!((datagrams.len(), datagrams[1].0), (2, 5));
}

#[test]
fn names_are_told_to_newcomers_and_back() {
    let mut bench = Bench::host(quiet());
    let ask = |last: u8| datagram(0xFF, &[request(last, 7)]);
    bench.then(0.0, |stock, now| stock.handle_datagram(address(2), &ask(2), now));
    bench.arrive(0.1, &name(1, 2)).run(0.2);
    // The one who told it hears it too.
    let body = [2, 10, 0, 0, 2, 0x41, 0, 0, 0];
    assert_eq!(bench.sent.iter().filter(|(_, bytes)| bytes.ends_with(&control(0, 1, &body))).count(), 1);
    bench.sent.clear();
    bench.then(0.3, |stock, now| stock.handle_datagram(address(3), &ask(3), now)).run(0.31);
    let expected = datagram(1, &[ack(0, 2), control(0, 1, &body), control(3, 0, &[3])]);
    assert_eq!(bench.sent[0].1, expected);
}

#[test]
fn a_wrong_password_and_a_ban_are_told_by_a_boot() {
    let secret = vec![0x53, 0, 0x54, 0];
    let asking = |password: &[u8], params: Params| {
        let mut pair = Pair::new(quiet(), 250);
        pair.host = Bench::new(Stock::host(plain(params)), 250);
        let own = *address(2).ip();
        let client = Stock::connect(plain(quiet()), address(1), own, 7, password, Time::ZERO);
        pair.client = Bench::new(client, 250);
        pair.run(1.0);
        (events(&pair.client), pair.host.stock.peers())
    };
    let locked = Params { password: Some(secret.clone()), ..quiet() };
    let booted = |reason| vec![left(PeerId::HOST, Leave::Booted(reason))];
    assert_eq!(asking(&secret, locked.clone()), (vec![Event::Joined { peer: PEER }], vec![PEER]));
    assert_eq!(asking(&secret[..2], locked.clone()), (booted(BootReason::WRONG_PASSWORD), vec![]));
    assert_eq!(asking(&[], locked), (booted(BootReason::WRONG_PASSWORD), vec![]));
    let banned = Params { banned: vec![*address(2).ip()], ..quiet() };
    assert_eq!(asking(&[], banned), (booted(BootReason::BANNED), vec![]));
}

/// Those without an id are told apart by their address.
#[test]
fn a_stranger_that_is_turned_away_is_in_nobodys_way() {
    let mut bench = Bench::host(Params { password: Some(vec![0x53, 0]), ..quiet() });
    let ask = |last: u8, password: &[u8]| {
        datagram(0xFF, &[control(0x03, 0, &[&[10, 0, 0, last, 7, 0, 0, 0], password, &[0, 0]].concat())])
    };
    bench.stock.handle_datagram(address(2), &ask(2, &[]), Time::ZERO);
    bench.stock.handle_datagram(address(3), &ask(3, &[0x53, 0]), Time::ZERO);
    bench.step();
    assert_eq!(events(&bench), [Event::Joined { peer: PEER }]);
}

#[test]
fn ids_count_up_and_leave_out_the_reserved_one() {
    let mut bench = Bench::host(quiet());
    for last in 0..125 {
        let bytes = datagram(0xFF, &[request(100 + last, 7)]);
        bench.stock.handle_datagram(address(100 + last), &bytes, Time::ZERO);
    }
    bench.step();
    let ids: Vec<u8> = bench
        .heard
        .iter()
        .filter_map(|(event, _)| if let Event::Joined { peer } = event { Some(peer.0) } else { None })
        .collect();
    let expected: Vec<u8> = (2..=126).filter(|id| *id != 0x5C).chain([0xFF]).collect();
    assert_eq!(ids, expected);
}

#[test]
fn a_client_leaves() {
    let mut pair = Pair::joined(Params::default(), 250);
    pair.client.stock.leave(at(1.0));
    pair.run(1.1);
    assert!(pair.client.stock.is_closed() && pair.client.stock.idle());
    assert_eq!(events(&pair.client)[1..], [left(PeerId::HOST, Leave::Local)]);
    assert_eq!(events(&pair.host)[1..], [left(PEER, Leave::Disconnected)]);
    assert!(pair.host.stock.dump(PEER).is_some());
    pair.host.run(17.0);
    assert!(pair.host.stock.dump(PEER).is_none());
    let refused = pair.client.stock.send(PeerId::HOST, b"x", Quality::Reliable, at(17.0));
    assert_eq!(refused.map_err(|error| error.code()), Err(4));
}

#[test]
fn a_host_leaves_through_its_own_entry() {
    let mut pair = Pair::joined(Params::default(), 250);
    pair.host.stock.leave(at(1.0));
    pair.run(1.2);
    assert_eq!(events(&pair.client)[1..], [left(PeerId::HOST, Leave::Disconnected)]);
    assert!(pair.host.stock.is_closed() && pair.client.stock.is_closed());
}

#[test]
fn a_boot_ends_a_client() {
    let mut pair = Pair::joined(Params::default(), 250);
    assert!(pair.host.stock.boot(PEER, BootReason::KICKED, at(1.0)));
    assert!(!pair.host.stock.boot(PEER, BootReason::KICKED, at(1.0)));
    pair.run(1.2);
    let booted = Leave::Booted(BootReason::KICKED);
    assert_eq!(events(&pair.client)[1..], [left(PeerId::HOST, booted)]);
    // As captured: low number 2, kicked, peer 2.
    let boot = [0x04, 0x07, 0xC0, 2, 0, 4, 2];
    assert!(pair.host.sent.iter().any(|(_, bytes)| bytes.windows(7).any(|seven| seven == boot)));
}

#[test]
fn silence_ends_both_sides() {
    let mut pair = Pair::joined(Params::default(), 250);
    let heard = pair.client.sent.last().expect("something").0;
    pair.host.run(heard.as_micros() as f64 / 1e6 + 44.99);
    assert_eq!(events(&pair.host).len(), 1);
    pair.host.run(heard.as_micros() as f64 / 1e6 + 45.02);
    assert_eq!(events(&pair.host)[1..], [left(PEER, Leave::Silent)]);
    pair.client.run(47.0);
    assert_eq!(events(&pair.client)[1..], [left(PeerId::HOST, Leave::Silent)]);
}

/// What is owed postpones the keepalives of a host, not those of a client.
#[test]
fn acks_postpone_only_a_hosts_keepalives() {
    let mut pair = Pair::joined(Params::default(), 250);
    for second in 2..30_u16 {
        pair.run(second.into());
        pair.host.stock.inject(PEER, &game(second - 2, b"x"), at(second.into()));
        pair.client.stock.inject(PeerId::HOST, &game(second - 2, b"x"), at(second.into()));
    }
    assert_eq!(pair.host.stock.tally().keepalives, 0);
    assert_eq!(pair.client.stock.tally().keepalives, 5);
}

#[test]
fn dispatched_acks_are_traced_as_recorded() {
    let mut bench = Bench::host(Params { trace: true, ..quiet() });
    bench.arrive(0.5, &ack(0, 2)).arrive(0.5, &[1, 2, 0, 1, 1]).run(0.6);
    let lines: Vec<String> =
        std::iter::from_fn(|| bench.stock.poll_trace()).map(|ack| ack.to_string()).collect();
    let expected = [
        "[0.501] HandleACK: ack seq=0x0000 below32=1 | retxQ=0",
        "[0.501] HandleACK: ack seq=0x0002 frag=1 idx=1 below32=0 | retxQ=0",
    ];
    assert_eq!(lines, expected);
    assert_eq!(bench.stock.tally().acks_on_empty, 2);
}

#[test]
fn gamespy_text_is_told_as_it_is() {
    let mut bench = Bench::host(Params::default());
    bench.stock.handle_datagram(address(9), b"\\status\\", Time::ZERO);
    bench.step();
    assert_eq!(bench.heard, [(Event::Query { from: address(9) }, b"\\status\\".to_vec())]);
}
