//! What the people of a host do to a running server, by `bcnet ctl` and by its standard input.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use bcnet_session::client::End;
use bcnet_transport::wire::BootReason;
use serde_json::{Value, json};

use crate::player::{Player, join_two, together};
use crate::server::{Directory, PATIENCE, Server, lines};

fn refusal(server: &Server, args: &[&str]) -> String {
    let output = server.directory.ctl(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn two_sessions() -> Server {
    let directory = Directory::new();
    let file = "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\n";
    fs::write(directory.path("bcnet.toml"), file).expect("written");
    Server::start_in(directory, &[], 2)
}

#[test]
fn a_player_who_is_kicked_for_a_reason_has_read_it() {
    let server = Server::start(&[]);
    let mut alice = Player::join(server.address(), "Alice");
    let told = alice.chat_of("[server] no ramming, please");
    server.ask(&["kick", "Alice", "--reason", "no ramming, please", "--by", "Picard"]);
    assert_eq!(alice.until_over(), End::Booted(BootReason::KICKED));
    assert!(alice.has(&told), "it reads why");
    server.logged(&["event=\"kicked\"", "reason=\"no ramming, please\""]);
    server.logged(&["event=\"command\"", "by=\"Picard\"", "kick Alice no ramming, please"]);
}

#[test]
fn a_muted_player_is_heard_by_nobody_until_it_is_unmuted() {
    let server = Server::start(&[]);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    assert_eq!(server.ask(&["mute", "Alice"])["done"], "nobody hears Alice");
    let told = alice.chat_of("[server] You are muted: nobody reads what you write.");
    let [secret, word] = ["secret", "word"].map(|text| alice.chat_of(text));
    alice.chat("secret");
    alice.until(|alice| alice.has(&told));
    let players = server.ask(&["players"]);
    assert_eq!(players["players"][0]["state"], "in game, muted");
    assert_eq!(server.ask(&["unmute", "alice"])["done"], "Alice is heard again");
    assert!(refusal(&server, &["unmute", "Alice"]).contains("Alice is not muted"));
    alice.chat("word");
    together(&mut alice, &mut bob, |player| player.has(&word));
    assert!(!bob.has(&secret) && !alice.has(&secret));
}

#[test]
fn a_setting_is_checked_takes_effect_and_tells_when() {
    let server = two_sessions();
    let done = server.ask(&["--session", "Two", "set", "welcome", "Ahoy"]);
    assert_eq!(done["effect"], "now");
    let settings = server.ask(&["get", "welcome"])["settings"].clone();
    let values: Vec<_> = settings.as_array().expect("a list").iter().map(|row| &row["value"]).collect();
    assert_eq!(values, ["\"\"", "\"Ahoy\""]);
    let two = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, server.ports[1]);
    let mut alice = Player::join(two, "Alice");
    let welcome = alice.chat_of("[server] Ahoy");
    alice.until(|alice| alice.has(&welcome));
    assert_eq!(server.ask(&["set", "session.system", "Multi3"])["effect"], "next_round");
    assert_eq!(server.ask(&["set", "session.1.mission", "TDM"])["effect"], "empty");
    for (args, part) in [
        (
            &["set", "player_limit", "99"][..],
            "bcnet: session.1.player_limit: expected a number from 1 to 16, not 99; ",
        ),
        (&["set", "welcom", "x"], "session.1.welcom: unknown key; did you mean `session.1.welcome`?"),
        (&["set", "server.bind", "127.0.0.1"], "is fixed while the server runs"),
        (&["set", "session.1.silence_timeout", "1s"], "is fixed while the server runs"),
        (&["--session", "Two", "set", "server.cpu_budget", "20"], "no setting of a session"),
    ] {
        let error = refusal(&server, args);
        assert!(error.contains(part), "{args:?}: {error}");
    }
    // A secret is nowhere to be read.
    let answer = server.ask(&["set", "session.password", "Enterprise"]);
    let everywhere = [answer, server.ask(&["get"]), server.ask(&["history"]), server.ask(&["events"])];
    assert!(everywhere.iter().all(|answer| !answer.to_string().contains("Enterprise")), "{everywhere:?}");
    // A reload brings back what the file says.
    server.ask(&["reload"]);
    assert_eq!(server.ask(&["get", "session.2.welcome"])["settings"][0]["value"], "\"\"");
}

/// What the operator wrote stays as it is, and a file that somebody is in the middle of editing is left alone.
#[test]
fn what_is_to_be_kept_is_in_the_file_after_a_restart() {
    let directory = Directory::new();
    let before = "# ours\n[[session]]\nname = \"One\" # first\nwelcome = \"Hello\"\n";
    fs::write(directory.path("bcnet.toml"), before).expect("written");
    let server = Server::start_in(directory, &[], 1);
    let text = |server: &Server| fs::read_to_string(server.directory.path("bcnet.toml")).expect("a file");
    server.ask(&["set", "session.welcome", "only now"]);
    assert_eq!(text(&server), before, "nothing is kept unasked");
    let done = server.ask(&["set", "session.welcome", "Ahoy", "--save"]);
    assert_eq!(done["kept"], json!(["bcnet.toml, line 4"]), "{done}");
    assert_eq!(text(&server), before.replace("Hello", "Ahoy"));
    let listed = server.directory.ctl(&["whitelist", "--add", "127.0.0.0/8", "--save"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.ends_with("kept in bcnet.toml, line 5\n"), "{listed}");
    // A reload changes nothing now.
    server.ask(&["reload"]);
    assert_eq!(server.ask(&["get", "welcome"])["settings"][0]["value"], "\"Ahoy\"");
    let broken = text(&server).replace("welcome =", "welcme =");
    fs::write(server.directory.path("bcnet.toml"), &broken).expect("written");
    let error = refusal(&server, &["set", "session.welcome", "lost", "--save"]);
    let problem =
        "bcnet.toml: line 4: session.1.welcme: unknown key; did you mean `welcome`?; nothing was changed";
    assert!(error.contains(problem), "{error}");
    assert_eq!(
        (text(&server), server.ask(&["get", "welcome"])["settings"][0]["value"].clone()),
        (broken, json!("\"Ahoy\""))
    );
    assert!(server.ask(&["history", "save"])["history"].as_array().is_some_and(|rows| rows.len() == 3));
    // Mended, it is what a restart begins with.
    fs::write(server.directory.path("bcnet.toml"), text(&server).replace("welcme", "welcome"))
        .expect("written");
    server.stop();
    let (_, directory) = server.end();
    let server = Server::start_in(directory, &[], 1);
    assert_eq!(server.ask(&["get", "session.1.welcome"])["settings"][0]["value"], "\"Ahoy\"");
    assert_eq!(server.ask(&["whitelist"])["whitelist"][0]["network"], "127.0.0.0/8");
    // Who has no file is told so.
    let server = Server::start(&[]);
    assert!(
        refusal(&server, &["set", "session.welcome", "x", "--save"])
            .contains("there is no configuration file")
    );
}

#[test]
fn the_log_tells_more_when_it_is_asked_to() {
    let server = Server::start(&[]);
    server.ask(&["set", "log.level", "error"]);
    assert_eq!(server.ask(&["say", "unheard"])["done"], "said in 1 session");
    server.ask(&["set", "log.level", "info"]);
    server.ask(&["say", "heard"]);
    let line = server.logged(&["event=\"say\""]);
    assert!(line.contains("text=\"heard\""), "{line}");
}

#[test]
fn a_whitelist_keeps_strangers_out() {
    let directory = Directory::new();
    fs::write(directory.path("bcnet.toml"), "[[session]]\ntrusted = []\nwhitelist = [\"192.0.2.0/24\"]\n")
        .expect("written");
    let server = Server::start_in(directory, &[], 1);
    let mut alice = Player::connect(server.address(), "Alice");
    assert_eq!(alice.until_over(), End::Booted(BootReason::DEFAULT));
    let listed = server.ask(&["whitelist", "--add", "127.0.0.0/8"]);
    let networks: Vec<_> =
        listed["whitelist"].as_array().expect("a list").iter().map(|one| &one["network"]).collect();
    assert_eq!(networks, ["192.0.2.0/24", "127.0.0.0/8"]);
    let _alice = Player::join(server.address(), "Alice");
    // Who plays can be named, and whoever is in stays.
    server.ask(&["whitelist", "--add", "Alice"]);
    let listed = server.ask(&["whitelist", "--remove", "127.0.0.0/8"]);
    assert_eq!(listed["whitelist"][1]["network"], "127.0.0.1");
    assert_eq!(server.ask(&["status"])["sessions"][0]["players"], 1);
    assert!(refusal(&server, &["whitelist", "--add", "10.0.0.1/8"]).contains("did you mean"));
    // Who is not on it cannot be taken off; 127.0.0.1 is, and its network is not any more.
    for target in ["127.0.0.0/8", "192.0.2.1"] {
        let told = refusal(&server, &["whitelist", "--remove", target]);
        assert!(told.contains(&format!("{target} is not on the whitelist as such;")), "{told}");
    }
    let told = refusal(&server, &["whitelist", "--remove", "192.0.2.1", "--save"]);
    assert!(told.contains("`whitelist --save` alone keeps that"), "{told}");
    server.ask(&["whitelist", "--remove", "Alice"]);
    assert!(refusal(&server, &["whitelist", "--remove", "Alice"]).contains("127.0.0.1 is not on"));
}

#[test]
fn one_session_is_stopped_and_started_while_the_other_plays() {
    let server = two_sessions();
    let address = |at: usize| std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, server.ports[at]);
    let mut alice = Player::join(address(0), "Alice");
    let mut bob = Player::join(address(1), "Bob");
    let done = server.ask(&["--session", "Two", "stop"]);
    assert_eq!(done["done"], "1 session said goodbye; `bcnet ctl start` begins again");
    assert_eq!(bob.until_over(), End::HostLeft, "it hears the goodbye");
    server.logged(&["event=\"session_stopped\""]);
    server.logged(&["event=\"left\"", "player=\"Bob\"", "reason=\"this game was closed\""]);
    let states = |server: &Server| -> Vec<Value> {
        let sessions = server.ask(&["status"])["sessions"].clone();
        sessions.as_array().expect("a list").iter().map(|one| one["state"].clone()).collect()
    };
    // That it has heard the goodbye may be on its way.
    while states(&server) == ["open", "stopping"] {}
    assert_eq!(states(&server), ["open", "stopped"]);
    assert!(refusal(&server, &["--session", "Two", "stop"]).contains("stopped already"));
    assert!(refusal(&server, &["--session", "One", "start"]).contains("no session is stopped"));
    let line = alice.chat_of("still here");
    alice.chat("still here");
    alice.until(|alice| alice.has(&line));
    // A reload does not wake it.
    server.ask(&["reload"]);
    assert_eq!(states(&server), ["open", "stopped"]);
    assert_eq!(server.ask(&["start"])["done"], "1 session is open");
    let _bob = Player::join(address(1), "Bob");
    assert_eq!(states(&server), ["open", "open"]);
}

#[test]
fn what_was_done_and_by_whom_is_known_after_a_restart() {
    let server = Server::start(&[]);
    server.ask(&["ban", "192.0.2.7", "--by", "Picard"]);
    server.ask(&["unban", "192.0.2.7", "--by", "Riker"]);
    refusal(&server, &["kick", "Nobody", "--by", "Worf"]);
    server.ask(&["players"]);
    server.stop();
    let (_, directory) = server.end();
    let server = Server::start_in(directory, &[], 1);
    let history = server.ask(&["history"])["history"].clone();
    // On Windows it was told to stop by a command, which is known as well.
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
    let found = server.ask(&["history", "RIKER"])["history"].clone();
    assert_eq!(found[0]["outcome"], "192.0.2.7 may play again");
    assert!(server.directory.path("history.jsonl").exists());
}

/// Where no variable tells who it is, as in cron and containers, the number of the user does.
#[cfg(unix)]
#[test]
fn a_command_has_an_author_without_the_name_of_a_user() {
    let server = Server::start(&[]);
    let mut restart = server.directory.bcnet(&["ctl", "restart"]);
    for name in ["SUDO_USER", "USER", "LOGNAME", "USERNAME"] {
        restart.env_remove(name);
    }
    assert!(restart.output().expect("runs").status.success());
    let by = server.ask(&["history"])["history"][0]["by"].clone();
    assert!(by.as_str().is_some_and(|by| by.starts_with("user ")), "{by}");
    server.logged(&["event=\"command\"", "by=\"user ", "what=\"restart\""]);
}

#[test]
fn events_are_followed_as_they_come() {
    let server = Server::start(&[]);
    let last = server.ask(&["events"])["events"].clone();
    assert!(last.as_array().expect("a list").iter().any(|event| event["event"] == "started"), "{last}");
    let mut follower = server.directory.bcnet(&["ctl", "events", "--follow", "--count", "0"]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().expect("runs");
    let events = lines(follower.stdout.take().expect("piped"));
    // It is known to listen when it has heard something.
    let heard = (0..100).find_map(|n| {
        server.ask(&["say", &format!("line {n}")]);
        events.recv_timeout(PATIENCE / 50).ok()
    });
    let event: Value = serde_json::from_str(&heard.expect("an event")).expect("JSON");
    assert!(event["event"] == "say" || event["event"] == "command", "{event}");
    let _alice = Player::join(server.address(), "Alice");
    loop {
        let line = events.recv_timeout(PATIENCE).expect("an event");
        let event: Value = serde_json::from_str(&line).expect("JSON");
        if event["event"] == "in_game" {
            break assert_eq!(event["player"], "Alice");
        }
    }
    server.stop();
    assert_eq!(follower.wait().expect("ends").code(), Some(0), "with the server");
}

#[test]
fn standard_input_is_a_console() {
    let directory = Directory::new();
    let mut server = directory.bcnet(&["serve", "--console", "--bind", "127.0.0.1", "--name", "Panel"]);
    let server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.spawn().expect("runs");
    let output = lines(server.stdout.take().expect("piped"));
    let mut input = server.stdin.take().expect("piped");
    let next = || output.recv_timeout(PATIENCE).expect("a line");
    assert!(next().starts_with("server ready port="));
    let too_long = "say all of it ".repeat(5_000);
    for (line, answer) in [
        ("players", "nobody is here"),
        ("", ""),
        ("say don't panic", "said in 1 session"),
        ("kick Bob", "no player Bob; `bcnet ctl players` lists them"),
        ("fly", "unrecognized subcommand 'fly'; `help` lists what there is"),
        (&too_long, "a line has less than 16 KiB"),
        ("history kick", "TIME"),
    ] {
        writeln!(input, "{line}").expect("written");
        if !answer.is_empty() {
            let said = next();
            assert!(said.starts_with(answer), "{line}: {said}");
        }
    }
    assert!(next().contains("console"));
    writeln!(input, "stop").expect("written");
    assert!(next().starts_with("the server says goodbye and ends"));
    assert_eq!(server.wait().expect("ends").code(), Some(0));
}

#[test]
fn without_a_terminal_it_names_what_programs_read() {
    let server = Server::start(&[]);
    let mut top = server.directory.bcnet(&["top"]);
    let output = top.stdin(Stdio::null()).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
    assert!(error.lines().count() == 1 && error.contains("`bcnet ctl players --json`"), "{error}");
}
