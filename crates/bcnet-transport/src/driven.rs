//! The interface between a protocol without I/O and the program that owns its socket.

use core::net::SocketAddrV4;

use crate::endpoint::Transmit;
use crate::engine::Engine;
use crate::time::Time;

/// A protocol without I/O: it needs only datagrams and the time.
///
/// The driver in `bcnet-udp` runs everything that implements this trait: every [`Engine`], and the sessions and
/// clients of `bcnet-session`.
pub trait Driven {
    /// Handles a received datagram. May decrypt it in place.
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time);

    /// Handles all timers that are due.
    fn handle_timeout(&mut self, now: Time);

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due, or an earlier one.
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;

    /// Writes the next datagram to send into `buffer`.
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit>;
}

impl<E: Engine> Driven for E {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        Engine::handle_datagram(self, from, bytes, now);
    }

    fn handle_timeout(&mut self, now: Time) {
        Engine::handle_timeout(self, now);
    }

    fn next_timeout(&self) -> Option<Time> {
        Engine::next_timeout(self)
    }

    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        Engine::poll_transmit(self, buffer, now)
    }
}
