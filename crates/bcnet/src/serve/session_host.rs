//! One session with its socket.

mod summing;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::{Bucket, Config, Event, Rate, Session};
use bcnet_transport::wire::{Kind, PeerId};
use bcnet_transport::{Counters, Time};
use bcnet_udp::{Batch, Head, Socket, Unsent};

use super::containment::contain;
use super::event_log::{EventLog, Goodbye};
use super::figures::{Figures, Traffic};
use super::hooks::Notifier;
use super::overload::Overload;
use super::rejections::Rejections;
use crate::log::LineLimit;
use crate::masters::Resolved;
use crate::random::unguessable;
use crate::reply_addresses::ReplyAddresses;
use crate::scores::Scores;

/// A session, the socket it has, and what passes through.
pub(super) struct SessionHost {
    /// Which of all sessions it is, from 0.
    pub(super) number: usize,
    pub(super) session: Session,
    /// The session has failed and says goodbye; when it is over, another takes its place.
    failed: Option<Time>,
    wish: Wish,
    pub(super) socket: Socket,
    /// Where the socket is bound.
    pub(super) address: SocketAddrV4,
    /// By which port players reach it.
    public_port: u16,
    pub(super) event_log: EventLog,
    pub(super) notifier: Notifier,
    /// Keeps the results of rounds.
    pub(super) scores: Option<Scores>,
    pub(super) traffic: Traffic,
    pub(super) figures: Figures,
    /// When datagrams have arrived whose copies have not left yet, and how many.
    arrivals: Vec<(Time, u32)>,
    /// When the figures were logged last.
    summed_up: Time,
    /// Something has arrived at the socket and was not taken yet.
    pub(super) is_unread: bool,
    pub(super) reading: Reading,
    overload: Overload,
    /// The session is to be looked at in this turn.
    pub(super) is_touched: bool,
    /// Since when what may wait for company does.
    pub(super) held_since: Option<Time>,
    /// Players' datagrams have come since datagrams left last.
    pub(super) has_relayed: bool,
    reply_addresses: Option<ReplyAddresses>,
    rejections: Rejections,
    failures: LineLimit,
    overflows: LineLimit,
    /// What the socket said last of datagrams that were dropped.
    dropped: u32,
    strangers_recorded: Bucket,
}

/// What is wanted of a session, whatever becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// To take players.
    Open,
    /// To answer nobody, until it is started again.
    Stopped,
    /// To begin again when all have heard the goodbye.
    Starting,
    /// To answer nobody any more: the server ends.
    Ended,
}

/// When a session that was stopped begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    Now,
    /// Some have not heard the goodbye yet.
    WhenAllHaveLeft,
}

/// How far relaying has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    relayed: u64,
    acknowledged: Option<u64>,
}

/// How it goes with taking datagrams from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Well,
    /// It gives nothing but errors, since then; it is tried again at the other time, after this pause.
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
        advertise(&mut config, address.port());
        Self {
            number,
            session: Session::new(config, seed),
            failed: None,
            wish: Wish::Open,
            socket,
            address,
            public_port: address.port(),
            event_log: EventLog::new(address.port()),
            notifier: Notifier::default(),
            scores: None,
            traffic: Traffic::default(),
            figures: Figures::default(),
            arrivals: Vec::with_capacity(MAX_ARRIVALS),
            summed_up: Time::ZERO,
            is_unread: false,
            reading: Reading::Well,
            overload: Overload::default(),
            is_touched: false,
            held_since: None,
            has_relayed: false,
            reply_addresses: address.ip().is_unspecified().then(ReplyAddresses::new),
            rejections: Rejections::new(),
            failures: LineLimit::new(5, LOG_EVERY),
            overflows: LineLimit::new(5, LOG_EVERY),
            dropped: 0,
            strangers_recorded: Bucket::new(STRANGERS_RECORDED, Time::ZERO),
        }
    }

    /// Takes new settings over.
    pub(super) fn reconfigure(&mut self, mut config: Config, now: Time) {
        advertise(&mut config, self.public_port);
        self.session.reconfigure(config, now);
    }

    /// Has list servers told the port at which players reach the session, unless the settings name one.
    pub(super) fn set_public_port(&mut self, port: u16, now: Time) {
        let told = std::mem::replace(&mut self.public_port, port);
        if self.session.config().advertise_port == told {
            let config = Config { advertise_port: 0, ..self.session.config().clone() };
            self.reconfigure(config, now);
        }
    }

    /// The session has panicked, and said this. Its players are told goodbye as far as it still can, and then a new session
    /// takes its place, which is stopped if this one was.
    pub(super) fn fail(&mut self, panic: &str, now: Time) {
        let port = self.address.port();
        let then = if self.is_to_open() { "begins anew" } else { "stays stopped" };
        tracing::error!(event = "session_failed", port, panic, "its players are told goodbye, and it {then}");
        if self.failed.is_none() && contain(|| self.session.shutdown(now)).is_ok() {
            self.failed = Some(now + GOODBYE);
        } else {
            self.renew(now);
        }
    }

    /// Returns whether another session is to take its place: this one has failed or was stopped, and its players have heard so, or had
    /// the time to.
    pub(super) fn is_to_renew(&self, now: Time) -> bool {
        let is_over = |end: Time| now >= end || self.session.is_closed();
        self.failed.is_some_and(is_over) || self.starts_now()
    }

    fn starts_now(&self) -> bool {
        self.wish == Wish::Starting && self.session.is_closed()
    }

    /// Says goodbye to the players, and answers nobody until [`start`](Self::start). Returns `false` if that is so already.
    pub(super) fn stop(&mut self, now: Time) -> bool {
        let before = self.wish;
        if !self.is_to_open() {
            return false;
        }
        self.wish = Wish::Stopped;
        if before == Wish::Open {
            tracing::info!(event = "session_stopped", port = self.address.port());
            self.session.shutdown(now);
        }
        true
    }

    /// Begins again with nobody in it, as soon as all have heard the goodbye. Returns `None` if it was not stopped.
    pub(super) fn start(&mut self, now: Time) -> Option<Begins> {
        if !matches!(self.wish, Wish::Stopped | Wish::Starting) {
            return None;
        }
        self.wish = Wish::Starting;
        if !self.starts_now() {
            return Some(Begins::WhenAllHaveLeft);
        }
        self.renew(now);
        self.session.handle_timeout(now);
        Some(Begins::Now)
    }

    /// Says goodbye to the players, for good.
    pub(super) fn end(&mut self, now: Time) {
        self.wish = Wish::Ended;
        self.session.shutdown(now);
    }

    /// Returns whether it answers nobody.
    pub(super) fn is_stopped(&self) -> bool {
        self.wish != Wish::Open
    }

    /// Returns whether it takes players, or will.
    fn is_to_open(&self) -> bool {
        matches!(self.wish, Wish::Open | Wish::Starting)
    }

    /// Returns how it is called for operators.
    pub(super) fn state(&self) -> &'static str {
        match self.wish {
            Wish::Open => "open",
            Wish::Starting => "starting",
            Wish::Stopped | Wish::Ended if self.session.is_closed() => "stopped",
            Wish::Stopped | Wish::Ended => "stopping",
        }
    }

    /// Returns why its players are told goodbye.
    fn goodbye(&self) -> Goodbye {
        match self.wish {
            Wish::Ended => Goodbye::ServerEnds,
            Wish::Open if self.failed.is_some() => Goodbye::GameFailed,
            Wish::Open | Wish::Stopped | Wish::Starting => Goodbye::GameClosed,
        }
    }

    /// Has a new session, with the settings of the old one and nobody in it, which is open unless it is to be stopped.
    pub(super) fn renew(&mut self, now: Time) {
        if self.wish == Wish::Starting {
            self.wish = Wish::Open;
            tracing::info!(event = "session_started", port = self.address.port());
        }
        let mut session = Session::new(self.session.config().clone(), unguessable());
        session.set_bans(self.session.bans().to_vec(), Time::ZERO);
        if self.is_stopped() {
            session.shutdown(now);
        }
        self.session = session;
        self.notifier.begin_anew();
        self.failed = None;
        self.arrivals.clear();
        (self.held_since, self.has_relayed) = (None, false);
        self.rejections.skip_to(&self.session, self.traffic.oversized);
    }

    /// Tells the session its list servers.
    pub(super) fn set_masters(&mut self, masters: &Resolved, now: Time) {
        let masters = masters.or_keep(&self.session.config().masters);
        if self.session.config().masters != masters {
            let config = Config { masters, ..self.session.config().clone() };
            self.session.reconfigure(config, now);
        }
    }

    /// A datagram arrived. Returns whether it can have any effect, as far as can be told before it is deciphered.
    pub(super) fn screen(&mut self, head: &Head, bytes: &[u8]) -> bool {
        self.traffic.datagrams_in += 1;
        self.traffic.bytes_in += bytes.len() as u64;
        self.overload.count(head.remote);
        if head.cut {
            self.traffic.oversized += 1;
            return false;
        }
        self.session.screen(head.remote, bytes)
    }

    /// Returns whether a datagram that arrived, still ciphered, belongs in the capture: all of players do, and of others as
    /// many as a flood does not push the players' out with.
    pub(super) fn is_recorded(&mut self, bytes: &[u8], is_meant: bool, now: Time) -> bool {
        let is_of_player = is_meant && bytes.first().is_some_and(|id| PeerId(*id).is_assignable());
        is_of_player || self.strangers_recorded.take(1, STRANGERS_RECORDED, now)
    }

    /// A datagram that passed [`screen`](Self::screen) is deciphered. Returns whether it is a part of relaying: a player's,
    /// and not for nothing.
    pub(super) fn handle(&mut self, head: &Head, bytes: &mut [u8], now: Time) -> bool {
        if let (Some(reply_addresses), Some(local)) = (&mut self.reply_addresses, head.local) {
            reply_addresses.note(head.remote, local);
        }
        let player = bytes.first().map(|id| PeerId(*id));
        let player = player.filter(|_| self.session.is_in_game(head.remote, bytes));
        let before = self.progress(player);
        self.session.handle_datagram(head.remote, bytes, now);
        let after = self.progress(player);
        if after.relayed > before.relayed {
            self.note_arrival(now);
        }
        let is_relayed = player.is_some() && after != before;
        self.has_relayed |= is_relayed;
        is_relayed
    }

    /// Returns how far relaying has come: copies made, and copies that a player has acknowledged.
    fn progress(&self, player: Option<PeerId>) -> Progress {
        let acknowledged = player.and_then(|player| self.session.peer_counters(player));
        let acknowledged = acknowledged.as_ref().map(settled);
        Progress { relayed: self.session.counters().relayed, acknowledged }
    }

    /// A datagram has arrived of which copies are to leave.
    fn note_arrival(&mut self, now: Time) {
        let is_full = self.arrivals.len() == MAX_ARRIVALS;
        match self.arrivals.last_mut() {
            // Of very many the later ones count as if they had come sooner.
            Some((at, count)) if *at == now || is_full => *count += 1,
            _ => self.arrivals.push((now, 1)),
        }
    }

    /// Returns whether copies are to leave.
    pub(super) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// All copies have left.
    pub(super) fn note_departure(&mut self, now: Time) {
        for (at, count) in self.arrivals.drain(..) {
            self.figures.add_delay(now.since(at), count);
        }
    }

    /// The socket gave nothing but errors, or something else. Returns whether it is to be bound again.
    pub(super) fn note_reading(&mut self, is_failing: bool, now: Time) -> bool {
        let (since, pause) = match self.reading {
            _ if !is_failing => {
                self.reading = Reading::Well;
                return false;
            }
            Reading::Well => (now, RETRY),
            // Tried before its time, because the system says that there is something.
            Reading::Failing { next, .. } if now < next => return false,
            Reading::Failing { since, pause, .. } => (since, (2 * pause).min(MAX_RETRY)),
        };
        self.reading = Reading::Failing { since, next: now + pause, pause };
        now > since
    }

    /// The socket was emptied, or could not be in its share of the time.
    pub(super) fn note_emptied(&mut self, is_empty: bool, now: Time) {
        if self.overload.note(is_empty, now) {
            self.limit_strangers(now);
        }
    }

    /// Has the system keep out as many strangers as is needed.
    fn limit_strangers(&mut self, now: Time) {
        let players = self.session.players().map(|player| player.address);
        let known = self.overload.known(players, now);
        if let Err(error) = self.socket.limit_strangers(known.into_iter(), self.overload.passing()) {
            self.note_failure("filter_failed", Some(&error), now);
        }
    }

    /// Binds the socket again; players stay, for the address is the same. Returns whether that went well.
    pub(super) fn rebind(&mut self, now: Time) -> bool {
        let Reading::Failing { since, .. } = self.reading else { return false };
        let port = self.address.port();
        match self.socket.rebind(self.address) {
            Ok(()) => {
                let failed_ms = millis(now.since(since));
                (self.dropped, self.overload) = (0, Overload::default());
                tracing::warn!(
                    event = "socket_rebound",
                    port,
                    failed_ms,
                    "its socket gave nothing but errors"
                );
                true
            }
            Err(error) => {
                self.note_failure("rebind_failed", Some(&error), now);
                false
            }
        }
    }

    /// Returns when something is to be done, whatever arrives.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let retry = match self.reading {
            Reading::Failing { next, .. } => Some(next),
            Reading::Well => None,
        };
        let overload = self.overload.next_timeout();
        let start = self.starts_now().then_some(Time::ZERO);
        [self.session.next_timeout(), retry, self.failed, start, overload].into_iter().flatten().min()
    }

    /// Returns when to look again at what is to be sent, if it waits for company until then; `None` if it does not.
    pub(super) fn hold(&mut self, window: Duration, now: Time) -> Option<Time> {
        let urgent = self.session.next_urgent();
        if window.is_zero() || urgent.is_some_and(|due| due <= now) {
            return None;
        }
        let until = *self.held_since.get_or_insert(now) + window;
        (until > now).then(|| urgent.map_or(until, |due| due.min(until)))
    }

    /// Puts the next datagram to send into `batch`. Returns `false` if there is none, or no room.
    pub(super) fn transmit(&mut self, owner: u32, batch: &mut Batch, now: Time) -> bool {
        let Self { session, reply_addresses, traffic, .. } = self;
        batch.push(|buffer| {
            let transmit = session.poll_transmit(buffer, now)?;
            traffic.datagrams_out += 1;
            traffic.bytes_out += transmit.len as u64;
            let local =
                reply_addresses.as_ref().and_then(|reply_addresses| reply_addresses.find(transmit.to));
            Some(Head { owner, remote: transmit.to, local, len: transmit.len, cut: false })
        })
    }

    /// Logs what has happened.
    pub(super) fn report(&mut self, now: Time) {
        let (mut moved, goodbye) = (false, self.goodbye());
        while let Some(event) = self.session.poll_event() {
            moved |= matches!(event, Event::Joining { .. } | Event::Left { .. });
            self.notifier.see(&event, goodbye, &self.session, self.address.port());
            if let (Event::RoundEnded { summary }, Some(scores)) = (&event, &self.scores) {
                scores.keep(&self.session.config().name, self.address.port(), summary, now);
            }
            self.event_log.write(event, goodbye, now);
        }
        if let (true, Some(reply_addresses)) = (moved, &mut self.reply_addresses) {
            reply_addresses.keep(self.session.players().map(|player| player.address));
        }
        if self.overload.advance(now) || (moved && self.overload.passing().is_some()) {
            self.limit_strangers(now);
        }
        self.rejections.report(self.address.port(), &self.session, self.traffic.oversized, now);
        self.sum_up(now);
    }

    /// The system did not take some datagrams.
    pub(super) fn note_unsent(&mut self, unsent: &Unsent, now: Time) {
        self.traffic.unsent += unsent.datagrams;
        self.traffic.datagrams_out -= unsent.datagrams.min(self.traffic.datagrams_out);
        self.note_failure("send_failed", unsent.reason.as_ref(), now);
    }

    /// The system did not do what the socket should.
    pub(super) fn note_failure(&mut self, event: &'static str, error: Option<&std::io::Error>, now: Time) {
        if let Some(held_back) = self.failures.pass(now) {
            let error = error.map(ToString::to_string);
            tracing::warn!(event, port = self.address.port(), error, held_back);
        }
    }

    /// Returns our address towards `remote`, for captures.
    pub(super) fn local(&self, known: Option<Ipv4Addr>) -> SocketAddrV4 {
        SocketAddrV4::new(known.unwrap_or_else(|| *self.address.ip()), self.address.port())
    }
}

/// Returns how many messages a player has acknowledged.
fn settled(counters: &Counters) -> u64 {
    counters.messages_in.count(Kind::ACK) - counters.acks_useless
}

/// List servers are told the port of the socket, unless the settings name another.
fn advertise(config: &mut Config, port: u16) {
    if config.advertise_port == 0 {
        config.advertise_port = port;
    }
}

/// Returns a time in milliseconds, to the microsecond.
pub(super) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Moments of arrival that are told apart until copies leave.
const MAX_ARRIVALS: usize = 64;
/// How long players may take to hear that their session has failed.
const GOODBYE: Duration = Duration::from_secs(2);
/// A socket that gives nothing but errors is bound again after this, and then ever later, up to the other.
const RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5);
/// Datagrams of strangers that a capture has, per second and at once.
const STRANGERS_RECORDED: Rate = Rate::per_second(100, 1000);
const LOG_EVERY: Duration = Duration::from_secs(10);
