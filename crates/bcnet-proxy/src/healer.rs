//! One conversation, healed.

use bcnet_observe::{Content, ParsedDatagram};
use bcnet_transport::wire::{Ack, Body, Control, Kind, Message, MessageId, PeerId, Role, Writer};
use bcnet_transport::{Time, cipher};
use std::ops::Add;
use std::time::Duration;

use crate::loss::LossEstimator;
use crate::retransmitter::Retransmitter;
use crate::tracker::{MessageArrival, MessageTracker};

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyDirection {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl ProxyDirection {
    /// Returns who sends this way.
    #[must_use]
    pub const fn sender(self) -> Role {
        match self {
            Self::ToServer => Role::Client,
            Self::ToClient => Role::Host,
        }
    }
}

/// What was healed in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealCounters {
    /// ACKs that said nothing new and were taken out.
    pub acks: u64,
    /// Messages that had been acknowledged, came again and were taken out.
    pub duplicates: u64,
    /// ACKs sent to the sender of those in place of their receiver.
    pub answers: u64,
    /// Parts that were answered at once, and that the proxy repeats instead of their sender until they have arrived.
    pub held_fragments: u64,
    /// Copies of those that it sent.
    pub fragment_copies: u64,
    /// Datagrams of which nothing was left.
    pub emptied_datagrams: u64,
    /// Bytes that were not sent on.
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

/// A datagram that came, as it is on the wire and as it was read. Who has many deciphers them together, which is several
/// times faster, and what was read is there for others as well.
#[derive(Debug, Clone, Copy)]
pub struct Inbound<'a> {
    /// As it is on the wire.
    pub wire: &'a [u8],
    /// What it is, read as coming from the side that sent it.
    pub content: &'a Content<'a>,
}

impl Inbound<'_> {
    /// Returns whether it is GameSpy text, which is not ciphered.
    pub(crate) const fn is_gamespy_text(&self) -> bool {
        matches!(self.content, Content::GameSpy(_))
    }

    /// Returns whether a client asks to become a player.
    pub(crate) fn is_connect_request(&self) -> bool {
        self.content.datagram().is_some_and(is_connect_request)
    }
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutboundBytes<'a> {
    /// As it is on the wire.
    Wire(&'a [u8]),
    /// Still to be ciphered ([`cipher::encrypt`]). Who has many ciphers them together.
    Plaintext(&'a [u8]),
}

impl<'a> OutboundBytes<'a> {
    /// Returns the bytes, ciphered or not.
    #[must_use]
    pub const fn as_slice(self) -> &'a [u8] {
        match self {
            Self::Wire(bytes) | Self::Plaintext(bytes) => bytes,
        }
    }

    /// Returns a copy as it is on the wire.
    #[must_use]
    pub fn to_wire(self) -> Vec<u8> {
        let mut bytes = self.as_slice().to_vec();
        if let Self::Plaintext(_) = self {
            cipher::encrypt(&mut bytes);
        }
        bytes
    }
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealOutput<'a> {
    /// What goes on, if anything does.
    pub forward: Option<OutboundBytes<'a>>,
    /// What goes back to the sender, if anything does.
    pub answer: Option<OutboundBytes<'a>>,
    /// When [`Healer::poll_transmit`] has something to send.
    pub timeout: Option<Time>,
}

/// What one side does, as far as it was seen.
#[derive(Debug, Default)]
struct HealerSide {
    /// Its reliable messages.
    sent: MessageTracker,
    /// The id in its datagrams.
    id: Option<PeerId>,
    /// When something of it was passed on last.
    last_forward: Option<Time>,
    /// Whether it answers parts without telling which.
    acks_whole_message: bool,
    /// What is lost on the way to it, and from it.
    loss: LossEstimator,
    /// What is repeated in its place, and to it.
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
    /// Whether the client has proved itself: nobody else is sent more than it asked for.
    may_retransmit: bool,
    forward: Vec<u8>,
    answer: Vec<u8>,
}

impl Healer {
    /// From now on parts may be held, and sent and answered more than once.
    pub const fn allow_retransmissions(&mut self) {
        self.may_retransmit = true;
    }

    /// Returns when [`poll_transmit`](Self::poll_transmit) has something to send.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.up.repeater.next_timeout().into_iter().chain(self.down.repeater.next_timeout()).min()
    }

    /// Returns what the healer sends by itself now, and which way, if there is anything.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(ProxyDirection, OutboundBytes<'_>)> {
        let direction = self.write_due_datagram(now)?;
        Some((direction, self.due_datagram()))
    }

    /// Writes what is due, if there is anything, and tells which way it goes.
    pub(crate) fn write_due_datagram(&mut self, now: Time) -> Option<ProxyDirection> {
        [ProxyDirection::ToServer, ProxyDirection::ToClient]
            .into_iter()
            .find(|direction| self.write_due(*direction, now))
    }

    /// Returns what [`write_repeat`](Self::write_repeat) has written.
    pub(crate) fn due_datagram(&self) -> OutboundBytes<'_> {
        OutboundBytes::Plaintext(&self.forward)
    }

    /// Returns what was healed in the datagrams that went this way.
    #[must_use]
    pub const fn healed(&self, direction: ProxyDirection) -> HealCounters {
        match direction {
            ProxyDirection::ToServer => self.up.healed,
            ProxyDirection::ToClient => self.down.healed,
        }
    }

    /// Takes a datagram and says what to send. Text and what is not well formed goes on as it is.
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

    /// Writes what is due of what goes this way: answers to the other side, and a part of this one. Returns whether there is
    /// anything.
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

    /// Sorts the messages of a datagram, and writes what is left of it and what is to be answered. Returns whether
    /// everything is left, and the length of the answer.
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
        // Who has no id yet is not heard by a stock host, so nothing can be said in its name.
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
        // Something must be heard now and then, or the far side gives up.
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

    /// A client that asks to be let in starts a new conversation: numbers begin anew, and what was acknowledged before says
    /// nothing. Asking twice does no harm, there is little to forget by then.
    fn reset_on_connect(&mut self, direction: ProxyDirection, datagram: &ParsedDatagram<'_>) {
        if direction == ProxyDirection::ToServer && is_connect_request(datagram) {
            for side in [&mut self.up, &mut self.down] {
                *side = HealerSide { healed: side.healed, loss: side.loss, ..HealerSide::default() };
            }
        }
    }
}

/// Returns whether a datagram of a client holds a request to be let in.
fn is_connect_request(datagram: &ParsedDatagram<'_>) -> bool {
    datagram
        .messages()
        .iter()
        .any(|message| matches!(message, Message::Control(Control { body: Body::ConnectRequest { .. }, .. })))
}

/// What is left of a datagram: its own bytes, without those of messages that were taken out.
struct DatagramRewriter<'a> {
    bytes: &'a [u8],
    output: &'a mut Vec<u8>,
    /// As many bytes were copied or left out.
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

    /// Adds what follows and says how many messages there are. If none is left there is nothing to send, but a keepalive
    /// if one is wanted.
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

/// Sorts the messages of one datagram.
struct MessageFilter<'a, 'b> {
    /// Who sent it, and who is to get it.
    near: &'a mut HealerSide,
    far: &'a mut HealerSide,
    /// What is answered, unless nothing can be said in the name of the far side.
    answers: Option<&'a mut Writer<'b>>,
    may_retransmit: bool,
    now: Time,
}

impl MessageFilter<'_, '_> {
    /// Returns whether a message goes on.
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
            // Parts may come again because their receiver answers them in the wrong form.
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

    /// Answers a message that its sender needs to repeat no more. `false` if it does, or there is no room.
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
        // Stays at its end in turns, so that both forms go on.
        record.proxy_acks = if record.proxy_acks == u8::MAX { u8::MAX - 1 } else { record.proxy_acks + 1 };
        near.healed.duplicates += 1;
        near.healed.answers += 1;
        true
    }

    /// Takes over a part whose sender would repeat it, perhaps without end: it is told that the part has arrived, and the
    /// proxy sees to it.
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

    /// An ACK goes on if what it names was passed on since the last one did, or was never seen, or if copies of it may be
    /// lost.
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

/// A sender that repeats a part although it was answered often does not read ACKs of parts: it gets a plain one now and
/// then.
fn ack_form(id: MessageId, answers: u8) -> MessageId {
    let plain = answers >= ACKS_BEFORE_OTHER_FORM && answers.is_multiple_of(2);
    MessageId { fragment: id.fragment.filter(|_| !plain), ..id }
}

/// Returns the first bytes of a buffer, if they are to be sent.
fn plaintext_prefix(buffer: &[u8], len: usize) -> Option<OutboundBytes<'_>> {
    buffer.get(..len).filter(|bytes| !bytes.is_empty()).map(OutboundBytes::Plaintext)
}

/// After so long without a word a keepalive stands for a datagram that held no news: far less than the 45 seconds after which
/// a side is given up.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
/// After so many answers another form is tried.
const ACKS_BEFORE_OTHER_FORM: u8 = 4;
/// Larger datagrams pass as they are: no known sender makes them (T-04).
const MAX_HEALED_LEN: usize = 2048;
/// Sender and count, in front of the messages (T-01).
const HEADER_LEN: usize = 2;
