//! What watches a world while time passes.

use bcnet_transport::{Endpoint, Event, Time};

use crate::engine::LabEngine;

/// Which datagram an [`Observer`] sees, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramMeta {
    /// The number of the node that sent it.
    pub from: usize,
    /// The number of the node that it is for.
    pub to: usize,
    /// How many datagrams were sent before it. Both copies of one that is duplicated have the same number.
    pub number: u64,
    /// The time.
    pub now: Time,
}

/// Hears and sees everything that happens in a [`World`](crate::World). Nodes are told by their number.
pub trait Observer<E: LabEngine + ?Sized = Endpoint> {
    /// `node` has something to tell; `bytes` belong to the event. Its engine may be used at once.
    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], engine: &mut E, now: Time);

    /// An engine, the `sender`, puts a datagram on the way.
    fn on_sent(&mut self, _meta: DatagramMeta, _bytes: &[u8], _sender: &E) {}

    /// A proxy puts a datagram on the way.
    fn on_passed(&mut self, _meta: DatagramMeta, _bytes: &[u8]) {}

    /// A node is about to take a datagram out of its socket.
    fn on_taken(&mut self, _node: usize, _from: usize, _bytes: &[u8], _engine: &E, _now: Time) {}

    /// A node was serviced.
    fn on_serviced(&mut self, _node: usize, _engine: &E, _now: Time) {}

    /// A datagram arrives as it was sent.
    fn on_arrival(&mut self, _meta: DatagramMeta, _bytes: &[u8]) {}

    /// A datagram that was changed on the way is about to arrive. `false` drops it, as UDP's checksum would.
    fn on_corrupted(&mut self, _meta: DatagramMeta, _bytes: &[u8]) -> bool {
        true
    }
}

/// An observer of events only.
pub(crate) struct Listener<F>(pub(crate) F);

impl<E: LabEngine + ?Sized, F: FnMut(usize, Event, &[u8], &mut E, Time)> Observer<E> for Listener<F> {
    fn on_event(&mut self, node: usize, event: Event, bytes: &[u8], engine: &mut E, now: Time) {
        (self.0)(node, event, bytes, engine, now);
    }
}
