//! The history of operator commands: author, command and result.
//!
//! Operators who share a server can see who kicked, banned or changed settings. The history is kept in memory
//! and in a file of JSON lines.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bcnet_control::RequestError;
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use crate::bans::Timestamp;
use crate::file::{open_regular, open_regular_with};

/// The recorded commands, the latest at the end.
pub(super) struct History {
    path: Option<PathBuf>,
    entries: Mutex<VecDeque<Value>>,
}

impl History {
    /// Reads the entries of earlier runs. Lines that are not valid JSON are skipped.
    pub(super) fn open(path: Option<PathBuf>) -> Self {
        let files = path.iter().flat_map(|path| [previous_path(path), path.clone()]);
        let mut entries: VecDeque<Value> = files.flat_map(|path| read(&path)).collect();
        entries.drain(..entries.len().saturating_sub(MAX_ENTRIES));
        Self { path, entries: Mutex::new(entries) }
    }

    /// Records a command and its result.
    pub(super) fn record(
        &self,
        by: &str,
        session: Option<&str>,
        what: &str,
        result: &Result<Value, RequestError>,
    ) {
        let outcome = match result {
            Ok(answer) => answer.get("done").and_then(Value::as_str).unwrap_or("done").to_owned(),
            Err(RequestError(reason)) => format!("refused: {reason}"),
        };
        tracing::info!(event = "command", by, session, what, outcome);
        let time = Timestamp(wall_now().as_secs()).to_string();
        let entry = json!({ "time": time, "by": by, "session": session, "what": what, "outcome": outcome });
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path
            && let Err(error) = append(path, &entry)
        {
            let path = path.display().to_string();
            tracing::warn!(event = "history_not_kept", path, %error, "cannot write to the history file; the entry is lost after a restart");
        }
        entries.push_back(entry);
        if entries.len() > MAX_ENTRIES {
            entries.pop_front();
        }
    }

    /// Returns the last entries that contain `text`, ignoring case.
    pub(super) fn last(&self, text: &str, count: usize) -> Vec<Value> {
        let text = text.to_lowercase();
        let has = |entry: &&Value| {
            let mut fields = entry.as_object().into_iter().flat_map(|entry| entry.values());
            fields.any(|field| field.as_str().is_some_and(|field| field.to_lowercase().contains(&text)))
        };
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<Value> = entries.iter().rev().filter(has).take(count).cloned().collect();
        found.reverse();
        found
    }
}

fn append(path: &Path, entry: &Value) -> io::Result<()> {
    let open = || open_regular_with(path, OpenOptions::new().create(true).append(true));
    let mut file = open()?;
    let mut line = entry.to_string();
    line.push('\n');
    if file.metadata()?.len() + line.len() as u64 > MAX_FILE_SIZE {
        fs::rename(path, previous_path(path))?;
        file = open()?;
    }
    file.write_all(line.as_bytes())
}

fn read(path: &Path) -> Vec<Value> {
    let Ok(file) = open_regular(path) else { return Vec::new() };
    let lines = BufReader::new(file.take(2 * MAX_FILE_SIZE)).split(b'\n').map_while(Result::ok);
    let entries = lines.filter_map(|line| serde_json::from_slice(&line).ok());
    entries.filter(Value::is_object).collect()
}

/// Returns the path of the previous, full file.
fn previous_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Largest number of entries in memory.
const MAX_ENTRIES: usize = 2_000;
/// Largest size of a file in bytes. A full file replaces the previous one, and a new file begins.
const MAX_FILE_SIZE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(test: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("bcnet-history-{}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).expect("create directory");
        directory.join("history.jsonl")
    }

    fn done(what: &str) -> Result<Value, RequestError> {
        Ok(json!({ "done": what }))
    }

    #[test]
    fn history_survives_a_restart_and_a_partial_line() {
        let path = path("restart");
        let history = History::open(Some(path.clone()));
        history.record("Ann", Some("Two"), "kick Bob", &done("kicked Bob"));
        history.record("Zoe", None, "ban Eve", &Err(RequestError("no player Eve".into())));
        let mut file = OpenOptions::new().append(true).open(&path).expect("open");
        file.write_all(b"{\"time\":\"2026-").expect("written");
        let again = History::open(Some(path.clone()));
        assert_eq!(again.last("", 10), history.last("", 10));
        let [kick] = &again.last("ANN", 10)[..] else { panic!("one entry") };
        assert_eq!((&kick["what"], &kick["outcome"]), (&json!("kick Bob"), &json!("kicked Bob")));
        assert_eq!(again.last("eve", 10)[0]["outcome"], "refused: no player Eve");
        assert_eq!(again.last("", 1)[0]["by"], "Zoe", "the last entry");
        drop(fs::remove_dir_all(path.with_file_name("")));
    }

    #[test]
    fn files_stay_small_and_unwritten_entries_stay_in_memory() {
        let path = path("large");
        let history = History::open(Some(path.clone()));
        let long = "x".repeat(4_000);
        for _ in 0..600 {
            history.record("Ann", None, &long, &done("done"));
        }
        let sizes = [&path, &previous_path(&path)].map(|path| fs::metadata(path).expect("metadata").len());
        assert!(sizes.iter().all(|size| (1..=MAX_FILE_SIZE).contains(size)), "{sizes:?}");
        let nowhere = History::open(Some(path.join("no-directory")));
        nowhere.record("Ann", None, "restart", &done("done"));
        assert_eq!(nowhere.last("", 10).len(), 1);
        drop(fs::remove_dir_all(path.with_file_name("")));
    }
}
