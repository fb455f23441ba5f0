//! Test that parsing and writing datagrams does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bcnet_observe::NonStock;
use bcnet_wire::cipher;
use bcnet_wire::{Data, Datagram, Delivery, Message, PeerId, Seq, Writer};

struct AllocationCounter;

thread_local! {
    /// Counts only this thread: the test harness allocates in other threads.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for AllocationCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;

#[test]
fn cipher_parse_and_write_do_not_allocate() {
    let payload = [0x1C; 36];
    let mut buffer = [0; 512];
    let mut other = [0; 512];
    let mut parsed = 0;

    let before = ALLOCATIONS.get();
    for round in 0..100 {
        let mut writer = Writer::new(&mut buffer, PeerId(2));
        for seq in 0..12 {
            let delivery = Delivery::Reliable(Seq(round * 12 + seq));
            assert!(writer.push(&Message::Data(Data { delivery, urgent: false, payload: &payload })));
        }
        let Some(datagram) = writer.finish() else { panic!("the datagram has messages") };
        let other = &mut other[..datagram.len()];
        other.copy_from_slice(datagram);
        cipher::encrypt(datagram);
        cipher::decrypt(datagram);
        cipher::encrypt_batch(&mut [&mut *datagram, &mut *other]);
        cipher::decrypt_batch(&mut [&mut *datagram, &mut *other]);
        let Ok(datagram) = Datagram::parse(datagram, None) else { panic!("a written datagram parses") };
        parsed += datagram.messages().filter(|message| NonStock::of(message).is_empty()).count();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(parsed, 1200);

    // Shows that the counter works.
    drop(Box::new([parsed; 4]));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
