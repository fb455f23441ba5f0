//! Reads TOML into tables of known keys and collects everything that is wrong with it, each with its line.

use std::fmt;
use std::ops::Range;

use bcnet_control::{did_you_mean, short};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::syntax::explain;
use super::table::{Given, Table};

/// Something wrong in a file, the environment or the flags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// The file, or the name of a variable or flag.
    pub(crate) place: String,
    /// The line in the file.
    pub(crate) line: Option<usize>,
    /// The key, with its table.
    pub(crate) key: Option<String>,
    /// What is wrong and what would be right.
    pub(crate) text: String,
}

impl Problem {
    /// Returns whether it is about a key of a table of which `is_meant` says so.
    pub(super) fn is_about(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.key.as_deref().and_then(|key| key.split('.').next()).is_some_and(is_meant)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.place)?;
        if let Some(line) = self.line {
            write!(out, "line {line}: ")?;
        }
        if let Some(key) = &self.key {
            write!(out, "{key}: ")?;
        }
        out.write_str(&self.text)
    }
}

/// Everything that is wrong, at least one. As an error it is one line for each.
#[derive(Debug)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        // The program writes its name before the first line.
        out.write_str(&lines.join("\nbcnet: "))
    }
}

impl std::error::Error for Problems {}

/// A TOML text with the problems found in it so far.
pub(crate) struct Document {
    name: String,
    /// Where each line ends.
    ends: Vec<usize>,
    problems: Vec<Problem>,
}

impl Document {
    /// Parses `text`. A text that is no TOML has problems and an empty root: what could be read of it would only make
    /// more of them.
    pub(crate) fn parse(name: String, text: &str) -> (Self, DeTable<'_>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        let mut document = Self { name, ends, problems: Vec::new() };
        let mut last = None;
        for error in errors.iter().take(MAX_PROBLEMS) {
            let offset = error.span().map_or(0, |span| span.start).min(text.len());
            // What else is wrong in the same line comes of it.
            if last.replace(document.line(offset)) != Some(document.line(offset)) {
                let (key, message) = explain(text, offset, error.message());
                document.problem(Some(offset..offset), key, message);
            }
        }
        (document, if errors.is_empty() { root.into_inner() } else { DeTable::new() })
    }

    /// Sets what `source` says in `table`, and tells `note` the line of each key that was set.
    pub(crate) fn fill(
        &mut self,
        name: &str,
        table: &mut dyn Table,
        source: &DeTable<'_>,
        mut note: impl FnMut(&str, usize),
    ) {
        for (key, value) in source {
            let path = format!("{name}.{}", short(key.get_ref()));
            if table.keys().iter().all(|known| known.name != key.get_ref()) {
                let known = table.keys().iter().map(|known| known.name);
                let text = format!("unknown key{}", did_you_mean(key.get_ref(), known));
                self.problem(Some(key.span()), Some(path), text);
                continue;
            }
            match table.set(key.get_ref(), Given::Toml(value.get_ref())) {
                Ok(()) => note(key.get_ref(), self.line(key.span().start)),
                Err(text) => self.problem(Some(value.span()), Some(path), text),
            }
        }
    }

    /// Returns the table behind a key, if it is one.
    pub(crate) fn table<'v, 'a>(
        &mut self,
        name: &str,
        value: &'v Spanned<DeValue<'a>>,
    ) -> Option<&'v DeTable<'a>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.problem(
                Some(value.span()),
                Some(name.into()),
                format!("expected a table; write `[{name}]`"),
            );
        }
        table
    }

    /// Returns the tables behind a key that may be written many times.
    pub(crate) fn tables<'v, 'a>(
        &mut self,
        name: &str,
        value: &'v Spanned<DeValue<'a>>,
    ) -> Vec<&'v DeTable<'a>> {
        let tables: Option<Vec<_>> = value
            .get_ref()
            .as_array()
            .and_then(|items| items.iter().map(|item| item.get_ref().as_table()).collect());
        tables.unwrap_or_else(|| {
            let text = format!("expected a list of tables; write `[[{name}]]`");
            self.problem(Some(value.span()), Some(name.into()), text);
            Vec::new()
        })
    }

    /// Adds a problem.
    pub(crate) fn problem(&mut self, at: Option<Range<usize>>, key: Option<String>, text: String) {
        if self.problems.len() < MAX_PROBLEMS {
            let line = at.map(|span| self.line(span.start));
            self.problems.push(Problem { place: self.name.clone(), line, key, text });
        }
    }

    /// Returns how many problems were found so far.
    pub(crate) fn count(&self) -> usize {
        self.problems.len()
    }

    /// Returns what is wrong, in the order of the lines.
    pub(crate) fn into_problems(mut self) -> Vec<Problem> {
        self.problems.sort();
        self.problems
    }

    /// Returns the line of a byte, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset) + 1
    }
}

/// Nobody reads more, and a hostile file could have millions.
const MAX_PROBLEMS: usize = 100;
