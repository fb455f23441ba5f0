//! What a proxy's event loop drives: datagrams from its sockets to the core and back, and what is to be done besides.

use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bcnet_observe::MessageBuffer;
use bcnet_proxy::{Bytes, Config, Event, Inbound, Leg, Output, Proxy, Refusal, Source};
use bcnet_session::{Masters, Network, answer_challenge, heartbeat};
use bcnet_transport::wire::Role;
use bcnet_transport::{Time, cipher};
use bcnet_udp::{Batch, Head, Io, Socket, wall_now};

use super::metrics::{self, Metrics};
use super::options::Upstream;
use super::silence::Silence;
use super::sockets::{LISTENING, Sockets};
use super::watch::Watch;
use crate::event_loop::{CommandSender, EventLoop, Service};
use crate::log::LineLimit;
use crate::masters::Resolved;
use crate::metrics::Page;
use crate::recorder::Recorder;

/// What a relay is made of.
pub(super) struct Setup {
    pub(super) listen: SocketAddrV4,
    pub(super) upstream: Upstream,
    pub(super) config: Config,
    /// How often to print the queues.
    pub(super) queues: Option<Duration>,
    /// Whether to log what is done with each ACK.
    pub(super) handle_acks: bool,
    pub(super) advertise: u16,
    pub(super) recorder: Option<Recorder>,
}

/// Hands commands to the relay, from any thread.
pub(super) type Commands = CommandSender<Relay>;

/// A running proxy.
pub(super) struct Relay {
    proxy: Proxy,
    sockets: Sockets,
    upstream: SocketAddrV4,
    name: Upstream,
    silence: Silence,
    listen: SocketAddrV4,
    port: u16,
    watch: Watch,
    metrics: Metrics,
    masters: Masters,
    master_addresses: Vec<SocketAddrV4>,
    advertise: u16,
    commands: Commands,
    refusals: LineLimit,
    arrivals: LineLimit,
    strangers: LineLimit,
    /// What has arrived, as it came and deciphered.
    inbound: Batch,
    plain: Batch,
    messages: MessageBuffer<'static>,
    is_over: bool,
}

impl Service for Relay {
    fn next_timeout(&self) -> Option<Time> {
        if self.sockets.unread() > 0 {
            return Some(Time::ZERO);
        }
        let next = [self.proxy.next_timeout(), self.watch.next_timeout(), self.masters.due()];
        next.into_iter().flatten().min()
    }

    fn note_readable(&mut self, socket: u32) {
        self.sockets.note_readable(socket);
    }

    fn turn(&mut self, now: Time) {
        let (mut inbound, mut plain) = (mem::take(&mut self.inbound), mem::take(&mut self.plain));
        for _ in 0..self.sockets.unread() {
            self.sockets.receive(&mut inbound, now);
            plain.copy_from(&inbound);
            plain.apply(cipher::decrypt_batch, |_| true);
            let mut buffer = mem::take(&mut self.messages).reuse();
            for ((head, wire), (_, plain)) in inbound.iter_mut().zip(plain.iter_mut()) {
                let sender = if head.owner == LISTENING { Role::Client } else { Role::Host };
                let content = &buffer.read(plain, Some(sender));
                self.handle(head, Inbound { wire, content }, now);
            }
            self.messages = buffer.reuse();
        }
        (self.inbound, self.plain) = (inbound, plain);
        self.proxy.handle_timeout(now);
        self.repeat(now);
        self.beat(now);
        self.settle(now);
        self.sockets.send(now);
        self.watch.advance(now, wall_now());
        self.look_up(now);
    }

    fn is_over(&self, _: Time) -> bool {
        self.is_over
    }
}

impl Relay {
    pub(super) fn new(setup: Setup, event_loop: &EventLoop<Self>) -> anyhow::Result<Self> {
        let Setup { listen, upstream: name, config, queues, handle_acks, advertise, recorder } = setup;
        let upstream = name.resolve_beside(listen)?;
        check_sources(&config.sources, upstream)?;
        let socket = Socket::bind(listen, Io::BEST).with_context(|| format!("cannot listen at {listen}"))?;
        let port = socket.local()?.port();
        let sockets = Sockets::new(socket, event_loop.registrar()?)?;
        Ok(Self {
            watch: Watch::new(queues, recorder, handle_acks),
            proxy: Proxy::new(config),
            silence: Silence::default(),
            listen,
            metrics: Metrics::default(),
            refusals: LineLimit::new(5, LOG_EVERY),
            arrivals: LineLimit::new(100, Duration::from_secs(1)),
            strangers: LineLimit::new(5, LOG_EVERY),
            sockets,
            upstream,
            name,
            port,
            masters: Masters::default(),
            master_addresses: Vec::new(),
            advertise,
            commands: event_loop.commands(),
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

    /// Gives a datagram to the proxy, and what it says to what is to leave.
    fn handle(&mut self, head: &Head, inbound: Inbound<'_>, now: Time) {
        let source = head.owner.checked_sub(LISTENING + 1);
        if head.cut {
            self.metrics.oversized += 1;
            return;
        }
        // What does not come from the server is nothing to pass on.
        if source.is_some() && head.remote != self.upstream {
            self.metrics.foreign += 1;
            return;
        }
        if source.is_none() && self.answer_master(head.remote, inbound.wire, now) {
            return;
        }
        let way = match source {
            Some(source) => self.proxy.client(source).map(|client| (self.upstream, client)),
            None => Some((head.remote, self.upstream)),
        };
        let Some((from, to)) = way else { return };
        let output = match source {
            Some(source) => {
                self.silence.hear();
                self.proxy.handle_server(source, inbound, now)
            }
            None => self.proxy.handle_client(head.remote, inbound, now),
        };
        self.metrics.note(source.is_some(), inbound.wire, &output);
        let Output { forward, answer, refusal } = output;
        if let Some((Leg::Server(_), _)) = forward {
            self.silence.ask(now);
        }
        for (leg, bytes) in [forward, answer].into_iter().flatten() {
            self.sockets.push(leg, self.upstream, bytes);
        }
        // Who is turned away says nothing to the server, whose silence is no fault then. What a player says malformed is
        // part of its conversation whether it passes or not.
        if refusal.is_none_or(|refusal| refusal == Refusal::Malformed) {
            self.watch.see((from, to), (inbound.wire, inbound.content), now, wall_now());
        }
        if self.sockets.is_nearly_full() {
            self.settle(now);
            self.sockets.send(now);
        }
    }

    /// Sends what the proxy repeats by itself.
    fn repeat(&mut self, now: Time) {
        while let Some((leg, bytes)) = self.proxy.poll_transmit(now) {
            self.metrics.note_sent(leg, bytes);
            self.sockets.push(leg, self.upstream, bytes);
            if self.sockets.is_nearly_full() {
                self.sockets.send(now);
            }
        }
    }

    /// Tells the list servers whose turn it is that players come here.
    fn beat(&mut self, now: Time) {
        while let Some(master) = self.masters.beat(now) {
            self.sockets.push(Leg::Client(master), self.upstream, Bytes::Wire(&heartbeat(self.advertise)));
        }
    }

    /// Answers a list server that asks who we are: it must hear of the proxy, not of the server behind. Returns `false`
    /// if it is none.
    fn answer_master(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) -> bool {
        if self.advertise == 0 {
            return false;
        }
        if let Some(master) = self.masters.heard(from, now) {
            tracing::info!(event = "master_seen", %master);
        }
        let Some(answer) = answer_challenge(bytes) else { return false };
        if !self.proxy.may_answer(*from.ip(), bytes, answer.len(), now) {
            self.metrics.unanswered += 1;
            return true;
        }
        self.sockets.push(Leg::Client(from), self.upstream, Bytes::Wire(&answer));
        if self.sockets.is_nearly_full() {
            self.settle(now);
            self.sockets.send(now);
        }
        true
    }

    /// Does what the proxy's events ask for.
    fn settle(&mut self, now: Time) {
        while let Some(event) = self.proxy.poll_event() {
            match event {
                Event::Opened { client, source, .. } => self.open(client, source, now),
                Event::Proved { client, source } => {
                    if let Some(held_back) = self.arrivals.pass(now) {
                        let source = self.own_address(source);
                        tracing::info!(event = "player", %client, %source, held_back);
                    }
                    continue;
                }
                Event::Closed { client, source, player, proved, up, down } => {
                    self.sockets.detach(source.number + 1, now);
                    if player
                        && !proved
                        && let Some(held_back) = self.strangers.pass(now)
                    {
                        tracing::info!(event = "not_joined", %client, held_back);
                    }
                    // Who goes is told whatever else is.
                    if player && proved {
                        let (acks, repeats) = (up.acks + down.acks, up.repeats + down.repeats);
                        let bytes = up.bytes + down.bytes;
                        tracing::info!(event = "player_gone", %client, healed_acks = acks, healed_repeats = repeats, healed_bytes = bytes);
                    }
                }
                Event::Refused { client, refusal } => {
                    if let Some(held_back) = self.refusals.pass(now) {
                        let why = explain(refusal);
                        tracing::warn!(event = "refused", %client, reason = refusal.name(), held_back, "{why}");
                    }
                    continue;
                }
            }
            self.sockets.keep(self.proxy.players().map(|player| player.address));
        }
    }

    fn open(&mut self, client: SocketAddrV4, source: Source, now: Time) {
        let own = SocketAddrV4::new(source.address.unwrap_or(Ipv4Addr::UNSPECIFIED), 0);
        let opened = Socket::connect(own, self.upstream, Io::BEST)
            .and_then(|socket| self.sockets.attach(source.number + 1, socket));
        if let Err(error) = opened {
            // Whoever asks again may have more luck.
            self.proxy.forget(source.number);
            if let Some(held_back) = self.refusals.pass(now) {
                tracing::error!(event = "no_source", %client, source = %own.ip(), %error, held_back);
            }
        }
    }

    /// Returns where the server sees a source.
    fn own_address(&self, source: Source) -> SocketAddrV4 {
        let port = self.sockets.port(source.number + 1).unwrap_or(0);
        SocketAddrV4::new(source.address.unwrap_or(Ipv4Addr::UNSPECIFIED), port)
    }

    /// A server that is silent although clients talk to it may have moved: its name is looked up again, elsewhere,
    /// because that may take long.
    fn look_up(&mut self, now: Time) {
        if self.proxy.next_timeout().is_none() || !self.silence.is_long(now) {
            return;
        }
        let (name, listen, commands) = (self.name.clone(), self.listen, self.commands.clone());
        thread::spawn(move || match name.resolve_beside(listen) {
            Ok(address) => commands.give(move |relay, now| relay.move_upstream(address, now)),
            Err(error) => tracing::warn!(event = "upstream_unknown", error = format!("{error:#}")),
        });
    }

    /// The server was looked up again, and is here.
    fn move_upstream(&mut self, address: SocketAddrV4, now: Time) {
        if address == self.upstream {
            tracing::warn!(event = "upstream_silent", upstream = %address);
            return;
        }
        tracing::info!(event = "upstream_moved", from = %self.upstream, to = %address);
        self.upstream = address;
        // The old sockets are connected to where it was.
        let sources: Vec<_> = self.proxy.sources().collect();
        sources.into_iter().for_each(|(client, source)| self.open(client, source, now));
    }

    /// Ends the proxy.
    pub(super) const fn stop(&mut self) {
        self.is_over = true;
    }

    /// Prints the queues.
    pub(super) fn dump(&mut self, now: Time) {
        self.watch.dump(now, wall_now());
    }

    /// Takes over the bans that were read; whoever asked for that is told.
    pub(super) fn set_bans(&mut self, networks: Vec<Network>, is_asked: bool, now: Time) {
        if self.proxy.set_bans(networks) || is_asked {
            tracing::info!(event = "reloaded");
        }
        self.settle(now);
    }

    /// List servers were looked up.
    pub(super) fn set_masters(&mut self, resolved: &Resolved) {
        self.master_addresses = resolved.or_keep(&self.master_addresses);
        self.masters.set(&self.master_addresses);
        self.proxy.set_list_servers(self.master_addresses.iter().map(|master| *master.ip()).collect());
    }

    /// Returns what was counted, for Prometheus.
    pub(super) fn render_metrics(&self) -> Page {
        metrics::render(&self.metrics, &self.proxy, &self.watch, self.sockets.unsent())
    }
}

/// Better now than when a player comes.
fn check_sources(sources: &[Ipv4Addr], upstream: SocketAddrV4) -> anyhow::Result<()> {
    for source in sources {
        let own = SocketAddrV4::new(*source, 0);
        Socket::bind(own, Io::BEST).with_context(|| {
            format!(
                "--upstream-source: {source} is no address of this machine; give it to an interface first"
            )
        })?;
        Socket::connect(own, upstream, Io::BEST)
            .with_context(|| format!("--upstream-source: {upstream} cannot be reached from {source}"))?;
    }
    Ok(())
}

const fn explain(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoSource => {
            "a stock server tells players apart by their IPv4 address; give the proxy more of them with --upstream-source"
        }
        Refusal::Banned => "its address is banned",
        Refusal::AddressFull => "its address or its network has as many clients as one may have",
        Refusal::Busy => "too many ask to be let in; who asks again is heard",
        Refusal::Flood => "it sends more than --rate allows",
        Refusal::Crowded => "too many browsers ask at the same time",
        Refusal::Queries => "too many questions are asked, or its network has been answered enough",
        Refusal::Answer => "it is an answer to a question that nobody asked",
        Refusal::Unproved => "it has not shown that it hears the server",
        Refusal::Stranger => "it talks without having asked to be let in",
        Refusal::Malformed => "it is not well formed",
    }
}

const LOG_EVERY: Duration = Duration::from_secs(10);
