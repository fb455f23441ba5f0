//! No bytes make reading a game payload panic. What is a message is written as it was read; what is none tells the field.
//! Of what is shown, the fields lie one behind the other, to the end or to where the payload is cut, and only those of a
//! list share a name.
#![no_main]

use bcnet_session::game::{GameErrorReason, Message, describe};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let shown = describe(bytes);
    let mut end = usize::from(shown.opcode.is_some());
    for field in &shown.fields {
        assert!(field.range.start == end || field.range.end <= end, "{shown}");
        let alone = || shown.fields.iter().filter(|other| other.name == field.name).count() == 1;
        assert!(field.repeated || alone(), "{shown}");
        end = end.max(field.range.end);
    }
    assert!(end == bytes.len() || (shown.truncated.is_some() && end < bytes.len()), "{shown}");

    let mut written = Vec::new();
    match Message::parse_prefix(bytes) {
        Ok((message, rest)) => {
            message.write(&mut written);
            written.extend_from_slice(rest);
            assert_eq!(written, bytes, "{message:?}");
            assert_eq!(Message::parse(bytes).is_ok(), rest.is_empty());
        }
        Err(error) => {
            assert_eq!(error.reason, GameErrorReason::Truncated);
            assert_eq!(shown.truncated.unwrap_or("opcode"), error.field, "{shown}");
            assert!(error.offset <= bytes.len());
        }
    }
});
