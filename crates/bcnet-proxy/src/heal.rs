//! One conversation, healed.

use bcnet_transport::wire::{
    Ack, Body, Control, Data, Datagram, Delivery, Message, MessageId, PeerId, Role, Writer,
};
use bcnet_transport::{Time, cipher};
use std::time::Duration;

use crate::known::Known;

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Way {
    /// The other way.
    #[must_use]
    pub const fn back(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    /// Who sends this way.
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

/// A datagram, ciphered and deciphered. Who has many deciphers them together, which is several times faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<'a> {
    /// As it is on the wire.
    pub wire: &'a [u8],
    /// The same, deciphered ([`cipher::decrypt`]).
    pub plain: &'a [u8],
}

impl Seen<'_> {
    /// Whether it is GameSpy text, which is not ciphered.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.wire.first() == Some(&PeerId::GAMESPY.0)
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
    /// The bytes, ciphered or not.
    #[must_use]
    pub const fn as_slice(self) -> &'a [u8] {
        match self {
            Self::Wire(bytes) | Self::Plain(bytes) => bytes,
        }
    }

    /// A copy as it is on the wire.
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
    known: Known,
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
#[derive(Debug)]
pub struct Healer {
    up: Side,
    down: Side,
    forward: Vec<u8>,
    answer: Vec<u8>,
}

impl Default for Healer {
    fn default() -> Self {
        Self {
            up: Side::default(),
            down: Side::default(),
            forward: vec![0; LARGEST],
            answer: vec![0; LARGEST],
        }
    }
}

impl Healer {
    /// What was healed in the datagrams that went `way`.
    #[must_use]
    pub const fn healed(&self, way: Way) -> Healed {
        match way {
            Way::Up => self.up.healed,
            Way::Down => self.down.healed,
        }
    }

    /// Takes a datagram and says what to send. Text and what is not well formed goes on as it is.
    pub fn pass<'a>(&'a mut self, way: Way, seen: Seen<'a>, now: Time) -> Passed<'a> {
        let unchanged = Passed { forward: Some(Bytes::Wire(seen.wire)), answer: None };
        if seen.is_text() || seen.wire.len() > LARGEST {
            return unchanged;
        }
        let Ok(datagram) = Datagram::parse(seen.plain, Some(way.sender())) else { return unchanged };
        let (kept, answer) = self.sift(way, &datagram, now);
        let forward = match kept {
            Kept::All => Some(Bytes::Wire(seen.wire)),
            Kept::Some(len) => plain(&self.forward, len),
        };
        Passed { forward, answer: plain(&self.answer, answer) }
    }

    /// Sorts the messages of a datagram, and writes what is left of it and what is to be answered.
    fn sift(&mut self, way: Way, datagram: &Datagram<'_>, now: Time) -> (Kept, usize) {
        self.begin_anew(way, datagram);
        let Self { up, down, forward, answer, .. } = self;
        let (near, far) = match way {
            Way::Up => (up, down),
            Way::Down => (down, up),
        };
        near.id = Some(datagram.sender());
        // Who has no id yet is not heard by a stock host, so nothing can be said in its name.
        let voice = far.id.filter(|id| *id != PeerId::UNASSIGNED);
        let mut answers = voice.map(|id| Writer::new(answer, id));
        let mut rest = Writer::with_limit(forward, datagram.sender(), LARGEST);
        let (mut kept, mut written) = (0, true);
        far.known.begin_datagram();
        for message in datagram.messages() {
            if sift_one(near, far, &message, answers.as_mut()) {
                kept += 1;
                written &= rest.push(&message);
            }
        }
        let answer = answers.and_then(Writer::finish).map_or(0, |datagram| datagram.len());
        if kept == datagram.count() || !written {
            near.passed = Some(now);
            return (Kept::All, answer);
        }
        // Something must be heard now and then, or the far side gives up.
        let said = kept > 0 || near.is_quiet(now) && rest.push(&Message::Keepalive);
        if said {
            near.passed = Some(now);
        }
        let len = rest.finish().map_or(0, |datagram| datagram.len());
        near.healed.bytes += (datagram.as_bytes().len() - len) as u64;
        near.healed.emptied += u64::from(kept == 0);
        (Kept::Some(len), answer)
    }

    /// A client that asks to be let in starts a new conversation: numbers begin anew, and what was acknowledged before says
    /// nothing. Asking twice does no harm, there is little to forget by then.
    fn begin_anew(&mut self, way: Way, datagram: &Datagram<'_>) {
        if way == Way::Up && asks_to_join(datagram) {
            for side in [&mut self.up, &mut self.down] {
                *side = Side { healed: side.healed, ..Side::default() };
            }
        }
    }
}

/// Whether a datagram of a client holds a request to be let in.
pub(crate) fn asks_to_join(datagram: &Datagram<'_>) -> bool {
    datagram
        .messages()
        .any(|message| matches!(message, Message::Control(Control { body: Body::ConnectRequest { .. }, .. })))
}

/// Whether a message goes on.
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
        _ => None,
    };
    near.known.pass(id, part);
    true
}

/// Answers a message that its receiver has acknowledged, in its place. `false` if it has not, or there is no room.
fn answer_repeat(near: &mut Side, id: MessageId, answers: &mut Writer<'_>) -> bool {
    let Some(record) = near.known.get(id).filter(|record| record.settled) else { return false };
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
    match far.known.get(id) {
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
                far.known.plain_ack(id.seq, near.repeats_acks);
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

/// What is left of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    All,
    /// As many bytes, or none at all.
    Some(usize),
}

/// The first bytes of a buffer, if they are to be sent.
fn plain(buffer: &[u8], len: usize) -> Option<Bytes<'_>> {
    buffer.get(..len).filter(|bytes| !bytes.is_empty()).map(Bytes::Plain)
}

/// After so long without a word a keepalive stands for a datagram that held no news: far less than the 45 seconds after which
/// a side is given up.
const QUIET: Duration = Duration::from_secs(5);
/// After so many answers another form is tried.
const PATIENCE: u8 = 4;
/// Larger datagrams pass as they are: no known sender makes them (T-04).
const LARGEST: usize = 2048;
