//! T-53, T-77: a new client asks for admission at the address of a peer.

use bcnet_transport::wire::{BootReason, Channel, Message, PeerId};
use bcnet_transport::{Config, Engine, Event, LeaveReason, ProofPolicy, RejectCause};

use crate::address_verification::{
    OfferedId, ack_proof_config, acknowledge_offer, flood, joined_peers, request_offer, take_second_cookie,
};
use crate::net::{
    START, TestEndpoint, TestNet, ack, address, before, connect, disconnect, from_peer,
    host_with_forged_peer, identity, ms, unencrypted, utf16,
};

/// T-53: a forged request, with any nonce, does not affect an active peer.
#[test]
fn active_peer_is_not_replaced() {
    let mut host = host_with_forged_peer(ack_proof_config());
    for step in 0..600_u64 {
        let now = ms(100 * step);
        if step % 10 == 0 {
            host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), now);
        }
        host.send(PeerId(2), b"x", now);
        let out = host.sent_texts(now);
        assert!(out.iter().any(|text| text.contains("data")), "{out:?}");
        let seq = u16::try_from(step).expect("a small number");
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), now);
        assert_eq!(request_offer(&mut host, 1, 1000 + u32::from(seq), now), None);
    }
    assert_eq!(host.left_peers(), []);
    assert_eq!(host.endpoint.rejected().count(RejectCause::Impostor), 600);
}

/// T-53, T-77: a request at the address of an idle peer delays its messages until it sends a datagram.
///
/// A datagram without an id is not a sign of life.
#[test]
fn contest_of_an_idle_peer_ends_when_it_sends() {
    let mut host = host_with_forged_peer(ack_proof_config());
    assert_eq!(request_offer(&mut host, 1, 99, before(ms(2000))), None);
    let offer = request_offer(&mut host, 1, 99, ms(2000)).expect("an answer");
    assert_ne!(offer.0, PeerId(2));
    host.send(PeerId(2), b"for the old one", ms(2000));
    host.receive_from(address(1), &from_peer(0xFF, &[disconnect(1, 0xFF)]), ms(2010));
    assert_eq!(host.timeline(ms(2010), ms(2039)), ["2.010 ack control seq=1"]);
    // A stock client acknowledges reply and cookie in any case.
    host.receive_from(address(1), &acknowledge_offer(OfferedId(PeerId(2), offer.1)), ms(2040));
    assert_eq!(host.sent_texts(ms(2040)), ["data seq=0 15 bytes"]);
    assert_eq!(host.left_peers(), []);
    // The offer is withdrawn.
    host.receive_from(address(1), &acknowledge_offer(offer), ms(2050));
    assert_eq!((host.left_peers(), joined_peers(&mut host)), (vec![], vec![]));
    assert_eq!(request_offer(&mut host, 1, 100, ms(4039)), None, "the peer was active within two seconds");
}

/// T-53, T-77: a restarted client verifies itself, and only then is the old peer removed.
#[test]
fn restarted_client_replaces_its_old_peer() {
    let mut net = TestNet::joined_with_names(&ack_proof_config(), 2);
    net.run(ms(3000));
    net.host.send(PeerId(2), b"for the old one", net.now);
    net.clients[0] = TestEndpoint::client_at(ack_proof_config(), address(1), 99, net.now);
    let request = net.clients[0].flush(net.now);
    net.deliver(&request[0]);
    let id = net.host.endpoint.challenge(address(1), net.now).expect("a free id");
    assert_eq!(net.host.left_peers(), [], "the client is not verified yet");
    let answer = net.host.flush(net.now);
    assert!(
        answer.iter().all(|packet| packet.data().iter().all(|(_, payload)| payload.is_empty())),
        "{answer:?}"
    );
    answer.iter().for_each(|packet| net.deliver(packet));
    net.deliver_all();
    let mut events = net.host.events();
    events.retain(|(event, _)| !matches!(event, Event::Rejected { .. }));
    let gone = Event::Left { peer: PeerId(2), reason: LeaveReason::Replaced };
    assert_eq!(events, [(gone, vec![]), (Event::Joined { peer: id }, vec![])]);
    assert_eq!(net.clients[1].left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
    net.host.send(id, b"for the new one", net.now);
    net.run(ms(4000));
    assert_eq!(net.clients[0].received(), [b"for the new one"]);
}

/// T-53, T-77: a request alone, or an incomplete verification, never removes a silent peer.
#[test]
fn verified_newcomer_replaces_an_idle_peer() {
    for at in [2000, 12_499, 12_500, 44_000] {
        let mut host = host_with_forged_peer(ack_proof_config());
        host.timeline(START, ms(at));
        host.events();
        let OfferedId(id, first) = request_offer(&mut host, 1, 99, ms(at)).expect("an answer");
        host.receive_from(address(1), &acknowledge_offer(OfferedId(id, first)), ms(at + 100));
        let lost = take_second_cookie(&mut host, address(1), ms(at + 100)).expect("an answer");
        // A stock client repeats its ACKs, and so requests the cookie that it has not received.
        host.receive_from(address(1), &acknowledge_offer(OfferedId(id, first)), ms(at + 700));
        assert_eq!(take_second_cookie(&mut host, address(1), ms(at + 700)), Some(lost), "{at} ms");
        assert_eq!((host.left_peers(), joined_peers(&mut host)), (vec![], vec![]), "{at} ms");
        let both = [ack(Channel::Game, first), ack(Channel::Game, lost)];
        host.receive_from(address(1), &from_peer(id.0, &both), ms(at + 800));
        assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Replaced)], "{at} ms");
        assert_eq!(host.endpoint.peers().collect::<Vec<_>>(), [id]);
    }
}

/// T-77: an answered client has time to verify itself.
///
/// If none does, the old peer gets its delayed messages and is connected as before.
#[test]
fn contest_without_proof_expires() {
    for (asked, over) in [(3000, 18_500), (12_400, 18_500), (20_000, 26_000)] {
        let mut host = host_with_forged_peer(ack_proof_config());
        host.timeline(START, ms(asked));
        host.send(PeerId(2), b"x", ms(asked));
        let offer = request_offer(&mut host, 1, 99, ms(asked)).expect("an answer");
        assert_eq!(host.timeline(ms(asked), before(ms(over))), Vec::<String>::new());
        let texts = host.timeline(before(ms(over)), ms(over));
        assert_eq!(texts.first(), Some(&format!("{}.{:03} data seq=0 1 byte", over / 1000, over % 1000)));
        host.receive_from(address(1), &acknowledge_offer(offer), ms(over));
        assert_eq!((host.left_peers(), joined_peers(&mut host)), (vec![], vec![]), "the offer is withdrawn");
    }
}

/// T-53, T-76: a client without an ACK of its cookie replaces a peer by its id only in one case.
///
/// The peer must have been silent for two and a half keepalive intervals, and the policy must accept ids.
#[test]
fn id_proof_replaces_an_idle_peer() {
    for (prove, at, replaced) in [
        (ProofPolicy::Auto, 12_499, false),
        (ProofPolicy::Auto, 12_500, true),
        (ProofPolicy::Ack, 14_000, false),
        (ProofPolicy::Id, 12_499, false),
        (ProofPolicy::Id, 12_500, true),
    ] {
        let mut host = host_with_forged_peer(Config { proof_policy: prove, ..unencrypted() });
        host.timeline(START, ms(3000));
        let offer = request_offer(&mut host, 1, 99, ms(3000)).expect("an answer");
        let name = utf16("Ann");
        host.receive_from(address(1), &from_peer(offer.0.0, &[identity(1, offer.0.0, &name)]), ms(at));
        assert_eq!(!host.left_peers().is_empty(), replaced, "{prove:?} after {at} ms");
    }
}

/// T-77: a cookie at the address of a peer cannot be found by trying.
///
/// Only a few wrong numbers are allowed for all requests together, until the peer sends a datagram. Numbers
/// that the connection of the peer was sent are not wrong.
#[test]
fn guessed_cookies_do_not_replace_a_peer() {
    let mut host = host_with_forged_peer(ack_proof_config());
    let mut offers = 0;
    for round in 0..0x8000_u32 {
        let now = ms(2000 + u64::from(round) / 10);
        host.receive_from(address(1), &connect(1000 + round), now);
        let Ok(id) = host.endpoint.challenge(address(1), now) else { continue };
        offers += 1;
        host.flush(now);
        for number in (0x4000 + round % 8..0xFFFF).step_by(8).take(512) {
            let number = u16::try_from(number).expect("a number");
            host.receive_from(address(1), &from_peer(id.0, &[ack(Channel::Game, number)]), now);
        }
    }
    assert_eq!((host.left_peers(), offers), (vec![], 1));
    // The peer sends a datagram; two seconds later four numbers can be guessed.
    host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(6000));
    assert_eq!(request_offer(&mut host, 1, 99, before(ms(8000))), None);
    let OfferedId(id, number) = request_offer(&mut host, 1, 99, ms(8000)).expect("an answer");
    for guess in 1..4 {
        host.receive_from(address(1), &acknowledge_offer(OfferedId(id, number ^ guess)), ms(8010));
    }
    host.receive_from(address(1), &acknowledge_offer(OfferedId(id, number)), ms(8020));
    let lucky = take_second_cookie(&mut host, address(1), ms(8020)).expect("an answer");
    host.receive_from(address(1), &acknowledge_offer(OfferedId(id, lucky ^ 1)), ms(8030));
    host.receive_from(address(1), &acknowledge_offer(OfferedId(id, lucky)), ms(8040));
    assert_eq!((host.left_peers(), joined_peers(&mut host)), (vec![], vec![]));
}

/// T-77: a restarted client may acknowledge the last messages of its old connection, even numbers like
/// cookies.
#[test]
fn acks_of_the_old_connection_are_not_guesses() {
    let mut host = host_with_forged_peer(ack_proof_config());
    for seq in 0..0x5000_u16 {
        host.send(PeerId(2), b"x", START);
        host.flush(START);
        if seq < 0x4FF0 {
            host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), START);
        }
    }
    host.timeline(START, ms(3000));
    host.events();
    let OfferedId(id, first) = request_offer(&mut host, 1, 99, ms(3000)).expect("an answer");
    let mut acks: Vec<Message<'_>> = (0x4FF0..0x5000).map(|seq| ack(Channel::Game, seq)).collect();
    host.receive_from(address(1), &from_peer(id.0, &acks), ms(3010));
    acks.push(ack(Channel::Game, first));
    host.receive_from(address(1), &from_peer(id.0, &acks), ms(3020));
    let number = take_second_cookie(&mut host, address(1), ms(3020)).expect("an answer");
    acks.push(ack(Channel::Game, number));
    host.receive_from(address(1), &from_peer(id.0, &acks), ms(3030));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Replaced)]);
}

/// T-76, T-77: a flood of other requests does not block a restarted client.
#[test]
fn offer_at_a_peer_address_is_not_evicted() {
    let mut host = host_with_forged_peer(ack_proof_config());
    let OfferedId(id, first) = request_offer(&mut host, 1, 99, ms(3000)).expect("an answer");
    flood(&mut host, 1, ms(3000));
    flood(&mut host, 2, ms(8000));
    host.receive_from(address(1), &acknowledge_offer(OfferedId(id, first)), ms(8500));
    let number = take_second_cookie(&mut host, address(1), ms(8500)).expect("an answer");
    flood(&mut host, 3, ms(8550));
    host.receive_from(address(1), &acknowledge_offer(OfferedId(id, number)), ms(8600));
    assert_eq!(joined_peers(&mut host), [id]);
}

/// T-57, T-77: a request at the address of a leaving peer does not stop its last messages.
///
/// They pause for a while or until the peer sends a datagram, because a restarted game must not get them.
/// When the new client has joined, nothing is left of the old peer.
#[test]
fn disconnect_notice_survives_a_forged_request() {
    let kicked = || {
        let mut host = host_with_forged_peer(ack_proof_config());
        host.timeline(START, ms(3000));
        host.endpoint.boot(PeerId(2), BootReason::KICKED, ms(3000)).expect("the peer is connected");
        assert_eq!(host.sent_texts(ms(3000)), ["boot seq=1: peer 2, kicked"]);
        let offer = request_offer(&mut host, 1, 99, ms(3100)).expect("an answer");
        assert_eq!(host.timeline(ms(3100), before(ms(9100))), Vec::<String>::new());
        (host, offer)
    };
    let (mut host, _) = kicked();
    let again = host.timeline(before(ms(9100)), ms(18_000));
    assert!(again.iter().any(|line| line.ends_with("boot seq=1: peer 2, kicked")), "{again:?}");
    assert!(host.endpoint.is_closed(), "the linger time is over");
    let (mut host, offer) = kicked();
    host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(9000));
    assert_eq!(host.sent_texts(ms(9000)), ["boot seq=1: peer 2, kicked"]);
    assert_eq!(request_offer(&mut host, 1, 100, ms(9010)), None, "the peer is alive");
    host.receive_from(address(1), &acknowledge_offer(offer), ms(9050));
    assert_eq!(joined_peers(&mut host), [offer.0]);
    let texts = host.timeline(ms(9050), ms(30_000));
    assert!(!texts.iter().any(|line| line.contains("boot")), "{texts:?}");
}

/// T-51, T-57: a client can rejoin at once after its departure was seen.
#[test]
fn client_can_rejoin_right_after_leaving() {
    let mut host = host_with_forged_peer(ack_proof_config());
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), ms(3000));
    host.timeline(ms(3000), ms(4510));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Disconnected)]);
    let offer = request_offer(&mut host, 1, 99, ms(4510)).expect("an answer");
    // The client retransmitted its disconnect before the ACK arrived.
    host.receive_from(address(1), &from_peer(2, &[disconnect(1, 2)]), ms(4520));
    assert_eq!(host.sent_texts(ms(4520)), ["ack control seq=1"]);
    host.receive_from(address(1), &acknowledge_offer(offer), ms(4530));
    assert_eq!(joined_peers(&mut host), [offer.0]);
}

/// S-11, T-53: a wrong password does not affect the peer at that address.
#[test]
fn refused_request_does_not_affect_the_peer_there() {
    let mut host = host_with_forged_peer(ack_proof_config());
    host.send(PeerId(2), b"x", ms(3000));
    host.receive_from(address(1), &connect(99), ms(3000));
    assert_eq!(host.endpoint.refuse(address(1), BootReason::WRONG_PASSWORD, ms(3000)), Ok(()));
    let texts = host.sent_texts(ms(3000));
    assert!(texts.contains(&"data seq=0 1 byte".to_owned()), "{texts:?}");
    assert_eq!(host.left_peers(), []);
}

/// T-77: messages queued for a contested peer do no harm if it is booted or gone.
#[test]
fn contested_peer_can_leave_be_booted_or_time_out() {
    let contested = || {
        let mut host = host_with_forged_peer(ack_proof_config());
        assert!(request_offer(&mut host, 1, 99, ms(3000)).is_some());
        host
    };
    let mut host = contested();
    assert_eq!(host.endpoint.boot(PeerId(2), BootReason::KICKED, ms(3100)), Ok(()));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Booted(BootReason::KICKED))]);
    assert_eq!(host.sent_texts(ms(3100)), ["boot seq=1: peer 2, kicked"]);
    let mut host = contested();
    host.endpoint.leave(ms(3100));
    assert_eq!(host.sent_texts(ms(3100)).len(), 1, "the disconnect of the peer");
    let mut host = contested();
    host.timeline(ms(3000), ms(44_999));
    assert_eq!(host.left_peers(), []);
    host.timeline(ms(44_999), ms(45_000));
    assert_eq!(host.left_peers(), [(PeerId(2), LeaveReason::Silent)]);
    host.timeline(ms(45_000), ms(60_000));
    assert!(host.endpoint.is_closed());
    assert_eq!(host.endpoint.next_timeout(), None);
}
