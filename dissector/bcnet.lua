-- Wireshark dissector for the network protocol of Star Trek: Bridge Commander.
--
-- Deciphers, dissects every field of the transport, puts parts together, names the known game payloads, and marks what
-- is sent again and what is acknowledged again. Rules T-nn are those of PROTOCOL.md. It reads a datagram as
-- `bcnet inspect --json` does: for each key there is a field, and a test compares the two.
--
-- Any UDP port is recognised by content. The ports of the preference are always taken for Bridge Commander, so that
-- malformed datagrams show there too.

local bcnet = Proto("bcnet", "Star Trek: Bridge Commander")

local HOST, GAMESPY, UNASSIGNED = 0x01, 0x5C, 0xFF
local MAX_DATAGRAM, MAX_MESSAGE = 512, 412
local KINDS = {
    [0x00] = "identity", [0x01] = "ack", [0x02] = "keepalive", [0x03] = "connect", [0x04] = "boot",
    [0x05] = "disconnect", [0x32] = "data",
}
local BOOT_REASONS = { [0] = "default", "timed_out", "wrong_password", "full", "kicked", "banned" }

-- From the table of the game's messages: a test keeps it the same, and writes it with BCNET_UPDATE=1.
-- <table>
local OPCODES = {
    [0x00] = "Settings",
    [0x01] = "GameInit",
    [0x02] = "ObjectCreate",
    [0x03] = "ObjectCreateTeam",
    [0x04] = "DeadDestroyObject",
    [0x05] = "TorpedoPosition",
    [0x06] = "PythonEvent",
    [0x07] = "StartFiring",
    [0x08] = "StopFiring",
    [0x09] = "StopFiringAtTarget",
    [0x0A] = "SubsystemStatus",
    [0x0B] = "AddToRepairList",
    [0x0C] = "ClientEvent",
    [0x0D] = "PythonEvent2",
    [0x0E] = "StartCloak",
    [0x0F] = "StopCloak",
    [0x10] = "StartWarp",
    [0x11] = "RepairListPriority",
    [0x12] = "SetPhaserLevel",
    [0x13] = "HostMessage",
    [0x14] = "DestroyObject",
    [0x15] = "CollisionEffect",
    [0x16] = "CollisionSetting",
    [0x17] = "PlayerListEvent",
    [0x18] = "DeletePlayerAnimation",
    [0x19] = "TorpedoFire",
    [0x1A] = "BeamFire",
    [0x1B] = "TorpedoTypeChange",
    [0x1C] = "StateUpdate",
    [0x1D] = "ObjectNotFound",
    [0x1E] = "RequestObject",
    [0x1F] = "EnterSet",
    [0x20] = "ChecksumRequest",
    [0x21] = "ChecksumResponse",
    [0x22] = "ChecksumFailure",
    [0x23] = "VersionDifferent",
    [0x24] = "BeginSendFile",
    [0x25] = "FileTransfer",
    [0x26] = "SendDirectory",
    [0x27] = "FileTransferAck",
    [0x28] = "ChecksumComplete",
    [0x29] = "Explosion",
    [0x2A] = "NewPlayerInGame",
    [0x2B] = "MaxMessageTypes",
    [0x2C] = "Chat",
    [0x2D] = "TeamChat",
    [0x35] = "MissionInit",
    [0x36] = "ScoreChange",
    [0x37] = "Score",
    [0x38] = "EndGame",
    [0x39] = "RestartGame",
    [0x3F] = "ScoreInit",
    [0x40] = "TeamScore",
    [0x41] = "Team",
}
-- The fields of each message: name and kind; with ? the message may end in front of it.
local FIELDS = {
    [0x00] = { { "time", "f32" }, { "flags", "settings flags" }, { "slot", "u8" }, { "mission", "text16" }, { "correction_data", "correction" } },
    [0x02] = { { "slot", "u8" }, { "object", "object" } },
    [0x03] = { { "slot", "u8" }, { "peer", "u8" }, { "object", "object" } },
    [0x04] = { { "unknown_rest", "rest" } },
    [0x05] = { { "unknown_rest", "rest" } },
    [0x06] = { { "", "event" } },
    [0x07] = { { "", "event" } },
    [0x08] = { { "", "event" } },
    [0x09] = { { "", "event" } },
    [0x0A] = { { "", "event" } },
    [0x0B] = { { "", "event" } },
    [0x0C] = { { "", "event" } },
    [0x0D] = { { "", "event" } },
    [0x0E] = { { "", "event" } },
    [0x0F] = { { "", "event" } },
    [0x10] = { { "", "event" } },
    [0x11] = { { "", "event" } },
    [0x12] = { { "", "event" } },
    [0x14] = { { "object", "object id" } },
    [0x15] = { { "", "event" } },
    [0x16] = { { "flags", "collision flags" } },
    [0x17] = { { "", "event" } },
    [0x18] = { { "name", "text16" } },
    [0x19] = { { "weapon", "object id" }, { "torpedo", "torpedo type" }, { "flags", "torpedo flags" }, { "direction", "unit vector" }, { "target", "TorpedoTarget?" } },
    [0x1A] = { { "weapon", "object id" }, { "unknown_byte", "u8" }, { "direction", "unit vector" }, { "flags", "u8" }, { "target", "object id?" } },
    [0x1B] = { { "", "event" } },
    [0x1C] = { { "", "state update" } },
    [0x1D] = { { "object", "object id" } },
    [0x1E] = { { "object", "object id" } },
    [0x1F] = { { "object", "object id" }, { "set", "text32" }, { "zero", "1 byte" } },
    [0x20] = { { "round", "u8" }, { "directory", "text16" }, { "filter", "text16" }, { "flags", "request flags" } },
    [0x21] = { { "", "checksum response" } },
    [0x22] = { { "file", "text16" } },
    [0x23] = { { "file", "text16" } },
    [0x24] = { { "unknown_rest", "rest" } },
    [0x25] = { { "file", "text16" }, { "content", "rest" } },
    [0x26] = { { "unknown_rest", "rest" } },
    [0x29] = { { "object", "object id" }, { "place", "vector" }, { "radius", "cf16" }, { "damage", "cf16" } },
    [0x2A] = { { "flags", "unknown flags" } },
    [0x2B] = { { "unknown_rest", "rest" } },
    [0x2C] = { { "sender", "i32" }, { "text", "text16" } },
    [0x2D] = { { "sender", "i32" }, { "text", "text16" } },
    [0x35] = { { "player_limit", "u8" }, { "system", "system" }, { "time_limit", "time limit" }, { "frag_limit", "limit" } },
    [0x36] = { { "killer", "killer" }, { "victim", "i32" }, { "deaths", "i32" }, { "players", "player scores" } },
    [0x37] = { { "peer", "i32" }, { "kills", "i32" }, { "deaths", "i32" }, { "score", "i32" } },
    [0x38] = { { "reason", "end" } },
    [0x3F] = { { "peer", "i32" }, { "kills", "i32" }, { "deaths", "i32" }, { "score", "i32" }, { "team", "u8" } },
    [0x40] = { { "team", "u8" }, { "kills", "i32" }, { "score", "i32" } },
    [0x41] = { { "peer", "i32" }, { "team", "u8" } },
}
-- What numbers stand for.
local CODES = {
    ["species"] = { number = "u8", names = {
        [0x00] = "unknown",
        [0x01] = "Akira",
        [0x02] = "Ambassador",
        [0x03] = "Galaxy",
        [0x04] = "Nebula",
        [0x05] = "Sovereign",
        [0x06] = "BirdOfPrey",
        [0x07] = "Vorcha",
        [0x08] = "Warbird",
        [0x09] = "Marauder",
        [0x0A] = "Galor",
        [0x0B] = "Keldon",
        [0x0C] = "CardHybrid",
        [0x0D] = "KessokHeavy",
        [0x0E] = "KessokLight",
        [0x0F] = "Shuttle",
        [0x10] = "CardFreighter",
        [0x11] = "Freighter",
        [0x12] = "Transport",
        [0x13] = "SpaceFacility",
        [0x14] = "CommArray",
        [0x15] = "CommLight",
        [0x16] = "DryDock",
        [0x17] = "Probe",
        [0x18] = "Decoy",
        [0x19] = "Sunbuster",
        [0x1A] = "CardOutpost",
        [0x1B] = "CardStarbase",
        [0x1C] = "CardStation",
        [0x1D] = "FedOutpost",
        [0x1E] = "FedStarbase",
        [0x1F] = "Asteroid",
        [0x20] = "Asteroid1",
        [0x21] = "Asteroid2",
        [0x22] = "Asteroid3",
        [0x23] = "Amagon",
        [0x24] = "BiranuStation",
        [0x25] = "Enterprise",
        [0x26] = "Geronimo",
        [0x27] = "Peregrine",
        [0x28] = "Asteroidh1",
        [0x29] = "Asteroidh2",
        [0x2A] = "Asteroidh3",
        [0x2B] = "Escapepod",
        [0x2C] = "KessokMine",
        [0x2D] = "BorgCube",
    } },
    ["torpedo type"] = { number = "u8", names = {
        [0x01] = "Disruptor",
        [0x02] = "Photon",
        [0x03] = "Quantum",
        [0x04] = "Antimatter",
        [0x05] = "Cardassian",
        [0x06] = "Klingon",
        [0x07] = "Positron",
        [0x08] = "PulseDisruptor",
        [0x09] = "FusionBolt",
        [0x0A] = "CardassianDisruptor",
        [0x0B] = "KessokDisruptor",
        [0x0C] = "PhasedPlasma",
        [0x0D] = "Positron2",
        [0x0E] = "Photon2",
        [0x0F] = "RomulanCannon",
    } },
    ["system"] = { number = "u8", names = {
        [0x01] = "Multi1",
        [0x02] = "Multi2",
        [0x03] = "Multi3",
        [0x04] = "Multi4",
        [0x05] = "Multi5",
        [0x06] = "Multi6",
        [0x07] = "Multi7",
        [0x08] = "Albirea",
        [0x09] = "Poseidon",
    } },
    ["end"] = { number = "i32", names = {
        [0x00] = "over",
        [0x01] = "time",
        [0x02] = "frags",
        [0x03] = "score",
        [0x04] = "starbase destroyed",
        [0x05] = "Borg destroyed",
        [0x06] = "Enterprise destroyed",
    } },
    ["phaser level"] = { number = "u8", names = {
        [0x00] = "low",
        [0x01] = "medium",
        [0x02] = "high",
    } },
    ["object class"] = { number = "u32", names = {
        [0x8008] = "Ship",
        [0x8009] = "Torpedo",
        [0x801B] = "Subsystem",
        [0x801C] = "PoweredSubsystem",
        [0x801D] = "WeaponSystem",
        [0x801E] = "TorpedoSystem",
        [0x801F] = "PhaserSystem",
        [0x8020] = "PulseSystem",
        [0x8021] = "TractorSystem",
        [0x8022] = "Power",
        [0x8023] = "Sensors",
        [0x8024] = "Cloak",
        [0x8025] = "Warp",
        [0x8026] = "Impulse",
        [0x8027] = "Hull",
        [0x8028] = "Shields",
        [0x8029] = "Repair",
        [0x802A] = "Weapon",
        [0x802B] = "EnergyWeapon",
        [0x802C] = "PhaserBank",
        [0x802D] = "PulseWeapon",
        [0x802E] = "TractorProjector",
        [0x802F] = "TorpedoTube",
    } },
    ["event class"] = { number = "u32", names = {
        [0x02] = "Event",
        [0x101] = "SubsystemEvent",
        [0x104] = "BoolEvent",
        [0x105] = "CharEvent",
        [0x10C] = "ObjectEvent",
        [0x866] = "PlayerEvent",
        [0x8124] = "CollisionEvent",
        [0x8128] = "StartFiringEvent",
        [0x8129] = "ObjectExplodingEvent",
        [0x812A] = "StartWarpEvent",
    } },
    ["event number"] = { number = "u32", names = {
        [0x60001] = "Message",
        [0x60002] = "Connect",
        [0x60003] = "Disconnect",
        [0x60004] = "NewPlayer",
        [0x60005] = "DeletePlayer",
        [0x80000E] = "SetPlayer",
        [0x80000F] = "ObjectDeleted",
        [0x80004E] = "ObjectExploding",
        [0x80004F] = "ObjectDestroyed",
        [0x800050] = "ObjectCollision",
        [0x800051] = "ShieldCollision",
        [0x800052] = "PlanetCollision",
        [0x800053] = "CloakedCollision",
        [0x800058] = "TargetWasChanged",
        [0x800059] = "TargetOffsetChanged",
        [0x80005A] = "TargetedSubsystemChanged",
        [0x80005D] = "EnteredSet",
        [0x80005F] = "ExitedSet",
        [0x800064] = "WeaponHit",
        [0x800065] = "TorpedoReload",
        [0x800066] = "TorpedoFired",
        [0x800067] = "PlayerTorpedoCountChanged",
        [0x800068] = "PlayerTorpedoTypeChanged",
        [0x80006B] = "SubsystemDamaged",
        [0x80006C] = "SubsystemStateChanged",
        [0x80006D] = "SubsystemDisabled",
        [0x80006E] = "SubsystemOperational",
        [0x80006F] = "SubsystemDestroyed",
        [0x800070] = "SubsystemRebuilt",
        [0x800071] = "SubsystemCompletelyDestroyed",
        [0x800072] = "SubsystemCompletelyDisabled",
        [0x800073] = "SubsystemPartiallyOperational",
        [0x800074] = "RepairCompleted",
        [0x800075] = "RepairCannotBeCompleted",
        [0x800076] = "RepairIncreasePriority",
        [0x800077] = "CloakBeginning",
        [0x800078] = "CloakCompleted",
        [0x800079] = "DecloakBeginning",
        [0x80007A] = "DecloakCompleted",
        [0x80007B] = "ShieldsSetState",
        [0x80007C] = "WeaponFired",
        [0x80007D] = "TractorBeamStartedFiring",
        [0x80007E] = "TractorBeamStartedHitting",
        [0x80007F] = "TractorBeamStoppedFiring",
        [0x800080] = "TractorBeamStoppedHitting",
        [0x800081] = "PhaserStartedFiring",
        [0x800082] = "PhaserStartedHitting",
        [0x800083] = "PhaserStoppedFiring",
        [0x800084] = "PhaserStoppedHitting",
        [0x800085] = "TractorTargetDocked",
        [0x800088] = "SensorsShipIdentified",
        [0x80008C] = "SubsystemPowerChanged",
        [0x8000C5] = "ExitedWarp",
        [0x8000C8] = "ObjectCreated",
        [0x8000C9] = "ObjectCreatedNotify",
        [0x8000D7] = "StartFiring",
        [0x8000D8] = "StartFiringNotify",
        [0x8000D9] = "StopFiring",
        [0x8000DA] = "StopFiringNotify",
        [0x8000DB] = "StopFiringAtTarget",
        [0x8000DC] = "StopFiringAtTargetNotify",
        [0x8000DD] = "SubsystemStateChangedNotify",
        [0x8000DE] = "AddToRepairListNotify",
        [0x8000DF] = "AddToRepairList",
        [0x8000E0] = "SetPhaserLevel",
        [0x8000E1] = "SetTarget",
        [0x8000E2] = "StartCloakingNotify",
        [0x8000E3] = "StartCloaking",
        [0x8000E4] = "StopCloakingNotify",
        [0x8000E5] = "StopCloaking",
        [0x8000E6] = "ChecksumComplete",
        [0x8000E7] = "SystemChecksumFailed",
        [0x8000E8] = "SystemChecksumComplete",
        [0x8000E9] = "KillGame",
        [0x8000EC] = "StartWarpNotify",
        [0x8000ED] = "StartWarp",
        [0x8000F1] = "NewPlayerInGame",
        [0x8000F6] = "PlayerBoot",
        [0x8000FC] = "HostObjectCollision",
        [0x8000FD] = "NetTorpedoTypeChanged",
        [0x8000FE] = "NetTorpedoTypeChangedNotify",
    } },
}
-- What bits stand for, and whether each has a field.
local FLAGS = {
    ["settings flags"] = { apart = true, names = { { 0x01, "collisions" }, { 0x02, "friendly_fire" }, { 0x04, "correction" } } },
    ["collision flags"] = { apart = true, names = { { 0x01, "collisions" } } },
    ["request flags"] = { apart = true, names = { { 0x01, "recursive" } } },
    ["unknown flags"] = { apart = true, names = { { 0x01, "unknown_flag" } } },
    ["torpedo flags"] = { apart = false, names = { { 0x04, "no target" } } },
    ["state flags"] = { apart = false, names = { { 0x01, "position" }, { 0x02, "delta" }, { 0x04, "forward" }, { 0x08, "up" }, { 0x10, "speed" }, { 0x20, "subsystems" }, { 0x40, "cloak" }, { 0x80, "power" } } },
}
-- What each byte about the subsystems of a species says, and how many flags their weapons have.
local SUBSYSTEMS = {
    [1] = { weapons = 3, bytes = "hull shields shields_power shield_facing*6 powered_system powered_system_power reactor main_battery backup_battery powered_system powered_system_part*2 powered_system_power phasers phaser_bank*8 phasers_power weapon_bits phaser_setting powered_system powered_system_part*2 powered_system_power torpedoes torpedo_tube*6 torpedoes_power torpedo_setting powered_system powered_system_power tractors tractor_beam*2 tractors_power tractor_setting bridge" },
    [2] = { weapons = 3, bytes = "hull shields shields_power shield_facing*6 powered_system powered_system_power reactor main_battery backup_battery powered_system powered_system_part*2 powered_system_power phasers phaser_bank*8 phasers_power weapon_bits phaser_setting powered_system powered_system_part*2 powered_system_power torpedoes torpedo_tube*4 torpedoes_power torpedo_setting powered_system powered_system_power bridge tractors tractor_beam*2 tractors_power tractor_setting" },
    [3] = { weapons = 3, bytes = "hull reactor main_battery backup_battery shields shields_power shield_facing*6 powered_system powered_system_power torpedoes torpedo_tube*6 torpedoes_power weapon_bits torpedo_setting phasers phaser_bank*8 phasers_power phaser_setting powered_system powered_system_part*3 powered_system_power powered_system powered_system_part*2 powered_system_power tractors tractor_beam*4 tractors_power tractor_setting bridge powered_system powered_system_power" },
    [4] = { weapons = 3, bytes = "hull shields shields_power shield_facing*6 powered_system powered_system_power reactor main_battery backup_battery powered_system powered_system_part*2 powered_system_power phasers phaser_bank*8 phasers_power weapon_bits phaser_setting powered_system powered_system_part*2 powered_system_power torpedoes torpedo_tube*6 torpedoes_power torpedo_setting powered_system powered_system_power tractors tractor_beam*2 tractors_power tractor_setting bridge" },
    [5] = { weapons = 3, bytes = "hull shields shields_power shield_facing*6 powered_system powered_system_power reactor main_battery backup_battery powered_system powered_system_part*2 powered_system_power torpedoes torpedo_tube*6 torpedoes_power weapon_bits torpedo_setting powered_system powered_system_power phasers phaser_bank*8 phasers_power phaser_setting tractors tractor_beam*4 tractors_power tractor_setting powered_system powered_system_part*2 powered_system_power bridge" },
    [6] = { weapons = 2, bytes = "hull shields shields_power shield_facing*6 reactor main_battery backup_battery pulse_weapons pulse_weapon*2 pulse_weapons_power weapon_bits torpedoes torpedo_tube torpedoes_power torpedo_setting powered_system powered_system_part powered_system_power powered_system powered_system_part*2 powered_system_power powered_system powered_system_power powered_system powered_system_power powered_system powered_system_power" },
    [7] = { weapons = 4, bytes = "hull shields shields_power shield_facing*6 reactor main_battery backup_battery phasers phaser_bank phasers_power weapon_bits phaser_setting pulse_weapons pulse_weapon*2 pulse_weapons_power torpedoes torpedo_tube*3 torpedoes_power torpedo_setting powered_system powered_system_part*2 powered_system_power powered_system powered_system_part*2 powered_system_power powered_system powered_system_power powered_system powered_system_power powered_system powered_system_power tractors tractor_beam*2 tractors_power tractor_setting" },
    [8] = { weapons = 4, bytes = "hull shields shields_power shield_facing*6 reactor main_battery backup_battery phasers phaser_bank phasers_power weapon_bits phaser_setting pulse_weapons pulse_weapon*4 pulse_weapons_power torpedoes torpedo_tube*2 torpedoes_power torpedo_setting powered_system powered_system_part*2 powered_system_power powered_system powered_system_part*2 powered_system_power powered_system powered_system_power powered_system powered_system_power powered_system powered_system_power bridge tractors tractor_beam*2 tractors_power tractor_setting" },
    [9] = { weapons = 3, bytes = "hull shields shields_power shield_facing*6 reactor main_battery backup_battery phasers phaser_bank phasers_power weapon_bits phaser_setting powered_system powered_system_part*2 powered_system_power powered_system powered_system_part*2 powered_system_power tractors tractor_beam*2 tractors_power tractor_setting powered_system powered_system_power powered_system powered_system_power pulse_weapons pulse_weapon*2 pulse_weapons_power" },
    [10] = { weapons = 2, bytes = "hull shields shields_power shield_facing*6 reactor main_battery backup_battery phasers phaser_bank*4 phasers_power weapon_bits phaser_setting torpedoes torpedo_tube torpedoes_power torpedo_setting powered_system powered_system_part*2 powered_system_power powered_system powered_system_part powered_system_power powered_system powered_system_power powered_system powered_system_power" },
    [11] = { weapons = 3, bytes = "hull shields shields_power shield_facing*6 reactor main_battery backup_battery phasers phaser_bank*4 phasers_power weapon_bits phaser_setting torpedoes torpedo_tube*2 torpedoes_power torpedo_setting powered_system powered_system_part*4 powered_system_power powered_system powered_system_part powered_system_power powered_system powered_system_power powered_system powered_system_power tractors tractor_beam*2 tractors_power tractor_setting" },
    [12] = { weapons = 4, bytes = "hull reactor main_battery backup_battery torpedoes torpedo_tube*3 torpedoes_power weapon_bits torpedo_setting powered_system powered_system_power shields shields_power shield_facing*6 powered_system powered_system_power powered_system powered_system_part*2 powered_system_power powered_system powered_system_part*3 powered_system_power phasers phaser_bank*7 phasers_power phaser_setting pulse_weapons pulse_weapon pulse_weapons_power tractors tractor_beam*2 tractors_power tractor_setting" },
    [13] = { weapons = 2, bytes = "hull reactor main_battery backup_battery powered_system powered_system_part*2 powered_system_power powered_system powered_system_part*2 powered_system_power phasers phaser_bank*8 phasers_power weapon_bits phaser_setting torpedoes torpedo_tube*2 torpedoes_power torpedo_setting powered_system powered_system_power shields shields_power shield_facing*6 powered_system powered_system_power powered_system powered_system_power" },
    [14] = { weapons = 2, bytes = "hull reactor main_battery backup_battery torpedoes torpedo_tube torpedoes_power weapon_bits torpedo_setting powered_system powered_system_power shields shields_power shield_facing*6 powered_system powered_system_power powered_system powered_system_part*2 powered_system_power powered_system powered_system_part*2 powered_system_power phasers phaser_bank*8 phasers_power phaser_setting powered_system powered_system_power" },
    [15] = { weapons = 2, bytes = "hull powered_system powered_system_part*2 powered_system_power reactor main_battery backup_battery powered_system powered_system_power shields shields_power shield_facing*6 phasers phaser_bank phasers_power weapon_bits phaser_setting powered_system powered_system_power powered_system powered_system_part*2 powered_system_power tractors tractor_beam tractors_power tractor_setting" },
    [37] = { weapons = 3, bytes = "hull shields shields_power shield_facing*6 powered_system powered_system_power reactor main_battery backup_battery powered_system powered_system_part*2 powered_system_power torpedoes torpedo_tube*6 torpedoes_power weapon_bits torpedo_setting powered_system powered_system_power phasers phaser_bank*8 phasers_power phaser_setting tractors tractor_beam*4 tractors_power tractor_setting powered_system powered_system_part*2 powered_system_power bridge" },
}
-- </table>

-- Fields ------------------------------------------------------------------------------------------------------------

local F = {
    sender = ProtoField.uint8("bcnet.sender", "Sender", base.DEC, { [1] = "host", [0xFF] = "no id yet" }),
    count = ProtoField.uint8("bcnet.count", "Messages"),
    direction = ProtoField.string("bcnet.direction", "Direction"),
    non_stock = ProtoField.string("bcnet.non_stock", "Not stock"),
    gamespy = ProtoField.string("bcnet.gamespy", "GameSpy text"),
    gamespy_key = ProtoField.string("bcnet.gamespy.key", "Key"),
    gamespy_value = ProtoField.string("bcnet.gamespy.value", "Value"),
    error = ProtoField.none("bcnet.error", "Malformed"),
    error_at = ProtoField.uint32("bcnet.error.at", "At byte"),
    error_field = ProtoField.string("bcnet.error.field", "Field"),
    error_reason = ProtoField.string("bcnet.error.reason", "Reason"),
    message = ProtoField.none("bcnet.message", "Message"),
    type = ProtoField.uint8("bcnet.type", "Type", base.HEX, KINDS),
    kind = ProtoField.string("bcnet.kind", "Kind"),
    len = ProtoField.uint16("bcnet.len", "Size"),
    word = ProtoField.uint16("bcnet.word", "Flags and size", base.HEX),
    reliable = ProtoField.bool("bcnet.reliable", "Reliable"),
    urgent = ProtoField.bool("bcnet.urgent", "Urgent"),
    seq = ProtoField.uint16("bcnet.seq", "Sequence number"),
    part = ProtoField.uint8("bcnet.part", "Part"),
    total = ProtoField.uint8("bcnet.total", "Number of parts"),
    payload = ProtoField.bytes("bcnet.payload", "Payload"),
    address = ProtoField.ipv4("bcnet.address", "Address"),
    nonce = ProtoField.uint32("bcnet.nonce", "Nonce", base.HEX),
    password = ProtoField.string("bcnet.password", "Password"),
    assigned = ProtoField.uint8("bcnet.assigned", "Assigned id"),
    peer = ProtoField.uint8("bcnet.peer", "Peer"),
    name = ProtoField.string("bcnet.name", "Name"),
    reason = ProtoField.string("bcnet.reason", "Reason"),
    reason_code = ProtoField.int8("bcnet.reason_code", "Reason code"),
    target = ProtoField.uint8("bcnet.target", "Target"),
    tail = ProtoField.bytes("bcnet.tail", "Tail"),
    ack_seq = ProtoField.uint16("bcnet.ack.seq", "Acknowledged sequence number"),
    ack_flags = ProtoField.uint8("bcnet.ack.flags", "Flags", base.HEX),
    ack_channel = ProtoField.string("bcnet.ack.channel", "Channel"),
    ack_part = ProtoField.uint8("bcnet.ack.part", "Acknowledged part"),
    ack_of = ProtoField.framenum("bcnet.ack.of", "Acknowledges what was sent in", base.NONE, frametype.ACK),
    ack_time = ProtoField.double("bcnet.ack.time", "Seconds since it was last sent"),
    ack_stale = ProtoField.bool("bcnet.ack.stale", "Nothing left to acknowledge"),
    ack_age = ProtoField.double("bcnet.ack.age", "Seconds since it was first acknowledged"),
    ack_repeat = ProtoField.uint32("bcnet.ack.repeat", "Acknowledged before, times"),
    ack_opcode = ProtoField.uint8("bcnet.ack.opcode", "Opcode of the acknowledged message", base.HEX, OPCODES),
    acked_in = ProtoField.framenum("bcnet.acked_in", "Acknowledged in", base.NONE, frametype.ACK),
    retransmission = ProtoField.framenum("bcnet.retransmission", "Sent again, first in", base.NONE,
        frametype.RETRANS_PREV),
    resend = ProtoField.uint32("bcnet.retransmission.count", "Sent before, times"),
    resend_time = ProtoField.double("bcnet.retransmission.time", "Seconds since it was last sent"),
    reassembled = ProtoField.none("bcnet.reassembled", "Parts put together"),
    reassembled_len = ProtoField.uint32("bcnet.reassembled.len", "Size"),
    reassembled_frame = ProtoField.framenum("bcnet.reassembled.frame", "Part in"),
    reassembled_in = ProtoField.framenum("bcnet.reassembled.in", "Put together in"),
    game = ProtoField.none("bcnet.game", "Game payload"),
    opcode = ProtoField.uint8("bcnet.opcode", "Opcode", base.HEX, OPCODES),
    opcode_name = ProtoField.string("bcnet.opcode.name", "Opcode name"),
    truncated = ProtoField.string("bcnet.game.truncated", "Ends too early in"),
}

-- What game payloads have, by type. A name has one type in all payloads. Those of the table come by themselves.
local VALUES = {
    number = [[species peer value contacts hash bits first_subsystem powered round files directories end_time kills score
        player player_score]],
    raw = "contact offset delta speed",
    id = [[class object event source related target version_hash directory_hash file_name file_hash directory_name]],
    flag = "has_hash cloaked",
    float = "position rotation force lifetime warp delta forward up speed contact offset power",
    text = "name set",
    named = "class event flags species value",
    bytes = "unknown subsystems body rest",
}
local TYPES = {
    number = function(filter, label) return ProtoField.int32(filter, label) end,
    id = function(filter, label) return ProtoField.uint32(filter, label, base.HEX) end,
    flag = function(filter, label) return ProtoField.bool(filter, label) end,
    float = function(filter, label) return ProtoField.float(filter, label) end,
    text = function(filter, label) return ProtoField.string(filter, label) end,
    bytes = function(filter, label) return ProtoField.bytes(filter, label) end,
}
-- The types of what each kind of field shows; what is not here is made of fields with names of their own.
local SHOWN = {
    u8 = "number", u16 = "number", i32 = "number", u32 = "id", f32 = "float", ["object id"] = "id",
    ["3 × f32"] = "float", ["4 × f32"] = "float", ["1 byte"] = "bytes", ["7 bytes"] = "bytes", ["8 bytes"] = "bytes",
    rest = "bytes", correction = "bytes", text8 = "text", text16 = "text", text32 = "text", cf16 = "float raw",
    ["unit vector"] = "float",
    vector = "float raw", ["scaled vector"] = "float raw", limit = "number", ["time limit"] = "number",
    killer = "number", ["player scores"] = "number",
}
for kind, codes in pairs(CODES) do SHOWN[kind] = SHOWN[codes.number] .. " named" end
for kind, flags in pairs(FLAGS) do
    SHOWN[kind] = flags.apart and "number" or "number named"
    if flags.apart then
        for _, flag in ipairs(flags.names) do VALUES.flag = VALUES.flag .. " " .. flag[2] end
    end
end
for _, fields in pairs(FIELDS) do
    for _, field in ipairs(fields) do
        local name, kind = field[1], field[2]:gsub("%?$", "")
        for type in (SHOWN[kind] or ""):gmatch("%S+") do VALUES[type] = VALUES[type] .. " " .. name end
    end
end
-- How a byte about subsystems is shown follows from its name.
local function subsystem_type(name)
    if name == "weapon_bits" or name:find("_setting$") then return "number" end
    return name:find("_power$") and "power" or "float"
end
for _, known in pairs(SUBSYSTEMS) do
    for name in known.bytes:gmatch("[%l_]+") do
        local type = subsystem_type(name) == "number" and "number" or "float"
        VALUES[type] = VALUES[type] .. " " .. name
    end
end
local G = {}
for type, names in pairs(VALUES) do
    for name in names:gmatch("%S+") do
        -- What a number stands for, and the bits of a packed one, have names of their own.
        if type == "raw" then name = name .. "_raw" elseif type == "named" then name = name .. "_name" end
        local shown_as = type == "raw" and "number" or type == "named" and "text" or type
        local label = name:sub(1, 1):upper() .. name:sub(2):gsub("_", " ")
        G[name] = G[name] or TYPES[shown_as]("bcnet.game." .. name, label)
    end
end

local E = {
    malformed = ProtoExpert.new("bcnet.malformed", "Malformed datagram", expert.group.MALFORMED, expert.severity.ERROR),
    non_stock = ProtoExpert.new("bcnet.odd", "No stock sender does this", expert.group.PROTOCOL, expert.severity.NOTE),
    retransmission = ProtoExpert.new("bcnet.sent_again", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE),
    stuck = ProtoExpert.new("bcnet.stuck", "Sent again and again", expert.group.SEQUENCE, expert.severity.WARN),
    stale = ProtoExpert.new("bcnet.stale_ack", "Stale ACK: nothing left to acknowledge", expert.group.SEQUENCE,
        expert.severity.WARN),
    unknown = ProtoExpert.new("bcnet.unknown_ack", "ACK of something that was not captured", expert.group.SEQUENCE,
        expert.severity.NOTE),
    wrong_form = ProtoExpert.new("bcnet.wrong_ack", "Plain ACK of a message that was sent in parts",
        expert.group.SEQUENCE, expert.severity.WARN),
    bad_part = ProtoExpert.new("bcnet.bad_part", "Part contradicts the others of its message", expert.group.SEQUENCE,
        expert.severity.WARN),
    truncated = ProtoExpert.new("bcnet.cut_payload", "Payload ends too early", expert.group.PROTOCOL,
        expert.severity.WARN),
    boot = ProtoExpert.new("bcnet.booted", "A peer is thrown out", expert.group.SEQUENCE, expert.severity.CHAT),
}

do
    local all = {}
    for _, field in pairs(F) do all[#all + 1] = field end
    for _, field in pairs(G) do all[#all + 1] = field end
    bcnet.fields = all
end
bcnet.experts = E

bcnet.prefs.ports = Pref.range("UDP ports", "22101-22201", "Always taken for Bridge Commander", 65535)
bcnet.prefs.heuristic = Pref.bool("Recognise other ports by content", true, "Looks at every UDP datagram")

-- Cipher (T-40 to T-45) -----------------------------------------------------------------------------------------------

-- All ten key bytes are XORed with the same plain bytes (T-44), so what a byte needs of the key depends on the XOR of
-- the plain bytes so far alone: 256 cases, each worked out once.
local KEY = { ("AlbyRules!"):byte(1, -1) }
local rounds_of = {}

local function rounds(mixed)
    local known = rounds_of[mixed]
    if known then return known end
    local w, x, masks, steps = 0, 0, 0, {}
    for i = 0, 4 do
        local pair = bit.bxor(KEY[2 * i + 1], mixed) * 256 + bit.bxor(KEY[2 * i + 2], mixed)
        w = bit.bxor(pair, w)
        local before = x
        x = (w * 0x015A) % 65536
        steps[i + 1] = (before + i * 0x4E35 + x) % 65536
        w = (w * 0x4E35 + 1) % 65536
        masks = bit.bxor(masks, w)
    end
    steps.carry, steps.masks = x, masks
    rounds_of[mixed] = steps
    return steps
end

local function decipher(bytes)
    local out = { bytes:sub(1, 1) }
    local s, carry, mixed = 0, 0, 0
    for at = 2, #bytes do
        local r = rounds(mixed)
        local s1 = (carry + s * 0x4E35 + r[1]) % 65536
        local s2 = (s1 * 0x4E35 + r[2]) % 65536
        local s3 = (s2 * 0x4E35 + r[3]) % 65536
        local s4 = (s3 * 0x4E35 + r[4]) % 65536
        s = (s4 * 0x4E35 + r[5]) % 65536
        carry = r.carry
        local a = bit.bxor(s1, s2, s3, s4, s, r.masks)
        local plain = bit.bxor(bytes:byte(at), a % 256, math.floor(a / 256))
        out[at] = string.char(plain)
        mixed = bit.bxor(mixed, plain)
    end
    return table.concat(out)
end

-- Bytes ---------------------------------------------------------------------------------------------------------------

-- Offsets count from 0, as in the rest of the project.
local function u8(bytes, at) return bytes:byte(at + 1) end

local function u16(bytes, at)
    local low, high = bytes:byte(at + 1, at + 2)
    return low + high * 256
end

local function u32(bytes, at)
    local a, b, c, d = bytes:byte(at + 1, at + 4)
    return a + b * 256 + c * 65536 + d * 16777216
end

local function f32(bytes, at)
    local number = u32(bytes, at)
    local sign = number >= 0x80000000 and -1 or 1
    local exponent = math.floor(number / 0x800000) % 256
    local fraction = number % 0x800000
    if exponent == 255 then return fraction == 0 and sign * math.huge or 0 / 0 end
    if exponent == 0 then return sign * fraction * 2 ^ -149 end
    return sign * (fraction + 0x800000) * 2 ^ (exponent - 150)
end

local function utf8(code)
    if code < 0x80 then return string.char(code) end
    if code < 0x800 then return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64) end
    if code < 0x10000 then
        return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
    end
    return string.char(0xF0 + math.floor(code / 262144), 0x80 + math.floor(code / 4096) % 64,
        0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

-- Wireshark's strings end at a zero byte, so control characters are shown by their pictures.
local function shown(code)
    if code < 0x20 then code = 0x2400 + code elseif code == 0x7F then code = 0x2421 end
    return utf8(code)
end

-- Text of one byte per character.
local function latin1(bytes)
    return (bytes:gsub("[%c\127-\255]", function(byte) return shown(byte:byte()) end))
end

-- The text that begins at `from`, and where its terminator ends; nothing if it is none (T-39).
local function utf16(bytes, from, to)
    if (to - from) % 2 ~= 0 then return nil end
    local out, at = {}, from
    while at < to do
        local unit = u16(bytes, at)
        at = at + 2
        if unit == 0 then return table.concat(out), at end
        if unit >= 0xD800 and unit < 0xDC00 and at < to then
            local low = u16(bytes, at)
            if low >= 0xDC00 and low < 0xE000 then
                unit = 0x10000 + (unit - 0xD800) * 1024 + low - 0xDC00
                at = at + 2
            end
        end
        if unit >= 0xD800 and unit < 0xE000 then unit = 0xFFFD end
        out[#out + 1] = shown(unit)
    end
    return nil
end

-- Reading a datagram (T-01 to T-39) -----------------------------------------------------------------------------------

-- Everything below gives a message, or nil and what is wrong: { at, field, reason }.

local function bad(at, field, reason) return nil, { at = at, field = field, reason = reason } end

-- The datagram ends before the message does. The first field that is not whole was cut; if all are, the last goes on.
local function cut(bytes, at, fields)
    local left, stop, name = #bytes - at, 0, "message"
    for _, field in ipairs(fields) do
        stop, name = stop + field[1], field[2]
        if stop > left then break end
    end
    return bad(#bytes, name, "truncated")
end

local function read_ack(bytes, at)
    if at + 4 > #bytes then return cut(bytes, at, { { 1, "type" }, { 2, "sequence" }, { 1, "flags" } }) end
    local flags = u8(bytes, at + 3)
    local message = {
        kind = 0x01, at = at, len = 4, seq = u16(bytes, at + 1), flags = flags, spare = flags - flags % 4,
        channel = flags % 4 >= 2 and "control" or "game",
    }
    if flags % 2 == 1 then
        if at + 5 > #bytes then return bad(#bytes, "part", "truncated") end
        message.part, message.len = u8(bytes, at + 4), 5
    end
    return message
end

local function read_data(bytes, at)
    if at + 3 > #bytes then return cut(bytes, at, { { 1, "type" }, { 2, "size" } }) end
    local word = u16(bytes, at + 1)
    local size, reliable = word % 0x2000, word >= 0x8000
    local urgent, split = word % 0x8000 >= 0x4000, word % 0x4000 >= 0x2000
    local least = 3 + (reliable and 2 or 0) + (split and 1 or 0)
    if size < least then return bad(at + 1, "size", "bad_size") end
    local index_at = at + (reliable and 5 or 3)
    if at + size > #bytes then
        local first = split and index_at < #bytes and u8(bytes, index_at) == 0
        return cut(bytes, at, {
            { 1, "type" }, { 2, "size" }, { reliable and 2 or 0, "sequence" }, { split and 1 or 0, "part" },
            { first and 1 or 0, "total" }, { 0, "payload" },
        })
    end
    local message = {
        kind = 0x32, at = at, len = size, word = word, reliable = reliable, urgent = urgent, channel = "game",
        payload_at = index_at,
    }
    if reliable then message.seq = u16(bytes, at + 3) end
    if split then
        message.part, message.payload_at = u8(bytes, index_at), index_at + 1
        if message.part == 0 then
            if size < least + 1 then return bad(at + 1, "size", "bad_size") end
            message.total, message.payload_at = u8(bytes, index_at + 1), index_at + 2
            if message.total == 0 then return bad(index_at + 1, "total", "bad_size") end
        end
    end
    return message
end

local CONTROL = {
    [0x00] = { { 1, "peer" }, { 4, "address" }, { 2, "name" } },
    [0x04] = { { 1, "reason" }, { 1, "target" }, { 0, "tail" } },
    [0x05] = { { 1, "peer" }, { 4, "address" }, { 0, "tail" } },
    request = { { 4, "address" }, { 4, "nonce" }, { 2, "password" } },
    reply = { { 1, "assigned" }, { 0, "tail" } },
}

local function is_client(id) return id == UNASSIGNED or (id >= 0x02 and id <= 0x7E and id ~= GAMESPY) end

local function read_control(bytes, at, kind)
    if at + 3 > #bytes then return cut(bytes, at, { { 1, "type" }, { 2, "size" } }) end
    local word = u16(bytes, at + 1)
    local size = word % 0x4000
    local layout = CONTROL[kind]
    if not layout then
        -- T-35
        local reply = not is_client(u8(bytes, 0)) and size < 15
        layout = reply and CONTROL.reply or CONTROL.request
    end
    local least = 5
    for _, field in ipairs(layout) do least = least + field[1] end
    if size < least then return bad(at + 1, "size", "bad_size") end
    if at + size > #bytes then
        local fields = { { 1, "type" }, { 2, "size" }, { 2, "sequence" } }
        for _, field in ipairs(layout) do fields[#fields + 1] = field end
        return cut(bytes, at, fields)
    end
    local message = {
        kind = kind, at = at, len = size, word = word, reliable = word >= 0x8000, urgent = word % 0x8000 >= 0x4000,
        seq = u16(bytes, at + 3), channel = "control", layout = layout, places = {},
    }
    local here, stop = at + 5, at + size
    for _, field in ipairs(layout) do
        local len, name = field[1], field[2]
        if name == "name" or name == "password" then
            local text, after = utf16(bytes, here, stop)
            if not text then return bad(here, name, "bad_text") end
            message[name], len = text, after - here
        end
        message.places[name] = { here, len }
        here = here + len
    end
    if here < stop then message.tail = { here, stop - here } end
    return message
end

local function read_message(bytes, at)
    if at >= #bytes then return bad(at, "type", "truncated") end
    local kind = u8(bytes, at)
    if kind == 0x32 then return read_data(bytes, at) end
    if kind == 0x01 then return read_ack(bytes, at) end
    if kind == 0x02 then return { kind = kind, at = at, len = 1 } end
    if KINDS[kind] then return read_control(bytes, at, kind) end
    return bad(at, "type", "unknown_type")
end

-- All messages of a deciphered datagram, or nil and what is wrong.
local function read_datagram(bytes)
    if #bytes < 1 then return bad(0, "sender", "truncated") end
    if #bytes < 2 then return bad(1, "count", "truncated") end
    local count = u8(bytes, 1)
    if count == 0 then return bad(1, "count", "count_zero") end
    local messages, at = {}, 2
    for i = 1, count do
        local message, problem = read_message(bytes, at)
        if not message then return nil, problem end
        messages[i] = message
        at = at + message.len
    end
    if at < #bytes then return bad(at, "message", "trailing") end
    return messages
end

local function oddities(message)
    local odd = {}
    local function when(present, name) if present then odd[#odd + 1] = name end end
    when(message.len > MAX_MESSAGE, "large_message")
    if message.kind == 0x01 then
        when(message.spare ~= 0, "ack_spare_bits")
        when(message.channel == "control" and message.part, "ack_control_part")
    elseif message.kind == 0x32 then
        when(message.urgent, "data_urgent")
        when(message.part and not message.reliable, "unreliable_part")
    elseif message.kind ~= 0x02 then
        when(not message.reliable, "control_unreliable")
        when(not message.urgent, "control_not_urgent")
        when(message.tail, "tail")
    end
    return odd
end

-- Game payloads -------------------------------------------------------------------------------------------------------

-- Takes one field after the other off a payload. `cut` holds the name of the field in which it ended, and nothing is
-- read from there on: every method then gives 0, so that layouts need not ask.
local Reader = {}
Reader.__index = Reader

function Reader.new(bytes) return setmetatable({ bytes = bytes, at = 1, fields = {} }, Reader) end

function Reader:left() return self.cut and 0 or #self.bytes - self.at end

function Reader:take(name, len)
    if self.cut then return nil end
    if self.at + len > #self.bytes then
        self.cut = name
        return nil
    end
    local at = self.at
    self.at = at + len
    return at
end

function Reader:add(name, at, len, value)
    self.fields[#self.fields + 1] = { name = name, at = at, len = len, value = value }
end

function Reader:number(name, len, read)
    local at = self:take(name, len)
    if not at then return 0 end
    local value = read(self.bytes, at)
    self:add(name, at, len, value)
    return value
end

local function i32(bytes, at)
    local number = u32(bytes, at)
    return number >= 0x80000000 and number - 0x100000000 or number
end

local function i8(bytes, at)
    local byte = u8(bytes, at)
    return byte >= 128 and byte - 256 or byte
end

-- Sixteen bits: a sign, a decade, and steps in it. The game's 0.001 is that of a float.
local MILLI = 0.0010000000474974513

local function cf16(bits)
    local decade = math.floor(bits / 4096) % 8
    local low = decade == 0 and 0 or MILLI * 10 ^ (decade - 1)
    local size = low + (MILLI * 10 ^ decade - low) * (bits % 4096) / 4095
    return bits >= 0x8000 and -size or size
end

function Reader:u8(name) return self:number(name, 1, u8) end
function Reader:u16(name) return self:number(name, 2, u16) end
function Reader:i32(name) return self:number(name, 4, i32) end
function Reader:id(name) return self:number(name, 4, u32) end

function Reader:floats(name, count)
    for _ = 1, count do self:number(name, 4, f32) end
end

-- A direction in three bytes, and what follows it.
function Reader:vector(name, len)
    local at = self:take(name, len)
    if not at then return nil end
    return at, { i8(self.bytes, at) / 127, i8(self.bytes, at + 1) / 127, i8(self.bytes, at + 2) / 127 }
end

function Reader:scaled(name, at, len, vector, scale, raw)
    for _, part in ipairs(vector) do self:add(name, at, len, part * scale) end
    if raw then self:add(name .. "_raw", at, len, raw) end
end

function Reader:text(name, prefix)
    local at = self:take(name, prefix)
    if not at then return end
    local len = prefix == 1 and u8(self.bytes, at) or prefix == 2 and u16(self.bytes, at) or u32(self.bytes, at)
    local from = self:take(name, len)
    if not from then return end
    self:add(name, at, prefix + len, latin1(self.bytes:sub(from + 1, from + len)))
    self.said = self.said or self.fields[#self.fields].value
end

function Reader:raw(name, len)
    local at = self:take(name, len)
    if at then self:add(name, at, len) end
end

function Reader:rest(name)
    if self:left() > 0 then self:raw(name, self:left()) end
end

-- How each kind of field is read.
local READ = {
    u8 = Reader.u8, u16 = Reader.u16, i32 = Reader.i32, u32 = Reader.id, ["object id"] = Reader.id,
    f32 = function(r, name) r:floats(name, 1) end,
    ["3 × f32"] = function(r, name) r:floats(name, 3) end,
    ["4 × f32"] = function(r, name) r:floats(name, 4) end,
    ["1 byte"] = function(r, name) r:raw(name, 1) end,
    ["7 bytes"] = function(r, name) r:raw(name, 7) end,
    ["8 bytes"] = function(r, name) r:raw(name, 8) end,
    rest = Reader.rest,
    text8 = function(r, name) r:text(name, 1) end,
    text16 = function(r, name) r:text(name, 2) end,
    text32 = function(r, name) r:text(name, 4) end,
    limit = Reader.u8,
    cf16 = function(r, name)
        local at = r:take(name, 2)
        if not at then return end
        r:add(name, at, 2, cf16(u16(r.bytes, at)))
        r:add(name .. "_raw", at, 2, u16(r.bytes, at))
    end,
    ["unit vector"] = function(r, name)
        local at, vector = r:vector(name, 3)
        if at then r:scaled(name, at, 3, vector, 1) end
    end,
    vector = function(r, name)
        local at, vector = r:vector(name, 5)
        if not at then return end
        local length = u16(r.bytes, at + 3)
        r:scaled(name, at, 5, vector, cf16(length), length)
    end,
    ["scaled vector"] = function(r, name)
        local at, vector = r:vector(name, 4)
        if not at then return end
        local share = u8(r.bytes, at + 3)
        r:scaled(name, at, 4, vector, share / 255, share)
    end,
}

for kind, codes in pairs(CODES) do
    READ[kind] = function(r, name)
        local at = r.at
        local code = READ[codes.number](r, name)
        if not r.cut and codes.names[code] then r:add(name .. "_name", at, r.at - at, codes.names[code]) end
        return code
    end
end

for kind, flags in pairs(FLAGS) do
    READ[kind] = function(r, name)
        local byte = r:u8(name)
        if r.cut then return 0 end
        for _, flag in ipairs(flags.names) do
            local is_set = bit.band(byte, flag[1]) ~= 0
            if flags.apart then
                r:add(flag[2], r.at - 1, 1, is_set)
            elseif is_set then
                r:add(name .. "_name", r.at - 1, 1, flag[2])
            end
        end
        return byte
    end
end

-- There only if the flags before it say so.
function READ.correction(r, name)
    for _, field in ipairs(r.fields) do
        if field.name == "correction" and field.value then r:rest(name) end
    end
end

-- What the bytes from there to the end say if they are as many as the species has.
local function read_subsystems(r, known, from)
    if not known then return end
    local fields, at = {}, from
    for name, count in known.bytes:gmatch("([%l_]+)%*?(%d*)") do
        for _ = 1, tonumber(count) or 1 do
            if at >= #r.bytes then return end
            local value = u8(r.bytes, at)
            if name == "weapon_bits" and math.floor(value / 32) ~= known.weapons then return end
            local kind = subsystem_type(name)
            if kind == "power" then value = i8(r.bytes, at) / 100 elseif kind == "float" then value = value / 255 end
            fields[#fields + 1] = { name = name, at = at, value = value }
            at = at + 1
        end
    end
    if at ~= #r.bytes then return end
    for _, field in ipairs(fields) do r:add(field.name, field.at, 1, field.value) end
end

function READ.object(r)
    local class = READ["object class"](r, "class")
    r:id("object")
    if r.cut then return end
    if class ~= 0x8008 then return r:rest("body") end
    local species = READ.species(r, "species")
    r:floats("position", 3)
    r:floats("rotation", 4)
    r:raw("unknown", 7)
    r:text("name", 1)
    r:text("set", 1)
    local at = r.at
    r:rest("subsystems")
    if not r.cut then read_subsystems(r, SUBSYSTEMS[species], at) end
end

local EVENT_EXTRA = {
    [0x0104] = function(r) r:u8("value") end,
    [0x0105] = function(r, event)
        if event == 0x008000E0 then READ["phaser level"](r, "value") else r:u8("value") end
    end,
    [0x010C] = function(r) r:id("object") end,
    [0x0866] = function(r) r:u8("peer") end,
    [0x8124] = function(r)
        for _ = 1, r:u8("contacts") do READ["scaled vector"](r, "contact") end
        r:floats("force", 1)
    end,
    [0x8128] = function(r) r:raw("unknown", 8) end,
    [0x8129] = function(r) r:i32("killer") r:floats("lifetime", 1) end,
    [0x812A] = function(r) r:text("name", 1) r:floats("warp", 4) end,
}

function READ.event(r)
    local class = READ["event class"](r, "class")
    local event = READ["event number"](r, "event")
    r:id("source")
    r:id("related")
    local extra = EVENT_EXTRA[class]
    if extra then extra(r, event) end
end

-- One bit byte has all flags of a message; it stands where the first of them is.
READ["state update"] = function(r)
    r:id("object")
    r:floats("time", 1)
    local flags = READ["state flags"](r, "flags")
    local function has(mask) return not r.cut and bit.band(flags, mask) ~= 0 end
    local bits, bits_at
    if has(0x01) then
        r:floats("position", 3)
        bits_at, bits = r.at, r:u8("bits")
        if not r.cut then
            local has_hash = bit.band(bits, 0x01) ~= 0
            r:add("has_hash", bits_at, 1, has_hash)
            if has_hash then r:u16("hash") end
        end
    end
    if has(0x02) then READ.vector(r, "delta") end
    if has(0x04) then READ["unit vector"](r, "forward") end
    if has(0x08) then READ["unit vector"](r, "up") end
    if has(0x10) then READ.cf16(r, "speed") end
    if has(0x40) then
        local mask = 0x02
        if not bits then
            bits_at, bits, mask = r.at, r:u8("bits"), 0x01
        end
        if not r.cut then r:add("cloaked", bits_at, 1, bit.band(bits, mask) ~= 0) end
    end
    if has(0x20) then
        r:u8("first_subsystem")
        r:rest("subsystems")
    end
    if has(0x80) then
        while r:left() > 0 do
            r:u8("powered")
            r:number("power", 1, function(bytes, at) return u8(bytes, at) * 1.25 / 255 end)
        end
    end
end

READ["checksum response"] = function(r)
    if r:u8("round") == 0 then r:id("version_hash") end
    r:id("directory_hash")
    local to_come = 1
    while to_come > 0 and not r.cut do
        for _ = 1, r:u16("files") do
            r:id("file_name")
            r:id("file_hash")
            if r.cut then break end
        end
        local directories = r:u8("directories")
        for _ = 1, directories do r:id("directory_name") end
        to_come = to_come - 1 + directories
    end
end

READ["time limit"] = function(r, name)
    if r:u8(name) ~= 0xFF then r:i32("end_time") end
end

function READ.killer(r, name)
    if r:i32(name) ~= 0 then
        r:i32("kills")
        r:i32("score")
    end
end

READ["player scores"] = function(r, name)
    for _ = 1, r:u8(name) do
        r:i32("player")
        r:i32("player_score")
    end
end

function READ.TorpedoTarget(r)
    r:id("target")
    READ["scaled vector"](r, "offset")
end

local function describe(bytes)
    local r = Reader.new(bytes)
    for _, field in ipairs(FIELDS[u8(bytes, 0)] or {}) do
        local kind, optional = field[2]:gsub("%?$", "")
        if optional == 0 or r:left() > 0 then READ[kind](r, field[1]) end
    end
    if not r.cut then r:rest("rest") end
    return r
end

local function opcode_name(opcode) return OPCODES[opcode] or string.format("opcode 0x%02X", opcode) end

-- Conversations: what was sent, acknowledged and put together ------------------------------------------------------------

-- Frames come in order once; what they showed is kept for when they are looked at again.
local streams, notes, peers

function bcnet.init()
    streams, notes, peers = {}, {}, {}
end

local function stream(key)
    local known = streams[key]
    if not known then
        known = { sent = {}, sets = {}, open = 0 }
        streams[key] = known
    end
    return known
end

local function identity(channel, seq, part) return channel .. seq .. "/" .. (part or "") end

-- Nothing is sent again for longer (T-64); what then has the same number is another message.
local LONGEST_LIFE = 360
-- Parts of more messages than this are not kept at once.
local MOST_SETS = 64

-- A reliable message: is it sent again, and does it complete others?
local function follow_sent(sender, message, bytes, now, frame)
    local key = identity(message.channel, message.seq, message.part)
    local content = bytes:sub(message.at + 1, message.at + message.len)
    local record = sender.sent[key]
    if record and record.content == content and now - record.first < LONGEST_LIFE then
        local note = { record = record, again = record.times, first = record.frame, since = now - record.last }
        record.times, record.last = record.times + 1, now
        return note
    end
    record = { content = content, first = now, last = now, frame = frame, times = 1, acks = 0 }
    if message.kind == 0x32 and (message.part or 0) == 0 and message.payload_at < message.at + message.len then
        record.opcode = u8(bytes, message.payload_at)
    end
    sender.sent[key] = record
    -- A whole message takes the place of parts with its number, and the other way round.
    if message.part then sender.sent[identity(message.channel, message.seq)] = nil end
    if message.part == nil then sender.sent[identity(message.channel, message.seq, 0)] = nil end
    return { record = record }
end

-- T-20, T-68. Gives a note with the whole payload if this part is the last one that was missing.
local function follow_part(sender, message, bytes, frame, note)
    local set = sender.sets[message.seq]
    if set and set.done and not note.again then set = nil end
    if set and set.done then
        note.set = set
        return
    end
    if not set then
        if sender.open >= MOST_SETS then sender.sets, sender.open = {}, 0 end
        set = { parts = {}, frames = {}, have = 0, highest = 0 }
        sender.sets[message.seq], sender.open = set, sender.open + 1
    end
    local index, total = message.part, message.total or set.total
    if (set.total and message.total and set.total ~= message.total) or (total and math.max(index, set.highest) >= total)
    then
        note.bad_part = true
        return
    end
    set.total, set.highest = total, math.max(index, set.highest)
    if not set.parts[index] then set.have = set.have + 1 end
    set.parts[index] = bytes:sub(message.payload_at + 1, message.at + message.len)
    set.frames[index] = frame
    note.set = set
    if set.have == set.total then
        local whole = {}
        for i = 0, set.total - 1 do whole[i + 1] = set.parts[i] end
        note.whole = table.concat(whole)
        set.done, set.parts, sender.open = frame, nil, sender.open - 1
    end
end

local function follow_ack(receiver, message, now)
    local record = receiver.sent[identity(message.channel, message.seq, message.part)]
    if not record then
        local split = not message.part and receiver.sent[identity(message.channel, message.seq, 0)]
        return { wrong_form = split and true or false, unknown = not split, record = split or nil }
    end
    local note = { record = record, since = now - record.last, stale = record.acks > 0, before = record.acks }
    if record.acks > 0 then note.age = now - record.acked end
    record.acks = record.acks + 1
    record.acked = record.acked or now
    return note
end

-- What the messages of a frame mean in their conversation.
local function follow(bytes, messages, pinfo)
    local from = tostring(pinfo.src) .. ":" .. pinfo.src_port
    local to = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    local there, back = from .. ">" .. to, to .. ">" .. from
    local sender_id, now, frame = u8(bytes, 0), pinfo.rel_ts, pinfo.number
    if sender_id ~= HOST then peers[from] = sender_id end
    local found = { to = sender_id == HOST and peers[to] or HOST }
    for i, message in ipairs(messages) do
        if message.kind == 0x03 and message.layout == CONTROL.request then
            -- T-53: another nonce is a new start.
            local nonce = u32(bytes, message.places.nonce[1])
            if stream(there).nonce ~= nonce then
                streams[there], streams[back] = nil, nil
                stream(there).nonce = nonce
            end
        end
        if message.kind == 0x01 then
            found[i] = follow_ack(stream(back), message, now)
            if found[i].record and not found[i].unknown and not found[i].stale and not found[i].wrong_form then
                found[i].record.acked_in = frame
            end
        elseif message.reliable then
            found[i] = follow_sent(stream(there), message, bytes, now, frame)
            if message.part then follow_part(stream(there), message, bytes, frame, found[i]) end
        end
    end
    return found
end

-- Showing -------------------------------------------------------------------------------------------------------------

-- `whole` is false for what only begins a payload.
local function show_game(tree, tvb, from, bytes, whole)
    local node = tree:add(F.game, tvb:range(from, #bytes))
    if #bytes == 0 then
        node:set_text("Game payload: empty")
        return "empty"
    end
    local opcode = u8(bytes, 0)
    local name = opcode_name(opcode)
    node:set_text("Game payload: " .. name)
    node:add(F.opcode, tvb:range(from, 1), opcode)
    if OPCODES[opcode] then node:add(F.opcode_name, tvb:range(from, 1), name):set_generated() end
    local described = describe(bytes)
    for _, field in ipairs(described.fields) do
        local range = tvb:range(from + field.at, field.len)
        if field.value == nil then
            node:add(G[field.name], range)
        else
            node:add(G[field.name], range, field.value)
        end
    end
    if described.cut then
        node:add(F.truncated, tvb:range(from + described.at, #bytes - described.at), described.cut)
        if whole then node:add_proto_expert_info(E.truncated) end
    end
    return described.said and name .. ' "' .. described.said .. '"' or name
end

local function show_non_stock(node, odd)
    for _, name in ipairs(odd) do
        node:add(F.non_stock, name):set_generated()
    end
    if #odd > 0 then node:add_proto_expert_info(E.non_stock, "No stock sender does this: " .. table.concat(odd, ", ")) end
end

local function show_ack(node, tvb, message, note)
    local at = message.at
    node:add(F.ack_seq, tvb:range(at + 1, 2), message.seq)
    node:add(F.ack_flags, tvb:range(at + 3, 1), message.flags)
    node:add(F.ack_channel, tvb:range(at + 3, 1), message.channel)
    if message.part then node:add(F.ack_part, tvb:range(at + 4, 1), message.part) end
    if not note then return "" end
    if note.unknown then
        node:add_proto_expert_info(E.unknown)
        return " [of?]"
    end
    node:add(F.ack_of, note.record.frame):set_generated()
    if note.record.opcode then node:add(F.ack_opcode, note.record.opcode):set_generated() end
    if note.wrong_form then
        node:add_proto_expert_info(E.wrong_form)
        return " [no part]"
    end
    node:add(F.ack_time, note.since):set_generated()
    if not note.stale then return "" end
    node:add(F.ack_stale, true):set_generated()
    node:add(F.ack_age, note.age):set_generated()
    node:add(F.ack_repeat, note.before):set_generated()
    local of = note.record.opcode and opcode_name(note.record.opcode) or "message"
    node:add_proto_expert_info(E.stale,
        string.format("Stale ACK: %s was acknowledged %.3f s ago, %d times before", of, note.age, note.before))
    return " [stale]"
end

local function show_header(node, tvb, message)
    local at = message.at
    node:add(F.word, tvb:range(at + 1, 2), message.word)
    node:add(F.reliable, tvb:range(at + 1, 2), message.reliable)
    node:add(F.urgent, tvb:range(at + 1, 2), message.urgent)
    if message.seq then node:add(F.seq, tvb:range(at + 3, 2), message.seq) end
end

-- So often nothing is sent that the other side reads.
local MANY_RESENDS = 5

local function show_sent(node, message, note)
    if not note then return "" end
    if note.record.acked_in then node:add(F.acked_in, note.record.acked_in):set_generated() end
    if not note.again then return "" end
    node:add(F.retransmission, note.first):set_generated()
    node:add(F.resend, note.again):set_generated()
    node:add(F.resend_time, note.since):set_generated()
    node:add_proto_expert_info(note.again < MANY_RESENDS and E.retransmission or E.stuck)
    return " [again]"
end

local function show_parts(node, message, note)
    if note.bad_part then node:add_proto_expert_info(E.bad_part) end
    local set = note.set
    if not set then return end
    if note.whole then
        local tvb = ByteArray.new(note.whole, true):tvb("Parts put together")
        local whole = node:add(F.reassembled, tvb:range())
        whole:add(F.reassembled_len, tvb:range(), #note.whole)
        whole:add(F.payload, tvb:range())
        for i = 0, set.total - 1 do whole:add(F.reassembled_frame, set.frames[i]):set_generated() end
        return show_game(whole, tvb, 0, note.whole, true)
    end
    if set.done then node:add(F.reassembled_in, set.done):set_generated() end
end

local function show_data(node, tvb, bytes, message, note)
    show_header(node, tvb, message)
    local index_at = message.at + (message.reliable and 5 or 3)
    if message.part then node:add(F.part, tvb:range(index_at, 1), message.part) end
    if message.total then node:add(F.total, tvb:range(index_at + 1, 1), message.total) end
    local from, stop = message.payload_at, message.at + message.len
    node:add(F.payload, tvb:range(from, stop - from))
    local again = show_sent(node, message, note)
    local said
    if not message.part then
        said = show_game(node, tvb, from, bytes:sub(from + 1, stop), true)
    else
        if message.part == 0 then show_game(node, tvb, from, bytes:sub(from + 1, stop), false) end
        said = note and show_parts(node, message, note)
        local of = message.total and "/" .. message.total or ""
        said = "part " .. message.part .. of .. (said and " " .. said or "")
    end
    return again .. " " .. said
end

local function show_control(node, tvb, bytes, message, note)
    show_header(node, tvb, message)
    local again, text = show_sent(node, message, note), {}
    for _, field in ipairs(message.layout) do
        local name, place = field[2], message.places[field[2]]
        if name ~= "tail" then
            local range = tvb:range(place[1], place[2])
            if name == "nonce" then
                node:add_le(F.nonce, range)
            elseif name == "name" or name == "password" then
                node:add(F[name], range, message[name])
                text[#text + 1] = '"' .. message[name] .. '"'
            elseif name == "address" then
                node:add(F.address, range)
            elseif name == "reason" then
                local code = u8(bytes, place[1])
                code = code >= 128 and code - 256 or code
                node:add(F.reason_code, range, code)
                node:add(F.reason, range, BOOT_REASONS[code] or "unknown")
                text[#text + 1] = BOOT_REASONS[code] or "reason " .. code
                node:add_proto_expert_info(E.boot)
            else
                node:add(F[name], range)
                text[#text + 1] = tostring(u8(bytes, place[1]))
            end
        end
    end
    if message.tail then node:add(F.tail, tvb:range(message.tail[1], message.tail[2])) end
    return again .. " " .. table.concat(text, " ")
end

-- Shows a message and gives its line.
local function show_message(tree, tvb, bytes, message, note)
    local node = tree:add(F.message, tvb:range(message.at, message.len))
    local kind = KINDS[message.kind]
    node:add(F.type, tvb:range(message.at, 1), message.kind)
    node:add(F.kind, tvb:range(message.at, 1), kind):set_generated()
    node:add(F.len, tvb:range(message.at, message.len), message.len)
    local line
    if message.kind == 0x01 then
        local part = message.part and "/" .. message.part or ""
        line = "ack " .. message.channel .. " " .. message.seq .. part .. show_ack(node, tvb, message, note)
    elseif message.kind == 0x02 then
        line = kind
    elseif message.kind == 0x32 then
        local rest = show_data(node, tvb, bytes, message, note)
        line = (message.seq and "data " .. message.seq or "data") .. rest
    else
        local form = ""
        if message.kind == 0x03 then form = message.layout == CONTROL.reply and " reply" or " request" end
        line = kind .. form .. show_control(node, tvb, bytes, message, note)
    end
    show_non_stock(node, oddities(message))
    node:set_text(line:sub(1, 1):upper() .. line:sub(2))
    return line
end

local MOST_LINES = 12

local function info(id, found, lines)
    local function name(peer) return peer == UNASSIGNED and "new" or tostring(peer or "?") end
    local more = #lines > MOST_LINES and string.format(" · +%d", #lines - MOST_LINES) or ""
    local shown_lines = table.concat(lines, " · ", 1, math.min(#lines, MOST_LINES))
    return name(id) .. "→" .. name(found.to) .. " " .. shown_lines .. more
end

local function show_gamespy(tvb, pinfo, tree, bytes)
    local text = latin1(bytes)
    local node = tree:add(bcnet, tvb:range())
    local item = node:add(F.gamespy, tvb:range(), text)
    local at = 1
    for key, value in bytes:gmatch("\\([^\\]*)\\([^\\]*)") do
        item:add(F.gamespy_key, tvb:range(at, #key), latin1(key))
        item:add(F.gamespy_value, tvb:range(math.min(at + #key + 1, #bytes), #value), latin1(value))
        at = at + #key + #value + 2
    end
    pinfo.cols.info = "GameSpy " .. text
end

local function show_malformed(node, plain, pinfo, problem)
    local at = math.min(problem.at, plain:len())
    local item = node:add(F.error, plain:range(at, plain:len() - at))
    item:add(F.error_at, plain:range(at, 0), problem.at)
    item:add(F.error_field, plain:range(at, 0), problem.field)
    item:add(F.error_reason, plain:range(at, 0), problem.reason)
    local text = string.format("%s: %s at byte %d", problem.reason, problem.field, problem.at)
    item:add_proto_expert_info(E.malformed, "Malformed datagram: " .. text)
    pinfo.cols.info = "malformed: " .. text
end

local function show_datagram(tvb, pinfo, tree, bytes, messages, problem)
    local node = tree:add(bcnet, tvb:range())
    local plain = ByteArray.new(bytes, true):tvb("Deciphered")
    if not messages then return show_malformed(node, plain, pinfo, problem) end
    local id = u8(bytes, 0)
    node:add(F.sender, plain:range(0, 1), id)
    node:add(F.count, plain:range(1, 1), #messages)
    node:add(F.direction, plain:range(0, 1), id == HOST and "S" or "C"):set_generated()
    local odd = {}
    if id ~= HOST and not is_client(id) then odd[#odd + 1] = "sender" end
    if #bytes > MAX_DATAGRAM then odd[#odd + 1] = "large_datagram" end
    show_non_stock(node, odd)
    if not pinfo.visited then notes[pinfo.number] = follow(bytes, messages, pinfo) end
    local found, lines = notes[pinfo.number] or {}, {}
    for i, message in ipairs(messages) do
        lines[i] = show_message(node, plain, bytes, message, found[i])
    end
    pinfo.cols.info = info(id, found, lines)
end

-- Entry points --------------------------------------------------------------------------------------------------------

function bcnet.dissector(tvb, pinfo, tree)
    if tvb:len() == 0 then return 0 end
    pinfo.cols.protocol = "BC"
    local bytes = tvb:raw()
    if u8(bytes, 0) == GAMESPY then
        show_gamespy(tvb, pinfo, tree, bytes)
    else
        bytes = decipher(bytes)
        show_datagram(tvb, pinfo, tree, bytes, read_datagram(bytes))
    end
    return tvb:len()
end

-- Other games speak GameSpy too; what asks and what answers for this one is known.
local GAMESPY_WORDS = { "\\gamename\\bcommander", "^\\status\\", "^\\basic\\", "^\\info\\", "^\\rules\\", "^\\players\\",
    "^\\packets\\", "^\\echo\\", "^\\secure\\", "^\\heartbeat\\" }

local function is_ours(bytes)
    if u8(bytes, 0) == GAMESPY then
        for _, word in ipairs(GAMESPY_WORDS) do
            if bytes:find(word) then return true end
        end
        return false
    end
    local sender = u8(bytes, 0)
    if sender ~= HOST and not is_client(sender) then return false end
    return read_datagram(decipher(bytes)) ~= nil
end

local function heuristic(tvb, pinfo, tree)
    if not bcnet.prefs.heuristic or tvb:len() < 3 or tvb:len() ~= tvb:reported_len() then return false end
    if not is_ours(tvb:raw()) then return false end
    bcnet.dissector(tvb, pinfo, tree)
    pinfo.conversation = bcnet
    return true
end

local by_port, taken = DissectorTable.get("udp.port"), nil

local function take_ports()
    if taken == bcnet.prefs.ports then return end
    if taken and taken ~= "" then by_port:remove(taken, bcnet) end
    taken = bcnet.prefs.ports
    if taken ~= "" then by_port:add(taken, bcnet) end
end

bcnet.prefs_changed = take_ports
take_ports()
bcnet:register_heuristic("udp", heuristic)
