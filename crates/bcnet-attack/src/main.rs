//! `bcnet-attack`: attacks on a bcnet server, proxy and list server that it starts itself, and victims that measure them.
//!
//! Every attack is bounded in rate and time, repeatable by its seed, and takes place in a network namespace of its own or on
//! loopback ([`sandbox`]). docs/reference/attacks.md tells what each does.

#[cfg(target_os = "linux")]
mod attacks;
#[cfg(target_os = "linux")]
mod delays;
#[cfg(target_os = "linux")]
mod forged;
#[cfg(target_os = "linux")]
mod forger;
#[cfg(target_os = "linux")]
mod group;
#[cfg(target_os = "linux")]
mod metrics;
#[cfg(target_os = "linux")]
mod newcomer;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod player;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod query_client;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod sniffer;

#[cfg(target_os = "linux")]
use options::Environment;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    options::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("bcnet-attack: it needs Linux, for network namespaces and raw sockets");
    std::process::ExitCode::from(2)
}
