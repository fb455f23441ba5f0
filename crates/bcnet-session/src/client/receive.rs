//! Handling of the messages that a client receives ([S-80] to [S-84]).
//!
//! Turns events of the transport and game messages into events of the client, and updates its state, players and ships.
//! It sends nothing but the player's name.
//!
//! [S-80]: bcnet_transport::wire::protocol#s-80
//! [S-84]: bcnet_transport::wire::protocol#s-84

use bcnet_transport::wire::PeerId;
use bcnet_transport::{self as transport, Engine, LeaveReason, Time};

use super::event::{ClientState, Event, FileCheck, GameSettings, PlayerShip, ServerAnomaly, ShipPosition};
use super::{Client, KnownPlayer};
use crate::config::MAX_SLOTS;
use crate::game::{
    self, Created, EventDetail, EventNumber, GameError, GameEvent, ObjectId, Opcode, RequestFlags,
    SettingsFlags, StateUpdate, Text16, read_fields,
};
use crate::message::Score;
use crate::text;

impl<E: Engine> Client<E> {
    /// Handles an event of the transport and returns the client's event for it, if there is one.
    pub(super) fn on_transport_event(
        &mut self,
        event: transport::Event,
        payload: &mut Vec<u8>,
        now: Time,
    ) -> Option<Event> {
        let event = match event {
            transport::Event::Received { reliable, .. } => {
                let outcome = self.on_game_message(payload, Event::Received { reliable }, now);
                return outcome.map_or_else(|anomaly| self.count_anomaly(anomaly), Some);
            }
            transport::Event::Joined { peer } if peer == self.engine.id() => {
                Some(self.on_connected(peer, now))
            }
            transport::Event::Identity { peer, .. } => {
                let name = text::display_name(payload);
                self.player_mut(peer).name.clone_from(&name);
                Some(Event::Named { peer, name })
            }
            transport::Event::Left { peer, reason } => Some(self.on_left(peer, reason)),
            transport::Event::Rejected { cause, .. } => self.count_anomaly(ServerAnomaly::Datagram(cause)),
            // Only a host handles these events: joins of others, requests, queries.
            transport::Event::Joined { .. }
            | transport::Event::Request { .. }
            | transport::Event::Query { .. } => None,
        };
        payload.clear();
        event
    }

    fn on_connected(&mut self, id: PeerId, now: Time) -> Event {
        self.state = ClientState::Checking;
        // An error is ignored: if the host is gone already, the transport reports that next.
        let _ = self.identify(now);
        Event::Connected { id }
    }

    fn on_left(&mut self, peer: PeerId, reason: LeaveReason) -> Event {
        if peer == PeerId::HOST || peer == self.engine.id() {
            return self.finish(reason.into());
        }
        let player = self.players.remove(&peer.0).unwrap_or_default();
        Event::Disconnected { peer, name: player.name, reason, listed: player.listed }
    }

    /// Handles a game message. `other` is the event for messages that have no special event.
    fn on_game_message(&mut self, payload: &[u8], other: Event, now: Time) -> Result<Event, ServerAnomaly> {
        let opcode = Opcode::of(payload).ok_or(ServerAnomaly::Malformed(GameError::EMPTY))?;
        let event = self.read_message(opcode, payload, other, now).map_err(ServerAnomaly::Malformed)?;
        event.ok_or(ServerAnomaly::Impossible(opcode))
    }

    /// Reads a game message and returns its event, or `None` if the message is impossible (S-84).
    ///
    /// Only messages that are decoded here must be complete. The caller gets all others unchanged, because mods have
    /// private messages.
    fn read_message(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        other: Event,
        now: Time,
    ) -> Result<Option<Event>, GameError> {
        Ok(match opcode {
            Opcode::CHECKSUM_REQUEST => Some(self.on_file_check(&read_fields(payload)?)),
            Opcode::CHECKSUM_FAILURE => files_differ(read_fields::<game::ChecksumFailure<'_>>(payload)?.file),
            Opcode::VERSION_DIFFERENT => {
                files_differ(read_fields::<game::VersionDifferent<'_>>(payload)?.file)
            }
            Opcode::CHECKSUM_COMPLETE => Some(Event::FilesPassed),
            Opcode::SETTINGS => self.on_settings(&read_fields(payload)?, now),
            Opcode::GAME_INIT => self.on_load(),
            Opcode::MISSION_INIT => Some(Event::Mission(read_fields(payload)?)),
            Opcode::PLAYER_LIST_EVENT => Some(self.on_player_list_event(&read_fields(payload)?, other)),
            Opcode::CHAT => {
                let game::Chat { sender, text } = read_fields(payload)?;
                self.on_chat(sender, text, false)
            }
            Opcode::TEAM_CHAT => {
                let game::TeamChat { sender, text } = read_fields(payload)?;
                self.on_chat(sender, text, true)
            }
            Opcode::SCORE => {
                let game::Score { peer, kills, deaths, score } = read_fields(payload)?;
                self.on_score(peer, Score { kills, deaths, points: score }, None)
            }
            Opcode::SCORE_INIT => {
                let game::ScoreInit { peer, kills, deaths, score, team } = read_fields(payload)?;
                self.on_score(peer, Score { kills, deaths, points: score }, Some(team))
            }
            Opcode::TEAM_SCORE => {
                let game::TeamScore { team, kills, score } = read_fields(payload)?;
                Some(Event::TeamScore { team, score: Score { kills, deaths: 0, points: score } })
            }
            Opcode::TEAM => self.on_team(&read_fields(payload)?, other),
            Opcode::SCORE_CHANGE => self.on_death(&read_fields(payload)?),
            Opcode::END_GAME => Some(self.on_round_end(&read_fields(payload)?)),
            Opcode::RESTART_GAME => Some(self.on_round_restart()),
            Opcode::OBJECT_CREATE => {
                let game::ObjectCreate { slot, object } = read_fields(payload)?;
                self.on_object_created(slot, None, &object, other)
            }
            Opcode::OBJECT_CREATE_TEAM => {
                let game::ObjectCreateTeam { slot, peer, object } = read_fields(payload)?;
                self.on_object_created(slot, Some(PeerId(peer)), &object, other)
            }
            Opcode::PYTHON_EVENT => Some(self.on_python_event(&read_fields(payload)?, other)),
            Opcode::DESTROY_OBJECT => {
                let game::DestroyObject { object } = read_fields(payload)?;
                Some(Event::ObjectDestroyed { object, peer: self.remove_ship(object) })
            }
            Opcode::STATE_UPDATE => {
                // A caller that knows the messages of a mod gets longer or shorter ones, too.
                if let Ok(update) = read_fields(payload) {
                    self.track(&update);
                }
                Some(other)
            }
            _ => Some(other),
        })
    }

    /// Applies a state update to the position of its ship, if that is a known ship.
    pub(super) fn track(&mut self, update: &StateUpdate<'_>) {
        let Some(slot) = update.object.owner().map(usize::from) else { return };
        let ship = self.ships.get(slot).copied().flatten().filter(|ship| ship.object == update.object);
        if let (Some(_), Some(Some(position))) = (ship, self.positions.get_mut(slot)) {
            position.update(update);
        }
    }

    /// Handles a change in the list of players (S-81).
    fn on_player_list_event(&mut self, event: &GameEvent<'_>, other: Event) -> Event {
        match (&event.detail, event.event) {
            (EventDetail::Player(id), EventNumber::NEW_PLAYER_IN_GAME) => self.on_listed(PeerId(*id), other),
            (EventDetail::Player(id), EventNumber::DELETE_PLAYER) => self.on_unlisted(PeerId(*id), other),
            _ => other,
        }
    }

    fn on_python_event(&mut self, event: &GameEvent<'_>, other: Event) -> Event {
        if matches!(event.detail, EventDetail::Exploding(_)) {
            Event::ShipExploding { object: event.related, peer: self.remove_ship(event.related) }
        } else {
            other
        }
    }

    fn on_file_check(&mut self, request: &game::ChecksumRequest<'_>) -> Event {
        self.pending_file_check = Some(request.round);
        Event::FileCheck(FileCheck {
            index: request.round,
            directory: request.directory.to_string(),
            filter: request.filter.to_string(),
            recursive: request.flags.has(RequestFlags::RECURSIVE),
        })
    }

    fn on_settings(&mut self, settings: &game::Settings<'_>, now: Time) -> Option<Event> {
        let slot = Some(settings.slot).filter(|slot| usize::from(*slot) < MAX_SLOTS)?;
        self.slot = Some(slot);
        self.game_clock = Some((settings.time, now));
        Some(Event::Settings(GameSettings {
            mission: settings.mission.to_string(),
            slot,
            game_time: settings.time,
            collisions: settings.flags.has(SettingsFlags::COLLISIONS),
            friendly_fire: settings.flags.has(SettingsFlags::FRIENDLY_FIRE),
        }))
    }

    /// S-80: settings must come before a mission is loaded, and it is loaded only once.
    fn on_load(&mut self) -> Option<Event> {
        (self.state == ClientState::Checking && self.slot.is_some()).then(|| {
            self.state = ClientState::Loading;
            Event::Load
        })
    }

    fn on_listed(&mut self, peer: PeerId, other: Event) -> Event {
        let own = peer == self.engine.id();
        let player = self.player_mut(peer);
        let is_new = !std::mem::replace(&mut player.listed, true);
        let name = player.name.clone();
        if own && self.state == ClientState::Entering {
            self.state = ClientState::Lobby;
            self.deadline = None;
            return Event::Entered;
        }
        if is_new && !own { Event::Joined { peer, name } } else { other }
    }

    fn on_unlisted(&mut self, peer: PeerId, other: Event) -> Event {
        match self.players.get_mut(&peer.0).filter(|player| player.listed) {
            Some(player) => {
                player.listed = false;
                Event::Left { peer, name: player.name.clone() }
            }
            None => other,
        }
    }

    fn on_chat(&self, sender: i32, text: Text16<'_>, team: bool) -> Option<Event> {
        let peer = peer_id(sender)?;
        let name = self.players.get(&peer.0).map(|player| player.name.clone()).unwrap_or_default();
        Some(Event::Chat { peer, name, text: text.to_string(), team })
    }

    fn on_score(&mut self, id: i32, score: Score, team: Option<u8>) -> Option<Event> {
        let peer = peer_id(id)?;
        let player = self.player_mut(peer);
        player.score = score;
        player.team = team.or(player.team);
        Some(Event::Score { peer, score })
    }

    fn on_team(&mut self, choice: &game::Team, other: Event) -> Option<Event> {
        self.player_mut(peer_id(choice.peer)?).team = Some(choice.team);
        Some(other)
    }

    fn on_death(&mut self, change: &game::ScoreChange) -> Option<Event> {
        let victim = peer_id(change.victim)?;
        let killer = match change.killer.0 {
            None => None,
            Some(kill) => Some((peer_id(kill.killer.get())?, kill.kills, kill.score)),
        };
        let others = change.players.0.iter().map(|player| Some((peer_id(player.player)?, player.score)));
        let others: Vec<(PeerId, i32)> = others.collect::<Option<_>>()?;
        for (peer, points) in others {
            self.player_mut(peer).score.points = points;
        }
        if let Some((killer, kills, points)) = killer {
            let score = &mut self.player_mut(killer).score;
            (score.kills, score.points) = (kills, points);
        }
        self.player_mut(victim).score.deaths = change.deaths;
        Some(Event::Died { victim, killer: killer.map(|(killer, ..)| killer) })
    }

    fn on_round_end(&mut self, end: &game::EndGame) -> Event {
        self.ships = Default::default();
        self.update_ship_state();
        Event::RoundEnded { reason: end.reason }
    }

    fn on_round_restart(&mut self) -> Event {
        self.ships = Default::default();
        for player in self.players.values_mut() {
            player.score = Score::default();
        }
        self.update_ship_state();
        Event::RoundStarted
    }

    fn on_object_created(
        &mut self,
        slot: u8,
        peer: Option<PeerId>,
        created: &Created<'_>,
        other: Event,
    ) -> Option<Event> {
        let Created::Ship { object, ship } = created else { return Some(other) };
        if object.owner() != Some(slot) {
            return None;
        }
        let position = ship.position;
        let ship = PlayerShip { slot, peer, object: *object, species: ship.species };
        self.add_ship(ship, position);
        Some(Event::ShipCreated(ship))
    }

    /// Stores a ship as the current one of its slot.
    pub(super) fn add_ship(&mut self, ship: PlayerShip, place: [f32; 3]) {
        let slot = usize::from(ship.slot);
        if let (Some(entry), Some(position)) = (self.ships.get_mut(slot), self.positions.get_mut(slot)) {
            (*entry, *position) = (Some(ship), ShipPosition::created_at(place));
        }
        self.update_ship_state();
    }

    /// Removes a ship and returns its owner, if there is such a ship with a known owner.
    fn remove_ship(&mut self, object: ObjectId) -> Option<PeerId> {
        let entry = self.ships.get_mut(usize::from(object.owner()?))?;
        let ship = entry.take_if(|ship| ship.object == object)?;
        self.update_ship_state();
        ship.peer
    }

    /// Sets the state: a client that takes part is in the game with a ship, and in the lobby without one.
    fn update_ship_state(&mut self) {
        if self.has_entered() {
            let ship = self.slot.and_then(|slot| self.ships.get(usize::from(slot))?.as_ref());
            self.state = if ship.is_some() { ClientState::InGame } else { ClientState::Lobby };
        }
    }

    fn player_mut(&mut self, peer: PeerId) -> &mut KnownPlayer {
        self.players.entry(peer.0).or_default()
    }

    /// Counts an anomaly and returns an event at each power of two.
    fn count_anomaly(&mut self, kind: ServerAnomaly) -> Option<Event> {
        self.anomalies += 1;
        let count = self.anomalies;
        count.is_power_of_two().then_some(Event::Anomaly { kind, count })
    }
}

fn files_differ(file: Text16<'_>) -> Option<Event> {
    Some(Event::FilesDiffer { file: file.to_string() })
}

fn peer_id(id: i32) -> Option<PeerId> {
    u8::try_from(id).ok().map(PeerId)
}
