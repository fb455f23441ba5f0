//! Reading a game payload never panics. A message is written as it was read; an error names its field. The shown
//! fields follow each other to the end, or to the truncation, and only fields of a list share a name.
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
