//! The facts about the sixteen stock ships and their 386 subsystems.
//!
//! | fact | source | confidence |
//! |---|---|---|
//! | mass, speed, faces, repair, power, parts, weapons | scripts of the game | high; the game's measured behaviour confirms five ships |
//! | order of the parts: the object id of part *n* is that of the ship plus *n* + 1 | scripts, and captured ids of four classes | high |
//! | bounding radius of ten classes | measured on the running game | high |
//! | extents of three classes | models of the game | high |
//! | kind of bolt of a class | scripts; measured for all but the Vor'cha | high; inferred for the Vor'cha |
//! | arcs of weapons | the names of the weapons | approximation: see [`Arc`] |
//! | bounding radius of six classes, extents of thirteen | the box around the parts | approximation |
//!
//! The two approximations have a measured error. For the ten classes with a known radius, the box is 13 %
//! off on average and 35 % at most. For the nine extents of the three measured classes, it is 16 % off on
//! average and 44 % at most.

mod cardassian;
mod federation;
mod kessok;
mod klingon_romulan_ferengi;

use crate::vector::Vector;

/// The facts about one class of ships.
#[derive(Debug, PartialEq)]
pub struct ShipClass {
    /// The number of the class in messages.
    pub species: u8,
    /// The name for people.
    pub name: &'static str,
    /// The mass.
    pub mass: f64,
    /// The speed at full throttle and normal power, in units per second.
    pub max_speed: f64,
    /// The points of the six shield faces, in the order of [`crate::laws::shield::Face`].
    pub faces: [f64; 6],
    /// The nominal recharge of the faces, in points per second.
    pub face_rates: [f64; 6],
    /// The repair points of all teams together, per second.
    pub repair_points: f64,
    /// The number of repair teams.
    pub repair_teams: usize,
    /// The power plant.
    pub plant: PlantFacts,
    /// The bounding radius, if it was measured.
    radius: Option<f64>,
    /// Half extents and centre of the model, if they are known.
    extents: Option<([f64; 3], [f64; 3])>,
    /// The type of the projectile of its pulse weapons; 0 for none.
    pub bolt: u8,
    /// The parts in the order of creation.
    pub parts: &'static [Part],
}

/// The facts about a power plant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlantFacts {
    /// The output per second at full condition.
    pub output: f64,
    /// The capacity of the main battery.
    pub main: f64,
    /// The capacity of the backup battery.
    pub backup: f64,
    /// The most that the main conduit delivers in a second.
    pub main_conduit: f64,
    /// The most that the backup conduit delivers in a second.
    pub backup_conduit: f64,
}

/// The facts about one subsystem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The kind of the part.
    pub kind: PartKind,
    /// The name for people.
    pub name: &'static str,
    /// The points at full condition.
    pub points: f64,
    /// The place in ship axes.
    pub position: [f64; 3],
    /// The radius.
    pub radius: f64,
    /// The fraction of the points below which the part is out of order.
    pub disabled_below: f64,
    /// The divisor of repair points.
    pub complexity: f64,
    /// The index of the system that the part belongs to.
    pub parent: Option<u8>,
    /// True if the ship dies with this part.
    pub is_critical: bool,
    /// The power that the part takes per second at 100 %.
    pub power: f64,
    /// True if weapons can hit the part.
    pub is_exposed: bool,
    /// True if the weapons of this system fire one after the other.
    pub fires_one_at_a_time: bool,
    /// The weapon, if it is one.
    pub weapon: Weapon,
}

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// The hull, or the bridge of a class that has one.
    Hull,
    /// The shield generator.
    Shields,
    /// The sensors.
    Sensors,
    /// The power plant.
    Reactor,
    /// A group of engines.
    Engines,
    /// One engine.
    Engine,
    /// A group of weapons.
    WeaponSystem,
    /// A beam weapon.
    Beam,
    /// A pulse weapon.
    Pulse,
    /// A torpedo tube.
    Tube,
    /// A tractor beam.
    Tractor,
    /// The repair system.
    Repair,
    /// The cloaking device.
    Cloak,
}

/// The weapon of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Weapon {
    /// The part is no weapon.
    None,
    /// A beam with the width and the length of its strip.
    Beam(&'static BeamFacts, Arc, [f64; 2]),
    /// A pulse weapon.
    Pulse(&'static PulseFacts, Arc),
    /// A torpedo tube.
    Tube(&'static TubeFacts, Arc),
    /// A tractor beam.
    Tractor(&'static BeamFacts, Arc),
}

/// The facts about a beam weapon.
#[derive(Debug, PartialEq)]
pub struct BeamFacts {
    /// The damage per second before the factors of setting and range.
    pub max_damage: f64,
    /// The range up to which damage does not fall.
    pub full_range: f64,
    /// The charge of a full weapon.
    pub max_charge: f64,
    /// The charge that it needs to begin.
    pub min_charge: f64,
    /// The recharge per second.
    pub recharge: f64,
    /// The radius of a hit.
    pub radius: f64,
}

/// The facts about a pulse weapon.
#[derive(Debug, PartialEq)]
pub struct PulseFacts {
    /// The charge of a full weapon.
    pub max_charge: f64,
    /// The charge that it needs to begin.
    pub min_charge: f64,
    /// The recharge per second.
    pub recharge: f64,
    /// The shortest time between two bolts, in seconds.
    pub cooldown: f64,
}

/// The facts about a torpedo tube.
#[derive(Debug, PartialEq)]
pub struct TubeFacts {
    /// The seconds that one torpedo takes to load.
    pub reload: f64,
    /// The number of torpedoes that can be ready.
    pub ready: u8,
}

/// The direction in which a weapon can fire.
///
/// The arcs of the game are not known. This approximation takes them from the names of the weapons. It
/// gives the banks that fired in all measured runs. The Federation's first and last banks of a side cover
/// its quarter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arc {
    /// The half space before the ship.
    Forward,
    /// The half space behind the ship.
    Aft,
    /// The half space to port.
    Port,
    /// The half space to starboard.
    Starboard,
    /// The half space between port and aft.
    PortQuarter,
    /// The half space between starboard and aft.
    StarboardQuarter,
    /// A cone of 60° around the upward direction.
    Up,
    /// A cone of 60° around the downward direction.
    Down,
}

impl Arc {
    /// Returns the middle of the arc in ship axes.
    #[must_use]
    pub const fn middle(self) -> Vector {
        Vector::new(match self {
            Self::Forward => [0.0, 1.0, 0.0],
            Self::Aft => [0.0, -1.0, 0.0],
            Self::Port => [-1.0, 0.0, 0.0],
            Self::Starboard => [1.0, 0.0, 0.0],
            Self::PortQuarter => [-DIAGONAL, -DIAGONAL, 0.0],
            Self::StarboardQuarter => [DIAGONAL, -DIAGONAL, 0.0],
            Self::Up => [0.0, 0.0, 1.0],
            Self::Down => [0.0, 0.0, -1.0],
        })
    }

    /// Returns whether a direction in ship axes is inside the arc.
    #[must_use]
    pub fn contains(self, direction: Vector) -> bool {
        let Some(direction) = direction.unit() else { return true };
        let cosine = match self {
            Self::Up | Self::Down => 0.5,
            _ => 1e-6,
        };
        direction.dot(self.middle()) > cosine
    }
}

const DIAGONAL: f64 = core::f64::consts::FRAC_1_SQRT_2;

impl ShipClass {
    /// Returns the class with this number, if it is a stock ship.
    #[must_use]
    pub fn of(species: u8) -> Option<&'static Self> {
        CLASSES.into_iter().find(|class| class.species == species)
    }

    /// Returns the index of the first part of a kind.
    #[must_use]
    pub fn first(&self, kind: PartKind) -> Option<usize> {
        self.parts.iter().position(|part| part.kind == kind)
    }

    /// Returns the index of the part at a place of the ship's list in state updates.
    #[must_use]
    pub fn listed(&self, place: u8) -> Option<usize> {
        let mut listed = self.parts.iter().enumerate().filter(|(_, part)| part.parent.is_none());
        listed.nth(place.into()).map(|(index, _)| index)
    }

    /// Returns the bounding radius: measured, or that of the box around the parts.
    #[must_use]
    pub fn radius(&self) -> f64 {
        self.radius.unwrap_or_else(|| self.mounts().length())
    }

    /// Returns half extents and centre of the model: known, or those of the box around the parts.
    #[must_use]
    pub fn extents(&self) -> (Vector, Vector) {
        match self.extents {
            Some((half, centre)) => (Vector::new(half), Vector::new(centre)),
            None => (self.mounts(), Vector::default()),
        }
    }

    /// Returns the half extents of the box around the places of all parts but the hull.
    fn mounts(&self) -> Vector {
        let mut half = [0.0_f64; 3];
        for part in &self.parts[1..] {
            for (half, place) in half.iter_mut().zip(part.position) {
                *half = half.max(place.abs());
            }
        }
        Vector::new(half)
    }
}

/// All stock ships.
pub const CLASSES: [&ShipClass; 16] = [
    &federation::AKIRA,
    &federation::AMBASSADOR,
    &federation::GALAXY,
    &federation::NEBULA,
    &federation::SOVEREIGN,
    &klingon_romulan_ferengi::BIRD_OF_PREY,
    &klingon_romulan_ferengi::VORCHA,
    &klingon_romulan_ferengi::WARBIRD,
    &klingon_romulan_ferengi::MARAUDER,
    &cardassian::GALOR,
    &cardassian::KELDON,
    &cardassian::HYBRID,
    &kessok::KESSOK_HEAVY,
    &kessok::KESSOK_LIGHT,
    &federation::SHUTTLE,
    &cardassian::FREIGHTER,
];

/// Creates a part that weapons can hit, without power, parent and weapon.
const fn part(
    kind: PartKind,
    name: &'static str,
    points: f64,
    position: [f64; 3],
    radius: f64,
    disabled_below: f64,
    complexity: f64,
) -> Part {
    Part {
        kind,
        name,
        points,
        position,
        radius,
        disabled_below,
        complexity,
        parent: None,
        is_critical: false,
        power: 0.0,
        is_exposed: true,
        fires_one_at_a_time: false,
        weapon: Weapon::None,
    }
}

impl Part {
    const fn of(self, parent: u8) -> Self {
        Self { parent: Some(parent), ..self }
    }

    const fn critical(self) -> Self {
        Self { is_critical: true, ..self }
    }

    const fn power(self, power: f64) -> Self {
        Self { power, ..self }
    }

    const fn internal(self) -> Self {
        Self { is_exposed: false, ..self }
    }

    const fn one_at_a_time(self) -> Self {
        Self { fires_one_at_a_time: true, ..self }
    }

    const fn beam(self, facts: &'static BeamFacts, arc: Arc, width: f64, length: f64) -> Self {
        Self { weapon: Weapon::Beam(facts, arc, [width, length]), ..self }
    }

    const fn pulse(self, facts: &'static PulseFacts, arc: Arc) -> Self {
        Self { weapon: Weapon::Pulse(facts, arc), ..self }
    }

    const fn tube(self, facts: &'static TubeFacts, arc: Arc) -> Self {
        Self { weapon: Weapon::Tube(facts, arc), ..self }
    }

    const fn tractor(self, facts: &'static BeamFacts, arc: Arc) -> Self {
        Self { weapon: Weapon::Tractor(facts, arc), ..self }
    }

    /// Returns the place in ship axes.
    #[must_use]
    pub const fn place(&self) -> Vector {
        Vector::new(self.position)
    }

    /// Returns the place that the weapon fires from, in ship axes.
    ///
    /// A beam leaves the middle of its strip.
    #[must_use]
    pub fn muzzle(&self) -> Vector {
        match self.weapon {
            Weapon::Beam(_, arc, [width, length]) => {
                let middle = arc.middle();
                self.place() + Vector { x: middle.x * width, y: middle.y * length, z: 0.0 }
            }
            _ => self.place(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// the table has the sixteen stock ships and 386 subsystems, in the order of creation.
    #[test]
    fn table_is_complete() {
        let parts = CLASSES.map(|class| class.parts.len());
        assert_eq!(parts, [31, 29, 34, 31, 33, 16, 24, 26, 19, 17, 23, 29, 24, 23, 15, 12]);
        let listed = CLASSES.map(|class| (0..).take_while(|place| class.listed(*place).is_some()).count());
        assert_eq!(listed, [11, 11, 11, 11, 11, 10, 12, 13, 10, 9, 10, 11, 10, 10, 9, 8]);
        for (at, class) in CLASSES.iter().enumerate() {
            assert_eq!(usize::from(class.species), at + 1, "{}", class.name);
            assert!(class.parts[0].kind == PartKind::Hull && class.parts[0].is_critical, "{}", class.name);
            for part in class.parts {
                let parent = part.parent.map(|parent| class.parts[usize::from(parent)]);
                assert!(parent.is_none_or(|parent| parent.parent.is_none()), "{}: {}", class.name, part.name);
                assert!(part.points > 0.0 && part.complexity > 0.0 && part.radius > 0.0, "{}", part.name);
            }
            for kind in [PartKind::Shields, PartKind::Reactor, PartKind::Repair] {
                assert!(class.first(kind).is_some(), "{}", class.name);
            }
        }
    }

    /// the error of the box around the parts is that of the documentation.
    #[test]
    fn box_around_the_parts_has_the_documented_error() {
        let measured = CLASSES.iter().filter_map(|class| Some(class.mounts().length() / class.radius? - 1.0));
        let errors: alloc::vec::Vec<f64> = measured.map(f64::abs).collect();
        let mean = errors.iter().sum::<f64>() / 10.0;
        let worst = errors.iter().fold(0.0_f64, |worst, error| worst.max(*error));
        assert!(errors.len() == 10 && (0.125..0.135).contains(&mean) && worst < 0.355, "{mean} {worst}");
        let known = CLASSES.iter().filter_map(|class| Some((class.mounts(), Vector::new(class.extents?.0))));
        let pairs = known.flat_map(|(guess, half)| guess.parts().into_iter().zip(half.parts()));
        let errors: alloc::vec::Vec<f64> = pairs.map(|(guess, half)| (guess / half - 1.0).abs()).collect();
        let mean = errors.iter().sum::<f64>() / 9.0;
        assert!(errors.len() == 9 && (0.15..0.165).contains(&mean), "{mean} {errors:?}");
    }
}
