//! The state of one peer: connection, queues, estimates and timers.

mod acks;
mod departure;
mod fill;

use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use core::time::Duration;

use crate::config::Config;
use crate::congestion::{CongestionController, RttEstimator};
use crate::endpoint::{Capacity, InFlightLimit};
use crate::inbox::{Inbox, RECEIVE_WINDOW};
use crate::outbox::{Outbox, RetransmitPolicy};
use crate::stats::PeerCounters;
use crate::time::Time;
use crate::wire::{Body, Channel, Control, Message, MessageId, PeerId, Seq, Writer};

pub(crate) use acks::AckSummary;
pub(crate) use departure::{Departure, ProbeAnswer};

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// This client has sent its connect request.
    Connecting,
    /// Messages are exchanged.
    Established,
    /// Like `Established`, but forged ACKs of this peer's messages have arrived (T-60).
    Guarded,
    /// Like `Established`, but a disconnect has arrived that may be forged (T-57).
    ///
    /// Sending pauses until `muted_until` while a new client asks for admission at the peer's address (T-77).
    Departing { muted_until: Option<Time> },
    /// A new client asks for admission at the peer's address (T-77).
    ///
    /// Sending pauses until a datagram of the peer arrives, or until the time `until`. `guesses` counts
    /// wrong cookies in the meantime.
    Contested { until: Time, guesses: u8 },
    /// This side is leaving. It sends its disconnect when all earlier messages are acknowledged.
    ///
    /// It waits for that at most half of the linger time.
    Draining { since: Time },
    /// Only the last messages are still retransmitted and acknowledged.
    ///
    /// That pauses until `muted_until` while a new client asks for admission at the peer's address (T-77).
    Lingering { until: Time, muted_until: Option<Time> },
}

impl PeerState {
    /// Returns whether the peer is connected.
    #[inline]
    pub(crate) const fn is_connected(self) -> bool {
        matches!(self, Self::Established | Self::Guarded | Self::Departing { .. } | Self::Contested { .. })
    }

    /// Returns whether the peer is connected and sending to it does not pause.
    #[inline]
    pub(crate) const fn is_active(self) -> bool {
        matches!(self, Self::Established | Self::Guarded | Self::Departing { muted_until: None })
    }
}

/// The name of a peer.
#[derive(Debug, Clone)]
pub(crate) struct PeerName {
    pub(crate) address: Ipv4Addr,
    pub(crate) utf16le: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddrV4,
    pub(crate) id: PeerId,
    pub(crate) state: PeerState,
    /// The nonce of the connect request, if it is known.
    pub(crate) nonce: Option<u32>,
    pub(crate) name: Option<PeerName>,
    /// The time from which on the next change of name is accepted.
    pub(crate) rename_allowed_at: Time,
    pub(crate) last_received: Time,
    last_queued: Time,
    pub(crate) last_data_sent: Time,
    /// The latest time at which pending ACKs leave.
    pub(crate) ack_due: Option<Time>,
    /// A keepalive is due (T-55). It is not in the outbox, so that a peer with only keepalives needs no
    /// outbox.
    pub(crate) keepalive_due: bool,
    /// The number of doublings of the timeout because the peer is silent.
    backoff: u8,
    /// The timeout minus half a tick (T-61): so the nearest tick retransmits, not only a later one.
    effective_rto: u64,
    /// The number of consecutive datagrams with ACKs that gave no round-trip time.
    acks_without_sample: u8,
    /// The peer is on the endpoint's dirty list.
    pub(crate) is_dirty: bool,
    /// The time at which the endpoint checks the peer's timers: perhaps too early, never too late.
    ///
    /// `None` if it must be computed again.
    pub(crate) wakeup: Option<Time>,
    next_seq: [Seq; 2],
    pub(crate) inboxes: [Inbox; 2],
    pub(crate) rtt: RttEstimator,
    pub(crate) congestion: CongestionController,
    pub(crate) outbox: Option<Box<Outbox>>,
    /// The last disconnect that was not verified at once (T-57).
    pub(crate) departure: Option<Box<Departure>>,
    /// A disconnect of this peer, or the restart after it, was forged (T-57).
    pub(crate) has_forgeries: bool,
    /// ACKs are guarded against forgery until this time (T-60).
    guarded_until: Time,
    pub(crate) counters: PeerCounters,
}

impl Peer {
    pub(crate) fn new(
        address: SocketAddrV4,
        id: PeerId,
        state: PeerState,
        config: &Config<u64>,
        now: Time,
    ) -> Self {
        let mut peer = Self {
            address,
            id,
            state,
            nonce: None,
            name: None,
            rename_allowed_at: now,
            last_received: now,
            last_queued: now,
            last_data_sent: Time::ZERO,
            ack_due: None,
            keepalive_due: false,
            backoff: 0,
            effective_rto: 0,
            acks_without_sample: 0,
            is_dirty: false,
            wakeup: None,
            next_seq: [Seq(0); 2],
            inboxes: [Inbox::default(), Inbox::default()],
            rtt: RttEstimator::default(),
            congestion: CongestionController::new(config),
            outbox: None,
            departure: None,
            has_forgeries: false,
            guarded_until: Time::ZERO,
            counters: PeerCounters::default(),
        };
        peer.update_rto(config);
        peer
    }

    #[inline]
    pub(crate) fn inbox(&mut self, channel: Channel) -> &mut Inbox {
        let [control, game] = &mut self.inboxes;
        match channel {
            Channel::Control => control,
            Channel::Game => game,
        }
    }

    /// Takes the next sequence number of a channel.
    #[inline]
    pub(crate) const fn take_seq(&mut self, channel: Channel) -> Seq {
        let [control, game] = &mut self.next_seq;
        let next = match channel {
            Channel::Control => control,
            Channel::Game => game,
        };
        let seq = *next;
        *next = seq.next();
        seq
    }

    #[inline]
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.outbox.get_or_insert_with(new_outbox)
    }

    pub(crate) fn outbox_ref(&self) -> Option<&Outbox> {
        self.outbox.as_deref()
    }

    /// Returns the interval after `sends` sends of a message, in microseconds.
    pub(crate) fn retransmit_interval(&self, sends: u8, config: &Config<u64>) -> u64 {
        let policy = retransmit_policy(self.state, self.rto(config));
        policy.rto.saturating_mul(1 + u64::from(policy.extra_timeouts(sends)))
    }

    /// Returns the smoothed round-trip time, if it was measured.
    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed().map(|micros| Duration::from_micros(micros.into()))
    }

    #[inline]
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.outbox.as_ref().map_or((0, 0), |outbox| (outbox.queued(), outbox.queued_bytes()))
    }

    /// Returns whether one old unacknowledged message keeps too many later ones in memory.
    #[inline]
    pub(crate) fn is_head_of_line_blocked(&self, config: &Config<u64>) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| {
            let (numbers, bytes) = outbox.retained();
            numbers >= RECEIVE_WINDOW || bytes / 2 > config.max_queued_bytes
        })
    }

    /// Returns whether a game message of `len` bytes may be sent now.
    ///
    /// If reliable messages are in flight, the new one must fit into `limit` together with them, and a quarter of the
    /// congestion window must be free. Otherwise the link is full, or congested if the RTT shows a queue.
    #[inline]
    pub(crate) fn capacity(&self, len: usize, limit: InFlightLimit) -> Capacity {
        let Some(outbox) = &self.outbox else { return Capacity::Available };
        let ((numbers, _), bytes, budget) =
            (outbox.retained(), outbox.reliable_bytes(), self.congestion.window());
        let in_flight = bytes + numbers * LONE_MESSAGE_OVERHEAD;
        if numbers == 0
            || numbers < limit.messages
                && in_flight + len + LONE_MESSAGE_OVERHEAD <= limit.bytes
                && bytes < budget - budget / 4
        {
            Capacity::Available
        } else if self.rtt.delays_urgent_messages() {
            Capacity::Congested
        } else {
            Capacity::Full
        }
    }

    /// Queues a reliable control message, which leaves before all game data.
    pub(crate) fn queue_control(&mut self, body: Body<'_>, now: Time) {
        if self.is_control_backlog_full() {
            return;
        }
        let [seq, _] = self.next_seq;
        let mut buffer = [0; MAX_CONTROL_MESSAGE];
        let message = Message::Control(Control::new(seq, body));
        let mut writer = Writer::new(&mut buffer, PeerId::NULL);
        let written = writer.push(&message);
        if let (true, Some(datagram)) = (written, writer.finish())
            && let Some(message) = datagram.get(2..)
        {
            // Only now: the peer would wait for a number that is never sent.
            self.take_seq(Channel::Control);
            self.outbox_for_queueing(now).queue(Channel::Control, seq, None, &[], message);
        }
    }

    /// Returns the outbox to queue a message, which postpones the keepalive (T-55).
    #[inline]
    pub(crate) fn outbox_for_queueing(&mut self, now: Time) -> &mut Outbox {
        self.last_queued = now;
        self.outbox()
    }

    /// Returns the next numbers of both channels.
    #[inline]
    pub(crate) const fn next_seqs(&self) -> [Seq; 2] {
        self.next_seq
    }

    /// Returns the number of the next game message.
    pub(crate) const fn next_game_seq(&self) -> Seq {
        let [_, game] = self.next_seq;
        game
    }

    /// Returns the numbers from the oldest unacknowledged reliable message up to the next new one.
    pub(crate) fn unacked_range(&self, channel: Channel) -> Range<Seq> {
        let [control, game] = self.next_seq;
        let next = match channel {
            Channel::Control => control,
            Channel::Game => game,
        };
        self.outbox_ref().and_then(|outbox| outbox.oldest_seq(channel)).unwrap_or(next)..next
    }

    /// Queues ACKs; they leave now, or soon with data if this side is sending (T-60).
    ///
    /// `first` and `count` are those of [`Outbox::queue_ack`].
    #[inline(always)]
    pub(crate) fn queue_ack(&mut self, first: MessageId, count: u8, config: &Config<u64>, now: Time) {
        if self.outbox().queue_ack(first, count) && self.ack_due.is_none() {
            let sent_recently = now.micros_since(self.last_data_sent) <= config.ack_piggyback_window
                && self.last_data_sent > Time::ZERO;
            self.ack_due = Some(if sent_recently { now.plus(config.ack_delay) } else { now });
        }
    }

    #[inline]
    pub(crate) fn note_received(&mut self, len: usize, config: &Config<u64>, now: Time) {
        self.last_received = now;
        if self.backoff > 0 {
            self.backoff = 0;
            self.update_rto(config);
        }
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += len as u64;
    }

    /// Detects losses, after a datagram or a timeout.
    #[inline]
    pub(crate) fn detect_loss(&mut self, config: &Config<u64>, now: Time) {
        let Some(outbox) = &self.outbox else { return };
        if outbox.has_transmissions() {
            self.detect_loss_in_outbox(config, now);
        }
        self.congestion.review(&mut self.rtt, config, now);
    }

    /// Does the work of [`detect_loss`](Self::detect_loss) for a peer with sent messages.
    #[inline(never)]
    fn detect_loss_in_outbox(&mut self, config: &Config<u64>, now: Time) {
        let Some(outbox) = &mut self.outbox else { return };
        let timeout = self.effective_rto;
        let asks = self.state == PeerState::Connecting;
        let lost = outbox.detect_loss(retransmit_policy(self.state, timeout), now);
        if lost == 0 {
            return;
        }
        self.congestion.on_loss(lost);
        // T-61: the timeout doubles only while the peer is completely silent.
        let silence = now.micros_since(self.last_received);
        if !asks && silence > 2 * timeout && self.backoff < MAX_BACKOFF {
            self.backoff += 1;
            self.update_rto(config);
        }
    }

    pub(crate) fn rto(&self, config: &Config<u64>) -> u64 {
        (self.rtt.rto(config) << self.backoff).min(config.max_rto)
    }

    /// Computes the timeout after a change of the round-trip time or of the backoff.
    fn update_rto(&mut self, config: &Config<u64>) {
        // At least 1: a segment must not time out again before time has passed.
        self.effective_rto = self.rto(config).saturating_sub(config.tick / 2).max(1);
    }

    /// Returns the state after a contest or an unverified disconnect.
    pub(crate) fn live_state(&self) -> PeerState {
        if self.guarded_until > Time::ZERO { PeerState::Guarded } else { PeerState::Established }
    }

    /// Marks a keepalive as due if its interval has passed (T-55).
    pub(crate) fn check_keepalive(&mut self, config: &Config<u64>, now: Time) {
        if self.state.is_active() && now >= self.last_queued.plus(config.keepalive) {
            self.last_queued = now;
            self.keepalive_due = true;
        }
    }

    /// Records whether messages wait for an earlier one, after a message was accepted on the general path.
    ///
    /// Each channel has its own deadline for that, so that progress of one does not hide a gap of the
    /// other.
    pub(crate) fn note_stall(&mut self, channel: Channel, progress: bool, now: Time) {
        if self.inbox(channel).note_stall(progress, now) {
            self.wakeup = None;
        }
    }

    pub(crate) fn is_timed_out(&self, config: &Config<u64>, now: Time) -> bool {
        now >= self.last_received.plus(config.idle_timeout)
    }

    /// Returns whether a message is unacknowledged, or a missing one is awaited, for too long (T-64).
    pub(crate) fn is_undeliverable(&self, config: &Config<u64>, now: Time) -> bool {
        self.undeliverable_at(config).is_some_and(|at| at <= now)
    }

    /// Returns whether too many control messages or bytes are unacknowledged (T-64).
    ///
    /// The limit is the number that fits the receive window of the peer.
    fn is_control_backlog_full(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| {
            let (messages, bytes) = outbox.control_backlog();
            messages >= RECEIVE_WINDOW || bytes > MAX_CONTROL_BYTES
        })
    }

    fn undeliverable_at(&self, config: &Config<u64>) -> Option<Time> {
        if self.is_control_backlog_full() {
            return Some(Time::ZERO);
        }
        let oldest = self.outbox.as_ref().and_then(|outbox| outbox.oldest_sent_at());
        let stalled = self.inboxes.iter().filter_map(Inbox::stalled_since).min();
        Time::earliest(oldest, stalled).map(|since| since.plus(config.delivery_timeout))
    }

    /// Returns whether the disconnect and all other control messages are acknowledged, and no ACK waits.
    pub(crate) fn is_shutdown_acked(&self) -> bool {
        self.outbox_ref()
            .is_none_or(|outbox| outbox.oldest_seq(Channel::Control).is_none() && !outbox.has_pending_acks())
    }

    /// Returns a new wakeup time if the current one would be too late.
    ///
    /// Frequent operations only postpone deadlines, except those of retransmissions and of ACKs. So only these two are
    /// compared with the wakeup.
    #[inline]
    pub(crate) fn set_wakeup(&mut self, config: &Config<u64>) -> Option<Time> {
        let resend = self.outbox.as_ref().and_then(|outbox| outbox.next_timeout(self.effective_rto));
        let soonest = Time::earliest(resend, self.ack_due);
        if let Some(alarm) = self.wakeup {
            let sooner = soonest.filter(|due| *due < alarm)?;
            self.wakeup = Some(sooner);
        } else {
            self.wakeup = Some(self.next_timeout(config));
        }
        self.wakeup
    }

    /// Postpones a wakeup that was too early to `due`.
    ///
    /// A peer with recently sent data will get more soon, and then needs a wakeup within the timeout.
    pub(crate) fn postpone_wakeup(&mut self, due: Time, now: Time) -> Time {
        let sends = now.micros_since(self.last_data_sent) < self.effective_rto;
        let alarm = if sends { due.min(now.plus(self.effective_rto)) } else { due };
        self.wakeup = Some(alarm);
        alarm
    }

    /// Returns the time of the next due timer.
    #[inline(never)]
    pub(crate) fn next_timeout(&self, config: &Config<u64>) -> Time {
        let silence = self.last_received.plus(config.idle_timeout);
        let keepalive = self.last_queued.plus(config.keepalive);
        let own = match self.state {
            PeerState::Connecting => silence,
            PeerState::Contested { until, .. } => return until.min(silence),
            PeerState::Departing { muted_until: Some(muted) } => return self.departure_timeout(muted),
            PeerState::Established | PeerState::Guarded => silence.min(keepalive),
            PeerState::Departing { muted_until: None } => self.departure_timeout(silence.min(keepalive)),
            PeerState::Draining { since } => since.plus(config.linger / 2),
            PeerState::Lingering { until, muted_until: Some(muted) } => return until.min(muted),
            PeerState::Lingering { until, muted_until: None } => until,
        };
        let undeliverable = if matches!(self.state, PeerState::Established | PeerState::Guarded) {
            self.undeliverable_at(config)
        } else {
            None
        };
        let own = undeliverable.map_or(own, |due| own.min(due));
        let Some(outbox) = &self.outbox else { return own };
        let resend = outbox.next_timeout(self.effective_rto);
        let shrink =
            outbox.is_empty().then(|| self.last_queued.max(self.last_received).plus(SHRINK_AFTER_IDLE));
        let due = Time::earliest(Time::earliest(resend, self.ack_due), shrink);
        due.map_or(own, |due| own.min(due))
    }

    /// Returns the time of the next probe or of the end of the departure, at most `limit`.
    fn departure_timeout(&self, limit: Time) -> Time {
        let trip = u64::from(self.rtt.smoothed().unwrap_or(0));
        self.departure.as_ref().map_or(limit, |departure| limit.min(departure.next_timeout(trip)))
    }

    /// Releases memory that was not used for a while. Returns `false` if it was used.
    pub(crate) fn shrink(&mut self, now: Time) -> bool {
        if now < self.last_queued.max(self.last_received).plus(SHRINK_AFTER_IDLE) {
            return false;
        }
        if self.outbox.as_ref().is_some_and(|outbox| outbox.is_empty()) {
            self.outbox = None;
        }
        self.inboxes.iter_mut().for_each(Inbox::shrink);
        true
    }

    /// Drops superseded unreliable messages, if the congestion window blocks the send queue.
    #[inline]
    pub(crate) fn drop_superseded(&mut self, is_superseded: &mut dyn FnMut(&[u8]) -> bool) {
        let budget = self.congestion.window();
        if let Some(outbox) = self.outbox.as_deref_mut()
            && outbox.blocks_unreliable(budget)
        {
            outbox.drop_superseded(is_superseded);
        }
    }

    /// Returns the time at which a datagram must leave.
    ///
    /// Everything but unreliable messages leaves at once. ACKs leave when they have waited for data long
    /// enough (T-60).
    pub(crate) fn next_urgent_timeout(&self) -> Option<Time> {
        let fresh = || self.outbox.as_ref().is_some_and(|outbox| outbox.has_urgent(self.congestion.window()));
        let at_once = !self.state.is_active() || self.keepalive_due || fresh();
        if at_once { Some(Time::ZERO) } else { self.ack_due }
    }

    /// Returns whether no message waits to be sent to the peer or delivered from it.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued() == (0, 0) && !self.inboxes.iter().any(Inbox::has_buffered)
    }
}

/// Returns the policy: only a connect request is retransmitted forever and at equal intervals (T-51).
#[inline]
fn retransmit_policy(state: PeerState, timeout: u64) -> RetransmitPolicy {
    RetransmitPolicy {
        rto: timeout,
        backoff_after_sends: if state == PeerState::Connecting { u8::MAX } else { BACKOFF_AFTER_SENDS },
    }
}

/// Not inlined: rarely needed, and large.
#[cold]
#[inline(never)]
fn new_outbox() -> Box<Outbox> {
    Box::default()
}

/// The largest control message: an identity with a long name.
pub(crate) const MAX_CONTROL_MESSAGE: usize = 512;
/// The maximum bytes of queued control messages for one peer: the names of 124 others, many times over.
const MAX_CONTROL_BYTES: usize = 1 << 20;
const MAX_BACKOFF: u8 = 8;
/// The bytes of a message that is alone in its datagram, besides its own: its header, UDP and IP.
const LONE_MESSAGE_OVERHEAD: usize = 30;
/// The number of sends of one message after which its intervals grow (T-62).
const BACKOFF_AFTER_SENDS: u8 = 8;
/// In microseconds; a peer that was idle for this long needs no buffers.
const SHRINK_AFTER_IDLE: u64 = 4_000_000;
