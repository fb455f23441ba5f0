//! Datagrams with forged source addresses, written as IPv4 packets and sent in batches at a given rate.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketType, ipproto, sendmmsg,
    socket,
};

use crate::delays::sleep_until;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::sandbox::Sandbox;
use bcnet_udp::Clock;

/// Sends datagrams with any source address to one target.
pub(crate) struct Forger {
    socket: OwnedFd,
    target: SocketAddrV4,
    /// Packets that wait for the next system call.
    packets: Vec<Vec<u8>>,
    queued: usize,
    counters: SendCounters,
}

/// Counters of sent datagrams and bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SendCounters {
    pub(crate) datagrams: u64,
    /// Without IP and UDP headers.
    pub(crate) bytes: u64,
}

impl Forger {
    pub(crate) fn new(sandbox: Sandbox, target: SocketAddrV4) -> anyhow::Result<Self> {
        sandbox.check(target)?;
        let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))
            .context("cannot forge addresses: raw sockets need CAP_NET_RAW")?;
        Ok(Self {
            socket,
            target,
            packets: vec![Vec::new(); BATCH],
            queued: 0,
            counters: SendCounters::default(),
        })
    }

    /// Queues a datagram, and flushes the queue if it is full.
    pub(crate) fn push(&mut self, from: SocketAddrV4, payload: &[u8]) {
        if self.queued == self.packets.len() {
            self.flush();
        }
        if let Some(packet) = self.packets.get_mut(self.queued) {
            write_packet(packet, from, self.target, payload);
            self.queued += 1;
            self.counters.datagrams += 1;
            self.counters.bytes += payload.len() as u64;
        }
    }

    /// Sends the queued packets. A packet that the system refuses is lost, as on a network.
    pub(crate) fn flush(&mut self) {
        let target = SocketAddrAny::from(self.target);
        let slices: Vec<[IoSlice<'_>; 1]> =
            self.packets.iter().take(self.queued).map(|packet| [IoSlice::new(packet)]).collect();
        let mut controls: Vec<_> = slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut headers: Vec<_> = slices
            .iter()
            .zip(&mut controls)
            .map(|(slice, control)| MMsgHdr::new_with_addr(&target, slice, control))
            .collect();
        let mut rest = headers.as_mut_slice();
        while !rest.is_empty() {
            let sent = sendmmsg(&self.socket, rest, SendFlags::DONTWAIT).unwrap_or(1).max(1);
            rest = rest.get_mut(sent..).unwrap_or_default();
        }
        self.queued = 0;
    }

    pub(crate) const fn counters(&self) -> SendCounters {
        self.counters
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes an IPv4 packet with a UDP datagram.
///
/// The system fills in the length, id and checksum of the IP header. UDP over IPv4 needs no checksum.
fn write_packet(packet: &mut Vec<u8>, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
    packet.clear();
    packet.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP_PROTOCOL, 0, 0]);
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(((8 + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
}

/// The rate of a flood, and its longest duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodRate {
    /// Datagrams per second.
    pub(crate) rate: u32,
    pub(crate) max: Duration,
}

/// Runs `victims` during a flood: calls `write` with the number of each datagram.
///
/// The flood ends with `victims`, or after its longest duration.
pub(crate) fn flood<T: Send>(
    clock: Clock,
    flood_rate: FloodRate,
    mut forger: Forger,
    mut write: impl FnMut(&mut Forger, u64) + Send,
    victims: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, FloodSummary)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            let start = clock.now();
            let end = start + flood_rate.max;
            let (mut number, mut now) = (0, start);
            while !is_over.load(Ordering::Relaxed) && now < end {
                let due = (now.since(start).as_secs_f64() * f64::from(flood_rate.rate)) as u64 + 1;
                // After a delay, skips the datagrams that are more than 50 ms late.
                number = number.max(due.saturating_sub(u64::from(flood_rate.rate / 20).max(1)));
                while number < due {
                    write(&mut forger, number);
                    number += 1;
                }
                forger.flush();
                sleep_until(clock, now + POLL_INTERVAL);
                now = clock.now();
            }
            FloodSummary { counters: forger.counters(), time: now.since(start) }
        });
        let result = victims();
        is_over.store(true, Ordering::Relaxed);
        let flooded = attacker.join().map_err(|_| anyhow::anyhow!("the attacker has panicked"))?;
        Ok((result?, flooded))
    })
}

/// The datagrams and the duration of a flood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodSummary {
    pub(crate) counters: SendCounters,
    pub(crate) time: Duration,
}

impl FloodSummary {
    /// Returns the measured datagrams per second.
    pub(crate) fn metric(&self) -> AttackMetric {
        let rate = self.counters.datagrams as f64 / self.time.as_secs_f64().max(0.001);
        AttackMetric::new("attack, datagrams per second", MetricUnit::Count, rate)
    }
}

/// Returns an address in one of 65,000 /24 networks, spread over the unicast addresses.
pub(crate) fn any_network(number: u64) -> Ipv4Addr {
    let network = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    let [high, low] = (network as u16).to_be_bytes();
    Ipv4Addr::new(24 + (high >> 2), high, low, 1 + (number % 250) as u8)
}

/// Packets per system call.
const BATCH: usize = 64;
const UDP_PROTOCOL: u8 = 17;
/// The interval at which the flood checks for due datagrams.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
