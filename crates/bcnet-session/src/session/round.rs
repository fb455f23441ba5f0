//! Rounds: their clock, their end, the next one, and the scores.

use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::config::{Config, System};
use crate::event::{EndReason, Event, Summary};
use crate::game::{EndCode, TimeLimit};
use crate::line::Source;
use crate::member::{Member, State};
use crate::message::{self, Score};

/// The round that is played, or was just played.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) number: u32,
    pub(super) system: System,
    /// The system of the settings that the rotation has begun with.
    first: System,
    /// Where the rotation stands.
    turn: usize,
    /// When the first player entered; the clock runs from then on.
    started: Option<Time>,
    /// Its time limit in minutes, and when that is up.
    limit: Option<(u8, Time)>,
    /// When it was over.
    over: Option<Time>,
}

impl Round {
    pub(super) const fn new(system: System) -> Self {
        Self { number: 1, system, first: system, turn: 0, started: None, limit: None, over: None }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Returns when its time is up.
    pub(super) fn ends(&self) -> Option<Time> {
        self.limit.map(|(_, ends)| ends)
    }

    /// S-63: begins the rotation anew if the settings have another system than before. `false` if they have not.
    fn follow(&mut self, system: System) -> bool {
        let is_new = self.first != system;
        if is_new {
            (self.system, self.first, self.turn) = (system, system, 0);
        }
        is_new
    }

    /// Returns when its end, or the next round, is due.
    pub(super) fn due(&self, config: &Config) -> Option<Time> {
        match self.over {
            Some(over) => config.intermission.map(|pause| over + pause),
            None => self.ends(),
        }
    }

    fn next_system(&mut self, config: &Config) {
        if self.follow(config.system) {
            return;
        }
        if let Some(system) = config.rotation.get(self.turn % config.rotation.len().max(1)) {
            self.system = *system;
            self.turn = (self.turn + 1) % config.rotation.len();
        }
    }
}

impl<E: Engine> Session<E> {
    /// The first player enters: time begins to count.
    pub(super) fn start_clock(&mut self, now: Time) {
        if self.round.started.is_none() {
            self.round.started = Some(now);
            self.round.limit = self
                .config
                .minutes()
                .map(|minutes| (minutes, now + Duration::from_secs(60 * u64::from(minutes))));
            self.tell(Event::RoundStarted { round: self.round.number, system: self.round.system });
            self.rearm();
        }
    }

    /// S-60: nobody is left. The round is over, and one that was so already keeps nobody out any longer.
    pub(super) fn stand_still(&mut self, now: Time) {
        if self.round.is_over() {
            self.next_round(now);
        } else if self.round.started.is_some() {
            self.summarise(EndReason::Empty, now);
            self.round.number = self.round.number.wrapping_add(1);
            self.remembered.clear();
        }
        (self.round.started, self.round.limit) = (None, None);
    }

    /// S-63: new settings that those who are here would not hear of are taken over when nobody is.
    pub(super) fn take_over(&mut self) {
        let has_heard = |member: &Member| matches!(member.state, State::Loading { .. } | State::InGame);
        if !self.members.iter().flatten().any(|member| has_heard(member)) {
            self.rules = self.config.rules();
            self.round.follow(self.config.system);
        }
    }

    pub(super) fn serve_round(&mut self, now: Time) {
        if self.round.due(&self.config).is_none_or(|due| due > now) {
            return;
        }
        if self.round.is_over() { self.next_round(now) } else { self.end_round(now) }
    }

    /// S-60: the time is up. Nobody is let in until the next round.
    fn end_round(&mut self, now: Time) {
        self.summarise(EndReason::Time, now);
        self.send_all(Source::HOST, None, &message::end(EndCode::TIME), now);
        self.round.over = Some(now);
        self.forget_ships();
        self.rearm();
    }

    /// S-61: everyone starts anew, in the next system.
    pub(super) fn next_round(&mut self, now: Time) {
        if self.round.started.is_some() && !self.round.is_over() {
            self.summarise(EndReason::Restart, now);
        }
        let before = self.round.system;
        self.round.next_system(&self.config);
        self.round.number = self.round.number.wrapping_add(1);
        (self.round.over, self.round.started, self.round.limit) = (None, None, None);
        self.forget_ships();
        self.remembered.clear();
        for member in self.members.iter_mut().flatten() {
            member.score = Score::default();
            member.played = Duration::ZERO;
            member.entered = member.entered.map(|_| now);
        }
        self.forget_lines();
        self.send_all(Source::HOST, None, &message::RESTART, now);
        if self.in_game.len() > 0 {
            self.start_clock(now);
        }
        // S-62: those who are here learn a new place and a new end; without them nothing has changed.
        if self.round.system != before || self.round.limit.is_some() {
            for peer in self.in_game.iter() {
                self.send_mission(peer, now);
            }
        }
        self.rearm();
    }

    fn forget_ships(&mut self) {
        for member in self.members.iter_mut().flatten() {
            member.ship.forget();
        }
    }

    fn summarise(&mut self, reason: EndReason, now: Time) {
        let mut present: Vec<_> =
            self.members.iter().flatten().filter(|member| member.slot.is_some()).collect();
        present.sort_by_key(|member| member.slot);
        let mut players: Vec<_> = present.iter().filter_map(|member| member.participant(now)).collect();
        players.extend(self.remembered.iter().cloned());
        let (round, system) = (self.round.number, self.round.system);
        let duration = self.round.started.map_or(Duration::ZERO, |started| now.since(started));
        self.tell(Event::RoundEnded { summary: Summary { round, system, duration, reason, players } });
    }

    /// S-30: what is played, where, and until when.
    pub(super) fn send_mission(&mut self, peer: PeerId, now: Time) {
        let time = self.round.limit.map(|(minutes, ends)| {
            let end_time = i32::try_from(ends.since(self.epoch).as_secs()).unwrap_or(i32::MAX);
            TimeLimit { minutes, end_time }
        });
        let system = self.round.system.number();
        self.send(peer, &message::mission_init(&self.config, system, time), now);
    }

    /// S-30: a newcomer learns all scores, its own too, and the others its.
    pub(super) fn send_scores(&mut self, newcomer: PeerId, now: Time) {
        for other in self.in_game.iter() {
            self.send_score(newcomer, other, now);
        }
        self.send_score(newcomer, newcomer, now);
        if self.rules.mission.teams {
            for team in 0..TEAMS {
                let score = self.team_score(team);
                self.send(newcomer, &message::team_score(team, score), now);
            }
        }
        for other in self.in_game.iter() {
            self.send_score(other, newcomer, now);
        }
    }

    fn send_score(&mut self, to: PeerId, of: PeerId, now: Time) {
        let Some((score, team)) = self.member(of).map(|member| (member.score, member.team)) else { return };
        match team {
            _ if !self.rules.mission.teams => self.send_about(of, to, &message::score(of.0, score), now),
            Some(team) => self.send_about(of, to, &message::team_player_score(of.0, score, team), now),
            // Whoever has no team yet will tell it.
            None => {}
        }
    }

    pub(super) fn team_score(&self, team: u8) -> Score {
        let members = self.members.iter().flatten().filter(|member| member.team == Some(team));
        members.fold(Score::default(), |sum, member| Score {
            kills: sum.kills.saturating_add(member.score.kills),
            deaths: sum.deaths.saturating_add(member.score.deaths),
            points: sum.points.saturating_add(member.score.points),
        })
    }
}

const TEAMS: u8 = 2;
