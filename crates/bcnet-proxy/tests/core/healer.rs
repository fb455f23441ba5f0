//! Messages that the healer removes from a conversation, and messages that it keeps.

use std::net::Ipv4Addr;

use bcnet_lab::Rng;
use bcnet_proxy::{HealCounters, Healer, OutboundBytes, ProxyDirection};
use bcnet_transport::wire::{Ack, Body, Control, Message, PeerId, Role, Seq};

use crate::{
    WireAndPlaintext, ack, at, connect, data, fragment, fragment_ack, message_texts, state_update, texts,
};

const CLIENT: PeerId = PeerId(2);

/// The forwarded datagram and the answer, as text.
#[derive(Debug, PartialEq, Eq)]
struct HealedTexts {
    forward: Option<Vec<String>>,
    answer: Option<Vec<String>>,
}

fn pass_messages(
    healer: &mut Healer,
    direction: ProxyDirection,
    messages: &[Message<'_>],
    millis: u64,
) -> HealedTexts {
    let sender = if direction == ProxyDirection::ToServer { CLIENT } else { PeerId::HOST };
    let datagram = WireAndPlaintext::new(sender, messages);
    let passed = healer.handle_datagram(direction, datagram.inbound(direction.sender()), at(millis));
    if let Some(forward) = passed.forward {
        assert_eq!(forward.as_slice()[0], sender.0);
    }
    let told = |bytes: OutboundBytes<'_>| message_texts(&bytes.to_wire());
    HealedTexts { forward: passed.forward.map(told), answer: passed.answer.map(told) }
}

fn forwarded(messages: &[Message<'_>]) -> HealedTexts {
    HealedTexts { forward: Some(texts(messages)), answer: None }
}

/// Returns a healer for sides that have exchanged messages for a while, without loss.
fn established_healer() -> Healer {
    let mut healer = new_healer();
    for seq in 0..100 {
        for (there, back) in [
            (ProxyDirection::ToServer, ProxyDirection::ToClient),
            (ProxyDirection::ToClient, ProxyDirection::ToServer),
        ] {
            let goodbye = Body::Disconnect { peer: CLIENT, address: Ipv4Addr::LOCALHOST };
            let message = Message::Control(Control::new(Seq(seq), goodbye));
            let answer = Message::Ack(Ack::new(message.id().expect("it is reliable")));
            assert_eq!(pass_messages(&mut healer, there, &[message], 0), forwarded(&[message]));
            assert_eq!(pass_messages(&mut healer, back, &[answer], 0), forwarded(&[answer]));
        }
    }
    healer
}

/// Returns a healer for sides that have just exchanged their first messages.
fn new_healer() -> Healer {
    let mut healer = Healer::default();
    for direction in [ProxyDirection::ToServer, ProxyDirection::ToClient] {
        pass_messages(&mut healer, direction, &[state_update()], 0);
    }
    healer
}

/// T-79
#[test]
fn two_ack_copies_pass_until_link_is_known_lossless() {
    let copies = |healer: &mut Healer, seq| {
        pass_messages(healer, ProxyDirection::ToServer, &[data(seq)], 10);
        (0..9)
            .filter(|_| pass_messages(healer, ProxyDirection::ToClient, &[ack(seq)], 20).forward.is_some())
            .count()
    };
    assert_eq!((copies(&mut new_healer(), 0), copies(&mut established_healer(), 0)), (2, 1));
    // A message arrives again although its ACK was forwarded: the ACK was lost.
    let mut healer = established_healer();
    assert_eq!(copies(&mut healer, 0), 1);
    pass_messages(&mut healer, ProxyDirection::ToServer, &[data(0)], 1_010);
    assert_eq!(copies(&mut healer, 1), 2);
    // A message arrives again before any ACK: the message was lost.
    let mut healer = established_healer();
    for millis in [10, 1_010] {
        pass_messages(&mut healer, ProxyDirection::ToClient, &[data(0)], millis);
    }
    assert_eq!(copies(&mut healer, 0), 2);
    // A message comes after the next one.
    let mut healer = established_healer();
    pass_messages(&mut healer, ProxyDirection::ToServer, &[data(1)], 10);
    pass_messages(&mut healer, ProxyDirection::ToServer, &[data(0)], 1_010);
    assert_eq!(copies(&mut healer, 2), 2);
}

#[test]
fn first_ack_passes_and_repeats_are_dropped() {
    let mut healer = established_healer();
    assert_eq!(pass_messages(&mut healer, ProxyDirection::ToServer, &[data(0)], 10), forwarded(&[data(0)]));
    assert_eq!(
        pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0), state_update()], 20),
        forwarded(&[ack(0), state_update()])
    );
    assert_eq!(
        pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0), state_update()], 30),
        forwarded(&[state_update()])
    );
    assert_eq!(
        healer.healed(ProxyDirection::ToClient),
        HealCounters { acks: 1, bytes_removed: 4, ..HealCounters::default() }
    );
    assert_eq!(healer.healed(ProxyDirection::ToServer), HealCounters::default());
}

#[test]
fn ack_of_unseen_message_always_passes() {
    let mut healer = established_healer();
    for _ in 0..3 {
        assert_eq!(
            pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(77), fragment_ack(78, 1)], 10),
            forwarded(&[ack(77), fragment_ack(78, 1)])
        );
    }
}

#[test]
fn ack_passes_again_after_its_message_was_forwarded_again() {
    let mut healer = Healer::default();
    // The client has sent nothing yet, so the proxy cannot answer in its place: repeats pass.
    for round in 0..3 {
        assert_eq!(
            pass_messages(&mut healer, ProxyDirection::ToClient, &[data(0)], round),
            forwarded(&[data(0)])
        );
    }
    assert_eq!(pass_messages(&mut healer, ProxyDirection::ToServer, &[ack(0)], 10), forwarded(&[ack(0)]));
    let mut healer = established_healer();
    // Without an ACK in between, each copy passes. Then one ACK passes for all of them.
    for round in 0..3 {
        assert_eq!(
            pass_messages(&mut healer, ProxyDirection::ToServer, &[data(5)], round),
            forwarded(&[data(5)])
        );
    }
    assert_eq!(pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(5)], 20), forwarded(&[ack(5)]));
    assert_eq!(pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(5)], 21).forward, None);
}

#[test]
fn acked_message_is_acked_by_proxy_and_not_forwarded() {
    let mut healer = established_healer();
    pass_messages(&mut healer, ProxyDirection::ToServer, &[data(0)], 10);
    pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0)], 20);
    let out = pass_messages(&mut healer, ProxyDirection::ToServer, &[data(0), data(1)], 1010);
    assert_eq!(out, HealedTexts { forward: Some(texts(&[data(1)])), answer: Some(texts(&[ack(0)])) });
    let healed = healer.healed(ProxyDirection::ToServer);
    assert_eq!((healed.duplicates, healed.answers, healed.emptied_datagrams), (1, 1, 0));
    let out = pass_messages(&mut healer, ProxyDirection::ToServer, &[data(0)], 1020);
    assert_eq!(out, HealedTexts { forward: None, answer: Some(texts(&[ack(0)])) });
    assert_eq!(healer.healed(ProxyDirection::ToServer).emptied_datagrams, 1);
}

#[test]
fn fragments_are_tracked_separately() {
    let mut healer = established_healer();
    pass_messages(
        &mut healer,
        ProxyDirection::ToServer,
        &[fragment(3, 0, 3), fragment(3, 1, 3), fragment(3, 2, 3)],
        10,
    );
    assert_eq!(
        pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment_ack(3, 1)], 20),
        forwarded(&[fragment_ack(3, 1)])
    );
    assert_eq!(
        pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment_ack(3, 1), fragment_ack(3, 2)], 30),
        forwarded(&[fragment_ack(3, 2)])
    );
    let out =
        pass_messages(&mut healer, ProxyDirection::ToServer, &[fragment(3, 0, 3), fragment(3, 1, 3)], 1010);
    assert_eq!(
        out,
        HealedTexts {
            forward: Some(texts(&[fragment(3, 0, 3)])),
            answer: Some(texts(&[fragment_ack(3, 1)]))
        }
    );
}

/// A sender that ignores ACKs of fragments gets a plain ACK now and then, as long as it repeats.
#[test]
fn persistent_sender_gets_both_ack_forms() {
    let mut healer = established_healer();
    pass_messages(&mut healer, ProxyDirection::ToServer, &[fragment(3, 0, 2)], 10);
    pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment_ack(3, 0)], 20);
    let mut forms = Vec::new();
    for round in 0..600 {
        forms.extend(
            pass_messages(&mut healer, ProxyDirection::ToServer, &[fragment(3, 0, 2)], 1000 + round)
                .answer
                .expect("an answer"),
        );
    }
    let plain = ack(3).to_string();
    assert!(forms[..4].iter().all(|form| *form != plain), "{:?}", &forms[..4]);
    assert!(forms.windows(2).skip(4).all(|pair| pair.contains(&plain) && pair[0] != pair[1]));
}

/// Returns the healer's own datagrams until a time, in steps of a millisecond.
fn transmissions(healer: &mut Healer, from: u64, to: u64) -> Vec<(u64, ProxyDirection, Vec<String>)> {
    let mut sent = Vec::new();
    for millis in from..=to {
        while let Some((direction, bytes)) = healer.poll_transmit(at(millis)) {
            sent.push((millis, direction, message_texts(&bytes.to_wire())));
            assert!(sent.len() < 10_000, "after {millis} ms the healer sends without end");
        }
        assert!(healer.next_timeout().is_none_or(|next| next > at(millis)));
    }
    sent
}

/// Returns a healer with a verified client, and a fragment that was forwarded once.
fn healer_with_fragment() -> Healer {
    let mut healer = established_healer();
    healer.allow_retransmissions();
    assert_eq!(
        pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(1, 0, 1)], 10),
        forwarded(&[fragment(1, 0, 1)])
    );
    healer
}

/// T-78
#[test]
fn duplicate_fragment_is_acked_and_resent_until_acked() {
    let mut healer = healer_with_fragment();
    let out = pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(1, 0, 1)], 1_000);
    assert_eq!(
        out,
        HealedTexts {
            forward: Some(texts(&[fragment(1, 0, 1)])),
            answer: Some(texts(&[fragment_ack(1, 0)]))
        },
        "the fragment is forwarded, and the proxy acknowledges it to its sender"
    );
    let sent = transmissions(&mut healer, 1_000, 2_000);
    let (copies, answers): (Vec<_>, Vec<_>) =
        sent.into_iter().partition(|(_, direction, _)| *direction == ProxyDirection::ToClient);
    assert!(copies.iter().all(|(_, _, messages)| *messages == texts(&[fragment(1, 0, 1)])));
    let copies: Vec<u64> = copies.iter().map(|(millis, ..)| *millis).collect();
    assert_eq!(copies, [1_250, 1_500, 1_750], "later copies have longer intervals");
    assert!(answers.iter().all(|(_, _, messages)| *messages == texts(&[fragment_ack(1, 0)])));
    assert_eq!(answers.len(), 1, "one more copy of the ACK, because the first may be lost");
    pass_messages(&mut healer, ProxyDirection::ToServer, &[fragment_ack(1, 0)], 2_001);
    assert_eq!(transmissions(&mut healer, 2_002, 100_000), []);
    assert_eq!(healer.next_timeout(), None);
    let healed = healer.healed(ProxyDirection::ToClient);
    assert_eq!((healed.held_fragments, healed.fragment_copies, healed.answers), (1, 3, 2));
    let out =
        pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(1, 0, 1), state_update()], 100_001);
    assert_eq!(
        out,
        HealedTexts { forward: Some(texts(&[state_update()])), answer: Some(texts(&[fragment_ack(1, 0)])) }
    );
}

/// T-78: an ACK without fragment index may belong to another fragment, so several copies must be followed by one.
#[test]
fn whole_message_acks_end_copies_only_after_several() {
    let mut healer = healer_with_fragment();
    pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(1, 0, 1)], 1_000);
    let mut copies = 1;
    for millis in 1_001..100_000 {
        for (_, direction, _) in transmissions(&mut healer, millis, millis) {
            if direction == ProxyDirection::ToClient {
                copies += 1;
                pass_messages(&mut healer, ProxyDirection::ToServer, &[ack(1)], millis + 1);
            }
        }
    }
    // The first copy got no ACK.
    assert_eq!((copies, healer.next_timeout()), (5, None));
    // Fragments to such a receiver are acknowledged when they come for the first time.
    let out = pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(2, 0, 1)], 100_000);
    assert_eq!(out.answer, Some(texts(&[fragment_ack(2, 0)])));
}

/// T-78
#[test]
fn retransmissions_are_bounded() {
    // The receiver never answers.
    let mut healer = healer_with_fragment();
    pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(1, 0, 1)], 1_000);
    transmissions(&mut healer, 1_000, 200_000);
    assert_eq!((healer.healed(ProxyDirection::ToClient).fragment_copies, healer.next_timeout()), (19, None));
    // Fragments beyond the limit pass unchanged.
    let mut healer = healer_with_fragment();
    for _ in 0..2 {
        for seq in 2..400 {
            pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(seq, 0, 2)], 1_000);
        }
    }
    assert_eq!(healer.healed(ProxyDirection::ToClient).held_fragments, 255);
    let sent = transmissions(&mut healer, 1_000, 1_999);
    let copies = sent.iter().filter(|(_, direction, _)| *direction == ProxyDirection::ToClient).count();
    assert!(copies <= 100, "{copies} in a second");
    // An unverified client gets no extra datagrams.
    let mut healer = established_healer();
    for millis in [10, 1_000, 3_000] {
        let out = pass_messages(&mut healer, ProxyDirection::ToClient, &[fragment(1, 0, 1)], millis);
        assert_eq!(out, forwarded(&[fragment(1, 0, 1)]));
    }
    assert_eq!(healer.next_timeout(), None);
}

/// Sequence numbers start again with a connection, so earlier ACKs must not make new messages look like repeats.
#[test]
fn connect_request_resets_the_healer() {
    for nonces in [[5, 6], [5, 5]] {
        let mut healer = Healer::default();
        for (round, nonce) in nonces.into_iter().enumerate() {
            let (asks, millis) = (connect(nonce), round as u64 * 10_000);
            let passed =
                healer.handle_datagram(ProxyDirection::ToServer, asks.inbound(Role::Client), at(millis));
            assert_eq!((passed.forward, passed.answer), (Some(OutboundBytes::Wire(&asks.wire)), None));
            for direction in [ProxyDirection::ToClient, ProxyDirection::ToServer] {
                assert_eq!(
                    pass_messages(&mut healer, direction, &[data(0)], millis),
                    forwarded(&[data(0)]),
                    "round {round}"
                );
            }
            for direction in [ProxyDirection::ToServer, ProxyDirection::ToClient] {
                assert_eq!(
                    pass_messages(&mut healer, direction, &[ack(0)], millis),
                    forwarded(&[ack(0)]),
                    "round {round}"
                );
            }
        }
    }
}

#[test]
fn keepalive_replaces_emptied_datagram_after_five_seconds() {
    let mut healer = established_healer();
    pass_messages(&mut healer, ProxyDirection::ToServer, &[data(0)], 0);
    pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0)], 0);
    for millis in [1000, 4999] {
        assert_eq!(pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0)], millis).forward, None);
    }
    assert_eq!(
        pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0)], 5000),
        forwarded(&[Message::Keepalive])
    );
    assert_eq!(pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0)], 9999).forward, None);
    assert_eq!(
        pass_messages(&mut healer, ProxyDirection::ToClient, &[ack(0)], 10_000),
        forwarded(&[Message::Keepalive])
    );
}

#[test]
fn text_and_malformed_and_long_datagrams_pass_unchanged() {
    let mut healer = established_healer();
    let long = [1; 2049];
    for wire in [&b"\\status\\"[..], b"", b"\x01", b"\x01\x05\xFF\xFF", &[2; 300], &long] {
        let both = WireAndPlaintext::from_wire(wire);
        let passed = healer.handle_datagram(ProxyDirection::ToServer, both.inbound(Role::Client), at(0));
        assert_eq!((passed.forward, passed.answer), (Some(OutboundBytes::Wire(wire)), None));
    }
}

/// Only the newest 4,096 messages are tracked; an ACK of an older one passes.
#[test]
fn healer_memory_is_bounded() {
    let mut healer = established_healer();
    for seq in 0..5000 {
        pass_messages(&mut healer, ProxyDirection::ToServer, &[data(seq)], u64::from(seq));
    }
    let all: Vec<u16> = (0..5000).collect();
    for acks in all.chunks(100) {
        let messages: Vec<_> = acks.iter().map(|seq| ack(*seq)).collect();
        pass_messages(&mut healer, ProxyDirection::ToClient, &messages, 6000);
    }
    let kept = |healer: &mut Healer, seq| {
        pass_messages(healer, ProxyDirection::ToClient, &[ack(seq), state_update()], 7000)
            .forward
            .expect("the state update passes")
            .len()
    };
    let remembered = (0..5000).filter(|seq| kept(&mut healer, *seq) == 1).count();
    assert_eq!(remembered, 4096);
    assert_eq!((kept(&mut healer, 903), kept(&mut healer, 904)), (2, 1));
}

/// Forwarded datagrams are well formed if the received ones are, and hold only received messages.
#[test]
fn random_conversations_lose_and_gain_no_messages() {
    for seed in 0..300 {
        let (mut rng, mut healer) = (Rng::new(seed), Healer::default());
        for step in 0..400 {
            let direction = if rng.chance(0.5) { ProxyDirection::ToServer } else { ProxyDirection::ToClient };
            let mut messages = Vec::new();
            for _ in 0..rng.between(1, 6) {
                let seq = u16::try_from(rng.between(0, 6)).expect("small");
                let index = u8::try_from(rng.between(0, 2)).expect("small");
                messages.push(match rng.between(0, 5) {
                    0 => ack(seq),
                    1 => fragment_ack(seq, index),
                    2 => fragment(seq, index, 3),
                    3 => data(seq + 10),
                    4 => Message::Keepalive,
                    _ => state_update(),
                });
            }
            let out = pass_messages(&mut healer, direction, &messages, step * 50);
            let mut came = texts(&messages).into_iter();
            for left in out.forward.iter().flatten() {
                let keepalive = *left == Message::Keepalive.to_string();
                assert!(came.any(|message| message == *left) || keepalive, "seed {seed} step {step}");
            }
            let count =
                |list: &[String]| list.iter().filter(|text| **text == state_update().to_string()).count();
            let forwarded = out.forward.as_deref().map_or(0, count);
            assert_eq!(forwarded, count(&texts(&messages)), "seed {seed} step {step}");
        }
    }
}
