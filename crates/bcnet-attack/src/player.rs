//! A player: the client of `bcnet_session` with a UDP socket.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use bcnet_lab::Rng;
use bcnet_session::Manifest;
use bcnet_session::client::{Client, ClientOptions, DisconnectReason, Event, Milestone};
use bcnet_session::game::{ObjectId, Ship, Species, Text8};
use bcnet_transport::{Config, Connect, Time, cipher};
use bcnet_udp::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sandbox::Sandbox;

/// The server that a player joins, and the player's name, address and link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinRequest<'a> {
    pub(crate) server: SocketAddrV4,
    /// The source address of the player.
    pub(crate) from: Ipv4Addr,
    pub(crate) name: &'a str,
    pub(crate) password: &'a str,
    pub(crate) nonce: u32,
    pub(crate) link: LinkProfile,
}

/// A simulated link to a player: received datagrams queue, and are lost if the queue is too long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkProfile {
    /// The delay of the link, in addition to the delay on this machine.
    pub(crate) delay: Duration,
    /// Bytes per second that the link carries, including UDP and IP headers.
    pub(crate) rate: Option<u32>,
    /// The share of datagrams to the player that the link loses.
    pub(crate) loss: f64,
}

impl LinkProfile {
    /// No delay and no limit.
    pub(crate) const UNLIMITED: Self = Self { delay: Duration::ZERO, rate: None, loss: 0.0 };
    /// 96 kbit/s with 40 ms of delay.
    pub(crate) const SLOW: Self = Self { delay: Duration::from_millis(40), rate: Some(12_000), loss: 0.0 };
    /// One of ten datagrams is lost, with 20 ms of delay.
    pub(crate) const LOSSY: Self = Self { delay: Duration::from_millis(20), rate: None, loss: 0.1 };
}

/// A player and its socket.
pub(crate) struct AttackPlayer {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) ship: Option<ObjectId>,
    /// The reason of the disconnect, if the player is disconnected.
    pub(crate) end: Option<DisconnectReason>,
    /// The time at which the server assigned an id.
    pub(crate) connected: Option<Time>,
    /// The time at which the player entered the game.
    pub(crate) entered: Option<Time>,
    /// `true` if the client answers the file check and enters the game.
    pub(crate) enters_game: bool,
    /// A filter for received datagrams after decryption. The client does not get the refused ones.
    pub(crate) accepts: fn(&[u8]) -> bool,
    /// Number of refused datagrams.
    pub(crate) rejected: u64,
    socket: UdpSocket,
    clock: Clock,
    started: Time,
    link: LinkProfile,
    /// Decides which datagrams the link loses.
    rng: Rng,
    /// The time at which the link has carried all queued datagrams.
    link_free_at: Time,
    /// The datagrams on the link, with their arrival times.
    in_flight: VecDeque<(Time, SocketAddrV4, Vec<u8>)>,
    payload: Vec<u8>,
}

impl AttackPlayer {
    /// Creates a player and its socket. The first poll sends the connect request.
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
            rng: Rng::new(request.nonce.into()),
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

    /// Returns when the player must be polled next.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let arrival = self.in_flight.front().map(|(due, ..)| *due);
        [self.client.next_timeout(), arrival].into_iter().flatten().min()
    }

    /// Receives datagrams, takes the next steps of joining, passes on all events, and sends.
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
                // The error belongs to an earlier send, or a signal interrupted the call.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Returns when the link has carried `len` more bytes; `None` if it drops the datagram.
    fn arrival_time(&mut self, len: usize) -> Option<Time> {
        let now = self.clock.now();
        if self.rng.chance(self.link.loss) {
            return None;
        }
        let Some(rate) = self.link.rate else { return Some(now + self.link.delay) };
        let start = self.link_free_at.max(now);
        if start.since(now) > MAX_LINK_QUEUE {
            return None;
        }
        self.link_free_at = start + Duration::from_secs_f64((len + HEADER_BYTES) as f64 / f64::from(rate));
        Some(self.link_free_at + self.link.delay)
    }

    /// Sends all datagrams that the client has ready.
    pub(crate) fn send(&mut self) {
        let mut buffer = [0; 2048];
        let now = self.clock.now();
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, now) {
            // A datagram that the system refuses is lost.
            drop(self.socket.send_to(buffer.get(..transmit.len).unwrap_or_default(), transmit.to));
        }
    }

    /// Sends a datagram from the player's socket, past the client.
    pub(crate) fn send_raw(&self, server: SocketAddrV4, datagram: &[u8]) {
        // A datagram that the system refuses is lost.
        drop(self.socket.send_to(datagram, server));
    }

    fn take_events(&mut self, on_event: &mut impl FnMut(&Event, &[u8], Time)) {
        let now = self.clock.now();
        let mut payload = std::mem::take(&mut self.payload);
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            // A message that the full outbox refuses is not sent. Then the server disconnects the player, and
            // the measurement shows it.
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

    /// Creates a ship.
    pub(crate) fn create_ship(&mut self) -> anyhow::Result<()> {
        let ship = Ship {
            species: Species::SOVEREIGN,
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

    /// Returns whether the player is disconnected, or did not get an id in time.
    pub(crate) fn has_left_or_timed_out(&self) -> bool {
        let is_late = self.clock.now().since(self.started) > CONNECT_TIMEOUT;
        self.end.is_some() || self.connected.is_none() && is_late
    }

    /// Sends one disconnect message.
    pub(crate) fn send_disconnect(&mut self) {
        self.client.leave(self.clock.now());
        self.send();
    }

    /// Sends a disconnect message, and waits a moment for its ACK.
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

/// Waits until a player receives a datagram or must be polled, but no longer than until `end`.
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
    // A signal only ends the wait early.
    let _ = poll(&mut sockets, Some(&timeout));
}

/// Bytes of the IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// The longest queue before a link, as time.
const MAX_LINK_QUEUE: Duration = Duration::from_millis(500);
/// The longest wait for an id.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest wait for the ACK of a disconnect message.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
