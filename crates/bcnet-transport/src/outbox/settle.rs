//! What becomes of what was sent: it is acknowledged, or taken for lost.

use super::stream::{Found, Segment, State};
use super::{Outbox, Sent};
use crate::retry::RoundTrip;
use crate::time::Time;
use crate::wire::{Channel, MessageId, Seq};

/// What an ACK did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Nothing waited for it.
    Useless,
    /// A plain ACK for a part: counted, nothing settled yet.
    Noted,
    /// `bytes` arrived; the round trip, if it can be told, and the most it can have been if it was sent again.
    Arrived { bytes: usize, trip: Option<u64>, max_trip: Option<u64> },
}

/// When something is sent again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResendPolicy {
    /// In microseconds after it was sent.
    pub(crate) timeout: u64,
    /// From this many sends of one message on, it waits longer.
    pub(crate) patient_from: u8,
}

impl Outbox {
    /// T-60, T-65: an ACK arrived. After the last of a datagram comes [`trim`](Self::trim).
    #[inline(always)]
    pub(crate) fn settle(&mut self, id: MessageId, trip: &RoundTrip, now: Time) -> Settled {
        let (segment, flown) = match (self.stream(id.channel).find(id.seq), id.part) {
            (Some(Found::Whole(segment)), None) => (*segment, segment.arrive()),
            (Some(Found::Split(split)), Some(part)) => {
                let Some(segment) = split.segments.get_mut(usize::from(part)) else {
                    return Settled::Useless;
                };
                let (copy, flown) = (*segment, segment.arrive());
                split.left -= u8::from(flown.is_some());
                split.waiting -= u8::from(copy.state == State::Waiting);
                // T-65: it may have been the last that the others waited for.
                if flown.is_some() && split.all_wait() {
                    self.go_on(id.channel, id.seq, now);
                }
                (copy, flown)
            }
            (Some(Found::Split(_)), None) => return self.note_plain(id.channel, id.seq, now),
            (Some(Found::Whole(_)), Some(_)) | (None, _) => return Settled::Useless,
        };
        let Some(flown) = flown else { return Settled::Useless };
        self.in_flight -= flown;
        self.queued -= 1;
        self.queued_bytes -= segment.len();
        if segment.sends == 1 {
            self.note_newest(segment.datagram);
            let trip = Some(now.micros_since(segment.first_sent));
            return Settled::Arrived { bytes: segment.len(), trip, max_trip: None };
        }
        let (is_early, max_trip) = self.settle_repeat(segment, trip, now);
        let answers_first = is_early && segment.sends == 2;
        // T-61: without a sign that the way is longer, the guess is a careful one.
        let careful =
            trip.smoothed().filter(|_| !is_early).map_or(u64::MAX, |trip| (2 * u64::from(trip)).max(CAREFUL));
        let trip = answers_first.then_some(max_trip);
        Settled::Arrived { bytes: segment.len(), trip, max_trip: Some(max_trip.min(careful)) }
    }

    /// A message that was sent more than once was acknowledged: whether the ACK comes too soon to answer the last send,
    /// and how long ago the first was.
    #[cold]
    #[inline(never)]
    fn settle_repeat(&mut self, segment: Segment, trip: &RoundTrip, now: Time) -> (bool, u64) {
        let since_last = now.micros_since(segment.last_sent);
        // An ACK that comes much sooner after a repeat than a round trip takes answers an earlier send. It must not make
        // others seem overtaken if it may, and is measured only if it does.
        let answers_last = |trip: u32| since_last >= u64::from(trip - trip / 4);
        if answers_last(trip.smoothed().unwrap_or(0)) {
            self.note_newest(segment.datagram);
        }
        (!answers_last(trip.least()), now.micros_since(segment.first_sent))
    }

    /// Something of this datagram was acknowledged.
    #[inline]
    const fn note_newest(&mut self, datagram: u32) {
        if self.newest.wrapping_sub(datagram).cast_signed() < 0 {
            self.newest = datagram;
        }
    }

    /// Drops what was settled, and the oldest transmissions if nothing of them is left.
    pub(crate) fn trim(&mut self) {
        for stream in [&mut self.control, &mut self.game] {
            if !stream.is_empty() {
                stream.trim();
            }
        }
        while let Some(&sent) = self.sent.front() {
            let last = Seq(sent.seq.0.wrapping_add(u16::from(sent.count) - 1));
            if self.stream(sent.channel).has(last) {
                break;
            }
            self.sent.skip(1);
        }
    }

    /// T-62: finds what was lost: timed out, or overtaken by the ACKs of later datagrams. Returns how many bytes.
    pub(crate) fn find_lost(&mut self, policy: ResendPolicy, now: Time) -> usize {
        let mut bytes = 0;
        while let Some(&sent) = self.sent.front() {
            let Some(waiting) = self.first_waiting(sent) else {
                self.sent.skip(1);
                continue;
            };
            let overtaken = self.newest.wrapping_sub(sent.datagram).cast_signed() >= OVERTAKEN;
            // T-62: once it waits longer than a timeout, nothing hurries it.
            let segment = self.segment(waiting.channel, waiting.seq, waiting.part);
            let patient =
                segment.is_some_and(|segment| segment.skips > 0 || policy.patience(segment.sends) > 0);
            let due = overtaken && !patient || sent.at.plus(policy.timeout) <= now;
            let rest = if due { waiting.after_first() } else { waiting };
            match self.sent.front_mut() {
                Some(front) if rest.count > 0 => *front = rest,
                _ => self.sent.skip(1),
            }
            if !due {
                break;
            }
            bytes += self.give_up(waiting, policy, now);
        }
        bytes
    }

    /// Returns what is left of a transmission after what was acknowledged, or sent again, at its beginning.
    #[inline]
    fn first_waiting(&mut self, mut sent: Sent) -> Option<Sent> {
        let stream = self.stream(sent.channel);
        while sent.count > 0 {
            let done = match stream.segment(sent.seq, sent.part) {
                Some(segment) if segment.is_awaited_since(sent.datagram, sent.at) => return Some(sent),
                Some(_) => 1,
                // Nothing of what is behind the first that is still here waits.
                None => u8::try_from(stream.behind(sent.seq)).unwrap_or(u8::MAX).max(1),
            };
            sent.seq = Seq(sent.seq.0.wrapping_add(done.into()));
            sent.count = sent.count.saturating_sub(done);
        }
        None
    }

    /// A transmission was lost: its first segment is sent again, or waits a little longer. Returns how many bytes were
    /// lost.
    fn give_up(&mut self, sent: Sent, policy: ResendPolicy, now: Time) -> usize {
        let Sent { seq, part, channel, .. } = sent;
        let segment = match self.stream(channel).find(seq) {
            Some(Found::Whole(segment)) => segment,
            Some(Found::Split(split)) if split.plain => return self.give_up_plain(sent, policy, now),
            Some(Found::Split(split)) => match split.segments.get_mut(usize::from(part)) {
                Some(segment) => segment,
                None => return 0,
            },
            None => return 0,
        };
        if segment.skips < policy.patience(segment.sends) {
            segment.skips += 1;
            segment.last_sent = now;
            self.sent.push(Sent { at: now, count: 1, ..sent });
            return 0;
        }
        (segment.skips, segment.state) = (0, State::Lost);
        let len = segment.len();
        self.insert_lost(channel, seq, part);
        self.in_flight -= len;
        len
    }

    /// T-66: what was lost is sent again in the order of queueing. A peer that can hold no more still has room for what
    /// it waits for, so that must come first.
    pub(super) fn insert_lost(&mut self, channel: Channel, seq: Seq, part: u8) {
        let (control, game) = (self.control.base(), self.game.base());
        let key = |(channel, seq, part): (Channel, Seq, u8)| match channel {
            Channel::Control => (channel, seq.distance_from(control), part),
            Channel::Game => (channel, seq.distance_from(game), part),
        };
        let new = (channel, seq, part);
        let place = match self.lost.back() {
            Some(last) if key(*last) > key(new) => self.lost.partition_point(|other| key(*other) <= key(new)),
            _ => self.lost.len(),
        };
        self.lost.insert(place, new);
    }
}

impl Sent {
    /// Without its first message.
    const fn after_first(self) -> Self {
        Self { seq: self.seq.next(), count: self.count - 1, ..self }
    }
}

impl ResendPolicy {
    /// T-62: returns how many timeouts a message waits beyond the first. One that stays unanswered after many sends is
    /// repeated ever more seldom: it is not the link that is bad then.
    pub(crate) fn patience(self, sends: u8) -> u8 {
        let extra = sends.saturating_sub(self.patient_from).min(6);
        let max = (MAX_PAUSE / self.timeout.max(1)).saturating_sub(1);
        u8::try_from(max).unwrap_or(u8::MAX).min((1 << extra) - 1)
    }
}

/// In microseconds; a longer timeout is waited for once.
const MAX_PAUSE: u64 = 5_000_000;
/// In microseconds: a guess at the round trip that is never too bold.
const CAREFUL: u64 = 100_000;
/// T-62: as many later datagrams were acknowledged.
const OVERTAKEN: i32 = 3;
