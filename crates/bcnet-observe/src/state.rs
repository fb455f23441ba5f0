//! Two addresses that talk to each other.

use core::net::SocketAddrV4;
use core::time::Duration;

use crate::cause::close;
use crate::finding::{Missed, What};
use crate::sent::{Key, Unexplained};
use crate::side::{Quiet, SideState};
use crate::step::{Contents, DatagramStep, is_heard};
use crate::stock::{LINGER, SECOND, TIMEOUT};
use crate::{ConversationId, Limits, NO_MARK, Parsed, Side, Teller};
use bcnet_wire::{Body, Channel, Data, Delivery, Message, MessageId, PeerId, Seq, Time};

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
pub(crate) struct ConversationState {
    pub(crate) id: ConversationId,
    pub(crate) addresses: [SocketAddrV4; 2],
    pub(crate) sides: [SideState; 2],
    pub(crate) started: Time,
    pub(crate) last: Time,
    pub(crate) capture_losses: u64,
    /// The nonce of the connection, if its beginning was seen.
    nonce: Option<u32>,
    goodbye: Option<Goodbye>,
    /// Whether time alone can tell no more of it.
    asleep: bool,
}

impl ConversationState {
    pub(crate) fn new(id: ConversationId, addresses: [SocketAddrV4; 2], at: Time) -> Self {
        Self {
            id,
            addresses,
            sides: [SideState::new(), SideState::new()],
            started: at,
            last: at,
            capture_losses: 0,
            nonce: None,
            goodbye: None,
            asleep: false,
        }
    }

    /// Returns the side that sends from an address.
    pub(crate) fn side(&self, from: SocketAddrV4) -> Side {
        let [first, _] = self.addresses;
        if from == first { Side::First } else { Side::Second }
    }

    pub(crate) const fn side_state(&self, side: Side) -> &SideState {
        let [first, second] = &self.sides;
        match side {
            Side::First => first,
            Side::Second => second,
        }
    }

    pub(crate) const fn side_state_mut(&mut self, side: Side) -> &mut SideState {
        let [first, second] = &mut self.sides;
        match side {
            Side::First => first,
            Side::Second => second,
        }
    }

    /// `side` sends a datagram.
    pub(crate) fn observe(
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
        self.side_state_mut(side).quiet = Quiet::No;
        let Contents { control, reliable } = Contents::of(datagram);
        self.note_sender(side, datagram.sender());
        if control {
            self.note_session(side, datagram);
        }
        let nonce = self.nonce;
        let left = self.goodbye.is_some_and(|goodbye| goodbye.gone == side.other());
        let [first, second] = &mut self.sides;
        let (sender, receiver) = match side {
            Side::First => (first, second),
            Side::Second => (second, first),
        };
        sender.traffic.datagrams += 1;
        sender.traffic.bytes += datagram.as_bytes().len() as u64;
        let (whole, heard) = (nonce.is_some(), is_heard(datagram));
        let mut step = DatagramStep { sender, receiver, side, limits, tell, whole, heard, left, losses: 0 };
        step.run(datagram, reliable);
        self.capture_losses += step.losses;
        if control {
            self.note_leaving(side, at, datagram);
        }
    }

    fn note_sender(&mut self, side: Side, sender: PeerId) {
        if sender != PeerId::UNASSIGNED || self.side_state(side).id.is_none() {
            self.side_state_mut(side).id = Some(sender);
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
                    self.sides.iter_mut().for_each(SideState::restart);
                }
                Body::ConnectReply { assigned } => {
                    self.side_state_mut(side.other()).id = Some(assigned);
                    if datagram.messages().iter().any(is_cookie) {
                        self.side_state_mut(side).owed.assume_once();
                    }
                }
                Body::ConnectRequest { .. }
                | Body::Identity { .. }
                | Body::Boot { .. }
                | Body::Disconnect { .. } => {}
            }
        }
    }

    fn note_leaving(&mut self, side: Side, at: Time, datagram: &Parsed<'_>) {
        for message in datagram.messages() {
            let Message::Control(control) = message else { continue };
            match control.body {
                Body::Disconnect { peer, .. } | Body::Boot { target: peer, .. } if self.goodbye.is_none() => {
                    let named = |side: &Side| self.side_state(*side).id == Some(peer);
                    let Some(gone) = [side, side.other()].into_iter().find(named) else { continue };
                    let leaves = matches!(control.body, Body::Disconnect { .. });
                    let leaver = message.id().filter(|_| leaves).map(|id| (side, Key::new(id)));
                    self.goodbye = Some(Goodbye { at, gone, leaver });
                }
                Body::Disconnect { .. }
                | Body::Boot { .. }
                | Body::Identity { .. }
                | Body::ConnectRequest { .. }
                | Body::ConnectReply { .. } => {}
            }
        }
    }

    /// Returns whether a side has dropped its queues: whoever leaves does when its goodbye is acknowledged, the other
    /// when the time is over in which it may still have to answer.
    pub(crate) fn is_over(&self, side: Side, state: &SideState, now: Time) -> bool {
        self.goodbye.is_some_and(|Goodbye { at, leaver, .. }| {
            let waits = |key| state.sent.get(key).is_some_and(|sent| sent.queued);
            now.micros_since(at) > LINGER || leaver.is_some_and(|(who, key)| who == side && !waits(key))
        })
    }

    /// Tells of a side that has not been heard for too long.
    pub(crate) fn check_silence(&mut self, now: Time, tell: &mut Teller<'_>) {
        let heard =
            |state: &SideState| state.last_sent.is_some_and(|last| now.micros_since(last) <= SILENT_AFTER);
        if self.goodbye.is_some() || self.sides.iter().all(heard) {
            return;
        }
        for side in [Side::First, Side::Second] {
            let answered = self.side_state(side.other()).id.is_some_and(|id| id != PeerId::UNASSIGNED);
            let state = self.side_state(side);
            let lasted = now.micros_since(state.last_sent.unwrap_or(self.started));
            let quiet = match lasted {
                _ if lasted > TIMEOUT => Quiet::TimedOut,
                _ if lasted > SILENT_AFTER => Quiet::Silent,
                _ => Quiet::No,
            };
            if quiet <= state.quiet {
                continue;
            }
            let unseen = state.last_sent.is_none() && answered;
            let told = state.quiet;
            self.side_state_mut(side).quiet = quiet;
            let lasted = Duration::from_micros(lasted);
            match quiet {
                _ if unseen && told > Quiet::No => {}
                _ if unseen => {
                    self.capture_losses += 1;
                    tell.tell(side, What::CaptureLoss(Missed::Side));
                }
                Quiet::TimedOut => tell.tell(side, What::Timeout { lasted }),
                Quiet::Silent | Quiet::No => tell.tell(side, What::Silence { lasted }),
            }
        }
    }

    /// Tells what can be told only by the passing of time.
    pub(crate) fn expire(&mut self, now: Time, tell: &mut Teller<'_>) {
        if self.asleep {
            return;
        }
        self.check_silence(now, tell);
        let losses = self.capture_losses;
        for side in [Side::First, Side::Second] {
            for channel in [Channel::Control, Channel::Game] {
                // Who has gone silent may have had no chance to send it again.
                let heard = self.side_state(side).last_sent.unwrap_or(self.started);
                self.side_state_mut(side).numbers_mut(channel).expire(heard, |seq, at, mark| {
                    let (at, mark) = if mark == NO_MARK { (tell.at, tell.mark) } else { (at, mark) };
                    tell.tell_of(at, mark, side, gap(channel, seq, losses));
                });
            }
            let is_old = |open: &Unexplained| now.micros_since(open.at) > OPEN_FOR;
            self.close(side, is_old, tell);
        }
        let silent = now.micros_since(self.last) > TIMEOUT;
        let over =
            self.goodbye.is_some() && silent || self.sides.iter().all(|state| state.quiet == Quiet::TimedOut);
        self.asleep = over && self.sides.iter().all(SideState::is_told);
        if self.asleep {
            self.sides.iter_mut().for_each(|state| state.sent.forget_settled());
        }
    }

    pub(crate) const fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// `side` has sent something that the capture did not keep.
    pub(crate) fn miss(&mut self, side: Side, at: Time) {
        self.last = self.last.max(at);
        self.asleep = false;
        self.capture_losses += 1;
        let state = self.side_state_mut(side);
        (state.quiet, state.last_sent, state.missed) = (Quiet::No, Some(at), Some(at));
    }

    /// What a datagram has left open is told as it looks, or later about another.
    pub(crate) fn decide(&mut self, mark: u64, tell: &mut Teller<'_>) {
        for side in [Side::First, Side::Second] {
            self.close(side, |open| open.mark == mark, tell);
            self.side_state_mut(side).numbers.iter_mut().for_each(|numbers| numbers.unmark(mark));
        }
    }

    /// The end of the capture: what is open stays so.
    pub(crate) fn finish(&mut self, tell: &mut Teller<'_>, limits: &Limits) {
        for side in [Side::First, Side::Second] {
            if self.side_state(side).handled.is_some() {
                self.side_state_mut(side).read_after(limits, |_, _| {});
            }
            self.close(side, |_| true, tell);
        }
    }

    /// Tells of retransmissions of a side that nothing will explain.
    fn close(&mut self, side: Side, is_over: impl Fn(&Unexplained) -> bool, tell: &mut Teller<'_>) {
        let missed = self.side_state(side.other()).missed;
        close(self.side_state_mut(side), side, missed, is_over, tell);
    }
}

/// Returns whether a message is what only bcnet sends, behind its connect reply (T-76).
const fn is_cookie(message: &Message<'_>) -> bool {
    matches!(message, Message::Data(Data { delivery: Delivery::Reliable(_), payload: [], .. }))
}

/// Returns a number that never came: the capture has missed it if it has missed other things.
const fn gap(channel: Channel, seq: Seq, losses: u64) -> What {
    if losses > 0 {
        What::CaptureLoss(Missed::Message(MessageId { channel, seq, part: None }))
    } else {
        What::SequenceGap { channel, seq }
    }
}

/// Four keepalives and a little: a capture that misses one in twenty hardly misses all of them.
const SILENT_AFTER: u64 = 22 * SECOND;
/// For so long an ACK may still come that explains a retransmission.
const OPEN_FOR: u64 = 12 * SECOND;
