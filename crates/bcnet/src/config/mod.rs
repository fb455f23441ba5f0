//! The configuration: all settings, their sources, and `bcnet config`.
//!
//! - [`settings`] defines every key once.
//! - [`load()`] reads file, environment and flags.
//! - [`check`] compares settings with each other.
//! - [`save()`] writes single values into the file.
//! - [`render`] prints all settings for people.

mod check;
mod document;
#[cfg(test)]
pub(crate) mod fuzz_tests;
mod hook;
mod load;
pub(crate) mod render;
mod save;
mod settings;
mod syntax;
pub(crate) mod table;
mod text;
pub(crate) mod value;

use std::env;
use std::io::Write;
use std::path::PathBuf;

use crate::number_format::pluralize;
use crate::{CommandStatus, manifest, standard_output};
pub(crate) use document::{Document, Problems};
pub(crate) use hook::{Hook, HookEvent, HookFormat};
pub(crate) use load::{ConfigFlags, Loaded, Origin, first_directory, is_bare_file_name, load, load_control};
pub(crate) use save::save;
pub(crate) use settings::{
    ChecksumSetting, CreditKills, Fleet, IdSetting, LogFormat, LogLevel, MissionSetting, ProofSetting,
    RefusalOpcode, SayAsSetting, Scores, Session, Settings, StockMission, Web, WhenEmpty,
};
pub(crate) use table::{Table, table};
pub(crate) use text::{HostPort, Latin1Line, ListServerAddress};
pub(crate) use value::{ConfigValue, describe_value, expected_message, quoted};
#[cfg(test)]
pub(crate) use {hook::HookName, text::HostName};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print a configuration file with every key, its description and its default
    Default {
        /// Print the same as a Markdown page of documentation
        #[arg(long, hide = true)]
        markdown: bool,
    },
    /// Report all problems in the configuration
    ///
    /// Exit codes: 0 no problem, 1 problems, 2 the file could not be read.
    Check {
        /// Configuration file; same as --config
        #[arg(value_name = "FILE", conflicts_with = "config")]
        file: Option<PathBuf>,

        #[command(flatten)]
        flags: ConfigFlags,
    },
    /// Print the effective values and the source of each
    Show {
        #[command(flatten)]
        flags: ConfigFlags,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let mut out = standard_output::lock();
    match &args.command {
        Command::Default { markdown: false } => out.write_all(render::default_file().as_bytes())?,
        Command::Default { markdown: true } => out.write_all(render::markdown_page().as_bytes())?,
        Command::Show { flags } => {
            out.write_all(render::effective_values(&load(flags, env::vars_os())?).as_bytes())?
        }
        Command::Check { file, flags } => {
            let flags =
                ConfigFlags { config: file.clone().or_else(|| flags.config.clone()), ..flags.clone() };
            return run_check(&flags, &mut out);
        }
    }
    Ok(CommandStatus::Clean)
}

fn run_check(flags: &ConfigFlags, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
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
                return Ok(CommandStatus::Findings);
            }
            for name in &loaded.ignored_variables {
                writeln!(out, "{name}: bcnet has no such setting; the variable is ignored")?;
            }
            writeln!(out, "fine: {}", pluralize(loaded.settings.sessions.len(), "session"))?;
            Ok(CommandStatus::Clean)
        }
        Err(error) => {
            for problem in &error.downcast::<Problems>()?.0 {
                writeln!(out, "{problem}")?;
            }
            Ok(CommandStatus::Findings)
        }
    }
}
