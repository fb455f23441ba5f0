//! A client without bcnet's code, except for the cipher: the test contains every byte that it sends and expects.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::{Config, PlayerState, Session};
use bcnet_transport::{IdPolicy, Time, cipher};

use crate::vectors::hex;
use crate::world::{TestWorld, all_networks};

struct RawClient {
    session: Session,
    now: Time,
    address: SocketAddrV4,
}

impl RawClient {
    /// Sends a datagram. Returns the decrypted datagrams of the next half second.
    fn exchange(&mut self, plain: &str) -> Vec<Vec<u8>> {
        let mut bytes = hex(plain);
        cipher::encrypt(&mut bytes);
        self.session.handle_datagram(self.address, &mut bytes, self.now);
        let mut received = Vec::new();
        let mut buffer = [0; 2048];
        for _ in 0..5 {
            self.session.handle_timeout(self.now);
            while let Some(transmit) = self.session.poll_transmit(&mut buffer, self.now) {
                assert_eq!(transmit.to, self.address);
                let mut bytes = buffer[..transmit.len].to_vec();
                cipher::decrypt(&mut bytes);
                received.push(bytes);
            }
            self.now = self.now + Duration::from_millis(100);
        }
        received
    }

    fn expect(&mut self, plain: &str, answers: &[&str]) {
        let expected: Vec<Vec<u8>> = answers.iter().map(|answer| hex(answer)).collect();
        let received = self.exchange(plain);
        assert_eq!(received, expected, "\nreceived {received:02X?}\nexpected {expected:02X?}");
    }

    /// Connects, sends its name and answers all file checks except the last, as captured.
    fn answer_checks(&mut self) {
        // Connect: ACK, reply with id 2, request 0.
        self.expect(
            "FF 01 03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00",
            &["01 03 01 00 00 02 03 06 C0 00 00 02
               32 1B 80 00 00 20 00 08 00 73 63 72 69 70 74 73 2F 07 00 41 70 70 2E 70 79 63 20"],
        );
        // ACKs and identity: ACK and the identity back.
        self.expect(
            "02 03 01 00 00 02 01 00 00 00
             00 16 C0 01 00 02 0A 0A 0A EF 43 00 61 00 64 00 79 00 32 00 00 00",
            &["01 02 01 01 00 02 00 16 C0 01 00 02 0A 0A 0A EF 43 00 61 00 64 00 79 00 32 00 00 00"],
        );
        // Reply 0: ACK and request 1, as captured.
        self.expect(
            "02 02 01 01 00 02 32 1A 80 00 00 21 00 43 E2 0C 7E 2F CB AF 4D 01 00 77 B6 3E 37 68 A7 A0 F8 00",
            &["01 02 01 00 00 00 32 20 80 01 00 20 01 08 00 73 63 72 69 70 74 73 2F
               0C 00 41 75 74 6F 65 78 65 63 2E 70 79 63 20"],
        );
        // Reply 1: request 2.
        self.expect(
            "02 02 01 01 00 00 32 16 80 01 00 21 01 2F CB AF 4D 01 00 A1 E6 01 85 49 00 93 17 00",
            &["01 02 01 01 00 00 32 1E 80 02 00 20 02 0D 00 73 63 72 69 70 74 73 2F 73 68 69 70 73
               05 00 2A 2E 70 79 63 21"],
        );
        // Reply 2 in two fragments, the second first.
        self.expect("02 02 01 02 00 00 32 0B A0 02 00 01 17 33 88 11 00", &["01 01 01 02 00 01 01"]);
        self.expect(
            "02 01 32 13 A0 02 00 00 02 21 02 C4 D1 17 C0 01 00 BA 3E B2 3E",
            &["01 02 01 02 00 01 00 32 21 80 03 00 20 03 10 00 73 63 72 69 70 74 73 2F 6D 61 69 6E 6D 65 6E 75
               05 00 2A 2E 70 79 63 20"],
        );
        // Reply 3, without files: request FF.
        self.expect(
            "02 02 01 03 00 00 32 0E 80 03 00 21 03 5D 47 09 34 00 00 00",
            &["01 02 01 03 00 00 32 24 80 04 00 20 FF 13 00 53 63 72 69 70 74 73 2F 4D 75 6C 74 69 70 6C 61 79 65 72
               05 00 2A 2E 70 79 63 21"],
        );
    }
}

/// Returns the settings of the captured server: it admits every client, and ids are sequential.
fn captured_config() -> Config {
    let transport =
        bcnet_transport::Config { id_policy: IdPolicy::Sequential, ..Config::default().transport };
    Config { transport, trusted: all_networks(), ..Config::default() }
}

/// S-01, S-03, S-20, S-25, S-30, S-31, S-40: the captured join of one client, datagram by datagram.
#[test]
fn raw_client_joins_chats_and_leaves() {
    let mut raw = RawClient {
        session: Session::new(Config { name: "My Game23".into(), ..captured_config() }, 1),
        now: Time::ZERO,
        address: "10.10.10.239:22101".parse().expect("an address"),
    };
    raw.answer_checks();
    // Answer to round FF: the server sends opcodes 28, 00 (settings: 3.5 s, slot 0, Mission1) and 01 in one datagram.
    raw.expect(
        "02 02 01 04 00 00 32 0E 80 04 00 21 FF 3F D1 94 87 00 00 00",
        &["01 04 01 04 00 00 32 06 80 05 00 28
           32 33 80 06 00 00 00 00 60 40 61 00 25 00
           4D 75 6C 74 69 70 6C 61 79 65 72 2E 45 70 69 73 6F 64 65 2E 4D 69 73 73 69 6F 6E 31 2E
           4D 69 73 73 69 6F 6E 31
           32 06 80 07 00 01"],
    );
    // The client has loaded (2A): the server sends the mission (35), the client's score (37) and its join event (17).
    raw.expect(
        "02 04 01 05 00 00 01 06 00 00 01 07 00 00 32 07 80 05 00 2A 20",
        &["01 04 01 05 00 00 32 0A 80 08 00 35 08 01 FF FF
           32 16 80 09 00 37 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
           32 17 80 0A 00 17 66 08 00 00 F1 00 80 00 00 00 00 00 00 00 00 00 02"],
    );
    // The chat is relayed to its sender.
    raw.expect(
        "02 04 01 08 00 00 01 09 00 00 01 0A 00 00 32 11 80 06 00 2C 02 00 00 00 05 00 68 65 6C 6C 6F",
        &["01 02 01 06 00 00 32 11 80 0B 00 2C 02 00 00 00 05 00 68 65 6C 6C 6F"],
    );
    // Stock clients retransmit a fragment for the whole session. It is acknowledged and has no other effect.
    raw.expect("02 02 01 0B 00 00 32 0B A0 02 00 01 17 33 88 11 00", &["01 01 01 02 00 01 01"]);
    for _ in 0..100 {
        raw.now = raw.now + Duration::from_secs(2);
        let received = raw.exchange("02 01 32 0B A0 02 00 01 17 33 88 11 00");
        // Sometimes together with a keepalive.
        let (alone, with_keepalive) = (hex("01 01 01 02 00 01 01"), hex("01 02 01 02 00 01 01 02"));
        assert!(received == [alone] || received == [with_keepalive], "{received:02X?}");
    }
    // Leave, with a stale ACK: the reply is an ACK, as captured.
    // The ACK of the disconnect leaves with each probe (T-57).
    let received = raw.exchange("02 02 01 0B 00 00 05 0A C0 02 00 02 0A 0A 0A EF");
    let head = hex("01 03 01 02 00 02 32 05 80");
    assert!(!received.is_empty() && received.iter().all(|probe| probe.starts_with(&head)), "{received:02X?}");
    (0..4).for_each(|_| drop(raw.exchange("")));
    assert_eq!(raw.session.players().count(), 0);
}

/// If the caller ciphers itself, for example in batches, the session takes and returns plain bytes.
#[test]
fn datagrams_are_plaintext_with_the_cipher_off() {
    let transport = bcnet_transport::Config { cipher: false, ..captured_config().transport };
    let mut session = Session::new(Config { transport, mask_addresses: true, ..captured_config() }, 1);
    let client: SocketAddrV4 = "10.10.10.239:22101".parse().expect("an address");
    let connect = hex("FF 01 03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00");
    let mut buffer = [0; 2048];
    for bytes in [connect, b"\\basic\\".to_vec()] {
        session.handle_datagram(client, &mut bytes.clone(), Time::ZERO);
    }
    let text = session.poll_transmit(&mut buffer, Time::ZERO).expect("a reply");
    assert!(buffer[..text.len].starts_with(b"\\gamename\\bcommander\\"));
    let reply = session.poll_transmit(&mut buffer, Time::ZERO).expect("a reply");
    assert_eq!(buffer[..12], hex("01 03 01 00 00 02 03 06 C0 00 00 02"));
    assert_eq!((reply.to, reply.len), (client, 39));
    // The client's name is sent back without the address.
    let mut identity = hex("02 01 00 0E C0 01 00 02 0A 0A 0A EF 51 00 00 00");
    session.handle_datagram(client, &mut identity, Time::ZERO);
    let reply = session.poll_transmit(&mut buffer, Time::ZERO).expect("a reply");
    let expected = hex("01 02 01 01 00 02 00 0E C0 01 00 02 00 00 00 00 51 00 00 00");
    assert_eq!(buffer[..reply.len], expected);
}

/// S-26, S-28: a client that never sends its name does not enter, and others get no message about it.
#[test]
fn unnamed_client_does_not_enter_the_game() {
    let mut world = TestWorld::new(Config::default());
    let kirk = world.join("Kirk");
    let unnamed: SocketAddrV4 = "10.10.10.239:22101".parse().expect("an address");
    let send = |world: &mut TestWorld, plain: &str| {
        let mut bytes = hex(plain);
        cipher::encrypt(&mut bytes);
        world.inject(unnamed, &bytes);
        world.run(Duration::from_secs(1));
    };
    // Connect, each answer with an ACK of its request, and 2A.
    for plain in [
        "FF 01 03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00",
        "03 03 01 00 00 02 01 01 00 02 01 00 00 00",
        "03 01 32 1A 80 00 00 21 00 43 E2 0C 7E 2F CB AF 4D 01 00 77 B6 3E 37 68 A7 A0 F8 00",
        "03 02 01 01 00 00 32 16 80 01 00 21 01 2F CB AF 4D 01 00 A1 E6 01 85 49 00 93 17 00",
        "03 02 01 02 00 00 32 16 80 02 00 21 02 C4 D1 17 C0 01 00 BA 3E B2 3E 17 33 88 11 00",
        "03 02 01 03 00 00 32 0E 80 03 00 21 03 5D 47 09 34 00 00 00",
        "03 02 01 04 00 00 32 0E 80 04 00 21 FF 3F D1 94 87 00 00 00",
        "03 04 01 05 00 00 01 06 00 00 01 07 00 00 32 07 80 05 00 2A 20",
    ] {
        send(&mut world, plain);
    }
    let players = |world: &TestWorld| -> Vec<PlayerState> {
        world.session.players().map(|player| player.state).collect()
    };
    world.take_received(kirk);
    // The client stays in the session with keepalives, until the handshake timeout.
    for _ in 0..50 {
        send(&mut world, "03 01 02");
        assert_eq!(players(&world), [PlayerState::InGame, PlayerState::Loading]);
    }
    for _ in 0..5 {
        send(&mut world, "03 01 02");
    }
    assert_eq!(players(&world), [PlayerState::InGame]);
    assert_eq!(world.take_received(kirk), [] as [Vec<u8>; 0]);
}
