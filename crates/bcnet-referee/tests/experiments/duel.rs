//! Two ships at a distance: one fires, the other one takes the damage.

use bcnet_referee::classes::{PartKind, ShipClass, Weapon};
use bcnet_referee::clock::{SUBSYSTEM_STEP, TICK, TICK_SECONDS};
use bcnet_referee::laws::footprint::default_aim;
use bcnet_referee::laws::shield::FACES;
use bcnet_referee::laws::torpedo::TUBE_SPACING;
use bcnet_referee::ledger::Entry;
use bcnet_referee::vector::Vector;
use bcnet_referee::{Decision, Input, Motion, ObjectId, Slot, World};

use crate::Setup;

pub(crate) const ATTACKER: ObjectId = ObjectId(0x3FFF_FFFF);
pub(crate) const TARGET: ObjectId = ObjectId(0x4003_FFFF);
/// The tick at which fire begins in the first phase: one second, rounded to a step.
pub(crate) const FIRE: u64 = 60;
/// Ticks from the order until a tube launches: 0.25 s, after the next subsystem step.
const LAUNCH_DELAY: u64 = 15;

/// A world with two ships that point at each other.
pub(crate) struct Duel {
    pub(crate) world: World,
    pub(crate) attacker: &'static ShipClass,
    pub(crate) target: &'static ShipClass,
    pub(crate) decisions: Vec<(u64, Decision)>,
    /// The ticks of launches and bolts.
    pub(crate) launches: Vec<u64>,
    /// The lowest and the first charge after a shot of each weapon that fired.
    pub(crate) charges: Vec<(u64, Vec<f64>)>,
}

impl Duel {
    pub(crate) fn new(setup: &Setup) -> Self {
        let class = |species: u8| ShipClass::of(if species == 0 { 3 } else { species }).expect("a class");
        let (attacker, target) = (class(setup.attacker), class(setup.target));
        let mut world = World::new(1);
        let arrive = |ship, slot, species| Input::Arrive {
            ship,
            slot: Slot(slot),
            species,
            position: [0.0; 3],
            rotation: [1.0, 0.0, 0.0, 0.0],
        };
        world.apply(&arrive(ATTACKER, 0, attacker.species)).expect("arrives");
        world.apply(&arrive(TARGET, 1, target.species)).expect("arrives");
        let (bearing, elevation) = (setup.bearing.to_radians(), setup.elevation.to_radians());
        let level = elevation.cos();
        let place = [bearing.sin() * level, bearing.cos() * level, elevation.sin()];
        let forward = place.map(|part| -part);
        // The upper side turns with the elevation.
        let tilt = elevation.sin();
        let up = [-bearing.sin() * tilt, -bearing.cos() * tilt, level];
        let narrow = |vector: [f64; 3]| vector.map(|part| part as f32);
        let position = Some(narrow(place.map(|part| part * setup.range)));
        let motion = Motion { position, axes: Some((narrow(forward), narrow(up))), ..Motion::default() };
        world.apply(&Input::Move { ship: ATTACKER, motion }).expect("moves");
        for (at, face) in FACES.into_iter().enumerate() {
            let share = if at == 0 { setup.front } else { setup.others };
            if let Some(share) = share {
                world.set_face(TARGET, face, target.faces[at] * share).expect("a face");
            }
        }
        let empty = Vec::new;
        Self { world, attacker, target, decisions: Vec::new(), launches: empty(), charges: Vec::new() }
    }

    pub(crate) fn part(ship: ObjectId, part: usize) -> ObjectId {
        ObjectId(ship.0 + 1 + part as u32)
    }

    /// Returns the index of the system whose weapons are of a kind.
    pub(crate) fn system(class: &ShipClass, kind: PartKind) -> usize {
        let child = class.parts.iter().find(|part| part.kind == kind).expect("a weapon");
        usize::from(child.parent.expect("a system"))
    }

    /// Advances one tick.
    pub(crate) fn step(&mut self) {
        let mut decisions = Vec::new();
        let tick = self.world.tick() + 1;
        self.world.advance(TICK * u32::try_from(tick).expect("a tick"), &mut decisions);
        assert_eq!(self.world.tick(), tick);
        self.decisions.extend(decisions.into_iter().map(|decision| (tick, decision)));
        if let Some(ship) = self.world.ship(ATTACKER) {
            let charges = (0..self.attacker.parts.len()).filter_map(|part| ship.charge(part)).collect();
            self.charges.push((tick, charges));
        }
    }

    pub(crate) fn run_to(&mut self, seconds: f64) {
        while (self.world.tick() as f64) * TICK_SECONDS < seconds {
            self.step();
        }
    }

    /// Holds the beams on the target from one second on.
    pub(crate) fn fire_beams(&mut self, setup: &Setup) {
        let system = Self::system(self.attacker, PartKind::Beam);
        let weapon = Self::part(ATTACKER, system);
        self.world.apply(&Input::Level { system: weapon, level: setup.level }).expect("a level");
        if let Some(charge) = setup.charge {
            for (index, part) in self.attacker.parts.iter().enumerate() {
                if matches!(part.weapon, Weapon::Beam(..)) {
                    self.world.set_charge(Self::part(ATTACKER, index), charge).expect("a charge");
                }
            }
        }
        while self.world.tick() < FIRE + setup.phase {
            self.step();
        }
        self.world.apply(&Input::StartFire { weapon, target: TARGET, aim: None }).expect("fires");
        self.run_to(setup.seconds + seconds(setup.phase));
    }

    /// Holds the trigger of the pulse weapons from one second on, as a stock player does.
    pub(crate) fn fire_bolts(&mut self, setup: &Setup) {
        let system = Self::part(ATTACKER, Self::system(self.attacker, PartKind::Pulse));
        self.world.apply(&Input::Level { system, level: setup.level }).expect("a level");
        while (self.world.tick() as f64) * TICK_SECONDS < setup.seconds {
            if self.world.tick() >= FIRE && (self.world.tick() + 1).is_multiple_of(SUBSYSTEM_STEP) {
                self.pull_trigger(setup);
            }
            self.step();
        }
    }

    fn pull_trigger(&mut self, setup: &Setup) {
        for (index, part) in self.attacker.parts.iter().enumerate() {
            let weapon = Self::part(ATTACKER, index);
            if part.kind == PartKind::Pulse && self.world.can_fire(weapon).is_ok() {
                let direction = self.direction(setup, part.muzzle());
                self.world.apply(&Input::Bolt { weapon, direction, target: Some(TARGET) }).expect("a bolt");
                self.launches.push(self.world.tick() + 1);
            }
        }
    }

    /// Launches all torpedoes that are ready from one second on, as a stock player does.
    pub(crate) fn launch_torpedoes(&mut self, setup: &Setup, most: usize) {
        let first = (FIRE + setup.phase).next_multiple_of(SUBSYSTEM_STEP) + LAUNCH_DELAY;
        while (self.world.tick() as f64) * TICK_SECONDS < setup.seconds + seconds(setup.phase) {
            let last = self.launches.last().copied();
            let may = last.is_none_or(|last| self.world.tick() >= last + TUBE_SPACING);
            if self.world.tick() >= first && may && self.launches.len() < most {
                self.launch(setup);
            }
            self.step();
        }
    }

    fn launch(&mut self, setup: &Setup) {
        let ready = |(index, part): &(usize, &bcnet_referee::classes::Part)| {
            matches!(part.weapon, Weapon::Tube(_, bcnet_referee::classes::Arc::Forward))
                && self.world.can_fire(Self::part(ATTACKER, *index)).is_ok()
        };
        let Some((index, part)) = self.attacker.parts.iter().enumerate().find(ready) else { return };
        let direction = self.direction(setup, part.muzzle());
        let tube = Self::part(ATTACKER, index);
        let launch = Input::Torpedo { tube, kind: setup.kind, direction, target: Some(TARGET), aim: None };
        self.world.apply(&launch).expect("a torpedo");
        self.launches.push(self.world.tick());
    }

    /// Returns the direction from a place of the attacker to the target's hull, for an attacker ahead.
    fn direction(&self, setup: &Setup, muzzle: Vector) -> [f32; 3] {
        assert!(setup.bearing == 0.0 && setup.elevation == 0.0, "only for attackers ahead");
        let from = Vector { x: -muzzle.x, y: setup.range - muzzle.y, z: muzzle.z };
        let way = (default_aim(self.target) - from).unit().expect("a direction");
        way.parts().map(|part| part as f32)
    }

    /// Returns the hits on the target.
    pub(crate) fn hits(&self) -> Vec<Entry> {
        self.world.ledger().entries().copied().filter(|entry| entry.victim == TARGET).collect()
    }

    /// Returns the points that a part of the target lost.
    pub(crate) fn loss(&self, name: &str) -> f64 {
        let part = index(self.target, name);
        let points = self.world.ship(TARGET).and_then(|ship| ship.points(part)).expect("the target");
        self.target.parts[part].points - points
    }
}

pub(crate) fn index(class: &ShipClass, name: &str) -> usize {
    class.parts.iter().position(|part| part.name == name).unwrap_or_else(|| panic!("no part {name}"))
}

/// Returns the seconds between two ticks.
pub(crate) fn seconds(ticks: u64) -> f64 {
    (TICK * u32::try_from(ticks).expect("ticks")).as_secs_f64()
}
