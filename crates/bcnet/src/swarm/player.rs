//! One simulated player: the original engine, and what a player does with it. No socket, no clock.

mod timing;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_lab::stock::{Params, Stock};
use bcnet_session::Manifest;
use bcnet_session::client::{Client, End, Event, Milestone, Options};
use bcnet_session::game::{ObjectId, Opcode};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Quality, Time};

use super::delay::{Join, ReplayWindow};
use super::ledger::{Ledger, Listener};
use super::payload;
use super::plan::{Actor, Copies, TrafficProfile, wait};
use super::totals::SwarmTotals;
pub(super) use timing::Departure;

/// What all players have in common.
#[derive(Debug, Clone)]
pub(super) struct PlayerOptions {
    /// UTF-16LE
    pub(super) password: Vec<u8>,
    /// What they answer when they are asked about their files.
    pub(super) files: Arc<Manifest>,
    /// They join, and then do nothing.
    pub(super) idle: bool,
    /// They answer and acknowledge at once, and not in frames after a while of thinking.
    pub(super) quick: bool,
    pub(super) profile: TrafficProfile,
}

#[derive(Debug)]
pub(super) struct Player {
    pub(super) client: Client<Stock>,
    pub(super) server: SocketAddrV4,
    name: String,
    options: PlayerOptions,
    rng: Rng,
    state: State,
    slot: Option<u8>,
    /// What it has to say on its way into the game, when its time has come.
    answers: Vec<(Time, Answer)>,
    /// How much of what the server said made no sense.
    nonsense: u64,
    /// All that was said before this number has arrived.
    settled: u64,
    stays: Time,
    was_in_game: bool,
    join: Join,
    /// What of the server's reliable messages has come.
    replays: ReplayWindow,
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

/// What a player says while it joins.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// Which files it has.
    Files,
    /// That it has loaded the mission.
    Loaded,
}

impl Player {
    pub(super) fn new(
        server: SocketAddrV4,
        name: String,
        options: PlayerOptions,
        mut rng: Rng,
        comes: Time,
    ) -> Self {
        Self {
            client: connect(server, &name, &options, &mut rng, comes),
            server,
            name,
            options,
            rng,
            state: State::Away(comes),
            slot: None,
            answers: Vec::new(),
            nonsense: 0,
            settled: 0,
            stays: FOR_EVER,
            was_in_game: false,
            join: Join::default(),
            replays: ReplayWindow::default(),
        }
    }

    pub(super) const fn is_in_game(&self) -> bool {
        matches!(self.state, State::InGame(_))
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    /// Returns whether it was ever in the game.
    pub(super) const fn was_in_game(&self) -> bool {
        self.was_in_game
    }

    /// Returns whether it comes now, as another client than before.
    pub(super) fn is_coming(&self, now: Time) -> bool {
        matches!(self.state, State::Away(comes) if comes <= now)
    }

    /// Returns when its engine has something to do, if it is there.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.state {
            State::Away(_) | State::Gone => None,
            State::Joining | State::InGame(_) | State::Leaving => self.client.next_timeout(),
        }
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
        self.client.handle_timeout(now);
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            self.react(event, &payload, ledger, now, totals);
        }
        self.finish_frame(ledger, now, totals);
    }

    fn come(&mut self, now: Time) {
        self.client = connect(self.server, &self.name, &self.options, &mut self.rng, now);
        self.nonsense = 0;
        self.state = State::Joining;
        self.slot = None;
        self.answers.clear();
        self.join = Join::default();
        self.replays = ReplayWindow::default();
    }

    /// Says what the plan has for now.
    fn act(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        let State::InGame(playing) = &mut self.state else { return };
        let (actor, _) = &mut **playing;
        let Some(slot) = self.slot.filter(|_| !self.options.idle) else { return };
        let others = self.client.ships().filter(|ship| ship.slot != slot);
        let targets: Vec<ObjectId> = others.map(|ship| ship.object).collect();
        for message in actor.messages(ledger.count(slot) as u32, &targets, now) {
            if self.client.send(&message.payload, Quality::Reliable, now).is_err() {
                continue;
            }
            totals.said += 1;
            match message.copies {
                Copies::None => {}
                Copies::Others => ledger.say(slot, message.payload, false),
                Copies::Everyone => ledger.say(slot, message.payload, true),
                Copies::Answer(copy) => ledger.say(slot, copy, true),
            }
        }
        if let Some(state) = actor.state() {
            totals.states_said += 1;
            totals.states_due += ledger.present.saturating_sub(1);
            self.client.send(&state, Quality::Unreliable, now).ok();
        }
    }

    fn react(
        &mut self,
        event: Event,
        payload: &[u8],
        ledger: &mut Ledger,
        now: Time,
        totals: &mut SwarmTotals,
    ) {
        match (&mut self.state, event) {
            (_, Event::Gone { end, .. }) => self.lose(end, ledger, now, totals),
            // Names, and what is counted below.
            _ if payload.is_empty() => {}
            (_, Event::Nonsense { .. }) => {}
            (State::Joining, event) => self.hear_joining(event, payload, ledger, now, totals),
            (State::InGame(playing), _) => {
                hear_playing(payload, &mut playing.1, self.slot, ledger, totals);
            }
            (State::Away(_) | State::Leaving | State::Gone, _) => {}
        }
    }

    /// The server is gone, or does not want this player.
    fn lose(&mut self, reason: End, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
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

    fn hear_joining(
        &mut self,
        event: Event,
        payload: &[u8],
        ledger: &mut Ledger,
        now: Time,
        totals: &mut SwarmTotals,
    ) {
        if let Event::ShipCreated(ship) = event
            && ledger.knows(ship.slot)
            && !ledger.was_said(ship.slot, payload)
        {
            // What was said before the player came is told again.
            totals.changed += 1;
            return;
        }
        match event.milestone() {
            Some(Milestone::FileCheck(check)) => {
                let thinking = match check.index {
                    _ if self.options.quick => 0,
                    2 => self.rng.between(12, 700),
                    0xFF => self.rng.between(10, 60),
                    _ => 10,
                };
                self.answers.push((now + Duration::from_millis(thinking), Answer::Files));
            }
            Some(Milestone::Settings(settings)) => self.slot = Some(settings.slot),
            Some(Milestone::Load) => {
                let loading = if self.options.quick { Duration::ZERO } else { LOADING };
                self.answers.push((now + loading, Answer::Loaded));
            }
            Some(Milestone::Entered) => self.enter(ledger, now, totals),
            Some(Milestone::Connected(_) | Milestone::Gone { .. }) | None => totals.host_said += 1,
        }
    }

    fn enter(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        let Some(slot) = self.slot else { return };
        totals.joined += 1;
        self.was_in_game = true;
        self.settled = ledger.count(slot);
        self.stays = match self.options.profile {
            TrafficProfile::Recorded { .. } => now + wait(&mut self.rng, STAY),
            TrafficProfile::Steady => FOR_EVER,
        };
        let rng = Rng::new(self.rng.any());
        let peer = self.client.id().0;
        let listener = ledger.enter(slot, peer);
        let actor = Actor::new(rng, slot, peer, self.name.clone(), self.options.profile, now);
        self.state = State::InGame(Box::new((actor, listener)));
    }

    fn finish_frame(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        for at in (0..self.answers.len()).rev() {
            if self.answers.get(at).is_some_and(|(due, _)| *due <= now) {
                let (_, answer) = self.answers.swap_remove(at);
                match answer {
                    Answer::Files => self.client.answer_from(&self.options.files, now).ok(),
                    Answer::Loaded => self.client.enter(now).ok(),
                };
            }
        }
        let waiting =
            self.client.engine().lengths(PeerId::HOST).map_or(0, |waiting| waiting.retx + waiting.first);
        match self.state {
            State::InGame(_) => {
                if let Some(slot) = self.slot.filter(|_| waiting == 0) {
                    self.settled = ledger.count(slot);
                }
                if self.stays <= now && !self.options.idle {
                    self.leave(ledger, now, totals);
                }
            }
            State::Leaving if waiting == 0 && !self.client.is_closed() => self.client.leave(now),
            State::Leaving if self.client.is_closed() => {
                let away = Duration::from_millis(self.rng.between(5_000, 20_000));
                self.state = State::Away(now + away);
            }
            State::Away(_) | State::Joining | State::Leaving | State::Gone => {}
        }
        totals.changed +=
            self.client.nonsense() - std::mem::replace(&mut self.nonsense, self.client.nonsense());
        if let Some(crash) = self.client.engine().crash() {
            totals.dropped += 1;
            eprintln!("bcnet: {}: what the server sent would end the original program: {crash:?}", self.name);
            self.quit(false, ledger, totals);
            self.state = State::Gone;
        }
    }

    /// Leaves the game: nine in ten of recorded players say so. Whoever is still joining gives up, and says so too.
    pub(super) fn leave(&mut self, ledger: &mut Ledger, now: Time, totals: &mut SwarmTotals) {
        if !self.is_in_game() {
            self.answers.clear();
            let joining = matches!(self.state, State::Joining);
            self.state = if joining { State::Leaving } else { State::Gone };
            return;
        }
        // A steady player leaves nothing behind that the next run would meet.
        let silent =
            matches!(self.options.profile, TrafficProfile::Recorded { .. }) && self.rng.chance(SILENT);
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

    /// Returns how many copies it has not heard yet.
    pub(super) fn unheard(&self, ledger: &Ledger) -> u64 {
        let State::InGame(playing) = &self.state else { return 0 };
        ledger.unheard(&playing.1)
    }
}

/// What a player in the game hears.
fn hear_playing(
    payload: &[u8],
    listener: &mut Listener,
    own: Option<u8>,
    ledger: &Ledger,
    totals: &mut SwarmTotals,
) {
    let Some(slot) = speaker(payload, ledger) else {
        totals.host_said += 1;
        return;
    };
    match Opcode::of(payload) {
        Some(Opcode::STATE_UPDATE) => hear_state(payload, own == Some(slot), totals),
        // The host keeps these to itself.
        Some(Opcode::PYTHON_EVENT_2 | Opcode::HOST_MESSAGE | Opcode::COLLISION_EFFECT) => totals.echoed += 1,
        _ => ledger.hear(listener, slot, payload, totals),
    }
}

/// Returns the slot of the player of this swarm that has said something.
fn speaker(payload: &[u8], ledger: &Ledger) -> Option<u8> {
    let chatter = payload::chatter(payload).and_then(|peer| ledger.slot(peer));
    payload::slot_of(payload).or(chatter).filter(|slot| ledger.knows(*slot))
}

/// A copy of a state: it must be as said, but need not come.
fn hear_state(payload: &[u8], own: bool, totals: &mut SwarmTotals) {
    match payload::state_key(payload).map(|(ship, number)| payload::passed_state(ship, number)) {
        Some(copy) if copy == payload && own => totals.echoed += 1,
        Some(copy) if copy == payload => totals.states_heard += 1,
        Some(_) | None => totals.changed += 1,
    }
}

fn connect(
    server: SocketAddrV4,
    name: &str,
    options: &PlayerOptions,
    rng: &mut Rng,
    now: Time,
) -> Client<Stock> {
    // Datagrams of many players are ciphered together, elsewhere.
    let params = Params { cipher: false, ..Params::default() };
    let nonce = rng.any() as u32;
    let engine = Stock::connect(params, server, Ipv4Addr::LOCALHOST, nonce, &options.password, now);
    // It is for the server to say that it takes too long.
    Client::new(engine, Options { name: name.into(), handshake_timeout: None }, now)
}

const FOR_EVER: Time = Time::from_micros(u64::MAX);
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
