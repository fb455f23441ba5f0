//! Timed transcripts: the instant before each timer, and the instant of its effect.

use std::time::Duration;

use bcnet_transport::wire::{BootReason, Channel, Message, PeerId};
use bcnet_transport::{AdmitError, Config, DeliveryMode, Engine, Event, LeaveReason, RejectCause};

use crate::net::{
    HOST, START, TestEndpoint, TestNet, ack, ack_fragment, address, before, client_with_forged_host, connect,
    disconnect, fragment, from_peer, host_with_forged_peer, identity, ms, pattern, reliable, unencrypted,
    utf16,
};

/// T-51, T-61: the request is retransmitted each second, not sooner or later, until the host is given up.
#[test]
fn connect_request_is_retransmitted_every_second() {
    let mut client = TestEndpoint::client(unencrypted(), 1, START);
    let lines = client.timeline(START, before(ms(45_000)));
    let expected: Vec<String> = (0..45)
        .map(|second| {
            format!("{second}.000 connect request seq=0: from 10.20.0.1 nonce=0x00000001 password=\"\"")
        })
        .collect();
    assert_eq!(lines, expected);
}

/// T-51: an acknowledged request is not retransmitted, even before the host has decided.
#[test]
fn acknowledged_connect_request_is_not_retransmitted() {
    let mut client = TestEndpoint::client(unencrypted(), 1, START);
    client.flush(START);
    client.receive_from(HOST, &from_peer(1, &[ack(Channel::Control, 0)]), ms(40));
    assert_eq!(client.timeline(ms(40), ms(45_000)), [""; 0]);
}

/// T-55: five seconds after the last queued message, and every five seconds from then on.
#[test]
fn a_host_sends_a_keepalive_after_five_seconds_without_a_message() {
    let mut host = host_with_forged_peer(unencrypted());
    assert_eq!(host.timeline(START, ms(10_500)), ["5.000 keepalive", "10.000 keepalive"]);
    host.send_as(PeerId(2), b"news", DeliveryMode::Unreliable, ms(12_000));
    let lines = ["12.000 data unreliable 4 bytes", "17.000 keepalive"];
    assert_eq!(host.timeline(ms(12_000), ms(17_500)), lines);
}

/// T-55: the same for a client.
#[test]
fn a_client_sends_a_keepalive_after_five_seconds_without_a_message() {
    let mut client = client_with_forged_host(unencrypted());
    assert_eq!(client.timeline(START, ms(10_000)), ["5.000 keepalive", "10.000 keepalive"]);
}

/// T-55: an ACK is not a message, so it does not postpone a keepalive.
#[test]
fn ack_does_not_postpone_a_keepalive() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"x")]), ms(3000));
    assert_eq!(host.timeline(ms(3000), ms(9999)), ["3.000 ack game seq=0", "5.000 keepalive"]);
}

/// T-51, T-55: neither side sends keepalives before a client is admitted.
#[test]
fn keepalives_start_after_admission() {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    assert_eq!(host.timeline(START, ms(9999)), [""; 0]);
    let mut client = TestEndpoint::client(unencrypted(), 1, START);
    client.flush(START);
    client.receive_from(HOST, &from_peer(1, &[ack(Channel::Control, 0)]), START);
    assert_eq!(client.timeline(START, ms(44_999)), [""; 0]);
}

/// T-56: a client gives up a silent host after 45 seconds, not a microsecond earlier.
#[test]
fn client_times_out_a_silent_host_after_45_seconds() {
    let mut client = client_with_forged_host(unencrypted());
    client.timeline(START, before(ms(45_000)));
    assert_eq!((client.left_peers(), client.endpoint.is_closed()), (vec![], false));
    client.flush(ms(45_000));
    assert_eq!(client.left_peers(), [(PeerId::HOST, LeaveReason::Silent)]);
    assert!(client.endpoint.is_closed());
    assert_eq!(client.endpoint.next_timeout(), None);
}

/// T-56: the same for a client without any answer.
#[test]
fn unanswered_client_gives_up_after_45_seconds() {
    let mut client = TestEndpoint::client(unencrypted(), 1, START);
    client.timeline(START, before(ms(45_000)));
    assert_eq!(client.left_peers(), []);
    client.flush(ms(45_000));
    assert_eq!(client.left_peers(), [(PeerId::HOST, LeaveReason::Silent)]);
    assert!(client.endpoint.is_closed());
}

/// T-56: a host boots a silent client after 45 seconds.
///
/// It informs every client, including the silent one, because its link may recover.
#[test]
fn host_boots_a_silent_client_after_45_seconds() {
    let mut net = TestNet::joined_with_names(&unencrypted(), 3);
    let mut silent = net.clients.remove(1);
    assert_eq!(silent.endpoint.id(), PeerId(3));
    net.run(before(ms(45_000)));
    assert_eq!(net.host.left_peers(), []);
    net.now = ms(45_000);
    let packets = net.flush();
    assert_eq!(net.host.left_peers(), [(PeerId(3), LeaveReason::Silent)]);
    let boots: Vec<_> = packets.iter().filter(|packet| packet.from == HOST).collect();
    assert_eq!(boots.iter().map(|packet| packet.to).collect::<Vec<_>>(), [1, 2, 3].map(address));
    assert!(
        boots
            .iter()
            .all(|packet| packet.message_texts().iter().any(|line| line.ends_with("peer 3, timed_out")))
    );
    packets.iter().filter(|packet| packet.to != address(2)).for_each(|packet| net.deliver(packet));
    net.deliver_all();
    for client in &mut net.clients {
        assert_eq!(client.left_peers(), [(PeerId(3), LeaveReason::Booted(BootReason::TIMED_OUT))]);
    }
    assert_eq!(net.host.endpoint.peers().count(), 2);
    let again = net.host.timeline(ms(45_000), ms(59_000));
    assert!(again.iter().any(|line| line.ends_with("peer 3, timed_out")), "{again:?}");
    silent.receive(boots[1], ms(50_000));
    assert_eq!(silent.left_peers(), [(PeerId(3), LeaveReason::Booted(BootReason::TIMED_OUT))]);
    assert!(silent.endpoint.is_closed() || !silent.sent_texts(ms(50_000)).is_empty());
    net.host.timeline(ms(59_000), ms(61_000));
    assert_eq!(net.host.endpoint.address(PeerId(3)), None);
}

/// T-56: any well-formed datagram of a peer keeps it alive; malformed ones or other addresses do not.
#[test]
fn only_valid_datagrams_of_the_peer_keep_it_alive() {
    let mut host = host_with_forged_peer(unencrypted());
    let keepalive = from_peer(2, &[Message::Keepalive]);
    host.receive_from(address(1), &keepalive, ms(20_000));
    host.receive_from(address(9), &keepalive, ms(30_000));
    host.receive_from(address(1), &keepalive[..2], ms(30_000));
    host.receive_from(address(1), b"\\status\\", ms(30_000));
    host.timeline(ms(30_000), before(ms(65_000)));
    assert_eq!(host.left_peers(), []);
    host.flush(ms(65_000));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Silent)]);
}

/// T-51: a request without a decision is dropped after ten seconds.
#[test]
fn an_undecided_request_expires_after_ten_seconds() {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    assert_eq!(host.endpoint.next_timeout(), None, "a pending request has no timer");
    assert_eq!(host.endpoint.admit(address(1), ms(10_000)), Err(AdmitError::NoRequest(address(1))));
    assert_eq!(
        host.endpoint.refuse(address(1), BootReason::FULL, ms(10_000)),
        Err(AdmitError::NoRequest(address(1)))
    );
    assert_eq!(host.left_peers(), [], "a pending request is not a peer");
}

/// T-64: a peer that is alive but never acknowledges one message is removed after 360 seconds.
#[test]
fn unacked_message_ends_the_connection_after_360_seconds() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), b"never heard", START);
    for second in 0..360 {
        host.timeline(ms(1000 * second), ms(1000 * second + 999));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(1000 * second + 999));
    }
    host.flush(before(ms(360_000)));
    assert_eq!(host.left_peers(), []);
    assert!(
        host.counters(PeerId(2)).retransmits > 9,
        "the number of retransmissions must not end a connection"
    );
    host.flush(ms(360_000));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)]);
    assert!(host.endpoint.is_closed());
}

/// T-64: one unacknowledged message among many acknowledged ones ends the connection; the others are
/// informed.
#[test]
fn undeliverable_peer_is_reported_to_the_others() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(2), &connect(2), START);
    assert_eq!(host.endpoint.admit(address(2), START), Ok(PeerId(3)));
    host.flush(START);
    host.receive_from(address(2), &from_peer(3, &[ack(Channel::Control, 0)]), START);
    host.receive_from(address(1), &from_peer(2, &[identity(1, 2, &utf16("Ann"))]), START);
    host.flush(START);
    for peer in [2, 3] {
        host.receive_from(
            address(peer - 1),
            &from_peer(peer.to_le_bytes()[0], &[ack(Channel::Control, 1)]),
            START,
        );
    }
    host.events();
    host.send(PeerId(2), b"0", START);
    host.flush(START);
    for second in 1..360_u16 {
        let now = ms(1000 * u64::from(second));
        host.receive_from(address(2), &from_peer(3, &[Message::Keepalive]), now);
        host.send(PeerId(2), b"n", now);
        host.flush(now);
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, second)]), now);
    }
    assert_eq!(host.left_peers(), []);
    let packets = host.flush(ms(360_000));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)]);
    let boot_datagram = packets.iter().find(|packet| packet.to == address(2)).expect("a boot");
    assert_eq!(boot_datagram.message_texts(), ["boot seq=2: peer 2, timed_out"]);
}

/// T-64: unacknowledged fragments end it, too.
#[test]
fn unacked_fragments_end_the_connection_after_360_seconds() {
    for acked in [&[][..], &[0], &[2, 0]] {
        let mut host = host_with_forged_peer(unencrypted());
        host.send(PeerId(2), &pattern(0, 832), START);
        host.flush(START);
        for part in acked {
            host.receive_from(address(1), &from_peer(2, &[ack_fragment(0, *part)]), START);
        }
        for second in 1..360 {
            host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(1000 * second));
            host.flush(ms(1000 * second));
        }
        assert_eq!(host.left_peers(), [], "{acked:?}");
        host.flush(ms(360_000));
        assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)], "{acked:?}");
    }
}

/// T-64: a missing message that later ones have awaited for that long ends it, too.
#[test]
fn unfilled_gap_ends_the_connection_after_360_seconds() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[reliable(1, b"early")]), START);
    for turn in 0..36_u16 {
        let now = 10_000 * u64::from(turn);
        host.timeline(ms(now), ms(now + 9999));
        // Further messages behind the gap are not progress.
        host.receive_from(address(1), &from_peer(2, &[reliable(turn + 2, b"early, too")]), ms(now + 9999));
    }
    host.flush(before(ms(360_000)));
    assert_eq!(host.left_peers(), []);
    host.flush(ms(360_000));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)]);
}

/// T-64: on time, even if nothing else is sent and its memory is released.
#[test]
fn unfilled_gap_ends_an_idle_connection_on_time() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[reliable(1, b"early")]), ms(1));
    for turn in 0..9_u64 {
        host.timeline(ms(40_000 * turn + 1), ms(40_000 * (turn + 1)));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(40_000 * (turn + 1)));
    }
    host.flush(before(ms(360_001)));
    assert_eq!(host.left_peers(), []);
    host.flush(ms(360_001));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)]);
}

/// T-64: progress of the game channel does not hide a missing control message.
#[test]
fn control_gap_ends_the_connection_despite_game_progress() {
    let mut host = host_with_forged_peer(unencrypted());
    let name = utf16("late");
    host.receive_from(address(1), &from_peer(2, &[identity(2, 2, &name)]), START);
    for second in 0..360_u16 {
        let now = ms(u64::from(second) * 1000);
        // In order and out of order.
        let (next, after) = (reliable(2 * second, b"a"), reliable(2 * second + 1, b"b"));
        let messages = if second % 2 == 0 { [next, after] } else { [after, next] };
        host.receive_from(address(1), &from_peer(2, &messages), now);
        host.flush(now);
        assert_eq!(host.received().len(), 2, "second {second}");
    }
    host.flush(before(ms(360_000)));
    assert_eq!(host.left_peers(), []);
    host.flush(ms(360_000));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)]);
}

/// T-64: a filled gap, by a message or by the last fragment of one, does not end the connection.
#[test]
fn filled_gap_does_not_end_the_connection() {
    let filled: [&[Message<'_>]; 3] = [
        &[reliable(1, b"early"), reliable(0, b"late")],
        &[fragment(0, 1, 2, b"second"), fragment(0, 0, 2, b"first")],
        &[reliable(1, b"early"), fragment(0, 0, 2, b"first"), fragment(0, 1, 2, b"second")],
    ];
    for messages in filled {
        let mut host = host_with_forged_peer(unencrypted());
        host.receive_from(address(1), &from_peer(2, messages), START);
        for second in 0..40 {
            host.timeline(ms(10_000 * second), ms(10_000 * second + 9999));
            host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(10_000 * second + 9999));
        }
        assert_eq!(host.left_peers(), [], "{messages:?}");
    }
}

/// T-64: a long conversation with only split or reordered messages makes progress all the time.
#[test]
fn split_and_reordered_messages_count_as_progress() {
    for swapped in [false, true] {
        let mut host = host_with_forged_peer(unencrypted());
        for seq in 0..450_u16 {
            let now = ms(1000 * u64::from(seq));
            if swapped {
                let seq = 2 * seq;
                host.receive_from(address(1), &from_peer(2, &[reliable(seq + 1, b"b")]), now);
                host.receive_from(address(1), &from_peer(2, &[reliable(seq, b"a")]), now);
            } else {
                host.receive_from(
                    address(1),
                    &from_peer(2, &[fragment(seq, 0, 2, b"a"), fragment(seq, 1, 2, b"b")]),
                    now,
                );
            }
            host.timeline(now, ms(1000 * u64::from(seq) + 999));
        }
        assert_eq!(host.left_peers(), []);
        assert_eq!(host.endpoint.peers().count(), 1);
    }
}

/// T-57: an unacknowledged disconnect is retransmitted for 15 seconds, then the client is closed.
#[test]
fn disconnect_notice_is_retransmitted_for_15_seconds() {
    let mut client = client_with_forged_host(unencrypted());
    client.endpoint.leave(ms(1000));
    assert_eq!(client.left_peers(), [(PeerId::HOST, LeaveReason::Local)]);
    let lines = client.timeline(ms(1000), before(ms(16_000)));
    assert_eq!(lines.first().expect("a disconnect"), "1.000 disconnect seq=1: peer 2 at 10.20.0.1");
    assert!(lines.iter().all(|line| line.ends_with("disconnect seq=1: peer 2 at 10.20.0.1")), "{lines:?}");
    assert!(lines.len() >= 5, "sent only {} times", lines.len());
    assert!(!client.endpoint.is_closed());
    assert_eq!(client.flush(ms(16_000)), []);
    assert!(client.endpoint.is_closed());
}

/// T-57: a disconnect waits for earlier messages at most 7.5 seconds.
///
/// 15 seconds after the start of leaving, the endpoint is closed.
#[test]
fn disconnect_notice_waits_half_the_linger_time() {
    let mut client = client_with_forged_host(unencrypted());
    client.send(PeerId::HOST, b"x", START);
    client.endpoint.leave(START);
    let lines = client.timeline(START, before(ms(7500)));
    assert!(lines.iter().all(|line| line.contains("data")), "{lines:?}");
    let lines = client.sent_texts(ms(7500));
    assert!(lines.iter().any(|line| line.starts_with("disconnect")), "{lines:?}");
    client.timeline(ms(7500), before(ms(15_000)));
    assert!(!client.endpoint.is_closed());
    client.flush(ms(15_000));
    assert!(client.endpoint.is_closed());
}

/// T-57: a host acknowledges a retransmitted disconnect for 15 seconds after the client has left.
#[test]
fn repeated_disconnect_notice_is_acked_for_15_seconds() {
    let mut host = host_with_forged_peer(unencrypted());
    let notice = from_peer(2, &[disconnect(1, 2)]);
    host.receive_from(address(1), &notice, START);
    host.timeline(START, ms(1510));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
    for now in [ms(1510), ms(2200), ms(8500), before(ms(16_500))] {
        host.receive_from(address(1), &notice, now);
        assert_eq!(host.sent_texts(now), ["ack control seq=1"]);
    }
    assert_eq!(host.left_peers(), []);
    host.flush(ms(16_510));
    assert!(host.endpoint.is_closed());
    host.receive_from(address(1), &notice, ms(16_510));
    assert_eq!(host.sent_texts(ms(16_510)), [""; 0]);
    assert_eq!(host.endpoint.rejected().count(RejectCause::UnknownSender), 1);
}

/// T-57: the linger time is configurable, because traces disagree about that of stock.
#[test]
fn linger_time_is_configurable() {
    let mut host = host_with_forged_peer(Config { linger: Duration::from_millis(4500), ..unencrypted() });
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), START);
    host.timeline(START, before(ms(6000)));
    assert!(!host.endpoint.is_closed());
    host.timeline(before(ms(6000)), ms(6010));
    assert!(host.endpoint.is_closed());
}

/// T-61: timers that are due at the same instant are all handled.
#[test]
fn timers_that_are_due_together_are_all_served() {
    let mut host = TestEndpoint::host(unencrypted());
    for n in 1..=20 {
        host.receive_from(address(n), &connect(u32::from(n)), START);
        host.endpoint.admit(address(n), START).expect("a free id");
    }
    host.flush(START);
    let packets = host.flush(ms(1000));
    let mut to: Vec<_> = packets.iter().map(|packet| packet.to).collect();
    to.sort_unstable();
    assert_eq!(to, (1..=20).map(address).collect::<Vec<_>>());
    let joined = host.events().iter().filter(|(event, _)| matches!(event, Event::Joined { .. })).count();
    assert_eq!(joined, 20);
}

/// T-64: an unacknowledged urgent message ends the connection, even if it blocks the first message.
#[test]
fn unacked_urgent_messages_end_the_connection() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), b"first", START);
    for _ in 0..100 {
        host.send_as(PeerId(2), &[1; 400], DeliveryMode::Urgent, START);
    }
    for second in 0..360 {
        host.timeline(ms(1000 * second), ms(1000 * second + 999));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(1000 * second + 999));
    }
    let waits = host.snapshot(PeerId(2), ms(359_999)).unacknowledged;
    assert!(waits.iter().all(|message| message.id.seq.0 != 0), "the first message was never sent");
    assert_eq!(host.left_peers(), []);
    host.flush(ms(360_000));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)]);
}

/// T-55: with an interval of zero, a keepalive is sent once per millisecond.
#[test]
fn keepalive_interval_has_a_minimum() {
    let mut host = host_with_forged_peer(Config { keepalive: Duration::ZERO, ..unencrypted() });
    let lines = host.timeline(ms(1), ms(10));
    assert_eq!(lines.len(), 10, "{lines:?}");
}

/// T-64: a leaving peer has no deadline except the end of its linger time.
#[test]
fn lingering_peer_has_no_delivery_deadline() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), b"never heard", START);
    for second in 0..350 {
        host.timeline(ms(1000 * second), ms(1000 * second + 999));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(1000 * second + 999));
    }
    assert_eq!(host.endpoint.boot(PeerId(2), BootReason::KICKED, ms(350_000)), Ok(()));
    host.timeline(ms(350_000), before(ms(365_000)));
    assert!(!host.endpoint.is_closed());
    host.flush(ms(365_000));
    assert!(host.endpoint.is_closed());
}

/// T-60, T-66: a caller may delay only unreliable messages, and ACKs until they are due.
///
/// Not to be delayed are other messages, ACKs without recent data, lost messages, a disconnect and a
/// connect request.
#[test]
fn only_unreliable_messages_and_delayed_acks_are_not_urgent() {
    let mut host = host_with_forged_peer(unencrypted());
    let is_urgent = |host: &mut TestEndpoint, now| {
        let is_urgent = host.endpoint.next_urgent_timeout().is_some_and(|due| due <= now);
        host.flush(now);
        is_urgent
    };
    assert!(!is_urgent(&mut host, START), "an empty queue is not urgent");
    host.send_as(PeerId(2), b"where I am", DeliveryMode::Unreliable, START);
    assert!(!is_urgent(&mut host, START));
    for quality in [DeliveryMode::Reliable, DeliveryMode::Urgent] {
        host.send_as(PeerId(2), b"fire", quality, ms(1));
        assert!(is_urgent(&mut host, ms(1)), "{quality:?}");
    }
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(2));
    assert!(!is_urgent(&mut host, ms(2)), "a received ACK is not urgent");
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"x")]), ms(3));
    assert_eq!(
        host.endpoint.next_urgent_timeout(),
        Some(ms(23)),
        "the ACK has waited long enough for data to travel with"
    );
    assert!(is_urgent(&mut host, ms(23)));
    assert!(!is_urgent(&mut host, ms(24)));
    let again = host.endpoint.next_timeout().expect("one message is not acknowledged");
    assert!(is_urgent(&mut host, again), "a lost message is urgent");
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 1)]), again);
    assert!(!is_urgent(&mut host, again));
    host.endpoint.leave(again);
    assert!(is_urgent(&mut host, again), "a disconnect is urgent");
}
