//! The goodbye to a server: the proxy reports a client as gone, in the place of the client ([T-80]).
//!
//! [T-80]: bcnet_transport::wire::protocol#t-80

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Ack, Body, Channel, Control, Message, MessageId, PeerId, Seq, Writer};

use crate::client::assigned_id;
use crate::healer::Inbound;

/// A disconnect under the id of a client, retransmitted until the server acknowledges it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goodbye {
    /// The client's id; `UNASSIGNED` until the server assigns one.
    id: PeerId,
    seq: Seq,
    /// The address in the disconnect.
    address: Ipv4Addr,
    sends: u32,
    next_send: Option<Time>,
    pub(crate) give_up: Time,
}

impl Goodbye {
    /// Starts a goodbye. Without an id, it waits until the server assigns one.
    pub(crate) fn new(id: PeerId, seq: Seq, address: Ipv4Addr, now: Time) -> Self {
        let next_send = (id != PeerId::UNASSIGNED).then_some(now);
        Self { id, seq, address, sends: 0, next_send, give_up: now + GIVE_UP }
    }

    pub(crate) const fn next_send(&self) -> Option<Time> {
        self.next_send
    }

    /// Handles a datagram of the server. Returns `true` if the goodbye is acknowledged.
    pub(crate) fn on_server_datagram(&mut self, inbound: Inbound<'_>, now: Time) -> bool {
        if let Some(id) = assigned_id(inbound).filter(|id| *id != self.id) {
            *self = Self::new(id, self.seq, self.address, now);
        }
        let acked = MessageId { channel: Channel::Control, seq: self.seq, fragment: None };
        let messages = inbound.content.datagram().map(|datagram| datagram.messages()).unwrap_or_default();
        self.sends > 0
            && messages.iter().any(|message| matches!(message, Message::Ack(ack) if ack.id == acked))
    }

    /// Writes the goodbye if it is due. It also acknowledges the server's connect reply, so that the server does
    /// not retransmit it.
    pub(crate) fn write<'b>(&mut self, buffer: &'b mut [u8], now: Time) -> Option<&'b [u8]> {
        self.next_send.filter(|due| *due <= now)?;
        self.sends += 1;
        self.next_send = (self.sends < MAX_SENDS).then(|| now + FIRST_INTERVAL * (1 << (self.sends - 1)));
        let mut writer = Writer::new(buffer, self.id);
        let reply = MessageId { channel: Channel::Control, seq: Seq(0), fragment: None };
        let body = Body::Disconnect { peer: self.id, address: self.address };
        let is_written = writer.push(&Message::Ack(Ack::new(reply)))
            && writer.push(&Message::Control(Control::new(self.seq, body)));
        writer.finish().filter(|_| is_written).map(|datagram| &*datagram)
    }
}

/// The proxy sends a goodbye at most this often: the last time 6.2 s after the first.
const MAX_SENDS: u32 = 6;
/// The pause after the first send. It doubles.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
/// A stock server retransmits a reply that was lost after 1, 3 and 6 seconds.
const GIVE_UP: Duration = Duration::from_secs(8);
