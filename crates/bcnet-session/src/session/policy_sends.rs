//! Sends the messages of a game policy within their limits ([S-92]).
//!
//! [S-92]: bcnet_transport::wire::protocol#s-92

use bcnet_transport::wire::PeerId;
use bcnet_transport::{DeliveryMode, Engine, SendError, Time};

use super::Session;
use super::game_messages::{chat_lines, relay_rate, unreliable_rate};
use crate::game::Message;
use crate::message;
use crate::policy::{Recipients, SendPriority, SendSettings, Sending};
use crate::rate_limit::Rate;
use crate::send_queue::{self, MessageSource, Outgoing, Priority};
use crate::uplink::uplink_cost;

impl<E: Engine> Session<E> {
    /// S-92: sends a message of the policy. It is dropped if there is no capacity; no player is booted for it.
    pub(super) fn send_for_policy(
        &mut self,
        to: Recipients,
        payload: &[u8],
        settings: SendSettings,
        changes_objects: bool,
        now: Time,
    ) {
        let source = settings.about.map_or(MessageSource::POLICY, |about| self.source_of(about));
        for peer in self.in_game.iter().filter(|peer| to.contains(*peer)) {
            let sent = if settings.sending == Sending::Reliable {
                let is_high =
                    settings.priority == SendPriority::High && self.take_high_priority(payload, now);
                let priority = match (changes_objects, is_high) {
                    (true, _) => Priority::BulkObject,
                    (false, true) => Priority::Chat,
                    (false, false) => Priority::Bulk,
                };
                self.deliver(peer, Outgoing { source, priority, payload, is_over_share: !is_high }, now)
                    .is_ok()
            } else {
                self.send_unreliable_for_policy(peer, payload, settings.sending, now)
            };
            let counter =
                if sent { &mut self.counters.policy_sent } else { &mut self.counters.policy_dropped };
            *counter += 1;
        }
    }

    fn take_high_priority(&mut self, payload: &[u8], now: Time) -> bool {
        let rate = relay_rate(&self.config);
        self.policy
            .as_mut()
            .is_some_and(|active| active.high_bucket.take(send_queue::cost(payload), rate, now))
    }

    fn send_unreliable_for_policy(
        &mut self,
        to: PeerId,
        payload: &[u8],
        sending: Sending,
        now: Time,
    ) -> bool {
        let rate = unreliable_rate(&self.config);
        if !self.fits_unreliable(payload) || !self.uplink.has_spare(now) {
            return false;
        }
        let Some(member) = self.member_mut(to) else { return false };
        if !member.policy_bucket.take(send_queue::cost(payload), rate, now) {
            return false;
        }
        self.uplink.charge(uplink_cost(payload), now);
        let sent: Result<(), SendError> = if sending == Sending::Latest {
            self.send_latest(to, payload, now)
        } else {
            self.endpoint.send(to, payload, DeliveryMode::Unreliable, now)
        };
        sent.is_ok()
    }

    /// S-41: sends chat of the server for the policy.
    pub(super) fn say_for_policy(&mut self, to: Recipients, text: &str, now: Time) {
        let settings = SendSettings { priority: SendPriority::High, ..SendSettings::default() };
        let lines = chat_lines(&self.config, text);
        for peer in self.in_game.iter().filter(|peer| to.contains(*peer)) {
            for line in &lines {
                let chat = message::chat(self.chat_sender(peer), line);
                self.send_message_for_policy(Recipients::One(peer), &chat, settings, now);
            }
        }
    }

    /// S-30: sends the score of a player to everyone for the policy.
    pub(super) fn announce_score(&mut self, player: PeerId, now: Time) {
        let Some((score, team)) = self.member(player).map(|member| (member.score, member.team)) else {
            return;
        };
        let settings =
            SendSettings { priority: SendPriority::High, about: Some(player), ..SendSettings::default() };
        if !self.rules.mission.teams {
            return self.send_message_for_policy(
                Recipients::All,
                &message::score(player.0, score),
                settings,
                now,
            );
        }
        // S-30: in team missions, the score of a player without a team is not sent.
        let Some(team) = team else { return };
        let own = message::team_player_score(player.0, score, team);
        self.send_message_for_policy(Recipients::All, &own, settings, now);
        let sum = message::team_score(team, self.team_score(team));
        self.send_message_for_policy(Recipients::All, &sum, settings, now);
    }

    fn send_message_for_policy(
        &mut self,
        to: Recipients,
        message: &Message<'_>,
        settings: SendSettings,
        now: Time,
    ) {
        let payload = self.encode(message);
        self.send_for_policy(to, &payload, settings, false, now);
        self.send_buffer = payload;
    }
}

impl Recipients {
    /// Returns whether a player in the game gets the message.
    pub(super) fn contains(self, peer: PeerId) -> bool {
        match self {
            Self::All => true,
            Self::AllExcept(except) => peer != except,
            Self::One(only) => peer == only,
        }
    }
}

/// The highest rate of rounds that a policy starts or ends.
pub(super) const ROUND_RATE: Rate = Rate::per_second(1, 4);
