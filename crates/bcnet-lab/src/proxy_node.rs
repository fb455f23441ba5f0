//! A proxy between the nodes of a world: the core of `bcnet-proxy` with sockets on the virtual network.
//!
//! This module only maps node numbers to addresses. Admission, forwarding and healing are those of [`Proxy`].

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use bcnet_observe::MessageBuffer;
use bcnet_proxy::{DatagramTarget, Inbound, Proxy, ProxyConfig, ProxyEvent};
use bcnet_transport::Time;
use bcnet_transport::wire::Role;

use crate::world::{node_address, node_number};

/// A proxy in a world.
///
/// Its listening socket has a number like a node. A source is an address of the proxy toward the server, one for each
/// player. The sources have the next numbers, so that each hop has its own link.
#[derive(Debug)]
pub(crate) struct ProxyNode {
    core: Proxy,
    listen: usize,
    /// Number of the node behind the proxy.
    server: usize,
    /// Node number of each source that is in use, by the number that [`Proxy`] gave to the source.
    sources: BTreeMap<u32, usize>,
    /// The number after the last source.
    end_number: usize,
}

/// A datagram that a proxy sends, with source and destination numbers.
pub(crate) struct ProxyDatagram {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: Vec<u8>,
}

impl ProxyNode {
    /// Creates a proxy that listens at the number `listen` and has one source per player.
    pub(crate) fn new(listen: usize, server: usize, heal: bool, players: usize) -> Self {
        let end = listen + 1 + players;
        let sources = (listen + 1..end).map(|number| *node_address(number).ip()).collect();
        let core = Proxy::new(ProxyConfig { heal, sources, ..ProxyConfig::default() });
        Self { core, listen, server, sources: BTreeMap::new(), end_number: end }
    }

    /// Returns whether `number` belongs to the proxy.
    pub(crate) fn has_number(&self, number: usize) -> bool {
        (self.listen..self.end_number).contains(&number)
    }

    /// Returns the links that replace the link `from` → `to` because of the proxy.
    pub(crate) fn hops(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let sources = || self.listen + 1..self.end_number;
        match (from, to) {
            (from, to) if from == self.listen && to == self.server => {
                sources().map(|source| (source, to)).collect()
            }
            (from, to) if from == self.server && to == self.listen => {
                sources().map(|source| (from, source)).collect()
            }
            (from, to) if to == self.server => vec![(from, self.listen)],
            (from, to) if from == self.server => vec![(self.listen, to)],
            both => vec![both],
        }
    }

    /// Handles a datagram, in plaintext, that arrived at one of the proxy's numbers. Returns the datagrams to send.
    pub(crate) fn forward_datagram(
        &mut self,
        from: usize,
        to: usize,
        bytes: &[u8],
        now: Time,
    ) -> Vec<ProxyDatagram> {
        self.core.handle_timeout(now);
        let mut messages = MessageBuffer::default();
        let up = to == self.listen;
        let sender = if up { Role::Client } else { Role::Host };
        let content = &messages.read(bytes, Some(sender));
        // This network uses no cipher: wire bytes and plaintext are the same.
        let inbound = Inbound { wire: bytes, content };
        let source = self.sources.iter().find(|(_, number)| **number == to).map(|(source, _)| *source);
        let output = match source {
            _ if up => self.core.handle_client(node_address(from), inbound, now),
            Some(source) => self.core.handle_server(source, inbound, now),
            None => return Vec::new(),
        };
        let sent = [output.forward, output.answer].into_iter().flatten();
        let sent: Vec<(DatagramTarget, Vec<u8>)> =
            sent.map(|(target, bytes)| (target, bytes.as_slice().to_vec())).collect();
        self.record_sources();
        sent.into_iter().filter_map(|(target, bytes)| self.route(target, bytes)).collect()
    }

    /// Returns the time of the proxy's next timer.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.core.next_timeout()
    }

    /// Runs the timers that are due. Returns the datagrams to send.
    pub(crate) fn run_due(&mut self, now: Time) -> Vec<ProxyDatagram> {
        self.core.handle_timeout(now);
        let mut sent = Vec::new();
        while let Some((target, bytes)) = self.core.poll_transmit(now) {
            sent.push((target, bytes.as_slice().to_vec()));
        }
        sent.into_iter().filter_map(|(target, bytes)| self.route(target, bytes)).collect()
    }

    fn route(&self, target: DatagramTarget, bytes: Vec<u8>) -> Option<ProxyDatagram> {
        match target {
            DatagramTarget::Client(client) => {
                Some(ProxyDatagram { from: self.listen, to: node_number(client), bytes })
            }
            DatagramTarget::Server(source) => {
                Some(ProxyDatagram { from: *self.sources.get(&source)?, to: self.server, bytes })
            }
        }
    }

    /// Records the node number of each source that the proxy opened.
    fn record_sources(&mut self) {
        while let Some(event) = self.core.poll_event() {
            if let ProxyEvent::Opened { source, .. } = event
                && let Some(own) = source.address
            {
                self.sources.insert(
                    source.number,
                    node_number(SocketAddrV4::new(own, node_address(self.listen).port())),
                );
            }
        }
    }
}
