//! Decides which files are read: one, or several as one capture, such as rotated captures.
//!
//! Captures are opened in the order of their first packets. Packet logs have no dates, so they keep the order of the
//! command line.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::inspection_pass::open_source;
use super::source::NotACapture;
use crate::inspect::{input_name, is_stdin};

/// The files to read, in their order.
pub(super) struct Inputs {
    /// The name for messages about all files together.
    pub(super) name: String,
    pub(super) files: Vec<InputFile>,
    /// Problems with files that are left out.
    pub(super) problems: Vec<String>,
    is_merged: bool,
}

/// A file to read.
pub(super) struct InputFile {
    pub(super) path: PathBuf,
    /// The time of the first packet in microseconds, for captures that are read in the order of time.
    pub(super) first_micros: Option<u64>,
}

impl Inputs {
    /// Returns one file, or standard input.
    pub(super) fn single(path: &Path) -> Self {
        let file = InputFile { path: path.to_owned(), first_micros: None };
        Self { name: input_name(path), files: vec![file], problems: Vec::new(), is_merged: false }
    }

    /// Returns the inputs of a live capture, which has no files.
    pub(super) fn live(interface: &str) -> Self {
        Self { name: interface.into(), files: Vec::new(), problems: Vec::new(), is_merged: false }
    }

    /// Returns all named files, and the captures in all named directories.
    pub(super) fn merged(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut found = InputScan::default();
        for path in paths {
            ensure!(!is_stdin(path), "standard input cannot be merged with other files");
            if path.is_dir() {
                found.add_directory(path)?;
            } else {
                found.add_file(path);
            }
        }
        let InputScan { mut files, problems: troubles, .. } = found;
        if files.iter().all(|file| file.first_micros.is_some()) {
            files.sort_by_key(|file| file.first_micros);
        } else {
            files.iter_mut().for_each(|file| file.first_micros = None);
        }
        let name = match paths {
            [one] => input_name(one),
            _ => format!("{} files", files.len()),
        };
        Ok(Self { name, files, problems: troubles, is_merged: true })
    }

    pub(super) const fn is_merged(&self) -> bool {
        self.is_merged
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    /// Returns the size of all files in bytes, if it is known.
    pub(super) fn size(&self) -> Option<u64> {
        let size = |file: &InputFile| {
            let metadata = fs::metadata(&file.path).ok().filter(|_| !is_stdin(&file.path))?;
            metadata.is_file().then_some(metadata.len())
        };
        self.files.iter().map(size).sum()
    }
}

/// The files that were examined.
#[derive(Default)]
struct InputScan {
    files: Vec<InputFile>,
    problems: Vec<String>,
}

impl InputScan {
    fn add_file(&mut self, path: &Path) {
        match first_packet_micros(path) {
            Ok(first) => self.files.push(InputFile { path: path.to_owned(), first_micros: first }),
            Err(error) => self.problems.push(format!("{}: {error:#}", input_name(path))),
        }
    }

    /// Adds the captures of a directory, and prints which other files are in it.
    ///
    /// An unreadable file may be a capture, so it counts as a problem.
    fn add_directory(&mut self, directory: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(directory).with_context(|| input_name(directory))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let (mut others, mut troubles) = (Vec::new(), Vec::new());
        let before = self.files.len();
        for path in paths {
            match first_packet_micros(&path) {
                Ok(Some(first)) => self.files.push(InputFile { path, first_micros: Some(first) }),
                Ok(None) => others.push(path),
                Err(error) if !path.is_file() || error.is::<NotACapture>() => others.push(path),
                Err(error) => troubles.push(format!("{}: {error:#}", input_name(&path))),
            }
        }
        if self.files.len() == before && troubles.is_empty() {
            self.problems.push(format!("{}: the directory contains no captures", input_name(directory)));
        }
        if !others.is_empty() {
            let names = others.iter().take(MAX_LISTED_NAMES).filter_map(|path| path.file_name());
            let named: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            let more = others.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            eprintln!(
                "bcnet: {}: skipped files that are not captures: {}{more}",
                input_name(directory),
                named.join(", ")
            );
        }
        self.problems.append(&mut troubles);
        Ok(())
    }
}

/// Returns the time of the first packet of a file, if the format has dates.
fn first_packet_micros(path: &Path) -> anyhow::Result<Option<u64>> {
    let is_file = fs::metadata(path)?.is_file();
    ensure!(is_file, "not a regular file; only regular files can be merged");
    let mut source = open_source(path, false)?;
    Ok(source.is_dated().then(|| source.next_time().unwrap_or(0)))
}

/// The most skipped files that are named.
const MAX_LISTED_NAMES: usize = 10;
