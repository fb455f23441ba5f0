//! Which files are read: one, or several as one capture, as those that were rotated.
//!
//! Captures are put in the order of their first packets. Packet logs have no dates, so they stay as they are named.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};

use super::reading::open;
use crate::inspect::{is_stdin, name};

/// The files to read, in their order.
pub(super) struct Inputs {
    /// How all of them together are called.
    pub(super) name: String,
    pub(super) files: Vec<PathBuf>,
    /// What is wrong with some that are left out.
    pub(super) troubles: Vec<String>,
    are_several: bool,
}

impl Inputs {
    /// One file, or standard input.
    pub(super) fn one(path: &Path) -> Self {
        Self { name: name(path), files: vec![path.to_owned()], troubles: Vec::new(), are_several: false }
    }

    /// All files that are named, and the captures of all directories that are.
    pub(super) fn merged(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut found = Found::default();
        for path in paths {
            ensure!(!is_stdin(path), "standard input cannot be read as one of several");
            if path.is_dir() {
                found.add_directory(path)?;
            } else {
                found.add_file(path);
            }
        }
        let Found { mut files, troubles, .. } = found;
        if files.iter().all(|(_, time)| time.is_some()) {
            files.sort_by_key(|(_, time)| *time);
        }
        let name = match paths {
            [one] => name(one),
            _ => format!("{} files", files.len()),
        };
        let files = files.into_iter().map(|(path, _)| path).collect();
        Ok(Self { name, files, troubles, are_several: true })
    }

    pub(super) const fn are_several(&self) -> bool {
        self.are_several
    }

    /// Returns how a file is called beside the others, if there are others.
    pub(super) fn file_name(&self, path: &Path) -> Option<Arc<str>> {
        self.are_several.then(|| name(path).into())
    }
}

/// Files that were looked at, with the time of their first packet, if they tell a date.
#[derive(Default)]
struct Found {
    files: Vec<(PathBuf, Option<u64>)>,
    troubles: Vec<String>,
}

impl Found {
    fn add_file(&mut self, path: &Path) {
        match first_time(path) {
            Ok(time) => self.files.push((path.to_owned(), time)),
            Err(error) => self.troubles.push(format!("{}: {error:#}", name(path))),
        }
    }

    /// Adds the captures of a directory, and says what else is in it.
    fn add_directory(&mut self, directory: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(directory).with_context(|| name(directory))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let mut others = Vec::new();
        let before = self.files.len();
        for path in paths {
            match first_time(&path) {
                Ok(Some(time)) => self.files.push((path, Some(time))),
                Ok(None) | Err(_) => others.push(path),
            }
        }
        if self.files.len() == before {
            self.troubles.push(format!("{}: is a directory without captures", name(directory)));
        }
        if !others.is_empty() {
            let names = others.iter().take(MAX_NAMED).filter_map(|path| path.file_name());
            let named: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            let more = others.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            eprintln!("bcnet: {}: no captures, and not read: {}{more}", name(directory), named.join(", "));
        }
        Ok(())
    }
}

/// Returns when the first packet of a file was, if it tells a date.
fn first_time(path: &Path) -> anyhow::Result<Option<u64>> {
    let is_file = fs::metadata(path)?.is_file();
    ensure!(is_file, "is no file; several are read as one only from files");
    Ok(open(path, false)?.first_time())
}

/// As many files that are not read are named.
const MAX_NAMED: usize = 10;
