//! Who is said to have destroyed a ship (S-45). The server sees what is fired at whom and who takes a new ship; the rest is a
//! guess, and only made if the settings ask for it.

use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Engine, Time};

use super::Session;
use crate::game;
use crate::member::{Member, Shot};
use crate::message;

impl<E: Engine> Session<E> {
    /// A player has fired one of its own weapons. What it fires at remembers that, if it is the living ship of an enemy.
    #[inline(never)]
    pub(super) fn note_shot(&mut self, by: PeerId, payload: &[u8], now: Time) {
        let Some(target) = game::target(payload) else { return };
        let Some(shooter) = self.member(by).filter(|member| member.ship.alive) else { return };
        let is_hit = |member: &Member| member.ship.alive && member.ship.object == target;
        let is_victim =
            |member: &Member| is_hit(member) && member.id != by && self.are_enemies(shooter, member);
        let victim = self.in_game.iter().find(|peer| self.member(*peer).is_some_and(is_victim));
        if let Some(victim) = victim.and_then(|victim| self.member_mut(victim)) {
            victim.ship.shot = Some(Shot { by, at: now });
        }
    }

    /// In team missions those of whom it is known that they are in different teams.
    fn are_enemies(&self, one: &Member, other: &Member) -> bool {
        !self.rules.mission.teams || one.team.zip(other.team).is_some_and(|(one, other)| one != other)
    }

    /// A player has a new ship and never told what became of the last, which was fired at: that was its end.
    pub(super) fn credit(&mut self, shot: Shot, victim: PeerId, now: Time) {
        if !self.config.credit_last_shot || now.since(shot.at) > FATAL_FOR {
            return;
        }
        let Some(killer) = self.member_mut(shot.by) else { return };
        killer.score.kills = killer.score.kills.saturating_add(1);
        let (score, team) = (killer.score, killer.team);
        let Some(lost) = self.member_mut(victim) else { return };
        lost.score.deaths = lost.score.deaths.saturating_add(1);
        let (deaths, source) = (lost.score.deaths, self.source(victim));
        self.send_all(source, None, &message::killed(shot.by.0, score, victim.0, deaths), now);
        if let Some(team) = team.filter(|_| self.rules.mission.teams) {
            let score = self.team_score(team);
            self.send_all(source, None, &message::team_score(team, score), now);
        }
    }

    /// Whoever gets the id of a player that has left has fired at nobody.
    pub(super) fn forget_shots_of(&mut self, by: PeerId) {
        if self.config.credit_last_shot {
            self.forget_shots(|shot| shot.by == by);
        }
    }

    /// No shots are kept while none counts, so that nobody has to look for them.
    pub(super) fn forget_all_shots(&mut self) {
        self.forget_shots(|_| true);
    }

    fn forget_shots(&mut self, is_meant: impl Fn(&Shot) -> bool) {
        for member in self.members.iter_mut().flatten() {
            member.ship.shot.take_if(|shot| is_meant(shot));
        }
    }
}

/// How long before its owner has a new ship a shot can have destroyed the old one: a torpedo flies for some seconds, the ship
/// explodes for 9.5, and its owner takes up to 15 to choose another.
const FATAL_FOR: Duration = Duration::from_secs(30);
