//! A player: the session's client over a real socket.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use bcnet_session::Manifest;
use bcnet_session::client::{Client, ClientOptions, DisconnectReason, Event, Milestone};
use bcnet_session::game::{ObjectId, Ship, Species, Text8};
use bcnet_transport::{Config, Connect, Time, cipher};
use bcnet_udp::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sandbox::Sandbox;

/// Whom a player wants to play with, and as whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinRequest<'a> {
    pub(crate) server: SocketAddrV4,
    /// The player's own address.
    pub(crate) from: Ipv4Addr,
    pub(crate) name: &'a str,
    pub(crate) password: &'a str,
    pub(crate) nonce: u32,
    pub(crate) link: LinkProfile,
}

/// How a player is connected: what it is sent waits for its link, and is lost if too much waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkProfile {
    /// How long a datagram takes, beside what it takes on this machine.
    pub(crate) delay: Duration,
    /// How many bytes a second the link carries, headers of UDP and IP included.
    pub(crate) rate: Option<u32>,
}

impl LinkProfile {
    /// No delay and no limit.
    pub(crate) const UNLIMITED: Self = Self { delay: Duration::ZERO, rate: None };
    /// 96 kbit/s, a few countries away.
    pub(crate) const SLOW: Self = Self { delay: Duration::from_millis(40), rate: Some(12_000) };
}

/// A player and its socket.
pub(crate) struct AttackPlayer {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) ship: Option<ObjectId>,
    /// Why it is over, if it is.
    pub(crate) end: Option<DisconnectReason>,
    /// When the server gave it an id.
    pub(crate) connected: Option<Time>,
    /// When the server listed it.
    pub(crate) entered: Option<Time>,
    /// Whether it answers about its files, and enters the game.
    pub(crate) enters_game: bool,
    /// Which datagrams it takes, deciphered; the others are as good as lost.
    pub(crate) accepts: fn(&[u8]) -> bool,
    /// How many it did not take.
    pub(crate) rejected: u64,
    socket: UdpSocket,
    clock: Clock,
    started: Time,
    link: LinkProfile,
    /// When the link has carried all that it was given.
    link_free_at: Time,
    /// What is on its way to it, and when it arrives.
    in_flight: VecDeque<(Time, SocketAddrV4, Vec<u8>)>,
    payload: Vec<u8>,
}

impl AttackPlayer {
    /// Asks to be let in.
    pub(crate) fn connect(sandbox: Sandbox, clock: Clock, request: JoinRequest<'_>) -> anyhow::Result<Self> {
        sandbox.check(request.server)?;
        let socket =
            UdpSocket::bind((request.from, 0)).with_context(|| format!("cannot bind {}", request.from))?;
        socket.set_nonblocking(true)?;
        let connect = Connect { host: request.server, nonce: request.nonce, password: request.password };
        let config = Config { address: request.from, ..Config::default() };
        let client = Client::connect(config, connect, ClientOptions::with_name(request.name), clock.now());
        Ok(Self {
            client,
            name: request.name.into(),
            ship: None,
            end: None,
            connected: None,
            entered: None,
            enters_game: true,
            accepts: |_| true,
            rejected: 0,
            socket,
            clock,
            started: clock.now(),
            link: request.link,
            link_free_at: Time::ZERO,
            in_flight: VecDeque::new(),
            payload: Vec::new(),
        })
    }

    pub(crate) fn address(&self) -> anyhow::Result<SocketAddrV4> {
        match self.socket.local_addr()? {
            SocketAddr::V4(address) => Ok(address),
            SocketAddr::V6(address) => anyhow::bail!("{address}: not IPv4"),
        }
    }

    /// Returns when it has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let arrival = self.in_flight.front().map(|(due, ..)| *due);
        [self.client.next_timeout(), arrival].into_iter().flatten().min()
    }

    /// Takes what has arrived, does what a client does by itself on its way into the game, tells `hear` the rest, and sends
    /// what is to be sent.
    pub(crate) fn poll(&mut self, mut on_event: impl FnMut(&Event, &[u8], Time)) {
        self.receive();
        let now = self.clock.now();
        while self.in_flight.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, from, mut bytes)) = self.in_flight.pop_front() else { break };
            if self.rejects(&bytes) {
                self.rejected += 1;
                continue;
            }
            self.client.handle_datagram(from, &mut bytes, now);
            self.take_events(&mut on_event);
        }
        self.client.handle_timeout(self.clock.now());
        self.take_events(&mut on_event);
        self.send();
    }

    fn rejects(&self, datagram: &[u8]) -> bool {
        let mut plain = datagram.to_vec();
        cipher::decrypt(&mut plain);
        !(self.accepts)(&plain)
    }

    fn receive(&mut self) {
        let mut buffer = [0; 2048];
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => {
                    let bytes = buffer.get(..len).unwrap_or_default();
                    if let Some(due) = self.arrival_time(len) {
                        self.in_flight.push_back((due, from, bytes.to_vec()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The network complains of something sent earlier, or there was a signal.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Returns when the link has carried so many bytes more; `None` if too many wait already.
    fn arrival_time(&mut self, len: usize) -> Option<Time> {
        let now = self.clock.now();
        let Some(rate) = self.link.rate else { return Some(now + self.link.delay) };
        let start = self.link_free_at.max(now);
        if start.since(now) > MAX_LINK_QUEUE {
            return None;
        }
        self.link_free_at = start + Duration::from_secs_f64((len + HEADER_BYTES) as f64 / f64::from(rate));
        Some(self.link_free_at + self.link.delay)
    }

    /// Sends what is to be sent.
    pub(crate) fn send(&mut self) {
        let mut buffer = [0; 2048];
        let now = self.clock.now();
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, now) {
            // What the system does not take is lost.
            drop(self.socket.send_to(buffer.get(..transmit.len).unwrap_or_default(), transmit.to));
        }
    }

    /// Sends a datagram that the client knows nothing of.
    pub(crate) fn send_raw(&self, server: SocketAddrV4, datagram: &[u8]) {
        // What the system does not take is lost.
        drop(self.socket.send_to(datagram, server));
    }

    fn take_events(&mut self, on_event: &mut impl FnMut(&Event, &[u8], Time)) {
        let now = self.clock.now();
        let mut payload = std::mem::take(&mut self.payload);
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            // What cannot be sent now is not sent: then the server throws the player out, which is measured.
            match event.milestone() {
                Some(Milestone::Connected(_)) => self.connected = Some(now),
                Some(Milestone::FileCheck(_)) if self.enters_game => {
                    let _ = self.client.answer_from_manifest(&Manifest::placeholder(), now);
                }
                Some(Milestone::Load) if self.enters_game => drop(self.client.enter(now)),
                Some(Milestone::Entered) => self.entered = Some(now),
                Some(Milestone::Gone { reason: end, .. }) => self.end = Some(end),
                Some(Milestone::FileCheck(_) | Milestone::Settings(_) | Milestone::Load) | None => {}
            }
            on_event(&event, &payload, now);
        }
        self.payload = payload;
    }

    /// Takes a ship.
    pub(crate) fn create_ship(&mut self) -> anyhow::Result<()> {
        let ship = Ship {
            species: Species(5),
            position: [0.0; 3],
            rotation: [1.0, 0.0, 0.0, 0.0],
            unknown: [0; 7],
            name: Text8(b"Dauntless"),
            set: Text8(b"Multi1"),
            subsystems: &[100; 53],
        };
        self.ship = Some(self.client.create_ship(0, ship, self.clock.now())?);
        Ok(())
    }

    /// Returns whether it is out of the game, or is not let in.
    pub(crate) fn has_left_or_timed_out(&self) -> bool {
        let is_late = self.clock.now().since(self.started) > CONNECT_TIMEOUT;
        self.end.is_some() || self.connected.is_none() && is_late
    }

    /// Says goodbye, once.
    pub(crate) fn send_disconnect(&mut self) {
        self.client.leave(self.clock.now());
        self.send();
    }

    /// Says goodbye, and waits a moment for that to be heard.
    pub(crate) fn leave(mut self) {
        self.client.leave(self.clock.now());
        let end = self.clock.now() + LEAVE_TIMEOUT;
        while !self.client.is_closed() && self.clock.now() < end {
            self.poll(|_, _, _| {});
            wait_for_players(self.clock, [&self], end);
        }
    }
}

impl AsFd for AttackPlayer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until a player hears something or has something to do, but no longer than until `end`.
pub(crate) fn wait_for_players<'a>(
    clock: Clock,
    players: impl IntoIterator<Item = &'a AttackPlayer>,
    end: Time,
) {
    let mut due = end;
    let mut sockets: Vec<PollFd<'a>> = Vec::new();
    for player in players {
        due = due.min(player.next_timeout().unwrap_or(end));
        sockets.push(PollFd::from_borrowed_fd(player.as_fd(), PollFlags::IN));
    }
    let left = due.since(clock.now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    // A signal only makes it look earlier.
    let _ = poll(&mut sockets, Some(&timeout));
}

/// Of IPv4 and UDP.
const HEADER_BYTES: usize = 28;
/// How much waits before a link, told as time.
const MAX_LINK_QUEUE: Duration = Duration::from_millis(500);
/// How long it waits for an id.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a goodbye may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
