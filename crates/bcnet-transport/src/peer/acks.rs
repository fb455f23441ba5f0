//! ACKs arrive: what they settle, and what they tell about the link.

use super::Peer;
use crate::config::Config;
use crate::outbox::Settled;
use crate::time::Time;
use crate::wire::{Kind, MessageId};

/// What the ACKs of one datagram tell about the link.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AckSummary {
    bytes: usize,
    trip: Option<u64>,
    /// A guess at the round trip, of what was sent more than once.
    max_trip: Option<u64>,
    /// How many ACKs.
    count: u32,
    /// How many of them told nothing.
    useless: u32,
}

impl AckSummary {
    #[inline(always)]
    pub(crate) fn add(&mut self, settled: Settled) {
        self.count += 1;
        match settled {
            Settled::Useless => self.useless += 1,
            Settled::Noted => {}
            Settled::Arrived { bytes, trip, max_trip } => {
                self.bytes += bytes;
                self.trip = trip.or(self.trip);
                if max_trip.is_some() {
                    self.max_trip = max_trip;
                }
            }
        }
    }
}

impl Peer {
    /// An ACK came; what it tells is added to `acks`.
    #[inline(always)]
    pub(crate) fn settle(&mut self, id: MessageId, acks: &mut AckSummary, now: Time) {
        acks.add(match &mut self.outbox {
            Some(outbox) => outbox.settle(id, &self.trip, now),
            None => Settled::Useless,
        });
    }

    /// After a datagram: what do its ACKs tell, and what was lost? Without any there is no news: what is overdue is the
    /// timer's.
    #[inline(always)]
    pub(crate) fn learn(&mut self, acks: &AckSummary, config: &Config<u64>, now: Time) {
        if acks.count == 0 {
            return;
        }
        self.counters.messages_in.add(Kind::ACK, acks.count.into());
        self.counters.acks_useless += u64::from(acks.useless);
        if acks.bytes > 0 {
            self.measure(acks, config);
        }
        self.find_lost(config, now);
    }

    /// The round trip is measured once for a datagram, by the last of its ACKs that can tell.
    #[inline]
    fn measure(&mut self, acks: &AckSummary, config: &Config<u64>) {
        if let Some(outbox) = &mut self.outbox {
            outbox.trim();
        }
        // T-61: if nothing can be told for long, the way may have become longer than the timeout.
        self.blind = if acks.trip.is_some() { 0 } else { self.blind.saturating_add(1) };
        let guess = if self.blind > MAX_BLIND { acks.max_trip } else { None };
        if let Some(sample) = acks.trip.or(guess) {
            self.trip.sample(sample);
            self.set_timeout(config);
            self.blind = 0;
        }
        let in_flight = self.outbox.as_ref().map_or(0, |outbox| outbox.in_flight()) + acks.bytes;
        self.budget.acknowledged(acks.bytes, in_flight, acks.trip, &self.trip, config);
    }
}

const MAX_BLIND: u8 = 8;
