//! Klingon, Romulan and Ferengi ships.
//!
//! Source and confidence of the columns: see the parent module.

use super::PartKind::{
    Beam, Cloak, Engine, Engines, Hull, Pulse, Reactor, Repair, Sensors, Shields, Tractor, Tube, WeaponSystem,
};
use super::{Arc, BeamFacts, Part, PlantFacts, PulseFacts, ShipClass, TubeFacts, part};
/// The Bird of Prey.
pub(super) const BIRD_OF_PREY: ShipClass = ShipClass {
    species: 6,
    name: "Bird of Prey",
    mass: 45.0,
    max_speed: 6.2,
    faces: [3000.0, 3000.0, 3000.0, 3000.0, 3000.0, 3000.0],
    face_rates: [20.0, 8.0, 8.0, 3.0, 3.0, 3.0],
    repair_points: 16.0,
    repair_teams: 1,
    plant: PlantFacts {
        output: 400.0,
        main: 80000.0,
        backup: 40000.0,
        main_conduit: 470.0,
        backup_conduit: 70.0,
    },
    radius: Some(1.349),
    extents: None,
    bolt: 8,
    parts: BIRD_OF_PREY_PARTS,
};

const BIRD_OF_PREY_PULSE: PulseFacts =
    PulseFacts { max_charge: 3.8, min_charge: 3.6, recharge: 0.4, cooldown: 0.2 };
const BIRD_OF_PREY_TUBE: TubeFacts = TubeFacts { reload: 20.0, ready: 1 };

#[rustfmt::skip]
const BIRD_OF_PREY_PARTS: &[Part] = &[
    part(Hull, "Hull", 4000.0, [0.0, -0.15, 0.0], 0.5, 0.0, 3.0).critical(),
    part(Shields, "Shield Generator", 5000.0, [0.0, -0.1, 0.12], 0.12, 0.75, 2.0).power(180.0),
    part(Reactor, "Warp Core", 2400.0, [0.0, -0.33, 0.0], 0.19, 0.5, 2.0).critical(),
    part(WeaponSystem, "Disruptor Cannons", 600.0, [0.0, 0.65, 0.03], 0.1, 0.75, 9.0).power(80.0).internal(),
    part(Pulse, "Port Cannon", 600.0, [-1.009, 0.45, -0.67], 0.25, 0.75, 9.0).of(3).pulse(&BIRD_OF_PREY_PULSE, Arc::Forward),
    part(Pulse, "Star Cannon", 600.0, [1.008, 0.45, -0.67], 0.25, 0.75, 9.0).of(3).pulse(&BIRD_OF_PREY_PULSE, Arc::Forward),
    part(WeaponSystem, "Torpedoes", 2200.0, [0.0, 0.65, 0.04], 0.09, 0.75, 3.0).power(50.0).internal(),
    part(Tube, "Fwd Torpedo", 2200.0, [0.0, 0.816025, -0.033764], 0.08, 0.75, 3.0).of(6).tube(&BIRD_OF_PREY_TUBE, Arc::Forward),
    part(Engines, "Impulse Engines", 2400.0, [-0.234938, -0.218531, -0.046803], 0.12, 0.5, 4.0).power(50.0).internal(),
    part(Engine, "Impulse Engine", 2400.0, [0.0, -0.5, 0.03], 0.15, 0.5, 4.0).of(8),
    part(Engines, "Warp Engines", 3200.0, [0.237953, -0.306927, 0.053082], 0.1, 0.75, 3.0).power(0.0).internal(),
    part(Engine, "Port Warp", 1600.0, [-0.2, -0.2, 0.0], 0.17, 0.75, 3.0).of(10),
    part(Engine, "Star Warp", 1600.0, [0.2, -0.2, 0.0], 0.17, 0.75, 3.0).of(10),
    part(Cloak, "Cloaking Device", 800.0, [0.0, 0.37, 0.0], 0.07, 0.75, 6.0).power(380.0),
    part(Sensors, "Sensor Array", 6000.0, [0.0, 0.2, 0.09], 0.08, 0.5, 1.0).power(50.0),
    part(Repair, "Engineering", 400.0, [0.0, -0.1, 0.1], 0.15, 0.1, 4.0).power(1.0).internal(),
];

/// The Vor'cha.
pub(super) const VORCHA: ShipClass = ShipClass {
    species: 7,
    name: "Vor'cha",
    mass: 150.0,
    max_speed: 7.6,
    faces: [24000.0, 6000.0, 3500.0, 3000.0, 4500.0, 4500.0],
    face_rates: [28.0, 9.0, 2.0, 2.0, 2.0, 2.0],
    repair_points: 32.0,
    repair_teams: 2,
    plant: PlantFacts {
        output: 800.0,
        main: 100000.0,
        backup: 100000.0,
        main_conduit: 900.0,
        backup_conduit: 200.0,
    },
    radius: Some(3.237),
    extents: None,
    bolt: 1,
    parts: VORCHA_PARTS,
};

const VORCHA_BEAM: BeamFacts = BeamFacts {
    max_damage: 450.0,
    full_range: 60.0,
    max_charge: 8.0,
    min_charge: 4.0,
    recharge: 0.35,
    radius: 0.18,
};
const VORCHA_PULSE: PulseFacts =
    PulseFacts { max_charge: 3.3, min_charge: 3.0, recharge: 0.33, cooldown: 0.8 };
const VORCHA_TUBE: TubeFacts = TubeFacts { reload: 30.0, ready: 1 };
const VORCHA_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 70.0,
    full_range: 120.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const VORCHA_PARTS: &[Part] = &[
    part(Hull, "Hull", 18000.0, [0.0, 0.8, 0.0], 1.5, 0.0, 2.0).critical(),
    part(Shields, "Shield Generator", 10000.0, [0.0, 1.1, -0.13], 0.18, 0.75, 2.0).power(250.0),
    part(Reactor, "Warp Core", 7000.0, [0.0, -0.1, -0.07], 0.3, 0.5, 2.0).critical(),
    part(WeaponSystem, "Disruptor Beams", 1600.0, [-0.020195, 1.79662, 0.0], 0.1, 0.75, 7.0).power(50.0).internal().one_at_a_time(),
    part(Beam, "Disruptor", 2000.0, [0.0, 2.95, -0.014608], 0.2, 0.75, 7.0).of(3).beam(&VORCHA_BEAM, Arc::Forward, 0.001, 0.001),
    part(WeaponSystem, "Disruptor Cannons", 3200.0, [0.0, -0.296443, 0.25], 0.1, 0.75, 9.0).power(150.0).internal(),
    part(Pulse, "Port Cannon", 1600.0, [-1.55, 0.2, -0.25], 0.1, 0.75, 9.0).of(5).pulse(&VORCHA_PULSE, Arc::Forward),
    part(Pulse, "Star Cannon", 1600.0, [1.55, 0.2, -0.25], 0.1, 0.75, 9.0).of(5).pulse(&VORCHA_PULSE, Arc::Forward),
    part(WeaponSystem, "Torpedoes", 4400.0, [0.0, 2.51462, -0.03], 0.1, 0.75, 3.0).power(150.0).internal(),
    part(Tube, "Fwd Torpedo 1", 2200.0, [-0.05, 2.9, -0.03], 0.1, 0.75, 3.0).of(8).tube(&VORCHA_TUBE, Arc::Forward),
    part(Tube, "Fwd Torpedo 2", 2200.0, [0.05, 2.9, -0.03], 0.1, 0.75, 3.0).of(8).tube(&VORCHA_TUBE, Arc::Forward),
    part(Tube, "Aft Torpedo", 2200.0, [0.0, -0.5, -0.03], 0.2, 0.75, 3.0).of(8).tube(&VORCHA_TUBE, Arc::Aft),
    part(Engines, "Impulse Engines", 6000.0, [-0.707087, -0.11634, -0.1], 0.2, 0.5, 4.0).power(100.0).internal(),
    part(Engine, "Port Impulse", 3000.0, [-0.82, -0.42, -0.05], 0.25, 0.5, 3.0).of(12),
    part(Engine, "Star Impulse", 3000.0, [0.82, -0.42, -0.05], 0.25, 0.5, 3.0).of(12),
    part(Engines, "Warp Engines", 10000.0, [-0.014205, 0.90963, 0.0], 0.2, 0.75, 3.0).power(0.0).internal(),
    part(Engine, "Port Warp", 5000.0, [-1.9, -0.55, -0.6], 0.6, 0.75, 3.0).of(15),
    part(Engine, "Star Warp", 5000.0, [1.9, -0.55, -0.6], 0.6, 0.75, 3.0).of(15),
    part(Cloak, "Cloaking Device", 2000.0, [0.0, 2.0, -0.07], 0.2, 0.75, 6.0).power(700.0),
    part(Sensors, "Sensor Array", 7000.0, [0.0, 2.2, 0.15], 0.13, 0.75, 1.0).power(100.0),
    part(Repair, "Repair System", 800.0, [-0.364869, 0.325853, -0.05], 0.15, 0.1, 10.0).power(1.0).internal(),
    part(WeaponSystem, "Tractors", 2400.0, [0.0, 0.6, -0.2], 0.25, 0.75, 7.0).power(700.0).internal().one_at_a_time(),
    part(Tractor, "Aft Tractor", 1200.0, [0.0, -0.5, 0.2], 0.15, 0.75, 7.0).of(21).tractor(&VORCHA_TRACTOR, Arc::Aft),
    part(Tractor, "Forward Tractor", 1200.0, [0.0, 1.5, -0.18], 0.2, 0.75, 7.0).of(21).tractor(&VORCHA_TRACTOR, Arc::Forward),
];

/// The Warbird.
pub(super) const WARBIRD: ShipClass = ShipClass {
    species: 8,
    name: "Warbird",
    mass: 400.0,
    max_speed: 4.5,
    faces: [4000.0, 4000.0, 4000.0, 4000.0, 4000.0, 4000.0],
    face_rates: [8.0, 8.0, 8.0, 8.0, 8.0, 8.0],
    repair_points: 28.0,
    repair_teams: 4,
    plant: PlantFacts {
        output: 1500.0,
        main: 100000.0,
        backup: 200000.0,
        main_conduit: 1700.0,
        backup_conduit: 300.0,
    },
    radius: Some(7.548),
    extents: Some(([4.84, 6.29, 1.73], [0.0, 0.0, 0.0])),
    bolt: 15,
    parts: WARBIRD_PARTS,
};

const WARBIRD_BEAM: BeamFacts = BeamFacts {
    max_damage: 250.0,
    full_range: 40.0,
    max_charge: 6.0,
    min_charge: 4.0,
    recharge: 0.26,
    radius: 0.1,
};
const WARBIRD_PULSE: PulseFacts =
    PulseFacts { max_charge: 2.0, min_charge: 1.2, recharge: 0.09, cooldown: 1.6 };
const WARBIRD_TUBE: TubeFacts = TubeFacts { reload: 10.0, ready: 2 };
const WARBIRD_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 80.0,
    full_range: 180.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const WARBIRD_PARTS: &[Part] = &[
    part(Hull, "Hull", 24000.0, [0.0, -0.44, 1.3], 4.0, 0.0, 3.0).critical(),
    part(Shields, "Shield Generator", 12000.0, [0.0, 1.4, -0.5], 0.5, 0.75, 2.0).power(400.0),
    part(Reactor, "Power Plant", 6000.0, [0.0, 0.4, -1.2], 0.52, 0.5, 2.0).critical(),
    part(WeaponSystem, "Disruptor Beam", 1400.0, [0.0, 4.0, 0.0], 0.25, 0.75, 7.0).power(100.0).internal().one_at_a_time(),
    part(Beam, "Disruptor", 1400.0, [0.0, 5.69, 0.5], 0.2, 0.75, 8.0).of(3).beam(&WARBIRD_BEAM, Arc::Forward, 0.01, 0.01),
    part(WeaponSystem, "Disruptor Cannons", 3600.0, [0.0, 4.0, 0.0], 0.3, 0.75, 9.0).power(200.0).internal().one_at_a_time(),
    part(Pulse, "Port Cannon 1", 800.0, [-4.71982, 2.1, 0.391266], 0.14, 0.75, 9.0).of(5).pulse(&WARBIRD_PULSE, Arc::Forward),
    part(Pulse, "Port Cannon 2", 800.0, [-4.69604, 2.1, -0.286642], 0.14, 0.75, 9.0).of(5).pulse(&WARBIRD_PULSE, Arc::Forward),
    part(Pulse, "Star Cannon 1", 800.0, [4.70064, 2.1, 0.386971], 0.14, 0.75, 9.0).of(5).pulse(&WARBIRD_PULSE, Arc::Forward),
    part(Pulse, "Star Cannon 2", 800.0, [4.71185, 2.1, -0.283262], 0.14, 0.75, 9.0).of(5).pulse(&WARBIRD_PULSE, Arc::Forward),
    part(WeaponSystem, "Torpedoes", 6000.0, [0.4, 4.65205, -0.526053], 0.2, 0.75, 3.0).power(150.0).internal(),
    part(Tube, "Forward Torpedo", 3200.0, [0.0, 6.05, -0.6], 0.4, 0.75, 4.0).of(10).tube(&WARBIRD_TUBE, Arc::Forward),
    part(Tube, "Aft Torpedo", 3200.0, [0.0, -5.8, -0.4], 0.35, 0.75, 4.0).of(10).tube(&WARBIRD_TUBE, Arc::Aft),
    part(Engines, "Impulse Engines", 3200.0, [0.908, 0.4, -1.2], 0.25, 0.5, 3.0).power(300.0).internal(),
    part(Engine, "Port Impulse", 2200.0, [-4.68, -1.4, 0.04], 0.23, 0.5, 3.0).of(13),
    part(Engine, "Star Impulse", 2200.0, [4.68, -1.4, 0.04], 0.23, 0.5, 3.0).of(13),
    part(Engines, "Warp Engines", 8000.0, [0.0, -4.64049, -0.305373], 0.2, 0.5, 3.0).power(0.0).internal(),
    part(Engine, "Port Warp", 4000.0, [-4.7, 0.6, 0.066], 1.5, 0.5, 3.0).of(16),
    part(Engine, "Star Warp", 4000.0, [4.7, 0.6, 0.066], 1.5, 0.5, 3.0).of(16),
    part(Cloak, "Cloaking Device", 3000.0, [0.0, -2.94717, 1.1], 0.55, 0.75, 7.0).power(1000.0),
    part(Sensors, "Sensor Array", 10000.0, [0.0, 3.0, 1.4], 0.4, 0.5, 1.0).power(200.0),
    part(Repair, "Engineering", 1000.0, [0.0, -5.28643, 0.007125], 0.45, 0.1, 10.0).power(1.0).internal(),
    part(Hull, "Bridge", 14000.0, [0.0, 5.3, 0.2], 0.7, 0.0, 4.0).critical(),
    part(WeaponSystem, "Tractors", 2000.0, [0.0, -5.0, 0.0], 0.3, 0.75, 7.0).power(800.0).internal().one_at_a_time(),
    part(Tractor, "Aft Tractor", 2000.0, [0.0, -6.35, 0.0], 0.25, 0.75, 7.0).of(23).tractor(&WARBIRD_TRACTOR, Arc::Aft),
    part(Tractor, "Forward Tractor", 2000.0, [0.0, 6.0, 0.0], 0.25, 0.75, 7.0).of(23).tractor(&WARBIRD_TRACTOR, Arc::Forward),
];

/// The Marauder.
pub(super) const MARAUDER: ShipClass = ShipClass {
    species: 9,
    name: "Marauder",
    mass: 100.0,
    max_speed: 5.5,
    faces: [6000.0, 4500.0, 3000.0, 4500.0, 3000.0, 3000.0],
    face_rates: [8.0, 4.0, 4.0, 4.0, 4.0, 4.0],
    repair_points: 36.0,
    repair_teams: 4,
    plant: PlantFacts {
        output: 700.0,
        main: 140000.0,
        backup: 100000.0,
        main_conduit: 900.0,
        backup_conduit: 200.0,
    },
    radius: Some(2.575),
    extents: None,
    bolt: 9,
    parts: MARAUDER_PARTS,
};

const MARAUDER_BEAM: BeamFacts = BeamFacts {
    max_damage: 900.0,
    full_range: 80.0,
    max_charge: 4.5,
    min_charge: 3.0,
    recharge: 0.08,
    radius: 0.08,
};
const MARAUDER_PULSE: PulseFacts =
    PulseFacts { max_charge: 3.5, min_charge: 2.0, recharge: 0.4, cooldown: 0.3 };
const MARAUDER_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 110.0,
    full_range: 180.0,
    max_charge: 50.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const MARAUDER_PARTS: &[Part] = &[
    part(Hull, "Hull", 9000.0, [0.0, -0.502, 0.27], 1.0, 0.0, 3.0).critical(),
    part(Shields, "Shield Generator", 12000.0, [0.0, -0.3, 0.1], 0.2, 0.75, 2.0).power(200.0),
    part(Reactor, "Warp Core", 8000.0, [0.0, -1.276, 0.3], 0.25, 0.5, 2.0).critical(),
    part(WeaponSystem, "Phasers", 1200.0, [-1.336, -0.392, 0.1], 0.12, 0.75, 7.0).power(100.0).internal().one_at_a_time(),
    part(Engines, "Impulse Engines", 3000.0, [0.735, -1.192, 0.2], 0.12, 0.5, 4.0).power(50.0).internal(),
    part(Engine, "Port Impulse", 2800.0, [-0.29, -1.8, 0.151], 0.12, 0.5, 4.0).of(4),
    part(Engine, "Star Impulse", 2800.0, [0.29, -1.8, 0.151], 0.12, 0.5, 4.0).of(4),
    part(Engines, "Warp Engines", 400.0, [-0.735, -1.192, 0.2], 0.12, 0.5, 3.0).power(0.0).internal(),
    part(Engine, "Star Warp", 5000.0, [1.35, -0.75, 0.12], 0.6, 0.5, 3.0).of(7),
    part(Engine, "Port Warp", 5000.0, [-1.35, -0.75, 0.12], 0.6, 0.5, 3.0).of(7),
    part(WeaponSystem, "Tractors", 2000.0, [0.0, 0.96, 0.2], 0.2, 0.75, 7.0).power(2000.0).internal().one_at_a_time(),
    part(Sensors, "Sensor Array", 8000.0, [0.0, 1.15, 0.2], 0.2, 0.5, 1.0).power(100.0),
    part(Repair, "Repair Subsystem", 2000.0, [-0.434, -1.165, 0.13], 0.1, 0.1, 1.0).power(1.0).internal(),
    part(Beam, "Ventral Phaser", 2000.0, [0.0, 0.28, -0.04], 0.25, 0.75, 7.0).of(3).beam(&MARAUDER_BEAM, Arc::Forward, 0.02, 0.02),
    part(WeaponSystem, "Plasma Emitters", 4000.0, [0.0, 0.0, 0.0], 0.25, 0.75, 3.0).power(200.0).internal(),
    part(Pulse, "Port Emitter", 4000.0, [-1.3, 0.3, 0.06], 0.25, 0.75, 4.0).of(14).pulse(&MARAUDER_PULSE, Arc::Forward),
    part(Pulse, "Star Emitter", 4000.0, [1.3, 0.3, 0.06], 0.25, 0.75, 4.0).of(14).pulse(&MARAUDER_PULSE, Arc::Forward),
    part(Tractor, "Forward Tractor", 2500.0, [0.0, 1.6, 0.08], 0.2, 0.75, 7.0).of(10).tractor(&MARAUDER_TRACTOR, Arc::Forward),
    part(Tractor, "Aft Tractor", 2500.0, [0.0, -1.55, 0.42], 0.2, 0.75, 7.0).of(10).tractor(&MARAUDER_TRACTOR, Arc::Aft),
];
