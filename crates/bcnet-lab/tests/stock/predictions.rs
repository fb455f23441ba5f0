//! Predictions that follow from the rules of the stock engine. P1, P2, P3 and P7 are in
//! [`checks`](super::checks).

use bcnet_lab::stock::{ACK_ENTRY_BYTES, AckGate, Params, QueueLengths, StockEngine};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{DeliveryMode, Time};

use super::checks::{CHECKS, send_ten_per_second};
use super::harness::{
    PEER, StockHarness, StockPair, ack, address, at, control, game, identity, part, without_cipher,
    without_timers,
};

/// Each changed constant breaks exactly the checks that depend on it.
#[test]
fn changed_constants_break_the_predictions() {
    let stock = Params::default;
    let changes = [
        ("8 sends", Params { last_ack: 8, ..stock() }, &["P1", "P3", "P7"][..]),
        ("gate off", Params { gate: AckGate::Always, ..stock() }, &["P1", "P2", "P7"]),
        ("gate shut", Params { gate: AckGate::Never, ..stock() }, &["P1", "P2", "P3", "P7"]),
        ("ACK step", Params { ack_step: 0.7, ..stock() }, &["P1", "P2", "P3", "P7"]),
        ("4 free sends", Params { free_acks: 4, ..stock() }, &["P1", "P7"]),
    ];
    for (change, params, expected) in changes {
        let failing: Vec<&str> = CHECKS
            .iter()
            .filter(|(_, check)| check(params.clone()).is_err())
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(failing, expected, "{change}");
    }
}

/// Returns a connected client with an empty outbox, at 10 s.
fn settled_client() -> StockHarness {
    let own = *address(2).ip();
    let client =
        StockEngine::connect(without_cipher(without_timers()), address(1), own, 0xA5F, &[], Time::ZERO);
    let mut bench = StockHarness::new(client, 1000);
    let host = PeerId::HOST;
    bench.run_before(0.01, |stock, now| stock.inject(host, &control(0x03, 0, &[2]), now));
    bench.run_before(0.02, |stock, now| stock.inject(host, &ack(0, 2), now));
    bench.run_before(0.03, |stock, now| stock.identify(&[0x41, 0], now));
    bench.run_before(0.04, |stock, now| stock.inject(host, &ack(1, 2), now));
    send_ten_per_second(&mut bench, 1.0, 10.0);
    assert_eq!(bench.ack_send_counts(host), []);
    bench.sent.clear();
    bench
}

#[test]
fn p4_disconnect_precedes_the_acks_it_releases() {
    let mut bench = settled_client();
    bench.run_before(10.1, |stock, now| stock.inject(PeerId::HOST, &game(39, b"a"), now));
    bench.run_before(10.1, |stock, now| stock.inject(PeerId::HOST, &game(40, b"b"), now));
    bench.run_before(14.0, |stock, now| stock.leave(now)).run(14.1);
    assert_eq!(bench.send_times_ms(), [10_101, 10_768, 11_435, 14_000]);
    let acks = [[1, 39, 0, 0], [1, 40, 0, 0]].concat();
    assert!(bench.sent[..3].iter().all(|(_, bytes)| bytes[2..] == acks));
    let goodbye = [&[2, 3, 0x05, 0x0A, 0xC0, 2, 0, 2, 10, 0, 0, 2][..], &acks].concat();
    assert_eq!((bench.sent[3].1.len(), &bench.sent[3].1), (20, &goodbye));
    assert_eq!(bench.ack_send_counts(PeerId::HOST), [4, 4]);
}

/// A host sends itself its name and one game message before a client joins.
#[test]
fn p7_acks_in_the_own_entry_stay_stuck() {
    let mut bench = StockHarness::host(Params::default());
    bench.run_before(0.0, |stock, now| {
        stock.identify(&[0x41, 0], now);
        stock.send(PeerId::HOST, b"x", DeliveryMode::Reliable, now).expect("the host creates its own entry");
    });
    bench.run(0.01);
    let mut dump = bench.stock.dump(PeerId::HOST).expect("the host has an entry for itself");
    dump.at = at(29.975);
    let recorded = "[29.975] peer=1 retxQ=0 ackOutQ=2\n  ack[0] seq=0x0000 frag=0 below32=1 retx=1\n  \
                    ack[1] seq=0x0000 frag=0 below32=0 retx=1";
    assert_eq!(dump.to_string(), recorded);
    bench.run(200.0);
    assert_eq!(bench.ack_send_counts(PeerId::HOST), [3, 3]);
}

#[test]
fn p9_a_stuck_entry_takes_76_bytes() {
    let mut bench = StockHarness::host(without_timers());
    for seq in 0..38 {
        bench.inject_at(0.001, &game(seq, b"x"));
    }
    bench.run(60.0);
    assert_eq!(ACK_ENTRY_BYTES, 76);
    assert_eq!(bench.stock.dump(PEER).expect("known").ack_memory(), 38 * 76);
}

#[test]
fn p10_datagram_holds_127_plain_or_102_fragment_acks() {
    for (part_acks, fitting, size) in [(false, 127, 510), (true, 102, 512)] {
        let mut bench = StockHarness::host(without_timers());
        for number in 0..=fitting {
            let message = if part_acks { part(9, number, 200, b"x") } else { game(number.into(), b"x") };
            bench.inject_at(0.001, &message);
        }
        bench.run(0.01);
        assert_eq!(bench.sent[0].1[1], fitting);
        assert_eq!((bench.sent[0].1.len(), bench.sent[1].1[1]), (size, 1));
    }
}

#[test]
fn p10_38_acks_leave_358_bytes() {
    for (payload, together) in [(355, true), (356, false)] {
        let mut bench = StockHarness::host(without_timers());
        for seq in 0..38 {
            bench.inject_at(0.001, &game(seq, b"x"));
        }
        bench.run(0.003);
        let data = vec![0; payload];
        bench.run_before(0.004, |stock, now| {
            stock.send(PEER, &data, DeliveryMode::Unreliable, now).expect("known");
        });
        bench.run(0.02);
        let counts: Vec<u8> = bench.sent.iter().map(|(_, bytes)| bytes[1]).collect();
        assert_eq!(counts, if together { vec![39] } else { vec![38, 1] });
    }
}

/// Returns a host that sends 832 bytes in three fragments, the first together with an ACK.
fn send_three_fragments(params: Params) -> StockHarness {
    let mut bench = StockHarness::host(params);
    bench.inject_at(0.002, &game(0, b"x")).run(0.003);
    let payload: Vec<u8> = (0..832_u32).map(|i| i as u8).collect();
    bench.run_before(0.004, |stock, now| {
        stock.send(PEER, &payload, DeliveryMode::Reliable, now).expect("known")
    });
    bench.run(0.01);
    bench
}

#[test]
fn p11_832_bytes_are_sent_in_datagrams_of_418_and_441() {
    let bench = send_three_fragments(without_timers());
    let sizes: Vec<usize> = bench.sent.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!((sizes, bench.send_times_ms()), (vec![418, 441], vec![6, 9]));
    let (first, second) = (&bench.sent[0].1, &bench.sent[1].1);
    assert_eq!(first[..13], [1, 2, 0x01, 0, 0, 0, 0x32, 0x9C, 0xA1, 0, 0, 0, 3]);
    assert_eq!(second[..8], [1, 2, 0x32, 0x9C, 0xA1, 0, 0, 1]);
    assert_eq!(second[414..420], [0x32, 27, 0xA0, 0, 0, 2]);
    let dump = bench.stock.dump(PEER).expect("known");
    assert!(dump.retx.iter().all(|retx| retx.seq == 0));
}

#[test]
fn p12_plain_acks_never_clear_fragments() {
    let mut bench = send_three_fragments(without_timers());
    for _ in 0..3 {
        bench.inject_at(0.02, &ack(0, 0));
    }
    bench.run(31.5);
    let resent = |bench: &StockHarness, index: u8| -> Vec<u64> {
        let holds = |bytes: &[u8]| bytes[2] == 0x32 && bytes[7] == index;
        let times = bench.sent.iter().filter(|(_, bytes)| holds(bytes)).map(|(time, _)| time.as_micros());
        times.filter(|micros| *micros > 500_000).map(|micros| micros / 1000).collect()
    };
    let seconds: Vec<u64> = resent(&bench, 0).iter().map(|millis| millis / 1000).collect();
    assert_eq!(seconds, [1, 3, 6, 10, 15, 16, 18, 21, 25, 30, 31]);
    let lag = |index: u8| resent(&bench, index)[0] - resent(&bench, 0)[0];
    assert_eq!((lag(1), lag(2)), (3, 6));
    bench.run(91.0);
    assert_eq!(bench.stock.stock_counters().retransmits, 3 * 30);
    bench.run(359.0);
    assert_eq!(bench.stock.dump(PEER).expect("known").retx.len(), 3);
    bench.run(362.0);
    assert_eq!(bench.stock.stock_counters().retransmits, 3 * 119);
    assert_eq!(
        (bench.stock.dump(PEER).expect("known").retx, bench.stock.stock_counters().given_up),
        (vec![], 3)
    );
}

/// Quirk: raw window.
#[test]
fn p14_the_window_is_a_plain_difference() {
    let mut bench = StockHarness::new(
        StockEngine::host(without_cipher(Params { gate: AckGate::Always, ..without_timers() })),
        1,
    );
    deliver_up_to(&mut bench, 1);
    for (seq, accepted) in [(0, false), (0x4001, false), (0xFFFF, false), (0x4000, true), (1, true)] {
        assert_eq!(is_accepted(&mut bench, seq), accepted, "{seq:#X} with 1 expected");
    }
    let mut bench = StockHarness::new(
        StockEngine::host(without_cipher(Params { gate: AckGate::Always, ..without_timers() })),
        1,
    );
    deliver_up_to(&mut bench, 0xFFFE);
    let rejected = [0xBFFE, 0xC000, 0xFFFD].map(|seq| (seq, false));
    let accepted = [0xBFFD, 0, 0x7FFF, 0xFFFF, 0xFFFE].map(|seq| (seq, true));
    for (seq, accepted) in rejected.into_iter().chain(accepted) {
        assert_eq!(is_accepted(&mut bench, seq), accepted, "{seq:#X} with 0xFFFE expected");
    }
}

/// T-76: the original, which expects 0, acknowledges every number that may be a cookie, and drops the
/// message.
///
/// No queue keeps anything of it, and the next message is delivered normally.
#[test]
fn p14_a_cookie_is_acknowledged_and_leaves_no_trace() {
    for first in (0x4000..0xC000_u32).step_by(0x100) {
        let mut bench = StockHarness::new(StockEngine::host(without_cipher(without_timers())), 60);
        for seq in first..first + 4 {
            let seq = u16::try_from(seq).expect("the number has 16 bits");
            assert!(!is_accepted(&mut bench, seq), "{seq:#X} is queued");
            let acks = bench.stock.dump(PEER).expect("the peer exists").acks;
            assert!(acks.iter().any(|ack| ack.seq == seq), "{seq:#X} is not acknowledged");
        }
        bench.stock.inject(PEER, &game(0, b"first"), at(0.0));
        bench.stock.inject(PEER, &game(1, b"second"), at(0.0));
        bench.run(60.0);
        assert_eq!(bench.payloads(), [b"first".to_vec(), b"second".to_vec()]);
        assert_eq!(bench.stock.stock_counters().delivered, 2);
    }
}

/// T-76: cookies between the fragments of messages are joined with no fragment, and all queues end empty.
///
/// As in `mixing`, the original collects fragments by number alone. One cookie has the number of a fragment
/// that arrives at the same time.
#[test]
fn mixing_cookies_with_fragments_leaves_no_trace() {
    for number in (0x4000..0xC000_u16).step_by(0x1000) {
        let mut bench = settled_client();
        let messages = [
            part(0, 0, 2, b"one "),
            game(number, b""),
            part(0, 1, 2, b"whole"),
            part(number + 1, 1, 2, b"of nobody"),
            game(number + 1, b""),
            part(1, 1, 2, b"too"),
            game(number, b""),
            part(1, 0, 2, b"this "),
        ];
        for message in &messages {
            bench.stock.inject(PeerId::HOST, message, at(10.0));
        }
        send_ten_per_second(&mut bench, 10.1, 30.0);
        assert_eq!(bench.payloads(), [b"one whole".to_vec(), b"this too".to_vec()], "{number:#X}");
        let lengths = bench.stock.queue_lengths(PeerId::HOST).expect("the client has an entry for the host");
        assert_eq!((lengths.acks, lengths.retx, lengths.first), (0, 0, 0), "{number:#X}");
    }
}

/// Delivers all numbers below `expected`, slowly enough that every ACK has its last send.
pub(crate) fn deliver_up_to(bench: &mut StockHarness, expected: u16) {
    for seq in 0..expected {
        bench.stock.inject(PEER, &game(seq, b"x"), at(0.0));
        if seq % 64 == 63 {
            (0..10).for_each(|_| bench.run_frame());
        }
    }
    bench.run_frame();
    assert_eq!(bench.stock.stock_counters().delivered, expected.into());
}

fn is_accepted(bench: &mut StockHarness, seq: u16) -> bool {
    let before = bench.stock.stock_counters().duplicates;
    bench.stock.inject(PEER, &game(seq, b"x"), at(0.0));
    bench.run_frame();
    bench.stock.stock_counters().duplicates == before
}

#[test]
fn p15_idle_pair_sends_keepalives_every_five_seconds() {
    let mut pair = StockPair::joined(Params::default(), 250);
    pair.run(60.0);
    for bench in [&mut pair.host, &mut pair.client] {
        bench.sent.clear();
    }
    pair.run(120.0);
    for (bench, id) in [(&pair.host, 1), (&pair.client, 2)] {
        assert!(bench.sent.iter().all(|(_, bytes)| bytes == &[id, 1, 2]), "{id}");
        let times = bench.send_times_ms();
        assert!(times.len() >= 11 && times.windows(2).all(|two| matches!(two[1] - two[0], 5000..=5004)));
    }
}

#[test]
fn p17_one_ack_in_nine_is_useful() {
    let mut pair = StockPair::joined(Params::default(), 250);
    pair.run(50.0);
    assert_eq!(pair.client.ack_send_counts(PeerId::HOST), []);
    let before = pair.host.stock.stock_counters();
    for number in 0..5 {
        pair.host.stock.send(PEER, &[number], DeliveryMode::Reliable, at(50.0)).expect("joined");
    }
    for tenth in 0..80_u32 {
        let now = 50.0 + f64::from(tenth) / 10.0;
        pair.run(now);
        pair.client.stock.send(PeerId::HOST, b"state", DeliveryMode::Unreliable, at(now)).expect("joined");
    }
    let after = pair.host.stock.stock_counters();
    assert_eq!((after.acks_useful - before.acks_useful, after.acks_useless - before.acks_useless), (5, 40));
}

/// The dumps of a join have the recorded format.
#[test]
fn dumps_are_in_the_recorded_format() {
    let mut bench = StockHarness::host(without_timers());
    bench.inject_at(0.001, &identity(0, 2)).inject_at(0.001, &part(2, 0, 3, b"x"));
    bench.run_before(0.002, |stock, now| stock.inject(PEER, &game(7, b"x"), now)).run(0.006);
    bench.run_before(0.007, |stock, now| stock.send(PEER, b"x", DeliveryMode::Reliable, now).expect("known"));
    bench.run(0.009);
    let expected = "[0.009] peer=2 retxQ=2 ackOutQ=3\n  retx[0] seq=0x0000 frag=0 rel=1 retx=0 intv=1.00\n  \
                    retx[1] seq=0x0000 frag=0 rel=1 retx=0 intv=1.00\n  \
                    ack[0] seq=0x0000 frag=0 below32=1 retx=1\n  \
                    ack[1] seq=0x0002 frag=1 idx=0 below32=0 retx=1\n  ack[2] seq=0x0007 frag=0 below32=0 retx=1";
    assert_eq!(bench.stock.dump(PEER).expect("known").to_string(), expected);
    assert_eq!(bench.stock.queue_lengths(PEER), Some(QueueLengths { acks: 3, retx: 2, first: 0 }));
}
