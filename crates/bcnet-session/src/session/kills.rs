//! Kill credits: a guess which player destroyed a ship ([S-45]).
//!
//! The server sees the target of each shot and the creation of each ship; it simulates no damage. Credits are given
//! only if the settings ask for them.
//!
//! [S-45]: bcnet_transport::wire::protocol#s-45

use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::game;
use crate::member::{Member, Shot};
use crate::message;

impl<E: Engine> Session<E> {
    /// Records a shot at its target, if the target is the living ship of an enemy in the game.
    #[inline(never)]
    pub(super) fn record_shot(&mut self, by: PeerId, payload: &[u8], now: Time) {
        let Some(target) = game::shot_target(payload) else { return };
        let Some(shooter) = self.member(by).filter(|member| member.ship.alive) else { return };
        let is_hit = |member: &Member| member.ship.alive && member.ship.object == target;
        let is_victim =
            |member: &Member| is_hit(member) && member.id != by && self.are_enemies(shooter, member);
        let victim = self.in_game.iter().find(|peer| self.member(*peer).is_some_and(is_victim));
        if let Some(victim) = victim.and_then(|victim| self.member_mut(victim)) {
            victim.ship.last_shot = Some(Shot { by, fired_at: now });
        }
    }

    /// Returns whether two players are enemies. In team missions, both teams must be known and different.
    fn are_enemies(&self, one: &Member, other: &Member) -> bool {
        !self.rules.mission.teams || one.team.zip(other.team).is_some_and(|(one, other)| one != other)
    }

    /// Credits a kill for a ship that was shot at, was never declared dead, and was replaced by a new one.
    pub(super) fn credit_kill(&mut self, shot: Shot, victim: PeerId, now: Time) {
        if !self.config.credit_last_shot || now.since(shot.fired_at) > KILL_CREDIT_WINDOW {
            return;
        }
        let Some(killer) = self.member_mut(shot.by) else { return };
        killer.score.kills = killer.score.kills.saturating_add(1);
        let (score, team) = (killer.score, killer.team);
        let Some(loser) = self.member_mut(victim) else { return };
        loser.score.deaths = loser.score.deaths.saturating_add(1);
        let (deaths, source) = (loser.score.deaths, self.source_of(victim));
        self.send_all(source, None, &message::ship_killed(shot.by.0, score, victim.0, deaths), now);
        if let Some(team) = team.filter(|_| self.rules.mission.teams) {
            let score = self.team_score(team);
            self.send_all(source, None, &message::team_score(team, score), now);
        }
    }

    /// Clears the shots of a player that has left. The next player with its id must get no credit for them.
    pub(super) fn clear_shots_of(&mut self, by: PeerId) {
        if self.config.credit_last_shot {
            self.clear_shots(|shot| shot.by == by);
        }
    }

    /// Clears all shots when credits are switched off. Without shots, leaving needs no scan for them.
    pub(super) fn clear_all_shots(&mut self) {
        self.clear_shots(|_| true);
    }

    fn clear_shots(&mut self, is_cleared: impl Fn(&Shot) -> bool) {
        for member in self.members.iter_mut().flatten() {
            member.ship.last_shot.take_if(|shot| is_cleared(shot));
        }
    }
}

/// The longest time between a shot and the new ship of its target.
///
/// A torpedo flies for some seconds, a ship explodes for 9.5 seconds, and its owner takes up to 15 to choose another.
const KILL_CREDIT_WINDOW: Duration = Duration::from_secs(30);
