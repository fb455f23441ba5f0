//! ACKs arrive: what they settle, and what they tell about the link.

use super::Peer;
use crate::config::Settings;
use crate::outbox::Settled;
use crate::time::Time;
use crate::wire::{Kind, MessageId, Messages};

/// What the ACKs of one datagram tell about the link.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct News {
    bytes: usize,
    trip: Option<u64>,
    /// A guess at the round trip, of what was sent more than once.
    most: Option<u64>,
    /// How many ACKs.
    acks: u32,
    /// How many of them told nothing.
    useless: u32,
}

impl News {
    #[inline(always)]
    fn add(&mut self, settled: Settled) {
        match settled {
            Settled::Useless => self.useless += 1,
            Settled::Noted => {}
            Settled::Arrived { bytes, trip, most } => {
                self.bytes += bytes;
                self.trip = trip.or(self.trip);
                if most.is_some() {
                    self.most = most;
                }
            }
        }
    }
}

impl Peer {
    /// ACKs of whole messages, as many as come next; what they tell is added to `news`.
    #[inline(never)]
    pub(crate) fn settle_all(&mut self, messages: &mut Messages<'_>, news: &mut News, now: Time) {
        let (mut all, trip) = (*news, &self.trip);
        all.acks += u32::from(match self.outbox.as_deref_mut() {
            Some(outbox) => messages.settle_acks(|channel, seq| {
                all.add(outbox.settle(MessageId { channel, seq, part: None }, trip, now));
            }),
            None => messages.settle_acks(|_, _| all.add(Settled::Useless)),
        });
        *news = all;
    }

    /// As [`settle_all`](Self::settle_all), for one ACK of any kind.
    #[inline(always)]
    pub(crate) fn settle_one(&mut self, id: MessageId, news: &mut News, now: Time) {
        let trip = &self.trip;
        news.add(match &mut self.outbox {
            Some(outbox) => outbox.settle(id, trip, now),
            None => Settled::Useless,
        });
        news.acks += 1;
    }

    /// After all ACKs of a datagram: what do they tell, and what was lost?
    #[inline(always)]
    pub(crate) fn learn(&mut self, news: &News, config: &Settings, now: Time) {
        self.counters.messages_in.add(Kind::ACK, news.acks.into());
        self.counters.acks_useless += u64::from(news.useless);
        if news.bytes > 0 {
            self.measure(news, config);
        }
        self.find_lost(config, now);
    }

    /// The round trip is measured once for a datagram, by the last of its ACKs that can tell.
    #[inline]
    fn measure(&mut self, news: &News, config: &Settings) {
        if let Some(outbox) = &mut self.outbox {
            outbox.trim();
        }
        // T-61: if nothing can be told for long, the way may have become longer than the timeout.
        self.blind = if news.trip.is_some() { 0 } else { self.blind.saturating_add(1) };
        let guess = if self.blind > MAX_BLIND { news.most } else { None };
        if let Some(sample) = news.trip.or(guess) {
            self.trip.sample(sample);
            self.set_timeout(config);
            self.blind = 0;
        }
        let in_flight = self.outbox.as_ref().map_or(0, |outbox| outbox.in_flight()) + news.bytes;
        self.budget.acknowledged(news.bytes, in_flight, news.trip, &self.trip, config);
    }
}

const MAX_BLIND: u8 = 8;
