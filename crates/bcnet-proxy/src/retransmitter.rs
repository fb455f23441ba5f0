//! What the proxy repeats by itself: parts that it holds until they have arrived, and its answers to their sender.

use std::collections::VecDeque;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Ack, Message, MessageId, Writer};

use crate::loss::LossEstimator;
use crate::tracker::MessageTracker;

/// A part that its sender was told has arrived.
#[derive(Debug)]
struct HeldFragment {
    id: MessageId,
    message: Box<[u8]>,
    /// When the last copy left, and when it is looked at again.
    last_sent: Time,
    due: Time,
    copies: u8,
    /// How many copies were followed by an ACK that tells no part: each arrived, or another part of the payload did.
    acked_copies: u8,
}

/// An answer that is given again, in case the first one is lost.
#[derive(Debug, Clone, Copy)]
struct PendingProxyAck {
    id: MessageId,
    due: Time,
    copies_left: u8,
}

/// What is repeated for the sender of one direction.
#[derive(Debug, Default)]
pub(crate) struct Retransmitter {
    fragments: Vec<HeldFragment>,
    /// In the order in which they are due.
    acks: VecDeque<PendingProxyAck>,
    /// When the next part may leave, and when one is due.
    next_send: Time,
    fragment_due: Option<Time>,
}

impl Retransmitter {
    /// Returns whether another part can be held.
    pub(crate) const fn has_capacity(&self, message: &[u8]) -> bool {
        self.fragments.len() < MAX_HELD_FRAGMENTS && message.len() <= MAX_FRAGMENT_LEN
    }

    /// Holds a part of which a copy has just left.
    pub(crate) fn hold_fragment(&mut self, id: MessageId, message: &[u8], now: Time) {
        let due = now + retransmit_interval(1);
        self.fragments.push(HeldFragment {
            id,
            message: message.into(),
            last_sent: now,
            due,
            copies: 1,
            acked_copies: 0,
        });
        self.fragment_due = Some(self.fragment_due.map_or(due, |earliest| earliest.min(due)));
    }

    /// An answer has just left, and is to be given so many times in all.
    pub(crate) fn queue_ack_copies(&mut self, id: MessageId, copies: u8, now: Time) {
        if copies > 1 && self.acks.len() < MAX_PENDING_ACKS {
            self.acks.push_back(PendingProxyAck {
                id,
                due: now + ACK_COPY_INTERVAL,
                copies_left: copies - 1,
            });
        }
    }

    /// Returns when something is to be done.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let part = self.fragment_due.map(|due| due.max(self.next_send));
        let answer = self.acks.front().map(|answer| answer.due);
        part.into_iter().chain(answer).min()
    }

    /// Writes the answers that are due, as far as there is room. Returns how many.
    pub(crate) fn write_acks(&mut self, writer: &mut Writer<'_>, now: Time) -> u64 {
        let mut written = 0;
        while let Some(answer) = self.acks.front().copied().filter(|answer| answer.due <= now) {
            if !writer.push(&Message::Ack(Ack::new(answer.id))) {
                break;
            }
            written += 1;
            self.acks.pop_front();
            self.queue_ack_copies(answer.id, answer.copies_left, now);
        }
        written
    }

    /// Writes a part of which another copy is due. Returns whether there is one.
    pub(crate) fn write_fragment(
        &mut self,
        writer: &mut Writer<'_>,
        sent: &MessageTracker,
        loss: LossEstimator,
        now: Time,
    ) -> bool {
        if self.fragment_due.is_none_or(|due| due > now) || self.next_send > now {
            return false;
        }
        let mut index = 0;
        let mut written = false;
        while let Some(part) = self.fragments.get_mut(index).filter(|_| !written) {
            if part.due <= now {
                if part.has_arrived(sent, loss) || part.copies >= MAX_FRAGMENT_COPIES {
                    self.fragments.swap_remove(index);
                    continue;
                }
                written = writer.push_encoded(&part.message);
                if !written {
                    // Answers have taken its place, and it has the next one.
                    break;
                }
                part.copies += 1;
                part.last_sent = now;
                part.due = now + retransmit_interval(part.copies);
            }
            index += 1;
        }
        if written {
            self.next_send = now + MIN_SPACING;
        }
        self.fragment_due = self.fragments.iter().map(|part| part.due).min();
        written
    }
}

impl HeldFragment {
    /// Returns whether it has arrived: its receiver said so, or it answered its payload so often after copies of this part
    /// that all of them would have to be lost.
    fn has_arrived(&mut self, sent: &MessageTracker, loss: LossEstimator) -> bool {
        self.acked_copies += u8::from(sent.is_acked_since(self.id.seq, self.last_sent));
        sent.is_ack_seen(self.id) || self.acked_copies >= loss.fragment_copies()
    }
}

/// Returns how long to wait after so many copies. Those that come late outlast bursts of loss, and the ACKs of earlier ones
/// that a stock engine sends for five seconds.
fn retransmit_interval(copies: u8) -> Duration {
    Duration::from_millis(match copies {
        0..4 => 250,
        4 => 500,
        5 => 1_000,
        6 => 2_000,
        7 => 4_000,
        8.. => 5_000,
    })
}

/// How many parts are held: one payload of the largest size (T-67).
const MAX_HELD_FRAGMENTS: usize = 255;
/// What fits into a datagram (T-04).
const MAX_FRAGMENT_LEN: usize = 510;
/// After so many copies, more than a minute after the first, a receiver that never answered is long gone (T-56).
const MAX_FRAGMENT_COPIES: u8 = 20;
/// Parts are repeated at least so far apart, so that nobody can have many sent at once.
const MIN_SPACING: Duration = Duration::from_millis(10);
/// How many answers may wait to be given again.
const MAX_PENDING_ACKS: usize = 64;
/// Four of them leave before a stock sender repeats its message.
const ACK_COPY_INTERVAL: Duration = Duration::from_millis(250);
