//! Memory is allocated when it is needed and released when it is not.

use std::time::Duration;

use bcnet_transport::wire::{Channel, PeerId};
use bcnet_transport::{Engine, LeaveReason, PeerCounters};

use crate::heap;
use crate::net::{START, TestEndpoint, TestNet, ack, address, connect, from_peer, ms, pattern, unencrypted};

/// T-68: four seconds after a burst, all of its memory is released; until then it is kept for the next
/// burst.
#[test]
fn memory_is_given_back_after_idleness() {
    let mut net = TestNet::joined(&unencrypted(), 4);
    net.run(ms(4500));
    let idle = heap::in_use();
    for round in 0..200 {
        for n in 0..4_u8 {
            net.host.send(PeerId(2 + n), &pattern(round, 300), net.now);
            net.clients[usize::from(n)].send(PeerId::HOST, &pattern(round, 700), net.now);
        }
    }
    net.host.send(PeerId(2), &pattern(0, 100_000), net.now);
    let mut packets = net.flush();
    packets.reverse();
    packets.iter().for_each(|packet| net.deliver(packet));
    net.run(ms(4900));
    net.host.events();
    net.clients.iter_mut().for_each(|client| drop(client.events()));
    drop(packets);
    let busy = heap::in_use() - idle;
    assert!(busy > 200_000, "only {busy} bytes more than idle");
    net.run(ms(8000));
    let soon = heap::in_use() - idle;
    assert!(soon > busy / 2, "only {soon} of {busy} bytes are left: the buffers were released too early");
    net.run(ms(9700));
    let later = heap::in_use() - idle;
    assert!(later < 4000, "{later} bytes more than idle, {busy} when busy");
}

/// T-57: a removed peer leaves no memory behind.
#[test]
fn removed_peers_release_their_memory() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    net.run(ms(4500));
    let alone = heap::in_use();
    for n in 2..30 {
        net.join(&unencrypted(), n);
        net.host.send(PeerId(u8::try_from(n + 1).expect("a small number")), &pattern(0, 5000), net.now);
        net.deliver_all();
    }
    net.clients.truncate(1);
    net.clients.shrink_to_fit();
    net.run(net.now + Duration::from_secs(60));
    assert_eq!(net.host.left_peers().iter().filter(|(_, reason)| *reason == LeaveReason::Silent).count(), 28);
    net.clients[0].events();
    net.run(net.now + Duration::from_secs(10));
    let left = heap::in_use() - alone;
    assert!(left < 20_000, "{left} bytes of 28 removed peers are left");
}

/// T-55: an idle session needs at most 400 bytes of heap for each peer, without names and counters.
#[test]
fn an_idle_peer_takes_little_memory() {
    let start = heap::in_use();
    let mut host = TestEndpoint::host(unencrypted());
    for n in 1..=124 {
        host.receive_from(address(n), &connect(u32::from(n)), START);
        let id = host.endpoint.admit(address(n), START).expect("a free id");
        host.flush(START);
        host.receive_from(address(n), &from_peer(id.0, &[ack(Channel::Control, 0)]), START);
        host.flush(START);
        host.events();
    }
    host.timeline(START, ms(4900));
    let each = usize::try_from(heap::in_use() - start).expect("heap use has grown") / 124;
    let counters = size_of::<PeerCounters>();
    assert!(each <= 400 + counters, "{each} bytes for each peer, {counters} of them counters");
}

/// T-69: a steady conversation uses no more memory after twenty minutes than after one.
#[test]
fn steady_conversation_does_not_grow_memory() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    let mut early = 0;
    for second in 0..1200_u64 {
        net.now = ms(1000 * second);
        for n in 0..5 {
            net.host.send(PeerId(2), &pattern(n, 200), net.now);
            net.clients[0].send(PeerId::HOST, &pattern(n, 500), net.now);
        }
        net.deliver_all();
        net.host.events();
        net.clients[0].events();
        if second == 60 {
            early = heap::in_use();
        }
    }
    assert_eq!(heap::in_use(), early);
}
