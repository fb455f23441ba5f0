//! A player: the session's client over a real socket.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use bcnet_session::Manifest;
use bcnet_session::client::{Client, End, Event, Options};
use bcnet_session::game::{ObjectId, Ship, Species, Text8};
use bcnet_transport::{Config, Connect, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::arena::Arena;
use crate::clock::Clock;

/// Whom a player wants to play with, and as whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket<'a> {
    pub(crate) server: SocketAddrV4,
    /// The player's own address.
    pub(crate) from: Ipv4Addr,
    pub(crate) name: &'a str,
    pub(crate) password: &'a str,
    pub(crate) nonce: u32,
    pub(crate) line: Line,
}

/// How a player is connected: what it is sent waits for its line, and is lost if too much waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// How long a datagram takes, beside what it takes on this machine.
    pub(crate) lag: Duration,
    /// How many bytes a second the line carries, headers of UDP and IP included.
    pub(crate) rate: Option<u32>,
}

impl Line {
    /// No way at all.
    pub(crate) const NEAR: Self = Self { lag: Duration::ZERO, rate: None };
    /// 96 kbit/s, a few countries away.
    pub(crate) const NARROW: Self = Self { lag: Duration::from_millis(40), rate: Some(12_000) };
}

/// A player and its socket.
pub(crate) struct Player {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) ship: Option<ObjectId>,
    /// Why it is over, if it is.
    pub(crate) over: Option<End>,
    /// When the server listed it.
    pub(crate) entered: Option<Time>,
    socket: UdpSocket,
    clock: Clock,
    line: Line,
    /// When the line has carried all that it was given.
    line_free: Time,
    /// What is under way to it, and when it arrives.
    under_way: VecDeque<(Time, SocketAddrV4, Vec<u8>)>,
    payload: Vec<u8>,
}

impl Player {
    /// Asks to be let in.
    pub(crate) fn connect(arena: Arena, clock: Clock, ticket: Ticket<'_>) -> anyhow::Result<Self> {
        arena.check(ticket.server)?;
        let socket =
            UdpSocket::bind((ticket.from, 0)).with_context(|| format!("cannot bind {}", ticket.from))?;
        socket.set_nonblocking(true)?;
        let connect = Connect { host: ticket.server, nonce: ticket.nonce, password: ticket.password };
        let config = Config { address: ticket.from, ..Config::default() };
        let client = Client::connect(config, connect, Options::named(ticket.name), clock.now());
        Ok(Self {
            client,
            name: ticket.name.into(),
            ship: None,
            over: None,
            entered: None,
            socket,
            clock,
            line: ticket.line,
            line_free: Time::ZERO,
            under_way: VecDeque::new(),
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
        let arrival = self.under_way.front().map(|(due, ..)| *due);
        [self.client.next_timeout(), arrival].into_iter().flatten().min()
    }

    /// Takes what has arrived, does what a client does by itself on its way into the game, tells `hear` the rest, and sends
    /// what is to be sent.
    pub(crate) fn turn(&mut self, mut hear: impl FnMut(&Event, &[u8], Time)) {
        self.receive();
        let now = self.clock.now();
        while self.under_way.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, from, mut bytes)) = self.under_way.pop_front() else { break };
            self.client.handle_datagram(from, &mut bytes, now);
            self.take_events(&mut hear);
        }
        self.client.handle_timeout(self.clock.now());
        self.take_events(&mut hear);
        self.send();
    }

    fn receive(&mut self) {
        let mut buffer = [0; 2048];
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => {
                    let bytes = buffer.get(..len).unwrap_or_default();
                    if let Some(due) = self.carry(len) {
                        self.under_way.push_back((due, from, bytes.to_vec()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The network complains of something sent earlier, or there was a signal.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Returns when the line has carried so many bytes more; `None` if too many wait already.
    fn carry(&mut self, len: usize) -> Option<Time> {
        let now = self.clock.now();
        let Some(rate) = self.line.rate else { return Some(now + self.line.lag) };
        let start = self.line_free.max(now);
        if start.since(now) > MAX_WAIT {
            return None;
        }
        self.line_free = start + Duration::from_secs_f64((len + HEADERS) as f64 / f64::from(rate));
        Some(self.line_free + self.line.lag)
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

    fn take_events(&mut self, hear: &mut impl FnMut(&Event, &[u8], Time)) {
        let now = self.clock.now();
        let mut payload = std::mem::take(&mut self.payload);
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            // What cannot be sent now is not sent: then the server throws the player out, which is seen.
            match &event {
                Event::FileCheck(_) => drop(self.client.answer_from(&Manifest::stand_in(), now)),
                Event::Load => drop(self.client.enter(now)),
                Event::Entered => self.entered = Some(now),
                Event::Gone { end, .. } => self.over = Some(*end),
                _ => {}
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
/// How much waits before a line, told as time.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);
