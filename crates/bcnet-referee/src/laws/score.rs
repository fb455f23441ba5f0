//! Points: who damaged a ship, and what its death pays.

use alloc::vec::Vec;

use crate::{MAX_SLOTS, Slot};

/// The damage that each player did to one ship.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    damage: [Damage; MAX_SLOTS],
}

/// The damage that one player did to one ship.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Damage {
    /// Points that shields absorbed.
    pub shields: f64,
    /// Points that reached the hull.
    pub hull: f64,
}

impl Account {
    /// Adds a weapon hit.
    pub fn add(&mut self, attacker: Slot, hit: Damage) {
        if let Some(damage) = self.damage.get_mut(usize::from(attacker.0)) {
            damage.shields += hit.shields;
            damage.hull += hit.hull;
        }
    }

    /// Returns the points that each attacker gets at the ship's death, in the order of slots.
    ///
    /// `sign` is −1 for an attacker of the victim's team.
    pub fn pay(&self, sign: impl Fn(Slot) -> i32) -> Vec<(Slot, i32)> {
        let slots = (0..).map(Slot).zip(&self.damage);
        let points = slots.map(|(slot, damage)| (slot, sign(slot) * points(*damage)));
        points.filter(|(_, points)| *points != 0).collect()
    }
}

/// Returns the points for an amount of damage: a tenth, cut to a whole number.
#[must_use]
pub fn points(damage: Damage) -> i32 {
    ((damage.shields + damage.hull) / 10.0) as i32
}

/// The score of one player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Score {
    /// The ships that the player destroyed.
    pub kills: u32,
    /// The ships that the player lost.
    pub deaths: u32,
    /// The points.
    pub points: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// each attacker gets a tenth of the damage, cut once; a team mate's points are negative.
    #[test]
    fn attackers_get_a_tenth() {
        let mut account = Account::default();
        account.add(Slot(2), Damage { shields: 55.0, hull: 0.0 });
        account.add(Slot(2), Damage { shields: 0.0, hull: 54.9 });
        account.add(Slot(0), Damage { shields: 9.0, hull: 0.0 });
        account.add(Slot(5), Damage { shields: 0.0, hull: 300.0 });
        account.add(Slot(200), Damage { shields: 0.0, hull: 300.0 });
        let paid = account.pay(|slot| if slot == Slot(5) { -1 } else { 1 });
        assert_eq!(paid, [(Slot(2), 10), (Slot(5), -30)]);
    }
}
