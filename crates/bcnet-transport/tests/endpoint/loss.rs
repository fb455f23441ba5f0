//! What is lost is found and sent again, no faster than the link allows.

use std::collections::VecDeque;
use std::time::Duration;

use bcnet_transport::wire::{Channel, Message, PeerId};
use bcnet_transport::{Config, Engine, Time};

use crate::net::{Dice, End, Packet, START, ack, address, from_peer, measured, ms, pattern, plain, puppet};

/// T-62: a message is lost when something of the third datagram after it was acknowledged, and not before.
#[test]
fn a_message_overtaken_by_three_datagrams_is_sent_again_at_once() {
    let mut host = measured();
    for seq in 0..5 {
        host.send(PeerId(2), &pattern(seq, 400), ms(200));
    }
    assert_eq!(host.flush(ms(200)).len(), 5);
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 1)]), ms(300));
    assert_eq!(host.says(ms(300)), [""; 0]);
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 2)]), ms(301));
    assert_eq!(host.says(ms(301)), [""; 0]);
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 3)]), ms(302));
    assert_eq!(host.says(ms(302)), ["data seq=0 400 bytes"]);
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 4)]), ms(303));
    assert_eq!(host.says(ms(303)), [""; 0], "it is not sent once more");
    assert_eq!(host.counters(PeerId(2)).retransmits, 1);
}

/// T-62, T-66: all that was lost is sent again in one flush, in order, before anything fresh.
#[test]
fn all_that_was_lost_is_sent_again_in_one_flush() {
    let mut host = measured();
    for seq in 0..8 {
        host.send(PeerId(2), &pattern(seq, 400), ms(200));
    }
    host.flush(ms(200));
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 7)]), ms(300));
    host.send(PeerId(2), b"fresh", ms(300));
    let words: Vec<String> = (0..5).map(|seq| format!("data seq={seq} 400 bytes")).collect();
    assert_eq!(host.says(ms(300))[..5], words);
    let fresh = host.snapshot(PeerId(2), ms(300));
    assert_eq!(fresh.fresh, 0);
}

/// T-61: an answer that comes too soon after a repeat answers the first send, and is measured from there.
#[test]
fn an_answer_too_soon_after_a_repeat_answers_the_first_send() {
    let mut host = measured();
    host.send(PeerId(2), b"slow", ms(200));
    host.timeline(ms(200), ms(500));
    assert_eq!(host.counters(PeerId(2)).retransmits, 1);
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(510));
    // 7/8 · 100 + 1/8 · 310.
    assert_eq!(host.snapshot(PeerId(2), ms(510)).round_trip, Some(Duration::from_micros(126_250)));
}

/// T-61: when the way becomes much longer than the timeout, that is found out, and repeats for nothing end.
#[test]
fn a_way_that_becomes_longer_than_the_timeout_is_measured() {
    let mut host = measured();
    let mut answers: VecDeque<(Time, Vec<u8>)> = VecDeque::new();
    let mut early = 0;
    for tick in 20..2000_u64 {
        let now = ms(10 * tick);
        while answers.front().is_some_and(|(due, _)| *due <= now) {
            let (_, bytes) = answers.pop_front().expect("there is one");
            host.hear_from(address(1), &bytes, now);
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
    assert!(snapshot.round_trip > Some(Duration::from_millis(700)), "{:?}", snapshot.round_trip);
    let late = host.counters(PeerId(2)).retransmits - early;
    assert_eq!(late, 0, "of 200 messages, after {early} repeats in the first half");
}

/// T-61: where every message is lost once and its repeat is answered in the usual time, nothing says that the way is
/// longer: what is taken for the round trip hardly grows with the time that the loss itself takes.
#[test]
fn a_way_that_loses_everything_once_is_not_taken_for_a_longer_one() {
    let mut host = measured();
    let mut now = ms(200);
    for seq in 0..60 {
        host.send(PeerId(2), b"lost once", now);
        assert_eq!(host.flush(now).len(), 1, "message {seq}");
        let repeat = loop {
            now = now + Duration::from_millis(10);
            if !host.flush(now).is_empty() {
                break now;
            }
        };
        now = repeat + Duration::from_millis(100);
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), now);
    }
    let snapshot = host.snapshot(PeerId(2), now);
    assert!(snapshot.round_trip <= Some(Duration::from_millis(300)), "{:?}", snapshot.round_trip);
    assert!(snapshot.timeout <= Duration::from_millis(1000), "{:?}", snapshot.timeout);
}

/// T-63: at first 40 datagrams may be under way; each ACK makes room for more.
#[test]
fn at_first_40_datagrams_may_be_under_way() {
    let mut host = measured();
    for seq in 0..200 {
        host.send(PeerId(2), &pattern(seq, 400), ms(200));
    }
    let packets = host.flush(ms(200));
    let snapshot = host.snapshot(PeerId(2), ms(200));
    assert_eq!(snapshot.budget, 40 * 512);
    assert_eq!((packets.len(), snapshot.in_flight), (50, 50 * 405));
    assert!(snapshot.in_flight <= snapshot.budget && snapshot.in_flight + 405 > snapshot.budget);
    assert_eq!((snapshot.unacknowledged.len(), snapshot.fresh), (50, 150));
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(300));
    let more = host.flush(ms(300));
    assert!(!more.is_empty() && more.len() <= 2, "{}", more.len());
}

/// Answers everything that `host` sends `trip` after it was sent, for `rounds` rounds of as much as it may send.
/// `lose` tells of each message whether it is lost.
fn converse(host: &mut End, start: Time, trip: u64, rounds: usize, mut lose: impl FnMut() -> bool) -> Time {
    let mut now = start;
    for _ in 0..rounds {
        while host.endpoint.send(PeerId(2), &[0; 400], bcnet_transport::Quality::Reliable, now).is_ok() {}
        let sent = host.flush(now);
        let answers: Vec<Message<'_>> = sent
            .iter()
            .flat_map(Packet::data)
            .filter(|_| !lose())
            .map(|(delivery, _)| ack(Channel::Game, delivery.seq().expect("reliable").0))
            .collect();
        now = now + Duration::from_millis(trip);
        for answers in answers.chunks(16) {
            host.hear_from(address(1), &from_peer(2, answers), now);
        }
    }
    now
}

/// T-63: the budget grows while round trips stay near the least, up to a limit.
#[test]
fn the_budget_grows_while_round_trips_stay_short() {
    let mut host = measured();
    let now = converse(&mut host, ms(200), 100, 3, || false);
    let grown = host.snapshot(PeerId(2), now).budget;
    assert!(grown > 100 * 512, "{grown}");
    let now = converse(&mut host, now, 100, 20, || false);
    assert_eq!(host.snapshot(PeerId(2), now).budget, Config::default().max_budget);
}

/// T-63: it shrinks when round trips grow by more than the least one, for then a queue builds up on the way.
#[test]
fn the_budget_shrinks_when_round_trips_grow() {
    let mut host = measured();
    let now = converse(&mut host, ms(200), 100, 5, || false);
    let large = host.snapshot(PeerId(2), now).budget;
    let now = converse(&mut host, now, 350, 12, || false);
    let small = host.snapshot(PeerId(2), now).budget;
    assert!(small < large / 2, "{large} became {small}");
    assert!(small >= 8 * 512, "{small}");
}

/// T-63: loss alone does not shrink it, unless more than half is lost.
#[test]
fn only_the_loss_of_more_than_half_shrinks_the_budget() {
    let mut dice = Dice(3);
    let mut host = measured();
    let now = converse(&mut host, ms(200), 100, 8, || dice.below(10) < 3);
    let kept = host.snapshot(PeerId(2), now).budget;
    assert!(kept >= 40 * 512, "{kept}");
    let now = converse(&mut host, now, 100, 30, || dice.below(10) < 8);
    let shrunk = host.snapshot(PeerId(2), now).budget;
    assert!(shrunk < kept / 2, "{kept} became {shrunk}");
}

/// T-63: something is always under way, however small the budget.
#[test]
fn something_is_always_under_way() {
    let mut host = puppet(Config { first_budget: 1, max_budget: 1, ..plain() });
    for _ in 0..5 {
        host.send(PeerId(2), b"xy", START);
    }
    for seq in 0..5 {
        assert_eq!(host.says(START), [format!("data seq={seq} 2 bytes")]);
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), START);
    }
    assert_eq!(host.says(START), [""; 0]);
}
