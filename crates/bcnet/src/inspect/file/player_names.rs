//! Collects the names of players from the traffic.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use bcnet_observe::ParsedDatagram;
use bcnet_transport::wire::{Body, Message, PeerId};

use super::PacketInfo;
use crate::inspect::human;

/// Names by host and peer id.
#[derive(Debug, Default)]
pub(super) struct PlayerNames(BTreeMap<(SocketAddrV4, u8), String>);

impl PlayerNames {
    /// Takes names from a datagram: a host sends the names of its players, and a player its own name.
    pub(super) fn learn(&mut self, packet: &PacketInfo, datagram: &ParsedDatagram<'_>) {
        let host = if datagram.sender() == PeerId::HOST { packet.from } else { packet.to };
        for message in datagram.messages() {
            if let Message::Control(control) = message
                && let Body::Identity { peer, name, .. } = control.body
                && self.0.len() < MAX_NAMES
            {
                self.0.insert((host, peer.0), human::printable(&name.to_string()));
            }
        }
    }

    /// Returns the name of a player of this host, if it is known.
    pub(super) fn get(&self, host: SocketAddrV4, id: PeerId) -> Option<&str> {
        self.0.get(&(host, id.0)).map(String::as_str)
    }
}

const MAX_NAMES: usize = 4096;
