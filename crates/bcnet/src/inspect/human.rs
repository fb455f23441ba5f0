//! Text for a person: a line per datagram, a line per message below it.

use std::io::{self, Write};

use bcnet_observe::NonStock;
use bcnet_session::game::describe;
use bcnet_transport::wire::{Message, Role, is_shown};

use super::explain::{self, FieldRow};
use super::{Decoded, Entry, Position, latin1};

pub(super) fn write(out: &mut impl Write, entry: &Entry<'_>, explain: bool) -> io::Result<()> {
    let line = match entry.position {
        Position::Line(line) => line,
        Position::Packet(packet) => packet.number,
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
            writeln!(out, "{head}{}{comment}", odd(NonStock::of_datagram(head)))?;
            if explain {
                rows(out, explain::datagram(head))?;
            }
            let mut at = explain::DATAGRAM_HEADER;
            for each in datagram.messages() {
                writeln!(out, "{INDENT}{}", message(each))?;
                fields(out, each, at, explain)?;
                at += each.wire_len();
            }
            Ok(())
        }
        Decoded::Message(each) => {
            writeln!(out, "{}{comment}", message(each))?;
            fields(out, each, 0, explain)
        }
        Decoded::Payload(bytes) => {
            writeln!(out, "payload {}{}{comment}", count(bytes), payload(bytes))?;
            if explain { game(out, bytes, 0) } else { Ok(()) }
        }
        Decoded::GameSpy(text) => {
            let rule = if explain { "  T-05" } else { "" };
            writeln!(out, "gamespy {}: {}{comment}{rule}", count(text), printable(&latin1(text)))
        }
        // A line that is no hex may be no text either, and its comment none.
        Decoded::BadHex(error) => writeln!(out, "error: {error}"),
        Decoded::Malformed(error) => writeln!(out, "error: {error}{comment}"),
    }
}

pub(super) fn message(message: &Message<'_>) -> String {
    let shown = match message {
        // Only the beginning of a payload holds an opcode.
        Message::Data(data) if data.delivery.part().is_some_and(|part| part.index() > 0) => {
            dump(data.payload)
        }
        Message::Data(data) => payload(data.payload),
        Message::Ack(_) | Message::Keepalive | Message::Control(_) => String::new(),
    };
    format!("{message}{shown}{}", odd(NonStock::of(message)))
}

/// The fields of a message that begins at byte `at`, if they are asked for.
pub(super) fn fields(
    out: &mut impl Write,
    message: &Message<'_>,
    at: usize,
    explain: bool,
) -> io::Result<()> {
    if !explain {
        return Ok(());
    }
    rows(out, explain::message(message, at))?;
    match message {
        Message::Data(data) if data.delivery.part().is_some_and(|part| part.index() > 0) => {
            hex_dump(out, data.payload)
        }
        Message::Data(data) => game(out, data.payload, at + message.wire_len() - data.payload.len()),
        Message::Ack(_) | Message::Keepalive | Message::Control(_) => Ok(()),
    }
}

/// The fields of a payload that begins at byte `at`, and its bytes.
fn game(out: &mut impl Write, payload: &[u8], at: usize) -> io::Result<()> {
    for field in describe(payload).fields {
        let (start, len) = (at + field.at.start, field.at.len());
        writeln!(out, "{INDENT}      {start:>4} +{len:<3} {:<15} {}", field.name, field.value)?;
    }
    hex_dump(out, payload)
}

fn rows(out: &mut impl Write, rows: Vec<FieldRow>) -> io::Result<()> {
    for FieldRow { at, len, field, value, rule } in rows {
        writeln!(out, "{INDENT}    {at:>4} +{len:<3} {:<9} {value:<24} {rule}", field.name())?;
    }
    Ok(())
}

/// All bytes, sixteen to a line, with their characters.
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

/// Returns the opcode with its name, and what the payload says.
pub(super) fn payload(bytes: &[u8]) -> String {
    let Some(first) = bytes.first() else { return String::new() };
    let said = describe(bytes).to_string();
    let shown = said.char_indices().nth(SHOWN_CHARACTERS).and_then(|(end, _)| said.get(..end));
    let more = if shown.is_some() { " …" } else { "" };
    format!("  0x{first:02X} {}{more}", shown.unwrap_or(&said))
}

fn dump(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let hex: Vec<String> = shown.iter().map(|byte| format!("{byte:02X}")).collect();
    let more = if bytes.len() > SHOWN_BYTES { " …" } else { "" };
    format!("  [{}{more}]", hex.join(" "))
}

/// Text that cannot move the cursor of a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_shown(c) { c } else { '·' }).collect()
}

pub(super) fn count(bytes: &[u8]) -> String {
    format!("{} byte{}", bytes.len(), if bytes.len() == 1 { "" } else { "s" })
}

pub(super) fn odd(non_stock: NonStock) -> String {
    if non_stock.is_empty() { String::new() } else { format!("  (not stock: {non_stock})") }
}

/// Below the line number and the mark.
const INDENT: &str = "        ";
/// How much of a payload fits a line.
const SHOWN_BYTES: usize = 24;
/// How much of what a payload says fits a line.
const SHOWN_CHARACTERS: usize = 240;
