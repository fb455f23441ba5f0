//! Access to the captured test vectors.

use bcnet_transport::wire::{Datagram, Message};
use serde_json::Value;

const SESSION: &str = include_str!("../../../../captures/session.json");

/// Returns the bytes of a vector.
pub(crate) fn bytes(id: &str) -> Vec<u8> {
    let file: Value = serde_json::from_str(SESSION).expect("captures/session.json");
    let vectors = file["vectors"].as_array().expect("vectors");
    let vector = vectors.iter().find(|vector| vector["id"] == id).unwrap_or_else(|| panic!("no vector {id}"));
    hex(vector["plain"].as_str().expect("plain"))
}

/// Returns the game payload in a datagram.
pub(crate) fn payload(id: &str) -> Vec<u8> {
    let bytes = bytes(id);
    let datagram = Datagram::parse(&bytes, None).expect("a datagram");
    let data = datagram.messages().find_map(|message| match message {
        Message::Data(data) => Some(data.payload.to_vec()),
        _ => None,
    });
    data.unwrap_or_else(|| panic!("{id} has no payload"))
}

/// Parses hex digits; ignores white space.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}
