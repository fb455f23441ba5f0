//! Why nobody was let in, turned away or thrown out.

use core::fmt;
use core::net::SocketAddrV4;

use crate::wire::PeerId;

/// Why a client was neither let in nor turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitError {
    /// Nobody at this address waits for an answer: answer each [`Event::Request`](crate::Event::Request) once, within
    /// [`pending_timeout`](crate::Config::pending_timeout).
    NoRequest(SocketAddrV4),
    /// All ids are taken, or as many as [`peers`](crate::Config::peers): refuse it, or try again when a peer has left.
    Full(SocketAddrV4),
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequest(from) => {
                write!(f, "{from} does not wait to be let in: it has given up, or has its answer")
            }
            Self::Full(from) => {
                write!(f, "no id is free for {from}: refuse it, or try again when a peer has left")
            }
        }
    }
}

impl core::error::Error for AdmitError {}

/// Nobody with this id can be booted: it has left, or was never let in, or this is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootError(pub PeerId);

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not connected to this host: boot it after its Joined event and before it leaves",
            self.0
        )
    }
}

impl core::error::Error for BootError {}
