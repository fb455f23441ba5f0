//! T-80: proofs of addresses, ids bound to clients, and goodbyes to the server.

use std::net::Ipv4Addr;

use bcnet_lab::Rng;
use bcnet_proxy::{DatagramTarget, OutboundBytes, Proxy, ProxyConfig, ProxyEvent, RefusalReason};
use bcnet_transport::ProofPolicy;
use bcnet_transport::cookie_message;
use bcnet_transport::wire::{Ack, Body, Channel, Control, Message, MessageId, PeerId, Role, Seq, Text};

use crate::clients::{
    ack_newcomer_cookie, assign_id, client, cookie_in, events, join, join_verified, pool, send,
};
use crate::{
    WireAndPlaintext, ack, at, boot, connect, connect_reply, data, disconnect, message_texts, texts,
};

fn new_proxy(heal: bool) -> Proxy {
    Proxy::new(ProxyConfig { heal, sources: pool(8), drop_malformed: heal, ..ProxyConfig::default() })
}

fn control_ack(seq: u16) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { channel: Channel::Control, seq: Seq(seq), fragment: None }))
}

fn identity(peer: PeerId, seq: u16) -> Message<'static> {
    let name = Text::new(&[0x41, 0]).expect("UTF-16LE");
    Message::Control(Control::new(Seq(seq), Body::Identity { peer, address: Ipv4Addr::LOCALHOST, name }))
}

/// Returns the texts of the messages of all datagrams that the proxy itself sends to the server now.
fn transmissions(proxy: &mut Proxy, millis: u64) -> Vec<(DatagramTarget, PeerId, Vec<String>)> {
    let mut sent = Vec::new();
    while let Some((target, bytes)) = proxy.poll_transmit(at(millis)) {
        let wire = bytes.to_wire();
        if matches!(target, DatagramTarget::Server(_)) {
            sent.push((target, PeerId(wire[0]), message_texts(&wire)));
        }
    }
    sent
}

/// Lets the server acknowledge the goodbyes that the proxy sends now. Returns their number.
pub(crate) fn answer_goodbyes(proxy: &mut Proxy, millis: u64) -> usize {
    let sent = transmissions(proxy, millis);
    let done = WireAndPlaintext::new(PeerId::HOST, &[control_ack(1)]);
    for (target, ..) in &sent {
        let DatagramTarget::Server(source) = target else { panic!("{sent:?}") };
        proxy.handle_server(*source, done.inbound(Role::Host), at(millis));
    }
    sent.len()
}

#[test]
fn foreign_sender_bytes_are_dropped_and_counted() {
    for heal in [false, true] {
        let mut proxy = new_proxy(heal);
        let own = join_verified(&mut proxy, 1, 0, 0);
        join_verified(&mut proxy, 2, 1, 0);
        let (mut wrong, mut malformed) = (0, 0);
        for sender in (0..=255).map(PeerId).filter(|id| *id != own && *id != PeerId::GAMESPY) {
            for message in [data(0), disconnect(sender), disconnect(PeerId(3)), ack(1)] {
                assert_eq!(
                    send(&mut proxy, 1, &WireAndPlaintext::new(sender, &[message]), 10),
                    None,
                    "{sender}"
                );
                wrong += 1;
            }
            assert_eq!(send(&mut proxy, 1, &WireAndPlaintext::from_wire(&[sender.0, 9, 9, 9]), 10), None);
            malformed += 1;
        }
        let count = |why| proxy.refused(why);
        let others = count(RefusalReason::NotConnected) + count(RefusalReason::Malformed);
        assert_eq!(count(RefusalReason::ForeignId) + others, wrong + malformed);
        assert!(count(RefusalReason::ForeignId) >= wrong - 4, "only the sender 0xFF has other reasons");
        assert!(send(&mut proxy, 1, &WireAndPlaintext::new(own, &[data(0)]), 11).is_some());
    }
}

/// A stock host obeys the id in a control message, whoever sends it.
#[test]
fn control_messages_about_others_are_dropped() {
    for heal in [false, true] {
        let mut proxy = new_proxy(heal);
        let own = join_verified(&mut proxy, 1, 0, 0);
        let request =
            Body::ConnectRequest { address: Ipv4Addr::LOCALHOST, nonce: 9, password: Text::default() };
        let hostile = [
            disconnect(PeerId(3)),
            disconnect(PeerId::HOST),
            disconnect(PeerId::UNASSIGNED),
            identity(PeerId(3), 1),
            boot(PeerId(3)),
            boot(own),
            boot(PeerId::UNASSIGNED),
            Message::Control(Control::new(Seq(1), request)),
        ];
        for message in hostile {
            let sent = send(&mut proxy, 1, &WireAndPlaintext::new(own, &[data(0), message]), 10);
            assert_eq!(sent, None, "{message}");
            let unassigned = WireAndPlaintext::new(PeerId::UNASSIGNED, &[message, data(0)]);
            assert_eq!(send(&mut proxy, 1, &unassigned, 10), None, "{message}");
        }
        assert!(proxy.refused(RefusalReason::ForeignId) >= 8);
        let honest = WireAndPlaintext::new(own, &[identity(own, 1), data(0)]);
        assert!(send(&mut proxy, 1, &honest, 11).is_some());
    }
}

/// A stock host takes the bytes behind the last field of a control message for the next message.
#[test]
fn messages_hidden_behind_a_control_message_are_dropped_with_malformed_ones() {
    let mut tail = [0; 16];
    let len = {
        let mut writer = bcnet_transport::wire::Writer::new(&mut tail, PeerId(2));
        assert!(writer.push(&disconnect(PeerId(3))));
        writer.finish().expect("a message").len()
    };
    for (drop_malformed, expected) in [(false, 0), (true, 2)] {
        let mut proxy = Proxy::new(ProxyConfig { drop_malformed, ..ProxyConfig::default() });
        let own = join_verified(&mut proxy, 1, 0, 0);
        let Message::Control(control) = identity(own, 1) else { panic!("control") };
        let with_tail = Message::Control(Control { tail: &tail[2..len], ..control });
        let unreliable = Message::Control(Control { reliable: false, ..control });
        for message in [with_tail, unreliable] {
            send(&mut proxy, 1, &WireAndPlaintext::new(own, &[message]), 10);
        }
        assert_eq!(proxy.refused(RefusalReason::Malformed), expected);
    }
}

#[test]
fn address_of_another_source_in_a_request_is_refused() {
    let mut proxy = new_proxy(true);
    join_verified(&mut proxy, 1, 0, 0);
    let body = Body::ConnectRequest { address: pool(8)[0], nonce: 5, password: Text::default() };
    let request = WireAndPlaintext::new(PeerId::UNASSIGNED, &[Message::Control(Control::new(Seq(0), body))]);
    let output = proxy.handle_client(client(2), request.inbound(Role::Client), at(1));
    assert_eq!((output.forward, output.refusal), (None, Some(RefusalReason::ForeignId)));
}

/// The server gets neither the ACK of the cookie nor anything else before it.
#[test]
fn server_gets_nothing_before_the_proof_and_no_cookie_ack() {
    for heal in [false, true] {
        let mut proxy = new_proxy(heal);
        join(&mut proxy, 1, 0);
        let cookie = assign_id(&mut proxy, 0, PeerId(2), 1).expect("a cookie");
        assert!(cookie >= 0x4000, "outside the receive window");
        for message in [data(0), identity(PeerId(2), 1), disconnect(PeerId(2)), control_ack(0)] {
            let datagram = WireAndPlaintext::new(PeerId(2), &[message]);
            let output = proxy.handle_client(client(1), datagram.inbound(Role::Client), at(2));
            assert_eq!(output.forward, None, "{message}");
        }
        let proof = [control_ack(0), ack(cookie), identity(PeerId(2), 1)];
        let sent = send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &proof), 3).expect("forwarded");
        assert_eq!(
            (sent.0, message_texts(&sent.1)),
            (DatagramTarget::Server(0), texts(&[proof[0], proof[2]]))
        );
        // Stock repeats its ACKs.
        assert_eq!(send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[ack(cookie)]), 700), None);
        let more = [ack(cookie), data(0)];
        let sent = send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &more), 1_400).expect("forwarded");
        assert_eq!(message_texts(&sent.1), texts(&more[1..]));
        // Later the number may be that of a message of the server.
        assert!(send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[ack(cookie)]), 36_000).is_some());
    }
}

#[test]
fn unverified_client_gets_a_goodbye_at_the_server() {
    for heal in [false, true] {
        let mut proxy = new_proxy(heal);
        join(&mut proxy, 1, 0);
        assign_id(&mut proxy, 0, PeerId(2), 1).expect("a cookie");
        proxy.handle_timeout(at(2_700));
        assert!(transmissions(&mut proxy, 2_700).is_empty());
        let due = proxy.next_timeout().expect("a deadline");
        assert!(due <= at(2_900), "{due:?}");
        proxy.handle_timeout(due);
        let goodbye = Message::Control(Control::new(
            Seq(1),
            Body::Disconnect { peer: PeerId(2), address: *client(1).ip() },
        ));
        let expected = (DatagramTarget::Server(0), PeerId(2), texts(&[control_ack(0), goodbye]));
        let mut count = 0;
        for millis in 2_700..12_000 {
            proxy.handle_timeout(at(millis));
            for sent in transmissions(&mut proxy, millis) {
                assert_eq!(sent, expected);
                count += 1;
            }
        }
        assert_eq!(count, 6, "a bounded number of copies");
        assert_eq!((proxy.goodbyes(), proxy.sources().count(), proxy.next_timeout()), (1, 0, None));
    }
}

/// The offer is repeated for a client that lost it, within the byte limits of an unverified client.
#[test]
fn offer_is_repeated_within_the_byte_limits() {
    let mut proxy = new_proxy(false);
    let request = connect(1);
    join(&mut proxy, 1, 0);
    let reply = connect_reply(PeerId(2));
    let first = proxy.handle_server(0, reply.inbound(Role::Host), at(1)).forward;
    let mut bytes = first.expect("an offer").1.as_slice().len();
    let mut times = Vec::new();
    for millis in 1..2_700 {
        while let Some((target, datagram)) = proxy.poll_transmit(at(millis)) {
            assert_eq!(target, DatagramTarget::Client(client(1)));
            bytes += datagram.as_slice().len();
            times.push((millis, cookie_in(&datagram.to_wire()).is_some()));
        }
    }
    assert_eq!(times, [(401, true), (801, true)]);
    assert!(bytes <= 3 * request.wire.len(), "{bytes}");
}

#[test]
fn acknowledged_goodbye_frees_the_source() {
    let mut proxy = new_proxy(true);
    join(&mut proxy, 1, 0);
    assign_id(&mut proxy, 0, PeerId(2), 1).expect("a cookie");
    proxy.handle_timeout(at(2_750));
    assert_eq!((transmissions(&mut proxy, 2_750).len(), proxy.players().count()), (1, 0));
    let other = WireAndPlaintext::new(PeerId::HOST, &[control_ack(0)]);
    proxy.handle_server(0, other.inbound(Role::Host), at(2_760));
    assert_eq!(proxy.sources().count(), 1);
    let done = WireAndPlaintext::new(PeerId::HOST, &[control_ack(1)]);
    assert_eq!(proxy.handle_server(0, done.inbound(Role::Host), at(2_770)).forward, None);
    assert_eq!((proxy.sources().count(), proxy.next_timeout()), (0, None));
    assert!(matches!(
        events(&mut proxy).as_slice(),
        [.., ProxyEvent::Closed { verified: false, player: true, .. }]
    ));
}

/// The id of a lost reply is known only when the server repeats the reply.
#[test]
fn goodbye_waits_for_a_late_id() {
    let mut proxy = new_proxy(true);
    join(&mut proxy, 1, 0);
    proxy.handle_timeout(at(2_750));
    assert!(transmissions(&mut proxy, 3_000).is_empty());
    let reply = connect_reply(PeerId(9));
    assert_eq!(proxy.handle_server(0, reply.inbound(Role::Host), at(6_000)).forward, None);
    let sent = transmissions(&mut proxy, 6_000);
    assert!(matches!(sent.as_slice(), [(DatagramTarget::Server(0), PeerId(9), _)]), "{sent:?}");
}

#[test]
fn two_connects_without_proof_are_under_way_at_most() {
    let mut proxy = new_proxy(true);
    for from in 1..=2 {
        join(&mut proxy, from, 0);
    }
    for from in 3..100 {
        let request = connect(from.into());
        let output = proxy.handle_client(client(from), request.inbound(Role::Client), at(1));
        assert_eq!((output.forward, output.refusal), (None, Some(RefusalReason::Busy)));
        let (to, bytes) = output.answer.expect("a cookie");
        assert_eq!((to, bytes.as_slice().len()), (DatagramTarget::Client(client(from)), 7));
    }
    assert_eq!(proxy.sources().count(), 2, "no state is kept of the others");
    events(&mut proxy);
    // A verified client makes room.
    let cookie = assign_id(&mut proxy, 1, PeerId(3), 2).expect("a cookie");
    send(&mut proxy, 2, &WireAndPlaintext::new(PeerId(3), &[ack(cookie)]), 3);
    events(&mut proxy);
    join(&mut proxy, 3, 1_001);
    assert_eq!(
        send(&mut proxy, 4, &connect(4), 1_002).map(|(to, _)| to),
        Some(DatagramTarget::Client(client(4)))
    );
    // A goodbye that the server has not acknowledged counts.
    proxy.handle_timeout(at(2_750));
    let output = proxy.handle_client(client(4), connect(4).inbound(Role::Client), at(2_751)).refusal;
    assert_eq!(output, Some(RefusalReason::Busy));
}

/// A thousand requests a second of forged addresses, each three times. A client that acknowledges the cookie of a
/// refusal goes first.
#[test]
fn flood_of_repeated_requests_does_not_block_a_client_that_acks_cookies() {
    let mut proxy = new_proxy(true);
    let (mut rng, honest) = (Rng::new(4), client(200));
    let (mut joined, mut cookie_acks, mut next_id) = (None, 0, 2);
    let mut held = 0;
    for millis in 0..20_000_u64 {
        proxy.handle_timeout(at(millis));
        answer_goodbyes(&mut proxy, millis);
        let forged = std::net::SocketAddrV4::new(
            Ipv4Addr::from(0x0B00_0000 + u32::try_from(rng.between(0, 50_000_000)).expect("small")),
            22101,
        );
        let mut requests = vec![forged; 3];
        if millis >= 5_000 && millis % 1_000 == 0 && joined.is_none() {
            requests.push(honest);
        }
        for from in requests {
            let request = connect(7);
            let output = proxy.handle_client(from, request.inbound(Role::Client), at(millis));
            let forward = output.forward.map(|(to, _)| to);
            let answer = output.answer.map(|(_, bytes)| bytes.to_wire());
            if let Some(DatagramTarget::Server(source)) = forward {
                let id = PeerId(next_id);
                next_id = if next_id >= 80 { 2 } else { next_id + 1 };
                let cookie = assign_id(&mut proxy, source, id, millis).expect("a cookie");
                held += 1;
                if from == honest {
                    let proof = WireAndPlaintext::new(id, &[ack(cookie)]);
                    proxy.handle_client(from, proof.inbound(Role::Client), at(millis));
                    joined = Some(millis);
                }
            } else if let Some(cookie) = answer.filter(|_| from == honest).and_then(|wire| cookie_in(&wire)) {
                let proof = WireAndPlaintext::new(PeerId::UNASSIGNED, &[ack(cookie)]);
                let output = proxy.handle_client(from, proof.inbound(Role::Client), at(millis));
                assert_eq!((output.forward, output.refusal), (None, None));
                cookie_acks += 1;
            }
        }
        events(&mut proxy);
    }
    assert!(joined.is_some_and(|at| at <= 9_000) && cookie_acks > 0, "{joined:?} {cookie_acks}");
    assert!(held <= 2 * 20_000 / 2_750 + 4, "{held}");
}

/// Before a server that asks for the proof itself, the proxy adds no cookie and keeps no ACK.
#[test]
fn cookie_of_the_server_is_enough() {
    for heal in [false, true] {
        let mut proxy = new_proxy(heal);
        join(&mut proxy, 1, 0);
        let id = Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned: PeerId(9) }));
        let offer = WireAndPlaintext::new(PeerId::HOST, &[control_ack(0), id, cookie_message(Seq(0x7777))]);
        let output = proxy.handle_server(0, offer.inbound(Role::Host), at(1));
        assert_eq!(
            output.forward,
            Some((DatagramTarget::Client(client(1)), OutboundBytes::Wire(&offer.wire)))
        );
        assert!(!events(&mut proxy).iter().any(|event| matches!(event, ProxyEvent::Verified { .. })));
        let proof = WireAndPlaintext::new(PeerId(9), &[control_ack(0), ack(0x7777)]);
        let sent = send(&mut proxy, 1, &proof, 2).expect("forwarded");
        assert_eq!(sent, (DatagramTarget::Server(0), proof.wire));
        assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Verified { .. }]));
        // This server holds no slot, so more may be under way.
        for from in 2..8 {
            join(&mut proxy, from, 3);
        }
        proxy.handle_timeout(at(9_999));
        assert_eq!(proxy.goodbyes(), 0);
        proxy.handle_timeout(at(10_003));
        assert_eq!((proxy.goodbyes(), proxy.players().count()), (0, 1));
    }
}

/// A server with `prove = "auto"` admits a client without an ACK while it sees no guesses at ids. The proxy drops these
/// guesses, so it asks for the ACK itself.
#[test]
fn id_alone_does_not_reach_a_server_that_verifies() {
    for heal in [false, true] {
        let mut proxy = new_proxy(heal);
        join(&mut proxy, 1, 0);
        let id = Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned: PeerId(9) }));
        let offer = WireAndPlaintext::new(PeerId::HOST, &[control_ack(0), id, cookie_message(Seq(0x7777))]);
        proxy.handle_server(0, offer.inbound(Role::Host), at(1));
        for message in [identity(PeerId(9), 1), ack(0), Message::Keepalive] {
            let guess = WireAndPlaintext::new(PeerId(9), &[message]);
            let output = proxy.handle_client(client(1), guess.inbound(Role::Client), at(1_500));
            assert_eq!(output.forward, None);
            let answer = output.answer.map(|(to, bytes)| (to, cookie_in(&bytes.to_wire())));
            assert_eq!(answer, Some((DatagramTarget::Client(client(1)), Some(0x7777))));
        }
        let wrong = WireAndPlaintext::new(PeerId(9), &[ack(0x7778)]);
        assert!(send(&mut proxy, 1, &wrong, 1_600).is_some(), "the server counts wrong cookies");
        assert!(!events(&mut proxy).iter().any(|event| matches!(event, ProxyEvent::Verified { .. })));
        let proof = WireAndPlaintext::new(PeerId(9), &[ack(0x7777)]);
        assert!(send(&mut proxy, 1, &proof, 1_700).is_some());
        assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Verified { .. }]));
    }
}

/// With `prove = "id"` the server decides alone.
#[test]
fn client_that_the_server_admits_is_verified() {
    let config = ProxyConfig { heal: true, sources: pool(8), drop_malformed: true, ..ProxyConfig::default() };
    let mut proxy = Proxy::new(ProxyConfig { proof_policy: ProofPolicy::Id, ..config });
    join(&mut proxy, 1, 0);
    let id = Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned: PeerId(9) }));
    let offer = WireAndPlaintext::new(PeerId::HOST, &[control_ack(0), id, cookie_message(Seq(0x7777))]);
    proxy.handle_server(0, offer.inbound(Role::Host), at(1));
    let named = WireAndPlaintext::new(PeerId(9), &[identity(PeerId(9), 1)]);
    assert!(send(&mut proxy, 1, &named, 2).is_some(), "the server decides");
    events(&mut proxy);
    let names = WireAndPlaintext::new(PeerId::HOST, &[identity(PeerId(9), 1), data(0)]);
    assert!(proxy.handle_server(0, names.inbound(Role::Host), at(1_100)).forward.is_some());
    assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Verified { .. }]));
}

#[test]
fn guessed_cookie_makes_a_second_one_necessary() {
    let mut proxy = new_proxy(true);
    join(&mut proxy, 1, 0);
    let cookie = assign_id(&mut proxy, 0, PeerId(2), 1).expect("a cookie");
    assert_eq!(send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[ack(cookie ^ 1)]), 2), None);
    let sent = send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[ack(cookie)]), 3);
    let (to, bytes) = sent.expect("a second cookie");
    let second = cookie_in(&bytes).expect("a cookie");
    assert_eq!(to, DatagramTarget::Client(client(1)));
    assert_eq!(proxy.refused(RefusalReason::Unverified), 1);
    assert!(!events(&mut proxy).iter().any(|event| matches!(event, ProxyEvent::Verified { .. })));
    let both = [ack(cookie), ack(second), data(0)];
    let sent = send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &both), 4).expect("forwarded");
    assert_eq!(message_texts(&sent.1), texts(&both[2..]));
    assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Verified { .. }]));
}

#[test]
fn clients_without_cookie_acks_need_another_policy() {
    for (proof_policy, expected) in [(ProofPolicy::Ack, false), (ProofPolicy::Id, true)] {
        let mut proxy = Proxy::new(ProxyConfig { proof_policy, ..ProxyConfig::default() });
        join(&mut proxy, 1, 0);
        assign_id(&mut proxy, 0, PeerId(2), 1).expect("a cookie");
        send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(2), &[identity(PeerId(2), 1)]), 1_500);
        let is_verified = |event: &ProxyEvent| matches!(event, ProxyEvent::Verified { .. });
        assert_eq!(events(&mut proxy).iter().any(is_verified), expected);
    }
}

/// T-57: a forged disconnect and a forged request after it remove no player, whether it plays or is idle.
#[test]
fn forged_disconnect_at_the_proxy_removes_no_player() {
    for (heal, idle) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut proxy = new_proxy(heal);
        let own = join_verified(&mut proxy, 1, 0, 0);
        let message = if idle { Message::Keepalive } else { data(0) };
        let (alive, request) = (WireAndPlaintext::new(own, &[message]), connect(77));
        for millis in (1_000..60_000).step_by(100) {
            if millis % 5_000 == 0 || !idle {
                assert!(send(&mut proxy, 1, &alive, millis).is_some(), "{millis}");
            }
            for id in (2..127).map(PeerId).filter(|id| *id != PeerId::GAMESPY) {
                send(&mut proxy, 1, &WireAndPlaintext::new(id, &[disconnect(id)]), millis);
            }
            let output = proxy.handle_client(client(1), request.inbound(Role::Client), at(millis));
            assert_eq!(output.forward, None, "{millis}");
            proxy.handle_timeout(at(millis));
        }
        assert_eq!((proxy.players().count(), proxy.goodbyes()), (1, 0));
    }
}

/// T-53: a forged request changes nothing while the player is there. A restarted game comes in.
#[test]
fn request_at_the_address_of_a_player_waits_for_its_silence() {
    let mut proxy = new_proxy(true);
    let own = join_verified(&mut proxy, 1, 0, 0);
    let keepalive = WireAndPlaintext::new(own, &[Message::Keepalive]);
    for millis in (0..60_000).step_by(1_000) {
        if millis % 5_000 == 0 {
            assert!(send(&mut proxy, 1, &keepalive, millis).is_some());
        }
        assert_eq!(send(&mut proxy, 1, &connect(77), millis), None, "{millis}");
    }
    assert_eq!(proxy.refused(RefusalReason::Active), 60);
    // The player's game is restarted. The old player gets a goodbye at the server.
    events(&mut proxy);
    ack_newcomer_cookie(&mut proxy, 1, &connect(78), 67_500);
    let sent = send(&mut proxy, 1, &connect(78), 67_500);
    assert!(matches!(sent, Some((DatagramTarget::Server(1), _))), "{sent:?}");
    let goodbyes = transmissions(&mut proxy, 67_500);
    assert!(
        matches!(goodbyes.as_slice(), [(DatagramTarget::Server(0), id, _)] if *id == own),
        "{goodbyes:?}"
    );
    let cookie = assign_id(&mut proxy, 1, PeerId(9), 67_501).expect("a cookie");
    assert!(
        send(&mut proxy, 1, &WireAndPlaintext::new(PeerId(9), &[ack(cookie), data(0)]), 67_502).is_some()
    );
}

#[test]
fn refused_client_gets_the_refusal_and_holds_no_place() {
    let mut proxy = new_proxy(true);
    for from in 1..=8 {
        join(&mut proxy, from, 0);
        let refusal = WireAndPlaintext::new(PeerId::HOST, &[control_ack(0), boot(PeerId::UNASSIGNED)]);
        let output = proxy.handle_server(u32::from(from) - 1, refusal.inbound(Role::Host), at(1));
        assert_eq!(
            output.forward,
            Some((DatagramTarget::Client(client(from)), OutboundBytes::Wire(&refusal.wire)))
        );
        let leaves = WireAndPlaintext::new(PeerId::UNASSIGNED, &[disconnect(PeerId::UNASSIGNED)]);
        assert!(send(&mut proxy, from, &leaves, 2).is_some());
    }
    proxy.handle_timeout(at(5_002));
    assert_eq!((proxy.sources().count(), proxy.goodbyes()), (0, 0));
}
