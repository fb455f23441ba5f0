//! What a client makes of what it hears.

use bcnet_transport::wire::PeerId;
use bcnet_transport::{self as transport, Engine, Leave, Time};

use super::event::{Event, FileCheck, Nonsense, Settings, Ship, State};
use super::{Client, Player};
use crate::config::MAX_SLOTS;
use crate::game::{
    self, Created, Detail, EventNumber, Message, ObjectId, Opcode, RequestFlags, SettingsFlags, Text16,
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
                let heard = self.hear(payload, Event::Received { reliable });
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
            return self.end(reason.into());
        }
        let player = self.players.remove(&peer.0).unwrap_or_default();
        Event::Disconnected { peer, name: player.name, reason, listed: player.listed }
    }

    /// A game message. `other` is what to tell of one that says nothing new, or nothing that a client keeps.
    fn hear(&mut self, payload: &[u8], other: Event) -> Result<Event, Nonsense> {
        if Opcode::of(payload).is_some_and(|opcode| !is_looked_into(opcode)) {
            return Ok(other);
        }
        let (message, _) = Message::parse_prefix(payload).map_err(Nonsense::Malformed)?;
        let opcode = message.opcode();
        self.take(message, other).ok_or(Nonsense::Impossible(opcode))
    }

    /// A whole game message. `None` if it speaks of what cannot be.
    fn take(&mut self, message: Message<'_>, other: Event) -> Option<Event> {
        Some(match message {
            Message::ChecksumRequest(request) => self.asked(&request),
            Message::ChecksumFailure(game::ChecksumFailure { file })
            | Message::VersionDifferent(game::VersionDifferent { file }) => {
                Event::FilesDiffer { file: file.to_string() }
            }
            Message::ChecksumComplete(_) => Event::FilesPassed,
            Message::Settings(settings) => self.set(&settings)?,
            Message::GameInit(_) => return self.load(),
            Message::MissionInit(mission) => Event::Mission(mission),
            Message::PlayerListEvent(event) => match (event.detail, event.event) {
                (Detail::Player(id), EventNumber::NEW_PLAYER_IN_GAME) => self.listed(PeerId(id), other),
                (Detail::Player(id), EventNumber::DELETE_PLAYER) => self.unlisted(PeerId(id), other),
                _ => other,
            },
            Message::Chat(chat) => self.chatted(peer(chat.sender)?, chat.text, false),
            Message::TeamChat(chat) => self.chatted(peer(chat.sender)?, chat.text, true),
            Message::Score(game::Score { peer: id, kills, deaths, score }) => {
                self.scored(peer(id)?, Score { kills, deaths, points: score }, None)
            }
            Message::ScoreInit(game::ScoreInit { peer: id, kills, deaths, score, team }) => {
                self.scored(peer(id)?, Score { kills, deaths, points: score }, Some(team))
            }
            Message::TeamScore(game::TeamScore { team, kills, score }) => {
                Event::TeamScore { team, score: Score { kills, deaths: 0, points: score } }
            }
            Message::ScoreChange(change) => self.died(&change)?,
            Message::EndGame(game::EndGame { reason }) => {
                self.ships = Default::default();
                self.settle();
                Event::RoundEnded { reason }
            }
            Message::RestartGame(_) => self.restarted(),
            Message::ObjectCreate(made) => self.created(made.slot, None, &made.object, other)?,
            Message::ObjectCreateTeam(made) => {
                self.created(made.slot, Some(PeerId(made.peer)), &made.object, other)?
            }
            Message::PythonEvent(event) if matches!(event.detail, Detail::Exploding(_)) => {
                Event::ShipExploding { object: event.related, peer: self.remove_ship(event.related) }
            }
            Message::DestroyObject(game::DestroyObject { object }) => {
                Event::ObjectDestroyed { object, peer: self.remove_ship(object) }
            }
            _ => other,
        })
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

    fn set(&mut self, told: &game::Settings<'_>) -> Option<Event> {
        let slot = Some(told.slot).filter(|slot| usize::from(*slot) < MAX_SLOTS)?;
        self.slot = Some(slot);
        Some(Event::Settings(Settings {
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

    fn chatted(&self, peer: PeerId, text: Text16<'_>, team: bool) -> Event {
        let name = self.players.get(&peer.0).map(|player| player.name.clone()).unwrap_or_default();
        Event::Chat { peer, name, text: text.to_string(), team }
    }

    fn scored(&mut self, peer: PeerId, score: Score, team: Option<u8>) -> Event {
        let player = self.player(peer);
        player.score = score;
        player.team = team.or(player.team);
        Event::Score { peer, score }
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
        let ship = Ship { slot, peer, object: *object, species: ship.species };
        self.put_ship(ship);
        Some(Event::ShipCreated(ship))
    }

    /// A ship is there.
    pub(super) fn put_ship(&mut self, ship: Ship) {
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

/// Of other messages it does not matter whether they are whole: mods have their own, and the caller gets them as they are.
const fn is_looked_into(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::CHECKSUM_REQUEST
            | Opcode::CHECKSUM_FAILURE
            | Opcode::VERSION_DIFFERENT
            | Opcode::CHECKSUM_COMPLETE
            | Opcode::SETTINGS
            | Opcode::GAME_INIT
            | Opcode::MISSION_INIT
            | Opcode::PLAYER_LIST_EVENT
            | Opcode::CHAT
            | Opcode::TEAM_CHAT
            | Opcode::SCORE
            | Opcode::SCORE_INIT
            | Opcode::TEAM_SCORE
            | Opcode::SCORE_CHANGE
            | Opcode::END_GAME
            | Opcode::RESTART_GAME
            | Opcode::OBJECT_CREATE
            | Opcode::OBJECT_CREATE_TEAM
            | Opcode::PYTHON_EVENT
            | Opcode::DESTROY_OBJECT
    )
}

fn peer(id: i32) -> Option<PeerId> {
    u8::try_from(id).ok().map(PeerId)
}
