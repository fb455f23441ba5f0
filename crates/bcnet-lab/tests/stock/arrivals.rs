//! The quirks of what arrives, by name: order, parts, peers, malformed messages.

use bcnet_lab::stock::{Crash, Gate, Params, Stock};
use bcnet_transport::wire::{Kind, PeerId, Seq};
use bcnet_transport::{Event, Leave, Quality};

use super::bench::{
    Bench, PEER, ack, address, at, control, datagram, game, part, plain, quiet, request, unreliable,
    with_length,
};
use super::predictions::deliver_up_to;

use super::quirks::{OTHER, bodies, host_of, send};

/// Quirk: wrap leftover.
#[test]
fn a_queued_duplicate_of_the_last_number_comes_a_cycle_later() {
    let mut bench = Bench::new(Stock::host(plain(Params { gate: Gate::Always, ..quiet() })), 1);
    deliver_up_to(&mut bench, 0xFFFF);
    bench.stock.inject(PEER, &game(0xFFFF, b"one"), at(0.0));
    bench.stock.inject(PEER, &game(0xFFFF, b"two"), at(0.0));
    bench.step();
    assert_eq!(bench.payloads().last(), Some(&b"one".to_vec()));
    for seq in 0..0xFFFF {
        bench.stock.inject(PEER, &game(seq, b"x"), at(0.0));
        if seq % 64 == 63 {
            (0..10).for_each(|_| bench.step());
        }
    }
    bench.step();
    assert_eq!(bench.payloads().last(), Some(&b"two".to_vec()));
}

/// Quirk: sender-blind parts.
#[test]
fn parts_of_two_senders_are_joined() {
    let mut bench = host_of(&[PEER, OTHER]);
    bench.then(10.1, |stock, now| stock.inject(PEER, &part(0, 0, 2, b"mine "), now));
    bench.then(10.1, |stock, now| stock.inject(OTHER, &part(0, 1, 0, b"yours"), now)).run(10.2);
    assert_eq!(bench.heard, [(Event::Received { peer: OTHER, reliable: true }, b"mine yours".to_vec())]);
}

/// Quirk: hold-back.
#[test]
fn an_incomplete_message_stops_everyone_behind_it() {
    let mut bench = host_of(&[PEER, OTHER]);
    bench.then(10.1, |stock, now| stock.inject(PEER, &part(0, 0, 2, b"in"), now));
    bench.then(10.1, |stock, now| stock.inject(OTHER, &game(0, b"waits"), now));
    bench.then(10.1, |stock, now| stock.inject(OTHER, &unreliable(b"passes"), now)).run(20.0);
    assert_eq!(bench.payloads(), [b"passes"]);
    bench.arrive(20.1, &part(0, 1, 0, b"complete")).run(20.2);
    assert_eq!(bench.payloads(), [&b"passes"[..], b"waits", b"incomplete"]);
}

/// Quirk: unreliable first.
#[test]
fn what_arrived_earlier_goes_first_and_else_the_unreliable() {
    let mut bench = host_of(&[PEER, OTHER]);
    bench.then(10.1, |stock, now| stock.inject(PEER, &part(0, 0, 2, b"in"), now));
    bench.then(10.1, |stock, now| stock.inject(OTHER, &game(0, b"early"), now));
    bench.arrive(20.1, &part(0, 1, 0, b"complete")).arrive(20.1, &unreliable(b"now")).run(20.2);
    assert_eq!(bench.payloads(), [&b"early"[..], b"now", b"incomplete"]);
}

/// The base class has a buffer of 1024 bytes, and with it a limit of 924 for one message.
#[test]
fn a_larger_buffer_holds_larger_messages() {
    for (payload, sizes) in [(919, vec![926]), (920, vec![2 + 924 + 6 + 3])] {
        let mut bench = Bench::host(Params { buffer: 1024, ..quiet() });
        bench.arrive(0.0, &[0x02]).run(10.0);
        send(&mut bench, &vec![7; payload], Quality::Reliable);
        bench.run(10.1);
        assert_eq!(bench.sent.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), sizes);
    }
}

/// Quirk: missing part.
#[test]
fn parts_with_a_gap_among_them_end_the_program() {
    let mut bench = host_of(&[PEER]);
    bench.arrive(10.1, &part(6, 0, 2, b"a")).arrive(10.1, &part(6, 5, 2, b"b")).run(10.2);
    assert_eq!(bench.stock.crash(), Some(Crash::MissingPart { seq: Seq(6), index: 1 }));
    assert!(bench.stock.idle());
}

/// Quirk: urgent arrival.
#[test]
fn an_urgent_arrival_goes_behind_a_head_that_is_not() {
    let urgent = |payload: &[u8]| with_length(0x32, 0x4000, &[], payload);
    let mut bench = host_of(&[PEER]);
    bench.arrive(10.1, &unreliable(b"a")).arrive(10.1, &urgent(b"b")).arrive(10.1, &urgent(b"c")).run(10.2);
    assert_eq!(bench.payloads(), [b"a", b"c", b"b"]);
    let mut bench = host_of(&[PEER]);
    bench.arrive(10.1, &urgent(b"b")).arrive(10.1, &urgent(b"c")).arrive(10.1, &unreliable(b"a")).run(10.2);
    assert_eq!(bench.payloads(), [b"b", b"c", b"a"]);
}

/// Quirk: mixed ACK.
#[test]
fn an_ack_of_a_part_clears_no_whole_message() {
    let mut bench = host_of(&[PEER]);
    send(&mut bench, b"x", Quality::Reliable);
    bench.run(10.1);
    bench.arrive(10.2, &[0x01, 0, 0, 1, 0]).arrive(10.2, &ack(0, 2)).run(10.3);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 1);
    bench.arrive(10.4, &ack(0, 0)).run(10.5);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 0);
    assert_eq!((bench.stock.tally().acks_useful, bench.stock.tally().acks_useless), (1, 2));
}

/// Quirk: unknown id.
#[test]
fn an_unknown_id_makes_a_peer_wherever_it_comes_from() {
    let mut bench = Bench::host(quiet());
    for (last, seq) in [(7, 0), (8, 1)] {
        let bytes = datagram(9, &[game(seq, &[last])]);
        bench.then(0.1, |stock, now| stock.handle_datagram(address(last), &bytes, now));
    }
    bench.run(0.2);
    assert_eq!(bench.payloads(), [[7], [8]]);
    assert!(
        bench.heard.iter().all(|(event, _)| *event == Event::Received { peer: PeerId(9), reliable: true })
    );
    assert_eq!(bench.stock.peers(), [PeerId(9)]);
}

/// Lets requests, each with an own address and a nonce, come from one address.
fn requests(asked: &[(u8, u32)]) -> Bench {
    let mut bench = Bench::host(quiet());
    for (turn, (own, nonce)) in asked.iter().enumerate() {
        let bytes = datagram(0xFF, &[request(*own, *nonce)]);
        bench.then(turn as f64, |stock, now| stock.handle_datagram(address(2), &bytes, now));
    }
    bench.run(asked.len() as f64);
    bench
}

/// Quirk: nonce.
#[test]
fn a_nonce_tells_a_repeated_request_from_a_new_one() {
    let joined = |peer| (Event::Joined { peer }, vec![]);
    let left = (Event::Left { peer: PEER, reason: Leave::Replaced }, vec![]);
    assert_eq!(requests(&[(2, 7), (2, 7)]).heard, [joined(PEER)]);
    assert_eq!(requests(&[(2, 7), (2, 8)]).heard, [joined(PEER), left, joined(OTHER)]);
    let two = requests(&[(2, 7), (3, 8)]);
    assert_eq!(two.heard, [joined(PEER), joined(OTHER)]);
    assert_eq!(two.stock.peers(), [PEER, OTHER]);
}

/// Quirk: ports by address.
#[test]
fn two_players_behind_one_address_share_its_last_port() {
    let mut bench = Bench::host(quiet());
    for (id, port) in [(2, 5001), (3, 5002)] {
        let mut from = address(9);
        from.set_port(port);
        bench.stock.handle_datagram(from, &datagram(id, &[vec![0x02]]), at(0.0));
    }
    bench.step();
    bench.stock.send(PEER, b"x", Quality::Unreliable, at(0.001)).expect("known");
    bench.stock.service(at(0.003));
    let transmit = bench.stock.poll_transmit(&mut [0; 512]).expect("sent");
    assert_eq!(transmit.to.port(), 5002);
}

/// Quirk: linger.
#[test]
fn a_leaver_is_acknowledged_until_it_is_forgotten() {
    for (linger, sends) in [(15.0, 9), (4.5, 7), (4.0, 6)] {
        let mut bench = Bench::host(Params { linger, ..quiet() });
        bench.arrive(0.0, &control(0x05, 0, &[2, 10, 0, 0, 2])).run(20.0);
        assert_eq!(bench.sent.len(), sends, "with {linger} s");
        assert!(bodies(&bench).iter().all(|body| *body == ack(0, 2)));
        assert_eq!(bench.stock.dump(PEER), None);
    }
}

/// Quirk: unknown type.
#[test]
fn an_unknown_type_leaves_the_rest_for_the_next_frame() {
    let mut bench = host_of(&[PEER]);
    let from = address(2);
    let good = |payload: &[u8]| datagram(2, &[unreliable(payload)]);
    let bad = datagram(2, &[vec![0x40], unreliable(b"lost")]);
    for bytes in [good(b"before"), bad, good(b"after")] {
        bench.stock.handle_datagram(from, &bytes, at(10.0));
    }
    bench.step();
    assert_eq!(bench.payloads(), [b"before"]);
    bench.step();
    assert_eq!(bench.payloads(), [&b"before"[..], b"after"]);
    assert_eq!(bench.stock.tally().aborted, 1);
}

/// Quirk: recomputed size.
/// Quirk: missing flag.
#[test]
fn a_low_message_without_the_reliable_bit_is_passed_over_two_bytes_short() {
    let mut bench = host_of(&[PEER]);
    let odd = with_length(0x00, 0x4000, &[0, 0], &[2, 10, 0, 0, 2, 0x41, 0, 0, 0, 0x02, 0x02]);
    let bytes = datagram(2, &[odd, vec![], vec![], unreliable(b"x")]);
    bench.stock.handle_datagram(address(2), &bytes, at(10.0));
    bench.run(10.1);
    // Its last two bytes were read as two keepalives.
    assert_eq!(bench.payloads(), [b"x"]);
    assert!(
        bench.heard.iter().any(|(event, name)| matches!(event, Event::Identity { .. }) && name == b"A\0")
    );
}

/// Quirk: undersized.
#[test]
fn a_message_smaller_than_its_header_ends_the_program() {
    let messages: [(&[u8], u16); 5] = [
        (&[0x00, 0, 0], 0),
        (&[0x05, 4, 0xC0, 0, 0], 4),
        (&[0x04, 5, 0xC0, 0, 0], 5),
        (&[0x32, 4, 0x80, 0, 0], 4),
        (&[0x32, 0, 0], 0),
    ];
    for (message, size) in messages {
        let mut bench = host_of(&[PEER]);
        bench.arrive(10.1, message).arrive(10.1, &unreliable(b"x")).run(10.2);
        assert_eq!(bench.stock.crash(), Some(Crash::Undersized { kind: Kind(message[0]), size }));
        assert!(bench.payloads().is_empty() && bench.stock.idle());
    }
}

/// Quirk: over-read.
#[test]
fn behind_the_end_there_are_zeros() {
    let mut bench = host_of(&[PEER]);
    bench.arrive(10.1, &[0x32, 8, 0, b'x']).run(10.2);
    assert_eq!(bench.payloads(), [b"x\0\0\0\0"]);
    // A message that is not there at all is of type 0 and size 0.
    bench.stock.handle_datagram(address(2), &[2, 2, 0x02], at(10.3));
    bench.run(10.4);
    assert_eq!(bench.stock.crash(), Some(Crash::Undersized { kind: Kind(0), size: 0 }));
}
