//! One datagram on its way from one side to the other: what each message of it tells.

use alloc::vec::Vec;
use core::time::Duration;

use crate::cause::{cause, tell_cause, unanswered};
use crate::finding::{About, Missed, RetransmitCause, What};
use crate::sent::{Key, SentMessage, Unexplained, unknown};
use crate::side::{Arrival, DatagramFill, SideState};
use crate::stock::{ROOM, Rhythm};
use crate::traffic::opcode;
use crate::{Limits, NonStock, Parsed, Side, Teller};
use bcnet_wire::{Body, Control, Data, Delivery, Message, MessageId, Part, PeerId, Time};

/// What a datagram has in it: most questions are about what most datagrams have not.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) control: bool,
    pub(crate) reliable: bool,
}

impl Contents {
    pub(crate) fn of(datagram: &Parsed<'_>) -> Self {
        datagram.messages().iter().fold(Self::default(), |found, message| Self {
            control: found.control || matches!(message, Message::Control(_)),
            reliable: found.reliable || message.id().is_some(),
        })
    }
}

/// One datagram on its way from one side to the other.
pub(crate) struct DatagramStep<'a, 'b> {
    pub(crate) sender: &'a mut SideState,
    pub(crate) receiver: &'a mut SideState,
    pub(crate) side: Side,
    pub(crate) limits: &'a Limits,
    pub(crate) tell: &'a mut Teller<'b>,
    /// Whether the beginning of the connection was seen.
    pub(crate) whole: bool,
    /// Whether the receiver looks at it at all.
    pub(crate) heard: bool,
    /// Whether the receiver has said goodbye.
    pub(crate) left: bool,
    pub(crate) losses: u64,
}

/// From a client without an id a host hears only requests and goodbyes.
pub(crate) fn is_heard(datagram: &Parsed<'_>) -> bool {
    datagram.sender() != PeerId::UNASSIGNED
        || matches!(
            datagram.messages().first(),
            Some(Message::Control(Control {
                body: Body::ConnectRequest { .. } | Body::Disconnect { .. },
                ..
            }))
        )
}

impl DatagramStep<'_, '_> {
    pub(crate) fn run(&mut self, datagram: &Parsed<'_>, reliable: bool) {
        let (at, side, limits) = (self.tell.at, self.side, self.limits);
        let before = self.sender.last_sent.unwrap_or(at);
        let tell = &mut *self.tell;
        self.sender.read_before(at, datagram, limits, |id, times| {
            tell.tell(side, What::RepeatedAck { id, times });
        });
        if let Some((acks, waited)) = self.sender.owed.held_back(datagram.messages(), before, at) {
            self.tell.tell(side, What::ClosedGate { acks, waited: Duration::from_micros(waited) });
        }
        // The network makes copies of whole datagrams; only those with reliable messages matter.
        let copy = reliable && self.sender.is_copy(fingerprint(datagram.as_bytes()), at);
        let mut filled = DatagramFill { at, bytes: datagram.as_bytes().len() - 2, leading_acks: 0 };
        let (mut only_acks, mut first_fresh) = (true, None);
        for message in datagram.messages() {
            self.sender.traffic.note(message);
            only_acks &= matches!(message, Message::Ack(_));
            if only_acks {
                filled.leading_acks += message.wire_len();
            }
            if let Message::Ack(ack) = message {
                self.ack(ack.id, datagram.messages(), copy);
            } else if let Some(id) = message.id() {
                let fresh = self.reliable(id, message, copy);
                first_fresh = first_fresh.or_else(|| fresh.then(|| message.wire_len()));
            }
            self.note_oddities(message);
        }
        self.check_starvation(filled, first_fresh);
        self.after(datagram, filled);
    }

    fn after(&mut self, datagram: &Parsed<'_>, filled: DatagramFill) {
        let (at, side, limits) = (self.tell.at, self.side, self.limits);
        let tell = &mut *self.tell;
        let mut repeated = |id, times| tell.tell(side, What::RepeatedAck { id, times });
        self.sender.read_after(limits, &mut repeated);
        let tick = self.sender.tick();
        if datagram.as_bytes().len() < HAD_ROOM {
            let once = self.sender.owed.expire(at, |id, times| {
                if times > 1 {
                    repeated(id, times);
                }
            });
            if once {
                self.tell.tell(side, What::AcksOnce);
            }
        }
        let (tell, losses) = (&mut *self.tell, &mut self.losses);
        self.sender.sent.expire(at, tick, |id| {
            *losses += 1;
            tell.tell(side.other(), What::CaptureLoss(Missed::Ack(id)));
        });
        self.sender.last_datagram = filled;
    }

    /// The sender acknowledges what the receiver has sent.
    fn ack(&mut self, id: MessageId, together: &[Message<'_>], copy: bool) {
        let (at, side, limits) = (self.tell.at, self.side, self.limits);
        if !copy {
            let again = !self.sender.has_unread(id);
            let (waited, over) = self.sender.owed.send(id, again, at, limits.messages);
            if let Some(waited) = waited {
                self.sender.turnaround.note(waited);
            }
            if let Some(times) = over.filter(|times| *times > 1) {
                self.tell.tell(side, What::RepeatedAck { id, times });
            }
        }
        if !self.heard {
            // A host that is not stock may have heard it all the same.
            self.receiver.sent.note_unheard(Key::new(id));
            return;
        }
        let key = Key::new(id);
        let Some(sent) = self.receiver.sent.get_mut(key) else { return self.unknown_ack(id) };
        sent.acks = sent.acks.saturating_add(1);
        let (times, about, queued) = (sent.acks, sent.about, sent.queued);
        match sent.acked {
            None => {
                sent.acked = Some(at);
                if sent.sends == 1 {
                    let took = at.micros_since(sent.first);
                    self.receiver.round_trip.note(took);
                }
            }
            Some(since) => {
                let len = 4 + usize::from(id.part.is_some());
                self.sender.traffic.stale_acks.add(len);
                self.tell.tell(side, What::StaleAck { about, age: at.since(since), times });
            }
        }
        if queued {
            self.receiver.arrive((at, self.tell.mark), Arrival::Ack(id), limits, |_, _| {});
        } else {
            self.note_spare(id);
        }
        self.explain(key, together);
    }

    /// The receiver gets an ACK that clears nothing.
    #[inline]
    fn note_spare(&mut self, id: MessageId) {
        if self.receiver.handled.is_some() {
            let place = (self.tell.at, self.tell.mark);
            self.receiver.arrive(place, Arrival::SpareAck(id), self.limits, |_, _| {});
        }
    }

    /// An ACK for something that was not seen.
    fn unknown_ack(&mut self, id: MessageId) {
        self.note_spare(id);
        if self.receiver.sent.note_wrong_form(id) {
            return;
        }
        let (at, mark) = (self.tell.at, self.tell.mark);
        let before = !self.whole && self.receiver.numbers_mut(id.channel).is_before_first(id.seq);
        self.receiver.sent.insert(ghost(id, at), self.limits.messages);
        if !before {
            self.receiver.numbers_mut(id.channel).note(id.seq, at, mark);
            self.losses += 1;
            self.tell.tell(self.side.other(), What::CaptureLoss(Missed::Message(id)));
        }
    }

    /// An ACK came for a message that was sent again: does it tell why?
    fn explain(&mut self, key: Key, together: &[Message<'_>]) {
        if self.receiver.sent.unexplained.is_empty() {
            return;
        }
        let (at, owner) = (self.tell.at, self.side.other());
        let mut explained: Vec<(Unexplained, RetransmitCause)> = Vec::new();
        let mut open = core::mem::take(&mut self.receiver.sent.unexplained);
        open.retain_mut(|open| {
            if open.key != key {
                return true;
            }
            let cause = cause(open, together, self.receiver, self.sender.missed, at);
            (open.looks, open.last_ack) = (open.looks + 1, at);
            explained.extend(cause.map(|cause| (*open, cause)));
            cause.is_none()
        });
        self.receiver.sent.unexplained = open;
        for (open, cause) in explained {
            tell_cause(self.receiver, owner, open, cause, self.tell);
        }
    }

    /// The sender sends a reliable message. Returns whether for the first time.
    fn reliable(&mut self, id: MessageId, message: &Message<'_>, copy: bool) -> bool {
        let (at, mark, side, limits) = (self.tell.at, self.tell.mark, self.side, self.limits);
        let tell = &mut *self.tell;
        if self.heard {
            self.receiver.arrive((at, mark), Arrival::Message(id), limits, |id, times| {
                tell.tell(side.other(), What::RepeatedAck { id, times });
            });
        }
        let key = Key::new(id);
        let print = message_print(message);
        match self.sender.sent.get(key) {
            Some(sent) if sent.fingerprint == print || sent.fingerprint == UNSEEN => {
                let about = sent.about;
                if copy {
                    self.tell.tell(side, What::DuplicateDelivery { about });
                } else {
                    self.again(key, message);
                }
                return false;
            }
            _ => {}
        }
        self.sender.numbers_mut(id.channel).note(id.seq, at, mark);
        let opcode = opcode(message).or_else(|| self.sender.sent.opcode(id));
        let about = About { id, kind: Some(message.kind()), opcode };
        let sent = SentMessage {
            about,
            first: at,
            last: at,
            sends: 1,
            rhythm: Rhythm::of(message),
            acked: None,
            acks: 0,
            wrong_form: false,
            queued: true,
            fingerprint: print,
            parts: (1, part_count(message)),
        };
        self.sender.sent.insert(sent, limits.messages);
        true
    }

    /// The sender sends a message again.
    fn again(&mut self, key: Key, message: &Message<'_>) {
        let (at, mark, side) = (self.tell.at, self.tell.mark, self.side);
        self.sender.traffic.retransmissions.add(message.wire_len());
        let late_within = self.sender.late_within();
        let Some(sent) = self.sender.sent.get(key).copied() else { return };
        let id = sent.about.id;
        let previous = sent.last;
        let times = sent.sends + 1;
        let cause = match sent.acked {
            Some(acked) if at.micros_since(acked) <= late_within => Some(RetransmitCause::AckLate),
            Some(_) => Some(RetransmitCause::AckLost),
            None if sent.wrong_form => Some(RetransmitCause::WrongForm),
            None => None,
        };
        if let Some(entry) = self.sender.sent.get_mut(key) {
            (entry.last, entry.sends) = (at, times);
            if cause == Some(RetransmitCause::AckLost) {
                entry.acked = None;
            }
        }
        if cause != Some(RetransmitCause::AckLate) {
            self.sender.forget_unread(Arrival::Ack(id));
            self.sender.sent.unsettle(key);
        }
        let (about, after) = (sent.about, at.since(sent.first));
        if self.left {
            let cause = RetransmitCause::ReceiverLeft;
            self.tell.tell(side, What::Retransmission { about, times, after, cause });
            return;
        }
        match cause {
            Some(cause) => {
                self.tell.tell(side, What::Retransmission { about, times, after, cause });
            }
            None => {
                let open =
                    Unexplained { key, at, mark, times, previous, looks: 0, last_ack: at, arrived: None };
                self.open(open);
            }
        }
        if sent.acked.is_some() || sent.wrong_form {
            self.tell.tell(side, What::DuplicateDelivery { about });
        }
        self.check_stuck(&sent, times);
    }

    /// A retransmission waits to be explained. If too many do, the oldest is told as it looks.
    fn open(&mut self, open: Unexplained) {
        if self.sender.sent.unexplained.len() >= self.limits.messages
            && let Some(oldest) = self.sender.sent.unexplained.pop_front()
        {
            let cause = unanswered(&oldest, self.receiver.missed);
            tell_cause(self.sender, self.side, oldest, cause, self.tell);
        }
        self.sender.sent.unexplained.push_back(open);
    }

    fn check_stuck(&mut self, sent: &SentMessage, times: u32) {
        let seq = sent.about.id.seq;
        if sent.about.id.part.is_none() || times < STUCK_AFTER || self.sender.stuck.contains(&seq) {
            return;
        }
        if self.sender.stuck.len() >= MAX_STUCK {
            self.sender.stuck.pop_front();
        }
        self.sender.stuck.push_back(seq);
        let waiting = self.sender.sent.parts_of(seq);
        let (age, wrong_form) = (self.tell.at.since(sent.first), sent.wrong_form);
        self.tell.tell(self.side, What::StuckFragments { seq, waiting, age, wrong_form });
    }

    /// A message that leaves now would have left with the datagram before if its ACKs had not taken the room.
    fn check_starvation(&mut self, filled: DatagramFill, first_fresh: Option<usize>) {
        let Some(waiting) = first_fresh else { return };
        let last = self.sender.last_datagram;
        let soon = filled.at.micros_since(last.at) <= 2 * self.sender.tick();
        if soon && last.bytes + waiting > ROOM && last.bytes + waiting <= ROOM + last.leading_acks {
            let ack_bytes = u32::try_from(last.leading_acks).unwrap_or(u32::MAX);
            let waiting_bytes = u32::try_from(waiting).unwrap_or(u32::MAX);
            self.tell.tell(self.side, What::Starvation { ack_bytes, waiting_bytes });
        }
    }

    fn note_oddities(&mut self, message: &Message<'_>) {
        let odd = NonStock::of(message);
        if !odd.is_empty() && !self.sender.odd.contains(odd) {
            self.sender.odd = self.sender.odd | odd;
            self.tell.tell(self.side, What::NonStock(odd));
        }
    }
}

/// Returns a message that was acknowledged and not seen.
const fn ghost(id: MessageId, at: Time) -> SentMessage {
    SentMessage {
        about: unknown(id),
        first: at,
        last: at,
        sends: 1,
        rhythm: Rhythm::Sawtooth,
        acked: Some(at),
        acks: 1,
        wrong_form: false,
        queued: false,
        fingerprint: UNSEEN,
        parts: (0, 0),
    }
}

/// Returns how many parts a first part announces.
const fn part_count(message: &Message<'_>) -> u8 {
    match message {
        Message::Data(Data { delivery: Delivery::Fragment(_, Part::First { total }), .. }) => total.get(),
        Message::Data(_) | Message::Ack(_) | Message::Keepalive | Message::Control(_) => 0,
    }
}

/// Enough of a message to know it again.
fn message_print(message: &Message<'_>) -> u64 {
    let payload = if let Message::Data(data) = message { data.payload } else { &[] };
    let head = payload.get(..payload.len().min(32)).unwrap_or_default();
    fingerprint(head) ^ (message.wire_len() as u64) << 8 ^ u64::from(message.kind().0) | 1 << 63
}

/// Equal for equal bytes, and hardly ever for others.
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

/// The fingerprint of what was not seen.
const UNSEEN: u64 = 0;
/// A datagram below this size has room for all ACKs that are due.
const HAD_ROOM: usize = 400;
/// A part that is sent this often is stuck.
const STUCK_AFTER: u32 = 5;
const MAX_STUCK: usize = 64;
