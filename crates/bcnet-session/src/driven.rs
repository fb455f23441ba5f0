//! Lets a driver run a session or a client like an engine.

use std::net::SocketAddrV4;

use bcnet_transport::{Driven, Engine, Time, Transmit};

use crate::{Client, Session};

/// Implements [`Driven`] with the methods of the same names.
macro_rules! driven {
    ($($name:ident)*) => {$(
        impl<E: Engine> Driven for $name<E> {
            fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
                self.handle_datagram(from, bytes, now);
            }

            fn handle_timeout(&mut self, now: Time) {
                self.handle_timeout(now);
            }

            fn next_timeout(&self) -> Option<Time> {
                self.next_timeout()
            }

            fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
                self.poll_transmit(buffer, now)
            }
        }
    )*};
}

driven! { Client Session }
