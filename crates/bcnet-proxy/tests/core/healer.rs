//! What is taken out of one conversation, and what is not.

use std::net::Ipv4Addr;

use bcnet_lab::Rng;
use bcnet_proxy::{Bytes, Direction, Healed, Healer};
use bcnet_transport::wire::{Ack, Body, Control, Message, PeerId, Role, Seq};

use crate::{Both, ack, at, connect, data, news, part, part_ack, texts, told};

const CLIENT: PeerId = PeerId(2);

/// What goes on and what goes back, as text.
#[derive(Debug, PartialEq, Eq)]
struct Out {
    forward: Option<Vec<String>>,
    answer: Option<Vec<String>>,
}

fn pass(healer: &mut Healer, direction: Direction, messages: &[Message<'_>], millis: u64) -> Out {
    let sender = if direction == Direction::Up { CLIENT } else { PeerId::HOST };
    let datagram = Both::new(sender, messages);
    let passed = healer.pass(direction, datagram.from(direction.sender()), at(millis));
    if let Some(forward) = passed.forward {
        assert_eq!(forward.as_slice()[0], sender.0);
    }
    let told = |bytes: Bytes<'_>| told(&bytes.to_wire());
    Out { forward: passed.forward.map(told), answer: passed.answer.map(told) }
}

fn forward(messages: &[Message<'_>]) -> Out {
    Out { forward: Some(texts(messages)), answer: None }
}

/// A conversation in which both have spoken for a while, and nothing was lost.
fn begun() -> Healer {
    let mut healer = new();
    for seq in 0..100 {
        for (there, back) in [(Direction::Up, Direction::Down), (Direction::Down, Direction::Up)] {
            let goodbye = Body::Disconnect { peer: CLIENT, address: Ipv4Addr::LOCALHOST };
            let message = Message::Control(Control::new(Seq(seq), goodbye));
            let answer = Message::Ack(Ack::new(message.id().expect("it is reliable")));
            assert_eq!(pass(&mut healer, there, &[message], 0), forward(&[message]));
            assert_eq!(pass(&mut healer, back, &[answer], 0), forward(&[answer]));
        }
    }
    healer
}

/// One in which both have just spoken.
fn new() -> Healer {
    let mut healer = Healer::default();
    for direction in [Direction::Up, Direction::Down] {
        pass(&mut healer, direction, &[news()], 0);
    }
    healer
}

/// T-79
#[test]
fn two_copies_of_an_ack_go_on_until_it_is_known_that_nothing_is_lost() {
    let copies = |healer: &mut Healer, seq| {
        pass(healer, Direction::Up, &[data(seq)], 10);
        (0..9).filter(|_| pass(healer, Direction::Down, &[ack(seq)], 20).forward.is_some()).count()
    };
    assert_eq!((copies(&mut new(), 0), copies(&mut begun(), 0)), (2, 1));
    // A message comes again although its ACK was passed on: that was lost.
    let mut healer = begun();
    assert_eq!(copies(&mut healer, 0), 1);
    pass(&mut healer, Direction::Up, &[data(0)], 1_010);
    assert_eq!(copies(&mut healer, 1), 2);
    // One comes again before any ACK of it: it was lost itself.
    let mut healer = begun();
    for millis in [10, 1_010] {
        pass(&mut healer, Direction::Down, &[data(0)], millis);
    }
    assert_eq!(copies(&mut healer, 0), 2);
    // One comes after the next.
    let mut healer = begun();
    pass(&mut healer, Direction::Up, &[data(1)], 10);
    pass(&mut healer, Direction::Up, &[data(0)], 1_010);
    assert_eq!(copies(&mut healer, 2), 2);
}

#[test]
fn the_first_ack_goes_on_and_its_repeats_do_not() {
    let mut healer = begun();
    assert_eq!(pass(&mut healer, Direction::Up, &[data(0)], 10), forward(&[data(0)]));
    assert_eq!(pass(&mut healer, Direction::Down, &[ack(0), news()], 20), forward(&[ack(0), news()]));
    assert_eq!(pass(&mut healer, Direction::Down, &[ack(0), news()], 30), forward(&[news()]));
    assert_eq!(healer.healed(Direction::Down), Healed { acks: 1, bytes: 4, ..Healed::default() });
    assert_eq!(healer.healed(Direction::Up), Healed::default());
}

#[test]
fn an_ack_of_something_unseen_always_goes_on() {
    let mut healer = begun();
    for _ in 0..3 {
        assert_eq!(
            pass(&mut healer, Direction::Down, &[ack(77), part_ack(78, 1)], 10),
            forward(&[ack(77), part_ack(78, 1)])
        );
    }
}

#[test]
fn an_ack_is_kept_when_its_message_was_passed_again() {
    let mut healer = Healer::default();
    // The client has said nothing yet, so nothing can be answered in its name: repeats pass.
    for round in 0..3 {
        assert_eq!(pass(&mut healer, Direction::Down, &[data(0)], round), forward(&[data(0)]));
    }
    assert_eq!(pass(&mut healer, Direction::Up, &[ack(0)], 10), forward(&[ack(0)]));
    let mut healer = begun();
    // Without an ACK in between, the message passes again, and the next ACK is news for each.
    for round in 0..3 {
        assert_eq!(pass(&mut healer, Direction::Up, &[data(5)], round), forward(&[data(5)]));
    }
    assert_eq!(pass(&mut healer, Direction::Down, &[ack(5)], 20), forward(&[ack(5)]));
    assert_eq!(pass(&mut healer, Direction::Down, &[ack(5)], 21).forward, None);
}

#[test]
fn a_message_that_has_arrived_is_answered_and_not_passed_on() {
    let mut healer = begun();
    pass(&mut healer, Direction::Up, &[data(0)], 10);
    pass(&mut healer, Direction::Down, &[ack(0)], 20);
    let out = pass(&mut healer, Direction::Up, &[data(0), data(1)], 1010);
    assert_eq!(out, Out { forward: Some(texts(&[data(1)])), answer: Some(texts(&[ack(0)])) });
    let healed = healer.healed(Direction::Up);
    assert_eq!((healed.repeats, healed.answers, healed.emptied), (1, 1, 0));
    let out = pass(&mut healer, Direction::Up, &[data(0)], 1020);
    assert_eq!(out, Out { forward: None, answer: Some(texts(&[ack(0)])) });
    assert_eq!(healer.healed(Direction::Up).emptied, 1);
}

#[test]
fn parts_are_told_apart() {
    let mut healer = begun();
    pass(&mut healer, Direction::Up, &[part(3, 0, 3), part(3, 1, 3), part(3, 2, 3)], 10);
    assert_eq!(pass(&mut healer, Direction::Down, &[part_ack(3, 1)], 20), forward(&[part_ack(3, 1)]));
    assert_eq!(
        pass(&mut healer, Direction::Down, &[part_ack(3, 1), part_ack(3, 2)], 30),
        forward(&[part_ack(3, 2)])
    );
    let out = pass(&mut healer, Direction::Up, &[part(3, 0, 3), part(3, 1, 3)], 1010);
    assert_eq!(out, Out { forward: Some(texts(&[part(3, 0, 3)])), answer: Some(texts(&[part_ack(3, 1)])) });
}

/// A sender that does not read ACKs of parts gets a plain one now and then, for as long as it repeats.
#[test]
fn a_sender_that_goes_on_gets_both_forms() {
    let mut healer = begun();
    pass(&mut healer, Direction::Up, &[part(3, 0, 2)], 10);
    pass(&mut healer, Direction::Down, &[part_ack(3, 0)], 20);
    let mut forms = Vec::new();
    for round in 0..600 {
        forms.extend(
            pass(&mut healer, Direction::Up, &[part(3, 0, 2)], 1000 + round).answer.expect("an answer"),
        );
    }
    let plain = ack(3).to_string();
    assert!(forms[..4].iter().all(|form| *form != plain), "{:?}", &forms[..4]);
    assert!(forms.windows(2).skip(4).all(|pair| pair.contains(&plain) && pair[0] != pair[1]));
}

/// What the healer sends by itself up to a time, a millisecond at a time.
fn repeated(healer: &mut Healer, from: u64, to: u64) -> Vec<(u64, Direction, Vec<String>)> {
    let mut sent = Vec::new();
    for millis in from..=to {
        while let Some((direction, bytes)) = healer.poll_transmit(at(millis)) {
            sent.push((millis, direction, told(&bytes.to_wire())));
        }
        assert!(healer.next_timeout().is_none_or(|next| next > at(millis)));
    }
    sent
}

/// A conversation whose client has proved itself, and a part that was passed on once.
fn part_under_way() -> Healer {
    let mut healer = begun();
    healer.allow_repeats();
    assert_eq!(pass(&mut healer, Direction::Down, &[part(1, 0, 1)], 10), forward(&[part(1, 0, 1)]));
    healer
}

/// T-78
#[test]
fn a_part_that_comes_again_is_answered_and_repeated_until_its_ack_comes() {
    let mut healer = part_under_way();
    let out = pass(&mut healer, Direction::Down, &[part(1, 0, 1)], 1_000);
    assert_eq!(
        out,
        Out { forward: Some(texts(&[part(1, 0, 1)])), answer: Some(texts(&[part_ack(1, 0)])) },
        "it goes on, and its sender is told that the proxy sees to it"
    );
    let sent = repeated(&mut healer, 1_000, 2_000);
    let (copies, answers): (Vec<_>, Vec<_>) =
        sent.into_iter().partition(|(_, direction, _)| *direction == Direction::Down);
    assert!(copies.iter().all(|(_, _, messages)| *messages == texts(&[part(1, 0, 1)])));
    let copies: Vec<u64> = copies.iter().map(|(millis, ..)| *millis).collect();
    assert_eq!(copies, [1_250, 1_500, 1_750], "then more slowly");
    assert!(answers.iter().all(|(_, _, messages)| *messages == texts(&[part_ack(1, 0)])));
    assert_eq!(answers.len(), 1, "the answer may be lost as well");
    pass(&mut healer, Direction::Up, &[part_ack(1, 0)], 2_001);
    assert_eq!(repeated(&mut healer, 2_002, 100_000), []);
    assert_eq!(healer.next_timeout(), None);
    let healed = healer.healed(Direction::Down);
    assert_eq!((healed.held, healed.copies, healed.answers), (1, 3, 2));
    let out = pass(&mut healer, Direction::Down, &[part(1, 0, 1), news()], 100_001);
    assert_eq!(out, Out { forward: Some(texts(&[news()])), answer: Some(texts(&[part_ack(1, 0)])) });
}

/// T-78: an ACK without a part may be for another one, so several copies must have been followed by one.
#[test]
fn plain_acks_end_the_copies_only_after_several() {
    let mut healer = part_under_way();
    pass(&mut healer, Direction::Down, &[part(1, 0, 1)], 1_000);
    let mut copies = 1;
    for millis in 1_001..100_000 {
        for (_, direction, _) in repeated(&mut healer, millis, millis) {
            if direction == Direction::Down {
                copies += 1;
                pass(&mut healer, Direction::Up, &[ack(1)], millis + 1);
            }
        }
    }
    // The first copy was not answered.
    assert_eq!((copies, healer.next_timeout()), (5, None));
    // Parts of a receiver that answers so are answered when they come for the first time.
    let out = pass(&mut healer, Direction::Down, &[part(2, 0, 1)], 100_000);
    assert_eq!(out.answer, Some(texts(&[part_ack(2, 0)])));
}

/// T-78
#[test]
fn what_is_repeated_is_bounded() {
    // A receiver that never answers.
    let mut healer = part_under_way();
    pass(&mut healer, Direction::Down, &[part(1, 0, 1)], 1_000);
    repeated(&mut healer, 1_000, 200_000);
    assert_eq!((healer.healed(Direction::Down).copies, healer.next_timeout()), (19, None));
    // More parts than there is room for; the others pass as they came.
    let mut healer = part_under_way();
    for _ in 0..2 {
        for seq in 2..400 {
            pass(&mut healer, Direction::Down, &[part(seq, 0, 2)], 1_000);
        }
    }
    assert_eq!(healer.healed(Direction::Down).held, 255);
    let sent = repeated(&mut healer, 1_000, 1_999);
    let copies = sent.iter().filter(|(_, direction, _)| *direction == Direction::Down).count();
    assert!(copies <= 100, "{copies} in a second");
    // Nobody is sent more than it asked for before it has proved itself.
    let mut healer = begun();
    for millis in [10, 1_000, 3_000] {
        let out = pass(&mut healer, Direction::Down, &[part(1, 0, 1)], millis);
        assert_eq!(out, forward(&[part(1, 0, 1)]));
    }
    assert_eq!(healer.next_timeout(), None);
}

/// Numbers begin anew with a connection, so nothing that was settled before may be taken for a repeat.
#[test]
fn asking_to_be_let_in_begins_anew() {
    for nonces in [[5, 6], [5, 5]] {
        let mut healer = Healer::default();
        for (round, nonce) in nonces.into_iter().enumerate() {
            let (asks, millis) = (connect(nonce), round as u64 * 10_000);
            let passed = healer.pass(Direction::Up, asks.from(Role::Client), at(millis));
            assert_eq!((passed.forward, passed.answer), (Some(Bytes::Wire(&asks.wire)), None));
            for direction in [Direction::Down, Direction::Up] {
                assert_eq!(
                    pass(&mut healer, direction, &[data(0)], millis),
                    forward(&[data(0)]),
                    "round {round}"
                );
            }
            for direction in [Direction::Up, Direction::Down] {
                assert_eq!(
                    pass(&mut healer, direction, &[ack(0)], millis),
                    forward(&[ack(0)]),
                    "round {round}"
                );
            }
        }
    }
}

#[test]
fn a_keepalive_stands_for_what_was_emptied_after_five_seconds() {
    let mut healer = begun();
    pass(&mut healer, Direction::Up, &[data(0)], 0);
    pass(&mut healer, Direction::Down, &[ack(0)], 0);
    for millis in [1000, 4999] {
        assert_eq!(pass(&mut healer, Direction::Down, &[ack(0)], millis).forward, None);
    }
    assert_eq!(pass(&mut healer, Direction::Down, &[ack(0)], 5000), forward(&[Message::Keepalive]));
    assert_eq!(pass(&mut healer, Direction::Down, &[ack(0)], 9999).forward, None);
    assert_eq!(pass(&mut healer, Direction::Down, &[ack(0)], 10_000), forward(&[Message::Keepalive]));
}

#[test]
fn text_and_what_is_malformed_or_too_long_passes_as_it_came() {
    let mut healer = begun();
    let long = [1; 2049];
    for wire in [&b"\\status\\"[..], b"", b"\x01", b"\x01\x05\xFF\xFF", &[2; 300], &long] {
        let both = Both::from_wire(wire);
        let passed = healer.pass(Direction::Up, both.from(Role::Client), at(0));
        assert_eq!((passed.forward, passed.answer), (Some(Bytes::Wire(wire)), None));
    }
}

/// Only the newest 4,096 messages are remembered; an ACK of an older one passes.
#[test]
fn memory_is_bounded() {
    let mut healer = begun();
    for seq in 0..5000 {
        pass(&mut healer, Direction::Up, &[data(seq)], u64::from(seq));
    }
    let all: Vec<u16> = (0..5000).collect();
    for acks in all.chunks(100) {
        let messages: Vec<_> = acks.iter().map(|seq| ack(*seq)).collect();
        pass(&mut healer, Direction::Down, &messages, 6000);
    }
    let kept = |healer: &mut Healer, seq| {
        pass(healer, Direction::Down, &[ack(seq), news()], 7000).forward.expect("news").len()
    };
    let remembered = (0..5000).filter(|seq| kept(&mut healer, *seq) == 1).count();
    assert_eq!(remembered, 4096);
    assert_eq!((kept(&mut healer, 903), kept(&mut healer, 904)), (2, 1));
}

/// Whatever both sides say, what goes on is well formed if what came was, and never holds anything that did not come.
#[test]
fn random_conversations_lose_no_news_and_gain_nothing() {
    for seed in 0..300 {
        let (mut rng, mut healer) = (Rng::new(seed), Healer::default());
        for step in 0..400 {
            let direction = if rng.chance(0.5) { Direction::Up } else { Direction::Down };
            let mut messages = Vec::new();
            for _ in 0..rng.between(1, 6) {
                let seq = u16::try_from(rng.between(0, 6)).expect("small");
                let index = u8::try_from(rng.between(0, 2)).expect("small");
                messages.push(match rng.between(0, 5) {
                    0 => ack(seq),
                    1 => part_ack(seq, index),
                    2 => part(seq, index, 3),
                    3 => data(seq + 10),
                    4 => Message::Keepalive,
                    _ => news(),
                });
            }
            let out = pass(&mut healer, direction, &messages, step * 50);
            let mut came = texts(&messages).into_iter();
            for left in out.forward.iter().flatten() {
                let keepalive = *left == Message::Keepalive.to_string();
                assert!(came.any(|message| message == *left) || keepalive, "seed {seed} step {step}");
            }
            let count = |list: &[String]| list.iter().filter(|text| **text == news().to_string()).count();
            let forwarded = out.forward.as_deref().map_or(0, count);
            assert_eq!(forwarded, count(&texts(&messages)), "seed {seed} step {step}");
        }
    }
}
