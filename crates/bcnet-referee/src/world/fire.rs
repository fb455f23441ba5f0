//! Beams and tractor beams: which of them fire in a tick.

use alloc::vec::Vec;

use super::World;
use super::hits::Blow;
use super::reports::reaches;
use super::ship::{Gear, Order};
use crate::classes::{Arc, BeamFacts, PartKind, Weapon};
use crate::clock::SUBSYSTEM_STEP;
use crate::laws::beam::{Level, rate};
use crate::laws::footprint::{default_aim, impact};
use crate::laws::shield::Ellipsoid;
use crate::laws::tractor;
use crate::ledger::Cause;
use crate::vector::Vector;
use crate::{Attacker, Decision, ObjectId};

/// A beam weapon of a ship with its order.
#[derive(Clone, Copy)]
struct Bank {
    part: usize,
    facts: &'static BeamFacts,
    arc: Arc,
    order: Option<Order>,
}

impl World {
    /// Fires all beams for one tick.
    pub(super) fn fire_beams(&mut self) {
        for ship in 0..self.ships.len() {
            for system in 0..self.ships[ship].parts.len() {
                if self.ships[ship].class.parts[system].kind == PartKind::WeaponSystem {
                    self.fire_system(ship, system);
                }
            }
        }
    }

    /// Fires the beams of one system for one tick.
    fn fire_system(&mut self, ship: usize, system: usize) {
        let idle = !self.ships[ship].parts.iter().any(|part| match &part.gear {
            Gear::Beam(beam) => part.order.is_some() || beam.is_firing(),
            _ => false,
        });
        if idle && self.ships[ship].parts[system].order.is_none() {
            return;
        }
        let banks: Vec<Bank> = self.banks(ship, system);
        let level = self.ships[ship].parts[system].level;
        for bank in &banks {
            if !self.may_fire(ship, bank)
                && let Some(seconds) = self.beam(ship, bank.part).and_then(|beam| beam.stop())
            {
                self.burn(ship, bank, level, seconds);
            }
        }
        self.start_banks(ship, system, &banks);
        for bank in &banks {
            if let Some(seconds) = self.beam(ship, bank.part).and_then(|beam| beam.tick(level)) {
                self.burn(ship, bank, level, seconds);
            }
        }
    }

    /// Stops the beams of a weapon or of a system. The rest of their last quantum counts.
    pub(super) fn cease_beams(&mut self, ship: usize, part: usize) {
        let system = self.ships[ship].system_of(part);
        let level = self.ships[ship].parts[system].level;
        for bank in self.banks(ship, system) {
            if (bank.part == part || system == part)
                && let Some(seconds) = self.beam(ship, bank.part).and_then(|beam| beam.stop())
            {
                self.burn(ship, &bank, level, seconds);
            }
        }
    }

    /// Starts the next bank that may fire.
    ///
    /// The banks of a system begin one after the other, spread over one subsystem step. Some systems wait
    /// until the bank before is empty.
    fn start_banks(&mut self, ship: usize, system: usize, banks: &[Bank]) {
        let one_at_a_time = self.ships[ship].class.parts[system].fires_one_at_a_time;
        let able: Vec<usize> = (0..banks.len()).filter(|at| self.may_fire(ship, &banks[*at])).collect();
        let is_firing =
            banks.iter().any(|bank| self.beam(ship, bank.part).is_some_and(|beam| beam.is_firing()));
        let state = &self.ships[ship].parts[system];
        if (one_at_a_time && is_firing) || self.tick < state.next_start {
            return;
        }
        let next =
            if one_at_a_time { able.iter().position(|at| *at >= state.next).unwrap_or_default() } else { 0 };
        for turn in 0..able.len() {
            let at = able[(next + turn) % able.len()];
            let bank = &banks[at];
            if self.beam(ship, bank.part).is_some_and(|beam| !beam.is_firing() && beam.start(bank.facts)) {
                let state = &mut self.ships[ship].parts[system];
                state.next = at + 1;
                state.next_start = self.tick + SUBSYSTEM_STEP / able.len() as u64;
                return;
            }
        }
    }

    /// Returns the beam weapons of a system. A weapon's own order goes before that of the system.
    fn banks(&self, ship: usize, system: usize) -> Vec<Bank> {
        let ship = &self.ships[ship];
        let bank = |part: usize| match ship.class.parts[part].weapon {
            Weapon::Beam(facts, arc, _) if ship.class.parts[part].parent == Some(system as u8) => {
                let order = ship.parts[part].order.or(ship.parts[system].order);
                Some(Bank { part, facts, arc, order })
            }
            _ => None,
        };
        (0..ship.parts.len()).filter_map(bank).collect()
    }

    /// Returns whether a bank has an order, works and can see its target.
    fn may_fire(&self, ship: usize, bank: &Bank) -> bool {
        let shooter = &self.ships[ship];
        let Some(order) = bank.order else { return false };
        let Some(target) = self.find_target(order.target) else { return false };
        let muzzle = shooter.class.parts[bank.part].muzzle();
        let sees = |pose: crate::vector::Pose| {
            reaches(bank.arc, muzzle, pose.to_ship(self.aim_point(target, order.aim)))
        };
        shooter.is_alive()
            && shooter.cloak.allows_fire()
            && shooter.works(bank.part)
            && shooter.pose.is_some_and(sees)
    }

    fn beam(&mut self, ship: usize, part: usize) -> Option<&mut crate::laws::beam::Beam> {
        match &mut self.ships[ship].parts[part].gear {
            Gear::Beam(beam) => Some(beam),
            _ => None,
        }
    }

    /// Does the damage of some seconds of a beam.
    fn burn(&mut self, ship: usize, bank: &Bank, level: Level, seconds: f64) {
        let shooter = &self.ships[ship];
        let Some((target, order)) =
            bank.order.and_then(|order| Some((self.find_target(order.target)?, order)))
        else {
            return;
        };
        let victim = &self.ships[target];
        let (Some(own), Some(other)) = (shooter.pose, victim.pose) else { return };
        let from = other.to_ship(own.to_set(shooter.class.parts[bank.part].muzzle()));
        let to = order.aim.unwrap_or_else(|| default_aim(victim.class));
        let entry = Ellipsoid::of(victim.class).entry(from, to).filter(|_| victim.is_shielded());
        let place = match entry {
            Some((place, face)) if victim.shields.holds(face) => place,
            _ => impact(victim.class, from, to),
        };
        let damage = rate(bank.facts, level, (place - from).length()) * seconds;
        let blow = Blow {
            attacker: Some(Attacker { slot: shooter.slot, ship: shooter.id }),
            cause: Cause::Beam,
            object: ObjectId(shooter.id.0 + 1 + bank.part as u32),
            damage,
            radius: bank.facts.radius,
            spares_hull: level == Level::Low,
            from,
            to,
        };
        self.strike(target, &blow);
    }

    /// Returns the place in the set that a weapon aims at.
    pub(super) fn aim_point(&self, target: usize, aim: Option<Vector>) -> Vector {
        let target = &self.ships[target];
        let aim = aim.unwrap_or_else(|| default_aim(target.class));
        target.pose.map_or(aim, |pose| pose.to_set(aim))
    }

    /// Decides which tractor systems hold their target.
    pub(super) fn hold_targets(&mut self) {
        for ship in 0..self.ships.len() {
            for system in 0..self.ships[ship].parts.len() {
                let held = self.held_target(ship, system);
                let state = &mut self.ships[ship].parts[system];
                let before = core::mem::replace(&mut state.held, held);
                if before != held {
                    let system = ObjectId(self.ships[ship].id.0 + 1 + system as u32);
                    let told = |target, holds| Decision::Tractor { system, target, holds };
                    self.decisions.extend(before.map(|target| told(target, false)));
                    self.decisions.extend(held.map(|target| told(target, true)));
                }
            }
        }
    }

    fn held_target(&self, ship: usize, system: usize) -> Option<ObjectId> {
        let holder = &self.ships[ship];
        let order = holder.parts[system].order?;
        let target = self.find_target(order.target)?;
        let (own, place) = (holder.pose?, self.aim_point(target, None));
        let reaches_it = |(index, part): (usize, &crate::classes::Part)| match part.weapon {
            Weapon::Tractor(facts, arc) => {
                let is_own = index == system || part.parent == Some(system as u8);
                let distance = (place - own.to_set(part.place())).length();
                is_own
                    && holder.works(index)
                    && tractor::holds(facts, distance)
                    && reaches(arc, part.place(), own.to_ship(place))
            }
            _ => false,
        };
        let can = holder.is_alive() && holder.cloak.allows_fire() && holder.plant.feeds_tractors();
        (can && holder.class.parts.iter().enumerate().any(reaches_it)).then_some(order.target)
    }
}
