//! The analysis of one datagram on its way from one side to the other.

use alloc::vec::Vec;
use core::time::Duration;

use crate::cause::{cause_without_ack, find_cause, report_cause};
use crate::counters::opcode;
use crate::finding::{CaptureMiss, FindingKind, MessageInfo, RetransmitCause};
use crate::sent_messages::{MessageKey, SentMessage, UnexplainedRetransmission, unknown_message_info};
use crate::side::{ArrivalKind, DatagramFill, SideState};
use crate::stock::{DATAGRAM_CAPACITY, RetransmitSchedule};
use crate::{FindingReporter, NonStock, ObserverLimits, ParsedDatagram, Side};
use bcnet_wire::{Body, Control, Data, Delivery, Fragment, Message, MessageId, PeerId, Time};

/// Flags of a datagram's content. They let most datagrams skip most checks.
#[derive(Default)]
pub(crate) struct ContentFlags {
    pub(crate) control: bool,
    pub(crate) connect_reply: bool,
    pub(crate) reliable: bool,
}

impl ContentFlags {
    pub(crate) fn of(datagram: &ParsedDatagram<'_>) -> Self {
        datagram.messages().iter().fold(Self::default(), |found, message| Self {
            control: found.control || matches!(message, Message::Control(_)),
            connect_reply: found.connect_reply || is_connect_reply(message),
            reliable: found.reliable || message.id().is_some(),
        })
    }
}

/// The analysis of one datagram on its way from one side to the other.
pub(crate) struct DatagramAnalysis<'a, 'b> {
    pub(crate) sender: &'a mut SideState,
    pub(crate) receiver: &'a mut SideState,
    pub(crate) side: Side,
    pub(crate) limits: &'a ObserverLimits,
    pub(crate) reporter: &'a mut FindingReporter<'b>,
    /// `true` if the start of the connection was seen.
    pub(crate) saw_start: bool,
    /// `true` if the receiver reads the datagram at all.
    pub(crate) is_read: bool,
    /// `true` if the datagram has a connect reply, so an empty message in it is a cookie.
    pub(crate) has_connect_reply: bool,
    /// `true` if the receiver has disconnected.
    pub(crate) receiver_left: bool,
    pub(crate) capture_losses: u64,
}

/// Returns whether a host reads a datagram. From a client without an id it reads only requests and
/// disconnects.
pub(crate) fn is_read_by_host(datagram: &ParsedDatagram<'_>) -> bool {
    datagram.sender() != PeerId::UNASSIGNED
        || matches!(
            datagram.messages().first(),
            Some(Message::Control(Control {
                body: Body::ConnectRequest { .. } | Body::Disconnect { .. },
                ..
            }))
        )
}

/// Returns whether a message may be a cookie: only bcnet sends empty reliable messages (T-76).
pub(crate) const fn is_cookie_message(message: &Message<'_>) -> bool {
    matches!(message, Message::Data(Data { delivery: Delivery::Reliable(_), payload: [], .. }))
}

/// Returns whether a message is a connect reply.
const fn is_connect_reply(message: &Message<'_>) -> bool {
    matches!(message, Message::Control(Control { body: Body::ConnectReply { .. }, .. }))
}

impl DatagramAnalysis<'_, '_> {
    pub(crate) fn run(&mut self, datagram: &ParsedDatagram<'_>, reliable: bool) {
        let (at, side, limits) = (self.reporter.at, self.side, self.limits);
        let before = self.sender.last_sent.unwrap_or(at);
        let reporter = &mut *self.reporter;
        self.sender.read_before_send(at, datagram, limits, |id, times| {
            reporter.report(side, FindingKind::RepeatedAck { id, times });
        });
        if let Some((acks, waited)) = self.sender.ack_outbox.delayed_acks(datagram.messages(), before, at) {
            self.reporter
                .report(side, FindingKind::ClosedGate { acks, waited: Duration::from_micros(waited) });
        }
        // The network duplicates whole datagrams. Only duplicates with reliable messages matter here.
        let copy = reliable && self.sender.is_network_duplicate(fingerprint(datagram.as_bytes()), at);
        let mut filled = DatagramFill { at, bytes: datagram.as_bytes().len() - 2, leading_acks: 0 };
        let (mut only_acks, mut first_fresh) = (true, None);
        for message in datagram.messages() {
            self.sender.counters.count_message(message);
            only_acks &= matches!(message, Message::Ack(_));
            if only_acks {
                filled.leading_acks += message.wire_len();
            }
            if let Message::Ack(ack) = message {
                self.on_ack(ack.id, datagram.messages(), copy);
            } else if let Some(id) = message.id() {
                let fresh = self.on_reliable(id, message, copy);
                first_fresh = first_fresh.or_else(|| fresh.then(|| message.wire_len()));
            }
            self.note_non_stock(message);
        }
        self.check_starvation(filled, first_fresh);
        self.finish(datagram, filled);
    }

    fn finish(&mut self, datagram: &ParsedDatagram<'_>, filled: DatagramFill) {
        let (at, side, limits) = (self.reporter.at, self.side, self.limits);
        let reporter = &mut *self.reporter;
        let mut repeated = |id, times| reporter.report(side, FindingKind::RepeatedAck { id, times });
        self.sender.read_after_send(limits, &mut repeated);
        let tick = self.sender.tick();
        if datagram.as_bytes().len() < NOT_FULL_BELOW {
            let once = self.sender.ack_outbox.expire(at, |id, times| {
                if times > 1 {
                    repeated(id, times);
                }
            });
            if once {
                self.reporter.report(side, FindingKind::AcksOnce);
            }
        }
        let (reporter, losses) = (&mut *self.reporter, &mut self.capture_losses);
        self.sender.sent.expire(at, tick, |id| {
            *losses += 1;
            reporter.report(side.other(), FindingKind::CaptureLoss(CaptureMiss::Ack(id)));
        });
        self.sender.last_datagram = filled;
    }

    /// Handles an ACK that the sender sends for a message of the receiver.
    fn on_ack(&mut self, id: MessageId, together: &[Message<'_>], copy: bool) {
        let (at, side, limits) = (self.reporter.at, self.side, self.limits);
        if !copy {
            let again = !self.sender.has_unread(id);
            let (waited, over) = self.sender.ack_outbox.on_ack_sent(id, again, at, limits.messages);
            if let Some(waited) = waited {
                self.sender.ack_delay.record(waited);
            }
            if let Some(times) = over.filter(|times| *times > 1) {
                self.reporter.report(side, FindingKind::RepeatedAck { id, times });
            }
        }
        if !self.is_read {
            // A host that is not stock may have read the ACK all the same.
            self.receiver.sent.note_ignored_ack(MessageKey::new(id));
            return;
        }
        let key = MessageKey::new(id);
        let Some(sent) = self.receiver.sent.get_mut(key) else { return self.on_unknown_ack(id) };
        sent.ack_count = sent.ack_count.saturating_add(1);
        let (times, about, queued) = (sent.ack_count, sent.info, sent.queued);
        match sent.acked_at {
            None => {
                sent.acked_at = Some(at);
                if sent.sends == 1 {
                    let took = at.micros_since(sent.first_sent);
                    self.receiver.rtt.record(took);
                }
            }
            Some(since) => {
                let len = 4 + usize::from(id.fragment.is_some());
                self.sender.counters.stale_acks.add(len);
                self.reporter.report(side, FindingKind::StaleAck { about, age: at.since(since), times });
            }
        }
        if queued {
            self.receiver.on_arrival((at, self.reporter.mark), ArrivalKind::Ack(id), limits, |_, _| {});
        } else {
            self.note_redundant_ack(id);
        }
        self.explain(key, together);
    }

    /// Notes that the receiver gets an ACK that removes no message from its retransmit queue.
    #[inline]
    fn note_redundant_ack(&mut self, id: MessageId) {
        if self.receiver.handled_acks.is_some() {
            let place = (self.reporter.at, self.reporter.mark);
            self.receiver.on_arrival(place, ArrivalKind::RedundantAck(id), self.limits, |_, _| {});
        }
    }

    /// Handles an ACK for a message that was not seen.
    fn on_unknown_ack(&mut self, id: MessageId) {
        self.note_redundant_ack(id);
        if self.receiver.sent.note_wrong_form(id) {
            return;
        }
        let (at, mark) = (self.reporter.at, self.reporter.mark);
        let before = !self.saw_start && self.receiver.sequence_mut(id.channel).is_before_first(id.seq);
        self.receiver.sent.insert(unseen_message(id, at), self.limits.messages);
        if !before {
            let numbers = self.receiver.sequence_mut(id.channel);
            // The ACK of a cookie that was not captured says nothing about the numbers of messages.
            if !self.saw_start || numbers.is_near(id.seq) {
                numbers.on_message(id.seq, at, mark);
            }
            self.capture_losses += 1;
            self.reporter.report(self.side.other(), FindingKind::CaptureLoss(CaptureMiss::Message(id)));
        }
    }

    /// Tries to find the cause of a retransmission from an ACK of that message.
    fn explain(&mut self, key: MessageKey, together: &[Message<'_>]) {
        if self.receiver.sent.unexplained.is_empty() {
            return;
        }
        let (at, owner) = (self.reporter.at, self.side.other());
        let mut explained: Vec<(UnexplainedRetransmission, RetransmitCause)> = Vec::new();
        let mut open = core::mem::take(&mut self.receiver.sent.unexplained);
        open.retain_mut(|open| {
            if open.key != key {
                return true;
            }
            let cause = find_cause(open, together, self.receiver, self.sender.last_not_captured, at);
            (open.acks_seen, open.last_ack) = (open.acks_seen + 1, at);
            explained.extend(cause.map(|cause| (*open, cause)));
            cause.is_none()
        });
        self.receiver.sent.unexplained = open;
        for (open, cause) in explained {
            report_cause(self.receiver, owner, open, cause, self.reporter);
        }
    }

    /// Handles a reliable message from the sender. Returns whether this is its first send.
    fn on_reliable(&mut self, id: MessageId, message: &Message<'_>, copy: bool) -> bool {
        let (at, mark, side, limits) = (self.reporter.at, self.reporter.mark, self.side, self.limits);
        let reporter = &mut *self.reporter;
        if self.is_read {
            self.receiver.on_arrival((at, mark), ArrivalKind::Message(id), limits, |id, times| {
                reporter.report(side.other(), FindingKind::RepeatedAck { id, times });
            });
        }
        let key = MessageKey::new(id);
        let print = message_fingerprint(message);
        match self.sender.sent.get(key) {
            Some(sent) if sent.fingerprint == print || sent.fingerprint == UNSEEN_FINGERPRINT => {
                let about = sent.info;
                if copy {
                    self.reporter.report(side, FindingKind::DuplicateDelivery { about });
                } else {
                    self.on_retransmission(key, message);
                }
                return false;
            }
            _ => {}
        }
        let numbers = self.sender.sequence_mut(id.channel);
        if !is_cookie_message(message) || !self.has_connect_reply && numbers.is_near(id.seq) {
            numbers.on_message(id.seq, at, mark);
        }
        let opcode = opcode(message).or_else(|| self.sender.sent.opcode(id));
        let about = MessageInfo { id, kind: Some(message.kind()), opcode };
        let sent = SentMessage {
            info: about,
            first_sent: at,
            last_sent: at,
            sends: 1,
            schedule: RetransmitSchedule::of(message),
            acked_at: None,
            ack_count: 0,
            wrong_form: false,
            queued: true,
            fingerprint: print,
            fragments: (1, fragment_count(message)),
        };
        self.sender.sent.insert(sent, limits.messages);
        true
    }

    /// Handles a retransmission by the sender.
    fn on_retransmission(&mut self, key: MessageKey, message: &Message<'_>) {
        let (at, mark, side) = (self.reporter.at, self.reporter.mark, self.side);
        self.sender.counters.retransmissions.add(message.wire_len());
        let late_within = self.sender.max_ack_transit();
        let Some(sent) = self.sender.sent.get(key).copied() else { return };
        let id = sent.info.id;
        let previous = sent.last_sent;
        let times = sent.sends + 1;
        let cause = match sent.acked_at {
            Some(acked) if at.micros_since(acked) <= late_within => Some(RetransmitCause::AckLate),
            Some(_) => Some(RetransmitCause::AckLost),
            None if sent.wrong_form => Some(RetransmitCause::WrongForm),
            None => None,
        };
        if let Some(entry) = self.sender.sent.get_mut(key) {
            (entry.last_sent, entry.sends) = (at, times);
            if cause == Some(RetransmitCause::AckLost) {
                entry.acked_at = None;
            }
        }
        if cause != Some(RetransmitCause::AckLate) {
            self.sender.forget_unread(ArrivalKind::Ack(id));
            self.sender.sent.requeue(key);
        }
        let (about, after) = (sent.info, at.since(sent.first_sent));
        if self.receiver_left {
            let cause = RetransmitCause::ReceiverLeft;
            self.reporter.report(side, FindingKind::Retransmission { about, times, after, cause });
            return;
        }
        match cause {
            Some(cause) => {
                self.reporter.report(side, FindingKind::Retransmission { about, times, after, cause });
            }
            None => {
                let open = UnexplainedRetransmission {
                    key,
                    at,
                    mark,
                    send_count: times,
                    previous_send: previous,
                    acks_seen: 0,
                    last_ack: at,
                    arrived_before: None,
                };
                self.add_unexplained(open);
            }
        }
        if sent.acked_at.is_some() || sent.wrong_form {
            self.reporter.report(side, FindingKind::DuplicateDelivery { about });
        }
        self.check_stuck(&sent, times);
    }

    /// Adds a retransmission that has no known cause yet. At the limit the oldest one is reported with its
    /// likely cause.
    fn add_unexplained(&mut self, open: UnexplainedRetransmission) {
        if self.sender.sent.unexplained.len() >= self.limits.messages
            && let Some(oldest) = self.sender.sent.unexplained.pop_front()
        {
            let cause = cause_without_ack(&oldest, self.receiver.last_not_captured);
            report_cause(self.sender, self.side, oldest, cause, self.reporter);
        }
        self.sender.sent.unexplained.push_back(open);
    }

    fn check_stuck(&mut self, sent: &SentMessage, times: u32) {
        let seq = sent.info.id.seq;
        if sent.info.id.fragment.is_none()
            || times < STUCK_AFTER_SENDS
            || self.sender.stuck_messages.contains(&seq)
        {
            return;
        }
        if self.sender.stuck_messages.len() >= MAX_STUCK_MESSAGES {
            self.sender.stuck_messages.pop_front();
        }
        self.sender.stuck_messages.push_back(seq);
        let waiting = self.sender.sent.queued_fragments_of(seq);
        let (age, wrong_form) = (self.reporter.at.since(sent.first_sent), sent.wrong_form);
        self.reporter.report(self.side, FindingKind::StuckFragments { seq, waiting, age, wrong_form });
    }

    /// Reports starvation: leading ACKs filled the previous datagram, so a new message had to wait.
    fn check_starvation(&mut self, filled: DatagramFill, first_fresh: Option<usize>) {
        let Some(waiting) = first_fresh else { return };
        let last = self.sender.last_datagram;
        let soon = filled.at.micros_since(last.at) <= 2 * self.sender.tick();
        if soon
            && last.bytes + waiting > DATAGRAM_CAPACITY
            && last.bytes + waiting <= DATAGRAM_CAPACITY + last.leading_acks
        {
            let ack_bytes = u32::try_from(last.leading_acks).unwrap_or(u32::MAX);
            let waiting_bytes = u32::try_from(waiting).unwrap_or(u32::MAX);
            self.reporter.report(self.side, FindingKind::Starvation { ack_bytes, waiting_bytes });
        }
    }

    fn note_non_stock(&mut self, message: &Message<'_>) {
        let flags = NonStock::of(message);
        if !flags.is_empty() && !self.sender.non_stock.contains(flags) {
            self.sender.non_stock = self.sender.non_stock | flags;
            self.reporter.report(self.side, FindingKind::NonStock(flags));
        }
    }
}

/// Returns the record of a message that was acknowledged but not seen.
const fn unseen_message(id: MessageId, at: Time) -> SentMessage {
    SentMessage {
        info: unknown_message_info(id),
        first_sent: at,
        last_sent: at,
        sends: 1,
        schedule: RetransmitSchedule::Sawtooth,
        acked_at: Some(at),
        ack_count: 1,
        wrong_form: false,
        queued: false,
        fingerprint: UNSEEN_FINGERPRINT,
        fragments: (0, 0),
    }
}

/// Returns the number of fragments that a first fragment announces.
const fn fragment_count(message: &Message<'_>) -> u8 {
    match message {
        Message::Data(Data { delivery: Delivery::Fragment(_, Fragment::First { total }), .. }) => total.get(),
        Message::Data(_) | Message::Ack(_) | Message::Keepalive | Message::Control(_) => 0,
    }
}

/// Returns a value that identifies a message: two different messages hardly ever have the same one.
fn message_fingerprint(message: &Message<'_>) -> u64 {
    let payload = if let Message::Data(data) = message { data.payload } else { &[] };
    let head = payload.get(..payload.len().min(32)).unwrap_or_default();
    fingerprint(head) ^ (message.wire_len() as u64) << 8 ^ u64::from(message.kind().0) | 1 << 63
}

/// Returns a hash of bytes.
fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = chunk.try_into().map_or(0, u64::from_le_bytes);
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    for byte in chunks.remainder() {
        hash = (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    hash
}

/// The fingerprint of a message that was not seen.
const UNSEEN_FINGERPRINT: u64 = 0;
/// A datagram below this size has room for all due ACKs.
const NOT_FULL_BELOW: usize = 400;
/// A fragment that is sent this often is stuck.
const STUCK_AFTER_SENDS: u32 = 5;
const MAX_STUCK_MESSAGES: usize = 64;
