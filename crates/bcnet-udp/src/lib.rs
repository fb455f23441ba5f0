//! Runs the protocol crates on UDP: a driver, sockets with batches of datagrams, and the clock.
//!
//! [`Driver`] is the short way, for a client or a host: two calls per tick.
//!
//! ```
//! use std::time::Duration;
//!
//! use bcnet_transport::{Config, Connect, Endpoint, Engine, Event};
//! use bcnet_udp::Driver;
//!
//! let (mut server, mut client) = (Driver::bind("127.0.0.1:0".parse()?)?, Driver::bind("127.0.0.1:0".parse()?)?);
//! let mut host = Endpoint::host(Config::default());
//! // The nonce is a random number.
//! let connect = Connect { host: server.local_address()?, nonce: 0x0A5F, password: "" };
//! let mut guest = Endpoint::connect(Config::default(), connect, client.now());
//! let (mut payload, mut has_joined) = (Vec::new(), false);
//! while !has_joined {
//!     let now = server.receive(&mut host)?;
//!     while let Some(event) = host.poll_event(&mut payload) {
//!         if let Event::Request { from, .. } = event {
//!             host.challenge(from, now)?;
//!         }
//!     }
//!     server.send(&mut host);
//!     client.receive(&mut guest)?;
//!     while let Some(event) = guest.poll_event(&mut payload) {
//!         has_joined |= matches!(event, Event::Joined { .. });
//!     }
//!     client.send(&mut guest);
//!     client.wait(&guest, Duration::from_millis(10))?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Socket`] and a [`Batch`] are the parts for a server with many sessions. On Linux one system call receives or sends many datagrams (`recvmmsg`, `sendmmsg`). If a socket is bound
//! to all addresses, each datagram carries its local address (`IP_PKTINFO`). On Windows each datagram is one
//! call, also with the local address (`WSARecvMsg`, `WSASendMsg`). The variant [`Io::Portable`] works on every
//! platform: one call per datagram, and the system chooses the address that answers leave from. No variant
//! allocates per datagram.
//!
//! The protocol crates read no clock: [`Clock`] and [`wall_now`] give them the time.

mod batch;
mod clock;
mod driver;
#[cfg(target_os = "linux")]
mod linux;
mod portable;
#[cfg(windows)]
mod windows;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, SocketAddrV4};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(windows)]
use std::os::windows::io::{AsSocket, BorrowedSocket};

use mio::event::Source;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

pub use batch::{BATCH_SIZE, BUFFER_SIZE, Batch, DatagramInfo};
pub use clock::{Clock, is_wall_clock_synchronized, wall_now};
pub use driver::{Driver, DriverStats};

/// The system calls that receive and send datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// Many datagrams per system call.
    #[cfg(target_os = "linux")]
    Batched,
    /// One datagram per system call, with the local address that it was sent to.
    #[cfg(windows)]
    Addressed,
    /// One datagram per system call, with the standard library.
    Portable,
}

impl Io {
    /// The best variant for the platform.
    pub const BEST: Self = {
        #[cfg(target_os = "linux")]
        {
            Self::Batched
        }
        #[cfg(windows)]
        {
            Self::Addressed
        }
        #[cfg(not(any(target_os = "linux", windows)))]
        {
            Self::Portable
        }
    };
}

/// A bound non-blocking socket.
#[derive(Debug)]
pub struct Socket {
    /// `None` while the socket is closed, for example because [`Socket::rebind`] failed.
    socket: Option<UdpSocket>,
    io: Io,
    /// The address that the socket is connected to: it sends to and receives from no other.
    remote: Option<SocketAddrV4>,
    /// Injected send error, for tests.
    #[cfg(any(test, feature = "faults"))]
    pub send_error: Option<i32>,
}

/// The state of a socket after a receive call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveStatus {
    /// No received datagram waits in the socket.
    Drained,
    /// The batch is full or the limit is reached; there may be more datagrams.
    More,
}

impl Socket {
    /// Binds a socket that exchanges datagrams with any address.
    pub fn bind(address: SocketAddrV4, io: Io) -> io::Result<Self> {
        let socket = Self::new(address, io, address.ip().is_unspecified())?;
        #[cfg(windows)]
        windows::ignore_unreachable(socket.inner()?)?;
        Ok(socket)
    }

    /// Binds a socket and connects it to `remote`. A connected socket needs less work per datagram.
    ///
    /// Datagrams from other addresses do not arrive.
    pub fn connect(address: SocketAddrV4, remote: SocketAddrV4, io: Io) -> io::Result<Self> {
        let socket = Self::new(address, io, false)?;
        socket.inner()?.connect(remote.into())?;
        Ok(Self { remote: Some(remote), ..socket })
    }

    fn new(address: SocketAddrV4, io: Io, wants_local: bool) -> io::Result<Self> {
        let socket = UdpSocket::bind(address.into())?;
        match io {
            #[cfg(target_os = "linux")]
            Io::Batched => linux::prepare(&socket, wants_local)?,
            #[cfg(windows)]
            Io::Addressed => windows::prepare(&socket, wants_local)?,
            Io::Portable => {}
        }
        #[cfg(not(any(target_os = "linux", windows)))]
        let _ = wants_local;
        Ok(Self {
            socket: Some(socket),
            io,
            remote: None,
            #[cfg(any(test, feature = "faults"))]
            send_error: None,
        })
    }

    /// Closes the socket and binds a new, unconnected one to `address`.
    pub fn rebind(&mut self, address: SocketAddrV4) -> io::Result<()> {
        // The port is free only after the old socket is closed.
        self.close();
        *self = Self::bind(address, self.io)?;
        Ok(())
    }

    /// Closes the socket. All calls return errors until it is bound again.
    pub fn close(&mut self) {
        self.socket = None;
    }

    fn inner_for_send(&self) -> io::Result<&UdpSocket> {
        #[cfg(any(test, feature = "faults"))]
        if let Some(error) = self.send_error {
            return Err(io::Error::from_raw_os_error(error));
        }
        self.inner()
    }

    fn inner(&self) -> io::Result<&UdpSocket> {
        self.socket.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    fn inner_mut(&mut self) -> io::Result<&mut UdpSocket> {
        self.socket.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Asks the system to record the arrival time of each datagram.
    ///
    /// Only `Io::Batched` reports arrival times, and only for unconnected sockets.
    pub fn enable_timestamps(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        linux::enable_timestamps(self.inner()?)?;
        Ok(())
    }

    /// Makes the system drop datagrams of unknown senders at random before they are queued.
    ///
    /// A datagram from an address that is not in `known` passes with the probability
    /// `pass_threshold` / 2³². With `None`, all datagrams pass. Systems other than Linux do not support this
    /// and drop none.
    ///
    /// # Errors
    /// The error of the system, or `NotConnected` if the socket is closed.
    pub fn limit_unknown_senders(
        &self,
        known: impl Iterator<Item = SocketAddrV4>,
        pass_threshold: Option<u32>,
    ) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return linux::limit_unknown_senders(self.inner()?, known, pass_threshold);
        #[cfg(not(target_os = "linux"))]
        {
            drop((known, pass_threshold));
            Ok(())
        }
    }

    /// Returns how many datagrams the system has dropped, if it reports that.
    ///
    /// It drops datagrams because the receive buffer is full or because of
    /// [`limit_unknown_senders`](Self::limit_unknown_senders). The counter wraps after its largest value.
    pub fn dropped(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        return linux::dropped(self.inner().ok()?);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Returns the size of the receive buffer in bytes, if the system reports it.
    pub fn receive_buffer_bytes(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        return linux::receive_buffer_bytes(self.inner().ok()?);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// The error of the system, or `NotConnected` if the socket is closed.
    pub fn local_address(&self) -> io::Result<SocketAddrV4> {
        match self.inner()?.local_addr()? {
            SocketAddr::V4(address) => Ok(address),
            SocketAddr::V6(_) => Err(ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Adds received datagrams to `batch`, marked with `owner`, but no more than `max`.
    pub fn receive(&self, batch: &mut Batch, owner: u32, max: usize) -> io::Result<ReceiveStatus> {
        let (mut remaining, socket) = (max, self.inner()?);
        loop {
            let mut slots = batch.free_slots();
            if slots.limit(remaining) == 0 {
                return Ok(ReceiveStatus::More);
            }
            let received = match self.io {
                #[cfg(target_os = "linux")]
                Io::Batched => linux::receive(socket, self.remote, slots),
                #[cfg(windows)]
                Io::Addressed => portable::receive(slots, |buffer| windows::read(socket, buffer)),
                Io::Portable => portable::receive(slots, |buffer| portable::read(socket, buffer)),
            };
            let (received, requested) = received.or_else(|error| self.filter_reset_error(error))?;
            batch.commit(received, owner);
            remaining -= received;
            if received < requested {
                return Ok(ReceiveStatus::Drained);
            }
        }
    }

    /// Filters the reset error that Windows may report for an earlier datagram to an unreachable address.
    ///
    /// An unconnected socket ignores this error. On a connected socket it becomes `ConnectionRefused`.
    fn filter_reset_error(&self, error: io::Error) -> io::Result<(usize, usize)> {
        match (error.kind(), self.remote) {
            (ErrorKind::ConnectionReset, None) => Ok((0, 0)),
            (ErrorKind::ConnectionReset, Some(_)) => Err(ErrorKind::ConnectionRefused.into()),
            _ => Err(error),
        }
    }

    /// Sends a range of `batch`: positions in the order of sending.
    ///
    /// # Errors
    /// The number of datagrams that the system refused, with the reason for the last.
    pub fn send(&self, batch: &Batch, range: std::ops::Range<usize>) -> Result<(), SendFailure> {
        let mut slots = batch.slots_in(range);
        let (mut unsent, is_connected) = (SendFailure { datagrams: 0, reason: None }, self.remote.is_some());
        let mut has_retried = false;
        while !slots.is_empty() {
            let sent = self.inner_for_send().and_then(|socket| match self.io {
                #[cfg(target_os = "linux")]
                Io::Batched => linux::send(socket, is_connected, batch, slots),
                #[cfg(windows)]
                Io::Addressed if !is_connected => {
                    portable::send(batch, slots, |info, bytes| windows::write(socket, info, bytes))
                }
                #[cfg(windows)]
                Io::Addressed => {
                    portable::send(batch, slots, |info, bytes| portable::write(socket, true, info, bytes))
                }
                Io::Portable => portable::send(batch, slots, |info, bytes| {
                    portable::write(socket, is_connected, info, bytes)
                }),
            });
            // A datagram that cannot be sent must not delay the others or be tried forever. It is lost, as
            // on the network; the transport retransmits reliable messages.
            let done = sent.unwrap_or_else(|error| {
                // The connected remote refused an earlier datagram; it may be reachable again.
                if is_connected && error.kind() == ErrorKind::ConnectionRefused && !has_retried {
                    has_retried = true;
                    return 0;
                }
                unsent.datagrams += 1;
                unsent.reason = Some(error);
                1
            });
            slots = slots.get(done..).unwrap_or_default();
        }
        if unsent.datagrams == 0 { Ok(()) } else { Err(unsent) }
    }
}

#[cfg(any(test, feature = "faults"))]
impl Socket {
    /// Returns a socket whose calls all fail: its handle is a file, or on Windows it is closed.
    pub fn broken() -> Self {
        #[cfg(unix)]
        let socket = {
            let file = std::fs::File::open("/dev/null").expect("a file");
            Some(UdpSocket::from_std(std::os::fd::OwnedFd::from(file).into()))
        };
        // Windows does not accept a file handle as a socket.
        #[cfg(windows)]
        let socket = None;
        Self { socket, io: Io::BEST, remote: None, send_error: None }
    }
}

/// An event loop can wait for the socket.
impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.inner_mut()?.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.inner_mut()?.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.inner_mut()?.deregister(registry)
    }
}

/// # Panics
/// If the socket is closed.
#[cfg(unix)]
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("the socket is open").as_fd()
    }
}

/// # Panics
/// If the socket is closed.
#[cfg(windows)]
impl AsSocket for Socket {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.socket.as_ref().expect("the socket is open").as_socket()
    }
}

/// Datagrams that the system refused to send.
#[derive(Debug)]
pub struct SendFailure {
    /// The number of datagrams.
    pub datagrams: u64,
    /// The reason for the last of them.
    pub reason: Option<io::Error>,
}

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
