//! Two addresses that talk to each other.

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::time::Duration;

use crate::finding::{About, Missed, RetransmitCause, What};
use crate::half::{Arrival, Filled, Half, Quiet};
use crate::ledger::{Key, Ledger, Open, Sent, unknown};
use crate::stock::{LINGER, ROOM, Rhythm, SECOND, TIMEOUT};
use crate::traffic::opcode;
use crate::{ConversationId, Limits, Side, Teller};
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Channel, Control, Message, MessageId, Parsed, PeerId, Seq};

/// The message that ends a conversation.
#[derive(Debug, Clone, Copy)]
struct Goodbye {
    at: Time,
    /// Who is not there any more, of its own accord or not.
    gone: Side,
    /// Who leaves of its own accord, and with which message.
    leaver: Option<(Side, Key)>,
}

#[derive(Debug, Clone)]
pub(super) struct Talk {
    pub(super) id: ConversationId,
    pub(super) addresses: [SocketAddrV4; 2],
    pub(super) halves: [Half; 2],
    pub(super) started: Time,
    pub(super) last: Time,
    pub(super) capture_losses: u64,
    /// The nonce of the connection, if its beginning was seen.
    nonce: Option<u32>,
    goodbye: Option<Goodbye>,
    /// Whether time alone can tell no more of it.
    asleep: bool,
}

impl Talk {
    pub(super) fn new(id: ConversationId, addresses: [SocketAddrV4; 2], at: Time) -> Self {
        Self {
            id,
            addresses,
            halves: [Half::new(), Half::new()],
            started: at,
            last: at,
            capture_losses: 0,
            nonce: None,
            goodbye: None,
            asleep: false,
        }
    }

    /// The side that sends from an address.
    pub(super) fn side(&self, from: SocketAddrV4) -> Side {
        let [first, _] = self.addresses;
        if from == first { Side::First } else { Side::Second }
    }

    pub(super) const fn half(&self, side: Side) -> &Half {
        let [first, second] = &self.halves;
        match side {
            Side::First => first,
            Side::Second => second,
        }
    }

    pub(super) const fn half_mut(&mut self, side: Side) -> &mut Half {
        let [first, second] = &mut self.halves;
        match side {
            Side::First => first,
            Side::Second => second,
        }
    }

    /// `side` sends a datagram.
    pub(super) fn observe(
        &mut self,
        side: Side,
        datagram: &Parsed<'_>,
        limits: &Limits,
        tell: &mut Teller<'_>,
    ) {
        let at = tell.at;
        self.check_silence(at, tell);
        self.last = self.last.max(at);
        self.asleep = false;
        self.half_mut(side).quiet = Quiet::No;
        let Contents { control, reliable } = Contents::of(datagram);
        self.note_sender(side, datagram.sender());
        if control {
            self.note_session(side, datagram);
        }
        let nonce = self.nonce;
        let left = self.goodbye.is_some_and(|goodbye| goodbye.gone == side.other());
        let [first, second] = &mut self.halves;
        let (sender, receiver) = match side {
            Side::First => (first, second),
            Side::Second => (second, first),
        };
        sender.traffic.datagrams += 1;
        sender.traffic.bytes += datagram.as_bytes().len() as u64;
        let (whole, heard) = (nonce.is_some(), is_heard(datagram));
        let mut passage = Passage { sender, receiver, side, limits, tell, whole, heard, left, losses: 0 };
        passage.run(datagram, reliable);
        self.capture_losses += passage.losses;
        if control {
            self.note_leaving(side, at, datagram);
        }
    }

    fn note_sender(&mut self, side: Side, sender: PeerId) {
        if sender != PeerId::UNASSIGNED || self.half(side).id.is_none() {
            self.half_mut(side).id = Some(sender);
        }
    }

    /// Ids that are given, and the beginning of a connection.
    fn note_session(&mut self, side: Side, datagram: &Parsed<'_>) {
        for message in datagram.messages() {
            let Message::Control(control) = message else { continue };
            match control.body {
                Body::ConnectRequest { nonce, .. } if self.nonce != Some(nonce) => {
                    self.nonce = Some(nonce);
                    self.goodbye = None;
                    self.halves.iter_mut().for_each(Half::restart);
                }
                Body::ConnectReply { assigned } => self.half_mut(side.other()).id = Some(assigned),
                _ => {}
            }
        }
    }

    fn note_leaving(&mut self, side: Side, at: Time, datagram: &Parsed<'_>) {
        for message in datagram.messages() {
            let Message::Control(control) = message else { continue };
            match control.body {
                Body::Disconnect { peer, .. } | Body::Boot { target: peer, .. } if self.goodbye.is_none() => {
                    let named = |side: &Side| self.half(*side).id == Some(peer);
                    let Some(gone) = [side, side.other()].into_iter().find(named) else { continue };
                    let leaves = matches!(control.body, Body::Disconnect { .. });
                    let leaver = message.id().filter(|_| leaves).map(|id| (side, Key::new(id)));
                    self.goodbye = Some(Goodbye { at, gone, leaver });
                }
                _ => {}
            }
        }
    }

    /// Whether a side has dropped its queues: whoever leaves does when its goodbye is acknowledged, the other when the
    /// time is over in which it may still have to answer.
    pub(super) fn is_over(&self, side: Side, half: &Half, now: Time) -> bool {
        self.goodbye.is_some_and(|Goodbye { at, leaver, .. }| {
            let waits = |key| half.sent.get(key).is_some_and(|sent| sent.queued);
            now.micros_since(at) > LINGER || leaver.is_some_and(|(who, key)| who == side && !waits(key))
        })
    }

    /// Tells of a side that has not been heard for too long.
    pub(super) fn check_silence(&mut self, now: Time, tell: &mut Teller<'_>) {
        let heard = |half: &Half| half.last_sent.is_some_and(|last| now.micros_since(last) <= SILENT_AFTER);
        if self.goodbye.is_some() || self.halves.iter().all(heard) {
            return;
        }
        for side in [Side::First, Side::Second] {
            let answered = self.half(side.other()).id.is_some_and(|id| id != PeerId::UNASSIGNED);
            let half = self.half(side);
            let lasted = now.micros_since(half.last_sent.unwrap_or(self.started));
            let quiet = match lasted {
                _ if lasted > TIMEOUT => Quiet::TimedOut,
                _ if lasted > SILENT_AFTER => Quiet::Silent,
                _ => Quiet::No,
            };
            if quiet <= half.quiet {
                continue;
            }
            let unseen = half.last_sent.is_none() && answered;
            let told = half.quiet;
            self.half_mut(side).quiet = quiet;
            let lasted = Duration::from_micros(lasted);
            match quiet {
                _ if unseen && told > Quiet::No => {}
                _ if unseen => {
                    self.capture_losses += 1;
                    tell.tell(side, What::CaptureLoss(Missed::Side));
                }
                Quiet::TimedOut => tell.tell(side, What::Timeout { lasted }),
                _ => tell.tell(side, What::Silence { lasted }),
            }
        }
    }

    /// Tells what can be told only by the passing of time.
    pub(super) fn expire(&mut self, now: Time, tell: &mut Teller<'_>) {
        if self.asleep {
            return;
        }
        self.check_silence(now, tell);
        let losses = self.capture_losses;
        for side in [Side::First, Side::Second] {
            for channel in [Channel::Control, Channel::Game] {
                // Who has gone silent may have had no chance to send it again.
                let heard = self.half(side).last_sent.unwrap_or(self.started);
                self.half_mut(side).numbers_mut(channel).expire(heard, |seq, at, mark| {
                    tell.tell_of(at, mark, side, gap(channel, seq, losses));
                });
            }
            close_old(self.half_mut(side), side, now, OPEN_FOR, tell);
        }
        let over = self.goodbye.is_some() || self.halves.iter().all(|half| half.quiet == Quiet::TimedOut);
        self.asleep = over && self.halves.iter().all(Half::is_told);
    }

    /// The end of the capture: what is open stays so.
    pub(super) fn finish(&mut self, tell: &mut Teller<'_>) {
        for side in [Side::First, Side::Second] {
            close_old(self.half_mut(side), side, Time::from_micros(u64::MAX), 0, tell);
        }
    }
}

/// A number that never came: the capture has missed it if it has missed other things.
const fn gap(channel: Channel, seq: Seq, losses: u64) -> What {
    if losses > 0 {
        What::CaptureLoss(Missed::Message(MessageId { channel, seq, part: None }))
    } else {
        What::SequenceGap { channel, seq }
    }
}

/// Retransmissions that nothing has explained for a while: no ACK came.
fn close_old(half: &mut Half, side: Side, now: Time, after: u64, tell: &mut Teller<'_>) {
    let mut old: Vec<Open> = Vec::new();
    half.sent.open.retain(|open| {
        let kept = now.micros_since(open.at) <= after;
        if !kept {
            old.push(*open);
        }
        kept
    });
    for open in old {
        tell_cause(half, side, open, RetransmitCause::AckNeverSent, tell);
    }
}

fn tell_cause(half: &Half, side: Side, open: Open, cause: RetransmitCause, tell: &mut Teller<'_>) {
    let Some(sent) = half.sent.get(open.key) else { return };
    let (about, after) = (sent.about, open.at.since(sent.first));
    tell.tell_of(open.at, open.mark, side, What::Retransmission { about, times: open.times, after, cause });
    if cause == RetransmitCause::AckLost {
        tell.tell_of(open.at, open.mark, side, What::DuplicateDelivery { about });
    }
}

/// What a datagram has in it: most questions are about what most datagrams have not.
#[derive(Default)]
struct Contents {
    control: bool,
    reliable: bool,
}

impl Contents {
    fn of(datagram: &Parsed<'_>) -> Self {
        datagram.messages().iter().fold(Self::default(), |found, message| Self {
            control: found.control || matches!(message, Message::Control(_)),
            reliable: found.reliable || message.id().is_some(),
        })
    }
}

/// One datagram on its way from one side to the other.
struct Passage<'a, 'b> {
    sender: &'a mut Half,
    receiver: &'a mut Half,
    side: Side,
    limits: &'a Limits,
    tell: &'a mut Teller<'b>,
    /// Whether the beginning of the connection was seen.
    whole: bool,
    /// Whether the receiver looks at it at all.
    heard: bool,
    /// Whether the receiver has said goodbye.
    left: bool,
    losses: u64,
}

/// From a client without an id a host hears only requests and goodbyes.
fn is_heard(datagram: &Parsed<'_>) -> bool {
    datagram.sender() != PeerId::UNASSIGNED
        || matches!(
            datagram.messages().first(),
            Some(Message::Control(Control {
                body: Body::ConnectRequest { .. } | Body::Disconnect { .. },
                ..
            }))
        )
}

impl Passage<'_, '_> {
    fn run(&mut self, datagram: &Parsed<'_>, reliable: bool) {
        let (at, side, limits) = (self.tell.at, self.side, self.limits);
        let tell = &mut *self.tell;
        self.sender.read_before(at, datagram, limits, |id, times| {
            tell.tell(side, What::RepeatedAck { id, times });
        });
        // The network makes copies of whole datagrams; only those with reliable messages matter.
        let copy = reliable && self.sender.is_copy(fingerprint(datagram.as_bytes()), at);
        let mut filled = Filled { at, bytes: datagram.as_bytes().len() - 2, leading_acks: 0 };
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

    fn after(&mut self, datagram: &Parsed<'_>, filled: Filled) {
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
            let (waited, over) = self.sender.owed.send(id, at, limits.messages);
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
            self.receiver.arrive(at, Arrival::Ack(id), limits, |_, _| {});
        }
        self.explain(key, together);
    }

    /// An ACK for something that was not seen.
    fn unknown_ack(&mut self, id: MessageId) {
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
        if self.receiver.sent.open.is_empty() {
            return;
        }
        let (at, owner) = (self.tell.at, self.side.other());
        let mut explained: Vec<(Open, RetransmitCause)> = Vec::new();
        let mut open = core::mem::take(&mut self.receiver.sent.open);
        open.retain_mut(|open| {
            if open.key != key {
                return true;
            }
            let cause = cause(open, together, self.receiver, at);
            (open.looks, open.last_ack) = (open.looks + 1, at);
            explained.extend(cause.map(|cause| (*open, cause)));
            cause.is_none()
        });
        self.receiver.sent.open = open;
        for (open, cause) in explained {
            tell_cause(self.receiver, owner, open, cause, self.tell);
        }
    }

    /// The sender sends a reliable message. Whether for the first time.
    fn reliable(&mut self, id: MessageId, message: &Message<'_>, copy: bool) -> bool {
        let (at, mark, side, limits) = (self.tell.at, self.tell.mark, self.side, self.limits);
        let tell = &mut *self.tell;
        if self.heard {
            self.receiver.arrive(at, Arrival::Message(id), limits, |id, times| {
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
        let sent = Sent {
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
                let open = Open { key, at, mark, times, previous, looks: 0, last_ack: at, arrived: None };
                self.open(open);
            }
        }
        if sent.acked.is_some() || sent.wrong_form {
            self.tell.tell(side, What::DuplicateDelivery { about });
        }
        self.check_stuck(&sent, times);
    }

    /// A retransmission waits to be explained. If too many do, the oldest is told as it looks.
    fn open(&mut self, open: Open) {
        if self.sender.sent.open.len() >= self.limits.messages
            && let Some(oldest) = self.sender.sent.open.pop_front()
        {
            tell_cause(self.sender, self.side, oldest, RetransmitCause::AckNeverSent, self.tell);
        }
        self.sender.sent.open.push_back(open);
    }

    fn check_stuck(&mut self, sent: &Sent, times: u32) {
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
    fn check_starvation(&mut self, filled: Filled, first_fresh: Option<usize>) {
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
        let odd = message.non_stock();
        if !odd.is_empty() && !self.sender.odd.contains(odd) {
            self.sender.odd = self.sender.odd | odd;
            self.tell.tell(self.side, What::NonStock(odd));
        }
    }
}

/// Why a message was sent again, if the ACK that comes now at `at` is enough to tell.
fn cause(open: &mut Open, together: &[Message<'_>], sender: &Half, at: Time) -> Option<RetransmitCause> {
    let (since, trip) = (at.micros_since(open.at), sender.round_trip);
    let for_previous = trip.is_impossible(since) && trip.is_likely(at.micros_since(open.previous));
    // A stock receiver repeats an ACK sooner than after its usual time only if the message came again meanwhile.
    let restarted = open.looks > 0 && at.micros_since(open.last_ack) < RESTARTED_WITHIN;
    if open.looks == 0 && for_previous || open.looks > 0 && restarted {
        return Some(RetransmitCause::AckLate);
    }
    open.arrived = open.arrived.or_else(|| arrived_before(open, together, &sender.sent, at));
    match open.arrived {
        Some(false) => Some(RetransmitCause::AckNeverSent),
        Some(true) if open.looks > 0 => Some(RetransmitCause::AckLost),
        _ if open.looks < MAX_LOOKS => None,
        Some(true) => Some(RetransmitCause::AckLost),
        None => Some(RetransmitCause::AckNeverSent),
    }
}

/// Whether the receiver had the message before the retransmission, from the order of its ACKs: it keeps them in the
/// order of arrival and sends them in front of everything else. What was sent between the two copies and is acknowledged
/// with it tells.
fn arrived_before(open: &Open, together: &[Message<'_>], sent: &Ledger, at: Time) -> Option<bool> {
    let key = |message: &Message<'_>| match message {
        Message::Ack(ack) => Some(Key::new(ack.id)),
        Message::Keepalive | Message::Control(_) | Message::Data(_) => None,
    };
    let leading = || together.iter().map_while(key).enumerate();
    let (own, _) = leading().find(|(_, key)| *key == open.key)?;
    leading().find_map(|(place, key)| {
        let other = sent.get(key)?;
        let between = other.first > open.previous && other.first < open.at && other.sends == 1;
        // ACKs that had their free sends come last, whatever their order.
        let free = at.micros_since(other.first) < FREE_FOR;
        (between && (free || place < own)).then_some(own < place)
    })
}

/// A message that was acknowledged and not seen.
const fn ghost(id: MessageId, at: Time) -> Sent {
    Sent {
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
/// Four keepalives and a little: a capture that misses one in twenty hardly misses all of them.
const SILENT_AFTER: u64 = 22 * SECOND;
/// A datagram below this size has room for all ACKs that are due.
const HAD_ROOM: usize = 400;
/// After so many ACKs a retransmission is told as it looks.
const MAX_LOOKS: u8 = 3;
/// A little less than the time between two sendings of an ACK.
const RESTARTED_WITHIN: u64 = SECOND / 2;
/// A little less than the time in which an ACK has its free sends.
const FREE_FOR: u64 = SECOND + SECOND / 4;
/// For so long an ACK may still come that explains a retransmission.
const OPEN_FOR: u64 = 12 * SECOND;
/// A part that is sent this often is stuck.
const STUCK_AFTER: u32 = 5;
const MAX_STUCK: usize = 64;
