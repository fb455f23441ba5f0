//! Effects of received ACKs on the outbox and on the estimates of the link.
//!
//! This module also implements the guard against forged ACKs ([T-60]).
//!
//! [T-60]: bcnet_wire::protocol#t-60

use super::{Peer, PeerState};
use crate::config::Config;
use crate::outbox::AckEffect;
use crate::time::Time;
use crate::wire::{Channel, Datagram, Kind, Message, MessageId, Seq};

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
    /// The number of ACKs for messages that were never sent.
    forged: u32,
    trust: AckTrust,
}

/// The effect that the ACKs of a datagram may have (T-60).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AckTrust {
    /// Each ACK acknowledges its message.
    #[default]
    Full,
    /// A message needs ACKs after two separate sends.
    Twice,
    /// The datagram is forged: its ACKs have no effect.
    None,
}

impl AckSummary {
    /// Adds the effect of the ACK of `id`. `next` are the next numbers of this side.
    #[inline(always)]
    pub(crate) fn add(&mut self, effect: AckEffect, id: MessageId, next: [Seq; 2]) {
        self.count += 1;
        match effect {
            AckEffect::Useless => {
                self.useless += 1;
                self.forged += u32::from(is_never_sent(id, next));
            }
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

    /// Returns whether each ACK acknowledges its message.
    #[inline]
    pub(crate) fn is_trusted(&self) -> bool {
        self.trust == AckTrust::Full
    }
}

impl Peer {
    /// Handles an ACK and adds its effect to `acks`.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, id: MessageId, acks: &mut AckSummary, now: Time) {
        let effect = match &mut self.outbox {
            Some(outbox) => outbox.on_ack(id, &self.rtt, now),
            None => AckEffect::Useless,
        };
        acks.add(effect, id, self.next_seq);
    }

    /// Does the same as [`on_ack`](Self::on_ack), unless the ACKs of the datagram are not trusted.
    #[inline]
    pub(crate) fn on_ack_with_trust(&mut self, id: MessageId, acks: &mut AckSummary, now: Time) {
        if acks.is_trusted() { self.on_ack(id, acks, now) } else { self.on_untrusted_ack(id, acks, now) }
    }

    /// Handles an ACK that may be forged (T-60).
    #[cold]
    fn on_untrusted_ack(&mut self, id: MessageId, acks: &mut AckSummary, now: Time) {
        let effect = match &mut self.outbox {
            Some(outbox) if acks.trust == AckTrust::Twice => outbox.on_guarded_ack(id, &self.rtt, now),
            Some(_) | None => AckEffect::Useless,
        };
        acks.add(effect, id, self.next_seq);
    }

    /// Returns the summary for the ACKs of a datagram from a peer that is not in the normal state.
    #[cold]
    pub(crate) fn begin_acks(&mut self, datagram: &Datagram<'_>, now: Time) -> AckSummary {
        if now >= self.guarded_until {
            self.guarded_until = Time::ZERO;
            if self.state == PeerState::Guarded {
                self.state = PeerState::Established;
            }
            return AckSummary::default();
        }
        let is_forged = acks_of(datagram).any(|id| is_never_sent(id, self.next_seq));
        AckSummary {
            trust: if is_forged { AckTrust::None } else { AckTrust::Twice },
            ..AckSummary::default()
        }
    }

    /// Updates the estimates and detects losses, after all ACKs of a datagram.
    ///
    /// Without ACKs there is nothing to do: the timer detects overdue messages. Returns the number of forged
    /// ACKs; if there are any, no ACK of the datagram has an effect.
    #[inline(always)]
    pub(crate) fn apply_acks(
        &mut self,
        acks: &AckSummary,
        datagram: Option<&Datagram<'_>>,
        config: &Config<u64>,
        now: Time,
    ) -> u32 {
        if acks.count == 0 {
            return 0;
        }
        self.counters.messages_in.add(Kind::ACK, acks.count.into());
        if acks.useless > 0 {
            self.counters.acks_useless += u64::from(acks.useless);
            if acks.forged > 0 {
                return self.guard_acks(acks, datagram, config, now);
            }
        }
        if acks.bytes > 0 {
            self.update_estimates(acks, config);
        }
        self.detect_loss(config, now);
        0
    }

    /// Handles a datagram with forged ACKs: withdraws all its ACKs, and guards later ones (T-60).
    #[cold]
    #[inline(never)]
    fn guard_acks(
        &mut self,
        acks: &AckSummary,
        datagram: Option<&Datagram<'_>>,
        config: &Config<u64>,
        now: Time,
    ) -> u32 {
        self.guarded_until = now.plus(GUARD_TIME);
        if self.state == PeerState::Established {
            self.state = PeerState::Guarded;
        }
        if let (Some(outbox), Some(datagram)) = (&mut self.outbox, datagram)
            && acks.bytes > 0
        {
            acks_of(datagram).for_each(|id| outbox.withdraw_ack(id));
        }
        self.detect_loss(config, now);
        acks.forged
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

/// Returns the ids that a datagram acknowledges.
fn acks_of(datagram: &Datagram<'_>) -> impl Iterator<Item = MessageId> {
    datagram.messages().filter_map(|message| match message {
        Message::Ack(ack) => Some(ack.id),
        Message::Control(_) | Message::Data(_) | Message::Keepalive => None,
    })
}

/// Returns whether an ACK is for a message that was never sent, and for no cookie or probe (T-60).
///
/// A host acknowledges a forged disconnect, which has the next number of the control channel.
fn is_never_sent(id: MessageId, [control, game]: [Seq; 2]) -> bool {
    let (next, first) = match id.channel {
        Channel::Control => (control, 1),
        Channel::Game => (game, 0),
    };
    (first..MAX_FORGED_AHEAD).contains(&id.seq.distance_from(next))
}

const MAX_ACKS_WITHOUT_SAMPLE: u8 = 8;
/// The distance from the next number up to which an ACK is evidence. Cookies and probes are further ahead.
const MAX_FORGED_AHEAD: i16 = 0x2000;
/// The time for which ACKs are guarded after a forged one, in microseconds.
const GUARD_TIME: u64 = 60_000_000;
