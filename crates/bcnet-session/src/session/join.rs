//! From the connect request to the game.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Engine, Leave, Time};

use super::Session;
use super::moderate::READING;
use crate::config::Checksums;
use crate::event::Event;
use crate::game::{Opcode, ROUNDS};
use crate::line::{Rank, Said, Source};
use crate::manifest::{Manifest, Mismatch, Reply};
use crate::member::{Answers, Member, State};
use crate::message::{self, Score};
use crate::network::{NETWORK, Network, any_contains};
use crate::stats::Anomaly;
use crate::text;

impl<E: Engine> Session<E> {
    /// S-10 to S-13: a client asks to be let in.
    pub(super) fn requested(&mut self, from: SocketAddrV4, password: &[u8], now: Time) {
        if let Err(reason) = self.may_join(from, Some(password), now) {
            return self.refuse(from, reason, now);
        }
        let trusted = self.is_trusted(from);
        if !trusted && !self.join_limiter.may_join(*from.ip(), now) {
            self.counters.ignored += 1;
            return self.endpoint.ignore(from);
        }
        let answered =
            if trusted { self.endpoint.admit(from, now) } else { self.endpoint.challenge(from, now) };
        if answered.is_err() {
            self.refuse(from, BootReason::FULL, now);
        }
    }

    /// S-13: a client has proved that it hears us, or is trusted: it is checked.
    pub(super) fn joined(&mut self, peer: PeerId, now: Time) {
        let Some(address) = self.endpoint.address(peer) else { return };
        if self.members.is_empty() {
            self.epoch = now;
        }
        let state = State::Checking { round: 0, until: now + self.config.round_timeout };
        let member = Member::new(peer, address, state, &self.config, now);
        if self.members.len() <= usize::from(peer.0) {
            self.members.resize_with(usize::from(peer.0) + 1, || None);
        }
        if let Some(place) = self.members.get_mut(usize::from(peer.0)) {
            *place = Some(Box::new(member));
        }
        self.await_names(peer);
        self.counters.admitted += 1;
        self.tell(Event::Joining { peer, address });
        self.rearm();
        // Much may have changed since it was answered, and many of one address may prove themselves at once.
        let too_often = !self.is_trusted(address) && !self.join_limiter.may_join(*address.ip(), now);
        self.join_limiter.joined(*address.ip(), now);
        let turned_away = self.may_join(address, None, now).err();
        if let Some(reason) = turned_away.or_else(|| too_often.then_some(BootReason::FULL)) {
            self.counters.refused += 1;
            return self.boot(peer, reason, now);
        }
        if self.is_full(address, None) || self.is_crowded(address, None) {
            self.lay_ghost(address, now);
        }
        self.ask(peer, 0, now);
    }

    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) {
        self.counters.refused += 1;
        // It may have given up.
        let _ = self.endpoint.refuse(from, reason, now);
        if self.refusals.take(1, super::REFUSALS, now) {
            self.tell(Event::Refused { from, reason });
        }
    }

    /// Checks whether an address may join, and the password where it is told.
    fn may_join(&mut self, from: SocketAddrV4, password: Option<&[u8]>, now: Time) -> Result<(), BootReason> {
        if any_contains(&self.bans, *from.ip()) {
            return Err(BootReason::BANNED);
        }
        if !self.is_welcome(from) {
            return Err(BootReason::DEFAULT);
        }
        self.kicked.retain(|kicked| kicked.until > now);
        if self.kicked.iter().any(|kicked| kicked.is(from)) {
            return Err(BootReason::KICKED);
        }
        if let (Some(wanted), Some(password)) = (&self.config.password, password) {
            let given = password.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
            if !given.eq(wanted.encode_utf16()) {
                return Err(BootReason::WRONG_PASSWORD);
            }
        }
        if self.round.is_over() {
            return Err(BootReason::DEFAULT);
        }
        if self.is_full(from, Some(now)) || self.is_crowded(from, Some(now)) {
            return Err(BootReason::FULL);
        }
        Ok(())
    }

    /// S-12: returns whether others have all places; without ghosts if it is told what time it is.
    fn is_full(&self, from: SocketAddrV4, now: Option<Time>) -> bool {
        self.others(from, now).filter(|member| member.slot.is_some()).count() >= self.config.places()
    }

    /// S-13: returns whether as many players are in from an address, or from its network, as may be; without ghosts if it
    /// is told what time it is.
    fn is_crowded(&self, from: SocketAddrV4, now: Option<Time>) -> bool {
        let (ip, config) = (*from.ip(), &self.config);
        let network = Network::around(ip, NETWORK);
        let count = |network: Network| {
            self.others(from, now).filter(|member| network.contains(*member.address.ip())).count()
        };
        let full = |limit: Option<u8>, network| count(network) >= config.share(limit);
        !self.is_trusted(from)
            && (full(config.players_per_address, Network::around(ip, 32))
                || !ip.is_private() && full(config.players_per_network, network))
    }

    /// S-13: returns whether an address is that of the host, a proxy or a load test.
    fn is_trusted(&self, from: SocketAddrV4) -> bool {
        any_contains(&self.config.trusted, *from.ip())
    }

    /// Returns everyone but who is at an address: who asks there takes the place of the one who is (T-53). Ghosts do not
    /// count if it is told what time it is.
    fn others(&self, from: SocketAddrV4, now: Option<Time>) -> impl Iterator<Item = &Member> {
        let members = self.members.iter().flatten().map(Box::as_ref);
        let is_ghost = move |member: &Member| now.is_some_and(|now| self.ghost(member, from, now).is_some());
        members.filter(move |member| member.address != from && !is_ghost(member))
    }

    /// S-13: returns for how long nothing was heard of a player, if it may be who is at `from` now: its router has given it
    /// another port.
    fn ghost(&self, member: &Member, from: SocketAddrV4, now: Time) -> Option<Duration> {
        let may_be = member.address.ip() == from.ip() && !self.is_trusted(from);
        let silent_for = self.endpoint.silent_for(member.id, now).filter(|_| may_be)?;
        Some(silent_for)
            .filter(|silent_for| *silent_for >= self.config.transport.keepalive.saturating_mul(5) / 2)
    }

    /// S-13: a ghost gives way to who has proved itself: the one that was silent longest.
    fn lay_ghost(&mut self, from: SocketAddrV4, now: Time) {
        let others = self.others(from, None);
        let ghosts = others.filter_map(|member| Some((self.ghost(member, from, now)?, member.id)));
        if let Some((_, ghost)) = ghosts.max_by_key(|(silent_for, _)| *silent_for) {
            self.boot(ghost, BootReason::TIMED_OUT, now);
            // The newcomer's first word may wait before the event that says so, and needs the slot.
            self.left(ghost, Leave::Booted(BootReason::TIMED_OUT), now);
        }
    }

    /// S-03: a client tells its name. The transport has passed it on already.
    pub(super) fn identified(&mut self, peer: PeerId, utf16le: &[u8], now: Time) {
        if !self.prove(peer, now) {
            return;
        }
        let name = text::name(utf16le);
        let remembered = self.remembered.iter().position(|known| known.name == name);
        let Some(member) = self.members.get_mut(usize::from(peer.0)).and_then(Option::as_deref_mut) else {
            return;
        };
        let first = member.name.replace(name.clone()).is_none();
        // S-51: whoever has a score of its own, or has begun to play, leaves what is kept of the name to its owner.
        let is_new = member.entered.is_none() && member.played.is_zero() && member.score == Score::default();
        if is_new && let Some(known) = remembered.and_then(|at| self.remembered.remove(at)) {
            member.score = known.score;
            member.played += known.played;
        }
        if let (true, Some(slot)) = (first, member.slot) {
            let address = member.address;
            self.tell(Event::Joined { peer, name, address, slot });
            self.await_name(peer);
        }
        self.mute_again(peer);
    }

    /// S-04: a client has answered, so it gets the lowest free slot. `false` if there is none.
    fn prove(&mut self, peer: PeerId, now: Time) -> bool {
        match self.member(peer) {
            None => return false,
            Some(member) if member.slot.is_some() => return true,
            Some(_) => {}
        }
        let taken = self.taken_slots().fold(0_u32, |taken, slot| taken | 1 << slot);
        let free = u8::try_from(taken.trailing_ones()).unwrap_or(u8::MAX);
        if usize::from(free) >= crate::config::MAX_SLOTS || self.taken_slots().count() >= self.config.places()
        {
            self.counters.refused += 1;
            self.boot(peer, BootReason::FULL, now);
            return false;
        }
        if let Some(member) = self.member_mut(peer) {
            member.slot = Some(free);
        }
        true
    }

    /// S-14: what a client says before it is in the game.
    pub(super) fn handshake(&mut self, peer: PeerId, payload: &[u8], now: Time) {
        let Some(state) = self.member(peer).map(|member| member.state) else { return };
        match (Opcode::of(payload), state) {
            (None, _) => self.odd(peer, Anomaly::Empty),
            (Some(Opcode::CHECKSUM_RESPONSE), State::Checking { round, .. }) => {
                if self.prove(peer, now) {
                    self.checked(peer, round, payload, now);
                }
            }
            (Some(Opcode::NEW_PLAYER_IN_GAME), State::Loading { ready: false }) => {
                self.set_state(peer, State::Loading { ready: true });
                self.serve_waiting(now);
            }
            (
                Some(Opcode::CHECKSUM_RESPONSE | Opcode::FILE_TRANSFER_ACK | Opcode::NEW_PLAYER_IN_GAME),
                State::Loading { .. },
            ) => {}
            (Some(_), State::Refused { .. } | State::Dismissed { .. }) => {}
            (Some(Opcode::FILE_TRANSFER_ACK), State::Checking { .. }) => {}
            (Some(_), _) => self.odd(peer, Anomaly::TooEarly),
        }
    }

    /// S-20: asks about the files of one round.
    fn ask(&mut self, peer: PeerId, round: usize, now: Time) {
        if let Some(round) = ROUNDS.get(round) {
            self.send(peer, &message::checksum_request(round), now);
        }
    }

    /// S-21 to S-23: an answer about files.
    fn checked(&mut self, peer: PeerId, round: usize, payload: &[u8], now: Time) {
        if Reply::parse(round, payload).is_some() {
            self.judge(peer, round, Some(payload), now);
        } else {
            self.odd(peer, Anomaly::BadReply);
        }
    }

    /// Compares an answer, or that there is none, with the manifests, and goes on.
    fn judge(&mut self, peer: PeerId, round: usize, answer: Option<&[u8]>, now: Time) {
        let place = self.member_mut(peer).and_then(|member| member.answers.get_mut(round));
        let Some(place) = place else { return };
        *place = answer.map(Into::into);
        match self.mismatch(peer, round) {
            Some(mismatch) => self.turn_away(peer, mismatch, now),
            None => self.next_check(peer, round + 1, now),
        }
    }

    /// S-23: `None` as long as one of the manifests fits all that a client has answered. They may be others than when it
    /// began to answer. If none fits, the one that fits for the most rounds tells where.
    fn mismatch(&self, peer: PeerId, round: usize) -> Option<Mismatch> {
        let Checksums::Strict(manifests) = &self.config.checksums else { return None };
        let client = Manifest::told(&self.member(peer)?.answers);
        let compare = |manifest: &Manifest| manifest.mismatch(&client, round, self.config.extra_files);
        let all: Vec<Mismatch> = manifests.iter().map(compare).collect::<Option<_>>()?;
        let furthest = all.into_iter().rev().max_by_key(|mismatch| mismatch.round);
        furthest.or_else(|| compare(&Manifest::default()))
    }

    fn next_check(&mut self, peer: PeerId, round: usize, now: Time) {
        if round < ROUNDS.len() {
            self.set_state(peer, State::Checking { round, until: now + self.config.round_timeout });
            self.ask(peer, round, now);
        } else {
            self.set_state(peer, State::Loading { ready: false });
            self.start_loading(peer, now);
        }
        self.rearm();
    }

    /// S-25: three messages that the client gets at once.
    fn start_loading(&mut self, peer: PeerId, now: Time) {
        let Some(member) = self.member_mut(peer) else { return };
        let (slot, name) = (member.slot.unwrap_or(0), member.shown_name());
        let answers = std::mem::take(&mut member.answers);
        if self.config.learn {
            let mut manifest = Box::new(Manifest::told(&answers));
            manifest.name = name;
            self.tell(Event::ManifestLearned { peer, manifest });
        }
        let game_time = now.since(self.epoch).as_secs_f32();
        self.send(peer, &message::CHECKSUM_COMPLETE, now);
        let mission = message::text(&self.rules.mission.script);
        self.send(peer, &message::settings(&self.rules, slot, game_time, &mission), now);
        self.send(peer, &message::GAME_INIT, now);
    }

    /// S-24: a client's files differ: it is told which and what to do, then thrown out.
    fn turn_away(&mut self, peer: PeerId, mismatch: Mismatch, now: Time) {
        let opcode = self.config.refusal_opcode;
        self.send(peer, &message::checksum_failed(opcode, &message::text(&mismatch.advice())), now);
        let Some(member) = self.member_mut(peer) else { return };
        member.answers = Answers::default();
        member.state = State::Refused { until: now + READING };
        let (name, address) = (member.shown_name(), member.address);
        self.tell(Event::ChecksumMismatch { peer, name, address, mismatch });
        self.waiting = true;
        self.rearm();
    }

    /// Deadlines of those who join.
    pub(super) fn serve_members(&mut self, now: Time) {
        let handshake = self.config.handshake_timeout;
        for at in 0..self.members.len() {
            let Some(member) = self.members.get(at).and_then(Option::as_deref) else { continue };
            if member.due(handshake).is_none_or(|due| due > now) {
                continue;
            }
            let (peer, state) = (member.id, member.state);
            match state {
                State::Dismissed { .. } => self.boot(peer, BootReason::KICKED, now),
                _ if now >= member.joined + handshake || member.slot.is_none() => {
                    self.boot(peer, BootReason::TIMED_OUT, now);
                }
                State::Checking { round, .. } => {
                    self.odd(peer, Anomaly::NoReply);
                    self.judge(peer, round, None, now);
                }
                State::Refused { .. } => self.boot(peer, BootReason::KICKED, now),
                State::Loading { .. } | State::InGame => {}
            }
        }
    }

    /// S-30, S-31: a newcomer enters the game.
    pub(super) fn enter(&mut self, peer: PeerId, now: Time) {
        self.start_clock(now);
        self.introduce(peer);
        self.send_mission(peer, now);
        self.send_scores(peer, now);
        self.send_ships(peer, now);
        let source = self.source(peer);
        self.send(peer, &message::player_joined(peer.0), now);
        self.send_all(source, None, &message::player_joined(peer.0), now);
        for other in self.in_game.iter() {
            self.send(peer, &message::player_joined(other.0), now);
        }
        self.in_game.push(peer);
        if let Some(member) = self.member_mut(peer) {
            (member.state, member.entered) = (State::InGame, Some(now));
        }
        let name = self.member(peer).map(Member::shown_name).unwrap_or_default();
        self.tell(Event::InGame { peer, name });
        let welcome = self.config.welcome.clone();
        self.say_to(peer, &welcome, now);
    }

    /// The cached messages of all living ships.
    fn send_ships(&mut self, peer: PeerId, now: Time) {
        for other in self.in_game.iter() {
            let Some(member) = self.members.get_mut(usize::from(other.0)).and_then(Option::as_deref_mut)
            else {
                continue;
            };
            if !member.ship.alive {
                continue;
            }
            let (source, payload) = (Source::of(member.slot), std::mem::take(&mut member.ship.created));
            let sent = self.deliver(peer, Said { source, rank: Rank::FirstObject, payload: &payload }, now);
            self.note_sent(peer, sent, now);
            if let Some(member) = self.member_mut(other) {
                member.ship.created = payload;
            }
        }
    }

    fn set_state(&mut self, peer: PeerId, state: State) {
        if let Some(member) = self.member_mut(peer) {
            member.state = state;
        }
    }
}
