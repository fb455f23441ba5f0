//! Delays between players, and times of joins.
//!
//! A delay begins when a datagram leaves a player's socket. It ends when the system puts the copy into another
//! socket, or when it is read if the system does not report that time. All sockets belong to this process, so one
//! clock measures both, wherever the server is.

use std::time::Duration;

use bcnet_session::game::{self, EventDetail, EventNumber, Opcode};
use bcnet_transport::wire::{MessageId, Seq};
use serde_json::{Value, json};

use super::DelayHistogram;

/// Delays between players through the server, by kind of message.
#[derive(Debug, Default)]
pub(super) struct RelayDelays {
    states: DelayHistogram,
    chat: DelayHistogram,
    /// All other reliable messages.
    orders: DelayHistogram,
}

impl RelayDelays {
    /// Returns the histogram for messages of this kind.
    pub(super) const fn histogram_for(&mut self, opcode: Opcode) -> &mut DelayHistogram {
        match opcode {
            Opcode::STATE_UPDATE => &mut self.states,
            Opcode::CHAT => &mut self.chat,
            _ => &mut self.orders,
        }
    }

    pub(super) fn combined(&self) -> DelayHistogram {
        let mut all = self.states.clone();
        all.merge(&self.chat);
        all.merge(&self.orders);
        all
    }

    /// Returns all histograms with their names.
    pub(super) fn rows(&self) -> [(&'static str, DelayHistogram); 4] {
        [
            ("states", self.states.clone()),
            ("chat", self.chat.clone()),
            ("orders", self.orders.clone()),
            ("all", self.combined()),
        ]
    }

    pub(super) fn json(&self) -> Value {
        self.rows().into_iter().map(|(name, times)| (name.to_owned(), times.json())).collect()
    }
}

/// Times since the first join request.
#[derive(Debug, Default)]
pub(super) struct JoinTimes {
    /// Until the server sends the mission.
    pub(super) load: DelayHistogram,
    /// Until the server lists the player.
    pub(super) lobby: DelayHistogram,
    /// The part of `lobby` in which the player waited for the server.
    pub(super) waiting: DelayHistogram,
}

impl JoinTimes {
    pub(super) fn json(&self) -> Value {
        json!({ "load": self.load.json(), "lobby": self.lobby.json(), "waiting": self.waiting.json() })
    }
}

/// Times of one joining player.
#[derive(Debug, Default)]
pub(super) struct JoinTimer {
    requested_at: Option<Duration>,
    /// When the last message that the server waits for was sent.
    last_sent_at: Duration,
    server_wait: Duration,
    /// The newest sent message of each channel: a retransmission is not new.
    newest: [Option<MessageId>; 2],
}

impl JoinTimer {
    /// Returns whether the player sends this message for the first time.
    pub(super) fn is_new(&mut self, id: MessageId) -> bool {
        let Some(newest) = self.newest.get_mut(id.channel as usize) else { return false };
        let is_new = newest.is_none_or(|newest| match id.seq.distance_from(newest.seq) {
            0 => id.fragment > newest.fragment,
            ahead => ahead > 0,
        });
        if is_new {
            *newest = Some(id);
        }
        is_new
    }

    /// Records a new message of the player.
    pub(super) fn on_sent(&mut self, at: Duration) {
        self.requested_at.get_or_insert(at);
        self.last_sent_at = at;
    }

    /// Records a new message of the server for the player with this id.
    pub(super) fn on_message(&mut self, payload: &[u8], own: u8, at: Duration, joins: &mut JoinTimes) {
        let Some(requested_at) = self.requested_at else { return };
        let opcode = Opcode::of(payload);
        let is_listed = opcode == Some(Opcode::PLAYER_LIST_EVENT) && announces_player(payload, own);
        if is_listed || matches!(opcode, Some(Opcode::CHECKSUM_REQUEST | Opcode::GAME_INIT)) {
            self.server_wait += at.saturating_sub(self.last_sent_at);
        }
        if opcode == Some(Opcode::GAME_INIT) {
            joins.load.add(at.saturating_sub(requested_at), 1);
        }
        if is_listed {
            self.requested_at = None;
            joins.lobby.add(at.saturating_sub(requested_at), 1);
            joins.waiting.add(self.server_wait, 1);
        }
    }
}

/// Returns whether this event announces the player `own` to everyone.
fn announces_player(payload: &[u8], own: u8) -> bool {
    match game::Message::parse(payload) {
        Ok(game::Message::PlayerListEvent(event)) => {
            event.event == EventNumber::NEW_PLAYER_IN_GAME && event.detail == EventDetail::Player(own)
        }
        _ => false,
    }
}

/// A window of received sequence numbers; numbers far behind count as received.
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    newest: Option<Seq>,
    /// Bit `n`: the number `n` behind the newest.
    seen: u128,
}

impl ReplayWindow {
    /// Returns whether this number comes for the first time.
    pub(super) fn is_new(&mut self, seq: Seq) -> bool {
        let ahead = self.newest.map_or(1, |newest| i32::from(seq.distance_from(newest)));
        if ahead > 0 {
            self.newest = Some(seq);
            self.seen = self.seen.checked_shl(ahead.unsigned_abs()).unwrap_or(0) | 1;
            return true;
        }
        let Some(bit) = 1_u128.checked_shl(ahead.unsigned_abs()) else { return false };
        let is_new = self.seen & bit == 0;
        self.seen |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use bcnet_transport::wire::Channel;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn replay_window_detects_duplicates_and_late_arrivals() {
        let mut window = ReplayWindow::default();
        let order = [0, 1, 3, 3, 2, 2, 1, 200, 199, 0, 65_000, 201];
        let new = order.map(|seq| window.is_new(Seq(seq)));
        let expected = [true, true, true, false, true, false, false, true, true, false, false, true];
        assert_eq!(new, expected);
        let mut window = ReplayWindow::default();
        assert_eq!([65_535, 0, 65_535, 1].map(|seq| window.is_new(Seq(seq))), [true, true, false, true]);
    }

    /// The player takes 10 ms for each answer, the server 3 ms.
    #[test]
    fn join_waiting_time_counts_only_the_server() {
        let (mut join, mut joins, mut now) = (JoinTimer::default(), JoinTimes::default(), 100 * MS);
        let id = |seq, part| MessageId { channel: Channel::Game, seq: Seq(seq), fragment: part };
        let listed = [&[0x17][..], &0x0866_u32.to_le_bytes(), &0x0080_00F1_u32.to_le_bytes(), &[0; 8], &[2]];
        join.on_sent(now);
        for (seq, step) in [&[0x20, 0][..], &[0x20, 2], &[0x01], &listed.concat()].into_iter().enumerate() {
            now += 3 * MS;
            join.on_message(step, 2, now, &mut joins);
            // A message about another player, and one that nobody waits for.
            join.on_message(&[&listed.concat()[..17], &[3]].concat(), 2, now + MS, &mut joins);
            join.on_message(&[0x28], 2, now + MS, &mut joins);
            for part in [Some(0), Some(1)] {
                assert!(join.is_new(id(seq as u16, part)));
                now += 5 * MS;
                join.on_sent(now);
                assert!(!join.is_new(id(seq as u16, part)), "a repeat is not news");
            }
        }
        let times = [&joins.load, &joins.lobby, &joins.waiting].map(|times| (times.count(), times.max()));
        assert_eq!(times, [(1, 29 * MS), (1, 42 * MS), (1, 12 * MS)]);
    }
}
