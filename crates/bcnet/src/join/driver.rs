//! Drives a client over a UDP socket, with a clock.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use anyhow::Context;
use bcnet_session::client::{self, Client, ClientOptions, CommandError, DisconnectReason};
use bcnet_transport::{Connect, Time};
use bcnet_udp::Clock;

use super::input::{self, Input};
use crate::random::random_u64;

/// Result of leaving.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeaveResult {
    /// The server has acknowledged the disconnect.
    Acknowledged,
    /// The server has not acknowledged the disconnect.
    Unacknowledged,
    /// The server ended the connection first.
    EndedByServer(DisconnectReason),
}

pub(super) struct ClientDriver {
    pub(super) client: Client,
    pub(super) clock: Clock,
    server: SocketAddrV4,
    socket: UdpSocket,
    input_sender: SyncSender<Input>,
    inputs: Receiver<Input>,
    payload: Vec<u8>,
    is_unreachable: bool,
}

impl ClientDriver {
    /// Opens a socket and sends a connect request to a server.
    pub(super) fn connect(
        server: SocketAddrV4,
        password: &str,
        options: ClientOptions,
    ) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a UDP socket")?;
        socket.connect(server).with_context(|| format!("cannot send to {server}"))?;
        let address = match socket.local_addr()? {
            SocketAddr::V4(own) => *own.ip(),
            SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let (sender, inputs) = input::channel();
        input::spawn_receiver(socket.try_clone()?, sender.clone())?;
        input::forward_signals(sender.clone())?;
        let clock = Clock::start();
        let connect = Connect { host: server, nonce: random_u64() as u32, password };
        let client = Client::connect(
            bcnet_transport::Config { address, ..bcnet_transport::Config::default() },
            connect,
            options,
            clock.now(),
        );
        Ok(Self {
            client,
            clock,
            server,
            socket,
            input_sender: sender,
            inputs,
            payload: Vec::new(),
            is_unreachable: false,
        })
    }

    /// Returns the sender to which other threads pass their inputs.
    pub(super) fn input_sender(&self) -> SyncSender<Input> {
        self.input_sender.clone()
    }

    /// Returns whether the network reported that no program listens at the server's port.
    pub(super) const fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    pub(super) fn poll_event(&mut self) -> Option<(client::Event, Time)> {
        let now = self.clock.now();
        self.client.poll_event(&mut self.payload, now).map(|event| (event, now))
    }

    pub(super) fn chat(&mut self, text: &str) -> Result<(), CommandError> {
        self.client.chat(text, self.clock.now())
    }

    /// Sends pending datagrams, then waits for an input or a timer.
    ///
    /// Passes datagrams to the client. Returns [`Input::Unreachable`] only once until a datagram arrives.
    pub(super) fn wait(&mut self) -> anyhow::Result<Option<Input>> {
        self.send();
        let now = self.clock.now();
        let due = self.client.next_timeout().map_or(MAX_WAIT, |due| due.since(now));
        let mut input = match self.inputs.recv_timeout(due.min(MAX_WAIT)) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the thread that receives datagrams has stopped")
            }
        };
        let now = self.clock.now();
        match input {
            Some(Input::Datagram(mut bytes)) => {
                self.is_unreachable = false;
                self.client.handle_datagram(self.server, &mut bytes, now);
                self.client.handle_timeout(now);
                return Ok(None);
            }
            Some(Input::Unreachable) => {
                if std::mem::replace(&mut self.is_unreachable, true) {
                    input = None;
                }
            }
            Some(Input::Line(_) | Input::Eof | Input::Interrupt) | None => {}
        }
        self.client.handle_timeout(now);
        Ok(input)
    }

    /// Sends a disconnect and waits a moment for its ACK.
    pub(super) fn leave(&mut self) -> anyhow::Result<LeaveResult> {
        let end = self.clock.now() + LEAVE_TIMEOUT;
        self.client.leave(self.clock.now());
        loop {
            while self.poll_event().is_some() {}
            self.send();
            // A second interrupt ends the wait.
            let is_over = self.client.is_closed() || self.clock.now() >= end;
            if is_over || matches!(self.wait()?, Some(Input::Interrupt)) {
                return Ok(match self.client.disconnect_reason() {
                    Some(end @ DisconnectReason::Booted(_)) => LeaveResult::EndedByServer(end),
                    _ if self.client.is_closed() => LeaveResult::Acknowledged,
                    _ => LeaveResult::Unacknowledged,
                });
            }
        }
    }

    /// Sends the last ACKs after the connection has ended.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.client.handle_timeout(self.clock.now());
        self.send();
        Ok(())
    }

    fn send(&mut self) {
        let mut buffer = [0; 2048];
        let now = self.clock.now();
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, now) {
            // A send error is ignored: it shows as silence of the server.
            drop(self.socket.send(buffer.get(..transmit.len).unwrap_or_default()));
        }
    }
}

const MAX_WAIT: Duration = Duration::from_secs(1);
/// Time for the server to acknowledge a disconnect.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
