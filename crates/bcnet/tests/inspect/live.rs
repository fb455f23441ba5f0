//! Tests captures from an interface with a fake `dumpcap` that outputs a file, because a test has no permissions and no
//! traffic.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bcnet_transport::cipher;

use crate::captures::{ETHERNET, RAW, datagrams, inspect, message_count, pcapng, session, test_directory};
use crate::finding_locations::battle;
use crate::run::{ProcessOutput, path, signal};

/// Creates a directory with a fake dumpcap and these interfaces.
///
/// `whole` ends after the capture, `cut` within its last packet, `open` never. `denied` may not be captured from.
fn fake_dumpcap(name: &str) -> PathBuf {
    let directory = test_directory(name);
    let capture = pcapng(&session(), ETHERNET);
    fs::write(directory.join("whole"), &capture).expect("written");
    fs::write(directory.join("cut"), &capture[..capture.len() - 10]).expect("written");
    let script = format!(
        "#!/bin/sh
cd '{}'
case \"$*\" in
  -D) echo '1. eth0'; echo '2. whole (As a whole)' ;;
  *'-i whole '*'-f udp -w -') cat whole ;;
  *'-i filtered '*'-f port 7 -w -') cat whole ;;
  *'-i cut '*) cat cut; echo 'The interface went down.' >&2; exit 1 ;;
  *'-i open '*) cat whole; exec sleep 600 ;;
  *) cat >&2 <<'END'
Capturing on x
dumpcap: You do not have permission to capture on device \"eth0\".
(socket: Operation not permitted)

Please check to make sure you have sufficient permissions.

On Debian and Debian derivatives such as Ubuntu, if you have installed Wireshark from a package, try running

    sudo dpkg-reconfigure wireshark-common
END
     exit 2 ;;
esac
",
        directory.display()
    );
    let program = directory.join("dumpcap");
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    directory
}

fn command_with_fake_dumpcap(directory: &Path, program: &Path, arguments: &[&str]) -> Command {
    let others = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", format!("{}:{others}", directory.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run_with_fake_dumpcap(directory: &Path, arguments: &[&str]) -> ProcessOutput {
    let program = Path::new(env!("CARGO_BIN_EXE_bcnet"));
    command_with_fake_dumpcap(directory, program, arguments).output().expect("bcnet runs").into()
}

#[test]
fn live_capture_shows_the_same_as_a_file() {
    let directory = fake_dumpcap("live");
    let capture = pcapng(&session(), ETHERNET);
    let json = run_with_fake_dumpcap(&directory, &["inspect", "--interface", "whole", "--json"]);
    assert_eq!((json.code, json.stderr.as_str()), (0, ""));
    assert_eq!(datagrams(&json), datagrams(&inspect(&capture, &["--json"])));
    // Lines are printed, and a summary at the end. The packets can be written to a file.
    let kept = directory.join("kept.pcapng");
    let run = run_with_fake_dumpcap(
        &directory,
        &["inspect", "-i", "whole", "--write", kept.to_str().expect("UTF-8")],
    );
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let summary = inspect(&capture, &["--summary"]).stdout.replace("standard input", "whole");
    assert!(run.stdout.contains("connect request") && run.stdout.ends_with(&summary), "{}", run.stdout);
    assert!(fs::read(&kept).expect("kept") == capture);
}

#[test]
fn stopped_live_capture_prints_what_it_has() {
    let directory = fake_dumpcap("live-stopped");
    let program = Path::new(env!("CARGO_BIN_EXE_bcnet"));
    let mut child = command_with_fake_dumpcap(&directory, program, &["inspect", "-i", "open"])
        .spawn()
        .expect("bcnet starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("gamespy") {
        line.clear();
        assert!(lines.read_line(&mut line).expect("UTF-8") > 0, "the last datagram comes during the capture");
    }
    signal(child.id(), "INT");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("UTF-8");
    assert!(rest.contains("open: 24 packets in ") && rest.contains("faults, the worst first"), "{rest}");
    assert_eq!(crate::run::wait_with_output(child).status.code(), Some(0));
}

#[test]
fn capture_failure_is_reported() {
    let directory = fake_dumpcap("live-wrong");
    let run = run_with_fake_dumpcap(&directory, &["inspect", "-i", "eth0", "--summary"]);
    assert_eq!(run.code, 1);
    let message = "bcnet: eth0: dumpcap: You do not have permission to capture on device \"eth0\". (socket: Operation not permitted) Please check to make sure you have sufficient permissions. (the installation of Wireshark decides who may capture";
    assert!(run.stderr.starts_with(message) && run.stdout.contains("eth0: 0 packets"), "{}", run.stderr);
    assert!(!run.stderr.contains("Ubuntu") && run.stderr.lines().count() == 1, "{}", run.stderr);
    // The packets before the failure are shown and written.
    let kept = directory.join("kept.pcapng");
    let run = run_with_fake_dumpcap(
        &directory,
        &["inspect", "-i", "cut", "--json", "--write", kept.to_str().expect("UTF-8")],
    );
    assert_eq!((run.code, datagrams(&run).len()), (1, session().len() - 1), "{}", run.stderr);
    assert!(run.stderr.contains("bcnet: cut: damaged at byte "), "{}", run.stderr);
    assert!(run.stderr.contains("bcnet: cut: dumpcap: The interface went down.\n"), "{}", run.stderr);
    let again = inspect(&fs::read(&kept).expect("kept"), &["--json"]);
    assert_eq!((again.code, datagrams(&again).len()), (0, session().len() - 1), "{}", again.stderr);
    // Without dumpcap.
    let mut command = Command::new(env!("CARGO_BIN_EXE_bcnet"));
    let run = command.args(["inspect", "-i", "eth0"]).env("PATH", directory.join("none")).output();
    let run = ProcessOutput::from(run.expect("bcnet runs"));
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("dumpcap is not installed; install Wireshark"), "{}", run.stderr);
}

#[test]
fn extcap_link_lists_the_interface_to_wireshark() {
    let directory = fake_dumpcap("extcap");
    let link = directory.join("bcnet-extcap");
    symlink(env!("CARGO_BIN_EXE_bcnet"), &link).expect("a link");
    let ask = |arguments: &[&str]| {
        let run = ProcessOutput::from(
            command_with_fake_dumpcap(&directory, &link, arguments).output().expect("bcnet runs"),
        );
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{arguments:?}");
        run.stdout
    };
    let answer = ask(&["--extcap-interfaces", "--extcap-version=4.0"]);
    assert!(answer.contains("interface {value=bcnet-deciphered}{display=bcnet (deciphered)}\n"), "{answer}");
    let answer = ask(&["--extcap-interface", "bcnet-deciphered", "--extcap-dlts"]);
    assert!(answer.starts_with("dlt {number=101}"), "{answer}");
    let answer = ask(&["--extcap-interface", "bcnet-deciphered", "--extcap-config"]);
    assert!(answer.contains("value {arg=0}{value=whole}{display=As a whole}{default=false}\n"), "{answer}");
    let wrong =
        command_with_fake_dumpcap(&directory, &link, &["--extcap-interface", "eth7", "--extcap-dlts"])
            .output();
    assert_eq!(ProcessOutput::from(wrong.expect("bcnet runs")).code, 2);
}

#[test]
fn extcap_output_is_decrypted_and_both_readers_accept_it() {
    let directory = fake_dumpcap("deciphered");
    let out = directory.join("out.pcapng");
    fs::write(&out, b"").expect("an existing file in place of a pipe");
    let out_name = out.to_str().expect("UTF-8");
    let capture = ["extcap", "--capture", "--extcap-interface", "bcnet-deciphered", "--fifo", out_name];
    let filter = ["--extcap-capture-filter", "port 7", "--from", "filtered"];
    for from in [&["--from", "whole"][..], &filter] {
        let run = run_with_fake_dumpcap(&directory, &[&capture[..], from].concat());
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    }
    let bytes = fs::read(&out).expect("a capture");
    for packet in session().into_iter().filter(|packet| packet.bytes.first() != Some(&b'\\')) {
        let mut plain = packet.bytes.clone();
        cipher::decrypt(&mut plain);
        assert!(bytes.windows(plain.len()).any(|window| window == plain));
    }
    let expected = inspect(&pcapng(&session(), RAW), &["--json"]);
    let run = inspect(&bytes, &["--json"]);
    assert_eq!((run.code, message_count(&run)), (0, message_count(&expected)), "{}", run.stderr);
    assert!(run.stdout.contains(r#""comment":"stale ACK of connect"#), "{}", run.stdout);
    // The other reader is tshark.
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(std::env::var_os("REQUIRE_TSHARK").is_none(), "tshark is required but not installed");
        return;
    }
    let original = directory.join("original.pcapng");
    fs::write(&original, pcapng(&session(), RAW)).expect("written");
    let lua = format!("lua_script:{}", path("dissector/bcnet.lua").display());
    let [ours, theirs] = [&out, &original].map(|file| {
        let fields = ["bcnet.sender", "bcnet.type", "bcnet.seq", "bcnet.payload"].map(|field| ["-e", field]);
        let mut tshark = Command::new("tshark");
        tshark
            .arg("-r")
            .arg(file)
            .args(["-X", &lua, "-d", "udp.port==26000,bcnet", "-T", "fields"])
            .args(fields.as_flattened());
        let text = String::from_utf8(tshark.output().expect("tshark").stdout).expect("UTF-8");
        // tshark counts other blocks of the file as packets too.
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    });
    assert_eq!(ours, theirs);
    assert!(ours.lines().filter(|line| line.contains("0x32")).count() >= 8, "{ours}");
}

/// Datagrams are not held back there, so a late finding becomes a comment on a later packet and names its own packet.
#[test]
fn late_findings_are_commented_with_their_packet() {
    let directory = fake_dumpcap("deciphered-late");
    let capture = pcapng(&battle(60.0, 0.1), ETHERNET);
    fs::write(directory.join("whole"), &capture).expect("written");
    let out = directory.join("out.pcapng");
    fs::write(&out, b"").expect("an existing file in place of a pipe");
    let extcap =
        ["extcap", "--capture", "--extcap-interface", "bcnet-deciphered", "--from", "whole", "--fifo"];
    let run = run_with_fake_dumpcap(&directory, &[&extcap[..], &[out.to_str().expect("UTF-8")]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in inspect(&capture, &["--json"]).json().iter().filter(|line| line.get("finding").is_some()) {
        let text = line["text"].as_str().expect("words").to_owned();
        found.entry(line["packet"].as_u64().unwrap_or(0)).or_default().push(text);
    }
    let (mut in_time, mut late) = (0, 0);
    for datagram in datagrams(&inspect(&fs::read(&out).expect("a capture"), &["--json"])) {
        for comment in
            datagram["comment"].as_str().unwrap_or_default().split("; ").filter(|text| !text.is_empty())
        {
            let elsewhere = comment.strip_prefix("packet ").and_then(|rest| rest.split_once(", "));
            let (packet, text) = match elsewhere {
                Some((packet, rest)) => {
                    (packet.parse().expect("a number"), rest.split_once(": ").expect("who").1)
                }
                None => (datagram["packet"].as_u64().expect("a number"), comment),
            };
            if elsewhere.is_some() {
                late += 1
            } else {
                in_time += 1
            }
            let at = found.get(&packet).and_then(|texts| texts.iter().position(|known| known == text));
            let at = at.unwrap_or_else(|| panic!("packet {packet}: {comment}"));
            found.get_mut(&packet).expect("there").swap_remove(at);
        }
    }
    let open: usize = found.values().map(Vec::len).sum();
    assert!(
        in_time > 500 && late > 20 && open < 10,
        "{in_time} in time, {late} late, {open} open at the end: {found:?}"
    );
}

/// On a terminal (made by `script`) a live screen replaces the lines, and the summary replaces it at the end.
#[cfg(target_os = "linux")]
#[test]
fn terminal_shows_live_screen_then_summary() {
    let directory = fake_dumpcap("live-terminal");
    let command = format!("'{}' inspect -i whole", env!("CARGO_BIN_EXE_bcnet"));
    let script = Path::new("script");
    let run = command_with_fake_dumpcap(&directory, script, &["-qec", &command, "/dev/null"])
        .output()
        .expect("script of util-linux");
    let shown = String::from_utf8(run.stdout).expect("UTF-8");
    let pages: Vec<&str> = shown.split("\x1b[H").collect();
    assert!(
        pages[1].starts_with("whole  0:00:0") && pages[1].contains("1 conversation\x1b[K\r\nCtrl-C to stop"),
        "{shown:?}"
    );
    assert!(pages[1].contains("client (10.0.0.2:4711)"), "{shown:?}");
    assert!(pages[pages.len() - 1].contains("whole: 24 packets in "), "{shown:?}");
    assert!(!shown.contains("connect request"), "{shown:?}");
}
