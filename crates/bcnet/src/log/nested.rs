//! Lists in lines of JSON: a field of a log line is a number or a text, so a list comes as a text and is unpacked here.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::{Deserializer, Value};
use tracing_subscriber::fmt::MakeWriter;

/// Writes lines of JSON whose lists are lists.
pub(super) struct Nested<W>(pub(super) W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Nested<W> {
    type Writer = Nested<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Nested(self.0.make_writer())
    }
}

/// Gets each line whole.
impl<W: Write> Write for Nested<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&unpacked(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns the line with its list unpacked, if it has one. What a player says cannot look like a key: quotes within a text
/// have a backslash before them.
fn unpacked(line: &[u8]) -> Cow<'_, [u8]> {
    let found = line.windows(KEY.len() + 2).position(|part| part.starts_with(KEY) && part.ends_with(b"\"["));
    let Some((head, rest)) = found.and_then(|at| line.split_at_checked(at + KEY.len())) else {
        return line.into();
    };
    let mut texts = Deserializer::from_slice(rest).into_iter::<String>();
    let Some(Ok(text)) = texts.next() else { return line.into() };
    let is_list = matches!(serde_json::from_str(&text), Ok(Value::Array(_)));
    let tail = rest.get(texts.byte_offset()..).unwrap_or_default();
    if is_list { [head, text.as_bytes(), tail].concat().into() } else { line.into() }
}

/// The only field that is a list.
const KEY: &[u8] = b"\"players\":";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        String::from_utf8(unpacked(line.as_bytes()).into_owned()).expect("text")
    }

    #[test]
    fn a_list_is_a_list_and_all_else_stays_as_it_is() {
        let line = r#"{"event":"round_ended","players":"[{\"name\":\"a \\\"b\\\"\"}]","round":1}"#;
        assert_eq!(of(line), r#"{"event":"round_ended","players":[{"name":"a \"b\""}],"round":1}"#);
        for line in [
            r#"{"event":"summary","players":3}"#,
            r#"{"event":"chat","text":"\"players\":\"[1]\""}"#,
            r#"{"players":"[not a list"}"#,
            r#"{"players":"[1]"#,
            "",
        ] {
            assert_eq!(of(line), line);
        }
        assert_eq!(of("{\"players\":\"[]\"}\n"), "{\"players\":[]}\n");
    }
}
