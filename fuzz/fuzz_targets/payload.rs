//! No bytes make describing a game payload panic; the fields lie one behind the other, to its end or to where it is cut,
//! and only those of a list share a name.
#![no_main]

use bcnet_session::payload::{Value, describe};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let payload = describe(bytes);
    let mut end = usize::from(payload.opcode.is_some());
    for field in payload.fields.iter().filter(|field| !matches!(field.value, Value::Flag(_))) {
        assert_eq!(field.at.start, end, "{payload}");
        let alone = || payload.fields.iter().filter(|other| other.name == field.name).count() == 1;
        assert!(field.listed || alone(), "{payload}");
        end = field.at.end;
    }
    assert!(end == bytes.len() || (payload.truncated.is_some() && end < bytes.len()), "{payload}");
});
