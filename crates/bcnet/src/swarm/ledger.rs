//! What was said in a session and who must hear it: every copy once, in order, byte for byte.
//!
//! Nothing here knows how a server works. A player's orders are numbered as they are said; each other player that was
//! in the game by then must hear all of them from there on.

use std::collections::VecDeque;

use bcnet_transport::Time;

use super::payload::SLOTS;
use super::totals::SwarmTotals;

/// The players' orders, by slot. Whoever gets a slot next goes on with its list.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    lists: [List; SLOTS as usize],
    /// The slot of each peer id.
    slots: Vec<(u8, u8)>,
    /// Players in the game.
    pub(super) present: u64,
}

#[derive(Debug, Default)]
struct List {
    entries: VecDeque<Entry>,
    /// The number of the first entry; older ones are forgotten.
    base: u64,
}

#[derive(Debug)]
struct Entry {
    copy: Vec<u8>,
    said: Time,
    /// Its own player hears it too.
    echoed: bool,
    /// It may not have got to the server.
    doubtful: bool,
}

/// How far one player has heard the others.
#[derive(Debug)]
pub(super) struct Listener {
    slot: u8,
    /// By slot: everything from here on must be heard; what is next, if anything was heard.
    must: [u64; SLOTS as usize],
    next: [Option<u64>; SLOTS as usize],
    /// What was passed over.
    missing: Vec<(u8, u64)>,
}

impl Ledger {
    /// Returns how many orders a slot has said.
    pub(super) fn count(&self, slot: u8) -> u64 {
        self.list(slot).map_or(0, List::end)
    }

    /// Notes what others must hear of an order.
    pub(super) fn say(&mut self, slot: u8, copy: Vec<u8>, echoed: bool, now: Time) {
        let Some(list) = self.lists.get_mut(usize::from(slot)) else { return };
        if list.entries.len() == REMEMBERED {
            list.entries.pop_front();
            list.base += 1;
        }
        list.entries.push_back(Entry { copy, said: now, echoed, doubtful: false });
    }

    /// What a slot has said from `number` on may never have left.
    pub(super) fn doubt(&mut self, slot: u8, number: u64) {
        let Some(list) = self.lists.get_mut(usize::from(slot)) else { return };
        let base = list.base;
        let said = list.entries.iter_mut().enumerate();
        for (_, entry) in said.filter(|(at, _)| base + *at as u64 >= number) {
            entry.doubtful = true;
        }
    }

    /// A player enters the game.
    pub(super) fn enter(&mut self, slot: u8, peer: u8) -> Listener {
        self.slots.retain(|(known, _)| *known != peer);
        self.slots.push((peer, slot));
        self.present += 1;
        let mut must = [0; SLOTS as usize];
        for (must, list) in must.iter_mut().zip(&self.lists) {
            *must = list.end();
        }
        Listener { slot, must, next: [None; SLOTS as usize], missing: Vec::new() }
    }

    /// Returns the slot of a peer, if it was ever in the game.
    pub(super) fn slot(&self, peer: u8) -> Option<u8> {
        self.slots.iter().find(|(known, _)| *known == peer).map(|(_, slot)| *slot)
    }

    /// Returns whether a slot is one of this swarm. There may be others on a server.
    pub(super) fn knows(&self, slot: u8) -> bool {
        self.slots.iter().any(|(_, known)| *known == slot)
    }

    /// Returns whether `copy` is something that a slot has said; for what newcomers are told again.
    pub(super) fn was_said(&self, slot: u8, copy: &[u8]) -> bool {
        self.list(slot).is_some_and(|list| list.entries.iter().any(|entry| entry.copy == copy))
    }

    /// A player hears a copy of something that `slot` has said.
    pub(super) fn hear(
        &self,
        listener: &mut Listener,
        slot: u8,
        copy: &[u8],
        now: Time,
        totals: &mut SwarmTotals,
    ) {
        let Some(list) = self.list(slot) else { return totals.changed += 1 };
        let start = listener.start(slot, list);
        if let Some(number) = list.find(copy, start..list.end()) {
            if !listener.expects(slot, list.get(number)) {
                totals.echoed += 1;
                return;
            }
            // Before anything was heard, the list may begin with what was said before the player came.
            let first_due = listener.next(slot).unwrap_or_else(|| listener.must(slot)).max(list.base);
            let passed = (first_due..number).filter(|number| listener.is_due(slot, list.get(*number)));
            let passed: Vec<(u8, u64)> = passed.map(|number| (slot, number)).collect();
            listener.missing.extend(passed);
            listener.set_next(slot, number + 1);
            if let Some(entry) = list.get(number) {
                totals.delivered(now.since(entry.said));
            }
            return;
        }
        match list.find(copy, list.base..start) {
            Some(number) if listener.missing.contains(&(slot, number)) => {
                listener.missing.retain(|missing| *missing != (slot, number));
                totals.reordered += 1;
            }
            Some(_) => totals.doubled += 1,
            None => self.hear_changed(listener, slot, copy, totals),
        }
    }

    /// Bytes that nobody has said stand for what is due, if that has the same opcode.
    fn hear_changed(&self, listener: &mut Listener, slot: u8, copy: &[u8], totals: &mut SwarmTotals) {
        totals.changed += 1;
        let Some(list) = self.list(slot) else { return };
        let first_due = listener.next(slot).unwrap_or_else(|| listener.must(slot)).max(list.base);
        let due = (first_due..list.end()).find(|number| listener.is_due(slot, list.get(*number)));
        if let Some(number) = due
            && list.get(number).is_some_and(|entry| entry.copy.first() == copy.first())
        {
            listener.set_next(slot, number + 1);
        }
    }

    /// Returns how many copies a player that is still there has not heard.
    pub(super) fn unheard(&self, listener: &Listener) -> u64 {
        let mut unheard = listener.missing.len();
        for (slot, list) in (0..SLOTS).zip(&self.lists) {
            let first = listener.next(slot).unwrap_or_else(|| listener.must(slot)).max(list.base);
            unheard += (first..list.end()).filter(|it| listener.is_due(slot, list.get(*it))).count();
        }
        unheard as u64
    }

    fn list(&self, slot: u8) -> Option<&List> {
        self.lists.get(usize::from(slot))
    }
}

impl List {
    fn end(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn find(&self, copy: &[u8], mut numbers: std::ops::Range<u64>) -> Option<u64> {
        numbers.find(|number| self.get(*number).is_some_and(|entry| entry.copy == copy))
    }
}

impl Listener {
    /// Returns what was passed over and never came.
    pub(super) fn missing(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Forgets what was passed over.
    pub(super) fn forgive(&mut self) {
        self.missing.clear();
    }

    /// Returns where the next copy may be found at the earliest.
    fn start(&self, slot: u8, list: &List) -> u64 {
        self.next(slot).unwrap_or(list.base).max(list.base)
    }

    fn next(&self, slot: u8) -> Option<u64> {
        self.next.get(usize::from(slot)).copied().flatten()
    }

    fn set_next(&mut self, slot: u8, number: u64) {
        self.next.get_mut(usize::from(slot)).into_iter().for_each(|next| *next = Some(number));
    }

    fn must(&self, slot: u8) -> u64 {
        self.must.get(usize::from(slot)).copied().unwrap_or(0)
    }

    fn expects(&self, slot: u8, entry: Option<&Entry>) -> bool {
        entry.is_some_and(|entry| slot != self.slot || entry.echoed)
    }

    fn is_due(&self, slot: u8, entry: Option<&Entry>) -> bool {
        self.expects(slot, entry) && entry.is_some_and(|entry| !entry.doubtful)
    }
}

/// How many orders of a slot are remembered. At the recorded pace that is half an hour.
const REMEMBERED: usize = 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Time = Time::ZERO;

    fn order(number: u8) -> Vec<u8> {
        vec![0x08, number, 1, 2, 3]
    }

    /// Slot 0 says ten things, of which the second and third are the same. Slot 1 hears what the relay makes of them.
    /// How many copies are delivered, doubled, reordered, changed and never heard.
    fn outcome(relay: impl FnOnce(&mut Vec<Vec<u8>>)) -> [u64; 5] {
        let (mut ledger, mut totals) = (Ledger::default(), SwarmTotals::default());
        ledger.enter(0, 2);
        ledger.say(0, order(200), false, NOW);
        let mut listener = ledger.enter(1, 3);
        let mut copies: Vec<Vec<u8>> = [0, 1, 1, 2, 3, 4, 5, 6, 7, 8].map(order).into();
        for copy in &copies {
            ledger.say(0, copy.clone(), false, NOW);
        }
        relay(&mut copies);
        for copy in copies {
            ledger.hear(&mut listener, 0, &copy, NOW + Duration::from_millis(7), &mut totals);
        }
        let SwarmTotals { delivered, doubled, reordered, changed, .. } = totals;
        [delivered, doubled, reordered, changed, ledger.unheard(&listener)]
    }

    #[test]
    fn a_faithful_relay_has_no_findings() {
        assert_eq!(outcome(|_| {}), [10, 0, 0, 0, 0]);
        // What was said before the player came may be heard, but need not.
        assert_eq!(outcome(|copies| copies.insert(0, order(200))), [11, 0, 0, 0, 0]);
    }

    #[test]
    fn what_a_relay_loses_is_noticed() {
        for lost in 0..10 {
            assert_eq!(outcome(|copies| drop(copies.remove(lost))), [9, 0, 0, 0, 1], "{lost}");
        }
        assert_eq!(outcome(Vec::clear), [0, 0, 0, 0, 10]);
    }

    #[test]
    fn what_a_relay_doubles_is_noticed() {
        for at in 0..10 {
            let double = |copies: &mut Vec<Vec<u8>>| copies.insert(at + 1, copies[at].clone());
            assert_eq!(outcome(double), [10, 1, 0, 0, 0], "{at}");
        }
    }

    #[test]
    fn what_a_relay_puts_out_of_order_is_noticed() {
        assert_eq!(outcome(|copies| copies.swap(4, 5)), [9, 0, 1, 0, 0]);
        assert_eq!(outcome(|copies| copies.rotate_left(1)), [9, 0, 1, 0, 0]);
    }

    #[test]
    fn what_a_relay_changes_is_noticed() {
        assert_eq!(outcome(|copies| copies[6][4] ^= 0x80), [9, 0, 0, 1, 0]);
        assert_eq!(outcome(|copies| copies[9].push(0)), [9, 0, 0, 1, 0]);
    }

    #[test]
    fn only_chat_comes_back_to_its_sender() {
        let (mut ledger, mut totals) = (Ledger::default(), SwarmTotals::default());
        let mut listener = ledger.enter(0, 2);
        ledger.say(0, order(1), false, NOW);
        ledger.say(0, order(2), true, NOW);
        assert_eq!(ledger.unheard(&listener), 1);
        ledger.hear(&mut listener, 0, &order(2), NOW, &mut totals);
        assert_eq!((totals.delivered, totals.echoed, ledger.unheard(&listener)), (1, 0, 0));
        ledger.say(0, order(3), false, NOW);
        ledger.hear(&mut listener, 0, &order(3), NOW, &mut totals);
        assert_eq!((totals.delivered, totals.echoed), (1, 1));
    }

    #[test]
    fn what_may_never_have_left_need_not_be_heard() {
        let (mut ledger, mut totals) = (Ledger::default(), SwarmTotals::default());
        ledger.enter(0, 2);
        let mut listener = ledger.enter(1, 3);
        for number in 0..4 {
            ledger.say(0, order(number), false, NOW);
        }
        ledger.doubt(0, 2);
        assert_eq!(ledger.unheard(&listener), 2);
        // The next one in that slot goes on with its list.
        ledger.say(0, order(4), false, NOW);
        for number in [0, 1, 2, 4] {
            ledger.hear(&mut listener, 0, &order(number), NOW, &mut totals);
        }
        assert_eq!((totals.delivered, totals.findings(), ledger.unheard(&listener)), (4, 0, 0));
    }
}
