//! The way of a client from the connect request into the game ([S-10] to [S-31]).
//!
//! Decides on admission, assigns slots, checks files and sends the state of the game to a new player. The transport
//! verifies addresses; the names module delays the entry until all names have arrived.
//!
//! [S-10]: bcnet_transport::wire::protocol#s-10
//! [S-31]: bcnet_transport::wire::protocol#s-31

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Engine, LeaveReason, Time};

use super::Session;
use super::moderation::READ_TIMEOUT;
use crate::config::Checksums;
use crate::event::Event;
use crate::game::{FILE_CHECK_ROUNDS, Opcode};
use crate::manifest::{FileCheckReply, Manifest, Mismatch};
use crate::member::{FileCheckAnswers, Member, MemberState};
use crate::message::{self, Score};
use crate::network::{NETWORK_PREFIX, Network, any_contains};
use crate::refusal::JoinRefusal;
use crate::send_queue::{MessageSource, Outgoing, Priority};
use crate::stats::Anomaly;
use crate::text;

impl<E: Engine> Session<E> {
    /// S-10 to S-13: handles a connect request: refuses, ignores or admits it.
    pub(super) fn on_connect_request(&mut self, from: SocketAddrV4, password: &[u8], now: Time) {
        match self.check_admission(from, Some(password), now) {
            // S-12: the client asks again within a second, and the place may be free soon.
            Err(JoinRefusal::Full | JoinRefusal::AddressLimit(_) | JoinRefusal::NetworkLimit(_))
                if self.endpoint.has_departing_peers() =>
            {
                return self.endpoint.ignore(from);
            }
            // The client gets the reason as a text when its address is verified. During a flood it gets none.
            Err(refusal)
                if refusal.setting().is_some()
                    && self.refusal_text_bucket.take(1, super::REFUSAL_TEXT_RATE, now) => {}
            Err(refusal) => return self.refuse(from, refusal, now),
            Ok(()) => {}
        }
        let trusted = self.is_trusted(from);
        if !trusted && !self.join_limiter.may_join(*from.ip(), now) {
            self.counters.ignored += 1;
            return self.endpoint.ignore(from);
        }
        let result = if trusted && !may_be_proxy(from) {
            self.endpoint.admit(from, now)
        } else {
            self.endpoint.challenge(from, now)
        };
        if result.is_err() {
            self.refuse(from, JoinRefusal::Full, now);
        }
    }

    /// Adds a client whose address is verified or trusted, and starts its file check (S-13).
    pub(super) fn on_peer_joined(&mut self, peer: PeerId, now: Time) {
        let Some(address) = self.endpoint.address(peer) else { return };
        if self.members.is_empty() {
            self.epoch = now;
        }
        let state = MemberState::Checking { round: 0, until: now + self.config.round_timeout };
        let member = Member::new(peer, address, state, &self.config, now);
        if self.members.len() <= usize::from(peer.0) {
            self.members.resize_with(usize::from(peer.0) + 1, || None);
        }
        if let Some(entry) = self.members.get_mut(usize::from(peer.0)) {
            *entry = Some(Box::new(member));
        }
        self.await_name_acks(peer);
        self.counters.admitted += 1;
        self.emit(Event::Joining { peer, address });
        self.reschedule();
        // Repeats the checks: since the challenge, the session may have filled up, or other clients of the address may
        // have joined.
        let is_over_rate = !self.is_trusted(address) && !self.join_limiter.may_join(*address.ip(), now);
        self.join_limiter.record_join(*address.ip(), now);
        let refusal = self.check_admission(address, None, now).err();
        if let Some(refusal) = refusal.or_else(|| is_over_rate.then_some(JoinRefusal::JoinRate)) {
            return self.refuse_member(peer, address, refusal, now);
        }
        if self.is_full(address, None) || self.exceeded_limit(address, None).is_some() {
            self.evict_stale_connection(address, now);
        }
        self.send_file_check(peer, 0, now);
    }

    fn refuse(&mut self, from: SocketAddrV4, refusal: JoinRefusal, now: Time) {
        self.count_refusal(from, refusal, now);
        // An error is ignored: the client may have given up.
        let _ = self.endpoint.refuse(from, refusal.boot_reason(), now);
    }

    /// Refuses a client whose address is verified. No boot reason names a limit, so the client gets a text first.
    fn refuse_member(&mut self, peer: PeerId, from: SocketAddrV4, refusal: JoinRefusal, now: Time) {
        self.count_refusal(from, refusal, now);
        match refusal.text() {
            Some(text) => self.boot_after_text(peer, &text, refusal.boot_reason(), now),
            None => self.boot(peer, refusal.boot_reason(), now),
        }
    }

    fn count_refusal(&mut self, from: SocketAddrV4, refusal: JoinRefusal, now: Time) {
        self.counters.refused.add(refusal);
        if self.refusal_bucket.take(1, super::REFUSAL_EVENT_RATE, now) {
            self.emit(Event::Refused { from, refusal });
        }
    }

    /// Checks whether an address may join, and the password if one is given.
    fn check_admission(
        &mut self,
        from: SocketAddrV4,
        password: Option<&[u8]>,
        now: Time,
    ) -> Result<(), JoinRefusal> {
        if any_contains(&self.bans, *from.ip()) {
            return Err(JoinRefusal::Banned);
        }
        if !self.is_whitelisted(from) {
            return Err(JoinRefusal::NotWhitelisted);
        }
        self.kicked.retain(|kicked| kicked.until > now);
        if self.kicked.iter().any(|kicked| kicked.matches(from)) {
            return Err(JoinRefusal::Kicked);
        }
        if let (Some(expected), Some(password)) = (&self.config.password, password) {
            let given = password.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
            if !given.eq(expected.encode_utf16()) {
                return Err(JoinRefusal::WrongPassword);
            }
        }
        if self.round.is_over() {
            return Err(JoinRefusal::RoundOver);
        }
        if self.is_full(from, Some(now)) {
            return Err(JoinRefusal::Full);
        }
        self.exceeded_limit(from, Some(now)).map_or(Ok(()), Err)
    }

    /// S-12: returns whether other players have all slots. With `now`, stale connections do not count.
    fn is_full(&self, from: SocketAddrV4, now: Option<Time>) -> bool {
        self.other_members(from, now).filter(|member| member.slot.is_some()).count()
            >= self.config.max_players()
    }

    /// S-13: returns the limit of players per address or per network, if it is reached.
    ///
    /// With `now`, stale connections do not count.
    fn exceeded_limit(&self, from: SocketAddrV4, now: Option<Time>) -> Option<JoinRefusal> {
        let (ip, config) = (*from.ip(), &self.config);
        if self.is_trusted(from) || any_contains(&config.home_networks, ip) {
            return None;
        }
        let is_reached = |most: usize, prefix| {
            let network = Network::containing(ip, prefix);
            let counts = |member: &&Member| {
                network.contains(*member.address.ip()) && !matches!(member.state, MemberState::Refused { .. })
            };
            self.other_members(from, now).filter(counts).count() >= most
        };
        let per_address = config.per_origin_limit(config.players_per_address);
        let per_network = config.per_origin_limit(config.players_per_network);
        let address = is_reached(per_address, 32).then_some(JoinRefusal::AddressLimit(per_address));
        address.or_else(|| {
            is_reached(per_network, NETWORK_PREFIX).then_some(JoinRefusal::NetworkLimit(per_network))
        })
    }

    /// S-13: returns whether an address is trusted, for example that of the host, a proxy or a load test.
    fn is_trusted(&self, from: SocketAddrV4) -> bool {
        any_contains(&self.config.trusted, *from.ip())
    }

    /// Returns the members at other addresses: a new client replaces the member at its own address (T-53).
    ///
    /// With `now`, stale connections are left out.
    fn other_members(&self, from: SocketAddrV4, now: Option<Time>) -> impl Iterator<Item = &Member> {
        let members = self.members.iter().flatten().map(Box::as_ref);
        let is_stale =
            move |member: &Member| now.is_some_and(|now| self.stale_for(member, from, now).is_some());
        members.filter(move |member| member.address != from && !is_stale(member))
    }

    /// Returns how long a member was idle, if it may be a stale connection of the client at `from` (S-13).
    ///
    /// A client has a stale connection when a router has given it another port.
    fn stale_for(&self, member: &Member, from: SocketAddrV4, now: Time) -> Option<Duration> {
        let may_be_same_player = member.address.ip() == from.ip() && !self.is_trusted(from);
        let idle_for = self.endpoint.idle_for(member.id, now).filter(|_| may_be_same_player)?;
        Some(idle_for).filter(|idle_for| *idle_for >= self.config.transport.keepalive.saturating_mul(5) / 2)
    }

    /// S-13: boots the stale connection that was idle longest, in favour of the verified client at `from`.
    fn evict_stale_connection(&mut self, from: SocketAddrV4, now: Time) {
        let others = self.other_members(from, None);
        let stale = others.filter_map(|member| Some((self.stale_for(member, from, now)?, member.id)));
        if let Some((_, stale_peer)) = stale.max_by_key(|(idle_for, _)| *idle_for) {
            self.boot(stale_peer, BootReason::TIMED_OUT, now);
            // Free the slot now: the new client's first message may be polled before the transport's leave event.
            self.on_peer_left(stale_peer, LeaveReason::Booted(BootReason::TIMED_OUT), now);
        }
    }

    /// S-03: stores the name of a client. The transport has sent it to the others already.
    pub(super) fn on_identity(&mut self, peer: PeerId, utf16le: &[u8], now: Time) {
        if !self.assign_slot(peer, now) {
            return;
        }
        let name = text::display_name(utf16le);
        let stored = self.departed.iter().position(|known| known.name == name);
        let Some(member) = self.members.get_mut(usize::from(peer.0)).and_then(Option::as_deref_mut) else {
            return;
        };
        let first = member.name.replace(name.clone()).is_none();
        // S-51: a player that already has a score or play time does not take over the stored score of the name.
        let is_new = member.entered.is_none() && member.played.is_zero() && member.score == Score::default();
        if is_new && let Some(known) = stored.and_then(|index| self.departed.remove(index)) {
            member.score = known.score;
            member.played += known.played;
        }
        if let (true, Some(slot)) = (first, member.slot) {
            let address = member.address;
            self.emit(Event::Joined { peer, name, address, slot });
            self.await_name_ack(peer);
        }
        self.restore_mute(peer);
    }

    /// S-04: assigns the lowest free slot to a client that has answered. Returns `false` if there is none.
    fn assign_slot(&mut self, peer: PeerId, now: Time) -> bool {
        match self.member(peer) {
            None => return false,
            Some(member) if member.slot.is_some() => return true,
            Some(member) if matches!(member.state, MemberState::Refused { .. }) => return false,
            Some(_) => {}
        }
        let taken = self.taken_slots().fold(0_u32, |taken, slot| taken | 1 << slot);
        let free = u8::try_from(taken.trailing_ones()).unwrap_or(u8::MAX);
        if usize::from(free) >= crate::config::MAX_SLOTS
            || self.taken_slots().count() >= self.config.max_players()
        {
            if let Some(from) = self.endpoint.address(peer) {
                self.refuse_member(peer, from, JoinRefusal::Full, now);
            }
            return false;
        }
        if let Some(member) = self.member_mut(peer) {
            member.slot = Some(free);
        }
        true
    }

    /// S-14: handles a message of a client that is not in the game yet.
    pub(super) fn on_handshake_message(&mut self, peer: PeerId, payload: &[u8], now: Time) {
        let Some(state) = self.member(peer).map(|member| member.state) else { return };
        match (Opcode::of(payload), state) {
            (None, _) => self.count_anomaly(peer, Anomaly::Empty),
            (Some(Opcode::CHECKSUM_RESPONSE), MemberState::Checking { round, .. }) => {
                if self.assign_slot(peer, now) {
                    self.on_file_check_answer(peer, round, payload, now);
                }
            }
            (Some(Opcode::NEW_PLAYER_IN_GAME), MemberState::Loading { ready: false }) => {
                self.set_state(peer, MemberState::Loading { ready: true });
                self.check_acknowledged(now);
            }
            (
                Some(Opcode::CHECKSUM_RESPONSE | Opcode::FILE_TRANSFER_ACK | Opcode::NEW_PLAYER_IN_GAME),
                MemberState::Loading { .. },
            ) => {}
            (Some(_), MemberState::Refused { .. } | MemberState::KickPending { .. }) => {}
            (Some(Opcode::FILE_TRANSFER_ACK), MemberState::Checking { .. }) => {}
            (Some(_), _) => self.count_anomaly(peer, Anomaly::TooEarly),
        }
    }

    /// S-20: sends the file check request of one round.
    fn send_file_check(&mut self, peer: PeerId, round: usize, now: Time) {
        if let Some(round) = FILE_CHECK_ROUNDS.get(round) {
            self.send(peer, &message::checksum_request(round), now);
        }
    }

    /// S-21 to S-23: handles a file check answer.
    fn on_file_check_answer(&mut self, peer: PeerId, round: usize, payload: &[u8], now: Time) {
        if FileCheckReply::parse(round, payload).is_some() {
            self.check_answer(peer, round, Some(payload), now);
        } else {
            self.count_anomaly(peer, Anomaly::BadReply);
        }
    }

    /// Compares an answer, or a missing one, with the manifests, then refuses the client or continues.
    fn check_answer(&mut self, peer: PeerId, round: usize, answer: Option<&[u8]>, now: Time) {
        let entry = self.member_mut(peer).and_then(|member| member.file_check_answers.get_mut(round));
        let Some(entry) = entry else { return };
        *entry = answer.map(Into::into);
        match self.find_mismatch(peer, round) {
            Some(mismatch) => self.refuse_for_files(peer, mismatch, now),
            None => self.continue_file_check(peer, round + 1, now),
        }
    }

    /// S-23: returns `None` while at least one manifest matches all answers of a client so far.
    ///
    /// The manifests may have changed since its first answer. If none matches, the result is the mismatch of the
    /// manifest that matches most rounds.
    fn find_mismatch(&self, peer: PeerId, round: usize) -> Option<Mismatch> {
        let Checksums::Strict(manifests) = &self.config.checksums else { return None };
        let client = Manifest::from_answers(&self.member(peer)?.file_check_answers);
        let compare = |manifest: &Manifest| manifest.mismatch(&client, round, self.config.extra_files);
        let all: Vec<Mismatch> = manifests.iter().map(compare).collect::<Option<_>>()?;
        let furthest = all.into_iter().rev().max_by_key(|mismatch| mismatch.round);
        furthest.or_else(|| compare(&Manifest::default()))
    }

    fn continue_file_check(&mut self, peer: PeerId, round: usize, now: Time) {
        if round < FILE_CHECK_ROUNDS.len() {
            self.set_state(peer, MemberState::Checking { round, until: now + self.config.round_timeout });
            self.send_file_check(peer, round, now);
        } else {
            self.set_state(peer, MemberState::Loading { ready: false });
            self.start_loading(peer, now);
        }
        self.reschedule();
    }

    /// S-25: sends the three messages that make the client load the mission.
    fn start_loading(&mut self, peer: PeerId, now: Time) {
        let Some(member) = self.member_mut(peer) else { return };
        let (slot, name) = (member.slot.unwrap_or(0), member.display_name());
        let answers = std::mem::take(&mut member.file_check_answers);
        if self.config.learn_manifests {
            let mut manifest = Box::new(Manifest::from_answers(&answers));
            manifest.name = name;
            self.emit(Event::ManifestLearned { peer, manifest });
        }
        let game_time = now.since(self.epoch).as_secs_f32();
        self.send(peer, &message::CHECKSUM_COMPLETE, now);
        let mission = message::wire_text(&self.rules.mission.script);
        self.send(peer, &message::settings(&self.rules, slot, game_time, &mission), now);
        self.send(peer, &message::GAME_INIT, now);
    }

    /// S-24: tells a client which file differs and what to do, and boots the client afterwards.
    fn refuse_for_files(&mut self, peer: PeerId, mismatch: Mismatch, now: Time) {
        self.boot_after_text(peer, &mismatch.advice(), BootReason::KICKED, now);
        let Some(member) = self.member_mut(peer) else { return };
        let (name, address) = (member.display_name(), member.address);
        self.emit(Event::ChecksumMismatch { peer, name, address, mismatch });
    }

    /// Sends a text that the client shows, and boots the client when it has acknowledged the text.
    fn boot_after_text(&mut self, peer: PeerId, text: &str, reason: BootReason, now: Time) {
        let opcode = self.config.refusal_opcode;
        self.send(peer, &message::checksum_failed(opcode, &message::wire_text(text)), now);
        let Some(member) = self.member_mut(peer) else { return };
        member.file_check_answers = FileCheckAnswers::default();
        member.state = MemberState::Refused { until: now + READ_TIMEOUT, reason };
        self.has_ack_waiters = true;
        self.reschedule();
    }

    /// Handles the deadlines of members that are joining or are about to be booted.
    pub(super) fn check_member_deadlines(&mut self, now: Time) {
        let handshake = self.config.handshake_timeout;
        for index in 0..self.members.len() {
            let Some(member) = self.members.get(index).and_then(Option::as_deref) else { continue };
            if member.next_deadline(handshake).is_none_or(|due| due > now) {
                continue;
            }
            let (peer, state) = (member.id, member.state);
            match state {
                MemberState::KickPending { .. } => self.boot(peer, BootReason::KICKED, now),
                MemberState::Refused { reason, .. } => self.boot(peer, reason, now),
                _ if now >= member.joined_at + handshake || member.slot.is_none() => {
                    self.boot(peer, BootReason::TIMED_OUT, now);
                }
                MemberState::Checking { round, .. } => {
                    self.count_anomaly(peer, Anomaly::NoReply);
                    self.check_answer(peer, round, None, now);
                }
                MemberState::Loading { .. } | MemberState::InGame => {}
            }
        }
    }

    /// S-30, S-31: lets a new player into the game and sends it the current state.
    pub(super) fn enter_game(&mut self, peer: PeerId, now: Time) {
        self.start_round_clock(now);
        self.hold_for_name(peer);
        self.send_mission(peer, now);
        self.send_scores(peer, now);
        self.send_ships(peer, now);
        let source = self.source_of(peer);
        self.send(peer, &message::player_joined(peer.0), now);
        self.send_all(source, None, &message::player_joined(peer.0), now);
        for other in self.in_game.iter() {
            self.send(peer, &message::player_joined(other.0), now);
        }
        self.in_game.push(peer);
        self.update_uplink_shares();
        if let Some(member) = self.member_mut(peer) {
            (member.state, member.entered) = (MemberState::InGame, Some(now));
        }
        let name = self.member(peer).map(Member::display_name).unwrap_or_default();
        self.emit(Event::InGame { peer, name });
        let welcome = self.config.welcome.clone();
        self.say_to(peer, &welcome, now);
        self.tell_policy_of_join(peer, now);
    }

    /// S-30: sends the stored creation messages of all living ships.
    fn send_ships(&mut self, peer: PeerId, now: Time) {
        for other in self.in_game.iter() {
            let Some(member) = self.members.get_mut(usize::from(other.0)).and_then(Option::as_deref_mut)
            else {
                continue;
            };
            if !member.ship.alive {
                continue;
            }
            let (source, payload) =
                (MessageSource::from_slot(member.slot), std::mem::take(&mut member.ship.create_payload));
            let sent = self.deliver(
                peer,
                Outgoing {
                    source,
                    priority: Priority::UrgentObject,
                    payload: &payload,
                    is_over_share: false,
                },
                now,
            );
            self.boot_if_queue_full(peer, sent, now);
            if let Some(member) = self.member_mut(other) {
                member.ship.create_payload = payload;
            }
        }
    }

    fn set_state(&mut self, peer: PeerId, state: MemberState) {
        if let Some(member) = self.member_mut(peer) {
            member.state = state;
        }
    }
}

/// S-13: returns whether an address may be that of a proxy on this machine.
///
/// A proxy forwards forged requests. Other programs of the machine use 127.0.0.1.
fn may_be_proxy(from: SocketAddrV4) -> bool {
    from.ip().is_loopback() && *from.ip() != Ipv4Addr::LOCALHOST
}
