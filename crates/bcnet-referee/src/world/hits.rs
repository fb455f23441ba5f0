//! Hits, collisions and deaths.

use super::World;
use super::reports::vector;
use super::ship::Life;
use crate::classes::PartKind;
use crate::clock::ticks;
use crate::input::Refusal;
use crate::laws::condition::{Status, damage, status};
use crate::laws::score::Damage;
use crate::laws::shield::Ellipsoid;
use crate::laws::{collision, death, footprint};
use crate::ledger::{Cause, Entry};
use crate::vector::Vector;
use crate::{Attacker, Decision, ObjectId, Repair, Slot};

/// A shot that reaches a ship, in the axes of the ship.
pub(super) struct Blow {
    pub(super) attacker: Option<Attacker>,
    pub(super) cause: Cause,
    pub(super) object: ObjectId,
    pub(super) damage: f64,
    pub(super) radius: f64,
    /// True if the hull takes nothing while another part takes something.
    pub(super) spares_hull: bool,
    pub(super) from: Vector,
    pub(super) to: Vector,
}

/// The ticks within which a second collision with the same ship is not believed: 0.5 s.
const COLLISION_PAUSE: u64 = ticks(500_000);

impl World {
    /// Lets a shot hit: first a face, then the parts at the place of impact.
    pub(super) fn strike(&mut self, victim: usize, blow: &Blow) {
        let ship = &mut self.ships[victim];
        let entry = Ellipsoid::of(ship.class).entry(blow.from, blow.to).filter(|_| ship.is_shielded());
        let face = entry.map(|(_, face)| face);
        let absorbed = match face {
            Some(face) if ship.shields.holds(face) => ship.shields.absorb(face, blow.damage),
            _ => 0.0,
        };
        let passed = blow.damage - absorbed;
        let mut parts = 0;
        if passed > 0.0 {
            let place = footprint::impact(ship.class, blow.from, blow.to);
            for part in footprint::touched(ship.class, place, blow.radius) {
                parts |= u64::from(ship.parts[part].points > 0.0) << part;
            }
            if !(blow.spares_hull && parts != 0) {
                parts |= 1;
            }
        }
        if let Some(Attacker { slot, .. }) = blow.attacker {
            ship.account.add(slot, Damage { shields: absorbed, hull: passed });
        }
        let (cause, object) = (blow.cause, blow.object);
        let attacker = blow.attacker.map(|attacker| attacker.slot);
        let (tick, id) = (self.tick, ship.id);
        self.ledger.push(Entry {
            tick,
            attacker,
            victim: id,
            cause,
            object,
            face,
            shields: absorbed,
            passed,
            parts,
        });
        self.hurt(victim, parts, passed, blow.attacker);
    }

    /// Damages parts, given as bits, in the order of the ship; the hull comes last.
    fn hurt(&mut self, victim: usize, parts: u64, points: f64, by: Option<Attacker>) {
        let ship = &mut self.ships[victim];
        let count = ship.parts.len();
        for part in (1..count).chain([0]).filter(|part| parts >> part & 1 == 1) {
            let state = &mut ship.parts[part];
            damage(&mut state.points, points);
            if state.points > 0.0 && ship.queue.add(part as u8) {
                let part = ObjectId(ship.id.0 + 1 + part as u32);
                self.decisions.push(Decision::Repair { part, what: Repair::Queued });
            }
        }
        self.refresh(victim, by);
    }

    /// Finds out which parts fail or work again, and whether the ship dies.
    pub(super) fn refresh(&mut self, ship: usize, by: Option<Attacker>) {
        let victim = &mut self.ships[ship];
        for (index, (state, facts)) in victim.parts.iter_mut().zip(victim.class.parts).enumerate() {
            let now = status(facts, state.points);
            if core::mem::replace(&mut state.status, now) == now {
                continue;
            }
            let part = ObjectId(victim.id.0 + 1 + index as u32);
            self.decisions.push(Decision::Status { part, status: now });
            if now == Status::Destroyed && victim.queue.remove(index as u8) {
                self.decisions.push(Decision::Repair { part, what: Repair::Impossible });
            }
        }
        let generator = victim.class.first(PartKind::Shields);
        if generator.is_some_and(|part| victim.parts[part].status != Status::Working) {
            victim.shields.fail();
        }
        let points = victim.parts.iter().map(|part| part.points);
        let cause = death::cause(victim.class, points).filter(|_| victim.is_alive());
        if let Some(cause) = cause {
            self.die(ship, cause, by);
        }
    }

    /// Lets a ship die.
    pub(super) fn die(&mut self, ship: usize, cause: usize, killer: Option<Attacker>) {
        let tenths = death::duration(&mut self.random);
        let victim = &mut self.ships[ship];
        victim.life = Life::Dying { until: self.tick + ticks(u64::from(tenths) * 100_000) };
        let (id, slot) = (victim.id, victim.slot);
        let account = core::mem::take(&mut victim.account);
        let team = |slot: Slot| self.teams.get(usize::from(slot.0)).copied().flatten();
        let own = team(slot);
        let is_friend = |other: Slot| own.is_some() && team(other) == own;
        let points = account.pay(|attacker| if is_friend(attacker) { -1 } else { 1 });
        let earns = killer.filter(|killer| killer.slot != slot && !is_friend(killer.slot));
        for (attacker, points) in &points {
            if let Some(score) = self.scores.get_mut(usize::from(attacker.0)) {
                score.points = score.points.saturating_add(*points);
            }
        }
        if let Some(score) = self.scores.get_mut(usize::from(slot.0)) {
            score.deaths += 1;
        }
        if let Some(score) = earns.and_then(|killer| self.scores.get_mut(usize::from(killer.slot.0))) {
            score.kills += 1;
        }
        let cause = ObjectId(id.0 + 1 + cause as u32);
        self.decisions.push(Decision::Death { ship: id, slot, killer, cause, tenths, points });
    }

    /// Takes the report of a collision.
    pub(super) fn collide(
        &mut self,
        reporter: Slot,
        source: ObjectId,
        target: ObjectId,
        contacts: &[[f32; 3]],
        force: f32,
    ) -> Result<(), Refusal> {
        let victim = self.find(target)?;
        let other = if source.0 == 0 { None } else { Some(self.find(source)?) };
        if self.ships[victim].slot != reporter || other == Some(victim) {
            return Err(Refusal::ForeignReport);
        }
        if !self.ships[victim].is_alive() {
            return Err(Refusal::Dead);
        }
        let force = f64::from(force);
        if !force.is_finite() || force < 0.0 || contacts.len() > collision::MAX_CONTACTS {
            return Err(Refusal::BadNumber);
        }
        self.check_distance(victim, other)?;
        let tick = self.tick;
        let ship = &self.ships[victim];
        if ship.collided.is_some_and(|(with, at)| with == source && tick - at < COLLISION_PAUSE) {
            return Err(Refusal::TooSoon);
        }
        let parts = self.contact_parts(victim, contacts)?;
        let other_class = other.map(|other| self.ships[other].class);
        let force = force.min(collision::bound(ship.class, other_class));
        let passed = collision::damage(force, ship.class.mass, contacts.len());
        let by = other.map(|other| Attacker { slot: self.ships[other].slot, ship: source });
        self.ships[victim].collided = Some((source, tick));
        if passed > 0.0 {
            let attacker = by.map(|killer| killer.slot);
            let (cause, object) = (Cause::Collision, source);
            let entry = Entry {
                tick,
                attacker,
                victim: target,
                cause,
                object,
                face: None,
                shields: 0.0,
                passed,
                parts,
            };
            self.ledger.push(entry);
            self.hurt(victim, parts, passed, by);
        }
        Ok(())
    }

    fn check_distance(&self, victim: usize, other: Option<usize>) -> Result<(), Refusal> {
        let Some(other) = other else { return Ok(()) };
        let (ship, other) = (&self.ships[victim], &self.ships[other]);
        let (own, place) = ship.pose.zip(other.pose).ok_or(Refusal::NoPosition)?;
        let gap = (own.position - place.position).length() - ship.class.radius() - other.class.radius();
        if gap < collision::MAX_GAP { Ok(()) } else { Err(Refusal::TooFar) }
    }

    /// Returns the parts within reach of the contacts, as bits, with the hull.
    fn contact_parts(&self, victim: usize, contacts: &[[f32; 3]]) -> Result<u64, Refusal> {
        let class = self.ships[victim].class;
        let mut parts = 1;
        for contact in contacts {
            let place = vector(*contact)? * class.radius();
            for part in collision::touched(class, place) {
                parts |= 1 << part;
            }
        }
        Ok(parts)
    }

    /// Damages the hull of a ship without regard to its shields, as scripts of the game can.
    ///
    /// # Errors
    /// There is no such living ship, or the number is out of range.
    pub fn damage_area(&mut self, ship: ObjectId, points: f64) -> Result<(), Refusal> {
        let victim = self.find_target(ship).ok_or(Refusal::UnknownShip)?;
        if !points.is_finite() || points <= 0.0 {
            return Err(Refusal::BadNumber);
        }
        let (tick, object) = (self.tick, ObjectId(0));
        let (cause, passed) = (Cause::Area, points);
        let entry = Entry {
            tick,
            attacker: None,
            victim: ship,
            cause,
            object,
            face: None,
            shields: 0.0,
            passed,
            parts: 1,
        };
        self.ledger.push(entry);
        self.hurt(victim, 1, points, None);
        Ok(())
    }

    /// Removes the ships whose explosion is over.
    pub(super) fn remove_wrecks(&mut self) {
        let tick = self.tick;
        let decisions = &mut self.decisions;
        self.ships.retain(|ship| {
            let is_over = matches!(ship.life, Life::Dying { until } if tick >= until);
            if is_over {
                decisions.push(Decision::Gone { ship: ship.id });
            }
            !is_over
        });
    }
}
