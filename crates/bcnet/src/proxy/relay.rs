//! The sockets of a proxy and the loop around them.
//!
//! Socket 0 is the one that players talk to; socket n + 1 is source n, which the server takes for a player.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::Context;
use bcnet_proxy::{Config, Event, Leg, Output, Proxy, Refusal, Source};
use bcnet_session::{Masters, answer_challenge, heartbeat};
use bcnet_transport::Time;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::watch::Watch;
use crate::net::{Batch, Head, Io, Received, Socket};
use crate::serve::clock::Clock;
use crate::serve::limit::Limit;
use crate::serve::locals::Locals;
use crate::serve::recorder::Recorder;

/// What a relay is made of.
pub(super) struct Setup {
    pub(super) listen: SocketAddrV4,
    pub(super) upstream: SocketAddrV4,
    pub(super) config: Config,
    pub(super) queues: Option<Duration>,
    pub(super) advertise: u16,
    pub(super) masters: Vec<SocketAddrV4>,
}

/// Something that the rest of the program wants done.
pub(super) enum Order {
    Stop,
    Dump,
    Ban(Vec<(Ipv4Addr, u8)>),
}

/// Hands orders to the relay, from any thread.
#[derive(Debug, Clone)]
pub(super) struct Orders {
    sender: Sender<Order>,
    waker: Arc<Waker>,
}

impl Orders {
    pub(super) fn give(&self, order: Order) {
        if self.sender.send(order).is_ok() {
            // A relay that is gone does not have to be woken.
            drop(self.waker.wake());
        }
    }
}

/// A running proxy.
pub(super) struct Relay {
    proxy: Proxy,
    upstream: SocketAddrV4,
    address: SocketAddrV4,
    sockets: Vec<Option<Socket>>,
    clock: Clock,
    watch: Watch,
    masters: Masters,
    advertise: u16,
    recorder: Option<Recorder>,
    locals: Option<Locals>,
    poll: Poll,
    orders: Receiver<Order>,
    sender: Orders,
    unread: VecDeque<u32>,
    outbound: Batch,
    failures: Limit,
    refusals: Limit,
}

impl Relay {
    pub(super) fn new(setup: Setup, clock: Clock, recorder: Option<Recorder>) -> anyhow::Result<Self> {
        let Setup { listen, upstream, config, queues, advertise, masters: addresses } = setup;
        let mut masters = Masters::default();
        masters.set(&addresses);
        // Better now than when the first player comes.
        if let Some(first) = config.sources.first() {
            Socket::bind(SocketAddrV4::new(*first, 0), Io::BEST).with_context(|| {
                format!(
                    "--upstream-source: {first} is no address of this machine; give it to an interface first"
                )
            })?;
        }
        let socket = Socket::bind(listen, Io::BEST).with_context(|| format!("cannot listen at {listen}"))?;
        let address = socket.local()?;
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (sender, orders) = mpsc::channel();
        let mut relay = Self {
            watch: Watch::new(queues),
            masters,
            advertise,
            proxy: Proxy::new(config),
            upstream,
            address,
            sockets: Vec::new(),
            clock,
            recorder,
            locals: address.ip().is_unspecified().then(Locals::new),
            poll,
            orders,
            sender: Orders { sender, waker },
            unread: VecDeque::new(),
            outbound: Batch::new(),
            failures: Limit::new(5, LOG_EVERY),
            refusals: Limit::new(5, LOG_EVERY),
        };
        relay.attach(LISTENING, socket)?;
        Ok(relay)
    }

    pub(super) const fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn orders(&self) -> Orders {
        self.sender.clone()
    }

    /// Passes datagrams on until it is told to stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut inbound = Batch::new();
        loop {
            let now = self.clock.now();
            match self.poll.poll(&mut events, Some(self.wait(now))) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            }
            let now = self.clock.now();
            for event in &events {
                match event.token() {
                    WAKE if self.obey(now) => return Ok(()),
                    WAKE => {}
                    Token(socket) => self.unread.extend(u32::try_from(socket)),
                }
            }
            for _ in 0..self.unread.len() {
                let Some(socket) = self.unread.pop_front() else { break };
                if self.receive(socket, &mut inbound, now) {
                    self.unread.push_back(socket);
                }
            }
            self.proxy.handle_timeout(now);
            self.settle(now);
            self.beat(now);
            self.send(now);
            self.watch.advance(now);
        }
    }

    fn wait(&self, now: Time) -> Duration {
        if !self.unread.is_empty() {
            return Duration::ZERO;
        }
        let next = [self.proxy.next_timeout(), self.watch.next_timeout(), self.masters.due()]
            .into_iter()
            .flatten()
            .min();
        next.map_or(LONGEST_WAIT, |next| next.since(now).min(LONGEST_WAIT))
    }

    /// Takes what has arrived at one socket, but no more than its turn. Whether there may be more.
    fn receive(&mut self, socket: u32, inbound: &mut Batch, now: Time) -> bool {
        let Some(source) = self.sockets.get(socket as usize).and_then(Option::as_ref) else { return false };
        let more = match source.receive(inbound, socket, TURN) {
            Ok(received) => received == Received::More,
            Err(error) => {
                if let Some(held_back) = self.failures.pass(now) {
                    tracing::warn!(event = "receive_failed", %error, held_back);
                }
                // It complains of something sent earlier; behind that, there may be datagrams.
                true
            }
        };
        for (head, bytes) in inbound.iter_mut() {
            self.handle(head, bytes, now);
        }
        inbound.clear();
        more
    }

    /// Gives a datagram to the proxy, and what it says to the batch of what is to leave.
    fn handle(&mut self, head: &Head, bytes: &[u8], now: Time) {
        let from_server = head.owner != LISTENING;
        // What is too long for the protocol, or does not come from the server, is nothing to pass on.
        if head.cut || from_server && head.remote != self.upstream {
            return;
        }
        if let (Some(locals), Some(local), false) = (&mut self.locals, head.local, from_server) {
            locals.note(head.remote, local);
        }
        if !from_server && self.answer_master(head, bytes, now) {
            return;
        }
        let output = if from_server {
            self.proxy.handle_server(head.owner - 1, bytes, now)
        } else {
            self.proxy.handle_client(head.remote, bytes, now)
        };
        let Output { forward, answer } = output;
        for (leg, bytes) in [forward, answer].into_iter().flatten() {
            push(&mut self.outbound, leg, bytes, self.upstream, self.locals.as_ref());
        }
        let client = match (from_server, forward.or(answer)) {
            (true, Some((Leg::Client(client), _))) => Some(client),
            (true, _) => self.proxy.client(head.owner - 1),
            (false, _) => Some(head.remote),
        };
        let Some(client) = client else { return };
        let way = if from_server { (self.upstream, client) } else { (client, self.upstream) };
        let remark = self.watch.see(way, bytes, now);
        if let Some(recorder) = &mut self.recorder {
            recorder.record_with(way.0, way.1, self.clock.wall(now), bytes, remark.as_deref());
        }
        if self.outbound.is_nearly_full() {
            self.settle(now);
            self.send(now);
        }
    }

    /// Tells the list servers whose turn it is that players come here.
    fn beat(&mut self, now: Time) {
        while let Some(master) = self.masters.beat(now) {
            let bytes = heartbeat(self.advertise);
            push(&mut self.outbound, Leg::Client(master), &bytes, self.upstream, None);
        }
    }

    /// A list server that asks who we are is answered here: it must hear of the proxy, not of the server behind.
    fn answer_master(&mut self, head: &Head, bytes: &[u8], now: Time) -> bool {
        if self.advertise == 0 {
            return false;
        }
        if let Some(master) = self.masters.heard(*head.remote.ip(), now) {
            tracing::info!(event = "master_seen", %master);
        }
        let Some(answer) = answer_challenge(bytes) else { return false };
        push(&mut self.outbound, Leg::Client(head.remote), &answer, self.upstream, self.locals.as_ref());
        true
    }

    /// Does what the proxy's events ask for.
    fn settle(&mut self, now: Time) {
        while let Some(event) = self.proxy.poll_event() {
            match event {
                Event::Opened { client, source, player } => self.open(client, source, player),
                Event::Closed { client, source, player, up, down } => {
                    self.send(now);
                    self.detach(source.number + 1);
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
                }
            }
        }
    }

    fn open(&mut self, client: SocketAddrV4, source: Source, player: bool) {
        let own = SocketAddrV4::new(source.address.unwrap_or(Ipv4Addr::UNSPECIFIED), 0);
        let opened = Socket::bind(own, Io::BEST).and_then(|socket| self.attach(source.number + 1, socket));
        match opened {
            Ok(()) if player => tracing::info!(event = "player", %client, source = %own.ip()),
            Ok(()) => {}
            Err(error) => tracing::error!(event = "no_source", %client, source = %own.ip(), %error),
        }
    }

    fn attach(&mut self, number: u32, socket: Socket) -> io::Result<()> {
        let index = number as usize;
        let raw = socket.as_udp().as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&raw), Token(index), Interest::READABLE)?;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, || None);
        }
        self.sockets[index] = Some(socket);
        Ok(())
    }

    fn detach(&mut self, number: u32) {
        let Some(socket) = self.sockets.get_mut(number as usize).and_then(Option::take) else { return };
        self.unread.retain(|unread| *unread != number);
        let raw = socket.as_udp().as_raw_fd();
        // It is closed at once, which does the same.
        drop(self.poll.registry().deregister(&mut SourceFd(&raw)));
    }

    /// Sends the batch of what is to leave.
    fn send(&mut self, now: Time) {
        let Self { sockets, outbound, failures, .. } = self;
        for (owner, range) in outbound.runs() {
            let Some(socket) = sockets.get(owner as usize).and_then(Option::as_ref) else { continue };
            if let Err(unsent) = socket.send(outbound, range)
                && let Some(held_back) = failures.pass(now)
            {
                let error = unsent.reason.map(|error| error.to_string());
                tracing::warn!(event = "send_failed", datagrams = unsent.datagrams, error, held_back);
            }
        }
        outbound.clear();
    }

    /// Does what was ordered. Whether that is to stop.
    fn obey(&mut self, now: Time) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Stop => return true,
                Order::Dump => self.watch.dump(now),
                Order::Ban(networks) => {
                    self.proxy.set_bans(networks);
                    tracing::info!(event = "reloaded");
                }
            }
        }
        false
    }
}

fn push(batch: &mut Batch, leg: Leg, bytes: &[u8], upstream: SocketAddrV4, locals: Option<&Locals>) {
    let (owner, remote, local) = match leg {
        Leg::Client(client) => (LISTENING, client, locals.and_then(|locals| locals.find(client))),
        Leg::Server(source) => (source + 1, upstream, None),
    };
    batch.push(|room| {
        room.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Head { owner, remote, local, len: bytes.len(), cut: false })
    });
}

const fn explain(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoSource => {
            "a stock server tells players apart by their IPv4 address; give the proxy more of them with --upstream-source"
        }
        Refusal::Banned => "its address is banned",
        Refusal::Flood => "it sends more than --rate allows",
        Refusal::Crowded => "too many browsers ask at the same time",
        Refusal::Stranger => "it talks without having asked to be let in",
        Refusal::Malformed => "it is not well formed",
    }
}

/// The socket that players talk to.
const LISTENING: u32 = 0;
const WAKE: Token = Token(usize::MAX);
/// How many datagrams one socket may bring before others have their turn.
const TURN: usize = 64;
const LOG_EVERY: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
