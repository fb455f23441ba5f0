//! No bytes at a control socket, and no answer, cause a panic. A request is written as it was read. Other input
//! gives one short error line. Answers of another program are shown without control characters.
#![no_main]

use bcnet_control::{ControlResponse, Envelope, render_answer};
use bcnet_transport::wire::is_printable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Envelope::parse(bytes) {
        Ok(envelope) => {
            let written = serde_json::to_vec(&envelope).expect("JSON");
            assert_eq!(Envelope::parse(&written), Ok(envelope));
        }
        Err(error) => {
            assert!(error.len() < 1_000 && !error.contains(char::is_control), "{error}");
        }
    }
    if let Ok(ControlResponse::Ok(answer)) = serde_json::from_slice(bytes) {
        let shown = render_answer(&answer);
        let is_fine =
            |letter: char| letter == '\n' || is_printable(letter) || letter == char::REPLACEMENT_CHARACTER;
        assert!(shown.ends_with('\n') && shown.chars().all(is_fine), "{shown:?}");
    }
});
