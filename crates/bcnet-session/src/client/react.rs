//! What a client makes of what it hears.

use bcnet_transport::wire::PeerId;
use bcnet_transport::{self as transport, Engine, Leave, Time};

use super::event::{Event, FileCheck, GameSettings, Nonsense, PlayerShip, State};
use super::{Client, Player};
use crate::config::MAX_SLOTS;
use crate::game::{
    self, Created, Detail, EventNumber, GameError, GameEvent, ObjectId, Opcode, RequestFlags, SettingsFlags,
    Text16, read_fields,
};
use crate::message::Score;
use crate::text;

impl<E: Engine> Client<E> {
    /// Returns what the transport tells. `None` if that is nothing for the caller.
    pub(super) fn react(
        &mut self,
        event: transport::Event,
        payload: &mut Vec<u8>,
        now: Time,
    ) -> Option<Event> {
        let event = match event {
            transport::Event::Received { reliable, .. } => {
                let heard = self.hear(payload, Event::Received { reliable }, now);
                return heard.map_or_else(|nonsense| self.count(nonsense), Some);
            }
            transport::Event::Joined { peer } if peer == self.engine.id() => Some(self.connected(peer, now)),
            transport::Event::Identity { peer, .. } => {
                let name = text::name(payload);
                self.player(peer).name.clone_from(&name);
                Some(Event::Named { peer, name })
            }
            transport::Event::Left { peer, reason } => Some(self.left(peer, reason)),
            transport::Event::Rejected { cause, .. } => self.count(Nonsense::Datagram(cause)),
            // Others are the host's business, and browsers do not ask clients.
            transport::Event::Joined { .. }
            | transport::Event::Request { .. }
            | transport::Event::Query { .. } => None,
        };
        payload.clear();
        event
    }

    fn connected(&mut self, id: PeerId, now: Time) -> Event {
        self.state = State::Checking;
        // It was let in a moment ago, so there is a host to tell; if not, its end is told next.
        let _ = self.identify(now);
        Event::Connected { id }
    }

    fn left(&mut self, peer: PeerId, reason: Leave) -> Event {
        if peer == PeerId::HOST || peer == self.engine.id() {
            return self.finish(reason.into());
        }
        let player = self.players.remove(&peer.0).unwrap_or_default();
        Event::Disconnected { peer, name: player.name, reason, listed: player.listed }
    }

    /// A game message. `other` is what to tell of one that says nothing new, or nothing that a client keeps.
    fn hear(&mut self, payload: &[u8], other: Event, now: Time) -> Result<Event, Nonsense> {
        let opcode = Opcode::of(payload).ok_or(Nonsense::Malformed(GameError::EMPTY))?;
        let told = self.take(opcode, payload, other, now).map_err(Nonsense::Malformed)?;
        told.ok_or(Nonsense::Impossible(opcode))
    }

    /// Returns what a game message tells. `None` if it speaks of what cannot be.
    ///
    /// Only what is looked into here must be whole: mods have messages of their own, and the caller gets them as they are.
    fn take(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        other: Event,
        now: Time,
    ) -> Result<Option<Event>, GameError> {
        Ok(match opcode {
            Opcode::CHECKSUM_REQUEST => Some(self.asked(&read_fields(payload)?)),
            Opcode::CHECKSUM_FAILURE => files_differ(read_fields::<game::ChecksumFailure<'_>>(payload)?.file),
            Opcode::VERSION_DIFFERENT => {
                files_differ(read_fields::<game::VersionDifferent<'_>>(payload)?.file)
            }
            Opcode::CHECKSUM_COMPLETE => Some(Event::FilesPassed),
            Opcode::SETTINGS => self.set(&read_fields(payload)?, now),
            Opcode::GAME_INIT => self.load(),
            Opcode::MISSION_INIT => Some(Event::Mission(read_fields(payload)?)),
            Opcode::PLAYER_LIST_EVENT => Some(self.list_changed(&read_fields(payload)?, other)),
            Opcode::CHAT => {
                let game::Chat { sender, text } = read_fields(payload)?;
                self.chatted(sender, text, false)
            }
            Opcode::TEAM_CHAT => {
                let game::TeamChat { sender, text } = read_fields(payload)?;
                self.chatted(sender, text, true)
            }
            Opcode::SCORE => {
                let game::Score { peer, kills, deaths, score } = read_fields(payload)?;
                self.scored(peer, Score { kills, deaths, points: score }, None)
            }
            Opcode::SCORE_INIT => {
                let game::ScoreInit { peer, kills, deaths, score, team } = read_fields(payload)?;
                self.scored(peer, Score { kills, deaths, points: score }, Some(team))
            }
            Opcode::TEAM_SCORE => {
                let game::TeamScore { team, kills, score } = read_fields(payload)?;
                Some(Event::TeamScore { team, score: Score { kills, deaths: 0, points: score } })
            }
            Opcode::TEAM => self.chose(&read_fields(payload)?, other),
            Opcode::SCORE_CHANGE => self.died(&read_fields(payload)?),
            Opcode::END_GAME => Some(self.ended(&read_fields(payload)?)),
            Opcode::RESTART_GAME => Some(self.restarted()),
            Opcode::OBJECT_CREATE => {
                let game::ObjectCreate { slot, object } = read_fields(payload)?;
                self.created(slot, None, &object, other)
            }
            Opcode::OBJECT_CREATE_TEAM => {
                let game::ObjectCreateTeam { slot, peer, object } = read_fields(payload)?;
                self.created(slot, Some(PeerId(peer)), &object, other)
            }
            Opcode::PYTHON_EVENT => Some(self.happened(&read_fields(payload)?, other)),
            Opcode::DESTROY_OBJECT => {
                let game::DestroyObject { object } = read_fields(payload)?;
                Some(Event::ObjectDestroyed { object, peer: self.remove_ship(object) })
            }
            _ => Some(other),
        })
    }

    /// The list of players has changed, or so the server says.
    fn list_changed(&mut self, event: &GameEvent<'_>, other: Event) -> Event {
        match (&event.detail, event.event) {
            (Detail::Player(id), EventNumber::NEW_PLAYER_IN_GAME) => self.listed(PeerId(*id), other),
            (Detail::Player(id), EventNumber::DELETE_PLAYER) => self.unlisted(PeerId(*id), other),
            _ => other,
        }
    }

    fn happened(&mut self, event: &GameEvent<'_>, other: Event) -> Event {
        if matches!(event.detail, Detail::Exploding(_)) {
            Event::ShipExploding { object: event.related, peer: self.remove_ship(event.related) }
        } else {
            other
        }
    }

    fn asked(&mut self, request: &game::ChecksumRequest<'_>) -> Event {
        self.asked = Some(request.round);
        Event::FileCheck(FileCheck {
            index: request.round,
            directory: request.directory.to_string(),
            filter: request.filter.to_string(),
            recursive: request.flags.has(RequestFlags::RECURSIVE),
        })
    }

    fn set(&mut self, told: &game::Settings<'_>, now: Time) -> Option<Event> {
        let slot = Some(told.slot).filter(|slot| usize::from(*slot) < MAX_SLOTS)?;
        self.slot = Some(slot);
        self.game_clock = Some((told.time, now));
        Some(Event::Settings(GameSettings {
            mission: told.mission.to_string(),
            slot,
            game_time: told.time,
            collisions: told.flags.has(SettingsFlags::COLLISIONS),
            friendly_fire: told.flags.has(SettingsFlags::FRIENDLY_FIRE),
        }))
    }

    /// S-80: without settings nobody knows what to load, and nothing is loaded twice.
    fn load(&mut self) -> Option<Event> {
        (self.state == State::Checking && self.slot.is_some()).then(|| {
            self.state = State::Loading;
            Event::Load
        })
    }

    fn listed(&mut self, peer: PeerId, other: Event) -> Event {
        let own = peer == self.engine.id();
        let player = self.player(peer);
        let newly = !std::mem::replace(&mut player.listed, true);
        let name = player.name.clone();
        if own && self.state == State::Entering {
            self.state = State::Lobby;
            self.deadline = None;
            return Event::Entered;
        }
        if newly && !own { Event::Joined { peer, name } } else { other }
    }

    fn unlisted(&mut self, peer: PeerId, other: Event) -> Event {
        match self.players.get_mut(&peer.0).filter(|player| player.listed) {
            Some(player) => {
                player.listed = false;
                Event::Left { peer, name: player.name.clone() }
            }
            None => other,
        }
    }

    fn chatted(&self, sender: i32, text: Text16<'_>, team: bool) -> Option<Event> {
        let peer = peer(sender)?;
        let name = self.players.get(&peer.0).map(|player| player.name.clone()).unwrap_or_default();
        Some(Event::Chat { peer, name, text: text.to_string(), team })
    }

    fn scored(&mut self, id: i32, score: Score, team: Option<u8>) -> Option<Event> {
        let peer = peer(id)?;
        let player = self.player(peer);
        player.score = score;
        player.team = team.or(player.team);
        Some(Event::Score { peer, score })
    }

    fn chose(&mut self, choice: &game::Team, other: Event) -> Option<Event> {
        self.player(peer(choice.peer)?).team = Some(choice.team);
        Some(other)
    }

    fn died(&mut self, change: &game::ScoreChange) -> Option<Event> {
        let victim = peer(change.victim)?;
        let killer = match change.killer.0 {
            None => None,
            Some(kill) => Some((peer(kill.killer.get())?, kill.kills, kill.score)),
        };
        let others = change.players.0.iter().map(|player| Some((peer(player.player)?, player.score)));
        let others: Vec<(PeerId, i32)> = others.collect::<Option<_>>()?;
        for (peer, points) in others {
            self.player(peer).score.points = points;
        }
        if let Some((killer, kills, points)) = killer {
            let score = &mut self.player(killer).score;
            (score.kills, score.points) = (kills, points);
        }
        self.player(victim).score.deaths = change.deaths;
        Some(Event::Died { victim, killer: killer.map(|(killer, ..)| killer) })
    }

    fn ended(&mut self, end: &game::EndGame) -> Event {
        self.ships = Default::default();
        self.settle();
        Event::RoundEnded { reason: end.reason }
    }

    fn restarted(&mut self) -> Event {
        self.ships = Default::default();
        for player in self.players.values_mut() {
            player.score = Score::default();
        }
        self.settle();
        Event::RoundStarted
    }

    fn created(&mut self, slot: u8, peer: Option<PeerId>, made: &Created<'_>, other: Event) -> Option<Event> {
        let Created::Ship { object, ship } = made else { return Some(other) };
        if object.owner() != Some(slot) {
            return None;
        }
        let ship = PlayerShip { slot, peer, object: *object, species: ship.species };
        self.put_ship(ship);
        Some(Event::ShipCreated(ship))
    }

    /// A ship is there.
    pub(super) fn put_ship(&mut self, ship: PlayerShip) {
        if let Some(place) = self.ships.get_mut(usize::from(ship.slot)) {
            *place = Some(ship);
        }
        self.settle();
    }

    /// A ship is gone. Returns whose it was, if it was one.
    fn remove_ship(&mut self, object: ObjectId) -> Option<PeerId> {
        let place = self.ships.get_mut(usize::from(object.owner()?))?;
        let ship = place.take_if(|ship| ship.object == object)?;
        self.settle();
        ship.peer
    }

    /// Whoever takes part is in the game with a ship and in the lobby without.
    fn settle(&mut self) {
        if self.has_entered() {
            let ship = self.slot.and_then(|slot| self.ships.get(usize::from(slot))?.as_ref());
            self.state = if ship.is_some() { State::InGame } else { State::Lobby };
        }
    }

    fn player(&mut self, peer: PeerId) -> &mut Player {
        self.players.entry(peer.0).or_default()
    }

    /// Counts something that makes no sense and tells it now and then.
    fn count(&mut self, what: Nonsense) -> Option<Event> {
        self.nonsense += 1;
        let count = self.nonsense;
        count.is_power_of_two().then_some(Event::Nonsense { what, count })
    }
}

fn files_differ(file: Text16<'_>) -> Option<Event> {
    Some(Event::FilesDiffer { file: file.to_string() })
}

fn peer(id: i32) -> Option<PeerId> {
    u8::try_from(id).ok().map(PeerId)
}
