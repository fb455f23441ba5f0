//! The view that a policy has of its session, and its means to act.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;

use super::action::{Action, Actions, Recipients, SendSettings};
use super::{Replacement, Verdict};
use crate::game::{EndCode, Message, ObjectId, Species};
use crate::member::{Member, Roster};
use crate::message::Score;

/// The session, as a policy sees it and acts on it.
#[derive(Debug)]
pub struct PolicyHost<'a> {
    pub(crate) now: Time,
    pub(crate) epoch: Time,
    pub(crate) round: u32,
    pub(crate) is_round_over: bool,
    pub(crate) members: &'a [Option<Box<Member>>],
    pub(crate) in_game: &'a Roster,
    pub(crate) actions: &'a mut Actions,
    pub(crate) replacement: &'a mut Vec<u8>,
    pub(crate) wake_at: &'a mut Option<Time>,
}

impl<'a> PolicyHost<'a> {
    /// Returns the time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Returns the game clock, which all players share ([S-27]). State updates have it in seconds.
    ///
    /// [S-27]: bcnet_transport::wire::protocol#s-27
    #[must_use]
    pub fn game_time(&self) -> Duration {
        self.now.since(self.epoch)
    }

    /// Returns the number of the round, from 1.
    #[must_use]
    pub const fn round(&self) -> u32 {
        self.round
    }

    /// Returns whether the round is over and the next one has not begun.
    #[must_use]
    pub const fn is_round_over(&self) -> bool {
        self.is_round_over
    }

    /// Returns the players in the game, in the order of entry.
    pub fn players(&self) -> impl Iterator<Item = PlayerView<'a>> + use<'a> {
        let members = self.members;
        self.in_game.iter().filter_map(move |peer| find(members, peer))
    }

    /// Returns a player in the game.
    #[must_use]
    pub fn player(&self, peer: PeerId) -> Option<PlayerView<'a>> {
        self.in_game.contains(peer).then(|| find(self.members, peer)).flatten()
    }

    /// Returns the player in the game that owns an object.
    #[must_use]
    pub fn owner_of(&self, object: ObjectId) -> Option<PlayerView<'a>> {
        let slot = object.owner()?;
        self.players().find(|player| player.slot() == Some(slot))
    }

    /// Returns the verdict that the session handles `message` in place of the one that the player has sent.
    ///
    /// The message must pass the same checks as the player's own ([S-32]). If it does not, it is dropped and counted
    /// in [`Counters::policy_rejected`](crate::Counters::policy_rejected).
    ///
    /// [S-32]: bcnet_transport::wire::protocol#s-32
    #[must_use]
    pub fn replace(&mut self, message: &Message<'_>) -> Verdict {
        self.replacement.clear();
        message.write(self.replacement);
        Verdict::Replace(Replacement(()))
    }

    /// Sends a message. [`SendSettings::default`] sends it reliably.
    ///
    /// A message for which there is no capacity is dropped and counted in
    /// [`Counters::policy_dropped`](crate::Counters::policy_dropped). No player is booted for it.
    pub fn send(&mut self, to: Recipients, message: &Message<'_>, settings: SendSettings) {
        self.actions.push_message(to, message, settings);
    }

    /// Sends chat of the server, one message per line ([S-41]).
    ///
    /// [S-41]: bcnet_transport::wire::protocol#s-41
    pub fn say(&mut self, to: Recipients, text: &str) {
        self.actions.push_bytes(|bytes| bytes.extend(text.as_bytes()), |text| Action::Say { to, text });
    }

    /// Sets the score of a player and sends it to everyone ([S-30]).
    ///
    /// [S-30]: bcnet_transport::wire::protocol#s-30
    pub fn set_score(&mut self, player: PeerId, score: Score) {
        self.actions.push(Action::SetScore { player, score, is_announced: true });
    }

    /// Sets the score of a player without a message, for a policy that sends `ScoreChange` itself.
    pub fn store_score(&mut self, player: PeerId, score: Score) {
        self.actions.push(Action::SetScore { player, score, is_announced: false });
    }

    /// Marks the ship of a player as destroyed. Players that join later are not informed about it.
    ///
    /// The policy itself sends the event that the ship explodes.
    pub fn mark_ship_destroyed(&mut self, player: PeerId) {
        self.actions.push(Action::MarkShipDestroyed(player));
    }

    /// Sends a player the reason as chat, then kicks it ([S-55]).
    ///
    /// [S-55]: bcnet_transport::wire::protocol#s-55
    pub fn kick(&mut self, player: PeerId, reason: &str) {
        self.actions
            .push_bytes(|bytes| bytes.extend(reason.as_bytes()), |reason| Action::Kick { player, reason });
    }

    /// Ends the round ([S-60]), if one is running.
    ///
    /// [S-60]: bcnet_transport::wire::protocol#s-60
    pub fn end_round(&mut self, reason: EndCode) {
        self.actions.push(Action::EndRound(reason));
    }

    /// Starts the next round ([S-61]).
    ///
    /// [S-61]: bcnet_transport::wire::protocol#s-61
    pub fn start_round(&mut self) {
        self.actions.push(Action::StartRound);
    }

    /// Requests a call of [`GamePolicy::on_wake`](super::GamePolicy::on_wake) at `time`.
    ///
    /// It replaces an earlier request. For a fixed tick, request the due time plus the tick in `on_wake`: ticks that are
    /// late are made up for, at most 64 at once. A time that is not after the due time becomes one millisecond from now.
    pub const fn wake_at(&mut self, time: Time) {
        *self.wake_at = Some(time);
    }
}

/// A player in the game, as a policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct PlayerView<'a>(pub(crate) &'a Member);

impl<'a> PlayerView<'a> {
    /// Returns the peer id.
    #[must_use]
    pub const fn id(self) -> PeerId {
        self.0.id
    }

    /// Returns the name. It has no control characters.
    #[must_use]
    pub fn name(self) -> &'a str {
        self.0.name.as_deref().unwrap_or_default()
    }

    /// Returns the address.
    #[must_use]
    pub const fn address(self) -> SocketAddrV4 {
        self.0.address
    }

    /// Returns the slot, which determines the range of the player's object ids ([S-02]).
    ///
    /// [S-02]: bcnet_transport::wire::protocol#s-02
    #[must_use]
    pub const fn slot(self) -> Option<u8> {
        self.0.slot
    }

    /// Returns the team, in missions with teams.
    #[must_use]
    pub const fn team(self) -> Option<u8> {
        self.0.team
    }

    /// Returns the score.
    #[must_use]
    pub const fn score(self) -> Score {
        self.0.score
    }

    /// Returns the object id and the species of the player's living ship.
    #[must_use]
    pub fn ship(self) -> Option<(ObjectId, Species)> {
        self.0.ship.alive.then_some((self.0.ship.object, self.0.ship.species))
    }

    /// Returns whether an object id is in the range of the player.
    #[must_use]
    pub fn owns(self, object: ObjectId) -> bool {
        self.0.slot.is_some() && object.owner() == self.0.slot
    }
}

fn find(members: &[Option<Box<Member>>], peer: PeerId) -> Option<PlayerView<'_>> {
    members.get(usize::from(peer.0))?.as_deref().map(PlayerView)
}
