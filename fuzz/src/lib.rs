//! Shared code of the fuzz targets: scripts of steps, and players.
//!
//! A script is read byte by byte from its front. So a corpus can be written by hand, and a mutation of one step
//! leaves the others unchanged. Texts and payloads begin with their length.

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

    /// Returns the next step, if there is one.
    pub fn step(&mut self) -> Option<u8> {
        (!self.0.is_empty()).then(|| self.byte())
    }

    /// Returns the next byte, or zero at the end of the script.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Returns as many bytes as the next byte says, or as there are.
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

    /// Returns a time between a millisecond and some seconds: all magnitudes matter.
    pub fn time(&mut self) -> Duration {
        let byte = self.byte();
        Duration::from_millis(u64::from(byte % 64 + 1) << (byte / 64 * 2))
    }
}

/// Ignores the result of a call that may be refused.
pub fn ignore_result<T>(_: T) {}

/// A hash of the output of a run, to compare two runs.
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

/// Plays `input`. Plays some inputs twice, because the same input must give the same output.
pub fn check_deterministic(input: &[u8], play: impl Fn(&[u8]) -> u64) {
    let trace = play(input);
    if input.len() % 8 == 7 {
        assert_eq!(play(input), trace, "the second time it is another");
    }
}

/// The server's address.
pub const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);

/// The chat of an honest player.
pub const CHAT_TEXT: &str = "hello";

/// A player with the session's `Client`.
pub struct FuzzPlayer {
    pub client: Client,
    pub address: SocketAddrV4,
    /// True if the player answers automatically, as a game does.
    pub answers_like_a_game: bool,
    /// Number of received [`CHAT_TEXT`].
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

    /// Handles all events. Returns their number.
    pub fn poll_events(&mut self, now: Time) -> usize {
        let (mut payload, mut events) = (Vec::new(), 0);
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            events += 1;
            // A refused command has no effect.
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

    /// Returns the length of the next datagram.
    pub fn transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<usize> {
        let transmit = self.client.poll_transmit(buffer, now)?;
        assert_eq!(transmit.to, SERVER);
        Some(transmit.len)
    }

    /// Checks that the queues are within their limits.
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
