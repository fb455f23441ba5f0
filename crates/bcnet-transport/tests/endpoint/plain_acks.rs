//! Peers that answer fragments with plain ACKs, without the index: all fragments still get acknowledged.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bcnet_transport::wire::{Channel, Message, PeerId};
use bcnet_transport::{Config, Engine, Time};

use crate::net::{
    START, SentDatagram, TestEndpoint, TestRng, ack, ack_fragment, address, all_message_texts, from_peer,
    host_with_forged_peer, host_with_measured_rtt, ms, pattern, unencrypted,
};

/// Answers the messages of `host` with plain ACKs, 10 ms later, until `until`.
///
/// Returns the sent messages with their times.
fn send_plain_acks(host: &mut TestEndpoint, from: Time, until: Time) -> Vec<String> {
    send_plain_acks_after(host, from, until, &[10])
}

/// Does the same as [`send_plain_acks`], with a list of delays in milliseconds.
fn send_plain_acks_after(host: &mut TestEndpoint, from: Time, until: Time, delays: &[u64]) -> Vec<String> {
    let (mut now, mut lines) = (from, Vec::new());
    loop {
        let packets = host.flush(now);
        let at = now.since(START).as_secs_f64();
        lines.extend(all_message_texts(&packets).iter().map(|line| format!("{at:.3} {line}")));
        let seqs = packets
            .iter()
            .flat_map(SentDatagram::data)
            .map(|(delivery, _)| delivery.seq().expect("reliable"));
        let acks: Vec<_> = seqs.map(|seq| ack(Channel::Game, seq.0)).collect();
        let sent = now;
        for delay in delays.iter().filter(|_| !acks.is_empty()) {
            now = sent + Duration::from_millis(*delay);
            host.receive_from(address(1), &from_peer(2, &acks), now);
        }
        match host.endpoint.next_timeout().filter(|next| *next <= until) {
            Some(next) => now = now.max(next),
            None => return lines,
        }
    }
}

/// T-65: as many plain ACKs as fragments may contain duplicates, so each fragment is sent once more, alone.
///
/// That happens after a quiet period; the next ACK acknowledges the fragment.
#[test]
fn plain_acks_acknowledge_fragments_one_by_one() {
    let mut host = host_with_forged_peer(Config { max_queued_messages: 3, ..unencrypted() });
    host.send(PeerId(2), &pattern(0, 832), START);
    let sent = all_message_texts(&host.flush(START));
    assert_eq!(sent.len(), 3);
    for _ in 0..3 {
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(10));
    }
    assert_eq!(host.snapshot(PeerId(2), ms(10)).unacknowledged.len(), 3);
    assert_eq!(host.timeline(ms(10), ms(3000)), [""; 0]);
    let lines = send_plain_acks(&mut host, ms(3000), ms(3990));
    // The quiet period is checked once per timeout.
    let times: Vec<&str> = lines.iter().map(|line| &line[..3]).collect();
    assert_eq!(times, ["3.0", "3.5"], "expected three seconds, then half a second: {lines:?}");
    assert!(lines.iter().zip(&sent).all(|(again, first)| again.ends_with(first)), "{lines:?}");
    assert_eq!(host.snapshot(PeerId(2), ms(3990)).unacknowledged.len(), 1);
    let lines = send_plain_acks(&mut host, ms(3990), ms(9000));
    assert!(lines[0].ends_with("data seq=0 part=2 21 bytes"), "{lines:?}");
    assert_eq!(host.snapshot(PeerId(2), ms(9000)).queued_bytes, 0);
    assert!(lines[1..].iter().all(|line| line.ends_with("keepalive")), "{lines:?}");
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(9000));
    assert_eq!(host.counters(PeerId(2)).acks_useless, 1);
    host.send(PeerId(2), &pattern(0, 832), ms(9000));
}

/// T-65: while unexpected ACKs arrive, no fragment is sent alone.
///
/// If they are late, the peer repeats its ACKs, and the quiet periods become longer.
#[test]
fn single_fragment_waits_until_acks_stop() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), &pattern(0, 500), START);
    host.flush(START);
    let plain_acks = from_peer(2, &[ack(Channel::Game, 0), ack(Channel::Game, 0)]);
    for repeat in 0..9 {
        host.receive_from(address(1), &plain_acks, ms(10 + 670 * repeat));
        assert_eq!(
            host.timeline(ms(10 + 670 * repeat), ms(10 + 670 * repeat + 669)).join(""),
            keepalive_text(repeat)
        );
    }
    let repeats_end = 10 + 670 * 8;
    assert_eq!(host.timeline(ms(repeats_end + 669), ms(repeats_end + 2999)), [""; 0]);
    let lines = send_plain_acks(&mut host, ms(repeats_end + 2999), ms(repeats_end + 3100));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].ends_with("data seq=0 part=0/2 405 bytes"), "{lines:?}");
    let answered = repeats_end + 3100;
    assert_eq!(host.snapshot(PeerId(2), ms(answered)).unacknowledged.len(), 1);
    assert_eq!(host.timeline(ms(answered), ms(answered + 2800)).len(), 1, "a keepalive");
}

/// Returns the text that is sent within the `n`th 670 ms (T-55).
fn keepalive_text(n: u64) -> &'static str {
    if n == 7 { "5.000 keepalive" } else { "" }
}

/// T-65: if one fragment is lost, all are retransmitted in three rounds, then one by one.
#[test]
fn fragments_are_retransmitted_in_rounds_then_singly() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), &pattern(0, 832), ms(200));
    host.flush(ms(200));
    let parts = ["part=0/3 405", "part=1 406", "part=2 21"];
    for (round, at) in ["0.800", "1.400", "2.000"].iter().enumerate() {
        // One fragment of three is always lost, so two plain ACKs arrive.
        let acked_at = 300 + 600 * round as u64;
        for _ in 0..2 {
            host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(acked_at));
        }
        let lines = host.timeline(ms(acked_at), ms(acked_at + 599));
        let again: Vec<String> = parts.iter().map(|part| format!("{at} data seq=0 {part} bytes")).collect();
        assert_eq!(
            lines, again,
            "retransmitted after twice the timeout, when the round can no longer be answered"
        );
    }
    let lines = host.timeline(ms(2100), ms(4990));
    assert_eq!(lines, [""; 0], "something was sent within three seconds");
    let lines = host.timeline(ms(4991), ms(8000));
    let alone: Vec<_> = lines.iter().filter(|line| !line.ends_with("keepalive")).collect();
    assert!(alone.len() > 2 && alone.iter().all(|line| line.ends_with("part=0/3 405 bytes")), "{lines:?}");
}

/// T-62, T-65: the retransmission intervals of a single unanswered fragment grow like those of any message.
#[test]
fn unanswered_fragment_backs_off() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), &pattern(0, 832), ms(200));
    host.flush(ms(200));
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(300));
    let mut lines = Vec::new();
    for tenth in 3..600 {
        lines.extend(host.timeline(ms(100 * tenth), ms(100 * tenth + 99)));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(100 * tenth + 99));
    }
    let alone = lines.iter().filter(|line| line.ends_with("part=0/3 405 bytes")).count();
    assert!((15..=30).contains(&alone), "sent alone {alone} times in a minute");
    assert_eq!(
        lines.iter().filter(|line| line.ends_with("part=1 406 bytes")).count(),
        3,
        "sent only in rounds"
    );
}

/// T-65: fragments marked for retransmission when the ACKs arrive wait for their turn.
///
/// Otherwise any of those ACKs could seem to answer them.
#[test]
fn lost_fragments_are_deferred_in_single_phase() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), &pattern(0, 832), ms(200));
    host.flush(ms(200));
    host.endpoint.handle_timeout(ms(500));
    for _ in 0..3 {
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(500));
    }
    assert_eq!(host.timeline(ms(500), ms(3499)), [""; 0]);
    assert_eq!(host.timeline(ms(3500), ms(3799)).len(), 1);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(3799));
    assert_eq!(host.snapshot(PeerId(2), ms(3799)).unacknowledged.len(), 2);
}

/// Creates a host whose split message was answered with plain ACKs, so that fragments are sent one by one.
fn host_in_single_fragment_phase(len: usize, fragments: usize) -> TestEndpoint {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), &pattern(0, len), ms(200));
    assert_eq!(all_message_texts(&host.flush(ms(200))).len(), fragments);
    for _ in 0..fragments {
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(210));
    }
    host
}

/// T-65: slow ACKs, or ACKs that the network duplicates, do not make the quiet period long.
#[test]
fn slow_or_duplicated_acks_are_not_repeated_acks() {
    for delays in [&[400][..], &[10, 15]] {
        let mut host = host_in_single_fragment_phase(1600, 4);
        let lines = send_plain_acks_after(&mut host, ms(210), ms(20_000), delays);
        let at: Vec<f64> = lines
            .iter()
            .filter(|line| line.contains("data"))
            .map(|line| line[..5].parse().expect("a time"))
            .collect();
        assert_eq!(at.len(), 4, "{lines:?}");
        assert!(at.windows(2).all(|two| two[1] - two[0] < 2.5), "{delays:?}: {lines:?}");
        assert_eq!(host.snapshot(PeerId(2), ms(20_000)).queued_bytes, 0);
    }
}

/// T-65: a deferred fragment may be acknowledged by its indexed ACK; the others continue.
#[test]
fn deferred_fragment_can_be_acknowledged() {
    let mut host = host_in_single_fragment_phase(1600, 4);
    assert_eq!(host.timeline(ms(210), ms(1500)), [""; 0]);
    host.receive_from(address(1), &from_peer(2, &[ack_fragment(0, 1)]), ms(1500));
    let lines = send_plain_acks(&mut host, ms(1500), ms(20_000));
    let parts: Vec<_> = lines.iter().filter(|line| line.contains("data")).collect();
    assert!(parts.len() == 3 && parts.iter().all(|line| !line.contains("part=1 ")), "{lines:?}");
    assert_eq!(host.snapshot(PeerId(2), ms(20_000)).queued_bytes, 0);
}

/// T-65: ACKs of single fragments do not end a round: the rest is retransmitted as soon as in the first.
#[test]
fn indexed_acks_do_not_end_a_round() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), &pattern(0, 1600), ms(200));
    host.flush(ms(200));
    let acks = [ack(Channel::Game, 0), ack_fragment(0, 0), ack_fragment(0, 1), ack_fragment(0, 2)];
    host.receive_from(address(1), &from_peer(2, &acks), ms(210));
    let lines = host.timeline(ms(210), ms(1500));
    assert!(lines.iter().any(|line| line.contains("part=3 ")), "{lines:?}");
}

/// T-62, T-65: other ACKs do not trigger an early retransmission of a deferred fragment.
#[test]
fn other_acks_do_not_hurry_a_deferred_fragment() {
    let mut host = host_in_single_fragment_phase(832, 3);
    for seq in 1..=8 {
        let now = ms(210 + 10 * u64::from(seq));
        host.send(PeerId(2), &[7; 10], now);
        assert_eq!(host.sent_texts(now), [format!("data seq={seq} 10 bytes")]);
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), now);
    }
    assert_eq!(host.timeline(ms(290), ms(3200)), [""; 0]);
    send_plain_acks(&mut host, ms(3200), ms(9000));
    assert_eq!(host.snapshot(PeerId(2), ms(9000)).queued_bytes, 0);
}

/// T-64, T-65: the largest message arrives, and its retransmission ends before the delivery timeout.
#[test]
fn largest_message_completes_with_plain_acks_under_loss() {
    let mut dice = TestRng(77);
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), &pattern(0, 103_529), ms(200));
    let mut there = BTreeSet::new();
    let mut answers: VecDeque<(Time, Vec<u8>)> = VecDeque::new();
    for tick in 20..36_000_u64 {
        let now = ms(10 * tick);
        while let Some((_, answer)) = answers.pop_front_if(|(due, _)| *due <= now) {
            host.receive_from(address(1), &answer, now);
        }
        for packet in host.flush(now).iter().filter(|_| dice.below(5) > 0) {
            let parts: Vec<_> =
                packet.data().iter().filter_map(|(delivery, _)| delivery.fragment()).collect();
            there.extend(parts.iter().map(|part| part.index()));
            let acks: Vec<_> =
                parts.iter().map(|_| ack(Channel::Game, 0)).chain([Message::Keepalive]).collect();
            answers.push_back((now + Duration::from_millis(100), from_peer(2, &acks)));
        }
        if host.snapshot(PeerId(2), now).queued_bytes == 0 {
            assert_eq!(there.len(), 255);
            return;
        }
    }
    panic!(
        "{} fragments are still unacknowledged",
        host.snapshot(PeerId(2), ms(360_000)).unacknowledged.len()
    );
}

/// T-65: with loss and duplication of one datagram in five each way, and ACKs repeated as stock does.
///
/// No missing fragment is acknowledged, and the retransmission ends.
#[test]
fn plain_ack_peer_gets_everything_under_loss() {
    for seed in 1..=60 {
        let mut dice = TestRng(seed * 7919);
        let mut host = host_with_measured_rtt();
        let mut there: Vec<BTreeSet<u8>> = vec![BTreeSet::new(); 10];
        for len in 0..10 {
            host.send(PeerId(2), &pattern(0, 500 + 300 * len), ms(200));
        }
        let repeats = if seed % 3 == 0 { 9 } else { 1 };
        let mut answers: Vec<(Time, Vec<u8>)> = Vec::new();
        for tick in 20..12_000_u64 {
            let now = ms(10 * tick);
            while let Some(at) = answers.iter().position(|(due, _)| *due <= now) {
                host.receive_from(address(1), &answers.remove(at).1, now);
            }
            for packet in host.flush(now) {
                for _ in 0..random_copies(&mut dice) {
                    let mut acks = vec![Message::Keepalive];
                    for (delivery, _) in packet.data() {
                        let (seq, part) =
                            (delivery.seq().expect("reliable").0, delivery.fragment().expect("split"));
                        there[usize::from(seq)].insert(part.index());
                        acks.push(ack(Channel::Game, seq));
                    }
                    let answer = from_peer(2, &acks);
                    for repeat in 0..repeats {
                        let back = Duration::from_millis(100 + 670 * repeat);
                        (0..random_copies(&mut dice))
                            .for_each(|_| answers.push((now + back, answer.clone())));
                    }
                }
            }
            let waiting = host.snapshot(PeerId(2), now).unacknowledged;
            for (seq, parts) in there.iter().enumerate() {
                let total = 1 + (500 + 300 * seq - 405).div_ceil(406);
                let settled = waiting.iter().all(|unit| usize::from(unit.id.seq.0) != seq);
                assert!(
                    !settled || parts.len() == total,
                    "seed {seed}: message {seq} was acknowledged too early"
                );
            }
            if waiting.is_empty() {
                break;
            }
        }
        let end = host.snapshot(PeerId(2), ms(120_000));
        assert_eq!(
            end.queued_bytes,
            0,
            "seed {seed}: {} fragments are still unacknowledged",
            end.unacknowledged.len()
        );
    }
}

/// T-64, T-65: with repeated plain ACKs, many fragments take longer than the delivery timeout.
///
/// The connection continues, because every acknowledged fragment is progress.
#[test]
fn slow_plain_acks_are_not_undeliverable() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), &pattern(0, 24_000), ms(200));
    let mut answers: Vec<(Time, Vec<u8>)> = Vec::new();
    for tick in 20..100_000_u64 {
        let now = ms(10 * tick);
        while let Some(at) = answers.iter().position(|(due, _)| *due <= now) {
            host.receive_from(address(1), &answers.remove(at).1, now);
        }
        for packet in host.flush(now) {
            let parts = packet.data().len();
            let acks = (0..parts).map(|_| ack(Channel::Game, 0)).chain([Message::Keepalive]);
            let answer = from_peer(2, &acks.collect::<Vec<_>>());
            let repeats = if parts == 0 { 1 } else { 9 };
            let back = (0..repeats).map(|repeat| now + Duration::from_millis(100 + 670 * repeat));
            answers.extend(back.map(|due| (due, answer.clone())));
        }
        if host.snapshot(PeerId(2), now).queued_bytes == 0 {
            assert!(
                now > ms(360_000),
                "acknowledged after {} s: too early for this test",
                now.since(START).as_secs()
            );
            return;
        }
    }
    panic!(
        "{} fragments are still unacknowledged",
        host.snapshot(PeerId(2), ms(1_000_000)).unacknowledged.len()
    );
}

/// Returns how often a datagram arrives: one in five is lost, one in five duplicated.
fn random_copies(dice: &mut TestRng) -> u64 {
    [0, 1, 1, 1, 2][usize::try_from(dice.below(5)).expect("a small number")]
}

/// T-65: with any mixture of plain and indexed ACKs, all counters are zero at the end.
#[test]
fn mixed_fragment_acks_keep_counters_consistent() {
    for seed in 1..=200 {
        let mut dice = TestRng(seed * 104_729);
        let mut host = host_with_measured_rtt();
        let (mut now, mut sent) = (ms(200), 0_u16);
        let answer = |host: &mut TestEndpoint, dice: &mut TestRng, sent: u16, now: Time| {
            let seq = u16::try_from(dice.below(u64::from(sent.max(1)))).expect("a small number");
            let part = u8::try_from(dice.below(5)).expect("a small number");
            let message = if dice.below(3) == 0 { ack_fragment(seq, part) } else { ack(Channel::Game, seq) };
            host.receive_from(address(1), &from_peer(2, &[message, Message::Keepalive]), now);
        };
        for _ in 0..400 {
            match dice.below(20) {
                0 if sent < 12 => {
                    let len = usize::try_from(dice.below(1900)).expect("a small number");
                    host.send(PeerId(2), &pattern(0, len), now);
                    sent += 1;
                }
                1..=8 => (0..1 + dice.below(4)).for_each(|_| answer(&mut host, &mut dice, sent, now)),
                _ => now = now + Duration::from_millis(dice.below(400)),
            }
            host.flush(now);
        }
        let all = (0..sent)
            .flat_map(|seq| (0..5).map(move |part| ack_fragment(seq, part)).chain([ack(Channel::Game, seq)]));
        let all: Vec<Message<'_>> = all.collect();
        // Unsent fragments cannot be acknowledged, and a single fragment may be in flight.
        for _ in 0..40 {
            now = now + Duration::from_millis(200);
            host.flush(now);
            host.receive_from(address(1), &from_peer(2, &all[..all.len().min(200)]), now);
        }
        let end = host.snapshot(PeerId(2), now);
        let books = (end.unacknowledged.len(), end.unsent, end.queued_bytes, end.in_flight);
        assert_eq!(books, (0, 0, 0, 0), "seed {seed}: {end:?}");
    }
}
