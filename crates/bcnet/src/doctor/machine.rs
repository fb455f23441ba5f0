//! What the computer is like.
//!
//! What is seen and what is made of it are apart, so that tests can show the second what no test could have a machine do.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use bcnet_udp::{Io, Socket, is_wall_kept, wall_now};

use super::{Report, State};
use crate::config::Settings;
use crate::double_click::local_address;
use crate::file;

/// What was seen, and what to do if it is not right.
type Verdict = (State, String);

/// Looks at the clock, which bans, logs and certificates go by; `written` are files that the server has written.
pub(super) fn clock<'a>(written: impl IntoIterator<Item = &'a PathBuf>, report: &mut Report) {
    let since_1970 =
        |path: &PathBuf| fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    let newest = written.into_iter().filter_map(since_1970).max();
    report.add("clock", judge_clock(wall_now(), newest, is_wall_kept()));
}

fn judge_clock(now: Duration, newest: Option<Duration>, is_kept: Option<bool>) -> Verdict {
    let ahead = newest.unwrap_or_default().saturating_sub(now);
    if now < YEAR_2025 {
        let text = "it is before 2025: bans end at the wrong time and no certificate is valid; set the clock";
        (State::Bad, text.into())
    } else if ahead >= HOUR {
        let hours = ahead.as_secs() / HOUR.as_secs();
        (
            State::Warn,
            format!(
                "files of the server are {hours} h ahead of it: it was set back, and bans end late; set the clock"
            ),
        )
    } else if is_kept == Some(false) {
        (
            State::Warn,
            "no time service keeps it right, says the system; `timedatectl set-ntp true` starts one on most"
                .into(),
        )
    } else if is_kept == Some(true) {
        (State::Ok, "a time service keeps it right".into())
    } else {
        (State::Ok, "it has a sane date; whether it is right, this system does not tell".into())
    }
}

/// Looks at the addresses that the machine has.
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
    if bind.is_unspecified() {
        for other in own_addresses().into_iter().filter(|own| Some(*own) != address).take(MAX_ADDRESSES) {
            report.ok("address", format!("{other} is this machine's too, for players in that network"));
        }
    }
}

/// Returns all addresses of the machine in networks.
fn own_addresses() -> Vec<Ipv4Addr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let addresses = interfaces.iter().filter_map(|interface| match interface.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    });
    addresses.collect()
}

/// Returns whether an address means nothing outside of its network, those of providers' own translation among them.
pub(super) fn is_private(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private() || address.is_link_local() || address.is_loopback() || (a == 100 && b & 0xC0 == 64)
}

fn spoken(ports: &[u16]) -> String {
    format!("UDP port {}", ranges(ports).join(", "))
}

/// Returns ports in their order, those in a row as `22101-22104`.
fn ranges(ports: &[u16]) -> Vec<String> {
    let mut ports = ports.to_vec();
    ports.sort_unstable();
    ports.dedup();
    let rows = ports.chunk_by(|one, next| *next == one.saturating_add(1));
    let name = |row: &[u16]| match row {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    rows.map(name).collect()
}

/// Says how to open the firewall. Whether there is one, only the administrator may ask.
pub(super) fn firewall(ports: &[u16], report: &mut Report) {
    let has = |program: &str| {
        Path::new("/usr/sbin").join(program).exists() || Path::new("/usr/bin").join(program).exists()
    };
    let kind = if cfg!(windows) {
        Firewall::Windows
    } else if has("ufw") {
        Firewall::Ufw
    } else if has("firewall-cmd") {
        Firewall::Firewalld
    } else {
        Firewall::Nftables
    };
    if !ports.is_empty() {
        let hint = kind.open(&ranges(ports));
        report.ok("firewall", format!("not looked at; if nobody from outside gets in: {hint}"));
    }
}

/// What may keep datagrams out.
#[derive(Debug, Clone, Copy)]
enum Firewall {
    Windows,
    Ufw,
    Firewalld,
    Nftables,
}

impl Firewall {
    /// Returns what to type to let datagrams to these ports in.
    fn open(self, ports: &[String]) -> String {
        let each = |make: fn(&String) -> String| ports.iter().map(make).collect::<Vec<_>>().join("; ");
        match self {
            Self::Windows => format!(
                "netsh advfirewall firewall add rule name=bcnet dir=in action=allow protocol=UDP localport={}",
                ports.join(",")
            ),
            Self::Ufw => each(|port| format!("sudo ufw allow {}/udp", port.replace('-', ":"))),
            Self::Firewalld => {
                let ports = each(|port| format!("sudo firewall-cmd --permanent --add-port={port}/udp"));
                format!("{ports}; sudo firewall-cmd --reload")
            }
            Self::Nftables => {
                format!("sudo nft add rule inet filter input udp dport '{{ {} }}' accept", ports.join(", "))
            }
        }
    }
}

/// Looks at the places where the server writes.
pub(super) fn files(settings: &Settings, report: &mut Report) {
    let capture = settings.capture.size.0.saturating_mul(u64::from(settings.capture.files.get()));
    let places = [
        ("bans", Some(&settings.server.bans), MIN_FREE),
        ("history", settings.server.history.as_ref(), MIN_FREE),
        ("log", settings.log.file.as_ref(), MIN_FREE),
        ("capture", settings.capture.file.as_ref(), capture),
        ("scores", settings.scores.file.as_ref(), MIN_FREE),
    ];
    for (name, path, most) in places {
        let Some(path) = path else { continue };
        let place = path.display();
        // The server makes directories for these two.
        let is_made = matches!(name, "log" | "capture");
        let directory = file::directory(path);
        let parents = directory.ancestors().map(|parent| if parent == "" { Path::new(".") } else { parent });
        let there = parents.clone().find(|parent| parent.exists()).filter(|_| is_made).unwrap_or(directory);
        match file::try_replace(&there.join(path.file_name().unwrap_or_default())) {
            Err(error) => report.bad(
                name,
                format!("{place}: cannot be written ({error}); give the server's user the directory, or name another"),
            ),
            Ok(()) => {
                let (state, text) = judge_room(file::free_bytes(there), most);
                report.add(name, (state, format!("{place}: {text}")));
            }
        }
    }
}

/// Judges how much room there is, where so much may be written.
fn judge_room(free: Option<u64>, most: u64) -> Verdict {
    let mebibytes = |bytes: u64| bytes >> 20;
    match free {
        None => (State::Ok, "can be written".into()),
        Some(free) if free < MIN_LEFT => {
            (State::Bad, "the disk is full, and nothing is kept; make room".into())
        }
        Some(free) if free < most => {
            let (free, most) = (mebibytes(free), mebibytes(most));
            (State::Warn, format!("only {free} MiB are free, and it may take {most}; make room"))
        }
        Some(free) => (State::Ok, format!("can be written, {} MiB are free", mebibytes(free))),
    }
}

/// Looks at what the system lets a program have, where it tells.
pub(super) fn limits(sessions: usize, report: &mut Report) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    if let Some(open) = open.and_then(|line| line.split_whitespace().next()) {
        report
            .add("open files", judge_open_files(open.parse().unwrap_or(usize::MAX), sessions + OTHER_FILES));
    }
    let socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), Io::BEST);
    if let Some(room) = socket.ok().and_then(|socket| socket.room()) {
        report.add("buffers", judge_room_of_sockets(room));
    }
}

fn judge_open_files(open: usize, needed: usize) -> Verdict {
    match open {
        usize::MAX => (State::Ok, "as many may be open as are needed".into()),
        _ if open < needed => {
            let text = format!(
                "{open} may be open, {needed} are needed; raise `ulimit -n`, or `LimitNOFILE=` of a service"
            );
            (State::Bad, text)
        }
        _ => (State::Ok, format!("{open} may be open, {needed} are needed")),
    }
}

fn judge_room_of_sockets(bytes: u32) -> Verdict {
    let text = format!("a session's socket gets {} KiB", bytes / 1024);
    if bytes < RECEIVE_BYTES {
        let help = format!("`sysctl -w net.core.rmem_max={RECEIVE_BYTES}` helps when many play");
        (State::Warn, format!("{text}, and bursts may be lost; {help}"))
    } else {
        (State::Ok, text)
    }
}

const YEAR_2025: Duration = Duration::from_secs(1_735_689_600);
const HOUR: Duration = Duration::from_secs(3600);
/// Less room than this is gone soon.
const MIN_FREE: u64 = 64 << 20;
/// With less nothing can be written.
const MIN_LEFT: u64 = 1 << 20;
/// Files besides the sockets of sessions: log, control, metrics and those who use them.
const OTHER_FILES: usize = 64;
/// What a session asks the system for.
const RECEIVE_BYTES: u32 = 4 << 20;
/// How many more addresses are told. Where containers run there may be many.
const MAX_ADDRESSES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_judged_by_its_date_by_files_and_by_the_system() {
        let now = YEAR_2025 + 1000 * HOUR;
        assert_eq!(judge_clock(Duration::from_secs(1), None, Some(true)).0, State::Bad);
        let (state, text) = judge_clock(now, Some(now + 5 * HOUR), Some(true));
        assert!(state == State::Warn && text.contains("5 h ahead"), "{text}");
        assert_eq!(judge_clock(now, Some(now + HOUR / 2), Some(true)).0, State::Ok, "no file is that exact");
        assert_eq!(judge_clock(now, Some(now), Some(false)).0, State::Warn);
        assert_eq!(judge_clock(now, None, None).0, State::Ok);
    }

    #[test]
    fn room_is_judged_by_what_may_be_written() {
        let states =
            [None, Some(0), Some(100 << 20), Some(300 << 20)].map(|free| judge_room(free, 256 << 20).0);
        assert_eq!(states, [State::Ok, State::Bad, State::Warn, State::Ok]);
    }

    #[test]
    fn limits_that_are_too_low_are_told_with_what_to_do() {
        let (state, text) = judge_open_files(100, 165);
        assert!(state == State::Bad && text.contains("100 may be open, 165 are needed"), "{text}");
        assert_eq!([165, usize::MAX].map(|open| judge_open_files(open, 165).0), [State::Ok; 2]);
        let (state, text) = judge_room_of_sockets(212_992);
        assert!(
            state == State::Warn && text.contains("208 KiB") && text.contains("rmem_max=4194304"),
            "{text}"
        );
        assert_eq!(judge_room_of_sockets(RECEIVE_BYTES).0, State::Ok);
    }

    #[test]
    fn all_ports_are_in_the_command_for_a_firewall() {
        let ports = ranges(&[22104, 22101, 22102, 22150]);
        assert_eq!(ports, ["22101-22102", "22104", "22150"]);
        let open = |kind: Firewall| kind.open(&ports[..2]);
        assert!(open(Firewall::Windows).ends_with("localport=22101-22102,22104"));
        assert_eq!(open(Firewall::Ufw), "sudo ufw allow 22101:22102/udp; sudo ufw allow 22104/udp");
        assert!(open(Firewall::Firewalld).contains("--add-port=22101-22102/udp"));
        assert!(open(Firewall::Nftables).contains("dport '{ 22101-22102, 22104 }' accept"));
    }

    #[test]
    fn addresses_that_mean_nothing_elsewhere_are_private() {
        let is = |address: [u8; 4]| is_private(address.into());
        assert!(is([10, 1, 2, 3]) && is([192, 168, 1, 5]) && is([100, 64, 0, 1]) && is([169, 254, 0, 1]));
        assert!(!is([100, 128, 0, 1]) && !is([8, 8, 8, 8]));
    }
}
