//! The world: the ships of a session, and what happens to them.

mod fire;
mod flight;
mod hits;
mod reports;
pub(crate) mod ship;
mod steps;

use alloc::vec::Vec;
use core::time::Duration;

use crate::classes::Weapon;
use crate::clock::{SHIELD_STEP, SUBSYSTEM_STEP, TICK, is_power_step};
use crate::input::{REFUSALS, Refusal};
use crate::laws::death::Random;
use crate::laws::score::Score;
use crate::laws::shield::Face;
use crate::ledger::Ledger;
use crate::{Decision, Input, ObjectId, Slot};
use flight::Shot;
use ship::{Gear, Ship};

/// The most slots of players.
pub const MAX_SLOTS: usize = 16;
/// The most ships at one time, wrecks included.
pub const MAX_SHIPS: usize = 32;
/// The most projectiles in flight at one time.
pub const MAX_SHOTS: usize = 512;
/// The most ticks that one call computes: about ten seconds. The rest of a longer pause is skipped.
const MAX_TICKS: u64 = 606;

/// The ships of one session, their projectiles, scores and ledger.
#[derive(Debug)]
pub struct World {
    tick: u64,
    /// The time that pauses skipped.
    skipped: Duration,
    random: Random,
    ships: Vec<Ship>,
    shots: Vec<Shot>,
    scores: [Score; MAX_SLOTS],
    teams: [Option<u8>; MAX_SLOTS],
    ledger: Ledger,
    decisions: Vec<Decision>,
    refused: [u64; REFUSALS.len()],
}

impl World {
    /// Creates an empty world. The seed decides how long ships explode.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            tick: 0,
            skipped: Duration::ZERO,
            random: Random::new(seed),
            ships: Vec::new(),
            shots: Vec::new(),
            scores: [Score::default(); MAX_SLOTS],
            teams: [None; MAX_SLOTS],
            ledger: Ledger::default(),
            decisions: Vec::new(),
            refused: [0; REFUSALS.len()],
        }
    }

    /// Takes a report of a player or an event of the session.
    ///
    /// # Errors
    /// The input is impossible. It is counted and has no effect.
    pub fn apply(&mut self, input: &Input<'_>) -> Result<(), Refusal> {
        let result = self.report(input);
        if let Err(refusal) = result {
            self.refused[refusal as usize] += 1;
        }
        result
    }

    /// Computes all ticks up to a time, which counts from the creation of the world.
    ///
    /// Appends the decisions since the last call. A pause of more than ten seconds is cut short.
    pub fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        let due = ticks_within(now.saturating_sub(self.skipped));
        let mut missing = due.saturating_sub(self.tick);
        if missing > MAX_TICKS {
            self.skipped += duration_of(missing - MAX_TICKS);
            missing = MAX_TICKS;
        }
        for _ in 0..missing {
            self.step();
        }
        decisions.append(&mut self.decisions);
    }

    /// Returns the number of ticks that the world has computed.
    #[must_use]
    pub const fn tick(&self) -> u64 {
        self.tick
    }

    /// Returns a ship, if it is there.
    #[must_use]
    pub fn ship(&self, ship: ObjectId) -> Option<&Ship> {
        self.ships.iter().find(|known| known.id == ship)
    }

    /// Returns all ships in the order of their arrival.
    pub fn ships(&self) -> impl Iterator<Item = &Ship> {
        self.ships.iter()
    }

    /// Returns the number of projectiles in flight.
    #[must_use]
    pub const fn shots(&self) -> usize {
        self.shots.len()
    }

    /// Returns the score of a player.
    #[must_use]
    pub fn score(&self, slot: Slot) -> Score {
        self.scores.get(usize::from(slot.0)).copied().unwrap_or_default()
    }

    /// Returns all hits.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns how many inputs were refused for a reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }

    /// Sets the points of a part, for a ship that does not arrive whole.
    ///
    /// A damaged part goes to the repair queue. A ship without a critical part dies.
    ///
    /// # Errors
    /// There is no such part, or the number is out of range.
    pub fn set_points(&mut self, part: ObjectId, points: f64) -> Result<(), Refusal> {
        let (ship, part) = self.part(part)?;
        let full = self.ships[ship].class.parts[part].points;
        if !(0.0..=full).contains(&points) {
            return Err(Refusal::BadNumber);
        }
        self.ships[ship].parts[part].points = points;
        if points > 0.0 && points < full {
            self.ships[ship].queue.add(part as u8);
        }
        self.refresh(ship, None);
        Ok(())
    }

    /// Sets the charge of a beam or pulse weapon, for a ship that does not arrive whole.
    ///
    /// # Errors
    /// There is no such weapon, or the number is out of range.
    pub fn set_charge(&mut self, weapon: ObjectId, charge: f64) -> Result<(), Refusal> {
        let (ship, part) = self.part(weapon)?;
        let ship = &mut self.ships[ship];
        let (state, most) = match (&mut ship.parts[part].gear, ship.class.parts[part].weapon) {
            (Gear::Beam(beam), Weapon::Beam(facts, ..)) => (&mut beam.charge, facts.max_charge),
            (Gear::Pulse(cannon), Weapon::Pulse(facts, _)) => (&mut cannon.charge, facts.max_charge),
            _ => return Err(Refusal::UnknownPart),
        };
        if !(0.0..=most).contains(&charge) {
            return Err(Refusal::BadNumber);
        }
        *state = charge;
        Ok(())
    }

    /// Sets the batteries, for a ship that does not arrive with full ones.
    ///
    /// # Errors
    /// There is no such ship, or a number is out of range.
    pub fn set_batteries(&mut self, ship: ObjectId, main: f64, backup: f64) -> Result<(), Refusal> {
        let ship = self.find(ship)?;
        let facts = self.ships[ship].class.plant;
        if !(0.0..=facts.main).contains(&main) || !(0.0..=facts.backup).contains(&backup) {
            return Err(Refusal::BadNumber);
        }
        let plant = &mut self.ships[ship].plant;
        (plant.main, plant.backup) = (main, backup);
        Ok(())
    }

    /// Sets the points of a shield face, for a ship that does not arrive whole.
    ///
    /// # Errors
    /// There is no such ship, or the number is out of range.
    pub fn set_face(&mut self, ship: ObjectId, face: Face, points: f64) -> Result<(), Refusal> {
        if !points.is_finite() {
            return Err(Refusal::BadNumber);
        }
        let ship = self.find(ship)?;
        let ship = &mut self.ships[ship];
        ship.shields.set(ship.class, face, points);
        Ok(())
    }

    /// Sets all scores to zero, for a new round. Teams stay.
    pub fn clear_scores(&mut self) {
        self.scores = [Score::default(); MAX_SLOTS];
    }

    /// Computes one tick.
    fn step(&mut self) {
        self.tick += 1;
        for ship in &mut self.ships {
            ship.drift(self.tick);
        }
        self.fire_beams();
        self.fly_shots();
        if self.tick.is_multiple_of(SHIELD_STEP) {
            self.shield_step();
        }
        if self.tick.is_multiple_of(SUBSYSTEM_STEP) {
            self.subsystem_step();
        }
        if is_power_step(self.tick) {
            self.power_step();
        }
        self.remove_wrecks();
    }

    /// Returns the index of a ship.
    fn find(&self, ship: ObjectId) -> Result<usize, Refusal> {
        self.ships.iter().position(|known| known.id == ship).ok_or(Refusal::UnknownShip)
    }

    /// Returns the index of a living ship that has a position.
    fn find_target(&self, ship: ObjectId) -> Option<usize> {
        let found = self.find(ship).ok()?;
        self.ships[found].is_alive().then_some(())?;
        self.ships[found].pose.map(|_| found)
    }

    /// Returns the indexes of the ship and the part with this id.
    fn part(&self, part: ObjectId) -> Result<(usize, usize), Refusal> {
        let within = |ship: &Ship| {
            let index = usize::try_from(part.0.checked_sub(ship.id.0)?.checked_sub(1)?).ok()?;
            (index < ship.parts.len()).then_some(index)
        };
        let mut ships = self.ships.iter().enumerate();
        ships.find_map(|(at, ship)| Some((at, within(ship)?))).ok_or(Refusal::UnknownPart)
    }
}

/// Returns the number of whole ticks in a time.
fn ticks_within(time: Duration) -> u64 {
    u64::try_from(time.as_micros() / TICK.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the length of some ticks.
fn duration_of(ticks: u64) -> Duration {
    let micros = u128::from(ticks) * TICK.as_micros();
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}
