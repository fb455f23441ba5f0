//! The steps of subsystems, shields and power.

use super::World;
use super::ship::{Gear, Ship};
use crate::classes::{PartKind, Weapon};
use crate::clock::SUBSYSTEM_SECONDS;
use crate::laws::cloak::Cloak;
use crate::laws::condition::Status;
use crate::laws::power::Demand;
use crate::{Decision, ObjectId, Repair};

impl World {
    /// Recharges and loads weapons, repairs parts and checks tractor beams: every 0.33 s.
    pub(super) fn subsystem_step(&mut self) {
        for ship in 0..self.ships.len() {
            let state = &mut self.ships[ship];
            recharge(state);
            if state.has_shields() {
                state.shields.refresh(state.class);
            }
            self.repair(ship);
            self.check_cloak(ship);
        }
        self.hold_targets();
    }

    /// Recharges the shields: every 0.66 s.
    pub(super) fn shield_step(&mut self) {
        for ship in self.ships.iter_mut().filter(|ship| ship.has_shields()) {
            ship.shields.recharge(ship.class, ship.plant.efficiency);
        }
    }

    /// Moves power: every second.
    pub(super) fn power_step(&mut self) {
        for ship in &mut self.ships {
            let condition = ship.class.first(PartKind::Reactor).map_or(0.0, |part| ship.fraction(part));
            let demand = demand(ship);
            ship.plant.step(&ship.class.plant, condition, demand);
        }
    }

    fn repair(&mut self, ship: usize) {
        let ship = &mut self.ships[ship];
        let Some(system) = ship.class.first(PartKind::Repair) else { return };
        if ship.parts[system].status != Status::Working || ship.queue.parts().is_empty() {
            return;
        }
        let condition = ship.fraction(system);
        let gains: alloc::vec::Vec<(u8, f64)> = ship.queue.gains(ship.class, condition).collect();
        for (part, gain) in gains {
            let full = ship.class.parts[usize::from(part)].points;
            let points = &mut ship.parts[usize::from(part)].points;
            *points = (*points + gain).min(full);
            if *points >= full {
                ship.queue.remove(part);
                let part = ObjectId(ship.id.0 + 1 + u32::from(part));
                self.decisions.push(Decision::Repair { part, what: Repair::Done });
            }
        }
        let id = ship.id;
        if let Ok(ship) = self.find(id) {
            self.refresh(ship, None);
        }
    }

    /// Makes a ship visible whose device fails or has no power.
    fn check_cloak(&mut self, ship: usize) {
        let ship = &mut self.ships[ship];
        let fails = ship.working(PartKind::Cloak).is_none() || ship.plant.backup <= 0.0;
        if fails && ship.cloak.is_powered() && ship.cloak.order(false) {
            self.decisions.push(Decision::CloakFails { ship: ship.id });
        }
    }
}

/// Recharges and loads all weapons of a ship for one step.
fn recharge(ship: &mut Ship) {
    let seconds = SUBSYSTEM_SECONDS * ship.plant.efficiency;
    for (part, facts) in ship.parts.iter_mut().zip(ship.class.parts) {
        match (&mut part.gear, facts.weapon) {
            (Gear::Beam(beam), Weapon::Beam(facts, ..)) => beam.recharge(facts, seconds),
            (Gear::Pulse(cannon), Weapon::Pulse(facts, _)) => cannon.recharge(facts, seconds),
            (Gear::Tube(tube), _) => tube.load(SUBSYSTEM_SECONDS),
            _ => {}
        }
    }
}

/// Returns the power that a ship wants for one second.
fn demand(ship: &Ship) -> Demand {
    let mut demand = Demand::default();
    for (index, (part, facts)) in ship.parts.iter().zip(ship.class.parts).enumerate() {
        if facts.power == 0.0 || part.status != Status::Working || !part.is_on {
            continue;
        }
        if facts.kind == PartKind::Cloak {
            demand.cloak += if ship.cloak.is_powered() { facts.power } else { 0.0 };
        } else if is_tractor_system(ship, index) {
            demand.tractors += if part.held.is_some() { facts.power } else { 0.0 };
        } else {
            demand.systems += facts.power * part.power;
        }
    }
    demand
}

/// Returns whether the weapons of a system are tractor beams.
fn is_tractor_system(ship: &Ship, system: usize) -> bool {
    let mut parts = ship.class.parts.iter();
    parts.any(|part| part.parent == Some(system as u8) && part.kind == PartKind::Tractor)
}

impl Ship {
    /// Returns whether the shield generator works. It may be off.
    fn has_shields(&self) -> bool {
        self.class.first(PartKind::Shields).is_some_and(|part| self.parts[part].status == Status::Working)
    }

    /// Passes a tick of the cloaking device. A ship that becomes visible has shields again.
    pub(super) fn tick_cloak(&mut self) {
        let before = self.cloak;
        self.cloak.tick();
        if before != Cloak::Visible && self.cloak == Cloak::Visible {
            self.shields.wake();
        }
    }
}
