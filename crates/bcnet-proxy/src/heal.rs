//! One conversation, healed.

use bcnet_observe::{Content, Parsed};
use bcnet_transport::wire::{
    Ack, Body, Control, Data, Delivery, Kind, Message, MessageId, PeerId, Role, Writer,
};
use bcnet_transport::{Time, cipher};
use std::time::Duration;

use crate::tracker::MessageTracker;

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
    /// Datagrams of which nothing was left.
    pub emptied: u64,
    /// Bytes that were not sent on.
    pub bytes: u64,
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
    /// Whether it has sent an ACK that said nothing new: a stock engine sends each one nine times.
    repeats_acks: bool,
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
    forward: Vec<u8>,
    answer: Vec<u8>,
}

impl Healer {
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
        let unchanged = Passed { forward: Some(Bytes::Wire(inbound.wire)), answer: None };
        match inbound.content {
            Content::Datagram(datagram) if datagram.as_bytes().len() <= MAX_HEALED => {
                let (is_whole, answer) = self.sift(direction, datagram, now);
                let forward =
                    if is_whole { unchanged.forward } else { plain(&self.forward, self.forward.len()) };
                Passed { forward, answer: plain(&self.answer, answer) }
            }
            Content::Datagram(_) | Content::GameSpy(_) | Content::Malformed(_) => unchanged,
        }
    }

    /// Sorts the messages of a datagram, and writes what is left of it and what is to be answered. Returns whether
    /// everything is left, and the length of the answer.
    fn sift(&mut self, direction: Direction, datagram: &Parsed<'_>, now: Time) -> (bool, usize) {
        self.begin_anew(direction, datagram);
        let Self { up, down, forward, answer } = self;
        let (near, far) = match direction {
            Direction::Up => (up, down),
            Direction::Down => (down, up),
        };
        near.id = Some(datagram.sender());
        // Who has no id yet is not heard by a stock host, so nothing can be said in its name.
        let voice = far.id.filter(|id| *id != PeerId::UNASSIGNED);
        answer.resize(MAX_HEALED, 0);
        let mut answers = voice.map(|id| Writer::new(answer, id));
        let mut rest = Rest::new(datagram.as_bytes(), forward);
        far.sent.begin_datagram();
        let mut at = HEADER;
        for message in datagram.messages() {
            let end = at + message.wire_len();
            if !sift_one(near, far, message, answers.as_mut()) {
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
                *side = Side { healed: side.healed, ..Side::default() };
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

/// Returns whether a message goes on.
fn sift_one(
    near: &mut Side,
    far: &mut Side,
    message: &Message<'_>,
    answers: Option<&mut Writer<'_>>,
) -> bool {
    if let Message::Ack(Ack { id, .. }) = message {
        return keep_ack(near, far, *id);
    }
    let Some(id) = message.id() else { return true };
    if answers.is_some_and(|answers| answer_repeat(near, id, answers)) {
        return false;
    }
    let part = match message {
        Message::Data(Data { delivery: Delivery::Fragment(_, part), .. }) => Some(*part),
        Message::Data(_) | Message::Control(_) | Message::Ack(_) | Message::Keepalive => None,
    };
    near.sent.pass(id, part);
    true
}

/// Answers a message that its receiver has acknowledged, in its place. `false` if it has not, or there is no room.
fn answer_repeat(near: &mut Side, id: MessageId, answers: &mut Writer<'_>) -> bool {
    let Some(record) = near.sent.get(id).filter(|record| record.settled) else { return false };
    if !answers.push(&Message::Ack(Ack::new(accepted_form(id, record.answers)))) {
        return false;
    }
    // Stays at its end in turns, so that both forms go on.
    record.answers = if record.answers == u8::MAX { u8::MAX - 1 } else { record.answers + 1 };
    near.healed.repeats += 1;
    near.healed.answers += 1;
    true
}

/// An ACK goes on if what it names was passed on since the last one did, or was never seen.
fn keep_ack(near: &mut Side, far: &mut Side, id: MessageId) -> bool {
    match far.sent.get(id) {
        Some(record) if record.news => {
            (record.news, record.settled) = (false, true);
            true
        }
        Some(_) => {
            near.repeats_acks = true;
            near.healed.acks += 1;
            false
        }
        None => {
            if id.part.is_none() {
                far.sent.plain_ack(id.seq, near.repeats_acks);
            }
            true
        }
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
