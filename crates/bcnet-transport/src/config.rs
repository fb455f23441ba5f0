//! Every setting of an endpoint, with its default value.
//!
//! [`Config::resolve`] brings all values within their bounds. This module has no other logic.

use core::net::Ipv4Addr;
use core::time::Duration;

use crate::time::Time;
use crate::wire::{DATAGRAM_HEADER, MAX_DATAGRAM, MAX_MESSAGE};

/// Settings of an endpoint. The defaults suit a game server and stock peers.
///
/// `D` is the type of all times: [`Duration`] for callers, microseconds inside the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config<D = Duration> {
    /// Encrypts and decrypts datagrams ([T-40]).
    ///
    /// Switch the cipher off only if the caller encrypts, in batches for example. Peers cannot read plaintext
    /// datagrams. The default is on.
    ///
    /// [T-40]: bcnet_wire::protocol#t-40
    pub cipher: bool,
    /// The own address, as far as it is known. Connect requests, identities and disconnects carry it.
    ///
    /// The default is 0.0.0.0: unknown.
    pub address: Ipv4Addr,
    /// The largest datagram to send, in bytes ([T-04]).
    ///
    /// A datagram must have space for a control message, so values below 414 become 414. The default is 512.
    ///
    /// [T-04]: bcnet_wire::protocol#t-04
    pub datagram_limit: usize,
    /// The largest message to send without splitting it, in bytes with its header ([T-23]).
    ///
    /// A message must fit a datagram and its size field, so larger values are reduced. Values below 8 become
    /// 8. The default is 412.
    ///
    /// [T-23]: bcnet_wire::protocol#t-23
    pub message_limit: usize,
    /// The maximum number of peers that a host admits, at most 124 ([T-50]). The default is 124.
    ///
    /// [T-50]: bcnet_wire::protocol#t-50
    pub max_peers: usize,
    /// The maximum number of addresses whose requests wait for the caller's decision. The default is 32.
    pub max_pending_requests: usize,
    /// The choice of ids for new clients ([T-50]). The default is [`IdPolicy::Sequential`].
    ///
    /// [T-50]: bcnet_wire::protocol#t-50
    pub id_policy: IdPolicy,
    /// The proof that a new client must give to verify its address ([T-76]).
    ///
    /// The default is [`ProofPolicy::Auto`].
    ///
    /// [T-76]: bcnet_wire::protocol#t-76
    pub proof_policy: ProofPolicy,
    /// Tells that the caller admits only some clients, for example those with a password ([T-76]).
    ///
    /// A client then joins only while its offer is stored. A cookie can be guessed, and a cookie does not
    /// show that the caller has agreed. The default is `false`.
    ///
    /// [T-76]: bcnet_wire::protocol#t-76
    pub selective_admission: bool,
    /// The time without queued messages after which a peer gets a keepalive ([T-55]). The minimum is 1 ms.
    ///
    /// The default is 5 s.
    ///
    /// [T-55]: bcnet_wire::protocol#t-55
    pub keepalive: D,
    /// The time without a datagram from a peer after which that peer is gone ([T-56]). The default is 45 s.
    ///
    /// [T-56]: bcnet_wire::protocol#t-56
    pub idle_timeout: D,
    /// The time for which a connect request waits for the caller's decision. The default is 10 s.
    pub pending_timeout: D,
    /// The time without an ACK after which a reliable message ends the connection ([T-64]).
    ///
    /// The default is 360 s.
    ///
    /// [T-64]: bcnet_wire::protocol#t-64
    pub delivery_timeout: D,
    /// The maximum duration of a graceful shutdown ([T-57]).
    ///
    /// The disconnect notice is retransmitted until then. It waits up to half of this time for earlier
    /// messages to be acknowledged. The default is 15 s.
    ///
    /// [T-57]: bcnet_wire::protocol#t-57
    pub linger: D,
    /// The maximum delay of an ACK that waits for data to share a datagram with ([T-60]).
    ///
    /// ACKs wait only if this side has sent data within [`ack_piggyback_window`](Self::ack_piggyback_window).
    /// The default is 20 ms.
    ///
    /// [T-60]: bcnet_wire::protocol#t-60
    pub ack_delay: D,
    /// The time after sent data in which more data is likely, so that ACKs wait for it ([T-60]).
    ///
    /// The default is 50 ms.
    ///
    /// [T-60]: bcnet_wire::protocol#t-60
    pub ack_piggyback_window: D,
    /// The retransmission timeout before the first round-trip time is measured ([T-61]).
    ///
    /// The default is 1 s. A lost connect request is sent again after this time.
    ///
    /// [T-61]: bcnet_wire::protocol#t-61
    pub initial_rto: D,
    /// The minimum retransmission timeout ([T-61]).
    ///
    /// It must exceed the time that a peer takes to answer: its [`ack_delay`](Self::ack_delay) and one frame
    /// of a game at 60 Hz. The default is 48 ms.
    ///
    /// [T-61]: bcnet_wire::protocol#t-61
    pub min_rto: D,
    /// The maximum retransmission timeout ([T-61]). The default is 5 s.
    ///
    /// [T-61]: bcnet_wire::protocol#t-61
    pub max_rto: D,
    /// The interval at which the caller polls the endpoint, if it is fixed (a game loop).
    ///
    /// Zero means that the caller polls at [`next_timeout`](crate::Engine::next_timeout). A retransmission
    /// happens at the tick nearest to its time. The default is zero.
    pub tick: D,
    /// The maximum number of messages queued for one peer; each fragment counts.
    ///
    /// Above it, `send` returns an error. `send` also returns an error if 16,384 reliable payloads follow the
    /// oldest unacknowledged one ([T-69]). The default is 32,768.
    ///
    /// [T-69]: bcnet_wire::protocol#t-69
    pub max_queued_messages: usize,
    /// The maximum number of bytes queued for one peer, at most 512 MiB.
    ///
    /// Above it, `send` returns an error. Control messages of the engine do not count; [T-64] limits them.
    /// The default is 1 MiB.
    ///
    /// [T-64]: bcnet_wire::protocol#t-64
    pub max_queued_bytes: usize,
    /// The size in bytes of the out-of-order buffer of one channel of one peer.
    ///
    /// The fragments of the next message may use as many bytes more as the largest payload has.
    /// The default is 320 KiB.
    pub max_out_of_order_bytes: usize,
    /// The maximum number of bytes in events that the caller has not polled, at most 512 MiB.
    ///
    /// Above it, the endpoint drops messages without an ACK, so that the peers retransmit them.
    /// The default is 4 MiB.
    pub max_event_bytes: usize,
    /// The congestion window at the start, in bytes ([T-63]). The default is 20,480.
    ///
    /// [T-63]: bcnet_wire::protocol#t-63
    pub initial_window: usize,
    /// The maximum congestion window, in bytes ([T-63]). The default is 262,144.
    ///
    /// [T-63]: bcnet_wire::protocol#t-63
    pub max_window: usize,
    /// Uses the fast path for frequent datagrams. Switch it off only to compare both paths.
    #[doc(hidden)]
    pub fast_path: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cipher: true,
            address: Ipv4Addr::UNSPECIFIED,
            datagram_limit: MAX_DATAGRAM,
            message_limit: MAX_MESSAGE,
            max_peers: 124,
            max_pending_requests: 32,
            id_policy: IdPolicy::Sequential,
            proof_policy: ProofPolicy::Auto,
            selective_admission: false,
            keepalive: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(45),
            pending_timeout: Duration::from_secs(10),
            delivery_timeout: Duration::from_secs(360),
            linger: Duration::from_secs(15),
            ack_delay: Duration::from_millis(20),
            ack_piggyback_window: Duration::from_millis(50),
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(48),
            max_rto: Duration::from_secs(5),
            tick: Duration::ZERO,
            max_queued_messages: 32_768,
            max_queued_bytes: 1 << 20,
            // T-69: enough for a message at the far end of the receive window, and for some messages before
            // it.
            max_out_of_order_bytes: 320 << 10,
            max_event_bytes: 4 << 20,
            initial_window: 40 * MAX_DATAGRAM,
            max_window: 512 * MAX_DATAGRAM,
            fast_path: true,
        }
    }
}

impl Config {
    /// Returns the settings for the engine: all values within bounds, times in microseconds.
    ///
    /// The engine then converts no durations while it handles datagrams.
    pub(crate) fn resolve(self) -> Config<u64> {
        let datagram_limit = self.datagram_limit.clamp(DATAGRAM_HEADER + MAX_MESSAGE, MAX_UDP_PAYLOAD);
        let max_message = MAX_SIZE_FIELD.min(datagram_limit - DATAGRAM_HEADER);
        let micros = |time| (Time::ZERO + time).as_micros().min(FOREVER);
        Config {
            cipher: self.cipher,
            address: self.address,
            datagram_limit,
            message_limit: self.message_limit.clamp(MIN_MESSAGE, max_message),
            max_peers: self.max_peers.min(MAX_PEERS),
            max_pending_requests: self.max_pending_requests.min(MAX_PENDING),
            id_policy: self.id_policy,
            proof_policy: self.proof_policy,
            selective_admission: self.selective_admission,
            keepalive: micros(self.keepalive).max(MIN_KEEPALIVE),
            idle_timeout: micros(self.idle_timeout),
            pending_timeout: micros(self.pending_timeout),
            delivery_timeout: micros(self.delivery_timeout),
            linger: micros(self.linger),
            ack_delay: micros(self.ack_delay),
            ack_piggyback_window: micros(self.ack_piggyback_window),
            initial_rto: micros(self.initial_rto),
            min_rto: micros(self.min_rto),
            max_rto: micros(self.max_rto),
            tick: micros(self.tick),
            max_queued_messages: self.max_queued_messages,
            max_queued_bytes: self.max_queued_bytes.min(MAX_RING_BYTES),
            max_out_of_order_bytes: self.max_out_of_order_bytes,
            max_event_bytes: self.max_event_bytes.min(MAX_RING_BYTES),
            initial_window: self.initial_window,
            max_window: self.max_window,
            fast_path: self.fast_path,
        }
    }
}

/// The choice of ids for new clients ([T-50]).
///
/// [T-50]: bcnet_wire::protocol#t-50
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdPolicy {
    /// The id after the last assigned one, as stock does.
    #[default]
    Sequential,
    /// A random free id. Without a [secret](crate::Endpoint::with_secret) the ids are predictable.
    Random,
}

/// The proof that a [challenged](crate::Engine::challenge) client must give ([T-76]).
///
/// [T-76]: bcnet_wire::protocol#t-76
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProofPolicy {
    /// An ACK of the cookie. While no attack is detected, datagrams under the id are enough after one second.
    #[default]
    Auto,
    /// An ACK of the cookie.
    Ack,
    /// A datagram under the offered id.
    Id,
}

/// The number of assignable ids: 2 to 126 without 0x5C (T-50).
const MAX_PEERS: usize = 124;
const MAX_PENDING: usize = 100;
/// In microseconds. With an interval of zero, keepalives would be due without end.
const MIN_KEEPALIVE: u64 = 1000;
/// The largest payload of UDP over IPv4, in bytes.
const MAX_UDP_PAYLOAD: usize = 65_507;
/// The header of a first fragment and one byte of payload (T-20).
const MIN_MESSAGE: usize = 8;
/// The largest value of the 13-bit size field (T-12).
const MAX_SIZE_FIELD: usize = 0x1FFF;
/// A quarter of the offsets of a [`ByteRing`](crate::ring::ByteRing), which may have to double twice.
const MAX_RING_BYTES: usize = 512 << 20;
/// About a thousand years, in microseconds. Sums and doublings of it do not overflow.
const FOREVER: u64 = u64::MAX >> 9;
