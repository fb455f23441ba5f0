//! The table of all messages ([S-70]). The types, constants and functions of this module are generated from its rows.
//!
//! [S-70]: bcnet_transport::wire::protocol#s-70

use super::code::{
    CollisionFlags, EndCode, RequestFlags, SystemNumber, TorpedoFlags, TorpedoType, UnknownFlags,
};
use super::event::GameEvent;
use super::field::{Cut, Reader, Text16, Text32, Wire, names, record};
use super::files::ChecksumResponse;
use super::limit::{Killer, Limit, PlayerScores, RoundTime};
use super::object::{Created, ObjectId};
use super::packed::{CompressedFloat, PackedVector, ScaledVector, UnitVector};
use super::rows::{Check, Direction, Evidence, GameError, GameErrorReason, Opcode, Row, Rule};
use super::settings::Settings;
use super::state::StateUpdate;

/// Generates all items from the rows.
///
/// The columns of a row are: opcode, its constant, the name and the type of the message, the direction, the host's
/// action, the evidence and the fields. The fields are `elsewhere` if the type is defined in another module.
macro_rules! messages {
    (<$life:lifetime> $($(#[$doc:meta])* $code:literal $constant:ident $name:ident [$($type:tt)*]
        $direction:ident, $rule:expr, $evidence:ident, $fields:tt)*) => {
        $(define! { [$(#[$doc])*] [$($type)*] $fields })*

        /// A game message.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Message<$life> {
            $($(#[$doc])* $name($($type)*),)*
            /// A message with an unknown opcode, for example of a mod.
            Unknown {
                /// The first byte.
                opcode: Opcode,
                /// The bytes behind the opcode.
                bytes: &$life [u8],
            },
        }

        #[allow(missing_docs, reason = "the names of the constants are those of the messages")]
        impl Opcode {
            $(pub const $constant: Self = Self($code);)*

            /// Returns the name of the message, if it is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Returns the action of a host when a client in the game sends this message ([S-34]).
            ///
            /// [S-34]: bcnet_transport::wire::protocol#s-34
            #[must_use]
            pub const fn rule(self) -> Rule {
                match self {
                    $(Self::$constant => $rule,)*
                    _ => Rule::Unknown,
                }
            }
        }

        impl<$life> Message<$life> {
            const TABLE: &'static [Row] = &[$(Row {
                opcode: Opcode::$constant,
                direction: Direction::$direction,
                evidence: Evidence::$evidence,
                fields: <$($type)* as Wire<$life>>::PARTS,
            },)*];

            /// Returns the opcode of the message.
            #[must_use]
            pub const fn opcode(&self) -> Opcode {
                match self {
                    $(Self::$name(_) => Opcode::$constant,)*
                    Self::Unknown { opcode, .. } => *opcode,
                }
            }

            fn read(opcode: Opcode, reader: &mut Reader<$life>) -> Result<Self, Cut> {
                Ok(match opcode {
                    $(Opcode::$constant => Self::$name(Wire::read(reader, names!($name))?),)*
                    _ => Self::Unknown { opcode, bytes: Wire::read(reader, names!(rest))? },
                })
            }

            /// Appends the message to a payload, beginning with the opcode.
            pub fn write(&self, out: &mut Vec<u8>) {
                out.push(self.opcode().0);
                match self {
                    $(Self::$name(fields) => fields.write(out),)*
                    Self::Unknown { bytes, .. } => bytes.write(out),
                }
            }
        }
    };
}

macro_rules! define {
    ([$(#[$doc:meta])*] [$($type:tt)*] elsewhere) => {};
    ([$(#[$doc:meta])*] [$($type:tt)*] { $($fields:tt)* }) => {
        record! { $(#[$doc])* pub [$($type)*] { $($fields)* } }
    };
}

messages! { <'a>
    /// The settings that a client needs to load the mission.
    0x00 SETTINGS Settings [Settings<'a>] ToClient, Rule::HostOnly, Captured, elsewhere
    /// The client can load the mission now.
    0x01 GAME_INIT GameInit [GameInit] ToClient, Rule::HostOnly, Captured, {}
    /// The host creates an object.
    0x02 OBJECT_CREATE ObjectCreate [ObjectCreate<'a>] ToClient, Rule::Create, Documented, {
        /// The owner's slot.
        slot: u8,
        /// The object.
        object: Created<'a>,
    }
    /// A player creates a ship.
    0x03 OBJECT_CREATE_TEAM ObjectCreateTeam [ObjectCreateTeam<'a>] Both, Rule::Create, Captured, {
        /// The owner's slot.
        slot: u8,
        /// The owner's peer id.
        peer: u8,
        /// The object.
        object: Created<'a>,
    }
    /// Unused: the engine has the opcode, but no handler for it.
    0x04 DEAD_DESTROY_OBJECT DeadDestroyObject [DeadDestroyObject<'a>] Never, Rule::HostOnly, Disputed, {
        /// The layout is not known.
        unknown_rest: &'a [u8],
    }
    /// Unused: the engine has the opcode, but no handler for it.
    0x05 TORPEDO_POSITION TorpedoPosition [TorpedoPosition<'a>] Never, Rule::HostOnly, Disputed, {
        /// The layout is not known.
        unknown_rest: &'a [u8],
    }
    /// An event of the host: an explosion, a repair, a shot.
    0x06 PYTHON_EVENT PythonEvent [GameEvent<'a>] ToClient, Rule::Relay(Check::Event), Captured, elsewhere
    /// A weapon system begins to fire. The message is always sent twice.
    0x07 START_FIRING StartFiring [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A weapon system stops firing.
    0x08 STOP_FIRING StopFiring [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A weapon system stops firing at a target.
    0x09 STOP_FIRING_AT_TARGET StopFiringAtTarget [GameEvent<'a>] ToClient, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A subsystem was turned on or off.
    0x0A SUBSYSTEM_STATUS SubsystemStatus [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A subsystem is to be repaired.
    0x0B ADD_TO_REPAIR_LIST AddToRepairList [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// Any other event.
    0x0C CLIENT_EVENT ClientEvent [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A ship changes its target.
    0x0D PYTHON_EVENT_2 PythonEvent2 [GameEvent<'a>] ToHost, Rule::Absorb, Documented, elsewhere
    /// A ship cloaks.
    0x0E START_CLOAK StartCloak [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A ship decloaks.
    0x0F STOP_CLOAK StopCloak [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A ship warps to another set.
    0x10 START_WARP StartWarp [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A subsystem is to be repaired first or last.
    0x11 REPAIR_LIST_PRIORITY RepairListPriority [GameEvent<'a>] Both, Rule::Relay(Check::Event), Documented, elsewhere
    /// Phasers are set to low, medium or high.
    0x12 SET_PHASER_LEVEL SetPhaserLevel [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A player wants to destroy its ship.
    0x13 HOST_MESSAGE HostMessage [HostMessage] ToHost, Rule::SelfDestruct, Captured, {}
    /// An object is removed.
    0x14 DESTROY_OBJECT DestroyObject [DestroyObject] ToClient, Rule::HostOnly, Documented, {
        /// The object.
        object: ObjectId,
    }
    /// A ship has collided with an object.
    0x15 COLLISION_EFFECT CollisionEffect [GameEvent<'a>] ToHost, Rule::Absorb, Captured, elsewhere
    /// A change of the collision setting.
    0x16 COLLISION_SETTING CollisionSetting [CollisionSetting] ToClient, Rule::HostOnly, Documented, {
        /// The new setting.
        flags: CollisionFlags,
    }
    /// A player has entered the game, or left it.
    0x17 PLAYER_LIST_EVENT PlayerListEvent [GameEvent<'a>] ToClient, Rule::HostOnly, Captured, elsewhere
    /// A player has left the game.
    0x18 DELETE_PLAYER_ANIMATION DeletePlayerAnimation [DeletePlayerAnimation<'a>] ToClient, Rule::HostOnly, Inferred, {
        /// The player's name.
        name: Text16<'a>,
    }
    /// A torpedo was fired.
    0x19 TORPEDO_FIRE TorpedoFire [TorpedoFire] Both, Rule::Relay(Check::Object), Captured, {
        /// The torpedo tube.
        weapon: ObjectId,
        /// The type of the torpedo.
        torpedo: TorpedoType,
        /// The flags of the torpedo.
        flags: TorpedoFlags,
        /// The direction of the shot.
        direction: UnitVector,
        /// The target, if the message is long enough. The flags announce it too. No text disputes the length.
        target: Option<TorpedoTarget>,
    }
    /// A pulse was fired.
    0x1A BEAM_FIRE BeamFire [BeamFire] Both, Rule::Relay(Check::Object), Captured, {
        /// The weapon.
        weapon: ObjectId,
        /// 2 in all captures; the meaning is not known.
        unknown_byte: u8,
        /// The direction of the shot.
        direction: UnitVector,
        /// The flags. One of the two lowest bits announces a target; it is disputed which.
        flags: u8,
        /// The target, if the message is long enough.
        target: Option<ObjectId>,
    }
    /// A ship changes the type of its torpedoes.
    0x1B TORPEDO_TYPE_CHANGE TorpedoTypeChange [GameEvent<'a>] Both, Rule::Relay(Check::Event), Documented, elsewhere
    /// The position and the condition of a ship.
    0x1C STATE_UPDATE StateUpdate [StateUpdate<'a>] Both, Rule::StateUpdate, Captured, elsewhere
    /// The host asks whether the client has an object.
    0x1D OBJECT_NOT_FOUND ObjectNotFound [ObjectNotFound] ToClient, Rule::RequestObject, Documented, {
        /// The object.
        object: ObjectId,
    }
    /// A client does not have an object and requests it.
    0x1E REQUEST_OBJECT RequestObject [RequestObject] ToHost, Rule::RequestObject, Documented, {
        /// The object.
        object: ObjectId,
    }
    /// A ship has arrived in another set.
    0x1F ENTER_SET EnterSet [EnterSet<'a>] ToClient, Rule::Relay(Check::Object), Inferred, {
        /// The ship.
        object: ObjectId,
        /// The set.
        set: Text32<'a>,
        /// The terminating zero of the text, which the length does not count.
        zero: [u8; 1],
    }
    /// The host asks for the hashes of files.
    0x20 CHECKSUM_REQUEST ChecksumRequest [ChecksumRequest<'a>] ToClient, Rule::HostOnly, Captured, {
        /// The round number.
        round: u8,
        /// The directory to check.
        directory: Text16<'a>,
        /// The pattern of file names to check.
        filter: Text16<'a>,
        /// The flag for subdirectories.
        flags: RequestFlags,
    }
    /// A client sends the hashes of its files.
    0x21 CHECKSUM_RESPONSE ChecksumResponse [ChecksumResponse] ToHost, Rule::Absorb, Captured, elsewhere
    /// The client's files differ. Some texts swap it with [`VersionDifferent`].
    0x22 CHECKSUM_FAILURE ChecksumFailure [ChecksumFailure<'a>] ToClient, Rule::HostOnly, Disputed, {
        /// The name of the file.
        file: Text16<'a>,
    }
    /// The client has another version. Some texts swap it with [`ChecksumFailure`].
    0x23 VERSION_DIFFERENT VersionDifferent [VersionDifferent<'a>] ToClient, Rule::HostOnly, Disputed, {
        /// The name of the file.
        file: Text16<'a>,
    }
    /// Unused: the engine has the opcode, but no capture contains it.
    0x24 BEGIN_SEND_FILE BeginSendFile [BeginSendFile<'a>] Never, Rule::HostOnly, Inferred, {
        /// The layout is not known.
        unknown_rest: &'a [u8],
    }
    /// The host sends a file.
    0x25 FILE_TRANSFER FileTransfer [FileTransfer<'a>] ToClient, Rule::HostOnly, Inferred, {
        /// The name of the file.
        file: Text16<'a>,
        /// The content of the file.
        content: &'a [u8],
    }
    /// Unused: the engine has the opcode, but no capture contains it.
    0x26 SEND_DIRECTORY SendDirectory [SendDirectory<'a>] Never, Rule::HostOnly, Inferred, {
        /// The layout is not known.
        unknown_rest: &'a [u8],
    }
    /// A client has received a file.
    0x27 FILE_TRANSFER_ACK FileTransferAck [FileTransferAck] ToHost, Rule::Absorb, Inferred, {}
    /// The client's files are accepted.
    0x28 CHECKSUM_COMPLETE ChecksumComplete [ChecksumComplete] ToClient, Rule::HostOnly, Captured, {}
    /// An explosion damages an object near it.
    0x29 EXPLOSION Explosion [Explosion] ToClient, Rule::HostOnly, Captured, {
        /// The damaged object.
        object: ObjectId,
        /// The place; it is not known whether in the set or on the ship.
        place: PackedVector,
        /// The radius of the explosion.
        radius: CompressedFloat,
        /// The damage.
        damage: CompressedFloat,
    }
    /// A client has loaded the mission.
    0x2A NEW_PLAYER_IN_GAME NewPlayerInGame [NewPlayerInGame] ToHost, Rule::Absorb, Captured, {
        /// The meaning is not known.
        flags: UnknownFlags,
    }
    /// The end of the engine's own opcodes; not a message.
    0x2B MAX_MESSAGE_TYPES MaxMessageTypes [MaxMessageTypes<'a>] Never, Rule::HostOnly, Inferred, {
        /// There is no layout.
        unknown_rest: &'a [u8],
    }
    /// A line of chat for everyone.
    0x2C CHAT Chat [Chat<'a>] Both, Rule::Chat, Documented, {
        /// The peer id of the sender.
        sender: i32,
        /// The text.
        text: Text16<'a>,
    }
    /// A line of chat for the sender's team.
    0x2D TEAM_CHAT TeamChat [TeamChat<'a>] Both, Rule::TeamChat, Documented, {
        /// The peer id of the sender.
        sender: i32,
        /// The text.
        text: Text16<'a>,
    }
    /// The star system and the limits of a round.
    0x35 MISSION_INIT MissionInit [MissionInit] ToClient, Rule::HostOnly, Captured, {
        /// The highest number of players.
        player_limit: u8,
        /// The star system.
        system: SystemNumber,
        /// The time limit and the end of the round.
        time_limit: RoundTime,
        /// The number of kills that ends the round.
        frag_limit: Limit,
    }
    /// A ship was destroyed.
    0x36 SCORE_CHANGE ScoreChange [ScoreChange] ToClient, Rule::HostOnly, Captured, {
        /// The player that destroyed the ship.
        killer: Killer,
        /// The peer id of the ship's owner.
        victim: i32,
        /// The owner's new number of lost ships.
        deaths: i32,
        /// The points of other players that took part.
        players: PlayerScores,
    }
    /// A player's score.
    0x37 SCORE Score [Score] ToClient, Rule::HostOnly, Documented, {
        /// The player's peer id.
        peer: i32,
        /// The number of ships that the player has destroyed.
        kills: i32,
        /// The number of ships that the player has lost.
        deaths: i32,
        /// The player's points.
        score: i32,
    }
    /// The round is over.
    0x38 END_GAME EndGame [EndGame] ToClient, Rule::HostOnly, Documented, {
        /// The reason.
        reason: EndCode,
    }
    /// The next round begins.
    0x39 RESTART_GAME RestartGame [RestartGame] ToClient, Rule::HostOnly, Documented, {}
    /// A player's score and team.
    0x3F SCORE_INIT ScoreInit [ScoreInit] ToClient, Rule::HostOnly, Documented, {
        /// The player's peer id.
        peer: i32,
        /// The number of ships that the player has destroyed.
        kills: i32,
        /// The number of ships that the player has lost.
        deaths: i32,
        /// The player's points.
        score: i32,
        /// The player's team; 255 for none.
        team: u8,
    }
    /// The score of a team.
    0x40 TEAM_SCORE TeamScore [TeamScore] ToClient, Rule::HostOnly, Documented, {
        /// The team.
        team: u8,
        /// The number of ships that the team has destroyed.
        kills: i32,
        /// The team's points.
        score: i32,
    }
    /// A player chooses a team.
    0x41 TEAM Team [Team] Both, Rule::Team, Documented, {
        /// The player's peer id.
        peer: i32,
        /// The team.
        team: u8,
    }
}

/// All known messages, by opcode.
pub const TABLE: &[Row] = Message::TABLE;

record! {
    /// The target of a torpedo.
    pub [TorpedoTarget] {
        /// The target ship.
        target: ObjectId,
        /// The place on the ship.
        offset: ScaledVector,
    }
}

impl<'a> Message<'a> {
    /// Parses a payload. Writing the message gives the same bytes again.
    ///
    /// # Errors
    /// Returns a [`GameError`] if the payload is truncated or has bytes after its last field. It names the message, the
    /// field, its offset and the reason.
    pub fn parse(payload: &'a [u8]) -> Result<Self, GameError> {
        let (message, rest) = Self::parse_prefix(payload)?;
        if rest.is_empty() {
            return Ok(message);
        }
        let at = payload.len() - rest.len();
        Err(GameError {
            opcode: Some(message.opcode()),
            field: "rest",
            offset: at,
            reason: GameErrorReason::Trailing,
        })
    }

    /// Parses a payload and returns the message and the bytes after its last field. Messages of mods can have such
    /// bytes.
    ///
    /// # Errors
    /// Returns a [`GameError`] if the payload is truncated. It names the message, the field, its offset and the reason.
    pub fn parse_prefix(payload: &'a [u8]) -> Result<(Self, &'a [u8]), GameError> {
        let opcode = Opcode::of(payload).ok_or(GameError::EMPTY)?;
        let mut reader = Reader::new(payload);
        let message = Self::read(opcode, &mut reader).map_err(|cut| GameError::truncated(opcode, cut))?;
        Ok((message, reader.remaining()))
    }
}

/// Reads the fields of a message whose type the caller knows from the opcode.
///
/// Ignores bytes after the last field, as [`Message::parse_prefix`] does.
pub(crate) fn read_fields<'a, T: Wire<'a>>(payload: &'a [u8]) -> Result<T, GameError> {
    let opcode = Opcode::of(payload).ok_or(GameError::EMPTY)?;
    T::read(&mut Reader::new(payload), names!(fields)).map_err(|cut| GameError::truncated(opcode, cut))
}

/// Reads all fields of a payload, so that the reader records them. The bytes after them become the field `rest`.
pub(super) fn read_for_description(opcode: Opcode, reader: &mut Reader<'_>) -> Result<(), Cut> {
    Message::read(opcode, reader)?;
    <&[u8]>::read(reader, names!(rest)).map(drop)
}
