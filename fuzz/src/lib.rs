//! What targets share: scripts of steps, and players to take part in them.
//!
//! A script is read from its front, byte by byte, so that a corpus can be written by hand and a mutation of one step leaves
//! the others as they are. Texts and payloads have their length in front.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::Manifest;
use bcnet_session::client::{Client, ClientOptions, DisconnectReason, Event};
use bcnet_transport::{self as transport, Connect, DeliveryMode, Engine, Time};
use libfuzzer_sys::arbitrary::Unstructured;

/// The bytes of a fuzz input, taken one by one.
pub struct FuzzInput<'a>(Unstructured<'a>);

impl<'a> FuzzInput<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self(Unstructured::new(input))
    }

    /// What the next step is, if there is one.
    pub fn step(&mut self) -> Option<u8> {
        (!self.0.is_empty()).then(|| self.byte())
    }

    /// Zero where the script is over.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// As many bytes as the next one says, or as there are.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        self.0.bytes(len).unwrap_or_default()
    }

    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    pub fn delivery_mode(&mut self) -> DeliveryMode {
        match self.byte() % 3 {
            0 => DeliveryMode::Reliable,
            1 => DeliveryMode::Urgent,
            _ => DeliveryMode::Unreliable,
        }
    }

    /// From a millisecond to some seconds: times of all sizes matter.
    pub fn time(&mut self) -> Duration {
        let byte = self.byte();
        Duration::from_millis(u64::from(byte % 64 + 1) << (byte / 64 * 2))
    }
}

/// Has something done that may be refused: then it is not done, and that is all.
pub fn ignore_result<T>(_: T) {}

/// What a run has put out, to be compared with that of another.
#[derive(Default)]
pub struct OutputHash(DefaultHasher);

impl OutputHash {
    pub fn add(&mut self, what: impl Hash) {
        what.hash(&mut self.0);
    }

    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// Plays what `input` says. Some inputs, which the fuzzer cannot tell from others, are played twice: the same input gives
/// the same output.
pub fn check_deterministic(input: &[u8], play: impl Fn(&[u8]) -> u64) {
    let trace = play(input);
    if input.len() % 8 == 7 {
        assert_eq!(play(input), trace, "the second time it is another");
    }
}

/// Where the server is.
pub const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);

/// What an honest player says.
pub const CHAT_TEXT: &str = "hello";

/// A player with the session's own client.
pub struct FuzzPlayer {
    pub client: Client,
    pub address: SocketAddrV4,
    /// Answers by itself what a game answers by itself.
    pub answers_like_a_game: bool,
    /// How often it has heard [`HELLO`].
    pub chats_received: u32,
    pub end: Option<DisconnectReason>,
}

impl FuzzPlayer {
    pub fn connect(address: SocketAddrV4, name: &str, password: &str, nonce: u32, now: Time) -> Self {
        let config =
            transport::Config { cipher: false, address: *address.ip(), ..transport::Config::default() };
        let connect = Connect { host: SERVER, nonce, password };
        let client = Client::connect(config, connect, ClientOptions::with_name(name), now);
        Self { client, address, answers_like_a_game: true, chats_received: 0, end: None }
    }

    /// Takes what has happened. Returns how many events that were.
    pub fn poll_events(&mut self, now: Time) -> usize {
        let (mut payload, mut events) = (Vec::new(), 0);
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            events += 1;
            // A command that is refused is none.
            match event {
                Event::FileCheck(_) if self.answers_like_a_game => {
                    ignore_result(self.client.answer_from_manifest(&Manifest::placeholder(), now))
                }
                Event::Load if self.answers_like_a_game => ignore_result(self.client.enter(now)),
                Event::Chat { text, .. } if text == CHAT_TEXT => self.chats_received += 1,
                Event::Gone { reason, .. } => self.end = Some(reason),
                _ => {}
            }
        }
        events
    }

    /// What it sends now.
    pub fn transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<usize> {
        let transmit = self.client.poll_transmit(buffer, now)?;
        assert_eq!(transmit.to, SERVER);
        Some(transmit.len)
    }

    /// Its queues are no larger than they may be.
    pub fn check_limits(&self, now: Time) {
        let limit = transport::Config::default().max_queued_bytes;
        for snapshot in
            self.client.engine().peers().filter_map(|peer| self.client.engine().snapshot(peer, now))
        {
            assert!(snapshot.queued_bytes <= limit, "{snapshot:?}");
        }
        assert!(self.client.players().count() <= 256 && self.client.ships().count() <= 16);
    }
}
