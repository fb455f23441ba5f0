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

use run::{ProcessOutput, bcnet, command};
use serde_json::Value;

/// A directory with a configuration file, deleted at the end.
struct DoctorDirectory(PathBuf);

impl DoctorDirectory {
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

    /// Starts a server. Returns the process and its port.
    fn serve(&self, more: &[&str]) -> (ChildGuard, String) {
        let config = self.config();
        let serve = [&["serve", "--config", &config][..], more].concat();
        let mut server = ChildGuard(command(&serve).stderr(Stdio::null()).spawn().expect("bcnet runs"));
        let mut ready = String::new();
        BufReader::new(server.0.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
        let port = ready.strip_prefix("server ready port=").and_then(|rest| rest.split(' ').next());
        (server, port.expect(&ready).to_owned())
    }

    fn doctor(&self, more: &[&str]) -> ProcessOutput {
        bcnet(&[&["doctor", "--json", "--config", &self.config()], more].concat(), "")
    }
}

impl Drop for DoctorDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the checks with this name, as state and text.
fn checks(run: &ProcessOutput, name: &str) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&run.stdout).expect(&run.stdout);
    let word = |check: &Value, key: &str| check[key].as_str().expect("text").to_owned();
    let all = value["checks"].as_array().expect("checks");
    let named = all.iter().filter(|check| check["check"] == name);
    named.map(|check| (word(check, "state"), word(check, "text"))).collect()
}

fn only_check(run: &ProcessOutput, name: &str) -> (String, String) {
    let found = checks(run, name);
    assert_eq!(found.len(), 1, "{name}: {}", run.stdout);
    found.into_iter().next().expect("one")
}

#[test]
fn running_server_is_queried_and_joined() {
    // The port was free a moment ago.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let metrics = free.expect("a port").to_string();
    let directory = DoctorDirectory::new(
        "running",
        &format!("metrics = \"{metrics}\"\n[[session]]\npassword = \"engage\"\n"),
    );
    let (_server, port) = directory.serve(&[]);
    let run = directory.doctor(&[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let (state, text) = only_check(&run, "port");
    assert_eq!(
        (state.as_str(), text),
        ("ok", format!("the running server has UDP port {port}: 0 of 8 players"))
    );
    assert_eq!(only_check(&run, "metrics"), ("ok".into(), format!("TCP {metrics} answers")));
    let (state, text) = only_check(&run, "join");
    assert!(
        state == "ok" && text.starts_with(&format!("127.0.0.1:{port}: players on this machine can join")),
        "{text}"
    );
    // A join with the wrong password fails.
    let run = directory.doctor(&["--set", "session.password=wrong"]);
    assert_eq!((run.code, only_check(&run, "join").0.as_str()), (1, "bad"), "{}", run.stdout);
}

#[test]
fn port_in_use_is_bad() {
    let directory = DoctorDirectory::new("taken", "");
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = other.local_addr().expect("bound").port().to_string();
    let run = directory.doctor(&["--port", &port]);
    let (state, text) = only_check(&run, "port");
    assert_eq!((run.code, state.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(text.contains(&port) && text.contains("set another `port`"), "{text}");
    assert_eq!(only_check(&run, "join").0, "ok", "doctor does not start a server");
    drop(other);
    let run = directory.doctor(&["--port", &port]);
    assert_eq!((run.code, only_check(&run, "port").0.as_str()), (0, "ok"), "{}", run.stdout);
}

#[cfg(unix)]
#[test]
fn unresponsive_server_is_bad() {
    let directory = DoctorDirectory::new("silent", "");
    let socket = std::os::unix::net::UnixListener::bind(directory.0.join("ctl.sock")).expect("a socket");
    let silent = std::thread::spawn(move || drop(socket.accept()));
    let (state, text) = only_check(&directory.doctor(&[]), "control");
    silent.join().expect("doctor connected");
    assert!(state == "bad" && text.contains("ctl.sock") && text.contains("restart it"), "{text}");
}

#[test]
fn metrics_and_page_ports_in_use_are_bad() {
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let taken = other.local_addr().expect("bound");
    let directory = DoctorDirectory::new(
        "listeners",
        &format!("metrics = \"{taken}\"\n[web]\nenabled = true\nbind = \"{taken}\"\n"),
    );
    let run = directory.doctor(&[]);
    for (name, key) in [("metrics", "`server.metrics`"), ("page", "`web.bind`")] {
        let (state, text) = only_check(&run, name);
        assert!(state == "bad" && text.contains(&taken.to_string()) && text.contains(key), "{text}");
    }
    drop(other);
    let run = directory.doctor(&[]);
    assert_eq!(
        (run.code, only_check(&run, "metrics").0.as_str(), only_check(&run, "page").0.as_str()),
        (0, "ok", "ok")
    );
}

/// The server creates these directories itself.
#[test]
fn log_and_capture_directories_need_not_exist() {
    let directory = DoctorDirectory::new("directories", "");
    let [log, capture] = ["logs/server.log", "captures/of/game.pcapng"].map(|name| directory.0.join(name));
    let sets = [format!("log.file={}", log.display()), format!("capture.file={}", capture.display())];
    let run = directory.doctor(&["--set", &sets[0], "--set", &sets[1], "--set", "capture.size=1MiB"]);
    assert_eq!(
        (only_check(&run, "log").0.as_str(), only_check(&run, "capture").0.as_str()),
        ("ok", "ok"),
        "{}",
        run.stdout
    );
    assert!(!directory.0.join("logs").exists(), "doctor creates no directory");
    // This is more than any disk has.
    let huge = ["--set", "capture.size=1000000GiB", "--set", "capture.files=1000"];
    let run = directory.doctor(&[&["--set", sets[1].as_str()], &huge[..]].concat());
    let (state, text) = only_check(&run, "capture");
    assert!(state == "warn" && text.contains("free some space"), "{text}");
}

#[test]
fn clock_set_back_is_reported() {
    let directory = DoctorDirectory::new("clock", "");
    let bans = fs::File::create(directory.0.join("bans.toml")).expect("a file");
    let state = || only_check(&directory.doctor(&[]), "clock");
    assert!(!state().1.contains("ahead"));
    let then = UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    bans.set_modified(then).expect("set");
    let (state, text) = state();
    assert!(
        state == "warn" && text.contains("ahead of the clock") && text.contains("set the clock"),
        "{text}"
    );
}

#[test]
fn unwritable_path_is_bad() {
    let directory = DoctorDirectory::new("unwritable", "bans = \"missing/bans.toml\"\n");
    let run = directory.doctor(&[]);
    assert_eq!((run.code, only_check(&run, "bans").0.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(only_check(&run, "bans").1.contains("cannot be written"), "{}", run.stdout);
}

#[test]
fn unknown_list_server_host_is_bad() {
    let directory = DoctorDirectory::new("unknown", "masters = [\"no-such-host.invalid\"]\n");
    let run = directory.doctor(&[]);
    let (state, text) = only_check(&run, "list servers");
    assert_eq!((run.code, state.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(text.starts_with("no-such-host.invalid: unknown host"), "{text}");
}

#[test]
fn broken_configuration_is_reported_with_its_line() {
    let directory = DoctorDirectory::new("broken", "threads = 0\n");
    let run = directory.doctor(&[]);
    let (state, text) = only_check(&run, "configuration");
    assert_eq!((run.code, state.as_str()), (1, "bad"), "{}", run.stdout);
    assert!(text.contains("line 4") && text.contains("server.threads"), "{text}");
    let shown = bcnet(&["doctor", "--config", &directory.config()], "");
    assert!(shown.stdout.lines().any(|line| line.starts_with("bad   configuration  ")), "{}", shown.stdout);
}

/// An empty password, or one from a variable or flag, is not a secret in the file.
#[cfg(unix)]
#[test]
fn world_readable_secrets_are_reported_with_a_remedy() {
    let hook = "[[hook]]\nurl = \"https://hooks.example/s3cret\"\n";
    let sessions = "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\npassword = ";
    let directory = DoctorDirectory::new("secrets", &format!("{sessions}\"engage\"\n{hook}"));
    let set = |path: &str, mode| {
        fs::set_permissions(directory.0.join(path), fs::Permissions::from_mode(mode)).expect("set");
    };
    // If the directory for temporary files is private, no other user can reach the file.
    let above = std::env::temp_dir().canonicalize().expect("a directory");
    if !above.ancestors().all(|above| fs::metadata(above).is_ok_and(|it| it.permissions().mode() & 7 != 0)) {
        return;
    }
    let secrets = |modes: [u32; 2]| {
        set("", modes[0]);
        set("bcnet.toml", modes[1]);
        checks(&directory.doctor(&[]), "secrets")
    };
    let found = secrets([0o755, 0o644]);
    assert_eq!((found.len(), found[0].0.as_str()), (1, "warn"), "{found:?}");
    let text = &found[0].1;
    let command =
        format!("contains `session.2.password`, `hook.1.url`; run `chmod 640 {}`", directory.config());
    assert!(text.contains(&command) && !text.contains("s3cret") && !text.contains("engage"), "{text}");
    assert!(secrets([0o755, 0o640]).is_empty() && secrets([0o750, 0o644]).is_empty());
    // Without secrets, every user may read the file.
    let directory = DoctorDirectory::new("no-secrets", &format!("{sessions}\"\"\n"));
    fs::set_permissions(directory.config(), fs::Permissions::from_mode(0o644)).expect("set");
    assert!(checks(&directory.doctor(&["--set", "session.password=engage"]), "secrets").is_empty());
    // The server does not start with a token that every user may read.
    let token = directory.0.join("web-token");
    fs::write(&token, "x".repeat(32)).expect("written");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("set");
    let run = directory.doctor(&["--set", "web.enabled=true", "--set", "web.bind=127.0.0.1:0"]);
    let (state, text) = only_check(&run, "secrets");
    assert!(run.code == 1 && state == "bad" && text.contains("`chmod 600 "), "{text}");
}

/// The port of lists is fixed, so the list server of this test has a separate loopback address.
#[cfg(any(target_os = "linux", windows))]
#[test]
fn reachable_list_server_is_checked_for_own_entry() {
    let [high, low] = [std::process::id() >> 8, std::process::id()].map(|part| part & 0xFF);
    let address = format!("127.{high}.{low}.77");
    let spawned = command(&["master", "--bind", &address]).spawn();
    let mut master = ChildGuard(spawned.expect("bcnet runs"));
    BufReader::new(master.0.stdout.take().expect("piped")).read_line(&mut String::new()).expect("a line");
    let directory = DoctorDirectory::new("listed", &format!("masters = [\"{address}\"]\n"));
    let (state, text) = only_check(&directory.doctor(&[]), "list servers");
    assert_eq!((state.as_str(), text), ("ok", format!("{address} answers, with 0 servers")));
    let (_server, port) = directory.serve(&[]);
    let log = BufReader::new(master.0.stderr.take().expect("piped")).lines();
    assert!(log.map_while(Result::ok).any(|line| line.contains("event=\"listed\"")));
    let (state, text) = only_check(&directory.doctor(&[]), "list servers");
    let listed = format!("{address} lists 127.0.0.1:{port}, which answers with our name");
    assert_eq!((state.as_str(), text), ("ok", listed));
    // A server with the same port and another name is not taken for ours.
    let other = DoctorDirectory::new("unlisted", "[[session]]\nname = \"Other\"\n");
    let flags = ["--bind", "127.0.0.2", "--port", &port];
    let _other = other.serve(&flags);
    let masters = format!("server.masters={address}");
    let (state, text) =
        only_check(&other.doctor(&[&flags[..], &["--set", &masters]].concat()), "list servers");
    let unlisted = format!(
        "{address} answers but does not list us: the server that it lists with our port has another name"
    );
    assert!(state == "warn" && text.starts_with(&unlisted), "{text}");
}
