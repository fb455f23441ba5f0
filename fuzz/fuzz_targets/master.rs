//! Servers, games and strangers send any input to a list server. No input causes a panic, and no table exceeds its limit.
//! Only addresses that answered their challenge are listed or queried. No address gets more bytes than it sent
//! before that. No game gets a list without the answer to its challenge.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_fuzz::FuzzInput;
use bcnet_session::challenge_response;
use bcnet_session::list_server::{
    Challenge, ListFormat, MAX_LIST_EVENTS, MAX_SERVERS, ServerList, greeting, is_complete_request,
};
use bcnet_transport::Time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut script = FuzzInput::new(input);
    let mut world = ListServerHarness {
        list: ServerList::new(0x5EED),
        now: Time::from_micros(1),
        challenges: BTreeMap::new(),
        verified: BTreeSet::new(),
    };
    while let Some(step) = script.step() {
        match step % 8 {
            0 | 1 => {
                let (from, port) =
                    (server(script.byte()), u16::from_le_bytes([script.byte(), script.byte() % 4]));
                let end = if step / 8 == 0 { "\\final\\" } else { "" };
                world.receive(from, format!("\\heartbeat\\{port}\\gamename\\bcommander{end}").as_bytes());
            }
            2 => world.answer_challenge(server(script.byte())),
            3 => {
                let (mut from, port) =
                    (server(script.byte()), u16::from_le_bytes([script.byte(), script.byte() % 4]));
                from.set_port(port);
                world.receive(from, b"\\gamename\\bcommander\\hostname\\x\\final\\\\queryid\\1.1");
            }
            4 => world.receive(server(script.byte()), &[b"\\", script.bytes()].concat()),
            5 => world.request(script.bytes(), script.byte()),
            6 => {
                for _ in 0..script.byte() % 16 {
                    world.now = world.now + script.time();
                }
            }
            _ => world.poll_queries(),
        }
        world.check();
    }
});

fn server(byte: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, byte / 64, byte / 16 % 4 + 1), 22101 + u16::from(byte % 16))
}

struct ListServerHarness {
    list: ServerList,
    now: Time,
    challenges: BTreeMap<SocketAddrV4, Vec<u8>>,
    /// Addresses that answered their challenge.
    verified: BTreeSet<Ipv4Addr>,
}

impl ListServerHarness {
    fn receive(&mut self, from: SocketAddrV4, text: &[u8]) {
        let Some((to, answer)) = self.list.handle_datagram(from, text, self.now) else { return };
        assert_eq!(to.ip(), from.ip());
        assert!(answer.len() <= text.len(), "{} for {}", answer.len(), text.len());
        match answer.strip_prefix(b"\\secure\\") {
            Some(challenge) => drop(self.challenges.insert(to, challenge.to_vec())),
            None => assert!(self.verified.contains(to.ip()), "{to} is asked"),
        }
    }

    /// Sends the right answer to the last challenge.
    fn answer_challenge(&mut self, from: SocketAddrV4) {
        let Some(challenge) = self.challenges.remove(&from) else { return };
        self.verified.insert(*from.ip());
        self.receive(
            from,
            format!(
                "\\gamename\\bcommander\\challenge_response\\{}\\final\\",
                challenge_response(&challenge)
            )
            .as_bytes(),
        );
    }

    /// Requests the list by TCP, as a game does.
    fn request(&mut self, request: &[u8], random: u8) {
        let challenge = Challenge::new(random.into());
        assert!(greeting(&challenge).starts_with(b"\\basic\\"));
        let answer = challenge_response(challenge.text().as_bytes());
        let has_answer = request.windows(answer.len()).any(|part| part == answer.as_bytes());
        let whole = [
            request,
            b"\\challenge_response\\",
            answer.as_bytes(),
            b"\\list\\cmp\\gamename\\bcommander\\final\\",
        ]
        .concat();
        assert!(
            is_complete_request(&whole)
                && (has_answer || ListFormat::from_request(request, &challenge).is_err())
        );
        let servers = self.list.listed();
        for form in
            [ListFormat::from_request(&whole, &challenge), ListFormat::from_request(request, &challenge)]
                .into_iter()
                .flatten()
        {
            assert!(form.write(&servers).ends_with(b"\\final\\"));
        }
    }

    fn poll_queries(&mut self) {
        for (to, question) in self.list.poll_servers(self.now) {
            assert!(self.verified.contains(to.ip()) && question == b"\\status\\", "{to}");
        }
    }

    fn check(&mut self) {
        let listed = self.list.listed();
        assert!(listed.len() <= MAX_SERVERS);
        assert!(listed.iter().all(|server| self.verified.contains(server.ip())), "{listed:?}");
        assert!(self.list.take_events().len() <= MAX_LIST_EVENTS);
    }
}
