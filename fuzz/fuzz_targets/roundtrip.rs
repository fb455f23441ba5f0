//! A datagram that parses is written back byte for byte, and reads the same again.
#![no_main]

use bcnet_wire::{Datagram, Message, Role, Writer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for sent_by in [None, Some(Role::Host), Some(Role::Client)] {
        let Ok(datagram) = Datagram::parse(bytes, sent_by) else { continue };
        let messages: Vec<Message<'_>> = datagram.messages().collect();
        assert_eq!(messages.len(), usize::from(datagram.count()));
        let mut buffer = vec![0; bytes.len()];
        let mut writer = Writer::with_limit(&mut buffer, datagram.sender(), 65_535);
        assert!(messages.iter().all(|message| writer.push(message)));
        let written = writer.finish().expect("a datagram holds at least one message");
        assert_eq!(written, bytes);
        assert!(Datagram::parse(written, sent_by).expect("what was written parses").messages().eq(messages));
    }
});
