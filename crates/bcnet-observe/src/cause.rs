//! The cause of a retransmission, found from ACKs and times.

use alloc::vec::Vec;

use crate::finding::{FindingKind, RetransmitCause};
use crate::sent_messages::{MessageKey, SentMessages, UnexplainedRetransmission};
use crate::side::SideState;
use crate::stock::SECOND;
use crate::{FindingReporter, Side};
use bcnet_wire::{Message, Time};

/// Reports and removes the retransmissions that `is_over` selects: no ACK has explained them in time.
///
/// `missed` is the last time at which the capture missed a datagram of the receiver.
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

/// Returns the cause to report for a retransmission that no ACK has explained.
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

/// Returns the cause of a retransmission, if the ACK that arrives at `at` is enough to find it.
pub(crate) fn find_cause(
    open: &mut UnexplainedRetransmission,
    together: &[Message<'_>],
    sender: &SideState,
    missed: Option<Time>,
    at: Time,
) -> Option<RetransmitCause> {
    let (since, trip) = (at.micros_since(open.at), sender.rtt);
    let for_previous = trip.is_below_min(since) && trip.is_plausible(at.micros_since(open.previous_send));
    // A stock receiver repeats an ACK at a fixed interval. It sends the ACK earlier only if the message has
    // arrived again.
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

/// Returns whether the receiver had the message before the retransmission, if its ACKs show it.
///
/// A receiver sends its ACKs at the start of a datagram, in the order in which the messages arrived. Take
/// another message that was first sent between the two copies and is acknowledged in the same datagram. If
/// its ACK comes later in the datagram, the earlier copy had arrived. If its ACK comes first, only the
/// retransmission arrived.
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
        // After three sends, an ACK leaves only together with other messages. Such ACKs are the last ones in
        // the datagram and in any order, so a later position proves nothing.
        let standalone = at.micros_since(other.first_sent) < STANDALONE_ACKS_WITHIN;
        (between && (standalone || place < own)).then_some(own < place)
    })
}

/// After this many ACKs the most likely cause is reported.
const MAX_ACKS_SEEN: u8 = 3;
/// A little less than the interval at which a stock receiver repeats an ACK.
const ACK_RESTARTED_WITHIN: u64 = SECOND / 2;
/// A little less than the time from the first to the last standalone send of an ACK: two intervals.
const STANDALONE_ACKS_WITHIN: u64 = SECOND + SECOND / 4;

#[cfg(test)]
mod tests {
    use super::*;
    use bcnet_wire::{Channel, MessageId, Seq};

    /// A capture that missed a datagram at the time of the previous send or later may have missed the ACK.
    #[test]
    fn ack_may_be_missed_from_the_previous_send_on() {
        let time = Time::from_micros;
        let id = MessageId { channel: Channel::Game, seq: Seq(0), fragment: None };
        let open = UnexplainedRetransmission {
            key: MessageKey::new(id),
            at: time(3000),
            mark: 0,
            send_count: 2,
            previous_send: time(2000),
            acks_seen: 0,
            last_ack: Time::ZERO,
            arrived_before: None,
        };
        let causes = [None, Some(1999), Some(2000)].map(|missed| cause_without_ack(&open, missed.map(time)));
        use RetransmitCause::{AckNeverSent, NotCaptured};
        assert_eq!(causes, [AckNeverSent, AckNeverSent, NotCaptured]);
    }
}
