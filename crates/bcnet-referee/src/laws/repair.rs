//! Repair: the queue and the shares of its entries.

use alloc::vec::Vec;

use crate::classes::ShipClass;
use crate::clock::SUBSYSTEM_SECONDS;

/// The parts that wait for repair, by index, the first one first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    parts: Vec<u8>,
}

impl Queue {
    /// Adds a part at the end. Returns false if it is there already.
    pub fn add(&mut self, part: u8) -> bool {
        let is_new = !self.parts.contains(&part);
        if is_new {
            self.parts.push(part);
        }
        is_new
    }

    /// Removes a part. Returns false if it is not there.
    pub fn remove(&mut self, part: u8) -> bool {
        let before = self.parts.len();
        self.parts.retain(|entry| *entry != part);
        self.parts.len() < before
    }

    /// Moves a part to the head, or to the tail if it is at work. Returns false if it is not there.
    pub fn prefer(&mut self, part: u8, teams: usize) -> bool {
        let Some(at) = self.parts.iter().position(|entry| *entry == part) else { return false };
        self.parts.remove(at);
        if at < teams {
            self.parts.push(part);
        } else {
            self.parts.insert(0, part);
        }
        true
    }

    /// Returns the parts, the first one first.
    #[must_use]
    pub fn parts(&self) -> &[u8] {
        &self.parts
    }

    /// Returns the parts that a step repairs, with the points that each gains.
    ///
    /// `condition` is the fraction of the repair system's points.
    pub fn gains(&self, class: &ShipClass, condition: f64) -> impl Iterator<Item = (u8, f64)> {
        let entries = self.parts.len().min(class.repair_teams);
        let share = class.repair_points * condition * SUBSYSTEM_SECONDS / entries.max(1) as f64;
        let gain = move |part: &u8| (*part, share / class.parts[usize::from(*part)].complexity);
        self.parts.iter().take(entries).map(gain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// the teams work on the first entries only, and each share counts the entries at work.
    #[test]
    fn teams_share_the_points() {
        let class = ShipClass::of(3).expect("the Galaxy");
        let mut queue = Queue::default();
        assert!(queue.add(3) && queue.add(0) && !queue.add(3));
        let gains: Vec<(u8, f64)> = queue.gains(class, 1.0).collect();
        assert!(gains.len() == 2 && (gains[0].1 - 8.25).abs() < 1e-9 && (gains[1].1 - 2.75).abs() < 1e-9);
        (4..9).for_each(|part| assert!(queue.add(part)));
        assert_eq!(queue.gains(class, 0.5).map(|(part, _)| part).collect::<Vec<_>>(), [3, 0, 4]);
        assert!(queue.prefer(8, 3) && queue.prefer(3, 3) && !queue.prefer(30, 3));
        assert_eq!(queue.parts(), [8, 0, 4, 5, 6, 7, 3]);
        assert!(queue.remove(0) && !queue.remove(0));
    }
}
