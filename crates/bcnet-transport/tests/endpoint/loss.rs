//! What is lost is found and sent again, no faster than the link allows; peers that answer parts with plain ACKs.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bcnet_transport::wire::{Channel, Message, PeerId};
use bcnet_transport::{Config, Time};

use crate::net::{
    Dice, End, Packet, START, ack, address, from_peer, measured, ms, pattern, plain, puppet, said,
};

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
    assert_eq!(host.snapshot(PeerId(2), now).budget, Config::default().most_budget);
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
    let mut host = puppet(Config { first_budget: 1, most_budget: 1, ..plain() });
    for _ in 0..5 {
        host.send(PeerId(2), b"xy", START);
    }
    for seq in 0..5 {
        assert_eq!(host.says(START), [format!("data seq={seq} 2 bytes")]);
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), START);
    }
    assert_eq!(host.says(START), [""; 0]);
}

/// T-65: without loss, as many plain ACKs as parts settle a split message, and nothing is sent again.
#[test]
fn plain_acks_for_all_parts_settle_a_split_message() {
    let mut host = puppet(plain());
    host.send(PeerId(2), &pattern(0, 832), START);
    host.send(PeerId(2), b"next", START);
    assert_eq!(said(&host.flush(START)).len(), 4);
    for left in [3, 3, 0] {
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), START);
        assert_eq!(host.snapshot(PeerId(2), START).unacknowledged.len(), left + 1);
    }
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 1)]), START);
    assert_eq!(host.snapshot(PeerId(2), START).queued_bytes, 0);
    assert_eq!(host.timeline(START, ms(4999)), [""; 0]);
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(5000));
    assert_eq!(host.counters(PeerId(2)).acks_useless, 1);
}

/// T-65: if one part is lost, all are sent again, in one round, until a round is answered in full.
#[test]
fn plain_acks_settle_nothing_until_a_round_is_answered_in_full() {
    let mut host = measured();
    host.send(PeerId(2), &pattern(0, 832), ms(200));
    host.flush(ms(200));
    // Part 2 is lost, so two plain ACKs come.
    for _ in 0..2 {
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(300));
    }
    assert_eq!(host.snapshot(PeerId(2), ms(300)).unacknowledged.len(), 3);
    let lines = host.timeline(ms(300), ms(1000));
    let parts = ["part=0/3 405", "part=1 406", "part=2 21"];
    let again: Vec<String> = parts.iter().map(|part| format!("0.800 data seq=0 {part} bytes")).collect();
    assert_eq!(lines, again, "after twice the timeout, when nothing of the round can still be answered");
    for _ in 0..3 {
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(1000));
    }
    assert_eq!(host.snapshot(PeerId(2), ms(1000)).queued_bytes, 0);
    assert_eq!(host.timeline(ms(1000), ms(4900)), [""; 0]);
}

/// T-65: with every fifth datagram lost each way nothing is lost that was settled, and the re-sending ends.
#[test]
fn a_peer_with_plain_acks_gets_everything_on_a_lossy_link() {
    for seed in 1..=20 {
        let mut dice = Dice(seed * 7919);
        let mut host = measured();
        let mut there: Vec<BTreeSet<u8>> = vec![BTreeSet::new(); 10];
        for len in 0..10 {
            host.send(PeerId(2), &pattern(0, 500 + 300 * len), ms(200));
        }
        let mut answers: Vec<(Time, Vec<u8>)> = Vec::new();
        for tick in 20..12_000_u64 {
            let now = ms(10 * tick);
            while let Some(at) = answers.iter().position(|(due, _)| *due <= now) {
                host.hear_from(address(1), &answers.remove(at).1, now);
            }
            for packet in host.flush(now) {
                if dice.below(5) == 0 {
                    continue;
                }
                let mut acks = vec![Message::Keepalive];
                for (delivery, _) in packet.data() {
                    let (seq, part) = (delivery.seq().expect("reliable").0, delivery.part().expect("split"));
                    there[usize::from(seq)].insert(part.index());
                    acks.push(ack(Channel::Game, seq));
                }
                if dice.below(5) > 0 {
                    answers.push((now + Duration::from_millis(100), from_peer(2, &acks)));
                }
            }
            let waiting = host.snapshot(PeerId(2), now).unacknowledged;
            for (seq, parts) in there.iter().enumerate() {
                let total = 1 + (500 + 300 * seq - 405).div_ceil(406);
                let settled = waiting.iter().all(|unit| usize::from(unit.id.seq.0) != seq);
                assert!(!settled || parts.len() == total, "seed {seed}: message {seq} was settled too early");
            }
            if waiting.is_empty() {
                break;
            }
        }
        let end = host.snapshot(PeerId(2), ms(120_000));
        assert_eq!(end.queued_bytes, 0, "seed {seed}: {} parts are still sent", end.unacknowledged.len());
    }
}
