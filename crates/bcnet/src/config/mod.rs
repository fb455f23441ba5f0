//! The configuration: what can be set, where it comes from, and `bcnet config`.
//!
//! [`settings`] names every key once; [`load()`] reads file, environment and flags, and [`check()`] looks whether they fit; [`keep()`] writes single
//! values into the file; [`sample`] writes them all for people.

mod check;
mod document;
mod hook;
#[cfg(test)]
pub(crate) mod hostile;
mod keep;
mod load;
pub(crate) mod sample;
mod settings;
mod syntax;
pub(crate) mod table;
mod text;
pub(crate) mod value;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::number::counted;
use crate::{Verdict, manifest};
pub(crate) use document::{Document, Problems};
pub(crate) use hook::{Hook, HookEvent, HookFormat};
pub(crate) use keep::keep;
pub(crate) use load::{Flags, Loaded, Origin, first, is_bare, load, load_control};
pub(crate) use settings::{
    Checksums, CreditKills, Fleet, Format, Ids, Level, Mission, Prove, RefusalOpcode, SayAs, Scores, Session,
    Settings, StockMission, Web, WhenEmpty,
};
pub(crate) use table::{Table, table};
pub(crate) use text::{HostPort, Line, Master};
pub(crate) use value::{Value, expected, plain, quoted};
#[cfg(test)]
pub(crate) use {hook::HookName, text::HostName};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print a file with every key, its meaning and its default
    Default {
        /// Print the same as a page of documentation
        #[arg(long, hide = true)]
        markdown: bool,
    },
    /// Tell everything that is wrong with the configuration
    ///
    /// Exit codes: 0 nothing, 1 something, 2 the file could not be read.
    Check {
        /// The file; the same as --config
        #[arg(value_name = "FILE", conflicts_with = "config")]
        file: Option<PathBuf>,

        #[command(flatten)]
        flags: Flags,
    },
    /// Print the effective values and where each comes from
    Show {
        #[command(flatten)]
        flags: Flags,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut out = io::stdout().lock();
    match &args.command {
        Command::Default { markdown: false } => out.write_all(sample::sample().as_bytes())?,
        Command::Default { markdown: true } => out.write_all(sample::page().as_bytes())?,
        Command::Show { flags } => {
            out.write_all(sample::effective(&load(flags, env::vars_os())?).as_bytes())?
        }
        Command::Check { file, flags } => {
            let flags = Flags { config: file.clone().or_else(|| flags.config.clone()), ..flags.clone() };
            return check(&flags, &mut out);
        }
    }
    Ok(Verdict::Clean)
}

fn check(flags: &Flags, out: &mut impl Write) -> anyhow::Result<Verdict> {
    match load(flags, env::vars_os()) {
        Ok(loaded) => {
            let mut bad = false;
            for path in loaded.settings.sessions.iter().flat_map(|session| &session.manifests) {
                if let Err(error) = manifest::read(path) {
                    bad = true;
                    writeln!(out, "{error:#}")?;
                }
            }
            if bad {
                return Ok(Verdict::Findings);
            }
            for name in &loaded.strange {
                writeln!(out, "{name}: no setting of bcnet, ignored")?;
            }
            writeln!(out, "fine: {}", counted(loaded.settings.sessions.len(), "session"))?;
            Ok(Verdict::Clean)
        }
        Err(error) => {
            for problem in &error.downcast::<Problems>()?.0 {
                writeln!(out, "{problem}")?;
            }
            Ok(Verdict::Findings)
        }
    }
}
