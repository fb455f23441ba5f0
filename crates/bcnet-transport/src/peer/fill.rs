//! What leaves: datagrams are filled and counted.

use super::Peer;
use crate::config::Config;
use crate::outbox::{Filled, Readiness};
use crate::time::Time;
use crate::wire::{Kind, PeerId, Writer};

impl Peer {
    /// Fills one datagram. Returns how long it is, or `None` if there is nothing to send now. If nothing is left to send, it
    /// is not [`listed`](Self::listed) any more.
    #[inline(never)]
    pub(crate) fn fill(
        &mut self,
        buffer: &mut [u8],
        from: PeerId,
        config: &Config<u64>,
        now: Time,
    ) -> Option<usize> {
        let budget = self.budget.bytes();
        let ack_now = self.ack_due.is_some_and(|due| due <= now);
        let ready = self.outbox.as_mut().map_or(Readiness::Nothing, |outbox| outbox.readiness(budget));
        self.listed = false;
        if !ack_now && ready != Readiness::Now && !self.keepalive {
            return None;
        }
        let mut writer = Writer::with_limit(buffer, from, config.datagram_limit);
        let mut filled = Filled::default();
        if let Some(outbox) = &mut self.outbox {
            filled = outbox.fill(&mut writer, ready, budget, now);
            if !outbox.owes() {
                self.ack_due = None;
            }
        }
        if self.keepalive && writer.push_encoded(&[Kind::KEEPALIVE.0]) {
            self.keepalive = false;
            self.counters.messages_out.add(Kind::KEEPALIVE, 1);
        }
        let Filled { acks, again, fresh, control, game } = filled;
        let len = writer.finish()?.len();
        self.listed = self.keepalive || self.outbox.as_ref().is_some_and(|outbox| outbox.has_more());
        if game {
            self.last_data = now;
        }
        self.counters.acks_out += u64::from(acks);
        self.counters.retransmits += u64::from(again);
        let control = if control == [0; 6] { 0 } else { self.note_control(control) };
        self.counters.messages_out.add(Kind::DATA, u64::from(fresh) - control);
        self.note_datagram(len)
    }

    /// Counts control messages that leave, by kind. Returns how many.
    #[cold]
    fn note_control(&mut self, kinds: [u8; 6]) -> u64 {
        for (kind, count) in (0..).zip(kinds) {
            self.counters.messages_out.add(Kind(kind), count.into());
        }
        kinds.iter().copied().map(u64::from).sum()
    }

    /// Counts a datagram that leaves.
    #[inline]
    pub(crate) fn note_datagram(&mut self, len: usize) -> Option<usize> {
        self.counters.datagrams_out += 1;
        self.counters.bytes_out += len as u64;
        Some(len)
    }
}
