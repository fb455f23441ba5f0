//! Mistakes of operators that must not harm players or other servers.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::BootReason;

use crate::player::{LoopbackPlayer, join_two};
use crate::server::{ServerProcess, TestDirectory};

/// Asserts that a command was refused. Returns the error.
fn refusal(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    error
}

fn stdout_text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ctl_does_not_contact_another_server() {
    let other = ServerProcess::start(&["--name", "Other"]);
    let directory = TestDirectory::new();
    fs::create_dir(directory.path("here")).expect("a directory");
    fs::write(directory.path("here/bcnet.toml"), "[server]\ncontrol = \"./bcnet.sock\"\n").expect("written");
    for (place, config) in [("here", "bcnet.toml"), (".", "here/bcnet.toml")] {
        let mut stop = directory.bcnet(&["ctl", "stop", "--config", config]);
        stop.env("XDG_RUNTIME_DIR", &other.directory.0).current_dir(directory.path(place));
        let output = stop.output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains("no server listens at "), "{error}");
    }
    // The answer to `stop` names the server.
    let (port, socket) = (other.ports[0], other.directory.path("bcnet.sock"));
    let status = stdout_text(&other.directory.ctl(&["status"]));
    assert!(
        status.lines().next().is_some_and(|head| head.ends_with(&format!("socket {}", socket.display()))),
        "{status}"
    );
    let stopped = stdout_text(&other.directory.ctl(&["stop"]));
    let expected =
        format!("the server disconnects all players and stops (Other, port {port}; {})\n", socket.display());
    assert_eq!(stopped, expected);
    assert_eq!(other.wait_for_exit().0.code(), Some(0));
}

/// In Kubernetes a service named bcnet sets variables with the prefix of the settings.
#[test]
fn foreign_variables_are_ignored_and_logged() {
    let variables = [("BCNET_PORT", "udp://10.0.0.1:22101"), ("BCNET_SERVICE_HOST", "10.0.0.1")];
    let server = ServerProcess::start_with(TestDirectory::new(), &[], 1, &variables);
    server.wait_for_log(&["event=\"unknown_variables\"", "variables=\"BCNET_PORT, BCNET_SERVICE_HOST\""]);
}

/// Without its file the server would lose its password.
#[test]
fn reload_fails_if_the_configuration_is_missing() {
    let directory = TestDirectory::new();
    let [file, moved] = ["bcnet.toml", "moved.toml"].map(|name| directory.path(name));
    let server = ServerProcess::start_in(directory, &[], 1);
    // The file is new since the start; from now on it is required.
    fs::write(&file, "[[session]]\npassword = \"secret\"\n").expect("written");
    assert_eq!(server.ctl_json(&["reload"])["done"], "reloaded");
    fs::rename(&file, &moved).expect("moved");
    let error = refusal(&server.directory.ctl(&["reload"]));
    assert!(
        error.contains("bcnet.toml: ")
            && error.contains("(os error 2)")
            && error.contains("nothing was changed"),
        "{error}"
    );
    server.reload();
    server.wait_for_log(&["event=\"reload_failed\"", "bcnet.toml: ", "(os error 2)"]);
    let mut alice = LoopbackPlayer::connect(server.address(), "Alice");
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::WRONG_PASSWORD));
    fs::rename(&moved, &file).expect("moved");
    assert_eq!(server.ctl_json(&["reload"])["done"], "reloaded");
}

#[test]
fn server_wide_commands_refuse_a_session() {
    let directory = TestDirectory::new();
    fs::write(directory.path("bcnet.toml"), "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\n")
        .expect("written");
    let server = ServerProcess::start_in(directory, &[], 2);
    server.ctl_json(&["ban", "192.0.2.1"]);
    for args in [&["reload"][..], &["bans"], &["unban", "192.0.2.1"], &["history"]] {
        let error = refusal(&server.directory.ctl(&[&["--session", "Two"], args].concat()));
        let expected = format!("bcnet: `{}` applies to the whole server; leave out the session\n", args[0]);
        assert_eq!(error, expected);
    }
    assert_eq!(server.ctl_json(&["bans"])["bans"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.ctl_json(&["status"])["sessions"].as_array().map(Vec::len), Some(2));
}

/// Players behind one router share an address.
#[test]
fn ban_of_a_shared_address_needs_confirmation() {
    let server = ServerProcess::start(&[]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let error = refusal(&server.directory.ctl(&["ban", "#2"]));
    assert_eq!(
        error,
        "bcnet: Alice shares the address 127.0.0.1 with Bob; a ban removes all of them; \
         add --yes to ban the address, or kick only Alice\n"
    );
    let line = bob.chat_payload("still here");
    bob.chat("still here");
    bob.run_until(|bob| bob.has_received(&line));
    alice.run_until(|alice| alice.has_received(&line));
    assert_eq!(server.ctl_json(&["bans"])["bans"].as_array().map(Vec::len), Some(0));

    let answer = server.ctl_json(&["ban", "Alice", "--yes", "--by", "Picard", "--expiry", "never"]);
    assert_eq!(answer["out"], serde_json::json!(["Alice", "Bob"]));
    let done = answer["done"].as_str().expect("text");
    assert!(
        done.starts_with("banned 127.0.0.1 (Alice) since ")
            && done.ends_with(" by Picard; removed: Alice, Bob"),
        "{done}"
    );
    for player in [&mut alice, &mut bob] {
        assert_eq!(player.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    }
    server.wait_for_log(&["event=\"banned\"", "player=\"Alice\"", "out=\"Alice, Bob\""]);
    let ban = &server.ctl_json(&["search", "ALICE"])["bans"][0];
    assert_eq!([&ban["player"], &ban["by"], &ban["network"]], ["Alice", "Picard", "127.0.0.1"]);
}

/// The regular housekeeping interval is a minute, longer than the test waits.
#[test]
fn short_ban_expires_on_time() {
    let server = ServerProcess::start(&[]);
    server.ctl_json(&["ban", "127.0.0.1", "--expiry", "1s"]);
    server.wait_for_log(&["event=\"ban_ended\"", "network=127.0.0.1"]);
    LoopbackPlayer::join(server.address(), "Alice");
}

#[cfg(unix)]
#[test]
fn sigusr1_prints_the_queues() {
    let server = ServerProcess::start(&["--name", "Friday"]);
    server.signal("USR1");
    assert_eq!(server.wait_for_output(), "no players");
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    server.signal("USR1");
    assert_eq!(server.wait_for_output(), format!("Friday, port {}:", server.ports[0]));
    assert!(server.wait_for_output().starts_with("peer=2 retxQ="));
    server.ctl_json(&["status"]);
}

/// The working directory does not change the path of the bans.
#[test]
fn ban_file_is_beside_the_configuration_and_logged() {
    let directory = TestDirectory::new();
    fs::create_dir(directory.path("etc")).expect("a directory");
    fs::write(directory.path("etc/bcnet.toml"), "").expect("written");
    fs::write(directory.path("etc/bans.toml"), "[[ban]]\naddress = \"127.0.0.1\"\n").expect("written");
    let server = ServerProcess::start_in(directory, &["--config", "etc/bcnet.toml"], 1);
    let [config, bans, socket] = [&["etc", "bcnet.toml"][..], &["etc", "bans.toml"], &["bcnet.sock"]]
        .map(|parts| server.directory.0.join(parts.iter().collect::<PathBuf>()).display().to_string());
    let named = [("config", &config), ("bans", &bans), ("control", &socket)]
        .map(|(key, path)| format!("{key}={path:?}"));
    server.wait_for_log(&["event=\"started\"", &named[0], &named[1], &named[2]]);
    let mut alice = LoopbackPlayer::connect(server.address(), "Alice");
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    server.ctl_json(&["ban", "192.0.2.1"]);
    assert!(fs::read_to_string(bans).expect("a file").contains("192.0.2.1"));
    assert!(!server.directory.path("bans.toml").exists());
}

/// A directory has the name of the new file, so not even root can write it.
#[test]
fn unwritable_ban_file_is_logged_and_bans_apply() {
    let directory = TestDirectory::new();
    fs::create_dir(directory.path("bans.toml.new")).expect("a directory");
    let server = ServerProcess::start_in(directory, &[], 1);
    server.wait_for_log(&["event=\"bans_not_kept\"", "bans.toml"]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let error = refusal(&server.directory.ctl(&["ban", "Alice"]));
    assert!(error.starts_with("bcnet: banned 127.0.0.1 (Alice)"), "{error}");
    assert!(
        error.contains("in force, but not in the file of bans") && error.contains("bans.toml"),
        "{error}"
    );
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    assert_eq!(server.ctl_json(&["bans"])["bans"].as_array().map(Vec::len), Some(1));
    fs::remove_dir(server.directory.path("bans.toml.new")).expect("removed");
    server.ctl_json(&["reload"]);
    server.wait_for_log(&["event=\"bans_kept\""]);
    assert!(fs::read_to_string(server.directory.path("bans.toml")).expect("a file").contains("127.0.0.1"));
}

/// The new file is on a full disk, once.
#[cfg(unix)]
#[test]
fn ban_applies_on_a_full_disk() {
    let server = ServerProcess::start(&[]);
    std::os::unix::fs::symlink("/dev/full", server.directory.path("bans.toml.new")).expect("linked");
    let error = refusal(&server.directory.ctl(&["ban", "127.0.0.1"]));
    assert!(error.contains("No space left on device"), "{error}");
    let mut alice = LoopbackPlayer::connect(server.address(), "Alice");
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    server.ctl_json(&["reload"]);
    server.wait_for_log(&["event=\"bans_kept\""]);
    assert!(fs::read_to_string(server.directory.path("bans.toml")).expect("a file").contains("127.0.0.1"));
}

#[test]
fn unreadable_ban_file_is_never_overwritten() {
    let server = ServerProcess::start(&[]);
    let file = server.directory.path("bans.toml");
    let broken = "# mine\n[[ban]]\naddress = \"192.0.2.0/24\"\nresaon = \"ramming\"\n";
    fs::write(&file, broken).expect("written");
    let problem = "line 4: ban.1.resaon: unknown key; did you mean `reason`?";
    assert!(refusal(&server.directory.ctl(&["reload"])).contains(problem));
    assert!(refusal(&server.directory.ctl(&["ban", "198.51.100.7"])).contains(problem));
    assert_eq!(fs::read_to_string(&file).expect("a file"), broken);
    fs::write(&file, broken.replace("resaon", "reason")).expect("written");
    server.ctl_json(&["reload"]);
    server.wait_for_log(&["event=\"bans_kept\""]);
    let bans = server.ctl_json(&["bans"]);
    let networks: Vec<_> =
        bans["bans"].as_array().expect("a list").iter().map(|ban| &ban["network"]).collect();
    assert_eq!(networks, ["192.0.2.0/24", "198.51.100.7"]);
}
