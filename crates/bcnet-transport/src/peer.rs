//! One remote: what is known of it, what it is owed, what it has said.

mod acks;
mod fill;

use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use core::time::Duration;

use crate::config::Config;
use crate::endpoint::{Allowance, Room};
use crate::inbox::{Inbox, WINDOW};
use crate::outbox::{Outbox, ResendPolicy};
use crate::retry::{Budget, RoundTrip};
use crate::stats::Counters;
use crate::time::Time;
use crate::wire::{Body, Channel, Control, Message, MessageId, PeerId, Seq, Writer};

pub(crate) use acks::AckSummary;

/// Where a peer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Client: asked the host to be let in.
    Connecting,
    /// Messages flow.
    Live,
    /// T-77: somebody asks to be let in at its address. Nothing is sent until it is heard, or until then. So many numbers
    /// were guessed meanwhile.
    Contested { until: Time, guesses: u8 },
    /// This side leaves, but says so only when what was queued before has arrived, or half of the linger time is over.
    Draining { since: Time },
    /// Only the last words are still repeated and acknowledged; T-77: not while somebody asks to be let in at its address,
    /// which is until `hushed`.
    Leaving { until: Time, hushed: Option<Time> },
}

impl State {
    /// Returns whether the connection stands.
    #[inline]
    pub(crate) const fn is_connected(self) -> bool {
        matches!(self, Self::Live | Self::Contested { .. })
    }
}

/// What a peer is called.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) address: Ipv4Addr,
    pub(crate) utf16le: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddrV4,
    pub(crate) id: PeerId,
    pub(crate) state: State,
    /// Of its connect request, if that is known.
    pub(crate) nonce: Option<u32>,
    pub(crate) name: Option<Name>,
    /// When a further change of name is listened to.
    pub(crate) next_name: Time,
    pub(crate) last_heard: Time,
    last_queued: Time,
    pub(crate) last_data: Time,
    /// When owed ACKs leave at the latest.
    pub(crate) ack_due: Option<Time>,
    /// T-55: a sign of life is due. It is not in the outbox, so that a peer that is only kept alive has none.
    pub(crate) keepalive: bool,
    /// How often the timeout was doubled because the peer is silent.
    backoff: u8,
    /// T-61: the timeout, less what makes a retransmission happen at the service nearest to its time, not only after it.
    resend_after: u64,
    /// How many datagrams with ACKs in a row told nothing of the round trip.
    blind: u8,
    /// Whether it stands in the endpoint's list of peers to look at.
    pub(crate) listed: bool,
    /// When the endpoint looks at it again unasked, which may be too early but never too late. `None` if that must be
    /// worked out anew.
    pub(crate) alarm: Option<Time>,
    next_seq: [Seq; 2],
    pub(crate) inbox: [Inbox; 2],
    pub(crate) trip: RoundTrip,
    pub(crate) budget: Budget,
    pub(crate) outbox: Option<Box<Outbox>>,
    pub(crate) counters: Counters,
}

impl Peer {
    pub(crate) fn new(
        address: SocketAddrV4,
        id: PeerId,
        state: State,
        config: &Config<u64>,
        now: Time,
    ) -> Self {
        let mut peer = Self {
            address,
            id,
            state,
            nonce: None,
            name: None,
            next_name: now,
            last_heard: now,
            last_queued: now,
            last_data: Time::ZERO,
            ack_due: None,
            keepalive: false,
            backoff: 0,
            resend_after: 0,
            blind: 0,
            listed: false,
            alarm: None,
            next_seq: [Seq(0); 2],
            inbox: [Inbox::default(), Inbox::default()],
            trip: RoundTrip::default(),
            budget: Budget::new(config),
            outbox: None,
            counters: Counters::default(),
        };
        peer.set_timeout(config);
        peer
    }

    #[inline]
    pub(crate) fn inbox(&mut self, channel: Channel) -> &mut Inbox {
        let [control, game] = &mut self.inbox;
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
    pub(crate) fn interval(&self, sends: u8, config: &Config<u64>) -> u64 {
        let policy = resend_policy(self.state, self.timeout(config));
        policy.timeout.saturating_mul(1 + u64::from(policy.patience(sends)))
    }

    /// Returns the smoothed round trip, if one was measured.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.trip.smoothed().map(|micros| Duration::from_micros(micros.into()))
    }

    #[inline]
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.outbox.as_ref().map_or((0, 0), |outbox| (outbox.queued(), outbox.queued_bytes()))
    }

    /// Returns whether one old message that is not acknowledged keeps too many later ones from being forgotten.
    #[inline]
    pub(crate) fn is_held_up(&self, config: &Config<u64>) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| {
            let (numbers, bytes) = outbox.retained();
            numbers >= WINDOW || bytes / 2 > config.queue_bytes
        })
    }

    /// Returns whether a game message of `len` bytes more may be under way: if with it there are no more than `max`, and
    /// the others leave a quarter of the budget.
    #[inline]
    pub(crate) fn room(&self, len: usize, max: Allowance) -> Room {
        let Some(outbox) = &self.outbox else { return Room::Some };
        let ((numbers, _), bytes, budget) = (outbox.retained(), outbox.reliable_bytes(), self.budget.bytes());
        let on_the_way = bytes + numbers * ALONE;
        if numbers == 0
            || numbers < max.messages && on_the_way + len + ALONE <= max.bytes && bytes < budget - budget / 4
        {
            Room::Some
        } else if self.trip.delays_words() {
            Room::Queueing
        } else {
            Room::None
        }
    }

    /// Queues a control message, reliable and ahead of all game data.
    pub(crate) fn queue_control(&mut self, body: Body<'_>, now: Time) {
        if self.is_deaf() {
            return;
        }
        let [seq, _] = self.next_seq;
        let mut buffer = [0; CONTROL_ROOM];
        let message = Message::Control(Control::new(seq, body));
        let mut writer = Writer::new(&mut buffer, PeerId::NULL);
        let written = writer.push(&message);
        if let (true, Some(datagram)) = (written, writer.finish())
            && let Some(message) = datagram.get(2..)
        {
            // Taken only now: a number that is never sent would be waited for.
            self.take_seq(Channel::Control);
            self.start_queueing(now).queue(Channel::Control, seq, None, &[], message);
        }
    }

    /// Returns the outbox, to queue something of which T-55 shall know.
    #[inline]
    pub(crate) fn start_queueing(&mut self, now: Time) -> &mut Outbox {
        self.last_queued = now;
        self.outbox()
    }

    /// Returns the number that the next game message will have.
    pub(crate) const fn next_game_seq(&self) -> Seq {
        let [_, game] = self.next_seq;
        game
    }

    /// Returns the numbers from the oldest reliable message that is not acknowledged up to the next.
    pub(crate) fn awaited(&self, channel: Channel) -> Range<Seq> {
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
    pub(crate) fn owe(&mut self, first: MessageId, count: u8, config: &Config<u64>, now: Time) {
        if self.outbox().owe(first, count) && self.ack_due.is_none() {
            let company =
                now.micros_since(self.last_data) <= config.ack_company && self.last_data > Time::ZERO;
            self.ack_due = Some(if company { now.plus(config.ack_delay) } else { now });
        }
    }

    #[inline]
    pub(crate) fn heard(&mut self, len: usize, config: &Config<u64>, now: Time) {
        self.last_heard = now;
        if self.backoff > 0 {
            self.backoff = 0;
            self.set_timeout(config);
        }
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += len as u64;
    }

    /// After a datagram or a timeout: what was lost?
    #[inline]
    pub(crate) fn find_lost(&mut self, config: &Config<u64>, now: Time) {
        let Some(outbox) = &self.outbox else { return };
        if outbox.has_sent() {
            self.find_lost_of(config, now);
        }
        self.budget.review(&mut self.trip, config, now);
    }

    /// As [`find_lost`](Self::find_lost), for a peer that was sent something.
    #[inline(never)]
    fn find_lost_of(&mut self, config: &Config<u64>, now: Time) {
        let Some(outbox) = &mut self.outbox else { return };
        let timeout = self.resend_after;
        let asks = self.state == State::Connecting;
        let lost = outbox.find_lost(resend_policy(self.state, timeout), now);
        if lost == 0 {
            return;
        }
        self.budget.lost(lost);
        // T-61: only a peer that is wholly silent is asked ever more seldom.
        let silence = now.micros_since(self.last_heard);
        if !asks && silence > 2 * timeout && self.backoff < MAX_BACKOFF {
            self.backoff += 1;
            self.set_timeout(config);
        }
    }

    pub(crate) fn timeout(&self, config: &Config<u64>) -> u64 {
        (self.trip.timeout(config) << self.backoff).min(config.max_timeout)
    }

    /// After a change of the round trip or of the backoff.
    fn set_timeout(&mut self, config: &Config<u64>) {
        // Never at once: what was looked at is not looked at again before time has passed.
        self.resend_after = self.timeout(config).saturating_sub(config.tick / 2).max(1);
    }

    /// T-55: a sign of life is due.
    pub(crate) fn keep_alive(&mut self, config: &Config<u64>, now: Time) {
        if self.state == State::Live && now >= self.last_queued.plus(config.keepalive) {
            self.last_queued = now;
            self.keepalive = true;
        }
    }

    /// After a message of this channel was accepted the long way. What waits for an earlier message is a deadline of its
    /// own, and one channel's progress does not hide another's gap.
    pub(crate) fn note_stall(&mut self, channel: Channel, progress: bool, now: Time) {
        if self.inbox(channel).note_stall(progress, now) {
            self.alarm = None;
        }
    }

    pub(crate) fn is_silent(&self, config: &Config<u64>, now: Time) -> bool {
        now >= self.last_heard.plus(config.silence)
    }

    /// T-64: a reliable message stays unacknowledged, or one that others wait for does not come.
    pub(crate) fn is_undeliverable(&self, config: &Config<u64>, now: Time) -> bool {
        self.undeliverable_at(config).is_some_and(|at| at <= now)
    }

    /// T-64: so many control messages are not acknowledged that the peer could not even take more, or so many bytes.
    fn is_deaf(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| {
            let (messages, bytes) = outbox.control_backlog();
            messages >= WINDOW || bytes > MAX_CONTROL
        })
    }

    fn undeliverable_at(&self, config: &Config<u64>) -> Option<Time> {
        if self.is_deaf() {
            return Some(Time::ZERO);
        }
        let oldest = self.outbox.as_ref().and_then(|outbox| outbox.oldest());
        let stalled = self.inbox.iter().filter_map(Inbox::stalled).min();
        Time::earliest(oldest, stalled).map(|since| since.plus(config.undeliverable))
    }

    /// Returns whether everything that must be acknowledged before leaving is.
    pub(crate) fn is_settled(&self) -> bool {
        self.outbox_ref().is_none_or(|outbox| outbox.oldest_seq(Channel::Control).is_none() && !outbox.owes())
    }

    /// Returns a new alarm, if the one that is set would be too late.
    ///
    /// What happens often moves deadlines into the future, all but two; only those are looked at here, and nothing is
    /// worked out if they are later than the alarm.
    #[inline]
    pub(crate) fn set_alarm(&mut self, config: &Config<u64>) -> Option<Time> {
        let resend = self.outbox.as_ref().and_then(|outbox| outbox.next_timeout(self.resend_after));
        let soonest = Time::earliest(resend, self.ack_due);
        if let Some(alarm) = self.alarm {
            let sooner = soonest.filter(|due| *due < alarm)?;
            self.alarm = Some(sooner);
        } else {
            self.alarm = Some(self.next_timeout(config));
        }
        self.alarm
    }

    /// Sets an alarm that came too early to `due`. Whoever sent a moment ago will send again soon, and need one as early
    /// as that.
    pub(crate) fn put_off(&mut self, due: Time, now: Time) -> Time {
        let sends = now.micros_since(self.last_data) < self.resend_after;
        let alarm = if sends { due.min(now.plus(self.resend_after)) } else { due };
        self.alarm = Some(alarm);
        alarm
    }

    /// Returns the next time at which something is due.
    #[inline(never)]
    pub(crate) fn next_timeout(&self, config: &Config<u64>) -> Time {
        let silence = self.last_heard.plus(config.silence);
        let own = match self.state {
            State::Connecting => silence,
            State::Contested { until, .. } => return until.min(silence),
            State::Live => silence.min(self.last_queued.plus(config.keepalive)),
            State::Draining { since } => since.plus(config.linger / 2),
            State::Leaving { until, hushed: Some(hushed) } => return until.min(hushed),
            State::Leaving { until, hushed: None } => until,
        };
        let undeliverable = if self.state == State::Live { self.undeliverable_at(config) } else { None };
        let own = undeliverable.map_or(own, |due| own.min(due));
        let Some(outbox) = &self.outbox else { return own };
        let resend = outbox.next_timeout(self.resend_after);
        let shrink = outbox.is_empty().then(|| self.last_queued.max(self.last_heard).plus(IDLE));
        let due = Time::earliest(Time::earliest(resend, self.ack_due), shrink);
        due.map_or(own, |due| own.min(due))
    }

    /// Gives memory back that was not used for a while. Returns `false` if it was.
    pub(crate) fn shrink(&mut self, now: Time) -> bool {
        if now < self.last_queued.max(self.last_heard).plus(IDLE) {
            return false;
        }
        if self.outbox.as_ref().is_some_and(|outbox| outbox.is_empty()) {
            self.outbox = None;
        }
        self.inbox.iter_mut().for_each(Inbox::shrink);
        true
    }

    /// Drops unreliable messages that wait in vain, if the line is full.
    #[inline]
    pub(crate) fn drop_outdated(&mut self, is_outdated: &mut dyn FnMut(&[u8]) -> bool) {
        let budget = self.budget.bytes();
        if let Some(outbox) = self.outbox.as_deref_mut()
            && outbox.holds_up_unreliable(budget)
        {
            outbox.drop_outdated(is_outdated);
        }
    }

    /// Returns when something must leave: at once anything but unreliable messages, and ACKs when they have waited for
    /// company for long enough (T-60).
    pub(crate) fn next_urgent(&self) -> Option<Time> {
        let fresh = || self.outbox.as_ref().is_some_and(|outbox| outbox.has_urgent(self.budget.bytes()));
        let at_once = self.state != State::Live || self.keepalive || fresh();
        if at_once { Some(Time::ZERO) } else { self.ack_due }
    }

    /// Returns whether nothing waits for it or from it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.queued() == (0, 0) && !self.inbox.iter().any(Inbox::is_waiting)
    }
}

/// T-51: only a connect request is repeated without end and at equal intervals.
#[inline]
fn resend_policy(state: State, timeout: u64) -> ResendPolicy {
    ResendPolicy { timeout, patient_from: if state == State::Connecting { u8::MAX } else { PATIENT_FROM } }
}

/// Seldom needed, and large.
#[cold]
#[inline(never)]
fn new_outbox() -> Box<Outbox> {
    Box::default()
}

/// The largest control message: an identity with a long name.
pub(crate) const CONTROL_ROOM: usize = 512;
/// The most bytes of control messages that wait for one peer: the names of 124 others, many times over.
const MAX_CONTROL: usize = 1 << 20;
const MAX_BACKOFF: u8 = 8;
/// What a message takes on the way besides its bytes if it is alone in its datagram: its header, and those of UDP and IP.
const ALONE: usize = 30;
/// T-62: from this many sends of one message on the pauses between them grow.
const PATIENT_FROM: u8 = 8;
/// A peer that was quiet this long has no need for buffers.
const IDLE: u64 = 4_000_000;
