//! Output of result rows as a table, CSV, JSON and Parquet.
//!
//! Players choose their names, so names are escaped: a name must not act as a formula, a separator or a
//! terminal escape.

use std::io::{self, Write};
use std::path::Path;

use bcnet_control::ColumnSpec;
use serde_json::{Value, json};

/// Rows to print. Each is an object with the keys of the columns.
pub(super) struct StatsTable {
    pub(super) key: &'static str,
    pub(super) columns: &'static [ColumnSpec],
    pub(super) rows: Vec<Value>,
    /// The text to print if there are no rows.
    pub(super) empty_text: &'static str,
}

pub(super) fn table(sheet: &StatsTable) -> String {
    let flat = |row: &Value| -> Value {
        sheet.columns.iter().map(|(_, key)| ((*key).to_owned(), join_list(&row[*key]))).collect()
    };
    let rows: Vec<Value> = sheet.rows.iter().map(flat).collect();
    bcnet_control::render_table(sheet.columns, &rows, sheet.empty_text)
}

pub(super) fn json(sheet: &StatsTable, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", json!({ sheet.key: sheet.rows }))
}

pub(super) fn csv(sheet: &StatsTable, out: &mut impl Write) -> io::Result<()> {
    let keys: Vec<&str> = sheet.columns.iter().map(|(_, key)| *key).collect();
    writeln!(out, "{}", keys.join(","))?;
    for row in &sheet.rows {
        let cells: Vec<String> = keys.iter().map(|key| csv_cell(&join_list(&row[*key]))).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

/// Returns a list as one text.
fn join_list(value: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            names.join(", ").into()
        }
        other => other.clone(),
    }
}

/// Formats a cell as in RFC 4180.
///
/// A text that a spreadsheet would treat as a formula gets a leading `'`, which marks text.
fn csv_cell(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    // Some programs treat full-width characters like ASCII ones.
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    let text = format!("{}{text}", if is_formula { "'" } else { "" });
    if text.contains(['"', ',', '\n', '\r', ';', '\t']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(not(feature = "parquet"))]
pub(super) fn parquet(_: &StatsTable, _: &Path) -> anyhow::Result<()> {
    anyhow::bail!("this build has no Parquet support; build with `cargo build --release --features parquet`")
}

/// Writes a Parquet file with integer columns and text columns.
#[cfg(feature = "parquet")]
pub(super) fn parquet(sheet: &StatsTable, path: &Path) -> anyhow::Result<()> {
    use crate::parquet_file::{ByteArray, ByteArrayType, Int64Type, ParquetFile};

    let is_number = |key: &str| !TEXT_COLUMNS.contains(&key);
    let field = |(_, key): &ColumnSpec| {
        let kind = if is_number(key) { format!("int64 {key}") } else { format!("binary {key} (utf8)") };
        format!("required {kind};")
    };
    let fields: String = sheet.columns.iter().map(field).collect();
    let mut file = ParquetFile::create(path, &format!("message {} {{ {fields} }}", sheet.key))?;
    file.write_row_group(|group| {
        for (_, key) in sheet.columns {
            let cells = sheet.rows.iter().map(|row| &row[*key]);
            if is_number(key) {
                let numbers: Vec<i64> = cells.map(|cell| cell.as_i64().unwrap_or_default()).collect();
                group.write_column::<Int64Type>(&numbers, None)?;
            } else {
                let text = |cell: &Value| join_list(cell).as_str().unwrap_or_default().as_bytes().to_vec();
                let texts: Vec<ByteArray> = cells.map(|cell| ByteArray::from(text(cell))).collect();
                group.write_column::<ByteArrayType>(&texts, None)?;
            }
        }
        Ok(())
    })?;
    Ok(file.finish()?)
}

/// The keys of text columns.
#[cfg(feature = "parquet")]
const TEXT_COLUMNS: [&str; 7] = ["name", "last", "ended", "session", "system", "reason", "players"];

#[cfg(test)]
mod tests {
    use super::*;

    fn table_of_names(names: &[&str]) -> StatsTable {
        let rows = names.iter().map(|name| json!({ "name": name, "points": -3 })).collect();
        StatsTable {
            key: "players",
            columns: &[("NAME", "name"), ("POINTS", "points")],
            rows,
            empty_text: "nobody",
        }
    }

    #[test]
    fn csv_escapes_formulas_separators_and_quotes() {
        let names = ["Kirk", "=1+1", "+1", "-1", "@SUM(A1)", " =1", "＝1", "a,b", "say \"hi\"", "a;b", "'"];
        let mut out = Vec::new();
        csv(&table_of_names(&names), &mut out).expect("written");
        let expected = "name,points\nKirk,-3\n'=1+1,-3\n'+1,-3\n'-1,-3\n'@SUM(A1),-3\n' =1,-3\n'＝1,-3\n\"a,b\",-3\n\
                        \"say \"\"hi\"\"\",-3\n\"a;b\",-3\n',-3\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    #[test]
    fn table_removes_terminal_escapes_from_names() {
        let shown = table(&table_of_names(&["a\u{1b}[2Jb\u{202e}c"]));
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        assert_eq!(table(&table_of_names(&[])), "nobody\n");
    }

    #[test]
    fn lists_are_arrays_in_json_and_text_in_csv() {
        let rows = vec![json!({ "players": ["Kirk", "Spock"] })];
        let sheet = StatsTable { key: "rounds", columns: &[("PLAYERS", "players")], rows, empty_text: "" };
        assert_eq!(table(&sheet), "PLAYERS\nKirk, Spock\n");
        let (mut as_csv, mut as_json) = (Vec::new(), Vec::new());
        csv(&sheet, &mut as_csv).expect("written");
        json(&sheet, &mut as_json).expect("written");
        assert_eq!(as_csv, b"players\n\"Kirk, Spock\"\n");
        assert_eq!(as_json, b"{\"rounds\":[{\"players\":[\"Kirk\",\"Spock\"]}]}\n");
    }
}
