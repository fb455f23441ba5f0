//! T-57: disconnects that may be forged, and the probes that check them. T-60: forged ACKs.

use std::time::Duration;

use bcnet_transport::wire::{Channel, Delivery, Message, PeerId, Seq};
use bcnet_transport::{Engine, Event, LeaveReason, RejectCause, Time};

use crate::address_verification::{ack_proof_config, joined_peers};
use crate::net::{
    START, TestEndpoint, ack, address, before, connect, disconnect, from_peer, host_with_forged_peer,
    host_with_measured_rtt, identity, ms, unencrypted, utf16,
};

/// Returns the two numbers of the probe that the host sends now, and checks its form.
fn take_probe(host: &mut TestEndpoint, seq: u16, now: Time) -> Option<[u16; 2]> {
    let packets = host.flush(now);
    let probe = packets.iter().find(|packet| packet.message_texts().len() == 3)?;
    assert_eq!((probe.to, probe.bytes.len()), (address(1), 16));
    assert_eq!(probe.message_texts()[0], format!("ack control seq={seq}"));
    let numbers: Vec<u16> = probe
        .data()
        .iter()
        .map(|(delivery, payload)| match delivery {
            Delivery::Reliable(Seq(number)) if payload.is_empty() => *number,
            other => panic!("{other:?}"),
        })
        .collect();
    let [one, other] = numbers[..] else { panic!("{numbers:?}") };
    assert!(one != other && one >= 0x4000 && other >= 0x4000, "{numbers:?}");
    Some([one, other])
}

fn answer(host: &mut TestEndpoint, numbers: &[u16], now: Time) {
    let acks: Vec<_> = numbers.iter().map(|number| ack(Channel::Game, *number)).collect();
    host.receive_from(address(1), &from_peer(2, &acks), now);
}

/// Answers both probes of a forged disconnect. Returns the time at which it is dropped.
fn survive(host: &mut TestEndpoint, seq: u16, now: Time) -> Time {
    host.receive_from(address(1), &from_peer(2, &[disconnect(seq, 2)]), now);
    let first = take_probe(host, seq, now).expect("a probe");
    answer(host, &first, now);
    assert_eq!(take_probe(host, seq, now + Duration::from_millis(249)), None);
    let later = now + Duration::from_millis(250);
    let second = take_probe(host, seq, later).expect("a second probe");
    assert_ne!(first, second);
    answer(host, &second, later);
    later
}

/// T-57: a client that answers both probes stays. Its next control message has the number of the forged one.
#[test]
fn answered_probes_drop_the_disconnect() {
    let mut host = host_with_forged_peer(unencrypted());
    let later = survive(&mut host, 1, ms(3000));
    assert_eq!(host.endpoint.rejected().count(RejectCause::ForgedDisconnect), 1);
    let name = utf16("Ann");
    host.receive_from(address(1), &from_peer(2, &[identity(1, 2, &name)]), later);
    let events = host.events();
    assert!(events.iter().any(|(event, bytes)| matches!(event, Event::Identity { .. }) && *bytes == name));
    assert_eq!(host.sent_texts(later)[0], "ack control seq=1");
    host.timeline(later, ms(7000));
    assert_eq!(host.left_peers(), []);
    // A real disconnect after that still ends the connection.
    host.receive_from(address(1), &from_peer(2, &[disconnect(2, 2)]), ms(7000));
    host.timeline(ms(7000), ms(8510));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
}

/// T-57: the probe is repeated every 75 ms, and the client stays connected until 1.5 s and one RTT are over.
#[test]
fn unanswered_probe_ends_the_connection() {
    let mut host = host_with_measured_rtt();
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), ms(3000));
    host.send(PeerId(2), b"news", ms(3000));
    let sent = host.timeline(ms(3000), before(ms(4600)));
    assert!(sent.iter().any(|line| line.starts_with("3.000 data seq=0")), "{sent:?}");
    assert_eq!(sent.iter().filter(|line| line.ends_with("ack control seq=1")).count(), 22, "{sent:?}");
    assert_eq!(host.left_peers(), []);
    host.timeline(before(ms(4600)), ms(4600));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
}

/// T-57: a client that answers only the first probe has left: it answered in its last datagram.
#[test]
fn answer_to_the_first_probe_alone_is_not_enough() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), ms(3000));
    let first = take_probe(&mut host, 1, ms(3000)).expect("a probe");
    for now in [3000, 3100, 3400, 4000] {
        answer(&mut host, &first, ms(now));
    }
    host.timeline(ms(4000), before(ms(4750)));
    assert_eq!(host.left_peers(), []);
    host.timeline(before(ms(4750)), ms(4760));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
}

/// T-57: neither one number, nor any other datagram, nor a wrong number shows that the client lives.
#[test]
fn guesses_and_other_datagrams_do_not_answer_a_probe() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), ms(3000));
    let [one, other] = take_probe(&mut host, 1, ms(3000)).expect("a probe");
    answer(&mut host, &[one], ms(3001));
    answer(&mut host, &[other], ms(3002));
    answer(&mut host, &[one, other ^ 1], ms(3003));
    for now in 0..150 {
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(3000 + 10 * now));
        host.flush(ms(3000 + 10 * now));
    }
    host.timeline(ms(4490), ms(4510));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
}

/// T-57: a disconnect ahead of the expected number is not stored; one behind it is checked as well.
///
/// A forged name may have used up the number of the real disconnect.
#[test]
fn number_of_a_disconnect_decides_whether_it_is_checked() {
    let mut host = host_with_forged_peer(unencrypted());
    for seq in [2, 3, 0x3FFF, 0x4001, 0x8000] {
        host.receive_from(address(1), &from_peer(2, &[disconnect(seq, 2)]), ms(3000));
        assert_eq!(host.sent_texts(ms(3000)), [""; 0], "{seq}");
    }
    let name = utf16("Ann");
    host.receive_from(address(1), &from_peer(2, &[identity(1, 2, &name)]), ms(3000));
    host.flush(ms(3000));
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), ms(3000));
    assert!(take_probe(&mut host, 1, ms(3000)).is_some());
    host.timeline(ms(3000), ms(4510));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
}

/// T-57, T-77: a client that comes back before the end of the probes joins after one round trip.
///
/// It acknowledges both cookies in one datagram, and may have acknowledged the probe as well.
#[test]
fn client_that_comes_back_needs_one_round_trip() {
    for old_probe in [false, true] {
        let mut host = host_with_forged_peer(ack_proof_config());
        let (id, cookies, probe) = ask_after_disconnect(&mut host, 99, ms(3000)).expect("an answer");
        host.send(PeerId(2), b"for the old one", ms(3020));
        assert_eq!(host.sent_texts(ms(3020)), [""; 0], "messages to the old client pause");
        let mut acks = vec![ack(Channel::Control, 0)];
        acks.extend(probe.iter().filter(|_| old_probe).chain(&cookies).map(|seq| ack(Channel::Game, *seq)));
        host.receive_from(address(1), &from_peer(id, &acks), ms(3040));
        let events = host.events();
        let gone = Event::Left { peer: PeerId(2), reason: LeaveReason::Disconnected };
        let known: Vec<_> = events
            .iter()
            .map(|(event, _)| *event)
            .filter(|event| matches!(event, Event::Left { .. } | Event::Joined { .. }))
            .collect();
        assert_eq!(known, [gone, Event::Joined { peer: PeerId(id) }], "{old_probe}");
    }
}

/// T-57, T-77: one cookie of the two, or a wrong number, does not verify a client.
///
/// After a wrong number or a forged disconnect, the host answers only when the peer is silent for two seconds.
#[test]
fn forged_restart_does_not_replace_a_peer() {
    let mut host = host_with_forged_peer(ack_proof_config());
    let (id, cookies, probe) = ask_after_disconnect(&mut host, 99, ms(3000)).expect("an answer");
    host.receive_from(address(1), &from_peer(id, &[ack(Channel::Game, cookies[1])]), ms(3030));
    assert_eq!(joined_peers(&mut host), []);
    host.receive_from(address(1), &from_peer(id, &[ack(Channel::Game, cookies[1] ^ 1)]), ms(3031));
    let both: Vec<_> = cookies.iter().map(|seq| ack(Channel::Game, *seq)).collect();
    host.receive_from(address(1), &from_peer(id, &both), ms(3032));
    assert_eq!(joined_peers(&mut host), [], "the offer is withdrawn");
    answer(&mut host, &probe, ms(3050));
    let second = take_probe(&mut host, 1, ms(3300)).expect("a second probe");
    answer(&mut host, &second, ms(3350));
    assert_eq!(host.left_peers(), []);
    assert!(ask_after_disconnect(&mut host, 100, ms(4000)).is_none(), "the peer is alive");
}

/// Forges a disconnect and a request. Returns the offered id, both cookies and the numbers of the probe.
fn ask_after_disconnect(host: &mut TestEndpoint, nonce: u32, now: Time) -> Option<(u8, [u16; 2], [u16; 2])> {
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), now);
    let probe = take_probe(host, 1, now)?;
    let asked = now + Duration::from_millis(10);
    host.receive_from(address(1), &connect(nonce), asked);
    let id = host.endpoint.challenge(address(1), asked).ok()?;
    let packets = host.flush(asked);
    let offer = packets.iter().find(|packet| packet.message_texts().len() == 4)?;
    let numbers: Vec<u16> = offer
        .data()
        .iter()
        .filter_map(|(delivery, _)| match delivery {
            Delivery::Reliable(Seq(number)) => Some(*number),
            _ => None,
        })
        .collect();
    Some((id.0, [numbers[0], numbers[1]], probe))
}

/// T-60: a datagram with an ACK of a message that was never sent acknowledges nothing.
#[test]
fn datagram_with_a_forged_ack_acknowledges_nothing() {
    for position in [0, 1, 3] {
        let mut host = host_with_measured_rtt();
        for _ in 0..3 {
            host.send(PeerId(2), b"x", ms(1000));
        }
        host.flush(ms(1000));
        let mut acks: Vec<_> = (0..3).map(|seq| ack(Channel::Game, seq)).collect();
        acks.insert(position, ack(Channel::Game, 3));
        host.receive_from(address(1), &from_peer(2, &acks), ms(1010));
        assert_eq!(host.endpoint.rejected().count(RejectCause::ForgedAck), 1, "{position}");
        let queued = host.snapshot(PeerId(2), ms(1010));
        assert_eq!(queued.unacknowledged.len(), 3, "{position}: {queued:?}");
        // The second send follows at once, or with the first trusted ACK.
        host.flush(ms(1010));
        let acks: Vec<_> = (0..3).map(|seq| ack(Channel::Game, seq)).collect();
        host.receive_from(address(1), &from_peer(2, &acks), ms(1100));
        host.flush(ms(1100));
        host.receive_from(address(1), &from_peer(2, &acks), ms(1200));
        let end = host.snapshot(PeerId(2), ms(1200));
        assert_eq!(
            (end.unacknowledged.len(), end.queued_bytes, end.in_flight),
            (0, 0, 0),
            "{position}: {end:?}"
        );
    }
}

/// T-60: for one minute after a forged ACK, a message needs ACKs after two sends; then one is enough again.
#[test]
fn guard_ends_one_minute_after_the_last_forged_ack() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 7)]), ms(1000));
    for (now, sends) in [(2000, 2), (60_999, 2), (61_000, 1), (62_000, 1)] {
        let seq = host.endpoint.unacked_range(PeerId(2), Channel::Game).expect("a peer").end.0;
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(now));
        host.send(PeerId(2), b"x", ms(now));
        for _ in 0..sends {
            assert_eq!(host.sent_texts(ms(now)), [format!("data seq={seq} 1 byte")], "{now}");
            host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), ms(now));
        }
        assert_eq!(host.sent_texts(ms(now)), [""; 0], "{now}");
        assert_eq!(host.snapshot(PeerId(2), ms(now)).queued_bytes, 0, "{now}");
    }
}

/// T-57: a client acknowledges repetitions of the end of its session for 1.5 s, because its ACK may be lost.
#[test]
fn client_acknowledges_repetitions_of_the_end() {
    let mut client = crate::net::client_with_forged_host(unencrypted());
    for now in [START, ms(100), ms(1000), before(ms(1500))] {
        client.receive_from(crate::net::HOST, &from_peer(1, &[disconnect(1, 1)]), now);
        assert_eq!(client.sent_texts(now), ["ack control seq=1"], "{now}");
        assert!(!client.endpoint.is_closed());
    }
    assert_eq!(client.left_peers(), [(PeerId::HOST, LeaveReason::Disconnected)]);
    client.flush(ms(1500));
    assert!(client.endpoint.is_closed());
}
