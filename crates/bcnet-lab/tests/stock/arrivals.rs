//! Quirks of received messages, by name: order, fragments, peers, malformed messages.

use bcnet_lab::stock::{AckGate, Crash, Params, StockEngine};
use bcnet_transport::wire::{Kind, PeerId, Seq};
use bcnet_transport::{DeliveryMode, Event, LeaveReason};

use super::harness::{
    PEER, StockHarness, ack, address, at, control, datagram, game, part, request, unreliable, with_length,
    without_cipher, without_timers,
};
use super::predictions::deliver_up_to;

use super::quirks::{OTHER_PEER, datagram_bodies, host_with_peers, send};

/// Quirk: wrap leftover.
#[test]
fn queued_duplicate_of_seq_65535_is_delivered_a_cycle_later() {
    let mut bench = StockHarness::new(
        StockEngine::host(without_cipher(Params { gate: AckGate::Always, ..without_timers() })),
        1,
    );
    deliver_up_to(&mut bench, 0xFFFF);
    bench.stock.inject(PEER, &game(0xFFFF, b"one"), at(0.0));
    bench.stock.inject(PEER, &game(0xFFFF, b"two"), at(0.0));
    bench.run_frame();
    assert_eq!(bench.payloads().last(), Some(&b"one".to_vec()));
    for seq in 0..0xFFFF {
        bench.stock.inject(PEER, &game(seq, b"x"), at(0.0));
        if seq % 64 == 63 {
            (0..10).for_each(|_| bench.run_frame());
        }
    }
    bench.run_frame();
    assert_eq!(bench.payloads().last(), Some(&b"two".to_vec()));
}

/// Quirk: sender-blind fragments.
#[test]
fn fragments_of_two_senders_are_reassembled() {
    let mut bench = host_with_peers(&[PEER, OTHER_PEER]);
    bench.run_before(10.1, |stock, now| stock.inject(PEER, &part(0, 0, 2, b"mine "), now));
    bench.run_before(10.1, |stock, now| stock.inject(OTHER_PEER, &part(0, 1, 0, b"yours"), now)).run(10.2);
    assert_eq!(
        bench.events,
        [(Event::Received { peer: OTHER_PEER, reliable: true }, b"mine yours".to_vec())]
    );
}

/// Quirk: hold-back.
#[test]
fn incomplete_message_blocks_all_senders_behind_it() {
    let mut bench = host_with_peers(&[PEER, OTHER_PEER]);
    bench.run_before(10.1, |stock, now| stock.inject(PEER, &part(0, 0, 2, b"in"), now));
    bench.run_before(10.1, |stock, now| stock.inject(OTHER_PEER, &game(0, b"waits"), now));
    bench.run_before(10.1, |stock, now| stock.inject(OTHER_PEER, &unreliable(b"passes"), now)).run(20.0);
    assert_eq!(bench.payloads(), [b"passes"]);
    bench.inject_at(20.1, &part(0, 1, 0, b"complete")).run(20.2);
    assert_eq!(bench.payloads(), [&b"passes"[..], b"waits", b"incomplete"]);
}

/// Quirk: unreliable first.
#[test]
fn earlier_arrival_is_delivered_first_then_unreliable() {
    let mut bench = host_with_peers(&[PEER, OTHER_PEER]);
    bench.run_before(10.1, |stock, now| stock.inject(PEER, &part(0, 0, 2, b"in"), now));
    bench.run_before(10.1, |stock, now| stock.inject(OTHER_PEER, &game(0, b"early"), now));
    bench.inject_at(20.1, &part(0, 1, 0, b"complete")).inject_at(20.1, &unreliable(b"now")).run(20.2);
    assert_eq!(bench.payloads(), [&b"early"[..], b"now", b"incomplete"]);
}

/// The base class has a buffer of 1024 bytes, so the limit for one message is 924.
#[test]
fn a_larger_buffer_holds_larger_messages() {
    for (payload, sizes) in [(919, vec![926]), (920, vec![2 + 924 + 6 + 3])] {
        let mut bench = StockHarness::host(Params { buffer: 1024, ..without_timers() });
        bench.inject_at(0.0, &[0x02]).run(10.0);
        send(&mut bench, &vec![7; payload], DeliveryMode::Reliable);
        bench.run(10.1);
        assert_eq!(bench.sent.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), sizes);
    }
}

/// Quirk: missing fragment.
#[test]
fn fragments_with_a_gap_crash_the_engine() {
    let mut bench = host_with_peers(&[PEER]);
    bench.inject_at(10.1, &part(6, 0, 2, b"a")).inject_at(10.1, &part(6, 5, 2, b"b")).run(10.2);
    assert_eq!(bench.stock.crash(), Some(Crash::MissingFragment { seq: Seq(6), index: 1 }));
    assert!(bench.stock.is_idle());
}

/// Quirk: urgent arrival.
#[test]
fn urgent_arrival_queues_behind_a_non_urgent_head() {
    let urgent = |payload: &[u8]| with_length(0x32, 0x4000, &[], payload);
    let mut bench = host_with_peers(&[PEER]);
    bench
        .inject_at(10.1, &unreliable(b"a"))
        .inject_at(10.1, &urgent(b"b"))
        .inject_at(10.1, &urgent(b"c"))
        .run(10.2);
    assert_eq!(bench.payloads(), [b"a", b"c", b"b"]);
    let mut bench = host_with_peers(&[PEER]);
    bench
        .inject_at(10.1, &urgent(b"b"))
        .inject_at(10.1, &urgent(b"c"))
        .inject_at(10.1, &unreliable(b"a"))
        .run(10.2);
    assert_eq!(bench.payloads(), [b"b", b"c", b"a"]);
}

/// Quirk: mixed ACK.
#[test]
fn fragment_ack_does_not_clear_a_whole_message() {
    let mut bench = host_with_peers(&[PEER]);
    send(&mut bench, b"x", DeliveryMode::Reliable);
    bench.run(10.1);
    bench.inject_at(10.2, &[0x01, 0, 0, 1, 0]).inject_at(10.2, &ack(0, 2)).run(10.3);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 1);
    bench.inject_at(10.4, &ack(0, 0)).run(10.5);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 0);
    assert_eq!((bench.stock.stock_counters().acks_useful, bench.stock.stock_counters().acks_useless), (1, 2));
}

/// Quirk: unknown id.
#[test]
fn unknown_id_creates_a_peer_from_any_address() {
    let mut bench = StockHarness::host(without_timers());
    for (last, seq) in [(7, 0), (8, 1)] {
        let bytes = datagram(9, &[game(seq, &[last])]);
        bench.run_before(0.1, |stock, now| stock.handle_datagram(address(last), &bytes, now));
    }
    bench.run(0.2);
    assert_eq!(bench.payloads(), [[7], [8]]);
    assert!(
        bench.events.iter().all(|(event, _)| *event == Event::Received { peer: PeerId(9), reliable: true })
    );
    assert_eq!(bench.stock.peers(), [PeerId(9)]);
}

/// Returns a host that received requests from one address, each with an own address and a nonce.
fn host_after_requests(requests: &[(u8, u32)]) -> StockHarness {
    let mut bench = StockHarness::host(without_timers());
    for (turn, (own, nonce)) in requests.iter().enumerate() {
        let bytes = datagram(0xFF, &[request(*own, *nonce)]);
        bench.run_before(turn as f64, |stock, now| stock.handle_datagram(address(2), &bytes, now));
    }
    bench.run(requests.len() as f64);
    bench
}

/// Quirk: nonce.
#[test]
fn nonce_distinguishes_duplicate_from_new_request() {
    let joined = |peer| (Event::Joined { peer }, vec![]);
    let left = (Event::Left { peer: PEER, reason: LeaveReason::Replaced }, vec![]);
    assert_eq!(host_after_requests(&[(2, 7), (2, 7)]).events, [joined(PEER)]);
    assert_eq!(host_after_requests(&[(2, 7), (2, 8)]).events, [joined(PEER), left, joined(OTHER_PEER)]);
    let two = host_after_requests(&[(2, 7), (3, 8)]);
    assert_eq!(two.events, [joined(PEER), joined(OTHER_PEER)]);
    assert_eq!(two.stock.peers(), [PEER, OTHER_PEER]);
}

/// Quirk: ports by address.
#[test]
fn two_players_behind_one_address_share_its_last_port() {
    let mut bench = StockHarness::host(without_timers());
    for (id, port) in [(2, 5001), (3, 5002)] {
        let mut from = address(9);
        from.set_port(port);
        bench.stock.handle_datagram(from, &datagram(id, &[vec![0x02]]), at(0.0));
    }
    bench.run_frame();
    bench.stock.send(PEER, b"x", DeliveryMode::Unreliable, at(0.001)).expect("known");
    bench.stock.run_frame(at(0.003));
    let transmit = bench.stock.poll_transmit(&mut [0; 512]).expect("sent");
    assert_eq!(transmit.to.port(), 5002);
}

/// Quirk: linger.
#[test]
fn leaving_peer_is_acknowledged_until_linger_ends() {
    for (linger, sends) in [(15.0, 9), (4.5, 7), (4.0, 6)] {
        let mut bench = StockHarness::host(Params { linger, ..without_timers() });
        bench.inject_at(0.0, &control(0x05, 0, &[2, 10, 0, 0, 2])).run(20.0);
        assert_eq!(bench.sent.len(), sends, "with {linger} s");
        assert!(datagram_bodies(&bench).iter().all(|body| *body == ack(0, 2)));
        assert_eq!(bench.stock.dump(PEER), None);
    }
}

/// Quirk: unknown type.
#[test]
fn unknown_type_ends_the_receive_phase() {
    let mut bench = host_with_peers(&[PEER]);
    let from = address(2);
    let good = |payload: &[u8]| datagram(2, &[unreliable(payload)]);
    let bad = datagram(2, &[vec![0x40], unreliable(b"lost")]);
    for bytes in [good(b"before"), bad, good(b"after")] {
        bench.stock.handle_datagram(from, &bytes, at(10.0));
    }
    bench.run_frame();
    assert_eq!(bench.payloads(), [b"before"]);
    bench.run_frame();
    assert_eq!(bench.payloads(), [&b"before"[..], b"after"]);
    assert_eq!(bench.stock.stock_counters().aborted, 1);
}

/// Quirk: recomputed size.
/// Quirk: missing flag.
#[test]
fn control_message_without_reliable_flag_skips_two_bytes_less() {
    let mut bench = host_with_peers(&[PEER]);
    let odd = with_length(0x00, 0x4000, &[0, 0], &[2, 10, 0, 0, 2, 0x41, 0, 0, 0, 0x02, 0x02]);
    let bytes = datagram(2, &[odd, vec![], vec![], unreliable(b"x")]);
    bench.stock.handle_datagram(address(2), &bytes, at(10.0));
    bench.run(10.1);
    // The parser read the last two bytes of the message as two keepalives.
    assert_eq!(bench.payloads(), [b"x"]);
    assert!(
        bench.events.iter().any(|(event, name)| matches!(event, Event::Identity { .. }) && name == b"A\0")
    );
}

/// Quirk: undersized.
#[test]
fn undersized_message_crashes_the_engine() {
    let messages: [(&[u8], u16); 5] = [
        (&[0x00, 0, 0], 0),
        (&[0x05, 4, 0xC0, 0, 0], 4),
        (&[0x04, 5, 0xC0, 0, 0], 5),
        (&[0x32, 4, 0x80, 0, 0], 4),
        (&[0x32, 0, 0], 0),
    ];
    for (message, size) in messages {
        let mut bench = host_with_peers(&[PEER]);
        bench.inject_at(10.1, message).inject_at(10.1, &unreliable(b"x")).run(10.2);
        assert_eq!(bench.stock.crash(), Some(Crash::Undersized { kind: Kind(message[0]), size }));
        assert!(bench.payloads().is_empty() && bench.stock.is_idle());
    }
}

/// Quirk: over-read.
#[test]
fn reads_past_the_datagram_return_zeros() {
    let mut bench = host_with_peers(&[PEER]);
    bench.inject_at(10.1, &[0x32, 8, 0, b'x']).run(10.2);
    assert_eq!(bench.payloads(), [b"x\0\0\0\0"]);
    // A missing message parses as type 0 with size 0.
    bench.stock.handle_datagram(address(2), &[2, 2, 0x02], at(10.3));
    bench.run(10.4);
    assert_eq!(bench.stock.crash(), Some(Crash::Undersized { kind: Kind(0), size: 0 }));
}
