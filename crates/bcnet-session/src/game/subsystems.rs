//! The subsystems of a new ship: the meaning of each byte, for classes whose list is known ([S-77]).
//!
//! [S-77]: bcnet_transport::wire::protocol#s-77

use super::code::Species;
use super::describe::Value;
use super::field::Reader;

/// A subsystem. The number is that of its parts.
#[derive(Clone, Copy)]
enum Subsystem {
    Hull,
    Bridge,
    Shields,
    Reactor,
    /// Sensors, engines, repair or a cloak. It is not known which.
    Powered(usize),
    Torpedoes(usize),
    Phasers(usize),
    Pulse(usize),
    Tractors(usize),
}

/// The meaning of a subsystem byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubsystemByte {
    /// The condition of a subsystem: a fraction of 255.
    Condition(&'static str),
    /// The condition of a subsystem of which a ship can have several.
    Repeated(&'static str),
    /// The power that a subsystem is to get, in signed percent. The subsystem is off unless the value is above 0.
    Power(&'static str),
    /// The power of a subsystem of which a ship can have several.
    RepeatedPower(&'static str),
    /// The setting of a weapon.
    Setting(&'static str),
    /// A bit byte (S-72) with a flag for each weapon system. The number is that of the flags.
    WeaponBits(u8),
}

impl SubsystemByte {
    /// Returns the name of the field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Condition(name)
            | Self::Repeated(name)
            | Self::Power(name)
            | Self::RepeatedPower(name)
            | Self::Setting(name) => name,
            Self::WeaponBits(_) => "weapon_bits",
        }
    }

    /// Returns the byte of an undamaged ship with full power and the settings of a new ship.
    fn healthy(self) -> u8 {
        match self {
            Self::Condition(_) | Self::Repeated(_) => 0xFF,
            Self::Power(_) | Self::RepeatedPower(_) => 100,
            Self::Setting(TORPEDO_SETTING) => 0,
            Self::Setting(_) => 1,
            Self::WeaponBits(count) => count << 5,
        }
    }

    /// Returns whether a byte can have this meaning. A bit byte contains the number of its flags.
    const fn fits(self, byte: u8) -> bool {
        match self {
            Self::WeaponBits(count) => byte >> 5 == count,
            Self::Condition(_)
            | Self::Repeated(_)
            | Self::Power(_)
            | Self::RepeatedPower(_)
            | Self::Setting(_) => true,
        }
    }

    fn note(self, reader: &mut Reader<'_>, at: usize, byte: u8) {
        let value = match self {
            Self::Condition(_) | Self::Repeated(_) => {
                Value::Packed { number: f32::from(byte) / 255.0, decimals: 3 }
            }
            Self::Power(_) | Self::RepeatedPower(_) => {
                Value::Packed { number: f32::from(byte.cast_signed()) / 100.0, decimals: 2 }
            }
            Self::Setting(_) | Self::WeaponBits(_) => Value::Number(byte.into()),
        };
        reader.note_at(self.name(), at..at + 1, value);
        if matches!(self, Self::Repeated(_) | Self::RepeatedPower(_)) {
            reader.mark_repeated();
        }
    }
}

impl Species {
    /// Returns the meaning of each subsystem byte of this class, if it is known.
    #[must_use]
    pub fn subsystem_bytes(self) -> Option<Vec<SubsystemByte>> {
        let list = subsystems_of(self)?;
        let weapons = list.iter().filter(|subsystem| subsystem.is_weapon()).count();
        let mut bytes = Vec::new();
        // One byte has the flags of all weapons. It is at the place of the first weapon.
        let mut bits = u8::try_from(weapons).ok().map(SubsystemByte::WeaponBits);
        for subsystem in list {
            subsystem.append_bytes(&mut bytes, &mut bits);
        }
        Some(bytes)
    }

    /// Returns the subsystem bytes of an undamaged ship with full power, for a known class.
    ///
    /// Known are the classes that players choose from, and 37. Captured for 1, 3 and 5.
    #[must_use]
    pub fn healthy_subsystems(self) -> Option<Vec<u8>> {
        Some(self.subsystem_bytes()?.into_iter().map(SubsystemByte::healthy).collect())
    }
}

/// Records the subsystem bytes that were read last, if they match the class exactly.
pub(super) fn note_subsystems(reader: &mut Reader<'_>, species: Species, bytes: &[u8]) {
    let Some(known) = reader.is_recording().then(|| species.subsystem_bytes()).flatten() else { return };
    let fits = || known.iter().zip(bytes).all(|(known, byte)| known.fits(*byte));
    if known.len() == bytes.len() && fits() {
        let start = reader.at() - bytes.len();
        for (place, (known, byte)) in known.iter().zip(bytes).enumerate() {
            known.note(reader, start + place, *byte);
        }
    }
}

impl Subsystem {
    const fn is_weapon(self) -> bool {
        match self {
            Self::Torpedoes(_) | Self::Phasers(_) | Self::Pulse(_) | Self::Tractors(_) => true,
            Self::Hull | Self::Bridge | Self::Shields | Self::Reactor | Self::Powered(_) => false,
        }
    }

    /// Appends the meaning of each byte of the subsystem.
    fn append_bytes(self, out: &mut Vec<SubsystemByte>, bits: &mut Option<SubsystemByte>) {
        use SubsystemByte::{Condition, Power, Repeated, RepeatedPower, Setting};
        let (own, part, parts, power, setting) = match self {
            Self::Hull => return out.push(Condition("hull")),
            Self::Bridge => return out.push(Condition("bridge")),
            Self::Reactor => {
                return out.extend(["reactor", "main_battery", "backup_battery"].map(Condition));
            }
            Self::Shields => {
                out.extend([Condition("shields"), Power("shields_power")]);
                return out.extend([Repeated("shield_facing"); SHIELD_FACINGS]);
            }
            Self::Powered(parts) => {
                let power = RepeatedPower("powered_system_power");
                (Repeated("powered_system"), "powered_system_part", parts, power, None)
            }
            Self::Torpedoes(parts) => {
                let setting = Some(Setting(TORPEDO_SETTING));
                (Condition("torpedoes"), "torpedo_tube", parts, Power("torpedoes_power"), setting)
            }
            Self::Phasers(parts) => {
                let setting = Some(Setting("phaser_setting"));
                (Condition("phasers"), "phaser_bank", parts, Power("phasers_power"), setting)
            }
            Self::Pulse(parts) => {
                (Condition("pulse_weapons"), "pulse_weapon", parts, Power("pulse_weapons_power"), None)
            }
            Self::Tractors(parts) => {
                let setting = Some(Setting("tractor_setting"));
                (Condition("tractors"), "tractor_beam", parts, Power("tractors_power"), setting)
            }
        };
        out.push(own);
        out.extend((0..parts).map(|_| Repeated(part)));
        out.push(power);
        if self.is_weapon() {
            out.extend(bits.take());
        }
        out.extend(setting);
    }
}

/// Returns the subsystems of a class in the order of the wire.
///
/// Captured for 1, 3 and 5; the lengths of 4 and 6 were captured too. Documented for the others.
const fn subsystems_of(species: Species) -> Option<&'static [Subsystem]> {
    use Subsystem::{
        Bridge as B, Hull as H, Phasers as W, Powered as P, Pulse as U, Reactor as C, Shields as S,
        Torpedoes as T, Tractors as X,
    };
    Some(match species.0 {
        1 | 4 => &[H, S, P(0), C, P(2), W(8), P(2), T(6), P(0), X(2), B],
        2 => &[H, S, P(0), C, P(2), W(8), P(2), T(4), P(0), B, X(2)],
        3 => &[H, C, S, P(0), T(6), W(8), P(3), P(2), X(4), B, P(0)],
        5 | 37 => &[H, S, P(0), C, P(2), T(6), P(0), W(8), X(4), P(2), B],
        6 => &[H, S, C, U(2), T(1), P(1), P(2), P(0), P(0), P(0)],
        7 => &[H, S, C, W(1), U(2), T(3), P(2), P(2), P(0), P(0), P(0), X(2)],
        8 => &[H, S, C, W(1), U(4), T(2), P(2), P(2), P(0), P(0), P(0), B, X(2)],
        9 => &[H, S, C, W(1), P(2), P(2), X(2), P(0), P(0), U(2)],
        10 => &[H, S, C, W(4), T(1), P(2), P(1), P(0), P(0)],
        11 => &[H, S, C, W(4), T(2), P(4), P(1), P(0), P(0), X(2)],
        12 => &[H, C, T(3), P(0), S, P(0), P(2), P(3), W(7), U(1), X(2)],
        13 => &[H, C, P(2), P(2), W(8), T(2), P(0), S, P(0), P(0)],
        14 => &[H, C, T(1), P(0), S, P(0), P(2), P(2), W(8), P(0)],
        15 => &[H, P(2), C, P(0), S, W(1), P(0), P(2), X(1)],
        _ => return None,
    })
}

const TORPEDO_SETTING: &str = "torpedo_setting";
/// The number of shield facings: one for each side.
const SHIELD_FACINGS: usize = 6;
