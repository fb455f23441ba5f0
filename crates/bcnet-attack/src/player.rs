//! A player: the session's client over a real socket.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use bcnet_session::Manifest;
use bcnet_session::client::{Client, End, Event, Milestone, Options};
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
    pub(crate) link: Link,
}

/// How a player is connected: what it is sent waits for its link, and is lost if too much waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// How long a datagram takes, beside what it takes on this machine.
    pub(crate) lag: Duration,
    /// How many bytes a second the link carries, headers of UDP and IP included.
    pub(crate) rate: Option<u32>,
}

impl Link {
    /// No delay and no limit.
    pub(crate) const UNLIMITED: Self = Self { lag: Duration::ZERO, rate: None };
    /// 96 kbit/s, a few countries away.
    pub(crate) const SLOW: Self = Self { lag: Duration::from_millis(40), rate: Some(12_000) };
}

/// A player and its socket.
pub(crate) struct Player {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) ship: Option<ObjectId>,
    /// Why it is over, if it is.
    pub(crate) over: Option<End>,
    /// When the server gave it an id.
    pub(crate) connected: Option<Time>,
    /// When the server listed it.
    pub(crate) entered: Option<Time>,
    /// Whether it answers about its files, and enters the game.
    pub(crate) plays: bool,
    /// Which datagrams it takes, deciphered; the others are as good as lost.
    pub(crate) takes: fn(&[u8]) -> bool,
    /// How many it did not take.
    pub(crate) refused: u64,
    socket: UdpSocket,
    clock: Clock,
    since: Time,
    link: Link,
    /// When the link has carried all that it was given.
    link_free: Time,
    /// What is on its way to it, and when it arrives.
    in_flight: VecDeque<(Time, SocketAddrV4, Vec<u8>)>,
    payload: Vec<u8>,
}

impl Player {
    /// Asks to be let in.
    pub(crate) fn connect(sandbox: Sandbox, clock: Clock, request: JoinRequest<'_>) -> anyhow::Result<Self> {
        sandbox.check(request.server)?;
        let socket =
            UdpSocket::bind((request.from, 0)).with_context(|| format!("cannot bind {}", request.from))?;
        socket.set_nonblocking(true)?;
        let connect = Connect { host: request.server, nonce: request.nonce, password: request.password };
        let config = Config { address: request.from, ..Config::default() };
        let client = Client::connect(config, connect, Options::named(request.name), clock.now());
        Ok(Self {
            client,
            name: request.name.into(),
            ship: None,
            over: None,
            connected: None,
            entered: None,
            plays: true,
            takes: |_| true,
            refused: 0,
            socket,
            clock,
            since: clock.now(),
            link: request.link,
            link_free: Time::ZERO,
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
    pub(crate) fn turn(&mut self, mut hear: impl FnMut(&Event, &[u8], Time)) {
        self.receive();
        let now = self.clock.now();
        while self.in_flight.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, from, mut bytes)) = self.in_flight.pop_front() else { break };
            if self.refuses(&bytes) {
                self.refused += 1;
                continue;
            }
            self.client.handle_datagram(from, &mut bytes, now);
            self.take_events(&mut hear);
        }
        self.client.handle_timeout(self.clock.now());
        self.take_events(&mut hear);
        self.send();
    }

    fn refuses(&self, datagram: &[u8]) -> bool {
        let mut plain = datagram.to_vec();
        cipher::decrypt(&mut plain);
        !(self.takes)(&plain)
    }

    fn receive(&mut self) {
        let mut buffer = [0; 2048];
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => {
                    let bytes = buffer.get(..len).unwrap_or_default();
                    if let Some(due) = self.carry(len) {
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
    fn carry(&mut self, len: usize) -> Option<Time> {
        let now = self.clock.now();
        let Some(rate) = self.link.rate else { return Some(now + self.link.lag) };
        let start = self.link_free.max(now);
        if start.since(now) > MAX_WAIT {
            return None;
        }
        self.link_free = start + Duration::from_secs_f64((len + HEADERS) as f64 / f64::from(rate));
        Some(self.link_free + self.link.lag)
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

    fn take_events(&mut self, hear: &mut impl FnMut(&Event, &[u8], Time)) {
        let now = self.clock.now();
        let mut payload = std::mem::take(&mut self.payload);
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            // What cannot be sent now is not sent: then the server throws the player out, which is measured.
            match event.milestone() {
                Some(Milestone::Connected(_)) => self.connected = Some(now),
                Some(Milestone::FileCheck(_)) if self.plays => {
                    let _ = self.client.answer_from(&Manifest::stand_in(), now);
                }
                Some(Milestone::Load) if self.plays => drop(self.client.enter(now)),
                Some(Milestone::Entered) => self.entered = Some(now),
                Some(Milestone::Gone { end, .. }) => self.over = Some(end),
                Some(Milestone::FileCheck(_) | Milestone::Settings(_) | Milestone::Load) | None => {}
            }
            hear(&event, &payload, now);
        }
        self.payload = payload;
    }

    /// Takes a ship.
    pub(crate) fn take_ship(&mut self) -> anyhow::Result<()> {
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
    pub(crate) fn is_gone(&self) -> bool {
        let is_late = self.clock.now().since(self.since) > MAX_ANSWER_TIME;
        self.over.is_some() || self.connected.is_none() && is_late
    }

    /// Says goodbye, once.
    pub(crate) fn say_goodbye(&mut self) {
        self.client.leave(self.clock.now());
        self.send();
    }

    /// Says goodbye, and waits a moment for that to be heard.
    pub(crate) fn leave(mut self) {
        self.client.leave(self.clock.now());
        let end = self.clock.now() + GOODBYE;
        while !self.client.is_closed() && self.clock.now() < end {
            self.turn(|_, _, _| {});
            wait(self.clock, [&self], end);
        }
    }
}

impl AsFd for Player {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until a player hears something or has something to do, but no longer than until `end`.
pub(crate) fn wait<'a>(clock: Clock, players: impl IntoIterator<Item = &'a Player>, end: Time) {
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
const HEADERS: usize = 28;
/// How much waits before a link, told as time.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// How long it waits for an id.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);
