//! Effects of received ACKs on the outbox and on the estimates of the link.

use super::Peer;
use crate::config::Config;
use crate::outbox::AckEffect;
use crate::time::Time;
use crate::wire::{Kind, MessageId};

/// The combined effect of the ACKs of one datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AckSummary {
    bytes: usize,
    rtt: Option<u64>,
    /// An upper bound of the round-trip time, from messages that were sent more than once.
    max_rtt: Option<u64>,
    /// The number of ACKs.
    count: u32,
    /// The number of ACKs for messages that were not in flight.
    useless: u32,
}

impl AckSummary {
    #[inline(always)]
    pub(crate) fn add(&mut self, effect: AckEffect) {
        self.count += 1;
        match effect {
            AckEffect::Useless => self.useless += 1,
            AckEffect::Counted => {}
            AckEffect::Delivered { bytes, rtt: trip, max_rtt: max_trip } => {
                self.bytes += bytes;
                self.rtt = trip.or(self.rtt);
                if max_trip.is_some() {
                    self.max_rtt = max_trip;
                }
            }
        }
    }
}

impl Peer {
    /// Handles an ACK and adds its effect to `acks`.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, id: MessageId, acks: &mut AckSummary, now: Time) {
        acks.add(match &mut self.outbox {
            Some(outbox) => outbox.on_ack(id, &self.rtt, now),
            None => AckEffect::Useless,
        });
    }

    /// Updates the estimates and detects losses, after all ACKs of a datagram.
    ///
    /// Without ACKs there is nothing to do: the timer detects overdue messages.
    #[inline(always)]
    pub(crate) fn apply_acks(&mut self, acks: &AckSummary, config: &Config<u64>, now: Time) {
        if acks.count == 0 {
            return;
        }
        self.counters.messages_in.add(Kind::ACK, acks.count.into());
        self.counters.acks_useless += u64::from(acks.useless);
        if acks.bytes > 0 {
            self.update_estimates(acks, config);
        }
        self.detect_loss(config, now);
    }

    /// Updates round-trip time and congestion window.
    ///
    /// A datagram gives one sample, from its last unambiguous ACK.
    #[inline]
    fn update_estimates(&mut self, acks: &AckSummary, config: &Config<u64>) {
        if let Some(outbox) = &mut self.outbox {
            outbox.release_acked();
        }
        // T-61: if no ACK gives a sample for long, the path may have become longer than the timeout.
        self.acks_without_sample =
            if acks.rtt.is_some() { 0 } else { self.acks_without_sample.saturating_add(1) };
        let guess = if self.acks_without_sample > MAX_ACKS_WITHOUT_SAMPLE { acks.max_rtt } else { None };
        if let Some(sample) = acks.rtt.or(guess) {
            self.rtt.add_sample(sample);
            self.update_rto(config);
            self.acks_without_sample = 0;
        }
        let in_flight = self.outbox.as_ref().map_or(0, |outbox| outbox.in_flight()) + acks.bytes;
        self.congestion.on_ack(acks.bytes, in_flight, acks.rtt, &self.rtt, config);
    }
}

const MAX_ACKS_WITHOUT_SAMPLE: u8 = 8;
