//! Access to the operator page: token, foreign forms and host names, proxies and https.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{HttpResponse, PageServer};
use crate::run::path;
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory, wait_until};

#[test]
fn foreign_origins_and_host_names_are_refused() {
    let page = PageServer::start(&[]);
    let operator = page.operator();
    let say = format!("csrf={}&action=say&text=hello", operator.csrf());
    for (origin, status) in
        [("Origin: none", 403), ("Origin: null", 403), ("Origin: http://evil.example", 403)]
    {
        assert_eq!(operator.request("POST /act", &[origin], &say).status, status, "{origin}");
    }
    assert_eq!(operator.post("/act", "action=say&text=hello").status, 403, "without the CSRF value");
    assert_eq!(operator.post("/act", "csrf=00&action=say&text=hello").status, 403);
    let other = page.operator();
    assert_eq!(other.post("/act", &say).status, 403, "with the CSRF value of another login");
    for host in ["Host: evil.example", "Host: none", "Host: localhost.evil.example:80"] {
        let answer = operator.request("GET /", &[host], "");
        assert!(
            [400, 421].contains(&answer.status) && !answer.body.contains("Overview"),
            "{host}: {answer:?}"
        );
    }
    let login = format!("token={}", page.token);
    let answer = page.anonymous().request("POST /login", &["Origin: http://evil.example"], &login);
    assert_eq!((answer.status, answer.header("set-cookie")), (403, ""));
    assert_eq!(operator.request("GET http://evil.example/", &[], "").status, 400);
    assert_eq!(operator.request("POST /act", &["Content-Type: text/plain"], "").status, 415);
    assert_eq!(operator.post("/act", &say).status, 303, "the correct form is accepted");
}

#[test]
fn token_guesses_are_limited_and_never_logged() {
    let page = PageServer::start(&["--set", "log.level=trace"]);
    let visitor = page.anonymous();
    let answer = page.anonymous().post("/login", &format!("token={}", page.token));
    let cookie = answer.header("set-cookie").to_owned();
    assert!(
        cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict") && !cookie.contains("Secure"),
        "{cookie}"
    );
    for _ in 0..5 {
        let answer = visitor.post("/login", "token=my-guess-of-it");
        assert_eq!((answer.status, answer.header("set-cookie")), (403, ""), "{answer:?}");
        assert!(!answer.body.contains("my-guess"));
    }
    let answer = visitor.post("/login", &format!("token={}", page.token));
    assert_eq!((answer.status, answer.header("retry-after")), (429, "60"));
    let wrong = page.server.wait_for_log(&["web_refused", "127.0.0.1"]);
    assert!(!wrong.contains("my-guess"), "{wrong}");
    page.server.stop();
    let mut log = String::new();
    let token = page.token.clone();
    while let Some(line) = page.server.next_log_line() {
        log.push_str(&line);
    }
    assert!(!log.contains(&token) && !log.contains("my-guess") && log.contains("stopped"), "{log}");
}

#[test]
fn login_ends_when_idle_and_on_logout() {
    let page = PageServer::start(&["--set", "web.idle=1s"]);
    let operator = page.operator();
    let csrf = operator.csrf();
    // Requests of the script do not extend the login, so the login expires. The script gets 401, although
    // anonymous visitors see this page.
    wait_until("the login expires", || operator.request("GET /", &["X-Bcnet-Live: 1"], "").status == 401);
    assert_eq!(operator.get("/log").status, 303);
    let late = operator.post("/act", &format!("csrf={csrf}&action=say&text=too+late"));
    assert!(late.status == 401 && late.body.contains("id=\"login\""), "{late:?}");
    let line = page.server.wait_for_log(&["web_refused", "status=401", "Not done: you are not logged in"]);
    assert!(!line.contains("<form"), "{line}");
    // A reload of the page deletes the cookie.
    let answer = operator.get("/");
    assert!(answer.status == 200 && answer.header("set-cookie").contains("Max-Age=0"), "{answer:?}");
    assert_eq!(page.anonymous().request("GET /", &["X-Bcnet-Live: 1"], "").status, 200);
    let answer = page.anonymous().post("/login", &format!("token={}&to=%2Flog", page.token));
    assert_eq!(answer.header("location"), "/log", "the login leads to the requested page");
    let answer = page.anonymous().post("/login", &format!("token={}&to=%2F%2Fevil.example", page.token));
    assert_eq!(answer.header("location"), "/");
    let operator = page.operator();
    let answer = operator.post("/logout", &format!("csrf={}", operator.csrf()));
    assert!(answer.status == 303 && answer.header("set-cookie").contains("Max-Age=0"), "{answer:?}");
    assert_eq!(operator.get("/log").status, 303);
}

#[test]
fn page_beyond_loopback_needs_https() {
    let directory = TestDirectory::new();
    let serve = |sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["serve", "--set", "web.enabled=true"].into_iter().chain(sets).collect();
        let output = directory.bcnet(&args).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = serve(&["web.bind=0.0.0.0:0"]);
    assert!(
        error.contains("web.bind") && error.contains("certificate") && error.contains("behind_proxy"),
        "{error}"
    );
    let error = serve(&["web.certificate=a.pem"]);
    assert!(error.contains("web.certificate") && error.contains("`web.key`"), "{error}");
    let error = serve(&["web.certificate=a.pem", "web.key=b.pem"]);
    assert!(error.contains("web.certificate") && error.contains("a.pem"), "{error}");
    fs::write(directory.path("a.pem"), "nonsense").expect("written");
    let error = serve(&["web.certificate=a.pem", "web.key=b.pem"]);
    assert!(error.contains("a.pem: the file has no certificate"), "{error}");
    fs::write(directory.path("web-token"), "short").expect("written");
    let error = serve(&["web.bind=127.0.0.1:0"]);
    assert!(error.contains("web-token") && error.contains("delete the file"), "{error}");
}

#[test]
fn hsts_is_sent_over_https_only_if_set() {
    let header = |args: &[&str]| {
        let page = PageServer::start(args);
        page.anonymous().get("/login").header("strict-transport-security").to_owned()
    };
    assert_eq!(header(&["--set", "web.behind_proxy=true", "--set", "web.hsts=true"]), "max-age=31536000");
    assert_eq!(header(&["--set", "web.behind_proxy=true"]), "");
    assert_eq!(header(&["--set", "web.hsts=true"]), "");
}

/// Orchestrators mount keys with such rights, so this is no error.
#[cfg(unix)]
#[test]
fn world_readable_key_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TestDirectory::new();
    for name in ["certificate", "key"] {
        let file = directory.path(name);
        fs::copy(path(&format!("crates/bcnet/tests/tls/{name}.pem")), &file).expect("copied");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("set");
    }
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).expect("set");
    let settings = ["web.enabled=true", "web.bind=127.0.0.1:0", "web.certificate=certificate", "web.key=key"];
    let server = ServerProcess::start_in(directory, &settings.map(|set| ["--set", set]).concat(), 1);
    server.wait_for_log(&["event=\"web_key_readable\"", "chmod 640"]);
}

#[test]
fn page_behind_a_proxy_needs_the_token() {
    let page = PageServer::start(&["--set", "web.behind_proxy=true", "--set", "web.hosts=game.example"]);
    let visitor = page.anonymous();
    let host = "Host: game.example";
    for path in ["/", "/log", "/session/22101"] {
        let answer = visitor.request(&format!("GET {path}"), &[host], "");
        let login = format!("/login?to={}", path.replace('/', "%2f"));
        assert_eq!((answer.status, answer.header("location")), (303, login.as_str()), "{path}");
        assert!(
            visitor
                .request(&format!("GET {login}"), &[host], "")
                .body
                .contains(&format!("name=\"to\" value=\"{path}\""))
        );
    }
    let login = format!("token={}", page.token);
    let log_in = |forwarded: &str, login: &str| {
        visitor.request("POST /login", &[host, "Origin: https://game.example", forwarded], login)
    };
    for _ in 0..6 {
        log_in("X-Forwarded-For: 192.0.2.1", "token=wrong");
    }
    for own in
        ["X-Forwarded-For: 192.0.2.9, 192.0.2.1", "X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-For: 192.0.2.1"]
    {
        assert_eq!(log_in(own, &login).status, 429, "{own}");
    }
    let answer = log_in("X-Forwarded-For: 192.0.2.2", &login);
    let cookie = answer.header("set-cookie");
    assert!(
        answer.status == 303 && cookie.starts_with("__Host-bcnet-") && cookie.contains("; Secure"),
        "{answer:?}"
    );
}

#[test]
fn page_with_a_certificate_speaks_https_and_needs_the_token() {
    let directory = TestDirectory::new();
    let pem = |name: &str| path(&format!("crates/bcnet/tests/tls/{name}.pem"));
    let sets = [
        format!("web.certificate={}", pem("certificate").display()),
        format!("web.key={}", pem("key").display()),
    ];
    let page = PageServer::start_in(
        directory,
        &["--set", &sets[0], "--set", &sets[1], "--set", "web.bind=0.0.0.0:0"],
    );
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(pem("certificate")).expect("a certificate"))
        .expect("a valid root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let send = |request: &str, body: &str| {
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::clone(&config), name).expect("a client");
        let stream = TcpStream::connect(&page.address).expect("connected");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        let mut stream = StreamOwned::new(client, stream);
        let origin = format!("Origin: https://{}", page.address);
        stream.write_all(page.anonymous().request_text(request, &[&origin], body).as_bytes()).expect("sent");
        HttpResponse::read(stream)
    };
    let answer = send("GET /", "");
    assert_eq!((answer.status, answer.header("location")), (303, "/login?to=%2f"));
    assert_eq!(
        answer.header("strict-transport-security"),
        "",
        "the header would apply to all ports of the host"
    );
    let answer = send("POST /login", &format!("token={}", page.token));
    assert!(answer.status == 303 && answer.header("set-cookie").contains("; Secure"), "{answer:?}");
    // A client without TLS gets no page.
    let mut plain = TcpStream::connect(&page.address).expect("connected");
    plain.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut received = Vec::new();
    drop(plain.read_to_end(&mut received));
    assert!(!String::from_utf8_lossy(&received).contains("HTTP"));
}

/// Starts a server with a page in a terminal, and stops it when it is ready. Returns its output.
#[cfg(unix)]
fn terminal_output(directory: &TestDirectory) -> String {
    use portable_pty::{CommandBuilder, PtySize, native_pty_system};
    let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_bcnet"));
    command.args([
        "serve",
        "--bind",
        "127.0.0.1",
        "--set",
        "web.enabled=true",
        "--set",
        "web.bind=127.0.0.1:0",
    ]);
    command.cwd(&directory.0);
    command.env("XDG_RUNTIME_DIR", &directory.0);
    let mut server = pair.slave.spawn_command(command).expect("bcnet serve runs");
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().expect("a reader");
    let (mut shown, mut buffer) = (Vec::new(), [0; 4096]);
    let mut is_signalled = false;
    // The read fails when the program has ended.
    while let Ok(read @ 1..) = reader.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..read]);
        if !is_signalled && String::from_utf8_lossy(&shown).contains("server ready") {
            is_signalled = true;
            crate::server::signal(server.process_id().expect("a process"), "TERM");
        }
    }
    server.wait().expect("ended");
    String::from_utf8_lossy(&shown).into_owned()
}

#[cfg(unix)]
#[test]
fn terminal_shows_the_token_once() {
    let directory = TestDirectory::new();
    let first = terminal_output(&directory);
    let token = fs::read_to_string(directory.path("web-token")).expect("a token");
    assert!(first.contains(&format!("stored in {}", directory.path("web-token").display())), "{first}");
    assert_eq!(first.matches(token.trim()).count(), 1, "{first}");
    let second = terminal_output(&directory);
    assert!(second.contains("server ready") && !second.contains(token.trim()), "{second}");
}
