//! Splitting as stock does it, and reassembly of any received fragments.

use bcnet_transport::wire::{Channel, Data, Delivery, Fragment, Message, PeerId};
use bcnet_transport::{Config, DeliveryMode, Engine, RejectCause, SendError};

use crate::net::{
    START, SentDatagram, TestEndpoint, TestNet, TestRng, ack, ack_fragment, address, connect, fragment,
    from_peer, host_with_forged_peer, ms, pattern, reliable, unencrypted,
};

const MAX_PAYLOAD: usize = 103_529;

/// Returns the sizes of the fragments of a payload of `len` bytes; empty if it leaves whole.
fn fragment_sizes(len: usize, mode: DeliveryMode) -> Vec<usize> {
    let mut host = host_with_forged_peer(Config { initial_window: 1 << 20, ..unencrypted() });
    host.send_as(PeerId(2), &pattern(0, len), mode, START);
    let sent: Vec<_> = host.flush(START).iter().flat_map(SentDatagram::data).collect();
    let whole: Vec<u8> = sent.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert_eq!(whole, pattern(0, len), "a byte was lost or moved");
    let count = sent.len();
    for (index, (delivery, _)) in sent.iter().enumerate() {
        let Some(part) = delivery.fragment() else { return Vec::new() };
        assert_eq!(usize::from(part.index()), index);
        assert_eq!(part.total().map(|total| usize::from(total.get())), (index == 0).then_some(count));
    }
    sent.iter().map(|(_, bytes)| bytes.len()).collect()
}

/// T-67: 405 bytes in fragment 0, 406 in each later one, the rest in the last.
#[test]
fn payloads_are_split_as_stock_does() {
    for quality in [DeliveryMode::Reliable, DeliveryMode::Urgent] {
        assert_eq!(fragment_sizes(407, quality), [0; 0], "the largest that fits one message");
        assert_eq!(fragment_sizes(408, quality), [405, 3]);
        assert_eq!(fragment_sizes(409, quality), [405, 4]);
        assert_eq!(fragment_sizes(410, quality), [405, 5]);
        assert_eq!(fragment_sizes(811, quality), [405, 406], "a rest that fits exactly is the last fragment");
        assert_eq!(fragment_sizes(812, quality), [405, 406, 1]);
        assert_eq!(fragment_sizes(832, quality), [405, 406, 21]);
        let max: Vec<usize> = [405].into_iter().chain([406; 254]).collect();
        assert_eq!(fragment_sizes(MAX_PAYLOAD, quality), max);
    }
    assert_eq!(fragment_sizes(409, DeliveryMode::Unreliable), [0; 0], "two bytes less of header");
    assert_eq!(fragment_sizes(410, DeliveryMode::Unreliable), [405, 5]);
}

/// T-67: a payload with more than 255 fragments is an error, and no part of it is sent.
#[test]
fn more_than_255_fragments_are_refused() {
    let mut host = host_with_forged_peer(unencrypted());
    let payload = vec![0; MAX_PAYLOAD + 1];
    for quality in [DeliveryMode::Reliable, DeliveryMode::Urgent, DeliveryMode::Unreliable] {
        let error = host.endpoint.send(PeerId(2), &payload, quality, START);
        assert_eq!(error, Err(SendError::TooLarge { len: MAX_PAYLOAD + 1, max: MAX_PAYLOAD }));
    }
    host.send(PeerId(2), b"next", START);
    assert_eq!(host.sent_texts(START), ["data seq=0 4 bytes"], "a refused payload used a sequence number");
}

/// T-67: an unreliable payload that must be split becomes reliable, with its own number, in its turn.
#[test]
fn split_unreliable_payload_becomes_reliable() {
    let mut net = TestNet::joined(&unencrypted(), 1);
    net.host.send(PeerId(2), b"before", net.now);
    net.host.send_as(PeerId(2), &pattern(1, 1000), DeliveryMode::Unreliable, net.now);
    net.host.send(PeerId(2), b"after", net.now);
    let packets = net.host.flush(net.now);
    let numbers: Vec<u16> = packets
        .iter()
        .flat_map(SentDatagram::data)
        .map(|(delivery, _)| delivery.seq().expect("reliable").0)
        .collect();
    assert_eq!(numbers, [0, 1, 1, 1, 2]);
    // The first datagram is lost; the retransmission delivers everything.
    packets[1..].iter().for_each(|packet| net.deliver(packet));
    net.run(ms(2000));
    assert_eq!(net.clients[0].received(), [b"before".to_vec(), pattern(1, 1000), b"after".to_vec()]);
}

/// T-68: fragments arrive in any order and any number of times; the payload is delivered once.
#[test]
fn reordered_and_duplicate_fragments_make_one_payload() {
    let payload = pattern(3, MAX_PAYLOAD);
    for seed in 0..5 {
        let mut dice = TestRng(seed + 99);
        let mut net = TestNet::joined(&Config { initial_window: 1 << 20, ..unencrypted() }, 1);
        net.host.send(PeerId(2), &payload, net.now);
        net.host.send(PeerId(2), b"next", net.now);
        let mut packets = net.host.flush(net.now);
        assert!(packets.len() > 200);
        packets.extend(packets.clone());
        match seed {
            0 => packets.reverse(),
            _ => dice.shuffle(&mut packets),
        }
        packets.iter().for_each(|packet| net.deliver(packet));
        net.deliver_all();
        assert_eq!(net.clients[0].received(), [payload.clone(), b"next".to_vec()]);
        let rest = net.host.snapshot(PeerId(2), net.now);
        assert_eq!((rest.unacknowledged.len(), rest.queued_bytes), (0, 0));
        let held = &net.clients[0].snapshot(PeerId::HOST, net.now).inboxes[1];
        assert_eq!((held.out_of_order, held.out_of_order_bytes, held.reassemblies.len()), (0, 0, 0));
    }
}

/// T-30, T-68: every fragment is acknowledged with its index, each time it arrives.
#[test]
fn fragments_are_acknowledged_with_their_index() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[fragment(0, 1, 3, b"b"), fragment(0, 1, 3, b"b")]), START);
    assert_eq!(host.sent_texts(START), ["ack game seq=0 part=1"; 2]);
    host.receive_from(address(1), &from_peer(2, &[fragment(0, 0, 3, b"a"), fragment(0, 2, 3, b"c")]), START);
    assert_eq!(host.sent_texts(START), ["ack game seq=0 part=0", "ack game seq=0 part=2"]);
    assert_eq!(host.received(), [b"abc"]);
    host.receive_from(address(1), &from_peer(2, &[fragment(0, 2, 3, b"c")]), START);
    assert_eq!(
        host.sent_texts(START),
        ["ack game seq=0 part=2"],
        "duplicates after delivery are acknowledged, too"
    );
    assert_eq!(host.received(), [[0; 0]; 0]);
}

/// Returns the answer of a host to `messages`, and how many of them contradict.
fn answer_and_contradictions(host: &mut TestEndpoint, messages: &[Message<'_>]) -> (Vec<String>, u64) {
    let before = host.rejected_from(PeerId(2), RejectCause::Contradiction);
    host.receive_from(address(1), &from_peer(2, messages), START);
    (host.sent_texts(START), host.rejected_from(PeerId(2), RejectCause::Contradiction) - before)
}

/// T-68: a fragment whose index is not below the total has no effect and is not acknowledged.
#[test]
fn fragment_index_beyond_the_total_is_rejected() {
    let mut host = host_with_forged_peer(unencrypted());
    assert_eq!(answer_and_contradictions(&mut host, &[fragment(0, 0, 2, b"a")]).1, 0);
    for index in [2, 3, 254, 255] {
        assert_eq!(
            answer_and_contradictions(&mut host, &[fragment(0, index, 2, b"x")]),
            (vec![], 1),
            "index {index}"
        );
    }
    assert_eq!(
        answer_and_contradictions(&mut host, &[fragment(1, 255, 2, b"x")]),
        (vec![], 1),
        "no set can have 256 parts"
    );
    assert_eq!(answer_and_contradictions(&mut host, &[fragment(0, 1, 2, b"b")]).1, 0);
    assert_eq!(host.received(), [b"ab"]);
}

/// T-68: a total that contradicts the known one has no effect and is not acknowledged.
#[test]
fn changed_fragment_total_is_rejected() {
    let mut host = host_with_forged_peer(unencrypted());
    assert_eq!(answer_and_contradictions(&mut host, &[fragment(0, 0, 3, b"a")]).1, 0);
    for total in [1, 2, 4, 255] {
        assert_eq!(
            answer_and_contradictions(&mut host, &[fragment(0, 0, total, b"x")]),
            (vec![], 1),
            "total {total}"
        );
    }
    assert_eq!(
        answer_and_contradictions(&mut host, &[fragment(0, 1, 3, b"b"), fragment(0, 2, 3, b"c")]).1,
        0
    );
    assert_eq!(host.received(), [b"abc"]);
}

/// T-68: a total that arrives after other fragments must be above their indexes.
#[test]
fn late_fragment_total_must_fit_known_fragments() {
    let mut host = host_with_forged_peer(unencrypted());
    assert_eq!(answer_and_contradictions(&mut host, &[fragment(0, 3, 0xFF, b"d")]).1, 0);
    for total in [1, 2, 3] {
        assert_eq!(
            answer_and_contradictions(&mut host, &[fragment(0, 0, total, b"x")]),
            (vec![], 1),
            "total {total}"
        );
    }
    let rest = [fragment(0, 0, 4, b"a"), fragment(0, 2, 4, b"c"), fragment(0, 1, 4, b"b")];
    assert_eq!(answer_and_contradictions(&mut host, &rest).1, 0);
    assert_eq!(host.received(), [b"abcd"]);
}

/// T-68: a sequence number is a whole message or a split one, whichever came first.
#[test]
fn sequence_number_is_whole_or_split_not_both() {
    let mut host = host_with_forged_peer(unencrypted());
    assert_eq!(answer_and_contradictions(&mut host, &[reliable(1, b"whole"), fragment(2, 0, 2, b"a")]).1, 0);
    assert_eq!(answer_and_contradictions(&mut host, &[fragment(1, 0, 2, b"x")]), (vec![], 1));
    assert_eq!(answer_and_contradictions(&mut host, &[reliable(2, b"x")]), (vec![], 1));
    assert_eq!(answer_and_contradictions(&mut host, &[fragment(2, 1, 2, b"b"), reliable(0, b"first")]).1, 0);
    assert_eq!(host.received(), [b"first".to_vec(), b"whole".to_vec(), b"ab".to_vec()]);
}

/// T-21, T-68: a fragment without a sequence number is rejected.
#[test]
fn fragment_without_sequence_number_is_rejected() {
    let mut host = host_with_forged_peer(unencrypted());
    let first = Fragment::First { total: 1.try_into().expect("the total is not zero") };
    let unreliable =
        Message::Data(Data { delivery: Delivery::UnreliableFragment(first), urgent: false, payload: b"x" });
    assert_eq!(answer_and_contradictions(&mut host, &[unreliable]), (vec![], 1));
    assert_eq!(host.received(), [[0; 0]; 0]);
}

/// T-68: a single fragment is a complete message, and 255 empty fragments are one, too.
#[test]
fn single_and_empty_fragments_are_reassembled() {
    let mut host = host_with_forged_peer(unencrypted());
    host.receive_from(address(1), &from_peer(2, &[fragment(0, 0, 1, b"alone")]), START);
    let empty: Vec<Message<'_>> = (0..255).map(|index| fragment(1, index, 255, b"")).collect();
    host.receive_from(address(1), &from_peer(2, &empty), START);
    assert_eq!(host.received(), [b"alone".to_vec(), vec![]]);
}

/// Admits a second forged client as peer 3.
fn admit_second_peer(host: &mut TestEndpoint) {
    host.receive_from(address(2), &connect(2), START);
    assert_eq!(host.endpoint.admit(address(2), START), Ok(PeerId(3)));
    host.flush(START);
    host.receive_from(address(2), &from_peer(3, &[ack(Channel::Control, 0)]), START);
    host.flush(START);
    host.events();
}

/// T-68: fragments of different peers with the same sequence number are not mixed.
#[test]
fn fragments_of_different_peers_are_not_mixed() {
    let mut host = host_with_forged_peer(unencrypted());
    admit_second_peer(&mut host);
    host.receive_from(address(1), &from_peer(2, &[fragment(0, 0, 2, b"a")]), START);
    host.receive_from(address(2), &from_peer(3, &[fragment(0, 1, 2, b"Y")]), START);
    assert_eq!(host.received(), [[0; 0]; 0]);
    host.receive_from(address(2), &from_peer(3, &[fragment(0, 0, 2, b"X")]), START);
    host.receive_from(address(1), &from_peer(2, &[fragment(0, 1, 2, b"b")]), START);
    assert_eq!(host.received(), [b"XY", b"ab"]);
}

/// T-68: incomplete and huge payloads use no more memory than the limit.
///
/// Another peer is not affected, and dropped fragments are not acknowledged.
#[test]
fn reassembly_memory_is_bounded_per_peer() {
    let limit = Config::default().max_out_of_order_bytes;
    let huge = pattern(0, 8000);
    let endless =
        |n: u16| fragment(n % 0x4000, 1 + u8::try_from(n % 200).expect("a small number"), 0, &huge[..400]);
    let large = |n: u16| fragment(n / 254, 1 + u8::try_from(n % 254).expect("a small number"), 0, &huge);
    for attack in [0, 1] {
        let mut host = host_with_forged_peer(unencrypted());
        admit_second_peer(&mut host);
        let before = crate::heap::in_use();
        let mut acks = 0;
        for n in 0..0x4000 {
            let message = if attack == 0 { endless(n) } else { large(n) };
            host.receive_from(address(1), &from_peer(2, &[message]), START);
            acks += host.sent_texts(START).len();
            host.events();
        }
        let window = &host.snapshot(PeerId(2), START).inboxes[1];
        // The next message may use more, so that the messages behind it can leave.
        assert!(
            window.out_of_order_bytes <= limit + (160 << 10),
            "{} bytes are held",
            window.out_of_order_bytes
        );
        let parts: usize = window.reassemblies.iter().map(|(_, here, _)| usize::from(*here)).sum();
        assert_eq!(acks, parts, "an acknowledged fragment was dropped");
        assert_eq!(host.rejected_from(PeerId(2), RejectCause::Full), 0x4000 - acks as u64);
        let used = usize::try_from(crate::heap::in_use() - before).expect("heap use has grown");
        assert!(used < 3 * limit, "{used} bytes of heap");

        let payload = pattern(5, MAX_PAYLOAD);
        for (index, bytes) in (0..=254).zip(stock_fragments(&payload)) {
            host.receive_from(address(2), &from_peer(3, &[fragment(0, index, 255, bytes)]), START);
            assert_eq!(host.sent_texts(START), [format!("ack game seq=0 part={index}")]);
        }
        assert_eq!(host.received(), [payload]);
    }
}

/// Splits a payload as stock does.
fn stock_fragments(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (first, rest) = payload.split_at(405);
    [first].into_iter().chain(rest.chunks(406))
}

/// T-68: several of the largest payloads at once, with loss: dropped fragments are retransmitted.
#[test]
fn payloads_beyond_buffer_limit_arrive_by_retransmission() {
    let mut dice = TestRng(5);
    let mut net = TestNet::joined(&Config { max_out_of_order_bytes: 64 << 10, ..unencrypted() }, 1);
    let payloads: Vec<Vec<u8>> = (0..6).map(|n| pattern(n, MAX_PAYLOAD - n)).collect();
    payloads.iter().for_each(|payload| net.host.send(PeerId(2), payload, net.now));
    let mut received = Vec::new();
    for tick in 0..6000 {
        net.now = ms(10 * tick);
        for packet in net.flush() {
            if dice.below(5) > 0 {
                net.deliver(&packet);
            }
        }
        received.extend(net.clients[0].received());
        net.host.events();
        if received.len() == 6 {
            break;
        }
    }
    assert_eq!(received.len(), 6, "all payloads arrive within a minute");
    assert!(received == payloads);
}

/// Creates a host with a window for one fragment in flight, which has sent fragment 0 of two.
fn host_with_half_sent_message() -> TestEndpoint {
    let mut host = host_with_forged_peer(Config { initial_window: 500, ..unencrypted() });
    host.send(PeerId(2), &pattern(0, 800), START);
    assert_eq!(host.sent_texts(START), ["data seq=0 part=0/2 405 bytes"]);
    host
}

/// T-65: a retransmitted fragment does not count for one that was never sent.
#[test]
fn plain_acks_count_only_after_all_fragments_were_sent() {
    let mut host = host_with_half_sent_message();
    let sends = 1 + host.timeline(START, ms(53)).len();
    assert_eq!(sends, 2);
    for _ in 0..sends {
        host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(53));
    }
    assert_eq!(host.snapshot(PeerId(2), ms(53)).queued_bytes, 412 + 401);
    let texts = host.timeline(ms(53), ms(1000));
    assert!(texts.iter().any(|line| line.ends_with("data seq=0 part=1 395 bytes")), "{texts:?}");
}

/// T-65: a plain ACK for one fragment and an indexed ACK for the last do not acknowledge the others.
#[test]
fn deferred_fragments_are_retransmitted_after_the_others() {
    let mut host = host_with_half_sent_message();
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), START);
    let texts = host.timeline(START, ms(98));
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].ends_with("data seq=0 part=1 395 bytes"), "{texts:?}");
    host.receive_from(address(1), &from_peer(2, &[ack_fragment(0, 1)]), ms(99));
    assert_eq!(host.sent_texts(ms(99)), ["data seq=0 part=0/2 405 bytes"]);
    host.receive_from(address(1), &from_peer(2, &[ack_fragment(0, 0)]), ms(100));
    assert_eq!(host.snapshot(PeerId(2), ms(100)).queued_bytes, 0);
}
