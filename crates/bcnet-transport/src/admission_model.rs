//! [T-75], [T-76]: with random clients, memory is bounded, and only clients that were sent a cookie join.
//!
//! [T-75]: bcnet_wire::protocol#t-75
//! [T-76]: bcnet_wire::protocol#t-76

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::*;
use crate::config::{Config, ProofPolicy};
use crate::lcg::Lcg;
use crate::wire::{Ack, Channel, Datagram, Message, MessageId, Role, Writer};

/// Returns a datagram under `id` that acknowledges `numbers`, or has a keepalive.
fn datagram<'b>(buffer: &'b mut [u8], id: PeerId, numbers: &[Seq]) -> Datagram<'b> {
    let mut writer = Writer::new(buffer, id);
    for &seq in numbers {
        assert!(writer.push(&Message::Ack(Ack::new(MessageId {
            channel: Channel::Game,
            seq,
            fragment: None
        }))));
    }
    if numbers.is_empty() {
        assert!(writer.push(&Message::Keepalive));
    }
    let bytes: &[u8] = writer.finish().expect("a message");
    Datagram::parse(bytes, Some(Role::Client)).expect("well formed")
}

/// Runs one simulation.
///
/// Returns how many clients joined, how many showed a number that they were sent, and how many guessed.
fn run(prove: ProofPolicy, seed: u64, addresses: u64) -> [usize; 3] {
    let config = Config { proof_policy: prove, ..Config::default() }.resolve();
    let (mut admission, mut lcg) = (AddressVerifier::new(seed), Lcg(seed));
    let mut sent_cookies: BTreeMap<(SocketAddrV4, PeerId), BTreeSet<u16>> = BTreeMap::new();
    let mut known: Vec<(SocketAddrV4, PeerId)> = Vec::new();
    let (mut now, mut counts) = (Time::from_micros(1), [0; 3]);
    for _ in 0..20_000 {
        now = now.plus(lcg.below(20_000));
        let host = u32::try_from(lcg.below(addresses)).expect("a small number");
        let from = SocketAddrV4::new(Ipv4Addr::from(host), 22101);
        match lcg.below(4) {
            0 | 1 => {
                let nonce = u32::try_from(lcg.below(3)).expect("a small number");
                let is_stored = admission.add_request(from, nonce, (32, 10_000_000), now).is_some();
                if let Some(request) = admission.request(from, 10_000_000, now).filter(|_| is_stored) {
                    let id = admission.choose_id(from, IdPolicy::Random, |_| true, now).expect("a free id");
                    admission.offer_id(id, request, None, false, now);
                    admission.forget_request(from);
                }
            }
            kind => {
                let Some(&(from, id)) = known.get(lcg.index(known.len().max(1))) else { continue };
                let honest = kind == 2;
                let numbers: Vec<Seq> = if honest {
                    sent_cookies[&(from, id)].iter().rev().take(2).copied().map(Seq).collect()
                } else {
                    [Seq(0x4000 + u16::try_from(lcg.below(0x8000)).expect("a number"))].into()
                };
                let mut buffer = [0; 64];
                let shown = datagram(&mut buffer, id, &numbers);
                let knows = numbers.iter().any(|number| sent_cookies[&(from, id)].contains(&number.0));
                counts[if knows { 1 } else { 2 }] += 1;
                if let Verification::Verified(_) = admission.verify(from, &shown, None, &[], &config, now) {
                    assert!(knows, "{from} joined as {id} by a guess");
                    counts[0] += 1;
                    admission.note_joined(id, now);
                }
            }
        }
        while let Some(UnverifiedReply { to, content }) = admission.next_reply() {
            if let ReplyContent::Offer(id, number, _) = content {
                sent_cookies.entry((to, id)).or_default().insert(number.0);
                known.push((to, id));
            } else if let ReplyContent::Cookie(number, _) = content {
                for (_, numbers) in sent_cookies.iter_mut().filter(|((address, _), _)| *address == to) {
                    numbers.insert(number.0);
                }
            }
        }
        assert!(admission.requests.len() <= 32 && admission.id_slots.len() <= ID_SLOTS);
    }
    counts
}

#[test]
fn only_addresses_that_received_a_cookie_are_verified() {
    for seed in 1..=20 {
        for (prove, addresses) in [
            (ProofPolicy::Ack, 8),
            (ProofPolicy::Ack, 5000),
            (ProofPolicy::Auto, 8),
            (ProofPolicy::Auto, 5000),
        ] {
            let [joined, honest, guesses] = run(prove, seed, addresses);
            assert!(
                joined > 20 && honest > 1000 && guesses > 1000,
                "{joined} of {honest}, {guesses} guesses"
            );
        }
    }
}
