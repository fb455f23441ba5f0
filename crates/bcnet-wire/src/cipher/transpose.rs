//! Transposes a block of bytes: from one row per lane to one row per byte position, and back.

/// Swaps rows and columns. Both counts must be powers of two.
///
/// Interleaving the two halves of the matrix moves the top bit of every byte's index to the bottom. Doing
/// that once for each bit of the row number swaps rows and columns. Vector units have an instruction for
/// interleaving, so this is much faster than moving the bytes one by one.
#[inline(always)]
pub(super) fn transpose<const ROWS: usize, const COLUMNS: usize>(
    matrix: &[[u8; COLUMNS]; ROWS],
) -> [[u8; ROWS]; COLUMNS] {
    const { assert!(ROWS.is_power_of_two() && COLUMNS.is_power_of_two()) };
    let mut source = *matrix;
    let mut target = [[0; ROWS]; COLUMNS];
    for _ in 0..const { ROWS.ilog2() } {
        interleave(source.as_flattened(), target.as_flattened_mut());
        source.as_flattened_mut().copy_from_slice(target.as_flattened());
    }
    target
}

#[inline(always)]
fn interleave(source: &[u8], target: &mut [u8]) {
    let (first, second) = source.split_at(source.len() / 2);
    let (pairs, _) = target.as_chunks_mut();
    for ((pair, &first), &second) in pairs.iter_mut().zip(first).zip(second) {
        *pair = [first, second];
    }
}
