//! Requests and connections beyond the limits of the page.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::PageServer;
use crate::player::{LoopbackPlayer, run_both_until};
use crate::server::TEST_TIMEOUT;

#[test]
fn oversized_requests_are_refused() {
    let page = PageServer::start(&[]);
    let operator = page.operator();
    let long = "x".repeat(40_000);
    assert_eq!(operator.post("/act", &format!("text={long}")).status, 413);
    assert_eq!(operator.get(&format!("/?{long}")).status, 431);
    let header = format!("X-Long: {long}");
    assert_eq!(operator.request("GET /", &[&header], "").status, 431);
    let many: Vec<String> = (0..200).map(|n| format!("X-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(operator.request("GET /", &many, "").status, 431);
    assert_eq!(operator.get("/").status, 200);
}

#[test]
fn a_thousand_stalled_connections_do_not_block_others() {
    let page = PageServer::start(&[]);
    let mut alice = LoopbackPlayer::join(page.server.address(), "Alice");
    let operator = page.operator();
    let form = ["Content-Length: 900", "Content-Type: application/x-www-form-urlencoded"];
    let half = operator.request_text("POST /act", &form, "");
    let mut open = Vec::new();
    for n in 0..1000 {
        let mut stream = TcpStream::connect(&page.address).expect("connected");
        let text = if n % 2 == 0 { &half } else { "GET / HTT" };
        stream.write_all(text.as_bytes()).expect("sent");
        open.push(stream);
        // The number of files that a test may have open.
        if open.len() > 200 {
            let mut oldest = open.remove(0);
            oldest.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
            let mut rest = Vec::new();
            // The server closed it without an answer.
            drop(oldest.read_to_end(&mut rest));
            assert_eq!(rest, b"");
        }
    }
    assert_eq!(operator.get("/").status, 200);
    let mut bob = LoopbackPlayer::connect(page.server.address(), "Bob");
    run_both_until(&mut alice, &mut bob, LoopbackPlayer::is_in_game);
}
