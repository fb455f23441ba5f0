//! Browsers send any query to a session, and receive any input of strangers. Nothing panics. Answers go only to
//! clients that asked, no network exceeds its quota (S-07), complete answers arrive complete, and no answer is a
//! query (S-05). The memory of a browser is bounded, and its output is printable.
#![no_main]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_fuzz::FuzzInput;
use bcnet_session::browser::{ReplyAssembler, STATUS_QUERY, ServerReply};
use bcnet_session::{Config, Session};
use bcnet_transport::Time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut script = FuzzInput::new(input);
    let config = Config { name: script.text(), say_prefix: script.text(), ..Config::default() };
    let mut world = QueryHarness {
        session: Session::new(config, 0x5EED),
        now: Time::from_micros(1),
        sent: BTreeMap::new(),
        browser: ReplyAssembler::default(),
    };
    while let Some(step) = script.step() {
        match step % 4 {
            0 => world.ask(browser(script.byte()), &[b"\\", script.bytes()].concat()),
            1 => world.ask(browser(script.byte()), STATUS_QUERY),
            2 => check_reply(world.browser.add(script.bytes())),
            _ => world.now = world.now + script.time(),
        }
    }
});

/// Returns one of two addresses in each network.
fn browser(byte: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, byte / 2 % 16, byte % 2 + 1), 6500)
}

struct QueryHarness {
    session: Session,
    now: Time,
    /// Times and sizes of the answers to each network.
    sent: BTreeMap<[u8; 3], Vec<(Time, usize)>>,
    browser: ReplyAssembler,
}

impl QueryHarness {
    fn ask(&mut self, from: SocketAddrV4, text: &[u8]) {
        let mut whole = None;
        let mut assembly = ReplyAssembler::default();
        let answers = self.answers(from, text);
        for answer in &answers {
            assert!(whole.is_none(), "behind the last");
            whole = assembly.add(answer);
            check_reply(self.browser.add(answer));
            // A server that takes an answer for a query would answer for ever.
            assert_eq!(
                self.answers(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101), answer),
                Vec::<Vec<u8>>::new()
            );
        }
        assert_eq!(whole.is_some(), !answers.is_empty(), "a reply is whole or none");
        if text == STATUS_QUERY
            && let Some(reply) = &whole
        {
            assert!(reply.get("hostname").is_some() && reply.get("numplayers") == Some("0"), "{reply:?}");
        }
        self.check_quota(from, answers.iter().map(Vec::len).sum());
    }

    fn answers(&mut self, from: SocketAddrV4, text: &[u8]) -> Vec<Vec<u8>> {
        let mut buffer = [0; 2048];
        self.session.handle_datagram(from, &mut text.to_vec(), self.now);
        let mut answers = Vec::new();
        while let Some(transmit) = self.session.poll_transmit(&mut buffer, self.now) {
            assert_eq!(transmit.to, from);
            assert!(answers.len() < 16);
            answers.push(buffer[..transmit.len].to_vec());
        }
        answers
    }

    /// Checks that no network gets more than 26,000 bytes in any ten seconds.
    fn check_quota(&mut self, to: SocketAddrV4, bytes: usize) {
        let [a, b, c, _] = to.ip().octets();
        let sent = self.sent.entry([a, b, c]).or_default();
        sent.retain(|(at, _)| self.now.since(*at) < Duration::from_secs(10));
        sent.push((self.now, bytes));
        let sum: usize = sent.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum <= 26_000, "{sum}");
    }
}

fn check_reply(reply: Option<ServerReply>) {
    let Some(reply) = reply else { return };
    assert!(reply.pairs.len() <= 16 * 512);
    let texts = reply.pairs.iter().flat_map(|(key, value)| [key, value]);
    assert!(texts.into_iter().all(|text| text.chars().count() <= 1024 && !text.contains(char::is_control)));
    assert!(reply.players().count() + reply.rules().count() == reply.pairs.len());
}
