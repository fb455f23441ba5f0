//! Backpressure in both directions, every error of `send`, and extreme settings.

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::wire::{BootReason, Channel, Message, PeerId};
use bcnet_transport::{
    Capacity, Config, Connect, DeliveryMode, Endpoint, Engine, Event, InFlightLimit, LeaveReason,
    RejectCause, SendError, Time,
};

use crate::heap;
use crate::net::{
    HOST, START, TestEndpoint, TestNet, ack, ack_fragment, address, all_message_texts, before, connect,
    from_peer, host_with_forged_peer, host_with_measured_rtt, identity, ms, pattern, reliable, unencrypted,
    unreliable, utf16,
};

/// T-63: a full queue is an error of `send`, not a loss; each ACK makes space again.
#[test]
fn a_queue_full_of_messages_recovers_with_acks() {
    let mut host = host_with_forged_peer(Config { max_queued_messages: 4, ..unencrypted() });
    for quality in
        [DeliveryMode::Reliable, DeliveryMode::Urgent, DeliveryMode::Unreliable, DeliveryMode::Reliable]
    {
        host.send_as(PeerId(2), b"four", quality, START);
    }
    let full = Err(SendError::QueueFull { messages: 4, bytes: 3 * 9 + 7 });
    assert_eq!(host.endpoint.send(PeerId(2), b"more", DeliveryMode::Reliable, START), full);
    assert_eq!(host.endpoint.send(PeerId(2), b"more", DeliveryMode::Unreliable, START), full);
    // Sent and unacknowledged messages still count; a sent unreliable message does not.
    host.flush(START);
    host.send(PeerId(2), b"five", START);
    host.flush(START);
    let full = Err(SendError::QueueFull { messages: 4, bytes: 4 * 9 });
    assert_eq!(host.endpoint.send(PeerId(2), b"more", DeliveryMode::Urgent, START), full);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 2)]), START);
    host.send(PeerId(2), b"six", START);
    assert_eq!(host.sent_texts(START), ["data seq=4 3 bytes"], "a refused message used a sequence number");
}

/// T-67: each fragment counts, and a message is queued as a whole or not at all.
#[test]
fn split_message_is_queued_entirely_or_not_at_all() {
    let mut host = host_with_forged_peer(Config { max_queued_messages: 4, ..unencrypted() });
    host.send(PeerId(2), b"one", START);
    let full = Err(SendError::QueueFull { messages: 1, bytes: 8 });
    assert_eq!(host.endpoint.send(PeerId(2), &pattern(0, 1300), DeliveryMode::Reliable, START), full);
    host.send(PeerId(2), &pattern(0, 1200), START);
    host.flush(START);
    host.receive_from(address(1), &from_peer(2, &[ack_fragment(1, 1)]), START);
    host.send(PeerId(2), b"two", START);
    assert_eq!(host.sent_texts(START), ["data seq=2 3 bytes"]);
}

/// T-63: the bytes of a queue are limited, too.
#[test]
fn a_queue_full_of_bytes_recovers_with_acks() {
    let mut host = host_with_forged_peer(Config { max_queued_bytes: 1000, ..unencrypted() });
    host.send(PeerId(2), &pattern(0, 400), START);
    host.send(PeerId(2), &pattern(1, 400), START);
    let full = Err(SendError::QueueFull { messages: 2, bytes: 810 });
    assert_eq!(host.endpoint.send(PeerId(2), &pattern(2, 400), DeliveryMode::Reliable, START), full);
    host.send(PeerId(2), &pattern(2, 100), START);
    host.flush(START);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), START);
    host.send(PeerId(2), &pattern(3, 400), START);
    assert_eq!(host.sent_texts(START), ["data seq=3 400 bytes"]);
}

/// T-24, T-69: with any settings, fewer sequence numbers are in use than a peer can distinguish from old
/// ones.
#[test]
fn no_setting_lets_sequence_numbers_overlap() {
    let mut host = host_with_forged_peer(Config {
        max_queued_messages: usize::MAX,
        max_queued_bytes: usize::MAX,
        ..unencrypted()
    });
    let mut taken = 0;
    while host.endpoint.send(PeerId(2), b"", DeliveryMode::Reliable, START).is_ok() {
        taken += 1;
        assert!(taken <= 0x4000, "{taken} numbers are in use");
    }
    assert_eq!(taken, 0x4000);
}

/// T-64: one unacknowledged message among acknowledged ones cannot make the queue grow without bound.
#[test]
fn one_unacked_message_cannot_grow_the_queue() {
    let mut host = host_with_forged_peer(unencrypted());
    let start = heap::in_use();
    let (mut sent, mut refused) = (0_u32, 0_u32);
    for tick in 0..9000_u64 {
        let now = ms(10 * tick);
        for _ in 0..10 {
            match host.endpoint.send(PeerId(2), &[0; 100], DeliveryMode::Reliable, now) {
                Ok(()) => sent += 1,
                Err(SendError::QueueFull { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        let mut acks = vec![Message::Keepalive];
        for (delivery, _) in host.flush(now).iter().flat_map(crate::net::SentDatagram::data) {
            let seq = delivery.seq().expect("reliable").0;
            if seq != 0 {
                acks.push(ack(Channel::Game, seq));
            }
        }
        host.receive_from(address(1), &from_peer(2, &acks), now);
    }
    let used = usize::try_from(heap::in_use() - start).expect("heap use has grown");
    assert!(used < 10 << 20, "{used} bytes of heap after {sent} messages");
    assert!(refused > 0 && sent > 5000, "{sent} were queued and {refused} refused");
}

/// T-51, T-57: every error of `send` tells what to do.
#[test]
fn send_errors_display_what_to_do() {
    let mut host = host_with_forged_peer(unencrypted());
    let send = |host: &mut TestEndpoint, to, payload: &[u8]| {
        host.endpoint.send(to, payload, DeliveryMode::Reliable, START).expect_err("an error").to_string()
    };
    let unknown = "cannot send to peer 9: not connected; send after its Joined event";
    assert_eq!(send(&mut host, PeerId(9), b"x"), unknown);
    let itself = "cannot send to host: not connected; send after its Joined event";
    assert_eq!(send(&mut host, PeerId::HOST, b"x"), itself);
    let nobody = "cannot send to peer 0x00: not connected; send after its Joined event";
    assert_eq!(send(&mut host, PeerId::NULL, b"x"), nobody);
    let none = "cannot send to unassigned: not connected; send after its Joined event";
    assert_eq!(send(&mut host, PeerId::UNASSIGNED, b"x"), none);
    let large = "payload of 103530 bytes is too large: the maximum is 103529; send several payloads";
    assert_eq!(send(&mut host, PeerId(2), &[0; 103_530]), large);
    host.endpoint.boot(PeerId(2), BootReason::KICKED, START).expect("the peer is connected");
    assert_eq!(send(&mut host, PeerId(2), b"x"), "cannot send to peer 2: the peer is leaving");

    let mut host = host_with_forged_peer(Config { max_queued_messages: 1, ..unencrypted() });
    host.send(PeerId(2), b"x", START);
    let full = "send queue is full: 1 messages, 6 bytes; send later or boot the peer";
    assert_eq!(send(&mut host, PeerId(2), b"x"), full);
}

/// T-51: before admission a client cannot send, and nothing can be sent to it.
#[test]
fn send_fails_before_admission() {
    let mut client = TestEndpoint::client(unencrypted(), 1, START);
    let unknown = Err(SendError::UnknownPeer(PeerId::HOST));
    assert_eq!(client.endpoint.send(PeerId::HOST, b"x", DeliveryMode::Reliable, START), unknown);
    assert_eq!(client.endpoint.peers().count(), 0);
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    let none = Err(SendError::UnknownPeer(PeerId::UNASSIGNED));
    assert_eq!(host.endpoint.send(PeerId::UNASSIGNED, b"x", DeliveryMode::Reliable, START), none);
    assert_eq!(host.endpoint.peers().count(), 0);
}

/// T-56: nothing can be sent to a peer that is gone.
#[test]
fn send_fails_after_the_peer_left() {
    let mut host = host_with_forged_peer(unencrypted());
    host.timeline(START, before(ms(45_000)));
    host.send(PeerId(2), b"x", before(ms(45_000)));
    host.flush(ms(45_000));
    let leaving = Err(SendError::Leaving(PeerId(2)));
    assert_eq!(host.endpoint.send(PeerId(2), b"x", DeliveryMode::Reliable, ms(45_000)), leaving);
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Silent)]);
    host.timeline(ms(45_000), ms(60_000));
    let unknown = Err(SendError::UnknownPeer(PeerId(2)));
    assert_eq!(host.endpoint.send(PeerId(2), b"x", DeliveryMode::Reliable, ms(60_000)), unknown);
    assert!(host.endpoint.snapshot(PeerId(2), ms(60_000)).is_none());
    assert!(host.endpoint.counters(PeerId(2)).is_none());
}

/// T-60: events that the caller does not poll are bounded; dropped messages get no ACK and arrive later.
#[test]
fn unpolled_events_are_bounded_without_loss() {
    let mut net = TestNet::joined(&Config { max_event_bytes: 10_000, ..unencrypted() }, 1);
    let start = heap::in_use();
    let payloads: Vec<Vec<u8>> = (0..500).map(|n| pattern(n, 100 + n % 700)).collect();
    let mut left = payloads.as_slice();
    for tick in 0..2000 {
        net.now = ms(10 * tick);
        while let [next, rest @ ..] = left
            && net.clients[0].endpoint.send(PeerId::HOST, next, DeliveryMode::Reliable, net.now).is_ok()
        {
            left = rest;
        }
        for packet in net.flush() {
            net.deliver(&packet);
        }
    }
    assert!(net.host.rejected_from(PeerId(2), RejectCause::Full) > 0);
    let waiting = net.clients[0].snapshot(PeerId::HOST, net.now).unacknowledged.len();
    assert!(waiting > 100, "only {waiting} messages wait for an ACK");
    assert!(heap::in_use() - start < 3 << 20);

    let mut received = Vec::new();
    for tick in 2000..40_000 {
        net.now = ms(10 * tick);
        for packet in net.flush() {
            net.deliver(&packet);
        }
        received.extend(net.host.received());
        net.clients[0].events();
        if received.len() == 500 {
            break;
        }
    }
    assert_eq!(received.len(), 500);
    assert_eq!(received, payloads);
}

/// T-52, T-70: with messages of any kind, unpolled events exceed the limit only by little.
#[test]
fn every_message_kind_keeps_events_bounded() {
    let name = utf16(&"n".repeat(100));
    let limit = 100_000;
    let floods: [&dyn Fn(u16) -> Vec<u8>; 4] = [
        &|_| from_peer(2, &[unreliable(&[0; 400])]),
        &|n| from_peer(2, &[reliable(n, &[0; 400])]),
        &|n| from_peer(2, &[identity(1 + n, 2, &name)]),
        &|_| b"\\status\\".to_vec(),
    ];
    for (kind, flood) in floods.iter().enumerate() {
        let mut host = host_with_forged_peer(Config { max_event_bytes: limit, ..unencrypted() });
        let start = heap::in_use();
        for n in 0..5000_u16 {
            let now = ms(250 * u64::from(n));
            host.receive_from(address(1), &flood(n), now);
            host.flush(now);
            host.receive_from(address(1), &from_peer(2, &[ack(Channel::Control, 1 + n)]), now);
        }
        let used = usize::try_from(heap::in_use() - start).expect("heap use has grown");
        assert!(used < 6 * limit, "flood {kind}: {used} bytes");
    }
}

/// T-53: repeated requests with new nonces are bounded, too, from one address or from many.
#[test]
fn unpolled_requests_are_bounded() {
    for addresses in [1, 5000] {
        let mut host = TestEndpoint::host(Config { max_event_bytes: 100_000, ..unencrypted() });
        let start = heap::in_use();
        for n in 0..20_000_u32 {
            let from = address(u16::try_from(n % addresses).expect("a small number"));
            host.receive_from(from, &connect(n), ms(u64::from(n)));
            host.flush(ms(u64::from(n)));
        }
        let used = usize::try_from(heap::in_use() - start).expect("heap use has grown");
        assert!(used < 600_000, "{addresses} addresses: {used} bytes");
    }
}

/// T-04, T-12, T-23: with any limits, every payload leaves in messages that fit a datagram and their size
/// field.
#[test]
fn every_size_limit_allows_sending_payloads() {
    let sizes = [0, 1, 7, 8, 50, 412, 510, 8191, 8192, 60_000, usize::MAX];
    for datagram_limit in sizes {
        for message_limit in sizes {
            let config = Config { datagram_limit, message_limit, ..unencrypted() };
            let sent = [pattern(1, 3), pattern(2, 200), pattern(3, 20_000)];
            let mut taken = 0;
            let received = received_payloads(&config, 100, |host, now| {
                let results =
                    sent.iter().map(|payload| host.send(PeerId(2), payload, DeliveryMode::Reliable, now));
                taken = results.filter(Result::is_ok).count();
            });
            // With very small messages, 255 fragments are not enough for the largest payload.
            assert!(
                taken >= 2 && received == sent[..taken],
                "limits {datagram_limit} and {message_limit}: {taken}"
            );
        }
    }
}

/// Returns the payloads that a client receives in so many ticks of 10 ms.
///
/// The host sends after it has admitted the client. The last datagram of a tick arrives first.
fn received_payloads(
    config: &Config,
    ticks: u64,
    mut speak: impl FnMut(&mut Endpoint, Time),
) -> Vec<Vec<u8>> {
    let mut host = Endpoint::host(config.clone());
    let mut client = Endpoint::connect(
        Config { address: Ipv4Addr::LOCALHOST, ..config.clone() },
        Connect { host: HOST, nonce: 7, password: "" },
        START,
    );
    let (mut received, mut bytes, mut buffer) = (Vec::new(), Vec::new(), vec![0; 65_536]);
    for now in (0..ticks).map(|tick| ms(10 * tick)) {
        client.handle_timeout(now);
        while let Some(transmit) = client.poll_transmit(&mut buffer, now) {
            host.handle_datagram(address(1), &mut buffer[..transmit.len], now);
        }
        host.handle_timeout(now);
        while let Some(event) = host.poll_event(&mut bytes) {
            if let Event::Request { from, .. } = event {
                host.admit(from, now).expect("a free id");
                speak(&mut host, now);
            }
        }
        let mut packets = Vec::new();
        while let Some(transmit) = host.poll_transmit(&mut buffer, now) {
            assert!(transmit.len <= config.datagram_limit.clamp(414, 65_507));
            packets.push(buffer[..transmit.len].to_vec());
        }
        packets.iter_mut().rev().for_each(|packet| client.handle_datagram(HOST, packet, now));
        while let Some(event) = client.poll_event(&mut bytes) {
            received.extend(matches!(event, Event::Received { .. }).then(|| bytes.clone()));
        }
    }
    received
}

/// T-61: practically infinite times cause no fault.
#[test]
fn infinite_timeouts_are_accepted() {
    let ever = Duration::MAX;
    let mut net = TestNet::joined(
        &Config {
            keepalive: ever,
            idle_timeout: ever,
            pending_timeout: ever,
            delivery_timeout: ever,
            linger: ever,
            ack_delay: ever,
            initial_rto: ever,
            min_rto: ever,
            max_rto: ever,
            max_queued_bytes: usize::MAX,
            max_event_bytes: usize::MAX,
            ..unencrypted()
        },
        1,
    );
    net.host.send(PeerId(2), b"lost", net.now);
    assert_eq!(net.host.flush(net.now).len(), 1);
    net.run(ms(1_000_000_000));
    assert_eq!(net.clients[0].received(), [[0; 0]; 0], "nothing is retransmitted by a timer");
    for n in 1..5 {
        net.host.send(PeerId(2), &pattern(n, 400), net.now);
    }
    let packets = net.host.flush(net.now);
    packets[1..].iter().for_each(|packet| net.deliver(packet));
    net.deliver_all();
    assert_eq!(net.clients[0].received().len(), 5, "later ACKs reveal the losses");
}

/// T-67, T-68: the largest payload can be received, with any message limit and any order of fragments.
#[test]
fn the_largest_payload_arrives_whatever_the_limit() {
    for message_limit in [50, 412, 8191] {
        let config =
            Config { datagram_limit: 65_507, message_limit, max_queued_bytes: 4 << 20, ..unencrypted() };
        let mut sent = Vec::new();
        let received = received_payloads(&config, 400, |host, now| {
            let refused = host.send(PeerId(2), &vec![0; 3 << 20], DeliveryMode::Reliable, now);
            let Err(SendError::TooLarge { max, .. }) = refused else { panic!("{refused:?}") };
            sent = pattern(1, max);
            host.send(PeerId(2), &sent, DeliveryMode::Reliable, now)
                .expect("the largest payload is accepted");
        });
        assert!(received == [sent.as_slice()], "messages of {message_limit} bytes: {}", sent.len());
    }
}

/// A buffer that is too short is a fault of the caller: the call panics even if there is nothing to send.
#[test]
#[should_panic(expected = "a buffer of 511 bytes is too short for datagrams of 512")]
fn short_transmit_buffer_panics() {
    let mut host = host_with_forged_peer(unencrypted());
    assert!(host.endpoint.poll_transmit(&mut [0; 512], START).is_none());
    host.endpoint.poll_transmit(&mut [0; 511], START);
}

/// T-63: a message that may wait is queued while few are in flight and a part of the window remains.
#[test]
fn capacity_reserves_window_for_urgent_messages() {
    let mut host = host_with_measured_rtt();
    let room = |host: &mut TestEndpoint, len: usize, messages: usize, now| {
        let max = InFlightLimit { messages, bytes: usize::MAX };
        host.endpoint.send_if_capacity(PeerId(2), &vec![7; len], max, now).expect("the peer is connected")
    };
    for _ in 0..3 {
        assert_eq!(room(&mut host, 1, 3, ms(200)), Capacity::Available);
    }
    assert_eq!(room(&mut host, 1, 3, ms(200)), Capacity::Full);
    let acks: Vec<_> = (0..3).map(|seq| ack(Channel::Game, seq)).collect();
    host.flush(ms(200));
    host.receive_from(address(1), &from_peer(2, &acks), ms(300));
    let taken = (0..1000).take_while(|_| room(&mut host, 400, 1000, ms(300)) == Capacity::Available).count();
    let budget = Config::default().initial_window;
    assert!((taken - 1) * 405 < budget - budget / 4 && taken * 405 >= budget - budget / 4, "{taken}");
    // An urgent message leaves with them.
    host.send(PeerId(2), b"chat", ms(300));
    let texts = all_message_texts(&host.flush(ms(300)));
    assert_eq!(texts.len(), taken + 1);
    let one = InFlightLimit { messages: 1, bytes: usize::MAX };
    let gone = host.endpoint.send_if_capacity(PeerId(9), b"x", one, ms(300));
    assert_eq!(gone, Err(SendError::UnknownPeer(PeerId(9))));
    host.endpoint.boot(PeerId(2), BootReason::KICKED, ms(300)).expect("the peer is connected");
    let leaving = host.endpoint.send_if_capacity(PeerId(2), b"x", one, ms(300));
    assert_eq!(leaving, Err(SendError::Leaving(PeerId(2))));
}

/// S-43: the limit counts all headers, and one message may always be in flight.
#[test]
fn capacity_is_limited_by_bytes_in_flight() {
    let mut host = host_with_measured_rtt();
    let mut room = |len: usize, bytes: usize| {
        let max = InFlightLimit { messages: 100, bytes };
        host.endpoint.send_if_capacity(PeerId(2), &vec![7; len], max, ms(200)).expect("the peer is connected")
    };
    assert_eq!(
        [room(400, 100), room(1, 100)],
        [Capacity::Available, Capacity::Full],
        "one message may always be in flight"
    );
    // 405 bytes with its header, and 30 more for the headers of UDP and IP.
    assert_eq!([room(100, 564), room(100, 565)], [Capacity::Full, Capacity::Available]);
}

/// S-43: a refusal for lack of capacity reports whether the round-trip time shows a queue.
#[test]
fn capacity_reports_network_queueing() {
    let mut host = host_with_measured_rtt();
    let mut now = ms(200);
    let one = InFlightLimit { messages: 1, bytes: usize::MAX };
    let mut results = Vec::new();
    // The round-trip time rises from 100 to 700 ms.
    for seq in 0..40 {
        host.send(PeerId(2), b"x", now);
        host.flush(now);
        results
            .push(host.endpoint.send_if_capacity(PeerId(2), b"x", one, now).expect("the peer is connected"));
        now = now + Duration::from_millis(700.min(100 + 30 * u64::from(seq)));
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), now);
    }
    let queueing = results.iter().position(|room| *room == Capacity::Congested);
    assert!(queueing.is_some_and(|at| (2..12).contains(&at)), "{results:?}");
    assert!(
        results.iter().skip(queueing.unwrap_or(0)).all(|room| *room == Capacity::Congested),
        "{results:?}"
    );
}
