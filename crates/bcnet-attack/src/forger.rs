//! Datagrams whose source is not who it says: IPv4 packets written by hand, many per system call, at a given rate.

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

/// Sends datagrams to one target that come from anywhere.
pub(crate) struct Forger {
    socket: OwnedFd,
    target: SocketAddrV4,
    /// Packets that wait for company.
    packets: Vec<Vec<u8>>,
    queued: usize,
    counters: SendCounters,
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SendCounters {
    pub(crate) datagrams: u64,
    /// Without the headers of IP and UDP.
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

    /// Sends a datagram, now or when there are some more.
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

    /// Sends what waits. What the system does not take is lost, as on a network.
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

/// Writes an IPv4 packet with a UDP datagram. The system fills in its length, number and checksum; UDP does without.
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

/// How much is sent, and for how long at the most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodRate {
    /// Datagrams per second.
    pub(crate) rate: u32,
    pub(crate) max: Duration,
}

/// Runs `victims` while datagrams arrive: `write` is called with the number of each. The flood ends with the victims, or after
/// its time.
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
                // Who was held up does not make up for all of it at once.
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
        let flooded = attacker.join().map_err(|_| anyhow::anyhow!("the attacker has failed"))?;
        Ok((result?, flooded))
    })
}

/// What a flood was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodSummary {
    pub(crate) counters: SendCounters,
    pub(crate) time: Duration,
}

impl FloodSummary {
    /// Returns the datagrams per second that it came to.
    pub(crate) fn metric(&self) -> AttackMetric {
        let rate = self.counters.datagrams as f64 / self.time.as_secs_f64().max(0.001);
        AttackMetric::new("attack, datagrams per second", MetricUnit::Count, rate)
    }
}

/// Returns an address of one of 65,000 networks (/24), spread over all that are not special.
pub(crate) fn any_network(number: u64) -> Ipv4Addr {
    let network = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    let [high, low] = (network as u16).to_be_bytes();
    Ipv4Addr::new(24 + (high >> 2), high, low, 1 + (number % 250) as u8)
}

/// Packets per system call.
const BATCH: usize = 64;
const UDP_PROTOCOL: u8 = 17;
/// How often it is looked what is due.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
