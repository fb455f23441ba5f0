//! `bcnet manifest` with a player over loopback.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Stdio;

use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::BootReason;
use serde_json::json;

use crate::player::LoopbackPlayer;
use crate::server::{ServerProcess, TestDirectory};

#[test]
fn manifest_is_learned_from_the_first_player() {
    let directory = TestDirectory::new();
    let learn = ["manifest", "learn", "--bind", "127.0.0.1", "--port", "0", "--out", "good.manifest"];
    let mut child = directory.bcnet(&learn).stdout(Stdio::piped()).spawn().expect("bcnet runs");
    let mut lines =
        BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("UTF-8"));
    let ready = lines.next().expect("a line");
    let port = ready.strip_prefix("manifest ready port=").expect(&ready).parse().expect("a port");
    let mut player = LoopbackPlayer::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), "Kirk");
    player.run_until(|player| player.end.is_some());
    assert_eq!(lines.next().as_deref(), Some("good.manifest: written"));
    assert_eq!(crate::run::wait_with_output(child).status.code(), Some(0));

    let summary = directory.bcnet(&["manifest", "check", "good.manifest"]).output().expect("bcnet runs");
    let summary = String::from_utf8(summary.stdout).expect("UTF-8");
    assert!(
        summary.starts_with("good.manifest: good: 5 rounds, ") && summary.lines().count() == 1,
        "{summary}"
    );
    let checked =
        directory.bcnet(&["manifest", "check", "--all", "good.manifest"]).output().expect("bcnet runs");
    let text = String::from_utf8(checked.stdout).expect("UTF-8");
    assert_eq!(checked.status.code(), Some(0));
    assert!(
        text.contains("name good\n") && text.contains("round 0\nversion 04030201\ndirectory 08070605\n"),
        "{text}"
    );
    assert_eq!(text.lines().filter(|line| line.starts_with("round ")).count(), 5);

    let again = directory.bcnet(&learn).output().expect("bcnet runs");
    let error = String::from_utf8(again.stderr).expect("UTF-8");
    assert_eq!((again.status.code(), error.lines().count()), (Some(2), 1));
    assert!(error.contains("good.manifest: the file exists already"), "{error}");

    // The output path is checked before a player joins.
    for out in ["absent/x.manifest", "."] {
        let output = directory
            .bcnet(&["manifest", "learn", "--bind", "127.0.0.1", "--port", "0", "--out", out])
            .output()
            .expect("bcnet runs");
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(output.stdout.is_empty() && error.starts_with(&format!("bcnet: {out}: ")), "{error}");
    }
}

#[test]
fn invalid_manifest_is_reported_with_its_line() {
    let directory = TestDirectory::new();
    let check = |text: &str| {
        fs::write(directory.path("x.manifest"), text).expect("written");
        let output = directory.bcnet(&["manifest", "check", "x.manifest"]).output().expect("bcnet runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (code, error) = check("bcnet-manifest 1\nround 0\ndirectory 12\n");
    assert_eq!(code, Some(1));
    assert!(error.starts_with("bcnet: x.manifest: line 3: "), "{error}");
    let (code, error) = check("bcnet-manifest 1\nround 0\ndirectory 12345678\n");
    assert!(code == Some(1) && error.contains("x.manifest: rounds 1, 2, 3, 4 missing"), "{error}");
    let output = directory.bcnet(&["manifest", "check", "absent"]).output().expect("bcnet runs");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn server_with_invalid_manifest_does_not_start() {
    let directory = TestDirectory::new();
    fs::write(
        directory.path("bcnet.toml"),
        "[[session]]\nchecksums = \"strict\"\nmanifests = [\"x.manifest\"]\n",
    )
    .expect("written");
    let run = |args: &[&str]| {
        let output = directory.bcnet(args).output().expect("bcnet runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("UTF-8"))
    };
    // The default port may be in use, which would be a second line.
    let serve = ["serve", "--bind", "127.0.0.1", "--set", "log.level=error"];
    for (args, code, prefix) in
        [(&serve[..], 2, "bcnet: x.manifest: "), (&["config", "check"], 1, "x.manifest: ")]
    {
        let (ended, text) = run(args);
        assert_eq!(ended, Some(code), "{text}");
        assert!(
            text.starts_with(prefix) && text.ends_with("(os error 2)\n") && text.lines().count() == 1,
            "{text}"
        );
    }
    fs::write(directory.path("x.manifest"), "nonsense\n").expect("written");
    let problem = "x.manifest: line 1: the first line must be `bcnet-manifest 1`\n";
    assert_eq!(run(&serve), (Some(2), format!("bcnet: {problem}")));
    assert_eq!(run(&["config", "check"]), (Some(1), problem.into()));
    // A manifest without all rounds matches no player.
    let rounds: String = (0..4).map(|round| format!("round {round}\ndirectory 08070605\n")).collect();
    fs::write(directory.path("x.manifest"), format!("bcnet-manifest 1\n{rounds}")).expect("written");
    let problem =
        "x.manifest: round 4 missing, so no player can match; record it again with `bcnet manifest learn`\n";
    assert_eq!(run(&serve), (Some(2), format!("bcnet: {problem}")));
    assert_eq!(run(&["config", "check"]), (Some(1), problem.into()));
}

#[test]
fn strict_server_admits_equal_files_and_names_the_difference() {
    let directory = TestDirectory::new();
    let rounds: String = (1..5).map(|round| format!("round {round}\ndirectory 08070605\n")).collect();
    let manifest = |version: &str| {
        format!("bcnet-manifest 1\nname good\nround 0\nversion {version}\ndirectory 08070605\n{rounds}")
    };
    let file = directory.path("good.manifest");
    fs::write(&file, manifest("04030201")).expect("written");
    // More players join from one address than a stranger may.
    let settings =
        ["session.checksums=strict", "session.manifests=good.manifest", "session.trusted=127.0.0.0/8"];
    let server = ServerProcess::start_in(directory, &settings.map(|setting| ["--set", setting]).concat(), 1);
    LoopbackPlayer::join(server.address(), "Kirk");
    fs::write(&file, manifest("04030202")).expect("written");
    server.ctl_json(&["reload"]);
    let mut player = LoopbackPlayer::connect(server.address(), "Khan");
    assert_eq!(player.run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
    assert!(player.has_received(&[0x22]));
    server.wait_for_log(&["event=\"checksum_mismatch\"", "player=\"Khan\"", "round 0"]);

    // `status` shows the latest mismatches first.
    let address = player.socket.local_addr().expect("bound").to_string();
    let status = server.ctl_json(&["status"]);
    let mut shown = status["sessions"][0]["mismatches"][0].clone();
    shown.as_object_mut().expect("an object").remove("ago_s").expect("a time");
    let expected = json!({
        "session": "bcnet", "name": "Khan", "address": address,
        "round": 0, "entry": "04030201", "difference": "other version",
    });
    assert_eq!(shown, expected);
    let text = String::from_utf8(server.directory.ctl(&["status"]).stdout).expect("UTF-8");
    let (_, table) = text.split_once("\nfiles did not match:\n").expect(&text);
    let cells: Vec<_> = table.lines().nth(1).expect("a line").split_whitespace().collect();
    assert_eq!(cells[..7], ["bcnet", "Khan", &address, "0", "04030201", "other", "version"]);
    for n in 0..16 {
        assert_eq!(
            LoopbackPlayer::connect(server.address(), &format!("Khan {n}")).run_until_end(),
            DisconnectReason::Booted(BootReason::KICKED)
        );
    }
    let status = server.ctl_json(&["status"]);
    let names: Vec<_> = status["sessions"][0]["mismatches"].as_array().expect("a list").iter().collect();
    assert_eq!(
        (names.len(), &names[0]["name"], &names[15]["name"]),
        (16, &json!("Khan 15"), &json!("Khan 0"))
    );
}
