//! What is done in a scenario, and by whom.

use std::net::Ipv4Addr;

use bcnet_transport::Quality;
use bcnet_transport::wire::{PeerId, Text};

use super::Runner;
use crate::battle::GameMessage;
use crate::engine::SendMode;
use crate::observer::DatagramMeta;
use crate::scenario::{Action, Content, NodeRole, PeerRef, Target};
use crate::world::address;

/// For whom a payload is.
#[derive(Clone, Copy)]
enum Destination {
    Peer(PeerId),
    Address(Ipv4Addr),
}

impl Runner<'_> {
    pub(super) fn perform(&mut self, action: &Action) {
        let now = self.world.now();
        match action {
            Action::Send { from, to, what, count, mode } => {
                for _ in 0..*count {
                    for to in self.destinations(*from, *to) {
                        match what {
                            Content::Size(size) => self.send(*from, to, *size, *mode),
                            Content::Bytes(bytes) => self.give(*from, to, bytes, *mode, false),
                        }
                    }
                }
            }
            Action::Identify { from } => {
                let name: Vec<u8> = "lab".encode_utf16().flat_map(u16::to_le_bytes).collect();
                let name = Text::new(&name).unwrap_or_default();
                // There may be nobody to tell yet.
                let _ = self.world.node_mut(*from).identify(name, now);
            }
            Action::Inject { into, from, port, datagram } => {
                let mut source = address(*from);
                source.set_port(port.unwrap_or(source.port()));
                self.world.put(source, *into, datagram);
                let meta = DatagramMeta { from: *from, to: *into, number: INJECTED, now };
                self.meter.see(meta, true, datagram);
                self.meter.see(meta, false, datagram);
            }
            Action::Leave { node } => self.world.node_mut(*node).leave(now),
            Action::SetWritable { node, peer, writable } => {
                let peer = peer.map(|peer| self.id_of(peer));
                self.world.node_mut(*node).set_writable(peer, *writable);
            }
        }
    }

    fn destinations(&self, from: usize, to: Target) -> Vec<Destination> {
        match to {
            Target::Peer(peer) => vec![Destination::Peer(self.id_of(peer))],
            Target::Address(node) => vec![Destination::Address(*address(node).ip())],
            Target::Everyone => self.world.node(from).peer_ids().into_iter().map(Destination::Peer).collect(),
        }
    }

    /// Returns the id that a peer has now; a node that is nobody stands for the host if it is the first.
    pub(super) fn id_of(&self, peer: PeerRef) -> PeerId {
        let node = match peer {
            PeerRef::Id(id) => return id,
            PeerRef::Node(node) => node,
        };
        match self.scenario.nodes.get(node).map(|node| node.role) {
            Some(NodeRole::Nobody) if node == 0 => PeerId::HOST,
            Some(NodeRole::Nobody) => PeerId(u8::try_from(node + 1).unwrap_or(u8::MAX)),
            Some(NodeRole::Host | NodeRole::Client) | None => self.world.node(node).id(),
        }
    }

    pub(super) fn send_game_message(&mut self, message: GameMessage) {
        let Some(host) = self.scenario.host() else { return };
        let nodes = self.scenario.nodes.iter().enumerate();
        let mut clients = nodes.filter(|(_, node)| node.role == NodeRole::Client);
        let Some((client, _)) = clients.nth(message.ship) else { return };
        let (from, to) = if message.from_host { (host, client) } else { (client, host) };
        let (to, mode) = (Destination::Peer(self.id_of(PeerRef::Node(to))), SendMode::Plain(message.quality));
        if message.quality == Quality::Unreliable {
            // Not worth a number: there are many of them, and nobody asks when they arrive.
            let mut state = std::mem::take(&mut self.payload);
            state.clear();
            state.resize(message.size, FILLER);
            self.give(from, to, &state, mode, false);
            self.payload = state;
            return;
        }
        self.send(from, to, message.size, mode);
    }

    /// Sends a payload that will be known again.
    fn send(&mut self, from: usize, to: Destination, size: usize, mode: SendMode) {
        let mut payload = std::mem::take(&mut self.payload);
        // What is too large for one message is made reliable.
        let unreliable = mode == SendMode::Plain(Quality::Unreliable);
        let reliable = !unreliable || size > MAX_UNRELIABLE;
        self.meter.stamp(&mut payload, from, size, reliable, self.world.now());
        self.give(from, to, &payload, mode, true);
        self.payload = payload;
    }

    /// Gives a payload to an engine.
    fn give(&mut self, from: usize, to: Destination, payload: &[u8], mode: SendMode, stamped: bool) {
        let now = self.world.now();
        let engine = self.world.node_mut(from);
        let taken = match to {
            Destination::Peer(peer) => engine.send_as(peer, payload, mode, now),
            Destination::Address(address) => engine.send_to_address(address, payload, mode, now),
        };
        self.meter.gave(from, taken, stamped);
    }
}

/// T-67: 412 bytes with a header of three.
const MAX_UNRELIABLE: usize = 409;
/// The number of what no engine sent.
const INJECTED: u64 = u64::MAX;
/// What a message consists of that is not known again: no transport looks into it.
const FILLER: u8 = 0;
