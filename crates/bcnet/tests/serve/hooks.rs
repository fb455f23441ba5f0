//! Hooks: the events that they get, and the limits on faulty ones.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use crate::http_stub::HttpStub;
use crate::metrics::get;
use crate::player::{LoopbackPlayer, join_two};
use crate::server::{ServerProcess, TestDirectory};

const NO_CONTENT: &[&str] = &["204 No Content"];

/// Returns a configuration with a hook named `crew` whose URL on this machine contains a secret.
fn config_with_hook(port: u16, more: &str) -> String {
    format!(
        "[server]\nmetrics = \"127.0.0.1:0\"\n[[session]]\nname = \"Friday\"\nplayer_limit = 2\n\
         [[hook]]\nname = \"crew\"\nurl = \"http://127.0.0.1:{port}/s3cret?token=s3cret\"\nallow_http = true\n{more}\n"
    )
}

fn start(file: &str) -> ServerProcess {
    let directory = TestDirectory::new();
    fs::write(directory.path("bcnet.toml"), file).expect("written");
    ServerProcess::start_in(directory, &[], 1)
}

fn write_config(server: &ServerProcess, file: &str) {
    fs::write(server.directory.path("bcnet.toml"), file).expect("written");
}

/// Returns the status of the hook.
fn hook_status(server: &ServerProcess) -> Value {
    server.ctl_json(&["status"])["hooks"][0].clone()
}

/// Waits until the status of the hook is as expected. Each query starts a process, so this is no busy loop.
fn wait_for_hook_status(server: &ServerProcess, is_expected: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..3_000 {
        let hook = hook_status(server);
        if is_expected(&hook) {
            return hook;
        }
        thread::yield_now();
    }
    panic!("{}", hook_status(server))
}

#[test]
fn hook_receives_joins_leaves_and_rounds_as_json() {
    let stub = HttpStub::with_statuses(NO_CONTENT);
    let server = start(&config_with_hook(stub.port, ""));
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob \"<b>\""]);
    let joined = stub.wait_for_request();
    assert_eq!((joined.method.as_str(), joined.path.as_str()), ("POST", "/s3cret?token=s3cret"));
    let json_type = ("content-type".to_owned(), "application/json".to_owned());
    assert!(joined.headers.contains(&json_type), "{joined:?}");
    let expected = json!({
        "event": "joined", "time": joined.body["time"], "session": "Friday", "port": server.ports[0],
        "players": 1, "limit": 2, "player": "Alice",
    });
    assert_eq!(joined.body, expected);
    let second = stub.wait_for_request().body;
    assert_eq!(
        (&second["event"], &second["player"], &second["players"]),
        (&json!("joined"), &json!("Bob \"<b>\""), &json!(2))
    );
    let full = stub.wait_for_request().body;
    assert_eq!((&full["event"], &full["players"], full.get("player")), (&json!("full"), &json!(2), None));
    server.ctl_json(&["restart"]);
    let ended = stub.wait_for_request().body;
    assert_eq!(
        (&ended["event"], &ended["round"], &ended["reason"]),
        (&json!("round_ended"), &json!(1), &json!("restart"))
    );
    let names: Vec<_> = ended["scores"].as_array().expect("scores").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["Alice", "Bob \"<b>\""]);
    alice.leave();
    let left = stub.wait_for_request().body;
    assert_eq!(
        (&left["event"], &left["player"], &left["players"]),
        (&json!("left"), &json!("Alice"), &json!(1))
    );
    assert!(
        !format!("{joined:?}{left}").contains(&alice.socket.local_addr().expect("bound").port().to_string()),
        "the address is not sent"
    );
    bob.leave();
    assert_eq!(stub.wait_for_request().body["event"], "left");
    let empty = stub.wait_for_request().body;
    assert_eq!((&empty["event"], &empty["reason"]), (&json!("round_ended"), &json!("empty")));
    assert_eq!(wait_for_hook_status(&server, |hook| hook["sent"] == 7)["problem"], Value::Null);
}

#[test]
fn hook_receives_only_subscribed_events_of_admitted_players() {
    let stub = HttpStub::with_statuses(NO_CONTENT);
    let server = start(&config_with_hook(stub.port, "events = [\"left\"]"));
    let mut half_way = LoopbackPlayer::connect(server.address(), "Nobody");
    half_way.run_until(|player| !player.received.is_empty());
    half_way.leave();
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    alice.leave();
    let left = stub.wait_for_request().body;
    assert_eq!((&left["event"], &left["player"]), (&json!("left"), &json!("Alice")));
    assert_eq!(wait_for_hook_status(&server, |hook| hook["sent"] == 1)["dropped"], 0);
}

#[test]
fn discord_messages_mention_nobody_and_escape_names() {
    let stub = HttpStub::with_statuses(NO_CONTENT);
    let server = start(&config_with_hook(stub.port, "format = \"discord\"\nevents = [\"joined\"]"));
    let _player = LoopbackPlayer::join(server.address(), "@everyone **x**");
    let body = stub.wait_for_request().body;
    let content = "**\\@everyone \\*\\*x\\*\\*** joined Friday (1 of 2)";
    assert_eq!(body, json!({"content": content, "allowed_mentions": {"parse": []}, "flags": 4}));
}

#[test]
fn silent_hook_delays_nothing_and_shutdown_only_briefly() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let server = start(&config_with_hook(port, "timeout = \"60s\""));
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let line = alice.chat_payload("hello");
    alice.chat("hello");
    alice.run_until(|alice| alice.has_received(&line));
    bob.run_until(|bob| bob.has_received(&line));
    let hook = wait_for_hook_status(&server, |hook| hook["waiting"] == 2);
    assert_eq!(
        (&hook["sent"], &hook["failed"]),
        (&json!(0), &json!(0)),
        "one event is being sent, two wait: {hook}"
    );
    server.stop();
    server.wait_for_log(&["event=\"hooks_unfinished\"", "waiting="]);
    assert!(server.wait_for_exit().0.success());
}

#[test]
fn queued_events_are_sent_at_shutdown() {
    let stub = HttpStub::with_statuses(NO_CONTENT);
    let server = start(&config_with_hook(stub.port, "events = [\"left\"]"));
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    server.stop();
    assert!(server.wait_for_exit().0.success());
    let left = stub.wait_for_request().body;
    assert_eq!((&left["player"], &left["reason"]), (&json!("Alice"), &json!("the server was stopped")));
}

#[test]
fn temporary_hook_error_is_retried() {
    let stub = HttpStub::with_statuses(&["429 Slow down\r\nretry-after: 0", "500 Oh", "200 OK"]);
    let server = start(&config_with_hook(stub.port, "events = [\"joined\"]"));
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    let bodies = [stub.wait_for_request().body, stub.wait_for_request().body, stub.wait_for_request().body];
    assert!(bodies.iter().all(|body| *body == bodies[0] && body["player"] == "Alice"));
    let hook = wait_for_hook_status(&server, |hook| hook["sent"] == 1);
    assert_eq!((&hook["failed"], &hook["problem"]), (&json!(0), &Value::Null));
}

/// The retries of such an event take minutes, so the problem must be visible before the last one.
#[test]
fn hook_problem_is_shown_during_retries() {
    let stub = HttpStub::with_statuses(&["429 Slow down\r\nretry-after: 99999"]);
    let server = start(&config_with_hook(stub.port, "events = [\"joined\"]"));
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    let hook = wait_for_hook_status(&server, |hook| !hook["problem"].is_null());
    assert_eq!((&hook["failed"], &hook["problem"]), (&json!(0), &json!("the answer was status 429")));
}

#[test]
fn permanent_errors_and_redirects_are_dropped_and_logged() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("a socket");
    let address = elsewhere.local_addr().expect("bound");
    let stub = HttpStub::start(move |number, _, stream| {
        let status = ["404 Gone", "308 There", "302 There", "200 OK"][number.min(3)];
        let answer =
            format!("HTTP/1.1 {status}\r\nlocation: http://{address}/x\r\ncontent-length: 0\r\n\r\n");
        drop(stream.write_all(answer.as_bytes()));
    });
    let server = start(&config_with_hook(stub.port, "events = [\"left\"]"));
    for (problem, failed) in [
        ("the answer was status 404", 1),
        ("the answer was status 308; redirects are not followed", 2),
        ("the answer was status 302; redirects are not followed", 3),
    ] {
        LoopbackPlayer::join(server.address(), "Alice").leave();
        stub.wait_for_request();
        let hook = wait_for_hook_status(&server, |hook| hook["failed"] == failed);
        assert_eq!(hook["problem"], problem);
        server.wait_for_log(&["event=\"hook_failed\"", "hook=\"crew\"", &format!("error=\"{problem}\"")]);
    }
    LoopbackPlayer::join(server.address(), "Alice").leave();
    stub.wait_for_request();
    server.wait_for_log(&["event=\"hook_works\""]);
    assert_eq!(
        elsewhere.accept().map_err(|error| error.kind()).err(),
        Some(ErrorKind::WouldBlock),
        "the redirect was followed"
    );
    assert!(stub.try_next_request().is_none(), "an event was retried");
}

/// A machine may have a proxy for all programs; the proxy would see the secret URL.
#[test]
fn hooks_ignore_proxy_variables() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("a socket");
    let proxy = format!("http://{}", elsewhere.local_addr().expect("bound"));
    let stub = HttpStub::with_statuses(NO_CONTENT);
    let directory = TestDirectory::new();
    fs::write(directory.path("bcnet.toml"), config_with_hook(stub.port, "events = [\"joined\"]"))
        .expect("written");
    let names = ["ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"];
    let server = ServerProcess::start_with(directory, &[], 1, &names.map(|name| (name, proxy.as_str())));
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    assert_eq!(stub.wait_for_request().body["player"], "Alice");
    assert_eq!(elsewhere.accept().map_err(|error| error.kind()).err(), Some(ErrorKind::WouldBlock));
}

#[test]
fn endless_hook_response_is_not_read() {
    let (sender, written) = mpsc::channel();
    let stub = HttpStub::start(move |_, _, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n"));
        let chunk = [b'x'; 1 << 16];
        let chunks = (0..10_000).take_while(|_| stream.write_all(&chunk).is_ok()).count();
        sender.send(chunks).expect("the test waits");
    });
    let server = start(&config_with_hook(stub.port, "events = [\"joined\"]"));
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    wait_for_hook_status(&server, |hook| hook["sent"] == 1);
    assert!(written.recv().expect("an end") < 10_000, "the connection is closed");
}

#[test]
fn hook_with_untrusted_certificate_gets_no_data() {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let certificate = CertificateDer::from_pem_file(format!("{tls}/certificate.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(format!("{tls}/key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key);
    let config = Arc::new(config.expect("the key fits the certificate"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (sender, received) = mpsc::channel();
    thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a client");
        let mut stream =
            StreamOwned::new(ServerConnection::new(Arc::clone(&config)).expect("a connection"), socket);
        sender.send(std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap_or(0)).expect("the test waits");
    });
    let text = config_with_hook(port, "events = [\"joined\"]").replace("http://", "https://");
    let server = start(&text);
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    let hook = wait_for_hook_status(&server, |hook| hook["failed"] == 1);
    assert!(hook["problem"].as_str().expect("text").starts_with("no secure connection: "), "{hook}");
    assert_eq!(received.recv().expect("an end"), 0, "the hook got data");
}

#[test]
fn hook_url_is_never_printed() {
    let stub = HttpStub::with_statuses(&["404 Not Found", "200 OK"]);
    let server = start(&config_with_hook(stub.port, "events = [\"joined\"]").replacen(
        "[server]",
        "[log]\nlevel = \"trace\"\nfile = \"server.log\"\n[server]",
        1,
    ));
    let started = server.wait_for_log(&["event=\"started\""]);
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    wait_for_hook_status(&server, |hook| hook["failed"] == 1);
    let refused = server.directory.ctl(&["set", "hook.1.url", "https://example.org/s3cret"]);
    assert_eq!(refused.status.code(), Some(1));
    write_config(&server, &config_with_hook(stub.port, "url = 3"));
    let reload = server.directory.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(1));
    let shown = server.directory.bcnet(&["config", "show"]).output().expect("runs");
    let metrics =
        started.split("metrics=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    let page = get(metrics, "GET /metrics").1;
    assert!(page.contains("bcnet_hook_failed_events_total{hook=\"crew\"} 1\n"), "{page}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let test = server.directory.ctl(&["test-hook", "crew"]);
    let mut everywhere =
        vec![text(refused.stderr), text(reload.stderr), text(shown.stdout), text(shown.stderr), page];
    everywhere.push(text(server.directory.ctl(&["status"]).stdout));
    everywhere.extend([text(test.stdout), text(test.stderr)]);
    everywhere
        .extend(["get", "history", "events", "status"].map(|what| server.ctl_json(&[what]).to_string()));
    everywhere.push(fs::read_to_string(server.directory.path("history.jsonl")).expect("a history"));
    server.stop();
    let (_, directory) = server.wait_for_exit();
    let logs = fs::read_dir(&directory.0).expect("a directory").flatten().map(|entry| entry.path());
    let mut logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let log = fs::read_to_string(logs.next().expect("a log")).expect("text");
    assert!(log.contains("event=\"hook_failed\"") && log.contains("event=\"stopped\""), "{log}");
    everywhere.push(log);
    for text in &everywhere {
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(everywhere[5].contains(&format!("crew  127.0.0.1:{}  0     1", stub.port)), "{}", everywhere[5]);
}

#[test]
fn hooks_are_set_in_the_file_only_and_reload_applies_them() {
    let (first, second) = (HttpStub::with_statuses(NO_CONTENT), HttpStub::with_statuses(NO_CONTENT));
    let server = start(&config_with_hook(first.port, "events = [\"joined\"]"));
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    first.wait_for_request();
    let target = format!("http://127.0.0.1:{}/", second.port);
    for key in ["hook.1.url", "hook.url", "hook.1.events", "hook.2.url"] {
        let output = server.directory.ctl(&["set", key, &target]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{key}");
        assert!(error.contains("hooks are set in the file only"), "{error}");
        let kept = server.directory.ctl(&["set", key, &target, "--save"]);
        assert_eq!(kept.status.code(), Some(1), "{key}");
        let set = format!("{key}={target}");
        let output = server.directory.bcnet(&["config", "check", "--set", &set]).output().expect("runs");
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.code() == Some(1) && found.contains("hooks are set in the file only"),
            "{found}"
        );
    }
    let mut check = server.directory.bcnet(&["config", "check"]);
    let output = check.env("BCNET_HOOK_1_URL", &target).output().expect("runs");
    assert!(
        String::from_utf8_lossy(&output.stdout)
            .starts_with("BCNET_HOOK_1_URL: hooks are set in the file only")
    );
    let written = fs::read_to_string(server.directory.path("bcnet.toml")).expect("a file");
    assert_eq!(written, config_with_hook(first.port, "events = [\"joined\"]"));
    assert!(!server.ctl_json(&["get"]).to_string().contains("hook"), "`get` does not list hooks");
    write_config(&server, &config_with_hook(second.port, "events = [\"left\"]"));
    server.ctl_json(&["reload"]);
    alice.leave();
    assert_eq!(second.wait_for_request().body["event"], "left");
    assert_eq!(
        wait_for_hook_status(&server, |hook| hook["sent"] == 2)["host"],
        format!("127.0.0.1:{}", second.port)
    );
    assert!(first.try_next_request().is_none());
    write_config(&server, "[[session]]\nname = \"Friday\"\n");
    server.ctl_json(&["reload"]);
    assert_eq!(server.ctl_json(&["status"])["hooks"], json!([]));
}

#[test]
fn test_hook_command_reports_the_result() {
    let stub = HttpStub::with_statuses(&["200 OK", "401 No"]);
    let server = start(&config_with_hook(stub.port, ""));
    let done = server.ctl_json(&["test-hook", "crew"])["done"].clone();
    assert_eq!(done, format!("127.0.0.1:{}: the answer was status 200", stub.port));
    let test = stub.wait_for_request().body;
    assert_eq!(
        (&test["event"], &test["session"]),
        (&json!("test"), &json!(format!("Friday, port {}", server.ports[0])))
    );
    for (args, part) in [
        (&["test-hook", "crew"][..], "the answer was status 401"),
        (&["test-hook", "crow"], "no hook is named crow; did you mean `crew`?"),
        (&["--session", "Friday", "test-hook", "crew"], "applies to the whole server"),
    ] {
        let output = server.directory.ctl(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(part), "{error}");
    }
    assert!(server.ctl_json(&["history"]).to_string().contains("test_hook crew"));
}
