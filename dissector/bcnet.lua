-- Wireshark dissector for the network protocol of Star Trek: Bridge Commander.
--
-- Decrypts datagrams, dissects every field of the transport, reassembles fragments, and names the known game
-- payloads. Marks retransmissions and repeated ACKs. Rules T-nn are those of PROTOCOL.md. The dissector reads a
-- datagram as `bcnet inspect --json` does: each JSON key has a field, and a test compares the two.
--
-- On other UDP ports, datagrams are recognised by content. Datagrams on the ports of the preference always count as
-- Bridge Commander, so malformed datagrams are shown there, too.

local bcnet = Proto("bcnet", "Star Trek: Bridge Commander")

local HOST, GAMESPY, UNASSIGNED = 0x01, 0x5C, 0xFF
local MAX_DATAGRAM, MAX_MESSAGE = 512, 412
local KINDS = {
    [0x00] = "identity", [0x01] = "ack", [0x02] = "keepalive", [0x03] = "connect", [0x04] = "boot",
    [0x05] = "disconnect", [0x32] = "data",
}
local BOOT_REASONS = { [0] = "default", "timed_out", "wrong_password", "full", "kicked", "banned" }

-- Generated from the table of the game's messages. A test checks it, and BCNET_UPDATE=1 writes it.
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
-- The fields of each message: name and kind. A message may end before a field with ?.
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
-- The names of numbers.
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
-- The names of bits. With apart = true, each bit is a separate field.
local FLAGS = {
    ["settings flags"] = { apart = true, names = { { 0x01, "collisions" }, { 0x02, "friendly_fire" }, { 0x04, "correction" } } },
    ["collision flags"] = { apart = true, names = { { 0x01, "collisions" } } },
    ["request flags"] = { apart = true, names = { { 0x01, "recursive" } } },
    ["unknown flags"] = { apart = true, names = { { 0x01, "unknown_flag" } } },
    ["torpedo flags"] = { apart = false, names = { { 0x04, "no target" } } },
    ["state flags"] = { apart = false, names = { { 0x01, "position" }, { 0x02, "delta" }, { 0x04, "forward" }, { 0x08, "up" }, { 0x10, "speed" }, { 0x20, "subsystems" }, { 0x40, "cloak" }, { 0x80, "power" } } },
}
-- The meaning of each subsystem byte of a species, and the number of weapon flags.
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
    sender = ProtoField.uint8("bcnet.sender", "Sender"),
    sender_name = ProtoField.string("bcnet.sender.name", "Sender name"),
    conversation = ProtoField.uint32("bcnet.conversation", "Conversation"),
    player = ProtoField.string("bcnet.player", "Player"),
    count = ProtoField.uint8("bcnet.count", "Messages"),
    direction = ProtoField.string("bcnet.direction", "Direction"),
    non_stock = ProtoField.string("bcnet.non_stock", "Not stock"),
    gamespy = ProtoField.string("bcnet.gamespy", "GameSpy text"),
    gamespy_key = ProtoField.string("bcnet.gamespy.key", "Key"),
    gamespy_value = ProtoField.string("bcnet.gamespy.value", "Value"),
    not_gamespy = ProtoField.bool("bcnet.gamespy.not_text", "Not GameSpy text, despite its first byte"),
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
    part = ProtoField.uint8("bcnet.part", "Fragment index"),
    total = ProtoField.uint8("bcnet.total", "Number of fragments"),
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
    ack_part = ProtoField.uint8("bcnet.ack.part", "Acknowledged fragment index"),
    ack_of = ProtoField.framenum("bcnet.ack.of", "Last send of the message in", base.NONE, frametype.ACK),
    ack_time = ProtoField.double("bcnet.ack.time", "Seconds since that send"),
    ack_stale = ProtoField.bool("bcnet.ack.stale", "Stale: the message is already acknowledged"),
    ack_age = ProtoField.double("bcnet.ack.age", "Seconds since the first ACK of the message"),
    ack_repeat = ProtoField.uint32("bcnet.ack.repeat", "Earlier ACKs of the message"),
    ack_opcode = ProtoField.uint8("bcnet.ack.opcode", "Opcode of the acknowledged message", base.HEX, OPCODES),
    acked_in = ProtoField.framenum("bcnet.acked_in", "Acknowledged in", base.NONE, frametype.ACK),
    retransmission = ProtoField.framenum("bcnet.retransmission", "Retransmission; first sent in", base.NONE,
        frametype.RETRANS_PREV),
    resend = ProtoField.uint32("bcnet.retransmission.count", "Earlier sends of the message"),
    resend_time = ProtoField.double("bcnet.retransmission.time", "Seconds since the last send"),
    reassembled = ProtoField.none("bcnet.reassembled", "Reassembled payload"),
    reassembled_len = ProtoField.uint32("bcnet.reassembled.len", "Size"),
    reassembled_parts = ProtoField.uint8("bcnet.reassembled.parts", "Number of fragments"),
    reassembled_frame = ProtoField.framenum("bcnet.reassembled.frame", "Fragment in"),
    reassembled_in = ProtoField.framenum("bcnet.reassembled.in", "Reassembled in"),
    game = ProtoField.none("bcnet.game", "Game payload"),
    opcode = ProtoField.uint8("bcnet.opcode", "Opcode", base.HEX, OPCODES),
    opcode_name = ProtoField.string("bcnet.opcode.name", "Opcode name"),
    truncated = ProtoField.string("bcnet.game.truncated", "Truncated in field"),
}

-- The values of game payloads, by type. A name has one type in all payloads. Names from the table are added below.
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
-- The types of the values that each kind of field shows. Other kinds consist of fields with separate names.
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
-- The name of a subsystem byte decides how it is shown.
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
        -- The meaning of a number, and the bits of a packed one, are separate fields.
        if type == "raw" then name = name .. "_raw" elseif type == "named" then name = name .. "_name" end
        local shown_as = type == "raw" and "number" or type == "named" and "text" or type
        local label = name:sub(1, 1):upper() .. name:sub(2):gsub("_", " ")
        G[name] = G[name] or TYPES[shown_as]("bcnet.game." .. name, label)
    end
end

local E = {
    malformed = ProtoExpert.new("bcnet.malformed", "Malformed datagram", expert.group.MALFORMED, expert.severity.ERROR),
    non_stock = ProtoExpert.new("bcnet.odd", "Not sent by the stock game", expert.group.PROTOCOL, expert.severity.NOTE),
    retransmission = ProtoExpert.new("bcnet.sent_again", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
    stuck = ProtoExpert.new("bcnet.stuck", "Retransmitted many times", expert.group.SEQUENCE, expert.severity.WARN),
    stale = ProtoExpert.new("bcnet.stale_ack", "Stale ACK: the message is already acknowledged", expert.group.SEQUENCE,
        expert.severity.WARN),
    unknown = ProtoExpert.new("bcnet.unknown_ack", "ACK of a message that was not captured", expert.group.SEQUENCE,
        expert.severity.NOTE),
    wrong_form = ProtoExpert.new("bcnet.wrong_ack", "Plain ACK of a fragmented message",
        expert.group.SEQUENCE, expert.severity.WARN),
    bad_part = ProtoExpert.new("bcnet.bad_part", "Fragment contradicts the others of its message",
        expert.group.SEQUENCE, expert.severity.WARN),
    truncated = ProtoExpert.new("bcnet.cut_payload", "Payload is truncated", expert.group.PROTOCOL,
        expert.severity.WARN),
    boot = ProtoExpert.new("bcnet.booted", "The host removes a peer", expert.group.SEQUENCE, expert.severity.CHAT),
}

do
    local all = {}
    for _, field in pairs(F) do all[#all + 1] = field end
    for _, field in pairs(G) do all[#all + 1] = field end
    bcnet.fields = all
end
bcnet.experts = E

bcnet.prefs.ports = Pref.range("UDP ports", "22101-22201",
    "Datagrams on these ports count as Bridge Commander, even if they are malformed", 65535)
bcnet.prefs.heuristic = Pref.bool("Recognise other ports by content", true,
    "Tests the content of every UDP datagram, on any port")
bcnet.prefs.statistics = Pref.string("Statistics of tshark", "",
    "Statistics that tshark prints at the end: opcodes or acks, optionally with a comma and a display filter")

-- Cipher (T-40 to T-45) -----------------------------------------------------------------------------------------------

local bxor, byte, char, floor = bit.bxor, string.byte, string.char, math.floor
local unpack = table.unpack or unpack

-- The XOR of two bytes a and b is XOR[256 * a + b]: a look-up takes a tenth of the time of a call.
local XOR = {}
for i = 0, 65535 do XOR[i] = bxor(floor(i / 256), i % 256) end

-- A byte takes five steps s = s * 0x4E35 + c modulo 2^16. With these powers, the second to the fifth step follow
-- directly from the first.
local POWER = { 0x4E35 }
for i = 2, 5 do POWER[i] = POWER[i - 1] * 0x4E35 % 65536 end

-- All ten key bytes are XORed with the same plain bytes (T-44). So the key stream of a byte depends only on the XOR
-- of the plain bytes before it: 256 cases. Each case has the sums of the five steps, the masks, and the start of the
-- next byte.
local ROUNDS = {}
do
    local key = { byte("AlbyRules!", 1, -1) }
    for mixed = 0, 255 do
        local w, x, masks, added, sum = 0, 0, 0, {}, 0
        for i = 0, 4 do
            w = bxor(bxor(key[2 * i + 1], mixed) * 256 + bxor(key[2 * i + 2], mixed), w)
            local before = x
            x = w * 0x015A % 65536
            local step = before + i * 0x4E35 + x
            if i > 0 then sum = (sum * 0x4E35 + step) % 65536 else added.first = step % 65536 end
            added[i] = sum
            w = (w * 0x4E35 + 1) % 65536
            masks = bxor(masks, w)
        end
        ROUNDS[mixed] = { added.first, added[1], added[2], added[3], added[4], masks, (sum * 0x4E35 + x) % 65536 }
    end
end

-- The bytes of the current datagram, and their number. Bytes behind them belong to earlier datagrams.
local B, size = {}, 0

local function load_bytes(raw)
    size = #raw
    for at = 1, size, 8 do
        B[at], B[at + 1], B[at + 2], B[at + 3], B[at + 4], B[at + 5], B[at + 6], B[at + 7] = byte(raw, at, at + 7)
    end
end

local function decipher(raw)
    load_bytes(raw)
    local P1, P2, P3, P4, P5 = POWER[1], POWER[2], POWER[3], POWER[4], POWER[5]
    local bytes, xor, rounds, mix, mixed, s, add = B, XOR, ROUNDS, bxor, 0, 0, 0
    for at = 2, size do
        local r = rounds[mixed]
        s = (s * P5 + add + r[1]) % 65536
        local mask = xor[mix(s, s * P1 + r[2], s * P2 + r[3], s * P3 + r[4], s * P4 + r[5], r[6]) % 65536]
        add = r[7]
        local plain = xor[mask * 256 + bytes[at]]
        bytes[at] = plain
        mixed = xor[mixed * 256 + plain]
    end
end

-- Bytes ---------------------------------------------------------------------------------------------------------------

-- Offsets count from 0, as in the rest of the project; `bytes` is a table such as B.
local function u16(bytes, at) return bytes[at + 1] + bytes[at + 2] * 256 end

local function u32(bytes, at)
    return bytes[at + 1] + bytes[at + 2] * 256 + bytes[at + 3] * 65536 + bytes[at + 4] * 16777216
end

local function slice(bytes, at, len) return char(unpack(bytes, at + 1, at + len)) end

local function utf8(code)
    if code < 0x80 then return char(code) end
    if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
    if code < 0x10000 then return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64) end
    return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
        0x80 + code % 64)
end

-- Wireshark's strings end at a zero byte, so control characters are shown as control pictures.
local function shown(code)
    if code < 0x20 then code = 0x2400 + code elseif code == 0x7F then code = 0x2421 end
    return utf8(code)
end

-- Returns text with one byte per character.
local function latin1(bytes)
    return (bytes:gsub("[%c\127-\255]", function(one) return shown(one:byte()) end))
end

-- Returns the text that begins at `from`, and the end of its terminator; nil if it is not valid (T-39).
local function utf16(from, to)
    if (to - from) % 2 ~= 0 then return nil end
    local out, at = {}, from
    while at < to do
        local unit = u16(B, at)
        at = at + 2
        if unit == 0 then return table.concat(out), at end
        if unit >= 0xD800 and unit < 0xDC00 and at < to then
            local low = u16(B, at)
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

-- The messages of the current datagram: `count` of them, with one column per property. Columns are reused for the
-- next datagram, which is cheaper than a table for each message. A property that a message does not have is false.
local M = { kind = {}, at = {}, len = {}, word = {}, seq = {}, part = {}, total = {}, payload = {}, layout = {},
    text = {}, tail = {} }
local count = 0

-- The error of the datagram: its place, field and reason. `broken_at` is the start of the malformed message, or nil.
local bad = { at = 0, field = "", reason = "" }
local broken_at

local function fail(at, field, reason)
    bad.at, bad.field, bad.reason = at, field, reason
    return nil
end

-- Reports that the datagram ends before the message. The first incomplete field is reported; else the last one.
local function cut(at, ...)
    local left, stop, name = size - at, 0, "message"
    for i = 1, select("#", ...), 2 do
        local len, field = select(i, ...)
        stop, name = stop + len, field
        if stop > left then break end
    end
    return fail(size, name, "truncated")
end

-- The following functions return the size of a message and store it in the columns, or fail.

local function read_ack(i, at)
    if at + 4 > size then return cut(at, 1, "type", 2, "sequence", 1, "flags") end
    local flags, len = B[at + 4], 4
    M.word[i], M.seq[i], M.part[i] = flags, u16(B, at + 1), false
    if flags % 2 == 1 then
        if at + 5 > size then return fail(size, "part", "truncated") end
        M.part[i], len = B[at + 5], 5
    end
    return len
end

local function read_data(i, at)
    if at + 3 > size then return cut(at, 1, "type", 2, "size") end
    local word = u16(B, at + 1)
    local len, reliable, split = word % 0x2000, word >= 0x8000, word % 0x4000 >= 0x2000
    local least = 3 + (reliable and 2 or 0) + (split and 1 or 0)
    if len < least then return fail(at + 1, "size", "bad_size") end
    local index_at = at + (reliable and 5 or 3)
    if at + len > size then
        local first = split and index_at < size and B[index_at + 1] == 0
        return cut(at, 1, "type", 2, "size", reliable and 2 or 0, "sequence", split and 1 or 0, "part",
            first and 1 or 0, "total", 0, "payload")
    end
    M.word[i], M.seq[i], M.part[i], M.total[i] = word, reliable and u16(B, at + 3), false, false
    local payload = index_at
    if split then
        local part = B[index_at + 1]
        payload = index_at + 1
        if part == 0 then
            if len < least + 1 then return fail(at + 1, "size", "bad_size") end
            local total = B[index_at + 2]
            if total == 0 then return fail(index_at + 1, "total", "bad_size") end
            M.total[i], payload = total, index_at + 2
        end
        M.part[i] = part
    end
    M.payload[i] = payload
    return len
end

-- Sizes and names of the fields of control messages.
local CONTROL = {
    [0x00] = { 1, "peer", 4, "address", 2, "name" },
    [0x04] = { 1, "reason", 1, "target", 0, "tail" },
    [0x05] = { 1, "peer", 4, "address", 0, "tail" },
}
local REQUEST = { 4, "address", 4, "nonce", 2, "password" }
local REPLY = { 1, "assigned", 0, "tail" }

local function is_client(id) return id == UNASSIGNED or (id >= 0x02 and id <= 0x7E and id ~= GAMESPY) end

-- Returns the layout of a control message (T-35).
local function control_layout(kind, len)
    return CONTROL[kind] or (not is_client(B[1]) and len < 15 and REPLY or REQUEST)
end

local function read_control(i, at, kind)
    if at + 3 > size then return cut(at, 1, "type", 2, "size") end
    local word = u16(B, at + 1)
    local len = word % 0x4000
    local layout, least = control_layout(kind, len), 5
    for field = 1, #layout, 2 do least = least + layout[field] end
    if len < least then return fail(at + 1, "size", "bad_size") end
    if at + len > size then return cut(at, 1, "type", 2, "size", 2, "sequence", unpack(layout)) end
    M.word[i], M.seq[i], M.part[i], M.layout[i], M.text[i] = word, u16(B, at + 3), false, layout, false
    local last, tail = layout[#layout], at + least
    if last == "name" or last == "password" then
        M.text[i], tail = utf16(at + least - 2, at + len)
        if not M.text[i] then return fail(at + least - 2, last, "bad_text") end
    end
    M.tail[i] = tail
    return len
end

local function read_message(i, at)
    if at >= size then return fail(at, "type", "truncated") end
    local kind = B[at + 1]
    M.kind[i], M.at[i] = kind, at
    if kind == 0x01 then return read_ack(i, at) end
    if kind == 0x32 then return read_data(i, at) end
    if kind == 0x02 then return 1 end
    if KINDS[kind] then return read_control(i, at, kind) end
    return fail(at, "type", "unknown_type")
end

-- Reads all messages of a decrypted datagram. Returns true if it is well-formed. Otherwise the messages before the
-- error are read.
local function read_datagram()
    count, broken_at = 0, nil
    if size < 1 then return fail(0, "sender", "truncated") end
    if size < 2 then return fail(1, "count", "truncated") end
    if B[2] == 0 then return fail(1, "count", "count_zero") end
    local at = 2
    for i = 1, B[2] do
        local len = read_message(i, at)
        if not len then
            broken_at = at < size and at or nil
            return nil
        end
        M.len[i], count = len, i
        at = at + len
    end
    if at < size then return fail(at, "message", "trailing") end
    return true
end

local function is_reliable(i) return M.kind[i] ~= 0x01 and M.kind[i] ~= 0x02 and M.word[i] >= 0x8000 end

-- Adds the name of something that no stock sender does to a list, which may be nil.
local function add_non_stock(list, name)
    list = list or {}
    list[#list + 1] = name
    return list
end

local function non_stock_names(i)
    local kind, word, list = M.kind[i], M.word[i], nil
    if M.len[i] > MAX_MESSAGE then list = add_non_stock(list, "large_message") end
    if kind == 0x01 then
        if word >= 4 then list = add_non_stock(list, "ack_spare_bits") end
        if word % 4 == 3 then list = add_non_stock(list, "ack_control_part") end
    elseif kind == 0x32 then
        if word % 0x8000 >= 0x4000 then list = add_non_stock(list, "data_urgent") end
        if M.part[i] and word < 0x8000 then list = add_non_stock(list, "unreliable_part") end
    elseif kind ~= 0x02 then
        if word < 0x8000 then list = add_non_stock(list, "control_unreliable") end
        if word % 0x8000 < 0x4000 then list = add_non_stock(list, "control_not_urgent") end
        if M.tail[i] < M.at[i] + M.len[i] then list = add_non_stock(list, "tail") end
    end
    return list
end

-- Fields that Wireshark wants -----------------------------------------------------------------------------------------

-- Wireshark wants all fields of a datagram, or those that a filter or a colour rule names, or only the columns. Other
-- fields are not created, because creating an item takes as long as reading a message.
local top, wants_all, wants_some
-- The bytes that items point to: those of the decrypted datagram, or of a reassembled payload.
local shown_bytes
-- The cached answers for this datagram: a field maps to the datagram's number if it is wanted, to its negative if
-- not.
local asked, datagrams = {}, 0

local function wants(field)
    if wants_all then return true end
    local known = asked[field]
    if known == datagrams then return true end
    if known == -datagrams then return false end
    local wanted = top:referenced(field)
    asked[field] = wanted and datagrams or -datagrams
    return wanted
end

-- The last two ranges. Many fields share one, and each costs more to free than to create.
local range_a, range_b = { at = -1 }, { at = -1 }

local function show_bytes(bytes)
    shown_bytes, range_a.at, range_b.at = bytes, -1, -1
end

local function begin_showing(tvb, tree)
    datagrams = datagrams + 1
    show_bytes(nil)
    top = tree:add(bcnet, tvb:range())
    wants_all = top.visible
    wants_some = wants_all or not tostring(top):find("has item=false", 1, true)
end

local function range(at, len)
    if range_a.at == at and range_a.len == len then return range_a.range end
    range_a, range_b = range_b, range_a
    if range_a.at == at and range_a.len == len then return range_a.range end
    if not shown_bytes then show_bytes(ByteArray.new(slice(B, 0, size), true):tvb("Deciphered")) end
    local new = shown_bytes:range(at, len)
    range_a.at, range_a.len, range_a.range = at, len, new
    return new
end

-- Adds a field if it is wanted. Without a value, it shows the bytes.
local function put(node, field, at, len, value)
    if not wants(field) then return nil end
    if value == nil then return node:add(field, range(at, len)) end
    return node:add(field, range(at, len), value)
end

-- Adds a generated field: no byte of the datagram holds its value.
local function put_generated(node, field, value)
    if wants(field) then node:add(field, value):set_generated() end
end

-- Game payloads -------------------------------------------------------------------------------------------------------

-- A reader of payload fields, which also shows them. `ended` is the name of the field in which the payload ended.
-- After that every read function returns 0, so layouts need no checks. `first_text` is the first text of the payload.
local R = { bytes = B, at = 0, stop = 0, node = nil, ended = nil, first_text = nil, correction = false }

local function left() return R.ended and 0 or R.stop - R.at end

local function take(name, len)
    if R.ended then return nil end
    local at = R.at
    if at + len > R.stop then
        R.ended = name
        return nil
    end
    R.at = at + len
    return at
end

local function add(name, at, len, value)
    if wants_some then put(R.node, G[name], at, len, value) end
end

-- The fields for the bits of a packed number, and for the meaning of a number.
local RAW, NAMED = {}, {}
for name, field in pairs(G) do
    local of, is = name:match("^(.*)_(%l+)$")
    if is == "raw" then RAW[of] = field elseif is == "name" then NAMED[of] = field end
end

local function add_raw(name, at, len, value)
    if wants_some then put(R.node, RAW[name], at, len, value) end
end

local function add_name(name, at, len, value)
    if wants_some then put(R.node, NAMED[name], at, len, value) end
end

local function read_u8(name)
    local at = take(name, 1)
    if not at then return 0 end
    local value = R.bytes[at + 1]
    add(name, at, 1, value)
    return value
end

local function read_u16(name)
    local at = take(name, 2)
    if not at then return 0 end
    local value = u16(R.bytes, at)
    add(name, at, 2, value)
    return value
end

local function read_u32(name)
    local at = take(name, 4)
    if not at then return 0 end
    local value = u32(R.bytes, at)
    add(name, at, 4, value)
    return value
end

local function read_i32(name)
    local at = take(name, 4)
    if not at then return 0 end
    local value = u32(R.bytes, at)
    if value >= 0x80000000 then value = value - 0x100000000 end
    add(name, at, 4, value)
    return value
end

local function i8(bytes, at)
    local one = bytes[at + 1]
    return one >= 128 and one - 256 or one
end

-- A packed number of sixteen bits: a sign, a decade, and steps in it. The game's 0.001 is a single-precision float.
local MILLI = 0.0010000000474974513

local function cf16(bits)
    local decade = floor(bits / 4096) % 8
    local low = decade == 0 and 0 or MILLI * 10 ^ (decade - 1)
    local number = low + (MILLI * 10 ^ decade - low) * (bits % 4096) / 4095
    return bits >= 0x8000 and -number or number
end

local function read_floats(name, how_many)
    for _ = 1, how_many do
        local at = take(name, 4)
        if not at then return end
        if wants_some and wants(G[name]) then R.node:add_le(G[name], range(at, 4)) end
    end
end

-- Adds the direction that three bytes at the start of the field give.
local function add_vector(name, at, len, scale)
    if not wants_some then return end
    for i = 0, 2 do add(name, at, len, i8(R.bytes, at + i) / 127 * scale) end
end

local function read_text(name, prefix)
    local at = take(name, prefix)
    if not at then return end
    local len = prefix == 1 and R.bytes[at + 1] or prefix == 2 and u16(R.bytes, at) or u32(R.bytes, at)
    local from = take(name, len)
    if not from then return end
    local text = latin1(slice(R.bytes, from, len))
    add(name, at, prefix + len, text)
    R.first_text = R.first_text or text
end

local function read_bytes(name, len)
    local at = take(name, len)
    if at then add(name, at, len) end
end

local function read_rest(name)
    if left() > 0 then read_bytes(name, left()) end
end

-- The read function of each kind of field.
local READ = {
    u8 = read_u8, u16 = read_u16, i32 = read_i32, u32 = read_u32, ["object id"] = read_u32,
    f32 = function(name) read_floats(name, 1) end,
    ["3 × f32"] = function(name) read_floats(name, 3) end,
    ["4 × f32"] = function(name) read_floats(name, 4) end,
    ["1 byte"] = function(name) read_bytes(name, 1) end,
    ["7 bytes"] = function(name) read_bytes(name, 7) end,
    ["8 bytes"] = function(name) read_bytes(name, 8) end,
    rest = read_rest,
    text8 = function(name) read_text(name, 1) end,
    text16 = function(name) read_text(name, 2) end,
    text32 = function(name) read_text(name, 4) end,
    limit = read_u8,
    cf16 = function(name)
        local at = take(name, 2)
        if not at then return end
        local bits = u16(R.bytes, at)
        add(name, at, 2, cf16(bits))
        add_raw(name, at, 2, bits)
    end,
    ["unit vector"] = function(name)
        local at = take(name, 3)
        if at then add_vector(name, at, 3, 1) end
    end,
    vector = function(name)
        local at = take(name, 5)
        if not at then return end
        local length = u16(R.bytes, at + 3)
        add_vector(name, at, 5, cf16(length))
        add_raw(name, at, 5, length)
    end,
    ["scaled vector"] = function(name)
        local at = take(name, 4)
        if not at then return end
        local share = R.bytes[at + 4]
        add_vector(name, at, 4, share / 255)
        add_raw(name, at, 4, share)
    end,
}

for kind, codes in pairs(CODES) do
    local read, names = READ[codes.number], codes.names
    READ[kind] = function(name)
        local at = R.at
        local code = read(name)
        if not R.ended and names[code] then add_name(name, at, R.at - at, names[code]) end
        return code
    end
end

for kind, flags in pairs(FLAGS) do
    READ[kind] = function(name)
        local flag_byte = read_u8(name)
        if R.ended then return 0 end
        for _, flag in ipairs(flags.names) do
            local is_set = flag_byte % (2 * flag[1]) >= flag[1]
            if flags.apart then
                add(flag[2], R.at - 1, 1, is_set)
                if flag[2] == "correction" then R.correction = is_set end
            elseif is_set then
                add_name(name, R.at - 1, 1, flag[2])
            end
        end
        return flag_byte
    end
end

-- Present only if the flags before it say so.
function READ.correction(name)
    if R.correction then read_rest(name) end
end

-- The subsystem bytes of each species: the number of weapon flags, and pairs of names and types.
local KNOWN_SUBSYSTEMS = {}
for species, known in pairs(SUBSYSTEMS) do
    local names, types = {}, {}
    for name, times in known.bytes:gmatch("([%l_]+)%*?(%d*)") do
        for _ = 1, tonumber(times) or 1 do
            names[#names + 1], types[#types + 1] = name, subsystem_type(name)
        end
    end
    KNOWN_SUBSYSTEMS[species] = { weapons = known.weapons, names = names, types = types }
end

-- Shows the bytes from `from` to the end, if their number is that of the species.
local function show_subsystems(known, from)
    if not wants_some or not known or R.stop - from ~= #known.names then return end
    for i, name in ipairs(known.names) do
        if name == "weapon_bits" and floor(R.bytes[from + i] / 32) ~= known.weapons then return end
    end
    for i, name in ipairs(known.names) do
        local at, kind = from + i - 1, known.types[i]
        local value = R.bytes[at + 1]
        if kind == "power" then value = i8(R.bytes, at) / 100 elseif kind == "float" then value = value / 255 end
        add(name, at, 1, value)
    end
end

function READ.object()
    local class = READ["object class"]("class")
    read_u32("object")
    if R.ended then return end
    if class ~= 0x8008 then return read_rest("body") end
    local species = READ.species("species")
    read_floats("position", 3)
    read_floats("rotation", 4)
    read_bytes("unknown", 7)
    read_text("name", 1)
    read_text("set", 1)
    local at = R.at
    read_rest("subsystems")
    if not R.ended then show_subsystems(KNOWN_SUBSYSTEMS[species], at) end
end

local EVENT_EXTRA = {
    [0x0104] = function() read_u8("value") end,
    [0x0105] = function(event)
        if event == 0x008000E0 then READ["phaser level"]("value") else read_u8("value") end
    end,
    [0x010C] = function() read_u32("object") end,
    [0x0866] = function() read_u8("peer") end,
    [0x8124] = function()
        for _ = 1, read_u8("contacts") do READ["scaled vector"]("contact") end
        read_floats("force", 1)
    end,
    [0x8128] = function() read_bytes("unknown", 8) end,
    [0x8129] = function() read_i32("killer") read_floats("lifetime", 1) end,
    [0x812A] = function() read_text("name", 1) read_floats("warp", 4) end,
}

function READ.event()
    local class = READ["event class"]("class")
    local event = READ["event number"]("event")
    read_u32("source")
    read_u32("related")
    local extra = EVENT_EXTRA[class]
    if extra then extra(event) end
end

-- One byte has the flag bits of a message. It is at the place of the first flag.
READ["state update"] = function()
    read_u32("object")
    read_floats("time", 1)
    local flags = READ["state flags"]("flags")
    local function has(mask) return not R.ended and flags % (2 * mask) >= mask end
    local bits, bits_at
    if has(0x01) then
        read_floats("position", 3)
        bits_at, bits = R.at, read_u8("bits")
        if not R.ended then
            local has_hash = bits % 2 == 1
            add("has_hash", bits_at, 1, has_hash)
            if has_hash then read_u16("hash") end
        end
    end
    if has(0x02) then READ.vector("delta") end
    if has(0x04) then READ["unit vector"]("forward") end
    if has(0x08) then READ["unit vector"]("up") end
    if has(0x10) then READ.cf16("speed") end
    if has(0x40) then
        local mask = 0x02
        if not bits then
            bits_at, bits, mask = R.at, read_u8("bits"), 0x01
        end
        if not R.ended then add("cloaked", bits_at, 1, bits % (2 * mask) >= mask) end
    end
    if has(0x20) then
        read_u8("first_subsystem")
        read_rest("subsystems")
    end
    if has(0x80) then
        while left() > 0 do
            read_u8("powered")
            local at = take("power", 1)
            if at then add("power", at, 1, R.bytes[at + 1] * 1.25 / 255) end
        end
    end
end

READ["checksum response"] = function()
    if read_u8("round") == 0 then read_u32("version_hash") end
    read_u32("directory_hash")
    local to_come = 1
    while to_come > 0 and not R.ended do
        for _ = 1, read_u16("files") do
            read_u32("file_name")
            read_u32("file_hash")
            if R.ended then break end
        end
        local directories = read_u8("directories")
        for _ = 1, directories do read_u32("directory_name") end
        to_come = to_come - 1 + directories
    end
end

READ["time limit"] = function(name)
    if read_u8(name) ~= 0xFF then read_i32("end_time") end
end

function READ.killer(name)
    if read_i32(name) ~= 0 then
        read_i32("kills")
        read_i32("score")
    end
end

READ["player scores"] = function(name)
    for _ = 1, read_u8(name) do
        read_i32("player")
        read_i32("player_score")
    end
end

function READ.TorpedoTarget()
    read_u32("target")
    READ["scaled vector"]("offset")
end

-- The readers of each message.
local LAYOUTS = {}
for opcode, fields in pairs(FIELDS) do
    local layout = {}
    for i, field in ipairs(fields) do
        local kind, optional = field[2]:gsub("%?$", "")
        layout[i] = { name = field[1], read = READ[kind], optional = optional > 0 }
    end
    LAYOUTS[opcode] = layout
end
local NO_LAYOUT = {}

-- Reads the payload from `from` to `stop` in `bytes`, and shows its fields below `node`.
local function read_payload(node, bytes, from, stop)
    R.node, R.bytes, R.at, R.stop, R.ended, R.first_text, R.correction = node, bytes, from + 1, stop, nil, nil, false
    for _, field in ipairs(LAYOUTS[bytes[from + 1]] or NO_LAYOUT) do
        if not field.optional or left() > 0 then field.read(field.name) end
    end
    if not R.ended then read_rest("rest") end
end

local function opcode_name(opcode) return OPCODES[opcode] or string.format("opcode 0x%02X", opcode) end

-- Conversations: sent, acknowledged and reassembled messages ----------------------------------------------------------

-- Frames come in order once. Their analysis is stored, because Wireshark dissects them again later. Captures have
-- millions of messages, so the analysis is stored as numbers in columns, without a table or a text for each message.

-- For each reliable message, by record number: the frame of its first send, with its opcode or 256; the frame of its
-- last send; the number of sends; a hash of its bytes; twice the number of its ACKs, plus 1 while it waits for an
-- ACK; the frame of its first ACK; and for a fragment, the frame that completed its message.
local SENT = {}
-- For each frame: its capture time, its conversation, and the start of its notes. Each ACK and each reliable message
-- has two notes. The first is 4 times the record that it is about, plus its classification. The second is the frame
-- of the last send before, with the number of earlier sends or ACKs.
local FRAMES, NOTES, notes = {}, {}, 0
local PLAIN, STALE, WRONG_FORM, UNKNOWN, BAD_PART = 0, 1, 2, 3, 1
local TIMES, MAX_PLACE = 0x100000, 0x40000000
-- Reassembled payloads, by frame and message.
local wholes
-- Addresses, ends (an address and a port), directions between two ends, conversations, and incomplete fragment sets.
local addresses, ends, directions, conversations, joiner

function bcnet.init()
    SENT = { first = {}, last = {}, times = {}, hash = {}, acks = {}, acked = {}, whole = {}, count = 0 }
    FRAMES, NOTES, notes, wholes = { time = {}, place = {} }, {}, 0, {}
    addresses, ends, directions, conversations = { count = 0 }, { count = 0 }, { count = 0 }, {}
    -- The incomplete fragment sets, and the keys of completed ones in the order of completion.
    joiner = { open = {}, waiting = 0, done = {}, order = {}, last = 0 }
end

-- Creates the conversation of a player with a host. It ends when the player connects again (T-53).
local function new_conversation(frame)
    local conversation = { number = #conversations + 1, frame = frame, client = nil, player = nil, host = nil }
    conversations[conversation.number] = conversation
    return conversation
end

local function end_of(address, port)
    local text = tostring(address)
    local number = addresses[text]
    if not number then
        number = addresses.count + 1
        addresses[text], addresses.count = number, number
    end
    local key = number * 65536 + port
    local known = ends[key]
    if not known then
        -- The players of a host by their ids, and the host's name.
        known = { number = ends.count + 1, players = {}, name = nil }
        ends[key], ends.count = known, known.number
    end
    return known
end

-- Returns the state of the direction from one end to the other.
local function direction(from, to, frame)
    local key = from.number * 0x1000000 + to.number
    local known = directions[key]
    if not known then
        directions.count = directions.count + 2
        -- Records of sent messages by sequence number: game messages, control messages, fragments.
        known = { number = directions.count, game = {}, control = {}, parts = {}, nonce = nil }
        local back = { number = directions.count - 1, game = {}, control = {}, parts = {}, nonce = nil, back = known }
        known.back = back
        directions[key], directions[to.number * 0x1000000 + from.number] = known, back
        known.conversation = new_conversation(frame)
        back.conversation = known.conversation
    end
    return known
end

-- No message is retransmitted for longer (T-64). After that, the same number belongs to another message.
local LONGEST_LIFE = 360

local function hash(from, stop)
    local sum = 0
    for at = from + 1, stop do sum = (sum * 257 + B[at]) % 17592186044399 end
    return sum
end

local function note(about, what, frame, times)
    NOTES[notes + 1], NOTES[notes + 2] = about * 4 + what, frame * TIMES + (times < TIMES and times or TIMES - 1)
    notes = notes + 2
end

-- Notes a send or a retransmission of a reliable message. Returns its record number.
local function follow_sent(way, i, frame)
    local at, seq, part = M.at[i], M.seq[i], M.part[i]
    local is_data = M.kind[i] == 0x32
    local by = is_data and (part and way.parts or way.game) or way.control
    local key = part and seq * 256 + part or seq
    local sum, record = hash(at, at + M.len[i]), by[key]
    local now = FRAMES.time[frame]
    if record and SENT.hash[record] == sum and now - FRAMES.time[floor(SENT.first[record] / 512)] < LONGEST_LIFE then
        local times, acks = SENT.times[record], SENT.acks[record]
        note(record, PLAIN, SENT.last[record], times)
        SENT.times[record], SENT.last[record], SENT.acks[record] = times + 1, frame, acks - acks % 2 + 1
        return record
    end
    record = SENT.count + 1
    local opcode = 256
    if is_data and (part or 0) == 0 and M.payload[i] < at + M.len[i] then opcode = B[M.payload[i] + 1] end
    SENT.count, SENT.first[record], SENT.last[record], SENT.times[record] = record, frame * 512 + opcode, frame, 1
    SENT.hash[record], SENT.acks[record], SENT.acked[record] = sum, 1, 0
    by[key] = record
    -- A whole message replaces fragments with its number, and the reverse.
    if part then
        way.game[seq] = nil
    elseif is_data then
        way.parts[seq * 256] = nil
    end
    note(record, PLAIN, frame, 0)
    return record
end

-- Notes an ACK. If the message was not sent again since its last ACK, the ACK is stale.
local function follow_ack(way, i, frame)
    local seq, part = M.seq[i], M.part[i]
    local is_control = M.word[i] % 4 >= 2
    local by = part and way.parts or is_control and way.control or way.game
    if part and is_control then by = NO_LAYOUT end
    local record = by[part and seq * 256 + part or seq]
    if not record then
        local split = not part and not is_control and way.parts[seq * 256]
        if split then return note(split, WRONG_FORM, SENT.last[split], 0) end
        return note(0, UNKNOWN, 0, 0)
    end
    local acks = SENT.acks[record]
    local waits = acks % 2
    note(record, waits == 1 and PLAIN or STALE, SENT.last[record], (acks - waits) / 2)
    if acks == 1 then SENT.acked[record] = frame end
    SENT.acks[record] = acks - waits + 2
end

-- Limits of incomplete fragment sets, and of remembered complete ones. Repeats of remembered ones are ignored.
local MAX_OPEN, MAX_DONE = 256, 256

local function open_set(key)
    if joiner.waiting >= MAX_OPEN then joiner.open, joiner.waiting = {}, 0 end
    local set = { parts = {}, frames = {}, records = {}, have = 0, highest = 0, total = nil }
    joiner.open[key], joiner.waiting = set, joiner.waiting + 1
    return set
end

local function close_set(key)
    joiner.open[key], joiner.waiting = nil, joiner.waiting - 1
    joiner.last = joiner.last % MAX_DONE + 1
    local oldest = joiner.order[joiner.last]
    if oldest then joiner.done[oldest] = nil end
    joiner.order[joiner.last], joiner.done[key] = key, joiner.last
end

-- Adds a fragment (T-20, T-68). Returns whether it fits the others. Stores the payload if it is the last missing one.
local function follow_part(way, i, frame, record)
    local key = way.number * 65536 + M.seq[i]
    if joiner.done[key] then return true end
    local set = joiner.open[key] or open_set(key)
    local index, total = M.part[i], M.total[i] or set.total
    local highest = math.max(index, set.highest)
    if (set.total and set.total ~= total) or (total and highest >= total) then return false end
    set.total, set.highest = total, highest
    if not set.parts[index] then set.have = set.have + 1 end
    set.parts[index] = slice(B, M.payload[i], M.at[i] + M.len[i] - M.payload[i])
    set.frames[index], set.records[index] = frame, record
    if set.have ~= total then return true end
    for part = 0, total - 1 do SENT.whole[set.records[part]] = frame end
    wholes[frame] = wholes[frame] or {}
    wholes[frame][i] = { payload = table.concat(set.parts, "", 0, total - 1), frames = set.frames, total = total }
    close_set(key)
    return true
end

-- Forgets the fragments of a conversation: sequence numbers start again.
local function forget_parts(way)
    local function is_of(key) return floor(key / 65536) == way.number or floor(key / 65536) == way.back.number end
    for key in pairs(joiner.open) do
        if is_of(key) then joiner.open[key], joiner.waiting = nil, joiner.waiting - 1 end
    end
    for key, place in pairs(joiner.done) do
        if is_of(key) then joiner.done[key], joiner.order[place] = nil, false end
    end
end

-- Notes the player and the host of a conversation.
local function note_participants(way, host, sender)
    local conversation = way.conversation
    conversation.host = host
    if sender == HOST or conversation.client == sender then return end
    if sender ~= UNASSIGNED then host.players[sender] = conversation elseif conversation.client then return end
    conversation.client = sender
end

-- Notes a connect request. Another nonce starts a new conversation (T-53).
local function follow_request(way, i, frame)
    forget_parts(way)
    local nonce = u32(B, M.at[i] + 9)
    if way.nonce == nonce then return end
    for _, each in ipairs({ way, way.back }) do each.game, each.control, each.parts = {}, {}, {} end
    way.nonce = nonce
    if way.conversation.frame ~= frame then
        way.conversation = new_conversation(frame)
        way.back.conversation = way.conversation
    end
end

-- Notes the names that a host announces for its players, and a player for itself.
local function follow_identity(host, i)
    local peer, name = B[M.at[i] + 6], M.text[i]
    if peer == HOST then host.name = name end
    local conversation = host.players[peer]
    if conversation then conversation.player = name end
end

-- Adds the messages of a frame to the state of their conversation.
local function follow(pinfo, frame)
    local from, to = end_of(pinfo.src, pinfo.src_port), end_of(pinfo.dst, pinfo.dst_port)
    local way, sender, place = direction(from, to, frame), B[1], notes
    local host = sender == HOST and from or to
    FRAMES.time[frame] = pinfo.rel_ts
    note_participants(way, host, sender)
    for i = 1, count do
        local kind = M.kind[i]
        if kind == 0x01 then
            follow_ack(way.back, i, frame)
        elseif kind ~= 0x02 then
            if kind == 0x03 and M.layout[i] == REQUEST then
                follow_request(way, i, frame)
                note_participants(way, host, sender)
            elseif kind == 0x00 then
                follow_identity(host, i)
            end
            if M.word[i] >= 0x8000 then
                local record = follow_sent(way, i, frame)
                if M.part[i] and not follow_part(way, i, frame, record) then
                    NOTES[notes - 1] = record * 4 + BAD_PART
                end
            end
        end
    end
    FRAMES.place[frame] = way.conversation.number * MAX_PLACE + place
end

-- Showing -------------------------------------------------------------------------------------------------------------

-- Shows the payload from `from` to `stop` in `bytes`, and returns a summary. `whole` is false for a first fragment.
local function show_game(parent, bytes, from, stop, whole)
    local node = wants_some and put(parent, F.game, from, stop - from) or parent
    if from == stop then
        if wants_all then node:set_text("Game payload: empty") end
        return "empty"
    end
    local opcode = bytes[from + 1]
    local name = opcode_name(opcode)
    if wants_some then
        if wants_all then node:set_text("Game payload: " .. name) end
        put(node, F.opcode, from, 1, opcode)
        if OPCODES[opcode] and wants(F.opcode_name) then
            put(node, F.opcode_name, from, 1, name):set_generated()
        end
    end
    read_payload(node, bytes, from, stop)
    if R.ended then
        if wants_some then put(node, F.truncated, R.at, stop - R.at, R.ended) end
        if whole then node:add_proto_expert_info(E.truncated) end
    end
    return R.first_text and name .. ' "' .. R.first_text .. '"' or name
end

local function show_non_stock(node, names)
    if not names then return end
    for _, name in ipairs(names) do put_generated(node, F.non_stock, name) end
    node:add_proto_expert_info(E.non_stock)
end

-- The following functions show a message below `node`, and return the text for its line after the kind. `at_note` is
-- the index of its notes, or nil.

local function channel_of(i) return M.word[i] % 4 >= 2 and "control" or "game" end

local function show_ack_note(node, frame, at_note)
    local about, before = NOTES[at_note], NOTES[at_note + 1]
    local what = about % 4
    if what == UNKNOWN then
        node:add_proto_expert_info(E.unknown)
        return " [of?]"
    end
    local record, of, times = (about - what) / 4, floor(before / TIMES), floor(before % TIMES)
    if wants_some then
        put_generated(node, F.ack_of, of)
        local opcode = SENT.first[record] % 512
        if opcode < 256 then put_generated(node, F.ack_opcode, floor(opcode)) end
    end
    if what == WRONG_FORM then
        node:add_proto_expert_info(E.wrong_form)
        return " [plain]"
    end
    if wants_some then
        local time = FRAMES.time[frame]
        put_generated(node, F.ack_time, time - FRAMES.time[of])
        if times > 0 then
            put_generated(node, F.ack_age, time - FRAMES.time[SENT.acked[record]])
            put_generated(node, F.ack_repeat, times)
        end
    end
    if what ~= STALE then return "" end
    if wants_some then put_generated(node, F.ack_stale, true) end
    node:add_proto_expert_info(E.stale)
    return " [stale]"
end

local function show_ack(node, i, frame, at_note)
    if wants_some then
        local at = M.at[i]
        put(node, F.ack_seq, at + 1, 2, M.seq[i])
        put(node, F.ack_flags, at + 3, 1, M.word[i])
        put(node, F.ack_channel, at + 3, 1, channel_of(i))
        if M.part[i] then put(node, F.ack_part, at + 4, 1, M.part[i]) end
    end
    local marks = at_note and show_ack_note(node, frame, at_note) or ""
    return " " .. channel_of(i) .. " " .. M.seq[i] .. (M.part[i] and "/" .. M.part[i] or "") .. marks
end

local function show_word(node, at, word)
    put(node, F.word, at + 1, 2, word)
    put(node, F.reliable, at + 1, 2, word >= 0x8000)
    put(node, F.urgent, at + 1, 2, word % 0x8000 >= 0x4000)
end

-- A message that was sent this often before is stuck.
local MANY_RESENDS = 5

local function show_sent_note(node, frame, at_note)
    if not at_note then return "" end
    local about, before = NOTES[at_note], NOTES[at_note + 1]
    local record, times = floor(about / 4), floor(before % TIMES)
    if wants_some and SENT.acked[record] > 0 then put_generated(node, F.acked_in, SENT.acked[record]) end
    if times == 0 then return "" end
    if wants_some then
        put_generated(node, F.retransmission, floor(SENT.first[record] / 512))
        put_generated(node, F.resend, times)
        put_generated(node, F.resend_time, FRAMES.time[frame] - FRAMES.time[floor(before / TIMES)])
    end
    node:add_proto_expert_info(times < MANY_RESENDS and E.retransmission or E.stuck)
    return " [resent]"
end

-- The bytes of a reassembled payload.
local W = {}

local function show_whole(node, whole)
    local payload, len = whole.payload, #whole.payload
    for at = 1, len, 8 do
        W[at], W[at + 1], W[at + 2], W[at + 3], W[at + 4], W[at + 5], W[at + 6], W[at + 7] = byte(payload, at, at + 7)
    end
    if not wants_some then return show_game(node, W, 0, len, true) end
    local datagram = shown_bytes
    show_bytes(ByteArray.new(payload, true):tvb("Reassembled payload"))
    local below = put(node, F.reassembled, 0, len) or node
    put(below, F.reassembled_len, 0, len, len)
    put(below, F.reassembled_parts, 0, len, whole.total)
    put(below, F.payload, 0, len)
    for part = 0, whole.total - 1 do put_generated(below, F.reassembled_frame, whole.frames[part]) end
    local summary = show_game(below, W, 0, len, true)
    show_bytes(datagram)
    return summary
end

local function show_part(node, i, frame, at_note)
    local summary
    if at_note then
        local about = NOTES[at_note]
        if about % 4 == BAD_PART then node:add_proto_expert_info(E.bad_part) end
        local whole = wholes[frame] and wholes[frame][i]
        if whole then
            summary = show_whole(node, whole)
        else
            local done = SENT.whole[floor(about / 4)]
            if done then put_generated(node, F.reassembled_in, done) end
        end
    end
    local of = M.total[i] and "/" .. M.total[i] or ""
    return "part " .. M.part[i] .. of .. (summary and " " .. summary or "")
end

local function show_data(node, i, frame, at_note)
    local at, from, seq = M.at[i], M.payload[i], M.seq[i]
    local stop = at + M.len[i]
    if wants_some then
        show_word(node, at, M.word[i])
        if seq then put(node, F.seq, at + 3, 2, seq) end
        local index_at = at + (seq and 5 or 3)
        if M.part[i] then put(node, F.part, index_at, 1, M.part[i]) end
        if M.total[i] then put(node, F.total, index_at + 1, 1, M.total[i]) end
        put(node, F.payload, from, stop - from)
    end
    local head = (seq and " " .. seq or "") .. show_sent_note(node, frame, at_note) .. " "
    if not M.part[i] then return head .. show_game(node, B, from, stop, true) end
    if M.part[i] == 0 and wants_some then show_game(node, B, from, stop, false) end
    return head .. show_part(node, i, frame, at_note)
end

-- Shows the fields of a control message that end before `stop`, and returns a summary.
local function show_control_fields(node, layout, at, stop, text, text_stop)
    local summary = ""
    for field = 1, #layout, 2 do
        local len, name = layout[field], layout[field + 1]
        local is_text = name == "name" or name == "password"
        if is_text then len = (text_stop or at) - at end
        if at + len > stop or (is_text and not text) then break end
        if is_text then
            put(node, F[name], at, len, text)
            summary = summary .. ' "' .. text .. '"'
        elseif name == "nonce" then
            if wants(F.nonce) then node:add_le(F.nonce, range(at, len)) end
        elseif name == "address" then
            put(node, F.address, at, len)
        elseif name == "reason" then
            local code = i8(B, at)
            put(node, F.reason_code, at, len, code)
            put(node, F.reason, at, len, BOOT_REASONS[code] or "unknown")
            summary = summary .. " " .. (BOOT_REASONS[code] or "reason " .. code)
            node:add_proto_expert_info(E.boot)
        elseif name ~= "tail" then
            put(node, F[name], at, len, B[at + 1])
            summary = summary .. " " .. B[at + 1]
        end
        at = at + len
    end
    return summary
end

local function show_control(node, i, frame, at_note)
    local at, layout, tail = M.at[i], M.layout[i], M.tail[i]
    local stop = at + M.len[i]
    show_word(node, at, M.word[i])
    put(node, F.seq, at + 3, 2, M.seq[i])
    local form = layout == REPLY and " reply" or layout == REQUEST and " request" or ""
    local again = show_sent_note(node, frame, at_note)
    local summary = show_control_fields(node, layout, at + 5, stop, M.text[i], tail)
    if tail < stop then put(node, F.tail, tail, stop - tail) end
    return form .. again .. summary
end

local SHOW = { [0x01] = show_ack, [0x02] = function() return "" end, [0x32] = show_data }

local function show_kind(node, at, len)
    local kind = B[at + 1]
    put(node, F.type, at, 1, kind)
    if KINDS[kind] and wants(F.kind) then put(node, F.kind, at, 1, KINDS[kind]):set_generated() end
    put(node, F.len, at, len, len)
end

-- Shows a message, and returns its line.
local function show_message(i, frame, at_note)
    local node, kind = top, M.kind[i]
    if wants_some then
        node = put(top, F.message, M.at[i], M.len[i]) or top
        show_kind(node, M.at[i], M.len[i])
    end
    local line = KINDS[kind] .. (SHOW[kind] or show_control)(node, i, frame, at_note)
    show_non_stock(node, non_stock_names(i))
    if wants_all then node:set_text(line:sub(1, 1):upper() .. line:sub(2)) end
    return line
end

-- Shows the fields of a malformed data message, as far as they are complete.
local function show_broken_data(node, at, word)
    local stop = math.min(size, at + word % 0x2000)
    local here = at + 3
    if word >= 0x8000 then
        if here + 2 > stop then return end
        put(node, F.seq, here, 2, u16(B, here))
        here = here + 2
    end
    if word % 0x4000 >= 0x2000 then
        if here >= stop then return end
        local part = B[here + 1]
        put(node, F.part, here, 1, part)
        here = here + 1
        if part == 0 then
            if here >= stop then return end
            put(node, F.total, here, 1, B[here + 1])
            here = here + 1
        end
        if part > 0 then return put(node, F.payload, here, stop - here) end
    end
    if here >= stop then return end
    put(node, F.payload, here, stop - here)
    show_game(node, B, here, stop, false)
end

local function show_broken(at)
    if not wants_some then return end
    local node, kind = put(top, F.message, at, size - at) or top, B[at + 1]
    put(node, F.type, at, 1, kind)
    if KINDS[kind] and wants(F.kind) then put(node, F.kind, at, 1, KINDS[kind]):set_generated() end
    if wants_all then node:set_text("Malformed " .. (KINDS[kind] or "message")) end
    if not KINDS[kind] or at + 3 > size then return end
    if kind == 0x01 then
        put(node, F.ack_seq, at + 1, 2, u16(B, at + 1))
        if at + 4 <= size then
            put(node, F.ack_flags, at + 3, 1, B[at + 4])
            put(node, F.ack_channel, at + 3, 1, B[at + 4] % 4 >= 2 and "control" or "game")
        end
        return
    end
    local word = u16(B, at + 1)
    show_word(node, at, word)
    if kind == 0x32 then return show_broken_data(node, at, word) end
    local stop = math.min(size, at + word % 0x4000)
    if at + 5 > stop then return end
    put(node, F.seq, at + 3, 2, u16(B, at + 3))
    show_control_fields(node, control_layout(kind, word % 0x4000), at + 5, stop)
end

local function show_gamespy(tvb, pinfo, raw)
    local text = latin1(raw)
    local item = top:add(F.gamespy, tvb:range(), text)
    local at = 1
    for key, value in raw:gmatch("\\([^\\]*)\\([^\\]*)") do
        item:add(F.gamespy_key, tvb:range(at, #key), latin1(key))
        item:add(F.gamespy_value, tvb:range(math.min(at + #key + 1, #raw), #value), latin1(value))
        at = at + #key + #value + 2
    end
    -- Valid text has a key after the first backslash, and no control characters.
    local is_text = not raw:find("[%z\1-\31\127]") and (raw:find("^\\[%w_]+\\") or raw:find("^\\[%w_][%w_][%w_][%w_]+$"))
    if not is_text then item:add(F.not_gamespy, true):set_generated() end
    pinfo.cols.info = "GameSpy " .. text
end

local function show_malformed()
    local text = string.format("malformed: %s: %s at byte %d", bad.reason, bad.field, bad.at)
    if broken_at then show_broken(broken_at) end
    local item = top
    if wants_some then
        local at = math.min(bad.at, size)
        item = put(top, F.error, at, size - at) or top
        put(item, F.error_at, at, 0, bad.at)
        put(item, F.error_field, at, 0, bad.field)
        put(item, F.error_reason, at, 0, bad.reason)
    end
    item:add_proto_expert_info(E.malformed)
    return text
end

-- Number of messages that the Info column shows.
local MAX_LINES = 12

local function has_notes(i) return M.kind[i] == 0x01 or is_reliable(i) end

-- The frame that was dissected last, its conversation, and the index of its notes.
local latest = { frame = nil, conversation = nil, at_note = nil }

local function name_of(peer, name)
    local id = peer == UNASSIGNED and "new" or tostring(peer or "?")
    return name and name ~= "" and id .. ' "' .. name .. '"' or id
end

local function show_conversation(conversation)
    if not conversation then return end
    put_generated(top, F.conversation, conversation.number)
    if conversation.player then put_generated(top, F.player, conversation.player) end
end

local function show_head(conversation, id)
    if not wants_some or size < 1 then return end
    local name = conversation and (id == HOST and conversation.host.name or id ~= HOST and conversation.player)
    local sender = put(top, F.sender, 0, 1, id)
    if sender and wants_all then
        sender:append_text(name and ' "' .. name .. '"' or id == HOST and " (host)" or id == UNASSIGNED and " (no id yet)" or "")
    end
    if name then put_generated(top, F.sender_name, name) end
    if wants(F.direction) then put(top, F.direction, 0, 1, id == HOST and "S" or "C"):set_generated() end
    if size > 1 then put(top, F.count, 1, 1, B[2]) end
    show_conversation(conversation)
end

-- Shows the messages of a datagram. `is_whole` is true if it is well-formed.
local function show_datagram(pinfo, is_whole)
    local frame, id = pinfo.number, size > 0 and B[1] or 0
    if is_whole and not pinfo.visited then follow(pinfo, frame) end
    local place = is_whole and FRAMES.place[frame]
    local conversation = place and conversations[floor(place / MAX_PLACE)]
    local at_note = place and place % MAX_PLACE + 1
    latest.frame, latest.conversation, latest.at_note = frame, conversation, at_note
    show_head(conversation, id)
    if is_whole and ((id ~= HOST and not is_client(id)) or size > MAX_DATAGRAM) then
        local names = {}
        if id ~= HOST and not is_client(id) then names[1] = "sender" end
        if size > MAX_DATAGRAM then names[#names + 1] = "large_datagram" end
        show_non_stock(top, names)
    end
    local lines = {}
    for i = 1, count do
        local noted = at_note and has_notes(i)
        lines[i] = show_message(i, frame, noted and at_note)
        if noted then at_note = at_note + 2 end
    end
    local more = count > MAX_LINES and string.format(" · +%d", count - MAX_LINES) or ""
    local text = table.concat(lines, " · ", 1, math.min(count, MAX_LINES)) .. more
    if not is_whole then
        local why = show_malformed()
        pinfo.cols.info = count > 0 and text .. " · " .. why or why
        return
    end
    local client = conversation and name_of(conversation.client, conversation.player) or "?"
    local host = name_of(HOST, conversation and conversation.host.name)
    if id == HOST then
        pinfo.cols.info = host .. "→" .. client .. " " .. text
    else
        pinfo.cols.info = name_of(id, conversation and conversation.player) .. "→" .. host .. " " .. text
    end
end

-- Statistics ----------------------------------------------------------------------------------------------------------

-- `tshark -z` supports only statistics that are written in C, so a preference selects these: -o
-- bcnet.statistics:opcodes

local function row_of(table_of, key, name)
    local row = table_of[key]
    if not row then
        row = { name = name, count = 0, bytes = 0, host = 0, again = 0, acks = 0, ack_bytes = 0, stale = 0, only = 0 }
        table_of[key] = row
        table_of[#table_of + 1] = row
    end
    return row
end

-- Calls `use` with each message of the frame that was dissected last, and with its notes.
local function each_message(use)
    local at_note = latest.at_note
    for i = 1, count do
        local noted = at_note and has_notes(i)
        use(i, noted and NOTES[at_note], noted and NOTES[at_note + 1])
        if noted then at_note = at_note + 2 end
    end
end

local function kind_of(i)
    if M.kind[i] ~= 0x32 then return KINDS[M.kind[i]] end
    if (M.part[i] or 0) > 0 then return "later fragments" end
    if M.payload[i] == M.at[i] + M.len[i] then return "empty payload" end
    return opcode_name(B[M.payload[i] + 1])
end

-- Pads a text to `width` characters.
local function pad(text, width)
    local _, len = text:gsub("[^\128-\191]", "")
    return text .. string.rep(" ", width - len)
end

local function share(part, whole) return whole > 0 and 100 * part / whole or 0 end

local STATISTICS = {
    opcodes = {
        title = "Messages by opcode",
        note = function(rows)
            each_message(function(i, _, before)
                local kind = kind_of(i)
                local row = row_of(rows, kind, kind)
                row.count, row.bytes = row.count + 1, row.bytes + M.len[i]
                if B[1] == HOST then row.host = row.host + 1 end
                if before and M.kind[i] ~= 0x01 and before % TIMES > 0 then row.again = row.again + 1 end
            end)
        end,
        text = function(rows)
            local bytes = 0
            for _, row in ipairs(rows) do bytes = bytes + row.bytes end
            table.sort(rows, function(a, b) return a.bytes > b.bytes or a.bytes == b.bytes and a.name < b.name end)
            local lines = { string.format("%-22s%9s%11s%8s%10s%11s", "Message", "Count", "Bytes", "Share", "By host",
                "Resent") }
            for _, row in ipairs(rows) do
                lines[#lines + 1] = pad(row.name, 22) .. string.format("%9d%11d%7.1f%%%10d%11d", row.count, row.bytes,
                    share(row.bytes, bytes), row.host, row.again)
            end
            return lines
        end,
    },
    acks = {
        title = "ACK overhead by conversation and sender",
        note = function(rows)
            local conversation, by_host = latest.conversation, B[1] == HOST
            if not conversation then return end
            local sender = by_host and "host" or name_of(conversation.client, conversation.player)
            local name = conversation.number .. " " .. sender
            local row, only = row_of(rows, conversation.number .. (by_host and " host" or " player"), name), true
            row.name, row.count, row.bytes = name, row.count + 1, row.bytes + size
            each_message(function(i, about)
                if M.kind[i] ~= 0x01 then
                    only = false
                    return
                end
                row.acks, row.ack_bytes = row.acks + 1, row.ack_bytes + M.len[i]
                if about and about % 4 == STALE then row.stale = row.stale + 1 end
            end)
            if only then row.only = row.only + 1 end
        end,
        text = function(rows)
            local total = row_of({}, "all", "all")
            -- Wireshark's window has 75 columns. "Alone" counts datagrams that hold only ACKs.
            local lines = { string.format("%-20s%10s%9s%7s%9s%7s%6s%6s", "Conv., sender", "Datagrams", "Bytes",
                "ACKs", "in bytes", "Share", "Stale", "Alone") }
            local function add_line(row)
                lines[#lines + 1] = pad(row.name, 20) .. string.format("%10d%9d%7d%9d%6.1f%%%6d%6d", row.count,
                    row.bytes, row.acks, row.ack_bytes, share(row.ack_bytes, row.bytes), row.stale, row.only)
            end
            for _, row in ipairs(rows) do
                add_line(row)
                for key, value in pairs(row) do
                    if key ~= "name" then total[key] = total[key] + value end
                end
            end
            add_line(total)
            return lines
        end,
    },
}

-- Collects statistics of the frames that pass a filter, and calls `draw` with the text.
local function listen(name, filter, draw)
    local statistics = STATISTICS[name]
    local tap, rows = Listener.new("frame", filter), {}
    function tap.packet(pinfo)
        if latest.frame == pinfo.number then statistics.note(rows) end
    end
    function tap.draw() draw(statistics.title .. "\n\n" .. table.concat(statistics.text(rows), "\n") .. "\n") end
    function tap.reset() rows = {} end
    return tap
end

local listened = ""

local function take_statistics()
    local wanted = bcnet.prefs.statistics
    if wanted == listened or gui_enabled() then return end
    listened = wanted
    if wanted == "" then return end
    local name, filter = wanted:match("^([^,]*),?(.*)$")
    if not STATISTICS[name] then
        error('bcnet.statistics: unknown statistics "' .. name .. '"; use opcodes or acks', 0)
    end
    local line = string.rep("=", 75)
    listen(name, filter ~= "" and filter or nil, function(text) print(line .. "\n" .. text .. line) end)
end

if gui_enabled() then
    for name, statistics in pairs(STATISTICS) do
        register_menu("Bridge Commander/" .. statistics.title, function()
            local window = TextWindow.new("Bridge Commander: " .. statistics.title)
            local tap = listen(name, nil, function(text) window:set(text) end)
            window:set_atclose(function() tap:remove() end)
            retap_packets()
        end, MENU_STAT_UNSORTED)
    end
end

-- Entry points --------------------------------------------------------------------------------------------------------

local function read(raw)
    decipher(raw)
    return read_datagram()
end

-- `bcnet extcap` delivers decrypted datagrams. The cipher XORs the count with 0xD6. So a datagram that is read in the
-- wrong form has far too many messages for its size.
local function read_either(raw)
    if read(raw) then return true end
    load_bytes(raw)
    return read_datagram() or read(raw)
end

local function dissect(tvb, pinfo, tree, raw, is_whole)
    pinfo.cols.protocol = "BC"
    begin_showing(tvb, tree)
    if byte(raw, 1) == GAMESPY then
        count = 0
        show_gamespy(tvb, pinfo, raw)
    else
        show_datagram(pinfo, is_whole)
    end
    return #raw
end

function bcnet.dissector(tvb, pinfo, tree)
    if tvb:len() == 0 then return 0 end
    local raw = tvb:raw()
    return dissect(tvb, pinfo, tree, raw, byte(raw, 1) ~= GAMESPY and read_either(raw))
end

-- Other games use GameSpy, too. These patterns match queries and answers of this game.
local GAMESPY_WORDS = { "\\gamename\\bcommander", "^\\status\\", "^\\basic\\", "^\\info\\", "^\\rules\\", "^\\players\\",
    "^\\packets\\", "^\\echo\\", "^\\secure\\", "^\\heartbeat\\" }

local function is_ours(raw)
    local first = byte(raw, 1)
    if first == GAMESPY then
        for _, word in ipairs(GAMESPY_WORDS) do
            if raw:find(word) then return true end
        end
        return false
    end
    return (first == HOST or is_client(first)) and read(raw)
end

local function heuristic(tvb, pinfo, tree)
    if not bcnet.prefs.heuristic or tvb:len() < 3 or tvb:len() ~= tvb:reported_len() then return false end
    local raw = tvb:raw()
    if not is_ours(raw) then return false end
    dissect(tvb, pinfo, tree, raw, true)
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

function bcnet.prefs_changed()
    take_ports()
    take_statistics()
end

take_ports()
bcnet:register_heuristic("udp", heuristic)
