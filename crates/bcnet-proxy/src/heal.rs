//! One conversation, healed.

use bcnet_observe::{Content, Parsed};
use bcnet_transport::wire::{Ack, Body, Control, Kind, Message, MessageId, PeerId, Role, Writer};
use bcnet_transport::{Time, cipher};
use std::ops::Add;
use std::time::Duration;

use crate::loss::Loss;
use crate::repeater::Repeater;
use crate::tracker::{Arrival, MessageTracker};

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    /// Returns who sends this way.
    #[must_use]
    pub const fn sender(self) -> Role {
        match self {
            Self::Up => Role::Client,
            Self::Down => Role::Host,
        }
    }
}

/// What was healed in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Healed {
    /// ACKs that said nothing new and were taken out.
    pub acks: u64,
    /// Messages that had been acknowledged, came again and were taken out.
    pub repeats: u64,
    /// ACKs sent to the sender of those in place of their receiver.
    pub answers: u64,
    /// Parts that were answered at once, and that the proxy repeats instead of their sender until they have arrived.
    pub held: u64,
    /// Copies of those that it sent.
    pub copies: u64,
    /// Datagrams of which nothing was left.
    pub emptied: u64,
    /// Bytes that were not sent on.
    pub bytes: u64,
}

impl Add for Healed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            acks: self.acks + other.acks,
            repeats: self.repeats + other.repeats,
            answers: self.answers + other.answers,
            held: self.held + other.held,
            copies: self.copies + other.copies,
            emptied: self.emptied + other.emptied,
            bytes: self.bytes + other.bytes,
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
    pub(crate) const fn is_text(&self) -> bool {
        matches!(self.content, Content::GameSpy(_))
    }

    /// Returns whether a client asks to become a player.
    pub(crate) fn asks_to_join(&self) -> bool {
        self.content.datagram().is_some_and(asks_to_join)
    }
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes<'a> {
    /// As it is on the wire.
    Wire(&'a [u8]),
    /// Still to be ciphered ([`cipher::encrypt`]). Who has many ciphers them together.
    Plain(&'a [u8]),
}

impl<'a> Bytes<'a> {
    /// Returns the bytes, ciphered or not.
    #[must_use]
    pub const fn as_slice(self) -> &'a [u8] {
        match self {
            Self::Wire(bytes) | Self::Plain(bytes) => bytes,
        }
    }

    /// Returns a copy as it is on the wire.
    #[must_use]
    pub fn to_wire(self) -> Vec<u8> {
        let mut bytes = self.as_slice().to_vec();
        if let Self::Plain(_) = self {
            cipher::encrypt(&mut bytes);
        }
        bytes
    }
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed<'a> {
    /// What goes on, if anything does.
    pub forward: Option<Bytes<'a>>,
    /// What goes back to the sender, if anything does.
    pub answer: Option<Bytes<'a>>,
    /// When [`Healer::poll_transmit`] has something to send.
    pub timeout: Option<Time>,
}

/// What one side does, as far as it was seen.
#[derive(Debug, Default)]
struct Side {
    /// Its reliable messages.
    sent: MessageTracker,
    /// The id in its datagrams.
    id: Option<PeerId>,
    /// When something of it was passed on last.
    passed: Option<Time>,
    /// Whether it answers parts without telling which.
    answers_plainly: bool,
    /// What is lost on the way to it, and from it.
    loss: Loss,
    /// What is repeated in its place, and to it.
    repeater: Repeater,
    healed: Healed,
}

impl Side {
    fn is_quiet(&self, now: Time) -> bool {
        self.passed.is_none_or(|passed| passed + QUIET <= now)
    }
}

/// Heals one conversation between a client and a server.
#[derive(Debug, Default)]
pub struct Healer {
    up: Side,
    down: Side,
    /// Whether the client has proved itself: nobody else is sent more than it asked for.
    may_repeat: bool,
    forward: Vec<u8>,
    answer: Vec<u8>,
}

impl Healer {
    /// From now on parts may be held, and sent and answered more than once.
    pub const fn allow_repeats(&mut self) {
        self.may_repeat = true;
    }

    /// Returns when [`poll_transmit`](Self::poll_transmit) has something to send.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.up.repeater.next_timeout().into_iter().chain(self.down.repeater.next_timeout()).min()
    }

    /// Returns what the healer sends by itself now, and which way, if there is anything.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Direction, Bytes<'_>)> {
        let direction = self.write_repeat(now)?;
        Some((direction, self.written()))
    }

    /// Writes what is due, if there is anything, and tells which way it goes.
    pub(crate) fn write_repeat(&mut self, now: Time) -> Option<Direction> {
        [Direction::Up, Direction::Down].into_iter().find(|direction| self.write_due(*direction, now))
    }

    /// Returns what [`write_repeat`](Self::write_repeat) has written.
    pub(crate) fn written(&self) -> Bytes<'_> {
        Bytes::Plain(&self.forward)
    }

    /// Returns what was healed in the datagrams that went this way.
    #[must_use]
    pub const fn healed(&self, direction: Direction) -> Healed {
        match direction {
            Direction::Up => self.up.healed,
            Direction::Down => self.down.healed,
        }
    }

    /// Takes a datagram and says what to send. Text and what is not well formed goes on as it is.
    pub fn pass<'a>(&'a mut self, direction: Direction, inbound: Inbound<'a>, now: Time) -> Passed<'a> {
        let unchanged = Some(Bytes::Wire(inbound.wire));
        match inbound.content {
            Content::Datagram(datagram) if datagram.as_bytes().len() <= MAX_HEALED => {
                let (is_whole, answer) = self.sift(direction, datagram, now);
                let timeout = self.next_timeout();
                let forward = if is_whole { unchanged } else { plain(&self.forward, self.forward.len()) };
                Passed { forward, answer: plain(&self.answer, answer), timeout }
            }
            Content::Datagram(_) | Content::GameSpy(_) | Content::Malformed(_) => {
                Passed { forward: unchanged, answer: None, timeout: self.next_timeout() }
            }
        }
    }

    /// Writes what is due of what goes this way: answers to the other side, and a part of this one. Returns whether there is
    /// anything.
    fn write_due(&mut self, direction: Direction, now: Time) -> bool {
        let Self { up, down, forward, .. } = self;
        let (near, far) = match direction {
            Direction::Up => (up, down),
            Direction::Down => (down, up),
        };
        forward.resize(MAX_HEALED, 0);
        let mut writer = Writer::new(forward, near.id.unwrap_or(PeerId::UNASSIGNED));
        far.healed.answers += far.repeater.write_answers(&mut writer, now);
        near.healed.copies += u64::from(near.repeater.write_part(&mut writer, &near.sent, far.loss, now));
        let len = writer.finish().map_or(0, |datagram| datagram.len());
        forward.truncate(len);
        if len > 0 {
            near.passed = Some(now);
        }
        len > 0
    }

    /// Sorts the messages of a datagram, and writes what is left of it and what is to be answered. Returns whether
    /// everything is left, and the length of the answer.
    fn sift(&mut self, direction: Direction, datagram: &Parsed<'_>, now: Time) -> (bool, usize) {
        self.begin_anew(direction, datagram);
        let Self { up, down, may_repeat, forward, answer } = self;
        let (near, far) = match direction {
            Direction::Up => (up, down),
            Direction::Down => (down, up),
        };
        near.id = Some(datagram.sender());
        // Who has no id yet is not heard by a stock host, so nothing can be said in its name.
        let voice = far.id.filter(|id| *id != PeerId::UNASSIGNED);
        answer.resize(MAX_HEALED, 0);
        let mut answers = voice.map(|id| Writer::new(answer, id));
        let mut sift = Sift { near, far, answers: answers.as_mut(), may_repeat: *may_repeat, now };
        let mut rest = Rest::new(datagram.as_bytes(), forward);
        let mut at = HEADER;
        for message in datagram.messages() {
            let end = at + message.wire_len();
            let bytes = datagram.as_bytes().get(at..end).unwrap_or_default();
            if !sift.keep(message, bytes) {
                rest.take_out(at, end);
            }
            at = end;
        }
        let answer = answers.and_then(Writer::finish).map_or(0, |datagram| datagram.len());
        let taken = rest.taken;
        let is_empty = usize::from(taken) == datagram.messages().len();
        // Something must be heard now and then, or the far side gives up.
        let stands_in = is_empty && near.is_quiet(now);
        if !is_empty || stands_in {
            near.passed = Some(now);
        }
        if taken > 0 {
            rest.finish(stands_in);
            near.healed.bytes += (datagram.as_bytes().len() - forward.len()) as u64;
            near.healed.emptied += u64::from(is_empty);
        }
        (taken == 0, answer)
    }

    /// A client that asks to be let in starts a new conversation: numbers begin anew, and what was acknowledged before says
    /// nothing. Asking twice does no harm, there is little to forget by then.
    fn begin_anew(&mut self, direction: Direction, datagram: &Parsed<'_>) {
        if direction == Direction::Up && asks_to_join(datagram) {
            for side in [&mut self.up, &mut self.down] {
                *side = Side { healed: side.healed, loss: side.loss, ..Side::default() };
            }
        }
    }
}

/// Returns whether a datagram of a client holds a request to be let in.
fn asks_to_join(datagram: &Parsed<'_>) -> bool {
    datagram
        .messages()
        .iter()
        .any(|message| matches!(message, Message::Control(Control { body: Body::ConnectRequest { .. }, .. })))
}

/// What is left of a datagram: its own bytes, without those of messages that were taken out.
struct Rest<'a> {
    bytes: &'a [u8],
    out: &'a mut Vec<u8>,
    /// As many bytes were copied or left out.
    done: usize,
    taken: u8,
}

impl<'a> Rest<'a> {
    fn new(bytes: &'a [u8], out: &'a mut Vec<u8>) -> Self {
        out.clear();
        Self { bytes, out, done: 0, taken: 0 }
    }

    fn take_out(&mut self, at: usize, end: usize) {
        self.out.extend_from_slice(self.bytes.get(self.done..at).unwrap_or_default());
        self.done = end;
        self.taken += 1;
    }

    /// Adds what follows and says how many messages there are. If none is left there is nothing to send, but a keepalive
    /// if one is wanted.
    fn finish(self, keepalive: bool) {
        self.out.extend_from_slice(self.bytes.get(self.done..).unwrap_or_default());
        let Some(count) = self.out.get_mut(1) else { return };
        *count -= self.taken;
        match (*count, keepalive) {
            (0, true) => {
                *count = 1;
                self.out.push(Kind::KEEPALIVE.0);
            }
            (0, false) => self.out.clear(),
            _ => {}
        }
    }
}

/// Sorts the messages of one datagram.
struct Sift<'a, 'b> {
    /// Who sent it, and who is to get it.
    near: &'a mut Side,
    far: &'a mut Side,
    /// What is answered, unless nothing can be said in the name of the far side.
    answers: Option<&'a mut Writer<'b>>,
    may_repeat: bool,
    now: Time,
}

impl Sift<'_, '_> {
    /// Returns whether a message goes on.
    fn keep(&mut self, message: &Message<'_>, bytes: &[u8]) -> bool {
        if let Message::Ack(Ack { id, .. }) = message {
            return self.keep_ack(*id);
        }
        let Some(id) = message.id() else { return true };
        if self.answer_repeat(id) {
            return false;
        }
        let arrival = self.near.sent.pass(id);
        match arrival {
            Arrival::Next => {}
            Arrival::Late => self.near.loss.note_lost(),
            // Parts may come again because their receiver answers them in the wrong form.
            Arrival::Again if id.part.is_none() => self.far.loss.note_lost(),
            Arrival::Again | Arrival::Settled => {}
        }
        self.far.loss.note_sent();
        let is_due = arrival == Arrival::Again || self.far.answers_plainly;
        if id.part.is_some() && arrival != Arrival::Settled && is_due {
            self.hold(id, bytes);
        }
        true
    }

    /// Answers a message that its sender needs to repeat no more. `false` if it does, or there is no room.
    fn answer_repeat(&mut self, id: MessageId) -> bool {
        let Self { near, answers: Some(answers), .. } = self else { return false };
        let Some(record) = near.sent.get(id).filter(|record| record.settled) else { return false };
        let answer = accepted_form(id, record.answers);
        if !answers.push(&Message::Ack(Ack::new(answer))) {
            return false;
        }
        if record.answers < PATIENCE {
            near.loss.note_lost();
            if self.may_repeat {
                near.repeater.answer_again(answer, near.loss.answer_copies(), self.now);
            }
        }
        // Stays at its end in turns, so that both forms go on.
        record.answers = if record.answers == u8::MAX { u8::MAX - 1 } else { record.answers + 1 };
        near.healed.repeats += 1;
        near.healed.answers += 1;
        true
    }

    /// Takes over a part whose sender would repeat it, perhaps without end: it is told that the part has arrived, and the
    /// proxy sees to it.
    fn hold(&mut self, id: MessageId, bytes: &[u8]) {
        let Self { near, answers: Some(answers), may_repeat: true, now, .. } = self else { return };
        if !near.repeater.has_room(bytes) || !answers.push(&Message::Ack(Ack::new(id))) {
            return;
        }
        near.repeater.hold(id, bytes, *now);
        near.sent.settle(id);
        near.repeater.answer_again(id, near.loss.answer_copies(), *now);
        near.healed.held += 1;
        near.healed.answers += 1;
    }

    /// An ACK goes on if what it names was passed on since the last one did, or was never seen, or if copies of it may be
    /// lost.
    fn keep_ack(&mut self, id: MessageId) -> bool {
        let Self { near, far, .. } = self;
        let goes_on = match far.sent.get(id) {
            Some(record) if record.news => {
                (record.news, record.shown, record.acks) = (false, true, 1);
                far.sent.settle(id);
                far.loss.note_sent();
                true
            }
            Some(record) if record.acks < far.loss.ack_copies() => {
                record.acks += 1;
                true
            }
            Some(_) => false,
            None => {
                let open = if id.part.is_none() { far.sent.plain_ack(id.seq, self.now) } else { None };
                near.answers_plainly |= open.is_some();
                open != Some(0)
            }
        };
        near.healed.acks += u64::from(!goes_on);
        goes_on
    }
}

/// A sender that repeats a part although it was answered often does not read ACKs of parts: it gets a plain one now and
/// then.
fn accepted_form(id: MessageId, answers: u8) -> MessageId {
    let plain = answers >= PATIENCE && answers.is_multiple_of(2);
    MessageId { part: id.part.filter(|_| !plain), ..id }
}

/// Returns the first bytes of a buffer, if they are to be sent.
fn plain(buffer: &[u8], len: usize) -> Option<Bytes<'_>> {
    buffer.get(..len).filter(|bytes| !bytes.is_empty()).map(Bytes::Plain)
}

/// After so long without a word a keepalive stands for a datagram that held no news: far less than the 45 seconds after which
/// a side is given up.
const QUIET: Duration = Duration::from_secs(5);
/// After so many answers another form is tried.
const PATIENCE: u8 = 4;
/// Larger datagrams pass as they are: no known sender makes them (T-04).
const MAX_HEALED: usize = 2048;
/// Sender and count, in front of the messages (T-01).
const HEADER: usize = 2;
