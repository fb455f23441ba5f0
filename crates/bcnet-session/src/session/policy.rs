//! Runs the game policy: its callbacks, verdicts and actions ([S-90] to [S-92]).
//!
//! A callback only queues actions. They take effect when it has returned, so a policy never sees a session in the middle
//! of a change.
//!
//! [S-90]: bcnet_transport::wire::protocol#s-90
//! [S-92]: bcnet_transport::wire::protocol#s-92

use std::any::Any;
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{DeliveryMode, Engine, LeaveReason, Time};

use super::checks::{self, Effect};
use super::game_messages::{MAX_RELAY_LEN, relay_rate};
use super::policy_sends::ROUND_RATE;
use super::relay::Copies;
use super::{MAX_EVENTS, Session};
use crate::event::{EndReason, Event};
use crate::game::{Message, Opcode};
use crate::member::Member;
use crate::policy::{
    Action, Actions, ActivePolicy, CopyBuffer, CopyVerdict, GamePolicy, MAX_ROUNDS, PlayerMessage,
    PlayerView, PolicyHost, Verdict,
};
use crate::rate_limit::TokenBucket;
use crate::stats::Anomaly;

/// The rest of the work on a message that a policy has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) effect: Effect,
    /// True if the policy decides on each copy.
    pub(super) per_receiver: bool,
}

impl<E: Engine> Session<E> {
    /// Sets the policy of the game ([S-90]). It replaces an earlier policy, which ends without a further call.
    ///
    /// [S-90]: bcnet_transport::wire::protocol#s-90
    pub fn set_policy(&mut self, policy: Box<dyn GamePolicy>, now: Time) {
        self.policy = Some(Box::new(ActivePolicy {
            policy,
            actions: Actions::default(),
            spare: Actions::default(),
            wake_at: None,
            replacement: Vec::new(),
            high_bucket: TokenBucket::new(relay_rate(&self.config), now),
            round_bucket: TokenBucket::new(ROUND_RATE, now),
        }));
        self.sees_messages = true;
        self.call_policy(now, |policy, host| policy.on_start(host));
        self.process_events(now);
    }

    /// Removes the policy. The session then relays as without one.
    pub fn clear_policy(&mut self) {
        self.policy = None;
        self.sees_messages = self.config.game_events;
    }

    /// Returns the policy, if it has this type.
    #[must_use]
    pub fn policy<P: GamePolicy>(&self) -> Option<&P> {
        let policy: &dyn Any = &*self.policy.as_deref()?.policy;
        policy.downcast_ref()
    }

    /// Returns the policy, if it has this type, for example to take its results.
    pub fn policy_mut<P: GamePolicy>(&mut self) -> Option<&mut P> {
        let policy: &mut dyn Any = &mut *self.policy.as_deref_mut()?.policy;
        policy.downcast_mut()
    }

    /// Calls the policy, if there is one. During the call, the session has none: a panic ends the policy.
    fn call_policy<R>(
        &mut self,
        now: Time,
        call: impl FnOnce(&mut dyn GamePolicy, &mut PolicyHost<'_>) -> R,
    ) -> Option<R> {
        let mut active = self.policy.take()?;
        let ActivePolicy { policy, actions, wake_at, replacement, .. } = &mut *active;
        let mut host = PolicyHost {
            now,
            epoch: self.epoch,
            round: self.round.number,
            is_round_over: self.round.is_over(),
            members: &self.members,
            in_game: &self.in_game,
            actions,
            replacement,
            wake_at,
        };
        let result = call(&mut **policy, &mut host);
        let wake_at = active.wake_at;
        self.policy = Some(active);
        if let Some(wake_at) = wake_at {
            self.schedule_at(wake_at);
        }
        Some(result)
    }

    /// S-90: shows a message to the policy and reports it. Returns `None` if the policy drops it.
    ///
    /// The policy may replace `payload`.
    #[cold]
    #[inline(never)]
    pub(super) fn judge(
        &mut self,
        effect: Effect,
        (peer, slot): (PeerId, u8),
        payload: &mut Vec<u8>,
        mode: DeliveryMode,
        now: Time,
    ) -> Result<Option<Judged>, Anomaly> {
        self.wake_policy(now);
        self.run_policy_actions(now);
        if self.config.game_events {
            self.report_game_message(peer, payload, mode);
        }
        let Some(active) = self.policy.as_mut() else {
            return Ok(Some(Judged { effect, per_receiver: false }));
        };
        active.replacement.clear();
        let Ok((message, _)) = Message::parse_prefix(payload) else { return Err(Anomaly::TooShort) };
        let reliable = mode == DeliveryMode::Reliable;
        let verdict = self.call_policy(now, |policy, host| {
            let Some(sender) = host.player(peer) else { return Verdict::Drop };
            policy.on_message(&PlayerMessage { sender, message: &message, payload, reliable }, host)
        });
        match verdict.unwrap_or(Verdict::Pass) {
            Verdict::Pass => Ok(Some(Judged { effect, per_receiver: false })),
            Verdict::PerReceiver => Ok(Some(Judged { effect, per_receiver: true })),
            Verdict::Drop => {
                self.counters.policy_vetoed += 1;
                Ok(None)
            }
            Verdict::Replace(_) => {
                if let Some(active) = self.policy.as_mut() {
                    std::mem::swap(payload, &mut active.replacement);
                }
                let Some(effect) = self.check_replacement((peer, slot), payload, mode) else {
                    self.counters.policy_rejected += 1;
                    return Ok(None);
                };
                self.clean(effect, peer, payload);
                Ok(Some(Judged { effect, per_receiver: false }))
            }
        }
    }

    /// Checks a message that a policy has written in place of a player's. Returns its effect.
    fn check_replacement(&self, from: (PeerId, u8), payload: &[u8], mode: DeliveryMode) -> Option<Effect> {
        let opcode = Opcode::of(payload).filter(|_| payload.len() <= MAX_RELAY_LEN)?;
        match checks::check((opcode, opcode.rule()), payload, from, &self.config).ok()? {
            Effect::StateUpdate if !self.fits_unreliable(payload) => None,
            Effect::Mod if mode == DeliveryMode::Unreliable && self.fits_unreliable(payload) => {
                Some(Effect::UnreliableMod)
            }
            effect => Some(effect),
        }
    }

    fn report_game_message(&mut self, peer: PeerId, payload: &[u8], mode: DeliveryMode) {
        // Half of the queue stays free for other events.
        if self.events.len() >= MAX_EVENTS / 2 {
            self.counters.events_dropped += 1;
        } else if Message::parse_prefix(payload).is_ok() {
            let reliable = mode == DeliveryMode::Reliable;
            self.emit(Event::Game { peer, payload: payload.into(), reliable });
        }
    }

    /// S-91: relays the copies of a message as the policy decides for each receiver.
    #[cold]
    #[inline(never)]
    pub(super) fn relay_per_receiver(
        &mut self,
        (from, slot): (PeerId, u8),
        payload: &[u8],
        copies: Copies,
        reliable: bool,
        now: Time,
    ) {
        let Ok((message, _)) = Message::parse_prefix(payload) else { return };
        let Some(mut active) = self.policy.take() else { return };
        let mut buffer = std::mem::take(&mut active.replacement);
        for to in self.in_game.iter() {
            if !self.gets_copy(copies, from, to) {
                continue;
            }
            let (Some(sender), Some(receiver)) = (self.member(from), self.member(to)) else { continue };
            let original = PlayerMessage { sender: PlayerView(sender), message: &message, payload, reliable };
            buffer.clear();
            match active.policy.on_copy(&original, PlayerView(receiver), &mut CopyBuffer(&mut buffer)) {
                CopyVerdict::Pass => self.relay_copy((from, slot), to, payload, copies, now),
                CopyVerdict::Drop => self.counters.policy_vetoed += 1,
                CopyVerdict::Replace(_) if self.is_valid_copy((from, slot), payload, &buffer) => {
                    self.relay_copy((from, slot), to, &buffer, copies, now);
                }
                CopyVerdict::Replace(_) => self.counters.policy_rejected += 1,
            }
        }
        active.replacement = buffer;
        self.policy = Some(active);
    }

    /// Returns whether a copy for one receiver has the opcode and the effect of the original.
    fn is_valid_copy(&self, from: (PeerId, u8), original: &[u8], copy: &[u8]) -> bool {
        let effect = |payload: &[u8]| {
            let opcode = Opcode::of(payload)?;
            checks::check((opcode, opcode.rule()), payload, from, &self.config).ok()
        };
        copy.len() <= MAX_RELAY_LEN
            && Opcode::of(copy) == Opcode::of(original)
            && effect(copy).is_some_and(|effect_of_copy| Some(effect_of_copy) == effect(original))
    }

    /// Informs the policy that a player has entered the game.
    pub(super) fn tell_policy_of_join(&mut self, peer: PeerId, now: Time) {
        self.call_policy(now, |policy, host| {
            if let Some(player) = host.player(peer) {
                policy.on_join(player, host);
            }
        });
    }

    /// Informs the policy that a player has left the game.
    pub(super) fn tell_policy_of_leave(&mut self, member: &Member, reason: LeaveReason, now: Time) {
        self.call_policy(now, |policy, host| policy.on_leave(PlayerView(member), reason, host));
    }

    pub(super) fn tell_policy_of_round_start(&mut self, now: Time) {
        self.call_policy(now, |policy, host| policy.on_round_start(host.round(), host));
    }

    pub(super) fn tell_policy_of_round_end(&mut self, reason: EndReason, now: Time) {
        self.call_policy(now, |policy, host| policy.on_round_end(reason, host));
    }

    /// Returns the time of the policy's next wake-up.
    pub(super) fn policy_wake_at(&self) -> Option<Time> {
        self.policy.as_ref()?.wake_at
    }

    /// S-90: runs the wake-ups that are due, up to a limit. The rest runs a millisecond later.
    pub(super) fn wake_policy(&mut self, now: Time) {
        for _ in 0..MAX_WAKE_UPS {
            let Some(active) = self.policy.as_mut() else { return };
            let Some(due) = active.wake_at.take_if(|due| *due <= now) else { return };
            self.call_policy(now, |policy, host| {
                policy.on_wake(due, host);
                if host.wake_at.is_some_and(|next| next <= due) {
                    *host.wake_at = Some(now + MIN_WAKE_INTERVAL);
                }
            });
            self.run_policy_actions(now);
        }
        if let Some(wake_at) = self.policy.as_mut().and_then(|active| active.wake_at.as_mut()) {
            *wake_at = (*wake_at).max(now + MIN_WAKE_INTERVAL);
        }
    }

    /// Carries out the pending actions of the policy, and handles the events that they cause.
    #[cold]
    #[inline(never)]
    pub(super) fn process_policy_actions(&mut self, now: Time) {
        self.run_policy_actions(now);
        self.drain_transport_events(now);
    }

    /// Carries out the actions that the policy has queued, and those of the callbacks that they cause.
    #[cold]
    #[inline(never)]
    pub(super) fn run_policy_actions(&mut self, now: Time) {
        for round in 0..=MAX_ROUNDS {
            let Some(active) = self.policy.as_mut() else { return };
            self.counters.policy_dropped += std::mem::take(&mut active.actions.dropped);
            if active.actions.list.is_empty() {
                return;
            }
            if round == MAX_ROUNDS {
                self.counters.policy_dropped += active.actions.list.len() as u64;
                active.actions.clear();
                return;
            }
            let spare = std::mem::take(&mut active.spare);
            let mut due = std::mem::replace(&mut active.actions, spare);
            for action in &due.list {
                self.run_policy_action(action, &due, now);
            }
            due.clear();
            if let Some(active) = self.policy.as_mut() {
                active.spare = due;
            }
        }
    }

    fn run_policy_action(&mut self, action: &Action, due: &Actions, now: Time) {
        let bytes = |range: &std::ops::Range<usize>| due.bytes.get(range.clone()).unwrap_or_default();
        let text = |range| std::str::from_utf8(bytes(range)).unwrap_or_default();
        match action {
            Action::Send { to, payload, settings, changes_objects } => {
                self.send_for_policy(*to, bytes(payload), *settings, *changes_objects, now);
            }
            Action::Say { to, text: range } => {
                self.say_for_policy(*to, text(range), now);
            }
            Action::SetScore { player, score, is_announced } => {
                let Some(member) = self.member_mut(*player) else { return };
                member.score = *score;
                if *is_announced {
                    self.announce_score(*player, now);
                }
            }
            Action::MarkShipDestroyed(player) => {
                if let Some(member) = self.member_mut(*player) {
                    member.ship.mark_destroyed();
                }
            }
            Action::Kick { player, reason } => {
                self.start_kick(*player, text(reason), now);
            }
            Action::EndRound(_) | Action::StartRound if !self.take_round_limit(now) => {
                self.counters.policy_dropped += 1;
            }
            Action::EndRound(code) => self.end_round(EndReason::Decided, *code, now),
            Action::StartRound => self.next_round(now),
        }
    }

    fn take_round_limit(&mut self, now: Time) -> bool {
        self.policy.as_mut().is_some_and(|active| active.round_bucket.take(1, ROUND_RATE, now))
    }
}

/// The most wake-ups that run at once, when the caller is late.
const MAX_WAKE_UPS: usize = 64;
/// The shortest time to a wake-up that the policy requests for the past.
const MIN_WAKE_INTERVAL: Duration = Duration::from_millis(1);
