//! Text of players and hosts, made fit for the wire, for queries and for logs.

/// Returns one byte per character, as the game has it. What Latin-1 lacks becomes `?`, control characters a space.
pub(crate) fn latin1(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.chars().map(|c| match u8::try_from(c) {
        Ok(byte) if is_control(byte) => b' ',
        Ok(byte) => byte,
        Err(_) => b'?',
    })
}

/// Returns the text that Latin-1 bytes stand for, control characters as spaces.
pub(crate) fn from_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a name from the wire as it is shown: without control characters, and none of nothing but blanks.
pub(crate) fn name(utf16le: &[u8]) -> String {
    let units = utf16le.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let chars = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    let name: String = chars.filter(|c| !c.is_control()).collect();
    name.trim().into()
}

/// Returns whether a byte is no character of a text.
pub(crate) const fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7F
}
