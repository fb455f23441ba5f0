//! One remote: what is known of it, what it is owed, what it has said.

mod acks;
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

/// Where a peer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// Client: asked the host to be let in.
    Connecting,
    /// Messages flow.
    Established,
    /// T-77: somebody asks to be let in at its address. Nothing is sent until it is heard, or until then. So many numbers
    /// were guessed meanwhile.
    Contested { until: Time, guesses: u8 },
    /// This side leaves, but says so only when what was queued before has arrived, or half of the linger time is over.
    Draining { since: Time },
    /// Only the last words are still repeated and acknowledged; T-77: not while somebody asks to be let in at its address,
    /// which is until `hushed`.
    Lingering { until: Time, muted_until: Option<Time> },
}

impl PeerState {
    /// Returns whether the connection stands.
    #[inline]
    pub(crate) const fn is_connected(self) -> bool {
        matches!(self, Self::Established | Self::Contested { .. })
    }
}

/// What a peer is called.
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
    /// Of its connect request, if that is known.
    pub(crate) nonce: Option<u32>,
    pub(crate) name: Option<PeerName>,
    /// When a further change of name is listened to.
    pub(crate) rename_allowed_at: Time,
    pub(crate) last_received: Time,
    last_queued: Time,
    pub(crate) last_data_sent: Time,
    /// When owed ACKs leave at the latest.
    pub(crate) ack_due: Option<Time>,
    /// T-55: a sign of life is due. It is not in the outbox, so that a peer that is only kept alive has none.
    pub(crate) keepalive_due: bool,
    /// How often the timeout was doubled because the peer is silent.
    backoff: u8,
    /// T-61: the timeout, less what makes a retransmission happen at the service nearest to its time, not only after it.
    effective_rto: u64,
    /// How many datagrams with ACKs in a row told nothing of the round trip.
    acks_without_sample: u8,
    /// Whether it stands in the endpoint's list of peers to look at.
    pub(crate) is_dirty: bool,
    /// When the endpoint looks at it again unasked, which may be too early but never too late. `None` if that must be
    /// worked out anew.
    pub(crate) wakeup: Option<Time>,
    next_seq: [Seq; 2],
    pub(crate) inboxes: [Inbox; 2],
    pub(crate) rtt: RttEstimator,
    pub(crate) congestion: CongestionController,
    pub(crate) outbox: Option<Box<Outbox>>,
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

    /// Returns the pause after so many sends of a message, in microseconds.
    pub(crate) fn retransmit_interval(&self, sends: u8, config: &Config<u64>) -> u64 {
        let policy = retransmit_policy(self.state, self.rto(config));
        policy.rto.saturating_mul(1 + u64::from(policy.extra_timeouts(sends)))
    }

    /// Returns the smoothed round trip, if one was measured.
    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed().map(|micros| Duration::from_micros(micros.into()))
    }

    #[inline]
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.outbox.as_ref().map_or((0, 0), |outbox| (outbox.queued(), outbox.queued_bytes()))
    }

    /// Returns whether one old message that is not acknowledged keeps too many later ones from being forgotten.
    #[inline]
    pub(crate) fn is_head_of_line_blocked(&self, config: &Config<u64>) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| {
            let (numbers, bytes) = outbox.retained();
            numbers >= RECEIVE_WINDOW || bytes / 2 > config.max_queued_bytes
        })
    }

    /// Returns whether a game message of `len` bytes more may be under way: if with it there are no more than `max`, and
    /// the others leave a quarter of the budget.
    #[inline]
    pub(crate) fn capacity(&self, len: usize, limit: InFlightLimit) -> Capacity {
        let Some(outbox) = &self.outbox else { return Capacity::Available };
        let ((numbers, _), bytes, budget) =
            (outbox.retained(), outbox.reliable_bytes(), self.congestion.window());
        let on_the_way = bytes + numbers * LONE_MESSAGE_OVERHEAD;
        if numbers == 0
            || numbers < limit.messages
                && on_the_way + len + LONE_MESSAGE_OVERHEAD <= limit.bytes
                && bytes < budget - budget / 4
        {
            Capacity::Available
        } else if self.rtt.delays_urgent_messages() {
            Capacity::Congested
        } else {
            Capacity::Full
        }
    }

    /// Queues a control message, reliable and ahead of all game data.
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
            // Taken only now: a number that is never sent would be waited for.
            self.take_seq(Channel::Control);
            self.outbox_for_queueing(now).queue(Channel::Control, seq, None, &[], message);
        }
    }

    /// Returns the outbox, to queue something of which T-55 shall know.
    #[inline]
    pub(crate) fn outbox_for_queueing(&mut self, now: Time) -> &mut Outbox {
        self.last_queued = now;
        self.outbox()
    }

    /// Returns the number that the next game message will have.
    pub(crate) const fn next_game_seq(&self) -> Seq {
        let [_, game] = self.next_seq;
        game
    }

    /// Returns the numbers from the oldest reliable message that is not acknowledged up to the next.
    pub(crate) fn unacked_range(&self, channel: Channel) -> Range<Seq> {
        let [control, game] = self.next_seq;
        let next = match channel {
            Channel::Control => control,
            Channel::Game => game,
        };
        self.outbox_ref().and_then(|outbox| outbox.oldest_seq(channel)).unwrap_or(next)..next
    }

    /// T-60: the ACK leaves now, or soon in company if this side is sending anyway. `count` is that of
    /// [`Outbox::owe`].
    #[inline(always)]
    pub(crate) fn queue_ack(&mut self, first: MessageId, count: u8, config: &Config<u64>, now: Time) {
        if self.outbox().queue_ack(first, count) && self.ack_due.is_none() {
            let company = now.micros_since(self.last_data_sent) <= config.ack_piggyback_window
                && self.last_data_sent > Time::ZERO;
            self.ack_due = Some(if company { now.plus(config.ack_delay) } else { now });
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

    /// After a datagram or a timeout: what was lost?
    #[inline]
    pub(crate) fn detect_loss(&mut self, config: &Config<u64>, now: Time) {
        let Some(outbox) = &self.outbox else { return };
        if outbox.has_transmissions() {
            self.detect_loss_in_outbox(config, now);
        }
        self.congestion.review(&mut self.rtt, config, now);
    }

    /// As [`find_lost`](Self::find_lost), for a peer that was sent something.
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
        // T-61: only a peer that is wholly silent is asked ever more seldom.
        let silence = now.micros_since(self.last_received);
        if !asks && silence > 2 * timeout && self.backoff < MAX_BACKOFF {
            self.backoff += 1;
            self.update_rto(config);
        }
    }

    pub(crate) fn rto(&self, config: &Config<u64>) -> u64 {
        (self.rtt.rto(config) << self.backoff).min(config.max_rto)
    }

    /// After a change of the round trip or of the backoff.
    fn update_rto(&mut self, config: &Config<u64>) {
        // Never at once: what was looked at is not looked at again before time has passed.
        self.effective_rto = self.rto(config).saturating_sub(config.tick / 2).max(1);
    }

    /// T-55: a sign of life is due.
    pub(crate) fn check_keepalive(&mut self, config: &Config<u64>, now: Time) {
        if self.state == PeerState::Established && now >= self.last_queued.plus(config.keepalive) {
            self.last_queued = now;
            self.keepalive_due = true;
        }
    }

    /// After a message of this channel was accepted the long way. What waits for an earlier message is a deadline of its
    /// own, and one channel's progress does not hide another's gap.
    pub(crate) fn note_stall(&mut self, channel: Channel, progress: bool, now: Time) {
        if self.inbox(channel).note_stall(progress, now) {
            self.wakeup = None;
        }
    }

    pub(crate) fn is_timed_out(&self, config: &Config<u64>, now: Time) -> bool {
        now >= self.last_received.plus(config.idle_timeout)
    }

    /// T-64: a reliable message stays unacknowledged, or one that others wait for does not come.
    pub(crate) fn is_undeliverable(&self, config: &Config<u64>, now: Time) -> bool {
        self.undeliverable_at(config).is_some_and(|at| at <= now)
    }

    /// T-64: so many control messages are not acknowledged that the peer could not even take more, or so many bytes.
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

    /// Returns whether everything that must be acknowledged before leaving is.
    pub(crate) fn is_shutdown_acked(&self) -> bool {
        self.outbox_ref()
            .is_none_or(|outbox| outbox.oldest_seq(Channel::Control).is_none() && !outbox.has_pending_acks())
    }

    /// Returns a new alarm, if the one that is set would be too late.
    ///
    /// What happens often moves deadlines into the future, all but two; only those are looked at here, and nothing is
    /// worked out if they are later than the alarm.
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

    /// Sets an alarm that came too early to `due`. Whoever sent a moment ago will send again soon, and need one as early
    /// as that.
    pub(crate) fn postpone_wakeup(&mut self, due: Time, now: Time) -> Time {
        let sends = now.micros_since(self.last_data_sent) < self.effective_rto;
        let alarm = if sends { due.min(now.plus(self.effective_rto)) } else { due };
        self.wakeup = Some(alarm);
        alarm
    }

    /// Returns the next time at which something is due.
    #[inline(never)]
    pub(crate) fn next_timeout(&self, config: &Config<u64>) -> Time {
        let silence = self.last_received.plus(config.idle_timeout);
        let own = match self.state {
            PeerState::Connecting => silence,
            PeerState::Contested { until, .. } => return until.min(silence),
            PeerState::Established => silence.min(self.last_queued.plus(config.keepalive)),
            PeerState::Draining { since } => since.plus(config.linger / 2),
            PeerState::Lingering { until, muted_until: Some(hushed) } => return until.min(hushed),
            PeerState::Lingering { until, muted_until: None } => until,
        };
        let undeliverable =
            if self.state == PeerState::Established { self.undeliverable_at(config) } else { None };
        let own = undeliverable.map_or(own, |due| own.min(due));
        let Some(outbox) = &self.outbox else { return own };
        let resend = outbox.next_timeout(self.effective_rto);
        let shrink =
            outbox.is_empty().then(|| self.last_queued.max(self.last_received).plus(SHRINK_AFTER_IDLE));
        let due = Time::earliest(Time::earliest(resend, self.ack_due), shrink);
        due.map_or(own, |due| own.min(due))
    }

    /// Gives memory back that was not used for a while. Returns `false` if it was.
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

    /// Drops unreliable messages that wait in vain, if the line is full.
    #[inline]
    pub(crate) fn drop_superseded(&mut self, is_superseded: &mut dyn FnMut(&[u8]) -> bool) {
        let budget = self.congestion.window();
        if let Some(outbox) = self.outbox.as_deref_mut()
            && outbox.blocks_unreliable(budget)
        {
            outbox.drop_superseded(is_superseded);
        }
    }

    /// Returns when something must leave: at once anything but unreliable messages, and ACKs when they have waited for
    /// company for long enough (T-60).
    pub(crate) fn next_urgent_timeout(&self) -> Option<Time> {
        let fresh = || self.outbox.as_ref().is_some_and(|outbox| outbox.has_urgent(self.congestion.window()));
        let at_once = self.state != PeerState::Established || self.keepalive_due || fresh();
        if at_once { Some(Time::ZERO) } else { self.ack_due }
    }

    /// Returns whether nothing waits for it or from it.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued() == (0, 0) && !self.inboxes.iter().any(Inbox::has_buffered)
    }
}

/// T-51: only a connect request is repeated without end and at equal intervals.
#[inline]
fn retransmit_policy(state: PeerState, timeout: u64) -> RetransmitPolicy {
    RetransmitPolicy {
        rto: timeout,
        backoff_after_sends: if state == PeerState::Connecting { u8::MAX } else { BACKOFF_AFTER_SENDS },
    }
}

/// Seldom needed, and large.
#[cold]
#[inline(never)]
fn new_outbox() -> Box<Outbox> {
    Box::default()
}

/// The largest control message: an identity with a long name.
pub(crate) const MAX_CONTROL_MESSAGE: usize = 512;
/// The most bytes of control messages that wait for one peer: the names of 124 others, many times over.
const MAX_CONTROL_BYTES: usize = 1 << 20;
const MAX_BACKOFF: u8 = 8;
/// What a message takes on the way besides its bytes if it is alone in its datagram: its header, and those of UDP and IP.
const LONE_MESSAGE_OVERHEAD: usize = 30;
/// T-62: from this many sends of one message on the pauses between them grow.
const BACKOFF_AFTER_SENDS: u8 = 8;
/// A peer that was quiet this long has no need for buffers.
const SHRINK_AFTER_IDLE: u64 = 4_000_000;
