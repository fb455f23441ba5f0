//! Counts the heap use of a test's thread; the harness allocates on other threads.
//!
//! Tests of other crates include this file, too.
#![allow(dead_code, reason = "no test needs all of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Returns the bytes that this thread has allocated and not freed.
pub(crate) fn in_use() -> isize {
    IN_USE.get()
}

/// Returns the number of allocations of this thread.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.get()
}

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct HeapCounter;

fn count(layout: Layout, sign: isize) {
    // A thread that ends frees its last memory after its counter is gone.
    let _ = IN_USE.try_with(|in_use| in_use.set(in_use.get() + sign * layout.size().cast_signed()));
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for HeapCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
        count(layout, 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout, -1);
        // SAFETY: `pointer` came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: HeapCounter = HeapCounter;
