//! The sockets of a proxy.
//!
//! Socket 0 is for players. Socket n + 1 is for source n, which the server sees as a player.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_proxy::{DatagramTarget, OutboundBytes};
use bcnet_transport::{Time, cipher};
use bcnet_udp::{Batch, DatagramInfo, ReceiveStatus, Socket};

use crate::event_loop::Registrar;
use crate::log::LogRateLimiter;
use crate::reply_addresses::ReplyAddresses;

/// The number of the socket for players.
pub(super) const LISTEN_SOCKET: u32 = 0;

/// The sockets, and the datagrams queued to be sent.
pub(super) struct ProxySockets {
    registrar: Registrar,
    sockets: Vec<Option<Socket>>,
    /// Sockets with received datagrams, served in turn.
    readable: VecDeque<u32>,
    outbound: Batch,
    /// `true` for each queued datagram that must still be enciphered.
    needs_encryption: Vec<bool>,
    /// The local address that each client uses, if the machine may have several.
    reply_addresses: Option<ReplyAddresses>,
    failure_log_limit: LogRateLimiter,
    unsent: u64,
}

impl ProxySockets {
    pub(super) fn new(listening: Socket, registrar: Registrar) -> io::Result<Self> {
        let any = listening.local_address()?.ip().is_unspecified();
        let mut sockets = Self {
            registrar,
            sockets: Vec::new(),
            readable: VecDeque::new(),
            outbound: Batch::new(),
            needs_encryption: Vec::new(),
            reply_addresses: any.then(ReplyAddresses::new),
            failure_log_limit: LogRateLimiter::new(5, LOG_INTERVAL),
            unsent: 0,
        };
        sockets.attach(LISTEN_SOCKET, listening)?;
        Ok(sockets)
    }

    /// The number of datagrams that the system did not send.
    pub(super) const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Marks a socket as readable.
    pub(super) fn note_readable(&mut self, number: u32) {
        if !self.readable.contains(&number) {
            self.readable.push_back(number);
        }
    }

    /// Returns the number of readable sockets.
    pub(super) fn readable_count(&self) -> usize {
        self.readable.len()
    }

    /// Receives a batch from the next readable socket, at most [`MAX_PER_TURN`] datagrams.
    pub(super) fn receive(&mut self, inbound: &mut Batch, now: Time) {
        inbound.clear();
        let Some(number) = self.readable.pop_front() else { return };
        let Some(socket) = self.sockets.get(number as usize).and_then(Option::as_ref) else { return };
        match socket.receive(inbound, number, MAX_PER_TURN) {
            Ok(ReceiveStatus::Drained) => {}
            Ok(ReceiveStatus::More) => self.readable.push_back(number),
            Err(error) => {
                if let Some(held_back) = self.failure_log_limit.allow(now) {
                    match error.kind() {
                        ErrorKind::ConnectionRefused => tracing::warn!(event = "upstream_refused", held_back),
                        _ => tracing::warn!(event = "receive_failed", %error, held_back),
                    }
                }
                // The error belongs to an earlier datagram that we sent. Received datagrams may follow.
                self.readable.push_back(number);
            }
        }
        if let (Some(reply_addresses), LISTEN_SOCKET) = (&mut self.reply_addresses, number) {
            for (head, _) in inbound.iter_mut() {
                head.local.into_iter().for_each(|local| reply_addresses.record(head.remote, local));
            }
        }
    }

    /// Queues a datagram to be sent.
    pub(super) fn push(&mut self, leg: DatagramTarget, upstream: SocketAddrV4, bytes: OutboundBytes<'_>) {
        let (owner, remote, local) = match leg {
            DatagramTarget::Client(client) => (
                LISTEN_SOCKET,
                client,
                self.reply_addresses.as_ref().and_then(|reply_addresses| reply_addresses.find(client)),
            ),
            DatagramTarget::Server(source) => (source + 1, upstream, None),
        };
        let (is_plain, bytes) = (matches!(bytes, OutboundBytes::Plaintext(_)), bytes.as_slice());
        let pushed = self.outbound.push(|buffer| {
            buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Some(DatagramInfo { owner, remote, local, len: bytes.len(), truncated: false })
        });
        if pushed {
            self.needs_encryption.push(is_plain);
        } else {
            self.unsent += 1;
        }
    }

    /// Returns whether the answers to one more datagram might not fit into the queue.
    pub(super) const fn is_nearly_full(&self) -> bool {
        self.outbound.is_nearly_full()
    }

    /// Sends the queued datagrams.
    pub(super) fn send(&mut self, now: Time) {
        self.outbound
            .apply_cipher(cipher::encrypt_batch, |number| self.needs_encryption.get(number) == Some(&true));
        self.needs_encryption.clear();
        // Datagrams to the server and to clients alternate but use different sockets. Grouping needs fewer
        // system calls.
        self.outbound.group_by_owner();
        for (owner, range) in self.outbound.runs_by_owner() {
            let Some(socket) = self.sockets.get(owner as usize).and_then(Option::as_ref) else {
                self.unsent += range.len() as u64;
                continue;
            };
            let Err(unsent) = socket.send(&self.outbound, range) else { continue };
            self.unsent += unsent.datagrams;
            if let Some(held_back) = self.failure_log_limit.allow(now) {
                let error = unsent.reason.map(|error| error.to_string());
                tracing::warn!(event = "send_failed", datagrams = unsent.datagrams, error, held_back);
            }
        }
        self.outbound.clear();
    }

    /// Adds a socket, and closes the old socket with the same number.
    pub(super) fn attach(&mut self, number: u32, mut socket: Socket) -> io::Result<()> {
        let index = number as usize;
        self.registrar.add(&mut socket, number)?;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, || None);
        }
        self.sockets[index] = Some(socket);
        Ok(())
    }

    /// Returns the local port of a socket.
    pub(super) fn port(&self, number: u32) -> Option<u16> {
        let socket = self.sockets.get(number as usize)?.as_ref()?;
        socket.local_address().ok().map(|address| address.port())
    }

    /// Sends the queued datagrams, then closes the socket.
    pub(super) fn detach(&mut self, number: u32, now: Time) {
        self.send(now);
        let Some(mut socket) = self.sockets.get_mut(number as usize).and_then(Option::take) else { return };
        self.readable.retain(|unread| *unread != number);
        self.registrar.remove(&mut socket);
    }

    /// Sets the list of players. Datagrams from other addresses cannot displace their reply addresses.
    pub(super) fn retain_reply_addresses(&mut self, players: impl Iterator<Item = SocketAddrV4>) {
        if let Some(reply_addresses) = &mut self.reply_addresses {
            reply_addresses.set_players(players);
        }
    }
}

/// The maximum number of datagrams from one socket before other sockets are served.
const MAX_PER_TURN: usize = 64;
const LOG_INTERVAL: Duration = Duration::from_secs(10);
