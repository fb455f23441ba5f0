//! The content of the pages, for operators and for anonymous visitors.

use super::{HOSTILE_NAME, PageServer};
use crate::player::{join_two, run_both_until};
use crate::server::wait_until;

#[test]
fn local_browser_without_token_sees_only_statistics() {
    let page = PageServer::start(&[]);
    let [mut alice, mut hostile] = join_two(page.server.address(), ["Alice", HOSTILE_NAME]);
    alice.chat("a secret");
    let line = alice.chat_payload("a secret");
    run_both_until(&mut alice, &mut hostile, |hostile| hostile.has_received(&line));
    let visitor = page.anonymous();
    let port = page.server.ports[0];
    for path in ["/".into(), format!("/session/{port}"), format!("/player/{port}/2")] {
        let shown = visitor.get(&path);
        assert_eq!(shown.status, 200, "{path}");
        assert!(shown.body.contains("Alice") && !shown.body.contains("secret"), "{}", shown.body);
        assert!(!shown.body.contains("127.0.0.1") && !shown.body.contains("/act"), "{}", shown.body);
        assert!(!shown.body.contains(HOSTILE_NAME) && shown.body.len() < 100_000);
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
        assert_eq!(visitor.request("GET /", &[header], "").status, 303, "{header}: the client may be remote");
    }
    assert_eq!(visitor.request("PUT /", &[], "").status, 405);
}

#[test]
fn page_loads_nothing_foreign_and_cannot_be_framed() {
    let page = PageServer::start(&[]);
    let answer = page.anonymous().get("/");
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
    assert!(!page.anonymous().get("/").body.contains(nonce), "each answer has its own nonce");
}

#[test]
fn live_update_sends_plots_only_once() {
    let page = PageServer::start(&[]);
    let visitor = page.anonymous();
    let until = |page: &str| {
        page.split("data-until=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next()?.parse().ok())
            .unwrap_or(0_u64)
    };
    let mut shown = visitor.get("/").body;
    // The first sample comes after some seconds.
    wait_until("the page has a sample", || {
        shown = visitor.get("/").body;
        until(&shown) != 0
    });
    for plot in ["players", "datagrams", "acks", "retransmissions"] {
        assert!(shown.contains(&format!("id=\"plot-{plot}\"")), "{plot}");
    }
    let live = |has: u64| visitor.request("GET /", &[&format!("X-Bcnet-Live: {has}")], "").body;
    let first = until(&shown);
    assert!(live(0).contains("id=\"plots\"") && !live(0).contains("<style"));
    assert!(live(0).starts_with("<h1>Overview</h1>"), "the fragment has the title");
    let again = live(first);
    assert!(again.contains("id=\"totals\"") && (!again.contains("id=\"plots\"") || until(&again) > first));
}

/// With the setting, everyone may see the standings, and nothing else.
#[test]
fn standings_are_public_if_enabled() {
    let page = PageServer::start(&[
        "--set",
        "web.behind_proxy=true",
        "--set",
        "web.standings=true",
        "--set",
        "scores.file=scores.db",
        "--set",
        "scores.shortest=0s",
    ]);
    let visitor = page.anonymous();
    assert!(visitor.get("/standings").body.contains("No rounds have been played yet"));
    let _players = join_two(page.server.address(), ["Alice", HOSTILE_NAME]);
    page.server.ctl_json(&["restart"]);
    wait_until("the round is stored", || page.server.ctl_json(&["status"])["scores"]["kept"] == 1);
    // The cache is up to ten seconds old, so a new server shows the standings.
    let directory = page.server.kill();
    let settings =
        ["--set", "web.standings=true", "--set", "scores.file=scores.db", "--set", "web.behind_proxy=true"];
    let page = PageServer::start_in(directory, &settings);
    let answer = page.anonymous().get("/standings");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains(">Alice<") && answer.body.contains("&lt;script&gt;alert(1)"), "{answer:?}");
    assert!(!answer.body.contains(HOSTILE_NAME) && !answer.body.contains("127.0.0.1:"), "{answer:?}");
    assert_eq!(page.anonymous().get("/").status, 303, "all other pages need a login");
    let link = "<a href=\"/standings\">Standings</a>";
    assert!(page.anonymous().get("/login").body.contains(link));
    let without = PageServer::start(&[]);
    assert_eq!(without.anonymous().get("/standings").status, 404);
    assert!(!without.anonymous().get("/").body.contains("Standings"));
}
