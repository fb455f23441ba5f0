//! Every tunable of an endpoint, with its default.

use core::net::Ipv4Addr;
use core::time::Duration;

use crate::time::Time;
use crate::wire::{DATAGRAM_HEADER, MAX_DATAGRAM, MAX_MESSAGE};

/// How an endpoint behaves. The defaults suit a game server and stock peers.
///
/// `D` is how times are told: as durations, or inside the engine in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config<D = Duration> {
    /// Cipher datagrams. Without it they are not wire-compatible, unless the caller does it (in batches, say).
    pub cipher: bool,
    /// The own address as far as it is known: peers are told it with a connect request, a name and a goodbye.
    pub address: Ipv4Addr,
    /// The largest datagram to send, in bytes (T-04). It has room for a control message, so less than 414 counts as that.
    pub datagram_limit: usize,
    /// The largest message to send before it is split, in bytes with its header (T-23). It must fit a datagram and its own
    /// size field, so more counts as what does; less than 8 counts as that.
    pub message_limit: usize,
    /// The most peers a host admits, at most 124 (T-50).
    pub peers: usize,
    /// The most addresses whose requests wait for the caller's decision at once.
    pub pending: usize,
    /// Which ids newcomers get (T-50).
    pub ids: Ids,
    /// What newcomers must do to prove that they hear this host (T-76).
    pub prove: Prove,
    /// Whether the caller lets in only some of those who ask, by a password say. Then it takes an offer that is remembered
    /// to join: a cookie can be found by trying, and does not tell that the caller has agreed (T-76).
    pub selective: bool,
    /// A keepalive goes to a peer after this long without anything queued for it (T-55). Less than 1 ms counts as that.
    pub keepalive: D,
    /// A peer of which nothing is heard for this long is gone (T-56).
    pub silence: D,
    /// How long a connection attempt waits for the caller's decision.
    pub pending_timeout: D,
    /// A reliable message that nobody acknowledges for this long ends the connection (T-64).
    pub undeliverable: D,
    /// How long leaving takes at most (T-57). The last words to a peer are repeated until then, and wait half as long for
    /// what was queued before them.
    pub linger: D,
    /// An ACK waits for company at most this long, if this side has sent data within [`ack_company`](Self::ack_company).
    pub ack_delay: D,
    /// Whoever sent data this recently is likely to send again soon.
    pub ack_company: D,
    /// The time to a retransmission before any round trip is known (T-61).
    pub first_timeout: D,
    /// The least and the most time to a retransmission. The least is more than the peer may take to answer: its
    /// [`ack_delay`](Self::ack_delay) and a frame of a game at 60 Hz.
    pub min_timeout: D,
    /// See [`min_timeout`](Self::min_timeout).
    pub max_timeout: D,
    /// How often the caller services the endpoint, if it does so at fixed times (a game loop); zero if it keeps to
    /// [`next_timeout`](crate::Engine::next_timeout). A retransmission happens at the service nearest to its time.
    pub tick: D,
    /// The most messages that wait for one peer, parts counted singly; more is an error at `send`. So are, in any case,
    /// more than 16,384 reliable payloads from the oldest that is not acknowledged on (T-69).
    pub queue_messages: usize,
    /// The most bytes that wait for one peer, at most 512 MiB; more is an error at `send`. The engine's own control messages
    /// come on top of it, within the limit of T-64.
    pub queue_bytes: usize,
    /// The most bytes held for one channel of a peer while earlier messages or parts are missing. The parts of the message
    /// that is next may take as much more as the largest payload has.
    pub hold_bytes: usize,
    /// The most bytes in events that the caller has not polled, at most 512 MiB; more is left to the peers to send again.
    pub event_bytes: usize,
    /// Unacknowledged bytes to one peer at the start, and at the most (T-63).
    pub first_budget: usize,
    /// See [`first_budget`](Self::first_budget).
    pub max_budget: usize,
    /// Whether frequent datagrams take short ways, which are faster and otherwise the same. Off only to compare.
    #[doc(hidden)]
    pub short_ways: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cipher: true,
            address: Ipv4Addr::UNSPECIFIED,
            datagram_limit: MAX_DATAGRAM,
            message_limit: MAX_MESSAGE,
            peers: 124,
            pending: 32,
            ids: Ids::Sequential,
            prove: Prove::Auto,
            selective: false,
            keepalive: Duration::from_secs(5),
            silence: Duration::from_secs(45),
            pending_timeout: Duration::from_secs(10),
            undeliverable: Duration::from_secs(360),
            linger: Duration::from_secs(15),
            ack_delay: Duration::from_millis(20),
            ack_company: Duration::from_millis(50),
            first_timeout: Duration::from_secs(1),
            min_timeout: Duration::from_millis(48),
            max_timeout: Duration::from_secs(5),
            tick: Duration::ZERO,
            queue_messages: 32_768,
            queue_bytes: 1 << 20,
            // What a message at the far end of the window needs (T-69), and some to hold.
            hold_bytes: 320 << 10,
            event_bytes: 4 << 20,
            first_budget: 40 * MAX_DATAGRAM,
            max_budget: 512 * MAX_DATAGRAM,
            short_ways: true,
        }
    }
}

impl Config {
    /// The same as the engine uses it: every number within its bounds, and times in the unit of [`Time`], so that
    /// nothing is converted for every datagram.
    pub(crate) fn resolve(self) -> Config<u64> {
        let datagram_limit = self.datagram_limit.clamp(DATAGRAM_HEADER + MAX_MESSAGE, MAX_UDP);
        let max_message = MAX_WIRE_LEN.min(datagram_limit - DATAGRAM_HEADER);
        let micros = |time| (Time::ZERO + time).as_micros().min(FOREVER);
        Config {
            cipher: self.cipher,
            address: self.address,
            datagram_limit,
            message_limit: self.message_limit.clamp(MIN_MESSAGE, max_message),
            peers: self.peers.min(MAX_PEERS),
            pending: self.pending.min(MAX_PENDING),
            ids: self.ids,
            prove: self.prove,
            selective: self.selective,
            keepalive: micros(self.keepalive).max(MIN_KEEPALIVE),
            silence: micros(self.silence),
            pending_timeout: micros(self.pending_timeout),
            undeliverable: micros(self.undeliverable),
            linger: micros(self.linger),
            ack_delay: micros(self.ack_delay),
            ack_company: micros(self.ack_company),
            first_timeout: micros(self.first_timeout),
            min_timeout: micros(self.min_timeout),
            max_timeout: micros(self.max_timeout),
            tick: micros(self.tick),
            queue_messages: self.queue_messages,
            queue_bytes: self.queue_bytes.min(MAX_BYTES),
            hold_bytes: self.hold_bytes,
            event_bytes: self.event_bytes.min(MAX_BYTES),
            first_budget: self.first_budget,
            max_budget: self.max_budget,
            short_ways: self.short_ways,
        }
    }
}

/// T-50: which ids newcomers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ids {
    /// The one after the last, as stock does.
    #[default]
    Sequential,
    /// Any that is free. It takes a [secret](crate::Endpoint::with_secret) that nobody can foresee them.
    Random,
}

/// T-76: what a newcomer must do that is [challenged](crate::Engine::challenge).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prove {
    /// Acknowledge the cookie; while no attack is seen, speak under its id for a second.
    #[default]
    Auto,
    /// Acknowledge the cookie.
    Ack,
    /// Speak under its id.
    Id,
}

/// T-50: ids 2 to 126 without 0x5C.
const MAX_PEERS: usize = 124;
const MAX_PENDING: usize = 100;
/// Keepalives that are due at once would be due for ever.
const MIN_KEEPALIVE: u64 = 1000;
/// What UDP over IPv4 carries.
const MAX_UDP: usize = 65_507;
/// T-20: the header of a first part and a byte.
const MIN_MESSAGE: usize = 8;
/// T-12: what 13 bits can say.
const MAX_WIRE_LEN: usize = 0x1FFF;
/// A quarter of what a [`ByteRing`](crate::ring::ByteRing) can count, as it may have to double twice.
const MAX_BYTES: usize = 512 << 20;
/// A thousand years, in microseconds: so far from the end of time that sums and doublings do not reach it.
const FOREVER: u64 = u64::MAX >> 9;
