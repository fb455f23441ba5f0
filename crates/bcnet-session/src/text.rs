//! Conversion of text between the game's Latin-1, names on the wire, and text for logs.

use bcnet_transport::wire::{Text, is_printable};

/// Encodes text as Latin-1. Characters outside Latin-1 become `?`, and unprintable ones become spaces.
pub(crate) fn to_latin1(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.chars().map(|c| match u8::try_from(c) {
        Ok(byte) if is_printable_byte(byte) => byte,
        Ok(_) => b' ',
        Err(_) => b'?',
    })
}

/// Decodes Latin-1. Unprintable characters become spaces.
pub(crate) fn from_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if is_printable_byte(*byte) { char::from(*byte) } else { ' ' }).collect()
}

/// Replaces unprintable characters of a Latin-1 text by spaces (S-42). Returns whether there were any.
pub(crate) fn replace_unprintable(text: &mut [u8]) -> bool {
    let mut replaced = false;
    for byte in text.iter_mut().filter(|byte| !is_printable_byte(**byte)) {
        *byte = b' ';
        replaced = true;
    }
    replaced
}

/// Decodes a name and cleans it for display. Names from a bcnet host are clean already (T-71).
pub(crate) fn display_name(utf16le: &[u8]) -> String {
    let name = Text::new(utf16le).unwrap_or_default().cleaned(utf16le.len());
    Text::new(&name).unwrap_or_default().to_string()
}

/// Returns whether a byte is a printable character.
pub(crate) fn is_printable_byte(byte: u8) -> bool {
    is_printable(char::from(byte))
}
