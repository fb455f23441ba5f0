//! T-75, T-76: whatever strangers do, what is kept is bounded, and nobody is let in who was not told the number it shows.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::*;
use crate::config::{Config, Prove};
use crate::lcg::Lcg;
use crate::wire::{Ack, Channel, Datagram, Message, MessageId, Role, Writer};

/// A datagram under `id` that acknowledges `numbers`, or says that it lives.
fn datagram<'b>(buffer: &'b mut [u8], id: PeerId, numbers: &[Seq]) -> Datagram<'b> {
    let mut writer = Writer::new(buffer, id);
    for &seq in numbers {
        assert!(writer.push(&Message::Ack(Ack::new(MessageId { channel: Channel::Game, seq, part: None }))));
    }
    if numbers.is_empty() {
        assert!(writer.push(&Message::Keepalive));
    }
    let bytes: &[u8] = writer.finish().expect("a message");
    Datagram::parse(bytes, Some(Role::Client)).expect("well formed")
}

/// One run: how many were let in, of how many who showed a number that they were told, and of how many who guessed.
fn run(prove: Prove, seed: u64, addresses: u64) -> [usize; 3] {
    let config = Config { prove, ..Config::default() }.resolve();
    let (mut admission, mut lcg) = (Admission::new(seed), Lcg(seed));
    let mut told: BTreeMap<(SocketAddrV4, PeerId), BTreeSet<u16>> = BTreeMap::new();
    let mut known: Vec<(SocketAddrV4, PeerId)> = Vec::new();
    let (mut now, mut counts) = (Time::from_micros(1), [0; 3]);
    for _ in 0..20_000 {
        now = now.plus(lcg.below(20_000));
        let host = u32::try_from(lcg.below(addresses)).expect("few");
        let from = SocketAddrV4::new(Ipv4Addr::from(host), 22101);
        match lcg.below(4) {
            0 | 1 => {
                let nonce = u32::try_from(lcg.below(3)).expect("few");
                let asked = admission.ask(from, nonce, (32, 10_000_000), now).is_some();
                if let Some(asked) = admission.asked(from, 10_000_000, now).filter(|_| asked) {
                    let id = admission.choose(from, Ids::Random, |_| true, now).expect("a free id");
                    admission.offer(id, asked, None, now);
                    admission.forget_request(from);
                }
            }
            kind => {
                let Some(&(from, id)) = known.get(lcg.index(known.len().max(1))) else { continue };
                let honest = kind == 2;
                let numbers: Vec<Seq> = if honest {
                    told[&(from, id)].iter().rev().take(2).copied().map(Seq).collect()
                } else {
                    [Seq(0x4000 + u16::try_from(lcg.below(0x8000)).expect("a number"))].into()
                };
                let mut buffer = [0; 64];
                let shown = datagram(&mut buffer, id, &numbers);
                let knows = numbers.iter().any(|number| told[&(from, id)].contains(&number.0));
                counts[if knows { 1 } else { 2 }] += 1;
                if let Claim::Proved(_) = admission.claim(from, &shown, None, &config, now) {
                    assert!(knows, "{from} as {id} has guessed");
                    counts[0] += 1;
                    admission.note_joined(id, now);
                }
            }
        }
        while let Some(Answer { to, word }) = admission.next_answer() {
            if let Word::Welcome(id, number) = word {
                told.entry((to, id)).or_default().insert(number.0);
                known.push((to, id));
            } else if let Word::Cookie(number) = word {
                for (_, numbers) in told.iter_mut().filter(|((address, _), _)| *address == to) {
                    numbers.insert(number.0);
                }
            }
        }
        assert!(admission.asked.len() <= 32 && admission.places.len() <= PLACES);
    }
    counts
}

#[test]
fn nobody_is_let_in_who_was_not_told() {
    for seed in 1..=20 {
        for (prove, addresses) in [(Prove::Ack, 8), (Prove::Ack, 5000), (Prove::Auto, 8), (Prove::Auto, 5000)]
        {
            let [joined, honest, guesses] = run(prove, seed, addresses);
            assert!(
                joined > 20 && honest > 1000 && guesses > 1000,
                "{joined} of {honest}, {guesses} guesses"
            );
        }
    }
}
