//! Codes and flags: numbers and bits with a meaning, and the names of the known ones.
//!
//! Mods have other values, so reading keeps every value.

use super::describe::Value;
use super::field::{Cut, Names, Reader, Wire};

/// A kind of code, as tables show it.
#[derive(Debug)]
pub struct Codes {
    /// The name of the kind.
    pub kind: &'static str,
    /// The number type on the wire.
    pub number: &'static str,
    /// The known codes and their names.
    pub names: &'static [(i64, &'static str)],
}

/// A kind of flag byte, as tables show it.
#[derive(Debug)]
pub struct Flags {
    /// The name of the kind.
    pub kind: &'static str,
    /// True to show each flag as a separate field; false to show the names of the set flags as a list.
    pub apart: bool,
    /// The bits that have a name.
    pub names: &'static [(u8, &'static str)],
}

/// Defines kinds of codes: their names, and constants for the codes that the program uses.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident($type:ident) $shown:ident $kind:literal {
        $($code:literal $($constant:ident)? $text:literal)*
    })*) => {
        $($(#[$doc])*
        ///
        /// Known values:
        $(#[doc = concat!("- `", stringify!($code), "`: ", $text)])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $type);

        impl $name {
            $($(#[doc = concat!("The code of `", $text, "`.")] pub const $constant: Self = Self($code);)?)*
            /// All known codes, with their names.
            pub const KNOWN: &'static [(Self, &'static str)] = &[$((Self($code), $text),)*];

            /// Returns the name of the code, if it is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)*
                    _ => None,
                }
            }
        }

        impl<'a> Wire<'a> for $name {
            const KIND: &'static str = $kind;

            fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
                let code = Self($type::from_le_bytes(reader.array(names)?));
                reader.note(names.name, size_of::<$type>(), Value::$shown(code.0.into()));
                if let Some(name) = code.name() {
                    reader.note(names.meaning, size_of::<$type>(), Value::Name(name));
                }
                Ok(code)
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0.to_le_bytes());
            }
        })*

        /// All kinds of codes.
        pub const CODES: &[Codes] = &[$(Codes {
            kind: $kind,
            number: stringify!($type),
            names: &[$(($code, $text),)*],
        },)*];
    };
}

codes! {
    /// The class of a ship. Players choose from 1 to 15.
    Species(u8) Number "species" {
        0 UNKNOWN "unknown" 1 AKIRA "Akira" 2 AMBASSADOR "Ambassador" 3 GALAXY "Galaxy" 4 NEBULA "Nebula"
        5 SOVEREIGN "Sovereign" 6 BIRD_OF_PREY "BirdOfPrey" 7 VORCHA "Vorcha" 8 WARBIRD "Warbird"
        9 MARAUDER "Marauder" 10 GALOR "Galor" 11 KELDON "Keldon" 12 CARD_HYBRID "CardHybrid"
        13 KESSOK_HEAVY "KessokHeavy" 14 KESSOK_LIGHT "KessokLight" 15 SHUTTLE "Shuttle"
        16 CARD_FREIGHTER "CardFreighter" 17 FREIGHTER "Freighter" 18 TRANSPORT "Transport"
        19 SPACE_FACILITY "SpaceFacility" 20 COMM_ARRAY "CommArray" 21 COMM_LIGHT "CommLight"
        22 DRY_DOCK "DryDock" 23 PROBE "Probe" 24 DECOY "Decoy" 25 SUNBUSTER "Sunbuster"
        26 CARD_OUTPOST "CardOutpost" 27 CARD_STARBASE "CardStarbase" 28 CARD_STATION "CardStation"
        29 FED_OUTPOST "FedOutpost" 30 FED_STARBASE "FedStarbase" 31 ASTEROID "Asteroid"
        32 ASTEROID_1 "Asteroid1" 33 ASTEROID_2 "Asteroid2" 34 ASTEROID_3 "Asteroid3" 35 AMAGON "Amagon"
        36 BIRANU_STATION "BiranuStation" 37 ENTERPRISE "Enterprise" 38 GERONIMO "Geronimo"
        39 PEREGRINE "Peregrine" 40 ASTEROID_H1 "Asteroidh1" 41 ASTEROID_H2 "Asteroidh2"
        42 ASTEROID_H3 "Asteroidh3" 43 ESCAPE_POD "Escapepod" 44 KESSOK_MINE "KessokMine"
        45 BORG_CUBE "BorgCube"
    }
    /// The type of a torpedo or a bolt. The stock scripts send 2, 7 and 1 for the last three.
    TorpedoType(u8) Number "torpedo type" {
        1 "Disruptor" 2 "Photon" 3 "Quantum" 4 "Antimatter" 5 "Cardassian" 6 "Klingon" 7 "Positron"
        8 "PulseDisruptor" 9 "FusionBolt" 10 "CardassianDisruptor" 11 "KessokDisruptor" 12 "PhasedPlasma"
        13 "Positron2" 14 "Photon2" 15 "RomulanCannon"
    }
    /// The star system of a mission.
    SystemNumber(u8) Number "system" {
        1 "Multi1" 2 "Multi2" 3 "Multi3" 4 "Multi4" 5 "Multi5" 6 "Multi6" 7 "Multi7" 8 "Albirea" 9 "Poseidon"
    }
    /// The reason why a round is over.
    EndCode(i32) Number "end" {
        0 "over" 1 TIME "time" 2 "frags" 3 "score" 4 "starbase destroyed" 5 "Borg destroyed" 6 "Enterprise destroyed"
    }
    /// The strength of phasers, in an event that sets it.
    PhaserLevel(u8) Number "phaser level" {
        0 "low" 1 "medium" 2 "high"
    }
    /// The class of an object. All captured creations are of ships or torpedoes; the other classes are parts of them.
    ObjectClass(u32) Id "object class" {
        0x8008 SHIP "Ship" 0x8009 TORPEDO "Torpedo" 0x801B "Subsystem" 0x801C "PoweredSubsystem" 0x801D "WeaponSystem"
        0x801E "TorpedoSystem" 0x801F "PhaserSystem" 0x8020 "PulseSystem" 0x8021 "TractorSystem" 0x8022 "Power"
        0x8023 "Sensors" 0x8024 "Cloak" 0x8025 "Warp" 0x8026 "Impulse" 0x8027 "Hull" 0x8028 "Shields" 0x8029 "Repair"
        0x802A "Weapon" 0x802B "EnergyWeapon" 0x802C "PhaserBank" 0x802D "PulseWeapon" 0x802E "TractorProjector"
        0x802F "TorpedoTube"
    }
    /// The class of an event, which determines the layout behind its head.
    EventClass(u32) Id "event class" {
        0x0002 PLAIN "Event" 0x0101 SUBSYSTEM "SubsystemEvent" 0x0104 BOOL "BoolEvent" 0x0105 CHAR "CharEvent"
        0x010C OBJECT "ObjectEvent" 0x0866 PLAYER "PlayerEvent" 0x8124 COLLISION "CollisionEvent"
        0x8128 START_FIRING "StartFiringEvent" 0x8129 EXPLODING "ObjectExplodingEvent" 0x812A WARP "StartWarpEvent"
    }
    /// The kind of an event. A `Notify` event is sent; its receiver creates the event of the same name without
    /// `Notify`.
    EventNumber(u32) Id "event number" {
        0x0006_0001 "Message" 0x0006_0002 "Connect" 0x0006_0003 "Disconnect" 0x0006_0004 "NewPlayer"
        0x0006_0005 DELETE_PLAYER "DeletePlayer" 0x0080_000E "SetPlayer" 0x0080_000F "ObjectDeleted" 0x0080_004E OBJECT_EXPLODING "ObjectExploding"
        0x0080_004F "ObjectDestroyed" 0x0080_0050 OBJECT_COLLISION "ObjectCollision" 0x0080_0051 "ShieldCollision"
        0x0080_0052 "PlanetCollision" 0x0080_0053 "CloakedCollision" 0x0080_0058 TARGET_WAS_CHANGED "TargetWasChanged"
        0x0080_0059 "TargetOffsetChanged" 0x0080_005A "TargetedSubsystemChanged" 0x0080_005D "EnteredSet"
        0x0080_005F "ExitedSet" 0x0080_0064 "WeaponHit" 0x0080_0065 "TorpedoReload" 0x0080_0066 "TorpedoFired"
        0x0080_0067 "PlayerTorpedoCountChanged" 0x0080_0068 "PlayerTorpedoTypeChanged"
        0x0080_006B "SubsystemDamaged" 0x0080_006C "SubsystemStateChanged" 0x0080_006D "SubsystemDisabled"
        0x0080_006E "SubsystemOperational" 0x0080_006F "SubsystemDestroyed" 0x0080_0070 "SubsystemRebuilt"
        0x0080_0071 "SubsystemCompletelyDestroyed" 0x0080_0072 "SubsystemCompletelyDisabled"
        0x0080_0073 "SubsystemPartiallyOperational" 0x0080_0074 "RepairCompleted"
        0x0080_0075 "RepairCannotBeCompleted" 0x0080_0076 REPAIR_INCREASE_PRIORITY "RepairIncreasePriority" 0x0080_0077 "CloakBeginning"
        0x0080_0078 "CloakCompleted" 0x0080_0079 "DecloakBeginning" 0x0080_007A "DecloakCompleted"
        0x0080_007B "ShieldsSetState" 0x0080_007C "WeaponFired" 0x0080_007D "TractorBeamStartedFiring"
        0x0080_007E "TractorBeamStartedHitting" 0x0080_007F "TractorBeamStoppedFiring"
        0x0080_0080 "TractorBeamStoppedHitting" 0x0080_0081 "PhaserStartedFiring"
        0x0080_0082 "PhaserStartedHitting" 0x0080_0083 "PhaserStoppedFiring" 0x0080_0084 "PhaserStoppedHitting"
        0x0080_0085 "TractorTargetDocked" 0x0080_0088 "SensorsShipIdentified" 0x0080_008C "SubsystemPowerChanged"
        0x0080_00C5 "ExitedWarp" 0x0080_00C8 "ObjectCreated" 0x0080_00C9 "ObjectCreatedNotify"
        0x0080_00D7 "StartFiring" 0x0080_00D8 START_FIRING_NOTIFY "StartFiringNotify" 0x0080_00D9 "StopFiring"
        0x0080_00DA STOP_FIRING_NOTIFY "StopFiringNotify" 0x0080_00DB "StopFiringAtTarget" 0x0080_00DC "StopFiringAtTargetNotify"
        0x0080_00DD SUBSYSTEM_STATE_CHANGED_NOTIFY "SubsystemStateChangedNotify" 0x0080_00DE "AddToRepairListNotify"
        0x0080_00DF "AddToRepairList" 0x0080_00E0 SET_PHASER_LEVEL "SetPhaserLevel" 0x0080_00E1 "SetTarget"
        0x0080_00E2 "StartCloakingNotify" 0x0080_00E3 "StartCloaking" 0x0080_00E4 "StopCloakingNotify"
        0x0080_00E5 "StopCloaking" 0x0080_00E6 "ChecksumComplete" 0x0080_00E7 "SystemChecksumFailed"
        0x0080_00E8 "SystemChecksumComplete" 0x0080_00E9 "KillGame" 0x0080_00EC "StartWarpNotify"
        0x0080_00ED "StartWarp" 0x0080_00F1 NEW_PLAYER_IN_GAME "NewPlayerInGame" 0x0080_00F6 "PlayerBoot"
        0x0080_00FC "HostObjectCollision" 0x0080_00FD "NetTorpedoTypeChanged"
        0x0080_00FE TORPEDO_TYPE_CHANGED_NOTIFY "NetTorpedoTypeChangedNotify"
    }
}

impl Species {
    /// Returns whether the stock game has this class of ship. Stock clients crash on any other.
    #[must_use]
    pub const fn is_stock(self) -> bool {
        matches!(self.0, 1..=45)
    }
}

/// Defines flag bytes. The known flags have names.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident($default:literal) $style:ident $kind:literal {
        $($(#[$bit_doc:meta])* $constant:ident $bit:literal $text:literal)*
    })*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$bit_doc])* pub const $constant: u8 = $bit;)*
            /// The bits that have a name.
            pub const KNOWN: &'static [(u8, &'static str)] = &[$(($bit, $text),)*];

            /// Returns a copy with these bits set or cleared.
            #[must_use]
            pub const fn with(self, bits: u8, set: bool) -> Self {
                if set { Self(self.0 | bits) } else { Self(self.0 & !bits) }
            }

            /// Returns whether any of these bits is set.
            #[must_use]
            pub const fn has(self, bits: u8) -> bool {
                self.0 & bits != 0
            }
        }

        /// A byte with no flag set.
        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }

        impl<'a> Wire<'a> for $name {
            const KIND: &'static str = $kind;

            fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
                let [flags] = reader.array(names)?;
                reader.note(names.name, 1, Value::Number(flags.into()));
                Style::$style.note(reader, names, flags, Self::KNOWN);
                Ok(Self(flags))
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.push(self.0);
            }
        })*

        /// All kinds of flag bytes.
        pub const FLAGS: &[Flags] = &[$(Flags {
            kind: $kind,
            apart: matches!(Style::$style, Style::Apart),
            names: $name::KNOWN,
        },)*];
    };
}

/// The display style of flags.
#[derive(Clone, Copy)]
enum Style {
    /// Each flag is a field.
    Apart,
    /// The names of the set flags are a list.
    List,
}

impl Style {
    fn note(self, reader: &mut Reader<'_>, names: &'static Names, flags: u8, known: &[(u8, &'static str)]) {
        for (bit, name) in known {
            let is_set = flags & bit != 0;
            match self {
                Self::Apart => reader.note(name, 1, Value::Flag(is_set)),
                Self::List if is_set => reader.note_repeated(names.meaning, 1, Value::Name(name)),
                Self::List => {}
            }
        }
    }
}

flags! {
    /// The rules of a game, in a bit byte with three flags (S-72).
    SettingsFlags(0x60) Apart "settings flags" {
        /// Ships can collide.
        COLLISIONS 0x01 "collisions"
        /// Weapons can hit ships of the shooter's team.
        FRIENDLY_FIRE 0x02 "friendly_fire"
        /// Correction data follows.
        CORRECTION 0x04 "correction"
    }
    /// The collision setting, in a bit byte with one flag (S-72).
    CollisionFlags(0x20) Apart "collision flags" {
        /// Ships can collide.
        COLLISIONS 0x01 "collisions"
    }
    /// The flags of a file check request, in a bit byte with one flag (S-72).
    RequestFlags(0x20) Apart "request flags" {
        /// The check includes subdirectories.
        RECURSIVE 0x01 "recursive"
    }
    /// A bit byte with one flag of unknown meaning (S-72).
    UnknownFlags(0x20) Apart "unknown flags" {
        /// The flag; false in all captures.
        UNKNOWN 0x01 "unknown_flag"
    }
    /// The flags of a torpedo. The meaning of the two lowest bits is not known.
    TorpedoFlags(0x00) List "torpedo flags" {
        /// The torpedo has no target.
        NO_TARGET 0x04 "no target"
    }
    /// The fields of a state update, in the order of the wire.
    ///
    /// The cloak is an exception: it comes before the subsystems.
    StateFlags(0x00) List "state flags" {
        /// The position of the ship.
        POSITION 0x01 "position"
        /// The distance from the last position.
        DELTA 0x02 "delta"
        /// The direction of the bow.
        FORWARD 0x04 "forward"
        /// The direction of the upper side.
        UP 0x08 "up"
        /// The speed.
        SPEED 0x10 "speed"
        /// The condition of some subsystems.
        SUBSYSTEMS 0x20 "subsystems"
        /// The state of the cloak.
        CLOAK 0x40 "cloak"
        /// The power that some subsystems are to get.
        POWER 0x80 "power"
    }
}
