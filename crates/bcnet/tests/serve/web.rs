//! The page, as browsers and as those who are none see it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::player::{Player, join_two, together};
use crate::run::path;
use crate::server::{Directory, PATIENCE, Server};

/// A server with a page.
struct Page {
    server: Server,
    /// Host and port.
    place: String,
    token: String,
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            // Whoever was refused before it had said all may see its connection cut off.
            Err(error) if CUT_OFF.contains(&error.kind()) => {}
            Err(error) => panic!("{error}"),
        }
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.into())).collect();
        Self { status: status.expect("a status"), headers, body: body.into() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

const CUT_OFF: [ErrorKind; 3] =
    [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::UnexpectedEof];

/// A browser: where it is, and what it was given to keep.
struct Browser {
    place: String,
    cookie: String,
}

impl Browser {
    fn ask(&self, request: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.place).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(self.write(request, headers, body).as_bytes()).expect("sent");
        Answer::read(stream)
    }

    /// Returns a request. Who gives a Host or an Origin means another than the right one.
    fn write(&self, request: &str, headers: &[&str], body: &str) -> String {
        let has = |name: &str| headers.iter().any(|header| header.starts_with(name));
        let mut text = format!("{request} HTTP/1.1\r\nConnection: close\r\nCookie: {}\r\n", self.cookie);
        if !has("Host") {
            text += &format!("Host: {}\r\n", self.place);
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
            text += "Content-Type: application/x-www-form-urlencoded\r\n";
            if !has("Origin") {
                text += &format!("Origin: http://{}\r\n", self.place);
            }
        }
        for header in headers.iter().filter(|header| !header.ends_with("none")) {
            text += &format!("{header}\r\n");
        }
        text + "\r\n" + body
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], "")
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        self.ask(&format!("POST {path}"), &[], body)
    }

    /// What a form of a page must bring along.
    fn csrf(&self) -> String {
        let page = self.get("/").body;
        let rest = page.split("name=\"csrf\" value=\"").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
        rest.split('"').next().expect("a value").into()
    }

    /// Sends a form as the page does, and returns what is told then.
    fn act(&self, form: &str) -> String {
        let answer = self.post("/act", &format!("csrf={}&{form}", self.csrf()));
        assert_eq!(answer.status, 303, "{answer:?}");
        let page = self.get(answer.header("location")).body;
        let rest = page.split("id=\"note\">").nth(1).unwrap_or_else(|| panic!("nothing told: {page}"));
        rest.split("</p>").next().expect("a text").into()
    }
}

impl Page {
    fn start(args: &[&str]) -> Self {
        Self::start_in(Directory::new(), args)
    }

    fn start_in(directory: Directory, args: &[&str]) -> Self {
        let bind =
            if args.iter().any(|arg| arg.starts_with("web.bind")) { "" } else { "web.bind=127.0.0.1:0" };
        let mut all = vec!["--set", "web.enabled=true"];
        if !bind.is_empty() {
            all.extend(["--set", bind]);
        }
        all.extend(args);
        let server = Server::start_in(directory, &all, 1);
        let line = server.logged(&["event=\"started\""]);
        let url = line.split("web=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a place");
        let place = url.split('/').nth(2).expect("host and port").replace("0.0.0.0", "127.0.0.1");
        let token = fs::read_to_string(server.directory.path("web-token")).expect("a token");
        Self { server, place, token: token.trim().into() }
    }

    fn visitor(&self) -> Browser {
        Browser { place: self.place.clone(), cookie: String::new() }
    }

    fn operator(&self) -> Browser {
        let answer = self.visitor().post("/login", &format!("token={}&name=Ann", self.token));
        assert_eq!((answer.status, answer.header("location")), (303, "/"), "{answer:?}");
        let cookie = answer.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        Browser { cookie, ..self.visitor() }
    }
}

/// Whose name and chat are a trap for pages.
const TRAP: &str = "<script>alert(1)</script>";

#[test]
fn without_the_token_the_machine_itself_sees_figures_and_nothing_else() {
    let page = Page::start(&[]);
    let [mut alice, mut trap] = join_two(page.server.address(), ["Alice", TRAP]);
    alice.chat("a secret");
    let line = alice.chat_of("a secret");
    together(&mut alice, &mut trap, |trap| trap.has(&line));
    let visitor = page.visitor();
    let port = page.server.ports[0];
    for path in ["/".into(), format!("/session/{port}"), format!("/player/{port}/2")] {
        let shown = visitor.get(&path);
        assert_eq!(shown.status, 200, "{path}");
        assert!(shown.body.contains("Alice") && !shown.body.contains("secret"), "{}", shown.body);
        assert!(!shown.body.contains("127.0.0.1") && !shown.body.contains("/act"), "{}", shown.body);
        assert!(!shown.body.contains(TRAP) && shown.body.len() < 100_000);
    }
    assert!(visitor.get("/").body.contains("&lt;script&gt;"));
    for path in ["/log".into(), "/bans".into(), "/settings".into(), format!("/ban/{port}/2")] {
        let answer = visitor.get(&path);
        assert_eq!((answer.status, answer.header("location")), (303, "/login"), "{path}");
    }
    let kick = format!("action=kick&session={port}&player=2&name=Alice");
    assert_eq!(visitor.post("/act", &kick).status, 401);
    assert_eq!(visitor.get("/nothing").status, 404);
    for header in
        ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1", "Via: 1.1 proxy"]
    {
        assert_eq!(visitor.ask("GET /", &[header], "").status, 303, "{header}: it comes from elsewhere");
    }
    assert_eq!(visitor.ask("PUT /", &[], "").status, 405);
}

#[test]
fn a_page_asks_nobody_else_and_no_other_page_may_show_it() {
    let page = Page::start(&[]);
    let answer = page.visitor().get("/");
    let policy = answer.header("content-security-policy");
    let nonce =
        policy.split("script-src 'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).expect("a nonce");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe") && answer.body.matches(nonce).count() == 2, "{policy}");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("referrer-policy"), "same-origin");
    assert!(
        !answer.body.contains("http://")
            && !answer.body.contains("https://")
            && !answer.body.contains("style=")
    );
    assert!(!page.visitor().get("/").body.contains(nonce), "each answer has its own");
}

#[test]
fn an_operator_sees_all_and_kicks_a_player_who_reads_why() {
    let page = Page::start(&[]);
    let [mut alice, mut trap] = join_two(page.server.address(), ["Alice", TRAP]);
    let line = alice.chat_of(TRAP);
    alice.chat(TRAP);
    together(&mut alice, &mut trap, |trap| trap.has(&line));
    let operator = page.operator();
    let port = page.server.ports[0];
    let session = operator.get(&format!("/session/{port}")).body;
    assert!(
        session.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !session.contains(TRAP),
        "chat is text"
    );
    let player = operator.get(&format!("/player/{port}/2")).body;
    assert!(player.contains("127.0.0.1:") && player.contains("id=\"dump\""), "{player}");
    assert!(operator.get("/log").body.contains("in_game"));
    // Whoever has the id now must be the one that was looked at.
    let told = operator.act(&format!("action=kick&session={port}&player=2&name=Bob"));
    assert!(told.contains("Bob has left"), "{told}");
    let told = operator.act(&format!("action=kick&session={port}&player=2&name=Alice&reason=no+ramming"));
    assert!(told.contains("Alice is out"), "{told}");
    alice.until_over();
    assert!(alice.heard.iter().any(|text| text.windows(10).any(|part| part == b"no ramming")));
    let history = page.server.ask(&["history"]);
    assert_eq!(history["history"][0]["by"], "Ann (page)", "{history}");
}

#[test]
fn a_ban_shows_first_who_else_would_go_and_a_form_of_yesterday_is_refused() {
    let page = Page::start(&["--set", "session.trusted="]);
    let [mut alice, mut bob] = join_two(page.server.address(), ["Alice", "Bob"]);
    let (operator, port) = (page.operator(), page.server.ports[0]);
    let shown = operator.get(&format!("/ban/{port}/2")).body;
    let others =
        shown.split("id=\"others\"").nth(1).and_then(|rest| rest.split("</ul>").next()).expect("a list");
    assert!(others.contains("Bob") && !others.contains("Alice") && shown.contains("Ban all 2"), "{shown}");
    let ban = format!("action=ban&session={port}&player=2&name=Alice&expiry=2h&reason=ramming");
    let told = operator.act(&ban);
    assert!(told.contains("look again"), "it does not say who was seen: {told}");
    let told = operator.act(&format!("{ban}&others={port}%233"));
    assert!(told.contains("banned 127.0.0.1") && told.contains("Alice, Bob"), "{told}");
    alice.until_over();
    bob.until_over();
    let bans = operator.get("/bans").body;
    assert!(
        bans.contains("127.0.0.1</td>") && bans.contains("ramming") && bans.contains("Ann (page)"),
        "{bans}"
    );
    let told = operator.act("action=unban&target=127.0.0.1");
    assert!(told.contains("may play again"), "{told}");
    assert!(operator.get("/bans").body.contains("Nobody is banned."));
}

#[test]
fn an_operator_can_do_by_the_page_what_the_console_can() {
    let page = Page::start(&[]);
    let mut alice = Player::join(page.server.address(), "Alice");
    let (operator, port) = (page.operator(), page.server.ports[0]);
    let about = format!("session={port}&player=2&name=Alice");
    let has = |alice: &Player, text: &[u8]| {
        alice.heard.iter().any(|heard| heard.windows(text.len()).any(|part| part == text))
    };
    operator.act("action=say&text=hello+all");
    alice.until(|alice| has(alice, b"hello all"));
    operator.act(&format!("action=tell&{about}&text=only+you"));
    alice.until(|alice| has(alice, b"only you"));
    assert!(operator.act(&format!("action=mute&{about}")).contains("nobody hears Alice"));
    assert!(operator.get(&format!("/player/{port}/2")).body.contains("in game, muted"));
    assert!(operator.act(&format!("action=unmute&{about}")).contains("heard again"));
    let told = operator
        .act(&format!("action=set&session={port}&key=session.1.welcome&value=Ahoy%0D%0A%22all%22%0D%0A"));
    assert!(told.contains("now"), "{told}");
    assert!(
        operator.get(&format!("/settings?session={port}")).body.contains("Ahoy\n&quot;all&quot;</textarea>")
    );
    let told = operator.act("action=set&key=web.enabled&value=false");
    assert!(told.contains("in the configuration only"), "{told}");
    assert!(
        operator.act(&format!("action=set&session={port}&key=session.1.port&value=1")).contains("is fixed")
    );
    operator.act("action=allow&target=192.0.2.0%2F24");
    assert!(operator.get("/bans").body.contains("192.0.2.0/24"));
    operator.act(&format!("action=disallow&session={port}&target=192.0.2.0%2F24"));
    assert!(operator.get("/bans").body.contains("Everyone may join"));
    assert!(operator.act(&format!("action=restart&session={port}")).contains("next round"));
    assert!(
        operator.act("action=stop").contains("which session"),
        "the server itself is not stopped by a page"
    );
    assert!(operator.act(&format!("action=stop&session={port}")).contains("said goodbye"));
    alice.until_over();
    assert!(operator.get(&format!("/session/{port}")).body.contains("Start this session"));
    operator.act(&format!("action=start&session={port}"));
    assert!(operator.act("action=fly").contains("which player"));
    let log = operator.get("/log?show=chat").body;
    assert!(log.contains("hello all") && !log.contains("web_login"), "{log}");
}

#[test]
fn plots_grow_and_are_sent_once() {
    let page = Page::start(&[]);
    let visitor = page.visitor();
    let until = |page: &str| {
        page.split("data-until=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next()?.parse().ok())
            .unwrap_or(0_u64)
    };
    let mut shown = visitor.get("/").body;
    // The first sample comes after some seconds.
    while until(&shown) == 0 {
        shown = visitor.get("/").body;
    }
    for plot in ["players", "datagrams", "acks", "retransmissions"] {
        assert!(shown.contains(&format!("id=\"plot-{plot}\"")), "{plot}");
    }
    let live = |has: u64| visitor.ask("GET /", &[&format!("X-Bcnet-Live: {has}")], "").body;
    let first = until(&shown);
    assert!(live(0).contains("id=\"plots\"") && !live(0).contains("<style"));
    let again = live(first);
    assert!(again.contains("id=\"totals\"") && (!again.contains("id=\"plots\"") || until(&again) > first));
}

#[test]
fn forms_of_others_and_names_of_others_are_refused() {
    let page = Page::start(&[]);
    let operator = page.operator();
    let say = format!("csrf={}&action=say&text=hello", operator.csrf());
    for (origin, status) in
        [("Origin: none", 403), ("Origin: null", 403), ("Origin: http://evil.example", 403)]
    {
        assert_eq!(operator.ask("POST /act", &[origin], &say).status, status, "{origin}");
    }
    assert_eq!(
        operator.post("/act", "action=say&text=hello").status,
        403,
        "without what the page has in its forms"
    );
    assert_eq!(operator.post("/act", "csrf=00&action=say&text=hello").status, 403);
    let other = page.operator();
    assert_eq!(other.post("/act", &say).status, 403, "with that of another login");
    for host in ["Host: evil.example", "Host: none", "Host: localhost.evil.example:80"] {
        let answer = operator.ask("GET /", &[host], "");
        assert!(
            [400, 421].contains(&answer.status) && !answer.body.contains("Overview"),
            "{host}: {answer:?}"
        );
    }
    let login = format!("token={}", page.token);
    let answer = page.visitor().ask("POST /login", &["Origin: http://evil.example"], &login);
    assert_eq!((answer.status, answer.header("set-cookie")), (403, ""));
    assert_eq!(operator.ask("GET http://evil.example/", &[], "").status, 400);
    assert_eq!(operator.ask("POST /act", &["Content-Type: text/plain"], "").status, 415);
    assert_eq!(operator.post("/act", &say).status, 303, "the right form is taken");
}

/// Whoever has the token is no user of the machine yet.
#[test]
fn a_browser_names_no_files_addresses_or_hooks() {
    let page = Page::start(&[]);
    let operator = page.operator();
    for key in
        ["session.1.manifests", "session.manifests", "web.bind", "log.file", "server.bans", "capture.file"]
    {
        let told = operator.act(&format!("action=set&key={key}&value=/etc/passwd&save=on"));
        assert!(told.starts_with("✘ Not done: "), "{key}: {told}");
    }
    let settings = page.server.ask(&["get", "manifests"])["settings"].clone();
    assert_eq!(settings[0]["value"], "[]");
    assert!(!operator.get(&format!("/settings?session={}", page.server.ports[0])).body.contains("manifests"));
}

#[test]
fn guesses_are_counted_and_the_token_stands_in_no_log() {
    let page = Page::start(&["--set", "log.level=trace"]);
    let visitor = page.visitor();
    let answer = page.visitor().post("/login", &format!("token={}", page.token));
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
    let wrong = page.server.logged(&["web_refused", "127.0.0.1"]);
    assert!(!wrong.contains("my-guess"), "{wrong}");
    page.server.stop();
    let mut log = String::new();
    let token = page.token.clone();
    while let Some(line) = page.server.next_logged() {
        log.push_str(&line);
    }
    assert!(!log.contains(&token) && !log.contains("my-guess") && log.contains("stopped"), "{log}");
}

#[test]
fn a_login_ends_when_it_is_not_used_and_when_it_is_told_to() {
    let page = Page::start(&["--set", "web.idle=500ms"]);
    let operator = page.operator();
    // What the page asks by itself does not count, so this ends.
    while operator.ask("GET /log", &["X-Bcnet-Live: 1"], "").status != 401 {}
    assert_eq!(operator.get("/log").status, 303);
    let operator = page.operator();
    let answer = operator.post("/logout", &format!("csrf={}", operator.csrf()));
    assert!(answer.status == 303 && answer.header("set-cookie").contains("Max-Age=0"), "{answer:?}");
    assert_eq!(operator.get("/log").status, 303);
}

#[test]
fn what_is_too_large_is_refused() {
    let page = Page::start(&[]);
    let operator = page.operator();
    let long = "x".repeat(40_000);
    assert_eq!(operator.post("/act", &format!("text={long}")).status, 413);
    assert_eq!(operator.get(&format!("/?{long}")).status, 431);
    let header = format!("X-Long: {long}");
    assert_eq!(operator.ask("GET /", &[&header], "").status, 431);
    let many: Vec<String> = (0..200).map(|n| format!("X-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(operator.ask("GET /", &many, "").status, 431);
    assert_eq!(operator.get("/").status, 200);
}

#[test]
fn a_thousand_connections_that_say_half_of_something_keep_nobody_out() {
    let page = Page::start(&[]);
    let mut alice = Player::join(page.server.address(), "Alice");
    let operator = page.operator();
    let form = ["Content-Length: 900", "Content-Type: application/x-www-form-urlencoded"];
    let half = operator.write("POST /act", &form, "");
    let mut open = Vec::new();
    for n in 0..1000 {
        let mut stream = TcpStream::connect(&page.place).expect("connected");
        let text = if n % 2 == 0 { &half } else { "GET / HTT" };
        stream.write_all(text.as_bytes()).expect("sent");
        open.push(stream);
        // As many as a test may have open.
        if open.len() > 200 {
            let mut oldest = open.remove(0);
            oldest.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut rest = Vec::new();
            // It gave way: it is closed, without an answer.
            drop(oldest.read_to_end(&mut rest));
            assert_eq!(rest, b"");
        }
    }
    assert_eq!(operator.get("/").status, 200);
    let mut bob = Player::connect(page.server.address(), "Bob");
    together(&mut alice, &mut bob, Player::is_in_game);
}

#[test]
fn beyond_the_machine_there_is_no_page_without_https() {
    let directory = Directory::new();
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
    assert!(error.contains("web.certificate") && error.contains("`key`"), "{error}");
    let error = serve(&["web.certificate=a.pem", "web.key=b.pem"]);
    assert!(error.contains("web.certificate") && error.contains("a.pem"), "{error}");
    fs::write(directory.path("a.pem"), "nonsense").expect("written");
    let error = serve(&["web.certificate=a.pem", "web.key=b.pem"]);
    assert!(error.contains("a.pem: there is no certificate"), "{error}");
    fs::write(directory.path("web-token"), "short").expect("written");
    let error = serve(&["web.bind=127.0.0.1:0"]);
    assert!(error.contains("web-token") && error.contains("delete the file"), "{error}");
}

#[test]
fn behind_a_proxy_everything_needs_the_token() {
    let page = Page::start(&["--set", "web.behind_proxy=true", "--set", "web.hosts=game.example"]);
    let visitor = page.visitor();
    let host = "Host: game.example";
    for path in ["/", "/log", "/session/22101"] {
        let answer = visitor.ask(&format!("GET {path}"), &[host], "");
        assert_eq!((answer.status, answer.header("location")), (303, "/login"), "{path}");
    }
    let login = format!("token={}", page.token);
    let entered = |forwarded: &str, login: &str| {
        visitor.ask("POST /login", &[host, "Origin: https://game.example", forwarded], login)
    };
    for _ in 0..6 {
        entered("X-Forwarded-For: 192.0.2.1", "token=wrong");
    }
    assert_eq!(entered("X-Forwarded-For: 192.0.2.9, 192.0.2.1", &login).status, 429);
    let answer = entered("X-Forwarded-For: 192.0.2.2", &login);
    let cookie = answer.header("set-cookie");
    assert!(
        answer.status == 303 && cookie.starts_with("__Host-bcnet-") && cookie.contains("; Secure"),
        "{answer:?}"
    );
}

#[test]
fn with_a_certificate_the_page_speaks_https_and_needs_the_token() {
    let directory = Directory::new();
    let pem = |name: &str| path(&format!("crates/bcnet/tests/serve/tls/{name}.pem"));
    let sets = [
        format!("web.certificate={}", pem("certificate").display()),
        format!("web.key={}", pem("key").display()),
    ];
    let page =
        Page::start_in(directory, &["--set", &sets[0], "--set", &sets[1], "--set", "web.bind=0.0.0.0:0"]);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem("certificate")).expect("a certificate")).expect("taken");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let ask = |request: &str, body: &str| {
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::clone(&config), name).expect("a client");
        let stream = TcpStream::connect(&page.place).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut stream = StreamOwned::new(client, stream);
        let origin = format!("Origin: https://{}", page.place);
        stream.write_all(page.visitor().write(request, &[&origin], body).as_bytes()).expect("sent");
        Answer::read(stream)
    };
    let answer = ask("GET /", "");
    assert_eq!((answer.status, answer.header("location")), (303, "/login"));
    assert_eq!(answer.header("strict-transport-security"), "", "it would bind all other ports of the host");
    let answer = ask("POST /login", &format!("token={}", page.token));
    assert!(answer.status == 303 && answer.header("set-cookie").contains("; Secure"), "{answer:?}");
    // Who speaks in the clear gets no page.
    let mut plain = TcpStream::connect(&page.place).expect("connected");
    plain.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut heard = Vec::new();
    drop(plain.read_to_end(&mut heard));
    assert!(!String::from_utf8_lossy(&heard).contains("HTTP"));
}

/// Everyone may see the standings, if the host says so, and nothing else.
#[test]
fn standings_are_for_everyone_if_the_host_says_so() {
    let page = Page::start(&[
        "--set",
        "web.behind_proxy=true",
        "--set",
        "web.standings=true",
        "--set",
        "scores.file=scores.db",
        "--set",
        "scores.shortest=0s",
    ]);
    let visitor = page.visitor();
    assert!(visitor.get("/standings").body.contains("Nobody has played yet"));
    let _players = join_two(page.server.address(), ["Alice", TRAP]);
    page.server.ask(&["restart"]);
    while page.server.ask(&["status"])["scores"]["kept"] != 1 {}
    // They are up to ten seconds old, so another server shows them.
    let directory = page.server.kill();
    let settings =
        ["--set", "web.standings=true", "--set", "scores.file=scores.db", "--set", "web.behind_proxy=true"];
    let page = Page::start_in(directory, &settings);
    let answer = page.visitor().get("/standings");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains(">Alice<") && answer.body.contains("&lt;script&gt;alert(1)"), "{answer:?}");
    assert!(!answer.body.contains(TRAP) && !answer.body.contains("127.0.0.1:"), "{answer:?}");
    assert_eq!(page.visitor().get("/").status, 303, "all else needs the token");
    let without = Page::start(&[]);
    assert_eq!(without.visitor().get("/standings").status, 404);
}

/// Starts a server with a page in a terminal, ends it when it is ready, and returns all that it showed.
#[cfg(unix)]
fn shown_in_a_terminal(directory: &Directory) -> String {
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
    let mut is_told = false;
    // It ends with an error when the program does.
    while let Ok(read @ 1..) = reader.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..read]);
        if !is_told && String::from_utf8_lossy(&shown).contains("server ready") {
            is_told = true;
            crate::server::signal(server.process_id().expect("a process"), "TERM");
        }
    }
    server.wait().expect("ended");
    String::from_utf8_lossy(&shown).into_owned()
}

#[cfg(unix)]
#[test]
fn a_terminal_shows_the_token_once() {
    let directory = Directory::new();
    let first = shown_in_a_terminal(&directory);
    let token = fs::read_to_string(directory.path("web-token")).expect("a token");
    assert!(first.contains(&format!("kept in {}", directory.path("web-token").display())), "{first}");
    assert_eq!(first.matches(token.trim()).count(), 1, "{first}");
    let second = shown_in_a_terminal(&directory);
    assert!(second.contains("server ready") && !second.contains(token.trim()), "{second}");
}
