//! Why a message was sent again: what ACKs and time tell of it.

use alloc::vec::Vec;

use crate::finding::{FindingKind, RetransmitCause};
use crate::sent_messages::{MessageKey, SentMessages, UnexplainedRetransmission};
use crate::side::SideState;
use crate::stock::SECOND;
use crate::{FindingReporter, Side};
use bcnet_wire::{Message, Time};

/// Retransmissions that nothing has explained, and nothing will: no ACK came. `missed` is when the capture last missed something of
/// the side that would have sent it.
pub(crate) fn close_unexplained(
    state: &mut SideState,
    side: Side,
    missed: Option<Time>,
    is_over: impl Fn(&UnexplainedRetransmission) -> bool,
    reporter: &mut FindingReporter<'_>,
) {
    let mut over: Vec<UnexplainedRetransmission> = Vec::new();
    state.sent.unexplained.retain(|open| {
        let kept = !is_over(open);
        if !kept {
            over.push(*open);
        }
        kept
    });
    for open in over {
        report_cause(state, side, open, cause_without_ack(&open, missed), reporter);
    }
}

/// Returns what there is to say of a message of which no ACK was seen.
pub(crate) fn cause_without_ack(open: &UnexplainedRetransmission, missed: Option<Time>) -> RetransmitCause {
    match missed {
        Some(missed) if missed >= open.previous_send => RetransmitCause::NotCaptured,
        _ => RetransmitCause::AckNeverSent,
    }
}

pub(crate) fn report_cause(
    state: &SideState,
    side: Side,
    open: UnexplainedRetransmission,
    cause: RetransmitCause,
    reporter: &mut FindingReporter<'_>,
) {
    let Some(sent) = state.sent.get(open.key) else { return };
    let (about, after) = (sent.info, open.at.since(sent.first_sent));
    reporter.report_at(
        open.at,
        open.mark,
        side,
        FindingKind::Retransmission { about, times: open.send_count, after, cause },
    );
    if cause == RetransmitCause::AckLost {
        reporter.report_at(open.at, open.mark, side, FindingKind::DuplicateDelivery { about });
    }
}

/// Returns why a message was sent again, if the ACK that comes now at `at` is enough to tell.
pub(crate) fn find_cause(
    open: &mut UnexplainedRetransmission,
    together: &[Message<'_>],
    sender: &SideState,
    missed: Option<Time>,
    at: Time,
) -> Option<RetransmitCause> {
    let (since, trip) = (at.micros_since(open.at), sender.rtt);
    let for_previous = trip.is_below_min(since) && trip.is_plausible(at.micros_since(open.previous_send));
    // A stock receiver repeats an ACK sooner than after its usual time only if the message came again meanwhile.
    let restarted = open.acks_seen > 0 && at.micros_since(open.last_ack) < ACK_RESTARTED_WITHIN;
    if open.acks_seen == 0 && for_previous || open.acks_seen > 0 && restarted {
        return Some(RetransmitCause::AckLate);
    }
    open.arrived_before = open.arrived_before.or_else(|| arrived_before(open, together, &sender.sent, at));
    match open.arrived_before {
        Some(false) => Some(RetransmitCause::AckNeverSent),
        Some(true) if open.acks_seen > 0 => Some(RetransmitCause::AckLost),
        _ if open.acks_seen < MAX_ACKS_SEEN => None,
        Some(true) => Some(RetransmitCause::AckLost),
        None => Some(cause_without_ack(open, missed)),
    }
}

/// Returns whether the receiver had the message before the retransmission, from the order of its ACKs: it keeps them in
/// the order of arrival and sends them in front of everything else. What was sent between the two copies and is
/// acknowledged with it tells.
fn arrived_before(
    open: &UnexplainedRetransmission,
    together: &[Message<'_>],
    sent: &SentMessages,
    at: Time,
) -> Option<bool> {
    let key = |message: &Message<'_>| match message {
        Message::Ack(ack) => Some(MessageKey::new(ack.id)),
        Message::Keepalive | Message::Control(_) | Message::Data(_) => None,
    };
    let leading = || together.iter().map_while(key).enumerate();
    let (own, _) = leading().find(|(_, key)| *key == open.key)?;
    leading().find_map(|(place, key)| {
        let other = sent.get(key)?;
        let between = other.first_sent > open.previous_send && other.first_sent < open.at && other.sends == 1;
        // ACKs that had their free sends come last, whatever their order.
        let free = at.micros_since(other.first_sent) < STANDALONE_ACKS_WITHIN;
        (between && (free || place < own)).then_some(own < place)
    })
}

/// After so many ACKs a retransmission is told as it looks.
const MAX_ACKS_SEEN: u8 = 3;
/// A little less than the time between two sendings of an ACK.
const ACK_RESTARTED_WITHIN: u64 = SECOND / 2;
/// A little less than the time in which an ACK has its free sends.
const STANDALONE_ACKS_WITHIN: u64 = SECOND + SECOND / 4;
