//! Reading, describing and checking a datagram never panics.
#![no_main]

use bcnet_observe::NonStock;
use bcnet_wire::{Datagram, Role};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for sent_by in [None, Some(Role::Host), Some(Role::Client)] {
        match Datagram::parse(bytes, sent_by) {
            Ok(datagram) => {
                let messages = datagram.messages();
                let told =
                    messages.map(|m| (m.to_string(), NonStock::of(&m).to_string(), m.id(), m.wire_len()));
                assert_eq!(told.map(|(.., len)| len).sum::<usize>() + 2, bytes.len(), "{datagram}");
                assert!(NonStock::of_datagram(&datagram).names().count() <= 2);
            }
            Err(error) => assert!(error.at <= bytes.len(), "{error}"),
        }
    }
});
