//! Explains TOML syntax errors with the line, the key and the expected form.

/// Returns the key of the line at `offset`, with its table, and an explanation of the error.
///
/// `problem` is the parser's message. The explanation never repeats a value, which may be a password.
pub(super) fn explain_syntax_error(text: &str, offset: usize, problem: &str) -> (Option<String>, String) {
    let start = text.get(..offset).map_or(0, |before| before.rfind('\n').map_or(0, |end| end + 1));
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    let is_twice = problem.starts_with("duplicate");
    if line.starts_with('[') {
        let name = line.trim_matches(['[', ']']).trim();
        let wrong = if is_twice {
            "this table is defined twice; merge the two".into()
        } else {
            "expected a table such as `[server]` or `[[session]]`, alone on its line".into()
        };
        return (is_bare_key(name).then(|| name.to_owned()), wrong);
    }
    let Some((key, value)) = line.split_once('=') else {
        return (None, "expected `key = value`, or a table such as `[server]`".into());
    };
    let key = Some(key.trim()).filter(|key| is_bare_key(key));
    let path = key.map(|key| {
        enclosing_table(text.get(..start).unwrap_or_default())
            .map_or_else(|| key.into(), |table| format!("{table}.{key}"))
    });
    (
        path,
        if is_twice {
            "this key is set twice; delete one of the lines".into()
        } else {
            explain_bad_value(value.trim()).into()
        },
    )
}

fn explain_bad_value(value: &str) -> &'static str {
    match value.chars().next() {
        None => "the value after `=` is missing",
        Some('"') if value.contains('\\') => {
            "write `\\\\` for each `\\` in the text, or use ' instead of \" around the text"
        }
        Some('"' | '\'') => {
            "the text has no closing quote, or something follows it; write it on one line, in quotes"
        }
        Some('[') => "the list is invalid; write it as [\"one\", \"two\"]",
        Some(_) => "the value is invalid; text needs quotes, `true`, `false` and numbers do not",
    }
}

/// Returns the table that contains the line after `text`, in the form that messages use.
fn enclosing_table(text: &str) -> Option<String> {
    let heads = || text.lines().map(str::trim).filter(|line| line.starts_with('['));
    let last = heads().next_back()?;
    let name = last.trim_matches(['[', ']']).trim();
    if !is_bare_key(name) {
        return None;
    }
    let number = heads().filter(|head| *head == last).count();
    Some(if last.starts_with("[[") { format!("{name}.{number}") } else { name.into() })
}

fn is_bare_key(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    (1..=64).contains(&text.len()) && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use crate::config::Document;

    /// Returns the first problem of a text.
    fn first_problem(text: &str) -> String {
        let (document, _) = Document::parse("x".into(), text);
        document.into_problems().first().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn syntax_error_names_the_key_and_the_fix() {
        let value = "the value is invalid; text needs quotes, `true`, `false` and numbers do not";
        let end = "the text has no closing quote, or something follows it; write it on one line, in quotes";
        for (text, expected) in [
            ("[server]\nbind = \n", "x: line 2: server.bind: the value after `=` is missing".to_owned()),
            ("[server]\nbind = 127.0.0.1\n", format!("x: line 2: server.bind: {value}")),
            ("[[session]]\n[[session]]\nname = Friday\n", format!("x: line 3: session.2.name: {value}")),
            ("[[session]]\ncollisions = True\n", format!("x: line 2: session.1.collisions: {value}")),
            ("[[session]]\nname = \"a\n", format!("x: line 2: session.1.name: {end}")),
            ("[[session]]\nname = \"a\\xyz\"\n", "x: line 2: session.1.name: write `\\\\` for each `\\` in the text, or use ' instead of \" around the text".into()),
            ("[server]\nmasters = [\"a\" \"b\"]\n", "x: line 2: server.masters: the list is invalid; write it as [\"one\", \"two\"]".into()),
            ("[[ban]]\naddress = 10.0.0.1\n", format!("x: line 2: ban.1.address: {value}")),
            ("[server]\n[server]\n", "x: line 2: server: this table is defined twice; merge the two".into()),
            ("[log]\nlevel = \"info\"\nlevel = \"warn\"\n", "x: line 3: log.level: this key is set twice; delete one of the lines".into()),
            ("[server\n", "x: line 1: server: expected a table such as `[server]` or `[[session]]`, alone on its line".into()),
            ("name \"x\"\n", "x: line 1: expected `key = value`, or a table such as `[server]`".into()),
        ] {
            assert_eq!(first_problem(text), expected, "{text}");
        }
    }

    #[test]
    fn syntax_error_never_prints_the_value() {
        let text = "[[session]]\npassword = swordfish\n";
        assert!(!first_problem(text).contains("swordfish"));
    }
}
