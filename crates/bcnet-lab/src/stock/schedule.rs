//! Computes when the next frame can have an effect, so that frames without effect are skipped.

use bcnet_transport::Time;
use bcnet_transport::wire::Role;

use super::clock::shortly_before;
use super::params::AckGate;
use super::peer::PeerEntry;
use super::{StockEngine, StockState};

impl StockEngine {
    /// Returns whether no frame has an effect until a datagram arrives or a message is queued.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.next_due().is_none()
    }

    /// Returns the earliest time at which a frame can have an effect, always after the last frame.
    ///
    /// Earlier frames change nothing and can be skipped. The time may be slightly early, never late.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        if self.crash.is_some() || self.state == StockState::Closed {
            return None;
        }
        let earliest = self.last_frame.map_or(Time::ZERO, |last| Time::from_micros(last.as_micros() + 1));
        if self.is_due_now() {
            return Some(earliest);
        }
        let moment =
            self.peers.iter().filter_map(|peer| self.next_deadline_for(peer)).chain(self.own_deadlines());
        let moment = moment.min_by(f32::total_cmp)?;
        Some(self.clock.first_time_after(moment).max(earliest))
    }

    /// Returns whether the very next frame has an effect.
    fn is_due_now(&self) -> bool {
        let waiting = self.peers.iter().any(|peer| !peer.unsent.is_empty());
        waiting
            || !self.socket_buffer.is_empty()
            || self.connect_request.is_some()
            || self.must_run_next_frame
    }

    fn own_deadlines(&self) -> impl Iterator<Item = f32> {
        let client = self.role == Role::Client;
        let connected = client && self.state == StockState::Connected;
        let keepalive = self.params.keepalive.filter(|_| connected).map(|wait| (self.host_last_queued, wait));
        let silence = self.params.silence.filter(|_| client).map(|wait| (self.host_last_received, wait));
        let leaving = self.leaving_since.map(|since| (since, self.params.linger));
        [keepalive, silence, leaving].into_iter().flatten().map(|(start, wait)| shortly_before(start, wait))
    }

    /// Returns the deadline of a peer: a frame has an effect once the clock shows more than this.
    fn next_deadline_for(&self, peer: &PeerEntry) -> Option<f32> {
        let params = &self.params;
        let open = match params.gate {
            AckGate::Traffic => !peer.is_live(),
            AckGate::Always => true,
            AckGate::Never => false,
        };
        let sendable = peer.acks.iter().filter(|ack| open || ack.timer.count < params.free_acks);
        let acks = sendable.map(|ack| ack.timer.last_send + ack.timer.interval);
        let retx = peer.retx.iter().map(|message| {
            let timer = &message.timer;
            (timer.last_send + timer.interval).min(shortly_before(timer.first_send, params.age_limit))
        });
        let watched = self.role == Role::Host && peer.is_live() && peer.id != self.id;
        let keepalive =
            params.keepalive.filter(|_| watched).map(|wait| shortly_before(peer.last_queued, wait));
        let silence = params.silence.filter(|_| watched).map(|wait| shortly_before(peer.last_received, wait));
        let linger = peer.deleted_at.map(|deleted| shortly_before(deleted, params.linger));
        acks.chain(retx).chain(keepalive).chain(silence).chain(linger).min_by(f32::total_cmp)
    }
}
