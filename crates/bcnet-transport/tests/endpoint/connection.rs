//! Admission: which clients join, with which id, and which peers are informed.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::slice;
use std::time::Duration;

use bcnet_observe::NonStock;
use bcnet_transport::wire::{Body, BootReason, Channel, Control, Datagram, Message, PeerId, Role, Text};
use bcnet_transport::{
    AdmitError, BootError, Config, Connect, Endpoint, Engine, Event, LeaveReason, RejectCause, SendError,
    Time,
};

use crate::net::{
    HOST, START, TestEndpoint, TestNet, ack, address, all_message_texts, boot, client_with_forged_host,
    connect, control, disconnect, from_peer, host_with_forged_peer, identity, ms, pattern, reliable,
    unencrypted, utf16,
};

/// T-23, T-33: a password that is too long for one message is truncated, so that the host can refuse it.
#[test]
fn long_password_is_truncated() {
    for (characters, kept) in [(198, 198), (199, 198), (5000, 198)] {
        let password = &"x".repeat(characters);
        let mut client = Endpoint::connect(
            Config { address: Ipv4Addr::LOCALHOST, ..unencrypted() },
            Connect { host: HOST, nonce: 7, password },
            START,
        );
        let mut buffer = [0; 512];
        let len = client.poll_transmit(&mut buffer, START).expect("a request").len;
        let datagram = Datagram::parse(&buffer[..len], Some(Role::Client)).expect("well formed");
        let message = datagram.messages().next().expect("a request");
        let Message::Control(Control { body: Body::ConnectRequest { password, .. }, .. }) = message else {
            panic!("{message}")
        };
        assert_eq!(
            (password.chars().count(), NonStock::of(&message).is_empty()),
            (kept, true),
            "{characters}"
        );
    }
}

/// T-51, T-52: a complete join: request, decision, reply, identity, and its relay to every client.
#[test]
fn client_join_relays_its_name_to_everyone() {
    let (ann, bob) = (utf16("Ann"), utf16("Bob"));
    let mut net = TestNet::joined(&unencrypted(), 1);
    let own = Ipv4Addr::new(10, 20, 0, 1);
    net.clients[0]
        .endpoint
        .announce_name(Text::new(&ann).expect("UTF-16LE"), net.now)
        .expect("a peer is connected");
    net.deliver_all();
    let identity = (Event::Identity { peer: PeerId(2), address: own, cleaned: false }, ann.clone());
    assert_eq!(net.host.events(), slice::from_ref(&identity));
    assert_eq!(net.clients[0].events(), slice::from_ref(&identity), "the owner gets its own name, too");

    net.clients.push(TestEndpoint::client(unencrypted(), 2, net.now));
    let request = net.clients[1].flush(net.now);
    assert_eq!(request[0].bytes[0], 0xFF);
    net.deliver(&request[0]);
    let asked = Event::Request { from: address(2), address: Ipv4Addr::new(10, 20, 0, 2) };
    assert_eq!(net.host.events(), [(asked, vec![])]);
    assert_eq!(net.host.sent_texts(net.now), [""; 0], "the host answered before the caller decided");
    assert_eq!(net.host.endpoint.peers().collect::<Vec<_>>(), [PeerId(2)]);

    assert_eq!(net.host.endpoint.admit(address(2), net.now), Ok(PeerId(3)));
    assert_eq!(net.host.events(), [(Event::Joined { peer: PeerId(3) }, vec![])]);
    assert_eq!(
        net.host.endpoint.admit(address(2), net.now),
        Err(AdmitError::NoRequest(address(2))),
        "once is enough"
    );
    let reply = net.host.flush(net.now);
    let expected = [
        "ack control seq=0",
        "connect reply seq=0: you are peer 3",
        "identity seq=1: peer 2 at 10.20.0.1 is \"Ann\"",
    ];
    assert_eq!(all_message_texts(&reply), expected);
    net.deliver(&reply[0]);
    assert_eq!(net.clients[1].endpoint.id(), PeerId(3));
    assert_eq!(net.clients[1].events(), [(Event::Joined { peer: PeerId(3) }, vec![]), identity]);
    assert_eq!(net.clients[1].flush(net.now)[0].bytes[0], 3, "the id is the sender byte from now on");

    let own = Ipv4Addr::new(10, 20, 0, 2);
    net.clients[1]
        .endpoint
        .announce_name(Text::new(&bob).expect("UTF-16LE"), net.now)
        .expect("a peer is connected");
    net.deliver_all();
    let identity = (Event::Identity { peer: PeerId(3), address: own, cleaned: false }, bob);
    assert_eq!(net.host.events(), slice::from_ref(&identity));
    assert_eq!(net.clients[0].events(), slice::from_ref(&identity));
    assert_eq!(net.clients[1].events(), [identity]);
}

/// T-52: a new client gets all known identities, after its reply and only in its own datagrams.
#[test]
fn new_client_receives_every_known_identity() {
    let mut net = TestNet::joined(&unencrypted(), 6);
    let name = utf16("x");
    for n in [0, 1, 3, 5] {
        net.clients[n]
            .endpoint
            .announce_name(Text::new(&name).expect("UTF-16LE"), net.now)
            .expect("a peer is connected");
    }
    net.deliver_all();
    assert_eq!(net.host.endpoint.boot(PeerId(3), BootReason::KICKED, net.now), Ok(()));
    net.deliver_all();
    net.join(&unencrypted(), 7);
    net.clients.push(TestEndpoint::client(unencrypted(), 8, net.now));
    net.deliver_all();
    net.host.endpoint.admit(address(8), net.now).expect("a free id");
    let packets = net.host.flush(net.now);
    let expected = [
        "ack control seq=0",
        "connect reply seq=0: you are peer 9",
        "identity seq=1: peer 2 at 10.20.0.1 is \"x\"",
        "identity seq=2: peer 5 at 10.20.0.4 is \"x\"",
        "identity seq=3: peer 7 at 10.20.0.6 is \"x\"",
    ];
    assert_eq!(all_message_texts(&packets), expected, "only connected peers with a name");
    assert!(packets.iter().all(|packet| packet.to == address(8)));
}

/// T-51: the caller gets the password unchanged.
#[test]
fn a_request_carries_its_password_to_the_caller() {
    // A NUL ends a text.
    for (password, received) in [("naïve", "naïve"), ("", ""), ("se\0cret", "se")] {
        let mut client = Endpoint::connect(
            Config { address: Ipv4Addr::LOCALHOST, ..unencrypted() },
            Connect { host: HOST, nonce: 7, password },
            START,
        );
        let mut buffer = [0; 512];
        let sent = client.poll_transmit(&mut buffer, START).expect("a request");
        assert_eq!(sent.to, HOST);
        let mut host = TestEndpoint::host(unencrypted());
        host.receive_from(address(1), &buffer[..sent.len], START);
        let asked = Event::Request { from: address(1), address: Ipv4Addr::LOCALHOST };
        assert_eq!(host.events(), [(asked, utf16(received))]);
    }
}

/// Admits the `n`th forged client and acknowledges the reply in its name.
fn admit(host: &mut TestEndpoint, n: u16, now: Time) -> Option<PeerId> {
    host.receive_from(address(n), &connect(u32::from(n)), now);
    let id = host.endpoint.admit(address(n), now).ok()?;
    host.flush(now);
    host.receive_from(address(n), &from_peer(id.0, &[ack(Channel::Control, 0)]), now);
    host.flush(now);
    host.events();
    Some(id)
}

/// T-50: ids grow from 2, 0x5C is omitted, and there are 124.
#[test]
fn ids_go_upward_without_0x5c_and_there_are_124() {
    let mut host = TestEndpoint::host(unencrypted());
    let ids: Vec<u8> = (1..=124).map(|n| admit(&mut host, n, START).expect("a free id").0).collect();
    assert_eq!(ids, (2..=0x7E).filter(|id| *id != 0x5C).collect::<Vec<u8>>());
    assert_eq!(admit(&mut host, 125, START), None);
    assert_eq!(host.endpoint.admit(address(125), START), Err(AdmitError::Full(address(125))));
    assert_eq!(
        host.endpoint.refuse(address(125), BootReason::FULL, START),
        Ok(()),
        "the caller can still tell it why"
    );
    assert!(host.sent_texts(START).contains(&"boot seq=0: unassigned, full".to_owned()));
    assert_eq!(host.endpoint.peers().count(), 124);

    // A lingering id is reused only if no other is free, and then the one that has lingered longest.
    assert_eq!(host.endpoint.boot(PeerId(5), BootReason::KICKED, ms(1000)), Ok(()));
    assert_eq!(host.endpoint.boot(PeerId(4), BootReason::KICKED, ms(1001)), Ok(()));
    assert_eq!(admit(&mut host, 126, ms(1002)), Some(PeerId(5)));
    assert_eq!(admit(&mut host, 127, ms(1002)), Some(PeerId(4)));
    assert_eq!(admit(&mut host, 128, ms(1002)), None);
}

/// T-50: the id of a removed peer is not reused at once.
#[test]
fn freed_id_is_not_reused_at_once() {
    let mut host = TestEndpoint::host(unencrypted());
    for (n, id) in [(1, 2), (2, 3), (3, 4)] {
        assert_eq!(admit(&mut host, n, START), Some(PeerId(id)));
    }
    host.receive_from(address(3), &from_peer(4, &[disconnect(1, 4)]), START);
    host.timeline(START, ms(17_000));
    assert_eq!(host.endpoint.address(PeerId(4)), None);
    assert_eq!(admit(&mut host, 4, ms(17_000)), Some(PeerId(5)));
    // The ids wrap from 126 to 2 and skip those in use.
    for n in 5..125 {
        assert!(admit(&mut host, n, ms(15_000)).is_some());
    }
    assert_eq!(host.endpoint.address(PeerId(0x7E)), Some(address(124)));
    assert_eq!(admit(&mut host, 125, ms(15_000)), Some(PeerId(4)));
}

/// T-50: a host can admit fewer clients.
#[test]
fn host_admits_at_most_max_peers() {
    let mut host = TestEndpoint::host(Config { max_peers: 2, ..unencrypted() });
    assert_eq!(admit(&mut host, 1, START), Some(PeerId(2)));
    assert_eq!(admit(&mut host, 2, START), Some(PeerId(3)));
    assert_eq!(admit(&mut host, 3, START), None);
    let mut host = TestEndpoint::host(Config { max_peers: 1000, ..unencrypted() });
    assert_eq!((1..=130).filter(|n| admit(&mut host, *n, START).is_some()).count(), 124);
}

/// T-50: a leaving peer keeps its id, but does not count against the maximum.
#[test]
fn lingering_peer_does_not_block_admission() {
    let mut host = TestEndpoint::host(Config { max_peers: 2, ..unencrypted() });
    assert_eq!(admit(&mut host, 1, START), Some(PeerId(2)));
    assert_eq!(admit(&mut host, 2, START), Some(PeerId(3)));
    assert_eq!(host.endpoint.boot(PeerId(2), BootReason::KICKED, START), Ok(()));
    assert!(host.endpoint.address(PeerId(2)).is_some(), "the peer lingers");
    assert_eq!(admit(&mut host, 3, START), Some(PeerId(4)));
    assert_eq!(admit(&mut host, 4, START), None);
}

/// T-52: a host has no name unless it announces one; clients that join later get it first.
#[test]
fn host_name_is_sent_to_later_clients() {
    let mut host = TestEndpoint::host(unencrypted());
    let join = |host: &mut TestEndpoint, n: u16| {
        host.receive_from(address(n), &connect(n.into()), START);
        host.endpoint.admit(address(n), START).expect("a free id");
        host.sent_texts(START)
    };
    assert!(join(&mut host, 1).iter().all(|line| !line.contains("identity")));
    let name = utf16("Bridge");
    host.endpoint.announce_name(Text::new(&name).expect("UTF-16LE"), START).expect("a peer is connected");
    let texts = host.sent_texts(START);
    assert_eq!(texts.iter().filter(|line| line.contains("identity")).count(), 1, "{texts:?}");
    let texts = join(&mut host, 2);
    let at = texts.iter().position(|line| line.contains("identity") && line.contains("Bridge"));
    assert!(at > texts.iter().position(|line| line.starts_with("connect")), "{texts:?}");
}

/// T-51, T-53: a request is acknowledged with its reply and not earlier.
///
/// After that, a retransmission is only acknowledged.
#[test]
fn repeated_request_is_only_acknowledged() {
    let mut host = TestEndpoint::host(unencrypted());
    let asked = |host: &mut TestEndpoint| {
        host.events().iter().filter(|(event, _)| matches!(event, Event::Request { .. })).count()
    };
    host.receive_from(address(1), &connect(1), START);
    assert_eq!((host.sent_texts(START), asked(&mut host)), (vec![], 1));
    host.receive_from(address(1), &connect(1), ms(10));
    assert_eq!((host.sent_texts(ms(10)), asked(&mut host)), (vec![], 0));
    assert_eq!(host.endpoint.admit(address(1), ms(20)), Ok(PeerId(2)));
    assert_eq!(host.sent_texts(ms(20)), ["ack control seq=0", "connect reply seq=0: you are peer 2"]);
    host.receive_from(address(1), &connect(1), ms(30));
    assert_eq!((host.sent_texts(ms(30)), asked(&mut host)), (vec!["ack control seq=0".to_owned()], 0));
    assert_eq!(host.counters(PeerId(2)).datagrams_in, 0, "the request counted as a datagram of the peer");
    assert_eq!(host.endpoint.peers().collect::<Vec<_>>(), [PeerId(2)]);
}

/// T-53: a restarted client that is refused leaves the old peer unchanged.
#[test]
fn restart_on_a_full_host_changes_nothing() {
    let mut host = host_with_forged_peer(Config { max_pending_requests: 1, ..unencrypted() });
    host.receive_from(address(9), &connect(9), ms(3000));
    host.flush(ms(3000));
    host.events();
    host.receive_from(address(1), &connect(2), ms(3000));
    let rejected = Event::Rejected { from: address(1), cause: RejectCause::Crowded };
    assert_eq!(host.events(), [(rejected, vec![])]);
    assert_eq!(host.endpoint.peers().collect::<Vec<_>>(), [PeerId(2)]);
    // Its own earlier request does not block it.
    host.receive_from(address(9), &connect(10), ms(3000));
    let asked = Event::Request { from: address(9), address: Ipv4Addr::new(192, 168, 0, 2) };
    assert_eq!(host.events(), [(asked, vec![])]);
}

/// T-52: a name can be announced when a peer is connected; the error tells that.
#[test]
fn announcing_a_name_without_a_peer_is_an_error() {
    let mut client = TestEndpoint::client(unencrypted(), 1, START);
    let identify = |end: &mut TestEndpoint| end.endpoint.announce_name(Text::default(), START);
    assert_eq!(
        identify(&mut client),
        Err(SendError::UnknownPeer(PeerId::HOST)),
        "the client has not joined yet"
    );
    let mut client = client_with_forged_host(unencrypted());
    assert_eq!(identify(&mut client), Ok(()));
    client.endpoint.leave(START);
    assert_eq!(identify(&mut client), Err(SendError::Leaving(PeerId::HOST)));
    let mut host = TestEndpoint::host(unencrypted());
    assert_eq!(identify(&mut host), Ok(()), "clients that join later get it");
    host.endpoint.leave(START);
    assert_eq!(identify(&mut host), Err(SendError::Leaving(PeerId::HOST)));
    let errors =
        [AdmitError::NoRequest(address(1)), AdmitError::Full(address(1))].map(|error| error.to_string());
    assert!(errors.iter().all(|text| text.contains(&address(1).to_string())), "{errors:?}");
    assert!(BootError(PeerId(3)).to_string().contains("peer 3"), "{}", BootError(PeerId(3)));
}

/// T-53: a request with another nonce before the decision only replaces the first.
#[test]
fn another_nonce_before_the_decision_replaces_the_request() {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    host.receive_from(address(1), &connect(2), START);
    assert!(host.events().iter().all(|(event, _)| matches!(event, Event::Request { .. })));
    assert_eq!(host.endpoint.admit(address(1), START), Ok(PeerId(2)));
    assert_eq!(host.endpoint.peers().count(), 1);
}

/// T-53: several players share an IPv4 address; their ports distinguish them.
#[test]
fn several_players_share_an_address() {
    let mut net = TestNet::joined(&unencrypted(), 0);
    let place = |port| SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), port);
    for (n, port) in [(0, 1000), (1, 1001), (2, 64_000)] {
        net.clients.push(TestEndpoint::client_at(unencrypted(), place(port), 5, net.now));
        net.deliver_all();
        assert_eq!(net.host.endpoint.admit(place(port), net.now), Ok(PeerId(2 + n)));
        net.deliver_all();
    }
    net.host.events();
    for n in 0..3_u8 {
        net.clients[usize::from(n)].events();
        net.clients[usize::from(n)].send(PeerId::HOST, &[n], net.now);
        net.host.send(PeerId(2 + n), &[10 + n], net.now);
    }
    net.deliver_all();
    let received = |peer, byte| (Event::Received { peer: PeerId(peer), reliable: true }, vec![byte]);
    assert_eq!(net.host.events(), [received(2, 0), received(3, 1), received(4, 2)]);
    for n in 0..3_u8 {
        assert_eq!(net.clients[usize::from(n)].received(), [[10 + n]]);
    }
    net.clients[1].endpoint.leave(net.now);
    // The last message of the client is acknowledged after 20 ms (T-60), and its disconnect waits for that.
    // Then the host waits for an answer to its probes (T-57).
    net.run(net.now + Duration::from_secs(2));
    assert_eq!(net.host.left_peers(), [(PeerId(3), LeaveReason::Disconnected)]);
    assert_eq!(net.host.endpoint.peers().count(), 2);
}

/// T-51, T-69: game data that overtakes the connect reply is not lost: it is delivered after the reply.
#[test]
fn data_that_overtakes_the_connect_reply_is_delivered_after_it() {
    let mut net = TestNet::joined(&unencrypted(), 0);
    net.clients.push(TestEndpoint::client(unencrypted(), 1, START));
    net.deliver_all();
    net.host.endpoint.admit(address(1), START).expect("a free id");
    let expected = ["ack control seq=0", "connect reply seq=0: you are peer 2"];
    assert_eq!(net.host.sent_texts(START), expected, "this datagram is lost");
    net.host.send(PeerId(2), &pattern(1, 407), START);
    net.host.send(PeerId(2), &pattern(2, 900), START);
    let packets = net.host.flush(START);
    assert!(packets.len() > 2);
    packets.iter().for_each(|packet| net.deliver(packet));
    net.run(ms(3000));
    assert_eq!(net.clients[0].received(), [pattern(1, 407), pattern(2, 900)]);
    assert_eq!(net.host.snapshot(PeerId(2), ms(3000)).unacknowledged, []);
}

/// T-51: a sender without an id may only send a connect, a disconnect and ACKs.
#[test]
fn sender_without_id_may_only_connect_or_disconnect() {
    let mut host = TestEndpoint::host(unencrypted());
    let request = Body::ConnectRequest { address: Ipv4Addr::LOCALHOST, nonce: 1, password: Text::default() };
    let mixed = [control(0, request), reliable(0, b"data"), identity(1, 0xFF, &[]), Message::Keepalive];
    host.receive_from(address(1), &from_peer(0xFF, &mixed), START);
    assert_eq!(host.sent_texts(START), [""; 0]);
    let events: Vec<Event> = host.events().into_iter().map(|(event, _)| event).collect();
    assert!(matches!(events[..], [Event::Request { .. }]), "{events:?}");
    // The client disconnects before the decision.
    host.receive_from(address(1), &from_peer(0xFF, &[disconnect(1, 0xFF)]), START);
    assert_eq!(host.sent_texts(START), ["ack control seq=1"]);
    assert_eq!(host.endpoint.admit(address(1), START), Err(AdmitError::NoRequest(address(1))));
    assert_eq!(host.left_peers(), []);
}

/// T-58: a client accepts datagrams only from its host's address.
#[test]
fn client_accepts_datagrams_only_from_its_host() {
    let mut client = client_with_forged_host(unencrypted());
    client.receive_from(address(7), &from_peer(1, &[boot(1, BootReason::KICKED, 2)]), START);
    client.receive_from(HOST, &from_peer(3, &[boot(1, BootReason::KICKED, 2)]), START);
    assert_eq!(client.left_peers(), []);
    let rejected = client.endpoint.rejected();
    assert_eq!(
        (rejected.count(RejectCause::WrongAddress), rejected.count(RejectCause::UnknownSender)),
        (1, 1)
    );
    assert!(!client.endpoint.is_closed());
}
