//! What the computer is like.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bcnet_udp::wall_now;

use super::Report;
use crate::config::Settings;
use crate::double_click::local_address;
use crate::file;

/// Looks at the clock, which bans and logs go by.
pub(super) fn clock(report: &mut Report) {
    if wall_now() >= YEAR_2025 {
        report.ok("clock", "it has a sane date");
    } else {
        report.warn("clock", "it is before 2025: bans end at the wrong time; set the clock");
    }
}

/// Looks at the address that the machine has in its network.
pub(super) fn addresses(bind: Ipv4Addr, ports: &[u16], report: &mut Report) {
    if bind.is_loopback() {
        report
            .warn("address", format!("`server.bind` is {bind}, so only this machine can join; use 0.0.0.0"));
        return;
    }
    let address = if bind.is_unspecified() { local_address() } else { Some(bind) };
    match address {
        None => report.warn("address", "no way out of this machine: only it can join; look at its network"),
        Some(address) if is_private(address) => report.warn(
            "address",
            format!(
                "{address} is private: players elsewhere get in only if the router forwards {} to {address}",
                spoken(ports)
            ),
        ),
        Some(address) => report.ok("address", format!("{address} is public")),
    }
}

/// Returns whether an address means nothing outside of its network, those of providers' own translation among them.
fn is_private(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private() || address.is_link_local() || address.is_loopback() || (a == 100 && b & 0xC0 == 64)
}

fn spoken(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("UDP port {}", ports.join(", "))
}

/// Says how to open the firewall. Whether there is one, only the administrator may ask.
pub(super) fn firewall(ports: &[u16], report: &mut Report) {
    let Some(port) = ports.first() else { return };
    let hint = if cfg!(windows) {
        format!(
            "netsh advfirewall firewall add rule name=bcnet dir=in action=allow protocol=UDP localport={port}"
        )
    } else if Path::new("/usr/sbin/ufw").exists() {
        format!("sudo ufw allow {port}/udp")
    } else {
        format!("sudo nft add rule inet filter input udp dport {port} accept")
    };
    report.ok("firewall", format!("not looked at; if nobody from outside gets in: {hint}"));
}

/// Looks at the places where the server writes.
pub(super) fn files(settings: &Settings, report: &mut Report) {
    let places = [
        ("bans", Some(&settings.server.bans)),
        ("history", settings.server.history.as_ref()),
        ("log", settings.log.file.as_ref()),
        ("capture", settings.capture.file.as_ref()),
        ("scores", settings.scores.file.as_ref()),
    ];
    for (name, path) in places {
        let Some(path) = path else { continue };
        let place = path.display();
        match file::try_replace(path) {
            Err(error) => report.bad(
                name,
                format!("{place}: cannot be written ({error}); give the server's user the directory, or name another"),
            ),
            Ok(()) => match free_bytes(file::directory(path)) {
                Some(free) if free < MIN_FREE => report.warn(
                    name,
                    format!("{place}: only {} MiB are free; make room", free >> 20),
                ),
                Some(free) => report.ok(name, format!("{place}: can be written, {} MiB are free", free >> 20)),
                None => report.ok(name, format!("{place}: can be written")),
            },
        }
    }
}

/// Returns how much room there is, where the system has a program that tells.
fn free_bytes(directory: &Path) -> Option<u64> {
    if cfg!(windows) {
        return None;
    }
    let told = Command::new("df").arg("-Pk").arg("--").arg(directory).output().ok()?;
    let text = String::from_utf8(told.stdout).ok()?;
    let kilobytes: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Looks at what the system lets a program have, where it tells.
pub(super) fn limits(sessions: usize, report: &mut Report) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    if let Some(open) = open.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()) {
        let needed = sessions + OTHER_FILES;
        if open < needed {
            report.bad("open files", format!("{open} may be open, {needed} are needed; raise `ulimit -n`"));
        } else {
            report.ok("open files", format!("{open} may be open, {needed} are needed"));
        }
    }
    let bytes = fs::read_to_string("/proc/sys/net/core/rmem_max").ok();
    if let Some(bytes) = bytes.and_then(|text| text.trim().parse::<u64>().ok()) {
        if bytes < RECEIVE_BYTES {
            report.warn(
                "buffers",
                format!("sockets get {bytes} bytes at the most; `sysctl -w net.core.rmem_max={RECEIVE_BYTES}` helps when many play"),
            );
        } else {
            report.ok("buffers", format!("sockets may have {bytes} bytes"));
        }
    }
}

const YEAR_2025: Duration = Duration::from_secs(1_735_689_600);
/// Less room than this is gone soon.
const MIN_FREE: u64 = 64 << 20;
/// Files besides the sockets of sessions: log, control, metrics and those who use them.
const OTHER_FILES: usize = 64;
/// What a session asks the system for.
const RECEIVE_BYTES: u64 = 4 << 20;
