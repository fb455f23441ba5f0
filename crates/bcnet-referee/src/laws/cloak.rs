//! The cloaking device.

use crate::clock::ticks;

/// Ticks that a ship takes to cloak or to become visible: 5 s.
pub const CHANGE: u32 = ticks(5_000_000) as u32;
/// Ticks from the order until the shields are off: 1 s.
const SHIELDS_OFF: u32 = ticks(1_000_000) as u32;

/// The state of the device. The numbers are those of the game.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cloak {
    /// The ship is visible (0).
    #[default]
    Visible,
    /// The ship becomes invisible, since this many ticks (2).
    Cloaking(u32),
    /// The ship is invisible (3).
    Cloaked,
    /// The ship becomes visible, since this many ticks (5).
    Decloaking(u32),
}

impl Cloak {
    /// Follows the owner's order. Returns whether the state changed.
    pub fn order(&mut self, cloaked: bool) -> bool {
        let next = match (*self, cloaked) {
            (Self::Visible, true) => Self::Cloaking(0),
            (Self::Decloaking(since), true) => Self::Cloaking(CHANGE.saturating_sub(since)),
            (Self::Cloaked, false) => Self::Decloaking(0),
            (Self::Cloaking(since), false) => Self::Decloaking(CHANGE.saturating_sub(since)),
            (same, _) => same,
        };
        core::mem::replace(self, next) != next
    }

    /// Passes one tick.
    pub fn tick(&mut self) {
        *self = match *self {
            Self::Cloaking(since) if since + 1 >= CHANGE => Self::Cloaked,
            Self::Cloaking(since) => Self::Cloaking(since + 1),
            Self::Decloaking(since) if since + 1 >= CHANGE => Self::Visible,
            Self::Decloaking(since) => Self::Decloaking(since + 1),
            same => same,
        };
    }

    /// Returns whether the device takes power.
    #[must_use]
    pub const fn is_powered(self) -> bool {
        !matches!(self, Self::Visible)
    }

    /// Returns whether the ship can fire.
    #[must_use]
    pub const fn allows_fire(self) -> bool {
        !matches!(self, Self::Cloaked)
    }

    /// Returns whether the shields are up.
    #[must_use]
    pub const fn allows_shields(self) -> bool {
        match self {
            Self::Visible => true,
            Self::Cloaking(since) => since < SHIELDS_OFF,
            Self::Cloaked | Self::Decloaking(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cloaking takes five seconds in each direction; shields go after one.
    #[test]
    fn cloaking_takes_five_seconds() {
        let mut cloak = Cloak::default();
        assert!(cloak.order(true) && !cloak.order(true));
        let ticks = (1..).find(|_| {
            cloak.tick();
            cloak == Cloak::Cloaked
        });
        assert_eq!(ticks, Some(303), "4.9995 s");
        assert!(!cloak.allows_fire() && !cloak.allows_shields() && cloak.is_powered());
        assert!(cloak.order(false) && cloak.allows_fire() && !cloak.allows_shields());
        (0..303).for_each(|_| cloak.tick());
        assert_eq!(cloak, Cloak::Visible);
    }

    /// shields are off one second after the order.
    #[test]
    fn shields_are_off_after_a_second() {
        let mut cloak = Cloak::default();
        cloak.order(true);
        let off = (1..).find(|_| {
            cloak.tick();
            !cloak.allows_shields()
        });
        assert_eq!(off, Some(61));
    }
}
