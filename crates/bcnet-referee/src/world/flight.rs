//! Projectiles in flight.

use super::World;
use super::hits::Blow;
use super::ship::Ship;
use crate::laws::footprint::meets;
use crate::laws::shield::Ellipsoid;
use crate::laws::torpedo::Flight;
use crate::ledger::Cause;
use crate::projectiles::Projectile;
use crate::vector::Vector;
use crate::{Attacker, ObjectId, Slot};

/// A projectile in flight.
#[derive(Debug)]
pub(super) struct Shot {
    pub(super) facts: &'static Projectile,
    pub(super) damage: f64,
    pub(super) flight: Flight,
    pub(super) shooter: ObjectId,
    pub(super) slot: Slot,
    pub(super) weapon: ObjectId,
    pub(super) target: Option<ObjectId>,
    /// The aim point in the axes of the target.
    pub(super) aim: Option<Vector>,
}

impl World {
    /// Moves all projectiles for one tick, and lets them hit.
    pub(super) fn fly_shots(&mut self) {
        let mut at = 0;
        while at < self.shots.len() {
            let shot = &self.shots[at];
            let target = shot.target.and_then(|target| self.find_target(target));
            let goal = target.map(|target| self.aim_point(target, shot.aim));
            let shot = &mut self.shots[at];
            let before = shot.flight.position;
            shot.flight.tick(shot.facts, goal);
            let (after, is_over) = (shot.flight.position, shot.flight.is_over(shot.facts));
            let hit = self.first_hit(at, before, after);
            if hit.is_none() && !is_over {
                at += 1;
                continue;
            }
            let shot = self.shots.remove(at);
            if let Some(victim) = hit {
                self.land(victim, &shot, before, after);
            }
        }
    }

    /// Returns the first ship that a projectile meets on its way.
    fn first_hit(&self, shot: usize, before: Vector, after: Vector) -> Option<usize> {
        let shooter = self.shots[shot].shooter;
        let others = self.ships.iter().enumerate().filter(|(_, ship)| ship.is_alive() && ship.id != shooter);
        let met = others.filter_map(|(index, ship)| Some((index, way_to(ship, before, after)?)));
        met.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index)
    }

    fn land(&mut self, victim: usize, shot: &Shot, before: Vector, after: Vector) {
        let Some(pose) = self.ships[victim].pose else { return };
        let blow = Blow {
            attacker: Some(Attacker { slot: shot.slot, ship: shot.shooter }),
            cause: Cause::Projectile(shot.facts.row),
            object: shot.weapon,
            damage: shot.damage,
            radius: shot.facts.radius,
            spares_hull: false,
            from: pose.to_ship(before),
            to: pose.to_ship(after),
        };
        self.strike(victim, &blow);
    }
}

/// Returns how far a projectile flies until it meets the shields or the body of a ship, if it does.
fn way_to(ship: &Ship, before: Vector, after: Vector) -> Option<f64> {
    let pose = ship.pose?;
    let step = (after - before).length();
    // The shields reach farther than the bounding sphere.
    if (before - pose.position).length() > 3.0 * ship.class.radius() + step {
        return None;
    }
    let (from, to) = (pose.to_ship(before), pose.to_ship(after));
    if ship.is_shielded()
        && let Some((place, face)) = Ellipsoid::of(ship.class).entry(from, to)
        && ship.shields.holds(face)
    {
        return Some((place - from).length());
    }
    let direction = (to - from).unit()?;
    meets(ship.class, from, direction).filter(|way| *way <= step)
}
