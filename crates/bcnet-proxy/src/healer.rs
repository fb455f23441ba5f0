//! Healing of one conversation: removes repeated ACKs and messages, and takes over fragments.

use bcnet_observe::{Content, MessageBuffer, ParsedDatagram};
use bcnet_transport::wire::{Ack, Body, Control, Kind, Message, MessageId, PeerId, Role, Writer};
use bcnet_transport::{Time, cipher};
use std::ops::Add;
use std::time::Duration;

use crate::loss::LossEstimator;
use crate::retransmitter::Retransmitter;
use crate::tracker::{MessageArrival, MessageTracker};

/// Direction of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyDirection {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl ProxyDirection {
    /// Returns the role that sends in this direction.
    #[must_use]
    pub const fn sender(self) -> Role {
        match self {
            Self::ToServer => Role::Client,
            Self::ToClient => Role::Host,
        }
    }
}

/// Counters of healing in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealCounters {
    /// Removed ACKs of messages that were already acknowledged.
    pub acks: u64,
    /// Removed messages that had been acknowledged and came again.
    pub duplicates: u64,
    /// ACKs sent by the proxy to the sender of those messages.
    pub answers: u64,
    /// Fragments that the proxy acknowledged at once and retransmits until they arrive.
    pub held_fragments: u64,
    /// Copies of those fragments that the proxy sent.
    pub fragment_copies: u64,
    /// Datagrams with all messages removed.
    pub emptied_datagrams: u64,
    /// Bytes that were not forwarded.
    pub bytes_removed: u64,
}

impl Add for HealCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            acks: self.acks + other.acks,
            duplicates: self.duplicates + other.duplicates,
            answers: self.answers + other.answers,
            held_fragments: self.held_fragments + other.held_fragments,
            fragment_copies: self.fragment_copies + other.fragment_copies,
            emptied_datagrams: self.emptied_datagrams + other.emptied_datagrams,
            bytes_removed: self.bytes_removed + other.bytes_removed,
        }
    }
}

/// A received datagram, as on the wire and decoded. The caller decrypts and decodes, because batches are several
/// times faster and others use the result.
#[derive(Debug, Clone, Copy)]
pub struct Inbound<'a> {
    /// The datagram as on the wire.
    pub wire: &'a [u8],
    /// The decoded content, read for the side that sent it.
    pub content: &'a Content<'a>,
}

impl Inbound<'_> {
    /// Returns whether it is GameSpy text, which is not encrypted.
    pub(crate) const fn is_gamespy_text(&self) -> bool {
        matches!(self.content, Content::GameSpy(_))
    }

    /// Returns whether it is a client's connect request.
    pub(crate) fn is_connect_request(&self) -> bool {
        self.content.datagram().is_some_and(is_connect_request)
    }
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutboundBytes<'a> {
    /// As on the wire.
    Wire(&'a [u8]),
    /// Not yet encrypted ([`cipher::encrypt`]). The caller can encrypt in batches.
    Plaintext(&'a [u8]),
}

impl<'a> OutboundBytes<'a> {
    /// Returns the bytes, encrypted or not.
    #[must_use]
    pub const fn as_slice(self) -> &'a [u8] {
        match self {
            Self::Wire(bytes) | Self::Plaintext(bytes) => bytes,
        }
    }

    /// Returns a copy as on the wire.
    #[must_use]
    pub fn to_wire(self) -> Vec<u8> {
        let mut bytes = self.as_slice().to_vec();
        if let Self::Plaintext(_) = self {
            cipher::encrypt(&mut bytes);
        }
        bytes
    }
}

/// The datagrams to send after the healer has handled one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealOutput<'a> {
    /// The datagram to forward, if any.
    pub forward: Option<OutboundBytes<'a>>,
    /// The answer to the sender, if any.
    pub answer: Option<OutboundBytes<'a>>,
    /// The time of the next [`Healer::poll_transmit`] with something to send.
    pub timeout: Option<Time>,
}

/// Observed state of one side.
#[derive(Debug, Default)]
struct HealerSide {
    /// Its reliable messages.
    sent: MessageTracker,
    /// The sender byte of its datagrams.
    id: Option<PeerId>,
    /// Time of the last datagram that was forwarded or sent in its place.
    last_forward: Option<Time>,
    /// True if it acknowledges fragments without naming them.
    acks_whole_message: bool,
    /// Loss between the proxy and this side, in both directions.
    loss: LossEstimator,
    /// ACKs that the proxy sends to this side, and fragments that it retransmits in the place of this side.
    repeater: Retransmitter,
    healed: HealCounters,
}

impl HealerSide {
    fn is_idle(&self, now: Time) -> bool {
        self.last_forward.is_none_or(|passed| passed + KEEPALIVE_AFTER <= now)
    }
}

/// Heals one conversation between a client and a server.
#[derive(Debug, Default)]
pub struct Healer {
    up: HealerSide,
    down: HealerSide,
    /// True if the client is verified: other clients get no extra datagrams.
    may_retransmit: bool,
    forward: Vec<u8>,
    answer: Vec<u8>,
}

impl Healer {
    /// Allows the healer to hold fragments and to send copies from now on.
    pub const fn allow_retransmissions(&mut self) {
        self.may_retransmit = true;
    }

    /// Returns when [`poll_transmit`](Self::poll_transmit) has a datagram to send.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.up.repeater.next_timeout().into_iter().chain(self.down.repeater.next_timeout()).min()
    }

    /// Returns the next datagram that the healer itself sends, and its direction.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(ProxyDirection, OutboundBytes<'_>)> {
        let direction = self.write_due_datagram(now)?;
        Some((direction, self.due_datagram()))
    }

    /// Writes a due datagram and returns its direction.
    pub(crate) fn write_due_datagram(&mut self, now: Time) -> Option<ProxyDirection> {
        [ProxyDirection::ToServer, ProxyDirection::ToClient]
            .into_iter()
            .find(|direction| self.write_due(*direction, now))
    }

    /// Returns the datagram of [`write_due_datagram`](Self::write_due_datagram).
    pub(crate) fn due_datagram(&self) -> OutboundBytes<'_> {
        OutboundBytes::Plaintext(&self.forward)
    }

    /// Returns the counters of one direction.
    #[must_use]
    pub const fn healed(&self, direction: ProxyDirection) -> HealCounters {
        match direction {
            ProxyDirection::ToServer => self.up.healed,
            ProxyDirection::ToClient => self.down.healed,
        }
    }

    /// Handles a datagram and returns what to send. GameSpy text and malformed datagrams pass unchanged.
    pub fn handle_datagram<'a>(
        &'a mut self,
        direction: ProxyDirection,
        inbound: Inbound<'a>,
        now: Time,
    ) -> HealOutput<'a> {
        let unchanged = Some(OutboundBytes::Wire(inbound.wire));
        match inbound.content {
            Content::Datagram(datagram) if datagram.as_bytes().len() <= MAX_HEALED_LEN => {
                let (is_whole, answer) = self.filter_messages(direction, datagram, now);
                let timeout = self.next_timeout();
                let forward =
                    if is_whole { unchanged } else { plaintext_prefix(&self.forward, self.forward.len()) };
                HealOutput { forward, answer: plaintext_prefix(&self.answer, answer), timeout }
            }
            Content::Datagram(_) | Content::GameSpy(_) | Content::Malformed(_) => {
                HealOutput { forward: unchanged, answer: None, timeout: self.next_timeout() }
            }
        }
    }

    /// Handles a plaintext datagram that the proxy has changed.
    pub(crate) fn handle_plaintext<'a>(
        &'a mut self,
        direction: ProxyDirection,
        plain: &'a [u8],
        buffer: &mut MessageBuffer<'static>,
        now: Time,
    ) -> HealOutput<'a> {
        let mut messages = std::mem::take(buffer).reuse();
        let (mut is_whole, mut answer) = (true, 0);
        if let Ok(datagram) = messages.parse(plain, Some(direction.sender()))
            && plain.len() <= MAX_HEALED_LEN
        {
            (is_whole, answer) = self.filter_messages(direction, &datagram, now);
        }
        *buffer = messages.reuse();
        let timeout = self.next_timeout();
        let forward = if is_whole { plain } else { &self.forward };
        HealOutput {
            forward: plaintext_prefix(forward, forward.len()),
            answer: plaintext_prefix(&self.answer, answer),
            timeout,
        }
    }

    /// Writes a datagram in `direction`: due ACKs to its receiver, and one due fragment of its sender.
    ///
    /// Returns whether it wrote anything.
    fn write_due(&mut self, direction: ProxyDirection, now: Time) -> bool {
        let Self { up, down, forward, .. } = self;
        let (near, far) = match direction {
            ProxyDirection::ToServer => (up, down),
            ProxyDirection::ToClient => (down, up),
        };
        forward.resize(MAX_HEALED_LEN, 0);
        let mut writer = Writer::new(forward, near.id.unwrap_or(PeerId::UNASSIGNED));
        far.healed.answers += far.repeater.write_acks(&mut writer, now);
        near.healed.fragment_copies +=
            u64::from(near.repeater.write_fragment(&mut writer, &near.sent, far.loss, now));
        let len = writer.finish().map_or(0, |datagram| datagram.len());
        forward.truncate(len);
        if len > 0 {
            near.last_forward = Some(now);
        }
        len > 0
    }

    /// Filters the messages of a datagram. Returns whether all are kept, and the length of the answer.
    fn filter_messages(
        &mut self,
        direction: ProxyDirection,
        datagram: &ParsedDatagram<'_>,
        now: Time,
    ) -> (bool, usize) {
        self.reset_on_connect(direction, datagram);
        let Self { up, down, may_retransmit: may_repeat, forward, answer } = self;
        let (near, far) = match direction {
            ProxyDirection::ToServer => (up, down),
            ProxyDirection::ToClient => (down, up),
        };
        near.id = Some(datagram.sender());
        // A stock host ignores senders without an id, so the proxy cannot answer in the place of such a client.
        let voice = far.id.filter(|id| *id != PeerId::UNASSIGNED);
        answer.resize(MAX_HEALED_LEN, 0);
        let mut answers = voice.map(|id| Writer::new(answer, id));
        let mut sift =
            MessageFilter { near, far, answers: answers.as_mut(), may_retransmit: *may_repeat, now };
        let mut rest = DatagramRewriter::new(datagram.as_bytes(), forward);
        let mut at = HEADER_LEN;
        for message in datagram.messages() {
            let end = at + message.wire_len();
            let bytes = datagram.as_bytes().get(at..end).unwrap_or_default();
            if !sift.keeps(message, bytes) {
                rest.remove(at, end);
            }
            at = end;
        }
        let answer = answers.and_then(Writer::finish).map_or(0, |datagram| datagram.len());
        let taken = rest.removed;
        let is_empty = usize::from(taken) == datagram.messages().len();
        // The far side must receive something now and then, or it times out.
        let stands_in = is_empty && near.is_idle(now);
        if !is_empty || stands_in {
            near.last_forward = Some(now);
        }
        if taken > 0 {
            rest.finish(stands_in);
            near.healed.bytes_removed += (datagram.as_bytes().len() - forward.len()) as u64;
            near.healed.emptied_datagrams += u64::from(is_empty);
        }
        (taken == 0, answer)
    }

    /// Resets both sides at a connect request, because sequence numbers start again. A repeated request does no
    /// harm: there is little state to lose.
    fn reset_on_connect(&mut self, direction: ProxyDirection, datagram: &ParsedDatagram<'_>) {
        if direction == ProxyDirection::ToServer && is_connect_request(datagram) {
            for side in [&mut self.up, &mut self.down] {
                *side = HealerSide { healed: side.healed, loss: side.loss, ..HealerSide::default() };
            }
        }
    }
}

/// Returns whether a client's datagram holds a connect request.
fn is_connect_request(datagram: &ParsedDatagram<'_>) -> bool {
    datagram
        .messages()
        .iter()
        .any(|message| matches!(message, Message::Control(Control { body: Body::ConnectRequest { .. }, .. })))
}

/// Copies the messages of a datagram that are to be kept. Without any, `output` is empty.
pub(crate) fn copy_without(
    datagram: &ParsedDatagram<'_>,
    output: &mut Vec<u8>,
    is_kept: impl Fn(&Message<'_>) -> bool,
) {
    let mut rest = DatagramRewriter::new(datagram.as_bytes(), output);
    let mut at = HEADER_LEN;
    for message in datagram.messages() {
        let end = at + message.wire_len();
        if !is_kept(message) {
            rest.remove(at, end);
        }
        at = end;
    }
    rest.finish(false);
}

/// Copies a datagram without its removed messages.
struct DatagramRewriter<'a> {
    bytes: &'a [u8],
    output: &'a mut Vec<u8>,
    /// Bytes that were copied or removed.
    copied: usize,
    removed: u8,
}

impl<'a> DatagramRewriter<'a> {
    fn new(bytes: &'a [u8], out: &'a mut Vec<u8>) -> Self {
        out.clear();
        Self { bytes, output: out, copied: 0, removed: 0 }
    }

    fn remove(&mut self, at: usize, end: usize) {
        self.output.extend_from_slice(self.bytes.get(self.copied..at).unwrap_or_default());
        self.copied = end;
        self.removed += 1;
    }

    /// Copies the rest and writes the message count. If no message is left, writes a keepalive if one is wanted,
    /// otherwise nothing.
    fn finish(self, keepalive: bool) {
        self.output.extend_from_slice(self.bytes.get(self.copied..).unwrap_or_default());
        let Some(count) = self.output.get_mut(1) else { return };
        *count -= self.removed;
        match (*count, keepalive) {
            (0, true) => {
                *count = 1;
                self.output.push(Kind::KEEPALIVE.0);
            }
            (0, false) => self.output.clear(),
            _ => {}
        }
    }
}

/// Filters the messages of one datagram.
struct MessageFilter<'a, 'b> {
    /// The sender and the receiver.
    near: &'a mut HealerSide,
    far: &'a mut HealerSide,
    /// The answer; `None` if the proxy cannot answer in the place of the far side.
    answers: Option<&'a mut Writer<'b>>,
    may_retransmit: bool,
    now: Time,
}

impl MessageFilter<'_, '_> {
    /// Returns whether a message is forwarded.
    fn keeps(&mut self, message: &Message<'_>, bytes: &[u8]) -> bool {
        if let Message::Ack(Ack { id, .. }) = message {
            return self.keeps_ack(*id);
        }
        let Some(id) = message.id() else { return true };
        if self.ack_duplicate(id) {
            return false;
        }
        let arrival = self.near.sent.on_forward(id);
        match arrival {
            MessageArrival::InOrder => {}
            MessageArrival::OutOfOrder => self.near.loss.note_lost(),
            // A fragment may also arrive again because its receiver acknowledges it in the wrong form.
            MessageArrival::Duplicate if id.fragment.is_none() => self.far.loss.note_lost(),
            MessageArrival::Duplicate | MessageArrival::AckedDuplicate => {}
        }
        self.far.loss.note_sent();
        let is_due = arrival == MessageArrival::Duplicate || self.far.acks_whole_message;
        if id.fragment.is_some() && arrival != MessageArrival::AckedDuplicate && is_due {
            self.hold_fragment(id, bytes);
        }
        true
    }

    /// Acknowledges a repeated message in the place of its receiver, if the sender need not repeat it.
    ///
    /// Returns `false` if the message must be forwarded: its sender must repeat it, or the ACK does not fit into the
    /// answer.
    fn ack_duplicate(&mut self, id: MessageId) -> bool {
        let Self { near, answers: Some(answers), .. } = self else { return false };
        let Some(record) = near.sent.get(id).filter(|record| record.sender_done) else { return false };
        let answer = ack_form(id, record.proxy_acks);
        if !answers.push(&Message::Ack(Ack::new(answer))) {
            return false;
        }
        if record.proxy_acks < ACKS_BEFORE_OTHER_FORM {
            near.loss.note_lost();
            if self.may_retransmit {
                near.repeater.queue_ack_copies(answer, near.loss.proxy_ack_copies(), self.now);
            }
        }
        // Alternates at the maximum, so that both forms are used.
        record.proxy_acks = if record.proxy_acks == u8::MAX { u8::MAX - 1 } else { record.proxy_acks + 1 };
        near.healed.duplicates += 1;
        near.healed.answers += 1;
        true
    }

    /// Takes over a fragment that its sender might repeat without end: acknowledges it and retransmits it.
    fn hold_fragment(&mut self, id: MessageId, bytes: &[u8]) {
        let Self { near, answers: Some(answers), may_retransmit: true, now, .. } = self else { return };
        if !near.repeater.has_capacity(bytes) || !answers.push(&Message::Ack(Ack::new(id))) {
            return;
        }
        near.repeater.hold_fragment(id, bytes, *now);
        near.sent.mark_sender_done(id);
        near.repeater.queue_ack_copies(id, near.loss.proxy_ack_copies(), *now);
        near.healed.held_fragments += 1;
        near.healed.answers += 1;
    }

    /// Returns whether an ACK is forwarded.
    ///
    /// An ACK passes if its message was forwarded since the last ACK, or was never seen, or if copies may be lost.
    fn keeps_ack(&mut self, id: MessageId) -> bool {
        let Self { near, far, .. } = self;
        let goes_on = match far.sent.get(id) {
            Some(record) if record.expects_ack => {
                (record.expects_ack, record.ack_seen, record.ack_copies) = (false, true, 1);
                far.sent.mark_sender_done(id);
                far.loss.note_sent();
                true
            }
            Some(record) if record.ack_copies < far.loss.ack_copies() => {
                record.ack_copies += 1;
                true
            }
            Some(_) => false,
            None => {
                let open = if id.fragment.is_none() { far.sent.on_whole_ack(id.seq, self.now) } else { None };
                near.acks_whole_message |= open.is_some();
                open != Some(0)
            }
        };
        near.healed.acks += u64::from(!goes_on);
        goes_on
    }
}

/// Returns the form of an ACK: with or without the fragment index.
///
/// A sender that repeats a fragment after several ACKs ignores ACKs with an index. It gets every other ACK without one.
fn ack_form(id: MessageId, answers: u8) -> MessageId {
    let plain = answers >= ACKS_BEFORE_OTHER_FORM && answers.is_multiple_of(2);
    MessageId { fragment: id.fragment.filter(|_| !plain), ..id }
}

/// Returns the first bytes of a buffer, if there are any to send.
fn plaintext_prefix(buffer: &[u8], len: usize) -> Option<OutboundBytes<'_>> {
    buffer.get(..len).filter(|bytes| !bytes.is_empty()).map(OutboundBytes::Plaintext)
}

/// After this silence, a keepalive replaces a datagram that lost all its messages. Peers time out after 45 seconds.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
/// ACKs of a fragment with its index, before the form without index is tried, too.
const ACKS_BEFORE_OTHER_FORM: u8 = 4;
/// Larger datagrams pass unchanged: no known sender makes them (T-04).
const MAX_HEALED_LEN: usize = 2048;
/// Length of sender byte and count, before the messages (T-01).
const HEADER_LEN: usize = 2;
