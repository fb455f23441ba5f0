//! The behaviour that stock peers rely on: one test for each point.

use std::net::Ipv4Addr;

use bcnet_observe::NonStock;
use bcnet_transport::wire::{BootReason, Datagram, Delivery, MAX_MESSAGE, Message, PeerId, Seq, Text};
use bcnet_transport::{Config, DeliveryMode, Engine, Event, RejectCause, cipher};

use crate::net::{
    HOST, MAX_STEPS, START, SentDatagram, TestEndpoint, TestNet, TestRng, address, client_with_forged_host,
    connect, fragment, from_peer, host_with_forged_peer, identity, ms, pattern, reliable, unencrypted, utf16,
};

/// Returns all datagrams of a session in which clients join, announce names, are refused, are booted and
/// leave.
fn whole_session(config: &Config) -> Vec<SentDatagram> {
    let mut net = TestNet::joined_with_names(config, 2);
    let mut log = Vec::new();
    net.clients.push(TestEndpoint::client(config.clone(), 3, net.now));
    net.clients.push(TestEndpoint::client(config.clone(), 4, net.now));
    deliver_all_logged(&mut net, &mut log);
    net.host.endpoint.admit(address(3), net.now).expect("a free id");
    net.host.endpoint.refuse(address(4), BootReason::BANNED, net.now).expect("the request is pending");
    deliver_all_logged(&mut net, &mut log);
    let name = utf16("Cady2");
    net.clients[0]
        .endpoint
        .announce_name(Text::new(&name).expect("UTF-16LE"), net.now)
        .expect("a peer is connected");
    deliver_all_logged(&mut net, &mut log);
    net.host.endpoint.boot(PeerId(3), BootReason::KICKED, net.now).expect("the peer is connected");
    deliver_all_logged(&mut net, &mut log);
    net.clients[0].endpoint.leave(net.now);
    deliver_all_logged(&mut net, &mut log);
    net.host.endpoint.leave(net.now);
    deliver_all_logged(&mut net, &mut log);
    log
}

/// Does the same as `TestNet::deliver_all`, and logs the datagrams.
fn deliver_all_logged(net: &mut TestNet, log: &mut Vec<SentDatagram>) {
    for _ in 0..MAX_STEPS {
        let packets = net.flush();
        if packets.is_empty() {
            return;
        }
        packets.iter().for_each(|packet| net.deliver(packet));
        log.extend(packets);
    }
    panic!("at {} the endpoints answer each other without end", net.now);
}

/// T-16, T-66: every control message has a header of five bytes with bits 15 and 14 set.
#[test]
fn control_messages_have_a_five_byte_header_with_bits_15_and_14() {
    let log = whole_session(&unencrypted());
    let mut kinds = [0; 6];
    for packet in &log {
        let datagram = Datagram::parse(&packet.bytes, None).expect("well formed");
        let mut at = 2;
        for message in datagram.messages() {
            assert!(NonStock::of(&message).is_empty(), "{message}");
            if let Message::Control(_) = message {
                let word = u16::from_le_bytes([packet.bytes[at + 1], packet.bytes[at + 2]]);
                assert_eq!(usize::from(word), 0xC000 + message.wire_len(), "{message}");
                kinds[usize::from(message.kind().0)] += 1;
            }
            at += message.wire_len();
        }
    }
    let [identities, _, _, connects, boots, disconnects] = kinds;
    assert!(identities > 2 && connects > 2 && boots > 2 && disconnects > 2, "{kinds:?}");
}

/// T-67: all fragments of a message have one sequence number, and the next message has the next.
#[test]
fn split_message_uses_one_sequence_number() {
    let mut host = host_with_forged_peer(unencrypted());
    for len in [10, 900, 10, 5000, 10] {
        host.send(PeerId(2), &pattern(0, len), START);
    }
    let mut numbers: Vec<(u16, bool)> = Vec::new();
    for (delivery, _) in host.flush(START).iter().flat_map(SentDatagram::data) {
        let number = (delivery.seq().expect("reliable").0, delivery.fragment().is_some());
        if numbers.last() != Some(&number) {
            numbers.push(number);
        }
    }
    assert_eq!(numbers, [(0, false), (1, true), (2, false), (3, true), (4, false)]);
}

/// T-04, T-23: no message has more than 412 bytes, and no datagram more than 512.
#[test]
fn messages_have_at_most_412_bytes_and_datagrams_512() {
    let mut dice = TestRng(42);
    let mut net = TestNet::joined(&unencrypted(), 1);
    let (mut largest_message, mut largest_datagram) = (0, 0);
    for round in 0..300 {
        for _ in 0..dice.below(5) {
            let len = usize::try_from(dice.below(1 + dice.0 % 3000)).expect("a small number");
            let quality = [DeliveryMode::Reliable, DeliveryMode::Urgent, DeliveryMode::Unreliable][round % 3];
            net.host.send_as(PeerId(2), &pattern(round, len), quality, net.now);
            net.clients[0].send_as(PeerId::HOST, &pattern(round, len), quality, net.now);
        }
        for packet in net.flush() {
            largest_datagram = largest_datagram.max(packet.bytes.len());
            let datagram = Datagram::parse(&packet.bytes, None).expect("well formed");
            let largest = datagram.messages().map(|message| message.wire_len()).max();
            largest_message = largest_message.max(largest.expect("a message"));
            if dice.below(10) > 0 {
                net.deliver(&packet);
            }
        }
        net.now = ms(10 * round as u64);
    }
    assert_eq!(largest_message, MAX_MESSAGE);
    assert!((500..=512).contains(&largest_datagram), "{largest_datagram}");
}

/// T-60, T-69: a message is acknowledged each time, before its number is compared with the window.
#[test]
fn messages_outside_the_window_are_acknowledged() {
    let mut host = host_with_forged_peer(unencrypted());
    for seq in 0..50 {
        host.receive_from(address(1), &from_peer(2, &[reliable(seq, b"x")]), START);
        host.flush(START);
    }
    assert_eq!(host.received().len(), 50);
    // The last message, an old one, and one that is half the number space behind.
    for seq in [49, 49, 3, 0, 0xFFFF, 0xC000, 0x8040] {
        host.receive_from(address(1), &from_peer(2, &[reliable(seq, b"x")]), START);
        assert_eq!(host.sent_texts(START), [format!("ack game seq={seq}")]);
    }
    host.receive_from(address(1), &connect(1), START);
    assert_eq!(host.sent_texts(START), ["ack control seq=0"]);
    assert_eq!(host.counters(PeerId(2)).duplicates, 7, "the request does not count for the peer");
    // The first number beyond the window and the last, also as a fragment.
    for seq in [50 + 0x4000, 50 + 0x7FFF] {
        host.receive_from(address(1), &from_peer(2, &[reliable(seq, b"x")]), START);
        assert_eq!(host.sent_texts(START), [format!("ack game seq={seq}")]);
        host.receive_from(address(1), &from_peer(2, &[fragment(seq, 1, 3, b"x")]), START);
        assert_eq!(host.sent_texts(START), [format!("ack game seq={seq} part=1")]);
    }
    assert_eq!(host.rejected_from(PeerId(2), RejectCause::Window), 4);
    assert_eq!(host.received(), [[0; 0]; 0]);
}

/// T-69: each channel keeps its order, and a gap in one does not block the other.
#[test]
fn each_channel_keeps_its_own_order() {
    let mut host = host_with_forged_peer(unencrypted());
    let (a, b) = (utf16("a"), utf16("b"));
    let early = [reliable(1, b"1"), identity(2, 2, &b), reliable(2, b"2")];
    host.receive_from(address(1), &from_peer(2, &early), START);
    assert_eq!(host.events(), []);
    host.receive_from(address(1), &from_peer(2, &[identity(1, 2, &a)]), START);
    let names: Vec<_> = host.events().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(names[0], a, "the control channel continues; the second change of name is too early");
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"0")]), START);
    assert_eq!(host.received(), [b"0", b"1", b"2"]);
}

/// T-55: idle peers exchange keepalives every five seconds, well within 45.
#[test]
fn idle_peers_exchange_keepalives_within_45_seconds() {
    let mut net = TestNet::joined(&unencrypted(), 2);
    let mut last = [net.now; 4];
    for tenth in 0..6000 {
        net.now = ms(100 * tenth);
        let packets = net.flush();
        for packet in &packets {
            let client = if packet.from == HOST { packet.to } else { packet.from };
            let line = 2 * usize::from(client == address(2)) + usize::from(packet.from == HOST);
            last[line] = net.now;
            assert_eq!(packet.message_texts(), ["keepalive"]);
            assert_eq!(packet.bytes.len(), 3);
            net.deliver(packet);
        }
        let silence = last.iter().map(|time| net.now.since(*time).as_millis()).max();
        assert!(silence <= Some(5000), "{silence:?} ms");
    }
    assert_eq!(net.host.left_peers(), []);
}

/// T-40: with the cipher on, byte 0 is the plain sender byte and the rest is encrypted.
#[test]
fn byte_0_is_not_encrypted() {
    let (clear, wire) = (whole_session(&unencrypted()), whole_session(&Config::default()));
    assert_eq!(clear.len(), wire.len());
    let mut senders = [0; 256];
    for (clear, wire) in clear.iter().zip(&wire) {
        assert_eq!(clear.bytes[0], wire.bytes[0]);
        assert_eq!(clear.bytes.len(), wire.bytes.len());
        assert_ne!(clear.bytes[1..], wire.bytes[1..]);
        senders[usize::from(wire.bytes[0])] += 1;
    }
    assert!(senders[1] > 4 && senders[2] > 2 && senders[3] > 1 && senders[0xFF] > 1);
}

/// T-33, T-34, T-51: a host answers the captured request of a stock client with the captured bytes of a
/// stock host.
#[test]
fn captured_join_bytes_are_parsed_and_reproduced() {
    const REQUEST: [u8; 17] = [
        0xFF, 0xD7, 0x33, 0x61, 0x38, 0xB3, 0x5B, 0x46, 0x54, 0x35, 0xD1, 0x4F, 0xC5, 0xE2, 0x55, 0x71, 0x66,
    ];
    const REPLY: [u8; 8] = [0x01, 0xD7, 0x33, 0x68, 0xC3, 0xBF, 0x76, 0xDB];
    const ACK: [u8; 4] = [0x01, 0, 0, 0x02];
    let mut host = TestEndpoint::host(Config::default());
    host.receive_from(address(1), &REQUEST, START);
    let asked = Event::Request { from: address(1), address: Ipv4Addr::new(10, 10, 10, 239) };
    assert_eq!(host.events(), [(asked, vec![])]);
    assert_eq!(host.endpoint.admit(address(1), START), Ok(PeerId(2)));
    // The ACK, which stock may send in a separate datagram, and the captured reply behind it.
    let (mut sent, mut reply) = (host.flush(START)[0].bytes.clone(), REPLY);
    cipher::decrypt(&mut sent);
    cipher::decrypt(&mut reply);
    assert_eq!(sent, [&[1, 2][..], &ACK, &reply[2..]].concat());

    let mut client = TestEndpoint::client_at(
        Config::default(),
        std::net::SocketAddrV4::new(Ipv4Addr::new(10, 10, 10, 239), 22101),
        0x0A5F,
        START,
    );
    assert_eq!(client.flush(START)[0].bytes, REQUEST);
    client.receive_from(HOST, &REPLY, START);
    assert_eq!(client.events(), [(Event::Joined { peer: PeerId(2) }, vec![])]);
}

/// T-67: the captured answer of 832 bytes: an ACK and fragment 0 in 418 bytes, fragments 1 and 2 in 441.
#[test]
fn the_captured_split_message_has_the_captured_sizes() {
    let mut client = client_with_forged_host(unencrypted());
    // Two earlier messages, so that it has the captured sequence number.
    for seq in 0..2 {
        client.send(PeerId::HOST, b"x", START);
        client.flush(START);
        let ack = crate::net::ack(bcnet_transport::wire::Channel::Game, seq);
        client.receive_from(HOST, &from_peer(1, &[ack]), START);
    }
    for seq in 0..3 {
        client.receive_from(HOST, &from_peer(1, &[reliable(seq, b"ask")]), ms(100 + u64::from(seq)));
        if seq < 2 {
            client.flush(ms(100 + u64::from(seq)));
        }
    }
    client.send(PeerId::HOST, &pattern(0, 832), ms(102));
    let packets = client.flush(ms(102));
    let sizes: Vec<usize> = packets.iter().map(|packet| packet.bytes.len()).collect();
    assert_eq!(sizes, [418, 441]);
    assert_eq!(packets[0].bytes[..13], [2, 2, 0x01, 2, 0, 0, 0x32, 0x9C, 0xA1, 2, 0, 0, 3]);
    assert_eq!(packets[1].message_texts(), ["data seq=2 part=1 406 bytes", "data seq=2 part=2 21 bytes"]);
    let first = packets[0].data();
    assert!(matches!(first[..], [(Delivery::Fragment(Seq(2), _), ref bytes)] if bytes.len() == 405));
}
