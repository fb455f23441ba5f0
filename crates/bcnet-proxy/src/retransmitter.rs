//! Retransmissions of the proxy: held fragments, and copies of its ACKs to their sender.

use std::collections::VecDeque;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Ack, Message, MessageId, Writer};

use crate::loss::LossEstimator;
use crate::tracker::MessageTracker;

/// A fragment that the proxy acknowledged to its sender.
#[derive(Debug)]
struct HeldFragment {
    id: MessageId,
    message: Box<[u8]>,
    /// Time of the last copy, and the next deadline.
    last_sent: Time,
    due: Time,
    copies: u8,
    /// Copies that were followed by an ACK without fragment index. Each such copy arrived, or another fragment of
    /// the payload did.
    acked_copies: u8,
}

/// A second copy of an ACK, in case the first is lost.
#[derive(Debug, Clone, Copy)]
struct PendingProxyAck {
    id: MessageId,
    due: Time,
    copies_left: u8,
}

/// Retransmissions for the sender of one direction.
#[derive(Debug, Default)]
pub(crate) struct Retransmitter {
    fragments: Vec<HeldFragment>,
    /// Pending ACKs in the order of their deadlines.
    acks: VecDeque<PendingProxyAck>,
    /// Earliest time of the next fragment, and the next deadline.
    next_send: Time,
    fragment_due: Option<Time>,
}

impl Retransmitter {
    /// Returns whether another fragment can be held.
    pub(crate) const fn has_capacity(&self, message: &[u8]) -> bool {
        self.fragments.len() < MAX_HELD_FRAGMENTS && message.len() <= MAX_FRAGMENT_LEN
    }

    /// Holds a fragment of which a copy has just been sent.
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

    /// Queues further copies of an ACK that has just been sent.
    pub(crate) fn queue_ack_copies(&mut self, id: MessageId, copies: u8, now: Time) {
        if copies > 1 && self.acks.len() < MAX_PENDING_ACKS {
            self.acks.push_back(PendingProxyAck {
                id,
                due: now + ACK_COPY_INTERVAL,
                copies_left: copies - 1,
            });
        }
    }

    /// Returns the next deadline.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let part = self.fragment_due.map(|due| due.max(self.next_send));
        let answer = self.acks.front().map(|answer| answer.due);
        part.into_iter().chain(answer).min()
    }

    /// Writes the due ACKs as far as they fit. Returns how many.
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

    /// Writes a fragment whose next copy is due. Returns whether it wrote one.
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
                    // ACKs filled the datagram; the fragment goes into the next one.
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
    /// Returns whether the fragment has arrived.
    ///
    /// It has if an ACK names it. It also has if ACKs of the payload followed so many copies that the loss of all of
    /// them is too unlikely.
    fn has_arrived(&mut self, sent: &MessageTracker, loss: LossEstimator) -> bool {
        self.acked_copies += u8::from(sent.is_acked_since(self.id.seq, self.last_sent));
        sent.is_ack_seen(self.id) || self.acked_copies >= loss.fragment_copies()
    }
}

/// Returns the wait after a number of copies.
///
/// Later waits are longer. They outlast bursts of loss, and the five seconds in which a stock engine repeats an ACK.
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

/// Most held fragments: one payload of the largest size (T-67).
const MAX_HELD_FRAGMENTS: usize = 255;
/// The largest message in a datagram (T-04).
const MAX_FRAGMENT_LEN: usize = 510;
/// Most copies of a fragment. After more than a minute without an answer, the receiver is gone (T-56).
const MAX_FRAGMENT_COPIES: u8 = 20;
/// Least time between two fragments, so that nobody can cause a burst.
const MIN_SPACING: Duration = Duration::from_millis(10);
/// Most pending ACKs.
const MAX_PENDING_ACKS: usize = 64;
/// Time between copies of an ACK. Four leave before a stock sender repeats its message.
const ACK_COPY_INTERVAL: Duration = Duration::from_millis(250);
