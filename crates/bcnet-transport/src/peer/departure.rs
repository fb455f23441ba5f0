//! The disconnect of a client that the host has not verified yet ([T-57]).
//!
//! [T-57]: bcnet_wire::protocol#t-57

use core::net::Ipv4Addr;

use crate::time::Time;
use crate::wire::Seq;

/// An unverified disconnect and its probes.
#[derive(Debug)]
pub(crate) struct Departure {
    /// The number of the disconnect, which every probe acknowledges.
    seq: Seq,
    /// The disconnect has the number that was expected.
    is_in_order: bool,
    /// The address that the client reports for itself.
    address: Ipv4Addr,
    first: [Seq; 2],
    second: Option<[Seq; 2]>,
    /// The time of the first send of the current probe.
    since: Time,
    next_send: Time,
}

/// The effect of a datagram on a [`Departure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeAnswer {
    /// The datagram does not acknowledge both numbers of the current probe.
    None,
    /// The first probe is answered.
    First,
    /// The second probe is answered: the client is alive.
    Second,
}

impl Departure {
    pub(crate) const fn new(seq: Seq, address: Ipv4Addr, first: [Seq; 2], now: Time) -> Self {
        Self { seq, is_in_order: true, address, first, second: None, since: now, next_send: now }
    }

    /// Handles another disconnect of the same client.
    ///
    /// The probes acknowledge the latest one, but prefer the one with the expected number.
    pub(crate) const fn acknowledge(&mut self, seq: Seq, address: Ipv4Addr, is_in_order: bool) {
        if is_in_order || !self.is_in_order {
            (self.seq, self.address, self.is_in_order) = (seq, address, is_in_order);
        }
    }

    pub(crate) const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the numbers of all probes.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Seq> {
        self.first.into_iter().chain(self.second.into_iter().flatten())
    }

    /// Starts the second probe, after a pause in which a leaving client closes.
    pub(crate) const fn start_second(&mut self, numbers: [Seq; 2], now: Time) {
        let since = now.plus(SECOND_PROBE_DELAY);
        (self.second, self.since, self.next_send) = (Some(numbers), since, since);
    }

    /// Returns the time at which an unanswered probe shows that the client has left.
    pub(crate) fn ends_at(&self, trip: u64) -> Time {
        self.since.plus(MAX_SILENCE + trip.min(MAX_TRIP))
    }

    /// Returns the time of the next send or of the end.
    pub(crate) fn next_timeout(&self, trip: u64) -> Time {
        self.next_send.min(self.ends_at(trip))
    }

    /// Returns the probe that is due: the number to acknowledge and the two random numbers.
    pub(crate) fn take_due_probe(&mut self, now: Time) -> Option<(Seq, [Seq; 2])> {
        if now < self.next_send {
            return None;
        }
        self.next_send = now.plus(PROBE_INTERVAL);
        Some((self.seq, self.second.unwrap_or(self.first)))
    }

    /// Checks the numbers that a datagram acknowledges.
    pub(crate) fn answer(&self, acked: impl Iterator<Item = Seq> + Clone) -> ProbeAnswer {
        let [one, other] = self.second.unwrap_or(self.first);
        // Stock repeats ACKs of earlier probes, so other numbers are no sign of a forgery.
        if !acked.clone().any(|seq| seq == one) || !acked.clone().any(|seq| seq == other) {
            ProbeAnswer::None
        } else if self.second.is_some() {
            ProbeAnswer::Second
        } else {
            ProbeAnswer::First
        }
    }
}

/// A live client answers a probe within this time and one round trip. All times are in microseconds.
const MAX_SILENCE: u64 = 1_500_000;
/// The longest round trip that is waited for.
const MAX_TRIP: u64 = 1_000_000;
/// The interval between two sends of a probe.
const PROBE_INTERVAL: u64 = 75_000;
/// The pause before the second probe: longer than the last frame of a leaving stock client.
const SECOND_PROBE_DELAY: u64 = 250_000;
