//! Handles ACKs, and detects lost messages.

use super::stream::{OutboxSegment, SegmentState, StreamEntryMut};
use super::{Outbox, Transmission};
use crate::congestion::RttEstimator;
use crate::time::Time;
use crate::wire::{Channel, MessageId, Seq};

/// The effect of an ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckEffect {
    /// No message was waiting for the ACK.
    Useless,
    /// A plain ACK for a fragment: counted, but no fragment is acknowledged yet.
    Counted,
    /// `bytes` were acknowledged.
    ///
    /// `rtt` is the round-trip time, if it is unambiguous. `max_rtt` is its upper bound if the message was
    /// sent more than once.
    Delivered { bytes: usize, rtt: Option<u64>, max_rtt: Option<u64> },
}

/// The times of retransmission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetransmitPolicy {
    /// The retransmission timeout, in microseconds.
    pub(crate) rto: u64,
    /// The number of sends of one message after which its intervals grow.
    pub(crate) backoff_after_sends: u8,
}

impl Outbox {
    /// Handles an ACK (T-60, T-65). Call [`release_acked`](Self::release_acked) after the last ACK of a
    /// datagram.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, id: MessageId, rtt: &RttEstimator, now: Time) -> AckEffect {
        let (segment, freed) = match (self.stream(id.channel).find_mut(id.seq), id.fragment) {
            (Some(StreamEntryMut::Whole(segment)), None) => (*segment, segment.mark_acked()),
            (Some(StreamEntryMut::Split(split)), Some(part)) => {
                let Some(segment) = split.segments.get_mut(usize::from(part)) else {
                    return AckEffect::Useless;
                };
                let (copy, freed) = (*segment, segment.mark_acked());
                split.unacked -= u8::from(freed.is_some());
                split.deferred -= u8::from(copy.state == SegmentState::Deferred);
                // T-65: this may be the fragment that the others waited for.
                if freed.is_some() && split.all_deferred() {
                    self.retransmit_deferred(id.channel, id.seq, now);
                }
                (copy, freed)
            }
            (Some(StreamEntryMut::Split(_)), None) => return self.on_plain_ack(id.channel, id.seq, now),
            (Some(StreamEntryMut::Whole(_)), Some(_)) | (None, _) => return AckEffect::Useless,
        };
        let Some(freed) = freed else { return AckEffect::Useless };
        self.in_flight -= freed;
        self.queued -= 1;
        self.queued_bytes -= segment.len();
        if segment.sends == 1 {
            self.note_acked_datagram(segment.datagram);
            let rtt = Some(now.micros_since(segment.first_sent));
            return AckEffect::Delivered { bytes: segment.len(), rtt, max_rtt: None };
        }
        let (is_early, max_trip) = self.on_ack_of_retransmission(segment, rtt, now);
        let answers_first = is_early && segment.sends == 2;
        // T-61: without evidence that the path is longer, the estimate is conservative.
        let careful = rtt
            .smoothed()
            .filter(|_| !is_early)
            .map_or(u64::MAX, |rtt| (2 * u64::from(rtt)).max(CONSERVATIVE_RTT));
        let rtt = answers_first.then_some(max_trip);
        AckEffect::Delivered { bytes: segment.len(), rtt, max_rtt: Some(max_trip.min(careful)) }
    }

    /// Handles an ACK while ACKs may be forged (T-60): a message needs ACKs after two separate sends.
    ///
    /// The first ACK causes the second send.
    #[cold]
    pub(crate) fn on_guarded_ack(&mut self, id: MessageId, rtt: &RttEstimator, now: Time) -> AckEffect {
        let segment = match (self.stream(id.channel).find_mut(id.seq), id.fragment) {
            (Some(StreamEntryMut::Whole(segment)), None) => segment,
            (Some(StreamEntryMut::Split(split)), Some(part)) => {
                let Some(segment) = split.segments.get_mut(usize::from(part)) else {
                    return AckEffect::Useless;
                };
                let is_deferred = segment.state == SegmentState::Deferred && !segment.is_confirmed();
                split.deferred -= u8::from(is_deferred);
                segment
            }
            // A peer that names fragments sends no plain ACKs for them; for others, T-65 needs several ACKs.
            (Some(StreamEntryMut::Split(split)), None) => {
                let names_fragments = split.segments.iter().any(|segment| segment.sends_at_first_ack > 0);
                return if names_fragments {
                    AckEffect::Counted
                } else {
                    self.on_plain_ack(id.channel, id.seq, now)
                };
            }
            (Some(StreamEntryMut::Whole(_)), Some(_)) | (None, _) => return AckEffect::Useless,
        };
        if matches!(segment.state, SegmentState::Unsent | SegmentState::Acked) {
            return AckEffect::Useless;
        }
        if segment.is_confirmed() {
            return self.on_ack(id, rtt, now);
        }
        segment.sends_at_first_ack = segment.sends;
        if segment.state != SegmentState::Lost {
            let freed = if segment.state == SegmentState::InFlight { segment.len() } else { 0 };
            segment.state = SegmentState::Lost;
            self.in_flight -= freed;
            self.insert_lost(id.channel, id.seq, id.fragment.unwrap_or(0));
        }
        AckEffect::Counted
    }

    /// Withdraws an ACK of this datagram, before [`release_acked`](Self::release_acked) (T-60).
    ///
    /// The message is sent again.
    #[cold]
    pub(crate) fn withdraw_ack(&mut self, id: MessageId) {
        let segment = match (self.stream(id.channel).find_mut(id.seq), id.fragment) {
            (Some(StreamEntryMut::Whole(segment)), None) => segment,
            (Some(StreamEntryMut::Split(split)), Some(part)) => {
                let Some(segment) = split.segments.get_mut(usize::from(part)) else { return };
                split.unacked += u8::from(segment.state == SegmentState::Acked);
                segment
            }
            (Some(_), _) | (None, _) => return,
        };
        if segment.state != SegmentState::Acked {
            return;
        }
        let len = segment.len();
        segment.state = SegmentState::Lost;
        self.queued += 1;
        self.queued_bytes += len;
        self.insert_lost(id.channel, id.seq, id.fragment.unwrap_or(0));
    }

    /// Handles an ACK of a message that was sent more than once.
    ///
    /// Returns whether the ACK came too soon to answer the last send, and the time since the first send.
    #[cold]
    #[inline(never)]
    fn on_ack_of_retransmission(
        &mut self,
        segment: OutboxSegment,
        rtt: &RttEstimator,
        now: Time,
    ) -> (bool, u64) {
        let since_last = now.micros_since(segment.last_sent);
        // An ACK much sooner after a retransmission than the round-trip time answers an earlier send. If
        // that is possible, the ACK must not make other messages look overtaken. It is measured only if
        // that is certain.
        let answers_last = |rtt: u32| since_last >= u64::from(rtt - rtt / 4);
        if answers_last(rtt.smoothed().unwrap_or(0)) {
            self.note_acked_datagram(segment.datagram);
        }
        (!answers_last(rtt.min()), now.micros_since(segment.first_sent))
    }

    /// Records that a message of this datagram was acknowledged.
    #[inline]
    const fn note_acked_datagram(&mut self, datagram: u32) {
        if self.newest_acked_datagram.wrapping_sub(datagram).cast_signed() < 0 {
            self.newest_acked_datagram = datagram;
        }
    }

    /// Drops acknowledged messages, and the oldest transmissions that are acknowledged completely.
    pub(crate) fn release_acked(&mut self) {
        for stream in [&mut self.control, &mut self.game] {
            if !stream.is_empty() {
                stream.release_acked();
            }
        }
        while let Some(&sent) = self.transmissions.front() {
            let last = Seq(sent.seq.0.wrapping_add(u16::from(sent.count) - 1));
            if self.stream(sent.channel).contains(last) {
                break;
            }
            self.transmissions.drop_front(1);
        }
    }

    /// Detects lost messages: timed out, or overtaken by ACKs of later datagrams (T-62). Returns their
    /// bytes.
    pub(crate) fn detect_loss(&mut self, policy: RetransmitPolicy, now: Time) -> usize {
        let mut bytes = 0;
        while let Some(&sent) = self.transmissions.front() {
            let Some(waiting) = self.skip_acked(sent) else {
                self.transmissions.drop_front(1);
                continue;
            };
            let overtaken =
                self.newest_acked_datagram.wrapping_sub(sent.datagram).cast_signed() >= REORDER_THRESHOLD;
            // T-62: a message with a longer interval is not retransmitted early.
            let segment = self.segment(waiting.channel, waiting.seq, waiting.fragment);
            let patient = segment.is_some_and(|segment| {
                segment.skipped_timeouts > 0 || policy.extra_timeouts(segment.sends) > 0
            });
            let due = overtaken && !patient || sent.sent_at.plus(policy.rto) <= now;
            let rest = if due { waiting.after_first() } else { waiting };
            match self.transmissions.front_mut() {
                Some(front) if rest.count > 0 => *front = rest,
                _ => self.transmissions.drop_front(1),
            }
            if !due {
                break;
            }
            bytes += self.on_transmission_lost(waiting, policy, now);
        }
        bytes
    }

    /// Returns the rest of a transmission behind the messages that are acknowledged or were retransmitted.
    #[inline]
    fn skip_acked(&mut self, mut sent: Transmission) -> Option<Transmission> {
        let stream = self.stream(sent.channel);
        while sent.count > 0 {
            let done = match stream.segment(sent.seq, sent.fragment) {
                Some(segment) if segment.is_unacked_since(sent.datagram, sent.sent_at) => return Some(sent),
                Some(_) => 1,
                // All messages before the oldest stored one are acknowledged.
                None => u8::try_from(stream.seqs_behind(sent.seq)).unwrap_or(u8::MAX).max(1),
            };
            sent.seq = Seq(sent.seq.0.wrapping_add(done.into()));
            sent.count = sent.count.saturating_sub(done);
        }
        None
    }

    /// Marks the first message of a lost transmission for retransmission, or extends its wait.
    ///
    /// Returns the number of lost bytes.
    fn on_transmission_lost(&mut self, sent: Transmission, policy: RetransmitPolicy, now: Time) -> usize {
        let Transmission { seq, fragment: part, channel, .. } = sent;
        let segment = match self.stream(channel).find_mut(seq) {
            Some(StreamEntryMut::Whole(segment)) => segment,
            Some(StreamEntryMut::Split(split)) if split.gets_plain_acks => {
                return self.on_fragment_timeout(sent, policy, now);
            }
            Some(StreamEntryMut::Split(split)) => match split.segments.get_mut(usize::from(part)) {
                Some(segment) => segment,
                None => return 0,
            },
            None => return 0,
        };
        if segment.skipped_timeouts < policy.extra_timeouts(segment.sends) {
            segment.skipped_timeouts += 1;
            segment.last_sent = now;
            self.transmissions.push(Transmission { sent_at: now, count: 1, ..sent });
            return 0;
        }
        (segment.skipped_timeouts, segment.state) = (0, SegmentState::Lost);
        let len = segment.len();
        self.insert_lost(channel, seq, part);
        self.in_flight -= len;
        len
    }

    /// Queues a lost message in the order of queueing (T-66).
    ///
    /// A peer with a full buffer still has space for the message that it expects, so that must come first.
    pub(super) fn insert_lost(&mut self, channel: Channel, seq: Seq, fragment: u8) {
        let (control, game) = (self.control.base_seq(), self.game.base_seq());
        let key = |(channel, seq, part): (Channel, Seq, u8)| match channel {
            Channel::Control => (channel, seq.distance_from(control), part),
            Channel::Game => (channel, seq.distance_from(game), part),
        };
        let new = (channel, seq, fragment);
        let place = match self.lost.back() {
            Some(last) if key(*last) > key(new) => self.lost.partition_point(|other| key(*other) <= key(new)),
            _ => self.lost.len(),
        };
        self.lost.insert(place, new);
    }
}

impl Transmission {
    /// Returns the transmission without its first message.
    const fn after_first(self) -> Self {
        Self { seq: self.seq.next(), count: self.count - 1, ..self }
    }
}

impl RetransmitPolicy {
    /// Returns how many timeouts a message waits in addition to the first (T-62).
    ///
    /// The intervals of a message that stays unanswered after many sends grow, because then the link is not
    /// the cause.
    pub(crate) fn extra_timeouts(self, sends: u8) -> u8 {
        let extra = sends.saturating_sub(self.backoff_after_sends).min(6);
        let max = (MAX_RETRANSMIT_INTERVAL / self.rto.max(1)).saturating_sub(1);
        u8::try_from(max).unwrap_or(u8::MAX).min((1 << extra) - 1)
    }
}

/// In microseconds; a longer timeout is waited for once.
const MAX_RETRANSMIT_INTERVAL: u64 = 5_000_000;
/// In microseconds: a conservative upper bound of the estimated round-trip time.
const CONSERVATIVE_RTT: u64 = 100_000;
/// The number of later datagrams after which a message counts as lost (T-62).
const REORDER_THRESHOLD: i32 = 3;
