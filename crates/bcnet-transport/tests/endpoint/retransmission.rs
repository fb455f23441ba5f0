//! Timed transcripts of ACKs and retransmissions.

use std::time::Duration;

use bcnet_transport::wire::{Channel, Message, PeerId};
use bcnet_transport::{Config, DeliveryMode, Engine};

use crate::net::{
    START, TestEndpoint, ack, address, before, connect, from_peer, host_with_forged_peer,
    host_with_measured_rtt, ms, reliable, unencrypted,
};

/// T-60: without recent data the ACK leaves at once, alone, and only once.
#[test]
fn ack_is_sent_at_once_and_only_once() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"x")]), ms(100));
    assert_eq!(host.timeline(ms(100), ms(4999)), ["0.100 ack game seq=0"]);
}

/// T-60: after data within the last 50 ms, the ACK waits up to 20 ms for more, and not a microsecond
/// longer.
#[test]
fn ack_is_delayed_20_ms_after_recent_data() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send_as(PeerId(2), b"news", DeliveryMode::Unreliable, ms(100));
    host.flush(ms(100));
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"x")]), ms(150));
    assert_eq!(host.timeline(ms(150), ms(200)), ["0.170 ack game seq=0"]);

    host.send_as(PeerId(2), b"news", DeliveryMode::Unreliable, ms(300));
    host.flush(ms(300));
    let later = ms(350) + Duration::from_micros(1);
    host.receive_from(address(1), &from_peer(2, &[reliable(1, b"x")]), later);
    assert_eq!(host.sent_texts(later), ["ack game seq=1"], "after more than 50 ms the ACK leaves at once");
}

/// T-60: later ACKs do not delay the first one; all leave with it.
#[test]
fn later_acks_do_not_postpone_the_first() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send_as(PeerId(2), b"news", DeliveryMode::Unreliable, ms(100));
    host.flush(ms(100));
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"x")]), ms(110));
    host.receive_from(address(1), &from_peer(2, &[reliable(1, b"x")]), ms(125));
    assert_eq!(host.timeline(ms(125), ms(200)), ["0.130 ack game seq=0", "0.130 ack game seq=1"]);
}

/// T-60, T-66: a delayed ACK leaves with the next data, in front of it.
#[test]
fn delayed_ack_is_piggybacked_on_data() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send_as(PeerId(2), b"news", DeliveryMode::Unreliable, ms(100));
    host.flush(ms(100));
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"x")]), ms(110));
    assert_eq!(host.sent_texts(ms(110)), [""; 0]);
    host.send_as(PeerId(2), b"more", DeliveryMode::Unreliable, ms(120));
    let packets = host.flush(ms(120));
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].message_texts(), ["ack game seq=0", "data unreliable 4 bytes"]);
    assert_eq!(host.timeline(ms(120), ms(200)), [""; 0], "the ACK is sent only once");
}

/// T-61: before a round-trip time is known, a message is retransmitted after 1.0 s.
#[test]
fn initial_rto_is_one_second() {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    host.endpoint.admit(address(1), START).expect("a free id");
    host.send(PeerId(2), b"data", START);
    let packet = ["ack control seq=0", "connect reply seq=0: you are peer 2", "data seq=0 4 bytes"];
    assert_eq!(host.sent_texts(START), packet);
    assert_eq!(host.sent_texts(before(ms(1000))), [""; 0]);
    assert_eq!(host.sent_texts(ms(1000)), &packet[1..], "all late messages, not one per pass");
}

/// T-61: then after the round-trip time plus four times its variation (RFC 6298), while the peer sends.
#[test]
fn message_is_retransmitted_after_the_measured_rto() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"data", ms(200));
    assert_eq!(host.timeline(ms(200), ms(499)), ["0.200 data seq=0 4 bytes"]);
    host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(499));
    assert_eq!(host.timeline(ms(499), ms(799)), ["0.500 data seq=0 4 bytes"]);
}

/// T-61: an ACK for a message that was sent twice is not measured.
#[test]
fn ambiguous_rtt_is_not_sampled() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"data", ms(200));
    host.timeline(ms(200), ms(500));
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(600));
    let snapshot = host.snapshot(PeerId(2), ms(600));
    assert_eq!(snapshot.rtt, Some(Duration::from_millis(100)));
    assert_eq!(snapshot.rto, Duration::from_millis(300));
    assert_eq!(snapshot.unacknowledged, []);
}

/// T-61: samples are smoothed by RFC 6298, and the timeout stays between 48 ms and 5 s.
#[test]
fn rto_follows_the_rtt_within_bounds() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"data", ms(200));
    host.flush(ms(200));
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(380));
    let snapshot = host.snapshot(PeerId(2), ms(380));
    // 7/8 · 100 + 1/8 · 180, and 3/4 · 50 + 1/4 · 80.
    assert_eq!(snapshot.rtt, Some(Duration::from_millis(110)));
    assert_eq!((snapshot.rtt_variation, snapshot.rto.as_micros()), (Duration::from_micros(57_500), 340_000));

    let fast = host_with_forged_peer(unencrypted());
    assert_eq!(fast.snapshot(PeerId(2), START).rto, Duration::from_millis(48));

    let mut slow = TestEndpoint::host(unencrypted());
    slow.receive_from(address(1), &connect(1), START);
    slow.endpoint.admit(address(1), START).expect("a free id");
    slow.flush(START);
    slow.receive_from(address(1), &from_peer(2, &[ack(Channel::Control, 0)]), ms(900));
    slow.send(PeerId(2), b"data", ms(900));
    slow.flush(ms(900));
    slow.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(3500));
    slow.send(PeerId(2), b"data", ms(3500));
    slow.flush(ms(3500));
    slow.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 1)]), ms(7500));
    assert_eq!(slow.snapshot(PeerId(2), ms(7500)).rto, Duration::from_secs(5));
}

/// T-61, T-62: while the peer is completely silent for more than two timeouts, the timeout doubles, up to 5
/// s.
#[test]
fn rto_doubles_while_the_peer_is_silent() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"data", ms(200));
    let lines = host.timeline(ms(200), ms(15_000));
    let data: Vec<_> = lines.iter().filter(|line| !line.ends_with("keepalive")).collect();
    let times = ["0.200", "0.500", "0.800", "1.400", "2.600", "5.000", "9.800", "14.800"];
    assert_eq!(data, times.map(|time| format!("{time} data seq=0 4 bytes")).iter().collect::<Vec<_>>());
    // Even after many sends: the link may cause the silence, so the intervals stay at 5 s.
    let lines = host.timeline(ms(15_000), ms(40_000));
    let data: Vec<_> = lines.iter().filter(|line| !line.ends_with("keepalive")).collect();
    let times = ["19.800", "24.800", "29.800", "34.800", "39.800"];
    assert_eq!(data, times.map(|time| format!("{time} data seq=0 4 bytes")).iter().collect::<Vec<_>>());
    // After one datagram of the peer, the timeout is the measured one.
    host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(40_000));
    assert_eq!(host.snapshot(PeerId(2), ms(40_000)).rto, Duration::from_millis(300));
}

/// T-62: while the peer sends, a message is retransmitted at the measured timeout.
///
/// After the eighth send each interval is twice the one before, up to 5 s.
#[test]
fn retransmit_interval_doubles_after_eight_sends() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"data", ms(200));
    let mut sends = Vec::new();
    for tenth in 2..300 {
        let lines = host.timeline(ms(100 * tenth), ms(100 * tenth + 99));
        let data = lines.iter().filter(|line| line.ends_with("data seq=0 4 bytes"));
        sends.extend(data.map(|line| line.split_once(' ').expect("a time").0.to_owned()));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(100 * tenth + 99));
    }
    let steady = ["0.200", "0.500", "0.800", "1.100", "1.400", "1.700", "2.000", "2.300", "2.600"];
    let patient = ["3.200", "4.400", "6.800", "11.600", "16.400", "21.200", "26.000"];
    assert_eq!(sends, steady.iter().chain(&patient).map(ToString::to_string).collect::<Vec<_>>());
}

/// T-62: ACKs of later messages do not trigger an early retransmission of a message with a longer interval.
#[test]
fn later_acks_do_not_hurry_a_backed_off_message() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"data", ms(200));
    for tenth in 2..26 {
        host.timeline(ms(100 * tenth), ms(100 * tenth + 99));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(100 * tenth + 99));
    }
    assert_eq!(host.sent_texts(ms(2600)), ["data seq=0 4 bytes"], "the ninth send");
    for later in 1..=5 {
        host.send(PeerId(2), b"more", ms(2600 + 10 * later));
        assert_eq!(host.sent_texts(ms(2600 + 10 * later)).len(), 1);
    }
    let acks: Vec<_> = (1..=5).map(|seq| ack(Channel::Game, seq)).collect();
    host.receive_from(address(1), &from_peer(2, &acks), ms(2740));
    let timeout = host.snapshot(PeerId(2), ms(2740)).rto;
    assert!(timeout > Duration::from_millis(150), "{timeout:?}");
    let due = ms(2600) + 2 * timeout;
    assert_eq!(host.timeline(ms(2740), before(due)), [""; 0]);
    assert_eq!(host.sent_texts(due), ["data seq=0 4 bytes"]);
}

/// T-61: in a loop with fixed ticks, a retransmission happens at the tick nearest to its time.
#[test]
fn retransmission_happens_at_the_nearest_tick() {
    let mut host = TestEndpoint::host(Config { tick: Duration::from_millis(20), ..unencrypted() });
    host.receive_from(address(1), &connect(1), START);
    host.endpoint.admit(address(1), START).expect("a free id");
    host.flush(START);
    assert_eq!(host.sent_texts(before(ms(990))), [""; 0]);
    assert_eq!(host.sent_texts(ms(990)), ["connect reply seq=0: you are peer 2"]);
}
