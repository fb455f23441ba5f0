//! Tests of the quirks that the documentation of `stock` lists, by name.
//!
//! Some quirks are tested in `predictions` and `checks`; quirks of received messages are in `arrivals`.

use bcnet_lab::stock::{Backoff, BackoffMode, Params, SendOptions, StockSendError};
use bcnet_transport::DeliveryMode;
use bcnet_transport::wire::{Kind, PeerId};

use super::harness::{
    PEER, StockHarness, StockPair, ack, address, at, control, datagram, game, millis, request, without_timers,
};

pub(crate) const OTHER_PEER: PeerId = PeerId(3);

/// Every row of the table has a test that cites it.
#[test]
fn every_quirk_is_tested() {
    let table = include_str!("../../src/stock/mod.rs");
    let tests = [
        include_str!("quirks.rs"),
        include_str!("arrivals.rs"),
        include_str!("predictions.rs"),
        include_str!("checks.rs"),
    ]
    .concat();
    let rows = table.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    let names: Vec<&str> = rows.filter_map(|row| row.split(" |").next()).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(tests.contains(&format!("Quirk: {name}.")), "no test cites the quirk \"{name}\"");
    }
}

/// Returns a host that knows some peers and has nothing left to send, at 10 s.
pub(crate) fn host_with_peers(peers: &[PeerId]) -> StockHarness {
    let mut bench = StockHarness::host(without_timers());
    for peer in peers {
        bench.run_before(0.0, |stock, now| stock.inject(*peer, &[0x02], now));
    }
    bench.run(10.0);
    bench
}

pub(crate) fn send(bench: &mut StockHarness, payload: &[u8], quality: DeliveryMode) {
    bench.stock.send(PEER, payload, quality, at(10.0)).expect("known");
}

/// Returns the bytes of each datagram without its header.
pub(crate) fn datagram_bodies(bench: &StockHarness) -> Vec<&[u8]> {
    bench.sent.iter().map(|(_, bytes)| &bytes[2..]).collect()
}

/// Quirk: one datagram.
#[test]
fn three_hundred_keepalives_leave_in_two_frames() {
    let mut bench = host_with_peers(&[PEER]);
    let options = SendOptions { kind: Kind::KEEPALIVE, ..DeliveryMode::Unreliable.into() };
    for _ in 0..300 {
        bench.stock.send_with_options(PEER, &[], options, at(10.0)).expect("known");
    }
    bench.run(10.1);
    let counts: Vec<_> = bench.sent.iter().map(|(_, bytes)| (bytes[1], bytes.len())).collect();
    assert_eq!(counts, [(255, 257), (45, 47)]);
    assert_eq!(bench.send_times_ms(), [10_002, 10_005]);
}

/// Sends a message to all peers. Returns the last byte of each destination address, in order.
fn broadcast_order(bench: &mut StockHarness, time: f64) -> Vec<u8> {
    bench.stock.send(PeerId::NULL, b"all", DeliveryMode::Unreliable, at(time)).expect("broadcast");
    bench.stock.run_frame(at(time + 0.002));
    let sent = std::iter::from_fn(|| bench.stock.poll_transmit(&mut [0; 512]));
    sent.map(|transmit| transmit.to.ip().octets()[3]).collect()
}

/// Quirk: rotation.
#[test]
fn the_first_entry_is_served_last() {
    let mut bench = host_with_peers(&[PeerId(4), PEER, OTHER_PEER]);
    assert_eq!(broadcast_order(&mut bench, 10.0), [3, 4, 2]);
}

/// Quirk: deaf socket.
#[test]
fn unwritable_peer_is_skipped_and_served_first_next_pass() {
    let mut bench = host_with_peers(&[PeerId(4), PEER, OTHER_PEER]);
    bench.stock.set_writable(Some(PEER), false);
    assert_eq!(broadcast_order(&mut bench, 10.0), [3, 4]);
    assert_eq!(bench.stock.queue_lengths(PEER).map(|waiting| waiting.first), Some(1));
    bench.stock.set_writable(Some(PEER), true);
    assert_eq!(
        broadcast_order(&mut bench, 11.0),
        [2, 3, 4],
        "the pass must start after the entry that was served last"
    );
    assert_eq!(bench.stock.queue_lengths(PEER).map(|waiting| waiting.first), Some(0));
    bench.stock.set_writable(None, false);
    assert_eq!(broadcast_order(&mut bench, 12.0), [0; 0]);
}

/// Quirk: ACK restart.
#[test]
fn duplicate_message_restarts_its_ack() {
    let mut bench = StockHarness::host(without_timers());
    for seq in 0..10 {
        bench.inject_at(0.0, &game(seq, b"x"));
    }
    bench.run(5.0);
    let before = bench.stock.stock_counters();
    assert_eq!((bench.ack_send_counts(PEER), before.comparisons), (vec![3; 10], 45));
    bench.inject_at(5.001, &game(9, b"x")).run(5.003);
    assert_eq!((bench.ack_send_counts(PEER)[9], bench.stock.stock_counters().comparisons), (0, 55));
    bench.run(10.0);
    // The three new sends of this ACK opened the gate three times for the other nine.
    assert_eq!(bench.ack_send_counts(PEER), [[6; 9].as_slice(), &[3]].concat());
    assert_eq!(bench.stock.stock_counters().acks_sent - before.acks_sent, 9 * 3 + 3);
}

/// Quirk: ACK first.
#[test]
fn message_outside_the_window_is_acknowledged() {
    let mut bench = StockHarness::host(without_timers());
    bench.inject_at(0.0, &game(0x9000, b"x")).run(0.1);
    assert_eq!((bench.stock.stock_counters().duplicates, bench.payloads()), (1, vec![]));
    assert_eq!(datagram_bodies(&bench), [ack(0x9000, 0)]);
}

/// Quirk: strict clock.
#[test]
fn ack_is_not_due_until_the_clock_moves() {
    let mut bench = StockHarness::host(Params { granularity: millis(15), ..without_timers() });
    bench.inject_at(0.0, &game(0, b"x")).run(0.014);
    assert!(bench.sent.is_empty());
    bench.run(0.02);
    assert_eq!(bench.send_times_ms(), [15]);
}

/// Quirk: blocked clock.
#[test]
fn message_sent_with_a_stale_clock_is_retransmitted_at_once() {
    let mut bench = host_with_peers(&[PEER]);
    bench.run_before(10.1, |stock, now| {
        stock.send(PEER, b"hash", DeliveryMode::Reliable, now).expect("known")
    });
    bench.run_blocked_frame(1.2).run(13.0);
    assert_eq!(bench.send_times_ms(), [11_301, 11_304]);
    // Without the pause, the retransmission would come a second later.
    let mut bench = host_with_peers(&[PEER]);
    bench.run_before(10.1, |stock, now| {
        stock.send(PEER, b"hash", DeliveryMode::Reliable, now).expect("known")
    });
    bench.run(11.3);
    assert_eq!(bench.send_times_ms(), [10_101, 11_103]);
}

/// Quirk: one retransmit.
#[test]
fn one_of_two_due_messages_is_retransmitted_per_frame() {
    let mut bench = host_with_peers(&[PEER]);
    send(&mut bench, b"a", DeliveryMode::Reliable);
    send(&mut bench, b"b", DeliveryMode::Reliable);
    bench.run(11.5);
    assert_eq!(bench.send_times_ms(), [10_002, 11_004, 11_007]);
    assert_eq!(datagram_bodies(&bench)[1..], [game(0, b"a"), game(1, b"b")]);
}

/// Quirk: one retransmit.
#[test]
fn due_message_that_does_not_fit_blocks_later_ones() {
    let mut bench = host_with_peers(&[PEER]);
    send(&mut bench, &[7; 400], DeliveryMode::Reliable);
    send(&mut bench, b"small", DeliveryMode::Reliable);
    for seq in 0..30 {
        bench.inject_at(11.0, &game(seq, b"x"));
    }
    bench.run(11.005);
    let counts: Vec<u8> = bench.sent.iter().map(|(_, bytes)| bytes[1]).collect();
    // The first datagram has both messages. The second has 30 ACKs, which leave no space for 405 bytes.
    assert_eq!(counts, [2, 30]);
    bench.run(11.012);
    assert_eq!(datagram_bodies(&bench)[2..], [game(0, &[7; 400]), game(1, b"small")]);
}

/// Quirk: sawtooth.
#[test]
fn retransmit_wait_grows_by_backoff_mode() {
    let modes = [
        (BackoffMode::Fixed, 1.0, 1.0, vec![1, 2, 3, 4, 5, 6, 7]),
        (BackoffMode::Fixed, 0.0, 2.0, vec![0, 2, 4, 6, 8, 10, 12]),
        (BackoffMode::Linear, 1.0, 1.0, vec![1, 3, 6, 10, 15, 16, 18]),
        (BackoffMode::Linear, 1.0, 2.0, vec![1, 4, 9, 11, 15, 17, 21]),
        (BackoffMode::Exponential, 1.0, 1.0, vec![1, 3, 6, 11, 20, 37, 70]),
    ];
    for (mode, first, step, expected) in modes {
        let mut bench = host_with_peers(&[PEER]);
        let backoff = Backoff { mode, first, step };
        let options = SendOptions { backoff, ..DeliveryMode::Reliable.into() };
        bench.stock.send_with_options(PEER, b"x", options, at(10.0)).expect("known");
        bench.run(100.0);
        let after: Vec<u64> = bench.send_times_ms()[1..8].iter().map(|time| (time - 10_002) / 1000).collect();
        assert_eq!(after, expected, "{mode:?}");
    }
}

/// Quirk: idle step.
#[test]
fn disconnect_notice_is_retransmitted_every_second() {
    let mut pair = StockPair::joined(without_timers(), 250);
    pair.run(4.0);
    pair.client.sent.clear();
    pair.client.stock.leave(at(4.0));
    pair.client.run(30.0);
    let times = pair.client.send_times_ms();
    assert_eq!((times.len(), pair.client.stock.is_closed()), (15, true));
    assert!(times.windows(2).all(|two| matches!(two[1] - two[0], 1000..=1008)), "{times:?}");
}

/// Quirk: age limit.
#[test]
fn message_is_dropped_silently_after_six_minutes() {
    let mut bench = host_with_peers(&[PEER]);
    send(&mut bench, b"x", DeliveryMode::Reliable);
    bench.run(370.0);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 1);
    bench.run(370.01);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 0);
    assert_eq!((bench.stock.stock_counters().given_up, bench.events.len()), (1, 0));
    // With an age limit of zero, no message is kept for retransmission.
    let mut bench = StockHarness::host(Params { age_limit: 0.0, ..without_timers() });
    bench.inject_at(0.0, &[0x02]).run(10.0);
    send(&mut bench, b"x", DeliveryMode::Reliable);
    bench.run(20.0);
    assert_eq!((bench.sent.len(), bench.stock.stock_counters().given_up), (1, 0));
}

/// Quirk: head insertion.
#[test]
fn urgent_messages_are_sent_in_reverse_order() {
    let mut bench = host_with_peers(&[PEER]);
    for (payload, quality) in
        [(b"a", DeliveryMode::Reliable), (b"b", DeliveryMode::Urgent), (b"c", DeliveryMode::Urgent)]
    {
        send(&mut bench, payload, quality);
    }
    send(&mut bench, &[7; 832], DeliveryMode::Urgent);
    bench.run(10.01);
    let sent = datagram_bodies(&bench).concat();
    let numbers: Vec<u8> =
        [0, 27, 27 + 412, 27 + 824, 27 + 824 + 6, 27 + 824 + 12].map(|at| sent[at + 3]).into();
    assert_eq!(numbers, [3, 3, 3, 2, 1, 0]);
    assert_eq!([sent[5], sent[27 + 5], sent[27 + 412 + 5]], [2, 1, 0]);
}

/// Quirk: aggregate flag.
#[test]
fn datagram_holds_one_message_without_the_aggregate_flag() {
    let mut bench = host_with_peers(&[PEER]);
    let alone = SendOptions { aggregate: false, ..DeliveryMode::Unreliable.into() };
    for (payload, options) in
        [(b"a", alone), (b"b", alone), (b"c", DeliveryMode::Unreliable.into()), (b"d", alone), (b"e", alone)]
    {
        bench.stock.send_with_options(PEER, payload, options, at(10.0)).expect("known");
    }
    bench.run(10.1);
    let payloads: Vec<Vec<u8>> = datagram_bodies(&bench)
        .iter()
        .map(|body| body.chunks(4).map(|message| message[3]).collect())
        .collect();
    assert_eq!(payloads, [&b"ac"[..], b"b", b"d", b"e"]);
}

/// Quirk: forced reliable.
#[test]
fn a_large_unreliable_message_is_lost() {
    let mut pair = StockPair::joined(without_timers(), 250);
    let now = at(1.0);
    pair.host.stock.send(PEER, b"first", DeliveryMode::Reliable, now).expect("joined");
    pair.run(1.5);
    pair.host.stock.send(PEER, &[7; 500], DeliveryMode::Unreliable, at(1.5)).expect("joined");
    pair.host.stock.send(PEER, b"second", DeliveryMode::Reliable, at(1.5)).expect("joined");
    pair.run(5.0);
    assert_eq!(pair.client.payloads(), [&b"first"[..], b"second"]);
    assert_eq!(pair.host.stock.dump(PEER).expect("joined").retx, []);
    assert_eq!(pair.client.stock.stock_counters().duplicates, 2);
}

/// Quirk: 256 fragments.
#[test]
fn first_of_256_fragments_is_delivered_as_the_whole() {
    for (len, delivered) in [(405 + 254 * 406, 405 + 254 * 406), (405 + 255 * 406, 405)] {
        let mut pair = StockPair::joined(without_timers(), 250);
        pair.host.stock.send(PEER, &vec![7; len], DeliveryMode::Reliable, at(1.0)).expect("joined");
        pair.run(5.0);
        let sizes: Vec<usize> = pair.client.payloads().iter().map(Vec::len).collect();
        assert_eq!(sizes, [delivered]);
    }
}

/// Quirk: pending limit.
#[test]
fn message_32768_is_refused_and_takes_no_sequence_number() {
    let mut bench = host_with_peers(&[PEER]);
    for _ in 0..0x7FFF {
        send(&mut bench, b"", DeliveryMode::Unreliable);
    }
    let refused = bench.stock.send(PEER, b"x", DeliveryMode::Reliable, at(10.0));
    assert_eq!(refused, Err(StockSendError::TooManyPending));
    assert_eq!(StockSendError::TooManyPending.code(), 10);
    bench.run(20.0);
    bench
        .run_before(20.001, |stock, now| stock.send(PEER, b"x", DeliveryMode::Reliable, now).expect("room"))
        .run(20.1);
    assert_eq!(datagram_bodies(&bench).last(), Some(&&game(0, b"x")[..]));
}

/// Quirk: own entry.
#[test]
fn own_entry_of_a_host_has_no_keepalives_or_timeout() {
    let mut bench = StockHarness::host(Params::default());
    bench.run_before(0.0, |stock, now| stock.identify(&[0x41, 0], now)).run(100.0);
    assert_eq!((bench.stock.stock_counters().keepalives, bench.ack_send_counts(PeerId::HOST)), (0, vec![3]));
    assert!(bench.sent.is_empty() && bench.stock.peers().is_empty());
    // A client that joins is told about the host's own entry as about any peer.
    let connect = datagram(0xFF, &[request(2, 7)]);
    bench.run_before(100.1, |stock, now| stock.handle_datagram(address(2), &connect, now)).run(100.11);
    let about_host = control(0x00, 1, &[1, 127, 0, 0, 1, 0x41, 0, 0, 0]);
    assert_eq!(datagram_bodies(&bench)[0], [ack(0, 2), about_host, control(0x03, 0, &[2])].concat());
}
