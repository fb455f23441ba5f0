//! One game: who is in it, what they say to each other, how it goes on.

mod introduce;
mod join;
mod kills;
mod leave;
mod moderate;
mod play;
mod queries;
mod relay;
mod round;
mod view;

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{self as transport, Endpoint, Engine, Quality, SendError, Time, Transmit};

use crate::config::{Config, Rules};
use crate::event::{Event, Participant};
use crate::game::Message;
use crate::limit::{Bucket, JoinLimiter, Rate};
use crate::line::{Rank, Said, Source};
use crate::master::Masters;
use crate::member::{Member, Roster, State};
use crate::network::{Network, any_contains};
use crate::query_limiter::QueryLimiter;
use crate::stats::{Anomaly, Counters};
use leave::KeptOut;
pub(crate) use moderate::EXPLANATIONS;
use moderate::Muted;
pub(crate) use play::{chat_rate, relay_rate};
use round::Round;
pub use view::{Player, PlayerState, Status};

/// A game server without its socket, clock and log.
///
/// Drive it like an [`Endpoint`]: hand over what arrived and the time, then empty
/// [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event), then sleep until
/// [`next_timeout`](Self::next_timeout) or the next datagram.
#[derive(Debug)]
pub struct Session<E: Engine = Endpoint> {
    config: Config,
    endpoint: E,
    /// By peer id.
    members: Vec<Option<Box<Member>>>,
    /// S-33: who gets copies, in the order of arrival.
    in_game: Roster,
    bans: Vec<Network>,
    /// S-44: who may not chat, should it come back.
    muted: VecDeque<Muted>,
    /// S-52: who was thrown out lately, and until when it stays out.
    kicked: VecDeque<KeptOut>,
    round: Round,
    /// S-63: what everyone here was told of the mission.
    rules: Rules,
    /// When the game clock started.
    epoch: Time,
    /// S-51: who took part in the round and has left.
    remembered: VecDeque<Participant>,
    query_limiter: QueryLimiter,
    join_limiter: JoinLimiter,
    masters: Masters,
    query_number: u32,
    /// GameSpy texts to send.
    texts: VecDeque<(SocketAddrV4, Vec<u8>)>,
    events: VecDeque<Event>,
    refusals: Bucket,
    counters: Counters,
    /// When something of the session is due, the transport's timers aside.
    due: Option<Time>,
    /// S-24, S-28: whether a client waits until something is acknowledged, so every datagram is a reason to look.
    waiting: bool,
    /// What came last, and what is written next; kept for their memory.
    received: Vec<u8>,
    payload: Vec<u8>,
    closing: bool,
}

impl Session {
    /// A session that nobody is in. The same seed and input give the same output; nobody who plays may guess it.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        let engine = Endpoint::host(config.transport.clone()).with_secret(seed);
        Self::with_engine(config, engine, seed)
    }
}

impl<E: Engine> Session<E> {
    /// As [`new`](Session::new), on an engine that is a host and that nobody is in.
    #[must_use]
    pub fn with_engine(config: Config, mut engine: E, seed: u64) -> Self {
        engine.mask_addresses(config.mask_addresses);
        let transport::Config { prove, ids, .. } = config.transport;
        engine.set_admission(prove, ids, config.password.is_some());
        let mut masters = Masters::default();
        masters.set(&config.masters);
        Self {
            endpoint: engine,
            members: Vec::new(),
            in_game: Roster::default(),
            bans: Vec::new(),
            muted: VecDeque::new(),
            kicked: VecDeque::new(),
            round: Round::new(config.system),
            rules: config.rules(),
            epoch: Time::ZERO,
            remembered: VecDeque::new(),
            query_limiter: QueryLimiter::new(seed),
            join_limiter: JoinLimiter::default(),
            due: masters.due(),
            masters,
            query_number: 1,
            texts: VecDeque::new(),
            events: VecDeque::new(),
            refusals: Bucket::new(REFUSALS, Time::ZERO),
            counters: Counters::default(),
            waiting: false,
            received: Vec::new(),
            payload: Vec::new(),
            closing: false,
            config,
        }
    }

    /// Returns whether a datagram can have any effect, as its sender and its first byte tell, which is never ciphered. One
    /// that cannot is counted in [`rejected`](Self::rejected), and need not be deciphered and handled.
    #[must_use]
    pub fn screen(&mut self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        self.endpoint.screen(from, bytes)
    }

    /// A datagram arrived, as it came from the socket; with the transport's `cipher` off, deciphered, unless it begins
    /// with `\`.
    pub fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        self.endpoint.handle_datagram(from, bytes, now);
        self.pump(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        self.pump(now);
        if self.due.is_some_and(|due| due <= now) {
            self.serve(now);
            self.pump(now);
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due. At once after a change, until
    /// [`poll_transmit`](Self::poll_transmit) has returned `None`.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if !self.texts.is_empty() {
            return Some(Time::ZERO);
        }
        [self.endpoint.next_timeout(), self.due].into_iter().flatten().min()
    }

    /// Returns when something is to be sent or done that must not wait, a time that has passed if it is so now: anything but
    /// copies of state updates (S-33), which lose little if they share a datagram with what comes next.
    #[must_use]
    pub fn next_urgent(&self) -> Option<Time> {
        if !self.texts.is_empty() {
            return Some(Time::ZERO);
        }
        [self.endpoint.next_urgent(), self.due].into_iter().flatten().min()
    }

    /// Writes the next datagram to send into `buffer`. It is ciphered, if the transport's `cipher` is on and it does not
    /// begin with `\`.
    ///
    /// # Panics
    /// If the buffer is shorter than the largest datagram there can be: 2048 bytes are enough, unless the transport's
    /// `datagram_limit` is more.
    pub fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        let Some((to, text)) = self.texts.pop_front() else {
            return self.endpoint.poll_transmit(buffer, now);
        };
        let len = text.len();
        assert!(len <= buffer.len(), "a buffer of {} bytes is too short for a reply of {len}", buffer.len());
        buffer.get_mut(..len)?.copy_from_slice(&text);
        Some(Transmit { to, len })
    }

    /// Returns the next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the settings in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the settings; nobody is dropped. Those of the transport stay as they were, but for what
    /// newcomers must prove and which ids they get. What all players must have in
    /// common waits (S-63): a new system or time limit for the next round, a new mission until everyone has left.
    pub fn reconfigure(&mut self, mut config: Config, now: Time) {
        let (prove, ids) = (config.transport.prove, config.transport.ids);
        config.transport = transport::Config { prove, ids, ..self.config.transport.clone() };
        self.endpoint.set_admission(prove, ids, config.password.is_some());
        if config.password.is_some() && config.password != self.config.password {
            self.endpoint.withdraw_offers();
        }
        self.endpoint.mask_addresses(config.mask_addresses);
        if !self.closing {
            self.masters.set(&config.masters);
            if config.advertise_port != self.config.advertise_port {
                self.masters.hurry();
            }
        }
        if self.config.credit_last_shot && !config.credit_last_shot {
            self.forget_all_shots();
        }
        self.config = config;
        self.take_over();
        self.arm_at(now);
    }

    /// Returns the banned networks.
    #[must_use]
    pub fn bans(&self) -> &[Network] {
        &self.bans
    }

    /// Replaces the banned networks. Whoever is in one is thrown out.
    pub fn set_bans(&mut self, bans: Vec<Network>, now: Time) {
        self.bans = bans;
        let banned = |member: &&Member| any_contains(&self.bans, *member.address.ip());
        let banned: Vec<PeerId> =
            self.members.iter().flatten().map(Box::as_ref).filter(banned).map(|member| member.id).collect();
        for peer in banned {
            self.kick(peer, BootReason::BANNED, now);
        }
    }

    /// Throws a client out (S-52). `false` if there is none.
    pub fn kick(&mut self, peer: PeerId, reason: BootReason, now: Time) -> bool {
        let booted = self.endpoint.boot(peer, reason, now);
        self.pump(now);
        booted.is_ok()
    }

    /// Starts the next round (S-61).
    pub fn restart(&mut self, now: Time) {
        self.next_round(now);
        self.pump(now);
    }

    /// Says goodbye to everyone (S-53). Go on until [`is_closed`](Self::is_closed).
    pub fn shutdown(&mut self, now: Time) {
        self.closing = true;
        self.masters.set(&[]);
        self.endpoint.leave(now);
        self.pump(now);
    }

    /// Returns whether everyone has heard the goodbye of [`shutdown`](Self::shutdown), or was given up.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing && self.endpoint.is_closed()
    }

    /// Takes what the transport has to tell, and does what waited for it.
    fn pump(&mut self, now: Time) {
        self.take_events(now);
        if self.waiting {
            self.serve_waiting(now);
            self.take_events(now);
        }
    }

    fn take_events(&mut self, now: Time) {
        let mut received = std::mem::take(&mut self.received);
        while let Some(event) = self.endpoint.poll_event(&mut received) {
            match event {
                transport::Event::Received { peer, reliable } => {
                    let quality = if reliable { Quality::Reliable } else { Quality::Unreliable };
                    match self.member(peer).map(|member| member.state) {
                        Some(State::InGame) => {
                            if let Err(kind) = self.play(peer, &mut received, quality, now) {
                                self.odd(peer, kind);
                            }
                        }
                        Some(_) => self.handshake(peer, &received, now),
                        None => {}
                    }
                }
                transport::Event::Request { from, .. } => self.requested(from, &received, now),
                transport::Event::Identity { peer, cleaned, .. } => {
                    self.identified(peer, &received, now);
                    if cleaned {
                        self.odd(peer, Anomaly::OddName);
                    }
                }
                transport::Event::Left { peer, reason } => self.left(peer, reason, now),
                transport::Event::Query { from } => self.queried(from, &received, now),
                transport::Event::Joined { peer } => self.joined(peer, now),
                transport::Event::Rejected { .. } => {}
            }
        }
        self.received = received;
    }

    /// Serves whatever is due, and notes what is due next.
    fn serve(&mut self, now: Time) {
        self.serve_masters(now);
        self.serve_members(now);
        self.serve_round(now);
        self.rearm();
    }

    /// Something is due at `time`, besides what is known.
    fn arm_at(&mut self, time: Time) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    fn rearm(&mut self) {
        let handshake = self.config.handshake_timeout;
        let members = self.members.iter().flatten().filter_map(|member| member.due(handshake)).min();
        self.due = [members, self.masters.due(), self.round.due(&self.config)].into_iter().flatten().min();
    }

    fn member(&self, peer: PeerId) -> Option<&Member> {
        self.members.get(usize::from(peer.0))?.as_deref()
    }

    fn member_mut(&mut self, peer: PeerId) -> Option<&mut Member> {
        self.members.get_mut(usize::from(peer.0))?.as_deref_mut()
    }

    fn taken_slots(&self) -> impl Iterator<Item = u8> {
        self.members.iter().flatten().filter_map(|member| member.slot)
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.counters.events_lost += 1;
        }
    }

    /// Counts something odd and tells it now and then.
    fn odd(&mut self, peer: PeerId, kind: Anomaly) {
        self.counters.anomalies.add(kind);
        let Some(member) = self.member_mut(peer) else { return };
        let count = member.anomalies.add(kind);
        if count.is_power_of_two() {
            self.tell(Event::Anomaly { peer, kind, count });
        }
    }

    /// Queues a message that the session makes itself, about nobody in particular.
    fn send(&mut self, peer: PeerId, message: &Message<'_>, now: Time) {
        self.send_of(Source::HOST, peer, message, now);
    }

    /// The same about a player.
    fn send_about(&mut self, about: PeerId, peer: PeerId, message: &Message<'_>, now: Time) {
        self.send_of(self.source(about), peer, message, now);
    }

    fn send_of(&mut self, source: Source, peer: PeerId, message: &Message<'_>, now: Time) {
        let payload = self.write(message);
        let said = Said { source, rank: Rank::of(message), payload: &payload };
        let sent = self.deliver(peer, said, now);
        self.note_sent(peer, sent, now);
        self.payload = payload;
    }

    /// The same for everyone in the game but `except`.
    fn send_all(&mut self, source: Source, except: Option<PeerId>, message: &Message<'_>, now: Time) {
        let payload = self.write(message);
        let said = Said { source, rank: Rank::of(message), payload: &payload };
        for peer in self.in_game.iter().filter(|peer| Some(*peer) != except) {
            let sent = self.deliver(peer, said, now);
            self.note_sent(peer, sent, now);
        }
        self.payload = payload;
    }

    /// Returns where what is about a player stands in lines.
    fn source(&self, peer: PeerId) -> Source {
        Source::of(self.member(peer).and_then(|member| member.slot))
    }

    /// Returns the bytes of a message, in the buffer for that.
    fn write(&mut self, message: &Message<'_>) -> Vec<u8> {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        message.write(&mut payload);
        payload
    }

    /// Has the transport throw a client out, which may be gone already.
    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) {
        let _ = self.endpoint.boot(peer, reason, now);
    }

    /// S-54: who does not take what it must have is dropped, for it could not follow the game any more.
    fn note_sent(&mut self, peer: PeerId, sent: Result<(), SendError>, now: Time) {
        if let Err(SendError::QueueFull { .. }) = sent {
            self.counters.not_queued += 1;
            self.odd(peer, Anomaly::Stuck);
            self.boot(peer, BootReason::TIMED_OUT, now);
        }
    }
}

/// Events that wait to be polled.
const MAX_EVENTS: usize = 4096;
/// Refusals that are told per second.
const REFUSALS: Rate = Rate::per_second(10, 10);
