//! The limit of the bytes that a session sends to all players together ([S-46]).
//!
//! [`Uplink`] counts bytes and computes each player's share. The relay asks it, and sends, queues or drops.
//!
//! [S-46]: bcnet_transport::wire::protocol#s-46

use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;

use crate::byte_budget::{ByteBucket, ByteRate};

/// The bytes that a session may send to all players together.
#[derive(Debug)]
pub(crate) struct Uplink {
    rate: ByteRate,
    total: ByteBucket,
    /// The time of the next flush of messages that wait for this limit. `None` if no message waits.
    pub(crate) flush_at: Option<Time>,
    /// The receiver whose queue is flushed first: its message was the first one that had to wait.
    pub(crate) next_receiver: PeerId,
}

impl Uplink {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            rate: total_rate(per_second),
            total: ByteBucket::default(),
            flush_at: None,
            next_receiver: PeerId::HOST,
        }
    }

    pub(crate) fn set_rate(&mut self, per_second: u32) {
        self.rate = total_rate(per_second);
    }

    /// Returns the share of each of `players` players at one of `addresses` addresses.
    ///
    /// All shares together are three quarters of the total. So a player within its share never waits for others.
    pub(crate) fn share(&self, addresses: usize, players: usize) -> ByteRate {
        let parts = u32::try_from(addresses.saturating_mul(players)).unwrap_or(u32::MAX).max(1);
        let per_second = self.rate.per_second / 4 * 3 / parts;
        ByteRate { per_second, burst: per_second / 8 }
    }

    /// Counts bytes that are sent. The debt is limited, so the effect of a burst ends within a second.
    pub(crate) fn charge(&mut self, bytes: u32, now: Time) {
        self.total.charge_up_to(bytes, self.rate, MAX_DEBT, now);
    }

    /// Returns whether a player above its share may send: no message waits, and the total is not used up.
    pub(crate) fn has_spare(&self, now: Time) -> bool {
        self.flush_at.is_none() && self.has_room(now)
    }

    /// Returns whether a waiting message may leave.
    pub(crate) fn has_room(&self, now: Time) -> bool {
        self.total.has_room(self.rate, now)
    }

    /// Records that a message for a player waits for this limit. Returns the time of the flush.
    pub(crate) fn wait(&mut self, receiver: PeerId, now: Time) -> Time {
        *self.flush_at.get_or_insert_with(|| {
            self.next_receiver = receiver;
            now + FLUSH_INTERVAL
        })
    }
}

/// Returns the cost of a message: its bytes, and the headers of the datagrams that it needs.
pub(crate) fn uplink_cost(payload: &[u8]) -> u32 {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    len.saturating_add((1 + len / BYTES_PER_DATAGRAM).saturating_mul(HEADER_BYTES))
}

/// Returns the rate of messages. The rest of the limit is for bursts, ACKs and retransmissions.
fn total_rate(per_second: u32) -> ByteRate {
    ByteRate { per_second: per_second - per_second / 8, burst: per_second / 16 }
}

/// The number of payload bytes that a large message has in one datagram.
const BYTES_PER_DATAGRAM: u32 = 400;
/// The bytes of a datagram besides the payload: headers of IP, UDP, datagram and message, ACKs.
const HEADER_BYTES: u32 = 48;
/// The longest time in which a debt is paid back.
const MAX_DEBT: Duration = Duration::from_secs(1);
/// The time between two flushes of waiting messages, unless a datagram arrives earlier.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// S-46: players at one address share what a player at another address has alone.
    #[test]
    fn each_address_has_an_equal_part() {
        let uplink = Uplink::new(80_000);
        assert_eq!(uplink.share(8, 1).per_second, 70_000 * 3 / 4 / 8);
        assert_eq!(uplink.share(3, 6).per_second, uplink.share(3, 1).per_second / 6);
        assert_eq!(uplink.share(0, 0), uplink.share(1, 1));
    }

    /// S-46: after a burst, the total is free again within a second.
    #[test]
    fn debt_is_limited() {
        let mut uplink = Uplink::new(80_000);
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        assert!(uplink.has_spare(at(0)));
        uplink.charge(10_000_000, at(0));
        assert!(!uplink.has_room(at(999)) && uplink.has_room(at(1001)));
        let flush_at = uplink.wait(PeerId(3), at(2000));
        assert_eq!((flush_at, uplink.wait(PeerId(4), at(2001))), (at(2010), at(2010)));
        assert_eq!(uplink.next_receiver, PeerId(3));
        assert!(uplink.has_room(at(2001)) && !uplink.has_spare(at(2001)), "a message waits");
    }
}
