//! A proxy between the nodes of a world: the core of `bcnet-proxy`, with the sockets of the virtual network.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use bcnet_observe::MessageBuffer;
use bcnet_proxy::{Config, Event, Inbound, Leg, Proxy};
use bcnet_transport::Time;
use bcnet_transport::wire::Role;

use crate::world::{address, place};

/// A proxy with its place in a world. It has a number as nodes have, where it listens, and one behind that for each
/// source, so that links tell its hops apart.
#[derive(Debug)]
pub(crate) struct ProxyNode {
    core: Proxy,
    listen: usize,
    /// The node before which it stands.
    server: usize,
    /// Which number each source has.
    sources: BTreeMap<u32, usize>,
    /// The number behind the last source.
    end: usize,
}

/// A datagram that a proxy sends: from which number to which.
pub(crate) struct Sent {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: Vec<u8>,
}

impl ProxyNode {
    /// Makes one that listens at the number `listen` and has sources for so many players behind it.
    pub(crate) fn new(listen: usize, server: usize, heal: bool, players: usize) -> Self {
        let end = listen + 1 + players;
        let sources = (listen + 1..end).map(|number| *address(number).ip()).collect();
        let core = Proxy::new(Config { heal, sources, ..Config::default() });
        Self { core, listen, server, sources: BTreeMap::new(), end }
    }

    /// Returns whether it has this number.
    pub(crate) fn has(&self, number: usize) -> bool {
        (self.listen..self.end).contains(&number)
    }

    /// Returns the hops that a link between two nodes, or between a node and the proxy, stands for.
    pub(crate) fn hops(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let sources = || self.listen + 1..self.end;
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

    /// A datagram, in the clear, has come to one of its numbers. Returns what it sends.
    pub(crate) fn pass(&mut self, from: usize, to: usize, bytes: &[u8], now: Time) -> Vec<Sent> {
        self.core.handle_timeout(now);
        let mut messages = MessageBuffer::default();
        let up = to == self.listen;
        let sender = if up { Role::Client } else { Role::Host };
        let content = &messages.read(bytes, Some(sender));
        // What is not enciphered on this network need not be deciphered: both are the same here.
        let inbound = Inbound { wire: bytes, content };
        let source = self.sources.iter().find(|(_, number)| **number == to).map(|(source, _)| *source);
        let output = match source {
            _ if up => self.core.handle_client(address(from), inbound, now),
            Some(source) => self.core.handle_server(source, inbound, now),
            None => return Vec::new(),
        };
        let sent = [output.forward, output.answer].into_iter().flatten();
        let sent: Vec<(Leg, Vec<u8>)> = sent.map(|(leg, bytes)| (leg, bytes.as_slice().to_vec())).collect();
        self.note_sources();
        sent.into_iter().filter_map(|(leg, bytes)| self.route(leg, bytes)).collect()
    }

    /// Returns when it has something to do by itself.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.core.next_timeout()
    }

    /// Does what is due. Returns what it sends by itself.
    pub(crate) fn advance(&mut self, now: Time) -> Vec<Sent> {
        self.core.handle_timeout(now);
        let mut sent = Vec::new();
        while let Some((leg, bytes)) = self.core.poll_transmit(now) {
            sent.push((leg, bytes.as_slice().to_vec()));
        }
        sent.into_iter().filter_map(|(leg, bytes)| self.route(leg, bytes)).collect()
    }

    fn route(&self, leg: Leg, bytes: Vec<u8>) -> Option<Sent> {
        match leg {
            Leg::Client(client) => Some(Sent { from: self.listen, to: place(client), bytes }),
            Leg::Server(source) => Some(Sent { from: *self.sources.get(&source)?, to: self.server, bytes }),
        }
    }

    /// Notes which number each source has that was opened.
    fn note_sources(&mut self) {
        while let Some(event) = self.core.poll_event() {
            if let Event::Opened { source, .. } = event
                && let Some(own) = source.address
            {
                self.sources
                    .insert(source.number, place(SocketAddrV4::new(own, address(self.listen).port())));
            }
        }
    }
}
