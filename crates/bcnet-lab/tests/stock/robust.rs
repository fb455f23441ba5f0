//! Robustness: no input makes the model panic. It continues, or it reports the crash of the original.

use bcnet_lab::Rng;
use bcnet_lab::stock::Params;
use bcnet_transport::DeliveryMode;

use super::harness::{
    PEER, StockHarness, StockPair, ack, address, at, control, datagram, game, identity, part, request,
    without_timers,
};

/// Sends valid datagrams, truncated, with flipped bits, or mixed, to hosts in all states.
#[test]
fn hostile_bytes_do_not_panic() {
    let (mut crashed, mut alive) = (0, 0);
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let mut bench = StockHarness::host(without_timers());
        for _ in 0..rng.between(1, 12) {
            let bytes = hostile_datagram(&mut rng);
            bench.stock.handle_datagram(address(rng.index(4) as u8), &bytes, at(0.0));
            let steps = rng.index(3);
            (0..steps).for_each(|_| bench.run_frame());
            bench.stock.send(PEER, &[1; 500], DeliveryMode::Reliable, at(0.0)).ok();
        }
        (0..20).for_each(|_| bench.run_frame());
        bench.stock.dump(PEER).map(|dump| dump.to_string());
        match bench.stock.crash() {
            Some(crash) => crashed += u32::from(!crash.to_string().is_empty()),
            None => alive += 1,
        }
    }
    assert!(crashed > 200 && alive > 200, "{crashed} crashed, {alive} alive");
}

fn hostile_datagram(rng: &mut Rng) -> Vec<u8> {
    let mut messages = Vec::new();
    for _ in 0..rng.between(1, 5) {
        let (seq, index) = (rng.index(4) as u16, rng.index(5) as u8);
        messages.push(match rng.index(9) {
            0 => game(seq, b"payload"),
            1 => part(seq, index, rng.index(5) as u8, b"part"),
            2 => ack(seq, rng.index(4) as u8),
            3 => identity(seq, index),
            4 => request(index, rng.next_u64() as u32),
            5 => control(0x04, seq, &[index, rng.index(4) as u8]),
            6 => control(0x05, seq, &[index, 1, 2, 3, 4]),
            7 => vec![0x02],
            _ => vec![rng.next_u64() as u8; rng.index(20)],
        });
    }
    let sender = [0xFF, 1, 2, 3, 0x80, 0][rng.index(6)];
    let mut bytes = datagram(sender, &messages);
    if rng.chance(0.2) {
        let place = rng.index(bytes.len());
        bytes[place] ^= 1 << rng.index(8);
    }
    if rng.chance(0.1) {
        bytes.truncate(rng.index(bytes.len() + 1));
    }
    bytes
}

/// Sends hostile datagrams from the host to a client.
#[test]
fn a_client_survives_a_hostile_host() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let mut pair = StockPair::joined(Params::default(), 250);
        for _ in 0..10 {
            let mut bytes = hostile_datagram(&mut rng);
            if let Some(first) = bytes.first_mut().filter(|_| rng.chance(0.7)) {
                *first = 1;
            }
            pair.client.stock.handle_datagram(address(1), &bytes, at(1.0));
            pair.client.run_frame();
        }
        pair.client.run(3.0);
    }
}

/// Incomplete sets of fragments take bounded memory.
#[test]
fn memory_is_bounded() {
    let mut bench = StockHarness::host(without_timers());
    let full: Vec<Vec<u8>> = (0..100).map(|index| part(5, index, 200, b"x")).collect();
    let bytes = datagram(2, &full);
    for _ in 0..400 {
        bench.stock.handle_datagram(address(2), &bytes, at(0.0));
    }
    bench.run_frame();
    assert_eq!(bench.stock.crash().map(|crash| crash.to_string()), Some("out of memory".to_owned()));
}
