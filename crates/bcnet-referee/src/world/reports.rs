//! Applies the inputs: the reports of players and events of the session.
//!
//! Each input is checked first. A refused input does not change the world.

use super::flight::Shot;
use super::ship::{Gear, Life, Order, Ship};
use super::{MAX_SHIPS, MAX_SHOTS, MAX_SLOTS, World};
use crate::classes::{Arc, PartKind, ShipClass, Weapon};
use crate::input::{Input, Motion, Refusal};
use crate::laws::beam::Level;
use crate::laws::torpedo::Flight;
use crate::projectiles::Projectile;
use crate::vector::{Pose, Vector};
use crate::{ObjectId, Slot};

impl World {
    /// Applies an input to the world, or returns why it is refused.
    pub(super) fn report(&mut self, input: &Input<'_>) -> Result<(), Refusal> {
        match *input {
            Input::Arrive { ship, slot, species, position, rotation } => {
                self.arrive(ship, slot, species, pose(position, rotation))
            }
            Input::Leave { ship } => self.leave(ship),
            Input::Move { ship, motion } => self.relocate(ship, motion),
            Input::StartFire { weapon, target, aim } => self.start_fire(weapon, target, aim),
            Input::StopFire { weapon } => self.stop_fire(weapon),
            Input::Torpedo { tube, kind, direction, target, aim } => {
                self.launch(tube, kind, direction, target, aim)
            }
            Input::Bolt { weapon, direction, target } => self.shoot(weapon, direction, target),
            Input::TorpedoType { system } => self.unload(system),
            Input::Level { system, level } => self.set_level(system, level),
            Input::Power { ship, place, share } => self.set_power(ship, place, share),
            Input::Switch { part, on } => {
                let (ship, part) = self.living_part(part)?;
                self.ships[ship].parts[part].is_on = on;
                Ok(())
            }
            Input::Cloak { ship, on } => {
                let ship = self.find_alive(ship)?;
                self.order_cloak(ship, on)
            }
            Input::Prefer { part } => {
                let (ship, part) = self.part(part)?;
                let ship = &mut self.ships[ship];
                let known = ship.queue.prefer(part as u8, ship.class.repair_teams);
                known.then_some(()).ok_or(Refusal::UnknownPart)
            }
            Input::Collision { reporter, source, target, contacts, force } => {
                self.collide(reporter, source, target, contacts, force)
            }
            Input::SelfDestruct { ship } => {
                let ship = self.find_alive(ship)?;
                self.die(ship, 0, None);
                Ok(())
            }
            Input::Team { slot, team } => {
                *self.teams.get_mut(usize::from(slot.0)).ok_or(Refusal::Full)? = team;
                Ok(())
            }
        }
    }

    fn arrive(&mut self, id: ObjectId, slot: Slot, species: u8, pose: Option<Pose>) -> Result<(), Refusal> {
        let class = ShipClass::of(species).ok_or(Refusal::UnknownClass)?;
        let end = id.0.checked_add(class.parts.len() as u32).ok_or(Refusal::BadNumber)?;
        let overlaps = |ship: &Ship| id.0 <= ship.id.0 + ship.parts.len() as u32 && ship.id.0 <= end;
        let is_full = self.ships.len() == MAX_SHIPS || usize::from(slot.0) >= MAX_SLOTS || id.0 == 0;
        if is_full || self.ships.iter().any(overlaps) {
            return Err(Refusal::Full);
        }
        let mut ship = Ship::new(id, slot, class, pose);
        ship.moved = self.tick;
        self.ships.push(ship);
        Ok(())
    }

    fn leave(&mut self, ship: ObjectId) -> Result<(), Refusal> {
        let ship = self.find(ship)?;
        self.ships.remove(ship);
        Ok(())
    }

    fn relocate(&mut self, ship: ObjectId, motion: Motion) -> Result<(), Refusal> {
        let ship = self.find(ship)?;
        let tick = self.tick;
        let known = self.ships[ship].pose;
        let position = match motion.position {
            Some(position) => Some(vector(position)?),
            None => known.map(|pose| pose.position),
        };
        let axes = match motion.axes {
            Some((forward, up)) => Some((vector(forward)?, vector(up)?)),
            None => known.map(|pose| (pose.forward(), pose.up())),
        };
        let speed = motion.speed.map_or(self.ships[ship].speed, f64::from);
        if !(-MAX_SPEED..=MAX_SPEED).contains(&speed) {
            return Err(Refusal::BadNumber);
        }
        let position = position.ok_or(Refusal::NoPosition)?;
        let (forward, up) = axes.ok_or(Refusal::NoPosition)?;
        let pose = Pose::new(position, forward, up).ok_or(Refusal::BadNumber)?;
        let moved = &mut self.ships[ship];
        (moved.pose, moved.speed, moved.moved) = (Some(pose), speed, tick);
        match motion.cloaked {
            Some(on) if moved.is_alive() && moved.class.first(PartKind::Cloak).is_some() => {
                self.order_cloak(ship, on)
            }
            _ => Ok(()),
        }
    }

    fn start_fire(
        &mut self,
        weapon: ObjectId,
        target: ObjectId,
        aim: Option<[f32; 3]>,
    ) -> Result<(), Refusal> {
        let (ship, part) = self.armed_part(weapon)?;
        let aim = aim.map(vector).transpose()?;
        let target = self.find_target(target).filter(|target| *target != ship).ok_or(Refusal::NoTarget)?;
        let target = self.ships[target].id;
        self.ships[ship].parts[part].order = Some(Order { target, aim });
        Ok(())
    }

    fn stop_fire(&mut self, weapon: ObjectId) -> Result<(), Refusal> {
        let (ship, part) = self.part(weapon)?;
        self.cease_beams(ship, part);
        let ship = &mut self.ships[ship];
        for index in 0..ship.parts.len() {
            if index == part || ship.system_of(index) == part {
                ship.parts[index].order = None;
                if let Gear::Pulse(cannon) = &mut ship.parts[index].gear {
                    cannon.release();
                }
            }
        }
        Ok(())
    }

    fn launch(
        &mut self,
        tube: ObjectId,
        kind: u8,
        direction: [f32; 3],
        target: Option<ObjectId>,
        aim: Option<[f32; 3]>,
    ) -> Result<(), Refusal> {
        let (ship, part) = self.armed_part(tube)?;
        let facts = Projectile::of(kind, self.ships[ship].class.species).ok_or(Refusal::UnknownProjectile)?;
        let shot = self.aimed(ship, part, facts, facts.damage, direction, target, aim)?;
        let Weapon::Tube(tube, _) = self.ships[ship].class.parts[part].weapon else {
            return Err(Refusal::UnknownPart);
        };
        let gear = &mut self.ships[ship].parts[part].gear;
        let launched = if let Gear::Tube(state) = gear { state.launch(tube) } else { false };
        launched.then(|| self.shots.push(shot)).ok_or(Refusal::NotReady)
    }

    fn shoot(
        &mut self,
        weapon: ObjectId,
        direction: [f32; 3],
        target: Option<ObjectId>,
    ) -> Result<(), Refusal> {
        let (ship, part) = self.armed_part(weapon)?;
        let (class, system) = (self.ships[ship].class, self.ships[ship].system_of(part));
        let Weapon::Pulse(facts, _) = class.parts[part].weapon else { return Err(Refusal::UnknownPart) };
        let bolt = Projectile::of(class.bolt, 0).ok_or(Refusal::UnknownProjectile)?;
        let level = self.ships[ship].parts[system].level;
        let damage = bolt.damage * level.bolt_scale();
        let shot = self.aimed(ship, part, bolt, damage, direction, target, None)?;
        let gear = &mut self.ships[ship].parts[part].gear;
        let fired = if let Gear::Pulse(state) = gear { state.fire(facts, level) } else { false };
        fired.then(|| self.shots.push(shot)).ok_or(Refusal::NotReady)
    }

    /// Returns a projectile that starts at the muzzle of a weapon.
    #[allow(clippy::too_many_arguments, reason = "the fields of two messages")]
    fn aimed(
        &self,
        ship: usize,
        part: usize,
        facts: &'static Projectile,
        damage: f64,
        direction: [f32; 3],
        target: Option<ObjectId>,
        aim: Option<[f32; 3]>,
    ) -> Result<Shot, Refusal> {
        let shooter = &self.ships[ship];
        let pose = shooter.pose.ok_or(Refusal::NoPosition)?;
        let direction = vector(direction)?;
        let aim = aim.map(vector).transpose()?;
        let muzzle = pose.to_set(shooter.class.parts[part].muzzle());
        let flight = Flight::new(muzzle, direction).ok_or(Refusal::BadNumber)?;
        if self.shots.len() >= MAX_SHOTS {
            return Err(Refusal::Full);
        }
        let weapon = ObjectId(shooter.id.0 + 1 + part as u32);
        Ok(Shot { facts, damage, flight, shooter: shooter.id, slot: shooter.slot, weapon, target, aim })
    }

    fn unload(&mut self, system: ObjectId) -> Result<(), Refusal> {
        let (ship, system) = self.living_part(system)?;
        let ship = &mut self.ships[ship];
        for index in 0..ship.parts.len() {
            let is_child = ship.system_of(index) == system;
            if let (true, Weapon::Tube(facts, _), Gear::Tube(tube)) =
                (is_child, ship.class.parts[index].weapon, &mut ship.parts[index].gear)
            {
                tube.empty(facts);
            }
        }
        Ok(())
    }

    fn set_level(&mut self, system: ObjectId, level: u8) -> Result<(), Refusal> {
        let (ship, part) = self.living_part(system)?;
        self.ships[ship].parts[part].level = Level::of(level).ok_or(Refusal::BadNumber)?;
        Ok(())
    }

    fn set_power(&mut self, ship: ObjectId, place: u8, share: f32) -> Result<(), Refusal> {
        let ship = self.find_alive(ship)?;
        let part = self.ships[ship].class.listed(place).ok_or(Refusal::UnknownPart)?;
        let share = f64::from(share);
        if !(0.0..=MAX_POWER).contains(&share) {
            return Err(Refusal::BadNumber);
        }
        self.ships[ship].parts[part].power = share;
        Ok(())
    }

    fn order_cloak(&mut self, ship: usize, on: bool) -> Result<(), Refusal> {
        let ship = &mut self.ships[ship];
        ship.class.first(PartKind::Cloak).ok_or(Refusal::UnknownPart)?;
        if on && ship.working(PartKind::Cloak).is_none() {
            return Err(Refusal::OutOfOrder);
        }
        ship.cloak.order(on);
        Ok(())
    }

    fn find_alive(&self, ship: ObjectId) -> Result<usize, Refusal> {
        let ship = self.find(ship)?;
        if self.ships[ship].life == Life::Alive { Ok(ship) } else { Err(Refusal::Dead) }
    }

    fn living_part(&self, part: ObjectId) -> Result<(usize, usize), Refusal> {
        let (ship, part) = self.part(part)?;
        if self.ships[ship].is_alive() { Ok((ship, part)) } else { Err(Refusal::Dead) }
    }

    /// Returns the indexes of the ship and the part of a weapon or weapon system that can fire now.
    ///
    /// The ship must be alive, have a position, and be visible. The part must work and be on.
    fn armed_part(&self, part: ObjectId) -> Result<(usize, usize), Refusal> {
        let (ship, part) = self.living_part(part)?;
        let owner = &self.ships[ship];
        let facts = &owner.class.parts[part];
        if facts.weapon == Weapon::None && facts.kind != PartKind::WeaponSystem {
            Err(Refusal::UnknownPart)
        } else if owner.pose.is_none() {
            Err(Refusal::NoPosition)
        } else if !owner.cloak.allows_fire() {
            Err(Refusal::Cloaked)
        } else if !owner.works(part) {
            Err(Refusal::OutOfOrder)
        } else {
            Ok((ship, part))
        }
    }

    /// Checks whether a stock ship would fire this pulse weapon or torpedo tube now, for simulated players.
    ///
    /// # Errors
    /// Returns the reason why the weapon cannot fire.
    pub fn can_fire(&self, weapon: ObjectId) -> Result<(), Refusal> {
        let (ship, part) = self.armed_part(weapon)?;
        let owner = &self.ships[ship];
        let level = owner.parts[owner.system_of(part)].level;
        let ready = match (&owner.parts[part].gear, owner.class.parts[part].weapon) {
            (Gear::Pulse(cannon), Weapon::Pulse(facts, _)) => cannon.is_ready(facts, level),
            (Gear::Tube(tube), _) => tube.is_ready(),
            _ => return Err(Refusal::UnknownPart),
        };
        ready.then_some(()).ok_or(Refusal::NotReady)
    }
}

/// The highest power setting of a part, as a multiple of its normal power.
const MAX_POWER: f64 = 1.25;
/// The highest speed that the crate accepts: that of a warp, with a tolerance.
const MAX_SPEED: f64 = 1000.0;

/// Returns the vector of a message, or an error if a number is infinite, NaN or too large.
pub(super) fn vector(parts: [f32; 3]) -> Result<Vector, Refusal> {
    let vector = Vector::new(parts.map(f64::from));
    if vector.is_sane() { Ok(vector) } else { Err(Refusal::BadNumber) }
}

/// Returns the pose of a message, unless a number is infinite, NaN or too large.
///
/// The rotation is a quaternion, w first.
fn pose(position: [f32; 3], rotation: [f32; 4]) -> Option<Pose> {
    let position = vector(position).ok()?;
    let [w, x, y, z] = rotation.map(f64::from);
    let forward = Vector::new([2.0 * (x * y - w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z + w * x)]);
    let up = Vector::new([2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)]);
    if forward.is_sane() && up.is_sane() { Pose::new(position, forward, up) } else { None }
}

/// Returns whether a place is inside the arc of a weapon. Muzzle and place are in ship axes.
pub(super) fn reaches(arc: Arc, muzzle: Vector, place: Vector) -> bool {
    arc.contains(place - muzzle)
}
