//! Federation ships and the shuttle.
//!
//! Source and confidence of the columns: see the parent module.

use super::PartKind::{
    Beam, Engine, Engines, Hull, Reactor, Repair, Sensors, Shields, Tractor, Tube, WeaponSystem,
};
use super::{Arc, BeamFacts, Part, PlantFacts, ShipClass, TubeFacts, part};
/// The Akira.
pub(super) const AKIRA: ShipClass = ShipClass {
    species: 1,
    name: "Akira",
    mass: 70.0,
    max_speed: 6.6,
    faces: [10000.0, 5000.0, 5000.0, 5000.0, 5000.0, 5000.0],
    face_rates: [11.0, 11.0, 11.0, 11.0, 11.0, 11.0],
    repair_points: 36.0,
    repair_teams: 3,
    plant: PlantFacts {
        output: 800.0,
        main: 150000.0,
        backup: 50000.0,
        main_conduit: 900.0,
        backup_conduit: 100.0,
    },
    radius: None,
    extents: None,
    bolt: 0,
    parts: AKIRA_PARTS,
};

const AKIRA_TUBE: TubeFacts = TubeFacts { reload: 40.0, ready: 1 };
const AKIRA_BEAM: BeamFacts = BeamFacts {
    max_damage: 300.0,
    full_range: 60.0,
    max_charge: 5.0,
    min_charge: 3.5,
    recharge: 0.08,
    radius: 0.15,
};
const AKIRA_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 60.0,
    full_range: 100.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const AKIRA_PARTS: &[Part] = &[
    part(Hull, "Hull", 9000.0, [0.0, 1.19325, 0.129315], 1.0, 0.75, 3.0).critical(),
    part(Shields, "Shield Generator", 9000.0, [0.0, 1.0, -0.25], 0.18, 0.75, 2.0).power(300.0),
    part(Sensors, "Sensor Array", 6000.0, [0.0, 1.55, -0.25], 0.17, 0.5, 1.0).power(150.0),
    part(Reactor, "Warp Core", 5000.0, [0.0, 0.6, -0.08], 0.2, 0.75, 2.0).critical(),
    part(Engines, "Impulse Engines", 4000.0, [0.0, 1.0, 0.0], 0.25, 0.5, 3.0).power(50.0).internal(),
    part(WeaponSystem, "Phasers", 2400.0, [-0.48, 0.7, 0.14], 0.3, 0.5, 4.0).power(200.0).internal().one_at_a_time(),
    part(Engines, "Warp Engines", 5000.0, [-0.53, 0.84, 0.1], 0.25, 0.5, 3.0).power(0.0).internal(),
    part(WeaponSystem, "Torpedoes", 1000.0, [0.48, 0.7, 0.14], 0.3, 0.75, 2.0).power(100.0).internal(),
    part(Engine, "Port Impulse", 2000.0, [-0.96, 0.8, -0.05], 0.23, 0.5, 3.0).of(4),
    part(Engine, "Star Impulse", 2000.0, [0.96, 0.8, -0.05], 0.23, 0.5, 3.0).of(4),
    part(Engine, "Port Warp", 4000.0, [-1.4, -0.8, -0.25], 1.0, 0.5, 3.0).of(6),
    part(Engine, "Star Warp", 4000.0, [1.4, -0.8, -0.25], 1.0, 0.5, 3.0).of(6),
    part(Repair, "Engineering", 5000.0, [0.0, 0.8, -0.1], 0.25, 0.1, 4.0).power(1.0).internal(),
    part(Tube, "Forward Torp 1", 1600.0, [-0.13, 1.97, -0.18], 0.2, 0.75, 3.0).of(7).tube(&AKIRA_TUBE, Arc::Forward),
    part(Tube, "Forward Torp 2", 1600.0, [0.13, 1.97, -0.18], 0.2, 0.75, 3.0).of(7).tube(&AKIRA_TUBE, Arc::Forward),
    part(Tube, "Aft Torp 1", 1600.0, [0.0, 0.42, -0.1], 0.2, 0.75, 3.0).of(7).tube(&AKIRA_TUBE, Arc::Aft),
    part(Tube, "Forward Torp 3", 1600.0, [-0.16, -0.3, 0.38], 0.2, 0.75, 3.0).of(7).tube(&AKIRA_TUBE, Arc::Forward),
    part(Tube, "Forward Torp 4", 1600.0, [0.16, -0.3, 0.38], 0.2, 0.75, 3.0).of(7).tube(&AKIRA_TUBE, Arc::Forward),
    part(Tube, "Aft Torp 2", 1600.0, [0.0, -1.1, 0.37], 0.2, 0.75, 3.0).of(7).tube(&AKIRA_TUBE, Arc::Aft),
    part(Beam, "Ventral Phaser 1", 800.0, [-0.5, 1.35, -0.1], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::PortQuarter, 0.38, 0.17),
    part(Beam, "Ventral Phaser 2", 800.0, [-0.6, 1.65, -0.1], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::Forward, 0.68, 0.33),
    part(Beam, "Ventral Phaser 3", 800.0, [0.6, 1.65, -0.1], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::Forward, 0.68, 0.33),
    part(Beam, "Ventral Phaser 4", 800.0, [0.5, 1.35, -0.1], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::StarboardQuarter, 0.38, 0.17),
    part(Beam, "Dorsal Phaser 1", 800.0, [-0.5, 1.4, 0.02], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::PortQuarter, 0.76, 0.58),
    part(Beam, "Dorsal Phaser 2", 800.0, [0.0, 1.35, 0.02], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::Forward, 1.08, 1.02),
    part(Beam, "Dorsal Phaser 3", 800.0, [0.0, 1.35, 0.02], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::Forward, 1.08, 1.02),
    part(Beam, "Dorsal Phaser 4", 800.0, [0.5, 1.4, 0.02], 0.25, 0.75, 7.0).of(5).beam(&AKIRA_BEAM, Arc::StarboardQuarter, 0.76, 0.58),
    part(WeaponSystem, "Tractors", 1500.0, [0.0, 1.3, -0.25], 0.25, 0.75, 7.0).power(600.0).internal().one_at_a_time(),
    part(Tractor, "Forward Tractor", 1500.0, [0.0, 2.45, -0.1], 0.2, 0.75, 7.0).of(27).tractor(&AKIRA_TRACTOR, Arc::Forward),
    part(Tractor, "Aft Tractor", 1500.0, [0.0, -0.9, 0.28], 0.15, 0.75, 7.0).of(27).tractor(&AKIRA_TRACTOR, Arc::Aft),
    part(Hull, "Bridge", 8000.0, [0.0, 1.3, 0.1], 0.3, 0.75, 4.0).critical(),
];

/// The Ambassador.
pub(super) const AMBASSADOR: ShipClass = ShipClass {
    species: 2,
    name: "Ambassador",
    mass: 100.0,
    max_speed: 5.5,
    faces: [5000.0, 2500.0, 2500.0, 2500.0, 2500.0, 2500.0],
    face_rates: [8.0, 8.0, 8.0, 8.0, 8.0, 8.0],
    repair_points: 40.0,
    repair_teams: 3,
    plant: PlantFacts {
        output: 600.0,
        main: 200000.0,
        backup: 50000.0,
        main_conduit: 700.0,
        backup_conduit: 100.0,
    },
    radius: None,
    extents: None,
    bolt: 0,
    parts: AMBASSADOR_PARTS,
};

const AMBASSADOR_BEAM: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 70.0,
    max_charge: 5.0,
    min_charge: 3.5,
    recharge: 0.1,
    radius: 0.1,
};
const AMBASSADOR_TUBE: TubeFacts = TubeFacts { reload: 30.0, ready: 1 };
const AMBASSADOR_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 70.0,
    full_range: 114.0,
    max_charge: 500.0,
    min_charge: 50.0,
    recharge: 1.0,
    radius: 0.3,
};
const AMBASSADOR_TRACTOR_2: BeamFacts = BeamFacts {
    max_damage: 70.0,
    full_range: 114.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const AMBASSADOR_PARTS: &[Part] = &[
    part(Hull, "Hull", 13000.0, [0.0, -1.1, -0.3], 0.7, 0.0, 3.0).critical(),
    part(Shields, "Shield Generator", 9000.0, [0.0, -0.2, 0.35], 0.25, 0.75, 2.0).power(200.0),
    part(Sensors, "Sensor Array", 7000.0, [0.0, 0.0, -0.3], 0.4, 0.5, 1.0).power(50.0),
    part(Reactor, "Warp Core", 6000.0, [0.0, -0.8, -0.35], 0.4, 0.5, 2.0).critical(),
    part(Engines, "Impulse Engines", 1200.0, [0.0, -0.5, -0.3], 0.5, 0.5, 4.0).power(100.0).internal(),
    part(WeaponSystem, "Phasers", 8000.0, [-0.2, 1.0, 0.5], 0.4, 0.75, 7.0).power(150.0).internal().one_at_a_time(),
    part(Engines, "Warp Engines", 3000.0, [-0.2, -0.5, -0.3], 0.5, 0.5, 3.0).power(0.0).internal(),
    part(WeaponSystem, "Torpedoes", 8800.0, [0.2, 1.0, 0.5], 0.3, 0.75, 3.0).power(100.0).internal(),
    part(Beam, "Ventral Phaser 1", 1000.0, [-0.3, 1.1, 0.24], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::PortQuarter, 0.3, 0.13),
    part(Beam, "Ventral Phaser 2", 1000.0, [0.0, 1.3, 0.23], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::Forward, 0.3, 0.2),
    part(Beam, "Ventral Phaser 3", 1000.0, [0.3, 1.1, 0.24], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::StarboardQuarter, 0.3, 0.13),
    part(Tube, "Forward Torpedo 1", 2200.0, [-0.04, 0.2, 0.1], 0.25, 0.75, 3.0).of(7).tube(&AMBASSADOR_TUBE, Arc::Forward),
    part(Tube, "Forward Torpedo 2", 2200.0, [0.04, 0.2, 0.1], 0.25, 0.75, 3.0).of(7).tube(&AMBASSADOR_TUBE, Arc::Forward),
    part(Tube, "Aft Torpedo 1", 2200.0, [-0.07, -0.75, 0.16], 0.2, 0.75, 3.0).of(7).tube(&AMBASSADOR_TUBE, Arc::Aft),
    part(Tube, "Aft Torpedo 2", 2200.0, [0.07, -0.75, 0.16], 0.2, 0.75, 3.0).of(7).tube(&AMBASSADOR_TUBE, Arc::Aft),
    part(Engine, "Port Impulse", 2400.0, [-1.1, 0.0, 0.4], 0.3, 0.5, 3.0).of(4),
    part(Engine, "Star Impulse", 2400.0, [1.1, 0.0, 0.4], 0.3, 0.5, 3.0).of(4),
    part(Engine, "Port Warp", 4000.0, [-1.2, -1.8, 0.3], 0.8, 0.5, 3.0).of(6),
    part(Engine, "Star Warp", 4000.0, [1.2, -1.8, 0.3], 0.8, 0.5, 3.0).of(6),
    part(Repair, "Engineering", 11000.0, [0.0, -0.5, -0.3], 0.6, 0.01, 1.0).power(1.0).internal(),
    part(Hull, "Bridge", 11000.0, [0.0, 1.1, 0.52], 0.35, 0.0, 4.0).critical(),
    part(WeaponSystem, "Tractors", 4000.0, [0.0, 0.0, 0.0], 0.25, 0.75, 7.0).power(600.0).internal().one_at_a_time(),
    part(Tractor, "Forward Tractor", 2000.0, [0.0, 2.7, 0.36], 0.2, 0.75, 7.0).of(21).tractor(&AMBASSADOR_TRACTOR, Arc::Forward),
    part(Tractor, "Aft Tractor", 2000.0, [0.0, -2.5, -0.18], 0.25, 0.75, 7.0).of(21).tractor(&AMBASSADOR_TRACTOR_2, Arc::Aft),
    part(Beam, "Dorsal Phaser 1", 1000.0, [-0.9, 1.1, 0.52], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::PortQuarter, 0.5, 0.24),
    part(Beam, "Dorsal Phaser 2", 1000.0, [0.0, 1.95, 0.52], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::Forward, 0.5, 0.24),
    part(Beam, "Dorsal Phaser 3", 1000.0, [0.9, 1.1, 0.52], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::StarboardQuarter, 0.5, 0.24),
    part(Beam, "Aft Phaser 1", 1000.0, [-0.4, 0.28, 0.52], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::Aft, 0.31, 0.2),
    part(Beam, "Aft Phaser 2", 1000.0, [0.4, 0.28, 0.52], 0.25, 0.75, 7.0).of(5).beam(&AMBASSADOR_BEAM, Arc::Aft, 0.31, 0.2),
];

/// The Galaxy.
pub(super) const GALAXY: ShipClass = ShipClass {
    species: 3,
    name: "Galaxy",
    mass: 120.0,
    max_speed: 6.3,
    faces: [8000.0, 4000.0, 4000.0, 4000.0, 4000.0, 4000.0],
    face_rates: [11.0, 11.0, 11.0, 11.0, 11.0, 11.0],
    repair_points: 50.0,
    repair_teams: 3,
    plant: PlantFacts {
        output: 1000.0,
        main: 250000.0,
        backup: 80000.0,
        main_conduit: 1200.0,
        backup_conduit: 200.0,
    },
    radius: Some(4.3665),
    extents: Some(([2.3206, 3.2217, 0.705], [0.0, 0.0, 0.0])),
    bolt: 0,
    parts: GALAXY_PARTS,
};

const GALAXY_TUBE: TubeFacts = TubeFacts { reload: 40.0, ready: 1 };
const GALAXY_BEAM: BeamFacts = BeamFacts {
    max_damage: 250.0,
    full_range: 60.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.08,
    radius: 0.15,
};
const GALAXY_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 80.0,
    full_range: 118.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.5,
    radius: 0.3,
};
const GALAXY_TRACTOR_2: BeamFacts = BeamFacts {
    max_damage: 50.0,
    full_range: 118.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const GALAXY_PARTS: &[Part] = &[
    part(Hull, "Hull", 15000.0, [0.0, -1.5, -0.5], 1.0, 0.0, 3.0).critical(),
    part(Reactor, "Warp Core", 7000.0, [0.0, -1.4, -0.48], 0.4, 0.5, 2.0).critical(),
    part(Shields, "Shield Generator", 12000.0, [0.0, -0.4, 0.2], 0.5, 0.75, 2.0).power(400.0),
    part(Sensors, "Sensor Array", 8000.0, [0.0, -0.45, -0.5], 0.28, 0.5, 1.0).power(100.0),
    part(WeaponSystem, "Torpedoes", 8000.0, [0.0, 0.0, 0.0], 0.2, 0.75, 3.0).power(100.0).internal(),
    part(Tube, "Forward Torpedo 1", 2400.0, [0.0, -0.25, -0.25], 0.2, 0.75, 3.0).of(4).tube(&GALAXY_TUBE, Arc::Forward),
    part(Tube, "Forward Torpedo 2", 2400.0, [0.0, -0.25, -0.25], 0.2, 0.75, 3.0).of(4).tube(&GALAXY_TUBE, Arc::Forward),
    part(Tube, "Forward Torpedo 3", 2400.0, [0.0, -0.25, -0.25], 0.2, 0.75, 3.0).of(4).tube(&GALAXY_TUBE, Arc::Forward),
    part(Tube, "Forward Torpedo 4", 2400.0, [0.0, -0.25, -0.25], 0.2, 0.75, 3.0).of(4).tube(&GALAXY_TUBE, Arc::Forward),
    part(Tube, "Aft Torpedo 1", 2400.0, [-0.065, -1.24841, -0.174909], 0.25, 0.75, 3.0).of(4).tube(&GALAXY_TUBE, Arc::Aft),
    part(Tube, "Aft Torpedo 2", 2400.0, [0.065, -1.24841, -0.174909], 0.25, 0.75, 3.0).of(4).tube(&GALAXY_TUBE, Arc::Aft),
    part(WeaponSystem, "Phasers", 4000.0, [0.0, 0.0, 0.0], 0.4, 0.75, 7.0).power(300.0).internal().one_at_a_time(),
    part(Beam, "Ventral Phaser 1", 1000.0, [0.0, 1.3, 0.16], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::PortQuarter, 1.01, 1.33),
    part(Beam, "Ventral Phaser 2", 1000.0, [0.0, 1.3, 0.16], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::Forward, 1.33, 1.01),
    part(Beam, "Ventral Phaser 3", 1000.0, [0.0, 1.3, 0.16], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::Forward, 1.33, 1.01),
    part(Beam, "Ventral Phaser 4", 1000.0, [0.0, 1.3, 0.16], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::StarboardQuarter, 1.01, 1.33),
    part(Beam, "Dorsal Phaser 1", 1000.0, [0.0, 1.27, 0.5], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::PortQuarter, 1.35, 1.69),
    part(Beam, "Dorsal Phaser 2", 1000.0, [0.0, 1.27, 0.5], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::Forward, 1.69, 1.35),
    part(Beam, "Dorsal Phaser 3", 1000.0, [0.0, 1.27, 0.5], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::Forward, 1.69, 1.35),
    part(Beam, "Dorsal Phaser 4", 1000.0, [0.0, 1.27, 0.5], 0.25, 0.75, 7.0).of(11).beam(&GALAXY_BEAM, Arc::StarboardQuarter, 1.35, 1.69),
    part(Engines, "Impulse Engines", 2400.0, [0.0, -0.98, -0.45], 0.25, 0.5, 3.0).power(150.0).internal(),
    part(Engine, "Port Impulse", 2600.0, [-1.22, -0.2, 0.32], 0.25, 0.5, 3.0).of(20),
    part(Engine, "Star Impulse", 2600.0, [1.22, -0.2, 0.32], 0.25, 0.5, 3.0).of(20),
    part(Engine, "Center Impulse", 2600.0, [0.0, -1.1, -0.08], 0.25, 0.5, 3.0).of(20),
    part(Engines, "Warp Engines", 500.0, [-0.3, -0.98, -0.45], 0.25, 0.5, 3.0).power(0.0).internal(),
    part(Engine, "Port Warp", 5000.0, [-1.3, -2.1, -0.06], 1.2, 0.5, 3.0).of(24),
    part(Engine, "Star Warp", 5000.0, [1.3, -2.1, -0.06], 1.2, 0.5, 3.0).of(24),
    part(WeaponSystem, "Tractors", 3000.0, [0.0, -0.6, -0.16], 0.3, 0.75, 7.0).power(600.0).internal().one_at_a_time(),
    part(Tractor, "Aft Tractor 2", 1500.0, [0.0, -1.0, -0.73], 0.25, 0.75, 7.0).of(27).tractor(&GALAXY_TRACTOR, Arc::Aft),
    part(Tractor, "Aft Tractor 1", 1500.0, [0.0, 0.18, 0.57], 0.25, 0.75, 7.0).of(27).tractor(&GALAXY_TRACTOR, Arc::Aft),
    part(Hull, "Bridge", 12000.0, [0.0, 1.2, 0.56], 0.5, 0.0, 4.0).critical(),
    part(Repair, "Engineering", 12000.0, [0.0, -1.83114, -0.4], 0.25, 0.1, 2.0).power(1.0).internal(),
    part(Tractor, "Forward Tractor 1", 1500.0, [0.0, 2.4, 0.52], 0.2, 0.75, 7.0).of(27).tractor(&GALAXY_TRACTOR_2, Arc::Forward),
    part(Tractor, "Forward Tractor 2", 1500.0, [0.0, 1.7, 0.06], 0.2, 0.75, 7.0).of(27).tractor(&GALAXY_TRACTOR_2, Arc::Forward),
];

/// The Nebula.
pub(super) const NEBULA: ShipClass = ShipClass {
    species: 4,
    name: "Nebula",
    mass: 100.0,
    max_speed: 6.0,
    faces: [7000.0, 3500.0, 3500.0, 3500.0, 3500.0, 3500.0],
    face_rates: [10.0, 10.0, 10.0, 10.0, 10.0, 10.0],
    repair_points: 40.0,
    repair_teams: 3,
    plant: PlantFacts {
        output: 800.0,
        main: 100000.0,
        backup: 150000.0,
        main_conduit: 1000.0,
        backup_conduit: 200.0,
    },
    radius: Some(3.2013),
    extents: None,
    bolt: 0,
    parts: NEBULA_PARTS,
};

const NEBULA_BEAM: BeamFacts = BeamFacts {
    max_damage: 250.0,
    full_range: 50.0,
    max_charge: 5.0,
    min_charge: 3.5,
    recharge: 0.08,
    radius: 0.25,
};
const NEBULA_TUBE: TubeFacts = TubeFacts { reload: 40.0, ready: 1 };
const NEBULA_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 100.0,
    full_range: 700.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};
const NEBULA_TRACTOR_2: BeamFacts = BeamFacts {
    max_damage: 100.0,
    full_range: 200.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const NEBULA_PARTS: &[Part] = &[
    part(Hull, "Hull", 12000.0, [0.0, -1.1, -0.28], 0.5, 0.5, 3.0).critical(),
    part(Shields, "Shield Generator", 9000.0, [0.0, -0.4, 0.24], 0.28, 0.75, 2.0).power(250.0),
    part(Sensors, "Sensor Array", 8000.0, [0.0, -0.25, -0.3], 0.25, 0.5, 1.0).power(100.0),
    part(Reactor, "Warp Core", 7000.0, [0.0, -1.0, -0.25], 0.35, 0.5, 2.0).critical(),
    part(Engines, "Impulse Engines", 4000.0, [0.0, -1.0, 0.0], 0.25, 0.5, 3.0).power(100.0).internal(),
    part(WeaponSystem, "Phasers", 8000.0, [0.0, 0.0, 0.0], 0.2, 0.75, 7.0).power(200.0).internal().one_at_a_time(),
    part(Engines, "Warp Engines", 10000.0, [0.0, -1.5, -0.2], 0.25, 0.5, 2.0).power(0.0).internal(),
    part(WeaponSystem, "Torpedoes", 8000.0, [0.0, 0.0, 0.0], 0.25, 0.75, 3.0).power(150.0).internal(),
    part(Beam, "Ventral Phaser 1", 1000.0, [0.0, 0.44, -0.06], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::PortQuarter, 0.93, 1.19),
    part(Beam, "Ventral Phaser 2", 1000.0, [0.0, 0.44, -0.06], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::Forward, 1.19, 0.93),
    part(Beam, "Ventral Phaser 3", 1000.0, [0.0, 0.44, -0.06], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::Forward, 1.19, 0.93),
    part(Beam, "Ventral Phaser 4", 1000.0, [0.0, 0.44, -0.06], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::StarboardQuarter, 0.93, 1.19),
    part(Beam, "Dorsal Phaser 1", 1000.0, [0.0, 0.43, 0.25], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::PortQuarter, 1.16, 1.5),
    part(Beam, "Dorsal Phaser 2", 1000.0, [0.0, 0.43, 0.25], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::Forward, 1.5, 1.16),
    part(Beam, "Dorsal Phaser 3", 1000.0, [0.0, 0.43, 0.25], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::Forward, 1.5, 1.16),
    part(Beam, "Dorsal Phaser 4", 1000.0, [0.0, 0.43, 0.25], 0.25, 0.75, 7.0).of(5).beam(&NEBULA_BEAM, Arc::StarboardQuarter, 1.16, 1.5),
    part(Engine, "Port Impulse", 2400.0, [-1.1, -0.9, 0.1], 0.3, 0.5, 3.0).of(4),
    part(Engine, "Star Impulse", 2400.0, [1.1, -0.9, 0.1], 0.3, 0.5, 3.0).of(4),
    part(Engine, "Port Warp", 5000.0, [-1.2, -1.3, -0.45], 0.55, 0.75, 3.0).of(6),
    part(Engine, "Star Warp", 5000.0, [1.2, -1.3, -0.45], 0.55, 0.75, 3.0).of(6),
    part(Tube, "Forward Torp 1", 2600.0, [-0.12, -0.8, 0.48], 0.25, 0.75, 3.0).of(7).tube(&NEBULA_TUBE, Arc::Forward),
    part(Tube, "Forward Torp 2", 2600.0, [-0.07, -0.78, 0.48], 0.25, 0.75, 3.0).of(7).tube(&NEBULA_TUBE, Arc::Forward),
    part(Tube, "Forward Torp 3", 2600.0, [0.07, -0.78, 0.48], 0.25, 0.75, 3.0).of(7).tube(&NEBULA_TUBE, Arc::Forward),
    part(Tube, "Forward Torp 4", 2600.0, [0.12, -0.8, 0.48], 0.25, 0.75, 3.0).of(7).tube(&NEBULA_TUBE, Arc::Forward),
    part(Tube, "Aft Torp 1", 2600.0, [-0.05, -1.8, 0.48], 0.25, 0.75, 3.0).of(7).tube(&NEBULA_TUBE, Arc::Aft),
    part(Tube, "Aft Torp 2", 2600.0, [0.05, -1.8, 0.48], 0.25, 0.75, 3.0).of(7).tube(&NEBULA_TUBE, Arc::Aft),
    part(Repair, "Repair", 2000.0, [0.0, -1.7, 0.1], 0.25, 0.1, 2.0).power(1.0).internal(),
    part(WeaponSystem, "Tractors", 3000.0, [0.0, -0.7, -0.4], 0.25, 0.75, 7.0).power(400.0).internal().one_at_a_time(),
    part(Hull, "Bridge", 9000.0, [0.0, 0.4, 0.3], 0.46, 0.5, 4.0).critical(),
    part(Tractor, "Aft Tractor", 1500.0, [0.0, -1.92, 0.08], 0.2, 0.75, 7.0).of(27).tractor(&NEBULA_TRACTOR, Arc::Aft),
    part(Tractor, "Forward Tractor", 1500.0, [0.0, 2.2, 0.08], 0.2, 0.75, 7.0).of(27).tractor(&NEBULA_TRACTOR_2, Arc::Forward),
];

/// The Sovereign.
pub(super) const SOVEREIGN: ShipClass = ShipClass {
    species: 5,
    name: "Sovereign",
    mass: 100.0,
    max_speed: 7.5,
    faces: [11000.0, 5500.0, 11000.0, 11000.0, 5500.0, 5500.0],
    face_rates: [12.0, 12.0, 12.0, 12.0, 12.0, 12.0],
    repair_points: 50.0,
    repair_teams: 3,
    plant: PlantFacts {
        output: 1200.0,
        main: 200000.0,
        backup: 100000.0,
        main_conduit: 1450.0,
        backup_conduit: 250.0,
    },
    radius: Some(3.929),
    extents: Some(([1.1543, 3.4988, 0.414], [0.0, -0.185, -0.07])),
    bolt: 0,
    parts: SOVEREIGN_PARTS,
};

const SOVEREIGN_TUBE: TubeFacts = TubeFacts { reload: 40.0, ready: 1 };
const SOVEREIGN_BEAM: BeamFacts = BeamFacts {
    max_damage: 300.0,
    full_range: 70.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.08,
    radius: 0.15,
};
const SOVEREIGN_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 80.0,
    full_range: 114.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};
const SOVEREIGN_TRACTOR_2: BeamFacts = BeamFacts {
    max_damage: 80.0,
    full_range: 114.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.5,
    radius: 0.3,
};

#[rustfmt::skip]
const SOVEREIGN_PARTS: &[Part] = &[
    part(Hull, "Hull", 12000.0, [0.0, -0.2, -0.25], 0.7, 0.0, 3.0).critical(),
    part(Shields, "Shield Generator", 10000.0, [0.0, 0.5, 0.0], 0.3, 0.75, 2.0).power(450.0),
    part(Sensors, "Sensor Array", 8000.0, [0.0, 2.35, 0.07], 0.25, 0.5, 1.0).power(150.0),
    part(Reactor, "Warp Core", 7000.0, [0.0, -0.4, -0.2], 0.3, 0.5, 2.0).critical(),
    part(Engines, "Impulse Engines", 3000.0, [0.49222, 0.933819, 0.1], 0.15, 0.5, 3.0).power(200.0).internal(),
    part(WeaponSystem, "Torpedoes", 6000.0, [0.0, 0.0, -0.1], 0.25, 0.75, 3.0).power(150.0).internal(),
    part(Tube, "Forward Torpedo 1", 2200.0, [-0.076, 0.7, -0.375], 0.04, 0.75, 3.0).of(5).tube(&SOVEREIGN_TUBE, Arc::Forward),
    part(Tube, "Forward Torpedo 2", 2200.0, [-0.031225, 0.7, -0.375], 0.04, 0.75, 3.0).of(5).tube(&SOVEREIGN_TUBE, Arc::Forward),
    part(Tube, "Forward Torpedo 3", 2200.0, [0.031225, 0.7, -0.375], 0.04, 0.75, 3.0).of(5).tube(&SOVEREIGN_TUBE, Arc::Forward),
    part(Tube, "Forward Torpedo 4", 2200.0, [0.082957, 0.7, -0.375], 0.04, 0.75, 3.0).of(5).tube(&SOVEREIGN_TUBE, Arc::Forward),
    part(Tube, "Aft Torpedo 1", 2200.0, [-0.13, -0.65, -0.35], 0.15, 0.75, 3.0).of(5).tube(&SOVEREIGN_TUBE, Arc::Aft),
    part(Tube, "Aft Torpedo 2", 2200.0, [0.13, -0.65, -0.35], 0.15, 0.75, 3.0).of(5).tube(&SOVEREIGN_TUBE, Arc::Aft),
    part(Beam, "Ventral Phaser 1", 1000.0, [0.0, 1.7, -0.075], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::PortQuarter, 1.47, 1.04),
    part(Beam, "Ventral Phaser 2", 1000.0, [0.0, 1.7, -0.075], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::Forward, 1.04, 1.47),
    part(Beam, "Ventral Phaser 3", 1000.0, [0.0, 1.7, -0.075], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::Forward, 1.04, 1.47),
    part(Beam, "Ventral Phaser 4", 1000.0, [0.0, 1.7, -0.075], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::StarboardQuarter, 1.47, 1.04),
    part(Beam, "Dorsal Phaser 1", 1000.0, [0.0, 1.6, 0.14], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::PortQuarter, 1.04, 0.7),
    part(Beam, "Dorsal Phaser 2", 1000.0, [0.0, 1.6, 0.14], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::Forward, 0.7, 1.04),
    part(Beam, "Dorsal Phaser 3", 1000.0, [0.0, 1.6, 0.14], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::Forward, 0.7, 1.04),
    part(Beam, "Dorsal Phaser 4", 1000.0, [0.0, 1.6, 0.14], 0.05, 0.75, 7.0).of(25).beam(&SOVEREIGN_BEAM, Arc::StarboardQuarter, 1.04, 0.7),
    part(Engine, "Port Impulse", 3000.0, [-0.6, 0.4, 0.0], 0.25, 0.5, 3.0).of(4),
    part(Engine, "Star Impulse", 3000.0, [0.6, 0.4, 0.0], 0.25, 0.5, 3.0).of(4),
    part(Engine, "Port Warp", 4500.0, [-0.88, -2.3, 0.15], 1.0, 0.5, 3.0).of(27),
    part(Engine, "Star Warp", 4500.0, [0.88, -2.3, 0.15], 1.0, 0.5, 3.0).of(27),
    part(Repair, "Repair", 8000.0, [0.0, -0.2, -0.2], 0.5, 0.01, 1.0).power(1.0).internal(),
    part(WeaponSystem, "Phasers", 8000.0, [0.0, 0.0, 0.0], 0.25, 0.75, 7.0).power(400.0).internal().one_at_a_time(),
    part(WeaponSystem, "Tractors", 3000.0, [0.0, 0.0, 0.0], 0.25, 0.75, 7.0).power(700.0).internal().one_at_a_time(),
    part(Engines, "Warp Engines", 8000.0, [0.0, 0.0, 0.0], 0.25, 0.5, 3.0).power(0.0).internal(),
    part(Hull, "Bridge", 10000.0, [0.0, 1.8, 0.16], 0.35, 0.0, 4.0).critical(),
    part(Tractor, "Aft Tractor 1", 1500.0, [0.0, 0.29, 0.1], 0.25, 0.75, 7.0).of(26).tractor(&SOVEREIGN_TRACTOR, Arc::Aft),
    part(Tractor, "Aft Tractor 2", 1500.0, [0.0, -2.0, -0.17], 0.28, 0.75, 7.0).of(26).tractor(&SOVEREIGN_TRACTOR, Arc::Aft),
    part(Tractor, "Forward Tractor 1", 1500.0, [0.0, 3.1, 0.07], 0.15, 0.75, 7.0).of(26).tractor(&SOVEREIGN_TRACTOR_2, Arc::Forward),
    part(Tractor, "Forward Tractor 2", 1500.0, [0.0, 3.0, -0.08], 0.15, 0.75, 7.0).of(26).tractor(&SOVEREIGN_TRACTOR_2, Arc::Forward),
];

/// The Shuttle.
pub(super) const SHUTTLE: ShipClass = ShipClass {
    species: 15,
    name: "Shuttle",
    mass: 15.0,
    max_speed: 4.0,
    faces: [2400.0, 800.0, 800.0, 800.0, 800.0, 800.0],
    face_rates: [15.0, 12.0, 12.0, 12.0, 12.0, 12.0],
    repair_points: 2.0,
    repair_teams: 1,
    plant: PlantFacts {
        output: 100.0,
        main: 20000.0,
        backup: 10000.0,
        main_conduit: 140.0,
        backup_conduit: 40.0,
    },
    radius: Some(0.1506),
    extents: None,
    bolt: 0,
    parts: SHUTTLE_PARTS,
};

const SHUTTLE_BEAM: BeamFacts = BeamFacts {
    max_damage: 300.0,
    full_range: 45.0,
    max_charge: 4.0,
    min_charge: 2.0,
    recharge: 0.8,
    radius: 0.1,
};
const SHUTTLE_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 20.0,
    full_range: 100.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const SHUTTLE_PARTS: &[Part] = &[
    part(Hull, "Hull", 1600.0, [0.0, 0.0, 0.0], 0.12, 0.0, 1.0).critical(),
    part(Engines, "Impulse Engines", 1000.0, [0.0, 0.0, 0.0], 0.003, 0.5, 2.0).power(10.0).internal(),
    part(Reactor, "Warp Core", 1000.0, [0.0, -0.06, -0.03], 0.04, 0.5, 1.0).critical(),
    part(Sensors, "Sensor Array", 1400.0, [0.0, 0.04, -0.014], 0.03, 0.5, 0.4).power(20.0),
    part(Shields, "Shield Generator", 2600.0, [0.0, -0.04, 0.04], 0.04, 0.75, 1.0).power(30.0),
    part(WeaponSystem, "Phasers", 800.0, [0.000175, 0.015236, -0.000475], 0.0025, 0.75, 3.0).power(70.0).internal().one_at_a_time(),
    part(Beam, "Phaser", 800.0, [0.0, 0.11, -0.013], 0.034, 0.75, 3.0).of(5).internal().beam(&SHUTTLE_BEAM, Arc::Forward, 0.001, 0.001),
    part(Engine, "Port Impulse", 1100.0, [-0.05, -0.08, 0.034], 0.03, 0.5, 1.0).of(1),
    part(Engine, "Star Impulse", 1100.0, [0.05, -0.08, 0.034], 0.03, 0.5, 1.0).of(1),
    part(Repair, "Repair", 200.0, [0.0, 0.03, 0.0], 0.03, 0.1, 4.0).power(1.0).internal(),
    part(Engines, "Warp Engines", 1600.0, [0.0, 0.0, -0.02], 0.01, 0.5, 1.0).power(0.0).internal(),
    part(Engine, "Port Warp", 800.0, [-0.072, -0.04, -0.034], 0.03, 0.5, 1.0).of(10),
    part(Engine, "Star Warp", 800.0, [0.072, -0.04, -0.034], 0.03, 0.5, 1.0).of(10),
    part(WeaponSystem, "Tractors", 400.0, [0.0, -0.05, -0.01], 0.05, 0.75, 4.0).power(120.0).internal().one_at_a_time(),
    part(Tractor, "Forward Tractor", 400.0, [0.0, 0.12, -0.01], 0.04, 0.75, 4.0).of(13).internal().tractor(&SHUTTLE_TRACTOR, Arc::Forward),
];
