//! Clients that seem to leave: the host probes them before it believes their disconnect ([T-57]).
//!
//! The source of a disconnect may be spoofed. A probe is one datagram with the ACK of the disconnect and two
//! empty messages with random numbers. A leaving client gets the ACK that it waits for, and closes. A live
//! client acknowledges both numbers, also those of a second probe.
//!
//! [T-57]: bcnet_wire::protocol#t-57

use core::net::Ipv4Addr;

use super::Endpoint;
use super::table::PeerHandle;
use crate::admission::{ReplyContent, acked_cookies};
use crate::peer::{Departure, PeerState, ProbeAnswer};
use crate::stats::RejectCause;
use crate::time::Time;
use crate::wire::{Body, Channel, Control, Datagram, Role, Seq};

impl Endpoint {
    /// Handles the disconnect of a client that still counts as connected. Returns `false` for other messages.
    ///
    /// The disconnect does not advance the inbox: the client may be alive and use its number.
    pub(super) fn handle_unverified_disconnect(
        &mut self,
        handle: PeerHandle,
        control: &Control<'_>,
        now: Time,
    ) -> bool {
        let Body::Disconnect { peer: leaver, address } = control.body else { return false };
        let Some(peer) = self.peers.get_mut(handle) else { return false };
        if self.role == Role::Client || leaver != peer.id || !peer.state.is_connected() {
            return false;
        }
        let from = peer.address;
        let ahead = control.seq.distance_from(peer.inbox(Channel::Control).expected());
        if !control.reliable {
            self.reject(from, RejectCause::ForgedDisconnect);
        } else if ahead > 0 {
            self.reject_from(handle, RejectCause::NotAllowed);
        } else if let Some(departure) = &mut peer.departure
            && let PeerState::Departing { .. } = peer.state
        {
            departure.acknowledge(control.seq, address, ahead == 0);
        } else {
            self.start_departure(handle, control.seq, address, now);
        }
        true
    }

    /// Sends the first probe. Without a free number, the client must send its disconnect again.
    fn start_departure(&mut self, handle: PeerHandle, seq: Seq, address: Ipv4Addr, now: Time) {
        let Some(numbers) = self.draw_probe(handle) else { return };
        let Some(peer) = self.peers.get_mut(handle) else { return };
        peer.departure = Some(Departure::new(seq, address, numbers, now).into());
        peer.state = PeerState::Departing { muted_until: None };
        // T-60: a leaving client waits for no data that its ACKs could join.
        peer.ack_due = peer.ack_due.map(|due| due.min(now));
        self.serve_departure(handle, now);
        self.mark_changed(handle);
    }

    /// Returns two random numbers outside the receive window of the peer.
    ///
    /// The window has a margin for the messages that are sent before the probe is answered.
    fn draw_probe(&mut self, handle: PeerHandle) -> Option<[Seq; 2]> {
        let mut window = self.peers.get(handle)?.unacked_range(Channel::Game);
        window.end = Seq(window.end.0.wrapping_add(PROBE_MARGIN));
        let first = self.admission.draw_cookie_outside(window.clone())?;
        let second = self.admission.draw_cookie_outside(window)?;
        // Two equal numbers would need only one guess.
        Some([first, if second == first { Seq(first.0 ^ 1) } else { second }])
    }

    /// Sends a due probe, or removes the peer if it did not answer. Returns `false` if the peer has left.
    pub(super) fn serve_departure(&mut self, handle: PeerHandle, now: Time) -> bool {
        let Some(peer) = self.peers.get_mut(handle) else { return false };
        let trip = u64::from(peer.rtt.smoothed().unwrap_or(0));
        let (to, muted) = (peer.address, peer.state != PeerState::Departing { muted_until: None });
        let Some(departure) = &mut peer.departure else { return true };
        if now >= departure.ends_at(trip) {
            let address = departure.address();
            self.handle_client_left(handle, address, now);
            return false;
        }
        if let Some((seq, numbers)) = departure.take_due_probe(now) {
            self.queue_reply(to, ReplyContent::Probe(seq, numbers));
        }
        if muted && let Some(peer) = self.peers.get(handle) {
            // A muted peer is not on the dirty list, which would set its deadline.
            self.deadlines.set(handle.key(), Some(peer.next_timeout(&self.config)));
        }
        true
    }

    /// Checks whether a datagram answers the probe of a peer.
    pub(super) fn note_probe_answer(&mut self, handle: PeerHandle, datagram: &Datagram<'_>, now: Time) {
        let Some(peer) = self.peers.get_mut(handle) else { return };
        let (PeerState::Departing { .. }, Some(departure)) = (peer.state, &mut peer.departure) else {
            return;
        };
        match departure.answer(acked_cookies(datagram)) {
            ProbeAnswer::None => {}
            ProbeAnswer::First => {
                let numbers = self.draw_probe(handle);
                if let Some(peer) = self.peers.get_mut(handle)
                    && let (Some(departure), Some(numbers)) = (&mut peer.departure, numbers)
                {
                    departure.start_second(numbers, now);
                    self.mark_changed(handle);
                }
            }
            ProbeAnswer::Second => {
                let from = peer.address;
                peer.has_forgeries = true;
                peer.state = peer.live_state();
                self.reject(from, RejectCause::ForgedDisconnect);
                self.mark_changed(handle);
            }
        }
    }
}

/// The number of messages that are sent to a peer at most before it answers a probe.
const PROBE_MARGIN: u16 = 0x1000;
