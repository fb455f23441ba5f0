//! Operator commands to a running server, with `bcnet ctl` and over its standard input.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::BootReason;
use serde_json::{Value, json};

use crate::player::{LoopbackPlayer, join_two, run_both_until};
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory, spawn_line_reader, wait_until};

fn refusal(server: &ServerProcess, args: &[&str]) -> String {
    let output = server.directory.ctl(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn two_sessions() -> ServerProcess {
    let directory = TestDirectory::new();
    let file = "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\n";
    fs::write(directory.path("bcnet.toml"), file).expect("written");
    ServerProcess::start_in(directory, &[], 2)
}

#[test]
fn kicked_player_receives_the_reason() {
    let server = ServerProcess::start(&[]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let reason = alice.chat_payload("[server] no ramming, please");
    server.ctl_json(&["kick", "Alice", "--reason", "no ramming, please", "--by", "Picard"]);
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
    assert!(alice.has_received(&reason), "the player gets the reason");
    server.wait_for_log(&["event=\"kicked\"", "reason=\"no ramming, please\""]);
    server.wait_for_log(&["event=\"command\"", "by=\"Picard\"", "kick Alice no ramming, please"]);
}

#[test]
fn muted_player_chat_is_not_relayed_until_unmuted() {
    let server = ServerProcess::start(&[]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    assert_eq!(server.ctl_json(&["mute", "Alice"])["done"], "muted Alice");
    let notice = alice.chat_payload("[server] You are muted: other players do not see your chat.");
    let [secret, word] = ["secret", "word"].map(|text| alice.chat_payload(text));
    alice.chat("secret");
    alice.run_until(|alice| alice.has_received(&notice));
    let players = server.ctl_json(&["players"]);
    assert_eq!(players["players"][0]["state"], "in game, muted");
    assert_eq!(server.ctl_json(&["unmute", "alice"])["done"], "unmuted Alice");
    assert!(refusal(&server, &["unmute", "Alice"]).contains("Alice is not muted"));
    alice.chat("word");
    run_both_until(&mut alice, &mut bob, |player| player.has_received(&word));
    assert!(!bob.has_received(&secret) && !alice.has_received(&secret));
}

#[test]
fn set_validates_applies_and_reports_when_it_takes_effect() {
    let server = two_sessions();
    let done = server.ctl_json(&["--session", "Two", "set", "welcome", "Ahoy"]);
    assert_eq!(done["effect"], "now");
    let settings = server.ctl_json(&["get", "welcome"])["settings"].clone();
    let values: Vec<_> = settings.as_array().expect("a list").iter().map(|row| &row["value"]).collect();
    assert_eq!(values, ["\"\"", "\"Ahoy\""]);
    let output = server.directory.ctl(&["get", "player_limt"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("`player_limt`") && error.contains("did you mean `player_limit`?"), "{error}");
    let two = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, server.ports[1]);
    let mut alice = LoopbackPlayer::join(two, "Alice");
    let welcome = alice.chat_payload("[server] Ahoy");
    alice.run_until(|alice| alice.has_received(&welcome));
    assert_eq!(server.ctl_json(&["set", "session.system", "Multi3"])["effect"], "next_round");
    assert_eq!(server.ctl_json(&["set", "session.1.mission", "TDM"])["effect"], "empty");
    for (args, part) in [
        (
            &["set", "player_limit", "99"][..],
            "bcnet: session.1.player_limit: expected a number from 1 to 16, not 99; ",
        ),
        (&["set", "welcom", "x"], "session.1.welcom: unknown key; did you mean `session.1.welcome`?"),
        (&["set", "server.bind", "127.0.0.1"], "cannot change while the server runs"),
        (&["set", "session.1.silence_timeout", "1s"], "cannot change while the server runs"),
        (&["--session", "Two", "set", "server.cpu_budget", "20"], "not a setting of a session"),
    ] {
        let error = refusal(&server, args);
        assert!(error.contains(part), "{args:?}: {error}");
    }
    // No output shows the password.
    let answer = server.ctl_json(&["set", "session.password", "Enterprise"]);
    let everywhere =
        [answer, server.ctl_json(&["get"]), server.ctl_json(&["history"]), server.ctl_json(&["events"])];
    assert!(everywhere.iter().all(|answer| !answer.to_string().contains("Enterprise")), "{everywhere:?}");
    // A reload restores the values in the file.
    server.ctl_json(&["reload"]);
    assert_eq!(server.ctl_json(&["get", "session.2.welcome"])["settings"][0]["value"], "\"\"");
}

/// Comments in the file are kept, and a file with an error is not changed.
#[test]
fn saved_settings_survive_a_restart() {
    let directory = TestDirectory::new();
    let before = "# ours\n[[session]]\nname = \"One\" # first\nwelcome = \"Hello\"\n";
    fs::write(directory.path("bcnet.toml"), before).expect("written");
    let server = ServerProcess::start_in(directory, &[], 1);
    let text =
        |server: &ServerProcess| fs::read_to_string(server.directory.path("bcnet.toml")).expect("a file");
    server.ctl_json(&["set", "session.welcome", "only now"]);
    assert_eq!(text(&server), before, "nothing is written without --save");
    let done = server.ctl_json(&["set", "session.welcome", "Ahoy", "--save"]);
    assert_eq!(done["kept"], json!(["bcnet.toml, line 4"]), "{done}");
    assert_eq!(text(&server), before.replace("Hello", "Ahoy"));
    let listed = server.directory.ctl(&["whitelist", "--add", "127.0.0.0/8", "--save"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.ends_with("saved in bcnet.toml, line 5\n"), "{listed}");
    // A reload changes nothing now.
    server.ctl_json(&["reload"]);
    assert_eq!(server.ctl_json(&["get", "welcome"])["settings"][0]["value"], "\"Ahoy\"");
    let broken = text(&server).replace("welcome =", "welcme =");
    fs::write(server.directory.path("bcnet.toml"), &broken).expect("written");
    let error = refusal(&server, &["set", "session.welcome", "lost", "--save"]);
    let problem =
        "bcnet.toml: line 4: session.1.welcme: unknown key; did you mean `welcome`?; nothing was changed";
    assert!(error.contains(problem), "{error}");
    assert_eq!(
        (text(&server), server.ctl_json(&["get", "welcome"])["settings"][0]["value"].clone()),
        (broken, json!("\"Ahoy\""))
    );
    assert!(server.ctl_json(&["history", "save"])["history"].as_array().is_some_and(|rows| rows.len() == 3));
    // A restart uses the corrected file.
    fs::write(server.directory.path("bcnet.toml"), text(&server).replace("welcme", "welcome"))
        .expect("written");
    server.stop();
    let (_, directory) = server.wait_for_exit();
    let server = ServerProcess::start_in(directory, &[], 1);
    assert_eq!(server.ctl_json(&["get", "session.1.welcome"])["settings"][0]["value"], "\"Ahoy\"");
    assert_eq!(server.ctl_json(&["whitelist"])["whitelist"][0]["network"], "127.0.0.0/8");
    // Without a configuration file, --save is refused.
    let server = ServerProcess::start(&[]);
    assert!(
        refusal(&server, &["set", "session.welcome", "x", "--save"])
            .contains("there is no configuration file")
    );
}

#[test]
fn log_level_can_be_raised_at_run_time() {
    let server = ServerProcess::start(&[]);
    server.ctl_json(&["set", "log.level", "error"]);
    assert_eq!(server.ctl_json(&["say", "unheard"])["done"], "sent to 1 session");
    server.ctl_json(&["set", "log.level", "info"]);
    server.ctl_json(&["say", "heard"]);
    let line = server.wait_for_log(&["event=\"say\""]);
    assert!(line.contains("text=\"heard\""), "{line}");
}

#[test]
fn whitelist_refuses_unlisted_addresses() {
    let directory = TestDirectory::new();
    fs::write(directory.path("bcnet.toml"), "[[session]]\ntrusted = []\nwhitelist = [\"192.0.2.0/24\"]\n")
        .expect("written");
    let server = ServerProcess::start_in(directory, &[], 1);
    let mut alice = LoopbackPlayer::connect(server.address(), "Alice");
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::DEFAULT));
    let listed = server.ctl_json(&["whitelist", "--add", "127.0.0.0/8"]);
    let networks: Vec<_> =
        listed["whitelist"].as_array().expect("a list").iter().map(|one| &one["network"]).collect();
    assert_eq!(networks, ["192.0.2.0/24", "127.0.0.0/8"]);
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    // A player can be named instead of an address. Players who are already in the game stay.
    server.ctl_json(&["whitelist", "--add", "Alice"]);
    let listed = server.ctl_json(&["whitelist", "--remove", "127.0.0.0/8"]);
    assert_eq!(listed["whitelist"][1]["network"], "127.0.0.1");
    assert_eq!(server.ctl_json(&["status"])["sessions"][0]["players"], 1);
    assert!(refusal(&server, &["whitelist", "--add", "10.0.0.1/8"]).contains("did you mean"));
    // The entry must match exactly: 127.0.0.1 is on the list, its network is not any more.
    for target in ["127.0.0.0/8", "192.0.2.1"] {
        let error = refusal(&server, &["whitelist", "--remove", target]);
        assert!(error.contains(&format!("the whitelist has no entry {target};")), "{error}");
    }
    let error = refusal(&server, &["whitelist", "--remove", "192.0.2.1", "--save"]);
    assert!(error.contains("to save the list unchanged, leave out --remove"), "{error}");
    server.ctl_json(&["whitelist", "--remove", "Alice"]);
    assert!(refusal(&server, &["whitelist", "--remove", "Alice"]).contains("no entry 127.0.0.1;"));
}

#[test]
fn session_is_stopped_and_started_while_the_other_runs() {
    let server = two_sessions();
    let address = |at: usize| std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, server.ports[at]);
    let mut alice = LoopbackPlayer::join(address(0), "Alice");
    let mut bob = LoopbackPlayer::join(address(1), "Bob");
    let done = server.ctl_json(&["--session", "Two", "stop"]);
    assert_eq!(done["done"], "stopped 1 session; `bcnet ctl start` opens the game again");
    assert_eq!(bob.run_until_end(), DisconnectReason::HostLeft, "Bob gets the disconnect notice");
    server.wait_for_log(&["event=\"session_stopped\""]);
    server.wait_for_log(&["event=\"left\"", "player=\"Bob\"", "reason=\"this game was closed\""]);
    let states = |server: &ServerProcess| -> Vec<Value> {
        let sessions = server.ctl_json(&["status"])["sessions"].clone();
        sessions.as_array().expect("a list").iter().map(|one| one["state"].clone()).collect()
    };
    // Bob's ACK of the disconnect notice may not have arrived yet.
    wait_until("session Two is stopped", || states(&server) != ["open", "stopping"]);
    assert_eq!(states(&server), ["open", "stopped"]);
    assert!(refusal(&server, &["--session", "Two", "stop"]).contains("already stopped"));
    assert!(refusal(&server, &["--session", "One", "start"]).contains("no session is stopped"));
    let line = alice.chat_payload("still here");
    alice.chat("still here");
    alice.run_until(|alice| alice.has_received(&line));
    // A reload does not start a stopped session.
    server.ctl_json(&["reload"]);
    assert_eq!(states(&server), ["open", "stopped"]);
    assert_eq!(server.ctl_json(&["start"])["done"], "1 session is open");
    let _bob = LoopbackPlayer::join(address(1), "Bob");
    assert_eq!(states(&server), ["open", "open"]);
}

#[test]
fn history_with_authors_survives_a_restart() {
    let server = ServerProcess::start(&[]);
    server.ctl_json(&["ban", "192.0.2.7", "--by", "Picard"]);
    server.ctl_json(&["unban", "192.0.2.7", "--by", "Riker"]);
    refusal(&server, &["kick", "Nobody", "--by", "Worf"]);
    server.ctl_json(&["players"]);
    server.stop();
    let (_, directory) = server.wait_for_exit();
    let server = ServerProcess::start_in(directory, &[], 1);
    let history = server.ctl_json(&["history"])["history"].clone();
    // On Windows the test stops the server with a command, which is in the history too.
    let rows = history.as_array().expect("a list").iter().map(|row| [&row["by"], &row["what"]]);
    let rows: Vec<_> = rows.filter(|[_, what]| **what != "stop").collect();
    assert_eq!(
        rows,
        [
            [&json!("Picard"), &json!("ban 192.0.2.7")],
            [&json!("Riker"), &json!("unban 192.0.2.7")],
            [&json!("Worf"), &json!("kick Nobody")]
        ]
    );
    let found = server.ctl_json(&["history", "RIKER"])["history"].clone();
    assert_eq!(found[0]["outcome"], "unbanned 192.0.2.7");
    assert!(server.directory.path("history.jsonl").exists());
}

/// Without environment variables for the user name, as in cron and containers, the user id is the author.
#[cfg(unix)]
#[test]
fn command_author_falls_back_to_the_user_id() {
    let server = ServerProcess::start(&[]);
    let mut restart = server.directory.bcnet(&["ctl", "restart"]);
    for name in ["SUDO_USER", "USER", "LOGNAME", "USERNAME"] {
        restart.env_remove(name);
    }
    assert!(restart.output().expect("runs").status.success());
    let by = server.ctl_json(&["history"])["history"][0]["by"].clone();
    assert!(by.as_str().is_some_and(|by| by.starts_with("user ")), "{by}");
    server.wait_for_log(&["event=\"command\"", "by=\"user ", "what=\"restart\""]);
}

#[test]
fn follow_prints_events_as_they_arrive() {
    let server = ServerProcess::start(&[]);
    let last = server.ctl_json(&["events"])["events"].clone();
    assert!(last.as_array().expect("a list").iter().any(|event| event["event"] == "started"), "{last}");
    let mut follower = server.directory.bcnet(&["ctl", "events", "--follow", "--count", "0"]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().expect("runs");
    let events = spawn_line_reader(follower.stdout.take().expect("piped"));
    // The follower is connected when it has printed an event.
    let first = (0..100).find_map(|n| {
        server.ctl_json(&["say", &format!("line {n}")]);
        events.recv_timeout(TEST_TIMEOUT / 50).ok()
    });
    let event: Value = serde_json::from_str(&first.expect("an event")).expect("JSON");
    assert!(event["event"] == "say" || event["event"] == "command", "{event}");
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    loop {
        let line = events.recv_timeout(TEST_TIMEOUT).expect("an event");
        let event: Value = serde_json::from_str(&line).expect("JSON");
        if event["event"] == "in_game" {
            break assert_eq!(event["player"], "Alice");
        }
    }
    server.stop();
    assert_eq!(
        crate::run::wait_with_output(follower).status.code(),
        Some(0),
        "the follower ends with the server"
    );
}

#[test]
fn standard_input_accepts_console_commands() {
    let directory = TestDirectory::new();
    let mut server = directory.bcnet(&["serve", "--console", "--bind", "127.0.0.1", "--name", "Panel"]);
    let server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.spawn().expect("runs");
    let output = spawn_line_reader(server.stdout.take().expect("piped"));
    let mut input = server.stdin.take().expect("piped");
    let next = || output.recv_timeout(TEST_TIMEOUT).expect("a line");
    assert!(next().starts_with("server ready port="));
    let too_long = "say all of it ".repeat(5_000);
    for (line, answer) in [
        ("players", "no players"),
        ("", ""),
        ("say don't panic", "sent to 1 session"),
        ("kick Bob", "no player Bob; `bcnet ctl players` lists all players"),
        ("fly", "unrecognized subcommand 'fly'; `help` lists the commands"),
        (&too_long, "line ignored: a command must be shorter than 16 KiB"),
        ("history kick", "TIME"),
    ] {
        writeln!(input, "{line}").expect("written");
        if !answer.is_empty() {
            let printed = next();
            assert!(printed.starts_with(answer), "{line}: {printed}");
        }
    }
    assert!(next().contains("console"));
    writeln!(input, "stop").expect("written");
    assert!(next().starts_with("the server disconnects all players and stops"));
    assert_eq!(crate::run::wait_with_output(server).status.code(), Some(0));
}

#[test]
fn console_without_terminal_points_to_json_output() {
    let server = ServerProcess::start(&[]);
    let mut top = server.directory.bcnet(&["top"]);
    let output = top.stdin(Stdio::null()).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
    assert!(error.lines().count() == 1 && error.contains("`bcnet ctl players --json`"), "{error}");
}
