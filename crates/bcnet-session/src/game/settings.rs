//! The settings of a game ([S-25]). They have correction data only if a flag says so.
//!
//! [S-25]: bcnet_transport::wire::protocol#s-25

use super::code::SettingsFlags;
use super::field::{Cut, Names, Part, Reader, Text16, Wire, names};

/// The settings that a client needs to load the mission.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings<'a> {
    /// The game clock, in seconds.
    pub time: f32,
    /// The flags.
    pub flags: SettingsFlags,
    /// The client's slot.
    pub slot: u8,
    /// The name of the mission script.
    pub mission: Text16<'a>,
    /// Correction data; empty unless the flags announce it.
    ///
    /// The layout is not known, and no capture contains any.
    pub correction_data: &'a [u8],
}

impl<'a> Wire<'a> for Settings<'a> {
    const KIND: &'static str = "settings";
    const PARTS: &'static [Part] = &[
        part::<f32>("time"),
        part::<SettingsFlags>("flags"),
        part::<u8>("slot"),
        part::<Text16<'_>>("mission"),
        Part { name: "correction_data", kind: "correction", optional: false },
    ];

    fn read(reader: &mut Reader<'a>, _: &'static Names) -> Result<Self, Cut> {
        let time = Wire::read(reader, names!(time))?;
        let flags = SettingsFlags::read(reader, names!(flags))?;
        let slot = Wire::read(reader, names!(slot))?;
        let mission = Wire::read(reader, names!(mission))?;
        let correction_data: &[u8] = if flags.has(SettingsFlags::CORRECTION) {
            Wire::read(reader, names!(correction_data))?
        } else {
            &[]
        };
        Ok(Self { time, flags, slot, mission, correction_data })
    }

    /// Omits correction data that the flags do not announce.
    fn write(&self, out: &mut Vec<u8>) {
        self.time.write(out);
        self.flags.write(out);
        self.slot.write(out);
        self.mission.write(out);
        if self.flags.has(SettingsFlags::CORRECTION) {
            self.correction_data.write(out);
        }
    }
}

const fn part<'a, T: Wire<'a>>(name: &'static str) -> Part {
    Part { name, kind: T::KIND, optional: false }
}
