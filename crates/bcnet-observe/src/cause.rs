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
    if open.acks_seen == 0 && for_previous || restarted {
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
    use crate::sent_messages::{SentMessage, unknown_message_info};
    use crate::stock::RetransmitSchedule;
    use RetransmitCause::{AckLate, AckLost, AckNeverSent, NotCaptured};
    use bcnet_wire::{Ack, Channel, Data, Delivery, MessageId, Seq};

    const PREVIOUS: u64 = 1_000_000;
    const REPEAT: u64 = 1_090_000;
    const MILLISECOND: u64 = 1000;

    fn time(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    fn id(seq: u16) -> MessageId {
        MessageId { channel: Channel::Game, seq: Seq(seq), fragment: None }
    }

    /// Returns a retransmission of message 0 without ACKs so far.
    fn open() -> UnexplainedRetransmission {
        UnexplainedRetransmission {
            key: MessageKey::new(id(0)),
            at: time(REPEAT),
            mark: 0,
            send_count: 2,
            previous_send: time(PREVIOUS),
            acks_seen: 0,
            last_ack: Time::ZERO,
            arrived_before: None,
        }
    }

    /// Returns a sender whose messages were acknowledged after 100 ms each.
    fn sender() -> SideState {
        let mut sender = SideState::new();
        (0..40).for_each(|_| sender.rtt.record(100 * MILLISECOND));
        sender
    }

    /// Returns the cause after an ACK at a time, for a receiver that repeats its ACKs.
    fn cause(mut open: UnexplainedRetransmission, at: u64) -> Option<RetransmitCause> {
        find_cause(&mut open, &[], &sender(), None, time(at))
    }

    /// A capture that missed a datagram at the time of the previous send or later may have missed the ACK.
    #[test]
    fn ack_may_be_missed_from_the_previous_send_on() {
        let missed = [None, Some(PREVIOUS - 1), Some(PREVIOUS)];
        let causes = missed.map(|missed| cause_without_ack(&open(), missed.map(time)));
        assert_eq!(causes, [AckNeverSent, AckNeverSent, NotCaptured]);
    }

    /// An ACK much sooner after the retransmission than any round trip answers the previous copy.
    #[test]
    fn early_ack_is_late_for_the_previous_copy() {
        let previous_send = time(REPEAT + 10 * MILLISECOND - 99 * MILLISECOND);
        let answered = UnexplainedRetransmission { previous_send, ..open() };
        assert_eq!(cause(answered, REPEAT + 10 * MILLISECOND), Some(AckLate));
        // The round trip of the previous copy would be too long.
        let long_ago = UnexplainedRetransmission { previous_send: time(0), ..open() };
        assert_eq!(cause(long_ago, REPEAT + 10 * MILLISECOND), None);
        // The ACK may answer the retransmission.
        let soon = UnexplainedRetransmission { previous_send: time(REPEAT - MILLISECOND), ..open() };
        assert_eq!(cause(soon, REPEAT + 100 * MILLISECOND), None);
        // It is not the first ACK, and the receiver repeats its ACKs.
        let later = UnexplainedRetransmission { acks_seen: 1, ..answered };
        assert_eq!(cause(later, REPEAT + 10 * MILLISECOND), None);
    }

    /// A receiver that sends an ACK again sooner than it repeats ACKs has got the message again.
    #[test]
    fn ack_that_comes_before_its_repeat_shows_a_late_ack() {
        let at = 10 * SECOND;
        let seen =
            |acks_seen, ago| UnexplainedRetransmission { acks_seen, last_ack: time(at - ago), ..open() };
        assert_eq!(cause(seen(1, 499_999), at), Some(AckLate));
        assert_eq!(cause(seen(1, 500_000), at), None);
        assert_eq!(cause(seen(0, 499_999), at), None, "there was no ACK before");
    }

    #[test]
    fn enough_acks_decide_the_cause() {
        let at = 10 * SECOND;
        let seen = |acks_seen, arrived_before| {
            let last_ack = time(at - SECOND);
            cause(UnexplainedRetransmission { acks_seen, last_ack, arrived_before, ..open() }, at)
        };
        assert_eq!([0, 1, 3].map(|acks| seen(acks, Some(false))), [Some(AckNeverSent); 3]);
        assert_eq!([0, 1, 3].map(|acks| seen(acks, Some(true))), [None, Some(AckLost), Some(AckLost)]);
        assert_eq!(
            [0, 2, 3, 4].map(|acks| seen(acks, None)),
            [None, None, Some(AckNeverSent), Some(AckNeverSent)]
        );
    }

    /// Returns what the order of ACKs in a datagram shows. Message 1 was first sent at `first_sent`.
    fn order_shows(order: &[u16], first_sent: u64, sends: u32, at: u64) -> Option<bool> {
        let mut sent = SentMessages::new();
        let other = SentMessage {
            info: unknown_message_info(id(1)),
            first_sent: time(first_sent),
            last_sent: time(first_sent),
            sends,
            schedule: RetransmitSchedule::Sawtooth,
            acked_at: None,
            ack_count: 0,
            wrong_form: false,
            queued: true,
            fingerprint: 0,
            fragments: (0, 0),
        };
        sent.insert(other, 10);
        // Number 99 stands for a message that is no ACK.
        let data = Message::Data(Data { delivery: Delivery::Unreliable, urgent: false, payload: &[] });
        let message = |seq: &u16| if *seq == 99 { data } else { Message::Ack(Ack::new(id(*seq))) };
        let together: Vec<Message<'_>> = order.iter().map(message).collect();
        arrived_before(&open(), &together, &sent, time(at))
    }

    /// ACKs leave in the order in which messages arrived, so their order shows which copy arrived first.
    #[test]
    fn order_of_acks_shows_which_copy_arrived() {
        let (between, soon) = (PREVIOUS + 1, REPEAT + 100 * MILLISECOND);
        assert_eq!(order_shows(&[0, 1], between, 1, soon), Some(true));
        assert_eq!(order_shows(&[1, 0], between, 1, soon), Some(false));
        assert_eq!(order_shows(&[7, 1, 8, 0], between, 1, soon), Some(false), "unknown ACKs show nothing");
        assert_eq!(order_shows(&[0, 1], REPEAT - 1, 1, soon), Some(true));
        for first_sent in [PREVIOUS - 1, PREVIOUS, REPEAT, REPEAT + 1] {
            assert_eq!(order_shows(&[0, 1], first_sent, 1, soon), None, "first sent at {first_sent}");
        }
        assert_eq!(order_shows(&[0, 1], between, 2, soon), None, "the other message was sent twice");
        assert_eq!(order_shows(&[1], between, 1, soon), None, "there is no ACK of the message");
        assert_eq!(
            order_shows(&[99, 0, 1], between, 1, soon),
            None,
            "ACKs behind other messages do not count"
        );
    }

    /// After some time, ACKs leave only together with other messages, so a later position shows nothing.
    #[test]
    fn late_position_of_an_old_ack_shows_nothing() {
        let (between, late) = (PREVIOUS + 1, PREVIOUS + 1 + 1_250_000);
        assert_eq!(order_shows(&[0, 1], between, 1, late - 1), Some(true));
        assert_eq!(order_shows(&[0, 1], between, 1, late), None);
        assert_eq!(order_shows(&[1, 0], between, 1, late), Some(false));
    }
}
