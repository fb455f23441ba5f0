//! Benchmark of the relay: a session and its clients in memory, without cipher, driven like a game loop.
//!
//! In every tick of 60 Hz, each client sends one message, which the session relays to all others. The results include
//! the cost of the clients and of this loop. See [`runner`] for usage.
//!
//! With the argument `walk`, it relays one message in the function [`walk_of_a_message`], for `.ci/relay-walk`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;
use std::time::Duration;

use bcnet_session::client::{Client, ClientOptions, Event};
use bcnet_session::{Config, Session};
use bcnet_transport::wire::MAX_DATAGRAM;
use bcnet_transport::{Connect, DeliveryMode, Time};
use runner::BenchWorkload;

#[path = "../../bcnet-wire/benches/runner/mod.rs"]
mod runner;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "walk") {
        relay_one_message();
        return ExitCode::SUCCESS;
    }
    runner::main(vec![
        relay("relay/event-8", DeliveryMode::Reliable, event),
        relay("relay/state-8", DeliveryMode::Unreliable, state_update),
    ])
}

/// Eight players that each send one message in every second tick.
fn relay(name: &'static str, mode: DeliveryMode, payload: fn(u8) -> Vec<u8>) -> BenchWorkload {
    const TICKS: usize = 128;
    let mut lazy = None;
    let iteration = move || {
        let world = lazy.get_or_insert_with(BenchGame::with_players);
        for _ in 0..TICKS {
            world.send(mode, payload);
            world.tick();
            world.tick();
        }
        world.assert_relayed();
    };
    let units = TICKS * PLAYERS;
    BenchWorkload { name, unit: "message", units, baseline: name, iteration: Box::new(iteration) }
}

/// A session and its clients. Datagrams arrive in the same tick.
struct BenchGame {
    now: Time,
    session: Session,
    clients: Vec<(SocketAddrV4, Client)>,
    buffer: Box<AlignedBuffer>,
    payload: Vec<u8>,
    in_game: usize,
    sent: usize,
    received: usize,
}

/// The alignment is fixed: the cost of copying depends on it, and must not depend on the heap address.
#[repr(align(64))]
struct AlignedBuffer([u8; MAX_DATAGRAM]);

impl BenchGame {
    fn with_players() -> Self {
        let transport = bcnet_transport::Config { cipher: false, ..bcnet_transport::Config::default() };
        let config = Config { transport: transport.clone(), ..Config::default() };
        let connect = |n: usize| {
            let address = SocketAddrV4::new(Ipv4Addr::from(0x0A00_0000 + n as u32), 22101);
            let transport = bcnet_transport::Config { address: *address.ip(), ..transport.clone() };
            let connect = Connect { host: HOST, nonce: n as u32, password: "" };
            (address, Client::connect(transport, connect, ClientOptions::with_name("Player"), Time::ZERO))
        };
        let mut game = Self {
            now: Time::ZERO,
            session: Session::new(config, 1),
            clients: (0..PLAYERS).map(connect).collect(),
            buffer: Box::new(AlignedBuffer([0; MAX_DATAGRAM])),
            payload: Vec::new(),
            in_game: 0,
            sent: 0,
            received: 0,
        };
        (0..300).for_each(|_| game.tick());
        assert_eq!(game.in_game, PLAYERS);
        game.received = 0;
        game
    }

    fn send(&mut self, mode: DeliveryMode, payload: fn(u8) -> Vec<u8>) {
        for (_, client) in &mut self.clients {
            let slot = client.slot().expect("the client is in the game");
            client.send(&payload(slot), mode, self.now).expect("the message is queued");
            self.sent += 1;
        }
    }

    /// Passes the datagrams of each client in, and serves the session after each of them, as the program does.
    fn tick(&mut self) {
        self.now = self.now + TICK;
        for at in 0..self.clients.len() {
            let (address, client) = &mut self.clients[at];
            client.handle_timeout(self.now);
            while let Some(event) = client.poll_event(&mut self.payload, self.now) {
                match event {
                    Event::FileCheck(check) => {
                        let version: &[u8] = if check.index == 0 { b"vvvv" } else { b"" };
                        let answer = [&[0x21, check.index], version, b"dddd\0\0\0"].concat();
                        client.answer_file_check(&answer, self.now).expect("the message is queued");
                    }
                    Event::Load => client.enter(self.now).expect("the message is queued"),
                    _ => self.received += usize::from(!self.payload.is_empty()),
                }
            }
            while let Some(transmit) = client.poll_transmit(&mut self.buffer.0, self.now) {
                self.session.handle_datagram(*address, &mut self.buffer.0[..transmit.len], self.now);
            }
            self.serve_session();
        }
    }

    fn serve_session(&mut self) {
        self.session.handle_timeout(self.now);
        while let Some(transmit) = self.session.poll_transmit(&mut self.buffer.0, self.now) {
            if let Some((_, client)) = self.clients.iter_mut().find(|(address, _)| *address == transmit.to) {
                client.handle_datagram(HOST, &mut self.buffer.0[..transmit.len], self.now);
            }
        }
        while let Some(event) = self.session.poll_event() {
            self.in_game += usize::from(event.name() == "in_game");
        }
    }

    /// Asserts that every player has received the messages of all others.
    fn assert_relayed(&self) {
        assert_eq!(self.received, self.sent * (PLAYERS - 1));
    }
}

/// Plays for a while, so that all buffers have grown, then relays one event.
fn relay_one_message() {
    let mut game = BenchGame::with_players();
    for _ in 0..64 {
        game.send(DeliveryMode::Reliable, event);
        (0..30).for_each(|_| game.tick());
    }
    let (address, client) = &mut game.clients[3];
    let slot = client.slot().expect("the client is in the game");
    client.send(&event(slot), DeliveryMode::Reliable, game.now).expect("the message is queued");
    let transmit = client.poll_transmit(&mut game.buffer.0, game.now).expect("a datagram");
    let sent = walk_of_a_message(&mut game.session, *address, &mut game.buffer.0, transmit.len, game.now);
    assert_eq!(sent, PLAYERS, "seven copies and the ACK");
}

/// Makes the calls of the program for one datagram, with `bytes` at the beginning of the buffer. Returns the number of datagrams.
#[inline(never)]
fn walk_of_a_message(
    session: &mut Session,
    from: SocketAddrV4,
    buffer: &mut [u8],
    len: usize,
    now: Time,
) -> usize {
    let peer = bcnet_transport::wire::PeerId(buffer[0]);
    assert!(session.prefilter(from, &buffer[..len]));
    assert!(session.is_from_player_in_game(from, &buffer[..len]));
    let before = (session.counters(), session.peer_counters(peer));
    session.handle_datagram(from, &mut buffer[..len], now);
    assert_ne!(before, (session.counters(), session.peer_counters(peer)));
    std::hint::black_box(session.next_urgent());
    session.handle_timeout(now);
    std::iter::from_fn(|| session.poll_transmit(buffer, now)).count()
}

fn object(slot: u8) -> [u8; 4] {
    (0x3FFF_FFFF + 0x4_0000 * u32::from(slot)).to_le_bytes()
}

/// Returns the event that a weapon of the player's ship begins to fire.
fn event(slot: u8) -> Vec<u8> {
    [&[7, 0x28, 0x81, 0, 0, 0xD8, 0, 0x80, 0, 0, 0, 0, 0][..], &object(slot), &[0; 8]].concat()
}

/// Returns a state update with position, directions and speed.
fn state_update(slot: u8) -> Vec<u8> {
    [&[0x1C][..], &object(slot), &[0, 0, 0x80, 0x3F, 0x1D], &[7; 12], &[0x20; 9]].concat()
}

const TICK: Duration = Duration::from_micros(16_667);
const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 22101);
const PLAYERS: usize = 8;
