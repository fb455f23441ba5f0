//! What hooks are told, and what a bad one cannot do.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use crate::http_stub::HttpStub;
use crate::metrics::get;
use crate::player::{Player, join_two};
use crate::server::{Directory, Server};

const OK: &[&str] = &["204 No Content"];

/// A configuration with a hook called `crew` that posts to a port of this machine, at an address that nobody may read.
fn file(port: u16, more: &str) -> String {
    format!(
        "[server]\nmetrics = \"127.0.0.1:0\"\n[[session]]\nname = \"Friday\"\nplayer_limit = 2\n\
         [[hook]]\nname = \"crew\"\nurl = \"http://127.0.0.1:{port}/s3cret?token=s3cret\"\nallow_http = true\n{more}\n"
    )
}

fn start(file: &str) -> Server {
    let directory = Directory::new();
    fs::write(directory.path("bcnet.toml"), file).expect("written");
    Server::start_in(directory, &[], 1)
}

fn rewrite(server: &Server, file: &str) {
    fs::write(server.directory.path("bcnet.toml"), file).expect("written");
}

/// How the hook is doing.
fn hook(server: &Server) -> Value {
    server.ask(&["status"])["hooks"][0].clone()
}

/// Waits until the hook is doing as `is_so` says. Each question is a process of its own, so this is no busy loop.
fn hook_until(server: &Server, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..3_000 {
        let hook = hook(server);
        if is_so(&hook) {
            return hook;
        }
        thread::yield_now();
    }
    panic!("{}", hook(server))
}

#[test]
fn players_who_come_and_go_and_rounds_are_told_as_json() {
    let stub = HttpStub::with_statuses(OK);
    let server = start(&file(stub.port, ""));
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob \"<b>\""]);
    let joined = stub.next();
    assert_eq!((joined.method.as_str(), joined.path.as_str()), ("POST", "/s3cret?token=s3cret"));
    let json_type = ("content-type".to_owned(), "application/json".to_owned());
    assert!(joined.headers.contains(&json_type), "{joined:?}");
    let expected = json!({
        "event": "joined", "time": joined.body["time"], "session": "Friday", "port": server.ports[0],
        "players": 1, "limit": 2, "player": "Alice",
    });
    assert_eq!(joined.body, expected);
    let second = stub.next().body;
    assert_eq!(
        (&second["event"], &second["player"], &second["players"]),
        (&json!("joined"), &json!("Bob \"<b>\""), &json!(2))
    );
    let full = stub.next().body;
    assert_eq!((&full["event"], &full["players"], full.get("player")), (&json!("full"), &json!(2), None));
    server.ask(&["restart"]);
    let ended = stub.next().body;
    assert_eq!(
        (&ended["event"], &ended["round"], &ended["reason"]),
        (&json!("round_ended"), &json!(1), &json!("restart"))
    );
    let names: Vec<_> = ended["scores"].as_array().expect("scores").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["Alice", "Bob \"<b>\""]);
    alice.leave();
    let left = stub.next().body;
    assert_eq!(
        (&left["event"], &left["player"], &left["players"]),
        (&json!("left"), &json!("Alice"), &json!(1))
    );
    assert!(
        !format!("{joined:?}{left}").contains(&alice.socket.local_addr().expect("bound").port().to_string()),
        "addresses stay here"
    );
    bob.leave();
    assert_eq!(stub.next().body["event"], "left");
    let empty = stub.next().body;
    assert_eq!((&empty["event"], &empty["reason"]), (&json!("round_ended"), &json!("empty")));
    assert_eq!(hook_until(&server, |hook| hook["sent"] == 7)["problem"], Value::Null);
}

#[test]
fn only_the_events_that_were_asked_for_are_told_and_who_never_got_in_is_not() {
    let stub = HttpStub::with_statuses(OK);
    let server = start(&file(stub.port, "events = [\"left\"]"));
    let mut half_way = Player::connect(server.address(), "Nobody");
    half_way.until(|player| !player.heard.is_empty());
    half_way.leave();
    let mut alice = Player::join(server.address(), "Alice");
    alice.leave();
    let left = stub.next().body;
    assert_eq!((&left["event"], &left["player"]), (&json!("left"), &json!("Alice")));
    assert_eq!(hook_until(&server, |hook| hook["sent"] == 1)["dropped"], 0);
}

#[test]
fn discord_names_nobody_and_shows_names_as_they_are() {
    let stub = HttpStub::with_statuses(OK);
    let server = start(&file(stub.port, "format = \"discord\"\nevents = [\"joined\"]"));
    let _player = Player::join(server.address(), "@everyone **x**");
    let body = stub.next().body;
    let content = "**\\@everyone \\*\\*x\\*\\*** joined Friday (1 of 2)";
    assert_eq!(body, json!({"content": content, "allowed_mentions": {"parse": []}, "flags": 4}));
}

#[test]
fn a_hook_that_never_answers_delays_nobody_and_the_end_waits_for_it_a_while_only() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let server = start(&file(port, "timeout = \"60s\""));
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    let line = alice.chat_of("hello");
    alice.chat("hello");
    alice.until(|alice| alice.has(&line));
    bob.until(|bob| bob.has(&line));
    let hook = hook_until(&server, |hook| hook["waiting"] == 2);
    assert_eq!(
        (&hook["sent"], &hook["failed"]),
        (&json!(0), &json!(0)),
        "one is under way, two wait: {hook}"
    );
    server.stop();
    server.logged(&["event=\"hooks_unfinished\"", "waiting="]);
    assert!(server.end().0.success());
}

#[test]
fn what_waits_at_the_end_is_still_told() {
    let stub = HttpStub::with_statuses(OK);
    let server = start(&file(stub.port, "events = [\"left\"]"));
    let _alice = Player::join(server.address(), "Alice");
    server.stop();
    assert!(server.end().0.success());
    let left = stub.next().body;
    assert_eq!((&left["player"], &left["reason"]), (&json!("Alice"), &json!("the server ends")));
}

#[test]
fn an_error_that_may_pass_is_tried_again() {
    let stub = HttpStub::with_statuses(&["429 Slow down\r\nretry-after: 0", "500 Oh", "200 OK"]);
    let server = start(&file(stub.port, "events = [\"joined\"]"));
    let _alice = Player::join(server.address(), "Alice");
    let bodies = [stub.next().body, stub.next().body, stub.next().body];
    assert!(bodies.iter().all(|body| *body == bodies[0] && body["player"] == "Alice"));
    let hook = hook_until(&server, |hook| hook["sent"] == 1);
    assert_eq!((&hook["failed"], &hook["problem"]), (&json!(0), &Value::Null));
}

/// It takes minutes until such an event is given up, and nobody should have to wait for that.
#[test]
fn what_is_wrong_is_known_while_it_is_tried_again() {
    let stub = HttpStub::with_statuses(&["429 Slow down\r\nretry-after: 99999"]);
    let server = start(&file(stub.port, "events = [\"joined\"]"));
    let _alice = Player::join(server.address(), "Alice");
    let hook = hook_until(&server, |hook| !hook["problem"].is_null());
    assert_eq!((&hook["failed"], &hook["problem"]), (&json!(0), &json!("it answered 429")));
}

#[test]
fn an_error_that_stays_and_a_redirect_are_given_up_and_told() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("a socket");
    let place = elsewhere.local_addr().expect("bound");
    let stub = HttpStub::start(move |number, _, stream| {
        let status = ["404 Gone", "308 There", "302 There", "200 OK"][number.min(3)];
        let answer = format!("HTTP/1.1 {status}\r\nlocation: http://{place}/x\r\ncontent-length: 0\r\n\r\n");
        drop(stream.write_all(answer.as_bytes()));
    });
    let server = start(&file(stub.port, "events = [\"left\"]"));
    for (problem, failed) in [
        ("it answered 404", 1),
        ("it answered 308, and redirects are not followed", 2),
        ("it answered 302, and redirects are not followed", 3),
    ] {
        Player::join(server.address(), "Alice").leave();
        stub.next();
        let hook = hook_until(&server, |hook| hook["failed"] == failed);
        assert_eq!(hook["problem"], problem);
        server.logged(&["event=\"hook_failed\"", "hook=\"crew\"", &format!("error=\"{problem}\"")]);
    }
    Player::join(server.address(), "Alice").leave();
    stub.next();
    server.logged(&["event=\"hook_works\""]);
    assert_eq!(
        elsewhere.accept().map_err(|error| error.kind()).err(),
        Some(ErrorKind::WouldBlock),
        "nobody went there"
    );
    assert!(stub.try_next().is_none(), "each was tried once");
}

/// A machine may have a proxy for all its programs; what a hook's address is would be told there.
#[test]
fn no_proxy_is_asked() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("a socket");
    let proxy = format!("http://{}", elsewhere.local_addr().expect("bound"));
    let stub = HttpStub::with_statuses(OK);
    let directory = Directory::new();
    fs::write(directory.path("bcnet.toml"), file(stub.port, "events = [\"joined\"]")).expect("written");
    let names = ["ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"];
    let server = Server::start_with(directory, &[], 1, &names.map(|name| (name, proxy.as_str())));
    let _alice = Player::join(server.address(), "Alice");
    assert_eq!(stub.next().body["player"], "Alice");
    assert_eq!(elsewhere.accept().map_err(|error| error.kind()).err(), Some(ErrorKind::WouldBlock));
}

#[test]
fn an_answer_without_end_is_not_read() {
    let (told, written) = mpsc::channel();
    let stub = HttpStub::start(move |_, _, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n"));
        let chunk = [b'x'; 1 << 16];
        let chunks = (0..10_000).take_while(|_| stream.write_all(&chunk).is_ok()).count();
        told.send(chunks).expect("the test waits");
    });
    let server = start(&file(stub.port, "events = [\"joined\"]"));
    let _alice = Player::join(server.address(), "Alice");
    hook_until(&server, |hook| hook["sent"] == 1);
    assert!(written.recv().expect("an end") < 10_000, "the connection is closed");
}

#[test]
fn who_cannot_show_who_it_is_is_told_nothing() {
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
    let config = Arc::new(config.expect("they belong together"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a client");
        let mut stream =
            StreamOwned::new(ServerConnection::new(Arc::clone(&config)).expect("a connection"), socket);
        told.send(std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap_or(0)).expect("the test waits");
    });
    let text = file(port, "events = [\"joined\"]").replace("http://", "https://");
    let server = start(&text);
    let _alice = Player::join(server.address(), "Alice");
    let hook = hook_until(&server, |hook| hook["failed"] == 1);
    assert!(hook["problem"].as_str().expect("text").starts_with("no safe connection: "), "{hook}");
    assert_eq!(heard.recv().expect("an end"), 0, "not a byte of what happened");
}

#[test]
fn the_address_of_a_hook_is_nowhere_to_be_read() {
    let stub = HttpStub::with_statuses(&["404 Not Found", "200 OK"]);
    let server = start(&file(stub.port, "events = [\"joined\"]").replacen(
        "[server]",
        "[log]\nlevel = \"trace\"\nfile = \"server.log\"\n[server]",
        1,
    ));
    let started = server.logged(&["event=\"started\""]);
    let _alice = Player::join(server.address(), "Alice");
    hook_until(&server, |hook| hook["failed"] == 1);
    let refused = server.directory.ctl(&["set", "hook.1.url", "https://example.org/s3cret"]);
    assert_eq!(refused.status.code(), Some(1));
    rewrite(&server, &file(stub.port, "url = 3"));
    let reload = server.directory.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(1));
    let shown = server.directory.bcnet(&["config", "show"]).output().expect("runs");
    let metrics =
        started.split("metrics=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a place");
    let page = get(metrics, "GET /metrics").1;
    assert!(page.contains("bcnet_hook_failed_events_total{hook=\"crew\"} 1\n"), "{page}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let test = server.directory.ctl(&["test-hook", "crew"]);
    let mut everywhere =
        vec![text(refused.stderr), text(reload.stderr), text(shown.stdout), text(shown.stderr), page];
    everywhere.push(text(server.directory.ctl(&["status"]).stdout));
    everywhere.extend([text(test.stdout), text(test.stderr)]);
    everywhere.extend(["get", "history", "events", "status"].map(|what| server.ask(&[what]).to_string()));
    everywhere.push(fs::read_to_string(server.directory.path("history.jsonl")).expect("a history"));
    server.stop();
    let (_, directory) = server.end();
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
fn only_the_file_has_hooks_and_a_reload_changes_them() {
    let (first, second) = (HttpStub::with_statuses(OK), HttpStub::with_statuses(OK));
    let server = start(&file(first.port, "events = [\"joined\"]"));
    let mut alice = Player::join(server.address(), "Alice");
    first.next();
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
    assert_eq!(written, file(first.port, "events = [\"joined\"]"));
    assert!(!server.ask(&["get"]).to_string().contains("hook"), "nor do settings have them");
    rewrite(&server, &file(second.port, "events = [\"left\"]"));
    server.ask(&["reload"]);
    alice.leave();
    assert_eq!(second.next().body["event"], "left");
    assert_eq!(hook_until(&server, |hook| hook["sent"] == 2)["host"], format!("127.0.0.1:{}", second.port));
    assert!(first.try_next().is_none());
    rewrite(&server, "[[session]]\nname = \"Friday\"\n");
    server.ask(&["reload"]);
    assert_eq!(server.ask(&["status"])["hooks"], json!([]));
}

#[test]
fn a_hook_can_be_tried() {
    let stub = HttpStub::with_statuses(&["200 OK", "401 No"]);
    let server = start(&file(stub.port, ""));
    let done = server.ask(&["test-hook", "crew"])["done"].clone();
    assert_eq!(done, format!("127.0.0.1:{}: it answered 200", stub.port));
    let test = stub.next().body;
    assert_eq!(
        (&test["event"], &test["session"]),
        (&json!("test"), &json!(format!("Friday, port {}", server.ports[0])))
    );
    for (args, part) in [
        (&["test-hook", "crew"][..], "it answered 401"),
        (&["test-hook", "crow"], "there is no hook of that name; did you mean `crew`?"),
        (&["--session", "Friday", "test-hook", "crew"], "is about the whole server"),
    ] {
        let output = server.directory.ctl(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(part), "{error}");
    }
    assert!(server.ask(&["history"]).to_string().contains("test_hook crew"));
}
