//! What a client makes of what it hears.

use bcnet_transport::wire::PeerId;
use bcnet_transport::{self as transport, Engine, Leave, Time};

use super::event::{Event, Nonsense, Ship, State};
use super::message::{self, Message, ScoreChange};
use super::{Client, Player};
use crate::game::ObjectId;
use crate::message::Score;
use crate::text;

impl<E: Engine> Client<E> {
    /// What the transport tells. `None` if that is nothing for the caller.
    pub(super) fn react(
        &mut self,
        event: transport::Event,
        payload: &mut Vec<u8>,
        now: Time,
    ) -> Option<Event> {
        if let transport::Event::Received { reliable, .. } = event {
            return match message::read(payload) {
                Some(message) => self.hear(message, reliable),
                None => self.wonder(Nonsense::Message(payload.first().copied())),
            };
        }
        let event = match event {
            transport::Event::Joined { peer } if peer == self.engine.id() => self.connected(peer, now),
            transport::Event::Identity { peer, .. } => {
                let name = text::name(payload);
                self.player(peer).name.clone_from(&name);
                Some(Event::Named { peer, name })
            }
            transport::Event::Left { peer, reason } => self.left(peer, reason),
            transport::Event::Rejected { cause, .. } => self.wonder(Nonsense::Datagram(cause)),
            _ => None,
        };
        payload.clear();
        event
    }

    fn connected(&mut self, id: PeerId, now: Time) -> Option<Event> {
        self.state = State::Checking;
        // It was let in a moment ago, so there is somebody to tell; if not, its end is told next.
        let _ = self.identify(now);
        Some(Event::Connected { id })
    }

    fn left(&mut self, peer: PeerId, reason: Leave) -> Option<Event> {
        if peer == PeerId::HOST || peer == self.engine.id() {
            return Some(self.end(reason.into()));
        }
        let player = self.players.remove(&peer.0).unwrap_or_default();
        Some(Event::Disconnected { peer, name: player.name, reason })
    }

    /// A whole game message.
    fn hear(&mut self, message: Message, reliable: bool) -> Option<Event> {
        let other = Event::Received { reliable };
        Some(match message {
            Message::FileCheck(check) => {
                self.asked = Some(check.index);
                Event::FileCheck(check)
            }
            Message::FilesDiffer(file) => Event::FilesDiffer { file },
            Message::FilesPassed => Event::FilesPassed,
            Message::Settings(settings) => {
                self.slot = Some(settings.slot);
                Event::Settings(settings)
            }
            Message::Load if self.state == State::Checking && self.slot.is_some() => {
                self.state = State::Loading;
                Event::Load
            }
            Message::Load => other,
            Message::Mission(mission) => Event::Mission(mission),
            Message::Listed(peer) => self.listed(peer, other),
            Message::Unlisted(peer) => self.unlisted(peer, other),
            Message::Chat { peer, text, team } => {
                let name = self.name_of(peer);
                Event::Chat { peer, name, text, team }
            }
            Message::Score { peer, score, team } => {
                let player = self.player(peer);
                player.score = score;
                player.team = team.or(player.team);
                Event::Score { peer, score }
            }
            Message::TeamScore { team, score } => Event::TeamScore { team, score },
            Message::ScoreChange(change) => self.score_changed(&change),
            Message::End(reason) => {
                self.ships = Default::default();
                self.settle();
                Event::RoundEnded { reason }
            }
            Message::Restart => self.restarted(),
            Message::Created(ship) => self.created(ship),
            Message::Exploding(object) => Event::ShipExploding { object, peer: self.remove_ship(object) },
            Message::Destroyed(object) => Event::ObjectDestroyed { object, peer: self.remove_ship(object) },
            Message::Other => other,
        })
    }

    fn listed(&mut self, peer: PeerId, other: Event) -> Event {
        let own = peer == self.engine.id();
        let player = self.player(peer);
        let newly = !std::mem::replace(&mut player.listed, true);
        let name = player.name.clone();
        match self.state {
            State::Entering if own => {
                self.state = State::Lobby;
                self.deadline = None;
                Event::Entered
            }
            _ if newly && !own => Event::Joined { peer, name },
            _ => other,
        }
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

    fn score_changed(&mut self, change: &ScoreChange) -> Event {
        for (peer, points) in &change.others {
            self.player(*peer).score.points = *points;
        }
        if let Some((killer, kills, points)) = change.killer {
            let score = &mut self.player(killer).score;
            (score.kills, score.points) = (kills, points);
        }
        let (victim, deaths) = change.victim;
        self.player(victim).score.deaths = deaths;
        Event::Died { victim, killer: change.killer.map(|(killer, ..)| killer) }
    }

    fn restarted(&mut self) -> Event {
        self.ships = Default::default();
        for player in self.players.values_mut() {
            player.score = Score::default();
        }
        self.settle();
        Event::RoundStarted
    }

    fn created(&mut self, ship: Ship) -> Event {
        if let Some(place) = self.ships.get_mut(usize::from(ship.slot)) {
            *place = Some(ship);
        }
        self.settle();
        Event::ShipCreated(ship)
    }

    /// A ship is gone. Whose it was, if it was one.
    fn remove_ship(&mut self, object: u32) -> Option<PeerId> {
        let place = self.ships.get_mut(usize::from(ObjectId(object).owner()?))?;
        let ship = place.take_if(|ship| ship.object == object)?;
        self.settle();
        ship.peer
    }

    /// Whoever takes part is in the game with a ship and in the lobby without.
    pub(super) fn settle(&mut self) {
        if self.has_entered() {
            let ship = self.slot.and_then(|slot| self.ships.get(usize::from(slot))?.as_ref());
            self.state = if ship.is_some() { State::InGame } else { State::Lobby };
        }
    }

    fn name_of(&self, peer: PeerId) -> String {
        self.players.get(&peer.0).map(|player| player.name.clone()).unwrap_or_default()
    }

    fn player(&mut self, peer: PeerId) -> &mut Player {
        self.players.entry(peer.0).or_default()
    }

    /// Counts something that makes no sense and tells it now and then.
    fn wonder(&mut self, what: Nonsense) -> Option<Event> {
        self.nonsense += 1;
        let count = self.nonsense;
        count.is_power_of_two().then_some(Event::Nonsense { what, count })
    }
}
