//! Regression tests for faults that simulations found, each reduced to a minimum.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::scenario::EngineKind;
use bcnet_lab::{Faults, RunOptions, Scenario, World};
use bcnet_transport::wire::{
    Ack, Body, Channel, Control, Datagram, Message, MessageId, PeerId, Role, Seq, Writer,
};
use bcnet_transport::{Config, DeliveryMode, Endpoint, Engine, Event, Time};

const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// T-64: no state is left once all fragments of a message have arrived, so the peer is not removed 360 s
/// later.
#[test]
fn delivered_split_message_does_not_time_out_the_peer() {
    let faults = Faults { delay: Duration::from_millis(25), ..Faults::default() };
    let mut world = World::pair(faults, 1, &Config::default(), Duration::ZERO);
    let now = world.now();
    world.node_mut(0).send(PeerId(2), &[7; 1000], DeliveryMode::Reliable, now).expect("joined");
    assert_no_peer_leaves(&mut world);
}

/// T-64: the same for messages that waited for an earlier one.
#[test]
fn overtaken_message_does_not_time_out_the_peer() {
    let faults = Faults {
        delay: Duration::from_millis(25),
        reorder: 0.5,
        reorder_by: Duration::from_millis(30),
        ..Faults::default()
    };
    for seed in 1..20 {
        let mut world = World::pair(faults.clone(), seed, &Config::default(), Duration::ZERO);
        for _ in 0..4 {
            let now = world.now() + Duration::from_millis(1);
            world.run(now, |_, _, _, _, _| {});
            world.node_mut(0).send(PeerId(2), &[7; 10], DeliveryMode::Reliable, now).expect("joined");
        }
        assert_no_peer_leaves(&mut world);
    }
}

/// Asserts that no peer leaves within ten minutes.
fn assert_no_peer_leaves(world: &mut World) {
    world.run(world.now() + Duration::from_secs(600), |node, event, _, _, now| {
        if let Event::Left { peer, reason } = event {
            panic!("at {now} {peer} left node {node}: {reason}");
        }
    });
}

/// T-51: game data that overtakes the host's reply is not acknowledged before it can be delivered.
#[test]
fn data_overtaking_the_connect_reply_is_not_lost() {
    let faults = Faults { loss: 0.3, delay: Duration::from_millis(25), ..Faults::default() };
    for seed in 1..50 {
        let mut world = World::new(faults.clone(), seed);
        world.add_endpoint(Endpoint::host(Config::default()), Duration::ZERO);
        world.add_client(Config::default(), 1, Duration::ZERO);
        let mut sent = 0;
        let mut heard = Vec::new();
        for step in 0..300 {
            let now = Time::ZERO + Duration::from_millis(100 * step);
            world.run(now, |node, event, bytes, endpoint, now| match event {
                Event::Request { from, .. } => assert!(endpoint.admit(from, now).is_ok()),
                Event::Received { .. } if node == 1 => heard.push(bytes[0]),
                _ => {}
            });
            if world.node(0).peers().next().is_some() && sent < 10 {
                world.node_mut(0).send(PeerId(2), &[sent], DeliveryMode::Reliable, now).expect("joined");
                sent += 1;
            }
        }
        assert_eq!(heard, (0..10).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// T-62: a message that a peer never acknowledges is retransmitted at growing intervals.
///
/// The peer acknowledges all other messages, and any number of later messages overtake it.
#[test]
fn unacknowledged_message_is_retransmitted_with_backoff() {
    let (mut host, mut now) = host_with_client(Config { cipher: false, ..Config::default() });
    let mut sends = 0;
    for _ in 0..60 * 60 {
        now = now + Duration::from_micros(16_667);
        host.send(PeerId(2), b"x", DeliveryMode::Reliable, now).expect("joined");
        sends += transmit_and_acknowledge(&mut host, now, |id| id.seq != Seq(0)).0;
    }
    assert!((10..60).contains(&sends), "sent {sends} times within a minute");
}

/// T-62: the interval stays within 5 s, also when the peer sends nothing.
#[test]
fn message_to_a_quiet_peer_is_retransmitted_within_5_seconds() {
    let (mut host, mut now) = host_with_client(Config { cipher: false, ..Config::default() });
    host.send(PeerId(2), b"x", DeliveryMode::Reliable, now).expect("joined");
    let (mut sends, mut last, mut longest) = (0, now, Duration::ZERO);
    for step in 0..300_000 {
        now = now + Duration::from_millis(1);
        if step % 5000 == 0 {
            host.handle_datagram(CLIENT, &mut [2, 1, 2], now);
        }
        host.handle_timeout(now);
        let (more, _) = transmit_and_acknowledge(&mut host, now, |_| false);
        if more > 0 {
            longest = longest.max(now.since(last));
            (sends, last) = (sends + more, now);
        }
    }
    assert!(longest <= Duration::from_millis(5_200), "the longest interval is {longest:?}");
    assert!((60..100).contains(&sends), "sent {sends} times in 300 s");
}

/// T-69: the sender never sends a message half the number range ahead of an unacknowledged one.
///
/// A peer would take such a message for an old one and acknowledge it.
#[test]
fn sender_stays_within_the_receive_window() {
    let (mut host, now) = host_with_client(Config { cipher: false, ..Config::default() });
    let mut taken = 0;
    let mut furthest = 0;
    for step in 0..1000 {
        let now = now + Duration::from_millis(step);
        while taken < 40_000 && host.send(PeerId(2), b"", DeliveryMode::Reliable, now).is_ok() {
            taken += 1;
        }
        furthest =
            furthest.max(transmit_and_acknowledge(&mut host, now, |id| (1..0x4000).contains(&id.seq.0)).1);
    }
    let now = now + Duration::from_secs(2);
    let _ = host.send(PeerId(2), b"", DeliveryMode::Urgent, now);
    furthest = furthest.max(transmit_and_acknowledge(&mut host, now, |_| false).1);
    assert!(furthest < 0x4000, "sequence number {furthest} was sent before 0 was acknowledged");
}

/// T-65: a peer that answers fragments with plain ACKs gets every message, and retransmission ends.
///
/// Datagrams are lost and duplicated.
#[test]
fn duplicate_plain_acks_do_not_clear_lost_fragments() {
    let scenario = Scenario::parse(PLAIN_ACKS).expect("the scenario is valid");
    for seed in 1..=40 {
        let options =
            RunOptions { engine: Some(EngineKind::Bcnet), seed: Some(seed), ..RunOptions::default() };
        let missed = bcnet_lab::run(&scenario, &options).missed_expectations(&scenario);
        assert!(missed.is_empty(), "seed {seed}: {missed:?}");
    }
}

const PLAIN_ACKS: &str = r#"
title = "Plain ACKs, lost and doubled"
settle = 10.0
duration = 180.0

[[node]]
name = "host"
role = "host"

[[node]]
name = "client"
role = "client"
hz = 60
plain_acks = true

[[link]]
loss = 0.2
duplicate = 0.2
delay = 0.025
jitter = 0.01

[[send]]
at = 0.0
from = "host"
to = "client"
size = 832
count = 5

[[send]]
at = 1.0
from = "host"
to = "client"
size = 3000
count = 3

[[expect]]
figure = { of = "delivered", node = "client" }
is = 8

[[expect]]
figure = { of = "retx_entries", node = "host", peer = "client", at = 179 }
is = 0
"#;

/// Returns a host with one admitted client, and the time.
fn host_with_client(config: Config) -> (Endpoint, Time) {
    let mut host = Endpoint::host(config);
    let now = Time::from_micros(1_000_000);
    let mut buffer = [0; 512];
    let mut writer = Writer::new(&mut buffer, PeerId::UNASSIGNED);
    let body = Body::ConnectRequest { address: *CLIENT.ip(), nonce: 1, password: Default::default() };
    assert!(writer.push(&Message::Control(Control::new(Seq(0), body))));
    host.handle_datagram(CLIENT, writer.finish().expect("one message"), now);
    assert_eq!(host.admit(CLIENT, now), Ok(PeerId(2)));
    transmit_and_acknowledge(&mut host, now, |_| true);
    (host, now)
}

/// Makes the client acknowledge the messages that `is_acknowledged` accepts, 15 ms later.
///
/// Returns how often game message 0 was sent, and the highest sequence number sent.
fn transmit_and_acknowledge(
    host: &mut Endpoint,
    now: Time,
    is_acknowledged: impl Fn(MessageId) -> bool,
) -> (usize, u16) {
    let (mut ids, mut buffer) = (Vec::new(), [0; 512]);
    host.handle_timeout(now);
    while let Some(transmit) = host.poll_transmit(&mut buffer, now) {
        let datagram =
            Datagram::parse(&buffer[..transmit.len], Some(Role::Host)).expect("the datagram is valid");
        ids.extend(
            datagram.messages().filter(|message| !matches!(message, Message::Ack(_))).filter_map(|m| m.id()),
        );
    }
    let game = ids.iter().filter(|id| id.channel == Channel::Game);
    let result =
        (game.clone().filter(|id| id.seq == Seq(0)).count(), game.map(|id| id.seq.0).max().unwrap_or(0));
    let acknowledged: Vec<_> =
        ids.into_iter().filter(|id| id.channel == Channel::Control || is_acknowledged(*id)).collect();
    for some in acknowledged.chunks(100) {
        let mut writer = Writer::new(&mut buffer, PeerId(2));
        some.iter().for_each(|id| assert!(writer.push(&Message::Ack(Ack::new(*id)))));
        host.handle_datagram(CLIENT, writer.finish().expect("some ACKs"), now + Duration::from_millis(15));
    }
    result
}
