//! When what a player says leaves, and when what others say arrives: by the datagrams, not by frames.

use std::time::Duration;

use bcnet_session::game::{ObjectId, Opcode};
use bcnet_transport::wire::{Data, Datagram, Message, Role};

use super::{Player, State, speaker};
use crate::swarm::ledger::Ledger;
use crate::swarm::payload;
use crate::swarm::totals::SwarmTotals;

/// Something whose time of leaving counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::swarm) enum Departure {
    /// What the server waits for while the player joins.
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

impl Player {
    /// Returns what leaves for the first time with a datagram, which is still plain.
    pub(in crate::swarm) fn departures(&mut self, datagram: &[u8], ledger: &mut Ledger) -> Vec<Departure> {
        let Ok(datagram) = Datagram::parse(datagram, Some(Role::Client)) else { return Vec::new() };
        let departures = datagram.messages().filter_map(|message| match (&self.state, message) {
            (State::Joining, message) => {
                let is_new = message.id().is_some_and(|id| self.join.is_new(id));
                is_new.then_some(Departure::Answer)
            }
            (State::InGame(_), Message::Data(data)) => in_game(&data, self.slot?, ledger),
            (State::InGame(_), Message::Control(_) | Message::Ack(_) | Message::Keepalive)
            | (State::Away(_) | State::Leaving | State::Gone, _) => None,
        });
        departures.collect()
    }

    /// Something has left, at a time since 1970.
    pub(in crate::swarm) fn note_departure(
        &mut self,
        departure: Departure,
        at: Duration,
        ledger: &mut Ledger,
    ) {
        match departure {
            Departure::Answer => self.join.leave(at),
            Departure::State { slot, ship, number } => ledger.note_state_left(slot, ship, number, at),
            Departure::Order { slot, number } => ledger.note_left(slot, number, at),
        }
    }

    /// A plain datagram of the server has arrived, at a time since 1970. The engine gets it, too, but not before the next
    /// frame.
    pub(in crate::swarm) fn note_arrival(
        &mut self,
        datagram: &[u8],
        at: Duration,
        ledger: &Ledger,
        totals: &mut SwarmTotals,
    ) {
        // What cannot be read is for the engine to judge.
        let Ok(datagram) = Datagram::parse(datagram, Some(Role::Host)) else { return };
        for message in datagram.messages() {
            let Message::Data(Data { delivery, payload, .. }) = message else { continue };
            if delivery.part().is_some() || delivery.seq().is_some_and(|seq| !self.replays.is_new(seq)) {
                continue;
            }
            match &self.state {
                State::Joining => self.join.hear(payload, self.client.id().0, at, &mut totals.joins),
                State::InGame(playing) => {
                    let left = speaker(payload, ledger).and_then(|slot| match payload::state_key(payload) {
                        Some((ship, number)) => ledger.state_left(slot, ship, number),
                        None => ledger.left(&playing.1, slot, payload),
                    });
                    if let Some((left, opcode)) = left.zip(Opcode::of(payload)) {
                        totals.delays.of(opcode).add(at.saturating_sub(left), 1);
                    }
                }
                State::Away(_) | State::Leaving | State::Gone => {}
            }
        }
    }
}

fn in_game(data: &Data<'_>, slot: u8, ledger: &mut Ledger) -> Option<Departure> {
    match payload::state_key(data.payload) {
        Some((ship, number)) => Some(Departure::State { slot, ship, number }),
        None => ledger.leaves(slot, data.payload).map(|number| Departure::Order { slot, number }),
    }
}
