//! The end of a connection: refused, booted, left.

use std::time::Duration;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{
    AdmitError, BootError, DeliveryMode, Engine, Event, LeaveReason, RejectCause, SendError,
};

use crate::net::{
    HOST, START, TestEndpoint, TestNet, address, all_message_texts, boot, client_with_forged_host, connect,
    disconnect, from_peer, host_with_forged_peer, ms, pattern, reliable, unencrypted, unreliable,
};

/// The time for which a client acknowledges the end of its session.
const CLIENT_LINGER: Duration = Duration::from_millis(1500);

const REASONS: [BootReason; 6] = [
    BootReason::DEFAULT,
    BootReason::TIMED_OUT,
    BootReason::WRONG_PASSWORD,
    BootReason::FULL,
    BootReason::KICKED,
    BootReason::BANNED,
];

/// T-54, T-59: a refused client gets the reason, in a boot without a target, and is closed.
#[test]
fn refused_client_receives_the_reason() {
    for reason in REASONS {
        let mut net = TestNet::joined(&unencrypted(), 0);
        net.clients.push(TestEndpoint::client(unencrypted(), 1, START));
        let request = net.clients[0].flush(START);
        net.deliver(&request[0]);
        net.host.events();
        assert_eq!(net.host.endpoint.refuse(address(1), reason, START), Ok(()));
        assert_eq!(
            net.host.endpoint.refuse(address(1), reason, START),
            Err(AdmitError::NoRequest(address(1))),
            "once is enough"
        );
        assert_eq!(net.host.endpoint.admit(address(1), START), Err(AdmitError::NoRequest(address(1))));
        let answer = net.host.flush(START);
        let head = [1, 2, 0x01, 0, 0, 0x02];
        let boot = [0x04, 7, 0xC0, 0, 0, reason.0.cast_unsigned(), 0xFF];
        assert_eq!(answer[0].bytes, [&head[..], &boot].concat());
        net.deliver(&answer[0]);
        assert_eq!(net.clients[0].left_peers(), [(PeerId::UNASSIGNED, LeaveReason::Booted(reason))]);
        let thanks = net.clients[0].flush(START);
        assert_eq!(all_message_texts(&thanks), ["ack control seq=0"]);
        assert!(net.clients[0].endpoint.is_closed(), "nobody repeats a refusal");
        net.deliver(&thanks[0]);
        let informed = Event::Rejected { from: address(1), cause: RejectCause::NotAllowed };
        assert_eq!(net.host.events(), [(informed, vec![])], "a refused client was a peer");
        assert!(net.host.endpoint.is_closed());
    }
}

/// T-54, T-75: a refusal is not retransmitted by itself.
///
/// A client that has lost it has no ACK either. So it retransmits its request, and the caller decides
/// again.
#[test]
fn refusal_is_sent_again_for_a_repeated_request() {
    let mut host = TestEndpoint::host(unencrypted());
    for at in [0, 1000, 2000] {
        host.receive_from(address(1), &connect(1), ms(at));
        assert_eq!(host.endpoint.refuse(address(1), BootReason::BANNED, ms(at)), Ok(()));
        assert_eq!(host.sent_texts(ms(at)), ["ack control seq=0", "boot seq=0: unassigned, banned"]);
        assert_eq!(host.timeline(ms(at), ms(at + 999)), [""; 0]);
    }
    assert!(host.endpoint.is_closed());
}

/// T-59: a booted client gets the reason and is closed; all other clients are informed.
#[test]
fn boot_reason_reaches_every_client() {
    for reason in REASONS {
        let mut net = TestNet::joined_with_names(&unencrypted(), 3);
        assert_eq!(net.host.endpoint.boot(PeerId(3), reason, net.now), Ok(()));
        assert_eq!(
            net.host.endpoint.boot(PeerId(3), reason, net.now),
            Err(BootError(PeerId(3))),
            "it is leaving already"
        );
        assert_eq!(net.host.endpoint.boot(PeerId(9), reason, net.now), Err(BootError(PeerId(9))));
        let refused = net.host.endpoint.send(PeerId(3), b"x", DeliveryMode::Reliable, net.now);
        assert_eq!(refused, Err(SendError::Leaving(PeerId(3))));
        assert_eq!(net.host.left_peers(), [(PeerId(3), LeaveReason::Booted(reason))]);
        net.deliver_all();
        for client in &mut net.clients {
            assert_eq!(client.left_peers(), [(PeerId(3), LeaveReason::Booted(reason))]);
        }
        net.run(net.now + CLIENT_LINGER);
        let closed: Vec<bool> = net.clients.iter().map(|client| client.endpoint.is_closed()).collect();
        assert_eq!(closed, [false, true, false]);
        assert_eq!(net.host.endpoint.peers().count(), 2);
        net.run(ms(15_000));
        assert_eq!(net.host.endpoint.address(PeerId(3)), None);
    }
}

/// T-59: only a host can boot.
#[test]
fn a_client_cannot_boot() {
    let mut client = client_with_forged_host(unencrypted());
    assert_eq!(client.endpoint.boot(PeerId::HOST, BootReason::KICKED, START), Err(BootError(PeerId::HOST)));
    assert_eq!(client.endpoint.boot(PeerId(2), BootReason::KICKED, START), Err(BootError(PeerId(2))));
    assert_eq!(client.sent_texts(START), [""; 0]);
}

/// T-59: a boot or disconnect that names the client, the host or 0xFF ends the session.
///
/// Any other id names a peer that is gone.
#[test]
fn boot_of_self_host_or_unassigned_ends_the_session() {
    for (named, ends) in [(2, true), (1, true), (0xFF, true), (3, false), (0x7E, false)] {
        let farewells = [
            (boot(1, BootReason::KICKED, named), LeaveReason::Booted(BootReason::KICKED)),
            (disconnect(1, named), LeaveReason::Disconnected),
        ];
        for (message, reason) in farewells {
            let mut client = client_with_forged_host(unencrypted());
            client.receive_from(HOST, &from_peer(1, &[message]), ms(100));
            assert_eq!(client.left_peers(), [(PeerId(named), reason)]);
            assert_eq!(client.sent_texts(ms(100)), ["ack control seq=1"]);
            client.timeline(ms(100), ms(1600));
            assert_eq!(client.endpoint.is_closed(), ends, "{message}");
        }
    }
}

/// T-57: the disconnect of a client is acknowledged with a probe, and the client is closed at once.
///
/// It is relayed when the second probe was not answered.
#[test]
fn client_leave_is_relayed_to_other_clients() {
    let mut net = TestNet::joined_with_names(&unencrypted(), 3);
    net.clients[1].endpoint.leave(net.now);
    assert_eq!(net.clients[1].left_peers(), [(PeerId::HOST, LeaveReason::Local)]);
    let refused = net.clients[1].endpoint.send(PeerId::HOST, b"x", DeliveryMode::Reliable, net.now);
    assert_eq!(refused, Err(SendError::Leaving(PeerId::HOST)));
    let notice = net.clients[1].flush(net.now);
    assert_eq!(notice[0].bytes, [3, 1, 0x05, 0x0A, 0xC0, 2, 0, 3, 10, 20, 0, 2]);
    assert!(!net.clients[1].endpoint.is_closed());
    net.deliver(&notice[0]);
    let probe = net.host.flush(net.now);
    let texts: Vec<_> = probe.iter().map(|packet| (packet.to, packet.message_texts())).collect();
    let [(to, texts)] = &texts[..] else { panic!("{texts:?}") };
    assert_eq!((*to, texts[0].as_str(), texts.len()), (address(2), "ack control seq=2", 3));
    probe.iter().for_each(|packet| net.deliver(packet));
    net.deliver_all();
    assert!(net.clients[1].endpoint.is_closed());
    assert_eq!(net.host.left_peers(), [], "it has answered the first probe");
    net.run(net.now + Duration::from_millis(1749));
    assert_eq!(net.host.left_peers(), []);
    net.now = net.now + Duration::from_millis(11);
    net.host.endpoint.handle_timeout(net.now);
    let relayed = net.host.flush(net.now);
    let sent: Vec<_> = relayed.iter().map(|packet| (packet.to, packet.message_texts().concat())).collect();
    let informed = "disconnect seq=4: peer 3 at 10.20.0.2".to_owned();
    assert_eq!(sent, [(address(1), informed.clone()), (address(3), informed)]);
    relayed.iter().for_each(|packet| net.deliver(packet));
    net.deliver_all();
    assert_eq!(net.host.left_peers(), [(PeerId(3), LeaveReason::Disconnected)]);
    assert_eq!(net.clients[0].left_peers(), [(PeerId(3), LeaveReason::Disconnected)]);
    assert_eq!(net.clients[2].left_peers(), [(PeerId(3), LeaveReason::Disconnected)]);
    assert_eq!(net.clients[1].left_peers(), []);
}

/// T-52, T-59: a client without a name is unknown to the others, so its departure is not relayed.
///
/// A booted client is informed itself.
#[test]
fn departure_of_an_unnamed_peer_is_not_relayed() {
    let gone = |leave: &dyn Fn(&mut TestNet)| {
        let mut net = TestNet::joined_with_names(&unencrypted(), 1);
        net.join(&unencrypted(), 2);
        leave(&mut net);
        net.run(ms(62_000));
        assert_eq!(net.clients[0].events(), []);
        assert_eq!(net.host.endpoint.address(PeerId(3)), None);
        net.clients[1].left_peers()
    };
    let boot = |net: &mut TestNet| {
        net.host.endpoint.boot(PeerId(3), BootReason::FULL, net.now).expect("the peer is connected");
    };
    assert_eq!(gone(&boot), [(PeerId(3), LeaveReason::Booted(BootReason::FULL))]);
    assert_eq!(gone(&|net| net.clients[1].endpoint.leave(net.now)), [(PeerId::HOST, LeaveReason::Local)]);
    let deaf = |net: &mut TestNet| net.clients[1].address = address(9);
    assert_eq!(gone(&deaf), [(PeerId::HOST, LeaveReason::Silent)]);
}

/// T-60: no more data is sent to a leaving peer, so the ACK of its disconnect is not delayed.
#[test]
fn disconnect_notice_is_acknowledged_without_delay() {
    let mut host = host_with_forged_peer(unencrypted());
    host.send_as(PeerId(2), b"news", DeliveryMode::Unreliable, ms(100));
    host.flush(ms(100));
    host.receive_from(address(1), &from_peer(2, &[reliable(0, b"x")]), ms(110));
    assert_eq!(host.sent_texts(ms(110)), [""; 0], "the ACK waits for data");
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), ms(111));
    let sent = host.sent_texts(ms(111));
    assert_eq!([&sent[0], &sent[3]], ["ack control seq=1", "ack game seq=0"], "{sent:?}");
}

/// T-57, T-66: control messages overtake data, but a disconnect does not.
///
/// All earlier messages are delivered first, despite loss.
#[test]
fn client_drains_its_queue_before_the_disconnect_notice() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    let sent = [pattern(1, 10), pattern(2, 1500), pattern(3, 10)];
    for payload in &sent {
        net.clients[0].send(PeerId::HOST, payload, net.now);
    }
    net.clients[0].endpoint.leave(net.now);
    let lost = net.clients[0].flush(net.now);
    assert!(
        all_message_texts(&lost).iter().all(|line| line.starts_with("data")),
        "{:?}",
        all_message_texts(&lost)
    );
    net.run(net.now + Duration::from_secs(3));
    let events = net.host.events();
    let payloads: Vec<_> = events.iter().take(3).map(|(_, payload)| payload.clone()).collect();
    assert_eq!(payloads, sent);
    assert_eq!(events[3].0, Event::Left { peer: PeerId(2), reason: LeaveReason::Disconnected });
    assert!(net.clients[0].endpoint.is_closed());
}

/// T-57, T-66: stock does not delay its disconnect, so its last messages are behind it in the same
/// datagram.
#[test]
fn data_after_a_disconnect_notice_is_delivered_first() {
    let last_words = [reliable(0, b"bye"), unreliable(b"so long")];
    let left = |peer, reason| (Event::Left { peer, reason }, vec![]);
    let received = |peer, reliable, sent: &[u8]| (Event::Received { peer, reliable }, sent.to_vec());
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[&[disconnect(1, 2)], &last_words[..]].concat()), ms(100));
    let peer = PeerId(2);
    let gone = left(peer, LeaveReason::Disconnected);
    assert_eq!(host.events(), [received(peer, true, b"bye"), received(peer, false, b"so long")]);
    host.timeline(ms(100), ms(1610));
    assert_eq!(host.events(), [gone]);
    host.receive_from(address(1), &from_peer(2, &[reliable(1, b"too late")]), ms(1700));
    assert!(!host.events().iter().any(|(event, _)| matches!(event, Event::Received { .. })));
    for (message, reason) in [
        (boot(1, BootReason::KICKED, 2), LeaveReason::Booted(BootReason::KICKED)),
        (disconnect(1, 1), LeaveReason::Disconnected),
    ] {
        let mut client = client_with_forged_host(unencrypted());
        let twice = [&[message, boot(2, BootReason::BANNED, 2)], &last_words[..]].concat();
        client.receive_from(HOST, &from_peer(1, &twice), ms(100));
        let named = if reason == LeaveReason::Disconnected { PeerId::HOST } else { peer };
        let sent = [received(PeerId::HOST, true, b"bye"), received(PeerId::HOST, false, b"so long")];
        assert_eq!(client.events(), [&sent[..], &[left(named, reason)]].concat(), "the first reason counts");
    }
}

/// T-57: the same for a host that leaves, for each of its peers.
#[test]
fn host_drains_its_queue_before_the_disconnect_notice() {
    let mut net = TestNet::joined(&unencrypted(), 2);
    net.host.send(PeerId(2), b"last words", net.now);
    net.host.endpoint.leave(net.now);
    let first = all_message_texts(&net.host.flush(net.now));
    assert_eq!(first.iter().filter(|line| line.starts_with("disconnect")).count(), 1, "{first:?}");
    net.run(net.now + Duration::from_secs(3));
    let received = Event::Received { peer: PeerId::HOST, reliable: true };
    let left = Event::Left { peer: PeerId::HOST, reason: LeaveReason::Disconnected };
    assert_eq!(net.clients[0].events(), [(received, b"last words".to_vec()), (left, vec![])]);
    assert!(net.host.endpoint.is_closed());
}

/// T-57: a leaving host informs every client, and is closed as soon as all have acknowledged that.
#[test]
fn host_leave_is_sent_to_every_client() {
    let mut net = TestNet::joined(&unencrypted(), 3);
    net.host.receive_from(address(7), &connect(7), net.now);
    net.host.events();
    net.host.endpoint.leave(net.now);
    let local: Vec<_> = (2..5).map(|id| (PeerId(id), LeaveReason::Local)).collect();
    assert_eq!(net.host.left_peers(), local);
    assert!(!net.host.endpoint.is_closed());
    let goodbyes = net.host.flush(net.now);
    assert_eq!(goodbyes.len(), 3);
    assert!(all_message_texts(&goodbyes).iter().all(|line| line.ends_with("host at 10.10.10.1")));
    goodbyes.iter().for_each(|packet| net.deliver(packet));
    net.deliver_all();
    assert!(net.host.endpoint.is_closed());
    net.run(net.now + CLIENT_LINGER);
    for client in &mut net.clients {
        assert_eq!(client.left_peers(), [(PeerId::HOST, LeaveReason::Disconnected)]);
        assert!(client.endpoint.is_closed());
    }
    assert_eq!(net.host.endpoint.next_timeout(), None);
}

/// T-57: a leaving host admits no client.
#[test]
fn leaving_host_ignores_requests() {
    let mut host = host_with_forged_peer(unencrypted());
    host.endpoint.leave(START);
    host.flush(START);
    host.events();
    host.receive_from(address(2), &connect(2), START);
    assert_eq!(host.endpoint.rejected().count(RejectCause::NotAllowed), 1);
    assert!(!host.events().iter().any(|(event, _)| matches!(event, Event::Request { .. })));
    host.timeline(START, ms(15_000));
    assert!(host.endpoint.is_closed());
}

/// T-51: a client that leaves before admission sends no disconnect.
#[test]
fn leaving_before_admission_is_immediate() {
    let mut client = TestEndpoint::client(unencrypted(), 1, START);
    client.flush(START);
    client.endpoint.leave(ms(100));
    assert_eq!(client.left_peers(), [(PeerId::HOST, LeaveReason::Local)]);
    assert!(client.endpoint.is_closed());
    assert_eq!(client.timeline(ms(100), ms(60_000)), [""; 0]);
}

/// T-57: a leaving host does not wait for duplicates from peers that have left before.
#[test]
fn leaving_host_does_not_wait_for_lingering_peers() {
    let mut net = TestNet::joined(&unencrypted(), 2);
    net.clients[0].endpoint.leave(net.now);
    net.run(ms(2000));
    assert_eq!(net.host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
    net.now = ms(2500);
    net.host.endpoint.leave(net.now);
    net.deliver_all();
    assert!(net.host.endpoint.is_closed());
}
