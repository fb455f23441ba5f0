//! Reads TOML into tables of known keys and collects all problems, each with its line.

use std::fmt;
use std::ops::Range;

use bcnet_control::{did_you_mean, escape_key};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::syntax::explain_syntax_error;
use super::table::{RawValue, Table};

/// A problem in a file, the environment or the flags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// The file, or the name of a variable or flag.
    pub(crate) source: String,
    /// The line in the file.
    pub(crate) line: Option<usize>,
    /// The key, with its table.
    pub(crate) key: Option<String>,
    /// The defect, and the expected form.
    pub(crate) text: String,
}

impl Problem {
    /// Returns whether the problem concerns a key of a table for which `is_table` returns true.
    pub(super) fn is_about(&self, is_table: impl Fn(&str) -> bool) -> bool {
        self.key.as_deref().and_then(|key| key.split('.').next()).is_some_and(is_table)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.source)?;
        if let Some(line) = self.line {
            write!(out, "line {line}: ")?;
        }
        if let Some(key) = &self.key {
            write!(out, "{key}: ")?;
        }
        out.write_str(&self.text)
    }
}

/// All problems, at least one. As an error it prints one line per problem.
#[derive(Debug)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        // The caller prints the program's name before the first line.
        out.write_str(&lines.join("\nbcnet: "))
    }
}

impl std::error::Error for Problems {}

/// A TOML text with the problems found in it so far.
pub(crate) struct Document {
    name: String,
    /// End offset of each line.
    line_ends: Vec<usize>,
    problems: Vec<Problem>,
}

impl Document {
    /// Parses `text`. Text that is not TOML gives problems and an empty root.
    ///
    /// The readable parts are dropped: they would only cause follow-up problems.
    pub(crate) fn parse(name: String, text: &str) -> (Self, DeTable<'_>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        let mut document = Self { name, line_ends: ends, problems: Vec::new() };
        let mut last = None;
        for error in errors.iter().take(MAX_PROBLEMS) {
            let offset = error.span().map_or(0, |span| span.start).min(text.len());
            // Further errors in the same line are consequences of the first.
            if last.replace(document.line_number(offset)) != Some(document.line_number(offset)) {
                let (key, message) = explain_syntax_error(text, offset, error.message());
                document.add_problem(Some(offset..offset), key, message);
            }
        }
        (document, if errors.is_empty() { root.into_inner() } else { DeTable::new() })
    }

    /// Sets the keys of `source` in `table`, and calls `note` with the line of each key that was set.
    pub(crate) fn fill(
        &mut self,
        name: &str,
        table: &mut dyn Table,
        source: &DeTable<'_>,
        mut on_set: impl FnMut(&str, usize),
    ) {
        for (key, value) in source {
            let path = format!("{name}.{}", escape_key(key.get_ref()));
            if table.keys().iter().all(|known| known.name != key.get_ref()) {
                let known = table.keys().iter().map(|known| known.name);
                let text = format!("unknown key{}", did_you_mean(key.get_ref(), known));
                self.add_problem(Some(key.span()), Some(path), text);
                continue;
            }
            match table.set(key.get_ref(), RawValue::Toml(value.get_ref())) {
                Ok(()) => on_set(key.get_ref(), self.line_number(key.span().start)),
                Err(text) => self.add_problem(Some(value.span()), Some(path), text),
            }
        }
    }

    /// Returns the table value of a key; adds a problem if the value is no table.
    pub(crate) fn expect_table<'v, 'a>(
        &mut self,
        name: &str,
        value: &'v Spanned<DeValue<'a>>,
    ) -> Option<&'v DeTable<'a>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.add_problem(
                Some(value.span()),
                Some(name.into()),
                format!("expected a table; write `[{name}]`"),
            );
        }
        table
    }

    /// Returns the tables of a key that may be repeated (`[[session]]`).
    pub(crate) fn expect_tables<'v, 'a>(
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
            self.add_problem(Some(value.span()), Some(name.into()), text);
            Vec::new()
        })
    }

    /// Adds a problem.
    pub(crate) fn add_problem(&mut self, at: Option<Range<usize>>, key: Option<String>, text: String) {
        if self.problems.len() < MAX_PROBLEMS {
            let line = at.map(|span| self.line_number(span.start));
            self.problems.push(Problem { source: self.name.clone(), line, key, text });
        }
    }

    /// Returns the number of problems found so far.
    pub(crate) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// Returns all problems, in the order of their lines.
    pub(crate) fn into_problems(mut self) -> Vec<Problem> {
        self.problems.sort();
        self.problems
    }

    /// Returns the line number of a byte offset, from 1.
    pub(crate) fn line_number(&self, offset: usize) -> usize {
        self.line_ends.partition_point(|end| *end < offset) + 1
    }
}

/// Limit against hostile files, which could have millions of problems.
const MAX_PROBLEMS: usize = 100;
