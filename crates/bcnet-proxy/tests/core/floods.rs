//! Forged addresses take no source from others, and cannot flood others through the proxy.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_lab::Rng;
use bcnet_proxy::{DatagramTarget, OutboundBytes, Proxy, ProxyConfig, ProxyEvent, RefusalReason};
use bcnet_transport::wire::{Ack, Body, Channel, Control, Datagram, Message, MessageId, PeerId, Role, Seq};

use crate::admission::answer_goodbyes;
use crate::clients::{assign_id, client, cookie_in, events, pool};
use crate::{WireAndPlaintext, ack, at, connect, data, state_update};

fn forged_address(rng: &mut Rng) -> SocketAddrV4 {
    let number = u32::try_from(rng.between(0, 65_000 * 256 - 1)).expect("small");
    SocketAddrV4::new(Ipv4Addr::from(0x0B00_0000 + number), 22101)
}

/// 150 forged requests a second for a minute. Every ten seconds a real client comes, asks every second as games do,
/// and needs a fifth of a second to answer.
#[test]
fn forged_requests_do_not_exhaust_the_source_pool() {
    for size in [1, 8, 250] {
        let mut proxy = Proxy::new(ProxyConfig { sources: pool(size), ..ProxyConfig::default() });
        let (mut rng, request) = (Rng::new(7), connect(1));
        let mut waits = Vec::new();
        let (mut source, mut is_in, mut next_id) = (None, false, 3);
        for step in 0..9_000_u64 {
            let millis = step * 1000 / 150;
            proxy.handle_timeout(at(millis));
            answer_goodbyes(&mut proxy, millis);
            let forged = forged_address(&mut rng);
            let output = proxy.handle_client(forged, request.inbound(Role::Client), at(millis));
            if let Some((DatagramTarget::Server(number), _)) = output.forward {
                // A server never assigns an id twice.
                next_id = if next_id == 80 { 3 } else { next_id + 1 };
                assign_id(&mut proxy, number, PeerId(next_id), millis);
            }
            let (round, elapsed) = (millis / 10_000, millis % 10_000);
            let who = client(u8::try_from(round).expect("few"));
            if elapsed == 0 {
                (source, is_in) = (None, false);
            }
            if elapsed % 1_000 == 0 && source.is_none() {
                let output = proxy.handle_client(who, request.inbound(Role::Client), at(millis));
                if let Some((DatagramTarget::Server(number), _)) = output.forward {
                    let cookie = assign_id(&mut proxy, number, PeerId(2), millis).expect("a cookie");
                    source = Some((number, millis, cookie));
                }
            }
            if let Some((number, since, cookie)) = source
                && millis >= since + 200
                && !is_in
            {
                assert_eq!(
                    proxy.client_address(number),
                    Some(who),
                    "it keeps its source until it has answered"
                );
                proxy.handle_client(
                    who,
                    WireAndPlaintext::new(PeerId(2), &[ack(cookie)]).inbound(Role::Client),
                    at(millis),
                );
                let proves = |event: &ProxyEvent| matches!(event, ProxyEvent::Verified { client, .. } if *client == who);
                assert!(events(&mut proxy).iter().any(proves));
                is_in = true;
                waits.push(elapsed);
                // Frees the source for others.
                proxy.close_source(number);
            }
            events(&mut proxy);
        }
        assert!(waits.len() == 6 && waits.iter().all(|wait| *wait <= 4_300), "pool of {size}: {waits:?}");
    }
}

/// A forger directs the server's answers to a third party.
#[test]
fn unverified_client_gets_little_more_than_it_sends() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(8), ..ProxyConfig::default() });
    let (request, victim) = (connect(1), client(9));
    let answer = WireAndPlaintext::new(PeerId::HOST, &[data(1), state_update(), data(2), state_update()]);
    let mut sent: Vec<(u64, usize, usize)> = Vec::new();
    for second in 0..3_600_u64 {
        // Now and then the client is silent until the proxy has forgotten it.
        if second % 100 > 80 {
            proxy.handle_timeout(at(second * 1000));
            continue;
        }
        let output = proxy.handle_client(victim, request.inbound(Role::Client), at(second * 1000));
        let Some((DatagramTarget::Server(number), _)) = output.forward else { continue };
        let mut out = 0;
        for _ in 0..20 {
            let passed = proxy.handle_server(number, answer.inbound(Role::Host), at(second * 1000));
            out += passed.forward.map_or(0, |(_, bytes)| bytes.as_slice().len());
        }
        sent.push((second, request.wire.len(), out));
        events(&mut proxy);
    }
    for (end, ..) in &sent {
        let last: Vec<_> = sent.iter().filter(|(at, ..)| at <= end && at + 10 > *end).collect();
        let (bytes_in, out) = last.iter().fold((0, 0), |(i, o), (_, bytes, out)| (i + bytes, o + out));
        assert!(out <= 3 * bytes_in, "{out} for {bytes_in}");
    }
    let (bytes_in, out) = sent.iter().fold((0, 0), |(i, o), (_, bytes, out)| (i + bytes, o + out));
    assert!(out <= bytes_in + 7 * 1200, "{out} for {bytes_in} in an hour");
    assert!(proxy.refused(RefusalReason::Unverified) > 10_000);
}

/// A stock server puts the names of all players into the datagram with the id. An unverified client gets the id and
/// its cookie alone, again after every request, within the byte limits of an unverified client.
#[test]
fn id_reply_passes_without_the_rest_of_its_datagram() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(1), ..ProxyConfig::default() });
    let id = Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned: PeerId(2) }));
    let request_id = MessageId { channel: Channel::Control, seq: Seq(0), fragment: None };
    let messages = [vec![Message::Ack(Ack::new(request_id)), id], vec![data(1); 40]].concat();
    let long = WireAndPlaintext::new(PeerId::HOST, &messages);
    assert!((300..=400).contains(&long.wire.len()));
    let (request, mut sent, mut passed, mut cookie) = (connect(1), 0, 0, 0);
    for round in 0..10 {
        let millis = round * 250;
        sent += request.wire.len();
        let output = proxy.handle_client(client(9), request.inbound(Role::Client), at(millis));
        // The server gets the request once. Afterwards the proxy repeats the offer itself.
        assert_eq!((output.forward.is_some(), output.answer.is_some()), (round == 0, round > 0));
        let mut bytes = output.answer.map(|(_, bytes)| bytes.to_wire());
        for _ in 0..20 {
            let forward = proxy.handle_server(0, long.inbound(Role::Host), at(millis)).forward;
            let again = forward.map(|(_, bytes)| bytes.to_wire());
            assert!(again.is_none() || bytes.is_none(), "one copy after a request");
            bytes = bytes.or(again);
        }
        let bytes = bytes.expect("an offer");
        cookie = cookie_in(&bytes).expect("a cookie");
        let plain = WireAndPlaintext::from_wire(&bytes).plaintext;
        let datagram = Datagram::parse(&plain, Some(Role::Host)).expect("well formed");
        let expected = [&messages[..2], &[bcnet_transport::cookie_message(Seq(cookie))]].concat();
        assert_eq!(datagram.messages().collect::<Vec<_>>(), expected);
        passed += bytes.len();
    }
    assert!(passed <= sent, "{passed} for {sent}");
    let proof = WireAndPlaintext::new(PeerId(2), &[ack(cookie)]);
    proxy.handle_client(client(9), proof.inbound(Role::Client), at(2_500));
    let whole = proxy.handle_server(0, long.inbound(Role::Host), at(2_500)).forward;
    assert_eq!(
        whole,
        Some((DatagramTarget::Client(client(9)), OutboundBytes::Wire(&long.wire))),
        "a verified client gets the whole datagram"
    );
}

#[test]
fn verified_client_gets_all_datagrams() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(8), ..ProxyConfig::default() });
    proxy.handle_client(client(1), connect(1).inbound(Role::Client), at(0));
    let cookie = assign_id(&mut proxy, 0, PeerId(7), 2).expect("a cookie");
    assert_eq!(events(&mut proxy).len(), 1);
    // The id alone proves nothing.
    proxy.handle_client(client(1), WireAndPlaintext::new(PeerId(7), &[ack(0)]).inbound(Role::Client), at(3));
    assert!(!events(&mut proxy).iter().any(|event| matches!(event, ProxyEvent::Verified { .. })));
    let proof = WireAndPlaintext::new(PeerId(7), &[ack(cookie)]);
    proxy.handle_client(client(1), proof.inbound(Role::Client), at(4));
    assert!(matches!(events(&mut proxy).as_slice(), [ProxyEvent::Verified { .. }]));
    let long = WireAndPlaintext::from_plaintext(&[PeerId::HOST.0; 500]);
    for millis in 5..100 {
        assert!(proxy.handle_server(0, long.inbound(Role::Host), at(millis)).forward.is_some());
    }
}

/// S-07: a network gets no more answers through the proxy than from a server. In a flood, clients that ask again
/// get an answer.
#[test]
fn forged_queries_neither_amplify_nor_block_honest_answers() {
    let mut proxy = Proxy::new(ProxyConfig::default());
    let (question, answer) =
        (WireAndPlaintext::from_wire(b"\\status\\"), WireAndPlaintext::from_wire(&[b'\\'; 420]));
    let (mut rng, mut answered) = (Rng::new(3), 0);
    let mut to_victims: Vec<(u64, usize)> = Vec::new();
    let mut waits = false;
    for step in 0..400_000_u64 {
        let millis = step / 20;
        let mut ask = |from: SocketAddrV4| {
            let output = proxy.handle_client(from, question.inbound(Role::Client), at(millis));
            let Some((DatagramTarget::Server(number), _)) = output.forward else { return 0 };
            let passed = proxy.handle_server(number, answer.inbound(Role::Host), at(millis));
            let bytes = passed.forward.map_or(0, |(_, bytes)| bytes.as_slice().len());
            while proxy.poll_event().is_some() {}
            bytes
        };
        ask(forged_address(&mut rng));
        if step % 10 == 0 {
            let victim = SocketAddrV4::new([198, 51, 100, (step % 251) as u8].into(), 53);
            let bytes = ask(victim);
            to_victims.extend((bytes > 0).then_some((millis, bytes)));
        }
        // Asks three times, and then pauses.
        if step % 20 == 0 && [0, 1_700, 3_400].contains(&(millis % 5_000)) {
            waits |= millis % 5_000 == 0;
            if waits && ask(client(1)) > 0 {
                (waits, answered) = (false, answered + 1);
            }
        }
    }
    assert_eq!(answered, 4, "an answer to each series of queries");
    let most = to_victims.iter().map(|(end, _)| {
        let inside = |(time, _): &&(u64, usize)| time <= end && time + 10_000 > *end;
        to_victims.iter().filter(inside).map(|(_, bytes)| bytes).sum::<usize>()
    });
    assert!(most.max().is_some_and(|most| most <= 26_000));
    assert!(proxy.refused(RefusalReason::QueryLimit) > 300_000);
}

/// S-07: a few forged queries from the network of a client do not hide the server behind the proxy from it.
#[test]
fn forged_queries_of_a_network_do_not_hide_the_server_behind_the_proxy() {
    let question = WireAndPlaintext::from_wire(b"\\status\\");
    for (rate, addresses, len) in [(2, 256, 420), (2, 1, 700), (2, 8, 700), (10, 8, 700)] {
        let mut proxy = Proxy::new(ProxyConfig::default());
        let answer = WireAndPlaintext::from_wire(&vec![b'\\'; len]);
        let mut rng = Rng::new(rate);
        let mut ask = |last: u64, millis| {
            let from = SocketAddrV4::new([198, 51, 100, u8::try_from(last).expect("small")].into(), 4000);
            let output = proxy.handle_client(from, question.inbound(Role::Client), at(millis));
            let Some((DatagramTarget::Server(number), _)) = output.forward else { return false };
            let is_answered =
                proxy.handle_server(number, answer.inbound(Role::Host), at(millis)).forward.is_some();
            proxy.handle_timeout(at(millis));
            while proxy.poll_event().is_some() {}
            is_answered
        };
        let (mut answered, mut is_waiting) = (0, false);
        for millis in 0..300_000 {
            if millis % (1000 / rate) == 0 {
                ask(if addresses == 1 { 7 } else { (rng.between(0, addresses - 1) + 8) & 0xFF }, millis);
            }
            if [0, 1_700, 3_400].contains(&(millis % 5_000)) {
                is_waiting |= millis % 5_000 == 0;
                if is_waiting && ask(7, millis) {
                    (answered, is_waiting) = (answered + 1, false);
                }
            }
        }
        assert!(answered >= 57, "{answered} of 60: {rate} per second, {addresses} addresses, {len} bytes");
    }
}

/// S-05: two servers that answer each other's replies would never stop.
#[test]
fn query_answers_are_not_forwarded_to_the_server() {
    let mut proxy = Proxy::new(ProxyConfig::default());
    let answer = WireAndPlaintext::from_wire(b"\\echo\\status\\final\\\\queryid\\1.1");
    let output = proxy.handle_client(client(1), answer.inbound(Role::Client), at(0));
    assert_eq!(
        (output.forward, output.answer, output.refusal),
        (None, None, Some(RefusalReason::UnsolicitedAnswer))
    );
    assert_eq!(proxy.next_timeout(), None, "no state is kept of it");
}

/// S-07
#[test]
fn named_list_servers_always_pass_the_query_limit() {
    let mut proxy = Proxy::new(ProxyConfig::default());
    let master = client(200);
    proxy.set_list_servers(vec![*master.ip()]);
    let question = WireAndPlaintext::from_wire(b"\\status\\");
    let mut rng = Rng::new(3);
    for millis in 0..20_000 {
        proxy.handle_client(forged_address(&mut rng), question.inbound(Role::Client), at(millis));
        if millis % 1_000 == 0 {
            let output = proxy.handle_client(master, question.inbound(Role::Client), at(millis));
            assert!(output.forward.is_some(), "{millis} ms: {:?}", output.refusal);
            assert!(proxy.may_answer(*master.ip(), b"\\secure\\ABCDEF", 90, at(millis)));
        }
        proxy.handle_timeout(at(millis));
        events(&mut proxy);
    }
    let stranger = Ipv4Addr::new(198, 51, 100, 1);
    let answered =
        (0..1_000).filter(|_| proxy.may_answer(stranger, b"\\secure\\ABCDEF", 90, at(40_000))).count();
    assert_eq!(
        answered, 8,
        "an answer counts 250 bytes; from half of its 4,000 bytes on, the network gets less"
    );
}
