//! The test harness: endpoints that the test drives, and datagrams as values, including forged ones.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU8;
use std::time::Duration;

use bcnet_transport::wire::{
    Ack, Body, BootReason, Channel, Control, Data, Datagram, Delivery, Fragment, Message, MessageId, PeerId,
    Seq, Text, Writer,
};
use bcnet_transport::{
    Config, Connect, DeliveryMode, Endpoint, Engine, Event, LeaveReason, PeerCounters, RejectCause, Snapshot,
    Time,
};

/// The start time of every test: not zero, so that "never" and "now" cannot be confused.
pub(crate) const START: Time = Time::from_micros(10_000_000);
pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 10, 10, 1), 22101);

/// The most datagrams, events or rounds at one instant: far more than any test needs.
pub(crate) const MAX_STEPS: usize = 100_000;

/// Returns the time `millis` milliseconds after the start.
pub(crate) fn ms(millis: u64) -> Time {
    START + Duration::from_millis(millis)
}

/// Returns the time one microsecond earlier.
pub(crate) fn before(time: Time) -> Time {
    Time::from_micros(time.as_micros() - 1)
}

/// Returns the address of the `n`th client.
pub(crate) fn address(n: u16) -> SocketAddrV4 {
    let [high, low] = n.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, 20, high, low), 22101)
}

/// Returns a configuration without encryption, so that tests can read the datagrams.
pub(crate) fn unencrypted() -> Config {
    Config { cipher: false, ..Config::default() }
}

/// A sent datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentDatagram {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) bytes: Vec<u8>,
}

impl SentDatagram {
    /// Returns its messages, each as one line of text.
    pub(crate) fn message_texts(&self) -> Vec<String> {
        let datagram = Datagram::parse(&self.bytes, None).expect("a well-formed datagram");
        datagram.messages().map(|message| message.to_string()).collect()
    }

    /// Returns its data messages: delivery and payload.
    pub(crate) fn data(&self) -> Vec<(Delivery, Vec<u8>)> {
        let datagram = Datagram::parse(&self.bytes, None).expect("a well-formed datagram");
        let data = datagram.messages().filter_map(|message| match message {
            Message::Data(data) => Some((data.delivery, data.payload.to_vec())),
            _ => None,
        });
        data.collect()
    }
}

/// Returns the messages of all datagrams as text, in order.
pub(crate) fn all_message_texts(packets: &[SentDatagram]) -> Vec<String> {
    packets.iter().flat_map(SentDatagram::message_texts).collect()
}

/// An endpoint with its address and its events so far.
pub(crate) struct TestEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddrV4,
    buffer: [u8; 2048],
}

impl TestEndpoint {
    pub(crate) fn host(config: Config) -> Self {
        let endpoint = Endpoint::host(Config { address: *HOST.ip(), ..config });
        Self { endpoint, address: HOST, buffer: [0; 2048] }
    }

    /// Creates the `n`th client, which starts to connect.
    pub(crate) fn client(config: Config, n: u16, now: Time) -> Self {
        Self::client_at(config, address(n), u32::from(n), now)
    }

    pub(crate) fn client_at(config: Config, address: SocketAddrV4, nonce: u32, now: Time) -> Self {
        let endpoint = Endpoint::connect(
            Config { address: *address.ip(), ..config },
            Connect { host: HOST, nonce, password: "" },
            now,
        );
        Self { endpoint, address, buffer: [0; 2048] }
    }

    pub(crate) fn receive(&mut self, packet: &SentDatagram, now: Time) {
        self.receive_from(packet.from, &packet.bytes, now);
    }

    pub(crate) fn receive_from(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) {
        self.endpoint.handle_datagram(from, &mut bytes.to_vec(), now);
    }

    /// Handles due timers and returns every datagram.
    ///
    /// Asserts that no datagram is too large and that no deadline remains in the past.
    pub(crate) fn flush(&mut self, now: Time) -> Vec<SentDatagram> {
        let mut packets = Vec::new();
        // A received datagram may have moved a deadline forward; the first call finds that out.
        for _ in 0..2 {
            self.endpoint.handle_timeout(now);
            while let Some(transmit) = self.endpoint.poll_transmit(&mut self.buffer, now) {
                let bytes = self.buffer[..transmit.len].to_vec();
                assert!(bytes.len() <= 512, "a datagram of {} bytes", bytes.len());
                packets.push(SentDatagram { from: self.address, to: transmit.to, bytes });
                assert!(packets.len() < MAX_STEPS, "at {now} the endpoint sends datagrams without end");
            }
        }
        let next = self.endpoint.next_timeout();
        assert!(next.is_none_or(|next| next > now), "at {now} the next deadline is {next:?}");
        packets
    }

    /// Returns the messages sent at `now` as text.
    pub(crate) fn sent_texts(&mut self, now: Time) -> Vec<String> {
        all_message_texts(&self.flush(now))
    }

    /// Runs from deadline to deadline until `until` without received datagrams.
    ///
    /// Returns the sent messages with their times in seconds since the start. Asserts that nothing is sent
    /// the instant before each deadline.
    pub(crate) fn timeline(&mut self, from: Time, until: Time) -> Vec<String> {
        let (mut now, mut lines) = (from, Vec::new());
        loop {
            let at = now.since(START).as_secs_f64();
            lines.extend(self.sent_texts(now).iter().map(|line| format!("{at:.3} {line}")));
            let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= until) else { return lines };
            if before(next) > now {
                assert_eq!(self.sent_texts(before(next)), [""; 0], "just before {next}");
            }
            now = next;
        }
    }

    /// Returns all events with their bytes.
    pub(crate) fn events(&mut self) -> Vec<(Event, Vec<u8>)> {
        let mut events = Vec::new();
        let mut payload = Vec::new();
        while let Some(event) = self.endpoint.poll_event(&mut payload) {
            events.push((event, payload.clone()));
            assert!(events.len() < MAX_STEPS, "the endpoint reports events without end");
        }
        events
    }

    /// Returns the received payloads and drops the other events.
    pub(crate) fn received(&mut self) -> Vec<Vec<u8>> {
        let events = self.events().into_iter();
        events
            .filter(|(event, _)| matches!(event, Event::Received { .. }))
            .map(|(_, payload)| payload)
            .collect()
    }

    /// Returns the peers that left, with the reasons, and drops the other events.
    pub(crate) fn left_peers(&mut self) -> Vec<(PeerId, LeaveReason)> {
        let events = self.events().into_iter();
        events
            .filter_map(|(event, _)| match event {
                Event::Left { peer, reason } => Some((peer, reason)),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn send(&mut self, to: PeerId, payload: &[u8], now: Time) {
        self.endpoint.send(to, payload, DeliveryMode::Reliable, now).expect("the send queue has capacity");
    }

    pub(crate) fn send_as(&mut self, to: PeerId, payload: &[u8], mode: DeliveryMode, now: Time) {
        self.endpoint.send(to, payload, mode, now).expect("the send queue has capacity");
    }

    pub(crate) fn snapshot(&self, peer: PeerId, now: Time) -> Snapshot {
        self.endpoint.snapshot(peer, now).expect("the peer is connected")
    }

    pub(crate) fn counters(&self, peer: PeerId) -> PeerCounters {
        self.endpoint.counters(peer).expect("the peer is connected")
    }

    /// Returns how many messages of a known peer were rejected for `cause`.
    pub(crate) fn rejected_from(&self, peer: PeerId, cause: RejectCause) -> u64 {
        self.counters(peer).rejected.count(cause)
    }
}

/// A host and its clients on a link without delay.
pub(crate) struct TestNet {
    pub(crate) now: Time,
    pub(crate) host: TestEndpoint,
    pub(crate) clients: Vec<TestEndpoint>,
}

impl TestNet {
    /// Creates a host and `count` clients, all joined, at [`START`].
    pub(crate) fn joined(config: &Config, count: u16) -> Self {
        let mut net = Self { now: START, host: TestEndpoint::host(config.clone()), clients: Vec::new() };
        for n in 1..=count {
            net.join(config, n);
        }
        net
    }

    /// Adds one more client; drops the events of its join.
    pub(crate) fn join(&mut self, config: &Config, n: u16) {
        self.clients.push(TestEndpoint::client(config.clone(), n, self.now));
        self.deliver_all();
        let id = self.host.endpoint.admit(address(n), self.now);
        id.expect("a free id");
        self.deliver_all();
        self.host.events();
        self.clients.iter_mut().for_each(|client| drop(client.events()));
    }

    /// Does the same as [`joined`](Self::joined); then each client announces its name to the others.
    pub(crate) fn joined_with_names(config: &Config, count: u16) -> Self {
        let mut net = Self::joined(config, count);
        for n in 1..=count {
            let name = utf16(&format!("Player {n}"));
            let client = &mut net.clients[usize::from(n) - 1].endpoint;
            client.announce_name(Text::new(&name).expect("UTF-16LE"), net.now).expect("a peer is connected");
        }
        net.deliver_all();
        net.host.events();
        net.clients.iter_mut().for_each(|client| drop(client.events()));
        net
    }

    /// Returns the datagrams that all endpoints send now.
    pub(crate) fn flush(&mut self) -> Vec<SentDatagram> {
        let mut packets = self.host.flush(self.now);
        packets.extend(self.clients.iter_mut().flat_map(|client| client.flush(self.now)));
        packets
    }

    pub(crate) fn deliver(&mut self, packet: &SentDatagram) {
        let ends = [&mut self.host].into_iter().chain(&mut self.clients);
        for end in ends.filter(|end| end.address == packet.to) {
            end.receive(packet, self.now);
        }
    }

    /// Delivers every datagram until no endpoint has more to send at this instant.
    pub(crate) fn deliver_all(&mut self) {
        for _ in 0..MAX_STEPS {
            let packets = self.flush();
            if packets.is_empty() {
                return;
            }
            packets.iter().for_each(|packet| self.deliver(packet));
        }
        panic!("at {} the endpoints answer each other without end", self.now);
    }

    /// Runs from deadline to deadline until `until`, and delivers every datagram.
    pub(crate) fn run(&mut self, until: Time) {
        loop {
            self.deliver_all();
            let ends = [&self.host].into_iter().chain(&self.clients);
            let next = ends.filter_map(|end| end.endpoint.next_timeout()).min();
            match next.filter(|next| *next <= until) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = until;
        self.deliver_all();
    }
}

/// Creates a host and a peer that consists of forged datagrams.
///
/// The peer was admitted as peer 2 and has acknowledged that.
pub(crate) fn host_with_forged_peer(config: Config) -> TestEndpoint {
    let mut host = TestEndpoint::host(config);
    host.receive_from(address(1), &connect(1), START);
    assert_eq!(host.endpoint.admit(address(1), START), Ok(PeerId(2)));
    host.flush(START);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Control, 0)]), START);
    host.flush(START);
    host.events();
    host
}

/// Creates a client whose host consists of forged datagrams.
///
/// The client is peer 2, and its request is acknowledged.
pub(crate) fn client_with_forged_host(config: Config) -> TestEndpoint {
    let mut client = TestEndpoint::client(config, 1, START);
    client.flush(START);
    let reply = control(0, Body::ConnectReply { assigned: PeerId(2) });
    client.receive_from(HOST, &from_peer(1, &[ack(Channel::Control, 0), reply]), START);
    client.flush(START);
    client.events();
    client
}

/// Creates a host whose peer has acknowledged one message after 100 ms.
///
/// So the round-trip time is 100 ms and the timeout 300 ms.
pub(crate) fn host_with_measured_rtt() -> TestEndpoint {
    let mut host = TestEndpoint::host(unencrypted());
    host.receive_from(address(1), &connect(1), START);
    host.endpoint.admit(address(1), START).expect("a free id");
    host.flush(START);
    host.receive_from(address(1), &from_peer(2, &[ack(Channel::Control, 0)]), ms(100));
    host.flush(ms(100));
    let snapshot = host.snapshot(PeerId(2), ms(100));
    assert_eq!(snapshot.rtt, Some(Duration::from_millis(100)));
    assert_eq!((snapshot.rtt_variation.as_millis(), snapshot.rto.as_millis()), (50, 300));
    host
}

pub(crate) fn from_peer(sender: u8, messages: &[Message<'_>]) -> Vec<u8> {
    let mut buffer = vec![0; 65_000];
    let mut writer = Writer::with_limit(&mut buffer, PeerId(sender), 65_000);
    for message in messages {
        assert!(writer.push(message), "the message fits");
    }
    writer.finish().expect("the datagram has a message").to_vec()
}

/// Returns a connect request, the first datagram of a client.
pub(crate) fn connect(nonce: u32) -> Vec<u8> {
    let address = Ipv4Addr::new(192, 168, 0, 2);
    from_peer(0xFF, &[control(0, Body::ConnectRequest { address, nonce, password: Text::default() })])
}

pub(crate) fn control(seq: u16, body: Body<'_>) -> Message<'_> {
    Message::Control(Control::new(Seq(seq), body))
}

pub(crate) fn boot(seq: u16, reason: BootReason, target: u8) -> Message<'static> {
    control(seq, Body::Boot { reason, target: PeerId(target) })
}

pub(crate) fn disconnect(seq: u16, peer: u8) -> Message<'static> {
    control(seq, Body::Disconnect { peer: PeerId(peer), address: Ipv4Addr::new(192, 168, 0, 2) })
}

pub(crate) fn identity(seq: u16, peer: u8, name: &[u8]) -> Message<'_> {
    let address = Ipv4Addr::new(192, 168, 0, 2);
    control(seq, Body::Identity { peer: PeerId(peer), address, name: Text::new(name).expect("UTF-16LE") })
}

pub(crate) fn ack(channel: Channel, seq: u16) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { channel, seq: Seq(seq), fragment: None }))
}

pub(crate) fn ack_fragment(seq: u16, fragment: u8) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { channel: Channel::Game, seq: Seq(seq), fragment: Some(fragment) }))
}

pub(crate) fn reliable(seq: u16, payload: &[u8]) -> Message<'_> {
    Message::Data(Data { delivery: Delivery::Reliable(Seq(seq)), urgent: false, payload })
}

pub(crate) fn unreliable(payload: &[u8]) -> Message<'_> {
    Message::Data(Data { delivery: Delivery::Unreliable, urgent: false, payload })
}

/// Returns fragment `index` of `total`; only index 0 carries the total.
pub(crate) fn fragment(seq: u16, index: u8, total: u8, payload: &[u8]) -> Message<'_> {
    let part = match NonZeroU8::new(index) {
        None => Fragment::First { total: NonZeroU8::new(total).expect("a total") },
        Some(index) => Fragment::Later { index },
    };
    Message::Data(Data { delivery: Delivery::Fragment(Seq(seq), part), urgent: false, payload })
}

/// Returns the text as UTF-16LE.
pub(crate) fn utf16(text: &str) -> Vec<u8> {
    Text::encode(text).expect("no NUL")
}

/// Returns bytes that differ from place to place and from `seed` to `seed`.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + at / 251 + seed * 31) % 256).expect("a byte")).collect()
}

/// A seeded random number generator (xorshift).
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1);
            items.swap(last, usize::try_from(other).expect("a small number"));
        }
    }
}
