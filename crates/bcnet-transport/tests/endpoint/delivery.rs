//! Delivery once and in order, the order of sending, and unreliable messages at once.

use std::collections::VecDeque;

use bcnet_transport::wire::{Channel, Message, PeerId, Seq, Text};
use bcnet_transport::{Config, DeliveryMode, Engine, Event, RejectCause};

use crate::net::{
    START, SentDatagram, TestNet, TestRng, ack, ack_fragment, address, all_message_texts, fragment,
    from_peer, host_with_forged_peer, ms, pattern, reliable, unencrypted, unreliable, utf16,
};

/// T-66: ACKs, then lost messages, then control messages, urgent data and other data.
#[test]
fn datagram_is_filled_in_priority_order() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), b"lost", START);
    assert_eq!(host.sent_texts(START), ["data seq=0 4 bytes"]);
    host.send(PeerId(2), b"other", ms(48));
    host.send_as(PeerId(2), b"loose", DeliveryMode::Unreliable, ms(48));
    host.send_as(PeerId(2), b"urgent", DeliveryMode::Urgent, ms(48));
    let name = utf16("n");
    host.endpoint.announce_name(Text::new(&name).expect("UTF-16LE"), ms(48)).expect("a peer is connected");
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"a"), reliable(1, b"b")]), ms(48));
    let packets = host.flush(ms(48));
    assert_eq!(packets.len(), 1);
    let expected = [
        "ack game seq=0",
        "ack game seq=1",
        "data seq=0 4 bytes",
        "identity seq=1: host at 10.10.10.1 is \"n\"",
        "data seq=2 6 bytes",
        "data seq=1 5 bytes",
        "data unreliable 5 bytes",
    ];
    assert_eq!(packets[0].message_texts(), expected);
}

/// T-66: messages of one priority leave in the order of queueing; reliable and unreliable ones have the
/// same.
#[test]
fn messages_of_one_priority_are_sent_in_fifo_order() {
    let mut host = host_with_forged_peer(unencrypted());
    for (byte, quality) in [
        (0, DeliveryMode::Reliable),
        (1, DeliveryMode::Unreliable),
        (2, DeliveryMode::Urgent),
        (3, DeliveryMode::Reliable),
        (4, DeliveryMode::Urgent),
        (5, DeliveryMode::Unreliable),
        (6, DeliveryMode::Unreliable),
        (7, DeliveryMode::Reliable),
        (8, DeliveryMode::Urgent),
    ] {
        host.send_as(PeerId(2), &[byte], quality, START);
    }
    let sent: Vec<u8> =
        host.flush(START).iter().flat_map(SentDatagram::data).map(|(_, bytes)| bytes[0]).collect();
    assert_eq!(sent, [2, 4, 8, 0, 1, 3, 5, 6, 7]);
}

/// T-66, T-67: a split urgent message goes first as a whole, with its fragments in order.
#[test]
fn urgent_split_message_goes_first_with_fragments_in_order() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), &pattern(0, 1000), START);
    host.send_as(PeerId(2), &pattern(1, 900), DeliveryMode::Urgent, START);
    host.send_as(PeerId(2), b"urgent", DeliveryMode::Urgent, START);
    let expected = [
        "data seq=1 part=0/3 405 bytes",
        "data seq=1 part=1 406 bytes",
        "data seq=1 part=2 89 bytes",
        "data seq=2 6 bytes",
        "data seq=0 part=0/3 405 bytes",
        "data seq=0 part=1 406 bytes",
        "data seq=0 part=2 189 bytes",
    ];
    assert_eq!(all_message_texts(&host.flush(START)), expected);
}

/// T-66: a split urgent message overtakes a message whose first fragments are in flight.
#[test]
fn urgent_message_overtakes_window_blocked_messages() {
    let mut host = host_with_forged_peer(Config { initial_window: 1024, ..unencrypted() });
    host.send(PeerId(2), &pattern(0, 4000), START);
    assert_eq!(host.flush(START).len(), 2);
    host.send_as(PeerId(2), b"urgent", DeliveryMode::Urgent, START);
    assert_eq!(host.sent_texts(START), ["data seq=1 6 bytes"]);
    host.receive_from(address(1), &from_peer(2, &[ack_fragment(0, 0), ack(Channel::Game, 1)]), START);
    assert_eq!(host.sent_texts(START)[0], "data seq=0 part=2 406 bytes");
}

/// T-66: messages that do not fit wait for the next datagram, and one flush sends as many as needed.
#[test]
fn flush_sends_all_queued_messages() {
    let mut host = host_with_forged_peer(unencrypted());
    for seq in 0..10 {
        host.send(PeerId(2), &pattern(seq, 200), START);
    }
    let packets = host.flush(START);
    assert_eq!(packets.iter().map(|packet| packet.bytes.len()).collect::<Vec<_>>(), [412; 5]);
    let order =
        packets.iter().flat_map(SentDatagram::data).map(|(delivery, _)| delivery.seq().expect("a number").0);
    assert!(order.eq(0..10));
}

/// T-60: a datagram with only ACKs has at most 16; one with data has as many as fit.
#[test]
fn ack_only_datagram_has_a_maximum_of_16_acks() {
    let mut host = host_with_forged_peer(unencrypted());
    let messages: Vec<Message<'_>> = (0..40).map(|seq| reliable(seq, b"x")).collect();
    host.receive_from(address(1), &from_peer(2, &messages), START);
    let sizes: Vec<usize> = host.flush(START).iter().map(|packet| packet.message_texts().len()).collect();
    assert_eq!(sizes, [16, 16, 8]);
    let messages: Vec<Message<'_>> = (40..80).map(|seq| reliable(seq, b"x")).collect();
    host.receive_from(address(1), &from_peer(2, &messages), ms(100));
    host.send(PeerId(2), b"company", ms(100));
    let sizes: Vec<usize> = host.flush(ms(100)).iter().map(|packet| packet.message_texts().len()).collect();
    assert_eq!(sizes, [41]);
}

/// T-70: an unreliable message is delivered each time it arrives, even if earlier messages are missing.
#[test]
fn gaps_do_not_block_unreliable_messages() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[reliable(3, b"later"), unreliable(b"now")]), START);
    assert_eq!(host.received(), [b"now"]);
    host.receive_from(address(1), &from_peer(2, &[unreliable(b"")]), START);
    assert_eq!(host.received(), [b""]);
    assert_eq!(host.sent_texts(START), ["ack game seq=3"], "the unreliable message got an ACK");
}

/// T-70: unreliable messages are sent once and get no ACK.
#[test]
fn unreliable_messages_are_sent_once() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send_as(PeerId(2), b"", DeliveryMode::Unreliable, START);
    host.send_as(PeerId(2), &pattern(0, 409), DeliveryMode::Unreliable, START);
    let sent = ["0.000 data unreliable 0 bytes", "0.000 data unreliable 409 bytes"];
    assert_eq!(host.timeline(START, ms(4999)), sent);
    assert_eq!(host.snapshot(PeerId(2), ms(4999)).queued_bytes, 0);
}

/// T-69: an empty payload is a valid message.
#[test]
fn an_empty_payload_is_legal() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    for quality in [DeliveryMode::Reliable, DeliveryMode::Urgent, DeliveryMode::Unreliable] {
        net.host.send_as(PeerId(2), b"", quality, net.now);
    }
    net.deliver_all();
    assert_eq!(net.clients[0].received(), [b""; 3]);
}

/// T-69: each message is delivered once, even if it arrives several times.
#[test]
fn duplicated_messages_are_delivered_once() {
    let mut host = host_with_forged_peer(unencrypted());
    for seq in [0, 0, 2, 2, 1, 2, 1, 0, 3, 2] {
        let payload = [u8::try_from(seq).expect("a small number")];
        host.receive_from(address(1), &from_peer(2, &[reliable(seq, &payload)]), START);
        host.receive_from(address(1), &from_peer(2, &[reliable(seq, &payload)]), START);
    }
    assert_eq!(host.received(), [[0], [1], [2], [3]]);
    assert_eq!(host.counters(PeerId(2)).duplicates, 16);
    assert_eq!(all_message_texts(&host.flush(START)).len(), 20, "each of the twenty is acknowledged");
}

/// T-69: messages that arrive in reverse order are delivered in order, all when the first arrives.
#[test]
fn reversed_messages_are_delivered_in_order() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    let payloads: Vec<Vec<u8>> = (0..100).map(|n| pattern(n, 10 * n)).collect();
    payloads.iter().for_each(|payload| net.host.send(PeerId(2), payload, net.now));
    let mut packets = net.host.flush(net.now);
    packets.reverse();
    let (first, others) = packets.split_last().expect("many datagrams");
    others.iter().for_each(|packet| net.deliver(packet));
    assert_eq!(net.clients[0].received(), [[0; 0]; 0]);
    net.deliver(first);
    net.deliver_all();
    assert_eq!(net.clients[0].received(), payloads);
}

/// T-69: despite loss, duplication and reordering, all messages arrive once and in order, in both
/// directions.
#[test]
fn messages_arrive_once_and_in_order_on_a_bad_link() {
    for seed in 1..=20 {
        let mut dice = TestRng(seed * 0x9E37_79B9);
        let mut net = TestNet::joined(&unencrypted(), 1);
        let mut expected = [Vec::new(), Vec::new()];
        let mut wire: VecDeque<SentDatagram> = VecDeque::new();
        for tick in 0..2000_u64 {
            net.now = ms(10 * tick);
            if tick < 400 {
                let len = usize::try_from(dice.below(if tick % 40 == 0 { 3000 } else { 100 }))
                    .expect("a small number");
                let quality = if dice.below(8) == 0 { DeliveryMode::Urgent } else { DeliveryMode::Reliable };
                let payload = pattern(usize::try_from(tick).expect("a small number"), len);
                net.host.send_as(PeerId(2), &payload, quality, net.now);
                expected[0].push(payload.clone());
                net.clients[0].send_as(PeerId::HOST, &payload, quality, net.now);
                expected[1].push(payload);
            }
            wire.extend(net.flush());
            wire.make_contiguous();
            let (wire_slice, _) = wire.as_mut_slices();
            dice.shuffle(wire_slice);
            for _ in 0..wire.len().saturating_sub(3).max(usize::from(tick % 3 == 0)) {
                let Some(packet) = wire.pop_front() else { break };
                match dice.below(10) {
                    0 | 1 => {}
                    2 => {
                        net.deliver(&packet);
                        wire.push_back(packet);
                    }
                    _ => net.deliver(&packet),
                }
            }
        }
        assert_eq!(net.clients[0].received(), expected[0], "seed {seed}");
        assert_eq!(net.host.received(), expected[1], "seed {seed}");
        let rest = net.host.snapshot(PeerId(2), net.now);
        assert_eq!((rest.unacknowledged.len(), rest.queued_bytes, rest.in_flight), (0, 0, 0), "seed {seed}");
    }
}

/// T-24, T-69: with more than 65,536 messages the numbers wrap, and none is lost, duplicated or reordered.
#[test]
fn sequence_numbers_wrap() {
    let mut dice = TestRng(7);
    let mut net = TestNet::joined(&unencrypted(), 1);
    let (mut sent, mut received) = (0_u32, 0_u32);
    for tick in 0..4000_u64 {
        net.now = ms(10 * tick);
        for _ in 0..18 {
            net.host.send(PeerId(2), &sent.to_le_bytes(), net.now);
            sent += 1;
        }
        for packet in net.flush() {
            if dice.below(20) > 0 {
                net.deliver(&packet);
            }
        }
        for payload in net.clients[0].received() {
            assert_eq!(payload, received.to_le_bytes());
            received += 1;
        }
        net.host.events();
    }
    net.run(ms(45_000));
    assert_eq!(usize::try_from(sent - received).expect("fits"), net.clients[0].received().len());
    assert!(sent > 70_000);
    let window = &net.clients[0].snapshot(PeerId::HOST, net.now).inboxes[1];
    assert_eq!(window.expected, Seq(u16::try_from(sent % 65_536).expect("a small number")));
}

/// T-69: the receive window is 0x3FFF ahead of the expected number, wherever that is.
///
/// Numbers behind it are duplicates. All messages are acknowledged.
#[test]
fn receive_window_is_0x3fff_ahead_and_wraps() {
    for start in [0_u16, 1, 0x8000, 0xFFFE] {
        let mut host = host_with_forged_peer(unencrypted());
        let all: Vec<u16> = (0..start).collect();
        for chunk in all.chunks(200) {
            let messages: Vec<Message<'_>> = chunk.iter().map(|seq| reliable(*seq, b"")).collect();
            host.receive_from(address(1), &from_peer(2, &messages), START);
            host.flush(START);
            host.events();
        }
        let mut answer = |ahead: u16| {
            let seq = start.wrapping_add(ahead);
            host.receive_from(address(1), &from_peer(2, &[reliable(seq, b"x")]), START);
            (
                host.sent_texts(START) == [format!("ack game seq={seq}")],
                host.rejected_from(PeerId(2), RejectCause::Window),
            )
        };
        assert_eq!(answer(0x4000), (true, 1), "start {start}");
        assert_eq!(answer(0x7FFF), (true, 2), "start {start}");
        assert_eq!(answer(0x3FFF), (true, 2), "start {start}");
        assert_eq!(answer(0x8000), (true, 2), "start {start}");
        assert_eq!(answer(0xFFFF), (true, 2), "start {start}");
        assert_eq!(host.received(), [[0; 0]; 0]);
        host.receive_from(address(1), &from_peer(2, &[reliable(start, b"now")]), START);
        assert_eq!(host.received(), [b"now"]);
    }
}

/// T-60, T-62: an ACK for an unsent or acknowledged message has no effect and is counted.
#[test]
fn ack_of_an_unsent_message_is_counted_as_useless() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), b"one", START);
    host.flush(START);
    host.send(PeerId(2), b"not sent yet", START);
    let useless = [
        ack(Channel::Game, 1),
        ack(Channel::Game, 2),
        ack(Channel::Game, 0xFFFF),
        ack(Channel::Control, 0),
        ack(Channel::Control, 1),
        ack_fragment(0, 0),
        ack_fragment(1, 7),
    ];
    host.receive_from(address(1), &from_peer(2, &useless), START);
    assert_eq!(host.counters(PeerId(2)).acks_useless, 7);
    assert_eq!(host.sent_texts(START), ["data seq=1 12 bytes"]);
    assert_eq!(host.snapshot(PeerId(2), START).unacknowledged.len(), 2);
    let useful = from_peer(2, &[ack(Channel::Game, 1), ack(Channel::Game, 0)]);
    // An ACK of a message that was never queued is forged, so a message needs ACKs after two sends.
    assert_eq!(host.endpoint.rejected().count(RejectCause::ForgedAck), 1);
    host.receive_from(address(1), &useful, START);
    assert_eq!(host.sent_texts(START), ["data seq=0 3 bytes", "data seq=1 12 bytes"]);
    host.receive_from(address(1), &useful, START);
    assert_eq!(host.counters(PeerId(2)).acks_useless, 7);
    assert_eq!(host.snapshot(PeerId(2), START).queued_bytes, 0);
    host.receive_from(address(1), &useful, START);
    assert_eq!(host.counters(PeerId(2)).acks_useless, 9);
}

/// T-60: ACKs and keepalives are not acknowledged.
#[test]
fn acks_and_keepalives_are_not_acknowledged() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0), Message::Keepalive]), START);
    assert_eq!(host.timeline(START, ms(4999)), [""; 0]);
    assert_eq!(host.events(), []);
}

/// T-51: messages reach the addressed peer, and events carry the sender's id.
#[test]
fn messages_reach_the_addressed_peer() {
    let mut net = TestNet::joined(&unencrypted(), 5);
    for n in 0..5_u8 {
        net.host.send(PeerId(2 + n), &[n], net.now);
        net.clients[usize::from(n)].send(PeerId::HOST, &[n], net.now);
    }
    net.deliver_all();
    for n in 0..5_u8 {
        assert_eq!(
            net.clients[usize::from(n)].events(),
            [(Event::Received { peer: PeerId::HOST, reliable: true }, vec![n])]
        );
    }
    let expected: Vec<_> =
        (0..5).map(|n| (Event::Received { peer: PeerId(2 + n), reliable: true }, vec![n])).collect();
    assert_eq!(net.host.events(), expected);
}

/// T-63, T-66: messages wait behind one that the window blocks; then nothing is sent, and polling ends.
#[test]
fn polling_ends_when_the_window_blocks_the_queue() {
    let mut host = host_with_forged_peer(Config { initial_window: 500, ..unencrypted() });
    host.send(PeerId(2), &[1; 400], START);
    assert_eq!(host.sent_texts(START), ["data seq=0 400 bytes"]);
    host.send(PeerId(2), &[2; 200], START);
    host.send_as(PeerId(2), b"loose", DeliveryMode::Unreliable, START);
    assert_eq!(host.sent_texts(START), [""; 0]);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), START);
    assert_eq!(host.sent_texts(START), ["data seq=1 200 bytes", "data unreliable 5 bytes"]);
}

/// The event of a payload reports whether it was reliable, on the fast path and on the general path.
#[test]
fn received_event_reports_reliability() {
    let mut host = host_with_forged_peer(unencrypted());
    for messages in [
        &[reliable(0, b"alone")][..],
        &[unreliable(b"alone")],
        &[reliable(1, b"a"), unreliable(b"b"), reliable(3, b"d"), reliable(2, b"c")],
        &[fragment(4, 1, 2, b"f"), fragment(4, 0, 2, b"e")],
    ] {
        host.receive_from(address(1), &from_peer(2, messages), START);
    }
    let received = host.events().into_iter().map(|(event, payload)| match event {
        Event::Received { peer: PeerId(2), reliable } => (payload, reliable),
        other => panic!("{other:?}"),
    });
    let expected = [
        ("alone", true),
        ("alone", false),
        ("a", true),
        ("b", false),
        ("c", true),
        ("d", true),
        ("ef", true),
    ];
    assert!(received.eq(expected.map(|(payload, reliable)| (payload.as_bytes().to_vec(), reliable))));
}
