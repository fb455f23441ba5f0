//! Reads every byte sequence to its end: as a capture, packet log or dump, compressed or not, and as hex lines. The
//! observer accepts its packets. No packet lies beyond the end of an uncompressed file.
#![no_main]

/// The readers of the program, which has no library.
#[allow(dead_code)]
#[path = "../../crates/bcnet/src/inspect"]
mod inspect {
    mod hex;
    mod hex_dump;

    pub(crate) fn read_hex(bytes: &[u8]) {
        let mut lines = hex::HexLineReader::new(bytes);
        while lines.next_line().expect("memory can be read").is_some() {}
    }

    pub(crate) mod file {
        mod decompress;
        mod dump_reader;
        mod line_reader;
        mod link_layer;
        mod packet_log;
        mod pcap;
        mod source;

        use bcnet_observe::MessageBuffer;
        use bcnet_observe::{Observer, ObserverLimits};
        use source::{PacketBatch, PacketSource, ReadCounters, ReadStep};

        pub(crate) fn read(bytes: &[u8]) {
            // A compressed file can be much larger; only its beginning is read.
            let is_packed =
                [&[0x1F, 0x8B][..], &[0x28, 0xB5, 0x2F, 0xFD]].iter().any(|magic| bytes.starts_with(magic))
                    || bytes.get(1..4) == Some(&[0x2A, 0x4D, 0x18]);
            let size = if is_packed { 1 << 14 } else { bytes.len() as u64 };
            let input = std::io::Cursor::new(bytes.to_vec());
            let Ok(mut source) = PacketSource::open(Box::new(input)) else { return };
            let (mut observer, mut batch) =
                (Observer::new(ObserverLimits::default()), PacketBatch::default());
            let mut counts = ReadCounters::default();
            // Every packet has some bytes.
            for _ in 0..=size {
                batch.clear();
                source.next_time();
                let step = source.read(&mut batch, &mut counts).expect("memory can be read");
                batch.decrypt();
                let mut messages = MessageBuffer::default();
                for (packet, plain) in batch.iter() {
                    assert!(is_packed || packet.offset < size && plain.len() as u64 <= size);
                    let content = messages.read(plain, None);
                    observer.observe(packet.number, packet.time, packet.from, packet.to, &content);
                    while observer.poll_finding().is_some() {}
                }
                assert!(is_packed || source.offset() <= size);
                if step != ReadStep::More {
                    return;
                }
            }
            assert!(is_packed, "{size} bytes do not end");
        }
    }
}

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    inspect::file::read(bytes);
    inspect::read_hex(bytes);
});
