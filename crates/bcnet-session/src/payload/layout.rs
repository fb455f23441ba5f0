//! Which fields follow which opcode.

use super::Opcode;
use super::reader::Reader;

/// Reads the fields of a payload behind its opcode. `None` if it ends inside one.
pub(super) fn read(opcode: Opcode, r: &mut Reader<'_>) -> Option<()> {
    match opcode {
        Opcode::SETTINGS => settings(r),
        Opcode::OBJECT_CREATE => {
            r.u8("slot")?;
            object(r)
        }
        Opcode::OBJECT_CREATE_TEAM => {
            r.u8("slot")?;
            r.u8("peer")?;
            object(r)
        }
        Opcode::DESTROY_OBJECT | Opcode::OBJECT_NOT_FOUND | Opcode::REQUEST_OBJECT => {
            r.id("object").map(drop)
        }
        Opcode::COLLISION_SETTING => r.flags("flags", &[(0x01, "collisions")]).map(drop),
        Opcode::DELETE_PLAYER_ANIMATION => r.text("name"),
        Opcode::TORPEDO_FIRE => torpedo_fire(r),
        Opcode::BEAM_FIRE => beam_fire(r),
        Opcode::STATE_UPDATE => state_update(r),
        Opcode::ENTER_SET => {
            r.id("object")?;
            r.long_text("set")?;
            r.bytes("zero", 1)
        }
        Opcode::CHECKSUM_REQUEST => checksum_request(r),
        Opcode::CHECKSUM_RESPONSE => checksum_response(r),
        Opcode::CHECKSUM_FAILURE | Opcode::CHECKSUM_FAILURE_2 => r.text("file"),
        Opcode::EXPLOSION => explosion(r),
        Opcode::NEW_PLAYER_IN_GAME => r.u8("flags").map(drop),
        Opcode::CHAT | Opcode::TEAM_CHAT => {
            r.i32("sender")?;
            r.text("text")
        }
        Opcode::MISSION_INIT => mission_init(r),
        Opcode::SCORE_CHANGE => score_change(r),
        Opcode::SCORE => score(r),
        Opcode::END_GAME => r.i32("reason").map(drop),
        Opcode::SCORE_INIT => {
            score(r)?;
            r.u8("team").map(drop)
        }
        Opcode::TEAM_SCORE => {
            r.u8("team")?;
            r.i32("kills")?;
            r.i32("score").map(drop)
        }
        Opcode::TEAM => {
            r.i32("peer")?;
            r.u8("team").map(drop)
        }
        _ if is_event(opcode) => event(r),
        _ => Some(()),
    }
}

fn is_event(opcode: Opcode) -> bool {
    (Opcode::PYTHON_EVENT..=Opcode::SET_PHASER_LEVEL).contains(&opcode)
        || matches!(
            opcode,
            Opcode::COLLISION_EFFECT | Opcode::PLAYER_LIST_EVENT | Opcode::TORPEDO_TYPE_CHANGE
        )
}

fn settings(r: &mut Reader<'_>) -> Option<()> {
    r.f32("time")?;
    r.flags("flags", &[(0x01, "collisions"), (0x02, "friendly_fire"), (0x04, "correction")])?;
    r.u8("slot")?;
    r.text("mission")
}

/// An object as it is created. Only ships are understood to the end.
fn object(r: &mut Reader<'_>) -> Option<()> {
    let class = r.id("class")?;
    r.id("object")?;
    if class != SHIP {
        return Some(());
    }
    r.u8("species")?;
    r.floats("position", 3)?;
    r.floats("rotation", 4)?;
    r.f32("speed")?;
    r.bytes("zero", 3)?;
    r.short_text("name")?;
    r.short_text("set")?;
    r.rest("subsystems");
    Some(())
}

/// The class of an event says what follows its four numbers.
fn event(r: &mut Reader<'_>) -> Option<()> {
    let class = r.id("class")?;
    r.id("event")?;
    r.id("source")?;
    r.id("related")?;
    match class {
        0x0104 | 0x0105 => r.u8("value").map(drop),
        0x010C => r.id("object").map(drop),
        0x0866 => r.u8("peer").map(drop),
        0x8124 => {
            let contacts = r.u8("contacts")?;
            for _ in 0..contacts {
                r.bytes("contact", 4)?;
                r.listed();
            }
            r.f32("force")
        }
        0x8128 => r.bytes("extra", 8),
        0x8129 => {
            r.i32("killer")?;
            r.f32("lifetime")
        }
        0x812A => {
            r.short_text("name")?;
            r.floats("warp", 4)
        }
        _ => Some(()),
    }
}

/// Sources disagree on which flag announces the target, and whether four or five bytes follow it; the length does not.
fn torpedo_fire(r: &mut Reader<'_>) -> Option<()> {
    r.id("weapon")?;
    r.u8("torpedo")?;
    r.u8("flags")?;
    r.direction("direction")?;
    if r.left() > 0 {
        r.id("target")?;
        r.rest("offset");
    }
    Some(())
}

fn beam_fire(r: &mut Reader<'_>) -> Option<()> {
    r.id("weapon")?;
    r.u8("beam")?;
    r.direction("direction")?;
    r.u8("flags")?;
    if r.left() > 0 {
        r.id("target")?;
    }
    Some(())
}

/// The flags say which fields follow, in the order of their bits. Where subsystems and weapons, or a bit byte for the
/// cloak alone, come together the sizes of the blocks are not known, so what follows stays the rest.
fn state_update(r: &mut Reader<'_>) -> Option<()> {
    r.id("object")?;
    r.f32("time")?;
    let flags = r.u8("flags")?;
    if flags & ABSOLUTE != 0 {
        r.floats("position", 3)?;
        if r.flags("bits", &[(HAS_HASH, "has_hash")])? & HAS_HASH != 0 {
            r.u16("hash")?;
        }
    }
    if flags & MOVED != 0 {
        r.direction("move_direction")?;
        r.u16("move_length")?;
    }
    if flags & FORWARD != 0 {
        r.direction("forward")?;
    }
    if flags & UP != 0 {
        r.direction("up")?;
    }
    if flags & SPEED != 0 {
        r.u16("packed_speed")?;
    }
    match flags & (SUBSYSTEMS | CLOAK | WEAPONS) {
        SUBSYSTEMS => {
            r.u8("first_subsystem")?;
            r.rest("subsystems");
        }
        WEAPONS => {
            while r.left() > 0 {
                r.u8("weapon_index")?;
                r.listed();
                r.u8("weapon_charge")?;
                r.listed();
            }
        }
        _ => {}
    }
    Some(())
}

fn checksum_request(r: &mut Reader<'_>) -> Option<()> {
    r.u8("round")?;
    r.text("directory")?;
    r.text("filter")?;
    r.flags("flags", &[(0x01, "recursive")]).map(drop)
}

/// A tree of directories: each names its files, then its directories, and then these follow one by one.
fn checksum_response(r: &mut Reader<'_>) -> Option<()> {
    if r.u8("round")? == 0 {
        r.id("version_hash")?;
    }
    r.id("directory_hash")?;
    let mut to_come = 1_usize;
    while to_come > 0 {
        to_come -= 1;
        let files = r.u16("files")?;
        r.listed();
        for _ in 0..files {
            r.ids("file_name", 1)?;
            r.ids("file_hash", 1)?;
        }
        let directories = usize::from(r.u8("directories")?);
        r.listed();
        r.ids("directory_name", directories)?;
        to_come += directories;
    }
    Some(())
}

fn explosion(r: &mut Reader<'_>) -> Option<()> {
    r.id("object")?;
    r.bytes("place", 5)?;
    r.u16("radius")?;
    r.u16("damage").map(drop)
}

fn mission_init(r: &mut Reader<'_>) -> Option<()> {
    r.u8("player_limit")?;
    r.u8("system")?;
    if r.u8("time_limit")? != NO_LIMIT {
        r.i32("end_time")?;
    }
    r.u8("frag_limit").map(drop)
}

fn score_change(r: &mut Reader<'_>) -> Option<()> {
    if r.i32("killer")? != 0 {
        r.i32("kills")?;
        r.i32("score")?;
    }
    r.i32("victim")?;
    r.i32("deaths")?;
    for _ in 0..r.u8("players")? {
        r.i32("player")?;
        r.listed();
        r.i32("player_score")?;
        r.listed();
    }
    Some(())
}

fn score(r: &mut Reader<'_>) -> Option<()> {
    r.i32("peer")?;
    r.i32("kills")?;
    r.i32("deaths")?;
    r.i32("score").map(drop)
}

/// The class of ships.
const SHIP: u32 = 0x8008;
/// A limit that is none.
const NO_LIMIT: u8 = 0xFF;

/// Fields of a state update, by flag.
const ABSOLUTE: u8 = 0x01;
const MOVED: u8 = 0x02;
const FORWARD: u8 = 0x04;
const UP: u8 = 0x08;
const SPEED: u8 = 0x10;
const SUBSYSTEMS: u8 = 0x20;
const CLOAK: u8 = 0x40;
const WEAPONS: u8 = 0x80;
/// In the bit byte behind a position: a hash follows.
const HAS_HASH: u8 = 0x01;
