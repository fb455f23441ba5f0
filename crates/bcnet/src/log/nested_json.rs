//! Lists in JSON log lines.
//!
//! A `tracing` field holds a number or a text, but no list. So a list is logged as a text with JSON in it, and
//! unpacked here.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::{Deserializer, Value};
use tracing_subscriber::fmt::MakeWriter;

/// Writes JSON log lines. Converts the text of the field `players` to a JSON list.
pub(super) struct NestedJson<W>(pub(super) W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for NestedJson<W> {
    type Writer = NestedJson<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        NestedJson(self.0.make_writer())
    }
}

/// Each call of `write` gets a whole line, because the log writes each line with one call.
impl<W: Write> Write for NestedJson<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&unpack_list(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns the line with its list unpacked, if it has one.
///
/// Chat cannot fake the key: quotes within a text have a backslash before them.
fn unpack_list(line: &[u8]) -> Cow<'_, [u8]> {
    let found = line
        .windows(LIST_KEY.len() + 2)
        .position(|part| part.starts_with(LIST_KEY) && part.ends_with(b"\"["));
    let Some((head, rest)) = found.and_then(|at| line.split_at_checked(at + LIST_KEY.len())) else {
        return line.into();
    };
    let mut texts = Deserializer::from_slice(rest).into_iter::<String>();
    let Some(Ok(text)) = texts.next() else { return line.into() };
    let is_list = matches!(serde_json::from_str(&text), Ok(Value::Array(_)));
    let tail = rest.get(texts.byte_offset()..).unwrap_or_default();
    if is_list { [head, text.as_bytes(), tail].concat().into() } else { line.into() }
}

/// The key of the only field with a list.
const LIST_KEY: &[u8] = b"\"players\":";

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(line: &str) -> String {
        String::from_utf8(unpack_list(line.as_bytes()).into_owned()).expect("text")
    }

    #[test]
    fn list_is_unpacked_and_other_fields_are_unchanged() {
        let line = r#"{"event":"round_ended","players":"[{\"name\":\"a \\\"b\\\"\"}]","round":1}"#;
        assert_eq!(unpack(line), r#"{"event":"round_ended","players":[{"name":"a \"b\""}],"round":1}"#);
        for line in [
            r#"{"event":"summary","players":3}"#,
            r#"{"event":"chat","text":"\"players\":\"[1]\""}"#,
            r#"{"players":"[not a list"}"#,
            r#"{"players":"[1]"#,
            "",
        ] {
            assert_eq!(unpack(line), line);
        }
        assert_eq!(unpack("{\"players\":\"[]\"}\n"), "{\"players\":[]}\n");
    }
}
