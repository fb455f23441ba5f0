//! T-75 to T-77: new clients verify their address before they are peers.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{BootReason, Channel, Datagram, Delivery, Message, PeerId, Seq, Text};
use bcnet_transport::{Config, Endpoint, Engine, Event, IdPolicy, ProofPolicy, Time};

use crate::net::{
    START, TestEndpoint, TestNet, TestRng, ack, address, before, connect, disconnect, from_peer, identity,
    ms, reliable, unencrypted, utf16,
};

/// The offer that a new client got: its id and its cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfferedId(pub(crate) PeerId, pub(crate) u16);

/// Sends a request from the `n`th address and challenges it. Returns `None` without an answer.
pub(crate) fn request_offer(host: &mut TestEndpoint, n: u16, nonce: u32, now: Time) -> Option<OfferedId> {
    request_offer_at(host, address(n), nonce, now)
}

/// Does the same for any address.
pub(crate) fn request_offer_at(
    host: &mut TestEndpoint,
    from: SocketAddrV4,
    nonce: u32,
    now: Time,
) -> Option<OfferedId> {
    host.receive_from(from, &connect(nonce), now);
    host.endpoint.challenge(from, now).ok()?;
    let packet = host.flush(now).into_iter().find(|packet| packet.to == from)?;
    assert_eq!(packet.bytes.len(), 17, "{:?}", packet.message_texts());
    assert_eq!(packet.message_texts()[0], "ack control seq=0");
    let datagram = Datagram::parse(&packet.bytes, None).expect("a well-formed datagram");
    let id = host.endpoint.challenge(from, now);
    assert!(id.is_err(), "a second challenge must fail");
    let (Delivery::Reliable(Seq(number)), payload) = packet.data()[0].clone() else { panic!("a cookie") };
    assert_eq!((payload.len(), datagram.count()), (0, 3));
    let assigned =
        packet.message_texts()[1].rsplit(' ').next().and_then(|id| id.parse().ok()).expect("an id");
    Some(OfferedId(PeerId(assigned), number))
}

/// Returns the cookie that the host sends alone to an address now, if it does.
pub(crate) fn take_second_cookie(host: &mut TestEndpoint, to: SocketAddrV4, now: Time) -> Option<u16> {
    let packet = host.flush(now).into_iter().find(|packet| packet.to == to)?;
    let (Delivery::Reliable(Seq(number)), _) = packet.data()[0].clone() else { panic!("a cookie") };
    assert_eq!(packet.bytes.len(), 7, "{:?}", packet.message_texts());
    Some(number)
}

/// Returns the first datagram of a client: the ACKs of the reply and the cookie.
pub(crate) fn acknowledge_offer(OfferedId(id, number): OfferedId) -> Vec<u8> {
    from_peer(id.0, &[ack(Channel::Control, 0), ack(Channel::Game, number)])
}

pub(crate) fn joined_peers(host: &mut TestEndpoint) -> Vec<PeerId> {
    let joined = host.events().into_iter().filter_map(|(event, _)| match event {
        Event::Joined { peer } => Some(peer),
        _ => None,
    });
    joined.collect()
}

pub(crate) fn ack_proof_config() -> Config {
    Config { proof_policy: ProofPolicy::Ack, ..unencrypted() }
}

/// T-52, T-75: a client that acknowledges its cookie is a peer; it gets the names then and not earlier.
#[test]
fn acknowledging_the_cookie_joins() {
    let mut net = TestNet::joined(&ack_proof_config(), 1);
    let name = utf16("Ann");
    net.clients[0]
        .endpoint
        .announce_name(Text::new(&name).expect("UTF-16LE"), net.now)
        .expect("a peer is connected");
    net.deliver_all();
    let host = &mut net.host;
    let offer = request_offer(host, 9, 5, START).expect("an answer");
    assert_eq!(host.timeline(START, ms(4999)), [""; 0], "the host sent something without a request");
    assert_eq!((joined_peers(host), host.endpoint.address(offer.0)), (vec![], None));
    host.receive_from(address(9), &acknowledge_offer(offer), ms(4999));
    assert_eq!(joined_peers(host), [offer.0]);
    assert_eq!(host.endpoint.address(offer.0), Some(address(9)));
    assert_eq!(host.sent_texts(ms(4999)), ["identity seq=1: peer 2 at 10.20.0.1 is \"Ann\""]);
    host.receive_from(address(9), &from_peer(offer.0.0, &[identity(1, offer.0.0, &name)]), ms(5000));
    assert!(host.sent_texts(ms(5000)).contains(&"ack control seq=1".to_owned()), "the request was number 0");
}

/// T-76: bcnet's own client acknowledges its cookie, and no queue keeps any of it.
#[test]
fn own_client_acknowledges_and_drops_the_cookie() {
    for secret in 0..200 {
        let endpoint =
            Endpoint::host(Config { id_policy: IdPolicy::Random, ..ack_proof_config() }).with_secret(secret);
        let mut net = TestNet::joined(&ack_proof_config(), 0);
        net.host.endpoint = endpoint;
        net.clients.push(TestEndpoint::client(ack_proof_config(), 1, START));
        let request = net.clients[0].flush(START);
        net.deliver(&request[0]);
        net.host.events();
        let id = net.host.endpoint.challenge(address(1), START).expect("a free id");
        net.deliver_all();
        assert_eq!(joined_peers(&mut net.host), [id]);
        assert_eq!(net.clients[0].endpoint.id(), id);
        assert_eq!(net.clients[0].counters(PeerId::HOST).rejected.total(), 0, "it is no fault");
        net.host.send(id, b"first", START);
        net.clients[0].send(PeerId::HOST, b"too", START);
        net.run(ms(1000));
        assert_eq!(
            (net.host.received(), net.clients[0].received()),
            (vec![b"too".to_vec()], vec![b"first".to_vec()])
        );
        for (end, peer) in [(&net.host, id), (&net.clients[0], PeerId::HOST)] {
            let snapshot = end.snapshot(peer, ms(1000));
            assert_eq!(
                (snapshot.unacknowledged.len(), snapshot.pending_acks.len(), snapshot.queued_bytes),
                (0, 0, 0)
            );
            assert!(snapshot.inboxes.iter().all(|receiving| receiving.out_of_order == 0));
        }
    }
}

/// T-75: an unverified address gets at most as many bytes as were sent in its name.
#[test]
fn unverified_address_gets_no_more_bytes_than_it_sent() {
    let mut net = TestNet::joined(&ack_proof_config(), 3);
    let name = utf16(&"x".repeat(100));
    for client in &mut net.clients {
        client
            .endpoint
            .announce_name(Text::new(&name).expect("UTF-16LE"), START)
            .expect("a peer is connected");
    }
    net.deliver_all();
    let host = &mut net.host;
    let guess = |id: u8, number: u16| from_peer(id, &[ack(Channel::Control, 0), ack(Channel::Game, number)]);
    let mut dice = TestRng(5);
    for step in 0..4000_u64 {
        let now = ms(10 * step);
        let unverified = address(100 + u16::try_from(step % 3).expect("a small number"));
        let bytes = match dice.below(8) {
            0..=2 => connect(u32::try_from(dice.below(3)).expect("a small number")),
            3 => from_peer(0xFF, &[disconnect(1, 0xFF)]),
            4 => from_peer(5 + u8::try_from(dice.below(9)).expect("a small number"), &[Message::Keepalive]),
            5 => from_peer(5, &[identity(1, 5, &name)]),
            6 => from_peer(7, &[reliable(0, b"data")]),
            _ => guess(
                5 + u8::try_from(dice.below(9)).expect("a small number"),
                0x4000 + u16::try_from(step).expect("a small number"),
            ),
        };
        let (sent, mut got) = (bytes.len(), 0);
        host.receive_from(unverified, &bytes, now);
        if dice.below(2) == 0 {
            let _ = host.endpoint.challenge(unverified, now);
        } else {
            let _ = host.endpoint.refuse(unverified, BootReason::FULL, now);
        }
        for packet in host.flush(now).iter().filter(|packet| packet.to == unverified) {
            got += packet.bytes.len();
        }
        assert!(got <= sent, "{got} bytes for {sent}");
    }
    assert_eq!(joined_peers(host), [], "an unverified client joined");
    assert_eq!(host.endpoint.peers().count(), 3);
}

/// T-75: an address gets the same answer again, but at most five times a second.
#[test]
fn repeated_request_gets_the_same_offer() {
    let mut host = TestEndpoint::host(ack_proof_config());
    let first = request_offer(&mut host, 1, 7, START).expect("an answer");
    assert_eq!(request_offer(&mut host, 1, 7, before(ms(200))), None);
    assert_eq!(request_offer(&mut host, 1, 7, ms(200)), Some(first));
    assert_eq!(request_offer(&mut host, 1, 8, ms(1200)), Some(first), "the same offer under another nonce");
    assert_ne!(
        request_offer(&mut host, 2, 7, ms(1200)).map(|offer| offer.0),
        Some(first.0),
        "another address, another id"
    );
    // A client that gets the first answer after more than a second has sent two requests.
    host.receive_from(address(1), &acknowledge_offer(first), ms(2500));
    assert_eq!(joined_peers(&mut host), [first.0]);
}

/// T-50: ids are drawn from all free ones, and clients that come together get different ids.
#[test]
fn random_ids_are_drawn_from_free_ids() {
    let mut seen = [0_u32; 128];
    for secret in 0..300 {
        let endpoint =
            Endpoint::host(Config { id_policy: IdPolicy::Random, ..ack_proof_config() }).with_secret(secret);
        let mut host = TestEndpoint::host(ack_proof_config());
        host.endpoint = endpoint;
        let mut ids: Vec<PeerId> =
            (1..=20).filter_map(|n| request_offer(&mut host, n, 1, START)).map(|offer| offer.0).collect();
        ids.iter().for_each(|id| seen[usize::from(id.0)] += 1);
        assert!(ids.iter().all(|id| id.is_assignable()));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 20);
    }
    let counts: Vec<u32> = (2..=126).filter(|id| *id != 0x5C).map(|id| seen[id]).collect();
    assert_eq!(counts.iter().sum::<u32>(), 6000);
    assert!(counts.iter().all(|count| (15..100).contains(count)), "{counts:?}");
}

/// T-76: after a flood has overwritten its offer, a client still joins, with a second cookie.
#[test]
fn flood_does_not_block_honest_clients() {
    for ids in [IdPolicy::Sequential, IdPolicy::Random] {
        let mut host = TestEndpoint::host(ack_proof_config());
        host.endpoint = Endpoint::host(Config { id_policy: ids, ..ack_proof_config() }).with_secret(1701);
        let offer = request_offer(&mut host, 1, 7, START).expect("an answer");
        for n in 0..5000 {
            assert!(request_offer(&mut host, 1000 + n, 1, ms(100)).is_some(), "every request is answered");
        }
        host.receive_from(address(1), &acknowledge_offer(offer), ms(300));
        assert_eq!(joined_peers(&mut host), []);
        let lost = take_second_cookie(&mut host, address(1), ms(300)).expect("an answer");
        // The retransmission of the client requests the cookie again.
        host.receive_from(address(1), &acknowledge_offer(offer), ms(960));
        assert_eq!(take_second_cookie(&mut host, address(1), ms(960)), Some(lost));
        host.receive_from(address(1), &acknowledge_offer(OfferedId(offer.0, lost)), ms(1100));
        assert_eq!(joined_peers(&mut host), [offer.0], "{ids:?}");
    }
}

/// T-76: an ACK of a wrong number withdraws a stored offer, so that its cookie cannot be found by trying.
#[test]
fn wrong_cookie_withdraws_a_stored_offer() {
    let mut host = TestEndpoint::host(ack_proof_config());
    let offer = request_offer(&mut host, 1, 7, START).expect("an answer");
    assert!((0..100).all(|n| request_offer(&mut host, 1000 + n, 1, ms(100)).is_some()));
    host.receive_from(address(1), &acknowledge_offer(offer), ms(300));
    let number = take_second_cookie(&mut host, address(1), ms(300)).expect("an answer");
    host.receive_from(address(1), &acknowledge_offer(OfferedId(offer.0, number ^ 1)), ms(400));
    host.receive_from(address(1), &acknowledge_offer(OfferedId(offer.0, number)), ms(500));
    assert_eq!(joined_peers(&mut host), []);
}

/// T-76: `proof_policy` decides whether a client without an ACK of its cookie joins by its id.
///
/// With `Auto` it joins after one second while no attack is detected, with `Id` at once, with `Ack` never.
#[test]
fn proof_policy_decides_whether_id_alone_admits() {
    let send_identity = |host: &mut TestEndpoint, offer: OfferedId, now| {
        let name = utf16("Ann");
        let messages = [ack(Channel::Control, 0), identity(1, offer.0.0, &name)];
        host.receive_from(address(1), &from_peer(offer.0.0, &messages), now);
        joined_peers(host)
    };
    for (prove, at_once, later) in
        [(ProofPolicy::Auto, 0, 1), (ProofPolicy::Ack, 0, 0), (ProofPolicy::Id, 1, 0)]
    {
        let mut host = TestEndpoint::host(Config { proof_policy: prove, ..unencrypted() });
        let offer = request_offer(&mut host, 1, 7, START).expect("an answer");
        assert_eq!(send_identity(&mut host, offer, before(ms(1000))).len(), at_once, "{prove:?}");
        assert_eq!(send_identity(&mut host, offer, ms(1000)).len(), later, "{prove:?}");
    }
    // A forgery was detected within the last ten minutes.
    for (forged, joins) in [(590, 0), (601, 1)] {
        let mut host = TestEndpoint::host(unencrypted());
        let other = request_offer(&mut host, 2, 7, START).expect("an answer");
        host.receive_from(address(2), &from_peer(other.0.0 + 1, &[Message::Keepalive]), START);
        let offer = request_offer(&mut host, 1, 7, ms(1000 * forged)).expect("an answer");
        assert_eq!(
            send_identity(&mut host, offer, ms(1000 * forged + 1000)).len(),
            joins,
            "{forged} s later"
        );
    }
}

/// T-75: if the ACK of its cookie is lost, a client sends under its id and gets the cookie again.
#[test]
fn cookie_is_resent_to_client_without_ack() {
    let mut host = TestEndpoint::host(ack_proof_config());
    let offer = request_offer(&mut host, 1, 7, START).expect("an answer");
    host.receive_from(address(1), &from_peer(offer.0.0, &[identity(1, offer.0.0, &utf16("Ann"))]), ms(1000));
    assert_eq!(host.sent_texts(ms(1000)), [format!("data seq={} 0 bytes", offer.1)]);
    host.receive_from(address(1), &acknowledge_offer(offer), ms(1100));
    assert_eq!(joined_peers(&mut host), [offer.0]);
}

/// Returns a host that has recently answered a hundred unverified addresses.
pub(crate) fn host_under_attack(config: &Config) -> TestEndpoint {
    let mut host = TestEndpoint::host(config.clone());
    host.endpoint =
        Endpoint::host(Config { id_policy: IdPolicy::Random, ..config.clone() }).with_secret(1701);
    flood(&mut host, 0, START);
    host
}

/// Sends requests from 150 forged addresses: more than there are ids.
pub(crate) fn flood(host: &mut TestEndpoint, round: u16, now: Time) {
    for n in 0..150 {
        let from = SocketAddrV4::new(Ipv4Addr::new(11, n, 0, 1), 1024 + round);
        assert!(request_offer_at(host, from, 1, now).is_some(), "every request is answered");
    }
}

/// T-50, T-76: one machine with many sockets cannot hold all ids.
///
/// It acknowledges the first cookie for each id, never the second, and does so again before the id is free.
/// New clients with a round-trip time of 50 ms still join.
#[test]
fn one_machine_cannot_reserve_all_ids() {
    let mut host = host_under_attack(&ack_proof_config());
    let (mut held, mut arrived) = (Vec::new(), 0);
    let mut attack = |host: &mut TestEndpoint, step: u16| {
        let now = ms(50 * u64::from(step));
        if step.is_multiple_of(20) {
            flood(host, 1 + step, now);
        }
        if step < 250 {
            let from = SocketAddrV4::new(Ipv4Addr::new(12, 0, 0, 1), 1000 + step);
            held.extend(request_offer_at(host, from, 1, now).map(|offer| (from, offer)));
        }
        for (from, offer) in &held {
            host.receive_from(*from, &acknowledge_offer(*offer), now);
        }
        host.flush(now);
        now
    };
    for step in 0..250 {
        attack(&mut host, step);
    }
    for n in 0..50_u8 {
        let from = SocketAddrV4::new(Ipv4Addr::new(81, n, 7, 1), 22101);
        let step = 250 + 3 * u16::from(n);
        let now = attack(&mut host, step);
        let OfferedId(id, first) = request_offer_at(&mut host, from, 7, now).expect("an answer");
        let now = attack(&mut host, step + 1);
        host.receive_from(from, &acknowledge_offer(OfferedId(id, first)), now);
        let number = take_second_cookie(&mut host, from, now);
        let now = attack(&mut host, step + 2);
        if let Some(number) = number {
            host.receive_from(from, &acknowledge_offer(OfferedId(id, number)), now);
        }
        for id in joined_peers(&mut host) {
            arrived += 1;
            host.receive_from(from, &from_peer(id.0, &[disconnect(1, id.0)]), now);
        }
        host.flush(now);
    }
    assert!(arrived >= 48, "only {arrived} of 50 joined at the first attempt");
}

/// T-76: if all ids are held, the next new client gets one of them; no client is refused as "full".
#[test]
fn exhausted_offers_do_not_refuse_newcomers() {
    let mut host = host_under_attack(&ack_proof_config());
    for n in 0..250 {
        let from = SocketAddrV4::new(Ipv4Addr::new(12, n, 0, 1), 1000);
        let offer = request_offer_at(&mut host, from, 1, ms(10)).expect("an answer");
        host.receive_from(from, &acknowledge_offer(offer), ms(10));
        assert!(take_second_cookie(&mut host, from, ms(10)).is_some(), "client {n} gets a second cookie");
    }
}

/// T-76: a cookie can be found by trying, so it is not enough if the host admits only some clients.
///
/// A cookie shows that an address was answered, not that it was admitted.
#[test]
fn guessed_cookie_fails_with_selective_admission() {
    for (selective, answered) in [(true, 0), (false, 1)] {
        let mut host = host_under_attack(&Config { selective_admission: selective, ..ack_proof_config() });
        let (from, mut answers) = (SocketAddrV4::new(Ipv4Addr::new(12, 0, 0, 1), 1000), 0);
        for number in 0x4000..0xC000 {
            host.receive_from(from, &acknowledge_offer(OfferedId(PeerId(9), number)), ms(100));
            answers += host.flush(ms(100)).len();
        }
        assert_eq!(answers.min(1), answered, "{selective}");
    }
}

/// T-76: after offers are withdrawn, their cookies are not accepted.
#[test]
fn offers_can_be_withdrawn() {
    for (withdrawn, count) in [(false, 1), (true, 0)] {
        let mut host = TestEndpoint::host(Config { selective_admission: true, ..ack_proof_config() });
        let offer = request_offer(&mut host, 1, 7, START).expect("an answer");
        if withdrawn {
            host.endpoint.withdraw_offers();
        }
        host.receive_from(address(1), &acknowledge_offer(offer), ms(100));
        assert_eq!(joined_peers(&mut host).len(), count);
    }
}

/// T-75, T-76: a client with an overwritten offer and a lost ACK gets its cookie again when it sends.
///
/// The answer has no more bytes than its datagram.
#[test]
fn client_with_evicted_offer_gets_its_cookie_again() {
    let mut host = host_under_attack(&ack_proof_config());
    let offer = request_offer(&mut host, 1, 7, ms(100)).expect("an answer");
    flood(&mut host, 1, ms(100));
    flood(&mut host, 2, ms(100));
    host.receive_from(address(1), &from_peer(offer.0.0, &[Message::Keepalive]), ms(1000));
    assert_eq!(host.flush(ms(1000)), [], "three bytes are too few for an answer");
    host.receive_from(address(1), &from_peer(offer.0.0, &[identity(1, offer.0.0, &utf16("Ann"))]), ms(1000));
    assert_eq!(take_second_cookie(&mut host, address(1), ms(1000)), Some(offer.1));
    host.receive_from(address(1), &acknowledge_offer(offer), ms(1100));
    let number = take_second_cookie(&mut host, address(1), ms(1100)).expect("an answer");
    host.receive_from(address(1), &acknowledge_offer(OfferedId(offer.0, number)), ms(1200));
    assert_eq!(joined_peers(&mut host), [offer.0]);
}

/// T-76: a client with two offers, because the first was overwritten, has one id after it has joined.
#[test]
fn joining_withdraws_other_offers_to_the_address() {
    let mut host = host_under_attack(&ack_proof_config());
    let first = request_offer(&mut host, 1, 7, ms(100)).expect("an answer");
    flood(&mut host, 1, ms(100));
    flood(&mut host, 2, ms(100));
    let other = request_offer(&mut host, 1, 7, ms(1100)).expect("an answer");
    assert_ne!(first.0, other.0);
    host.receive_from(address(1), &acknowledge_offer(first), ms(1200));
    let number = take_second_cookie(&mut host, address(1), ms(1200)).expect("an answer");
    host.receive_from(address(1), &acknowledge_offer(OfferedId(first.0, number)), ms(1300));
    assert_eq!(joined_peers(&mut host), [first.0]);
    host.flush(ms(1300));
    host.receive_from(address(1), &acknowledge_offer(other), ms(1400));
    assert_eq!((host.flush(ms(1400)), host.left_peers()), (vec![], vec![]));
}

/// T-76: a cookie is bound to the port: one socket of a machine cannot answer for another.
#[test]
fn cookie_of_one_port_does_not_verify_another() {
    let mut host = host_under_attack(&ack_proof_config());
    let offer = request_offer(&mut host, 1, 7, ms(100)).expect("an answer");
    flood(&mut host, 1, ms(100));
    flood(&mut host, 2, ms(100));
    let other_port = SocketAddrV4::new(*address(1).ip(), address(1).port() + 1);
    host.receive_from(other_port, &acknowledge_offer(offer), ms(200));
    assert_eq!(host.flush(ms(200)), [], "the cookie of another port has no effect");
    host.receive_from(address(1), &acknowledge_offer(offer), ms(200));
    assert!(take_second_cookie(&mut host, address(1), ms(200)).is_some(), "the offer is still valid");
}
