//! Predictions that a changed constant must break, as functions that return an error instead of panicking.

use bcnet_lab::stock::{Params, PeerQueueDump, StockEngine};
use bcnet_transport::wire::{Channel, PeerId};
use bcnet_transport::{DeliveryMode, Time};

use super::harness::{
    PEER, StockHarness, ack, address, at, game, identity, part, request, without_cipher, without_timers,
};

pub(crate) type PredictionResult = Result<(), String>;

fn expect_equal<T: PartialEq + std::fmt::Debug>(what: &str, seen: T, expected: T) -> PredictionResult {
    if seen == expected { Ok(()) } else { Err(format!("{what}: expected {expected:?}, seen {seen:?}")) }
}

/// P1: the outbox of the host during a join.
pub(crate) fn p1_host_outbox_during_join(params: Params) -> PredictionResult {
    let mut bench = StockHarness::host(params);
    let connect = [&[0xFF, 1][..], &request(2, 0xA5F)].concat();
    bench.run_before(0.0, |stock, now| stock.handle_datagram(address(2), &connect, now));
    // The client soon acknowledges the host's reply and its three game messages.
    bench.run_before(0.004, |stock, now| {
        stock.send(PEER, &[0x20, 0], DeliveryMode::Reliable, now).expect("the client has joined")
    });
    bench.inject_at(0.009, &identity(1, 2));
    bench.inject_at(0.012, &ack(0, 2)).inject_at(0.012, &ack(0, 0)).inject_at(0.017, &game(0, &[0x21, 0]));
    bench.run_before(0.018, |stock, now| {
        stock.send(PEER, &[0x20, 1], DeliveryMode::Reliable, now).expect("joined")
    });
    bench.inject_at(0.025, &ack(1, 2)).inject_at(0.025, &ack(1, 0)).inject_at(0.026, &game(1, &[0x21, 1]));
    bench.run_before(0.028, |stock, now| {
        stock.send(PEER, &[0x20, 2], DeliveryMode::Reliable, now).expect("joined")
    });
    bench.run(0.05);
    expect_equal("outbox at 0.05", bench.ack_send_counts(PEER), vec![1, 1, 1, 1])?;
    let dump = bench.stock.dump(PEER).ok_or("no peer 2")?;
    let retx: Vec<_> = dump.retx.iter().map(|retx| (retx.seq, retx.channel, retx.retx)).collect();
    expect_equal("retransmit queue at 0.05", retx, vec![(2, Channel::Game, 0)])?;
    expect_equal("interval", dump.retx[0].interval, 1.0)?;
    expect_equal("recorded dump at 0.05", dump_without_time(dump), RECORDED_AT_JOIN.to_owned())?;
    bench.inject_at(0.06, &ack(2, 0));
    bench.inject_at(0.75, &part(2, 0, 3, &[0x21; 405])).inject_at(0.76, &part(2, 1, 3, &[0x21; 406]));
    bench.inject_at(0.76, &part(2, 2, 3, &[0x21; 21])).inject_at(1.20, &game(3, &[0x21, 3]));
    bench.inject_at(1.25, &game(4, &[0x21, 4])).inject_at(1.55, &game(5, &[0x2A])).run(2.77);
    expect_equal("outbox at 2.77", bench.ack_send_counts(PEER), vec![4, 4, 4, 4, 3, 3, 3, 3, 3, 2])?;
    expect_equal("retransmit queue at 2.77", bench.stock.dump(PEER).map(|dump| dump.retx.len()), Some(0))?;
    let dump = bench.stock.dump(PEER).ok_or("no peer 2")?;
    expect_equal("recorded dump at 2.77", dump_without_time(dump), RECORDED_AFTER_JOIN.to_owned())?;
    bench.inject_at(3.05, &game(6, &[0x03]));
    send_ten_per_second(&mut bench, 3.05, 5.49);
    expect_equal("outbox at 5.49", bench.ack_send_counts(PEER), vec![8, 8, 8, 8, 7, 7, 7, 7, 7, 6, 4])?;
    send_ten_per_second(&mut bench, 5.55, 6.65);
    expect_equal("entries at 6.65", bench.ack_send_counts(PEER).len(), 4)?;
    send_ten_per_second(&mut bench, 6.65, 8.5);
    if bench.ack_send_counts(PEER).len() > 1 { Err("more than one entry at 8.5".to_owned()) } else { Ok(()) }
}

/// Returns the text of a dump without its time.
fn dump_without_time(dump: PeerQueueDump) -> String {
    dump.to_string().split_once(' ').map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

/// Recorded dumps of a running game, when a client joined and 2.7 s later.
///
/// The times are removed, and the `frag=0` that the first record leaves out are added.
const RECORDED_AT_JOIN: &str = "peer=2 retxQ=1 ackOutQ=4
  retx[0] seq=0x0002 frag=0 rel=1 retx=0 intv=1.00
  ack[0] seq=0x0000 frag=0 below32=1 retx=1
  ack[1] seq=0x0001 frag=0 below32=1 retx=1
  ack[2] seq=0x0000 frag=0 below32=0 retx=1
  ack[3] seq=0x0001 frag=0 below32=0 retx=1";
const RECORDED_AFTER_JOIN: &str = "peer=2 retxQ=0 ackOutQ=10
  ack[0] seq=0x0000 frag=0 below32=1 retx=4
  ack[1] seq=0x0001 frag=0 below32=1 retx=4
  ack[2] seq=0x0000 frag=0 below32=0 retx=4
  ack[3] seq=0x0001 frag=0 below32=0 retx=4
  ack[4] seq=0x0002 frag=1 idx=0 below32=0 retx=3
  ack[5] seq=0x0002 frag=1 idx=1 below32=0 retx=3
  ack[6] seq=0x0002 frag=1 idx=2 below32=0 retx=3
  ack[7] seq=0x0003 frag=0 below32=0 retx=3
  ack[8] seq=0x0004 frag=0 below32=0 retx=3
  ack[9] seq=0x0005 frag=0 below32=0 retx=2";

/// Queues ten unreliable messages per second from `start` and runs all frames up to `end`.
pub(crate) fn send_ten_per_second(bench: &mut StockHarness, start: f64, end: f64) {
    for step in 0.. {
        let time = start + f64::from(step) * 0.1;
        if time > end {
            break;
        }
        let to = bench.stock.peers()[0];
        bench.run_before(time, |stock, now| {
            stock.send(to, &[0x1C; 20], DeliveryMode::Unreliable, now).expect("there")
        });
    }
    bench.run(end);
}

/// P2: the outbox of the client during the same join.
pub(crate) fn p2_client_outbox_during_join(params: Params) -> PredictionResult {
    let own = *address(2).ip();
    let client = StockEngine::connect(without_cipher(params), address(1), own, 0xA5F, &[], Time::ZERO);
    let mut bench = StockHarness::new(client, 60);
    let reply = super::harness::control(0x03, 0, &[2]);
    let mut from_host = |time, message: &[u8]| {
        bench.run_before(time, |stock, now| stock.inject(PeerId::HOST, message, now));
    };
    from_host(0.003, &reply);
    from_host(0.003, &game(0, &[0x20]));
    from_host(0.011, &identity(1, 2));
    for (seq, time) in (1..).zip([0.019, 0.028, 0.765, 1.203, 1.253, 1.253, 1.253, 1.553, 1.553]) {
        from_host(time, &game(seq, &[0x20]));
    }
    bench.run(1.957);
    let dump = bench.stock.dump(PeerId::HOST).ok_or("no host")?;
    let order: Vec<_> = dump.acks.iter().map(|ack| (ack.channel, ack.seq)).collect();
    let mut expected = vec![(Channel::Control, 0), (Channel::Game, 0), (Channel::Control, 1)];
    expected.extend((1..=9).map(|seq| (Channel::Game, seq)));
    expect_equal("order", order, expected)?;
    expect_equal(
        "outbox at 1.957",
        bench.ack_send_counts(PeerId::HOST),
        vec![3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 1, 1],
    )?;
    send_to_host_ten_per_second(&mut bench, 3.05, 3.06);
    bench.run_before(3.06, |stock, now| stock.inject(PeerId::HOST, &game(10, &[0x20]), now));
    send_to_host_ten_per_second(&mut bench, 3.15, 4.619);
    expect_equal(
        "outbox at 4.619",
        bench.ack_send_counts(PeerId::HOST),
        vec![7, 7, 7, 7, 7, 6, 5, 5, 5, 5, 5, 5, 3],
    )
}

fn send_to_host_ten_per_second(bench: &mut StockHarness, start: f64, before: f64) {
    let mut time = start;
    while time < before {
        bench.run_before(time, |stock, now| {
            stock.send(PeerId::HOST, &[0x1C; 20], DeliveryMode::Unreliable, now).expect("connected");
        });
        time += 0.1;
    }
    if before > 4.0 {
        bench.run(before);
    }
}

/// P3: one ACK with the gate always open. Quirk: gate.
pub(crate) fn p3_acks_with_open_gate(params: Params) -> PredictionResult {
    let mut bench =
        StockHarness::new(StockEngine::host(without_cipher(Params { silence: None, ..params })), 60);
    bench.inject_at(0.0, &game(0, b"x"));
    let mut sends = Vec::new();
    let mut before = 0;
    for frame in 0..400_u64 {
        bench.run_frame();
        let sent = bench.stock.stock_counters().acks_sent;
        if sent > before {
            sends.push((frame * 1000 + 30) / 60);
        }
        before = sent;
        bench
            .stock
            .send(PEER, b"traffic", DeliveryMode::Unreliable, at(frame as f64 / 60.0))
            .expect("the peer is known");
    }
    expect_equal("sends in ms", sends, vec![17, 683, 1350, 2017, 2683, 3350, 4017, 4683, 5350])?;
    expect_equal("outbox", bench.ack_send_counts(PEER), vec![])
}

/// P7: one ACK without other traffic has three sends, then none until a message is sent.
///
/// Quirk: repeated ACKs.
pub(crate) fn p7_acks_without_traffic(params: Params) -> PredictionResult {
    let mut bench = StockHarness::host(Params { keepalive: None, silence: None, ..params });
    bench.inject_at(0.0, &game(0, b"x")).run(1000.0);
    expect_equal("sends in ms", bench.send_times_ms(), vec![3, 672, 1341])?;
    expect_equal("outbox", bench.ack_send_counts(PEER), vec![3])?;
    for second in 0..5 {
        bench.run_before(1000.5 + f64::from(second), |stock, now| {
            stock.send(PEER, b"traffic", DeliveryMode::Unreliable, now).expect("known");
        });
    }
    bench.run(1005.5);
    expect_equal("outbox after five datagrams", bench.ack_send_counts(PEER), vec![8])?;
    bench.run_before(1006.0, |stock, now| {
        stock.send(PEER, b"traffic", DeliveryMode::Unreliable, now).expect("known")
    });
    bench.run(1007.0);
    expect_equal("outbox after six datagrams", bench.ack_send_counts(PEER), vec![])
}

/// All predictions hold with the constants of the original.
#[test]
fn predictions_hold_for_stock() {
    for (name, check) in CHECKS {
        assert_eq!(check(Params::default()), Ok(()), "{name}");
    }
    assert_eq!(p7_acks_without_traffic(without_timers()), Ok(()));
}

pub(crate) type NamedPrediction = (&'static str, fn(Params) -> PredictionResult);
/// The checks, by the number of the prediction.
pub(crate) const CHECKS: [NamedPrediction; 4] = [
    ("P1", p1_host_outbox_during_join),
    ("P2", p2_client_outbox_during_join),
    ("P3", p3_acks_with_open_gate),
    ("P7", p7_acks_without_traffic),
];
