//! Tracks sent messages and their expected receivers: every copy once, in order, byte for byte.
//!
//! This module knows nothing about servers. A slot is the place that the server assigns to a player. Reliable
//! messages of each slot are numbered as they are sent. A player must receive all messages of the other slots from
//! the time at which it enters the game.

use std::collections::VecDeque;
use std::time::Duration;

use bcnet_session::game::ObjectId;

use super::counters::SwarmCounters;
use super::payload::MAX_PLAYERS;

/// Sent messages by slot. The next player in a slot continues its list.
#[derive(Debug, Default)]
pub(super) struct DeliveryTracker {
    logs: [SentLog; MAX_PLAYERS as usize],
    /// The slot of each peer id.
    peer_slots: Vec<(u8, u8)>,
    /// Players in the game.
    pub(super) players_in_game: u64,
}

#[derive(Debug, Default)]
struct SentLog {
    entries: VecDeque<TrackedMessage>,
    /// The number of the first entry; older ones are removed.
    first_number: u64,
    /// Entries from this number on have not been sent yet.
    ///
    /// Earlier entries were sent, or their copy differs from the sent bytes and has no send time.
    next_unsent: u64,
    /// The last sent states, indexed by number: ship, number and time.
    recent_states: Vec<(ObjectId, u32, Duration)>,
}

#[derive(Debug)]
struct TrackedMessage {
    copy: Vec<u8>,
    /// When its player sent it, since 1970.
    sent_at: Option<Duration>,
    /// True if its sender receives a copy too.
    echoes_to_sender: bool,
    /// True if it may not have reached the server.
    maybe_unsent: bool,
}

/// Messages that one player has received from the others.
#[derive(Debug)]
pub(super) struct ReceiveProgress {
    slot: u8,
    /// By slot: the number of the first message that must arrive.
    required_from: [u64; MAX_PLAYERS as usize],
    /// By slot: the number after that of the last copy in order; `None` before the first copy.
    next_expected: [Option<u64>; MAX_PLAYERS as usize],
    /// Slots and numbers of messages that were skipped and have not arrived since.
    missing: Vec<(u8, u64)>,
}

impl DeliveryTracker {
    /// Returns the number of messages of a slot.
    pub(super) fn message_count(&self, slot: u8) -> u64 {
        self.log(slot).map_or(0, SentLog::end_number)
    }

    /// Records a message and its expected copy.
    pub(super) fn record_message(&mut self, slot: u8, copy: Vec<u8>, echoed: bool) {
        let Some(log) = self.logs.get_mut(usize::from(slot)) else { return };
        if log.entries.len() == MAX_MESSAGES {
            log.entries.pop_front();
            log.first_number += 1;
        }
        log.entries.push_back(TrackedMessage {
            copy,
            sent_at: None,
            echoes_to_sender: echoed,
            maybe_unsent: false,
        });
    }

    /// Finds the message that a slot is about to send for the first time.
    pub(super) fn match_first_send(&mut self, slot: u8, payload: &[u8]) -> Option<u64> {
        let log = self.logs.get_mut(usize::from(slot))?;
        let number = log.find(payload, log.next_unsent.max(log.first_number)..log.end_number())?;
        log.next_unsent = number + 1;
        Some(number)
    }

    /// Records the send time of a message.
    pub(super) fn note_sent(&mut self, slot: u8, number: u64, at: Duration) {
        let entry = self.logs.get_mut(usize::from(slot)).and_then(|log| log.get_mut(number));
        entry.into_iter().for_each(|entry| entry.sent_at = Some(at));
    }

    /// Records the send time of a state.
    pub(super) fn note_state_sent(&mut self, slot: u8, ship: ObjectId, number: u32, at: Duration) {
        let Some(log) = self.logs.get_mut(usize::from(slot)) else { return };
        log.recent_states.resize(MAX_STATES, (ObjectId::NONE, 0, Duration::ZERO));
        let place = log.recent_states.get_mut(number as usize % MAX_STATES);
        place.into_iter().for_each(|place| *place = (ship, number, at));
    }

    /// Returns when a state was sent, if that was not long ago.
    pub(super) fn state_sent_at(&self, slot: u8, ship: ObjectId, number: u32) -> Option<Duration> {
        let known = self.log(slot)?.recent_states.get(number as usize % MAX_STATES)?;
        (known.0 == ship && known.1 == number).then_some(known.2)
    }

    /// Returns when these bytes were last sent, since the receiver joined.
    pub(super) fn sent_at(&self, receiver: &ReceiveProgress, slot: u8, copy: &[u8]) -> Option<Duration> {
        let log = self.log(slot)?;
        let numbers = (receiver.required_from(slot).max(log.first_number)..log.end_number()).rev();
        let mut entries = numbers.filter_map(|number| log.get(number));
        entries.find(|entry| entry.sent_at.is_some() && entry.copy == copy)?.sent_at
    }

    /// Marks messages of a slot from `number` on as possibly never sent.
    pub(super) fn mark_maybe_unsent(&mut self, slot: u8, number: u64) {
        let Some(log) = self.logs.get_mut(usize::from(slot)) else { return };
        let base = log.first_number;
        let messages = log.entries.iter_mut().enumerate();
        for (_, entry) in messages.filter(|(at, _)| base + *at as u64 >= number) {
            entry.maybe_unsent = true;
        }
    }

    /// Adds a player to the game.
    pub(super) fn enter(&mut self, slot: u8, peer: u8) -> ReceiveProgress {
        self.peer_slots.retain(|(known, _)| *known != peer);
        self.peer_slots.push((peer, slot));
        self.players_in_game += 1;
        let mut must = [0; MAX_PLAYERS as usize];
        for (must, log) in must.iter_mut().zip(&self.logs) {
            *must = log.end_number();
        }
        ReceiveProgress {
            slot,
            required_from: must,
            next_expected: [None; MAX_PLAYERS as usize],
            missing: Vec::new(),
        }
    }

    /// Returns the slot of a peer, if it was ever in the game.
    pub(super) fn slot_of_peer(&self, peer: u8) -> Option<u8> {
        self.peer_slots.iter().find(|(known, _)| *known == peer).map(|(_, slot)| *slot)
    }

    /// Returns whether a slot belongs to this swarm. A server may have other players.
    pub(super) fn has_slot(&self, slot: u8) -> bool {
        self.peer_slots.iter().any(|(_, known)| *known == slot)
    }

    /// Returns whether a slot has sent `copy`; newcomers get some messages again.
    pub(super) fn was_recorded(&self, slot: u8, copy: &[u8]) -> bool {
        self.log(slot).is_some_and(|list| list.entries.iter().any(|entry| entry.copy == copy))
    }

    /// Records a copy of a message of `slot` that a player received.
    pub(super) fn on_copy(
        &self,
        receiver: &mut ReceiveProgress,
        slot: u8,
        copy: &[u8],
        counters: &mut SwarmCounters,
    ) {
        let Some(log) = self.log(slot) else { return counters.changed += 1 };
        let start = receiver.search_start(slot, log);
        if let Some(number) = log.find(copy, start..log.end_number()) {
            if !receiver.should_receive(slot, log.get(number)) {
                counters.echoed += 1;
                return;
            }
            // Before the first copy, the list may begin with messages from before the player joined.
            let first_due = receiver
                .next_expected(slot)
                .unwrap_or_else(|| receiver.required_from(slot))
                .max(log.first_number);
            let skipped = (first_due..number).filter(|number| receiver.must_receive(slot, log.get(*number)));
            let skipped: Vec<(u8, u64)> = skipped.map(|number| (slot, number)).collect();
            receiver.missing.extend(skipped);
            receiver.set_next_expected(slot, number + 1);
            counters.delivered += 1;
            return;
        }
        match log.find(copy, log.first_number..start) {
            Some(number) if receiver.missing.contains(&(slot, number)) => {
                receiver.missing.retain(|missing| *missing != (slot, number));
                counters.reordered += 1;
            }
            Some(_) => counters.duplicated += 1,
            None => self.on_changed_copy(receiver, slot, copy, counters),
        }
    }

    /// Counts a copy with bytes that no player sent.
    ///
    /// If its opcode is that of the next expected message, it counts as the changed copy of that message.
    fn on_changed_copy(
        &self,
        receiver: &mut ReceiveProgress,
        slot: u8,
        copy: &[u8],
        counters: &mut SwarmCounters,
    ) {
        counters.changed += 1;
        let Some(log) = self.log(slot) else { return };
        let first_due = receiver
            .next_expected(slot)
            .unwrap_or_else(|| receiver.required_from(slot))
            .max(log.first_number);
        let due = (first_due..log.end_number()).find(|number| receiver.must_receive(slot, log.get(*number)));
        if let Some(number) = due
            && log.get(number).is_some_and(|entry| entry.copy.first() == copy.first())
        {
            receiver.set_next_expected(slot, number + 1);
        }
    }

    /// Returns the number of copies that a present player has not received.
    pub(super) fn undelivered(&self, receiver: &ReceiveProgress) -> u64 {
        let mut undelivered = receiver.missing.len();
        for (slot, log) in (0..MAX_PLAYERS).zip(&self.logs) {
            let first = receiver
                .next_expected(slot)
                .unwrap_or_else(|| receiver.required_from(slot))
                .max(log.first_number);
            undelivered +=
                (first..log.end_number()).filter(|it| receiver.must_receive(slot, log.get(*it))).count();
        }
        undelivered as u64
    }

    fn log(&self, slot: u8) -> Option<&SentLog> {
        self.logs.get(usize::from(slot))
    }
}

impl SentLog {
    fn end_number(&self) -> u64 {
        self.first_number + self.entries.len() as u64
    }

    fn get(&self, number: u64) -> Option<&TrackedMessage> {
        self.entries.get(usize::try_from(number.checked_sub(self.first_number)?).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut TrackedMessage> {
        self.entries.get_mut(usize::try_from(number.checked_sub(self.first_number)?).ok()?)
    }

    fn find(&self, copy: &[u8], mut numbers: std::ops::Range<u64>) -> Option<u64> {
        numbers.find(|number| self.get(*number).is_some_and(|entry| entry.copy == copy))
    }
}

impl ReceiveProgress {
    /// Returns the number of skipped copies that never came.
    pub(super) fn missing_count(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Forgets skipped copies.
    pub(super) fn clear_missing(&mut self) {
        self.missing.clear();
    }

    /// Returns the first number at which the next copy may be found.
    fn search_start(&self, slot: u8, log: &SentLog) -> u64 {
        self.next_expected(slot).unwrap_or(log.first_number).max(log.first_number)
    }

    fn next_expected(&self, slot: u8) -> Option<u64> {
        self.next_expected.get(usize::from(slot)).copied().flatten()
    }

    fn set_next_expected(&mut self, slot: u8, number: u64) {
        self.next_expected.get_mut(usize::from(slot)).into_iter().for_each(|next| *next = Some(number));
    }

    fn required_from(&self, slot: u8) -> u64 {
        self.required_from.get(usize::from(slot)).copied().unwrap_or(0)
    }

    fn should_receive(&self, slot: u8, entry: Option<&TrackedMessage>) -> bool {
        entry.is_some_and(|entry| slot != self.slot || entry.echoes_to_sender)
    }

    fn must_receive(&self, slot: u8, entry: Option<&TrackedMessage>) -> bool {
        self.should_receive(slot, entry) && entry.is_some_and(|entry| !entry.maybe_unsent)
    }
}

/// Most messages of a slot in memory: half an hour at the recorded rate.
const MAX_MESSAGES: usize = 1024;
/// Most states of a slot in memory: twelve seconds.
const MAX_STATES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u8) -> Vec<u8> {
        vec![0x08, number, 1, 2, 3]
    }

    /// Slot 0 sends ten messages, of which the second and third are equal. Slot 1 receives what the relay makes of
    /// them. Returns the copies delivered, duplicated, reordered, changed and missing.
    fn counts_after(relay: impl FnOnce(&mut Vec<Vec<u8>>)) -> [u64; 5] {
        let (mut tracker, mut counters) = (DeliveryTracker::default(), SwarmCounters::default());
        tracker.enter(0, 2);
        tracker.record_message(0, order(200), false);
        let mut receiver = tracker.enter(1, 3);
        let mut copies: Vec<Vec<u8>> = [0, 1, 1, 2, 3, 4, 5, 6, 7, 8].map(order).into();
        for copy in &copies {
            tracker.record_message(0, copy.clone(), false);
        }
        relay(&mut copies);
        for copy in copies {
            tracker.on_copy(&mut receiver, 0, &copy, &mut counters);
        }
        let SwarmCounters { delivered, duplicated: doubled, reordered, changed, .. } = counters;
        [delivered, doubled, reordered, changed, tracker.undelivered(&receiver)]
    }

    #[test]
    fn faithful_relay_has_no_findings() {
        assert_eq!(counts_after(|_| {}), [10, 0, 0, 0, 0]);
        // Messages from before the player joined may arrive, but need not.
        assert_eq!(counts_after(|copies| copies.insert(0, order(200))), [11, 0, 0, 0, 0]);
    }

    #[test]
    fn lost_copy_counts_as_undelivered() {
        for lost in 0..10 {
            assert_eq!(counts_after(|copies| drop(copies.remove(lost))), [9, 0, 0, 0, 1], "{lost}");
        }
        assert_eq!(counts_after(Vec::clear), [0, 0, 0, 0, 10]);
    }

    #[test]
    fn duplicated_copy_is_counted() {
        for at in 0..10 {
            let double = |copies: &mut Vec<Vec<u8>>| copies.insert(at + 1, copies[at].clone());
            assert_eq!(counts_after(double), [10, 1, 0, 0, 0], "{at}");
        }
    }

    #[test]
    fn reordered_copy_is_counted() {
        assert_eq!(counts_after(|copies| copies.swap(4, 5)), [9, 0, 1, 0, 0]);
        assert_eq!(counts_after(|copies| copies.rotate_left(1)), [9, 0, 1, 0, 0]);
    }

    #[test]
    fn changed_copy_is_counted() {
        assert_eq!(counts_after(|copies| copies[6][4] ^= 0x80), [9, 0, 0, 1, 0]);
        assert_eq!(counts_after(|copies| copies[9].push(0)), [9, 0, 0, 1, 0]);
    }

    #[test]
    fn sender_receives_only_echoed_messages() {
        let (mut tracker, mut counters) = (DeliveryTracker::default(), SwarmCounters::default());
        let mut receiver = tracker.enter(0, 2);
        tracker.record_message(0, order(1), false);
        tracker.record_message(0, order(2), true);
        assert_eq!(tracker.undelivered(&receiver), 1);
        tracker.on_copy(&mut receiver, 0, &order(2), &mut counters);
        assert_eq!((counters.delivered, counters.echoed, tracker.undelivered(&receiver)), (1, 0, 0));
        tracker.record_message(0, order(3), false);
        tracker.on_copy(&mut receiver, 0, &order(3), &mut counters);
        assert_eq!((counters.delivered, counters.echoed), (1, 1));
    }

    #[test]
    fn maybe_unsent_message_need_not_be_delivered() {
        let (mut tracker, mut counters) = (DeliveryTracker::default(), SwarmCounters::default());
        tracker.enter(0, 2);
        let mut receiver = tracker.enter(1, 3);
        for number in 0..4 {
            tracker.record_message(0, order(number), false);
        }
        tracker.mark_maybe_unsent(0, 2);
        assert_eq!(tracker.undelivered(&receiver), 2);
        // The next player in that slot continues its list.
        tracker.record_message(0, order(4), false);
        for number in [0, 1, 2, 4] {
            tracker.on_copy(&mut receiver, 0, &order(number), &mut counters);
        }
        assert_eq!((counters.delivered, counters.findings(), tracker.undelivered(&receiver)), (4, 0, 0));
    }

    #[test]
    fn tracker_returns_the_send_time_of_the_latest_copy() {
        let mut tracker = DeliveryTracker::default();
        let early = tracker.enter(1, 3);
        let at = Duration::from_secs;
        // The same bytes are sent twice. Between them is an entry whose copy differs from the sent bytes.
        for (number, second) in [(1, 10), (7, 0), (1, 11), (2, 12)] {
            tracker.record_message(0, order(number), false);
            if second > 0 {
                let found = tracker.match_first_send(0, &order(number)).expect("it was recorded");
                assert_eq!(tracker.sent_at(&early, 0, &order(2)), None);
                tracker.note_sent(0, found, at(second));
            }
        }
        assert_eq!(tracker.match_first_send(0, &order(2)), None, "a retransmission is not a first send");
        let left = [1, 7, 2].map(|number| tracker.sent_at(&early, 0, &order(number)));
        assert_eq!(left, [Some(at(11)), None, Some(at(12))]);
        let late = tracker.enter(2, 4);
        assert_eq!(tracker.sent_at(&late, 0, &order(2)), None, "it was sent before the receiver joined");
    }

    #[test]
    fn tracker_returns_send_times_of_recent_states_only() {
        let mut tracker = DeliveryTracker::default();
        let [ship, other] = [0, 34].map(|number| ObjectId::new(5, number));
        let at = |number: u32| Duration::from_millis(number.into());
        assert_eq!(tracker.state_sent_at(5, ship, 0), None);
        (0..1000).for_each(|number| tracker.note_state_sent(5, ship, number, at(number)));
        assert_eq!(tracker.state_sent_at(5, ship, 999), Some(at(999)));
        assert_eq!(tracker.state_sent_at(5, ship, 999 - 127), Some(at(999 - 127)));
        assert_eq!(tracker.state_sent_at(5, ship, 999 - 128), None);
        assert_eq!(tracker.state_sent_at(5, other, 999), None);
    }
}
