//! T-75 to T-77: newcomers prove that they hear us before they are peers.

use bcnet_transport::wire::{BootReason, Channel, Datagram, Delivery, Message, PeerId, Seq, Text};
use bcnet_transport::{Cause, Config, Endpoint, Engine, Event, Ids, Leave, Prove, Time};

use crate::net::{
    Dice, End, Net, START, ack, address, before, connect, disconnect, from_peer, identity, ms, plain, puppet,
    reliable, utf16,
};

/// What a newcomer was told: its id and its cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer(PeerId, u16);

/// The `n`th address asks and is challenged. `None` if it is not answered.
fn ask(host: &mut End, n: u16, nonce: u32, now: Time) -> Option<Offer> {
    host.hear_from(address(n), &connect(nonce), now);
    host.endpoint.challenge(address(n), now).ok()?;
    let packet = host.flush(now).into_iter().find(|packet| packet.to == address(n))?;
    assert_eq!(packet.bytes.len(), 17, "{:?}", packet.said());
    assert_eq!(packet.said()[0], "ack control seq=0");
    let datagram = Datagram::parse(&packet.bytes, None).expect("a well-formed datagram");
    let id = host.endpoint.challenge(address(n), now);
    assert!(id.is_err(), "once is enough");
    let (Delivery::Reliable(Seq(number)), payload) = packet.data()[0].clone() else { panic!("a cookie") };
    assert_eq!((payload.len(), datagram.count()), (0, 3));
    let assigned = packet.said()[1].rsplit(' ').next().and_then(|id| id.parse().ok()).expect("an id");
    Some(Offer(PeerId(assigned), number))
}

/// What a client says first: that it has heard id and cookie.
fn thanks(Offer(id, number): Offer) -> Vec<u8> {
    from_peer(id.0, &[ack(Channel::Control, 0), ack(Channel::Game, number)])
}

fn joined(host: &mut End) -> Vec<PeerId> {
    let joined = host.events().into_iter().filter_map(|(event, _)| match event {
        Event::Joined { peer } => Some(peer),
        _ => None,
    });
    joined.collect()
}

fn strict() -> Config {
    Config { prove: Prove::Ack, ..plain() }
}

/// T-52, T-75: who acknowledges its cookie is a peer, and is told names then, not before.
#[test]
fn who_acknowledges_its_cookie_joins() {
    let mut net = Net::joined(&strict(), 1);
    let name = utf16("Ann");
    net.clients[0].endpoint.identify(Text::new(&name).expect("UTF-16LE"), net.now).expect("a peer hears");
    net.settle();
    let host = &mut net.host;
    let offer = ask(host, 9, 5, START).expect("an answer");
    assert_eq!(host.timeline(START, ms(4999)), [""; 0], "nothing is said unasked");
    assert_eq!((joined(host), host.endpoint.address(offer.0)), (vec![], None));
    host.hear_from(address(9), &thanks(offer), ms(4999));
    assert_eq!(joined(host), [offer.0]);
    assert_eq!(host.endpoint.address(offer.0), Some(address(9)));
    assert_eq!(host.says(ms(4999)), ["identity seq=1: peer 2 at 10.20.0.1 is \"Ann\""]);
    host.hear_from(address(9), &from_peer(offer.0.0, &[identity(1, offer.0.0, &name)]), ms(5000));
    assert!(host.says(ms(5000)).contains(&"ack control seq=1".to_owned()), "the request was number 0");
}

/// T-76: bcnet's own client acknowledges its cookie, and nothing of it stays anywhere.
#[test]
fn a_client_joins_by_itself_and_the_cookie_leaves_no_trace() {
    for secret in 0..200 {
        let endpoint = Endpoint::host(Config { ids: Ids::Random, ..strict() }).with_secret(secret);
        let mut net = Net::joined(&strict(), 0);
        net.host.endpoint = endpoint;
        net.clients.push(End::client(strict(), 1, START));
        let request = net.clients[0].flush(START);
        net.deliver(&request[0]);
        net.host.events();
        let id = net.host.endpoint.challenge(address(1), START).expect("a free id");
        net.settle();
        assert_eq!(joined(&mut net.host), [id]);
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
                (snapshot.unacknowledged.len(), snapshot.acks.len(), snapshot.queued_bytes),
                (0, 0, 0)
            );
            assert!(snapshot.receiving.iter().all(|receiving| receiving.held == 0));
        }
    }
}

/// T-75: whatever is sent in the name of an address that has proved nothing, it gets no more bytes than that.
#[test]
fn a_stranger_gets_no_more_bytes_than_it_sent() {
    let mut net = Net::joined(&strict(), 3);
    let name = utf16(&"x".repeat(100));
    for client in &mut net.clients {
        client.endpoint.identify(Text::new(&name).expect("UTF-16LE"), START).expect("a peer hears");
    }
    net.settle();
    let host = &mut net.host;
    let guess = |id: u8, number: u16| from_peer(id, &[ack(Channel::Control, 0), ack(Channel::Game, number)]);
    let mut dice = Dice(5);
    for step in 0..4000_u64 {
        let now = ms(10 * step);
        let stranger = address(100 + u16::try_from(step % 3).expect("small"));
        let bytes = match dice.below(8) {
            0..=2 => connect(u32::try_from(dice.below(3)).expect("small")),
            3 => from_peer(0xFF, &[disconnect(1, 0xFF)]),
            4 => from_peer(5 + u8::try_from(dice.below(9)).expect("small"), &[Message::Keepalive]),
            5 => from_peer(5, &[identity(1, 5, &name)]),
            6 => from_peer(7, &[reliable(0, b"data")]),
            _ => guess(
                5 + u8::try_from(dice.below(9)).expect("small"),
                0x4000 + u16::try_from(step).expect("small"),
            ),
        };
        let (sent, mut got) = (bytes.len(), 0);
        host.hear_from(stranger, &bytes, now);
        if dice.below(2) == 0 {
            let _ = host.endpoint.challenge(stranger, now);
        } else {
            let _ = host.endpoint.refuse(stranger, BootReason::FULL, now);
        }
        for packet in host.flush(now).iter().filter(|packet| packet.to == stranger) {
            got += packet.bytes.len();
        }
        assert!(got <= sent, "{got} bytes for {sent}");
    }
    assert_eq!(joined(host), [], "nor does anybody join");
    assert_eq!(host.endpoint.peers().count(), 3);
}

/// T-75: an address is told the same again, but not more than five times a second.
#[test]
fn an_address_is_offered_the_same_again() {
    let mut host = End::host(strict());
    let first = ask(&mut host, 1, 7, START).expect("an answer");
    assert_eq!(ask(&mut host, 1, 7, before(ms(200))), None);
    assert_eq!(ask(&mut host, 1, 7, ms(200)), Some(first));
    assert_eq!(ask(&mut host, 1, 8, ms(1200)), Some(first), "under another nonce, too");
    assert_ne!(
        ask(&mut host, 2, 7, ms(1200)).map(|offer| offer.0),
        Some(first.0),
        "another address, another id"
    );
    // Whoever takes longer than a second to hear the first answer has asked twice.
    host.hear_from(address(1), &thanks(first), ms(2500));
    assert_eq!(joined(&mut host), [first.0]);
}

/// T-50: ids are drawn from all that are free, and those who come together get different ones.
#[test]
fn ids_are_drawn_among_the_free() {
    let mut seen = [0_u32; 128];
    for secret in 0..300 {
        let endpoint = Endpoint::host(Config { ids: Ids::Random, ..strict() }).with_secret(secret);
        let mut host = End::host(strict());
        host.endpoint = endpoint;
        let mut ids: Vec<PeerId> =
            (1..=20).filter_map(|n| ask(&mut host, n, 1, START)).map(|offer| offer.0).collect();
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

/// T-76: a flood washes offers away, and who has heard one is let in all the same, after a second cookie.
#[test]
fn a_flood_keeps_nobody_out() {
    for ids in [Ids::Sequential, Ids::Random] {
        let mut host = End::host(strict());
        host.endpoint = Endpoint::host(Config { ids, ..strict() }).with_secret(1701);
        let offer = ask(&mut host, 1, 7, START).expect("an answer");
        for n in 0..5000 {
            assert!(ask(&mut host, 1000 + n, 1, ms(100)).is_some(), "everyone is answered");
        }
        host.hear_from(address(1), &thanks(offer), ms(300));
        assert_eq!(joined(&mut host), []);
        let packet = host.flush(ms(300)).pop().expect("an answer");
        let (Delivery::Reliable(Seq(second)), _) = packet.data()[0].clone() else { panic!("a cookie") };
        assert_eq!((packet.to, packet.bytes.len()), (address(1), 7));
        // It is lost. What the client repeats asks for it again.
        host.hear_from(address(1), &thanks(offer), ms(960));
        assert_eq!(host.flush(ms(960)), [packet]);
        host.hear_from(address(1), &thanks(Offer(offer.0, second)), ms(1100));
        assert_eq!(joined(&mut host), [offer.0], "{ids:?}");
    }
}

/// T-76: a number that was never sent ends an offer that was kept, so that it cannot be found by trying.
#[test]
fn a_second_cookie_can_be_guessed_once() {
    let mut host = End::host(strict());
    let offer = ask(&mut host, 1, 7, START).expect("an answer");
    assert!((0..100).all(|n| ask(&mut host, 1000 + n, 1, ms(100)).is_some()));
    host.hear_from(address(1), &thanks(offer), ms(300));
    let packet = host.flush(ms(300)).pop().expect("an answer");
    let (Delivery::Reliable(Seq(second)), _) = packet.data()[0].clone() else { panic!("a cookie") };
    host.hear_from(address(1), &thanks(Offer(offer.0, second ^ 1)), ms(400));
    host.hear_from(address(1), &thanks(Offer(offer.0, second)), ms(500));
    assert_eq!(joined(&mut host), []);
}

/// T-76: who speaks under its id but acknowledges no cookie is let in after a second, if nothing speaks against it; or at
/// once, or never, as the host is told.
#[test]
fn who_acknowledges_no_cookie_may_be_let_in_by_its_id() {
    let speak = |host: &mut End, offer: Offer, now| {
        let name = utf16("Ann");
        let words = [ack(Channel::Control, 0), identity(1, offer.0.0, &name)];
        host.hear_from(address(1), &from_peer(offer.0.0, &words), now);
        joined(host)
    };
    for (prove, at_once, later) in [(Prove::Auto, 0, 1), (Prove::Ack, 0, 0), (Prove::Id, 1, 0)] {
        let mut host = End::host(Config { prove, ..plain() });
        let offer = ask(&mut host, 1, 7, START).expect("an answer");
        assert_eq!(speak(&mut host, offer, before(ms(1000))).len(), at_once, "{prove:?}");
        assert_eq!(speak(&mut host, offer, ms(1000)).len(), later, "{prove:?}");
    }
    // A forger has shown itself within the last ten minutes.
    for (forged, let_in) in [(590, 0), (601, 1)] {
        let mut host = End::host(plain());
        let other = ask(&mut host, 2, 7, START).expect("an answer");
        host.hear_from(address(2), &from_peer(other.0.0 + 1, &[Message::Keepalive]), START);
        let offer = ask(&mut host, 1, 7, ms(1000 * forged)).expect("an answer");
        assert_eq!(speak(&mut host, offer, ms(1000 * forged + 1000)).len(), let_in, "{forged} s later");
    }
}

/// T-75: who lost the ACK of its cookie on the way says something else under its id, and gets the cookie again.
#[test]
fn a_cookie_is_sent_again_to_who_goes_on_without_it() {
    let mut host = End::host(strict());
    let offer = ask(&mut host, 1, 7, START).expect("an answer");
    host.hear_from(address(1), &from_peer(offer.0.0, &[identity(1, offer.0.0, &utf16("Ann"))]), ms(1000));
    assert_eq!(host.says(ms(1000)), [format!("data seq={} 0 bytes", offer.1)]);
    host.hear_from(address(1), &thanks(offer), ms(1100));
    assert_eq!(joined(&mut host), [offer.0]);
}

/// T-53: a forged request, with whatever nonce, changes nothing for a peer that is heard.
#[test]
fn a_peer_that_lives_is_not_replaced() {
    let mut host = puppet(strict());
    for step in 0..600_u64 {
        let now = ms(100 * step);
        if step % 10 == 0 {
            host.hear_from(address(1), &from_peer(2, &[Message::Keepalive]), now);
        }
        host.send(PeerId(2), b"x", now);
        let out = host.says(now);
        assert!(out.iter().any(|said| said.contains("data")), "{out:?}");
        let seq = u16::try_from(step).expect("small");
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), now);
        assert_eq!(ask(&mut host, 1, 1000 + u32::from(seq), now), None);
    }
    assert_eq!(host.left(), []);
    assert_eq!(host.endpoint.rejected().count(Cause::Impostor), 600);
}

/// T-53, T-77: a request at the address of an idle peer holds its messages up until it is heard, and no longer; a word
/// without an id is no sign of life.
#[test]
fn an_idle_peer_is_asked_for_a_sign_of_life() {
    let mut host = puppet(strict());
    assert_eq!(ask(&mut host, 1, 99, before(ms(2000))), None);
    let offer = ask(&mut host, 1, 99, ms(2000)).expect("an answer");
    assert_ne!(offer.0, PeerId(2));
    host.send(PeerId(2), b"for the old one", ms(2000));
    host.hear_from(address(1), &from_peer(0xFF, &[disconnect(1, 0xFF)]), ms(2010));
    assert_eq!(host.timeline(ms(2010), ms(2039)), ["2.010 ack control seq=1"]);
    // A stock client acknowledges reply and cookie, whatever it thinks of them.
    host.hear_from(address(1), &thanks(Offer(PeerId(2), offer.1)), ms(2040));
    assert_eq!(host.says(ms(2040)), ["data seq=0 15 bytes"]);
    assert_eq!(host.left(), []);
    // The offer is withdrawn.
    host.hear_from(address(1), &thanks(offer), ms(2050));
    assert_eq!((host.left(), joined(&mut host)), (vec![], vec![]));
    assert_eq!(ask(&mut host, 1, 100, ms(4039)), None, "for two seconds it is known to live");
}

/// T-53, T-77: a client that was started anew proves itself, and only then is the old peer gone.
#[test]
fn a_client_that_was_started_anew_takes_the_place_of_the_old() {
    let mut net = Net::joined(&strict(), 2);
    net.run(ms(3000));
    net.host.send(PeerId(2), b"for the old one", net.now);
    net.clients[0] = End::client_at(strict(), address(1), 99, net.now);
    let request = net.clients[0].flush(net.now);
    net.deliver(&request[0]);
    let id = net.host.endpoint.challenge(address(1), net.now).expect("a free id");
    assert_eq!(net.host.left(), [], "it has proved nothing yet");
    let answer = net.host.flush(net.now);
    assert!(
        answer.iter().all(|packet| packet.data().iter().all(|(_, payload)| payload.is_empty())),
        "{answer:?}"
    );
    answer.iter().for_each(|packet| net.deliver(packet));
    net.settle();
    let events = net.host.events();
    let gone = Event::Left { peer: PeerId(2), reason: Leave::Replaced };
    assert_eq!(events, [(gone, vec![]), (Event::Joined { peer: id }, vec![])]);
    assert_eq!(net.clients[1].left(), [(PeerId(2), Leave::Disconnected)]);
    net.host.send(id, b"for the new one", net.now);
    net.run(ms(4000));
    assert_eq!(net.clients[0].received(), [b"for the new one"]);
}

/// T-53: after two and a half keepalives of silence a request is enough; before that it is not.
#[test]
fn a_silent_peer_gives_way_to_a_request() {
    for (at, left) in [(12_499, false), (12_500, true)] {
        let mut host = puppet(strict());
        host.timeline(START, ms(at));
        host.events();
        assert!(ask(&mut host, 1, 99, ms(at)).is_some());
        assert_eq!(!host.left().is_empty(), left, "{at} ms");
    }
    // Whoever was answered shortly before has the time to prove itself.
    let mut host = puppet(strict());
    host.send(PeerId(2), b"x", ms(2000));
    host.timeline(START, ms(12_400));
    let offer = ask(&mut host, 1, 99, ms(12_400)).expect("an answer");
    assert_eq!(host.timeline(ms(12_400), ms(18_390)), Vec::<String>::new());
    host.hear_from(address(1), &thanks(offer), ms(18_390));
    assert_eq!(joined(&mut host), [offer.0]);
    // If nobody proves itself the old peer is heard again, and is what it was.
    let mut host = puppet(strict());
    assert!(ask(&mut host, 1, 99, ms(3000)).is_some());
    host.send(PeerId(2), b"x", ms(3000));
    let said = host.timeline(ms(3000), ms(12_500));
    assert_eq!(said.first().map(String::as_str), Some("12.500 data seq=0 1 byte"), "{said:?}");
}

/// S-11, T-53: a wrong password changes nothing for the peer at that address.
#[test]
fn a_refused_request_leaves_the_peer_at_its_address_alone() {
    let mut host = puppet(strict());
    host.send(PeerId(2), b"x", ms(3000));
    host.hear_from(address(1), &connect(99), ms(3000));
    assert_eq!(host.endpoint.refuse(address(1), BootReason::WRONG_PASSWORD, ms(3000)), Ok(()));
    let said = host.says(ms(3000));
    assert!(said.contains(&"data seq=0 1 byte".to_owned()), "{said:?}");
    assert_eq!(host.left(), []);
}

/// T-77: what is queued while a peer is contested, booted or gone, does no harm.
#[test]
fn a_contested_peer_can_leave_be_booted_and_fall_silent() {
    let contested = || {
        let mut host = puppet(strict());
        assert!(ask(&mut host, 1, 99, ms(3000)).is_some());
        host
    };
    let mut host = contested();
    assert_eq!(host.endpoint.boot(PeerId(2), BootReason::KICKED, ms(3100)), Ok(()));
    assert_eq!(host.left(), [(PeerId(2), Leave::Booted(BootReason::KICKED))]);
    assert_eq!(host.says(ms(3100)), ["boot seq=1: peer 2, kicked"]);
    let mut host = contested();
    host.endpoint.leave(ms(3100));
    assert_eq!(host.says(ms(3100)).len(), 1, "its goodbye");
    let mut host = contested();
    host.timeline(ms(3000), ms(44_999));
    assert_eq!(host.left(), []);
    host.timeline(ms(44_999), ms(45_000));
    assert_eq!(host.left(), [(PeerId(2), Leave::Silent)]);
    host.timeline(ms(45_000), ms(60_000));
    assert!(host.endpoint.is_closed());
    assert_eq!(host.endpoint.next_timeout(), None);
}
