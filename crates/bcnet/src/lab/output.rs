//! Output of results: tables, pages, JSON.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value as Json;

#[derive(clap::Args)]
pub(super) struct OutputArgs {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    /// Also write a page with plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl OutputArgs {
    /// Writes the page if requested, and prints either the JSON or the tables.
    pub(super) fn write_results<W: Write>(
        &self,
        out: &mut W,
        page: impl FnOnce() -> String,
        json: impl FnOnce() -> Json,
        tables: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        if let Some(path) = &self.report {
            write_page(path, &page())?;
        }
        if self.json {
            writeln!(out, "{}", json())?;
        } else {
            tables(out)?;
        }
        Ok(())
    }
}

/// Writes a page and reports its path.
pub(super) fn write_page(path: &Path, page: &str) -> anyhow::Result<()> {
    fs::write(path, page).with_context(|| path.display().to_string())?;
    eprintln!("bcnet: report written to {}", path.display());
    Ok(())
}
