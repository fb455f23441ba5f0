//! A host with two clients, one hostile, and strangers. With any input and any loss, nothing panics, no queue
//! exceeds its limit, and all messages between the host and the honest client arrive once and in order.
#![no_main]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Engine, Event, Time};
use libfuzzer_sys::fuzz_target;

const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
const HONEST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);
/// Most bytes that the engine's own control messages add to those of `send`.
const OWN_CONTROL: usize = (1 << 20) + 512;
const HOSTILE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 22101);

fuzz_target!(|input: &[u8]| {
    let mut pair = EndpointPair::new();
    let mut rest = input;
    while let [op, argument, after @ ..] = rest {
        let len = usize::from(*argument);
        let (bytes, after) = after.split_at(if op % 8 < 4 { len.min(after.len()) } else { 0 });
        rest = after;
        match op % 8 {
            // The first byte is the claimed sender.
            0 | 1 => pair.receive_from(HOSTILE, bytes),
            2 => pair.receive_from(SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, *op), 1), bytes),
            3 => pair.receive_from_hostile_peer(bytes),
            4 => pair.send_both_ways(len),
            5 => pair.send_both_ways(len * 40),
            6 => pair.advance(Duration::from_millis(u64::from(*argument)), Some(*op / 8)),
            _ => pair.advance(Duration::from_millis(5), None),
        }
    }
    pair.check_delivery_and_limits();
});

struct EndpointPair {
    now: Time,
    host: Endpoint,
    client: Endpoint,
    hostile: PeerId,
    sent: u32,
    received: [u32; 2],
    config: Config,
}

impl EndpointPair {
    fn new() -> Self {
        let config = Config {
            cipher: false,
            max_out_of_order_bytes: 64 << 10,
            max_event_bytes: 256 << 10,
            ..Config::default()
        };
        let now = Time::from_micros(1);
        let join = |address: SocketAddrV4| {
            Endpoint::connect(
                Config { address: *address.ip(), ..config.clone() },
                Connect { host: HOST, nonce: 1, password: "" },
                now,
            )
        };
        let (host, client) = (Endpoint::host(config.clone()), join(HONEST));
        let hostile = PeerId(3);
        let mut pair = Self { now, host, client, hostile, sent: 0, received: [0; 2], config: config.clone() };
        pair.advance(Duration::from_millis(5), None);
        pair.advance(Duration::from_millis(5), None);
        assert_eq!(pair.client.id(), PeerId(2));
        let mut buffer = [0; 512];
        let transmit = join(HOSTILE).poll_transmit(&mut buffer, now).expect("a request");
        pair.receive_from(HOSTILE, &buffer[..transmit.len]);
        pair
    }

    /// Delivers bytes from an address to the host.
    fn receive_from(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        self.host.handle_datagram(from, &mut bytes.to_vec(), self.now);
        self.poll_events();
    }

    /// Delivers bytes from the admitted hostile client, with its id.
    fn receive_from_hostile_peer(&mut self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        if let Some(first) = bytes.first_mut() {
            *first = self.hostile.0;
        }
        self.receive_from(HOSTILE, &bytes);
    }

    /// Sends a message in both directions between the honest nodes, if there is capacity.
    fn send_both_ways(&mut self, len: usize) {
        let mut payload = vec![7; len + 4];
        payload[..4].copy_from_slice(&self.sent.to_le_bytes());
        if self.sent - self.received[0].min(self.received[1]) < 40 {
            self.host.send(PeerId(2), &payload, DeliveryMode::Reliable, self.now).expect("room");
            self.client.send(PeerId::HOST, &payload, DeliveryMode::Urgent, self.now).expect("room");
            let _ = self.host.send(self.hostile, &payload, DeliveryMode::Reliable, self.now);
            self.sent += 1;
        }
    }

    /// Advances time and delivers the datagrams of the honest nodes, except every `lost`th. Ten of thirty seconds
    /// have no loss, so that no peer times out.
    fn advance(&mut self, time: Duration, lost: Option<u8>) {
        self.now = self.now + time;
        self.host.handle_timeout(self.now);
        self.client.handle_timeout(self.now);
        let (mut buffer, mut count) = ([0; 512], 0_u8);
        let lossy = self.now.as_micros() % 30_000_000 < 20_000_000;
        let mut is_lost = || {
            count = count.wrapping_add(1);
            lost.is_some_and(|lost| lossy && count.is_multiple_of(lost.max(1)))
        };
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, self.now) {
            if !is_lost() {
                self.host.handle_datagram(HONEST, &mut buffer[..transmit.len], self.now);
            }
        }
        self.poll_events();
        while let Some(transmit) = self.host.poll_transmit(&mut buffer, self.now) {
            if transmit.to == HONEST && !is_lost() {
                self.client.handle_datagram(HOST, &mut buffer[..transmit.len], self.now);
            }
        }
        self.poll_events();
    }

    fn poll_events(&mut self) {
        let mut payload = Vec::new();
        for (side, endpoint) in [&mut self.host, &mut self.client].into_iter().enumerate() {
            while let Some(event) = endpoint.poll_event(&mut payload) {
                match event {
                    Event::Request { from, .. } => {
                        if let (Ok(peer), HOSTILE) = (endpoint.admit(from, self.now), from) {
                            self.hostile = peer;
                        }
                    }
                    Event::Received { peer: PeerId(1 | 2), .. } => {
                        assert_eq!(payload[..4], self.received[side].to_le_bytes());
                        self.received[side] += 1;
                    }
                    Event::Left { peer: PeerId(1 | 2), reason } => panic!("the honest one left: {reason}"),
                    _ => {}
                }
            }
        }
    }

    /// Checks that the honest nodes still deliver, and that all queues are within their limits.
    fn check_delivery_and_limits(&mut self) {
        self.send_both_ways(100);
        for _ in 0..4000 {
            if self.received == [self.sent; 2] {
                break;
            }
            self.advance(Duration::from_millis(20), None);
        }
        assert_eq!(self.received, [self.sent; 2]);
        let peers: Vec<PeerId> = self.host.peers().collect();
        assert!(peers.len() <= 124);
        for snapshot in peers.iter().filter_map(|peer| self.host.snapshot(*peer, self.now)) {
            let most = self.config.max_queued_bytes + OWN_CONTROL;
            assert!(snapshot.queued_bytes <= most, "{snapshot:?}");
            let held: usize = snapshot.inboxes.iter().map(|channel| channel.out_of_order_bytes).sum();
            assert!(held <= 2 * self.config.max_out_of_order_bytes + (320 << 10), "{snapshot:?}");
        }
    }
}
