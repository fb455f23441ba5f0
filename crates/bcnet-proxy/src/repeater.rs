//! What the proxy repeats by itself: parts that it holds until they have arrived, and its answers to their sender.

use std::collections::VecDeque;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Ack, Message, MessageId, Writer};

use crate::loss::Loss;
use crate::tracker::MessageTracker;

/// A part that its sender was told has arrived.
#[derive(Debug)]
struct HeldPart {
    id: MessageId,
    message: Box<[u8]>,
    /// When the last copy left, and when it is looked at again.
    sent: Time,
    due: Time,
    copies: u8,
    /// How many copies were followed by an ACK that tells no part: each arrived, or another part of the payload did.
    answered: u8,
}

/// An answer that is given again, in case the first one is lost.
#[derive(Debug, Clone, Copy)]
struct PendingAnswer {
    id: MessageId,
    due: Time,
    left: u8,
}

/// What is repeated for the sender of one direction.
#[derive(Debug, Default)]
pub(crate) struct Repeater {
    parts: Vec<HeldPart>,
    /// In the order in which they are due.
    answers: VecDeque<PendingAnswer>,
    /// When the next part may leave, and when one is due.
    may_send: Time,
    part_due: Option<Time>,
}

impl Repeater {
    /// Returns whether another part can be held.
    pub(crate) const fn has_room(&self, message: &[u8]) -> bool {
        self.parts.len() < MAX_HELD && message.len() <= MAX_PART
    }

    /// Holds a part of which a copy has just left.
    pub(crate) fn hold(&mut self, id: MessageId, message: &[u8], now: Time) {
        let due = now + wait(1);
        self.parts.push(HeldPart { id, message: message.into(), sent: now, due, copies: 1, answered: 0 });
        self.part_due = Some(self.part_due.map_or(due, |earliest| earliest.min(due)));
    }

    /// An answer has just left, and is to be given so many times in all.
    pub(crate) fn answer_again(&mut self, id: MessageId, copies: u8, now: Time) {
        if copies > 1 && self.answers.len() < MAX_ANSWERS {
            self.answers.push_back(PendingAnswer { id, due: now + ANSWER_WAIT, left: copies - 1 });
        }
    }

    /// Returns when something is to be done.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let part = self.part_due.map(|due| due.max(self.may_send));
        let answer = self.answers.front().map(|answer| answer.due);
        part.into_iter().chain(answer).min()
    }

    /// Writes the answers that are due, as far as there is room. Returns how many.
    pub(crate) fn write_answers(&mut self, writer: &mut Writer<'_>, now: Time) -> u64 {
        let mut written = 0;
        while let Some(answer) = self.answers.front().copied().filter(|answer| answer.due <= now) {
            if !writer.push(&Message::Ack(Ack::new(answer.id))) {
                break;
            }
            written += 1;
            self.answers.pop_front();
            self.answer_again(answer.id, answer.left, now);
        }
        written
    }

    /// Writes a part of which another copy is due. Returns whether there is one.
    pub(crate) fn write_part(
        &mut self,
        writer: &mut Writer<'_>,
        sent: &MessageTracker,
        loss: Loss,
        now: Time,
    ) -> bool {
        if self.part_due.is_none_or(|due| due > now) || self.may_send > now {
            return false;
        }
        let mut index = 0;
        let mut written = false;
        while let Some(part) = self.parts.get_mut(index).filter(|_| !written) {
            if part.due <= now {
                if part.has_arrived(sent, loss) || part.copies >= MAX_PART_COPIES {
                    self.parts.swap_remove(index);
                    continue;
                }
                written = writer.push_encoded(&part.message);
                if !written {
                    // Answers have taken its place, and it has the next one.
                    break;
                }
                part.copies += 1;
                part.sent = now;
                part.due = now + wait(part.copies);
            }
            index += 1;
        }
        if written {
            self.may_send = now + PACE;
        }
        self.part_due = self.parts.iter().map(|part| part.due).min();
        written
    }
}

impl HeldPart {
    /// Returns whether it has arrived: its receiver said so, or it answered its payload so often after copies of this part
    /// that all of them would have to be lost.
    fn has_arrived(&mut self, sent: &MessageTracker, loss: Loss) -> bool {
        self.answered += u8::from(sent.is_acked_since(self.id.seq, self.sent));
        sent.is_shown(self.id) || self.answered >= loss.part_copies()
    }
}

/// Returns how long to wait after so many copies. Those that come late outlast bursts of loss, and the ACKs of earlier ones
/// that a stock engine sends for five seconds.
fn wait(copies: u8) -> Duration {
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
const MAX_HELD: usize = 255;
/// What fits into a datagram (T-04).
const MAX_PART: usize = 510;
/// After so many copies, more than a minute after the first, a receiver that never answered is long gone (T-56).
const MAX_PART_COPIES: u8 = 20;
/// Parts are repeated at least so far apart, so that nobody can have many sent at once.
const PACE: Duration = Duration::from_millis(10);
/// How many answers may wait to be given again.
const MAX_ANSWERS: usize = 64;
/// Four of them leave before a stock sender repeats its message.
const ANSWER_WAIT: Duration = Duration::from_millis(250);
