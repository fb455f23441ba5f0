//! Text of players and hosts, made fit for the wire, for queries and for logs.

use bcnet_transport::wire::{Text, is_printable};

/// Returns one byte per character, as the game has it. What Latin-1 lacks becomes `?`, what is not shown a space.
pub(crate) fn to_latin1(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.chars().map(|c| match u8::try_from(c) {
        Ok(byte) if is_printable_byte(byte) => byte,
        Ok(_) => b' ',
        Err(_) => b'?',
    })
}

/// Returns the text that Latin-1 bytes stand for, what is not shown as spaces.
pub(crate) fn from_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if is_printable_byte(*byte) { char::from(*byte) } else { ' ' }).collect()
}

/// S-42: puts a blank for each character of a Latin-1 text that is not shown. Returns whether there were any.
pub(crate) fn replace_unprintable(text: &mut [u8]) -> bool {
    let mut replaced = false;
    for byte in text.iter_mut().filter(|byte| !is_printable_byte(**byte)) {
        *byte = b' ';
        replaced = true;
    }
    replaced
}

/// Returns a name from the wire as it is shown. One that a host of this kind tells is so already (T-71).
pub(crate) fn display_name(utf16le: &[u8]) -> String {
    let name = Text::new(utf16le).unwrap_or_default().cleaned(utf16le.len());
    Text::new(&name).unwrap_or_default().to_string()
}

/// Returns whether a byte is a character that is shown.
pub(crate) fn is_printable_byte(byte: u8) -> bool {
    is_printable(char::from(byte))
}
