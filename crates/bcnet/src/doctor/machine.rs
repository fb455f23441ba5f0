//! Checks of the computer: clock, addresses, firewall, files, limits.
//!
//! Each check reads the system in one function and judges the values in another. So tests can judge values
//! that no test machine has.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use bcnet_udp::{Io, Socket, is_wall_clock_synchronized, wall_now};

use super::{CheckState, DoctorReport};
use crate::config::Settings;
use crate::double_click::local_address;
use crate::file;

/// The result of a check: its state, and a text with the observation and the remedy.
type HealthResult = (CheckState, String);

/// Checks the clock, on which bans, logs and certificates depend.
///
/// `written` are files that the server has written.
pub(super) fn check_clock<'a>(written: impl IntoIterator<Item = &'a PathBuf>, report: &mut DoctorReport) {
    let since_1970 =
        |path: &PathBuf| fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    let newest = written.into_iter().filter_map(since_1970).max();
    report.add("clock", judge_clock(wall_now(), newest, is_wall_clock_synchronized()));
}

fn judge_clock(now: Duration, newest: Option<Duration>, is_synchronized: Option<bool>) -> HealthResult {
    let ahead = newest.unwrap_or_default().saturating_sub(now);
    if now < YEAR_2025 {
        let text = "the clock shows a date before 2025: bans end at the wrong time and no certificate is valid; set the clock";
        (CheckState::Bad, text.into())
    } else if ahead >= HOUR {
        let hours = ahead.as_secs() / HOUR.as_secs();
        (
            CheckState::Warn,
            format!(
                "files of the server are {hours} h ahead of the clock: it was set back, so bans end late; set the clock"
            ),
        )
    } else if is_synchronized == Some(false) {
        (
            CheckState::Warn,
            "no time service adjusts the clock; on most systems, `timedatectl set-ntp true` starts one"
                .into(),
        )
    } else if is_synchronized == Some(true) {
        (CheckState::Ok, "a time service adjusts the clock".into())
    } else {
        (
            CheckState::Ok,
            "the date is plausible; this system does not report whether a time service adjusts the clock"
                .into(),
        )
    }
}

/// Checks the addresses of the machine.
pub(super) fn check_addresses(bind: Ipv4Addr, ports: &[u16], report: &mut DoctorReport) {
    if bind.is_loopback() {
        report.warn(
            "address",
            format!("`server.bind` is {bind}, so only players on this machine can join; set it to 0.0.0.0"),
        );
        return;
    }
    let address = if bind.is_unspecified() { local_address() } else { Some(bind) };
    match address {
        None => report.warn("address", "the machine has no network connection: only players on it can join; check the network"),
        Some(address) if is_private(address) => report.warn(
            "address",
            format!(
                "{address} is private: players on the internet can join only if the router forwards {} to {address}",
                describe_ports(ports)
            ),
        ),
        Some(address) => report.ok("address", format!("{address} is public")),
    }
    if bind.is_unspecified() {
        for other in own_addresses().into_iter().filter(|own| Some(*own) != address).take(MAX_EXTRA_ADDRESSES)
        {
            report.ok(
                "address",
                format!("{other} is an address of this machine too, for players in that network"),
            );
        }
    }
}

/// Returns all IPv4 addresses of the machine except loopback addresses.
fn own_addresses() -> Vec<Ipv4Addr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let addresses = interfaces.iter().filter_map(|interface| match interface.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    });
    addresses.collect()
}

/// Returns whether an address is valid only inside a network, including carrier-grade NAT ranges.
pub(super) fn is_private(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private() || address.is_link_local() || address.is_loopback() || (a == 100 && b & 0xC0 == 64)
}

fn describe_ports(ports: &[u16]) -> String {
    format!("UDP port {}", port_ranges(ports).join(", "))
}

/// Returns the ports in ascending order, with consecutive ports as `22101-22104`.
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

/// Adds the command that opens the firewall to the report.
///
/// Only an administrator may read the firewall's rules, so they are not checked.
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
        report.ok("firewall", format!("not checked; if players from outside cannot join, run: {hint}"));
    }
}

/// A firewall that may block datagrams.
#[derive(Debug, Clone, Copy)]
enum Firewall {
    Windows,
    Ufw,
    Firewalld,
    Nftables,
}

impl Firewall {
    /// Returns the command that opens these UDP ports.
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

/// Checks the files and directories that the server writes.
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
        let shown = path.display();
        // The server creates the directories of these two files.
        let is_made = matches!(name, "log" | "capture");
        let directory = file::parent_directory(path);
        let parents = directory.ancestors().map(|parent| if parent == "" { Path::new(".") } else { parent });
        let there = parents.clone().find(|parent| parent.exists()).filter(|_| is_made).unwrap_or(directory);
        match file::check_replaceable(&there.join(path.file_name().unwrap_or_default())) {
            Err(error) => report.bad(
                name,
                format!("{shown}: cannot be written ({error}); let the server's user write to the directory, or set another path"),
            ),
            Ok(()) => {
                let (state, text) = judge_free_space(file::free_bytes(there), most);
                report.add(name, (state, format!("{shown}: {text}")));
            }
        }
    }
}

/// Judges whether the free space is enough for `needed` bytes.
fn judge_free_space(free: Option<u64>, needed: u64) -> HealthResult {
    let mebibytes = |bytes: u64| bytes >> 20;
    match free {
        None => (CheckState::Ok, "can be written".into()),
        Some(free) if free < FULL_DISK_BYTES => {
            (CheckState::Bad, "the disk is full, so the server cannot save anything; free some space".into())
        }
        Some(free) if free < needed => {
            let (free, needed) = (mebibytes(free), mebibytes(needed));
            (
                CheckState::Warn,
                format!("only {free} MiB are free, but up to {needed} MiB may be needed; free some space"),
            )
        }
        Some(free) => (CheckState::Ok, format!("can be written, {} MiB are free", mebibytes(free))),
    }
}

/// Checks the limits of the system, where it reports them.
pub(super) fn check_limits(sessions: usize, report: &mut DoctorReport) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    if let Some(open) = open.and_then(|line| line.split_whitespace().next()) {
        report
            .add("open files", judge_open_files(open.parse().unwrap_or(usize::MAX), sessions + OTHER_FILES));
    }
    let socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), Io::BEST);
    if let Some(bytes) = socket.ok().and_then(|socket| socket.receive_buffer_bytes()) {
        report.add("buffers", judge_socket_buffer(bytes));
    }
}

fn judge_open_files(open: usize, needed: usize) -> HealthResult {
    match open {
        usize::MAX => (CheckState::Ok, "there is no limit".into()),
        _ if open < needed => {
            let text = format!(
                "{open} may be open, but {needed} are needed; raise `ulimit -n`, or `LimitNOFILE=` of the service"
            );
            (CheckState::Bad, text)
        }
        _ => (CheckState::Ok, format!("{open} may be open, {needed} are needed")),
    }
}

fn judge_socket_buffer(bytes: u32) -> HealthResult {
    let text = format!("the receive buffer of a session's socket has {} KiB", bytes / 1024);
    if bytes < WANTED_RECEIVE_BUFFER {
        let help = format!("`sysctl -w net.core.rmem_max={WANTED_RECEIVE_BUFFER}` enlarges it");
        (CheckState::Warn, format!("{text}; bursts of datagrams may be lost when many play; {help}"))
    } else {
        (CheckState::Ok, text)
    }
}

const YEAR_2025: Duration = Duration::from_secs(1_735_689_600);
const HOUR: Duration = Duration::from_secs(3600);
/// Less free space than this gives a warning.
const LOW_SPACE_BYTES: u64 = 64 << 20;
/// With less free space than this, nothing can be written.
const FULL_DISK_BYTES: u64 = 1 << 20;
/// The number of files besides the sockets of sessions: log, control, metrics, and their clients.
const OTHER_FILES: usize = 64;
/// The receive buffer that a session requests from the system.
const WANTED_RECEIVE_BUFFER: u32 = 4 << 20;
/// The maximum number of further addresses to print. A machine with containers may have many.
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
            "a difference below an hour is fine"
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
        assert!(state == CheckState::Bad && text.contains("100 may be open, but 165 are needed"), "{text}");
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
