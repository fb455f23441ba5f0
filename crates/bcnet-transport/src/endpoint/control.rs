//! Effects of control messages, and timers that end a peer.

use alloc::boxed::Box;
use alloc::format;
use core::net::Ipv4Addr;

use super::Endpoint;
use super::table::PeerHandle;
use crate::event::{Event, LeaveReason};
use crate::peer::{PeerName, PeerState};
use crate::stats::RejectCause;
use crate::time::Time;
use crate::wire::{Body, BootReason, PeerId, Role, Text};

/// A received message that ends a connection.
#[derive(Debug)]
pub(super) struct PendingDisconnect {
    handle: PeerHandle,
    peer: PeerId,
    /// The address that a leaving client reports for itself.
    address: Ipv4Addr,
    reason: LeaveReason,
}

impl Endpoint {
    /// Handles a control message that is next in order.
    pub(super) fn dispatch(&mut self, handle: PeerHandle, body: &Body<'_>, now: Time) {
        let result = match self.role {
            Role::Host => self.dispatch_from_client(handle, body, now),
            Role::Client => self.dispatch_from_host(handle, body),
        };
        if let Err(cause) = result {
            self.reject_from(handle, cause);
        }
    }

    fn dispatch_from_client(
        &mut self,
        handle: PeerHandle,
        body: &Body<'_>,
        now: Time,
    ) -> Result<(), RejectCause> {
        let peer = self.peers.get(handle).ok_or(RejectCause::UnknownSender)?;
        match *body {
            Body::Identity { peer: subject, address, name } if subject == peer.id => {
                self.handle_identity(handle, address, name, now)
            }
            Body::Disconnect { peer: leaver, address } if leaver == peer.id => {
                self.pending_disconnect.get_or_insert(PendingDisconnect {
                    handle,
                    peer: peer.id,
                    address,
                    reason: LeaveReason::Disconnected,
                });
                Ok(())
            }
            Body::Identity { .. } | Body::Disconnect { .. } => Err(RejectCause::Impostor),
            Body::ConnectRequest { .. } | Body::ConnectReply { .. } | Body::Boot { .. } => {
                Err(RejectCause::NotAllowed)
            }
        }
    }

    fn dispatch_from_host(&mut self, handle: PeerHandle, body: &Body<'_>) -> Result<(), RejectCause> {
        match *body {
            Body::ConnectReply { assigned } => self.handle_connect_reply(handle, assigned),
            Body::Identity { peer, address, name } => {
                self.events.push(Event::Identity { peer, address, cleaned: false }, name.as_bytes());
                Ok(())
            }
            Body::Boot { reason, target } => {
                self.handle_peer_gone(handle, target, LeaveReason::Booted(reason));
                Ok(())
            }
            Body::Disconnect { peer, .. } => {
                self.handle_peer_gone(handle, peer, LeaveReason::Disconnected);
                Ok(())
            }
            Body::ConnectRequest { .. } => Err(RejectCause::NotAllowed),
        }
    }

    /// Stores a client's name and relays it to every client, including its owner (T-52).
    fn handle_identity(
        &mut self,
        handle: PeerHandle,
        address: Ipv4Addr,
        name: Text<'_>,
        now: Time,
    ) -> Result<(), RejectCause> {
        let peer = self.peers.get_mut(handle).ok_or(RejectCause::UnknownSender)?;
        if !peer.state.is_connected() {
            return Err(RejectCause::NotAllowed);
        }
        // Names that were sent with pauses may arrive together if the first of them was lost.
        if now.plus(MAX_NAME_BURST * NAME_INTERVAL) <= peer.rename_allowed_at {
            return Err(RejectCause::Flood);
        }
        peer.rename_allowed_at = peer.rename_allowed_at.max(now).plus(NAME_INTERVAL);
        let id = peer.id;
        let utf16le = clean_name(name, id);
        let cleaned = *utf16le != *name.as_bytes();
        peer.name = Some(PeerName { address, utf16le: utf16le.clone() });
        self.events.push(Event::Identity { peer: id, address, cleaned }, &utf16le);
        let name = Text::new(&utf16le).unwrap_or_default();
        self.broadcast_control(Body::Identity { peer: id, address, name }, now);
        Ok(())
    }

    /// Handles a client that leaves; a host relays that (T-57).
    pub(super) fn handle_client_left(&mut self, handle: PeerHandle, address: Ipv4Addr, now: Time) {
        let Some(peer) = self.peers.get(handle) else { return };
        let (id, live, named) = (peer.id, peer.state.is_connected(), peer.name.is_some());
        self.start_lingering(handle, now);
        if live {
            self.events.push(Event::Left { peer: id, reason: LeaveReason::Disconnected }, &[]);
            self.broadcast_gone(id, named, Body::Disconnect { peer: id, address }, now);
        }
    }

    /// Handles the reply of the host: this client is admitted (T-51).
    fn handle_connect_reply(&mut self, handle: PeerHandle, assigned: PeerId) -> Result<(), RejectCause> {
        let peer = self.peers.get_mut(handle).ok_or(RejectCause::UnknownSender)?;
        if peer.state != PeerState::Connecting || !assigned.is_assignable() {
            return Err(RejectCause::NotAllowed);
        }
        peer.state = PeerState::Established;
        self.id = assigned;
        self.events.push(Event::Joined { peer: assigned }, &[]);
        Ok(())
    }

    /// Handles on a client that a peer is gone. If that is the host or this client, the session is over.
    fn handle_peer_gone(&mut self, handle: PeerHandle, peer: PeerId, reason: LeaveReason) {
        if peer == self.id || peer == PeerId::HOST || peer == PeerId::UNASSIGNED {
            let address = Ipv4Addr::UNSPECIFIED;
            self.pending_disconnect.get_or_insert(PendingDisconnect { handle, peer, address, reason });
        } else {
            self.events.push(Event::Left { peer, reason }, &[]);
        }
    }

    /// Ends a connection after the rest of the datagram was handled (T-57).
    #[cold]
    pub(super) fn finish_disconnect(&mut self, disconnect: PendingDisconnect, now: Time) {
        let PendingDisconnect { handle, peer, address, reason } = disconnect;
        match self.role {
            Role::Host => self.handle_client_left(handle, address, now),
            Role::Client => {
                self.events.push(Event::Left { peer, reason }, &[]);
                // T-54: a refusal is not retransmitted, so a refused client need not wait for duplicates.
                let is_refused =
                    self.peers.get(handle).is_some_and(|peer| peer.state == PeerState::Connecting);
                self.is_shutting_down |= is_refused;
                self.start_lingering(handle, now);
            }
        }
    }

    /// Queues a control message for every connected peer.
    pub(super) fn broadcast_control(&mut self, body: Body<'_>, now: Time) {
        let body = mask_address(body, self.masks_addresses);
        for handle in self.peers.handles() {
            if let Some(peer) = self.peers.get_mut(handle).filter(|peer| peer.state.is_connected()) {
                peer.queue_control(body, now);
                self.mark_changed(handle);
            }
        }
    }

    /// Informs every connected peer that `gone` has left. Without a name, only `gone` itself knows it.
    pub(super) fn broadcast_gone(&mut self, gone: PeerId, named: bool, body: Body<'_>, now: Time) {
        if named {
            return self.broadcast_control(body, now);
        }
        if let Some(handle) = self.peers.find(gone)
            && let Some(peer) = self.peers.get_mut(handle).filter(|peer| peer.state.is_connected())
        {
            peer.queue_control(mask_address(body, self.masks_addresses), now);
            self.mark_changed(handle);
        }
    }

    /// Handles the due timers of a peer.
    pub(super) fn serve_timers(&mut self, handle: PeerHandle, now: Time) {
        let config = &self.config;
        let Some(peer) = self.peers.get_mut(handle) else { return };
        match peer.state {
            PeerState::Lingering { until, .. } if now >= until => return drop(self.remove(handle, now)),
            PeerState::Lingering { muted_until: Some(until), .. } if now >= until => {
                return self.end_contest(handle);
            }
            PeerState::Draining { since } if now >= since.plus(config.linger / 2) => {
                return self.send_disconnect_notice(handle, now);
            }
            PeerState::Established
            | PeerState::Guarded
            | PeerState::Contested { .. }
            | PeerState::Connecting
                if peer.is_timed_out(config, now) =>
            {
                return self.give_up_peer(handle, LeaveReason::Silent, now);
            }
            PeerState::Contested { until, .. } if now >= until => return self.end_contest(handle),
            PeerState::Departing { muted_until } => return self.serve_departing(handle, muted_until, now),
            PeerState::Established | PeerState::Guarded if peer.is_undeliverable(config, now) => {
                return self.give_up_peer(handle, LeaveReason::Undeliverable, now);
            }
            PeerState::Connecting
            | PeerState::Established
            | PeerState::Guarded
            | PeerState::Contested { .. }
            | PeerState::Draining { .. }
            | PeerState::Lingering { .. } => {}
        }
        peer.check_keepalive(config, now);
        peer.detect_loss(config, now);
        if peer.shrink(now) && self.peers.iter().all(|peer| peer.is_idle()) {
            self.pool.shrink();
            self.events.shrink();
        }
    }

    /// Handles the due timers of a peer with an unverified disconnect (T-57).
    fn serve_departing(&mut self, handle: PeerHandle, muted_until: Option<Time>, now: Time) {
        if muted_until.is_some_and(|until| now >= until) {
            self.end_contest(handle);
        }
        if self.serve_departure(handle, now)
            && let Some(peer) = self.peers.get_mut(handle)
        {
            peer.check_keepalive(&self.config, now);
            peer.detect_loss(&self.config, now);
        }
    }

    /// Gives a peer up and informs every client (T-56).
    ///
    /// A host also informs a silent peer, because its link may recover.
    fn give_up_peer(&mut self, handle: PeerHandle, reason: LeaveReason, now: Time) {
        let Some(peer) = self.peers.get(handle) else { return };
        let (peer, named) = (peer.id, peer.name.is_some());
        let lingers = self.role == Role::Host && reason == LeaveReason::Silent;
        if !lingers {
            self.remove(handle, now);
        }
        self.events.push(Event::Left { peer, reason }, &[]);
        if self.role == Role::Host {
            self.broadcast_gone(peer, named, Body::Boot { reason: BootReason::TIMED_OUT, target: peer }, now);
        }
        if lingers {
            self.start_lingering(handle, now);
        }
    }

    /// Continues to retransmit and acknowledge the last messages for the linger time (T-57).
    pub(super) fn start_lingering(&mut self, handle: PeerHandle, now: Time) {
        let Some(peer) = self.peers.get_mut(handle) else { return };
        if let PeerState::Departing { muted_until: Some(muted) } = peer.state {
            // The new client at this address must not get the last messages (T-77).
            let until = now.plus(self.config.linger);
            peer.state = PeerState::Lingering { until, muted_until: Some(muted) };
            return self.deadlines.set(handle.key(), Some(until.min(muted)));
        }
        self.end_contest(handle);
        let Some(peer) = self.peers.get_mut(handle) else { return };
        let linger = if self.role == Role::Client && !self.is_shutting_down {
            CLIENT_LINGER
        } else {
            self.config.linger
        };
        let since = match peer.state {
            PeerState::Lingering { .. } => return,
            PeerState::Draining { since } => since,
            PeerState::Connecting
            | PeerState::Established
            | PeerState::Guarded
            | PeerState::Departing { .. }
            | PeerState::Contested { .. } => now,
        };
        peer.state = PeerState::Lingering { until: since.plus(linger), muted_until: None };
        // T-60: no more data leaves that an ACK could wait for. And the peer may wait for the ACK of its
        // disconnect.
        peer.ack_due = peer.ack_due.map(|due| due.min(now));
        self.mark_changed(handle);
    }

    /// Advances the shutdown of a peer that is leaving, if possible (T-57).
    pub(super) fn advance_shutdown(&mut self, handle: PeerHandle, now: Time) {
        let Some(peer) = self.peers.get(handle) else { return };
        match peer.state {
            // Control messages overtake data, so the disconnect waits until no data is left.
            PeerState::Draining { .. } if peer.queued() == (0, 0) => self.send_disconnect_notice(handle, now),
            // A leaving endpoint is done when its disconnect is acknowledged. Any other remains for duplicates.
            PeerState::Lingering { .. } if self.is_shutting_down && peer.is_shutdown_acked() => {
                self.remove(handle, now);
            }
            PeerState::Connecting
            | PeerState::Established
            | PeerState::Guarded
            | PeerState::Departing { .. }
            | PeerState::Contested { .. }
            | PeerState::Draining { .. }
            | PeerState::Lingering { .. } => {}
        }
    }

    fn send_disconnect_notice(&mut self, handle: PeerHandle, now: Time) {
        let disconnect = Body::Disconnect { peer: self.id, address: self.config.address };
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.queue_control(mask_address(disconnect, self.masks_addresses), now);
        }
        self.start_lingering(handle, now);
    }
}

/// Removes the address from an identity or a disconnect, if addresses are masked (S-03).
pub(super) const fn mask_address(body: Body<'_>, masks: bool) -> Body<'_> {
    let address = Ipv4Addr::UNSPECIFIED;
    match body {
        Body::Identity { peer, name, .. } if masks => Body::Identity { peer, address, name },
        Body::Disconnect { peer, .. } if masks => Body::Disconnect { peer, address },
        other => other,
    }
}

/// Returns the clean form of a name, as it is relayed (T-71). An empty name becomes "Player" with the id.
fn clean_name(name: Text<'_>, peer: PeerId) -> Box<[u8]> {
    let clean = name.cleaned(MAX_NAME);
    let default_name = || Text::encode(&format!("Player {}", peer.0)).unwrap_or_default();
    if clean.is_empty() { default_name().into() } else { clean.into() }
}

/// The longest relayed name, in bytes of UTF-16LE.
pub(super) const MAX_NAME: usize = 200;
/// The minimum interval between changes of a peer's name, in microseconds.
const NAME_INTERVAL: u64 = 250_000;
/// The number of changes that may come together.
const MAX_NAME_BURST: u64 = 8;
/// The time for which a client acknowledges repetitions of its end, in microseconds (T-57).
const CLIENT_LINGER: u64 = 1_500_000;
