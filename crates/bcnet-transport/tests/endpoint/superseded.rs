//! Unreliable messages that newer ones supersede.

use bcnet_transport::wire::{Channel, Delivery, PeerId};
use bcnet_transport::{Config, Engine};

use crate::heap;
use crate::net::{START, TestEndpoint, TestRng, ack, address, from_peer, host_with_forged_peer, unencrypted};

/// Sends `payload`, which supersedes payloads with the same first byte.
fn send_latest(host: &mut TestEndpoint, payload: &[u8]) {
    let mut same = |older: &[u8]| older.first() == payload.first();
    host.endpoint.send_latest(PeerId(2), payload, &mut same, START).expect("the send queue has capacity");
}

/// Returns the unreliable payloads that leave now.
fn unreliable_payloads(host: &mut TestEndpoint) -> Vec<Vec<u8>> {
    let data = host.flush(START).into_iter().flat_map(|packet| packet.data());
    data.filter(|(delivery, _)| *delivery == Delivery::Unreliable).map(|(_, payload)| payload).collect()
}

/// Creates a host with a full congestion window and a reliable message that waits.
fn host_with_full_window() -> TestEndpoint {
    let mut host = host_with_forged_peer(Config { initial_window: 500, ..unencrypted() });
    host.send(PeerId(2), &[1; 400], START);
    host.flush(START);
    host.send(PeerId(2), &[2; 200], START);
    host
}

fn open_window(host: &mut TestEndpoint) {
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), START);
}

/// T-63, T-66: while the window is full, the newest message replaces those it supersedes; the order is
/// kept.
#[test]
fn superseded_messages_are_dropped_while_blocked() {
    let mut host = host_with_full_window();
    for payload in [b"a1", b"b1", b"a2", b"c1", b"b2", b"a3"] {
        send_latest(&mut host, payload);
    }
    assert_eq!(unreliable_payloads(&mut host), [[0; 0]; 0]);
    let snapshot = host.snapshot(PeerId(2), START);
    assert_eq!(snapshot.unsent, 4, "one reliable, three others");
    open_window(&mut host);
    assert_eq!(unreliable_payloads(&mut host), [b"c1", b"b2", b"a3"]);
    assert_eq!(host.snapshot(PeerId(2), START).unsent, 0);
}

/// T-66: while the window is not full, all messages leave in order, and none is checked.
#[test]
fn no_message_is_dropped_while_not_blocked() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), b"reliable", START);
    for payload in [b"a1", b"a2"] {
        let mut never = |_: &[u8]| panic!("a message was checked although the window is open");
        host.endpoint
            .send_latest(PeerId(2), payload, &mut never, START)
            .expect("the send queue has capacity");
    }
    assert_eq!(unreliable_payloads(&mut host), [b"a1", b"a2"]);
    assert!(host.endpoint.send_latest(PeerId(9), b"a", &mut |_| true, START).is_err());
}

/// The newest message is checked first.
#[test]
fn newest_message_is_checked_first() {
    let mut host = host_with_full_window();
    for payload in [b"a", b"b", b"c"] {
        host.endpoint
            .send_latest(PeerId(2), payload, &mut |_| false, START)
            .expect("the send queue has capacity");
    }
    let mut asked = Vec::new();
    let mut ask = |older: &[u8]| {
        asked.push(older.to_vec());
        false
    };
    host.endpoint.send_latest(PeerId(2), b"d", &mut ask, START).expect("the send queue has capacity");
    assert_eq!(asked, [b"c", b"b", b"a"]);
}

/// Compared with a list: the remaining messages arrive intact, and dropped ones do not use memory.
#[test]
fn dropping_messages_keeps_the_others_intact() {
    for seed in 1..=20 {
        let mut dice = TestRng(seed);
        let mut host = host_with_full_window();
        // This message stays first, so that later bytes are not freed in order.
        let mut expected: Vec<Vec<u8>> = vec![b"first".to_vec()];
        send_latest(&mut host, b"first");
        let start = heap::in_use();
        for _ in 0..3000 {
            let kind = u8::try_from(dice.below(8)).expect("a small number");
            let len = 1 + usize::try_from(dice.below(60)).expect("a small number");
            let mut payload = vec![u8::try_from(dice.below(256)).expect("a byte"); len];
            payload[0] = kind;
            expected.retain(|older| older[0] != kind);
            send_latest(&mut host, &payload);
            expected.push(payload);
        }
        let taken = heap::in_use() - start;
        assert!(taken < 20_000, "seed {seed}: {taken} bytes");
        let bytes: usize = expected.iter().map(|payload| 3 + payload.len()).sum();
        assert_eq!(host.snapshot(PeerId(2), START).queued_bytes, 405 + 205 + bytes, "seed {seed}");
        open_window(&mut host);
        assert_eq!(unreliable_payloads(&mut host), expected, "seed {seed}");
    }
}
