//! Performs the actions of a scenario: sends, injected datagrams, names, departures, blocked sockets.

use std::net::Ipv4Addr;

use bcnet_transport::DeliveryMode;
use bcnet_transport::wire::{PeerId, Text};

use super::ScenarioRunner;
use crate::battle::GameMessage;
use crate::engine::SendMode;
use crate::observer::DatagramMeta;
use crate::scenario::{NodeRole, PayloadContent, PeerRef, ScenarioAction, SendTarget};
use crate::world::node_address;

/// Destination of a payload.
#[derive(Clone, Copy)]
enum Destination {
    Peer(PeerId),
    Address(Ipv4Addr),
}

impl ScenarioRunner<'_> {
    pub(super) fn perform_action(&mut self, action: &ScenarioAction) {
        let now = self.world.now();
        match action {
            ScenarioAction::Send { from, to, content, count, mode } => {
                for _ in 0..*count {
                    for to in self.destinations(*from, *to) {
                        match content {
                            PayloadContent::Size(size) => self.send_stamped(*from, to, *size, *mode),
                            PayloadContent::Bytes(bytes) => self.send_payload(*from, to, bytes, *mode, false),
                        }
                    }
                }
            }
            ScenarioAction::Identify { from } => {
                let name: Vec<u8> = "lab".encode_utf16().flat_map(u16::to_le_bytes).collect();
                let name = Text::new(&name).unwrap_or_default();
                // A failure is fine: the node may have no peer yet.
                let _ = self.world.node_mut(*from).announce_name(name, now);
            }
            ScenarioAction::Inject { into, from, port, datagram } => {
                let mut source = node_address(*from);
                source.set_port(port.unwrap_or(source.port()));
                self.world.push_to_socket(source, *into, datagram);
                let meta = DatagramMeta { from: *from, to: *into, number: INJECTED_NUMBER, now };
                self.meter.record_datagram(meta, true, datagram);
                self.meter.record_datagram(meta, false, datagram);
            }
            ScenarioAction::Leave { node } => self.world.node_mut(*node).leave(now),
            ScenarioAction::SetWritable { node, peer, writable } => {
                let peer = peer.map(|peer| self.peer_id(peer));
                self.world.node_mut(*node).set_writable(peer, *writable);
            }
        }
    }

    fn destinations(&self, from: usize, to: SendTarget) -> Vec<Destination> {
        match to {
            SendTarget::Peer(peer) => vec![Destination::Peer(self.peer_id(peer))],
            SendTarget::Address(node) => vec![Destination::Address(*node_address(node).ip())],
            SendTarget::AllPeers => {
                self.world.node(from).peer_ids().into_iter().map(Destination::Peer).collect()
            }
        }
    }

    /// Returns the current id of a peer.
    ///
    /// A node without an engine has the host's id if it is the first node, and otherwise the next number after its own.
    pub(super) fn peer_id(&self, peer: PeerRef) -> PeerId {
        let node = match peer {
            PeerRef::Id(id) => return id,
            PeerRef::Node(node) => node,
        };
        match self.scenario.nodes.get(node).map(|node| node.role) {
            Some(NodeRole::AddressOnly) if node == 0 => PeerId::HOST,
            Some(NodeRole::AddressOnly) => PeerId(u8::try_from(node + 1).unwrap_or(u8::MAX)),
            Some(NodeRole::Host | NodeRole::Client) | None => self.world.node(node).id(),
        }
    }

    pub(super) fn send_game_message(&mut self, message: GameMessage) {
        let Some(host) = self.scenario.host_number() else { return };
        let nodes = self.scenario.nodes.iter().enumerate();
        let mut clients = nodes.filter(|(_, node)| node.role == NodeRole::Client);
        let Some((client, _)) = clients.nth(message.ship) else { return };
        let (from, to) = if message.from_host { (host, client) } else { (client, host) };
        let (to, mode) =
            (Destination::Peer(self.peer_id(PeerRef::Node(to))), SendMode::Standard(message.mode));
        if message.mode == DeliveryMode::Unreliable {
            // State updates get no number: there are many of them, and their delay is not measured.
            let mut state = std::mem::take(&mut self.payload);
            state.clear();
            state.resize(message.size, FILLER_BYTE);
            self.send_payload(from, to, &state, mode, false);
            self.payload = state;
            return;
        }
        self.send_stamped(from, to, message.size, mode);
    }

    /// Sends a payload that the meter recognises at the receiver.
    fn send_stamped(&mut self, from: usize, to: Destination, size: usize, mode: SendMode) {
        let mut payload = std::mem::take(&mut self.payload);
        // Both engines make a payload reliable if it does not fit in one message.
        let unreliable = mode == SendMode::Standard(DeliveryMode::Unreliable);
        let reliable = !unreliable || size > MAX_UNRELIABLE_PAYLOAD;
        self.meter.stamp_payload(&mut payload, from, size, reliable, self.world.now());
        self.send_payload(from, to, &payload, mode, true);
        self.payload = payload;
    }

    /// Passes a payload to an engine and counts the result.
    fn send_payload(&mut self, from: usize, to: Destination, payload: &[u8], mode: SendMode, stamped: bool) {
        let now = self.world.now();
        let engine = self.world.node_mut(from);
        let accepted = match to {
            Destination::Peer(peer) => engine.send_with_mode(peer, payload, mode, now),
            Destination::Address(address) => engine.send_to_address(address, payload, mode, now),
        };
        self.meter.record_send_result(from, accepted, stamped);
    }
}

/// The largest unreliable payload that is not split (T-67): 412 bytes minus a header of three.
const MAX_UNRELIABLE_PAYLOAD: usize = 409;
/// Datagram number of injected datagrams, which no engine sent.
const INJECTED_NUMBER: u64 = u64::MAX;
/// Content of payloads without a number. No transport reads it.
const FILLER_BYTE: u8 = 0;
