//! Forged addresses take no source from others, and cannot flood others through the proxy.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_lab::Rng;
use bcnet_proxy::{DatagramTarget, OutboundBytes, Proxy, ProxyConfig, ProxyEvent, RefusalReason};
use bcnet_transport::wire::{Ack, Body, Channel, Control, Datagram, Message, MessageId, PeerId, Role, Seq};

use crate::clients::{client, events, pool};
use crate::{WireAndPlaintext, ack, at, connect, connect_reply, data, state_update};

fn forged_address(rng: &mut Rng) -> SocketAddrV4 {
    let number = u32::try_from(rng.between(0, 65_000 * 256 - 1)).expect("small");
    SocketAddrV4::new(Ipv4Addr::from(0x0B00_0000 + number), 22101)
}

/// Assigns an id to a client, with the server's first message.
fn assign_id(proxy: &mut Proxy, source: u32, id: u8, millis: u64) -> bool {
    proxy.handle_server(source, connect_reply(PeerId(id)).inbound(Role::Host), at(millis)).forward.is_some()
}

/// 150 forged requests a second for a minute. Every ten seconds a real client comes, asks every second as games do,
/// and needs a fifth of a second to answer.
#[test]
fn forged_requests_do_not_exhaust_the_source_pool() {
    for size in [1, 8, 250] {
        let mut proxy = Proxy::new(ProxyConfig { sources: pool(size), ..ProxyConfig::default() });
        let (mut rng, request) = (Rng::new(7), connect(1));
        let mut waits = Vec::new();
        let (mut source, mut is_in) = (None, false);
        for step in 0..9_000_u64 {
            let millis = step * 1000 / 150;
            proxy.handle_timeout(at(millis));
            proxy.handle_client(forged_address(&mut rng), request.inbound(Role::Client), at(millis));
            let (round, elapsed) = (millis / 10_000, millis % 10_000);
            let who = client(u8::try_from(round).expect("few"));
            if elapsed == 0 {
                (source, is_in) = (None, false);
            }
            if elapsed % 1_000 == 0 && source.is_none() {
                let output = proxy.handle_client(who, request.inbound(Role::Client), at(millis));
                if let Some((DatagramTarget::Server(number), _)) = output.forward {
                    assert!(assign_id(&mut proxy, number, 2, millis));
                    source = Some((number, millis));
                }
            }
            if let Some((number, since)) = source
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
                    WireAndPlaintext::new(PeerId(2), &[ack(0)]).inbound(Role::Client),
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

/// A stock server puts the names of all players into the datagram with the id. An unverified client gets the id
/// alone, once or more after every request, within the byte limits of an unverified client.
#[test]
fn id_reply_passes_without_the_rest_of_its_datagram() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(1), ..ProxyConfig::default() });
    let id = Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned: PeerId(2) }));
    let request = MessageId { channel: Channel::Control, seq: Seq(0), fragment: None };
    let messages = [vec![Message::Ack(Ack::new(request)), id], vec![data(1); 40]].concat();
    let long = WireAndPlaintext::new(PeerId::HOST, &messages);
    assert!((300..=400).contains(&long.wire.len()));
    let (mut sent, mut passed) = (0, 0);
    for round in 0..1_000 {
        let request = connect(round);
        sent += request.wire.len();
        proxy.handle_client(client(9), request.inbound(Role::Client), at(0));
        let mut in_round = 0;
        for repeat in 0..20 {
            let output = proxy.handle_server(0, long.inbound(Role::Host), at(0));
            let Some((DatagramTarget::Client(to), OutboundBytes::Plaintext(bytes))) = output.forward else {
                assert!(repeat > 0, "the first after a request passes");
                continue;
            };
            let datagram = Datagram::parse(bytes, Some(Role::Host)).expect("well formed");
            assert_eq!((to, datagram.messages().collect::<Vec<_>>().as_slice()), (client(9), &messages[..2]));
            in_round += bytes.len();
        }
        assert!(in_round <= 3 * request.wire.len(), "{in_round}");
        passed += in_round;
    }
    assert!(passed <= sent + 1_200, "{passed} for {sent}");
    proxy.handle_client(client(9), WireAndPlaintext::new(PeerId(2), &[ack(0)]).inbound(Role::Client), at(1));
    let whole = proxy.handle_server(0, long.inbound(Role::Host), at(1)).forward;
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
    // An id that was not assigned proves nothing.
    proxy.handle_client(client(1), WireAndPlaintext::new(PeerId(2), &[ack(0)]).inbound(Role::Client), at(1));
    assert!(assign_id(&mut proxy, 0, 7, 2));
    proxy.handle_client(client(1), WireAndPlaintext::new(PeerId(2), &[ack(0)]).inbound(Role::Client), at(3));
    assert_eq!(events(&mut proxy).len(), 1);
    proxy.handle_client(client(1), WireAndPlaintext::new(PeerId(7), &[ack(0)]).inbound(Role::Client), at(4));
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
    assert_eq!(answered, 4, "the query and its answer count 250 bytes each of the address's 3,200");
}
