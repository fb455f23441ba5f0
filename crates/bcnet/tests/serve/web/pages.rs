//! What the page shows, and to whom.

use super::{Page, TRAP};
use crate::player::{join_two, together};

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
    let operators = [
        "/log".into(),
        "/bans".into(),
        "/settings".into(),
        format!("/ban/{port}/2"),
        "/ban?target=127.0.0.1".into(),
    ];
    for path in operators {
        let answer = visitor.get(&path);
        assert!(
            answer.status == 303 && answer.header("location").starts_with("/login?to=%2f"),
            "{path}: {answer:?}"
        );
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
    assert!(live(0).starts_with("<h1>Overview</h1>"), "it tells what it is about");
    let again = live(first);
    assert!(again.contains("id=\"totals\"") && (!again.contains("id=\"plots\"") || until(&again) > first));
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
    let link = "<a href=\"/standings\">Standings</a>";
    assert!(page.visitor().get("/login").body.contains(link));
    let without = Page::start(&[]);
    assert_eq!(without.visitor().get("/standings").status, 404);
    assert!(!without.visitor().get("/").body.contains("Standings"));
}
