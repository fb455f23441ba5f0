//! Game policies: the rules of a host beyond relaying ([S-90] to [S-92]).
//!
//! A [`Session`](crate::Session) relays messages by itself. A [`GamePolicy`] sees each message first and decides what
//! becomes of it. It acts through a [`PolicyHost`]: it sends messages and chat, sets scores, ends rounds and kicks
//! players. Set it with [`Session::set_policy`](crate::Session::set_policy).
//!
//! This policy answers `!time` in chat:
//!
//! ```
//! use bcnet_session::game::Message;
//! use bcnet_session::policy::{GamePolicy, PlayerMessage, PolicyHost, Recipients, Verdict};
//! use bcnet_session::{Config, Session};
//! use bcnet_transport::Time;
//!
//! #[derive(Debug)]
//! struct AnswerTime;
//!
//! impl GamePolicy for AnswerTime {
//!     fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
//!         if matches!(message.message, Message::Chat(chat) if chat.text.0 == b"!time") {
//!             let seconds = host.game_time().as_secs();
//!             host.say(Recipients::One(message.sender.id()), &format!("{seconds} s"));
//!         }
//!         Verdict::Pass
//!     }
//! }
//!
//! let mut session = Session::new(Config::default(), 1701);
//! session.set_policy(Box::new(AnswerTime), Time::ZERO);
//! assert!(session.policy::<AnswerTime>().is_some());
//! ```
//!
//! # Contract
//!
//! - The messages of a player arrive in the order in which the session receives them, also those of one datagram.
//!   Messages that fail a check of [S-32] or [S-34], or that cannot be parsed, are counted and never arrive.
//! - Times only grow. A wake-up that is due runs before a later message arrives.
//! - A policy must be deterministic: it takes the time from [`PolicyHost::now`] and random numbers from a seed of its
//!   own. Then the same input gives the same output.
//! - Actions take effect after the callback, in their order. Those of [`GamePolicy::on_message`] take effect after the
//!   message was relayed.
//!
//! [S-32]: bcnet_transport::wire::protocol#s-32
//! [S-34]: bcnet_transport::wire::protocol#s-34
//! [S-90]: bcnet_transport::wire::protocol#s-90
//! [S-92]: bcnet_transport::wire::protocol#s-92

mod action;
mod host;

use std::any::Any;
use std::fmt;

use bcnet_transport::{LeaveReason, Time};

use crate::event::EndReason;
use crate::game::Message;
use crate::rate_limit::TokenBucket;
pub(crate) use action::{Action, Actions, MAX_ROUNDS};
pub use action::{Recipients, SendPriority, SendSettings, Sending};
pub use host::{PlayerView, PolicyHost};

/// The rules of a game. Each method has a default that changes nothing.
///
/// The [module](self) has an example and the contract.
#[allow(unused_variables, reason = "the names of the parameters document them")]
pub trait GamePolicy: Any + fmt::Debug + Send {
    /// The session has taken the policy into use.
    fn on_start(&mut self, host: &mut PolicyHost<'_>) {}

    /// A player in the game has sent a message. The verdict decides what becomes of it.
    fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
        Verdict::Pass
    }

    /// A copy for one player is about to leave. Called only after [`Verdict::PerReceiver`].
    fn on_copy(
        &mut self,
        message: &PlayerMessage<'_>,
        to: PlayerView<'_>,
        copy: &mut CopyBuffer<'_>,
    ) -> CopyVerdict {
        CopyVerdict::Pass
    }

    /// A player has entered the game. It already has the scores and the ships.
    fn on_join(&mut self, player: PlayerView<'_>, host: &mut PolicyHost<'_>) {}

    /// A player has left the game.
    fn on_leave(&mut self, player: PlayerView<'_>, reason: LeaveReason, host: &mut PolicyHost<'_>) {}

    /// A round has begun: the first player has entered, or the next round has started.
    fn on_round_start(&mut self, round: u32, host: &mut PolicyHost<'_>) {}

    /// A round is over.
    fn on_round_end(&mut self, reason: EndReason, host: &mut PolicyHost<'_>) {}

    /// The wake-up of [`PolicyHost::wake_at`] is due. `due` is the requested time, and `host.now()` may be later.
    fn on_wake(&mut self, due: Time, host: &mut PolicyHost<'_>) {}
}

/// A message of a player in the game, after the checks and the cleaning of the session.
#[derive(Debug, Clone, Copy)]
pub struct PlayerMessage<'a> {
    /// The player that sent it.
    pub sender: PlayerView<'a>,
    /// The parsed message. Messages of mods are [`Message::Unknown`].
    pub message: &'a Message<'a>,
    /// All bytes of the message, beginning with the opcode. Messages of mods may have bytes after the last field.
    pub payload: &'a [u8],
    /// True if the player has sent it reliably.
    pub reliable: bool,
}

/// The decision on a message.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The session handles the message as without a policy.
    Pass,
    /// The message has no effect, and nobody gets a copy.
    Drop,
    /// The session handles another message instead, as if the player had sent it.
    ///
    /// [`PolicyHost::replace`] returns this verdict.
    Replace(Replacement),
    /// The session handles the message, and [`GamePolicy::on_copy`] decides on the copy for each receiver.
    ///
    /// Copies that the session stores for players that join later are not changed.
    PerReceiver,
}

/// The decision on the copy for one receiver.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyVerdict {
    /// The receiver gets the message unchanged.
    Pass,
    /// The receiver gets no copy.
    Drop,
    /// The receiver gets another message with the same opcode. [`CopyBuffer::replace`] returns this verdict.
    Replace(Replacement),
}

/// The proof that a replacement was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Replacement(());

/// The buffer for the copy of one receiver.
#[derive(Debug)]
pub struct CopyBuffer<'a>(pub(crate) &'a mut Vec<u8>);

impl CopyBuffer<'_> {
    /// Writes the message for this receiver. Its opcode must be that of the original.
    #[must_use]
    pub fn replace(&mut self, message: &Message<'_>) -> CopyVerdict {
        self.0.clear();
        message.write(self.0);
        CopyVerdict::Replace(Replacement(()))
    }
}

/// A policy in use, and its pending actions.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) policy: Box<dyn GamePolicy>,
    pub(crate) actions: Actions,
    /// An empty list, to exchange with `actions` while those take effect.
    pub(crate) spare: Actions,
    pub(crate) wake_at: Option<Time>,
    /// The last replacement.
    pub(crate) replacement: Vec<u8>,
    /// Limits the messages with high priority (S-92).
    pub(crate) high_bucket: TokenBucket,
    /// Limits the starts and ends of rounds (S-92).
    pub(crate) round_bucket: TokenBucket,
}
