//! Honest players who chat and fly, and measure loss and delay.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::ensure;
use bcnet_session::client::Event;
use bcnet_session::game::{Message, Opcode, StateUpdate};
use bcnet_transport::Time;

use crate::delays::DelaySamples;
use crate::forged::unknown_opcode;
use crate::player::{AttackPlayer, JoinRequest, LinkProfile, wait_for_players};
use crate::{Environment, process::Process};

/// Honest players in one game.
pub(crate) struct PlayerGroup {
    players: Vec<AttackPlayer>,
    env: Environment,
    /// The times at which states were sent, by ship and game clock.
    sent_states: HashMap<(u32, u32), Time>,
    clocks: Vec<f32>,
    chat_count: u64,
}

/// What the players of a group measured in one period.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlayerMeasurement {
    /// Chat messages that should arrive, counted for each receiver.
    pub(crate) chat_expected: u64,
    pub(crate) chat: DelaySamples,
    pub(crate) states_expected: u64,
    pub(crate) states: DelaySamples,
    /// Chat messages that no honest player sent.
    pub(crate) forged_chat: u64,
    /// Number of departures that players saw.
    pub(crate) departures: u64,
    /// Reliable messages with an opcode that honest players do not use.
    pub(crate) bulk: u64,
    /// Players that were connected at the start and not at the end, according to the client or the server.
    pub(crate) lost: u64,
}

impl PlayerMeasurement {
    /// Returns the share of chat messages that did not arrive.
    pub(crate) fn chat_loss(&self) -> f64 {
        loss_share(self.chat_expected, self.chat.count())
    }

    pub(crate) fn state_loss(&self) -> f64 {
        loss_share(self.states_expected, self.states.count())
    }
}

fn loss_share(expected: u64, received: usize) -> f64 {
    if expected == 0 { 0.0 } else { (1.0 - received as f64 / expected as f64).max(0.0) }
}

impl PlayerGroup {
    /// Lets `count` players join, each from a different network.
    pub(crate) fn join(env: &Environment, process: &Process, count: u16) -> anyhow::Result<Self> {
        Self::join_from(env, process, count, LinkProfile::UNLIMITED)
    }

    /// Lets players join over links with this profile.
    pub(crate) fn join_from(
        env: &Environment,
        process: &Process,
        count: u16,
        link: LinkProfile,
    ) -> anyhow::Result<Self> {
        Self::join_at(env, (process.address(), process.password()), count, link)
    }

    /// Lets players join at `server`, which may also be a proxy.
    pub(crate) fn join_at(
        env: &Environment,
        (server, password): (SocketAddrV4, &str),
        count: u16,
        link: LinkProfile,
    ) -> anyhow::Result<Self> {
        let mut group = Self {
            players: Vec::new(),
            env: env.clone(),
            sent_states: HashMap::new(),
            clocks: Vec::new(),
            chat_count: 0,
        };
        for number in 0..count {
            let request = JoinRequest {
                server,
                from: env.sandbox.honest_address(number),
                name: &format!("Honest {number}"),
                password,
                nonce: 0x1000 + u32::from(number),
                link,
            };
            group.players.push(AttackPlayer::connect(env.sandbox, env.clock, request)?);
            let end = env.clock.now() + JOIN_TIMEOUT;
            let newcomer = usize::from(number);
            let is_in =
                |group: &Self| group.players.get(newcomer).is_some_and(|one| one.client.has_entered());
            while !is_in(&group) && env.clock.now() < end {
                group.poll_until(end, &mut PlayerMeasurement::default());
            }
            let joined = group.players.get_mut(newcomer).filter(|one| one.client.has_entered());
            let Some(joined) = joined else {
                anyhow::bail!("an honest player cannot join, although no attack is running")
            };
            joined.create_ship()?;
            joined.send();
            group.clocks.push(1.0);
        }
        group.stay_idle(SETTLE_TIME);
        ensure!(
            group.players.iter().all(|player| player.end.is_none()),
            "an honest player was disconnected, although no attack is running"
        );
        Ok(group)
    }

    pub(crate) fn players(&self) -> &[AttackPlayer] {
        &self.players
    }

    /// Plays for a while, and then waits until all chat has arrived, or until a timeout.
    pub(crate) fn play(&mut self, process: &Process, time: Duration) -> anyhow::Result<PlayerMeasurement> {
        let mut measured = PlayerMeasurement::default();
        let clock = self.env.clock;
        let present = self.count_present(process)?;
        let start = clock.now();
        let end = start + time;
        let (mut chats, mut states) = (0, 0);
        let [chat_every, state_every] =
            [CHAT_INTERVAL, STATE_INTERVAL].map(|pause| pause / self.players.len().max(1) as u32);
        while clock.now() < end {
            let since = clock.now().since(start);
            while since >= chat_every * chats {
                self.chat(chats as usize, &mut measured);
                chats += 1;
            }
            while since >= state_every * states {
                self.send_state(states as usize, &mut measured);
                states += 1;
            }
            let due = (start + chat_every * chats).min(start + state_every * states).min(end);
            self.poll_until(due, &mut measured);
        }
        self.drain(&mut measured);
        measured.lost = present.saturating_sub(self.count_present(process)?);
        Ok(measured)
    }

    /// Keeps the players connected without sending anything new.
    pub(crate) fn stay_idle(&mut self, time: Duration) {
        let end = self.env.clock.now() + time;
        while self.env.clock.now() < end {
            self.poll_until(end, &mut PlayerMeasurement::default());
        }
    }

    /// Lets the next player send a state update, and waits, without measuring.
    pub(crate) fn send_state_and_wait(&mut self, time: Duration) {
        let turn = self.chat_count as usize;
        self.chat_count += 1;
        self.send_state(turn, &mut PlayerMeasurement::default());
        self.sent_states.clear();
        self.stay_idle(time);
    }

    /// Returns how many players are in the game according to both the client and the server.
    ///
    /// A server without a control socket is not asked; see [`count_reachable`](Self::count_reachable).
    pub(crate) fn count_present(&self, process: &Process) -> anyhow::Result<u64> {
        let connected = self.players.iter().filter(|player| player.end.is_none());
        if !process.has_control() {
            return Ok(connected.count() as u64);
        }
        let listed = process.players()?;
        let is_listed = |player: &&AttackPlayer| {
            listed.iter().any(|(name, id)| *name == player.name && *id == player.client.id().0)
        };
        Ok(connected.filter(is_listed).count() as u64)
    }

    /// Lets each player send one line, and returns how many players hear another one and are heard by one.
    pub(crate) fn count_reachable(&mut self) -> u64 {
        let now = self.env.clock.now();
        for (at, player) in self.players.iter_mut().enumerate() {
            // A player who cannot send is not heard.
            let _ = player.client.chat(&format!("{ROLL_CALL_PREFIX}{at}"), now);
            player.send();
        }
        let mut heard = vec![HashSet::new(); self.players.len()];
        let end = now + DRAIN_TIMEOUT;
        let all = self.players.len().saturating_sub(1);
        while self.env.clock.now() < end && heard.iter().any(|senders| senders.len() < all) {
            wait_for_players(self.env.clock, &self.players, end);
            for (at, (player, senders)) in self.players.iter_mut().zip(&mut heard).enumerate() {
                player.poll(|event, _, _| {
                    if let Event::Chat { text, .. } = event
                        && let Some(Ok(sender)) = text.strip_prefix(ROLL_CALL_PREFIX).map(str::parse::<usize>)
                        && sender != at
                    {
                        senders.insert(sender);
                    }
                });
            }
        }
        let is_reachable = |at: usize| {
            heard.get(at).is_some_and(|senders| !senders.is_empty())
                && heard.iter().any(|senders| senders.contains(&at))
        };
        (0..self.players.len()).filter(|at| is_reachable(*at)).count() as u64
    }

    /// Removes the last player from the group.
    pub(crate) fn take_last(&mut self) -> Option<AttackPlayer> {
        self.players.pop()
    }

    /// Waits until all players together have received `expected` bulk messages, or until a timeout.
    pub(crate) fn wait_for_bulk(&mut self, measured: &mut PlayerMeasurement, expected: u64) {
        let end = self.env.clock.now() + BULK_TIMEOUT;
        while self.env.clock.now() < end && measured.bulk < expected {
            let next_poll = self.env.clock.now() + POLL_INTERVAL;
            self.poll_until(next_poll.min(end), measured);
        }
    }

    fn drain(&mut self, measured: &mut PlayerMeasurement) {
        let end = self.env.clock.now() + DRAIN_TIMEOUT;
        while self.env.clock.now() < end && (measured.chat.count() as u64) < measured.chat_expected {
            let next_poll = self.env.clock.now() + POLL_INTERVAL;
            self.poll_until(next_poll.min(end), measured);
        }
        self.sent_states.clear();
    }

    fn chat(&mut self, turn: usize, measured: &mut PlayerMeasurement) {
        let (count, now) = (self.players.len().max(1), self.env.clock.now());
        self.chat_count += 1;
        let text = format!("{CHAT_PREFIX}{} {}", self.chat_count, now.as_micros());
        let Some(player) = self.players.get_mut(turn % count) else { return };
        // If the outbox is full, the message is not sent. It still counts as expected, so it is lost.
        let _ = player.client.chat(&text, now);
        player.send();
        // The server sends chat back to its sender, too.
        measured.chat_expected += count as u64;
    }

    fn send_state(&mut self, turn: usize, measured: &mut PlayerMeasurement) {
        let (count, now) = (self.players.len().max(1), self.env.clock.now());
        let at = turn % count;
        let (Some(player), Some(time)) = (self.players.get_mut(at), self.clocks.get_mut(at)) else { return };
        let Some(object) = player.ship else { return };
        *time += 0.125;
        self.sent_states.insert((object.0, time.to_bits()), now);
        let update =
            StateUpdate { object, time: *time, power: Some(&[[0, 204]; 3]), ..StateUpdate::default() };
        let _ = player.client.send_state_update(update, now);
        player.send();
        measured.states_expected += count as u64 - 1;
    }

    fn poll_until(&mut self, until: Time, measured: &mut PlayerMeasurement) {
        wait_for_players(self.env.clock, &self.players, until);
        let bulk = unknown_opcode();
        for player in &mut self.players {
            player.poll(|event, payload, now| match event {
                Event::Chat { text, .. } => match sent_at(text) {
                    Some(sent) => measured.chat.add(now.since(sent)),
                    None => measured.forged_chat += 1,
                },
                Event::Disconnected { .. } => measured.departures += 1,
                Event::Received { reliable: true } => {
                    measured.bulk += u64::from(Opcode::of(payload) == Some(bulk));
                }
                Event::Received { reliable: false } => {
                    if let Ok(Message::StateUpdate(update)) = Message::parse(payload)
                        && let Some(sent) = self.sent_states.get(&(update.object.0, update.time.to_bits()))
                    {
                        measured.states.add(now.since(*sent));
                    }
                }
                Event::Connected { .. }
                | Event::FileCheck(_)
                | Event::FilesDiffer { .. }
                | Event::FilesPassed
                | Event::Settings(_)
                | Event::Load
                | Event::Mission(_)
                | Event::Entered
                | Event::Named { .. }
                | Event::Joined { .. }
                | Event::Left { .. }
                | Event::Score { .. }
                | Event::TeamScore { .. }
                | Event::Died { .. }
                | Event::RoundEnded { .. }
                | Event::RoundStarted
                | Event::ShipCreated(_)
                | Event::ShipExploding { .. }
                | Event::ObjectDestroyed { .. }
                | Event::Anomaly { .. }
                | Event::Gone { .. } => {}
            });
        }
    }
}

/// Returns the time at which a line was sent, which is part of its text.
fn sent_at(text: &str) -> Option<Time> {
    let (_, micros) = text.strip_prefix(CHAT_PREFIX)?.split_once(' ')?;
    micros.parse().ok().map(Time::from_micros)
}

/// The prefix of chat lines of honest players.
const CHAT_PREFIX: &str = "honest ";
/// The prefix of the lines of a roll call.
const ROLL_CALL_PREFIX: &str = "present ";
/// The longest time that a join takes without an attack.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// The time in which all players learn of all ships.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// The longest wait for the last chat messages.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for the last bulk messages.
const BULK_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The intervals of chat and state updates of each player. The server accepts chat at this rate.
const CHAT_INTERVAL: Duration = Duration::from_millis(400);
const STATE_INTERVAL: Duration = Duration::from_millis(100);
