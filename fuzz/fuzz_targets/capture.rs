//! Whatever bytes a file holds, it is read to an end: as a capture or a packet log, and as lines of hex. What it holds can
//! be watched, and no packet lies behind the end of the file.
#![no_main]

/// The readers are the program's own; it has no library.
#[allow(dead_code)]
#[path = "../../crates/bcnet/src/inspect"]
mod inspect {
    mod hex;

    pub(crate) fn read_hex(bytes: &[u8]) {
        let mut lines = hex::Lines::new(bytes);
        while lines.next_line().expect("memory can be read").is_some() {}
    }

    pub(crate) mod file {
        mod frame;
        mod log;
        mod pcap;
        mod source;

        use bcnet_observe::MessageBuffer;
        use bcnet_observe::{Limits, Observer};
        use source::{Batch, Source, Step};

        pub(crate) fn read(bytes: &[u8]) {
            let size = bytes.len() as u64;
            let input = std::io::Cursor::new(bytes.to_vec());
            let Ok(mut source) = Source::of(Box::new(input), None) else { return };
            let (mut observer, mut batch) = (Observer::new(Limits::default()), Batch::default());
            // Every packet has some bytes.
            for _ in 0..=size {
                batch.clear();
                let step = source.read(&mut batch).expect("memory can be read");
                batch.decipher();
                let mut messages = MessageBuffer::default();
                for (packet, plain) in batch.iter() {
                    assert!(packet.offset < size && plain.len() as u64 <= size);
                    let content = messages.read(plain, None);
                    observer.observe(packet.number, packet.time, packet.from, packet.to, &content);
                    while observer.poll_finding().is_some() {}
                }
                assert!(source.offset() <= size);
                if step != Step::More {
                    return;
                }
            }
            panic!("{size} bytes do not end");
        }
    }
}

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    inspect::file::read(bytes);
    inspect::read_hex(bytes);
});
