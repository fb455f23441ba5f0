//! Handling of the messages that players in the game send ([S-32] to [S-42]).
//!
//! Checks each message against the rule of its opcode ([S-34]), then relays, answers or drops it. Messages of clients
//! that have not entered are handled in the join module.
//!
//! [S-32]: bcnet_transport::wire::protocol#s-32
//! [S-34]: bcnet_transport::wire::protocol#s-34
//! [S-42]: bcnet_transport::wire::protocol#s-42

use bcnet_transport::wire::{Delivery, PeerId};
use bcnet_transport::{DeliveryMode, Engine, Time};

use super::Session;
use super::checks::{self, Effect};
use super::policy::Judged;
use super::relay::Copies;
use crate::config::{Config, SayAs};
use crate::event::Event;
use crate::game::{self, ObjectId, Opcode, Rule, Species};
use crate::member::{Member, SHIP_RATE};
use crate::message::{self, MAX_TEXT_LEN};
use crate::rate_limit::Rate;
use crate::send_queue::{self, MessageSource, Outgoing, Priority};
use crate::stats::Anomaly;
use crate::text::{self, to_latin1};

impl<E: Engine> Session<E> {
    /// Handles a message of a player in the game. Modifies `payload` if the copies must differ from the original.
    pub(super) fn on_game_message(
        &mut self,
        peer: PeerId,
        payload: &mut Vec<u8>,
        mode: DeliveryMode,
        now: Time,
    ) -> Result<(), Anomaly> {
        self.counters.messages_in += 1;
        let opcode = Opcode::of(payload).ok_or(Anomaly::Empty)?;
        let rate = relay_rate(&self.config);
        let sees_messages = self.sees_messages;
        let Some(member) = self.member_mut(peer) else { return Ok(()) };
        let slot = member.slot.unwrap_or(u8::MAX);
        let rule = opcode.rule();
        if rule == Rule::Absorb && !sees_messages {
            return Ok(());
        }
        if !member.relay_bucket.take(send_queue::cost(payload), rate, now) {
            return Err(Anomaly::Flood);
        }
        if payload.len() > MAX_RELAY_LEN {
            return Err(Anomaly::TooLarge);
        }
        let effect = checks::check((opcode, rule), payload, (peer, slot), &self.config)?;
        let Some(effect) = self.take_limits(effect, peer, payload, mode, now)? else { return Ok(()) };
        self.clean(effect, peer, payload);
        let mut judged = Judged { effect, per_receiver: false };
        if sees_messages {
            match self.judge(effect, (peer, slot), payload, mode, now)? {
                Some(verdict) => judged = verdict,
                None => {
                    self.run_policy_actions(now);
                    return Ok(());
                }
            }
        }
        if let Some(copies) = self.apply(judged.effect, peer, payload, now) {
            if judged.per_receiver {
                self.relay_per_receiver((peer, slot), payload, copies, mode == DeliveryMode::Reliable, now);
            } else {
                self.relay_copies((peer, slot), payload, copies, now);
            }
        }
        if sees_messages {
            self.run_policy_actions(now);
        }
        Ok(())
    }

    /// Takes the message from the limits of its kind. Returns its final effect, or `None` if it has none.
    #[inline(always)]
    fn take_limits(
        &mut self,
        effect: Effect,
        peer: PeerId,
        payload: &[u8],
        mode: DeliveryMode,
        now: Time,
    ) -> Result<Option<Effect>, Anomaly> {
        match effect {
            Effect::StateUpdate if !self.allow_unreliable(peer, payload, now) => Err(Anomaly::Flood),
            Effect::Create(Some(_)) => {
                let Some(member) = self.member_mut(peer) else { return Ok(None) };
                let is_allowed = member.ship_bucket.take(1, SHIP_RATE, now);
                if is_allowed { Ok(Some(effect)) } else { Err(Anomaly::Flood) }
            }
            // S-33: an unreliable message of a mod stays unreliable.
            Effect::Mod if mode == DeliveryMode::Unreliable && self.allow_unreliable(peer, payload, now) => {
                Ok(Some(Effect::UnreliableMod))
            }
            Effect::Chat { .. } => {
                self.take_chat_limit(peer, now).map(|is_allowed| is_allowed.then_some(effect))
            }
            _ => Ok(Some(effect)),
        }
    }

    /// Cleans a message for other players (S-42, S-37).
    ///
    /// That concerns texts, the sender of chat, and the hash of a state update.
    #[inline(always)]
    pub(super) fn clean(&mut self, effect: Effect, peer: PeerId, payload: &mut Vec<u8>) {
        match effect {
            Effect::Text | Effect::Create(_) => self.clean_texts(peer, payload),
            Effect::StateUpdate => game::strip_hash(payload),
            Effect::Chat { .. } if text::replace_unprintable(game::set_chat_sender(peer.0, payload)) => {
                self.count_anomaly(peer, Anomaly::ControlCharacters);
            }
            _ => {}
        }
    }

    /// Applies a message to the state of the session. Returns the copies to relay, if any.
    #[inline(always)]
    fn apply(&mut self, effect: Effect, peer: PeerId, payload: &[u8], now: Time) -> Option<Copies> {
        let priority = match effect {
            Effect::Relay | Effect::Text | Effect::Mod => Priority::Bulk,
            Effect::Shot => {
                if self.config.credit_last_shot {
                    self.record_shot(peer, payload, now);
                }
                Priority::Bulk
            }
            Effect::Explosion => Priority::BulkObject,
            Effect::StateUpdate => return Some(Copies::StateUpdate),
            Effect::UnreliableMod => return Some(Copies::Unreliable),
            Effect::Create(ship) => {
                if let Some((object, species)) = ship {
                    self.on_ship_created(peer, (object, species), payload, now);
                }
                Priority::BulkObject
            }
            Effect::Team(team) => {
                if let Some(member) = self.member_mut(peer) {
                    member.team = Some(team);
                }
                Priority::Bulk
            }
            Effect::RequestObject(object) => {
                self.send_object(peer, object, now);
                return None;
            }
            Effect::Chat { team } => {
                self.report_chat(peer, payload, team);
                return Some(Copies::Chat { team });
            }
            Effect::SelfDestruct => {
                self.self_destruct(peer, now);
                return None;
            }
            Effect::Absorb => return None,
        };
        Some(Copies::Reliable(priority))
    }

    /// Returns whether an unreliable message may be relayed unreliably.
    ///
    /// It must fit into one message (T-67) and within the sender's rate: unreliable copies give no feedback about
    /// congestion.
    fn allow_unreliable(&mut self, peer: PeerId, payload: &[u8], now: Time) -> bool {
        let rate = unreliable_rate(&self.config);
        self.fits_unreliable(payload)
            && self
                .member_mut(peer)
                .is_some_and(|member| member.unreliable_bucket.take(send_queue::cost(payload), rate, now))
    }

    /// Returns whether a payload fits into one unreliable message (T-67).
    pub(super) fn fits_unreliable(&self, payload: &[u8]) -> bool {
        Delivery::Unreliable.header_len() + payload.len() <= self.config.transport.message_limit
    }

    /// S-36: stores a new ship. An old ship that is still alive is removed first, and may count as a kill (S-45).
    fn on_ship_created(
        &mut self,
        peer: PeerId,
        (object, species): (ObjectId, Species),
        payload: &[u8],
        now: Time,
    ) {
        let Some(member) = self.member_mut(peer) else { return };
        let ship = &mut member.ship;
        let old_ship = (ship.alive && ship.object != object).then_some(ship.object);
        let shot = old_ship.and_then(|_| ship.last_shot.take());
        (ship.object, ship.species, ship.alive) = (object, species, true);
        ship.create_payload.clear();
        ship.create_payload.extend_from_slice(payload);
        if let Some(old_ship) = old_ship {
            self.send_all(self.source_of(peer), Some(peer), &message::destroy_object(old_ship), now);
        }
        if let Some(shot) = shot {
            self.credit_kill(shot, peer, now);
        }
    }

    /// S-35: destroys a player's ship at its request. The client itself only sends the request.
    fn self_destruct(&mut self, peer: PeerId, now: Time) {
        let Some(member) = self.member_mut(peer).filter(|member| member.ship.alive) else { return };
        member.ship.mark_destroyed();
        member.score.deaths = member.score.deaths.saturating_add(1);
        let (ship, deaths) = (member.ship.object, member.score.deaths);
        let source = self.source_of(peer);
        self.send_all(source, None, &message::exploding(ship), now);
        self.send_all(source, None, &message::ship_lost(peer.0, deaths), now);
    }

    /// S-38: sends the message that created an object to a player that requests it.
    fn send_object(&mut self, peer: PeerId, object: ObjectId, now: Time) {
        let is_owner = |member: &&Member| member.ship.alive && member.ship.object == object;
        let Some(owner) = self.members.iter().flatten().map(Box::as_ref).find(is_owner) else { return };
        let (source, created) = (MessageSource::from_slot(owner.slot), owner.ship.create_payload.clone());
        let outgoing =
            Outgoing { source, priority: Priority::BulkObject, payload: &created, is_over_share: false };
        self.relay_object(peer, outgoing, now);
    }

    /// S-42, S-44: returns whether a line of chat may be relayed. If not, the player gets a notice.
    fn take_chat_limit(&mut self, peer: PeerId, now: Time) -> Result<bool, Anomaly> {
        let rate = chat_rate(&self.config);
        let Some(member) = self.member_mut(peer) else { return Ok(false) };
        if !member.chat_bucket.take(1, rate, now) {
            self.explain_chat_drop(peer, CHAT_TOO_FAST_TEXT, now);
            return Err(Anomaly::Flood);
        }
        if member.is_muted {
            self.explain_chat_drop(peer, MUTED_TEXT, now);
            return Ok(false);
        }
        Ok(true)
    }

    fn report_chat(&mut self, peer: PeerId, payload: &[u8], team: bool) {
        let Some(member) = self.member(peer) else { return };
        let (name, text) = (member.display_name(), text::from_latin1(game::chat_text(payload)));
        self.emit(Event::Chat { peer, name, text, team });
    }

    /// S-42: cleans the texts in a message that is relayed, for example the player's name in a ship.
    fn clean_texts(&mut self, peer: PeerId, payload: &mut [u8]) {
        let mut was_cleaned = false;
        for range in game::text_ranges(payload) {
            was_cleaned |= payload.get_mut(range).is_some_and(text::replace_unprintable);
        }
        if was_cleaned {
            self.count_anomaly(peer, Anomaly::ControlCharacters);
        }
    }

    /// Sends chat of the server to everyone in the game, one message per line ([S-41]).
    ///
    /// [S-41]: bcnet_transport::wire::protocol#s-41
    pub fn say(&mut self, text: &str, now: Time) {
        for peer in self.in_game.iter() {
            self.say_to(peer, text, now);
        }
        self.process_events(now);
    }

    /// Sends chat of the server to one player. Returns `false` if the player is not in the game.
    pub fn say_to(&mut self, peer: PeerId, text: &str, now: Time) -> bool {
        if !self.in_game.contains(peer) {
            return false;
        }
        let (sender, lines) = (self.chat_sender(peer), chat_lines(&self.config, text));
        for line in lines {
            self.send(peer, &message::chat(sender, &line), now);
        }
        true
    }

    /// S-41: returns the peer id under which a player gets chat of the server.
    pub(super) fn chat_sender(&self, peer: PeerId) -> u8 {
        match self.config.say_as {
            SayAs::Recipient => peer.0,
            SayAs::Peer(id) => id,
        }
    }
}

/// S-41: returns the lines of chat of the server that a text becomes, with their prefix.
pub(super) fn chat_lines(config: &Config, text: &str) -> Vec<Vec<u8>> {
    let prefix: Vec<u8> = to_latin1(&config.say_prefix).collect();
    let max_len = MAX_TEXT_LEN.saturating_sub(prefix.len()).max(1);
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let line: Vec<u8> = to_latin1(line).collect();
        let with_prefix = |chunk: &[u8]| prefix.iter().chain(chunk).copied().take(MAX_TEXT_LEN).collect();
        lines.extend(line.chunks(max_len).map(with_prefix));
    }
    lines
}

/// Returns the rate at which a player's messages are relayed, in bytes.
pub(crate) const fn relay_rate(config: &Config) -> Rate {
    Rate::per_second(config.relay_rate, config.relay_rate.saturating_mul(4))
}

/// Returns the rate at which a player's lines of chat are relayed.
pub(crate) const fn chat_rate(config: &Config) -> Rate {
    Rate::per_second(config.chat_rate, CHAT_BURST)
}

/// Returns the rate of unreliable relaying in bytes: an eighth of the relay rate with a small burst.
///
/// Unreliable copies give no feedback about the receivers' links.
pub(crate) fn unreliable_rate(config: &Config) -> Rate {
    let rate = (config.relay_rate / 8).max(MIN_UNRELIABLE_RATE);
    Rate::per_second(rate, rate / 4)
}

/// Notices for a player whose chat is dropped in part or completely (S-42, S-44).
const CHAT_TOO_FAST_TEXT: &str = "You write too fast: some lines were not sent to the others.";
const MUTED_TEXT: &str = "You are muted: other players do not see your chat.";
/// The most lines of chat that a player may send at once.
const CHAT_BURST: u32 = 10;
/// Enough for sixty state updates a second.
const MIN_UNRELIABLE_RATE: u32 = 8 << 10;

/// The largest message that is relayed. Stock messages have less than 1,100 bytes.
///
/// A player receives no other reliable message until a large one is complete.
pub(super) const MAX_RELAY_LEN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::{Opcode, Rule};

    /// S-02
    #[test]
    fn object_id_maps_to_the_slot_of_its_range() {
        let owners = [0, 0x3FFF_FFFE, 0x3FFF_FFFF, 0x4000_0020, 0x4003_FFFE, 0x4003_FFFF, 0x403B_FFFF]
            .map(|id| ObjectId(id).owner());
        assert_eq!(owners, [None, None, Some(0), Some(0), Some(0), Some(1), Some(15)]);
        assert_eq!([0x403F_FFFF, u32::MAX].map(|id| ObjectId(id).owner()), [None, None]);
    }

    /// S-34
    #[test]
    fn every_opcode_has_the_rule_of_the_table() {
        let rule = |opcode| Opcode(opcode).rule();
        let rules = (0..=u8::MAX).map(rule);
        let count = |matches: fn(Rule) -> bool| rules.clone().filter(|rule| matches(*rule)).count();
        assert_eq!(count(|rule| rule == Rule::Unknown), 7 + 5 + 190);
        assert_eq!(count(|rule| matches!(rule, Rule::Relay(_))), 7 + 5 + 1 + 3);
        assert_eq!(count(|rule| rule == Rule::Absorb), 5);
        for opcode in [0x00, 0x01, 0x04, 0x05, 0x14, 0x16, 0x17, 0x18, 0x20, 0x22, 0x23, 0x24, 0x25, 0x26] {
            assert_eq!(rule(opcode), Rule::HostOnly, "{opcode:02X}");
        }
        for opcode in [0x28, 0x29, 0x2B, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3F, 0x40] {
            assert_eq!(rule(opcode), Rule::HostOnly, "{opcode:02X}");
        }
    }
}
