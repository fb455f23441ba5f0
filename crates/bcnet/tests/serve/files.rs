//! Files that the server writes: bans, captures and logs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::thread;

use bcnet_session::{Anomaly, JoinRefusal};
use bcnet_transport::RejectCause;
use serde_json::Value;

use crate::connection::{connect, directory_with_control};
use crate::player::LoopbackPlayer;
use crate::server::{ServerProcess, TestDirectory};

/// Kills the server during writes of the bans, repeatedly. The file is always complete.
#[test]
fn kill_9_during_a_ban_write_leaves_a_complete_file() {
    let mut directory = directory_with_control();
    let mut least = 0;
    for round in 0..10_u8 {
        let server = ServerProcess::start_in(directory, &[], 1);
        // The file of the previous run is readable, and has all confirmed bans.
        let bans = server.ctl_json(&["bans"])["bans"].as_array().expect("a list").len();
        assert!(bans >= least, "{bans} of {least} bans");
        let mut stream = connect(&server);
        for n in 0..200 {
            let reason = "x".repeat(100);
            let line =
                format!("{{\"command\":\"ban\",\"target\":\"10.{round}.0.{n}\",\"reason\":\"{reason}\"}}\n");
            stream.write_all(line.as_bytes()).expect("written");
        }
        // Bans are being written now. Wait for some confirmations, more in each round.
        let confirmed = usize::from(round) * 3;
        for line in BufReader::new(&stream).lines().take(confirmed) {
            let line = line.expect("an answer");
            assert!(line.starts_with("{\"ok\""), "{line}");
        }
        least = bans + confirmed;
        directory = server.kill();
    }
    let server = ServerProcess::start_in(directory, &[], 1);
    assert!(server.ctl_json(&["bans"])["bans"].as_array().expect("a list").len() >= least);
}

#[test]
fn unreadable_ban_file_gives_one_line_and_exit_code_2() {
    let directory = TestDirectory::new();
    fs::write(directory.path("bans.toml"), "[[ban]]\naddress = \"10.0.0.300\"\n").expect("written");
    let output = directory.bcnet(&["serve", "--bind", "127.0.0.1"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("bans.toml") && error.contains("line 2") && error.lines().count() == 1, "{error}");
}

#[cfg(unix)]
#[test]
fn files_of_the_server_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let server = ServerProcess::start(&[
        "--set",
        "log.file=server.log",
        "--set",
        "scores.file=scores.db",
        "--write",
        "game.pcapng",
    ]);
    server.ctl_json(&["ban", "192.0.2.1"]);
    server.stop();
    let (_, directory) = server.wait_for_exit();
    let files = fs::read_dir(&directory.0).expect("a directory").flatten();
    let modes: Vec<(String, u32)> = files
        .map(|file| {
            let mode = file.metadata().expect("a file").permissions().mode() & 0o777;
            (file.file_name().to_string_lossy().into_owned(), mode)
        })
        .collect();
    for start in ["server", "scores.db", "game.pcapng", "bans.toml"] {
        assert!(modes.iter().any(|(name, _)| name.starts_with(start)), "{start}: {modes:?}");
    }
    for (name, mode) in &modes {
        let most = if name == "game.pcapng" { 0o600 } else { 0o640 };
        assert_eq!(mode & !most, 0, "{name}: {mode:o}");
    }
}

#[test]
fn unwritable_files_give_one_line_and_exit_code_2() {
    let directory = TestDirectory::new();
    for (key, path) in [
        ("server.bans", "absent/bans.toml"),
        // No user can create files there, not even root.
        #[cfg(unix)]
        ("server.control", "/proc/bcnet.sock"),
        #[cfg(unix)]
        ("log.file", "/proc/server.log"),
        #[cfg(unix)]
        ("log.file", "/proc/absent/server.log"),
        #[cfg(unix)]
        ("capture.file", "/proc/absent/game.pcapng"),
    ] {
        let set = format!("{key}={path}");
        // The default port may be in use, which would be a second line.
        let args = ["serve", "--bind", "127.0.0.1", "--set", "log.level=error", "--set", &set];
        let output = directory.bcnet(&args).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{set}: {error}");
        assert!(error.starts_with("bcnet: ") && error.contains(path), "{set}: {error}");
    }
}

#[test]
fn log_and_capture_directories_are_created() {
    let files = ["--set", "log.file=logs/server.log", "--set", "capture.file=captures/of/game.pcapng"];
    let server = ServerProcess::start(&files);
    assert!(
        server.directory.path("logs").is_dir() && server.directory.path("captures/of/game.pcapng").is_file()
    );
}

/// T-76: players who must prove their address look like any others in the capture of the server.
#[test]
fn capture_of_unverified_players_has_no_findings() {
    let server =
        ServerProcess::start(&["--bind", "0.0.0.0", "--set", "session.trusted=", "--write", "game.pcapng"]);
    let address = server.address();
    thread::scope(|scope| {
        for name in ["Alice", "Bob", "Carol", "Dave"] {
            scope.spawn(move || LoopbackPlayer::join(address, name));
        }
    });
    server.stop();
    let (_, directory) = server.wait_for_exit();
    let output = directory.bcnet(&["inspect", "game.pcapng"]).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let cookies = text.lines().filter(|line| line.contains("data seq=") && line.contains(" 0 bytes")).count();
    assert_eq!((output.status.code(), cookies), (Some(0), 4), "{text}");
    assert!(!text.contains("0.0.0.0:"), "{text}");
}

#[test]
fn capture_contains_the_chat() {
    let server = ServerProcess::start(&["--write", "game.pcapng"]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let line = alice.chat_payload("for the record");
    alice.chat("for the record");
    alice.run_until(|alice| alice.has_received(&line));
    server.stop();
    alice.run_until_end();
    let (_, directory) = server.wait_for_exit();
    let file = fs::File::open(directory.path("game.pcapng")).expect("a capture");
    let mut reader = pcap_file::pcapng::PcapNgReader::new(file).expect("pcapng");
    let (mut to, mut from) = (0, 0);
    let mut chat_count = 0;
    while let Some(block) = reader.next_block() {
        let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.expect("a whole file") else { continue };
        // IPv4 header, UDP header, then the encrypted datagram.
        let mut datagram = packet.data[28..].to_vec();
        bcnet_transport::cipher::decrypt(&mut datagram);
        if datagram[0] == 1 {
            from += 1
        } else {
            to += 1
        }
        chat_count += usize::from(datagram.windows(14).any(|part| part == b"for the record"));
    }
    assert!(to >= 5 && from >= 5, "{to} in, {from} out");
    assert!(chat_count >= 2, "{chat_count}");
}

#[test]
fn log_can_be_json_in_a_file() {
    let server = ServerProcess::start(&["--set", "log.format=json", "--set", "log.file=server.log"]);
    server.wait_for_log(&["\"event\":\"started\"", "\"version\":", "\"sessions\":1"]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice \"the\" Great");
    let line: Value =
        serde_json::from_str(&server.wait_for_log(&["\"event\":\"joined\""])).expect("a line of JSON");
    assert_eq!((&line["player"], &line["level"]), (&"Alice \"the\" Great".into(), &"INFO".into()));
    assert_eq!(line["port"], server.ports[0]);
    server.stop();
    alice.run_until_end();
    let (_, directory) = server.wait_for_exit();
    let log = fs::read_dir(&directory.0)
        .expect("a directory")
        .filter_map(Result::ok)
        .find(|entry| entry.file_name().to_string_lossy().starts_with("server."))
        .expect("a log file");
    let text = fs::read_to_string(log.path()).expect("text");
    assert!(text.lines().any(|line| line.contains("\"event\":\"stopped\"")), "{text}");
}

#[test]
fn only_old_logs_are_deleted() {
    let directory = TestDirectory::new();
    let others = ["bcnet.toml", "bcnet", "bcnet.2026-01-01.txt"];
    for name in others.iter().chain(&["bcnet.2001-01-01", "bcnet.2002-02-02"]) {
        fs::write(directory.path(name), "").expect("written");
    }
    let server = ServerProcess::start_in(directory, &["--set", "log.file=./bcnet", "--set", "log.keep=1"], 1);
    for name in others {
        assert!(server.directory.path(name).exists(), "{name}");
    }
    for name in ["bcnet.2001-01-01", "bcnet.2002-02-02"] {
        assert!(!server.directory.path(name).exists(), "{name}");
    }
}

/// Returns the quoted texts that follow `before` in a source file.
fn quoted_after<'a>(source: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    source.split(before).skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
fn log_events_are_all_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = |path: &Path| fs::read_to_string(path).expect("text");
    let events = text(&root.join("../bcnet-session/src/event.rs"));
    let (events, _) = events.split_once("pub enum EndReason").expect("events come first");
    let mut names: BTreeSet<String> = quoted_after(events, "=> \"").map(Into::into).collect();
    let sources =
        ["src/serve", "src/serve/control_plane", "src/master"].map(|place| fs::read_dir(root.join(place)));
    let sources = sources.into_iter().flat_map(|files| files.expect("the sources"));
    for file in sources.map(|file| file.expect("a file").path()).filter(|file| file.is_file()) {
        names.extend(quoted_after(&text(&file), "event = \"").map(Into::into));
    }
    // `bcnet manifest learn` prints this event; no log has it.
    names.remove("manifest_learned");
    // The server does not ask for this event.
    names.remove("game");
    names.extend(Anomaly::ALL.map(|kind| kind.name().into()));
    names.extend(JoinRefusal::NAMES.map(Into::into));
    names.extend(RejectCause::ALL.map(|cause| cause.name().into()));
    assert!(names.len() > 20, "{names:?}");
    let table = text(&root.join("../../docs/reference/log-events.md"));
    let missing: Vec<_> = names.iter().filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Skipped if systemd is not installed.
#[test]
fn the_systemd_units_are_valid() {
    let directory = TestDirectory::new();
    for name in ["bcnet.service", "bcnet@.service"] {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
        let text = fs::read_to_string(unit).expect("the unit");
        // Only the package installs the manual page.
        let installed =
            text.replace("/usr/bin/bcnet", env!("CARGO_BIN_EXE_bcnet")).replace("Documentation=", "#");
        assert_ne!(installed, text);
        let file = directory.path(&name.replace('@', "@friday"));
        fs::write(&file, installed).expect("written");
        let Ok(output) = std::process::Command::new("systemd-analyze").arg("verify").arg(&file).output()
        else {
            return;
        };
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
