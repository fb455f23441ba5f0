//! One simulated player: the original engine, and what a player does with it. No socket, no clock.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_lab::stock::{Params, Stock};
use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Event, Leave, Quality, Time};

use super::ledger::{Ledger, Listener};
use super::payload;
use super::plan::{Actor, Copies, wait};
use super::totals::SwarmTotals;

/// What all players have in common.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    /// UTF-16LE
    pub(super) password: Vec<u8>,
    /// They join, and then do nothing.
    pub(super) idle: bool,
    /// About how long the game goes.
    pub(super) time: Duration,
}

#[derive(Debug)]
pub(super) struct Player {
    pub(super) engine: Stock,
    pub(super) server: SocketAddrV4,
    name: String,
    manner: Manner,
    rng: Rng,
    state: State,
    slot: Option<u8>,
    /// Payloads to be said when their time has come.
    answers: Vec<(Time, Vec<u8>)>,
    /// All that was said before this number has arrived.
    settled: u64,
    stays: Time,
    was_in_game: bool,
}

#[derive(Debug)]
enum State {
    /// Not there; comes at this time.
    Away(Time),
    Joining,
    InGame(Box<(Actor, Listener)>),
    /// Says nothing more, and leaves when everything it said has arrived.
    Leaving,
    Gone,
}

impl Player {
    pub(super) fn new(server: SocketAddrV4, name: String, manner: Manner, mut rng: Rng, comes: Time) -> Self {
        let engine = connect(server, &manner, &mut rng, comes);
        Self {
            engine,
            server,
            name,
            manner,
            rng,
            state: State::Away(comes),
            slot: None,
            answers: Vec::new(),
            settled: 0,
            stays: Time::from_micros(u64::MAX),
            was_in_game: false,
        }
    }

    pub(super) const fn is_in_game(&self) -> bool {
        matches!(self.state, State::InGame(_))
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    /// Whether it was ever in the game.
    pub(super) const fn was_in_game(&self) -> bool {
        self.was_in_game
    }

    /// Whether it comes now, as another client than before.
    pub(super) fn is_coming(&self, now: Time) -> bool {
        matches!(self.state, State::Away(comes) if comes <= now)
    }

    /// One frame: it says what it has to say, sends, hears and answers.
    pub(super) fn frame(&mut self, acts: bool, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        if self.is_coming(now) {
            self.come(now);
        }
        if matches!(self.state, State::Away(_) | State::Gone) {
            return;
        }
        if acts {
            self.act(ledger, now, totals);
        }
        self.engine.service(now);
        let mut bytes = Vec::new();
        while let Some(event) = self.engine.poll_event(&mut bytes) {
            self.react(event, &bytes, ledger, now, totals);
        }
        self.finish_frame(ledger, now, totals);
    }

    fn come(&mut self, now: Time) {
        self.engine = connect(self.server, &self.manner, &mut self.rng, now);
        self.state = State::Joining;
        self.slot = None;
        self.answers.clear();
    }

    /// Says what the plan has for now.
    fn act(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        let State::InGame(playing) = &mut self.state else { return };
        let (actor, _) = &mut **playing;
        let Some(slot) = self.slot.filter(|_| !self.manner.idle) else { return };
        for order in actor.orders(ledger.count(slot) as u32, now) {
            if self.engine.send(PeerId::HOST, &order.payload, Quality::Reliable, now).is_err() {
                continue;
            }
            totals.said += 1;
            match order.copies {
                Copies::None => {}
                Copies::Others => ledger.say(slot, order.payload, false, now),
                Copies::Everyone => ledger.say(slot, order.payload, true, now),
                Copies::Answer(copy) => ledger.say(slot, copy, true, now),
            }
        }
        if let Some(state) = actor.state() {
            totals.states_said += 1;
            totals.states_due += ledger.present.saturating_sub(1);
            self.engine.send(PeerId::HOST, &state, Quality::Unreliable, now).ok();
        }
    }

    fn react(
        &mut self,
        event: Event,
        bytes: &[u8],
        ledger: &mut Ledger,
        now: Time,
        totals: &mut SwarmTotals,
    ) {
        match event {
            Event::Joined { peer } if peer == self.engine.id() => {
                let name = Text::encode(&self.name).unwrap_or_default();
                self.engine.identify(&name, now);
            }
            Event::Received { .. } => self.hear(bytes, ledger, now, totals),
            Event::Left { reason: Leave::Local, .. } => {}
            Event::Left { peer, reason } if peer == PeerId::HOST || peer == self.engine.id() => {
                self.lose(reason, ledger, now, totals);
            }
            _ => {}
        }
    }

    /// The server is gone, or does not want this player.
    fn lose(&mut self, reason: Leave, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        match &self.state {
            State::InGame(_) => {
                totals.dropped += 1;
                eprintln!("bcnet: {} at {}: {reason}", self.name, self.server);
                self.quit(false, ledger, totals);
                self.state = State::Gone;
            }
            State::Joining => {
                totals.refused += 1;
                self.state = State::Away(now + TRY_AGAIN);
            }
            State::Away(_) | State::Leaving | State::Gone => {}
        }
    }

    fn hear(&mut self, payload: &[u8], ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        match (&mut self.state, payload) {
            (State::Joining, payload) => self.hear_joining(payload, ledger, now, totals),
            (State::InGame(playing), payload) => {
                hear_playing(payload, &mut playing.1, self.slot, ledger, now, totals);
            }
            _ => {}
        }
    }

    fn hear_joining(&mut self, payload: &[u8], ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        match payload {
            [0x20, round, ..] => {
                let thinking = match round {
                    2 => self.rng.between(12, 700),
                    0xFF => self.rng.between(10, 60),
                    _ => 10,
                };
                let answer =
                    payload::files(*round).map(|reply| (now + Duration::from_millis(thinking), reply));
                self.answers.extend(answer);
            }
            [0x00, _, _, _, _, _, slot, ..] => self.slot = Some(*slot).filter(|slot| *slot < payload::SLOTS),
            [0x01] => self.answers.push((now + LOADING, vec![0x2A, 0x20])),
            [0x17, .., peer] if payload.len() == 18 && *peer == self.engine.id().0 => {
                self.enter(ledger, now, totals);
            }
            // What was said before the player came is told again.
            [0x03, slot, ..] if ledger.knows(*slot) && !ledger.was_said(*slot, payload) => {
                totals.changed += 1
            }
            _ => totals.host_said += 1,
        }
    }

    fn enter(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        let Some(slot) = self.slot else { return };
        totals.joined += 1;
        self.was_in_game = true;
        self.settled = ledger.count(slot);
        self.stays = now + wait(&mut self.rng, STAY);
        let rng = Rng::new(self.rng.any());
        let peer = self.engine.id().0;
        let listener = ledger.enter(slot, peer);
        let actor = Actor::new(rng, slot, peer, self.name.clone(), self.manner.time, now);
        self.state = State::InGame(Box::new((actor, listener)));
    }

    fn finish_frame(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        for at in (0..self.answers.len()).rev() {
            if self.answers.get(at).is_some_and(|(due, _)| *due <= now) {
                let (_, answer) = self.answers.swap_remove(at);
                self.engine.send(PeerId::HOST, &answer, Quality::Reliable, now).ok();
            }
        }
        let waiting = self.engine.lengths(PeerId::HOST).map_or(0, |waiting| waiting.retx + waiting.first);
        match self.state {
            State::InGame(_) => {
                if let Some(slot) = self.slot.filter(|_| waiting == 0) {
                    self.settled = ledger.count(slot);
                }
                if self.stays <= now && !self.manner.idle {
                    self.leave(ledger, now, totals);
                }
            }
            State::Leaving if waiting == 0 && !self.engine.is_closed() => self.engine.leave(now),
            State::Leaving if self.engine.is_closed() => {
                let away = Duration::from_millis(self.rng.between(5_000, 20_000));
                self.state = State::Away(now + away);
            }
            _ => {}
        }
        if let Some(crash) = self.engine.crash() {
            totals.dropped += 1;
            eprintln!("bcnet: {}: what the server sent would end the original program: {crash:?}", self.name);
            self.quit(false, ledger, totals);
            self.state = State::Gone;
        }
    }

    /// Leaves the game: nine in ten say so. Whoever is still joining gives up, and says so too.
    pub(super) fn leave(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        if !self.is_in_game() {
            self.answers.clear();
            let joining = matches!(self.state, State::Joining);
            self.state = if joining { State::Leaving } else { State::Gone };
            return;
        }
        let silent = self.rng.chance(SILENT);
        self.quit(!silent, ledger, totals);
        if silent {
            totals.vanished += 1;
            let away = Duration::from_millis(self.rng.between(5_000, 20_000));
            self.state = State::Away(now + away);
        } else {
            totals.left += 1;
            self.state = State::Leaving;
        }
    }

    /// Is not in the game any more: what it missed is lost, and what it said last arrives only if it cares.
    fn quit(&mut self, cares: bool, ledger: &mut Ledger, totals: &mut SwarmTotals) {
        let State::InGame(playing) = &self.state else { return };
        ledger.present = ledger.present.saturating_sub(1);
        totals.lost += playing.1.missing();
        if let Some(slot) = self.slot.filter(|_| !cares) {
            ledger.doubt(slot, self.settled);
        }
    }

    /// What it has not heard yet is lost.
    pub(super) fn give_up(&mut self, ledger: &Ledger, totals: &mut SwarmTotals) {
        if let State::InGame(playing) = &mut self.state {
            totals.lost += ledger.unheard(&playing.1);
            playing.1.forgive();
        }
    }

    /// How many copies it has not heard yet.
    pub(super) fn unheard(&self, ledger: &Ledger) -> u64 {
        match &self.state {
            State::InGame(playing) => ledger.unheard(&playing.1),
            _ => 0,
        }
    }
}

/// What a player in the game hears.
fn hear_playing(
    payload: &[u8],
    listener: &mut Listener,
    own: Option<u8>,
    ledger: &Ledger,
    now: Time,
    totals: &mut SwarmTotals,
) {
    let chatter = payload::chatter(payload).and_then(|peer| ledger.slot(peer));
    let Some(slot) = payload::slot_of(payload).or(chatter).filter(|slot| ledger.knows(*slot)) else {
        totals.host_said += 1;
        return;
    };
    match payload.first() {
        Some(0x1C) => hear_state(payload, own == Some(slot), totals),
        // The host keeps these to itself.
        Some(0x0D | 0x13 | 0x15) => totals.echoed += 1,
        _ => ledger.hear(listener, slot, payload, now, totals),
    }
}

/// A copy of a state: it must be as said, but need not come.
fn hear_state(payload: &[u8], own: bool, totals: &mut SwarmTotals) {
    let said = payload::state_key(payload).map(|(ship, number)| payload::state(ship, number));
    match said.map(payload::passed_state) {
        Some(copy) if copy == payload && own => totals.echoed += 1,
        Some(copy) if copy == payload => totals.states_heard += 1,
        _ => totals.changed += 1,
    }
}

fn connect(server: SocketAddrV4, manner: &Manner, rng: &mut Rng, now: Time) -> Stock {
    // Datagrams of many players are ciphered together, elsewhere.
    let params = Params { cipher: false, ..Params::default() };
    Stock::connect(params, server, Ipv4Addr::LOCALHOST, rng.any() as u32, &manner.password, now)
}

/// How long a client takes to load the mission.
const LOADING: Duration = Duration::from_millis(30);
/// Whoever is refused tries again after this.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How long a player stays, on average, in seconds.
const STAY: f64 = 600.0;
/// The share of leavers that just vanish.
const SILENT: f64 = 0.1;

#[cfg(test)]
mod tests;
