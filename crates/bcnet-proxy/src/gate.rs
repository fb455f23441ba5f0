//! Checks of the datagrams of clients before the server gets them ([T-80]).
//!
//! A stock server looks peers up by the sender byte alone, and obeys the peer id in a control message. So the
//! proxy lets a client use only the id that the server assigned to it.
//!
//! [T-80]: bcnet_transport::wire::protocol#t-80

use std::net::Ipv4Addr;

use bcnet_observe::ParsedDatagram;
use bcnet_transport::wire::{Body, Control, Message, PeerId, Seq};

use crate::healer::Inbound;
use crate::output::RefusalReason;

/// The values of a connect request that are the same in each retransmission (T-33).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JoinRequest {
    pub(crate) address: Ipv4Addr,
    pub(crate) nonce: u32,
}

/// The kind of a client's datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientDatagram {
    /// A connect request.
    Request(JoinRequest),
    /// A disconnect of a client without an id.
    Withdrawal,
    /// A datagram under the client's own id.
    Traffic {
        /// What the datagram shows about the client.
        presence: Presence,
        /// The number of its last control message.
        last_control: Option<Seq>,
    },
}

/// What a datagram shows about a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It sends a disconnect, which may be forged.
    Leaves,
    /// It sends data or keepalives, as a client that has left does not.
    Plays,
    Unknown,
}

/// Checks a datagram of a client whose id is `own`.
///
/// `own` is [`PeerId::UNASSIGNED`] before the server has assigned an id. `strict` refuses malformed datagrams, and
/// control messages that a stock server may read in another way.
pub(crate) fn check(
    inbound: Inbound<'_>,
    own: PeerId,
    strict: bool,
) -> Result<ClientDatagram, RefusalReason> {
    let Some(sender) = inbound.wire.first().copied().map(PeerId) else {
        return Err(RefusalReason::Malformed);
    };
    let Some(datagram) = inbound.content.datagram() else {
        return match sender {
            _ if strict || sender == PeerId::UNASSIGNED => Err(RefusalReason::Malformed),
            _ if sender == own => {
                Ok(ClientDatagram::Traffic { presence: Presence::Unknown, last_control: None })
            }
            _ => Err(RefusalReason::ForeignId),
        };
    };
    if sender == PeerId::UNASSIGNED {
        check_unassigned(datagram, strict)
    } else if sender == own {
        check_own(datagram, own, strict)
    } else if own == PeerId::UNASSIGNED {
        Err(RefusalReason::NotConnected)
    } else {
        Err(RefusalReason::ForeignId)
    }
}

/// Returns the connect request in a datagram, if it holds nothing else but ACKs.
pub(crate) fn join_request(inbound: Inbound<'_>) -> Option<JoinRequest> {
    match check(inbound, PeerId::UNASSIGNED, true) {
        Ok(ClientDatagram::Request(request)) => Some(request),
        Ok(ClientDatagram::Withdrawal | ClientDatagram::Traffic { .. }) | Err(_) => None,
    }
}

/// Checks a datagram of a client without an id. It may send a connect request or a disconnect (T-51), and ACKs.
fn check_unassigned(datagram: &ParsedDatagram<'_>, strict: bool) -> Result<ClientDatagram, RefusalReason> {
    let mut found = None;
    for message in datagram.messages() {
        let Message::Control(control) = message else {
            if matches!(message, Message::Data(_)) {
                return Err(RefusalReason::NotConnected);
            }
            continue;
        };
        check_form(control, strict)?;
        let kind = match control.body {
            Body::ConnectRequest { address, nonce, .. } => {
                ClientDatagram::Request(JoinRequest { address, nonce })
            }
            Body::Disconnect { peer: PeerId::UNASSIGNED, .. } => ClientDatagram::Withdrawal,
            Body::Disconnect { .. }
            | Body::Identity { .. }
            | Body::Boot { .. }
            | Body::ConnectReply { .. } => {
                return Err(RefusalReason::ForeignId);
            }
        };
        if found.is_some_and(|other| other != kind) {
            return Err(RefusalReason::Malformed);
        }
        found = Some(kind);
    }
    found.ok_or(RefusalReason::NotConnected)
}

/// Checks a datagram of a client under its own id. Its control messages may name no other peer.
fn check_own(
    datagram: &ParsedDatagram<'_>,
    own: PeerId,
    strict: bool,
) -> Result<ClientDatagram, RefusalReason> {
    let (mut presence, mut last_control) = (Presence::Unknown, None);
    for message in datagram.messages() {
        let Message::Control(control) = message else {
            if presence == Presence::Unknown && matches!(message, Message::Data(_) | Message::Keepalive) {
                presence = Presence::Plays;
            }
            continue;
        };
        check_form(control, strict)?;
        match control.body {
            Body::Disconnect { peer, .. } if peer == own => presence = Presence::Leaves,
            Body::Identity { peer, .. } if peer == own => {}
            // A stock host would obey a boot of any client, and a request gives its sender another id.
            Body::Disconnect { .. }
            | Body::Identity { .. }
            | Body::Boot { .. }
            | Body::ConnectRequest { .. }
            | Body::ConnectReply { .. } => return Err(RefusalReason::ForeignId),
        }
        last_control = Some(control.seq);
    }
    Ok(ClientDatagram::Traffic { presence, last_control })
}

/// Refuses a control message that a stock server reads differently.
///
/// The server takes bytes behind the last field for the next message.
const fn check_form(control: &Control<'_>, strict: bool) -> Result<(), RefusalReason> {
    if strict && (!control.reliable || !control.tail.is_empty()) {
        return Err(RefusalReason::Malformed);
    }
    Ok(())
}
