//! What is wrong with a text that is no TOML, told of its lines and keys instead of in a parser's words.

/// Returns the key of the line at `offset`, with its table, and what is wrong there. `problem` is what the parser says.
/// Values are not repeated: one may be a password.
pub(super) fn explain(text: &str, offset: usize, problem: &str) -> (Option<String>, String) {
    let start = text.get(..offset).map_or(0, |before| before.rfind('\n').map_or(0, |end| end + 1));
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    let is_twice = problem.starts_with("duplicate");
    if line.starts_with('[') {
        let name = line.trim_matches(['[', ']']).trim();
        let wrong = if is_twice {
            "this table is there already".into()
        } else {
            "a table is written as `[server]` or `[[session]]`, on a line of its own".into()
        };
        return (is_name(name).then(|| name.to_owned()), wrong);
    }
    let Some((key, value)) = line.split_once('=') else {
        return (None, "expected `key = value`, or a table such as `[server]`".into());
    };
    let key = Some(key.trim()).filter(|key| is_name(key));
    let path = key.map(|key| {
        table(text.get(..start).unwrap_or_default())
            .map_or_else(|| key.into(), |table| format!("{table}.{key}"))
    });
    (path, if is_twice { "this key is there already".into() } else { wrong_value(value.trim()).into() })
}

fn wrong_value(value: &str) -> &'static str {
    match value.chars().next() {
        None => "there is no value behind `=`",
        Some('"') if value.contains('\\') => {
            "a `\\` in text must be doubled; or put the text between two ' instead of \""
        }
        Some('"' | '\'') => {
            "the text does not end, or something stands behind its end; write it in one line, in quotes"
        }
        Some('[') => "the list cannot be read; write it as [\"one\", \"two\"]",
        Some(_) => "the value cannot be read; text stands in quotes, `true`, `false` and numbers do not",
    }
}

/// Returns the table that a line behind `text` is in, as messages name it.
fn table(text: &str) -> Option<String> {
    let heads = || text.lines().map(str::trim).filter(|line| line.starts_with('['));
    let last = heads().next_back()?;
    let name = last.trim_matches(['[', ']']).trim();
    if !is_name(name) {
        return None;
    }
    let number = heads().filter(|head| *head == last).count();
    Some(if last.starts_with("[[") { format!("{name}.{number}") } else { name.into() })
}

fn is_name(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    (1..=64).contains(&text.len()) && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use crate::config::Document;

    /// Returns the first problem of a text.
    fn problem(text: &str) -> String {
        let (document, _) = Document::parse("x".into(), text);
        document.into_problems().first().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn a_slip_is_told_with_its_key_and_what_would_be_right() {
        let value = "the value cannot be read; text stands in quotes, `true`, `false` and numbers do not";
        let end =
            "the text does not end, or something stands behind its end; write it in one line, in quotes";
        for (text, expected) in [
            ("[server]\nbind = \n", "x: line 2: server.bind: there is no value behind `=`".to_owned()),
            ("[server]\nbind = 127.0.0.1\n", format!("x: line 2: server.bind: {value}")),
            ("[[session]]\n[[session]]\nname = Friday\n", format!("x: line 3: session.2.name: {value}")),
            ("[[session]]\ncollisions = True\n", format!("x: line 2: session.1.collisions: {value}")),
            ("[[session]]\nname = \"a\n", format!("x: line 2: session.1.name: {end}")),
            ("[[session]]\nname = \"a\\xyz\"\n", "x: line 2: session.1.name: a `\\` in text must be doubled; or put the text between two ' instead of \"".into()),
            ("[server]\nmasters = [\"a\" \"b\"]\n", "x: line 2: server.masters: the list cannot be read; write it as [\"one\", \"two\"]".into()),
            ("[[ban]]\naddress = 10.0.0.1\n", format!("x: line 2: ban.1.address: {value}")),
            ("[server]\n[server]\n", "x: line 2: server: this table is there already".into()),
            ("[log]\nlevel = \"info\"\nlevel = \"warn\"\n", "x: line 3: log.level: this key is there already".into()),
            ("[server\n", "x: line 1: server: a table is written as `[server]` or `[[session]]`, on a line of its own".into()),
            ("name \"x\"\n", "x: line 1: expected `key = value`, or a table such as `[server]`".into()),
        ] {
            assert_eq!(problem(text), expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_never_repeated() {
        let text = "[[session]]\npassword = swordfish\n";
        assert!(!problem(text).contains("swordfish"));
    }
}
