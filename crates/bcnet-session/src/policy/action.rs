//! The actions of a policy, queued until its callback has returned.

use std::ops::Range;

use bcnet_transport::wire::PeerId;

use crate::game::{EndCode, EventDetail, GameEvent, Message};
use crate::message::Score;

/// The players that get a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipients {
    /// Everyone in the game.
    All,
    /// Everyone in the game except this player.
    AllExcept(PeerId),
    /// This player, if it is in the game.
    One(PeerId),
}

/// The reliability of a message of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sending {
    /// The message arrives once, in the order of its lane.
    #[default]
    Reliable,
    /// The message may be lost.
    Unreliable,
    /// The message may be lost, and a newer state update of the same ship supersedes it while it waits.
    Latest,
}

/// The priority of a reliable message of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendPriority {
    /// The message shares a full link fairly with relayed messages.
    #[default]
    Normal,
    /// The message goes before relayed messages, like chat.
    ///
    /// That has a limit: `relay_rate` bytes per second to all players together. Above it, the priority is normal.
    High,
}

/// The way in which a message of a policy is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendSettings {
    /// The reliability.
    pub sending: Sending,
    /// The priority.
    pub priority: SendPriority,
    /// The player that the message is about.
    ///
    /// It stays behind the earlier reliable messages of and about this player. Without a player, it only stays behind
    /// others of the policy without a player.
    pub about: Option<PeerId>,
}

/// One action.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Send { to: Recipients, payload: Range<usize>, settings: SendSettings, changes_objects: bool },
    Say { to: Recipients, text: Range<usize> },
    SetScore { player: PeerId, score: Score, is_announced: bool },
    MarkShipDestroyed(PeerId),
    Kick { player: PeerId, reason: Range<usize> },
    EndRound(EndCode),
    StartRound,
}

/// A list of actions with a limit.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    pub(crate) list: Vec<Action>,
    /// The payloads and texts of the actions.
    pub(crate) bytes: Vec<u8>,
    /// The number of actions above the limit.
    pub(crate) dropped: u64,
}

impl Actions {
    pub(super) fn push(&mut self, action: Action) {
        if self.list.len() < MAX_ACTIONS {
            self.list.push(action);
        } else {
            self.dropped += 1;
        }
    }

    /// Adds an action with a payload.
    pub(super) fn push_message(&mut self, to: Recipients, message: &Message<'_>, settings: SendSettings) {
        let changes_objects = changes_objects(message);
        self.push_bytes(
            |bytes| message.write(bytes),
            |payload| Action::Send { to, payload, settings, changes_objects },
        );
    }

    /// Adds an action with bytes, which `write` appends.
    pub(super) fn push_bytes(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
        action: impl FnOnce(Range<usize>) -> Action,
    ) {
        let start = self.bytes.len();
        if self.list.len() < MAX_ACTIONS {
            write(&mut self.bytes);
        }
        if self.list.len() < MAX_ACTIONS && self.bytes.len() <= MAX_BYTES {
            let end = self.bytes.len();
            self.list.push(action(start..end));
        } else {
            self.bytes.truncate(start);
            self.dropped += 1;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        self.dropped = 0;
    }
}

/// Returns whether a message creates or removes an object.
///
/// Messages that name the object must not overtake it (S-43).
const fn changes_objects(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::ObjectCreate(_)
            | Message::ObjectCreateTeam(_)
            | Message::DestroyObject(_)
            | Message::PythonEvent(GameEvent { detail: EventDetail::Exploding(_), .. })
    )
}

/// The most actions that wait at once, and their most bytes.
const MAX_ACTIONS: usize = 1024;
const MAX_BYTES: usize = 256 << 10;
/// The most times that actions cause callbacks with further actions, before those are dropped.
pub(crate) const MAX_ROUNDS: usize = 8;
