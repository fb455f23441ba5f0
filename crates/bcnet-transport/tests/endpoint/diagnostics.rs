//! Snapshots and counters, in the format of the dumps that were taken of the original.

use std::time::Duration;

use bcnet_transport::wire::{BootReason, Channel, Kind, Message, MessageId, PeerId, PeerQueues, Seq, Text};
use bcnet_transport::{DeliveryMode, Engine, InboxSnapshot, LeaveReason, RejectCause, Unacknowledged};

use crate::net::{
    START, TestEndpoint, TestNet, ack, address, connect, fragment, from_peer, host_with_forged_peer,
    host_with_measured_rtt, identity, ms, pattern, reliable, unencrypted, unreliable,
};

/// T-60, T-61: the dump at the start of a join is like that of the original.
#[test]
fn snapshot_displays_like_original_queue_dumps() {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    host.endpoint.admit(address(1), START).expect("a free id");
    host.flush(START);
    host.receive_from(
        address(1),
        &from_peer(2, &[ack(Channel::Control, 0), ack(Channel::Control, 0)]),
        START,
    );
    for seq in 0..2 {
        host.send(PeerId(2), b"x", ms(100));
        host.flush(ms(100));
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, seq)]), ms(600 + u64::from(seq)));
    }
    host.send(PeerId(2), b"x", ms(700));
    host.flush(ms(700));
    let arrived = [
        identity(1, 2, &[]),
        reliable(0, b""),
        reliable(1, b""),
        fragment(2, 0, 2, b""),
        fragment(2, 1, 2, b""),
    ];
    host.receive_from(address(1), &from_peer(2, &arrived), ms(700));
    let snapshot = host.snapshot(PeerId(2), ms(700));
    let interval = snapshot.rto.as_secs_f32();
    let dump = format!(
        "peer=2 retxQ=1 ackOutQ=5
  retx[0] seq=0x0002 frag=0 rel=1 retx=0 intv={interval:.2}
  ack[0] seq=0x0001 frag=0 below32=1 retx=0
  ack[1] seq=0x0000 frag=0 below32=0 retx=0
  ack[2] seq=0x0001 frag=0 below32=0 retx=0
  ack[3] seq=0x0002 frag=1 idx=0 below32=0 retx=0
  ack[4] seq=0x0002 frag=1 idx=1 below32=0 retx=0"
    );
    assert_eq!(PeerQueues::from(&snapshot).to_string(), dump);
}

/// T-61: before a round-trip time is known the interval is 1.00, as in the original's dumps.
///
/// Fragments show their index.
#[test]
fn interval_is_one_second_before_the_first_rtt_sample() {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    host.endpoint.admit(address(1), START).expect("a free id");
    host.send(PeerId(2), &pattern(0, 500), START);
    host.flush(START);
    host.flush(ms(1000));
    let dump = "peer=2 retxQ=3 ackOutQ=0
  retx[0] seq=0x0000 frag=0 rel=1 retx=1 intv=1.00
  retx[1] seq=0x0000 frag=1 idx=0 rel=1 retx=1 intv=1.00
  retx[2] seq=0x0000 frag=1 idx=1 rel=1 retx=1 intv=1.00";
    assert_eq!(PeerQueues::from(&host.snapshot(PeerId(2), ms(1000))).to_string(), dump);
}

/// T-60, T-68, T-69: a snapshot contains every queue.
#[test]
fn snapshot_contains_every_queue() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"sent", ms(200));
    host.flush(ms(200));
    host.send(PeerId(2), b"fresh", ms(240));
    host.send_as(PeerId(2), b"loose", DeliveryMode::Unreliable, ms(240));
    let arrived =
        [reliable(0, b"first"), fragment(1, 1, 3, b"part"), reliable(3, b"ahead"), fragment(4, 0, 2, b"")];
    host.receive_from(address(1), &from_peer(2, &arrived), ms(240));
    let snapshot = host.snapshot(PeerId(2), ms(250));
    assert_eq!(snapshot.peer, PeerId(2));
    let id = |seq, part| MessageId { channel: Channel::Game, seq: Seq(seq), fragment: part };
    assert_eq!(snapshot.pending_acks, [id(0, None), id(1, Some(1)), id(3, None), id(4, Some(0))]);
    let [age, interval] = [50, 300].map(Duration::from_millis);
    let waits = Unacknowledged { id: id(0, None), sends: 1, age, interval };
    assert_eq!(snapshot.unacknowledged, [waits]);
    assert_eq!((snapshot.unsent, snapshot.queued_bytes, snapshot.in_flight), (2, 9 + 10 + 8, 9));
    let [control, game] = &snapshot.inboxes;
    let none = InboxSnapshot {
        channel: Channel::Control,
        expected: Seq(1),
        out_of_order: 0,
        out_of_order_bytes: 0,
        reassemblies: vec![],
    };
    assert_eq!(*control, none);
    assert_eq!((game.channel, game.expected, game.out_of_order), (Channel::Game, Seq(1), 3));
    assert_eq!(game.reassemblies, [(Seq(1), 1, None), (Seq(4), 1, Some(2))]);
    assert!(game.out_of_order_bytes > 0);
    assert_eq!(snapshot.rtt, Some(Duration::from_millis(100)));
    assert_eq!(snapshot.rto, Duration::from_millis(300));
    assert_eq!(snapshot.congestion_window, 40 * 512);
    assert_eq!(snapshot.idle_for, Duration::from_millis(10));
}

/// T-62: the interval of a message with many sends is longer than the timeout of the others.
#[test]
fn snapshot_reports_the_interval_of_each_message() {
    let mut host = host_with_measured_rtt();
    host.send(PeerId(2), b"never answered", ms(200));
    let mut intervals = Vec::new();
    for tenth in 2..60 {
        host.timeline(ms(100 * tenth), ms(100 * tenth + 99));
        host.receive_from(address(1), &from_peer(2, &[Message::Keepalive]), ms(100 * tenth + 99));
        let waits = host.snapshot(PeerId(2), ms(100 * tenth + 99)).unacknowledged[0];
        intervals.push((waits.sends, waits.interval.as_millis()));
    }
    intervals.dedup();
    let steady = (1..=8).map(|sends| (sends, 300));
    assert_eq!(intervals, steady.chain([(9, 600), (10, 1200), (11, 2400)]).collect::<Vec<_>>());
    let queues = PeerQueues::from(&host.snapshot(PeerId(2), ms(6000))).to_string();
    assert!(queues.ends_with("retx=10 intv=2.40"), "{queues}");
}

/// T-60: the counters of one peer count both directions.
#[test]
fn counters_count_sent_and_received_messages() {
    let mut host = host_with_forged_peer(unencrypted());
    let start = host.counters(PeerId(2));
    host.send(PeerId(2), b"data", START);
    host.send_as(PeerId(2), b"loose", DeliveryMode::Unreliable, START);
    let sent: usize = host.flush(START).iter().map(|packet| packet.bytes.len()).sum();
    let again: usize = host.flush(ms(48)).iter().map(|packet| packet.bytes.len()).sum();
    let received = [
        reliable(0, b"a"),
        reliable(0, b"a"),
        unreliable(b"b"),
        identity(1, 2, &[]),
        ack(Channel::Game, 0),
        ack(Channel::Game, 0),
        Message::Keepalive,
    ];
    let bytes = from_peer(2, &received);
    host.receive_from(address(1), &bytes, ms(49));
    let acks: usize = host.flush(ms(83)).iter().map(|packet| packet.bytes.len()).sum();
    let end = host.counters(PeerId(2));
    assert_eq!(end.datagrams_out - start.datagrams_out, 3);
    assert_eq!(end.bytes_out - start.bytes_out, (sent + again + acks) as u64);
    assert_eq!(
        (end.datagrams_in - start.datagrams_in, end.bytes_in - start.bytes_in),
        (1, bytes.len() as u64)
    );
    // The identity is relayed to its owner.
    let sent = [Kind::DATA, Kind::IDENTITY, Kind::CONNECT, Kind::KEEPALIVE];
    let sent = sent.map(|kind| end.messages_out.count(kind) - start.messages_out.count(kind));
    assert_eq!((sent, end.retransmits), ([2, 1, 0, 0], 1));
    assert_eq!((end.messages_out.count(Kind::CONNECT), end.messages_out.total()), (1, 4));
    assert_eq!((end.acks_out - start.acks_out, end.acks_useless, end.duplicates), (3, 1, 1));
    let kinds = [Kind::DATA, Kind::IDENTITY, Kind::ACK, Kind::KEEPALIVE, Kind::CONNECT, Kind::BOOT];
    let counts = kinds.map(|kind| end.messages_in.count(kind) - start.messages_in.count(kind));
    assert_eq!(counts, [3, 1, 2, 1, 0, 0]);
    assert_eq!(end.rejected.total(), 0);
}

/// T-55, T-57: every sent kind has its counter, alone in a datagram or with others.
#[test]
fn sent_messages_are_counted_by_kind() {
    let mut host = host_with_forged_peer(unencrypted());
    host.timeline(START, ms(5000));
    host.send(PeerId(2), &pattern(0, 900), ms(5100));
    host.send_as(PeerId(2), b"loose", DeliveryMode::Unreliable, ms(5100));
    host.flush(ms(5100));
    host.send(PeerId(2), b"alone", ms(5200));
    host.flush(ms(5200));
    assert_eq!(host.endpoint.boot(PeerId(2), BootReason::KICKED, ms(5300)), Ok(()));
    host.flush(ms(5300));
    let out = host.counters(PeerId(2)).messages_out;
    let kinds = [Kind::DATA, Kind::CONNECT, Kind::KEEPALIVE, Kind::BOOT, Kind::IDENTITY, Kind::DISCONNECT];
    assert_eq!(kinds.map(|kind| out.count(kind)), [5, 1, 1, 1, 0, 0]);
}

/// T-50, T-58: every cause has a name and a separate counter.
#[test]
fn every_cause_has_a_name_and_a_counter() {
    let names: Vec<String> = RejectCause::ALL.iter().map(ToString::to_string).collect();
    let expected = [
        "malformed",
        "unknown_sender",
        "wrong_address",
        "not_allowed",
        "impostor",
        "crowded",
        "window",
        "full",
        "contradiction",
        "flood",
        "forged_disconnect",
        "forged_ack",
    ];
    assert_eq!(names, expected);
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &[2, 1], START);
    let rejected = host.endpoint.rejected();
    for cause in RejectCause::ALL {
        assert_eq!(rejected.count(cause), u64::from(cause == RejectCause::Malformed), "{cause}");
    }
}

/// T-56, T-57: the reasons of leaving have readable texts.
#[test]
fn leave_reasons_display_readable_text() {
    let reasons = [
        (LeaveReason::Disconnected, "disconnected"),
        (LeaveReason::Booted(BootReason::KICKED), "booted: kicked"),
        (LeaveReason::Booted(BootReason(77)), "booted: reason 77"),
        (LeaveReason::Silent, "silent"),
        (LeaveReason::Undeliverable, "undeliverable"),
        (LeaveReason::Replaced, "replaced"),
        (LeaveReason::Local, "left"),
    ];
    for (reason, text) in reasons {
        assert_eq!(reason.to_string(), text);
    }
}

/// T-61: on a link with a delay, the round-trip time of the snapshot converges to it.
#[test]
fn snapshot_rtt_converges_to_the_link_rtt() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    let mut wire = std::collections::VecDeque::new();
    for tick in 0..600_u64 {
        net.now = START + Duration::from_micros(16_667 * tick);
        net.host.send(PeerId(2), b"tick", net.now);
        net.clients[0].send(PeerId::HOST, b"tock", net.now);
        while let Some((due, packet)) = wire.front().cloned()
            && due <= net.now
        {
            wire.pop_front();
            net.deliver(&packet);
        }
        for packet in net.flush() {
            wire.push_back((net.now + Duration::from_millis(25), packet));
        }
        net.host.events();
        net.clients[0].events();
    }
    for trip in
        [net.host.snapshot(PeerId(2), net.now).rtt, net.clients[0].snapshot(PeerId::HOST, net.now).rtt]
    {
        let trip = trip.expect("measured").as_millis();
        assert!((50..=70).contains(&trip), "{trip} ms");
    }
}

/// T-60: the range is empty once the last message of a channel is acknowledged, regardless of the other
/// channel.
#[test]
fn unacked_range_is_empty_after_the_last_ack_of_a_channel() {
    let mut host = host_with_forged_peer(unencrypted());
    let awaited = |host: &TestEndpoint, channel| {
        host.endpoint.unacked_range(PeerId(2), channel).expect("the peer is connected")
    };
    let has = |host: &TestEndpoint| {
        [Channel::Control, Channel::Game].map(|it| {
            let awaited = awaited(host, it);
            awaited.start == awaited.end
        })
    };
    assert_eq!(has(&host), [true, true]);
    host.send(PeerId(2), b"first", START);
    host.send(PeerId(2), b"second", START);
    assert_eq!(has(&host), [true, false], "the message is not sent");
    host.flush(START);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 1)]), START);
    assert_eq!(has(&host), [true, false], "the first message may be lost");
    assert_eq!(awaited(&host, Channel::Game), Seq(0)..Seq(2));
    host.endpoint.announce_name(Text::default(), START).expect("a host has a name");
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), START);
    assert_eq!(has(&host), [false, true]);
    host.endpoint.send(PeerId(2), b"state", DeliveryMode::Unreliable, START).expect("the peer is connected");
    assert_eq!(has(&host), [false, true], "an unreliable message needs no ACK");
    host.flush(START);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Control, 1)]), START);
    assert_eq!(has(&host), [true, true]);
    assert_eq!(awaited(&host, Channel::Game), Seq(2)..Seq(2));
    assert_eq!(host.endpoint.unacked_range(PeerId(9), Channel::Game), None, "an unknown peer has no range");
}
