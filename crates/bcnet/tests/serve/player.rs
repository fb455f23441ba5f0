//! A player: the transport's client over a real socket, and the game above it in raw bytes.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Config, Connect, Endpoint, Engine, Event, Leave, Quality, Time};

use crate::server::PATIENCE;

pub(crate) struct Player {
    pub(crate) endpoint: Endpoint,
    pub(crate) socket: UdpSocket,
    /// Game payloads in the order of arrival.
    pub(crate) heard: Vec<Vec<u8>>,
    /// Why it is over, if it is.
    pub(crate) over: Option<Leave>,
    pub(crate) name: String,
    started: Instant,
}

impl Player {
    /// Asks to be let in.
    pub(crate) fn connect(to: SocketAddrV4, name: &str) -> Self {
        Self::connect_with(to, name, "")
    }

    pub(crate) fn connect_with(to: SocketAddrV4, name: &str, password: &str) -> Self {
        let password = Text::encode(password).expect("no NUL");
        let password = Text::new(&password).expect("whole units");
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let nonce = u32::from(socket.local_addr().expect("bound").port());
        let endpoint = Endpoint::connect(
            Config { address: Ipv4Addr::LOCALHOST, ..Config::default() },
            Connect { host: to, nonce, password },
            Time::ZERO,
        );
        #[expect(clippy::disallowed_methods, reason = "real sockets have real time")]
        let started = Instant::now();
        Self { endpoint, socket, heard: Vec::new(), over: None, name: name.into(), started }
    }

    /// Gets all the way into the game.
    pub(crate) fn join(to: SocketAddrV4, name: &str) -> Self {
        let mut player = Self::connect(to, name);
        player.until(Self::is_in_game);
        player
    }

    pub(crate) fn is_in_game(&self) -> bool {
        self.has(&[0x35]) && self.has(&[0x17]) && self.owes_nothing()
    }

    pub(crate) fn has(&self, start: &[u8]) -> bool {
        self.heard.iter().any(|payload| payload.starts_with(start))
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let now = self.now();
        self.endpoint.send(PeerId::HOST, payload, Quality::Reliable, now).expect("connected");
    }

    /// Chat, as the game writes it.
    pub(crate) fn chat(&mut self, text: &str) {
        let payload = self.chat_of(text);
        self.send(&payload);
    }

    pub(crate) fn chat_of(&self, text: &str) -> Vec<u8> {
        let length = (text.len() as u16).to_le_bytes();
        [&[0x2C, self.endpoint.id().0, 0, 0, 0], &length[..], text.as_bytes()].concat()
    }

    /// Says goodbye, and plays on until that was heard.
    pub(crate) fn leave(&mut self) {
        let now = self.now();
        self.endpoint.leave(now);
        self.until(|player| player.endpoint.is_closed());
    }

    /// Plays on until `done`.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            self.turn(Duration::from_secs(1));
        }
    }

    /// Plays on until it is over, and says that it has heard so.
    pub(crate) fn until_over(&mut self) -> Leave {
        self.until(|player| player.over.is_some() && player.owes_nothing());
        self.over.expect("over")
    }

    fn owes_nothing(&self) -> bool {
        self.endpoint.snapshot(PeerId::HOST, self.now()).is_none_or(|snapshot| snapshot.acks.is_empty())
    }

    /// Takes at most one datagram, waiting for it no longer than `most`, and sends what is to be sent.
    fn turn(&mut self, most: Duration) {
        assert!(self.started.elapsed() < PATIENCE, "heard {:02X?}, over: {:?}", self.heard, self.over);
        let mut buffer = [0; 2048];
        let due = self.endpoint.next_timeout().map_or(most, |due| due.since(self.now()));
        self.socket.set_read_timeout(Some(due.clamp(Duration::from_millis(1), most))).expect("a timeout");
        match self.socket.recv_from(&mut buffer) {
            Ok((len, SocketAddr::V4(from))) => {
                let now = self.now();
                self.endpoint.handle_datagram(from, &mut buffer[..len], now);
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
            Err(error) => panic!("{error}"),
        }
        let now = self.now();
        self.endpoint.handle_timeout(now);
        let mut payload = Vec::new();
        while let Some(event) = self.endpoint.poll_event(&mut payload) {
            self.react(event, &payload);
        }
        while let Some(transmit) = self.endpoint.poll_transmit(&mut buffer, now) {
            self.socket.send_to(&buffer[..transmit.len], transmit.to).expect("sent");
        }
    }

    /// Does what a client does by itself on its way into the game.
    fn react(&mut self, event: Event, payload: &[u8]) {
        match event {
            Event::Joined { .. } => {
                let name: Vec<u8> = self.name.encode_utf16().flat_map(u16::to_le_bytes).collect();
                let now = self.now();
                self.endpoint.identify(Text::new(&name).expect("whole units"), now).expect("it has joined");
            }
            Event::Received { .. } => {
                self.heard.push(payload.to_vec());
                match payload {
                    // An installation without any files: version, directory, no files, no directories.
                    [0x20, 0, ..] => self.send(&[0x21, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0]),
                    [0x20, round, ..] => self.send(&[0x21, *round, 5, 6, 7, 8, 0, 0, 0]),
                    [0x01] => self.send(&[0x2A, 0x20]),
                    _ => {}
                }
            }
            Event::Left { peer, reason } if peer == PeerId::HOST || peer == self.endpoint.id() => {
                self.over = Some(reason);
            }
            _ => {}
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }
}

/// Two players who get all the way into the game, the second when the first is there.
pub(crate) fn join_two(to: SocketAddrV4, names: [&str; 2]) -> [Player; 2] {
    let mut first = Player::join(to, names[0]);
    let mut second = Player::connect(to, names[1]);
    together(&mut first, &mut second, Player::is_in_game);
    [first, second]
}

/// All play on until they are `done`.
pub(crate) fn all_until(players: &mut [Player], done: impl Fn(&[Player]) -> bool) {
    while !done(players) {
        for player in &mut *players {
            player.turn(Duration::from_millis(1));
        }
    }
}

/// Both play on until the second is `done`.
pub(crate) fn together(first: &mut Player, second: &mut Player, done: impl Fn(&Player) -> bool) {
    while !done(second) {
        first.turn(Duration::from_millis(1));
        second.turn(Duration::from_millis(1));
    }
}
