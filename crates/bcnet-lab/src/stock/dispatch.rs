//! What has arrived is obeyed (low channel) and delivered (high channel).

use bcnet_transport::Event;
use bcnet_transport::wire::{Channel, Kind};

use super::StockEngine;
use super::dump::AckTraceEntry;
use super::message::StockMessage;
use super::peer::channel_index;

impl StockEngine {
    /// Low channel: all unreliable messages first, then whatever reliable one is next for its sender.
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

    /// Clears the first message that waits for this ACK, and none if only one of the two is about a part.
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

    /// High channel: an urgent unreliable message at the head first, else what arrived earlier.
    pub(super) fn deliver_game(&mut self) {
        loop {
            let high = channel_index(Channel::Game);
            let head = self.incoming.unreliable[high].front().map(|head| (head.urgent, head.arrived_at));
            let candidate = match head {
                Some((true, _)) => None,
                _ => self.next_deliverable(Channel::Game),
            };
            let arrival = candidate.and_then(|at| self.incoming.reliable[high].get(at)).map(|m| m.arrived_at);
            let message = match (head, candidate, arrival) {
                (Some((_, unreliable)), Some(at), Some(reliable)) if reliable < unreliable => {
                    self.take_reliable(Channel::Game, at)
                }
                (None, Some(at), _) => self.take_reliable(Channel::Game, at),
                _ => self.incoming.unreliable[high].pop_front(),
            };
            let Some(message) = message else { return };
            self.counters.delivered += 1;
            let (peer, reliable) = (message.sender, message.reliable);
            self.push_event(Event::Received { peer, reliable }, &message.payload);
        }
    }

    /// Returns where the reliable message is whose turn it is. On the way there, what is old or nobody's is thrown
    /// away; a part whose turn it is stops the search for everyone.
    fn next_deliverable(&mut self, channel: Channel) -> Option<usize> {
        let lane = channel_index(channel);
        let mut at = 0;
        loop {
            let message = self.incoming.reliable[lane].get(at)?;
            let peer = self.peers.sender_of(message).and_then(|place| self.peers.get(place));
            let ahead = peer.map(|peer| i32::from(message.seq) - i32::from(peer.expected_seq[lane]));
            match ahead {
                Some(0) => return message.fragment.is_none().then_some(at),
                None | Some(-0x3FFF..0) => {
                    self.incoming.reliable[lane].remove(at);
                    self.counters.dropped += 1;
                }
                Some(_) => at += 1,
            }
        }
    }

    /// Takes out a message whose turn it is; the next one's turn comes.
    fn take_reliable(&mut self, channel: Channel, at: usize) -> Option<StockMessage> {
        let lane = channel_index(channel);
        let message = self.incoming.reliable[lane].remove(at)?;
        if let Some(peer) = self.peers.sender_of(&message).and_then(|place| self.peers.get_mut(place)) {
            peer.expected_seq[lane] = message.seq.wrapping_add(1);
        }
        Some(message)
    }
}
