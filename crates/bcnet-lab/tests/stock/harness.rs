//! A test harness that runs a stock engine in frames, and builders of messages.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Event, Time};

/// The peer that messages are injected from.
pub(crate) const PEER: PeerId = PeerId(2);

/// Returns a time in seconds after the start.
pub(crate) fn at(seconds: f64) -> Time {
    Time::from_micros((seconds * 1e6).round() as u64)
}

/// A stock engine with frames at multiples of a tick, and a record of its datagrams and events.
pub(crate) struct StockHarness {
    pub(crate) stock: StockEngine,
    /// Length of a frame in microseconds, as a fraction.
    tick: (u64, u64),
    /// The number of the next frame.
    frame: u64,
    /// Send time of each datagram, and its bytes in plaintext.
    pub(crate) sent: Vec<(Time, Vec<u8>)>,
    pub(crate) events: Vec<(Event, Vec<u8>)>,
}

impl StockHarness {
    /// Creates a harness with frames at `n / rate` seconds, the first at 0. The engine uses no cipher.
    pub(crate) fn new(stock: StockEngine, rate: u64) -> Self {
        Self { stock, tick: (1_000_000, rate), frame: 0, sent: Vec::new(), events: Vec::new() }
    }

    /// Creates a host with frames every 3 ms.
    pub(crate) fn host(params: Params) -> Self {
        Self { tick: (3_000, 1), ..Self::new(StockEngine::host(without_cipher(params)), 1) }
    }

    fn time(&self, frame: u64) -> Time {
        Time::from_micros(frame * self.tick.0 / self.tick.1)
    }

    /// Runs all frames before `until`, then calls `act`. The next frame is at `until` or later.
    pub(crate) fn run_before(&mut self, until: f64, act: impl FnOnce(&mut StockEngine, Time)) -> &mut Self {
        while self.time(self.frame) < at(until) {
            self.run_frame();
        }
        act(&mut self.stock, at(until));
        self
    }

    /// Runs all frames up to and including `until`.
    pub(crate) fn run(&mut self, until: f64) -> &mut Self {
        while self.time(self.frame) <= at(until) {
            self.run_frame();
        }
        self
    }

    /// Injects a message from [`PEER`] at `time`.
    pub(crate) fn inject_at(&mut self, time: f64, message: &[u8]) -> &mut Self {
        self.run_before(time, |stock, now| stock.inject(PEER, message, now))
    }

    /// Runs one frame.
    pub(crate) fn run_frame(&mut self) {
        let now = self.time(self.frame);
        self.frame += 1;
        self.stock.run_frame(now);
        self.collect(now);
    }

    /// Runs one frame that is blocked for `length` seconds after it has read the clock.
    pub(crate) fn run_blocked_frame(&mut self, length: f64) -> &mut Self {
        let clock = self.time(self.frame);
        let end = clock + Duration::from_secs_f64(length);
        while self.time(self.frame) < end {
            self.frame += 1;
        }
        self.stock.run_frame(clock);
        self.collect(self.time(self.frame));
        self.frame += 1;
        self
    }

    pub(crate) fn collect(&mut self, now: Time) {
        let (mut buffer, mut payload) = ([0; 2048], Vec::new());
        while let Some(transmit) = self.stock.poll_transmit(&mut buffer) {
            self.sent.push((now, buffer[..transmit.len].to_vec()));
        }
        while let Some(event) = self.stock.poll_event(&mut payload) {
            self.events.push((event, payload.clone()));
        }
    }

    /// Returns the number of sends of each ACK in the outbox, oldest first.
    pub(crate) fn ack_send_counts(&self, peer: PeerId) -> Vec<u32> {
        self.stock.dump(peer).map_or_else(Vec::new, |dump| dump.acks.iter().map(|ack| ack.retx).collect())
    }

    /// Returns the send times of all datagrams so far, rounded to milliseconds.
    pub(crate) fn send_times_ms(&self) -> Vec<u64> {
        self.sent.iter().map(|(time, _)| (time.as_micros() + 500) / 1000).collect()
    }

    /// Returns the payloads delivered so far.
    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        let received = self.events.iter().filter(|(event, _)| matches!(event, Event::Received { .. }));
        received.map(|(_, payload)| payload.clone()).collect()
    }
}

pub(crate) fn without_cipher(params: Params) -> Params {
    Params { cipher: false, ..params }
}

/// Returns parameters without keepalives and timeouts: the engine sends only what a test causes.
pub(crate) fn without_timers() -> Params {
    Params { keepalive: None, silence: None, ..Params::default() }
}

/// Returns a reliable game message.
pub(crate) fn game(seq: u16, payload: &[u8]) -> Vec<u8> {
    with_length(0x32, 0x8000, &seq.to_le_bytes(), payload)
}

/// Returns an unreliable game message.
pub(crate) fn unreliable(payload: &[u8]) -> Vec<u8> {
    with_length(0x32, 0, &[], payload)
}

/// Returns a fragment. Only the first one has the total.
pub(crate) fn part(seq: u16, index: u8, total: u8, payload: &[u8]) -> Vec<u8> {
    let mut head = seq.to_le_bytes().to_vec();
    head.push(index);
    if index == 0 {
        head.push(total);
    }
    with_length(0x32, 0xA000, &head, payload)
}

/// Returns a message of the control channel.
pub(crate) fn control(kind: u8, seq: u16, body: &[u8]) -> Vec<u8> {
    with_length(kind, 0xC000, &seq.to_le_bytes(), body)
}

/// Returns a message with a length field.
pub(crate) fn with_length(kind: u8, flags: u16, head: &[u8], body: &[u8]) -> Vec<u8> {
    let word = flags | u16::try_from(3 + head.len() + body.len()).expect("small");
    [&[kind][..], &word.to_le_bytes(), head, body].concat()
}

/// Returns an ACK.
pub(crate) fn ack(seq: u16, flags: u8) -> Vec<u8> {
    let [low, high] = seq.to_le_bytes();
    vec![0x01, low, high, flags]
}

/// Returns the message with which a peer announces its name.
pub(crate) fn identity(seq: u16, peer: u8) -> Vec<u8> {
    control(0x00, seq, &[peer, 10, 0, 0, peer, 0x41, 0, 0, 0])
}

/// Returns a connect request with an own address that ends in `own`.
pub(crate) fn request(own: u8, nonce: u32) -> Vec<u8> {
    let [a, b, c, d] = nonce.to_le_bytes();
    control(0x03, 0, &[10, 0, 0, own, a, b, c, d, 0, 0])
}

/// Returns a datagram in plaintext.
pub(crate) fn datagram(sender: u8, messages: &[Vec<u8>]) -> Vec<u8> {
    [&[sender, u8::try_from(messages.len()).expect("few")][..], &messages.concat()].concat()
}

pub(crate) fn address(last: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 22101)
}

/// Two engines on a wire without delay: a datagram sent in a frame is in the other socket at once.
pub(crate) struct StockPair {
    pub(crate) host: StockHarness,
    pub(crate) client: StockHarness,
}

impl StockPair {
    /// Creates both engines with frames at `n / rate` seconds.
    pub(crate) fn new(params: Params, rate: u64) -> Self {
        let params = Params { address: *address(1).ip(), ..without_cipher(params) };
        let host = StockHarness::new(StockEngine::host(params.clone()), rate);
        let client = StockEngine::connect(params, address(1), *address(2).ip(), 0xA5F, &[], Time::ZERO);
        Self { host, client: StockHarness::new(client, rate) }
    }

    pub(crate) fn run(&mut self, until: f64) {
        while self.host.time(self.host.frame) <= at(until) {
            let now = self.host.time(self.host.frame);
            let (from_host, from_client) = (self.host.sent.len(), self.client.sent.len());
            self.host.run_frame();
            self.client.run_frame();
            for (_, bytes) in &self.host.sent[from_host..] {
                self.client.stock.handle_datagram(address(1), bytes, now);
            }
            for (_, bytes) in &self.client.sent[from_client..] {
                self.host.stock.handle_datagram(address(2), bytes, now);
            }
        }
    }

    /// Runs until the client has joined and announced its name, and all ACKs are sent.
    pub(crate) fn joined(params: Params, rate: u64) -> Self {
        let mut pair = Self::new(params, rate);
        pair.run(0.5);
        assert_eq!(pair.client.stock.id(), PEER);
        pair.client.stock.identify(&[0x41, 0], at(0.5));
        pair.run(1.0);
        pair
    }
}

/// Returns a duration in milliseconds.
pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
