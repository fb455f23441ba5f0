//! A player over a real UDP socket. Received payloads are kept as raw bytes.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use bcnet_session::client::{Client, ClientOptions, DisconnectReason, Event};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, DeliveryMode, Engine, Time};

use crate::server::TEST_TIMEOUT;

pub(crate) struct LoopbackPlayer {
    pub(crate) client: Client,
    pub(crate) socket: UdpSocket,
    /// Game payloads in the order of arrival.
    pub(crate) received: Vec<Vec<u8>>,
    /// The reason of the disconnect, if the player is disconnected.
    pub(crate) end: Option<DisconnectReason>,
    pub(crate) name: String,
    started: Instant,
}

impl LoopbackPlayer {
    /// Starts to connect.
    pub(crate) fn connect(to: SocketAddrV4, name: &str) -> Self {
        Self::connect_with(to, name, "")
    }

    pub(crate) fn connect_with(to: SocketAddrV4, name: &str, password: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let nonce = u32::from(socket.local_addr().expect("bound").port());
        let connect = Connect { host: to, nonce, password };
        let config = Config { address: Ipv4Addr::LOCALHOST, ..Config::default() };
        let client = Client::connect(config, connect, ClientOptions::with_name(name), Time::ZERO);
        #[expect(clippy::disallowed_methods, reason = "real sockets have real time")]
        let started = Instant::now();
        Self { client, socket, received: Vec::new(), end: None, name: name.into(), started }
    }

    /// Connects and enters the game.
    pub(crate) fn join(to: SocketAddrV4, name: &str) -> Self {
        let mut player = Self::connect(to, name);
        player.run_until(Self::is_in_game);
        player
    }

    pub(crate) fn is_in_game(&self) -> bool {
        self.client.has_entered() && self.has_no_pending_acks()
    }

    pub(crate) fn has_received(&self, start: &[u8]) -> bool {
        self.received.iter().any(|payload| payload.starts_with(start))
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let now = self.now();
        self.client.send(payload, DeliveryMode::Reliable, now).expect("connected");
    }

    /// Sends chat like the game does.
    pub(crate) fn chat(&mut self, text: &str) {
        let now = self.now();
        self.client.chat(text, now).expect("in the game");
    }

    pub(crate) fn chat_payload(&self, text: &str) -> Vec<u8> {
        let length = (text.len() as u16).to_le_bytes();
        [&[0x2C, self.client.id().0, 0, 0, 0], &length[..], text.as_bytes()].concat()
    }

    /// Leaves the game, and runs until the server has acknowledged it.
    pub(crate) fn leave(&mut self) {
        let now = self.now();
        self.client.leave(now);
        self.run_until(|player| player.client.is_closed());
    }

    /// Runs until `done`.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            self.turn(Duration::from_secs(1));
        }
    }

    /// Runs until the player is disconnected and has acknowledged it.
    pub(crate) fn run_until_end(&mut self) -> DisconnectReason {
        self.run_until(|player| player.end.is_some() && player.has_no_pending_acks());
        self.end.expect("disconnected")
    }

    fn has_no_pending_acks(&self) -> bool {
        self.client
            .engine()
            .snapshot(PeerId::HOST, self.now())
            .is_none_or(|snapshot| snapshot.pending_acks.is_empty())
    }

    /// Waits at most `max_wait` for one datagram, then sends everything that is due.
    pub(crate) fn turn(&mut self, max_wait: Duration) {
        assert!(
            self.started.elapsed() < TEST_TIMEOUT,
            "timeout; received {:02X?}, end: {:?}",
            self.received,
            self.end
        );
        let mut buffer = [0; 2048];
        let due = self.client.next_timeout().map_or(max_wait, |due| due.since(self.now()));
        self.socket.set_read_timeout(Some(due.clamp(Duration::from_millis(1), max_wait))).expect("a timeout");
        match self.socket.recv_from(&mut buffer) {
            Ok((len, SocketAddr::V4(from))) => {
                let now = self.now();
                self.client.handle_datagram(from, &mut buffer[..len], now);
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
            Err(error) => panic!("{error}"),
        }
        let now = self.now();
        self.client.handle_timeout(now);
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            self.handle_event(event, &payload, now);
        }
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, now) {
            self.socket.send_to(&buffer[..transmit.len], transmit.to).expect("sent");
        }
    }

    /// Answers events on the way into the game.
    fn handle_event(&mut self, event: Event, payload: &[u8], now: Time) {
        if !payload.is_empty() {
            self.received.push(payload.to_vec());
        }
        match event {
            // An installation without any files: version, directory, no files, no directories.
            Event::FileCheck(check) => {
                let version: &[u8] = if check.index == 0 { &[1, 2, 3, 4] } else { &[] };
                let answer = [&[0x21, check.index], version, &[5, 6, 7, 8, 0, 0, 0]].concat();
                self.client.answer_file_check(&answer, now).expect("connected");
            }
            Event::Load => self.client.enter(now).expect("connected"),
            Event::Gone { reason: end, .. } => self.end = Some(end),
            _ => {}
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }
}

/// Joins two players, the second after the first has entered.
pub(crate) fn join_two(to: SocketAddrV4, names: [&str; 2]) -> [LoopbackPlayer; 2] {
    let mut first = LoopbackPlayer::join(to, names[0]);
    let mut second = LoopbackPlayer::connect(to, names[1]);
    run_both_until(&mut first, &mut second, LoopbackPlayer::is_in_game);
    [first, second]
}

/// Runs all players until `done`.
pub(crate) fn run_all_until(players: &mut [LoopbackPlayer], done: impl Fn(&[LoopbackPlayer]) -> bool) {
    while !done(players) {
        for player in &mut *players {
            player.turn(Duration::from_millis(1));
        }
    }
}

/// Runs both players until the second is `done`.
pub(crate) fn run_both_until(
    first: &mut LoopbackPlayer,
    second: &mut LoopbackPlayer,
    done: impl Fn(&LoopbackPlayer) -> bool,
) {
    while !done(second) {
        first.turn(Duration::from_millis(1));
        second.turn(Duration::from_millis(1));
    }
}
