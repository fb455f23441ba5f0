//! Writes text for people: a line for each datagram, and below it a line for each message.

use std::io::{self, Write};

use bcnet_observe::NonStock;
use bcnet_session::game::describe;
use bcnet_transport::wire::{Message, Role, is_printable};

use super::explain::{self, FieldRow};
use super::{Decoded, DecodedEntry, InputPosition, latin1_to_string};

pub(super) fn write_entry(out: &mut impl Write, entry: &DecodedEntry<'_>, explain: bool) -> io::Result<()> {
    let line = match entry.position {
        InputPosition::Line(line) => line,
        InputPosition::Packet(packet) => packet.number,
    };
    let mark = match entry.sent_by {
        Some(Role::Host) => "S>",
        Some(Role::Client) => "C>",
        None => "  ",
    };
    let comment = entry.comment.as_deref().map(|text| format!("  # {}", printable(text))).unwrap_or_default();
    write!(out, "{line:>4} {mark} ")?;
    match &entry.decoded {
        Decoded::Datagram(datagram) => {
            let head = datagram.datagram();
            writeln!(out, "{head}{}{comment}", non_stock_note(NonStock::of_datagram(head)))?;
            if explain {
                write_rows(out, explain::datagram(head))?;
            }
            let mut at = explain::DATAGRAM_HEADER_LEN;
            for each in datagram.messages() {
                writeln!(out, "{INDENT}{}", message_text(each))?;
                write_fields(out, each, at, explain)?;
                at += each.wire_len();
            }
            Ok(())
        }
        Decoded::Message(each) => {
            writeln!(out, "{}{comment}", message_text(each))?;
            write_fields(out, each, 0, explain)
        }
        Decoded::Payload(bytes) => {
            writeln!(out, "payload {}{}{comment}", byte_count(bytes), payload_text(bytes))?;
            if explain { write_game_fields(out, bytes, 0) } else { Ok(()) }
        }
        Decoded::GameSpy(text) => {
            let rule = if explain { "  T-05" } else { "" };
            writeln!(
                out,
                "gamespy {}: {}{comment}{rule}",
                byte_count(text),
                printable(&latin1_to_string(text))
            )
        }
        // The comment is left out: a line that is not hex may be binary data.
        Decoded::BadHex(error) => writeln!(out, "error: {error}"),
        Decoded::Malformed(error) => writeln!(out, "error: {error}{comment}"),
    }
}

pub(super) fn message_text(message: &Message<'_>) -> String {
    let shown = match message {
        // Only the first fragment of a payload contains an opcode.
        Message::Data(data) if data.delivery.fragment().is_some_and(|part| part.index() > 0) => {
            hex_preview(data.payload)
        }
        Message::Data(data) => payload_text(data.payload),
        Message::Ack(_) | Message::Keepalive | Message::Control(_) => String::new(),
    };
    format!("{message}{shown}{}", non_stock_note(NonStock::of(message)))
}

/// Writes the fields of a message that starts at byte `at`, if `explain` is set.
pub(super) fn write_fields(
    out: &mut impl Write,
    message: &Message<'_>,
    at: usize,
    explain: bool,
) -> io::Result<()> {
    if !explain {
        return Ok(());
    }
    write_rows(out, explain::message(message, at))?;
    match message {
        Message::Data(data) if data.delivery.fragment().is_some_and(|part| part.index() > 0) => {
            hex_dump(out, data.payload)
        }
        Message::Data(data) => {
            write_game_fields(out, data.payload, at + message.wire_len() - data.payload.len())
        }
        Message::Ack(_) | Message::Keepalive | Message::Control(_) => Ok(()),
    }
}

/// Writes the fields and the bytes of a payload that starts at byte `at`.
fn write_game_fields(out: &mut impl Write, payload: &[u8], at: usize) -> io::Result<()> {
    for field in describe(payload).fields {
        let (start, len) = (at + field.range.start, field.range.len());
        writeln!(out, "{INDENT}      {start:>4} +{len:<3} {:<15} {}", field.name, field.value)?;
    }
    hex_dump(out, payload)
}

fn write_rows(out: &mut impl Write, rows: Vec<FieldRow>) -> io::Result<()> {
    for FieldRow { at, len, field, value, rule } in rows {
        writeln!(out, "{INDENT}    {at:>4} +{len:<3} {:<9} {value:<24} {rule}", field.name())?;
    }
    Ok(())
}

/// Writes all bytes, sixteen on a line, with their characters.
fn hex_dump(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for (row, chunk) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02X}")).collect();
        let characters =
            chunk.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' });
        let characters: String = characters.collect();
        writeln!(out, "{INDENT}      {:04X}  {:<47}  |{characters}|", row * 16, hex.join(" "))?;
    }
    Ok(())
}

/// Returns the opcode with its name, and the values of the payload.
pub(super) fn payload_text(bytes: &[u8]) -> String {
    let Some(first) = bytes.first() else { return String::new() };
    let description = describe(bytes).to_string();
    let shown =
        description.char_indices().nth(MAX_DESCRIPTION_CHARS).and_then(|(end, _)| description.get(..end));
    let more = if shown.is_some() { " …" } else { "" };
    format!("  0x{first:02X} {}{more}", shown.unwrap_or(&description))
}

fn hex_preview(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(PREVIEW_BYTES)];
    let hex: Vec<String> = shown.iter().map(|byte| format!("{byte:02X}")).collect();
    let more = if bytes.len() > PREVIEW_BYTES { " …" } else { "" };
    format!("  [{}{more}]", hex.join(" "))
}

/// Replaces characters that could move the cursor of a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_printable(c) { c } else { '·' }).collect()
}

pub(super) fn byte_count(bytes: &[u8]) -> String {
    format!("{} byte{}", bytes.len(), if bytes.len() == 1 { "" } else { "s" })
}

pub(super) fn non_stock_note(non_stock: NonStock) -> String {
    if non_stock.is_empty() { String::new() } else { format!("  (not stock: {non_stock})") }
}

/// The width of the line number and the direction mark.
const INDENT: &str = "        ";
/// The number of payload bytes that fit on a line.
const PREVIEW_BYTES: usize = 24;
/// The number of characters of a payload's description that fit on a line.
const MAX_DESCRIPTION_CHARS: usize = 240;
