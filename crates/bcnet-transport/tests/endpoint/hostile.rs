//! Datagrams that no correct peer sends: they only increment a counter.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{Body, BootReason, Channel, Control, Message, PeerId, Seq, Text};
use bcnet_transport::{AdmitError, Config, DeliveryMode, Engine, Event, LeaveReason, RejectCause};

use crate::heap;
use crate::net::{
    HOST, START, TestEndpoint, TestNet, TestRng, ack, address, boot, client_with_forged_host, connect,
    control, disconnect, from_peer, host_with_forged_peer, identity, ms, pattern, reliable, unencrypted,
    unreliable, utf16,
};

/// T-58: a datagram with a valid id from another address has no effect.
#[test]
fn a_valid_id_from_another_address_changes_nothing() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send(PeerId(2), b"mine", START);
    host.flush(START);
    let (before, counters) = (host.snapshot(PeerId(2), START), host.counters(PeerId(2)));
    let forged = [
        reliable(0, b"forged"),
        unreliable(b"forged"),
        ack(Channel::Game, 0),
        identity(1, 2, &[]),
        disconnect(1, 2),
        Message::Keepalive,
    ];
    let elsewhere = [
        address(2),
        SocketAddrV4::new(*address(1).ip(), 22102),
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101),
    ];
    for from in elsewhere {
        host.receive_from(from, &from_peer(2, &forged), START);
    }
    assert_eq!(host.snapshot(PeerId(2), START), before);
    assert_eq!(host.counters(PeerId(2)), counters);
    assert_eq!(host.sent_texts(START), [""; 0]);
    let reported: Vec<_> = elsewhere
        .iter()
        .map(|from| (Event::Rejected { from: *from, cause: RejectCause::WrongAddress }, vec![]))
        .collect();
    assert_eq!(host.events(), reported);
    assert_eq!(host.endpoint.rejected().count(RejectCause::WrongAddress), 3);
    assert_eq!(host.endpoint.rejected().total(), 3);
}

/// T-40, T-58: the first byte, which is never encrypted, shows whether a datagram can have an effect.
///
/// A prefiltered datagram would only have been counted, for the same cause.
#[test]
fn prefiltered_datagrams_have_no_effect_when_handled() {
    let mut seen = [0; 2];
    for sender in 0..=u8::MAX {
        for from in [address(1), address(2)] {
            let bytes = from_peer(sender, &[unreliable(b"x")]);
            let [mut screened, mut handled] = [(); 2].map(|()| host_with_forged_peer(unencrypted()));
            let passes = screened.endpoint.prefilter(from, &bytes);
            seen[usize::from(passes)] += 1;
            handled.receive_from(from, &bytes, START);
            if !passes {
                assert_eq!(screened.endpoint.rejected(), handled.endpoint.rejected(), "{sender} from {from}");
                assert_eq!(handled.endpoint.rejected().total(), 1);
                assert_eq!(
                    handled.snapshot(PeerId(2), START),
                    host_with_forged_peer(unencrypted()).snapshot(PeerId(2), START)
                );
                assert_eq!((screened.events(), screened.sent_texts(START)), (vec![], vec![]));
            }
        }
    }
    // The player's own id from its own address; senders without an id, and browsers, from any address.
    assert_eq!(seen, [507, 5]);
    let mut host = host_with_forged_peer(unencrypted());
    assert!(!host.endpoint.prefilter(address(1), &[]));
    assert_eq!(host.endpoint.rejected().count(RejectCause::Malformed), 1);
    let mut client = client_with_forged_host(unencrypted());
    assert!(client.endpoint.prefilter(HOST, &[9]), "a client does not prefilter");
}

/// T-58: a datagram with an unused id has no effect, from a known address or not.
#[test]
fn unknown_sender_id_changes_nothing() {
    let mut host = host_with_forged_peer(unencrypted());
    let (before, counters) = (host.snapshot(PeerId(2), START), host.counters(PeerId(2)));
    for sender in [0, 1, 3, 0x7E, 0x7F, 0x80, 0xFE] {
        for from in [address(1), address(2)] {
            host.receive_from(from, &from_peer(sender, &[reliable(0, b"x"), disconnect(1, sender)]), START);
        }
    }
    assert_eq!(host.endpoint.rejected().count(RejectCause::UnknownSender), 14);
    assert_eq!((host.snapshot(PeerId(2), START), host.counters(PeerId(2))), (before, counters));
    assert_eq!((host.sent_texts(START), host.received()), (vec![], vec![]));
    assert_eq!(host.endpoint.peers().count(), 1, "a peer was created");
}

/// T-51, T-58: a message without an id and without a request has no effect and creates no peer.
#[test]
fn messages_without_id_or_request_are_rejected() {
    let mut host = TestEndpoint::host(unencrypted());
    for message in
        [reliable(0, b"x"), ack(Channel::Control, 0), boot(0, BootReason::KICKED, 1), Message::Keepalive]
    {
        host.receive_from(address(1), &from_peer(0xFF, &[message]), START);
    }
    assert_eq!(host.endpoint.rejected().count(RejectCause::NotAllowed), 4);
    assert!(host.endpoint.is_closed());
    assert_eq!(host.sent_texts(START), [""; 0]);
    // A refused client waits for this ACK.
    host.receive_from(address(1), &from_peer(0xFF, &[ack(Channel::Control, 0), disconnect(1, 0xFF)]), START);
    assert_eq!(host.sent_texts(START), ["ack control seq=1"]);
    assert!(host.endpoint.is_closed());
}

/// T-58: a malformed datagram has no effect, not even its well-formed half.
#[test]
fn a_malformed_datagram_changes_nothing() {
    let mut host = host_with_forged_peer(unencrypted());
    let (before, counters) = (host.snapshot(PeerId(2), START), host.counters(PeerId(2)));
    let good = from_peer(2, &[reliable(0, b"good"), reliable(1, b"better")]);
    let mut count = 0;
    for cut in 0..good.len() {
        host.receive_from(address(1), &good[..cut], START);
        count += 1;
    }
    let mut more = good.clone();
    more.push(0);
    let mut unknown = good.clone();
    unknown[11] = 0x06;
    for bytes in [&more, &unknown] {
        host.receive_from(address(1), bytes, START);
        count += 1;
    }
    assert_eq!(host.endpoint.rejected().count(RejectCause::Malformed), count);
    assert_eq!((host.snapshot(PeerId(2), START), host.counters(PeerId(2))), (before, counters));
    assert_eq!((host.sent_texts(START), host.received()), (vec![], vec![]));
    host.receive_from(address(1), &good, START);
    assert_eq!(host.received(), [b"good".to_vec(), b"better".to_vec()]);
}

/// T-59: a client cannot boot, admit or name others, or make others leave.
#[test]
fn client_cannot_send_control_messages_for_others() {
    let mut net = TestNet::joined(&unencrypted(), 2);
    let name = utf16("Mallory");
    let forged = [
        (boot(1, BootReason::KICKED, 3), RejectCause::NotAllowed),
        (boot(2, BootReason::KICKED, 1), RejectCause::NotAllowed),
        (identity(3, 3, &name), RejectCause::Impostor),
        (identity(4, 1, &name), RejectCause::Impostor),
        (disconnect(5, 3), RejectCause::Impostor),
        (disconnect(6, 1), RejectCause::Impostor),
    ];
    for (message, cause) in forged {
        let before = net.host.rejected_from(PeerId(2), cause);
        net.host.receive_from(address(1), &from_peer(2, &[message]), net.now);
        assert_eq!(net.host.rejected_from(PeerId(2), cause), before + 1, "{message}");
        let reported = Event::Rejected { from: address(1), cause };
        assert_eq!(net.host.events(), [(reported, vec![])], "{message}");
    }
    net.deliver_all();
    assert_eq!(net.clients[1].events(), []);
    assert_eq!(net.host.endpoint.peers().count(), 2);
}

/// T-35, T-59: a connect from a client is parsed as a request, so a reply from it is malformed.
#[test]
fn a_connect_reply_of_a_client_is_malformed() {
    let mut host = host_with_forged_peer(unencrypted());
    let reply = from_peer(2, &[control(1, Body::ConnectReply { assigned: PeerId(9) })]);
    host.receive_from(address(1), &reply, START);
    assert_eq!(host.endpoint.rejected().count(RejectCause::Malformed), 1);
    assert_eq!(host.endpoint.peers().collect::<Vec<_>>(), [PeerId(2)]);
}

/// T-51: a client accepts one reply; it ignores further replies and ids that no host assigns.
#[test]
fn client_accepts_one_connect_reply_with_a_valid_id() {
    let mut client = client_with_forged_host(unencrypted());
    let again = from_peer(1, &[control(1, Body::ConnectReply { assigned: PeerId(9) })]);
    client.receive_from(HOST, &again, START);
    assert_eq!(client.endpoint.id(), PeerId(2));
    assert_eq!(client.rejected_from(PeerId::HOST, RejectCause::NotAllowed), 1);
    for id in [0, 1, 0x5C, 0x7F, 0xFF] {
        let mut client = TestEndpoint::client(unencrypted(), 1, START);
        client.flush(START);
        let reply = from_peer(1, &[control(0, Body::ConnectReply { assigned: PeerId(id) })]);
        client.receive_from(HOST, &reply, START);
        assert_eq!(client.endpoint.id(), PeerId::UNASSIGNED);
        assert_eq!(client.rejected_from(PeerId::HOST, RejectCause::NotAllowed), 1);
    }
}

/// T-51: data before admission is rejected, with the future id of the client or without an id.
#[test]
fn data_before_admission_is_rejected() {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    host.flush(START);
    host.events();
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"early")]), START);
    host.receive_from(address(1), &from_peer(0xFF, &[reliable(0, b"early"), unreliable(b"early")]), START);
    assert_eq!(host.sent_texts(START), [""; 0]);
    assert_eq!(host.received(), [[0; 0]; 0]);
    assert_eq!(host.endpoint.rejected().count(RejectCause::UnknownSender), 1);
    assert_eq!(host.endpoint.rejected().count(RejectCause::NotAllowed), 1);
    host.endpoint.admit(address(1), START).expect("a free id");
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"now")]), START);
    assert_eq!(host.received(), [b"now"]);
}

/// T-51: a flood of requests from ten thousand addresses uses bounded memory and expires after ten seconds.
#[test]
fn a_flood_of_requests_is_bounded_and_expires() {
    let mut host = host_with_forged_peer(unencrypted());
    let start = heap::in_use();
    for n in 0..10_000 {
        host.receive_from(address(100 + n), &connect(u32::from(n)), START);
        host.flush(START);
    }
    let limit = Config::default().max_pending_requests as u64;
    assert_eq!(host.endpoint.rejected().count(RejectCause::Crowded), 10_000 - limit);
    let requests = host.events().iter().filter(|(event, _)| matches!(event, Event::Request { .. })).count();
    assert_eq!(requests as u64, limit);
    assert!(heap::in_use() - start < 300_000, "{} bytes", heap::in_use() - start);
    // The connected peer is not affected.
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"still here")]), START);
    assert_eq!(host.received(), [b"still here"]);
    assert_eq!(host.sent_texts(START), ["ack game seq=0"]);

    host.receive_from(address(50), &connect(1), ms(9999));
    assert_eq!(host.endpoint.admit(address(50), ms(9999)), Err(AdmitError::NoRequest(address(50))));
    host.timeline(ms(9999), ms(10_000));
    host.receive_from(address(50), &connect(1), ms(10_000));
    assert_eq!(host.endpoint.admit(address(50), ms(10_000)), Ok(PeerId(3)));
}

/// T-05, T-58: the caller gets GameSpy text from any address; it has no other effect.
#[test]
fn gamespy_text_is_a_query() {
    for config in [unencrypted(), Config::default()] {
        let mut host = TestEndpoint::host(config);
        host.receive_from(address(7), b"\\status\\", START);
        host.receive_from(address(8), b"\\", START);
        let queries = [
            (Event::Query { from: address(7) }, b"\\status\\".to_vec()),
            (Event::Query { from: address(8) }, b"\\".to_vec()),
        ];
        assert_eq!(host.events(), queries);
        assert_eq!(host.endpoint.rejected().total(), 0);
        assert!(host.endpoint.is_closed());
    }
}

/// T-52: names are relayed four times a second, with a burst of a few more.
#[test]
fn name_changes_are_rate_limited() {
    let mut net = TestNet::joined(&unencrypted(), 2);
    net.now = ms(1000);
    for n in 0..100_u16 {
        let name = utf16(&format!("{n}"));
        net.host.receive_from(
            address(1),
            &from_peer(2, &[identity(1 + n, 2, &name)]),
            ms(1000 + 10 * u64::from(n)),
        );
    }
    let names: Vec<_> =
        net.host.events().into_iter().filter(|(event, _)| matches!(event, Event::Identity { .. })).collect();
    let reported: Vec<Vec<u8>> = names.into_iter().map(|(_, name)| name).collect();
    let expected = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "26", "51", "76"];
    assert_eq!(reported, expected.map(utf16));
    assert_eq!(net.host.rejected_from(PeerId(2), RejectCause::Flood), 88);
    let relayed: Vec<_> =
        net.host.flush(ms(2000)).into_iter().filter(|packet| packet.to == address(2)).collect();
    assert_eq!(crate::net::all_message_texts(&relayed).len(), 12);
}

/// T-71: other clients get a printable name, regardless of the client's own text.
#[test]
fn name_is_cleaned_before_it_is_relayed() {
    let sent: [(Vec<u8>, String, bool); 6] = [
        (utf16("Jean-Luc"), "Jean-Luc".into(), false),
        (utf16("a\u{1b}[2J\nb\u{202E}c\u{200B}"), "a[2J bc".into(), true),
        (vec![b'A', 0, 0x00, 0xD8], "A".into(), true),
        (utf16("\u{200F} \u{3164}\t"), "Player 2".into(), true),
        (utf16(""), "Player 2".into(), true),
        (utf16(&"x".repeat(119)), "x".repeat(100), true),
    ];
    for (sent, received, is_cleaned) in sent {
        let mut net = TestNet::joined(&unencrypted(), 2);
        net.host.receive_from(address(1), &from_peer(2, &[identity(1, 2, &sent)]), net.now);
        let (event, name) = net.host.events().pop().expect("a name");
        assert!(matches!(event, Event::Identity { cleaned, .. } if cleaned == is_cleaned), "{received}");
        assert_eq!(name, utf16(&received));
        net.deliver_all();
        let reported = net.clients[1].events().pop().expect("a name");
        assert_eq!(reported.1, utf16(&received), "every client gets the clean name");
        net.host.receive_from(address(3), &connect(3), net.now);
        net.host.endpoint.admit(address(3), net.now).expect("a free id");
        let mut to_new_client = net.host.flush(net.now);
        to_new_client.retain(|packet| packet.to == address(3));
        let is_sent = crate::net::all_message_texts(&to_new_client)
            .iter()
            .any(|line| line.ends_with(&format!("is {received:?}")));
        assert!(is_sent, "a new client does not get the clean name: {to_new_client:?}");
    }
}

/// T-52: names that were sent with pauses and arrive together, because the first was lost, are all
/// accepted.
#[test]
fn burst_of_delayed_names_is_accepted() {
    let mut host = host_with_forged_peer(unencrypted());
    let names: Vec<Vec<u8>> = (0..8).map(|n| utf16(&format!("{n}"))).collect();
    for (n, name) in (1_u16..=8).zip(&names).rev() {
        let at = ms(1000 * u64::from(9 - n));
        host.receive_from(address(1), &from_peer(2, &[identity(n, 2, name)]), at);
    }
    let received: Vec<Vec<u8>> = host.events().into_iter().map(|(_, name)| name).collect();
    assert_eq!(received, names);
    assert_eq!(host.rejected_from(PeerId(2), RejectCause::Flood), 0);
}

/// T-52: the own name is truncated to the length that a host relays.
#[test]
fn own_name_is_truncated() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    let long = utf16(&"ä".repeat(150));
    net.clients[0]
        .endpoint
        .announce_name(Text::new(&long).expect("UTF-16LE"), net.now)
        .expect("a peer is connected");
    net.deliver_all();
    let reported = (
        Event::Identity { peer: PeerId(2), address: *address(1).ip(), cleaned: false },
        long[..200].to_vec(),
    );
    assert_eq!(net.clients[0].events(), [reported]);
}

/// T-64: a peer that never acknowledges control messages is removed before they use much memory.
#[test]
fn peer_that_never_acks_control_messages_is_dropped() {
    for (characters, max) in [(1, 4 << 20), (100, 3 << 20)] {
        let bytes = memory_until_peer_is_dropped(&utf16(&"n".repeat(characters)));
        assert!(bytes < max, "{characters} characters: {bytes} bytes");
    }
}

/// Announces a name to a peer that never sends an ACK until the peer is removed.
///
/// Returns the memory that was used.
fn memory_until_peer_is_dropped(name: &[u8]) -> isize {
    let mut host = host_with_forged_peer(unencrypted());
    let (start, mut max) = (heap::in_use(), 0);
    for n in 0..70_000_u64 {
        host.endpoint
            .announce_name(Text::new(name).expect("UTF-16LE"), ms(n / 100))
            .expect("a peer is connected");
        if n % 100 == 0 {
            host.flush(ms(n / 100));
            host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(n / 100));
        }
        max = max.max(heap::in_use() - start);
    }
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Undeliverable)]);
    max
}

/// T-16, T-69: a control message that is too long has no effect, in order or not.
///
/// It is not stored, so it is not acknowledged.
#[test]
fn oversized_control_message_is_rejected() {
    let mut host = host_with_forged_peer(unencrypted());
    let notice = |seq, tail| {
        let body = Body::Disconnect { peer: PeerId(2), address: Ipv4Addr::LOCALHOST };
        Message::Control(Control { seq: Seq(seq), reliable: true, urgent: false, body, tail })
    };
    for seq in [2, 1] {
        host.receive_from(address(1), &from_peer(2, &[notice(seq, &[0; 600])]), START);
        assert_eq!(host.sent_texts(START), [""; 0]);
    }
    assert_eq!(host.rejected_from(PeerId(2), RejectCause::Malformed), 2);
    host.receive_from(address(1), &from_peer(2, &[notice(1, &[0; 400])]), START);
    host.timeline(START, ms(1510));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
}

/// T-53: a request from a connected peer has no effect and is counted.
#[test]
fn request_from_a_connected_peer_is_rejected() {
    let mut host = host_with_forged_peer(unencrypted());
    let request = Body::ConnectRequest { address: Ipv4Addr::LOCALHOST, nonce: 1, password: Text::default() };
    host.receive_from(address(1), &from_peer(2, &[control(1, request)]), START);
    assert_eq!(host.sent_texts(START), ["ack control seq=1"]);
    assert_eq!(host.rejected_from(PeerId(2), RejectCause::NotAllowed), 1);
    let reported = Event::Rejected { from: address(1), cause: RejectCause::NotAllowed };
    assert_eq!(host.events(), [(reported, vec![])]);
}

/// T-16, T-51: a control message without bit 15 is not acknowledged.
///
/// A name takes effect, but a disconnect does not: stock sends only reliable ones (T-57). A request must be control message 0, because its ACK has that number.
#[test]
fn unreliable_control_messages_take_effect_without_ack() {
    let mut host = TestEndpoint::host(unencrypted());
    let request = Body::ConnectRequest { address: Ipv4Addr::LOCALHOST, nonce: 1, password: Text::default() };
    for (seq, reliable) in [(0, false), (9, true)] {
        let control = Control { seq: Seq(seq), reliable, urgent: true, body: request, tail: &[] };
        host.receive_from(address(1), &from_peer(0xFF, &[Message::Control(control)]), START);
    }
    assert_eq!(host.sent_texts(START), [""; 0]);
    assert_eq!(host.endpoint.rejected().count(RejectCause::NotAllowed), 2);
    assert!(!host.events().iter().any(|(event, _)| matches!(event, Event::Request { .. })));

    let mut host = host_with_forged_peer(unencrypted());
    let name = utf16("Ann");
    let name = Text::new(&name).expect("UTF-16LE");
    let identity = Body::Identity { peer: PeerId(2), address: Ipv4Addr::LOCALHOST, name };
    let notice = Body::Disconnect { peer: PeerId(2), address: Ipv4Addr::LOCALHOST };
    for (body, answer) in [(identity, &["identity seq=1: peer 2 at 127.0.0.1 is \"Ann\""][..]), (notice, &[])]
    {
        let control = Control { seq: Seq(1), reliable: false, urgent: true, body, tail: &[] };
        host.receive_from(address(1), &from_peer(2, &[Message::Control(control)]), START);
        assert_eq!(host.sent_texts(START), answer);
    }
    assert_eq!(host.endpoint.rejected().count(RejectCause::ForgedDisconnect), 1);
    host.timeline(START, ms(5000));
    assert_eq!(host.left_peers(), []);
}

/// T-01, T-58: with flipped bits, cut and merged datagrams, nothing panics, and the valid messages still
/// arrive.
#[test]
fn corrupted_datagrams_do_not_stop_a_live_pair() {
    for seed in 1..=10 {
        let mut dice = TestRng(seed * 31_337);
        let mut net = TestNet::joined(&Config::default(), 2);
        let mut expected = Vec::new();
        let mut received = Vec::new();
        for tick in 0..1500_u64 {
            net.now = ms(10 * tick);
            if tick < 300 {
                let payload = pattern(
                    usize::try_from(tick).expect("a small number"),
                    usize::from(tick % 50 == 0) * 900 + 8,
                );
                net.clients[0].send_as(PeerId::HOST, &payload, DeliveryMode::Reliable, net.now);
                expected.push(payload);
            }
            for mut packet in net.flush() {
                let len = packet.bytes.len() as u64;
                match dice.below(10) {
                    0 => {
                        // The cipher spreads an error to the end, so the parser gets noise; byte 0 is a
                        // forged id.
                        let at = usize::try_from(dice.below(len)).expect("a small number");
                        let before = packet.bytes[at];
                        packet.bytes[at] ^= 1 << dice.below(8);
                        if at > 0 {
                            // A flip in the last byte could give another valid payload: cut that byte
                            // instead.
                            packet.bytes[at] = before;
                            packet.bytes.truncate(packet.bytes.len() - 1);
                        }
                        net.deliver(&packet);
                    }
                    1 => {
                        packet.bytes.push(7);
                        net.deliver(&packet);
                    }
                    _ => net.deliver(&packet),
                }
            }
            received.extend(net.host.received());
            net.clients.iter_mut().for_each(|client| drop(client.events()));
        }
        assert_eq!(received, expected, "seed {seed}");
        assert!(net.host.endpoint.rejected().total() > 0);
        assert_eq!(net.host.endpoint.peers().count(), 2);
    }
}
