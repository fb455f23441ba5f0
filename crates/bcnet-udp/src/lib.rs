//! UDP sockets that take and give datagrams in batches, and say which of our addresses a peer talks to.
//!
//! On Linux a batch is one system call (`recvmmsg`, `sendmmsg`), and where a socket has many addresses each datagram
//! carries its own (`IP_PKTINFO`). On Windows each datagram is a call, with that address too (`WSARecvMsg`, `WSASendMsg`).
//! [`Io::Portable`] does the same with what every platform has: one call per datagram, and the system chooses the address that
//! answers leave from. Nothing is allocated per datagram in any.
//!
//! [`Clock`] is the time that protocols are told, and with [`wall_now`] the only place where it is read.

mod batch;
mod clock;
#[cfg(target_os = "linux")]
mod linux;
mod portable;
#[cfg(windows)]
mod windows;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, SocketAddrV4};

use mio::event::Source;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

pub use batch::{BATCH_SIZE, BUFFER_SIZE, Batch, DatagramInfo};
pub use clock::{Clock, is_wall_clock_synchronized, wall_now};

/// How datagrams get to the system and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// Many per system call.
    #[cfg(target_os = "linux")]
    Batched,
    /// One per system call, with the address of ours that it came to.
    #[cfg(windows)]
    Addressed,
    /// One per system call.
    Portable,
}

impl Io {
    /// The best that the platform has.
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

/// A bound socket that never blocks.
#[derive(Debug)]
pub struct Socket {
    /// None while it cannot be bound again.
    socket: Option<UdpSocket>,
    io: Io,
    /// The only one whom it sends to and hears.
    remote: Option<SocketAddrV4>,
    /// What the system says to whatever is sent.
    #[cfg(any(test, feature = "faults"))]
    pub send_error: Option<i32>,
}

/// What a look at a socket brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveStatus {
    /// The socket is empty.
    Drained,
    /// The batch or the turn is full; there may be more.
    More,
}

impl Socket {
    /// Returns a socket for talking to anybody.
    pub fn bind(address: SocketAddrV4, io: Io) -> io::Result<Self> {
        let socket = Self::new(address, io, address.ip().is_unspecified())?;
        #[cfg(windows)]
        windows::ignore_unreachable(socket.inner()?)?;
        Ok(socket)
    }

    /// Returns a socket for talking to `remote` only, which costs the system less. What others send does not arrive.
    pub fn connect(address: SocketAddrV4, remote: SocketAddrV4, io: Io) -> io::Result<Self> {
        let socket = Self::new(address, io, false)?;
        socket.inner()?.connect(remote.into())?;
        Ok(Self { remote: Some(remote), ..socket })
    }

    fn new(address: SocketAddrV4, io: Io, asks_local: bool) -> io::Result<Self> {
        let socket = UdpSocket::bind(address.into())?;
        match io {
            #[cfg(target_os = "linux")]
            Io::Batched => linux::prepare(&socket, asks_local)?,
            #[cfg(windows)]
            Io::Addressed => windows::prepare(&socket, asks_local)?,
            Io::Portable => {}
        }
        #[cfg(not(any(target_os = "linux", windows)))]
        let _ = asks_local;
        Ok(Self {
            socket: Some(socket),
            io,
            remote: None,
            #[cfg(any(test, feature = "faults"))]
            send_error: None,
        })
    }

    /// Binds it again to the address that it had, because it is of no more use.
    pub fn rebind(&mut self, address: SocketAddrV4) -> io::Result<()> {
        // The port is free only then.
        self.close();
        *self = Self::bind(address, self.io)?;
        Ok(())
    }

    /// Gives it back to the system. From now on it gives nothing but errors, until it is bound again.
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

    /// Asks the system to note when each datagram arrives, if it can. One of a socket that is connected has no note.
    pub fn enable_timestamps(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        linux::enable_timestamps(self.inner()?)?;
        Ok(())
    }

    /// Has the system drop datagrams of all but `known` by chance before they are queued, if it can: so many of 2³² pass. It
    /// drops none if that is `None`.
    ///
    /// # Errors
    /// That of the system, or that it is not open.
    pub fn limit_unknown_senders(
        &self,
        known: impl Iterator<Item = SocketAddrV4>,
        passing: Option<u32>,
    ) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return linux::limit_unknown_senders(self.inner()?, known, passing);
        #[cfg(not(target_os = "linux"))]
        {
            drop((known, passing));
            Ok(())
        }
    }

    /// Returns how many datagrams the system has dropped, because nobody took them in time or as
    /// [`limit_strangers`](Self::limit_strangers) says, if it tells. The count begins
    /// again after the largest number.
    pub fn dropped(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        return linux::dropped(self.inner().ok()?);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Returns for how many bytes that nobody has taken yet the system has given it room, if it tells.
    pub fn receive_buffer_bytes(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        return linux::receive_buffer_bytes(self.inner().ok()?);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Returns the address that it is bound to.
    ///
    /// # Errors
    /// That of the system, or that it is not open.
    pub fn local_address(&self) -> io::Result<SocketAddrV4> {
        match self.inner()?.local_addr()? {
            SocketAddr::V4(address) => Ok(address),
            SocketAddr::V6(_) => Err(ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Adds what has arrived to `batch`, marked with `owner`, but no more than `max`.
    pub fn receive(&self, batch: &mut Batch, owner: u32, max: usize) -> io::Result<ReceiveStatus> {
        let (mut left, socket) = (max, self.inner()?);
        loop {
            let mut slots = batch.free_slots();
            if slots.limit(left) == 0 {
                return Ok(ReceiveStatus::More);
            }
            let received = match self.io {
                #[cfg(target_os = "linux")]
                Io::Batched => linux::receive(socket, self.remote, slots),
                #[cfg(windows)]
                Io::Addressed => portable::receive(slots, |room| windows::read(socket, room)),
                Io::Portable => portable::receive(slots, |room| portable::read(socket, room)),
            };
            let (got, asked) = received.or_else(|error| self.filter_reset_error(error))?;
            batch.commit(got, owner);
            left -= got;
            if got < asked {
                return Ok(ReceiveStatus::Drained);
            }
        }
    }

    /// Judges an error of a look. Windows tells with one that nobody is where something was sent to, if it tells that at all:
    /// of no interest unless it is about whom the socket is connected to.
    fn filter_reset_error(&self, error: io::Error) -> io::Result<(usize, usize)> {
        match (error.kind(), self.remote) {
            (ErrorKind::ConnectionReset, None) => Ok((0, 0)),
            (ErrorKind::ConnectionReset, Some(_)) => Err(ErrorKind::ConnectionRefused.into()),
            _ => Err(error),
        }
    }

    /// Sends the datagrams `range` of `batch`. Returns how many the system did not take, with its last reason.
    pub fn send(&self, batch: &Batch, range: std::ops::Range<usize>) -> Result<(), SendFailure> {
        let mut slots = batch.slots_in(range);
        let (mut unsent, is_connected) = (SendFailure { datagrams: 0, reason: None }, self.remote.is_some());
        let mut is_told = false;
        while !slots.is_empty() {
            let sent = self.inner_for_send().and_then(|socket| match self.io {
                #[cfg(target_os = "linux")]
                Io::Batched => linux::send(socket, is_connected, batch, slots),
                #[cfg(windows)]
                Io::Addressed if !is_connected => {
                    portable::send(batch, slots, |head, bytes| windows::write(socket, head, bytes))
                }
                #[cfg(windows)]
                Io::Addressed => {
                    portable::send(batch, slots, |head, bytes| portable::write(socket, true, head, bytes))
                }
                Io::Portable => portable::send(batch, slots, |head, bytes| {
                    portable::write(socket, is_connected, head, bytes)
                }),
            });
            // A datagram that cannot be sent must not hold up those behind it, nor be tried for ever: it is lost, as on
            // the network, and the transport sends what matters again.
            let done = sent.unwrap_or_else(|error| {
                // Whom it is connected to has refused an earlier one: it may be there again.
                if is_connected && error.kind() == ErrorKind::ConnectionRefused && !is_told {
                    is_told = true;
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
    /// Returns a socket that gives nothing but errors: it is none.
    pub fn broken() -> Self {
        #[cfg(unix)]
        let socket = {
            let file = std::fs::File::open("/dev/null").expect("a file");
            Some(UdpSocket::from_std(std::os::fd::OwnedFd::from(file).into()))
        };
        // No file is taken for a socket there.
        #[cfg(windows)]
        let socket = None;
        Self { socket, io: Io::BEST, remote: None, send_error: None }
    }
}

/// An event loop can wait for it.
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

/// Datagrams that the system did not take.
#[derive(Debug)]
pub struct SendFailure {
    /// How many.
    pub datagrams: u64,
    /// Why the last of them was not taken.
    pub reason: Option<io::Error>,
}

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
