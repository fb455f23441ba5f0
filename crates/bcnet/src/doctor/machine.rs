//! What the computer is like.
//!
//! What is seen and what is made of it are apart, so that tests can show the second what no test could have a machine do.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use bcnet_udp::{Io, Socket, is_wall_clock_synchronized, wall_now};

use super::{CheckState, DoctorReport};
use crate::config::Settings;
use crate::double_click::local_address;
use crate::file;

/// What was seen, and what to do if it is not right.
type HealthResult = (CheckState, String);

/// Looks at the clock, which bans, logs and certificates go by; `written` are files that the server has written.
pub(super) fn check_clock<'a>(written: impl IntoIterator<Item = &'a PathBuf>, report: &mut DoctorReport) {
    let since_1970 =
        |path: &PathBuf| fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    let newest = written.into_iter().filter_map(since_1970).max();
    report.add("clock", judge_clock(wall_now(), newest, is_wall_clock_synchronized()));
}

fn judge_clock(now: Duration, newest: Option<Duration>, is_synchronized: Option<bool>) -> HealthResult {
    let ahead = newest.unwrap_or_default().saturating_sub(now);
    if now < YEAR_2025 {
        let text = "it is before 2025: bans end at the wrong time and no certificate is valid; set the clock";
        (CheckState::Bad, text.into())
    } else if ahead >= HOUR {
        let hours = ahead.as_secs() / HOUR.as_secs();
        (
            CheckState::Warn,
            format!(
                "files of the server are {hours} h ahead of it: it was set back, and bans end late; set the clock"
            ),
        )
    } else if is_synchronized == Some(false) {
        (
            CheckState::Warn,
            "no time service keeps it right, says the system; `timedatectl set-ntp true` starts one on most"
                .into(),
        )
    } else if is_synchronized == Some(true) {
        (CheckState::Ok, "a time service keeps it right".into())
    } else {
        (CheckState::Ok, "it has a sane date; whether it is right, this system does not tell".into())
    }
}

/// Looks at the addresses that the machine has.
pub(super) fn check_addresses(bind: Ipv4Addr, ports: &[u16], report: &mut DoctorReport) {
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
                describe_ports(ports)
            ),
        ),
        Some(address) => report.ok("address", format!("{address} is public")),
    }
    if bind.is_unspecified() {
        for other in own_addresses().into_iter().filter(|own| Some(*own) != address).take(MAX_EXTRA_ADDRESSES)
        {
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

fn describe_ports(ports: &[u16]) -> String {
    format!("UDP port {}", port_ranges(ports).join(", "))
}

/// Returns ports in their order, those in a row as `22101-22104`.
fn port_ranges(ports: &[u16]) -> Vec<String> {
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
pub(super) fn check_firewall(ports: &[u16], report: &mut DoctorReport) {
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
        let hint = kind.open_command(&port_ranges(ports));
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
    fn open_command(self, ports: &[String]) -> String {
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
pub(super) fn check_files(settings: &Settings, report: &mut DoctorReport) {
    let capture = settings.capture.size.0.saturating_mul(u64::from(settings.capture.files.get()));
    let places = [
        ("bans", Some(&settings.server.bans), LOW_SPACE_BYTES),
        ("history", settings.server.history.as_ref(), LOW_SPACE_BYTES),
        ("log", settings.log.file.as_ref(), LOW_SPACE_BYTES),
        ("capture", settings.capture.file.as_ref(), capture),
        ("scores", settings.scores.file.as_ref(), LOW_SPACE_BYTES),
    ];
    for (name, path, most) in places {
        let Some(path) = path else { continue };
        let place = path.display();
        // The server makes directories for these two.
        let is_made = matches!(name, "log" | "capture");
        let directory = file::parent_directory(path);
        let parents = directory.ancestors().map(|parent| if parent == "" { Path::new(".") } else { parent });
        let there = parents.clone().find(|parent| parent.exists()).filter(|_| is_made).unwrap_or(directory);
        match file::check_replaceable(&there.join(path.file_name().unwrap_or_default())) {
            Err(error) => report.bad(
                name,
                format!("{place}: cannot be written ({error}); give the server's user the directory, or name another"),
            ),
            Ok(()) => {
                let (state, text) = judge_free_space(file::free_bytes(there), most);
                report.add(name, (state, format!("{place}: {text}")));
            }
        }
    }
}

/// Judges how much room there is, where so much may be written.
fn judge_free_space(free: Option<u64>, needed: u64) -> HealthResult {
    let mebibytes = |bytes: u64| bytes >> 20;
    match free {
        None => (CheckState::Ok, "can be written".into()),
        Some(free) if free < FULL_DISK_BYTES => {
            (CheckState::Bad, "the disk is full, and nothing is kept; make room".into())
        }
        Some(free) if free < needed => {
            let (free, needed) = (mebibytes(free), mebibytes(needed));
            (CheckState::Warn, format!("only {free} MiB are free, and it may take {needed}; make room"))
        }
        Some(free) => (CheckState::Ok, format!("can be written, {} MiB are free", mebibytes(free))),
    }
}

/// Looks at what the system lets a program have, where it tells.
pub(super) fn check_limits(sessions: usize, report: &mut DoctorReport) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    if let Some(open) = open.and_then(|line| line.split_whitespace().next()) {
        report
            .add("open files", judge_open_files(open.parse().unwrap_or(usize::MAX), sessions + OTHER_FILES));
    }
    let socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), Io::BEST);
    if let Some(room) = socket.ok().and_then(|socket| socket.receive_buffer_bytes()) {
        report.add("buffers", judge_socket_buffer(room));
    }
}

fn judge_open_files(open: usize, needed: usize) -> HealthResult {
    match open {
        usize::MAX => (CheckState::Ok, "as many may be open as are needed".into()),
        _ if open < needed => {
            let text = format!(
                "{open} may be open, {needed} are needed; raise `ulimit -n`, or `LimitNOFILE=` of a service"
            );
            (CheckState::Bad, text)
        }
        _ => (CheckState::Ok, format!("{open} may be open, {needed} are needed")),
    }
}

fn judge_socket_buffer(bytes: u32) -> HealthResult {
    let text = format!("a session's socket gets {} KiB", bytes / 1024);
    if bytes < WANTED_RECEIVE_BUFFER {
        let help = format!("`sysctl -w net.core.rmem_max={WANTED_RECEIVE_BUFFER}` helps when many play");
        (CheckState::Warn, format!("{text}, and bursts may be lost; {help}"))
    } else {
        (CheckState::Ok, text)
    }
}

const YEAR_2025: Duration = Duration::from_secs(1_735_689_600);
const HOUR: Duration = Duration::from_secs(3600);
/// Less room than this is gone soon.
const LOW_SPACE_BYTES: u64 = 64 << 20;
/// With less nothing can be written.
const FULL_DISK_BYTES: u64 = 1 << 20;
/// Files besides the sockets of sessions: log, control, metrics and those who use them.
const OTHER_FILES: usize = 64;
/// What a session asks the system for.
const WANTED_RECEIVE_BUFFER: u32 = 4 << 20;
/// How many more addresses are told. Where containers run there may be many.
const MAX_EXTRA_ADDRESSES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_check_uses_date_file_times_and_time_service() {
        let now = YEAR_2025 + 1000 * HOUR;
        assert_eq!(judge_clock(Duration::from_secs(1), None, Some(true)).0, CheckState::Bad);
        let (state, text) = judge_clock(now, Some(now + 5 * HOUR), Some(true));
        assert!(state == CheckState::Warn && text.contains("5 h ahead"), "{text}");
        assert_eq!(
            judge_clock(now, Some(now + HOUR / 2), Some(true)).0,
            CheckState::Ok,
            "no file is that exact"
        );
        assert_eq!(judge_clock(now, Some(now), Some(false)).0, CheckState::Warn);
        assert_eq!(judge_clock(now, None, None).0, CheckState::Ok);
    }

    #[test]
    fn free_space_is_compared_with_the_bytes_to_write() {
        let states =
            [None, Some(0), Some(100 << 20), Some(300 << 20)].map(|free| judge_free_space(free, 256 << 20).0);
        assert_eq!(states, [CheckState::Ok, CheckState::Bad, CheckState::Warn, CheckState::Ok]);
    }

    #[test]
    fn low_limits_are_reported_with_a_remedy() {
        let (state, text) = judge_open_files(100, 165);
        assert!(state == CheckState::Bad && text.contains("100 may be open, 165 are needed"), "{text}");
        assert_eq!([165, usize::MAX].map(|open| judge_open_files(open, 165).0), [CheckState::Ok; 2]);
        let (state, text) = judge_socket_buffer(212_992);
        assert!(
            state == CheckState::Warn && text.contains("208 KiB") && text.contains("rmem_max=4194304"),
            "{text}"
        );
        assert_eq!(judge_socket_buffer(WANTED_RECEIVE_BUFFER).0, CheckState::Ok);
    }

    #[test]
    fn firewall_command_names_all_ports() {
        let ports = port_ranges(&[22104, 22101, 22102, 22150]);
        assert_eq!(ports, ["22101-22102", "22104", "22150"]);
        let open = |kind: Firewall| kind.open_command(&ports[..2]);
        assert!(open(Firewall::Windows).ends_with("localport=22101-22102,22104"));
        assert_eq!(open(Firewall::Ufw), "sudo ufw allow 22101:22102/udp; sudo ufw allow 22104/udp");
        assert!(open(Firewall::Firewalld).contains("--add-port=22101-22102/udp"));
        assert!(open(Firewall::Nftables).contains("dport '{ 22101-22102, 22104 }' accept"));
    }

    #[test]
    fn private_ranges_include_carrier_grade_nat() {
        let is = |address: [u8; 4]| is_private(address.into());
        assert!(is([10, 1, 2, 3]) && is([192, 168, 1, 5]) && is([100, 64, 0, 1]) && is([169, 254, 0, 1]));
        assert!(!is([100, 128, 0, 1]) && !is([8, 8, 8, 8]));
    }
}
