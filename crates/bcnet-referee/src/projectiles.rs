//! The facts about the fifteen stock projectiles.
//!
//! Source: scripts of the game. The damage of seven was measured on the running game. Guidance and life are
//! not measured.

/// The facts about one projectile.
#[derive(Debug, PartialEq)]
pub struct Projectile {
    /// The number of the row.
    pub row: u8,
    /// The name for people.
    pub name: &'static str,
    /// The damage of one hit; a pulse weapon scales it.
    pub damage: f64,
    /// The speed in units per second.
    pub speed: f64,
    /// The seconds for which it follows its target.
    pub guidance: f64,
    /// The change of its turn rate, in radians per second squared.
    pub turn: f64,
    /// The seconds that it lives; 0 for no limit.
    pub life: f64,
    /// The radius of a hit.
    pub radius: f64,
}

impl Projectile {
    /// Returns the projectile that a launch message names, for a ship of this class.
    ///
    /// Several projectiles share a number in messages. The Sovereign's photon torpedo is the only case that
    /// was measured.
    #[must_use]
    pub fn of(number: u8, species: u8) -> Option<&'static Self> {
        let row = if (number, species) == (2, SOVEREIGN) { 14 } else { number };
        PROJECTILES.iter().find(|projectile| projectile.row == row)
    }
}

const SOVEREIGN: u8 = 5;

const fn row(row: u8, name: &'static str, numbers: [f64; 6]) -> Projectile {
    let [damage, speed, guidance, turn, life, radius] = numbers;
    Projectile { row, name, damage, speed, guidance, turn, life, radius }
}

/// All stock projectiles: damage, speed, guidance, turn, life, radius.
#[rustfmt::skip]
pub const PROJECTILES: [Projectile; 15] = [
    row(1, "disruptor", [400.0, 43.0, 0.0, 0.125, 8.0, 0.15]),
    row(2, "photon torpedo", [500.0, 19.0, 6.0, 0.15, 0.0, 0.13]),
    row(3, "quantum torpedo", [900.0, 22.0, 6.0, 0.15, 0.0, 0.14]),
    row(4, "antimatter torpedo", [440.0, 35.0, 12.0, 0.7, 0.0, 0.12]),
    row(5, "Cardassian torpedo", [600.0, 15.0, 7.0, 0.3, 0.0, 0.15]),
    row(6, "Klingon torpedo", [1400.0, 10.0, 7.0, 0.2, 0.0, 0.2]),
    row(7, "positron torpedo", [2200.0, 3.8, 40.0, 3.0, 0.0, 0.2]),
    row(8, "pulse disruptor", [220.0, 55.0, 0.0, 0.025, 8.0, 0.1]),
    row(9, "fusion bolt", [300.0, 46.0, 0.0, 0.025, 8.0, 0.08]),
    row(10, "Cardassian disruptor", [350.0, 42.0, 0.0, 0.125, 10.0, 0.09]),
    row(11, "Kessok disruptor", [2000.0, 27.0, 0.0, 0.25, 12.0, 0.17]),
    row(12, "phased plasma torpedo", [1900.0, 12.0, 10.0, 0.11, 0.0, 0.19]),
    row(13, "positron torpedo 2", [2200.0, 5.0, 40.0, 3.0, 0.0, 0.2]),
    row(14, "photon torpedo 2", [550.0, 19.0, 6.0, 0.15, 0.0, 0.13]),
    row(15, "Romulan cannon", [400.0, 43.0, 0.0, 0.125, 8.0, 0.2]),
];
