//! Why a message was sent again: what ACKs and time tell of it.

use alloc::vec::Vec;

use crate::finding::{RetransmitCause, What};
use crate::sent::{Key, SentMessages, Unexplained};
use crate::side::SideState;
use crate::stock::SECOND;
use crate::{Side, Teller};
use bcnet_wire::{Message, Time};

/// Retransmissions that nothing has explained, and nothing will: no ACK came. `missed` is when the capture last missed something of
/// the side that would have sent it.
pub(crate) fn close(
    state: &mut SideState,
    side: Side,
    missed: Option<Time>,
    is_over: impl Fn(&Unexplained) -> bool,
    tell: &mut Teller<'_>,
) {
    let mut over: Vec<Unexplained> = Vec::new();
    state.sent.unexplained.retain(|open| {
        let kept = !is_over(open);
        if !kept {
            over.push(*open);
        }
        kept
    });
    for open in over {
        tell_cause(state, side, open, unanswered(&open, missed), tell);
    }
}

/// Returns what there is to say of a message of which no ACK was seen.
pub(crate) fn unanswered(open: &Unexplained, missed: Option<Time>) -> RetransmitCause {
    match missed {
        Some(missed) if missed >= open.previous => RetransmitCause::NotCaptured,
        _ => RetransmitCause::AckNeverSent,
    }
}

pub(crate) fn tell_cause(
    state: &SideState,
    side: Side,
    open: Unexplained,
    cause: RetransmitCause,
    tell: &mut Teller<'_>,
) {
    let Some(sent) = state.sent.get(open.key) else { return };
    let (about, after) = (sent.about, open.at.since(sent.first));
    tell.tell_of(open.at, open.mark, side, What::Retransmission { about, times: open.times, after, cause });
    if cause == RetransmitCause::AckLost {
        tell.tell_of(open.at, open.mark, side, What::DuplicateDelivery { about });
    }
}

/// Returns why a message was sent again, if the ACK that comes now at `at` is enough to tell.
pub(crate) fn cause(
    open: &mut Unexplained,
    together: &[Message<'_>],
    sender: &SideState,
    missed: Option<Time>,
    at: Time,
) -> Option<RetransmitCause> {
    let (since, trip) = (at.micros_since(open.at), sender.round_trip);
    let for_previous = trip.is_impossible(since) && trip.is_likely(at.micros_since(open.previous));
    // A stock receiver repeats an ACK sooner than after its usual time only if the message came again meanwhile.
    let restarted = open.looks > 0 && at.micros_since(open.last_ack) < RESTARTED_WITHIN;
    if open.looks == 0 && for_previous || open.looks > 0 && restarted {
        return Some(RetransmitCause::AckLate);
    }
    open.arrived = open.arrived.or_else(|| arrived_before(open, together, &sender.sent, at));
    match open.arrived {
        Some(false) => Some(RetransmitCause::AckNeverSent),
        Some(true) if open.looks > 0 => Some(RetransmitCause::AckLost),
        _ if open.looks < MAX_LOOKS => None,
        Some(true) => Some(RetransmitCause::AckLost),
        None => Some(unanswered(open, missed)),
    }
}

/// Returns whether the receiver had the message before the retransmission, from the order of its ACKs: it keeps them in
/// the order of arrival and sends them in front of everything else. What was sent between the two copies and is
/// acknowledged with it tells.
fn arrived_before(
    open: &Unexplained,
    together: &[Message<'_>],
    sent: &SentMessages,
    at: Time,
) -> Option<bool> {
    let key = |message: &Message<'_>| match message {
        Message::Ack(ack) => Some(Key::new(ack.id)),
        Message::Keepalive | Message::Control(_) | Message::Data(_) => None,
    };
    let leading = || together.iter().map_while(key).enumerate();
    let (own, _) = leading().find(|(_, key)| *key == open.key)?;
    leading().find_map(|(place, key)| {
        let other = sent.get(key)?;
        let between = other.first > open.previous && other.first < open.at && other.sends == 1;
        // ACKs that had their free sends come last, whatever their order.
        let free = at.micros_since(other.first) < FREE_FOR;
        (between && (free || place < own)).then_some(own < place)
    })
}

/// After so many ACKs a retransmission is told as it looks.
const MAX_LOOKS: u8 = 3;
/// A little less than the time between two sendings of an ACK.
const RESTARTED_WITHIN: u64 = SECOND / 2;
/// A little less than the time in which an ACK has its free sends.
const FREE_FOR: u64 = SECOND + SECOND / 4;
