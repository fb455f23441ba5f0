//! Lost messages are detected and retransmitted, within the congestion window.

use std::collections::VecDeque;
use std::time::Duration;

use bcnet_transport::wire::{Channel, Message, PeerId};
use bcnet_transport::{Config, Engine, Time};

use crate::net::{
    START, SentDatagram, TestEndpoint, TestRng, ack, address, from_peer, host_with_forged_peer,
    host_with_measured_rtt, ms, pattern, unencrypted,
};

/// T-62: a message is lost when a message of the third later datagram is acknowledged, and not earlier.
#[test]
fn three_later_acked_datagrams_trigger_retransmission() {
    let mut host = host_with_measured_rtt();
    for seq in 0..5 {
        host.send(PeerId(2), &pattern(seq, 400), ms(200));
    }
    assert_eq!(host.flush(ms(200)).len(), 5);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 1)]), ms(300));
    assert_eq!(host.sent_texts(ms(300)), [""; 0]);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 2)]), ms(301));
    assert_eq!(host.sent_texts(ms(301)), [""; 0]);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 3)]), ms(302));
    assert_eq!(host.sent_texts(ms(302)), ["data seq=0 400 bytes"]);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 4)]), ms(303));
    assert_eq!(host.sent_texts(ms(303)), [""; 0], "it is retransmitted only once");
    assert_eq!(host.counters(PeerId(2)).retransmits, 1);
}

/// T-62, T-66: all lost messages are retransmitted in one flush, in order, before new messages.
#[test]
fn lost_messages_are_retransmitted_in_one_flush() {
    let mut host = host_with_measured_rtt();
    for seq in 0..8 {
        host.send(PeerId(2), &pattern(seq, 400), ms(200));
    }
    host.flush(ms(200));
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 7)]), ms(300));
    host.send(PeerId(2), b"fresh", ms(300));
    let expected: Vec<String> = (0..5).map(|seq| format!("data seq={seq} 400 bytes")).collect();
    assert_eq!(host.sent_texts(ms(300))[..5], expected);
    let fresh = host.snapshot(PeerId(2), ms(300));
    assert_eq!(fresh.unsent, 0);
}

/// T-61: an ACK that comes too soon after a retransmission answers the first send, and is measured from
/// there.
#[test]
fn early_ack_after_a_retransmission_answers_the_first_send() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"slow", ms(200));
    host.timeline(ms(200), ms(500));
    assert_eq!(host.counters(PeerId(2)).retransmits, 1);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(510));
    // 7/8 · 100 + 1/8 · 310.
    assert_eq!(host.snapshot(PeerId(2), ms(510)).rtt, Some(Duration::from_micros(126_250)));
}

/// T-61: a path that becomes much longer than the timeout is measured, and needless retransmissions end.
#[test]
fn rtt_growth_beyond_the_rto_is_measured() {
    let mut host = host_with_measured_rtt();
    let mut answers: VecDeque<(Time, Vec<u8>)> = VecDeque::new();
    let mut early = 0;
    for tick in 20..2000_u64 {
        let now = ms(10 * tick);
        while answers.front().is_some_and(|(due, _)| *due <= now) {
            let (_, bytes) = answers.pop_front().expect("there is one");
            host.receive_from(address(1), &bytes, now);
        }
        if tick % 5 == 0 {
            host.send(PeerId(2), b"steady", now);
        }
        for packet in host.flush(now) {
            let acks: Vec<_> = packet
                .data()
                .iter()
                .map(|(delivery, _)| ack(Channel::Game, delivery.seq().expect("reliable").0))
                .chain([Message::Keepalive])
                .collect();
            answers.push_back((now + Duration::from_millis(800), from_peer(2, &acks)));
        }
        if tick == 1000 {
            early = host.counters(PeerId(2)).retransmits;
        }
    }
    let snapshot = host.snapshot(PeerId(2), ms(20_000));
    assert!(snapshot.rtt > Some(Duration::from_millis(700)), "{:?}", snapshot.rtt);
    let late = host.counters(PeerId(2)).retransmits - early;
    assert_eq!(late, 0, "retransmissions in the second half of 200 messages, after {early} in the first");
}

/// T-61: if every message is lost once and its retransmission is answered in time, the path is not longer.
///
/// So the estimated round-trip time hardly grows with the time that the losses take.
#[test]
fn total_loss_does_not_inflate_the_rtt() {
    let mut host = host_with_measured_rtt();
    let mut now = ms(200);
    for seq in 0..60 {
        host.send(PeerId(2), b"lost once", now);
        assert_eq!(host.flush(now).len(), 1, "message {seq}");
        let repeat = loop {
            now = now + Duration::from_millis(10);
            assert!(now < ms(600_000), "message {seq} is not retransmitted");
            if !host.flush(now).is_empty() {
                break now;
            }
        };
        now = repeat + Duration::from_millis(100);
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), now);
    }
    let snapshot = host.snapshot(PeerId(2), now);
    assert!(snapshot.rtt <= Some(Duration::from_millis(300)), "{:?}", snapshot.rtt);
    assert!(snapshot.rto <= Duration::from_millis(1000), "{:?}", snapshot.rto);
}

/// T-63: at first 40 datagrams may be in flight; each ACK makes space for more.
#[test]
fn initial_window_is_40_datagrams() {
    let mut host = host_with_measured_rtt();
    for seq in 0..200 {
        host.send(PeerId(2), &pattern(seq, 400), ms(200));
    }
    let packets = host.flush(ms(200));
    let snapshot = host.snapshot(PeerId(2), ms(200));
    assert_eq!(snapshot.congestion_window, 40 * 512);
    assert_eq!((packets.len(), snapshot.in_flight), (50, 50 * 405));
    assert!(
        snapshot.in_flight <= snapshot.congestion_window
            && snapshot.in_flight + 405 > snapshot.congestion_window
    );
    assert_eq!((snapshot.unacknowledged.len(), snapshot.unsent), (50, 150));
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(300));
    let more = host.flush(ms(300));
    assert!(!more.is_empty() && more.len() <= 2, "{}", more.len());
}

/// Answers all datagrams of `host` after the round-trip time `trip`, for `rounds` full windows.
///
/// `lose` tells for each message whether it is lost.
fn answer_rounds(
    host: &mut TestEndpoint,
    start: Time,
    rtt: u64,
    rounds: usize,
    mut lose: impl FnMut() -> bool,
) -> Time {
    let mut now = start;
    for _ in 0..rounds {
        while host.endpoint.send(PeerId(2), &[0; 400], bcnet_transport::DeliveryMode::Reliable, now).is_ok() {
        }
        let sent = host.flush(now);
        let answers: Vec<Message<'_>> = sent
            .iter()
            .flat_map(SentDatagram::data)
            .filter(|_| !lose())
            .map(|(delivery, _)| ack(Channel::Game, delivery.seq().expect("reliable").0))
            .collect();
        now = now + Duration::from_millis(rtt);
        for answers in answers.chunks(16) {
            host.receive_from(address(1), &from_peer(2, answers), now);
        }
    }
    now
}

/// T-63: the window grows while round-trip times stay near the minimum, up to a limit.
#[test]
fn window_grows_while_rtts_stay_short() {
    let mut host = host_with_measured_rtt();
    let now = answer_rounds(&mut host, ms(200), 100, 3, || false);
    let grown = host.snapshot(PeerId(2), now).congestion_window;
    assert!(grown > 100 * 512, "{grown}");
    let now = answer_rounds(&mut host, now, 100, 20, || false);
    assert_eq!(host.snapshot(PeerId(2), now).congestion_window, Config::default().max_window);
}

/// T-63: the window shrinks when the round-trip time exceeds the minimum by more than the minimum: a queue
/// builds up.
#[test]
fn window_shrinks_when_rtts_grow() {
    let mut host = host_with_measured_rtt();
    let now = answer_rounds(&mut host, ms(200), 100, 5, || false);
    let large = host.snapshot(PeerId(2), now).congestion_window;
    let now = answer_rounds(&mut host, now, 350, 12, || false);
    let small = host.snapshot(PeerId(2), now).congestion_window;
    assert!(small < large / 2, "{large} became {small}");
    assert!(small >= 8 * 512, "{small}");
}

/// T-63: loss alone does not shrink the window, unless more than half is lost.
#[test]
fn only_loss_of_more_than_half_shrinks_the_window() {
    let mut dice = TestRng(3);
    let mut host = host_with_measured_rtt();
    let now = answer_rounds(&mut host, ms(200), 100, 8, || dice.below(10) < 3);
    let kept = host.snapshot(PeerId(2), now).congestion_window;
    assert!(kept >= 40 * 512, "{kept}");
    let now = answer_rounds(&mut host, now, 100, 30, || dice.below(10) < 8);
    let shrunk = host.snapshot(PeerId(2), now).congestion_window;
    assert!(shrunk < kept / 2, "{kept} became {shrunk}");
}

/// T-63: one message may always be in flight, even with a small window.
#[test]
fn one_message_is_always_allowed_in_flight() {
    let mut host = host_with_forged_peer(Config { initial_window: 1, max_window: 1, ..unencrypted() });
    for _ in 0..5 {
        host.send(PeerId(2), b"xy", START);
    }
    for seq in 0..5 {
        assert_eq!(host.sent_texts(START), [format!("data seq={seq} 2 bytes")]);
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), START);
    }
    assert_eq!(host.sent_texts(START), [""; 0]);
}
