//! `bcnet service`: the server as a Windows service.
//!
//! Other systems have no such command, because systemd units serve that purpose. The parts that do not need
//! Windows are tested there too.

mod access;
#[cfg(windows)]
mod manage;
mod names;
#[cfg(windows)]
mod run;
#[cfg(windows)]
mod safety;

#[cfg(windows)]
use std::path::PathBuf;

#[cfg(windows)]
use crate::CommandStatus;

#[cfg(windows)]
#[derive(clap::Args)]
#[command(after_help = "\
The service starts with the machine and runs as NT SERVICE\\bcnet, an account with rights only to its own files. It \
writes its log to the directory of the configuration. Run this command, and `bcnet ctl` for the service, in a terminal that \
was started with `Run as administrator`.

Exit codes: 0 done, or the service runs; 1 the service does not run; 2 the command failed.

Examples:
  bcnet service install
  bcnet service install --config C:\\ProgramData\\bcnet\\league.toml
  bcnet service status")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[cfg(windows)]
#[derive(clap::Subcommand)]
enum Command {
    /// Install and start the service; it also starts with the machine
    Install {
        /// The configuration file; default: %ProgramData%\bcnet\bcnet.toml, created if it does not exist
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Stop and remove the service; its files remain
    Remove,
    /// Show whether the service is installed and runs, and where its files are
    Status,
    /// Run the service; only the service manager uses this
    #[command(hide = true)]
    Run {
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

#[cfg(windows)]
pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    match &args.command {
        Command::Install { config } => manage::install(config.as_deref()),
        Command::Remove => manage::remove(),
        Command::Status => manage::status(),
        Command::Run { config } => run::run(config),
    }
}
