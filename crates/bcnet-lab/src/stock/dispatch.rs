//! Dispatches the messages of the control channel and delivers those of the game channel.

use bcnet_transport::Event;
use bcnet_transport::wire::{Channel, Kind};

use super::StockEngine;
use super::dump::AckTraceEntry;
use super::message::StockMessage;
use super::peer::channel_index;

impl StockEngine {
    /// Dispatches the control channel.
    ///
    /// All unreliable messages come first, then each reliable message that is next in sequence.
    pub(super) fn dispatch_control(&mut self) {
        loop {
            if let Some(message) = self.incoming.unreliable[channel_index(Channel::Control)].pop_front() {
                match self.peers.sender_of(&message) {
                    Some(place) => self.dispatch(place, &message),
                    None => self.counters.dropped += 1,
                }
                continue;
            }
            let Some(at) = self.next_deliverable(Channel::Control) else { return };
            let Some(message) = self.take_reliable(Channel::Control, at) else { return };
            if let Some(place) = self.peers.sender_of(&message) {
                self.dispatch(place, &message);
            }
        }
    }

    fn dispatch(&mut self, place: usize, message: &StockMessage) {
        match message.kind {
            Kind::IDENTITY => self.on_identity(message),
            Kind::ACK => self.on_ack(place, message),
            Kind::CONNECT => self.on_connect(place, message),
            Kind::BOOT => self.on_boot(message),
            Kind::DISCONNECT => self.on_disconnect(message),
            _ => {}
        }
    }

    /// Removes the first unacknowledged message that matches the ACK.
    ///
    /// A plain ACK never matches a fragment, and an ACK of a fragment never matches a whole message.
    fn on_ack(&mut self, place: usize, ack: &StockMessage) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        let (id, waiting) = (ack.id(), peer.retx.len());
        let tracing = self.last_frame.filter(|_| self.params.trace_acks);
        let queue = tracing.map(|_| peer.retx.iter().map(StockMessage::id).collect());
        let mut found = None;
        for (at, message) in peer.retx.iter().enumerate() {
            self.counters.comparisons += 1;
            if message.id() == id {
                found = Some(at);
                break;
            }
        }
        match found {
            Some(at) => {
                peer.retx.remove(at);
                self.counters.acks_useful += 1;
            }
            None => self.counters.acks_useless += 1,
        }
        self.counters.acks_on_empty += u64::from(waiting == 0);
        if let (Some(at), Some(waiting)) = (tracing, queue) {
            let useful = found.is_some();
            self.ack_trace.push_back(AckTraceEntry { at, peer: peer.id, id, waiting, useful });
        }
    }

    /// Delivers the game channel: first urgent unreliable messages at the head of their queue.
    ///
    /// The others follow in the order of arrival. Of messages that arrived in the same frame, unreliable ones
    /// come first.
    pub(super) fn deliver_game(&mut self) {
        loop {
            let game = channel_index(Channel::Game);
            let head = self.incoming.unreliable[game].front().map(|head| (head.urgent, head.arrived_at));
            let candidate = match head {
                Some((true, _)) => None,
                _ => self.next_deliverable(Channel::Game),
            };
            let arrival = candidate.and_then(|at| self.incoming.reliable[game].get(at)).map(|m| m.arrived_at);
            let message = match (head, candidate, arrival) {
                (Some((_, unreliable)), Some(at), Some(reliable)) if reliable < unreliable => {
                    self.take_reliable(Channel::Game, at)
                }
                (None, Some(at), _) => self.take_reliable(Channel::Game, at),
                _ => self.incoming.unreliable[game].pop_front(),
            };
            let Some(message) = message else { return };
            self.counters.delivered += 1;
            let (peer, reliable) = (message.sender, message.reliable);
            self.push_event(Event::Received { peer, reliable }, &message.payload);
        }
    }

    /// Returns the position of the next deliverable reliable message.
    ///
    /// The search drops old messages and messages from unknown senders. A fragment that is next in sequence
    /// stops the search for every sender.
    fn next_deliverable(&mut self, channel: Channel) -> Option<usize> {
        let index = channel_index(channel);
        let mut at = 0;
        loop {
            let message = self.incoming.reliable[index].get(at)?;
            let peer = self.peers.sender_of(message).and_then(|place| self.peers.get(place));
            let ahead = peer.map(|peer| i32::from(message.seq) - i32::from(peer.expected_seq[index]));
            match ahead {
                Some(0) => return message.fragment.is_none().then_some(at),
                None | Some(-0x3FFF..0) => {
                    self.incoming.reliable[index].remove(at);
                    self.counters.dropped += 1;
                }
                Some(_) => at += 1,
            }
        }
    }

    /// Removes a message that is next in sequence, and advances the expected number.
    fn take_reliable(&mut self, channel: Channel, at: usize) -> Option<StockMessage> {
        let index = channel_index(channel);
        let message = self.incoming.reliable[index].remove(at)?;
        if let Some(peer) = self.peers.sender_of(&message).and_then(|place| self.peers.get_mut(place)) {
            peer.expected_seq[index] = message.seq.wrapping_add(1);
        }
        Some(message)
    }
}
