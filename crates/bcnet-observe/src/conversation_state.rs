//! The state of one conversation between two addresses.

use core::net::SocketAddrV4;
use core::time::Duration;

use crate::analysis::{ContentFlags, DatagramAnalysis, is_cookie_message, is_read_by_host};
use crate::cause::close_unexplained;
use crate::finding::{CaptureMiss, FindingKind};
use crate::sent_messages::{MessageKey, UnexplainedRetransmission};
use crate::side::{IdleLevel, SideState};
use crate::stock::{LINGER, PEER_TIMEOUT, SECOND};
use crate::{ConversationId, FindingReporter, NO_MARK, ObserverLimits, ParsedDatagram, Side};
use bcnet_wire::{Body, Channel, Message, MessageId, PeerId, Seq, Time};

/// The end of a conversation.
#[derive(Debug, Clone, Copy)]
struct ConversationEnd {
    at: Time,
    /// The side that is gone, because it left or because it was booted.
    departed: Side,
    /// The side that left by itself, and the key of its disconnect message.
    leaver: Option<(Side, MessageKey)>,
}

#[derive(Debug, Clone)]
pub(crate) struct ConversationState {
    pub(crate) id: ConversationId,
    pub(crate) addresses: [SocketAddrV4; 2],
    pub(crate) sides: [SideState; 2],
    pub(crate) started: Time,
    pub(crate) last_seen: Time,
    pub(crate) capture_losses: u64,
    /// The nonce of the connection, if its start was seen.
    nonce: Option<u32>,
    end: Option<ConversationEnd>,
    /// `true` if the passing of time can produce no more findings here.
    dormant: bool,
}

impl ConversationState {
    pub(crate) fn new(id: ConversationId, addresses: [SocketAddrV4; 2], at: Time) -> Self {
        Self {
            id,
            addresses,
            sides: [SideState::new(), SideState::new()],
            started: at,
            last_seen: at,
            capture_losses: 0,
            nonce: None,
            end: None,
            dormant: false,
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

    /// Analyses a datagram that `side` sends.
    pub(crate) fn observe(
        &mut self,
        side: Side,
        datagram: &ParsedDatagram<'_>,
        limits: &ObserverLimits,
        reporter: &mut FindingReporter<'_>,
    ) {
        let at = reporter.at;
        self.check_idle(at, reporter);
        self.last_seen = self.last_seen.max(at);
        self.dormant = false;
        self.side_state_mut(side).idle_level = IdleLevel::Active;
        let ContentFlags { control, connect_reply, reliable } = ContentFlags::of(datagram);
        self.note_sender(side, datagram.sender());
        if control {
            self.note_connection(side, datagram);
        }
        let nonce = self.nonce;
        let left = self.end.is_some_and(|departure| departure.departed == side.other());
        let [first, second] = &mut self.sides;
        let (sender, receiver) = match side {
            Side::First => (first, second),
            Side::Second => (second, first),
        };
        sender.counters.datagrams += 1;
        sender.counters.bytes += datagram.as_bytes().len() as u64;
        let (whole, is_read) = (nonce.is_some(), is_read_by_host(datagram));
        let mut step = DatagramAnalysis {
            sender,
            receiver,
            side,
            limits,
            reporter,
            saw_start: whole,
            is_read,
            has_connect_reply: connect_reply,
            receiver_left: left,
            capture_losses: 0,
        };
        step.run(datagram, reliable);
        self.capture_losses += step.capture_losses;
        if control {
            self.note_disconnect(side, at, datagram);
        }
    }

    fn note_sender(&mut self, side: Side, sender: PeerId) {
        if sender != PeerId::UNASSIGNED || self.side_state(side).id.is_none() {
            self.side_state_mut(side).id = Some(sender);
        }
    }

    /// Notes assigned ids and the start of a connection.
    fn note_connection(&mut self, side: Side, datagram: &ParsedDatagram<'_>) {
        for message in datagram.messages() {
            let Message::Control(control) = message else { continue };
            match control.body {
                Body::ConnectRequest { nonce, .. } if self.nonce != Some(nonce) => {
                    self.nonce = Some(nonce);
                    self.end = None;
                    self.sides.iter_mut().for_each(SideState::restart);
                }
                Body::ConnectReply { assigned } => {
                    self.side_state_mut(side.other()).id = Some(assigned);
                    if datagram.messages().iter().any(is_cookie_message) {
                        self.side_state_mut(side).ack_outbox.assume_once();
                    }
                }
                Body::ConnectRequest { .. }
                | Body::Identity { .. }
                | Body::Boot { .. }
                | Body::Disconnect { .. } => {}
            }
        }
    }

    fn note_disconnect(&mut self, side: Side, at: Time, datagram: &ParsedDatagram<'_>) {
        for message in datagram.messages() {
            let Message::Control(control) = message else { continue };
            match control.body {
                Body::Disconnect { peer, .. } | Body::Boot { target: peer, .. } if self.end.is_none() => {
                    let named = |side: &Side| self.side_state(*side).id == Some(peer);
                    let Some(gone) = [side, side.other()].into_iter().find(named) else { continue };
                    let leaves = matches!(control.body, Body::Disconnect { .. });
                    let leaver = message.id().filter(|_| leaves).map(|id| (side, MessageKey::new(id)));
                    self.end = Some(ConversationEnd { at, departed: gone, leaver });
                }
                Body::Disconnect { .. }
                | Body::Boot { .. }
                | Body::Identity { .. }
                | Body::ConnectRequest { .. }
                | Body::ConnectReply { .. } => {}
            }
        }
    }

    /// Returns whether a side has dropped its queues.
    ///
    /// A side that leaves drops its queues when its disconnect message is acknowledged. At the end of the
    /// linger time both sides have dropped theirs. Until then a side still answers a peer that has left.
    pub(crate) fn has_dropped_queues(&self, side: Side, state: &SideState, now: Time) -> bool {
        self.end.is_some_and(|ConversationEnd { at, leaver, .. }| {
            let waits = |key| state.sent.get(key).is_some_and(|sent| sent.queued);
            now.micros_since(at) > LINGER || leaver.is_some_and(|(who, key)| who == side && !waits(key))
        })
    }

    /// Reports a side that has been silent for too long.
    pub(crate) fn check_idle(&mut self, now: Time, reporter: &mut FindingReporter<'_>) {
        let is_active =
            |state: &SideState| state.last_sent.is_some_and(|last| now.micros_since(last) <= IDLE_AFTER);
        if self.end.is_some() || self.sides.iter().all(is_active) {
            return;
        }
        for side in [Side::First, Side::Second] {
            let answered = self.side_state(side.other()).id.is_some_and(|id| id != PeerId::UNASSIGNED);
            let state = self.side_state(side);
            let lasted = now.micros_since(state.last_sent.unwrap_or(self.started));
            let quiet = match lasted {
                _ if lasted > PEER_TIMEOUT => IdleLevel::TimedOut,
                _ if lasted > IDLE_AFTER => IdleLevel::Idle,
                _ => IdleLevel::Active,
            };
            if quiet <= state.idle_level {
                continue;
            }
            let unseen = state.last_sent.is_none() && answered;
            let reported = state.idle_level;
            self.side_state_mut(side).idle_level = quiet;
            let lasted = Duration::from_micros(lasted);
            match quiet {
                _ if unseen && reported > IdleLevel::Active => {}
                _ if unseen => {
                    self.capture_losses += 1;
                    reporter.report(side, FindingKind::CaptureLoss(CaptureMiss::Side));
                }
                IdleLevel::TimedOut => reporter.report(side, FindingKind::Timeout { lasted }),
                IdleLevel::Idle | IdleLevel::Active => reporter.report(side, FindingKind::Silence { lasted }),
            }
        }
    }

    /// Reports the findings that follow only from the passing of time.
    pub(crate) fn expire(&mut self, now: Time, reporter: &mut FindingReporter<'_>) {
        if self.dormant {
            return;
        }
        self.check_idle(now, reporter);
        let losses = self.capture_losses;
        for side in [Side::First, Side::Second] {
            for channel in [Channel::Control, Channel::Game] {
                // A gap ages only up to the side's last datagram: while the side is silent, it cannot fill
                // the gap.
                let last_sent = self.side_state(side).last_sent.unwrap_or(self.started);
                self.side_state_mut(side).sequence_mut(channel).expire(last_sent, |seq, at, mark| {
                    let (at, mark) = if mark == NO_MARK { (reporter.at, reporter.mark) } else { (at, mark) };
                    reporter.report_at(at, mark, side, gap_or_capture_loss(channel, seq, losses));
                });
            }
            let is_old = |open: &UnexplainedRetransmission| now.micros_since(open.at) > EXPLAIN_WITHIN;
            self.close_unexplained(side, is_old, reporter);
        }
        let silent = now.micros_since(self.last_seen) > PEER_TIMEOUT;
        let over = self.end.is_some() && silent
            || self.sides.iter().all(|state| state.idle_level == IdleLevel::TimedOut);
        self.dormant = over && self.sides.iter().all(SideState::is_all_reported);
        if self.dormant {
            self.sides.iter_mut().for_each(|state| state.sent.forget_dequeued());
        }
    }

    pub(crate) const fn is_dormant(&self) -> bool {
        self.dormant
    }

    /// Notes that `side` has sent a datagram that the capture truncated.
    pub(crate) fn note_truncated(&mut self, side: Side, at: Time) {
        self.last_seen = self.last_seen.max(at);
        self.dormant = false;
        self.capture_losses += 1;
        let state = self.side_state_mut(side);
        (state.idle_level, state.last_sent, state.last_not_captured) =
            (IdleLevel::Active, Some(at), Some(at));
    }

    /// Reports the unexplained retransmissions in the datagram that has this mark (its number).
    ///
    /// Sequence numbers that the datagram skipped may still arrive. If they do not, a later datagram gets the
    /// finding.
    pub(crate) fn finalize_findings(&mut self, mark: u64, reporter: &mut FindingReporter<'_>) {
        for side in [Side::First, Side::Second] {
            self.close_unexplained(side, |open| open.mark == mark, reporter);
            self.side_state_mut(side).sequences.iter_mut().for_each(|numbers| numbers.clear_mark(mark));
        }
    }

    /// Reports all unexplained retransmissions at the end of the capture.
    pub(crate) fn finish(&mut self, reporter: &mut FindingReporter<'_>, limits: &ObserverLimits) {
        for side in [Side::First, Side::Second] {
            if self.side_state(side).handled_acks.is_some() {
                self.side_state_mut(side).read_after_send(limits, |_, _| {});
            }
            self.close_unexplained(side, |_| true, reporter);
        }
    }

    /// Reports retransmissions of a side for which no explanation can follow.
    fn close_unexplained(
        &mut self,
        side: Side,
        is_over: impl Fn(&UnexplainedRetransmission) -> bool,
        reporter: &mut FindingReporter<'_>,
    ) {
        let missed = self.side_state(side.other()).last_not_captured;
        close_unexplained(self.side_state_mut(side), side, missed, is_over, reporter);
    }
}

/// Returns the finding for a sequence number that never appeared in the capture.
///
/// If the capture has lost other datagrams, this one counts as lost by the capture too.
const fn gap_or_capture_loss(channel: Channel, seq: Seq, losses: u64) -> FindingKind {
    if losses > 0 {
        FindingKind::CaptureLoss(CaptureMiss::Message(MessageId { channel, seq, fragment: None }))
    } else {
        FindingKind::SequenceGap { channel, seq }
    }
}

/// Silence after which a side is reported as idle.
///
/// A live side sends four keepalives in this time. Even a capture that misses 5 % of the datagrams has one of them.
const IDLE_AFTER: u64 = 22 * SECOND;
/// An ACK that explains a retransmission may still come for this long.
const EXPLAIN_WITHIN: u64 = 12 * SECOND;
