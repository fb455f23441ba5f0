//! The program `bcnet`: tools for the network protocol of Star Trek: Bridge Commander.
//!
//! Exit codes: 0 clean, 1 the command has found a problem, 2 the command could not run.

#[cfg(test)]
mod allocations;
mod background;
mod bans;
mod capture;
mod config;
mod connections;
mod control;
mod ctl;
mod doctor;
mod double_click;
mod dumpcap;
mod event_loop;
mod extcap;
mod file;
mod histogram;
mod http_client;
mod inspect;
mod join;
mod lab;
mod list_servers;
mod log;
mod lookup;
mod manifest;
mod manual;
mod master;
mod metrics;
mod metrics_server;
mod number_format;
#[cfg(feature = "parquet")]
mod parquet_file;
mod plots;
mod proxy;
mod query;
mod queue_dump;
mod random;
mod recorder;
mod reply_addresses;
mod scores;
mod serve;
mod server_info;
#[cfg(any(windows, test))]
mod service;
mod signals;
mod standard_output;
mod stats;
mod swarm;
mod top;
mod usage;
#[cfg(windows)]
mod win32;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The version. A release build adds the date and the commit that it was built from.
const VERSION: &str = match option_env!("BCNET_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

#[derive(Parser)]
#[command(version = VERSION, about, long_about = None, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a script that completes commands and options in a shell
    Completions(manual::CompletionsArgs),
    /// Print, check and explain the server's configuration
    Config(config::Args),
    /// Control a running server: list players, kick, ban, chat
    Ctl(ctl::Args),
    /// Find out why players cannot join, and what to do about it
    Doctor(doctor::Args),
    /// Let Wireshark capture from an interface with deciphered datagrams
    Extcap(extcap::Args),
    /// Decode Bridge Commander datagrams, field by field
    Inspect(inspect::Args),
    /// Join a game from a terminal: list the players, chat, or test whether players can join
    Join(join::Args),
    /// Run experiments with the stock engine and with bcnet on a virtual network
    Lab(lab::Args),
    /// Print the manual page, or write one for each command
    Man(manual::ManArgs),
    /// Record and check manifests: lists of the game files that players must have
    Manifest(manifest::Args),
    /// Run a list server, where games find servers
    Master(master::Args),
    /// Forward datagrams between players and a server, observe them and heal the traffic
    Proxy(proxy::Args),
    /// Ask a server for its status, or the local network for servers
    Query(query::Args),
    /// Host games
    Serve(serve::Args),
    /// Run the server as a Windows service
    #[cfg(windows)]
    Service(service::Args),
    /// Show the rounds that a server has stored: players, rounds, systems
    Stats(stats::Args),
    /// Connect simulated players to a server and check that each receives what the others send
    Swarm(swarm::Args),
    /// Watch a running server in the terminal: players, queues, plots, log
    Top(top::Args),
}

/// The result of a command that ran to its end. It becomes the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandStatus {
    Clean,
    Findings,
}

fn main() -> ExitCode {
    if double_click::was_double_clicked() {
        return double_click::run();
    }
    let verdict = match Args::parse_from(extcap::program_arguments()).command {
        Command::Completions(args) => manual::completions(&args),
        Command::Config(args) => config::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Extcap(args) => extcap::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Join(args) => join::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Man(args) => manual::man(&args),
        Command::Manifest(args) => manifest::run(&args),
        Command::Master(args) => master::run(&args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Query(args) => query::run(&args),
        Command::Serve(args) => serve::run(&args),
        #[cfg(windows)]
        Command::Service(args) => service::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Swarm(args) => swarm::run(&args),
        Command::Top(args) => top::run(&args),
    };
    match verdict {
        Ok(CommandStatus::Clean) => ExitCode::SUCCESS,
        Ok(CommandStatus::Findings) => ExitCode::from(1),
        Err(error) if standard_output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bcnet: {error:#}");
            ExitCode::from(2)
        }
    }
}
