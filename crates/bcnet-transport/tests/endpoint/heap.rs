//! Counts the heap that the thread of a test has in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The bytes that this thread has taken and not given back.
pub(crate) fn in_use() -> i64 {
    IN_USE.get()
}

thread_local! {
    static IN_USE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(size: usize, sign: i64) {
    let size = i64::try_from(size).expect("no allocation is that large");
    // A thread that ends frees what it has left after its counter is gone.
    let _ = IN_USE.try_with(|in_use| in_use.set(in_use.get() + sign * size));
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: `pointer` came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
