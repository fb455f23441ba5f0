//! A game session of a host, without I/O: members, relaying, rounds, events.
//!
//! The [`Session`] owns the members and drives the engine of the transport. It simulates nothing. The submodules contain
//! the rules:
//!
//! - admission and file check ([S-10] to [S-31])
//! - game messages and relaying ([S-32] to [S-46])
//! - leaving ([S-50] to [S-55])
//! - rounds ([S-60] to [S-63])
//! - queries ([S-05] to [S-09])
//!
//! [S-05]: bcnet_transport::wire::protocol#s-05
//! [S-09]: bcnet_transport::wire::protocol#s-09
//! [S-10]: bcnet_transport::wire::protocol#s-10
//! [S-31]: bcnet_transport::wire::protocol#s-31
//! [S-32]: bcnet_transport::wire::protocol#s-32
//! [S-46]: bcnet_transport::wire::protocol#s-46
//! [S-50]: bcnet_transport::wire::protocol#s-50
//! [S-55]: bcnet_transport::wire::protocol#s-55
//! [S-60]: bcnet_transport::wire::protocol#s-60
//! [S-63]: bcnet_transport::wire::protocol#s-63

mod checks;
mod game_messages;
mod join;
mod kills;
mod leave;
mod moderation;
mod names;
mod policy;
mod policy_sends;
mod queries;
mod relay;
mod round;
#[cfg(test)]
mod tests;
mod view;

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{self as transport, DeliveryMode, Endpoint, Engine, SendError, Time, Transmit};

use crate::config::{Config, MissionRules};
use crate::event::{Event, Participant};
use crate::game::Message;
use crate::heartbeats::ListServers;
use crate::member::{Member, MemberState, Roster};
use crate::network::{Network, any_contains};
use crate::policy::ActivePolicy;
use crate::query_limiter::QueryLimiter;
use crate::rate_limit::{JoinLimiter, Rate, TokenBucket};
use crate::send_queue::{MessageSource, Outgoing, Priority};
use crate::stats::{Anomaly, Counters};
use crate::uplink::Uplink;
pub(crate) use game_messages::{chat_rate, relay_rate, unreliable_rate};
use leave::RecentKick;
pub(crate) use moderation::EXPLANATION_RATE;
use moderation::MutedPlayer;
use round::RoundState;
pub use view::{PlayerState, PlayerStatus, SessionStatus};

/// A game server without socket, clock and log.
///
/// Drive a session like an [`Endpoint`]: pass in each datagram and the time, then drain
/// [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event). Then sleep until
/// [`next_timeout`](Self::next_timeout) or the next datagram.
#[derive(Debug)]
pub struct Session<E: Engine = Endpoint> {
    config: Config,
    endpoint: E,
    /// The members by peer id.
    members: Vec<Option<Box<Member>>>,
    /// S-33: the players in the game, which get copies of relayed messages, in the order of entry.
    in_game: Roster,
    bans: Vec<Network>,
    /// S-44: muted players, so that a player is still muted after a rejoin.
    muted: VecDeque<MutedPlayer>,
    /// S-52: recently kicked addresses, each with the end of its cooldown.
    kicked: VecDeque<RecentKick>,
    round: RoundState,
    /// S-63: the mission rules that all current players have.
    rules: MissionRules,
    /// The time at which the game clock started (S-27).
    epoch: Time,
    /// S-51: players that took part in the round and have left.
    departed: VecDeque<Participant>,
    query_limiter: QueryLimiter,
    join_limiter: JoinLimiter,
    uplink: Uplink,
    masters: ListServers,
    next_query_id: u32,
    /// GameSpy replies and heartbeats to send.
    gamespy_outbox: VecDeque<(SocketAddrV4, Vec<u8>)>,
    events: VecDeque<Event>,
    refusal_bucket: TokenBucket,
    refusal_text_bucket: TokenBucket,
    counters: Counters,
    /// The next deadline of the session itself, without the timers of the transport.
    deadline: Option<Time>,
    /// True if a member waits for an ACK (S-24, S-28). Only then each datagram triggers a scan of the members.
    has_ack_waiters: bool,
    /// Buffers for the last received and the next sent payload; reused to avoid allocations.
    receive_buffer: Vec<u8>,
    send_buffer: Vec<u8>,
    closing: bool,
    /// S-90: the rules of the game besides those of the session.
    policy: Option<Box<ActivePolicy>>,
    /// True if the policy or the events need each message.
    sees_messages: bool,
}

impl Session {
    /// Returns an empty session. The seed makes it deterministic, and must be secret from players.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        let engine = Endpoint::host(config.transport.clone()).with_secret(seed);
        Self::with_engine(config, engine, seed)
    }
}

impl<E: Engine> Session<E> {
    /// Returns an empty session on an engine, which must be a host without peers. See [`new`](Session::new).
    #[must_use]
    pub fn with_engine(config: Config, mut engine: E, seed: u64) -> Self {
        engine.mask_addresses(config.mask_addresses);
        let transport::Config { proof_policy, id_policy, .. } = config.transport;
        engine.set_admission(proof_policy, id_policy, config.password.is_some());
        let mut masters = ListServers::default();
        masters.set_addresses(&config.masters);
        Self {
            endpoint: engine,
            members: Vec::new(),
            in_game: Roster::default(),
            bans: Vec::new(),
            muted: VecDeque::new(),
            kicked: VecDeque::new(),
            round: RoundState::new(config.system),
            rules: config.rules(),
            epoch: Time::ZERO,
            departed: VecDeque::new(),
            query_limiter: QueryLimiter::new(seed),
            join_limiter: JoinLimiter::default(),
            uplink: Uplink::new(config.uplink_rate()),
            deadline: masters.next_deadline(),
            masters,
            next_query_id: 1,
            gamespy_outbox: VecDeque::new(),
            events: VecDeque::new(),
            refusal_bucket: TokenBucket::new(REFUSAL_EVENT_RATE, Time::ZERO),
            refusal_text_bucket: TokenBucket::new(REFUSAL_TEXT_RATE, Time::ZERO),
            counters: Counters::default(),
            has_ack_waiters: false,
            receive_buffer: Vec::new(),
            send_buffer: Vec::new(),
            closing: false,
            policy: None,
            sees_messages: config.game_events,
            config,
        }
    }

    /// Returns whether a datagram can have any effect, judged by its sender and its first byte.
    ///
    /// The first byte is never encrypted. A datagram without effect is counted in [`rejected`](Self::rejected) and need
    /// not be decrypted and handled.
    #[must_use]
    pub fn prefilter(&mut self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        self.endpoint.prefilter(from, bytes)
    }

    /// Handles a datagram as it came from the socket.
    ///
    /// If the transport's `cipher` is off, the caller must decrypt datagrams first, except those that begin with `\`.
    pub fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        self.endpoint.handle_datagram(from, bytes, now);
        self.process_events(now);
    }

    /// Runs the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        self.process_events(now);
        if self.deadline.is_some_and(|due| due <= now) {
            self.run_due_tasks(now);
            self.process_events(now);
        }
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due.
    ///
    /// After a change, the time is in the past until [`poll_transmit`](Self::poll_transmit) has returned `None`.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if !self.gamespy_outbox.is_empty() {
            return Some(Time::ZERO);
        }
        [self.endpoint.next_timeout(), self.deadline].into_iter().flatten().min()
    }

    /// Returns the time of the next urgent work, which is in the past if there is some now.
    ///
    /// Copies of state updates are not urgent ([S-33]): they may wait to share a datagram with the next one.
    ///
    /// [S-33]: bcnet_transport::wire::protocol#s-33
    #[must_use]
    pub fn next_urgent(&self) -> Option<Time> {
        if !self.gamespy_outbox.is_empty() {
            return Some(Time::ZERO);
        }
        [self.endpoint.next_urgent_timeout(), self.deadline].into_iter().flatten().min()
    }

    /// Writes the next datagram to send into `buffer`.
    ///
    /// It is encrypted, if the transport's `cipher` is on and it does not begin with `\`.
    ///
    /// # Panics
    /// Panics if the buffer is shorter than the largest datagram. 2048 bytes are enough, unless the transport's
    /// `datagram_limit` is higher.
    pub fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        let Some((to, text)) = self.gamespy_outbox.pop_front() else {
            return self.endpoint.poll_transmit(buffer, now);
        };
        let len = text.len();
        assert!(len <= buffer.len(), "the buffer has {} bytes, but the GameSpy text has {len}", buffer.len());
        buffer.get_mut(..len)?.copy_from_slice(&text);
        Some(Transmit { to, len })
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the settings in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Replaces the settings; no player is dropped.
    ///
    /// Of the transport's settings, only proof policy and id policy change. Settings that all players share are applied
    /// later ([S-63]): a new system or time limit in the next round, a new mission when all players have left.
    ///
    /// [S-63]: bcnet_transport::wire::protocol#s-63
    pub fn reconfigure(&mut self, mut config: Config, now: Time) {
        let (proof_policy, id_policy) = (config.transport.proof_policy, config.transport.id_policy);
        config.transport = transport::Config { proof_policy, id_policy, ..self.config.transport.clone() };
        self.endpoint.set_admission(proof_policy, id_policy, config.password.is_some());
        if config.password.is_some() && config.password != self.config.password {
            self.endpoint.withdraw_offers();
        }
        self.endpoint.mask_addresses(config.mask_addresses);
        if !self.closing {
            self.masters.set_addresses(&config.masters);
            if config.advertise_port != self.config.advertise_port {
                self.masters.send_now();
            }
        }
        if self.config.credit_last_shot && !config.credit_last_shot {
            self.clear_all_shots();
        }
        self.uplink.set_rate(config.uplink_rate());
        self.sees_messages = self.policy.is_some() || config.game_events;
        self.config = config;
        self.update_uplink_shares();
        self.apply_pending_settings();
        self.schedule_at(now);
    }

    /// Returns the banned networks.
    #[must_use]
    pub fn bans(&self) -> &[Network] {
        &self.bans
    }

    /// Replaces the banned networks and boots all members in them ([S-10]).
    ///
    /// [S-10]: bcnet_transport::wire::protocol#s-10
    pub fn set_bans(&mut self, bans: Vec<Network>, now: Time) {
        self.bans = bans;
        let banned = |member: &&Member| any_contains(&self.bans, *member.address.ip());
        let banned: Vec<PeerId> =
            self.members.iter().flatten().map(Box::as_ref).filter(banned).map(|member| member.id).collect();
        for peer in banned {
            self.kick(peer, BootReason::BANNED, now);
        }
    }

    /// Boots a client ([S-52]). Returns `false` if there is no such client.
    ///
    /// [S-52]: bcnet_transport::wire::protocol#s-52
    pub fn kick(&mut self, peer: PeerId, reason: BootReason, now: Time) -> bool {
        let booted = self.endpoint.boot(peer, reason, now);
        self.process_events(now);
        booted.is_ok()
    }

    /// Starts the next round ([S-61]).
    ///
    /// [S-61]: bcnet_transport::wire::protocol#s-61
    pub fn restart(&mut self, now: Time) {
        self.next_round(now);
        self.process_events(now);
    }

    /// Sends a disconnect notice to everyone ([S-53]). Keep driving the session until [`is_closed`](Self::is_closed).
    ///
    /// [S-53]: bcnet_transport::wire::protocol#s-53
    pub fn shutdown(&mut self, now: Time) {
        self.closing = true;
        self.masters.set_addresses(&[]);
        self.endpoint.leave(now);
        self.process_events(now);
    }

    /// Returns whether the session is closed.
    ///
    /// After [`shutdown`](Self::shutdown), everyone must have acknowledged the disconnect notice or timed out.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing && self.endpoint.is_closed()
    }

    /// Handles the events of the transport, then the members that waited for ACKs.
    fn process_events(&mut self, now: Time) {
        self.drain_transport_events(now);
        if self.has_ack_waiters {
            self.check_acknowledged(now);
            self.drain_transport_events(now);
        }
        if self.policy.is_some() {
            self.process_policy_actions(now);
        }
    }

    fn drain_transport_events(&mut self, now: Time) {
        let mut received = std::mem::take(&mut self.receive_buffer);
        while let Some(event) = self.endpoint.poll_event(&mut received) {
            match event {
                transport::Event::Received { peer, reliable } => {
                    let mode = if reliable { DeliveryMode::Reliable } else { DeliveryMode::Unreliable };
                    match self.member(peer).map(|member| member.state) {
                        Some(MemberState::InGame) => {
                            if let Err(kind) = self.on_game_message(peer, &mut received, mode, now) {
                                self.count_anomaly(peer, kind);
                            }
                        }
                        Some(_) => self.on_handshake_message(peer, &received, now),
                        None => {}
                    }
                }
                transport::Event::Request { from, .. } => self.on_connect_request(from, &received, now),
                transport::Event::Identity { peer, cleaned, .. } => {
                    self.on_identity(peer, &received, now);
                    if cleaned {
                        self.count_anomaly(peer, Anomaly::BadName);
                    }
                }
                transport::Event::Left { peer, reason } => self.on_peer_left(peer, reason, now),
                transport::Event::Query { from } => self.on_query(from, &received, now),
                transport::Event::Joined { peer } => self.on_peer_joined(peer, now),
                transport::Event::Rejected { .. } => {}
            }
        }
        self.receive_buffer = received;
    }

    /// Runs all tasks that are due and schedules the next ones.
    fn run_due_tasks(&mut self, now: Time) {
        self.send_heartbeats(now);
        self.check_member_deadlines(now);
        self.check_round_deadline(now);
        self.wake_policy(now);
        self.reschedule();
    }

    /// Schedules another task at `time`, besides those known.
    fn schedule_at(&mut self, time: Time) {
        self.deadline = Some(self.deadline.map_or(time, |due| due.min(time)));
    }

    fn reschedule(&mut self) {
        let handshake = self.config.handshake_timeout;
        let members =
            self.members.iter().flatten().filter_map(|member| member.next_deadline(handshake)).min();
        let own =
            [self.masters.next_deadline(), self.round.next_deadline(&self.config), self.uplink.flush_at];
        let others = [members, self.policy_wake_at()];
        self.deadline = own.into_iter().chain(others).flatten().min();
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

    fn emit(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.counters.events_dropped += 1;
        }
    }

    /// Counts an anomaly of a client and emits an event at each power of two.
    fn count_anomaly(&mut self, peer: PeerId, kind: Anomaly) {
        self.counters.anomalies.add(kind);
        let Some(member) = self.member_mut(peer) else { return };
        let count = member.anomalies.add(kind);
        if count.is_power_of_two() {
            self.emit(Event::Anomaly { peer, kind, count });
        }
    }

    /// Queues a message of the session itself that is not about a player.
    fn send(&mut self, peer: PeerId, message: &Message<'_>, now: Time) {
        self.send_from(MessageSource::HOST, peer, message, now);
    }

    /// Queues a message of the session itself about the player `about`.
    fn send_about(&mut self, about: PeerId, peer: PeerId, message: &Message<'_>, now: Time) {
        self.send_from(self.source_of(about), peer, message, now);
    }

    fn send_from(&mut self, source: MessageSource, peer: PeerId, message: &Message<'_>, now: Time) {
        let payload = self.encode(message);
        let outgoing = Outgoing {
            source,
            priority: Priority::of_host_message(message),
            payload: &payload,
            is_over_share: false,
        };
        let sent = self.deliver(peer, outgoing, now);
        self.boot_if_queue_full(peer, sent, now);
        self.send_buffer = payload;
    }

    /// Queues a message for everyone in the game except `except`.
    fn send_all(&mut self, source: MessageSource, except: Option<PeerId>, message: &Message<'_>, now: Time) {
        let payload = self.encode(message);
        let outgoing = Outgoing {
            source,
            priority: Priority::of_host_message(message),
            payload: &payload,
            is_over_share: false,
        };
        for peer in self.in_game.iter().filter(|peer| Some(*peer) != except) {
            let sent = self.deliver(peer, outgoing, now);
            self.boot_if_queue_full(peer, sent, now);
        }
        self.send_buffer = payload;
    }

    /// Returns the source of messages about a player: its lane in send queues.
    fn source_of(&self, peer: PeerId) -> MessageSource {
        MessageSource::from_slot(self.member(peer).and_then(|member| member.slot))
    }

    /// Encodes a message into the reused send buffer and returns that buffer.
    fn encode(&mut self, message: &Message<'_>) -> Vec<u8> {
        let mut payload = std::mem::take(&mut self.send_buffer);
        payload.clear();
        message.write(&mut payload);
        payload
    }

    /// Boots a client. A client that is gone already is ignored.
    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) {
        let _ = self.endpoint.boot(peer, reason, now);
    }

    /// Boots a client whose queue is full for a message of the session (S-54). It can no longer follow the game.
    fn boot_if_queue_full(&mut self, peer: PeerId, sent: Result<(), SendError>, now: Time) {
        if let Err(SendError::QueueFull { .. }) = sent {
            self.counters.not_queued += 1;
            self.count_anomaly(peer, Anomaly::Stuck);
            self.boot(peer, BootReason::TIMED_OUT, now);
        }
    }
}

/// The most events that wait to be polled.
const MAX_EVENTS: usize = 4096;
/// The highest rate of refusal events.
const REFUSAL_EVENT_RATE: Rate = Rate::per_second(10, 10);
/// The highest rate of clients over a limit that get a text (S-13). Until then, each of them uses a peer id.
const REFUSAL_TEXT_RATE: Rate = Rate::per_second(1, 4);
