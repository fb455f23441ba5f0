//! A driver: it moves datagrams between a socket and a protocol without I/O.

use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(windows)]
use std::os::windows::io::{AsSocket, BorrowedSocket};
use std::time::Duration;

use bcnet_transport::link::{Faults, LinkStats, SimulatedLink};
use bcnet_transport::{Driven, Time};
use mio::event::Source;
use mio::{Events, Interest, Poll, Registry, Token};

use crate::{BATCH_SIZE, Batch, Clock, DatagramInfo, Io, ReceiveStatus, SendFailure, Socket};

/// A socket and a clock that run one engine, session or client.
///
/// A program calls [`receive`](Self::receive), handles the events, and calls [`send`](Self::send), in each tick.
/// Between ticks it calls [`wait`](Self::wait), or waits in its own event loop for the
/// [timeout](Self::timeout) or the socket: a driver is a source for mio, and has [`AsFd`] or `AsSocket` for
/// others.
///
/// A failing network does not end a driver. Datagrams that the system refuses are counted in [`DriverStats`];
/// the transport retransmits reliable messages. A steady load allocates no memory.
#[derive(Debug)]
pub struct Driver {
    socket: Socket,
    clock: Clock,
    /// Received datagrams, or datagrams to send.
    batch: Batch,
    /// Received datagrams may remain in the socket.
    has_more: bool,
    /// Created by the first call of `wait`: another event loop may have the socket.
    poll: Option<(Poll, Events)>,
    simulation: Option<Simulation>,
    stats: DriverStats,
}

/// The simulated links of a driver.
#[derive(Debug)]
struct Simulation {
    incoming: SimulatedLink,
    outgoing: SimulatedLink,
}

/// The counters of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriverStats {
    /// Datagrams received.
    pub received: u64,
    /// Received datagrams that were longer than [`BUFFER_SIZE`](crate::BUFFER_SIZE), and dropped.
    pub truncated: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that the system refused to send.
    pub unsent: u64,
    /// Errors of the network when receiving, for example because a destination was unreachable.
    pub receive_errors: u64,
}

impl Driver {
    /// Binds a socket to an address, and starts the clock.
    ///
    /// Port 0 is any free port, as clients need it. On a machine with several addresses, the system chooses the
    /// address that datagrams leave from, unless `address` has one.
    ///
    /// # Errors
    /// The error of the system, for example because the address is in use.
    pub fn bind(address: SocketAddrV4) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::bind(address, Io::BEST)?,
            clock: Clock::start(),
            batch: Batch::new(),
            has_more: false,
            poll: None,
            simulation: None,
            stats: DriverStats::default(),
        })
    }

    /// Simulates these faults in both directions from now on, for tests of a program on a bad network.
    ///
    /// A delay counts once in each direction. The faults depend only on the seed, the datagrams and their times.
    pub fn simulate(&mut self, faults: Faults, seed: u64) {
        let outgoing = SimulatedLink::new(faults.clone(), seed);
        self.simulation = Some(Simulation { incoming: SimulatedLink::new(faults, !seed), outgoing });
    }

    /// Returns the time since the driver was bound: the time for all calls of what it runs.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// The error of the system.
    pub fn local_address(&self) -> io::Result<SocketAddrV4> {
        self.socket.local_address()
    }

    /// Returns the counters of the driver.
    #[must_use]
    pub const fn stats(&self) -> DriverStats {
        self.stats
    }

    /// Returns the counters of the simulated links, incoming and outgoing, if there is a simulation.
    #[must_use]
    pub fn simulation_stats(&self) -> Option<[LinkStats; 2]> {
        self.simulation.as_ref().map(|links| [links.incoming.stats(), links.outgoing.stats()])
    }

    /// Passes received datagrams and the time to `driven`, and returns the time. Does not block.
    ///
    /// Poll events next. One call passes at most 1,024 datagrams, so a flood cannot stop the program's tick.
    ///
    /// # Errors
    /// Errors that do not come from the network, for example because the system has closed the socket.
    pub fn receive(&mut self, driven: &mut impl Driven) -> io::Result<Time> {
        let now = self.clock.now();
        for _ in 0..MAX_RECEIVED / BATCH_SIZE {
            match self.receive_batch(driven, now) {
                Ok(status) => {
                    self.has_more = status == ReceiveStatus::More;
                    if !self.has_more {
                        break;
                    }
                }
                // The error took the place of a datagram; others may wait behind it. An error that stays must not keep
                // the program from waiting.
                Err(error) if is_network_error(&error) => {
                    self.stats.receive_errors += 1;
                    self.has_more = false;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(links) = &mut self.simulation {
            while let Some((from, bytes)) = links.incoming.pop(now) {
                driven.handle_datagram(from, bytes, now);
            }
        }
        driven.handle_timeout(now);
        Ok(now)
    }

    fn receive_batch(&mut self, driven: &mut impl Driven, now: Time) -> io::Result<ReceiveStatus> {
        self.batch.clear();
        let status = self.socket.receive(&mut self.batch, 0, BATCH_SIZE);
        for (info, bytes) in self.batch.iter_mut() {
            self.stats.received += 1;
            if info.truncated {
                self.stats.truncated += 1;
                continue;
            }
            match &mut self.simulation {
                Some(links) => links.incoming.push(info.remote, bytes, now),
                None => driven.handle_datagram(info.remote, bytes, now),
            }
        }
        status
    }

    /// Sends all datagrams of `driven` that are due. Does not block.
    ///
    /// # Panics
    /// If `driven` makes datagrams that exceed [`BUFFER_SIZE`](crate::BUFFER_SIZE): its
    /// [`datagram_limit`](bcnet_transport::Config::datagram_limit) is at most that.
    pub fn send(&mut self, driven: &mut impl Driven) {
        let now = self.clock.now();
        self.batch.clear();
        while self.batch.push(|buffer| {
            let transmit = driven.poll_transmit(buffer, now)?;
            Some(datagram_to(transmit.to, transmit.len))
        }) {
            if self.batch.is_full() {
                self.send_batch(now);
            }
        }
        self.send_batch(now);
        self.send_delayed(now);
    }

    /// Sends the datagrams of the batch, or puts them on the simulated link.
    fn send_batch(&mut self, now: Time) {
        if let Some(links) = &mut self.simulation {
            for (info, bytes) in self.batch.iter_mut() {
                links.outgoing.push(info.remote, bytes, now);
            }
        } else {
            self.flush();
        }
        self.batch.clear();
    }

    /// Sends the datagrams that have reached the end of the simulated link.
    fn send_delayed(&mut self, now: Time) {
        while let Some(links) = &mut self.simulation {
            let is_pushed = self.batch.push(|buffer| {
                let (to, bytes) = links.outgoing.pop(now)?;
                buffer[..bytes.len()].copy_from_slice(bytes);
                Some(datagram_to(to, bytes.len()))
            });
            if !is_pushed || self.batch.is_full() {
                self.flush();
                self.batch.clear();
            }
            if !is_pushed {
                return;
            }
        }
    }

    fn flush(&mut self) {
        let datagrams = self.batch.len() as u64;
        let unsent = match self.socket.send(&self.batch, 0..self.batch.len()) {
            Ok(()) => 0,
            Err(SendFailure { datagrams, .. }) => datagrams,
        };
        self.stats.sent += datagrams - unsent;
        self.stats.unsent += unsent;
    }

    /// Returns how long a program may wait for the socket before its next tick. `None` is without limit.
    ///
    /// Zero means that datagrams or timers are due, although an event loop may report nothing.
    #[must_use]
    pub fn timeout(&self, driven: &impl Driven) -> Option<Duration> {
        if self.has_more {
            return Some(Duration::ZERO);
        }
        let links = self.simulation.iter().flat_map(|links| [&links.incoming, &links.outgoing]);
        let arrivals = links.filter_map(SimulatedLink::next_arrival);
        let due = arrivals.chain(driven.next_timeout()).min()?;
        Some(due.since(self.clock.now()))
    }

    /// Waits until a datagram arrives, a timer is due, or `at_most` has passed.
    ///
    /// A program with its own event loop does not call it: on Windows a socket has only one event loop.
    ///
    /// # Errors
    /// The error of the system.
    pub fn wait(&mut self, driven: &impl Driven, at_most: Duration) -> io::Result<()> {
        let timeout = self.timeout(driven).map_or(at_most, |timeout| timeout.min(at_most));
        let (poll, events) = match &mut self.poll {
            Some(poll) => poll,
            none => {
                let poll = Poll::new()?;
                poll.registry().register(&mut self.socket, Token(0), Interest::READABLE)?;
                none.insert((poll, Events::with_capacity(1)))
            }
        };
        match poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }
}

/// An event loop of mio can wait for the driver.
impl Source for Driver {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}

#[cfg(unix)]
impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(windows)]
impl AsSocket for Driver {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.socket.as_socket()
    }
}

const fn datagram_to(remote: SocketAddrV4, len: usize) -> DatagramInfo {
    DatagramInfo { owner: 0, remote, local: None, len, truncated: false }
}

/// Returns whether an error tells something about the network, not about the socket.
fn is_network_error(error: &io::Error) -> bool {
    let is_network_reset = cfg!(windows) && error.raw_os_error() == Some(WSAENETRESET);
    is_network_reset
        || matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
                | ErrorKind::OutOfMemory
                | ErrorKind::Interrupted
        )
}

const WSAENETRESET: i32 = 10_052;

/// The most datagrams that one call receives.
const MAX_RECEIVED: usize = 8 * BATCH_SIZE;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bcnet_transport::{Config, Endpoint};

    use super::*;

    #[test]
    fn broken_socket_is_an_error_and_refused_datagrams_are_counted() {
        let mut driver = Driver::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let host = driver.local_address().expect("bound");
        let connect = bcnet_transport::Connect { host, nonce: 1, password: "" };
        let mut client = Endpoint::connect(Config::default(), connect, driver.now());
        driver.socket = Socket::broken();
        driver.send(&mut client);
        assert_eq!((driver.stats().sent, driver.stats().unsent), (0, 1));
        assert!(driver.receive(&mut client).is_err());
        assert_eq!(driver.stats().receive_errors, 0);
    }

    #[test]
    fn errors_of_the_network_are_told_from_errors_of_the_socket() {
        for kind in [ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused, ErrorKind::NetworkDown] {
            assert!(is_network_error(&kind.into()), "{kind}");
        }
        for kind in [ErrorKind::NotConnected, ErrorKind::InvalidInput, ErrorKind::WouldBlock] {
            assert!(!is_network_error(&kind.into()), "{kind}");
        }
    }
}
