//! Opcodes: the first byte of a payload.

use std::fmt;

/// The first byte of a payload; any value can be expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u8);

macro_rules! opcodes {
    ($($constant:ident = $code:literal $name:literal,)*) => {
        #[allow(missing_docs, reason = "the names say it")]
        impl Opcode {
            $(pub const $constant: Self = Self($code);)*

            /// All that are known, in order.
            pub const ALL: &'static [Self] = &[$(Self::$constant,)*];

            /// Its name, if it is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    SETTINGS = 0x00 "Settings",
    GAME_INIT = 0x01 "GameInit",
    OBJECT_CREATE = 0x02 "ObjectCreate",
    OBJECT_CREATE_TEAM = 0x03 "ObjectCreateTeam",
    PYTHON_EVENT = 0x06 "PythonEvent",
    START_FIRING = 0x07 "StartFiring",
    STOP_FIRING = 0x08 "StopFiring",
    STOP_FIRING_AT_TARGET = 0x09 "StopFiringAtTarget",
    SUBSYSTEM_STATUS = 0x0A "SubsystemStatus",
    ADD_TO_REPAIR_LIST = 0x0B "AddToRepairList",
    CLIENT_EVENT = 0x0C "ClientEvent",
    PYTHON_EVENT_2 = 0x0D "PythonEvent2",
    START_CLOAK = 0x0E "StartCloak",
    STOP_CLOAK = 0x0F "StopCloak",
    START_WARP = 0x10 "StartWarp",
    REPAIR_LIST_PRIORITY = 0x11 "RepairListPriority",
    SET_PHASER_LEVEL = 0x12 "SetPhaserLevel",
    HOST_MESSAGE = 0x13 "HostMessage",
    DESTROY_OBJECT = 0x14 "DestroyObject",
    COLLISION_EFFECT = 0x15 "CollisionEffect",
    COLLISION_SETTING = 0x16 "CollisionSetting",
    PLAYER_LIST_EVENT = 0x17 "PlayerListEvent",
    DELETE_PLAYER_ANIMATION = 0x18 "DeletePlayerAnimation",
    TORPEDO_FIRE = 0x19 "TorpedoFire",
    BEAM_FIRE = 0x1A "BeamFire",
    TORPEDO_TYPE_CHANGE = 0x1B "TorpedoTypeChange",
    STATE_UPDATE = 0x1C "StateUpdate",
    OBJECT_NOT_FOUND = 0x1D "ObjectNotFound",
    REQUEST_OBJECT = 0x1E "RequestObject",
    ENTER_SET = 0x1F "EnterSet",
    CHECKSUM_REQUEST = 0x20 "ChecksumRequest",
    CHECKSUM_RESPONSE = 0x21 "ChecksumResponse",
    CHECKSUM_FAILURE = 0x22 "ChecksumFailure",
    CHECKSUM_FAILURE_2 = 0x23 "ChecksumFailure",
    FILE_TRANSFER = 0x25 "FileTransfer",
    FILE_TRANSFER_ACK = 0x27 "FileTransferAck",
    CHECKSUM_COMPLETE = 0x28 "ChecksumComplete",
    EXPLOSION = 0x29 "Explosion",
    NEW_PLAYER_IN_GAME = 0x2A "NewPlayerInGame",
    CHAT = 0x2C "Chat",
    TEAM_CHAT = 0x2D "TeamChat",
    MISSION_INIT = 0x35 "MissionInit",
    SCORE_CHANGE = 0x36 "ScoreChange",
    SCORE = 0x37 "Score",
    END_GAME = 0x38 "EndGame",
    RESTART_GAME = 0x39 "RestartGame",
    SCORE_INIT = 0x3F "ScoreInit",
    TEAM_SCORE = 0x40 "TeamScore",
    TEAM = 0x41 "Team",
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "opcode 0x{:02X}", self.0),
        }
    }
}
