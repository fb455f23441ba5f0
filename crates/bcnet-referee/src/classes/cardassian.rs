//! Cardassian ships and the hybrid.
//!
//! Source and confidence of the columns: see the parent module.

use super::PartKind::{
    Beam, Engine, Engines, Hull, Pulse, Reactor, Repair, Sensors, Shields, Tractor, Tube, WeaponSystem,
};
use super::{Arc, BeamFacts, Part, PlantFacts, PulseFacts, ShipClass, TubeFacts, part};
/// The Galor.
pub(super) const GALOR: ShipClass = ShipClass {
    species: 10,
    name: "Galor",
    mass: 60.0,
    max_speed: 5.4,
    faces: [4000.0, 700.0, 2200.0, 1100.0, 2200.0, 2200.0],
    face_rates: [10.0, 1.0, 2.0, 2.0, 2.0, 2.0],
    repair_points: 16.0,
    repair_teams: 2,
    plant: PlantFacts {
        output: 500.0,
        main: 120000.0,
        backup: 50000.0,
        main_conduit: 550.0,
        backup_conduit: 150.0,
    },
    radius: None,
    extents: None,
    bolt: 0,
    parts: GALOR_PARTS,
};

const GALOR_BEAM: BeamFacts = BeamFacts {
    max_damage: 400.0,
    full_range: 30.0,
    max_charge: 8.0,
    min_charge: 5.0,
    recharge: 0.2,
    radius: 0.15,
};
const GALOR_BEAM_2: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 40.0,
    max_charge: 8.0,
    min_charge: 5.0,
    recharge: 0.2,
    radius: 0.1,
};
const GALOR_TUBE: TubeFacts = TubeFacts { reload: 30.0, ready: 2 };

#[rustfmt::skip]
const GALOR_PARTS: &[Part] = &[
    part(Hull, "Hull", 5000.0, [0.0, 0.0, -0.1], 0.5, 0.0, 2.0).critical(),
    part(Shields, "Shield Generator", 6000.0, [0.0, 0.1, 0.13], 0.15, 0.65, 2.0).power(200.0),
    part(Reactor, "Warp Core", 3200.0, [0.0, -0.3, -0.12], 0.17, 0.5, 2.0).critical(),
    part(WeaponSystem, "Compressors", 800.0, [0.0, 0.0, 0.0], 0.1, 0.75, 7.0).power(150.0).internal().one_at_a_time(),
    part(Beam, "Forward Beam", 1600.0, [0.0, 0.74, -0.0446], 0.1, 0.75, 7.0).of(3).beam(&GALOR_BEAM, Arc::Forward, 0.001, 0.001),
    part(Beam, "Port Beam", 800.0, [-1.1, -0.139, -0.024563], 0.1, 0.75, 7.0).of(3).beam(&GALOR_BEAM_2, Arc::Port, 0.02, 0.02),
    part(Beam, "Star Beam", 800.0, [1.1, -0.139, -0.024563], 0.1, 0.75, 7.0).of(3).beam(&GALOR_BEAM_2, Arc::Starboard, 0.02, 0.02),
    part(WeaponSystem, "Torpedoes", 400.0, [-0.3, 0.35, -0.05], 0.1, 0.75, 3.0).power(50.0).internal(),
    part(Tube, "Forward Torpedo", 1800.0, [0.0, 0.752, -0.07], 0.05, 0.75, 3.0).of(7).tube(&GALOR_TUBE, Arc::Forward),
    part(Engines, "Impulse Engines", 1200.0, [0.4, -0.18, 0.02], 0.08, 0.5, 4.0).power(50.0).internal(),
    part(Engine, "Port Impulse", 1200.0, [-0.638, -0.3, -0.036], 0.2, 0.5, 4.0).of(9),
    part(Engine, "Star Impulse", 1200.0, [0.638, -0.3, -0.036], 0.2, 0.5, 4.0).of(9),
    part(Engines, "Warp Engine", 3000.0, [0.0, -0.4, 0.02], 0.08, 0.5, 3.0).power(0.0).internal(),
    part(Engine, "Warp Engine 1", 4000.0, [0.0, -1.2, 0.0], 0.5, 0.5, 3.0).of(12),
    part(Repair, "Repair Subsystem", 1000.0, [0.0, -1.603, 0.027], 0.1, 0.1, 4.0).power(1.0).internal(),
    part(Sensors, "Sensor Array", 5000.0, [0.0, 0.75, 0.24], 0.07, 0.5, 1.0).power(50.0),
    part(Beam, "Aft Beam", 800.0, [0.0, -2.06, 0.12], 0.1, 0.75, 7.0).of(3).beam(&GALOR_BEAM_2, Arc::Aft, 0.02, 0.02),
];

/// The Keldon.
pub(super) const KELDON: ShipClass = ShipClass {
    species: 11,
    name: "Keldon",
    mass: 80.0,
    max_speed: 5.7,
    faces: [5500.0, 1100.0, 3300.0, 2200.0, 3300.0, 3300.0],
    face_rates: [12.0, 2.0, 5.0, 5.0, 5.0, 5.0],
    repair_points: 20.0,
    repair_teams: 2,
    plant: PlantFacts {
        output: 600.0,
        main: 140000.0,
        backup: 50000.0,
        main_conduit: 700.0,
        backup_conduit: 100.0,
    },
    radius: None,
    extents: None,
    bolt: 0,
    parts: KELDON_PARTS,
};

const KELDON_BEAM: BeamFacts = BeamFacts {
    max_damage: 400.0,
    full_range: 30.0,
    max_charge: 8.0,
    min_charge: 5.0,
    recharge: 0.1,
    radius: 0.15,
};
const KELDON_BEAM_2: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 40.0,
    max_charge: 8.0,
    min_charge: 5.0,
    recharge: 0.2,
    radius: 0.1,
};
const KELDON_TUBE: TubeFacts = TubeFacts { reload: 30.0, ready: 2 };
const KELDON_TUBE_2: TubeFacts = TubeFacts { reload: 30.0, ready: 1 };
const KELDON_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 40.0,
    full_range: 80.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};
const KELDON_BEAM_3: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 40.0,
    max_charge: 8.0,
    min_charge: 5.0,
    recharge: 0.1,
    radius: 0.1,
};

#[rustfmt::skip]
const KELDON_PARTS: &[Part] = &[
    part(Hull, "Hull", 6000.0, [0.0, -0.184, -0.08], 0.8, 0.0, 2.0).critical(),
    part(Shields, "Shield Generator", 9000.0, [0.0, -0.8, 0.4], 0.3, 0.75, 2.0).power(200.0),
    part(Reactor, "Warp Core", 4000.0, [0.0, -0.5, 0.0], 0.47, 0.5, 2.0).critical(),
    part(WeaponSystem, "Compressors", 1200.0, [0.0, 0.0, 0.0], 0.1, 0.75, 7.0).power(200.0).internal().one_at_a_time(),
    part(Beam, "Forward Beam", 1600.0, [0.0, 1.02, -0.001947], 0.1, 0.75, 7.0).of(3).beam(&KELDON_BEAM, Arc::Forward, 0.001, 0.001),
    part(Beam, "Port Beam", 1600.0, [-1.41, -0.18, 0.008038], 0.3, 0.75, 7.0).of(3).beam(&KELDON_BEAM_2, Arc::Port, 0.05, 0.05),
    part(Beam, "Star Beam", 1600.0, [1.485, -0.18, 0.008038], 0.3, 0.75, 7.0).of(3).beam(&KELDON_BEAM_2, Arc::Starboard, 0.05, 0.05),
    part(WeaponSystem, "Torpedoes", 3600.0, [-0.4, 0.54, 0.04], 0.12, 0.75, 3.0).power(70.0).internal(),
    part(Tube, "Forward Torpedo", 1800.0, [0.02, 1.03208, -0.03], 0.1, 0.75, 3.0).of(7).tube(&KELDON_TUBE, Arc::Forward),
    part(Tube, "Aft Torpedo", 1800.0, [0.03, -2.0, 0.33], 0.15, 0.75, 3.0).of(7).tube(&KELDON_TUBE_2, Arc::Aft),
    part(Engines, "Impulse Engines", 2800.0, [0.63, -0.158, 0.02], 0.15, 0.5, 4.0).power(70.0).internal(),
    part(Engine, "Engine 1", 1400.0, [-0.81, -0.35, 0.0], 0.3, 0.5, 4.0).of(10),
    part(Engine, "Engine 2", 1400.0, [0.88, -0.35, 0.0], 0.3, 0.5, 4.0).of(10),
    part(Engine, "Engine 3", 1400.0, [-0.420715, -2.7, 0.035016], 0.25, 0.5, 4.0).of(10),
    part(Engine, "Engine 4", 1400.0, [0.49, -2.7, 0.035016], 0.25, 0.5, 4.0).of(10),
    part(Engines, "Warp Engine", 3000.0, [-0.63, -0.158, 0.02], 0.15, 0.75, 3.0).power(0.0).internal(),
    part(Engine, "Warp Engine 1", 4000.0, [0.03, -1.8, 0.0], 0.5, 0.5, 3.0).of(15),
    part(Sensors, "Sensor Array", 5000.0, [0.02, 1.06576, 0.34], 0.15, 0.5, 1.0).power(50.0),
    part(Repair, "Repair Subsystem", 1000.0, [0.02335, -2.36942, -0.01], 0.1, 0.1, 4.0).power(1.0).internal(),
    part(WeaponSystem, "Tractors", 2000.0, [0.0, 0.0, -0.3], 0.25, 0.75, 7.0).power(400.0).internal().one_at_a_time(),
    part(Tractor, "Ventral Tractor", 1000.0, [0.0, 0.0, -0.29], 0.3, 0.75, 7.0).of(19).tractor(&KELDON_TRACTOR, Arc::Down),
    part(Beam, "Aft Beam", 800.0, [0.02, -2.7, 0.22], 0.2, 0.75, 7.0).of(3).beam(&KELDON_BEAM_3, Arc::Aft, 0.02, 0.02),
    part(Tractor, "Dorsal Tractor", 1000.0, [0.0, -1.98, 0.3], 0.2, 0.75, 7.0).of(19).tractor(&KELDON_TRACTOR, Arc::Up),
];

/// The Hybrid.
pub(super) const HYBRID: ShipClass = ShipClass {
    species: 12,
    name: "Hybrid",
    mass: 200.0,
    max_speed: 5.4,
    faces: [12000.0, 3000.0, 12000.0, 3000.0, 3000.0, 3000.0],
    face_rates: [20.0, 10.0, 20.0, 10.0, 10.0, 10.0],
    repair_points: 40.0,
    repair_teams: 3,
    plant: PlantFacts {
        output: 1000.0,
        main: 160000.0,
        backup: 50000.0,
        main_conduit: 1100.0,
        backup_conduit: 100.0,
    },
    radius: Some(4.597),
    extents: None,
    bolt: 11,
    parts: HYBRID_PARTS,
};

const HYBRID_BEAM: BeamFacts = BeamFacts {
    max_damage: 400.0,
    full_range: 30.0,
    max_charge: 8.0,
    min_charge: 5.0,
    recharge: 0.2,
    radius: 0.15,
};
const HYBRID_BEAM_2: BeamFacts = BeamFacts {
    max_damage: 400.0,
    full_range: 200.0,
    max_charge: 7.0,
    min_charge: 4.0,
    recharge: 0.17,
    radius: 0.15,
};
const HYBRID_BEAM_3: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 120.0,
    max_charge: 7.0,
    min_charge: 4.0,
    recharge: 0.1,
    radius: 0.1,
};
const HYBRID_PULSE: PulseFacts =
    PulseFacts { max_charge: 1.5, min_charge: 1.0, recharge: 0.05, cooldown: 10.0 };
const HYBRID_TUBE: TubeFacts = TubeFacts { reload: 12.0, ready: 1 };
const HYBRID_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 40.0,
    full_range: 240.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const HYBRID_PARTS: &[Part] = &[
    part(Hull, "Hull", 11000.0, [0.0, 0.0, 0.0], 1.4, 0.0, 2.0).critical(),
    part(Reactor, "Warp Core", 6000.0, [0.0, -1.8, 0.02], 0.47, 0.5, 2.0).critical(),
    part(WeaponSystem, "Torpedoes", 500.0, [0.0, 0.5, 0.2], 0.3, 0.75, 3.0).power(150.0).internal(),
    part(Repair, "Repair System", 1000.0, [0.0, 0.0, 0.0], 0.25, 0.1, 20.0).power(1.0).internal(),
    part(Shields, "Shield Generator", 10000.0, [0.0, 0.5, 0.3], 0.4, 0.75, 2.0).power(250.0),
    part(Sensors, "Sensor Array", 8000.0, [-0.025, 1.8, 0.4], 0.35, 0.5, 1.0).power(100.0),
    part(Engines, "Impulse Engines", 500.0, [0.0, -1.0, 0.0], 0.5, 0.5, 4.0).power(150.0).internal(),
    part(Engine, "Port Impulse", 2600.0, [-1.4, -0.5, -0.04], 0.3, 0.5, 4.0).of(6),
    part(Engine, "Star Impulse", 2600.0, [1.4, -0.5, -0.04], 0.3, 0.5, 4.0).of(6),
    part(Engines, "Warp Engines", 12000.0, [0.0, -1.0, 0.0], 0.5, 0.75, 3.0).power(0.0).internal(),
    part(Engine, "Port Warp", 4000.0, [-3.3, -0.2, -0.4], 1.4, 0.5, 3.0).of(9),
    part(Engine, "Star Warp", 4000.0, [3.3, -0.2, -0.4], 1.4, 0.5, 3.0).of(9),
    part(Engine, "Center Warp", 4000.0, [0.0, -2.7, 0.0], 1.2, 0.5, 3.0).of(9),
    part(WeaponSystem, "Beams", 600.0, [0.0, 0.0, 0.0], 0.25, 0.75, 4.0).power(200.0).internal(),
    part(Beam, "Forward Compressor", 1600.0, [-0.03, 1.61, 0.02], 0.2, 0.75, 7.0).of(13).beam(&HYBRID_BEAM, Arc::Forward, 0.01, 0.01),
    part(Beam, "Forward Beam 1", 1600.0, [-1.6, 0.5, -0.08], 0.3, 0.75, 7.0).of(13).beam(&HYBRID_BEAM_2, Arc::Forward, 0.01, 0.01),
    part(Beam, "Forward Beam 2", 1600.0, [1.6, 0.5, -0.08], 0.3, 0.75, 7.0).of(13).beam(&HYBRID_BEAM_2, Arc::Forward, 0.01, 0.01),
    part(Beam, "Ventral Beam 1", 800.0, [-2.4, -0.4, -0.2], 0.4, 0.75, 7.0).of(13).beam(&HYBRID_BEAM_3, Arc::Down, 0.01, 0.01),
    part(Beam, "Ventral Beam 2", 800.0, [2.4, -0.4, -0.2], 0.25, 0.75, 7.0).of(13).beam(&HYBRID_BEAM_3, Arc::Down, 0.01, 0.01),
    part(Beam, "Dorsal Beam 1", 800.0, [-1.4, 0.0, -0.01], 0.25, 0.75, 7.0).of(13).beam(&HYBRID_BEAM_3, Arc::Up, 0.01, 0.01),
    part(Beam, "Dorsal Beam 2", 800.0, [1.4, 0.0, 0.01], 0.25, 0.75, 7.0).of(13).beam(&HYBRID_BEAM_3, Arc::Up, 0.01, 0.01),
    part(WeaponSystem, "Disruptor Cannons", 2400.0, [0.0, 0.0, 0.0], 0.25, 0.75, 8.0).power(100.0).internal(),
    part(Pulse, "Cannon", 2800.0, [-0.02, 1.54, -0.08], 0.25, 0.75, 8.0).of(21).pulse(&HYBRID_PULSE, Arc::Forward),
    part(Tube, "Torpedo 1", 3000.0, [-2.4, 0.3, -0.24], 0.25, 0.75, 3.0).of(2).tube(&HYBRID_TUBE, Arc::Forward),
    part(Tube, "Torpedo 2", 3000.0, [2.4, 0.3, -0.24], 0.25, 0.75, 3.0).of(2).tube(&HYBRID_TUBE, Arc::Forward),
    part(Tube, "Aft Torpedo", 3000.0, [0.0, -4.0, 0.01], 0.25, 0.75, 3.0).of(2).tube(&HYBRID_TUBE, Arc::Aft),
    part(WeaponSystem, "Tractors", 1500.0, [0.0, -0.7, 0.0], 0.25, 0.75, 7.0).power(500.0).internal().one_at_a_time(),
    part(Tractor, "Forward Tractor", 1500.0, [0.0, 0.7, -0.36], 0.3, 0.75, 7.0).of(26).tractor(&HYBRID_TRACTOR, Arc::Forward),
    part(Tractor, "Aft Tractor", 1500.0, [0.0, -0.7, -0.36], 0.3, 0.75, 7.0).of(26).tractor(&HYBRID_TRACTOR, Arc::Aft),
];

/// The Freighter.
pub(super) const FREIGHTER: ShipClass = ShipClass {
    species: 16,
    name: "Freighter",
    mass: 80.0,
    max_speed: 3.0,
    faces: [1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 1000.0],
    face_rates: [2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
    repair_points: 6.0,
    repair_teams: 1,
    plant: PlantFacts {
        output: 400.0,
        main: 50000.0,
        backup: 10000.0,
        main_conduit: 400.0,
        backup_conduit: 200.0,
    },
    radius: None,
    extents: None,
    bolt: 0,
    parts: FREIGHTER_PARTS,
};

const FREIGHTER_TRACTOR: BeamFacts = BeamFacts {
    max_damage: 200.0,
    full_range: 100.0,
    max_charge: 5.0,
    min_charge: 3.0,
    recharge: 0.3,
    radius: 0.3,
};

#[rustfmt::skip]
const FREIGHTER_PARTS: &[Part] = &[
    part(Hull, "Hull", 4500.0, [0.0, 0.0, 0.0], 1.0, 0.0, 3.0).critical(),
    part(Engines, "Impulse Engines", 200.0, [0.0, 0.0, 0.0], 0.25, 0.5, 1.0).power(100.0).internal(),
    part(Engines, "Warp Engines", 200.0, [0.0, 0.0, 0.0], 0.25, 0.5, 3.0).power(75.0).internal(),
    part(Repair, "Engineering", 200.0, [0.0, 0.0, 0.0], 0.25, 0.1, 1.0).power(1.0).internal(),
    part(WeaponSystem, "Tractors", 200.0, [0.0, 0.0, 0.0], 0.25, 0.5, 1.0).power(100.0).internal().one_at_a_time(),
    part(Tractor, "Tractor Beam", 1500.0, [0.0, 1.5, -0.35], 0.2, 0.5, 3.0).of(4).tractor(&FREIGHTER_TRACTOR, Arc::Forward),
    part(Sensors, "Sensor Array", 1500.0, [0.0, 1.0, 0.2], 0.1, 0.75, 1.0).power(50.0),
    part(Shields, "Shield Generator", 1000.0, [0.0, 0.75, 0.1], 0.2, 0.5, 4.0).power(50.0),
    part(Reactor, "Warp Core", 2000.0, [0.0, 0.6, 0.2], 0.3, 0.75, 2.0).critical(),
    part(Engine, "Port Impulse", 1400.0, [-0.2, 1.3, -0.3], 0.2, 0.5, 2.0).of(1),
    part(Engine, "Star Impulse", 1400.0, [0.2, 1.4, -0.3], 0.2, 0.5, 2.0).of(1),
    part(Engine, "Warp", 3000.0, [0.0, -0.3, 0.0], 0.7, 0.75, 3.0).of(2),
];
