//! `bcnet-attack`: attacks on a bcnet server, proxy and list server that it starts itself, and victims that measure them.
//!
//! Every attack is bounded in rate and time, repeatable by its seed, and takes place in a network namespace of its own or on
//! loopback ([`arena`]). docs/attacks.md tells what each does.

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod asker;
#[cfg(target_os = "linux")]
mod attacks;
#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod delays;
#[cfg(target_os = "linux")]
mod forge;
#[cfg(target_os = "linux")]
mod newcomer;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod player;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod tap;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
use options::Setting;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    options::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("bcnet-attack: it needs Linux, for network namespaces and raw sockets");
    std::process::ExitCode::from(2)
}
