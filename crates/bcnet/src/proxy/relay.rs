//! The service that a proxy's event loop runs.
//!
//! It moves datagrams between the sockets and the proxy of `bcnet-proxy`, and logs events. It also sends
//! heartbeats to list servers and resolves the name of a silent upstream server again.

use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bcnet_observe::MessageBuffer;
use bcnet_proxy::{
    DatagramTarget, Inbound, OutboundBytes, Proxy, ProxyConfig, ProxyEvent, ProxyOutput, RefusalReason,
    UpstreamSource,
};
use bcnet_session::{ListServers, Network, answer_challenge, heartbeat};
use bcnet_transport::wire::Role;
use bcnet_transport::{Time, cipher};
use bcnet_udp::{Batch, DatagramInfo, Io, Socket, wall_now};

use super::metrics::{self, ProxyMetrics};
use super::options::Upstream;
use super::proxy_observer::ProxyObserver;
use super::sockets::{LISTEN_SOCKET, ProxySockets};
use super::upstream_timeout::UpstreamTimeout;
use crate::event_loop::{CommandSender, EventLoop, Service};
use crate::list_servers::ResolvedListServers;
use crate::log::LogRateLimiter;
use crate::metrics::MetricsPage;
use crate::recorder::Recorder;

/// The settings of a relay.
pub(super) struct RelaySetup {
    pub(super) listen: SocketAddrV4,
    pub(super) upstream: Upstream,
    pub(super) config: ProxyConfig,
    /// The interval between dumps of the queues.
    pub(super) dump_interval: Option<Duration>,
    /// `true` to log the effect of each ACK.
    pub(super) log_handled_acks: bool,
    pub(super) advertise: u16,
    pub(super) recorder: Option<Recorder>,
}

/// Sends commands to the relay, from any thread.
pub(super) type RelayCommands = CommandSender<Relay>;

/// A running proxy.
pub(super) struct Relay {
    proxy: Proxy,
    sockets: ProxySockets,
    upstream: SocketAddrV4,
    upstream_name: Upstream,
    upstream_timeout: UpstreamTimeout,
    listen: SocketAddrV4,
    port: u16,
    observer: ProxyObserver,
    metrics: ProxyMetrics,
    list_servers: ListServers,
    list_server_addresses: Vec<SocketAddrV4>,
    advertise: u16,
    commands: RelayCommands,
    refusal_log_limit: LogRateLimiter,
    join_log_limit: LogRateLimiter,
    not_joined_log_limit: LogRateLimiter,
    /// Received datagrams, still encrypted.
    inbound: Batch,
    /// Decrypted copies of `inbound`.
    plain: Batch,
    messages: MessageBuffer<'static>,
    is_over: bool,
}

impl Service for Relay {
    fn next_timeout(&self) -> Option<Time> {
        if self.sockets.readable_count() > 0 {
            return Some(Time::ZERO);
        }
        let next =
            [self.proxy.next_timeout(), self.observer.next_timeout(), self.list_servers.next_deadline()];
        next.into_iter().flatten().min()
    }

    fn on_readable(&mut self, socket: u32) {
        self.sockets.note_readable(socket);
    }

    fn turn(&mut self, now: Time) {
        let (mut inbound, mut plain) = (mem::take(&mut self.inbound), mem::take(&mut self.plain));
        for _ in 0..self.sockets.readable_count() {
            self.sockets.receive(&mut inbound, now);
            plain.copy_from(&inbound);
            plain.apply_cipher(cipher::decrypt_batch, |_| true);
            let mut buffer = mem::take(&mut self.messages).reuse();
            for ((head, wire), (_, plain)) in inbound.iter_mut().zip(plain.iter_mut()) {
                let sender = if head.owner == LISTEN_SOCKET { Role::Client } else { Role::Host };
                let content = &buffer.read(plain, Some(sender));
                self.handle_datagram(head, Inbound { wire, content }, now);
            }
            self.messages = buffer.reuse();
        }
        (self.inbound, self.plain) = (inbound, plain);
        self.proxy.handle_timeout(now);
        self.send_retransmissions(now);
        self.send_heartbeats(now);
        self.handle_proxy_events(now);
        self.sockets.send(now);
        self.observer.advance(now, wall_now());
        self.check_upstream(now);
    }

    fn is_finished(&self, _: Time) -> bool {
        self.is_over
    }
}

impl Relay {
    pub(super) fn new(setup: RelaySetup, event_loop: &EventLoop<Self>) -> anyhow::Result<Self> {
        let RelaySetup {
            listen,
            upstream: name,
            config,
            dump_interval: queues,
            log_handled_acks: handle_acks,
            advertise,
            recorder,
        } = setup;
        let upstream = name.resolve_checked(listen)?;
        check_sources(&config.sources, upstream)?;
        let socket = Socket::bind(listen, Io::BEST).with_context(|| {
            format!("cannot listen at UDP {listen}; stop the program that uses the port, or choose another --listen")
        })?;
        let port = socket.local_address()?.port();
        let sockets = ProxySockets::new(socket, event_loop.registrar()?)?;
        Ok(Self {
            observer: ProxyObserver::new(queues, recorder, handle_acks),
            proxy: Proxy::new(config),
            upstream_timeout: UpstreamTimeout::default(),
            listen,
            metrics: ProxyMetrics::default(),
            refusal_log_limit: LogRateLimiter::new(5, LOG_INTERVAL),
            join_log_limit: LogRateLimiter::new(100, Duration::from_secs(1)),
            not_joined_log_limit: LogRateLimiter::new(5, LOG_INTERVAL),
            sockets,
            upstream,
            upstream_name: name,
            port,
            list_servers: ListServers::default(),
            list_server_addresses: Vec::new(),
            advertise,
            commands: event_loop.command_sender(),
            inbound: Batch::new(),
            plain: Batch::new(),
            messages: MessageBuffer::default(),
            is_over: false,
        })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    pub(super) const fn upstream(&self) -> SocketAddrV4 {
        self.upstream
    }

    /// Gives a datagram to the proxy, and queues the datagrams that the proxy returns.
    fn handle_datagram(&mut self, head: &DatagramInfo, inbound: Inbound<'_>, now: Time) {
        let source = head.owner.checked_sub(LISTEN_SOCKET + 1);
        if head.truncated {
            self.metrics.oversized += 1;
            return;
        }
        // Datagrams from other addresses than the server's are not forwarded.
        if source.is_some() && head.remote != self.upstream {
            self.metrics.foreign += 1;
            return;
        }
        if source.is_none() && self.answer_list_server(head.remote, inbound.wire, now) {
            return;
        }
        let route = match source {
            Some(source) => self.proxy.client_address(source).map(|client| (self.upstream, client)),
            None => Some((head.remote, self.upstream)),
        };
        let Some((from, to)) = route else { return };
        let output = match source {
            Some(source) => {
                self.upstream_timeout.on_received();
                self.proxy.handle_server(source, inbound, now)
            }
            None => self.proxy.handle_client(head.remote, inbound, now),
        };
        self.metrics.on_datagram(source.is_some(), inbound.wire, &output);
        let ProxyOutput { forward, answer, refusal } = output;
        if let Some((DatagramTarget::Server(_), _)) = forward {
            self.upstream_timeout.on_sent(now);
        }
        for (leg, bytes) in [forward, answer].into_iter().flatten() {
            self.sockets.push(leg, self.upstream, bytes);
        }
        // Refused datagrams never reach the server, so its silence would not be a fault: they are not
        // observed. Malformed datagrams of a player belong to its conversation, forwarded or not.
        if refusal.is_none_or(|refusal| refusal == RefusalReason::Malformed) {
            self.observer.observe((from, to), (inbound.wire, inbound.content), now, wall_now());
        }
        if self.sockets.is_nearly_full() {
            self.handle_proxy_events(now);
            self.sockets.send(now);
        }
    }

    /// Sends the goodbyes and retransmissions of the proxy itself.
    fn send_retransmissions(&mut self, now: Time) {
        while let Some((leg, bytes)) = self.proxy.poll_transmit(now) {
            self.metrics.on_sent(leg, bytes);
            self.sockets.push(leg, self.upstream, bytes);
            if self.sockets.is_nearly_full() {
                self.sockets.send(now);
            }
        }
    }

    /// Sends heartbeats to the list servers for which one is due.
    fn send_heartbeats(&mut self, now: Time) {
        while let Some(master) = self.list_servers.poll_heartbeat(now) {
            self.sockets.push(
                DatagramTarget::Client(master),
                self.upstream,
                OutboundBytes::Wire(&heartbeat(self.advertise)),
            );
        }
    }

    /// Answers the challenge of a list server, which must list the proxy, not the server behind it.
    ///
    /// Returns `false` if the datagram is not from a list server.
    fn answer_list_server(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) -> bool {
        if self.advertise == 0 {
            return false;
        }
        if let Some(master) = self.list_servers.on_datagram(from, now) {
            tracing::info!(event = "master_seen", %master);
        }
        let Some(answer) = answer_challenge(bytes) else { return false };
        if !self.proxy.may_answer(*from.ip(), bytes, answer.len(), now) {
            self.metrics.unanswered += 1;
            return true;
        }
        self.sockets.push(DatagramTarget::Client(from), self.upstream, OutboundBytes::Wire(&answer));
        if self.sockets.is_nearly_full() {
            self.handle_proxy_events(now);
            self.sockets.send(now);
        }
        true
    }

    /// Handles the events of the proxy.
    fn handle_proxy_events(&mut self, now: Time) {
        while let Some(event) = self.proxy.poll_event() {
            match event {
                ProxyEvent::Opened { client, source, .. } => self.open_source(client, source, now),
                ProxyEvent::Verified { client, source } => {
                    if let Some(held_back) = self.join_log_limit.allow(now) {
                        let source = self.source_address(source);
                        tracing::info!(event = "player", %client, %source, held_back);
                    }
                    continue;
                }
                ProxyEvent::Closed { client, source, player, verified, up, down } => {
                    self.sockets.detach(source.number + 1, now);
                    if player
                        && !verified
                        && let Some(held_back) = self.not_joined_log_limit.allow(now)
                    {
                        tracing::info!(event = "not_joined", %client, held_back);
                    }
                    // A leaving player is always logged, without a rate limit.
                    if player && verified {
                        let (acks, repeats) = (up.acks + down.acks, up.duplicates + down.duplicates);
                        let bytes = up.bytes_removed + down.bytes_removed;
                        tracing::info!(event = "player_gone", %client, healed_acks = acks, healed_repeats = repeats, healed_bytes = bytes);
                    }
                }
                ProxyEvent::Refused { client, refusal } => {
                    if let Some(held_back) = self.refusal_log_limit.allow(now) {
                        let why = refusal_text(refusal);
                        tracing::warn!(event = "refused", %client, reason = refusal.name(), held_back, "{why}");
                    }
                    continue;
                }
            }
            self.sockets.retain_reply_addresses(self.proxy.players().map(|player| player.address));
        }
    }

    fn open_source(&mut self, client: SocketAddrV4, source: UpstreamSource, now: Time) {
        let own = SocketAddrV4::new(source.address.unwrap_or(Ipv4Addr::UNSPECIFIED), 0);
        let opened = Socket::connect(own, self.upstream, Io::BEST)
            .and_then(|socket| self.sockets.attach(source.number + 1, socket));
        if let Err(error) = opened {
            // The client's next attempt may succeed.
            self.proxy.close_source(source.number);
            if let Some(held_back) = self.refusal_log_limit.allow(now) {
                tracing::error!(event = "no_source", %client, source = %own.ip(), %error, held_back);
            }
        }
    }

    /// Returns the address under which the server sees a source.
    fn source_address(&self, source: UpstreamSource) -> SocketAddrV4 {
        let port = self.sockets.port(source.number + 1).unwrap_or(0);
        SocketAddrV4::new(source.address.unwrap_or(Ipv4Addr::UNSPECIFIED), port)
    }

    /// Starts to resolve the server's name again if the server is silent while clients send.
    ///
    /// The server may have moved. Another thread resolves the name, because that may take long.
    fn check_upstream(&mut self, now: Time) {
        if self.proxy.next_timeout().is_none() || !self.upstream_timeout.check_expired(now) {
            return;
        }
        let (name, listen, commands) = (self.upstream_name.clone(), self.listen, self.commands.clone());
        thread::spawn(move || match name.resolve_checked(listen) {
            Ok(address) => commands.send(move |relay, now| relay.move_upstream(address, now)),
            Err(error) => tracing::warn!(event = "upstream_unknown", error = format!("{error:#}")),
        });
    }

    /// Uses the newly resolved address of the server.
    fn move_upstream(&mut self, address: SocketAddrV4, now: Time) {
        if address == self.upstream {
            tracing::warn!(event = "upstream_silent", upstream = %address);
            return;
        }
        tracing::info!(event = "upstream_moved", from = %self.upstream, to = %address);
        self.upstream = address;
        // The old sockets are connected to the old address.
        let sources: Vec<_> = self.proxy.sources().collect();
        sources.into_iter().for_each(|(client, source)| self.open_source(client, source, now));
    }

    /// Stops the proxy.
    pub(super) const fn stop(&mut self) {
        self.is_over = true;
    }

    /// Prints the queues.
    pub(super) fn dump_queues(&mut self, now: Time) {
        self.observer.dump_queues(now, wall_now());
    }

    /// Replaces the bans. If an operator requested it, the log says so.
    pub(super) fn set_bans(&mut self, networks: Vec<Network>, is_asked: bool, now: Time) {
        if self.proxy.set_bans(networks) || is_asked {
            tracing::info!(event = "reloaded");
        }
        self.handle_proxy_events(now);
    }

    /// Uses the newly resolved addresses of list servers.
    pub(super) fn set_list_servers(&mut self, resolved: &ResolvedListServers) {
        self.list_server_addresses = resolved.merge_with(&self.list_server_addresses);
        self.list_servers.set_addresses(&self.list_server_addresses);
        self.proxy.set_list_servers(self.list_server_addresses.iter().map(|master| *master.ip()).collect());
    }

    /// Returns the metrics page.
    pub(super) fn render_metrics(&self) -> MetricsPage {
        metrics::render(&self.metrics, &self.proxy, &self.observer, self.sockets.unsent())
    }
}

/// Checks the source addresses at the start, instead of when a player connects.
fn check_sources(sources: &[Ipv4Addr], upstream: SocketAddrV4) -> anyhow::Result<()> {
    for source in sources {
        let own = SocketAddrV4::new(*source, 0);
        Socket::bind(own, Io::BEST).with_context(|| {
            format!(
                "--upstream-source: {source} is not an address of this machine; add it to an interface first"
            )
        })?;
        Socket::connect(own, upstream, Io::BEST)
            .with_context(|| format!("--upstream-source: {upstream} cannot be reached from {source}"))?;
    }
    Ok(())
}

const fn refusal_text(refusal: RefusalReason) -> &'static str {
    match refusal {
        RefusalReason::NoSource => {
            "no free source address: a stock server needs one per player; add more with --upstream-source"
        }
        RefusalReason::Banned => "the address is banned",
        RefusalReason::AddressFull => "the address or its network already has the maximum number of clients",
        RefusalReason::Busy => {
            "two clients that have not verified their addresses are joining; a repeated request will be accepted"
        }
        RefusalReason::Flood => "the client sends more datagrams than --rate allows",
        RefusalReason::TooManyBrowsers => "too many browsers query at the same time",
        RefusalReason::QueryLimit => "too many queries, in total or from this network",
        RefusalReason::UnsolicitedAnswer => "an answer to a query that the proxy did not forward",
        RefusalReason::Unverified => {
            "the address is not verified: the client has not acknowledged its cookie"
        }
        RefusalReason::NotConnected => "the client sends data before it has connected",
        RefusalReason::Malformed => "the datagram is malformed",
        RefusalReason::ForeignId => {
            "the client uses the id of another peer; the server would take its messages for those of that peer"
        }
        RefusalReason::Active => "a request to join at the address of a player who is still there",
    }
}

const LOG_INTERVAL: Duration = Duration::from_secs(10);
