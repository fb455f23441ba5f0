//! Tests of splitting and reassembly against simple models.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::lcg::Lcg;

/// T-67: fragments have the bytes in order, the first is one byte shorter than the others, at most 255.
#[test]
fn payload_is_split_like_stock() {
    let payload: Vec<u8> = (0..105_000_u32).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    for (limit, header) in [(412, 5), (412, 3), (100, 5), (8, 5)] {
        let (first, later) = (limit - 7, limit - 6);
        let max = first + 254 * later;
        assert_eq!(max_payload(limit), max);
        let ends =
            [limit - header, limit - header + 1, first + later, first + later + 1, max - 1, max, max + 1];
        // A payload that fits one message is not split.
        for len in (0..1300).chain(ends).filter(|len| (limit - header + 1..=payload.len()).contains(len)) {
            let whole = &payload[..len];
            let Some(total) = fragment_count(len, limit) else {
                assert!(len > max, "{len} bytes fit 255 fragments");
                continue;
            };
            assert!(len <= max);
            let pieces: Vec<(Fragment, &[u8])> = split(whole, total, limit).collect();
            let head = &whole[..first.min(len)];
            let naive: Vec<&[u8]> = core::iter::once(head).chain(whole[head.len()..].chunks(later)).collect();
            assert_eq!(pieces.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), naive, "{len} at {limit}");
            assert!(pieces.iter().map(|(part, _)| usize::from(part.index())).eq(0..usize::from(total.get())));
            assert_eq!(pieces[0].0.total(), Some(total));
        }
    }
}

/// T-68: stored bytes come back, freed blocks are reused, and no block is lost.
#[test]
fn block_pool_matches_a_map() {
    for seed in 1..=40 {
        let mut random = Lcg(seed);
        let mut pool = BlockPool::default();
        let mut kept: Vec<(ByteChain, Vec<u8>)> = Vec::new();
        let (mut used, mut max) = (0, 0);
        for step in 0..3000_usize {
            if random.index(100) < 52 && kept.len() < 40 {
                let bytes = vec![u8::try_from(step & 0xFF).unwrap_or(0); random.index(1300)];
                used += bytes.len().div_ceil(BLOCK_LEN);
                max = max.max(used);
                kept.push((pool.store(&bytes), bytes));
            } else if !kept.is_empty() {
                let (chain, bytes) = kept.swap_remove(random.index(kept.len()));
                used -= bytes.len().div_ceil(BLOCK_LEN);
                assert_eq!(chain.len(), bytes.len());
                if random.index(4) == 0 {
                    pool.free(chain);
                } else {
                    let mut out = vec![0; chain.len()];
                    pool.take_into(chain, &mut out);
                    assert_eq!(out, bytes, "seed {seed} step {step}");
                }
            }
            assert_eq!(pool.used, used, "seed {seed} step {step}");
            assert_eq!(pool.blocks.len(), max, "seed {seed} step {step}: a free block was not used");
        }
        kept.into_iter().for_each(|(chain, _)| pool.free(chain));
        pool.shrink();
        assert_eq!(pool.blocks.capacity(), 0);
    }
}

/// T-68: a reassembly is complete with all fragments, in any order, and returns the payload.
#[test]
fn reassembly_matches_a_map_of_fragments() {
    let mut pool = BlockPool::default();
    for seed in 1..=400 {
        let mut random = Lcg(seed);
        let total = u8::try_from(1 + random.index(255)).unwrap_or(1);
        let total = NonZeroU8::new(total).expect("the total is not zero");
        let mut set = pool.new_set();
        let mut naive: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let mut is_total_known = false;
        while !set.is_complete() {
            let index = u8::try_from(random.index(255)).unwrap_or(0);
            let part = match NonZeroU8::new(index) {
                Some(index) => Fragment::Later { index },
                None => Fragment::First { total },
            };
            let beyond = naive.keys().any(|known| *known >= total.get()) || index >= total.get();
            let expected = if (is_total_known || index == 0) && beyond {
                Err(FragmentError::Contradiction)
            } else if naive.contains_key(&index) {
                Err(FragmentError::Duplicate)
            } else {
                Ok(())
            };
            assert_eq!(set.check(part), expected, "seed {seed} fragment {index} of {total}");
            // Fragments beyond the total would keep the reassembly from ever being complete.
            if expected.is_ok() && index < total.get() {
                let bytes = vec![index; random.index(500)];
                set.insert(part, pool.store(&bytes));
                naive.insert(index, bytes);
                is_total_known |= index == 0;
            }
            assert_eq!(usize::from(set.count()), naive.len());
            assert_eq!(set.is_complete(), naive.len() == usize::from(total.get()), "seed {seed}");
            assert_eq!(set.len(), naive.values().map(Vec::len).sum::<usize>());
        }
        let mut out = vec![0; set.len()];
        set.take_into(&mut out, &mut pool);
        assert_eq!(out, naive.into_values().flatten().collect::<Vec<u8>>(), "seed {seed}");
        assert_eq!((pool.used, pool.free_sets.len()), (0, 1), "seed {seed}: the reassembly is not reused");
    }
    // An incomplete reassembly is freed with its fragments.
    let mut set = pool.new_set();
    let index = NonZeroU8::new(7).expect("the index is not zero");
    set.insert(Fragment::Later { index }, pool.store(&[1; BLOCK_LEN + 1]));
    assert_eq!(pool.used, 2);
    pool.free_set(set);
    assert_eq!((pool.used, pool.free_sets.len()), (0, 1));
    assert_eq!((pool.new_set().count(), pool.new_set().len()), (0, 0));
}
