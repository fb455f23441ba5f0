//! Test of the inbox against a simple model: a map from sequence number to content.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU8;

use super::*;
use crate::lcg::Lcg;

/// The same rules in their simplest form, without regard to cost.
#[derive(Default)]
struct NaiveInbox {
    /// The expected number, without wrapping.
    expected: i64,
    held: BTreeMap<i64, NaiveEntry>,
}

enum NaiveEntry {
    Whole(Vec<u8>),
    Fragments(Option<u8>, BTreeMap<u8, Vec<u8>>),
}

impl NaiveInbox {
    fn accept(&mut self, number: i64, fragment: Option<Fragment>, bytes: &[u8]) -> Accepted {
        let contradiction = Accepted::Refused(InboxRefusal::Contradiction);
        match number - self.expected {
            ..0 => return Accepted::Duplicate,
            0 if fragment.is_none() => {
                self.held.remove(&number);
                self.expected += 1;
                return Accepted::InOrder;
            }
            0x4000.. => return Accepted::Refused(InboxRefusal::Window),
            _ => {}
        }
        match (self.held.get_mut(&number), fragment) {
            (None, None) => drop(self.held.insert(number, NaiveEntry::Whole(bytes.to_vec()))),
            (Some(NaiveEntry::Whole(_)), None) => return Accepted::Duplicate,
            (Some(NaiveEntry::Whole(_)), Some(_)) | (Some(NaiveEntry::Fragments(..)), None) => {
                return contradiction;
            }
            (None, Some(part)) => {
                let total = part.total().map(NonZeroU8::get);
                if part.index() >= total.unwrap_or(255) {
                    return contradiction;
                }
                let parts = BTreeMap::from([(part.index(), bytes.to_vec())]);
                self.held.insert(number, NaiveEntry::Fragments(total, parts));
            }
            (Some(NaiveEntry::Fragments(total, parts)), Some(part)) => {
                let claimed = part.total().map(NonZeroU8::get);
                let all = total.or(claimed);
                let highest = parts.keys().copied().max().unwrap_or(0).max(part.index());
                if (total.is_some() && claimed.is_some() && *total != claimed)
                    || highest >= all.unwrap_or(255)
                {
                    return contradiction;
                }
                if parts.contains_key(&part.index()) {
                    return Accepted::Duplicate;
                }
                *total = all;
                parts.insert(part.index(), bytes.to_vec());
            }
        }
        Accepted::Buffered
    }

    fn next_ready(&mut self) -> Option<Vec<u8>> {
        let bytes = match self.held.get(&self.expected)? {
            NaiveEntry::Whole(bytes) => bytes.clone(),
            NaiveEntry::Fragments(Some(total), parts) if parts.len() == usize::from(*total) => {
                parts.values().flatten().copied().collect()
            }
            NaiveEntry::Fragments(..) => return None,
        };
        self.held.remove(&self.expected);
        self.expected += 1;
        Some(bytes)
    }
}

fn draw_fragment(random: &mut Lcg) -> Option<Fragment> {
    // Mostly fragments of four, so that some payloads become complete and some contradict.
    let index = u8::try_from([0, 1, 2, 3, 3, 4, 254, 255][random.index(8)]).ok()?;
    match (random.below(5), NonZeroU8::new(index)) {
        (0, _) => None,
        (_, Some(index)) => Some(Fragment::Later { index }),
        (kind, None) => Some(Fragment::First { total: NonZeroU8::new(if kind == 1 { 2 } else { 4 })? }),
    }
}

/// T-68, T-69: the inbox accepts, refuses and delivers the same as the model, in any order.
///
/// With little memory, it also refuses messages that do not fit.
#[test]
fn inbox_matches_naive_model() {
    for seed in 1..=60 {
        let mut random = Lcg(seed);
        let limit = if seed % 3 == 0 { 4 << 10 } else { usize::MAX / 2 };
        let hold = BufferLimits::new(limit, 900);
        let (mut inbox, mut naive, mut pool) =
            (Inbox::default(), NaiveInbox::default(), BlockPool::default());
        // Starts close to the wrap of the sequence numbers.
        while naive.expected < 0xFFE0 {
            let seq = inbox.expected();
            assert_eq!(inbox.accept(seq, None, &[], hold, &mut pool), Accepted::InOrder);
            naive.expected += 1;
        }
        let mut full = 0;
        for step in 0..4000_u64 {
            let ahead = match random.below(40) {
                0 => 0x4000,
                3 => 0x4000 + i64::try_from(random.below(0x3FF0)).unwrap_or(0),
                1 => -i64::try_from(random.below(100)).unwrap_or(0),
                2 if limit > 1 << 20 => 0x3FFF,
                _ => i64::try_from(random.below(8)).unwrap_or(0),
            };
            let number = naive.expected + ahead;
            let seq = Seq(u16::try_from(number & 0xFFFF).unwrap_or(0));
            let part = draw_fragment(&mut random);
            let bytes = vec![u8::try_from(step & 0xFF).unwrap_or(0); random.index(900)];
            let accepted = inbox.accept(seq, part, &bytes, hold, &mut pool);
            if accepted == Accepted::Refused(InboxRefusal::Full) {
                assert!(ahead > 0, "seed {seed} step {step}: no space for the expected message");
                full += 1;
            } else {
                assert_eq!(
                    accepted,
                    naive.accept(number, part, &bytes),
                    "seed {seed} step {step}: {seq} {part:?}"
                );
            }
            while let Some(held) = inbox.next_ready() {
                let mut out = vec![0; held.len()];
                held.take_into(&mut out, &mut pool);
                assert_eq!(Some(out), naive.next_ready(), "seed {seed} step {step}");
            }
            assert!(naive.next_ready().is_none(), "seed {seed} step {step}: a message should be ready");
            let (held, cost) = inbox.buffered();
            assert_eq!(held, naive.held.len(), "seed {seed} step {step}");
            assert_eq!(inbox.has_buffered(), held > 0, "seed {seed} step {step}");
            assert!(cost <= hold.next_in_order && (held > 0 || cost == 0), "seed {seed} step {step}: {cost}");
            assert_eq!(i64::from(inbox.expected().0), naive.expected & 0xFFFF, "seed {seed} step {step}");
        }
        assert_eq!(full > 0, limit < 1 << 20, "seed {seed}: {full} messages were refused");
        inbox.clear(&mut pool);
        assert!(!inbox.has_buffered());
        assert_eq!(pool.used(), 0, "seed {seed}: blocks were lost");
    }
}

/// T-69: the limit holds to the byte; fragments of the expected message may exceed it.
#[test]
fn out_of_order_buffer_is_limited_to_the_byte() {
    let cost = BlockPool::cost(10) + 2 * size_of::<BufferedMessage>();
    for (limit, expected) in [(cost, Accepted::Buffered), (cost - 1, Accepted::Refused(InboxRefusal::Full))] {
        let (mut inbox, mut pool) = (Inbox::default(), BlockPool::default());
        assert_eq!(inbox.accept(Seq(1), None, &[0; 10], BufferLimits::new(limit, 412), &mut pool), expected);
        let total = NonZeroU8::new(2).expect("the total is not zero");
        let part = Some(Fragment::First { total });
        assert_eq!(
            inbox.accept(Seq(0), part, &[0; 10], BufferLimits::new(limit, 412), &mut pool),
            Accepted::Buffered
        );
    }
}
