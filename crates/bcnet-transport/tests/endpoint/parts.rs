//! Splitting as stock does it, and putting together what arrives, whatever arrives.

use bcnet_transport::wire::{Channel, Data, Delivery, Message, Part, PeerId};
use bcnet_transport::{Cause, Config, Engine, Quality, SendError};

use crate::net::{
    Dice, End, Net, Packet, START, ack, ack_part, address, connect, from_peer, ms, part, pattern, plain,
    puppet, reliable,
};

const MAX_PAYLOAD: usize = 103_529;

/// The sizes of the parts in which a payload of `len` bytes leaves; empty if it leaves whole.
fn sizes(len: usize, quality: Quality) -> Vec<usize> {
    let mut host = puppet(Config { first_budget: 1 << 20, ..plain() });
    host.send_as(PeerId(2), &pattern(0, len), quality, START);
    let sent: Vec<_> = host.flush(START).iter().flat_map(Packet::data).collect();
    let whole: Vec<u8> = sent.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert_eq!(whole, pattern(0, len), "no byte is lost or moved");
    let count = sent.len();
    for (index, (delivery, _)) in sent.iter().enumerate() {
        let Some(part) = delivery.part() else { return Vec::new() };
        assert_eq!(usize::from(part.index()), index);
        assert_eq!(part.total().map(|total| usize::from(total.get())), (index == 0).then_some(count));
    }
    sent.iter().map(|(_, bytes)| bytes.len()).collect()
}

/// T-67: 405 bytes in part 0, 406 in each later one, the rest in the last.
#[test]
fn payloads_are_split_as_stock_does() {
    for quality in [Quality::Reliable, Quality::Urgent] {
        assert_eq!(sizes(407, quality), [0; 0], "the largest that fits one message");
        assert_eq!(sizes(408, quality), [405, 3]);
        assert_eq!(sizes(409, quality), [405, 4]);
        assert_eq!(sizes(410, quality), [405, 5]);
        assert_eq!(sizes(811, quality), [405, 406], "a rest that fits exactly is the last part");
        assert_eq!(sizes(812, quality), [405, 406, 1]);
        assert_eq!(sizes(832, quality), [405, 406, 21]);
        let max: Vec<usize> = [405].into_iter().chain([406; 254]).collect();
        assert_eq!(sizes(MAX_PAYLOAD, quality), max);
    }
    assert_eq!(sizes(409, Quality::Unreliable), [0; 0], "two bytes less of header");
    assert_eq!(sizes(410, Quality::Unreliable), [405, 5]);
}

/// T-67: more than 255 parts is an error, and nothing of it is sent.
#[test]
fn more_than_255_parts_are_refused() {
    let mut host = puppet(plain());
    let payload = vec![0; MAX_PAYLOAD + 1];
    for quality in [Quality::Reliable, Quality::Urgent, Quality::Unreliable] {
        let error = host.endpoint.send(PeerId(2), &payload, quality, START);
        assert_eq!(error, Err(SendError::TooLarge { len: MAX_PAYLOAD + 1, max: MAX_PAYLOAD }));
    }
    host.send(PeerId(2), b"next", START);
    assert_eq!(host.says(START), ["data seq=0 4 bytes"], "no number was used up");
}

/// T-67: an unreliable payload that must be split is reliable, with a number of its own, in its turn.
#[test]
fn an_unreliable_payload_that_is_split_gets_a_proper_number() {
    let mut net = Net::joined(&plain(), 1);
    net.host.send(PeerId(2), b"before", net.now);
    net.host.send_as(PeerId(2), &pattern(1, 1000), Quality::Unreliable, net.now);
    net.host.send(PeerId(2), b"after", net.now);
    let packets = net.host.flush(net.now);
    let numbers: Vec<u16> = packets
        .iter()
        .flat_map(Packet::data)
        .map(|(delivery, _)| delivery.seq().expect("reliable").0)
        .collect();
    assert_eq!(numbers, [0, 1, 1, 1, 2]);
    // The first datagram is lost; the repeat brings all.
    packets[1..].iter().for_each(|packet| net.deliver(packet));
    net.run(ms(2000));
    assert_eq!(net.clients[0].received(), [b"before".to_vec(), pattern(1, 1000), b"after".to_vec()]);
}

/// T-68: parts arrive in any order and any number of times; the payload is delivered once.
#[test]
fn parts_in_any_order_and_number_make_one_payload() {
    let payload = pattern(3, MAX_PAYLOAD);
    for seed in 0..5 {
        let mut dice = Dice(seed + 99);
        let mut net = Net::joined(&Config { first_budget: 1 << 20, ..plain() }, 1);
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
        net.settle();
        assert_eq!(net.clients[0].received(), [payload.clone(), b"next".to_vec()]);
        let rest = net.host.snapshot(PeerId(2), net.now);
        assert_eq!((rest.unacknowledged.len(), rest.queued_bytes), (0, 0));
        let held = &net.clients[0].snapshot(PeerId::HOST, net.now).receiving[1];
        assert_eq!((held.held, held.held_bytes, held.sets.len()), (0, 0, 0));
    }
}

/// T-30, T-68: every part is acknowledged with its index, each time it arrives.
#[test]
fn parts_are_acknowledged_with_their_index() {
    let mut host = puppet(plain());
    host.hear_from(address(1), &from_peer(2, &[part(0, 1, 3, b"b"), part(0, 1, 3, b"b")]), START);
    assert_eq!(host.says(START), ["ack game seq=0 part=1"; 2]);
    host.hear_from(address(1), &from_peer(2, &[part(0, 0, 3, b"a"), part(0, 2, 3, b"c")]), START);
    assert_eq!(host.says(START), ["ack game seq=0 part=0", "ack game seq=0 part=2"]);
    assert_eq!(host.received(), [b"abc"]);
    host.hear_from(address(1), &from_peer(2, &[part(0, 2, 3, b"c")]), START);
    assert_eq!(host.says(START), ["ack game seq=0 part=2"], "after it was delivered too");
    assert_eq!(host.received(), [[0; 0]; 0]);
}

/// What a host says to `messages` and how many of them it finds contradictory.
fn answer(host: &mut End, messages: &[Message<'_>]) -> (Vec<String>, u64) {
    let before = host.rejected_from(PeerId(2), Cause::Contradiction);
    host.hear_from(address(1), &from_peer(2, messages), START);
    (host.says(START), host.rejected_from(PeerId(2), Cause::Contradiction) - before)
}

/// T-68: a part whose index is not below the total changes nothing and is not acknowledged.
#[test]
fn an_index_that_is_not_below_the_total_changes_nothing() {
    let mut host = puppet(plain());
    assert_eq!(answer(&mut host, &[part(0, 0, 2, b"a")]).1, 0);
    for index in [2, 3, 254, 255] {
        assert_eq!(answer(&mut host, &[part(0, index, 2, b"x")]), (vec![], 1), "index {index}");
    }
    assert_eq!(answer(&mut host, &[part(1, 255, 2, b"x")]), (vec![], 1), "no set can have 256 parts");
    assert_eq!(answer(&mut host, &[part(0, 1, 2, b"b")]).1, 0);
    assert_eq!(host.received(), [b"ab"]);
}

/// T-68: a total that contradicts the one known changes nothing and is not acknowledged.
#[test]
fn a_total_that_changes_changes_nothing() {
    let mut host = puppet(plain());
    assert_eq!(answer(&mut host, &[part(0, 0, 3, b"a")]).1, 0);
    for total in [1, 2, 4, 255] {
        assert_eq!(answer(&mut host, &[part(0, 0, total, b"x")]), (vec![], 1), "total {total}");
    }
    assert_eq!(answer(&mut host, &[part(0, 1, 3, b"b"), part(0, 2, 3, b"c")]).1, 0);
    assert_eq!(host.received(), [b"abc"]);
}

/// T-68: a total that comes after its parts must not be less than what they say.
#[test]
fn a_total_that_comes_later_must_fit_the_parts() {
    let mut host = puppet(plain());
    assert_eq!(answer(&mut host, &[part(0, 3, 0xFF, b"d")]).1, 0);
    for total in [1, 2, 3] {
        assert_eq!(answer(&mut host, &[part(0, 0, total, b"x")]), (vec![], 1), "total {total}");
    }
    let rest = [part(0, 0, 4, b"a"), part(0, 2, 4, b"c"), part(0, 1, 4, b"b")];
    assert_eq!(answer(&mut host, &rest).1, 0);
    assert_eq!(host.received(), [b"abcd"]);
}

/// T-68: a number is a whole message or a split one, whichever came first.
#[test]
fn a_number_is_whole_or_split_but_not_both() {
    let mut host = puppet(plain());
    assert_eq!(answer(&mut host, &[reliable(1, b"whole"), part(2, 0, 2, b"a")]).1, 0);
    assert_eq!(answer(&mut host, &[part(1, 0, 2, b"x")]), (vec![], 1));
    assert_eq!(answer(&mut host, &[reliable(2, b"x")]), (vec![], 1));
    assert_eq!(answer(&mut host, &[part(2, 1, 2, b"b"), reliable(0, b"first")]).1, 0);
    assert_eq!(host.received(), [b"first".to_vec(), b"whole".to_vec(), b"ab".to_vec()]);
}

/// T-21, T-68: a part without a number is refused.
#[test]
fn a_part_without_a_number_is_refused() {
    let mut host = puppet(plain());
    let first = Part::First { total: 1.try_into().expect("not zero") };
    let unreliable =
        Message::Data(Data { delivery: Delivery::UnreliablePart(first), urgent: false, payload: b"x" });
    assert_eq!(answer(&mut host, &[unreliable]), (vec![], 1));
    assert_eq!(host.received(), [[0; 0]; 0]);
}

/// T-68: a set of one part is a message, and so is one of 255 empty parts.
#[test]
fn odd_sets_are_put_together_too() {
    let mut host = puppet(plain());
    host.hear_from(address(1), &from_peer(2, &[part(0, 0, 1, b"alone")]), START);
    let empty: Vec<Message<'_>> = (0..255).map(|index| part(1, index, 255, b"")).collect();
    host.hear_from(address(1), &from_peer(2, &empty), START);
    assert_eq!(host.received(), [b"alone".to_vec(), vec![]]);
}

/// A second forged client, admitted as peer 3.
fn second(host: &mut End) {
    host.hear_from(address(2), &connect(2), START);
    assert_eq!(host.endpoint.admit(address(2), START), Ok(PeerId(3)));
    host.flush(START);
    host.hear_from(address(2), &from_peer(3, &[ack(Channel::Control, 0)]), START);
    host.flush(START);
    host.events();
}

/// T-68: parts of different peers with the same number are not mixed.
#[test]
fn parts_of_different_peers_are_not_mixed() {
    let mut host = puppet(plain());
    second(&mut host);
    host.hear_from(address(1), &from_peer(2, &[part(0, 0, 2, b"a")]), START);
    host.hear_from(address(2), &from_peer(3, &[part(0, 1, 2, b"Y")]), START);
    assert_eq!(host.received(), [[0; 0]; 0]);
    host.hear_from(address(2), &from_peer(3, &[part(0, 0, 2, b"X")]), START);
    host.hear_from(address(1), &from_peer(2, &[part(0, 1, 2, b"b")]), START);
    assert_eq!(host.received(), [b"XY", b"ab"]);
}

/// T-68: sets that are never completed, and huge ones, take no more than the limit; another peer does not notice, and
/// nothing that was not kept is acknowledged.
#[test]
fn endless_and_huge_sets_are_bounded_and_hurt_nobody_else() {
    let limit = Config::default().hold_bytes;
    let huge = pattern(0, 8000);
    let endless = |n: u16| part(n % 0x4000, 1 + u8::try_from(n % 200).expect("small"), 0, &huge[..400]);
    let large = |n: u16| part(n / 254, 1 + u8::try_from(n % 254).expect("small"), 0, &huge);
    for attack in [0, 1] {
        let mut host = puppet(plain());
        second(&mut host);
        let before = crate::heap::in_use();
        let mut acks = 0;
        for n in 0..0x4000 {
            let message = if attack == 0 { endless(n) } else { large(n) };
            host.hear_from(address(1), &from_peer(2, &[message]), START);
            acks += host.says(START).len();
            host.events();
        }
        let window = &host.snapshot(PeerId(2), START).receiving[1];
        // The message that is next may use some more, so that what waits behind it can leave.
        assert!(window.held_bytes <= limit + (160 << 10), "{} bytes are held", window.held_bytes);
        let parts: usize = window.sets.iter().map(|(_, here, _)| usize::from(*here)).sum();
        assert_eq!(acks, parts, "what is acknowledged is kept");
        assert_eq!(host.rejected_from(PeerId(2), Cause::Full), 0x4000 - acks as u64);
        let used = usize::try_from(crate::heap::in_use() - before).expect("more than before");
        assert!(used < 3 * limit, "{used} bytes of heap");

        let payload = pattern(5, MAX_PAYLOAD);
        for (index, bytes) in (0..=254).zip(chunks(&payload)) {
            host.hear_from(address(2), &from_peer(3, &[part(0, index, 255, bytes)]), START);
            assert_eq!(host.says(START), [format!("ack game seq=0 part={index}")]);
        }
        assert_eq!(host.received(), [payload]);
    }
}

/// A payload cut as stock does.
fn chunks(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (first, rest) = payload.split_at(405);
    [first].into_iter().chain(rest.chunks(406))
}

/// T-68: several of the largest payloads at once, with loss: what the receiver has no room for is sent again.
#[test]
fn payloads_larger_than_the_room_for_them_arrive_all_the_same() {
    let mut dice = Dice(5);
    let mut net = Net::joined(&Config { hold_bytes: 64 << 10, ..plain() }, 1);
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
    assert_eq!(received.len(), 6, "within a minute");
    assert!(received == payloads);
}

/// A host that has room for one part under way, and has sent part 0 of two.
fn half_sent() -> End {
    let mut host = puppet(Config { first_budget: 500, ..plain() });
    host.send(PeerId(2), &pattern(0, 800), START);
    assert_eq!(host.says(START), ["data seq=0 part=0/2 405 bytes"]);
    host
}

/// T-65: a part that was repeated does not stand for one that was never sent.
#[test]
fn plain_acks_settle_nothing_before_every_part_was_sent() {
    let mut host = half_sent();
    let sends = 1 + host.timeline(START, ms(53)).len();
    assert_eq!(sends, 2);
    for _ in 0..sends {
        host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), ms(53));
    }
    assert_eq!(host.snapshot(PeerId(2), ms(53)).queued_bytes, 412 + 401);
    let said = host.timeline(ms(53), ms(1000));
    assert!(said.iter().any(|line| line.ends_with("data seq=0 part=1 395 bytes")), "{said:?}");
}

/// T-65: a peer that answers one part plainly and the last with its index does not make the other be forgotten.
#[test]
fn parts_that_wait_for_the_others_are_sent_again_when_the_others_have_arrived() {
    let mut host = half_sent();
    host.hear_from(address(1), &from_peer(2, &[ack(Channel::Game, 0)]), START);
    let said = host.timeline(START, ms(98));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with("data seq=0 part=1 395 bytes"), "{said:?}");
    host.hear_from(address(1), &from_peer(2, &[ack_part(0, 1)]), ms(99));
    assert_eq!(host.says(ms(99)), ["data seq=0 part=0/2 405 bytes"]);
    host.hear_from(address(1), &from_peer(2, &[ack_part(0, 0)]), ms(100));
    assert_eq!(host.snapshot(PeerId(2), ms(100)).queued_bytes, 0);
}
