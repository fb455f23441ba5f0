//! `bcnet service`: the dedicated server as a service of Windows.
//!
//! Elsewhere there is no such command, since systemd's units are for that; only what needs no Windows is tested there too.

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
The service runs as NT SERVICE\\bcnet, an account that has no rights but those to its own files, from the start of the \
machine on. It writes its log beside the configuration, and `bcnet ctl` reaches it from a terminal that was started with \
`Run as administrator`, which this command needs too.

Exit codes: 0 done, or the service runs; 1 it does not run; 2 could not be done.

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
    /// Have Windows run the server, now and whenever the machine starts
    Install {
        /// The configuration; else %ProgramData%\bcnet\bcnet.toml, which is made if there is none
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Stop the service and take it away; its files stay
    Remove,
    /// Tell whether the service is there and runs, and where its files are
    Status,
    /// What the service manager calls
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
