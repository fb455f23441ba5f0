//! Times of sent and received messages, taken from datagrams and not from ticks.

use std::time::Duration;

use bcnet_session::game::{ObjectId, Opcode};
use bcnet_transport::wire::{Data, Datagram, Message, Role};

use super::{SimulatedPlayer, SimulatedPlayerState, sending_slot};
use crate::swarm::counters::SwarmCounters;
use crate::swarm::delivery_tracker::DeliveryTracker;
use crate::swarm::payload;

/// A message whose send time is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::swarm) enum TimedSend {
    /// An answer that the server waits for during a join.
    Answer,
    State {
        slot: u8,
        ship: ObjectId,
        number: u32,
    },
    Order {
        slot: u8,
        number: u64,
    },
}

impl SimulatedPlayer {
    /// Returns the messages that a decrypted datagram sends for the first time.
    pub(in crate::swarm) fn timed_sends(
        &mut self,
        datagram: &[u8],
        tracker: &mut DeliveryTracker,
    ) -> Vec<TimedSend> {
        let Ok(datagram) = Datagram::parse(datagram, Some(Role::Client)) else { return Vec::new() };
        let timed_sends = datagram.messages().filter_map(|message| match (&self.state, message) {
            (SimulatedPlayerState::Joining, message) => {
                let is_new = message.id().is_some_and(|id| self.join_timer.is_new(id));
                is_new.then_some(TimedSend::Answer)
            }
            (SimulatedPlayerState::InGame(_), Message::Data(data)) => {
                game_timed_send(&data, self.slot?, tracker)
            }
            (SimulatedPlayerState::InGame(_), Message::Control(_) | Message::Ack(_) | Message::Keepalive)
            | (
                SimulatedPlayerState::Away(_) | SimulatedPlayerState::Leaving | SimulatedPlayerState::Gone,
                _,
            ) => None,
        });
        timed_sends.collect()
    }

    /// Records a send, with the time since 1970.
    pub(in crate::swarm) fn note_sent(
        &mut self,
        timed_send: TimedSend,
        at: Duration,
        tracker: &mut DeliveryTracker,
    ) {
        match timed_send {
            TimedSend::Answer => self.join_timer.on_sent(at),
            TimedSend::State { slot, ship, number } => tracker.note_state_sent(slot, ship, number, at),
            TimedSend::Order { slot, number } => tracker.note_sent(slot, number, at),
        }
    }

    /// Records a decrypted datagram of the server, with the time since 1970. The engine gets it in the next tick.
    pub(in crate::swarm) fn note_arrival(
        &mut self,
        datagram: &[u8],
        at: Duration,
        tracker: &DeliveryTracker,
        counters: &mut SwarmCounters,
    ) {
        // Malformed datagrams are ignored here; the engine handles them in the next tick.
        let Ok(datagram) = Datagram::parse(datagram, Some(Role::Host)) else { return };
        for message in datagram.messages() {
            let Message::Data(Data { delivery, payload, .. }) = message else { continue };
            if delivery.fragment().is_some()
                || delivery.seq().is_some_and(|seq| !self.replay_window.is_new(seq))
            {
                continue;
            }
            match &self.state {
                SimulatedPlayerState::Joining => {
                    self.join_timer.on_message(payload, self.client.id().0, at, &mut counters.joins)
                }
                SimulatedPlayerState::InGame(playing) => {
                    let sent_at =
                        sending_slot(payload, tracker).and_then(|slot| match payload::state_key(payload) {
                            Some((ship, number)) => tracker.state_sent_at(slot, ship, number),
                            None => tracker.sent_at(&playing.1, slot, payload),
                        });
                    if let Some((sent_at, opcode)) = sent_at.zip(Opcode::of(payload)) {
                        counters.delays.histogram_for(opcode).add(at.saturating_sub(sent_at), 1);
                    }
                }
                SimulatedPlayerState::Away(_)
                | SimulatedPlayerState::Leaving
                | SimulatedPlayerState::Gone => {}
            }
        }
    }
}

fn game_timed_send(data: &Data<'_>, slot: u8, tracker: &mut DeliveryTracker) -> Option<TimedSend> {
    match payload::state_key(data.payload) {
        Some((ship, number)) => Some(TimedSend::State { slot, ship, number }),
        None => tracker.match_first_send(slot, data.payload).map(|number| TimedSend::Order { slot, number }),
    }
}
