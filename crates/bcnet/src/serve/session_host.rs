//! One session with its socket, log, hooks and counters.
//!
//! Owns the desired state of the session (running or stopped), and replaces a session that panicked. It does
//! not wait for datagrams: [`session_group`](super::session_group) does.

mod sampling;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::{Config, Event, Rate, Session, TokenBucket};
use bcnet_transport::wire::{Kind, PeerId};
use bcnet_transport::{PeerCounters, Time};
use bcnet_udp::{Batch, DatagramInfo, SendFailure, Socket};

use super::event_log::{EventLog, ShutdownReason};
use super::hooks::Notifier;
use super::load_shedding::LoadShedder;
use super::panic_isolation::catch_panic;
use super::rejections::Rejections;
use super::session_metrics::{SessionMetrics, SocketCounters};
use crate::list_servers::ResolvedListServers;
use crate::log::LogRateLimiter;
use crate::random::random_u64;
use crate::reply_addresses::ReplyAddresses;
use crate::scores::ScoreRecorder;

/// A session, its socket, and the counters of both.
pub(super) struct SessionHost {
    /// Index among all sessions of the server, from 0.
    pub(super) number: usize,
    pub(super) session: Session,
    /// End of the graceful shutdown after a panic. Then a new session replaces this one.
    failure_deadline: Option<Time>,
    desired: DesiredState,
    pub(super) socket: Socket,
    /// The address that the socket is bound to.
    pub(super) address: SocketAddrV4,
    /// The port that players connect to.
    public_port: u16,
    pub(super) event_log: EventLog,
    pub(super) notifier: Notifier,
    /// Stores the results of rounds.
    pub(super) scores: Option<ScoreRecorder>,
    pub(super) socket_counters: SocketCounters,
    pub(super) metrics: SessionMetrics,
    /// Arrival times of datagrams whose relayed copies are not sent yet, each with the number of datagrams.
    arrivals: Vec<(Time, u32)>,
    /// When the summary was logged last.
    last_summary: Time,
    /// The socket has unread datagrams.
    pub(super) is_unread: bool,
    pub(super) receive_state: ReceiveState,
    load_shedder: LoadShedder,
    /// The session is in the dirty list of this turn.
    pub(super) is_dirty: bool,
    /// Start of the current coalescing window.
    pub(super) coalescing_since: Option<Time>,
    /// Since the last send, a player's datagram was relayed or acknowledged something.
    pub(super) has_relayed: bool,
    reply_addresses: Option<ReplyAddresses>,
    rejections: Rejections,
    failure_log_limiter: LogRateLimiter,
    overflow_log_limiter: LogRateLimiter,
    /// The socket's counter of dropped datagrams, when it was read last.
    last_drop_count: u32,
    unverified_capture_bucket: TokenBucket,
}

/// Desired state of a session: running or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DesiredState {
    /// The session admits players.
    Running,
    /// The session answers no queries and admits no players, until an operator starts it.
    Stopped,
    /// The session starts again when all players have received the disconnect notice.
    StartPending,
    /// The server is shutting down: the session never starts again.
    ShutDown,
}

/// When a stopped session starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartTime {
    Now,
    /// Some players have not acknowledged the disconnect notice yet.
    AfterPlayersLeft,
}

/// Relay counters before or after one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RelayProgress {
    relayed: u64,
    acknowledged: Option<u64>,
}

/// State of receiving from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveState {
    Working,
    /// Every receive fails since `since`. The next attempt is at `next`, after `pause`.
    Failing {
        since: Time,
        next: Time,
        pause: Duration,
    },
}

impl SessionHost {
    pub(super) fn new(
        number: usize,
        mut config: Config,
        seed: u64,
        socket: Socket,
        address: SocketAddrV4,
    ) -> Self {
        set_default_advertise_port(&mut config, address.port());
        Self {
            number,
            session: Session::new(config, seed),
            failure_deadline: None,
            desired: DesiredState::Running,
            socket,
            address,
            public_port: address.port(),
            event_log: EventLog::new(address.port()),
            notifier: Notifier::default(),
            scores: None,
            socket_counters: SocketCounters::default(),
            metrics: SessionMetrics::default(),
            arrivals: Vec::with_capacity(MAX_ARRIVALS),
            last_summary: Time::ZERO,
            is_unread: false,
            receive_state: ReceiveState::Working,
            load_shedder: LoadShedder::default(),
            is_dirty: false,
            coalescing_since: None,
            has_relayed: false,
            reply_addresses: address.ip().is_unspecified().then(ReplyAddresses::new),
            rejections: Rejections::new(),
            failure_log_limiter: LogRateLimiter::new(5, LOG_INTERVAL),
            overflow_log_limiter: LogRateLimiter::new(5, LOG_INTERVAL),
            last_drop_count: 0,
            unverified_capture_bucket: TokenBucket::new(UNVERIFIED_CAPTURE_RATE, Time::ZERO),
        }
    }

    /// Applies new settings.
    pub(super) fn reconfigure(&mut self, mut config: Config, now: Time) {
        set_default_advertise_port(&mut config, self.public_port);
        self.session.reconfigure(config, now);
    }

    /// Reports this port to list servers, unless the settings name one.
    pub(super) fn set_public_port(&mut self, port: u16, now: Time) {
        let previous = std::mem::replace(&mut self.public_port, port);
        if self.session.config().advertise_port == previous {
            let config = Config { advertise_port: 0, ..self.session.config().clone() };
            self.reconfigure(config, now);
        }
    }

    /// Handles a panic of the session: disconnects its players, then replaces the session.
    ///
    /// The new session is stopped if this one was.
    pub(super) fn on_panic(&mut self, panic: &str, now: Time) {
        let port = self.address.port();
        let next_state = if self.should_run() { "restarts" } else { "stays stopped" };
        tracing::error!(
            event = "session_failed",
            port,
            panic,
            "the session panicked; it disconnects its players and {next_state}"
        );
        if self.failure_deadline.is_none() && catch_panic(|| self.session.shutdown(now)).is_ok() {
            self.failure_deadline = Some(now + FAILURE_SHUTDOWN_TIMEOUT);
        } else {
            self.replace_session(now);
        }
    }

    /// Returns whether a new session must replace this one.
    ///
    /// That is so after a panic or a restart, once all players have the disconnect notice or time is up.
    pub(super) fn needs_replacement(&self, now: Time) -> bool {
        let is_over = |end: Time| now >= end || self.session.is_closed();
        self.failure_deadline.is_some_and(is_over) || self.can_start_now()
    }

    fn can_start_now(&self) -> bool {
        self.desired == DesiredState::StartPending && self.session.is_closed()
    }

    /// Disconnects the players and closes the session until [`start`](Self::start).
    ///
    /// Returns `false` if the session is already stopped.
    pub(super) fn stop(&mut self, now: Time) -> bool {
        let before = self.desired;
        if !self.should_run() {
            return false;
        }
        self.desired = DesiredState::Stopped;
        if before == DesiredState::Running {
            tracing::info!(event = "session_stopped", port = self.address.port());
            self.session.shutdown(now);
        }
        true
    }

    /// Starts an empty session, as soon as all players have the disconnect notice.
    ///
    /// Returns `None` if the session was not stopped.
    pub(super) fn start(&mut self, now: Time) -> Option<StartTime> {
        if !matches!(self.desired, DesiredState::Stopped | DesiredState::StartPending) {
            return None;
        }
        self.desired = DesiredState::StartPending;
        if !self.can_start_now() {
            return Some(StartTime::AfterPlayersLeft);
        }
        self.replace_session(now);
        self.session.handle_timeout(now);
        Some(StartTime::Now)
    }

    /// Disconnects the players; the session never starts again.
    pub(super) fn shut_down(&mut self, now: Time) {
        self.desired = DesiredState::ShutDown;
        self.session.shutdown(now);
    }

    /// Returns whether the session is closed to players.
    pub(super) fn is_stopped(&self) -> bool {
        self.desired != DesiredState::Running
    }

    /// Returns whether the session admits players, or will when its restart is complete.
    fn should_run(&self) -> bool {
        matches!(self.desired, DesiredState::Running | DesiredState::StartPending)
    }

    /// Returns the name of the state for operators.
    pub(super) fn state_name(&self) -> &'static str {
        match self.desired {
            DesiredState::Running => "open",
            DesiredState::StartPending => "starting",
            DesiredState::Stopped | DesiredState::ShutDown if self.session.is_closed() => "stopped",
            DesiredState::Stopped | DesiredState::ShutDown => "stopping",
        }
    }

    /// Returns the reason why players get a disconnect notice.
    fn shutdown_reason(&self) -> ShutdownReason {
        match self.desired {
            DesiredState::ShutDown => ShutdownReason::ServerStopped,
            DesiredState::Running if self.failure_deadline.is_some() => ShutdownReason::SessionFailed,
            DesiredState::Running | DesiredState::Stopped | DesiredState::StartPending => {
                ShutdownReason::SessionStopped
            }
        }
    }

    /// Replaces the session by an empty one with the same settings and bans.
    ///
    /// The new session is open unless the desired state is stopped.
    pub(super) fn replace_session(&mut self, now: Time) {
        if self.desired == DesiredState::StartPending {
            self.desired = DesiredState::Running;
            tracing::info!(event = "session_started", port = self.address.port());
        }
        let mut session = Session::new(self.session.config().clone(), random_u64());
        session.set_bans(self.session.bans().to_vec(), Time::ZERO);
        if self.is_stopped() {
            session.shutdown(now);
        }
        self.session = session;
        self.notifier.reset();
        self.failure_deadline = None;
        self.arrivals.clear();
        (self.coalescing_since, self.has_relayed) = (None, false);
        self.rejections.reset(&self.session, self.socket_counters.oversized);
    }

    /// Sets the list servers of the session.
    pub(super) fn set_list_servers(&mut self, masters: &ResolvedListServers, now: Time) {
        let masters = masters.merge_with(&self.session.config().masters);
        if self.session.config().masters != masters {
            let config = Config { masters, ..self.session.config().clone() };
            self.session.reconfigure(config, now);
        }
    }

    /// Counts a received, still encrypted datagram. Returns `false` if it can be dropped without decrypting.
    pub(super) fn prefilter(&mut self, head: &DatagramInfo, bytes: &[u8]) -> bool {
        self.socket_counters.datagrams_in += 1;
        self.socket_counters.bytes_in += bytes.len() as u64;
        self.load_shedder.count_datagram(head.remote);
        if head.truncated {
            self.socket_counters.oversized += 1;
            return false;
        }
        self.session.prefilter(head.remote, bytes)
    }

    /// Returns whether a received datagram, still encrypted, belongs in the capture.
    ///
    /// All datagrams of players do. Those of other senders are rate limited, so that a flood cannot push the
    /// players' datagrams out of the capture files.
    pub(super) fn should_record(&mut self, bytes: &[u8], is_accepted: bool, now: Time) -> bool {
        let is_of_player = is_accepted && bytes.first().is_some_and(|id| PeerId(*id).is_assignable());
        is_of_player || self.unverified_capture_bucket.take(1, UNVERIFIED_CAPTURE_RATE, now)
    }

    /// Handles a decrypted datagram that passed [`prefilter`](Self::prefilter).
    ///
    /// Returns whether it took part in relaying: a player sent it, and it was relayed or acknowledged
    /// something.
    pub(super) fn handle_datagram(&mut self, head: &DatagramInfo, bytes: &mut [u8], now: Time) -> bool {
        if let (Some(reply_addresses), Some(local)) = (&mut self.reply_addresses, head.local) {
            reply_addresses.record(head.remote, local);
        }
        let player = bytes.first().map(|id| PeerId(*id));
        let player = player.filter(|_| self.session.is_from_player_in_game(head.remote, bytes));
        let before = self.relay_progress(player);
        self.session.handle_datagram(head.remote, bytes, now);
        let after = self.relay_progress(player);
        if after.relayed > before.relayed {
            self.record_arrival(now);
        }
        let is_relayed = player.is_some() && after != before;
        self.has_relayed |= is_relayed;
        is_relayed
    }

    /// Returns the number of relayed copies, and of messages that this player has acknowledged.
    fn relay_progress(&self, player: Option<PeerId>) -> RelayProgress {
        let acknowledged = player.and_then(|player| self.session.peer_counters(player));
        let acknowledged = acknowledged.as_ref().map(acknowledged_messages);
        RelayProgress { relayed: self.session.counters().relayed, acknowledged }
    }

    /// Records the arrival of a datagram with copies to send.
    fn record_arrival(&mut self, now: Time) {
        let is_full = self.arrivals.len() == MAX_ARRIVALS;
        match self.arrivals.last_mut() {
            // If the list is full, later arrivals count as if they had arrived at its last time.
            Some((at, count)) if *at == now || is_full => *count += 1,
            _ => self.arrivals.push((now, 1)),
        }
    }

    /// Returns whether copies wait to be sent.
    pub(super) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Records that all copies were sent, and adds their delays to the histogram.
    pub(super) fn record_departure(&mut self, now: Time) {
        for (at, count) in self.arrivals.drain(..) {
            self.metrics.add_relay_delay(now.since(at), count);
        }
    }

    /// Records the result of receiving. Returns whether the socket must be bound again.
    ///
    /// `is_failing` means that every receive of this turn gave an error.
    pub(super) fn update_receive_state(&mut self, is_failing: bool, now: Time) -> bool {
        let (since, pause) = match self.receive_state {
            _ if !is_failing => {
                self.receive_state = ReceiveState::Working;
                return false;
            }
            ReceiveState::Working => (now, REBIND_DELAY),
            // The next attempt is not due yet, but the event loop has reported data and caused a receive.
            ReceiveState::Failing { next, .. } if now < next => return false,
            ReceiveState::Failing { since, pause, .. } => (since, (2 * pause).min(MAX_REBIND_DELAY)),
        };
        self.receive_state = ReceiveState::Failing { since, next: now + pause, pause };
        now > since
    }

    /// Tells the load shedder whether the socket was drained in its share of the turn.
    pub(super) fn update_load_shedding(&mut self, is_empty: bool, now: Time) {
        if self.load_shedder.update(is_empty, now) {
            self.update_socket_filter(now);
        }
    }

    /// Sets the socket filter that drops a share of the datagrams of unknown senders.
    fn update_socket_filter(&mut self, now: Time) {
        let players = self.session.players().map(|player| player.address);
        let exempt = self.load_shedder.exempt_players(players, now);
        if let Err(error) =
            self.socket.limit_unknown_senders(exempt.into_iter(), self.load_shedder.pass_threshold())
        {
            self.log_failure("filter_failed", Some(&error), now);
        }
    }

    /// Binds the socket again, at the same address, so that players stay. Returns whether that worked.
    pub(super) fn rebind(&mut self, now: Time) -> bool {
        let ReceiveState::Failing { since, .. } = self.receive_state else { return false };
        let port = self.address.port();
        match self.socket.rebind(self.address) {
            Ok(()) => {
                let failed_ms = millis(now.since(since));
                (self.last_drop_count, self.load_shedder) = (0, LoadShedder::default());
                tracing::warn!(
                    event = "socket_rebound",
                    port,
                    failed_ms,
                    "every receive failed; the socket is bound again"
                );
                true
            }
            Err(error) => {
                self.log_failure("rebind_failed", Some(&error), now);
                false
            }
        }
    }

    /// Returns the time of the next timer of the session, socket or load shedder.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let retry = match self.receive_state {
            ReceiveState::Failing { next, .. } => Some(next),
            ReceiveState::Working => None,
        };
        let overload = self.load_shedder.next_timeout();
        let start = self.can_start_now().then_some(Time::ZERO);
        [self.session.next_timeout(), retry, self.failure_deadline, start, overload]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns when to check the output again, if it may coalesce until then; `None` to send now.
    pub(super) fn coalescing_deadline(&mut self, window: Duration, now: Time) -> Option<Time> {
        let urgent = self.session.next_urgent();
        if window.is_zero() || urgent.is_some_and(|due| due <= now) {
            return None;
        }
        let until = *self.coalescing_since.get_or_insert(now) + window;
        (until > now).then(|| urgent.map_or(until, |due| due.min(until)))
    }

    /// Puts the next datagram to send into `batch`. Returns `false` if there is none, or if the batch is
    /// full.
    pub(super) fn transmit(&mut self, owner: u32, batch: &mut Batch, now: Time) -> bool {
        let Self { session, reply_addresses, socket_counters, .. } = self;
        batch.push(|buffer| {
            let transmit = session.poll_transmit(buffer, now)?;
            socket_counters.datagrams_out += 1;
            socket_counters.bytes_out += transmit.len as u64;
            let local =
                reply_addresses.as_ref().and_then(|reply_addresses| reply_addresses.find(transmit.to));
            Some(DatagramInfo { owner, remote: transmit.to, local, len: transmit.len, truncated: false })
        })
    }

    /// Polls the events of the session: logs them, and passes them to hooks and scores.
    pub(super) fn process_events(&mut self, now: Time) {
        let (mut moved, shutdown_reason) = (false, self.shutdown_reason());
        while let Some(event) = self.session.poll_event() {
            moved |= matches!(event, Event::Joining { .. } | Event::Left { .. });
            self.notifier.on_event(&event, shutdown_reason, &self.session, self.address.port());
            if let (Event::RoundEnded { summary }, Some(scores)) = (&event, &self.scores) {
                scores.record(&self.session.config().name, self.address.port(), summary, now);
            }
            self.event_log.record(event, shutdown_reason, now);
        }
        if let (true, Some(reply_addresses)) = (moved, &mut self.reply_addresses) {
            reply_addresses.set_players(self.session.players().map(|player| player.address));
        }
        if self.load_shedder.advance(now) || (moved && self.load_shedder.pass_threshold().is_some()) {
            self.update_socket_filter(now);
        }
        self.rejections.report(self.address.port(), &self.session, self.socket_counters.oversized, now);
        self.sample_and_log(now);
    }

    /// Counts datagrams that the system refused to send.
    pub(super) fn count_unsent(&mut self, unsent: &SendFailure, now: Time) {
        self.socket_counters.unsent += unsent.datagrams;
        self.socket_counters.datagrams_out -= unsent.datagrams.min(self.socket_counters.datagrams_out);
        self.log_failure("send_failed", unsent.reason.as_ref(), now);
    }

    /// Logs a failure of the socket, rate limited.
    pub(super) fn log_failure(&mut self, event: &'static str, error: Option<&std::io::Error>, now: Time) {
        if let Some(held_back) = self.failure_log_limiter.allow(now) {
            let error = error.map(ToString::to_string);
            tracing::warn!(event, port = self.address.port(), error, held_back);
        }
    }

    /// Returns the local address of a datagram, for captures.
    pub(super) fn local_address(&self, known: Option<Ipv4Addr>) -> SocketAddrV4 {
        SocketAddrV4::new(known.unwrap_or_else(|| *self.address.ip()), self.address.port())
    }
}

/// Returns the number of messages that a player has acknowledged.
fn acknowledged_messages(counters: &PeerCounters) -> u64 {
    counters.messages_in.count(Kind::ACK) - counters.acks_useless
}

/// Makes `port` the port that list servers get, unless the settings name another.
fn set_default_advertise_port(config: &mut Config, port: u16) {
    if config.advertise_port == 0 {
        config.advertise_port = port;
    }
}

/// Converts a duration to milliseconds, rounded to microseconds.
pub(super) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Largest number of arrival times to remember for copies that are not sent yet.
const MAX_ARRIVALS: usize = 64;
/// Time for players to acknowledge the disconnect notice after a panic.
const FAILURE_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// First delay before a failing socket is bound again; each retry doubles it, up to the maximum.
const REBIND_DELAY: Duration = Duration::from_millis(100);
const MAX_REBIND_DELAY: Duration = Duration::from_secs(5);
/// Rate limit and burst for datagrams of unverified addresses in a capture.
const UNVERIFIED_CAPTURE_RATE: Rate = Rate::per_second(100, 1000);
const LOG_INTERVAL: Duration = Duration::from_secs(10);
