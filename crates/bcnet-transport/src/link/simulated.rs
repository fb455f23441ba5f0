//! A link that stores the datagrams under way, for a real socket.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::SocketAddrV4;

use super::{Faults, Link, LinkArrival, LinkStats};
use crate::time::Time;

/// A [`Link`] with the datagrams that are under way on it.
///
/// Pass each datagram to [`push`](Self::push), and take those that have arrived with [`pop`](Self::pop). The
/// address is that of the remote end; the link only stores it. Buffers are reused, so a link that has grown to
/// its load does not allocate.
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddrV4};
/// use std::time::Duration;
///
/// use bcnet_transport::Time;
/// use bcnet_transport::link::{Faults, SimulatedLink};
///
/// let delay = Duration::from_millis(40);
/// let mut link = SimulatedLink::new(Faults { delay, ..Faults::default() }, 1701);
/// let remote = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
/// link.push(remote, b"hello", Time::ZERO);
/// assert!(link.pop(Time::ZERO).is_none());
/// assert_eq!(link.next_arrival(), Some(Time::ZERO + delay));
/// let (from, bytes) = link.pop(Time::ZERO + delay).expect("it has arrived");
/// assert_eq!((from, &*bytes), (remote, &b"hello"[..]));
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedLink {
    link: Link,
    /// The arrivals to come: their time, their number in the order of sending, and their slot.
    arrivals: BinaryHeap<Reverse<(Time, u64, usize)>>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    next_number: u64,
    dropped: u64,
}

/// A stored datagram.
#[derive(Debug, Clone)]
struct Slot {
    remote: SocketAddrV4,
    bytes: Vec<u8>,
}

impl SimulatedLink {
    /// The most datagrams under way. Further ones are dropped.
    pub const CAPACITY: usize = 4096;

    /// Creates a link. The same seed and the same calls give the same faults.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            link: Link::new(faults, seed),
            arrivals: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            next_number: 0,
            dropped: 0,
        }
    }

    /// Sends a datagram. It is lost, or arrives once or twice.
    pub fn push(&mut self, remote: SocketAddrV4, bytes: &[u8], now: Time) {
        for arrival in self.link.transmit(bytes.len(), now).into_iter().flatten() {
            self.store(arrival, remote, bytes);
        }
    }

    /// Returns the next datagram that has arrived at `now`, with its address.
    pub fn pop(&mut self, now: Time) -> Option<(SocketAddrV4, &mut [u8])> {
        let Reverse((_, _, index)) = self.arrivals.peek().copied().filter(|Reverse((at, ..))| *at <= now)?;
        self.arrivals.pop();
        self.free.push(index);
        let slot = self.slots.get_mut(index)?;
        Some((slot.remote, &mut slot.bytes))
    }

    /// Returns the time of the next arrival.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Time> {
        self.arrivals.peek().map(|Reverse((at, ..))| *at)
    }

    /// Returns the counters of the link. [`LinkStats::dropped`] includes datagrams above the capacity.
    #[must_use]
    pub const fn stats(&self) -> LinkStats {
        let stats = self.link.stats();
        LinkStats { dropped: stats.dropped + self.dropped, ..stats }
    }

    fn store(&mut self, LinkArrival { at, corrupt }: LinkArrival, remote: SocketAddrV4, bytes: &[u8]) {
        if self.arrivals.len() >= Self::CAPACITY {
            self.dropped += 1;
            return;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { remote, bytes: Vec::new() });
            self.slots.len() - 1
        });
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.remote = remote;
        slot.bytes.clear();
        slot.bytes.extend_from_slice(bytes);
        if let Some((position, mask)) = corrupt {
            corrupt_byte(&mut slot.bytes, position, mask);
        }
        self.arrivals.push(Reverse((at, self.next_number, index)));
        self.next_number += 1;
    }
}

/// Changes one byte: `position` counts modulo the length.
fn corrupt_byte(bytes: &mut [u8], position: u64, mask: u8) {
    let position = position.checked_rem(bytes.len() as u64).and_then(|position| position.try_into().ok());
    if let Some(byte) = position.and_then(|position: usize| bytes.get_mut(position)) {
        *byte ^= mask;
    }
}
