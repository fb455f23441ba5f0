//! Every quirk that the engine's documentation names, by that name. Some are among the predictions.

use bcnet_lab::stock::{Backoff, Crash, Gate, Mode, Options, Params, SendError, Stock};
use bcnet_transport::wire::{Channel, Kind, PeerId, Seq};
use bcnet_transport::{Event, Leave, Quality};

use super::bench::{
    Bench, PEER, Pair, ack, address, at, control, datagram, game, millis, part, plain, quiet, request,
    unreliable, with_length,
};
use super::predictions::deliver_up_to;

const OTHER: PeerId = PeerId(3);

/// No row of the table is without a test that cites it.
#[test]
fn every_quirk_is_tested() {
    let table = include_str!("../../src/stock/mod.rs");
    let tests =
        [include_str!("quirks.rs"), include_str!("predictions.rs"), include_str!("checks.rs")].concat();
    let rows = table.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    let names: Vec<&str> = rows.filter_map(|row| row.split(" |").next()).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(tests.contains(&format!("Quirk: {name}.")), "no test cites the quirk \"{name}\"");
    }
}

/// A host that knows some peers, with nothing left to send, at 10 s.
fn host_of(peers: &[PeerId]) -> Bench {
    let mut bench = Bench::host(quiet());
    for peer in peers {
        bench.then(0.0, |stock, now| stock.inject(*peer, &[0x02], now));
    }
    bench.run(10.0);
    bench
}

fn send(bench: &mut Bench, payload: &[u8], quality: Quality) {
    bench.stock.send(PEER, payload, quality, at(10.0)).expect("known");
}

/// The bytes of each datagram without its header.
fn bodies(bench: &Bench) -> Vec<&[u8]> {
    bench.sent.iter().map(|(_, bytes)| &bytes[2..]).collect()
}

/// Quirk: one datagram.
#[test]
fn three_hundred_keepalives_leave_in_two_frames() {
    let mut bench = host_of(&[PEER]);
    let options = Options { kind: Kind::KEEPALIVE, ..Quality::Unreliable.into() };
    for _ in 0..300 {
        bench.stock.send_with(PEER, &[], options, at(10.0)).expect("known");
    }
    bench.run(10.1);
    let counts: Vec<_> = bench.sent.iter().map(|(_, bytes)| (bytes[1], bytes.len())).collect();
    assert_eq!(counts, [(255, 257), (45, 47)]);
    assert_eq!(bench.times(), [10_002, 10_005]);
}

/// Quirk: rotation.
#[test]
fn the_first_entry_is_served_last() {
    let mut bench = host_of(&[PeerId(4), PEER, OTHER]);
    bench.stock.send(PeerId::NULL, b"all", Quality::Unreliable, at(10.0)).expect("broadcast");
    bench.stock.service(at(10.002));
    let mut order = Vec::new();
    while let Some(transmit) = bench.stock.poll_transmit(&mut [0; 512]) {
        order.push(transmit.to.ip().octets()[3]);
    }
    assert_eq!(order, [3, 4, 2]);
}

/// Quirk: ACK restart.
#[test]
fn a_repeated_message_starts_its_ack_again() {
    let mut bench = Bench::host(quiet());
    for seq in 0..10 {
        bench.arrive(0.0, &game(seq, b"x"));
    }
    bench.run(5.0);
    let before = bench.stock.tally();
    assert_eq!((bench.counts(PEER), before.comparisons), (vec![3; 10], 45));
    bench.arrive(5.001, &game(9, b"x")).run(5.003);
    assert_eq!((bench.counts(PEER)[9], bench.stock.tally().comparisons), (0, 55));
    bench.run(10.0);
    // Its three new sends have let the other nine out three times.
    assert_eq!(bench.counts(PEER), [[6; 9].as_slice(), &[3]].concat());
    assert_eq!(bench.stock.tally().acks_sent - before.acks_sent, 9 * 3 + 3);
}

/// Quirk: ACK first.
#[test]
fn what_is_out_of_the_window_is_acknowledged() {
    let mut bench = Bench::host(quiet());
    bench.arrive(0.0, &game(0x9000, b"x")).run(0.1);
    assert_eq!((bench.stock.tally().duplicates, bench.payloads()), (1, vec![]));
    assert_eq!(bodies(&bench), [ack(0x9000, 0)]);
}

/// Quirk: strict clock.
#[test]
fn nothing_is_due_until_the_clock_moves() {
    let mut bench = Bench::host(Params { granularity: millis(15), ..quiet() });
    bench.arrive(0.0, &game(0, b"x")).run(0.014);
    assert!(bench.sent.is_empty());
    bench.run(0.02);
    assert_eq!(bench.times(), [15]);
}

/// Quirk: blocked clock.
#[test]
fn what_is_sent_with_an_old_clock_is_sent_again_at_once() {
    let mut bench = host_of(&[PEER]);
    bench.then(10.1, |stock, now| stock.send(PEER, b"hash", Quality::Reliable, now).expect("known"));
    bench.hold_up(1.2).run(13.0);
    assert_eq!(bench.times(), [11_301, 11_304]);
    // Without the pause it would have waited for a second.
    let mut bench = host_of(&[PEER]);
    bench.then(10.1, |stock, now| stock.send(PEER, b"hash", Quality::Reliable, now).expect("known"));
    bench.run(11.3);
    assert_eq!(bench.times(), [10_101, 11_103]);
}

/// Quirk: one retransmit.
#[test]
fn of_two_that_are_due_one_is_repeated() {
    let mut bench = host_of(&[PEER]);
    send(&mut bench, b"a", Quality::Reliable);
    send(&mut bench, b"b", Quality::Reliable);
    bench.run(11.5);
    assert_eq!(bench.times(), [10_002, 11_004, 11_007]);
    assert_eq!(bodies(&bench)[1..], [game(0, b"a"), game(1, b"b")]);
}

/// Quirk: one retransmit.
#[test]
fn one_that_does_not_fit_holds_up_those_behind_it() {
    let mut bench = host_of(&[PEER]);
    send(&mut bench, &[7; 400], Quality::Reliable);
    send(&mut bench, b"small", Quality::Reliable);
    for seq in 0..30 {
        bench.arrive(11.0, &game(seq, b"x"));
    }
    bench.run(11.005);
    let counts: Vec<u8> = bench.sent.iter().map(|(_, bytes)| bytes[1]).collect();
    // Both; then 30 ACKs beside which 405 bytes have no room.
    assert_eq!(counts, [2, 30]);
    bench.run(11.012);
    assert_eq!(bodies(&bench)[2..], [game(0, &[7; 400]), game(1, b"small")]);
}

/// Quirk: sawtooth.
#[test]
fn waits_grow_by_their_mode() {
    let modes = [
        (Mode::Fixed, 1.0, 1.0, vec![1, 2, 3, 4, 5, 6, 7]),
        (Mode::Fixed, 0.0, 2.0, vec![0, 2, 4, 6, 8, 10, 12]),
        (Mode::Linear, 1.0, 1.0, vec![1, 3, 6, 10, 15, 16, 18]),
        (Mode::Linear, 1.0, 2.0, vec![1, 4, 9, 11, 15, 17, 21]),
        (Mode::Exponential, 1.0, 1.0, vec![1, 3, 6, 11, 20, 37, 70]),
    ];
    for (mode, first, step, expected) in modes {
        let mut bench = host_of(&[PEER]);
        let backoff = Backoff { mode, first, step };
        let options = Options { backoff, ..Quality::Reliable.into() };
        bench.stock.send_with(PEER, b"x", options, at(10.0)).expect("known");
        bench.run(100.0);
        let after: Vec<u64> = bench.times()[1..8].iter().map(|time| (time - 10_002) / 1000).collect();
        assert_eq!(after, expected, "{mode:?}");
    }
}

/// Quirk: idle step.
#[test]
fn a_goodbye_is_repeated_every_second() {
    let mut pair = Pair::joined(quiet(), 250);
    pair.run(4.0);
    pair.client.sent.clear();
    pair.client.stock.leave(at(4.0));
    pair.client.run(30.0);
    let times = pair.client.times();
    assert_eq!((times.len(), pair.client.stock.is_closed()), (15, true));
    assert!(times.windows(2).all(|two| matches!(two[1] - two[0], 1000..=1008)), "{times:?}");
}

/// Quirk: age limit.
#[test]
fn after_six_minutes_a_message_is_given_up_in_silence() {
    let mut bench = host_of(&[PEER]);
    send(&mut bench, b"x", Quality::Reliable);
    bench.run(370.0);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 1);
    bench.run(370.01);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 0);
    assert_eq!((bench.stock.tally().given_up, bench.heard.len()), (1, 0));
    // Without any age limit nothing is kept at all.
    let mut bench = Bench::host(Params { age_limit: 0.0, ..quiet() });
    bench.arrive(0.0, &[0x02]).run(10.0);
    send(&mut bench, b"x", Quality::Reliable);
    bench.run(20.0);
    assert_eq!((bench.sent.len(), bench.stock.tally().given_up), (1, 0));
}

/// Quirk: head insertion.
#[test]
fn urgent_messages_leave_in_reverse() {
    let mut bench = host_of(&[PEER]);
    for (payload, quality) in [(b"a", Quality::Reliable), (b"b", Quality::Urgent), (b"c", Quality::Urgent)] {
        send(&mut bench, payload, quality);
    }
    send(&mut bench, &[7; 832], Quality::Urgent);
    bench.run(10.01);
    let sent = bodies(&bench).concat();
    let numbers: Vec<u8> =
        [0, 27, 27 + 412, 27 + 824, 27 + 824 + 6, 27 + 824 + 12].map(|at| sent[at + 3]).into();
    assert_eq!(numbers, [3, 3, 3, 2, 1, 0]);
    assert_eq!([sent[5], sent[27 + 5], sent[27 + 412 + 5]], [2, 1, 0]);
}

/// Quirk: aggregate flag.
#[test]
fn one_message_without_the_flag_goes_into_a_datagram() {
    let mut bench = host_of(&[PEER]);
    let alone = Options { aggregate: false, ..Quality::Unreliable.into() };
    for (payload, options) in
        [(b"a", alone), (b"b", alone), (b"c", Quality::Unreliable.into()), (b"d", alone), (b"e", alone)]
    {
        bench.stock.send_with(PEER, payload, options, at(10.0)).expect("known");
    }
    bench.run(10.1);
    let payloads: Vec<Vec<u8>> =
        bodies(&bench).iter().map(|body| body.chunks(4).map(|message| message[3]).collect()).collect();
    assert_eq!(payloads, [&b"ac"[..], b"b", b"d", b"e"]);
}

/// Quirk: forced reliable.
#[test]
fn a_large_unreliable_message_is_lost() {
    let mut pair = Pair::joined(quiet(), 250);
    let now = at(1.0);
    pair.host.stock.send(PEER, b"first", Quality::Reliable, now).expect("joined");
    pair.run(1.5);
    pair.host.stock.send(PEER, &[7; 500], Quality::Unreliable, at(1.5)).expect("joined");
    pair.host.stock.send(PEER, b"second", Quality::Reliable, at(1.5)).expect("joined");
    pair.run(5.0);
    assert_eq!(pair.client.payloads(), [&b"first"[..], b"second"]);
    assert_eq!(pair.host.stock.dump(PEER).expect("joined").retx, []);
    assert_eq!(pair.client.stock.tally().duplicates, 2);
}

/// Quirk: 256 parts.
#[test]
fn of_256_parts_the_first_is_taken_for_all() {
    for (len, delivered) in [(405 + 254 * 406, 405 + 254 * 406), (405 + 255 * 406, 405)] {
        let mut pair = Pair::joined(quiet(), 250);
        pair.host.stock.send(PEER, &vec![7; len], Quality::Reliable, at(1.0)).expect("joined");
        pair.run(5.0);
        let sizes: Vec<usize> = pair.client.payloads().iter().map(Vec::len).collect();
        assert_eq!(sizes, [delivered]);
    }
}

/// Quirk: pending limit.
#[test]
fn the_32768th_message_is_refused_and_takes_no_number() {
    let mut bench = host_of(&[PEER]);
    for _ in 0..0x7FFF {
        send(&mut bench, b"", Quality::Unreliable);
    }
    let refused = bench.stock.send(PEER, b"x", Quality::Reliable, at(10.0));
    assert_eq!(refused, Err(SendError::TooManyPending));
    assert_eq!(SendError::TooManyPending.code(), 10);
    bench.run(20.0);
    bench.then(20.001, |stock, now| stock.send(PEER, b"x", Quality::Reliable, now).expect("room")).run(20.1);
    assert_eq!(bodies(&bench).last(), Some(&&game(0, b"x")[..]));
}

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
    assert_eq!(
        bench.heard,
        [(Event::Received { peer: OTHER, channel: Channel::Game, reliable: true }, b"mine yours".to_vec())]
    );
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
        bench.heard.iter().all(|(event, _)| *event
            == Event::Received { peer: PeerId(9), channel: Channel::Game, reliable: true })
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

/// Quirk: own entry.
#[test]
fn a_host_is_never_silent_to_itself() {
    let mut bench = Bench::host(Params::default());
    bench.then(0.0, |stock, now| stock.identify(&[0x41, 0], now)).run(100.0);
    assert_eq!((bench.stock.tally().keepalives, bench.counts(PeerId::HOST)), (0, vec![3]));
    assert!(bench.sent.is_empty() && bench.stock.peers().is_empty());
    // A newcomer is told about it as about anyone.
    let connect = datagram(0xFF, &[request(2, 7)]);
    bench.then(100.1, |stock, now| stock.handle_datagram(address(2), &connect, now)).run(100.11);
    let about_host = control(0x00, 1, &[1, 127, 0, 0, 1, 0x41, 0, 0, 0]);
    assert_eq!(bodies(&bench)[0], [ack(0, 2), about_host, control(0x03, 0, &[2])].concat());
}
