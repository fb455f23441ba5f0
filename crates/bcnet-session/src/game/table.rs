//! The table of all messages: whatever is known of one stands in its row, and everything else follows from the rows.

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

/// Makes everything from the rows. A row is: opcode, its constant, the message's name and the type of what it says,
/// direction, what the host does with it, evidence, and the fields; `elsewhere` if the type is made elsewhere.
macro_rules! messages {
    (<$life:lifetime> $($(#[$doc:meta])* $code:literal $constant:ident $name:ident [$($type:tt)*]
        $direction:ident, $rule:expr, $evidence:ident, $fields:tt)*) => {
        $(define! { [$(#[$doc])*] [$($type)*] $fields })*

        /// What is said in the game.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Message<$life> {
            $($(#[$doc])* $name($($type)*),)*
            /// Nobody knows what it is: a mod's.
            Unknown {
                /// Its first byte.
                opcode: Opcode,
                /// What follows.
                bytes: &$life [u8],
            },
        }

        #[allow(missing_docs, reason = "the names say it")]
        impl Opcode {
            $(pub const $constant: Self = Self($code);)*

            /// Returns its name, if it is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Returns what a host does with it when a client in the game says it (S-34).
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

            /// Returns its opcode.
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

            /// Adds it to a payload, opcode first.
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
    /// What a client must know to load the mission.
    0x00 SETTINGS Settings [Settings<'a>] ToClient, Rule::HostOnly, Captured, elsewhere
    /// The client has everything and may load.
    0x01 GAME_INIT GameInit [GameInit] ToClient, Rule::HostOnly, Captured, {}
    /// An object of the host's.
    0x02 OBJECT_CREATE ObjectCreate [ObjectCreate<'a>] ToClient, Rule::Create, Documented, {
        /// The owner's slot.
        slot: u8,
        /// What it is.
        object: Created<'a>,
    }
    /// A player's ship.
    0x03 OBJECT_CREATE_TEAM ObjectCreateTeam [ObjectCreateTeam<'a>] Both, Rule::Create, Captured, {
        /// The owner's slot.
        slot: u8,
        /// The owner's peer id.
        peer: u8,
        /// What it is.
        object: Created<'a>,
    }
    /// Dead: the engine has the number and no handler.
    0x04 DEAD_DESTROY_OBJECT DeadDestroyObject [DeadDestroyObject<'a>] Never, Rule::HostOnly, Disputed, {
        /// Its layout is not known.
        unknown_rest: &'a [u8],
    }
    /// Dead: the engine has the number and no handler.
    0x05 TORPEDO_POSITION TorpedoPosition [TorpedoPosition<'a>] Never, Rule::HostOnly, Disputed, {
        /// Its layout is not known.
        unknown_rest: &'a [u8],
    }
    /// An event that the host has made: explosions, repairs, shots.
    0x06 PYTHON_EVENT PythonEvent [GameEvent<'a>] ToClient, Rule::Relay(Check::Event), Captured, elsewhere
    /// A weapon system begins to fire. It always comes twice.
    0x07 START_FIRING StartFiring [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A weapon system ceases to fire.
    0x08 STOP_FIRING StopFiring [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A weapon system ceases to fire at a target.
    0x09 STOP_FIRING_AT_TARGET StopFiringAtTarget [GameEvent<'a>] ToClient, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A subsystem was turned on or off.
    0x0A SUBSYSTEM_STATUS SubsystemStatus [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A subsystem is to be repaired.
    0x0B ADD_TO_REPAIR_LIST AddToRepairList [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// Any other event.
    0x0C CLIENT_EVENT ClientEvent [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A ship has another target.
    0x0D PYTHON_EVENT_2 PythonEvent2 [GameEvent<'a>] ToHost, Rule::Absorb, Documented, elsewhere
    /// A ship cloaks.
    0x0E START_CLOAK StartCloak [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A ship decloaks.
    0x0F STOP_CLOAK StopCloak [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A ship leaves for another set.
    0x10 START_WARP StartWarp [GameEvent<'a>] Both, Rule::Relay(Check::Event), Inferred, elsewhere
    /// A subsystem is to be repaired first, or last.
    0x11 REPAIR_LIST_PRIORITY RepairListPriority [GameEvent<'a>] Both, Rule::Relay(Check::Event), Documented, elsewhere
    /// Phasers are set to low, medium or high.
    0x12 SET_PHASER_LEVEL SetPhaserLevel [GameEvent<'a>] Both, Rule::Relay(Check::Event), Captured, elsewhere
    /// A player wants to destroy its ship.
    0x13 HOST_MESSAGE HostMessage [HostMessage] ToHost, Rule::SelfDestruct, Captured, {}
    /// An object is gone.
    0x14 DESTROY_OBJECT DestroyObject [DestroyObject] ToClient, Rule::HostOnly, Documented, {
        /// The object.
        object: ObjectId,
    }
    /// A ship has hit something.
    0x15 COLLISION_EFFECT CollisionEffect [GameEvent<'a>] ToHost, Rule::Absorb, Captured, elsewhere
    /// Whether ships may collide from now on.
    0x16 COLLISION_SETTING CollisionSetting [CollisionSetting] ToClient, Rule::HostOnly, Documented, {
        /// Whether they may.
        flags: CollisionFlags,
    }
    /// A player has entered the game, or left it.
    0x17 PLAYER_LIST_EVENT PlayerListEvent [GameEvent<'a>] ToClient, Rule::HostOnly, Captured, elsewhere
    /// A player has left the game.
    0x18 DELETE_PLAYER_ANIMATION DeletePlayerAnimation [DeletePlayerAnimation<'a>] ToClient, Rule::HostOnly, Inferred, {
        /// Its name.
        name: Text16<'a>,
    }
    /// A torpedo is fired.
    0x19 TORPEDO_FIRE TorpedoFire [TorpedoFire] Both, Rule::Relay(Check::Object), Captured, {
        /// The tube.
        weapon: ObjectId,
        /// What is fired.
        torpedo: TorpedoType,
        /// How it flies.
        flags: TorpedoFlags,
        /// Where to.
        direction: UnitVector,
        /// What at. The flags say whether there is a target; so does the length, which has never been disputed.
        target: Option<TorpedoTarget>,
    }
    /// A pulse is fired.
    0x1A BEAM_FIRE BeamFire [BeamFire] Both, Rule::Relay(Check::Object), Captured, {
        /// The weapon.
        weapon: ObjectId,
        /// 2 in all that was seen; nobody knows what it is.
        unknown_byte: u8,
        /// Where to.
        direction: UnitVector,
        /// One of the two lowest bits says that a target follows; it is disputed which.
        flags: u8,
        /// What at, told by the length.
        target: Option<ObjectId>,
    }
    /// Other torpedoes are loaded.
    0x1B TORPEDO_TYPE_CHANGE TorpedoTypeChange [GameEvent<'a>] Both, Rule::Relay(Check::Event), Documented, elsewhere
    /// Where a ship is, and how it is.
    0x1C STATE_UPDATE StateUpdate [StateUpdate<'a>] Both, Rule::StateUpdate, Captured, elsewhere
    /// Whether the client has an object.
    0x1D OBJECT_NOT_FOUND ObjectNotFound [ObjectNotFound] ToClient, Rule::RequestObject, Documented, {
        /// The object.
        object: ObjectId,
    }
    /// A client lacks an object.
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
        /// The end of the text, which its length does not count.
        zero: [u8; 1],
    }
    /// A client is asked about its files.
    0x20 CHECKSUM_REQUEST ChecksumRequest [ChecksumRequest<'a>] ToClient, Rule::HostOnly, Captured, {
        /// The number of the round.
        round: u8,
        /// The directory.
        directory: Text16<'a>,
        /// Which of its files.
        filter: Text16<'a>,
        /// Whether those in subdirectories too.
        flags: RequestFlags,
    }
    /// A client answers about its files.
    0x21 CHECKSUM_RESPONSE ChecksumResponse [ChecksumResponse] ToHost, Rule::Absorb, Captured, elsewhere
    /// A client's files differ. Some texts have it the other way round with [`VersionDifferent`].
    0x22 CHECKSUM_FAILURE ChecksumFailure [ChecksumFailure<'a>] ToClient, Rule::HostOnly, Disputed, {
        /// The file.
        file: Text16<'a>,
    }
    /// A client has another version. Some texts have it the other way round with [`ChecksumFailure`].
    0x23 VERSION_DIFFERENT VersionDifferent [VersionDifferent<'a>] ToClient, Rule::HostOnly, Disputed, {
        /// The file.
        file: Text16<'a>,
    }
    /// The engine has the number; nobody has seen it.
    0x24 BEGIN_SEND_FILE BeginSendFile [BeginSendFile<'a>] Never, Rule::HostOnly, Inferred, {
        /// Its layout is not known.
        unknown_rest: &'a [u8],
    }
    /// A file for a client.
    0x25 FILE_TRANSFER FileTransfer [FileTransfer<'a>] ToClient, Rule::HostOnly, Inferred, {
        /// Its name.
        file: Text16<'a>,
        /// Its content.
        content: &'a [u8],
    }
    /// The engine has the number; nobody has seen it.
    0x26 SEND_DIRECTORY SendDirectory [SendDirectory<'a>] Never, Rule::HostOnly, Inferred, {
        /// Its layout is not known.
        unknown_rest: &'a [u8],
    }
    /// A client has got a file.
    0x27 FILE_TRANSFER_ACK FileTransferAck [FileTransferAck] ToHost, Rule::Absorb, Inferred, {}
    /// A client's files are good.
    0x28 CHECKSUM_COMPLETE ChecksumComplete [ChecksumComplete] ToClient, Rule::HostOnly, Captured, {}
    /// Something explodes and damages what is near.
    0x29 EXPLOSION Explosion [Explosion] ToClient, Rule::HostOnly, Captured, {
        /// What is damaged.
        object: ObjectId,
        /// Where; it is not known whether in the set or on the ship.
        place: PackedVector,
        /// How far it reaches.
        radius: CompressedFloat,
        /// How much.
        damage: CompressedFloat,
    }
    /// A client has loaded the mission.
    0x2A NEW_PLAYER_IN_GAME NewPlayerInGame [NewPlayerInGame] ToHost, Rule::Absorb, Captured, {
        /// Nobody knows what they say.
        flags: UnknownFlags,
    }
    /// The end of the engine's own numbers: no message.
    0x2B MAX_MESSAGE_TYPES MaxMessageTypes [MaxMessageTypes<'a>] Never, Rule::HostOnly, Inferred, {
        /// It has no layout.
        unknown_rest: &'a [u8],
    }
    /// A player says something to everyone.
    0x2C CHAT Chat [Chat<'a>] Both, Rule::Chat, Documented, {
        /// Its peer id.
        sender: i32,
        /// What it says.
        text: Text16<'a>,
    }
    /// A player says something to its team.
    0x2D TEAM_CHAT TeamChat [TeamChat<'a>] Both, Rule::TeamChat, Documented, {
        /// Its peer id.
        sender: i32,
        /// What it says.
        text: Text16<'a>,
    }
    /// What is played, where, and until when.
    0x35 MISSION_INIT MissionInit [MissionInit] ToClient, Rule::HostOnly, Captured, {
        /// How many players there can be.
        player_limit: u8,
        /// Where.
        system: SystemNumber,
        /// How long, and until when.
        time_limit: RoundTime,
        /// How many kills end the round.
        frag_limit: Limit,
    }
    /// A ship was destroyed.
    0x36 SCORE_CHANGE ScoreChange [ScoreChange] ToClient, Rule::HostOnly, Captured, {
        /// Who has destroyed it.
        killer: Killer,
        /// The peer id of whose it was.
        victim: i32,
        /// How many it has lost now.
        deaths: i32,
        /// The points of others who took part.
        players: PlayerScores,
    }
    /// A player's score.
    0x37 SCORE Score [Score] ToClient, Rule::HostOnly, Documented, {
        /// Its peer id.
        peer: i32,
        /// Ships that it has destroyed.
        kills: i32,
        /// Ships that it has lost.
        deaths: i32,
        /// Its points.
        score: i32,
    }
    /// The round is over.
    0x38 END_GAME EndGame [EndGame] ToClient, Rule::HostOnly, Documented, {
        /// Why.
        reason: EndCode,
    }
    /// The next round begins.
    0x39 RESTART_GAME RestartGame [RestartGame] ToClient, Rule::HostOnly, Documented, {}
    /// A player's score and team.
    0x3F SCORE_INIT ScoreInit [ScoreInit] ToClient, Rule::HostOnly, Documented, {
        /// Its peer id.
        peer: i32,
        /// Ships that it has destroyed.
        kills: i32,
        /// Ships that it has lost.
        deaths: i32,
        /// Its points.
        score: i32,
        /// Its team; 255 is none.
        team: u8,
    }
    /// The score of a team.
    0x40 TEAM_SCORE TeamScore [TeamScore] ToClient, Rule::HostOnly, Documented, {
        /// The team.
        team: u8,
        /// Ships that it has destroyed.
        kills: i32,
        /// Its points.
        score: i32,
    }
    /// A player chooses its team.
    0x41 TEAM Team [Team] Both, Rule::Team, Documented, {
        /// Its peer id.
        peer: i32,
        /// The team.
        team: u8,
    }
}

/// All messages that are known, by opcode.
pub const TABLE: &[Row] = Message::TABLE;

record! {
    /// What a torpedo is fired at.
    pub [TorpedoTarget] {
        /// The ship.
        target: ObjectId,
        /// The place on it.
        offset: ScaledVector,
    }
}

impl<'a> Message<'a> {
    /// Reads a payload. What is written of the message is the payload again, byte for byte.
    ///
    /// # Errors
    /// [`GameError`] tells the message, the field, its place and the reason if a payload ends too early or goes on
    /// behind its last field.
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

    /// Reads a payload and gives back what follows its last field. Mods have longer ones.
    ///
    /// # Errors
    /// [`GameError`] tells the message, the field, its place and the reason if a payload ends too early.
    pub fn parse_prefix(payload: &'a [u8]) -> Result<(Self, &'a [u8]), GameError> {
        let opcode = Opcode::of(payload).ok_or(GameError::EMPTY)?;
        let mut reader = Reader::new(payload);
        let message = Self::read(opcode, &mut reader).map_err(|cut| GameError::truncated(opcode, cut))?;
        Ok((message, reader.remaining()))
    }
}

/// Reads the fields of a message whose opcode says what they are. What follows them is left, as by
/// [`Message::parse_prefix`].
pub(crate) fn read_fields<'a, T: Wire<'a>>(payload: &'a [u8]) -> Result<T, GameError> {
    let opcode = Opcode::of(payload).ok_or(GameError::EMPTY)?;
    T::read(&mut Reader::new(payload), names!(fields)).map_err(|cut| GameError::truncated(opcode, cut))
}

/// Reads all fields of a payload, for their notes. What follows is the field `rest`.
pub(super) fn read_for_description(opcode: Opcode, reader: &mut Reader<'_>) -> Result<(), Cut> {
    Message::read(opcode, reader)?;
    <&[u8]>::read(reader, names!(rest)).map(drop)
}
