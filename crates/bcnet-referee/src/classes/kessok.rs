//! Kessok ships.
//!
//! Source and confidence of the columns: see the parent module.

use super::PartKind::{
    Beam, Cloak, Engine, Engines, Hull, Reactor, Repair, Sensors, Shields, Tube, WeaponSystem,
};
use super::{Arc, BeamFacts, Part, PlantFacts, ShipClass, TubeFacts, part};
/// The Kessok Heavy.
pub(super) const KESSOK_HEAVY: ShipClass = ShipClass {
    species: 13,
    name: "Kessok Heavy",
    mass: 500.0,
    max_speed: 3.7,
    faces: [8500.0, 5000.0, 20000.0, 2500.0, 5000.0, 5000.0],
    face_rates: [20.0, 12.0, 40.0, 2.0, 12.0, 12.0],
    repair_points: 140.0,
    repair_teams: 4,
    plant: PlantFacts {
        output: 1400.0,
        main: 100000.0,
        backup: 100000.0,
        main_conduit: 1500.0,
        backup_conduit: 100.0,
    },
    radius: Some(6.174),
    extents: None,
    bolt: 0,
    parts: KESSOK_HEAVY_PARTS,
};

const KESSOK_HEAVY_TUBE: TubeFacts = TubeFacts { reload: 60.0, ready: 1 };
const KESSOK_HEAVY_BEAM: BeamFacts = BeamFacts {
    max_damage: 400.0,
    full_range: 200.0,
    max_charge: 7.0,
    min_charge: 4.0,
    recharge: 0.17,
    radius: 0.15,
};
const KESSOK_HEAVY_BEAM_2: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 120.0,
    max_charge: 7.0,
    min_charge: 4.0,
    recharge: 0.05,
    radius: 0.1,
};

#[rustfmt::skip]
const KESSOK_HEAVY_PARTS: &[Part] = &[
    part(Hull, "Hull", 18000.0, [0.0, -1.0, -0.3], 3.4, 0.0, 2.0).critical(),
    part(Reactor, "Warp Core", 7000.0, [0.0, -1.6, -0.35], 0.5, 0.5, 2.0).critical(),
    part(Engines, "Impulse Engines", 8000.0, [0.0, 0.0, -0.1], 0.25, 0.5, 4.0).power(200.0).internal(),
    part(Engine, "Port Impulse", 5000.0, [-1.5, -5.2, 0.5], 1.2, 0.5, 3.0).of(2),
    part(Engine, "Star Impulse", 5000.0, [1.5, -5.2, 0.5], 1.2, 0.5, 3.0).of(2),
    part(Engines, "Warp Engines", 10000.0, [0.0, 1.2, -0.3], 0.25, 0.5, 3.0).power(0.0).internal(),
    part(Engine, "Port Warp", 7000.0, [-3.8, -0.8, -1.0], 2.5, 0.5, 3.0).of(5),
    part(Engine, "Star Warp", 7000.0, [3.8, -0.8, -1.0], 2.5, 0.5, 3.0).of(5),
    part(WeaponSystem, "Positron Beams", 9000.0, [0.0, 0.0, -0.2], 0.3, 0.75, 7.0).power(200.0).internal(),
    part(WeaponSystem, "Torpedoes", 5000.0, [0.0, 1.5, -0.3], 0.25, 0.75, 3.0).power(200.0).internal(),
    part(Tube, "Torpedo Tube 1", 2600.0, [-1.57, 1.8, -0.55], 0.3, 0.75, 3.0).of(9).tube(&KESSOK_HEAVY_TUBE, Arc::Forward),
    part(Tube, "Torpedo Tube 2", 2600.0, [1.56, 1.8, -0.55], 0.3, 0.75, 3.0).of(9).tube(&KESSOK_HEAVY_TUBE, Arc::Forward),
    part(Repair, "Repair System", 3000.0, [0.0, -2.5, -0.36], 0.5, 0.0, 20.0).power(50.0),
    part(Shields, "Shield Generator", 12000.0, [0.0, 0.2, -0.4], 0.65, 0.75, 2.0).power(500.0),
    part(Sensors, "Sensor Array", 10000.0, [0.0, 1.35, -0.6], 0.8, 0.5, 1.0).power(200.0),
    part(Beam, "Forward Beam 1", 2400.0, [-1.15, 1.8, -0.3], 0.25, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM, Arc::Forward, 0.01, 0.01),
    part(Beam, "Forward Beam 2", 2400.0, [1.15, 1.8, -0.3], 0.25, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM, Arc::Forward, 0.01, 0.01),
    part(Beam, "Ventral Beam 1", 1200.0, [-0.5, 0.4, -0.65], 0.3, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM_2, Arc::Down, 0.01, 0.01),
    part(Beam, "Ventral Beam 2", 1200.0, [0.5, 0.4, -0.65], 0.3, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM_2, Arc::Down, 0.01, 0.01),
    part(Beam, "Dorsal Beam 1", 1200.0, [-0.5, 0.4, -0.18], 0.3, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM_2, Arc::Up, 0.01, 0.01),
    part(Beam, "Dorsal Beam 2", 1200.0, [0.5, 0.4, -0.18], 0.3, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM_2, Arc::Up, 0.01, 0.01),
    part(Cloak, "Cloaking Device", 2000.0, [0.0, -0.75, -0.4], 0.5, 0.75, 6.0).power(1300.0),
    part(Beam, "Forward Beam 3", 2400.0, [-1.6, -3.5, 0.5], 0.25, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM, Arc::Forward, 0.01, 0.01),
    part(Beam, "Forward Beam 4", 2400.0, [1.6, -3.5, 0.5], 0.25, 0.75, 7.0).of(8).beam(&KESSOK_HEAVY_BEAM, Arc::Forward, 0.01, 0.01),
];

/// The Kessok Light.
pub(super) const KESSOK_LIGHT: ShipClass = ShipClass {
    species: 14,
    name: "Kessok Light",
    mass: 140.0,
    max_speed: 3.8,
    faces: [6000.0, 3000.0, 12000.0, 2000.0, 3000.0, 3000.0],
    face_rates: [16.0, 12.0, 30.0, 2.0, 12.0, 12.0],
    repair_points: 90.0,
    repair_teams: 4,
    plant: PlantFacts {
        output: 900.0,
        main: 120000.0,
        backup: 80000.0,
        main_conduit: 1000.0,
        backup_conduit: 50.0,
    },
    radius: None,
    extents: None,
    bolt: 0,
    parts: KESSOK_LIGHT_PARTS,
};

const KESSOK_LIGHT_TUBE: TubeFacts = TubeFacts { reload: 50.0, ready: 1 };
const KESSOK_LIGHT_BEAM: BeamFacts = BeamFacts {
    max_damage: 400.0,
    full_range: 200.0,
    max_charge: 7.0,
    min_charge: 4.0,
    recharge: 0.17,
    radius: 0.25,
};
const KESSOK_LIGHT_BEAM_2: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 120.0,
    max_charge: 7.0,
    min_charge: 4.0,
    recharge: 0.05,
    radius: 0.25,
};
const KESSOK_LIGHT_BEAM_3: BeamFacts = BeamFacts {
    max_damage: 150.0,
    full_range: 120.0,
    max_charge: 7.0,
    min_charge: 4.0,
    recharge: 0.05,
    radius: 0.25,
};

#[rustfmt::skip]
const KESSOK_LIGHT_PARTS: &[Part] = &[
    part(Hull, "Hull", 7000.0, [0.0, 0.0, 0.0], 1.2, 0.0, 2.0).critical(),
    part(Reactor, "Warp Core", 6000.0, [0.0, -1.5, -0.2], 0.35, 0.5, 2.0).critical(),
    part(WeaponSystem, "Torpedoes", 2400.0, [0.0, 0.5, 0.0], 0.25, 0.75, 3.0).power(200.0).internal(),
    part(Tube, "Torpedo", 2400.0, [0.0, 1.5, -0.15], 0.16, 0.75, 3.0).of(2).tube(&KESSOK_LIGHT_TUBE, Arc::Forward),
    part(Repair, "Repair System", 2000.0, [0.0, -0.6, 0.0], 0.3, 0.0, 20.0).power(1.0),
    part(Shields, "Shield Generator", 10000.0, [0.0, -0.5, 0.15], 0.3, 0.75, 2.0).power(300.0),
    part(Sensors, "Sensor Array", 9000.0, [0.0, -1.1, 0.27], 0.25, 0.5, 1.0).power(50.0),
    part(Engines, "Impulse Engines", 2000.0, [0.0, 0.0, 0.0], 0.25, 0.5, 3.0).power(100.0).internal(),
    part(Engine, "Port Impulse", 2000.0, [-0.2, -2.45, -0.05], 0.25, 0.5, 3.0).of(7),
    part(Engine, "Star Impulse", 2000.0, [0.17, -2.45, -0.05], 0.25, 0.75, 3.0).of(7),
    part(Engines, "Warp Engines", 4000.0, [0.0, 0.0, 0.0], 0.25, 0.5, 3.0).power(0.0).internal(),
    part(Engine, "Port Warp", 4000.0, [-1.35, -1.88, -0.58], 1.0, 0.5, 3.0).of(10),
    part(Engine, "Star Warp", 4000.0, [1.35, -1.88, -0.58], 1.0, 0.5, 3.0).of(10),
    part(WeaponSystem, "Beams", 9000.0, [0.0, 0.0, 0.0], 0.25, 0.75, 7.0).power(200.0).internal(),
    part(Beam, "Forward Beam 1", 2400.0, [-0.8, -1.25, -0.3], 0.25, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM, Arc::Forward, 0.01, 0.01),
    part(Beam, "Forward Beam 2", 2400.0, [0.8, -1.25, -0.3], 0.25, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM, Arc::Forward, 0.01, 0.01),
    part(Beam, "Port Beam 1", 1200.0, [-0.24, 0.37, 0.0], 0.2, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM_2, Arc::Port, 0.01, 0.01),
    part(Beam, "Star Beam 1", 1200.0, [0.24, 0.37, 0.0], 0.2, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM_2, Arc::Starboard, 0.01, 0.01),
    part(Beam, "Aft Beam 1", 1200.0, [-0.45, -2.2, -0.1], 0.1, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM_2, Arc::Aft, 0.01, 0.01),
    part(Beam, "Aft Beam 2", 1200.0, [0.45, -2.2, -0.1], 0.1, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM_2, Arc::Aft, 0.01, 0.01),
    part(Cloak, "Cloaking Device", 1500.0, [0.0, -0.27, 0.0], 0.28, 0.75, 6.0).power(700.0),
    part(Beam, "Port Beam 2", 1200.0, [-0.57, -1.6, -0.1], 0.2, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM_3, Arc::Port, 0.01, 0.01),
    part(Beam, "Star Beam 2", 1200.0, [0.57, -1.6, -0.1], 0.2, 0.75, 7.0).of(13).beam(&KESSOK_LIGHT_BEAM_3, Arc::Starboard, 0.01, 0.01),
];
