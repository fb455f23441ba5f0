//! What was said in a session and who must hear it: every copy once, in order, byte for byte.
//!
//! Nothing here knows how a server works. A player's orders are numbered as they are said; each other player that was
//! in the game by then must hear all of them from there on.

use std::collections::VecDeque;
use std::time::Duration;

use bcnet_session::game::ObjectId;

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
    /// All before this number have left their player, or never do as they are.
    leaving: u64,
    /// The last states that have left, each at the place of its number: which, and when.
    states: Vec<(ObjectId, u32, Duration)>,
}

#[derive(Debug)]
struct Entry {
    copy: Vec<u8>,
    /// When it left its player, since 1970.
    left: Option<Duration>,
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
    pub(super) fn say(&mut self, slot: u8, copy: Vec<u8>, echoed: bool) {
        let Some(list) = self.lists.get_mut(usize::from(slot)) else { return };
        if list.entries.len() == REMEMBERED {
            list.entries.pop_front();
            list.base += 1;
        }
        list.entries.push_back(Entry { copy, left: None, echoed, doubtful: false });
    }

    /// Finds the order that a slot is about to send for the first time.
    pub(super) fn leaves(&mut self, slot: u8, payload: &[u8]) -> Option<u64> {
        let list = self.lists.get_mut(usize::from(slot))?;
        let number = list.find(payload, list.leaving.max(list.base)..list.end())?;
        list.leaving = number + 1;
        Some(number)
    }

    /// An order has left its player.
    pub(super) fn note_left(&mut self, slot: u8, number: u64, at: Duration) {
        let entry = self.lists.get_mut(usize::from(slot)).and_then(|list| list.get_mut(number));
        entry.into_iter().for_each(|entry| entry.left = Some(at));
    }

    /// A state has left its player.
    pub(super) fn note_state_left(&mut self, slot: u8, ship: ObjectId, number: u32, at: Duration) {
        let Some(list) = self.lists.get_mut(usize::from(slot)) else { return };
        list.states.resize(STATES, (ObjectId::NONE, 0, Duration::ZERO));
        let place = list.states.get_mut(number as usize % STATES);
        place.into_iter().for_each(|place| *place = (ship, number, at));
    }

    /// Returns when a state has left its player, if that was not long ago.
    pub(super) fn state_left(&self, slot: u8, ship: ObjectId, number: u32) -> Option<Duration> {
        let known = self.list(slot)?.states.get(number as usize % STATES)?;
        (known.0 == ship && known.1 == number).then_some(known.2)
    }

    /// Returns when the last of these bytes has left, if it was said since the listener came.
    pub(super) fn left(&self, listener: &Listener, slot: u8, copy: &[u8]) -> Option<Duration> {
        let list = self.list(slot)?;
        let numbers = (listener.must(slot).max(list.base)..list.end()).rev();
        let mut entries = numbers.filter_map(|number| list.get(number));
        entries.find(|entry| entry.left.is_some() && entry.copy == copy)?.left
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
    pub(super) fn hear(&self, listener: &mut Listener, slot: u8, copy: &[u8], totals: &mut SwarmTotals) {
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
            totals.delivered += 1;
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

    fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
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
/// How many states of a slot are remembered: twelve seconds.
const STATES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u8) -> Vec<u8> {
        vec![0x08, number, 1, 2, 3]
    }

    /// Slot 0 says ten things, of which the second and third are the same. Slot 1 hears what the relay makes of them.
    /// Returns how many copies are delivered, doubled, reordered, changed and never heard.
    fn outcome(relay: impl FnOnce(&mut Vec<Vec<u8>>)) -> [u64; 5] {
        let (mut ledger, mut totals) = (Ledger::default(), SwarmTotals::default());
        ledger.enter(0, 2);
        ledger.say(0, order(200), false);
        let mut listener = ledger.enter(1, 3);
        let mut copies: Vec<Vec<u8>> = [0, 1, 1, 2, 3, 4, 5, 6, 7, 8].map(order).into();
        for copy in &copies {
            ledger.say(0, copy.clone(), false);
        }
        relay(&mut copies);
        for copy in copies {
            ledger.hear(&mut listener, 0, &copy, &mut totals);
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
        ledger.say(0, order(1), false);
        ledger.say(0, order(2), true);
        assert_eq!(ledger.unheard(&listener), 1);
        ledger.hear(&mut listener, 0, &order(2), &mut totals);
        assert_eq!((totals.delivered, totals.echoed, ledger.unheard(&listener)), (1, 0, 0));
        ledger.say(0, order(3), false);
        ledger.hear(&mut listener, 0, &order(3), &mut totals);
        assert_eq!((totals.delivered, totals.echoed), (1, 1));
    }

    #[test]
    fn what_may_never_have_left_need_not_be_heard() {
        let (mut ledger, mut totals) = (Ledger::default(), SwarmTotals::default());
        ledger.enter(0, 2);
        let mut listener = ledger.enter(1, 3);
        for number in 0..4 {
            ledger.say(0, order(number), false);
        }
        ledger.doubt(0, 2);
        assert_eq!(ledger.unheard(&listener), 2);
        // The next one in that slot goes on with its list.
        ledger.say(0, order(4), false);
        for number in [0, 1, 2, 4] {
            ledger.hear(&mut listener, 0, &order(number), &mut totals);
        }
        assert_eq!((totals.delivered, totals.findings(), ledger.unheard(&listener)), (4, 0, 0));
    }

    #[test]
    fn what_was_said_is_known_by_when_it_left() {
        let mut ledger = Ledger::default();
        let early = ledger.enter(1, 3);
        let at = Duration::from_secs;
        // The same bytes twice, and between them what leaves in another form.
        for (number, second) in [(1, 10), (7, 0), (1, 11), (2, 12)] {
            ledger.say(0, order(number), false);
            if second > 0 {
                let found = ledger.leaves(0, &order(number)).expect("it was said");
                assert_eq!(ledger.left(&early, 0, &order(2)), None);
                ledger.note_left(0, found, at(second));
            }
        }
        assert_eq!(ledger.leaves(0, &order(2)), None, "it leaves once, however often it is repeated");
        let left = [1, 7, 2].map(|number| ledger.left(&early, 0, &order(number)));
        assert_eq!(left, [Some(at(11)), None, Some(at(12))]);
        let late = ledger.enter(2, 4);
        assert_eq!(ledger.left(&late, 0, &order(2)), None, "it was said before the listener came");
    }

    #[test]
    fn states_are_known_by_when_they_left_for_a_while() {
        let mut ledger = Ledger::default();
        let [ship, other] = [0, 34].map(|number| ObjectId::new(5, number));
        let at = |number: u32| Duration::from_millis(number.into());
        assert_eq!(ledger.state_left(5, ship, 0), None);
        (0..1000).for_each(|number| ledger.note_state_left(5, ship, number, at(number)));
        assert_eq!(ledger.state_left(5, ship, 999), Some(at(999)));
        assert_eq!(ledger.state_left(5, ship, 999 - 127), Some(at(999 - 127)));
        assert_eq!(ledger.state_left(5, ship, 999 - 128), None);
        assert_eq!(ledger.state_left(5, other, 999), None);
    }
}
