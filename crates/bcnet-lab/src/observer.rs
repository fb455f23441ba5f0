//! The interface of observers, which see every datagram and event of a world.

use bcnet_transport::{Endpoint, Event, Time};

use crate::engine::LabEngine;

/// Source, destination and time of a datagram that a [`WorldObserver`] sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramMeta {
    /// Number of the sending node.
    pub from: usize,
    /// Number of the receiving node.
    pub to: usize,
    /// Number of datagrams sent before. Both copies of a duplicated datagram have the same number.
    pub number: u64,
    /// Time of the observation.
    pub now: Time,
}

/// Observer of everything that happens in a [`World`](crate::World). Each node has a number, and the proxy the one after.
pub trait WorldObserver<E: LabEngine + ?Sized = Endpoint> {
    /// Called for each event of a node, with the payload of the event. The observer may act on the engine.
    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], engine: &mut E, now: Time);

    /// Called when an engine, the `sender`, sends a datagram.
    fn on_sent(&mut self, _meta: DatagramMeta, _bytes: &[u8], _sender: &E) {}

    /// Called when a proxy sends a datagram.
    fn on_proxy_sent(&mut self, _meta: DatagramMeta, _bytes: &[u8]) {}

    /// Called before the engine of a node handles a datagram from its socket.
    fn on_socket_read(&mut self, _node: usize, _from: usize, _bytes: &[u8], _engine: &E, _now: Time) {}

    /// Called after the world serviced a node.
    ///
    /// A service lets the engine handle its datagrams and timers, report its events, and send.
    fn on_serviced(&mut self, _node: usize, _engine: &E, _now: Time) {}

    /// Called when an uncorrupted datagram arrives at a node or at the proxy.
    fn on_arrival(&mut self, _meta: DatagramMeta, _bytes: &[u8]) {}

    /// Called before a corrupted datagram arrives. Return `false` to drop it, as the UDP checksum would.
    fn on_corrupted(&mut self, _meta: DatagramMeta, _bytes: &[u8]) -> bool {
        true
    }
}

/// An observer of events only.
pub(crate) struct EventObserver<F>(pub(crate) F);

impl<E: LabEngine + ?Sized, F: FnMut(usize, Event, &[u8], &mut E, Time)> WorldObserver<E>
    for EventObserver<F>
{
    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], engine: &mut E, now: Time) {
        (self.0)(node, event, bytes, engine, now);
    }
}
