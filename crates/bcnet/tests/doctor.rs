//! `bcnet doctor` as a real process, with and without a server.

mod run;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use run::{Run, bcnet, command};
use serde_json::Value;

/// A directory with a configuration.
struct Place(PathBuf);

impl Place {
    fn new(name: &str, more: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("bcnet-doctor-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let text = format!("[server]\nbind = \"127.0.0.1\"\ncontrol = \"./ctl.sock\"\n{more}");
        fs::write(directory.join("bcnet.toml"), text).expect("written");
        Self(directory)
    }

    fn config(&self) -> String {
        self.0.join("bcnet.toml").display().to_string()
    }

    /// Starts a server. Returns it and its port.
    fn serve(&self, more: &[&str]) -> (Server, String) {
        let config = self.config();
        let serve = [&["serve", "--config", &config][..], more].concat();
        let mut server = Server(command(&serve).stderr(Stdio::null()).spawn().expect("bcnet runs"));
        let mut ready = String::new();
        BufReader::new(server.0.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
        let port = ready.strip_prefix("server ready port=").and_then(|rest| rest.split(' ').next());
        (server, port.expect(&ready).to_owned())
    }

    fn doctor(&self, more: &[&str]) -> Run {
        bcnet(&[&["doctor", "--json", "--config", &self.config()], more].concat(), "")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The checks of this name, as state and text.
fn checks(run: &Run, name: &str) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&run.stdout).expect(&run.stdout);
    let word = |check: &Value, key: &str| check[key].as_str().expect("text").to_owned();
    let all = value["checks"].as_array().expect("checks");
    let named = all.iter().filter(|check| check["check"] == name);
    named.map(|check| (word(check, "state"), word(check, "text"))).collect()
}

fn only(run: &Run, name: &str) -> (String, String) {
    let found = checks(run, name);
    assert_eq!(found.len(), 1, "{name}: {}", run.stdout);
    found.into_iter().next().expect("one")
}

#[test]
fn a_running_server_is_asked_and_joined() {
    // Free a moment ago.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let metrics = free.expect("a port").to_string();
    let place =
        Place::new("running", &format!("metrics = \"{metrics}\"\n[[session]]\npassword = \"engage\"\n"));
    let (_server, port) = place.serve(&[]);
    let run = place.doctor(&[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let (state, text) = only(&run, "port");
    assert_eq!(
        (state.as_str(), text),
        ("ok", format!("UDP port {port} is the running server's: 0 of 8 players"))
    );
    assert_eq!(only(&run, "metrics"), ("ok".into(), format!("TCP {metrics} answers")));
    let (state, text) = only(&run, "join");
    assert!(
        state == "ok" && text.starts_with(&format!("127.0.0.1:{port}: players of this machine can join")),
        "{text}"
    );
    // With the wrong password nobody gets in.
    let run = place.doctor(&["--set", "session.password=wrong"]);
    assert_eq!((run.code, only(&run, "join").0.as_str()), (1, "bad"), "{}", run.stdout);
}

#[test]
fn a_port_that_another_program_has_is_bad() {
    let place = Place::new("taken", "");
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = other.local_addr().expect("bound").port().to_string();
    let run = place.doctor(&["--port", &port]);
    let (state, text) = only(&run, "port");
    assert_eq!((run.code, state.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(text.contains(&port) && text.contains("choose another `port`"), "{text}");
    assert_eq!(only(&run, "join").0, "ok", "nothing is started");
    drop(other);
    let run = place.doctor(&["--port", &port]);
    assert_eq!((run.code, only(&run, "port").0.as_str()), (0, "ok"), "{}", run.stdout);
}

#[cfg(unix)]
#[test]
fn a_server_that_is_there_and_does_not_answer_is_bad() {
    let place = Place::new("silent", "");
    let socket = std::os::unix::net::UnixListener::bind(place.0.join("ctl.sock")).expect("a socket");
    let silent = std::thread::spawn(move || drop(socket.accept()));
    let (state, text) = only(&place.doctor(&[]), "control");
    silent.join().expect("somebody asked");
    assert!(state == "bad" && text.contains("ctl.sock") && text.contains("restart it"), "{text}");
}

#[test]
fn ports_of_metrics_and_page_that_another_program_has_are_bad() {
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let taken = other.local_addr().expect("bound");
    let place = Place::new(
        "listeners",
        &format!("metrics = \"{taken}\"\n[web]\nenabled = true\nbind = \"{taken}\"\n"),
    );
    let run = place.doctor(&[]);
    for (name, key) in [("metrics", "`server.metrics`"), ("page", "`web.bind`")] {
        let (state, text) = only(&run, name);
        assert!(state == "bad" && text.contains(&taken.to_string()) && text.contains(key), "{text}");
    }
    drop(other);
    let run = place.doctor(&[]);
    assert_eq!((run.code, only(&run, "metrics").0.as_str(), only(&run, "page").0.as_str()), (0, "ok", "ok"));
}

/// The server makes these itself.
#[test]
fn directories_of_log_and_capture_need_not_be_there() {
    let place = Place::new("directories", "");
    let [log, capture] = ["logs/server.log", "captures/of/game.pcapng"].map(|name| place.0.join(name));
    let sets = [format!("log.file={}", log.display()), format!("capture.file={}", capture.display())];
    let run = place.doctor(&["--set", &sets[0], "--set", &sets[1], "--set", "capture.size=1MiB"]);
    assert_eq!(
        (only(&run, "log").0.as_str(), only(&run, "capture").0.as_str()),
        ("ok", "ok"),
        "{}",
        run.stdout
    );
    assert!(!place.0.join("logs").exists(), "nothing is changed");
    // More than any disk has.
    let huge = ["--set", "capture.size=1000000GiB", "--set", "capture.files=1000"];
    let run = place.doctor(&[&["--set", sets[1].as_str()], &huge[..]].concat());
    let (state, text) = only(&run, "capture");
    assert!(state == "warn" && text.contains("make room"), "{text}");
}

#[test]
fn a_clock_that_was_set_back_is_told() {
    let place = Place::new("clock", "");
    let bans = fs::File::create(place.0.join("bans.toml")).expect("a file");
    let state = || only(&place.doctor(&[]), "clock");
    assert!(!state().1.contains("ahead"));
    let then = UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    bans.set_modified(then).expect("set");
    let (state, text) = state();
    assert!(state == "warn" && text.contains("ahead of it") && text.contains("set the clock"), "{text}");
}

#[test]
fn places_that_cannot_be_written_are_bad() {
    let place = Place::new("unwritable", "bans = \"missing/bans.toml\"\n");
    let run = place.doctor(&[]);
    assert_eq!((run.code, only(&run, "bans").0.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(only(&run, "bans").1.contains("cannot be written"), "{}", run.stdout);
}

#[test]
fn a_list_server_that_nobody_knows_is_bad() {
    let place = Place::new("unknown", "masters = [\"no-such-host.invalid\"]\n");
    let run = place.doctor(&[]);
    let (state, text) = only(&run, "list servers");
    assert_eq!((run.code, state.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(text.starts_with("no-such-host.invalid: unknown host"), "{text}");
}

#[test]
fn a_broken_configuration_is_told_with_its_line() {
    let place = Place::new("broken", "threads = 0\n");
    let run = place.doctor(&[]);
    let (state, text) = only(&run, "configuration");
    assert_eq!((run.code, state.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(text.contains("line 4") && text.contains("server.threads"), "{text}");
    let shown = bcnet(&["doctor", "--config", &place.config()], "");
    assert!(shown.stdout.lines().any(|line| line.starts_with("bad   configuration  ")), "{}", shown.stdout);
}

/// Neither what is empty nor what a variable tells is in the file.
#[cfg(unix)]
#[test]
fn secrets_that_everyone_can_read_are_told_with_what_to_do() {
    let hook = "[[hook]]\nurl = \"https://hooks.example/s3cret\"\n";
    let sessions = "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\npassword = ";
    let place = Place::new("secrets", &format!("{sessions}\"engage\"\n{hook}"));
    let set = |path: &str, mode| {
        fs::set_permissions(place.0.join(path), fs::Permissions::from_mode(mode)).expect("set");
    };
    // Nobody gets through to a directory of one's own; that for temporary files may be one.
    let above = std::env::temp_dir().canonicalize().expect("a directory");
    if !above.ancestors().all(|above| fs::metadata(above).is_ok_and(|it| it.permissions().mode() & 7 != 0)) {
        return;
    }
    let told = |modes: [u32; 2]| {
        set("", modes[0]);
        set("bcnet.toml", modes[1]);
        checks(&place.doctor(&[]), "secrets")
    };
    let found = told([0o755, 0o644]);
    assert_eq!((found.len(), found[0].0.as_str()), (1, "warn"), "{found:?}");
    let text = &found[0].1;
    let command = format!("it has `session.2.password`, `hook.1.url`; `chmod 640 {}`", place.config());
    assert!(text.contains(&command) && !text.contains("s3cret") && !text.contains("engage"), "{text}");
    assert!(told([0o755, 0o640]).is_empty() && told([0o750, 0o644]).is_empty());
    // Without secrets everyone may read it.
    let place = Place::new("no-secrets", &format!("{sessions}\"\"\n"));
    fs::set_permissions(place.config(), fs::Permissions::from_mode(0o644)).expect("set");
    assert!(checks(&place.doctor(&["--set", "session.password=engage"]), "secrets").is_empty());
    // With a token that everyone may read there is no server.
    let token = place.0.join("web-token");
    fs::write(&token, "x".repeat(32)).expect("written");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("set");
    let run = place.doctor(&["--set", "web.enabled=true", "--set", "web.bind=127.0.0.1:0"]);
    let (state, text) = only(&run, "secrets");
    assert!(run.code == 1 && state == "bad" && text.contains("`chmod 600 "), "{text}");
}

/// Lists are at a fixed port, so the list server has a loopback address of its own.
#[cfg(any(target_os = "linux", windows))]
#[test]
fn a_list_server_that_answers_is_asked_whether_it_lists_us() {
    let [high, low] = [std::process::id() >> 8, std::process::id()].map(|part| part & 0xFF);
    let address = format!("127.{high}.{low}.77");
    let spawned = command(&["master", "--bind", &address]).spawn();
    let mut master = Server(spawned.expect("bcnet runs"));
    BufReader::new(master.0.stdout.take().expect("piped")).read_line(&mut String::new()).expect("a line");
    let place = Place::new("listed", &format!("masters = [\"{address}\"]\n"));
    let (state, text) = only(&place.doctor(&[]), "list servers");
    assert_eq!((state.as_str(), text), ("ok", format!("{address} answers, with 0 servers")));
    let (_server, port) = place.serve(&[]);
    let log = BufReader::new(master.0.stderr.take().expect("piped")).lines();
    assert!(log.map_while(Result::ok).any(|line| line.contains("event=\"listed\"")));
    let (state, text) = only(&place.doctor(&[]), "list servers");
    let listed = format!("{address} lists 127.0.0.1:{port}, which answers by our name");
    assert_eq!((state.as_str(), text), ("ok", listed));
    // Another server with the same port is told that it is not the one.
    let other = Place::new("unlisted", "[[session]]\nname = \"Other\"\n");
    let flags = ["--bind", "127.0.0.2", "--port", &port];
    let _other = other.serve(&flags);
    let masters = format!("server.masters={address}");
    let (state, text) = only(&other.doctor(&[&flags[..], &["--set", &masters]].concat()), "list servers");
    let unlisted =
        format!("{address} answers and does not list us: whom it has at our port has another name");
    assert!(state == "warn" && text.starts_with(&unlisted), "{text}");
}
