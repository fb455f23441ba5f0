//! One simulated player: the stock engine and a player's actions. No socket, no clock.

mod timing;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_lab::stock::{Params, StockEngine};
use bcnet_session::Manifest;
use bcnet_session::client::{self, Client, ClientOptions, DisconnectReason, Milestone};
use bcnet_session::game::{ObjectId, Opcode};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{DeliveryMode, Time};

use super::counters::SwarmCounters;
use super::delay::{JoinTimer, ReplayWindow};
use super::delivery_tracker::{DeliveryTracker, ReceiveProgress};
use super::payload;
use super::plan::{Copies, TrafficGenerator, TrafficProfile, exponential_wait};
pub(super) use timing::TimedSend;

/// Options of all players.
#[derive(Debug, Clone)]
pub(super) struct PlayerOptions {
    /// UTF-16LE
    pub(super) password: Vec<u8>,
    /// The answers to file checks.
    pub(super) files: Arc<Manifest>,
    /// True if players only join, and then do nothing.
    pub(super) idle: bool,
    /// True if players answer and acknowledge at once, without ticks and thinking time.
    pub(super) quick: bool,
    pub(super) profile: TrafficProfile,
}

#[derive(Debug)]
pub(super) struct SimulatedPlayer {
    pub(super) client: Client<StockEngine>,
    pub(super) server: SocketAddrV4,
    name: String,
    options: PlayerOptions,
    rng: Rng,
    state: SimulatedPlayerState,
    slot: Option<u8>,
    /// Answers during the join, with their times.
    pending_answers: Vec<(Time, JoinAnswer)>,
    /// Invalid messages of the server.
    anomalies: u64,
    /// All messages before this number have arrived.
    acked_before: u64,
    leaves_at: Time,
    was_in_game: bool,
    join_timer: JoinTimer,
    /// Received reliable messages of the server.
    replay_window: ReplayWindow,
}

#[derive(Debug)]
enum SimulatedPlayerState {
    /// Not connected; joins at this time.
    Away(Time),
    Joining,
    InGame(Box<(TrafficGenerator, ReceiveProgress)>),
    /// Sends nothing more, and leaves when everything has arrived.
    Leaving,
    Gone,
}

/// Answers of a player during the join.
#[derive(Debug, Clone, Copy)]
enum JoinAnswer {
    /// The file check.
    Files,
    /// The mission is loaded.
    Loaded,
}

impl SimulatedPlayer {
    pub(super) fn new(
        server: SocketAddrV4,
        name: String,
        options: PlayerOptions,
        mut rng: Rng,
        joins_at: Time,
    ) -> Self {
        Self {
            client: connect(server, &name, &options, &mut rng, joins_at),
            server,
            name,
            options,
            rng,
            state: SimulatedPlayerState::Away(joins_at),
            slot: None,
            pending_answers: Vec::new(),
            anomalies: 0,
            acked_before: 0,
            leaves_at: NEVER,
            was_in_game: false,
            join_timer: JoinTimer::default(),
            replay_window: ReplayWindow::default(),
        }
    }

    pub(super) const fn is_in_game(&self) -> bool {
        matches!(self.state, SimulatedPlayerState::InGame(_))
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self.state, SimulatedPlayerState::Gone)
    }

    /// Returns whether the player was ever in the game.
    pub(super) const fn was_in_game(&self) -> bool {
        self.was_in_game
    }

    /// Returns whether the player joins now, as a new client.
    pub(super) fn is_due_to_join(&self, now: Time) -> bool {
        matches!(self.state, SimulatedPlayerState::Away(joins_at) if joins_at <= now)
    }

    /// Returns the deadline of its engine, if it is connected.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.state {
            SimulatedPlayerState::Away(_) | SimulatedPlayerState::Gone => None,
            SimulatedPlayerState::Joining
            | SimulatedPlayerState::InGame(_)
            | SimulatedPlayerState::Leaving => self.client.next_timeout(),
        }
    }

    /// Runs one tick: sends planned messages, receives and answers.
    pub(super) fn frame(
        &mut self,
        sends_planned: bool,
        tracker: &mut DeliveryTracker,
        now: Time,
        counters: &mut SwarmCounters,
    ) {
        if self.is_due_to_join(now) {
            self.start_join(now);
        }
        if matches!(self.state, SimulatedPlayerState::Away(_) | SimulatedPlayerState::Gone) {
            return;
        }
        if sends_planned {
            self.send_planned(tracker, now, counters);
        }
        self.client.handle_timeout(now);
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            self.handle_event(event, &payload, tracker, now, counters);
        }
        self.finish_frame(tracker, now, counters);
    }

    fn start_join(&mut self, now: Time) {
        self.client = connect(self.server, &self.name, &self.options, &mut self.rng, now);
        self.anomalies = 0;
        self.state = SimulatedPlayerState::Joining;
        self.slot = None;
        self.pending_answers.clear();
        self.join_timer = JoinTimer::default();
        self.replay_window = ReplayWindow::default();
    }

    /// Sends the planned messages of this tick.
    fn send_planned(&mut self, tracker: &mut DeliveryTracker, now: Time, counters: &mut SwarmCounters) {
        let SimulatedPlayerState::InGame(playing) = &mut self.state else { return };
        let (generator, _) = &mut **playing;
        let Some(slot) = self.slot.filter(|_| !self.options.idle) else { return };
        let others = self.client.ships().filter(|ship| ship.slot != slot);
        let targets: Vec<ObjectId> = others.map(|ship| ship.object).collect();
        for message in generator.messages(tracker.message_count(slot) as u32, &targets, now) {
            if self.client.send(&message.payload, DeliveryMode::Reliable, now).is_err() {
                continue;
            }
            counters.messages_sent += 1;
            match message.copies {
                Copies::None => {}
                Copies::Others => tracker.record_message(slot, message.payload, false),
                Copies::Everyone => tracker.record_message(slot, message.payload, true),
                Copies::Substitute(copy) => tracker.record_message(slot, copy, true),
            }
        }
        if let Some(state) = generator.state() {
            counters.states_sent += 1;
            counters.states_expected += tracker.players_in_game.saturating_sub(1);
            self.client.send(&state, DeliveryMode::Unreliable, now).ok();
        }
    }

    fn handle_event(
        &mut self,
        event: client::Event,
        payload: &[u8],
        tracker: &mut DeliveryTracker,
        now: Time,
        counters: &mut SwarmCounters,
    ) {
        match (&mut self.state, event) {
            (_, client::Event::Gone { reason: end, .. }) => {
                self.on_connection_lost(end, tracker, now, counters)
            }
            // Events without a payload, such as names.
            _ if payload.is_empty() => {}
            (_, client::Event::Anomaly { .. }) => {}
            (SimulatedPlayerState::Joining, event) => {
                self.on_join_event(event, payload, tracker, now, counters)
            }
            (SimulatedPlayerState::InGame(playing), _) => {
                on_game_message(payload, &mut playing.1, self.slot, tracker, counters);
            }
            (
                SimulatedPlayerState::Away(_) | SimulatedPlayerState::Leaving | SimulatedPlayerState::Gone,
                _,
            ) => {}
        }
    }

    /// Handles a lost connection or a refusal.
    fn on_connection_lost(
        &mut self,
        reason: DisconnectReason,
        tracker: &mut DeliveryTracker,
        now: Time,
        counters: &mut SwarmCounters,
    ) {
        match &self.state {
            SimulatedPlayerState::InGame(_) => {
                counters.dropped += 1;
                eprintln!("bcnet: {} at {}: {reason}", self.name, self.server);
                self.stop_playing(false, tracker, counters);
                self.state = SimulatedPlayerState::Gone;
            }
            SimulatedPlayerState::Joining => {
                counters.refused += 1;
                self.state = SimulatedPlayerState::Away(now + REJOIN_DELAY);
            }
            SimulatedPlayerState::Away(_) | SimulatedPlayerState::Leaving | SimulatedPlayerState::Gone => {}
        }
    }

    fn on_join_event(
        &mut self,
        event: client::Event,
        payload: &[u8],
        tracker: &mut DeliveryTracker,
        now: Time,
        counters: &mut SwarmCounters,
    ) {
        if let client::Event::ShipCreated(ship) = event
            && tracker.has_slot(ship.slot)
            && !tracker.was_recorded(ship.slot, payload)
        {
            // A newcomer receives existing ships. This one has bytes that its owner never sent.
            counters.changed += 1;
            return;
        }
        match event.milestone() {
            Some(Milestone::FileCheck(check)) => {
                let answer_delay_ms = match check.index {
                    _ if self.options.quick => 0,
                    2 => self.rng.between(12, 700),
                    0xFF => self.rng.between(10, 60),
                    _ => 10,
                };
                self.pending_answers.push((now + Duration::from_millis(answer_delay_ms), JoinAnswer::Files));
            }
            Some(Milestone::Settings(settings)) => self.slot = Some(settings.slot),
            Some(Milestone::Load) => {
                let loading_time = if self.options.quick { Duration::ZERO } else { LOADING_TIME };
                self.pending_answers.push((now + loading_time, JoinAnswer::Loaded));
            }
            Some(Milestone::Entered) => self.enter_game(tracker, now, counters),
            Some(Milestone::Connected(_) | Milestone::Gone { .. }) | None => counters.host_messages += 1,
        }
    }

    fn enter_game(&mut self, tracker: &mut DeliveryTracker, now: Time, counters: &mut SwarmCounters) {
        let Some(slot) = self.slot else { return };
        counters.joined += 1;
        self.was_in_game = true;
        self.acked_before = tracker.message_count(slot);
        self.leaves_at = match self.options.profile {
            TrafficProfile::Recorded { .. } => now + exponential_wait(&mut self.rng, MEAN_STAY_S),
            TrafficProfile::Steady => NEVER,
        };
        let rng = Rng::new(self.rng.next_u64());
        let peer = self.client.id().0;
        let receiver = tracker.enter(slot, peer);
        let generator = TrafficGenerator::new(rng, slot, peer, self.name.clone(), self.options.profile, now);
        self.state = SimulatedPlayerState::InGame(Box::new((generator, receiver)));
    }

    fn finish_frame(&mut self, tracker: &mut DeliveryTracker, now: Time, counters: &mut SwarmCounters) {
        for at in (0..self.pending_answers.len()).rev() {
            if self.pending_answers.get(at).is_some_and(|(due, _)| *due <= now) {
                let (_, answer) = self.pending_answers.swap_remove(at);
                match answer {
                    JoinAnswer::Files => self.client.answer_from_manifest(&self.options.files, now).ok(),
                    JoinAnswer::Loaded => self.client.enter(now).ok(),
                };
            }
        }
        let pending = self
            .client
            .engine()
            .queue_lengths(PeerId::HOST)
            .map_or(0, |pending| pending.retx + pending.first);
        match self.state {
            SimulatedPlayerState::InGame(_) => {
                if let Some(slot) = self.slot.filter(|_| pending == 0) {
                    self.acked_before = tracker.message_count(slot);
                }
                if self.leaves_at <= now && !self.options.idle {
                    self.leave(tracker, now, counters);
                }
            }
            SimulatedPlayerState::Leaving if pending == 0 && !self.client.is_closed() => {
                self.client.leave(now)
            }
            SimulatedPlayerState::Leaving if self.client.is_closed() => {
                let absence = Duration::from_millis(self.rng.between(5_000, 20_000));
                self.state = SimulatedPlayerState::Away(now + absence);
            }
            SimulatedPlayerState::Away(_)
            | SimulatedPlayerState::Joining
            | SimulatedPlayerState::Leaving
            | SimulatedPlayerState::Gone => {}
        }
        counters.changed +=
            self.client.anomalies() - std::mem::replace(&mut self.anomalies, self.client.anomalies());
        if let Some(crash) = self.client.engine().crash() {
            counters.dropped += 1;
            eprintln!("bcnet: {}: the server's data would crash the original program: {crash:?}", self.name);
            self.stop_playing(false, tracker, counters);
            self.state = SimulatedPlayerState::Gone;
        }
    }

    /// Leaves the game. Nine of ten recorded players send a disconnect, and so does a player that gives up joining.
    pub(super) fn leave(&mut self, tracker: &mut DeliveryTracker, now: Time, counters: &mut SwarmCounters) {
        if !self.is_in_game() {
            self.pending_answers.clear();
            let joining = matches!(self.state, SimulatedPlayerState::Joining);
            self.state = if joining { SimulatedPlayerState::Leaving } else { SimulatedPlayerState::Gone };
            return;
        }
        // A steady player always sends a disconnect, so that the server has no lost players in the next run.
        let silent = matches!(self.options.profile, TrafficProfile::Recorded { .. })
            && self.rng.chance(SILENT_LEAVE_SHARE);
        self.stop_playing(!silent, tracker, counters);
        if silent {
            counters.vanished += 1;
            let absence = Duration::from_millis(self.rng.between(5_000, 20_000));
            self.state = SimulatedPlayerState::Away(now + absence);
        } else {
            counters.left += 1;
            self.state = SimulatedPlayerState::Leaving;
        }
    }

    /// Removes the player from the game, and counts its skipped copies as lost.
    ///
    /// Unless `waits_for_delivery`, its unacknowledged messages need not reach the other players.
    fn stop_playing(
        &mut self,
        waits_for_delivery: bool,
        tracker: &mut DeliveryTracker,
        counters: &mut SwarmCounters,
    ) {
        let SimulatedPlayerState::InGame(playing) = &self.state else { return };
        tracker.players_in_game = tracker.players_in_game.saturating_sub(1);
        counters.lost += playing.1.missing_count();
        if let Some(slot) = self.slot.filter(|_| !waits_for_delivery) {
            tracker.mark_maybe_unsent(slot, self.acked_before);
        }
    }

    /// Counts copies that have not arrived as lost.
    pub(super) fn count_undelivered_as_lost(
        &mut self,
        tracker: &DeliveryTracker,
        counters: &mut SwarmCounters,
    ) {
        if let SimulatedPlayerState::InGame(playing) = &mut self.state {
            counters.lost += tracker.undelivered(&playing.1);
            playing.1.clear_missing();
        }
    }

    /// Returns the number of copies that have not arrived.
    pub(super) fn undelivered(&self, tracker: &DeliveryTracker) -> u64 {
        let SimulatedPlayerState::InGame(playing) = &self.state else { return 0 };
        tracker.undelivered(&playing.1)
    }
}

/// Handles a game message.
fn on_game_message(
    payload: &[u8],
    receiver: &mut ReceiveProgress,
    own: Option<u8>,
    tracker: &DeliveryTracker,
    counters: &mut SwarmCounters,
) {
    let Some(slot) = sending_slot(payload, tracker) else {
        counters.host_messages += 1;
        return;
    };
    match Opcode::of(payload) {
        Some(Opcode::STATE_UPDATE) => on_state_copy(payload, own == Some(slot), counters),
        // The host does not relay these.
        Some(Opcode::PYTHON_EVENT_2 | Opcode::HOST_MESSAGE | Opcode::COLLISION_EFFECT) => {
            counters.echoed += 1
        }
        _ => tracker.on_copy(receiver, slot, payload, counters),
    }
}

/// Returns the slot of the swarm's player that sent a message.
fn sending_slot(payload: &[u8], tracker: &DeliveryTracker) -> Option<u8> {
    let chatter = payload::chat_sender(payload).and_then(|peer| tracker.slot_of_peer(peer));
    payload::sender_slot(payload).or(chatter).filter(|slot| tracker.has_slot(*slot))
}

/// Checks a copy of a state: it must be unchanged, but may be missing.
fn on_state_copy(payload: &[u8], own: bool, counters: &mut SwarmCounters) {
    match payload::state_key(payload).map(|(ship, number)| payload::relayed_state(ship, number)) {
        Some(copy) if copy == payload && own => counters.echoed += 1,
        Some(copy) if copy == payload => counters.states_received += 1,
        Some(_) | None => counters.changed += 1,
    }
}

fn connect(
    server: SocketAddrV4,
    name: &str,
    options: &PlayerOptions,
    rng: &mut Rng,
    now: Time,
) -> Client<StockEngine> {
    // Datagrams of many players are encrypted together, elsewhere.
    let params = Params { cipher: false, ..Params::default() };
    let nonce = rng.next_u64() as u32;
    let engine = StockEngine::connect(params, server, Ipv4Addr::LOCALHOST, nonce, &options.password, now);
    // The server decides when a join takes too long.
    Client::new(engine, ClientOptions { name: name.into(), handshake_timeout: None }, now)
}

const NEVER: Time = Time::from_micros(u64::MAX);
/// Time to load the mission.
const LOADING_TIME: Duration = Duration::from_millis(30);
/// Time before a refused player tries again.
const REJOIN_DELAY: Duration = Duration::from_secs(5);
/// Mean stay of a player, in seconds.
const MEAN_STAY_S: f64 = 600.0;
/// Share of leaving players that send no disconnect.
const SILENT_LEAVE_SHARE: f64 = 0.1;

#[cfg(test)]
mod tests;
