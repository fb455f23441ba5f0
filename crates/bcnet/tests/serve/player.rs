//! A player: the transport's client over a real socket, and the game above it in raw bytes.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Config, Endpoint, Event, Leave, Quality, Time};

use crate::server::PATIENCE;

pub(crate) struct Player {
    pub(crate) endpoint: Endpoint,
    pub(crate) socket: UdpSocket,
    /// Game payloads in the order of arrival.
    pub(crate) heard: Vec<Vec<u8>>,
    /// Why it is over, if it is.
    pub(crate) over: Option<Leave>,
    name: String,
    started: Instant,
}

impl Player {
    /// Asks to be let in.
    pub(crate) fn connect(to: SocketAddrV4, name: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let nonce = u32::from(socket.local_addr().expect("bound").port());
        let endpoint =
            Endpoint::connect(Config::default(), to, Ipv4Addr::LOCALHOST, nonce, Text::default(), Time::ZERO);
        #[expect(clippy::disallowed_methods, reason = "real sockets have real time")]
        let started = Instant::now();
        Self { endpoint, socket, heard: Vec::new(), over: None, name: name.into(), started }
    }

    /// Gets all the way into the game.
    pub(crate) fn join(to: SocketAddrV4, name: &str) -> Self {
        let mut player = Self::connect(to, name);
        player.until(|player| player.has(&[0x35]) && player.has(&[0x17]));
        player
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

    /// Plays on until `done`.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let mut buffer = [0; 2048];
        let mut payload = Vec::new();
        while !done(self) {
            let now = self.now();
            assert!(self.started.elapsed() < PATIENCE, "heard {:02X?}, over: {:?}", self.heard, self.over);
            self.endpoint.handle_timeout(now);
            while let Some(event) = self.endpoint.poll_event(&mut payload) {
                self.react(event, &payload);
            }
            while let Some(transmit) = self.endpoint.poll_transmit(&mut buffer, now) {
                self.socket.send_to(&buffer[..transmit.len], transmit.to).expect("sent");
            }
            if done(self) {
                return;
            }
            let due = self.endpoint.next_timeout().unwrap_or(now + Duration::from_secs(1));
            let wait = due.since(self.now()).clamp(Duration::from_millis(1), Duration::from_secs(1));
            self.socket.set_read_timeout(Some(wait)).expect("a timeout");
            match self.socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => {
                    let now = self.now();
                    self.endpoint.handle_datagram(from, &mut buffer[..len], now);
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Does what a client does by itself on its way into the game.
    fn react(&mut self, event: Event, payload: &[u8]) {
        match event {
            Event::Joined { .. } => {
                let name: Vec<u8> = self.name.encode_utf16().flat_map(u16::to_le_bytes).collect();
                let now = self.now();
                self.endpoint.identify(Ipv4Addr::LOCALHOST, Text::new(&name).expect("whole units"), now);
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
