//! What players in the game say (S-32 to S-40).

use bcnet_transport::wire::{Delivery, PeerId};
use bcnet_transport::{Engine, Quality, Time};

use super::Session;
use crate::config::{Config, SayAs};
use crate::event::Event;
use crate::game::field::Cut;
use crate::game::{self, Check, Creation, EventClass, ObjectClass, ObjectId, Opcode, Rule};
use crate::limit::Rate;
use crate::line::{self, Rank, Said, Source};
use crate::member::{Member, SHIP_RATE};
use crate::message::{self, MAX_TEXT};
use crate::stats::Anomaly;
use crate::text::{self, latin1};

impl<E: Engine> Session<E> {
    /// A player in the game says something, which came in this quality. `payload` is changed where the copies differ.
    pub(super) fn play(
        &mut self,
        peer: PeerId,
        payload: &mut Vec<u8>,
        quality: Quality,
        now: Time,
    ) -> Result<(), Anomaly> {
        self.counters.messages_in += 1;
        let opcode = Opcode::of(payload).ok_or(Anomaly::Empty)?;
        let rate = relay_rate(&self.config);
        let Some(member) = self.member_mut(peer) else { return Ok(()) };
        let slot = member.slot.unwrap_or(u8::MAX);
        if opcode.rule() == Rule::Absorb {
            return Ok(());
        }
        if !member.relay.take(line::cost(payload), rate, now) {
            return Err(Anomaly::Flood);
        }
        if payload.len() > MAX_RELAYED {
            return Err(Anomaly::TooLarge);
        }
        let Some(rank) = self.apply(opcode, (peer, slot), payload, quality, now)? else { return Ok(()) };
        let said = Said { source: Source::of(Some(slot)), rank, payload };
        self.relay(peer, said, |_, to| to != peer, now);
        Ok(())
    }

    /// Does what the rule for a message asks for. Returns the rank of the copies that all others get, unless that was all.
    fn apply(
        &mut self,
        opcode: Opcode,
        (peer, slot): (PeerId, u8),
        payload: &mut Vec<u8>,
        quality: Quality,
        now: Time,
    ) -> Result<Option<Rank>, Anomaly> {
        let rule = opcode.rule();
        let rank = match rule {
            Rule::Relay(Check::Event) => match check_event(payload, slot, self.config.allow_mods)? {
                EventClass::EXPLODING => Rank::BulkObject,
                EventClass::WARP => {
                    self.clean_texts(peer, payload);
                    Rank::Bulk
                }
                _ => Rank::Bulk,
            },
            Rule::Relay(Check::Object) => {
                check_own(game::first_object(payload)?, slot)?;
                match opcode {
                    Opcode::ENTER_SET => self.clean_texts(peer, payload),
                    _ if self.config.credit_last_shot => self.note_shot(peer, payload, now),
                    _ => {}
                }
                Rank::Bulk
            }
            Rule::StateUpdate => return self.update((peer, slot), payload, now).map(|()| None),
            Rule::Create => {
                self.clean_texts(peer, payload);
                self.create(peer, payload, now)?;
                Rank::BulkObject
            }
            Rule::Team => {
                self.join_team(peer, payload)?;
                Rank::Bulk
            }
            Rule::Unknown if !self.config.forward_unknown => return Err(Anomaly::Unknown),
            // A mod has its reason for what it does not send reliably.
            Rule::Unknown if quality == Quality::Unreliable && self.may_be_lost(peer, payload, now) => {
                self.relay_loose(peer, payload, now);
                return Ok(None);
            }
            Rule::Unknown => Rank::Bulk,
            Rule::HostOnly => return Err(Anomaly::HostOnly),
            Rule::RequestObject => return self.send_object(peer, payload, now).map(|()| None),
            Rule::Chat | Rule::TeamChat => {
                return self.chat(peer, payload, rule == Rule::TeamChat, now).map(|()| None);
            }
            Rule::SelfDestruct => {
                self.self_destruct(peer, now);
                return Ok(None);
            }
            Rule::Absorb => return Ok(None),
        };
        Ok(Some(rank))
    }

    /// S-37: a player tells where its ship is. The hash is taken out, which only a host reads.
    fn update(
        &mut self,
        (peer, slot): (PeerId, u8),
        payload: &mut Vec<u8>,
        now: Time,
    ) -> Result<(), Anomaly> {
        check_own(game::state_head(payload)?.object, slot)?;
        game::strip_hash(payload);
        if !self.may_be_lost(peer, payload, now) {
            return Err(Anomaly::Flood);
        }
        self.relay_update(peer, payload, now);
        Ok(())
    }

    /// Returns whether what came unreliably may be passed on so: what is too large for one message may not (T-67), nor what
    /// is too much, for nothing would tell when it is more than a line takes.
    fn may_be_lost(&mut self, peer: PeerId, payload: &[u8], now: Time) -> bool {
        let rate = loose_rate(&self.config);
        let len = Delivery::Unreliable.header_len() + payload.len();
        let fits = len <= self.config.transport.message_limit;
        fits && self.member_mut(peer).is_some_and(|member| member.loose.take(line::cost(payload), rate, now))
    }

    /// S-36: a new ship. One that was never declared dead is taken away first, and may count as destroyed (S-45).
    fn create(&mut self, peer: PeerId, payload: &[u8], now: Time) -> Result<(), Anomaly> {
        let mods = self.config.allow_mods;
        let Some(member) = self.member_mut(peer) else { return Ok(()) };
        let created = read_creation(payload, member.slot.unwrap_or(u8::MAX), mods)?;
        if created.class != ObjectClass::SHIP {
            return Ok(());
        }
        if !member.ships.take(1, SHIP_RATE, now) {
            return Err(Anomaly::Flood);
        }
        let ship = &mut member.ship;
        let ghost = (ship.alive && ship.object != created.object).then_some(ship.object);
        let shot = ghost.and_then(|_| ship.shot.take());
        (ship.object, ship.species, ship.alive) = (created.object, created.species, true);
        ship.created.clear();
        ship.created.extend_from_slice(payload);
        if let Some(ghost) = ghost {
            self.send_all(self.source(peer), Some(peer), &message::destroy(ghost), now);
        }
        if let Some(shot) = shot {
            self.credit(shot, peer, now);
        }
        Ok(())
    }

    /// S-35: the client does nothing itself; everyone is told that the ship explodes.
    fn self_destruct(&mut self, peer: PeerId, now: Time) {
        let Some(member) = self.member_mut(peer).filter(|member| member.ship.alive) else { return };
        member.ship.forget();
        member.score.deaths = member.score.deaths.saturating_add(1);
        let (ship, deaths) = (member.ship.object, member.score.deaths);
        let source = self.source(peer);
        self.send_all(source, None, &message::exploding(ship), now);
        self.send_all(source, None, &message::died(peer.0, deaths), now);
    }

    /// S-38: a player lacks an object.
    fn send_object(&mut self, peer: PeerId, payload: &[u8], now: Time) -> Result<(), Anomaly> {
        let object = game::first_object(payload)?;
        let has = |member: &&Member| member.ship.alive && member.ship.object == object;
        let Some(owner) = self.members.iter().flatten().map(Box::as_ref).find(has) else { return Ok(()) };
        let (source, created) = (Source::of(owner.slot), owner.ship.created.clone());
        let said = Said { source, rank: Rank::BulkObject, payload: &created };
        self.deliver_from(peer, peer, said, now);
        Ok(())
    }

    /// S-40: chat goes to everyone, its sender too, under the sender's true id.
    fn chat(&mut self, peer: PeerId, payload: &mut [u8], team: bool, now: Time) -> Result<(), Anomaly> {
        let (claimed, len) = game::chat_len(payload)?;
        if claimed != len || len > MAX_CHAT {
            return Err(Anomaly::BadChat);
        }
        let rate = chat_rate(&self.config);
        let Some(member) = self.member_mut(peer) else { return Ok(()) };
        if !member.chat.take(1, rate, now) {
            self.explain(peer, TOO_FAST, now);
            return Err(Anomaly::Flood);
        }
        if member.is_muted {
            self.explain(peer, MUTED, now);
            return Ok(());
        }
        let (name, own_team, source) = (member.shown_name(), member.team, Source::of(member.slot));
        let said = game::chat_from(peer.0, payload);
        let is_odd = text::clean(said);
        let text = text::from_latin1(said);
        if is_odd {
            self.odd(peer, Anomaly::ControlCharacters);
        }
        let is_meant = |session: &Self, to| {
            !team || to == peer || session.member(to).is_some_and(|member| member.team == own_team)
        };
        self.relay(peer, Said { source, rank: Rank::Word, payload }, is_meant, now);
        self.tell(Event::Chat { peer, name, text, team });
        Ok(())
    }

    /// S-42: cleans the texts in a message that is passed on: of ships the player's name among them.
    fn clean_texts(&mut self, peer: PeerId, payload: &mut [u8]) {
        let mut is_odd = false;
        for place in game::texts(payload) {
            is_odd |= payload.get_mut(place).is_some_and(text::clean);
        }
        if is_odd {
            self.odd(peer, Anomaly::ControlCharacters);
        }
    }

    /// Says something to everyone in the game, line by line (S-41).
    pub fn say(&mut self, text: &str, now: Time) {
        for peer in self.in_game.iter() {
            self.say_to(peer, text, now);
        }
        self.pump(now);
    }

    /// Says something to one player. `false` if it is not in the game.
    pub fn say_to(&mut self, peer: PeerId, text: &str, now: Time) -> bool {
        if !self.in_game.contains(peer) {
            return false;
        }
        let sender = match self.config.say_as {
            SayAs::Recipient => peer.0,
            SayAs::Peer(id) => id,
        };
        let prefix: Vec<u8> = latin1(&self.config.say_prefix).collect();
        let room = MAX_TEXT.saturating_sub(prefix.len()).max(1);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let line: Vec<u8> = latin1(line).collect();
            for part in line.chunks(room) {
                let said: Vec<u8> = prefix.iter().chain(part).copied().take(MAX_TEXT).collect();
                self.send(peer, &message::chat(sender, &said), now);
            }
        }
        true
    }

    /// S-39: a player chooses its team.
    fn join_team(&mut self, peer: PeerId, payload: &[u8]) -> Result<(), Anomaly> {
        let chosen = game::team(payload)?;
        if chosen.peer != i32::from(peer.0) {
            return Err(Anomaly::NotOwner);
        }
        if let Some(member) = self.member_mut(peer) {
            member.team = Some(chosen.team);
        }
        Ok(())
    }
}

/// S-32: an event happens to one of the sender's things; if it happens to nothing, one of them causes it. Returns how it is
/// built.
fn check_event(payload: &[u8], slot: u8, mods: bool) -> Result<EventClass, Anomaly> {
    let head = game::event_head(payload)?;
    if !mods && !head.class.is_from_clients() {
        return Err(Anomaly::BadEvent);
    }
    let whose = head.subject();
    if whose != ObjectId::NONE {
        check_own(whose, slot)?;
    }
    Ok(head.class)
}

/// S-32: what a message is about must be the sender's.
fn check_own(object: ObjectId, slot: u8) -> Result<(), Anomaly> {
    if object.owner() == Some(slot) { Ok(()) } else { Err(Anomaly::NotOwner) }
}

/// S-32: reads a message that creates an object, and refuses what would crash stock clients.
fn read_creation(payload: &[u8], slot: u8, mods: bool) -> Result<Creation<'_>, Anomaly> {
    if payload.len() > MAX_CREATE {
        return Err(Anomaly::TooLarge);
    }
    let created = Creation::read(payload)?;
    let is_known = mods || created.species.is_stock();
    if !matches!(created.class, ObjectClass::SHIP | ObjectClass::TORPEDO) || !is_known {
        return Err(Anomaly::BadObject);
    }
    if created.slot != slot {
        return Err(Anomaly::NotOwner);
    }
    check_own(created.object, slot)?;
    match created.ship {
        Ok(_) => Ok(created),
        Err(_) => Err(Anomaly::TooShort),
    }
}

/// A payload ends inside what is looked at.
impl From<Cut> for Anomaly {
    fn from(_: Cut) -> Self {
        Self::TooShort
    }
}

/// Returns how much of a player's messages is passed on, in bytes.
pub(crate) const fn relay_rate(config: &Config) -> Rate {
    Rate::per_second(config.relay_rate, config.relay_rate.saturating_mul(4))
}

/// Returns how many of a player's lines of chat are passed on.
pub(crate) const fn chat_rate(config: &Config) -> Rate {
    Rate::per_second(config.chat_rate, CHAT_AT_ONCE)
}

/// Returns how much of that is passed on unreliably: an eighth, and little at once, for no line is known to take it.
fn loose_rate(config: &Config) -> Rate {
    let rate = (config.relay_rate / 8).max(MIN_LOOSE);
    Rate::per_second(rate, rate / 4)
}

/// What a player reads of whose chat nobody hears some or all (S-42, S-44).
const TOO_FAST: &str = "You write too fast: some lines were not passed on.";
const MUTED: &str = "You are muted: nobody reads what you write.";
/// Lines of chat that a player may say at once.
const CHAT_AT_ONCE: u32 = 10;
/// Enough for sixty state updates a second.
const MIN_LOOSE: u32 = 8 << 10;

/// The largest message that is passed on: nothing else reaches a player while it is under way. Stock ones have less than
/// 1,100 bytes.
const MAX_RELAYED: usize = 4096;
const MAX_CHAT: usize = 512;
/// The largest message that creates an object. Stock ones have about 120 bytes.
const MAX_CREATE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::{Opcode, Rule};

    /// S-02
    #[test]
    fn objects_belong_to_the_slot_whose_range_they_are_in() {
        let owners = [0, 0x3FFF_FFFE, 0x3FFF_FFFF, 0x4000_0020, 0x4003_FFFE, 0x4003_FFFF, 0x403B_FFFF]
            .map(|id| ObjectId(id).owner());
        assert_eq!(owners, [None, None, Some(0), Some(0), Some(0), Some(1), Some(15)]);
        assert_eq!([0x403F_FFFF, u32::MAX].map(|id| ObjectId(id).owner()), [None, None]);
    }

    /// S-34
    #[test]
    fn every_opcode_has_the_rule_that_the_table_says() {
        let rule = |opcode| Opcode(opcode).rule();
        let kinds = (0..=u8::MAX).map(rule);
        let count = |wanted: fn(Rule) -> bool| kinds.clone().filter(|rule| wanted(*rule)).count();
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
