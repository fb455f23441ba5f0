//! `bcnet-attack`: attacks on programs that it starts itself, and clients that measure the effect.
//!
//! It attacks `bcnet` as a server, a proxy or a list server.
//!
//! Each attack is bounded in rate and time, and repeatable by its seed. It runs in a separate network
//! namespace or on loopback ([`sandbox`]). docs/reference/attacks.md describes each attack.

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
    eprintln!(
        "bcnet-attack: this program runs only on Linux, because it needs network namespaces and raw sockets"
    );
    std::process::ExitCode::from(2)
}
