//! Changes of scenario keys before a scenario is parsed, for `bcnet lab --vary` and comparison files.
//!
//! A change edits the TOML tables of the file; the result is parsed and checked like any scenario.

use toml::{Table, Value};

use super::checker::unknown_name;
use super::{Scenario, ScenarioError, check};

/// A key of a scenario and its new value.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The key to change.
    ///
    /// It is a top-level key (`engine`, `duration`, `settle`, `seed`), a key of every node (`gate`), of one node
    /// (`host.gate`) or of every link (`link.loss`), or the word `proxy`.
    pub key: String,
    /// The new value.
    value: Value,
}

impl Change {
    /// Creates a change from a key and a value in TOML syntax. A value that is not TOML is a string.
    #[must_use]
    pub fn new(key: &str, value: &str) -> Self {
        let parsed = format!("value = {value}").parse::<Table>().ok();
        let value = parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| value.into());
        Self { key: key.into(), value }
    }

    pub(super) fn with_value(key: &str, value: Value) -> Self {
        Self { key: key.into(), value }
    }

    fn apply(&self, file: &mut Table) -> Result<(), String> {
        match self.key.split_once('.') {
            None if self.key == "proxy" => self.set_proxy(file),
            None if HEAD_KEYS.contains(&self.key.as_str()) => {
                file.insert(self.key.clone(), self.value.clone());
                Ok(())
            }
            None => {
                tables(file, "node").for_each(|node| self.set_key(node, &self.key));
                Ok(())
            }
            Some(("link", key)) => {
                file.entry("link").or_insert_with(|| Value::Array(vec![Value::Table(Table::new())]));
                tables(file, "link").for_each(|link| self.set_key(link, key));
                Ok(())
            }
            Some((name, key)) => {
                let names: Vec<String> = tables(file, "node")
                    .filter_map(|node| Some(node.get("name")?.as_str()?.into()))
                    .collect();
                let node =
                    tables(file, "node").find(|node| node.get("name").and_then(Value::as_str) == Some(name));
                let node =
                    node.ok_or_else(|| unknown_name("node", name, names.iter().map(String::as_str)))?;
                self.set_key(node, key);
                Ok(())
            }
        }
    }

    fn set_key(&self, table: &mut Table, key: &str) {
        table.insert(key.into(), self.value.clone());
    }

    /// Places a proxy in front of the host (`pass` or `heal`), or removes the proxy (`none`).
    fn set_proxy(&self, file: &mut Table) -> Result<(), String> {
        let heal = match self.value.as_str() {
            Some("none") => {
                file.remove("proxy");
                return Ok(());
            }
            Some("pass") => false,
            Some("heal") => true,
            _ => return Err("`proxy` must be none, pass or heal".into()),
        };
        let is_host = |node: &&mut Table| node.get("role").and_then(Value::as_str) == Some("host");
        let host = tables(file, "node").find(is_host).and_then(|node| node.get("name").cloned());
        let host = host.ok_or("`proxy` needs a node with role = \"host\", and the scenario has none")?;
        let mut proxy = Table::new();
        proxy.insert("name".into(), "proxy".into());
        proxy.insert("before".into(), host);
        proxy.insert("heal".into(), heal.into());
        file.insert("proxy".into(), Value::Array(vec![Value::Table(proxy)]));
        Ok(())
    }
}

impl Scenario {
    /// Parses a scenario after applying the changes in order.
    ///
    /// # Errors
    /// Returns the first [`ScenarioError`]. Its line is 0 if only the changes are wrong.
    pub fn parse_changed(text: &str, changes: &[Change]) -> Result<Self, ScenarioError> {
        if changes.is_empty() {
            return Self::parse(text);
        }
        // Parses the unchanged text first: its errors then have the line number in the file.
        Self::parse(text)?;
        let error = |what: String| ScenarioError { line: 0, message: what };
        let mut file: Table = text.parse().map_err(|_| error("the text is not a TOML table".into()))?;
        for change in changes {
            change.apply(&mut file).map_err(error)?;
        }
        let mut text = String::new();
        for (key, value) in &file {
            write_key(&mut text, key);
            write_value(&mut text, value);
            text.push('\n');
        }
        check::parse_and_check(&text).map_err(|mistake| error(mistake.message))
    }
}

/// Returns the tables of the array `key`.
fn tables<'a>(file: &'a mut Table, key: &str) -> impl Iterator<Item = &'a mut Table> {
    let all = file.get_mut(key).and_then(Value::as_array_mut);
    all.into_iter().flatten().filter_map(Value::as_table_mut)
}

fn write_key(out: &mut String, key: &str) {
    write_string(out, key);
    out.push_str(" = ");
}

/// Writes a value as TOML on one line, with arrays and tables inline.
fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_string(out, text),
        Value::Integer(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&format!("{number:?}")),
        Value::Boolean(yes) => out.push_str(&yes.to_string()),
        Value::Datetime(time) => out.push_str(&time.to_string()),
        Value::Array(values) => {
            out.push('[');
            for value in values {
                write_value(out, value);
                out.push(',');
            }
            out.push(']');
        }
        Value::Table(table) => {
            out.push('{');
            for (i, (key, value)) in table.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                write_key(out, key);
                write_value(out, value);
            }
            out.push('}');
        }
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Top-level keys that a change can set.
const HEAD_KEYS: [&str; 4] = ["engine", "duration", "settle", "seed"];
