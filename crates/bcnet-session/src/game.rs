//! Game messages: the payloads of the transport's data messages ([S-70] to [S-77]).
//!
//! The table in `game/table.rs` has a row for each message. A row has the opcode, the name, the direction, the action
//! of a host, the evidence and the fields. The type [`Message`] reads and writes messages, and [`describe()`] lists
//! their fields. The function [`Opcode::rule`] returns the action of a host.
//!
//! ```
//! use bcnet_session::game::{Chat, Message, Opcode, Text16, Value, describe};
//!
//! let chat = Message::Chat(Chat { sender: 3, text: Text16(b"hi") });
//! let mut payload = Vec::new();
//! chat.write(&mut payload);
//! assert_eq!(payload, [0x2C, 3, 0, 0, 0, 2, 0, b'h', b'i']);
//! assert_eq!(Message::parse(&payload), Ok(chat));
//!
//! let shown = describe(&payload);
//! assert_eq!(shown.opcode, Some(Opcode::CHAT));
//! assert_eq!(shown.get("text"), Some(Value::Text(b"hi")));
//! assert_eq!(shown.to_string(), r#"Chat sender=3 text="hi""#);
//!
//! let error = Message::parse(&payload[..8]).expect_err("one byte is missing");
//! assert_eq!(error.to_string(), "Chat: truncated in text, which begins at byte 5");
//! ```
//!
//! Writing a parsed message gives the same bytes again: packed numbers and flags keep their bits, and fields of unknown
//! meaning stay bytes.
//!
//! [S-70]: bcnet_transport::wire::protocol#s-70
//! [S-77]: bcnet_transport::wire::protocol#s-77

mod code;
mod describe;
mod event;
pub(crate) mod field;
mod files;
mod limit;
mod object;
mod packed;
mod peek;
mod rows;
mod settings;
mod state;
mod subsystems;
mod superseded;
mod table;

pub use code::{
    CODES, Codes, CollisionFlags, EndCode, EventClass, EventNumber, FLAGS, Flags, ObjectClass, PhaserLevel,
    RequestFlags, SettingsFlags, Species, StateFlags, SystemNumber, TorpedoFlags, TorpedoType, UnknownFlags,
};
pub use describe::{Description, PayloadField, Value, describe, latin1_chars};
pub use event::{Collision, EventDetail, Exploding, GameEvent, Warp};
pub use field::{Part, Text8, Text16, Text32};
pub use files::{ChecksumResponse, DirectoryHashes, FILE_CHECK_ROUNDS, FileCheckRound, FileHash};
pub use limit::{Kill, Killer, Limit, PlayerScore, PlayerScores, RoundTime, TimeLimit};
pub use object::{Created, ObjectId, Ship};
pub use packed::{CompressedFloat, PackedVector, ScaledVector, UnitVector};
pub use peek::subject;
pub(crate) use peek::{
    Creation, chat_lengths, chat_text, event_head, first_object, named_slots, set_chat_sender, shot_target,
    team_choice, text_ranges,
};
pub use rows::{Check, Direction, Evidence, GameError, GameErrorReason, Opcode, Row, Rule};
pub use settings::Settings;
pub use state::{Position, StateUpdate, Subsystems};
pub(crate) use state::{state_head, strip_hash};
pub use subsystems::SubsystemByte;
pub(crate) use superseded::superseded_by;
pub(crate) use table::read_fields;
pub use table::*;
