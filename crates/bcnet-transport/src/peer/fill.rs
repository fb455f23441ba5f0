//! Fills datagrams for a peer and counts them.

use super::Peer;
use crate::config::Config;
use crate::outbox::{FilledDatagram, Readiness};
use crate::time::Time;
use crate::wire::{Kind, PeerId, Writer};

impl Peer {
    /// Fills one datagram. Returns its length, or `None` if nothing is to be sent now.
    ///
    /// Clears [`is_dirty`](Self::is_dirty) if no more work is pending.
    #[inline(never)]
    pub(crate) fn fill(
        &mut self,
        buffer: &mut [u8],
        from: PeerId,
        config: &Config<u64>,
        now: Time,
    ) -> Option<usize> {
        let budget = self.congestion.window();
        let ack_now = self.ack_due.is_some_and(|due| due <= now);
        let ready = self.outbox.as_mut().map_or(Readiness::Nothing, |outbox| outbox.readiness(budget));
        self.is_dirty = false;
        if !ack_now && ready != Readiness::Now && !self.keepalive_due {
            return None;
        }
        let mut writer = Writer::with_limit(buffer, from, config.datagram_limit);
        let mut filled = FilledDatagram::default();
        if let Some(outbox) = &mut self.outbox {
            filled = outbox.fill(&mut writer, ready, budget, now);
            if !outbox.has_pending_acks() {
                self.ack_due = None;
            }
        }
        if self.keepalive_due && writer.push_encoded(&[Kind::KEEPALIVE.0]) {
            self.keepalive_due = false;
            self.counters.messages_out.add(Kind::KEEPALIVE, 1);
        }
        let FilledDatagram { acks, retransmits: again, first_sends: fresh, control, has_game_data: game } =
            filled;
        let len = writer.finish()?.len();
        self.is_dirty =
            self.keepalive_due || self.outbox.as_ref().is_some_and(|outbox| outbox.has_pending_work());
        if game {
            self.last_data_sent = now;
        }
        self.counters.acks_out += u64::from(acks);
        self.counters.retransmits += u64::from(again);
        let control = if control == [0; 6] { 0 } else { self.count_control(control) };
        self.counters.messages_out.add(Kind::DATA, u64::from(fresh) - control);
        self.count_datagram(len)
    }

    /// Counts sent control messages by kind. Returns how many there are.
    #[cold]
    fn count_control(&mut self, kinds: [u8; 6]) -> u64 {
        for (kind, count) in (0..).zip(kinds) {
            self.counters.messages_out.add(Kind(kind), count.into());
        }
        kinds.iter().copied().map(u64::from).sum()
    }

    /// Counts a sent datagram.
    #[inline]
    pub(crate) fn count_datagram(&mut self, len: usize) -> Option<usize> {
        self.counters.datagrams_out += 1;
        self.counters.bytes_out += len as u64;
        Some(len)
    }
}
