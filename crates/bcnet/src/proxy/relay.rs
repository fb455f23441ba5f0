//! The loop of a proxy: datagrams from its sockets to the core and back, and what is to be done besides.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::Duration;

use anyhow::Context;
use bcnet_proxy::{Bytes, Config, Event, Inbound, Leg, Output, Proxy, Refusal, Source};
use bcnet_session::{Masters, answer_challenge, heartbeat};
use bcnet_transport::Time;
use bcnet_transport::wire::{MessageBuffer, Role};
use mio::Waker;

use super::metrics::{self, Metrics};
use super::options::Upstream;
use super::silence::Silence;
use super::sockets::{LISTENING, Sockets};
use super::watch::Watch;
use crate::clock::Clock;
use crate::log::LineLimit;
use crate::masters::Resolved;
use crate::recorder::Recorder;
use crate::udp::{Batch, Head, Io, Socket};

/// What a relay is made of.
pub(super) struct Setup {
    pub(super) listen: SocketAddrV4,
    pub(super) upstream: Upstream,
    pub(super) config: Config,
    /// How often to print the queues.
    pub(super) queues: Option<Duration>,
    pub(super) advertise: u16,
    pub(super) recorder: Option<Recorder>,
}

/// Something that the rest of the program wants done.
pub(super) enum Command {
    Stop,
    Dump,
    /// The bans were read; whoever asked for that is told.
    Ban {
        networks: Vec<(Ipv4Addr, u8)>,
        asked: bool,
    },
    /// List servers were looked up.
    Masters(Resolved),
    /// The server was looked up again.
    Upstream(SocketAddrV4),
    /// The metrics are wanted.
    Measure(SyncSender<String>),
}

/// Hands commands to the relay, from any thread.
#[derive(Debug, Clone)]
pub(super) struct CommandSender {
    sender: Sender<Command>,
    waker: Arc<Waker>,
}

impl CommandSender {
    pub(super) fn give(&self, command: Command) {
        if self.sender.send(command).is_ok() {
            // A relay that is gone does not have to be woken.
            drop(self.waker.wake());
        }
    }
}

/// A running proxy.
pub(super) struct Relay {
    proxy: Proxy,
    sockets: Sockets,
    upstream: SocketAddrV4,
    name: Upstream,
    silence: Silence,
    listen: SocketAddrV4,
    port: u16,
    clock: Clock,
    watch: Watch,
    metrics: Metrics,
    masters: Masters,
    master_addresses: Vec<SocketAddrV4>,
    advertise: u16,
    recorder: Option<Recorder>,
    commands: Receiver<Command>,
    sender: CommandSender,
    refusals: LineLimit,
}

impl Relay {
    pub(super) fn new(setup: Setup, clock: Clock) -> anyhow::Result<Self> {
        let Setup { listen, upstream: name, config, queues, advertise, recorder } = setup;
        let upstream = name.resolve_beside(listen)?;
        check_sources(&config.sources, upstream)?;
        let socket = Socket::bind(listen, Io::BEST).with_context(|| format!("cannot listen at {listen}"))?;
        let port = socket.local()?.port();
        let sockets = Sockets::new(socket)?;
        let (sender, commands) = mpsc::channel();
        Ok(Self {
            sender: CommandSender { sender, waker: sockets.waker()? },
            watch: Watch::new(queues, recorder.is_some()),
            proxy: Proxy::new(config),
            silence: Silence::default(),
            listen,
            metrics: Metrics::default(),
            refusals: LineLimit::new(5, LOG_EVERY),
            sockets,
            upstream,
            name,
            port,
            clock,
            masters: Masters::default(),
            master_addresses: Vec::new(),
            advertise,
            recorder,
            commands,
        })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    pub(super) const fn upstream(&self) -> SocketAddrV4 {
        self.upstream
    }

    pub(super) fn commands(&self) -> CommandSender {
        self.sender.clone()
    }

    /// Passes datagrams on until it is told to stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let (mut inbound, mut plain) = (Batch::new(), Batch::new());
        let mut messages = MessageBuffer::default();
        loop {
            let wait = self.patience(self.clock.now());
            self.sockets.wait(wait)?;
            let now = self.clock.now();
            if self.dispatch(now) {
                return Ok(());
            }
            for _ in 0..self.sockets.unread() {
                self.sockets.receive(&mut inbound, now);
                plain.copy_from(&inbound);
                plain.decrypt();
                let mut buffer = mem::take(&mut messages).reuse();
                for ((head, wire), (_, plain)) in inbound.iter_mut().zip(plain.iter_mut()) {
                    let sender = if head.owner == LISTENING { Role::Client } else { Role::Host };
                    let content = &buffer.read(plain, Some(sender));
                    self.handle(head, Inbound { wire, content }, now);
                }
                messages = buffer.reuse();
            }
            self.proxy.handle_timeout(now);
            self.beat(now);
            self.settle(now);
            self.sockets.send(now);
            self.watch.advance(now, self.clock.wall(now));
            self.look_up(now);
        }
    }

    fn patience(&self, now: Time) -> Duration {
        let next = [self.proxy.next_timeout(), self.watch.next_timeout(), self.masters.due()];
        let next = next.into_iter().flatten().min();
        next.map_or(LONGEST_WAIT, |next| next.since(now).min(LONGEST_WAIT))
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
            let remark = self.watch.see((from, to), inbound.content, now);
            if let Some(recorder) = &mut self.recorder {
                recorder.record_with(from, to, self.clock.wall(now), inbound.wire, remark.as_deref());
            }
        }
        if self.sockets.is_nearly_full() {
            self.settle(now);
            self.sockets.send(now);
        }
    }

    /// Tells the list servers whose turn it is that players come here.
    fn beat(&mut self, now: Time) {
        while let Some(master) = self.masters.beat(now) {
            self.sockets.push(Leg::Client(master), self.upstream, Bytes::Wire(&heartbeat(self.advertise)));
        }
    }

    /// A list server that asks who we are is answered here: it must hear of the proxy, not of the server behind.
    fn answer_master(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) -> bool {
        if self.advertise == 0 {
            return false;
        }
        if let Some(master) = self.masters.heard(from, now) {
            tracing::info!(event = "master_seen", %master);
        }
        let Some(answer) = answer_challenge(bytes) else { return false };
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
                Event::Opened { client, source, player } => self.open(client, source, player, now),
                Event::Closed { client, source, player, up, down } => {
                    self.sockets.detach(source.number + 1, now);
                    if player {
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

    fn open(&mut self, client: SocketAddrV4, source: Source, player: bool, now: Time) {
        let own = SocketAddrV4::new(source.address.unwrap_or(Ipv4Addr::UNSPECIFIED), 0);
        let opened = Socket::connect(own, self.upstream, Io::BEST).and_then(|socket| {
            let port = socket.local()?.port();
            self.sockets.attach(source.number + 1, socket)?;
            Ok(SocketAddrV4::new(*own.ip(), port))
        });
        match opened {
            Ok(source) if player => tracing::info!(event = "player", %client, %source),
            Ok(_) => {}
            Err(error) => {
                // Whoever asks again may have more luck.
                self.proxy.forget(source.number);
                if let Some(held_back) = self.refusals.pass(now) {
                    tracing::error!(event = "no_source", %client, source = %own.ip(), %error, held_back);
                }
            }
        }
    }

    /// A server that is silent although somebody talks to it may have moved: its name is looked up again, elsewhere,
    /// because that may take long.
    fn look_up(&mut self, now: Time) {
        if self.proxy.next_timeout().is_none() || !self.silence.is_long(now) {
            return;
        }
        let (name, listen, commands) = (self.name.clone(), self.listen, self.sender.clone());
        std::thread::spawn(move || match name.resolve_beside(listen) {
            Ok(address) => commands.give(Command::Upstream(address)),
            Err(error) => tracing::warn!(event = "upstream_unknown", error = format!("{error:#}")),
        });
    }

    /// Does what was ordered. Whether that is to stop.
    fn dispatch(&mut self, now: Time) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => return true,
                Command::Dump => self.watch.dump(now, self.clock.wall(now)),
                Command::Ban { networks, asked } => {
                    if self.proxy.set_bans(networks) || asked {
                        tracing::info!(event = "reloaded");
                    }
                    self.settle(now);
                }
                Command::Masters(resolved) => {
                    self.master_addresses = resolved.or_keep(&self.master_addresses);
                    self.masters.set(&self.master_addresses);
                }
                Command::Upstream(address) if address != self.upstream => {
                    tracing::info!(event = "upstream_moved", from = %self.upstream, to = %address);
                    self.upstream = address;
                    // The old sockets are connected to where it was.
                    let sources: Vec<_> = self.proxy.sources().collect();
                    sources.into_iter().for_each(|(client, source)| self.open(client, source, false, now));
                }
                Command::Upstream(address) => tracing::warn!(event = "upstream_silent", upstream = %address),
                Command::Measure(reply) => {
                    let text =
                        metrics::render(&self.metrics, &self.proxy, &self.watch, self.sockets.unsent());
                    // Who asked may be gone.
                    drop(reply.try_send(text));
                }
            }
        }
        false
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
        Refusal::AddressFull => "its address has as many clients as one may have",
        Refusal::Flood => "it sends more than --rate allows",
        Refusal::Crowded => "too many browsers ask at the same time",
        Refusal::Stranger => "it talks without having asked to be let in",
        Refusal::Malformed => "it is not well formed",
    }
}

const LOG_EVERY: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
