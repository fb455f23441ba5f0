//! Honest players who chat and fly, and measure what becomes of that.

use std::collections::HashMap;
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
    /// When states were said, by ship and game clock.
    sent_states: HashMap<(u32, u32), Time>,
    clocks: Vec<f32>,
    chat_count: u64,
}

/// What a group has measured in one go.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlayerMeasurement {
    /// Chat that should have been heard, one for each listener.
    pub(crate) chat_expected: u64,
    pub(crate) chat: DelaySamples,
    pub(crate) states_expected: u64,
    pub(crate) states: DelaySamples,
    /// Chat that no honest player has said.
    pub(crate) forged_chat: u64,
    /// How often one of them heard that somebody has left.
    pub(crate) departures: u64,
    /// Reliable messages of kinds that no honest player says.
    pub(crate) bulk: u64,
    /// Players who were there at the beginning and are not at the end, as they or the server see it.
    pub(crate) lost: u64,
}

impl PlayerMeasurement {
    /// Returns the share of chat that was not heard.
    pub(crate) fn chat_loss(&self) -> f64 {
        loss_share(self.chat_expected, self.chat.count())
    }

    pub(crate) fn state_loss(&self) -> f64 {
        loss_share(self.states_expected, self.states.count())
    }
}

fn loss_share(expected: u64, heard: usize) -> f64 {
    if expected == 0 { 0.0 } else { (1.0 - heard as f64 / expected as f64).max(0.0) }
}

impl PlayerGroup {
    /// Lets `count` players join, each from a network of its own.
    pub(crate) fn join(env: &Environment, process: &Process, count: u16) -> anyhow::Result<Self> {
        Self::join_from(env, process, count, LinkProfile::UNLIMITED)
    }

    /// The same over such links.
    pub(crate) fn join_from(
        env: &Environment,
        process: &Process,
        count: u16,
        link: LinkProfile,
    ) -> anyhow::Result<Self> {
        Self::join_at(env, (process.address(), process.password()), count, link)
    }

    /// The same at another place than the server's: a proxy, say.
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
                anyhow::bail!("an honest player cannot join, without any attack")
            };
            joined.create_ship()?;
            joined.send();
            group.clocks.push(1.0);
        }
        group.stay_idle(SETTLE_TIME);
        ensure!(
            group.players.iter().all(|player| player.end.is_none()),
            "an honest player is thrown out, without any attack"
        );
        Ok(group)
    }

    pub(crate) fn players(&self) -> &[AttackPlayer] {
        &self.players
    }

    /// Plays, and then waits until all that was said has been heard, or as long as anyone would.
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

    /// Stays without a word of its own.
    pub(crate) fn stay_idle(&mut self, time: Duration) {
        let end = self.env.clock.now() + time;
        while self.env.clock.now() < end {
            self.poll_until(end, &mut PlayerMeasurement::default());
        }
    }

    /// Flies on for a moment, and does not measure.
    pub(crate) fn send_state_and_wait(&mut self, time: Duration) {
        let turn = self.chat_count as usize;
        self.chat_count += 1;
        self.send_state(turn, &mut PlayerMeasurement::default());
        self.sent_states.clear();
        self.stay_idle(time);
    }

    /// Returns how many of its players are in the game, as they and the server see it.
    pub(crate) fn count_present(&self, process: &Process) -> anyhow::Result<u64> {
        let listed = process.players()?;
        let is_there = |player: &&AttackPlayer| {
            player.end.is_none()
                && listed.iter().any(|(name, id)| *name == player.name && *id == player.client.id().0)
        };
        Ok(self.players.iter().filter(is_there).count() as u64)
    }

    /// Takes the last player out of the group.
    pub(crate) fn take_last(&mut self) -> Option<AttackPlayer> {
        self.players.pop()
    }

    fn drain(&mut self, measured: &mut PlayerMeasurement) {
        let end = self.env.clock.now() + DRAIN_TIMEOUT;
        while self.env.clock.now() < end && (measured.chat.count() as u64) < measured.chat_expected {
            let look = self.env.clock.now() + POLL_INTERVAL;
            self.poll_until(look.min(end), measured);
        }
        self.sent_states.clear();
    }

    fn chat(&mut self, turn: usize, measured: &mut PlayerMeasurement) {
        let (count, now) = (self.players.len().max(1), self.env.clock.now());
        self.chat_count += 1;
        let text = format!("{CHAT_PREFIX}{} {}", self.chat_count, now.as_micros());
        let Some(player) = self.players.get_mut(turn % count) else { return };
        // What cannot be said is not heard, which is what counts: everyone else is waiting for it.
        let _ = player.client.chat(&text, now);
        player.send();
        // Its sender hears it, too.
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
                    Some(said) => measured.chat.add(now.since(said)),
                    None => measured.forged_chat += 1,
                },
                Event::Disconnected { .. } => measured.departures += 1,
                Event::Received { reliable: true } => {
                    measured.bulk += u64::from(Opcode::of(payload) == Some(bulk));
                }
                Event::Received { reliable: false } => {
                    if let Ok(Message::StateUpdate(update)) = Message::parse(payload)
                        && let Some(said) = self.sent_states.get(&(update.object.0, update.time.to_bits()))
                    {
                        measured.states.add(now.since(*said));
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

/// Returns when a line was said, which stands in it.
fn sent_at(text: &str) -> Option<Time> {
    let (_, micros) = text.strip_prefix(CHAT_PREFIX)?.split_once(' ')?;
    micros.parse().ok().map(Time::from_micros)
}

/// How lines of honest players begin.
const CHAT_PREFIX: &str = "honest ";
/// How long a join may take when there is no attack.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long everyone's ships take to be known.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// How long what was said last may take to be heard.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often each of them says something, as often as the server takes it, and tells where it is.
const CHAT_INTERVAL: Duration = Duration::from_millis(400);
const STATE_INTERVAL: Duration = Duration::from_millis(100);
