//! One ship of the world.

use alloc::vec::Vec;

use crate::classes::{Part, PartKind, ShipClass, Weapon};
use crate::clock::TICK_SECONDS;
use crate::laws::beam::{Beam, Level};
use crate::laws::cloak::Cloak;
use crate::laws::condition::{Status, status};
use crate::laws::power::Plant;
use crate::laws::pulse::Cannon;
use crate::laws::repair::Queue;
use crate::laws::score::Account;
use crate::laws::shield::{Face, Shields};
use crate::laws::torpedo::Tube;
use crate::vector::{Pose, Vector};
use crate::{ObjectId, Slot};

/// The state of one ship.
#[derive(Debug)]
pub struct Ship {
    pub(super) id: ObjectId,
    pub(super) slot: Slot,
    pub(super) class: &'static ShipClass,
    pub(super) pose: Option<Pose>,
    /// The speed along the bow, and the tick of the last report of the motion.
    pub(super) speed: f64,
    pub(super) moved: u64,
    pub(super) parts: Vec<PartState>,
    pub(super) shields: Shields,
    pub(super) plant: Plant,
    pub(super) queue: Queue,
    pub(super) cloak: Cloak,
    pub(super) account: Account,
    pub(super) life: Life,
    /// The ship of the last collision and its tick.
    pub(super) collided: Option<(ObjectId, u64)>,
}

/// The state of one part.
#[derive(Debug)]
pub(super) struct PartState {
    pub(super) points: f64,
    pub(super) status: Status,
    pub(super) is_on: bool,
    /// The power that the owner wants for the part, as a share of its normal power.
    pub(super) power: f64,
    pub(super) level: Level,
    pub(super) gear: Gear,
    pub(super) order: Option<Order>,
    /// The weapon of the system that is next, if they fire one after the other.
    pub(super) next: usize,
    /// The tick from which on the next beam of the system can begin.
    pub(super) next_start: u64,
    /// The target that a tractor system holds.
    pub(super) held: Option<ObjectId>,
}

/// The weapon of a part.
#[derive(Debug)]
pub(super) enum Gear {
    None,
    Beam(Beam),
    Pulse(Cannon),
    Tube(Tube),
}

/// The order to fire at a target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) target: ObjectId,
    /// The aim point in the axes of the target.
    pub(super) aim: Option<Vector>,
}

/// The life of a ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The ship lives.
    Alive,
    /// The ship explodes until a tick. It is still there, and repairs itself.
    Dying {
        /// The tick at which the ship is removed.
        until: u64,
    },
}

/// The ticks after its last report for which a ship is moved on: about a second.
const DRIFT: u64 = 61;

impl Ship {
    pub(super) fn new(id: ObjectId, slot: Slot, class: &'static ShipClass, pose: Option<Pose>) -> Self {
        Self {
            id,
            slot,
            class,
            pose,
            speed: 0.0,
            moved: 0,
            parts: class.parts.iter().map(PartState::new).collect(),
            shields: Shields::new(class),
            plant: Plant::new(&class.plant),
            queue: Queue::default(),
            cloak: Cloak::default(),
            account: Account::default(),
            life: Life::Alive,
            collided: None,
        }
    }

    /// Returns the id.
    #[must_use]
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// Returns the slot of the player.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns the class.
    #[must_use]
    pub const fn class(&self) -> &'static ShipClass {
        self.class
    }

    /// Returns whether the ship lives or explodes.
    #[must_use]
    pub const fn life(&self) -> Life {
        self.life
    }

    /// Returns the points of a part, or none if the class has no such part.
    #[must_use]
    pub fn points(&self, part: usize) -> Option<f64> {
        self.parts.get(part).map(|part| part.points)
    }

    /// Returns the charge of a beam or pulse weapon.
    #[must_use]
    pub fn charge(&self, part: usize) -> Option<f64> {
        match self.parts.get(part)?.gear {
            Gear::Beam(beam) => Some(beam.charge),
            Gear::Pulse(cannon) => Some(cannon.charge),
            Gear::None | Gear::Tube(_) => None,
        }
    }

    /// Returns the points of a shield face.
    #[must_use]
    pub const fn face(&self, face: Face) -> f64 {
        self.shields.points[face as usize]
    }

    /// Returns the batteries.
    #[must_use]
    pub const fn plant(&self) -> &Plant {
        &self.plant
    }

    /// Returns the state of the cloaking device.
    #[must_use]
    pub const fn cloak(&self) -> Cloak {
        self.cloak
    }

    /// Returns the parts that wait for repair, the first one first.
    #[must_use]
    pub fn repair_queue(&self) -> &[u8] {
        self.queue.parts()
    }

    pub(super) const fn is_alive(&self) -> bool {
        matches!(self.life, Life::Alive)
    }

    /// Moves the ship on between two reports.
    pub(super) fn drift(&mut self, tick: u64) {
        self.tick_cloak();
        for part in &mut self.parts {
            if let Gear::Pulse(cannon) = &mut part.gear {
                cannon.tick();
            }
        }
        if let Some(pose) = &mut self.pose
            && tick - self.moved <= DRIFT
        {
            pose.position = pose.position + pose.forward() * (self.speed * TICK_SECONDS);
        }
    }

    /// Returns whether a part and the system that it belongs to work and are on.
    pub(super) fn works(&self, part: usize) -> bool {
        let works = |part: usize| self.parts[part].status == Status::Working && self.parts[part].is_on;
        works(part) && self.class.parts[part].parent.is_none_or(|parent| works(parent.into()))
    }

    /// Returns the index of the first part of a kind, if it works.
    pub(super) fn working(&self, kind: PartKind) -> Option<usize> {
        self.class.first(kind).filter(|part| self.works(*part))
    }

    /// Returns whether shields are up.
    pub(super) fn is_shielded(&self) -> bool {
        self.cloak.allows_shields() && self.working(PartKind::Shields).is_some()
    }

    /// Returns the fraction of the points of a part.
    pub(super) fn fraction(&self, part: usize) -> f64 {
        self.parts[part].points / self.class.parts[part].points
    }

    /// Returns the system that a weapon takes its level and orders from.
    pub(super) fn system_of(&self, part: usize) -> usize {
        self.class.parts[part].parent.map_or(part, usize::from)
    }
}

impl PartState {
    fn new(part: &Part) -> Self {
        Self {
            points: part.points,
            status: status(part, part.points),
            is_on: true,
            power: 1.0,
            level: Level::default(),
            gear: match part.weapon {
                Weapon::Beam(facts, ..) => Gear::Beam(Beam::new(facts)),
                Weapon::Pulse(facts, _) => Gear::Pulse(Cannon::new(facts)),
                Weapon::Tube(facts, _) => Gear::Tube(Tube::new(facts)),
                Weapon::None | Weapon::Tractor(..) => Gear::None,
            },
            order: None,
            next: 0,
            next_start: 0,
            held: None,
        }
    }
}
