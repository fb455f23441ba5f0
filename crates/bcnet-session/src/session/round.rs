//! Rounds: clock, time limit, rotation of systems, scores and summaries ([S-27], [S-30], [S-60] to [S-63]).
//!
//! [S-27]: bcnet_transport::wire::protocol#s-27
//! [S-30]: bcnet_transport::wire::protocol#s-30
//! [S-60]: bcnet_transport::wire::protocol#s-60
//! [S-63]: bcnet_transport::wire::protocol#s-63

use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::config::{Config, System};
use crate::event::{EndReason, Event, RoundSummary};
use crate::game::{EndCode, TimeLimit};
use crate::member::{Member, MemberState};
use crate::message::{self, Score};
use crate::send_queue::MessageSource;

/// The current round, or the last one until the next begins.
#[derive(Debug)]
pub(super) struct RoundState {
    pub(super) number: u32,
    pub(super) system: System,
    /// The system in the settings when the rotation began.
    rotation_start: System,
    /// The index of the next system in the rotation.
    rotation_index: usize,
    /// The time at which the first player entered; the round's clock runs from then on.
    started: Option<Time>,
    /// The time limit in minutes, and the time at which it is reached.
    time_limit: Option<(u8, Time)>,
    /// The time at which the round ended.
    ended: Option<Time>,
}

impl RoundState {
    pub(super) const fn new(system: System) -> Self {
        Self {
            number: 1,
            system,
            rotation_start: system,
            rotation_index: 0,
            started: None,
            time_limit: None,
            ended: None,
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the time at which the time limit is reached.
    pub(super) fn ends_at(&self) -> Option<Time> {
        self.time_limit.map(|(_, ends)| ends)
    }

    /// S-63: restarts the rotation if the system in the settings has changed. Returns whether it has.
    fn reset_rotation(&mut self, system: System) -> bool {
        let is_new = self.rotation_start != system;
        if is_new {
            (self.system, self.rotation_start, self.rotation_index) = (system, system, 0);
        }
        is_new
    }

    /// Returns the time of the round's end, or of the next round if it has ended.
    pub(super) fn next_deadline(&self, config: &Config) -> Option<Time> {
        match self.ended {
            Some(over) => config.intermission.map(|pause| over + pause),
            None => self.ends_at(),
        }
    }

    fn advance_system(&mut self, config: &Config) {
        if self.reset_rotation(config.system) {
            return;
        }
        if let Some(system) = config.rotation.get(self.rotation_index % config.rotation.len().max(1)) {
            self.system = *system;
            self.rotation_index = (self.rotation_index + 1) % config.rotation.len();
        }
    }
}

impl<E: Engine> Session<E> {
    /// Starts the round's clock when the first player enters.
    pub(super) fn start_round_clock(&mut self, now: Time) {
        if self.round.started.is_none() {
            self.round.started = Some(now);
            self.round.time_limit = self
                .config
                .valid_time_limit()
                .map(|minutes| (minutes, now + Duration::from_secs(60 * u64::from(minutes))));
            self.emit(Event::RoundStarted { round: self.round.number, system: self.round.system });
            self.tell_policy_of_round_start(now);
            self.reschedule();
        }
    }

    /// Ends the round when all players have left, or starts the next one if it was over already (S-60).
    pub(super) fn on_session_empty(&mut self, now: Time) {
        if self.round.is_over() {
            self.next_round(now);
        } else if self.round.started.is_some() {
            self.emit_summary(EndReason::Empty, now);
            self.round.number = self.round.number.wrapping_add(1);
            self.departed.clear();
        }
        (self.round.started, self.round.time_limit) = (None, None);
    }

    /// S-63: applies changed settings when no player is left that has the old ones.
    pub(super) fn apply_pending_settings(&mut self) {
        let knows_rules =
            |member: &Member| matches!(member.state, MemberState::Loading { .. } | MemberState::InGame);
        if !self.members.iter().flatten().any(|member| knows_rules(member)) {
            self.rules = self.config.rules();
            self.round.reset_rotation(self.config.system);
        }
    }

    pub(super) fn check_round_deadline(&mut self, now: Time) {
        if self.round.next_deadline(&self.config).is_none_or(|due| due > now) {
            return;
        }
        if self.round.is_over() {
            self.next_round(now);
        } else {
            self.end_round(EndReason::Time, EndCode::TIME, now);
        }
    }

    /// S-60: ends the round, if one is running. No client is admitted until the next round.
    pub(super) fn end_round(&mut self, reason: EndReason, code: EndCode, now: Time) {
        if self.round.started.is_none() || self.round.is_over() {
            return;
        }
        self.emit_summary(reason, now);
        self.send_all(MessageSource::HOST, None, &message::end_game(code), now);
        self.round.ended = Some(now);
        self.clear_ships();
        self.reschedule();
    }

    /// S-61: starts the next round, in the next system and with new scores.
    pub(super) fn next_round(&mut self, now: Time) {
        if self.round.started.is_some() && !self.round.is_over() {
            self.emit_summary(EndReason::Restart, now);
        }
        let before = self.round.system;
        self.round.advance_system(&self.config);
        self.round.number = self.round.number.wrapping_add(1);
        (self.round.ended, self.round.started, self.round.time_limit) = (None, None, None);
        self.clear_ships();
        self.departed.clear();
        for member in self.members.iter_mut().flatten() {
            member.score = Score::default();
            member.played = Duration::ZERO;
            member.entered = member.entered.map(|_| now);
        }
        self.drop_queued_bulk();
        self.send_all(MessageSource::HOST, None, &message::RESTART_GAME, now);
        if self.in_game.len() > 0 {
            self.start_round_clock(now);
        }
        // S-62: players get the mission again only if the system has changed or the round has a time limit.
        if self.round.system != before || self.round.time_limit.is_some() {
            for peer in self.in_game.iter() {
                self.send_mission(peer, now);
            }
        }
        self.reschedule();
    }

    fn clear_ships(&mut self) {
        for member in self.members.iter_mut().flatten() {
            member.ship.mark_destroyed();
        }
    }

    fn emit_summary(&mut self, reason: EndReason, now: Time) {
        let mut present: Vec<_> =
            self.members.iter().flatten().filter(|member| member.slot.is_some()).collect();
        present.sort_by_key(|member| member.slot);
        let mut players: Vec<_> = present.iter().filter_map(|member| member.participant(now)).collect();
        players.extend(self.departed.iter().cloned());
        let (round, system) = (self.round.number, self.round.system);
        let duration = self.round.started.map_or(Duration::ZERO, |started| now.since(started));
        self.emit(Event::RoundEnded { summary: RoundSummary { round, system, duration, reason, players } });
        self.tell_policy_of_round_end(reason, now);
    }

    /// S-30: sends the message with the system and the limits of the round.
    pub(super) fn send_mission(&mut self, peer: PeerId, now: Time) {
        let time = self.round.time_limit.map(|(minutes, ends)| {
            let end_time = i32::try_from(ends.since(self.epoch).as_secs()).unwrap_or(i32::MAX);
            TimeLimit { minutes, end_time }
        });
        let system = self.round.system.number();
        self.send(peer, &message::mission_init(&self.config, system, time), now);
    }

    /// Sends all scores to a new player, and that player's score to the others (S-30).
    pub(super) fn send_scores(&mut self, new_player: PeerId, now: Time) {
        for other in self.in_game.iter() {
            self.send_score(new_player, other, now);
        }
        self.send_score(new_player, new_player, now);
        if self.rules.mission.teams {
            for team in 0..TEAM_COUNT {
                let score = self.team_score(team);
                self.send(new_player, &message::team_score(team, score), now);
            }
        }
        for other in self.in_game.iter() {
            self.send_score(other, new_player, now);
        }
    }

    fn send_score(&mut self, to: PeerId, of: PeerId, now: Time) {
        let Some((score, team)) = self.member(of).map(|member| (member.score, member.team)) else { return };
        match team {
            _ if !self.rules.mission.teams => self.send_about(of, to, &message::score(of.0, score), now),
            Some(team) => self.send_about(of, to, &message::team_player_score(of.0, score, team), now),
            // S-30: in team missions, the score of a player without a team is not sent.
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

const TEAM_COUNT: u8 = 2;
